"""What training starts from: EfficientNet-Lite with its ImageNet weights, or a module of the caller's.

In: options, perhaps a torch module. Out: a `Start`: the body, what is known about it, and how its pixels are
normalised; and the `WindowClassifier` that is put on top of it.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from eesvm._support.digests import array_digest, digest
from eesvm._support.validation import InputError, check_choice
from eesvm.descriptors.backbones import Normalisation
from eesvm.descriptors.pretrained import MEAN, PRETRAINED, STD, read_weights
from eesvm.finetuning.efficientnet_torch import EfficientNetLite, WindowClassifier, body_dimension
from eesvm.finetuning.options import NETWORKS, FinetuneOptions

_GIVEN_SIZE = 224  # of crops for a module of the caller's, unless told


@dataclass(frozen=True)
class Start:
    """A body before it is trained."""

    body: nn.Module
    name: str
    digest: str  # of its weights, and of the code of a module of the caller's
    depth: float  # of EfficientNet-Lite
    input_size: int
    normalisation: Normalisation

    def facts(self) -> dict[str, Any]:
        """What a card says about it."""
        feeding = {"mean": list(self.normalisation.mean), "std": list(self.normalisation.std)}
        order = {"channel_order": self.normalisation.channel_order}
        return {"name": self.name, "digest": self.digest, "input_size": self.input_size, **feeding, **order}


def start_from(
    options: FinetuneOptions, module: nn.Module | None = None, normalisation: Normalisation | None = None
) -> Start:
    """The network that the options name, or the module that is given."""
    if module is not None:
        if not isinstance(module, nn.Module):
            raise InputError(f"`module` must be a torch module, got {type(module).__name__}")
        size = options.input_size or _GIVEN_SIZE
        return Start(module, type(module).__name__, _module_digest(module), 1.0, size, normalisation or Normalisation())
    if normalisation is not None:
        raise InputError("`normalisation` is of a module that is given: the named networks have their own")
    check_choice(options.network, "network", NETWORKS)
    known = PRETRAINED[options.network]
    weights = read_weights(known)
    with torch.random.fork_rng(devices=[]):
        body = EfficientNetLite(weights, known.depth)
    size = options.input_size or known.input_size
    return Start(body, known.name, known.sha256, known.depth, size, Normalisation((MEAN,) * 3, (STD,) * 3))


def make_classifier(start: Start, n_classes: int, options: FinetuneOptions) -> WindowClassifier:
    """The body with new layers on top, of which those are trained that the options say; background is a class."""
    dimension = body_dimension(start.body, start.input_size)
    with torch.random.fork_rng(devices=[]):  # layers draw numbers when they are made, which nobody uses
        classifier = WindowClassifier(start.body, dimension, n_classes, options.hidden, options.dropout)
    classifier.start(options.random_state)
    classifier.freeze(options.stages)
    return classifier


def _module_digest(module: nn.Module) -> str:
    """Of the weights, the parts and the code: the same weights may be put to another use."""
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()}
    weights = [[name, array_digest(array)] for name, array in sorted(arrays.items())]
    kinds = {type(part) for part in module.modules() if not type(part).__module__.startswith("torch.")}
    return digest([weights, repr(module), sorted(_source(kind) for kind in kinds)])


def _source(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # made at a prompt, or without its source at hand
        return kind.__qualname__
