"""`eesvm train`: a detector from annotated images.

In: a dataset and options. Out: a model folder, which `eesvm detect` uses. An interrupted run is
resumed; started again after it has finished, it redoes what other options ask for, or nothing.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import Any

from eesvm._support.amounts import amount, counted, duration, percent
from eesvm._support.memory import MemoryPlan, bytes_of
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.calibration.result import CalibrationResult
from eesvm.cli.arguments import (
    Parsers,
    add_annotations_argument,
    add_unlabelled_argument,
    add_verb,
    judging_options,
    number,
    set_options,
)
from eesvm.cli.console import Screen
from eesvm.cli.stages import (
    n_exemplars_text,
    n_images_given,
    note_unlabelled,
    report_problems,
    report_profile,
    stage_bar,
)
from eesvm.datasets import open_dataset, select
from eesvm.datasets.roles import sentences
from eesvm.datasets.scenes import make_scenes
from eesvm.descriptors.cache import DescriptorCache
from eesvm.detector.class_calibration import JOINT, check_calibrators
from eesvm.detector.class_training import has_few_negatives
from eesvm.detector.detector import ExemplarDetector
from eesvm.detector.options import CALIBRATORS, COVERAGES, DEFAULT_PRESET, DESCRIPTORS, PRESETS, DetectorOptions
from eesvm.structures import Dataset
from eesvm.windows.settings import METHODS, MODES

_EMBEDDED = "scenes"
_ALL = "all"
_HELP = f"""\
DATA is what `eesvm data info` takes, or the word scenes for the embedded scenes. Every object becomes an exemplar; its
class is calibrated so that at least a share of the positive windows is accepted with the fewest false positives.

Options come from a preset, then from --config FILE, a YAML file such as
  preset: paper
  training:
    C: 1.0e-4
then from the command line. --set takes any option by its dotted name: --set detection.nms=0.5 --set training.prior=none

--calibrator takes names joined by commas, or all: {", ".join(CALIBRATORS)}. The first is what
`detect` uses unless told otherwise; any other can also be fitted later, from the scores in the model folder.

example:
  eesvm train scenes --split train -o model
  eesvm train VOCdevkit/VOC2007 --split trainval --classes cat,dog --preset paper -o model
  eesvm train VOCdevkit/VOC2007 --scheduler tcp://10.0.0.1:8786 --cache /shared/cache -o model
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(verbs, "train", run, "train a detector: one exemplar per object, calibrated together", _HELP)
    add = parser.add_argument
    add("data", metavar="DATA", help="folder or file of a dataset, or the word scenes")
    add("-o", "--output", required=True, metavar="MODEL", help="model folder; an unfinished run is resumed")
    add_annotations_argument(parser)
    add_unlabelled_argument(parser)
    add("--split", metavar="NAME", help="only the images of this split")
    add_role_arguments(parser)
    add("--classes", metavar="A,B,...", help="train only these classes (default: all)")
    add("--preset", choices=tuple(PRESETS), help=f"start from these ({DEFAULT_PRESET}, or what --config names)")
    add("--config", metavar="FILE", help="YAML file of options")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="any option by its dotted name; repeatable")
    add("--calibrator", metavar="A,B,...", help=f"which to fit, or {_ALL}; the first is used for detection")
    add("--coverage", choices=COVERAGES, help="whether an exemplar may cover windows of its own image")
    add("--min-recall", type=number(above=0, maximum=1), metavar="R", help="share of the positives to accept")
    add(
        "--time-limit",
        type=number(minimum=0),
        metavar="S",
        help="seconds for the search of a class, and no other limit",
    )
    add("--windows", choices=METHODS, help="where windows come from")
    add("--mode", choices=MODES, help="of selective search")
    add("--max-windows", type=number(minimum=1, integer=True), metavar="N", help="windows of an image")
    add("--descriptor", choices=DESCRIPTORS, help="how windows are described")
    add("--seed", type=number(minimum=0, integer=True), metavar="N", help="of all random choices")
    add("--jobs", type=number(minimum=1, integer=True), metavar="N", help="processes and threads (default: all cores)")
    add("--scheduler", metavar="ADDRESS", help="distribute the work: tcp://HOST:PORT of a Dask scheduler, or local")
    add("--memory", metavar="SIZE", help="memory limit of each process, such as 4GB; mapped files do not count")
    add("--cache", metavar="FOLDER", help="keep windows and descriptors here (default: the one of `eesvm cache`)")
    add("--no-cache", action="store_true", help="keep none; an interrupted run then computes them again")
    add("--strict", action="store_true", help="stop at the first annotation that is wrong")
    add("--profile", action="store_true", help="print how long each stage took")
    add("--quiet", action="store_true", help="print nothing but errors")


def run(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.quiet)
    started = time.perf_counter()
    options, calibrators = _options(arguments)
    with judging_options():
        memory = None if arguments.memory is None else MemoryPlan(bytes_of(arguments.memory)).n_bytes
    dataset = open_data(arguments.data, arguments.annotations, arguments.split, arguments.strict, arguments.unlabelled)
    detector = ExemplarDetector(options)
    classes = arguments.classes.split(",") if arguments.classes else None
    try:
        with stage_bar(arguments.quiet) as progress:
            detector.fit(
                dataset,
                classes,
                calibrators=calibrators,
                cache=None if arguments.no_cache else DescriptorCache(arguments.cache),
                folder=arguments.output,
                command=["eesvm", *sys.argv[1:]] if sys.argv else [],
                progress=progress,
                scheduler=arguments.scheduler,
                memory=memory,
                network=open_role(arguments, "network"),
                test=open_role(arguments, "test"),
            )
    except KeyboardInterrupt:
        sys.stderr.write("eesvm: interrupted: the same command resumes the run\n")
        return 130
    total = time.perf_counter() - started
    _report(detector, dataset, arguments, total, screen)
    if arguments.profile:
        report_profile(detector.seconds_, total, screen)
    return 0


def open_data(
    path: str, format_name: str | None, split: str | None, strict: bool, unlabelled: str | None = None
) -> Dataset:
    """A dataset by its path, or the embedded scenes; a file or folder of their name goes before them."""
    if path != _EMBEDDED or Path(path).exists():
        return open_dataset(path, format_name, split, strict=strict, unlabelled=unlabelled)
    scenes = make_scenes()
    return scenes if split is None else select(scenes, split=split)


def add_role_arguments(parser: argparse.ArgumentParser) -> None:
    """Images in other roles than those to train and calibrate on."""
    add = parser.add_argument
    add("--network-data", metavar="DATA", help="images that the network was tuned on (default: what its file says)")
    add("--network-split", metavar="NAME", help="only this split of them; alone: of DATA")
    add(
        "--test-data",
        metavar="DATA",
        help="images to evaluate on later: one of them among those used for training is an error",
    )
    add("--test-split", metavar="NAME", help="only this split of them; alone: of DATA")


def open_role(arguments: argparse.Namespace, role: str) -> Dataset | None:
    """The images of the role "network" or "test", where some are named."""
    data, split = (getattr(arguments, f"{role}_{what}") for what in ("data", "split"))
    if data is None and split is None:
        return None
    return open_data(data or arguments.data, None, split, arguments.strict, arguments.unlabelled)


def _options(arguments: argparse.Namespace) -> tuple[DetectorOptions, tuple[str, ...]]:
    """Options, and the calibrators to fit."""
    changes: dict[str, Any] = dict(set_options(arguments.set))
    flags = {
        "calibration.coverage": arguments.coverage,
        "calibration.min_recall": arguments.min_recall,
        "calibration.time_limit": arguments.time_limit,
        "windows.method": arguments.windows,
        "windows.mode": arguments.mode,
        "windows.max_windows": arguments.max_windows,
        "descriptor.name": arguments.descriptor,
        "random_state": arguments.seed,
        "n_jobs": arguments.jobs,
    }
    if arguments.time_limit is not None:  # then that time, not what the preset thinks enough
        changes.setdefault("calibration.node_limit", "none")
    changes |= {name: value for name, value in flags.items() if value is not None}
    wanted = [] if arguments.calibrator is None else arguments.calibrator.split(",")
    if wanted and wanted[0] != _ALL:
        changes["calibration.calibrator"] = wanted[0]
    base = DetectorOptions.make(arguments.preset, arguments.config)
    with judging_options():
        names = check_calibrators(_ALL if _ALL in wanted else wanted) if wanted else ()
        options = base.changed(changes)
    return options, names or (options.calibration.calibrator,)


def _report(
    detector: ExemplarDetector, dataset: Dataset, arguments: argparse.Namespace, total: float, screen: Screen
) -> None:
    screen.say(dataset.name, "bold")
    n_used, n_given = detector.inputs_["n_images"], n_images_given(dataset, dataset.problems)
    facts = [
        ("images", f"{n_used:,}" + (f" of {n_given:,}" if n_used < n_given else "")),
        ("classes", f"{len(detector.classes_):,}"),
        ("exemplars", n_exemplars_text(detector)),
        ("time", duration(total)),
    ]
    screen.facts(facts)
    screen.say()
    header = ("class", "exemplars", "redundant", "false positives", "at least", "gap", "recall", "search")
    screen.table(header, [_row(model) for model in detector.models_])
    for model in detector.models_:
        joint = model.calibrators.get(JOINT)
        if isinstance(joint, JointCalibrator) and joint.result_.status in ("time_limit", "node_limit"):
            screen.note(how_to_go_on(model.class_name, joint.result_))
    for sentence in sentences(detector.inputs_["roles"]) if "roles" in detector.inputs_ else ():
        screen.note(sentence)
    for name in detector.skipped_classes_:
        screen.note(f"the class {name} has no object to learn from and is left out")
    for model in detector.models_:
        if has_few_negatives(model.facts):
            screen.note(
                f"the class {model.class_name} has only "
                f"{counted(model.facts['n_negatives_in_all'], 'negative window')} to be told from, so its detections "
                "elsewhere mean little: add images without it"
            )
    note_unlabelled(dataset, screen)
    report_problems([*dataset.problems, *detector.problems_], screen)
    screen.say()
    if detector.changed_:
        screen.say(f"written to {arguments.output}: see MODEL.md in it, then `eesvm detect {arguments.output} IMAGES`")
    else:
        screen.say(f"{arguments.output} is up to date: there was nothing to do")


def how_to_go_on(class_name: str, result: CalibrationResult) -> str:
    """Which option would bring the search of a class further, where a limit has ended it."""
    longer = 60 if result.seconds < 30 else 60 * math.ceil(4 * result.seconds / 60)
    return (
        f"the search of {class_name} ended at its {result.status.replace('_', ' ')} with a gap of "
        f"{percent(result.gap)}: --time-limit {longer} gives it longer"
    )


def _row(model: Any) -> list[str]:
    joint = model.calibrators.get(JOINT)
    cells = [model.class_name, f"{model.n_exemplars:,}"]
    if not isinstance(joint, JointCalibrator):
        return [*cells, "", "", "", "", "", ""]
    result = joint.result_
    found = (f"{result.n_redundant:,}", amount(result.loss), amount(result.lower_bound))
    return [*cells, *found, percent(result.gap), percent(result.recall), result.status]
