"""Networks for the tests: the installed weights, a tiny AlexNet, and a network with noise for weights."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eesvm.descriptors.onnx_builder import build_efficientnet
from eesvm.descriptors.pretrained import PRETRAINED
from eesvm.descriptors.torch_weights import read_torch_weights


def weights_file(name):
    network = PRETRAINED[name]
    return Path(pytest.importorskip(network.package).__file__).parent / "models" / network.file_name


def small_network(path, n=None, side=None, kind=TensorProto.FLOAT, width=4096):
    """Convolution, mean, 4096 numbers, ReLU: an AlexNet in miniature, with a dead branch."""
    random = np.random.default_rng(0)
    constants = {
        "kernel": random.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "fc": random.normal(size=(8, width)).astype(np.float32),
        "unused": np.zeros(7, np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["data", "kernel"], ["conv1"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["conv1"], ["pool"]),
        helper.make_node("Flatten", ["pool"], ["flat"]),
        helper.make_node("MatMul", ["flat", "fc"], ["fc6"]),
        helper.make_node("Relu", ["fc6"], ["fc7"]),
        helper.make_node("Sigmoid", ["fc7"], ["prob"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("data", kind, [n or "n", 3, side or "h", side or "w"])],
        [helper.make_tensor_value_info("prob", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return constants


def small_forward(constants, batch):
    """conv1 and fc7 of the small network, by loops."""
    padded = np.pad(batch.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    n, _, height, width = batch.shape
    conv = np.zeros((n, 8, (height + 1) // 2, (width + 1) // 2))
    for y in range(conv.shape[2]):
        for x in range(conv.shape[3]):
            patch = padded[:, :, 2 * y : 2 * y + 3, 2 * x : 2 * x + 3]
            conv[:, :, y, x] = np.einsum("nikl,oikl->no", patch, constants["kernel"])
    return conv, np.maximum(conv.mean(axis=(2, 3)) @ constants["fc"], 0)


def random_network(path):
    """The same network with noise for weights, each layer keeping the size of what goes through it."""
    random = np.random.default_rng(0)
    weights = read_torch_weights(weights_file("lite0"))
    for name, values in weights.items():
        if values.ndim > 1:
            weights[name] = random.normal(0, np.sqrt(2 / np.prod(values.shape[1:])), values.shape).astype(np.float32)
        elif name.endswith(("running_mean", "bias")):
            weights[name] = np.zeros_like(values)
        elif name.endswith(("running_var", "weight")):
            weights[name] = np.ones_like(values)
    path.write_bytes(build_efficientnet(weights, 1.0, "random").SerializeToString())


def small_transformer(path, patch=14, n_before=1, side=None, d=8, is_cut_by_convolution=True):
    """One block of a vision transformer in DINOv2's or CLIP's shape, with noise for weights.

    Patches by a convolution, `n_before` tokens before them, attention with one head, a residual: `tokens` is (n, t, d).
    `embedding`, CLIP's row a picture, is made of the first token.
    """
    random = np.random.default_rng(patch)
    kernel = random.normal(size=(d, 3, patch, patch)).astype(np.float32) / patch
    constants = {
        "kernel": kernel,
        "before": random.normal(size=(1, n_before, d)).astype(np.float32),
        "query": random.normal(size=(d, d)).astype(np.float32) / 4,
        "value": random.normal(size=(d, d)).astype(np.float32) / 4,
        "flat": np.array([0, d, -1], np.int64),
        "zero": np.array(0, np.int64),
    }
    strides = [patch, patch]
    nodes = [
        helper.make_node("Conv", ["pixels", "kernel"], ["patches"], strides=strides, kernel_shape=strides),
        helper.make_node("Reshape", ["patches", "flat"], ["columns"]),
        helper.make_node("Transpose", ["columns"], ["places"], perm=[0, 2, 1]),
        helper.make_node("Shape", ["pixels"], ["n"], start=0, end=1),
        helper.make_node("Concat", ["n", "ones"], ["often"], axis=0),
        helper.make_node("Expand", ["before", "often"], ["prefix"]),
        helper.make_node("Concat", ["prefix", "places"], ["embedded"], axis=1),
        helper.make_node("MatMul", ["embedded", "query"], ["asked"]),
        helper.make_node("Transpose", ["embedded"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["asked", "turned"], ["likeness"]),
        helper.make_node("Softmax", ["likeness"], ["attention"], axis=2),
        helper.make_node("MatMul", ["embedded", "value"], ["values"]),
        helper.make_node("MatMul", ["attention", "values"], ["mixed"]),
        helper.make_node("Add", ["embedded", "mixed"], ["tokens"]),
        helper.make_node("Gather", ["tokens", "zero"], ["embedding"], axis=1),
    ]
    constants["ones"] = np.array([1, 1], np.int64)
    if not is_cut_by_convolution:  # the same numbers by cutting and a matrix, as some exporters have it
        rows = side // patch
        constants |= {
            "cut": np.array([-1, 3, rows, patch, rows, patch], np.int64),
            "line": np.array([-1, rows * rows, 3 * patch * patch], np.int64),
            "matrix": np.ascontiguousarray(kernel.reshape(d, -1).T),
        }
        nodes[:3] = [
            helper.make_node("Reshape", ["pixels", "cut"], ["cells"]),
            helper.make_node("Transpose", ["cells"], ["ordered"], perm=[0, 2, 4, 1, 3, 5]),
            helper.make_node("Reshape", ["ordered", "line"], ["lines"]),
            helper.make_node("MatMul", ["lines", "matrix"], ["places"]),
        ]
    graph = helper.make_graph(
        nodes,
        "transformer",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, side or "h", side or "w"])],
        [helper.make_tensor_value_info("tokens", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return constants
