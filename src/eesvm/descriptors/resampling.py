"""Windows of an image, resampled to a fixed size.

In: an RGB uint8 image and boxes with fractional sides. Out: float32 pixels of each box at the wanted size. One filter
for growing and shrinking: a triangle, as wide as two source pixels or two target pixels, whichever is wider, so that
shrinking averages and growing interpolates linearly (the rule of Pillow's `BILINEAR`). A target pixel whose centre lies
outside the image becomes `fill`, or, without one, repeats the border.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import inner, kernel

Image = NDArray[np.uint8]
Floats = NDArray[np.float64]
Pixels = NDArray[np.float32]


def resample(
    image: Image, boxes: Floats, height: int, width: int, fill: tuple[float, float, float] | None = None
) -> NDArray[np.float32]:
    """(n, height, width, 3): the parts of `image` inside each of the boxes (n, 4)."""
    out = np.empty((len(boxes), height, width, 3), np.float32)
    colour = np.array(fill or (0.0, 0.0, 0.0))
    resample_into(np.ascontiguousarray(image), np.asarray(boxes, np.float64), colour, fill is None, out)
    return out


@kernel()
def resample_into(image: Image, boxes: Floats, fill: Floats, extend: bool, out: Pixels) -> None:
    """Fills `out` (n, height, width, 3); `extend` repeats the border in place of `fill` (3,)."""
    source_height, source_width, _ = image.shape
    flat = image.reshape(source_height, source_width * 3)
    _, height, width, _ = out.shape
    for k in range(len(boxes)):
        first_row, row_weights = axis_weights(source_height, boxes[k, 1], boxes[k, 3], height, extend)
        first_column, column_weights = axis_weights(source_width, boxes[k, 0], boxes[k, 2], width, extend)
        left, right = _needed(first_column, column_weights.shape[1], source_width)
        row = np.empty(3 * (right - left), np.float32)
        for y in range(height):
            if first_row[y] >= 0:
                _mix_rows(flat, first_row[y], row_weights[y], 3 * left, row)
            for x in range(width):
                if first_row[y] < 0 or first_column[x] < 0:
                    for c in range(3):
                        out[k, y, x, c] = fill[c]
                else:
                    _mix_pixels(row, 3 * (first_column[x] - left), column_weights[x], out[k, y, x])


@inner()
def axis_weights(n_source: int, start: float, stop: float, n_target: int, extend: bool) -> tuple[Any, Any]:
    """For every target pixel its first source pixel, -1 where it lies outside, and the weights from there on."""
    scale = (stop - start) / n_target
    support = max(scale, 1.0)
    n_taps = int(np.ceil(2 * support)) + 1
    first = np.full(n_target, -1, np.int64)
    weights = np.zeros((n_target, n_taps), np.float32)
    for target in range(n_target):
        centre = start + (target + 0.5) * scale
        if extend:
            centre = min(max(centre, 0.0), n_source - 1e-6)
        elif centre < 0.0 or centre >= n_source:
            continue
        low = max(int(np.floor(centre - support + 0.5)), 0)
        high = min(int(np.floor(centre + support + 0.5)), n_source)
        total = 0.0
        for source in range(low, high):
            total += max(1.0 - abs(source + 0.5 - centre) / support, 0.0)
        first[target] = low
        for source in range(low, high):
            weights[target, source - low] = max(1.0 - abs(source + 0.5 - centre) / support, 0.0) / total
    return first, weights


@inner()
def _needed(first: NDArray[np.int64], n_taps: int, n_source: int) -> tuple[int, int]:
    """The range of source pixels that any target pixel asks for."""
    low, high = n_source, 0
    for source in first:
        if source >= 0:
            low, high = min(low, source), max(high, source + n_taps)
    return min(low, n_source), max(min(high, n_source), min(low, n_source))


@inner()
def _mix_rows(flat: Image, first: int, weights: Pixels, left: int, row: Pixels) -> None:
    """Fills `row` with the weighted sum of rows of `flat` (h, 3 w), from column `left` on."""
    row[:] = 0
    for tap in range(len(weights)):
        weight = weights[tap]
        if weight > 0:
            source = flat[first + tap, left : left + len(row)]
            for x in range(len(row)):
                row[x] += weight * np.float32(source[x])


@inner()
def _mix_pixels(row: Pixels, first: int, weights: Pixels, out: Pixels) -> None:
    """Fills `out` (3,) with the weighted sum of the pixels of `row` from `first` on."""
    red, green, blue = np.float32(0), np.float32(0), np.float32(0)
    for tap in range(len(weights)):
        weight = weights[tap]
        if weight > 0:
            red += weight * row[first + 3 * tap]
            green += weight * row[first + 3 * tap + 1]
            blue += weight * row[first + 3 * tap + 2]
    out[0], out[1], out[2] = red, green, blue
