"""Score tables: rows are windows (or messages, transactions, ...), columns are detectors (exemplars, rules, ...).

In: a .npz, .csv, .csv.gz, .tsv or .parquet file. Out: `ScoreTable`, whose arrays agree with each other and hold nothing
but finite numbers, and -inf for missing scores where those are allowed; or one `InputError` sentence that names the
file, the place in it and what is wrong there.
Not here: pickles, which can run code from the file; guesses about which column is the label.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm._support.archives import check_readable, listed
from eesvm._support.files import atomic_write
from eesvm._support.validation import MISSING, FloatArray, InputError, check_choice, check_weights
from eesvm.calibration.calibrators.joint import own_image_pairs
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.tables.npz import read_npz
from eesvm.calibration.tables.parquet import read_parquet
from eesvm.calibration.tables.raw import RawTable
from eesvm.calibration.tables.text import read_delimited

_READERS = {
    ".npz": read_npz,
    ".csv": read_delimited,
    ".csv.gz": read_delimited,
    ".tsv": read_delimited,
    ".tsv.gz": read_delimited,
    ".parquet": read_parquet,
}
_BINARY_PAIRS = ({"0", "1"}, {"-1", "1"})


@dataclass(frozen=True)
class ScoreTable:
    """Scores of n windows under E detectors, and what is known about both.

    `forbidden` has one row per *positive* window, in the order of the rows: True where acceptance by that detector does
    not count as coverage. `exemplar_names` is None where the file names no columns; `notes` says what was left unused.
    With `missing="not-fired"`, a score of -inf or NaN is one that is missing.
    """

    scores: FloatArray  # (n, E)
    labels: NDArray[np.int8] | None = None  # (n,) of 0 and 1
    groups: NDArray[Any] | None = None  # (n,) the image, session, ... each window comes from
    exemplar_groups: NDArray[Any] | None = None  # (E,) likewise for the detectors
    exemplar_names: list[str] | None = None
    weights: NDArray[np.float64] | None = None  # (n,)
    forbidden: NDArray[np.bool_] | None = None  # (n_positives, E)
    notes: tuple[str, ...] = ()
    missing: str = "refuse"  # or "not-fired", see `CalibrationProblem`

    def __post_init__(self) -> None:
        n, n_exemplars = self.scores.shape
        _check_length(self.labels, "labels", n, "rows of scores")
        _check_length(self.groups, "groups", n, "rows of scores")
        _check_length(self.weights, "weights", n, "rows of scores")
        _check_length(self.exemplar_groups, "exemplar_groups", n_exemplars, "columns of scores")
        _check_length(self.exemplar_names, "exemplar_names", n_exemplars, "columns of scores")
        if self.exemplar_names is not None and len(set(self.exemplar_names)) < n_exemplars:
            raise InputError(f"`exemplar_names` holds {_first_repeated(self.exemplar_names)!r} more than once")
        if self.forbidden is not None and self.forbidden.dtype != bool:
            raise InputError(f"`forbidden` must be an array of booleans, got dtype {self.forbidden.dtype}")
        if self.forbidden is not None and self.forbidden.shape != (self.n_positives, n_exemplars):
            raise InputError(
                f"`forbidden` must have one row per positive and one column per detector, "
                f"({self.n_positives}, {n_exemplars}), got {self.forbidden.shape}"
            )

    @property
    def n_rows(self) -> int:
        """How many windows there are."""
        return len(self.scores)

    @property
    def n_exemplars(self) -> int:
        """How many columns of scores there are."""
        return self.scores.shape[1]

    @property
    def n_positives(self) -> int:
        """How many rows have the label 1; 0 without labels."""
        return 0 if self.labels is None else int(self.labels.sum())

    @property
    def names(self) -> list[str]:
        """The detector names, or exemplar_0, exemplar_1, ... where there are none."""
        return self.exemplar_names or [f"exemplar_{j}" for j in range(self.n_exemplars)]

    def rows(self, chosen: NDArray[Any]) -> ScoreTable:
        """The table of the rows that a boolean mask or an index array chooses."""

        def take(values: NDArray[Any] | None) -> NDArray[Any] | None:
            return None if values is None else values[chosen]

        forbidden = self.forbidden
        if forbidden is not None and self.labels is not None:
            position = np.cumsum(self.labels) - 1  # of each positive row in `forbidden`
            forbidden = forbidden[position[chosen][self.labels[chosen] == 1]]
        return replace(
            self,
            scores=self.scores[chosen],
            labels=take(self.labels),
            groups=take(self.groups),
            weights=take(self.weights),
            forbidden=forbidden,
        )

    def columns(self, names: Sequence[str]) -> ScoreTable:
        """The table of the detectors `names`, in that order."""
        if self.exemplar_names is None:
            raise InputError("the columns of this table have no names, so they cannot be chosen by name")
        index = {name: j for j, name in enumerate(self.exemplar_names)}
        missing = [name for name in names if name not in index]
        if missing:
            raise InputError(f"{listed(missing, 'column')} not in the table, which has {listed(self.exemplar_names)}")
        return self.exemplars(np.array([index[name] for name in names], dtype=np.intp))

    def exemplars(self, chosen: NDArray[Any]) -> ScoreTable:
        """The table of the detectors that a boolean mask or an index array chooses."""
        return replace(
            self,
            scores=self.scores[:, chosen],
            exemplar_groups=None if self.exemplar_groups is None else self.exemplar_groups[chosen],
            exemplar_names=None if self.exemplar_names is None else np.array(self.exemplar_names)[chosen].tolist(),
            forbidden=None if self.forbidden is None else self.forbidden[:, chosen],
        )

    def forbidden_pairs(self, across_groups: bool = False) -> NDArray[np.bool_] | None:
        """(P, E) the pairs that do not count as coverage; with `across_groups`, also those within one group."""
        if not across_groups:
            return self.forbidden
        if self.groups is None or self.exemplar_groups is None or self.labels is None:
            raise InputError(
                "coverage across groups needs `groups` for the windows and `exemplar_groups` for the detectors, "
                "both in one .npz file"
            )
        within = own_image_pairs(self.groups, self.exemplar_groups, self.labels == 1, self.n_exemplars)
        return within if self.forbidden is None or within is None else within | self.forbidden

    def parted_groups(self) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """The groups of the positives and of the negatives; None where there are none."""
        if self.groups is None or self.labels is None:
            return None
        return self.groups[self.labels == 1], self.groups[self.labels == 0]

    def unscored_positives(self) -> NDArray[np.intp]:
        """Rows, from 0, of the positives for which all scores are missing: no thresholds accept them."""
        is_positive = np.zeros(self.n_rows, dtype=bool) if self.labels is None else self.labels == 1
        return np.flatnonzero(is_positive & ~(self.scores > -np.inf).any(axis=1))

    def problem(
        self,
        across_groups: bool = False,
        lower_thresholds: ArrayLike | None = None,
        upper_thresholds: ArrayLike | None = None,
        detector_cost: ArrayLike | None = None,
    ) -> CalibrationProblem:
        """The calibration problem that this table poses; every row needs a label.

        Parameters
        ----------
        across_groups : a detector does not cover the windows of its own group.
        lower_thresholds, upper_thresholds : (E,) bounds on the thresholds, see `CalibrationProblem`.
        detector_cost : a number or (E,), what it costs to use a detector, see `CalibrationProblem`.
        """
        if self.labels is None:
            raise InputError("a calibration problem needs a label for every row")
        positive: Any = self.labels == 1
        negative: Any = ~positive
        if positive[: self.n_positives].all():  # slices are views: a memory map stays one
            positive, negative = slice(0, self.n_positives), slice(self.n_positives, None)
        return CalibrationProblem(
            self.scores[positive],
            self.scores[negative],
            None if self.weights is None else self.weights[positive],
            None if self.weights is None else self.weights[negative],
            self.forbidden_pairs(across_groups),
            lower_thresholds,
            upper_thresholds,
            self.missing,
            detector_cost,
        )


def read_score_table(
    path: str | os.PathLike[str],
    label_column: str = "label",
    positive_label: object = None,
    group_column: str | None = None,
    require_labels: bool = True,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    missing: str = "refuse",
) -> ScoreTable:
    """The score table in `path`; the end of its name says the format.

    Parameters
    ----------
    path : .npz with `positive_scores` and `negative_scores`, or `scores` and `labels`, and optionally `exemplar_names`,
        `exemplar_groups`, `forbidden`, and `groups` and `weights` (for the first form `positive_groups`,
        `negative_groups`, `positive_weights`, `negative_weights`); or .csv, .csv.gz, .tsv, .parquet with a header, one
        column per detector and one column of labels.
    label_column : name of the column of labels, for all formats but .npz.
    positive_label : the label of the positives; all others are negatives. Default: 1 beside 0 or -1.
    group_column : name of the column that says where each row comes from, for all formats but .npz.
    require_labels : whether a table without usable labels is an error.
    columns : names of the score columns, in the order wanted; other columns are ignored. Default: all columns but
        those of labels and groups. A .npz without `exemplar_names` must have as many columns, in that order. In the
        other formats a column that counts the rows is refused unless it is named here.
    exclude : names of columns that are no scores, such as identifiers.
    missing : "refuse" (the default) refuses cells without a score. "not-fired" takes them for detectors that did not
        fire: empty cells, NaN, NA, N/A, null, none, "-" and -inf; they become -inf.
    """
    check_choice(missing, "missing", MISSING)
    file = Path(path)
    columns = None if columns is None else [name for name in columns if name not in exclude]
    try:
        check_readable(file)
        reader = _READERS[_suffix(file)]
        raw = reader(file, label_column, group_column, columns, exclude, missing)
        table = _assemble(raw, positive_label, require_labels, missing)
        if columns is None:
            return _without(table, exclude) if reader is read_npz and exclude else table
        return _choose(table, columns)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def write_score_table(path: str | os.PathLike[str], table: ScoreTable) -> None:
    """Write `table` as .npz (uncompressed), whole or not at all.

    Parameters
    ----------
    path : the file to write, which must end in .npz; an existing one is replaced.
    table : without its notes, which are not kept.
    """
    if Path(path).suffix != ".npz":
        raise InputError(f"a score table is written as .npz, got {path}")
    names = None if table.exemplar_names is None else np.array(table.exemplar_names, dtype=np.str_)
    arrays = {
        field.name: getattr(table, field.name) for field in fields(table) if field.name not in ("notes", "missing")
    }
    arrays = {name: value for name, value in (arrays | {"exemplar_names": names}).items() if value is not None}
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise InputError(f"`{name}` holds Python objects, which a .npz keeps only as a pickle")
    with atomic_write(path) as handle:
        np.savez(handle, **arrays)


def _suffix(path: Path) -> str:
    name = path.name.lower()
    for suffix in _READERS:
        if name.endswith(suffix):
            return suffix
    kind = f"the ending {path.suffix!r}" if path.suffix else "a name without an ending"
    raise InputError(f"{kind} is not one of {', '.join(_READERS)}")


def _assemble(raw: RawTable, positive_label: object, require_labels: bool, missing: str) -> ScoreTable:
    """Check and type what the file held."""
    for count, noun in zip(raw.scores.shape, ("rows", "columns"), strict=True):
        if count == 0:
            raise InputError(f"there are no {noun} of scores")
    labels, notes = None, list(raw.notes)
    if raw.ignored:
        notes.append(f"{listed(raw.ignored, 'column')} not used")
    try:
        if raw.labels is None:
            raise InputError(raw.without_labels)
        if require_labels and raw.without_kind:
            raise InputError(raw.without_kind)
        labels = _binary_labels(np.asarray(raw.labels), raw, positive_label, require_labels)
    except InputError as error:
        if require_labels:
            raise
        notes += [] if raw.labels is None else [f"the labels are not used: {error}"]
    notes += _missing_notes(raw)
    weights = None if raw.weights is None else check_weights(raw.weights, len(raw.scores), "weights", allow_zero=True)
    return ScoreTable(
        scores=raw.scores,
        labels=labels,
        groups=raw.groups,
        exemplar_groups=raw.exemplar_groups,
        exemplar_names=raw.names,
        weights=weights,
        forbidden=raw.forbidden if labels is not None else None,
        notes=tuple(notes),
        missing=missing,
    )


def _binary_labels(values: NDArray[Any], raw: RawTable, positive_label: object, both: bool) -> NDArray[np.int8]:
    """(n,) 0/1 from whatever the labels are written as; with `both`, each class must occur."""
    name = raw.labels_name
    if values.ndim != 1:
        raise InputError(f"`{name}` must have one dimension, got shape {values.shape}")
    if values.dtype.kind not in "biufUS":
        raise InputError(f"`{name}` must hold numbers or texts, got dtype {values.dtype}")
    distinct, codes = np.unique(values, return_inverse=True)
    texts = [_label_text(value) for value in distinct]
    found = sorted(set(texts))
    missing = [text in ("", "nan", "None") for text in texts]
    if any(missing):
        is_missing = np.array(missing)[codes]
        place = raw.place(int(is_missing.argmax()))
        raise InputError(f"`{name}` has {int(is_missing.sum())} missing labels, the first in {place}")
    if positive_label is not None:
        positive = _label_text(positive_label)
        if both and (positive not in found or len(found) == 1):
            what = "not among" if positive not in found else "the only one of"
            raise InputError(f"the positive label {positive_label!r} is {what} the labels in `{name}`: {listed(found)}")
    else:
        positive = "1"
        if len(found) > 2 or (both and len(found) < 2):
            hint = "; --positive-label makes all others negative" if len(found) > 2 else ""
            raise InputError(f"`{name}` must hold two different labels, got {len(found)}: {listed(found)}{hint}")
        if not any(set(found) <= pair for pair in _BINARY_PAIRS):
            raise InputError(f"`{name}` holds the labels {listed(found)}: say which one is positive (--positive-label)")
    return np.array([text == positive for text in texts], dtype=np.int8)[codes]


def _missing_notes(raw: RawTable) -> list[str]:
    """How many scores are missing, and rows that have none."""
    is_missing = np.isneginf(raw.scores)
    n_missing = int(is_missing.sum())
    if n_missing == 0:
        return []
    notes = [f"{n_missing:,} of {is_missing.size:,} scores are missing and count as not fired"]
    empty = np.flatnonzero(is_missing.all(axis=1))
    if len(empty):
        which = (
            "1 row has no score at all and is"
            if len(empty) == 1
            else f"{len(empty):,} rows have no score at all and are"
        )
        notes.append(f"{which} never accepted, the first in {raw.place(int(empty[0]))}")
    return notes


def _label_text(value: object) -> str:
    """One spelling for equal labels: 1, 1.0, '1', True and 'true' are all '1'."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    text = text.strip()
    if text.casefold() in ("true", "false"):
        return "1" if text.casefold() == "true" else "0"
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else text


def _choose(table: ScoreTable, columns: Sequence[str]) -> ScoreTable:
    if table.exemplar_names is not None:
        return table if table.exemplar_names == list(columns) else table.columns(columns)
    if table.n_exemplars != len(columns):
        raise InputError(f"there are {table.n_exemplars} columns of scores where {len(columns)} are expected")
    return table


def _without(table: ScoreTable, exclude: Sequence[str]) -> ScoreTable:
    """The table without some of its columns, all of which must be there."""
    table.columns(exclude)
    return table.columns([name for name in table.names if name not in exclude])


def _check_length(values: Sequence[Any] | NDArray[Any] | None, name: str, n: int, of: str) -> None:
    if values is not None and np.shape(values) != (n,):
        raise InputError(f"`{name}` must have one entry for each of the {n} {of}, got shape {np.shape(values)}")


def _first_repeated(names: Sequence[str]) -> str:
    return next(name for i, name in enumerate(names) if name in names[:i])
