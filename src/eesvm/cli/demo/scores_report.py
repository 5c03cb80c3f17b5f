"""The report of `eesvm demo --scores`: what was computed, put into words.

In: the example, its searches and the comparison. Out: a `DemoPage`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eesvm._support.amounts import amount, percent
from eesvm._support.version import __version__
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.tables.examples import DigitExample
from eesvm.calibration.tables.fit import score_rows
from eesvm.cli.console import result_facts
from eesvm.cli.outputs import COMPARISON_HEADER, Comparison, comparison_rows
from eesvm.experiments.tables.windows import ACROSS_IMAGES, OWN_IMAGE
from eesvm.report.static_page import DemoPage, Pair, Picture, Section, Table

SEARCH_HEADER = ("search", "loss", "lower bound", "gap", "status", "nodes", "seconds")

_QUESTION = (
    "Every detector scores every window. A window counts as found if any detector scores it above that detector's own "
    "threshold. Which thresholds find all windows of the digit and the fewest others?"
)
_VARIANTS = (
    f'In the variant "{OWN_IMAGE}", as in the paper, a detector may find the windows of the image it was made from. '
    f'"{ACROSS_IMAGES}" forbids that, so that others have to find them: harder, and nearer to what happens with images '
    "that nobody has seen."
)
_SEARCH = (
    "Loss is the number of windows of other digits that are found too. The lower bound is a proof: no thresholds can "
    "do better than that. Where both are equal, the thresholds are optimal."
)
_HELD_OUT = (
    "Every calibrator was fitted on the training images and judged on the test images. False positives are counted at "
    "the recall that the joint thresholds reach there. One digit and one split of its images: an illustration, not a "
    "benchmark."
)
_PAIRS = "Test windows that were found (left), each beside the training image whose detector won it (right)."
_SEARCH_PICTURES = (
    ("loss_and_bound.png", "Loss and lower bound over time.", "How the search went."),
    (
        "thresholds.png",
        "Thresholds of a few detectors among the scores of their windows.",
        "A dark bar is a threshold; orange ticks are windows of other digits that this detector lets through.",
    ),
    (
        "coverage.png",
        "Bars: how many windows each detector is responsible for.",
        "Who is responsible for how many windows of the digit.",
    ),
)
_HELD_OUT_PICTURE = (
    "precision_recall.png",
    "Precision over recall for each calibrator.",
    "The dot is where the joint thresholds cut.",
)


@dataclass(frozen=True)
class Search:
    """One search of the demo."""

    variant: str
    calibrator: JointCalibrator
    problem: CalibrationProblem

    def row(self) -> list[str]:
        result = self.calibrator.result_
        return [
            f"{self.variant}, {self.calibrator.method}",
            amount(result.loss),
            amount(result.lower_bound),
            percent(result.gap),
            result.status,
            f"{result.n_nodes:,}",
            f"{result.seconds:.2f}",
        ]


def introduction(example: DigitExample) -> str:
    """What the table is."""
    train = example.train
    return (
        f"Handwritten digits: {train.n_exemplars} detectors of the digit {example.digit}, one per training image; "
        f"{train.n_positives:,} windows show it, {train.n_rows - train.n_positives:,} show other digits."
    )


def demo_page(folder: Path, example: DigitExample, searches: list[Search], comparison: Comparison) -> DemoPage:
    """The report from what has been computed and written."""
    best = searches[-1]
    result = best.calibrator.result_

    def picture(name: str, alt: str, caption: str) -> Picture:
        return Picture((folder / name).read_bytes(), alt, caption)

    return DemoPage(
        title=f"Thresholds for {example.train.n_exemplars} detectors of the digit {example.digit}",
        summary=introduction(example),
        sections=[
            Section("The question", [_QUESTION, _VARIANTS]),
            Section(
                "The search",
                [_SEARCH],
                [
                    Table("Each search on the training windows", SEARCH_HEADER, [search.row() for search in searches]),
                    Table(
                        f"The thresholds of this report: {best.variant}, {result.method}",
                        ("", "value"),
                        result_facts(result, best.problem.n_negatives),
                    ),
                ],
                [picture(*texts) for texts in _SEARCH_PICTURES],
            ),
            Section(
                "On images that were never seen",
                [_HELD_OUT, *_verdicts(comparison)],
                [
                    Table(
                        f"{each.variant}: the joint thresholds reach a recall of {percent(each.recall)}",
                        COMPARISON_HEADER,
                        comparison_rows(each),
                    )
                    for each in comparison.tables.comparisons
                ],
                [picture(*_HELD_OUT_PICTURE)],
            ),
            Section("It looks like this one", [_PAIRS], pairs=_pairs(example, best.calibrator)),
        ],
        footer=f"Written by eesvm {__version__}. Digits: the handwritten digits that come with scikit-learn.",
    )


def _verdicts(comparison: Comparison) -> list[str]:
    """Which method is best on the test images, a paragraph per variant."""
    both = zip(comparison.tables.comparisons, comparison.verdicts, strict=True)
    return [f"{each.variant[0].upper()}{each.variant[1:]}: {' '.join(verdict)}" for each, verdict in both]


def _pairs(example: DigitExample, calibrator: JointCalibrator, n_right: int = 12, n_wrong: int = 6) -> list[Pair]:
    """Found test windows from different images, from sure to doubtful, then the surest mistakes."""
    rows = score_rows(calibrator, example.test.scores)
    names, groups = example.train.names, np.asarray(example.test.groups)
    is_right = example.test_digits == example.digit

    def pair(row: int) -> Pair:
        exemplar = int(rows.exemplars[row])
        what = f"{names[exemplar]}, margin {rows.margins[row]:.2f}"
        text = what if is_right[row] else f"a {example.test_digits[row]}, taken for: {what}"
        return Pair(example.test_windows[row], example.exemplar_images[exemplar], text, bool(is_right[row]))

    chosen = []
    for wanted, n in ((is_right, n_right), (~is_right, n_wrong)):
        found = np.flatnonzero(rows.accepted & wanted)
        found = found[np.argsort(-rows.margins[found], kind="stable")]
        found = found[np.sort(np.unique(groups[found], return_index=True)[1])]  # the surest window of each image
        places = (
            np.linspace(0, len(found) - 1, min(n, len(found))) if wanted is is_right else np.arange(min(n, len(found)))
        )
        chosen += [pair(int(row)) for row in found[places.round().astype(int)]]
    return chosen
