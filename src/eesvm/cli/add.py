"""`eesvm add`: new exemplars for a model, in seconds and without its training images.

In: a model folder and annotated images, or what was saved on the page of `eesvm serve --review`. Out: the model with
these exemplars, in the place of the one before or in another folder. An interruption leaves the one before whole.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from eesvm._support.amounts import counted, duration
from eesvm._support.digests import file_digest
from eesvm._support.files import check_output_folder
from eesvm._support.validation import InputError
from eesvm.cli.console import Screen
from eesvm.cli.inputs import open_data
from eesvm.cli.stages import n_exemplars_text, report_problems, stage_bar
from eesvm.datasets.reviews import Review, find_review, read_review
from eesvm.descriptors.cache import DescriptorCache
from eesvm.detector.detector import ExemplarDetector
from eesvm.detector.files import CARD_NAME
from eesvm.structures import Problem


def run(arguments: argparse.Namespace) -> int:
    screen, started = Screen(arguments.quiet), time.perf_counter()
    if arguments.output is not None:
        check_output_folder(arguments.output, arguments.overwrite)
    detector = ExemplarDetector.load(arguments.model)
    review = _review(arguments, detector)
    dataset = open_data(arguments.data, arguments.annotations, arguments.split, False, arguments.unlabelled)
    classes = arguments.classes.split(",") if arguments.classes else None
    try:
        with stage_bar(arguments.quiet) as progress:
            detector.partial_fit(
                dataset,
                classes,
                rejected=None if review is None else review.rejected,
                time_limit=arguments.time_limit,
                cache=None if arguments.no_cache else DescriptorCache(arguments.cache),
                progress=progress,
            )
        write_changed(detector, arguments)
    except KeyboardInterrupt:
        sys.stderr.write(f"eesvm: interrupted: {arguments.model} is as it was\n")
        return 130
    report_change(detector, arguments, time.perf_counter() - started, [*dataset.problems, *detector.problems_], screen)
    return 0


def write_changed(detector: ExemplarDetector, arguments: argparse.Namespace) -> None:
    """The changed model, elsewhere or in the place of the one before; its card says which one that was."""
    before = file_digest(Path(arguments.model) / CARD_NAME)
    detector.inputs_["changes"][-1]["model_before"] = before
    if arguments.output is None:
        detector.replace(arguments.model)
    else:
        detector.save(arguments.output, arguments.overwrite)


def report_change(
    detector: ExemplarDetector, arguments: argparse.Namespace, total: float, problems: list[Problem], screen: Screen
) -> None:
    """What `add` and `drop` print."""
    growth = detector.changes_
    for text in growth.texts:
        screen.say(text)
    facts = [
        ("classes", f"{len(detector.classes_):,}"),
        ("exemplars", n_exemplars_text(detector)),
        ("time", duration(total)),
    ]
    screen.facts(facts)
    if growth.n_known:
        screen.note(counted(growth.n_known, "object is an exemplar", "objects are exemplars") + " already and left out")
    report_problems(problems, screen)
    screen.say(f"\nwritten to {arguments.output or arguments.model}: see MODEL.md in it")


def _review(arguments: argparse.Namespace, detector: ExemplarDetector) -> Review | None:
    """What was reviewed, where DATA is a review; it must be of this model, or of one that it has grown from."""
    file = find_review(arguments.data)
    if file is None:
        return None
    review = read_review(file)
    changes = detector.inputs_.get("changes", [])
    known = {file_digest(Path(arguments.model) / CARD_NAME), *(one.get("model_before") for one in changes)}
    if review.model not in known:
        raise InputError(f"{file} is a review of another model than {arguments.model}")
    return review
