"""`eesvm drop`: a model without exemplars that do harm.

In: a model folder, and numbers or names of exemplars. Out: the model without them, calibrated again, in the place of
the one before or in another folder. An interruption leaves the one before whole.
"""

from __future__ import annotations

import argparse
import sys
import time

from eesvm._support.files import check_output_folder
from eesvm._support.validation import InputError
from eesvm.cli.add import report_change, write_changed
from eesvm.cli.console import Screen
from eesvm.detector.detector import ExemplarDetector


def run(arguments: argparse.Namespace) -> int:
    screen, started = Screen(arguments.quiet), time.perf_counter()
    if arguments.output is not None:
        check_output_folder(arguments.output, arguments.overwrite)
    detector = ExemplarDetector.load(arguments.model)
    numbers = [number for text in arguments.exemplars for number in _numbers(text, detector)]
    try:
        detector.drop(numbers, time_limit=arguments.time_limit)
        write_changed(detector, arguments)
    except KeyboardInterrupt:
        sys.stderr.write(f"eesvm: interrupted: {arguments.model} is as it was\n")
        return 130
    report_change(detector, arguments, time.perf_counter() - started, [], screen)
    return 0


def _numbers(text: str, detector: ExemplarDetector) -> list[int]:
    """Exemplars by name, or else by number."""
    found = [
        number
        for number, one in enumerate(detector.exemplars_)
        if text in (one.image_id, f"{one.image_id}, object {one.index + 1}", one.name)
    ]
    digits = text.removeprefix("#")
    is_number = digits.isascii() and digits.isdigit()
    if found and is_number and digits == text and int(text[:18]) < len(detector.exemplars_):
        raise InputError(
            f"{text} is the number of an exemplar and the name of an image: write #{text}, or object by object"
        )
    if found:
        return found
    if is_number:
        return [int(digits[:18])]
    raise InputError(f"the model has no exemplar {text!r}: name its number, its image, or 'IMAGE, object K'")
