"""Long work that is killed, runs out of room, or is done twice at once: nothing is lost, and the result is the same."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest

from eesvm.datasets import write_voc
from helpers.detector_scenes import scenes

QUICK = [
    *("--descriptor", "hog", "--mode", "single", "--jobs", "1"),
    *(
        "--set",
        "descriptor.n_components=none",
        "--set",
        "descriptor.kernel_map=none",
        "--set",
        "calibration.time_limit=none",
        "--calibrator",
        "all",
    ),
]
N_KILLS = 20


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("endurance") / "data"
    write_voc(scenes("train", 8), folder)
    return folder


def command(data, model, cache):
    return [sys.executable, "-m", "eesvm", "train", str(data), *QUICK, "--cache", str(cache), "-o", str(model)]


def run(*arguments, **options):
    return subprocess.run(command(*arguments), capture_output=True, text=True, check=False, **options)


def contents(model):
    """Every file of a model to the byte, less what tells when it was made and how long a search took."""
    files = {str(p.relative_to(model)): p.read_bytes() for p in sorted(model.rglob("*")) if p.is_file()}
    del files["run.json"]
    for name in [name for name in files if name.endswith("search.json")]:
        files[name] = [point[1:] for point in json.loads(files[name])["history"]]
    return files


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    """A model that was made in one go, and the seconds it took."""
    folder = tmp_path_factory.mktemp("undisturbed")
    started = time.monotonic()
    assert run(data, folder / "model", folder / "cache").returncode == 0
    return contents(folder / "model"), time.monotonic() - started


@pytest.mark.slow
def test_twenty_kills_at_random_moments_change_nothing(data, undisturbed, tmp_path):
    expected, seconds = undisturbed
    moments = random.Random(0)
    model, cache = tmp_path / "model", tmp_path / "cache"
    n_killed, done = 0, {}
    while n_killed < N_KILLS:
        process = subprocess.Popen(
            command(data, model, cache),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # the processes that it starts die with it, as they would when a machine goes down
        )
        try:
            process.wait(moments.uniform(0, seconds))
            assert process.returncode == 0  # it has finished; from the beginning, then, with what is in the cache
            assert contents(model) == expected
            subprocess.run(["rm", "-r", str(model)], check=True)
            done = {}
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            n_killed += 1
        finished = parts(model)
        assert all(finished[name] == when for name, when in done.items()), "what is finished is not done again"
        done = finished
    assert run(data, model, cache).returncode == 0
    assert contents(model) == expected
    assert not [path for path in (*model.rglob("*"), *cache.rglob("*")) if path.name.endswith(".part")]


def parts(model):
    """When each file of a finished part was written."""
    try:
        found = json.loads((model / "run.json").read_text())["parts"]
    except FileNotFoundError:
        return {}
    return {name: (model / name).stat().st_mtime_ns for part in found.values() for name in part["files"]}


@pytest.mark.slow
@pytest.mark.parametrize("n_bytes", [2_000, 60_000])
def test_a_full_disk_stops_it_with_a_sentence_and_nothing_half_written(data, undisturbed, tmp_path, n_bytes):
    """No file may grow beyond so many bytes, as on a disk on which that is left."""
    model, cache = tmp_path / "model", tmp_path / "cache"
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))  # noqa: E731
    stopped = run(data, model, cache, preexec_fn=limit)
    assert stopped.returncode == 1
    *warnings, error = stopped.stderr.splitlines()
    assert error.startswith("eesvm: error: ")
    assert "File too large" in error
    if warnings:  # the run goes on without its cache
        assert warnings == [f"the cache {cache} cannot be written (File too large): results are computed but not kept"]
    assert not list(model.rglob("*.part"))
    assert not (model / "model.json").exists()
    assert run(data, model, cache).returncode == 0
    assert contents(model) == undisturbed[0]


@pytest.mark.slow
def test_two_runs_share_a_cache(data, undisturbed, tmp_path):
    cache = tmp_path / "cache"
    both = [subprocess.Popen(command(data, tmp_path / name, cache), stdout=subprocess.DEVNULL) for name in ("a", "b")]
    assert [process.wait() for process in both] == [0, 0]
    assert contents(tmp_path / "a") == contents(tmp_path / "b") == undisturbed[0]
