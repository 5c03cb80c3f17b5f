"""Fitting 1 / (1 + exp(-slope (s - centre))) to the scores of positive and negative windows ("Settings" of the paper).

In: scores. Out: (slope, centre) for one exemplar by `fit_sigmoid`, (E, 2) of them for a table by `fit_sigmoids`.
Two criteria: "least_squares", what the original E-SVM code minimises (mean squared error + 1e-6 slope^2), and "platt",
the log loss with Platt's targets.

The slope is kept >= 0: a falling sigmoid, which the original allows, would make background the surest detection.
The original walks by Nelder-Mead from slope 3 and the mean positive score. "least_squares" has several local minima, so
here Newton steps go from there and from the best points of a coarse grid, and the best end point is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from eesvm._support.compile import inner, kernel
from eesvm._support.validation import FloatArray, check_choice
from eesvm.calibration.choices import CRITERIA

MUTED = (0.1, 100.0)  # the original's answer to too few windows: next to nothing for the usual scores of an SVM
MUTED_CEILING = float(expit(-5.0))  # what MUTED gives at a score of 50, and the most a muted exemplar gives at all
SLOPE_PENALTY = 1e-6  # of the squared slope, in "least_squares"
START_SLOPE = 3.0

# The search of "least_squares", in units of the spread of the scores.
_SLOPES = np.geomspace(0.1, 1000.0, 13)  # of the coarse grid
_N_CENTRES = 12  # of the coarse grid among the positives, and as many among all scores
_N_COARSE = 256  # points that stand for the scores of each side while starts are compared
_LEAST_SPREAD = 1e-50  # under which the penalty is large enough
_FLAT = 1e-9  # the least slope, so that the centre of a constant sigmoid is finite

_MAX_STEPS = 200
_BLOCK = 8  # exemplars
_TINY = 1e-100  # scores all smaller, or all as large as its inverse, are fitted in units of the largest
_LEAST_GAIN = 1e-13  # relative improvement that is not worth another step

_Array = NDArray[np.float64]
_T = TypeVar("_T")


def fit_sigmoid(
    positives: FloatArray, negatives: FloatArray, criterion: str = "least_squares", min_positives: int = 2
) -> tuple[float, float]:
    """(slope, centre) of the sigmoid that separates two sets of scores best by the criterion; slope > 0.

    With fewer than `min_positives` positives or without a negative it is `MUTED`. Where a falling or a constant sigmoid
    would be best, the answer is next to constant: a tiny slope and a centre far away.
    """
    check_choice(criterion, "criterion", CRITERIA)
    if _is_muted(positives, negatives, min_positives):
        return MUTED
    fit = _fit_least_squares if criterion == "least_squares" else _fit_platt
    # Sorted, so that the answer does not depend on the order of the windows.
    ordered = [np.sort(scores).astype(np.float64) for scores in (positives, negatives)]
    largest = max(float(np.abs(scores[[0, -1]]).max()) for scores in ordered)
    if largest == 0 or _TINY < largest < 1 / _TINY:
        return fit(*ordered)
    with np.errstate(over="ignore"):  # an infinite slope or centre is the caller's sign to mute
        slope, centre = fit(*(scores / largest for scores in ordered))
        return float(np.divide(slope, largest)), centre * largest


def fit_sigmoids(
    positive_scores: FloatArray,
    negative_scores: FloatArray,
    keep_positives: NDArray[np.bool_] | None = None,
    lowest_negative: float = -np.inf,
    criterion: str = "least_squares",
    min_positives: int = 2,
    max_negatives_per_positive: int | None = 10_000,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> tuple[_Array, NDArray[np.bool_]]:
    """One sigmoid per exemplar: (E, 2) slopes and centres, and (E,) which exemplars are muted.

    `keep_positives` (P, E) says which positives belong to which exemplar, default all of them; its negatives are those
    scoring `lowest_negative` or more. Where they are more than `max_negatives_per_positive` for each positive, some are
    drawn: by one random order of the windows that all exemplars share, so the order of exemplars does not matter.
    Scores that are missing, -inf, count for nothing.
    """
    check_choice(criterion, "criterion", CRITERIA)
    order = np.random.default_rng(random_state).permutation(len(negative_scores))

    def fit_block(block: int) -> list[tuple[float, float, bool]]:
        first = block * _BLOCK  # rows of a large table are far apart: columns are read several at once
        columns = [np.ascontiguousarray(t[:, first : first + _BLOCK].T) for t in (positive_scores, negative_scores)]
        return [fit_one(first + k, *column) for k, column in enumerate(zip(*columns, strict=True))]

    def fit_one(exemplar: int, positives: FloatArray, negatives: FloatArray) -> tuple[float, float, bool]:
        if keep_positives is not None:
            positives = positives[keep_positives[:, exemplar]]
        positives = positives[positives > -np.inf]
        limit = len(negatives) if max_negatives_per_positive is None else max_negatives_per_positive * len(positives)
        if np.count_nonzero((negatives >= lowest_negative) & (negatives > -np.inf)) > limit:
            negatives = negatives[order]
        negatives = negatives[(negatives >= lowest_negative) & (negatives > -np.inf)][:limit]
        if _is_muted(positives, negatives, min_positives):
            return *MUTED, True
        slope, centre = fit_sigmoid(positives, negatives, criterion, min_positives)
        if not (np.isfinite(slope) and np.isfinite(centre)):  # scores at the very end of what floats can hold
            return *MUTED, True
        return slope, centre, False

    blocks = in_threads(fit_block, -(-positive_scores.shape[1] // _BLOCK), n_jobs)
    fitted = np.array([one for block in blocks for one in block]).reshape(-1, 3)
    return fitted[:, :2].copy(), fitted[:, 2] == 1


def apply_sigmoids(scores: FloatArray, sigmoids: _Array, is_muted: NDArray[np.bool_]) -> _Array:
    """(n, E) probabilities; a muted exemplar gives at most `MUTED_CEILING`, whatever the scale of its scores."""
    probabilities = expit(sigmoid_arguments(scores, sigmoids))
    if is_muted.any():
        probabilities[:, is_muted] = np.minimum(probabilities[:, is_muted], MUTED_CEILING)
    return probabilities


def sigmoid_arguments(scores: FloatArray, sigmoids: _Array) -> _Array:
    """(n, E) slope (s - centre), which still orders scores whose probabilities are rounded to 0 or 1."""
    return sigmoids[:, 0] * (scores - sigmoids[:, 1])


def in_threads(function: Callable[[int], _T], n: int, n_jobs: int | None) -> list[_T]:
    """`function` of 0 .. n - 1, in that order, computed in `n_jobs` threads (None: a few per core)."""
    if n_jobs == 1:
        return [function(i) for i in range(n)]
    with ThreadPoolExecutor(max_workers=n_jobs) as pool:
        return list(pool.map(function, range(n)))


def _is_muted(positives: FloatArray, negatives: FloatArray, min_positives: int) -> bool:
    return len(positives) < max(min_positives, 1) or len(negatives) == 0


def _fit_least_squares(positives: _Array, negatives: _Array) -> tuple[float, float]:
    """Several starts on fewer points, then the best of them on all; z = slope * point + offset throughout."""
    points, targets, origin, spread = _standardised(positives, negatives)
    unit = max(spread, _LEAST_SPREAD)
    penalty = SLOPE_PENALTY / unit / unit
    coarse = _coarse(points, len(positives))
    ends = [_descend(*start, *coarse, penalty) for start in _starts(*coarse, START_SLOPE * spread, penalty)]
    slope, offset, _ = min(ends, key=lambda end: end[2])
    slope, offset, _ = _descend(slope, offset, points, targets, np.full(len(points), 1 / len(points)), penalty)
    return _to_slope_and_centre(slope, offset, origin, spread)


def _fit_platt(positives: _Array, negatives: _Array) -> tuple[float, float]:
    """The minimum of a convex criterion; where it falls, the best that does not is constant."""
    points, targets, origin, spread = _standardised(positives, negatives)
    high, low = _platt_targets(len(positives), len(negatives))
    targets = np.where(targets == 1, high, low)
    slope, offset = _platt(points, targets, float(np.log((len(positives) + 1) / (len(negatives) + 1))))
    if slope <= 0:
        slope, offset = 0.0, float(logit(targets.mean()))
    return _to_slope_and_centre(slope, offset, origin, spread)


def _platt_targets(n_positives: int, n_negatives: int) -> tuple[float, float]:
    return (n_positives + 1) / (n_positives + 2), 1 / (n_negatives + 2)


def _standardised(positives: _Array, negatives: _Array) -> tuple[_Array, _Array, float, float]:
    """Points with mean positive 0 and unit spread, their targets 1 and 0, and the two numbers that lead back."""
    points, targets = _stack(positives, negatives)
    origin = float(positives.mean())
    if points.min() == points.max():
        return np.zeros(len(points)), targets, origin, 1.0
    points -= origin
    largest = float(np.abs(points).max())
    points /= largest  # first, so that squares of very small or large scores stay in range
    spread = float(points.std())
    return points / spread, targets, origin, spread * largest


def _stack(positives: _Array, negatives: _Array) -> tuple[_Array, _Array]:
    points = np.concatenate((positives, negatives))
    targets = np.zeros(len(points))
    targets[: len(positives)] = 1.0
    return points, targets


def _coarse(points: _Array, n_positives: int) -> tuple[_Array, _Array, _Array]:
    """Fewer points with their targets and weights: of each side, neighbours become their mean."""
    means, weights = [], []
    for side in (points[:n_positives], points[n_positives:]):
        n_single = min(len(side), _N_COARSE // 2)  # the highest scores shape the sigmoid most: they stay as they are
        edges = np.linspace(0, len(side) - n_single, _N_COARSE // 2, endpoint=False).astype(np.intp)
        edges = np.unique(np.append(edges, np.arange(len(side) - n_single, len(side) + 1)))
        counts = np.diff(edges)
        means.append(np.add.reduceat(side, edges[:-1]) / counts)
        weights.append(counts / len(points))
    return *_stack(*means), np.concatenate(weights)


def _starts(
    points: _Array, targets: _Array, weights: _Array, start_slope: float, penalty: float
) -> list[tuple[float, float]]:
    """(slope, offset) of the original's start and, for each of several slopes, of the best of several centres."""
    shares = np.linspace(0, 1, _N_CENTRES)
    centres = np.concatenate((np.quantile(points[targets == 1], shares), np.quantile(points, shares)))
    best = centres[_grid_errors(_SLOPES, centres, points, targets, weights, penalty).argmin(axis=1)]
    return [(start_slope, 0.0), *zip(_SLOPES.tolist(), (-_SLOPES * best).tolist(), strict=True)]


def _to_slope_and_centre(slope: float, offset: float, origin: float, spread: float) -> tuple[float, float]:
    """From z = slope (s - origin) / spread + offset to z = slope (s - centre)."""
    slope = max(slope, _FLAT) / spread
    return slope, origin - offset / slope


@kernel()
def _grid_errors(
    slopes: _Array, centres: _Array, points: _Array, targets: _Array, weights: _Array, penalty: float
) -> _Array:
    """(slopes, centres) "least_squares" at every pair."""
    errors = np.empty((len(slopes), len(centres)))
    for i in range(len(slopes)):
        for j in range(len(centres)):
            total = penalty * slopes[i] * slopes[i]
            for k in range(len(points)):
                error = 1.0 / (1.0 + np.exp(-slopes[i] * (points[k] - centres[j]))) - targets[k]
                total += weights[k] * error * error
            errors[i, j] = total
    return errors


@kernel()
def _descend(
    slope: float, offset: float, points: _Array, targets: _Array, weights: _Array, penalty: float
) -> tuple[float, float, float]:
    """Newton steps of limited length, with slope >= 0: slope, offset and "least_squares" where they end."""
    longest = 1.0
    value, da, db, daa, dab, dbb = _error_and_derivatives(slope, offset, points, targets, weights, penalty)
    for _ in range(_MAX_STEPS):
        if slope <= 0.0 and da >= 0.0:  # pressed against the bound: only the offset may move
            da, daa, dab = 0.0, 1.0, 0.0
        # A positive lowest eigenvalue makes the step a descent, also where the criterion curves downwards.
        half_spread = np.sqrt(0.25 * (daa - dbb) ** 2 + dab * dab)
        lowest, highest = 0.5 * (daa + dbb) - half_spread, 0.5 * (daa + dbb) + half_spread
        shift = max(0.0, -2.0 * lowest, 1e-10 * abs(highest) + 1e-100 - lowest)
        determinant = (daa + shift) * (dbb + shift) - dab * dab
        step_a = (dab * db - (dbb + shift) * da) / determinant
        step_b = (dab * da - (daa + shift) * db) / determinant
        if not abs(da * step_a + db * step_b) > _LEAST_GAIN * value:
            break
        length = np.sqrt(step_a * step_a + step_b * step_b)
        share = min(1.0, longest / length)
        new_slope, new_offset = max(slope + share * step_a, 0.0), offset + share * step_b
        new = _error_and_derivatives(new_slope, new_offset, points, targets, weights, penalty)
        if new[0] < value:
            slope, offset = new_slope, new_offset
            value, da, db, daa, dab, dbb = new
            longest = max(longest, 2.0 * share * length)
        else:
            longest = 0.25 * share * length
    return slope, offset, value


@kernel()
def _error_and_derivatives(
    slope: float, offset: float, points: _Array, targets: _Array, weights: _Array, penalty: float
) -> tuple[float, float, float, float, float, float]:
    """The criterion "least_squares", its gradient and its Hessian: value, d/da, d/db, d2/da2, d2/dadb, d2/db2."""
    value = penalty * slope * slope
    da, db, daa, dab, dbb = 2.0 * penalty * slope, 0.0, 2.0 * penalty, 0.0, 0.0
    for k in range(len(points)):
        x = points[k]
        p = 1.0 / (1.0 + np.exp(-(slope * x + offset)))
        error = p - targets[k]
        steepness = p * (1.0 - p)
        value += weights[k] * error * error
        first = 2.0 * weights[k] * error * steepness
        second = 2.0 * weights[k] * (steepness + error * (1.0 - 2.0 * p)) * steepness
        da += first * x
        db += first
        daa += second * x * x
        dab += second * x
        dbb += second
    return value, da, db, daa, dab, dbb


@kernel()
def _platt(points: _Array, targets: _Array, offset: float) -> tuple[float, float]:
    """Slope and offset of the least log loss by Newton's method with backtracking (Lin, Lin and Weng 2007)."""
    slope = 0.0
    value = _log_loss(slope, offset, points, targets)
    for _ in range(_MAX_STEPS):
        da, db, daa, dab, dbb = 0.0, 0.0, 1e-12, 0.0, 1e-12
        for k in range(len(points)):
            x = points[k]
            p = 1.0 / (1.0 + np.exp(-(slope * x + offset)))
            error = p - targets[k]
            steepness = p * (1.0 - p)
            da += error * x
            db += error
            daa += steepness * x * x
            dab += steepness * x
            dbb += steepness
        determinant = daa * dbb - dab * dab
        step_a = (dab * db - dbb * da) / determinant
        step_b = (dab * da - daa * db) / determinant
        gain = -(da * step_a + db * step_b)
        share = 1.0
        while gain > _LEAST_GAIN * value and share > 1e-10:
            new_value = _log_loss(slope + share * step_a, offset + share * step_b, points, targets)
            if new_value < value - 1e-4 * share * gain:
                break
            share *= 0.5
        else:
            break
        slope, offset, value = slope + share * step_a, offset + share * step_b, new_value
    return slope, offset


@inner()
def _log_loss(slope: float, offset: float, points: _Array, targets: _Array) -> float:
    total = 0.0
    for k in range(len(points)):
        z = slope * points[k] + offset
        total += np.log1p(np.exp(-abs(z))) + max(z, 0.0) - targets[k] * z
    return total
