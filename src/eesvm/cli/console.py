"""What the verbs print: facts, tables, notes, and a live line while a search runs.

In: plain values. Out: text; coloured and live in a terminal, plain and one line each in a pipe.
Texts are never read as markup: a file called [red].csv is printed as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

from eesvm._support.amounts import amount, duration, percent

if TYPE_CHECKING:  # a screen should not load what searches
    from eesvm.calibration.anytime import Progress as SearchState
    from eesvm.calibration.anytime import ProgressCallback
    from eesvm.calibration.result import CalibrationResult

_WIDE = 1000  # characters, more than any line has
_LINE_SECONDS = 60.0  # between two lines about a search where there is no terminal

_STATUS_TEXTS = {
    "optimal": "proven",
    "gap_reached": "as near to the optimum as was asked for",
    "time_limit": "stopped before the proof",
    "node_limit": "stopped before the proof",
    "feasible": "not proven optimal",
}


class Screen:
    """The two streams of a verb; `quiet` leaves errors only."""

    def __init__(self, quiet: bool = False, to_stderr: bool = False) -> None:
        self._quiet = quiet
        self._has_hinted = False
        self._out = _console(sys.stderr if to_stderr else sys.stdout)
        self._wide = _console(self._out.file, _WIDE)
        self._live = _console(sys.stderr)

    def say(self, text: str = "", style: str = "") -> None:
        """One line."""
        if not self._quiet:
            self._out.print(text, style=style or None, soft_wrap=True)

    def note(self, text: str) -> None:
        """A warning."""
        self.say(f"note: {text}", "yellow")

    def facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """Names and values, one pair a line."""
        width = max(len(name) for name, _ in facts)
        for name, value in facts:
            self.say(f"  {name:<{width}}  {value}")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table whose first column is text and whose others are numbers."""
        if self._quiet:
            return
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for k, name in enumerate(header):
            table.add_column(name, justify="right" if k else "left", no_wrap=not k, overflow="fold")
        for row in rows:
            table.add_row(*row)
        self._wide.print(table)  # a narrow terminal folds lines; no cell is cut

    @contextmanager
    def searching(self, title: str) -> Iterator[ProgressCallback | None]:
        """A callback for the search: a live line in a terminal, elsewhere a line a minute."""
        if self._quiet:
            yield None
            return
        if not self._live.is_terminal:
            yield SearchLines(title, sys.stderr.write)
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(bar_width=8))
        with Progress(*columns, console=self._live, transient=True) as bar:
            if not self._has_hinted:
                bar.console.print("Ctrl-C ends a search and keeps the best so far; a second one aborts", style="dim")
                self._has_hinted = True
            task = bar.add_task(title, total=None)

            def update(state: SearchState) -> None:
                text = _state_text(title, state)
                bar.update(task, description=text, total=state.time_limit, completed=state.seconds)

            yield update


class SearchLines:
    """The state of a search as a line of text once a minute."""

    def __init__(self, title: str, write: Callable[[str], object]) -> None:
        self._title, self._write, self._written = title, write, 0.0

    def __call__(self, state: SearchState) -> None:
        if state.seconds - self._written >= _LINE_SECONDS:
            self._written = state.seconds
            self._write(_state_text(self._title, state) + "\n")


def result_facts(result: CalibrationResult, n_negatives: int | None = None) -> list[tuple[str, str]]:
    """The answer and its evidence."""
    facts = [
        ("detectors", f"{len(result.thresholds):,}"),
        ("positives", f"{len(result.assignment):,}"),
        ("negatives", "" if n_negatives is None else f"{n_negatives:,}"),
        ("asked for", "" if result.goal is None else f"the most recall with {result.goal}"),
        ("loss", f"{amount(result.loss)} (weight of the accepted negatives)"),
        ("lower bound", amount(result.lower_bound) if result.goal is None else ""),
        ("recall", "" if result.goal is None else percent(result.recall)),
        ("recall bound", "" if result.goal is None else f"{percent(result.recall_bound)} (no thresholds have more)"),
        ("gap", percent(result.gap)),
        ("status", f"{result.status} ({_STATUS_TEXTS.get(result.status, '')})"),
        ("redundant detectors", f"{result.n_redundant:,}"),
        ("recall", percent(result.recall) if result.goal is None else ""),
        ("nodes", f"{result.n_nodes:,}"),
        ("seconds", f"{result.seconds:.2f}"),
    ]
    return [(name, value) for name, value in facts if value]


def _state_text(title: str, state: SearchState) -> str:
    left = "" if state.time_limit is None else f", {duration(max(0.0, state.time_limit - state.seconds))} left"
    shown = amount if state.what == "loss" else percent
    return (
        f"{title}: {state.what} {shown(state.loss)}, bound {shown(state.lower_bound)}, gap {100 * state.gap:.1f} %, "
        f"{state.n_nodes:,} nodes, {duration(state.seconds)}{left}"
    )


def _console(stream: object, width: int | None = None) -> Console:
    console = Console(file=stream, width=width, markup=False, highlight=False, emoji=False)  # type: ignore[arg-type]
    if not console.is_terminal:
        console.width = _WIDE  # a pipe has no width: nothing is cut or folded
    return console
