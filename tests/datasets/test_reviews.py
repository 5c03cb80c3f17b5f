"""Reviews as files: what is kept, what is refused, and two people at once."""

import json
import threading

import numpy as np
import pytest

from eesvm import InputError
from eesvm.datasets import open_dataset
from eesvm.datasets.reviews import ReviewFolder, StaleReviewError, find_review, read_review
from eesvm.images import write_image
from eesvm.images.masks import mask_to_rle
from eesvm.structures import ImageRecord


@pytest.fixture
def record(tmp_path):
    path = tmp_path / "photos/a.png"
    path.parent.mkdir()
    write_image(path, np.full((30, 40, 3), 80, dtype=np.uint8))
    return ImageRecord("a", lambda: np.full((30, 40, 3), 80, np.uint8), 40, 30, path=str(path))


def thing(**changes):
    return {"class": "dog", "bbox": [2, 3, 20, 15], "review": "accepted", "score": 0.5} | changes


def test_a_review_is_a_dataset(tmp_path, record):
    mask = np.zeros((30, 40), dtype=bool)
    mask[5:10, 5:20] = True
    folder = ReviewFolder(tmp_path / "review", "m1")
    objects = [
        thing(segmentation=mask_to_rle(mask), exemplar={"number": 3, "image_id": "t", "index": 0}),
        thing(**{"class": "cat"}, bbox=[-5, 10, 20, 40], review="corrected"),
        thing(bbox=[30, 20, 5, 5], review="undecided"),
    ]
    assert folder.save(record, 0, objects, [{"class": "dog", "bbox": [25, 2, 10, 10], "score": 0.3}]) == 1
    dataset = open_dataset(tmp_path / "review")
    assert dataset.classes == ("dog", "cat")
    (image,) = dataset
    assert image.image_id == "a"
    assert [one.is_difficult for one in image.instances] == [False, False, True]
    assert image.instances[0].mask().sum() == 75
    assert image.instances[1].box.tolist() == [0, 10, 15, 30]
    assert find_review(tmp_path / "review") == tmp_path / "review/instances.json"
    review = read_review(tmp_path / "review/instances.json")
    assert (review.model, review.rejected) == ("m1", {"a": (("dog", (25, 2, 35, 12)),)})
    pycocotools = pytest.importorskip("pycocotools.coco")
    coco = pycocotools.COCO(str(tmp_path / "review/instances.json"))
    assert len(coco.anns) == 3
    assert coco.annToMask(coco.anns[1]).sum() == 75


def test_a_second_save_replaces_the_first(tmp_path, record):
    folder = ReviewFolder(tmp_path / "review", "m1")
    folder.save(record, 0, [thing(), thing(bbox=[1, 1, 5, 5])], [])
    assert folder.save(record, 1, [thing(bbox=[4, 4, 9, 9])], []) == 2
    assert folder.versions() == {"a": 2}
    (instance,) = open_dataset(tmp_path / "review")[0].instances
    assert instance.box.tolist() == [4, 4, 13, 13]
    objects, rejected = folder.objects("a")
    assert [one["class"] for one in objects] == ["dog"]
    assert rejected == []


def test_names_that_cannot_be_written(tmp_path, record):
    from dataclasses import replace

    folder = ReviewFolder(tmp_path / "review", "m1")
    with pytest.raises(InputError) as error:
        folder.save(replace(record, image_id="z\udcff"), 0, [], [])
    assert str(error.value) == "the name of 'z\\udcff' is not UTF-8: give the file another name"
    assert not (tmp_path / "review").exists()
    persian = "\u06af\u0631\u0628\u0647\u200c\u0647\u0627"  # with a joiner, which is not printable
    folder.save(record, 0, [thing(**{"class": persian})], [])
    assert open_dataset(tmp_path / "review").classes == (persian,)


def test_who_comes_second_is_told(tmp_path, record):
    one, other = ReviewFolder(tmp_path / "review", "m1"), ReviewFolder(tmp_path / "review", "m1")
    one.save(record, 0, [thing()], [])
    with pytest.raises(StaleReviewError) as error:
        other.save(record, 0, [], [])
    assert str(error.value) == "somebody else has reviewed a in the meantime: look at it again before you save"
    assert len(open_dataset(tmp_path / "review")[0].instances) == 1


def test_many_reviewers_at_once_lose_nothing(tmp_path, record):
    from dataclasses import replace

    records = [replace(record, image_id=f"image {k}") for k in range(12)]
    folders = [ReviewFolder(tmp_path / "review", "m1") for _ in range(4)]
    refused = []

    def work(folder):
        for one in records:
            try:
                folder.save(one, 0, [thing()], [])
            except StaleReviewError:
                refused.append(one.image_id)

    threads = [threading.Thread(target=work, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 3 * 12
    dataset = open_dataset(tmp_path / "review")
    assert sorted(one.image_id for one in dataset) == sorted(one.image_id for one in records)
    assert all(len(one.instances) == 1 for one in dataset)
    ids = [one["id"] for one in json.loads((tmp_path / "review/instances.json").read_text())["annotations"]]
    assert len(set(ids)) == 12


def test_reviews_of_other_models(tmp_path, record):
    ReviewFolder(tmp_path / "review", "m1").save(record, 0, [thing()], [])
    with pytest.raises(InputError) as error:
        ReviewFolder(tmp_path / "review", "m2")
    assert str(error.value) == f"{tmp_path / 'review/instances.json'} is a review of another model: name another folder"
    grown = ReviewFolder(tmp_path / "review", "m2", ["m0", "m1"])
    grown.save(record, 1, [], [])
    assert read_review(tmp_path / "review/instances.json").model == "m2"


def test_folders_of_others_are_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("x")
    with pytest.raises(InputError) as error:
        ReviewFolder(tmp_path / "mine", "m1")
    assert str(error.value) == f"{tmp_path / 'mine'} is not a review: it holds thesis.txt and no instances.json"
    with pytest.raises(InputError) as error:
        ReviewFolder(tmp_path / "mine/thesis.txt", "m1")
    assert str(error.value) == f"{tmp_path / 'mine/thesis.txt'} is not a folder"
    assert find_review(tmp_path / "mine") is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"class": ""}, "an object of a has no class"),
        ({"class": 3}, "an object of a has no class"),
        ({"bbox": [1, 2, 3]}, "an object of a must have a `bbox` of four numbers"),
        ({"bbox": [1, 2, float("nan"), 4]}, "an object of a must have a `bbox` of four numbers"),
        ({"bbox": [1, 2, -3, 4]}, "an object of a has a `bbox` that is no box"),
        ({"bbox": [50, 2, 3, 4]}, "the box of an object of a has no area within the image"),
        ({"bbox": [5, 2, 0, 4]}, "the box of an object of a has no area within the image"),
        ({"review": "fine"}, "`review` of an object of a must be accepted, corrected, drawn or undecided, got 'fine'"),
        (
            {"segmentation": {"size": [4, 4], "counts": [0, 16]}},
            "the mask of an object of a has 4 x 4 pixels, its image 40 x 30",
        ),
        ({"segmentation": [[1, 2, 3, 4, 5, 6]]}, None),
        ({"segmentation": "all"}, None),
    ],
)
def test_objects_that_cannot_be_kept(tmp_path, record, given, sentence):
    folder = ReviewFolder(tmp_path / "review", "m1")
    with pytest.raises(InputError) as error:
        folder.save(record, 0, [thing(**given)], [])
    assert str(error.value) == sentence or sentence is None
    assert not (tmp_path / "review/instances.json").exists()


def test_a_mask_without_pixels_is_no_mask(tmp_path, record):
    folder = ReviewFolder(tmp_path / "review", "m1")
    folder.save(record, 0, [thing(segmentation={"size": [30, 40], "counts": [1200]})], [])
    assert open_dataset(tmp_path / "review")[0].instances[0].mask is None
