"""Tasks of a training: what workers run, and what travels to and from them.

In: arguments that can be pickled. Out: results that can. Each task is a plain function; wherever it runs, the rows come
in the same blocks, so that its numbers are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.extras import optional_module
from eesvm.calibration.anytime import ProgressCallback
from eesvm.calibration.calibrators.base import ScoreCalibrator
from eesvm.descriptors import DescriptorCache, describe_dataset
from eesvm.descriptors.base import Descriptor
from eesvm.detector.class_calibration import calibrate_class
from eesvm.detector.class_training import (
    F32,
    CalibrationScores,
    ClassRows,
    SingleSVM,
    make_trainer,
    train_single,
    training_rows,
)
from eesvm.detector.options import CalibrationOptions, TrainingOptions, WindowOptions
from eesvm.detector.training_table import DescriptorTable, TrainingWindows, propose_windows
from eesvm.exemplars.scoring import rows_of_a_block, score_windows
from eesvm.exemplars.solver import Solution
from eesvm.exemplars.svms import ExemplarSVMs, LinearExemplars, TrainingProgress
from eesvm.structures import ImageRecord, Problem, Windows

TASK_BYTES = 16 << 20  # of scores that one task returns
_HELD_BYTES = 512 << 20  # of negatives that are copied once; of more, each look at them copies a block at a time

Entry = tuple[str, NDArray[Any]]  # of a cache: key and array


def windows_task(record: ImageRecord, options: WindowOptions, n_threads: int | None, place: Place | None) -> Filled:
    """Propose the windows of one image."""
    if options.method == "opencv" and n_threads is not None:
        optional_module("cv2", "opencv").setNumThreads(n_threads)
    cache = _opened(place)
    return Filled(propose_into(record, options, cache), cache.entries if isinstance(cache, _Carrier) else [])


def descriptors_task(item: tuple[ImageRecord, Windows], descriptor: Descriptor, place: Place | None) -> Filled:
    """Describe the windows of one image."""
    cache = _opened(place)
    return Filled(describe_into(*item, descriptor, cache), cache.entries if isinstance(cache, _Carrier) else [])


def single_task(descriptors: F32, packed: PackedRows, loss: str, random_state: int) -> SingleSVM:
    """Train the single SVM of a class."""
    return train_single(packed.table(descriptors), packed.rows(), loss, random_state)


def block_task(
    descriptors: F32,
    packed: PackedRows,
    options: TrainingOptions,
    single: SingleSVM,
    blocks: range,
    n_blocks: int,
    checkpoint: str | None,
    memory_budget: int | None,
    progress: Callable[[TrainingProgress], object] | None = None,
) -> list[Solution] | LinearExemplars:
    """Train some blocks of exemplars, out of `n_blocks`; exemplar LDA is one block."""
    exemplars, negatives, *groups = training_rows(packed.table(descriptors), packed.rows(), options.own_image)
    trainer = make_trainer(options, single, len(exemplars), checkpoint, progress, memory_budget)
    if memory_budget is None:
        negatives = negatives.held(_HELD_BYTES)
    rows = exemplars, negatives, *groups
    if isinstance(trainer, ExemplarSVMs):
        return trainer.fit_blocks(blocks, n_blocks, *rows)
    return trainer.fit(*rows)


def score_task(part: tuple[NDArray[np.int64], NDArray[np.uint8]], descriptors: F32, weights: F32, biases: F32) -> F32:
    """Score the chosen windows of some images."""
    starts, bits = part
    is_chosen = np.unpackbits(bits, count=int(starts[-1] - starts[0])).astype(bool)
    table = DescriptorTable(starts - starts[0], descriptors[starts[0] : starts[-1]])
    return score_windows(table.rows(is_chosen), weights, biases)


def calibration_task(
    scores: F32,
    bare: BareScores,
    stored: str,
    options: CalibrationOptions,
    pooling: int,
    random_state: int,
    n_jobs: int | None,
    progress: ProgressCallback | None = None,
) -> ScoreCalibrator:
    """Fit one calibrator of a class."""
    full = bare.with_scores(np.require(scores, requirements="W"))  # kernels want arrays that could be written to
    fitted = calibrate_class(
        full, [stored], options, pooling=pooling, random_state=random_state, n_jobs=n_jobs, progress=progress
    )
    return fitted[stored]


def score_spans(starts: NDArray[np.int64], n_exemplars: int) -> Iterator[tuple[int, int]]:
    """First image and end of each task: blocks as `score_windows` makes them, some of them together.

    A product of other rows has other last bits, so a task begins where a block of the whole table does.
    """
    n_rows, n_parts = rows_of_a_block(n_exemplars), len(starts) - 1
    first = begin = 0
    while first < n_parts:  # as in `PartedRows.blocks`
        first = max(first + 1, int(np.searchsorted(starts, starts[first] + n_rows, side="right")) - 1)
        first = min(first, n_parts)
        if first == n_parts or 4 * n_exemplars * (starts[first] - starts[begin]) >= TASK_BYTES:
            yield begin, first
            begin = first


# What travels


@dataclass(frozen=True)
class PackedRows:
    """`ClassRows` in bits, and where images start."""

    starts: NDArray[np.int64]
    own: NDArray[np.int64]
    own_image: NDArray[np.int64]
    negatives: NDArray[np.uint8]
    single_negatives: NDArray[np.uint8]

    @classmethod
    def of(cls, windows: TrainingWindows, rows: ClassRows) -> PackedRows:
        masks = np.packbits(rows.is_negative), np.packbits(rows.is_single_negative)
        return cls(windows.starts, rows.own, rows.own_image, *masks)

    def rows(self) -> ClassRows:
        n = int(self.starts[-1])
        masks = (np.unpackbits(bits, count=n).astype(bool) for bits in (self.negatives, self.single_negatives))
        return ClassRows(self.own, self.own_image, *masks)

    def table(self, descriptors: F32) -> DescriptorTable:
        return DescriptorTable(self.starts, descriptors)


@dataclass(frozen=True)
class BareScores:
    """`CalibrationScores` without the scores, which are shared by all calibrators of a class."""

    scores: CalibrationScores
    exemplar_groups: NDArray[Any] | None
    exemplar_names: list[str] | None

    @classmethod
    def of(cls, scores: CalibrationScores) -> BareScores:
        table = scores.table
        nothing = np.empty((table.n_rows, 0), dtype=np.float32)
        bare = replace(table, scores=nothing, exemplar_groups=None, exemplar_names=None)
        return cls(replace(scores, table=bare), table.exemplar_groups, table.exemplar_names)

    def with_scores(self, scores: F32) -> CalibrationScores:
        groups, names = self.exemplar_groups, self.exemplar_names
        table = replace(self.scores.table, scores=scores, exemplar_groups=groups, exemplar_names=names)
        return replace(self.scores, table=table)


@dataclass(frozen=True)
class Place:
    """A cache that workers see."""

    folder: str
    size_limit: int | None


@dataclass(frozen=True)
class Filled:
    """What became of one image."""

    problems: list[Problem]
    entries: list[Entry] = field(default_factory=list)  # those that travel back


class _Carrier(DescriptorCache):
    """A cache that holds nothing and keeps what was computed, to be carried away."""

    def __init__(self) -> None:
        super().__init__(Path())
        self.entries: list[Entry] = []

    def get(self, key: str) -> NDArray[Any] | None:
        return None

    def put(self, key: str, array: NDArray[Any]) -> bool:
        self.entries.append((key, array))
        return True


class MissingError(Exception):
    """A cache does not have what it was asked for."""


class Probe(DescriptorCache):
    """A cache that computes nothing."""

    def get_or_compute(self, key: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        found = self.get(key)
        if found is None:
            raise MissingError
        return found


def _opened(place: Place | None) -> DescriptorCache:
    return _Carrier() if place is None else DescriptorCache(place.folder, place.size_limit)


def propose_into(record: ImageRecord, options: WindowOptions, cache: DescriptorCache) -> list[Problem]:
    problems: list[Problem] = []
    for _ in propose_windows([record], options, 1, cache=cache, problems=problems):
        pass
    return problems


def describe_into(record: ImageRecord, item: Windows, descriptor: Descriptor, cache: DescriptorCache) -> list[Problem]:
    problems: list[Problem] = []
    for _ in describe_dataset([record], [item], descriptor, cache=cache, problems=problems):
        pass
    return problems
