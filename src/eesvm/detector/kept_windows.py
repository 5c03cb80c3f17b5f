"""Descriptors of some training windows, kept so that a model can grow without its training images.

    classes/NAME/kept.safetensors

In: described training windows, a trained class. Out: `ChosenWindows`, and of these a file or `KeptWindows`: of a class,
descriptors of the windows that it is calibrated on, of the negatives that its single SVM finds hardest, and of the
windows of whole images that detections are judged by. Exemplars that come later are trained against the negatives,
scored on the calibration windows, and scores for detections are suggested from whole images (`suggestions`). Numbers
are kept as float16, in units of the largest, which costs about a thousandth of a score.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.documents import Document
from eesvm._support.halves import (
    F16,
    from_half,
    is_finite,
    largest,
    largest_of_rows,
    round_to_half,
    rows_to_half,
    to_half,
)
from eesvm._support.tensors import check_shapes, read_arrays, write_arrays
from eesvm._support.validation import InputError
from eesvm.detector.class_training import SingleSVM, calibration_rows, class_rows
from eesvm.detector.left_out import JudgedWindows, judged_windows
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_table import TrainingWindows
from eesvm.exemplars.scoring import score_windows
from eesvm.exemplars.svms import LinearExemplars

KEPT_NAME = "kept.safetensors"
MOST_HARD = 5_000  # negatives that the single SVM scores highest

F32 = NDArray[np.float32]

_FORMAT, _VERSION = "eesvm-kept-windows", 1
_DESCRIPTORS = ("rows", "hard", "judged")
_TABLES: dict[str, np.dtype[Any]] = {
    **dict.fromkeys(_DESCRIPTORS, np.dtype(np.float16)),
    "scale": np.dtype(np.float32),
    "hard_boxes": np.dtype(np.float64),
    "hard_image": np.dtype(np.int64),
    "boxes": np.dtype(np.float64),
    "image": np.dtype(np.int64),
    "weights": np.dtype(np.float64),
    "objects": np.dtype(np.float64),
    "object_image": np.dtype(np.int64),
    "is_ignored": np.dtype(np.bool_),
}
_GEOMETRY = ("boxes", "image", "weights", "objects", "object_image", "is_ignored")


@dataclass(frozen=True)
class KeptWindows:
    """Windows of one class, without their images."""

    rows: F32  # (n, d) of the windows in the score table, row by row
    hard: F32  # (m, d) negatives, the hardest first
    hard_boxes: NDArray[np.float64]  # (m, 4) where these lie
    hard_images: NDArray[np.str_]  # (m,) and in which image
    judged: JudgedWindows  # windows of whole images; their scores are (k, 0)
    judged_rows: F32  # (k, d) of these

    @classmethod
    def none(cls, dimension: int) -> KeptWindows:
        """Of a class that nothing is kept of."""
        nothing, nowhere, nobody = np.empty((0, dimension), dtype=np.float32), np.empty((0, 4)), np.empty(0, np.int64)
        judged = JudgedWindows(
            scores=nothing[:, :0],
            boxes=nowhere,
            image=nobody,
            image_ids=np.empty(0, dtype=np.str_),
            weights=np.empty(0),
            objects=nowhere,
            object_image=nobody,
            is_ignored=np.empty(0, dtype=bool),
        )
        return cls(nothing, nothing, nowhere, np.empty(0, dtype=np.str_), judged, nothing)

    def scored(self, exemplars: LinearExemplars) -> JudgedWindows:
        """The windows of whole images with their scores under some exemplars."""
        scores = score_windows(self.judged_rows, exemplars.coef_, exemplars.intercept_)
        return replace(self.judged, scores=scores)


@dataclass(frozen=True)
class ChosenWindows:
    """The same before anything is copied: which of the training windows are to be kept."""

    windows: TrainingWindows
    rows: NDArray[np.int64]
    hard: NDArray[np.int64]
    judged: JudgedWindows  # with their rows

    @property
    def tables(self) -> tuple[NDArray[np.int64], ...]:
        """Rows of the descriptors that are kept, in the order of `_DESCRIPTORS`."""
        assert self.judged.rows is not None
        return self.rows, self.hard, self.judged.rows

    def kept(self) -> KeptWindows:
        """Their descriptors, as a file will hold them."""
        rows, hard, judged_rows = (_rounded(self.windows.descriptors, one) for one in self.tables)
        return KeptWindows(rows, hard, *self.places(), _bare(self.judged), judged_rows)

    def places(self) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
        """Where the hard negatives lie, and in which images."""
        windows = self.windows
        return windows.boxes[self.hard], windows.image_ids[windows.image[self.hard]]


def keep_windows(
    windows: TrainingWindows,
    class_name: str,
    exemplars: LinearExemplars,
    single: SingleSVM,
    options: DetectorOptions,
    judged: JudgedWindows | None = None,
) -> ChosenWindows:
    """What is to be kept of the training windows of a class.

    Parameters
    ----------
    windows : of the training images.
    class_name : the class.
    exemplars, single : its detectors.
    options : that it was trained with.
    judged : windows of whole images, where the same exemplars have just scored them here.
    """
    seed = options.random_state
    chosen, _, _ = calibration_rows(windows, class_name, options.calibration, seed)
    negatives = np.flatnonzero(class_rows(windows, class_name, options.training, seed)[0].is_negative)
    scores = single.scores(windows.descriptors)[negatives]
    hard = negatives[np.argsort(-scores, kind="stable")[:MOST_HARD]]
    if judged is None or judged.rows is None:
        judged = judged_windows(windows, class_name, exemplars, seed)
    return ChosenWindows(windows, chosen, hard, judged)


def with_windows(
    kept: KeptWindows, windows: TrainingWindows, rows: NDArray[np.int64], judged: JudgedWindows
) -> KeptWindows:
    """With calibration windows of further images behind the ones there are, and judged by these images, too.

    Parameters
    ----------
    kept : what there is.
    windows : of the further images.
    rows : of theirs that join the score table.
    judged : windows of whole images among them; they take the place of those of the same images.
    """
    assert judged.rows is not None
    first, is_left = _without_images(kept.judged, judged.image_ids)
    n = first.n_images
    together = JudgedWindows(
        scores=np.empty((len(first.image) + len(judged.image), 0), dtype=np.float32),
        image=np.concatenate([first.image, judged.image + n]),
        object_image=np.concatenate([first.object_image, judged.object_image + n]),
        **{
            name: np.concatenate([getattr(first, name), getattr(judged, name)])
            for name in ("boxes", "image_ids", "weights", "objects", "is_ignored")
        },
    )
    return replace(
        kept,
        rows=np.concatenate([kept.rows, _rounded(windows.descriptors, rows)]),
        judged=together,
        judged_rows=np.concatenate([kept.judged_rows[is_left], _rounded(windows.descriptors, judged.rows)]),
    )


def with_hardest(
    kept: KeptWindows, windows: TrainingWindows, is_negative: NDArray[np.bool_], single: SingleSVM
) -> KeptWindows:
    """With the hardest of the negatives there are and those of further images.

    Parameters
    ----------
    kept : what there is.
    windows : of the further images.
    is_negative : (n,) which of them are negatives.
    single : says what is hard.
    """
    hard = np.concatenate([kept.hard, _rounded(windows.descriptors, np.flatnonzero(is_negative))])
    boxes = np.concatenate([kept.hard_boxes, windows.boxes[is_negative]])
    images = np.concatenate([kept.hard_images, windows.image_ids[windows.image[is_negative]]])
    order = np.argsort(-single.scores(hard), kind="stable")[:MOST_HARD]
    return replace(kept, hard=hard[order], hard_boxes=boxes[order], hard_images=images[order])


def _without_images(judged: JudgedWindows, names: NDArray[np.str_]) -> tuple[JudgedWindows, NDArray[np.bool_]]:
    """What is judged without some images, and which of its windows are left."""
    stays = ~np.isin(judged.image_ids, names)
    number = np.cumsum(stays) - 1
    rows, objects = stays[judged.image], stays[judged.object_image]
    left = JudgedWindows(
        scores=judged.scores[rows],
        boxes=judged.boxes[rows],
        image=number[judged.image[rows]],
        image_ids=judged.image_ids[stays],
        weights=judged.weights[stays],
        objects=judged.objects[objects],
        object_image=number[judged.object_image[objects]],
        is_ignored=judged.is_ignored[objects],
    )
    return left, rows


def write_kept(file: Path, kept: KeptWindows | ChosenWindows) -> None:
    """One file; images are called by their names."""
    tables, scale = _as_halves(kept)
    hard_boxes, hard_images = kept.places() if isinstance(kept, ChosenWindows) else (kept.hard_boxes, kept.hard_images)
    arrays: dict[str, NDArray[Any]] = dict(zip(_DESCRIPTORS, tables, strict=True))
    arrays |= {"scale": np.array([scale])} | {name: getattr(kept.judged, name) for name in _GEOMETRY}
    names, places = np.unique(hard_images, return_inverse=True)
    arrays |= {"hard_boxes": hard_boxes, "hard_image": places.astype(np.int64)}
    texts = {"images": kept.judged.image_ids.tolist(), "hard_images": names.tolist()}
    write_arrays(file, _FORMAT, _VERSION, arrays, {name: json.dumps(value) for name, value in texts.items()})


def _as_halves(kept: KeptWindows | ChosenWindows) -> tuple[list[F16], np.float32]:
    """The tables of descriptors, and their unit."""
    if isinstance(kept, ChosenWindows):
        described = kept.windows.descriptors
        scale = _power_of_two(max(largest_of_rows(described, rows) for rows in kept.tables))
        return [rows_to_half(described, rows, scale) for rows in kept.tables], np.float32(scale)
    tables = kept.rows, kept.hard, kept.judged_rows
    scale = _power_of_two(max(largest(table) for table in tables))
    return [to_half(table, scale) for table in tables], np.float32(scale)


def read_kept(file: Path, dimension: int, n_rows: int | None = None, *, only_judged: bool = False) -> KeptWindows:
    """What `write_kept` wrote, for descriptors of this dimension and a score table of so many rows.

    With `only_judged` the others, nearly all of the file, are not read: `rows` and `hard` are empty.
    """
    left_out = ("rows", "hard", "hard_boxes", "hard_image") if only_judged else ()
    arrays, metadata = read_arrays(file, _FORMAT, _VERSION, _TABLES, left_out)
    names, hard_names = (_names(file, metadata, what) for what in ("images", "hard_images"))
    k, m = len(arrays["image"]), len(arrays["object_image"])
    n = len(arrays["rows"]) if n_rows is None else n_rows
    n_hard = len(arrays["hard"])
    shapes: dict[str, tuple[int, ...]] = {"rows": (n, dimension), "hard": (n_hard, dimension)}
    shapes |= {"hard_boxes": (n_hard, 4), "hard_image": (n_hard,)}
    shapes |= {"judged": (k, dimension), "boxes": (k, 4), "weights": (len(names),), "scale": (1,)}
    check_shapes(file, arrays, shapes | {"image": (k,), "objects": (m, 4), "object_image": (m,), "is_ignored": (m,)})
    for name in ("image", "object_image"):
        own = arrays[name]
        if len(own) and (own.min() < 0 or own.max() >= len(names) or (np.diff(own) < 0).any()):
            raise InputError(f"{file}: `{name}` must rise from 0 to the {len(names)} images at most")
    if n_hard and not 0 <= arrays["hard_image"].min() <= arrays["hard_image"].max() < len(hard_names):
        raise InputError(f"{file}: `hard_image` must be places among the {len(hard_names)} images")
    scale = arrays["scale"][0]
    if not (np.isfinite(scale) and scale > 0) or not all(_is_finite(arrays[name]) for name in _TABLES):
        raise InputError(f"{file}: its numbers must be finite, and `scale` above 0")
    rows, hard, judged_rows = (from_half(arrays.pop(name), float(scale)) for name in _DESCRIPTORS)
    geometry = {name: arrays[name] for name in _GEOMETRY}
    nobody = np.empty((k, 0), dtype=np.float32)
    judged = JudgedWindows(scores=nobody, image_ids=np.array(names, dtype=np.str_), **geometry)
    hard_images = np.array(hard_names, dtype=np.str_)[arrays["hard_image"]] if n_hard else np.empty(0, dtype=np.str_)
    return KeptWindows(rows, hard, arrays["hard_boxes"], hard_images, judged, judged_rows)


def _names(file: Path, metadata: Mapping[str, str], what: str) -> list[str]:
    names = Document(file).parse(what, metadata.get(what, ""))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{file}: `{what}` must be a list of names")
    return names


def _is_finite(array: NDArray[Any]) -> bool:
    return is_finite(array) if array.dtype == np.float16 else bool(np.isfinite(array).all())


def _bare(judged: JudgedWindows) -> JudgedWindows:
    return replace(judged, scores=np.empty((len(judged.image), 0), dtype=np.float32), rows=None)


def _rounded(descriptors: F32, rows: NDArray[np.int64]) -> F32:
    """Some rows as a file will hold them: a model in memory says what one that was read says, but for tiny numbers."""
    table = np.ascontiguousarray(descriptors[rows], dtype=np.float32)
    # In units of a power of two only the exponent changes: rounding is the same whatever the unit of the file.
    round_to_half(table, _power_of_two(largest(table)))
    return table


def _power_of_two(largest: float) -> float:
    """A unit in which numbers up to `largest` are at most 1."""
    return float(2.0 ** np.ceil(np.log2(largest))) if largest > 0 else 1.0
