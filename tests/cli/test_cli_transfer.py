"""`eesvm transfer` from training to the folder it writes, the library behind it, and its status."""

import csv
import json
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from eesvm import InputError
from eesvm.boxes import clip
from eesvm.cli import main
from eesvm.cli.transfer import handed_text
from eesvm.datasets import open_dataset, write_coco
from eesvm.datasets.scenes import make_scenes
from eesvm.detector import ExemplarDetector
from eesvm.detector.box_regression import BoxRegressor
from eesvm.detector.consensus import classes_with_moved_boxes, with_consensus
from eesvm.detector.model import Ensemble
from eesvm.images import read_image, read_index_image
from eesvm.images.masks import rle_to_mask
from eesvm.metrics.detection_files import read_detections, write_csv_detections
from eesvm.report.transfer_pictures import grid, panel
from eesvm.structures import Detections, ExemplarAnnotation, ImageRecord, Instance
from eesvm.transfer import annotate, transfer, transfer_consensus
from eesvm.transfer.annotations import annotate_all
from eesvm.transfer.detections import (
    RANDOM,
    WINNER,
    ImageDetections,
    choose_detections,
    hand_on,
    measure_transfer,
    pixels_of,
    vote_weights,
    why_nothing_compared,
)
from eesvm.transfer.files import coco_names, index_image, write_coco_transfer
from eesvm.transfer.refinement import mean_masks
from helpers.detector_scenes import CLASSES, scenes

TRAIN = [
    "--windows", "grid", "--max-windows", "60", "--descriptor", "hog", "--set", "descriptor.n_components=none", "--set", "descriptor.kernel_map=none",
    "--set", "calibration.method=greedy", "--set", "detection.box_regression=false", "--jobs", "1", "--no-cache", "--quiet",
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A dataset, a model of it, and what the model detects in the test images, all made by the verbs."""
    folder = tmp_path_factory.mktemp("transfer")
    write_coco(make_scenes(12, 6, classes=CLASSES), folder / "data")
    assert main(["train", str(folder / "data"), "--split", "train", "-o", str(folder / "model"), *TRAIN]) == 0
    found = ["detect", str(folder / "model"), str(folder / "data"), "--split", "test", "--no-cache", "--quiet"]
    assert main([*found, "-o", str(folder / "found"), "--format", "csv,coco,voc", "--max-detections", "6"]) == 0
    return folder


@pytest.fixture(scope="module")
def detector(place):
    return ExemplarDetector.load(place / "model")


@pytest.fixture(scope="module")
def near(place, detector):
    """Detections close to the objects, each won by some exemplar of its class."""
    rng = np.random.default_rng(0)
    own = {name: [k for k, e in enumerate(detector.exemplars_) if e.class_name == name] for name in CLASSES}
    entries = []
    for record in open_dataset(place / "data", split="test"):
        boxes = np.array([i.box for i in record.instances])
        boxes = clip(boxes + rng.normal(0, 1.5, boxes.shape), record.width, record.height)
        names = np.array([i.class_name for i in record.instances])
        winners = np.array([rng.choice(own[name]) for name in names])
        entries.append(Detections(record.image_id, boxes, -np.sort(-rng.uniform(0.1, 1, len(names))), names, winners))
    write_csv_detections(place / "near.csv", entries)
    return entries


def run(place, out, *arguments, detections="near.csv", status=0):
    names = [str(place / "model"), str(place / detections), str(place / "data"), "--split", "test", "-o", str(out)]
    assert main(["transfer", *names, *map(str, arguments)]) == status


def fails(capsys, *arguments, status=1):
    """The one line of the complaint."""
    capsys.readouterr()
    assert main(["transfer", *map(str, arguments)]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("eesvm: error: ")
    assert err.count("\n") == 1
    return err.removeprefix("eesvm: error: ").rstrip("\n")


def test_from_training_to_transfer(capsys, tmp_path, place, detector):
    out = tmp_path / "out"
    rest = ("--masks", "--voc", "--pictures", 3, "--no-quality", "--no-refine")
    run(place, out, *rest, detections="found/detections.csv")
    text = capsys.readouterr().out
    found = read_detections(place / "found" / "detections.csv")
    n = sum(map(len, found))
    assert f"detections      {n} of {n}\n" in text
    assert f"with mask       {n}\n" in text
    assert text.endswith(
        f"\nwritten to {out}: annotations.json, contact_sheet.png, masks/, pictures/, voc/\n"
        f"look at {out / 'contact_sheet.png'} first\n"
    )
    document = json.loads((out / "annotations.json").read_text())
    ids = {image["eesvm_id"]: image["id"] for image in document["images"]}
    assert [entry["id"] for entry in document["annotations"]] == list(range(1, n + 1))
    entries = iter(document["annotations"])
    for one in found:
        for k, box in enumerate(one.boxes):
            entry, exemplar = next(entries), detector.exemplars_[one.exemplars[k]]
            handed = transfer(exemplar, box, (320, 240))
            assert entry["image_id"] == ids[one.image_id]
            assert (rle_to_mask(entry["segmentation"]) == handed.whole_mask()).all()
            assert entry["area"] == handed.mask.sum()
            assert entry["bbox"] == [box[0], box[1], box[2] - box[0], box[3] - box[1]]
            assert entry["score"] == one.scores[k]
            assert entry["exemplar"] == {
                "number": one.exemplars[k],
                "image_id": exemplar.image_id,
                "index": exemplar.index,
                "class": one.class_names[k],
                "annotation_id": exemplar.metadata["annotation_id"],
            }
            assert [part["name"] for part in entry["parts"]] == [part.name for part in handed.parts]
            assert entry["attributes"]["digit"] == exemplar.metadata["digit"]
            assert {"pose", "keypoints", "votes", "annotation_id"}.isdisjoint(entry)
        masks = read_index_image(out / "masks" / f"{one.image_id}.png")
        best = transfer(detector.exemplars_[one.exemplars[0]], one.boxes[0], (320, 240)).whole_mask()
        assert ((masks == 1) == best).all()
        xml = (out / "voc" / f"{one.image_id}.xml").read_text()
        assert xml.count("<object>") == len(one)
        assert f"<index>{detector.exemplars_[one.exemplars[0]].index}</index>" in xml
    assert {path.name for path in (out / "pictures").iterdir()} == {
        f"{k:04d}{end}.png" for k in (1, 2, 3) for end in ("", "_panel")
    }
    assert read_image(out / "pictures" / "0001.png").shape[0] == 320
    assert read_image(out / "contact_sheet.png").shape[0] > 176
    # COCO results say the same, and the categories and images have the numbers of the dataset.
    run(place, tmp_path / "json", "--pictures", 0, "--quiet", "--no-quality", detections="found/detections.json")
    assert capsys.readouterr().out == ""
    other = json.loads((tmp_path / "json" / "annotations.json").read_text())
    assert other["images"] == document["images"]
    data = json.loads((place / "data" / "instances.json").read_text())
    assert {each["name"]: each["id"] for each in data["categories"]} == {
        each["name"]: each["id"] for each in document["categories"]
    }
    for mine, theirs in zip(document["annotations"], other["annotations"], strict=True):
        assert mine["exemplar"] == theirs["exemplar"]
        np.testing.assert_allclose(mine["bbox"], theirs["bbox"], atol=1e-9)


def test_coco_tools_and_our_reader_load_it(capsys, tmp_path, place, near):
    run(place, tmp_path / "out", "--quiet", "--no-quality", "--pictures", 0)
    path = tmp_path / "out" / "annotations.json"
    n = sum(map(len, near))
    again = open_dataset(path, "coco", images=place / "data" / "images")
    assert not again.problems
    assert sum(1 for _ in again.instances()) == n
    first = next(iter(again.instances()))
    assert [part.name for part in first.parts] == ["upper", "lower"]
    assert first.metadata["score"] == near[0].scores[0]
    assert "digit" in first.metadata
    for module in ("pycocotools.coco", "faster_coco_eval"):
        coco = pytest.importorskip(module).COCO(str(path))
        capsys.readouterr()
        assert len(coco.getAnnIds()) == n
        (entry,) = coco.loadAnns([1])
        assert (coco.annToMask(entry).astype(bool) == first.mask()).all()


@pytest.mark.long
def test_quality_where_the_truth_is_known(capsys, tmp_path, place, detector, near):
    run(place, tmp_path / "out", "--pictures", 0, "--top", 12)
    text = capsys.readouterr().out
    assert "annotations beside the truth\n" in text
    assert "Per cent, with 95 % intervals over images.\n" in text
    with open(tmp_path / "out" / "quality.csv", newline="") as handle:
        rows = {(row["choice"], row["measure"]): row for row in csv.DictReader(handle)}
    assert {choice for choice, _ in rows} == {WINNER, f"{WINNER}, refined", RANDOM, "whole box as mask"}
    assert int(rows[WINNER, "mask IoU"]["n_detections"]) == 12
    assert 0 < float(rows[WINNER, "mask IoU"]["mean"]) < 1
    assert (tmp_path / "out" / "quality.md").read_text().startswith("| choice | exemplars used | mask IoU (n = 12) |")
    test = open_dataset(place / "data", split="test")
    chosen = choose_detections(detector.exemplars_, near, test, top=12)
    quality = measure_transfer(detector.exemplars_, chosen, refined=True)
    for name in (WINNER, f"{WINNER}, refined"):
        assert float(rows[name, "mask IoU"]["mean"]) == quality[name, "mask IoU"].mean
    assert quality[f"{WINNER}, refined", "part IoU"].mean == quality[WINNER, "part IoU"].mean
    assert f"{WINNER}, refined" not in measure_transfer(detector.exemplars_, chosen).choices
    # Labels by name; nothing to compare without the truth.
    labelled = measure_transfer(detector.exemplars_, chosen, labels=["digit"], n_resamples=5)
    assert labelled[WINNER, "digit"].mean == 1
    bare = [replace(one, record=replace(one.record, instances=())) for one in chosen]
    assert measure_transfer(detector.exemplars_, bare) is None
    empty = [Instance(i.class_name, i.box, i.image_id, i.index) for i in chosen[0].record.instances]
    bare = [replace(chosen[0], record=replace(chosen[0].record, instances=tuple(empty)))]
    assert measure_transfer(detector.exemplars_, bare) is None


def test_a_mask_of_the_truth_that_cannot_be_read_is_a_problem(place, detector, near):
    def broken():
        raise InputError("it is broken")

    test = open_dataset(place / "data", split="test")
    chosen = choose_detections(detector.exemplars_, near[:2], test)
    spoiled = replace(chosen[0].record.instances[0], mask=broken, void=broken)
    record = replace(chosen[0].record, instances=(spoiled, *chosen[0].record.instances[1:]))
    problems = []
    quality = measure_transfer(
        detector.exemplars_, [replace(chosen[0], record=record), chosen[1]], problems=problems, n_resamples=5
    )
    n = sum(map(len, near[:2]))
    assert quality[WINNER, "mask IoU"].n_detections == n - 1
    assert quality[WINNER, "part IoU"].n_detections == n
    assert [problem.reason for problem in problems] == ["it is broken"]


def test_masks_follow_the_photograph(capsys, tmp_path, place, detector, near):
    run(place, tmp_path / "out", "--pictures", 1, "--no-quality")
    test = open_dataset(place / "data", split="test")
    chosen = choose_detections(detector.exemplars_, near, test)
    entries = iter(json.loads((tmp_path / "out" / "annotations.json").read_text())["annotations"])
    n_refined, means = 0, mean_masks(detector.exemplars_)
    for image in chosen:
        plain, refined = (hand_on(detector.exemplars_, image, p, means) for p in (None, image.record.read()))
        for before, after in zip(plain, refined, strict=True):
            assert (rle_to_mask(next(entries)["segmentation"]) == after.whole_mask()).all()
            n_refined += after.is_refined and (before.whole_mask() != after.whole_mask()).any()
    assert n_refined > 0
    # An image that is gone costs the refinement, not the annotation.
    missing = replace(chosen[0].record, read=partial(read_image, str(tmp_path / "missing.png")))
    problems = []
    assert pixels_of(missing, problems) is None
    assert [problem.kind for problem in problems] == ["image"]


@pytest.mark.long
def test_consensus(capsys, tmp_path, place, detector):
    run(place, tmp_path / "out", "--consensus", 3, "--pictures", 1, "--no-refine", detections="found/detections.csv")
    text = capsys.readouterr().out
    assert "is not the winner in the file" not in text
    test = open_dataset(place / "data", split="test")
    found = read_detections(place / "found" / "detections.csv")
    chosen = with_consensus(choose_detections(detector.exemplars_, found, test), detector, 3)
    entries = iter(json.loads((tmp_path / "out" / "annotations.json").read_text())["annotations"])
    options = detector.checked_options()
    ensemble = Ensemble(detector.models_, options.calibration.calibrator, options)
    for image, one in zip(chosen, found, strict=True):
        descriptors = detector.descriptor_.describe(image.record.read(), one.boxes)
        for said in ensemble.scores(descriptors, one.boxes):
            own = np.flatnonzero(one.class_names == said.class_name)
            assert [image.voters[k][0] for k in own] == said.winners[own].tolist()
            if options.detection.pooling == 1:
                np.testing.assert_allclose([image.scores[k][0] for k in own], said.scores[own])
        assert [voters[0] for voters in image.voters] == one.exemplars.tolist()
        for k, handed in enumerate(hand_on(detector.exemplars_, image)):
            voters = [detector.exemplars_[j] for j in image.voters[k]]
            assert {voter.class_name for voter in voters} == {one.class_names[k]}
            assert list(image.scores[k]) == sorted(image.scores[k], reverse=True)
            mine = transfer_consensus(voters, vote_weights(image.scores[k]), one.boxes[k], (320, 240))
            assert (mine.mask == handed.mask).all()
            entry = next(entries)
            assert (rle_to_mask(entry["segmentation"]) == mine.whole_mask()).all()
            assert [vote["number"] for vote in entry["votes"]] == list(image.voters[k])
            assert [vote["weight"] for vote in entry["votes"]] == list(image.weights[k])
            assert entry["agreement"]["mask"] == mine.agreement.mask
    # Winners of another calibrator are noticed, and calibrators that know no best exemplar refused.
    other = [replace(one, exemplars=np.array([v[-1] for v in image.voters])) for image, one in zip(chosen, found, strict=True)]  # fmt: skip
    write_csv_detections(place / "other.csv", other)
    run(place, tmp_path / "two", "--consensus", 2, "--pictures", 0, "--no-quality", "--top", 5, detections="other.csv")
    assert "windows is not the winner in the file: " in capsys.readouterr().out
    run(place, tmp_path / "three", "--consensus", 2, "--pictures", 0, "--top", 1, detections="other.csv")
    assert "the best exemplar of 1 of 1 window is not the winner in the file: " in capsys.readouterr().out
    names = [place / "model", place / "other.csv", place / "data", "-o", tmp_path / "x", "--consensus", 2]
    assert fails(capsys, *names, "--calibrator", "single-svm") == (
        "the calibrator single-svm has no exemplars: choose another one"
    )
    assert fails(capsys, *names, "--calibrator", "cooccurrence").startswith(
        "the calibrator cooccurrence scores a window by what fires around it"
    )
    assert not (tmp_path / "x").exists()


@pytest.fixture
def texts(monkeypatch):
    """The texts of the panels, in the order in which they are drawn, and at last those of the sheet."""
    kept = []
    real_panel, real_grid = panel, grid

    def keep_panel(*arguments, captions):
        kept.append(tuple(captions))
        return real_panel(*arguments, captions=captions)

    def keep_grid(pictures, columns, height, captions, title, **others):
        kept.append((title, *captions))
        return real_grid(pictures, columns, height, captions, title, **others)

    monkeypatch.setattr("eesvm.cli.transfer.panel", keep_panel)
    monkeypatch.setattr("eesvm.cli.transfer.grid", keep_grid)
    return kept


@pytest.mark.long
def test_what_stands_below_the_pictures(capsys, tmp_path, place, detector, near, texts):
    scores = [1.0, 0.99999, 0.9996, 0.5631][: len(near[0])]
    assert len(scores) > 2
    one = replace(near[0][: len(scores)], scores=np.array(scores))
    write_csv_detections(tmp_path / "one.csv", [one])
    run(place, tmp_path / "out", "--no-quality", detections=tmp_path / "one.csv")
    assert "pictures lay" not in capsys.readouterr().out
    *panels, (title, *captions) = texts
    shown = ["1", ">0.9999", "0.9996", "0.563"]
    assert title == (
        "Detections in green, what they inherit in yellow; beside each the exemplar that won it. Numbered as in pictures/."
    )
    for k, name in enumerate(one.class_names):
        winner = detector.exemplars_[one.exemplars[k]]
        origin = f"#{one.exemplars[k]} {winner.image_id}, object {winner.index + 1}"
        assert panels[k] == (f"test_0000\n{name} {shown[k]}", f"winning exemplar\n{origin}", "transferred")
        assert captions[k] == f"{k + 1}: {name} {shown[k]}\n{origin}"


@pytest.mark.long
def test_pictures_of_a_vote_say_that_they_show_the_winner(capsys, tmp_path, place, detector, texts):
    test = open_dataset(place / "data", split="test")
    found = read_detections(place / "found" / "detections.csv")
    chosen = with_consensus(choose_detections(detector.exemplars_, found, test), detector, 3)
    arguments = ["--consensus", 2, "--pictures", 3, "--no-quality"]
    run(place, tmp_path / "a", *arguments, detections="found/detections.csv")
    said = "pictures lay the winning exemplars over detections; outlined, and in pictures/*_panel.png, is the outcome of votes"
    assert f"note: the {said}\n" in capsys.readouterr().out
    *panels, (title, *_) = texts
    assert title.endswith("\nWhat they inherit is by vote; beside them is the winner alone.")
    assert all(re.fullmatch(r"vote of 2(, 1 silent)?", third) for _, _, third in panels)
    # Winners that are not among the two best.
    texts.clear()
    other = [replace(one, exemplars=np.array([v[2] for v in image.voters])) for image, one in zip(chosen, found, strict=True)]  # fmt: skip
    write_csv_detections(tmp_path / "other.csv", other)
    run(place, tmp_path / "b", *arguments, detections=tmp_path / "other.csv")
    *panels, _ = texts
    assert len(panels) == 3
    assert all(re.fullmatch(r"vote of 2(, 1 silent)?\nwithout the winner", third) for _, _, third in panels)


@pytest.mark.parametrize(
    ("winner", "scores", "text"),
    [
        (0, (0.9, 0.5, 0.1), "vote of 3"),
        (1, (0.9, 0.5, -0.1), "vote of 3, 1 silent"),
        (2, (0.9, 0.5, -0.1), "vote of 3, 1 silent\nwithout the winner"),
        (1, (-0.2, -0.5, -1), "vote of 3, 2 silent\nwithout the winner"),
        (3, (0.9, 0.5, 0.1), "vote of 3\nwithout the winner"),
    ],
)
def test_who_is_silent_is_no_voter(place, detector, near, winner, scores, text):
    one = replace(near[0][:1], class_names=np.array([detector.exemplars_[0].class_name]), exemplars=np.array([winner]))
    image = ImageDetections(open_dataset(place / "data", split="test")[0], one, ((0, 1, 2),), (scores,))
    (handed,) = hand_on(detector.exemplars_, image)
    assert handed_text(image, 0, handed) == text


@pytest.mark.long
def test_moved_boxes_are_not_the_windows_that_were_won(capsys, tmp_path, place):
    """A best exemplar that is not the winner is no sign of another calibrator then."""
    model, moving = tmp_path / "model", ExemplarDetector.load(place / "model")
    assert classes_with_moved_boxes(moving) == set()
    moving.options = moving.checked_options().changed({"detection.box_regression": True})
    assert classes_with_moved_boxes(moving) == set()  # it has not learned to
    for one in moving.models_:
        weights = np.zeros((one.exemplars.coef_.shape[1], 4), dtype=np.float32)
        one.regressor = BoxRegressor(weights, np.array([0.1, -0.1, 0.2, 0.1], dtype=np.float32), 1, 0.5)
    assert classes_with_moved_boxes(moving) == set(CLASSES)
    moving.save(model)
    data = [str(place / "data"), "--split", "test"]
    assert (
        main(["detect", str(model), *data, "--no-cache", "--max-detections", "6", "-o", str(tmp_path / "a.csv")]) == 0
    )
    capsys.readouterr()
    where = [str(model), str(tmp_path / "a.csv"), *data, "-o", str(tmp_path / "out")]
    assert main(["transfer", *where, "--consensus", "3", "--pictures", "1", "--no-quality"]) == 0
    assert "is not the winner in the file" not in capsys.readouterr().out
    entries = json.loads((tmp_path / "out" / "annotations.json").read_text())["annotations"]
    found = read_detections(tmp_path / "a.csv")
    assert len(entries) == sum(map(len, found)) > 0
    plain = read_detections(place / "found" / "detections.csv")
    assert not np.isclose(found[0].boxes[0], plain[0].boxes[0]).all()


def test_who_rejects_a_window_has_no_vote():
    assert vote_weights([2.0, 0.5, 0.0, -1.0, -np.inf]) == (2.0, 0.5, 0.0, 0.0, 0.0)
    assert vote_weights([-0.5, -0.6]) == (1.0, 0.0)
    assert vote_weights([0.0]) == (1.0,)


def exemplar(**values):
    mask = np.ones((20, 10), dtype=bool)
    mask[:5, :5] = False
    points = {"nose": [7.0, 6.0, 2], "ear": [6.0, 7.0]}
    metadata = {"subcategory": "pug", "keypoints": points, "colour": np.int64(3)}
    return replace(ExemplarAnnotation("dog", "a", 1, np.array([5.0, 5, 15, 25]), mask, metadata=metadata), **values)


def one_image(n=1, image_id="x/1"):
    boxes = np.array([[2.0, 3, 12, 23]] * n) + np.arange(n)[:, None]
    detections = Detections(image_id, boxes, np.linspace(1, 0.5, n), np.array(["dog"] * n), np.zeros(n, dtype=int))
    return ImageRecord(image_id, lambda: np.zeros((40, 50, 3), dtype=np.uint8), 50, 40), detections


def test_keypoints_subcategory_and_names_in_the_file(tmp_path):
    exemplars = (exemplar(pose="Left"), exemplar(class_name="cat", metadata={}))
    record, found = one_image()
    (chosen,) = choose_detections(exemplars, [found], [record])
    names = coco_names([record], exemplars)
    write_coco_transfer(tmp_path / "a.json", [(chosen, hand_on(exemplars, chosen))], exemplars, names, "x")
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["categories"] == [
        {"id": 1, "name": "dog", "keypoints": ["nose", "ear"]},
        {"id": 2, "name": "cat"},
    ]
    assert document["images"] == [{"id": 1, "file_name": "x/1.png", "width": 50, "height": 40, "eesvm_id": "x/1"}]
    (entry,) = document["annotations"]
    assert (entry["keypoints"], entry["num_keypoints"]) == ([4, 4, 2, 3, 5, 2], 2)
    assert (entry["pose"], entry["subcategory"], entry["attributes"]) == ("Left", "pug", {"colour": 3})
    # Numbers of a COCO file are kept, and classes that it does not have come after its own.
    ids = {"images": [{"id": 7, "file_name": "b.png", "eesvm_id": "x/1"}], "categories": [{"id": 4, "name": "cat"}]}
    names = coco_names([record], exemplars, ids)
    assert (dict(names.images), dict(names.categories)) == ({"x/1": 7}, {"cat": 4, "dog": 5})
    assert dict(coco_names([replace(record, image_id="y")], exemplars, ids).images) == {"y": 1}


def test_more_masks_than_an_image_can_number():
    exemplars = (exemplar(),)
    record, found = one_image()
    many = Detections(
        "x/1", np.repeat(found.boxes, 300, axis=0), np.ones(300), np.repeat(found.class_names, 300), np.zeros(300, int)
    )
    (chosen,) = choose_detections(exemplars, [many], [record])
    handed = hand_on(exemplars, chosen)
    picture = np.asarray(index_image(record, handed))
    assert ((picture == 1) == handed[0].whole_mask()).all()
    assert picture.max() == 1
    assert index_image(record, hand_on((exemplar(mask=None),), chosen)) is None


def test_detections_that_cannot_be_used_are_left_out():
    exemplars = (exemplar(),)
    record, found = one_image(4)
    found.exemplars[1] = -1
    found.boxes[2] = (60, 5, 70, 9)
    problems = []
    elsewhere = replace(found, image_id="elsewhere")
    (chosen,) = choose_detections(exemplars, [found, elsewhere], [record], problems=problems)
    assert chosen.detections.scores.tolist() == [found.scores[0], found.scores[3]]
    assert [str(problem) for problem in problems] == [
        "x/1: a detection of dog is left out: `box` must overlap the image of 50 x 40 pixels, got 60, 5, 70, 9",
        "elsewhere: the image is not among those given",
    ]
    (best,) = choose_detections(exemplars, [found], [record], top=1)
    assert best.detections.scores.tolist() == [1.0]
    assert choose_detections(exemplars, [found], [record], min_score=2) == []


def test_errors_are_one_sentence(capsys, tmp_path, place, near):
    model, data, out = place / "model", place / "data", tmp_path / "out"
    tail = [data, "--split", "test", "-o", out]
    assert "does not say which exemplars won: VOC text files" in fails(capsys, model, place / "found" / "voc", *tail)
    (tmp_path / "empty.csv").write_text("image_id,class,score,x1,y1,x2,y2,exemplar\n")
    assert fails(capsys, model, tmp_path / "empty.csv", *tail) == f"{tmp_path / 'empty.csv'} holds no detections"
    write_csv_detections(tmp_path / "far.csv", [replace(near[0], exemplars=near[0].exemplars + 1000)])
    assert fails(capsys, model, tmp_path / "far.csv", *tail).startswith(
        "the detections are of another model: a detection in test_0000 names the exemplar 1"
    )
    names = np.where(near[0].class_names == CLASSES[0], CLASSES[1], CLASSES[0])
    write_csv_detections(tmp_path / "swapped.csv", [replace(near[0], class_names=names)])
    assert ", which is a " in fails(capsys, model, tmp_path / "swapped.csv", *tail)
    write_csv_detections(tmp_path / "away.csv", [replace(near[0], image_id="away")])
    assert fails(capsys, model, tmp_path / "away.csv", *tail) == (
        f"none of the images of {tmp_path / 'away.csv'} is among {data}: there is no away, but test_0000"
    )
    assert fails(capsys, model, place / "near.csv", *tail, "--score", 9).startswith(
        "no detection is left: the best scores 0."
    )
    assert fails(capsys, tmp_path / "nowhere", place / "near.csv", *tail) == (
        f"{tmp_path / 'nowhere'} is not a model: there is no such folder"
    )
    assert "does not exist" in fails(capsys, model, tmp_path / "none.csv", *tail)
    assert fails(capsys, model, place / "near.csv", *tail, "--calibrator", "joint", status=2) == (
        "--calibrator is for --consensus alone: winners are read from the file of detections"
    )
    (tmp_path / "file").write_text("")
    assert fails(capsys, model, place / "near.csv", data, "-o", tmp_path / "file").endswith("is not a folder")
    assert not out.exists()
    for arguments in (["--top", "0"], ["--consensus", "1"], ["--pictures", "501"], ["--score", "x"]):
        with pytest.raises(SystemExit) as caught:
            main(["transfer", "model", "d.csv", "data", "-o", "out", *arguments])
        assert caught.value.code == 2


def test_an_interrupted_run_leaves_nothing(capsys, tmp_path, place, near, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("eesvm.cli.transfer.hand_on", interrupt)
    run(place, tmp_path / "out", status=130)
    assert capsys.readouterr().err.splitlines()[-1] == "eesvm: error: interrupted, nothing was written"
    assert list(tmp_path.iterdir()) == []


def test_unreadable_images_cost_their_pictures_alone(capsys, tmp_path, place, detector, near):
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("test_0000", "test_0001"):
        (folder / f"{name}.png").write_bytes((place / "data" / "images" / f"{name}.png").read_bytes())
    broken = folder / "test_0001.png"
    broken.write_bytes(broken.read_bytes()[:3000])
    arguments = [place / "model", place / "near.csv", folder, "-o", tmp_path / "out", "--consensus", "2"]
    assert main(["transfer", *map(str, arguments)]) == 0
    text = capsys.readouterr().out
    assert "note: no object is annotated in these images, so there is nothing to compare with\n" in text
    assert text.count(f"  {broken}: ") >= 1
    assert "test_0005: the image is not among those given" in text
    document = json.loads((tmp_path / "out" / "annotations.json").read_text())
    assert [image["eesvm_id"] for image in document["images"]] == ["test_0000", "test_0001"]
    assert ["votes" in entry for entry in document["annotations"]] == [True] * len(near[0]) + [False] * len(near[1])


def test_a_model_that_has_little_to_hand_on(capsys, tmp_path, place, near):
    bare = ExemplarDetector.load(place / "model")
    for model in bare.models_:
        model.annotations = tuple(
            ExemplarAnnotation(one.class_name, one.image_id, one.index, one.box) for one in model.annotations
        )
    bare.save(tmp_path / "bare")
    arguments = [tmp_path / "bare", place / "near.csv", place / "data", "--top", 2, "--masks"]
    assert main(["transfer", *map(str, arguments), "-o", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert "note: the exemplars of the model have boxes alone: only their identity was transferred\n" in text
    assert "whole box as mask" in text
    entries = json.loads((tmp_path / "out" / "annotations.json").read_text())["annotations"]
    assert {"segmentation", "parts", "attributes"}.isdisjoint(entries[0])
    assert not (tmp_path / "out" / "masks").exists()
    gone = next((tmp_path / "bare").glob("classes/*/annotations.safetensors"))
    gone.unlink()
    assert fails(capsys, *arguments, "-o", tmp_path / "two") == (
        f"{gone}: there is no such file, but model.json lists it"
    )


def test_why_nothing_is_compared(capsys, tmp_path, place, detector, near):
    """No objects, no overlap, and nothing in common are three things, and each is called by its name."""
    bare = [ExemplarAnnotation(one.class_name, one.image_id, one.index, one.box) for one in detector.exemplars_]
    records = [
        replace(record, instances=tuple(replace(i, mask=None, parts=(), pose=None) for i in record.instances))
        for record in open_dataset(place / "data", split="test")
    ]
    chosen = choose_detections(bare, near, records)
    assert measure_transfer(bare, chosen) is None
    n = sum(map(len, near))
    assert why_nothing_compared(chosen) == (
        f"{n} detections overlap an annotated object of the same class, but there is nothing to compare: no mask, part, "
        "pose or label is known of both the exemplars and the objects"
    )
    assert why_nothing_compared(choose_detections(bare, near, records, top=1)).startswith("1 detection overlaps an ")
    moved = [replace(one, boxes=np.array([[0.0, 0, 4, 4]] * len(one))) for one in near]
    assert why_nothing_compared(choose_detections(bare, moved, records)) == (
        "no detection overlaps an annotated object of its class by 0.5, so there is nothing to compare with"
    )
    crowds = [replace(r, instances=tuple(replace(i, is_crowd=True) for i in r.instances)) for r in records]
    for empty in (crowds, [replace(record, instances=()) for record in records]):
        assert why_nothing_compared(choose_detections(bare, near, empty)) == (
            "no object is annotated in these images, so there is nothing to compare with"
        )
    # The command says it, too.
    write_csv_detections(tmp_path / "moved.csv", moved)
    run(place, tmp_path / "out", "--pictures", 0, detections=tmp_path / "moved.csv")
    assert "note: no detection overlaps an annotated object of its class by 0.5, so there" in capsys.readouterr().out


def test_an_id_in_the_file_of_the_exemplar_is_nothing_that_is_handed_on(capsys, tmp_path, place, near, texts):
    bare = ExemplarDetector.load(place / "model")
    for model in bare.models_:
        model.annotations = tuple(
            ExemplarAnnotation(one.class_name, one.image_id, one.index, one.box, metadata={"annotation_id": k, **own})
            for k, one in enumerate(model.annotations)
            for own in [{"digit": 4} if one.class_name == CLASSES[0] else {}]
        )
    bare.save(tmp_path / "bare")
    found = [one.of_class(name)[:1] for name in CLASSES[1::-1] for one in near]
    rest = [str(place / "data"), "--split", "test", "--no-quality", "--top", "1"]
    for k, name in enumerate(CLASSES[1::-1]):
        one = next(each for each in found if len(each) and each.class_names[0] == name)
        write_csv_detections(tmp_path / f"{k}.csv", [one])
        assert main(["transfer", str(tmp_path / "bare"), str(tmp_path / f"{k}.csv"), *rest, "-o", str(tmp_path / f"{k}")]) == 0  # fmt: skip
        text = capsys.readouterr().out
        assert ("the exemplars of the model have boxes alone" in text) == (k == 0)
        assert ("with metadata" in text) == (k == 1)
        assert texts[2 * k][2] == ("transferred\nnothing but the box", "transferred\nlabels alone")[k]


@pytest.mark.long
def test_notes_about_a_single_thing(capsys, tmp_path, place, detector, near):
    winner = detector.exemplars_[0]
    own = Detections(
        winner.image_id, np.array([winner.box] * 2), np.array([0.9, 0.8]), np.array([winner.class_name] * 2),
        np.array([0, -1]),
    )  # fmt: skip
    write_csv_detections(tmp_path / "own.csv", [own])
    names = [place / "model", tmp_path / "own.csv", place / "data", "--pictures", 0, "-o", tmp_path / "own"]
    assert main(["transfer", *map(str, names)]) == 0
    text = capsys.readouterr().out
    assert "note: 1 detection names no exemplar and is left out\n" in text
    assert "note: 1 detection lies in the image of its own exemplar, which flatters the comparison\n" in text
    write_csv_detections(tmp_path / "many.csv", [near[0][np.zeros(255, dtype=int)]])
    run(place, tmp_path / "many", "--masks", "--pictures", 0, "--no-quality", detections=tmp_path / "many.csv")
    assert "note: 1 annotation is not in the masks: an image numbers at most 254\n" in capsys.readouterr().out


def test_help_has_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["transfer", "--help"])
    assert "eesvm transfer model detections.csv scenes --split test -o transferred" in capsys.readouterr().out


# --- annotations of many instances, as training keeps them


def test_annotations_of_a_dataset_are_those_of_each_instance():
    dataset = scenes("train")
    records = {record.image_id: record for record in dataset}
    instances = tuple(dataset.instances())
    for instance, kept in zip(instances, annotate_all(instances, records), strict=True):
        mine = annotate(instance, records[instance.image_id].read())
        assert (mine.mask == kept.mask).all()
        assert (mine.picture == kept.picture).all()
        assert (mine.parts, mine.index, mine.box.tolist()) == (kept.parts, kept.index, kept.box.tolist())
        assert kept.metadata["full_box"] == list(mine.metadata["full_box"])


def test_what_cannot_be_read_is_left_out_of_annotations():
    def broken():
        raise InputError("it is broken")

    box = np.array([1.0, 1, 600, 300])
    record = ImageRecord("a", lambda: np.zeros((400, 700, 3), dtype=np.uint8), 700, 400, path="a.png")
    unread = ImageRecord("b", broken, 700, 400, path="b.png")
    mask = np.ones((400, 700), dtype=bool)
    instances = [
        Instance("dog", box, "a", 0, mask=lambda: mask, metadata={"x": np.float32(1)}),
        Instance("dog", box, "a", 1, mask=broken, source="a.xml:4"),
        Instance("dog", box, "a", 2, mask=lambda: mask[:10]),
        Instance("dog", np.array([800.0, 1, 900, 9]), "a", 3),
        Instance("dog", box, "b", 0, mask=lambda: mask),
    ]
    problems = []
    found = annotate_all(instances, {"a": record, "b": unread}, problems)
    assert [one.mask is not None for one in found] == [True, False, False, False, True]
    assert [None if one.picture is None else one.picture.shape for one in found] == [
        (128, 256, 3), (128, 256, 3), (128, 256, 3), None, None,
    ]  # fmt: skip
    assert found[0].mask.shape == (299, 599)
    assert found[0].metadata == {"x": 1.0}
    assert [(problem.path, problem.kind) for problem in problems] == [
        ("a.xml:4", "mask"), ("a.png", "mask"), ("a.png", "annotation"), ("b.png", "image"),
    ]  # fmt: skip
