"""Score tables in parquet files; pyarrow is an extra, and imported here only.

In: a file with one numeric column per exemplar. Out: `RawTable`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.archives import instead, listed
from eesvm._support.validation import NOT_FIRED, OFFER, InputError
from eesvm.calibration.tables.raw import RawTable, choose_columns, note_ids


def read_parquet(
    path: Path,
    label_column: str,
    group_column: str | None,
    columns: Sequence[str] | None,
    exclude: Sequence[str] = (),
    missing: str = "refuse",
) -> RawTable:
    """A parquet file with one numeric column per detector; only the columns that matter are read."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError("reading parquet needs pyarrow: pip install 'eesvm[parquet]'") from None
    try:
        return _read(pyarrow.parquet.ParquetFile(path), label_column, group_column, columns, exclude, missing)
    except InputError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:  # ValueError: texts that are not UTF-8
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"it is not a whole parquet file{instead(path, besides=b'PAR1')} ({first_line})") from None


def _read(
    file: Any,
    label_column: str,
    group_column: str | None,
    columns: Sequence[str] | None,
    exclude: Sequence[str],
    missing: str,
) -> RawTable:
    header = [str(name) for name in file.schema_arrow.names]
    label, group, scores = choose_columns(header, label_column, group_column, columns, exclude)
    wanted = [header[j] for j in [*scores, label, group] if j is not None]
    table = file.read(columns=wanted)
    names = [header[j] for j in scores]
    values = _numeric_columns(table, names, missing)
    return RawTable(
        scores=values,
        names=names,
        labels=None if label is None else _text_column(table[header[label]]),
        labels_name=label_column,
        without_labels=f"there is no column {label_column!r} of labels, only {listed(header)}: --label-column names it",
        groups=None if group is None else _text_column(table[header[group]]),
        ignored=[name for name in header if name not in set(wanted)],
        notes=note_ids(values, names) if columns is None else [],
    )


def _numeric_columns(table: Any, names: list[str], missing: str) -> NDArray[Any]:
    """(n, E) float32 where every column is, else float64."""
    import pyarrow

    types = [table.schema.field(name).type for name in names]
    for name, kind in zip(names, types, strict=True):
        is_empty = pyarrow.types.is_null(kind) and missing == NOT_FIRED
        if not (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or is_empty):
            raise InputError(f"column {name!r} holds {kind} instead of numbers")
        column = table[name]
        if column.null_count and missing != NOT_FIRED:
            row = column.is_null().to_pylist().index(True)
            raise InputError(f"column {name!r} has {column.null_count} empty cells, the first in row {row}{OFFER}")
    narrow = all(pyarrow.types.is_float32(kind) or pyarrow.types.is_float16(kind) for kind in types)
    scores = np.empty((table.num_rows, len(names)), dtype=np.float32 if narrow else np.float64)
    for j, name in enumerate(names):
        # Integers with nulls come as floats with NaN; a column of nulls alone comes as objects.
        scores[:, j] = table[name].to_numpy().astype(scores.dtype)
        if missing == NOT_FIRED:
            scores[np.isnan(scores[:, j]), j] = -np.inf
        bad = ~np.isfinite(scores[:, j]) & ~(np.isneginf(scores[:, j]) & (missing == NOT_FIRED))
        if bad.any():
            row, offer = int(np.argmax(bad)), OFFER if np.isnan(scores[:, j]).any() else ""
            raise InputError(
                f"column {name!r} holds {int(bad.sum())} NaN or infinite scores, the first in row {row}{offer}"
            )
    return scores


def _text_column(column: Any) -> NDArray[Any]:
    return np.array(["" if value is None else str(value) for value in column.to_pylist()], dtype=np.str_)
