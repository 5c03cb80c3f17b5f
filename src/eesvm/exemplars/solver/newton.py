"""Both losses in few dimensions: semi-smooth Newton steps on the weights, for many exemplars at once.

In: a `Share` (see `hinge`) and weights to start from. Out: the dual variables, in place, and what violation is left.
A share may hold all negatives: everything that touches them is a product of two matrices for all its exemplars.

The squared hinge is smooth, and its duals are v = clip(2C s, 0, inf) of the shortfalls s. The hinge is not, so it is
approached in stages (the method of multipliers): with the duals u of the stage before and a stiffness z, the duals

    v = clip(u + z s, 0, C)                    s_n = t_n + w.x_n

are those of a smooth criterion, whose gradient is g = w - (own x_j - sum_n v_n x_n). When g is small enough they become
the u of the next stage, which is stiffer. At the end g = 0 and v = u, and both say that v is optimal.

A Newton step solves (I + z sum of x x' over the rows between their bounds) d = -g. Where few rows are between them, that
is solved for each exemplar directly. Where they are many, they are much the same for all exemplars: conjugate gradients
with the inverse of the mean of these matrices, to which the exemplar's own positive is added, take a few products. A line
search on the slope along d, which is a sum over scores and needs no product, makes every step go down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from eesvm._support.compile import kernel
from eesvm.exemplars.rows import F32
from eesvm.exemplars.solver.hinge import Share
from eesvm.exemplars.solver.problem import F64, Objective

MAX_WIDTH = 1536  # columns of rows up to which matrices of that size are worth their time
_LEAVE = 0.1
_SURPLUS = 10.0  # times smaller than `tol` is the duality gap that is aimed at: the last steps are cheap
_STIFFER = 4.0  # times, from stage to stage
MAX_STIFFNESS = 2e4  # times the squared length of a row: more is too much for scores in float32
_FIRST_REACH = 0.006  # of the margin: a first stage moves a dual by its size where a score is off by so much
_SHARED = 2.0  # sum of duals that share a margin, about
_OWN_STIFFER = 64.0  # times, for the only positive
_MAX_STAGES, _MAX_STEPS = 24, 40
_FORCING = 0.2  # how far a step solves its Newton equation
_MAX_CONJUGATE, _MANY_CONJUGATE = 40, 6  # directions per step; more than this ask for a new mean matrix
_SAMPLE = 16  # rows per column are enough for it
_REFRESH = 0.05  # and a change of so much of its rows
_CALL = 3e6  # products of numbers that take as long as what surrounds a direct solution
_REASSOCIATE = {"reassoc", "contract", "nsz"}  # sums in any order, but infinities stay what they are


def descend_newton(share: Share, weights: F32, objective: Objective, tol: float) -> tuple[F64, F64, F64]:
    """Optimise a share from `weights` (n, d + 1) to `tol`; its rows (P, d) are without the column of the bias.

    Returns the weights, the squared lengths of those that the duals add up to, (n,), and the violation left, (n,).
    """
    descent = _Descent(share, weights, objective, tol)
    descent.run()
    return descent.weights, descent.dual_squares, descent.violations


@dataclass
class _Point:
    """The smooth criterion of the active exemplars at their weights."""

    duals: F32  # (m, P)
    is_between: NDArray[np.bool_]  # (m, P) rows between their bounds
    own: F64  # (m,) dual of the positive
    is_own_between: NDArray[np.bool_]  # (m,)
    own_slopes: F64  # (m,)
    gradient: F64  # (m, d + 1)
    n_between: float  # mean over exemplars

    def part(self, kept: NDArray[np.bool_]) -> _Point:
        fields = (self.duals, self.is_between, self.own, self.is_own_between, self.own_slopes, self.gradient)
        return _Point(*(values[kept] for values in fields), self.n_between)  # type: ignore[arg-type]


class _Descent:
    """Weights, scores and duals of a share on their way."""

    def __init__(self, share: Share, weights: F32, objective: Objective, tol: float) -> None:
        self.share, self.objective, self.tol = share, objective, tol
        self.weights = weights.astype(np.float64)
        self.positives = share.positives.astype(np.float64)
        self.own_targets = share.own_targets.astype(np.float64)
        square = _longest_square(share.rows) + objective.bias_multiplier**2
        self.longest = math.sqrt(max(square, _longest_square(share.positives), 1e-30))
        n = len(weights)
        self.violations, self.dual_squares, self.is_done = np.full(n, np.inf), np.zeros(n), np.zeros(n, dtype=np.bool_)
        self.slopes, self.off = np.empty_like(share.targets), np.zeros(n)
        step = max(1, len(share.rows) // (_SAMPLE * weights.shape[1]))
        self.mean = _MeanMatrix(self._augmented(share.rows[::step]).astype(np.float32), step)
        c, own_c = objective.negative_cost, objective.positive_cost
        if objective.is_squared:
            share.duals[:] = 0
            self.base, self.own_base = share.duals, np.zeros(n)
            self.cap, self.own_cap = np.float32(np.inf), np.inf
            self.stiffness, self.own_stiffness = 2 * c, 2 * own_c
        else:
            self.base, self.own_base = share.duals, share.own.astype(np.float64)
            self.cap, self.own_cap = np.float32(c), float(np.float32(own_c))
            self.stiffness = min(_typical(share.duals, c) / _FIRST_REACH, MAX_STIFFNESS / self.longest**2)
            self.own_stiffness = _OWN_STIFFER * self.stiffness

    def run(self) -> None:
        """Stage after stage until all exemplars are done."""
        for _ in range(1 if self.objective.is_squared else _MAX_STAGES):
            active = np.flatnonzero(~self.is_done)
            self.slopes[active] = self.share.targets[active] + self._scores(self.weights[active])
            is_finished = self._stage(active)
            if self.is_done.all():
                break
            if is_finished and (self.off[~self.is_done] > self.tol / 4).any():
                self.stiffness = min(_STIFFER * self.stiffness, MAX_STIFFNESS / self.longest**2)
                self.own_stiffness = _OWN_STIFFER * self.stiffness

    def _stage(self, active: NDArray[np.intp]) -> bool:
        """Newton steps with one stiffness; exemplars leave when their gradient is small enough. Whether all have."""
        for step in range(_MAX_STEPS):
            point, leaves = self._look(active, is_last=step == _MAX_STEPS - 1)
            if leaves.any():
                active, point = active[~leaves], point.part(~leaves)
            if len(active) == 0:
                return step < _MAX_STEPS - 1
            direction = self._direction(active, point)
            self._move(active, point, direction)
        return False

    def _look(self, active: NDArray[np.intp], is_last: bool) -> tuple[_Point, NDArray[np.bool_]]:
        """The point where the active exemplars are, and which of them have finished the stage, or everything."""
        o, share = self.objective, self.share
        duals = np.empty((len(active), share.rows.shape[0]), dtype=share.rows.dtype)
        is_between, facts = np.empty(duals.shape, dtype=np.bool_), np.empty((len(active), 5))
        _evaluate(
            self.slopes,
            self.base,
            active,
            np.float32(self.stiffness),
            self.cap,
            o.negative_cost,
            duals,
            is_between,
            facts,
        )
        slopes = self.own_targets[active] - _dot(self.weights[active], self.positives[active])
        raw = self.own_base[active] + self.own_stiffness * slopes
        own = np.clip(raw, 0, self.own_cap)
        is_own_between = (raw > 0) & (raw < self.own_cap)
        gradient = self.weights[active] - own[:, None] * self.positives[active] + self._sums(duals)
        point = _Point(duals, is_between, own, is_own_between, slopes, gradient, float(facts[:, 3].mean()))
        leaves = self._leave(active, point, facts, is_last)
        return point, leaves

    def _leave(self, active: NDArray[np.intp], point: _Point, facts: F64, is_last: bool) -> NDArray[np.bool_]:
        """Note who is done with the stage, and who with everything."""
        o = self.objective
        norms = np.linalg.norm(point.gradient, axis=1)
        error = norms * self.longest
        gap, worst, moved, _, loss = facts.T
        missing = np.maximum(point.own_slopes, 0)
        primal = _dot(self.weights[active], self.weights[active]) / 2
        if o.is_squared:
            primal += o.positive_cost * missing**2 + o.negative_cost * loss
            is_done = (error <= self.tol) & (norms**2 / 2 <= self.tol / _SURPLUS * primal)
            leaves, violation = is_done, error
        else:
            primal += o.positive_cost * missing + gap + loss
            gap = gap + o.positive_cost * missing - point.own * point.own_slopes + norms**2 / 2
            own_gap = np.where(point.own <= 0, missing, np.where(point.is_own_between, np.abs(point.own_slopes), missing - point.own_slopes))  # fmt: skip
            violation = np.maximum(worst, own_gap) + error
            is_done = (violation <= self.tol) & (gap <= self.tol / _SURPLUS * primal)
            off = np.maximum(moved / self.stiffness, np.abs(point.own - self.own_base[active]) / self.own_stiffness)
            is_near = (error <= off) | (norms**2 / 2 <= _LEAVE * facts[:, 0])
            leaves = is_done | (is_near & ((off > self.tol / 4) | (error <= self.tol / 2))) | (error <= self.tol / 8)
            self.off[active] = off
        ends = leaves | is_last
        summed = self.weights[active] - point.gradient
        self.dual_squares[active] = _dot(summed, summed)
        for k in np.flatnonzero(ends):
            j = active[k]
            self.violations[j], self.is_done[j] = violation[k], is_done[k]
            self.share.duals[j], self.share.own[j] = point.duals[k], point.own[k]
            if not o.is_squared:
                self.own_base[j] = point.own[k]
        return np.asarray(ends)

    def _direction(self, active: NDArray[np.intp], point: _Point) -> F64:
        """Newton's, or nearly."""
        n_rows, width = len(self.share.rows), self.weights.shape[1]
        small = min(point.n_between, width)
        direct = 2 * small * point.n_between * width + small**3 + _CALL
        if direct < 4 * n_rows * width * self.mean.n_expected:
            return self._direct(active, point)
        return self._conjugate(active, point)

    def _direct(self, active: NDArray[np.intp], point: _Point) -> F64:
        """Each exemplar's equation, solved in the smaller of its dimensions and its rows."""
        directions = np.empty_like(point.gradient)
        root, own_root = math.sqrt(self.stiffness), math.sqrt(self.own_stiffness)
        for k, j in enumerate(active):
            rows = root * self._augmented(self.share.rows[point.is_between[k]])
            if point.is_own_between[k]:
                rows = np.concatenate([rows, own_root * self.positives[j : j + 1]])
            directions[k] = _solve(rows, -point.gradient[k])
        return directions

    def _conjugate(self, active: NDArray[np.intp], point: _Point) -> F64:
        """Conjugate gradients, preconditioned, until the equations hold to a part of their gradients."""
        self.mean.follow(point.is_between, self.stiffness)
        positives = self.positives[active]
        own = np.where(point.is_own_between, self.own_stiffness, 0.0)
        solved = positives @ self.mean.inverse
        pull = own / (1 + own * _dot(positives, solved))

        def precondition(residual: F64, left: NDArray[np.intp]) -> F64:
            flat = residual @ self.mean.inverse
            return flat - (pull[left] * _dot(flat, positives[left]))[:, None] * solved[left]

        norms = np.linalg.norm(point.gradient, axis=1)
        goal = np.maximum(_FORCING * norms, self.tol / self.longest / 8)
        left, direction = np.arange(len(active)), np.zeros_like(point.gradient)
        residual = -point.gradient
        search = precondition(residual, left)
        energy = _dot(residual, search)
        for n_products in range(1, _MAX_CONJUGATE + 1):  # noqa: B007  the last one is remembered
            curved = self._curved(search, left, point.is_between) + (own[left] * _dot(search, positives[left]))[:, None] * positives[left]  # fmt: skip
            length = _ratio(energy, _dot(search, curved))
            direction[left] += length[:, None] * search
            residual = residual - length[:, None] * curved
            goes_on = np.linalg.norm(residual, axis=1) > goal[left]
            if not goes_on.any():
                break
            left, residual, search, energy = left[goes_on], residual[goes_on], search[goes_on], energy[goes_on]
            flat = precondition(residual, left)
            old, energy = energy, _dot(residual, flat)
            search = flat + _ratio(energy, old)[:, None] * search
        self.mean.n_expected = n_products
        return direction

    def _curved(self, search: F64, left: NDArray[np.intp], is_between: NDArray[np.bool_]) -> F64:
        """The matrices of the Newton equations, without the positives, times `search`."""
        scores = self._scores(search)
        _mask(scores, is_between, left, np.float32(self.stiffness))
        return search + self._sums(scores)

    def _move(self, active: NDArray[np.intp], point: _Point, direction: F64) -> None:
        """Go along the directions to where the criterion is about lowest; in place: weights, slopes."""
        change = self._scores(direction)
        own_change = -_dot(direction, self.positives[active])
        weights = self.weights[active]
        own = np.stack([self.own_base[active], point.own_slopes, own_change], axis=1)
        along = np.stack(
            [_dot(point.gradient, direction), _dot(weights, direction), _dot(direction, direction)], axis=1
        )
        lengths = np.empty(len(active))
        _search(
            self.slopes, self.base, active, change, own, along,
            np.float32(self.stiffness), self.own_stiffness, self.cap, self.own_cap, lengths,
        )  # fmt: skip
        self.weights[active] = weights + lengths[:, None] * direction

    def _scores(self, weights: F64) -> NDArray[Any]:
        """(m, P) products of weights and rows."""
        narrow = weights.astype(self.share.rows.dtype)
        scores = narrow[:, :-1] @ self.share.rows.T
        scores += narrow[:, -1:] * narrow.dtype.type(self.objective.bias_multiplier)
        return scores

    def _sums(self, duals: NDArray[Any]) -> F64:
        """(m, d + 1) sums of rows."""
        sums = np.empty((len(duals), self.weights.shape[1]))
        sums[:, :-1] = duals @ self.share.rows
        sums[:, -1] = self.objective.bias_multiplier * duals.sum(axis=1, dtype=np.float64)
        return sums

    def _augmented(self, rows: NDArray[Any]) -> F64:
        return np.concatenate([rows, np.full((len(rows), 1), self.objective.bias_multiplier)], axis=1, dtype=np.float64)


class _MeanMatrix:
    """The mean over exemplars of sum of x x' over rows between their bounds, from a sample of them, and an inverse."""

    def __init__(self, sample: F32, step: int) -> None:
        self.sample, self.step = sample, step
        width = sample.shape[1]
        self.shares = np.zeros(len(sample), dtype=np.float32)
        self.products, self.inverse, self.stiffness = np.zeros((width, width)), np.eye(width), 0.0
        self.n_expected = 4  # products that conjugate gradients will take

    def follow(self, is_between: NDArray[np.bool_], stiffness: float) -> None:
        """Be about as the matrices of these exemplars are."""
        shares = is_between[:, :: self.step].mean(axis=0, dtype=np.float32)
        change = float(np.abs(shares - self.shares).sum())
        is_old = change > _REFRESH * float(self.shares.sum()) and self.n_expected > _MANY_CONJUGATE
        if self.stiffness == 0 or is_old:
            weighted = self.sample * np.sqrt(self.step * shares[:, None])
            self.products, self.shares = (weighted.T @ weighted).astype(np.float64), shares
        elif stiffness == self.stiffness:
            return
        self.stiffness = stiffness
        matrix = stiffness * self.products
        matrix[np.diag_indices(len(matrix))] += 1
        self.inverse = linalg.cho_solve(linalg.cho_factor(matrix, overwrite_a=True), np.eye(len(matrix)))


def _typical(duals: F32, cap: float) -> float:
    """The size of duals that many rows share: of those there are, but no more than if all rows shared a margin."""
    total, most = float(duals.sum(dtype=np.float64)), min(cap, _SHARED / max(duals.shape[1], 1))
    if total == 0:
        return most * _FIRST_REACH  # nothing is known, and every score is off by the whole margin
    return max(min(most, float(np.einsum("np,np->", duals, duals, dtype=np.float64)) / total), 1e-30)


def _solve(rows: F64, target: F64) -> F64:
    """x with (I + rows' rows) x = target."""
    if len(rows) == 0:
        return target
    is_wide = rows.shape[0] < rows.shape[1]
    products = rows @ rows.T if is_wide else rows.T @ rows
    products[np.diag_indices(len(products))] += 1
    factors = linalg.cho_factor(products, lower=True, overwrite_a=True, check_finite=False)
    if is_wide:
        return np.asarray(target - linalg.cho_solve(factors, rows @ target, check_finite=False) @ rows)
    return np.asarray(linalg.cho_solve(factors, target, check_finite=False))


@kernel(fastmath=_REASSOCIATE)
def _evaluate(  # type: ignore[no-untyped-def]
    slopes, base, active, stiffness, cap, cost, duals, is_between, facts
):
    """Fill in duals and `is_between`, and facts: of the hinge its gap, the worst violation, and the loss less the gap;
    of either loss the farthest move from `base` and how many are between their bounds. For the squared hinge the loss."""
    zero = np.float32(0)
    for k in range(len(active)):
        own_slopes, own_base, own_duals, own_between = slopes[active[k]], base[active[k]], duals[k], is_between[k]
        gap, product, square, worst, moved, n = 0.0, 0.0, 0.0, zero, zero, 0
        for i in range(len(own_slopes)):
            s = own_slopes[i]
            raw = own_base[i] + stiffness * s
            v = min(max(raw, zero), cap)
            between = (raw > zero) & (raw < cap)
            own_between[i] = between
            own_duals[i] = v
            n += between
            short = max(s, zero)
            off = abs(s) if between else (short if v <= zero else short - s)
            worst = max(worst, off)
            moved = max(moved, abs(v - own_base[i]))
            gap += cost * short
            square += short * short
            if v > zero:
                product += v * s
        facts[k, 0], facts[k, 1], facts[k, 2], facts[k, 3] = gap - product, worst, moved, n
        facts[k, 4] = product if cap < np.inf else square


@kernel()
def _mask(scores, is_between, left, stiffness):  # type: ignore[no-untyped-def]
    """In place: `scores` times the stiffness where a row is between its bounds, else 0."""
    zero = np.float32(0)
    for k in range(len(left)):
        own, between = scores[k], is_between[left[k]]
        for i in range(len(own)):
            own[i] = stiffness * own[i] if between[i] else zero


@kernel(fastmath=_REASSOCIATE)
def _slope(slopes, change, base, stiffness, cap, t):  # type: ignore[no-untyped-def]
    """Of the losses of the negatives, along a direction, after a step of length `t`."""
    total, zero = 0.0, np.float32(0)
    for i in range(len(slopes)):
        total += min(max(base[i] + stiffness * (slopes[i] + t * change[i]), zero), cap) * change[i]
    return total


@kernel()
def _search(  # type: ignore[no-untyped-def]
    slopes, base, active, change, own, along, stiffness, own_stiffness, cap, own_cap, lengths
):
    """Find steps after which the slope is less than 0.3 of what it was, and take them; in place: slopes, lengths."""
    for k in range(len(active)):
        j = active[k]
        own_base, own_slope, own_change = own[k]
        first, mixed, square = along[k]
        low, high, at_low, at_high, t = 0.0, np.inf, first, 0.0, 1.0
        for _ in range(12):
            value = mixed + t * square + _slope(slopes[j], change[k], base[j], stiffness, cap, np.float32(t))
            value += min(max(own_base + own_stiffness * (own_slope + t * own_change), 0.0), own_cap) * own_change
            if abs(value) <= 0.3 * abs(first):
                break
            if value > 0:
                high, at_high = t, value
            else:
                low, at_low = t, value
            t = 2 * t if high == np.inf else low + (high - low) * min(max(at_low / (at_low - at_high), 0.1), 0.9)
        lengths[k] = t
        step, mine, moves = np.float32(t), slopes[j], change[k]
        for i in range(len(mine)):
            mine[i] += step * moves[i]


def _dot(a: NDArray[Any], b: NDArray[Any]) -> F64:
    return np.asarray(np.einsum("nd,nd->n", a, b))


def _ratio(a: F64, b: F64) -> F64:
    return np.asarray(a / np.maximum(b, 1e-300))


def _longest_square(rows: NDArray[Any]) -> float:
    return float(_dot(rows, rows).max(initial=0.0))
