"""EfficientNet-Lite written as an ONNX graph.

In: the weights of lite0, lite1 or lite2 as named arrays. Out: an ONNX model from `image` (n, 3, h, w), normalised, any
n, h and w, to `logits`. Every batch normalisation is folded into the convolution before it. Every feature map on the
way has a readable name and can be asked for as an output:

    stem                                        (n, 32, h/2, w/2)
    block_00, block_01, ...                     linear bottlenecks; the last one of each size is called
    stride_02, stride_04, ... stride_32         (n, c, h/s, w/s)
    block_NN_expand, block_NN_depthwise         inside a block, after ReLU6
    head                                        (n, 1280, h/32, w/32)
    features, logits                            (n, 1280), (n, classes)
    hidden                                      (n, units), between those two, where the weights have such a layer

The weights were trained in TensorFlow, so a stride of 2 pads as TensorFlow does: the odd pixel at the bottom and right.
Lite means ReLU6 everywhere, no squeeze-and-excitation, and a stem and a head that do not grow with the network.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import InputError
from eesvm.descriptors.torch_weights import Weights

if TYPE_CHECKING:
    import onnx

BATCH_NORM_EPSILON = 1e-3
_OPSET = 17
_IR_VERSION = 8  # what runtimes of the last years read
_STAGES = (  # repeats, kernel, stride of the first repeat
    (1, 3, 1),
    (2, 3, 2),
    (2, 5, 2),
    (3, 3, 2),
    (3, 5, 1),
    (4, 5, 2),
    (1, 3, 1),
)


class Block(NamedTuple):
    """One inverted bottleneck; its widths are those of its weights."""

    kernel: int
    stride: int
    is_residual: bool


def block_plan(depth: float) -> list[Block]:
    """The blocks of a network whose inner stages are `depth` times as deep as those of lite0."""
    plan = []
    for stage, (repeats, kernel, stride) in enumerate(_STAGES):
        is_outer = stage in (0, len(_STAGES) - 1)  # fixed in the Lite family
        for repeat in range(repeats if is_outer else math.ceil(repeats * depth)):
            plan.append(Block(kernel, stride if repeat == 0 else 1, repeat > 0))
    return plan


def build_efficientnet(weights: Weights, depth: float, name: str) -> onnx.ModelProto:
    """The network of `weights` as an ONNX model; an `InputError` where they are not those of such a network."""
    graph = _Graph(dict(weights))
    try:
        x = graph.convolution("image", "stem", "_conv_stem", "_bn0", stride=2)
        plan = block_plan(depth)
        for index, (block, output) in enumerate(zip(plan, _output_names(plan), strict=True)):
            x = _add_block(graph, x, f"block_{index:02d}", output, f"_blocks.{index}.", block)
        x = graph.convolution(x, "head", "_conv_head", "_bn1")
        x = graph.node("GlobalAveragePool", [x], "head_mean")
        x = graph.node("Flatten", [x], "features", axis=1)
        if "_hidden.weight" in graph.weights:  # fine-tuning may put a layer before the classes
            x = graph.node("Relu", [graph.fully_connected(x, "hidden_linear", "_hidden")], "hidden")
        n_classes = len(graph.weights["_fc.weight"])
        graph.fully_connected(x, "logits", "_fc")
    except KeyError as error:
        raise InputError(f"the weights of {name} have no entry {error.args[0]!r}") from error
    left = sorted(entry for entry in graph.weights if not entry.endswith("num_batches_tracked"))
    if left:
        raise InputError(
            f"the weights of {name} have {len(left)} entries that its network has no place for: {left[0]!r}"
        )
    return graph.model(name, n_classes)


def _output_names(plan: list[Block]) -> Iterator[str]:
    """What each block's output is called: by its stride where the next block shrinks the map or nothing follows."""
    stride = 2  # of the stem
    for index, block in enumerate(plan):
        stride *= block.stride
        is_last = index + 1 == len(plan) or plan[index + 1].stride > 1
        yield f"stride_{stride:02d}" if is_last else f"block_{index:02d}"


def _add_block(graph: _Graph, x: str, name: str, output: str, prefix: str, block: Block) -> str:
    """Widen by a 1x1 convolution, filter each channel, narrow without an activation, add what came in."""
    inside = x
    if prefix + "_expand_conv.weight" in graph.weights:  # the first block works on what the stem gives
        inside = graph.convolution(inside, f"{name}_expand", prefix + "_expand_conv", prefix + "_bn0")
    inside = graph.convolution(
        inside, f"{name}_depthwise", prefix + "_depthwise_conv", prefix + "_bn1", block.stride, is_depthwise=True
    )
    narrow = f"{name}_project" if block.is_residual else output
    inside = graph.convolution(inside, narrow, prefix + "_project_conv", prefix + "_bn2", has_activation=False)
    return graph.node("Add", [inside, x], output) if block.is_residual else inside


@dataclass
class _Graph:
    """Nodes and constants as they come; entries leave `weights` when they have found their place."""

    weights: Weights
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def take(self, entry: str) -> NDArray[Any]:
        return self.weights.pop(entry)

    def constant(self, name: str, values: NDArray[Any]) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.asarray(values, order="C"), name))
        return name

    def node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, [output], name=f"{operator}:{output}", **attributes))
        return output

    def convolution(
        self,
        x: str,
        name: str,
        entry: str,
        norm: str,
        stride: int = 1,
        is_depthwise: bool = False,
        has_activation: bool = True,
    ) -> str:
        """Convolution with its batch normalisation folded in, and ReLU6 after it."""
        kernel, bias = fold_batch_norm(self.take(entry + ".weight"), *self._norm(norm))
        size = kernel.shape[-1]
        # With a stride of 1 both rules pad alike, and fixed numbers let the runtime choose faster kernels.
        padding: dict[str, Any] = {"pads": [size // 2] * 4} if stride == 1 else {"auto_pad": "SAME_UPPER"}
        self.node(
            "Conv",
            [x, self.constant(name + ".weight", kernel), self.constant(name + ".bias", bias)],
            name + "_linear" if has_activation else name,
            kernel_shape=[size, size],
            strides=[stride, stride],
            group=len(kernel) if is_depthwise else 1,
            **padding,
        )
        if has_activation:
            self.node("Clip", [name + "_linear", *self._six()], name)
        return name

    def fully_connected(self, x: str, output: str, entry: str) -> str:
        """Every input with every output."""
        constants = [
            self.constant(entry.removeprefix("_") + part, self.take(entry + part)) for part in (".weight", ".bias")
        ]
        return self.node("Gemm", [x, *constants], output, transB=1)

    def model(self, name: str, n_classes: int) -> onnx.ModelProto:
        from onnx import TensorProto, checker, helper

        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, "height", "width"])
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", n_classes])
        graph = helper.make_graph(self.nodes, name, [image], [logits], self.constants)
        opset = helper.make_opsetid("", _OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=_IR_VERSION, producer_name="eesvm")
        checker.check_model(model, full_check=True)
        return model

    def _norm(self, norm: str) -> Iterator[NDArray[Any]]:
        return (self.take(f"{norm}.{part}") for part in ("weight", "bias", "running_mean", "running_var"))

    def _six(self) -> list[str]:
        if not any(constant.name == "six" for constant in self.constants):
            self.constant("zero", np.zeros((), np.float32)), self.constant("six", np.full((), 6, np.float32))
        return ["zero", "six"]


def fold_batch_norm(
    kernel: NDArray[Any], scale: NDArray[Any], shift: NDArray[Any], mean: NDArray[Any], variance: NDArray[Any]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Kernel (out, in, h, w) and bias of the one convolution that does both steps."""
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + BATCH_NORM_EPSILON)
    folded = kernel * factor[:, None, None, None]
    return folded.astype(np.float32), (shift - mean * factor).astype(np.float32)
