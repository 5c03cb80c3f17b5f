"""A descriptor made by its name, "cnn" or "hog".

In: the name and options of that descriptor; of a network in a file also what that file states. Out: the descriptor.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

from eesvm._support.validation import InputError, check_choice
from eesvm.descriptors import hog
from eesvm.descriptors.backbones import Backbone, Normalisation, stated_layer
from eesvm.descriptors.base import Descriptor
from eesvm.descriptors.cnn import LITE_LAYER, LITE_LEVELS, CropCNN, PooledCNN, parse_levels
from eesvm.descriptors.hog import HOG
from eesvm.descriptors.pretrained import PRETRAINED

NAMES = ("cnn", "hog")
_CNN_MODES = ("pooled", "crop")


def make_descriptor(
    name: str = "cnn",
    mode: str | None = None,
    backbone: str | os.PathLike[str] = "lite0",
    layer: str | None = None,
    *,
    normalisation: Normalisation | None = None,
    n_threads: int | None = None,
    device: str = "auto",
    **options: Any,
) -> Descriptor:
    """A descriptor by name.

    Parameters
    ----------
    name : "cnn" or "hog".
    mode : of "cnn", "pooled" (one pass per image, the default) or "crop" (one per window, as R-CNN); of "hog",
        "warped" (the default) or "integral".
    backbone : "lite0", "lite1", "lite2", or the path of an ONNX file.
    layer : what to take from the network. Pooled: feature maps with grids, "head@1+stride_16@3" (see
        `descriptors.cnn`); crop: one layer. None is a choice that does well for the named networks, and what a file
        states that `eesvm finetune` has written; any other file needs it.
    normalisation, n_threads, device : see `Backbone`.
    options : of `PooledCNN` (size, power), `CropCNN` (context, batch_size) or `HOG` (cells, cell_size, size).
    """
    check_choice(name, "name", NAMES)
    try:
        if name == "hog":
            check_choice(mode, "mode", (None, *hog.MODES))
            if layer is not None or os.fspath(backbone) != "lite0":
                raise InputError("`backbone` and `layer` are of the descriptor 'cnn': 'hog' has no network")
            _check_options("`hog`", HOG, ("mode",), options)
            return HOG(mode=mode or hog.MODES[0], **options)
        check_choice(mode, "mode", (None, *_CNN_MODES))
        mode = mode or _CNN_MODES[0]
        made = CropCNN if mode == "crop" else PooledCNN
        _check_options(f"`cnn` in the mode {mode!r}", made, ("backbone", "levels"), options)
        return _make_cnn(mode, backbone, layer, (normalisation, n_threads, device), options)
    except TypeError as error:  # a value of a kind that no check foresees
        raise InputError(f"`make_descriptor` cannot make {name!r}: {error}") from error


def _check_options(what: str, made: Callable[..., Any], others: tuple[str, ...], options: dict[str, Any]) -> None:
    """Refuse an option that the class does not have; `others` are arguments of it that are no options."""
    known = [name for name in inspect.signature(made).parameters if name not in others]
    for name in options:
        if name not in known:
            raise InputError(f"{what} has no option `{name}`: it has {', '.join(known)}")


def _make_cnn(
    mode: str,
    backbone: str | os.PathLike[str],
    layer: str | None,
    running: tuple[Normalisation | None, int | None, str],
    options: dict[str, Any],
) -> Descriptor:
    if layer is None:
        if os.fspath(backbone) in PRETRAINED:
            layer = LITE_LEVELS if mode == "pooled" else LITE_LAYER
        elif not os.path.exists(backbone):
            raise InputError(
                f"{os.fspath(backbone)}: there is no such file; known networks are {', '.join(PRETRAINED)}"
            )
        else:
            layer = stated_layer(backbone, mode)
    if layer is None:
        raise InputError("`layer` must be given for a backbone from a file: the name of a tensor in it")
    if mode == "crop":
        return CropCNN(Backbone(backbone, [layer], *running), **options)
    levels = parse_levels(layer)
    made = PooledCNN(
        Backbone(backbone, list(dict.fromkeys(level.layer for level in levels)), *running), levels, **options
    )
    return made
