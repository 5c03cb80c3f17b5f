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
from eesvm.cli.arguments import Parsers, add_annotations_argument, add_unlabelled_argument, add_verb, number
from eesvm.cli.console import Screen
from eesvm.cli.stages import n_exemplars_text, report_problems, stage_bar
from eesvm.cli.train import open_data
from eesvm.datasets.reviews import Review, find_review, read_review
from eesvm.descriptors.cache import DescriptorCache
from eesvm.detector.detector import ExemplarDetector
from eesvm.detector.files import CARD_NAME
from eesvm.structures import Problem

DEFAULT_SECONDS = 5.0

_HELP = """\
DATA is what `eesvm data info` takes, or a folder that `eesvm serve MODEL --review FOLDER` wrote. Each object becomes an
exemplar, trained against the negatives that the model keeps and those of the new images; objects that are exemplars
already are left out. A class that the model lacks becomes one of its classes. What a review has rejected becomes a hard
negative. Exemplars there are keep their weights; thresholds are searched again, starting from those there are.
Everything in the images of DATA that is not annotated is taken for background.

example:
  eesvm add model more_photos
  eesvm add model reviews -o better
  eesvm add model VOCdevkit/VOC2007 --split val --classes cat --time-limit 30
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(verbs, "add", run, "add exemplars of new objects, or of a new class, to a model", _HELP)
    add = parser.add_argument
    add("model", metavar="MODEL", help="folder that `eesvm train` wrote")
    add("data", metavar="DATA", help="folder or file of a dataset, or of a review")
    add("-o", "--output", metavar="OUT", help="write the new model here (default: in the place of MODEL)")
    add_annotations_argument(parser)
    add_unlabelled_argument(parser)
    add("--split", metavar="NAME", help="only the images of this split")
    add("--classes", metavar="A,B,...", help="add only objects of these classes (default: all)")
    add_change_arguments(parser)
    add("--cache", metavar="FOLDER", help="keep windows and descriptors here (default: the one of `eesvm cache`)")
    add("--no-cache", action="store_true", help="keep none")
    add("--quiet", action="store_true", help="print nothing but errors")


def add_change_arguments(parser: argparse.ArgumentParser) -> None:
    """What `add` and `drop` share."""
    parser.add_argument(
        "--time-limit",
        type=number(minimum=0),
        default=DEFAULT_SECONDS,
        metavar="S",
        help=f"seconds for the search of a class (default: {DEFAULT_SECONDS:g})",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if it exists and eesvm wrote it")


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
