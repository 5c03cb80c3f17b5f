"""`eesvm verify`: check a finished calibration without trusting its author.

In: the score table and the folder that `calibrate` wrote. Out: a line that says what was recomputed and that it holds,
or an error that says what does not.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from eesvm._support.validation import InputError
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.calibration.files.calibrations import load_calibration
from eesvm.calibration.files.certificates import load_certificate
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.result import CalibrationResult
from eesvm.calibration.tables.score_table import read_score_table
from eesvm.cli.calibrate import verify_result
from eesvm.cli.console import Screen
from eesvm.cli.outputs import CERTIFICATE_NAME


def run(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.quiet)
    calibrator = load_calibration(arguments.calibration)
    folder = Path(arguments.calibration)
    file = (folder if folder.is_dir() else folder.parent) / CERTIFICATE_NAME
    result = calibrator.result_
    if file.exists():
        result = replace(result, certificate=load_certificate(file))
    problem = _problem(arguments, calibrator)
    _check_same_table(arguments, problem, result)
    try:
        verify_result(problem, result, screen)
    except InputError as error:
        hint = f"; or was it made from another table than {arguments.scores}?" if "the scores say" in str(error) else ""
        raise InputError(f"{arguments.calibration}: {error}{hint}") from None
    return 0


def _problem(arguments: argparse.Namespace, calibrator: JointCalibrator) -> CalibrationProblem:
    """The problem as `calibrate` posed it."""
    table = read_score_table(
        arguments.scores,
        label_column=arguments.label_column,
        positive_label=arguments.positive_label,
        columns=arguments.columns or calibrator.exemplar_names_,
        exclude=arguments.exclude,
        missing=arguments.missing or calibrator.missing,
    )
    try:
        return table.problem(
            calibrator.across_groups_,
            calibrator.lower_thresholds_,
            calibrator.upper_thresholds_,
            calibrator.detector_cost_,
        )
    except InputError as error:
        raise InputError(f"{arguments.scores}: {error}") from None


def _check_same_table(arguments: argparse.Namespace, problem: CalibrationProblem, result: CalibrationResult) -> None:
    """Refuse a table that differs in size from the one that was calibrated; older files may not know its size."""
    wanted = (len(result.thresholds), result.statistics.get("n_positives"), result.statistics.get("n_negatives"))
    found = (problem.n_exemplars, problem.n_positives, problem.n_negatives)
    if any(there is not None and there != here for there, here in zip(wanted, found, strict=True)):
        raise InputError(
            f"{arguments.scores}: it is not the table that {arguments.calibration} was made from: it has "
            f"{_size_text(found)}, that one had {_size_text(wanted)}"
        )


def _size_text(sizes: tuple[int | None, ...]) -> str:
    names = ("columns", "positives", "negatives")
    return ", ".join(f"{n:,} {name}" for n, name in zip(sizes, names, strict=True) if n is not None)
