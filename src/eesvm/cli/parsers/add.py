"""What `eesvm add` takes.

In: the set of verbs. Out: the parser of this one, in it.
"""

from __future__ import annotations

import argparse

from eesvm.cli.arguments import Parsers, add_annotations_argument, add_unlabelled_argument, add_verb, number

DEFAULT_SECONDS = 5.0
_HELP = """\
DATA is what `eesvm data info` takes, or a folder that `eesvm serve MODEL --review FOLDER` wrote. Each object becomes an
exemplar, trained against the negatives that the model keeps and those of the new images; objects that are exemplars
already are left out. A class that the model lacks becomes one of its classes. What a review has rejected becomes a hard
negative. Exemplars there are keep their weights; thresholds are searched again, starting from those there are.
Everything in the images of DATA that is not annotated is taken for background.

example:
  eesvm add model more_photos
  eesvm add model reviews -o better
  eesvm add model VOCdevkit/VOC2007 --split val --classes cat --time-limit 30
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(verbs, "add", "add:run", "add exemplars of new objects, or of a new class, to a model", _HELP)
    add = parser.add_argument
    add("model", metavar="MODEL", help="folder that `eesvm train` wrote")
    add("data", metavar="DATA", help="folder or file of a dataset, or of a review")
    add("-o", "--output", metavar="OUT", help="write the new model here (default: in the place of MODEL)")
    add_annotations_argument(parser)
    add_unlabelled_argument(parser)
    add("--split", metavar="NAME", help="only the images of this split")
    add("--classes", metavar="A,B,...", help="add only objects of these classes (default: all)")
    add_change_arguments(parser)
    add("--cache", metavar="FOLDER", help="keep windows and descriptors here (default: the one of `eesvm cache`)")
    add("--no-cache", action="store_true", help="keep none")
    add("--quiet", action="store_true", help="print nothing but errors")


def add_change_arguments(parser: argparse.ArgumentParser) -> None:
    """What `add` and `drop` share."""
    parser.add_argument(
        "--time-limit",
        type=number(minimum=0),
        default=DEFAULT_SECONDS,
        metavar="S",
        help=f"seconds for the search of a class (default: {DEFAULT_SECONDS:g})",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if it exists and eesvm wrote it")
