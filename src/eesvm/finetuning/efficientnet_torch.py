"""EfficientNet-Lite as a torch module, and a classifier of windows on top of it or of any other module.

In: the weights of lite0, lite1 or lite2 as named arrays. Out: a module whose parameters have the same names and which
gives the same maps as the ONNX model that `descriptors.onnx_builder` writes from them, so that what was trained here
goes back through that builder. A stride of 2 pads as TensorFlow does, the odd pixel at the bottom and right.
`WindowClassifier` takes the mean of a body's map, and adds dropout, a hidden layer if wanted, and one score per class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from eesvm._support.validation import InputError
from eesvm.descriptors.onnx_builder import BATCH_NORM_EPSILON, Block, block_plan
from eesvm.descriptors.torch_weights import Weights

BODY = "body."  # what the names of a body's parameters begin with inside a `WindowClassifier`
_CLASSIFIER = "_fc."  # of ImageNet


class EfficientNetLite(nn.Module):
    """(n, 3, h, w), normalised, -> the last map (n, 1280, h / 32, w / 32)."""

    def __init__(self, weights: Weights, depth: float) -> None:
        super().__init__()
        plan = block_plan(depth)
        self._conv_stem, self._bn0 = _convolution(weights, "_conv_stem", 2), _norm(weights, "_bn0")
        self._blocks = nn.ModuleList(
            InvertedBottleneck(weights, f"_blocks.{k}.", block) for k, block in enumerate(plan)
        )
        self._conv_head, self._bn1 = _convolution(weights, "_conv_head"), _norm(weights, "_bn1")
        self._stage_starts = [k for k, block in enumerate(plan) if not block.is_residual]
        self.load_state_dict(
            {
                name: torch.from_numpy(np.array(values))
                for name, values in weights.items()
                if not name.startswith(_CLASSIFIER)
            }
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = functional.relu6(self._bn0(self._conv_stem(image)), inplace=True)
        for block in self._blocks:
            x = block(x)
        return functional.relu6(self._bn1(self._conv_head(x)), inplace=True)

    def parts(self) -> list[list[nn.Module]]:
        """Stem, seven stages, head: what can be trained or left as it is."""
        ends = [*self._stage_starts[1:], len(self._blocks)]
        stages = [list(self._blocks[a:b]) for a, b in zip(self._stage_starts, ends, strict=True)]
        return [[self._conv_stem, self._bn0], *stages, [self._conv_head, self._bn1]]


class InvertedBottleneck(nn.Module):
    """Widen by a 1x1 convolution, filter each channel, narrow without an activation, add what came in."""

    def __init__(self, weights: Weights, prefix: str, block: Block) -> None:
        super().__init__()
        self.is_residual = block.is_residual
        self.has_expansion = prefix + "_expand_conv.weight" in weights  # the first block works on what the stem gives
        if self.has_expansion:
            self._expand_conv = _convolution(weights, prefix + "_expand_conv")
            self._bn0 = _norm(weights, prefix + "_bn0")
        self._depthwise_conv = _convolution(weights, prefix + "_depthwise_conv", block.stride, is_depthwise=True)
        self._bn1 = _norm(weights, prefix + "_bn1")
        self._project_conv = _convolution(weights, prefix + "_project_conv")
        self._bn2 = _norm(weights, prefix + "_bn2")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = x
        if self.has_expansion:
            inside = functional.relu6(self._bn0(self._expand_conv(inside)), inplace=True)
        inside = functional.relu6(self._bn1(self._depthwise_conv(inside)), inplace=True)
        inside = self._bn2(self._project_conv(inside))
        return x + inside if self.is_residual else inside


class SameConvolution(nn.Conv2d):
    """A convolution with a stride of 2 that pads as TensorFlow does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size, stride = self.kernel_size[0], self.stride[0]
        missing = [max((-(-side // stride) - 1) * stride + size - side, 0) for side in (x.shape[3], x.shape[2])]
        pads = [pad for total in missing for pad in (total // 2, total - total // 2)]
        return functional.conv2d(functional.pad(x, pads), self.weight, None, self.stride, 0, 1, self.groups)


class WindowClassifier(nn.Module):
    """A body, and on top of its map: mean, dropout, a hidden layer if wanted, and a score for every class.

    Parameters
    ----------
    body : (n, 3, h, w) -> (n, d), or a map (n, d, h', w').
    dimension : d.
    n_classes : background included, which is the first.
    hidden : units of the layer before the scores; None is no such layer.
    """

    def __init__(
        self, body: nn.Module, dimension: int, n_classes: int, hidden: int | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.body, self.dropout = body, dropout
        self._hidden = None if hidden is None else nn.Linear(dimension, hidden)
        self._fc = nn.Linear(hidden or dimension, n_classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.layers(image)["logits"]

    def layers(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        """Everything on the way that can be a descriptor: map, features, hidden, logits."""
        found = {"features": self.body(image)}
        if found["features"].ndim == 4:
            found = {"map": found["features"], "features": found["features"].mean(dim=(2, 3))}
        x = functional.dropout(found["features"], self.dropout, self.training)
        if self._hidden is not None:
            found["hidden"] = functional.relu(self._hidden(x))
            x = functional.dropout(found["hidden"], self.dropout, self.training)
        return found | {"logits": self._fc(x)}

    @property
    def scores(self) -> nn.Linear:
        """What gives a score to every class."""
        return self._fc

    def new_layers(self) -> list[nn.Linear]:
        """What has no weights from elsewhere."""
        return [self._fc] if self._hidden is None else [self._hidden, self._fc]

    def start(self, random_state: int) -> None:
        """Weights of the new layers: the same for the same seed, whatever torch has drawn before."""
        generator = torch.Generator().manual_seed(random_state)
        with torch.no_grad():
            for layer in self.new_layers():
                # R-CNN's 0.01 for the scores. A hidden layer passes on vectors as long as those it gets, however many
                # units it has: longer ones would make the steps of the scores so large that nothing is learned.
                scale = 0.01 if layer is self.scores else (2 / layer.out_features) ** 0.5
                layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator) * scale)
                layer.bias.zero_()

    def freeze(self, n_trained: int | None) -> None:
        """Train only the last `n_trained` parts of the body, besides the new layers; None is all of them."""
        parts = body_parts(self.body)
        if n_trained is not None and n_trained > len(parts):
            raise InputError(f"`stages` must be <= {len(parts)}, which is how many this network has, got {n_trained}")
        self.body.requires_grad_(n_trained is None)
        if n_trained:
            for part in parts[-n_trained:]:
                for module in part:
                    module.requires_grad_(True)

    def norms(self) -> Iterator[nn.Module]:
        """The batch normalisations of the body."""
        return (module for module in self.body.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm))


def body_parts(body: nn.Module) -> list[list[nn.Module]]:
    """What of a body can be trained or left as it is, from the input to the output."""
    if isinstance(body, EfficientNetLite):
        return body.parts()
    return [[child] for child in _children(body) if any(True for _ in child.parameters())]


def body_dimension(body: nn.Module, input_size: int) -> int:
    """The length of what a body gives for a picture; refuses a module that gives something else."""
    was_training = body.training
    body.eval()
    try:
        with torch.no_grad():
            found = body(torch.zeros(1, 3, input_size, input_size))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"`module` fails on pictures of shape (1, 3, {input_size}, {input_size}): {reason}") from error
    body.train(was_training)
    if not isinstance(found, torch.Tensor) or found.ndim not in (2, 4) or len(found) != 1:
        shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise InputError(f"`module` must give (n, d) or a map (n, d, h, w) for pictures (n, 3, h, w), got {shape}")
    return int(found.shape[1])


def _children(body: nn.Module) -> Iterable[nn.Module]:
    """The steps of a module; a wrapper around one module is looked through."""
    children = list(body.children())
    return _children(children[0]) if len(children) == 1 else children or [body]


def _convolution(weights: Weights, entry: str, stride: int = 1, is_depthwise: bool = False) -> nn.Conv2d:
    """A convolution with the widths and the kernel size of its weights."""
    width, inputs, size, _ = _take(weights, entry + ".weight").shape
    groups = width if is_depthwise else 1
    # With a stride of 1 both rules pad alike, and fixed numbers need no extra step.
    kind, padding = (nn.Conv2d, size // 2) if stride == 1 else (SameConvolution, 0)
    return kind(inputs * groups, width, size, stride, padding, groups=groups, bias=False)


def _norm(weights: Weights, entry: str) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(len(_take(weights, entry + ".weight")), eps=BATCH_NORM_EPSILON, momentum=0.01)


def _take(weights: Weights, entry: str) -> np.ndarray:
    if entry not in weights:
        raise InputError(f"the weights have no entry {entry!r}")
    return weights[entry]
