"""What `calibrate` and `demo` print and write about a result.

In: fitted calibrators, problems, comparisons. Out: lines on the screen; csv, Markdown, JSON and PNG files in a folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eesvm._support.amounts import amount, duration, percent
from eesvm._support.documents import write_json
from eesvm._support.figures import save_png
from eesvm._support.files import atomic_write, write_csv
from eesvm._support.validation import InputError
from eesvm.calibration.calibrators.joint import JointCalibrator, spreads
from eesvm.calibration.files.calibrations import save_calibration
from eesvm.calibration.files.certificates import save_certificate
from eesvm.calibration.frontier import RecallFrontier, share_text
from eesvm.calibration.held_out import HeldOut
from eesvm.calibration.pooled import Pooled
from eesvm.calibration.problem import CalibrationProblem, any_accepts
from eesvm.calibration.proofs.verify import Verification
from eesvm.calibration.result import CalibrationResult
from eesvm.calibration.tables.fit import summarise_exemplars
from eesvm.calibration.tables.score_table import ScoreTable
from eesvm.cli.console import Screen, result_facts
from eesvm.experiments.tables.verdicts import verdicts
from eesvm.experiments.tables.windows import Method, WindowComparison, WindowTables
from eesvm.report.figures import loss_and_bound, plot_recall_frontier, precision_recall_curves
from eesvm.report.score_page import ScoreReport, render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CERTIFICATE_NAME = "certificate.npz"
COMPARISON_HEADER = ("method", "recall, %", "false positives", "window AP, %")
FLOOR_HEADER = ("recall floor", "left out", "loss", "at least", "saved", "search")
FRONTIER_HEADER = ("the hardest", "left out", "share of the loss")
_UNIT_TEXTS = {
    "scores": "units of the scores",
    "spreads": "standard deviations of the negatives",
    "quantiles": "quantiles of the negatives",
}
THRESHOLD_HEADER = (
    "exemplar",
    "threshold",
    "active",
    "positives_responsible",
    "positives_accepted",
    "negatives_accepted",
    "negatives_accepted_alone",
)


@dataclass(frozen=True)
class Comparison:
    """Every calibrator on held-out rows."""

    tables: WindowTables
    test: ScoreTable

    @cached_property
    def verdicts(self) -> list[list[str]]:
        """Which method is best on these rows, in sentences, for each comparison."""
        return [
            verdicts(
                each,
                np.asarray(self.test.labels) == 1,
                any_accepts(self.test.scores, each.result.thresholds),
                self.test.groups,
            )
            for each in self.tables.comparisons
        ]


def report_result(calibrator: JointCalibrator, problem: CalibrationProblem, screen: Screen) -> None:
    """Print the answer, its evidence, and what is worth knowing about the columns."""
    result = calibrator.result_
    facts = result_facts(result, problem.n_negatives)
    is_for_new_rows = hasattr(calibrator, "pooled_")  # not where it was interrupted before
    if is_for_new_rows and calibrator.target_recall is not None:
        facts = _facts_for_new_rows(facts, calibrator.target_recall, result)
    if result.goal is not None:
        facts.append(("precision", percent(problem.precision(result.thresholds))))
    if problem.detector_cost.any():
        cost = float(problem.detector_cost[problem.in_use(result.thresholds)].sum())
        facts.append(("detectors in use", f"cost {amount(cost)} of the loss"))
    if is_for_new_rows:
        facts.append(("thresholds", _pooled_text(calibrator.pooled_)))
    elif calibrator.target_recall is not None:
        facts.append(("asked for", f"a recall of {percent(calibrator.target_recall)} on new rows"))
    screen.facts(facts)
    for note in problem.notes(getattr(calibrator, "exemplar_names_", None)):
        screen.note(note)
    if result.statistics.get("is_interrupted", False):
        screen.note("the search was interrupted; these are the best thresholds it had found")
        if calibrator.target_recall is not None:
            screen.note("held-out rows were not asked for the wanted recall: expect less of it on new rows")


def _facts_for_new_rows(
    facts: list[tuple[str, str]], target: float, result: CalibrationResult
) -> list[tuple[str, str]]:
    """The same without a bound and a gap beside the loss: these are about other thresholds, the best of these rows."""
    texts = {
        "loss": f"{amount(result.loss)} (weight of the accepted negatives), with recall {percent(result.recall)} here",
        "lower bound": "",
        "gap": "",
        "recall": "",
        "status": "chosen for new rows, so not the best on these",
    }
    kept = [(name, texts.get(name, value)) for name, value in facts]
    least = (
        f"for a recall of {percent(target)} of these rows alone no thresholds have a loss below "
        f"{amount(result.lower_bound)}"
    )
    return [
        ("asked for", f"a recall of {percent(target)} on new rows"),
        *[(name, value) for name, value in kept if value],
        ("for comparison", least),
    ]


def _pooled_text(pooled: Pooled) -> str:
    choice = pooled.choice
    shared = "one for all" if choice.strength == 0 else f"{percent(choice.strength)} of each is its own"
    return f"{shared}, in {_UNIT_TEXTS[choice.units]}; as held-out rows want it"


def report_held_out(held_out: HeldOut, screen: Screen) -> None:
    """Print what to expect of new rows, beside what these rows have."""
    what = "groups" if held_out.is_grouped else "rows"
    screen.say(f"\nexpected of new rows, by cross-validation over {what} in {held_out.n_folds} folds:")
    rows = [
        [name, percent(share.value), f"{percent(share.low)} to {percent(share.high)}", percent(fitted)]
        for name, share, fitted in (
            ("recall", held_out.recall, held_out.fitted_recall),
            ("false alarms, of the negatives", held_out.false_alarms, held_out.fitted_false_alarms),
        )
    ]
    screen.table(("", "held out", "95 % interval", "on these rows"), rows)
    for warning in held_out.warnings:
        screen.note(warning)


def write_held_out(folder: Path, held_out: HeldOut) -> None:
    """What to expect of new rows, as JSON."""
    write_json(folder / "held_out.json", asdict(held_out))


def write_report(
    folder: Path,
    title: str,
    table: ScoreTable,
    calibrator: JointCalibrator,
    problem: CalibrationProblem,
    held_out: HeldOut | None,
    frontier: RecallFrontier | None,
) -> None:
    """A page about the table, as one HTML file."""
    labels = np.asarray(table.labels)
    parted = table.parted_groups()
    report = ScoreReport(
        title=title,
        problem=problem,
        calibrator=calibrator,
        names=table.names,
        units=spreads(problem.positive_scores, problem.negative_scores),
        rows=(np.flatnonzero(labels == 1), np.flatnonzero(labels == 0)),
        groups=None if parted is None else (parted[0].astype(str), parted[1].astype(str)),
        held_out=held_out,
        frontier=frontier,
    )
    with atomic_write(folder / "report.html", text=True) as handle:
        handle.write(render(report))


def report_verification(
    problem: CalibrationProblem, result: CalibrationResult, verification: Verification, seconds: float, screen: Screen
) -> None:
    """Print what was recomputed and that it holds, or raise an `InputError` that says what does not."""
    if not verification.is_valid:
        raise InputError(f"the calibration does not hold: {'; '.join(verification.problems)}")
    proof = "without a certificate"
    if result.certificate is not None:
        tree, shares = result.certificate.n_leaves, result.certificate.n_shares
        proof = f"from a certificate with {tree:,} {'leaf' if tree == 1 else 'leaves'} and {shares:,} shares"
    conditions = _conditions(problem, result)
    # They are part of the calibration, so whoever gave it may have chosen them to suit it.
    under = f" where {', '.join(conditions)}" if conditions else ""
    screen.say(
        f"verified: loss {amount(verification.loss)} and recall {percent(problem.recall(result.thresholds))} from the "
        f"scores, {_bound_text(result, verification)} {proof}; both hold{under} ({duration(seconds)})"
    )


def _bound_text(result: CalibrationResult, verification: Verification) -> str:
    if result.goal is None:
        return f"lower bound {amount(verification.lower_bound)}"
    return f"bound on the recall {percent(verification.recall_bound)}"


def _conditions(problem: CalibrationProblem, result: CalibrationResult) -> list[str]:
    """What the search was bound to, besides the scores."""
    n_bounded = int(((problem.lower_thresholds > -np.inf) | (problem.upper_thresholds < np.inf)).sum())
    n_forbidden = 0 if problem.forbidden is None else int(np.count_nonzero(problem.forbidden))
    return [
        text
        for is_there, text in (
            (result.goal is not None, f"{result.goal} is asked for"),
            (result.min_recall < 1, f"a recall of {percent(result.min_recall)} is enough"),
            (result.max_detectors is not None, f"{result.max_detectors} detectors may be in use"),
            (bool(problem.detector_cost.any()), "detectors in use have a cost"),
            (n_bounded > 0, f"{n_bounded:,} of {problem.n_exemplars:,} thresholds are bounded"),
            (n_forbidden > 0, f"{n_forbidden:,} pairs are forbidden"),
        )
        if is_there
    ]


def report_frontier(frontier: RecallFrontier, problem: CalibrationProblem, screen: Screen) -> None:
    """Print what every floor costs, and how much of the loss a few hard positives do."""
    screen.say("\nwhat recall floors cost on these rows:")
    floors = [
        [
            percent(row["floor"]),
            f"{row['n_left_out']:,}",
            amount(row["loss"]),
            amount(row["lower_bound"]),
            share_text(row["owed"], row["owed_low"], row["owed_high"]),
            row["status"],
        ]
        for row in frontier.table()
    ]
    screen.table(FLOOR_HEADER, floors)
    if not frontier.is_complete:
        screen.note("the recall frontier was interrupted; floors that were not begun are missing")
    rows = [
        [
            f"{100 * owed.share:g} % of the positives",
            f"{owed.n_left_out:,} of {problem.n_positives:,}",
            share_text(owed.owed, owed.low, owed.high),
        ]
        for owed in frontier.share_of_loss_owed_to_hardest
    ]
    if rows:
        loss = f"loss {amount(float(frontier.losses[0]))} at recall {frontier.floors[0]:g}"
        screen.say(f"\nhow much of the {loss} a few hard positives cost:")
        screen.table(FRONTIER_HEADER, rows)


def report_comparison(compared: Comparison, screen: Screen) -> None:
    """Print the rows of the paper's tables 1 and 2, and which method is best."""
    tables = compared.tables
    for comparison, verdict in zip(tables.comparisons, compared.verdicts, strict=True):
        variant = f"{comparison.variant}; " if len(tables.comparisons) > 1 else ""
        screen.say(
            f"\nheld out: {tables.n_positives:,} positives, {tables.n_negatives:,} negatives, the rest is for fitting; "
            f"{variant}counted at the recall of the joint thresholds, {percent(comparison.recall)}"
        )
        screen.table(COMPARISON_HEADER, comparison_rows(comparison))
        for text in verdict:
            screen.say(text)


def comparison_rows(comparison: WindowComparison) -> list[list[str]]:
    """The rows as texts, under `COMPARISON_HEADER`."""
    return [
        [
            row.method,
            f"{100 * row.recall:.1f}",
            f"{row.false_positives:,.0f}",
            "" if row.average_precision is None else f"{100 * row.average_precision:.1f}",
        ]
        for row in comparison.rows
    ]


def write_calibration(
    folder: Path, calibrator: JointCalibrator, problem: CalibrationProblem, names: Sequence[str]
) -> None:
    """The files that every calibration has, and the proof of its bound where there is one."""
    result = calibrator.result_
    save_calibration(folder / "calibration.json", calibrator)
    if result.certificate is not None:
        save_certificate(folder / CERTIFICATE_NAME, result.certificate)
    rows = zip(names, *summarise_exemplars(problem, result.thresholds).columns(), strict=True)
    write_csv(folder / "thresholds.csv", [THRESHOLD_HEADER, *rows])
    name = "loss_and_bound.png" if result.goal is None else "left_out_and_bound.png"
    what = "" if calibrator.target_recall is None else "The search on these rows alone"
    figure = loss_and_bound(result.history, result.status, result.seconds, result.goal is not None, what)
    save_png(figure, folder / name)


def write_frontier(folder: Path, frontier: RecallFrontier) -> None:
    """The recall frontier as csv and as a picture."""
    rows = frontier.table()
    write_csv(folder / "recall_frontier.csv", [rows[0], *(row.values() for row in rows)])
    save_png(plot_recall_frontier(frontier), folder / "recall_frontier.png")


def write_comparison(folder: Path, comparison: Comparison) -> None:
    """The comparison as csv, as Markdown and as a picture."""
    write_csv(folder / "comparison.csv", comparison.tables.to_csv_rows())
    with atomic_write(folder / "comparison.md", text=True) as handle:
        both = zip(comparison.tables.comparisons, comparison.verdicts, strict=True)
        texts = [f"**{each.variant}**: {' '.join(verdict)}\n" for each, verdict in both]
        handle.write("\n".join([comparison.tables.to_markdown(), *texts]))
    save_png(comparison_figure(comparison), folder / "precision_recall.png")


def comparison_figure(comparison: Comparison) -> Figure:
    """Precision and recall on the held-out rows; a dot marks what the joint thresholds decide."""
    last, test = comparison.tables.comparisons[-1], comparison.test
    if test.labels is None:
        raise InputError("a comparison needs labels")
    accepted = any_accepts(test.scores, last.result.thresholds)
    title = f"Held-out rows, {last.variant}"
    return precision_recall_curves(test.labels, last.scores, {Method.JOINT: accepted}, title)
