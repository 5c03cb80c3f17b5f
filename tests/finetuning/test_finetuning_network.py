"""EfficientNet-Lite in torch, the classifier on top of it, and both as ONNX."""

import copy
from dataclasses import replace
from functools import cache

import numpy as np
import onnx
import onnxruntime
import pytest

from eesvm import InputError
from eesvm.descriptors import make_descriptor, onnx_files
from eesvm.descriptors.backbones import Backbone, Normalisation
from eesvm.descriptors.pretrained import PRETRAINED, pretrained_model
from eesvm.descriptors.torch_weights import read_torch_weights
from helpers.finetuning_help import one_thread_of_torch, quick_options, tiny_network
from helpers.network_files import weights_file

torch = one_thread_of_torch()

from eesvm.finetuning.efficientnet_torch import EfficientNetLite, WindowClassifier, body_dimension, body_parts  # noqa: E402
from eesvm.finetuning.export import check_outputs, export_onnx  # noqa: E402
from eesvm.finetuning.options import FinetuneOptions  # noqa: E402
from eesvm.finetuning.starts import make_classifier, start_from  # noqa: E402
from eesvm.finetuning.training import _optimiser, learning_rate  # noqa: E402

TORCHVISION = Normalisation()
LITE = Normalisation((127.0,) * 3, (128.0,) * 3)


def outputs(content, layers, picture):
    model = onnx_files.only_layers(onnx_files.parse(content, "it"), layers, "it")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return dict(zip(layers, session.run(layers, {session.get_inputs()[0].name: picture}), strict=True))


def picture(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def near(found, expected):
    """Equal to 1e-3 of the largest number."""
    np.testing.assert_allclose(found, expected, atol=1e-3 * max(1.0, np.abs(expected).max()), rtol=0)


def lite0(n_classes=4, hidden=None):
    return make_classifier(start_from(quick_options()), n_classes, quick_options(hidden=hidden)).eval()


@cache
def exported(hidden=None):
    """A classifier whose weights have moved, and its ONNX model."""
    classifier = lite0(hidden=hidden)
    with torch.no_grad():
        for k, parameter in enumerate(classifier.parameters()):
            parameter.mul_(1 + 0.01 * (k % 5))
    return classifier, export_onnx(classifier, 1.0, LITE, 64, "it")


# -- the network


@pytest.mark.parametrize("name", list(PRETRAINED))
def test_torch_and_the_converted_network_agree(name):
    known, weights = PRETRAINED[name], read_torch_weights(weights_file(name))
    body = EfficientNetLite(weights, known.depth).eval()
    x = picture(1, 3, 43, 50)  # odd and even sides: both ways of padding a stride
    maps, blocks = {}, [block for part in body.parts()[1:-1] for block in part]
    places = {
        "stride_16": len(blocks) - 1 - len(body.parts()[-2]) - len(body.parts()[-3]),
        "stride_32": len(blocks) - 1,
    }
    for layer, k in places.items():
        blocks[k].register_forward_hook(lambda module, given, made, layer=layer: maps.update({layer: made}))
    with torch.no_grad():
        maps["head"] = body(torch.from_numpy(x))
    found = outputs(pretrained_model(known), ["stride_16", "stride_32", "head", "logits"], x)
    for layer, values in maps.items():
        near(found[layer], values.numpy())
    near(found["logits"], maps["head"].numpy().mean((2, 3)) @ weights["_fc.weight"].T + weights["_fc.bias"])


def test_weights_keep_their_names():
    weights = read_torch_weights(weights_file("lite0"))
    state = EfficientNetLite(weights, 1.0).state_dict()
    assert set(state) == {name for name in weights if not name.startswith("_fc.")}
    for name, tensor in state.items():
        np.testing.assert_array_equal(tensor.numpy(), weights[name])
    del weights["_blocks.3._bn1.weight"]
    with pytest.raises(InputError, match=r"the weights have no entry '_blocks\.3\._bn1\.weight'"):
        EfficientNetLite(weights, 1.0)


def test_new_layers_start_the_same_whatever_torch_has_drawn():
    start = start_from(quick_options())
    first = make_classifier(start, 3, quick_options(hidden=16))
    torch.manual_seed(77)
    second = make_classifier(start, 3, quick_options(hidden=16))
    other = make_classifier(start, 3, quick_options(hidden=16, random_state=1))
    for a, b, c in zip(first.new_layers(), second.new_layers(), other.new_layers(), strict=True):
        assert torch.equal(a.weight, b.weight)
        assert not torch.equal(a.weight, c.weight)
    assert [layer.weight.shape for layer in first.new_layers()] == [(16, 1280), (3, 16)]


@pytest.mark.parametrize("hidden", [1024, 4096])
def test_a_hidden_layer_hands_on_vectors_as_long_as_it_gets(hidden):
    classifier = WindowClassifier(torch.nn.Identity(), 1280, 3, hidden).eval()
    classifier.start(0)
    given = torch.randn(20, 1280, generator=torch.Generator().manual_seed(1)).abs()
    with torch.no_grad():
        ratio = classifier.layers(given)["hidden"].norm(dim=1) / given.norm(dim=1)
    np.testing.assert_allclose(ratio.numpy(), 1.0, atol=0.2)


@pytest.mark.parametrize("hidden", [None, 4096])
@pytest.mark.long
def test_the_default_steps_learn_what_is_easy(hidden):
    options = FinetuneOptions(hidden=hidden)
    classifier = WindowClassifier(torch.nn.Identity(), 1280, 4, hidden, options.dropout).train()
    classifier.start(0)
    optimiser = _optimiser(classifier, options)
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(4, 1280, generator=generator).abs() * 0.4  # about as long as descriptors of the network
    n_batches, losses = 60, []
    for number in range(n_batches):
        labels = torch.arange(128) % 4
        batch = (centres[labels] + 0.3 * torch.randn(128, 1280, generator=generator)).relu()
        for group in optimiser.param_groups:
            group["lr"] = group["factor"] * learning_rate(number, n_batches, options.learning_rate)
        loss = torch.nn.functional.cross_entropy(classifier(batch), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert np.mean(losses[-5:]) < 0.1
    assert max(losses) < 10 * losses[0], "steps that are too large shoot far beyond the aim first"


@pytest.mark.parametrize("stages", [None, 0, 2, 9])
def test_only_the_last_stages_are_trained(stages):
    classifier = make_classifier(start_from(quick_options()), 3, quick_options(stages=stages))
    flags = [
        any(p.requires_grad for module in part for p in module.parameters()) for part in body_parts(classifier.body)
    ]
    n = 9 if stages is None else stages
    assert flags == [False] * (9 - n) + [True] * n
    assert all(p.requires_grad for layer in classifier.new_layers() for p in layer.parameters())


def test_more_stages_than_there_are():
    with pytest.raises(InputError, match="`stages` must be <= 9, which is how many this network has, got 10"):
        make_classifier(start_from(quick_options()), 3, quick_options(stages=10))
    with pytest.raises(InputError, match="`stages` must be <= 2, which is how many this network has, got 3"):
        make_classifier(start_from(quick_options(), tiny_network(torch)), 3, quick_options(stages=3))


# -- ONNX


@pytest.mark.parametrize("hidden", [None, 32])
def test_onnx_gives_what_torch_gives(hidden):
    classifier, content = exported(hidden)
    layers = ["head", "features", "logits"] + ["hidden"] * (hidden is not None)
    for x in (picture(3, 3, 64, 64), picture(1, 3, 128, 224, seed=1)):  # crops, and a whole image
        with torch.no_grad():
            expected = classifier.layers(torch.from_numpy(x))
        found = outputs(content, layers, x)
        for layer in layers:
            near(found[layer], expected["map" if layer == "head" else layer].numpy())
    assert outputs(content, ["logits"], x)["logits"].shape == (1, 4)


def test_the_file_says_how_it_wants_to_be_fed(tmp_path):
    path = tmp_path / "it.onnx"
    path.write_bytes(exported(32)[1])
    image = np.random.default_rng(0).integers(0, 256, (80, 120, 3)).astype(np.uint8)
    crop, pooled = make_descriptor(mode="crop", backbone=path), make_descriptor(backbone=path)
    assert crop.backbone.normalisation == LITE
    assert crop.backbone.input_size == (64, 64)
    assert crop.backbone.layers == ("hidden",)
    assert crop.describe(image, [[10, 10, 60, 70]]).shape == (1, 32)
    assert pooled.describe(image, [[10, 10, 60, 70]]).shape == (1, 2288)
    assert make_descriptor(mode="crop", backbone=path, layer="features").dimension == 1280


def test_a_trained_network_that_has_not_changed_describes_as_before(tmp_path):
    path = tmp_path / "it.onnx"
    path.write_bytes(export_onnx(lite0(), 1.0, LITE, 224, "it"))
    image = np.random.default_rng(0).integers(0, 256, (90, 120, 3)).astype(np.uint8)
    windows = [[10, 10, 60, 70], [0, 0, 120, 90]]
    for mode in ("pooled", "crop"):
        near(
            make_descriptor(mode=mode, backbone=path).describe(image, windows),
            make_descriptor(mode=mode).describe(image, windows),
        )


def test_a_statement_that_cannot_be_is_refused(tmp_path):
    content = exported()[1]
    for text, message in (
        ("{", "has metadata 'eesvm' that cannot be read"),
        ('{"std": [1, 0, 1]}', "states something about itself that cannot be: `std` must be > 0, got 0"),
        ('{"input_size": -3}', "states something about itself that cannot be: `input_size` must be >= 1, got -3"),
    ):
        model = onnx.load_from_string(content)
        onnx.helper.set_model_props(model, {onnx_files.METADATA_KEY: text})
        onnx.save(model, tmp_path / "x.onnx")
        with pytest.raises(InputError, match=message):
            Backbone(tmp_path / "x.onnx", ["features"])
    onnx.helper.set_model_props(model, {onnx_files.METADATA_KEY: '{"layers": 3}'})
    onnx.save(model, tmp_path / "x.onnx")
    with pytest.raises(InputError, match="`layer` must be given for a backbone from a file"):
        make_descriptor(backbone=tmp_path / "x.onnx")


def test_a_wrong_model_is_never_written():
    right, content = exported()
    wrong = copy.deepcopy(right)
    with torch.no_grad():
        wrong._fc.weight.add_(0.1)
    assert check_outputs(content, right, 64) < 1e-3
    with pytest.raises(InputError, match="the exported network is wrong: its layer 'logits' differs from torch's by"):
        check_outputs(content, wrong, 64)


# -- modules of the caller's


@pytest.mark.parametrize("hidden", [None, 12])
def test_a_given_module_as_onnx(tmp_path, hidden):
    classifier = WindowClassifier(tiny_network(torch), 8, 3, hidden).eval()
    path = tmp_path / "given.onnx"
    path.write_bytes(export_onnx(classifier, 1.0, TORCHVISION, 64, "given"))
    layers = ["map", "features", "logits"] + ["hidden"] * (hidden is not None)
    for x in (picture(3, 3, 64, 64), picture(1, 3, 96, 200)):
        with torch.no_grad():
            expected = classifier.layers(torch.from_numpy(x))
        found = outputs(path.read_bytes(), layers, x)
        for layer in layers:
            near(found[layer], expected[layer].numpy())
    assert make_descriptor(backbone=path).dimension == 8
    assert make_descriptor(mode="crop", backbone=path).dimension == (hidden or 8)


def test_a_given_module_of_fixed_size(tmp_path):
    body = torch.nn.Sequential(tiny_network(torch), torch.nn.Flatten(), torch.nn.Linear(8 * 8 * 8, 20))
    assert body_dimension(body, 64) == 20
    path = tmp_path / "fixed.onnx"
    path.write_bytes(export_onnx(WindowClassifier(body, 20, 3).eval(), 1.0, TORCHVISION, 64, "fixed"))
    backbone = Backbone(path, ["features"])
    assert backbone.is_fixed
    assert backbone.input_size == (64, 64)
    with pytest.raises(InputError, match="`layer` must be given"):  # it gives no map to pool from
        make_descriptor(backbone=path)


def test_modules_that_do_not_fit():
    with pytest.raises(InputError, match="`module` must be a torch module, got str"):
        start_from(quick_options(), "resnet")
    with pytest.raises(InputError, match=r"`module` fails on pictures of shape \(1, 3, 64, 64\): "):
        body_dimension(torch.nn.Linear(3, 3), 64)
    with pytest.raises(InputError, match=r"`module` must give \(n, d\) or a map \(n, d, h, w\) .*, got \(1, 3, 4096\)"):
        body_dimension(torch.nn.Flatten(2), 64)
    with pytest.raises(InputError, match="`normalisation` is of a module that is given"):
        start_from(quick_options(), None, TORCHVISION)
    with pytest.raises(InputError, match="`network` must be one of 'lite0', 'lite1', 'lite2', got 'resnet'"):
        start_from(quick_options(network="resnet"))


def test_a_module_with_the_same_weights_and_another_code_is_another_start():
    class Doubling(torch.nn.Module):
        def __init__(self, body):
            super().__init__()
            self.body = body

        def forward(self, pictures):
            return 2 * self.body(pictures)

    Halving = type("Halving", (Doubling,), {"forward": lambda self, pictures: self.body(pictures) / 2})
    smooth = tiny_network(torch)
    smooth[1] = torch.nn.GELU()
    bodies = [tiny_network(torch), smooth, Doubling(tiny_network(torch)), Halving(tiny_network(torch))]
    digests = [start_from(quick_options(), body).digest for body in bodies]
    assert len(set(digests)) == 4
    assert digests[0] == start_from(quick_options(), tiny_network(torch)).digest


def test_weights_that_are_not_the_known_ones_are_not_trained(monkeypatch):
    monkeypatch.setitem(PRETRAINED, "lite0", replace(PRETRAINED["lite0"], sha256="0" * 64))
    with pytest.raises(InputError, match="are not the known ones"):
        start_from(quick_options())
