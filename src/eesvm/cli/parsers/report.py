"""What `eesvm report` takes.

In: the set of verbs. Out: the parser of this one, in it.
"""

from __future__ import annotations

from eesvm.cli.arguments import Parsers, add_annotations_argument, add_unlabelled_argument, add_verb, number
from eesvm.detector.options import CALIBRATORS

_HELP = f"""\
MODEL is what `eesvm train` wrote, DATA what `eesvm data info` takes, or the word scenes. Without --detections the
images of DATA are searched as `eesvm detect` does. Where they are annotated, the report judges every detection; where
they are not, it shows what was found. The page is one file: no network, nothing beside it.

The N best detections are shown (--max-detections), as far as possible equally many of each class; figures and curves
are of all. --frontier S searches thresholds for lower recall floors, S seconds for each floor of each class, and shows
how much of the calibration loss a few hard positives cost.

Calibrators: {", ".join(CALIBRATORS)}. With --detections, --calibrator says which one made them.

example:
  eesvm report model VOCdevkit/VOC2007 --split test -o report.html
  eesvm report model photographs/ --detections found/detections.csv --title "Holiday" -o report.html
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(verbs, "report", "report:run", "write a page that shows what a model finds, and why", _HELP)
    add = parser.add_argument
    add("model", metavar="MODEL", help="folder that `eesvm train` wrote")
    add("data", metavar="DATA", help="folder or file of a dataset, a folder of images, or the word scenes")
    add("-o", "--output", required=True, metavar="OUT", help=".html file to write")
    add("--split", metavar="NAME", help="only the images of this split")
    add_annotations_argument(parser)
    add_unlabelled_argument(parser)
    add("--detections", metavar="FOUND", help="what `eesvm detect` found there: .csv, .json, or a folder of VOC files")
    add("--calibrator", metavar="NAME", help="another calibrator than that of the model")
    add("--title", metavar="T", help="of the page (default: made from the classes)")
    add("--max-detections", type=number(minimum=1, integer=True), default=500, metavar="N",
        help="most detections to show (default: 500)")  # fmt: skip
    add("--frontier", type=number(minimum=0), metavar="S", help="seconds for each lower recall floor (default: none)")
    add("--jobs", type=number(minimum=1, integer=True), metavar="N", help="processes and threads (default: all cores)")
    add("--cache", metavar="FOLDER", help="keep windows here (default: the one of `eesvm cache`)")
    add("--no-cache", action="store_true", help="keep no windows")
    add("--overwrite", action="store_true", help="replace OUT if it exists")
    add("--quiet", action="store_true", help="print nothing but errors")
