"""`eesvm reproduce`: killed and resumed, everything that it writes, and what it refuses."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from eesvm.cli import main
from eesvm.datasets import open_dataset, write_voc
from eesvm.datasets.scenes import make_scenes
from eesvm.experiments.claims.sheet import CLAIMS, VERDICTS
from eesvm.experiments.reproduction.recipes import DEFAULT_PRESET
from eesvm.experiments.tables.windows import Method
from eesvm.images import write_image
from helpers.detector_scenes import scenes

QUICK = [
    *("--splits", "2", "--images", "9", "--classes", "eight", "--time-limit", "0.05", "--jobs", "1", "--no-cache"),
    *("--set", "windows.mode=single", "--set", "windows.max_windows=60", "--set", "training.max_images=4"),
    *("--set", "descriptor.name=hog", "--set", "descriptor.n_components=none", "--set", "descriptor.kernel_map=none"),
]
TABLES = [*(f"table{k}" for k in range(1, 7)), "searches", "pruning"]


def parts(folder):
    try:
        return json.loads((folder / "run.json").read_text())["parts"]
    except FileNotFoundError:
        return {}


def stopped(folder, how, n_parts=1):
    """A run that gets a signal once it has filed some parts."""
    command = [sys.executable, "-m", "eesvm", "reproduce", "-o", str(folder), *QUICK]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and len(parts(folder)) < n_parts:
        time.sleep(0.01)
    process.send_signal(how)
    _, errors = process.communicate()
    return process.returncode, errors


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that is interrupted, killed, and then goes on to its end."""
    folder = tmp_path_factory.mktemp("reproduce") / "out"
    interrupted = stopped(folder, signal.SIGINT)
    stopped(folder, signal.SIGKILL, n_parts=3)
    kept = {name: (folder / name).stat().st_mtime_ns for part in parts(folder).values() for name in part["files"]}
    assert main(["reproduce", "-o", str(folder), *QUICK, "--quiet"]) == 0
    return folder, interrupted, kept


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


@pytest.mark.long
def test_an_interrupted_run_says_how_to_go_on(finished):
    _, (status, errors), _ = finished
    assert status == 130
    assert errors.splitlines()[-1] == "eesvm: interrupted: the same command resumes the run"


@pytest.mark.long
def test_what_was_filed_before_the_kill_is_kept(finished):
    folder, _, kept = finished
    assert kept
    assert all((folder / name).stat().st_mtime_ns == when for name, when in kept.items())
    assert json.loads((folder / "run.json").read_text())["state"] == "done"
    assert not list(folder.rglob(".*.part"))


@pytest.mark.long
def test_all_files_are_there_and_can_be_read(finished):
    folder, _, _ = finished
    for name in TABLES:
        rows = read_csv(folder / "tables" / f"{name}.csv")
        assert rows
        source = (folder / "tables" / f"{name}.tex").read_text()
        assert source.count("\\begin{tabular}") == source.count("\\end{tabular}") == 1
        assert f"\\input{{{name}.tex}}" in (folder / "tables" / "all.tex").read_text()
        assert (folder / "tables" / f"{name}.md").read_text().startswith("## ")
    first = {row["method"]: row for row in read_csv(folder / "tables" / "table1.csv")}
    assert float(first[Method.SIGMOID]["eight"]) >= 0
    assert float(first[Method.SIGMOID]["mean"]) == float(first[Method.SIGMOID]["eight"])
    assert (
        float(first[Method.SIGMOID]["mean, low"])
        <= float(first[Method.SIGMOID]["mean"])
        <= float(first[Method.SIGMOID]["mean, high"])
    )
    assert float(first[Method.JOINT_SIGMOID]["paper: mean"]) == 55000
    assert first[DEFAULT_PRESET]["group"] == "beyond the paper"
    claims = read_csv(folder / "claims.csv")
    assert [row["claim"] for row in claims] == [claim.text for claim in CLAIMS]
    assert {row["verdict"] for row in claims} <= set(VERDICTS)
    assert len(list((folder / "figures").glob("figure*.png"))) >= 5
    assert (folder / "tables" / "pruning_searches.csv").read_text().startswith("table,")


@pytest.mark.long
def test_the_page_says_how_it_was_made(finished):
    folder, _, _ = finished
    text = (folder / "results.md").read_text()
    assert "hash " in text
    assert "- **Val1 (tables 1 to 3)**: the first 3 training images of a split" in text
    assert "- training.max_images = 4: random training images that give negatives" in text
    assert "- windows.mode = single: asked for" in text
    for number in range(1, 7):
        assert f"## Table {number}. " in text
    assert "## What the paper claims" in text
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (folder / picture).is_file()


@pytest.mark.long
def test_a_second_run_only_lays_the_tables_out(finished, capsys):
    folder, _, _ = finished
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (folder / "tables" / "table3.md").unlink()
    assert main(["reproduce", "-o", str(folder), *QUICK]) == 0
    out = capsys.readouterr().out
    assert f"{folder} had everything: nothing was measured, the tables were laid out again\n" in out
    assert Method.JOINT_SIGMOID.removeprefix("EE-SVM ") in out
    assert re.search(r"Of \d+ claims: \d+ confirmed, \d+ not confirmed, \d+ cannot be tested here\.", out)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.long
def test_the_report_in_a_browser(finished, open_page, width):
    folder, _, _ = finished
    page = open_page(width=width)
    page.goto((folder / "report.html").as_uri())
    assert page.locator("table").count() == 12
    assert page.locator("figure img").count() == len(list((folder / "figures").glob("*.png")))
    assert page.get_by_role("heading", name="What the paper claims").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for image in page.locator("figure img").all():
        image.scroll_into_view_if_needed()
        assert image.evaluate("node => node.complete && node.naturalWidth > 0")
        assert image.get_attribute("alt")


# Refusals


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_voc(scenes("train", 8), folder / "voc")
    (folder / "one").mkdir()
    write_image(folder / "one" / "a.png", np.zeros((40, 40, 3), dtype=np.uint8))
    return folder


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        (["--data", "nowhere"], "nowhere does not exist"),
        (["--data", "{}/one"], "one: at least 4 images are needed, two each for training and test, got 1"),
        (["--data", "{}/voc", "--classes", "cow"], "voc has no class 'cow': it has eight, three"),
        (["--data", "{}/voc", "--classes", "0"], "--classes must be a number >= 1 or names joined by commas, got 0"),
        (["--data", "{}/voc", "--own-split", "a,b"], "voc has no split of its own for a,b: its splits are"),
        (["--classes", "cow"], "`classes` must be different names from 'zero' to 'nine'"),
        (["--set", "nms"], "--set must be NAME=VALUE, got 'nms'"),
        (["--set", "detection.nmx=1"], "there is no option `detection.nmx`: did you mean `detection.nms`?"),
    ],
)
def test_refusals_are_one_line_and_leave_no_folder(photographs, tmp_path, extra, sentence, capsys):
    arguments = [each.format(photographs) for each in extra]
    status = 2 if "must" in sentence or "no option" in sentence else 1  # the call is wrong, or the files are
    assert main(["reproduce", "-o", str(tmp_path / "out"), *arguments]) == status
    error = capsys.readouterr().err
    assert error.startswith("eesvm: error: ")
    assert sentence in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """A dataset with a training and a test split of its own."""
    folder = tmp_path_factory.mktemp("halves") / "voc"
    write_voc(make_scenes(8, 4, classes=("three", "eight")), folder)
    return folder


@pytest.mark.long
def test_a_training_image_among_the_test_images_is_refused(halves, tmp_path, capsys):
    folder = shutil.copytree(halves, tmp_path / "voc")
    dataset = open_dataset(folder)
    names = [dataset.splits[split][0] for split in ("train", "test")]
    pixels = next(record.read() for record in dataset if record.image_id == names[0])
    test = next(record for record in dataset if record.image_id == names[1])
    write_image(test.path, pixels)
    arguments = ["--data", str(folder), "--own-split", *QUICK[2:], "--images", "16"]
    assert main(["reproduce", "-o", str(tmp_path / "out"), *arguments]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"eesvm: error: the test image {names[1]} ({names[0]} there) is among the images to train and calibrate on, "
        "judged by content: take it out of one of the two"
    )


@pytest.mark.long
def test_the_images_of_the_network_are_told_apart_from_the_others(halves, tmp_path, capsys):
    arguments = ["--data", str(halves), "--own-split", *QUICK[2:], "--no-figures"]
    assert main(["reproduce", "-o", str(tmp_path / "out"), *arguments, "--network-split", "test"]) == 1
    assert "are among the images the network was tuned on" in capsys.readouterr().err.splitlines()[-1]
    assert main(["reproduce", "-o", str(tmp_path / "out"), *arguments, "--network-split", "train"]) == 0
    page = (tmp_path / "out" / "results.md").read_text()
    assert "- **images of the network**: The network was tuned on 8 images of voc, among them 4 of the 4 images" in page
    assert "How separable the calibration windows are: at full recall the joint thresholds accept" in page
    assert main(["reproduce", "--network-split", "train"]) == 2
    assert "--network-split without --network-data is a split of --data, which is missing" in capsys.readouterr().err


@pytest.mark.long
def test_a_network_is_tuned_on_other_images_and_then_used(halves, tmp_path, capsys):
    pytest.importorskip("torch")
    write_voc(make_scenes(8, 1, classes=("three", "eight", "four"), random_state=7), tmp_path / "others")
    tuning = ("input_size=64", "epochs=1", "batches_per_epoch=1", "windows.method=grid", "windows.max_windows=60")
    arguments = [
        *("reproduce", "-o", str(tmp_path / "out"), "--data", str(halves), "--own-split", "--classes", "eight"),
        *("--network-data", str(tmp_path / "others"), *(word for one in tuning for word in ("--network-set", one))),
        *("--time-limit", "0.05", "--jobs", "1", "--no-cache", "--no-figures", "--set", "windows.mode=single"),
        *("--set", "windows.max_windows=40", "--set", "training.max_images=4", "--set", "descriptor.n_components=8"),
    ]
    assert main(arguments) == 0
    network, folder = tmp_path / "out-network.onnx", tmp_path / "out"
    assert network.exists()
    page = (folder / "results.md").read_text()
    assert f"- descriptor.backbone = {network}: asked for" in page
    assert "- descriptor.mode = crop: asked for" in page
    told = "The network was tuned on 9 images of others; none of the 8 images of the exemplars is among them."
    assert f"- **images of the network**: {told}" in page
    recipes = json.loads((folder / "run.json").read_text())["options"]
    assert [one["descriptor"]["backbone"] for one in recipes["Val1"]] == [str(network)] * 3
    assert [one["descriptor"]["name"] for one in recipes["HOG"]] == ["hog"]
    assert {path.name for path in (folder / "tables").glob("*.csv")} >= {f"{name}.csv" for name in TABLES}
    capsys.readouterr()
    before = network.stat().st_mtime_ns
    assert main(arguments) == 0
    assert "had everything: nothing was measured" in capsys.readouterr().out
    assert network.stat().st_mtime_ns == before


@pytest.mark.long
def test_a_folder_of_another_dataset(finished, photographs, capsys):
    folder, _, _ = finished
    assert main(["reproduce", "-o", str(folder), "--data", str(photographs / "voc"), *QUICK]) == 1
    error = capsys.readouterr().err
    assert error == f"eesvm: error: {folder} holds a reproduction on scenes, not on voc: choose another folder\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path, capsys):
    (tmp_path / "locked").mkdir(mode=0o500)
    assert main(["reproduce", "-o", str(tmp_path / "locked" / "out"), *QUICK]) == 1
    assert "cannot create" in capsys.readouterr().err


def test_a_file_in_the_place_of_the_folder(tmp_path, capsys):
    (tmp_path / "out").write_text("mine")
    assert main(["reproduce", "-o", str(tmp_path / "out"), *QUICK]) == 1
    assert capsys.readouterr().err == f"eesvm: error: {tmp_path / 'out'} already exists and is not a folder\n"


@pytest.mark.parametrize("wrong", [["--splits", "0"], ["--time-limit", "0"], ["--images", "x"], ["--jobs", "-1"]])
def test_wrong_calls_end_with_two(wrong, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", *wrong])
    assert ended.value.code == 2
    assert wrong[0] in capsys.readouterr().err


def test_help_has_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    assert "  eesvm reproduce -o reproduction\n" in capsys.readouterr().out
