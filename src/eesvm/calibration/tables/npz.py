"""Score tables in .npz archives.

In: an archive with `positive_scores` and `negative_scores`, or `scores` and `labels`. Out: `RawTable`.
Not here: pickled objects, which can run code from the file.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.archives import listed, load_arrays
from eesvm._support.validation import InputError, check_scores
from eesvm.calibration.tables.raw import RawTable

_ARRAYS = {
    "positive_scores", "negative_scores", "positive_groups", "negative_groups", "positive_weights", "negative_weights",
    "scores", "labels", "groups", "weights", "exemplar_groups", "exemplar_names", "forbidden",
}  # fmt: skip


def read_npz(
    path: Path,
    label_column: str,
    group_column: str | None,
    columns: Sequence[str] | None,
    exclude: Sequence[str] = (),
    missing: str = "refuse",
) -> RawTable:
    """The arrays of a .npz archive; the names of columns mean nothing here."""
    arrays = load_arrays(path, _ARRAYS)
    if "positive_scores" in arrays and "negative_scores" in arrays:
        return _from_two_tables(arrays, missing)
    if "scores" not in arrays:
        raise InputError(
            "there must be arrays `positive_scores` and `negative_scores`, or `scores` and `labels`, "
            f"but there is {listed(list(arrays))}"
        )
    return RawTable(
        scores=check_scores(arrays["scores"], "scores", missing),
        names=_npz_names(arrays),
        labels=arrays.get("labels"),
        without_labels=f"there is no array `labels`, only {listed(list(arrays))}",
        groups=arrays.get("groups"),
        exemplar_groups=arrays.get("exemplar_groups"),
        weights=arrays.get("weights"),
        forbidden=arrays.get("forbidden"),
    )


def _from_two_tables(arrays: dict[str, NDArray[Any]], missing: str) -> RawTable:
    """Positives first, then negatives, as one table."""
    positive = check_scores(arrays["positive_scores"], "positive_scores", missing)
    negative = check_scores(arrays["negative_scores"], "negative_scores", missing)
    if positive.shape[1] != negative.shape[1]:
        raise InputError(
            "`positive_scores` and `negative_scores` must have one column per detector, "
            f"got {positive.shape[1]} and {negative.shape[1]} columns"
        )
    sizes = len(positive), len(negative)
    empty = [name for name, size in zip(("positive_scores", "negative_scores"), sizes, strict=True) if not size]
    return RawTable(
        scores=np.concatenate([positive, negative]),
        names=_npz_names(arrays),
        labels=np.repeat([1, 0], sizes),
        without_kind=f"`{empty[0]}` has no rows: positives and negatives are needed" if empty else "",
        groups=_joined(arrays, "groups", sizes),
        exemplar_groups=arrays.get("exemplar_groups"),
        weights=_joined(arrays, "weights", sizes),
        forbidden=arrays.get("forbidden"),
    )


def _joined(arrays: dict[str, NDArray[Any]], what: str, sizes: tuple[int, int]) -> NDArray[Any] | None:
    """`positive_<what>` and `negative_<what>` in a row.

    Weights of one side default to 1. Negatives without groups are a group each: nothing is known to bind them.
    """
    names = f"positive_{what}", f"negative_{what}"
    parts = [arrays.get(name) for name in names]
    if parts[0] is None and parts[1] is None:
        return None
    for name, part, n in zip(names, parts, sizes, strict=True):
        if part is not None and part.shape != (n,):
            raise InputError(f"`{name}` must have shape ({n},), got {part.shape}")
    if what == "weights":
        return np.concatenate([np.ones(n) if part is None else part for part, n in zip(parts, sizes, strict=True)])
    if parts[0] is None:
        raise InputError("there is an array `negative_groups` but no `positive_groups`")
    return np.concatenate([parts[0], _own_groups(parts[0], sizes[1]) if parts[1] is None else parts[1]])


def _own_groups(taken: NDArray[Any], n: int) -> NDArray[Any]:
    """`n` groups that are not in `taken`, of the same kind."""
    if taken.dtype.kind in "biuf":
        return np.floor(taken.max(initial=0)).astype(np.int64) + 1 + np.arange(n)
    used = set(_as_text(taken).tolist())
    fresh = (name for name in map("negative_{}".format, itertools.count()) if name not in used)
    return np.array(list(itertools.islice(fresh, n)), dtype=np.str_)


def _npz_names(arrays: dict[str, NDArray[Any]]) -> list[str] | None:
    names = arrays.get("exemplar_names")
    if names is None:
        return None
    if names.ndim != 1 or names.dtype.kind not in "USiu":
        raise InputError(f"`exemplar_names` must be a row of texts, got shape {names.shape} of dtype {names.dtype}")
    return [str(name) for name in _as_text(names)]


def _as_text(values: NDArray[Any]) -> NDArray[Any]:
    return np.char.decode(values, "utf-8", "replace") if values.dtype.kind == "S" else values
