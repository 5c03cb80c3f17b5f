"""Pictures of a report keep their share of its bytes."""

import io

import numpy as np
import pytest
from PIL import Image

from eesvm.report.pictures import fitted_jpeg, share
from helpers.report_examples import photographs


def size_of(image):
    return Image.open(io.BytesIO(image.content)).size


def test_a_small_share_makes_it_smaller():
    (photograph,) = photographs(1)
    sizes = []
    for most_bytes in (10**9, 60_000, 20_000, 5_000):
        image = fitted_jpeg(photograph, most_bytes)
        assert image.mime == "image/jpeg"
        assert len(image.content) <= most_bytes
        sizes.append(size_of(image))
    assert sizes[0] == (500, 375)
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 2
    assert all(abs(width / height - 4 / 3) < 0.05 for width, height in sizes)


def test_the_longest_side_has_a_limit():
    (photograph,) = photographs(1, 300, 1200)
    assert size_of(fitted_jpeg(photograph, 10**9)) == (256, 1024)


def test_what_cannot_be_small_enough_is_as_small_as_can_be():
    (photograph,) = photographs(1)
    assert max(size_of(fitted_jpeg(photograph, 1))) == 64


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 3000, 3), (3000, 1, 3)])
def test_odd_shapes(shape):
    assert min(size_of(fitted_jpeg(np.zeros(shape, dtype=np.uint8), 1000))) == 1


def test_shares():
    assert share(1000, 4) == 250
    assert share(1000, 0) == 1000
