"""Masks of objects, from and to the ways in which files hold them.

In: polygons, COCO run lengths (plain or as text), images whose pixels number the objects. Out: (height, width)
boolean arrays, and back to run lengths. Polygons are drawn exactly as COCO draws them: inside by the even-odd rule,
several polygons of one object are united. Run lengths go down the columns and start with a run outside. Sizes are
checked before memory is taken.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm._support.validation import InputError
from eesvm.images.files import MAX_PIXELS, read_index_image

Mask = NDArray[np.bool_]

VOID = 255  # the number of the pixels that nobody labelled, in an image whose pixels number the objects

_UPSAMPLING = 5  # COCO draws outlines on a grid five times as fine
_MAX_OUTLINE = 20_000_000  # points on that grid: an outline that leaves the image by far is refused, not drawn
_DIGIT_BITS = 5  # of a character in COCO's text form; the sixth bit says that another one follows


def polygons_to_mask(polygons: Sequence[ArrayLike], height: int, width: int) -> Mask:
    """(height, width) the union of polygons; equal to COCO's own drawing.

    Parameters
    ----------
    polygons : each x1, y1, x2, y2, ... or (n, 2), in pixels.
    height, width : of the mask.
    """
    _check_size(height, width)
    mask = np.zeros((height, width), dtype=bool)
    for polygon in polygons:
        mask |= _draw(check_polygon(polygon), height, width)
    return mask


def check_polygon(polygon: ArrayLike) -> NDArray[np.float64]:
    """(n, 2) points of a polygon with at least three corners that can be drawn."""
    try:
        points = np.asarray(polygon, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError("a polygon must be a list of numbers") from error
    if points.size % 2 or points.size < 6 or points.ndim > 2 or (points.ndim == 2 and points.shape[1] != 2):
        raise InputError(f"a polygon must be x, y of at least three points, got {points.size} numbers")
    points = points.reshape(-1, 2)
    largest = float(np.abs(points).max())
    if not largest < math.inf:
        raise InputError("a polygon must hold finite numbers")
    if largest > _MAX_OUTLINE:
        raise InputError(f"a polygon reaches to {largest:g}, too far outside any image")
    if len(points) * (2 * largest * _UPSAMPLING + 2) > _MAX_OUTLINE:  # a bound that spares nearly all the exact length
        length = np.abs(points - np.roll(points, -1, axis=0)).max(axis=1).sum()
        if length * _UPSAMPLING + 2 * len(points) > _MAX_OUTLINE:
            raise InputError(f"a polygon has an outline of {length:.0f} pixels, too long to draw")
    return points


def rle_to_mask(rle: Mapping[str, Any]) -> Mask:
    """The mask of a COCO `{"size": [height, width], "counts": [...] or "text"}`."""
    return _fill(*check_rle(rle))


def check_rle(rle: Mapping[str, Any]) -> tuple[NDArray[np.int64], int, int]:
    """Runs, height and width of a COCO run length object, if they fit each other and the size is acceptable."""
    height, width = _rle_size(rle)
    counts = rle["counts"]
    runs = _text_to_runs(counts) if isinstance(counts, str | bytes) else _check_runs(counts)
    if int(runs.sum()) != height * width:
        raise InputError(f"the run lengths add up to {int(runs.sum())}, not to {height} x {width} pixels")
    return runs, height, width


def mask_to_rle(mask: Mask, compress: bool = True) -> dict[str, Any]:
    """The COCO run lengths of a mask: a dictionary with `size` and `counts`.

    Parameters
    ----------
    mask : (height, width) bool.
    compress : counts as text; False gives a list of numbers.
    """
    pixels = check_mask(mask)
    columns = pixels.T.ravel()
    changes = np.flatnonzero(columns[1:] != columns[:-1]) + 1
    edges = np.concatenate(([0], changes, [columns.size]))
    runs = np.diff(edges)
    if columns[0]:
        runs = np.concatenate(([0], runs))
    height, width = pixels.shape
    return {"size": [height, width], "counts": _runs_to_text(runs) if compress else runs.tolist()}


def index_mask(path: str | os.PathLike[str], index: int) -> Mask:
    """(height, width) bool, where the pixels of an image carry a number.

    Parameters
    ----------
    path : of an image whose pixels number objects or classes, see `read_index_image`.
    index : the number.
    """
    return read_index_image(path) == index


def check_mask(mask: Any) -> Mask:
    """`mask` as a boolean array with two dimensions and at least one pixel."""
    pixels = np.asarray(mask)
    if pixels.ndim != 2 or not pixels.size or pixels.dtype.kind not in "bui":
        raise InputError(f"a mask must be a (height, width) array of booleans, got {pixels.dtype} {pixels.shape}")
    return pixels.astype(bool, copy=False)


def mask_box(mask: Mask) -> NDArray[np.float64] | None:
    """The smallest half-open box around a mask; None where it is empty."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return None
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], dtype=np.float64)


def _check_size(height: int, width: int) -> None:
    if height < 1 or width < 1:
        raise InputError(f"a mask must have at least one pixel, got {height} x {width}")
    if height * width > MAX_PIXELS:
        raise InputError(f"a mask of {height} x {width} pixels is larger than the limit of {MAX_PIXELS:,}")


def _rle_size(rle: Mapping[str, Any]) -> tuple[int, int]:
    if not isinstance(rle, Mapping) or "counts" not in rle or "size" not in rle:
        raise InputError("run lengths must be an object with `size` and `counts`")
    size = rle["size"]
    if not (isinstance(size, Sequence) and len(size) == 2 and all(type(side) is int for side in size)):
        raise InputError(f"the size of run lengths must be [height, width], got {str(size)[:50]}")
    _check_size(*size)
    return size[0], size[1]


def _fill(runs: NDArray[np.int64], height: int, width: int) -> Mask:
    """The mask of runs that go down the columns, the first of them outside."""
    values = np.zeros(len(runs), dtype=bool)
    values[1::2] = True
    return np.repeat(values, runs).reshape(width, height).T


def _draw(points: NDArray[np.float64], height: int, width: int) -> Mask:
    """One polygon as COCO draws it: crossings of its outline with the centres of the columns, then even-odd."""
    x, y = _outline(points)
    steps = np.flatnonzero(x[1:] != x[:-1]) + 1
    column = (np.minimum(x[steps], x[steps - 1]) + 0.5) / _UPSAMPLING - 0.5
    row = np.clip((np.minimum(y[steps], y[steps - 1]) + 0.5) / _UPSAMPLING - 0.5, 0, height)
    at_centre = (column == np.floor(column)) & (column >= 0) & (column <= width - 1)
    crossings = column[at_centre].astype(np.int64) * height + np.ceil(row[at_centre]).astype(np.int64)
    edges = np.concatenate(([0], np.sort(crossings), [height * width]))
    return _fill(np.diff(edges), height, width)


def _outline(points: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All points of the fine grid along the closed outline, edge by edge, both ends of each edge included."""
    corners = np.trunc(_UPSAMPLING * points + 0.5).astype(np.int64)  # as a conversion to int in C
    start, end = corners, np.roll(corners, -1, axis=0)
    length = np.abs(end - start)
    start, end, length = (values[length.any(axis=1)] for values in (start, end, length))
    n_points = length.max(axis=1, initial=0) + 1
    edge = np.repeat(np.arange(len(n_points)), n_points)
    step = np.arange(len(edge)) - np.repeat(np.cumsum(n_points) - n_points, n_points)
    # An edge is walked along its longer side, always in the direction in which that side grows: the rounding of the
    # other side must not depend on the direction in which the polygon is given.
    along = np.where(length[:, 0] >= length[:, 1], 0, 1)
    rows = np.arange(len(along))
    is_flipped = start[rows, along] > end[rows, along]
    origin = np.where(is_flipped[:, None], end, start)
    across = 1 - along
    rise = np.where(is_flipped, start[rows, across] - end[rows, across], end[rows, across] - start[rows, across])
    slope = rise / np.maximum(length.max(axis=1, initial=0), 1)
    step = np.where(is_flipped[edge], n_points[edge] - 1 - step, step)
    first = origin[rows, along][edge] + step
    second = np.trunc(origin[rows, across][edge] + slope[edge] * step + 0.5).astype(np.int64)
    is_wide = along[edge] == 0
    return np.where(is_wide, first, second), np.where(is_wide, second, first)


def _check_runs(counts: Any) -> NDArray[np.int64]:
    """Plain run lengths: whole numbers, none below zero."""
    if not isinstance(counts, Sequence | np.ndarray) or not len(counts):
        raise InputError("run lengths must be a list of whole numbers")
    try:
        runs = np.asarray(counts)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError("run lengths must be a list of whole numbers") from error
    if runs.ndim != 1 or runs.dtype.kind not in "iu":
        raise InputError("run lengths must be a list of whole numbers")
    if runs.min() < 0 or runs.max() > MAX_PIXELS:
        raise InputError(f"run lengths must lie between 0 and {MAX_PIXELS}")
    return runs.astype(np.int64)


def _text_to_runs(text: str | bytes) -> NDArray[np.int64]:
    """COCO's text form: little-endian digits of five bits; from the fourth on, differences to the last but one."""
    try:
        codes = np.frombuffer(text.encode("ascii") if isinstance(text, str) else text, dtype=np.uint8)
    except UnicodeEncodeError as error:
        raise InputError("the text of run lengths holds characters that do not belong there") from error
    digits = codes.astype(np.int64) - 48
    if not len(digits) or digits.min() < 0 or digits.max() > 63:
        raise InputError("the text of run lengths holds characters that do not belong there")
    ends = np.flatnonzero(digits & 32 == 0)
    if not len(ends) or ends[-1] != len(digits) - 1:
        raise InputError("the text of run lengths is cut off")
    starts = np.concatenate(([0], ends[:-1] + 1))
    n_digits = ends - starts + 1
    if n_digits.max() > 8:  # 40 bits; no run of an acceptable mask needs more
        raise InputError("the text of run lengths holds a number that is too large")
    shift = _DIGIT_BITS * (np.arange(len(digits)) - np.repeat(starts, n_digits))
    numbers = np.add.reduceat((digits & 31) << shift, starts)
    is_negative = digits[ends] & 16 != 0
    numbers = numbers - (is_negative.astype(np.int64) << (_DIGIT_BITS * n_digits))
    numbers[1::2] = np.cumsum(numbers[1::2])
    numbers[2::2] = np.cumsum(numbers[2::2])
    return _check_runs(numbers)


def _runs_to_text(runs: NDArray[np.int64]) -> str:
    numbers = runs.astype(np.int64)
    numbers[3:] = runs[3:] - runs[1:-2]
    text = []
    for number in numbers.tolist():
        while True:
            digit, number = number & 31, number >> _DIGIT_BITS
            is_last = number == (-1 if digit & 16 else 0)
            text.append(digit + 48 + (0 if is_last else 32))
            if is_last:
                break
    return bytes(text).decode("ascii")
