"""`eesvm demo --scores`: every search and calibrator on a real table of scores that comes with the package.

In: a folder to write. Out: that folder, with a report to open in a browser.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from eesvm._support.ahead import wait_for
from eesvm._support.figures import save_png
from eesvm._support.files import atomic_folder, atomic_write
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.calibration.search.ascent_kernels import positives_reply
from eesvm.calibration.tables.examples import DigitExample, digit_score_table
from eesvm.calibration.tables.score_table import write_score_table
from eesvm.cli.calibrate import fit
from eesvm.cli.console import Screen
from eesvm.cli.demo.rehearsal import compile_dive, compile_sigmoids
from eesvm.cli.demo.scores_report import SEARCH_HEADER, Search, demo_page, introduction
from eesvm.cli.outputs import Comparison, report_comparison, report_result, write_calibration, write_comparison
from eesvm.experiments.tables.windows import ACROSS_IMAGES, OWN_IMAGE, compare_calibrators
from eesvm.report.figures import coverage, thresholds_and_scores
from eesvm.report.static_page import render

_SECONDS = 20.0  # for each search
_METHODS = ("greedy", "algorithm1", "exact")


def run(
    output: str, overwrite: bool, screen: Screen, quiet: bool, helper: subprocess.Popen[bytes] | None = None
) -> None:
    started = time.perf_counter()
    example = digit_score_table()
    screen.say(introduction(example))
    if helper is not None:
        screen.say("The first run compiles the searches, which takes half a minute.")
        compile_dive()  # meanwhile the helper compiles the rest of the exact method
    searches = _search(example, screen, helper)
    comparison = _compare(example, screen)
    with atomic_folder(output, overwrite) as folder:
        _write(folder, example, searches, comparison)
    screen.say(f"\nDone in {time.perf_counter() - started:.0f} s. Open {Path(output, 'report.html')} in a browser.")
    screen.say(f"Next: eesvm calibrate {Path(output, 'train.npz')} -o calibrated --across-groups")
    screen.say("or the same with a table of your own; eesvm calibrate --help says what it should look like.")


def _search(example: DigitExample, screen: Screen, helper: subprocess.Popen[bytes] | None) -> list[Search]:
    """Both variants of the problem by each method; the last one is what the report is about."""
    found = {}
    for method in _METHODS:
        if method == "exact" and helper is not None:
            compile_sigmoids()  # needed later, and there is time for it
            wait_for(helper, positives_reply)  # the last that the helper compiles
        for variant in (OWN_IMAGE, ACROSS_IMAGES):
            calibrator = JointCalibrator(method=method, time_limit=_SECONDS)
            problem = fit(example.train, calibrator, screen, variant == ACROSS_IMAGES, f"{variant}, {method}")
            found[variant, method] = Search(variant, calibrator, problem)
    searches = [found[variant, method] for variant in (OWN_IMAGE, ACROSS_IMAGES) for method in _METHODS]
    screen.say()
    screen.table(SEARCH_HEADER, [search.row() for search in searches])
    screen.say(f"\nThe last of them, {ACROSS_IMAGES}:")
    report_result(searches[-1].calibrator, searches[-1].problem, screen)
    return searches


def _compare(example: DigitExample, screen: Screen) -> Comparison:
    train, test = example.train, example.test
    with screen.searching("comparing") as progress:
        tables = compare_calibrators(
            train.scores,
            train.labels,
            test.scores,
            test.labels,
            train.groups,
            test.groups,
            train.exemplar_groups,
            time_limit=_SECONDS,
            progress=progress,
        )
    comparison = Comparison(tables, test)
    report_comparison(comparison, screen)
    return comparison


def _write(folder: Path, example: DigitExample, searches: list[Search], comparison: Comparison) -> None:
    best = searches[-1]
    result = best.calibrator.result_
    write_calibration(folder, best.calibrator, best.problem, example.train.names)
    write_comparison(folder, comparison)
    write_score_table(folder / "train.npz", example.train)
    write_score_table(folder / "test.npz", example.test)
    save_png(thresholds_and_scores(best.problem, result.thresholds, example.train.names), folder / "thresholds.png")
    save_png(coverage(result.assignment, result.active), folder / "coverage.png")
    with atomic_write(folder / "report.html", text=True) as handle:
        handle.write(render(demo_page(folder, example, searches, comparison)))
