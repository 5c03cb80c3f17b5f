"""Windows on a regular grid, which never looks at the pixels.

In: the size of an image. Out: (n, 4) half-open xyxy boxes, the whole image first, then from large to small.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import check_number

_ASPECTS = (1.0, 0.5, 2.0, 0.7, 1.4)  # width : height, in the order in which a grid offers them
_GRID_STEP = 2**0.5  # between the sizes of a grid
_GRID_STRIDE = 0.25  # of the side of a window

_Floats = NDArray[np.float64]


def grid_windows(width: int, height: int, max_windows: int = 2000, min_size: float = 10.0) -> _Floats:
    """(n, 4) half-open xyxy boxes on a regular grid: the whole image, then from large to small.

    Sizes fall by the square root of 2, widths to heights are 1, 1/2, 2, 0.7 and 1.4, neighbours are a quarter of a side
    apart. Within a size the order is scattered, so that a limit does not leave one corner of the image empty. Without a
    limit, a box of 1.6 times `min_size` or more, not longer than two to one, is overlapped by an IoU of about 0.6.

    Parameters
    ----------
    width, height : of the image in pixels.
    max_windows : how many to give at most.
    min_size : least width and height of a window, in pixels.
    """
    for name, value in (("width", width), ("height", height), ("max_windows", max_windows)):
        check_number(value, name, minimum=1, integer=True)
    check_number(min_size, "min_size", minimum=1)
    found = [np.array([[0.0, 0.0, width, height]])]
    n, size, level = 1, float(min(width, height)), 0
    while size >= min_size and n < max_windows:
        level += 1
        windows = _grid_level(width, height, size, min_size)
        scattered = np.argsort(np.random.Generator(np.random.PCG64(level)).random(len(windows)), kind="stable")
        found.append(windows[scattered])
        n += len(windows)
        size /= _GRID_STEP
    return _distinct(np.concatenate(found))[:max_windows]


def _grid_level(width: int, height: int, size: float, min_size: float) -> _Floats:
    """Windows whose area is that of a square of this size, in all aspects that fit."""
    found = []
    for aspect in _ASPECTS:
        w, h = size * aspect**0.5, size / aspect**0.5
        if min_size <= w <= width and min_size <= h <= height:
            x = np.linspace(0, width - w, 1 + int(np.ceil((width - w) / (_GRID_STRIDE * w))))
            y = np.linspace(0, height - h, 1 + int(np.ceil((height - h) / (_GRID_STRIDE * h))))
            left, top = (a.ravel() for a in np.meshgrid(x, y))
            found.append(np.stack([left, top, left + w, top + h], axis=1))
    return np.concatenate(found) if found else np.empty((0, 4))


def _distinct(boxes: _Floats) -> _Floats:
    """The boxes without repetitions, in the order in which they first occur."""
    return boxes[np.sort(np.unique(boxes, axis=0, return_index=True)[1])]
