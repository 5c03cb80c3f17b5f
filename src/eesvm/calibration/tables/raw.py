"""What every reader of score tables returns and shares.

In: a path and the names of the columns that matter. Out: `RawTable`, arrays as the file holds them.
A file that is not what its name says ends in an `InputError` that names the array, or the line and the column.
Absent on purpose: what labels mean, and whether the arrays agree with each other; `score_tables` decides that.

Before: `_validation`. After: `npz`, `text`, `parquet`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from eesvm._support.validation import InputError

MAGIC = {
    b"PK\x03\x04": "a zip archive",
    b"PAR1": "a parquet file",
    b"\x1f\x8b": "gzip-compressed",
    b"\x93NUMPY": "a single numpy array (.npy)",
    b"\xff\xfe": "UTF-16 text instead of UTF-8",
    b"\xfe\xff": "UTF-16 text instead of UTF-8",
}


@dataclass
class RawTable:
    """What a file holds, before the parts are compared with each other."""

    scores: NDArray[Any]
    names: list[str] | None = None
    labels: NDArray[Any] | None = None
    labels_name: str = "labels"
    without_labels: str = ""  # the complaint where labels are needed and there are none
    groups: NDArray[Any] | None = None
    exemplar_groups: NDArray[Any] | None = None
    weights: NDArray[Any] | None = None
    forbidden: NDArray[Any] | None = None
    ignored: list[str] = field(default_factory=list)  # columns that nobody asked for


def check_readable(path: Path) -> None:
    """Refuse what cannot be opened as a file with something in it."""
    try:
        if path.is_dir():
            raise InputError("it is a folder, not a file")
        if not path.exists():
            raise InputError("there is no such file")
        with open(path, "rb") as handle:
            if not handle.read(1):
                raise InputError("the file is empty")
    except PermissionError:
        raise InputError("no permission to read it") from None
    except OSError as error:
        raise InputError(f"it cannot be read ({error.strerror})") from None


def listed(names: Sequence[str], noun: str = "") -> str:
    """`'a', 'b' and 3 more`; with a noun `column 'a' is` or `columns 'a', 'b' and 3 more are`."""
    shown = ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    if not noun:
        return shown or "nothing"
    return f"{noun} {shown} is" if len(names) == 1 else f"{noun}s {shown} are"


def choose_columns(
    header: list[str], label_column: str, group_column: str | None, columns: Sequence[str] | None
) -> tuple[int | None, int | None, list[int]]:
    """The positions of the labels, of the groups and of the scores among the names of the columns."""
    index = {name: j for j, name in enumerate(header)}
    if len(index) < len(header):
        repeated = sorted({name for name in header if header.count(name) > 1})
        raise InputError(f"{listed(repeated, 'column')} there more than once")
    unnamed = [name for name in header if not name.strip() or name.startswith("__index_level_")]
    if columns is None and unnamed:
        raise InputError(
            f"{listed(unnamed, 'column')} without a name, like the index that pandas writes: "
            "leave it out (index=False), or give it a name if it is a detector's"
        )
    if group_column is not None and group_column not in index:
        raise InputError(f"there is no column {group_column!r} of groups, only {listed(header)}")
    label, group = index.get(label_column), None if group_column is None else index[group_column]
    if columns is None:
        return label, group, [j for j in range(len(header)) if j not in (label, group)]
    missing = [name for name in columns if name not in index]
    if missing:
        raise InputError(f"{listed(missing, 'column')} missing; there is {listed(header)}")
    scores = [index[name] for name in columns]
    return None if label in scores else label, None if group in scores else group, scores  # a score is no label


def instead(path: Path, besides: bytes = b"\0") -> str:
    """`, but ...` where the first bytes of a file say what it is, and that is not what begins with `besides`."""
    with open(path, "rb") as handle:
        head = handle.read(4096)
    for magic, kind in MAGIC.items():
        if head.startswith(magic) and magic != besides:
            return f", but {kind}"
    return "" if b"\0" in head else ", but text" if head.isascii() else ""
