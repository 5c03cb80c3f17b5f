"""Training windows: a dataset as one table of described windows, with labels for any class.

In: a dataset, options and a fitted descriptor. Out: `TrainingWindows`: boxes, images and float32 descriptors of all
windows of all images that can be read, the ground-truth boxes among them, and for any class which windows are its
objects, its positives and its negatives. To compare trainers or calibrators, make it once.
Not here: training, and what is kept where: a `DescriptorCache` keeps windows and descriptors between runs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import InputError
from eesvm.boxes import flip
from eesvm.descriptors import DescriptorCache, describe_dataset
from eesvm.descriptors.base import Descriptor
from eesvm.detector.options import WindowOptions
from eesvm.exemplars.mining import overlap_with
from eesvm.exemplars.rows import PartedRows
from eesvm.structures import Dataset, ImageRecord, Instance, Problem, Windows
from eesvm.windows.proposals import propose_dataset

POSITIVE, NEITHER, NEGATIVE = 1, 0, -1

_MEMORY_BYTES = 4 << 30  # of descriptors that are held in memory; more go to a temporary file

StageProgress = Callable[[str, int, int], object]  # stage, done, of how many


@dataclass(frozen=True)
class DescriptorTable:
    """Descriptors of many images, image after image: what training needs of `TrainingWindows`."""

    starts: NDArray[np.int64]  # (images + 1,) the windows of image k are starts[k] : starts[k + 1]
    descriptors: NDArray[np.float32]  # (n, d), in memory or mapped

    @cached_property
    def image(self) -> NDArray[np.int64]:
        """(n,) which image each window belongs to."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def rows(self, is_wanted: NDArray[np.bool_]) -> PartedRows:
        """The descriptors of some windows, image by image and without a copy."""
        bounds = list(zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True))
        return PartedRows([self.descriptors[a:b] for a, b in bounds], [is_wanted[a:b] for a, b in bounds])


@dataclass(frozen=True)
class TrainingWindows:
    """All windows of all images, image after image; row i of every table is window i.

    Descriptors may go on behind the windows: row n + i is the mirror image of the object in the window `mirrored[i]`.
    """

    records: tuple[ImageRecord, ...]  # the images that could be read
    starts: NDArray[np.int64]  # (images + 1,) the windows of image k are starts[k] : starts[k + 1]
    boxes: NDArray[np.float64]  # (n, 4)
    instance: NDArray[np.int64]  # (n,) index of the instance whose ground-truth box it is, -1 for a proposal
    descriptors: NDArray[np.float32]  # (n + m, d), in memory or mapped
    descriptor: Descriptor = field(repr=False)  # what made them
    mirrored: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # (m,) in rising order

    def __len__(self) -> int:
        return len(self.boxes)

    @cached_property
    def table(self) -> DescriptorTable:
        """The descriptors alone."""
        return DescriptorTable(self.starts, self.descriptors)

    @property
    def image(self) -> NDArray[np.int64]:
        """(n,) which image each window belongs to."""
        return self.table.image

    @cached_property
    def image_ids(self) -> NDArray[np.str_]:
        """(images,) their names."""
        return np.array([record.image_id for record in self.records], dtype=np.str_)

    @cached_property
    def _overlaps(self) -> dict[tuple[str, bool], NDArray[np.float64]]:
        """What `overlap` has said of the class that it was asked about last."""
        return {}

    @cached_property
    def _instances(self) -> list[dict[int, Instance]]:
        return [{instance.index: instance for instance in record.instances} for record in self.records]

    def objects(self, class_name: str) -> tuple[NDArray[np.int64], tuple[Instance, ...]]:
        """Windows and instances of a class that can be exemplars: neither difficult nor groups."""
        rows, found = [], []
        truth = np.flatnonzero(self.instance >= 0)
        for row, k, index in zip(
            truth.tolist(), self.image[truth].tolist(), self.instance[truth].tolist(), strict=True
        ):
            instance = self._instances[k][index]
            if instance.class_name == class_name and not instance.is_difficult:
                rows.append(row)
                found.append(instance)
        return np.array(rows, dtype=np.int64), tuple(found)

    def mirror_images(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of the descriptors of the mirror images of these objects, given by their windows."""
        if not len(self.mirrored):
            raise InputError("the windows were described without mirror images: describe them with `training.mirror`")
        return len(self) + np.searchsorted(self.mirrored, rows)

    def overlap(self, class_name: str, with_difficult: bool = True) -> NDArray[np.float64]:
        """(n,) the largest IoU of each window with an object of the class, 0 where its image has none; read-only.

        Parameters
        ----------
        class_name : whose objects count.
        with_difficult : count difficult objects and groups, too.
        """
        known, key = self._overlaps, (class_name, with_difficult)
        found = known.get(key)
        if found is None:
            if any(name != class_name for name, _ in list(known)):  # classes are gone through one after the other
                known.clear()
            found = known[key] = self._overlap_with(class_name, with_difficult)
            found.flags.writeable = False
        return found

    def _overlap_with(self, class_name: str, with_difficult: bool) -> NDArray[np.float64]:
        overlaps = np.zeros(len(self))
        for k, record in enumerate(self.records):
            objects = [
                instance.box
                for instance in record.instances
                if instance.class_name == class_name
                and (with_difficult or not (instance.is_difficult or instance.is_crowd))
            ]
            if objects:
                part = slice(self.starts[k], self.starts[k + 1])
                overlaps[part] = overlap_with(self.boxes[part], np.array(objects))
        return overlaps

    def labels(self, class_name: str, positive_overlap: float = 0.5, negative_overlap: float = 0.2) -> NDArray[np.int8]:
        """(n,) POSITIVE, NEGATIVE or NEITHER; what overlaps difficult objects or groups only is never a positive.

        Parameters
        ----------
        class_name : whose objects count.
        positive_overlap : IoU with an object from which on a window is positive.
        negative_overlap : IoU up to which a window is negative; difficult objects and groups count here.
        """
        labels = np.zeros(len(self), dtype=np.int8)
        labels[self.overlap(class_name, with_difficult=False) >= positive_overlap] = POSITIVE
        labels[self.overlap(class_name) <= negative_overlap] = NEGATIVE
        return labels

    def rows(self, is_wanted: NDArray[np.bool_]) -> PartedRows:
        """The descriptors of some windows, image by image and without a copy."""
        return self.table.rows(is_wanted)

    def of_images(self, chosen: Sequence[int]) -> TrainingWindows:
        """The table of some images, by their positions; for splits of a training set."""
        parts = [slice(self.starts[k], self.starts[k + 1]) for k in chosen]
        rows = np.concatenate([np.arange(part.start, part.stop) for part in parts]).astype(np.int64)
        kept = np.flatnonzero(np.isin(rows, self.mirrored)) if len(self.mirrored) else np.empty(0, dtype=np.int64)
        described = np.concatenate([rows, self.mirror_images(rows[kept])]) if len(kept) else rows
        return replace(
            self,
            records=tuple(self.records[k] for k in chosen),
            starts=np.concatenate([[0], np.cumsum([part.stop - part.start for part in parts])]).astype(np.int64),
            boxes=self.boxes[rows],
            instance=self.instance[rows],
            descriptors=self.descriptors[described],
            mirrored=kept,
        )


def propose_windows(
    dataset: Dataset | Sequence[ImageRecord],
    options: WindowOptions,
    n_jobs: int | None = None,
    include_ground_truth: bool = False,
    cache: DescriptorCache | None = None,
    progress: StageProgress | None = None,
    problems: list[Problem] | None = None,
) -> Iterator[Windows]:
    """`propose_dataset` with options; `n_jobs` None is one thread per core."""
    return propose_dataset(
        dataset,
        include_ground_truth=include_ground_truth,
        n_jobs=-1 if n_jobs is None else n_jobs,
        cache=cache,
        progress=of_stage(progress, "windows"),
        problems=problems,
        **vars(options),
    )


def describe_windows(
    dataset: Dataset | Sequence[ImageRecord],
    windows: Sequence[Windows],
    descriptor: Descriptor,
    *,
    cache: DescriptorCache | None = None,
    progress: StageProgress | None = None,
    problems: list[Problem] | None = None,
    memory: int = _MEMORY_BYTES,
    mirror: bool = False,
    n_jobs: int | None = None,
) -> TrainingWindows:
    """Fill the table, which is a mapped file beyond `memory` bytes; images that cannot be described are left out.

    With `mirror` the objects are described in the mirror images of their images, too. `n_jobs` None is one thread per
    core.
    """
    n_objects = sum(int((item.instance >= 0).sum()) for item in windows) if mirror else 0
    table = _empty_table(sum(len(item) for item in windows) + n_objects, descriptor.dimension, memory)
    records = {record.image_id: record for record in dataset}

    def fill(start: int, stage: str, images: Sequence[ImageRecord], wanted: Sequence[Windows]) -> list[Windows]:
        kept: list[Windows] = []
        for item in describe_dataset(
            images,
            wanted,
            descriptor,
            cache=cache,
            n_jobs=-1 if n_jobs is None else n_jobs,
            progress=of_stage(progress, stage),
            problems=problems,
        ):
            table[start : start + len(item.windows)] = item.descriptors
            start += len(item.windows)
            kept.append(item.windows)
        return kept

    kept = fill(0, "descriptors", dataset, windows)
    if not kept:
        raise InputError("none of the images can be described: there is nothing to train on")
    images = tuple(records[item.image_id] for item in kept)
    instance = np.concatenate([item.instance for item in kept])
    mirrored = np.flatnonzero(instance >= 0) if mirror else np.empty(0, dtype=np.int64)
    if mirror and sum(map(len, fill(len(instance), "mirror images", *mirrored_objects(images, kept)))) < len(mirrored):
        raise InputError("an image can be described, but not its mirror image: train with `training.mirror: false`")
    return TrainingWindows(
        records=images,
        starts=np.concatenate([[0], np.cumsum([len(item) for item in kept])]).astype(np.int64),
        boxes=np.concatenate([item.boxes for item in kept]),
        instance=instance,
        descriptors=table[: len(instance) + len(mirrored)],
        descriptor=descriptor,
        mirrored=mirrored,
    )


def mirrored_objects(
    images: Sequence[ImageRecord], windows: Sequence[Windows]
) -> tuple[list[ImageRecord], list[Windows]]:
    """The mirror images of images that show objects, and where these lie there; in the order of the windows."""
    records = {record.image_id: record for record in images}
    found = [item[item.instance >= 0] for item in windows]
    found = [item for item in found if len(item)]
    widths = [records[item.image_id].width for item in found]
    return (
        [replace(records[one.image_id], read=partial(_read_mirrored, records[one.image_id])) for one in found],
        [replace(one, boxes=flip(one.boxes, width)) for one, width in zip(found, widths, strict=True)],
    )


def _read_mirrored(record: ImageRecord) -> NDArray[np.uint8]:
    return np.ascontiguousarray(record.read()[:, ::-1])


def _empty_table(n_rows: int, n_columns: int, memory: int) -> NDArray[np.float32]:
    """In memory, or mapped from a file that is deleted with the table."""
    if 4 * n_rows * n_columns <= memory:
        return np.empty((n_rows, n_columns), dtype=np.float32)
    with tempfile.TemporaryFile(prefix="eesvm-descriptors-") as handle:
        if hasattr(os, "posix_fallocate"):  # a full disk is an error here, and would end the process once it is mapped
            os.posix_fallocate(handle.fileno(), 0, 4 * n_rows * n_columns)
        return np.memmap(handle, dtype=np.float32, mode="w+", shape=(n_rows, n_columns))


def of_stage(
    progress: StageProgress | None, stage: str, total: int | None = None
) -> Callable[[int, int], object] | None:
    """A callback of images done and their number, for one stage."""
    if progress is None:
        return None
    return lambda done, n: progress(stage, done, n if total is None else total)
