"""`eesvm apply`: score new rows with a calibration that was saved.

In: a calibration and a score table. Out: a csv file with one line per row: score, decision, winning detector, margin.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from eesvm._support.amounts import percent
from eesvm._support.files import atomic_write
from eesvm._support.validation import InputError
from eesvm.calibration.calibrators.joint import JointCalibrator, spreads
from eesvm.calibration.files.calibrations import load_calibration
from eesvm.calibration.tables.fit import RowScores, score_rows
from eesvm.calibration.tables.score_table import ScoreTable, read_score_table
from eesvm.cli.console import Screen
from eesvm.metrics import false_positives, recall_at

_WIDELY = 10  # how often the largest spread of a column may hold the smallest


def run(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.quiet, to_stderr=arguments.output == "-")
    _check_output(arguments.output, arguments.overwrite)
    calibrator = load_calibration(arguments.calibration)
    table = _read(arguments, calibrator)
    ids = _ids(arguments, table)
    for note in table.notes:
        screen.note(note)
    if calibrator.exemplar_names_ is None and table.exemplar_names is not None:
        screen.note(f"the calibration has no names of columns; those of {arguments.scores} are taken in their order")
    _note_units(calibrator, table, screen)
    rows = score_rows(calibrator.set_params(missing=table.missing), table.scores)
    with _open_output(arguments.output) as handle:
        _write(handle, rows, _names(calibrator), ids)
    where = "" if arguments.output == "-" else f", written to {arguments.output}"
    screen.say(f"{int(rows.accepted.sum()):,} of {table.n_rows:,} rows accepted{_judged(table, rows)}{where}")
    return 0


def _note_units(calibrator: JointCalibrator, table: ScoreTable, screen: Screen) -> None:
    """Say so where the file is of a version that kept no units, and columns differ widely in theirs."""
    if calibrator.sigmoid or calibrator.scale != "none" or not calibrator.active_.any():
        return
    units = spreads(table.scores[:, calibrator.active_])
    if units.max() > _WIDELY * units.min():
        screen.note(
            f"the spreads of the columns differ by more than {_WIDELY} times, and this calibration compares margins as "
            "they are: the column with the largest units wins most rows; calibrate again to compare them in spreads"
        )


def _check_output(output: str, overwrite: bool) -> None:
    if output != "-" and Path(output).is_file() and not overwrite:
        raise InputError(f"{output} already exists: choose another name or allow overwriting it (--overwrite)")


def _read(arguments: argparse.Namespace, calibrator: JointCalibrator) -> ScoreTable:
    table = read_score_table(
        arguments.scores,
        label_column=arguments.label_column,
        positive_label=arguments.positive_label,
        group_column=arguments.id_column,
        require_labels=False,
        columns=arguments.columns or calibrator.exemplar_names_,
        exclude=arguments.exclude,
        missing=arguments.missing or calibrator.missing,
    )
    if table.n_exemplars != len(calibrator.thresholds_):
        raise InputError(
            f"{arguments.scores}: there are {table.n_exemplars} columns of scores, "
            f"but the calibration has {len(calibrator.thresholds_)} detectors"
        )
    return table


def _ids(arguments: argparse.Namespace, table: ScoreTable) -> dict[str, list[object]]:
    """What identifies each row, by the name of its column; nothing where nothing was asked for."""
    name = arguments.id_column
    if name is None:
        return {}
    if arguments.scores.lower().endswith(".npz"):
        raise InputError(f"{arguments.scores}: an .npz file has no column {name!r} to write beside each row")
    if table.groups is None:
        raise InputError(f"{arguments.scores}: column {name!r} is one of the scores, not an identifier")
    return {name: table.groups.tolist()}


@contextmanager
def _open_output(output: str) -> Iterator[IO[Any]]:
    if output == "-":
        yield sys.stdout
    else:
        with atomic_write(output, text=True) as handle:
            yield handle


def _write(handle: IO[Any], rows: RowScores, names: list[str], ids: dict[str, list[object]]) -> None:
    writer = csv.writer(handle, lineterminator="\n")
    writer.writerow(["row", *ids, "score", "accepted", "exemplar", "exemplar_index", "margin"])
    # Scores in their own dtype: their text is the shortest that reads back as the same number.
    columns = (rows.scores, rows.accepted.tolist(), rows.exemplars.tolist(), rows.margins)
    for row, (score, accepted, exemplar, margin) in enumerate(zip(*columns, strict=True)):
        winner = (names[exemplar], exemplar, str(margin)) if exemplar >= 0 else ("", "", "")
        writer.writerow([row, *(column[row] for column in ids.values()), str(score), int(accepted), *winner])


def _names(calibrator: JointCalibrator) -> list[str]:
    return calibrator.exemplar_names_ or [f"exemplar_{j}" for j in range(len(calibrator.thresholds_))]


def _judged(table: ScoreTable, rows: RowScores) -> str:
    """How the decisions compare with the labels, where there are labels."""
    if table.labels is None:
        return ""
    n_negatives = table.n_rows - table.n_positives
    text = f": {int(false_positives(table.labels, rows.accepted)):,} false positives among {n_negatives:,} negatives"
    if table.n_positives:
        text += f", recall {percent(recall_at(table.labels, rows.accepted))} of {table.n_positives:,} positives"
    return text
