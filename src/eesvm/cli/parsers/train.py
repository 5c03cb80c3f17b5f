"""What `eesvm train` takes.

In: the set of verbs. Out: the parser of this one, in it.
"""

from __future__ import annotations

import argparse

from eesvm.cli.arguments import Parsers, add_annotations_argument, add_unlabelled_argument, add_verb, number
from eesvm.detector.options import CALIBRATORS, COVERAGES, DEFAULT_PRESET, DESCRIPTORS, PRESETS
from eesvm.windows.settings import METHODS, MODES

ALL = "all"
_HELP = f"""\
DATA is what `eesvm data info` takes, or the word scenes for the embedded scenes. Every object becomes an exemplar; its
class is calibrated so that at least a share of the positive windows is accepted with the fewest false positives.

Options come from a preset, then from --config FILE, a YAML file such as
  preset: paper
  training:
    C: 1.0e-4
then from the command line. --set takes any option by its dotted name: --set detection.nms=0.5 --set training.prior=none

--calibrator takes names joined by commas, or all: {", ".join(CALIBRATORS)}. The first is what
`detect` uses unless told otherwise; any other can also be fitted later, from the scores in the model folder.

MODEL may hold an earlier training of the same images: an interrupted one is resumed, and of a finished one what
changed options affect is recomputed in place. A model of other images, or with classes that are not trained now, is
replaced with --overwrite alone.

example:
  eesvm train scenes --split train -o model
  eesvm train VOCdevkit/VOC2007 --split trainval --classes cat,dog --preset paper -o model
  eesvm train VOCdevkit/VOC2007 --scheduler tcp://10.0.0.1:8786 --cache /shared/cache -o model
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(
        verbs, "train", "train:run", "train a detector: one exemplar per object, calibrated together", _HELP
    )
    add = parser.add_argument
    add("data", metavar="DATA", help="folder or file of a dataset, or the word scenes")
    add("-o", "--output", required=True, metavar="MODEL", help="model folder; an unfinished run is resumed")
    add_annotations_argument(parser)
    add_unlabelled_argument(parser)
    add("--split", metavar="NAME", help="only the images of this split")
    add_role_arguments(parser)
    add("--classes", metavar="A,B,...", help="train only these classes (default: all)")
    add("--preset", choices=tuple(PRESETS), help=f"start from these ({DEFAULT_PRESET}, or what --config names)")
    add("--config", metavar="FILE", help="YAML file of options")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="any option by its dotted name; repeatable")
    add("--calibrator", metavar="A,B,...", help=f"which to fit, or {ALL}; the first is used for detection")
    add("--coverage", choices=COVERAGES, help="whether an exemplar may cover windows of its own image")
    add("--min-recall", type=number(above=0, maximum=1), metavar="R", help="share of the positives to accept")
    add(
        "--time-limit",
        type=number(minimum=0),
        metavar="S",
        help="seconds for the search of a class, and no other limit",
    )
    add("--windows", choices=METHODS, help="where windows come from")
    add("--mode", choices=MODES, help="of selective search")
    add("--max-windows", type=number(minimum=1, integer=True), metavar="N", help="windows of an image")
    add("--descriptor", choices=DESCRIPTORS, help="how windows are described")
    add("--seed", type=number(minimum=0, integer=True), metavar="N", help="of all random choices")
    add("--jobs", type=number(minimum=1, integer=True), metavar="N", help="processes and threads (default: all cores)")
    add("--scheduler", metavar="ADDRESS", help="distribute the work: tcp://HOST:PORT of a Dask scheduler, or local")
    add("--memory", metavar="SIZE", help="memory limit of each process, such as 4GB; mapped files do not count")
    add("--cache", metavar="FOLDER", help="keep windows and descriptors here (default: the one of `eesvm cache`)")
    add("--no-cache", action="store_true", help="keep none; an interrupted run then computes them again")
    add(
        "--overwrite",
        action="store_true",
        help="replace a model of other images, or with classes that are left out now",
    )
    add("--strict", action="store_true", help="stop at the first annotation that is wrong")
    add("--profile", action="store_true", help="print how long each stage took")
    add("--quiet", action="store_true", help="print nothing but errors")


def add_role_arguments(parser: argparse.ArgumentParser) -> None:
    """Images in other roles than those to train and calibrate on."""
    add = parser.add_argument
    add("--network-data", metavar="DATA", help="images that the network was tuned on (default: what its file says)")
    add("--network-split", metavar="NAME", help="only this split of them; alone: of DATA")
    add(
        "--test-data",
        metavar="DATA",
        help="images to evaluate on later: one of them among those used for training is an error",
    )
    add("--test-split", metavar="NAME", help="only this split of them; alone: of DATA")
