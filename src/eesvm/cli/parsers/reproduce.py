"""What `eesvm reproduce` takes.

In: the set of verbs. Out: the parser of this one, in it.
"""

from __future__ import annotations

from eesvm.cli.arguments import Parsers, add_annotations_argument, add_unlabelled_argument, add_verb, number
from eesvm.experiments.reproduction import SECONDS

AUTOMATIC = "automatic"
SCENE_IMAGES, DATA_IMAGES, CLASSES, SPLITS = 120, 200, 10, 3
_HELP = f"""\
Without --data the embedded scenes are used: about twelve minutes on two cores. DATA is what `eesvm data info` takes; at
most {DATA_IMAGES} random images and the {CLASSES} classes with the most objects are used, unless --images and
--classes say otherwise.

Tables 1 to 3 (the paper: trained on Val1) use half of the training images and searches that run to the optimum;
tables 4 to 6 (Val1+train, trainval) use all of them and searches that are stopped early. Every table is measured on
several random halves of the images; intervals are over these splits, or over resampled test images with --own-split.

The network of --set descriptor.backbone=FILE may have been tuned on the training images, as in the paper, or on others;
FILE says which, where `eesvm finetune` wrote it, else --network-data does. Without such a file --network-data tunes one
on DATA first, beside OUT, which needs torch. Test images among the others are an error, judged by content.

OUT holds tables/table1.csv, .tex and .md to table6, claims.csv, figures/, results.md and report.html. Every finished
part is filed there: the same command resumes an interrupted run, and measures nothing when all is done.

example:
  eesvm reproduce -o reproduction
  eesvm reproduce --data VOCdevkit/VOC2007 --own-split trainval,test --images 400 -o voc
  eesvm reproduce --data VOCdevkit/VOC2007 --own-split val,test --network-split train -o voc_apart
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(verbs, "reproduce", "reproduce:run", "measure the tables, claims and figures of the paper", _HELP)
    add = parser.add_argument
    add("--data", metavar="DATA", help="folder or file of a dataset (default: the embedded scenes)")
    add("-o", "--output", default="reproduction", metavar="OUT", help="folder to write (default: reproduction)")
    add_annotations_argument(parser)
    add_unlabelled_argument(parser)
    add("--splits", type=number(minimum=1, integer=True), default=SPLITS, metavar="N", help=f"splits ({SPLITS})")
    add(
        "--own-split",
        nargs="?",
        const=AUTOMATIC,
        metavar="TRAIN,TEST",
        help="the dataset's own training and test split instead of random ones",
    )
    add("--network-data", metavar="DATA", help="images of the network; tune it on them, unless a FILE is named")
    add("--network-split", metavar="NAME", help="only this split of them; alone: of --data")
    add(
        "--network-set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of tuning the network, such as epochs=4; repeatable",
    )
    add("--images", type=number(minimum=1, integer=True), metavar="N", help="images of a split at most")
    add("--classes", metavar="N|A,B,...", help=f"how many classes, or which ({CLASSES})")
    add("--time-limit", type=number(above=0), default=SECONDS, metavar="S", help=f"seconds of a search ({SECONDS:g})")
    add("--no-figures", action="store_true", help="tables and claims only")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="any option by its dotted name; repeatable")
    add("--jobs", type=number(minimum=1, integer=True), metavar="N", help="processes and threads (default: all cores)")
    add("--cache", metavar="FOLDER", help="keep windows here (default: the one of `eesvm cache`)")
    add("--no-cache", action="store_true", help="keep none; an interrupted run then proposes windows again")
    add("--strict", action="store_true", help="stop at the first annotation that is wrong")
    add("--quiet", action="store_true", help="print nothing but errors")
