"""The words of the summary: title, headline, figures, and notes on what is left out or to be read with care.

In: what was gathered. Out: sentences. Every number in them is one that the page holds elsewhere, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eesvm._support.amounts import amount, counted, counted_exemplars, enumeration, rounded_percent
from eesvm.detector.class_calibration import JOINT, JOINT_SIGMOID
from eesvm.report.data import REDUNDANT, Fact, ReportData
from eesvm.report.truth import IOU, Judgement, known_classes
from eesvm.structures import Dataset


def title(class_names: Sequence[str]) -> str:
    """What the page is called where nobody has given it a name."""
    return f"Detections of {enumeration(class_names)}, each with the training object it looks like"


def headline(inputs: Mapping[str, Any], data: ReportData, dataset: Dataset, judgement: Judgement | None) -> str:
    """Two sentences: what was trained on what, and how well it detects."""
    n_classes = sum(each.n_exemplars > 0 for each in data.classes)
    n_mirrored = sum(each.is_mirrored for each in data.exemplars)
    learned = counted_exemplars(len(data.exemplars), n_mirrored) + f" of {counted(n_classes, 'class', 'classes')}"
    if "name" in inputs and "n_images" in inputs:
        learned += f" were trained on {counted(int(inputs['n_images']), 'image')} of {inputs['name']}"
    found = f"in {counted(len(dataset), 'image')} of {dataset.name} they made {counted(data.n_detections, 'detection')}"
    if judgement is None:
        return f"{learned}; {found}."
    hits = sum(each.n_hits or 0 for each in data.classes)
    return (
        f"{learned}; {found}, which find {hits:,} of {judgement.report.n_objects:,} objects with a mean average "
        f"precision of {rounded_percent(judgement.report.mean_average_precision)}."
    )


def facts(data: ReportData, judgement: Judgement | None) -> Iterator[Fact]:
    """The figures that come first."""
    if judgement is not None:
        report = judgement.report
        known = [each for each in report.classes if each.n_objects]
        note = f"PASCAL VOC's rule since 2010, IoU {IOU:g}"
        yield Fact(
            "mean average precision",
            rounded_percent(report.mean_average_precision),
            note + (f"; mean of {len(known)} classes" if len(known) > 1 else ""),
        )
        hits = sum(each.n_hits for each in report.classes)
        yield Fact("objects found", f"{hits:,} of {report.n_objects:,}", "by any detection, however low its score")
    else:
        yield Fact("detections", f"{data.n_detections:,}", "in images without annotations to compare them with")
    yield from _calibration_facts(data)


def _calibration_facts(data: ReportData) -> Iterator[Fact]:
    searches = [each.search for each in data.classes if each.search is not None]
    if not searches:
        return
    loss, bound = (math.fsum(getattr(each, name) for each in searches) for name in ("loss", "lower_bound"))
    gap = (loss - bound) / loss if loss > 0 else 0.0
    n_optimal = sum(each.status == "optimal" for each in searches)
    proven = "proven optimal" if n_optimal == len(searches) else f"gap {rounded_percent(gap)}"
    if 0 < n_optimal < len(searches):
        proven += f", optimal for {n_optimal} of {len(searches)} classes"
    note = "negative training windows that the joint thresholds accept; no thresholds accept fewer than"
    yield Fact("calibration loss", amount(loss), f"{note} {amount(bound)} ({proven})")
    n_redundant = sum(each.state == REDUNDANT for each in data.exemplars)
    note = "they have no threshold and accept nothing: the positives are accepted without them"
    note += "; they take no part in detection" * data.is_joint
    yield Fact("redundant exemplars", f"{n_redundant:,} of {len(data.exemplars):,}", note)


def notes(data: ReportData, dataset: Dataset, calibrator: str, has_scores: bool, n_unreadable: int) -> Iterator[str]:
    """What is left out, and what to be careful about."""
    names = [each.name for each in data.classes]
    if not data.has_truth:
        yield (
            f"{dataset.name} has no annotated object of {enumeration(names)}: average precision, curves, kinds of "
            "errors and missed objects are left out."
        )
    else:
        yield from _truth_notes(data, dataset, names)
    if len(data.detections) < data.n_detections:
        yield (
            f"{len(data.detections):,} of {data.n_detections:,} detections are shown, the surest of each class; "
            "figures and curves are of all of them."
        )
    if len(data.missed) < data.n_missed:
        yield f"{len(data.missed):,} of {data.n_missed:,} missed objects are shown."
    yield from _training_notes(data, calibrator, has_scores)
    n_without = sum(each.exemplar is None for each in data.detections)
    if n_without:
        yield f"No exemplar is named by {n_without:,} of the detections that are shown."
    if n_unreadable:
        yield f"{counted(n_unreadable, 'image')} could not be read: what was found there is listed without a picture."


def _truth_notes(data: ReportData, dataset: Dataset, names: Sequence[str]) -> Iterator[str]:
    known = known_classes(dataset, names)
    unknown = [name for name in names if name not in known]
    if unknown:
        yield f"{dataset.name} does not have the class {enumeration(unknown)}: detections of it are not judged."
    others = sorted({each.class_name for each in dataset.instances()} - set(names))
    if others:
        yield f"Objects of {enumeration(others)} are annotated, too, but the model does not know them."
    own = {each.image_id for each in data.exemplars}
    n_own = sum(record.image_id in own for record in dataset)
    if n_own:
        yield (
            f"{dataset.name} has {counted(n_own, 'image')} with the name of a training image: where it is the same "
            "image, the figures are too good."
        )


def _training_notes(data: ReportData, calibrator: str, has_scores: bool) -> Iterator[str]:
    searches = [each.search for each in data.classes if each.search is not None]
    if not searches:
        yield "The model has no joint calibration: thresholds, coverage and redundant exemplars are left out."
    elif not data.is_joint and calibrator in (JOINT, JOINT_SIGMOID):
        yield (
            "Detections are scored on a scale that the exemplars share, of which each has as much of its own as images "
            "left out support; thresholds, coverage and proof are those of the joint calibration."
        )
    elif not data.is_joint:
        yield (
            f"The detections were made with the calibrator {calibrator}; thresholds and coverage are those of the "
            "joint calibration, which the model has as well."
        )
    if not has_scores:
        yield "The model has not kept its training scores: their distributions and the coverage are left out."
    if searches and not any(each.history for each in searches):
        yield "The model has not kept the history of its searches: loss and bound over time are left out."
    if data.exemplars and not any(each.outline for each in data.exemplars):
        yield "The training objects have no masks: there are none to carry over to detections."


def option(value: Any) -> str:
    """An option's value as a text."""
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
