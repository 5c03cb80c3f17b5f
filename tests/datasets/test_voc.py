"""PASCAL VOC and ILSVRC: layouts, conventions, and what becomes of broken files."""

import os
import pickle

import numpy as np
import pytest
from PIL import Image

from eesvm import InputError
from eesvm.datasets import open_dataset, select, summary
from eesvm.images import ImageError, write_image
from helpers.dataset_files import kinds, pixels, save_image, save_text, save_voc, voc_object, voc_xml


def test_a_hand_checked_file(tmp_path):
    objects = voc_object("dog", (5, 3, 20, 30), "<pose>Left</pose><truncated>1</truncated><difficult>0</difficult>")
    objects += voc_object(
        "person",
        (1, 1, 40, 30),
        "<pose>Unspecified</pose><difficult>1</difficult><occluded>1</occluded><subcategory>child</subcategory>"
        "<part><name>head</name><bndbox><xmin>2</xmin><ymin>2</ymin><xmax>5</xmax><ymax>6</ymax></bndbox></part>"
        "<actions><jumping>1</jumping><walking>0</walking></actions>"
        "<attributes><attribute><name>hat colour</name><value>red</value></attribute></attributes>",
    )
    path = save_voc(tmp_path / "VOC2007", "000005", objects)
    dataset = open_dataset(tmp_path)
    assert dataset.name == "VOC2007"
    assert dataset.classes == ("dog", "person")
    assert not dataset.problems
    (image,) = dataset
    assert (image.image_id, image.width, image.height) == ("000005", 40, 30)
    assert image.read().shape == (30, 40, 3)
    dog, person = image.instances
    assert dog.box.tolist() == [4, 2, 20, 30]  # 1-based inclusive to 0-based half-open
    assert person.box.tolist() == [0, 0, 40, 30]
    assert (dog.pose, dog.is_truncated, dog.is_difficult, dog.index) == ("Left", True, False, 0)
    assert (person.pose, person.is_truncated, person.is_difficult, person.index) == (None, False, True, 1)
    assert person.metadata == {
        "occluded": "1",
        "subcategory": "child",
        "actions": {"jumping": "1", "walking": "0"},
        "hat colour": "red",
    }
    (head,) = person.parts
    assert (head.name, head.box.tolist()) == ("head", [1, 1, 5, 6])
    assert dog.source == f"{path}:4"


def test_records_can_be_sent_to_other_processes(tmp_path):
    save_voc(tmp_path, "a", voc_object())
    Image.fromarray(np.ones((30, 40), np.uint8)).save(_folder(tmp_path / "SegmentationObject") / "a.png")
    record = pickle.loads(pickle.dumps(open_dataset(tmp_path)[0]))
    assert record.read().shape == (30, 40, 3)
    assert record.instances[0].mask().all()


def test_files_that_count_from_zero(tmp_path):
    save_voc(tmp_path, "a", voc_object(box=(0, 0, 39, 29)))
    assert next(open_dataset(tmp_path, first_pixel=0).instances()).box.tolist() == [0, 0, 40, 30]
    dataset = open_dataset(tmp_path)
    assert next(dataset.instances()).box.tolist() == [0, 0, 39, 29]
    assert kinds(dataset) == ["box"]  # it starts one pixel outside


def test_masks_belong_to_objects_by_their_position_in_the_file(tmp_path):
    save_voc(tmp_path, "a", voc_object(box=(9, 9, 5, 5)) + voc_object("cat", (1, 1, 3, 2)))
    numbers = np.zeros((30, 40), np.uint8)
    numbers[0, 0], numbers[:2, 1:3], numbers[2] = 1, 2, 255
    Image.fromarray(numbers).save(_folder(tmp_path / "SegmentationObject") / "a.png")
    dataset = open_dataset(tmp_path)
    (cat,) = dataset.instances()
    assert cat.index == 1  # the first object has an inverted box
    np.testing.assert_array_equal(cat.mask(), numbers == 2)
    np.testing.assert_array_equal(cat.void(), numbers == 255)


def test_void_pixels_are_the_mask_of_nobody(tmp_path):
    save_voc(tmp_path, "a", voc_object() * 255)
    Image.fromarray(np.full((30, 40), 255, np.uint8)).save(_folder(tmp_path / "SegmentationObject") / "a.png")
    *_, before, last = open_dataset(tmp_path).instances()
    assert not before.mask().any()
    assert before.void().all()
    assert last.mask is None  # its number would be that of void
    assert last.void is None


def test_masks_that_do_not_fit_are_left_out(tmp_path):
    for name, content in (("a", np.ones((5, 5), np.uint8)), ("b", None), ("c", np.zeros((30, 40), np.uint8))):
        save_voc(tmp_path, name, voc_object())
        path = _folder(tmp_path / "SegmentationObject") / f"{name}.png"
        Image.fromarray(content).save(path) if content is not None else path.write_bytes(b"")
    dataset = open_dataset(tmp_path, check="full")
    assert [instance.mask for instance in dataset.instances()] == [None, None, None]
    assert kinds(dataset) == ["mask", "mask", "mask"]
    reasons = [problem.reason for problem in dataset.problems]
    assert reasons[0] == "it has 5 x 5 pixels, but its image 40 x 30; its masks are left out"
    assert reasons[1] == "the file is empty; its masks are left out"
    assert reasons[2] == "object 1 (dog) has no pixel in c.png; it is kept without mask"


def test_splits_and_lists_of_one_class(tmp_path):
    for name in "abc":
        save_voc(tmp_path, name, voc_object())
    save_text(tmp_path / "ImageSets/Main/train.txt", "a\nb\n\n")
    save_text(tmp_path / "ImageSets/Main/test.txt", "c.jpg\nd\n")
    save_text(tmp_path / "ImageSets/Main/dog_train.txt", "a  1\nb -1\nc  0\nd 7\n")
    save_text(tmp_path / "ImageSets/Segmentation/train.txt", "b\n")
    dataset = open_dataset(tmp_path)
    assert dataset.splits == {
        "train": ("a", "b"),
        "test": ("c",),
        "dog_train": ("a", "b", "c"),
        "dog_train=1": ("a",),
        "dog_train=0": ("c",),
        "dog_train=-1": ("b",),
        "Segmentation/train": ("b",),
    }
    assert [(problem.line, problem.kind) for problem in dataset.problems] == [(4, "list"), (2, "list")]
    assert str(dataset.problems[1]).endswith("test.txt:2: the list names 'd', of which there is no image")
    assert [image.image_id for image in open_dataset(tmp_path, split="test")] == ["c"]
    assert [image.image_id for image in open_dataset(tmp_path, split="dog_train=-1")] == ["b"]
    assert [image.image_id for image in select(dataset, split="Segmentation/train")] == ["b"]
    assert summary(dataset).n_class_lists == 1
    assert set(summary(dataset).splits) == {"train", "test", "Segmentation/train"}
    with pytest.raises(InputError, match=r"has no split 'val': it has dog_train, test, train, Segmentation/train$"):
        open_dataset(tmp_path, split="val")


def test_a_split_leaves_the_other_files_alone(tmp_path):
    save_voc(tmp_path, "a", voc_object())
    save_voc(tmp_path, "b", voc_object()).write_text("<broken")
    save_text(tmp_path / "ImageSets/Main/train.txt", "a\n")
    assert not open_dataset(tmp_path, split="train").problems
    assert kinds(open_dataset(tmp_path)) == ["annotation"]


def test_a_split_finds_the_annotations_that_name_their_image_inside(tmp_path):
    save_voc(tmp_path, "a", voc_object("cat"))
    save_image(tmp_path / "JPEGImages/bar.jpg")
    save_text(tmp_path / "Annotations/ann1.xml", voc_xml(voc_object(), "bar.jpg"))
    save_text(tmp_path / "Annotations/ann2.xml", voc_xml(voc_object(), "gone.jpg"))
    save_text(tmp_path / "Annotations/ann3.xml", voc_xml(voc_object(), "../bar.jpg"))
    save_text(tmp_path / "ImageSets/Main/train.txt", "bar\n")
    save_text(tmp_path / "ImageSets/Main/test.txt", "a\n")
    (image,) = open_dataset(tmp_path, split="train", strict=True)
    assert (image.image_id, [instance.class_name for instance in image.instances]) == ("bar", ["dog"])
    save_text(tmp_path / "Annotations/ann4.xml", "<broken")  # not read where every image has its objects
    (image,) = open_dataset(tmp_path, split="test", strict=True)
    assert (image.image_id, [instance.class_name for instance in image.instances]) == ("a", ["cat"])


def test_a_split_takes_the_image_that_the_whole_dataset_takes(tmp_path):
    for folder in ("train", "test"):
        save_image(tmp_path / f"photos/{folder}/a.png")
    save_text(tmp_path / "xml/a.xml", voc_xml(voc_object(), "train/a.png"))
    whole = open_dataset(tmp_path)
    assert [(image.image_id, len(image.instances)) for image in whole] == [("train/a", 1)]
    assert [image.image_id for image in open_dataset(tmp_path, split="train")] == ["train/a"]
    assert [image.image_id for image in open_dataset(tmp_path, split="test")] == []


def test_names_with_blanks_and_ones(tmp_path):
    save_voc(tmp_path, "my dog 1", voc_object())
    save_text(tmp_path / "ImageSets/Main/train.txt", "my dog 1\n")
    save_text(tmp_path / "ImageSets/Main/dog_train.txt", "my dog 1 1\n")
    assert open_dataset(tmp_path).splits["train"] == ("my dog 1",)
    assert open_dataset(tmp_path).splits["dog_train=1"] == ("my dog 1",)


def test_xml_beside_the_images_with_mixed_endings(tmp_path):
    save_image(tmp_path / "images/train/a.JPG")
    save_image(tmp_path / "images/test/b.jpeg")
    save_text(tmp_path / "images/train/a.xml", voc_xml(voc_object(), "a.jpg"))
    save_text(tmp_path / "images/test/B.xml", voc_xml(voc_object("cat"), "b"))
    dataset = open_dataset(tmp_path)
    assert {image.image_id: image.instances[0].class_name for image in dataset} == {"train/a": "dog", "test/b": "cat"}
    assert dataset.splits == {"test": ("test/b",), "train": ("train/a",)}
    assert not dataset.problems


def test_xml_apart_from_the_images(tmp_path):
    for split in ("train", "test"):
        save_image(tmp_path / f"photos/{split}/1.png")
        save_text(tmp_path / f"labels_xml/{split}/1.xml", voc_xml(voc_object(split), "1.png"))
    dataset = open_dataset(tmp_path)
    assert [(image.image_id, image.instances[0].class_name) for image in dataset] == [
        ("test/1", "test"),
        ("train/1", "train"),
    ]


def test_images_in_another_folder_altogether(tmp_path):
    save_image(tmp_path / "pictures/a.jpg")
    save_text(tmp_path / "xml/a.xml", voc_xml(voc_object()))
    dataset = open_dataset(tmp_path / "xml", images=tmp_path / "pictures")
    assert [image.image_id for image in dataset] == ["a"]
    assert not dataset.problems


def test_the_file_name_in_the_xml_helps_where_names_differ(tmp_path):
    save_image(tmp_path / "photo.jpg")
    save_text(tmp_path / "annotation_17.xml", voc_xml(voc_object(), "photo.jpg"))
    dataset = open_dataset(tmp_path)
    assert [image.image_id for image in dataset] == ["photo"]
    assert not dataset.problems


def test_two_images_of_one_name(tmp_path):
    save_image(tmp_path / "a.png", seed=1)
    save_image(tmp_path / "a.jpg", seed=2)
    save_text(tmp_path / "a.xml", voc_xml(voc_object(), "a.png"))
    dataset = open_dataset(tmp_path)
    assert len(dataset) == 1
    assert dataset[0].path.endswith("a.png")
    assert [problem.reason for problem in dataset.problems] == [
        "several images have the name of this annotation, a.jpg, a.png; a.png is taken"
    ]


def test_several_devkits_are_not_mixed(tmp_path):
    save_voc(tmp_path / "VOC2007", "a")
    save_voc(tmp_path / "VOC2012", "a")
    with pytest.raises(InputError, match=r"holds several datasets: choose one of VOC2007, VOC2012$"):
        open_dataset(tmp_path)
    assert len(open_dataset(tmp_path / "VOC2012")) == 1


@pytest.mark.parametrize(
    ("box", "kept", "reason"),
    [
        ((5, 5, 50, 20), [4, 4, 40, 20], "reaches outside the image of 40 x 30 pixels; it is cut off there"),
        ((-3, 5, 20, 20), [0, 4, 20, 20], "reaches outside the image of 40 x 30 pixels; it is cut off there"),
        ((41, 5, 50, 20), None, "lies outside the image of 40 x 30 pixels; it is left out"),
        ((20, 5, 10, 20), None, "is inverted; it is left out"),
        ((20, 5, 19, 20), None, "has no area; it is left out"),
        ((7, 7, 7, 7), [6, 6, 7, 7], "is a single point; it is kept as one pixel"),
        (("inf", 5, 10, 20), None, "does not hold usable numbers; it is left out"),
        ((1e300, 5, 1e301, 20), None, "does not hold usable numbers; it is left out"),
    ],
)
def test_bad_boxes(tmp_path, box, kept, reason):
    path = save_voc(tmp_path, "a", "\n" + voc_object("dog", box))
    dataset = open_dataset(tmp_path)
    assert [instance.box.tolist() for instance in dataset.instances()] == ([] if kept is None else [kept])
    (problem,) = dataset.problems
    shown = ", ".join(f"{float(value):g}" for value in box)
    assert str(problem) == f"{path}:5: object 1 (dog): its box {shown} {reason}"
    with pytest.raises(InputError, match="its box"):
        open_dataset(tmp_path, strict=True)


@pytest.mark.parametrize("box", [("", 1, 2, 3), ("x", 1, 2, 3), ("nan", 1, 2, 3)])
def test_boxes_without_four_numbers(tmp_path, box):
    save_voc(tmp_path, "a", voc_object("dog", box) + "<object><name>cat</name></object>")
    dataset = open_dataset(tmp_path)
    assert [problem.reason for problem in dataset.problems] == [
        "object 1 (dog) has no box of four numbers; it is left out",
        "object 2 (cat) has no box of four numbers; it is left out",
    ]
    assert len(dataset) == 1


def test_bad_parts_are_left_out_and_their_object_stays(tmp_path):
    part = "<part><name>head</name><bndbox><xmin>9</xmin><ymin>9</ymin><xmax>2</xmax><ymax>12</ymax></bndbox></part>"
    save_voc(tmp_path, "a", voc_object(extra=part))
    dataset = open_dataset(tmp_path)
    assert next(dataset.instances()).parts == ()
    assert kinds(dataset) == ["box"]


def test_classes(tmp_path):
    save_voc(tmp_path, "a", voc_object("dog") + voc_object("dgo") + voc_object(""))
    dataset = open_dataset(tmp_path, classes=["cat", "dog"])
    assert dataset.classes == ("cat", "dog")
    assert [instance.class_name for instance in dataset.instances()] == ["dog"]
    assert [problem.reason for problem in dataset.problems] == [
        "object 2 (dgo) has the class 'dgo', which is not among the given classes; it is left out",
        "object 3 has no class name; it is left out",
    ]
    with pytest.raises(InputError, match="`classes` holds a name more than once"):
        open_dataset(tmp_path, classes=["dog", "dog"])


def test_wrong_size_is_reported_and_the_real_one_used(tmp_path):
    path = save_voc(tmp_path, "a", voc_object(box=(1, 1, 40, 30)), size=(40, 30))
    path.write_text(path.read_text().replace("<width>40", "<width>0"))
    save_voc(tmp_path, "b", voc_object())
    (tmp_path / "Annotations/b.xml").write_text(voc_xml(voc_object(), "b.jpg", size=None))
    dataset = open_dataset(tmp_path)
    assert (dataset[0].width, dataset[0].height) == (40, 30)
    assert [problem.reason for problem in dataset.problems] == [
        "says that the image has 0 x 30 pixels, but it has 40 x 30"
    ]


def test_annotation_of_stored_pixels_wins_over_exif(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels(40, 30)).save(_folder(tmp_path / "JPEGImages") / "a.png", exif=exif)
    xml = save_text(tmp_path / "Annotations/a.xml", voc_xml(voc_object(box=(35, 1, 40, 5)), "a.png", size=(40, 30)))
    dataset = open_dataset(tmp_path)
    assert (dataset[0].width, dataset[0].height, kinds(dataset)) == (40, 30, ["rotation"])
    np.testing.assert_array_equal(dataset[0].read(), pixels(40, 30))
    xml.write_text(voc_xml(voc_object(), "a.png", size=(30, 40)))
    dataset = open_dataset(tmp_path)
    assert (dataset[0].width, dataset[0].height, kinds(dataset)) == (30, 40, [])
    assert dataset[0].read().shape == (40, 30, 3)


def test_believed_sizes_are_compared_when_the_pixels_are_read(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = _folder(tmp_path / "JPEGImages") / "a.png"
    Image.fromarray(pixels(40, 30)).save(path, exif=exif)
    xml = save_text(tmp_path / "Annotations/a.xml", voc_xml(voc_object(), "a.png", size=(40, 30)))
    (image,) = pickle.loads(pickle.dumps(open_dataset(tmp_path, check="none").images))
    assert (image.width, image.height) == (40, 30)
    np.testing.assert_array_equal(image.read(), pixels(40, 30))  # as it is stored, as the annotation says
    xml.write_text(voc_xml(voc_object(), "a.png", size=(30, 40)))
    assert open_dataset(tmp_path, check="none")[0].read().shape == (40, 30, 3)
    for size in ((41, 30), (20, 20)):
        xml.write_text(voc_xml(voc_object(), "a.png", size=size))
        (image,) = open_dataset(tmp_path, check="none")
        said = f"it has 30 x 40 pixels, but its annotation says {size[0]} x {size[1]}"
        with pytest.raises(ImageError, match=f"{path}: {said}$"):
            image.read()
    write_image(path, pixels(40, 30))
    xml.write_text(voc_xml(voc_object(), "a.png", size=(30, 40)))
    with pytest.raises(ImageError, match=r"it has 40 x 30 pixels, but its annotation says 30 x 40$"):
        open_dataset(tmp_path, check="none")[0].read()


def test_missing_images_and_missing_annotations(tmp_path):
    save_voc(tmp_path, "a", voc_object())
    save_text(tmp_path / "Annotations/b.xml", voc_xml(voc_object(), "b.jpg"))
    save_image(tmp_path / "JPEGImages/c.jpg")
    dataset = open_dataset(tmp_path)
    assert [image.image_id for image in dataset] == ["a", "c"]
    assert dataset[0].metadata == {}
    assert dataset[1].metadata == {"is_annotated": False}
    assert [(problem.path, problem.reason) for problem in dataset.problems] == [
        (str(tmp_path / "Annotations/b.xml"), "there is no image for this annotation; it is left out"),
        (str(tmp_path / "JPEGImages/c.jpg"), "there is no annotation for this image: nothing is learnt from it"),
    ]


def test_bad_images_are_left_out(tmp_path):
    for name in "abcd":
        save_voc(tmp_path, name, voc_object())
    (tmp_path / "JPEGImages/a.jpg").write_bytes(b"")
    (tmp_path / "JPEGImages/b.jpg").write_bytes(b"no image")
    data = (tmp_path / "JPEGImages/c.jpg").read_bytes()
    (tmp_path / "JPEGImages/c.jpg").write_bytes(data[: len(data) * 2 // 3])
    dataset = open_dataset(tmp_path)
    assert [image.image_id for image in dataset] == ["c", "d"]
    assert [problem.reason for problem in dataset.problems] == [
        "the file is empty; the image is left out",
        "it is not an image of a known format; the image is left out",
    ]
    full = open_dataset(tmp_path, check="full")
    assert [image.image_id for image in full] == ["d"]
    assert "truncated" in full.problems[2].reason
    believed = open_dataset(tmp_path, check="none")
    assert [image.image_id for image in believed] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("", None, "the file is empty"),
        ("<annotation>\n<object>\n</annotation>", 3, "it is not well-formed XML: mismatched tag"),
        ("<annotation>\n", 2, "it is not well-formed XML: no element found"),
        ("\n<html></html>", 2, "it is no annotation: its root is <html>"),
        (
            '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;">]>\n<annotation>&y;</annotation>',
            1,
            "it declares entities, which is refused",
        ),
        (
            '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n<annotation>&x;</annotation>',
            1,
            "it declares entities, which is refused",
        ),
        ("<a>" * 100 + "</a>" * 100, 1, "it is not well-formed XML: tags are nested more than 32 deep"),
        (
            '<?xml version="1.0" encoding="nonsense"?><annotation/>',
            1,
            "it cannot be decoded: unknown encoding: nonsense",
        ),
    ],
)
def test_bad_xml(tmp_path, content, line, reason):
    save_voc(tmp_path, "good", voc_object())
    path = save_voc(tmp_path, "a", voc_object())
    path.write_text(content)
    dataset = open_dataset(tmp_path)
    assert [(image.image_id, image.is_annotated) for image in dataset] == [("a", False), ("good", True)]
    (problem,) = dataset.problems
    assert (problem.path, problem.line) == (str(path), line)
    assert problem.reason == f"{reason}; nothing is learnt from its image"


def test_an_image_with_a_bad_and_a_good_annotation_has_the_good_one(tmp_path):
    save_image(tmp_path / "photos/a.jpg")
    save_text(tmp_path / "first/a.xml", "<broken")
    save_text(tmp_path / "second/a.xml", voc_xml(voc_object(), "a.jpg"))
    dataset = open_dataset(tmp_path)
    assert [(image.is_annotated, len(image.instances)) for image in dataset] == [(True, 1)]
    assert kinds(dataset) == ["annotation"]


def test_a_split_for_segmentation_is_named_where_there_is_no_other(tmp_path):
    save_voc(tmp_path, "a", voc_object())
    save_text(tmp_path / "ImageSets/Segmentation/train.txt", "a\n")
    sentence = r"has no split 'train' \(did you mean --split Segmentation/train\?\): it has Segmentation/train$"
    with pytest.raises(InputError, match=sentence):
        open_dataset(tmp_path, split="train")
    with pytest.raises(InputError, match=sentence):
        select(open_dataset(tmp_path), split="train")


def test_file_names_that_lead_out_are_not_followed(tmp_path):
    save_image(tmp_path / "secret.jpg")
    for name in ("../secret.jpg", str(tmp_path / "secret.jpg"), r"..\secret.jpg", r"C:\secret.jpg"):
        root = tmp_path / "set"
        save_text(root / "a.xml", voc_xml(voc_object(), name))
        save_image(root / "other.jpg")
        dataset = open_dataset(root)
        assert [image.image_id for image in dataset] == ["other"]
        assert kinds(dataset) == ["path", "missing image", "missing annotation"]
        assert dataset.problems[0].reason == f"<filename> leads out of the dataset: {name!r}; it is not followed"


def test_unreadable_folders_are_listed(tmp_path, monkeypatch):
    save_voc(tmp_path, "a", voc_object())
    locked = _folder(tmp_path / "JPEGImages" / "locked")
    scandir = os.scandir

    def refuse(path):
        if os.fspath(path) == os.fspath(locked):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    dataset = open_dataset(tmp_path)
    assert len(dataset) == 1
    assert str(dataset.problems[0]) == f"{locked}: the folder cannot be read: Permission denied"


def test_links_are_followed_but_not_in_circles(tmp_path):
    save_voc(tmp_path / "real", "a", voc_object())
    (tmp_path / "set").mkdir()
    for name in ("JPEGImages", "Annotations"):
        (tmp_path / "set" / name).symlink_to(tmp_path / "real" / name)
    (tmp_path / "real/JPEGImages/again").symlink_to(tmp_path / "real/JPEGImages")
    assert [image.image_id for image in open_dataset(tmp_path / "set")] == ["a"]


def test_ilsvrc(tmp_path):
    dog, box = "n02084071", (0, 0, 39, 29)
    train = "ILSVRC2013_train/n02084071/n02084071_4"
    for split, name in (("train", train), ("val", "ILSVRC2012_val_00000001"), ("val", "ILSVRC2012_val_00000002")):
        write_image(
            _folder((tmp_path / f"Data/DET/{split}/{name}").parent) / f"{name.split('/')[-1]}.jpeg", pixels(40, 30)
        )
        (tmp_path / f"Data/DET/{split}/{name}.jpeg").rename(tmp_path / f"Data/DET/{split}/{name}.JPEG")
    extra = "<subcategory>n02085620</subcategory>"
    save_text(tmp_path / f"Annotations/DET/train/{train}.xml", voc_xml(voc_object(dog, box, extra), "n02084071_4"))
    save_text(
        tmp_path / "Annotations/DET/val/ILSVRC2012_val_00000001.xml",
        voc_xml(voc_object("n07697537", (2, 3, 10, 9)), "ILSVRC2012_val_00000001"),
    )
    save_text(tmp_path / "ImageSets/DET/val.txt", "ILSVRC2012_val_00000001 1\nILSVRC2012_val_00000002 2\n")
    save_text(tmp_path / "ImageSets/DET/val1.txt", "ILSVRC2012_val_00000001 1\n")
    save_text(tmp_path / "ImageSets/DET/val2.txt", "ILSVRC2012_val_00000002 2\n")
    save_text(tmp_path / "ImageSets/DET/train_58.txt", f"{train} 1\nILSVRC2012_val_00000002 -1\n")
    dataset = open_dataset(tmp_path)
    assert dataset.classes == (dog, "n07697537")
    assert not dataset.problems
    assert dataset.splits["val"] == ("ILSVRC2012_val_00000001", "ILSVRC2012_val_00000002")
    assert dataset.splits["val2"] == ("ILSVRC2012_val_00000002",)
    assert dataset.splits["train"] == (train,)
    assert "train_58" not in dataset.splits
    images = {image.image_id: image for image in dataset}
    (instance,) = images[train].instances
    assert instance.box.tolist() == [0, 0, 40, 30]  # 0-based inclusive to half-open
    assert instance.metadata == {"subcategory": "n02085620", "synset": dog}
    assert images["ILSVRC2012_val_00000001"].instances[0].box.tolist() == [2, 3, 11, 10]
    assert images["ILSVRC2012_val_00000002"].instances == ()
    assert [image.image_id for image in open_dataset(tmp_path, split="val1")] == ["ILSVRC2012_val_00000001"]
    assert [image.image_id for image in open_dataset(tmp_path, split="train_58=1")] == [train]
    names = {dog: "dog", "n07697537": "hotdog"}
    assert open_dataset(tmp_path, synsets=names).classes == ("dog", "hotdog")
    save_text(tmp_path / "map_det.txt", f"{dog} 58 dog\nn07697537 1 hotdog\nn01503061 2 bird\n")
    assert open_dataset(tmp_path).classes == ("dog", "hotdog")
    other = save_text(tmp_path / "other.txt", f"{dog} dog, domestic dog\nn07697537 dog\n")
    assert open_dataset(tmp_path, synsets=other).classes == ("dog (n02084071)", "dog (n07697537)")
    with pytest.raises(InputError, match=r"ImageSets.DET.val\.txt: there is no line such as `n02084071 dog`$"):
        open_dataset(tmp_path, synsets=tmp_path / "ImageSets/DET/val.txt")


def test_ilsvrc_folders_of_2013(tmp_path):
    save_image(tmp_path / "ILSVRC2013_DET_val/ILSVRC2012_val_00000001.jpeg")
    save_text(
        tmp_path / "ILSVRC2013_DET_bbox_val/ILSVRC2012_val_00000001.xml",
        voc_xml(voc_object("n02084071"), "ILSVRC2012_val_00000001"),
    )
    dataset = open_dataset(tmp_path)
    assert dataset.splits == {"val": ("ILSVRC2012_val_00000001",)}
    assert dataset.classes == ("n02084071",)


def test_ilsvrc_folders_of_two_years_make_one_split(tmp_path):
    for year in (2013, 2014):
        save_image(tmp_path / f"ILSVRC{year}_DET_train/n02084071/of_{year}.jpeg")
        save_image(tmp_path / f"ILSVRC{year}_DET_train/n02084071/of_both.jpeg")
    save_image(tmp_path / "ILSVRC2013_DET_val/n02084071/of_both.jpeg")
    both, first, second = (f"n02084071/of_{name}" for name in ("both", "2013", "2014"))
    dataset = open_dataset(tmp_path)
    assert dataset.splits == {"train": (second, both, first), "val": ()}  # an id belongs to the image that is kept
    assert {image.image_id for image in open_dataset(tmp_path, split="train")} == {both, first, second}
    save_text(tmp_path / "ImageSets/DET/mine.txt", f"{first} 1\n")
    save_text(tmp_path / "det_lists/mine.txt", f"{second} 1\n{first} 2\n")
    assert open_dataset(tmp_path).splits["mine"] == (first, second)
    assert "list" not in kinds(open_dataset(tmp_path))


def _folder(path):
    path.mkdir(parents=True, exist_ok=True)
    return path
