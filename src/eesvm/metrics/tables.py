"""Annotated images and detections as flat columns, in a fixed order.

In: image records with instances, `Detections` of some of these images in any order. Out: `Tables`: one row per object
and one per detection, both image by image in the order of the truth, with integers for images and classes. What cannot
be evaluated is refused here: an image that the truth does not have, NaN, columns of different lengths. Detections of a
class that the truth does not know are set aside and counted.
Not here: which detection found which object; see `matching`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import InputError
from eesvm.boxes import check_boxes
from eesvm.structures import Dataset, Detections, ImageRecord, Instance

_Floats = NDArray[np.float64]
_Integers = NDArray[np.int64]
_Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Objects:
    """The annotated objects of the classes that are evaluated."""

    boxes: _Floats  # (m, 4)
    images: _Integers  # (m,) position of its image in the truth
    classes: _Integers  # (m,) position of its class in `Tables.class_names`
    is_difficult: _Flags  # (m,) not crowd
    is_crowd: _Flags  # (m,)
    instances: tuple[Instance, ...]

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def counts(self) -> _Flags:
        """(m,) whether an object must be found: difficult ones and crowds need not."""
        return ~(self.is_difficult | self.is_crowd)


@dataclass(frozen=True, eq=False)
class Found:
    """The detections of the classes that are evaluated."""

    boxes: _Floats  # (n, 4)
    scores: _Floats  # (n,)
    images: _Integers  # (n,)
    classes: _Integers  # (n,)
    positions: _Integers  # (n,) row in the `Detections` of its image

    def __len__(self) -> int:
        return len(self.boxes)


@dataclass(frozen=True, eq=False)
class Tables:
    """All that an evaluation looks at."""

    records: tuple[ImageRecord, ...]
    class_names: tuple[str, ...]
    objects: Objects
    found: Found
    unknown_classes: Mapping[str, int]  # class names that the truth does not have -> number of their detections


def make_tables(
    truth: Dataset | Sequence[ImageRecord], detections: Iterable[Detections], classes: Iterable[str] | None
) -> Tables:
    """The columns of a truth and of detections; `classes` are evaluated, by default all of the truth."""
    records = tuple(truth)
    image_numbers = _number_images(records)
    known = _known_classes(truth, records)
    chosen = known if classes is None else choose_classes(classes, known)
    objects = _objects(records, chosen)
    entries = _in_order(detections, image_numbers)
    found, names = _found(entries)
    class_ids = {name: k for k, name in enumerate(chosen)}
    distinct, inverse = np.unique(names, return_inverse=True)
    numbers = np.array([class_ids.get(str(name), -1) for name in distinct], dtype=np.int64)[inverse.reshape(-1)]
    n_each = np.bincount(inverse.reshape(-1), minlength=len(distinct))
    strangers = set(map(str, distinct)).difference(known)
    unknown = {str(name): int(n) for name, n in zip(distinct, n_each, strict=True) if str(name) in strangers}
    kept = numbers >= 0
    evaluated = Found(found.boxes[kept], found.scores[kept], found.images[kept], numbers[kept], found.positions[kept])
    return Tables(records, chosen, objects, evaluated, unknown)


def choose_classes(classes: Iterable[str], known: tuple[str, ...]) -> tuple[str, ...]:
    """`classes` as a tuple, each once; all of them must be known."""
    chosen = tuple(dict.fromkeys([classes] if isinstance(classes, str) else classes))
    for name in chosen:
        if name not in known:
            raise InputError(f"`classes` has {name!r}, which the truth does not have: it has {_few(known)}")
    if not chosen:
        raise InputError("`classes` holds no class")
    return chosen


def _number_images(records: Sequence[ImageRecord]) -> dict[str, int]:
    if not records:
        raise InputError("`truth` holds no image")
    numbers = {record.image_id: k for k, record in enumerate(records)}
    if len(numbers) < len(records):
        twice = Counter(record.image_id for record in records).most_common(1)[0][0]
        raise InputError(f"`truth` has the image {twice!r} twice")
    return numbers


def _known_classes(truth: Dataset | Sequence[ImageRecord], records: Sequence[ImageRecord]) -> tuple[str, ...]:
    """The classes of a dataset in its order, then those that only occur, by name."""
    listed = truth.classes if isinstance(truth, Dataset) else ()
    occurring = {instance.class_name for record in records for instance in record.instances}
    return (*listed, *sorted(occurring.difference(listed)))


def _objects(records: Sequence[ImageRecord], classes: tuple[str, ...]) -> Objects:
    class_ids = {name: k for k, name in enumerate(classes)}
    rows = [
        (image, class_ids[instance.class_name], instance)
        for image, record in enumerate(records)
        for instance in record.instances
        if instance.class_name in class_ids
    ]
    instances = tuple(instance for _, _, instance in rows)
    is_crowd = np.array([instance.is_crowd for instance in instances], dtype=bool)
    return Objects(
        boxes=check_boxes(np.array([instance.box for instance in instances], dtype=np.float64).reshape(-1, 4), "truth"),
        images=np.array([image for image, _, _ in rows], dtype=np.int64),
        classes=np.array([class_id for _, class_id, _ in rows], dtype=np.int64),
        is_difficult=np.array([instance.is_difficult for instance in instances], dtype=bool) & ~is_crowd,
        is_crowd=is_crowd,
        instances=instances,
    )


def _in_order(detections: Iterable[Detections], image_numbers: Mapping[str, int]) -> list[tuple[int, Detections]]:
    """The entries by the order of the truth, so that nothing depends on the order in which they come."""
    if isinstance(detections, Detections):
        raise InputError("`detections` must hold one `Detections` for each image, got one alone: put it into a list")
    entries: dict[int, Detections] = {}
    for entry in detections:
        number = image_numbers.get(entry.image_id)
        if number is None:
            raise InputError(f"`detections` has the image {entry.image_id!r}, which the truth does not have")
        if number in entries:
            raise InputError(f"`detections` has two entries for the image {entry.image_id!r}")
        entries[number] = entry
    return sorted(entries.items())


def _found(entries: Sequence[tuple[int, Detections]]) -> tuple[Found, NDArray[np.str_]]:
    """All detections, still without class numbers, and their class names."""
    columns = [_check_entry(entry) for _, entry in entries]
    sizes = np.array([len(scores) for _, scores, _ in columns], dtype=np.int64)
    images = np.repeat(np.array([number for number, _ in entries], dtype=np.int64), sizes)
    positions = np.arange(len(images)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    boxes = np.concatenate([np.empty((0, 4)), *(boxes for boxes, _, _ in columns)])
    scores = np.concatenate([np.empty(0), *(scores for _, scores, _ in columns)])
    names = np.concatenate([np.empty(0, dtype="U1"), *(names for _, _, names in columns)])
    # Infinite scores are fine, as they rank first or last; infinite boxes have no overlap.
    for is_bad, what in ((np.isnan(scores), "score"), (~np.isfinite(boxes).all(axis=1), "box")):
        if is_bad.any():
            row = int(is_bad.argmax())
            where = f"detection {positions[row]} of the image {dict(entries)[int(images[row])].image_id!r}"
            raise InputError(f"{where} has a {what} that is NaN{' or infinite' if what == 'box' else ''}")
    return Found(check_boxes(boxes), scores, images, np.empty(0, dtype=np.int64), positions), names


def _check_entry(entry: Detections) -> tuple[_Floats, _Floats, NDArray[np.str_]]:
    """Boxes, scores and class names of an image, equally many."""
    what = f"the detections of the image {entry.image_id!r}"
    try:
        boxes, scores = (np.asarray(values, dtype=np.float64) for values in (entry.boxes, entry.scores))
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must have numbers for boxes and scores") from error
    names = np.asarray(entry.class_names, dtype=str)
    if boxes.shape == (0,):
        boxes = boxes.reshape(0, 4)
    if scores.ndim != 1 or boxes.shape != (len(scores), 4) or names.shape != scores.shape:
        shapes = f"{boxes.shape}, {scores.shape} and {names.shape}"
        raise InputError(f"{what} must have (n, 4) boxes, n scores and n class names, got shapes {shapes}")
    return boxes, scores, names


def _few(names: Sequence[str]) -> str:
    return (", ".join(names[:20]) or "none") + (", ..." if len(names) > 20 else "")
