"""`eesvm data`: what a dataset holds, and where to get one.

In: a path, or the name of an official dataset. Out: counts and every problem found, or the unpacked dataset.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from eesvm._support.amounts import counted
from eesvm._support.validation import check_choice
from eesvm.cli.arguments import judging_options
from eesvm.cli.console import Screen
from eesvm.cli.stages import list_problems, note_unlabelled
from eesvm.datasets import Summary, open_dataset, summary
from eesvm.datasets.fetch import COLLECTIONS, FetchProgress, fetch
from eesvm.structures import Dataset

_CHECKED = {
    "none": "annotations alone; images were not opened (--check header opens them, --check full decodes them)",
    "header": "annotations, and that images open; pixels and masks were not decoded (--check full does that)",
    "full": "annotations, and every image and mask decoded",
}


def run_info(arguments: argparse.Namespace) -> int:
    screen = Screen()
    options: dict[str, Any] = {}
    if arguments.first_pixel is not None:
        options["first_pixel"] = arguments.first_pixel
    if arguments.images is not None:
        options["images"] = arguments.images
    dataset = open_dataset(
        arguments.path,
        arguments.annotations,
        arguments.split,
        classes=arguments.classes.split(",") if arguments.classes else None,
        check=arguments.check,
        unlabelled=arguments.unlabelled,
        **options,
    )
    if arguments.json:
        _print_json(dataset, arguments.check)
    else:
        _print(dataset, summary(dataset), arguments.check, screen)
    return 1 if arguments.strict and dataset.problems else 0


def run_fetch(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.quiet)
    with judging_options():
        for part in arguments.part or ():
            check_choice(part, "part", tuple(archive.part for archive in COLLECTIONS[arguments.name].archives))
    with _progress_bar(arguments.quiet) as progress:
        folder = fetch(
            arguments.name,
            arguments.output,
            parts=arguments.part,
            base_url=arguments.base_url,
            keep_archives=arguments.keep_archives,
            progress=progress,
        )
    screen.say(f"{arguments.name} is in {folder}: eesvm data info {folder}")
    return 0


def _print_json(dataset: Dataset, check: str) -> None:
    problems = [{"path": p.path, "line": p.line, "kind": p.kind, "reason": p.reason} for p in dataset.problems]
    counts = summary(dataset).as_dict()
    document = {**counts, "problem_kinds": counts["problems"], "problems": problems, "check": check}
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")


def _print(dataset: Dataset, counts: Summary, check: str, screen: Screen) -> None:
    screen.say(counts.name, "bold")
    screen.facts([(name, value) for name, value in _facts(counts) if value])
    if counts.classes:
        screen.say()
        _print_classes(counts, screen)
    note_unlabelled(dataset, screen)
    screen.say()
    screen.say(f"checked: {_CHECKED[check]}")
    if not dataset.problems:
        screen.say("no problems found in what was checked" if check != "full" else "no problems found")
        return
    kinds = ", ".join(f"{kind}: {count:,}" for kind, count in counts.problems.items())
    screen.say(f"{counted(len(dataset.problems), 'problem')} ({kinds})")
    list_problems(dataset.problems, screen, "--json prints all")


def _facts(counts: Summary) -> list[tuple[str, str]]:
    marks = {"difficult": counts.n_difficult, "truncated": counts.n_truncated, "crowd": counts.n_crowd}
    marked = ", ".join(f"{count:,} {name}" for name, count in marks.items() if count)
    return [
        ("images", _images(counts)),
        ("objects", f"{counts.n_instances:,}" + (f", {marked}" if marked else "")),
        ("classes", f"{len(counts.classes):,}"),
        ("splits", ", ".join(f"{name}: {n_images:,}" for name, (n_images, _) in counts.splits.items())),
        ("lists of one class", f"{counts.n_class_lists:,}" if counts.n_class_lists else ""),
        ("masks", f"{counts.n_masks:,}" if counts.n_masks else ""),
        ("parts", f"{counts.n_parts:,}" if counts.n_parts else ""),
        ("metadata", ", ".join(f"{name}: {count:,}" for name, count in counts.metadata.items())),
        ("image sizes", _range(counts.image_sizes)),
        ("box sizes", _range(counts.box_sizes)),
    ]


def _images(counts: Summary) -> str:
    """How many there are, and apart from each other those that are annotated as empty and those that are not."""
    text = f"{counts.n_images:,}"
    if counts.n_empty_images:
        text += f", {counts.n_empty_images:,} without objects"
    if counts.n_unlabelled_images:
        text += f", {counts.n_unlabelled_images:,} without annotation"
    return text


def _range(sizes: dict[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{name} {width:.0f} x {height:.0f}" for name, (width, height) in sizes.items())


def _print_classes(counts: Summary, screen: Screen) -> None:
    splits = list(counts.splits)[:6]
    header = ["class", "objects", "images", *splits]
    rows = [
        [
            name,
            f"{n_objects:,}",
            f"{counts.class_images[name]:,}",
            *(f"{counts.split_classes[split].get(name, 0):,}" for split in splits),
        ]
        for name, n_objects in counts.classes.items()
    ]
    screen.table(header, rows)


@contextmanager
def _progress_bar(quiet: bool) -> Iterator[Any]:
    """A callback for `fetch` that moves a bar per file and stage; None where nobody would see it."""
    console = Console(file=sys.stderr)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        tasks: dict[tuple[str, str], Any] = {}

        def update(state: FetchProgress) -> None:
            key = (state.file_name, state.stage)
            if key not in tasks:
                tasks[key] = bar.add_task(f"{state.stage} {state.file_name}", total=state.total)
            bar.update(tasks[key], completed=state.done)

        yield update
