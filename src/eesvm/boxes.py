"""Plain functions on boxes: area, overlap, clipping, suppression, matching to ground truth.

In: (n, 4) arrays of x1, y1, x2, y2 in pixels, half-open: the width is x2 - x1, a box of one pixel at the origin is
0, 0, 1, 1. Out: arrays, in the order of the input unless the docstring says otherwise. A box with x2 <= x1 or y2 <= y1
is empty: its area is 0 and so is its overlap with anything, itself included. No boxes at all are fine everywhere.
Inclusive boxes ("+1") are converted where they are read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm._support.compile import inner, kernel
from eesvm._support.validation import InputError, check_choice, check_finite, check_number

OVERLAPS = ("iou", "over_lower")

_LARGEST = 1e9  # of a coordinate: beyond it areas and their differences lose the pixel
_IOU, _OVER_SECOND, _OVER_SMALLER = 0, 1, 2  # what an intersection is divided by

_Floats = NDArray[np.float64]
_Integers = NDArray[np.int64]


class Match(NamedTuple):
    """What `match` found for each box."""

    truth: _Integers  # (n,) index of the best ground-truth box, -1 where its IoU is below the threshold
    iou: _Floats  # (n,) IoU with the best ground-truth box, also where it is below the threshold


def check_boxes(values: ArrayLike, name: str = "boxes") -> _Floats:
    """`values` as a finite (n, 4) float64 array, without a copy where it is one already.

    Parameters
    ----------
    values : (n, 4) numbers, x1, y1, x2, y2; an empty list is no boxes.
    name : what an error calls them.
    """
    try:
        boxes = np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"`{name}` must be an (n, 4) table of numbers") from error
    if boxes.shape == (0,):
        return boxes.reshape(0, 4)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise InputError(f"`{name}` must have shape (n, 4): x1, y1, x2, y2; got shape {boxes.shape}")
    check_finite(boxes, name)
    if boxes.size and np.abs(boxes).max() > _LARGEST:
        raise InputError(f"`{name}` must hold coordinates within {_LARGEST:g}, got {np.abs(boxes).max():g}")
    return boxes


def area(boxes: ArrayLike) -> _Floats:
    """(n,) areas of half-open xyxy boxes; 0 for an empty or inverted one."""
    return _areas(check_boxes(boxes))


def is_valid(
    boxes: ArrayLike, width: float | None = None, height: float | None = None, min_size: float = 0.0
) -> NDArray[np.bool_]:
    """(n,) whether a half-open xyxy box has an area, both sides >= `min_size`, and lies within the image, if given.

    Parameters
    ----------
    boxes : (n, 4) half-open xyxy.
    width, height : size of the image in pixels; None does not look at that side.
    min_size : least width and height of a box, in pixels.
    """
    boxes = check_boxes(boxes)
    sides = boxes[:, 2:] - boxes[:, :2]
    valid = np.logical_and.reduce((sides > 0) & (sides >= min_size), axis=1)
    for extent, low, high in ((width, 0, 2), (height, 1, 3)):
        if extent is not None:
            valid &= (boxes[:, low] >= 0) & (boxes[:, high] <= extent)
    return valid


def clip(boxes: ArrayLike, width: float, height: float) -> _Floats:
    """(n, 4) half-open xyxy boxes cut to the image; one that lies outside becomes empty, none is dropped.

    Parameters
    ----------
    boxes : (n, 4) half-open xyxy.
    width, height : size of the image in pixels.
    """
    check_number(width, "width", minimum=0)
    check_number(height, "height", minimum=0)
    return np.clip(check_boxes(boxes), 0.0, np.array([width, height, width, height], dtype=np.float64))


def flip(boxes: ArrayLike, width: float) -> _Floats:
    """(n, 4) half-open xyxy boxes in an image of this width, mirrored: x1, x2 = width - x2, width - x1.

    Parameters
    ----------
    boxes : (n, 4) half-open xyxy.
    width : of the image in pixels.
    """
    check_number(width, "width", minimum=0)
    boxes = check_boxes(boxes)
    return np.stack([width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]], axis=1)


def iou(boxes: ArrayLike, others: ArrayLike) -> _Floats:
    """(n, m) intersection over union of every half-open xyxy box with every other; 0 where one of the two is empty.

    Memory is that of the result and nothing else: 10,000 boxes against 10,000 are 800 MB, so loop over parts of `boxes`
    or ask `match` where only the best partner is wanted.

    Parameters
    ----------
    boxes : (n, 4) half-open xyxy.
    others : (m, 4) likewise.
    """
    return _overlaps(check_boxes(boxes), check_boxes(others, "others"), _IOU)


def iou_of_pairs(boxes: ArrayLike, others: ArrayLike) -> _Floats:
    """(n,) intersection over union of half-open xyxy box i with other i; 0 where one of the two is empty.

    Parameters
    ----------
    boxes, others : (n, 4) half-open xyxy, equally many.
    """
    boxes, others = check_boxes(boxes), check_boxes(others, "others")
    if len(boxes) != len(others):
        raise InputError(f"`boxes` and `others` must be equally many, got {len(boxes)} and {len(others)}")
    return _overlaps_of_pairs(boxes, others, _IOU)


def intersection_over_second(boxes: ArrayLike, others: ArrayLike) -> _Floats:
    """(n, m) intersection over the area of the box from `others`, all half-open xyxy: how much of it is covered.

    With `others` the lower-scoring boxes, this is the overlap of the original E-SVM code's suppression.

    Parameters
    ----------
    boxes : (n, 4) half-open xyxy.
    others : (m, 4) likewise, whose areas are divided by.
    """
    return _overlaps(check_boxes(boxes), check_boxes(others, "others"), _OVER_SECOND)


def intersection_over_smaller(boxes: ArrayLike, others: ArrayLike) -> _Floats:
    """(n, m) intersection over the smaller of the two areas, all half-open xyxy; 1 where one box contains the other.

    Parameters
    ----------
    boxes : (n, 4) half-open xyxy.
    others : (m, 4) likewise.
    """
    return _overlaps(check_boxes(boxes), check_boxes(others, "others"), _OVER_SMALLER)


def nms(
    boxes: ArrayLike, scores: ArrayLike, threshold: float, overlap: str = "iou", limit: int | None = None
) -> _Integers:
    """Indices of the half-open xyxy boxes that greedy suppression keeps, in decreasing order of score.

    A box goes when a kept box of higher score overlaps it by more than `threshold`; exactly `threshold` stays. Of equal
    scores the lower index comes first.

    Parameters
    ----------
    boxes : (n, 4) half-open xyxy.
    scores : (n,) finite.
    threshold : overlap in [0, 1] above which a box goes.
    overlap : "iou", or "over_lower": intersection over the area of the box that would go, as the original E-SVM code.
    limit : stop after that many kept boxes.
    """
    boxes = check_boxes(boxes)
    return batched_nms(boxes, scores, np.zeros(len(boxes), dtype=np.int64), threshold, overlap, limit)


def batched_nms(
    boxes: ArrayLike,
    scores: ArrayLike,
    groups: ArrayLike,
    threshold: float,
    overlap: str = "iou",
    limit: int | None = None,
) -> _Integers:
    """`nms` within each group (a class, an exemplar, an image): indices kept, in decreasing order of score over all.

    Half-open xyxy boxes of different groups never suppress each other. Of equal scores the lower index comes first.

    Parameters
    ----------
    boxes : (n, 4) half-open xyxy.
    scores : (n,) finite.
    groups : (n,) the group of each box, numbers or texts.
    threshold : overlap in [0, 1] above which a box goes.
    overlap : "iou" or "over_lower", see `nms`.
    limit : stop after that many kept boxes of a group.
    """
    boxes = check_boxes(boxes)
    scores = _check_column(scores, len(boxes), "scores")
    check_number(threshold, "threshold", minimum=0, maximum=1)
    check_choice(overlap, "overlap", OVERLAPS)
    if limit is not None:
        check_number(limit, "limit", minimum=0, integer=True)
    groups = np.asarray(groups)
    if groups.shape != (len(boxes),):
        raise InputError(f"`groups` must have one entry per box, shape ({len(boxes)},), got shape {groups.shape}")
    group_ids = np.unique(groups, return_inverse=True)[1].reshape(-1)
    order = np.lexsort((-scores, group_ids))  # stable, so equal scores stay in the order of their indices
    starts = np.searchsorted(group_ids[order], np.arange(group_ids.max(initial=-1) + 2))
    kind = _IOU if overlap == "iou" else _OVER_SECOND
    kept = np.sort(order[_suppress(boxes[order], starts, threshold, kind, len(boxes) if limit is None else limit)])
    return kept[np.argsort(-scores[kept], kind="stable")]


def match(boxes: ArrayLike, truth: ArrayLike, threshold: float = 0.5) -> Match:
    """For each half-open xyxy box the ground-truth box of highest IoU, and that IoU.

    The index is -1 where the IoU is below `threshold` or is 0; of equal IoUs the lower index wins. Several boxes may
    share one ground-truth box.

    Parameters
    ----------
    boxes : (n, 4) half-open xyxy.
    truth : (m, 4) ground-truth boxes, likewise.
    threshold : least IoU of a match, in [0, 1].
    """
    check_number(threshold, "threshold", minimum=0, maximum=1)
    best, overlaps = _best_partner(check_boxes(boxes), check_boxes(truth, "truth"))
    return Match(np.where((overlaps >= threshold) & (overlaps > 0), best, -1), overlaps)


def _check_column(values: ArrayLike, n: int, name: str) -> _Floats:
    try:
        column = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"`{name}` must hold numbers") from error
    if column.shape != (n,):
        raise InputError(f"`{name}` must have one entry per box, shape ({n},), got shape {column.shape}")
    check_finite(column, name)
    return column


@kernel()
def _areas(boxes: _Floats) -> _Floats:
    areas = np.empty(len(boxes))
    for i in range(len(boxes)):
        areas[i] = max(0.0, boxes[i, 2] - boxes[i, 0]) * max(0.0, boxes[i, 3] - boxes[i, 1])
    return areas


@inner()
def _overlap(boxes: _Floats, i: int, others: _Floats, j: int, area: float, other_area: float, kind: int) -> float:
    """Of box i with other j, whose areas are given; at most 1, also after rounding."""
    width = min(boxes[i, 2], others[j, 2]) - max(boxes[i, 0], others[j, 0])
    height = min(boxes[i, 3], others[j, 3]) - max(boxes[i, 1], others[j, 1])
    if width <= 0.0 or height <= 0.0 or area <= 0.0 or other_area <= 0.0:
        return 0.0
    common = width * height
    if kind == _IOU:
        return min(1.0, common / (area + other_area - common))
    return common / (other_area if kind == _OVER_SECOND else min(area, other_area))


@kernel()
def _overlaps(boxes: _Floats, others: _Floats, kind: int) -> _Floats:
    areas, other_areas = _areas(boxes), _areas(others)
    overlaps = np.empty((len(boxes), len(others)))
    for i in range(len(boxes)):
        for j in range(len(others)):
            overlaps[i, j] = _overlap(boxes, i, others, j, areas[i], other_areas[j], kind)
    return overlaps


@kernel()
def _overlaps_of_pairs(boxes: _Floats, others: _Floats, kind: int) -> _Floats:
    areas, other_areas = _areas(boxes), _areas(others)
    overlaps = np.empty(len(boxes))
    for i in range(len(boxes)):
        overlaps[i] = _overlap(boxes, i, others, i, areas[i], other_areas[i], kind)
    return overlaps


@kernel()
def _best_partner(boxes: _Floats, truth: _Floats) -> tuple[_Integers, _Floats]:
    areas, truth_areas = _areas(boxes), _areas(truth)
    best = np.full(len(boxes), -1, dtype=np.int64)
    overlaps = np.zeros(len(boxes))
    for i in range(len(boxes)):
        for j in range(len(truth)):
            overlap = _overlap(boxes, i, truth, j, areas[i], truth_areas[j], _IOU)
            if overlap > overlaps[i]:
                best[i], overlaps[i] = j, overlap
    return best, overlaps


@kernel()
def _suppress(boxes: _Floats, starts: _Integers, threshold: float, kind: int, limit: int) -> _Integers:
    """Positions kept among `boxes`, which come group by group and by decreasing score; group g begins at starts[g]."""
    areas = _areas(boxes)
    kept = np.empty(len(boxes), dtype=np.int64)
    n_kept = 0
    for group in range(len(starts) - 1):
        first = n_kept
        for i in range(starts[group], starts[group + 1]):
            if n_kept - first >= limit:
                break
            is_free = True
            for k in range(first, n_kept):
                if _overlap(boxes, kept[k], boxes, i, areas[kept[k]], areas[i], kind) > threshold:
                    is_free = False
                    break
            if is_free:
                kept[n_kept] = i
                n_kept += 1
    return kept[:n_kept]
