"""The loop: descend over the pool, look at all negatives, take in the violators, until there are none.

In: a `Problem`, a tolerance, a memory budget. Out: a `Solution` whose duality gaps are measured over all negatives.
Exemplars that are alike start from the SVM of their mean, which takes hardly any time to train and finds most of the
pool. Where the pool would outgrow the budget, the exemplars that are not done are split in two halves, each with a pool
of its own. A negative that supports nobody is dropped in the first rounds only; later the pool just grows, so that it
must settle.

Before: `pool`. After: `exemplars`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from eesvm._linear_svm.pool import Pool
from eesvm._linear_svm.problem import Margins, Problem, Solution
from eesvm._linear_svm.scan import Scan
from eesvm._threads import Workers
from eesvm._validation import InputError

_FIRST_VIOLATORS = 8  # per exemplar, in the first scan; twice as many in every further one
_FIRST_ROWS = 256  # at least, where there are few exemplars
_EVICTING_ROUNDS = 8
_MAX_ROUNDS = 60
_LEAST_TOL = 1e-6  # of a descent; float32 has no more
_FEW = 8  # exemplars that are not worth a common start
_COMMON_TOL = 1e-2  # of that start

Progress = Callable[[int, int], object]


def solve_together(
    problem: Problem, tol: float, memory_budget: int, workers: Workers, progress: Progress | None = None
) -> Solution:
    """Train all exemplars of a problem; `progress` receives (exemplars done, scans so far)."""
    n = len(problem.positives)
    pool = Pool(problem, np.arange(n), memory_budget, workers.n)
    _check_room(pool, min(problem.negatives.shape[0], _first_violators(n)))
    if n >= _FEW and problem.has_alike_exemplars:
        pool.start_from(_common_pool(problem, max(tol, _COMMON_TOL), memory_budget, workers))
    training = _Training(problem, tol, workers, progress)
    training.run(pool, np.arange(n), 0)
    return training.solution()


class _Training:
    """What has been learned so far, about all exemplars."""

    def __init__(self, problem: Problem, tol: float, workers: Workers, progress: Progress | None) -> None:
        n, d = problem.positives.shape
        self.tol, self.workers, self.progress = tol, workers, progress
        self.weights, self.biases = np.zeros((n, d), dtype=np.float32), np.zeros(n, dtype=np.float32)
        self.objective, self.gap, self.violation = (np.full(n, np.inf) for _ in range(3))
        self.n_support, self.n_scans = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        self.added: Counter[int] = Counter()
        self.pool_size = self.n_looks = 0

    def run(self, pool: Pool, waiting: NDArray[np.intp], first_round: int) -> None:
        """Train the `waiting` exemplars of a pool."""
        accuracy = self.tol / 2
        n_violators = _first_violators(len(pool))
        for round_ in range(first_round, _MAX_ROUNDS):
            pool.descend(waiting, accuracy, self.workers)
            found = pool.scan(waiting, n_violators << min(round_, 16), accuracy, self.workers)
            is_done = self._note(pool, waiting, found)
            self._keep(pool, waiting[is_done])
            waiting = waiting[~is_done]
            if len(waiting) == 0:
                return
            if round_ < _EVICTING_ROUNDS:
                pool.evict()
            if pool.n_bytes(len(found.rows)) > pool.memory_budget:
                self._split(pool, waiting, found, round_)
                return
            pool.add(found.rows)
            self.added[round_] += len(found.rows)
            self.pool_size = max(self.pool_size, len(pool.indices))
            if len(found.rows) == 0:  # many violations that are small add up to a gap that is not
                accuracy = max(accuracy / 4, _LEAST_TOL)
        self._keep(pool, waiting)

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

    def _split(self, pool: Pool, waiting: NDArray[np.intp], found: Scan, round_: int) -> None:
        if len(pool) == 1:
            _check_room(pool, len(found.rows))
        parts = pool.split([half for half in np.array_split(waiting, 2) if len(half)])
        while parts:
            part = parts.pop(0)
            part.wake()
            self.run(part, np.arange(len(part)), round_)


def _first_violators(n_exemplars: int) -> int:
    """To look for in the first scan, per exemplar."""
    return max(_FIRST_VIOLATORS, _FIRST_ROWS // n_exemplars)


def _common_pool(problem: Problem, tol: float, memory_budget: int, workers: Workers) -> Pool:
    """The pool of the mean exemplar, trained."""
    mean = problem.positives.mean(axis=0, keepdims=True)
    margins = Margins(problem.margins.positives.mean(keepdims=True), problem.margins.negatives)
    nobody = np.array([problem.negative_groups.min() - 1])
    alone = replace(problem, positives=mean, margins=margins, positive_groups=nobody)
    pool = Pool(alone, np.arange(1), memory_budget, workers.n)
    _Training(alone, tol, workers, None).run(pool, np.arange(1), 0)
    return pool


def _check_room(pool: Pool, n_new: int) -> None:
    needed = pool.n_bytes(n_new)
    if needed > pool.memory_budget:
        noun = "one exemplar needs" if len(pool) == 1 else f"{len(pool)} exemplars need"
        raise InputError(f"`memory_budget` is too small: {noun} at least {needed:,} bytes, got {pool.memory_budget:,}")
