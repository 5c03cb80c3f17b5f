"""What `eesvm serve` takes.

In: the set of verbs. Out: the parser of this one, in it.
"""

from __future__ import annotations

from eesvm.cli.arguments import Parsers, add_annotations_argument, add_verb, number
from eesvm.detector.options import CALIBRATORS
from eesvm.images.files import MAX_PIXELS

DEFAULT_PORT = 8765
_HELP = f"""\
Open the address that is printed, drop an image on the page, and see detections, the training objects they look like
and the masks and parts these transfer, with sliders for the score and for the recall floor. Thresholds for the floors
are searched from the training scores in the model, in the background, on one core. Ctrl-C ends the server.

With --review FOLDER --images IMAGES the page /review goes through images: accept, reject or correct each detection,
draw what was missed, save. FOLDER is then a COCO dataset, and `eesvm add MODEL FOLDER` makes exemplars of what was
accepted and hard negatives of what was rejected.

The page is for this machine alone: other addresses than 127.0.0.1 need --allow-outside. There is no password. An image
is forgotten once it has been answered, and nothing is written but reviews.

Calibrators: {", ".join(CALIBRATORS)}.

example:
  eesvm serve model
  eesvm serve model --review reviews --images photos
  eesvm serve model --port 0 --floors 1,0.99,0.95,0.9 --floor-time 10
  curl --data-binary @photo.jpg -H 'Content-Type: image/jpeg' http://127.0.0.1:{DEFAULT_PORT}/api/detect
"""


def add_parser(verbs: Parsers) -> None:
    parser = add_verb(verbs, "serve", "serve:run", "show on a local page what a model finds in images, and why", _HELP)
    add = parser.add_argument
    add("model", metavar="MODEL", help="folder that `eesvm train` wrote")
    add("--port", type=number(minimum=0, maximum=65535, integer=True), default=DEFAULT_PORT, metavar="N",
        help=f"0 is any that is free (default: {DEFAULT_PORT})")  # fmt: skip
    add("--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen on (default: 127.0.0.1)")
    add("--allow-outside", action="store_true", help="let other machines in, where --host is not 127.0.0.1")
    add("--calibrator", metavar="NAME", help="another calibrator than that of the model")
    add("--floors", metavar="A,B,...", help="recall floors of the slider, or none (default: 1 to 0.5)")
    add("--floor-time", type=number(minimum=0), default=3.0, metavar="S",
        help="seconds to search thresholds of each floor and class (default: 3)")  # fmt: skip
    add("--max-upload", type=number(above=0, maximum=1000), default=32.0, metavar="MB",
        help="largest file (default: 32)")  # fmt: skip
    add("--max-pixels", type=number(above=0, maximum=MAX_PIXELS / 1e6), default=40.0, metavar="M",
        help="largest image, in millions of pixels (default: 40)")  # fmt: skip
    add("--jobs", type=number(minimum=1, maximum=64, integer=True), metavar="N",
        help="images looked at at once (default: one per core, 4 at most)")  # fmt: skip
    add("--queue", type=number(minimum=0, maximum=1000, integer=True), default=8, metavar="N",
        help="images that may wait (default: 8)")  # fmt: skip
    add("--review", metavar="FOLDER", help="review detections in IMAGES on the page /review, and keep answers here")
    add("--images", nargs="+", metavar="IMAGES", help="with --review: images, folders, patterns or a dataset")
    add("--split", metavar="NAME", help="with --review: of a dataset, only the images of this split")
    add_annotations_argument(parser)
    add("--quiet", action="store_true", help="print the address and nothing else")
