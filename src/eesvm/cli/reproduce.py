"""`eesvm reproduce`: the tables, claims and figures of the paper on the embedded scenes or on any dataset.

In: nothing, or a dataset. Out: a folder with every table as CSV, LaTeX and Markdown, the claims with their verdicts,
the figures, and all of it on one page. An interrupted run is resumed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from eesvm._support.amounts import duration
from eesvm.cli.arguments import (
    UsageError,
    judging_options,
    set_options,
)
from eesvm.cli.console import Screen
from eesvm.cli.parsers.reproduce import AUTOMATIC, CLASSES, DATA_IMAGES, SCENE_IMAGES
from eesvm.cli.stages import report_problems, stage_bar
from eesvm.datasets import open_dataset
from eesvm.datasets.roles import PictureCodes
from eesvm.descriptors import DescriptorCache
from eesvm.descriptors.backbones import tuned_images
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_table import StageProgress
from eesvm.experiments.claims.measurements import Evidence
from eesvm.experiments.claims.sheet import judge_claims, summary
from eesvm.experiments.reproduction.image_roles import check_roles
from eesvm.experiments.reproduction.page import Run, write_outputs
from eesvm.experiments.reproduction.recipes import make_recipes
from eesvm.experiments.reproduction.results import SMALL, Results
from eesvm.experiments.reproduction.run import N_RESAMPLES, Reproduction
from eesvm.experiments.reproduction.splits import SCENE_CLASSES, Splits, own_split, random_splits, scene_splits
from eesvm.experiments.tables.files import COUNT, PERCENT, Cell, text
from eesvm.experiments.tables.windows import Method
from eesvm.finetuning import FinetuneOptions, finetune
from eesvm.structures import Dataset, Problem

_STUDY_SECONDS = 3.0  # at most, for each search of the pruning study


def run(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.quiet)
    started = time.perf_counter()
    changes, tuning = _changes(arguments), _network_options(arguments)
    with judging_options():
        recipes = make_recipes(arguments.time_limit, changes)
    splits, problems = _splits(arguments)
    try:
        with stage_bar(arguments.quiet) as progress, _cache(arguments) as cache:
            plain = recipes[SMALL][0].options
            network = _network_images(arguments, plain, progress)
            if network is not None and "descriptor.backbone" not in changes and plain.descriptor.name == "cnn":
                check_roles(splits, network)  # before hours are spent on a network that could not be used
                recipes = make_recipes(arguments.time_limit, changes | _tuned(arguments, tuning, cache, progress))
            reproduction = Reproduction(
                splits,
                recipes,
                arguments.output,
                cache=cache,
                n_resamples=N_RESAMPLES if arguments.own_split else 0,
                study_seconds=min(_STUDY_SECONDS, arguments.time_limit),
                with_figures=not arguments.no_figures,
                progress=progress,
                network=network,
            )
            measured = reproduction.measure(["eesvm", *sys.argv[1:]] if sys.argv else [])
    except KeyboardInterrupt:
        sys.stderr.write("eesvm: interrupted: the same command resumes the run\n")
        return 130
    options = recipes[SMALL][0].options
    n_mined = min(options.training.max_images or len(splits.splits[0].train), len(splits.splits[0].train))
    evidence = Evidence(measured.results, measured.study, options.descriptor.name == "cnn", n_mined)
    finished = Run(measured, splits, recipes, judge_claims(evidence))
    write_outputs(Path(arguments.output), finished)
    _report(finished, [*problems, *measured.problems], arguments.output, time.perf_counter() - started, screen)
    return 0


def _changes(arguments: argparse.Namespace) -> dict[str, object]:
    changes: dict[str, object] = {} if arguments.jobs is None else {"n_jobs": arguments.jobs}
    return changes | set_options(arguments.set)


def _network_images(
    arguments: argparse.Namespace, options: DetectorOptions, progress: StageProgress | None
) -> PictureCodes | None:
    """The images that the network was tuned on: as named, or as its file tells."""
    data = _network_data(arguments)
    if data is not None:
        count = None if progress is None else partial(progress, "images of the network")
        return PictureCodes.of(data, data.name, count)
    return tuned_images(options.descriptor.backbone) if options.descriptor.name == "cnn" else None


def _network_data(arguments: argparse.Namespace) -> Dataset | None:
    if arguments.network_data is None and arguments.network_split is None:
        return None
    data = arguments.network_data or arguments.data
    if data is None:
        raise UsageError("--network-split without --network-data is a split of --data, which is missing")
    return open_dataset(
        data, None, arguments.network_split, strict=arguments.strict, unlabelled=arguments.unlabelled
    ).annotated()


def _tuned(
    arguments: argparse.Namespace, options: FinetuneOptions, cache: DescriptorCache, progress: StageProgress | None
) -> dict[str, object]:
    """Options with a network that is tuned on --network-data, or was by an earlier run."""
    file = Path(f"{Path(arguments.output)}-network.onnx")
    data = _network_data(arguments)
    assert data is not None
    finetune(data, file, options, cache=cache, n_threads=arguments.jobs, progress=progress)
    return {"descriptor.backbone": str(file), "descriptor.mode": "crop"}


def _network_options(arguments: argparse.Namespace) -> FinetuneOptions:
    """How the network is tuned; a value that reads as a number, a truth value or null in JSON is that."""
    changes: dict[str, object] = {"min_objects": 1}  # of --network-data no classes can be named: rare ones do no harm
    for name, value in set_options(arguments.network_set, "--network-set").items():
        try:
            changes[name] = json.loads(value)
        except ValueError:
            changes[name] = value
    with judging_options():
        return FinetuneOptions.make(changes=changes)


def _splits(arguments: argparse.Namespace) -> tuple[Splits, tuple[Problem, ...]]:
    """The splits, and what was wrong with the files of the dataset."""
    classes = _classes(arguments.classes)
    if arguments.data is None:
        names = SCENE_CLASSES[:classes] if isinstance(classes, int) else classes
        n_splits = 1 if arguments.own_split else arguments.splits
        with judging_options():
            return scene_splits(n_splits, arguments.images or SCENE_IMAGES, names), ()
    dataset = open_dataset(
        arguments.data, arguments.annotations, strict=arguments.strict, unlabelled=arguments.unlabelled
    )
    dataset = dataset.annotated()
    n_images = arguments.images or DATA_IMAGES
    if arguments.own_split:
        own = None if arguments.own_split == AUTOMATIC else arguments.own_split
        return own_split(dataset, n_images, classes, own), dataset.problems
    return random_splits(dataset, arguments.splits, n_images, classes), dataset.problems


def _classes(given: str | None) -> int | tuple[str, ...]:
    """A number of classes, or their names."""
    if given is None:
        return CLASSES
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    if not names or names == ("0",):
        raise UsageError(f"--classes must be a number >= 1 or names joined by commas, got {given}")
    return int(names[0]) if len(names) == 1 and names[0].isdecimal() else names


@contextmanager
def _cache(arguments: argparse.Namespace) -> Iterator[DescriptorCache]:
    """Where windows are kept; without a cache, for as long as the run lasts, as splits share images."""
    if not arguments.no_cache:
        yield DescriptorCache(arguments.cache)
        return
    with tempfile.TemporaryDirectory(prefix="eesvm-reproduce-") as folder:
        yield DescriptorCache(folder)


def _report(run: Run, problems: list[Problem], output: str, seconds: float, screen: Screen) -> None:
    measured = run.measured
    screen.say(run.splits.name, "bold")
    roles = run.splits.roles()
    screen.facts([("splits", run.splits.how), *roles, ("time", duration(seconds))])
    screen.say()
    screen.table(("tables 1 to 3", "false pos.", "window AP", "det. AP"), _rows(measured.results))
    for sentence in (*run.splits.skipped, *measured.results.skipped):
        screen.note(sentence)
    report_problems(problems, screen)
    screen.say()
    screen.say(summary(run.judged))
    if not measured.made:
        screen.say(f"{output} had everything: nothing was measured, the tables were laid out again")
    screen.say(f"Open {Path(output, 'report.html')} in a browser, or read {Path(output, 'results.md')}.")


def _rows(results: Results) -> list[list[str]]:
    """The means of tables 1 to 3 side by side, narrow enough for a terminal."""
    rows = []
    for method, _ in results.methods(SMALL):
        measures = (("accepted" if method == Method.JOINT else "false_positives", 1.0, COUNT), *_PRECISIONS)
        means = ((results.mean(SMALL, method, measure), factor, kind) for measure, factor, kind in measures)
        cells = (Cell() if mean is None else Cell(mean.estimate().scaled(factor), kind) for mean, factor, kind in means)
        rows.append([method.removeprefix("EE-SVM "), *(text(cell) for cell in cells)])
    return rows


_PRECISIONS = (("window_ap", 100.0, PERCENT), ("detection_ap", 100.0, PERCENT))
