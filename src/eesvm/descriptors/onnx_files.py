"""ONNX graphs: reading one, and cutting out the part that computes given layers.

In: a file or its bytes. Out: a model whose outputs are the layers that were asked for and nothing else. Any tensor of
the graph can become an output; nodes and constants that no layer needs are dropped, because the runtime would
otherwise compute them on every run. A file may state how it wants to be fed, under the key `eesvm` of its metadata.
Not here: running. That is the business of `backbones`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eesvm._support.extras import optional_module
from eesvm._support.validation import InputError

METADATA_KEY = "eesvm"
IMAGES_KEY = "eesvm.images"  # codes of the images that the network was tuned on

_FLOAT32 = 1  # TensorProto.FLOAT
_MOST_NAMES = 60  # in an error; a large network has thousands of tensors


def read(path: str) -> Any:
    """The model in the file `path`, with tensors that are stored beside it."""
    try:
        with open(path, "rb") as handle:
            model = parse(handle.read(), path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    helper = optional_module("onnx.external_data_helper")
    try:
        helper.load_external_data_for_model(model, os.path.dirname(os.path.abspath(path)))
    except Exception as error:  # onnx raises its own kinds, and those of the file system
        raise InputError(f"cannot read the tensors that belong to {path}: {one_line(error)}") from error
    return model


def parse(content: bytes, name: str) -> Any:
    """The model in the bytes `content`; `name` is for errors."""
    onnx = optional_module("onnx")
    try:
        model = onnx.load_from_string(content)
    except Exception as error:  # protobuf's own kind
        raise InputError(f"{name} is not an ONNX file: {one_line(error)}") from error
    if not model.graph.node:  # almost any few bytes are some protobuf message
        raise InputError(f"{name} is not an ONNX file: it has no graph")
    return model


def graph_digest(model: Any) -> str:
    """A hash of the graph and all its tensors."""
    return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()


def state(model: Any, facts: Mapping[str, Any], images: Mapping[str, Any] | None = None) -> None:
    """Write into `model` how it wants to be fed: mean, std, channel_order, input_size, and layers by mode.

    `images` are codes of the images that it was tuned on, see `PictureCodes.as_dict`.
    """
    entries = {METADATA_KEY: json.dumps(facts, sort_keys=True)}
    if images is not None:
        entries[IMAGES_KEY] = json.dumps(images, sort_keys=True)
    optional_module("onnx").helper.set_model_props(model, entries)


def stated(model: Any, name: str, key: str = METADATA_KEY) -> dict[str, Any]:
    """What `state` wrote into the file under a key; nothing for files from elsewhere."""
    text = next((entry.value for entry in model.metadata_props if entry.key == key), "{}")
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise InputError(f"{name} has metadata {key!r} that cannot be read")
    return facts


def check_input(model: Any, name: str) -> tuple[str, int | None, tuple[int | None, int | None]]:
    """Name of the one input, its batch size and its sides; None is any."""
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    if len(inputs) != 1:
        raise InputError(f"{name} must have one input, got {len(inputs)}: {', '.join(value.name for value in inputs)}")
    kind = inputs[0].type.tensor_type
    sizes = [size.dim_value if size.HasField("dim_value") and size.dim_value > 0 else None for size in kind.shape.dim]
    if kind.elem_type != _FLOAT32 or len(sizes) != 4 or sizes[1] not in (3, None):
        shape = ", ".join("?" if size is None else str(size) for size in sizes)
        raise InputError(f"{name} must take float32 images of shape (n, 3, height, width), its input is ({shape})")
    if (sizes[2] is None) != (sizes[3] is None):
        raise InputError(f"{name} must fix both sides of its images or none")
    return inputs[0].name, sizes[0], (sizes[2], sizes[3])


def only_layers(model: Any, layers: Sequence[str], name: str) -> bytes:
    """The part of `model` that computes `layers`, with them as its outputs, serialised."""
    onnx = optional_module("onnx")
    makers = {output: node for node in model.graph.node for output in node.output if output}
    if not layers:
        raise InputError("`layers` must name at least one layer")
    for layer in layers:
        if layer not in makers:
            raise InputError(f"{name} has no layer {layer!r}; it has {_listed(list(makers), layer)}")
    needed = {id(node) for node in _ancestors(makers, layers)}
    nodes = [node for node in model.graph.node if id(node) in needed]
    used = {value for node in nodes for value in _values_read(node)}
    part = onnx.ModelProto()
    part.CopyFrom(model)
    for field, kept in (
        ("node", nodes),
        ("initializer", [tensor for tensor in model.graph.initializer if tensor.name in used]),
        ("output", [onnx.ValueInfoProto(name=layer) for layer in dict.fromkeys(layers)]),
    ):
        del getattr(part.graph, field)[:]
        getattr(part.graph, field).extend(kept)
    return part.SerializeToString()


def one_line(error: Exception) -> str:
    """The message of an error, short and without line breaks."""
    return " ".join(str(error).split())[:300]


def _ancestors(makers: dict[str, Any], layers: Sequence[str]) -> Iterator[Any]:
    """The nodes that `layers` depend on."""
    open_names, seen = list(layers), set(layers)
    while open_names:
        node = makers.get(open_names.pop())
        if node is None:
            continue
        yield node
        new = [value for value in _values_read(node) if value not in seen]
        seen.update(new)
        open_names.extend(new)


def _values_read(node: Any) -> Iterator[str]:
    """Names of what a node reads, also from inside its branches and loops."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _values_read(inner)
            yield from (value.name for value in graph.output)


def _listed(names: list[str], wanted: str) -> str:
    """The names, in full if they are few; else similar ones first, then the last ones, where most layers of use are."""
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    close = difflib.get_close_matches(wanted, names, n=10, cutoff=0.6)
    rest = [name for name in reversed(names) if name not in close][: _MOST_NAMES - len(close)]
    return f"{', '.join(close + rest)} and {len(names) - _MOST_NAMES} more"
