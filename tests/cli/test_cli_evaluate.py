"""`eesvm evaluate`: what it prints and writes, and its status."""

import csv
import json
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from eesvm.cli import evaluate, inputs, main
from eesvm.cli.console import Screen
from eesvm.datasets import select, write_coco, write_voc
from eesvm.datasets.scenes import make_scenes
from eesvm.metrics import evaluate_detections
from eesvm.metrics.detection_files import write_coco_results, write_csv_detections, write_voc_detections
from eesvm.metrics.searched_images import Search, read_search, write_search
from eesvm.structures import Detections
from helpers.dataset_files import save_image, save_text


def guesses(dataset, seed=0):
    """Boxes around the objects, more or less, with classes that are mostly right."""
    rng = np.random.default_rng(seed)
    entries = []
    for record in dataset:
        boxes = np.array([i.box for i in record.instances for _ in range(2)]).reshape(-1, 4)
        boxes = boxes + rng.normal(0, 3, boxes.shape)
        names = np.array([i.class_name for i in record.instances for _ in range(2)], dtype="U20")
        wrong = rng.uniform(size=len(names)) < 0.2
        names[wrong] = rng.choice(list(dataset.classes), wrong.sum())
        scores = -np.sort(-rng.uniform(size=len(names)))
        entries.append(Detections(record.image_id, boxes, scores, names, np.full(len(names), 7)))
    return entries


def read_csv(path):
    with open(path, newline="") as handle:
        return list(csv.DictReader(handle))


drawn = cache(make_scenes)


@pytest.fixture(autouse=True)
def _scenes_are_drawn_once(monkeypatch):
    monkeypatch.setattr(inputs, "make_scenes", drawn)


@pytest.fixture(scope="module")
def unseen_half():
    return select(drawn(), split="test")


@pytest.fixture
def detections(tmp_path, unseen_half):
    write_csv_detections(tmp_path / "found.csv", guesses(unseen_half))
    return str(tmp_path / "found.csv")


def fails(capsys, *arguments, status=1):
    """The one line of the complaint."""
    assert main(["evaluate", *map(str, arguments)]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("eesvm: error: ")
    assert err.count("\n") == 1
    return err.removeprefix("eesvm: error: ").rstrip("\n")


def test_scenes_agree_with_the_library(capsys, tmp_path, unseen_half, detections):
    out = tmp_path / "out"
    assert main(["evaluate", detections, "scenes", "--split", "test", "-o", str(out), "--intervals", "50"]) == 0
    text = capsys.readouterr().out
    report = evaluate_detections(unseen_half, guesses(unseen_half), n_resamples=50)
    assert text.startswith(
        "scenes\nPASCAL VOC since 2010: area under the monotone precision-recall curve. IoU 0.5; 60 images"
    )
    assert "95 % interval" in text
    (last,) = (line.split() for line in text.split("errors among")[0].splitlines() if line.startswith("all"))
    assert last[1] == f"{100 * report.mean_average_precision:.1f}"
    assert "errors among the N best-scoring detections of a class with N objects, IoU 0.5\n" in text
    assert text.endswith(
        f"written to {out}: errors.csv, evaluation.md, false_positives.csv, missed_objects.csv, "
        "precision_recall_voc10.png, voc10.csv\n"
    )
    rows = read_csv(out / "voc10.csv")
    assert [row["class"] for row in rows] == [*unseen_half.classes, "all"]
    assert float(rows[-1]["average_precision"]) == report.mean_average_precision
    assert float(rows[-1]["average_precision_low"]) == report.interval.low
    assert (out / "precision_recall_voc10.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "evaluation.md").read_text().startswith(report.to_markdown())
    wrong = read_csv(out / "false_positives.csv")
    assert float(wrong[0]["score"]) >= float(wrong[-1]["score"])
    entries = {entry.image_id: entry for entry in guesses(unseen_half)}
    for row in wrong:
        box = [float(row[name]) for name in ("x1", "y1", "x2", "y2")]
        assert box == entries[row["image_id"]].boxes[int(row["detection"])].tolist()
    total = read_csv(out / "errors.csv")[-1]
    assert len(wrong) == int(total["detections"]) - int(total["hits"])
    assert len(read_csv(out / "missed_objects.csv")) == int(total["missed"])
    # The folder is not replaced unless that is asked for.
    assert "already exists" in fails(capsys, detections, "scenes", "--split", "test", "-o", out)
    assert main(["evaluate", detections, "scenes", "--split", "test", "-o", str(out), "--overwrite", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_all_protocols_and_json(capsys, tmp_path, unseen_half, detections):
    arguments = ["evaluate", detections, "scenes", "--split", "test", "--protocol", "all", "--intervals", "20"]
    assert main([*arguments, "--json", "-o", str(tmp_path / "out")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [report["protocol"] for report in document["reports"]] == ["voc07", "voc10", "ilsvrc", "coco"]
    for report in document["reports"]:
        mine = evaluate_detections(unseen_half, guesses(unseen_half), protocol=report["protocol"])
        assert report["mean_average_precision"] == mine.mean_average_precision
        assert (report["interval"] is None) == (report["protocol"] == "coco")
    assert {row["among"] for row in document["errors"]} == {"top", "all"}
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"voc07.csv", "voc10.csv", "ilsvrc.csv", "coco.csv", "precision_recall_coco.png"} <= names
    assert read_csv(tmp_path / "out" / "coco.csv")[0]["AP75"]
    assert main(arguments) == 0
    assert "AP75, %" in capsys.readouterr().out


def test_every_protocol_without_the_package_of_coco(capsys, monkeypatch, detections):
    monkeypatch.setitem(sys.modules, "faster_coco_eval", None)
    assert main(["evaluate", detections, "scenes", "--split", "test", "--protocol", "all"]) == 0
    text = capsys.readouterr().out
    assert "note: coco is left out: this needs the package faster_coco_eval, which is not installed" in text
    complaint = fails(capsys, detections, "scenes", "--split", "test", "--protocol", "coco")
    assert complaint == "this needs the package faster_coco_eval, which is not installed: pip install 'eesvm[coco]'"


@pytest.mark.long
def test_all_files_and_formats_give_the_same(capsys, tmp_path):
    scenes = make_scenes(6, 0)
    entries = guesses(scenes)
    write_voc(scenes, tmp_path / "voc")
    write_coco(scenes, tmp_path / "coco")
    write_csv_detections(tmp_path / "d.csv", entries)
    write_voc_detections(tmp_path / "d", entries)
    write_coco_results(tmp_path / "d.json", entries, scenes)
    stranger = [
        {key: entry[key] for key in ("image_id", "category_id", "bbox", "score")}
        for entry in json.loads((tmp_path / "d.json").read_text())
    ]
    save_text(tmp_path / "plain.json", json.dumps(stranger))  # numbers only: names come from the annotations
    answers = []
    for name, data in (
        ("d.csv", "voc"), ("d", "voc"), ("d.json", "voc"), ("d.csv", "coco"), ("d.json", "coco"), ("plain.json", "coco"),
        ("plain.json", "coco/instances.json"),
    ):  # fmt: skip
        arguments = ["evaluate", str(tmp_path / name), str(tmp_path / data), "--classes", "three,five", "--json"]
        assert main(arguments) == 0
        (report,) = json.loads(capsys.readouterr().out)["reports"]
        answers.append([each["average_precision"] for each in report["classes"]])
    assert len(answers[0]) == 2
    # `write_voc` writes floats, so only the last bits may differ.
    np.testing.assert_allclose(answers, [answers[0]] * len(answers), atol=1e-12)
    sentence = fails(capsys, tmp_path / "plain.json", tmp_path / "voc")
    assert sentence == (
        f"{tmp_path / 'plain.json'}, entry 1: the name of its category_id {stranger[0]['category_id']} is not known: "
        "the annotation file of the dataset is needed, too"
    )


def test_unknown_classes_are_mentioned(capsys, tmp_path):
    row = "image_id,class,score,x1,y1,x2,y2\ntest_0000,tree,0.5,0,0,10,10\n"
    assert main(["evaluate", str(save_text(tmp_path / "d.csv", row)), "scenes", "--split", "test"]) == 0
    text = capsys.readouterr().out
    assert "Detections of classes that the truth does not have are left out: 1 of tree." in text


def test_the_folder_that_detect_writes(capsys, tmp_path, unseen_half):
    entries, folder = guesses(unseen_half), tmp_path / "found"
    folder.mkdir()
    write_voc_detections(folder / "voc", entries)
    write_coco_results(folder / "detections.json", entries, unseen_half)
    write_csv_detections(folder / "detections.csv", entries)
    for name in ("detections.csv", "detections.json", "voc"):
        assert main(["evaluate", str(folder), "scenes", "--split", "test"]) == 0
        note, rest = capsys.readouterr().out.split("\n", 1)
        assert note == f"note: of the folder {folder}, {folder / name} is read"
        assert main(["evaluate", str(folder / name), "scenes", "--split", "test"]) == 0
        assert capsys.readouterr().out == rest
        (folder / name).rename(tmp_path / name)
    sentence = "looked for comp3_det_test_CLASS.txt, detections.csv, detections.json, voc"
    assert fails(capsys, folder, "scenes") == f"{folder} has no files of detections: {sentence}"


def test_numbers_in_a_folder_get_their_names_from_the_annotations(capsys, tmp_path):
    scenes = make_scenes(4, 0)
    write_coco(scenes, tmp_path / "coco")
    (tmp_path / "found").mkdir()
    path = tmp_path / "found" / "detections.json"
    write_coco_results(path, guesses(scenes), scenes)
    keys = ("image_id", "category_id", "bbox", "score")
    save_text(path, json.dumps([{key: entry[key] for key in keys} for entry in json.loads(path.read_text())]))
    answers = []
    for place in (path, path.parent):
        assert main(["evaluate", str(place), str(tmp_path / "coco"), "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]


def test_a_forgotten_split_is_mentioned(capsys, tmp_path, detections):
    def notes(*arguments):
        assert main(["evaluate", *arguments]) == 0
        return [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]

    n = len(drawn())
    (note,) = notes(detections, "scenes")
    assert note == (
        f"note: {n - 60} of {n} images have no detections, and their objects count as missed: all detections are in the "
        "split test; if only that was searched, add --split test"
    )
    assert notes(detections, "scenes", "--split", "test") == []
    assert notes(detections, "scenes", "--quiet") == []
    some = [*guesses(drawn())[:3], *guesses(drawn())[-3:]]  # of both splits
    write_csv_detections(tmp_path / "few.csv", some)
    (note,) = notes(str(tmp_path / "few.csv"), "scenes")
    assert note == (
        f"note: {n - 6} of {n} images have no detections, and their objects count as missed: if only one split "
        "was searched, choose it by --split"
    )
    write_csv_detections(tmp_path / "most.csv", guesses(drawn())[1:])
    assert notes(str(tmp_path / "most.csv"), "scenes") == []


def test_half_of_a_list_of_one_class_is_no_split_to_choose(capsys):
    scenes = make_scenes(4, 0)
    ids = [record.image_id for record in scenes]
    splits = {"train": ids, "three_part": ids[:3], "part": ids[:3], "part=1": ids[:2]}
    dataset = replace(scenes, splits={name: tuple(members) for name, members in splits.items()})
    screen = Screen()
    evaluate._note_empty_images(dataset, guesses(scenes)[:2], screen)
    assert capsys.readouterr().out.endswith(
        "all detections are in the split part; if only that was searched, add --split part\n"
    )
    evaluate._note_empty_images(replace(dataset, splits={}), guesses(scenes)[:1], screen)
    assert capsys.readouterr().out == ""
    search = Search(frozenset(ids[:1]), frozenset(ids[1:2]))
    assert evaluate._Unseen.of(dataset, search, scenes.classes).home == "part"
    assert evaluate._home(dataset, set(ids)) is None


def test_images_that_were_never_searched_are_noted(capsys, tmp_path, unseen_half):
    found, n = tmp_path / "found.csv", len(unseen_half)
    for n_searched, is_said in ((6, True), (n, False)):
        write_csv_detections(found, guesses(unseen_half)[:n_searched])
        assert main(["evaluate", str(found), "scenes", "--split", "test"]) == 0
        note = (
            f"note: {n - 6} of {n} images with objects have no detections at all in {found}, and their objects count as "
            "missed: if they were not searched, average precision says little\n"
        )
        assert (note in capsys.readouterr().out) == is_said


def test_what_was_searched_is_known_of_a_folder_of_detect(capsys, tmp_path, unseen_half):
    found = guesses(unseen_half)
    write_csv_detections(tmp_path / "detections.csv", found[1:])
    write_search(tmp_path / "images.csv", found[1:], {found[0].image_id: "it is broken"})
    search = read_search(tmp_path / "detections.csv")
    assert search.searched == {one.image_id for one in found[1:]}
    assert search.unreadable == {found[0].image_id}
    assert read_search(tmp_path / "others.csv") is None  # it may be of another search
    assert main(["evaluate", str(tmp_path), "scenes"]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")][1:]
    n_objects = sum(len(record.instances) for record in drawn() if record.image_id not in {f.image_id for f in found})
    n = len(unseen_half[0].instances)
    assert notes == [
        f"note: {n} object{'s' * (n > 1)} in 1 image that `eesvm detect` could not read count{'s' * (n == 1)} as missed: "
        "see images.csv beside the detections",
        f"note: {n_objects} objects in {len(drawn()) - len(found)} of {len(drawn())} images that `eesvm detect` was not "
        "given count as missed: if they are not meant, add --split test, the one that was searched",
    ]
    for content in (b"", b"\xff\n", b"image_id,status,detections,problem\na,searched\n"):
        (tmp_path / "images.csv").write_bytes(content)
        assert read_search(tmp_path / "detections.csv") is None


def test_the_note_on_images_never_searched_counts_images_with_judged_objects(capsys, unseen_half):
    few = replace(unseen_half, images=unseen_half[:10])
    name = few[0].instances[0].class_name
    wanted = [record.image_id for record in few if any(i.class_name == name for i in record.instances)]
    others = [found for found in guesses(few) if found.image_id not in wanted]
    evaluate._note_unsearched_images(few, others, [name], "found.csv", Screen())
    assert capsys.readouterr().out.startswith(f"note: {len(wanted)} of {len(wanted)} images with objects have no ")
    evaluate._note_unsearched_images(few, guesses(few), [name], "found.csv", Screen())
    assert capsys.readouterr().out == ""


def test_curves_say_what_they_are(monkeypatch, tmp_path, detections):
    figures = []
    monkeypatch.setattr(evaluate, "save_png", lambda figure, path: figures.append(figure))
    arguments = [detections, "scenes", "--split", "test", "--protocol", "all", "-o", str(tmp_path / "out"), "--quiet"]
    assert main(["evaluate", *arguments]) == 0
    titles = [figure.axes[0].get_title(loc="left") for figure in figures]
    rows = {name: read_csv(tmp_path / "out" / f"{name}.csv") for name in ("voc10", "coco")}
    share = 100 * float(rows["voc10"][-1]["average_precision"])
    assert titles[1] == f"voc10, IoU 0.5: mean average precision {share:.1f}"
    *classes, total = rows["coco"]
    at_half, average = (100 * float(total[name]) for name in ("AP50", "average_precision"))
    assert titles[3] == (
        f"coco: curves at IoU 0.5, mean AP50 {at_half:.1f}\nCOCO AP, the mean over IoU 0.5 to 0.95: {average:.1f}"
    )
    labels = {
        f"{row['class']} (AP50 {100 * float(row['AP50']):.1f}, COCO AP {100 * float(row['average_precision']):.1f})"
        for row in classes
    }
    assert {text.get_text() for text in figures[3].legends[0].get_texts()} == labels


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.csv", "scenes"], "nowhere.csv does not exist"),
        (["{found}", "nowhere"], "nowhere does not exist"),
        (
            ["{found}", "scenes", "--split", "train"],
            "`detections` has the image 'test_0000', which the truth does not have",
        ),
        (["{found}", "scenes", "--split", "val"], "the dataset has no split 'val': it has train, test"),
        (
            ["{found}", "scenes", "--classes", "nine"],
            "`classes` has 'nine', which the truth does not have: it has three, four, five, eight",
        ),
        (
            ["{found}", "scenes", "--protocol", "coco", "--intervals", "9"],
            "--intervals is not for --protocol coco: intervals are made for VOC and ILSVRC",
        ),
    ],
)
def test_errors_are_one_line(arguments, sentence, capsys, detections):
    status = 2 if "--intervals" in arguments else 1  # the call is wrong, or the files are
    assert fails(capsys, *(argument.format(found=detections) for argument in arguments), status=status) == sentence


def test_a_dataset_without_objects(capsys, tmp_path):
    save_image(tmp_path / "photos" / "a.png")
    path = save_text(tmp_path / "d.csv", "image_id,class,score,x1,y1,x2,y2\n")
    sentence = fails(capsys, path, tmp_path / "photos")
    assert sentence.endswith("photos has no object that must be found, so average precision means nothing")


@pytest.mark.parametrize("protocol", ["voc10", "coco", "all"])
def test_images_that_nobody_annotated_are_refused_in_one_line(protocol, capsys, tmp_path):
    save_image(tmp_path / "photos" / "a.png")
    path = save_text(tmp_path / "d.csv", "image_id,class,score,x1,y1,x2,y2\na,dog,0.5,0,0,10,10\n")
    sentence = fails(capsys, path, tmp_path / "photos", "--protocol", protocol)
    assert sentence.endswith("photos has no object that must be found, so average precision means nothing")


def test_images_without_annotation_among_others_are_not_judged(capsys, tmp_path):
    dataset = make_scenes(4, 0)
    write_voc(dataset, tmp_path / "voc")
    found = guesses(dataset)
    write_csv_detections(tmp_path / "found.csv", found[1:])
    arguments = ["evaluate", str(tmp_path / "found.csv"), str(tmp_path / "voc"), "--json"]
    (tmp_path / "voc" / "Annotations" / f"{dataset[0].image_id}.xml").unlink()
    assert main(arguments) == 0
    expected = capsys.readouterr().out
    write_csv_detections(tmp_path / "found.csv", found)
    assert main(arguments) == 0
    assert capsys.readouterr().out == expected
    assert main(arguments[:-1]) == 0
    shown = capsys.readouterr()
    assert "1 image without annotation is not judged" in shown.out + shown.err


def test_a_folder_called_scenes_goes_before_the_embedded_ones(capsys, tmp_path, monkeypatch):
    own = make_scenes(2, 0, classes=["nine"])
    write_coco(own, tmp_path / "scenes")
    write_csv_detections(tmp_path / "d.csv", guesses(own))
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", "d.csv", "scenes", "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["reports"]
    assert (report["images"], [each["class"] for each in report["classes"]]) == (2, ["nine"])


def test_numbers_of_results_are_those_of_the_split(capsys, tmp_path):
    # Both files count from 1: image 1 and category 1 are something else in each.
    for split, name in (("train", "dog"), ("val", "cat")):
        save_image(tmp_path / "set" / "images" / f"{split}.png")
        document = {
            "images": [{"id": 1, "file_name": f"{split}.png", "eesvm_id": split}],
            "categories": [{"id": 1, "name": name}],
            "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [2, 2, 20, 20]}],
        }
        save_text(tmp_path / "set" / "annotations" / f"instances_{split}.json", json.dumps(document))
    results = [{"image_id": 1, "category_id": 1, "bbox": [2, 2, 20, 20], "score": 0.5}]
    path = save_text(tmp_path / "results.json", json.dumps(results))
    for split, name in (("train", "dog"), ("val", "cat")):
        assert main(["evaluate", str(path), str(tmp_path / "set"), "--split", split, "--json"]) == 0
        (report,) = json.loads(capsys.readouterr().out)["reports"]
        assert [(each["class"], each["average_precision"]) for each in report["classes"]] == [(name, 1.0)]
        assert report["unknown_classes"] == {}


def test_wrong_calls_end_with_2(detections, capsys):
    for wrong in (["--iou", "0"], ["--iou", "2"], ["--intervals", "0"], ["--protocol", "voc12"]):
        with pytest.raises(SystemExit) as caught:
            main(["evaluate", detections, "scenes", *wrong])
        assert caught.value.code == 2
    assert "usage: eesvm evaluate" in capsys.readouterr().err


def test_help_has_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["evaluate", "--help"])
    assert "eesvm evaluate detections.csv scenes --split test --intervals 1000" in capsys.readouterr().out
