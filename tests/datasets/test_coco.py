"""COCO: hand-checked files, agreement with pycocotools, and ids that lead nowhere."""

import json

import numpy as np
import pytest
from pycocotools import mask as coco_mask

from eesvm import InputError
from eesvm.datasets import open_dataset, select, summary, write_coco
from helpers.dataset_files import coco_document, kinds, save_coco, save_image, save_text

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools


def annotation(number=1, **changes):
    return {"id": number, "image_id": 1, "category_id": 5, "bbox": [4, 2, 16, 20.5], "iscrowd": 0, **changes}


def test_a_hand_checked_file(tmp_path):
    polygon = [4, 2, 20, 2, 20, 22, 4, 22]
    save_coco(
        tmp_path,
        [
            annotation(7, segmentation=[polygon], area=320, attributes={"colour": "red"}, score=0.5),
            annotation(8, category_id=3, iscrowd=1, segmentation={"size": [30, 40], "counts": [0, 30, 1170]}),
        ],
    )
    dataset = open_dataset(tmp_path)
    assert dataset.classes == ("dog", "cat")  # in the order of the file
    (image,) = dataset
    assert (image.image_id, image.width, image.height, image.read().shape) == ("1", 40, 30, (30, 40, 3))
    first, second = image.instances
    assert first.box.tolist() == [4, 2, 20, 22.5]
    assert (first.class_name, first.index, first.is_crowd) == ("dog", 0, False)
    assert first.metadata == {"colour": "red", "score": 0.5, "annotation_id": 7}
    expected = np.zeros((30, 40), bool)
    expected[2:22, 4:20] = True
    np.testing.assert_array_equal(first.mask(), expected)
    assert (second.class_name, second.is_crowd) == ("cat", True)
    assert second.mask()[:, 0].all()
    assert second.mask().sum() == 30


def test_masks_agree_with_pycocotools(tmp_path):
    rng = np.random.default_rng(0)
    pixels = rng.random((30, 40)) < 0.5
    compressed = coco_mask.encode(np.asfortranarray(pixels.astype(np.uint8)))
    polygons = [rng.uniform(-5, 45, 10).tolist() for _ in range(3)]
    save_coco(
        tmp_path,
        [
            annotation(1, segmentation={"size": [30, 40], "counts": compressed["counts"].decode()}),
            annotation(2, segmentation=polygons),
        ],
    )
    first, second = open_dataset(tmp_path)[0].instances
    np.testing.assert_array_equal(first.mask(), pixels)
    united = coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects(polygons, 30, 40)))
    np.testing.assert_array_equal(second.mask(), united.astype(bool))


def test_box_from_the_mask_where_there_is_none(tmp_path):
    save_coco(
        tmp_path,
        [
            annotation(1, bbox=None, segmentation=[[4, 2, 20, 2, 20, 22]]),
            annotation(2, bbox=None, segmentation={"size": [30, 40], "counts": [0, 30, 1170]}),
            annotation(3, bbox=None),
            annotation(4, bbox=[1, 2, 3]),
            annotation(5, bbox=["1", 2, 3, 4]),
        ],
    )
    dataset = open_dataset(tmp_path)
    assert [instance.box.tolist() for instance in dataset.instances()] == [[4, 2, 20, 22], [0, 0, 1, 30]]
    assert [problem.reason for problem in dataset.problems] == [
        f"annotation {number} has no box of four numbers; it is left out" for number in (3, 4, 5)
    ]


def test_keypoints(tmp_path):
    categories = [{"id": 5, "name": "person", "keypoints": ["nose", "tail"]}]
    points = [1, 2, 2, 3.5, 4, 1]
    save_coco(tmp_path, [annotation(keypoints=points), annotation(2, keypoints=points[:3])], categories=categories)
    first, second = open_dataset(tmp_path).instances()
    assert first.metadata["keypoints"] == {"nose": [1, 2, 2], "tail": [3.5, 4, 1]}
    assert second.metadata["keypoints"] == {"1": [1, 2, 2]}


def test_ids_that_lead_nowhere(tmp_path):
    path = save_coco(
        tmp_path,
        [
            annotation(1),
            annotation(2, image_id=99),
            annotation(3, category_id=99),
            annotation(4, image_id=[1]),
            {"id": 5},
            "nonsense",
            annotation(7, image_id="1"),
        ],
    )
    dataset = open_dataset(tmp_path)
    assert len(list(dataset.instances())) == 1
    assert [str(problem) for problem in dataset.problems[:2]] == [
        f"{path}: annotation 2 belongs to the image id 99, which does not exist; it is left out",
        f"{path}: annotation 3 has the category id 99, which does not exist; it is left out",
    ]
    assert kinds(dataset) == ["reference"] * 6
    with pytest.raises(InputError, match="annotation 2 belongs to the image id 99, which does not exist"):
        open_dataset(tmp_path, strict=True)


def test_duplicate_ids(tmp_path):
    images = [{"id": 1, "file_name": "a.jpg"}, {"id": 1, "file_name": "a.jpg"}, {"id": "1", "file_name": "a.jpg"}]
    categories = [{"id": 5, "name": "dog"}, {"id": 5, "name": "cat"}]
    save_coco(tmp_path, [annotation()], images=images, categories=categories)
    dataset = open_dataset(tmp_path)
    assert [image.image_id for image in dataset] == ["1"]
    assert next(dataset.instances()).class_name == "dog"
    assert kinds(dataset) == ["duplicate"] * 3


def test_bad_categories_and_images(tmp_path):
    images = [{"id": 1, "file_name": "a.jpg"}, {"file_name": "a.jpg"}, {"id": 2}, 7, {"id": 3, "file_name": "b.jpg"}]
    categories = [{"id": 5, "name": "dog"}, {"id": 6}, {"name": "cat"}, None, {"id": 8, "name": " "}]
    save_coco(tmp_path, [annotation(), annotation(2, image_id=3)], images=images, categories=categories)
    dataset = open_dataset(tmp_path)
    assert len(dataset) == 1
    assert kinds(dataset) == ["class"] * 4 + ["annotation", "missing image", "annotation", "missing image"]
    assert dataset.problems[-1].reason == "image 3: there is no file b.jpg; it is left out"


@pytest.mark.parametrize(
    "name", ["../secret.jpg", "/etc/passwd", "images/../../secret.jpg", r"..\secret.jpg", "C:/x.jpg", ""]
)
def test_file_names_that_lead_out_are_not_followed(tmp_path, name):
    save_image(tmp_path / "secret.jpg")
    save_coco(tmp_path / "set", images=[{"id": 1, "file_name": name}])
    dataset = open_dataset(tmp_path / "set")
    assert len(dataset) == 0
    assert kinds(dataset) == ["path"]
    assert dataset.problems[0].reason == f"image 1: its name {name!r} leads out of the dataset; it is left out"


@pytest.mark.parametrize("name", ["x" * 5000 + ".jpg", "a\0.jpg", "\ud800.jpg"])
def test_file_names_that_no_file_system_takes(tmp_path, name):
    save_coco(tmp_path, images=[{"id": 1, "file_name": name}])
    dataset = open_dataset(tmp_path)
    assert kinds(dataset)[0] in ("missing image", "path")
    str(dataset.problems[0]).encode("utf-8")


@pytest.mark.parametrize(
    ("box", "kept"),
    [
        ([30, 20, 20, 20], [30, 20, 40, 30]),
        ([39.8, 20, 0.4, 5], [39.8, 20, 40, 25]),  # less than half a pixel outside is rounding
        ([50, 20, 5, 5], None),
        ([5, 5, 0, 5], None),
        ([5, 5, -3, 5], None),
        ([float("nan"), 5, 3, 5], None),
        ([float("inf"), 5, 3, 5], None),
        ([10**400, 5, 3, 5], None),
    ],
)
def test_bad_boxes(tmp_path, box, kept):
    save_coco(tmp_path, [annotation(bbox=box)])
    dataset = open_dataset(tmp_path)
    assert [instance.box.tolist() for instance in dataset.instances()] == ([] if kept is None else [kept])
    assert kinds(dataset) == (["box"] if box[0] != 39.8 else [])


@pytest.mark.parametrize(
    ("segmentation", "reason"),
    [
        ([[1, 2, 3]], "a polygon must be x, y of at least three points, got 3 numbers"),
        ([[1, 2, 3, 4, 5, "a"]], "a polygon must be a list of numbers"),
        ([5], "a polygon must be x, y of at least three points, got 1 numbers"),
        ("text", "its segmentation is neither polygons nor run lengths"),
        ({"counts": [1]}, "run lengths must be an object with `size` and `counts`"),
        ({"size": [5, 5], "counts": [25]}, "its run lengths are for 5 x 5 pixels, not for the image"),
        ({"size": [30, 40], "counts": [1]}, "the run lengths add up to 1, not to 30 x 40 pixels"),
    ],
)
def test_bad_masks_are_left_out_and_their_object_stays(tmp_path, segmentation, reason):
    save_coco(tmp_path, [annotation(segmentation=segmentation)])
    dataset = open_dataset(tmp_path)
    assert [instance.mask for instance in dataset.instances()] == [None]
    assert [problem.reason for problem in dataset.problems] == [f"annotation 1: {reason}; it is kept without mask"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"images": [],\n "annotations": [}', "instances.json:2: it is not valid JSON: Expecting value"),
        ("[]", "instances.json: it is no COCO file: it has no list `images`"),
        ('{"images": [], "annotations": {}}', "instances.json: it is no COCO file: it has no list `annotations`"),
        ("[" * 100_000, "instances.json: it is not usable JSON: maximum recursion depth exceeded"),
        ('{"images": [' + "1" * 5000 + "]}", "instances.json: it is not usable JSON: Exceeds the limit"),
        (b"\xff\xfe\x00", "instances.json: it is not usable JSON: .*codec can't decode"),
        (b"", "instances.json:1: it is not valid JSON: Expecting value"),
    ],
)
def test_files_that_are_no_coco(tmp_path, content, sentence):
    (tmp_path / "instances.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=sentence):
        open_dataset(tmp_path)


def test_one_broken_file_does_not_stop_the_others(tmp_path):
    save_coco(tmp_path, [annotation()], name="annotations/instances_train.json")
    save_text(tmp_path / "annotations/instances_val.json", "{")
    dataset = open_dataset(tmp_path)
    assert dataset.splits == {"train": ("1",)}
    assert kinds(dataset) == ["annotation"]
    assert not open_dataset(tmp_path, split="train").problems


def test_usual_folders_and_splits(tmp_path):
    for split, image_id in (("train2017", 1), ("val2017", 2)):
        save_image(tmp_path / split / "a.jpg")
        document = coco_document(
            [annotation(image_id, image_id=image_id)], images=[{"id": image_id, "file_name": "a.jpg"}]
        )
        save_text(tmp_path / f"annotations/instances_{split}.json", json.dumps(document))
        save_text(tmp_path / f"annotations/captions_{split}.json", "{}")
    dataset = open_dataset(tmp_path)
    assert dataset.splits == {"train2017": ("1",), "val2017": ("2",)}
    assert [image.path.split("/")[-2] for image in dataset] == ["train2017", "val2017"]
    assert [image.image_id for image in open_dataset(tmp_path, split="val2017")] == ["2"]
    assert summary(dataset).splits == {"train2017": (1, 1), "val2017": (1, 1)}
    with pytest.raises(InputError, match=r"has no split 'test': it has train2017, val2017$"):
        open_dataset(tmp_path, split="test")


def save_split(root, split, images, **parts):
    """A file of images by number, each with one object; the images lie in a folder of the name of the split."""
    for name in images.values():
        save_image(root / split / name)
    entries = [{"id": number, "file_name": name} for number, name in images.items()]
    objects = [annotation(number, image_id=number) for number in images]
    document = {**coco_document(objects, images=entries), **parts}
    save_text(root / f"annotations/{split}.json", json.dumps(document))


def paths_of(dataset):
    return {image.image_id: "/".join(image.path.split("/")[-2:]) for image in dataset}


def test_files_that_each_number_from_1_keep_all_their_images(tmp_path):
    save_split(tmp_path, "train", {1: "a.jpg", 2: "b.jpg"})
    save_split(tmp_path, "val", {1: "a.jpg", 7: "c.jpg"})  # the same name in another folder is another image
    dataset = open_dataset(tmp_path, strict=True)
    assert paths_of(dataset) == {"1": "train/a.jpg", "2": "train/b.jpg", "val/1": "val/a.jpg", "7": "val/c.jpg"}
    assert dataset.splits == {"train": ("1", "2"), "val": ("val/1", "7")}
    assert paths_of(select(dataset, split="val")) == {"val/1": "val/a.jpg", "7": "val/c.jpg"}
    assert [i.image_id for i in dataset.instances()] == ["1", "2", "val/1", "7"]
    assert paths_of(open_dataset(tmp_path, split="val")) == {"1": "val/a.jpg", "7": "val/c.jpg"}  # as its file says
    write_coco(dataset, tmp_path / "out")
    again = open_dataset(tmp_path / "out", strict=True)
    assert again.splits == dataset.splits


def test_an_image_that_two_files_describe_is_one_image(tmp_path):
    save_split(tmp_path, "train", {1: "a.jpg"})
    save_image(tmp_path / "images/b.jpg")
    for split in ("val", "valsmall"):
        document = coco_document([annotation()], images=[{"id": 1, "file_name": "b.jpg"}])
        save_text(tmp_path / f"annotations/{split}.json", json.dumps(document))
    dataset = open_dataset(tmp_path)
    assert list(paths_of(dataset)) == ["1", "val/1"]
    assert dataset.splits == {"train": ("1",), "val": ("val/1",), "valsmall": ("val/1",)}
    assert kinds(dataset) == ["duplicate"]
    assert len(list(dataset.instances())) == 2


def test_splits_that_several_files_store_are_one_split(tmp_path):
    for name in ("first", "second"):
        save_split(tmp_path, name, {1: "a.jpg", 2: "b.jpg"}, splits={"best": ["1"], "other": ["2", "3"]})
    dataset = open_dataset(tmp_path)
    assert dataset.splits["best"] == ("1", "second/1")
    assert dataset.splits["other"] == ("2", "second/2")
    assert paths_of(open_dataset(tmp_path, split="best")) == {"1": "first/a.jpg", "second/1": "second/a.jpg"}


def test_a_file_alone_with_images_elsewhere(tmp_path):
    save_image(tmp_path / "pictures/sub/a.jpg")
    images = [{"id": 1, "file_name": "sub/a.jpg", "width": 40, "height": 31}]
    path = save_text(tmp_path / "my.json", json.dumps(coco_document([annotation()], images=images)))
    dataset = open_dataset(path, images=tmp_path / "pictures")
    assert len(dataset) == 1
    assert [str(problem) for problem in dataset.problems] == [
        f"{path}: says that the image has 40 x 31 pixels, but it has 40 x 30"
    ]


def test_a_million_annotations_are_not_copied(tmp_path):
    """What has been read of the JSON is let go while it is read."""
    from eesvm.datasets import coco

    seen = []
    entries = [annotation(number) for number in range(5)]

    class Watched(coco._File):
        def _add_annotation(self, entry, number):
            seen.append(entries[number - 1])
            super()._add_annotation(entry, number)

    path = save_coco(tmp_path)
    builder = coco.Builder(coco.Options())
    data = coco_document()
    data["annotations"] = entries
    Watched(path, builder).read(data)
    assert seen == [None] * 5
    assert len(builder.records["1"].instances) == 5
