"""One class that takes on new exemplars, or lets some go, from the windows that are kept of its training images.

In: a `ClassModel`, or none where the class is new, and `News`: what described windows of new images say about the
class. Out: another `ClassModel`, with scores, kept windows and calibrators that fit its exemplars.
The search for joint thresholds starts from those there are; new exemplars start as redundant ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import InputError
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.calibration.tables.score_table import ScoreTable
from eesvm.detector.box_regression import regress_boxes
from eesvm.detector.class_calibration import CHANGED, JOINT, calibrate_class
from eesvm.detector.class_training import CalibrationScores, SingleSVM, TrainedClass, fit_single, make_trainer
from eesvm.detector.grown_scores import calibration_rows, corrected, grown_table, moved_before, moved_scores, replaced
from eesvm.detector.kept_windows import KeptWindows, with_hardest, with_windows
from eesvm.detector.left_out import judged_windows
from eesvm.detector.model import ClassModel
from eesvm.detector.news import F32, News, descriptors_of_exemplars, images_of_negatives, negatives_of
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_table import NEGATIVE
from eesvm.exemplars.svms import LinearExemplars
from eesvm.structures import Problem
from eesvm.transfer.annotations import annotate_all

_MOST_OTHERS = 50_000  # windows of other classes that a new class is trained against
_LITTLE = 0.1  # share of exemplars that may come or go until images are left out again
_OBJECT = 0.999  # IoU of a kept window with its object, from which on it is the object


def grow_class(before: ClassModel, news: News, options: DetectorOptions, problems: list[Problem] | None) -> ClassModel:
    """The class with exemplars of the new objects.

    Parameters
    ----------
    before : the class, with scores and kept windows.
    news : of the new images.
    options : of the detector.
    problems : a list that receives a `Problem` for each mask that cannot be used.
    """
    assert before.read_kept is not None
    assert before.read_scores is not None
    kept, scores = corrected(before.read_kept(), before.read_scores(), news.instances, options)
    labels, new = np.asarray(scores.table.labels), descriptors_of_exemplars(news, options)
    single, exemplars = before.single, before.exemplars
    if len(new):
        negatives = np.concatenate([kept.hard, kept.rows[labels == 0], negatives_of(news)])
        objects = np.concatenate([kept.rows[(labels == 1) & (scores.overlaps >= _OBJECT)], new])
        single = _train_single(objects, negatives, options)
        images = np.concatenate(
            [kept.hard_images, np.asarray(scores.table.groups)[labels == 0], images_of_negatives(news)]
        )
        exemplars = _joined(exemplars, _train(news, new, negatives, images, single, options))
    changed = replace(before, exemplars=exemplars, single=single)
    return _finished(changed, before, kept, scores, news, options, problems)


def new_class(
    name: str,
    others: Sequence[ClassModel],
    news: News,
    options: DetectorOptions,
    problems: list[Problem] | None,
) -> ClassModel:
    """A class that the model lacks, whose negatives are the calibration windows of other classes in other images.

    No prior has not seen its images: with cross-fitting, too, its scores are those of its own prior.

    Parameters
    ----------
    name : of the class.
    others : the classes there are.
    news : of the new images.
    options : of the detector.
    problems : a list that receives a `Problem` for each mask that cannot be used.
    """
    pool, groups, boxes = _windows_of_others(others, news, options.random_state)
    negatives, new = np.concatenate([pool, negatives_of(news)]), descriptors_of_exemplars(news, options)
    single = _train_single(new, negatives, options)
    exemplars = _train(news, new, negatives, np.concatenate([groups, images_of_negatives(news)]), single, options)
    wants_boxes = options.detection.box_regression
    regressor = regress_boxes(news.windows, name, options.random_state) if wants_boxes else None
    table = ScoreTable(
        scores=np.empty((len(pool), 0), dtype=np.float32),
        labels=np.zeros(len(pool), dtype=np.int8),
        groups=groups,
        exemplar_groups=np.empty(0, dtype=np.str_),
        exemplar_names=[],
    )
    scores = CalibrationScores(table, boxes, np.zeros(len(pool)), single.scores(pool), len(pool))
    kept = replace(KeptWindows.none(pool.shape[1]), rows=pool)
    wanted: dict[str, Any] = dict.fromkeys(others[0].calibrators)
    begun = ClassModel(name, exemplars, (), single, wanted, regressor)
    return _finished(begun, begun, kept, scores, news, options, problems)


def class_without(before: ClassModel, dropped: NDArray[np.int64], options: DetectorOptions) -> ClassModel:
    """The class without some exemplars, which must not be all.

    Parameters
    ----------
    before : the class, with scores.
    dropped : numbers of exemplars of the class.
    options : of the detector.
    """
    if before.read_scores is None:
        raise InputError(f"exemplars of {before.class_name} cannot be dropped: the model keeps no training scores")
    scores = before.read_scores()
    stay = np.setdiff1d(np.arange(before.n_exemplars), dropped)
    judged = scores.judged
    if judged is not None:
        judged = replace(judged, scores=np.ascontiguousarray(judged.scores[:, stay]))
    changed = replace(
        before,
        exemplars=_with(before.exemplars, {name: value[stay] for name, value in _learned(before.exemplars).items()}),
        annotations=tuple(before.annotations[number] for number in stay.tolist()),
    )
    left = replace(scores, table=scores.table.exemplars(stay), judged=judged)
    kept = None if before.read_kept is None else before.read_kept()
    return _calibrated(changed, left, kept, options, len(dropped), stay)


def _windows_of_others(
    others: Sequence[ClassModel], news: News, random_state: int
) -> tuple[F32, NDArray[np.str_], NDArray[np.float64]]:
    """Descriptors, images and boxes of calibration windows of other classes; none of the new images."""
    parts = []
    for one in others:
        assert one.read_kept is not None
        assert one.read_scores is not None
        scores = one.read_scores()
        groups = np.asarray(scores.table.groups, dtype=np.str_)
        is_other = ~np.isin(groups, news.windows.image_ids)
        parts.append((one.read_kept().rows[is_other], groups[is_other], scores.boxes[is_other]))
    rows, groups, boxes = (np.concatenate(list(column)) for column in zip(*parts, strict=True))
    if len(rows) > _MOST_OTHERS:
        chosen = np.sort(np.random.default_rng(random_state).choice(len(rows), _MOST_OTHERS, replace=False))
        return rows[chosen], groups[chosen], boxes[chosen]
    return rows, groups, boxes


def _finished(
    begun: ClassModel,
    before: ClassModel,
    kept: KeptWindows,
    scores: CalibrationScores,
    news: News,
    options: DetectorOptions,
    problems: list[Problem] | None,
) -> ClassModel:
    """A class whose detectors are there, with annotations, windows, scores and calibrators.

    `before` is the class without the new images; where it is new itself, what has begun.
    """
    windows, name, exemplars = news.windows, begun.class_name, begun.exemplars
    rows = calibration_rows(news, scores, options.random_state)
    is_moved = options.calibration.is_cross_fitted and options.training.prior is not None
    moved = moved_before(kept, scores, exemplars) if is_moved else None
    kept, scores = replaced(kept, scores, windows, rows, news.is_negative)
    judged = judged_windows(windows, name, exemplars, options.random_state)
    kept = with_hardest(with_windows(kept, windows, rows, judged), windows, news.is_negative, begun.single)
    mirror = options.training.mirror
    n_mirrored = len(news.instances) if mirror else 0
    trained = TrainedClass(name, exemplars, news.instances * (1 + mirror), begun.single, 0, n_mirrored)
    found = CalibrationScores(
        table=grown_table(scores.table, kept.rows, trained, windows.image_ids[windows.image[rows]], news.labels[rows]),
        boxes=np.concatenate([scores.boxes, windows.boxes[rows]]),
        overlaps=np.concatenate([scores.overlaps, windows.overlap(name)[rows]]),
        single=begun.single.scores(kept.rows),
        n_negatives=scores.n_negatives + int((news.labels == NEGATIVE).sum()),
        judged=kept.scored(exemplars) if options.calibration.shrink is not None else None,
    )
    if moved is not None:
        change = SingleSVM(before.single.weights - begun.single.weights, before.single.bias - begun.single.bias)
        found = moved_scores(found, moved, kept, scores.table, windows.image_ids, change)
    records = {record.image_id: record for record in windows.records}
    annotations = before.annotations
    begun = replace(begun, annotations=(*annotations, *annotate_all(news.instances, records, problems, mirror)))
    n_refused = len(np.unique(windows.image[news.is_rejected]))
    return _calibrated(begun, found, kept, options, len(begun.annotations) - len(annotations) + n_refused)


def _calibrated(
    changed: ClassModel,
    scores: CalibrationScores,
    kept: KeptWindows | None,
    options: DetectorOptions,
    n_changed: int,
    stay: NDArray[np.int64] | None = None,
) -> ClassModel:
    """The class with calibrators fitted to its scores; `stay` are the exemplars of before that are still there.

    What images left out have said stands until a tenth of the exemplars has changed, hard negatives included.
    """
    n_changed += changed.facts.get(CHANGED, 0)
    is_little = n_changed <= _LITTLE * changed.n_exemplars
    known = {name: one.left_out_ for name, one in changed.calibrators.items() if hasattr(one, "left_out_")}
    joint, start = changed.calibrators.get(JOINT), None
    if isinstance(joint, JointCalibrator) and options.calibration.method == "exact":
        old = joint.thresholds_ if stay is None else joint.thresholds_[stay]
        start = np.concatenate([old, np.full(changed.n_exemplars - len(old), np.inf, dtype=old.dtype)])
    calibrators = calibrate_class(
        scores,
        list(changed.calibrators),
        options.calibration,
        pooling=options.detection.pooling,
        random_state=options.random_state,
        n_jobs=options.n_jobs,
        start=start,
        known=known if is_little else None,
    )
    table = scores.table
    counts = {"n_positives": table.n_positives, "n_negatives": table.n_rows - table.n_positives}
    facts = {name: value for name, value in changed.facts.items() if name not in ("separability", CHANGED)}
    if known and is_little and n_changed:
        facts[CHANGED] = n_changed
    return replace(
        changed,
        calibrators=calibrators,
        read_scores=lambda: scores,
        read_kept=None if kept is None else lambda: kept,
        read_judged=None,
        read_certificate=None,
        facts={**facts, **counts, "n_negatives_in_all": scores.n_negatives},
    )


def _train(
    news: News, new: F32, negatives: F32, images: NDArray[np.str_], single: SingleSVM, options: DetectorOptions
) -> LinearExemplars:
    """Exemplars of the new objects; `images` are those of the negatives."""
    own = np.array([one.image_id for one in news.instances] * (1 + options.training.mirror))
    groups = () if options.training.own_image else (own, images)
    return make_trainer(options.training, single, len(new)).fit(new, negatives, *groups)


def _train_single(objects: F32, negatives: F32, options: DetectorOptions) -> SingleSVM:
    return fit_single(objects, negatives, options.training.single_loss, options.random_state)


def _learned(exemplars: LinearExemplars) -> dict[str, NDArray[Any]]:
    """Arrays that have a row for each exemplar."""
    n = len(exemplars.coef_)
    found = {name: value for name, value in vars(exemplars).items() if name.endswith("_")}
    return {name: value for name, value in found.items() if isinstance(value, np.ndarray) and value.shape[:1] == (n,)}


def _joined(first: LinearExemplars, second: LinearExemplars) -> LinearExemplars:
    more = _learned(second)
    return _with(first, {name: np.concatenate([value, more[name]]) for name, value in _learned(first).items()})


def _with(exemplars: LinearExemplars, arrays: Mapping[str, NDArray[Any]]) -> LinearExemplars:
    other = copy(exemplars)
    for name, value in arrays.items():
        setattr(other, name, value)
    return other
