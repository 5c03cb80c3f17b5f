"""Files for the tools in which people annotate: what is in them, read by slow readers of our own and by real packages."""

import csv
import json
from xml.etree import ElementTree

import numpy as np
import pytest

from eesvm import InputError
from eesvm.datasets import open_dataset
from eesvm.images import write_image
from eesvm.images.masks import polygons_to_mask
from eesvm.images.outlines import joined_polygon, mask_polygons
from eesvm.structures import Detections, ExemplarAnnotation, ImageRecord
from eesvm.transfer.detections import ImageDetections, hand_on
from eesvm.transfer.labelling_files import labelled_images, write_labels

CLASSES = ("dog", 'cat <&> "co"')


@pytest.fixture
def place(tmp_path):
    """Two photographs in folders of their own, what was found in them, and exemplars with masks or without."""
    for name in ("a/one.png", "b c/two.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True)
        write_image(tmp_path / "photos" / name, np.full((80, 100, 3), 90, dtype=np.uint8))
    records = [
        ImageRecord(name.rpartition("/")[2][:-4], lambda: np.zeros((80, 100, 3), np.uint8), 100, 80,
                    path=str(tmp_path / "photos" / name))
        for name in ("a/one.png", "b c/two.png")
    ]  # fmt: skip
    mask = np.zeros((20, 40), dtype=bool)
    mask[2:18, 3:15] = mask[5:12, 22:37] = True
    mask[8:12, 6:9] = False
    exemplars = (
        ExemplarAnnotation("dog", "train_7", 2, np.array([0.0, 0, 40, 20]), mask),
        ExemplarAnnotation(CLASSES[1], "train_8", 0, np.array([0.0, 0, 10, 10])),
    )
    boxes = np.array([[10.0, 20, 50, 40], [-20, -10, 30, 25], [200, 200, 210, 210]])
    names = np.array(["dog", CLASSES[1], "dog"])
    found = [
        Detections("one", boxes, np.array([0.9, 0.25, 0.1]), names, np.array([0, 1, -1])),
        Detections.empty("two"),
    ]
    return tmp_path, records, found, exemplars


def with_masks(found, records, exemplars):
    chosen = [ImageDetections(record, one[:2], ((0,), (1,))[: len(one[:2])], ((0.9,), (0.2,))[: len(one[:2])])
              for record, one in zip(records, found, strict=True)]  # fmt: skip
    return [one[:2] for one in found], [hand_on(exemplars, one) for one in chosen]


def slow_mask(place_of_mask, exemplars):
    whole = np.zeros((80, 100), dtype=bool)
    whole[20:40, 10:50] = exemplars[0].mask
    return whole


def test_yolo_is_read_back(place):
    folder, records, found, exemplars = place
    write_labels(folder, "yolo", labelled_images(records, found, exemplars), CLASSES)
    assert (folder / "yolo/labels/one.txt").read_text() == (
        "0 0.300000 0.375000 0.400000 0.250000\n1 0.150000 0.156250 0.300000 0.312500\n"
    )
    assert (folder / "yolo/labels/two.txt").read_text() == ""
    with open(folder / "yolo/objects.csv", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert [(row["labels"], row["line"], row["exemplar"], row["training_object"]) for row in rows] == [
        ("labels/one.txt", "1", "0", "train_7, object 3"),
        ("labels/one.txt", "2", "1", "train_8, object 1"),
    ]
    (folder / "yolo/images").mkdir()
    for name in ("one", "two"):
        write_image(folder / f"yolo/images/{name}.png", np.zeros((80, 100, 3), np.uint8))
    dataset = open_dataset(folder / "yolo", "yolo")
    assert dataset.classes == CLASSES
    boxes = {record.image_id: [one.box.tolist() for one in record.instances] for record in dataset}
    assert boxes["two"] == []
    np.testing.assert_allclose(boxes["one"], [[10, 20, 50, 40], [0, 0, 30, 25]], atol=1e-3)


def test_yolo_polygons_are_the_mask_without_its_holes(place):
    folder, records, found, exemplars = place
    kept, handed = with_masks(found, records, exemplars)
    write_labels(folder, "yolo-seg", labelled_images(records, kept, exemplars, handed), CLASSES)
    first, second = (folder / "yolo-seg/labels/one.txt").read_text().splitlines()
    corners = np.array(first.split()[1:], dtype=float).reshape(-1, 2) * [100, 80]
    filled = slow_mask(None, exemplars)
    filled[20 + 8 : 20 + 12, 10 + 6 : 10 + 9] = True
    drawn = polygons_to_mask([corners], 80, 100)
    assert (drawn & filled).sum() / (drawn | filled).sum() > 0.95
    # An exemplar without mask beside one with a mask: its box is the outline.
    np.testing.assert_allclose(
        np.array(second.split()[1:], dtype=float), [0, 0, 0.3, 0, 0.3, 0.3125, 0, 0.3125], atol=1e-6
    )


def test_label_studio(place):
    folder, records, found, exemplars = place
    kept, handed = with_masks(found, records, exemplars)
    write_labels(folder, "label-studio", labelled_images(records, kept, exemplars, handed), CLASSES)
    one, two = json.loads((folder / "label_studio.json").read_text())
    assert one["data"] == {"image": "/data/local-files/?d=a/one.png"}
    assert two == {
        "data": {"image": "/data/local-files/?d=b%20c/two.png"},
        "predictions": [{**two["predictions"][0], "score": 0.0, "result": []}],
    }
    results = one["predictions"][0]["result"]
    assert [(r["type"], r["from_name"], r["score"], r["meta"]["text"]) for r in results] == [
        ("polygonlabels", "outline", 0.9, ["exemplar 0: train_7, object 3"]),
        ("polygonlabels", "outline", 0.9, ["exemplar 0: train_7, object 3"]),
        ("rectanglelabels", "box", 0.25, ["exemplar 1: train_8, object 1"]),
    ]
    assert results[2]["value"] == {
        "x": 0, "y": 0, "width": 30, "height": 31.25, "rotation": 0, "rectanglelabels": [CLASSES[1]],
    }  # fmt: skip
    parts = [np.array(r["value"]["points"]) * [1, 0.8] for r in results[:2]]
    drawn = polygons_to_mask(parts, 80, 100)
    assert (drawn & slow_mask(None, exemplars)).sum() > 0.9 * slow_mask(None, exemplars).sum()
    view = ElementTree.parse(folder / "label_studio.xml").getroot()
    assert {node.get("name") for node in view} == {"image", "box", "outline"}
    assert [label.get("value") for label in view.find("RectangleLabels")] == list(CLASSES)


def test_cvat(place):
    folder, records, found, exemplars = place
    kept, handed = with_masks(found, records, exemplars)
    write_labels(folder, "cvat", labelled_images(records, kept, exemplars, handed), CLASSES)
    root = ElementTree.parse(folder / "cvat.xml").getroot()
    one, two = root.findall("image")
    assert (one.get("name"), one.get("width"), len(two)) == ("a/one.png", "100", 0)
    mask, box = one
    assert {a.get("name"): a.text for a in box.iter("attribute")} == {
        "score": "0.25", "exemplar": "1: train_8, object 1",
    }  # fmt: skip
    assert [box.get(name) for name in ("label", "xtl", "ytl", "xbr", "ybr")] == [
        CLASSES[1], "0.00", "0.00", "30.00", "25.00",
    ]  # fmt: skip
    left, top, width, height = (int(mask.get(name)) for name in ("left", "top", "width", "height"))
    runs = [int(text) for text in mask.get("rle").split(",")]
    pixels = np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(height, width)
    whole = np.zeros((80, 100), dtype=bool)
    whole[top : top + height, left : left + width] = pixels
    assert (whole == slow_mask(None, exemplars)).all()
    labels = json.loads((folder / "cvat_labels.json").read_text())
    assert [one["name"] for one in labels] == list(CLASSES)


def test_labelme(place):
    folder, records, found, exemplars = place
    (folder / "out").mkdir()
    write_labels(folder / "out", "labelme", labelled_images(records, found, exemplars), CLASSES)
    one = json.loads((folder / "out/labelme/one.json").read_text())
    assert (folder / "out/labelme" / one["imagePath"]).samefile(records[0].path)
    assert one["shapes"][0] == {
        "label": "dog", "points": [[10, 20], [50, 40]], "group_id": None, "shape_type": "rectangle", "flags": {},
        "description": "score 0.9, exemplar 0: train_7, object 3",
    }  # fmt: skip
    assert json.loads((folder / "out/labelme/two.json").read_text())["shapes"] == []


def test_what_cannot_be_written(place):
    folder, records, found, exemplars = place
    with pytest.raises(InputError) as error:
        list(labelled_images(records[:1], [Detections.empty("three")], exemplars))
    assert str(error.value) == "the image 'three' of the detections is not among those given"
    with pytest.raises(InputError) as error:
        list(labelled_images(records, found, exemplars[:1]))
    assert str(error.value) == (
        "the detections are of another model: a detection in one names the exemplar 1, but the model has 1, counted "
        "from 0"
    )
    with pytest.raises(InputError) as error:
        write_labels(folder, "pascal", [], CLASSES)
    assert str(error.value) == (
        "`kind` must be one of 'yolo', 'yolo-seg', 'label-studio', 'cvat', 'labelme', got 'pascal'"
    )


def test_names_that_lead_elsewhere_become_numbers(place):
    folder, records, found, exemplars = place
    strange = [ImageRecord("../\x07up", records[0].read, 100, 80, path=records[0].path)]
    images = list(labelled_images(strange, [Detections("../\x07up", *list(vars(found[0]).values())[1:])], exemplars))
    assert images[0].stem == "image_1"
    write_labels(folder, "cvat", images, ("dog\x07", *CLASSES))
    ElementTree.parse(folder / "cvat.xml")


@pytest.mark.parametrize("seed", range(20))
def test_polygons_around_random_masks(seed):
    random = np.random.default_rng(seed)
    mask = np.zeros((40, 50), dtype=bool)
    for _ in range(random.integers(1, 5)):
        y, x, h, w = random.integers(2, [30, 40, 14, 14])
        mask[y : y + h, x : x + w] = True
    parts = mask_polygons(mask)
    drawn = polygons_to_mask(parts, 40, 50)
    filled = drawn | mask  # holes are filled
    assert (drawn & mask).sum() >= 0.85 * mask.sum()
    joined = polygons_to_mask([joined_polygon(parts)], 40, 50)
    assert (joined & filled).sum() >= 0.85 * filled.sum()
    assert not mask_polygons(np.zeros((3, 3), dtype=bool))


# The real packages


def test_supervision_reads_yolo_files(place):
    supervision = pytest.importorskip("supervision")
    folder, records, found, exemplars = place
    write_labels(folder, "yolo", labelled_images(records, found, exemplars), CLASSES)
    (folder / "yolo/images").mkdir()
    for name in ("one", "two"):
        write_image(folder / f"yolo/images/{name}.png", np.zeros((80, 100, 3), np.uint8))
    read = supervision.DetectionDataset.from_yolo(
        str(folder / "yolo/images"), str(folder / "yolo/labels"), str(folder / "yolo/data.yaml")
    )
    assert tuple(read.classes) == CLASSES
    boxes = next(own for path, own in read.annotations.items() if path.endswith("one.png")).xyxy
    np.testing.assert_allclose(boxes, [[10, 20, 50, 40], [0, 0, 30, 25]], atol=0.01)


def test_label_studio_converts_its_predictions(place, tmp_path):
    converter = pytest.importorskip("label_studio_converter")
    folder, records, found, exemplars = place
    write_labels(folder, "label-studio", labelled_images(records, found, exemplars), CLASSES)
    tasks = json.loads((folder / "label_studio.json").read_text())
    for number, task in enumerate(tasks, 1):  # what the tool makes of predictions once somebody has submitted them
        task.update(id=number, annotations=[{"result": task["predictions"][0]["result"], "id": number}])
    (folder / "tasks").mkdir()
    (folder / "tasks/tasks.json").write_text(json.dumps(tasks))
    made = converter.Converter(str(folder / "label_studio.xml"), str(folder), download_resources=False)
    made.convert_to_coco(str(folder / "tasks"), str(tmp_path / "coco"), is_dir=True)
    (result,) = (tmp_path / "coco").glob("**/*.json")
    content = json.loads(result.read_text())
    assert sorted(one["name"] for one in content["categories"]) == sorted(CLASSES)
    boxes = sorted([round(value, 3) for value in one["bbox"]] for one in content["annotations"])
    assert boxes == [[0, 0, 30, 25], [10, 20, 40, 20]]
