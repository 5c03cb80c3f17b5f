"""The cost of using a detector as one more negative, so that every search and every proof knows it already.

In: a `CalibrationProblem` with `detector_cost`. Out: the same problem without, in which every detector that costs
something has a negative of that weight: it scores +inf under its own detector, and is missing under all others. It is
accepted exactly when its detector is in use (docs/maths.md, section 9). Thresholds are to be made by the original.
"""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.problem import CalibrationProblem


def costs_as_negatives(problem: CalibrationProblem, price: float = 0.0) -> CalibrationProblem:
    """The problem with negatives for the detectors that cost something.

    `price` is added to what each costs, but for those that an upper threshold keeps in use.
    """
    costs = _costs_with_price(problem, price)
    paid = np.flatnonzero(costs > 0)
    if len(paid) == 0:
        return problem
    rows = np.full((len(paid), problem.n_exemplars), -np.inf, dtype=problem.negative_scores.dtype)
    rows[np.arange(len(paid)), paid] = np.inf
    extended = copy.copy(problem)
    extended.negative_scores = np.concatenate([problem.negative_scores, rows])
    extended.negative_weights = np.concatenate([problem.negative_weights, costs[paid]])
    extended.detector_cost = np.zeros(problem.n_exemplars)
    return extended


def weights_without_price(problem: CalibrationProblem, price: float) -> NDArray[np.float64]:
    """Weights of the negatives of `costs_as_negatives(problem, price)`, less the price."""
    costs = _costs_with_price(problem, price)
    return np.concatenate([problem.negative_weights, problem.detector_cost[costs > 0]])


def _costs_with_price(problem: CalibrationProblem, price: float) -> NDArray[np.float64]:
    """(E,) costs of detectors and the price, rounded down where float64 does not hold the sum: bounds rest on it."""
    prices = np.where(problem.upper_thresholds < np.inf, 0.0, price)
    sums = problem.detector_cost + prices
    larger, smaller = np.maximum(problem.detector_cost, prices), np.minimum(problem.detector_cost, prices)
    is_too_high = sums - larger > smaller  # the difference is exact
    return np.where(is_too_high, np.nextafter(sums, 0.0), sums)
