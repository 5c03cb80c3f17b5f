"""`eesvm windows`: propose windows for a dataset, and say how many of its objects they find.

In: a dataset. Out: recall at IoU 0.5 and 0.7 and windows per image on the screen; if wanted, the windows in a file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from eesvm._support.amounts import percent
from eesvm._support.files import check_output_file
from eesvm.cli.arguments import UsageError
from eesvm.cli.console import Screen
from eesvm.cli.inputs import open_data
from eesvm.cli.stages import report_problems
from eesvm.descriptors.cache import DescriptorCache
from eesvm.structures import ImageRecord, Problem, Windows
from eesvm.windows.files import write_windows
from eesvm.windows.proposals import propose_dataset, with_ground_truth
from eesvm.windows.recall import ClassRecall, WindowRecall, window_recall


def run(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.quiet)
    _check_output(arguments.output, arguments.overwrite)
    if arguments.jobs == 0:
        raise UsageError("--jobs must be a number of processes or -1 for one per core, got 0")
    dataset = open_data(arguments.path, arguments.annotations, arguments.split, arguments.strict)
    records = _sample(dataset.images, arguments.sample)
    problems: list[Problem] = list(dataset.problems)
    kept: list[Windows] | None = [] if arguments.output else None
    with _progress_bar(arguments.quiet) as progress:
        found = propose_dataset(
            records,
            n_jobs=arguments.jobs,
            cache=None if arguments.cache is None else DescriptorCache(arguments.cache or None),
            progress=progress,
            problems=problems,
            strict=arguments.strict,
            method=arguments.method,
            mode=arguments.mode,
            max_windows=arguments.max_windows,
            min_size=arguments.min_size,
            working_size=arguments.working_size,
            time_budget=arguments.time_budget,
        )
        recall = window_recall(records, _keeping(found, kept))
    if kept is not None:
        if arguments.ground_truth:  # not before recall is measured: a proposal that is an object's box counts there
            images = {record.image_id: record for record in records}
            kept = [with_ground_truth(windows, images[windows.image_id]) for windows in kept]
        write_windows(arguments.output, kept)
    _print(dataset.name, recall, problems, screen)
    if kept is not None:
        screen.say(f"written to {arguments.output}")
    return 0


def _check_output(output: str | None, overwrite: bool) -> None:
    if output is None:
        return
    if Path(output).suffix != ".npz":
        raise UsageError(f"`--output` must end in .npz, got {output}")
    check_output_file(output, overwrite)


def _sample(records: tuple[ImageRecord, ...], wanted: int | None) -> tuple[ImageRecord, ...]:
    if wanted is None or wanted >= len(records):
        return records
    return tuple(records[k * len(records) // wanted] for k in range(wanted))


def _keeping(windows: Iterator[Windows], kept: list[Windows] | None) -> Iterator[Windows]:
    """Pass the windows on, and keep them where they are to be written: otherwise memory stays flat."""
    for found in windows:
        if kept is not None:
            kept.append(found)
        yield found


def _print(name: str, recall: WindowRecall, problems: list[Problem], screen: Screen) -> None:
    screen.say(name, "bold")
    facts = [("images", f"{recall.n_images:,}"), ("objects", f"{recall.total.n_instances:,}")]
    if recall.n_images:
        facts.append(("windows per image", f"{recall.windows_per_image:,.0f}"))
    screen.facts(facts)
    if recall.total.n_instances:
        screen.say()
        header = ["class", "objects", *(f"recall at IoU {t:g}" for t in recall.thresholds), "mean best IoU"]
        several = recall.classes if len(recall.classes) > 1 else ()
        screen.table(header, [_row(found) for found in (*several, recall.total)])
    report_problems(problems, screen)


def _row(found: ClassRecall) -> list[str]:
    return [
        found.class_name,
        f"{found.n_instances:,}",
        *(percent(share) for share in found.recall),
        f"{found.mean_overlap:.3f}",
    ]


@contextmanager
def _progress_bar(quiet: bool) -> Iterator[Callable[[int, int], object] | None]:
    """A callback that counts images; None where nobody would see it."""
    console = Console(file=sys.stderr)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("images", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
