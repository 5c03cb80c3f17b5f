"""What a transferred annotation is worth on one detection: mask IoU, part IoU, right labels.

In: exemplars drawn for a detection and the object that is there. Out: numbers from 0 to 1 by the name of the measure; a
measure that the object or the exemplars are not annotated for is absent. Void pixels of the object's image, which
nobody labelled, count neither for nor against a mask, as in PASCAL VOC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm import boxes as geometry
from eesvm.images.masks import check_mask, mask_box
from eesvm.images.warping import pixels_touched
from eesvm.structures import Box, ExemplarAnnotation, Instance
from eesvm.transfer.inheritance import TransferredAnnotation, numbered_parts, transfer, transfer_consensus
from eesvm.transfer.refinement import Means, refine
from eesvm.transfer.region_trees import RegionTrees

MASK_IOU = "mask IoU"
PART_IOU = "part IoU"  # mean over the parts of the object; `part IoU, NAME` for each name where there are several
PARTS_FOUND = "parts at IoU 0.5"  # share of the parts whose transferred box has an IoU of at least 0.5
POSE = "pose"  # share of right poses, as every other label under its own key


class Draw(NamedTuple):
    """Exemplars that transfer together; without weights they weigh alike, and a single one needs none."""

    exemplars: tuple[int, ...]
    weights: tuple[float, ...] | None = None
    is_refined: bool = False  # whether their mask is refined by the image


@dataclass(frozen=True)
class Truth:
    """An object and its mask, as a piece that ends where the mask ends; `void` are pixels of the whole image."""

    instance: Instance
    mask: NDArray[np.bool_] | None = None
    offset: tuple[int, int] = (0, 0)
    void: NDArray[np.bool_] | None = None

    def mask_iou(self, mask: NDArray[np.bool_] | None, offset: tuple[int, int]) -> dict[str, float]:
        """The measure of a mask, a piece at `offset`; none where either is unknown."""
        if mask is None or self.mask is None:
            return {}
        return {MASK_IOU: iou_of_pieces(_outside(self.void, mask, offset), offset, self.mask, self.offset)}


class Judge:
    """Measures what exemplars transfer to one detection, each of them once."""

    def __init__(
        self,
        annotations: Sequence[ExemplarAnnotation],
        box: Box,
        image_size: tuple[int, int],
        truth: Truth,
        keys: tuple[str, ...],
        read_image: Callable[[], NDArray[np.uint8] | None] | None = None,
        means: Means | None = None,
        trees: RegionTrees | None = None,
    ) -> None:
        self.annotations, self.box, self.image_size = annotations, box, image_size
        self.read_image, self.means, self.trees = read_image, means, trees
        self.truth, self.keys = truth, keys
        self.known: dict[Draw, dict[str, float]] = {}

    def measures(self, draw: Draw) -> dict[str, float]:
        """All measures of what these exemplars transfer; none of no exemplar."""
        if not draw.exemplars:
            return {}
        if draw not in self.known:
            chosen = [self.annotations[exemplar] for exemplar in draw.exemplars]
            handed = (
                transfer(chosen[0], self.box, self.image_size)
                if len(chosen) == 1
                else transfer_consensus(chosen, draw.weights, self.box, self.image_size)
            )
            pixels = self.read_image() if draw.is_refined and self.read_image is not None else None
            if pixels is not None:
                handed = refine(handed, chosen, pixels, draw.weights, self.means, self.trees)
            mask = self.truth.mask_iou(handed.mask, handed.offset)
            self.known[draw] = {**mask, **self._parts(handed), **self._labels(handed)}
        return self.known[draw]

    def whole_box(self) -> dict[str, float]:
        """The measure of a mask that fills the box."""
        x1, y1, x2, y2 = pixels_touched(self.box, *self.image_size)
        return self.truth.mask_iou(np.ones((y2 - y1, x2 - x1), dtype=bool), (x1, y1))

    def best(self) -> Draw:
        """The exemplar of the class with the highest mask IoU, or part IoU where no mask is known."""

        def worth(exemplar: int) -> tuple[float, float]:
            found = self.measures(Draw((exemplar,)))
            return found.get(MASK_IOU, -1.0), found.get(PART_IOU, -1.0)

        eligible = candidates(self.annotations, self.truth.instance)
        return Draw((max(eligible, key=worth),) if eligible else ())

    def _parts(self, handed: TransferredAnnotation) -> dict[str, float]:
        known, found = (numbered_parts(each) for each in (self.truth.instance.parts, handed.parts))
        if not known or not found:
            return {}
        overlaps = {
            key: float(geometry.iou([part.box], [found[key].box])[0, 0]) if key in found else 0.0
            for key, part in known.items()
        }
        each = {name: [iou for (other, _), iou in overlaps.items() if other == name] for name, _ in overlaps}
        by_name = {part_measure(name): float(np.mean(ious)) for name, ious in each.items()}
        every = list(overlaps.values())
        return {PART_IOU: float(np.mean(every)), PARTS_FOUND: float(np.mean([iou >= 0.5 for iou in every])), **by_name}

    def _labels(self, handed: TransferredAnnotation) -> dict[str, float]:
        instance = self.truth.instance
        right = {}
        if instance.pose is not None and handed.pose is not None:
            right[POSE] = float(instance.pose == handed.pose)
        for key in self.keys:
            if key in instance.metadata and key in handed.metadata:
                right[key] = float(bool(np.all(instance.metadata[key] == handed.metadata[key])))
        return right


def read_truth(instance: Instance) -> Truth:
    """An object with its mask, which is unknown where no pixel of it is labelled."""
    if instance.mask is None:
        return Truth(instance)
    whole = check_mask(instance.mask())
    void = check_mask(instance.void()) if instance.void is not None and whole.any() else None
    whole = _outside(void, whole, (0, 0))
    extent = mask_box(whole)
    if extent is None:
        return Truth(instance)
    x1, y1, x2, y2 = extent.astype(int).tolist()
    return Truth(instance, whole[y1:y2, x1:x2].copy(), (x1, y1), void)


def _outside(void: NDArray[np.bool_] | None, mask: NDArray[np.bool_], offset: tuple[int, int]) -> NDArray[np.bool_]:
    """The piece `mask` at `offset` without its pixels in `void`, which spans the image."""
    if void is None:
        return mask
    x, y = offset
    piece = void[y : y + mask.shape[0], x : x + mask.shape[1]]
    kept = mask.copy()
    kept[: piece.shape[0], : piece.shape[1]] &= ~piece
    return kept


def iou_of_pieces(
    mask: NDArray[np.bool_], offset: tuple[int, int], other: NDArray[np.bool_], other_offset: tuple[int, int]
) -> float:
    """IoU of two masks of one image, each a piece and the x, y of its upper left pixel."""
    (x, y), (u, v) = offset, other_offset
    left, top = max(x, u), max(y, v)
    right = max(left, min(x + mask.shape[1], u + other.shape[1]))
    bottom = max(top, min(y + mask.shape[0], v + other.shape[0]))
    first = mask[top - y : bottom - y, left - x : right - x]
    second = other[top - v : bottom - v, left - u : right - u]
    common = int((first & second).sum())
    union = int(mask.sum()) + int(other.sum()) - common
    return common / union if union else 0.0


def candidates(annotations: Sequence[ExemplarAnnotation], instance: Instance) -> list[int]:
    """Exemplars of the class of an instance that are not from its own image."""
    return [
        j
        for j, each in enumerate(annotations)
        if each.class_name == instance.class_name and each.image_id != instance.image_id
    ]


def part_measure(name: str) -> str:
    return f"{PART_IOU}, {name}"
