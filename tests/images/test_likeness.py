"""Photographs are recognised after re-encoding and resizing, and not mistaken for each other."""

import io
from functools import cache, partial

import numpy as np
import pytest
from PIL import Image

from eesvm import InputError
from eesvm.datasets import open_dataset
from eesvm.images.likeness import CODE_BYTES, picture_code, same_pictures
from helpers.dataset_files import real_data
from helpers.detector_scenes import scenes
from helpers.examples import few

QUALITIES = (30, 50, 75, 95)
SIZES = (0.5, 0.65, 0.8, 0.9)


def encoded(pixels, quality=75, size=1.0, resample=Image.Resampling.BICUBIC):
    """What somebody else makes of a picture: resized, then a JPEG without any EXIF."""
    picture = Image.fromarray(pixels)
    if size != 1:
        picture = picture.resize((round(size * picture.width), round(size * picture.height)), resample)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer).convert("RGB"))


def slow_code(pixels):
    """The same bits, one comparison after the other, where sides are whole cells."""
    grey = pixels.astype(np.float64) @ [0.299, 0.587, 0.114]
    high, wide = grey.shape[0] // 16, grey.shape[1] // 16
    cell = np.array(
        [[grey[i * high : (i + 1) * high, j * wide : (j + 1) * wide].mean() for j in range(16)] for i in range(16)]
    )
    steps = [cell[i, j + 1] - cell[i, j] for i in range(16) for j in range(15)]
    steps += [cell[i + 1, j] - cell[i, j] for i in range(15) for j in range(16)]
    return np.packbits([step > 1 for step in steps] + [step < -1 for step in steps])


def slow_pairs(one, other, most=0.3, least=24):
    found = []
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            a_steps, b_steps = (set(np.flatnonzero(np.unpackbits(code)).tolist()) for code in (a, b))
            apart, either = a_steps ^ b_steps, a_steps | b_steps
            if min(len(a_steps), len(b_steps)) >= least and len(apart) <= most * len(either):
                found.append((i, j))
    return found


def test_the_code_is_that_of_a_slow_version():
    random = np.random.default_rng(0)
    for _ in range(20):
        shape = (16 * random.integers(1, 5), 16 * random.integers(1, 5), 3)
        pixels = random.integers(0, 256, shape).astype(np.uint8)
        assert (picture_code(pixels) == slow_code(pixels)).all()


def test_pairs_are_those_of_a_slow_version():
    random = np.random.default_rng(1)
    for _ in range(50):
        one = random.integers(0, 256, (random.integers(0, 6), CODE_BYTES)).astype(np.uint8)
        other = random.integers(0, 256, (random.integers(0, 6), CODE_BYTES)).astype(np.uint8)
        for row in range(len(other)):
            if len(one) and random.random() < 0.5:  # a copy with some bits changed, at times too many
                noise = random.random(8 * CODE_BYTES) < random.choice([0.02, 0.15, 0.3])
                other[row] = one[random.integers(len(one))] ^ np.packbits(noise)
        if len(one):
            one[0] *= np.uint8(random.integers(0, 2))  # at times blank
        assert same_pictures(one, other) == slow_pairs(one, other)


@pytest.mark.parametrize("quality", few(QUALITIES))
@pytest.mark.parametrize("size", few([1.0, *SIZES], 3))
def test_a_scene_is_recognised_after_encoding(quality, size):
    pictures = [record.read() for record in scenes("train")]
    codes = [picture_code(picture) for picture in pictures]
    others = [picture_code(encoded(picture, quality, size)) for picture in pictures]
    assert same_pictures(codes, others) == [(k, k) for k in range(len(pictures))]


def test_blank_pictures_are_like_no_other():
    blank = picture_code(np.full((40, 60, 3), 200, np.uint8))
    assert same_pictures([blank], [blank]) == []


def test_pictures_of_a_few_pixels_have_a_code():
    random = np.random.default_rng(2)
    for shape in ((1, 1, 3), (1, 40, 3), (3, 2, 3), (17, 15, 3)):
        assert picture_code(random.integers(0, 256, shape).astype(np.uint8)).shape == (CODE_BYTES,)


def test_pixels_of_another_shape_are_refused():
    with pytest.raises(InputError, match=r"^`pixels` must be of shape \(height, width, 3\), got \(4, 5\)$"):
        picture_code(np.zeros((4, 5), np.uint8))


@cache
def photographs():
    return [record.read() for record in open_dataset(real_data("voc2007"), check="none")[::45]]


@pytest.mark.long
def test_real_photographs_are_recognised_and_told_apart():
    pictures = photographs()
    codes = [picture_code(picture) for picture in pictures]
    same = [(k, k) for k in range(len(pictures))]
    for change in (
        partial(encoded, quality=30),
        partial(encoded, quality=95, size=0.9),
        partial(encoded, quality=30, size=0.5, resample=Image.Resampling.BILINEAR),
    ):
        assert same_pictures(codes, [picture_code(change(picture)) for picture in pictures]) == same
    assert same_pictures(codes, codes) == same
    assert same_pictures(codes, [picture_code(picture[:, ::-1]) for picture in pictures]) == []
