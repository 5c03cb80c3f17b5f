"""Refined masks: the cut against all labelings of small graphs, drawn scenes, and masks that have no say."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eesvm import InputError
from eesvm.images.warping import PixelRange
from eesvm.structures import ExemplarAnnotation
from eesvm.transfer import refine, transfer, transfer_consensus
from eesvm.transfer.refinement import View, cheapest_labels, mean_masks, what_is_said
from helpers.examples import many


def annotation(box, mask, **values):
    values = {"class_name": "disc", "image_id": "a", "index": 0} | values
    return ExemplarAnnotation(box=np.array(box, dtype=np.float64), mask=mask, **values)


def disc(size=60, centre=(30, 30), radius=18):
    y, x = np.mgrid[:size, :size] + 0.5
    return (x - centre[0]) ** 2 + (y - centre[1]) ** 2 <= radius**2


def scene(is_in, inside=(200, 60, 50), outside=(60, 90, 170)):
    """Two colours with a little noise."""
    noise = np.random.default_rng(0).normal(0, 3, (*is_in.shape, 3))
    return np.clip(np.where(is_in[:, :, None], inside, outside) + noise, 0, 255).astype(np.uint8)


def iou(one, other):
    return (one & other).sum() / (one | other).sum()


def cost(labels, prices, edges):
    return -sum(p for p, is_in in zip(prices, labels, strict=True) if is_in) + sum(
        border for a, b, border in edges if labels[a] != labels[b]
    )


@st.composite
def grids(draw):
    """Prices of a grid of up to 3 x 4 nodes with ties, and its edges; some of them twice."""
    height, width = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    prices = draw(st.lists(st.integers(-4, 4), min_size=height * width, max_size=height * width))
    pairs = [(y * width + x, y * width + x + 1) for y in range(height) for x in range(width - 1)]
    pairs += [(y * width + x, (y + 1) * width + x) for y in range(height - 1) for x in range(width)]
    pairs += pairs[: draw(st.integers(0, 2))]
    borders = draw(st.lists(st.integers(0, 5), min_size=len(pairs), max_size=len(pairs)))
    return prices, [(a, b, border) for (a, b), border in zip(pairs, borders, strict=True)]


@settings(deadline=None, max_examples=many(60))
@given(grids())
def test_the_cut_is_the_cheapest_of_all_labelings(grid):
    prices, edges = grid
    ends = np.array([(a, b) for a, b, _ in edges], dtype=np.int64).reshape(-1, 2).T
    found = cheapest_labels(
        np.array(prices, dtype=float), ends, np.array([border for *_, border in edges], dtype=float)
    )
    every = [(cost(labels, prices, edges), sum(labels), labels) for labels in product((0, 1), repeat=len(prices))]
    assert (cost(found, prices, edges), sum(found)) == min(every)[:2]


def test_prices_beyond_all_measure_do_not_overflow():
    prices, ends = np.array([1e12, -1e-9, -1e12]), np.array([[0, 1], [1, 2]])
    assert cheapest_labels(prices, ends, np.array([2.0, 1.0])).tolist() == [True, True, False]


def test_a_mask_moves_to_the_edges_of_the_image():
    truth = disc()
    exemplar = annotation((0, 0, 30, 30), np.tri(30, dtype=bool) | np.tri(30, dtype=bool)[::-1])  # nothing like a disc
    handed = transfer(exemplar, (10, 10, 50, 50), (60, 60))
    refined = refine(handed, [exemplar], scene(truth))
    assert iou(handed.whole_mask(), truth) < 0.7
    assert iou(refined.whole_mask(), truth) > 0.95
    assert (refined.is_refined, handed.is_refined) == (True, False)
    assert replace(refined, mask=None, is_refined=False, offset=handed.offset) == replace(handed, mask=None)


def test_it_stays_in_the_box_and_in_the_image():
    truth = disc(centre=(50, 30), radius=25)  # leaves the image on the right
    exemplar = annotation((0, 0, 10, 10), np.ones((10, 10), dtype=bool))
    handed = transfer(exemplar, (30.5, 10, 75, 48), (60, 60))
    refined = refine(handed, [exemplar], scene(truth))
    assert refined.mask.shape == handed.mask.shape
    assert refined.offset == handed.offset == (30, 10)
    assert refined.whole_mask().shape == (60, 60)


def test_an_image_of_one_colour_leaves_the_exemplars_their_word():
    exemplar = annotation((0, 0, 20, 20), disc(20, (10, 10), 8))
    handed = transfer(exemplar, (10, 10, 50, 50), (60, 60))
    refined = refine(handed, [exemplar], np.full((60, 60, 3), 128, dtype=np.uint8))
    assert refined.mask.any()


def halves():
    """The left half of a picture, and exemplars that say left and right of it."""
    left, half = np.zeros((60, 60), dtype=bool), np.zeros((20, 20), dtype=bool)
    left[:, :30] = half[:, :10] = True
    return left, annotation((0, 0, 20, 20), half), annotation((0, 0, 20, 20), ~half, index=1)


def test_votes_count_by_their_weights():
    left, right_one, wrong = halves()  # nothing in the picture says which half it is
    truth = left & np.outer(np.abs(np.arange(60) - 29.5) < 18, np.abs(np.arange(60) - 29.5) < 18)
    for weights, is_right in (([3, 1], True), ([1, 30], False), ([0, 1], False), ([1, 0], True)):
        handed = transfer_consensus([right_one, wrong], weights, (12, 12, 48, 48), (60, 60))
        refined = refine(handed, [right_one, wrong], scene(left), weights)
        assert (iou(refined.whole_mask(), truth) > 0.8) == is_right


def test_exemplars_without_mask_beside_others_have_no_say():
    truth = disc()
    known, unknown = annotation((0, 0, 20, 20), disc(20, (10, 10), 9)), annotation((0, 0, 20, 20), None, index=1)
    empty = annotation((0, 0, 20, 20), np.zeros((20, 20), dtype=bool), index=2)
    alone = refine(transfer(known, (10, 10, 50, 50), (60, 60)), [known], scene(truth))
    handed = transfer_consensus([unknown, known, empty], None, (10, 10, 50, 50), (60, 60))
    together = refine(handed, [unknown, known, empty], scene(truth))
    np.testing.assert_array_equal(together.mask, alone.mask)


def test_mean_masks_are_shares_of_the_masks_of_a_class():
    left, right, half = (np.zeros((64, 32), dtype=bool) for _ in range(3))
    left[:, :16], right[:, 16:], half[:32] = True, True, True
    boxes = (0, 0, 32, 64), (5, 7, 37, 71), (100, 0, 132, 64)
    known = [annotation(box, mask) for box, mask in zip(boxes, (left, right, half), strict=True)]
    empty = annotation((0, 0, 32, 64), np.zeros((64, 32), dtype=bool), class_name="nothing")
    too_large = annotation((0, 0, 10, 10), np.ones((50, 50), dtype=bool))
    means = mean_masks([*known, annotation((0, 0, 9, 9), None), empty, too_large])
    assert list(means) == ["disc"]
    slow = np.mean([one.reshape(32, 2, 32, 1).mean(axis=(1, 3)) for one in (left, right, half)], axis=0)
    np.testing.assert_allclose(means["disc"], slow, atol=1e-12)
    assert mean_masks([]) == {}


def test_the_class_has_a_say_beside_an_odd_exemplar():
    left, one, odd = halves()
    is_in = np.outer(np.abs(np.arange(60) - 29.5) < 18, np.abs(np.arange(60) - 29.5) < 18)
    image = np.where(is_in[:, :, None], scene(left, (200, 60, 50), (60, 170, 60)), scene(~is_in, (60, 90, 170)))
    right = [replace(one, index=k) for k in range(5)]
    handed = transfer(odd, (12, 12, 48, 48), (60, 60))
    alone, together = (refine(handed, [odd], image, means=m) for m in (None, mean_masks([*right, odd])))
    assert (alone.whole_mask() & left).sum() < 0.1 * (is_in & left).sum()
    assert (together.whole_mask() & left).sum() > 0.9 * (is_in & left).sum()
    other = refine(handed, [odd], image, means=mean_masks([replace(each, class_name="ring") for each in right]))
    np.testing.assert_array_equal(other.mask, alone.mask)  # another class has no say


@pytest.mark.parametrize("factor", [1, 2])
@pytest.mark.parametrize("corner", [(-20, -12), (14, 18), (6, -8)])
def test_the_word_of_the_class_is_moved_with_a_box_that_leaves_the_image(corner, factor):
    rng = np.random.default_rng(2)
    masks, mean = rng.random((2, 20, 25)) < 0.5, rng.random((7, 5))
    voters = [(annotation((0, 0, 25, 20), mask, index=k), k + 1.0) for k, mask in enumerate(masks)]
    box, place = np.array([*corner, corner[0] + 50.0, corner[1] + 40.0]), PixelRange(0, 0, 44, 40)
    votes, of_class = np.zeros((2, 40 // factor, 44 // factor))
    for y, x in np.ndindex(votes.shape):
        right, down = (factor * np.array([x + 0.5, y + 0.5]) - corner) / (50, 40)  # of the middle, in sides of the box
        if 0 < right < 1 and 0 < down < 1:
            votes[y, x] = sum(weight * one.mask[int(20 * down), int(25 * right)] for one, weight in voters) / 3
            of_class[y, x] = mean[int(7 * down), int(5 * right)]
    view = View(place, np.zeros((*votes.shape, 3), dtype=np.uint8), box / factor)
    np.testing.assert_allclose(what_is_said(voters, view, mean), (votes, of_class), atol=1e-9)
    np.testing.assert_allclose(what_is_said(voters, view, None), (votes, votes), atol=1e-9)


def test_a_box_that_leaves_the_image_with_a_class_of_one():
    flat = np.full((60, 60, 3), 128, dtype=np.uint8)
    left = np.zeros((40, 40), dtype=bool)
    left[:, :20] = True
    exemplar = annotation((0, 0, 40, 40), left)
    handed = transfer(exemplar, (-20, 10, 20, 50), (60, 60))  # its left half is outside
    assert not handed.mask.any()
    handed = transfer(exemplar, (40, 10, 80, 50), (60, 60))  # its right half is
    plain, meant = (refine(handed, [exemplar], flat, means=m) for m in (None, mean_masks([exemplar])))
    np.testing.assert_array_equal(plain.mask, meant.mask)


def test_what_has_no_mask_stays_as_it_was():
    image = scene(disc())
    unknown = annotation((0, 0, 20, 20), None)
    handed = transfer(unknown, (10, 10, 50, 50), (60, 60))
    assert refine(handed, [unknown], image) is handed
    speck = np.zeros((500, 500), dtype=bool)
    speck[0, 0] = True
    small = annotation((0, 0, 500, 500), speck)  # nothing is left of it in a small box
    handed = transfer(small, (10, 10, 50, 50), (60, 60))
    assert not handed.mask.any()
    assert refine(handed, [small], image) is handed


@pytest.mark.parametrize("box", [(0, 0, 1, 1), (59, 0, 60, 60), (-50, -50, 110, 110), (20.2, 20.2, 20.9, 20.9)])
def test_boxes_of_any_size(box):
    exemplar = annotation((0, 0, 3, 3), np.ones((3, 3), dtype=bool))
    handed = transfer(exemplar, box, (60, 60))
    assert refine(handed, [exemplar], scene(disc())).mask.shape == handed.mask.shape


def test_what_is_wrong_with_the_call():
    exemplar = annotation((0, 0, 20, 20), disc(20, (10, 10), 9))
    handed = transfer(exemplar, (10, 10, 50, 50), (60, 60))
    with pytest.raises(InputError, match=r"^`image` must have the 60 x 60 pixels of the annotation, got 61 x 60$"):
        refine(handed, [exemplar], np.zeros((60, 61, 3), dtype=np.uint8))
    with pytest.raises(
        InputError, match=r"^`image` must be uint8 of shape \(height, width, 3\), got float64 \(60, 60\)$"
    ):
        refine(handed, [exemplar], np.zeros((60, 60)))
    with pytest.raises(InputError, match=r"^`annotations` must hold at least one exemplar$"):
        refine(handed, [], np.zeros((60, 60, 3), dtype=np.uint8))
