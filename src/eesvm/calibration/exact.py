"""solve(): one front for every search; the answer always carries its loss, a bound, the gap and why it stopped.

In: a `CalibrationProblem` and limits. Out: a `CalibrationResult` whose thresholds have been checked against the scores.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm._support.threads import workers
from eesvm._support.validation import InputError, check_choice, check_number
from eesvm.calibration.anytime import ProgressCallback, Run
from eesvm.calibration.certificate import Certificate
from eesvm.calibration.choices import SEARCH_METHODS
from eesvm.calibration.detector_costs import costs_as_negatives
from eesvm.calibration.few_detectors import check_max_detectors
from eesvm.calibration.floor_with_few import least_loss_with_few
from eesvm.calibration.goal import RecallGoal
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.proofs.certified_bound import certified_bound
from eesvm.calibration.quanta import rank_whole
from eesvm.calibration.ranks import RankedProblem, levels_to_thresholds, thresholds_to_levels
from eesvm.calibration.recall import most_recall
from eesvm.calibration.result import CalibrationResult
from eesvm.calibration.search.algorithm1 import ALL_OBSERVATIONS, algorithm1, tree_levels
from eesvm.calibration.search.bounds import max_min_bound
from eesvm.calibration.search.branching import ExactSearch
from eesvm.calibration.search.column_search import MOST_EXEMPLARS, ColumnSearch
from eesvm.calibration.search.exhaustive import exhaustive
from eesvm.calibration.search.heuristics import first_leaf
from eesvm.calibration.units import common_unit, is_optimal

_TINY = 2.0**-900  # a quantum at which the price of leaving a positive out may be too small for a float


def solve(
    problem: CalibrationProblem,
    method: str = "exact",
    time_limit: float | None = None,
    gap: float = 0.0,
    min_recall: float = 1.0,
    start: ArrayLike | None = None,
    progress: ProgressCallback | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    *,
    node_limit: int | None = None,
    observations: Collection[int] = ALL_OBSERVATIONS,
    skip_satisfied: bool = True,
    max_loss: float | None = None,
    min_precision: float | None = None,
    max_detectors: int | None = None,
) -> CalibrationResult:
    """Find one threshold per detector that covers the positives at the least loss, or as many as a budget allows.

    Parameters
    ----------
    problem : the scores, weights, forbidden pairs and bounds on the thresholds.
    method : "exact" (the default: dual bound, neighbourhood search and branching, with a certificate), "algorithm1"
        (the paper's search), "exhaustive" (its full tree, for tiny problems) or "greedy" (Algorithm 1's first leaf).
    time_limit : seconds after which the best solution so far is returned; Ctrl-C has the same effect at any time. The
        clock is looked at once the scores are ranked (about a second for 10 million of them) and then all along; it
        does not run while kernels are compiled, which happens once in an installation.
    gap : stop when (loss - lower_bound) / loss is proven to be at most this.
    min_recall : share of the positives' weight that must be covered, in (0, 1].
    start : (E,) thresholds to begin with; what they leave uncovered is covered first, and what lies out of bounds is
        moved to the nearest bound. They need not come from the same problem: after windows were added or removed the
        old thresholds are a good start as they are, and detectors that are new start at +inf (from a dictionary by
        name: `[old.get(name, np.inf) for name in names]`). "exact" and "algorithm1" only.
    progress : called with a `Progress` a few times a second and at every improvement.
    random_state : seeds the neighbourhood search of "exact", and the order of the positives of Algorithm 1 when
        observation 4 is off.
    n_jobs : threads, None for one per core; without a time limit the result does not depend on it.
    node_limit : stop after this many nodes of the tree; the path to the first leaf is walked in any case. Of "exact" it
        counts the boxes whose bound is climbed; what is searched depth first within a box has limits of its own.
    observations : which of the paper's observations 1 to 4 Algorithm 1 uses.
    skip_satisfied : give a positive that is accepted already one child instead of one per detector (see `algorithm1`).
    max_loss : cover as much of the positives' weight as is possible at this loss; the result's `recall_bound` says what
        no thresholds can exceed. With it or `min_precision` there is no `min_recall`, and "exact" is the only method.
    min_precision : cover as much as is possible while accepted positives make up this share, in (0, 1], of the weight
        of all that is accepted.
    max_detectors : how many detectors may be in use, that is, have a threshold below +inf; "exact" only.
    """
    if not isinstance(problem, CalibrationProblem):
        raise InputError(f"`problem` must be a CalibrationProblem, got {type(problem).__name__}")
    check_search_options(method, time_limit, gap, min_recall, random_state, n_jobs, node_limit, observations)
    if start is not None:
        start = problem.check_thresholds(start, "start")
        if method in ("exhaustive", "greedy"):
            raise InputError(f"`start` has no use with method={method!r}")
    goal = check_goal(max_loss, min_precision, min_recall, method)
    if min_precision is not None and problem.detector_cost.any():
        raise InputError("`min_precision` and `detector_cost` exclude each other: precision knows of no other costs")
    check_max_detectors(problem, max_detectors)
    if max_detectors is not None and method != "exact":
        raise InputError(f"`max_detectors` needs method='exact', got {method!r}")
    run = Run(time_limit, node_limit, gap, progress)
    if goal is not None:
        return most_recall(problem, goal, run, start, random_state, n_jobs, max_detectors)
    if max_detectors is not None and max_detectors < problem.n_exemplars:
        found = least_loss_with_few(problem, run, min_recall, max_detectors, start, random_state, n_jobs)
        return _finish(problem, *found, max_detectors)
    with run.patient_with_interrupts():
        extended = costs_as_negatives(problem)
        ranked, whole = rank_whole(extended, min_recall, n_jobs, only_useful=method == "exact")
        run.offset = ranked.fixed_loss
        start_levels = None if start is None else thresholds_to_levels(problem, ranked.delta, start)
        if method == "exact":
            levels, status, statistics, certificate = _exact(
                whole, ranked, run, start_levels, min_recall, random_state, n_jobs
            )
        else:
            levels, status, statistics = _search(
                ranked, run, method, start_levels, observations, skip_satisfied, random_state
            )
            certificate = None
    return _finish(problem, ranked, run, levels, status, statistics, method, min_recall, certificate, max_detectors)


def _exact(
    problem: CalibrationProblem,
    ranked: RankedProblem,
    run: Run,
    start: NDArray[np.int32] | None,
    min_recall: float,
    random_state: int,
    n_jobs: int | None,
) -> tuple[NDArray[np.int32], str, dict[str, Any], Certificate]:
    unit = common_unit(problem.negative_weights[problem.negative_weights < ranked.cap])
    with workers(n_jobs) as threads:
        by_columns = ranked.left_out_budget > 0 and ranked.n_exemplars <= MOST_EXEMPLARS
        search = (ColumnSearch if by_columns else ExactSearch)(ranked, run, unit, threads, random_state)
        levels, status = search.search(start)
    certificate = search.proof.certificate(problem, ranked, min_recall, search.quantum)
    return levels, status, search.statistics, certificate


def _search(
    ranked: RankedProblem,
    run: Run,
    method: str,
    start: NDArray[np.int32] | None,
    observations: Collection[int],
    skip_satisfied: bool,
    random_state: int,
) -> tuple[NDArray[np.int32], str, dict[str, Any]]:
    if method == "exhaustive":
        return exhaustive(ranked, run)
    if method == "greedy":
        return _greedy(ranked, run)
    return algorithm1(ranked, run, frozenset(observations), skip_satisfied, start, random_state)


def _greedy(ranked: RankedProblem, run: Run) -> tuple[NDArray[np.int32], str, dict[str, Any]]:
    """The first leaf alone, optimal only where the simple bound happens to meet it."""
    sequence = tree_levels(ranked, ALL_OBSERVATIONS)
    levels, loss = first_leaf(ranked, sequence, run)
    run.record(loss, max_min_bound(ranked), len(sequence) + 1)
    statistics = {"depth": len(sequence), "depth_removed": len(ranked.coverable) - len(sequence)}
    reason = run.stop_reason()
    return levels, "feasible" if reason in (None, "node_limit") else reason, statistics


def _finish(
    problem: CalibrationProblem,
    ranked: RankedProblem,
    run: Run,
    levels: NDArray[np.int32],
    status: str,
    statistics: dict[str, Any],
    method: str,
    min_recall: float,
    certificate: Certificate | None = None,
    max_detectors: int | None = None,
) -> CalibrationResult:
    """Turn levels into thresholds and judge them by the scores themselves, independently of the search."""
    thresholds = levels_to_thresholds(problem, ranked.delta, levels)
    if not problem.is_feasible(thresholds, min_recall):
        raise RuntimeError("the search returned thresholds that are not feasible: this is a bug")
    loss = problem.loss(thresholds)
    lower_bound = run.lower_bound
    if certificate is not None:
        if ranked.quantum < _TINY and ranked.left_out_budget > 0:  # what is proved depends on how prices are rounded
            lower_bound = certified_bound(problem, certificate, max_detectors)
        if status == "optimal" and not is_optimal(loss, lower_bound, ranked.is_rounded):
            status = "feasible"  # all is searched, but the weights are too small, or too far apart, for a proof
    return CalibrationResult(
        thresholds=thresholds,
        loss=loss,
        lower_bound=min(lower_bound, loss),
        status=status,
        method=method,
        assignment=problem.assign(thresholds),
        recall=problem.recall(thresholds),
        n_nodes=run.n_nodes,
        seconds=run.seconds,
        history=run.history,
        statistics=statistics
        | {
            "is_interrupted": run.is_interrupted,
            "n_positives": problem.n_positives,
            "n_negatives": problem.n_negatives,
        },
        certificate=certificate,
        min_recall=min_recall,
        max_detectors=max_detectors,
    )


def check_goal(
    max_loss: float | None, min_precision: float | None, min_recall: float, method: str
) -> RecallGoal | None:
    """What is asked for where it is recall; options that exclude each other are refused."""
    if max_loss is None and min_precision is None:
        return None
    given = "max_loss" if max_loss is not None else "min_precision"
    if max_loss is not None and min_precision is not None:
        raise InputError("`max_loss` and `min_precision` exclude each other: give one of them")
    if min_recall != 1:
        raise InputError(f"`min_recall` and `{given}` exclude each other: what is asked for is the most recall")
    if method != "exact":
        raise InputError(f"`{given}` needs method='exact', got {method!r}")
    return RecallGoal(max_loss, min_precision)


def check_search_options(
    method: str,
    time_limit: float | None,
    gap: float,
    min_recall: float,
    random_state: int,
    n_jobs: int | None,
    node_limit: int | None,
    observations: Collection[int] = ALL_OBSERVATIONS,
) -> None:
    """The options of `solve`, each with its rule."""
    check_choice(method, "method", SEARCH_METHODS)
    if time_limit is not None:
        check_number(time_limit, "time_limit", minimum=0)
    if node_limit is not None:
        check_number(node_limit, "node_limit", minimum=1, integer=True)
    check_number(gap, "gap", minimum=0)
    check_number(min_recall, "min_recall", above=0, maximum=1)
    check_number(random_state, "random_state", minimum=0, integer=True)
    if n_jobs is not None:
        check_number(n_jobs, "n_jobs", minimum=1, integer=True)
    if not isinstance(observations, Collection) or not set(observations) <= set(ALL_OBSERVATIONS):
        raise InputError(f"`observations` must be some of 1, 2, 3 and 4, got {observations!r}")
