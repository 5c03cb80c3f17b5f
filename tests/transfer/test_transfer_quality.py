"""Measures of transferred annotations, worked by hand and compared with whole masks."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eesvm import InputError
from eesvm.datasets import open_dataset
from eesvm.datasets.scenes import make_scenes
from eesvm.structures import Detections, ExemplarAnnotation, ImageRecord, Instance, Part
from eesvm.transfer import annotate, transfer
from eesvm.transfer.measures import iou_of_pieces, read_truth
from eesvm.transfer.quality import (
    BEST_EXEMPLAR,
    CSV_HEADER,
    MASK_IOU,
    PART_IOU,
    PARTS_FOUND,
    POSE,
    WHOLE_BOX,
    Consensus,
    matched_instances,
    random_choice,
    transfer_quality,
)
from helpers.dataset_files import real_data
from helpers.examples import many

LEFT, RIGHT, FULL = [[1, 1, 0, 0]] * 4, [[0, 0, 1, 1]] * 4, [[1, 1, 1, 1]] * 4


def exemplar(mask=None, parts=(), pose=None, class_name="dog", image_id="train", **metadata):
    mask = None if mask is None else np.array(mask, dtype=bool)
    parts = tuple(Part(name, np.array(box, dtype=np.float64)) for name, box in parts)
    return ExemplarAnnotation(class_name, image_id, 0, np.array([0.0, 0, 4, 4]), mask, parts, pose, metadata)


def found(image_id, mask=None, parts=(), pose=None, **metadata):
    """An object at 0, 0, 4, 4 in an image of 10 x 8."""
    whole = None
    if mask is not None:
        whole = np.zeros((8, 10), dtype=bool)
        whole[:4, :4] = mask
    return Instance(
        class_name="dog",
        box=np.array([0.0, 0, 4, 4]),
        image_id=image_id,
        index=0,
        mask=None if whole is None else partial(np.asarray, whole),
        parts=tuple(Part(name, np.array(box, dtype=np.float64)) for name, box in parts),
        pose=pose,
        metadata=metadata,
    )


HEAD = ("head", (0, 0, 2, 2))
EXEMPLARS = [
    exemplar(LEFT, [HEAD], "Left", kind="pug", number=3),
    exemplar(RIGHT, [("head", (1, 0, 3, 2))], "Right", kind="boxer", number=4),
    exemplar(FULL, [("tail", (3, 3, 4, 4))], kind="pug", number=5),
    exemplar(class_name="cat"),
]
OBJECTS = [
    found("a", LEFT, [HEAD], "Left", kind="pug", number=3),
    found("b", FULL, [HEAD, ("tail", (3, 3, 4, 4))], kind="pug"),
    None,
]
BOXES = np.array([[0.0, 0, 4, 4]] * 3)


def measure(choices, **options):
    options = {"n_resamples": 200} | options
    return transfer_quality(EXEMPLARS, choices, BOXES, OBJECTS, [(10, 8)] * 3, **options)


def test_by_hand():
    table = measure({"first": [0, 0, 0], "second": [1, 1, 1]})
    means = {(row.choice, row.measure): (row.mean, row.n_detections, row.n_images) for row in table.rows}
    third = pytest.approx(1 / 3)
    assert means == {
        ("first", MASK_IOU): (0.75, 2, 2),
        ("first", PART_IOU): (0.75, 2, 2),  # 1 on a; on b 1 for the head and 0 for the tail
        ("first", PARTS_FOUND): (0.75, 2, 2),
        ("first", "part IoU, head"): (1.0, 2, 2),
        ("first", "part IoU, tail"): (0.0, 1, 1),
        ("first", POSE): (1.0, 1, 1),
        ("first", "kind"): (1.0, 2, 2),
        ("second", MASK_IOU): (0.25, 2, 2),
        ("second", PART_IOU): (pytest.approx((1 / 3 + 1 / 6) / 2), 2, 2),
        ("second", PARTS_FOUND): (0.0, 2, 2),
        ("second", "part IoU, head"): (third, 2, 2),
        ("second", "part IoU, tail"): (0.0, 1, 1),
        ("second", POSE): (0.0, 1, 1),
        ("second", "kind"): (0.0, 2, 2),
        (WHOLE_BOX, MASK_IOU): (0.75, 2, 2),
    }
    assert table["first", MASK_IOU].interval == (0.5, 1.0)
    assert table["first", MASK_IOU].n_exemplars == 1
    assert table.choices == ("first", "second", WHOLE_BOX)


def test_void_pixels_count_neither_for_nor_against():
    void = np.zeros((8, 10), dtype=bool)
    void[:, 2] = True  # one of the two columns by which the full mask exceeds the left half
    target = replace(OBJECTS[0], void=lambda: void)

    def mean(instance, choice):
        table = transfer_quality(EXEMPLARS, {"one": [choice]}, BOXES[:1], [instance], [(10, 8)], n_resamples=10)
        return table["one", MASK_IOU].mean, table[WHOLE_BOX, MASK_IOU].mean

    assert mean(OBJECTS[0], 2) == (0.5, 0.5)
    assert mean(target, 2) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert mean(target, 0) == (1.0, pytest.approx(2 / 3))
    assert mean(target, 1) == (0.0, pytest.approx(2 / 3))


def test_an_object_that_is_all_void_has_no_mask():
    target = replace(OBJECTS[0], void=lambda: np.ones((8, 10), dtype=bool))
    table = transfer_quality(EXEMPLARS, {"one": [0]}, BOXES[:1], [target], [(10, 8)], n_resamples=10)
    assert MASK_IOU not in table.measures


def test_draws_are_averaged_and_none_is_left_out():
    table = measure({"draws": [[0, 1], [2, -1], [0, 0]], "none": [-1, 2, 2]})
    assert table["draws", MASK_IOU].mean == pytest.approx((0.5 + 1.0) / 2)
    assert table["draws", MASK_IOU].n_exemplars == 3
    assert (table["none", MASK_IOU].mean, table["none", MASK_IOU].n_detections) == (1.0, 1)


def test_consensus_and_the_best_exemplar():
    votes = Consensus([[0, 1], [0, 2, 1], []], [[3, 1], [1, 1, 1], []])
    table = measure({"vote": votes}, best_exemplar=True)
    assert table["vote", MASK_IOU].mean == 1.0  # left on a; on b all pixels have two of three
    assert table[BEST_EXEMPLAR, MASK_IOU].mean == 1.0
    assert table[BEST_EXEMPLAR, MASK_IOU].n_exemplars == 2
    assert table["vote", "kind"].mean == 1.0


def test_the_best_exemplar_is_not_from_the_same_image():
    own = [exemplar(LEFT, image_id="a"), exemplar(RIGHT, image_id="z")]
    table = transfer_quality(own, {}, BOXES[:1], OBJECTS[:1], [(10, 8)], best_exemplar=True, n_resamples=10)
    assert table[BEST_EXEMPLAR, MASK_IOU].mean == 0.0


def test_labels_are_texts_unless_they_are_named():
    assert "number" not in measure({"first": [0, 0, 0]}).measures
    named = measure({"first": [0, 0, 0]}, labels=["number"])
    assert "kind" not in named.measures
    assert (named["first", "number"].mean, named["first", "number"].n_detections) == (1.0, 1)


def test_differences_are_on_the_same_detections():
    table = measure({"first": [0, -1, 0], "second": [1, 1, 1]})
    gain = table.difference("first", "second", MASK_IOU)
    assert (gain.mean, gain.n_detections, gain.choice) == (1.0, 1, "first - second")
    with pytest.raises(InputError, match=r"^there is no mask IoU of the choice third$"):
        table.difference("third", "second", MASK_IOU)


def test_intervals_draw_images_and_are_reproducible():
    rng = np.random.default_rng(0)
    masks = rng.random((40, 4, 4)) > 0.5
    objects = [found(f"image {k // 4}", mask) for k, mask in enumerate(masks)]
    arguments = ([exemplar(FULL), exemplar(LEFT)], {"a": [0] * 40, "b": [1] * 40}, [[0, 0, 4, 4]] * 40, objects)
    first, second = (transfer_quality(*arguments, [(10, 8)] * 40) for _ in range(2))
    assert first.rows == second.rows
    row = first["a", MASK_IOU]
    assert (row.n_detections, row.n_images) == (40, 10)
    assert row.interval.low < row.mean < row.interval.high
    assert row.mean == pytest.approx(masks.mean())
    wide = transfer_quality(*arguments, [(10, 8)] * 40, confidence=0.5)["a", MASK_IOU].interval
    assert wide.high - wide.low < row.interval.high - row.interval.low
    gain = first.difference("a", "b", MASK_IOU)
    assert gain.mean == pytest.approx(first["a", MASK_IOU].mean - first["b", MASK_IOU].mean)


def test_tables_as_text():
    table = measure({"first": [0, 0, 0], "none": [-1, 2, 2]})
    rows = table.to_csv_rows()
    assert rows[0] == CSV_HEADER
    assert rows[1] == ("first", MASK_IOU, 2, 2, 1, 0.75, 0.5, 1.0)
    assert all(len(row) == len(CSV_HEADER) for row in rows)
    lines = table.to_markdown().splitlines()
    assert lines[0].startswith("| choice | exemplars used | mask IoU (n = 2) | part IoU (n = 2) |")
    assert lines[2].startswith("| first | 1 | 75.0 (50.0 to 100.0) |")
    assert "| none | 1 | 100.0 (100.0 to 100.0, n = 1) |" in lines[3]
    assert lines[-1] == "Per cent, with 95 % intervals over images."
    assert len({line.count("|") for line in lines[:5]}) == 1


def test_bars_in_names_do_not_break_the_table():
    lines = measure({"a|b": [0, 0, 0]}).to_markdown().splitlines()
    assert lines[2].startswith(r"| a\|b | 1 | 75.0 (50.0 to 100.0) |")
    assert len({line.replace(r"\|", "").count("|") for line in lines[:4]}) == 1


@pytest.mark.parametrize(
    ("choices", "options", "message"),
    [
        (
            {"a": [0, 1]},
            {},
            "`choices['a']` must be whole numbers of shape (3,) or (3, draws), or a Consensus, got int64 (2,)",
        ),
        ({"a": [0, 1, 4]}, {}, "`choices['a']` must hold exemplars from -1 to 3, got 4"),
        ({"a": Consensus([[0], [1], [-1]])}, {}, "`choices['a']` must hold exemplars from 0 to 3, got -1"),
        ({"a": Consensus([[0]])}, {}, "`choices['a'].exemplars` must have one entry per detection, 3, got 1"),
        ({WHOLE_BOX: [0, 0, 0]}, {}, "`choices` must not use the name 'whole box as mask', which is a row of its own"),
        ({}, {"confidence": 2}, "`confidence` must be <= 1, got 2"),
        ({"a": [3, 3, 3]}, {"whole_box": False}, "no detection is matched to an object that has something to compare"),
    ],
)
def test_bad_input_is_refused(choices, options, message):
    with pytest.raises(InputError) as caught:
        measure(choices, **options)
    assert str(caught.value) == message


def test_lengths_are_compared():
    with pytest.raises(InputError, match=r"^`instances` must have one entry per detection, 3, got 2$"):
        transfer_quality(EXEMPLARS, {}, BOXES, OBJECTS[:2], [(10, 8)] * 3)


def test_random_exemplars_are_of_the_class_and_not_of_the_image():
    exemplars = [exemplar(FULL, image_id=name) for name in "abcd"] + [exemplar(FULL, class_name="cat")]
    drawn = random_choice(exemplars, [found("a"), None, found("z")], n_draws=60, random_state=1)
    assert set(drawn[0]) == {1, 2, 3}
    assert set(drawn[1]) == {-1}
    assert set(drawn[2]) == {0, 1, 2, 3}
    again = random_choice(exemplars, [found("a"), None, found("z")], n_draws=60, random_state=1)
    np.testing.assert_array_equal(drawn, again)


def test_detections_are_matched_within_their_class():
    def thing(name, box, is_crowd=False):
        return Instance(name, np.array(box, dtype=np.float64), "a", 0, is_crowd=is_crowd)

    dog, cat, crowd = thing("dog", (0, 0, 10, 10)), thing("cat", (0, 0, 10, 10)), thing("cow", (0, 0, 10, 10), True)
    record = ImageRecord("a", partial(np.zeros, (20, 20, 3), np.uint8), 20, 20, (dog, cat, crowd))
    boxes = np.array([[0.0, 0, 10, 9], [0, 0, 10, 5], [0, 0, 10, 4.9], [0, 0, 10, 10], [0, 0, 10, 10]])
    names = np.array(["cat", "dog", "dog", "cow", "bird"])
    detections = Detections("a", boxes, np.zeros(5), names, np.zeros(5, dtype=np.int64))
    assert [each and each.class_name for each in matched_instances(detections, record)] == [
        "cat",
        "dog",
        None,
        None,
        None,
    ]


pieces = hnp.arrays(bool, st.tuples(st.integers(1, 6), st.integers(1, 6)))


@settings(deadline=None, max_examples=many(100))
@given(pieces, pieces, st.tuples(*[st.integers(0, 7)] * 4))
def test_pieces_overlap_like_whole_masks(first, second, places):
    wholes = []
    for piece, (x, y) in ((first, places[:2]), (second, places[2:])):
        whole = np.zeros((14, 14), dtype=bool)
        whole[y : y + piece.shape[0], x : x + piece.shape[1]] = piece
        wholes.append(whole)
    union = (wholes[0] | wholes[1]).sum()
    expected = (wholes[0] & wholes[1]).sum() / union if union else 0.0
    assert iou_of_pieces(first, places[:2], second, places[2:]) == expected


@settings(deadline=None, max_examples=many(200))
@given(pieces, pieces, hnp.arrays(bool, (14, 14)), st.tuples(*[st.integers(0, 7)] * 4))
def test_void_is_left_out_as_voc_does(handed, truth, void, places):
    (x, y), (u, v) = places[:2], places[2:]
    first, second = np.zeros((14, 14), dtype=bool), np.zeros((14, 14), dtype=bool)
    first[y : y + handed.shape[0], x : x + handed.shape[1]] = handed
    second[v : v + truth.shape[0], u : u + truth.shape[1]] = truth
    found = read_truth(replace(OBJECTS[0], mask=lambda: second, void=lambda: void)).mask_iou(handed, (x, y))
    labelled = ~void  # VOC's scorer drops all pixels of 255 before it counts
    if not second[labelled].any():
        assert found == {}
    else:
        expected = (first & second)[labelled].sum() / (first | second)[labelled].sum()
        assert found == {MASK_IOU: expected}


def test_scenes_from_end_to_end():
    scenes = make_scenes(n_train=12, n_test=12)
    records = {record.image_id: record for record in scenes}
    train = [each for each in scenes.instances() if each.image_id in scenes.splits["train"]]
    test = [each for each in scenes.instances() if each.image_id in scenes.splits["test"]]
    exemplars = [annotate(each) for each in train]
    sizes = [(records[each.image_id].width, records[each.image_id].height) for each in test]
    choices = {"random": random_choice(exemplars, test, n_draws=3)}
    table = transfer_quality(
        exemplars, choices, [each.box for each in test], test, sizes, best_exemplar=True, n_resamples=50
    )
    assert table[BEST_EXEMPLAR, MASK_IOU].mean > table["random", MASK_IOU].mean
    assert table[BEST_EXEMPLAR, MASK_IOU].mean > table[WHOLE_BOX, MASK_IOU].mean
    assert {PART_IOU, "part IoU, upper", "part IoU, lower"} <= set(table.measures)


def test_real_masks_parts_and_breeds():
    dataset = open_dataset(real_data("pets_voc"))
    sizes = {record.image_id: (record.width, record.height) for record in dataset}
    objects = list(dataset.instances("cat"))[::12]
    exemplars = [annotate(each) for each in objects]
    itself = np.arange(len(objects))
    choices = {"itself": itself, "random": random_choice(exemplars, objects, n_draws=3)}
    boxes = [each.box for each in objects]
    table = transfer_quality(
        exemplars, choices, boxes, objects, [sizes[each.image_id] for each in objects], n_resamples=50
    )
    assert table["itself", MASK_IOU].mean > 0.99
    assert table["itself", PART_IOU].mean == pytest.approx(1.0)
    assert table["itself", "subcategory"].mean == 1.0
    assert 0.3 < table["random", MASK_IOU].mean < 0.9
    without = [replace(each, void=None) for each in objects]
    blind = transfer_quality(
        exemplars, choices, boxes, without, [sizes[each.image_id] for each in objects], n_resamples=50
    )
    assert table[WHOLE_BOX, MASK_IOU].mean > blind[WHOLE_BOX, MASK_IOU].mean + 0.05  # a broad band around each cat
    handed = transfer(exemplars[0], objects[0].box, sizes[objects[0].image_id])
    assert handed.subcategory == objects[0].metadata["subcategory"]
