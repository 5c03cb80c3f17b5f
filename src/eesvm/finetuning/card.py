"""The card of a fine-tuned network: what it was made from, how, and how well it learned.

In: facts of a run. Out: `NAME.json` for programs and `NAME.md` for people, beside the ONNX file, and the curves as
`NAME.png`. The card has hashes of the images, the annotations, the weights it started from and the ONNX file, so that
anybody can see whether two networks are the same and a finished run is not repeated.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eesvm._support.documents import write_json
from eesvm._support.figures import save_png
from eesvm._support.files import atomic_write
from eesvm._support.tables import markdown_table
from eesvm._support.version import __version__
from eesvm.finetuning.curves import learning_curves
from eesvm.finetuning.options import FinetuneOptions

if TYPE_CHECKING:
    from eesvm.finetuning.training import TrainingState

FORMAT = "eesvm-backbone"
FORMAT_VERSION = 1
CHECKPOINTS = ".checkpoints"  # ending of the folder beside the ONNX file in which a run keeps its state


def make_card(
    key: str,
    options: FinetuneOptions,
    inputs: Mapping[str, Any],
    network: Mapping[str, Any],
    layers: Mapping[str, str],
    state: TrainingState,
    runtime: Mapping[str, Any],
    sha256: str,
) -> dict[str, Any]:
    """The content of the JSON file."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "eesvm_version": __version__,
        "key": key,
        "sha256": sha256,
        "network": dict(network),
        "layers": dict(layers),
        "inputs": dict(inputs),
        "options": options.as_dict(),
        "best_epoch": state.best_epoch,
        "stopped": state.stopped,
        "n_batches": state.n_batches,
        "seconds": round(state.seconds, 1),
        "history": [asdict(epoch) for epoch in state.history],
        "runtime": {"python": platform.python_version(), **runtime},
    }


def write_card(output: Path, content: Mapping[str, Any]) -> None:
    """Picture, page and JSON."""
    name = output.stem
    figure = learning_curves(content["history"], content["best_epoch"], f"{name}, on {content['inputs']['name']}")
    save_png(figure, output.with_suffix(".png"))
    with atomic_write(output.with_suffix(".md"), text=True) as handle:
        handle.write(page(name, content))
    write_json(output.with_suffix(".json"), content)


def read_card(output: Path) -> dict[str, Any] | None:
    """The card beside a finished ONNX file; None where there is none or the file is another one."""
    content = _card_beside(output)
    try:
        return content if content is not None and content.get("sha256") == file_sha256(output) else None
    except OSError:
        return None


def has_card(output: Path) -> bool:
    """Whether what lies beside an ONNX file, there or not, is a card, and so may be replaced by another one."""
    return _card_beside(output) is not None


def _card_beside(output: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(output.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) and content.get("format") == FORMAT else None


def file_sha256(path: str | os.PathLike[str]) -> str:
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def page(name: str, content: Mapping[str, Any]) -> str:
    """The card for people."""
    inputs, options, layers = content["inputs"], content["options"], content["layers"]
    best = content["history"][content["best_epoch"]]
    hidden = f", a layer of {options['hidden']:,} units before the classes" if options["hidden"] else ""
    trained = "all of it" if options["stages"] is None else f"the last {options['stages']} of its stages"
    lines = [
        f"# {name}: {content['network']['name']}, fine-tuned on windows of {inputs['name']}",
        "",
        f"Written by eesvm {content['eesvm_version']}. It tells background apart from "
        f"{_listed(list(inputs['objects']))}.",
        "",
        markdown_table(
            ("class", "objects", "windows to train on", "held-out windows"),
            (_cells(class_name, inputs) for class_name in ("background", *inputs["objects"])),
            numbers=False,
        ),
        "",
        f"Trained on {inputs['n_train']:,} images, stopped by {inputs['n_held_out']:,} others.{_coded(inputs)}",
        "",
        f"![learning curves]({name}.png)",
        "",
        f"The weights are those of epoch {content['best_epoch']}: held-out loss {best['held_out_loss']:.3f}, accuracy "
        f"{100 * best['held_out_accuracy']:.1f} %, average precision {100 * best['held_out_ap']:.1f} %. Training ended "
        f"after {content['n_batches']:,} batches because {content['stopped']}.",
        "",
        "## How to use it",
        "",
        *(_usage(name, mode, layer) for mode, layer in sorted(layers.items(), reverse=True)),
        "## How it was made",
        "",
        f"- network: {content['network']['name']}, weights {content['network']['digest']}; "
        f"trained is {trained}{hidden}",
        f"- crops of {content['network']['input_size']} pixels; batches of {options['positives']} windows of objects "
        f"(IoU >= {options['positive_overlap']:g}) and {options['backgrounds']} of background",
        f"- learning rate {options['learning_rate']:g}, {options['score_factor']:g} times that for class scores; "
        f"gradients of a length of {options['max_gradient']:g} at most, momentum {options['momentum']:g}, weight decay "
        f"{options['weight_decay']:g}, dropout {options['dropout']:g}",
        f"- batch normalisation {options['batch_norm']}; mirrored: {'half' if options['flip'] else 'none'}; boxes "
        f"moved by up to {100 * options['jitter']:g} %, colours by {100 * options['colour']:g} %",
        f"- seed {options['random_state']}; images {inputs['images_digest']}, annotations "
        f"{inputs['annotations_digest']}",
        f"- {content['runtime']['device']}, torch {content['runtime']['torch']}, {content['seconds']:,.0f} s",
        "",
        f"All options and curves, and the hash of the ONNX file, are in `{name}.json`.",
        "",
    ]
    return "\n".join(lines)


def _cells(class_name: str, inputs: Mapping[str, Any]) -> list[str]:
    objects = inputs["objects"].get(class_name, "")
    counts = (inputs["train_windows"].get(class_name, 0), inputs["held_out_windows"].get(class_name, 0))
    return [class_name, f"{objects:,}" if objects != "" else "", *(f"{n:,}" for n in counts)]


def _coded(inputs: Mapping[str, Any]) -> str:
    n_coded = inputs.get("n_coded", 0)
    return (
        f" The ONNX file holds codes of {n_coded:,} of them, by which `eesvm train` and `eesvm reproduce` recognise "
        "them again under any name."
        if n_coded
        else ""
    )


def _usage(name: str, mode: str, layer: str) -> str:
    return (
        f"    eesvm train DATA -o model --set descriptor.backbone={name}.onnx --set descriptor.mode={mode}"
        f"   # layer {layer}\n"
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more classes"
