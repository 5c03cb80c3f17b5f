"""Calibrators that look at one exemplar at a time: the baselines of the paper ("Settings").

In: a score table and labels. Out: `Uncalibrated` (the raw scores), `SigmoidCalibrator` (Malisiewicz et al. 2011),
`IsotonicCalibrator` (Zadrozny and Elkan 2002) and `AffineCalibrator` (Aubry et al. 2014).
What it costs to ignore the other exemplars is the paper's subject.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from eesvm._support.validation import FloatArray, check_choice, check_number
from eesvm.calibration.calibrators.base import ScoreCalibrator
from eesvm.calibration.calibrators.sigmoid import apply_sigmoids, fit_sigmoids, in_threads, sigmoid_arguments
from eesvm.calibration.choices import CRITERIA


class Uncalibrated(ScoreCalibrator):
    """The scores as they are; a window is positive where its highest score is greater than 0.

    Parameters
    ----------
    pos_label, missing : the positive label and what missing scores mean, see `ScoreCalibrator`.
    """

    def __init__(self, pos_label: Any = None, missing: str = "refuse") -> None:
        self.pos_label = pos_label
        self.missing = missing

    def _calibrate(self, scores: FloatArray) -> FloatArray:
        return scores.copy()


class SigmoidCalibrator(ScoreCalibrator):
    """A sigmoid per exemplar, fitted to the windows that it scores above the margin; positive above 0.5.

    The paper also removes overlapping windows before; a score table has no boxes, so that is up to its maker.
    `assign` breaks ties of probabilities by the arguments of the sigmoids, then by the lower index.

    Parameters
    ----------
    criterion : "least_squares", the one of the original E-SVM code, or "platt".
    margin : windows scoring less under an exemplar are not used to fit it; None uses all.
    min_positives : an exemplar with fewer positives above the margin is muted: it gives next to nothing everywhere.
    max_negatives_per_positive : how many negatives for each positive are used at most, drawn at random; None: all.
    random_state : int >= 0, seeds that draw.
    n_jobs : threads; the result does not depend on it.
    pos_label, missing : the positive label and what missing scores mean, see `ScoreCalibrator`.

    Attributes
    ----------
    sigmoids_ : (E, 2) slope and centre of each exemplar's sigmoid.
    muted_ : (E,) bool, exemplars with too few windows to fit a sigmoid.
    """

    _accept_above = 0.5

    def __init__(
        self,
        criterion: str = "least_squares",  # not `fit`: a parameter is an attribute, and would hide the method
        margin: float | None = -1.0,
        min_positives: int = 2,
        max_negatives_per_positive: int | None = 10_000,
        random_state: int = 0,
        n_jobs: int | None = None,
        pos_label: Any = None,
        missing: str = "refuse",
    ) -> None:
        self.criterion = criterion
        self.margin = margin
        self.min_positives = min_positives
        self.max_negatives_per_positive = max_negatives_per_positive
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.pos_label = pos_label
        self.missing = missing

    def _fit(self, scores: FloatArray, is_positive: NDArray[np.bool_]) -> None:
        check_sigmoid_options(self)
        if self.margin is not None:
            check_number(self.margin, "margin")
        lowest = -np.inf if self.margin is None else self.margin
        positives = scores[is_positive]
        self.sigmoids_, self.muted_ = fit_sigmoids(
            positives,
            scores[~is_positive],
            positives >= lowest,
            lowest,
            self.criterion,
            self.min_positives,
            self.max_negatives_per_positive,
            self.random_state,
            self.n_jobs,
        )

    def _calibrate(self, scores: FloatArray) -> FloatArray:
        return apply_sigmoids(scores, self.sigmoids_, self.muted_)

    def tie_breaker(self, scores: FloatArray) -> FloatArray:
        return sigmoid_arguments(scores, self.sigmoids_)


class IsotonicCalibrator(ScoreCalibrator):
    """A non-decreasing step function per exemplar, fitted to all windows; positive above 0.5.

    Between the scores seen in `fit` the function keeps the value of the nearest lower one; below the lowest it has the
    value of that. Its values repeat, so the maximum over exemplars often ties: `assign` takes the exemplar with the
    highest raw score among them, then the lower index.

    Parameters
    ----------
    n_jobs : threads; the result does not depend on it.
    pos_label, missing : the positive label and what missing scores mean, see `ScoreCalibrator`.

    Attributes
    ----------
    steps_ : list of E pairs of arrays: the scores at which steps begin, increasing, and the values from there on.
    """

    _accept_above = 0.5

    def __init__(self, n_jobs: int | None = None, pos_label: Any = None, missing: str = "refuse") -> None:
        self.n_jobs = n_jobs
        self.pos_label = pos_label
        self.missing = missing

    def _fit(self, scores: FloatArray, is_positive: NDArray[np.bool_]) -> None:
        check_n_jobs(self.n_jobs)
        self.steps_ = in_threads(lambda j: fit_steps(scores[:, j], is_positive), scores.shape[1], self.n_jobs)

    def _calibrate(self, scores: FloatArray) -> FloatArray:
        probabilities = np.empty(scores.shape)
        for j, steps in enumerate(self.steps_):
            probabilities[:, j] = apply_steps(scores[:, j], *steps)
        return probabilities


class AffineCalibrator(ScoreCalibrator):
    """A scale and an offset per exemplar from negatives only: their mean goes to -1, a high quantile of them to 0.

    Positive above 0. An exemplar whose quantile is not above its mean (it scores nearly all negatives alike) has no
    such map and is muted: it gives -inf everywhere.

    Parameters
    ----------
    quantile : the one that goes to 0; 0.9999 lets one negative in 10,000 through.
    max_negatives : how many negatives are used at most, drawn at random.
    random_state : int >= 0, seeds that draw.
    pos_label, missing : the positive label and what missing scores mean, see `ScoreCalibrator`.

    Attributes
    ----------
    scale_, offset_ : (E,) the calibrated score is scale * score + offset.
    muted_ : (E,) bool.
    """

    def __init__(
        self,
        quantile: float = 0.9999,
        max_negatives: int = 200_000,
        random_state: int = 0,
        pos_label: Any = None,
        missing: str = "refuse",
    ) -> None:
        self.quantile = quantile
        self.max_negatives = max_negatives
        self.random_state = random_state
        self.pos_label = pos_label
        self.missing = missing

    def _fit(self, scores: FloatArray, is_positive: NDArray[np.bool_]) -> None:
        check_number(self.quantile, "quantile", above=0, maximum=1)
        check_number(self.max_negatives, "max_negatives", minimum=1, integer=True)
        check_number(self.random_state, "random_state", minimum=0, integer=True)
        rows = np.flatnonzero(~is_positive)
        if len(rows) > self.max_negatives:
            rows = np.random.default_rng(self.random_state).choice(rows, self.max_negatives, replace=False)
        self.scale_, self.offset_ = fit_affine(scores[rows], self.quantile)
        self.muted_ = np.isneginf(self.offset_)

    def _calibrate(self, scores: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore"):  # a muted exemplar, of scale 0, at a score that is missing
            calibrated = self.scale_ * scores + self.offset_
        return np.where(np.isneginf(scores), -np.inf, calibrated)


def fit_steps(scores: FloatArray, is_positive: NDArray[np.bool_]) -> tuple[FloatArray, NDArray[np.float64]]:
    """Isotonic regression of labels on (n,) scores: where steps begin, increasing, and the value of each.

    Equal scores count as one point, since no function can tell them apart. Scores that are missing count for nothing;
    where all are, the value is 0.
    """
    is_there = scores > -np.inf
    if not is_there.any():
        return np.zeros(1, dtype=scores.dtype), np.zeros(1)
    scores, is_positive = scores[is_there], is_positive[is_there]
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] > ordered[:-1]))
    counts = np.diff(np.append(begins, len(scores)))
    shares = np.add.reduceat(is_positive[order].astype(np.float64), begins) / counts
    values = isotonic_regression(shares, weights=counts).x
    is_step = np.append(True, values[1:] > values[:-1])
    return ordered[begins][is_step], values[is_step]


def apply_steps(scores: FloatArray, begins: FloatArray, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) value of a step function at (n,) scores; left of the first step the first value, 0 at a missing score."""
    found = values[np.maximum(np.searchsorted(begins, scores, side="right") - 1, 0)]
    return np.where(np.isneginf(scores), 0.0, found)


def fit_affine(negatives: FloatArray, quantile: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(E,) scales and offsets that take the mean of each column to -1 and its quantile to 0; (0, -inf) if muted.

    Scores that are missing count for nothing.
    """
    is_there = negatives > -np.inf
    n = is_there.sum(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):  # at the very end of what floats can hold: muted as well
        means = negatives.sum(axis=0, dtype=np.float64, where=is_there) / np.maximum(n, 1)
        tops = [
            np.quantile(column[mask].astype(np.float64), quantile) if mask.any() else 0.0
            for column, mask in zip(negatives.T, is_there.T, strict=True)
        ]
        heights = np.array(tops) - means
        # A constant column may come out a rounding error apart.
        is_constant = np.where(is_there, negatives, np.inf).min(axis=0) >= negatives.max(axis=0)
        is_muted = ~(heights > 0) | is_constant
        scales = np.where(is_muted, 0.0, 1.0 / np.where(is_muted, 1.0, heights))
        offsets = -scales * means - 1.0
    is_muted |= ~np.isfinite(scales) | ~np.isfinite(offsets)
    return np.where(is_muted, 0.0, scales), np.where(is_muted, -np.inf, offsets)


def check_sigmoid_options(calibrator: ScoreCalibrator) -> None:
    """The parameters that all calibrators with sigmoids share."""
    options = calibrator.get_params(deep=False)
    check_choice(options["criterion"], "criterion", CRITERIA)
    check_number(options["min_positives"], "min_positives", minimum=1, integer=True)
    if options["max_negatives_per_positive"] is not None:
        check_number(options["max_negatives_per_positive"], "max_negatives_per_positive", minimum=1, integer=True)
    check_number(options["random_state"], "random_state", minimum=0, integer=True)
    check_n_jobs(options["n_jobs"])


def check_n_jobs(n_jobs: int | None) -> None:
    if n_jobs is not None:
        check_number(n_jobs, "n_jobs", minimum=1, integer=True)
