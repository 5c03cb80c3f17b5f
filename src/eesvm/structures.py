"""Frozen dataclasses that travel between the rooms: what a file reader, a proposer and a detector hand over.

Boxes are (4,) or (n, 4) float64 arrays of x1, y1, x2, y2 in pixels, half-open: a box of one pixel at the origin is
0, 0, 1, 1. Readers convert whatever their format says. Images are RGB, uint8, (height, width, 3).
"""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm._support.extras import optional_module
from eesvm._support.validation import InputError, check_number

Box = NDArray[np.float64]

_CLASSES_SHOWN = 5  # by `repr`, of all classes that were found


class RowIndexError(InputError, IndexError):
    """A row was asked for that is not there; Python knows it as its own IndexError."""


@dataclass(frozen=True)
class Part:
    """A named part of an instance, such as a head."""

    name: str
    box: Box  # (4,)


@dataclass(frozen=True)
class Instance:
    """One annotated object."""

    class_name: str
    box: Box  # (4,)
    image_id: str
    index: int  # its position among the instances of its image, as in the file
    mask: Callable[[], NDArray[np.bool_]] | None = None  # reads its (height, width) mask, lazily
    parts: tuple[Part, ...] = ()
    is_difficult: bool = False
    is_truncated: bool = False
    is_crowd: bool = False
    pose: str | None = None
    area: float | None = None  # in pixels, where the file states it: COCO sorts objects into small and large by it
    metadata: Mapping[str, Any] = field(default_factory=dict)  # free: subcategory, attributes, ...
    source: str = ""  # the file, and line where there is one, that it comes from
    void: Callable[[], NDArray[np.bool_]] | None = None  # reads the pixels of its image that nobody labelled, lazily


@dataclass(frozen=True)
class ImageRecord:
    """One image of a dataset: where it is, how large it is, what is in it."""

    image_id: str  # unique in its dataset
    read: Callable[[], NDArray[np.uint8]]  # reads the RGB image, lazily
    width: int
    height: int
    instances: tuple[Instance, ...] = ()
    path: str = ""  # "" for an image that is made, not stored
    metadata: Mapping[str, Any] = field(default_factory=dict)  # free: label of its folder, is_annotated, ...

    @property
    def is_annotated(self) -> bool:
        """Whether its instances are all that it shows, so that one without any shows nothing."""
        return bool(self.metadata.get("is_annotated", True))

    @property
    def has_annotation(self) -> bool:
        """Whether somebody wrote down what it shows, were it nothing."""
        return bool(self.metadata.get("has_annotation", self.is_annotated))


@dataclass(frozen=True)
class Problem:
    """Something wrong in a file of a dataset; the run continues without what it names."""

    path: str
    reason: str
    line: int | None = None
    kind: str = "other"  # a word to count problems by: box, image, class, ...
    image_id: str | None = field(default=None, compare=False)  # of an image that cannot be read, where it is known

    def __str__(self) -> str:
        return f"{self.path}{'' if self.line is None else f':{self.line}'}: {self.reason}"


@dataclass(frozen=True)
class Dataset(Sequence[ImageRecord]):
    """Images with their instances, the classes and splits they belong to, and what was wrong with the files."""

    name: str
    images: tuple[ImageRecord, ...]
    classes: tuple[str, ...]
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # split name -> image ids
    problems: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Any) -> Any:
        return self.images[index]

    def annotated(self) -> Dataset:
        """Without the images that nobody has annotated, of which one may not say that they show nothing.

        Where nobody has annotated any, all of them stay.
        """
        images = tuple(image for image in self.images if image.is_annotated)
        return replace(self, images=images) if 0 < len(images) < len(self.images) else self

    def instances(self, class_name: str | None = None) -> Iterator[Instance]:
        """All instances, or those of one class, image by image."""
        for image in self.images:
            for instance in image.instances:
                if class_name is None or instance.class_name == class_name:
                    yield instance


@dataclass(frozen=True, eq=False)
class _BoxRows:
    """Boxes of one image and columns beside them, of which row i belongs to box i: they are indexed together."""

    image_id: str
    boxes: NDArray[np.float64]  # (n, 4)

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, rows: ArrayLike | slice) -> Self:
        """Some rows, in the order asked for: a slice, a mask, whole numbers; a single number gives one row.

        As in numpy, negative numbers count from the end, a slice is a view and everything else a copy.
        """
        chosen = _check_rows(rows, len(self))
        return replace(self, **{name: column[chosen] for name, column in self._columns().items()})

    def __eq__(self, other: object) -> bool:
        """The same image and the same values in the same order, whatever their dtype."""
        return _has_equal_fields(self, other) if type(other) is type(self) else NotImplemented

    def _columns(self) -> dict[str, Any]:
        """All but the image, by name, checked to be of one length."""
        columns = {each.name: np.asarray(getattr(self, each.name)) for each in fields(self) if each.name != "image_id"}
        for name, column in columns.items():
            if len(column) != len(self):
                raise InputError(
                    f"`{name}` of the image {self.image_id!r} must have one row for each of {len(self)} boxes, "
                    f"got {len(column)}"
                )
        return columns


@dataclass(frozen=True, eq=False)
class Windows(_BoxRows):
    """Proposals of one image; `windows[rows]` are some of them, by a slice, a mask or numbers of rows."""

    image_id: str
    boxes: NDArray[np.float64]  # (n, 4)
    instance: NDArray[np.int64]  # (n,) index of the instance whose ground-truth box this is, -1 for a proposal


@dataclass(frozen=True)
class ExemplarAnnotation:
    """What a training object can transfer: everything a detection inherits from the exemplar that won it."""

    class_name: str
    image_id: str
    index: int  # its position among the instances of its image
    box: Box  # (4,) in its own image; parts are in the same coordinates
    mask: NDArray[np.bool_] | None = None  # (height, width) of the pixels that the box touches
    parts: tuple[Part, ...] = ()
    pose: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)  # subcategory, attributes, ...
    picture: NDArray[np.uint8] | None = None  # (height, width, 3) of the pixels that the box touches
    is_mirrored: bool = False  # whether it is the mirror image of the object, see `transfer.mirrored`

    @property
    def name(self) -> str:
        """What people call it: its image, and its place among the objects there, counted from 1."""
        return f"{self.image_id}, object {self.index + 1}" + (", mirrored" if self.is_mirrored else "")


@dataclass(frozen=True, eq=False)
class Detection:
    """One row of `Detections`, as Python values."""

    image_id: str
    box: Box  # (4,)
    score: float
    class_name: str
    exemplar: int  # the winning exemplar among all of the model, -1 where there is none

    def __eq__(self, other: object) -> bool:
        return _has_equal_fields(self, other) if type(other) is type(self) else NotImplemented


@dataclass(frozen=True, eq=False)
class Detections(_BoxRows):
    """What was found in one image, in decreasing order of score.

    `len` counts them, iterating gives one `Detection` after the other. `found[rows]` are those of a slice, a mask or
    numbers of rows, in the order asked for; `found[0]` is a `Detections` of one row, and `(best,) = found[0]` its
    `Detection`. Nothing is changed in place: every method returns new `Detections`.
    """

    image_id: str
    boxes: NDArray[np.float64]  # (n, 4)
    scores: NDArray[np.float64]  # (n,)
    class_names: NDArray[np.str_]  # (n,)
    exemplars: NDArray[np.int64]  # (n,) the winning exemplar among all of the model, -1 where there is none

    @classmethod
    def empty(cls, image_id: str) -> Self:
        """Nothing was found in this image."""
        nothing = np.empty(0)
        return cls(image_id, np.empty((0, 4)), nothing, nothing.astype(np.str_), nothing.astype(np.int64))

    @classmethod
    def merge(cls, parts: Iterable[Self]) -> Self:
        """All detections of several parts of one image, best first, of equal scores in the order given.

        Boxes that overlap all stay: suppression is `boxes.batched_nms`.
        """
        given = list(parts)
        image_ids = list(dict.fromkeys(part.image_id for part in given))
        if len(image_ids) != 1:
            got = " and ".join(map(repr, image_ids[:2])) or "none"
            raise InputError(f"`parts` must be detections of one image, got {got}")
        filled = [part._columns() for part in given if len(part)] or [cls.empty(image_ids[0])._columns()]
        columns = {name: np.concatenate([part[name] for part in filled]) for name in filled[0]}
        return cls(image_ids[0], **columns).sorted()

    def __iter__(self) -> Iterator[Detection]:
        boxes, *others = self._columns().values()
        for box, score, class_name, exemplar in zip(boxes, *(column.tolist() for column in others), strict=True):
            yield Detection(self.image_id, box, float(score), str(class_name), int(exemplar))

    def __repr__(self) -> str:
        counts = Counter(map(str, self.class_names)).most_common()
        listed = ", ".join(f"{n:,} {name}" for name, n in counts[:_CLASSES_SHOWN])
        more = f", {len(counts) - _CLASSES_SHOWN} other classes" if len(counts) > _CLASSES_SHOWN else ""
        scores = f"; scores {np.max(self.scores):.3g} to {np.min(self.scores):.3g}" if len(self.scores) else ""
        return f"Detections({self.image_id!r}: {listed or 'nothing'}{more}{scores})"

    def sorted(self) -> Self:
        """In decreasing order of score, of equal scores the earlier row first."""
        return self[np.argsort(-np.asarray(self.scores), kind="stable")]

    def top(self, n: int) -> Self:
        """The `n` that score best, best first; all where there are fewer."""
        return self.sorted()[: int(check_number(n, "n", minimum=0, integer=True))]

    def at_least(self, score: float | Mapping[str, float]) -> Self:
        """Those that score `score` or more; a mapping has a score for each class, of others all stay."""
        if not isinstance(score, Mapping):
            return self[np.asarray(self.scores) >= check_number(score, "score")]
        least = {name: check_number(value, f"score[{name!r}]") for name, value in score.items()}
        lowest = np.array([least.get(name, -np.inf) for name in self.class_names.tolist()])
        return self[np.asarray(self.scores) >= lowest]

    def of_class(self, *class_names: str) -> Self:
        """Those of one class, or of any of several; of a class that was not found there are none."""
        for name in class_names:
            if not isinstance(name, str):
                raise InputError(f"`class_names` must be texts, got {reprlib.repr(name)}")
        return self[np.isin(self.class_names, class_names)]

    def to_supervision(self, classes: Sequence[str] | None = None) -> Any:
        """The same as `supervision.Detections`; needs `eesvm[supervision]`.

        `data` holds the columns `class_name` and `exemplar`.

        Parameters
        ----------
        classes : whose places are the class ids, such as `detector.classes_`. Default: those that were found, by name.
        """
        supervision = optional_module("supervision", "supervision")
        columns = self._columns()
        names = columns["class_names"].astype(np.str_)
        known = list(classes) if classes is not None else sorted(set(names.tolist()))
        for name in names.tolist():
            if name not in known:
                raise InputError(f"`classes` must hold every class that was found, but {name!r} is not there")
        return supervision.Detections(
            xyxy=columns["boxes"].astype(np.float32).reshape(-1, 4),
            confidence=columns["scores"].astype(np.float32),
            class_id=np.array([known.index(name) for name in names.tolist()], dtype=int),
            data={"class_name": names, "exemplar": columns["exemplars"].astype(np.int64)},
        )

    def to_fiftyone(self, width: int, height: int) -> Any:
        """The same as `fiftyone.Detections`, each with its `exemplar`; needs `eesvm[fiftyone]`.

        Parameters
        ----------
        width, height : of the image in pixels: boxes become shares of them.
        """
        fiftyone = optional_module("fiftyone", "fiftyone")
        size = [check_number(width, "width", above=0), check_number(height, "height", above=0)]
        found = []
        for one in self:
            low, high = one.box[:2] / size, one.box[2:] / size
            box = [*low.tolist(), *(high - low).tolist()]
            found.append(
                fiftyone.Detection(label=one.class_name, bounding_box=box, confidence=one.score, exemplar=one.exemplar)
            )
        return fiftyone.Detections(detections=found)


def _check_rows(rows: ArrayLike | slice, n: int) -> slice | NDArray[Any]:
    """What indexes a column of `n` rows: a slice, a mask, or (k,) whole numbers."""
    if isinstance(rows, slice):
        return rows
    index = _as_index(rows)
    if index is None:
        raise InputError(f"`rows` must be a slice, a mask or whole numbers, got {reprlib.repr(rows)}")
    if index.dtype == np.bool_:
        if len(index) != n:
            raise InputError(f"`rows` as a mask must have one entry for each of {n} rows, got {len(index)}")
        return index
    is_outside = (index < -n) | (index >= n)
    if is_outside.any():
        raise RowIndexError(f"there is no row {index[is_outside][0]}: rows are counted from 0, and there are {n}")
    return index


def _as_index(rows: ArrayLike) -> NDArray[Any] | None:
    """(k,) truth values or whole numbers; None where `rows` are neither, a tuple, or a single truth value."""
    try:
        index = np.asarray(rows)
    except ValueError:  # lists of different lengths
        return None
    if index.shape == (0,) and index.dtype != np.bool_:  # an empty list holds floats to numpy
        index = index.astype(np.intp)
    if isinstance(rows, tuple) or index.ndim > 1 or index.dtype.kind not in ("iu" if index.ndim == 0 else "biu"):
        return None
    return index.reshape(-1)


def _has_equal_fields(one: Any, other: Any) -> bool:
    return all(np.array_equal(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))
