"""Boxes against slow, obvious versions of the same things."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eesvm import InputError, boxes
from helpers.examples import many

OVERLAPS = ("iou", "over_lower")


def pixels(box, size=12):
    """The set of pixels of an integer half-open box."""
    x1, y1, x2, y2 = map(int, box)
    return {(x, y) for x in range(x1, x2) for y in range(y1, y2)}


def slow_overlap(a, b, kind):
    a, b = pixels(a), pixels(b)
    if not a or not b:
        return 0.0
    below = {"iou": len(a | b), "over_lower": len(b), "over_smaller": min(len(a), len(b))}[kind]
    return len(a & b) / below


def slow_nms(table, scores, threshold, kind, limit=None):
    kept = []
    for i in sorted(range(len(table)), key=lambda i: (-scores[i], i)):
        if all(slow_overlap(table[k], table[i], kind) <= threshold for k in kept):
            kept.append(i)
    return kept[:limit]


def tables(min_size=0, max_size=12):
    """Integer boxes on a small grid, so that they overlap, repeat, touch, are empty and inverted by themselves."""
    rows = st.integers(min_size, max_size)
    return rows.flatmap(
        lambda n: hnp.arrays(np.int64, (n, 4), elements=st.integers(0, 9), fill=st.nothing())
    ).map(lambda table: table.astype(np.float64))  # fmt: skip


def random_boxes(n, seed=0):
    rng = np.random.default_rng(seed)
    corners = rng.uniform(-20, 400, (n, 2))
    return np.hstack([corners, corners + rng.uniform(1, 150, (n, 2))])


@settings(deadline=None, max_examples=many(100))
@given(tables(), tables())
def test_areas_and_overlaps_count_pixels(first, second):
    assert boxes.area(first).tolist() == [len(pixels(box)) for box in first]
    for function, kind in (
        (boxes.iou, "iou"),
        (boxes.intersection_over_second, "over_lower"),
        (boxes.intersection_over_smaller, "over_smaller"),
    ):
        expected = np.array([[slow_overlap(a, b, kind) for b in second] for a in first]).reshape(
            len(first), len(second)
        )
        np.testing.assert_allclose(function(first, second), expected, rtol=1e-12)


@settings(deadline=None, max_examples=50)
@given(tables(), st.integers(0, 2**32 - 1))
def test_pairs_are_the_diagonal(table, seed):
    others = np.random.default_rng(seed).permutation(table)
    assert (boxes.iou_of_pairs(table, others) == np.diag(boxes.iou(table, others))).all()


def test_overlap_invariances():
    table, others = random_boxes(40), random_boxes(30, seed=1)
    reference = boxes.iou(table, others)
    assert (reference == boxes.iou(others, table).T).all()
    assert ((reference >= 0) & (reference <= 1)).all()
    assert (np.diag(boxes.iou(table, table)) == 1).all()
    np.testing.assert_allclose(boxes.iou(table * 3, others * 3), reference, rtol=1e-12)
    np.testing.assert_allclose(boxes.iou(table + 7, others + 7), reference, atol=1e-12)
    np.testing.assert_allclose(boxes.iou(boxes.flip(table, 500), boxes.flip(others, 500)), reference, atol=1e-12)
    np.testing.assert_allclose(boxes.iou(table.astype(np.float32), others), reference, atol=1e-4)


@settings(deadline=None, max_examples=many(150))
@given(tables(max_size=14), st.data())
def test_nms_is_the_greedy_loop(table, data):
    scores = data.draw(hnp.arrays(np.int64, len(table), elements=st.integers(-2, 2), fill=st.nothing())) / 4
    threshold = data.draw(st.sampled_from([0.0, 0.25, 0.3, 0.5, 0.75, 1.0]))
    kind, limit = data.draw(st.sampled_from(OVERLAPS)), data.draw(st.sampled_from([None, 0, 1, 3]))
    kept = boxes.nms(table, scores, threshold, kind, limit)
    assert kept.tolist() == slow_nms(table, scores, threshold, kind, limit)


@settings(deadline=None, max_examples=many(100))
@given(tables(max_size=14), st.data())
def test_batched_nms_is_nms_within_each_group(table, data):
    scores = data.draw(hnp.arrays(np.int64, len(table), elements=st.integers(-2, 2), fill=st.nothing())) / 4
    groups = np.array(data.draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=len(table), max_size=len(table))))
    limit = data.draw(st.sampled_from([None, 2]))
    expected = []
    for group in set(groups.tolist()):
        rows = np.flatnonzero(groups == group)
        expected += rows[slow_nms(table[rows], scores[rows], 0.3, "iou", limit)].tolist()
    kept = boxes.batched_nms(table, scores, groups, 0.3, limit=limit)
    assert kept.tolist() == sorted(expected, key=lambda i: (-scores[i], i))


def test_nms_keeps_an_overlap_of_exactly_the_threshold():
    table = [[0, 0, 4, 1], [2, 0, 6, 1]]  # IoU 1/3
    assert boxes.nms(table, [2, 1], 1 / 3).tolist() == [0, 1]
    assert boxes.nms(table, [1, 2], 0.33).tolist() == [1]


def test_the_overlap_of_the_original_code_is_not_symmetric():
    small_in_large = [[0, 0, 10, 10], [0, 0, 3, 3]]
    assert boxes.nms(small_in_large, [2, 1], 0.5, "over_lower").tolist() == [0]
    assert boxes.nms(small_in_large, [1, 2], 0.5, "over_lower").tolist() == [1, 0]
    assert boxes.nms(small_in_large, [2, 1], 0.5, "iou").tolist() == [0, 1]


def test_nms_of_thousands_agrees_with_the_matrix():
    table = random_boxes(3000)
    scores = np.random.default_rng(1).random(3000)
    kept = boxes.nms(table, scores, 0.4)
    assert (np.diff(scores[kept]) < 0).all()
    among = boxes.iou(table[kept], table[kept])
    assert (among[~np.eye(len(kept), dtype=bool)] <= 0.4).all()
    gone = np.setdiff1d(np.arange(3000), kept)
    overlaps = boxes.iou(table[gone], table[kept])
    assert ((overlaps > 0.4) & (scores[kept] > scores[gone][:, None])).any(axis=1).all()


@settings(deadline=None, max_examples=many(100))
@given(tables(), tables(), st.sampled_from([0.0, 0.5, 1.0]))
def test_match_is_the_best_of_the_matrix(table, truth, threshold):
    found = boxes.match(table, truth, threshold)
    for i, box in enumerate(table):
        overlaps = [slow_overlap(box, other, "iou") for other in truth]
        best = max(overlaps, default=0.0)
        assert found.iou[i] == pytest.approx(best)
        assert found.truth[i] == (overlaps.index(best) if best > 0 and best >= threshold else -1)


@settings(deadline=None, max_examples=50)
@given(tables(), st.integers(1, 9), st.integers(1, 9))
def test_clip_and_flip_and_is_valid(table, width, height):
    image = [0, 0, width, height]
    clipped = boxes.clip(table, width, height)
    for box, inside in zip(table, clipped, strict=True):
        assert pixels(inside) == pixels(box) & pixels(image)
    valid = boxes.is_valid(table, width, height)
    assert valid.tolist() == [bool(pixels(box)) and pixels(box) <= pixels(image) for box in table]
    assert boxes.is_valid(table).tolist() == [bool(pixels(box)) for box in table]
    sides = table[:, 2:] - table[:, :2]
    assert boxes.is_valid(table, min_size=3).tolist() == (sides >= 3).all(axis=1).tolist()
    mirrored = boxes.flip(table, width)
    assert (boxes.flip(mirrored, width) == table).all()
    for box, other in zip(table, mirrored, strict=True):
        assert pixels(other) == {(width - 1 - x, y) for x, y in pixels(box)}


def test_no_boxes_are_fine_everywhere():
    some = random_boxes(3)
    for none in ([], np.empty((0, 4))):
        assert boxes.area(none).shape == (0,)
        assert boxes.is_valid(none, 3, 3).shape == (0,)
        assert boxes.iou(none, some).shape == (0, 3)
        assert boxes.iou(some, none).shape == (3, 0)
        assert boxes.iou_of_pairs(none, none).shape == (0,)
        assert boxes.clip(none, 3, 3).shape == boxes.flip(none, 3).shape == (0, 4)
        assert boxes.nms(none, [], 0.5).shape == boxes.batched_nms(none, [], [], 0.5).shape == (0,)
        assert boxes.match(none, some).truth.shape == (0,)
        assert boxes.match(some, none).truth.tolist() == [-1, -1, -1]
        assert boxes.match(some, none).iou.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: boxes.area([1, 2, 3, 4]), r"`boxes` must have shape \(n, 4\): x1, y1, x2, y2; got shape \(4,\)"),
        (lambda: boxes.area([[1, 2, 3]]), r"`boxes` must have shape \(n, 4\): x1, y1, x2, y2; got shape \(1, 3\)"),
        (lambda: boxes.area([["a", 0, 0, 0]]), r"`boxes` must be an \(n, 4\) table of numbers"),
        (lambda: boxes.area([[0, 0, 1], [0]]), r"`boxes` must be an \(n, 4\) table of numbers"),
        (
            lambda: boxes.iou([[0, 0, 1, 1]], [[0, 0, np.nan, 1]]),
            "`others` holds 1 value that is NaN or infinite, the first at row 0, column 2",
        ),
        (lambda: boxes.area([[0, 0, 1e30, 1]]), r"`boxes` must hold coordinates within 1e\+09, got 1e\+30"),
        (
            lambda: boxes.iou_of_pairs([[0, 0, 1, 1]], []),
            "`boxes` and `others` must be equally many, got 1 and 0",
        ),
        (
            lambda: boxes.nms([[0, 0, 1, 1]], [1, 2], 0.5),
            r"`scores` must have one entry per box, shape \(1,\), got shape \(2,\)",
        ),
        (lambda: boxes.nms([[0, 0, 1, 1]], ["x"], 0.5), "`scores` must hold numbers"),
        (lambda: boxes.nms([[0, 0, 1, 1]], [np.nan], 0.5), "`scores` holds 1 value that is NaN or infinite, the first"),
        (lambda: boxes.nms([[0, 0, 1, 1]], [1], 1.5), "`threshold` must be <= 1, got 1.5"),
        (lambda: boxes.nms([[0, 0, 1, 1]], [1], 0.5, "union"), "`overlap` must be one of 'iou', 'over_lower', got"),
        (lambda: boxes.nms([[0, 0, 1, 1]], [1], 0.5, limit=-1), "`limit` must be >= 0, got -1"),
        (
            lambda: boxes.batched_nms([[0, 0, 1, 1]], [1], [], 0.5),
            r"`groups` must have one entry per box, shape \(1,\), got shape \(0,\)",
        ),
        (lambda: boxes.clip([], -1, 3), "`width` must be >= 0, got -1"),
    ],
)
def test_wrong_input_is_named(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()
