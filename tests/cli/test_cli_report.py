"""`eesvm report`: from a model and data to a page, and what it refuses."""

import json
import os
import re
from pathlib import Path

import pytest

from eesvm.cli import main
from eesvm.datasets import write_coco, write_voc
from eesvm.images import write_image
from eesvm.metrics.detection_files import CSV_COLUMNS, read_detections
from helpers.detector_scenes import scenes
from helpers.examples import ALL

QUICK = [
    *("--descriptor", "hog", "--mode", "single", "--jobs", "1"),
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
    """A model, annotated test images in two formats, plain ones, and what was found in them."""
    folder = tmp_path_factory.mktemp("report")
    write_voc(scenes("train", 8), folder / "train")
    write_voc(scenes("test"), folder / "test")
    write_coco(scenes("test"), folder / "coco")
    (folder / "plain").mkdir()
    for record in scenes("test")[:2]:
        write_image(folder / "plain" / f"{record.image_id}.png", record.read())
    cache = ["--cache", str(folder / "cache"), "--quiet"]
    assert main(["train", str(folder / "train"), *QUICK, *cache, "-o", str(folder / "model")]) == 0
    detect = ["detect", str(folder / "model"), *cache, "--jobs", "1"]
    assert main([*detect, str(folder / "test"), "-o", str(folder / "found"), "--format", "csv,voc"]) == 0
    assert main([*detect, str(folder / "coco"), "-o", str(folder / "coco.json")]) == 0
    return folder


@pytest.fixture
def report(place, tmp_path, capsys):
    """Runs the verb; gives the exit status, the data in the page, and what was printed."""

    def report(data, *arguments, model="model"):
        out = tmp_path / "report.html"
        command = ["report", str(place / model), str(data), "-o", str(out), "--overwrite", "--jobs", "1"]
        few = [] if ALL else ["--max-detections", "60"]  # each detection that is shown has its mask refined
        status = main([*command, "--cache", str(place / "cache"), *few, *map(str, arguments)])
        text = out.read_text() if out.exists() else ""
        found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
        return status, json.loads(found[1]) if found else None, capsys.readouterr()

    return report


def test_it_detects_by_itself(place, report):
    status, data, said = report(place / "test", "--title", "Digits <here>")
    assert status == 0
    assert data["title"] == "Digits <here>"
    found = read_detections(place / "found" / "detections.csv")
    assert data["n_detections"] == sum(map(len, found))
    assert data["has_truth"]
    assert data["facts"][0]["value"] in said.out
    assert re.search(r"\nwritten to .*report\.html \(\d+\.\d MB\): open it in a browser\n", said.out)


@pytest.mark.long
def test_detections_from_files_give_the_same_report(place, report):
    _, detected, _ = report(place / "test")
    status, read, _ = report(place / "test", "--detections", place / "found" / "detections.csv", "--quiet")
    assert status == 0
    assert read == detected
    status, coco, _ = report(place / "coco", "--detections", place / "coco.json")
    assert status == 0
    assert coco["classes"] == detected["classes"]
    status, voc, said = report(place / "test", "--detections", place / "found" / "voc")
    assert status == 0
    assert {each["exemplar"] for each in voc["detections"]} == {None}
    assert [each["average_precision"] for each in voc["classes"]] == [
        each["average_precision"] for each in detected["classes"]
    ]
    assert "No exemplar is named by " in said.out


def test_images_without_annotations(place, report):
    status, data, said = report(place / "plain", "--max-detections", "7")
    assert status == 0
    assert not data["has_truth"]
    assert len(data["detections"]) == 7
    assert "note: plain has no annotated object of eight and three: average precision" in said.out


@pytest.mark.long
def test_another_calibrator(place, report):
    _, joint, _ = report(place / "test")
    status, data, said = report(place / "test", "--calibrator", "none")
    assert status == 0
    assert [each["score"] for each in data["detections"]] != [each["score"] for each in joint["detections"]]
    assert "note: The detections were made with the calibrator none;" in said.out


def test_lower_recall_floors(place, report):
    status, data, _ = report(place / "plain", "--frontier", "0")
    assert status == 0
    assert all(len(each["search"]["floors"]) > 2 for each in data["classes"])


def test_nothing_found(place, report, tmp_path):
    (tmp_path / "none.csv").write_text(",".join(CSV_COLUMNS) + "\n")
    status, data, _ = report(place / "test", "--detections", tmp_path / "none.csv")
    assert status == 0
    assert data["detections"] == []
    assert data["facts"][1]["value"].startswith("0 of ")
    assert len(data["missed"]) == data["n_missed"] > 0


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (
            "elsewhere,three,1,0,0,9,9,0",
            "the detections are of other images: test has no image elsewhere, but for example",
        ),
        (
            "{image},three,1,0,0,9,9,9999",
            "the detections are of another model: a detection in {image} names the exemplar",
        ),
        ("{image},three,much,0,0,9,9,0", "its score must be a number, got 'much'"),
        ("{image},zebra,1,0,0,9,9,0", "the detections are of another model: a zebra in {image} names the exemplar 0"),
    ],
)
def test_detections_that_cannot_be_used(place, report, tmp_path, line, complaint):
    image = scenes("test")[0].image_id
    (tmp_path / "found.csv").write_text(f"{','.join(CSV_COLUMNS)}\n{line.format(image=image)}\n")
    status, data, said = report(place / "test", "--detections", tmp_path / "found.csv")
    assert status == 1
    assert data is None
    assert complaint.format(image=image) in said.err
    assert said.err.count("\n") == 1


def test_what_is_refused_before_any_work(place, tmp_path, capsys):
    (tmp_path / "there.html").write_text("mine")
    for arguments, complaint in (
        (
            (place / "test", "-o", tmp_path / "page.txt"),
            "page.txt must end in .html: the report is a page for a browser",
        ),
        ((place / "test", "-o", tmp_path / "there.html"), "there.html already exists: choose another name"),
        ((place / "test", "-o", tmp_path / "no" / "page.html"), "page.html: its folder does not exist"),
        ((place / "test", "-o", tmp_path / "a.html", "--calibrator", "magic"), "`calibrator` must be one of"),
        ((tmp_path / "nowhere", "-o", tmp_path / "a.html"), "nowhere"),
        ((place / "test", "-o", tmp_path / "a.html", "--detections", tmp_path / "no.csv"), "no.csv does not exist"),
        ((place / "test", "--split", "nonsense", "-o", tmp_path / "a.html"), "nonsense"),
    ):
        status = 2 if "must" in complaint else 1  # the call is wrong, or the files are
        assert main(["report", str(place / "model"), *map(str, arguments)]) == status
        said = capsys.readouterr().err
        assert complaint in said
        assert said.count("\n") == 1
    assert main(["report", str(place / "train"), str(place / "test"), "-o", str(tmp_path / "a.html")]) == 1
    assert "is not a model: there is no model.json in it" in capsys.readouterr().err
    assert (tmp_path / "there.html").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there.html"]


def test_a_page_that_could_not_be_written_costs_no_search(place, tmp_path, capsys, monkeypatch):
    def work(*_, **__):
        raise AssertionError("windows are proposed")

    monkeypatch.setattr("eesvm.cli.report.ExemplarDetector.predict", work)
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "locked").mkdir()
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "locked" and may(path, mode))
    for out, sentence in (("folder.html", "it is a folder"), ("locked/page.html", "no permission to write in")):
        call = ["report", str(place / "model"), str(place / "test"), "-o", str(tmp_path / out), "--overwrite"]
        assert main(call) == 1
        error = capsys.readouterr().err
        assert sentence in error
        assert error.count("\n") == 1


def test_wrong_calls(capsys):
    for arguments in (["report"], ["report", "m", "d"], ["report", "m", "d", "-o", "x.html", "--max-detections", "0"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
    with pytest.raises(SystemExit) as caught:
        main(["report", "--help"])
    assert caught.value.code == 0
    assert "eesvm report model VOCdevkit/VOC2007 --split test -o report.html" in capsys.readouterr().out
