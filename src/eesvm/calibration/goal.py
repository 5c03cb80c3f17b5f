"""The question the other way round: the most recall that a budget allows.

In: `max_loss`, the false alarms that may be raised, or `min_precision`, a floor under the precision. Out: `RecallGoal`,
which judges thresholds, and `Allowance`, the same in exact numbers, for searches and proofs (docs/maths.md, section 8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from eesvm._support.validation import InputError, check_number
from eesvm.calibration.detector_costs import costs_as_negatives
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.units import common_unit

_TOLERANCE = 1 + Fraction(1, 10**12)  # of what may be paid: 0.1 + 0.2 is within 0.3


@dataclass(frozen=True)
class Allowance:
    """What thresholds that cover `covered` units may pay: base + rate * covered, in loss or in quanta of it."""

    base: Fraction
    rate: Fraction  # for each unit of covered weight
    total: int  # units of all positives that somebody may cover

    def at(self, left_out: int | Fraction) -> Fraction:
        """What may be paid if so many units are left out."""
        return self.base + self.rate * (self.total - left_out)

    def less(self, paid: Fraction | int) -> Allowance:
        """What remains when something is paid for already."""
        return replace(self, base=self.base - paid)

    def times(self, factor: Fraction) -> Allowance:
        """The same in another unit of loss."""
        return Allowance(self.base * factor, self.rate * factor, self.total)

    def least_left_out(self, cost: int, price: Fraction, dead: int) -> Fraction | float:
        """The fewest units that solutions with loss + price * left out >= cost and left out >= dead leave out.

        inf where there are none: cost - price * x <= base + rate * (total - x) has no solution x from dead to total.
        """
        excess, slope = cost - self.at(0), price - self.rate
        if slope <= 0:
            return Fraction(dead) if excess <= slope * dead else math.inf
        least = max(Fraction(dead), excess / slope)
        return least if least <= self.total else math.inf


@dataclass(frozen=True)
class RecallGoal:
    """As much recall as possible: within a loss of `max_loss`, or at a precision of `min_precision` at least.

    Precision is the weight of the accepted positives in the weight of all that is accepted; of nothing it is 1.
    """

    max_loss: float | None = None
    min_precision: float | None = None

    def __post_init__(self) -> None:
        if (self.max_loss is None) == (self.min_precision is None):
            raise InputError("one of `max_loss` and `min_precision` must be given, not both")
        if self.max_loss is not None:
            check_number(self.max_loss, "max_loss", minimum=0)
        else:
            check_number(self.min_precision, "min_precision", above=0, maximum=1)

    def allowance(self, problem: CalibrationProblem, is_proof: bool = False) -> Allowance:
        """What solutions may pay.

        Parameters
        ----------
        problem : whose weights count.
        is_proof : whether a proof asks: then it is wider where sums of weights are rounded, for searches narrower.
        """
        total = int(problem.recall_units[~problem.orphans()].sum())
        if self.max_loss is not None:
            base, rate = Fraction(float(self.max_loss)) * _TOLERANCE, Fraction(0)
        else:
            floor = Fraction(float(self.min_precision or 0))
            base, rate = Fraction(0), (1 - floor) / floor * problem.unit_weight * _TOLERANCE
        problem = costs_as_negatives(problem)
        unit = common_unit(problem.negative_weights)
        if unit:
            base = math.floor(base / unit) * unit
        elif unit is None:
            rounding = Fraction(problem.n_negatives * float(np.finfo(np.float64).eps))
            factor = 1 + rounding if is_proof else 1 - rounding
            base, rate = base * factor, rate * factor
        return Allowance(base, rate, total)

    def permits(self, problem: CalibrationProblem, thresholds: ArrayLike) -> bool:
        """Whether thresholds keep their bounds and the budget.

        Parameters
        ----------
        problem : whose weights count.
        thresholds : (E,).
        """
        if not problem.is_within_bounds(thresholds):
            return False
        covered = int(problem.recall_units[problem.covers(thresholds)].sum())
        allowance = self.allowance(problem, is_proof=True)
        return Fraction(problem.loss(thresholds)) <= allowance.at(allowance.total - covered)

    def __str__(self) -> str:
        if self.max_loss is not None:
            return f"a loss of {self.max_loss:g} at most"
        return f"a precision of {self.min_precision:g} at least"


def recall_divisor(problem: CalibrationProblem) -> int:
    """The largest number that what is left out, in recall units of positives that can be covered, is a multiple of."""
    units = problem.recall_units[~problem.orphans()].astype(np.int64)
    return int(np.gcd.reduce(units)) if len(units) else 1


def recall_of_left_out(problem: CalibrationProblem, left_out: float) -> float:
    """The recall of leaving out so many units besides what nobody may cover, rounded up; 0 for inf."""
    coverable = int(problem.recall_units[~problem.orphans()].sum())
    if left_out >= coverable:
        return 0.0
    share = Fraction(coverable - Fraction(left_out)) / int(problem.recall_units.sum())
    nearest = float(share)
    return nearest if Fraction(nearest) >= share else math.nextafter(nearest, math.inf)
