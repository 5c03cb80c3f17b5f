"""Calibration on scores that a class prior gives to images it has not seen: does recall hold on new images then?

The prior of the exemplars is the single SVM of all training images: it has seen every window that calibration looks at.
Here windows of a fifth of the images are scored with the single SVM of the other four fifths in its place; what an
exemplar bends it by stays. Everything else, thresholds, shares and the sigmoid, is then fitted as always.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

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

N_FOLDS = 5


def cross_fitted(
    train: TrainingWindows, trained: TrainedClass, scores: CalibrationScores, options: DetectorOptions
) -> CalibrationScores:
    """The scores with the prior of the other folds; `scores` must be those of `options`."""
    fold = np.random.default_rng(options.random_state).permutation(len(train.records)) % N_FOLDS
    singles = [_without(train, trained, fold != number, options) for number in range(N_FOLDS)]
    chosen = calibration_rows(train, trained.class_name, options.calibration, options.random_state)[0]
    judged = scores.judged
    assert judged is not None
    assert judged.rows is not None
    moved = [_moved(train, rows, fold, singles, trained.single)[:, None] for rows in (chosen, judged.rows)]
    table = replace(scores.table, scores=scores.table.scores + moved[0])
    return replace(scores, table=table, judged=replace(judged, scores=judged.scores + moved[1]))


def _without(train: TrainingWindows, trained: TrainedClass, is_kept: np.ndarray, options: DetectorOptions) -> SingleSVM:
    """The single SVM of some images; of all where those have no object."""
    rows = class_rows(train, trained.class_name, options.training, options.random_state)[0]
    own = rows.own[is_kept[rows.own_image]]
    if not len(own):
        return trained.single
    negatives = train.rows(rows.is_single_negative & is_kept[train.image])
    return fit_single(train.descriptors[own], negatives, options.training.single_loss, options.random_state)


def _moved(
    train: TrainingWindows, rows: np.ndarray, fold: np.ndarray, singles: list[SingleSVM], single: SingleSVM
) -> np.ndarray:
    """(n,) by how much the score of each window changes with the single SVM that has not seen its image."""
    weights = np.stack([one.weights for one in singles]) - single.weights
    biases = np.array([one.bias for one in singles], np.float32) - np.float32(single.bias)
    found = score_windows(np.asarray(train.descriptors[rows]), weights, biases)
    return found[np.arange(len(rows)), fold[train.image[rows]]]
