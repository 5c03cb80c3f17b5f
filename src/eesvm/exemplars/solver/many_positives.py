"""The squared hinge with many positives: Newton's method for one SVM that is trained again as rows come and go.

In: rows, of which the first are positives, and what is known from the time before. Out: weights, in place. The matrix
of a Newton step, I + 2 sum of C x x' over the rows that miss their margin, is kept from step to step and from time to
time, and only rows that have changed sides are added to it or taken out. So a step costs two products with all rows and
one solution, and each retraining a few steps. Of very many new rows that miss their margin most keep it after a step:
only the half that misses it by more is added, and when there are few all of them are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from eesvm.exemplars.rows import F32
from eesvm.exemplars.solver.newton_matrices import augmented
from eesvm.exemplars.solver.problem import F64, Objective

MAX_STEEPNESS = 1e6  # cost times squared length, summed over rows: beyond it a matrix needs more than float32

_MAX_STEPS = 60
_STEEP = 1e4  # sum of the eigenvalues of a matrix from which on it is factorised in float64; the least is 1
_SLOPE_LEFT, _MAX_TRIALS = 0.1, 12  # of the slope along a step, where the search for its length ends; at the latest
_MANY_NEW, _ADDED = 300, 0.5  # rows that miss their margin anew, from which on only a part of them is added
_FEW_CHANGES = 0.7  # rows that changed sides, of those that miss their margin, beyond which these are added up anew


class RunningSVM:
    """Weights, and a matrix, that follow the rows.

    Attributes
    ----------
    weights : (d + 1,) the last of them times `bias_multiplier` is the bias.
    has_failed : whether rounding forbade an answer: then there is none for later rows either.
    """

    def __init__(self, width: int, objective: Objective) -> None:
        self.objective = objective
        self.weights: F64 = np.zeros(width + 1)
        self._matrix: F64 = np.zeros((width + 1, width + 1))
        self.has_failed = False

    def fit(self, rows: F32, n_positives: int, is_counted: NDArray[np.bool_], tol: float) -> NDArray[Any] | None:
        """Optimise the weights until at most `tol` of the criterion could be saved; None where rounding forbids it.

        Parameters
        ----------
        rows : (n, d) positives, then negatives.
        n_positives : how many are positives.
        is_counted : (n,) which rows the matrix counts; in place.
        tol : a part of the criterion.

        Returns
        -------
        array : (n,) by how much each row misses its margin, negative where it keeps it.
        """
        if self.has_failed:
            return None
        slopes = self._optimised(rows, n_positives, is_counted, tol)
        if slopes is None:
            self.has_failed = True
            self._matrix[:] = 0
            is_counted[:] = False
        return slopes

    def _optimised(self, rows: F32, n_positives: int, is_counted: NDArray[np.bool_], tol: float) -> F32 | None:
        o = self.objective
        signs = np.where(np.arange(len(rows)) < n_positives, np.float32(1), np.float32(-1))
        costs = np.where(signs > 0, o.positive_cost, o.negative_cost).astype(np.float32)
        slopes = 1 - signs * self._scores(rows, self.weights)
        for _ in range(_MAX_STEPS):
            missing = np.maximum(slopes, 0)
            pulls = 2 * costs * signs * missing
            gradient = self.weights.copy()
            gradient[:-1] -= pulls @ rows
            gradient[-1] -= o.bias_multiplier * pulls.sum(dtype=np.float64)
            value = self.weights @ self.weights / 2 + (costs * missing).astype(np.float64) @ missing
            if gradient @ gradient / 2 <= tol * value:  # the criterion is at least as curved as |w|^2 / 2
                return slopes
            self._follow(rows, costs, missing, is_counted)
            step = self._solved(gradient)
            if step is None:
                return None
            direction = -step
            change = -signs * self._scores(rows, direction)
            length = self._length(slopes, change, costs, direction)
            self.weights += length * direction
            slopes += np.float32(length) * change
        return None

    def leave(self, rows: F32, cost: float) -> None:
        """Take counted rows out of the matrix.

        Parameters
        ----------
        rows : (n, d) that will be missing from now on.
        cost : of each.
        """
        if len(rows):
            self._matrix -= self._products(rows, np.full(len(rows), cost))

    def _scores(self, rows: F32, weights: F64) -> F32:
        narrow = weights.astype(np.float32)
        return rows @ narrow[:-1] + narrow[-1] * np.float32(self.objective.bias_multiplier)

    def _follow(self, rows: F32, costs: F32, missing: F32, is_counted: NDArray[np.bool_]) -> None:
        """Count the rows that miss their margin, and no others; of many new ones those that miss it most."""
        is_wanted = missing > 0
        new = np.flatnonzero(is_wanted & ~is_counted)
        n_left_out = len(new) - max(_MANY_NEW, int(_ADDED * len(new)))
        if n_left_out > 0:
            is_wanted[new[np.argpartition(missing[new], n_left_out)[:n_left_out]]] = False
        changed = np.flatnonzero(is_wanted != is_counted)
        if len(changed) > _FEW_CHANGES * np.count_nonzero(is_wanted):
            self._matrix[:] = 0
            is_counted[:] = False
            changed = np.flatnonzero(is_wanted)
        is_added = is_wanted[changed]
        for some, sign in ((changed[is_added], 1), (changed[~is_added], -1)):
            if len(some):
                self._matrix += sign * self._products(rows[some], costs[some])
        is_counted[:] = is_wanted

    def _products(self, rows: F32, costs: NDArray[Any]) -> F32:
        """2 sum of C x x'."""
        scaled = augmented(rows, self.objective.bias_multiplier, np.float32)
        scaled *= np.sqrt(2 * costs).astype(np.float32)[:, None]
        return np.asarray(scaled.T @ scaled)

    def _solved(self, gradient: F64) -> F64 | None:
        """A Newton step; None where rounding has left the matrix without a factorisation.

        Unless it is steep, float32 is enough for a direction: gradient and line search are exact.
        """
        dtype = np.dtype(np.float32 if np.trace(self._matrix) < _STEEP else np.float64)
        system: NDArray[Any] = self._matrix.astype(dtype)
        system[np.diag_indices_from(system)] += dtype.type(1)
        try:
            factors = linalg.cho_factor(system, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            return None
        return np.asarray(linalg.cho_solve(factors, gradient.astype(dtype), check_finite=False), dtype=np.float64)

    def _length(self, slopes: F32, change: F32, costs: F32, direction: F64) -> float:
        """Where the criterion is about lowest along a direction; its slope there is a sum over rows."""
        weighted = 2 * costs * change
        mixed, square = float(self.weights @ direction), float(direction @ direction)

        def slope(t: float) -> float:
            return mixed + t * square + float(np.maximum(slopes + np.float32(t) * change, 0) @ weighted)

        first = at_low = slope(0.0)
        low, high, at_high, t = 0.0, np.inf, 0.0, 1.0
        for _ in range(_MAX_TRIALS):
            value = slope(t)
            if abs(value) <= _SLOPE_LEFT * abs(first):
                break
            if value > 0:
                high, at_high = t, value
            else:
                low, at_low = t, value
            t = 2 * t if high == np.inf else low + (high - low) * min(max(at_low / (at_low - at_high), 0.1), 0.9)
        return t
