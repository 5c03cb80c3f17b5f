"""The exemplars of a model for the page: how they look, what their thresholds accept, what they transfer.

In: a class of a model, with the scores it was calibrated on where it has kept them. Out: an `Exemplar` for each, and
the class's `Search` where it has a joint calibration. A training window that an exemplar is responsible for is shown as
the training object in it, of which the model has a picture; so no training image is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm import boxes as geometry
from eesvm._support.validation import InputError
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.calibration.frontier import recall_frontier
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.tables.fit import summarise_exemplars
from eesvm.detector.class_calibration import JOINT
from eesvm.detector.class_training import CalibrationScores
from eesvm.detector.model import ClassModel
from eesvm.images.outlines import outline
from eesvm.report.data import ACTIVE, MUTED, REDUNDANT, Coverage, Exemplar, Floor, Histogram, Search
from eesvm.structures import ExemplarAnnotation
from eesvm.transfer.inheritance import transfer
from eesvm.transfer.target import KEYPOINTS

_OUTLINE_SIDE = 72  # pixels that the longer side of a mask may have when it is outlined
_BINS = 40
_MOST_LABELS = 8
_LONGEST_LABEL = 60  # characters


@dataclass(frozen=True)
class ClassPart:
    """What the page says about the training of a class."""

    exemplars: tuple[Exemplar, ...]
    search: Search | None  # None: there is no joint calibration
    has_scores: bool


def class_part(
    model: ClassModel, class_id: int, first: int, positive_overlap: float, frontier_seconds: float | None = None
) -> ClassPart:
    """The exemplars of a class, of which the first has the number `first` in the model.

    Parameters
    ----------
    positive_overlap : IoU with an object from which a training window was a positive.
    frontier_seconds : for the search of each recall floor; None: other floors are not looked at.
    """
    shown = [_looks(annotation, class_id) for annotation in model.annotations]
    scores = None if model.read_scores is None else model.read_scores()
    joint = model.calibrators.get(JOINT)
    if not isinstance(joint, JointCalibrator):
        joint = None
    if joint is not None:
        shown = [replace(each, **facts) for each, facts in zip(shown, _thresholds(joint), strict=True)]
    if scores is not None:
        shown = [replace(each, scores=histogram) for each, histogram in zip(shown, _histograms(scores), strict=True)]
    search = None if joint is None else _search(joint)
    if joint is None or scores is None:
        return ClassPart(tuple(shown), search, scores is not None)
    problem = scores.table.problem(bool(getattr(joint, "across_groups_", False)))
    seen = _objects_of_positives(scores, model.annotations, positive_overlap)
    counts = np.bincount(seen[seen >= 0], minlength=len(shown)).tolist()
    coverages = _coverages(problem, joint, seen, first)
    shown = [
        replace(each, coverage=coverage, n_windows=n)
        for each, coverage, n in zip(shown, coverages, counts, strict=True)
    ]
    if search is not None and frontier_seconds is not None:
        search = replace(search, floors=_floors(problem, joint, frontier_seconds))
    return ClassPart(tuple(shown), search, True)


def _looks(annotation: ExemplarAnnotation, class_id: int) -> Exemplar:
    """An exemplar without its detector: everything it transfers, in the coordinates of its own box."""
    x1, y1, x2, y2 = (float(side) for side in annotation.box)
    width, height = x2 - x1, y2 - y1
    scale = min(1.0, _OUTLINE_SIDE / max(width, height))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    place = class_id, annotation.image_id, int(annotation.index)
    plain = Exemplar(*place, width, height, labels=_labels(annotation), is_mirrored=annotation.is_mirrored)
    try:
        handed = transfer(annotation, [0, 0, *size], size)
    except InputError:  # a mask or part that does not fit its object: the page does without
        return plain
    box = [*size, *size]
    return replace(
        plain,
        outline="" if handed.mask is None else outline(handed.mask),
        outline_size=(2 * size[0], 2 * size[1]),
        parts=tuple((part.name, _shares(part.box, box)) for part in handed.parts),
        keypoints=tuple((name, point[0] / size[0], point[1] / size[1]) for name, point in handed.keypoints.items()),
    )


def _shares(box: NDArray[np.float64], size: Sequence[float]) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = (float(side) for side in box / np.asarray(size))
    return x1, y1, x2, y2


def _labels(annotation: ExemplarAnnotation) -> tuple[tuple[str, str], ...]:
    """Pose and metadata that a line can hold."""
    known: dict[str, Any] = {} if annotation.pose is None else {"pose": annotation.pose}
    known |= {key: value for key, value in annotation.metadata.items() if key != KEYPOINTS}
    texts = [(key, _label_text(value)) for key, value in known.items() if isinstance(value, str | int | float)]
    return tuple(texts[:_MOST_LABELS])


def _label_text(value: str | int | float) -> str:
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"


def _thresholds(joint: JointCalibrator) -> list[dict[str, Any]]:
    """State and threshold of each exemplar."""
    muted = joint.muted_ if joint.sigmoid else np.zeros(len(joint.thresholds_), dtype=bool)
    states = np.where(~joint.active_, REDUNDANT, np.where(muted, MUTED, ACTIVE)).tolist()
    finite = [float(value) if np.isfinite(value) else None for value in joint.thresholds_]
    return [{"state": state, "threshold": value} for state, value in zip(states, finite, strict=True)]


def _histograms(scores: CalibrationScores) -> list[Histogram]:
    table = scores.table
    is_positive = np.asarray(table.labels) == 1
    found = []
    for column in np.asarray(table.scores).T:
        column = column.astype(np.float64)  # scores of float32 may lie too close for so many bins
        low, high = float(column.min()), float(column.max())
        high = high if high > low else low + 1.0
        positives, negatives = (
            tuple(np.histogram(column[rows], bins=_BINS, range=(low, high))[0].tolist())
            for rows in (is_positive, ~is_positive)
        )
        found.append(Histogram(low, high, positives, negatives))
    return found


def _objects_of_positives(
    scores: CalibrationScores, annotations: Sequence[ExemplarAnnotation], positive_overlap: float
) -> NDArray[np.int64]:
    """(P,) the exemplar of the class whose object each positive window shows, -1 where that is no exemplar."""
    rows = np.flatnonzero(np.asarray(scores.table.labels) == 1)
    images = np.asarray(scores.table.groups)[rows].astype(str)
    seen = np.full(len(rows), -1, dtype=np.int64)
    own = np.array(["" if annotation.is_mirrored else annotation.image_id for annotation in annotations])
    for image in np.unique(images):
        here, candidates = np.flatnonzero(images == image), np.flatnonzero(own == image)
        if not len(candidates):
            continue
        overlaps = geometry.iou(scores.boxes[rows[here]], np.array([annotations[k].box for k in candidates.tolist()]))
        is_close = overlaps.max(axis=1) >= positive_overlap
        seen[here[is_close]] = candidates[overlaps.argmax(axis=1)[is_close]]
    return seen


def _coverages(
    problem: CalibrationProblem, joint: JointCalibrator, seen: NDArray[np.int64], first: int
) -> list[Coverage]:
    summary = summarise_exemplars(problem, joint.thresholds_)
    assignment = problem.assign(joint.thresholds_)
    found = []
    for j in range(problem.n_exemplars):
        objects = Counter(seen[assignment == j].tolist())
        elsewhere = objects.pop(-1, 0)
        coverage = Coverage(
            positives_responsible=int(summary.positives_responsible[j]),
            positives_accepted=int(summary.positives_accepted[j]),
            negatives_accepted=int(summary.negatives_accepted[j]),
            negatives_accepted_alone=int(summary.negatives_accepted_alone[j]),
            objects=tuple((first + k, n) for k, n in sorted(objects.items(), key=lambda each: (-each[1], each[0]))),
            n_elsewhere=elsewhere,
        )
        found.append(coverage)
    return found


def _search(joint: JointCalibrator) -> Search:
    result = joint.result_
    n_positives = result.statistics.get("n_positives")
    return Search(
        loss=float(result.loss),
        lower_bound=float(result.lower_bound),
        gap=float(result.gap),
        status=result.status,
        recall=float(result.recall),
        min_recall=float(result.min_recall),
        across_images=bool(getattr(joint, "across_groups_", False)),
        seconds=float(result.seconds),
        n_nodes=int(result.n_nodes),
        n_positives=int(len(result.assignment) if n_positives is None else n_positives),
        n_negatives=int(result.statistics.get("n_negatives") or 0),
        n_redundant=result.n_redundant,
        history=tuple((float(s), float(loss), float(bound)) for s, loss, bound in result.history),
    )


def _floors(problem: CalibrationProblem, joint: JointCalibrator, seconds: float) -> tuple[Floor, ...]:
    frontier = recall_frontier(problem, time_limit=seconds, known=[joint.result_])
    return tuple(
        Floor(row["floor"], row["loss"], row["lower_bound"], row["n_left_out"], row["status"])
        for row in frontier.table()
    )
