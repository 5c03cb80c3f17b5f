"""Recognising a photograph under another name: a code of 120 bytes that survives re-encoding and resizing.

In: RGB pixels. Out: `picture_code`, which says where a coarse grey version of the picture becomes brighter or darker,
and `same_pictures`, the pairs of two collections whose codes nearly agree. No picture can be made from a code.
A JPEG of quality 30 or of half the size keeps its code almost, and two shots of one still scene have nearly the same; a
crop, a turned or a mirrored picture is another one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm._support.validation import InputError

CODE_VERSION = 1  # to be raised when the same pixels get another code
CODE_BYTES = 120
MOST_DISTANCE = 0.3  # re-encoded photographs stay below it, but for one in 600; different ones lie above 0.36

_CELLS = 16  # of the coarse version, along each side
_STEP = 1.0  # grey levels; noise of an encoder stays below it in a cell
_LEAST_STEPS = 24  # that a picture must have to be recognised: a blank one is like any other
_BLOCK = 2048  # codes compared at once
_GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32)

Codes = NDArray[np.uint8]


def picture_code(pixels: NDArray[np.uint8]) -> Codes:
    """(120,) code of an RGB picture (height, width, 3)."""
    coarse = _coarse(np.asarray(pixels))
    steps = np.concatenate([np.diff(coarse, axis=1).ravel(), np.diff(coarse, axis=0).ravel()])
    return np.packbits(np.concatenate([steps > _STEP, steps < -_STEP]))


def same_pictures(one: ArrayLike, other: ArrayLike, most: float = MOST_DISTANCE) -> list[tuple[int, int]]:
    """Rows of two tables of codes, (n, 120) and (m, 120), that are of the same picture.

    The distance of two codes is the share of their steps that only one of them has; pairs of at most `most` are given,
    in the order of the first table. A picture with next to no steps is like no other.
    """
    first, second = (_steps(codes) for codes in (one, other))
    pairs = []
    for start in range(0, len(first), _BLOCK):
        part = first[start : start + _BLOCK]
        common = part @ second.T
        n_steps = part.sum(axis=1)[:, None], second.sum(axis=1)[None, :]
        union = n_steps[0] + n_steps[1] - common
        is_same = (union - common <= most * union) & (np.minimum(*n_steps) >= _LEAST_STEPS)
        pairs += [(start + int(i), int(j)) for i, j in np.argwhere(is_same)]
    return pairs


def _steps(codes: ArrayLike) -> NDArray[np.float32]:
    table = np.asarray(codes, dtype=np.uint8).reshape(-1, CODE_BYTES)
    return np.unpackbits(table, axis=1).astype(np.float32)


def _coarse(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(16, 16) mean grey levels of cells of equal size, which may share pixels."""
    if pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise InputError(f"`pixels` must be of shape (height, width, 3), got {pixels.shape}")
    grey = pixels.astype(np.float32) @ _GREY
    return _shares(pixels.shape[0]) @ grey @ _shares(pixels.shape[1]).T


def _shares(n: int) -> NDArray[np.float32]:
    """(16, n) share that each of `n` pixels has in each cell; rows add up to 1."""
    edges = np.linspace(0.0, n, _CELLS + 1)
    low, high = np.maximum(edges[:-1, None], np.arange(n)), np.minimum(edges[1:, None], np.arange(1, n + 1))
    return (np.maximum(0.0, high - low) * _CELLS / n).astype(np.float32)
