"""Checking a result and its certificate against the scores, without the search that made them.

In: a problem and a result. Out: `Verification`: the bound that the certificate proves, and everything that is wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from eesvm._support.validation import FloatArray, InputError, check_number
from eesvm.calibration.certificate import Certificate
from eesvm.calibration.detector_costs import costs_as_negatives
from eesvm.calibration.goal import RecallGoal
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.proofs.certified_bound import certified_bound
from eesvm.calibration.proofs.certified_recall import certified_recall
from eesvm.calibration.result import CalibrationResult
from eesvm.calibration.units import common_unit

OUT_OF_BOUNDS = "a threshold is outside of its bounds"
TOLERANCE = 1e-9  # of the loss, and only for weights whose sums float64 rounds: what a claim may exceed its proof by


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

    Claims must hold exactly where sums of the negative weights are exact in float64 (counts, quarters, ...). For other
    weights a loss or a bound may miss what is recomputed by `TOLERANCE` of the loss.

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
    slack = 0.0 if math.isnan(loss) else _slack(problem, result, loss)
    if not abs(result.loss - loss) <= slack and not math.isnan(loss):
        problems.append(f"the loss is given as {result.loss:.17g}, but the scores say {loss:.17g}")
    bound = _judge_certificate(problem, result, problems)
    proven = f"{bound:.17g} is proven" if result.certificate is not None else "there is no certificate to prove it"
    bound_holds = bool(result.lower_bound <= bound + slack)
    if not bound_holds:
        problems.append(f"the lower bound is given as {result.lower_bound:.17g}, but {proven}")
    if result.status == "optimal" and bound + slack < loss:
        problems.append(f"a loss of {loss:.17g} is given as optimal, but {proven}")
    return Verification(is_feasible, loss, bound, bound_holds, problems)


def _slack(problem: CalibrationProblem, result: CalibrationResult, loss: float) -> float:
    """What a claim may be beside the truth: nothing where sums of weights, costs and prices are exact, also in quanta.

    Weights with more digits than a search has quanta (2**50 for all of them) are blurred by it, as rounded sums are.
    """
    price = getattr(result.certificate, "detector_price", 0.0) if result.max_detectors is not None else 0.0
    is_price = isinstance(price, int | float | np.floating) and 0 <= price < math.inf
    extended = costs_as_negatives(problem, float(price) if is_price else 0.0)
    weights, unit = extended.negative_weights, common_unit(extended.negative_weights)
    is_coarse = unit is not None and Fraction(math.fsum(weights)) * 2 * (len(weights) + 1) <= unit * 2**49
    return 0.0 if is_coarse else TOLERANCE * loss


def _check_thresholds(problem: CalibrationProblem, result: CalibrationResult, problems: list[str]) -> FloatArray:
    """The thresholds, if they fit the problem; a problem where too many of them are in use."""
    thresholds = problem.check_thresholds(result.thresholds)
    n_in_use = int(problem.in_use(thresholds).sum())
    if result.max_detectors is not None:
        check_number(result.max_detectors, "max_detectors", minimum=1, integer=True)
        if n_in_use > result.max_detectors:
            problems.append(f"{n_in_use} exemplars are in use, more than {result.max_detectors}")
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
    slack = _slack(problem, result, loss)
    if not abs(result.loss - loss) <= slack:
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
