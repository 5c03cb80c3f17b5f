"""What new images say about a class that takes on exemplars.

In: described windows of new images, the objects in them that are new, and boxes that were refused. Out: `News`: which
windows are new objects, positives, negatives, or refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm.boxes import iou
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_table import NEGATIVE, POSITIVE, TrainingWindows
from eesvm.structures import Instance

F32 = NDArray[np.float32]
Rejected = Mapping[str, Sequence[tuple[str, Sequence[float]]]]  # image -> class and box of what was refused there


class News(NamedTuple):
    """What new images say about a class."""

    windows: TrainingWindows
    own: NDArray[np.int64]  # rows of its new objects
    instances: tuple[Instance, ...]
    labels: NDArray[np.int8]  # (n,) POSITIVE, NEGATIVE or neither
    is_negative: NDArray[np.bool_]  # (n,) to be trained against
    is_rejected: NDArray[np.bool_]  # (n,) windows on what was refused

    @classmethod
    def of(
        cls,
        windows: TrainingWindows,
        name: str,
        objects: Sequence[Instance],
        rejected: Rejected,
        known: set[str],
        options: DetectorOptions,
    ) -> News:
        """Of an image in `known`, whose windows are kept already, only what is new counts."""
        calibration = options.calibration
        new = {(one.image_id, one.index) for one in objects}
        rows, instances = windows.objects(name)
        is_new = np.array([(one.image_id, one.index) in new for one in instances], dtype=bool)
        labels = windows.labels(name, calibration.positive_overlap, calibration.negative_overlap)
        is_background = labels == NEGATIVE
        is_negative = windows.overlap(name) <= options.training.max_overlap
        is_rejected = np.zeros(len(windows), dtype=bool)
        for k, record in enumerate(windows.records):
            part = slice(windows.starts[k], windows.starts[k + 1])
            if record.image_id in known:
                own = [one.box for one in objects if one.image_id == record.image_id]
                is_negative[part] = False
                is_object = largest_overlaps(windows.boxes[part], own) >= calibration.positive_overlap
                labels[part] = np.where(is_object, POSITIVE, 0)
            refused = [box for of_class, box in rejected.get(record.image_id, ()) if of_class == name]
            overlaps = largest_overlaps(windows.boxes[part], refused)
            is_rejected[part] = (overlaps >= calibration.positive_overlap) & is_background[part]
        labels[is_rejected], is_negative[is_rejected] = NEGATIVE, True
        chosen = tuple(one for one, is_taken in zip(instances, is_new, strict=True) if is_taken)
        return cls(windows, rows[is_new], chosen, labels, is_negative, is_rejected)


def descriptors_of_exemplars(news: News, options: DetectorOptions) -> F32:
    """Descriptors of the new objects, followed by their mirror images where those are exemplars, too."""
    windows, own = news.windows, news.own
    with_mirror_images = options.training.mirror and len(own)
    return windows.descriptors[np.concatenate([own, windows.mirror_images(own)]) if with_mirror_images else own]


def negatives_of(news: News) -> F32:
    """Descriptors of the windows to be trained against."""
    return news.windows.descriptors[np.flatnonzero(news.is_negative)]


def images_of_negatives(news: News) -> NDArray[np.str_]:
    """The images of these windows."""
    return news.windows.image_ids[news.windows.image[news.is_negative]]


def largest_overlaps(boxes: NDArray[np.float64], others: Sequence[Any]) -> NDArray[np.float64]:
    """(n,) the largest IoU with any of the others, 0 without any."""
    if not len(others) or not len(boxes):
        return np.zeros(len(boxes))
    return iou(boxes, np.array(others, dtype=np.float64)).max(axis=1)
