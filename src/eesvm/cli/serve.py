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
from eesvm.cli.arguments import UsageError, judging_options
from eesvm.cli.console import Screen
from eesvm.cli.detect import check_calibrator, open_images, together
from eesvm.datasets.reviews import ReviewFolder
from eesvm.detector.detector import ExemplarDetector
from eesvm.detector.files import CARD_NAME
from eesvm.report.serving.floors import FloorSearch
from eesvm.report.serving.inference import Inference
from eesvm.report.serving.review import ReviewSite
from eesvm.report.serving.server import Limits, Server
from eesvm.report.serving.site import ModelSite


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
