"""A trained detector as data, and what it says about the windows of an image.

In: the classes of a model, a calibrator by name, and the boxes and descriptors of an image's windows. Out: scores and
winners of all classes by one matrix product, boxes moved to where the class's regression puts them, and after
suppression `Detections`, whose exemplars are numbered through the whole model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm import boxes as box_functions
from eesvm._support.threads import one_product_thread
from eesvm._support.validation import InputError, check_choice
from eesvm.calibration.calibrators.base import ScoreCalibrator
from eesvm.calibration.certificate import Certificate
from eesvm.detector.box_regression import BoxRegressor
from eesvm.detector.class_calibration import SINGLE_SVM, STORED_AS, ScoreRule, calibrate_class, score_rule
from eesvm.detector.class_training import CalibrationScores, SingleSVM
from eesvm.detector.kept_windows import KeptWindows
from eesvm.detector.options import CALIBRATORS, DetectionOptions, DetectorOptions
from eesvm.exemplars.scoring import score_windows
from eesvm.exemplars.svms import LinearExemplars
from eesvm.structures import Detections, ExemplarAnnotation

F32 = NDArray[np.float32]


@dataclass
class ClassModel:
    """One class of a model. `calibrators` are by the names they are kept under, and may grow."""

    class_name: str
    exemplars: LinearExemplars  # fitted
    annotations: tuple[ExemplarAnnotation, ...]  # of each exemplar
    single: SingleSVM
    calibrators: dict[str, ScoreCalibrator] = field(default_factory=dict)
    regressor: BoxRegressor | None = None  # None: its boxes stay as they are proposed
    read_scores: Callable[[], CalibrationScores] | None = field(default=None, repr=False)  # reads them when needed
    read_kept: Callable[[], KeptWindows] | None = field(default=None, repr=False)  # windows that it can grow from
    read_judged: Callable[[], KeptWindows] | None = field(default=None, repr=False)  # or only those of whole images
    # The proof of the joint thresholds, where they came from files: it is large, and only needed to be written again.
    read_certificate: Callable[[], Certificate] | None = field(default=None, repr=False)
    facts: dict[str, Any] = field(default_factory=dict)  # for the card: counts

    @property
    def n_exemplars(self) -> int:
        """How many exemplars the class has."""
        return len(self.exemplars.coef_)

    def fit_missing(self, name: str, options: DetectorOptions) -> None:
        """Fit the calibrator `name` from the training scores, unless it is there.

        Parameters
        ----------
        name : one of `CALIBRATORS`.
        options : of the detector; those of the calibration, `random_state` and `n_jobs` count.
        """
        stored = STORED_AS.get(name)
        if stored is None or stored in self.calibrators:
            return
        if self.read_scores is None:
            raise InputError(f"the model has neither the calibrator {name} nor the scores to fit it from")
        self.calibrators |= calibrate_class(
            self.read_scores(),
            [name],
            options.calibration,
            pooling=options.detection.pooling,
            random_state=options.random_state,
            n_jobs=options.n_jobs,
        )


@dataclass(frozen=True)
class _Part:
    """One class within an `Ensemble`."""

    class_name: str
    columns: slice  # of the scores
    rule: ScoreRule | None  # None: the single SVM
    first: int  # number of its first exemplar in the model
    regressor: BoxRegressor | None


@dataclass(frozen=True)
class ScoredWindows:
    """What a class says about the windows of an image."""

    class_name: str
    boxes: NDArray[np.float64]  # (n, 4) where they end
    scores: NDArray[np.float64]  # (n,)
    winners: NDArray[np.int64]  # (n,) exemplars among all of the model, -1 for none


class Ensemble:
    """All detectors of a model under one calibrator, stacked for one matrix product.

    Parameters
    ----------
    models : the classes.
    calibrator : one of `CALIBRATORS`; where a class does not have it, it is fitted from the training scores.
    options : of the detector.
    """

    def __init__(self, models: Sequence[ClassModel], calibrator: str, options: DetectorOptions) -> None:
        check_choice(calibrator, "calibrator", CALIBRATORS)
        self.parts: list[_Part] = []
        weights, biases = [], []
        first = start = 0
        for model in models:
            model.fit_missing(calibrator, options)
            if calibrator == SINGLE_SVM:
                rule = None
                weights.append(model.single.weights[None, :])
                biases.append(np.array([model.single.bias], dtype=np.float32))
            else:
                rule = score_rule(calibrator, model.calibrators, model.n_exemplars, options.detection.pooling)
                weights.append(model.exemplars.coef_[rule.used])
                biases.append(model.exemplars.intercept_[rule.used])
            stop = start + len(biases[-1])
            regressor = model.regressor if options.detection.box_regression else None
            self.parts.append(_Part(model.class_name, slice(start, stop), rule, first, regressor))
            first, start = first + model.n_exemplars, stop
        self.weights: F32 = np.concatenate(weights)
        self.biases: F32 = np.concatenate(biases)

    @one_product_thread()  # the same bits wherever it is called
    def scores(self, descriptors: F32, boxes: NDArray[np.float64]) -> list[ScoredWindows]:
        """What each class says about the windows of an image.

        Parameters
        ----------
        descriptors : (n, d) of the windows.
        boxes : (n, 4) where the windows lie, half-open xyxy.
        """
        if len(descriptors) != len(boxes):
            raise InputError(f"`boxes` must have one row for each of {len(descriptors)} descriptors, got {len(boxes)}")
        raw = score_windows(descriptors, self.weights, self.biases)
        found = []
        for part in self.parts:
            own = raw[:, part.columns]
            if part.rule is None:
                scores, winners = own[:, 0], np.full(len(own), -1)
            else:
                scores, within = part.rule(own, boxes)
                winners = part.first + within
            ended = boxes if part.regressor is None else part.regressor.move(boxes, descriptors)
            found.append(
                ScoredWindows(part.class_name, ended, np.asarray(scores, dtype=np.float64), winners.astype(np.int64))
            )
        return found

    @one_product_thread()  # the same bits wherever it is called
    def best(
        self, descriptors: F32, class_names: Sequence[str] | NDArray[np.str_], n_best: int
    ) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[float, ...], ...]]:
        """For each window the `n_best` best exemplars of a class among all of the model, and their calibrated scores.

        The winner comes first.

        Parameters
        ----------
        descriptors : (n, d) of the windows.
        class_names : (n,) the class that is asked about each window.
        n_best : exemplars for each window; fewer where the class has fewer that are not redundant.
        """
        raw = score_windows(descriptors, self.weights, self.biases)
        names = np.asarray(class_names)
        exemplars: list[tuple[int, ...]] = [()] * len(raw)
        scores: list[tuple[float, ...]] = [()] * len(raw)
        for part in self.parts:
            if part.rule is None:
                raise InputError(f"the calibrator {SINGLE_SVM} has no exemplars: choose another one")
            rows = np.flatnonzero(names == part.class_name)
            found = part.rule.best(raw[rows][:, part.columns], n_best)
            for row, own, calibrated in zip(rows.tolist(), *found, strict=True):
                exemplars[row] = tuple((part.first + own).tolist())
                scores[row] = tuple(calibrated.tolist())
        return tuple(exemplars), tuple(scores)


def score_image(
    ensemble: Ensemble,
    image_id: str,
    boxes: NDArray[np.float64],
    descriptors: F32,
    options: DetectionOptions | None = None,
) -> Detections:
    """What the ensemble detects among the windows of one image.

    Parameters
    ----------
    ensemble : all detectors of the model.
    image_id : of the image, for the result.
    boxes : (n, 4) its windows, half-open xyxy.
    descriptors : (n, d) of these windows.
    options : suppression, limits and lowest score. Default: those of the default preset.
    """
    options = DetectionOptions() if options is None else options
    lowest = -np.inf if options.min_score is None else options.min_score
    found = ensemble.scores(descriptors, boxes)
    usable = [np.flatnonzero(np.isfinite(one.scores) & (one.scores >= lowest)) for one in found]
    pairs = list(zip(found, usable, strict=True))
    box = np.concatenate([one.boxes[rows] for one, rows in pairs])
    score = np.concatenate([one.scores[rows] for one, rows in pairs])
    winner = np.concatenate([one.winners[rows] for one, rows in pairs])
    class_id = np.repeat(np.arange(len(found)), [len(rows) for rows in usable])
    best = box_functions.batched_nms(box, score, class_id, options.nms, options.overlap, limit=options.max_detections)[
        : options.max_detections
    ]
    return Detections(
        image_id=image_id,
        boxes=box[best],
        scores=score[best],
        class_names=np.array([one.class_name for one in found], dtype=np.str_)[class_id[best]],
        exemplars=winner[best],
    )
