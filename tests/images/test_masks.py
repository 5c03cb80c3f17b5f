"""Masks agree with pycocotools to the pixel, and hostile ones are refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from pycocotools import mask as coco_mask

from eesvm import InputError
from eesvm.images.masks import index_mask, mask_box, mask_to_rle, polygons_to_mask, rle_to_mask
from helpers.examples import many

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools

SIDES = st.integers(1, 40)
MASKS = hnp.arrays(bool, st.tuples(SIDES, SIDES))
COORDINATES = st.one_of(st.integers(-20, 60).map(float), st.floats(-20, 60), st.integers(-40, 120).map(lambda v: v / 2))


def reference_polygons(polygons, height, width):
    flat = [np.ravel(polygon).tolist() for polygon in polygons]
    return coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects(flat, height, width))).astype(bool)


def test_square_covers_its_pixels():
    mask = polygons_to_mask([[1, 1, 4, 1, 4, 3, 1, 3]], 5, 6)
    expected = np.zeros((5, 6), bool)
    expected[1:3, 1:4] = True
    np.testing.assert_array_equal(mask, expected)


def test_polygons_are_united_and_each_is_even_odd():
    square, inner = [0, 0, 6, 0, 6, 6, 0, 6], [2, 2, 4, 2, 4, 4, 2, 4]
    assert polygons_to_mask([square, inner], 6, 6).all()
    with_hole = polygons_to_mask([[*square, 0, 0, *inner, 2, 2]], 6, 6)
    np.testing.assert_array_equal(with_hole, reference_polygons([[*square, 0, 0, *inner, 2, 2]], 6, 6))
    assert not with_hole[2:4, 2:4].any()


@settings(max_examples=many(150), deadline=None)
@given(
    polygons=st.lists(st.lists(st.tuples(COORDINATES, COORDINATES), min_size=3, max_size=9), min_size=1, max_size=3),
    height=SIDES,
    width=SIDES,
)
def test_polygons_are_drawn_as_coco_draws_them(polygons, height, width):
    mask = polygons_to_mask(polygons, height, width)
    np.testing.assert_array_equal(mask, reference_polygons(polygons, height, width))


@settings(max_examples=many(120), deadline=None)
@given(MASKS)
def test_run_lengths_are_those_of_coco_and_come_back(mask):
    theirs = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    ours = mask_to_rle(mask)
    assert ours == {"size": list(mask.shape), "counts": theirs["counts"].decode()}
    np.testing.assert_array_equal(rle_to_mask(ours), mask)
    np.testing.assert_array_equal(rle_to_mask({**theirs}), mask)  # counts as bytes
    plain = mask_to_rle(mask, compress=False)
    np.testing.assert_array_equal(rle_to_mask(plain), mask)
    np.testing.assert_array_equal(coco_mask.decode(coco_mask.frPyObjects(plain, *mask.shape)).astype(bool), mask)


def test_run_lengths_go_down_the_columns():
    mask = rle_to_mask({"size": [2, 3], "counts": [1, 3, 2]})
    assert mask.astype(int).tolist() == [[0, 1, 0], [1, 1, 0]]


def test_long_runs_and_large_differences():
    mask = np.zeros((1200, 900), bool)
    mask[3:1100, 5:870] = True
    mask[7, 8] = False
    theirs = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    assert mask_to_rle(mask)["counts"] == theirs["counts"].decode()
    np.testing.assert_array_equal(rle_to_mask(mask_to_rle(mask)), mask)


@pytest.mark.parametrize(
    ("rle", "sentence"),
    [
        ({"size": [2, 2], "counts": [1, 2]}, "the run lengths add up to 3, not to 2 x 2 pixels"),
        ({"size": [2, 2], "counts": [5, -1]}, "run lengths must lie between 0 and 89478485"),
        ({"size": [2, 2], "counts": [1.5, 2.5]}, "run lengths must be a list of whole numbers"),
        ({"size": [2, 2], "counts": []}, "run lengths must be a list of whole numbers"),
        ({"size": [2, 2], "counts": None}, "run lengths must be a list of whole numbers"),
        ({"size": [2, 2], "counts": [[1], [1, 2]]}, "run lengths must be a list of whole numbers"),
        ({"size": [2, 2], "counts": [10**30]}, "run lengths must be a list of whole numbers"),
        ({"size": [2, 2], "counts": ""}, "the text of run lengths holds characters that do not belong there"),
        ({"size": [2, 2], "counts": "\x01"}, "the text of run lengths holds characters that do not belong there"),
        ({"size": [2, 2], "counts": "é"}, "the text of run lengths holds characters that do not belong there"),
        ({"size": [2, 2], "counts": "o"}, "the text of run lengths is cut off"),
        ({"size": [2, 2], "counts": "oooooooooo0"}, "the text of run lengths holds a number that is too large"),
        ({"size": [2, 2], "counts": "O"}, "run lengths must lie between 0 and 89478485"),
        ({"size": [0, 2], "counts": [0]}, "a mask must have at least one pixel, got 0 x 2"),
        ({"size": [10**6, 10**6], "counts": [1]}, "a mask of 1000000 x 1000000 pixels is larger than the limit of"),
        ({"size": [2.0, 2], "counts": [4]}, r"the size of run lengths must be \[height, width\], got \[2.0, 2\]"),
        ({"size": 4, "counts": [4]}, r"the size of run lengths must be \[height, width\], got 4"),
        ({"counts": [4]}, "run lengths must be an object with `size` and `counts`"),
        ([4], "run lengths must be an object with `size` and `counts`"),
    ],
)
def test_bad_run_lengths(rle, sentence):
    with pytest.raises(InputError, match=f"^{sentence}"):
        rle_to_mask(rle)


@pytest.mark.parametrize(
    ("polygon", "sentence"),
    [
        ([1, 2, 3, 4], "a polygon must be x, y of at least three points, got 4 numbers"),
        ([1, 2, 3, 4, 5, 6, 7], "a polygon must be x, y of at least three points, got 7 numbers"),
        ([1, 2, 3, 4, 5, "x"], "a polygon must be a list of numbers"),
        ([[1, 2], [3, 4], [5]], "a polygon must be a list of numbers"),
        ([1, 2, 3, 4, 5, float("nan")], "a polygon must hold finite numbers"),
        ([0, 0, 1e12, 0, 1e12, 1e12], r"a polygon reaches to 1e\+12, too far outside any image"),
        ([0, 0, 1e7, 0, 1e7, 1e7], "a polygon has an outline of [0-9]+ pixels, too long to draw"),
    ],
)
def test_bad_polygons(polygon, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        polygons_to_mask([polygon], 10, 10)


def test_polygon_of_a_single_point_is_empty():
    assert not polygons_to_mask([[3, 3, 3, 3, 3, 3]], 10, 10).any()


def test_hostile_sizes_are_refused():
    with pytest.raises(InputError, match=r"^a mask of 100000 x 100000 pixels is larger than the limit of 89,478,485$"):
        polygons_to_mask([[0, 0, 1, 0, 1, 1]], 100_000, 100_000)


@settings(max_examples=many(120), deadline=None)
@given(
    st.one_of(st.text(max_size=20), st.binary(max_size=20), st.lists(st.integers(-5, 50), max_size=8)),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_any_counts_give_a_mask_or_a_sentence(counts, height, width):
    try:
        mask = rle_to_mask({"size": [height, width], "counts": counts})
    except InputError:
        return
    assert mask.shape == (height, width)


def test_index_mask(tmp_path):
    Image.fromarray(np.array([[0, 1, 2], [2, 255, 1]], np.uint8)).save(tmp_path / "a.png")
    assert index_mask(tmp_path / "a.png", 2).tolist() == [[False, False, True], [True, False, False]]


def test_mask_box():
    mask = np.zeros((5, 6), bool)
    assert mask_box(mask) is None
    mask[1:3, 2:6] = True
    assert mask_box(mask).tolist() == [2, 1, 6, 3]


def test_only_masks_are_encoded():
    for value in (np.zeros((2, 2, 2), bool), np.zeros((0, 2), bool), np.zeros((2, 2))):
        with pytest.raises(InputError, match=r"^a mask must be a \(height, width\) array of booleans, got "):
            mask_to_rle(value)
