"""What is written is what was there: round trips through VOC and COCO, and the parts of a dataset."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from eesvm import InputError
from eesvm.datasets import open_dataset, select, summary, write_coco, write_voc
from eesvm.structures import Dataset, ImageRecord, Instance, Part
from helpers.dataset_files import pixels, real_data, save_coco, save_image, save_text, save_voc, voc_object

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools


def made_dataset():
    """Two images that are not files, with everything an instance can carry."""
    mask = np.zeros((30, 40), bool)
    mask[3:20, 5:17] = True
    other = np.zeros((30, 40), bool)
    other[22:, 20:] = True
    first = Instance(
        "dog",
        np.array([5.0, 3.0, 17.0, 20.0]),
        "train/one",
        0,
        mask=lambda: mask,
        parts=(Part("head", np.array([6.0, 4.0, 9.5, 8.25])),),
        is_difficult=True,
        pose="Left <of> centre",
        metadata={"subcategory": "fox & terrier", "hat colour": "red", "nested": {"a": "1", "b": ["2", "3"]}},
    )
    second = Instance("cat", np.array([20.0, 22.0, 40.0, 30.0]), "train/one", 1, mask=lambda: other, is_truncated=True)
    third = Instance("dog", np.array([0.25, 0.5, 7.125, 9.75]), "two", 0)
    images = (
        ImageRecord("train/one", lambda: pixels(40, 30, 1), 40, 30, (first, second)),
        ImageRecord("two", lambda: pixels(20, 10, 2), 20, 10, (third,)),
    )
    splits = {"train": ("train/one",), "dog_all": ("train/one", "two"), "dog_all=1": ("two",), "dog_all=0": ()}
    return Dataset("made", images, ("dog", "cat"), {**splits, "dog_all=-1": ("train/one",)})


def assert_same(first, second, metadata=True):
    assert [image.image_id for image in first] == [image.image_id for image in second]
    assert set(first.classes) == set(second.classes)
    for one, two in zip(first, second, strict=True):
        assert (one.width, one.height) == (two.width, two.height)
        np.testing.assert_array_equal(one.read(), two.read())
        for a, b in zip(one.instances, two.instances, strict=True):
            np.testing.assert_allclose(a.box, b.box, rtol=0, atol=1e-9)
            assert (a.class_name, a.is_difficult, a.is_truncated, a.pose) == (
                b.class_name,
                b.is_difficult,
                b.is_truncated,
                b.pose,
            )
            assert (a.mask is None) == (b.mask is None)
            if a.mask is not None:
                np.testing.assert_array_equal(a.mask(), b.mask())
            for p, q in zip(a.parts, b.parts, strict=True):
                assert p.name == q.name
                np.testing.assert_allclose(p.box, q.box, rtol=0, atol=1e-9)
            if metadata:
                assert dict(a.metadata) == {k: v for k, v in b.metadata.items() if k != "annotation_id"}


@pytest.mark.parametrize("write", [write_voc, write_coco])
def test_everything_comes_back(tmp_path, write):
    dataset = made_dataset()
    write(dataset, tmp_path / "out")
    again = open_dataset(tmp_path / "out", strict=True, check="full")
    assert_same(dataset, again)
    assert dict(again.splits) == dict(dataset.splits)
    write(again, tmp_path / "again")
    assert_same(again, open_dataset(tmp_path / "again", strict=True), metadata=write is write_voc)


@pytest.mark.parametrize("write", [write_coco, write_voc])
def test_an_image_that_cannot_be_read_keeps_its_name(tmp_path, write):
    write(made_dataset(), tmp_path / "copy")
    whole = open_dataset(tmp_path / "copy")
    for record in whole:
        Path(record.path).write_bytes(b"")
    found = [(one.path, one.image_id) for one in open_dataset(tmp_path / "copy").problems if one.kind == "image"]
    assert sorted(found) == sorted((record.path, record.image_id) for record in whole)


def test_pycocotools_reads_what_is_written(tmp_path):
    write_coco(made_dataset(), tmp_path / "out")
    theirs = COCO(str(tmp_path / "out/instances.json"))
    assert [category["name"] for category in theirs.loadCats(theirs.getCatIds())] == ["dog", "cat"]
    first = theirs.loadAnns([1])[0]
    np.testing.assert_array_equal(theirs.annToMask(first).astype(bool), made_dataset()[0].instances[0].mask())
    assert first["bbox"] == [5, 3, 12, 17]
    assert first["area"] == 12 * 17


def test_voc_numbers_and_colours_are_those_of_voc(tmp_path):
    write_voc(made_dataset(), tmp_path / "out")
    text = (tmp_path / "out/Annotations/train/one.xml").read_text()
    assert "<bndbox><xmin>6</xmin><ymin>4</ymin><xmax>17</xmax><ymax>20</ymax></bndbox>" in text
    picture = Image.open(tmp_path / "out/SegmentationObject/train/one.png")
    assert picture.mode == "P"
    assert picture.getpalette()[:12] == [0, 0, 0, 128, 0, 0, 0, 128, 0, 128, 128, 0]
    assert (tmp_path / "out/ImageSets/Main/dog_all.txt").read_text() == "train/one -1\ntwo  1\n"


def test_void_pixels_come_back_from_voc(tmp_path):
    dataset = made_dataset()
    void = np.zeros((30, 40), bool)
    void[18:24, 3:19] = True  # overlaps the first mask, which wins
    marked = tuple(replace(each, void=lambda: void) for each in dataset[0].instances)
    record = replace(dataset[0], instances=marked)
    write_voc(replace(dataset, images=(record, *dataset.images[1:])), tmp_path / "out")
    again = open_dataset(tmp_path / "out", strict=True)
    assert_same(dataset, again)
    expected = void & ~marked[0].mask() & ~marked[1].mask()
    for instance in again[0].instances:
        np.testing.assert_array_equal(instance.void(), expected)


def test_image_files_are_copied_byte_for_byte(tmp_path):
    save_voc(tmp_path / "in", "a", voc_object())
    write_coco(open_dataset(tmp_path / "in"), tmp_path / "out")
    assert (tmp_path / "out/images/a.jpg").read_bytes() == (tmp_path / "in/JPEGImages/a.jpg").read_bytes()


def test_a_json_file_alone(tmp_path):
    for name in ("train/a.jpg", "test/b.jpg"):
        save_image(tmp_path / "in" / name)
    dataset = open_dataset(tmp_path / "in")
    write_coco(dataset, tmp_path / "out.json")
    again = open_dataset(tmp_path / "out.json", images=tmp_path / "in", strict=True)
    assert_same(dataset, again)
    with pytest.raises(InputError, match=r"already exists: choose another name or allow overwriting it$"):
        write_coco(dataset, tmp_path / "out.json")
    write_coco(dataset, tmp_path / "out.json", overwrite=True)


def test_numbers_stay_numbers(tmp_path):
    save_coco(tmp_path / "in", [{"id": 1, "image_id": 1, "category_id": 5, "bbox": [1, 1, 5, 5], "iscrowd": 1}])
    write_coco(open_dataset(tmp_path / "in"), tmp_path / "out")
    document = json.loads((tmp_path / "out/instances.json").read_text())
    assert document["images"] == [{"id": 1, "file_name": "1.jpg", "width": 40, "height": 30}]
    assert document["annotations"][0]["iscrowd"] == 1
    assert "segmentation" not in document["annotations"][0]


def test_writing_is_all_or_nothing(tmp_path):
    dataset = made_dataset()

    def fail():
        raise OSError(28, "No space left on device")

    broken = replace(dataset, images=(dataset[0], replace(dataset[1], read=fail)))
    for write in (write_voc, write_coco):
        with pytest.raises(OSError, match="No space left on device"):
            write(broken, tmp_path / "out")
        assert not list(tmp_path.iterdir())


def test_existing_folders_are_not_replaced(tmp_path):
    (tmp_path / "mine").mkdir()
    save_text(tmp_path / "mine/letter.txt", "dear")
    for write in (write_voc, write_coco):
        with pytest.raises(InputError, match="already exists"):
            write(made_dataset(), tmp_path / "mine")
        with pytest.raises(InputError, match=r"is not replaced: it holds letter\.txt"):
            write(made_dataset(), tmp_path / "mine", overwrite=True)


@pytest.mark.parametrize("image_id", ["../out", "/etc/x", "", "a/../../b"])
def test_ids_that_lead_out_are_not_written(tmp_path, image_id):
    dataset = made_dataset()
    broken = replace(dataset, images=(replace(dataset[0], image_id=image_id),))
    for write in (write_voc, write_coco):
        with pytest.raises(InputError, match=r"cannot be used as a file name$"):
            write(broken, tmp_path / "out")
    twice = replace(dataset, images=(dataset[0], dataset[0]))
    with pytest.raises(InputError, match=r"the image id 'train/one' is there twice$"):
        write_voc(twice, tmp_path / "out")


@pytest.mark.parametrize("split", ["Segmentation/../../../../x", "../x", "/x", "", "Segmentation/", r"a\b", "a/./b"])
def test_splits_that_lead_out_are_not_written(tmp_path, split):
    broken = replace(made_dataset(), splits={split: ("two",)})
    with pytest.raises(InputError, match=r"^the split .* cannot be used as a file name$"):
        write_voc(broken, tmp_path / "a/b/c/out")
    assert not list(tmp_path.iterdir())


def test_splits_that_would_share_a_list_are_not_written(tmp_path):
    for first, second, file in (
        ("a/b", "a_b", "Main/a_b.txt"),
        ("Segmentation/a/b", "Segmentation/a_b", "Segmentation/a_b.txt"),
    ):
        broken = replace(made_dataset(), splits={first: ("two",), second: ("train/one",)})
        with pytest.raises(InputError, match=f"^the splits '{first}' and '{second}' would both become {file}$"):
            write_voc(broken, tmp_path / "out")
    splits = {"a/b": ("two",), "Segmentation/c/d": ("two",), "Segmentation/c": ()}
    write_voc(replace(made_dataset(), splits=splits), tmp_path / "out")
    assert open_dataset(tmp_path / "out").splits == {
        "a_b": ("two",),
        "Segmentation/c_d": ("two",),
        "Segmentation/c": (),
    }


def test_voc_has_room_for_254_masks(tmp_path):
    dataset = made_dataset()
    crowd = replace(dataset[0], instances=dataset[0].instances[:1] * 255)
    with pytest.raises(InputError, match=r"image 'train/one' has 255 objects, VOC masks hold at most 254$"):
        write_voc(replace(dataset, images=(crowd,)), tmp_path / "out")


def test_odd_texts_survive_as_far_as_xml_can(tmp_path):
    odd = replace(made_dataset()[1].instances[0], class_name="a<b>&c\x00", metadata={"name": "x", "1st": 2, "n": 1.5})
    record = replace(made_dataset()[1], instances=(odd,))
    write_voc(Dataset("odd", (record,), ("x",)), tmp_path / "out")
    (instance,) = open_dataset(tmp_path / "out").instances()
    assert instance.class_name == "a<b>&c?"
    assert instance.metadata == {"name": "x", "1st": "2", "n": "1.5"}


def test_numpy_values_in_metadata(tmp_path):
    value = {"array": np.arange(3), "number": np.float32(0.5), "tuple": (1, 2), "path": tmp_path}
    odd = replace(made_dataset()[1].instances[0], metadata=value)
    write_coco(Dataset("odd", (replace(made_dataset()[1], instances=(odd,)),), ("dog",)), tmp_path / "out")
    metadata = dict(next(open_dataset(tmp_path / "out").instances()).metadata)
    assert metadata.pop("annotation_id") == 1
    assert metadata == {"array": [0, 1, 2], "number": 0.5, "tuple": [1, 2], "path": str(tmp_path)}


def test_numbers_in_metadata_that_json_does_not_have(tmp_path):
    value = {"nan": float("nan"), "deep": {"list": [np.float64("inf"), 1.5]}, "array": np.array([np.nan, 2]), 3: {4: 5}}
    odd = replace(made_dataset()[1].instances[0], metadata=value)
    write_coco(Dataset("odd", (replace(made_dataset()[1], instances=(odd,)),), ("dog",)), tmp_path / "out")
    metadata = dict(next(open_dataset(tmp_path / "out").instances()).metadata)
    assert metadata.pop("annotation_id") == 1
    assert metadata == {"nan": "nan", "deep": {"list": ["inf", 1.5]}, "array": ["nan", 2], "3": {"4": 5}}


@pytest.mark.parametrize("write", [write_voc, write_coco])
def test_real_pets_come_back(tmp_path, write):
    dataset = open_dataset(real_data("pets_voc"))
    few = select(dataset, image_ids=[image.image_id for image in dataset[::40]])
    write(few, tmp_path / "out")
    assert_same(few, open_dataset(tmp_path / "out", strict=True))


def test_select():
    dataset = made_dataset()
    assert [image.image_id for image in select(dataset, split="train")] == ["train/one"]
    cats = select(dataset, classes=["cat"])
    assert [len(image.instances) for image in cats] == [1, 0]  # the second image stays, as a negative
    assert cats.classes == ("cat",)
    assert [image.image_id for image in select(dataset, image_ids=["two", "train/one"])] == ["two", "train/one"]
    assert len(select(dataset, split="train", image_ids=["two"])) == 0
    assert select(dataset, split="train").splits["dog_all"] == ("train/one",)
    for name, value, what in (("split", "x", "split"), ("classes", ["x"], "class"), ("image_ids", ["x"], "image")):
        with pytest.raises(InputError, match=f"^the dataset has no {what} 'x': it has "):
            select(dataset, **{name: value})


def test_summary():
    counts = summary(made_dataset())
    assert (counts.n_images, counts.n_instances, counts.n_empty_images) == (2, 3, 0)
    assert counts.classes == {"dog": 2, "cat": 1}
    assert counts.class_images == {"dog": 2, "cat": 1}
    assert counts.splits == {"train": (1, 2)}
    assert counts.split_classes == {"train": {"dog": 1, "cat": 1}}
    assert counts.image_sizes == {"smallest": (20, 10), "median": (30, 20), "largest": (40, 30)}
    assert (counts.n_masks, counts.n_parts, counts.n_difficult, counts.n_truncated) == (2, 1, 1, 1)
    assert counts.metadata == {"subcategory": 1, "hat colour": 1, "nested": 1}
    assert json.loads(json.dumps(counts.as_dict()))["n_class_lists"] == 1
    empty = summary(Dataset("empty", (), ()))
    assert (empty.n_images, empty.image_sizes, empty.box_sizes) == (0, {}, {})
