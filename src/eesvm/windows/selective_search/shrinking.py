"""Large images made smaller before they are segmented.

In: an RGB image and the longest side wanted. Out: the image, or a smaller one whose pixels are the means of the areas
that they cover.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import kernel

_Image = NDArray[np.uint8]


def shrunk(image: _Image, longest: int) -> _Image:
    """The image, no side longer than `longest`; both sides become smaller by the same factor, rounded."""
    height, width = image.shape[:2]
    factor = longest / max(height, width)
    if factor >= 1:
        return np.ascontiguousarray(image)
    return _area_means(np.ascontiguousarray(image), max(1, round(height * factor)), max(1, round(width * factor)))


@kernel()
def _area_means(image: _Image, height: int, width: int) -> _Image:
    """Each axis by itself: the rows under a target row are added up, then the columns of their sum."""
    n_rows, n_columns, _ = image.shape
    small = np.empty((height, width, 3), dtype=np.uint8)
    line = np.empty((n_columns, 3), dtype=np.float32)
    step_y, step_x = n_rows / height, n_columns / width
    for y in range(height):
        top, bottom = y * step_y, min((y + 1) * step_y, float(n_rows))
        line[:] = 0.0
        for row in range(int(top), min(n_rows, int(np.ceil(bottom)))):
            share = np.float32((min(bottom, row + 1.0) - max(top, float(row))) / step_y)
            for column in range(n_columns):
                for channel in range(3):
                    line[column, channel] += share * np.float32(image[row, column, channel])
        for x in range(width):
            left, right = x * step_x, min((x + 1) * step_x, float(n_columns))
            red = green = blue = 0.0
            for column in range(int(left), min(n_columns, int(np.ceil(right)))):
                share = (min(right, column + 1.0) - max(left, float(column))) / step_x
                red += share * line[column, 0]
                green += share * line[column, 1]
                blue += share * line[column, 2]
            small[y, x, 0] = min(255, int(red + 0.5))
            small[y, x, 1] = min(255, int(green + 0.5))
            small[y, x, 2] = min(255, int(blue + 0.5))
    return small
