"""The embedded scenes: the same everywhere, annotated exactly, with nothing shared between training and test."""

import hashlib
import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from eesvm import InputError, boxes
from eesvm.datasets import _scene_pixels, scenes
from eesvm.datasets._scene_glyphs import Draw
from eesvm.datasets.scenes import make_scenes

BOXES_OF_TEN = "5dfe9faed1d90ab8"  # shapes depend on numpy alone; another value means other scenes for everybody


@pytest.fixture(scope="module")
def dataset():
    return make_scenes()


@pytest.fixture(scope="module")
def few():
    return make_scenes(6, 6)


def digest(*arrays):
    content = hashlib.sha256()
    for array in arrays:
        content.update(np.ascontiguousarray(array).tobytes())
    return content.hexdigest()[:16]


def ink(instance):
    return instance.mask()


def test_the_default_has_the_promised_size(dataset):
    assert len(dataset) == 120
    assert {name: len(ids) for name, ids in dataset.splits.items()} == {"train": 60, "test": 60}
    assert dataset.classes == ("three", "four", "five", "eight")
    assert [image.image_id for image in dataset] == [*dataset.splits["train"], *dataset.splits["test"]]
    assert all(1 <= len(image.instances) <= 4 for image in dataset)
    for name in dataset.classes:
        for split in ("train", "test"):
            assert sum(i.image_id.startswith(split) for i in dataset.instances(name)) >= 25


def test_images_are_images(few):
    for record in few:
        image = record.read()
        assert image.dtype == np.uint8
        assert image.shape == (record.height, record.width, 3) == (240, 320, 3)
        assert image.std() > 15


def test_the_same_arguments_give_the_same_scenes(few):
    again = make_scenes(6, 6)
    assert digest(*(r.read() for r in few)) == digest(*(r.read() for r in again))
    assert digest(*(ink(i) for i in few.instances())) == digest(*(ink(i) for i in again.instances()))
    other = make_scenes(6, 6, random_state=1)
    assert digest(*(r.read() for r in few)) != digest(*(r.read() for r in other))


@pytest.mark.long
def test_another_process_makes_the_same_scenes(few):
    script = (
        "import hashlib; from eesvm.datasets.scenes import make_scenes; h = hashlib.sha256()\n"
        "for r in make_scenes(6, 6): h.update(r.read().tobytes())\n"
        "print(h.hexdigest()[:16])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest(*(r.read() for r in few))


def test_boxes_are_the_ones_they_have_always_been():
    assert digest(*(i.box for i in make_scenes(5, 5).instances())) == BOXES_OF_TEN


def test_a_scene_does_not_depend_on_how_many_there_are(few):
    more = make_scenes(9, 2)
    for record in few.images[:6]:
        twin = next(r for r in more if r.image_id == record.image_id)
        assert digest(record.read()) == digest(twin.read())
        assert [i.box.tolist() for i in record.instances] == [i.box.tolist() for i in twin.instances]


def test_masks_fill_their_boxes_and_share_no_pixel(dataset):
    for record in dataset:
        taken = np.zeros((record.height, record.width), dtype=int)
        for index, instance in enumerate(record.instances):
            mask = ink(instance)
            assert mask.shape == taken.shape
            assert mask.dtype == bool
            rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
            assert instance.box.tolist() == [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
            assert (instance.image_id, instance.index) == (record.image_id, index)
            taken += mask
        assert taken.max() <= 1


def test_parts_lie_in_their_boxes_and_make_them_up(dataset):
    n_both = 0
    for instance in dataset.instances():
        parts = {part.name: part.box for part in instance.parts}
        assert set(parts) <= {"upper", "lower"}
        corners = np.array(list(parts.values()))
        assert [*corners[:, :2].min(axis=0), *corners[:, 2:].max(axis=0)] == instance.box.tolist()
        if len(parts) == 2:
            n_both += 1
            assert parts["upper"][1] < parts["lower"][3]
            assert parts["upper"][[1, 3]].mean() < parts["lower"][[1, 3]].mean()
    assert n_both > 0.95 * len(list(dataset.instances()))


def test_metadata_says_how_it_was_made(dataset):
    digits = load_digits().target
    for instance in dataset.instances():
        data = instance.metadata
        assert scenes.NAMES[data["digit"]] == instance.class_name
        assert digits[data["digit_image"]] == data["digit"]
        assert abs(data["rotation"]) <= 18
        assert 0 <= data["occlusion"] < 1
        assert 0 < data["contrast"] <= 1
        assert instance.is_truncated == (data["occlusion"] > 0)
        assert instance.is_difficult == (data["occlusion"] > 0.5)
        full = np.array([data["full_box"]])
        assert boxes.intersection_over_second(full, instance.box[None])[0, 0] == 1
        if data["occlusion"] == 0:
            assert full[0].tolist() == instance.box.tolist()
        assert full[0, 3] - full[0, 1] < 1.6 * data["scale"]
    hidden = np.array([i.metadata["occlusion"] for i in dataset.instances()])
    assert 0.2 < (hidden > 0.05).mean() < 0.6
    assert (hidden > 0.5).mean() < 0.1


def test_training_and_test_share_no_digit_image(dataset):
    used = {"train": set(), "test": set()}
    for instance in dataset.instances():
        used[instance.image_id.split("_")[0]].add(instance.metadata["digit_image"])
    assert not used["train"] & used["test"]
    assert min(map(len, used.values())) > 80


def test_training_and_test_share_no_piece_of_photograph(monkeypatch):
    photo = np.zeros((427, 640, 3), dtype=np.uint8)
    photo[:, 320:] = 200
    monkeypatch.setattr(_scene_pixels, "photographs", lambda: (photo, photo))
    for seed in range(20):
        assert _scene_pixels.surface(80, 60, 0, Draw(seed)).max() < 40
        assert _scene_pixels.surface(80, 60, 1, Draw(seed)).min() > 70


def test_objects_can_be_told_from_what_is_around_them(few):
    differences = []
    for record in few:
        grey = record.read().mean(axis=2)
        for instance in record.instances:
            x1, y1, x2, y2 = instance.box.astype(int)
            inside = ink(instance)[y1:y2, x1:x2]
            if instance.metadata["contrast"] > 0.4 and (~inside).any():
                view = grey[y1:y2, x1:x2]
                differences.append(abs(view[inside].mean() - view[~inside].mean()))
    assert np.median(differences) > 25


def test_records_travel_to_other_processes(few):
    copy = pickle.loads(pickle.dumps(few))
    assert digest(copy[3].read()) == digest(few[3].read())
    assert digest(copy[3].instances[0].mask()) == digest(few[3].instances[0].mask())


def test_other_sizes_and_classes():
    wide = make_scenes(2, 0, classes=["nine"], width=500, height=100)
    assert wide.splits["test"] == ()
    assert {i.class_name for i in wide.instances()} == {"nine"}
    assert wide[0].read().shape == (100, 500, 3)
    everything = make_scenes(2, 1, classes=scenes.NAMES)  # no digit is left over as a distractor
    assert everything[0].read().shape == (240, 320, 3)
    assert len(make_scenes(0, 0)) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"n_train": -1}, "`n_train` must be >= 0, got -1"),
        ({"n_test": 1.5}, "`n_test` must be an integer, got 1.5"),
        ({"width": 50}, "`width` must be >= 96, got 50"),
        ({"random_state": -1}, "`random_state` must be >= 0, got -1"),
        ({"classes": ()}, r"`classes` must be different names from 'zero' to 'nine', at least one, got \(\)"),
        ({"classes": "three"}, "`classes` must be different names from 'zero' to 'nine', at least one, got 'three'"),
        ({"classes": ["three", "three"]}, "`classes` must be different names"),
        ({"classes": ["cat"]}, "`classes` must be different names"),
    ],
)
def test_wrong_arguments_are_named(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        make_scenes(**arguments)


def test_without_pillow_reading_says_what_to_install(few, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    _scene_pixels.photographs.cache_clear()
    with pytest.raises(InputError, match=r"pip install 'eesvm\[vision\]'"):
        few[0].read()
