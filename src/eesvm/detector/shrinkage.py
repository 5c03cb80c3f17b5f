"""How far exemplars may have scales of their own: as far as images that are left out support it.

In: `CalibrationScores` with `JudgedWindows`, and how a calibrator is fitted to such scores. Out: `LeftOut`: for each
strength the average precision of detections in images that neither calibration nor the scoring exemplars have seen,
the strength that follows from it, and the sigmoid from pooled scores to the share of detections that are right.
Images are left out in folds; exemplars of the images that are left out do not score there. A strength is taken only if
it is better than every smaller one by more than its standard error over images, so that where nothing is supported
raw scores remain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import FloatArray
from eesvm.calibration.calibrators.base import ScoreCalibrator
from eesvm.calibration.calibrators.joint import JointCalibrator, own_image_pairs
from eesvm.calibration.calibrators.shrinkage import ShrunkenCalibrator, fit_link, own_scales
from eesvm.detector.class_training import CalibrationScores
from eesvm.detector.left_out import JudgedWindows
from eesvm.detector.options import DetectionOptions
from eesvm.metrics.detections import Ranking

STRENGTHS = (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)
FOLDS = 5
N_RESAMPLES = 100  # of the images, for standard errors
TOLERANCE = 0.03  # of the recall there: the hardest positives cost more than all others
_SLACK = 1e-5

F64 = NDArray[np.float64]
Fit = Callable[[CalibrationScores], ScoreCalibrator]


@dataclass(frozen=True)
class LeftOut:
    """What images that were left out say about one kind of calibrator."""

    strengths: tuple[float, ...]
    precisions: tuple[float, ...]  # average precision of detections there
    errors: tuple[float, ...]  # standard errors of the differences to the first strength
    chosen: float
    link: tuple[float, float]  # slope and centre
    recall: float | None = None  # share of the positives there that joint thresholds accept
    shift: float | None = None  # by which they would have to be lowered to come within 3 points of the floor there

    def as_dict(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def shrink(
    calibrator: ScoreCalibrator,
    scores: CalibrationScores,
    fit: Fit,
    detection: DetectionOptions,
    strength: float | None = None,
    min_recall: float = 1.0,
    random_state: int = 0,
) -> tuple[ShrunkenCalibrator, LeftOut]:
    """A fitted calibrator drawn together as far as images left out support it, or to a given strength."""
    strengths = STRENGTHS if strength is None else (strength,)
    found = left_out(scores, fit, detection, strengths, min_recall, random_state)
    return shrunken_as(calibrator, scores, found), found


def shrunken_as(calibrator: ScoreCalibrator, scores: CalibrationScores, found: LeftOut) -> ShrunkenCalibrator:
    """A fitted calibrator drawn together as images left out have said."""
    return ShrunkenCalibrator.of(own_scales(calibrator, highest_elsewhere(scores)), found.chosen, found.link)


def left_out(
    scores: CalibrationScores,
    fit: Fit,
    detection: DetectionOptions,
    strengths: Sequence[float] = STRENGTHS,
    min_recall: float = 1.0,
    random_state: int = 0,
) -> LeftOut:
    """Cross-validation over images."""
    judged = scores.judged
    assert judged is not None
    folds = _Folds.of(scores, judged, random_state)
    found = np.full((len(strengths), len(judged.image)), -np.inf)
    margins: list[F64] = []
    for number in range(folds.n):
        _score_fold(folds, number, scores, judged, fit, strengths, detection.pooling, found, margins)
    rankings = [judged.ranking(row, detection) for row in found]
    precisions, resampled = _precisions(rankings, judged.weights, random_state)
    chosen = choose_strength(precisions, resampled)
    link = _link(rankings[chosen], judged.weights)
    recall, shift = _recall(np.concatenate(margins), min_recall) if margins else (None, None)
    errors = (resampled - resampled[:1]).std(axis=1, ddof=1)
    return LeftOut(
        tuple(strengths), tuple(precisions.tolist()), tuple(errors.tolist()), strengths[chosen], link, recall, shift
    )


def choose_strength(precisions: F64, resampled: F64) -> int:
    """Which of the strengths, smallest first, is taken: the smallest that is within a standard error of the best.

    `precisions` (S,) are average precisions, `resampled` (S, R) the same on resamples of the images: the error is that
    of the difference to the best.
    """
    best = int(np.argmax(precisions))
    for number in range(best):
        error = float((resampled[best] - resampled[number]).std(ddof=1))
        if precisions[best] - precisions[number] <= error:
            return number
    return best


def highest_elsewhere(scores: CalibrationScores) -> F64:
    """(E,) the best score of each exemplar on positives of other images than its own; -inf where there is none."""
    table = scores.table
    is_positive = np.asarray(table.labels) == 1
    is_own = own_image_pairs(table.groups, table.exemplar_groups, is_positive, table.n_exemplars)
    assert is_own is not None
    return np.where(is_own, -np.inf, table.scores[is_positive]).max(axis=0, initial=-np.inf)


@dataclass(frozen=True)
class _Folds:
    """Which fold leaves out each calibration window, each exemplar and each judged window."""

    n: int
    rows: NDArray[np.int64]
    exemplars: NDArray[np.int64]
    judged: NDArray[np.int64]

    @classmethod
    def of(cls, scores: CalibrationScores, judged: JudgedWindows, random_state: int) -> _Folds:
        """Images with exemplars are shared out evenly, then the others; with one such image there is one fold."""
        table = scores.table
        groups, exemplar_groups = np.asarray(table.groups), np.asarray(table.exemplar_groups)
        names = np.unique(np.concatenate([groups, exemplar_groups, judged.image_ids]))
        has = np.isin(names, exemplar_groups)
        n = max(1, min(FOLDS, int(has.sum())))
        random = np.random.default_rng(random_state)
        of_image = np.empty(len(names), dtype=np.int64)
        for kind in (True, False):
            members = random.permutation(np.flatnonzero(has == kind))
            of_image[members] = np.arange(len(members)) % n
        where = [of_image[np.searchsorted(names, own)] for own in (groups, exemplar_groups, judged.image_ids)]
        return cls(n, where[0], where[1], where[2][judged.image])


def _score_fold(
    folds: _Folds,
    number: int,
    scores: CalibrationScores,
    judged: JudgedWindows,
    fit: Fit,
    strengths: Sequence[float],
    pooling: int,
    found: F64,
    margins: list[F64],
) -> None:
    """Fill in what calibrations without the images of a fold say about them; with one fold nothing can be left out."""
    is_row, is_exemplar = ((ids != number) | (folds.n == 1) for ids in (folds.rows, folds.exemplars))
    table = scores.table
    labels = np.asarray(table.labels)
    own = np.flatnonzero(folds.judged == number)
    if not is_exemplar.any() or not (labels[is_row] == 1).any() or not (labels[is_row] == 0).any():
        return
    others = replace(scores, table=table.rows(is_row).exemplars(is_exemplar), judged=None)
    calibrator = fit(others)
    scales = own_scales(calibrator, highest_elsewhere(others))
    raw = judged.scores[own][:, is_exemplar]
    for row, strength in enumerate(strengths):
        found[row, own] = pooled(ShrunkenCalibrator.of(scales, strength).transform(raw), pooling)
    if isinstance(calibrator, JointCalibrator):
        positives = table.scores[(folds.rows == number) & (labels == 1)][:, is_exemplar]
        if len(positives):
            margins.append(np.asarray((positives - calibrator.thresholds_).max(axis=1), dtype=np.float64))


def pooled(calibrated: FloatArray, n_best: int) -> F64:
    """(n,) mean of the `n_best` highest of (n, U) calibrated scores; of all where there are fewer."""
    n_best = min(n_best, calibrated.shape[1])
    if n_best == 1:
        return calibrated.max(axis=1).astype(np.float64)
    best = np.partition(calibrated, -n_best, axis=1)[:, -n_best:]
    return np.sort(best, axis=1).mean(axis=1, dtype=np.float64)


def _precisions(rankings: Sequence[Ranking], weights: F64, random_state: int) -> tuple[F64, F64]:
    """(S,) average precisions, and (S, R) of resamples of the images; 0 where there is nothing to find."""
    random, n = np.random.default_rng(random_state), len(weights)
    drawn = [weights * np.bincount(random.integers(n, size=n), minlength=n) for _ in range(N_RESAMPLES)]
    precisions = np.array([ranking.average_precision(weights) for ranking in rankings])
    resampled = np.array([[ranking.average_precision(each) for each in drawn] for ranking in rankings])
    return np.nan_to_num(precisions), np.nan_to_num(resampled)


def _link(ranking: Ranking, weights: F64) -> tuple[float, float]:
    return fit_link(ranking.scores, ranking.is_hit, weights[ranking.images])


def _recall(margins: F64, min_recall: float) -> tuple[float, float]:
    """Share of the positives with a margin above 0, and how far thresholds must fall to come close to the floor."""
    ordered = np.sort(margins)
    n_missed = int(np.floor((1 - min_recall + TOLERANCE) * len(ordered) + 1e-9))
    lowest = ordered[min(len(ordered) - 1, n_missed)]
    slack = _SLACK * max(1.0, abs(float(lowest)))  # thresholds are float32, and accept what is strictly above them
    return float((margins > 0).mean()), 0.0 if lowest > 0 else slack - float(lowest)
