"""`eesvm finetune`: a network that learns the windows of a dataset, as an ONNX file.

In: annotated training images and options. Out: the ONNX file, its card and its curves. Killed and started again, it
is resumed from the last checkpoint; started again after it has finished, it does nothing.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eesvm._support.amounts import duration
from eesvm._support.validation import InputError
from eesvm.cli.arguments import (
    UsageError,
    judging_options,
)
from eesvm.cli.console import Screen
from eesvm.cli.inputs import open_data
from eesvm.cli.parsers.finetune import EVERYTHING
from eesvm.cli.stages import StageLines, note_unlabelled, report_problems, stage_bar
from eesvm.datasets import select
from eesvm.descriptors.cache import DescriptorCache
from eesvm.finetuning import FinetuneOptions, FinetuneResult, finetune
from eesvm.finetuning.options import NETWORKS
from eesvm.finetuning.run import check_output, load_torch
from eesvm.structures import Dataset
from eesvm.windows.files import read_windows

if TYPE_CHECKING:
    from eesvm.finetuning.training import TrainingState


def run(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.quiet)
    started = time.perf_counter()
    if Path(arguments.output).suffix != ".onnx":
        raise UsageError(f"the output must end in .onnx, got {arguments.output}")
    check_output(arguments.output, arguments.overwrite)
    load_torch()  # before images are read, which may take long
    options, module = _options(arguments)
    dataset, held_out = _open(arguments)
    try:
        with _showing(arguments.quiet, options) as (progress, on_epoch):
            result = finetune(
                dataset,
                arguments.output,
                options,
                classes=arguments.classes.split(",") if arguments.classes else None,
                held_out=held_out,
                windows=None if arguments.windows_from is None else read_windows(arguments.windows_from),
                module=module,
                cache=None if arguments.no_cache else DescriptorCache(arguments.cache),
                device=arguments.device,
                n_threads=arguments.jobs,
                overwrite=arguments.overwrite,
                progress=progress,
                on_epoch=on_epoch,
            )
    except KeyboardInterrupt:
        sys.stderr.write("eesvm: interrupted: the same command resumes from the last checkpoint\n")
        return 130
    _report(result, dataset, time.perf_counter() - started, screen)
    return 0


def _options(arguments: argparse.Namespace) -> tuple[FinetuneOptions, Any]:
    """Options, and the module to train where one is named."""
    flags = {
        "stages": arguments.stages,
        "hidden": arguments.hidden,
        "input_size": arguments.input_size,
        "epochs": arguments.epochs,
        "batches_per_epoch": arguments.batches,
        "patience": arguments.patience,
        "positives": arguments.positives,
        "backgrounds": arguments.backgrounds,
        "learning_rate": arguments.learning_rate,
        "batch_norm": arguments.batch_norm,
        "flip": False if arguments.no_flip else None,
        "jitter": arguments.jitter,
        "colour": arguments.colour,
        "held_out": arguments.held_out,
        "min_objects": arguments.min_objects,
        "network": arguments.network,
        "windows.method": arguments.windows,
        "windows.mode": arguments.mode,
        "windows.max_windows": arguments.max_windows,
        "random_state": arguments.seed,
    }
    changes = {name: value for name, value in flags.items() if value is not None}
    module = None
    if arguments.network is not None and ":" in arguments.network:
        module = _module(
            arguments.network, FinetuneOptions().random_state if arguments.seed is None else arguments.seed
        )
    elif arguments.network is not None and arguments.network not in NETWORKS:
        raise UsageError(f"--network must be {', '.join(NETWORKS)} or MODULE:FUNCTION, got {arguments.network!r}")
    with judging_options():
        return FinetuneOptions.make(arguments.preset, changes), module


def _module(place: str, seed: int) -> Any:
    """What the function gives that `place` names, as package.module:function; its random numbers follow the seed."""
    name, _, function = place.partition(":")
    sys.path.insert(0, os.getcwd())  # a file beside the data is what most people have
    load_torch().manual_seed(seed)  # else weights that are drawn would be others when an interrupted run is resumed
    try:
        return getattr(importlib.import_module(name), function)()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InputError(f"--network {place}: {error}") from error
    finally:
        sys.path.remove(os.getcwd())


def _open(arguments: argparse.Namespace) -> tuple[Dataset, Dataset | None]:
    """The images to train on, and those to stop by where a split is named for that."""
    whole = open_data(arguments.data, arguments.annotations, None, arguments.strict, arguments.unlabelled)
    if arguments.split is None and len(whole.splits) > 1:
        raise InputError(
            f"{arguments.data} has the splits {', '.join(sorted(whole.splits))}: say by --split which of them to train "
            f"on, or --split {EVERYTHING}"
        )
    is_part = arguments.split not in (None, EVERYTHING)
    train = select(whole, split=arguments.split) if is_part else whole
    if arguments.held_out_split is None:
        return train, None
    return train, select(whole, split=arguments.held_out_split)


@contextmanager
def _showing(quiet: bool, options: FinetuneOptions) -> Iterator[tuple[Any, Any]]:
    """What to tell while it works: a bar with the time left in a terminal, elsewhere lines of stages and epochs."""
    with stage_bar(quiet) as progress:
        if isinstance(progress, StageLines):
            yield progress, lambda state, n_all: sys.stderr.write(_epoch_line(state, n_all, options) + "\n")
        else:
            yield progress, None


def _epoch_line(state: TrainingState, n_all: int, options: FinetuneOptions) -> str:
    epoch = state.history[-1]
    learned = "" if epoch.loss is None else f"loss {epoch.loss:.3f}, "
    line = (
        f"epoch {epoch.number} of at most {options.epochs}: {learned}held out: loss {epoch.held_out_loss:.3f}, "
        f"accuracy {100 * epoch.held_out_accuracy:.1f} %, AP {100 * epoch.held_out_ap:.1f} %; "
        f"{duration(state.seconds)}"
    )
    if state.stopped or not state.n_batches:
        return line
    left = state.seconds / state.n_batches * (n_all - state.n_batches)
    return f"{line}, at most {duration(left)} left"


def _report(result: FinetuneResult, dataset: Dataset, total: float, screen: Screen) -> None:
    card = result.card
    inputs, best = card["inputs"], card["history"][card["best_epoch"]]
    screen.say(dataset.name, "bold")
    screen.facts(
        [
            ("images", f"{inputs['n_train']:,} to train on, {inputs['n_held_out']:,} held out"),
            ("classes", f"{len(inputs['objects']):,}"),
            ("objects", f"{sum(inputs['objects'].values()):,}"),
            ("epochs", f"{len(card['history']) - 1}, and the weights of epoch {card['best_epoch']} are kept"),
            ("ended because", card["stopped"]),
            ("held-out loss", f"{best['held_out_loss']:.3f}, at the start {card['history'][0]['held_out_loss']:.3f}"),
            ("held-out accuracy", f"{100 * best['held_out_accuracy']:.1f} %"),
            ("held-out AP", f"{100 * best['held_out_ap']:.1f} %"),
            ("computed by", card["runtime"]["device"]),
            ("time", duration(total)),
        ]
    )
    if "became" in card["stopped"]:
        screen.note(f"{card['stopped']}: the best weights before that are kept; a lower --learning-rate may do better")
    note_unlabelled(dataset, screen)
    report_problems([*dataset.problems, *result.problems], screen)
    screen.say()
    if not result.is_new:
        screen.say(f"{result.output} is up to date: there was nothing to do")
        return
    screen.say(f"written to {result.output}: see {Path(result.output).with_suffix('.md')}, then")
    screen.say(f"  eesvm train DATA -o model --set descriptor.backbone={result.output} --set descriptor.mode=crop")
