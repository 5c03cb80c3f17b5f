"""Histograms of oriented gradients, 31 numbers per cell (Felzenszwalb et al. 2010), on a fixed grid in each window.

In: an RGB image and windows. Out: float32 (n, cells * cells * 31), cell by cell, row by row. Of a cell: 18 signed
orientations, 9 unsigned ones, 4 sums by normalising block. A gradient is shared between the two nearest orientations,
and a ring of cells around the window takes part in the normalisation only.

"warped" warps each window to the grid's size in pixels and takes the gradients there, as the paper's HOG row does.
"integral" takes the gradients of the whole image once and sums them from an integral image: several times faster; each
pixel counts in the cell that it lies in, and large windows keep fine texture.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm import boxes as box_functions
from eesvm._support.compile import inner, kernel
from eesvm._support.validation import check_choice, check_number
from eesvm.descriptors.base import Boxes, Image, Rows, check_image, check_windows
from eesvm.descriptors.pooling import integral_map, pool_windows
from eesvm.descriptors.resampling import resample

MODES = ("warped", "integral")
CHANNELS = 31
_ORIENTATIONS = 18
_EPSILON = 1e-4  # beside the energy of a block, in squared grey levels
_CLIP = 0.2
_BATCH = 64
_VERSION = 1

_Floats = NDArray[np.float32]


class HOG:
    """HOG of windows.

    Parameters
    ----------
    cells : of the grid, along each side of a window.
    cell_size : pixels of a warped cell, along each side.
    mode : "warped" or "integral".
    size : "integral" only: an image with a longer side is made smaller first, which bounds the memory.
    """

    def __init__(self, cells: int = 8, cell_size: int = 8, mode: str = "warped", size: int = 512) -> None:
        check_number(cells, "cells", minimum=1, maximum=64, integer=True)
        check_number(cell_size, "cell_size", minimum=2, maximum=64, integer=True)
        check_number(size, "size", minimum=16, maximum=4096, integer=True)
        check_choice(mode, "mode", MODES)
        self.cells, self.cell_size, self.mode, self.size = int(cells), int(cell_size), mode, int(size)
        self.dimension = self.cells**2 * CHANNELS

    def describe(self, image: Image, boxes: ArrayLike) -> Rows:
        """(n, dimension) float32, one row per box.

        Parameters
        ----------
        image : (height, width, 3) uint8, RGB.
        boxes : (n, 4) windows in it, half-open xyxy.
        """
        image, windows = check_image(image), check_windows(boxes)
        rows = np.empty((len(windows), self.dimension), np.float32)
        if len(windows):
            with_ring = self._with_ring(box_functions.clip(windows, image.shape[1], image.shape[0]))
            histograms = self._warped if self.mode == "warped" else self._integral
            histograms(image, with_ring, rows.reshape(len(rows), self.cells, self.cells, CHANNELS))
        return rows

    def parameters(self) -> dict[str, Any]:
        """Everything that determines the numbers, as JSON would hold it."""
        own = {"cell_size": self.cell_size} if self.mode == "warped" else {"size": self.size}
        return {"descriptor": "hog", "version": _VERSION, "cells": self.cells, "mode": self.mode, **own}

    def _with_ring(self, windows: Boxes) -> Boxes:
        """Windows of at least one pixel, one cell wider on each side."""
        centres = (windows[:, :2] + windows[:, 2:]) / 2
        half = np.maximum(windows[:, 2:] - windows[:, :2], 1.0) / 2 * (self.cells + 2) / self.cells
        return np.concatenate([centres - half, centres + half], axis=1)

    def _warped(self, image: Image, windows: Boxes, out: _Floats) -> None:
        side = (self.cells + 2) * self.cell_size
        for start in range(0, len(windows), _BATCH):
            part = slice(start, start + _BATCH)
            hog_of_patches(resample(image, windows[part], side, side), self.cell_size, out[part])

    def _integral(self, image: Image, windows: Boxes, out: _Floats) -> None:
        height, width = image.shape[:2]
        factor = min(1.0, self.size / max(height, width))
        inner = max(1, round(height * factor)), max(1, round(width * factor))
        pixels = resample(image, np.array([[0.0, 0.0, width, height]]), *inner)[0]
        integral = integral_map(orientation_map(pixels))
        scaled = windows * np.array([inner[1] / width, inner[0] / height] * 2)
        for start in range(0, len(windows), _BATCH):
            part = slice(start, start + _BATCH)
            cells = pool_windows(integral, scaled[part], self.cells + 2, self.cells + 2)
            normalise_cells(cells * np.float32(self.cell_size**2), out[part])


@kernel()
def hog_of_patches(patches: _Floats, cell_size: int, out: _Floats) -> None:
    """Fills `out` (n, c, c, 31) from pixels (n, (c + 2) * cell_size, (c + 2) * cell_size, 3)."""
    cells = out.shape[1] + 2
    histograms = np.zeros((len(patches), cells, cells, _ORIENTATIONS), np.float32)
    for k in range(len(patches)):
        for y in range(patches.shape[1]):
            for x in range(patches.shape[2]):
                magnitude, turn = _gradient(patches[k], y, x)
                _add_to_cells(histograms[k], (y + 0.5) / cell_size - 0.5, (x + 0.5) / cell_size - 0.5, turn, magnitude)
    normalise_cells(histograms, out)


@kernel()
def orientation_map(pixels: _Floats) -> _Floats:
    """(h, w, 18): the magnitude of each pixel's gradient, shared between the two nearest orientations."""
    height, width, _ = pixels.shape
    out = np.zeros((height, width, _ORIENTATIONS), np.float32)
    for y in range(height):
        for x in range(width):
            magnitude, turn = _gradient(pixels, y, x)
            low = int(turn)
            out[y, x, low % _ORIENTATIONS] += (1.0 - (turn - low)) * magnitude
            out[y, x, (low + 1) % _ORIENTATIONS] += (turn - low) * magnitude
    return out


@kernel()
def normalise_cells(histograms: _Floats, out: _Floats) -> None:
    """Fills `out` (n, c, c, 31) from the histograms (n, c + 2, c + 2, 18) of a grid and the ring around it.

    A cell belongs to four blocks of 2 x 2 cells. It is divided by the norm of each, cut at 0.2, and averaged.
    """
    n, size = len(histograms), histograms.shape[1]
    energy = np.empty((size, size), np.float32)
    scales = np.empty(4, np.float32)
    for k in range(n):
        for i in range(size):
            for j in range(size):
                energy[i, j] = 0
                for o in range(9):
                    energy[i, j] += (histograms[k, i, j, o] + histograms[k, i, j, o + 9]) ** 2
        for i in range(1, size - 1):
            for j in range(1, size - 1):
                for block in range(4):
                    a, b = i - 1 + block // 2, j - 1 + block % 2
                    total = energy[a, b] + energy[a + 1, b] + energy[a, b + 1] + energy[a + 1, b + 1]
                    scales[block] = 1.0 / np.sqrt(total + _EPSILON)
                _describe_cell(histograms[k, i, j], scales, out[k, i - 1, j - 1])


@inner()
def _gradient(pixels: _Floats, y: int, x: int) -> tuple[float, float]:
    """Magnitude and signed orientation, from 0 to 18 for a full turn, of the colour with the steepest gradient."""
    height, width, _ = pixels.shape
    up, down, left, right = max(y - 1, 0), min(y + 1, height - 1), max(x - 1, 0), min(x + 1, width - 1)
    best, best_x, best_y = np.float32(-1), np.float32(0), np.float32(0)
    for c in range(3):
        dx, dy = pixels[y, right, c] - pixels[y, left, c], pixels[down, x, c] - pixels[up, x, c]
        if dx * dx + dy * dy > best:
            best, best_x, best_y = dx * dx + dy * dy, dx, dy
    turn = np.arctan2(best_y, best_x) / (2 * np.pi) * _ORIENTATIONS
    return np.sqrt(best), turn if turn >= 0 else turn + _ORIENTATIONS


@inner()
def _add_to_cells(histogram: _Floats, y: float, x: float, turn: float, magnitude: float) -> None:
    """Share a gradient at (y, x), in units of cells from the centre of the first, among the four nearest cells."""
    i, j, low = int(np.floor(y)), int(np.floor(x)), int(turn)
    share = turn - low
    for a in range(2):
        for b in range(2):
            if 0 <= i + a < histogram.shape[0] and 0 <= j + b < histogram.shape[1]:
                weight = (1.0 - abs(y - i - a)) * (1.0 - abs(x - j - b)) * magnitude
                histogram[i + a, j + b, low % _ORIENTATIONS] += (1.0 - share) * weight
                histogram[i + a, j + b, (low + 1) % _ORIENTATIONS] += share * weight


@inner()
def _describe_cell(histogram: _Floats, scales: _Floats, out: _Floats) -> None:
    """Fills `out` (31,): signed, unsigned, and the signed ones summed for each block."""
    out[:] = 0
    for block in range(4):
        for o in range(18):
            value = min(histogram[o] * scales[block], _CLIP)
            out[o] += 0.5 * value
            out[27 + block] += 0.2357 * value
        for o in range(9):
            out[18 + o] += 0.5 * min((histogram[o] + histogram[o + 9]) * scales[block], _CLIP)
