"""YOLO text files, plain folders, and finding out which format is there."""

import json

import numpy as np
import pytest

from eesvm import InputError
from eesvm.datasets import FORMATS, open_dataset, summary
from eesvm.images.masks import polygons_to_mask
from helpers.dataset_files import coco_document, kinds, save_coco, save_image, save_text, save_voc, voc_object, voc_xml


def save_yolo(root, label, config="names: [dog, cat]\n", image="images/a.jpg"):
    save_image(root / image)
    save_text(root / image.replace("images", "labels").replace(".jpg", ".txt"), label)
    if config:
        save_text(root / "data.yaml", config)


def test_a_hand_checked_file(tmp_path):
    save_yolo(tmp_path, "1 0.5 0.5 0.25 0.2\n\n0 0.1 0.1 0.5 0.1 0.5 0.9\n0 0.5 0.5 1 1 0.75\n")
    dataset = open_dataset(tmp_path)
    assert dataset.classes == ("dog", "cat")
    assert not dataset.problems
    cat, triangle, whole = dataset[0].instances
    np.testing.assert_allclose(cat.box, [15, 12, 25, 18])
    assert (cat.class_name, cat.mask, cat.index) == ("cat", None, 0)
    np.testing.assert_allclose(triangle.box, [4, 3, 20, 27])
    expected = polygons_to_mask([[4, 3, 20, 3, 20, 27]], 30, 40)
    np.testing.assert_array_equal(triangle.mask(), expected)
    assert whole.metadata == {"confidence": 0.75}
    assert whole.box.tolist() == [0, 0, 40, 30]
    assert whole.source.endswith("labels/a.txt:4")


@pytest.mark.parametrize(
    ("line", "kind", "reason"),
    [
        (
            "0 0.5 0.5 0.2",
            "annotation",
            "a line must hold a class and 4 numbers, or x, y of three points or more; got 3",
        ),
        ("0 0.1 0.1 0.2 0.2 0.3 0.3 0.4", "annotation", "a line must hold a class and 4 numbers, .*; got 7"),
        ("dog 0.5 0.5 0.2 0.2", "annotation", "a line must hold numbers only: class cx cy width height"),
        ("0 nan 0.5 0.2 0.2", "annotation", r"a line must hold numbers below 1e\+09 only"),
        ("0 0.1 0.1 1e308 1e308 0.1 1e308", "annotation", r"a line must hold numbers below 1e\+09 only"),
        ("-1 0.5 0.5 0.2 0.2", "annotation", "the class must be a whole number from 0, got -1"),
        ("0.5 0.5 0.5 0.2 0.2", "annotation", "the class must be a whole number from 0, got 0.5"),
        ("2 0.5 0.5 0.2 0.2", "class", "class 2 is not among the 2 named ones; the object is left out"),
        ("0 0.5 0.5 0 0.2", "box", "the box .* of class dog has no area; it is left out"),
        ("0 0.5 0.5 -0.1 0.2", "box", "the box .* of class dog is inverted; it is left out"),
        (
            "0 1.5 0.5 0.2 0.2",
            "box",
            "the box .* of class dog lies outside the image of 40 x 30 pixels; it is left out",
        ),
        ("0 200 150 40 30", "box", "the box .* of class dog lies outside the image"),
    ],
)
def test_bad_lines(tmp_path, line, kind, reason):
    save_yolo(tmp_path, f"0 0.5 0.5 0.2 0.2\n{line}\n")
    dataset = open_dataset(tmp_path)
    assert len(list(dataset.instances())) == 1
    (problem,) = dataset.problems
    assert (problem.line, problem.kind, problem.path) == (2, kind, str(tmp_path / "labels/a.txt"))
    with pytest.raises(InputError, match=f"a.txt:2: {reason}"):
        open_dataset(tmp_path, strict=True)


def test_boxes_partly_outside_are_cut_off(tmp_path):
    save_yolo(tmp_path, "0 0.9 0.5 0.4 0.2\n")
    dataset = open_dataset(tmp_path)
    assert dataset[0].instances[0].box[2] == 40
    assert kinds(dataset) == ["box"]


@pytest.mark.parametrize(
    ("config", "classes"),
    [
        ("names:\n  - dog\n  - cat\n", ("dog", "cat")),
        ("names:\n  0: no\n  1: yes # a comment\n", ("no", "yes")),
        ("nc: 2\nnames: ['big dog', \"cat\"]\n", ("big dog", "cat")),
    ],
)
def test_names_in_yaml(tmp_path, config, classes):
    save_yolo(tmp_path, "0 0.5 0.5 0.2 0.2\n1 0.5 0.5 0.2 0.2\n", config)
    assert open_dataset(tmp_path).classes == classes
    assert open_dataset(tmp_path / "data.yaml").classes == classes


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("names: [dog\n", "it is not valid YAML"),
        ("names: {a: b}\n", "`names` must be a list of names, or number: name"),
        ("names: [[a], b]\n", "`names` must be a list of names, or number: name"),
        ("names: !!python/object/apply:os.system ['echo']\n", ""),
        ("names:\n  ? " + "1" * 5000 + "\n  : dog\n", "a number in `names` has more than 18 digits"),
        ("%YAML 1." + "1" * 5000 + "\n---\nnames: [dog]\n", "it cannot be read: Exceeds the limit"),
        ('names: ["\\UFFFFFFFF"]\n', "it cannot be read: "),
        ("a: &a [x, x]\nb: &b [*a, *a]\nnames: [*b, *b]\n", "`names` must be a list of names, or number: name"),
    ],
)
def test_bad_yaml(tmp_path, config, reason):
    save_yolo(tmp_path, "0 0.5 0.5 0.2 0.2\n", config)
    dataset = open_dataset(tmp_path)
    assert len(dataset) == 1
    if reason:
        assert kinds(dataset) == ["annotation", "class"]
        assert reason in dataset.problems[0].reason
        assert dataset.classes == ("0",)


def test_a_shape_of_keypoints_with_thousands_of_digits_is_none(tmp_path):
    save_yolo(tmp_path, "0 0.5 0.5 0.2 0.2\n", f"kpt_shape: [{'1' * 5000}, 3]\nnames: [dog]\n")
    dataset = open_dataset(tmp_path, strict=True)
    assert [instance.class_name for instance in dataset.instances()] == ["dog"]


def test_names_in_a_text_file(tmp_path):
    save_yolo(tmp_path, "1 0.5 0.5 0.2 0.2\n", config="")
    assert kinds(open_dataset(tmp_path)) == ["class"]
    assert open_dataset(tmp_path).classes == ("1",)
    save_text(tmp_path / "classes.txt", "dog\ncat\n")
    dataset = open_dataset(tmp_path)
    assert dataset.classes == ("cat",)
    assert not dataset.problems


def test_labels_beside_the_images_and_images_without_labels(tmp_path):
    save_image(tmp_path / "a.jpg")
    save_image(tmp_path / "b.jpg")
    save_text(tmp_path / "a.txt", "0 0.5 0.5 0.2 0.2\n")
    save_text(tmp_path / "classes.txt", "dog\n")
    dataset = open_dataset(tmp_path)
    assert [len(image.instances) for image in dataset] == [1, 0]
    assert not dataset.problems


def save_partly_labelled(root, config="names: [dog]\n"):
    """Of train: with an object, empty, without label file; of val: none has a label file."""
    save_yolo(root, "0 0.5 0.5 0.2 0.2\n", f"{config}train: images/train\nval: images/val\n", "images/train/a.jpg")
    save_yolo(root, "", "", "images/train/empty.jpg")
    for name in ("train/without.jpg", "val/p.jpg", "val/q.jpg"):
        save_image(root / "images" / name)


UNKNOWN = ["train/without"]
WITHOUT = ["train/without", "val/p", "val/q"]


@pytest.mark.parametrize(
    ("config", "options", "skipped"),
    [
        ("", {}, UNKNOWN),  # nobody in val has a label file: who knows whether that is the convention there
        ("skip_if_label_file_missing: true\n", {}, WITHOUT),
        ("skip_if_label_file_missing: false\n", {}, []),
        ("skip_if_label_file_missing: perhaps\n", {}, UNKNOWN),
        ("skip_if_label_file_missing: true\n", {"unlabelled": "keep"}, []),
        ("skip_if_label_file_missing: false\n", {"unlabelled": "skip"}, WITHOUT),
        ("", {"split": "train"}, UNKNOWN),
        ("", {"split": "val"}, []),
    ],
)
def test_images_without_label_file_are_not_images_without_objects(tmp_path, config, options, skipped):
    save_partly_labelled(tmp_path, f"names: [dog]\n{config}")
    dataset = open_dataset(tmp_path, **options)
    assert not dataset.problems
    assert [image.image_id for image in dataset if not image.is_annotated] == skipped
    kept = {image.image_id for image in dataset}
    assert [image.image_id for image in dataset if not image.has_annotation] == [i for i in WITHOUT if i in kept]
    assert {image.image_id for image in dataset.annotated()} == kept.difference(skipped)
    counts = summary(dataset)
    assert counts.n_empty_images == ("train/empty" in kept)  # apart from those without a file
    assert (counts.n_unlabelled_images, counts.n_skipped_images) == (len(kept.intersection(WITHOUT)), len(skipped))


def test_what_a_label_file_says_that_cannot_be_read_is_unknown(tmp_path):
    save_yolo(tmp_path, "0 0.5 0.5 0.2 0.2\n")
    save_yolo(tmp_path, "", "", "images/b.jpg")
    (tmp_path / "labels/b.txt").write_bytes(b"\xff\xfe")
    assert [image.is_annotated for image in open_dataset(tmp_path)] == [True, False]


def test_unlabelled_must_be_known(tmp_path):
    save_yolo(tmp_path, "0 0.5 0.5 0.2 0.2\n")
    with pytest.raises(InputError, match=r"^`unlabelled` must be one of 'skip', 'keep', got 'drop'$"):
        open_dataset(tmp_path, unlabelled="drop")


def test_voc_images_without_annotation_can_be_kept(tmp_path):
    save_voc(tmp_path, "a", voc_object())
    save_image(tmp_path / "JPEGImages/b.jpg")
    assert kinds(open_dataset(tmp_path)) == ["missing annotation"]
    for wanted, is_annotated in (("skip", False), ("keep", True)):
        dataset = open_dataset(tmp_path, unlabelled=wanted, strict=True)  # asked for, so nothing is wrong
        assert [image.is_annotated for image in dataset] == [True, is_annotated]


def test_labels_without_image_and_bad_labels(tmp_path):
    save_yolo(tmp_path, "0 0.5 0.5 0.2 0.2\n")
    save_text(tmp_path / "labels/lost.txt", "0 0.5 0.5 0.2 0.2\n")
    save_image(tmp_path / "images/b.jpg")
    (tmp_path / "labels/b.txt").write_bytes(b"\xff\xfe")
    dataset = open_dataset(tmp_path)
    assert [str(problem).removeprefix(str(tmp_path)) for problem in dataset.problems] == [
        "/labels/b.txt: it is no text: invalid start byte; nothing is learnt from its image",
        "/labels/lost.txt: there is no image for these objects; they are left out",
    ]


@pytest.mark.parametrize(
    "config",
    [
        "train: images/train\nval: images/val\nnames: [dog]\n",
        "path: ../datasets/mine\ntrain: images/train\nval: images/val\nnames: [dog]\n",
        "path: /home/somebody/mine\ntrain: images/train\nval: images/val\nnames: [dog]\n",
        "train: ../images/train\nval: [../images/val]\nnames: [dog]\n",
        "train: train.txt\nval: images/val/\nnames: [dog]\n",
    ],
)
def test_splits_of_data_yaml(tmp_path, config):
    save_yolo(tmp_path, "0 0.5 0.5 0.2 0.2\n", config, "images/train/a.jpg")
    save_yolo(tmp_path, "0 0.5 0.5 0.2 0.2\n", config, "images/val/b.jpg")
    save_text(tmp_path / "train.txt", "./images/train/a.jpg\n/home/somebody/mine/images/train/a.jpg\n")
    dataset = open_dataset(tmp_path)
    assert dataset.splits == {"train": ("train/a",), "val": ("val/b",)}
    assert [image.image_id for image in open_dataset(tmp_path, split="val")] == ["val/b"]
    assert not dataset.problems


def test_splits_that_lead_out_are_not_followed(tmp_path):
    save_image(tmp_path / "secret/s.jpg")
    config = "train: ../secret\nval: ../../../../etc\nnames: [dog]\n"
    save_yolo(tmp_path / "set", "0 0.5 0.5 0.2 0.2\n", config)
    dataset = open_dataset(tmp_path / "set")
    assert [image.image_id for image in dataset] == ["a"]
    assert kinds(dataset) == ["path", "path"]


def test_lists_with_unknown_images(tmp_path):
    save_yolo(tmp_path, "", "train: train.txt\nnames: [dog]\n")
    save_text(tmp_path / "train.txt", "images/a.jpg\n../secret.jpg\n")
    dataset = open_dataset(tmp_path)
    assert [(problem.kind, problem.line) for problem in dataset.problems] == [("list", 2)]


def test_keypoints(tmp_path):
    save_yolo(tmp_path, "0 0.5 0.5 0.2 0.2 0.5 0.5 2 0.25 0.1 1\n", "kpt_shape: [2, 3]\nnames: [dog]\n")
    (instance,) = open_dataset(tmp_path).instances()
    assert instance.metadata["keypoints"] == {"1": [20, 15, 2], "2": [10, 3, 1]}


def test_plain_folder(tmp_path):
    save_image(tmp_path / "train/dog/a.jpg")
    save_image(tmp_path / "train/cat/b.png")
    save_image(tmp_path / "test/c.bmp")
    save_image(tmp_path / ".hidden/d.png")
    (tmp_path / "test/e.jpg").write_bytes(b"")
    dataset = open_dataset(tmp_path)
    assert {image.image_id: image.metadata.get("label") for image in dataset} == {
        "test/c": None,
        "train/cat/b": "cat",
        "train/dog/a": "dog",
    }
    assert dataset.splits == {"test": ("test/c",), "train": ("train/cat/b", "train/dog/a")}
    assert dataset.classes == ()
    assert kinds(dataset) == ["image"]
    assert [image.image_id for image in open_dataset(tmp_path, split="train")] == ["train/cat/b", "train/dog/a"]
    assert len(open_dataset(tmp_path / "test/c.bmp")) == 1


def test_every_format_is_found_out(tmp_path):
    save_voc(tmp_path / "voc", "a", voc_object())
    save_coco(tmp_path / "coco")
    save_yolo(tmp_path / "yolo", "0 0.5 0.5 0.2 0.2\n")
    save_image(tmp_path / "folder/a.png")
    save_image(tmp_path / "ilsvrc/Data/DET/val/a.jpeg")
    for format in FORMATS:
        assert open_dataset(tmp_path / format).name == open_dataset(tmp_path / format, format).name == format


def test_mixed_formats_are_named(tmp_path):
    save_coco(tmp_path)
    save_text(tmp_path / "images/a.xml", voc_xml(voc_object()))
    sentence = r"several formats, voc \(images/a.xml\) and coco \(instances.json\): say which one to read \(`format`\)$"
    with pytest.raises(InputError, match=sentence):
        open_dataset(tmp_path)
    assert len(list(open_dataset(tmp_path, "voc").instances())) == 1
    assert len(list(open_dataset(tmp_path, "coco").instances())) == 0


def test_a_broken_xml_file_does_not_hide_the_format(tmp_path):
    save_image(tmp_path / "a.png")
    save_text(tmp_path / "a.xml", "<annot")
    assert kinds(open_dataset(tmp_path)) == ["annotation"]


def test_other_json_and_text_files_do_not_matter(tmp_path):
    save_image(tmp_path / "a.png")
    save_text(tmp_path / "config.json", '{"images": 3}')
    save_text(tmp_path / "a.txt", "a photograph")
    save_text(tmp_path / "docker-compose.yaml", "services: {}\n")
    save_text(tmp_path / "pom.xml", "<project/>")
    assert open_dataset(tmp_path)[0].metadata == {"is_annotated": False}


@pytest.mark.parametrize("name", ["nothing", "file.txt"])
def test_paths_that_hold_no_dataset(tmp_path, name):
    save_text(tmp_path / "file.txt", "text")
    with pytest.raises(InputError, match=r"nothing does not exist$|file\.txt is not a folder, a COCO \.json, "):
        open_dataset(tmp_path / name)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty holds nothing that can be opened: looked for a VOC devkit \(Annot"):
        open_dataset(tmp_path / "empty")


def test_arguments_are_checked(tmp_path):
    save_coco(tmp_path)
    with pytest.raises(InputError, match="`format` must be one of 'voc', 'ilsvrc', 'coco', 'yolo', 'folder', got 'x'"):
        open_dataset(tmp_path, "x")
    with pytest.raises(InputError, match="`check` must be one of 'none', 'header', 'full', got 'all'"):
        open_dataset(tmp_path, check="all")
    with pytest.raises(InputError, match=r"the format coco has no option `first_pixel`: it has images$"):
        open_dataset(tmp_path, first_pixel=0)
    with pytest.raises(InputError, match="a dataset of the format voc is a folder, got the file"):
        open_dataset(tmp_path / "instances.json", "voc")
    with pytest.raises(InputError, match="has none of ILSVRC's folders"):
        open_dataset(tmp_path, "ilsvrc")
    assert json.loads((tmp_path / "instances.json").read_text()) == coco_document()


def test_photographs_of_one_name_in_several_formats(tmp_path):
    for name in ("a.png", "a.bmp", "cats/a.png", "b.png"):
        save_image(tmp_path / name)
    dataset = open_dataset(tmp_path)
    assert sorted(record.image_id for record in dataset) == ["a.bmp", "a.png", "b", "cats/a"]
    assert dataset.problems == ()


def test_a_folder_of_several_datasets_names_them(tmp_path):
    save_yolo(tmp_path / "boxes", "0 0.5 0.5 0.2 0.2\n")
    with pytest.raises(InputError) as error:
        open_dataset(tmp_path)
    assert str(error.value) == f"{tmp_path} holds a dataset in a folder of its own: choose {tmp_path}/boxes"
    save_yolo(tmp_path / "more/outlines", "0 0.1 0.1 0.5 0.1 0.5 0.9\n")
    save_voc(tmp_path / "voc", "a", voc_object())
    save_image(tmp_path / "masks/a.png")
    save_coco(tmp_path / "photos", coco_document())
    with pytest.raises(InputError) as error:
        open_dataset(tmp_path)
    assert str(error.value) == f"{tmp_path} holds several datasets: choose one of boxes, more/outlines, photos, voc"
    assert len(open_dataset(tmp_path, "folder")) == 5  # who says so gets all images
    for name in ("boxes", "more/outlines", "photos", "voc"):
        assert len(open_dataset(tmp_path / name)) == 1


def test_one_devkit_below_a_folder_is_found(tmp_path):
    save_voc(tmp_path / "VOCdevkit/VOC2007", "a", voc_object())
    save_text(tmp_path / "VOCdevkit/VOC2007/notes/data.yaml", "names: [dog]\n")  # part of it
    assert len(open_dataset(tmp_path)) == 1
    save_voc(tmp_path / "VOCdevkit/VOC2012", "a", voc_object())
    with pytest.raises(
        InputError, match=r"holds several datasets: choose one of VOCdevkit/VOC2007, VOCdevkit/VOC2012$"
    ):
        open_dataset(tmp_path)
