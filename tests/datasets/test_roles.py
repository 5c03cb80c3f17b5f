"""Three roles of images: what is refused, what is said, and that names do not matter."""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from eesvm import InputError
from eesvm.datasets.roles import PictureCodes, Roles, sentences, without_copies
from eesvm.descriptors.backbones import untuned
from eesvm.images import read_image, write_image
from helpers.detector_scenes import scenes


def codes(images, source="photos"):
    return PictureCodes.of(images, source)


def disguised(record, folder, name):
    """The same photograph under another name, as a JPEG of quality 40."""
    path = folder / f"{name}.jpg"
    write_image(path, record.read(), quality=40)
    return replace(record, image_id=name, read=partial(read_image, path), path=str(path))


def test_codes_come_back_from_plain_values():
    own = codes(scenes("train"))
    again = PictureCodes.from_dict(own.as_dict(), "net.onnx")
    assert again.source == "photos"
    assert (again.codes == own.codes).all()
    assert again.names[:2] == ("1", "2")


def test_codes_of_another_version_say_nothing():
    assert PictureCodes.from_dict(codes(scenes("test")).as_dict() | {"version": 99}, "net.onnx") is None


@pytest.mark.parametrize("damage", [{"codes": ["zz"]}, {"codes": ["00"]}, {"codes": 3}, {"source": 1, "codes": [1]}])
def test_damaged_codes_are_refused(damage):
    content = codes(scenes("test")).as_dict() | damage
    message = "net.onnx: what it says about the images it was tuned on cannot be read"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        PictureCodes.from_dict(content, "net.onnx")


def test_an_image_that_cannot_be_read_is_left_out():
    def broken():
        raise InputError("it is broken")

    records = [*scenes("test")[:2], replace(scenes("test")[2], read=broken)]
    told = []
    found = PictureCodes.of(records, "photos", lambda done, total: told.append((done, total)))
    assert found.names == tuple(record.image_id for record in records[:2])
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_an_empty_collection_shares_nothing():
    assert codes([]).shared_with(codes(scenes("test"))) == []
    assert Roles(codes([]), codes([]), codes([])).n_shared == 0


def test_a_test_image_among_the_exemplars_is_refused_whatever_its_name(tmp_path):
    train, test = scenes("train"), scenes("test")
    copy = disguised(train[3], tmp_path, "holiday")
    message = (
        f"the test image holiday ({train[3].image_id} there) is among the images to train and calibrate on, judged by "
        "content: take it out of one of the two"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        Roles(codes(train), test=codes([*test, copy])).check()
    Roles(codes(train), test=codes(test)).check()


def test_many_test_images_among_those_of_the_network_are_counted(tmp_path):
    train, test = scenes("train"), scenes("test")
    copies = [disguised(record, tmp_path, f"copy{k}") for k, record in enumerate(test[:4])]
    message = (
        "4 test images are among the images the network was tuned on, judged by content, "
        f"{', '.join(f'{test[k].image_id} (copy{k} there)' for k in range(3))} and 1 more: "
        "take them out of one of the two"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        Roles(codes(train), codes(copies), codes(test)).check()


def test_what_the_network_shares_with_the_exemplars_is_counted_and_said(tmp_path):
    train, test = scenes("train"), scenes("test")
    network = codes([disguised(record, tmp_path, f"n{k}") for k, record in enumerate(train[:5])], "others")
    roles = Roles(codes(train), network, codes(test, "judges"))
    roles.check()
    assert roles.n_shared == 5
    said = " ".join(sentences(roles.summary(), {"own": 0.001, "across": 0.3}))
    assert said == (
        "The network was tuned on 5 images of others, among them 5 of the 12 images that exemplars and calibration "
        "come from, as in the paper: the fewer they are, the better it knows their windows by heart, and the less "
        "calibration can learn there. How separable the calibration windows are: at full recall the joint thresholds "
        "accept 0.1 % of the negatives where exemplars may cover windows of their own image, and 30 % where they may "
        "not. None of the 6 test images of judges is among the others (judged by content, not by name)."
    )


def test_a_network_of_other_images_is_said_to_be_one():
    roles = Roles(codes(scenes("train")), codes(scenes("test"), "others"))
    assert sentences(roles.summary()) == [
        "The network was tuned on 6 images of others; none of the 12 images of the exemplars is among them."
    ]
    unknown = Roles(codes(scenes("train")))
    assert unknown.n_shared is None
    assert sentences(unknown.summary()) == ["The images that the network was tuned on, if any, are not known."]


def test_what_no_images_have_tuned_is_said_to_be_as_it_comes():
    own, others = codes(scenes("train")), codes(scenes("test"), "others")
    assert sentences(Roles(own, untuned=untuned("cnn", "lite0")).summary()) == [
        "The network is lite0 as it comes: trained to name the pictures of ImageNet, and tuned on no boxes."
    ]
    assert sentences(Roles(own, untuned=untuned("hog", "lite0")).summary()) == [
        "Windows are described by HOG, which no images have tuned."
    ]
    assert untuned("cnn", "mine.onnx") is None
    assert "tuned on 6 images of others" in sentences(Roles(own, others, untuned="lite0").summary())[0]


def test_copies_of_earlier_images_are_left_out(tmp_path):
    train = scenes("train")
    images = [train[0], disguised(train[0], tmp_path, "a"), *train[1:3], disguised(train[0], tmp_path, "b"), train[3]]
    kept, copies = without_copies(images)
    assert [record.image_id for record in kept] == [record.image_id for record in train[:4]]
    assert copies == [("a", train[0].image_id), ("b", train[0].image_id)]
    assert without_copies(train) == (list(train), [])


def test_random_pictures_are_told_apart():
    random = np.random.default_rng(0)
    records = [
        replace(scenes("test")[0], image_id=str(k), read=partial(np.array, random.integers(0, 256, (60, 80, 3), "u1")))
        for k in range(40)
    ]
    own = codes(records)
    assert own.shared_with(own) == [(str(k), str(k)) for k in range(40)]
