"""Compiling kernels, once in an installation, is no part of what a search may take."""

import os
import subprocess
import sys
import time

import pytest
from numba.core import event

from eesvm._support.compile import compile_seconds, inner, kernel
from eesvm.calibration.anytime import Run


def test_the_clock_stands_still_while_kernels_are_compiled(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    run, before = Run(time_limit=0.1), compile_seconds()
    with event.trigger_event("numba:compile"):
        now[0] += 30
        assert not run.is_out_of_time()  # nor for others, while it goes on
    assert compile_seconds() - before == pytest.approx(30)
    assert not run.is_out_of_time()
    now[0] += 0.2
    assert run.is_out_of_time()


@pytest.mark.slow
def test_a_short_limit_is_enough_in_a_new_installation(tmp_path):
    """By a clock that takes every kernel to need a minute of compiling, and all else a thousandth of what it does."""
    code = """
import time
from numba.core import event
from eesvm import solve
from eesvm.calibration.tables.examples import synthetic_score_table

class Minutes(event.Listener):  # hears of a kernel after the package does, so that the minute is within its compiling
    passed = 0

    def on_start(self, event):
        self.passed += 1

    def on_end(self, event):
        pass

table = synthetic_score_table(12, 200, 4000, "overlapping")
clock, minutes = time.perf_counter, Minutes()
time.perf_counter = lambda: 60 * minutes.passed + clock() / 1000
event.register("numba:compile", minutes)
result = solve(table.problem(), time_limit=4)
print(result.status, result.seconds < 4, minutes.passed > 0)
"""
    empty = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=empty)
    assert done.stdout == "optimal True True\n", done.stderr
    assert any(tmp_path.iterdir())  # it did compile


@pytest.mark.parametrize("decorator", [kernel, inner])
def test_a_decorator_without_parentheses_is_refused(decorator):
    def double(number):
        return 2 * number

    sentence = f"^write @{decorator.__name__}\\(\\) with its parentheses, and options by their names$"
    with pytest.raises(TypeError, match=sentence):
        decorator(double)
    assert decorator()(double)(3) == 6
