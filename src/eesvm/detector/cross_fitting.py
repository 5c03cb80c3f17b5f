"""Calibration windows scored as if the prior of the class had not seen their image.

In: training windows, a trained class, its scores and options. Out: the same scores with the single SVM of other images
in place of the one that exemplars bend; what an exemplar bends it by stays, so a window moves by the same amount under
all of them. The prior has learned every object that calibration looks at and scores it higher than it would a new one:
thresholds that accept all of these accept fewer of the others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from eesvm.detector.class_training import (
    CalibrationScores,
    SingleSVM,
    TrainedClass,
    calibration_rows,
    class_rows,
    fit_single,
)
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_table import TrainingWindows
from eesvm.exemplars.scoring import score_windows
from eesvm.exemplars.svms import LinearExemplars

FOLDS = 5  # of the images; each is scored by the single SVM of the others

F32 = NDArray[np.float32]


def cross_fitted(
    windows: TrainingWindows, trained: TrainedClass, scores: CalibrationScores, options: DetectorOptions
) -> CalibrationScores:
    """The scores by a prior that has not seen the images; as they are without cross-fitting, or a prior.

    Parameters
    ----------
    windows : of the training images.
    trained : the detectors of the class.
    scores : what `score_class` gives for these options.
    options : of the detector.
    """
    if not options.calibration.is_cross_fitted or options.training.prior is None:
        return scores
    fold = _folds(windows, trained.class_name, options.random_state)
    singles = [_single_of(windows, trained, fold != number, options) for number in range(FOLDS)]
    chosen, _, _ = calibration_rows(windows, trained.class_name, options.calibration, options.random_state)
    table, judged = scores.table, scores.judged
    table = replace(table, scores=table.scores + _moved(windows, chosen, fold, singles, trained.single))
    if judged is not None:
        assert judged.rows is not None
        judged = replace(judged, scores=judged.scores + _moved(windows, judged.rows, fold, singles, trained.single))
    return replace(scores, table=table, judged=judged)


def moved_by(rows: F32, scores: F32, exemplars: LinearExemplars) -> F32:
    """(n, 1) by how much scores (n, E) of windows (n, d) were moved, E being the first of these exemplars.

    All scores of a window are moved alike, but for exemplars that joined with it later: the last of the E counts.

    Parameters
    ----------
    rows : descriptors of the windows.
    scores : what is kept of them, moved.
    exemplars : that gave the scores, and perhaps others behind them.
    """
    n = scores.shape[1]
    if not n:
        return np.zeros((len(rows), 1), dtype=np.float32)
    plain = score_windows(rows, exemplars.coef_[n - 1 : n], exemplars.intercept_[n - 1 : n])
    return np.asarray(scores[:, -1:] - plain, dtype=np.float32)


def _folds(windows: TrainingWindows, class_name: str, random_state: int) -> NDArray[np.int64]:
    """(images,) images with objects of the class are shared out evenly, then the others."""
    has = np.zeros(len(windows.records), dtype=bool)
    has[windows.image[windows.objects(class_name)[0]]] = True
    random = np.random.default_rng(random_state)
    fold = np.empty(len(has), dtype=np.int64)
    for kind in (True, False):
        members = random.permutation(np.flatnonzero(has == kind))
        fold[members] = np.arange(len(members)) % FOLDS
    return fold


def _single_of(
    windows: TrainingWindows, trained: TrainedClass, is_kept: NDArray[np.bool_], options: DetectorOptions
) -> SingleSVM:
    """The single SVM of some images; that of all where those have no object or no negative."""
    rows, _ = class_rows(windows, trained.class_name, options.training, options.random_state)
    own = rows.own[is_kept[rows.own_image]]
    is_negative = rows.is_single_negative & is_kept[windows.image]
    if not len(own) or not is_negative.any():
        return trained.single
    loss, random_state = options.training.single_loss, options.random_state
    return fit_single(windows.descriptors[own], windows.rows(is_negative), loss, random_state)


def _moved(
    windows: TrainingWindows,
    rows: NDArray[np.int64],
    fold: NDArray[np.int64],
    singles: list[SingleSVM],
    single: SingleSVM,
) -> F32:
    """(n, 1) what the single SVM without the fold of a window gives it more than the one of all images."""
    weights = np.stack([one.weights for one in singles]) - single.weights
    biases = np.array([one.bias for one in singles], dtype=np.float32) - np.float32(single.bias)
    found = score_windows(np.asarray(windows.descriptors[rows]), weights, biases)
    return np.asarray(found[np.arange(len(rows)), fold[windows.image[rows]]][:, None], dtype=np.float32)
