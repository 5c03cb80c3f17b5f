"""Which detection found which object.

In: `Tables`, and the rule of a protocol. Out: `Matches`: for every detection whether it is a hit, a second hit, a miss
or ignored, the object behind that, and their overlap; for every object how near a detection came.

Detections of one image and class choose in decreasing order of score, of equal scores the earlier row first.

VOC (`VOCevaldet.m` of the devkit): a detection belongs to the object of its class that it overlaps most, difficult
ones included. Below the threshold it is a miss. Else: a difficult object ignores it, a free one becomes its hit, and
one that is taken makes it a second hit, even where a free object would fit next best.
ILSVRC (`eval_detection.m` of the devkit): a detection takes, among the free objects that it overlaps by at least their
own threshold, the one that it overlaps most, so that a taken neighbour is no obstacle. ILSVRC has no difficult objects;
here they ignore what would not be a hit.
Crowds come last, in both: what no object decides is ignored where a crowd region of its class covers at least `iou` of
the detection's own area (COCO's measure, as such a region is larger than any right answer). Were they equal partners, a
perfect hit within a crowd would always belong to the crowd.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import inner, kernel
from eesvm.metrics.tables import Tables

MISS, HIT, SECOND_HIT, IGNORED = 0, 1, 2, 3

_PIXEL_TOLERANCE = 10.0  # of ILSVRC: a small object may be missed by five pixels on every side

_Floats = NDArray[np.float64]
_Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Matches:
    """What became of detections and objects; rows are those of the tables."""

    outcome: NDArray[np.int8]  # (n,) MISS, HIT, SECOND_HIT or IGNORED
    partner: _Integers  # (n,) the object that decided, or of its class the nearest one; -1 for none
    overlap: _Floats  # (n,) with the partner: IoU, with a crowd the covered share of the detection
    best: _Floats  # (m,) highest IoU of a detection of its class with each object


def match_detections(tables: Tables, iou: float, is_ilsvrc: bool) -> Matches:
    """Let the detections choose, by the rule of VOC or of ILSVRC."""
    objects, found = tables.objects, tables.found
    n_classes = len(tables.class_names)
    object_groups = objects.images * n_classes + objects.classes
    found_groups = found.images * n_classes + found.classes
    object_order = np.argsort(object_groups, kind="stable")
    found_order = np.lexsort((-found.scores, found_groups))  # stable: equal scores stay in the order of their rows
    sorted_groups = found_groups[found_order]
    starts = np.flatnonzero(np.diff(sorted_groups, prepend=-1, append=-1)) if len(found) else np.zeros(1, np.int64)
    grouped = object_groups[object_order]
    first = np.searchsorted(grouped, sorted_groups[starts[:-1]], side="left")
    last = np.searchsorted(grouped, sorted_groups[starts[:-1]], side="right")
    boxes = objects.boxes[object_order]
    sides = boxes[:, 2:] - boxes[:, :2]
    thresholds = np.full(len(boxes), iou)
    if is_ilsvrc:
        padded = (sides + _PIXEL_TOLERANCE).prod(axis=1)
        thresholds = np.minimum(iou, sides.prod(axis=1) / padded)
    outcome, partner, overlap, best = _choose(
        found.boxes[found_order],
        starts.astype(np.int64),
        boxes,
        first.astype(np.int64),
        last.astype(np.int64),
        thresholds,
        objects.is_difficult[object_order],
        objects.is_crowd[object_order],
        float(iou),
        is_ilsvrc,
    )
    back = np.argsort(found_order, kind="stable")
    partner = np.where(partner >= 0, object_order[partner] if len(objects) else -1, -1)[back]
    nearest = np.empty(len(objects))
    nearest[object_order] = best
    return Matches(outcome[back], partner, overlap[back], nearest)


def nearest_of_other_classes(tables: Tables, rows: NDArray[np.intp]) -> tuple[_Integers, _Floats]:
    """For these detections the object of another class that they overlap most, -1 for none, and the IoU."""
    objects, found = tables.objects, tables.found
    first = np.searchsorted(objects.images, found.images[rows], side="left")  # objects come image by image
    last = np.searchsorted(objects.images, found.images[rows], side="right")
    nearest: tuple[_Integers, _Floats] = _nearest_other(
        found.boxes[rows],
        found.classes[rows],
        first.astype(np.int64),
        last.astype(np.int64),
        objects.boxes,
        objects.classes,
        objects.is_crowd,
    )
    return nearest


@inner()
def _common_and_areas(boxes: _Floats, i: int, others: _Floats, j: int) -> tuple[float, float, float]:
    """Area of the intersection of box i and other j, and of each; 0 in common where one is empty."""
    area = max(0.0, boxes[i, 2] - boxes[i, 0]) * max(0.0, boxes[i, 3] - boxes[i, 1])
    other_area = max(0.0, others[j, 2] - others[j, 0]) * max(0.0, others[j, 3] - others[j, 1])
    width = min(boxes[i, 2], others[j, 2]) - max(boxes[i, 0], others[j, 0])
    height = min(boxes[i, 3], others[j, 3]) - max(boxes[i, 1], others[j, 1])
    if width <= 0.0 or height <= 0.0 or area <= 0.0 or other_area <= 0.0:
        return 0.0, area, other_area
    return width * height, area, other_area


@inner()
def _iou(boxes: _Floats, i: int, others: _Floats, j: int) -> float:
    common, area, other_area = _common_and_areas(boxes, i, others, j)
    return min(1.0, common / (area + other_area - common)) if common > 0.0 else 0.0


@kernel()
def _choose(
    boxes: _Floats,
    starts: _Integers,
    objects: _Floats,
    first: _Integers,
    last: _Integers,
    thresholds: _Floats,
    is_difficult: NDArray[np.bool_],
    is_crowd: NDArray[np.bool_],
    crowd_threshold: float,
    is_ilsvrc: bool,
) -> tuple[NDArray[np.int8], _Integers, _Floats, _Floats]:
    """Detections starts[g] to starts[g + 1], best first, choose among the objects first[g] to last[g]."""
    n = len(boxes)
    outcome = np.zeros(n, dtype=np.int8)
    partner = np.full(n, -1, dtype=np.int64)
    overlap = np.zeros(n)
    best = np.zeros(len(objects))
    is_taken = np.zeros(len(objects), dtype=np.bool_)
    for group in range(len(starts) - 1):
        for i in range(starts[group], starts[group + 1]):
            nearest, nearest_iou = -1, 0.0  # of all objects
            free, free_iou = -1, 0.0  # the others: of those with enough overlap
            taken, taken_iou = -1, 0.0
            difficult, difficult_iou = -1, 0.0
            crowd, crowd_share = -1, 0.0
            for j in range(first[group], last[group]):
                if is_crowd[j]:
                    common, area, _ = _common_and_areas(boxes, i, objects, j)
                    if common > 0.0 and common >= crowd_threshold * area and common / area > crowd_share:
                        crowd, crowd_share = j, common / area
                    continue
                iou = _iou(boxes, i, objects, j)
                best[j] = max(best[j], iou)
                if iou > nearest_iou:
                    nearest, nearest_iou = j, iou
                if iou <= 0.0 or iou < thresholds[j]:
                    continue
                if is_difficult[j]:
                    if iou > difficult_iou:
                        difficult, difficult_iou = j, iou
                elif is_taken[j]:
                    if iou > taken_iou:
                        taken, taken_iou = j, iou
                elif iou > free_iou:
                    free, free_iou = j, iou
            partner[i], overlap[i] = nearest, nearest_iou
            if is_ilsvrc:
                if free >= 0:
                    outcome[i], partner[i], overlap[i] = HIT, free, free_iou
                    is_taken[free] = True
                elif difficult >= 0:
                    outcome[i], partner[i], overlap[i] = IGNORED, difficult, difficult_iou
                elif crowd >= 0:
                    outcome[i], partner[i], overlap[i] = IGNORED, crowd, crowd_share
                elif taken >= 0:
                    outcome[i], partner[i], overlap[i] = SECOND_HIT, taken, taken_iou
            elif nearest >= 0 and nearest_iou >= thresholds[nearest]:
                if is_difficult[nearest]:
                    outcome[i] = IGNORED
                elif is_taken[nearest]:
                    outcome[i] = SECOND_HIT
                else:
                    outcome[i] = HIT
                    is_taken[nearest] = True
            elif crowd >= 0:
                outcome[i], partner[i], overlap[i] = IGNORED, crowd, crowd_share
    return outcome, partner, overlap, best


@kernel()
def _nearest_other(
    boxes: _Floats,
    classes: _Integers,
    first: _Integers,
    last: _Integers,
    objects: _Floats,
    object_classes: _Integers,
    is_crowd: NDArray[np.bool_],
) -> tuple[_Integers, _Floats]:
    """For each box the best of the objects first[i] to last[i] that are neither crowd nor of its class."""
    nearest = np.full(len(boxes), -1, dtype=np.int64)
    overlap = np.zeros(len(boxes))
    for i in range(len(boxes)):
        for j in range(first[i], last[i]):
            if is_crowd[j] or object_classes[j] == classes[i]:
                continue
            iou = _iou(boxes, i, objects, j)
            if iou > overlap[i]:
                nearest[i], overlap[i] = j, iou
    return nearest, overlap
