"""Partial pooling: what a calibrator has learned of single exemplars, drawn towards what all of them share.

In: a fitted joint, sigmoid or affine calibrator, and a strength from 0 to 1. Out: `ShrunkenCalibrator`, whose scores
are slope * (score - offset), in the unit of the raw scores. At strength 0 every exemplar has the same slope and offset,
so that the scores are the raw ones; at 1 it has its own. Between them offsets move along a line and slopes along the
line of their logarithms, from the median of the exemplars that have learned something. One sigmoid for all, the `link`,
makes a probability of what is pooled from them. Thresholds, and the proof about them, stay with the calibrator.
Not here: which strength is good, which needs images that were left out (`detector.shrinkage`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from eesvm._support.validation import FloatArray, InputError, check_number
from eesvm.calibration.calibrators.base import ScoreCalibrator
from eesvm.calibration.calibrators.independent import AffineCalibrator, SigmoidCalibrator
from eesvm.calibration.calibrators.joint import JointCalibrator

_F64 = NDArray[np.float64]

_LEAST_SLOPE = 1e-3  # of the median slope: an exemplar that is next to constant is not made more so
_N_STEPS = 100  # of Newton's method for a link, at most
_RIDGE = 1e-9  # of its Hessian


@dataclass(frozen=True)
class Scales:
    """How each exemplar's scores are to be read, by what was learned of it alone: slope * (score - offset)."""

    slopes: _F64  # (E,) > 0
    offsets: _F64  # (E,)
    is_learned: NDArray[np.bool_]  # (E,) others have a guess: redundant or muted exemplars

    def drawn(self, strength: float) -> tuple[_F64, _F64]:
        """(E,) slopes and offsets of which the share `strength` is the exemplar's own.

        The median slope becomes 1 and scores at the median offset stay where they are, so that strengths compare.
        """
        logs = np.log(self.slopes)
        middle, centre = (float(np.median(values[self._known])) for values in (logs, self.offsets))
        slopes = np.exp(strength * np.maximum(logs - middle, np.log(_LEAST_SLOPE)))
        own = centre + strength * (self.offsets - centre)
        # slope * (score - own) + centre, as slope * (score - offset)
        return slopes, own - centre / slopes

    @property
    def _known(self) -> NDArray[np.bool_]:
        return self.is_learned if self.is_learned.any() else np.ones(len(self.is_learned), dtype=bool)


def own_scales(calibrator: ScoreCalibrator, highest: FloatArray) -> Scales:
    """What a fitted calibrator has learned of each exemplar.

    `highest` (E,) is the best score of each exemplar on positives of other images. A redundant exemplar, which joint
    calibration wants to accept none of them, gets the lowest threshold that does that, or the median if that is more.
    """
    if isinstance(calibrator, JointCalibrator):
        return _thresholds(calibrator, np.asarray(highest, dtype=np.float64))
    if isinstance(calibrator, SigmoidCalibrator):
        return _with_guesses(calibrator.sigmoids_[:, 0], calibrator.sigmoids_[:, 1], ~calibrator.muted_)
    if isinstance(calibrator, AffineCalibrator):
        is_learned = ~calibrator.muted_
        slopes = np.where(is_learned, calibrator.scale_, 1.0)
        zeros = -np.where(is_learned, calibrator.offset_, 0.0) / slopes
        return _with_guesses(slopes, zeros, is_learned)
    raise InputError(f"{type(calibrator).__name__} has no slopes and offsets to be drawn together")


def can_shrink(calibrator: ScoreCalibrator) -> bool:
    """Whether a calibrator has slopes and offsets."""
    return isinstance(calibrator, JointCalibrator | SigmoidCalibrator | AffineCalibrator)


def _thresholds(calibrator: JointCalibrator, highest: _F64) -> Scales:
    thresholds = calibrator.thresholds_.astype(np.float64)
    is_learned = np.isfinite(thresholds)
    middle = float(np.median(thresholds[is_learned])) if is_learned.any() else 0.0
    guesses = np.maximum(np.where(np.isfinite(highest), highest, middle), middle)
    return Scales(np.ones(len(thresholds)), np.where(is_learned, thresholds, guesses), is_learned)


def _with_guesses(slopes: _F64, offsets: _F64, is_learned: NDArray[np.bool_]) -> Scales:
    """Exemplars of which nothing was learned get the median slope, and the offset of the strictest tenth."""
    if not is_learned.any():
        return Scales(np.ones(len(slopes)), np.zeros(len(slopes)), is_learned)
    slope, offset = float(np.median(slopes[is_learned])), float(np.quantile(offsets[is_learned], 0.9))
    return Scales(np.where(is_learned, slopes, slope), np.where(is_learned, offsets, offset), is_learned)


class ShrunkenCalibrator(ScoreCalibrator):
    """Exemplars on a scale that they share, as far as nothing better is known of them.

    `transform` gives slope * (score - offset), one per exemplar; `probabilities` what pooled ones of them are worth.

    Attributes
    ----------
    slopes_, offsets_ : (E,).
    strength_ : share of the slopes and offsets that is the exemplar's own, 0 to 1.
    link_ : slope and centre of the sigmoid that makes a pooled score a probability.
    """

    def __init__(self, pos_label: Any = None, missing: str = "refuse") -> None:
        self.pos_label = pos_label
        self.missing = missing

    @classmethod
    def of(cls, scales: Scales, strength: float, link: tuple[float, float] = (1.0, 0.0)) -> ShrunkenCalibrator:
        """The scales drawn together until the share `strength` of them is the exemplar's own."""
        made = cls()
        made.strength_ = float(check_number(strength, "strength", minimum=0, maximum=1))
        made.slopes_, made.offsets_ = scales.drawn(made.strength_)
        made.link_ = link
        made.n_features_in_, made.classes_ = len(made.slopes_), np.array([0, 1])
        return made

    def _calibrate(self, scores: FloatArray) -> FloatArray:
        return self.slopes_ * (scores - self.offsets_)

    def probabilities(self, pooled: FloatArray) -> _F64:
        """(n,) probabilities of pooled scores (n,)."""
        slope, centre = self.link_
        return expit(slope * (np.asarray(pooled, dtype=np.float64) - centre))


def fit_link(scores: _F64, is_right: NDArray[np.bool_], weights: _F64 | None = None) -> tuple[float, float]:
    """(slope, centre) of the sigmoid of least log loss from (n,) scores to whether they are right; slope > 0.

    Targets are Platt's, so that few scores do not give certainties. Where nothing can be learned, or scores fall with
    being right, the answer is next to constant.
    """
    weights = np.ones(len(scores)) if weights is None else weights
    n_right, n_wrong = float(weights[is_right].sum()), float(weights[~is_right].sum())
    if not len(scores) or scores.min() == scores.max():
        return _flat(n_right, n_wrong, float(scores[0]) if len(scores) else 0.0)
    targets = np.where(is_right, (n_right + 1) / (n_right + 2), 1 / (n_wrong + 2))
    origin, spread = float(scores.mean()), float(scores.std())
    slope, offset = _newton((scores - origin) / spread, targets, weights, np.log((n_right + 1) / (n_wrong + 1)))
    if not slope > 0:
        return _flat(n_right, n_wrong, origin)
    return slope / spread, origin - offset * spread / slope


def _flat(n_right: float, n_wrong: float, origin: float) -> tuple[float, float]:
    """Next to the constant share of those that are right."""
    slope = 1e-6
    return slope, origin - float(np.log((n_right + 1) / (n_wrong + 1))) / slope


def _newton(points: _F64, targets: _F64, weights: _F64, offset: float) -> tuple[float, float]:
    """Slope and offset of the least weighted log loss, by Newton's method with halved steps."""
    at = np.array([0.0, offset])
    rows = np.stack([points, np.ones(len(points))])

    def loss(place: _F64) -> float:
        arguments = place @ rows
        return float(weights @ (np.logaddexp(0.0, arguments) - targets * arguments))

    value = loss(at)
    for _ in range(_N_STEPS):
        shares = expit(at @ rows)
        gradient = rows @ (weights * (shares - targets))
        curvature = (rows * (weights * shares * (1 - shares))) @ rows.T + _RIDGE * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        while (new := loss(at - step)) > value and np.abs(step).max() > 1e-12:
            step = step / 2
        if not value - new > 1e-12 * abs(value):
            break
        at, value = at - step, new
    return float(at[0]), float(at[1])
