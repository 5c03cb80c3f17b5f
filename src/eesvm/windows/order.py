"""Orders windows so that any first k of them represent all of them well.

In: different half-open xyxy boxes of one image. Out: their order, a function of the set alone.
Selected windows S are worth  sum_i sqrt(area_i) max_(j in S) iou(i, j)^3 : every window wants to be near one of them,
large ones a little more. Next comes always the window that adds most. The worth is submodular, so what the first k
windows reach is at least 1 - 1/e of what the best k could. Places where many proposals agree come first, and are not
taken twice. Recall with the first 100 windows lies far above that of a random order (docs/windows.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import inner, kernel

_NEAR = 0.3  # IoU from which windows take note of each other: less would add 0.027 at most, and most of the pairs

_Floats = NDArray[np.float64]
_Integers = NDArray[np.int64]


def representative_order(boxes: _Floats, limit: int) -> _Integers:
    """Indices of the first `limit` windows; of windows that add the same the one with the lower x1, y1, x2, y2 first.

    Memory and time grow with the pairs of overlapping windows.
    """
    by_place = np.lexsort(boxes.T[::-1])
    table = np.ascontiguousarray(boxes[by_place])
    areas = (table[:, 2] - table[:, 0]) * (table[:, 3] - table[:, 1])
    starts, near, closeness = _neighbours(table, areas, _NEAR)
    return by_place[_greedy(starts, near, closeness, np.sqrt(areas), min(limit, len(table)))]


@kernel()
def _iou(boxes: _Floats, areas: _Floats, i: int, j: int) -> float:
    width = min(boxes[i, 2], boxes[j, 2]) - max(boxes[i, 0], boxes[j, 0])
    height = min(boxes[i, 3], boxes[j, 3]) - max(boxes[i, 1], boxes[j, 1])
    if width <= 0.0 or height <= 0.0:
        return 0.0
    return width * height / (areas[i] + areas[j] - width * height)


@kernel()
def _neighbours(boxes: _Floats, areas: _Floats, least: float) -> tuple[_Integers, NDArray[np.int32], _Floats]:
    """For each box those with an IoU of at least `least`, itself included: where its list starts, who, and IoU^3.

    `boxes` rise by x1, so whoever begins too far to the right cannot overlap a box enough. Lists rise, too.
    """
    n = len(boxes)
    firsts, seconds, overlaps, n_pairs = _near_pairs(boxes, areas, least)
    starts = np.zeros(n + 1, dtype=np.int64)
    for k in range(n_pairs):
        starts[firsts[k] + 1] += 1
        if seconds[k] != firsts[k]:
            starts[seconds[k] + 1] += 1
    for i in range(n):
        starts[i + 1] += starts[i]
    place = starts[:n].copy()
    near = np.empty(starts[n], dtype=np.int32)
    closeness = np.empty(starts[n])
    for k in range(n_pairs):
        one, other, cube = firsts[k], seconds[k], overlaps[k] * overlaps[k] * overlaps[k]
        near[place[one]], closeness[place[one]] = other, cube
        place[one] += 1
        if one != other:
            near[place[other]], closeness[place[other]] = one, cube
            place[other] += 1
    return starts, near, closeness


@inner()
def _near_pairs(
    boxes: _Floats, areas: _Floats, least: float
) -> tuple[NDArray[np.int32], NDArray[np.int32], _Floats, int]:
    """Pairs i <= j with an IoU of at least `least`, in rising order, at the beginning of arrays, and their number."""
    n, n_pairs, room = len(boxes), 0, 16 * len(boxes)
    firsts, seconds = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.int32)
    overlaps = np.empty(room)
    for i in range(n):
        if n_pairs + n - i > room:
            room = 2 * room + n
            firsts, seconds = _longer(firsts, room), _longer(seconds, room)
            overlaps = _longer(overlaps, room)
        # Both bounds hold for every pair with such an overlap, up to rounding, which the factor leaves room for.
        last = boxes[i, 2] - 0.999 * least * (boxes[i, 2] - boxes[i, 0])
        for j in range(i, n):
            if boxes[j, 0] > last:
                break
            height = min(boxes[i, 3], boxes[j, 3]) - max(boxes[i, 1], boxes[j, 1])
            width = min(boxes[i, 2], boxes[j, 2]) - boxes[j, 0]
            if height <= 0.0 or width * height < 0.999 * least * max(areas[i], areas[j]):
                continue
            overlap = _iou(boxes, areas, i, j)
            if overlap >= least:
                firsts[n_pairs], seconds[n_pairs], overlaps[n_pairs] = i, j, overlap
                n_pairs += 1
    return firsts, seconds, overlaps, n_pairs


@inner()
def _longer(values: NDArray[Any], length: int) -> NDArray[Any]:
    longer = np.empty(length, dtype=values.dtype)
    longer[: len(values)] = values
    return longer


@kernel()
def _greedy(starts: _Integers, near: NDArray[np.int32], closeness: _Floats, weights: _Floats, limit: int) -> _Integers:
    """What is added by a window only falls as others are selected, so an old value is a bound.

    The window with the highest bound, on top of a heap, is looked at again: if its bound is exact, no other adds more.
    """
    n = len(weights)
    reached = np.zeros(n)  # max over the selected windows, so far
    bounds = np.empty(n)
    for j in range(n):
        bounds[j] = _added(j, starts, near, closeness, weights, reached)
    heap = np.arange(n)
    for parent in range(n // 2 - 1, -1, -1):
        _sink(heap, bounds, parent, n)
    order = np.empty(limit, dtype=np.int64)
    for position in range(limit):
        while True:
            best = heap[0]
            added = _added(best, starts, near, closeness, weights, reached)
            if added == bounds[best]:
                break
            bounds[best] = added
            _sink(heap, bounds, np.int64(0), n)
        order[position] = best
        bounds[best] = -1.0
        _sink(heap, bounds, np.int64(0), n)
        for k in range(starts[best], starts[best + 1]):
            reached[near[k]] = max(reached[near[k]], closeness[k])
    return order


@inner()
def _added(
    window: int, starts: _Integers, near: NDArray[np.int32], closeness: _Floats, weights: _Floats, reached: _Floats
) -> float:
    added = 0.0
    for k in range(starts[window], starts[window + 1]):
        added += weights[near[k]] * max(0.0, closeness[k] - reached[near[k]])
    return added


@inner()
def _sink(heap: _Integers, bounds: _Floats, parent: int, n: int) -> None:
    """Let an element down to where the highest bound, then the lowest number, is above all others."""
    while 2 * parent + 1 < n:
        child = 2 * parent + 1
        if child + 1 < n and _is_above(bounds, heap[child + 1], heap[child]):
            child += 1
        if not _is_above(bounds, heap[child], heap[parent]):
            return
        heap[child], heap[parent] = heap[parent], heap[child]
        parent = child


@inner()
def _is_above(bounds: _Floats, one: int, other: int) -> bool:
    return bounds[one] > bounds[other] or (bounds[one] == bounds[other] and one < other)
