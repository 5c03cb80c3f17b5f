"""Greedy grouping: the two most similar regions that touch are merged until one is left (Uijlings et al. 2013).

In: regions, their histograms and which similarities count. Out: the boxes of all regions on the way.
The similarity of two regions is the sum of those that are asked for, all from 0 to 1:

    colour   intersection of the histograms of colours, mean over the channels
    texture  intersection of the histograms of derivatives, mean over the channels and the eight directions
    size     1 - the share of the image that both cover: small regions are merged first
    fill     1 - the share of the image that the box around both covers and neither of them does

Histograms are counts c of regions of n pixels: min(c / n, c' / n') is computed as min(c n', c' n) / (n n'), which is
whole numbers until the last division. Of equally similar pairs the one with the lowest numbers goes first, where a
merged region takes the next free number.
Pairs wait in a heap. A pair of which one has been merged meanwhile is found out when it comes to the top.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import kernel
from eesvm.windows.selective_search.histograms import COLOUR_BINS, TEXTURE_BINS, Histograms
from eesvm.windows.selective_search.regions import Regions

_Booleans = NDArray[np.bool_]


class Similarities(NamedTuple):
    """Which similarities are added up."""

    colour: bool
    texture: bool
    size: bool
    fill: bool


def group(
    regions: Regions, colours: Histograms, texture: Histograms, similarities: Similarities, n_pixels: int
) -> NDArray[np.int32]:
    """(2 n - 1, 4) half-open xyxy boxes: of the n regions, then of each merged one as it came about.

    Fewer where not all regions are connected, which regions of an image always are.
    """
    wanted = np.array(similarities, dtype=np.bool_)
    colours = colours if similarities.colour else colours[:, :0]
    texture = texture if similarities.texture else texture[:, :0]
    return _grouped(*regions, colours.copy(), texture.copy(), wanted, n_pixels)


@kernel()
def _grouped(
    sizes: NDArray[np.int64],
    boxes: NDArray[np.int32],
    pairs: NDArray[np.int32],
    colours: Histograms,
    texture: Histograms,
    wanted: _Booleans,
    n_pixels: int,
) -> NDArray[np.int32]:
    """Histograms are changed: a merged region takes the rows of one of its parts (`rows`)."""
    n = len(sizes)
    all_boxes = np.empty((2 * n, 4), dtype=np.int32)
    all_sizes = np.empty(2 * n, dtype=np.int64)
    all_boxes[:n], all_sizes[:n] = boxes, sizes
    rows = np.arange(2 * n)
    merged_into = np.full(2 * n, -1, dtype=np.int32)
    heads, nexts, members = _neighbour_lists(pairs, n)
    likeness = np.empty(max(16, 2 * len(pairs)))
    keys = np.empty(len(likeness), dtype=np.int64)
    n_waiting = 0
    for k in range(len(pairs)):
        one, other = pairs[k, 0], pairs[k, 1]
        value = _similarity(one, other, rows, all_sizes, all_boxes, colours, texture, wanted, n_pixels)
        likeness, keys, n_waiting = _pushed(likeness, keys, n_waiting, value, np.int64(one) * 2 * n + other)
    seen = np.full(2 * n, -1, dtype=np.int32)
    n_all = n
    while n_waiting > 0:
        key = keys[0]
        n_waiting = _popped(likeness, keys, n_waiting)
        one, other = key // (2 * n), key % (2 * n)
        if merged_into[one] >= 0 or merged_into[other] >= 0:
            continue
        new = n_all
        n_all += 1
        _merge(one, other, new, rows, all_sizes, all_boxes, colours, texture)
        merged_into[one] = merged_into[other] = new
        heads[new] = _joined_lists(heads[one], heads[other], nexts)
        likeness, keys, n_waiting = _compared(
            new, heads, nexts, members, merged_into, seen, rows, all_sizes, all_boxes, colours, texture, wanted,
            n_pixels, likeness, keys, n_waiting,
        )  # fmt: skip
    return all_boxes[:n_all].copy()


@kernel()
def _neighbour_lists(
    pairs: NDArray[np.int32], n: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Linked lists: the first entry of each region, the entry after each, and the neighbour that each names."""
    heads = np.full(2 * n, -1, dtype=np.int32)
    nexts = np.empty(2 * len(pairs), dtype=np.int32)
    members = np.empty(2 * len(pairs), dtype=np.int32)
    for k in range(len(pairs)):
        for side in range(2):
            entry = 2 * k + side
            members[entry] = pairs[k, 1 - side]
            nexts[entry] = heads[pairs[k, side]]
            heads[pairs[k, side]] = entry
    return heads, nexts, members


@kernel()
def _joined_lists(one: int, other: int, nexts: NDArray[np.int32]) -> int:
    """The first entry of both lists, one after the other."""
    if one < 0:
        return other
    last = one
    while nexts[last] >= 0:
        last = nexts[last]
    nexts[last] = other
    return one


@kernel()
def _current(merged_into: NDArray[np.int32], region: int) -> int:
    """The region that a region is part of by now; the way there is halved."""
    while merged_into[region] >= 0:
        above = merged_into[region]
        if merged_into[above] >= 0:
            merged_into[region] = merged_into[above]
        region = above
    return region


@kernel()
def _compared(
    new, heads, nexts, members, merged_into, seen, rows, sizes, boxes, colours, texture, wanted, n_pixels, likeness,
    keys, n_waiting,
):  # fmt: skip
    """Put the pairs of a new region into the heap, and take out of its list who is named twice, or is itself."""
    previous, entry = -1, heads[new]
    while entry >= 0:
        after = nexts[entry]
        other = _current(merged_into, members[entry])
        if other == new or seen[other] == new:
            if previous < 0:
                heads[new] = after
            else:
                nexts[previous] = after
        else:
            seen[other] = new
            members[entry] = other
            previous = entry
            value = _similarity(new, other, rows, sizes, boxes, colours, texture, wanted, n_pixels)
            likeness, keys, n_waiting = _pushed(
                likeness, keys, n_waiting, value, np.int64(other) * len(rows) + np.int64(new)
            )
        entry = after
    return likeness, keys, n_waiting


@kernel()
def _merge(
    one: int,
    other: int,
    new: int,
    rows: NDArray[np.int64],
    sizes: NDArray[np.int64],
    boxes: NDArray[np.int32],
    colours: Histograms,
    texture: Histograms,
) -> None:
    """Fill in the new region; its histograms take the rows of the first."""
    rows[new] = rows[one]
    sizes[new] = sizes[one] + sizes[other]
    for side in range(2):
        boxes[new, side] = min(boxes[one, side], boxes[other, side])
        boxes[new, side + 2] = max(boxes[one, side + 2], boxes[other, side + 2])
    for histograms in (colours, texture):
        into, added = histograms[rows[one]], histograms[rows[other]]
        for k in range(len(into)):
            into[k] += added[k]


@kernel()
def _similarity(
    one: int,
    other: int,
    rows: NDArray[np.int64],
    sizes: NDArray[np.int64],
    boxes: NDArray[np.int32],
    colours: Histograms,
    texture: Histograms,
    wanted: _Booleans,
    n_pixels: int,
) -> float:
    n_one, n_other = np.float64(sizes[one]), np.float64(sizes[other])
    value = 0.0
    if wanted[0]:
        common = _intersection(colours[rows[one]], colours[rows[other]], n_one, n_other)
        value += common / (n_one * n_other * (colours.shape[1] // COLOUR_BINS))
    if wanted[1]:
        common = _intersection(texture[rows[one]], texture[rows[other]], n_one, n_other)
        value += common / (n_one * n_other * (texture.shape[1] // TEXTURE_BINS))
    if wanted[2]:
        value += 1.0 - (n_one + n_other) / n_pixels
    if wanted[3]:
        width = max(boxes[one, 2], boxes[other, 2]) - min(boxes[one, 0], boxes[other, 0])
        height = max(boxes[one, 3], boxes[other, 3]) - min(boxes[one, 1], boxes[other, 1])
        value += 1.0 - (np.float64(width) * np.float64(height) - n_one - n_other) / n_pixels
    return value


@kernel(fastmath={"reassoc", "nsz", "nnan"})  # sums of whole numbers are exact in any order
def _intersection(one: NDArray[np.float32], other: NDArray[np.float32], n_one: float, n_other: float) -> float:
    """The sum of min(one * n_other, other * n_one)."""
    total = 0.0
    for k in range(len(one)):
        total += min(np.float64(one[k]) * n_other, np.float64(other[k]) * n_one)
    return total


@kernel()
def _is_before(likeness: NDArray[np.float64], keys: NDArray[np.int64], one: int, other: int) -> bool:
    if likeness[one] != likeness[other]:
        return likeness[one] > likeness[other]
    return keys[one] < keys[other]


@kernel()
def _swap(likeness: NDArray[np.float64], keys: NDArray[np.int64], one: int, other: int) -> None:
    likeness[one], likeness[other] = likeness[other], likeness[one]
    keys[one], keys[other] = keys[other], keys[one]


@kernel()
def _pushed(likeness, keys, n, value, key):
    """The heap with one more pair, in larger arrays where there was no room."""
    if n == len(keys):
        likeness = np.concatenate((likeness, np.empty_like(likeness)))
        keys = np.concatenate((keys, np.empty_like(keys)))
    likeness[n], keys[n] = value, key
    child = n
    while child > 0 and _is_before(likeness, keys, child, (child - 1) // 2):
        _swap(likeness, keys, child, (child - 1) // 2)
        child = (child - 1) // 2
    return likeness, keys, n + 1


@kernel()
def _popped(likeness: NDArray[np.float64], keys: NDArray[np.int64], n: int) -> int:
    """Take the first pair out of the heap."""
    n -= 1
    likeness[0], keys[0] = likeness[n], keys[n]
    parent = 0
    while 2 * parent + 1 < n:
        child = 2 * parent + 1
        if child + 1 < n and _is_before(likeness, keys, child + 1, child):
            child += 1
        if not _is_before(likeness, keys, child, parent):
            break
        _swap(likeness, keys, child, parent)
        parent = child
    return n
