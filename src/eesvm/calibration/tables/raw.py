"""What every reader of score tables returns and shares.

In: a path and the names of the columns that matter. Out: `RawTable`, arrays as the file holds them.
A file that is not what its name says ends in an `InputError` that names the array, or the line and the column.
Not here: what labels mean, and whether the arrays agree with each other; `score_table` decides that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from eesvm._support.archives import listed
from eesvm._support.validation import InputError


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
