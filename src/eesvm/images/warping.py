"""Pixels of one box carried onto another: where target pixels come from, and what they hold.

In: arrays of pixels and the map between two boxes, which stretches both axes. Out: for each target pixel the
share of its source area that a mask covers (`covered_share`), or its colour (`resampled`).
A pixel is a square, not a point: coverage is the exact area under the map, whatever the scale, so sub-pixel boxes need
no special case and shrinking loses nothing to chance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import kernel

_Floats = NDArray[np.float64]


class PixelRange(NamedTuple):
    """Whole pixels from x1, y1 to x2, y2, half-open."""

    x1: int
    y1: int
    x2: int
    y2: int


class Edges(NamedTuple):
    """Where the edges between target pixels lie in the source, in source pixels from its upper left corner."""

    columns: _Floats  # (width + 1,)
    rows: _Floats  # (height + 1,)


def pixels_touched(box: _Floats, width: int, height: int) -> PixelRange:
    """The pixels of an image that a half-open box touches; empty ranges where it lies outside."""
    x1, y1 = (int(max(0.0, np.floor(low))) for low in box[:2])
    x2, y2 = (int(min(size, np.ceil(high))) for size, high in zip((width, height), box[2:], strict=True))
    return PixelRange(x1, y1, max(x1, x2), max(y1, y2))


def source_edges(pixels: PixelRange, target: _Floats, source: _Floats) -> Edges:
    """Edges of the target pixels under the map that takes the box `target` to the box `source`.

    The source array holds the pixels that `source` touches, so its corner is the corner of the box rounded down.
    """
    scale_x, scale_y = (source[2:] - source[:2]) / (target[2:] - target[:2])
    along_x = (np.arange(pixels.x1, pixels.x2 + 1) - target[0]) * scale_x
    along_y = (np.arange(pixels.y1, pixels.y2 + 1) - target[1]) * scale_y
    origin_x, origin_y = (max(0.0, np.floor(low)) for low in source[:2])
    return Edges(source[0] + along_x - origin_x, source[1] + along_y - origin_y)


def covered_share(mask: NDArray[np.bool_], edges: Edges) -> _Floats:
    """(height, width) share of each target pixel's source area that lies in the mask; outside it there is nothing."""
    return _covered(np.ascontiguousarray(mask), edges.columns, edges.rows)


def resampled(picture: NDArray[np.uint8], edges: Edges) -> NDArray[np.uint8]:
    """(height, width, 3) colours: between source pixels when enlarged, averaged when shrunk; the border is repeated."""
    across = _tent_weights(edges.columns, picture.shape[1])
    down = _tent_weights(edges.rows, picture.shape[0])
    colours = [down @ picture[:, :, channel].astype(np.float64) @ across.T for channel in range(3)]
    return np.rint(np.stack(colours, axis=2)).clip(0, 255).astype(np.uint8)


def _tent_weights(edges: _Floats, n: int) -> _Floats:
    """(n_target, n) weights of the source pixels, each row adding up to 1."""
    centres = np.clip((edges[1:] + edges[:-1]) / 2, 0.5, n - 0.5)
    reach = np.maximum(1.0, np.abs(np.diff(edges)))
    weights = np.maximum(0.0, 1 - np.abs(centres[:, None] - (np.arange(n) + 0.5)) / reach[:, None])
    return weights / weights.sum(axis=1, keepdims=True)


@kernel()
def _covered(mask: NDArray[np.bool_], columns: _Floats, rows: _Floats) -> _Floats:
    """Both axes of the squares apart: first the source rows under a target row, then the columns of their sum."""
    height, width = mask.shape
    shares = np.zeros((len(rows) - 1, len(columns) - 1))
    line = np.empty(width)
    for y in range(len(rows) - 1):
        top, bottom = max(0.0, rows[y]), min(float(height), rows[y + 1])
        if top >= bottom:
            continue
        line[:] = 0.0
        for source_y in range(int(top), min(height, int(bottom) + 1)):
            weight = min(bottom, source_y + 1.0) - max(top, float(source_y))
            if weight > 0.0:
                for source_x in range(width):
                    line[source_x] += weight * mask[source_y, source_x]
        for x in range(len(columns) - 1):
            left = max(0.0, min(columns[x], columns[x + 1]))
            right = min(float(width), max(columns[x], columns[x + 1]))
            total = 0.0
            for source_x in range(int(left), min(width, int(right) + 1)):
                total += max(0.0, min(right, source_x + 1.0) - max(left, float(source_x))) * line[source_x]
            shares[y, x] = total / (abs(columns[x + 1] - columns[x]) * (rows[y + 1] - rows[y]))
    return shares
