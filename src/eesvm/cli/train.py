"""`eesvm train`: a detector from annotated images.

In: a dataset and options. Out: a model folder, which `eesvm detect` uses. An interrupted run is
resumed; started again after it has finished, it redoes what changed options affect, or nothing. A model of other images
is replaced only with --overwrite.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from typing import Any

from eesvm._support.amounts import amount, counted, duration, percent
from eesvm._support.memory import MemoryPlan, bytes_of
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.calibration.result import CalibrationResult
from eesvm.cli.arguments import (
    judging_options,
    set_options,
)
from eesvm.cli.console import Screen
from eesvm.cli.inputs import open_data
from eesvm.cli.parsers.train import ALL
from eesvm.cli.stages import (
    n_exemplars_text,
    n_images_given,
    note_unlabelled,
    report_problems,
    report_profile,
    stage_bar,
)
from eesvm.datasets.roles import mean_separability, sentences
from eesvm.descriptors.cache import DescriptorCache
from eesvm.detector.class_calibration import JOINT, check_calibrators
from eesvm.detector.class_training import has_few_negatives
from eesvm.detector.detector import ExemplarDetector
from eesvm.detector.options import DetectorOptions
from eesvm.structures import Dataset

_SHOWN = 5  # changes that are named where a model is replaced


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
                overwrite=arguments.overwrite,
            )
    except KeyboardInterrupt:
        sys.stderr.write("eesvm: interrupted: the same command resumes the run\n")
        return 130
    total = time.perf_counter() - started
    _report(detector, dataset, arguments, total, screen)
    if arguments.profile:
        report_profile(detector.seconds_, total, screen)
    return 0


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
    if wanted and wanted[0] != ALL:
        changes["calibration.calibrator"] = wanted[0]
    base = DetectorOptions.make(arguments.preset, arguments.config)
    with judging_options():
        names = check_calibrators(ALL if ALL in wanted else wanted) if wanted else ()
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
    if "roles" in detector.inputs_:
        shares = mean_separability(model.facts for model in detector.models_)
        for sentence in sentences(detector.inputs_["roles"], shares):
            screen.note(sentence)
    for name in detector.skipped_classes_:
        screen.note(f"the class {name} has no object to learn from and is left out")
    for model in detector.models_:
        if len({one.image_id for one in model.annotations}) == 1:
            screen.note(
                f"the class {model.class_name} has objects in one image only: none can be left out to judge it by, so "
                "what it finds in other images may mean little"
            )
        if has_few_negatives(model.facts):
            screen.note(
                f"the class {model.class_name} has only "
                f"{counted(model.facts['n_negatives_in_all'], 'negative window')} to be told from, so its detections "
                "elsewhere mean little: add images without it"
            )
    note_unlabelled(dataset, screen)
    report_problems([*dataset.problems, *detector.problems_], screen)
    screen.say()
    if detector.changed_ and detector.replaced_:
        screen.note(f"the model that {arguments.output} held is replaced: {_listed(detector.replaced_)}")
    if detector.changed_:
        screen.say(f"written to {arguments.output}: see MODEL.md in it, then `eesvm detect {arguments.output} IMAGES`")
    else:
        screen.say(f"{arguments.output} is up to date: there was nothing to do")


def _listed(changes: Sequence[str]) -> str:
    """The first few of them; another preset changes many options."""
    more = len(changes) - _SHOWN
    return "; ".join([*changes[:_SHOWN], f"and {more} more, see model.json"] if more > 0 else changes)


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
