"""Bounds on thresholds in a text file: a line for each detector that has any.

In: a .csv with the columns detector (or exemplar, as in thresholds.csv), lower and upper, and the names of the
detectors of a score table. Out: two arrays with an entry per detector, -inf and +inf where the file sets no bound.
A line that cannot be meant ends in an `InputError` that names it.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eesvm._support.archives import check_readable, listed
from eesvm._support.validation import InputError

_COLUMNS = ("detector", "lower", "upper")
_ALSO = "exemplar"  # another name of the first
_MAX_BYTES = 1 << 28  # a million detectors need about a tenth of it


def read_bounds(path: str | os.PathLike[str], names: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(E,) lower and upper bounds for the detectors `names`, which a line gives by name or by index, from 0.

    An empty cell sets no bound; inf and -inf are numbers here: a lower bound of inf keeps a detector switched off.
    """
    lower, upper = np.full(len(names), -np.inf), np.full(len(names), np.inf)
    index = {name.strip(): j for j, name in enumerate(names)}
    lines: dict[int, int] = {}
    try:
        for line, row in _rows(Path(path)):
            try:
                j = _detector(row["detector"], index, len(names))
                if j in lines:
                    raise InputError(f"detector {row['detector']!r} has its bounds in line {lines[j]} already")
                lines[j] = line
                lower[j], upper[j] = _number(row["lower"], "lower", -np.inf), _number(row["upper"], "upper", np.inf)
                if lower[j] > upper[j]:
                    raise InputError(f"the lower bound {lower[j]:g} is above the upper bound {upper[j]:g}")
            except InputError as error:
                raise InputError(f"line {line}: {error}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return lower, upper


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """(number of the line, its cells by column), without empty lines."""
    check_readable(path)
    if path.stat().st_size > _MAX_BYTES:
        raise InputError(f"it is too large to be a table of bounds ({path.stat().st_size:,} bytes)")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("it is not UTF-8 text") from None
    first = text.partition("\n")[0]
    # Commas, or the semicolons that spreadsheets of some countries write.
    delimiter = next((mark for mark in ",;\t" if mark in first), ",")
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
    try:
        given = [name.strip() for name in next(reader, [])]
        header = ["detector" if name == _ALSO and "detector" not in given else name for name in given]
        if sorted(header) != sorted(_COLUMNS):
            raise InputError(f"line 1 must name the columns {listed(_COLUMNS)}, got {listed(given)}")
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                raise InputError(f"line {reader.line_num} has {len(cells)} cells where the header has {len(header)}")
            yield reader.line_num, dict(zip(header, (cell.strip() for cell in cells), strict=True))
    except csv.Error as error:
        raise InputError(f"line {reader.line_num}: {error}") from None


def _detector(text: str, index: dict[str, int], n: int) -> int:
    """By name; else by its number, where that is one."""
    if text in index:
        return index[text]
    if text.isascii() and text.isdecimal() and len(text) < 10 and int(text) < n:
        return int(text)
    raise InputError(
        f"there is no detector {_short(text)}; the table has {listed(list(index))}, or by index 0 to {n - 1}"
    )


def _number(text: str, column: str, default: float) -> float:
    if not text:
        return default
    try:
        number = math.nan if "_" in text else float(text)  # Python reads 1_000 as a number; tables do not write so
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise InputError(f"column {column!r} must be a number, inf, -inf or empty, got {_short(text)}")
    return number


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
