"""A second process that compiles ahead: where there is one, what it does, and that it never outlives its parent."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from eesvm._support import ahead
from eesvm._support.compile import kernel
from eesvm.calibration.search.dive_kernels import dive

MODULE = """
import time
from pathlib import Path
def leave_a_note():
    Path(__file__).with_name("note").write_text("done")
def take_long():
    Path(__file__).with_name("pid").write_text(str(__import__("os").getpid()))
    time.sleep(600)
def fail():
    raise RuntimeError("nobody hears this")
"""
PARENT = """
import sys, time
from eesvm._support import ahead
ahead._is_missing = lambda kernel: True
ahead.n_cores = lambda: 2
with ahead.compiled_ahead("rehearsed:take_long", None):
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A place with a module that helpers find; two cores, and nothing compiled yet."""
    (tmp_path / "rehearsed.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setattr(ahead, "n_cores", lambda: 2)
    monkeypatch.setattr(ahead, "_is_missing", lambda kernel: True)
    return tmp_path


def test_it_runs_what_it_is_told_and_failures_are_its_own(folder, capfd):
    for name, status in (("leave_a_note", 0), ("fail", 1)):
        with ahead.compiled_ahead(f"rehearsed:{name}", dive) as helper:
            assert helper.wait(60) == status
    assert (folder / "note").read_text() == "done"
    assert capfd.readouterr() == ("", "")


def test_it_ends_with_the_block(folder):
    with ahead.compiled_ahead("rehearsed:take_long", dive) as helper:
        assert helper.poll() is None
    assert helper.poll() is not None


def test_there_is_none_on_a_single_core(folder, monkeypatch):
    monkeypatch.setattr(ahead, "n_cores", lambda: 1)
    with ahead.compiled_ahead("rehearsed:leave_a_note", dive) as helper:
        assert helper is None


def test_a_machine_that_has_no_room_for_it_does_without(folder, monkeypatch):
    def refuse(*arguments, **options):
        raise OSError(11, "no more processes")

    monkeypatch.setattr(ahead.subprocess, "Popen", refuse)
    with ahead.compiled_ahead("rehearsed:leave_a_note", dive) as helper:
        assert helper is None


def test_it_looks_into_the_cache_of_the_kernel(tmp_path):
    path = tmp_path / "tried.py"
    path.write_text("def add(a, b):\n    return a + b\n")
    names = {"__name__": "tried", "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), names)
    add = kernel()(names["add"])
    assert ahead._is_missing(add)
    assert add(1, 2) == 3
    assert not ahead._is_missing(add)
    assert not ahead._is_missing(names["add"])  # not a kernel: nothing is kept of it


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_it_does_not_survive_a_parent_that_is_killed(folder):
    parent = subprocess.Popen([sys.executable, "-c", PARENT], start_new_session=True)
    try:
        note = folder / "pid"
        assert _until(lambda: note.exists() and note.read_text() != "")
        helper = note.read_text()
        assert _is_alive(helper)
        parent.kill()
        parent.wait()
        assert _until(lambda: not _is_alive(helper))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)


def _is_alive(pid):
    """Whether there is such a process that has not ended, reaped or not."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _until(is_so, seconds=60):
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


REHEARSED = """
import sys
from eesvm.calibration.search import ascent_kernels, dive_kernels, neighbourhood_kernels
from eesvm.cli.demo import rehearsal, scores
from eesvm.cli.console import Screen
rehearsal.scores()
rehearsal.compile_dive()
kernels = [neighbourhood_kernels.make_moves, neighbourhood_kernels.start_from, neighbourhood_kernels.cover_first]
kernels += [neighbourhood_kernels.settle, dive_kernels.least_costs, dive_kernels.dive]
kernels += [ascent_kernels.exact_values, ascent_kernels.undominated, ascent_kernels.by_negative]
before = [set(kernel.signatures) for kernel in kernels]
assert all(before), before
scores._SECONDS = 0.5
scores._search(scores.digit_score_table(), Screen(quiet=True), None)
after = [set(kernel.signatures) for kernel in kernels]
assert after == before, [new - old for new, old in zip(after, before)]
"""


@pytest.mark.long
def test_the_rehearsal_compiles_what_the_demo_will_ask_for():
    done = subprocess.run([sys.executable, "-c", REHEARSED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_who_needs_a_kernel_waits_while_the_helper_may_compile_it(folder, monkeypatch):
    looks = []

    def is_missing(kernel):
        looks.append(kernel)
        return len(looks) < 4

    ahead.wait_for(None, dive)  # nobody to wait for
    with ahead.compiled_ahead("rehearsed:take_long", dive) as helper:
        monkeypatch.setattr(ahead, "_is_missing", is_missing)
        ahead.wait_for(helper, dive)
        assert looks == [dive] * 4
        monkeypatch.setattr(ahead, "_is_missing", lambda kernel: True)
        ahead.wait_for(helper, dive, seconds=0.2)  # not for ever
        helper.kill()
        helper.wait()
        ahead.wait_for(helper, dive)  # nor for one that has ended
