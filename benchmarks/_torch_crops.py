"""Crop descriptors by torch: our own ONNX graphs run on a GPU for which onnxruntime has no provider."""

from __future__ import annotations

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
    """What `CropCNN` gives, up to rounding, with everything on a GPU."""

    def __init__(self, backbone: Backbone, context: float = 16.0, batch_size: int = 256) -> None:
        self.plain = CropCNN(backbone, context)
        self.backbone, self.context, self.batch_size = backbone, context, batch_size
        self._graph = OnnxGraph(backbone._model)
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
        windows = geometry.clip(np.asarray(boxes, np.float64).reshape(-1, 4), image.shape[1], image.shape[0])
        wide = with_context(windows, self.backbone.input_size, self.context)
        pixels = rows_first(image, torch.device(DEVICE))
        rows = []
        with torch.no_grad():
            for start in range(0, len(wide), self.batch_size):
                part = wide[start : start + self.batch_size]
                crops = warp([pixels], [part], self.backbone.input_size[0], self._mean)
                layer = self._graph((crops - self._mean) / self._std)
                rows.append(layer if layer.ndim == 2 else layer.mean(dim=(2, 3)))
            return torch.cat(rows).cpu().numpy() if rows else np.empty((0, self.dimension), np.float32)


class OnnxGraph:
    """A graph that `descriptors.onnx_builder` has written, node by node in torch."""

    def __init__(self, content: bytes) -> None:
        graph = onnx_files.parse(content, "the network").graph
        self.nodes, self.output = list(graph.node), graph.output[0].name
        self.input = next(value.name for value in graph.input)
        self.constants = {
            tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy()).to(DEVICE)
            for tensor in graph.initializer
        }

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        values = {**self.constants, self.input: image}
        for node in self.nodes:
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            values[node.output[0]] = OPERATORS[node.op_type]([values[name] for name in node.input], attributes)
        return values[self.output]


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
    "Clip": lambda inputs, _: inputs[0].clamp(0, 6),
    "Add": lambda inputs, _: inputs[0] + inputs[1],
    "Relu": lambda inputs, _: inputs[0].relu(),
    "GlobalAveragePool": lambda inputs, _: inputs[0].mean(dim=(2, 3), keepdim=True),
    "Flatten": lambda inputs, _: inputs[0].flatten(1),
    "Gemm": lambda inputs, _: inputs[0] @ inputs[1].T + inputs[2],
}
