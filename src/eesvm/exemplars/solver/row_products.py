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

# Exemplars for which loops were faster: in columns from `_WIDE` on, and in fewer.
_FEW, _FEW_IF_NARROW, _WIDE = range(2, 33), range(2, 11), 96
_BLOCK_ROWS = 16
_REASSOCIATE = {"reassoc", "contract", "nsz"}  # sums in any order


def scores_of(rows: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    """(m, P) products of rows with weights."""
    if not _is_for_loops(len(weights), rows.shape[1]):
        return np.asarray(weights @ rows.T)
    scores = np.empty((len(weights), len(rows)), dtype=rows.dtype)
    _score(rows, np.ascontiguousarray(weights), scores)
    return scores


def sums_of(values: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """(m, d) rows times values."""
    if not _is_for_loops(len(values), rows.shape[1]):
        return np.asarray(values @ rows)
    return np.asarray(_sum(values, rows))


def _is_for_loops(n_exemplars: int, width: int) -> bool:
    return n_exemplars in (_FEW if width >= _WIDE else _FEW_IF_NARROW)


@kernel(fastmath=_REASSOCIATE)
def _score(rows, weights, scores):  # type: ignore[no-untyped-def]
    """Fill in the scores, of four rows and two exemplars at a time: as many sums as keep the processor busy.

    The last of either are taken more than once where there are fewer, and come out the same.
    """
    (n, d), m, zero = rows.shape, len(weights), rows.dtype.type(0)
    for start in range(0, n, _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, n)
        for j in range(0, m, 2):
            next_j = min(j + 1, m - 1)
            one, other = weights[j], weights[next_j]
            for i in range(start, stop, 4):
                i1, i2, i3 = min(i + 1, n - 1), min(i + 2, n - 1), min(i + 3, n - 1)
                first, second, third, fourth = rows[i], rows[i1], rows[i2], rows[i3]
                a, b, c, e, p, q, r, s = zero, zero, zero, zero, zero, zero, zero, zero
                for k in range(d):
                    a += first[k] * one[k]
                    b += second[k] * one[k]
                    c += third[k] * one[k]
                    e += fourth[k] * one[k]
                    p += first[k] * other[k]
                    q += second[k] * other[k]
                    r += third[k] * other[k]
                    s += fourth[k] * other[k]
                scores[j, i], scores[j, i1], scores[j, i2], scores[j, i3] = a, b, c, e
                scores[next_j, i], scores[next_j, i1], scores[next_j, i2], scores[next_j, i3] = p, q, r, s


@kernel(fastmath=_REASSOCIATE)
def _sum(values, rows):  # type: ignore[no-untyped-def]
    """Add up four rows for three exemplars at a time; the output is padded to a multiple of three rows, then cut."""
    m, (n, d) = len(values), rows.shape
    out, n_whole = np.zeros((m + -m % 3, d), dtype=rows.dtype), n - n % 4
    for start in range(0, n_whole, _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, n_whole)
        for j in range(0, m, 3):
            total, next_total, last_total = out[j], out[j + 1], out[j + 2]
            one, other, last = values[j], values[min(j + 1, m - 1)], values[min(j + 2, m - 1)]
            for i in range(start, stop, 4):
                first, second, third, fourth = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
                a, b, c, e = one[i], one[i + 1], one[i + 2], one[i + 3]
                p, q, r, s = other[i], other[i + 1], other[i + 2], other[i + 3]
                t, u, v, w = last[i], last[i + 1], last[i + 2], last[i + 3]
                for k in range(d):
                    x1, x2, x3, x4 = first[k], second[k], third[k], fourth[k]
                    total[k] += a * x1 + b * x2 + c * x3 + e * x4
                    next_total[k] += p * x1 + q * x2 + r * x3 + s * x4
                    last_total[k] += t * x1 + u * x2 + v * x3 + w * x4
    for j in range(m):
        total = out[j]
        for i in range(n_whole, n):
            for k in range(d):
                total[k] += values[j, i] * rows[i, k]
    return out[:m]
