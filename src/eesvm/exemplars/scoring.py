"""Scores of windows under exemplars: one matrix product, in blocks, in float32.

In: windows as an array or `Rows`, weights (E, d) and biases (E,). Out: (n, E) scores, in memory, in an array of the
caller's, or in a `.npy` file that appears whole or not at all and is mapped, not read.
The biases are added while a block of scores is still in the cache, so the rate is that of the matrix product alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from eesvm._support.files import atomic_write
from eesvm._support.threads import product_threads
from eesvm._support.validation import InputError, check_finite, check_number
from eesvm.exemplars.rows import F32, Rows, as_float32, as_rows, checked_blocks

_BLOCK_BYTES = 1 << 22  # of scores that are computed together
_BLOCK_ROWS = 1 << 12  # at most: they may be copies


def score_windows(
    windows: Any,
    weights: Any,
    biases: Any,
    out: np.ndarray | str | os.PathLike[str] | None = None,
    *,
    block_rows: int | None = None,
    n_jobs: int | None = None,
) -> F32:
    """(n, E) scores `windows @ weights.T + biases`.

    Parameters
    ----------
    windows : (n, d) array or `Rows`.
    weights : (E, d), one row per exemplar.
    biases : (E,) numbers.
    out : a float32 array (n, E) to write into, such as a memory map; or the path of a `.npy` file to write, of which a
        read-only memory map is returned. None is a new array.
    block_rows : windows scored together; None is what keeps a block of scores in the cache.
    n_jobs : threads of the matrix product, None for one per core.
    """
    weights = as_float32(weights, "weights")
    offsets = check_biases(biases, len(weights))
    rows = as_rows(windows, "windows")
    if rows.shape[1] != weights.shape[1]:
        raise InputError(f"`windows` must have {weights.shape[1]} columns, as `weights` have, got {rows.shape[1]}")
    n_rows = rows_of_a_block(len(weights))
    if block_rows is not None:
        n_rows = int(check_number(block_rows, "block_rows", minimum=1, integer=True))
    shape = rows.shape[0], len(weights)
    with product_threads(n_jobs):
        if isinstance(out, str | os.PathLike):
            return _score_into_file(rows, weights, offsets, n_rows, out)
        scores = np.empty(shape, dtype=np.float32) if out is None else _checked_out(out, shape)
        for start, block in checked_blocks(rows, n_rows, "windows"):
            _score(start, block, weights, offsets, scores[start : start + len(block)])
    return scores


def rows_of_a_block(n_exemplars: int) -> int:
    """Windows that are scored together unless `block_rows` says otherwise."""
    return max(64, min(_BLOCK_BYTES // (4 * max(n_exemplars, 1)), _BLOCK_ROWS))


def check_biases(values: Any, n: int) -> F32:
    """`n` finite numbers as float32.

    Parameters
    ----------
    values : (n,) numbers.
    n : how many there must be.
    """
    try:
        biases = np.array(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError("`biases` must hold numbers") from error
    if biases.shape != (n,):
        raise InputError(f"`biases` must have shape ({n},), got {biases.shape}")
    check_finite(biases, "biases")
    return biases


def _score(start: int, block: F32, weights: F32, biases: F32, out: F32) -> None:
    with np.errstate(invalid="ignore", over="ignore"):
        np.matmul(block, weights.T, out=out)
        out += biases
    is_finite = np.isfinite(out[:, :1])  # NaN and infinity go into every score of their window, so one column tells
    if not is_finite.all():
        row = start + int(np.argmin(is_finite.all(axis=1)))
        raise InputError(f"`windows` must hold finite numbers within the range of float32, which row {row} does not")


def _score_into_file(rows: Rows, weights: F32, biases: F32, n_rows: int, path: str | os.PathLike[str]) -> F32:
    with atomic_write(path) as handle:
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows.shape[0], len(weights))}
        np.lib.format.write_array_header_1_0(handle, header)
        for scores in _score_blocks(rows, weights, biases, n_rows):
            handle.write(scores.astype("<f4", copy=False).data)
    return np.load(path, mmap_mode="r" if rows.shape[0] and len(weights) else None, allow_pickle=False)


def _score_blocks(rows: Rows, weights: F32, biases: F32, n_rows: int) -> Iterator[F32]:
    for start, block in checked_blocks(rows, n_rows, "windows"):
        scores = np.empty((len(block), len(weights)), dtype=np.float32)
        _score(start, block, weights, biases, scores)
        yield scores


def _checked_out(out: np.ndarray, shape: tuple[int, int]) -> F32:
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != np.float32 or not out.flags.writeable:
        raise InputError(f"`out` must be a writeable float32 array of shape {shape}, or the path of a file")
    return out
