"""`eesvm calibrate`: one threshold per detector for a score table.

In: a score table and limits. Out: a folder with calibration.json, certificate.npz where the search made one,
thresholds.csv and loss_and_bound.png, and with --compare how every calibrator does on rows that it has not seen, and
with --frontier what other recall floors would cost.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from pathlib import Path

from eesvm._support.amounts import percent
from eesvm._support.files import atomic_folder, check_output_folder, check_room
from eesvm._support.validation import InputError
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.calibration.exact import check_goal
from eesvm.calibration.files.calibrations import save_calibration
from eesvm.calibration.frontier import RecallFrontier, recall_frontier
from eesvm.calibration.held_out import HeldOut
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.proofs.verify import verify
from eesvm.calibration.result import CalibrationResult
from eesvm.calibration.tables.fit import fit_table, hold_out, split_table
from eesvm.calibration.tables.score_table import ScoreTable, read_score_table
from eesvm.calibration.tables.threshold_bounds import read_bounds
from eesvm.cli.arguments import UsageError, judging_options
from eesvm.cli.console import Screen
from eesvm.cli.outputs import (
    Comparison,
    report_comparison,
    report_frontier,
    report_held_out,
    report_result,
    report_verification,
    write_calibration,
    write_comparison,
    write_frontier,
    write_held_out,
    write_report,
)
from eesvm.experiments.tables.windows import compare_calibrators

_COMPARE_SECONDS = 60.0  # for each search of --compare where there is no --time-limit
_FRONTIER_SECONDS = 60.0  # for each recall floor of --frontier where there is no --time-limit
_REPORT_SECONDS = 5.0  # and of --report


def run(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.quiet)
    _check_options(arguments)
    check_output_folder(arguments.output, arguments.overwrite)
    check_room(arguments.output)
    if arguments.group_column is not None and arguments.scores.lower().endswith(".npz"):
        raise InputError(
            f"{arguments.scores}: an .npz file has no column {arguments.group_column!r}: its groups are the array "
            "`groups`, or `positive_groups` and `negative_groups`"
        )
    table = read_score_table(
        arguments.scores,
        label_column=arguments.label_column,
        positive_label=arguments.positive_label,
        group_column=arguments.group_column,
        columns=arguments.columns,
        exclude=arguments.exclude,
        missing=arguments.missing,
    )
    calibrator = _calibrator(arguments)
    if arguments.bounds is not None:
        lower, upper = read_bounds(arguments.bounds, table.names)
        calibrator.set_params(lower_thresholds=lower, upper_thresholds=upper)
    try:
        parts = split_table(table, arguments.test_size, arguments.seed) if arguments.compare else None
        problem = fit(table, calibrator, screen, arguments.across_groups)
        held_out = _hold_out(table, calibrator, problem, arguments, screen)
        wants_frontier = arguments.frontier or (arguments.report and arguments.max_detectors is None)
        frontier = _frontier(problem, calibrator.result_, arguments, screen) if wants_frontier else None
        comparison = None if parts is None else _compare(*parts, arguments, screen)
    except InputError as error:
        raise InputError(f"{arguments.scores}: {error}") from None
    # Written first: whoever closes our output early, `head` say, still gets the files.
    try:
        with atomic_folder(arguments.output, arguments.overwrite) as folder:
            write_calibration(folder, calibrator, problem, table.names)
            if held_out is not None:
                write_held_out(folder, held_out)
            if frontier is not None and arguments.frontier:
                write_frontier(folder, frontier)
            if arguments.report:
                title = f"Thresholds for {Path(arguments.scores).name}"
                write_report(folder, title, table, calibrator, problem, held_out, frontier)
            if comparison is not None:
                write_comparison(folder, comparison)
            names = sorted(entry.name for entry in folder.iterdir())
    except (OSError, InputError) as error:  # a full disk, or a folder that somebody has made meanwhile
        _rescue(table, calibrator, arguments, error)
        raise
    for note in table.notes:
        screen.note(note)
    report_result(calibrator, problem, screen)
    if held_out is not None:
        report_held_out(held_out, screen)
        _note_target(table, held_out, arguments, screen)
    if frontier is not None and arguments.frontier:
        report_frontier(frontier, problem, screen)
    if comparison is not None:
        _report_comparison(table, comparison, screen)
        if arguments.bounds is not None:
            screen.note("bounds on thresholds are not part of the comparison")
        if arguments.max_detectors is not None or arguments.detector_cost > 0:
            screen.note("limits and costs of detectors are not part of the comparison")
    screen.say(f"\nwritten to {arguments.output}: {', '.join(names)}")
    if arguments.verify:
        verify_result(problem, calibrator.result_, screen)
    return 0


def _note_target(table: ScoreTable, held_out: HeldOut, arguments: argparse.Namespace, screen: Screen) -> None:
    """Say where the recall that is wanted of new rows is not what held-out rows have."""
    target = arguments.target_recall
    if target is None or held_out.recall.high >= target:
        return
    text = f"the recall of {percent(target)} that is asked for is not reached on held-out rows"
    if table.groups is not None and table.exemplar_groups is not None and not arguments.across_groups:
        text += ", where no detector covers rows of its own group: use --across-groups to fit thresholds the same way"
    screen.note(text)


def _rescue(table: ScoreTable, calibrator: JointCalibrator, arguments: argparse.Namespace, error: Exception) -> None:
    """Save what a long search has found where not all of it can be written: the smallest file, else lines of CSV."""
    if isinstance(error, OSError) and _is_saved(calibrator, arguments):
        raise InputError(
            f"{arguments.output}: {error.strerror or error}: calibration.json is saved, with which `eesvm apply` "
            "works, and nothing else"
        ) from None
    sys.stderr.write("the thresholds, which cannot be written:\n")  # whatever --quiet says: they are lost otherwise
    rows = zip(table.names, calibrator.thresholds_.tolist(), strict=True)
    csv.writer(sys.stderr, lineterminator="\n").writerows(rows)


def _is_saved(calibrator: JointCalibrator, arguments: argparse.Namespace) -> bool:
    """Whether the calibration alone could be written."""
    try:
        with atomic_folder(arguments.output, arguments.overwrite) as folder:
            save_calibration(folder / "calibration.json", calibrator)
    except (OSError, InputError):
        return False
    return True


def _check_options(arguments: argparse.Namespace) -> None:
    """Refuse options that exclude each other."""
    with judging_options():
        goal = check_goal(arguments.max_loss, arguments.min_precision, arguments.min_recall, arguments.method)
    if arguments.folds == 1:
        raise UsageError("--folds must be 0, or 2 or more, got 1")
    if arguments.target_recall is not None and (goal is not None or arguments.min_recall != 1):
        raise UsageError("--target-recall goes with no --min-recall, --max-loss or --min-precision")
    if arguments.target_recall is not None and arguments.folds == 0:
        raise UsageError("--target-recall needs rows that are held out: --folds must be 2 or more, got 0")
    if arguments.max_detectors is not None and arguments.method != "exact":
        raise UsageError(f"--max-detectors needs --method exact, got {arguments.method}")
    if arguments.min_precision is not None and arguments.detector_cost > 0:
        raise UsageError("--detector-cost does not go with --min-precision, which knows of no other costs")
    if arguments.max_detectors is not None and arguments.frontier:
        raise UsageError("--frontier does not go with --max-detectors: its floors know of no such limit")


def fit(
    table: ScoreTable, calibrator: JointCalibrator, screen: Screen, across_groups: bool, title: str = "searching"
) -> CalibrationProblem:
    """Fit the calibrator with a live line on the screen; Ctrl-C ends the search with the best so far."""
    with screen.searching(title) as progress:
        calibrator.set_params(progress=progress)
        problem = fit_table(table, calibrator, across_groups)
    calibrator.set_params(progress=None)
    return problem


def verify_result(problem: CalibrationProblem, result: CalibrationResult, screen: Screen) -> None:
    """Recompute what the result claims; one line where it holds, an `InputError` where it does not."""
    started = time.perf_counter()
    verification = verify(problem, result)
    report_verification(problem, result, verification, time.perf_counter() - started, screen)


def _hold_out(
    table: ScoreTable,
    calibrator: JointCalibrator,
    problem: CalibrationProblem,
    arguments: argparse.Namespace,
    screen: Screen,
) -> HeldOut | None:
    """What to expect of new rows; None where that is not wanted, not possible, or was interrupted."""
    if arguments.folds == 0 or calibrator.result_.statistics.get("is_interrupted", False):
        return None
    try:
        return hold_out(table, calibrator, problem, arguments.folds)
    except InputError as error:
        screen.note(f"nothing is said about new rows: {error}")
    except KeyboardInterrupt:
        screen.note("the cross-validation was interrupted; nothing is said about new rows")
    return None


def _frontier(
    problem: CalibrationProblem, result: CalibrationResult, arguments: argparse.Namespace, screen: Screen
) -> RecallFrontier | None:
    """Other recall floors, by the exact search; None where that was interrupted before the first was done."""
    is_exact = result.method == "exact" and result.goal is None and arguments.target_recall is None
    seconds = arguments.time_limit
    if seconds is None or not arguments.frontier:  # a page does not wait long
        seconds = _FRONTIER_SECONDS if arguments.frontier else min(_REPORT_SECONDS, seconds or _REPORT_SECONDS)
    try:
        with screen.searching("recall floors") as progress:
            return recall_frontier(
                problem,
                time_limit=seconds,
                gap=arguments.gap,
                progress=progress,
                random_state=arguments.seed,
                n_jobs=arguments.jobs,
                start=None if is_exact else result.thresholds,
                known=[result] if is_exact else (),
            )
    except KeyboardInterrupt:
        screen.note("the recall frontier was interrupted; the thresholds are written without it")
        return None


def _compare(train: ScoreTable, test: ScoreTable, arguments: argparse.Namespace, screen: Screen) -> Comparison | None:
    """Every calibrator on rows that none of them has seen; None where that was interrupted, or these are too few."""
    try:
        return _compare_on_held_out(train, test, arguments, screen)
    except InputError as error:
        screen.note(f"nothing is compared: {error}")
        return None
    except KeyboardInterrupt:
        screen.note("the comparison was interrupted; the thresholds are written without it")
        return None


def _compare_on_held_out(
    train: ScoreTable, test: ScoreTable, arguments: argparse.Namespace, screen: Screen
) -> Comparison:
    has_images = train.groups is not None and train.exemplar_groups is not None
    with screen.searching("comparing") as progress:
        tables = compare_calibrators(
            train.scores,
            train.labels,
            test.scores,
            test.labels,
            groups_train=train.groups if has_images else None,
            groups_test=test.groups,
            exemplar_groups=train.exemplar_groups if has_images else None,
            method=arguments.method,
            min_recall=arguments.min_recall if arguments.target_recall is None else arguments.target_recall,
            max_loss=None if arguments.max_loss is None else arguments.max_loss * (1 - arguments.test_size),
            min_precision=arguments.min_precision,
            time_limit=_COMPARE_SECONDS if arguments.time_limit is None else arguments.time_limit,
            node_limit=arguments.node_limit,
            gap=arguments.gap,
            progress=progress,
            random_state=arguments.seed,
            n_jobs=arguments.jobs,
            missing=arguments.missing,
        )
    return Comparison(tables, test)


def _report_comparison(table: ScoreTable, comparison: Comparison, screen: Screen) -> None:
    report_comparison(comparison, screen)
    n_left_out = table.n_exemplars - comparison.test.n_exemplars
    if n_left_out:
        screen.note(f"{n_left_out} detectors from held-out groups are not part of it")
    if table.weights is not None or table.forbidden is not None:
        screen.note("weights and forbidden pairs of the file are not part of the comparison")


def _calibrator(arguments: argparse.Namespace) -> JointCalibrator:
    return JointCalibrator(
        sigmoid=arguments.sigmoid,
        method=arguments.method,
        min_recall=arguments.min_recall,
        time_limit=arguments.time_limit,
        node_limit=arguments.node_limit,
        gap=arguments.gap,
        random_state=arguments.seed,
        n_jobs=arguments.jobs,
        scale="spread",  # the columns of a table may have any units
        max_loss=arguments.max_loss,
        min_precision=arguments.min_precision,
        max_detectors=arguments.max_detectors,
        detector_cost=arguments.detector_cost,
        target_recall=arguments.target_recall,
        n_folds=max(2, arguments.folds or 5),
    )
