"""The trained network as an ONNX file that `Backbone` takes like any other.

In: a `WindowClassifier`. Out: the bytes of an ONNX model with named layers, any number of pictures of any size, and a
statement of how to feed it: normalisation, size of a crop, and the layers that pooled and crop mode take unless told
otherwise. EfficientNet-Lite goes through `descriptors.onnx_builder` and has the layer names of the published network;
another module goes through torch's own exporter and has `map` (where it gives one), `features`, `hidden` and `logits`.
Before anything is written the model has to give what torch gives, on a crop and on a larger picture.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import torch
from torch import nn

from eesvm._support.extras import optional_module
from eesvm._support.validation import InputError
from eesvm.datasets.roles import PictureCodes
from eesvm.descriptors import onnx_files
from eesvm.descriptors.backbones import Normalisation
from eesvm.descriptors.cnn import LITE_LEVELS
from eesvm.descriptors.onnx_builder import build_efficientnet
from eesvm.finetuning.efficientnet_torch import BODY, EfficientNetLite, WindowClassifier

TOLERANCE = 1e-3  # between torch and ONNX, times the largest number of the layer where that is more than 1
_LARGER = 96  # pixels that the larger picture has more than a crop
_OPSET = 17


def export_onnx(
    classifier: WindowClassifier,
    depth: float,
    normalisation: Normalisation,
    input_size: int,
    name: str,
    images: PictureCodes | None = None,
) -> bytes:
    """The model, checked against torch; `depth` is that of EfficientNet-Lite and ignored for other bodies.

    `images` are those it was tuned on: the file holds codes by which they are recognised later.
    """
    was_training, device = classifier.training, next(classifier.parameters()).device
    classifier = classifier.to("cpu").eval()
    try:
        with torch.no_grad():
            model = _model(classifier, depth, input_size, name)
            facts = stated_facts(classifier, normalisation, input_size)
            onnx_files.state(model, facts, None if images is None else images.as_dict())
            content = model.SerializeToString()
            check_outputs(content, classifier, input_size)
    finally:
        classifier.to(device).train(was_training)
    return content


def stated_facts(classifier: WindowClassifier, normalisation: Normalisation, input_size: int) -> dict[str, Any]:
    """How the model wants to be fed, and which layers describe windows."""
    layers = {"crop": "hidden" if len(classifier.new_layers()) > 1 else "features"}
    if isinstance(classifier.body, EfficientNetLite):
        layers["pooled"] = LITE_LEVELS
    elif "map" in _layers(classifier, input_size, input_size):
        layers["pooled"] = "map@1"
    return {
        "mean": list(normalisation.mean),
        "std": list(normalisation.std),
        "channel_order": normalisation.channel_order,
        "input_size": input_size,
        "layers": layers,
    }


def check_outputs(content: bytes, classifier: WindowClassifier, input_size: int) -> float:
    """Run fixed pictures through both; refuse a model that gives something else than torch. The largest difference."""
    larger = input_size + _LARGER
    shapes = [(2, input_size, input_size)]
    if takes_any_size(classifier.body, input_size):
        shapes.append((1, larger, 2 * larger))
    names = list(_layers(classifier, input_size, input_size))
    model = onnx_files.only_layers(onnx_files.parse(content, "the model"), names, "the model")
    session = optional_module("onnxruntime").InferenceSession(model, providers=["CPUExecutionProvider"])
    worst = 0.0
    for n, height, width in shapes:
        found = session.run(names, {"image": _picture(n, height, width).numpy()})
        expected = _layers(classifier, height, width, n)
        for layer, values in zip(names, found, strict=True):
            wanted = expected[layer].numpy()
            wrong = float(np.abs(values - wanted).max()) / max(1.0, float(np.abs(wanted).max()))
            if not wrong <= TOLERANCE:
                raise InputError(
                    f"the exported network is wrong: its layer {layer!r} differs from torch's by {wrong:.3g}"
                )
            worst = max(worst, wrong)
    return worst


def takes_any_size(body: nn.Module, input_size: int) -> bool:
    """Whether a body runs on pictures of another size than a crop's."""
    if isinstance(body, EfficientNetLite):
        return True
    try:
        with torch.no_grad():
            body(_picture(1, input_size + _LARGER, 2 * (input_size + _LARGER)))
    except (RuntimeError, ValueError, IndexError):
        return False
    return True


def _model(classifier: WindowClassifier, depth: float, input_size: int, name: str) -> Any:
    if isinstance(classifier.body, EfficientNetLite):
        weights = {
            entry.removeprefix(BODY): tensor.detach().contiguous().numpy()
            for entry, tensor in classifier.state_dict().items()
        }
        return build_efficientnet(weights, depth, name)
    return _traced(classifier, input_size)


def _traced(classifier: WindowClassifier, input_size: int) -> Any:
    """A module of the caller's, written by torch: sides are free where it runs on pictures of any size."""
    names = list(_layers(classifier, input_size, input_size))
    free = {0: "n"} | ({2: "height", 3: "width"} if takes_any_size(classifier.body, input_size) else {})
    content = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch announces its next exporter, which needs one more package
            torch.onnx.export(
                _AllLayers(classifier).eval(),  # torch gives it back in the mode it found it in
                (_picture(2, input_size, input_size),),
                content,
                input_names=["image"],
                output_names=names,
                dynamic_axes={"image": free},
                opset_version=_OPSET,
                dynamo=False,
            )
    except Exception as error:  # torch's own kinds, and whatever the module raises while it is traced
        raise InputError(f"torch cannot write this module as ONNX: {onnx_files.one_line(error)}") from error
    return onnx_files.parse(content.getvalue(), "what torch wrote")


class _AllLayers(nn.Module):
    """The layers as a tuple, which is what an ONNX graph has for outputs."""

    def __init__(self, classifier: WindowClassifier) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.classifier.layers(image).values())


def _layers(classifier: WindowClassifier, height: int, width: int, n: int = 1) -> dict[str, torch.Tensor]:
    """What torch gives for a fixed picture, by the names that the layers have in ONNX."""
    with torch.no_grad():
        found = classifier.layers(_picture(n, height, width))
    if isinstance(classifier.body, EfficientNetLite):
        found = {"head" if name == "map" else name: layer for name, layer in found.items()}
    return found


def _picture(n: int, height: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn((n, 3, height, width), generator=generator)
