"""Arguments that several verbs share, and the types that refuse a value before any work is done."""

from __future__ import annotations

import argparse
import csv
import difflib
import gc
import itertools
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

from eesvm._support.validation import MISSING, InputError
from eesvm.datasets import FORMATS
from eesvm.datasets.build import UNLABELLED

Parsers = Any  # argparse's own type for a set of verbs is private


class UsageError(InputError):
    """An option is wrong whatever the files hold: the call is wrong, and the status 2."""


@contextmanager
def judging_options() -> Iterator[None]:
    """Whatever is refused in here is an option that is wrong by itself."""
    try:
        yield
    except InputError as error:
        raise UsageError(str(error)) from error


class Parser(argparse.ArgumentParser):
    """Options are written in full, so that a new one never changes what a script means; a typing error gets a hint."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        super().__init__(*positional, **({"allow_abbrev": False} | named))

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As argparse does, but options that are unknown are complained about first."""
        given = list(sys.argv[1:] if args is None else args)
        has_verbs = any(isinstance(action, argparse._SubParsersAction) for action in self._actions)
        known = list(self._option_string_actions)
        for text in itertools.takewhile(lambda text: text.startswith("-") or not has_verbs, given):
            name = text.partition("=")[0]
            if name == "--":
                break
            if name.startswith("--") and " " not in name and name not in known:
                self.error(f"there is no option {name}{_hint(name, known)}")
        return super().parse_known_args(given, namespace)

    def error(self, message: str) -> NoReturn:
        """As argparse does, with a hint where one of several words was meant."""
        found = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", message)
        super().error(message + (_hint(found[1], re.findall(r"[^\s,']+", found[2])) if found else ""))


def _hint(name: str, known: Iterable[str]) -> str:
    """`: did you mean ...?` where something known begins with `name`, or is written nearly so."""
    words = sorted(known)
    close = [word for word in words if word.startswith(name)] or difflib.get_close_matches(name, words, n=1)
    return f": did you mean {' or '.join(close)}?" if close else ""


def add_verb(verbs: Parsers, name: str, work: str | None, summary: str, text: str) -> Any:
    """A parser for one verb; `text` goes below its options as it is.

    `work` is what runs it, as `module:function` in `eesvm.cli`, imported when it is run; None where the verb has verbs
    of its own.
    """
    parser = verbs.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if work is not None:
        parser.set_defaults(run=partial(_run, work))
    return parser


def _run(work: str, arguments: argparse.Namespace) -> int:
    module, function = work.split(":")
    status: int = getattr(_loaded(f"eesvm.cli.{module}"), function)(arguments)
    return status


def _loaded(name: str) -> ModuleType:
    """A module. What it brings along stays, so nobody looks for garbage among it, neither now nor later."""
    if name in sys.modules:
        return sys.modules[name]
    collects = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def add_table_arguments(parser: argparse.ArgumentParser, missing: str | None = None) -> None:
    """How to read a score table; `missing` is the default of that option, None where a calibration has one."""
    parser.add_argument("scores", metavar="SCORES", help="score table: .npz, .csv, .csv.gz, .tsv or .parquet")
    parser.add_argument("--label-column", default="label", metavar="NAME", help="column of labels (default: label)")
    parser.add_argument(
        "--positive-label", metavar="LABEL", help="label of the positives; all others are negatives (default: 1)"
    )
    parser.add_argument(
        "--columns", type=names, metavar="A,B,...", help="columns of scores, in this order (default: all others)"
    )
    parser.add_argument(
        "--exclude", type=names, default=[], metavar="A,B,...", help="columns that are no scores, such as identifiers"
    )
    parser.add_argument(
        "--missing",
        choices=MISSING,
        default=missing,
        help="cells without a score (empty, NaN, NA, null): refuse them, or take them for detectors that did not fire "
        f"(default: {missing or 'as in the calibration'})",
    )


def names(text: str) -> list[str]:
    """A type for argparse: names of columns, parted by commas; one that holds a comma stands in double quotes."""
    found = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not found or not all(found):
        raise argparse.ArgumentTypeError(f"names of columns, parted by commas, are needed, got {text!r}")
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"no name may be there twice, got {text!r}")
    return found


def add_annotations_argument(parser: argparse.ArgumentParser) -> None:
    """In which format a dataset is annotated."""
    parser.add_argument("--annotations", choices=FORMATS, help="format of the annotations (default: auto-detected)")


def add_unlabelled_argument(parser: argparse.ArgumentParser) -> None:
    """What becomes of images without annotation, for verbs that learn from images or judge by them."""
    parser.add_argument(
        "--unlabelled",
        choices=UNLABELLED,
        help="images without annotation: leave them out, or take them as images without objects (default: as the "
        "format has it; of YOLO, leave them out where others of the split have label files)",
    )


def set_options(given: list[str], flag: str = "--set") -> dict[str, str]:
    """Names and values of options that --set takes, or another flag like it."""
    changes = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{flag} must be NAME=VALUE, got {text!r}")
        changes[name.strip()] = value
    return changes


def number(
    minimum: float = -math.inf, maximum: float = math.inf, above: float = -math.inf, integer: bool = False
) -> Callable[[str], float]:
    """A type for argparse: a finite number with `minimum <= value <= maximum` and `value > above`."""

    def parse(text: str) -> float:
        try:
            value = int(text) if integer else float(text)
            is_number = math.isfinite(value)
        except (ValueError, OverflowError):  # OverflowError: an integer of hundreds of digits
            is_number = False
        if not is_number:
            raise argparse.ArgumentTypeError(f"{'an integer' if integer else 'a number'} is needed, got {text!r}")
        for broken, rule in (
            (value < minimum, f">= {minimum:g}"),
            (value > maximum, f"<= {maximum:g}"),
            (value <= above, f"> {above:g}"),
        ):
            if broken:
                raise argparse.ArgumentTypeError(f"must be {rule}, got {text}")
        return value

    return parse
