"""What `train` and `detect` show while they work, and where the time went.

In: stages, and how much of each is done. Out: a bar with the time left in a terminal; elsewhere, in a log file say, a
line for each stage and one a minute; in the end, if wanted, a table of stages and their share of the time.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from eesvm._support.amounts import counted, counted_exemplars, duration
from eesvm.cli.console import Screen
from eesvm.structures import Dataset, ImageRecord, Problem

if TYPE_CHECKING:  # verbs that only look at data should not load what trains
    from eesvm.detector.detector import ExemplarDetector
    from eesvm.detector.training_table import StageProgress

_SHOWN = 10  # problems of a kind that are listed one by one
_LINE_SECONDS = 60.0  # between two lines of a stage where there is no terminal


@contextmanager
def stage_bar(quiet: bool) -> Iterator[StageProgress | None]:
    """A callback that shows the stage at work; None where nobody wants to see it."""
    console = Console(file=sys.stderr)
    if quiet:
        yield None
        return
    if not console.is_terminal:
        yield StageLines(sys.stderr.write)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("gone,"),
        TimeRemainingColumn(),
        TextColumn("left"),
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


class StageLines:
    """Progress as lines of text: when a stage begins, and once a minute while it is at work.

    Parameters
    ----------
    write : takes each line.
    clock : seconds.
    """

    def __init__(self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._began = self._stage_began = self._written = clock()
        self._kind = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        now, kind = self._clock(), stage.split(",")[0]  # what follows a comma changes while a stage is at work
        if kind != self._kind:
            self._kind, self._stage_began = kind, now
        elif now - self._written < _LINE_SECONDS:
            return
        self._written = now
        amount = f": {done:,} of {total:,}" if total else ""
        spent = now - self._stage_began
        left = f", about {duration(spent / done * (total - done))} left" if spent and 0 < done < total else ""
        self._write(f"[{duration(now - self._began)}] {stage}{amount}{left}\n")


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


def n_images_given(images: Sequence[ImageRecord], problems: Sequence[Problem]) -> int:
    """How many images there were to look at, those included that could not even be opened."""
    return len(images) + sum(problem.kind == "image" for problem in problems)


def n_exemplars_text(detector: ExemplarDetector) -> str:
    """How many exemplars a model has, and of how many objects."""
    n_mirrored = sum(one.is_mirrored for one in detector.exemplars_)
    return counted_exemplars(len(detector.exemplars_), n_mirrored, word="")


def note_unlabelled(dataset: Dataset, screen: Screen) -> None:
    """Say what becomes of the images without annotation, where others have one."""
    n_all, n_without = len(dataset), sum(not record.has_annotation for record in dataset)
    if not 0 < n_without < n_all:
        return
    n_skipped = sum(not record.has_annotation and not record.is_annotated for record in dataset)
    fate = "are left out of training and evaluation: --unlabelled keep takes them as images without objects"
    if n_skipped < n_without:
        some = f"are left out ({n_skipped:,}) or ({n_without - n_skipped:,}) " * bool(n_skipped)
        fate = f"{some}count as images without objects: --unlabelled skip leaves them out"
    have = "has" if n_without == 1 else "have"
    screen.note(f"{n_without:,} of {n_all:,} images {have} no annotation; such images {fate}")


def report_problems(problems: list[Problem], screen: Screen) -> None:
    """Images and annotations that were passed over."""
    if not problems:
        return
    screen.say()
    screen.say(counted(len(problems), "problem"))
    list_problems(problems, screen, "`eesvm data info --json` prints all of a dataset")


def list_problems(problems: Sequence[Problem], screen: Screen, where: str) -> None:
    """One line for each of the first problems of a kind, and how many more there are; `where` names the full list."""
    counts = Counter(problem.kind for problem in problems)
    shown: Counter[str] = Counter()
    for problem in problems:
        shown[problem.kind] += 1
        if shown[problem.kind] <= _SHOWN:
            screen.say(f"  {problem}")
    for kind, count in counts.items():
        if count > _SHOWN:
            screen.say(f"  and {count - _SHOWN:,} more of the kind {kind}: {where}")
