"""Readers meet files of any content: they raise nothing but the documented errors, and describe only what can be used."""

import json
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from eesvm import InputError
from eesvm.datasets import open_dataset
from helpers.dataset_files import coco_document, save_image, save_text, voc_object, voc_xml

SETTINGS = settings(max_examples=60, deadline=None)
NUMBERS = st.one_of(st.integers(-5, 50), st.floats(), st.integers(), st.text(max_size=3))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=12,
)


def open_safely(path, format, **options):
    """The dataset, whose promises hold, or None for a documented error."""
    try:
        dataset = open_dataset(path, format, **options)
    except InputError:
        return None
    for image in dataset:
        for instance in image.instances:
            x1, y1, x2, y2 = instance.box
            assert instance.box.dtype == np.float64
            assert 0 <= x1 < x2 <= image.width
            assert 0 <= y1 < y2 <= image.height
            assert instance.class_name in dataset.classes
            if instance.mask is not None:  # drawn only now, and yet no surprise
                assert instance.mask().shape == (image.height, image.width)
    for problem in dataset.problems:
        assert problem.kind != "other"
        assert "\n" not in str(problem)
        str(problem).encode("utf-8")
    return dataset


def in_folder(write, format, **options):
    with tempfile.TemporaryDirectory() as folder:
        save_image(Path(folder) / "images" / "a.png")
        write(Path(folder))
        return open_safely(folder, format, **options)


@SETTINGS
@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), max_size=4), st.booleans())
def test_voc_boxes(boxes, strict):
    objects = "".join(voc_object("dog", [str(v).replace("<", "").replace("&", "") for v in box]) for box in boxes)
    in_folder(lambda root: (root / "images/a.xml").write_bytes(_bytes(voc_xml(objects, "a.png"))), "voc", strict=strict)


@SETTINGS
@given(st.data())
def test_damaged_voc_files(data):
    text = bytearray(voc_xml(voc_object() + voc_object("cat", extra="<part/><truncated/>"), "a.png").encode())
    for _ in range(data.draw(st.integers(1, 6))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    content = bytes(text[: data.draw(st.integers(0, len(text)))])
    in_folder(lambda root: (root / "images/a.xml").write_bytes(content), "voc")


@SETTINGS
@given(st.binary(max_size=60))
def test_any_bytes(content):
    in_folder(lambda root: (root / "images/a.xml").write_bytes(content), "voc")
    in_folder(lambda root: (root / "images/a.txt").write_bytes(content), "yolo")
    in_folder(lambda root: (root / "instances.json").write_bytes(content), "coco")
    in_folder(lambda root: (root / "data.yaml").write_bytes(b"names: [a]\n" + content), "yolo")


@SETTINGS
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "id": st.one_of(st.integers(0, 3), JSON),
                "image_id": st.one_of(st.just(1), JSON),
                "category_id": st.one_of(st.sampled_from([3, 5]), JSON),
                "bbox": st.one_of(st.lists(NUMBERS, min_size=4, max_size=4), JSON),
                "segmentation": st.one_of(
                    st.lists(st.lists(st.floats(-50, 90), min_size=6, max_size=8), max_size=2),
                    st.fixed_dictionaries({"size": st.just([30, 40]), "counts": st.one_of(JSON, st.text(max_size=9))}),
                    JSON,
                ),
                "iscrowd": JSON,
                "keypoints": st.one_of(st.lists(NUMBERS, max_size=6), JSON),
                "attributes": JSON,
                "parts": st.one_of(st.lists(st.fixed_dictionaries({"bbox": JSON, "name": JSON}), max_size=2), JSON),
                "pose": JSON,
            },
        ),
        max_size=4,
    ),
    st.sampled_from(["header", "full"]),
)
def test_coco_annotations(annotations, check):
    images = [{"id": 1, "file_name": "a.png", "width": 40, "height": 30}]
    document = json.dumps(coco_document(annotations, images=images))
    in_folder(lambda root: save_text(root / "instances.json", document), "coco", check=check)


@SETTINGS
@given(st.dictionaries(st.sampled_from(["images", "annotations", "categories", "splits"]), JSON))
def test_coco_documents(document):
    in_folder(lambda root: save_text(root / "instances.json", json.dumps(document)), "coco")


@SETTINGS
@given(st.lists(st.lists(st.one_of(NUMBERS, st.floats(0, 1)), max_size=9), max_size=4))
def test_yolo_lines(lines):
    text = "\n".join(" ".join(map(str, line)) for line in lines)

    def write(root):
        (root / "images/a.txt").write_bytes(_bytes(text))
        save_text(root / "data.yaml", "names: [dog, cat]\n")

    in_folder(write, "yolo")


@SETTINGS
@given(st.text(max_size=30), st.sampled_from(["ImageSets/Main/train.txt", "ImageSets/Main/dog_train.txt"]))
def test_lists(text, name):
    def write(root):
        save_text(root / "Annotations/a.xml", voc_xml(voc_object(), "a.png"))
        (root / "images").rename(root / "JPEGImages")
        (root / name).parent.mkdir(parents=True)
        (root / name).write_bytes(_bytes(text))

    assert in_folder(write, "voc") is not None


def _bytes(text):
    return text.encode("utf-8", "surrogatepass")
