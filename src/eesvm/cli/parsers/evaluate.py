"""What `eesvm evaluate` takes.

In: the set of verbs. Out: the parser of this one, in it.
"""

from __future__ import annotations

from eesvm.cli.arguments import Parsers, add_annotations_argument, add_unlabelled_argument, add_verb, number
from eesvm.metrics import PROTOCOLS

EVERY = "all"
_HELP = """\
DETECTIONS is a .csv with the columns image_id, class, score, x1, y1, x2, y2 (half-open boxes), COCO results as .json,
a folder with VOC's comp3_det_test_CLASS.txt files, or the folder that `eesvm detect` wrote. DATA is what `eesvm data
info` takes, or the word scenes.

voc07   PASCAL VOC until 2009: mean precision at recalls 0, 0.1, ..., 1
voc10   PASCAL VOC since 2010: area under the monotone precision-recall curve
ilsvrc  the same area, but small objects may be overlapped less
coco    mean over IoU 0.5 to 0.95 (needs `pip install 'eesvm[coco]'`)

Images of DATA without detections count, so choose the split that was detected in. Where DETECTIONS lies in a folder of
`eesvm detect`, objects in images that it could not read, or was not given, are counted apart. Difficult objects and
crowds are neither hits nor misses.

example:
  eesvm evaluate detections.csv scenes --split test --intervals 1000
  eesvm evaluate detections.json VOCdevkit/VOC2007 --split test --protocol voc07 -o evaluation
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(
        verbs, "evaluate", "evaluate:run", "say how good detections are, and what is wrong with them", _HELP
    )
    add = parser.add_argument
    add("detections", metavar="DETECTIONS", help="file or folder of detections")
    add("data", metavar="DATA", help="folder or file of the dataset, or the word scenes")
    add_annotations_argument(parser)
    add_unlabelled_argument(parser)
    add("--split", metavar="NAME", help="only the images of this split")
    add("--classes", metavar="A,B,...", help="evaluate only these classes")
    add("--protocol", choices=(*PROTOCOLS, EVERY), default="voc10", help="whose average precision (default: voc10)")
    add("--iou", type=number(above=0, maximum=1), help="overlap that makes a hit (default: 0.5, coco: 0.5 to 0.95)")
    add("--intervals", type=number(minimum=1, integer=True), default=0, metavar="N",
        help="95 %% intervals from N resamples of the images; not for coco")  # fmt: skip
    add("--random-state", type=number(minimum=0, integer=True), default=0, metavar="N", help="of the resamples (0)")
    add("-o", "--output", metavar="FOLDER", help="folder for tables, curves and lists of errors")
    add("--overwrite", action="store_true", help="replace FOLDER if it exists and eesvm wrote it")
    add("--strict", action="store_true", help="stop at the first annotation that is wrong")
    add("--json", action="store_true", help="print everything as JSON")
    add("--quiet", action="store_true", help="print nothing but errors")
