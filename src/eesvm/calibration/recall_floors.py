"""The most recall within a budget for many detectors: a few recall floors, each searched as far as it helps.

In: a `CalibrationProblem` and a `RecallGoal`. Out: levels, a bound on what they leave out, and its certificate. At a
floor, the search for the least loss either finds thresholds within the budget or proves more and more loss; a
certificate for one floor is a line that bounds the recall within any budget (docs/maths.md, section 8). Floors lie
between what is known to be possible and what is proved to be impossible, first near the one, then near the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.threads import Workers
from eesvm.calibration.anytime import Run
from eesvm.calibration.certificate import Certificate
from eesvm.calibration.few_detectors import PricedProblem
from eesvm.calibration.goal import RecallGoal, recall_divisor
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.proofs.certified_recall import certified_left_out
from eesvm.calibration.search.branching import ExactSearch
from eesvm.calibration.search.filling import Filling
from eesvm.calibration.search.recall_search import beyond
from eesvm.calibration.search.reduce import cheap_box

_PLACES = (0.9, 0.5, 1.0, 0.75, 0.0)  # of the next floors between bound and solution
_SHARE = 0.3  # of the time that is left, for the next floor
_LEAST_FLOOR = 2.0**-10  # of a step: what is left out at the highest floor, next to nothing


@dataclass
class FloorsFound:
    """The best solution and the best bound so far, in recall units that are left out."""

    levels: NDArray[np.int32]
    left_out: float
    bound: float = 0.0
    certificate: Certificate | None = None


class _FloorRun(Run):
    """A search at one floor, which ends when it has found or refuted a solution within the budget."""

    least_found, least_refuted = -math.inf, math.inf

    def stop_reason(self) -> str | None:
        if self.loss <= self.least_found or self.lower_bound > self.least_refuted:
            return "feasible"
        return super().stop_reason()


class RecallByFloors:
    """The state of one search over floors."""

    def __init__(
        self,
        problem: CalibrationProblem,
        priced: PricedProblem,
        goal: RecallGoal,
        run: Run,
        workers: Workers,
        seed: int,
    ) -> None:
        self.problem, self.priced, self.goal = problem, priced, goal
        self.run, self.workers, self.seed = run, workers, seed
        self.permitted, self.provable = goal.allowance(problem), goal.allowance(problem, is_proof=True)
        self.step = max(float(recall_divisor(problem)), 2.0**-40 * self.provable.total)
        self.statistics: dict[str, Any] = {"floors": 0}

    def search(self, start: NDArray[np.int32] | None) -> tuple[FloorsFound, str]:
        """Search floor after floor, until solution and bound meet or a limit is reached."""
        ranked = self.priced.ranked
        fixed = math.fsum(self.priced.fixed_weights)
        most = beyond(self.provable, self.priced.unit, 0.0) - fixed
        self.filling = Filling(
            ranked, self.permitted.less(Fraction(fixed)), self.priced.limit, cheap_box(ranked, max(most, 0.0)).highest
        )
        nothing = np.zeros(ranked.n_exemplars, dtype=np.int32)
        self.found = FloorsFound(nothing, math.inf)
        for levels in [nothing] if start is None else [nothing, start]:
            self._offer(levels)
        if self.found.left_out == math.inf:
            return self.found, "optimal"
        status, n_vain = None, 0
        while status is None:
            before = self.found.left_out, self.found.bound
            self._search_floor(self._next_floor())
            self._record()
            n_vain = n_vain + 1 if before == (self.found.left_out, self.found.bound) else 0
            status = self.run.stop_reason()
            if status is None and n_vain > len(_PLACES) and self.run.time_limit is None:
                status = "feasible"  # what is between them is beyond what floors can tell
        return self.found, status

    def _next_floor(self) -> float:
        """Units to leave out, somewhere between the bound and one step less than now."""
        place = _PLACES[self.statistics["floors"] % len(_PLACES)]
        between = self.found.bound + place * (self.found.left_out - self.step - self.found.bound)
        return max(math.ceil(between / self.step) * self.step, self.found.bound, _LEAST_FLOOR * self.step)

    def _search_floor(self, left_out: float) -> None:
        """Search for the least loss if no more than `left_out` is left out."""
        ranked = replace(self.priced.ranked, left_out_budget=left_out)
        run = self._floor_run(left_out)
        # By shares alone: their prices say something of recall, hard positives do not.
        search = ExactSearch(ranked, run, self.priced.unit, self.workers, self.seed, by_core=False)
        levels, _ = search.search(self.found.levels)
        self.run.is_interrupted |= run.is_interrupted
        self.statistics["floors"] += 1
        self.run.n_nodes += run.n_nodes
        self._offer(levels)
        certificate = search.proof.certificate(self.priced.extended, self.priced.ranked, 1.0, search.quantum)
        bound = float(certified_left_out(self.problem, certificate, self.goal))
        if bound > self.found.bound or self.found.certificate is None:
            self.found.bound, self.found.certificate = max(bound, self.found.bound), certificate

    def _floor_run(self, left_out: float) -> _FloorRun:
        outer = self.run
        left = None if outer.time_limit is None else _SHARE * max(0.0, outer.time_limit - outer.seconds)
        run = _FloorRun(left, outer.node_limit)
        run.offset, run.is_interrupted = self.priced.ranked.fixed_loss, outer.is_interrupted
        run.least_found = float(self.permitted.at(int(left_out)))
        run.least_refuted = float(self.provable.at(int(left_out)))
        return run

    def _offer(self, levels: NDArray[np.int32]) -> None:
        """Take over levels, raised as far as the budget allows, if they are the best so far."""
        levels = self.filling.raised(levels)
        left_out = self.filling.left_out(levels)
        if left_out < self.found.left_out and self.filling.permits(levels):
            self.found.levels, self.found.left_out = levels, left_out
            self._record()

    def _record(self) -> None:
        self.run.record(self.found.left_out, min(self.found.left_out, self.found.bound))
