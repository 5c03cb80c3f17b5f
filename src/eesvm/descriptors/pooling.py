"""Means of a feature map over any number of windows, from one integral image.

In: a map (h, w, c) and windows in the coordinates of its cells, with fractional sides. Out: for each window the mean
inside each cell of a grid laid over it, (n, rows * columns * c). A map is read as constant inside each of its cells and
a window counts fractions of cells, so nothing is rounded and a window that moves a little changes its means a little.
A grid cell smaller than one cell of the map is widened to one around its centre, which makes it a linear interpolation
there, and is then moved inside the map.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import inner, kernel

Sums = NDArray[np.float64]


def pool_windows(integral: Sums, windows: NDArray[np.float64], rows: int, columns: int) -> NDArray[np.float32]:
    """(n, rows, columns, c) means over the cells of a grid in each window; `integral` as made by `integral_map`."""
    out = np.empty((len(windows), rows, columns, integral.shape[2]), np.float32)
    flat = out.reshape(len(windows), -1)
    pool_into(integral, np.ascontiguousarray(windows, np.float64), rows, columns, False, flat, 0)
    return out


@kernel()
def integral_map(values: NDArray[np.float32]) -> Sums:
    """(h + 1, w + 1, c) float64 sums of all `values` (h, w, c) above and left of each corner."""
    height, width, channels = values.shape
    sums = np.zeros((height + 1, width + 1, channels))
    running = np.empty(channels)
    for y in range(height):
        running[:] = 0.0
        for x in range(width):
            for c in range(channels):
                running[c] += values[y, x, c]
                sums[y + 1, x + 1, c] = sums[y, x + 1, c] + running[c]
    return sums


@kernel()
def pool_into(
    integral: Sums,
    windows: NDArray[np.float64],
    rows: int,
    columns: int,
    is_rooted: bool,
    out: NDArray[np.float32],
    begin: int,
) -> None:
    """Fills columns of `out` (n, d) from `begin` on: means as in `pool_windows`, or their roots with their signs."""
    channels = integral.shape[2]
    total = np.empty(channels)
    row_ids, row_weights = np.empty(4, np.int64), np.empty(4)
    column_ids, column_weights = np.empty(4, np.int64), np.empty(4)
    for k in range(len(windows)):
        step_x = (windows[k, 2] - windows[k, 0]) / columns
        step_y = (windows[k, 3] - windows[k, 1]) / rows
        for i in range(rows):
            start = windows[k, 1] + i * step_y
            _corner_weights(integral.shape[0] - 1, start, start + step_y, row_ids, row_weights)
            for j in range(columns):
                start = windows[k, 0] + j * step_x
                _corner_weights(integral.shape[1] - 1, start, start + step_x, column_ids, column_weights)
                total[:] = 0.0
                for a in range(4):
                    for b in range(4):
                        weight = row_weights[a] * column_weights[b]
                        if weight != 0.0:
                            corner = integral[row_ids[a], column_ids[b]]
                            for c in range(channels):
                                total[c] += weight * corner[c]
                first = begin + (i * columns + j) * channels
                for c in range(channels):
                    out[k, first + c] = total[c]
                if is_rooted:
                    _root(out[k, first : first + channels])


@inner()
def _root(means: NDArray[np.float32]) -> None:
    """In place: the root of the size of each, with its sign."""
    for c in range(len(means)):
        means[c] = np.copysign(np.sqrt(np.abs(means[c])), means[c])


@inner()
def _corner_weights(n_cells: int, start: float, stop: float, ids: NDArray[np.int64], weights: Sums) -> None:
    """Fills `ids` and `weights` (4,) with the corners of the integral whose weighted sum is the mean over a range."""
    start, stop = min(max(start, 0.0), float(n_cells)), min(max(stop, 0.0), float(n_cells))
    if stop - start < 1.0:
        middle = min(max(0.5 * (start + stop), 0.5), n_cells - 0.5)
        start, stop = middle - 0.5, middle + 0.5
    length = stop - start
    low, high = min(int(start), n_cells - 1), min(int(stop), n_cells - 1)
    ids[0], weights[0] = low, -(1.0 - (start - low)) / length
    ids[1], weights[1] = low + 1, -(start - low) / length
    ids[2], weights[2] = high, (1.0 - (stop - high)) / length
    ids[3], weights[3] = high + 1, (stop - high) / length
