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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eesvm._support.amounts import duration
from eesvm._support.validation import InputError
from eesvm.cli.arguments import (
    Parsers,
    UsageError,
    add_annotations_argument,
    add_unlabelled_argument,
    add_verb,
    judging_options,
    number,
)
from eesvm.cli.console import Screen
from eesvm.cli.stages import StageLines, note_unlabelled, report_problems, stage_bar
from eesvm.cli.train import open_data
from eesvm.datasets import select
from eesvm.descriptors.backbones import DEVICES
from eesvm.descriptors.cache import DescriptorCache
from eesvm.finetuning import PAPER_UNITS, FinetuneOptions, FinetuneResult, finetune
from eesvm.finetuning.options import BATCH_NORMS, DEFAULT_PRESET, NETWORKS, PRESETS
from eesvm.finetuning.run import check_output, load_torch
from eesvm.structures import Dataset
from eesvm.windows.files import read_windows
from eesvm.windows.settings import METHODS, MODES

if TYPE_CHECKING:
    from eesvm.finetuning.training import TrainingState

_EVERYTHING = "all"
_HELP = f"""\
DATA is what `eesvm data info` takes, or the word scenes. Windows that overlap an object by half learn its class, all
others are background; images that are held out decide when to stop. Name the split to train on: a network that has seen
the images it is tested on says nothing about others.

It needs torch: pip install 'eesvm[torch]'. A GPU is used where there is one; without one, --preset small is made for
two cores. NETWORK is {", ".join(NETWORKS)}, or MODULE:FUNCTION: a function without arguments that gives a torch
module, from pictures (n, 3, h, w), normalised as in torchvision, to (n, d) or to a map (n, d, h, w).

example:
  eesvm finetune cards --split train -o cards.onnx
  eesvm train cards --split train -o model --set descriptor.backbone=cards.onnx --set descriptor.mode=crop

  eesvm finetune VOCdevkit/VOC2007 --split train --held-out-split val --hidden -o paper.onnx
  eesvm train VOCdevkit/VOC2007 --split train -o model --set descriptor.backbone=paper.onnx --set descriptor.mode=crop
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(verbs, "finetune", run, "fine-tune the network on the windows of a dataset", _HELP)
    add = parser.add_argument
    add("data", metavar="DATA", help="folder or file of a dataset, or the word scenes")
    add("-o", "--output", required=True, metavar="FILE", help=".onnx file; a card and curves go beside it")
    add_annotations_argument(parser)
    add_unlabelled_argument(parser)
    add("--split", metavar="NAME", help=f"only the images of this split; {_EVERYTHING}: all images")
    add("--held-out-split", metavar="NAME", help="stop by the images of this split (default: a share of the images)")
    add("--classes", metavar="A,B,...", help="tell only these classes apart, others are background (default: all)")
    add("--preset", choices=tuple(PRESETS), default=DEFAULT_PRESET, help=f"start from these ({DEFAULT_PRESET})")
    add("--network", metavar="NETWORK", help="what to start from (lite0)")
    add("--stages", type=_whole(0), metavar="N", help="train only the last N stages of the network (default: all)")
    add("--hidden", type=_whole(1), nargs="?", const=PAPER_UNITS, metavar="UNITS",
        help=f"a layer before the classes, which describes crops from then on ({PAPER_UNITS})")  # fmt: skip
    add("--input-size", type=_whole(64), metavar="PIXELS", help="side of a crop (default: what the network had)")
    add("--epochs", type=_whole(1), metavar="N", help="at most")
    add("--batches", type=_whole(1), metavar="N", help="of an epoch (default: every positive once, at most 200)")
    add("--patience", type=_whole(1), metavar="N", help="stop after N epochs without a better held-out loss")
    add("--positives", type=_whole(1), metavar="N", help="windows of objects in a batch (32)")
    add("--backgrounds", type=_whole(1), metavar="N", help="windows of background in a batch (96)")
    add("--learning-rate", type=number(above=0), metavar="R", help="of the network, at its highest")
    add("--batch-norm", choices=BATCH_NORMS, help="keep ImageNet's statistics, or follow the windows (frozen)")
    add("--no-flip", action="store_true", help="do not mirror windows")
    add("--jitter", type=number(0, 0.5), metavar="R", help="move sides by up to this share of the window (0.1)")
    add("--colour", type=number(0, 0.9), metavar="R", help="change colours by up to this share (0.2)")
    add("--held-out", type=number(above=0, maximum=0.9), metavar="R", help="share of the images to stop by (0.2)")
    add("--min-objects", type=_whole(1), metavar="N", help="that a class must have (3)")
    add("--windows", choices=METHODS, help="where windows come from")
    add("--mode", choices=MODES, help="of selective search")
    add("--max-windows", type=_whole(1), metavar="N", help="windows of an image")
    add("--windows-from", metavar="FILE", help="take windows that `eesvm windows --ground-truth -o FILE` has written")
    add("--device", choices=DEVICES, default=DEVICES[0], help="what computes (default: a GPU where there is one)")
    add("--jobs", type=_whole(1), metavar="N", help="processes and threads (default: all cores)")
    add("--seed", type=_whole(0), metavar="N", help="of all random choices (0)")
    add("--cache", metavar="FOLDER", help="keep windows here (default: the one of `eesvm cache`)")
    add("--no-cache", action="store_true", help="keep none")
    add("--overwrite", action="store_true", help="replace FILE if it was made from other things")
    add("--strict", action="store_true", help="stop at the first annotation that is wrong")
    add("--quiet", action="store_true", help="print nothing but errors")


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


def _whole(minimum: int) -> Callable[[str], float]:
    return number(minimum=minimum, integer=True)


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
            f"on, or --split {_EVERYTHING}"
        )
    is_part = arguments.split not in (None, _EVERYTHING)
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
