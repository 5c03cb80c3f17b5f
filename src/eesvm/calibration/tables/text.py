"""Score tables in text files: .csv, .tsv, also gzip-compressed.

In: a header with the names of the columns, then one row of numbers per window. Out: `RawTable`.
Numpy reads the numbers in one pass; only a table that it refuses is read again, slowly, to name the line and column.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import math
import re
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from eesvm._support.archives import MAGIC, instead, listed
from eesvm._support.validation import NOT_FIRED, OFFER, InputError
from eesvm.calibration.tables.raw import RawTable, choose_columns, note_ids

_MISSING = ("", "-", "na", "n/a", "nan", "-nan", "none", "null", "-inf", "-infinity")  # how tables say so, in any case
_HEADER_LIMIT = 1 << 26  # characters of a header line; a file without line ends must not be read whole to find out


def read_delimited(
    path: Path,
    label_column: str,
    group_column: str | None,
    columns: Sequence[str] | None,
    exclude: Sequence[str] = (),
    missing: str = "refuse",
) -> RawTable:
    """A text table with a header; numbers are read by numpy, and only a table that it refuses is read again slowly."""
    _check_text(path)
    try:
        with _open_text(path) as handle:
            layout = _read_layout(handle, path, label_column, group_column, columns, exclude, missing)
            cells = _read_cells(handle, layout)
    except UnicodeDecodeError as error:
        raise InputError(f"it is not UTF-8 text (byte {error.start} of a block: {error.reason})") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"the compressed data is damaged ({error})") from None
    no_column = f"there is no column {label_column!r} of labels, only {listed(layout.header)}"
    without_labels = f"{no_column}: --label-column names it"
    if cells is None or cells.shape[1] != len(layout.header) or layout.is_bad(cells).any():
        if layout.label is None and columns is None:  # else a column of labels under another name is called no number
            raise InputError(without_labels)
        _explain(path, layout, cells)
    scores = cells[:, layout.scores]
    names = [layout.header[j] for j in layout.scores]
    return RawTable(
        scores=scores,
        names=names,
        labels=None if layout.label is None else layout.texts(layout.label, cells),
        labels_name=label_column,
        without_labels=without_labels,
        groups=None if layout.group is None else layout.texts(layout.group, cells),
        ignored=[layout.header[j] for j in sorted(layout.ignored())],
        notes=note_ids(scores, names) if columns is None else [],
        place=partial(_line_of, path, layout.delimiter),
    )


@dataclass
class _Layout:
    """Which column is what; texts are read as numbers of a dictionary, so that one pass reads all cells."""

    header: list[str]
    delimiter: str
    scores: list[int]
    label: int | None
    group: int | None
    missing: str = "refuse"

    def __post_init__(self) -> None:
        self.codes: dict[int, dict[str, int]] = {j: {} for j in (self.label, self.group) if j is not None}

    def converters(self) -> dict[int, Callable[[str], float]]:
        """For numpy: the codes of texts, and 0 for the cells of columns that nobody asked for."""

        def encode(codes: dict[str, int]) -> Callable[[str], float]:
            return lambda cell: codes.setdefault(cell.strip(), len(codes))

        found = {j: encode(codes) for j, codes in self.codes.items()} | {j: lambda cell: 0.0 for j in self.ignored()}
        return found | (dict.fromkeys(self.scores, _score) if self.missing == NOT_FIRED else {})

    def is_bad(self, cells: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Cells that are neither numbers nor missing where that is allowed."""
        return ~np.isfinite(cells) & ~(np.isneginf(cells) & (self.missing == NOT_FIRED))

    def ignored(self) -> set[int]:
        return set(range(len(self.header))) - set(self.scores) - self.codes.keys()

    def texts(self, column: int, cells: NDArray[np.float64]) -> NDArray[Any]:
        return np.array(list(self.codes[column]), dtype=np.str_)[cells[:, column].astype(np.intp)]


def _score(cell: str) -> float:
    """For numpy: the number in a cell, -inf where it is missing."""
    if "_" in cell:
        raise ValueError
    return -math.inf if cell.strip().casefold() in _MISSING else float(cell)


def _check_text(path: Path) -> None:
    """Refuse, by their first bytes, files that are not the text (or the compressed text) their name promises."""
    with open(path, "rb") as handle:
        head = handle.read(4096)
    is_gzip = head.startswith(b"\x1f\x8b")
    if path.name.lower().endswith(".gz"):
        if not is_gzip:
            raise InputError("it is not gzip-compressed, although its name ends in .gz")
    elif is_gzip:
        raise InputError("it is gzip-compressed: let its name end in .gz")
    elif b"\0" in head or head[:4] in MAGIC or head[:2] in MAGIC:
        raise InputError(f"it is not a text table{instead(path)}")


def _open_text(path: Path) -> IO[str]:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return open(path, encoding="utf-8-sig")


def _read_layout(
    handle: IO[str],
    path: Path,
    label_column: str,
    group_column: str | None,
    columns: Sequence[str] | None,
    exclude: Sequence[str],
    missing: str,
) -> _Layout:
    """Read the first line, and settle which of its columns is what."""
    line = handle.readline(_HEADER_LIMIT)
    if len(line) == _HEADER_LIMIT:
        raise InputError(f"its first line is longer than {_HEADER_LIMIT:,} characters")
    if not line.strip():
        raise InputError("line 1 is empty: a header with the names of the columns belongs there")
    delimiter = _delimiter(path, line)
    header = [name.strip() for name in next(csv.reader([line], delimiter=delimiter))]
    label, group, scores = choose_columns(header, label_column, group_column, columns, exclude)
    return _Layout(header, delimiter, scores, label, group, missing)


def _delimiter(path: Path, line: str) -> str:
    """Tabs in .tsv and commas in .csv, where a spreadsheet of some countries writes semicolons."""
    if path.name.lower().removesuffix(".gz").endswith(".tsv"):
        return "\t"
    return next((mark for mark in ",;\t" if mark in line), ",")


def _read_cells(handle: IO[str], layout: _Layout) -> NDArray[np.float64] | None:
    """All cells as numbers, or None where numpy finds one that is not, or rows of different lengths."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "input contained no data": there is a sentence for that
        try:
            cells = np.loadtxt(
                handle,
                delimiter=layout.delimiter,
                quotechar='"',
                comments=None,
                converters=cast(Any, layout.converters()),
                encoding="utf-8",
                ndmin=2,
            )
        except UnicodeDecodeError:
            raise
        except ValueError:
            return None
    if cells.size == 0:
        raise InputError("there is a header but no row below it")
    return cells


def _line_of(path: Path, delimiter: str, row: int) -> str:
    """The line at which a row, counted from 0, ends; empty lines hold no row."""
    with _open_text(path) as handle:
        reader = csv.reader(handle, delimiter=delimiter)
        next(reader)
        lines = (reader.line_num for cells in reader if cells)
        return f"line {next(itertools.islice(lines, row, None))}"


def _explain(path: Path, layout: _Layout, cells: NDArray[np.float64] | None) -> NoReturn:
    """Find the first cell or row that made the table unusable, and say on which line it is."""
    bad = None if cells is None else layout.is_bad(cells)
    n_bad = 0 if bad is None else int(bad.sum())
    with _open_text(path) as handle:
        reader = csv.reader(handle, delimiter=layout.delimiter)
        next(reader)
        try:
            for row in reader:
                if row:
                    _check_row(row, layout, reader.line_num, n_bad)
        except csv.Error as error:
            raise InputError(f"line {reader.line_num}: {error}") from None
    raise InputError("it could not be read as a table of numbers")


def _check_row(row: list[str], layout: _Layout, line: int, n_bad: int) -> None:
    if len(row) != len(layout.header):
        raise InputError(f"line {line} has {len(row)} cells where the header has {len(layout.header)}")
    for j in layout.scores:
        where = f"line {line}, column {layout.header[j]!r}"
        is_missing = row[j].strip().casefold() in _MISSING
        if is_missing and layout.missing == NOT_FIRED:
            continue
        offer = OFFER if is_missing and "inf" not in row[j].casefold() else ""
        try:
            if "_" in row[j]:  # Python reads 1_000 as a number; tables do not write numbers so
                raise ValueError
            number = float(row[j])
        except ValueError:
            shown = row[j] if len(row[j]) <= 40 else row[j][:40] + "..."
            if re.fullmatch(r"\s*[-+]?\d+,\d+\s*", row[j]):
                offer = ": write a point for the comma"
            elif not is_missing and line == 2 and len(layout.scores) > 1:  # text from the first row on: names, perhaps
                offer = f"; if the column holds no scores, leave it out by --exclude {layout.header[j]}"
            raise InputError(f"{where}: {shown!r} is not a number{offer}") from None
        if not math.isfinite(number) and n_bad:
            noun = "score is" if n_bad == 1 else "scores are"
            raise InputError(f"{n_bad} {noun} NaN or infinite, the first in {where}{offer}")
