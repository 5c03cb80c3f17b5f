"""The most recall within a budget: the search for few exemplars, and recall floors for many.

In: a `CalibrationProblem` and a `RecallGoal`. Out: a `CalibrationResult` with `recall` and `recall_bound`, whose
thresholds have been checked against the scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.threads import workers
from eesvm._support.validation import FloatArray, InputError
from eesvm.calibration.anytime import Run
from eesvm.calibration.certificate import Certificate
from eesvm.calibration.detector_costs import costs_as_negatives
from eesvm.calibration.goal import RecallGoal, recall_divisor, recall_of_left_out
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.ranks import RankedProblem, levels_to_thresholds, rank, thresholds_to_levels
from eesvm.calibration.result import CalibrationResult
from eesvm.calibration.search.column_search import MOST_EXEMPLARS  # noqa
from eesvm.calibration.search.recall_search import RecallSearch
from eesvm.calibration.units import common_unit


def most_recall(
    problem: CalibrationProblem,
    goal: RecallGoal,
    run: Run,
    start: FloatArray | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> CalibrationResult:
    """Thresholds that cover as much as the goal allows, and a bound on what any can cover."""
    with run.patient_with_interrupts():
        ranked = rank(costs_as_negatives(problem), None, n_jobs)
        _check_budget(problem, ranked, goal)
        run.scale, run.whole = 1 / float(problem.recall_units.sum()), 1.0
        run.offset = float(problem.recall_units[problem.orphans()].sum()) * run.scale
        found = _search(problem, ranked, goal, run, start, random_state, n_jobs)
    return _finish(problem, goal, ranked, run, found)


@dataclass(frozen=True)
class _Found:
    """What a search returns."""

    levels: NDArray[np.int32]
    status: str
    left_out_bound: float  # units, of positives that somebody may cover
    statistics: dict[str, Any]
    certificate: Certificate


def _search(
    problem: CalibrationProblem,
    ranked: RankedProblem,
    goal: RecallGoal,
    run: Run,
    start: FloatArray | None,
    random_state: int,
    n_jobs: int | None,
) -> _Found:
    extended = costs_as_negatives(problem)
    with workers(n_jobs) as threads:
        search = RecallSearch(
            ranked,
            run,
            goal.allowance(problem),
            goal.allowance(problem, is_proof=True),
            extended.negative_weights[extended.forced()],
            common_unit(extended.negative_weights),
            recall_divisor(problem),
            threads,
            random_state,
        )
        levels, status = search.search(None if start is None else thresholds_to_levels(problem, ranked.delta, start))
    if search.loss == math.inf or (search.loss == goal.allowance(problem).total and status == "optimal"):
        raise InputError(_what_can_be_met(problem, ranked, goal))
    certificate = search.proof.certificate(extended, ranked, 1.0, search.quantum)
    return _Found(levels, status, search.bound, search.statistics, certificate)


def _check_budget(problem: CalibrationProblem, ranked: RankedProblem, goal: RecallGoal) -> None:
    """Refuse a goal that nobody can meet, as far as that is plain."""
    if goal.max_loss is not None and not goal.permits(problem, problem.upper_thresholds):
        raise InputError(
            f"`max_loss` must be >= {ranked.fixed_loss:g}, the weight of the negatives that `upper_thresholds` accept "
            f"in any case, got {goal.max_loss:g}"
        )


def _what_can_be_met(problem: CalibrationProblem, ranked: RankedProblem, goal: RecallGoal) -> str:
    """The sentence about a goal at which nothing is accepted, with one at which something is."""
    if len(ranked.coverable) == 0:
        return "no exemplar may cover any positive, by `forbidden`, `lower_thresholds` or missing scores"
    if goal.max_loss is not None:
        least = float(ranked.difficulty[ranked.coverable].min()) + ranked.fixed_loss
        return f"no thresholds accept a positive at {goal}: the cheapest positive needs {least:g}"
    best = max(_best_precision(problem, ranked, j) for j in range(ranked.n_exemplars))
    return f"no thresholds accept a positive at {goal}: single exemplars reach {best:.4g}"


def _best_precision(problem: CalibrationProblem, ranked: RankedProblem, exemplar: int) -> float:
    """The best precision that one exemplar has at any threshold, if the others accept no more than they must."""
    delta = ranked.delta[ranked.coverable, exemplar]
    order = np.argsort(delta, kind="stable")
    order = order[delta[order] <= ranked.order.shape[1]]
    if len(order) == 0:
        return 0.0
    gained = np.cumsum(problem.positive_weights[ranked.coverable][order])
    cumulated = np.concatenate([[0.0], np.cumsum(ranked.prices[ranked.order[exemplar]].astype(np.float64))])
    paid = cumulated[delta[order]] + ranked.fixed_loss
    return float((gained / (gained + paid)).max())


def _finish(
    problem: CalibrationProblem, goal: RecallGoal, ranked: RankedProblem, run: Run, found: _Found
) -> CalibrationResult:
    """Turn levels into thresholds and judge them by the scores themselves, independently of the search."""
    thresholds = levels_to_thresholds(problem, ranked.delta, found.levels)
    if not goal.permits(problem, thresholds):
        raise RuntimeError("the search returned thresholds that are not within the budget: this is a bug")
    recall = problem.recall(thresholds)
    return CalibrationResult(
        thresholds=thresholds,
        loss=problem.loss(thresholds),
        lower_bound=0.0,
        status=found.status,
        method="exact",
        assignment=problem.assign(thresholds),
        recall=recall,
        n_nodes=run.n_nodes,
        seconds=run.seconds,
        history=run.history,
        statistics=found.statistics | {"n_positives": problem.n_positives, "n_negatives": problem.n_negatives},
        certificate=found.certificate,
        max_loss=goal.max_loss,
        min_precision=goal.min_precision,
        recall_bound=max(recall, recall_of_left_out(problem, found.left_out_bound)),
    )
