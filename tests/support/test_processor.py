"""Which kernels OpenBLAS is told to take: none where it knows better, or was told already."""

import os
import subprocess
import sys

import pytest

from eesvm._support import processor
from eesvm._support.processor import KERNELS, VARIABLE, choose_kernels

FLAGS = "fpu avx2 fma avx512f avx512bw avx512cd avx512dq avx512vl avx512_vnni"
NEW = f"processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nflags\t\t: {FLAGS}\n\nprocessor\t: 1\nvendor_id\t: X\n"


@pytest.fixture
def chosen(tmp_path, monkeypatch):
    """What is chosen for a description."""
    modules = {name: module for name, module in sys.modules.items() if name != "numpy"}

    def choose(text, loaded=modules):
        monkeypatch.delenv(VARIABLE, raising=False)
        monkeypatch.setattr(processor.sys, "modules", loaded)
        (tmp_path / "cpuinfo").write_text(text)
        choose_kernels(tmp_path / "cpuinfo")
        return os.environ.pop(VARIABLE, None)

    yield choose
    monkeypatch.undo()


def test_a_processor_that_came_later_gets_wide_kernels(chosen):
    assert chosen(NEW) == KERNELS


@pytest.mark.parametrize(
    "text",
    [
        NEW.replace("AuthenticAMD", "GenuineIntel"),
        NEW.replace(": 26", ": 25"),
        NEW.replace(": 26", ": new"),
        NEW.replace(" avx512vl", ""),
        NEW.replace("vendor_id\t: AuthenticAMD\n", ""),
        "nothing of the kind\n",
        "",
    ],
)
def test_all_others_are_left_alone(chosen, text):
    assert chosen(text) is None


def test_too_late_is_left_alone(chosen):
    assert chosen(NEW, {**sys.modules, "numpy": object()}) is None


def test_a_system_that_says_nothing_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    choose_kernels(tmp_path / "missing")
    assert VARIABLE not in os.environ


def test_who_has_chosen_is_left_alone(tmp_path):
    (tmp_path / "cpuinfo").write_text(NEW)
    line = "import os, sys; from eesvm._support.processor import *; choose_kernels(sys.argv[1]); print(os.environ[VARIABLE])"
    for environment, expected in (({VARIABLE: "Haswell"}, "Haswell"), ({}, KERNELS)):
        rest = {name: value for name, value in os.environ.items() if name != VARIABLE}
        done = subprocess.run(
            [sys.executable, "-c", line, str(tmp_path / "cpuinfo")],
            env=rest | environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected
