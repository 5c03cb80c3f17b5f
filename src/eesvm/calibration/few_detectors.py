"""A limit on the number of detectors in use: the problem with a price on each.

In: a `CalibrationProblem` and `max_detectors`. Out: `PricedProblem`, for searches. A price on every detector in use,
paid back for as many as are allowed, makes no solution dearer than it is; how good the bounds are depends on it
(docs/maths.md, section 9).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import InputError, check_number
from eesvm.calibration.anytime import Run
from eesvm.calibration.detector_costs import costs_as_negatives
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.quanta import rank_capped, rank_whole
from eesvm.calibration.ranks import RankedProblem
from eesvm.calibration.search.detector_limit import DetectorLimit
from eesvm.calibration.units import common_unit

_TRIAL_NODES, _TRIAL_SHARE = 16, 0.1  # boxes, and share of the time that is left, for the trial of a price


@dataclass(frozen=True)
class PricedProblem:
    """A problem whose detector costs are negatives, each with a price on top where the number is limited."""

    extended: CalibrationProblem
    ranked: RankedProblem
    limit: DetectorLimit
    price: float

    @property
    def unit(self) -> Fraction | None:
        """Of losses below the cap, and of the price."""
        weights = self.extended.negative_weights
        return common_unit(np.append(weights[weights < self.ranked.cap], self.price))

    @property
    def fixed_weights(self) -> NDArray[np.float64]:
        """Weights of the negatives that every solution accepts."""
        return np.asarray(self.extended.negative_weights[self.extended.forced()])

    @property
    def paid_back(self) -> Fraction:
        """The price for as many detectors as may be in use besides those that are in any case."""
        return Fraction(self.price) * self.limit.most


def priced_problem(
    problem: CalibrationProblem,
    min_recall: float | None,
    max_detectors: int | None,
    scale: float,
    n_jobs: int | None = None,
    most: float = math.inf,
) -> PricedProblem:
    """Rank a problem with a price that makes the limit about as scarce as `scale`, a loss.

    Solutions that pay more than `most` do not matter.
    """
    price = 0.0
    if max_detectors is not None and max_detectors < problem.n_exemplars:
        price = _price(problem, scale / max_detectors)
    priced = _rank_priced(problem, min_recall, max_detectors, price, n_jobs, most)
    if min_recall is not None and price % priced.ranked.quantum != 0:
        price = math.ceil(price / (4 * priced.ranked.quantum)) * 4 * priced.ranked.quantum
        priced = _rank_priced(problem, min_recall, max_detectors, price, n_jobs, most)  # the quantum grows by 2 at most
    return priced


def _rank_priced(
    problem: CalibrationProblem,
    min_recall: float | None,
    max_detectors: int | None,
    price: float,
    n_jobs: int | None,
    most: float,
) -> PricedProblem:
    limit = DetectorLimit.none(problem.n_exemplars)
    if price > 0 and max_detectors is not None:
        n_always = int((problem.upper_thresholds < np.inf).sum())
        limit = DetectorLimit(max_detectors - n_always, price, problem.upper_thresholds == np.inf)
    extended = costs_as_negatives(problem, price)
    if min_recall is None:
        ranked, extended = rank_capped(extended, most + price * limit.most, n_jobs)
    else:
        known = most if math.isfinite(most) else 0.0
        ranked, extended = rank_whole(extended, min_recall, n_jobs, besides=price * (limit.most + 1), known=known)
    return PricedProblem(extended, ranked, limit, price)


def check_max_detectors(problem: CalibrationProblem, max_detectors: int | None) -> None:
    """A whole number from the detectors that bounds keep in use to all of them."""
    if max_detectors is None:
        return
    check_number(max_detectors, "max_detectors", minimum=1, integer=True)
    if max_detectors > problem.n_exemplars:
        raise InputError(
            f"`max_detectors` must be <= {problem.n_exemplars}, the number of detectors, got {max_detectors}"
        )
    n_always = int((problem.upper_thresholds < np.inf).sum())
    if max_detectors < n_always:
        raise InputError(
            f"`max_detectors` must be >= {n_always}, the detectors that `upper_thresholds` keep in use, "
            f"got {max_detectors}"
        )


def _price(problem: CalibrationProblem, wanted: float) -> float:
    """About `wanted`, and a whole number of units of the losses, which stay whole numbers of units then."""
    weights = costs_as_negatives(problem).negative_weights
    unit = common_unit(weights)
    if unit:
        return float(max(1, round(Fraction(wanted) / unit)) * unit)
    if wanted == 0:  # no weight may be too small beside it
        wanted = float(weights[weights > 0].min(initial=math.inf))
    if wanted == math.inf:
        return 1.0
    wanted = min(wanted, sys.float_info.max / 16 / problem.n_exemplars)  # all of them together are a number
    mantissa, exponent = math.frexp(wanted)
    return math.ldexp(round(mantissa * 256), exponent - 8)  # few digits, so that multiples of it are exact


def total_weight(problem: CalibrationProblem) -> float:
    """A loss that no thresholds exceed."""
    return math.fsum(problem.negative_weights) * (1 + 1e-9) + math.fsum(problem.detector_cost) * (1 + 1e-9)


def trial_run(run: Run) -> Run:
    """A short run, to see what a price is worth; the limits of `run` hold for it, too."""
    left = None if run.time_limit is None else max(0.0, run.time_limit - run.seconds)
    return Run(None if left is None else _TRIAL_SHARE * left, min(_TRIAL_NODES, run.node_limit or _TRIAL_NODES))
