"""The end of Newton's way for the hinge and one exemplar: the same steps, on the few rows that are near its margin.

In: the rows that may still change sides, where the others rest, and weights to start from. Out: duals of these rows,
weights, and how stiff the last stage was; the rows that rest are looked at again afterwards.

Once the rows between their bounds are about as many as dimensions, a step changes a few of them only, and many steps
are left. Weights are then written as w = w0 - sum of a_i y_i over the nearest rows, the positive among them as -x_j,
and a step needs nothing but the products K of rows with each other, which are computed once: with r = a - v,

    (K + 1/z)_FF p = -(K r)_F,       a changes by -r - p       F: rows between their bounds

is the Newton step of `newton`. What the weights have beyond rows and w0 is one more row, whose dual is always 0. After
each stage those of the other candidates that violate their condition join.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from eesvm._support.compile import inner, kernel
from eesvm.exemplars.solver.problem import F64, Objective

LEAVE = 0.1  # of the duality gap that the gradient of a stage may leave behind
SURPLUS = 5.0  # times smaller than `tol` is the duality gap that is aimed at
CANDIDATES, NEAREST, MOST_NEAR = 16.0, 2.5, 4.0  # times the dimensions: candidates, those to begin with, and at most
MATRICES = 30  # of (d + 1, d + 1) in float64 that a descent holds, about
_STIFFER = 4.0  # times, from stage to stage
_MAX_STAGES, _MAX_STEPS = 30, 60
_JOINING, _LEAST_JOINING = 0.5, 32  # times the dimensions, at least: rows that join between two stages
_REASSOCIATE = {"reassoc", "contract", "nsz"}  # sums in any order
_HEARD = 0.25  # of the tolerance: violations up to this are none
_OWN, _ELSE = 0, 1  # places of the positive, and of what no row stands for


@dataclass
class Candidates:
    """Rows near the margin of one exemplar, the nearest first."""

    rows: NDArray[Any]  # (m, d + 1)
    targets: F64  # (m,)
    duals: F64  # (m,), and what they are in the stage before
    base: F64
    positive: F64  # (d + 1,)
    own: tuple[float, float, float]  # its target, its dual, and that of the stage before
    gradient: F64  # (d + 1,) weights less what duals add up to
    rest: F64  # (d + 1,) weights that the rows which are not here add up to
    loss: float  # of those rows


@dataclass
class Stiffness:
    """How stiff a stage is, and how stiff stages can become."""

    now: float
    own: float  # times, for the positive
    most: float


@dataclass
class Near:
    """The answer."""

    duals: F64  # (m,)
    own: float
    weights: F64  # (d + 1,)
    mattered: NDArray[np.intp]  # candidates with duals, and those that have joined


def nearest(
    slopes: NDArray[Any], is_between: NDArray[np.bool_], known: NDArray[np.intp], width: int
) -> NDArray[np.intp]:
    """Rows that are candidates: those between their bounds first, then those that mattered before, then by distance."""
    distances, n = np.abs(slopes), int(CANDIDATES * width)
    distances[known] = 0
    distances[is_between] = -1
    rows = np.arange(len(distances)) if n >= len(distances) else np.argpartition(distances, n)[:n]
    rows = rows[np.argsort(distances[rows], kind="stable")]
    return np.asarray(rows[: np.searchsorted(distances[rows], np.inf)])  # without those of the exemplar's own group


def descend_near(found: Candidates, stiffness: Stiffness, objective: Objective, longest: float, tol: float) -> Near:
    """Newton steps, stage by stage, until the duality gap and the violations are small enough; stiffness changes."""
    descent = _Descent(found, objective, longest, tol)
    for _ in range(_MAX_STAGES):
        is_finished, is_done = descent.stage(stiffness)
        n_joined, worst = descent.join()
        if is_done and n_joined == 0:
            break
        if is_finished and max(tol / 4, worst) < descent.off:
            stiffness.now = min(_STIFFER * stiffness.now, stiffness.most)
        if n_joined == 0:
            descent.refresh()
    found.duals[descent.inside[: len(descent.duals) - 2]] = descent.duals[2:]
    mattered = np.union1d(np.flatnonzero(found.duals), descent.inside[descent.n_first :])
    return Near(found.duals, float(descent.duals[_OWN]), descent.weights, mattered)


class _Descent:
    """Values, slopes and duals of the positive, of what no row stands for, and of the rows that have joined."""

    def __init__(self, found: Candidates, objective: Objective, longest: float, tol: float) -> None:
        self.found, self.longest, self.tol = found, longest, tol
        self.cost, self.off, self.n, width = objective.negative_cost, math.inf, 2, len(found.rest)
        self.n_most = 2 + min(len(found.targets), int(MOST_NEAR * width))
        self.rows, self.products = np.empty((self.n_most, width)), np.empty((self.n_most, self.n_most))
        self.cap, own_cap = float(np.float32(self.cost)), float(np.float32(objective.positive_cost))
        target, own, own_base = found.own
        self.rows[:2] = -found.positive, found.gradient
        self.products[:2, :2] = self.rows[:2] @ self.rows[:2].T
        self.targets, self.caps = np.array([target, 0.0]), np.array([own_cap, 0.0])
        self.costs, self.base = np.array([objective.positive_cost, 0.0]), np.array([own_base, 0.0])
        self.values = np.array([own, -1.0])
        self.inside, self.is_inside = np.empty(0, dtype=np.intp), np.zeros(len(found.targets), dtype=np.bool_)
        self.rest = _minus_rows(found.rest, found.rows, found.duals)
        self.n_first = min(self.n_most - 2, int(NEAREST * width))
        self._take(np.arange(self.n_first))

    @property
    def weights(self) -> F64:
        return np.asarray(_minus_rows(self.rest, self.rows, self.values))

    def stage(self, stiffness: Stiffness) -> tuple[bool, bool]:
        """Newton steps with one stiffness: whether its gradient is small enough, and whether everything is."""
        stiff = np.full(self.n, stiffness.now)
        stiff[_OWN] *= stiffness.own
        self.duals, is_free = np.empty(self.n), np.empty(self.n, dtype=np.bool_)
        is_finished = is_done = False
        for _ in range(_MAX_STEPS):
            facts = _look(self.slopes, self.base, stiff, self.caps, self.costs, self.duals, is_free)
            apart = self.values - self.duals
            pulled = _product(self.products, apart)
            is_finished, is_done = self._leaves(facts, max(float(apart @ pulled), 0.0))
            if is_finished:
                break
            self._step(stiff, apart, pulled, np.flatnonzero(is_free))
        self.base = self.duals
        return is_finished, is_done

    def join(self) -> tuple[int, float]:
        """Take in candidates that violate their condition; how many, and the worst violation if there were any."""
        found, weights = self.found, self.weights
        slopes = found.targets + found.rows @ weights.astype(found.rows.dtype)
        violation = np.where(found.duals > 0, -slopes, slopes)
        violation[self.is_inside] = 0
        fresh = np.flatnonzero(violation > _HEARD * self.tol)
        n_most = min(self.n_most - self.n, max(_LEAST_JOINING, int(_JOINING * len(weights))))
        if len(fresh) > n_most:
            fresh = np.sort(fresh[np.argsort(-violation[fresh], kind="stable")[:n_most]])
        if len(fresh) == 0:
            return 0, 0.0
        self._take(fresh)
        return len(fresh), float(violation.max())

    def _take(self, fresh: NDArray[np.intp]) -> None:
        """Let candidates join."""
        found, old, n = self.found, self.n, self.n + len(fresh)
        rows = found.rows[fresh]
        self.rows[old:n] = rows
        self.products[:2, old:n] = self.rows[:2] @ self.rows[old:n].T  # may be large, and cancel each other
        self.products[2:old, old:n] = found.rows[self.inside] @ rows.T
        self.products[old:n, :old] = self.products[:old, old:n].T
        self.products[old:n, old:n] = rows @ rows.T
        self.rest = _minus_rows(self.rest, self.rows[old:n], -found.duals[fresh])
        self.targets = np.concatenate([self.targets, found.targets[fresh]])
        self.caps = np.concatenate([self.caps, np.full(n - old, self.cap)])
        self.costs = np.concatenate([self.costs, np.full(n - old, self.cost)])
        self.base = np.concatenate([self.base, found.base[fresh]])
        self.values = np.concatenate([self.values, found.duals[fresh]])
        self.inside = np.concatenate([self.inside, fresh])
        self.is_inside[fresh] = True
        self.n = n
        self.refresh()

    def refresh(self) -> None:
        """Compute slopes from the rows, so that rounding errors of products do not add up."""
        self.fixed = _scores(self.rows, self.rest, self.n)
        self.slopes = self.targets + _scores(self.rows, self.weights, self.n)

    def _leaves(self, facts: tuple[float, ...], square: float) -> tuple[bool, bool]:
        """Whether the stage is done, and whether everything is."""
        gap, worst, self.off, loss = facts
        square_of_weights = self.rest @ self.rest - self.values @ (self.fixed + self.slopes - self.targets)
        primal = float(square_of_weights) / 2 + loss + self.found.loss
        is_done = worst <= self.tol and gap + square / 2 <= self.tol / SURPLUS * primal
        error = math.sqrt(square) * self.longest
        return is_done or error <= max(self.off, self.tol / 8) or square / 2 <= LEAVE * gap, is_done

    def _step(self, stiff: F64, apart: F64, pulled: F64, free: NDArray[np.intp]) -> None:
        """One Newton step; in place: values, slopes."""
        step, change = -apart, pulled
        if len(free):
            solved = self._solve(free, stiff, -pulled[free])
            step[free] -= solved
            whole = np.zeros(len(step))
            whole[free] = solved
            change = pulled + _product(self.products, whole)  # of slopes: minus the products times `step`
        length = _search(self.slopes, change, self.base, stiff, self.caps, self.values, step)
        self.values += length * step
        self.slopes += length * change

    def _solve(self, free: NDArray[np.intp], stiff: F64, target: F64) -> F64:
        """The Newton equation; in float32, which is enough for a direction, unless that fails."""
        matrix = np.empty((len(free), len(free)), dtype=np.float32)
        _among(self.products, free, stiff, matrix)
        _, solved, failure = lapack.sposv(matrix.T, target, overwrite_a=True)
        if failure:
            exact = np.empty(matrix.shape)
            _among(self.products, free, stiff, exact)
            _, solved, _ = lapack.dposv(exact.T, target, overwrite_a=True)
        return np.asarray(solved, dtype=np.float64)


@kernel()
def _look(slopes, base, stiff, caps, costs, duals, is_free):  # type: ignore[no-untyped-def]
    """Fill in duals and who is free; returns the duality gap, the worst violation, how far slopes are off that
    move a dual, and the loss."""
    gap, worst, off, loss = 0.0, 0.0, 0.0, 0.0
    for i in range(len(slopes)):
        s = slopes[i]
        raw = base[i] + stiff[i] * s
        v = min(max(raw, 0.0), caps[i])
        is_free[i] = (raw > 0.0) & (raw < caps[i])
        duals[i] = v
        if caps[i] == 0.0:
            continue
        short = max(s, 0.0)
        violation = abs(s) if is_free[i] else (short if v <= 0.0 else short - s)
        worst = max(worst, violation)
        off = max(off, abs(v - base[i]) / stiff[i])
        gap += costs[i] * short - v * s
        loss += costs[i] * short
    return gap, worst, off, loss


@kernel(fastmath=_REASSOCIATE)
def _product(products, values):  # type: ignore[no-untyped-def]
    """products @ values, which pays attention to zeros; `products` is symmetric, and may be larger."""
    out = np.zeros(len(values))
    for i in range(len(values)):
        value = values[i]
        if value != 0.0:
            row = products[i]
            for k in range(len(out)):
                out[k] += value * row[k]
    return out


@kernel(fastmath=_REASSOCIATE)
def _minus_rows(start, rows, values):  # type: ignore[no-untyped-def]
    """start - values @ rows, likewise."""
    out = start.copy()
    for i in range(len(values)):
        value = values[i]
        if value != 0.0:
            row = rows[i]
            for k in range(len(out)):
                out[k] -= value * row[k]
    return out


@kernel(fastmath=_REASSOCIATE)
def _scores(rows, weights, n):  # type: ignore[no-untyped-def]
    """Of the first n rows, added up in float64."""
    out = np.empty(n)
    for i in range(n):
        row, total = rows[i], 0.0
        for k in range(len(weights)):
            total += row[k] * weights[k]
        out[i] = total
    return out


@kernel()
def _among(products, free, stiff, matrix):  # type: ignore[no-untyped-def]
    """Fill in the lower half of the matrix of a Newton equation."""
    for a in range(len(free)):
        row = products[free[a]]
        for b in range(a + 1):
            matrix[a, b] = row[free[b]]
        matrix[a, a] += 1.0 / stiff[free[a]]


@inner(fastmath=_REASSOCIATE)
def _slope(slopes, change, base, stiff, caps, t):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(len(slopes)):
        total += min(max(base[i] + stiff[i] * (slopes[i] + t * change[i]), 0.0), caps[i]) * change[i]
    return total


@kernel()
def _search(slopes, change, base, stiff, caps, values, step):  # type: ignore[no-untyped-def]
    """How far to go: until the slope along the step is less than 0.1 of what it was."""
    mixed, square = 0.0, 0.0  # (weights - rest) . direction, |direction|^2; rows that rest pull with their duals
    for i in range(len(step)):
        mixed -= values[i] * change[i]
        square -= step[i] * change[i]
    first = mixed + _slope(slopes, change, base, stiff, caps, 0.0)
    low, high, at_low, at_high, t = 0.0, np.inf, first, 0.0, 1.0
    for _ in range(12):
        value = mixed + t * square + _slope(slopes, change, base, stiff, caps, t)
        if abs(value) <= 0.1 * abs(first):
            break
        if value > 0:
            high, at_high = t, value
        else:
            low, at_low = t, value
        t = 2 * t if high == np.inf else low + (high - low) * min(max(at_low / (at_low - at_high), 0.1), 0.9)
    return t
