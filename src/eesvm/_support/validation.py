"""Checks of arguments and arrays: the one place where the texts of errors are shaped.

In: what a user passed. Out: arrays of a known dtype and shape, or an `InputError` whose one sentence names
the argument, the rule and the value that broke it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.floating[Any]]

NOT_FIRED = "not-fired"
MISSING = ("refuse", NOT_FIRED)  # what a score that is not there means
OFFER = "; `missing='not-fired'` (--missing not-fired) takes what is missing for a detector that did not fire"

_BLOCK_ELEMENTS = 1 << 19  # elements looked at together, so that checks of a large or memory-mapped table stay small


class InputError(ValueError):
    """Something the caller passed cannot be used; the message is one sentence for people."""


def check_scores(values: ArrayLike, name: str, missing: str | None = None) -> FloatArray:
    """`values` as a finite 2-D float32 or float64 array, without a copy where it is one already.

    float16 becomes float32 and integers become float64, both exactly; float64 is the widest float kept. With
    `missing="not-fired"`, NaN, -inf and masked entries are scores that are not there, and become -inf. Where the caller
    offers that, `missing="refuse"` lets the refusal say so.
    """
    offer = "" if missing is None else OFFER
    if np.ma.is_masked(values):
        if missing != NOT_FIRED:
            raise InputError(f"`{name}` has masked entries: fill them with a score, or leave their rows out{offer}")
        values = _without_mask(values)
    try:
        scores = np.asarray(values)  # of a memory map a view, of a matrix a plain array
    except ValueError as error:
        raise InputError(f"`{name}` must be a table of numbers, got rows of different lengths") from error
    if scores.ndim != 2:
        raise InputError(f"`{name}` must have two dimensions (windows, detectors), got shape {scores.shape}")
    if scores.dtype.kind in "iu":
        if scores.size and max(abs(int(scores.min())), abs(int(scores.max()))) > 2**53:
            raise InputError(f"`{name}` holds integers beyond 2**53, which float64 scores cannot hold exactly")
        scores = scores.astype(np.float64)
    elif scores.dtype.kind != "f":
        raise InputError(f"`{name}` must hold numbers, got dtype {scores.dtype}")
    elif scores.dtype == np.float16:
        scores = scores.astype(np.float32)
    elif scores.dtype.itemsize > 8:
        scores = scores.astype(np.float64)
    if not scores.dtype.isnative:
        scores = scores.astype(scores.dtype.newbyteorder("="))
    if missing == NOT_FIRED:
        return _not_fired(scores, name)
    check_finite(scores, name, offer)
    return scores


def _without_mask(values: Any) -> np.ndarray:
    """The entries of a masked array with NaN for those that are masked."""
    entries = np.ma.asarray(values)
    wide = np.asarray(entries.data).astype(np.result_type(entries.dtype, np.float32))
    wide[np.ma.getmaskarray(entries)] = np.nan
    return wide


def _not_fired(scores: FloatArray, name: str) -> FloatArray:
    """The scores with -inf for NaN, a copy only where there is any; +inf is no score."""
    _refuse(scores, name, np.isposinf, "+inf")
    if not any(np.isnan(block).any() for _, block in row_blocks(scores)):
        return scores
    return np.where(np.isnan(scores), scores.dtype.type(-np.inf), scores)


def check_finite(values: FloatArray, name: str, offer: str = "") -> None:
    """Refuse NaN and infinity: how many there are, and where the first one is; `offer` follows where any is NaN."""
    _refuse(values, name, lambda block: ~np.isfinite(block), "NaN or infinite", offer)


def _refuse(
    values: FloatArray, name: str, is_bad: Callable[[FloatArray], NDArray[np.bool_]], what: str, offer: str = ""
) -> None:
    n_bad, first, any_nan = 0, None, False
    for start, block in row_blocks(values):
        bad = is_bad(block)
        count = int(bad.sum())
        if count and first is None:
            row, *column = np.argwhere(bad)[0]
            first = [start + int(row), *map(int, column)]
        n_bad += count
        any_nan = any_nan or bool(count and np.isnan(block).any())
    if first is not None:
        where = "row {}, column {}".format(*first) if len(first) == 2 else f"index {first[0]}"
        noun = "value that is" if n_bad == 1 else "values that are"
        raise InputError(f"`{name}` holds {n_bad} {noun} {what}, the first at {where}{offer if any_nan else ''}")


def check_weights(values: ArrayLike | None, n: int, name: str, *, allow_zero: bool) -> NDArray[np.float64]:
    """`n` finite weights as float64; ones where `values` is None."""
    if values is None:
        return np.ones(n)
    try:
        weights = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"`{name}` must hold numbers") from error
    if weights.shape != (n,):
        raise InputError(f"`{name}` must have shape ({n},), got {weights.shape}")
    check_finite(weights, name)
    bad = weights < 0 if allow_zero else weights <= 0
    if bad.any():
        index = int(np.argmax(bad))
        rule = ">= 0" if allow_zero else "> 0"
        raise InputError(f"`{name}` must be {rule}, got {weights[index]:g} at index {index}")
    with np.errstate(over="ignore"):
        if not np.isfinite(2 * weights.sum()):  # twice, so that no way of adding them up overflows
            raise InputError(f"`{name}` must have a finite sum")
    return weights


def check_number(
    value: Any,
    name: str,
    *,
    minimum: float = -math.inf,
    maximum: float = math.inf,
    above: float = -math.inf,
    integer: bool = False,
) -> float:
    """A finite number with `minimum <= value <= maximum` and `value > above`."""
    kinds = (int, np.integer) if integer else (int, float, np.integer, np.floating)
    if isinstance(value, bool | np.bool_) or not isinstance(value, kinds):
        raise InputError(f"`{name}` must be {'an integer' if integer else 'a number'}, got {value!r}")
    if not -math.inf < value < math.inf:
        raise InputError(f"`{name}` must be finite, got {value}")
    if value < minimum:
        raise InputError(f"`{name}` must be >= {minimum:g}, got {value}")
    if value > maximum:
        raise InputError(f"`{name}` must be <= {maximum:g}, got {value}")
    if value <= above:
        raise InputError(f"`{name}` must be > {above:g}, got {value}")
    return int(value) if integer else float(min(value, sys.float_info.max))


def check_choice(value: Any, name: str, choices: tuple[Any, ...]) -> None:
    """`value` is one of `choices`."""
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise InputError(f"`{name}` must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_image_name(image_id: str) -> None:
    """`image_id`, which may be the name of any file, is text that can be written to one."""
    try:
        image_id.encode()
    except UnicodeEncodeError:
        raise InputError(f"the name of the image {image_id!r} is not text in UTF-8: give its file another") from None


def row_blocks(values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(first row, rows) pieces of `values` of half a million elements each."""
    width = max(1, int(np.prod(values.shape[1:])))
    step = max(1, _BLOCK_ELEMENTS // width)
    for start in range(0, len(values), step):
        yield start, values[start : start + step]


def check_table(values: Any, name: str, missing: str | None = None) -> FloatArray:
    """`check_scores` for what estimators receive: data frames, columns of Python numbers, at least one of each side."""
    if hasattr(values, "toarray"):
        raise InputError(f"`{name}` must be a dense table, got a sparse one: call its `toarray()` first")
    if getattr(getattr(values, "dtype", None), "kind", "") == "c":
        raise InputError(f"Complex data not supported: `{name}` must hold real numbers, got dtype {values.dtype}")
    if not hasattr(values, "dtype") or values.dtype == object:  # lists and frames, whose columns may differ in dtype
        values = _as_numbers(values, name, missing)
    if np.ndim(values) == 1:
        raise InputError(
            f"`{name}` must have two dimensions (windows, detectors), got shape {np.shape(values)}: "
            "Reshape your data by `reshape(1, -1)` if it is one window"
        )
    scores = check_scores(values, name, missing)
    if scores.shape[1] == 0:
        # The words of scikit-learn, by which its checks know a clear answer.
        raise InputError(
            f"`{name}` has 0 feature(s) (shape={scores.shape}) while a minimum of 1 is required, a column per detector"
        )
    if len(scores) == 0:
        raise InputError(
            f"`{name}` has 0 sample(s) (shape={scores.shape}) while a minimum of 1 is required, a row per window"
        )
    return scores


def check_labels(
    values: Any, n: int, name: str = "y", pos_label: object = None
) -> tuple[np.ndarray, NDArray[np.bool_]]:
    """The negative and the positive label in `values`, and for each of the `n` windows whether it is positive.

    `pos_label` is the positive one; where it is None, 1 or True beside 0, -1 or False.
    """
    classes, class_ids = two_labels(values, n, name)
    positive = _positive_class(classes, pos_label, name)
    return classes[[1 - positive, positive]], class_ids == positive


def two_labels(values: Any, n: int, name: str = "y") -> tuple[np.ndarray, NDArray[np.intp]]:
    """The two labels in `values`, sorted, and for each of the `n` windows which of them it carries."""
    labels = np.asarray(values)
    if labels.shape != (n,):
        raise InputError(f"`{name}` must have one label per window, shape ({n},), got shape {labels.shape}")
    if labels.dtype.kind == "c":
        raise InputError(f"Complex data not supported: `{name}` must hold labels, got dtype {labels.dtype}")
    if labels.dtype.kind == "f":
        check_finite(labels, name)
        _check_whole(labels, name)
    try:
        classes, class_ids = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise InputError(f"`{name}` must hold two labels that can be compared with each other") from error
    if len(classes) == 1:
        raise InputError(_one_class(classes[0], name))
    if len(classes) > 2:
        raise InputError(
            "Only binary classification is supported. The type of the target is multiclass: "
            f"`{name}` must hold two labels, got {len(classes)}"
        )
    return classes, class_ids.reshape(n)


def _positive_class(classes: np.ndarray, pos_label: object, name: str) -> int:
    """Which of two labels is positive, by `pos_label` or where it goes without saying."""
    labels = classes.tolist()
    if pos_label is not None:
        found = [k for k, label in enumerate(labels) if isinstance(label, str) == isinstance(pos_label, str)]
        found = [k for k in found if bool(labels[k] == pos_label)]
        if not found:
            raise InputError(
                f"`pos_label` must be one of the labels in `{name}`, {labels[0]!r} or {labels[1]!r}, got {pos_label!r}"
            )
        return found[0]
    if not any(labels == usual for usual in ([0, 1], [-1, 1])):
        raise InputError(
            f"`{name}` holds the labels {labels[0]!r} and {labels[1]!r}: say which one is positive by `pos_label`"
        )
    return 1


def check_groups(values: Any, n: int, name: str, of: str) -> np.ndarray:
    """`n` group identifiers, numbers or strings, one per `of`."""
    groups = np.asarray(values)
    if groups.shape != (n,):
        raise InputError(f"`{name}` must have one group per {of}, shape ({n},), got shape {groups.shape}")
    return groups


def group_ids(*columns: np.ndarray, names: tuple[str, ...]) -> list[NDArray[np.intp]]:
    """The columns with integers for groups, the same integer for the same group in all of them."""
    if len({_identifier_kind(column) for column in columns}) > 1:
        kinds = " and ".join(str(column.dtype) for column in columns)
        raise InputError(f"{' and '.join(f'`{name}`' for name in names)} must be of one kind, got dtypes {kinds}")
    try:
        _, ids = np.unique(np.concatenate(columns), return_inverse=True)
    except TypeError as error:
        raise InputError(f"`{names[0]}` must hold groups that can be compared with each other") from error
    return np.split(ids.reshape(-1), np.cumsum([len(column) for column in columns])[:-1])


def _identifier_kind(column: np.ndarray) -> str:
    """Text or number: a text "7" and a number 7 are not the same image."""
    if column.dtype == object:
        return "text" if all(isinstance(value, str) for value in column) else "number"
    return "text" if column.dtype.kind in "UST" else "number"


def _as_numbers(values: Any, name: str, missing: str | None = None) -> np.ndarray:
    try:
        is_pandas = type(values).__module__.partition(".")[0] == "pandas"
        if missing == NOT_FIRED and is_pandas:  # which keeps columns with holes as objects; polars makes them NaN
            return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
        table = np.asarray(values)
        return table.astype(np.float64) if table.dtype == object else table
    except (TypeError, ValueError) as error:
        raise InputError(f"`{name}` must be a table of numbers: {error}") from error


def _check_whole(labels: FloatArray, name: str) -> None:
    """Labels stored as floats are fine, a regression target is not."""
    is_fraction = labels != np.floor(labels)
    if is_fraction.any():
        value = labels[np.argmax(is_fraction)]
        raise InputError(f"Unknown label type: `{name}` must hold two labels, got continuous values such as {value:g}")


def _one_class(label: Any, name: str) -> str:
    """What is wrong with labels of one class only; of the usual labels one knows which class is missing."""
    is_number = np.asarray(label).dtype.kind in "biuf"
    missing = {0: "positive", -1: "positive", 1: "negative"}.get(label) if is_number else None
    if missing is None:
        return f"`{name}` must hold two labels, for negative and positive windows: got one class only, {label}"
    return f"`{name}` holds no {missing} window: got one class only, {label}"
