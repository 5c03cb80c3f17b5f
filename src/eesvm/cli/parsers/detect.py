"""What `eesvm detect` takes.

In: the set of verbs. Out: the parser of this one, in it.
"""

from __future__ import annotations

from eesvm.cli.arguments import Parsers, add_annotations_argument, add_verb, number
from eesvm.detector.options import AUTO, CALIBRATORS
from eesvm.transfer.choices import BOX_FORMATS

OUTPUTS = ("csv", "coco", "voc", *BOX_FORMATS)
_HELP = f"""\
IMAGES are image files, folders, patterns such as 'photos/*.jpg', a dataset (with --split, its images of that split), or
the word scenes. OUT ending in .csv or .json is one file. Otherwise it is a folder with detections.csv; --format asks
for detections.json (COCO results), voc (VOC text files), yolo, label-studio, cvat or labelme beside it or in its place.
Beside the first three, images.csv says which images were searched and which could not be read.
The column exemplar is the number of the training object that won, as in the model; -1 is none. Pictures and the page of
`eesvm report` say both, #17 photo_0012, object 2, and `eesvm drop` takes both. --draw adds a folder pictures with every
image, frames around its detections, and the refined masks that they inherit.

Calibrators: {", ".join(CALIBRATORS)}.

example:
  eesvm detect model photo.jpg -o detections.csv --score 0.5
  eesvm detect model VOCdevkit/VOC2007 --split test -o detections --format csv,voc
  eesvm detect model photos -o labels --format label-studio,cvat --draw
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(verbs, "detect", "detect:run", "find objects in images with a trained model", _HELP)
    add = parser.add_argument
    add("model", metavar="MODEL", help="folder that `eesvm train` wrote")
    add("images", nargs="+", metavar="IMAGES", help="images, folders, patterns or a dataset")
    add("-o", "--output", required=True, metavar="OUT", help=".csv or .json file, or a folder")
    add("--format", metavar="A,B,...", help=f"what to write into a folder: {', '.join(OUTPUTS)} (default: csv)")
    add("--draw", action="store_true", help="write each image with its detections into OUT/pictures")
    add("--split", metavar="NAME", help="of a dataset: only the images of this split")
    add_annotations_argument(parser)
    add("--calibrator", metavar="NAME", help="another calibrator than that of the model")
    add(
        "--score",
        type=score,
        metavar="S",
        help="leave out what scores less; auto: less than MODEL suggests for the class",
    )
    add("--precision", type=number(above=0, maximum=1), metavar="P",
        help="with --score auto: from the score on that has this precision (default: the best F1)")  # fmt: skip
    add("--max-detections", type=number(minimum=1, integer=True), metavar="N", help="keep the N best of an image")
    add("--nms", type=number(minimum=0, maximum=1), metavar="IOU", help="overlap of two detections of a class")
    add("--no-box-regression", action="store_true", help="leave boxes where windows are proposed")
    add("--jobs", type=number(minimum=1, integer=True), metavar="N", help="processes and threads (default: all cores)")
    add("--cache", metavar="FOLDER", help="keep windows here (default: the one of `eesvm cache`)")
    add("--no-cache", action="store_true", help="keep no windows")
    add("--overwrite", action="store_true", help="replace OUT if it exists")
    add("--profile", action="store_true", help="print how long each stage took")
    add("--quiet", action="store_true", help="print nothing but errors")


def score(text: str) -> float | str:
    """A type for argparse: a number, or the word auto."""
    return AUTO if text == AUTO else number()(text)
