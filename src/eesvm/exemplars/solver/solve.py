"""The loop: descend over the pool, look at all negatives, take in the violators, until there are none.

In: a `TrainingProblem`, a tolerance, a memory budget. Out: a `Solution` with duality gaps over all negatives.
Exemplars that are alike start from the SVM of their mean, which takes hardly any time to train and finds most of the
pool. Where the pool would outgrow the budget, the exemplars that are not done are split in two halves, each with a pool
of its own. A negative that supports nobody is dropped in the first rounds only; later the pool just grows, so that it
must settle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eesvm._support.threads import Workers
from eesvm._support.validation import InputError
from eesvm.exemplars.rows import ArrayRows
from eesvm.exemplars.solver.coordinate import may_be_for_newton
from eesvm.exemplars.solver.newton import MAX_WIDTH
from eesvm.exemplars.solver.pool import Pool, Start, Trained
from eesvm.exemplars.solver.problem import Budget, Margins, Solution, TrainingProblem
from eesvm.exemplars.solver.scan import MAX_ROWS, Scan

_FIRST_VIOLATORS = 8  # per exemplar, in the first scan; twice as many in every further one
_FIRST_ROWS = 256  # at least, where there are few exemplars
_EVICTING_ROUNDS = 8
_MAX_ROUNDS = 60
_NEWTON_ROUNDS = 3  # in which Newton steps may be taken
_LEAST_TOL = 1e-6  # of a descent; float32 has no more
_FEW = 8  # exemplars that are not worth a common start
_COMMON_TOL = 1e-2  # of that start
_HOPELESS = 3  # looks in a row that have found as many violators as were asked for: there will be too many
_HOPEFUL = 0.3  # of the margin: violations up to this say that there will not
_EASY = 0.04  # times the dimensions: supporting negatives, times how different exemplars are, of a pool that is fast
_MANY, _LEAST_MANY = 0.15, 1000  # share of the negatives, and number, from which on they are better taken all at once
_SAMPLE, _SAMPLE_PER_COLUMN = 2500, 4  # negatives, at least, that the mean exemplar is trained on for Newton steps
_ON_MARGIN = 1e-3  # so near to its margin a negative lies on it
_ROUNDING = 1e-2  # share of the tolerance that rounding may cost
_FEW_BITS = 8  # last bits of a score that rounding may take
_COMPANY = 2  # times what the mean exemplar needs are allowed for many, where the budget is not strict

Progress = Callable[[int, int], object]


def solve_together(
    problem: TrainingProblem, tol: float, budget: Budget, workers: Workers, progress: Progress | None = None
) -> Solution:
    """Train all exemplars of a problem; `progress` receives (exemplars done, scans so far)."""
    n, d = problem.positives.shape
    advice = _Advice(takes_newton_steps=d < MAX_WIDTH, visits_rows=True, grows_sets=True)
    if n >= _FEW and (problem.has_alike_exemplars or advice.takes_newton_steps):
        advice = _ask_one(problem, tol, budget, workers)
        if not budget.is_strict:  # splitting exemplars does not save what they have in common
            budget = Budget(max(budget.n_bytes, _COMPANY * advice.n_bytes), is_strict=False)
    training = _Training(problem, tol, workers, progress)
    pool = Pool(problem, np.arange(n), budget, workers.n, advice.takes_newton_steps)
    pool.visits_rows &= advice.visits_rows
    pool.grows_sets &= advice.grows_sets
    pool.first = advice.first
    pool.is_sure_of_visits = advice.is_sure_of_visits
    training.begin(pool, advice.start)
    return training.solution()


@dataclass(frozen=True)
class _Advice:
    """How to train exemplars, as far as one of them tells."""

    takes_newton_steps: bool = False  # over all negatives
    visits_rows: bool = False  # before
    grows_sets: bool = False  # before that
    start: Start | None = None  # what all can start from
    n_bytes: int = 0  # of memory that it took
    first: Trained | None = None  # the first exemplar, where it is trained already
    is_sure_of_visits: bool = False  # whether what holds for the one holds for all


class _Training:
    """What has been learned so far, about all exemplars."""

    def __init__(self, problem: TrainingProblem, tol: float, workers: Workers, progress: Progress | None) -> None:
        n, d = problem.positives.shape
        self.tol, self.workers, self.progress = tol, workers, progress
        self.weights, self.biases = np.zeros((n, d), dtype=np.float32), np.zeros(n, dtype=np.float32)
        self.objective, self.gap, self.violation = (np.full(n, np.inf) for _ in range(3))
        self.n_support, self.n_scans = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        self.n_violators = max(_FIRST_VIOLATORS, _FIRST_ROWS // n)
        self.added: Counter[int] = Counter()
        self.pool_size = self.n_looks = 0
        self.most_added: int | None = None  # negatives, beyond which `run` gives up
        self.difference = 0.0  # of exemplars that will start from what is learned, if any will
        self.n_full = 0  # looks in a row that have found as many violators as were asked for

    def begin(self, pool: Pool, start: Start | None) -> None:
        """Train the exemplars of an empty pool, in as many parts as the memory asks for."""
        if pool.can_hold_everything(self.n_violators):
            pool.hold_everything(start)
            self.pool_size = max(self.pool_size, len(pool.indices))
            self.run(pool, 0)
            return
        n_first = self.n_violators if start is None else len(start.indices)
        n_first = min(n_first, pool.problem.negatives.shape[0])
        if not pool.has_room(n_first):
            for part in _halves(pool, np.arange(len(pool)), n_first):
                self.begin(part, start)
            return
        if start is not None:
            pool.start_from(start)
        self.run(pool, 0)

    def run(self, pool: Pool, first_round: int) -> None:
        """Train the exemplars of a pool."""
        accuracy, waiting = _accuracy(self.tol), np.arange(len(pool))
        for round_ in range(first_round, _MAX_ROUNDS):
            if round_ - first_round >= _NEWTON_ROUNDS:  # what they do not solve is left to slower ways
                pool.give_up_newton_steps()
            pool.descend(waiting, accuracy, self.workers)
            if pool.is_whole and round_ == 0:
                self.added[0] += int((pool.duals > 0).any(axis=0).sum())
            n_asked = self.n_violators << min(round_, 16)
            found = pool.scan(waiting, n_asked, accuracy, self.workers)
            is_done = self._note(pool, waiting, found)
            is_full = len(found.rows) >= n_asked and not self._is_hopeful(pool, found)
            self.n_full = self.n_full + 1 if is_full else 0
            self._keep(pool, waiting[is_done])
            waiting = waiting[~is_done]
            if len(waiting) == 0:
                return
            if round_ < _EVICTING_ROUNDS and not pool.is_whole:
                pool.evict()
            if not pool.has_room(len(found.rows)):
                for part in _halves(pool, waiting, len(found.rows)):
                    self.run(part, round_)
                return
            pool.add(found.rows)
            self.added[round_] += len(found.rows)
            self.pool_size = max(self.pool_size, len(pool.indices))
            if self.gives_up:
                break
            if len(found.rows) == 0:  # many violations that are small add up to a gap that is not
                accuracy = max(accuracy / 4, _LEAST_TOL)
        self._keep(pool, waiting)

    @property
    def gives_up(self) -> bool:
        """Whether more negatives were taken in than is worth while, or clearly will be."""
        if self.most_added is None:
            return False
        return sum(self.added.values()) > self.most_added or self.n_full >= _HOPELESS

    def _is_hopeful(self, pool: Pool, found: Scan) -> bool:
        """Whether a pool will soon be large enough, and then be fast for those who start from what is learned."""
        n_support, width = np.count_nonzero(pool.duals[0]), pool.weights.shape[1]
        is_easy = self.difference * n_support <= _EASY * width and not pool.is_degenerate
        return is_easy and float(found.worst.max()) <= _HOPEFUL

    def solution(self) -> Solution:
        added = tuple(self.added[k] for k in range(max(self.added, default=-1) + 1))
        return Solution(
            self.weights,
            self.biases,
            self.objective,
            self.gap,
            self.violation,
            self.n_support,
            self.n_scans,
            added,
            self.pool_size,
        )

    def _note(self, pool: Pool, waiting: NDArray[np.intp], found: Scan) -> NDArray[np.bool_]:
        """Write down the evidence of a scan; returns who is done."""
        members = pool.members[waiting]
        primal, gap, violation = pool.evidence(waiting, found)
        self.objective[members], self.gap[members], self.violation[members] = primal, gap, violation
        self.n_looks += 1
        self.n_scans[members] += 1
        is_done = (gap <= self.tol) & (violation <= self.tol)
        if self.progress is not None:
            done = int(((self.gap <= self.tol) & (self.violation <= self.tol)).sum())
            self.progress(done, self.n_looks)
        return is_done

    def _keep(self, pool: Pool, chosen: NDArray[np.intp]) -> None:
        members = pool.members[chosen]
        self.weights[members], self.biases[members] = pool.weights[chosen, :-1], pool.biases[chosen]
        self.n_support[members] = (pool.duals[chosen] > 0).sum(axis=1)
        for j in members:
            self.biases[j] = self._rounded_up(pool.problem, j)

    def _rounded_up(self, problem: TrainingProblem, j: int) -> np.float32:
        """The bias of exemplar j, raised where rounding to float32 costs the positive more than `tol` allows.

        A positive that counts a million times pays for the last bit of its score; negatives pay less for a few bits.
        """
        costs, bias = problem.objective, self.biases[j]
        if costs.is_squared or costs.bias_multiplier == 0:
            return bias
        if costs.positive_cost <= costs.negative_cost * problem.negatives.shape[0]:
            return bias
        terms = problem.positives[j].astype(np.float64) * self.weights[j]
        lacks = problem.margins.positives[j] - (terms.sum() + float(bias))
        few_bits = _FEW_BITS * np.spacing(np.float32(abs(bias) + np.abs(terms).sum()))
        if not 0 < lacks <= few_bits or costs.positive_cost * lacks <= _ROUNDING * self.tol * self.objective[j]:
            return bias
        return np.nextafter(np.float32(bias + lacks), np.float32(np.inf))


def _halves(pool: Pool, waiting: NDArray[np.intp], n_new: int) -> Iterator[Pool]:
    """The exemplars that are not done as two pools, one after the other; an error where there is nothing to split."""
    if len(pool) == 1:
        given, needed = pool.budget.n_bytes, pool.least_budget(n_new)
        raise InputError(
            f"`memory_budget` is too small: one exemplar needs at least {needed:,} bytes, got {given:,}; "
            "None takes as much as is needed"
        )
    parts = pool.split([half for half in np.array_split(waiting, 2) if len(half)])
    while parts:
        part = parts.pop(0)
        part.wake()
        yield part
        part.release()


def _accuracy(tol: float) -> float:
    """Of a first descent."""
    return tol / 2


def _ask_one(problem: TrainingProblem, tol: float, budget: Budget, workers: Workers) -> _Advice:
    """Where few negatives have to be looked at closely, descents over a small pool win, else what looks at all of them.

    It is the mean exemplar that tells where exemplars are alike, and the others start from it; else the first. Newton
    steps always start from the mean one, trained on a sample of the negatives.
    """
    mean, first = _mean_problem(problem), problem.part(np.arange(1))
    loose = max(tol, _COMMON_TOL)
    pool = Pool(
        mean if problem.has_alike_exemplars else first, np.arange(1), budget, workers.n, takes_newton_steps=False
    )
    training = _Training(pool.problem, loose, workers, None)
    training.difference = problem.difference
    if problem.positives.shape[1] < MAX_WIDTH:
        training.most_added = max(_LEAST_MANY, int(_MANY * problem.negatives.shape[0]))
    training.begin(pool, None)
    if not training.gives_up and not (training.most_added and pool.is_degenerate):
        return _Advice(start=pool.as_start(), n_bytes=pool.n_bytes(0)) if problem.has_alike_exemplars else _Advice()
    is_for_newton = pool.is_for_newton(0)  # as far as is known: more duals between their bounds will be found
    pool = Pool(first, np.arange(1), budget, workers.n)
    if pool.grows_sets and pool.can_hold_everything(1):
        pool.hold_everything(None)
        if pool.is_for_sets(0, _accuracy(tol)):
            return _Advice(takes_newton_steps=True, visits_rows=True, grows_sets=True, first=pool.trained(0))
    pool = Pool(mean, np.arange(1), budget, workers.n)
    if pool.visits_rows and not is_for_newton and pool.can_hold_everything(1):
        pool.hold_everything(None)
        if pool.visit_rows(np.arange(1), loose).all() and not pool.is_for_newton(0):
            is_sure = problem.has_alike_exemplars or not may_be_for_newton(pool.positives.shape[1] - 1)
            return _Advice(takes_newton_steps=True, visits_rows=True, start=pool.as_start(), is_sure_of_visits=is_sure)
    sample = _sampled(mean, budget)
    pool = Pool(sample, np.arange(1), budget, workers.n)
    pool.visits_rows = pool.grows_sets = False
    _Training(sample, loose, workers, None).begin(pool, None)
    n_bytes = 0 if pool.is_whole else pool.n_bytes(0)
    return _Advice(takes_newton_steps=True, start=_spread(mean, pool), n_bytes=n_bytes)


def _sampled(problem: TrainingProblem, budget: Budget) -> TrainingProblem:
    """The same with every k-th negative, each of which counts k times; k is 1 where a copy of them would be large."""
    n, d = problem.negatives.shape
    step = n // max(_SAMPLE, _SAMPLE_PER_COLUMN * d)
    if step < 2 or 4 * d * (n // step) > budget.n_bytes / 2:
        return problem
    rows = np.arange(0, n, step)
    return replace(
        problem,
        negatives=ArrayRows(problem.negatives.take(rows)),
        objective=replace(problem.objective, negative_cost=problem.objective.negative_cost * n / len(rows)),
        margins=Margins(problem.margins.positives, problem.margins.negatives[rows]),
        squares=problem.squares[rows],
        negative_groups=problem.negative_groups[rows],
    )


def _spread(problem: TrainingProblem, pool: Pool) -> Start:
    """What was found on a sample as a start on all negatives: on which side of its margin a row is says its dual."""
    known = pool.as_start()
    if pool.problem is problem:
        return known
    o, count = problem.objective, pool.problem.negatives.shape[0] / problem.negatives.shape[0]
    scores = np.concatenate([block @ known.weights[:-1] for _, block in problem.negatives.blocks(MAX_ROWS)])
    slopes = problem.margins.negatives + scores + known.weights[-1] * o.bias_multiplier
    on_margin = min(count * float(known.duals.mean()) if len(known.duals) else 0.0, o.negative_cost)
    duals = np.where(slopes > _ON_MARGIN, o.negative_cost, np.where(slopes < -_ON_MARGIN, 0.0, on_margin))
    rows = np.flatnonzero(duals)
    products = None  # of the hinge other rows are between their bounds when it begins
    if o.is_squared and known.products is not None:
        products = known.products / count
    return Start(rows, duals[rows].astype(np.float32), known.own, known.weights, products)


def _mean_problem(problem: TrainingProblem) -> TrainingProblem:
    """The same for the mean exemplar, which is of no group."""
    mean = problem.positives.mean(axis=0, keepdims=True)
    margins = Margins(problem.margins.positives.mean(keepdims=True), problem.margins.negatives)
    nobody = np.array([problem.negative_groups.min() - 1])
    return replace(problem, positives=mean, margins=margins, positive_groups=nobody)
