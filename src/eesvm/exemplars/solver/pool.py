"""The negatives that matter so far, the dual variables on them, and the weights these add up to.

In: a problem, and violators found by scans. Out: the state between two scans, and the evidence of how good it is.
Memory is predicted before the pool grows: `n_bytes` is what its arrays and the work on them will take at most.
Not here: when to scan, grow, split or stop, which `solve` decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.threads import Workers
from eesvm.exemplars.rows import F32, held_in_memory
from eesvm.exemplars.solver.coordinate import descend_coordinates, is_for_newton
from eesvm.exemplars.solver.hinge import Share, combine, descend_hinge, floats_of_a_part
from eesvm.exemplars.solver.newton import MAX_STIFFNESS, MAX_WIDTH, NEAR_WIDTH, descend_newton
from eesvm.exemplars.solver.newton_gram import MATRICES
from eesvm.exemplars.solver.problem import F64, Budget, Integers, TrainingProblem
from eesvm.exemplars.solver.scan import MAX_ROWS, Look, Scan, scan
from eesvm.exemplars.solver.squared_hinge import amplification, descend_squared, mean_hessian_inverse
from eesvm.exemplars.solver.working_sets import (
    descend_working_sets,
    is_small_enough,
    is_wide_enough,
    set_bytes,
    step_bytes,
)

_MAX_BATCH = 64  # exemplars whose duals are optimised together, in one thread
_BATCH_ARRAYS = 9  # of (batch, pool) that a descent holds
_WORTH_INVERTING = 16  # dimensions per exemplar, at most, for a common preconditioner to pay
_STEEP = 500.0  # amplification of errors from which on the squared hinge is descended in float64
_OUTDATED = 0.1  # change of the mean support after which it is computed again
_NEWTON_ARRAYS = 9  # of (batch, pool) that Newton steps hold
_NEWTON_MATRICES = 5  # of the size of a Newton equation that they hold, in float64
_NEWTON_BATCH, _LEAST_NEWTON_BATCH = 32, 4  # exemplars whose Newton steps are taken together
_PLANNED_THREADS = 4  # at least, so that batches are the same for fewer
_VISITS = 1.4  # times the tolerance of other descents is that of visits: their slopes are computed from scratch
_SET_ARRAYS = 4  # of (batch, pool) that working sets hold
_SETS_TOGETHER, _LEAST_SETS = 8, 4  # exemplars that look at all rows together while their working sets grow


@dataclass(frozen=True)
class Start:
    """Duals to begin with."""

    indices: Integers  # (P,) negatives, increasing
    duals: F32  # (P,)
    own: np.float32
    weights: F32  # (d + 1,) of the exemplar they are from
    products: F64 | None = (
        None  # (d + 1, d + 1) about the sum of x x' over rows between their bounds, where it is known
    )


@dataclass(frozen=True)
class Trained:
    """What is known of an exemplar that was trained on all negatives."""

    duals: F32  # (M,)
    own: np.float32
    weights: F32  # (d + 1,)
    residual: float
    dual_square: float


class Pool:
    """State of the exemplars of a problem; `members` are their numbers among all that are trained."""

    def __init__(
        self,
        problem: TrainingProblem,
        members: NDArray[np.intp],
        budget: Budget,
        n_threads: int,
        takes_newton_steps: bool = True,
    ) -> None:
        multiplier = problem.objective.bias_multiplier
        n, d = problem.positives.shape
        self.problem, self.members = problem, members
        self.budget, self.n_threads = budget, n_threads
        self.positives = _augmented(problem.positives, multiplier)  # (n, d + 1)
        self.weights = np.zeros((n, d + 1), dtype=np.float32)
        self.indices = np.empty(0, dtype=np.int64)  # (P,) which negatives, in the order they came
        self.is_pooled = np.zeros(problem.negatives.shape[0], dtype=np.bool_)
        self.rows = np.empty((0, d + 1), dtype=np.float32)
        self.duals = np.empty((n, 0), dtype=np.float32)
        self.own = np.zeros(n, dtype=np.float32)
        self.dual_squares = np.zeros(n)  # squared lengths of the weights that duals add up to
        self.residual = np.zeros(n)  # violation that the last descent left inside the pool
        square = max(_longest_square(self.positives), float(problem.squares.max(initial=0)))
        self.longest_square, self.takes_newton_steps = square, takes_newton_steps and d < MAX_WIDTH
        self.visits_rows = self.takes_newton_steps and not problem.objective.is_squared  # before it takes such steps
        self.grows_sets = self.takes_newton_steps and is_wide_enough(d + 1)  # before that
        self.is_sure_of_visits = False  # whether that need not be tried out
        self.first: Trained | None = None  # the first exemplar, where it was trained by a set already
        self.dtype = self._dtype()  # of descents
        self.products: F64 | None = None  # what Newton steps begin with, and what the last of them have found
        self.found_products: F64 | None = None
        self.inverse: F32 | None = None  # preconditioner for the squared hinge, and the support it is for
        self.inverted_support = 0.0

    def __len__(self) -> int:
        return len(self.members)

    @property
    def biases(self) -> F32:
        return self.weights[:, -1] * np.float32(self.problem.objective.bias_multiplier)

    def split(self, chosen: list[NDArray[np.intp]]) -> list[Pool]:
        """The same state for some of the exemplars at a time, asleep; this pool lets go of its own."""
        parts = [self._part(members) for members in chosen]
        self.release()
        return parts

    def release(self) -> None:
        """Let go of everything large; there is nothing to be done with this pool afterwards."""
        for name in ("rows", "duals", "weights", "positives", "inverse"):
            self.__dict__.pop(name, None)

    def wake(self) -> None:
        """Read the rows that were not kept while other parts were trained."""
        if len(self.indices) == 0:
            return
        self.rows = _augmented(self.problem.negatives.take(self.indices), self.problem.objective.bias_multiplier)

    def as_start(self) -> Start:
        """What others can start from, of the only exemplar."""
        supporting = np.flatnonzero(self.duals[0] > 0)
        supporting = supporting[np.argsort(self.indices[supporting])]
        return Start(
            self.indices[supporting], self.duals[0, supporting], self.own[0], self.weights[0], self.found_products
        )

    def start_from(self, start: Start) -> None:
        """Take over the negatives and duals of a similar exemplar."""
        self.indices = start.indices
        self.is_pooled[self.indices] = True
        self.wake()
        is_own = np.isinf(self._targets(np.arange(len(self))))
        self.duals = np.where(is_own, np.float32(0), start.duals)
        self.own[:] = start.own
        self._begin_at(start)

    @property
    def is_degenerate(self) -> bool:
        """Whether more rows lie on the margin of some exemplar than its weights have dimensions."""
        is_free = (self.duals > 0) & (self.duals < np.float32(self.problem.objective.negative_cost))
        n_free = np.count_nonzero(is_free, axis=1).max(initial=0)
        return not self.problem.objective.is_squared and bool(n_free > self.weights.shape[1])

    def can_hold_everything(self, n_least: int) -> bool:
        """Whether all negatives may be in the pool from the beginning: no look at them finds anything new then.

        A strict budget that would not do for a pool of `n_least` is left to say so.
        """
        n_least = min(n_least, self.problem.negatives.shape[0])
        if self.budget.is_strict and self.n_bytes(n_least) > self.budget.n_bytes:
            return False
        return self.takes_newton_steps and self._whole_batch() >= min(_LEAST_NEWTON_BATCH, len(self))

    def hold_everything(self, start: Start | None) -> None:
        """Take in all negatives."""
        n, (n_rows, width) = len(self), self.problem.negatives.shape
        held = held_in_memory(self.problem.negatives)
        self.rows = np.empty((n_rows, width), dtype=np.float32) if held is None else held  # without the bias
        for first, block in self.problem.negatives.blocks(MAX_ROWS) if held is None else ():
            self.rows[first : first + len(block)] = block
        self.indices, self.is_pooled[:] = np.arange(n_rows), True
        self.duals = np.zeros((n, n_rows), dtype=np.float32)
        if start is not None:
            self.products = start.products
            self.duals[:, start.indices] = start.duals
            self.duals[np.isinf(self._targets(np.arange(n)))] = 0
            self.own[:] = start.own
            self._begin_at(start)

    def scan(self, waiting: NDArray[np.intp], n_violators: int, above: float, workers: Workers) -> Scan:
        """Look at all negatives for some of the exemplars."""
        room = self.budget.n_bytes // 8 // (12 * len(waiting))  # heaps take 12 bytes an entry
        n_violators = max(1, min(n_violators, self.problem.negatives.shape[0], room))
        look = Look(n_violators, above, self._scan_rows(len(waiting)))
        groups = self.problem.positive_groups[waiting]
        return scan(self.problem, self.weights[waiting], self.is_pooled, groups, look, workers)

    def evidence(self, waiting: NDArray[np.intp], found: Scan) -> tuple[F64, F64, F64]:
        """Criterion, relative duality gap and worst violation of the exemplars that were scanned."""
        o, margins = self.problem.objective, self.problem.margins
        weights = self.weights[waiting].astype(np.float64)
        square = np.einsum("nd,nd->n", weights, weights)
        missing = margins.positives[waiting] - np.einsum("nd,nd->n", weights, self.positives[waiting])
        primal = square / 2 + o.positive_cost * o.loss(missing) + o.negative_cost * found.loss
        dual = self._gain(waiting) - self.dual_squares[waiting] / 2
        gap = np.maximum(primal - dual, 0) / np.maximum(primal, np.finfo(np.float64).tiny)
        return primal, gap, np.maximum(found.worst, self.residual[waiting])

    def evict(self) -> None:
        """Drop the negatives that support no exemplar."""
        kept = np.flatnonzero((self.duals > 0).any(axis=0))
        self.is_pooled[self.indices] = False
        self.indices = self.indices[kept]
        self.is_pooled[self.indices] = True
        self.rows, self.duals = self.rows[kept], np.ascontiguousarray(self.duals[:, kept])

    def add(self, indices: Integers) -> None:
        """Take in new negatives."""
        if len(indices) == 0:
            return
        fresh = _augmented(self.problem.negatives.take(indices), self.problem.objective.bias_multiplier)
        self.rows = np.concatenate([self.rows, fresh])
        self.indices = np.concatenate([self.indices, indices])
        self.is_pooled[indices] = True
        self.duals = np.concatenate([self.duals, np.zeros((len(self), len(fresh)), dtype=np.float32)], axis=1)

    def has_room(self, n_new: int) -> bool:
        """Whether the budget allows for `n_new` more negatives."""
        if len(self) == 1 and not self.budget.is_strict:
            return True
        return self.n_bytes(n_new) <= self.budget.n_bytes

    def least_budget(self, n_new: int) -> int:
        """Bytes that allow for `n_new` more negatives; some arrays grow with the budget, so it is tried out."""
        while not self.has_room(n_new):
            self.budget = Budget(self.n_bytes(n_new))
        return self.budget.n_bytes

    def n_bytes(self, n_new: int) -> int:
        """Most memory that the pool and the work on it take once `n_new` negatives have come in."""
        n, n_pool, width = len(self), len(self.indices) + n_new, self.positives.shape[1]
        floats = 4 * n * width + self._scan_rows(n) * (n + width)  # weights and positives, and a block of a scan
        floats += n_pool * (2 * width + 2 * n + _BATCH_ARRAYS * self._batch(n_pool) * self._n_at_work)
        if self.problem.objective.is_squared:
            floats += 3 * width**2 * self._pays_to_invert(n)
            floats += n_pool * 2 * width * (self.dtype == np.float64)
        else:
            n_free = np.count_nonzero((self.duals > 0) & (self.duals < self.problem.objective.negative_cost), axis=1)
            floats += self._n_at_work * floats_of_a_part(n_pool, 2 * int(n_free.max(initial=0)), width)
        return 4 * floats

    def descend(self, waiting: NDArray[np.intp], tol: float, workers: Workers) -> None:
        """Optimise over the pool until the exemplars violate their conditions by at most `tol` there."""
        objective = self.problem.objective
        if objective.is_squared and not self.takes_newton_steps and self._pays_to_invert(len(waiting)):
            self._precondition(waiting)
        rows = self.rows.astype(self.dtype, copy=False)
        if self.takes_newton_steps:
            rows = rows[:, : self.positives.shape[1] - 1]

        if self.is_whole and self.grows_sets:
            waiting = self._grow_sets(waiting, tol, workers)
            if len(waiting) == 0:
                return
        if self.is_whole and self.visits_rows and not self.is_sure_of_visits:  # one tells whether it is worth while
            is_done = bool(self.visit_rows(waiting[:1], tol)[0])
            self.visits_rows = is_done and not self.is_for_newton(int(waiting[0]))
            waiting = waiting[int(is_done) :]
            if len(waiting) == 0:
                return

        def work(first: int, last: int) -> None:
            chosen = waiting[first:last]
            if self.is_whole and self.visits_rows:
                chosen = chosen[~self.visit_rows(chosen, tol)]
                if len(chosen) == 0:
                    return
            share = self._share(chosen, rows)
            if self.takes_newton_steps:
                found = descend_newton(share, self.weights[chosen], objective, tol, self.products)
                left = found.violations
            elif objective.is_squared:
                left = descend_squared(share, self.weights[chosen], objective, tol, self.inverse)
            else:
                left = descend_hinge(share, objective, tol)
            self.duals[chosen], self.own[chosen], self.residual[chosen] = share.duals, share.own, left
            if self.takes_newton_steps:
                self.weights[chosen], self.dual_squares[chosen] = found.weights, found.dual_squares
                self.found_products = found.products
            else:
                self._add_up(chosen)

        size = min(self._batch(len(self.rows)), -(-len(waiting) // workers.n))
        if self.is_whole and self.takes_newton_steps:
            size = max(1, min(self._whole_batch(), len(waiting)))
            size = -(-len(waiting) // -(-len(waiting) // size))
        workers.chunks(work, len(waiting), size)

    def grow_sets(self, chosen: NDArray[np.intp], tol: float, is_trial: bool = False) -> NDArray[np.bool_]:
        """Working sets that grow from nothing: who is done with one that is small enough."""
        n, width = len(chosen), self.positives.shape[1] - 1
        share = Share(
            self.rows[:, :width],
            self._targets(chosen),
            self.positives[chosen],
            self.problem.margins.positives[chosen].astype(np.float32),
            np.zeros((n, len(self.rows)), dtype=np.float32),
            np.zeros(n, dtype=np.float32),
        )
        found = descend_working_sets(share, self.problem.objective, tol, is_trial)
        done = chosen[found.is_done]
        self.duals[done], self.own[done] = share.duals[found.is_done], share.own[found.is_done]
        self.weights[done], self.residual[done] = found.weights[found.is_done], found.violations[found.is_done]
        added = found.weights[found.is_done] / (1 + found.stretches[found.is_done, None])
        self.dual_squares[done] = np.einsum("nd,nd->n", added, added)
        return found.is_done

    def _grow_sets(self, waiting: NDArray[np.intp], tol: float, workers: Workers) -> NDArray[np.intp]:
        """The same for many, once and where the first one says so; who is left."""
        is_worth_it = self._takes_over_first() or self.is_for_sets(int(waiting[0]), tol)
        self.grows_sets = False
        if not is_worth_it:
            return waiting
        waiting = waiting[1:]
        is_done = np.zeros(len(waiting), dtype=np.bool_)

        def work(first: int, last: int) -> None:
            is_done[first:last] = self.grow_sets(waiting[first:last], tol)

        workers.chunks(work, len(waiting), self._sets_together())
        return waiting[~is_done]

    def trained(self, j: int) -> Trained:
        """What is known of an exemplar of a pool of all negatives."""
        facts = float(self.residual[j]), float(self.dual_squares[j])
        return Trained(self.duals[j].copy(), self.own[j], self.weights[j].copy(), *facts)

    def _takes_over_first(self) -> bool:
        """Take over the first exemplar, if that is trained already."""
        if self.first is None:
            return False
        self.duals[0], self.own[0], self.weights[0] = self.first.duals, self.first.own, self.first.weights
        self.residual[0], self.dual_squares[0] = self.first.residual, self.first.dual_square
        self.first = None
        return True

    def is_for_sets(self, j: int, tol: float) -> bool:
        """Whether exemplars like this one, which is tried out, are faster by working sets."""
        if not self.grows_sets or self._sets_together() == 0:
            return False
        if not self.grow_sets(np.array([j]), tol, is_trial=True)[0]:
            return False
        n_support = int(np.count_nonzero(self.duals[j]))
        return is_small_enough(self.positives.shape[1], n_support, self.problem.objective.is_squared)

    def _sets_together(self) -> int:
        """Exemplars whose working sets grow together in one thread; 0 where a strict budget allows for none."""
        n_rows, width = len(self.rows), self.positives.shape[1]
        n_threads = max(self.n_threads, _PLANNED_THREADS) if self.budget.is_strict else _PLANNED_THREADS
        copies = int(held_in_memory(self.problem.negatives) is None)
        kept = 4 * n_rows * (copies * width + len(self)) + 16 * len(self) * width
        room = self.budget.n_bytes - kept - n_threads * step_bytes(width)
        fitting = room // (n_threads * (set_bytes(width) + 4 * _SET_ARRAYS * n_rows))
        return min(_SETS_TOGETHER, max(fitting, 0 if self.budget.is_strict else _LEAST_SETS))

    def visit_rows(self, chosen: NDArray[np.intp], tol: float) -> NDArray[np.bool_]:
        """Coordinate descent over all negatives: who is done before Newton steps would have been."""
        width = self.positives.shape[1] - 1  # rows may have the column of the bias
        share = self._share(chosen, np.ascontiguousarray(self.rows[:, :width]))
        squares, objective = self.problem.squares[self.indices], self.problem.objective
        found = descend_coordinates(share, squares, objective, _VISITS * tol)
        self.duals[chosen], self.own[chosen], self.residual[chosen] = share.duals, share.own, found.violations
        self.weights[chosen], self.dual_squares[chosen] = found.weights, found.dual_squares
        return found.is_done

    def is_for_newton(self, j: int) -> bool:
        """Whether exemplars like this one, which was visited, are faster by Newton steps."""
        n_free = np.count_nonzero(
            (self.duals[j] > 0) & (self.duals[j] < np.float32(self.problem.objective.negative_cost))
        )
        return is_for_newton(self.positives.shape[1] - 1, int(n_free))

    @property
    def is_whole(self) -> bool:
        """Whether all negatives are in the pool."""
        return len(self.indices) == self.problem.negatives.shape[0]

    def give_up_newton_steps(self) -> None:
        """Go on with the descents that are for any number of dimensions."""
        self.takes_newton_steps = self.visits_rows = self.grows_sets = False
        self.dtype = self._dtype()
        if self.rows.shape[1] < self.positives.shape[1]:
            self.rows = _augmented(self.rows, self.problem.objective.bias_multiplier)

    def _dtype(self) -> np.dtype[Any]:
        """float64 where the squared hinge is too steep for float32; Newton steps keep positives in float64 anyway."""
        objective = self.problem.objective
        if self.takes_newton_steps:
            is_steep = 2 * objective.negative_cost * self.longest_square > MAX_STIFFNESS
        else:
            is_steep = amplification(objective, self.longest_square) > _STEEP
        return np.dtype(np.float64 if objective.is_squared and is_steep else np.float32)

    def _part(self, chosen: NDArray[np.intp]) -> Pool:
        """State of some of the exemplars, without rows."""
        newton = self.takes_newton_steps
        part = Pool(self.problem.part(chosen), self.members[chosen], self.budget, self.n_threads, newton)
        part.weights, part.own, part.residual = self.weights[chosen], self.own[chosen], self.residual[chosen]
        part.dual_squares = self.dual_squares[chosen]
        part.visits_rows, part.grows_sets = self.visits_rows, self.grows_sets
        part.is_sure_of_visits = self.is_sure_of_visits
        duals = self.duals[chosen]
        kept = np.flatnonzero((duals > 0).any(axis=0))
        kept = kept[np.argsort(self.indices[kept])]  # as rows are read
        part.indices, part.duals = self.indices[kept], np.ascontiguousarray(duals[:, kept])
        part.is_pooled[part.indices] = True
        part.products = self.products
        part.inverse, part.inverted_support = self.inverse, self.inverted_support
        return part

    def _precondition(self, waiting: NDArray[np.intp]) -> None:
        """Invert the mean Hessian, unless that was done when there was about as much support as now."""
        shares = (self.duals[waiting] > 0).mean(axis=0, dtype=np.float32)
        n_support = float(shares.sum())
        if self.inverse is None or abs(n_support - self.inverted_support) > _OUTDATED * self.inverted_support:
            self.inverse = mean_hessian_inverse(self.rows, shares, self.problem.objective.negative_cost)
            self.inverted_support = n_support

    def _gain(self, waiting: NDArray[np.intp]) -> F64:
        """(n,) the dual objective without the square of the weights, in float64."""
        o, margins = self.problem.objective, self.problem.margins
        own = self.own[waiting].astype(np.float64)
        gain = own * margins.positives[waiting] - (own**2 / (4 * o.positive_cost) if o.is_squared else 0)
        for start in range(0, len(waiting), _MAX_BATCH):
            duals = self.duals[waiting[start : start + _MAX_BATCH]].astype(np.float64)
            gain[start : start + _MAX_BATCH] += duals @ margins.negatives[self.indices]
            if o.is_squared:
                gain[start : start + _MAX_BATCH] -= np.einsum("np,np->n", duals, duals) / (4 * o.negative_cost)
        return gain

    def _share(self, chosen: NDArray[np.intp], rows: NDArray[Any]) -> Share:
        return Share(
            rows,
            self._targets(chosen).astype(self.dtype, copy=False),
            self.positives[chosen].astype(self.dtype, copy=False),
            self.problem.margins.positives[chosen].astype(self.dtype),
            self.duals[chosen],
            self.own[chosen],
            may_copy=not self.budget.is_strict,
        )

    def _targets(self, chosen: NDArray[np.intp]) -> F32:
        """(n, P) margins, -inf for negatives of an exemplar's own group."""
        groups = self.problem.negative_groups[self.indices]
        margins = self.problem.margins.negatives[self.indices].astype(np.float32)
        return np.where(groups == self.problem.positive_groups[chosen, None], np.float32(-np.inf), margins)

    def _add_up(self, chosen: NDArray[np.intp]) -> None:
        """Weights from duals."""
        self.weights[chosen] = self.own[chosen, None] * self.positives[chosen] - combine(self.duals[chosen], self.rows)
        weights = self.weights[chosen].astype(np.float64)
        self.dual_squares[chosen] = np.einsum("nd,nd->n", weights, weights)

    def _begin_at(self, start: Start) -> None:
        """Weights to start from: Newton steps correct duals that do not add up to them, a descent of duals cannot."""
        if self.takes_newton_steps:
            self.weights[:] = start.weights
        else:
            self._add_up(np.arange(len(self)))

    def _whole_batch(self) -> int:
        """Exemplars whose Newton steps over all negatives fit into the budget together."""
        n, n_rows, width = len(self), self.problem.negatives.shape[0], self.positives.shape[1]
        doubled = 2 if self.dtype == np.float64 else 1
        copies = (held_in_memory(self.problem.negatives) is None) + 2 * (doubled - 1)
        kept = 4 * n_rows * (copies * width + n) + 4 * (4 * n * width + self._scan_rows(n) * (n + width))
        n_threads = max(self.n_threads, _PLANNED_THREADS)
        if self.budget.is_strict:  # else they come on top
            has_last_steps = not self.problem.objective.is_squared and width <= NEAR_WIDTH
            kept += 8 * (_NEWTON_MATRICES + MATRICES * has_last_steps) * width**2 * n_threads
        fitting = (self.budget.n_bytes - kept) // (4 * doubled * _NEWTON_ARRAYS * n_rows * n_threads)
        return max(0, min(_NEWTON_BATCH, fitting))

    @property
    def _n_at_work(self) -> int:
        """Threads that a descent can use: each takes exemplars of its own."""
        return min(self.n_threads, len(self))

    def _batch(self, n_pool: int) -> int:
        fitting = self.budget.n_bytes // 4 // (4 * _BATCH_ARRAYS * max(n_pool, 1) * self._n_at_work)
        return max(1, min(_MAX_BATCH, fitting, len(self)))

    def _scan_rows(self, n: int) -> int:
        return max(64, min(MAX_ROWS, self.budget.n_bytes // 32 // (n + self.positives.shape[1])))

    def _pays_to_invert(self, n: int) -> bool:
        return self.problem.has_alike_exemplars and n * _WORTH_INVERTING >= self.positives.shape[1]


def _longest_square(rows: F32) -> float:
    return float(np.einsum("nd,nd->n", rows, rows).max(initial=0.0))


def _augmented(rows: F32, multiplier: float) -> F32:
    """Rows with the constant that stands for the bias as a last column."""
    return np.concatenate([rows, np.full((len(rows), 1), multiplier, dtype=np.float32)], axis=1)
