"""`eesvm train` and `eesvm detect`: end to end, killed and resumed, and what they refuse."""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eesvm import CalibrationProblem, ExemplarDetector, InputError, solve
from eesvm.cli import detect, main
from eesvm.cli.detect import _not_listed, _unreadable
from eesvm.cli.inputs import open_data
from eesvm.cli.train import _listed, how_to_go_on
from eesvm.datasets import write_coco, write_voc
from eesvm.datasets.scenes import make_scenes
from eesvm.images import write_image
from eesvm.metrics.detection_files import read_detections
from helpers.detector_scenes import CLASSES, scenes
from helpers.examples import ALL

QUICK = [
    *("--descriptor", "hog", "--mode", "single", "--max-windows", "2000" if ALL else "100", "--jobs", "1"),
    *(
        "--set",
        "descriptor.n_components=none",
        "--set",
        "descriptor.kernel_map=none",
        "--set",
        "calibration.method=greedy",
    ),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A dataset on disk, and a cache that the tests share."""
    folder = tmp_path_factory.mktemp("train")
    write_voc(scenes("train", 8), folder / "data")
    (folder / "test").mkdir()
    for record in scenes("test"):
        write_image(folder / "test" / f"{record.image_id}.png", record.read())
    return folder


@pytest.fixture(scope="module")
def arguments(place):
    return ["train", str(place / "data"), *QUICK, "--cache", str(place / "cache")]


@pytest.fixture(scope="module")
def model(place, arguments):
    assert main([*arguments, "-o", str(place / "model"), "--quiet"]) == 0
    return place / "model"


def test_training_says_what_it_did(arguments, model, capsys):
    assert main([*arguments, "-o", str(model)]) == 0
    text = capsys.readouterr().out
    assert text.endswith(f"{model} is up to date: there was nothing to do\n")
    assert "three" in text
    assert "eight" in text
    assert main([*arguments, "-o", str(model), "--set", "detection.nms=0.4", "--profile"]) == 0
    text = capsys.readouterr().out
    assert f"written to {model}: see MODEL.md in it, then `eesvm detect {model} IMAGES`\n" in text
    assert "reading images" in text
    assert "everything else" in text
    assert f"note: the model that {model} held is replaced: detection.nms is 0.4, not 0.3\n" in text
    assert ExemplarDetector.load(model).options.detection.nms == 0.4
    assert json.loads((model / "run.json").read_text())["state"] == "done"


def test_detections_in_all_formats(place, model, tmp_path, capsys):
    images = str(place / "test")
    out = tmp_path / "found"
    assert main(["detect", str(model), images, "-o", str(out), "--format", "csv,coco,voc", "--no-cache"]) == 0
    text = capsys.readouterr().out
    assert "images      6 of 6\n" in text
    assert (
        f"written to {out / 'detections.csv'}, {out / 'detections.json'}, {out / 'images.csv'}, {out / 'voc'}\n" in text
    )
    table = read_detections(out / "detections.csv")
    results = read_detections(out / "detections.json")
    assert [one.image_id for one in table] == [one.image_id for one in results]
    assert all(
        (a.scores == b.scores).all() and (a.exemplars == b.exemplars).all() for a, b in zip(table, results, strict=True)
    )
    assert sorted(p.name for p in (out / "voc").glob("*.txt")) == [
        "comp3_det_test_eight.txt",
        "comp3_det_test_three.txt",
    ]
    expected = ExemplarDetector.load(model).predict([place / "test" / "test_0002.png"])[0]
    one = next(one for one in table if one.image_id == "test_0002")
    assert (one.scores == expected.scores).all()
    assert (one.exemplars == expected.exemplars).all()


def break_off(path):
    """An image that opens, but whose pixels end in the middle."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def test_images_that_cannot_be_used_are_not_counted(place, arguments, tmp_path, capsys):
    shutil.copytree(place / "data", tmp_path / "data")
    first, second, *_ = sorted((tmp_path / "data" / "JPEGImages").iterdir())
    break_off(first)
    second.write_bytes(b"no picture")
    n = len(list((tmp_path / "data" / "JPEGImages").iterdir()))
    call = ["train", str(tmp_path / "data"), *arguments[2:], "-o", str(tmp_path / "model")]
    for is_new in (True, False):  # a second run, which looks at no image, says the same
        assert main(call) == 0
        text = capsys.readouterr().out
        assert f"  images     {n - 2} of {n}\n" in text
        assert text.count(f"  {first}: ") == text.count(f"  {second}: ") == 1
        assert ("there was nothing to do" in text) != is_new
        assert f"trained on {n - 2} images of data by" in (tmp_path / "model" / "MODEL.md").read_text()
    assert main(["detect", str(tmp_path / "model"), str(tmp_path / "data"), "-o", str(tmp_path / "f.csv")]) == 0
    assert f"  images      {n - 2} of {n}\n" in capsys.readouterr().out


def save_yolo(root, records, unlabelled):
    """The records as YOLO files; some images have no label file."""
    (root / "images").mkdir(parents=True)
    (root / "labels").mkdir()
    (root / "data.yaml").write_text(f"names: [{', '.join(CLASSES)}]\n")
    for record in records:
        write_image(root / "images" / f"{record.image_id}.png", record.read())
        lines = []
        for instance in record.instances:
            x1, y1, x2, y2 = instance.box / ([record.width, record.height] * 2)
            box = ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1)
            lines.append(f"{CLASSES.index(instance.class_name)} {' '.join(map(str, box))}\n")
        if record.image_id not in unlabelled:
            (root / "labels" / f"{record.image_id}.txt").write_text("".join(lines))


def test_images_without_label_file_are_left_out_and_said(tmp_path, capsys):
    records = scenes("train", 6)
    unlabelled = {record.image_id for record in records[:2]}
    save_yolo(tmp_path / "data", records, unlabelled)
    for options, n_used, sentence in (
        ([], 4, "are left out of training and evaluation: --unlabelled keep takes them as images without objects"),
        (["--unlabelled", "keep"], 6, "count as images without objects: --unlabelled skip leaves them out"),
    ):
        out = tmp_path / f"model_{n_used}"
        few = ["--set", "windows.max_windows=60", "--no-cache"]
        assert main(["train", str(tmp_path / "data"), *QUICK, *few, *options, "-o", str(out)]) == 0
        assert f"note: 2 of 6 images have no annotation; such images {sentence}\n" in capsys.readouterr().out
        used = json.loads((out / "run.json").read_text())["inputs"]["images"]
        assert len(used) == n_used
        assert unlabelled.isdisjoint(used) == (n_used == 4)


def test_images_with_malformed_annotations_are_searched_too(place, model, tmp_path, capsys):
    shutil.copytree(place / "data", tmp_path / "data")
    first, *_ = sorted((tmp_path / "data" / "Annotations").iterdir())
    first.write_text("<annotation>")
    found = tmp_path / "f.csv"
    assert main(["detect", str(model), str(tmp_path / "data"), "-o", str(found), "--max-detections", "1"]) == 0
    n = len(list((tmp_path / "data" / "JPEGImages").iterdir()))
    assert f"images      {n} of {n}\n" in capsys.readouterr().out
    assert first.stem in {one.image_id for one in read_detections(found)}


def test_next_to_no_negatives_are_said(tmp_path, capsys):
    write_voc(scenes("train", 3), tmp_path / "data")
    call = ["train", str(tmp_path / "data"), *QUICK, "--max-windows", "20", "--no-cache", "-o", str(tmp_path / "model")]
    assert main(call) == 0
    text = capsys.readouterr().out
    model = ExemplarDetector.load(tmp_path / "model").models_[0]
    assert 0 < model.facts["n_negatives_in_all"] < 100
    assert (
        f"note: the class {model.class_name} has only {model.facts['n_negatives_in_all']} negative windows to be told from, so "
        "its detections elsewhere mean little: add images without it\n"
    ) in text


def test_single_images_patterns_and_options(place, model, tmp_path, capsys):
    csv = tmp_path / "found.csv"
    (place / "test" / "zz_broken.png").write_bytes(b"no picture")
    try:
        call = ["detect", str(model), str(place / "test" / "*_000[01].png"), str(place / "test" / "zz_*"), "-o", str(csv),
                "--max-detections", "2", "--calibrator", "affine", "--cache", str(tmp_path / "cache"), "--profile"]  # fmt: skip
        assert main(call) == 0
        text = capsys.readouterr().out
        assert "images      2 of 3\n" in text
        assert "1 problem\n" in text
        assert "zz_broken.png: " in text
        assert "scores and suppression" in text
        assert [len(one) for one in read_detections(csv)] == [2, 2]
        assert main(call) == 1
        assert "already exists: choose another name or allow overwriting it (--overwrite)" in capsys.readouterr().err
        assert main([*call, "--overwrite", "--score", "1000", "--quiet"]) == 0
        assert csv.read_text() == "image_id,class,score,x1,y1,x2,y2,exemplar\n"
        assert capsys.readouterr().out == ""
    finally:
        (place / "test" / "zz_broken.png").unlink()


def test_coco_numbers_are_those_of_the_dataset(model, tmp_path):
    write_coco(scenes("test"), tmp_path / "coco")
    out = tmp_path / "found.json"
    assert main(["detect", str(model), str(tmp_path / "coco"), "-o", str(out), "--quiet", "--no-cache"]) == 0
    annotations = json.loads(next((tmp_path / "coco").rglob("*.json")).read_text())
    assert {entry["image_id"] for entry in json.loads(out.read_text())} <= {
        image["id"] for image in annotations["images"]
    }


def test_coco_results_of_a_split_that_lacks_classes_and_has_flaws(model, tmp_path):
    write_coco(scenes("test"), tmp_path / "coco")
    (path,) = (tmp_path / "coco").rglob("*.json")
    document = json.loads(path.read_text())
    image = document["images"][0]["id"]
    document["annotations"] = [each for each in document["annotations"] if each["image_id"] == image]
    document["categories"] = [{"id": 40, "name": "cow"}, {"id": 3}]
    (tmp_path / "coco" / "instances_other.json").write_text("{")
    path.rename(path.with_name("instances_few.json"))
    path.with_name("instances_few.json").write_text(json.dumps(document))
    out = tmp_path / "found.json"
    assert main(["detect", str(model), str(tmp_path / "coco"), "-o", str(out), "--quiet", "--no-cache"]) == 0
    entries = json.loads(out.read_text())
    assert {(each["category_name"], each["category_id"]) for each in entries} == {("eight", 41), ("three", 42)}


def opened(name, split=None, annotations=None):
    arguments = argparse.Namespace(split=split, annotations=annotations)
    return [record.image_id for record in detect.open_images(str(name), arguments)]


def test_files_of_datasets_have_splits_and_photographs_have_none(tmp_path):
    drawn = make_scenes(2, 1, classes=CLASSES)
    write_coco(drawn, tmp_path / "coco")
    for record in drawn:
        split = record.image_id.split("_")[0]
        (tmp_path / "yolo" / "images" / split).mkdir(parents=True, exist_ok=True)
        write_image(tmp_path / "yolo" / "images" / split / f"{record.image_id}.png", record.read())
    yaml = tmp_path / "yolo" / "data.yaml"
    yaml.write_text("train: images/train\nval: images/test\nnames: [three, eight]\n")
    (annotations,) = (tmp_path / "coco").rglob("*.json")
    for name in (annotations, tmp_path / "co*" / annotations.name):
        assert opened(name, "test") == ["test_0000"]
        assert opened(name, "train") == ["train_0000", "train_0001"]
    assert opened(yaml, "val") == ["test/test_0000"]
    assert opened(yaml, "val", "yolo") == ["test/test_0000"]
    for name in (yaml, annotations):
        with pytest.raises(InputError, match="has no split 'summer'"):
            opened(name, "summer")
    with pytest.raises(InputError, match="a dataset of the format voc is a folder"):
        opened(annotations, annotations="voc")
    photo = tmp_path / "yolo" / "images" / "test" / "test_0000.png"
    assert opened(photo, "train", "coco") == opened(photo.with_name("*.png"), "train", "coco") == ["test_0000"]


def test_what_cannot_be_written_is_refused_before_any_work(model, place, tmp_path, capsys, monkeypatch):
    def work(*_, **__):
        raise AssertionError("windows are proposed")

    monkeypatch.setattr(ExemplarDetector, "predict", work)
    photo = (place / "test" / "test_0000.png").read_bytes()
    for name in ("my photo.png", b"\xff.png"):
        folder = tmp_path / ("spaces" if isinstance(name, str) else "bytes")
        folder.mkdir()
        (folder / os.fsdecode(name)).write_bytes(photo)
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "locked").mkdir()
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "locked" and may(path, mode))
    for images, out, sentence in (
        ("spaces", "found", "the image id 'my photo' has spaces or is empty: VOC text files cannot hold it"),
        ("bytes", "found", "is not text in UTF-8: give its file another"),
        ("spaces", "folder.csv", "folder.csv: it is a folder"),
        ("spaces", "locked/found.csv", "no permission to write in"),
        ("spaces", "locked/found", "no permission to write in"),
        ("spaces", "none/found.csv", "its folder does not exist"),
    ):
        formats = [] if out.endswith(".csv") else ["--format", "csv,voc"]
        call = ["detect", str(model), str(tmp_path / images), "-o", str(tmp_path / out), "--overwrite", *formats]
        assert main(call) == 1
        error = capsys.readouterr().err
        assert sentence in error
        assert error.count("\n") == 1


def test_options_come_from_a_file_and_the_command_line(arguments, place, tmp_path):
    config = tmp_path / "options.yaml"
    config.write_text("preset: paper\ntraining:\n  C: 2e-4\ndetection:\n  nms: 0.5\n")
    call = [*arguments, "-o", str(tmp_path / "m"), "--config", str(config), "--classes", "three", "--quiet"]
    assert main([*call, "--min-recall", "0.9", "--set", "detection.nms=0.6", "--calibrator", "sigmoid,affine"]) == 0
    options = ExemplarDetector.load(tmp_path / "m").options
    assert (options.training.C, options.training.loss, options.detection.nms) == (2e-4, "hinge", 0.6)
    assert options.calibration.min_recall == 0.9
    assert options.calibration.calibrator == "sigmoid"
    card = json.loads((tmp_path / "m" / "model.json").read_text())
    assert card["classes"][0]["calibrators"] == ["sigmoid", "affine"]


def state(folder):
    try:
        return json.loads((folder / "run.json").read_text())["parts"]
    except FileNotFoundError:
        return {}


@pytest.mark.long
def test_a_killed_run_goes_on_and_ends_with_the_same_model(arguments, model, tmp_path):
    folder = tmp_path / "killed"
    command = [sys.executable, "-m", "eesvm", *arguments, "-o", str(folder), "--set", "detection.nms=0.4"]
    for wanted in (1, 4):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and len(state(folder)) < wanted:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (folder / "model.json").exists()
    kept = {name: (folder / name).stat().st_mtime_ns for part in state(folder).values() for name in part["files"]}
    assert kept
    assert main([*arguments, "-o", str(folder), "--set", "detection.nms=0.4", "--quiet"]) == 0
    assert all((folder / name).stat().st_mtime_ns == when for name, when in kept.items())
    assert not list(folder.rglob(".*.part"))
    one, other = ExemplarDetector.load(folder), ExemplarDetector.load(model)
    for a, b in zip(one.models_, other.models_, strict=True):
        assert (a.exemplars.coef_ == b.exemplars.coef_).all()
        assert (a.calibrators["joint"].thresholds_ == b.calibrators["joint"].thresholds_).all()
        assert (a.calibrators["joint"].sigmoids_ == b.calibrators["joint"].sigmoids_).all()


def test_an_interrupted_run_says_how_to_go_on(arguments, tmp_path):
    folder = tmp_path / "stopped"
    command = [sys.executable, "-m", "eesvm", *arguments, "-o", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not state(folder):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "eesvm: interrupted: the same command resumes the run"  # after the progress
    assert state(folder)


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        (["--classes", "three,seven"], "the class 'seven' has no object to learn from in data: those are eight, three"),
        (["--calibrator", "platt"], "`calibrator` must be one of 'none', "),
        (["--set", "nms"], "--set must be NAME=VALUE, got 'nms'"),
        (["--set", "detection.nmx=1"], "there is no option `detection.nmx`: did you mean `detection.nms`?"),
        (["--config", "nowhere.yaml"], "nowhere.yaml: it cannot be read (No such file or directory)"),
        (["--split", "summer"], "has no split 'summer'"),
    ],
)
def test_errors_of_training_are_one_line(arguments, tmp_path, extra, sentence, capsys):
    status = 2 if "must" in sentence or "no option" in sentence else 1  # the call is wrong, or the files are
    assert main([*arguments, "-o", str(tmp_path / "m"), *extra]) == status
    error = capsys.readouterr().err
    assert sentence in error
    assert error.startswith("eesvm: error: ")
    assert error.count("\n") == 1


def test_a_training_image_among_the_test_images_is_refused_whatever_its_name(place, arguments, tmp_path, capsys):
    shutil.copytree(place / "test", tmp_path / "judges")
    record = scenes("train", 8)[2]
    write_image(tmp_path / "judges" / "beach.jpg", record.read(), quality=40)
    assert main([*arguments, "-o", str(tmp_path / "m"), "--test-data", str(tmp_path / "judges")]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == (
        f"eesvm: error: the test image beach ({record.image_id} there) is among the images to train and calibrate on, "
        "judged by content: take it out of one of the two"
    )
    assert not (tmp_path / "m").exists()


def test_roles_are_said_on_the_screen_and_on_the_card(place, arguments, tmp_path, capsys):
    roles = ["--test-data", str(place / "test"), "--network-data", str(place / "data")]
    assert main([*arguments, "-o", str(tmp_path / "m"), *roles]) == 0
    text = capsys.readouterr().out
    assert "note: The network was tuned on 8 images of data, among them 8 of the 8 images" in text
    assert "None of the 6 test images of test is among the others" in text
    page = (tmp_path / "m" / "MODEL.md").read_text()
    separable = "How separable the calibration windows are: at full recall the joint thresholds accept"
    assert separable in page
    said = next(line for line in text.splitlines() if separable in line)
    assert said.removeprefix("note: ") in page


def test_data_that_cannot_be_trained_on(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main(["train", str(tmp_path / "empty"), "-o", str(tmp_path / "m")]) == 1
    assert "holds nothing that can be opened" in capsys.readouterr().err
    write_image(tmp_path / "empty" / "a.png", np.zeros((40, 40, 3), dtype=np.uint8))
    assert main(["train", str(tmp_path / "empty"), "-o", str(tmp_path / "m")]) == 1
    assert capsys.readouterr().err == "eesvm: error: empty has no objects to learn from\n"
    data = scenes("train", 8)
    write_voc(replace(data, images=data.images[:1]), tmp_path / "bad")
    (annotation,) = (tmp_path / "bad" / "Annotations").iterdir()
    annotation.write_text(annotation.read_text().replace("<xmin>", "<xmin>far "))
    assert main(["train", str(tmp_path / "bad"), "-o", str(tmp_path / "m")]) == 1
    sentence = r"bad has no objects to learn from: `eesvm data info` lists \d+ problems, such as "
    assert re.match(f"eesvm: error: {sentence}{re.escape(str(annotation))}:\\d+: object 1 ", capsys.readouterr().err)
    assert not (tmp_path / "m").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(arguments, tmp_path, capsys):
    (tmp_path / "locked").mkdir(mode=0o500)
    assert main([*arguments, "-o", str(tmp_path / "locked" / "m")]) == 1
    assert "cannot create" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        (["nowhere.jpg"], "nowhere.jpg does not exist"),
        (["nothing_*.jpg"], "no file matches nothing_*.jpg"),
        (["scenes", "--calibrator", "platt"], "`calibrator` must be one of 'none', "),
        (["scenes", "--format", "xml"], "--format must be some of csv, coco, voc, yolo, label-studio, cvat, labelme, "),
        (["scenes", "--split", "summer"], "the dataset has no split 'summer'"),
    ],
)
def test_errors_of_detection_are_one_line(model, tmp_path, extra, sentence, capsys):
    status = 2 if "must" in sentence else 1  # the call is wrong, or the files are
    assert main(["detect", str(model), *extra, "-o", str(tmp_path / "out")]) == status
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_model_of_other_images_is_left_alone(arguments, model, tmp_path, capsys):
    write_voc(make_scenes(6, 3, classes=CLASSES, random_state=9), tmp_path / "other")
    before = {path: path.read_bytes() for path in model.rglob("*") if path.is_file()}
    other = ["train", str(tmp_path / "other"), *arguments[2:], "-o", str(model)]
    assert main(other) == 1
    line = capsys.readouterr().err.splitlines()[-1]  # after the progress
    assert line.startswith(f"eesvm: error: {model} holds a model of other images (data), which training on other would")
    assert {path: path.read_bytes() for path in model.rglob("*") if path.is_file()} == before
    half = scenes("train", 8)  # some of the images are the same
    write_voc(replace(half, images=half.images[:3]), tmp_path / "fewer")
    fewer = ["train", str(tmp_path / "fewer"), *arguments[2:], "-o", str(model)]
    assert main(fewer) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"eesvm: error: {model} holds a model of other images (data: 3 of its 8 images are among these 3), which "
        "training on fewer would replace: choose another folder or allow replacing it (--overwrite)"
    )
    assert main([*arguments, "-o", str(model), "--classes", "three"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"eesvm: error: {model} holds a model with the class eight, which this training leaves out and would remove: "
        "choose another folder or allow replacing it (--overwrite)"
    )
    assert {path: path.read_bytes() for path in model.rglob("*") if path.is_file()} == before


@pytest.mark.long
def test_a_model_is_replaced_where_that_is_asked_for(arguments, model, tmp_path, capsys):
    shutil.copytree(model, tmp_path / "model")
    call = [*arguments, "-o", str(tmp_path / "model"), "--classes", "three", "--overwrite"]
    assert main(call) == 0
    assert ExemplarDetector.load(tmp_path / "model").classes_ == ("three",)
    assert not (tmp_path / "model" / "classes" / "eight").exists()


def test_a_preset_on_the_command_line_overrules_the_file(arguments, tmp_path, capsys):
    (tmp_path / "options.yaml").write_text("preset: paper\n")
    for extra, loss in (([], "hinge"), (["--preset", "default"], "squared_hinge")):
        out = tmp_path / f"model_{loss}"
        wanted = ["--config", str(tmp_path / "options.yaml"), "--classes", "eight", "-o", str(out), "--quiet"]
        assert main([*arguments, *wanted, *extra]) == 0
        assert ExemplarDetector.load(out).options.training.loss == loss


def test_images_that_cannot_be_looked_at(model, place, tmp_path, capsys):
    """None at all is an error that says why; some are listed."""
    whole = next((place / "test").iterdir())
    (tmp_path / "cut.png").write_bytes(whole.read_bytes()[:300])
    (tmp_path / "empty.png").write_bytes(b"")
    for names in (["cut.png"], ["empty.png"], ["cut.png", "empty.png"]):
        out = tmp_path / "found.csv"
        images = [str(tmp_path / name) for name in names]
        assert main(["detect", str(model), *images, "-o", str(out), "--no-cache", "--quiet"]) == 1
        line = capsys.readouterr().err
        assert line.count("\n") == 1
        assert any(image in line for image in images)
        assert not out.exists()
    assert main(["detect", str(model), str(tmp_path / "cut.png"), str(whole), "-o", str(out), "--no-cache"]) == 0
    assert "cut.png" in capsys.readouterr().out


@pytest.mark.long
def test_objects_in_images_that_cannot_be_read_are_counted_apart(model, place, tmp_path, capsys):
    shutil.copytree(place / "data", tmp_path / "data")
    first, *_ = sorted((tmp_path / "data" / "JPEGImages").iterdir())
    break_off(first)
    some = [str(path) for path in sorted((tmp_path / "data" / "JPEGImages").iterdir())[:4]]
    data, found = str(tmp_path / "data"), tmp_path / "found"
    assert main(["detect", str(model), *some, "-o", str(found), "--no-cache", "--quiet"]) == 0
    rows = (found / "images.csv").read_text().splitlines()
    assert rows[0] == "image_id,status,detections,problem"
    assert [row.split(",")[:2] for row in rows[1:]] == [
        *([Path(name).stem, "searched"] for name in some[1:]),
        [first.stem, "unreadable"],
    ]
    assert rows[-1].split(",", 3)[3]  # why
    known = {record.image_id: len(record.instances) for record in scenes("train", 8)}
    n, n_others = known[first.stem], sum(known.values()) - sum(known[Path(name).stem] for name in some)
    assert main(["evaluate", str(found), data, "-o", str(tmp_path / "judged")]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")][-2:]
    assert notes == [
        f"note: {n} object{'s' * (n > 1)} in 1 image that `eesvm detect` could not read count{'s' * (n == 1)} as missed: "
        "see images.csv beside the detections",
        f"note: {n_others} objects in 4 of 8 images that `eesvm detect` was not given count as missed: if they are not "
        "meant, choose the split that was searched",
    ]
    assert notes[0][7:] in (tmp_path / "judged" / "evaluation.md").read_text()
    assert main(["evaluate", str(found), data, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unseen"] == {
        "n_unreadable": 1,
        "n_objects_unreadable": n,
        "n_not_given": 4,
        "n_objects_not_given": n_others,
    }
    (found / "images.csv").write_text("name,size\na,1\n")  # of somebody else
    assert main(["evaluate", str(found), data, "--json"]) == 0
    assert "unseen" not in json.loads(capsys.readouterr().out)
    assert main(["detect", str(model), *some, "-o", str(tmp_path / "f.csv"), "--no-cache"]) == 0
    assert (
        f"note: {tmp_path / 'f.csv'} does not list the 1 image that could not be read; its objects count as missed in "
        "`eesvm evaluate`: write to a folder to have them counted apart\n"
    ) in capsys.readouterr().out
    labels = ["-o", str(tmp_path / "labels"), "--format", "yolo", "--no-cache"]
    assert main(["detect", str(model), *some, *labels]) == 0
    assert "does not list" not in capsys.readouterr().out


def test_images_left_out_of_one_file_are_counted_in_words():
    assert _not_listed("f.csv", 2).startswith(
        "f.csv does not list the 2 images that could not be read; their objects count as missed"
    )


def test_unreadable_images_have_the_names_that_readers_give(tmp_path):
    for folder in ("cats", "dogs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "001.png").write_bytes(b"")
    dataset = open_data(str(tmp_path), None, None, strict=False)
    assert sorted(_unreadable([], [], dataset.problems)) == ["cats/001", "dogs/001"]


def test_what_score_auto_cannot_decide_is_said(model, place, tmp_path, capsys, monkeypatch):
    call = ["detect", str(model), str(next((place / "test").iterdir())), "--no-cache", "--score", "auto", "-o"]
    assert main([*call, str(tmp_path / "none.csv"), "--calibrator", "single-svm"]) == 1
    assert capsys.readouterr().err == (
        "eesvm: error: the model cannot suggest scores: the single SVM has seen every training image; --score with a "
        "number leaves out what scores less\n"
    )
    monkeypatch.setattr(ExemplarDetector, "suggested_scores", lambda *_: {"three": 0.5})
    assert main([*call, str(tmp_path / "some.csv")]) == 0
    assert (
        "note: --score auto keeps every detection of eight, as none of its objects is found again in the training images: "
        "--score with a number leaves out what scores less\n"
    ) in capsys.readouterr().out


def test_a_class_in_one_image_is_calibrated_with_it_and_the_card_says_so(tmp_path):
    dataset = scenes("train", 8)
    first = dataset[0].instances[0]
    apart = [replace(one, class_name="first") if one is first else one for one in dataset[0].instances]
    images = (replace(dataset[0], instances=tuple(apart)), *dataset[1:])
    write_voc(replace(dataset, images=images, classes=("first", *dataset.classes)), tmp_path / "data")
    assert main(["train", str(tmp_path / "data"), *QUICK, "--no-cache", "--quiet", "-o", str(tmp_path / "model")]) == 0
    text = (tmp_path / "model" / "MODEL.md").read_text()
    assert "without the exemplars of the same image (those of first with them: all objects of such a class" in text
    rows = text.split("| own share |")[1].split("\n\n")[0].splitlines()
    eight, first = (next(row for row in rows if row.startswith(f"| {name} |")) for name in ("eight", "first"))
    assert re.fullmatch(r"\| first \| [\d.]+ \| +\| +\| +\|", first)  # no average precision, and no recall
    assert eight.count("%") == 3
    assert "All objects of first are in one image: none can be left out, so nothing is stated here.\n" in text


def test_a_folder_that_is_no_model(place, tmp_path, capsys):
    assert main(["detect", str(place / "data"), "scenes", "-o", str(tmp_path / "out.csv")]) == 1
    assert "is not a model: there is no model.json in it" in capsys.readouterr().err


def test_help_has_an_example(capsys):
    for verb in ("train", "detect"):
        with pytest.raises(SystemExit):
            main([verb, "--help"])
        assert f"  eesvm {verb} " in capsys.readouterr().out


def test_of_many_changes_a_few_are_named():
    changes = [f"option {k} is 1, not 0" for k in range(7)]
    assert _listed(changes[:2]) == "option 0 is 1, not 0; option 1 is 1, not 0"
    assert _listed(changes).endswith("; option 4 is 1, not 0; and 2 more, see model.json")


def test_a_limit_that_ends_a_search_is_said_with_the_option_that_helps():
    random = np.random.default_rng(0)
    directions = random.normal(0, 1, (30, 8))
    scores = [random.normal(0, 1, (n, 8)) @ directions.T for n in (300, 3000)]
    result = replace(solve(CalibrationProblem(*scores), node_limit=1), seconds=5.0)
    text = how_to_go_on("cat", result)
    assert re.fullmatch(
        r"the search of cat ended at its node limit with a gap of \d+.* %: --time-limit 60 gives it longer", text
    )
    long = replace(result, seconds=100.0, status="time_limit")
    assert how_to_go_on("cat", long).endswith(": --time-limit 420 gives it longer")


def test_a_time_limit_is_the_only_limit_then(arguments, tmp_path):
    assert main([*arguments, "--time-limit", "5", "-o", str(tmp_path / "model"), "--quiet"]) == 0
    options = ExemplarDetector.load(tmp_path / "model").options.calibration
    assert (options.time_limit, options.node_limit) == (5.0, None)


def test_a_node_limit_of_ones_own_stands_beside_a_time_limit(arguments, tmp_path):
    own = ["--time-limit", "5", "--set", "calibration.node_limit=7", "-o", str(tmp_path / "model"), "--quiet"]
    assert main([*arguments, *own]) == 0
    assert ExemplarDetector.load(tmp_path / "model").options.calibration.node_limit == 7
