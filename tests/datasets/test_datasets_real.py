"""Five real datasets load with the counts that are known of them, and agree with pycocotools."""

import numpy as np
import pytest
from pycocotools.coco import COCO

from eesvm.datasets import open_dataset, summary
from helpers.dataset_files import real_data

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools

COUNTS = {  # images, boxes, classes, masks, problems
    "cards": (363, 670, 6, 0, 0),
    "pets_voc": (592, 592, 2, 592, 0),
    "coco_subset_128": (128, 900, 71, 900, 1),  # one box reaches far outside its image
    "bccd": (364, 4888, 3, 0, 2),  # two boxes are single points
    "raccoon": (200, 217, 1, 0, 0),
}


@pytest.mark.parametrize("name", list(COUNTS))
def test_counts(name):
    dataset = open_dataset(real_data(name))
    counts = summary(dataset)
    found = (counts.n_images, counts.n_instances, len(counts.classes), counts.n_masks, len(dataset.problems))
    assert found == COUNTS[name]
    for image in dataset[:: max(1, len(dataset) // 8)]:
        assert image.read().shape == (image.height, image.width, 3)
        for instance in image.instances:
            assert instance.mask is None or instance.mask().shape == (image.height, image.width)


def test_splits():
    assert summary(open_dataset(real_data("cards"))).splits == {"test": (67, 143), "train": (296, 527)}
    assert len(open_dataset(real_data("pets_voc"), split="test")) == 237
    assert len(open_dataset(real_data("bccd"), split="val")) == 87


def test_bad_boxes_of_bccd_are_named():
    dataset = open_dataset(real_data("bccd"))
    assert [(problem.path.split("/")[-1], problem.line, problem.kind) for problem in dataset.problems] == [
        ("BloodImage_00338.xml", 158, "box"),
        ("BloodImage_00343.xml", 50, "box"),
    ]


def test_pets_have_masks_heads_and_breeds():
    dataset = open_dataset(real_data("pets_voc"))
    for instance in dataset.instances():
        assert [part.name for part in instance.parts] == ["head"]
        assert instance.metadata["subcategory"]
    for instance in list(dataset.instances())[::60]:
        x1, y1, x2, y2 = instance.box.astype(int)
        mask = instance.mask()
        assert mask.sum() > 100
        assert mask[y1:y2, x1:x2].sum() > 0.97 * mask.sum()


@pytest.mark.long
def test_coco_agrees_with_pycocotools(capsys):
    folder = real_data("coco_subset_128")
    theirs = COCO(str(folder / "instances_train2017.json"))
    dataset = open_dataset(folder)
    assert sum(instance.is_crowd for instance in dataset.instances()) == 13
    names = {category["id"]: category["name"] for category in theirs.loadCats(theirs.getCatIds())}
    for instance in dataset.instances():
        (annotation,) = theirs.loadAnns([instance.metadata["annotation_id"]])
        assert instance.class_name == names[annotation["category_id"]]
        assert instance.is_crowd == bool(annotation["iscrowd"])
        assert instance.image_id == str(annotation["image_id"])
        np.testing.assert_array_equal(instance.mask(), theirs.annToMask(annotation).astype(bool))
