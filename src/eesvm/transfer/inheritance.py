"""One detection and its exemplars: mask, parts, keypoints, pose and labels carried onto the detection's box.

In: annotated training objects (`annotate` takes what can be transferred from an `Instance`) and the box of a detection.
Out: a `TransferredAnnotation`: mask, part boxes and keypoints in the detection's image, pose, metadata, and how far
those who transfer it agree. `transfer` takes one exemplar, `transfer_consensus` several that fire on one detection.
Masks are kept as a piece of the image and where it lies, so many detections in large images stay small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm import boxes as geometry
from eesvm._support.validation import InputError, check_weights
from eesvm.images.masks import check_mask
from eesvm.images.warping import pixels_touched
from eesvm.structures import Box, ExemplarAnnotation, Instance, Part
from eesvm.transfer.mirroring import mirrored
from eesvm.transfer.target import HALF, KEYPOINTS, Target, box_text, check_box, check_image, names_of


@dataclass(frozen=True)
class Agreement:
    """Share of all the weight behind each thing that was transferred; 0 where nothing was, 1 for a single exemplar.

    Exemplars without a mask, such a part or such a label are not counted.
    """

    class_name: float = 1.0
    mask: float = 0.0  # over the pixels of any mask, the mean share that is of the same mind as the vote
    pose: float = 0.0
    parts: tuple[float, ...] = ()  # in the order of the parts: whose box of it has an IoU >= 0.5 with the median
    keypoints: Mapping[str, float] = field(default_factory=dict)  # who has it at all
    metadata: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TransferredAnnotation:
    """What a detection inherits, in the coordinates of its own image; parts and keypoints end at the image's border."""

    class_name: str
    box: Box  # (4,) of the detection
    image_size: tuple[int, int]  # width, height
    exemplars: tuple[tuple[str, int], ...]  # image and index of the training objects that transferred it
    mask: NDArray[np.bool_] | None = None  # (h, w) of the pixels that the box touches; None: no exemplar has a mask
    offset: tuple[int, int] = (0, 0)  # x, y of the mask's upper left pixel in the image
    parts: tuple[Part, ...] = ()
    keypoints: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # x, y and visibility where there is one
    pose: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    agreement: Agreement = field(default_factory=Agreement)
    is_refined: bool = False  # whether the mask follows the image, see `refinement`

    @property
    def subcategory(self) -> Any:
        """The subcategory, such as a breed, or None."""
        return self.metadata.get("subcategory")

    @property
    def missing(self) -> tuple[str, ...]:
        """What the exemplars had nothing to say about: some of mask, parts, keypoints, pose, metadata."""
        has = {
            "mask": self.mask is not None,
            "parts": bool(self.parts),
            KEYPOINTS: bool(self.keypoints),
            "pose": self.pose is not None,
            "metadata": bool(self.metadata),
        }
        return tuple(name for name, is_there in has.items() if not is_there)

    def whole_mask(self) -> NDArray[np.bool_]:
        """(height, width) mask of the whole image."""
        if self.mask is None:
            raise InputError(f"the detection has no mask: none was annotated for {names_of(self.exemplars)}")
        width, height = self.image_size
        whole = np.zeros((height, width), dtype=bool)
        (x, y), (h, w) = self.offset, self.mask.shape
        whole[y : y + h, x : x + w] = self.mask
        return whole


def annotate(instance: Instance, image: NDArray[np.uint8] | None = None) -> ExemplarAnnotation:
    """What an instance can transfer.

    The mask is cut to the pixels that the box touches. A mask without a pixel there is no mask: None.

    Parameters
    ----------
    instance : the annotated object.
    image : (height, width, 3) uint8, RGB: its whole image, from which its picture is cut. Default: no picture.
    """
    what = f"object {instance.index + 1} of image {instance.image_id}"
    box = check_box(instance.box, f"the box of {what}")
    picture = None if image is None else _cut(check_image(image), box, what)
    mask = None
    if instance.mask is not None:
        whole = check_mask(instance.mask())
        if image is not None and whole.shape != image.shape[:2]:
            sizes = " and ".join(f"{shape[1]} x {shape[0]}" for shape in (whole.shape, image.shape))
            raise InputError(f"the mask and the image of {what} must have one size, got {sizes} pixels")
        mask = _cut(whole, box, what)
        mask = mask if mask.any() else None
    return ExemplarAnnotation(
        class_name=instance.class_name,
        image_id=instance.image_id,
        index=instance.index,
        box=box,
        mask=mask,
        parts=instance.parts,
        pose=instance.pose,
        metadata=dict(instance.metadata),
        picture=picture,
    )


def transfer(
    annotation: ExemplarAnnotation, box: ArrayLike, image_size: tuple[int, int], is_mirrored: bool = False
) -> TransferredAnnotation:
    """The exemplar's annotation on a detection.

    Parameters
    ----------
    annotation : of the exemplar.
    box : of the detection, half-open xyxy; it must overlap the image.
    image_size : width and height of the detection's image.
    is_mirrored : the exemplar won as its mirror image, see `mirrored`.
    """
    annotation = mirrored(annotation) if is_mirrored else annotation
    target = Target.of(box, image_size)
    mask = target.mask(annotation)
    parts = target.parts(annotation)
    keypoints = target.keypoints(annotation)
    metadata = _labels(annotation)
    return TransferredAnnotation(
        class_name=annotation.class_name,
        box=target.box,
        image_size=target.image_size,
        exemplars=((annotation.image_id, annotation.index),),
        mask=mask,
        offset=target.pixels[:2],
        parts=tuple(parts),
        keypoints=keypoints,
        pose=annotation.pose,
        metadata=metadata,
        agreement=Agreement(
            mask=float(mask is not None),
            pose=float(annotation.pose is not None),
            parts=(1.0,) * len(parts),
            keypoints=dict.fromkeys(keypoints, 1.0),
            metadata=dict.fromkeys(metadata, 1.0),
        ),
    )


def transfer_consensus(
    annotations: Sequence[ExemplarAnnotation],
    weights: ArrayLike | None,
    box: ArrayLike,
    image_size: tuple[int, int],
) -> TransferredAnnotation:
    """What several exemplars that fire on one detection agree on, each with its weight; None weighs them alike.

    Mask: a pixel is in where exemplars with at least half of the weight of all masks say so. Parts, by name and
    occurrence: there where at least half of the weight of all who have parts has it; each side of the box is the
    weighted median. Keypoints alike. Class, pose and each key of the metadata: the value with the most weight among
    those who have one; of equal weights the one named first. Values without a hash are not counted together: that of
    the heaviest exemplar stands. One exemplar alone gives what `transfer` gives.

    Parameters
    ----------
    annotations : of the exemplars, at least one.
    weights : (k,) of their votes, 0 or more and not all 0; None weighs them alike.
    box : of the detection, half-open xyxy; it must overlap the image.
    image_size : width and height of the detection's image.
    """
    target = Target.of(box, image_size)
    voters = check_voters(annotations, weights)
    total = sum(weight for _, weight in voters)
    mask, mask_agreement = _vote_mask(voters, target, total)
    parts, part_agreement = _vote_parts(voters, target, total)
    keypoints, keypoint_agreement = _vote_keypoints(voters, target, total)
    class_name, class_agreement = _majority([(each.class_name, weight) for each, weight in voters], total)
    pose, pose_agreement = _majority([(each.pose, w) for each, w in voters if each.pose is not None], total)
    labels = [(_labels(each), weight) for each, weight in voters]
    keys = dict.fromkeys(key for values, _ in labels for key in values)
    votes = {key: _majority([(values[key], w) for values, w in labels if key in values], total) for key in keys}
    return TransferredAnnotation(
        class_name=class_name,
        box=target.box,
        image_size=target.image_size,
        exemplars=tuple((each.image_id, each.index) for each, _ in voters),
        mask=mask,
        offset=target.pixels[:2],
        parts=tuple(parts),
        keypoints=keypoints,
        pose=pose,
        metadata={key: value for key, (value, _) in votes.items()},
        agreement=Agreement(
            class_name=class_agreement,
            mask=mask_agreement,
            pose=pose_agreement,
            parts=part_agreement,
            keypoints=keypoint_agreement,
            metadata={key: share for key, (_, share) in votes.items()},
        ),
    )


_Voters = list[tuple[ExemplarAnnotation, float]]


def _vote_mask(voters: _Voters, target: Target, total: float) -> tuple[NDArray[np.bool_] | None, float]:
    votes, is_any, weight_of_masks = None, None, 0.0
    for annotation, weight in voters:
        mask = target.mask(annotation)
        if mask is None:
            continue
        if votes is None or is_any is None:
            votes, is_any = np.zeros(mask.shape), np.zeros_like(mask)
        votes[mask] += weight
        is_any |= mask
        weight_of_masks += weight
    if votes is None or is_any is None:
        return None, 0.0
    shares = votes / weight_of_masks
    is_in = shares >= HALF
    agreeing = np.where(is_in, shares, 1 - shares)[is_any]
    # Masks that all vanish when they are shrunk agree that nothing is left.
    return is_in, float(agreeing.mean() if len(agreeing) else 1.0) * weight_of_masks / total


def _vote_parts(voters: _Voters, target: Target, total: float) -> tuple[list[Part], tuple[float, ...]]:
    found: dict[tuple[str, int], list[tuple[Box, float]]] = {}
    weight_with_parts = 0.0
    for annotation, weight in voters:
        parts = target.parts(annotation)
        weight_with_parts += weight if parts else 0.0
        for key, part in numbered_parts(parts).items():
            found.setdefault(key, []).append((part.box, weight))
    elected, agreement = [], []
    for (name, _), candidates in found.items():
        corners, weights = np.array([box for box, _ in candidates]), np.array([weight for _, weight in candidates])
        if weights.sum() < HALF * weight_with_parts:
            continue
        box = np.array([weighted_median(side, weights) for side in corners.T])
        agrees = geometry.iou(corners, [box])[:, 0] >= 0.5
        elected.append(Part(name, box))
        agreement.append(float(weights[agrees].sum() / total))
    return elected, tuple(agreement)


def _vote_keypoints(
    voters: _Voters, target: Target, total: float
) -> tuple[dict[str, tuple[float, ...]], dict[str, float]]:
    found: dict[str, list[tuple[tuple[float, ...], float]]] = {}
    weight_with_points = 0.0
    for annotation, weight in voters:
        points = target.keypoints(annotation)
        weight_with_points += weight if points else 0.0
        for name, point in points.items():
            found.setdefault(name, []).append((point, weight))
    elected, agreement = {}, {}
    for name, candidates in found.items():
        weights = np.array([weight for _, weight in candidates])
        if weights.sum() < HALF * weight_with_points:
            continue
        place = [weighted_median(np.array([point[axis] for point, _ in candidates]), weights) for axis in (0, 1)]
        visibility, _ = _majority([(point[2:], weight) for point, weight in candidates], total)
        elected[name] = (*place, *visibility)
        agreement[name] = float(weights.sum() / total)
    return elected, agreement


def weighted_median(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """The value with half of the weight on either side; the middle of two where the weight parts exactly there."""
    order = np.argsort(values, kind="stable")
    ordered, below = values[order], np.cumsum(weights[order])
    half, tolerance = below[-1] / 2, 1e-12 * below[-1]
    lower = int(np.argmax(below >= half - tolerance))
    upper = int(np.argmax(below > half + tolerance))
    return float(ordered[lower] if lower == upper else (ordered[lower] + ordered[upper]) / 2)


def numbered_parts(parts: Sequence[Part]) -> dict[tuple[str, int], Part]:
    """Parts by their name and their number among those of that name: an object may have two hands."""
    counts: dict[str, int] = {}
    numbered = {}
    for part in parts:
        numbered[part.name, counts.get(part.name, 0)] = part
        counts[part.name] = counts.get(part.name, 0) + 1
    return numbered


def is_hashable(value: Any) -> bool:
    """Whether equal values can be counted together."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _majority(votes: list[tuple[Any, float]], total: float) -> tuple[Any, float]:
    """The value with the most weight, of equal ones the first named, and its share of `total`; None of no votes."""
    if not votes:
        return None, 0.0
    if not all(is_hashable(value) for value, _ in votes):
        value, weight = max(votes, key=lambda vote: vote[1])
        return value, weight / total
    weights: dict[Any, float] = {}
    for value, weight in votes:
        weights[value] = weights.get(value, 0.0) + weight
    winner = max(weights, key=lambda value: weights[value])
    return winner, weights[winner] / total


def _labels(annotation: ExemplarAnnotation) -> dict[str, Any]:
    """The metadata that does not change with the place."""
    return {key: value for key, value in annotation.metadata.items() if key != KEYPOINTS}


def check_voters(annotations: Sequence[ExemplarAnnotation], weights: ArrayLike | None) -> _Voters:
    """Annotations that have a weight, with it."""
    if not annotations:
        raise InputError("`annotations` must hold at least one exemplar")
    checked = check_weights(weights, len(annotations), "weights", allow_zero=True)
    if not checked.sum() > 0:
        raise InputError("`weights` must not all be 0")
    return [(each, weight) for each, weight in zip(annotations, checked.tolist(), strict=True) if weight > 0]


def _cut(pixels: NDArray[Any], box: Box, what: str) -> NDArray[Any]:
    """A copy of the pixels that the box touches, so that the whole can be let go."""
    height, width = pixels.shape[:2]
    x1, y1, x2, y2 = pixels_touched(box, width, height)
    if x1 >= x2 or y1 >= y2:
        raise InputError(f"the box of {what} must overlap its image of {width} x {height} pixels, got {box_text(box)}")
    return pixels[y1:y2, x1:x2].copy()
