"""Checking a result and its certificate against the scores, without the search that made them.

In: a problem and a result. Out: `Verification`: the bound that the certificate proves, and everything that is wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from eesvm._support.validation import FloatArray, InputError, check_number
from eesvm.calibration.certificate import Certificate
from eesvm.calibration.goal import RecallGoal
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.proofs.certified_bound import certified_bound, is_rounded
from eesvm.calibration.proofs.certified_recall import certified_recall
from eesvm.calibration.result import CalibrationResult

OUT_OF_BOUNDS = "a threshold is outside of its bounds"
TOLERANCE = 1e-9  # of the loss, where weights are no whole quanta: what an optimal one may be above its bound


@dataclass(frozen=True)
class Verification:
    """What a result is worth by the scores and its certificate alone."""

    is_feasible: bool  # the thresholds meet the recall floor, and their own bounds
    loss: float  # of the thresholds, recomputed; NaN where they do not fit the problem
    lower_bound: float  # what the certificate proves, recomputed; 0 where it proves nothing or there is none
    bound_holds: bool  # whether the result claims no better bound than that
    problems: list[str]  # a sentence about everything that does not hold
    recall_bound: float = 1.0  # where recall was asked for, the most that the certificate leaves possible

    @property
    def is_valid(self) -> bool:
        """Whether all that the result claims holds: its loss, its bound, and its optimality where it says so."""
        return not self.problems


def verify(problem: CalibrationProblem, result: CalibrationResult) -> Verification:
    """Check a result against the scores, and its lower bound against its certificate.

    Loss and bound must be what the scores and the certificate say, to the last digit, and an optimal loss no more than
    the bound. Where weights have more digits than the certificate counts (not counts, quarters, ...), the bound is a
    little low, and an optimal loss may be above it by `TOLERANCE` of itself.

    Parameters
    ----------
    problem : the scores that the result is for.
    result : of `solve`, or read from files; without a certificate no bound above 0 counts as proven.
    """
    if not isinstance(problem, CalibrationProblem):
        raise InputError(f"`problem` must be a CalibrationProblem, got {type(problem).__name__}")
    if result.max_loss is not None or result.min_precision is not None:
        return verify_recall(problem, result)
    problems: list[str] = []
    is_feasible, loss = _judge_thresholds(problem, result, problems)
    if result.loss != loss and not math.isnan(loss):
        problems.append(f"the loss is given as {result.loss:.17g}, but the scores say {loss:.17g}")
    bound = _judge_certificate(problem, result, problems)
    proven = f"{bound:.17g} is proven" if result.certificate is not None else "there is no certificate to prove it"
    bound_holds = bool(result.lower_bound <= bound)
    if not bound_holds:
        problems.append(f"the lower bound is given as {result.lower_bound:.17g}, but {proven}")
    if result.status == "optimal" and bound + _slack(problem, result.certificate, bound, loss) < loss:
        problems.append(f"a loss of {loss:.17g} is given as optimal, but {proven}")
    return Verification(is_feasible, loss, bound, bound_holds, problems)


def _slack(problem: CalibrationProblem, certificate: Certificate | None, bound: float, loss: float) -> float:
    """What an optimal loss may be above its bound: nothing, unless the certificate rounds weights to whole quanta."""
    return TOLERANCE * loss if bound > 0 and certificate is not None and is_rounded(problem, certificate) else 0.0


def _check_thresholds(problem: CalibrationProblem, result: CalibrationResult, problems: list[str]) -> FloatArray:
    """The thresholds, if they fit the problem; a problem where too many of them are in use."""
    thresholds = problem.check_thresholds(result.thresholds)
    n_in_use = int(problem.in_use(thresholds).sum())
    if result.max_detectors is not None:
        check_number(result.max_detectors, "max_detectors", minimum=1, integer=True)
        if n_in_use > result.max_detectors:
            problems.append(f"{n_in_use} detectors are in use, more than {result.max_detectors}")
    return thresholds


def _judge_thresholds(
    problem: CalibrationProblem, result: CalibrationResult, problems: list[str]
) -> tuple[bool, float]:
    """Whether the thresholds are allowed, and what they cost."""
    try:
        check_number(result.min_recall, "min_recall", above=0, maximum=1)
        thresholds = _check_thresholds(problem, result, problems)
    except InputError as error:
        problems.append(str(error))
        return False, math.nan
    is_feasible, recall = problem.is_feasible(thresholds, result.min_recall), problem.recall(thresholds)
    if not problem.is_within_bounds(thresholds):
        problems.append(OUT_OF_BOUNDS)
    elif not is_feasible:
        problems.append(f"the thresholds have a recall of {recall:g}, below the floor of {result.min_recall:g}")
    elif not abs(result.recall - recall) <= TOLERANCE:
        problems.append(f"the recall is given as {result.recall:.17g}, but the scores say {recall:.17g}")
    return is_feasible, problem.loss(thresholds)


def _judge_certificate(problem: CalibrationProblem, result: CalibrationResult, problems: list[str]) -> float:
    """The bound that is proven, 0 where nothing is."""
    certificate = result.certificate
    if certificate is None:
        return 0.0
    try:
        if not isinstance(certificate, Certificate):
            raise InputError(f"it must be a Certificate, got {type(certificate).__name__}")
        if certificate.min_recall != result.min_recall:
            raise InputError(f"it is for a recall of {certificate.min_recall}, not of {result.min_recall}")
        return certified_bound(problem, certificate, result.max_detectors)
    except InputError as error:
        problems.append(f"the certificate proves nothing: {error}")
        return 0.0


def verify_recall(problem: CalibrationProblem, result: CalibrationResult) -> Verification:
    """Check a result that claims the most recall within a budget, or at a precision."""
    problems: list[str] = []
    try:
        goal = RecallGoal(result.max_loss, result.min_precision)
        thresholds = _check_thresholds(problem, result, problems)
    except InputError as error:
        return Verification(False, math.nan, 0.0, False, [str(error)])
    is_feasible, loss, recall = goal.permits(problem, thresholds), problem.loss(thresholds), problem.recall(thresholds)
    if not is_feasible:
        is_within = problem.is_within_bounds(thresholds)
        problems.append(f"the loss is {loss:.17g}, which is not {goal}" if is_within else OUT_OF_BOUNDS)
    if result.loss != loss:
        problems.append(f"the loss is given as {result.loss:.17g}, but the scores say {loss:.17g}")
    if not abs(result.recall - recall) <= TOLERANCE:
        problems.append(f"the recall is given as {result.recall:.17g}, but the scores say {recall:.17g}")
    most, proven = _judge_recall_certificate(problem, result, goal, problems)
    bound_holds = bool(result.recall_bound >= most - TOLERANCE)
    if not bound_holds:
        problems.append(f"the bound on the recall is given as {result.recall_bound:.17g}, but {proven}")
    if result.status == "optimal" and most > recall + TOLERANCE:
        problems.append(f"a recall of {recall:.17g} is given as optimal, but {proven}")
    return Verification(is_feasible, loss, 0.0, bound_holds, problems, most)


def _judge_recall_certificate(
    problem: CalibrationProblem, result: CalibrationResult, goal: RecallGoal, problems: list[str]
) -> tuple[float, str]:
    """The recall that is proven to be the most possible, and how to say so."""
    if result.certificate is None:
        return 1.0, "there is no certificate to prove it"
    try:
        if not isinstance(result.certificate, Certificate):
            raise InputError(f"it must be a Certificate, got {type(result.certificate).__name__}")
        most = certified_recall(problem, result.certificate, goal, result.max_detectors)
    except InputError as error:
        problems.append(f"the certificate proves nothing: {error}")
        most = 1.0
    return most, f"{most:.17g} is proven"
