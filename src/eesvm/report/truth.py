"""Detections beside the truth: for each of them whether it is right, and if not, what is wrong with it.

In: annotated images, the detections in them, and the classes to judge. Out: a `Judgement`: average precision and
curves, the breakdown of errors, and a `Verdict` on every detection. PASCAL VOC's rules since 2010, with an IoU of 0.5.
Not here: other protocols, for which there is `eesvm evaluate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from eesvm.metrics import (
    ERROR_KINDS,
    ClassReport,
    DetectionReport,
    ErrorBreakdown,
    ErrorCounts,
    break_down_errors,
    evaluate_detections,
)
from eesvm.metrics.matching import HIT, match_detections
from eesvm.metrics.matching import IGNORED as SET_ASIDE
from eesvm.metrics.tables import Tables, make_tables
from eesvm.report.data import IGNORED, RIGHT, UNJUDGED, Curve, ErrorCount
from eesvm.structures import Dataset, Detections

IOU = 0.5

_MOST_POINTS = 400  # of a curve: more than its picture has pixels for


class Verdict(NamedTuple):
    """What became of a detection."""

    kind: str  # as in `data.ShownDetection`
    iou: float | None = None
    instance: int | None = None  # `Instance.index` of the object that it is about


@dataclass(frozen=True)
class Judgement:
    """All that the truth says about detections."""

    report: DetectionReport
    errors: ErrorBreakdown
    verdicts: Mapping[tuple[str, int], Verdict]  # by image and row in its `Detections`
    surest: frozenset[tuple[str, int]]  # of each class with N objects its N surest detections, by image and row

    def of(self, image_id: str, row: int) -> Verdict:
        """The verdict on one detection; there is none on a class that the truth does not have."""
        return self.verdicts.get((image_id, row), Verdict(UNJUDGED))


def judge(dataset: Dataset, detections: Sequence[Detections], class_names: Sequence[str]) -> Judgement | None:
    """Judge detections of these classes; None where the images have no object of them that must be found.

    There is no verdict on detections in images that nobody has annotated.
    """
    dataset = dataset.annotated()
    judged = {record.image_id for record in dataset}
    detections = [found for found in detections if found.image_id in judged]
    classes = known_classes(dataset, class_names)
    wanted = (each for each in dataset.instances() if each.class_name in classes)
    if not any(not (each.is_difficult or each.is_crowd) for each in wanted):
        return None
    errors = break_down_errors(dataset, detections, iou=IOU, classes=classes)
    tables = make_tables(dataset, detections, None)
    verdicts = _no_errors(tables)
    for wrong in errors.false_positives:
        instance = None if wrong.instance < 0 else wrong.instance
        verdicts[wrong.image_id, wrong.detection] = Verdict(wrong.kind, wrong.iou, instance)
    report = evaluate_detections(dataset, detections, iou=IOU, classes=classes)
    return Judgement(report, errors, verdicts, _surest(tables, verdicts, report))


def known_classes(dataset: Dataset, class_names: Sequence[str]) -> tuple[str, ...]:
    """Those of the classes that the truth knows."""
    known = set(dataset.classes) | {instance.class_name for instance in dataset.instances()}
    return tuple(name for name in class_names if name in known)


def thinned_curve(found: ClassReport) -> Curve:
    """The curve of a class without points that a picture does not need: what remains are its corners.

    Those are the hits, where recall rises, and the points before them. Of too many every so-manieth is kept.
    """
    n = len(found.curve.scores)
    is_hit = np.diff(found.curve.recall, prepend=0.0) > 0
    corners = np.flatnonzero(is_hit | np.append(is_hit[1:], True)) if n else np.empty(0, dtype=int)
    kept = corners[np.unique(np.linspace(0, len(corners) - 1, min(len(corners), _MOST_POINTS)).round().astype(int))]
    n_false = np.rint((1 - found.curve.precision) * np.arange(1, n + 1)).astype(int)
    return Curve(
        score=tuple(found.curve.scores[kept].tolist()),
        recall=tuple(found.curve.recall[kept].tolist()),
        precision=tuple(found.curve.precision[kept].tolist()),
        false_positives=tuple(n_false[kept].tolist()),
    )


def error_count(counts: ErrorCounts) -> ErrorCount:
    """Errors of a class as the page shows them."""
    kinds = tuple((kind, int(getattr(counts, kind))) for kind in ERROR_KINDS)
    return ErrorCount(counts.n_detections, counts.n_hits, kinds, counts.n_missed)


def _no_errors(tables: Tables) -> dict[tuple[str, int], Verdict]:
    """Verdicts on the detections that hit an object or that the protocol sets aside."""
    matches = match_detections(tables, IOU, is_ilsvrc=False)
    verdicts = {}
    for outcome, kind in ((HIT, RIGHT), (SET_ASIDE, IGNORED)):
        for row in np.flatnonzero(matches.outcome == outcome).tolist():
            partner = int(matches.partner[row])
            index = tables.objects.instances[partner].index if partner >= 0 else None
            verdicts[_place(tables, row)] = Verdict(kind, float(matches.overlap[row]), index)
    return verdicts


def _surest(
    tables: Tables, verdicts: Mapping[tuple[str, int], Verdict], report: DetectionReport
) -> frozenset[tuple[str, int]]:
    """As `break_down_errors` chooses them: detections that count, equal scores in the order of the truth."""
    chosen: list[tuple[str, int]] = []
    for found in report.classes:
        rows = np.flatnonzero(tables.found.classes == tables.class_names.index(found.class_name))
        rows = rows[np.argsort(-tables.found.scores[rows], kind="stable")]
        places = (_place(tables, row) for row in rows.tolist())
        chosen.extend(islice((each for each in places if verdicts[each].kind != IGNORED), found.n_objects))
    return frozenset(chosen)


def _place(tables: Tables, row: int) -> tuple[str, int]:
    """Image and row in its `Detections`."""
    return tables.records[int(tables.found.images[row])].image_id, int(tables.found.positions[row])
