"""The least loss at a recall floor with few detectors in use.

In: a `CalibrationProblem`, a floor and `max_detectors`. Out: levels, a status and a certificate. First the search for
recall finds detectors that reach the floor at all, or proves that there are none; then prices on detectors are tried,
and the one with the best bound is searched to the end.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.threads import workers
from eesvm._support.validation import FloatArray, InputError
from eesvm.calibration.anytime import Run
from eesvm.calibration.certificate import Certificate
from eesvm.calibration.few_detectors import PricedProblem, priced_problem, total_weight, trial_run
from eesvm.calibration.goal import RecallGoal
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.ranks import RankedProblem, levels_to_thresholds, spare_budget, thresholds_to_levels
from eesvm.calibration.recall import most_recall
from eesvm.calibration.search.limited_search import LimitedSearch
from eesvm.calibration.units import is_optimal

_FACTORS = (0.01, 0.5, 1.0, 2.0)  # of the loss over the number of detectors: prices to try; the first is for solutions
_ABOUT_EQUAL = 1e-6  # of a bound

_Found = tuple[RankedProblem, Run, NDArray[np.int32], str, dict[str, Any], str, float, Certificate]


def least_loss_with_few(
    problem: CalibrationProblem,
    run: Run,
    min_recall: float,
    max_detectors: int,
    start: FloatArray | None,
    random_state: int,
    n_jobs: int | None,
) -> _Found:
    """Search; returns what makes up a result."""
    with run.patient_with_interrupts():
        thresholds = _reach_floor(problem, run, min_recall, max_detectors, start, random_state, n_jobs)
        best = -math.inf, 0.0  # a bound, and the scale of the price with which it was proved

        def search(scale: float, own: Run) -> tuple[LimitedSearch, PricedProblem, str]:
            nonlocal thresholds
            known = problem.loss(thresholds)
            priced = priced_problem(problem, min_recall, max_detectors, scale, n_jobs, most=known)
            found, levels, status = _search(problem, priced, own, thresholds, random_state, n_jobs)
            thresholds = _better(problem, thresholds, levels_to_thresholds(problem, priced.ranked.delta, levels))
            return found, priced, status

        def try_price(scale: float) -> None:
            nonlocal best
            trial = trial_run(run)
            with run.lent_to(trial):
                search(scale, trial)
            best = _better_price(best, (trial.lower_bound, scale))

        for factor in _FACTORS:
            try_price(factor * problem.loss(thresholds))
            if run.is_out_of_time():
                break
        before = math.inf
        while best[0] <= 0 and problem.loss(thresholds) < before / 2 and not run.is_out_of_time():
            before = problem.loss(thresholds)  # prices fit for much worse solutions cannot tell the good ones apart
            try_price(before)
        if best[0] <= 0:
            best = 0.0, problem.loss(thresholds)
        tried = {best[1]}
        found, priced, status = search(best[1], run)
        for factor in _FACTORS:
            loss = problem.loss(thresholds)
            is_proved = is_optimal(loss, run.lower_bound, priced.ranked.is_rounded)
            if is_proved or status != "optimal" or run.is_out_of_time():
                break
            # The search is complete, but rounding still leaves a gap; prices that fit this loss round less.
            if factor * loss in tried:
                continue
            tried.add(factor * loss)
            again = _rest_of(run)
            with run.lent_to(again):
                other, other_priced, status = search(factor * loss, again)
            if again.lower_bound > run.lower_bound:
                found, priced = other, other_priced
            run.offset = 0.0
            n_nodes, n_limited = run.n_nodes + again.n_nodes, run.n_limited + again.n_limited
            run.record(problem.loss(thresholds), again.lower_bound, n_nodes, n_limited)
        levels = thresholds_to_levels(problem, priced.ranked.delta, thresholds)
    certificate = found.proof.certificate(priced.extended, priced.ranked, min_recall, found.quantum, priced.price)
    return priced.ranked, run, levels, status, found.statistics, "exact", min_recall, certificate


def _rest_of(run: Run) -> Run:
    """What the limits of `run` leave for another search; if nothing is left, that search stops after one step."""
    seconds = None if run.time_limit is None else max(0.0, run.time_limit - run.seconds)
    nodes = None if run.node_limit is None else max(1, run.node_limit - run.n_limited)
    return Run(seconds, nodes, run.gap)


def _better_price(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Of two (bound, scale) the higher bound; if about equal, the smaller price, which loses less to rounding."""
    (bound, scale), (other_bound, other_scale) = one, other
    if min(bound, other_bound) > 0 and abs(bound - other_bound) <= _ABOUT_EQUAL * max(bound, other_bound):
        return other if other_scale < scale else one
    return other if other_bound > bound else one


def _reach_floor(
    problem: CalibrationProblem,
    run: Run,
    min_recall: float,
    max_detectors: int,
    start: FloatArray | None,
    random_state: int,
    n_jobs: int | None,
) -> FloatArray:
    """Thresholds that keep the limit and reach the floor; an `InputError` where there are none, or none were found."""
    enough = spare_budget(problem, min_recall)
    goal = RecallGoal(max_loss=total_weight(problem))
    first = Run(run.time_limit, run.node_limit)
    with run.lent_to(first):
        result = most_recall(problem, goal, first, start, random_state, n_jobs, max_detectors, enough)
    if not problem.is_feasible(result.thresholds, min_recall):
        is_one = max_detectors == 1
        who, verb = ("single detector", "reaches") if is_one else (f"{max_detectors} detectors", "reach")
        found = verb if result.status == "optimal" else f"{'was' if is_one else 'were'} found that {verb}"
        most = math.floor(1e6 * result.recall) / 1e6  # rounded down, so that it can be asked for
        raise InputError(
            f"no {who} {found} a recall of {min_recall:g}: the most is {most:g}; raise `max_detectors` or lower "
            "`min_recall`"
        )
    return result.thresholds


def _better(problem: CalibrationProblem, before: FloatArray, found: FloatArray) -> FloatArray:
    """The thresholds of less loss: a search whose weights were rounded may hold worse ones for as good."""
    return found if problem.loss(found) <= problem.loss(before) else before


def _search(
    problem: CalibrationProblem,
    priced: PricedProblem,
    run: Run,
    start: FloatArray,
    random_state: int,
    n_jobs: int | None,
) -> tuple[LimitedSearch, NDArray[np.int32], str]:
    run.offset = priced.ranked.fixed_loss - float(priced.paid_back)
    with workers(n_jobs) as threads:
        search = LimitedSearch(priced.ranked, run, priced.unit, threads, random_state, priced.limit)
        levels, status = search.search(thresholds_to_levels(problem, priced.ranked.delta, start))
    return search, levels, status
