"""The things in the scenes: handwritten digits, letters of straight strokes, and what covers them.

In: 8 x 8 grids of ink and a pose. Out: patches of opacity (h, w), 0 to 1; where it is at least 0.5, the thing is.
All resampling is plain numpy, so that shapes are the same wherever numpy runs.
Not here: colours and places; see `_scene_pixels` and `scenes`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Patch = NDArray[np.float64]

CELLS = 8  # a glyph is drawn on a grid of 8 x 8 cells
_MARGIN = 2  # blank cells around it
_FINE = 12  # points per cell, once it is smooth
_INK = 0.42  # of the blackest: more is the thing, less is paper

# Strokes from point to point in a unit square, x to the right and y down: letters that look like no digit.
_LETTERS = (
    (((0.1, 1.0), (0.5, 0.0), (0.9, 1.0)), ((0.28, 0.6), (0.72, 0.6))),  # A
    (((0.85, 0.0), (0.2, 0.0), (0.2, 1.0), (0.85, 1.0)), ((0.2, 0.5), (0.7, 0.5))),  # E
    (((0.15, 0.0), (0.15, 1.0)), ((0.85, 0.0), (0.85, 1.0)), ((0.15, 0.5), (0.85, 0.5))),  # H
    (((0.2, 0.0), (0.2, 1.0)), ((0.85, 0.0), (0.2, 0.55), (0.85, 1.0))),  # K
    (((0.1, 1.0), (0.1, 0.0), (0.5, 0.6), (0.9, 0.0), (0.9, 1.0)),),  # M
    (((0.15, 1.0), (0.15, 0.0), (0.85, 1.0), (0.85, 0.0)),),  # N
    (((0.1, 0.0), (0.9, 0.0)), ((0.5, 0.0), (0.5, 1.0))),  # T
    (((0.1, 0.0), (0.3, 1.0), (0.5, 0.4), (0.7, 1.0), (0.9, 0.0)),),  # W
    (((0.1, 0.0), (0.9, 1.0)), ((0.9, 0.0), (0.1, 1.0))),  # X
    (((0.1, 0.0), (0.5, 0.5), (0.9, 0.0)), ((0.5, 0.5), (0.5, 1.0))),  # Y
)


class Draw:
    """Random numbers from nothing but a stream of uniform ones, which numpy promises to keep as it is."""

    def __init__(self, *key: int) -> None:
        self._random = np.random.Generator(np.random.PCG64(list(key)))

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        return low + (high - low) * float(self._random.random())

    def table(self, *shape: int) -> NDArray[np.float64]:
        """Uniform numbers from 0 to 1."""
        return self._random.random(shape)

    def integer(self, n: int) -> int:
        """One of 0, ..., n - 1."""
        return int(self._random.random() * n)

    def sign(self) -> int:
        return 1 - 2 * self.integer(2)

    def chance(self, share: float) -> bool:
        return bool(self._random.random() < share)


class Pose(NamedTuple):
    """How a glyph lies in the image."""

    cell: float  # pixels per cell, down
    aspect: float  # width of a cell : its height
    rotation: float  # degrees, clockwise as seen in the image
    slant: float  # cells to the right per cell up


class Glyph(NamedTuple):
    """A glyph in its pose, cut tight."""

    opacity: Patch
    is_upper: NDArray[np.bool_]  # (h, w) whether a pixel belongs to the upper half of the ink


@lru_cache(maxsize=1)
def digits() -> tuple[NDArray[np.float64], NDArray[np.int_]]:
    """(1797, 8, 8) ink from 0 to 1 and what was written."""
    from sklearn.datasets import load_digits  # here, because importing the package should stay quick

    data = load_digits()
    return data.images / 16.0, data.target


def letter(draw: Draw) -> NDArray[np.float64]:
    """(8, 8) ink of one of the letters, written by a hand that is never quite the same."""
    strokes = _LETTERS[draw.integer(len(_LETTERS))]
    points = []
    for stroke in strokes:
        corners = np.array(stroke) + 0.14 * (draw.table(len(stroke), 2) - 0.5)
        steps = np.linspace(0, len(corners) - 1, 20 * (len(corners) - 1) + 1)
        points.append(np.stack([np.interp(steps, np.arange(len(corners)), column) for column in corners.T], axis=1))
    places = np.array([0.6, 0.4]) + np.concatenate(points) * np.array([5.8, 6.2])  # in cells, as wide as the digits
    y, x = np.mgrid[:CELLS, :CELLS]
    distance = np.hypot(x[..., None] - places[:, 0], y[..., None] - places[:, 1]).min(axis=-1)
    return np.clip(draw.uniform(1.1, 1.3) - distance, 0.0, 1.0)


def place(ink: NDArray[np.float64], pose: Pose) -> Glyph:
    """A grid of ink, enlarged smoothly and turned."""
    angle = np.deg2rad(pose.rotation)
    reach = int(np.ceil(pose.cell * CELLS * 0.8))  # half the side of a square that holds it: poses are not extreme
    down, right = np.mgrid[-reach:reach, -reach:reach] + 0.5
    v = (np.cos(angle) * down - np.sin(angle) * right) / pose.cell
    u = (np.cos(angle) * right + np.sin(angle) * down) / (pose.cell * pose.aspect) + pose.slant * v
    centre = (CELLS - 1) / 2
    amount = _sample(ink, v + centre, u + centre)
    # One pixel of transition at the edge: ink rises by about half of its range within a cell.
    opacity = np.clip((amount - _INK) * pose.cell + 0.5, 0.0, 1.0)
    rows, columns = _extent(opacity >= 0.5)
    inside = v[opacity >= 0.5]
    is_upper = v < (inside.min() + inside.max()) / 2
    return Glyph(opacity[rows, columns], is_upper[rows, columns])


def blob(width: float, height: float, angle: float, roundness: float) -> Patch:
    """A turned ellipse (roundness 2) or rather a rectangle (roundness 6 and more), with an edge of one pixel."""
    reach = int(np.ceil(np.hypot(width, height) / 2)) + 1
    down, right = np.mgrid[-reach:reach, -reach:reach] + 0.5
    along = np.abs(np.cos(angle) * right + np.sin(angle) * down) / (width / 2)
    across = np.abs(np.cos(angle) * down - np.sin(angle) * right) / (height / 2)
    radius = (along**roundness + across**roundness) ** (1 / roundness)
    return np.clip((1 - radius) * min(width, height) / 2 + 0.5, 0.0, 1.0)


def _sample(grid: NDArray[np.float64], rows: Patch, columns: Patch) -> Patch:
    """`grid` at fractional rows and columns: refined by a cubic filter, then linear between fine points; 0 outside."""
    matrix = _refinement(len(grid))
    fine = matrix @ grid @ matrix.T
    r, c = (np.clip((x + _MARGIN) * _FINE, 0.0, len(fine) - 1.001) for x in (rows, columns))
    r0, c0 = r.astype(np.intp), c.astype(np.intp)
    r -= r0
    c -= c0
    at = fine.ravel()
    corner = r0 * len(fine) + c0
    upper = at[corner] * (1 - c) + at[corner + 1] * c
    lower = at[corner + len(fine)] * (1 - c) + at[corner + len(fine) + 1] * c
    return upper + r * (lower - upper)


@lru_cache(maxsize=1)
def _refinement(n: int) -> NDArray[np.float64]:
    """(fine, n) weights of the cubic filter of Mitchell and Netravali, from a margin before n cells to one after."""
    fine = np.arange((n - 1 + 2 * _MARGIN) * _FINE + 1) / _FINE - _MARGIN
    x = np.abs(fine[:, None] - np.arange(n))
    near = (7 * x**3 - 12 * x**2 + 16 / 3) / 6
    far = (-7 / 3 * x**3 + 12 * x**2 - 20 * x + 32 / 3) / 6
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _extent(mask: NDArray[np.bool_]) -> tuple[slice, slice]:
    """Rows and columns of the smallest rectangle that holds the mask, and one pixel more for its soft edge."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return slice(max(0, rows[0] - 1), rows[-1] + 2), slice(max(0, columns[0] - 1), columns[-1] + 2)
