"""What figures 1 and 7 of the paper show of a real run: a training image with some windows, and some detections.

In: the exemplars of a class, the windows it is calibrated on, its hits on test images. Out: `ShownWindows` and hits,
chosen by rules that do not look at the picture. The same run gives the same choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eesvm import boxes as geometry
from eesvm._support.validation import InputError
from eesvm.detector.class_training import CalibrationScores
from eesvm.experiments.tables.detections import Hit
from eesvm.structures import ImageRecord, Instance

_Boxes = NDArray[np.float64]

_MOST_WINDOWS = 6  # of either kind
_MOST_HITS = 8
_FEW = 3  # an image with fewer windows of either kind, or with as many exemplars, is taken only for want of others


@dataclass(frozen=True)
class ShownWindows:
    """A training image, the exemplars in it, and some of the windows that the class is calibrated on there."""

    image_id: str
    pixels: NDArray[np.uint8]
    exemplars: tuple[int, ...]
    truth: _Boxes  # (n, 4) boxes of those exemplars
    positives: _Boxes
    negatives: _Boxes
    n_positives: int  # there are in the image
    n_negatives: int


def shown_windows(
    instances: Sequence[Instance], scores: CalibrationScores, records: Iterable[ImageRecord]
) -> ShownWindows | None:
    """Windows of the image with the most positives, among those with some negatives too and with one or two exemplars
    that are neither tiny nor most of the image; None where no image that can be read has windows of both kinds."""
    images = {record.image_id: record for record in records}
    for image_id in _by_rating(instances, scores, images):
        pixels = read_or_none(images[image_id])
        if pixels is not None:
            return _choose(image_id, pixels, instances, scores)
    return None


def different_winners(hits: Sequence[Hit]) -> list[Hit]:
    """Hits of different exemplars, spread over all that win, in the order of the exemplars."""
    first = {hit.exemplars[0]: hit for hit in reversed(hits)}
    different = [first[exemplar] for exemplar in sorted(first)]
    places = np.linspace(0, len(different) - 1, min(_MOST_HITS, len(different))).round().astype(int)
    return [different[k] for k in places]


def read_or_none(record: ImageRecord) -> NDArray[np.uint8] | None:
    """The pixels of an image, None where it cannot be read."""
    try:
        return record.read()
    except (InputError, OSError, ValueError, MemoryError):
        return None


def _by_rating(instances: Sequence[Instance], scores: CalibrationScores, images: dict[str, ImageRecord]) -> list[str]:
    """Images with windows of both kinds, the most suitable first."""
    groups, is_positive = np.asarray(scores.table.groups), np.asarray(scores.table.labels) == 1
    n_exemplars = Counter(instance.image_id for instance in instances)
    ratings: dict[str, tuple[bool, int]] = {}
    for instance in instances:
        record, is_own = images[instance.image_id], groups == instance.image_id
        n_positives, n_negatives = int((is_own & is_positive).sum()), int((is_own & ~is_positive).sum())
        share = float(geometry.area(instance.box[None])[0]) / (record.width * record.height)
        if n_positives and n_negatives:
            has_enough = min(n_positives, n_negatives) >= _FEW > n_exemplars[instance.image_id]
            rating = (has_enough and 0.03 <= share <= 0.5, n_positives)
            ratings[instance.image_id] = max(rating, ratings.get(instance.image_id, rating))
    return sorted(ratings, key=lambda image_id: ratings[image_id], reverse=True)


def _choose(
    image_id: str, pixels: NDArray[np.uint8], instances: Sequence[Instance], scores: CalibrationScores
) -> ShownWindows:
    exemplars = tuple(j for j, instance in enumerate(instances) if instance.image_id == image_id)
    truth = np.array([instances[j].box for j in exemplars])
    is_own = np.asarray(scores.table.groups) == image_id
    is_positive = np.asarray(scores.table.labels) == 1
    positives, negatives = scores.boxes[is_own & is_positive], scores.boxes[is_own & ~is_positive]
    by_overlap = np.argsort(geometry.iou(positives, truth).max(axis=1), kind="stable")
    return ShownWindows(
        image_id=image_id,
        pixels=pixels,
        exemplars=exemplars,
        truth=truth,
        positives=_spread_out(positives[by_overlap]),
        negatives=_spread_out(_of_similar_size(negatives, truth)),
        n_positives=len(positives),
        n_negatives=len(negatives),
    )


def _of_similar_size(boxes: _Boxes, truth: _Boxes) -> _Boxes:
    """Boxes from a quarter to twice the area of the largest object, where there are some."""
    ratio = geometry.area(boxes) / geometry.area(truth).max()
    similar = boxes[(ratio >= 0.25) & (ratio <= 2)]
    return similar if len(similar) else boxes


def _spread_out(boxes: _Boxes) -> _Boxes:
    """The first box, then again and again the one that overlaps least with those taken."""
    overlaps = geometry.iou(boxes, boxes)
    np.fill_diagonal(overlaps, np.inf)
    taken = [0]
    while len(taken) < min(_MOST_WINDOWS, len(boxes)):
        taken.append(int(overlaps[taken].max(axis=0).argmin()))
    return boxes[taken]
