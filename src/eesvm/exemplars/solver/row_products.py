"""Products of all rows with the weights or the duals of a few exemplars, faster than general products of matrices.

In: rows (P, d), and for each of m exemplars weights (m, d) or values (m, P). Out: scores (m, P) or sums (m, d).
A general product packs its operands before it multiplies them, which takes longer than the rest where one of them has
only a few rows. Here rows are read from memory once, some of them at a time, and used for all exemplars while they are
near the processor. What an exemplar gets does not depend on its company as long as that is small.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import kernel

_FEW_SCORED, _FEW_SUMMED = range(2, 9), range(2, 7)  # exemplars for which loops were faster
_BLOCK_ROWS = 32
_REASSOCIATE = {"reassoc", "contract", "nsz"}  # sums in any order


def scores_of(rows: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    """(m, P) products of rows with weights."""
    if len(weights) not in _FEW_SCORED:
        return np.asarray(weights @ rows.T)
    scores = np.empty((len(weights), len(rows)), dtype=rows.dtype)
    _score(rows, np.ascontiguousarray(weights), scores)
    return scores


def sums_of(values: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """(m, d) rows times values."""
    if len(values) not in _FEW_SUMMED:
        return np.asarray(values @ rows)
    return np.asarray(_sum(values, rows))


@kernel(fastmath=_REASSOCIATE)
def _score(rows, weights, scores):  # type: ignore[no-untyped-def]
    """Fill in the scores, of two rows and two exemplars at a time."""
    (n, d), m, zero = rows.shape, len(weights), rows.dtype.type(0)
    for start in range(0, n, _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, n)
        for j in range(0, m, 2):
            one, other = weights[j], weights[min(j + 1, m - 1)]
            for i in range(start, stop, 2):
                row, next_row = rows[i], rows[min(i + 1, n - 1)]
                a, b, p, q = zero, zero, zero, zero
                for k in range(d):
                    a += row[k] * one[k]
                    b += row[k] * other[k]
                    p += next_row[k] * one[k]
                    q += next_row[k] * other[k]
                scores[j, i] = a
                if i + 1 < n:
                    scores[j, i + 1] = p
                if j + 1 < m:
                    scores[j + 1, i] = b
                    if i + 1 < n:
                        scores[j + 1, i + 1] = q


@kernel(fastmath=_REASSOCIATE)
def _sum(values, rows):  # type: ignore[no-untyped-def]
    """Add up four rows at a time."""
    m, (n, d) = len(values), rows.shape
    out, n_whole = np.zeros((m, d), dtype=rows.dtype), n - n % 4
    for start in range(0, n_whole, _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, n_whole)
        for j in range(m):
            total = out[j]
            for i in range(start, stop, 4):
                first, second, third, fourth = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
                a, b, p, q = values[j, i], values[j, i + 1], values[j, i + 2], values[j, i + 3]
                for k in range(d):
                    total[k] += a * first[k] + b * second[k] + p * third[k] + q * fourth[k]
    for j in range(m):
        total = out[j]
        for i in range(n_whole, n):
            for k in range(d):
                total[k] += values[j, i] * rows[i, k]
    return out
