"""The most recall within a budget: the search for few detectors, and recall floors for many.

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
from eesvm.calibration.few_detectors import PricedProblem, priced_problem, total_weight, trial_run
from eesvm.calibration.goal import RecallGoal, recall_divisor, recall_of_left_out
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.ranks import RankedProblem, levels_to_thresholds, rank, thresholds_to_levels
from eesvm.calibration.recall_floors import RecallByFloors
from eesvm.calibration.result import CalibrationResult
from eesvm.calibration.search.column_search import MOST_EXEMPLARS
from eesvm.calibration.search.recall_search import RecallSearch

_FACTORS = (1.0, 2.0, 4.0)  # of the budget over the number of detectors: prices to try


def most_recall(
    problem: CalibrationProblem,
    goal: RecallGoal,
    run: Run,
    start: FloatArray | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    max_detectors: int | None = None,
    enough: float = -math.inf,
) -> CalibrationResult:
    """Thresholds that cover as much as the goal allows, and a bound on what any can cover.

    `enough` ends the search, with the status "enough", when no more recall units than that are left out.
    """
    with run.patient_with_interrupts():
        _check_budget(problem, goal)
        scale = min(float(goal.allowance(problem).at(0)), total_weight(problem))
        if max_detectors is not None and max_detectors < problem.n_exemplars:
            scale, start = _best_scale(problem, goal, run, start, random_state, n_jobs, max_detectors, enough, scale)
        most = float(goal.allowance(problem, is_proof=True).at(0))
        priced = priced_problem(problem, None, max_detectors, scale, n_jobs, most)
        found = _search(problem, priced, goal, run, start, random_state, n_jobs, enough)
    return _finish(problem, goal, priced.ranked, run, found, max_detectors)


def _best_scale(
    problem: CalibrationProblem,
    goal: RecallGoal,
    run: Run,
    start: FloatArray | None,
    random_state: int,
    n_jobs: int | None,
    max_detectors: int,
    enough: float,
    scale: float,
) -> tuple[float, FloatArray | None]:
    """Try prices on detectors; returns the scale with the best bound, and the best thresholds met on the way."""
    best: tuple[float, float] | None = None
    most = float(goal.allowance(problem, is_proof=True).at(0))
    for factor in _FACTORS:
        priced = priced_problem(problem, None, max_detectors, factor * scale, n_jobs, most)
        trial = trial_run(run)
        with run.lent_to(trial):
            found = _search(problem, priced, goal, trial, start, random_state, n_jobs, enough)
        thresholds = levels_to_thresholds(problem, priced.ranked.delta, found.levels)
        if start is None or problem.recall(thresholds) > problem.recall(start) or not goal.permits(problem, start):
            start = thresholds
        if best is None or found.left_out_bound > best[0]:
            best = found.left_out_bound, factor * scale
        if found.status in ("optimal", "enough") or run.is_out_of_time():
            break
    assert best is not None
    return best[1], start


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
    priced: PricedProblem,
    goal: RecallGoal,
    run: Run,
    start: FloatArray | None,
    random_state: int,
    n_jobs: int | None,
    enough: float,
) -> _Found:
    ranked = priced.ranked
    run.scale, run.whole = 1 / float(problem.recall_units.sum()), 1.0
    run.offset = float(problem.recall_units[problem.orphans()].sum()) * run.scale
    start_levels = None if start is None else thresholds_to_levels(problem, ranked.delta, start)
    if ranked.n_exemplars > MOST_EXEMPLARS and not priced.limit.is_free.any():
        return _by_floors(problem, priced, goal, run, start_levels, random_state, n_jobs)
    with workers(n_jobs) as threads:
        search = RecallSearch(
            ranked,
            run,
            goal.allowance(problem),
            goal.allowance(problem, is_proof=True),
            priced.fixed_weights,
            priced.unit,
            recall_divisor(problem),
            threads,
            random_state,
            priced.limit,
            enough,
        )
        levels, status = search.search(start_levels)
    _check_found(problem, goal, search.loss, status)
    certificate = search.proof.certificate(priced.extended, ranked, 1.0, search.quantum, priced.price)
    return _Found(levels, status, search.bound, search.statistics, certificate)


def _by_floors(
    problem: CalibrationProblem,
    priced: PricedProblem,
    goal: RecallGoal,
    run: Run,
    start: NDArray[np.int32] | None,
    random_state: int,
    n_jobs: int | None,
) -> _Found:
    with workers(n_jobs) as threads:
        search = RecallByFloors(problem, priced, goal, run, threads, random_state)
        found, status = search.search(start)
    _check_found(problem, goal, found.left_out, status)
    assert found.certificate is not None
    return _Found(found.levels, status, found.bound, search.statistics, found.certificate)


def _check_found(problem: CalibrationProblem, goal: RecallGoal, left_out: float, status: str) -> None:
    """Refuse a goal at which nothing is accepted."""
    if left_out == math.inf or (left_out == goal.allowance(problem).total and status == "optimal"):
        raise InputError(_what_can_be_met(problem, goal))


def _check_budget(problem: CalibrationProblem, goal: RecallGoal) -> None:
    """Refuse a goal that nobody can meet, as far as that is plain."""
    if goal.max_loss is not None and not goal.permits(problem, problem.upper_thresholds):
        raise InputError(
            f"`max_loss` must be >= {problem.loss(problem.upper_thresholds):g}, the loss that `upper_thresholds` cause "
            f"in any case, got {goal.max_loss:g}"
        )


def _what_can_be_met(problem: CalibrationProblem, goal: RecallGoal) -> str:
    """The sentence about a goal at which nothing is accepted, with one at which something is."""
    ranked = rank(costs_as_negatives(problem), None)
    if len(ranked.coverable) == 0:
        return "no detector may cover any positive, by `forbidden`, `lower_thresholds` or missing scores"
    if goal.max_loss is not None:
        least = float(ranked.difficulty[ranked.coverable].min()) + ranked.fixed_loss
        return f"no thresholds accept a positive at {goal}: the cheapest positive needs {least:g}"
    best = max(_best_precision(problem, ranked, j) for j in range(ranked.n_exemplars))
    return f"no thresholds accept a positive at {goal}: single detectors reach {best:.4g}"


def _best_precision(problem: CalibrationProblem, ranked: RankedProblem, exemplar: int) -> float:
    """The best precision that one detector has at any threshold, if the others accept no more than they must."""
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
    problem: CalibrationProblem,
    goal: RecallGoal,
    ranked: RankedProblem,
    run: Run,
    found: _Found,
    max_detectors: int | None,
) -> CalibrationResult:
    """Turn levels into thresholds and judge them by the scores themselves, independently of the search."""
    thresholds = levels_to_thresholds(problem, ranked.delta, found.levels)
    is_within = max_detectors is None or problem.in_use(thresholds).sum() <= max_detectors
    if not is_within or not goal.permits(problem, thresholds):
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
        statistics=found.statistics
        | {
            "is_interrupted": run.is_interrupted,
            "n_positives": problem.n_positives,
            "n_negatives": problem.n_negatives,
        },
        certificate=found.certificate,
        max_loss=goal.max_loss,
        min_precision=goal.min_precision,
        max_detectors=max_detectors,
        recall_bound=max(recall, recall_of_left_out(problem, found.left_out_bound)),
    )
