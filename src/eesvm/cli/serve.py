"""`eesvm serve`: a local page where one drops an image and sees what a model finds in it.

In: a model folder. Out: a page on this machine until Ctrl-C; nothing is written but reviews, where those are asked for,
and nothing of an image that is dropped on the page is kept.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from eesvm._support.amounts import counted, counted_exemplars
from eesvm._support.digests import file_digest
from eesvm._support.threads import n_threads
from eesvm._support.validation import InputError
from eesvm.cli.arguments import Parsers, UsageError, add_annotations_argument, add_verb, judging_options, number
from eesvm.cli.console import Screen
from eesvm.cli.detect import check_calibrator, open_images, together
from eesvm.datasets.reviews import ReviewFolder
from eesvm.detector.detector import ExemplarDetector
from eesvm.detector.files import CARD_NAME
from eesvm.detector.options import CALIBRATORS
from eesvm.images.files import MAX_PIXELS
from eesvm.report.serving.floors import FloorSearch
from eesvm.report.serving.inference import Inference
from eesvm.report.serving.review import ReviewSite
from eesvm.report.serving.server import Limits, Server
from eesvm.report.serving.site import ModelSite

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
    parser = add_verb(verbs, "serve", run, "show on a local page what a model finds in images, and why", _HELP)
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


def run(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.quiet)
    floors = _floors(arguments.floors)
    if (arguments.review is None) != (arguments.images is None):
        raise UsageError("--review and --images go together: where to keep answers, and the images to review")
    limits = Limits(
        max_upload=int(arguments.max_upload * 1e6),
        n_running=arguments.jobs or min(4, n_threads(None)),
        n_waiting=arguments.queue,
    )
    check_calibrator(arguments.calibrator)
    with judging_options():
        server = Server(limits, arguments.host, arguments.port, arguments.allow_outside)
    detector = ExemplarDetector.load(arguments.model)
    inference = Inference(detector, arguments.calibrator, int(arguments.max_pixels * 1e6))
    search = FloorSearch(detector.models_, detector.checked_options(), floors, arguments.floor_time)
    model_site = ModelSite(inference, search, limits.max_upload)
    site = model_site if arguments.review is None else _review_site(model_site, inference, detector, arguments)
    inference.warm_up()

    def ready(address: str) -> None:
        search.start()
        n_mirrored = sum(one.is_mirrored for one in detector.exemplars_)
        screen.say(
            f"{counted_exemplars(len(detector.exemplars_), n_mirrored)} of "
            f"{counted(len(detector.classes_), 'class', 'classes')}; "
            "open this address in a browser, Ctrl-C ends:"
        )
        Screen().say(address if arguments.review is None else f"{address}review")

    try:
        asyncio.run(server.run(site, ready))
    except KeyboardInterrupt:
        screen.say("\nstopped: the page is no longer served")
    finally:
        search.stop()
    return 0


def _review_site(
    site: ModelSite, inference: Inference, detector: ExemplarDetector, arguments: argparse.Namespace
) -> ReviewSite:
    """The addresses of the model with those of a review before them."""
    sources = [open_images(name, arguments) for name in arguments.images]
    records = together([record for source in sources for record in source])
    changes = detector.inputs_.get("changes", [])
    ancestors = [one["model_before"] for one in changes if isinstance(one.get("model_before"), str)]
    folder = ReviewFolder(arguments.review, file_digest(Path(arguments.model) / CARD_NAME), ancestors)
    try:
        least = detector.suggested_scores(arguments.calibrator)
    except InputError:  # a model of an earlier version suggests none
        least = {}
    return ReviewSite(site, inference, records, folder, detector.exemplars_, least)


def _floors(text: str | None) -> list[float] | None:
    """The floors that were asked for; None is the usual ones, an empty list none at all."""
    if text is None:
        return None
    if text.strip().lower() == "none":
        return []
    try:
        floors = [float(part) for part in text.split(",")]
    except ValueError:
        floors = [0.0]
    if not all(0 < floor <= 1 for floor in floors):
        raise UsageError(f"--floors must be numbers above 0 and up to 1, joined by commas, or none, got {text!r}")
    return floors
