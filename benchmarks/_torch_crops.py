"""Crop descriptors by torch: our own ONNX graphs run on a GPU for which onnxruntime has no provider."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from onnx import helper, numpy_helper
from torch.nn import functional

from eesvm import boxes as geometry
from eesvm.descriptors import onnx_files
from eesvm.descriptors.backbones import Backbone
from eesvm.descriptors.cnn import CropCNN, with_context
from eesvm.finetuning.crops_torch import rows_first, warp

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class TorchCrops:
    """What `CropCNN` gives, up to rounding, with everything on a GPU; in half precision, if wanted, up to 1 %."""

    def __init__(self, backbone: Backbone, context: float = 16.0, batch_size: int = 256, is_half: bool = False) -> None:
        self.plain = CropCNN(backbone, context)
        self.backbone, self.context, self.batch_size = backbone, context, batch_size
        self._type = torch.float16 if is_half and DEVICE == "cuda" else torch.float32
        if self._type is torch.float16:  # quick before exact: batches of one size, products of pixels in 10 bits
            torch.backends.cudnn.benchmark = torch.backends.cuda.matmul.allow_tf32 = True
        self._graph = OnnxGraph(backbone._model, self._type)
        normalisation = backbone.normalisation
        self._mean, self._std = (
            torch.tensor(values, dtype=torch.float32, device=DEVICE)[:, None, None]
            for values in (normalisation.mean, normalisation.std)
        )

    @cached_property
    def dimension(self) -> int:
        return self.plain.dimension

    def parameters(self) -> dict[str, Any]:
        return self.plain.parameters()

    def describe(self, image: np.ndarray, boxes: Any) -> np.ndarray:
        return next(self.describe_many([(image, boxes)]))

    def describe_many(self, pairs: Iterable[tuple[np.ndarray, Any]]) -> Iterator[np.ndarray]:
        """The descriptors of the windows of each image; batches hold windows of several images."""
        waiting: list[torch.Tensor] = []  # crops that are not described yet
        counts: list[int] = []  # windows of the images that are not yielded yet
        done: list[torch.Tensor] = []
        with torch.no_grad():
            for image, boxes in pairs:
                windows = np.asarray(boxes, np.float64).reshape(-1, 4)
                counts.append(len(windows))
                waiting += self._crops(image, windows)
                if sum(map(len, waiting)) >= self.batch_size:
                    crops = torch.cat(waiting)
                    n_whole = len(crops) // self.batch_size * self.batch_size
                    done += [self._run(part) for part in crops[:n_whole].split(self.batch_size)]
                    waiting = [crops[n_whole:]]
                    yield from self._whole_images(done, counts)
            done += [self._run(part) for part in waiting if len(part)]
            yield from self._whole_images(done, counts)

    def _crops(self, image: np.ndarray, windows: np.ndarray) -> list[torch.Tensor]:
        wide = with_context(
            geometry.clip(windows, image.shape[1], image.shape[0]), self.backbone.input_size, self.context
        )
        pixels = rows_first(image, torch.device(DEVICE))
        parts = []
        for start in range(0, len(wide), 256):
            crops = warp([pixels], [wide[start : start + 256]], self.backbone.input_size[0], self._mean)
            parts.append(((crops - self._mean) / self._std).to(self._type))
        return parts

    def _run(self, crops: torch.Tensor) -> torch.Tensor:
        if self._type is torch.float16:
            crops = crops.contiguous(memory_format=torch.channels_last)
        layer = self._graph(crops)
        return (layer if layer.ndim == 2 else layer.float().mean(dim=(2, 3))).float()

    def _whole_images(self, done: list[torch.Tensor], counts: list[int]) -> Iterator[np.ndarray]:
        """What is described of the images that are waited for; `done` and `counts` keep the rest."""
        rows = np.empty((0, self.dimension), np.float32) if not done else torch.cat(done).cpu().numpy()
        end = 0
        while counts and end + counts[0] <= len(rows):
            yield rows[end : end + counts[0]]
            end += counts.pop(0)
        done[:] = [torch.from_numpy(rows[end:]).to(DEVICE)] if end < len(rows) else []


class OnnxGraph:
    """A graph that `descriptors.onnx_builder` has written, node by node in torch."""

    def __init__(self, content: bytes, kind: torch.dtype = torch.float32) -> None:
        graph = onnx_files.parse(content, "the network").graph
        self.nodes, self.output = list(graph.node), graph.output[0].name
        self.input = next(value.name for value in graph.input)
        self.constants = {
            tensor.name: _placed(torch.from_numpy(numpy_helper.to_array(tensor).copy()), kind)
            for tensor in graph.initializer
        }

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        values = {**self.constants, self.input: image}
        for node in self.nodes:
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            values[node.output[0]] = OPERATORS[node.op_type]([values[name] for name in node.input], attributes)
        return values[self.output]


def _placed(tensor: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    tensor = tensor.to(DEVICE, kind) if tensor.is_floating_point() else tensor.to(DEVICE)
    is_map = tensor.ndim == 4 and kind is torch.float16
    return tensor.contiguous(memory_format=torch.channels_last) if is_map else tensor


def convolution(inputs: list[torch.Tensor], attributes: dict[str, Any]) -> torch.Tensor:
    x, kernel, bias = inputs
    stride, size = attributes["strides"][0], attributes["kernel_shape"][0]
    if "pads" in attributes:
        return functional.conv2d(x, kernel, bias, stride, attributes["pads"][0], 1, attributes["group"])
    missing = [max((-(-side // stride) - 1) * stride + size - side, 0) for side in (x.shape[3], x.shape[2])]
    x = functional.pad(x, [pad for total in missing for pad in (total // 2, total - total // 2)])
    return functional.conv2d(x, kernel, bias, stride, 0, 1, attributes["group"])


OPERATORS = {
    "Conv": convolution,
    "Clip": lambda inputs, _: inputs[0].clamp_(0, 6),
    "Add": lambda inputs, _: inputs[0] + inputs[1],
    "Relu": lambda inputs, _: inputs[0].relu(),
    "GlobalAveragePool": lambda inputs, _: inputs[0].mean(dim=(2, 3), keepdim=True),
    "Flatten": lambda inputs, _: inputs[0].flatten(1),
    "Gemm": lambda inputs, _: inputs[0] @ inputs[1].T + inputs[2],
}
