"""Progress without a terminal: a line for each stage and one a minute, with the time left."""

import io

import pytest

from eesvm.calibration.anytime import Progress
from eesvm.cli.console import SearchLines
from eesvm.cli.stages import StageLines, stage_bar


class Clock:
    seconds = 0.0

    def __call__(self):
        return self.seconds


def test_a_line_for_each_stage_and_one_a_minute():
    clock, lines = Clock(), []
    report = StageLines(lines.append, clock)
    for second in range(0, 181, 5):
        clock.seconds = float(second)
        report("windows", second, 200)
    clock.seconds = 190.0
    report("calibrating class 1 of 2: cat, gap 80.0 %", 0, 0)
    clock.seconds = 200.0
    report("calibrating class 1 of 2: cat, gap 40.0 %", 0, 0)
    clock.seconds = 251.0
    report("calibrating class 1 of 2: cat, gap 20.0 %", 0, 0)
    assert lines == [
        "[0 s] windows: 0 of 200\n",
        "[1 min 0 s] windows: 60 of 200, about 2 min 20 s left\n",
        "[2 min 0 s] windows: 120 of 200, about 1 min 20 s left\n",
        "[3 min 0 s] windows: 180 of 200, about 20 s left\n",
        "[3 min 10 s] calibrating class 1 of 2: cat, gap 80.0 %\n",
        "[4 min 11 s] calibrating class 1 of 2: cat, gap 20.0 %\n",
    ]


def test_a_search_says_a_line_a_minute():
    lines = []
    report = SearchLines("exact", lines.append)
    for second in (0.0, 1.0, 59.0, 61.0, 90.0, 122.0):
        report(Progress(second, 10.0, 5.0, 7, 180.0))
    assert lines == [
        "exact: loss 10, bound 5, gap 50.0 %, 7 nodes, 1 min 1 s, 1 min 59 s left\n",
        "exact: loss 10, bound 5, gap 50.0 %, 7 nodes, 2 min 2 s, 58 s left\n",
    ]


@pytest.mark.parametrize("quiet", [True, False])
def test_lines_go_where_errors_go_unless_nobody_wants_them(quiet, monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    with stage_bar(quiet) as report:
        if report is not None:
            report("descriptors", 1, 3)
    assert written.getvalue() == ("" if quiet else "[0 s] descriptors: 1 of 3\n")
