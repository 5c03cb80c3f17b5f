"""The detections and missed objects that the page shows, and the images they lie in, each held once.

In: detections, verdicts, and the records of a dataset. Out: `ShownDetection`s with the masks that they inherit,
`Missed` objects, `Scene`s, the images.
Of more detections than wanted the surest of each class stay, as far as possible equally many of each.
Not here: judging (`truth`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import InputError
from eesvm.datasets.problems import reason, skip
from eesvm.images.outlines import outline
from eesvm.images.warping import Edges, covered_share
from eesvm.report.data import UNJUDGED, BoxTuple, Image, Mask, Missed, Object, Scene, ShownDetection
from eesvm.report.pictures import fitted_jpeg, share
from eesvm.report.truth import Judgement, Verdict
from eesvm.structures import Box, Dataset, Detection, Detections, ExemplarAnnotation, ImageRecord, Problem
from eesvm.transfer.detections import hand_on_refined
from eesvm.transfer.refinement import Means
from eesvm.transfer.target import HALF

SCENE_BYTES = 9_000_000  # of all images together; in base 64 they take a third more
_OUTLINE_SIDE = 96  # pixels that the longer side of a mask may have when it is outlined

Pixels = NDArray[np.uint8]

Progress = Callable[[int, int], object]  # how much is done, and of how much


def choose_detections(detections: Sequence[Detections], n_most: int) -> list[tuple[Detection, int]]:
    """The `n_most` that are shown, highest score first, each with its row among those of its image."""
    places = [(one, row) for entry in detections for row, one in enumerate(entry)]
    if not places:
        return []
    scores = np.concatenate([entry.scores for entry in detections])
    _, classes = np.unique(np.concatenate([entry.class_names for entry in detections]), return_inverse=True)
    order = np.argsort(-scores, kind="stable")
    rank = np.empty(len(order), dtype=np.intp)  # of each among those of its class
    for class_id in range(classes.max() + 1):
        own = order[classes[order] == class_id]
        rank[own] = np.arange(len(own))
    kept = np.lexsort((-scores, rank))[:n_most]
    return [places[k] for k in kept[np.argsort(-scores[kept], kind="stable")].tolist()]


class Scenes:
    """Collects the images that are needed, in the order in which they are asked for."""

    def __init__(self, dataset: Dataset) -> None:
        self._records = {record.image_id: record for record in dataset}
        self._numbers: dict[str, int] = {}

    def number(self, image_id: str) -> int:
        """The place of an image among the scenes."""
        return self._numbers.setdefault(image_id, len(self._numbers))

    def object_of(self, image_id: str, instance: int | None) -> int | None:
        """The place of an instance among the objects of its scene; files may skip numbers."""
        indices = [each.index for each in self._records[image_id].instances]
        return indices.index(instance) if instance in indices else None

    def detection(
        self,
        found: Detection,
        row: int,
        class_ids: dict[str, int],
        exemplars: Sequence[ExemplarAnnotation],
        judgement: Judgement | None,
    ) -> ShownDetection:
        """A detection as the page shows it."""
        verdict = Verdict(UNJUDGED) if judgement is None else judgement.of(found.image_id, row)
        return ShownDetection(
            scene=self.number(found.image_id),
            class_id=class_ids[found.class_name],
            score=found.score,
            box=_box(found.box),
            exemplar=None if found.exemplar < 0 else found.exemplar,
            kind=verdict.kind,
            iou=verdict.iou,
            object=self.object_of(found.image_id, verdict.instance),
            is_surest=judgement is not None and (found.image_id, row) in judgement.surest,
            is_own_image=found.exemplar >= 0 and exemplars[found.exemplar].image_id == found.image_id,
        )

    def missed(self, judgement: Judgement, class_ids: dict[str, int], n_most: int) -> tuple[Missed, ...]:
        """Missed objects, of too many every so-manieth, those that a detection came nearest to last."""
        everything = judgement.errors.missed
        places = np.linspace(0, len(everything) - 1, min(n_most, len(everything))).round().astype(int)
        chosen = [everything[k] for k in places.tolist()]
        found = []
        for each in sorted(chosen, key=lambda one: one.best_iou):
            place = self.object_of(each.image_id, each.instance)
            if place is not None:
                scene = self.number(each.image_id)
                found.append(Missed(scene, place, class_ids[each.class_name], float(each.best_iou)))
        return tuple(found)

    def embed(
        self,
        images: list[Image],
        problems: list[Problem],
        progress: Progress | None = None,
        look: Callable[[int, Pixels], object] | None = None,
    ) -> tuple[Scene, ...]:
        """All scenes; their images are appended to `images`, those that cannot be read are problems.

        Parameters
        ----------
        look : called with the number of each scene and its image, which is read once.
        """
        scenes = []
        most_bytes = share(SCENE_BYTES, len(self._numbers))
        for done, image_id in enumerate(self._numbers, start=1):
            record = self._records[image_id]
            image = _embedded(record, most_bytes, problems, None if look is None else partial(look, done - 1))
            objects = tuple(
                Object(each.class_name, _box(each.box), not (each.is_difficult or each.is_crowd))
                for each in record.instances
            )
            scenes.append(Scene(image_id, record.width, record.height, None if image is None else len(images), objects))
            images.extend([] if image is None else [image])
            if progress is not None:
                progress(done, len(self._numbers))
        return tuple(scenes)


def _embedded(
    record: ImageRecord, most_bytes: int, problems: list[Problem], look: Callable[[Pixels], object] | None
) -> Image | None:
    """The image, after a look at it; None, and a problem, where it cannot be read or be used."""
    try:
        pixels = record.read()
        image = fitted_jpeg(pixels, most_bytes)
        if look is not None:
            look(pixels)
    except (InputError, OSError, ValueError, MemoryError) as error:
        where = record.path or record.image_id
        if all(one.path != where or one.kind != "image" for one in problems):  # detection has met it, perhaps
            skip(Problem(where, reason(error).removeprefix(f"{where}: "), kind="image"), problems, strict=False)
        return None
    return image


def with_masks(
    shown: Sequence[ShownDetection],
    boxes: Sequence[Box],
    scene: int,
    pixels: Pixels,
    exemplars: Sequence[ExemplarAnnotation],
    means: Means | None = None,
) -> list[ShownDetection]:
    """The detections, those of one scene with the masks that they inherit; `boxes` are theirs, not rounded."""
    return [
        replace(one, mask=_mask(exemplars[one.exemplar], box, pixels, means))
        if one.scene == scene and one.exemplar is not None
        else one
        for one, box in zip(shown, boxes, strict=True)
    ]


def _mask(exemplar: ExemplarAnnotation, box: Box, pixels: Pixels, means: Means | None) -> Mask | None:
    """What files have of it, too; None where there is no mask, or one that does not fit."""
    try:
        handed = hand_on_refined(exemplar, box, pixels, means)
    except InputError:
        return None
    if handed.mask is None or not handed.mask.any():
        return None
    height, width = handed.mask.shape
    factor = min(1.0, _OUTLINE_SIDE / max(height, width))
    rows, columns = (max(1, round(side * factor)) for side in (height, width))
    edges = Edges(np.linspace(0, width, columns + 1), np.linspace(0, height, rows + 1))
    x, y = handed.offset
    path = outline(covered_share(handed.mask, edges) >= HALF)
    return Mask(path, (2 * columns, 2 * rows), _box((x, y, x + width, y + height))) if path else None


def _box(box: Sequence[float] | np.ndarray) -> BoxTuple:
    x1, y1, x2, y2 = (round(float(side), 2) for side in box)
    return x1, y1, x2, y2
