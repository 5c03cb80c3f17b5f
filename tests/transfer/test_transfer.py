"""Annotation transfer against a warp that counts sub-pixels, and votes against hand-worked cases."""

from dataclasses import fields, replace
from fractions import Fraction
from functools import partial
from math import ceil, floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eesvm import InputError
from eesvm.datasets import open_dataset
from eesvm.images.warping import Edges, resampled
from eesvm.structures import ExemplarAnnotation, Instance, Part
from eesvm.transfer import Agreement, annotate, transfer, transfer_consensus
from eesvm.transfer.inheritance import weighted_median
from helpers.dataset_files import real_data
from helpers.examples import many


def annotation(box=(0, 0, 4, 4), mask=None, **values):
    box = np.array(box, dtype=np.float64)
    values = {"class_name": "dog", "image_id": "a", "index": 0} | values
    return ExemplarAnnotation(box=box, mask=None if mask is None else np.array(mask, dtype=bool), **values)


def slow_warp(mask, source, target, width, height, is_mirrored=False):
    """The whole mask, pixel by pixel, in exact fractions: a pixel is in where half of it comes from the mask."""
    source, target = ([Fraction(float(side)) for side in box] for box in (source, target))
    scale_x = (source[2] - source[0]) / (target[2] - target[0])
    scale_y = (source[3] - source[1]) / (target[3] - target[1])
    whole = np.zeros((height, width), dtype=bool)
    for y in range(max(0, floor(target[1])), min(height, ceil(target[3]))):
        for x in range(max(0, floor(target[0])), min(width, ceil(target[2]))):
            left, right = ((x + side - target[0]) * scale_x for side in (0, 1))
            left, right = (
                (source[2] - right, source[2] - left) if is_mirrored else (source[0] + left, source[0] + right)
            )
            top, bottom = (source[1] + (y + side - target[1]) * scale_y for side in (0, 1))
            covered = Fraction(0)
            for row, column in np.argwhere(mask).tolist():
                u, v = column + max(0, floor(source[0])), row + max(0, floor(source[1]))
                across = max(Fraction(0), min(right, u + 1) - max(left, u))
                covered += across * max(Fraction(0), min(bottom, v + 1) - max(top, v))
            whole[y, x] = covered * 2 >= scale_x * scale_y
    return whole


quarters = st.integers(-12, 60).map(lambda n: n / 4)
sides = st.integers(2, 40).map(lambda n: n / 4)


@st.composite
def warps(draw):
    x, y = draw(st.integers(0, 20)) / 4, draw(st.integers(0, 20)) / 4
    source = (x, y, x + draw(sides), y + draw(sides))
    shape = ceil(source[3]) - floor(y), ceil(source[2]) - floor(x)
    u, v = draw(quarters), draw(quarters)
    return draw(hnp.arrays(bool, shape)), source, (u, v, u + draw(sides), v + draw(sides))


@settings(deadline=None, max_examples=many(150))
@given(warps(), st.booleans())
def test_masks_are_warped_like_sub_pixels(warp, is_mirrored):
    mask, source, target = warp
    if target[2] <= 0 or target[3] <= 0 or target[0] >= 12 or target[1] >= 9:
        with pytest.raises(InputError, match=r"^`box` must overlap the image of 12 x 9 pixels, got "):
            transfer(annotation(source, mask), target, (12, 9))
        return
    handed = transfer(annotation(source, mask), target, (12, 9), is_mirrored)
    if not mask.any():
        assert handed.mask is None
        return
    expected = slow_warp(mask, source, target, 12, 9, is_mirrored)
    np.testing.assert_array_equal(handed.whole_mask(), expected)
    x, y = handed.offset
    assert (x, y) == (max(0, floor(target[0])), max(0, floor(target[1])))
    assert handed.mask.sum() == expected.sum()


@settings(deadline=None, max_examples=60)
@given(hnp.arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 9))), st.integers(0, 5), st.integers(1, 4))
def test_identity_translation_and_whole_scales_are_exact(mask, shift, scale):
    mask[0, 0] = True
    height, width = mask.shape
    exemplar = annotation((3, 2, 3 + width, 2 + height), mask)
    np.testing.assert_array_equal(transfer(exemplar, exemplar.box, (50, 50)).mask, mask)
    np.testing.assert_array_equal(transfer(exemplar, exemplar.box + shift, (50, 50)).mask, mask)
    enlarged = transfer(exemplar, (shift, 0, shift + scale * width, scale * height), (50, 50))
    np.testing.assert_array_equal(enlarged.mask, np.kron(mask, np.ones((scale, scale), dtype=bool)))
    back = annotation(enlarged.box, enlarged.mask)
    np.testing.assert_array_equal(transfer(back, exemplar.box, (50, 50)).mask, mask)
    mirrored = transfer(exemplar, exemplar.box, (50, 50), is_mirrored=True)
    np.testing.assert_array_equal(mirrored.mask, mask[:, ::-1])


def test_sub_pixel_boxes_keep_their_own_mask():
    mask = np.eye(4, dtype=bool)
    exemplar = annotation((2.3, 5.8, 5.1, 8.2), mask)
    handed = transfer(exemplar, exemplar.box, (20, 20))
    np.testing.assert_array_equal(handed.mask, mask)
    assert handed.offset == (2, 5)


def test_masks_end_at_the_image():
    exemplar = annotation((0, 0, 4, 4), np.ones((4, 4)))
    handed = transfer(exemplar, (-2, 8, 2, 12), (10, 10))
    assert handed.offset == (0, 8)
    assert handed.mask.shape == (2, 2)
    assert handed.whole_mask().shape == (10, 10)
    assert handed.whole_mask().sum() == 4


def test_the_mask_of_an_object_that_leaves_its_image_stays_in_place():
    exemplar = annotation((-2, 0, 2, 2), [[True, False], [True, False]])  # the box reaches out to the left
    handed = transfer(exemplar, (10, 10, 14, 12), (20, 20))
    np.testing.assert_array_equal(handed.mask, [[False, False, True, False]] * 2)


def test_parts_keypoints_and_labels_come_along():
    exemplar = annotation(
        (10, 10, 20, 30),
        parts=(Part("head", np.array([10.0, 10, 15, 20])), Part("tail", np.array([18.0, 28, 22, 32]))),
        pose="Left",
        metadata={"subcategory": "pug", "keypoints": {"nose": [15, 20, 2], "ear": [0, 0, 0], "eye": [12.5, 15]}},
    )
    handed = transfer(exemplar, (100, 0, 120, 20), (118, 100))
    assert handed.class_name == "dog"
    assert [(part.name, part.box.tolist()) for part in handed.parts] == [
        ("head", [100, 0, 110, 10]),
        ("tail", [116, 18, 118, 22]),  # cut at the image, not at the box
    ]
    assert handed.keypoints == {"nose": (110.0, 10.0, 2.0), "eye": (105.0, 5.0)}  # the ear was not annotated
    assert (handed.pose, handed.subcategory, handed.metadata) == ("Left", "pug", {"subcategory": "pug"})
    assert handed.exemplars == (("a", 0),)
    assert handed.missing == ("mask",)
    mirrored = transfer(exemplar, (100, 0, 120, 20), (118, 100), is_mirrored=True)
    assert mirrored.parts[0].box.tolist() == [110, 0, 118, 10]
    assert mirrored.keypoints["eye"] == (115.0, 5.0)


@pytest.mark.parametrize(
    "odd",
    [
        {"x": "1", "y": "2"},  # tags within tags of a VOC file
        "left of the ear",
        "1 2",
        5,
        None,
        [1],
        [1, 2, 3, 4],
        [[1, 2], [3]],
        ["x", "y"],
        [1, np.nan],
        [np.inf, 2, 2],
        [10**400, 2],
    ],
)
def test_a_keypoint_that_is_no_place_is_left_out_alone(odd):
    exemplar = annotation((10, 10, 20, 30), metadata={"keypoints": {"nose": odd, "eye": [12.5, 15]}})
    box, size = (100, 0, 120, 20), (118, 100)
    assert transfer(exemplar, box, size).keypoints == {"eye": (105.0, 5.0)}
    assert transfer_consensus([exemplar, exemplar], None, box, size).keypoints == {"eye": (105.0, 5.0)}


def test_parts_outside_the_image_are_gone():
    exemplar = annotation((0, 0, 4, 4), parts=(Part("head", np.array([0.0, 0, 1, 1])),))
    assert transfer(exemplar, (-5, 0, 5, 4), (10, 10)).parts == ()


def test_an_exemplar_without_annotations_says_so():
    handed = transfer(annotation(), (0, 0, 4, 4), (10, 10))
    assert handed.missing == ("mask", "parts", "keypoints", "pose", "metadata")
    assert handed.mask is None
    assert handed.agreement == Agreement()
    with pytest.raises(InputError, match=r"^the detection has no mask: none was annotated for a, object 1$"):
        handed.whole_mask()


@pytest.mark.parametrize(
    ("box", "size", "message"),
    [
        ((1, 1, 1, 5), (10, 10), "`box` must have an area, got 1, 1, 1, 5"),
        ((5, 1, 1, 5), (10, 10), "`box` must have an area, got 5, 1, 1, 5"),
        ((1, np.nan, 3, 5), (10, 10), "`box` must hold finite coordinates within 1e9, got 1, nan, 3, 5"),
        ((1, 1, np.inf, 5), (10, 10), "`box` must hold finite coordinates within 1e9, got 1, 1, inf, 5"),
        ((1, 2, 3), (10, 10), "`box` must be x1, y1, x2, y2, got shape (3,)"),
        ("none", (10, 10), "`box` must be x1, y1, x2, y2"),
        ((11, 1, 15, 5), (10, 10), "`box` must overlap the image of 10 x 10 pixels, got 11, 1, 15, 5"),
        ((1, 1, 5, 5), (10,), "`image_size` must be (width, height), got (10,)"),
        ((1, 1, 5, 5), (10, 0), "`image_size` must be >= 1, got 0"),
        ((1, 1, 5, 5), (10, 2.5), "`image_size` must be an integer, got 2.5"),
        ((1, 1, 5, 5), (10**5, 10**5), "`image_size` must be at most 89,478,485 pixels, got 100000 x 100000"),
    ],
)
def test_bad_boxes_and_sizes_are_refused(box, size, message):
    with pytest.raises(InputError) as caught:
        transfer(annotation(mask=np.ones((4, 4))), box, size)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("exemplar", "message"),
    [
        (annotation((0, 0, 0, 4)), "the box of the exemplar a, object 1 must have an area, got 0, 0, 0, 4"),
        (
            annotation(mask=np.ones((5, 4))),
            "the mask of the exemplar a, object 1 must have the 4 x 4 pixels that its box touches, got 4 x 5",
        ),
        (
            annotation(parts=(Part("head", np.array([0.0, 0, np.nan, 1])),)),
            "the part head must hold finite coordinates within 1e9, got 0, 0, nan, 1",
        ),
    ],
)
def test_bad_annotations_are_refused(exemplar, message):
    exemplar = replace(exemplar, metadata={"keypoints": {"eye": [1, 1]}} | dict(exemplar.metadata))
    with pytest.raises(InputError) as caught:
        transfer(exemplar, (0, 0, 4, 4), (10, 10))
    assert str(caught.value) == message


# --- annotate


def instance(box, mask=None, **values):
    values = {"class_name": "dog", "image_id": "a", "index": 3} | values
    read = None if mask is None else partial(np.asarray, mask)
    return Instance(box=np.array(box, dtype=np.float64), mask=read, **values)


def test_annotate_cuts_to_the_pixels_that_the_box_touches():
    whole = np.arange(12 * 10).reshape(12, 10) % 3 == 0
    image = np.random.default_rng(0).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    head = Part("head", np.array([2.0, 3, 4, 5]))
    found = annotate(instance((2.5, 3, 7.2, 11), whole, parts=(head,), pose="Left", metadata={"a": 1}), image)
    np.testing.assert_array_equal(found.mask, whole[3:11, 2:8])
    np.testing.assert_array_equal(found.picture, image[3:11, 2:8])
    assert found.mask.base is None  # nothing keeps the whole mask alive
    assert (found.class_name, found.image_id, found.index, found.pose) == ("dog", "a", 3, "Left")
    assert (found.parts, found.metadata, found.box.tolist()) == ((head,), {"a": 1}, [2.5, 3, 7.2, 11])
    handed = transfer(found, found.box, (10, 12))
    np.testing.assert_array_equal(handed.whole_mask()[3:11, 2:8], whole[3:11, 2:8])


def test_annotate_without_pixels():
    assert annotate(instance((1, 1, 3, 3))).mask is None
    assert annotate(instance((1, 1, 3, 3), np.zeros((5, 5), dtype=bool))).mask is None
    outside = np.zeros((5, 5), dtype=bool)
    outside[4, 4] = True
    assert annotate(instance((1, 1, 3, 3), outside)).mask is None


@pytest.mark.parametrize(
    ("box", "image", "message"),
    [
        ((3, 1, 3, 3), None, "the box of object 4 of image a must have an area, got 3, 1, 3, 3"),
        ((7, 1, 9, 3), None, "the box of object 4 of image a must overlap its image of 5 x 4 pixels, got 7, 1, 9, 3"),
        ((1, 1, 3, 3), np.zeros((4, 5)), "`image` must be uint8 of shape (height, width, 3), got float64 (4, 5)"),
        (
            (1, 1, 3, 3),
            np.zeros((5, 5, 3), dtype=np.uint8),
            "the mask and the image of object 4 of image a must have one size, got 5 x 4 and 5 x 5 pixels",
        ),
    ],
)
def test_annotate_refuses_what_does_not_fit(box, image, message):
    with pytest.raises(InputError) as caught:
        annotate(instance(box, np.ones((4, 5), dtype=bool)), image)
    assert str(caught.value) == message


# --- consensus


def assert_same(first, second):
    for field in fields(first):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if field.name == "parts":
            assert [part.name for part in one] == [part.name for part in other]
            one, other = [part.box for part in one], [part.box for part in other]
        np.testing.assert_equal(one, other)


@settings(deadline=None, max_examples=60)
@given(warps(), st.integers(1, 4))
def test_one_exemplar_alone_or_repeated_is_a_transfer(warp, times):
    mask, source, target = warp
    target = (1, 1, *np.maximum(target[2:], 3))
    exemplar = annotation(
        source,
        mask,
        parts=(Part("hand", np.array([1.0, 1, 3, 3])), Part("hand", np.array([2.0, 1, 4, 5]))),
        metadata={"a": [1], "b": None, "keypoints": {"nose": (2, 3, 1)}},
        pose="Left",
    )
    alone = transfer(exemplar, target, (12, 9))
    assert_same(transfer_consensus([exemplar], [0.3], target, (12, 9)), alone)
    repeated = transfer_consensus([exemplar] * times, None, target, (12, 9))
    agreement = replace(repeated.agreement, metadata=alone.agreement.metadata)  # lists are not counted together
    assert_same(replace(repeated, exemplars=alone.exemplars, agreement=agreement), alone)
    assert repeated.agreement.metadata == pytest.approx({"a": 1 / times, "b": 1.0})


def three():
    """Three exemplars that differ in everything."""
    left, right = [[1, 1, 0, 0]] * 4, [[0, 0, 1, 1]] * 4
    head = [(0, 0, 2, 2), (0, 0, 2, 4), (3, 3, 4, 4)]
    kinds = ("pug", "boxer", "pug")
    return [
        annotation(
            mask=mask,
            image_id=str(number),
            parts=(Part("head", np.array(box, dtype=np.float64)),),
            pose=("Left", "Right", None)[number],
            metadata={"kind": kind},
        )
        for number, (mask, box, kind) in enumerate(zip((left, right, np.ones((4, 4))), head, kinds, strict=True))
    ]


def test_votes_by_weight():
    handed = transfer_consensus(three(), [1, 4, 2], (0, 0, 4, 4), (4, 4))
    np.testing.assert_array_equal(handed.mask, [[0, 0, 1, 1]] * 4)  # 3 of 7 on the left, 6 of 7 on the right
    assert handed.agreement.mask == pytest.approx((4 / 7 + 6 / 7) / 2)
    assert handed.parts[0].box.tolist() == [0, 0, 2, 4]
    assert handed.agreement.parts == pytest.approx((5 / 7,))  # 0, 0, 2, 2 overlaps it by half, 3, 3, 4, 4 does not
    assert (handed.pose, handed.agreement.pose) == ("Right", pytest.approx(4 / 7))
    assert (handed.metadata, handed.agreement.metadata) == ({"kind": "boxer"}, {"kind": pytest.approx(4 / 7)})
    assert handed.exemplars == (("0", 0), ("1", 0), ("2", 0))
    even = transfer_consensus(three(), None, (0, 0, 4, 4), (4, 4))
    np.testing.assert_array_equal(even.mask, np.ones((4, 4)))
    assert even.agreement.mask == pytest.approx(2 / 3)
    assert even.metadata == {"kind": "pug"}
    assert even.pose == "Left"  # of equal weights the first
    assert even.agreement.pose == pytest.approx(1 / 3)  # who has no pose is not behind it


def test_ties_and_exemplars_without_weight():
    first, second, _ = three()
    tied = transfer_consensus([first, second], None, (0, 0, 4, 4), (4, 4))
    np.testing.assert_array_equal(tied.mask, np.ones((4, 4)))  # exactly half is in
    assert tied.agreement.mask == 0.5
    assert tied.parts[0].box.tolist() == [0, 0, 2, 3]  # the middle of two
    assert (tied.pose, tied.metadata["kind"]) == ("Left", "pug")
    assert transfer_consensus([second, first], None, (0, 0, 4, 4), (4, 4)).pose == "Right"
    assert_same(transfer_consensus(three(), [0, 1, 0], (0, 0, 4, 4), (4, 4)), transfer(second, (0, 0, 4, 4), (4, 4)))


def test_parts_of_the_minority_and_masks_that_are_missing():
    first, second, third = three()
    second = replace(second, parts=(*second.parts, Part("tail", np.array([1.0, 1, 2, 2]))))
    third = replace(third, parts=(), mask=None)
    handed = transfer_consensus([first, second, third], [3, 1, 2], (0, 0, 4, 4), (4, 4))
    assert [part.name for part in handed.parts] == ["head"]  # the tail has 1 of the 4 that have parts
    np.testing.assert_array_equal(handed.mask, first.mask)  # 3 of the 4 that have a mask
    assert handed.agreement.mask == pytest.approx(3 / 4 * 4 / 6)
    handed = transfer_consensus([first, second], [1, 3], (0, 0, 4, 4), (4, 4))
    assert [part.name for part in handed.parts] == ["head", "tail"]
    assert handed.agreement.parts[1] == 0.75


@pytest.mark.parametrize(
    ("n", "weights", "message"),
    [
        (0, None, "`annotations` must hold at least one exemplar"),
        (2, [0, 0], "`weights` must not all be 0"),
        (2, [1, -1], "`weights` must be >= 0, got -1 at index 1"),
        (2, [1], "`weights` must have shape (2,), got (1,)"),
        (2, [1, np.nan], "`weights` holds 1 value that is NaN or infinite, the first at index 1"),
    ],
)
def test_bad_votes_are_refused(n, weights, message):
    with pytest.raises(InputError) as caught:
        transfer_consensus(three()[:n], weights, (0, 0, 4, 4), (4, 4))
    assert str(caught.value) == message


@settings(deadline=None, max_examples=many(100))
@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 6)), min_size=1, max_size=8))
def test_the_weighted_median_repeats_its_values(pairs):
    values, weights = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))
    expected = np.median(np.repeat(values, weights.astype(int)))
    assert weighted_median(values, weights) == expected
    assert weighted_median(values, weights / 7) == pytest.approx(expected)


# --- colours, size, real data


def test_colours_survive_identity_and_stay_between_neighbours():
    picture = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    np.testing.assert_array_equal(resampled(picture, Edges(np.arange(8.0), np.arange(6.0))), picture)
    flat = np.full((5, 7, 3), 77, dtype=np.uint8)
    assert (resampled(flat, Edges(np.linspace(-1, 9, 20), np.linspace(0, 5, 3))) == 77).all()
    ramp = np.repeat(np.arange(0, 70, 10, dtype=np.uint8)[None, :, None], 3, axis=2)
    enlarged = resampled(ramp, Edges(np.linspace(0, 7, 15), np.array([0.0, 1.0])))[0, :, 0].astype(int)
    assert (np.diff(enlarged) >= 0).all()


def test_many_detections_in_large_images_stay_small():
    exemplar = annotation((0, 0, 200, 150), np.random.default_rng(0).random((150, 200)) > 0.5)
    handed = [transfer(exemplar, (k, k, k + 120, k + 90), (4000, 3000)) for k in range(500)]
    assert sum(each.mask.nbytes for each in handed) == 500 * 120 * 90


@pytest.mark.parametrize("name", ["pets_voc", "coco_subset_128"])
def test_real_masks_fit_their_own_box_and_survive_a_journey(name):
    dataset = open_dataset(real_data(name))
    images = {record.image_id: record for record in dataset}
    objects = [each for each in dataset.instances() if not each.is_crowd][::40]
    for each in objects:
        record = images[each.image_id]
        size = (record.width, record.height)
        found = annotate(each)
        whole = each.mask()
        x1, y1 = np.floor(each.box[:2]).astype(int)
        x2, y2 = np.ceil(each.box[2:]).astype(int)
        inside = np.zeros_like(whole)
        inside[y1:y2, x1:x2] = whole[y1:y2, x1:x2]
        if found.mask is None:
            assert not inside.any()
            continue
        own = transfer(found, each.box, size).whole_mask()
        assert (own & inside).sum() / (own | inside).sum() > 0.99
        there = transfer(found, (10.3, 20.6, 10.3 + 2.5 * (x2 - x1), 20.6 + 2.5 * (y2 - y1)), (4000, 3000))
        back = transfer(annotation(there.box, there.mask), each.box, size).whole_mask()
        assert (back & inside).sum() / (back | inside).sum() > 0.95
