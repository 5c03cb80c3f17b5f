"""`eesvm windows`: what it prints and writes, and its status."""

from dataclasses import replace

import numpy as np
import pytest

from eesvm import InputError
from eesvm.cli import main
from eesvm.datasets import write_voc
from eesvm.datasets.scenes import make_scenes
from eesvm.structures import Windows
from eesvm.windows import grid_windows, read_windows, write_windows

QUICK = ["--mode", "single", "--jobs", "1"]


def test_scenes_and_their_recall(capsys, tmp_path):
    out = tmp_path / "windows.npz"
    arguments = ["windows", "scenes", "--split", "test", "--sample", "5", "-o", str(out), "--ground-truth", *QUICK]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert text.startswith("scenes")
    assert "images             5\n" in text
    assert "windows per image  " in text
    assert "recall at IoU 0.5" in text
    assert "recall at IoU 0.7" in text
    assert {line.split()[0] for line in text.splitlines() if line.endswith(tuple("0123456789"))} >= {"three", "total"}
    found = read_windows(out)
    assert [w.image_id for w in found] == [f"test_{k:04d}" for k in (0, 12, 24, 36, 48)]
    assert all(w.instance[0] == 0 and (w.instance == -1).sum() > 20 for w in found)
    assert main(arguments) == 1
    assert capsys.readouterr().err == (
        f"eesvm: error: {out} already exists: choose another name or allow overwriting it (--overwrite)\n"
    )
    assert main([*arguments, "--overwrite", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_writing_the_objects_too_does_not_change_the_recall(capsys, tmp_path):
    folder = tmp_path / "set"
    dataset = make_scenes(2, 0)
    exact = grid_windows(dataset[0].width, dataset[0].height, 50)[7]
    objects = (replace(dataset[0].instances[0], box=tuple(exact), mask=None),)
    write_voc(replace(dataset, images=(replace(dataset[0], instances=objects), dataset[1])), folder)
    arguments = ["windows", str(folder), "--method", "grid", "--max-windows", "50", "--jobs", "1"]
    texts = []
    for more in ([], ["--ground-truth", "-o", str(tmp_path / "w.npz")]):
        assert main([*arguments, *more]) == 0
        texts.append([line for line in capsys.readouterr().out.splitlines() if "recall" in line or "total" in line])
    assert texts[0] == texts[1]
    assert texts[0]


def test_a_second_run_reads_the_cache(capsys, tmp_path):
    arguments = ["windows", "scenes", "--sample", "2", "--cache", str(tmp_path / "cache"), *QUICK]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    assert len(list(tmp_path.glob("cache/*/*.npy"))) == 2
    assert main(arguments) == 0
    assert capsys.readouterr().out == first


def test_a_folder_with_a_broken_image(capsys, tmp_path):
    folder = tmp_path / "set"
    write_voc(make_scenes(3, 0), folder)
    broken = next((folder / "JPEGImages").glob("*1.*"))
    broken.write_bytes(broken.read_bytes()[:2000])
    assert main(["windows", str(folder), "--method", "grid", "--max-windows", "50", "--jobs", "1"]) == 0
    text = capsys.readouterr().out
    assert "windows per image  50\n" in text
    assert "1 problem\n" in text
    assert f"  {broken}: it is broken: " in text
    assert main(["windows", str(folder), "--method", "grid", "--jobs", "1", "--strict"]) == 1
    assert str(broken) in capsys.readouterr().err


def test_a_folder_called_scenes_goes_before_the_embedded_ones(capsys, tmp_path, monkeypatch):
    write_voc(make_scenes(2, 0, classes=["nine"]), tmp_path / "scenes")
    monkeypatch.chdir(tmp_path)
    assert main(["windows", "scenes", "--method", "grid", "--max-windows", "50", "--jobs", "1"]) == 0
    assert "images             2\n" in capsys.readouterr().out


def test_an_output_that_cannot_be_written_is_refused_before_any_work(capsys, tmp_path, monkeypatch):
    (tmp_path / "folder.npz").mkdir()
    monkeypatch.setattr("eesvm.cli.windows.propose_dataset", None)
    for out, sentence in (
        (tmp_path / "folder.npz", "cannot write {out}: it is a folder"),
        (tmp_path / "no" / "w.npz", "cannot create {out}: its folder does not exist"),
    ):
        assert main(["windows", "scenes", "-o", str(out), "--overwrite"]) == 1
        assert capsys.readouterr().err == f"eesvm: error: {sentence.format(out=out)}\n"


@pytest.mark.parametrize(
    ("status", "arguments", "sentence"),
    [
        (1, ["nowhere"], "nowhere does not exist"),
        (2, ["scenes", "-o", "windows.csv"], "`--output` must end in .npz, got windows.csv"),
        (2, ["scenes", "--jobs", "0"], "--jobs must be a number of processes or -1 for one per core, got 0"),
    ],
)
def test_errors_are_one_line(status, arguments, sentence, capsys):
    assert main(["windows", *arguments]) == status
    assert capsys.readouterr().err == f"eesvm: error: {sentence}\n"


def test_help_has_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["windows", "--help"])
    assert "eesvm windows scenes --split test" in capsys.readouterr().out


def test_files_of_windows_round_trip(tmp_path):
    path = tmp_path / "w.npz"
    tables = [np.array([[0.0, 0, 2.5, 3], [1, 1, 2, 2]]), np.empty((0, 4)), np.array([[1.0, 2, 3, 4]])]
    ids = [np.array([3, -1]), np.empty(0, dtype=np.int64), np.array([-1])]
    stored = [Windows(f"ü {k}", t, i) for k, (t, i) in enumerate(zip(tables, ids, strict=True))]
    write_windows(path, stored)
    for one, other in zip(stored, read_windows(path), strict=True):
        assert one.image_id == other.image_id
        assert (one.boxes == other.boxes).all()
        assert (one.instance == other.instance).all()
    write_windows(path, [])
    assert read_windows(path) == []


def test_files_that_are_no_windows_are_refused(tmp_path):
    path = tmp_path / "w.npz"
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"w\.npz does not hold windows"):
        read_windows(path)
    np.savez(path, boxes=np.zeros((2, 4)))
    with pytest.raises(InputError, match=r"w\.npz does not hold windows"):
        read_windows(path)
    np.savez(path, image_ids=np.array([{}]), starts=[0, 1], boxes=np.zeros((1, 4)), instance=[0])  # would need pickle
    with pytest.raises(InputError, match=r"w\.npz does not hold windows"):
        read_windows(path)
    np.savez(path, image_ids=["a"], starts=[0, 3], boxes=np.zeros((2, 4)), instance=[0, 0])
    with pytest.raises(InputError, match=r"w\.npz holds arrays that do not belong together"):
        read_windows(path)
