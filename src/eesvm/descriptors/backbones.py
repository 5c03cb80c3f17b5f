"""A network that gives named layers: ONNX run by onnxruntime.

In: "lite0", "lite1", "lite2" or the path of an ONNX file, and the names of layers. Out: a `Backbone` that turns RGB
pixels into those layers. Any tensor of the graph can be a layer, tokens of vision transformers become maps; what no
layer needs is cut off and never computed.
A file must take one float32 input (n, 3, h, w); sides and n may be fixed or free. It runs on a GPU where onnxruntime
has one. Nothing random happens inside, and the same machine gives the same numbers for any number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.extras import optional_module
from eesvm._support.threads import n_cores
from eesvm._support.validation import InputError, check_choice, check_number
from eesvm.datasets.roles import PictureCodes
from eesvm.descriptors import onnx_files, pretrained
from eesvm.descriptors.tokens import as_map, fitting_patch, stated_patch

DEVICES = ("auto", "cpu", "cuda")
CHANNEL_ORDERS = ("rgb", "bgr")
LARGEST_STRIDE = 32  # of convolutional networks


@dataclass(frozen=True)
class Normalisation:
    """What happens to pixels before they enter: (pixel - mean) / std, then the order of the channels.

    `mean` and `std` are in the order red, green, blue, whatever the network's order is. The default is that of
    torchvision; networks from Caffe want mean (123, 117, 104), std (1, 1, 1) and "bgr".
    """

    mean: tuple[float, float, float] = (123.675, 116.28, 103.53)
    std: tuple[float, float, float] = (58.395, 57.12, 57.375)
    channel_order: str = "rgb"  # or "bgr": what the network wants

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            values = getattr(self, name)
            if len(values) != 3:
                raise InputError(f"`{name}` must be three numbers, for red, green and blue, got {values!r}")
            checked = tuple(float(check_number(v, name, above=0 if name == "std" else -np.inf)) for v in values)
            object.__setattr__(self, name, checked)
        check_choice(self.channel_order, "channel_order", CHANNEL_ORDERS)

    def __call__(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, 3, h, w) for the network from RGB pixels (n, h, w, 3), which are used up."""
        pixels -= np.array(self.mean, np.float32)
        pixels /= np.array(self.std, np.float32)
        ordered = pixels if self.channel_order == "rgb" else pixels[..., ::-1]
        return np.ascontiguousarray(ordered.transpose(0, 3, 1, 2))


class Backbone:
    """A network ready to run.

    Parameters
    ----------
    source : "lite0", "lite1", "lite2", or the path of an ONNX file.
    layers : names of tensors in it.
    normalisation : of the pixels; None is that of a named network, for a file what it states, or torchvision's.
    n_threads : of onnxruntime; None is one per core.
    device : "auto" takes a GPU where there is one, "cpu" and "cuda" insist.

    Attributes
    ----------
    input_size : (height, width) that crops should have: what the file fixes, else what the network was trained with.
    is_fixed : whether the file accepts that size only.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        layers: Sequence[str],
        normalisation: Normalisation | None = None,
        n_threads: int | None = None,
        device: str = "auto",
    ) -> None:
        check_choice(device, "device", DEVICES)
        if n_threads is not None:
            check_number(n_threads, "n_threads", minimum=1, integer=True)
        self.layers = tuple(layers)
        self.n_threads, self.device = n_threads, device
        known = pretrained.PRETRAINED.get(os.fspath(source))
        if known is not None:
            model = onnx_files.parse(pretrained.pretrained_model(known), known.name)
            self.digest = known.digest
            own = Normalisation((pretrained.MEAN,) * 3, (pretrained.STD,) * 3)
            trained_size = known.input_size
        else:
            model = onnx_files.read(_checked_path(source))
            self.digest = onnx_files.graph_digest(model)
            own, trained_size = _stated(model, os.fspath(source))
        self.name = os.fspath(source)
        self.normalisation = own if normalisation is None else normalisation
        self._input, self._batch, sides = onnx_files.check_input(model, self.name)
        self.is_fixed = None not in sides
        self.input_size = (sides[0] or trained_size, sides[1] or trained_size)
        self._patch = stated_patch(model)
        self._model = onnx_files.only_layers(model, self.layers, self.name)
        self._session = self._open()

    def __call__(self, pixels: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """The layers, in the order of `layers`, for RGB pixels (n, h, w, 3) float32, which are used up.

        Tokens of a vision transformer, (n, tokens, d), come as the map (n, d, rows, columns) of its patches.
        """
        height, width = pixels.shape[1:3]
        return [
            as_map(layer, height, width, self._patch, f"layer {name!r} of {self.name}") if layer.ndim == 3 else layer
            for name, layer in zip(self.layers, self._layers(pixels), strict=True)
        ]

    @cached_property
    def multiple(self) -> int:
        """What the sides of a picture of any size should be multiples of: the largest stride, or the patch."""
        height, width = self.input_size
        shapes = [layer.shape for layer in self._layers(np.zeros((1, height, width, 3), np.float32))]
        n_tokens = next((shape[1] for shape in shapes if len(shape) == 3), None)
        if n_tokens is None:
            return LARGEST_STRIDE
        return self._patch or fitting_patch(n_tokens, height, width) or LARGEST_STRIDE

    def _layers(self, pixels: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        batch = self.normalisation(pixels)
        step = self._batch or len(batch)
        parts = [self._run(batch[start : start + step]) for start in range(0, len(batch), step)]
        return [np.concatenate(layer) if len(parts) > 1 else layer[0] for layer in zip(*parts, strict=True)]

    def probe(self) -> list[tuple[int, ...]]:
        """The shape of each layer for one picture of `input_size`."""
        return [layer.shape for layer in self(np.zeros((1, *self.input_size, 3), np.float32))]

    def parameters(self) -> dict[str, Any]:
        """Everything that the layers depend on besides the pixels; devices agree up to rounding."""
        normalisation = {
            "mean": list(self.normalisation.mean),
            "std": list(self.normalisation.std),
            "channel_order": self.normalisation.channel_order,
        }
        return {"network": self.digest, "layers": list(self.layers), "normalisation": normalisation}

    def with_threads(self, n_threads: int) -> Backbone:
        """The same network, opened once more with so many threads."""
        other = Backbone.__new__(Backbone)
        other.__setstate__({**self.__getstate__(), "n_threads": n_threads})
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_session"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._session = self._open()

    def _open(self) -> Any:
        runtime = optional_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = self.n_threads or n_cores()
        options.inter_op_num_threads = 1
        options.use_deterministic_compute = True
        options.enable_mem_pattern = False  # plans memory per input shape, and images have many shapes
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads leave the cores alone
        providers = choose_providers(self.device)
        try:
            return runtime.InferenceSession(self._model, options, providers=providers)
        except Exception as error:  # the runtime's own kinds cannot be named without importing it
            raise InputError(f"onnxruntime cannot load {self.name}: {onnx_files.one_line(error)}") from error

    def _run(self, batch: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        n = len(batch)
        n_missing = 0 if self._batch is None else self._batch - n
        if n_missing:  # the file insists on its number: fill up, and cut off after
            batch = np.concatenate([batch, np.zeros((n_missing, *batch.shape[1:]), np.float32)])
        try:
            layers = self._session.run(list(self.layers), {self._input: batch})
        except Exception as error:
            raise InputError(
                f"{self.name} fails on input of shape {batch.shape}: {onnx_files.one_line(error)}"
            ) from error
        for name, layer in zip(self.layers, layers, strict=True):
            if not layer.ndim or len(layer) != len(batch):
                raise InputError(f"layer {name!r} of {self.name} has shape {layer.shape} for {len(batch)} pictures")
        return [np.asarray(layer[:n] if n_missing else layer, np.float32) for layer in layers]


def stated_layer(source: str | os.PathLike[str], mode: str) -> str | None:
    """The layer that a file states for a mode, "pooled" or "crop"; None where it states nothing, or is not there."""
    path = os.fspath(source)
    if not os.path.isfile(path):
        return None
    layers = onnx_files.stated(onnx_files.read(path), path).get("layers", {})
    layer = layers.get(mode) if isinstance(layers, dict) else None
    return layer if isinstance(layer, str) else None


def tuned_images(source: str | os.PathLike[str]) -> PictureCodes | None:
    """The images that a network was tuned on, as its file tells; None where it does not, or is not there."""
    path = os.fspath(source)
    if not os.path.isfile(path):
        return None
    content = onnx_files.stated(onnx_files.read(path), path, onnx_files.IMAGES_KEY)
    return PictureCodes.from_dict(content, path) if content else None


def untuned(name: str, backbone: str | os.PathLike[str]) -> str | None:
    """What describes windows, where no images have tuned it: a network as it comes, or HOG; None for all others.

    Parameters
    ----------
    name : of the descriptor, "cnn" or "hog".
    backbone : its network.
    """
    if name != "cnn":
        return name
    path = os.fspath(backbone)
    return path if path in pretrained.PRETRAINED else None


def choose_providers(device: str) -> list[Any]:
    """What onnxruntime is to compute with, first choice first."""
    available = optional_module("onnxruntime").get_available_providers()
    has_gpu = "CUDAExecutionProvider" in available
    if device == "cuda" and not has_gpu:
        raise InputError(
            "`device` is 'cuda', but this onnxruntime has no CUDA: pip install onnxruntime-gpu in its place"
        )
    if device == "cpu" or not has_gpu:
        return ["CPUExecutionProvider"]
    exact = {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}  # so that both devices may share a cache
    return [("CUDAExecutionProvider", exact), "CPUExecutionProvider"]


def _stated(model: Any, name: str) -> tuple[Normalisation, int]:
    """Normalisation and input size that a file states; torchvision's where it states none."""
    facts = onnx_files.stated(model, name)
    size = facts.get("input_size", 224)
    try:
        check_number(size, "input_size", minimum=1, integer=True)
        known = {key: facts[key] for key in ("mean", "std", "channel_order") if key in facts}
        return Normalisation(**known), int(size)
    except (InputError, TypeError) as error:
        raise InputError(f"{name} states something about itself that cannot be: {error}") from error


def _checked_path(source: str | os.PathLike[str]) -> str:
    path = os.fspath(source)
    if not os.path.isfile(path):
        known = ", ".join(map(repr, pretrained.PRETRAINED))
        raise InputError(f"`backbone` must be {known} or the path of an ONNX file, got {path!r}")
    return path
