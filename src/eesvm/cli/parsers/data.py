"""What `eesvm data` takes.

In: the set of verbs. Out: the parser of this one, in it.
"""

from __future__ import annotations

import argparse

from eesvm.cli.arguments import Parsers, add_annotations_argument, add_unlabelled_argument, add_verb
from eesvm.datasets.build import CHECKS
from eesvm.datasets.fetch import COLLECTIONS

_HELP = """\
example:
  eesvm data info VOCdevkit/VOC2007 --split trainval
  eesvm data fetch voc2007 -o .
"""
_INFO_HELP = """\
PATH is a folder with PASCAL VOC, ILSVRC, COCO or YOLO annotations or with images alone, a COCO .json or a YOLO .yaml.
What is wrong in its files is listed, with file and line, and left out; the status is 0 unless --strict is given. Of
many problems of one kind the first are listed; --json lists all.

example:
  eesvm data info VOCdevkit/VOC2007 --split trainval --check full
"""
_FETCH_HELP = """\
An interrupted download is resumed when the command is run again. Archives are checked before they are
unpacked, and removed after it.

example:
  eesvm data fetch voc2007 -o data && eesvm data info data/VOCdevkit/VOC2007
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(verbs, "data", None, "look at a dataset, or fetch an official one", _HELP)
    own = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_info(add_verb(own, "info", "data:run_info", "print what a dataset holds and every problem in it", _INFO_HELP))
    _add_fetch(add_verb(own, "fetch", "data:run_fetch", "download an official dataset and check it", _FETCH_HELP))


def _add_info(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("path", metavar="PATH", help="folder or file of a dataset")
    add_annotations_argument(parser)
    add_unlabelled_argument(parser)
    add("--split", metavar="NAME", help="only the images of this split")
    add("--classes", metavar="A,B,...", help="the class list; objects of other classes are problems")
    add("--check", choices=CHECKS, default="header", help="of the images: open each (header), decode each (full)")
    add("--images", metavar="FOLDER", help="folder of the images, where VOC or COCO annotations lie elsewhere")
    add("--first-pixel", type=int, choices=(0, 1), help="where VOC boxes start to count (default: 1)")
    add("--strict", action="store_true", help="status 1 if there is any problem")
    add("--json", action="store_true", help="print everything as JSON")


def _add_fetch(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", metavar="NAME", choices=tuple(COLLECTIONS), help=f"one of {', '.join(COLLECTIONS)}")
    add("-o", "--output", required=True, metavar="FOLDER", help="where to put it")
    add("--part", action="append", metavar="PART", help="trainval or test; may be repeated (default: all)")
    add("--base-url", metavar="URL", help="a mirror that has the same files")
    add("--keep-archives", action="store_true", help="leave the archives in FOLDER")
    add("--quiet", action="store_true", help="print nothing but errors")
