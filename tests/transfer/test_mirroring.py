"""Mirror images of exemplars: twice is once too often, left and right change sides, files keep the object once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eesvm import InputError
from eesvm.structures import ExemplarAnnotation, Part
from eesvm.transfer import mirrored, transfer, transfer_consensus
from eesvm.transfer.annotations import load_annotations, save_annotations
from eesvm.transfer.mirroring import other_side


def annotation(box=(10, 10, 20, 30), mask=None, **values):
    values = {"class_name": "dog", "image_id": "a", "index": 0} | values
    return ExemplarAnnotation(box=np.array(box, dtype=np.float64), mask=mask, **values)


def whole():
    random = np.random.default_rng(0)
    return annotation(
        (10.25, 10, 20.5, 30),
        mask=random.random((20, 11)) < 0.5,
        picture=random.integers(0, 256, (20, 11, 3), dtype=np.uint8),
        parts=(Part("left ear", np.array([10.5, 10, 13, 12])), Part("nose", np.array([12.0, 14, 14, 15]))),
        pose="Left",
        metadata={"breed": "left-handed pug", "keypoints": {"left_eye": [12, 11, 2], "nose": (13, 14.5, 1)}},
    )


def same(one, other):
    for name in ("class_name", "image_id", "index", "pose", "is_mirrored"):
        assert getattr(one, name) == getattr(other, name)
    for name in ("box", "mask", "picture"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert [(part.name, part.box.tolist()) for part in one.parts] == [(p.name, p.box.tolist()) for p in other.parts]
    plain = [{**each.metadata, "keypoints": None} for each in (one, other)]
    assert plain[0] == plain[1]
    points = [{k: list(map(float, v)) for k, v in each.metadata["keypoints"].items()} for each in (one, other)]
    assert points[0] == points[1]


def test_mirrored_twice_is_the_identity():
    exemplar = whole()
    once = mirrored(exemplar)
    assert once.is_mirrored
    assert once.name == "a, object 1, mirrored"
    same(mirrored(once), exemplar)


def test_everything_changes_sides_and_stays_in_place():
    once = mirrored(whole())
    assert once.box.tolist() == [10.5, 10, 20.75, 30]  # about the middle of pixels 10 to 20
    np.testing.assert_array_equal(once.mask, whole().mask[:, ::-1])
    np.testing.assert_array_equal(once.picture, whole().picture[:, ::-1])
    assert [(part.name, part.box.tolist()) for part in once.parts] == [
        ("right ear", [18, 10, 20.5, 12]),
        ("nose", [17, 14, 19, 15]),
    ]
    assert once.pose == "Right"
    assert once.metadata["breed"] == "left-handed pug"  # a label that is not about this picture
    assert once.metadata["keypoints"] == {"right_eye": [19, 11, 2], "nose": [18, 14.5, 1]}


@settings(deadline=None, max_examples=40)
@given(
    hnp.arrays(bool, st.tuples(st.integers(1, 7), st.integers(1, 7))),
    st.tuples(st.integers(-9, 20), st.integers(-9, 20)),
    st.tuples(st.integers(5, 40), st.integers(5, 40)),
)
def test_what_is_handed_on_is_the_mirror_image(mask, corner, sides):
    """In a mirrored photograph the mirrored exemplar hands on the mirror image of what the object does."""
    mask[0, 0] = True
    exemplar = annotation((3, 2, 3 + mask.shape[1], 2 + mask.shape[0]), mask)
    x, y = corner[0] / 2, corner[1] / 2
    box = np.array([x, y, x + sides[0] / 2, y + sides[1] / 2])
    if not (box[:2] < 15).all() or not (box[2:] > 0).all():
        return
    plain = transfer(exemplar, box, (15, 15)).whole_mask()
    flipped = transfer(mirrored(exemplar), (15 - box[2], box[1], 15 - box[0], box[3]), (15, 15)).whole_mask()
    np.testing.assert_array_equal(flipped, plain[:, ::-1])


@pytest.mark.parametrize("box", [(-2, 0, 2, 2), (8, 0, 12, 2)])
def test_objects_that_leave_their_image_on_either_side(box):
    exemplar = annotation(box, np.array([[True, False]] * 2))  # of an image of 10 pixels: half of the box is outside
    plain = transfer(exemplar, (0, 0, 4, 2), (4, 2)).mask
    np.testing.assert_array_equal(transfer(mirrored(exemplar), (0, 0, 4, 2), (4, 2)).mask, plain[:, ::-1])
    np.testing.assert_array_equal(transfer(mirrored(mirrored(exemplar)), (0, 0, 4, 2), (4, 2)).mask, plain)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("left_eye", "right_eye"),
        ("Right", "Left"),
        ("LEFT-EAR", "RIGHT-EAR"),
        ("leftEye", "rightEye"),
        ("eyeRight", "eyeLeft"),
        ("front left leg", "front right leg"),
        ("upright", "upright"),
        ("leftover", "leftover"),
        ("Frontal", "Frontal"),
        ("", ""),
    ],
)
def test_names_of_the_other_side(name, other):
    assert other_side(name) == other
    assert other_side(other) == name


def test_letters_are_sides_where_both_are_known():
    assert other_side("eye_l", ["eye_l", "eye_r"]) == "eye_r"
    assert other_side("L.Knee", ["L.Knee", "R.Knee"]) == "R.Knee"
    assert other_side("eye_l", ["eye_l"]) == "eye_l"
    assert other_side("ball", ["ball", "barl"]) == "ball"


def test_keypoints_that_are_no_places_are_left_as_they_are():
    exemplar = annotation(metadata={"keypoints": {"left": "somewhere", "right": None, "nose": [12, 11]}})
    once = mirrored(exemplar)
    assert once.metadata["keypoints"] == {"right": "somewhere", "left": None, "nose": [18, 11]}
    assert mirrored(annotation(metadata={"keypoints": 5})).metadata == {"keypoints": 5}


def test_object_and_mirror_image_vote_together():
    exemplar = annotation((0, 0, 2, 2), np.array([[True, False]] * 2), parts=(Part("left", np.array([0.0, 0, 1, 1])),))
    both = transfer_consensus([exemplar, mirrored(exemplar)], [2, 1], (0, 0, 2, 2), (2, 2))
    np.testing.assert_array_equal(both.mask, exemplar.mask)
    assert both.exemplars == (("a", 0), ("a", 0))


def test_files_keep_the_object_once(tmp_path):
    objects = [whole(), annotation(image_id="b", index=3, metadata={"keypoints": {}})]
    every = [*objects, *map(mirrored, objects)]
    file = tmp_path / "annotations.safetensors"
    save_annotations(file, every)
    for one, other in zip(load_annotations(file), every, strict=True):
        same(one, other)
    alone = tmp_path / "alone.safetensors"
    save_annotations(alone, objects)
    assert file.stat().st_size < alone.stat().st_size + 200


def test_a_mirror_image_without_its_object_is_refused(tmp_path):
    sentence = r"^`annotations` must hold the object of each mirror image, but object 1 of image a is missing$"
    with pytest.raises(InputError, match=sentence):
        save_annotations(tmp_path / "x", [mirrored(whole())])
