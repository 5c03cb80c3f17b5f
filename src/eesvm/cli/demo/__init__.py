"""`eesvm demo`: everything on what comes with the package, without a network.

In: nothing but a folder to write. Out: that folder, with a report to open in a browser.
"""

from __future__ import annotations

import argparse

from eesvm._support.files import check_output_folder
from eesvm.cli.arguments import Parsers, add_verb
from eesvm.cli.console import Screen
from eesvm.cli.demo import scenes as demo_scenes
from eesvm.cli.demo import scores as demo_scores

_HELP = """\
Scenes with handwritten digits among clutter: an exemplar is trained for every digit of the training scenes, all of a
class are calibrated together, and the test scenes are searched with every calibration. report.html shows what they
found, which training object each detection looks like, and what was carried over from it. About two minutes.

With --scores no image is touched: the thresholds of detectors whose scores are given, as for any other OR of detectors.

example:
  eesvm demo -o demo
  eesvm demo --scores -o scores
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(verbs, "demo", run, "train, calibrate and detect on built-in scenes and write a report", _HELP)
    parser.add_argument("-o", "--output", default="demo", metavar="OUT", help="folder to write (default: demo)")
    parser.add_argument("--scores", action="store_true", help="calibrate a built-in table of scores instead")
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if eesvm wrote it")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")


def run(arguments: argparse.Namespace) -> int:
    check_output_folder(arguments.output, arguments.overwrite)
    job = demo_scores.run if arguments.scores else demo_scenes.run
    job(arguments.output, arguments.overwrite, Screen(arguments.quiet), arguments.quiet)
    return 0
