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

from eesvm._support.compile import inner, kernel
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


class _Grown(NamedTuple):
    """Regions and those merged from them; n of the former, so that numbers stay below 2 n."""

    rows: NDArray[np.int64]  # (2 n,) where the histograms of each are: a merged region takes those of its first part
    sizes: NDArray[np.int64]  # (2 n,)
    boxes: NDArray[np.int32]  # (2 n, 4)
    merged_into: NDArray[np.int32]  # (2 n,) -1 while a region is not part of another
    colours: Histograms  # (n, ...)
    texture: Histograms  # (n, ...)


class _Lists(NamedTuple):
    """Neighbours as linked lists, which may name a region by an older part of it, or twice."""

    heads: NDArray[np.int32]  # (2 n,) first entry of each region, -1 for none
    nexts: NDArray[np.int32]  # the entry after each
    members: NDArray[np.int32]  # the neighbour that each entry names


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
    """Histograms are changed."""
    n = len(sizes)
    grown = _started(sizes, boxes, colours, texture)
    lists = _neighbour_lists(pairs, n)
    likeness, keys = np.empty(2 * len(pairs) + 1), np.empty(2 * len(pairs) + 1, dtype=np.int64)
    n_waiting = np.int64(0)
    for k in range(len(pairs)):
        one, other = np.int64(pairs[k, 0]), np.int64(pairs[k, 1])
        value = _similarity(one, other, grown, wanted, n_pixels)
        likeness, keys, n_waiting = _pushed(likeness, keys, n_waiting, value, one * 2 * n + other)
    seen = np.full(2 * n, -1, dtype=np.int32)
    new = n
    while n_waiting > 0:
        one, other = keys[0] // (2 * n), keys[0] % (2 * n)
        n_waiting = _popped(likeness, keys, n_waiting)
        if grown.merged_into[one] >= 0 or grown.merged_into[other] >= 0:
            continue
        _merge(one, other, new, grown)
        _join_lists(one, other, new, lists)
        entry = _tidied(new, lists, grown.merged_into, seen)
        while entry >= 0:
            other = np.int64(lists.members[entry])
            value = _similarity(other, new, grown, wanted, n_pixels)
            likeness, keys, n_waiting = _pushed(likeness, keys, n_waiting, value, other * 2 * n + new)
            entry = lists.nexts[entry]
        new += 1
    return grown.boxes[:new].copy()


@inner()
def _started(sizes: NDArray[np.int64], boxes: NDArray[np.int32], colours: Histograms, texture: Histograms) -> _Grown:
    """Room for as many merged regions as there are regions."""
    n = len(sizes)
    all_sizes, all_boxes = np.empty(2 * n, dtype=np.int64), np.empty((2 * n, 4), dtype=np.int32)
    for region in range(n):
        all_sizes[region] = sizes[region]
        for side in range(4):
            all_boxes[region, side] = boxes[region, side]
    return _Grown(np.arange(2 * n), all_sizes, all_boxes, np.full(2 * n, -1, dtype=np.int32), colours, texture)


@inner()
def _neighbour_lists(pairs: NDArray[np.int32], n: int) -> _Lists:
    heads = np.full(2 * n, -1, dtype=np.int32)
    nexts = np.empty(2 * len(pairs), dtype=np.int32)
    members = np.empty(2 * len(pairs), dtype=np.int32)
    for k in range(len(pairs)):
        for side in range(2):
            entry = 2 * k + side
            members[entry] = pairs[k, 1 - side]
            nexts[entry] = heads[pairs[k, side]]
            heads[pairs[k, side]] = entry
    return _Lists(heads, nexts, members)


@inner()
def _join_lists(one: int, other: int, new: int, lists: _Lists) -> None:
    """The list of the new region: both lists, one after the other."""
    lists.heads[new] = lists.heads[one]
    last = lists.heads[one]
    while lists.nexts[last] >= 0:
        last = lists.nexts[last]
    lists.nexts[last] = lists.heads[other]


@inner()
def _tidied(region: int, lists: _Lists, merged_into: NDArray[np.int32], seen: NDArray[np.int32]) -> int:
    """The first entry of a list, after it names every neighbour once and as it is now, and not the region itself."""
    previous, entry = -1, lists.heads[region]
    while entry >= 0:
        neighbour = _current(merged_into, lists.members[entry])
        if neighbour != region and seen[neighbour] != region:
            seen[neighbour] = region
            lists.members[entry] = neighbour
            if previous < 0:
                lists.heads[region] = entry
            else:
                lists.nexts[previous] = entry
            previous = entry
        entry = lists.nexts[entry]
    if previous < 0:
        lists.heads[region] = -1
    else:
        lists.nexts[previous] = -1
    return lists.heads[region]


@inner()
def _current(merged_into: NDArray[np.int32], region: int) -> int:
    """The region that a region is part of by now; the way there is halved."""
    while merged_into[region] >= 0:
        above = merged_into[region]
        if merged_into[above] >= 0:
            merged_into[region] = merged_into[above]
        region = above
    return region


@inner()
def _merge(one: int, other: int, new: int, grown: _Grown) -> None:
    """Fill in the new region; its histograms take the rows of the first."""
    grown.rows[new] = grown.rows[one]
    grown.sizes[new] = grown.sizes[one] + grown.sizes[other]
    grown.merged_into[one] = grown.merged_into[other] = new
    boxes = grown.boxes
    for side in range(2):
        boxes[new, side] = min(boxes[one, side], boxes[other, side])
        boxes[new, side + 2] = max(boxes[one, side + 2], boxes[other, side + 2])
    for histograms in (grown.colours, grown.texture):
        into, added = histograms[grown.rows[one]], histograms[grown.rows[other]]
        for k in range(len(into)):
            into[k] += added[k]


@inner()
def _similarity(one: int, other: int, grown: _Grown, wanted: _Booleans, n_pixels: int) -> float:
    n_one, n_other = np.float64(grown.sizes[one]), np.float64(grown.sizes[other])
    row, other_row, boxes = grown.rows[one], grown.rows[other], grown.boxes
    value = 0.0
    if wanted[0]:
        common = _intersection(grown.colours[row], grown.colours[other_row], n_one, n_other)
        value += common / (n_one * n_other * (grown.colours.shape[1] // COLOUR_BINS))
    if wanted[1]:
        common = _intersection(grown.texture[row], grown.texture[other_row], n_one, n_other)
        value += common / (n_one * n_other * (grown.texture.shape[1] // TEXTURE_BINS))
    if wanted[2]:
        value += 1.0 - (n_one + n_other) / n_pixels
    if wanted[3]:
        width = max(boxes[one, 2], boxes[other, 2]) - min(boxes[one, 0], boxes[other, 0])
        height = max(boxes[one, 3], boxes[other, 3]) - min(boxes[one, 1], boxes[other, 1])
        value += 1.0 - (np.float64(width) * np.float64(height) - n_one - n_other) / n_pixels
    return value


@inner(fastmath={"reassoc", "nsz", "nnan"})  # sums of whole numbers are exact in any order
def _intersection(one: NDArray[np.float32], other: NDArray[np.float32], n_one: float, n_other: float) -> float:
    """The sum of min(one * n_other, other * n_one)."""
    total = 0.0
    for k in range(len(one)):
        total += min(np.float64(one[k]) * n_other, np.float64(other[k]) * n_one)
    return total


@inner()
def _is_before(likeness: NDArray[np.float64], keys: NDArray[np.int64], one: int, other: int) -> bool:
    if likeness[one] != likeness[other]:
        return likeness[one] > likeness[other]
    return keys[one] < keys[other]


@inner()
def _swap(likeness: NDArray[np.float64], keys: NDArray[np.int64], one: int, other: int) -> None:
    likeness[one], likeness[other] = likeness[other], likeness[one]
    keys[one], keys[other] = keys[other], keys[one]


@inner()
def _pushed(
    likeness: NDArray[np.float64], keys: NDArray[np.int64], n: int, value: float, key: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], int]:
    """The heap with one more pair, in larger arrays where there was no room."""
    if n == len(keys):
        longer, longer_keys = np.empty(2 * n), np.empty(2 * n, dtype=np.int64)
        for k in range(n):
            longer[k], longer_keys[k] = likeness[k], keys[k]
        likeness, keys = longer, longer_keys
    likeness[n], keys[n] = value, key
    child = n
    while child > 0 and _is_before(likeness, keys, child, (child - 1) // 2):
        _swap(likeness, keys, child, (child - 1) // 2)
        child = (child - 1) // 2
    return likeness, keys, n + 1


@inner()
def _popped(likeness: NDArray[np.float64], keys: NDArray[np.int64], n: int) -> int:
    """Take the first pair out of the heap."""
    n -= 1
    likeness[0], keys[0] = likeness[n], keys[n]
    parent = np.int64(0)
    while 2 * parent + 1 < n:
        child = 2 * parent + 1
        if child + 1 < n and _is_before(likeness, keys, child + 1, child):
            child += 1
        if not _is_before(likeness, keys, child, parent):
            break
        _swap(likeness, keys, child, parent)
        parent = child
    return n
