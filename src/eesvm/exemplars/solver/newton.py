"""Both losses in few dimensions: semi-smooth Newton steps on the weights, for many exemplars at once.

In: a `Share` (see `hinge`) and weights to start from. Out: the dual variables, in place, and what violation is left.
A share may hold all negatives: everything that touches them is a product of two matrices for all its exemplars.

The squared hinge is smooth, and its duals are v = clip(2C s, 0, inf) of the shortfalls s. The hinge is not, so it is
approached in stages (the method of multipliers): with the duals u of the stage before and a stiffness z, the duals

    v = clip(u + z s, 0, C)                    s_n = t_n + w.x_n

are those of a smooth criterion, whose gradient is g = w - (own x_j - sum_n v_n x_n). When g is small enough they
become the u of the next stage, which is stiffer. At the end g = 0 and v = u, and both say that v is optimal.
An exemplar is done when its duality gap, to which g adds |g|^2 / 2, is small and no row violates its condition at w, or
where that holds for weights that are a little longer (`stretching`).

A Newton step solves (I + z sum of x x' over the rows between their bounds) d = -g. Where few rows are between them,
that is solved for each exemplar directly. Where they are many, they are much the same for all exemplars: conjugate
gradients with the inverse of the mean of these matrices, to which the exemplar's own positive is added, take a few
products. A line search on the slope along d, a sum over scores that needs no product, makes every step go down.

The hinge in few dimensions has many steps left when hardly any row changes sides any more: `newton_gram` takes those
on the rows near the margin, and the next look at all rows says whether that was enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm.exemplars.rows import F32
from eesvm.exemplars.solver.hinge import Share
from eesvm.exemplars.solver.newton_gram import LEAVE, SURPLUS, Candidates, Stiffness, descend_near, nearest
from eesvm.exemplars.solver.newton_kernels import add_changes, evaluate, mask, search
from eesvm.exemplars.solver.newton_matrices import (
    CountedRows,
    MeanMatrix,
    OwnMatrices,
    augmented,
    solve_directly,
    solve_system,
)
from eesvm.exemplars.solver.newton_sums import Moved, RunningSums, rows_times
from eesvm.exemplars.solver.problem import F64, Objective
from eesvm.exemplars.solver.row_products import scores_of
from eesvm.exemplars.solver.stretching import Goal, enough_longer

MAX_WIDTH = 1536  # columns of rows up to which matrices of that size are worth their time
_BETWEEN = 1.6  # times the dimensions: rows between their bounds, at most, when the last steps begin
NEAR_WIDTH = 320  # columns up to which they were faster than steps over all rows, with the hinge
_WHOLE_STEP = 0.5  # of a Newton step, after which the last steps may begin
_WORTH_STRETCHING = 5.0  # times the tolerance is a gap that longer weights may close
_SETTLED = 0.5  # of the margin: so far off slopes may be that move a dual
_BACK = 16.0  # times less stiff last steps begin again, when rows far away have come near
_MAX_FINISHES = 8  # times that they begin
_STUCK = 2.0  # times smaller than `tol` is a gap that will do at the end of a stage in vain
_LITTLE_LESS = 0.3  # of the gap that the stage before has left
_STIFFER, _STIFFER_TOGETHER = 4.0, 10.0  # times, from stage to stage: with direct solutions, and with conjugate ones
MAX_STIFFNESS = 2e4  # times the squared length of a row: more is too much for scores in float32
_FIRST_REACH = 0.0007  # of the margin: a first stage moves a dual by its size where a score is off by so much
_SHARED = 2.0  # sum of duals that share a margin, about
_OWN_STIFFER = 64.0  # times, for the only positive
_STEEP = 1.1 * _OWN_STIFFER * MAX_STIFFNESS  # stiffness in these units above which products need float64
_STEEP_SUM = 1e6  # the same, times the number of rows
_MAX_STAGES, _MAX_STEPS = 24, 80
_FORCING = 0.2  # how far a step solves its Newton equation
_MAX_CONJUGATE = 40  # directions per step
_FRESH = 4  # stages after which scores are computed anew, not added up
_CALL = 3e6  # products of numbers that take as long as what surrounds a direct solution


@dataclass(frozen=True)
class Arrived:
    """What became of a share: all but the duals, which are changed in place."""

    weights: F64  # (n, d + 1)
    dual_squares: F64  # (n,) squared lengths of the weights that the duals add up to
    violations: F64  # (n,)
    products: F64 | None  # (d + 1, d + 1) the mean sum of x x' over rows between their bounds, where it was wanted


def descend_newton(
    share: Share, weights: F32, objective: Objective, tol: float, products: F64 | None = None
) -> Arrived:
    """Optimise a share from `weights` (n, d + 1) to `tol`; its rows (P, d) are without the column of the bias.

    `products` is what the mean sum of x x' over rows between their bounds is about, if that is known.
    """
    descent = _Descent(share, weights, objective, tol, products)
    descent.run()
    return Arrived(descent.weights, descent.dual_squares, descent.violations, descent.mean.products)


@dataclass
class _Point:
    """The smooth criterion of the active exemplars at their weights."""

    duals: F32  # (m, P)
    is_between: NDArray[np.bool_]  # (m, P) rows between their bounds
    own: F64  # (m,) dual of the positive
    is_own_between: NDArray[np.bool_]  # (m,)
    own_slopes: F64  # (m,)
    gradient: F64  # (m, d + 1)
    n_between: F64  # (m,)

    def part(self, kept: NDArray[np.bool_]) -> _Point:
        return _Point(
            self.duals[kept],
            self.is_between[kept],
            self.own[kept],
            self.is_own_between[kept],
            self.own_slopes[kept],
            self.gradient[kept],
            self.n_between[kept],
        )


@dataclass(frozen=True)
class _Verdict:
    """What a look has said of the active exemplars."""

    is_done: NDArray[np.bool_]  # (m,) with everything
    leaves: NDArray[np.bool_]  # (m,) the stage
    violation: F64  # (m,)
    off: F64  # (m,) how far slopes are off that move a dual
    gap: F64  # (m,) a part of the criterion


@dataclass
class _Step:
    """Directions, and what of their products with rows is known."""

    direction: F64  # (m, d + 1)
    change: NDArray[Any] | None = None  # (m, P) of slopes
    pulled: F64 | None = None  # (m, d) rows between their bounds times the changes of their duals


class _Descent:
    """Weights, scores and duals of a share on their way."""

    def __init__(self, share: Share, weights: F32, objective: Objective, tol: float, products: F64 | None) -> None:
        self.share, self.objective, self.tol = share, objective, tol
        self.weights = weights.astype(np.float64)
        self.positives = share.positives.astype(np.float64)
        self.own_targets = share.own_targets.astype(np.float64)
        square = _longest_square(share.rows) + objective.bias_multiplier**2
        self.longest = math.sqrt(max(square, _longest_square(share.positives), 1e-30))
        n = len(weights)
        self.violations, self.dual_squares, self.is_done = np.full(n, np.inf), np.zeros(n), np.zeros(n, dtype=np.bool_)
        self.slopes, self.off = np.empty_like(share.targets), np.full(n, 0.0 if objective.is_squared else np.inf)
        self.mean = MeanMatrix(share.rows, objective.bias_multiplier, products)
        self.counted = CountedRows(share.rows, share.may_copy)
        self.matrices = OwnMatrices(share.rows, objective.bias_multiplier)
        self.sums = RunningSums(share.rows, n)
        self.moved: Moved | None = None  # what the last step has done to duals
        self.stretches = np.zeros(n)  # by which weights become longer at the end
        self.is_direct, self.last_gap = False, np.full(n, np.inf)  # relative, of the stage before
        self.lengths, self.near_stiffness, self.n_finished = np.zeros(n), np.zeros(n), np.zeros(n, dtype=np.int64)
        self.known: dict[int, NDArray[np.intp]] = {}  # rows that mattered in last steps
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
        for stage in range(1 if self.objective.is_squared else _MAX_STAGES):
            active = np.flatnonzero(~self.is_done)
            if stage % _FRESH == 0:
                self.slopes[active] = self.share.targets[active] + self._scores(self.weights[active])
            is_finished = self._stage(active)
            if self.is_done.all():
                break
            if is_finished and (self.off[~self.is_done] > self.tol / 4).any():
                factor = _STIFFER if self.is_direct else _STIFFER_TOGETHER
                self.stiffness = min(factor * self.stiffness, MAX_STIFFNESS / self.longest**2)
                self.own_stiffness = _OWN_STIFFER * self.stiffness

    def _stage(self, active: NDArray[np.intp]) -> bool:
        """Newton steps with one stiffness; exemplars leave when their gradient is small enough. Whether all have."""
        self.lengths[active] = np.where(self.n_finished[active] > 0, self.lengths[active], 0.0)
        for step in range(_MAX_STEPS):
            point, leaves = self._look(active, is_last=step == _MAX_STEPS - 1)
            if leaves.any():
                active, point = active[~leaves], point.part(~leaves)
            if len(active) == 0:
                return step < _MAX_STEPS - 1
            is_near = self._are_near(active, point)
            if is_near.any():
                self._finish(active[is_near], point.part(is_near))
            moving, point = active[~is_near], point.part(~is_near)
            if len(moving):
                self.moved = self._move(moving, point, self._direction(moving, point))
        return False

    def _look(self, active: NDArray[np.intp], is_last: bool) -> tuple[_Point, NDArray[np.bool_]]:
        """The point where the active exemplars are, and which of them have finished the stage, or everything."""
        o, share = self.objective, self.share
        duals = np.empty((len(active), share.rows.shape[0]), dtype=share.rows.dtype)
        is_between, facts = np.empty(duals.shape, dtype=np.bool_), np.empty((len(active), 5))
        evaluate(
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
        sums, self.moved = self.sums.follow(active, duals, is_between, self.moved), None
        gradient = self.weights[active] - own[:, None] * self.positives[active] + self._with_bias(sums, duals)
        point = _Point(duals, is_between, own, is_own_between, slopes, gradient, facts[:, 3])
        verdict = self._judge(active, point, facts)
        doubtful = np.flatnonzero(verdict.is_done & ~self.sums.is_exact[active])
        if len(doubtful):
            some = active[doubtful]
            exact = self._with_bias(self.sums.add_up(some, duals[doubtful]), duals[doubtful])
            point.gradient[doubtful] = self.weights[some] - own[doubtful, None] * self.positives[some] + exact
            verdict = self._judge(active, point, facts)
        return point, self._leave(active, point, verdict, is_last)

    def _judge(self, active: NDArray[np.intp], point: _Point, facts: F64) -> _Verdict:
        """Who is done with the stage, and who with everything."""
        o = self.objective
        norms = np.linalg.norm(point.gradient, axis=1)
        error = norms * self.longest
        gap, worst, moved, _, loss = facts.T
        missing = np.maximum(point.own_slopes, 0)
        primal = _dot(self.weights[active], self.weights[active]) / 2
        if o.is_squared:
            primal += o.positive_cost * missing**2 + o.negative_cost * loss
            is_done = norms**2 / 2 <= self.tol / SURPLUS * primal
            nothing = np.zeros(len(active))
            return _Verdict(is_done, is_done, nothing, nothing, nothing)
        primal += o.positive_cost * missing + gap + loss
        gap = gap + o.positive_cost * missing - point.own * point.own_slopes + norms**2 / 2
        at_bound = np.where(point.own <= 0, missing, missing - point.own_slopes)
        own_gap = np.where(point.is_own_between, np.abs(point.own_slopes), at_bound)
        violation = np.maximum(worst, own_gap)
        is_done = (violation <= self.tol) & (gap <= self.tol / SURPLUS * primal)
        is_stuck = (gap <= self.tol / _STUCK * primal) & (gap > _LITTLE_LESS * self.last_gap[active] * primal)
        off = np.maximum(moved / self.stiffness, np.abs(point.own - self.own_base[active]) / self.own_stiffness)
        is_near = (error <= off) | (norms**2 / 2 <= LEAVE * facts[:, 0])
        leaves = is_done | is_near | (error <= self.tol / 8)
        is_done |= leaves & (violation <= self.tol) & is_stuck
        self.stretches[active] = 0.0
        for k in np.flatnonzero(~is_done & (violation <= self.tol) & (gap <= _WORTH_STRETCHING * self.tol * primal)):
            longer = self._longer(active[k], int(k), point, Goal(gap[k], primal[k], self.tol / SURPLUS, self.tol))
            if longer is not None:
                self.stretches[active[k]], violation[k] = longer
                is_done[k] = leaves[k] = True
        return _Verdict(is_done, leaves, violation, off, gap / primal)

    def _longer(self, j: Any, k: int, point: _Point, goal: Goal) -> tuple[float, float] | None:
        """How much longer the weights of exemplar j should be, and the violation then; None where that is no help."""
        own = float(point.own_slopes[k]), float(self.own_targets[j]), float(point.own[k]), self.own_cap
        square = float(self.weights[j] @ self.weights[j])
        return enough_longer(self.slopes[j], self.share.targets[j], point.duals[k], self.cap, own, square, goal)

    def _leave(self, active: NDArray[np.intp], point: _Point, verdict: _Verdict, is_last: bool) -> NDArray[np.bool_]:
        """Note who ends the stage, and how."""
        ends = verdict.leaves | is_last
        if not self.objective.is_squared:
            self.off[active] = verdict.off
            self.last_gap[active[verdict.leaves]] = verdict.gap[verdict.leaves]
        summed = self.weights[active] - point.gradient
        self.dual_squares[active] = _dot(summed, summed)
        for k in np.flatnonzero(ends):
            j = active[k]
            self.violations[j], self.is_done[j] = verdict.violation[k], verdict.is_done[k]
            self.weights[j] *= 1 + self.stretches[j]
            self.share.duals[j], self.share.own[j] = point.duals[k], point.own[k]
            if not self.objective.is_squared:
                self.own_base[j] = point.own[k]
        return np.asarray(ends)

    def _direction(self, active: NDArray[np.intp], point: _Point) -> _Step:
        """Newton's, or nearly."""
        n_rows, width = len(self.share.rows), self.weights.shape[1]
        self.is_direct = self._direct_cost(active, point) < 4 * n_rows * width * self.mean.n_expected
        if self.is_direct:
            return self._direct(active, point)
        return self._conjugate(active, point)

    def _direct_cost(self, active: NDArray[np.intp], point: _Point) -> float:
        """Products of numbers that a direct solution takes, about."""
        width, n_between = self.weights.shape[1], float(point.n_between.mean())
        small = min(n_between, width)
        if not self._is_kept(n_between):
            return 2 * small * n_between * width + small**3 + _CALL
        n_changed = self.matrices.n_changed(active, point.is_between, point.n_between)
        exactness = self._dtype_for(self.stiffness, n_between).itemsize // 4
        return exactness * (n_changed * width**2 + width**3) + _CALL

    def _is_kept(self, n_between: float) -> bool:
        """Whether a matrix is kept from step to step where so many rows are between their bounds."""
        width = self.weights.shape[1]
        return width <= NEAR_WIDTH and n_between >= width

    def _direct(self, active: NDArray[np.intp], point: _Point) -> _Step:
        """Each exemplar's equation, solved in the smaller of its dimensions and its rows."""
        directions = np.empty_like(point.gradient)
        for k, j in enumerate(active):
            found = self._followed(int(j), k, point)
            directions[k] = self._solved(j, k, point) if found is None else found
        return _Step(directions)

    def _followed(self, j: int, k: int, point: _Point) -> F64 | None:
        """The solution by a matrix that is kept from step to step, where that is the small one of the two."""
        if not self._is_kept(point.n_between[k]):
            return None
        own = math.sqrt(self.own_stiffness) * self.positives[j] if point.is_own_between[k] else None
        dtype = self._dtype_for(self.stiffness, point.n_between[k])
        matrix = self.matrices.follow(j, point.is_between[k], dtype)
        return solve_system(matrix, self.stiffness, own, -point.gradient[k])

    def _solved(self, j: Any, k: int, point: _Point) -> F64:
        """The same by a matrix that is added up now, the positive among its rows."""
        dtype = self._dtype_for(max(self.stiffness, self.own_stiffness), point.n_between[k])
        rows = augmented(self.share.rows[point.is_between[k]], self.objective.bias_multiplier, dtype)
        rows *= rows.dtype.type(math.sqrt(self.stiffness))
        if point.is_own_between[k]:
            own = math.sqrt(self.own_stiffness) * self.positives[j : j + 1]
            rows = np.concatenate([rows, own.astype(dtype)])
        return solve_directly(rows, -point.gradient[k])

    def _dtype_for(self, stiffness: float, n_rows: float) -> np.dtype[Any]:
        """Of products of so many rows: what rounding adds to the smallest eigenvalue, 1, grows with their number."""
        steepness = stiffness * self.longest**2
        is_exact = steepness > _STEEP or steepness * n_rows > _STEEP_SUM
        return np.dtype(np.float64) if is_exact else self.share.rows.dtype

    def _conjugate(self, active: NDArray[np.intp], point: _Point) -> _Step:
        """Conjugate gradients, preconditioned, until the equations hold to a part of their gradients."""
        self.mean.follow(point.is_between, self.stiffness)
        self.counted.follow(point.is_between, self.mean.n_expected)
        rows, is_between, d = self.counted.rows, self.counted.columns(point.is_between), self.share.rows.shape[1]
        positives = self.positives[active]
        own = np.where(point.is_own_between, self.own_stiffness, 0.0)
        solved = self.mean.solve(positives)
        pull = own / (1 + own * _dot(positives, solved))

        def precondition(residual: F64, left: NDArray[np.intp]) -> F64:
            flat = self.mean.solve(residual)
            return flat - (pull[left] * _dot(flat, positives[left]))[:, None] * solved[left]

        norms = np.linalg.norm(point.gradient, axis=1)
        goal = np.maximum(_FORCING * norms, self.tol / self.longest / 8)
        left, direction, pulled = np.arange(len(active)), np.zeros_like(point.gradient), np.zeros((len(active), d))
        change = np.zeros_like(point.duals) if rows is self.share.rows else None
        residual = -point.gradient
        towards = precondition(residual, left)
        energy, n_all = _dot(residual, towards), 0
        for n_products in range(1, _MAX_CONJUGATE + 1):  # noqa: B007  the last one is remembered
            n_all += len(left)
            scores = self._scores(towards, rows)
            masked = mask(scores, is_between, left, np.float32(self.stiffness))
            sums = rows_times(masked, rows)
            curved = towards + self._with_bias(sums, masked)
            curved += (own[left] * _dot(towards, positives[left]))[:, None] * positives[left]
            length = _ratio(energy, _dot(towards, curved))
            direction[left] += length[:, None] * towards
            pulled[left] += length[:, None] * sums
            if change is not None:
                add_changes(change, scores, left, length)
            residual = residual - length[:, None] * curved
            goes_on = np.linalg.norm(residual, axis=1) > goal[left]
            if not goes_on.any():
                break
            left, residual, towards, energy = left[goes_on], residual[goes_on], towards[goes_on], energy[goes_on]
            flat = precondition(residual, left)
            old, energy = energy, _dot(residual, flat)
            towards = flat + _ratio(energy, old)[:, None] * towards
        self.mean.note(n_products, n_all, len(active))
        return _Step(direction, change, pulled)

    def _move(self, active: NDArray[np.intp], point: _Point, step: _Step) -> Moved | None:
        """Go along the directions to where the criterion is about lowest; in place: weights, slopes.

        Returns what is known of the duals there.
        """
        direction, change = step.direction, step.change
        if change is None:
            change = self._scores(direction)
        own_change = -_dot(direction, self.positives[active])
        weights = self.weights[active]
        own = np.stack([self.own_base[active], point.own_slopes, own_change], axis=1)
        along = np.stack(
            [_dot(point.gradient, direction), _dot(weights, direction), _dot(direction, direction)], axis=1
        )
        lengths = np.empty(len(active))
        search(
            self.slopes, self.base, active, change, own, along,
            np.float32(self.stiffness), self.own_stiffness, self.cap, self.own_cap, lengths,
        )  # fmt: skip
        self.weights[active] = weights + lengths[:, None] * direction
        self.lengths[active] = lengths
        if step.pulled is None:
            return None
        return Moved(active, change, point.is_between, self.stiffness * lengths, lengths[:, None] * step.pulled)

    def _are_near(self, active: NDArray[np.intp], point: _Point) -> NDArray[np.bool_]:
        """Which exemplars have few rows between their bounds, after a step that did not end early."""
        if self.objective.is_squared or self.weights.shape[1] > NEAR_WIDTH:
            return np.zeros(len(active), dtype=np.bool_)
        is_small = point.n_between <= _BETWEEN * self.weights.shape[1]
        is_small &= self.off[active] <= _SETTLED
        return is_small & (self.lengths[active] >= _WHOLE_STEP) & (self.n_finished[active] < _MAX_FINISHES)

    def _finish(self, chosen: NDArray[np.intp], point: _Point) -> None:
        """Go on with the rows near the margins of these exemplars, one after the other; slopes are computed anew."""
        share, width = self.share, self.weights.shape[1]
        for k, j in enumerate(chosen):
            now = max(self.stiffness, self.near_stiffness[j] / _BACK)
            stiffness = Stiffness(now, _OWN_STIFFER, max(now, MAX_STIFFNESS / self.longest**2))
            known = self.known.get(j, np.empty(0, dtype=np.intp))
            rows = nearest(self.slopes[j], point.is_between[k], known, width)
            found = descend_near(self._candidates(j, k, point, rows), stiffness, self.objective, self.longest, self.tol)
            self.weights[j], self.lengths[j], self.near_stiffness[j] = found.weights, 1.0, stiffness.now
            share.duals[j] = point.duals[k]
            share.duals[j, rows], self.own_base[j] = found.duals, found.own
            self.known[j] = np.union1d(known, rows[found.mattered])
            self.n_finished[j] += 1
        self.slopes[chosen] = share.targets[chosen] + self._scores(self.weights[chosen])

    def _candidates(self, j: int, k: int, point: _Point, rows: NDArray[np.intp]) -> Candidates:
        """These rows as a problem of their own."""
        far = point.duals[k].copy()
        far[rows] = 0
        lost = float(self.slopes[j][far > 0].sum(dtype=np.float64))
        return Candidates(
            augmented(self.share.rows[rows], self.objective.bias_multiplier, self.share.rows.dtype),
            self.share.targets[j, rows].astype(np.float64),
            point.duals[k, rows].astype(np.float64),
            self.base[j, rows].astype(np.float64),
            self.positives[j],
            (float(self.own_targets[j]), float(point.own[k]), float(self.own_base[j])),
            point.gradient[k],
            -self._with_bias(rows_times(far[None], self.share.rows), far[None])[0],
            self.objective.negative_cost * lost,
        )

    def _scores(self, weights: F64, rows: NDArray[Any] | None = None) -> NDArray[Any]:
        """(m, P) products of weights and rows, by default all."""
        rows = self.share.rows if rows is None else rows
        narrow = weights.astype(rows.dtype)
        scores = scores_of(rows, narrow[:, :-1])
        scores += narrow[:, -1:] * narrow.dtype.type(self.objective.bias_multiplier)
        return scores

    def _with_bias(self, sums: NDArray[Any], duals: NDArray[Any]) -> F64:
        """(m, d + 1) sums of rows with the column of the bias."""
        found = np.empty((len(sums), sums.shape[1] + 1))
        found[:, :-1] = sums
        found[:, -1] = self.objective.bias_multiplier * duals.sum(axis=1, dtype=np.float64)
        return found


def _typical(duals: F32, cap: float) -> float:
    """The size of duals that many rows share: of those there are, but no more than if all rows shared a margin."""
    total, most = float(duals.sum(dtype=np.float64)), min(cap, _SHARED / max(duals.shape[1], 1))
    if total == 0:
        return most * _FIRST_REACH  # nothing is known, and every score is off by the whole margin
    return max(min(most, float(np.einsum("np,np->", duals, duals, dtype=np.float64)) / total), 1e-30)


def _dot(a: NDArray[Any], b: NDArray[Any]) -> F64:
    return np.asarray(np.einsum("nd,nd->n", a, b))


def _ratio(a: F64, b: F64) -> F64:
    return np.asarray(a / np.maximum(b, 1e-300))


def _longest_square(rows: NDArray[Any]) -> float:
    return float(_dot(rows, rows).max(initial=0.0))
