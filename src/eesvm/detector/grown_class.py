"""One class that takes on new exemplars, or lets some go, from the windows that are kept of its training images.

In: a `ClassModel`, or none where the class is new, and `News`: what described windows of new images say about the
class. Out: another `ClassModel`, with scores, kept windows and calibrators that fit its exemplars.
The search for joint thresholds starts from those there are; new exemplars start as redundant ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import InputError
from eesvm.boxes import iou
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.calibration.tables.score_table import ScoreTable
from eesvm.detector.box_regression import regress_boxes
from eesvm.detector.class_calibration import CHANGED, JOINT, calibrate_class
from eesvm.detector.class_training import CalibrationScores, SingleSVM, TrainedClass, fit_single, make_trainer
from eesvm.detector.cross_fitting import moved_by
from eesvm.detector.kept_windows import KeptWindows, with_hardest, with_windows
from eesvm.detector.left_out import JudgedWindows, judged_windows
from eesvm.detector.model import ClassModel
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_table import NEGATIVE, POSITIVE, TrainingWindows
from eesvm.exemplars.scoring import score_windows
from eesvm.exemplars.svms import LinearExemplars
from eesvm.structures import Instance, Problem
from eesvm.transfer.annotations import annotate_all

F32 = NDArray[np.float32]
Rejected = Mapping[str, Sequence[tuple[str, Sequence[float]]]]  # image -> class and box of what was refused there

_MOST_OTHERS = 50_000  # windows of other classes that a new class is trained against
_LITTLE = 0.1  # share of exemplars that may come or go until images are left out again
_OBJECT = 0.999  # IoU of a kept window with its object, from which on it is the object


class News(NamedTuple):
    """What new images say about a class."""

    windows: TrainingWindows
    own: NDArray[np.int64]  # rows of its new objects
    instances: tuple[Instance, ...]
    labels: NDArray[np.int8]  # (n,) POSITIVE, NEGATIVE or neither
    is_negative: NDArray[np.bool_]  # (n,) to be trained against
    is_rejected: NDArray[np.bool_]  # (n,) windows on what was refused

    @classmethod
    def of(
        cls,
        windows: TrainingWindows,
        name: str,
        objects: Sequence[Instance],
        rejected: Rejected,
        known: set[str],
        options: DetectorOptions,
    ) -> News:
        """Of an image in `known`, whose windows are kept already, only what is new counts."""
        calibration = options.calibration
        new = {(one.image_id, one.index) for one in objects}
        rows, instances = windows.objects(name)
        is_new = np.array([(one.image_id, one.index) in new for one in instances], dtype=bool)
        labels = windows.labels(name, calibration.positive_overlap, calibration.negative_overlap)
        is_background = labels == NEGATIVE
        is_negative = windows.overlap(name) <= options.training.max_overlap
        is_rejected = np.zeros(len(windows), dtype=bool)
        for k, record in enumerate(windows.records):
            part = slice(windows.starts[k], windows.starts[k + 1])
            if record.image_id in known:
                own = [one.box for one in objects if one.image_id == record.image_id]
                is_negative[part] = False
                labels[part] = np.where(_overlap(windows.boxes[part], own) >= calibration.positive_overlap, POSITIVE, 0)
            refused = [box for of_class, box in rejected.get(record.image_id, ()) if of_class == name]
            overlaps = _overlap(windows.boxes[part], refused)
            is_rejected[part] = (overlaps >= calibration.positive_overlap) & is_background[part]
        labels[is_rejected], is_negative[is_rejected] = NEGATIVE, True
        chosen = tuple(one for one, is_taken in zip(instances, is_new, strict=True) if is_taken)
        return cls(windows, rows[is_new], chosen, labels, is_negative, is_rejected)


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
    kept, scores = _corrected(before.read_kept(), before.read_scores(), news.instances, options)
    labels, new = np.asarray(scores.table.labels), _of_exemplars(news, options)
    single, exemplars = before.single, before.exemplars
    if len(new):
        negatives = np.concatenate([kept.hard, kept.rows[labels == 0], _negatives(news)])
        objects = np.concatenate([kept.rows[(labels == 1) & (scores.overlaps >= _OBJECT)], new])
        single = _train_single(objects, negatives, options)
        images = np.concatenate(
            [kept.hard_images, np.asarray(scores.table.groups)[labels == 0], _negative_images(news)]
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

    No prior has not seen its images: with `calibration.cross_fit`, too, its scores are those of its own prior.

    Parameters
    ----------
    name : of the class.
    others : the classes there are.
    news : of the new images.
    options : of the detector.
    problems : a list that receives a `Problem` for each mask that cannot be used.
    """
    pool, groups, boxes = _windows_of_others(others, news, options.random_state)
    negatives, new = np.concatenate([pool, _negatives(news)]), _of_exemplars(news, options)
    single = _train_single(new, negatives, options)
    exemplars = _train(news, new, negatives, np.concatenate([groups, _negative_images(news)]), single, options)
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


def _corrected(
    kept: KeptWindows, scores: CalibrationScores, instances: Sequence[Instance], options: DetectorOptions
) -> tuple[KeptWindows, CalibrationScores]:
    """Windows that are kept as negatives and lie on a new object become positives, or go."""
    table, calibration = scores.table, options.calibration
    groups, overlaps = np.asarray(table.groups), scores.overlaps.copy()
    is_hard = np.ones(len(kept.hard), dtype=bool)
    for image_id in {one.image_id for one in instances}:
        boxes = [one.box for one in instances if one.image_id == image_id]
        rows = np.flatnonzero(groups == image_id)
        overlaps[rows] = np.maximum(overlaps[rows], _overlap(scores.boxes[rows], boxes))
        near = np.flatnonzero(kept.hard_images == image_id)
        is_hard[near] = _overlap(kept.hard_boxes[near], boxes) <= options.training.max_overlap
    is_changed, labels = overlaps > scores.overlaps, np.array(table.labels, dtype=np.int8)
    labels[is_changed & (overlaps >= calibration.positive_overlap)] = 1
    stays = ~is_changed | (labels == 1) | (overlaps <= calibration.negative_overlap)
    relabelled = replace(scores, table=replace(table, labels=labels), overlaps=overlaps)
    return _only(kept, relabelled, stays, is_hard)


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
    rows = _calibration_rows(news, scores, options.random_state)
    is_moved = options.calibration.cross_fit and options.training.prior is not None
    moved = _moved_before(kept, scores, exemplars) if is_moved else None
    kept, scores = _replaced(kept, scores, windows, rows, news.is_negative)
    judged = judged_windows(windows, name, exemplars, options.random_state)
    kept = with_hardest(with_windows(kept, windows, rows, judged), windows, news.is_negative, begun.single)
    mirror = options.training.mirror
    n_mirrored = len(news.instances) if mirror else 0
    trained = TrainedClass(name, exemplars, news.instances * (1 + mirror), begun.single, 0, n_mirrored)
    found = CalibrationScores(
        table=_grown_table(scores.table, kept.rows, trained, windows.image_ids[windows.image[rows]], news.labels[rows]),
        boxes=np.concatenate([scores.boxes, windows.boxes[rows]]),
        overlaps=np.concatenate([scores.overlaps, windows.overlap(name)[rows]]),
        single=begun.single.scores(kept.rows),
        n_negatives=scores.n_negatives + int((news.labels == NEGATIVE).sum()),
        judged=kept.scored(exemplars) if options.calibration.shrink is not None else None,
    )
    if moved is not None:
        change = SingleSVM(before.single.weights - begun.single.weights, before.single.bias - begun.single.bias)
        found = _moved(found, moved, kept, scores.table, windows.image_ids, change)
    records = {record.image_id: record for record in windows.records}
    annotations = before.annotations
    begun = replace(begun, annotations=(*annotations, *annotate_all(news.instances, records, problems, mirror)))
    n_refused = len(np.unique(windows.image[news.is_rejected]))
    return _calibrated(begun, found, kept, options, len(begun.annotations) - len(annotations) + n_refused)


class _Moved(NamedTuple):
    """Windows scored without their image in the prior of the class, before new ones take the place of any."""

    places: NDArray[np.str_]  # (n,)
    scores: F32  # (n, E) moved
    moves: F32  # (n, 1)

    def hand_on(self, scores: F32, places: NDArray[np.str_]) -> None:
        """Scores of the same windows, among others, become those that are kept; under new exemplars they move alike."""
        known = {place: row for row, place in enumerate(self.places.tolist())}
        at = np.array([known.get(place, -1) for place in places.tolist()], dtype=np.int64)
        rows, n_old = np.flatnonzero(at >= 0), self.scores.shape[1]
        scores[rows, :n_old] = self.scores[at[rows]]
        scores[rows, n_old:] += self.moves[at[rows]]


def _moved_before(
    kept: KeptWindows, scores: CalibrationScores, exemplars: LinearExemplars
) -> tuple[_Moved, _Moved | None]:
    """Those of the score table, and those of whole images."""
    table, judged = scores.table, scores.judged
    places = _places(np.asarray(table.groups), scores.boxes)
    rows = _Moved(places, table.scores, moved_by(kept.rows, table.scores, exemplars))
    if judged is None:
        return rows, None
    return rows, _Moved(
        _judged_places(kept.judged), judged.scores, moved_by(kept.judged_rows, judged.scores, exemplars)
    )


def _moved(
    scores: CalibrationScores,
    moved: tuple[_Moved, _Moved | None],
    kept: KeptWindows,
    old: ScoreTable,
    new_images: NDArray[np.str_],
    change: SingleSVM,
) -> CalibrationScores:
    """Scores as if priors had not seen the images of windows; `old` are those that are so already, and stay.

    Windows that were there, and those that take their place, are moved as they were. New exemplars bend a prior that
    has learned the new images, too: of these windows their scores change by `change`, which leads back to the prior of
    before. That one, which old exemplars bend, has not seen images that come for the first time.
    """
    n_rows, n_old = old.scores.shape
    table, judged = scores.table, scores.judged
    moved[0].hand_on(table.scores, _places(np.asarray(table.groups), scores.boxes))
    table.scores[:n_rows, :n_old] = old.scores
    table.scores[n_rows:, n_old:] += change.scores(kept.rows[n_rows:])[:, None]
    if judged is not None:
        if moved[1] is not None:
            moved[1].hand_on(judged.scores, _judged_places(judged))
        is_new = np.isin(judged.image_ids, new_images)[judged.image]
        judged.scores[is_new, n_old:] += change.scores(kept.judged_rows[is_new])[:, None]
    return scores


def _judged_places(judged: JudgedWindows) -> NDArray[np.str_]:
    return _places(judged.image_ids[judged.image], judged.boxes)


def _replaced(
    kept: KeptWindows,
    scores: CalibrationScores,
    windows: TrainingWindows,
    rows: NDArray[np.int64],
    is_negative: NDArray[np.bool_],
) -> tuple[KeptWindows, CalibrationScores]:
    """What is kept, without windows that come again: of an image that is added once more, the last word counts."""
    coming = _places(windows.image_ids[windows.image[rows]], windows.boxes[rows])
    harder = _places(windows.image_ids[windows.image[is_negative]], windows.boxes[is_negative])
    groups, images = np.asarray(scores.table.groups), windows.image_ids
    stays = ~_are_among(groups, scores.boxes, coming, images)
    is_hard = ~_are_among(kept.hard_images, kept.hard_boxes, np.concatenate([coming, harder]), images)
    return _only(kept, scores, stays, is_hard)


def _only(
    kept: KeptWindows, scores: CalibrationScores, stays: NDArray[np.bool_], is_hard: NDArray[np.bool_]
) -> tuple[KeptWindows, CalibrationScores]:
    """Some of the calibration windows and some of the hard negatives; large tables that lose nothing are not copied."""
    if not is_hard.all():
        hard = {name: getattr(kept, name)[is_hard] for name in ("hard", "hard_boxes", "hard_images")}
        kept = replace(kept, **hard)
    if stays.all():
        return kept, scores
    left = replace(
        scores,
        table=scores.table.rows(stays),
        boxes=scores.boxes[stays],
        overlaps=scores.overlaps[stays],
        single=scores.single[stays],
    )
    return replace(kept, rows=kept.rows[stays]), left


def _are_among(
    images: NDArray[Any], boxes: NDArray[np.float64], places: NDArray[np.str_], of_images: NDArray[Any]
) -> NDArray[np.bool_]:
    """(n,) which windows have one of the places, all of which are in some images."""
    found = np.isin(images, of_images)
    found[found] = np.isin(_places(images[found], boxes[found]), places)
    return found


def _places(images: NDArray[Any], boxes: NDArray[np.float64]) -> NDArray[np.str_]:
    """(n,) image and box of each window as one text."""
    texts = (
        f"{x1:.2f} {y1:.2f} {x2:.2f} {y2:.2f} {image}" for image, (x1, y1, x2, y2) in zip(images, boxes, strict=True)
    )
    return np.array(list(texts), dtype=np.str_)


def _calibration_rows(news: News, scores: CalibrationScores, random_state: int) -> NDArray[np.int64]:
    """Windows of the new images that join the table: positives, what was refused, and of the negatives as large a
    share as there is of the others."""
    negatives = np.flatnonzero((news.labels == NEGATIVE) & ~news.is_rejected)
    share = (scores.table.n_rows - scores.table.n_positives) / max(1, scores.n_negatives)
    n_wanted = min(len(negatives), max(1, round(len(negatives) * min(1.0, share))))
    drawn = np.random.default_rng(random_state).permutation(negatives)[:n_wanted]
    certain = np.flatnonzero((news.labels == POSITIVE) | news.is_rejected)
    return np.sort(np.concatenate([certain, drawn])).astype(np.int64)


def _grown_table(
    table: ScoreTable, rows: F32, trained: TrainedClass, groups: NDArray[np.str_], labels: NDArray[np.int8]
) -> ScoreTable:
    """The table with the columns of new exemplars and with new rows; old scores stay as they are, to the bit."""
    n_rows, n_old = table.scores.shape
    weights, biases = trained.exemplars.coef_, trained.exemplars.intercept_
    scores = np.empty((len(rows), len(weights)), dtype=np.float32)
    scores[:n_rows, :n_old] = table.scores
    if len(weights) > n_old:
        scores[:n_rows, n_old:] = score_windows(rows[:n_rows], weights[n_old:], biases[n_old:])
    if len(rows) > n_rows:
        scores[n_rows:] = score_windows(rows[n_rows:], weights, biases)
    own = np.array([one.image_id for one in trained.instances], dtype=np.str_)
    return ScoreTable(
        scores=scores,
        labels=np.concatenate([np.asarray(table.labels), labels == POSITIVE]).astype(np.int8),
        groups=np.concatenate([np.asarray(table.groups, dtype=np.str_), groups]),
        exemplar_groups=np.concatenate([np.asarray(table.exemplar_groups, dtype=np.str_), own]),
        exemplar_names=_apart([*table.names, *trained.names]),
    )


def _apart(names: Sequence[str]) -> list[str]:
    """Names of which none is there twice: an object that was annotated anew is called by its number, too."""
    apart: list[str] = []
    used: set[str] = set()
    for number, name in enumerate(names):
        apart.append(name if name not in used else f"{name} ({number})")
        used.add(apart[-1])
    return apart


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
        read_certificate=None,
        facts={**facts, **counts, "n_negatives_in_all": scores.n_negatives},
    )


def _of_exemplars(news: News, options: DetectorOptions) -> F32:
    """Descriptors of the new objects, followed by their mirror images where those are exemplars, too."""
    windows, own = news.windows, news.own
    with_mirror_images = options.training.mirror and len(own)
    return windows.descriptors[np.concatenate([own, windows.mirror_images(own)]) if with_mirror_images else own]


def _negatives(news: News) -> F32:
    return news.windows.descriptors[np.flatnonzero(news.is_negative)]


def _negative_images(news: News) -> NDArray[np.str_]:
    return news.windows.image_ids[news.windows.image[news.is_negative]]


def _train(
    news: News, new: F32, negatives: F32, images: NDArray[np.str_], single: SingleSVM, options: DetectorOptions
) -> LinearExemplars:
    """Exemplars of the new objects; `images` are those of the negatives."""
    own = np.array([one.image_id for one in news.instances] * (1 + options.training.mirror))
    groups = () if options.training.own_image else (own, images)
    return make_trainer(options.training, single).fit(new, negatives, *groups)


def _train_single(objects: F32, negatives: F32, options: DetectorOptions) -> SingleSVM:
    return fit_single(objects, negatives, options.training.single_loss, options.random_state)


def _overlap(boxes: NDArray[np.float64], others: Sequence[Any]) -> NDArray[np.float64]:
    """(n,) the largest IoU with any of the others, 0 without any."""
    if not len(others) or not len(boxes):
        return np.zeros(len(boxes))
    return iou(boxes, np.array(others, dtype=np.float64)).max(axis=1)


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
