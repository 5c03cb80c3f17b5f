"""How many of a dataset's objects windows find: the ceiling of whatever detector comes after them.

In: a dataset and the windows of its images. Out: recall at several overlaps, in total and per class, and how many
windows that took. Not here: scores; see `metrics` for detections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from eesvm import boxes as box_functions
from eesvm._support.validation import InputError, check_number
from eesvm.structures import Dataset, ImageRecord, Windows


class ClassRecall(NamedTuple):
    """How well the windows find the objects of one class."""

    class_name: str
    n_instances: int
    recall: tuple[float, ...]  # per threshold: share of the objects that a window overlaps by at least as much
    mean_overlap: float  # mean over the objects of the IoU with their best window


@dataclass(frozen=True)
class WindowRecall:
    """How well windows find the objects of a dataset; NaN where there are none."""

    thresholds: tuple[float, ...]  # least IoUs
    total: ClassRecall  # of all objects, whatever their class
    classes: tuple[ClassRecall, ...]  # by name
    n_images: int  # that have windows
    n_windows: int  # proposals

    @property
    def windows_per_image(self) -> float:
        """Mean number of proposals."""
        return self.n_windows / self.n_images if self.n_images else float("nan")


def window_recall(
    dataset: Dataset | Sequence[ImageRecord],
    windows: Iterable[Windows],
    thresholds: Sequence[float] = (0.5, 0.7),
    include_difficult: bool = False,
) -> WindowRecall:
    """Which share of the objects is overlapped by a window, by at least each of the thresholds (IoU).

    Only images that have `windows` count, and only proposals: ground-truth boxes among the windows do not. Groups of
    objects (`is_crowd`) are left out.

    Parameters
    ----------
    dataset : the images with their annotated objects.
    windows : of some of the images; may be an iterator.
    thresholds : least IoUs, in [0, 1].
    include_difficult : count difficult objects, too.
    """
    for threshold in thresholds:
        check_number(threshold, "thresholds", minimum=0, maximum=1)
    records = {record.image_id: record for record in dataset}
    overlaps: dict[str, list[float]] = {}
    n_images = n_windows = 0
    for found in windows:
        if found.image_id not in records:
            raise InputError(f"`windows` has an image that is not in the dataset: {found.image_id}")
        n_images += 1
        n_windows += int((found.instance < 0).sum())
        for class_name, overlap in _best_overlaps(records[found.image_id], found, include_difficult):
            overlaps.setdefault(class_name, []).append(overlap)
    together = [overlap for group in overlaps.values() for overlap in group]
    per_class = tuple(_class_recall(name, overlaps[name], thresholds) for name in sorted(overlaps))
    return WindowRecall(tuple(thresholds), _class_recall("total", together, thresholds), per_class, n_images, n_windows)


def _best_overlaps(record: ImageRecord, found: Windows, include_difficult: bool) -> Iterator[tuple[str, float]]:
    """(class, IoU with the best proposal) of each object that counts."""
    counted = [i for i in record.instances if not i.is_crowd and (include_difficult or not i.is_difficult)]
    proposals = found.boxes[found.instance < 0]
    best = box_functions.match(np.array([i.box for i in counted]).reshape(-1, 4), proposals).iou
    yield from zip((i.class_name for i in counted), best.tolist(), strict=True)


def _class_recall(name: str, overlaps: Sequence[float], thresholds: Sequence[float]) -> ClassRecall:
    if not overlaps:
        return ClassRecall(name, 0, tuple(float("nan") for _ in thresholds), float("nan"))
    best = np.array(overlaps)
    return ClassRecall(name, len(best), tuple(float((best >= t).mean()) for t in thresholds), float(best.mean()))
