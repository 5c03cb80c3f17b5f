"""What `eesvm windows` takes.

In: the set of verbs. Out: the parser of this one, in it.
"""

from __future__ import annotations

from eesvm.cli.arguments import Parsers, add_annotations_argument, add_verb, number
from eesvm.windows.settings import METHODS, MODES

_HELP = """\
PATH is what `eesvm data info` takes, or the word scenes for the embedded scenes, which need no download.
Recall is the share of the objects with a window that overlaps them by at least that IoU; difficult objects and groups
do not count. An image that cannot be read is skipped and listed.

example:
  eesvm windows scenes --split test
  eesvm windows VOCdevkit/VOC2007 --split trainval --jobs 4 -o windows.npz
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(
        verbs, "windows", "windows:run", "propose windows and say how many of the objects they find", _HELP
    )
    add = parser.add_argument
    add("path", metavar="PATH", help="folder or file of a dataset, or the word scenes")
    add_annotations_argument(parser)
    add("--split", metavar="NAME", help="only the images of this split")
    add("--sample", type=number(minimum=1, integer=True), metavar="N", help="only N images, evenly spread")
    add("--method", choices=METHODS, default=METHODS[0], help=f"where windows come from (default: {METHODS[0]})")
    add("--mode", choices=MODES, default=MODES[0], help=f"of selective search (default: {MODES[0]})")
    add("--max-windows", type=number(minimum=1, integer=True), default=2000, metavar="N", help="per image (2000)")
    add("--min-size", type=number(minimum=1), default=10.0, metavar="PIXELS", help="of both sides (10)")
    add("--working-size", type=number(minimum=16, integer=True), default=500, metavar="PIXELS",
        help="longest side of an image while it is segmented (500)")  # fmt: skip
    add("--time-budget", type=number(minimum=0), metavar="MS",
        help="start no further segmentation of an image after MS milliseconds")  # fmt: skip
    add("--ground-truth", action="store_true", help="put the boxes of the objects into FILE, too")
    add(
        "--jobs",
        type=number(minimum=-1, integer=True),
        default=-1,
        metavar="N",
        help="images at the same time (default: one per core)",
    )
    add("--cache", nargs="?", const="", metavar="FOLDER",
        help="keep windows here and do not compute them again (without FOLDER: the one of `eesvm cache`)")  # fmt: skip
    add("-o", "--output", metavar="FILE", help=".npz file for the windows")
    add("--overwrite", action="store_true", help="replace FILE if it exists")
    add("--strict", action="store_true", help="stop at the first image or annotation that is wrong")
    add("--quiet", action="store_true", help="print nothing but errors")
