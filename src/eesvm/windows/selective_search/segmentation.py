"""Graph segmentation: Felzenszwalb and Huttenlocher, "Efficient graph-based image segmentation", 2004.

In: planes of a colour space. Out: a label per pixel, numbered from 0 in the order of the pixels.
Pixels are joined to their eight neighbours by edges that weigh the distance of their smoothed colours, in sixteenths
of a grey level. Edges are sorted once (`sorted_edges`) for any number of segmentations: weights are whole numbers, so
counting sorts them, and of equal weights the right, lower, lower right, lower left edges come in that order, each in
the order of the pixels. Everything is whole numbers, so the same pixels give the same labels everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import inner, kernel
from eesvm.windows.selective_search.colours import Planes

_UNIT = 16  # of a grey level
_MAX_WEIGHT = 7067  # of white to black in three channels: 255 * 16 * sqrt(3)
_NONE = 65535  # stands for an edge that would leave the image

_Labels = NDArray[np.int32]


class Edges(NamedTuple):
    """Edges in the order of their weights."""

    codes: NDArray[np.int32]  # 4 * pixel + 0 (right), 1 (lower), 2 (lower right), 3 (lower left)
    starts: NDArray[np.int64]  # (max weight + 2,): edges of weight w are `codes[starts[w]:starts[w + 1]]`
    height: int
    width: int


def sorted_edges(planes: Planes) -> Edges:
    """All edges of an image."""
    weights = _edge_weights(_smoothed(planes))
    return Edges(*_counting_sort(weights), *planes.shape[1:])


def segmentation(edges: Edges, scale: int, min_size: int) -> tuple[_Labels, int]:
    """(height, width) labels and their number.

    Parameters
    ----------
    scale : the constant k of the paper, in grey levels: larger regions where it is larger.
    min_size : regions with fewer pixels are merged with the neighbour across the lightest edge.
    """
    labels, n = _segmented(edges.codes, edges.starts, edges.height, edges.width, _UNIT * scale, min_size)
    return labels.reshape(edges.height, edges.width), n


@kernel()
def _smoothed(planes: Planes) -> NDArray[np.int32]:
    """A Gaussian of 0.8 pixels, as 6 58 128 58 6 along both axes; the border is repeated. In sixteenths."""
    n_channels, height, width = planes.shape
    smooth = np.empty((n_channels, height, width), dtype=np.int32)
    padded = np.empty(width + 4, dtype=np.int32)
    across = np.empty((height + 4, width), dtype=np.int32)
    for channel in range(n_channels):
        for y in range(height):
            for x in range(width):
                padded[x + 2] = planes[channel, y, x]
            padded[0] = padded[1] = padded[2]
            padded[width + 2] = padded[width + 3] = padded[width + 1]
            row = across[y + 2]
            for x in range(width):
                row[x] = 6 * (padded[x] + padded[x + 4]) + 58 * (padded[x + 1] + padded[x + 3]) + 128 * padded[x + 2]
        across[0] = across[2]
        across[1] = across[2]
        across[height + 2] = across[height + 1]
        across[height + 3] = across[height + 1]
        for y in range(height):
            a, b, c, d, e = across[y], across[y + 1], across[y + 2], across[y + 3], across[y + 4]
            row = smooth[channel, y]
            for x in range(width):
                row[x] = (6 * (a[x] + e[x]) + 58 * (b[x] + d[x]) + 128 * c[x] + 2048) >> 12
    return smooth


@kernel()
def _edge_weights(smooth: NDArray[np.int32]) -> NDArray[np.uint16]:
    """(4, height, width): the edge from each pixel to the right, lower, lower right, lower left."""
    n_channels, height, width = smooth.shape
    weights = np.full((4, height, width), _NONE, dtype=np.uint16)
    squares = np.empty(width, dtype=np.int32)
    for direction in range(4):
        down = 0 if direction == 0 else 1
        # Columns of the first and of the second pixel of the first edge of a row.
        first = 1 if direction == 3 else 0
        second = 1 if direction == 0 or direction == 2 else 0
        n = width if direction == 1 else width - 1
        for y in range(height - down):
            squares[:n] = 0
            for channel in range(n_channels):
                a = smooth[channel, y, first : first + n]
                b = smooth[channel, y + down, second : second + n]
                for x in range(n):
                    difference = a[x] - b[x]
                    squares[x] += difference * difference
            row = weights[direction, y, first : first + n]
            for x in range(n):
                row[x] = np.int32(np.sqrt(np.float32(squares[x])) + np.float32(0.5))
    return weights


@kernel()
def _counting_sort(weights: NDArray[np.uint16]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    n_pixels = weights.shape[1] * weights.shape[2]
    flat = weights.reshape(4, n_pixels)
    counts = np.zeros(_NONE + 1, dtype=np.int64)
    for direction in range(4):
        for pixel in range(n_pixels):
            counts[flat[direction, pixel]] += 1
    starts = np.zeros(_MAX_WEIGHT + 2, dtype=np.int64)
    for weight in range(_MAX_WEIGHT + 1):
        starts[weight + 1] = starts[weight] + counts[weight]
    place = starts.copy()
    codes = np.empty(starts[_MAX_WEIGHT + 1], dtype=np.int32)
    for direction in range(4):
        for pixel in range(n_pixels):
            weight = flat[direction, pixel]
            if weight != _NONE:
                codes[place[weight]] = 4 * pixel + direction
                place[weight] += 1
    return codes, starts


@inner()
def _root(parents: NDArray[np.int32], node: int) -> int:
    """The root of a node; its way there is halved. A root holds its size, negative."""
    parent = parents[node]
    while parent >= 0:
        above = parents[parent]
        if above < 0:
            return parent
        parents[node] = above
        node = above
        parent = parents[node]
    return node


@inner()
def _join(parents: NDArray[np.int32], one: int, other: int) -> int:
    """Join two roots; the larger region, else the first pixel, stays one."""
    if parents[other] < parents[one] or (parents[other] == parents[one] and other < one):
        one, other = other, one
    parents[one] += parents[other]
    parents[other] = one
    return one


@kernel()
def _segmented(
    codes: NDArray[np.int32], starts: NDArray[np.int64], height: int, width: int, scale: int, min_size: int
) -> tuple[_Labels, int]:
    """Join along edges that are not heavier than what holds both regions together, then join small regions."""
    n_pixels = height * width
    steps = np.array([1, width, width + 1, width - 1])
    parents = np.full(n_pixels, -1, dtype=np.int32)
    limits = np.full(n_pixels, scale, dtype=np.int32)  # of a root: its heaviest edge + scale / size
    between = np.empty(len(codes), dtype=np.int32)  # edges whose ends were in different regions
    n_between = 0
    for weight in range(len(starts) - 1):
        for k in range(starts[weight], starts[weight + 1]):
            code = codes[k]
            pixel = code >> 2
            one, other = _root(parents, pixel), _root(parents, pixel + steps[code & 3])
            if one == other:
                continue
            if weight <= limits[one] and weight <= limits[other]:
                one = _join(parents, one, other)
                limits[one] = weight + scale // -parents[one]
            else:
                between[n_between] = code
                n_between += 1
    for k in range(n_between):
        pixel = between[k] >> 2
        one, other = _root(parents, pixel), _root(parents, pixel + steps[between[k] & 3])
        if one != other and (parents[one] > -min_size or parents[other] > -min_size):
            _join(parents, one, other)
    return _numbered(parents)


@inner()
def _numbered(parents: NDArray[np.int32]) -> tuple[_Labels, int]:
    labels = np.empty(len(parents), dtype=np.int32)
    names = np.full(len(parents), -1, dtype=np.int32)
    n = 0
    for pixel in range(len(parents)):
        root = _root(parents, pixel)
        if names[root] < 0:
            names[root] = n
            n += 1
        labels[pixel] = names[root]
    return labels, n
