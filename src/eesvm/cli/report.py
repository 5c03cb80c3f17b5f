"""`eesvm report`: one HTML file that shows what a model finds, and why.

In: a model folder and a dataset, and if there are some, detections that the model made in it. Out: a page with figures,
curves, detections beside their exemplars, errors, missed objects and every exemplar, which opens without a network.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from eesvm._support.files import atomic_write, check_output_file
from eesvm._support.validation import InputError
from eesvm.cli import detect
from eesvm.cli.arguments import UsageError
from eesvm.cli.console import Screen
from eesvm.cli.inputs import open_data
from eesvm.cli.stages import note_unlabelled, report_problems, stage_bar
from eesvm.descriptors.cache import DescriptorCache
from eesvm.detector.detector import ExemplarDetector
from eesvm.detector.training_table import StageProgress
from eesvm.metrics.detection_files import read_detections
from eesvm.report.data import ReportData
from eesvm.report.gather import gather
from eesvm.report.page import render
from eesvm.structures import Dataset, Detections, Problem


def run(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.quiet)
    _check_output(arguments)
    detect.check_calibrator(arguments.calibrator)
    detector = ExemplarDetector.load(arguments.model)
    if arguments.jobs is not None:
        detector.options = detector.checked_options().changed({"n_jobs": arguments.jobs})
    dataset = open_data(arguments.data, arguments.annotations, arguments.split, False, arguments.unlabelled)
    problems: list[Problem] = list(dataset.problems)
    try:
        with stage_bar(arguments.quiet) as progress:
            data = gather(
                detector,
                dataset,
                _detections(detector, dataset, arguments, progress, problems),
                title=arguments.title,
                calibrator=arguments.calibrator,
                max_detections=arguments.max_detections,
                frontier_seconds=arguments.frontier,
                progress=progress,
                problems=problems,
            )
    except KeyboardInterrupt:
        sys.stderr.write("eesvm: interrupted: the same command finds the windows that are done in the cache\n")
        return 130
    page = render(data)
    with atomic_write(arguments.output, text=True) as handle:
        handle.write(page)
    _say(data, page, arguments, screen)
    note_unlabelled(dataset, screen)
    report_problems(problems, screen)
    return 0


def _check_output(arguments: argparse.Namespace) -> None:
    """Refuse an output that could not be written before any work is done."""
    if Path(arguments.output).suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{arguments.output} must end in .html: the report is a page for a browser")
    check_output_file(arguments.output, arguments.overwrite)


def _detections(
    detector: ExemplarDetector,
    dataset: Dataset,
    arguments: argparse.Namespace,
    progress: StageProgress | None,
    problems: list[Problem],
) -> list[Detections]:
    """Those of the file, or what the model finds now."""
    if arguments.detections is not None:
        source = argparse.Namespace(images=[arguments.data], annotations=arguments.annotations, split=arguments.split)
        return read_detections(arguments.detections, detect.coco_ids([dataset], source))
    if not len(dataset):
        raise InputError(f"{arguments.data} has no images to look at")
    return detector.predict(
        dataset,
        calibrator=arguments.calibrator,
        cache=None if arguments.no_cache else DescriptorCache(arguments.cache),
        progress=progress,
        problems=problems,
    )


def _say(data: ReportData, page: str, arguments: argparse.Namespace, screen: Screen) -> None:
    screen.say(data.headline)
    screen.facts([(fact.name, fact.value) for fact in data.facts])
    for note in data.notes:
        screen.note(note)
    megabytes = len(page.encode()) / 1e6
    screen.say(f"\nwritten to {arguments.output} ({megabytes:.1f} MB): open it in a browser")
