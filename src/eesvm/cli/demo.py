"""`eesvm demo`: everything on a real table that comes with the package, without a network.

In: nothing but a folder to write. Out: that folder, with a report to open in a browser.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from eesvm._files import atomic_folder, atomic_write, check_output_folder
from eesvm.calibration.joint import JointCalibrator
from eesvm.cli.arguments import Parsers, add_verb
from eesvm.cli.calibrate import fit
from eesvm.cli.console import Screen
from eesvm.cli.demo_report import SEARCH_HEADER, Search, demo_page, introduction
from eesvm.cli.outputs import Comparison, report_comparison, report_result, write_calibration, write_comparison
from eesvm.example_tables import DigitExample, digit_score_table
from eesvm.experiments.window_tables import ACROSS_IMAGES, OWN_IMAGE, compare_calibrators
from eesvm.report.demo_page import render
from eesvm.report.figures import coverage, save_png, thresholds_and_scores
from eesvm.score_tables import write_score_table

_SECONDS = 20.0  # for each search
_HELP = """\
The table: every training image of one handwritten digit is a detector of it; which thresholds find all images of that
digit with the fewest others? All searches and calibrators run, and report.html shows what they did.

example:
  eesvm demo -o demo
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(verbs, "demo", run, "calibrate a built-in table of handwritten digits and write a report", _HELP)
    parser.add_argument("-o", "--output", default="demo", metavar="OUT", help="folder to write (default: demo)")
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if eesvm wrote it")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")


def run(arguments: argparse.Namespace) -> int:
    started = time.perf_counter()
    screen = Screen(arguments.quiet)
    check_output_folder(arguments.output, arguments.overwrite)
    example = digit_score_table()
    screen.say(introduction(example))
    searches = _search(example, screen)
    comparison = _compare(example, screen)
    with atomic_folder(arguments.output, arguments.overwrite) as folder:
        _write(folder, example, searches, comparison)
    screen.say(
        f"\nDone in {time.perf_counter() - started:.0f} s. Open {Path(arguments.output, 'report.html')} in a browser."
    )
    screen.say(f"Next: eesvm calibrate {Path(arguments.output, 'train.npz')} -o calibrated --across-groups")
    screen.say("or the same with a table of your own; eesvm calibrate --help says what it should look like.")
    return 0


def _search(example: DigitExample, screen: Screen) -> list[Search]:
    """Both variants of the problem by each method; the last one is what the report is about."""
    searches = []
    for variant in (OWN_IMAGE, ACROSS_IMAGES):
        for method in ("greedy", "algorithm1", "exact"):
            calibrator = JointCalibrator(method=method, time_limit=_SECONDS)
            problem = fit(example.train, calibrator, screen, variant == ACROSS_IMAGES, f"{variant}, {method}")
            searches.append(Search(variant, calibrator, problem))
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
    report_comparison(tables, screen)
    return Comparison(tables, test)


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
