"""What every reader of score tables returns and shares.

In: a path and the names of the columns that matter. Out: `RawTable`, arrays as the file holds them.
A file that is not what its name says ends in an `InputError` that names the array, or the line and the column. Lines of
text files count from 1, as editors do; rows of other files, which have no lines, from 0.
Not here: what labels mean, and whether the arrays agree with each other; `score_table` decides that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.archives import listed
from eesvm._support.validation import InputError

_FEW_ROWS = 20  # below it, whole numbers of which no two are alike are no surprise
_WEIGHTS = ("weight", "weights", "sample_weight", "sample_weights")  # names of columns that hold no scores


@dataclass
class RawTable:
    """What a file holds, before the parts are compared with each other."""

    scores: NDArray[Any]  # -inf where one is missing
    names: list[str] | None = None
    labels: NDArray[Any] | None = None
    labels_name: str = "labels"
    without_labels: str = ""  # the complaint where labels are needed and there are none
    without_kind: str = ""  # the complaint where rows of both kinds are needed, and all are of one
    groups: NDArray[Any] | None = None
    exemplar_groups: NDArray[Any] | None = None
    weights: NDArray[Any] | None = None
    forbidden: NDArray[Any] | None = None
    ignored: list[str] = field(default_factory=list)  # columns that nobody asked for
    notes: list[str] = field(default_factory=list)  # what the reader found odd
    place: Callable[[int], str] = "row {}".format  # how to name a row, counted from 0; in a text file, its line


def note_ids(scores: NDArray[Any], names: Sequence[str]) -> list[str]:
    """Remarks on columns of whole numbers of which no two are alike; one that counts the rows is refused.

    Those are identifiers more often than scores of detectors. A column counts the rows if its numbers only rise, only
    fall, or follow each other without a gap in some order. In a table of few rows nothing is noticed.
    """
    columns = (column[column > -np.inf] for column in scores.T)  # those that are not missing
    named = [(name, column) for name, column in zip(names, columns, strict=True) if len(column) >= _FEW_ROWS]
    unique = {name: column for name, column in named if _are_unique(column)}
    counting = [name for name, column in unique.items() if _counts_rows(column)]
    if counting:
        raise InputError(
            f"{listed(counting, 'column')} not like scores but like numbers of rows, whole and no two alike: leave it "
            f"out by --exclude {','.join(counting)}, or name all columns of scores by --columns"
        )
    weights = [
        f"column {name!r} is taken for scores of a detector: if it holds weights, leave it out by --exclude {name}; "
        "weights of negatives are read from .npz files"
        for name in names
        if name.casefold() in _WEIGHTS
    ]
    return weights + [
        f"column {name!r} holds whole numbers, no two alike: if they are identifiers, leave it out by --exclude {name}"
        for name in unique
    ]


def _are_unique(column: NDArray[Any]) -> bool:
    return bool((column == np.floor(column)).all()) and len(np.unique(column)) == len(column)


def _counts_rows(column: NDArray[Any]) -> bool:
    steps = np.diff(column)
    return bool((steps > 0).all() or (steps < 0).all() or column.max() - column.min() == len(column) - 1)


def choose_columns(
    header: list[str],
    label_column: str,
    group_column: str | None,
    columns: Sequence[str] | None,
    exclude: Sequence[str] = (),
) -> tuple[int | None, int | None, list[int]]:
    """The positions of the labels, of the groups and of the scores among the names of the columns."""
    index = {name: j for j, name in enumerate(header)}
    if len(index) < len(header):
        repeated = sorted({name for name in header if header.count(name) > 1})
        raise InputError(f"{listed(repeated, 'column')} there more than once")
    absent = [name for name in exclude if name not in index]
    if absent:
        raise InputError(f"{listed(absent, 'column')} missing, so it cannot be left out; there is {listed(header)}")
    unnamed = [
        name for name in header if (not name.strip() or name.startswith("__index_level_")) and name not in exclude
    ]
    if columns is None and unnamed:
        raise InputError(
            f"{listed(unnamed, 'column')} without a name, like the index that pandas writes: "
            "leave it out (index=False), or give it a name if it is a detector's"
        )
    if group_column is not None and group_column not in index:
        raise InputError(f"there is no column {group_column!r}, only {listed(header)}")
    label, group = index.get(label_column), None if group_column is None else index[group_column]
    if columns is None:
        others = [j for j, name in enumerate(header) if j not in (label, group) and name not in exclude]
        return label, group, others
    missing = [name for name in columns if name not in index]
    if missing:
        raise InputError(f"{listed(missing, 'column')} missing; there is {listed(header)}")
    scores = [index[name] for name in columns]
    return None if label in scores else label, None if group in scores else group, scores  # a score is no label
