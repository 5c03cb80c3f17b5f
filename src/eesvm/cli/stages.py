"""What `train` and `detect` show while they work, and where the time went.

In: stages, and how much of each is done. Out: a line with a bar and the time left in a terminal, nothing in a pipe; in
the end, if wanted, a table of stages and their share of the time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from eesvm.cli.console import Screen
from eesvm.detector.training_table import StageProgress
from eesvm.structures import Problem

_SHOWN = 20  # problems that are listed one by one


@contextmanager
def stage_bar(quiet: bool) -> Iterator[StageProgress | None]:
    """A callback that shows the stage at work; None where nobody would see it."""
    console = Console(file=sys.stderr)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        kind = ""

        def update(stage: str, done: int, total: int) -> None:
            nonlocal kind
            if stage.split(",")[0] != kind:  # what follows a comma changes while a stage is at work
                kind = stage.split(",")[0]
                bar.reset(task, description=stage)
            bar.update(task, description=stage, completed=done, total=total or None)

        yield update


@contextmanager
def timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Add the time that the block takes to those of its stage."""
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - started


def report_profile(seconds: Mapping[str, float], total: float, screen: Screen) -> None:
    """Seconds of each stage and their share of the whole."""
    rest = total - sum(seconds.values())
    rows = [*seconds.items(), ("everything else", rest)]
    screen.say()
    header = ("stage", "seconds", "share")
    screen.table(header, [[name, f"{value:.2f}", f"{100 * value / max(total, 1e-9):.1f} %"] for name, value in rows])
    screen.facts([("in all", f"{total:.2f} s")])


def report_problems(problems: list[Problem], screen: Screen) -> None:
    """Images and annotations that were passed over."""
    if not problems:
        return
    screen.say()
    screen.say(f"{len(problems):,} problem{'s' * (len(problems) > 1)}")
    for problem in problems[:_SHOWN]:
        screen.say(f"  {problem}")
    if len(problems) > _SHOWN:
        screen.say(f"  and {len(problems) - _SHOWN:,} more")
