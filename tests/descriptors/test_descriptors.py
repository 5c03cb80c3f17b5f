"""Descriptors: resampling, pooling, layouts, scaling and PCA against slow versions; classes come apart."""

import copy
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_sample_images
from sklearn.decomposition import PCA as SklearnPCA
from sklearn.svm import LinearSVC

from eesvm import InputError
from eesvm.datasets import open_dataset
from eesvm.descriptors import (
    PCA,
    Backbone,
    Descriptor,
    KernelMap,
    MeanNormScaler,
    Normalisation,
    PooledCNN,
    Transformed,
    make_descriptor,
)
from eesvm.descriptors.cnn import Level, MapMemory, parse_levels, with_context
from eesvm.descriptors.pooling import integral_map, pool_windows
from eesvm.descriptors.resampling import resample
from helpers.dataset_files import real_data
from helpers.examples import many
from helpers.network_files import random_network, small_network

CHINA, FLOWER = load_sample_images().images
LITE = Normalisation((127.0,) * 3, (128.0,) * 3)


@pytest.fixture(scope="module", autouse=True)
def cache_folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EESVM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def pooled():
    return make_descriptor()


def random_boxes(n, width, height, seed=0):
    random = np.random.default_rng(seed)
    x, y = (np.sort(random.uniform(0, side, (n, 2)), axis=1) for side in (width, height))
    return np.stack([x[:, 0], y[:, 0], x[:, 1], y[:, 1]], axis=1)


# -- resampling


@pytest.mark.parametrize(
    ("box", "height", "width"),
    [
        ((10.3, 20.7, 300.2, 150.9), 64, 48),
        ((0, 0, 640, 427), 100, 150),
        ((5, 5, 25.5, 18), 50, 70),
        ((600, 400, 640, 427), 32, 200),
        ((100, 100, 101, 101), 9, 9),
    ],
)
def test_windows_inside_the_image_are_resampled_as_pillow_does(box, height, width):
    found = resample(CHINA, np.array([box], float), height, width)[0]
    for channel in range(3):
        layer = Image.fromarray(CHINA[:, :, channel].astype(np.float32))
        expected = layer.resize((width, height), Image.Resampling.BILINEAR, box=box)
        np.testing.assert_allclose(found[:, :, channel], np.asarray(expected), atol=2e-3)


def slow_resample(image, box, height, width, fill):
    """Every source pixel has a weight in every target pixel; the two axes are two dense matrices."""
    rows = np.array([slow_axis(image.shape[0], box[1], box[3], height, y) for y in range(height)])
    columns = np.array([slow_axis(image.shape[1], box[0], box[2], width, x) for x in range(width)])
    out = np.einsum("yi,ijc,xj->yxc", rows, image.astype(float), columns, optimize=True)
    out[rows.sum(axis=1) == 0] = fill
    out[:, columns.sum(axis=1) == 0] = fill
    return out


def slow_axis(n, start, stop, n_out, k):
    """Weight of every source pixel for target pixel k; zeros where its centre is outside."""
    step = (stop - start) / n_out
    centre = start + (k + 0.5) * step
    if not 0 <= centre < n:
        return np.zeros(n)
    weights = np.maximum(1 - np.abs(np.arange(n) + 0.5 - centre) / max(step, 1), 0)
    return weights / weights.sum()


@pytest.mark.parametrize("box", [(-8, -5, 20, 11), (3.2, 4.1, 30, 40), (-50, 2, -10, 9), (4, 4, 4.5, 4.5)])
def test_outside_the_image_is_fill(box):
    image = FLOWER[:24, :19]
    found = resample(image, np.array([box], float), 13, 17, (1.0, 2.0, 3.0))[0]
    np.testing.assert_allclose(found, slow_resample(image, box, 13, 17, (1.0, 2.0, 3.0)), atol=1e-3)


def test_without_fill_the_border_is_repeated():
    image = FLOWER[:24, :19]
    around = np.pad(image, [(30, 30), (30, 30), (0, 0)], mode="edge")
    box = np.array([[-10.0, -8.0, 29.0, 32.0]])
    np.testing.assert_allclose(resample(image, box, 40, 39)[0], resample(around, box + 30, 40, 39)[0], atol=1e-3)


# -- pooling


def slow_pooling(values, window, grid):
    """Means over grid cells, by the share of every cell of the map that lies inside."""
    height, width, channels = values.shape
    out = np.empty((grid, grid, channels))
    for i in range(grid):
        for j in range(grid):
            rows = slow_shares(height, window[1], window[3], grid, i)
            columns = slow_shares(width, window[0], window[2], grid, j)
            weights = np.outer(rows, columns)
            out[i, j] = (values * (weights / weights.sum())[:, :, None]).sum(axis=(0, 1))
    return out


def slow_shares(n, start, stop, grid, k):
    step = (stop - start) / grid
    low, high = start + k * step, start + (k + 1) * step
    low, high = min(max(low, 0), n), min(max(high, 0), n)
    if high - low < 1:  # at least one cell, around the same middle, inside the map
        middle = min(max((low + high) / 2, 0.5), n - 0.5)
        low, high = middle - 0.5, middle + 0.5
    return np.array([max(0.0, min(high, cell + 1) - max(low, cell)) for cell in range(n)])


coordinate = st.floats(-3, 15)


@settings(max_examples=many(150), deadline=None)
@given(
    st.integers(1, 9),
    st.integers(1, 12),
    st.integers(1, 4),
    st.lists(st.tuples(coordinate, coordinate, coordinate, coordinate), min_size=1, max_size=4),
)
def test_pooling_equals_loops(height, width, grid, corners):
    values = np.random.default_rng(height * 100 + width).normal(size=(height, width, 3)).astype(np.float32)
    corners = np.array(corners)
    windows = np.concatenate(
        [np.minimum(corners[:, :2], corners[:, 2:]), np.maximum(corners[:, :2], corners[:, 2:])], 1
    )
    found = pool_windows(integral_map(values), windows, grid, grid)
    for row, window in zip(found, windows, strict=True):
        np.testing.assert_allclose(row, slow_pooling(values, window, grid), atol=2e-5)


def test_pooling_a_window_of_one_cell_gives_that_cell():
    values = np.random.default_rng(0).normal(size=(5, 7, 4)).astype(np.float32)
    found = pool_windows(integral_map(values), np.array([[3.0, 2.0, 4.0, 3.0]]), 1, 1)
    np.testing.assert_allclose(found[0, 0, 0], values[2, 3], atol=1e-6)


# -- pooled mode


def slow_pooled(backbone, image, boxes, levels, size, power):
    """The documented layout, one window at a time."""
    height, width = image.shape[:2]
    factor = size / max(height, width)
    inner = max(1, round(height * factor)), max(1, round(width * factor))
    picture = np.full((1, -(-inner[0] // 32) * 32, -(-inner[1] // 32) * 32, 3), 127, np.float32)
    picture[0, : inner[0], : inner[1]] = resample(image, np.array([[0.0, 0, width, height]]), *inner)[0]
    shape = picture.shape[1:3]
    maps = dict(zip(backbone.layers, backbone(picture), strict=True))
    rows = []
    for box in boxes:
        row = []
        x1, x2 = np.clip(box[[0, 2]], 0, width) * inner[1] / width
        y1, y2 = np.clip(box[[1, 3]], 0, height) * inner[0] / height
        for layer, grid in levels:
            values = maps[layer][0].transpose(1, 2, 0)
            stride = shape[0] / values.shape[0]
            assert stride == shape[1] / values.shape[1]
            window = np.array([x1, y1, x2, y2]) / stride
            part = slow_pooling(values, window, grid).ravel()
            part = np.sign(part) * np.abs(part) ** power
            row.append(part / np.linalg.norm(part))
        rows.append(np.concatenate(row))
    return np.array(rows)


@pytest.mark.parametrize(
    ("image", "power"), [(CHINA, 0.5), (FLOWER[:90, :300], 1.0), (CHINA[:7, :5], 0.3), (CHINA[:1, :1], 0.5)]
)
def test_pooled_descriptor_equals_loops(image, power):
    levels = [Level("head", 1), Level("stride_16", 3), Level("head", 2)]
    backbone = Backbone("lite0", ["head", "stride_16"])
    descriptor = PooledCNN(backbone, levels, size=160, power=power)
    height, width = image.shape[:2]
    boxes = np.concatenate([random_boxes(6, width, height), [[0, 0, width, height], [-5, -5, 2, 2], [0, 0, 0, 0]]])
    expected = slow_pooled(backbone, image, boxes, levels, 160, power)
    found = descriptor.describe(image, boxes)
    assert found.shape == (len(boxes), descriptor.dimension)
    assert descriptor.dimension == 1280 + 9 * 112 + 4 * 1280
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_default_layout_is_as_documented(pooled):
    rows = pooled.describe(CHINA, random_boxes(20, 640, 427))
    assert rows.dtype == np.float32
    assert rows.shape == (20, 1280 + 9 * 112) == (20, pooled.dimension)
    np.testing.assert_allclose(np.linalg.norm(rows[:, :1280], axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(rows[:, 1280:], axis=1), 1, atol=1e-5)


def test_pooled_cells_lie_where_the_network_looks():
    """Spots on a photograph: the middle of their trace in a map is, on average, where they are.

    The padding at the bottom and right alone would shift it by half a cell; training has undone that.
    """
    backbone = Backbone("lite0", ["stride_16", "head"])
    random = np.random.default_rng(0)
    picture = FLOWER[None, 100:356, 150:406].astype(np.float32)
    plain = backbone(picture.copy())
    offsets = []
    for x, y in random.integers(96, 160, (40, 2)):
        spotted = picture.copy()
        spotted[0, y - 3 : y + 3, x - 3 : x + 3] = random.integers(0, 256, 3)
        for before, after in zip(plain, backbone(spotted), strict=True):
            trace = ((after - before)[0] ** 2).sum(axis=0)
            centres = (np.arange(len(trace)) + 0.5) * 256 / len(trace)
            offsets.append(
                [trace.sum(axis=0) @ centres / trace.sum() - x, trace.sum(axis=1) @ centres / trace.sum() - y]
            )
    mean = np.array(offsets).reshape(-1, 2, 2).mean(axis=0)
    assert (np.abs(mean) < 0.2 * np.array([[16], [32]])).all()


def test_order_and_company_of_windows_do_not_matter(pooled):
    boxes = random_boxes(30, 640, 427)
    rows = pooled.describe(CHINA, boxes)
    order = np.random.default_rng(0).permutation(30)
    np.testing.assert_array_equal(pooled.describe(CHINA, boxes[order]), rows[order])
    np.testing.assert_array_equal(pooled.describe(CHINA, boxes[3:4]), rows[3:4])


def test_windows_that_move_a_little_change_a_little(pooled):
    boxes = random_boxes(50, 640, 427)
    moved = pooled.describe(CHINA, boxes + 0.25)
    assert np.abs(moved - pooled.describe(CHINA, boxes)).max() < 0.1


def test_maps_are_remembered_for_one_more_look(pooled):
    images = np.random.default_rng(4).integers(0, 256, (3, 60, 80, 3), dtype=np.uint8)
    boxes = np.array([[0, 0, 80, 60], [10, 5, 40, 50.5]])
    expected = [pooled.describe(image, boxes) for image in images]
    with_memory, n_runs = copy.copy(pooled), []
    n_bytes = sum(one.nbytes for one in pooled.backbone(pooled._picture(images[0])))
    with_memory.memory = memory = MapMemory(2 * n_bytes)  # room for two of three
    backbone = copy.copy(pooled.backbone)
    backbone._run = lambda batch: n_runs.append(1) or pooled.backbone._run(batch)
    with_memory.backbone = backbone
    for image, rows in zip(images, expected, strict=True):
        assert (with_memory.describe(image, boxes) == rows).all()
    first = len(n_runs)
    memory.close()
    for image, rows in zip(images, expected, strict=True):
        assert (with_memory.describe(image, boxes) == rows).all()
    assert len(n_runs) - first == 1
    assert not memory._maps  # each was handed out once
    again = pickle.loads(pickle.dumps(memory))
    assert again.get(images[0], lambda image: pooled.backbone(pooled._picture(image)))[0].shape[0] == 1


def test_no_windows_are_no_rows(pooled):
    for descriptor in (pooled, make_descriptor(mode="crop"), make_descriptor("hog")):
        rows = descriptor.describe(CHINA, np.empty((0, 4)))
        assert rows.shape == (0, descriptor.dimension)
        assert rows.dtype == np.float32


# -- crop mode


@pytest.mark.parametrize("context", [0, 16])
def test_crops_equal_a_slow_warp(context):
    descriptor = make_descriptor(mode="crop", context=context, batch_size=2)
    image = FLOWER[:120, :150]
    boxes = np.array([[10, 20, 60, 90], [0, 0, 150, 120], [130.5, 100.2, 150, 120], [3, 3, 4, 4.0], [70, 5, 70, 5]])
    rows = descriptor.describe(image, boxes)
    assert rows.shape == (5, 1280)
    for k, (x1, y1, x2, y2) in enumerate(boxes):
        scale = 224 / (224 - 2 * context)
        half = np.maximum([x2 - x1, y2 - y1], 1) / 2 * scale
        centre = np.array([x1 + x2, y1 + y2]) / 2
        crop = slow_resample(image, [*(centre - half), *(centre + half)], 224, 224, (127, 127, 127))
        expected = descriptor.backbone(crop[None].astype(np.float32))[0][0]
        np.testing.assert_allclose(rows[k], expected, atol=5e-3)


def test_context_is_sixteen_pixels_of_the_warped_picture():
    (wide,) = with_context(np.array([[100.0, 50.0, 292.0, 146.0]]), (224, 224), 16)
    np.testing.assert_allclose(wide, [100 - 16, 50 - 8, 292 + 16, 146 + 8])  # 192 -> 192 px, 96 -> 192 px


def test_boxes_far_outside_cost_nothing():
    descriptor = make_descriptor(mode="crop")
    rows = descriptor.describe(CHINA, [[-1e9, -1e9, 1e9, 1e9], [0, 0, 640, 427]])
    np.testing.assert_array_equal(rows[0], rows[1])


# -- networks of users


def test_a_4096_dimensional_layer_of_a_file(tmp_path):
    small_network(tmp_path / "alex.onnx", side=33)
    descriptor = make_descriptor(mode="crop", backbone=tmp_path / "alex.onnx", layer="fc7", context=2)
    assert descriptor.dimension == 4096
    rows = descriptor.describe(CHINA, random_boxes(20, 640, 427))
    assert rows.shape == (20, 4096)
    assert len(np.unique(rows.round(3), axis=0)) == 20


def test_pooling_in_a_file_with_a_fixed_input_size(tmp_path):
    small_network(tmp_path / "alex.onnx", n=1, side=64)
    descriptor = make_descriptor(backbone=tmp_path / "alex.onnx", layer="conv1@2+conv1")
    assert descriptor.dimension == 8 * 4 + 8
    image = np.zeros((80, 160, 3), np.uint8)
    image[:, 80:] = 255
    left, right, whole = descriptor.describe(image, [[10, 10, 60, 60], [100, 10, 150, 60], [0, 0, 160, 80]])
    assert np.abs(left - right).max() > 0.1
    halves = whole[: 8 * 4].reshape(2, 2, 8)
    np.testing.assert_allclose(halves[1, 0], halves[0, 0], atol=0.1)
    assert np.abs(halves[0, 1] - halves[0, 0]).max() > 0.1


def test_a_layer_that_is_no_map_cannot_be_pooled(tmp_path):
    small_network(tmp_path / "alex.onnx")
    descriptor = make_descriptor(backbone=tmp_path / "alex.onnx", layer="fc7@2")
    with pytest.raises(InputError, match=r"layer 'fc7' of .*alex\.onnx is no feature map, its shape is \(1, 4096\)"):
        descriptor.describe(CHINA, [[0, 0, 9, 9]])


# -- one interface


@pytest.mark.parametrize("arguments", [{}, {"mode": "crop"}, {"name": "hog"}, {"name": "hog", "mode": "integral"}])
def test_interface(arguments):
    descriptor = make_descriptor(**arguments)
    assert isinstance(descriptor, Descriptor)
    rows = descriptor.describe(CHINA, [[10, 20, 200, 210], [300, 100, 420, 320]])
    assert rows.dtype == np.float32
    assert rows.shape == (2, descriptor.dimension)
    assert np.isfinite(rows).all()
    assert json.loads(json.dumps(descriptor.parameters())) == descriptor.parameters()
    again = pickle.loads(pickle.dumps(descriptor))
    np.testing.assert_array_equal(again.describe(CHINA, [[10, 20, 200, 210], [300, 100, 420, 320]]), rows)


@pytest.mark.long
def test_parameters_tell_descriptors_apart(tmp_path):
    small_network(tmp_path / "a.onnx")
    small_network(tmp_path / "b.onnx", width=4097)
    made = [
        make_descriptor(),
        make_descriptor(size=480),
        make_descriptor(power=1.0),
        make_descriptor(layer="head@2+stride_16@3"),
        make_descriptor(layer="head@1"),
        make_descriptor(backbone="lite1"),
        make_descriptor(normalisation=Normalisation()),
        make_descriptor(mode="crop"),
        make_descriptor(mode="crop", context=8),
        make_descriptor(mode="crop", backbone=tmp_path / "a.onnx", layer="fc7"),
        make_descriptor(mode="crop", backbone=tmp_path / "b.onnx", layer="fc7"),
        make_descriptor("hog"),
        make_descriptor("hog", cells=6),
        make_descriptor("hog", cell_size=6),
        make_descriptor("hog", mode="integral"),
        make_descriptor("hog", mode="integral", size=300),
    ]
    texts = [json.dumps(descriptor.parameters(), sort_keys=True) for descriptor in made]
    assert len(set(texts)) == len(texts)
    assert make_descriptor(n_threads=1).parameters() == make_descriptor(n_threads=2).parameters()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "sift"}, "`name` must be one of 'cnn', 'hog', got 'sift'"),
        ({"mode": "warped"}, "`mode` must be one of None, 'pooled', 'crop', got 'warped'"),
        ({"name": "hog", "mode": "crop"}, "`mode` must be one of None, 'warped', 'integral', got 'crop'"),
        ({"backbone": "vgg"}, "vgg: there is no such file; known networks are lite0"),
        ({"backbone": __file__}, "is not an ONNX file"),
        ({"layer": "head@0"}, "grids from 1 to 16, got 'head@0'"),
        ({"layer": "head+"}, r"`layer` must be names like head@1\+stride_16@3"),
        ({"layer": "nothing"}, "lite0 has no layer 'nothing'; it has"),
        ({"size": 8}, "`size` must be >= 32, got 8"),
        ({"power": 0}, "`power` must be > 0, got 0"),
        ({"mode": "crop", "context": 112}, "`context` must be <= 111, got 112"),
        ({"mode": "crop", "size": 300}, "^`cnn` in the mode 'crop' has no option `size`: it has context, batch_size$"),
        ({"colour": 1}, "^`cnn` in the mode 'pooled' has no option `colour`: it has size, power$"),
        ({"name": "hog", "colour": 1}, "^`hog` has no option `colour`: it has cells, cell_size, size$"),
        ({"backbone": 3}, "^`make_descriptor` cannot make 'cnn': "),
        ({"name": "hog", "cells": 0}, "`cells` must be >= 1, got 0"),
        ({"name": "hog", "layer": "head"}, "`backbone` and `layer` are of the descriptor 'cnn': 'hog' has no network"),
        ({"device": "tpu"}, "`device` must be one of 'auto', 'cpu', 'cuda', got 'tpu'"),
        ({"n_threads": 0}, "`n_threads` must be >= 1, got 0"),
    ],
)
def test_wrong_arguments_are_sentences(arguments, message):
    with pytest.raises(InputError, match=message):
        make_descriptor(**arguments)


@pytest.mark.parametrize(
    ("image", "boxes", "message"),
    [
        (CHINA.astype(float), [[0, 0, 1, 1]], r"`image` must be uint8 of shape \(height, width, 3\), got float64"),
        (CHINA[:, :, 0], [[0, 0, 1, 1]], r"got uint8 \(427, 640\)"),
        (CHINA[:0], [[0, 0, 1, 1]], r"got uint8 \(0, 640, 3\)"),
        (CHINA, [[5, 0, 4, 1]], r"`boxes` must have x1 <= x2 and y1 <= y2, got \[5.0, 0.0, 4.0, 1.0\] at index 0"),
        (CHINA, [[0, 0, np.nan, 1]], "`boxes` holds 1 value that is NaN or infinite"),
        (CHINA, [[0, 0, 1]], "`boxes` must have shape"),
    ],
)
def test_wrong_images_and_boxes_are_sentences(image, boxes, message):
    for descriptor in (make_descriptor(), make_descriptor("hog")):
        with pytest.raises(InputError, match=message):
            descriptor.describe(image, boxes)


def test_levels():
    assert parse_levels("head@1+stride_16@3") == [Level("head", 1), Level("stride_16", 3)]
    assert parse_levels("a@b@2+c") == [Level("a@b", 2), Level("c", 1)]


# -- transforms


def test_mean_norm_is_twenty(tmp_path):
    rows = np.random.default_rng(0).normal(size=(50, 30)).astype(np.float32)
    scaler = MeanNormScaler().fit(rows)
    scaled = scaler.transform(rows)
    assert scaled.dtype == np.float32
    assert np.linalg.norm(scaled, axis=1).mean() == pytest.approx(20, rel=1e-5)
    np.testing.assert_allclose(scaled / rows, scaler.factor_, rtol=1e-5)
    scaler.save(tmp_path / "scaler.npz")
    loaded = MeanNormScaler.load(tmp_path / "scaler.npz")
    np.testing.assert_array_equal(loaded.transform(rows), scaled)
    assert loaded.parameters() == scaler.parameters()


@pytest.mark.parametrize("shape", [(200, 20), (15, 40)])
def test_pca_equals_scikit_learn_up_to_sign(tmp_path, shape):
    rows = (np.random.default_rng(0).normal(size=shape) * np.linspace(3, 1, shape[1])).astype(np.float32)
    pca = PCA(6).fit(rows)
    expected = SklearnPCA(6).fit(rows)
    signs = np.sign((pca.components_ * expected.components_).sum(axis=1))[:, None]
    np.testing.assert_allclose(pca.components_ * signs, expected.components_, atol=1e-4)
    np.testing.assert_allclose(pca.transform(rows), expected.transform(rows) * signs.T, atol=1e-3)
    assert (pca.components_[np.arange(6), np.abs(pca.components_).argmax(axis=1)] > 0).all()
    pca.save(tmp_path / "pca.npz")
    np.testing.assert_array_equal(PCA.load(tmp_path / "pca.npz").transform(rows), pca.transform(rows))


@pytest.mark.parametrize("shape", [(900, 600), (600, 900)])
@pytest.mark.parametrize("last", [1e-1, 1e-4, 1e-9])
def test_pca_of_large_samples_tells_directions_apart_whatever_their_share(shape, last):
    sizes = np.geomspace(1, last, shape[1])
    rows = (np.random.default_rng(0).normal(size=shape) * sizes + 3).astype(np.float32)
    centred = rows - rows.mean(axis=0, dtype=np.float64)
    _, _, expected = np.linalg.svd(centred, full_matrices=False)
    found = PCA(200).fit(rows).components_.astype(np.float64)
    np.testing.assert_allclose(found @ found.T, np.eye(200), atol=1e-5)
    assert np.abs(np.einsum("nd,nd->n", found, expected[:200])).min() > 1 - 1e-5


def slow_similarity(one, other, spread):
    return math.exp(-sum((float(a) - float(b)) ** 2 for a, b in zip(one, other, strict=True)) / spread)


def test_products_of_mapped_landmarks_are_the_kernel(tmp_path):
    rows = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    kernel_map = KernelMap(12, width=0.7, random_state=3).fit(rows)
    pairs = [float(((a - b) ** 2).sum()) for a in rows.astype(np.float64) for b in rows.astype(np.float64)]
    assert kernel_map.spread_ == pytest.approx(0.7 * np.mean(pairs), rel=1e-6)
    landmarks = kernel_map.landmarks_
    assert all((rows == landmark).all(axis=1).sum() == 1 for landmark in landmarks)
    exact = np.array([[slow_similarity(a, b, kernel_map.spread_) for b in landmarks] for a in landmarks])
    mapped = kernel_map.transform(landmarks)
    assert mapped.dtype == np.float32
    np.testing.assert_allclose(mapped @ mapped.T, exact, atol=2e-5)
    with_landmarks = np.array([[slow_similarity(a, b, kernel_map.spread_) for b in landmarks] for a in rows])
    nystroem = with_landmarks @ np.linalg.inv(exact) @ with_landmarks.T  # of any rows: what landmarks know of them
    found = kernel_map.transform(rows)
    np.testing.assert_allclose(found @ found.T, nystroem, atol=2e-4)
    kernel_map.save(tmp_path / "kernel_map.npz")
    loaded = KernelMap.load(tmp_path / "kernel_map.npz")
    np.testing.assert_array_equal(loaded.transform(rows), found)
    assert loaded.parameters() == kernel_map.parameters() != KernelMap(12, 0.7, 4).fit(rows).parameters()


def test_all_rows_as_landmarks_give_the_kernel_itself():
    rows = np.random.default_rng(1).normal(size=(15, 4)).astype(np.float32)
    kernel_map = KernelMap(15).fit(rows)
    found = kernel_map.transform(rows)
    exact = [[slow_similarity(a, b, kernel_map.spread_) for b in rows] for a in rows]
    np.testing.assert_allclose(found @ found.T, exact, atol=2e-5)


def test_landmarks_may_be_given():
    random = np.random.default_rng(6)
    rows, objects = random.normal(size=(30, 4)).astype(np.float32), random.normal(size=(9, 4)).astype(np.float32)
    kernel_map = KernelMap(9).fit(rows, objects)
    assert (kernel_map.landmarks_ == objects).all()
    assert kernel_map.spread_ == KernelMap(9).fit(rows).spread_
    few = KernelMap(4).fit(rows, objects).landmarks_
    assert all((objects == one).all(axis=1).sum() == 1 for one in few)
    with pytest.raises(InputError, match="`n_landmarks` must be at most 9, the rows there are, got 10"):
        KernelMap(10).fit(rows, objects)
    with pytest.raises(InputError, match="`landmarks` must have 4 columns, as `rows` have, got 3"):
        KernelMap(2).fit(rows, objects[:, :3])


def test_fewer_numbers_than_landmarks_are_those_that_matter_most():
    rows = np.random.default_rng(7).normal(size=(60, 3)).astype(np.float32)
    whole = KernelMap(40).fit(rows)
    short = KernelMap(40, n_components=12).fit(rows)
    np.testing.assert_array_equal(short.landmarks_, whole.landmarks_)
    found = short.transform(rows)
    np.testing.assert_allclose(found, whole.transform(rows)[:, :12], atol=1e-5)
    assert short.output_dimension(3) == found.shape[1] == 12
    exact = np.array([[slow_similarity(a, b, short.spread_) for b in short.landmarks_] for a in short.landmarks_])
    values = np.linalg.eigvalsh(exact)
    mapped = short.transform(short.landmarks_)
    assert np.linalg.norm(mapped @ mapped.T - exact) == pytest.approx(np.linalg.norm(values[:-12]), rel=1e-3)


def test_landmarks_that_are_there_twice_add_nothing():
    rows = np.repeat(np.random.default_rng(2).normal(size=(6, 4)).astype(np.float32), 2, axis=0)
    found = KernelMap(12).fit(rows).transform(rows)
    assert np.isfinite(found).all()
    assert (np.abs(found).max(axis=0) > 0).sum() == 6
    np.testing.assert_allclose((found**2).sum(axis=1), 1, atol=1e-4)


def test_a_map_of_many_rows_is_that_of_its_parts(monkeypatch):
    rows = np.random.default_rng(4).normal(size=(30, 4)).astype(np.float32)
    kernel_map = KernelMap(8).fit(rows)
    whole = kernel_map.transform(rows)
    monkeypatch.setattr("eesvm.descriptors.transforms._MAPPED_TOGETHER", 7)
    np.testing.assert_allclose(kernel_map.transform(rows), whole, atol=1e-5)
    assert kernel_map.transform(rows[:0]).shape == (0, 8)


def test_a_linear_svm_of_mapped_rows_tells_inside_from_outside():
    random = np.random.default_rng(5)
    rows = random.normal(size=(400, 2)).astype(np.float32)
    inside = (rows**2).sum(axis=1) < 1.0
    plain, mapped = (
        LinearSVC(C=10).fit(x, inside).score(x, inside) for x in (rows, KernelMap(40).fit(rows).transform(rows))
    )
    assert plain < 0.75 < 0.95 < mapped


@pytest.mark.parametrize(
    ("options", "rows", "sentence"),
    [
        ({"n_landmarks": 0}, np.eye(3), "`n_landmarks` must be >= 1, got 0"),
        ({"n_landmarks": 4}, np.eye(3), "`n_landmarks` must be at most 3, the rows there are, got 4"),
        ({"n_landmarks": 2, "n_components": 3}, np.eye(3), "`n_components` must be <= 2, got 3"),
        ({"n_landmarks": 2, "n_components": 0}, np.eye(3), "`n_components` must be >= 1, got 0"),
        ({"n_landmarks": 2, "width": 0}, np.eye(3), "`width` must be > 0, got 0"),
        ({"n_landmarks": 2}, np.ones((3, 3)), "`rows` must not be all the same: there is no distance to compare with"),
        ({"n_landmarks": 2, "random_state": -1}, np.eye(3), "`random_state` must be >= 0, got -1"),
    ],
)
def test_kernel_maps_that_cannot_be_are_sentences(options, rows, sentence):
    with pytest.raises(InputError) as caught:
        KernelMap(**options).fit(rows)
    assert str(caught.value) == sentence


def test_kernel_maps_of_other_rows_and_files_are_refused(tmp_path):
    kernel_map = KernelMap(2).fit(np.eye(3))
    with pytest.raises(InputError, match=r"`rows` must have shape \(n, 3\), got \(2, 4\)"):
        kernel_map.transform(np.ones((2, 4)))
    with pytest.raises(InputError, match="this KernelMap was fitted to 3 numbers per row, the descriptor has 31"):
        Transformed(make_descriptor("hog", cells=1), kernel_map)
    with pytest.raises(InputError, match="this KernelMap is not fitted yet"):
        KernelMap().transform(np.eye(3))
    good = {"kind": np.array("kernel map"), **kernel_map.arrays()}
    for wrong in ({"directions": np.ones((2, 3))}, {"spread": np.float64(0)}, {"spread": np.float64(-1)}):
        np.savez(tmp_path / "kernel_map.npz", **{**good, **wrong})
        with pytest.raises(
            InputError, match=r"kernel_map\.npz does not hold a KernelMap: its arrays do not fit together"
        ):
            KernelMap.load(tmp_path / "kernel_map.npz")
    np.savez(tmp_path / "kernel_map.npz", **{**good, "landmarks": np.full((2, 3), np.nan)})
    with pytest.raises(InputError, match="`landmarks` must be finite numbers"):
        KernelMap.load(tmp_path / "kernel_map.npz")


def test_transforms_follow_a_descriptor():
    hog = make_descriptor("hog", cells=3)
    boxes = random_boxes(60, 640, 427)
    rows = hog.describe(CHINA, boxes)
    pca = PCA(10).fit(rows)
    scaler = MeanNormScaler().fit(pca.transform(rows))
    both = Transformed(hog, pca, scaler)
    assert isinstance(both, Descriptor)
    assert both.dimension == 10
    np.testing.assert_array_equal(both.describe(CHINA, boxes), scaler.transform(pca.transform(rows)))
    other = Transformed(hog, pca, MeanNormScaler(5).fit(pca.transform(rows)))
    assert both.parameters() != other.parameters()
    assert json.loads(json.dumps(both.parameters())) == both.parameters()


def test_transforms_that_cannot_be_are_sentences(tmp_path):
    rows = np.ones((4, 3), np.float32)
    with pytest.raises(InputError, match="this PCA is not fitted yet: call `fit` with a sample of descriptors"):
        PCA().transform(rows)
    with pytest.raises(InputError, match=r"`n_components` must be at most 3 for a sample of shape \(4, 3\), got 5"):
        PCA(5).fit(rows)
    with pytest.raises(InputError, match="`rows` must not be all zeros: they have no norm to scale"):
        MeanNormScaler().fit(np.zeros((4, 3)))
    with pytest.raises(InputError, match=r"`rows` must have shape \(n, 3\), got \(2, 4\)"):
        PCA(1).fit(np.eye(3)).transform(np.ones((2, 4)))
    with pytest.raises(InputError, match="this PCA was fitted to 3 numbers per row, the descriptor has 31"):
        Transformed(make_descriptor("hog", cells=1), PCA(1).fit(np.eye(3)))
    MeanNormScaler().fit(rows).save(tmp_path / "scaler.npz")
    np.save(tmp_path / "array.npy", rows)
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(InputError, match="does not hold a PCA"):
        PCA.load(tmp_path / "scaler.npz")
    for name in ("array.npy", "text.npz"):
        with pytest.raises(InputError, match="does not hold a PCA"):
            PCA.load(tmp_path / name)
    with pytest.raises(InputError, match=r"cannot read .*none\.npz: there is no such file"):
        PCA.load(tmp_path / "none.npz")


@pytest.mark.parametrize(
    "wrong",
    [{"mean": np.float32(1)}, {"components": np.ones(3)}, {"mean": np.array(["a"] * 3)}, {"mean": np.full(3, np.nan)}],
)
def test_transforms_with_other_arrays_are_refused(tmp_path, wrong):
    arrays = {"kind": np.array("pca"), "mean": np.zeros(3), "components": np.eye(3), **wrong}
    np.savez(tmp_path / "pca.npz", **arrays)
    with pytest.raises(InputError, match=r"pca\.npz does not hold a PCA: `(mean|components)` must be finite numbers"):
        PCA.load(tmp_path / "pca.npz")


# -- classes come apart: a linear probe on ground-truth boxes


class RawPixels:
    """Sixteen by sixteen pixels of each window."""

    def describe(self, image, boxes):
        return resample(image, np.asarray(boxes), 16, 16).reshape(len(boxes), -1) / 255


def described(descriptor, records, label):
    rows, labels = [], []
    for record in records:
        boxes = np.array([instance.box for instance in record.instances])
        rows.append(descriptor.describe(record.read(), boxes))
        labels.extend(label(instance) for instance in record.instances)
    return np.concatenate(rows), np.array(labels)


def probe(descriptor, train, test, label):
    """Share of test boxes that a ridge classifier on standardised rows names rightly."""
    from sklearn.linear_model import RidgeClassifierCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), RidgeClassifierCV(np.logspace(1, 5, 5)))
    model.fit(*described(descriptor, train, label))
    return model.score(*described(descriptor, test, label))


def probe_all(tmp_path, train, test, label, size=512):
    random_network(tmp_path / "random.onnx")
    random = {"backbone": tmp_path / "random.onnx", "normalisation": LITE}
    made = {
        "pooled": make_descriptor(size=size),
        "crop": make_descriptor(mode="crop"),
        "hog": make_descriptor("hog"),
        "pooled, random weights": make_descriptor(layer="head@1+stride_16@3", size=size, **random),
        "crop, random weights": make_descriptor(mode="crop", layer="features", **random),
        "pixels": RawPixels(),
    }
    return {name: probe(descriptor, train, test, label) for name, descriptor in made.items()}


def assert_trained_networks_win(found, margin=0.1):
    for trained in ("pooled", "crop"):
        assert found[trained] > found[f"{trained}, random weights"] + margin
        assert found[trained] > found["pixels"] + margin


@pytest.mark.long
def test_classes_come_apart_on_a_few_pets(tmp_path):
    dataset = open_dataset(real_data("pets_voc"))
    records = dataset[:: len(dataset) // 60]
    found = probe_all(tmp_path, records[::2], records[1::2], lambda instance: instance.class_name, size=320)
    assert found["pooled"] > 0.9
    assert found["crop"] > 0.9
    assert_trained_networks_win(found)


@pytest.mark.slow
def test_breeds_come_apart(tmp_path):
    dataset = open_dataset(real_data("pets_voc"))
    breed = lambda instance: instance.metadata["subcategory"]  # noqa: E731
    found = probe_all(tmp_path, dataset[::2], dataset[1::2], breed)
    assert min(found["pooled"], found["crop"]) > 0.7
    assert_trained_networks_win(found)


@pytest.mark.slow
def test_cards_come_apart(tmp_path):
    dataset = open_dataset(real_data("cards"))
    of = {name: set(ids) for name, ids in dataset.splits.items()}
    train, test = ([r for r in dataset if r.image_id in of[name] and r.instances] for name in ("train", "test"))
    found = probe_all(tmp_path, train, test, lambda instance: instance.class_name)
    assert min(found["pooled"], found["crop"]) > 0.75
    assert_trained_networks_win(found, margin=0.05)  # the cards lie flat and upright: pixels know much
