"""Windows with the class that each shows, and the batches that training takes of them.

In: images with objects, and their windows. Out: `LabelledWindows`: a class for every window, 0 for background; two sets
of images, to train on and to stop by; and `WindowSampler`, whose batch number k is always the same batch: windows,
mirrored or not, moved a little and with other colours. A sampler therefore has no state to keep: a run that goes on
after batch k asks for batch k + 1.
A window shows the object that it overlaps most, if that is by at least `positive_overlap`. What overlaps a difficult
object or a group by as much, and no other object, is neither an object nor background and takes no part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm import boxes as geometry
from eesvm._support.validation import InputError
from eesvm.finetuning.options import FinetuneOptions
from eesvm.structures import ImageRecord, Instance, Windows

BACKGROUND, IGNORED = 0, -1
_MOST_BATCHES = 200  # of an epoch whose length is not given
_ORDER, _LOOKS, _FIXED = 0, 1, 2  # what random numbers are drawn for: each has a stream of its own

_Floats = NDArray[np.float64]
_Integers = NDArray[np.int64]


@dataclass(frozen=True)
class LabelledWindows:
    """All windows of some images; row i of every table is window i."""

    records: tuple[ImageRecord, ...]
    classes: tuple[str, ...]
    positive_overlap: float
    image: _Integers  # (n,) which of the records
    boxes: _Floats  # (n, 4)
    labels: _Integers  # (n,) BACKGROUND, IGNORED, or 1 + the position of the class

    def __len__(self) -> int:
        return len(self.boxes)

    def rows(self, is_positive: bool) -> _Integers:
        """Windows of objects, or of the background."""
        return np.flatnonzero(self.labels > BACKGROUND if is_positive else self.labels == BACKGROUND)

    def relabel(self, image: _Integers, boxes: _Floats) -> _Integers:
        """What other boxes in the same images show."""
        labels = np.empty(len(boxes), dtype=np.int64)
        for k in np.unique(image).tolist():
            mine = image == k
            labels[mine] = self._objects[k].labels_of(boxes[mine], self.positive_overlap)
        return labels

    @cached_property
    def _objects(self) -> list[_Objects]:
        return [_objects(record, self.classes) for record in self.records]


class WindowBatch(NamedTuple):
    """Windows, and what to do with their pixels."""

    image: _Integers  # (n,) which of the records
    boxes: _Floats  # (n, 4)
    labels: _Integers  # (n,)
    is_mirrored: NDArray[np.bool_]  # (n,)
    colours: NDArray[np.float32]  # (n, 3) factors of brightness, contrast and saturation

    def part(self, rows: slice) -> WindowBatch:
        """Some of the windows."""
        return WindowBatch(
            self.image[rows], self.boxes[rows], self.labels[rows], self.is_mirrored[rows], self.colours[rows]
        )


def label_windows(
    records: Sequence[ImageRecord], windows: Sequence[Windows], classes: Sequence[str], positive_overlap: float
) -> LabelledWindows:
    """The windows of these images, each with what it shows; windows of other images are passed over."""
    found = {item.image_id: item for item in windows}
    kept = tuple(record for record in records if record.image_id in found)
    if not kept:
        raise InputError("none of the images has windows: there is nothing to train on")
    tables = [geometry.check_boxes(found[record.image_id].boxes) for record in kept]
    labels = [
        _objects(record, classes).labels_of(boxes, positive_overlap) for record, boxes in zip(kept, tables, strict=True)
    ]
    image = np.repeat(np.arange(len(kept)), [len(boxes) for boxes in tables])
    return LabelledWindows(
        kept, tuple(classes), positive_overlap, image, np.concatenate(tables), np.concatenate(labels)
    )


def count_objects(records: Sequence[ImageRecord]) -> Counter[str]:
    """How many objects of each class can be learned from."""
    return Counter(i.class_name for record in records for i in record.instances if _is_plain(i))


def check_classes(counts: Counter[str], classes: Sequence[str], min_objects: int) -> None:
    """Refuse a class with too few objects."""
    for name in classes:
        if counts[name] < min_objects:
            few = f"{counts[name]} object{'s' * (counts[name] != 1)}"
            raise InputError(
                f"the class {name!r} has {few} to learn from, and fine-tuning needs {min_objects}: "
                "name the classes that have more, or allow fewer (`min_objects`)"
            )


def check_same_classes(counts: Counter[str], classes: Sequence[str], where: str) -> None:
    """Refuse held-out images in which a class is missing, or occurs that training does not know."""
    missing = [name for name in classes if not counts[name]]
    unknown = sorted(set(counts) - set(classes))
    if missing:
        raise InputError(f"the class {missing[0]!r} has no object in {where}: it must have the classes of the training")
    if unknown:
        raise InputError(
            f"the class {unknown[0]!r} has objects in {where} and none to learn from: name the classes to train"
        )


def split_images(
    records: Sequence[ImageRecord], classes: Sequence[str], share: float, random_state: int
) -> tuple[list[ImageRecord], list[ImageRecord]]:
    """Images to train on and images to hold out; of no class more than that share is held out, and never the last."""
    counts = count_objects(records)
    left = {name: int(share * counts[name]) for name in classes}  # objects of the class that may go
    wanted = max(1, round(share * len(records)))
    held_out: set[str] = set()
    for k in np.random.default_rng(random_state).permutation(len(records)).tolist():
        own = Counter(i.class_name for i in records[k].instances if _is_plain(i) and i.class_name in left)
        if len(held_out) < wanted and all(left[name] >= n for name, n in own.items()):
            held_out.add(records[k].image_id)
            for name, n in own.items():
                left[name] -= n
    train = [record for record in records if record.image_id not in held_out]
    return train, [record for record in records if record.image_id in held_out]


class WindowSampler:
    """Batches of windows, each a function of its number."""

    def __init__(self, windows: LabelledWindows, options: FinetuneOptions) -> None:
        self.windows, self.options = windows, options
        self.positives, self.backgrounds = windows.rows(True), windows.rows(False)
        self._orders: dict[int, tuple[int, _Integers]] = {}
        for rows, kind in ((self.positives, "shows an object"), (self.backgrounds, "is background")):
            if not len(rows):
                raise InputError(f"no window of the training images {kind}: there is nothing to tell apart")

    @property
    def batches_per_epoch(self) -> int:
        every_positive_once = -(-len(self.positives) // self.options.positives)
        return self.options.batches_per_epoch or min(_MOST_BATCHES, every_positive_once)

    def batch(self, number: int) -> WindowBatch:
        """Batch `number`, counted from 0: every window comes once before any comes again."""
        options = self.options
        rows = np.concatenate(
            [
                self._stream(self.positives, number * options.positives, options.positives, 0),
                self._stream(self.backgrounds, number * options.backgrounds, options.backgrounds, 1),
            ]
        )
        return self._with_looks(rows, np.random.default_rng([options.random_state, _LOOKS, number]))

    def _stream(self, rows: _Integers, start: int, n: int, kind: int) -> _Integers:
        """Entries `start` to `start + n` of an endless row of permutations."""
        places = np.arange(start, start + n)
        rounds = places // len(rows)
        found = np.empty(n, dtype=np.int64)
        for number in np.unique(rounds).tolist():
            mine = rounds == number
            found[mine] = rows[self._order(len(rows), kind, number)[places[mine] % len(rows)]]
        return found

    def _order(self, n: int, kind: int, number: int) -> _Integers:
        """Permutation `number` of n windows of a kind; the latest is kept, as most batches ask for it again."""
        known = self._orders.get(kind)
        if known is None or known[0] != number:
            random = np.random.default_rng([self.options.random_state, _ORDER, kind, number])
            known = self._orders[kind] = (number, random.permutation(n))
        return known[1]

    def _with_looks(self, rows: _Integers, random: np.random.Generator) -> WindowBatch:
        image, boxes, labels = self.windows.image[rows], self.windows.boxes[rows], self.windows.labels[rows]
        moved = boxes + random.uniform(-1, 1, boxes.shape) * self.options.jitter * _sides(boxes)
        is_mirrored = random.random(len(rows)) < 0.5
        colours = 1 + random.uniform(-1, 1, (len(rows), 3)) * self.options.colour
        if self.options.jitter:
            is_same = self.windows.relabel(image, moved) == labels  # who moves off the object stays where he was
            boxes = np.where(is_same[:, None], moved, boxes)
        return WindowBatch(image, boxes, labels, is_mirrored & self.options.flip, colours.astype(np.float32))


def fixed_windows(windows: LabelledWindows, options: FinetuneOptions) -> WindowBatch:
    """Some windows of held-out images as they are, in the proportion of a batch."""
    n_positives = max(1, round(options.held_out_windows * options.positives / options.batch_size))
    n_positives = min(n_positives, len(windows.rows(True)))
    wanted = {True: n_positives, False: -(-n_positives * options.backgrounds // options.positives)}
    random = np.random.default_rng([options.random_state, _FIXED])
    parts = [np.sort(random.permutation(windows.rows(kind))[:n]) for kind, n in wanted.items()]
    if not all(map(len, parts)):
        raise InputError(
            "the held-out images have no window of an object: hold out more, or give images of their own for that"
        )
    rows = np.concatenate(parts)
    return WindowBatch(
        windows.image[rows],
        windows.boxes[rows],
        windows.labels[rows],
        np.zeros(len(rows), dtype=np.bool_),
        np.ones((len(rows), 3), dtype=np.float32),
    )


class _Objects(NamedTuple):
    """What there is to see in an image."""

    boxes: _Floats  # (n, 4)
    labels: _Integers  # (n,)
    doubtful: _Floats  # (m, 4) difficult objects and groups

    def labels_of(self, boxes: _Floats, positive_overlap: float) -> _Integers:
        """(n,) what boxes in the image show."""
        labels = np.full(len(boxes), BACKGROUND, dtype=np.int64)
        if len(self.doubtful):
            labels[geometry.match(boxes, self.doubtful, positive_overlap).truth >= 0] = IGNORED
        if len(self.boxes):
            best = geometry.match(boxes, self.boxes, positive_overlap).truth
            labels[best >= 0] = self.labels[best[best >= 0]]
        return labels


def _objects(record: ImageRecord, classes: Sequence[str]) -> _Objects:
    numbers = {name: number for number, name in enumerate(classes, start=1)}
    known = [i for i in record.instances if i.class_name in numbers]
    plain = [i for i in known if _is_plain(i)]
    doubtful = [i.box for i in known if not _is_plain(i)]
    return _Objects(
        np.array([i.box for i in plain], dtype=np.float64).reshape(-1, 4),
        np.array([numbers[i.class_name] for i in plain], dtype=np.int64),
        np.array(doubtful, dtype=np.float64).reshape(-1, 4),
    )


def _is_plain(instance: Instance) -> bool:
    return not (instance.is_difficult or instance.is_crowd)


def _sides(boxes: _Floats) -> _Floats:
    """(n, 4) width, height, width, height."""
    return np.tile(boxes[:, 2:] - boxes[:, :2], 2)
