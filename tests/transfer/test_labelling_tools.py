"""Files for annotators, opened by the tools themselves: supervision, fiftyone and Label Studio, where installed.

What they find in the files is compared with what was found in the photographs.
"""

import json

import numpy as np
import pytest

from eesvm.images import write_image
from eesvm.structures import Detections, ExemplarAnnotation, ImageRecord
from eesvm.transfer.detections import ImageDetections, hand_on
from eesvm.transfer.files import coco_names, write_coco_transfer
from eesvm.transfer.labelling_files import labelled_images, write_labels

CLASSES = ("dog", "cat")
BOXES = np.array([[10.0, 20, 50, 40], [5, 50, 30, 75]])
SCORES = np.array([0.9, 0.25])


@pytest.fixture
def place(tmp_path):
    """Two photographs in one folder, two detections in the first, and their exemplars: one has a mask."""
    folder = tmp_path / "images"
    folder.mkdir()
    for name in ("one", "two"):
        write_image(folder / f"{name}.png", np.full((80, 100, 3), 90, dtype=np.uint8))
    records = [
        ImageRecord(name, lambda: np.zeros((80, 100, 3), np.uint8), 100, 80, path=str(folder / f"{name}.png"))
        for name in ("one", "two")
    ]
    mask = np.zeros((20, 40), dtype=bool)
    mask[2:18, 3:35] = True
    exemplars = (
        ExemplarAnnotation("dog", "train_7", 2, np.array([0.0, 0, 40, 20]), mask),
        ExemplarAnnotation("cat", "train_8", 0, np.array([0.0, 0, 10, 10])),
    )
    found = [Detections("one", BOXES, SCORES, np.array(CLASSES), np.array([0, 1])), Detections.empty("two")]
    chosen = [ImageDetections(records[0], found[0], ((0,), (1,)), ((0.9,), (0.25,)))]
    handed = [hand_on(exemplars, chosen[0]), ()]
    return tmp_path, records, found, exemplars, chosen, handed


def written(place, kind, has_masks=False):
    folder, records, found, exemplars, _, handed = place
    write_labels(folder, kind, labelled_images(records, found, exemplars, handed if has_masks else None), CLASSES)
    return folder


def written_coco(place):
    folder, records, _, exemplars, chosen, handed = place
    path = folder / "annotations.json"
    write_coco_transfer(path, [(chosen[0], handed[0])], exemplars, coco_names(records, exemplars))
    return path


def test_masks_of_which_nothing_is_left_are_none(place):
    """One pixel of an exemplar of 200 x 200 pixels is nothing on a box of 20 x 20."""
    folder, records, _, _, _, _ = place
    mask = np.zeros((200, 200), dtype=bool)
    mask[100, 100] = True
    exemplars = (ExemplarAnnotation("dog", "train_7", 2, np.array([0.0, 0, 200, 200]), mask),)
    found = Detections("one", np.array([[10.0, 20, 30, 40]]), np.ones(1), np.array(["dog"]), np.array([0]))
    chosen = ImageDetections(records[0], found, ((0,),), ((0.9,),))
    handed = hand_on(exemplars, chosen)
    assert not handed[0].mask.any()
    write_coco_transfer(folder / "annotations.json", [(chosen, handed)], exemplars, coco_names(records, exemplars))
    (entry,) = json.loads((folder / "annotations.json").read_text())["annotations"]
    assert "segmentation" not in entry
    assert entry["area"] == 400


def test_supervision_reads_yolo_and_coco(place):
    supervision = pytest.importorskip("supervision", reason="needs the extra `supervision`")
    folder = written(place, "yolo")
    read = supervision.DetectionDataset.from_yolo(
        str(folder / "images"), str(folder / "yolo" / "labels"), str(folder / "yolo" / "data.yaml")
    )
    assert read.classes == list(CLASSES)
    own = {path.rpartition("/")[2]: found for path, _, found in read}
    np.testing.assert_allclose(own["one.png"].xyxy, BOXES, atol=1e-3)
    assert own["one.png"].class_id.tolist() == [0, 1]
    assert len(own["two.png"]) == 0
    read = supervision.DetectionDataset.from_coco(str(folder / "images"), str(written_coco(place)))
    (found,) = [one for path, _, one in read if path.endswith("one.png")]
    np.testing.assert_allclose(found.xyxy, BOXES, atol=1e-3)
    assert [read.classes[k] for k in found.class_id] == list(CLASSES)


def test_supervision_reads_polygons_of_yolo(place):
    supervision = pytest.importorskip("supervision", reason="needs the extra `supervision`")
    folder, handed = written(place, "yolo-seg", has_masks=True), place[-1]
    read = supervision.DetectionDataset.from_yolo(
        str(folder / "images"), str(folder / "yolo-seg/labels"), str(folder / "yolo-seg/data.yaml"), force_masks=True
    )
    (found,) = [one for path, _, one in read if path.endswith("one.png")]
    truth = handed[0][0].whole_mask()
    assert (found.mask[0] & truth).sum() > 0.9 * (found.mask[0] | truth).sum()


def labels_of(importer):
    """By image: labels, boxes in pixels, and the objects themselves."""
    with importer:
        return {
            path.rpartition("/")[2]: [
                (one.label, np.array(one.bounding_box) * [100, 80, 100, 80], one)
                for one in (label["detections"] if isinstance(label, dict) else label).detections
            ]
            for path, _, label in importer
            if label
        }


def test_fiftyone_reads_coco_yolo_and_cvat(place):
    pytest.importorskip("fiftyone", reason="needs the extra `fiftyone`")
    from fiftyone.utils.coco import COCODetectionDatasetImporter
    from fiftyone.utils.cvat import CVATImageDatasetImporter
    from fiftyone.utils.yolo import YOLOv4DatasetImporter

    folder = written(place, "yolo")
    written(place, "cvat")
    (folder / "obj.names").write_text("\n".join(CLASSES))
    images = str(folder / "images")
    found = {
        "coco": COCODetectionDatasetImporter(
            data_path=images, labels_path=str(written_coco(place)), label_types="detections"
        ),
        "cvat": CVATImageDatasetImporter(data_path=images, labels_path=str(folder / "cvat.xml")),
        "yolo": YOLOv4DatasetImporter(
            data_path=images, labels_path=str(folder / "yolo/labels"), objects_path=str(folder / "obj.names")
        ),
    }
    wanted = np.column_stack([BOXES[:, :2], BOXES[:, 2:] - BOXES[:, :2]])
    for name, importer in found.items():
        own = labels_of(importer)["one.png"]
        assert [label for label, _, _ in own] == list(CLASSES), name
        np.testing.assert_allclose([box for _, box, _ in own], wanted, atol=1e-3, err_msg=name)
        if name == "cvat":
            assert [one.get_attribute_value("exemplar") for *_, one in own] == [
                "0: train_7, object 3",
                "1: train_8, object 1",
            ]


def test_label_studio_accepts_the_predictions(place):
    sdk = pytest.importorskip("label_studio_sdk.label_interface", reason="Label Studio's SDK is not installed")
    folder = written(place, "label-studio", has_masks=True)
    interface = sdk.LabelInterface((folder / "label_studio.xml").read_text())
    interface.validate()
    for task in json.loads((folder / "label_studio.json").read_text()):
        for prediction in task["predictions"]:
            assert interface.validate_prediction(prediction, return_errors=True) == []


def test_label_studio_converts_them_to_coco(place):
    converter = pytest.importorskip("label_studio_sdk.converter", reason="Label Studio's SDK is not installed")
    folder = written(place, "label-studio")
    tasks = json.loads((folder / "label_studio.json").read_text())
    for number, task in enumerate(tasks, 1):  # what Label Studio exports once predictions were accepted
        results = [{**one, "origin": "prediction"} for one in task.pop("predictions")[0]["result"]]
        task.update(id=number, annotations=[{"id": number, "result": results, "was_cancelled": False}])
    (folder / "accepted.json").write_text(json.dumps(tasks))
    tool = converter.Converter(str(folder / "label_studio.xml"), str(folder), download_resources=False)
    tool.convert_to_coco(str(folder / "accepted.json"), str(folder / "exported"), is_dir=False)
    document = json.loads((folder / "exported" / "result.json").read_text())
    names = {one["id"]: one["name"] for one in document["categories"]}
    assert [names[one["category_id"]] for one in document["annotations"]] == list(CLASSES)
    wanted = np.column_stack([BOXES[:, :2], BOXES[:, 2:] - BOXES[:, :2]])
    np.testing.assert_allclose([one["bbox"] for one in document["annotations"]], wanted, atol=1e-3)
