"""Scores and windows of a class that are kept, joined by those of new images.

In: kept windows, their scores, and `News`. Out: the same without what is replaced or no longer true, with rows for new
windows and columns for new exemplars. Old scores stay as they are, to the bit. With cross-fitting scores are those of
priors that have not seen the image: they move as they did before, and new exemplars move alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.tables.score_table import ScoreTable
from eesvm.detector.class_training import CalibrationScores, SingleSVM, TrainedClass
from eesvm.detector.cross_fitting import moved_by
from eesvm.detector.kept_windows import KeptWindows
from eesvm.detector.left_out import JudgedWindows
from eesvm.detector.news import F32, News, largest_overlaps
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_table import NEGATIVE, POSITIVE, TrainingWindows
from eesvm.exemplars.scoring import score_windows
from eesvm.exemplars.svms import LinearExemplars
from eesvm.structures import Instance


def corrected(
    kept: KeptWindows, scores: CalibrationScores, instances: Sequence[Instance], options: DetectorOptions
) -> tuple[KeptWindows, CalibrationScores]:
    """Windows that are kept as negatives and lie on a new object become positives, or go."""
    table, calibration = scores.table, options.calibration
    groups, overlaps = np.asarray(table.groups), scores.overlaps.copy()
    is_hard = np.ones(len(kept.hard), dtype=bool)
    for image_id in {one.image_id for one in instances}:
        boxes = [one.box for one in instances if one.image_id == image_id]
        rows = np.flatnonzero(groups == image_id)
        overlaps[rows] = np.maximum(overlaps[rows], largest_overlaps(scores.boxes[rows], boxes))
        near = np.flatnonzero(kept.hard_images == image_id)
        is_hard[near] = largest_overlaps(kept.hard_boxes[near], boxes) <= options.training.max_overlap
    is_changed, labels = overlaps > scores.overlaps, np.array(table.labels, dtype=np.int8)
    labels[is_changed & (overlaps >= calibration.positive_overlap)] = 1
    stays = ~is_changed | (labels == 1) | (overlaps <= calibration.negative_overlap)
    relabelled = replace(scores, table=replace(table, labels=labels), overlaps=overlaps)
    return _only(kept, relabelled, stays, is_hard)


def replaced(
    kept: KeptWindows,
    scores: CalibrationScores,
    windows: TrainingWindows,
    rows: NDArray[np.int64],
    is_negative: NDArray[np.bool_],
) -> tuple[KeptWindows, CalibrationScores]:
    """What is kept, without windows that come again: of an image that is added once more, the last word counts."""
    coming = places_of(windows.image_ids[windows.image[rows]], windows.boxes[rows])
    harder = places_of(windows.image_ids[windows.image[is_negative]], windows.boxes[is_negative])
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
    found[found] = np.isin(places_of(images[found], boxes[found]), places)
    return found


def calibration_rows(news: News, scores: CalibrationScores, random_state: int) -> NDArray[np.int64]:
    """Windows of the new images that join the table: positives, what was refused, and of the negatives as large a
    share as there is of the others."""
    negatives = np.flatnonzero((news.labels == NEGATIVE) & ~news.is_rejected)
    share = (scores.table.n_rows - scores.table.n_positives) / max(1, scores.n_negatives)
    n_wanted = min(len(negatives), max(1, round(len(negatives) * min(1.0, share))))
    drawn = np.random.default_rng(random_state).permutation(negatives)[:n_wanted]
    certain = np.flatnonzero((news.labels == POSITIVE) | news.is_rejected)
    return np.sort(np.concatenate([certain, drawn])).astype(np.int64)


def grown_table(
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


class Moved(NamedTuple):
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


def moved_before(
    kept: KeptWindows, scores: CalibrationScores, exemplars: LinearExemplars
) -> tuple[Moved, Moved | None]:
    """Those of the score table, and those of whole images."""
    table, judged = scores.table, scores.judged
    places = places_of(np.asarray(table.groups), scores.boxes)
    rows = Moved(places, table.scores, moved_by(kept.rows, table.scores, exemplars))
    if judged is None:
        return rows, None
    return rows, Moved(_judged_places(kept.judged), judged.scores, moved_by(kept.judged_rows, judged.scores, exemplars))


def moved_scores(
    scores: CalibrationScores,
    moved: tuple[Moved, Moved | None],
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
    moved[0].hand_on(table.scores, places_of(np.asarray(table.groups), scores.boxes))
    table.scores[:n_rows, :n_old] = old.scores
    table.scores[n_rows:, n_old:] += change.scores(kept.rows[n_rows:])[:, None]
    if judged is not None:
        if moved[1] is not None:
            moved[1].hand_on(judged.scores, _judged_places(judged))
        is_new = np.isin(judged.image_ids, new_images)[judged.image]
        judged.scores[is_new, n_old:] += change.scores(kept.judged_rows[is_new])[:, None]
    return scores


def _judged_places(judged: JudgedWindows) -> NDArray[np.str_]:
    return places_of(judged.image_ids[judged.image], judged.boxes)


def places_of(images: NDArray[Any], boxes: NDArray[np.float64]) -> NDArray[np.str_]:
    """(n,) image and box of each window as one text."""
    texts = (
        f"{x1:.2f} {y1:.2f} {x2:.2f} {y2:.2f} {image}" for image, (x1, y1, x2, y2) in zip(images, boxes, strict=True)
    )
    return np.array(list(texts), dtype=np.str_)
