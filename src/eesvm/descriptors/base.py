"""What every descriptor has in common.

A descriptor turns windows of an image into rows of numbers. It has `describe(image, boxes)`, which gives float32
(n, d) for an RGB uint8 image and (n, 4) half-open xyxy boxes; `dimension`, which is d; and `parameters()`, a
JSON-able dictionary of everything that the numbers depend on besides the image and the boxes: equal parameters mean
equal numbers, so they are what a cache files results under.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm import boxes as box_functions
from eesvm._support.validation import InputError

Image = NDArray[np.uint8]
Boxes = NDArray[np.float64]
Rows = NDArray[np.float32]


@runtime_checkable
class Descriptor(Protocol):
    """Windows of an image -> rows of numbers."""

    @property
    def dimension(self) -> int:
        """Numbers per window."""

    def describe(self, image: Image, boxes: ArrayLike) -> Rows:
        """(n, dimension) float32, one row per box.

        Parameters
        ----------
        image : (height, width, 3) uint8, RGB.
        boxes : (n, 4) windows in it, half-open xyxy.
        """

    def parameters(self) -> dict[str, Any]:
        """Everything that determines the numbers, as JSON would hold it."""


def check_image(image: ArrayLike) -> Image:
    """`image` as a contiguous uint8 array (height, width, 3) with at least one pixel."""
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise InputError(f"`image` must be uint8 of shape (height, width, 3), got {pixels.dtype} {pixels.shape}")
    return np.ascontiguousarray(pixels)


def check_windows(boxes: ArrayLike) -> Boxes:
    """`boxes` as float64 (n, 4), none inverted; empty ones are allowed and count as a point."""
    windows = box_functions.check_boxes(boxes)
    is_inverted = (windows[:, 2:] < windows[:, :2]).any(axis=1)
    if is_inverted.any():
        index = int(np.argmax(is_inverted))
        raise InputError(f"`boxes` must have x1 <= x2 and y1 <= y2, got {windows[index].tolist()} at index {index}")
    return windows


def normalise_rows(rows: Rows) -> Rows:
    """Divide each row by its length, in place; rows of zeros stay."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    rows /= np.where(lengths > 0, lengths, 1)[:, None]
    return rows
