"""What `eesvm transfer` takes.

In: the set of verbs. Out: the parser of this one, in it.
"""

from __future__ import annotations

import argparse

from eesvm.cli.arguments import Parsers, add_annotations_argument, add_verb, number
from eesvm.transfer.choices import MASK_FORMATS

_MOST_PICTURES = 500
_HELP = """\
MODEL is what `eesvm train` wrote, DETECTIONS the .csv or .json file that `eesvm detect` made with it; VOC text files do
not say which exemplar won. IMAGES are those that `detect` was given: image files, folders, patterns, a dataset (with
--split), or the word scenes.

OUT gets annotations.json (COCO: box, mask, parts, keypoints, pose, labels, score, exemplar), contact_sheet.png and
pictures/ of the best detections (in green, what they inherit in yellow, and their exemplar), with --masks
masks/ID.png, whose pixels number the annotations of an image from 1, with --voc annotations as VOC's XML, and with
--format files of the tools in which people annotate (yolo, yolo-seg, label-studio, cvat, labelme), with masks where
there are some. Where IMAGES are annotated, quality.csv and quality.md say how good masks, parts and labels are, beside
random exemplars and the whole box.

Masks are moved to where the photograph has its edges; --no-refine leaves them as the exemplars have them.

--consensus K lets the K best calibrated exemplars of each window vote, by their scores. Pictures still show the winner,
with the outline of the vote, which is also the third picture of each panel.

example:
  eesvm detect model scenes --split test -o detections.csv
  eesvm transfer model detections.csv scenes --split test -o transferred --score 0.5
  eesvm transfer model detections.json photos -o transferred --consensus 5 --masks
  eesvm transfer model detections.csv photos -o transferred --format yolo-seg,cvat
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(
        verbs, "transfer", "transfer:run", "carry masks, parts and labels of exemplars onto detections", _HELP
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="folder that `eesvm train` wrote")
    add("detections", metavar="DETECTIONS", help=".csv or .json file that `eesvm detect` made with it")
    add("images", nargs="+", metavar="IMAGES", help="the images of the detections, as for `eesvm detect`")
    add("-o", "--output", required=True, metavar="OUT", help="folder for what is written")
    add("--split", metavar="NAME", help="of a dataset: only the images of this split")
    add_annotations_argument(parser)
    add("--score", type=number(), metavar="S", help="leave out detections that score less")
    add("--top", type=number(minimum=1, integer=True), metavar="N", help="keep the N best detections of all images")
    add("--consensus", type=number(minimum=2, integer=True), metavar="K", help="let the K best exemplars vote")
    add("--refine", action=argparse.BooleanOptionalAction, default=True,
        help="let masks follow the colours and edges of the photograph (default: they do)")  # fmt: skip
    add("--calibrator", metavar="NAME", help="with --consensus: what DETECTIONS were made with (default: the model's)")
    add("--pictures", type=number(minimum=0, maximum=_MOST_PICTURES, integer=True), default=20, metavar="N",
        help="draw the N best detections (default: 20)")  # fmt: skip
    add("--masks", action="store_true", help="write the masks of each image as PNG")
    add("--voc", action="store_true", help="write VOC's XML files, too")
    add("--format", metavar="A,B,...", help=f"files for other tools, too: {', '.join(MASK_FORMATS)}")
    add("--labels", metavar="A,B,...", help="labels to compare with the truth (default: all that are texts)")
    add("--no-quality", action="store_true", help="compare nothing with the truth")
    add("--random-state", type=number(minimum=0, integer=True), default=0, metavar="N",
        help="of random exemplars and of resamples (0)")  # fmt: skip
    add("--overwrite", action="store_true", help="replace OUT if it exists and eesvm wrote it")
    add("--quiet", action="store_true", help="print nothing but errors")
