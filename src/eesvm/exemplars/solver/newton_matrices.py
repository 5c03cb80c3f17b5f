"""The matrices of Newton equations, I + z sum of x x' over some rows: solved directly, or inverted in the mean.

In: rows, and which of them count for which exemplar. Out: solutions, a preconditioner that all exemplars share,
matrices that follow the rows that count, and a copy of these rows where they are few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import lapack

from eesvm.exemplars.solver.problem import F64

_MANY_CONJUGATE, _FEW_CONJUGATE = 6, 3  # products that ask for a new mean matrix, and that one would leave
_INVERSE = 6  # times the cube of the dimensions that an inverse in float64 takes, in the time of float32
_SAMPLE, _SAMPLE_PER_COLUMN = 8192, 4  # rows, at least, are enough for it
_INVERTED = 600  # columns up to which an inverse is worth its time
_REFRESH = 0.05  # and a change of so much of its rows
_BLOCK_ROWS = 2048
_FEW_CHANGES, _MANY_CHANGES = 0.7, 4.0  # of the rows of a sum: at once, and before it is added up anew
_COPY = 35  # products with one vector, there and back, in the time in which a row is copied


class MeanMatrix:
    """The mean over exemplars of the sum of x x' over rows that count, from a sample of them, and how to solve for it.

    Parameters
    ----------
    rows : (P, d), all of them.
    bias_multiplier : what stands for the bias in each.
    guess : (d + 1, d + 1) what the sum is about, which is taken until it proves to be too far off.
    """

    def __init__(self, rows: NDArray[Any], bias_multiplier: float, guess: F64 | None = None) -> None:
        self.width = rows.shape[1] + 1
        self.step = max(1, len(rows) // max(_SAMPLE, _SAMPLE_PER_COLUMN * self.width))
        self.rows, self.bias_multiplier = rows[:: self.step], bias_multiplier
        self.shares = np.zeros(len(self.rows), dtype=np.float32)
        self.products, self.is_guess = guess, guess is not None
        self.stiffness = 0.0
        self.n_expected = 4  # products that conjugate gradients will take
        self.n_rows, self.n_extra = len(rows), 0  # products that a better inverse would have saved, about

    def follow(self, counts: NDArray[np.bool_], stiffness: float) -> None:
        """Be about as the matrices of these exemplars are, whose rows count as said, (m, P)."""
        shares = counts[:, :: self.step].mean(axis=0, dtype=np.float32)
        change = np.inf if self.is_guess else float(np.abs(shares - self.shares).sum())
        if self.products is None or (change > _REFRESH * float(self.shares.sum()) and self._is_worth_it):
            self.shares, self.n_extra, self.is_guess = shares, 0, False
            self.products = self._add_up()
        elif stiffness == self.stiffness:
            return
        self.stiffness = stiffness
        matrix = stiffness * self.products
        matrix[np.diag_indices(self.width)] += 1
        self._factors = linalg.cho_factor(matrix, overwrite_a=True, check_finite=False)
        if self.width <= _INVERTED:
            self._inverse = linalg.cho_solve(self._factors, np.eye(self.width), check_finite=False)

    def solve(self, targets: F64) -> F64:
        """(m, d + 1) x with (I + stiffness * products) x = target for each of these targets."""
        if self.width <= _INVERTED:
            return np.asarray(targets @ self._inverse)
        return np.asarray(linalg.cho_solve(self._factors, targets.T, check_finite=False).T)

    def note(self, n_products: int, n_all: int, n_exemplars: int) -> None:
        """Remember that so many products were taken at most, and in all, for so many exemplars."""
        self.n_expected = n_products
        self.n_extra += max(0, n_all - _FEW_CONJUGATE * n_exemplars)

    @property
    def _is_worth_it(self) -> bool:
        """Whether products that were too many have cost more than a new inverse does."""
        new = len(self.rows) * self.width**2 + _INVERSE * self.width**3
        return self.n_expected > _MANY_CONJUGATE and 4 * self.n_rows * self.width * self.n_extra > new

    def _add_up(self) -> F64:
        products = np.zeros((self.width, self.width))
        for start in range(0, len(self.rows), _BLOCK_ROWS):
            block = augmented(self.rows[start : start + _BLOCK_ROWS], self.bias_multiplier, np.float32)
            block *= np.sqrt(self.step * self.shares[start : start + _BLOCK_ROWS, None])
            products += block.T @ block
        return products


class OwnMatrices:
    """For each exemplar the sum of x x' over the rows that count, which follows them as they come and go."""

    def __init__(self, rows: NDArray[Any], bias_multiplier: float) -> None:
        self._rows, self._bias_multiplier = rows, bias_multiplier
        self._known: dict[int, _Sum] = {}

    def follow(self, j: int, counts: NDArray[np.bool_], dtype: np.dtype[Any]) -> NDArray[Any]:
        """(d + 1, d + 1) for exemplar j, whose rows count as said, (P,); it is not to be changed."""
        known, n = self._known.get(j), int(np.count_nonzero(counts))
        if known is not None and known.matrix.dtype != dtype:
            known = None
        changed = np.flatnonzero(counts if known is None else counts != known.counts)
        if known is None or len(changed) > _FEW_CHANGES * n or known.n_changed + len(changed) > _MANY_CHANGES * n:
            known = self._known[j] = _Sum(counts.copy(), self._products(np.flatnonzero(counts), dtype), 0)
            return known.matrix
        is_added = counts[changed]
        for some, add in ((changed[is_added], np.add), (changed[~is_added], np.subtract)):
            if len(some):
                add(known.matrix, self._products(some, dtype), out=known.matrix)
        known.counts[changed] = is_added
        known.n_changed += len(changed)
        return known.matrix

    def n_changed(self, members: NDArray[np.intp], counts: NDArray[np.bool_], n_counted: F64) -> float:
        """How many rows have come or gone, on average over exemplars; `counts` (m, P) marks those that count now."""
        found = [
            n if known is None else np.count_nonzero(own != known.counts)
            for own, n, known in zip(counts, n_counted, map(self._known.get, members.tolist()), strict=True)
        ]
        return float(np.mean(np.minimum(found, n_counted)))

    def _products(self, chosen: NDArray[np.intp], dtype: np.dtype[Any]) -> NDArray[Any]:
        rows = augmented(self._rows[chosen], self._bias_multiplier, dtype)
        return np.asarray(rows.T @ rows)


@dataclass
class _Sum:
    """A matrix, and the rows that it is the sum of."""

    counts: NDArray[np.bool_]  # (P,)
    matrix: NDArray[Any]  # (d + 1, d + 1)
    n_changed: int  # rows that have come or gone since it was added up at once


class CountedRows:
    """A copy of the rows that count for some exemplar, where these are so few that products with all take longer."""

    def __init__(self, rows: NDArray[Any], may_copy: bool = True) -> None:
        self._all = self.rows = rows
        self._may_copy = may_copy
        self._is_in = np.ones(len(rows), dtype=np.bool_)
        self._places: NDArray[np.intp] | None = None  # of the rows in the copy; None where there is none

    def follow(self, counts: NDArray[np.bool_], n_products: int) -> None:
        """Have all rows that count as said, (m, P), for about so many products with m vectors, there and back."""
        is_in = np.asarray(counts.any(axis=0))
        n, n_all, n_now = np.count_nonzero(is_in), len(self._all), len(self.rows)
        saved = n_products * len(counts) * ((n_now if self._has(is_in) else n_all) - n)
        if self._may_copy and saved > _COPY * n:
            self._is_in, self._places = is_in, np.flatnonzero(is_in)
            self.rows = self._all[self._places]
        elif not self._has(is_in):
            self._is_in, self._places, self.rows = np.ones(n_all, dtype=np.bool_), None, self._all

    def has_all(self, counts: NDArray[np.bool_]) -> bool:
        """Whether there is a copy, of all rows that count as said."""
        return self._places is not None and self._has(np.asarray(counts.any(axis=0)))

    def columns(self, values: NDArray[Any]) -> NDArray[Any]:
        """(m, n) what belongs to the copied rows, of (m, P)."""
        return values if self._places is None else values[:, self._places]

    def _has(self, is_in: NDArray[np.bool_]) -> bool:
        return not (is_in & ~self._is_in).any()


def augmented(rows: NDArray[Any], bias_multiplier: float, dtype: Any = np.float64) -> NDArray[Any]:
    """Rows with the constant that stands for the bias as a last column."""
    found = np.empty((len(rows), rows.shape[1] + 1), dtype=dtype)
    found[:, :-1], found[:, -1] = rows, bias_multiplier
    return found


def solve_system(products: NDArray[Any], stiffness: float, own: F64 | None, target: F64) -> F64 | None:
    """x with (I + stiffness * products + own own') x = target, as exact as the type of the products.

    None where rounding has left nothing that can be factorised.
    """
    n, dtype = len(target), products.dtype
    system, sides = products * dtype.type(stiffness), np.empty((1 if own is None else 2, n), dtype=dtype)
    system.ravel(order="K")[:: n + 1] += 1
    sides[0] = target
    if own is not None:
        sides[1] = own
    solve = lapack.sposv if dtype == np.float32 else lapack.dposv
    _, found, failure = solve(system.T, sides.T, overwrite_a=True, overwrite_b=True)
    if failure:
        return None
    found = found.astype(np.float64)
    if own is None:
        return np.asarray(found[:, 0])
    first, second = found.T  # one row more, which may be far longer than the others, is added exactly
    return np.asarray(first - (own @ first) / (1 + own @ second) * second)


def solve_directly(rows: F64, target: F64) -> F64:
    """x with (I + rows' rows) x = target."""
    if len(rows) == 0:
        return target
    is_wide = rows.shape[0] < rows.shape[1]
    products = (rows @ rows.T if is_wide else rows.T @ rows).astype(np.float64)
    products[np.diag_indices(len(products))] += 1
    factors = linalg.cho_factor(products, lower=True, overwrite_a=True, check_finite=False)
    if is_wide:
        return np.asarray(target - linalg.cho_solve(factors, rows @ target, check_finite=False) @ rows)
    return np.asarray(linalg.cho_solve(factors, target, check_finite=False))
