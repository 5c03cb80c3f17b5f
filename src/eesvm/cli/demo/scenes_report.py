"""What the report of `eesvm demo` holds beyond that of any other model: every calibration beside the paper's figures.

In: what was judged of the detector. Out: sections of the report, and the tables that the screen shows as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eesvm._support.amounts import amount, percent, thousands
from eesvm.experiments.paper import PAPER_TABLES
from eesvm.experiments.tables.detections import RuleResult
from eesvm.experiments.tables.windows import Method
from eesvm.metrics import DetectionReport, ErrorBreakdown
from eesvm.report.data import Section
from eesvm.report.static_page import Picture, Table
from eesvm.structures import Dataset, Detections
from eesvm.transfer.quality import TransferQuality

TITLE = "It looks like this one: detections that name the training object behind them"
TABLE_HEADER = (
    "method",
    "recall %",
    "false positives",
    "window AP",
    "detection AP",
    "exemplars that win",
    "paper: false positives",
    "paper: window AP",
    "paper: detection AP",
)

SHARED = "this detector"  # the row of what detects; in the others every exemplar has scales of its own

_ROAD = (
    "Windows were proposed by selective search and described by a network that has never seen these scenes. Every "
    "object of the training scenes became an exemplar: one linear SVM that tells it from the rest of the training "
    "windows. A window's score is the mean of the five highest scores of exemplars of the class, and the one with the "
    "highest is named: the training object that the detection resembles most. Last, a regression learned on the "
    "training windows moves its box towards the object."
)
_CALIBRATION = (
    "The highest scores mean something only if all exemplars use the same scale. The joint calibration sets one "
    "threshold for each so that every training window of an object is accepted by some exemplar, and as few others "
    "as possible by any. The lower bound is a proof: no thresholds accept fewer. Redundant exemplars accept nothing"
    " that others do not. Thresholds decide; scores are ranked on a scale that exemplars share, of which each keeps as "
    "much of its own as training images that were left out support."
)
_TABLES = (
    "Means over the classes, on scenes whose digits and photographs were in no training scene. False positives are "
    "counted at the recall that the joint thresholds reach on the test windows. Boxes are moved in every row, that of "
    "the single SVM included. Beside them the figures of the "
    "paper, which are of other data: what can be compared is the order of the rows. One split of made-up scenes: an"
    " illustration, not a benchmark."
)
_TRANSFER = (
    "What a detection inherits from the exemplar that won it, measured where the truth is known: the mask and the "
    "upper and lower part of the digit, warped to the box of the detection. For comparison: what a random exemplar "
    "of the class, the one with the nearest descriptor, and the best one there is would have transferred."
)
_PICTURE = (
    "Detections with exemplars laid over them.",
    "Detections in green; the exemplar that won each of them, yellow, laid over it, as in figure 7 of the paper.",
)


@dataclass(frozen=True)
class Judged:
    """What the demo has found out about its detector."""

    results: Mapping[str, Sequence[RuleResult]]  # by class
    transfers: Sequence[TransferQuality]  # one for each class
    detections: Sequence[Detections]
    report: DetectionReport
    errors: ErrorBreakdown


def introduction(train: Dataset, test: Dataset) -> str:
    """What the scenes are."""
    n_train, n_test = (sum(1 for _ in part.instances()) for part in (train, test))
    return (
        f"Handwritten digits among clutter: {len(train)} scenes with {n_train} objects of {len(train.classes)} classes "
        f"to learn from, {len(test)} other scenes with {n_test} objects to find."
    )


def table_rows(results: Mapping[str, Sequence[RuleResult]]) -> list[list[str]]:
    """A row for each method: means over the classes, and the paper's figures."""
    rows = []
    for same in zip(*results.values(), strict=True):
        recall, false, window_ap, detection_ap = (
            float(np.mean([getattr(one, name) for one in same]))
            for name in ("recall", "false_positives", "window_ap", "detection_ap")
        )
        winners = "" if same[0].rule == Method.SINGLE_SVM else f"{sum(one.n_winners for one in same)}"
        rows.append(
            [
                same[0].rule,
                f"{100 * recall:.1f}",
                amount(round(false)),
                f"{100 * window_ap:.1f}",
                f"{100 * detection_ap:.1f}",
                winners,
                *_paper_cells(same[0].rule),
            ]
        )
    return rows


def reading(results: Mapping[str, Sequence[RuleResult]]) -> str:
    """What to take from the table, in words, from its own figures."""
    ap = {
        same[0].rule: 100 * float(np.mean([one.detection_ap for one in same]))
        for same in zip(*results.values(), strict=True)
    }
    own, joint, raw, single = (
        ap[name] for name in (SHARED, Method.JOINT_SIGMOID, Method.NO_CALIBRATION, Method.SINGLE_SVM)
    )
    return (
        f"How to read this: {SHARED!r} detects with an AP of {own:.1f}, {_beside(own, raw)} the same exemplars "
        f"uncalibrated ({raw:.1f}) and {_beside(own, single)} one SVM for the whole class ({single:.1f}), which cannot "
        f"say what a detection looks like. With a threshold and a sigmoid of its own for each exemplar, as in the "
        f"paper, it would be {joint:.1f}{_why(own, joint)} Scales are drawn together as far as scenes left out ask for "
        "it; the thresholds below, and the proof about them, are not changed by that."
    )


def _why(own: float, joint: float) -> str:
    """Behind the figure of own scales: why they are worse, where they are."""
    if round(joint, 1) >= round(own, 1):
        return ": on these scenes exemplars could have kept scales of their own."
    return (
        ": exemplars that were trained around a common direction are comparable as they are, and what single ones "
        "learn from a few scenes is mostly chance."
    )


def _beside(own: float, other: float) -> str:
    """In words, to the tenth that the table shows."""
    gain = round(own, 1) - round(other, 1)
    return "level with" if gain == 0 else f"{abs(gain):.1f} {'above' if gain > 0 else 'below'}"


def _paper_cells(rule: str) -> list[str]:
    """Tables 1 to 3 of the paper: means of ten classes of ILSVRC."""
    rows = (PAPER_TABLES[number].rows.get(rule) for number in (1, 2, 3))
    forms = (thousands, "{:.1f}".format, "{:.1f}".format)
    return ["" if row is None else form(row.mean) for row, form in zip(rows, forms, strict=True)]


def search_table(results: Mapping[str, Sequence[RuleResult]]) -> tuple[tuple[str, ...], list[list[str]]]:
    """The joint calibration of each class: header and rows."""
    header = ("class", "exemplars", "redundant", "loss", "lower bound", "gap", "status", "seconds")
    rows = []
    for name, of_class in results.items():
        found = next(one for one in of_class if one.rule == Method.JOINT_SIGMOID)
        search = found.search
        rows.append(
            [
                name,
                f"{found.n_exemplars}",
                f"{found.n_exemplars - found.n_used}",
                amount(search["loss"]),
                amount(search["bound"]),
                percent(search["gap"]),
                search["status"],
                f"{search['seconds']:.1f}",
            ]
        )
    return header, rows


def sections(folder: Path, judged: Judged) -> tuple[Section, ...]:
    """What belongs to the demo alone; its picture is read from the folder."""
    return (
        Section("What this is", (_ROAD, "The digits are those that scikit-learn carries.")),
        Section(
            "Every calibration beside the others",
            (_TABLES, reading(judged.results)),
            (Table("Windows and detections of the test scenes", TABLE_HEADER, table_rows(judged.results)),),
        ),
        Section(
            "The thresholds, and the proof of how good they are",
            (_CALIBRATION,),
            (Table("Joint calibration of each class", *search_table(judged.results)),),
        ),
        Section(
            "What is carried over",
            (_TRANSFER,),
            (Table("Agreement with the truth, in per cent", *transfer_table(judged.transfers)),),
            (Picture((folder / "transfer.png").read_bytes(), *_PICTURE),),
        ),
        Section(
            "What went wrong",
            ("The surest detections of each class, as many as it has objects, by what is wrong with them.",),
            (Table("Errors by kind", *judged.errors.to_table()),),
        ),
    )


def transfer_table(transfers: Sequence[TransferQuality]) -> tuple[tuple[str, ...], list[list[str]]]:
    """Means over the detections of all classes: header and rows."""
    measures = tuple(dict.fromkeys(measure for one in transfers for measure in one.measures))
    choices = tuple(dict.fromkeys(choice for one in transfers for choice in one.choices))
    rows = []
    for choice in choices:
        cells = []
        for measure in measures:
            known = [row for one in transfers for row in one.rows if (row.choice, row.measure) == (choice, measure)]
            n = sum(row.n_detections for row in known)
            cells.append(f"{100 * sum(row.mean * row.n_detections for row in known) / n:.1f}" if n else "")
        rows.append([choice, *cells])
    return ("choice", *measures), rows
