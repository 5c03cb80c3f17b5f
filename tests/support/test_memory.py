"""Memory of a training: what the plan allows, and that a run keeps to it."""

import json
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from eesvm import ExemplarDetector, InputError
from eesvm._support.memory import LEAST, MemoryPlan, as_text, bytes_of
from eesvm.cli import main
from eesvm.detector.class_training import n_scored, score_class, train_class
from eesvm.detector.options import CalibrationOptions
from eesvm.detector.training_descriptor import training_windows
from helpers.detector_scenes import quick_options, scenes

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("4GB", 4 * GIB), ("4 gib", 4 * GIB), ("1.5g", 3 * GIB // 2), ("512MB", GIB // 2), ("2000", 2000), ("7kB", 7168)],
)
def test_amounts(text, n_bytes):
    assert bytes_of(text) == n_bytes


@pytest.mark.parametrize("text", ["", "much", "4 G B", "-1GB", "1e9", "GB", "4PB", "nan"])
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(InputError, match="an amount of memory is needed"):
        bytes_of(text)


@pytest.mark.parametrize("n_bytes", [2000, 7 << 10, 300 << 20, GIB, 5 << 40])
def test_amounts_for_people_can_be_read_again(n_bytes):
    assert bytes_of(as_text(n_bytes)) == pytest.approx(n_bytes, rel=0.01)


@pytest.mark.parametrize("n_bytes", [LEAST, 2 * GIB, 64 * GIB])
def test_stages_that_hold_memory_together_stay_within_the_plan(n_bytes):
    plan = MemoryPlan(n_bytes)
    assert plan.descriptors + plan.training < n_bytes
    assert 1 <= plan.n_processes(8) <= 8
    assert plan.n_processes(1) == 1


def test_more_memory_never_gives_less():
    plans = [MemoryPlan(n) for n in range(LEAST, 20 * GIB, GIB)]
    for first, second in pairwise(plans):
        assert first.descriptors < second.descriptors
        assert first.training < second.training
        assert first.n_processes(64) <= second.n_processes(64)


def test_a_plan_that_is_too_small_is_refused():
    with pytest.raises(InputError, match="`memory` must be 1 GB or more, got 100 MB"):
        MemoryPlan(100 << 20)


def test_a_calibration_that_cannot_fit_is_refused_and_named():
    plan = MemoryPlan(LEAST)
    plan.check_calibration("cat", 1000, 100, 0)
    with pytest.raises(
        InputError, match=r"the class 'cat', 2,000 exemplars on 50,000 windows.*calibration.max_negatives"
    ):
        plan.check_calibration("cat", 50_000, 2000, 0)
    with pytest.raises(InputError, match="allow more memory"):
        plan.check_calibration("cat", 1000, 100, LEAST)


@pytest.mark.long
@pytest.mark.parametrize("max_negatives", [None, 50])
def test_the_windows_to_be_scored_are_counted_right(max_negatives):
    options = quick_options()
    windows = training_windows(scenes("train", 4), options)
    name = windows.records[0].instances[0].class_name
    calibration = CalibrationOptions(max_negatives=max_negatives)
    trained = train_class(windows, name, options.training)
    assert n_scored(windows, name, calibration) == score_class(windows, trained, calibration).table.n_rows


MIB = 1 << 20


def leave(monkeypatch, n_bytes):
    """A plan of the least size leaves this much for windows, exemplars and scores."""
    monkeypatch.setattr("eesvm._support.memory._PYTHON", LEAST - n_bytes)


@pytest.mark.long
def test_descriptors_beyond_the_plan_are_mapped_and_the_model_is_the_same(monkeypatch, tmp_path):
    search = {"windows__method": "grid", "windows__max_windows": 150}
    dataset, options = scenes("train", 20), quick_options(**search, training__C=1e-3)
    windows = training_windows(dataset, options)
    assert windows.descriptors.nbytes > 20 * MIB  # held in memory, they would leave nothing for a calibration
    plain = ExemplarDetector(options).fit(dataset)
    leave(monkeypatch, 20 * MIB)
    small = ExemplarDetector(options).fit(dataset, memory="1GB", folder=tmp_path / "m")  # which keeps what add needs
    for one, other in zip(plain.models_, small.models_, strict=True):
        np.testing.assert_allclose(one.exemplars.coef_, other.exemplars.coef_, atol=1e-3)


@pytest.mark.long
def test_scores_that_no_folder_keeps_count(monkeypatch):
    dataset, options = scenes("train", 4), quick_options(calibration__shrink=None)  # no windows that judge it
    windows = training_windows(dataset, options)
    plain = ExemplarDetector(options).fit(dataset)
    first, last = sorted((model.read_scores().table for model in plain.models_), key=lambda table: table.scores.size)
    names = sorted(
        plain.classes_, key=lambda name: plain.models_[plain.classes_.index(name)].read_scores().table.scores.size
    )
    per_score = 30 * MIB // last.scores.size
    monkeypatch.setattr("eesvm._support.memory._SCORE", per_score)  # so that small tables fill the room
    kept = plain.models_[plain.classes_.index(names[0])].read_kept()
    held = first.scores.nbytes + kept.rows.nbytes + kept.hard.nbytes + kept.judged_rows.nbytes
    room = windows.descriptors.nbytes + held + per_score * last.scores.size
    leave(monkeypatch, room)
    ExemplarDetector(options).fit(dataset, names, memory="1GB")
    leave(monkeypatch, room - 1)
    with pytest.raises(InputError, match=rf"to calibrate the class '{names[-1]}', .* takes about"):
        ExemplarDetector(options).fit(dataset, names, memory="1GB")


@pytest.mark.long
def test_the_plan_holds_for_scores_of_an_earlier_run(tmp_path, monkeypatch):
    dataset, folder = scenes("train", 4), tmp_path / "model"
    ExemplarDetector(quick_options()).fit(dataset, folder=folder)
    monkeypatch.setattr("eesvm._support.memory._PYTHON", LEAST)
    with pytest.raises(InputError, match=r"to calibrate the class .* takes about"):
        ExemplarDetector(quick_options(calibration__min_recall=0.9)).fit(dataset, folder=folder, memory="1GB")


@pytest.mark.parametrize("memory", ["a lot", "10MB"])
def test_the_command_refuses_what_is_no_amount(memory, tmp_path, capsys):
    assert main(["train", "scenes", "-o", str(tmp_path / "model"), "--memory", memory]) == 2
    assert capsys.readouterr().err.startswith("eesvm: ")
    assert not (tmp_path / "model").exists()


_CHILD = """
import json, sys
from pathlib import Path
from eesvm.cli import main
code = main(sys.argv[1:])
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
print(json.dumps({"code": code, "peak": int(status["VmHWM"].split()[0]) * 1024}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc")
def test_a_training_keeps_to_its_limit(tmp_path):
    arguments = ["train", "scenes", "--split", "test", "-o", str(tmp_path / "model"), "--memory", "1GB", "--no-cache"]
    arguments += ["--jobs", "2", "--mode", "single", "--quiet", "--time-limit", "5"]
    done = subprocess.run([sys.executable, "-c", _CHILD, *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["code"] == 0
    assert found["peak"] < LEAST
