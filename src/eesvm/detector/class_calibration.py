"""Calibrators of one class by name: fitted together from the same scores, applied to the windows of an image.

In: `CalibrationScores`, options, names. Out: fitted calibrators; and for the scores of new windows one score and one
winning exemplar each (equation 1 of the paper; with `pooling` the mean of the few best calibrated scores, while the
winner stays the best). "joint" and "joint-sigmoid" are one search, of which the first uses the thresholds alone.
Redundant exemplars, which have no threshold and accept nothing, are left out there.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.threads import one_product_thread
from eesvm._support.validation import FloatArray, InputError, check_choice
from eesvm.calibration.anytime import ProgressCallback
from eesvm.calibration.calibrators.base import ScoreCalibrator, winning_exemplar
from eesvm.calibration.calibrators.cooccurrence import CooccurrenceCalibrator
from eesvm.calibration.calibrators.independent import (
    AffineCalibrator,
    IsotonicCalibrator,
    SigmoidCalibrator,
    Uncalibrated,
)
from eesvm.calibration.calibrators.joint import JointCalibrator, own_image_pairs
from eesvm.calibration.calibrators.shrinkage import ShrunkenCalibrator, can_shrink
from eesvm.calibration.calibrators.sigmoid import fit_sigmoids
from eesvm.calibration.exact import solve
from eesvm.calibration.tables.fit import fit_table
from eesvm.detector.class_training import CalibrationScores
from eesvm.detector.options import AUTO, CALIBRATORS, CalibrationOptions, DetectionOptions
from eesvm.detector.shrinkage import LeftOut, pooled, shrink, shrunken_as

SINGLE_SVM = "single-svm"
JOINT, JOINT_SIGMOID = "joint", "joint-sigmoid"
COOCCURRENCE = "cooccurrence"
SHRINKABLE = (JOINT, "sigmoid", "affine")  # kept under these names, with scales that can be drawn together
CHANGED = "n_changed"  # of the facts of a class: exemplars that came or went since images were left out
_PROBABILITIES = ("sigmoid", JOINT_SIGMOID)  # of the names whose scales can be drawn together

# What is fitted, and kept in a file, for each name; the single SVM needs nothing.
STORED_AS = {name: JOINT if name == JOINT_SIGMOID else name for name in CALIBRATORS if name != SINGLE_SVM}


def stored_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names under which the calibrators of these names are kept, each once."""
    wanted = tuple(names)
    for name in wanted:
        check_choice(name, "names", CALIBRATORS)
    return tuple(dict.fromkeys(STORED_AS[name] for name in wanted if name in STORED_AS))


@one_product_thread()  # the same bits wherever it is called
def calibrate_class(
    scores: CalibrationScores,
    names: Iterable[str],
    options: CalibrationOptions | None = None,
    *,
    pooling: int | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: ProgressCallback | None = None,
    start: FloatArray | None = None,
    known: Mapping[str, LeftOut] | None = None,
) -> dict[str, ScoreCalibrator]:
    """Fitted calibrators by the names they are kept under (see `stored_names`).

    With the option `shrink` those with scales for each exemplar also have what these become when they are drawn
    together, `shrunken_`, and what images left out said about that, `left_out_`, by detections with this `pooling`.
    A search that Ctrl-C has ended raises KeyboardInterrupt: half a search is no result that a later run should find.

    Parameters
    ----------
    scores : of the class, from `score_class`.
    names : which to fit, see `CALIBRATORS`; "single-svm" needs none.
    options : of the calibration. Default: those of the default preset.
    pooling : how many exemplars a detection's score is the mean of, where images left out judge. Default: the preset's.
    random_state : seeds the search and all that is drawn.
    n_jobs : threads; the result does not depend on it, unless `options.time_limit` ends the search.
    progress : called with a `Progress` during the search of the joint calibration.
    start : (E,) thresholds that this search begins with, see `solve`.
    known : what images left out have said already, by the names that calibrators are kept under: it stands.
    """
    options = CalibrationOptions() if options is None else options
    # Other options of detection are those of the preset: another suppression is no reason to calibrate anew.
    detection = DetectionOptions() if pooling is None else DetectionOptions(pooling=pooling)
    fitted: dict[str, ScoreCalibrator] = {}
    for name in stored_names(names):
        calibrator = _fit(name, scores, options, random_state, n_jobs, progress, start)
        if options.shrink is not None and can_shrink(calibrator):
            found = (known or {}).get(name)
            if found is None:
                _draw_together(name, calibrator, scores, options, detection, random_state, n_jobs)
            else:
                calibrator.shrunken_, calibrator.left_out_ = shrunken_as(calibrator, scores, found), found
        fitted[name] = calibrator
    return fitted


def _draw_together(
    name: str,
    calibrator: Any,
    scores: CalibrationScores,
    options: CalibrationOptions,
    detection: DetectionOptions,
    random_state: int,
    n_jobs: int | None,
) -> None:
    """Give a calibrator its `shrunken_` and `left_out_`."""
    if scores.judged is None:
        raise InputError("`calibration.shrink` needs scores of whole images: score the class with this option")
    # A fold is searched a tenth as long: its thresholds only have to say how far to go.
    nodes = None if options.node_limit is None else max(1, options.node_limit // 10)
    seconds = None if options.time_limit is None else options.time_limit / 10
    hasty = replace(options, coverage="across-images", node_limit=nodes, time_limit=seconds)

    def fit(others: CalibrationScores) -> ScoreCalibrator:
        return _fit(name, others, hasty, random_state, n_jobs, None, has_sigmoids=False)

    strength = None if options.shrink == AUTO else float(options.shrink or 0)
    calibrator.shrunken_, calibrator.left_out_ = shrink(
        calibrator, scores, fit, detection, strength, options.min_recall, random_state
    )


def _fit(
    name: str,
    scores: CalibrationScores,
    options: CalibrationOptions,
    random_state: int,
    n_jobs: int | None,
    progress: ProgressCallback | None,
    start: FloatArray | None = None,
    has_sigmoids: bool = True,
) -> ScoreCalibrator:
    """A calibrator; a joint one may do without sigmoids, which are no part of its scales."""
    table = scores.table
    if name == JOINT:
        return _fit_joint(scores, options, random_state, n_jobs, progress, start, has_sigmoids)
    if name == COOCCURRENCE:
        return CooccurrenceCalibrator().fit(
            table.scores,
            table.labels,
            boxes=scores.boxes,
            groups=table.groups,
            overlaps=scores.overlaps,
            exemplar_groups=table.exemplar_groups,
        )
    calibrator: ScoreCalibrator
    if name == "sigmoid":
        calibrator = SigmoidCalibrator(criterion=options.criterion, random_state=random_state, n_jobs=n_jobs)
        if options.shrink is not None and not _is_of_one_image(scores):
            return _fit_across(calibrator, scores)
    elif name == "isotonic":
        calibrator = IsotonicCalibrator(n_jobs=n_jobs)
    elif name == "affine":
        calibrator = AffineCalibrator(random_state=random_state)
    elif name == "none":
        calibrator = Uncalibrated()
    else:
        raise InputError(f"`names` must be of calibrators that are fitted to scores, got {name!r}")
    return calibrator.fit(table.scores, table.labels)


def _fit_across(calibrator: SigmoidCalibrator, scores: CalibrationScores) -> SigmoidCalibrator:
    """Sigmoids of exemplars that do not see the positives of their own image."""
    table = scores.table
    is_positive = np.asarray(table.labels) == 1
    lowest = -1.0 if calibrator.margin is None else calibrator.margin
    is_own = own_image_pairs(table.groups, table.exemplar_groups, is_positive, table.n_exemplars)
    assert is_own is not None
    positives = table.scores[is_positive]
    calibrator.sigmoids_, calibrator.muted_ = fit_sigmoids(
        positives,
        table.scores[~is_positive],
        (positives >= lowest) & ~is_own,
        lowest,
        calibrator.criterion,
        calibrator.min_positives,
        calibrator.max_negatives_per_positive,
        calibrator.random_state,
        calibrator.n_jobs,
    )
    calibrator.n_features_in_, calibrator.classes_ = table.n_exemplars, np.array([0, 1])
    return calibrator


def _is_of_one_image(scores: CalibrationScores) -> bool:
    """Whether all exemplars are of one image: then nobody else could cover it."""
    return len(set(np.asarray(scores.table.exemplar_groups).tolist())) == 1


def _fit_joint(
    scores: CalibrationScores,
    options: CalibrationOptions,
    random_state: int,
    n_jobs: int | None,
    progress: ProgressCallback | None,
    start: FloatArray | None = None,
    has_sigmoids: bool = True,
) -> JointCalibrator:
    table = scores.table
    is_across = options.coverage == "across-images" and not _is_of_one_image(scores)
    calibrator = JointCalibrator(
        sigmoid=has_sigmoids,
        method=options.method,
        min_recall=options.min_recall,
        time_limit=options.time_limit,
        node_limit=options.node_limit,
        gap=options.gap,
        criterion=options.criterion,
        start=start,
        progress=progress,
        random_state=random_state,
        n_jobs=n_jobs,
    )
    fit_table(table, calibrator, across_groups=is_across)
    calibrator.set_params(progress=None, n_jobs=None, start=None)
    if calibrator.result_.statistics["is_interrupted"]:
        raise KeyboardInterrupt
    return calibrator


def separability(scores: CalibrationScores) -> dict[str, float] | None:
    """How far positives and negatives of a class are apart, by greedy thresholds that accept every positive.

    The shares of the negatives that are accepted: "own" where exemplars may cover windows of their own image, "across"
    where they may not. A network that knows the images by heart makes the first next to nothing. None where all
    exemplars are of one image, which nobody else could cover.
    """
    table = scores.table
    if _is_of_one_image(scores):
        return None
    shares = {}
    for name, is_across in (("own", False), ("across", True)):
        problem = table.problem(is_across)
        shares[name] = float(solve(problem, method="greedy").loss) / problem.n_negatives
    return shares


@dataclass(frozen=True)
class ScoreRule:
    """How the scores of some exemplars of a class become one score per window."""

    used: NDArray[np.intp]  # (U,) exemplars of the class whose scores it wants
    calibrator: ScoreCalibrator  # of those
    pooling: int = 1
    is_probability: bool = False  # whether scales that were drawn together end in a probability

    def __call__(self, scores: FloatArray, boxes: NDArray[np.float64]) -> tuple[FloatArray, NDArray[np.intp]]:
        """(n,) scores and (n,) winning exemplars of the class, from (n, U) raw scores of the windows of one image."""
        if not len(scores):
            return np.empty(0), np.empty(0, dtype=np.intp)
        if isinstance(self.calibrator, CooccurrenceCalibrator):  # its scores are sums over exemplars as they are
            calibrated = self.calibrator.transform(scores, boxes, np.zeros(len(boxes), dtype=np.intp))
            return calibrated.max(axis=1), self.used[winning_exemplar(calibrated, scores)]
        calibrated = self.calibrator.transform(scores)
        winners = winning_exemplar(calibrated, self.calibrator.tie_breaker(scores))
        return self._linked(pooled(calibrated, self.pooling)), self.used[winners]

    def _linked(self, calibrated: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.is_probability and isinstance(self.calibrator, ShrunkenCalibrator):
            return self.calibrator.probabilities(calibrated)
        return calibrated

    def best(self, scores: FloatArray, n_best: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """(n, k) exemplars of the class with the highest calibrated scores, the winner first, and those scores.

        Not for co-occurrence, whose scores depend on the other windows of the image.
        """
        if isinstance(self.calibrator, CooccurrenceCalibrator):
            raise InputError(
                f"the calibrator {COOCCURRENCE} scores a window by what fires around it, and cannot say "
                "who is best on a window alone: choose another one"
            )
        if not len(scores):
            return np.empty((0, 0), dtype=np.intp), np.empty((0, 0))
        calibrated = np.asarray(self.calibrator.transform(scores), dtype=np.float64)
        order = np.lexsort((-self.calibrator.tie_breaker(scores), -calibrated), axis=1)[:, :n_best]
        return self.used[order], self._linked(np.take_along_axis(calibrated, order, axis=1))


def score_rule(name: str, fitted: Mapping[str, ScoreCalibrator], n_exemplars: int, pooling: int = 1) -> ScoreRule:
    """The rule of the calibrator `name`.

    Redundant exemplars of a joint calibration are left out, unless scales are drawn together, which gives them one.
    """
    calibrator = fitted[STORED_AS[name]]
    used = np.arange(n_exemplars)
    shrunken = getattr(calibrator, "shrunken_", None)
    if shrunken is not None:
        return ScoreRule(used, shrunken, pooling, is_probability=name in _PROBABILITIES)
    if isinstance(calibrator, JointCalibrator):
        used = np.flatnonzero(calibrator.active_)
        calibrator = restricted(calibrator, used, sigmoid=name == JOINT_SIGMOID)
    return ScoreRule(used, calibrator, pooling)


def own_scales_only(calibrator: ScoreCalibrator) -> ScoreCalibrator:
    """The calibrator as it is without what its scales become when they are drawn together.

    Parameters
    ----------
    calibrator : fitted; it stays as it is.
    """
    alone = copy.copy(calibrator)
    for name in ("shrunken_", "left_out_"):
        alone.__dict__.pop(name, None)
    return alone


def restricted(calibrator: JointCalibrator, used: NDArray[np.intp], sigmoid: bool) -> JointCalibrator:
    """The calibrator of some of its exemplars."""
    small = JointCalibrator(sigmoid=sigmoid)
    small.thresholds_, small.active_ = calibrator.thresholds_[used], calibrator.active_[used]
    small.sigmoids_, small.muted_ = calibrator.sigmoids_[used], calibrator.muted_[used]
    small.n_features_in_, small.classes_ = len(used), calibrator.classes_
    return small


def check_calibrators(names: Any) -> tuple[str, ...]:
    """Names of calibrators, each once; "all" stands for all of them."""
    chosen = CALIBRATORS if names == "all" else (names,) if isinstance(names, str) else tuple(names)
    for name in chosen:
        check_choice(name, "calibrator", CALIBRATORS)
    if not chosen:
        raise InputError("`calibrator` must be one of " + ", ".join(CALIBRATORS) + ", or all")
    return tuple(dict.fromkeys(chosen))
