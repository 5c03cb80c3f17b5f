"""Layers of vision transformers: tokens become maps, in both modes."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_sample_images

from eesvm import InputError
from eesvm.descriptors import make_descriptor
from eesvm.descriptors.backbones import Backbone
from eesvm.descriptors.tokens import as_map, fitting_patch
from helpers.network_files import small_transformer


def slow_tokens(constants, pixels, patch):
    """Tokens of pictures (n, 3, h, w), by loops."""
    n, _, height, width = pixels.shape
    places = [
        np.einsum("nchw,dchw->nd", pixels[:, :, y : y + patch, x : x + patch], constants["kernel"])
        for y in range(0, height, patch)
        for x in range(0, width, patch)
    ]
    embedded = np.concatenate([np.repeat(constants["before"], n, axis=0), np.stack(places, axis=1)], axis=1)
    likeness = np.einsum("nid,de,nje->nij", embedded, constants["query"], embedded)
    attention = np.exp(likeness - likeness.max(axis=2, keepdims=True))
    attention /= attention.sum(axis=2, keepdims=True)
    return embedded + attention @ (embedded @ constants["value"])


@pytest.mark.parametrize(
    ("patch", "n_before", "side", "is_cut"),
    [
        (14, 1, None, True),
        (14, 5, None, True),
        (16, 1, 64, True),
        (32, 1, 96, True),
        (16, 1, 64, False),
        (8, 0, 32, True),
    ],
)
def test_layers_are_maps_of_the_patches(tmp_path, patch, n_before, side, is_cut):
    constants = small_transformer(tmp_path / "vit.onnx", patch, n_before, side, is_cut_by_convolution=is_cut)
    backbone = Backbone(tmp_path / "vit.onnx", ["tokens"])
    height, width = (side, side) if side else (2 * patch, 3 * patch)
    pixels = np.random.default_rng(0).uniform(0, 255, (2, height, width, 3)).astype(np.float32)
    (layer,) = backbone(pixels.copy())
    slow = slow_tokens(constants, backbone.normalisation(pixels), patch)[:, n_before:]
    assert layer.shape == (2, 8, height // patch, width // patch)
    for row in range(height // patch):
        for column in range(width // patch):
            token = slow[:, row * (width // patch) + column]
            assert_allclose(layer[:, :, row, column], token, rtol=1e-3, atol=1e-3)


def test_sides_of_a_picture_are_multiples_of_the_patch(tmp_path):
    small_transformer(tmp_path / "dino.onnx", 14, 5)
    image = load_sample_images().images[0]
    pooled = make_descriptor(backbone=str(tmp_path / "dino.onnx"), layer="tokens@2", size=300)
    rows = pooled.describe(image, [[0, 0, 640, 427], [100, 100, 300, 300]])
    assert pooled.backbone.multiple == 14
    assert rows.shape == (2, 4 * 8)
    assert np.isfinite(rows).all()
    assert not np.allclose(rows[0], rows[1])


def test_pooling_sees_where_things_are(tmp_path):
    constants = small_transformer(tmp_path / "vit.onnx", 14, 1)
    image = np.zeros((140, 140, 3), np.uint8)
    image[:, 70:] = 255
    pooled = make_descriptor(backbone=str(tmp_path / "vit.onnx"), layer="tokens", size=140, power=1.0)
    left, right = pooled.describe(image, [[0, 0, 70, 140], [70, 0, 140, 140]])
    pixels = pooled.backbone.normalisation(image[None].astype(np.float32))
    tokens = slow_tokens(constants, pixels, 14)[0, 1:].reshape(10, 10, 8)
    for row, part in ((left, tokens[:, :5]), (right, tokens[:, 5:])):
        mean = part.mean(axis=(0, 1))
        assert_allclose(row, mean / np.linalg.norm(mean), rtol=1e-3, atol=1e-3)


def test_crops_take_the_mean_of_the_patches_or_the_row_of_the_class_token(tmp_path):
    small_transformer(tmp_path / "clip.onnx", 16, 1, 64)
    image, boxes = load_sample_images().images[0], [[0, 0, 200, 200], [50, 60, 300, 400]]
    mean = make_descriptor("cnn", "crop", str(tmp_path / "clip.onnx"), "tokens", context=4)
    first = make_descriptor("cnn", "crop", str(tmp_path / "clip.onnx"), "embedding", context=4)
    (places,) = mean.backbone(np.zeros((1, 64, 64, 3), np.float32))
    assert mean.dimension == first.dimension == places.shape[1] == 8
    assert mean.describe(image, boxes).shape == first.describe(image, boxes).shape == (2, 8)
    assert not np.allclose(mean.describe(image, boxes), first.describe(image, boxes))


def test_a_number_of_tokens_that_is_no_grid_is_an_error(tmp_path):
    small_transformer(tmp_path / "vit.onnx", 14, 20)
    pooled = make_descriptor(backbone=str(tmp_path / "vit.onnx"), layer="tokens", size=140)
    with pytest.raises(InputError) as error:
        pooled.describe(np.zeros((140, 140, 3), np.uint8), [[0, 0, 10, 10]])
    assert str(error.value) == (
        f"layer 'tokens' of {tmp_path / 'vit.onnx'} has 276 tokens for a picture of 224 x 224 pixels, which are no grid "
        "of patches of 14 x 14 pixels with up to 16 tokens before it"
    )
    with pytest.raises(InputError) as error:
        as_map(np.zeros((1, 100, 4), np.float32), 224, 224, None, "layer 'x' of y")
    assert str(error.value) == (
        "layer 'x' of y has 100 tokens for a picture of 224 x 224 pixels, which are no grid of patches with up to 16 "
        "tokens before it"
    )


@pytest.mark.parametrize(
    ("n_tokens", "height", "width", "patch"),
    [
        (257, 224, 224, 14),
        (261, 224, 224, 14),
        (197, 224, 224, 16),
        (50, 224, 224, 32),
        (577, 336, 336, 14),
        (97, 128, 192, 16),
    ],
)
def test_known_networks_have_one_patch_that_fits(n_tokens, height, width, patch):
    assert fitting_patch(n_tokens, height, width) == patch
