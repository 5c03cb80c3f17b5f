"""A training whose work is computed by an engine: images, blocks of exemplars, blocks of windows, calibrators.

In: an engine, and what `detector_run` has at each stage. Out: what the same stage gives on one machine, to the bit:
windows and descriptors come image by image and end in the cache, from which the run then reads as always; exemplars in
the blocks in which `ExemplarSVMs.fit` trains them; scores in the blocks of `score_windows`; calibrators one by one.
The table of descriptors, of which the negatives are rows, goes to each worker once: as a file that all of them map
where they see the cache folder, else as a copy. Where they do not see it, windows and descriptors travel back.
Absent on purpose: arithmetic (`split_tasks`), and parts of models: what is there already is never asked for.
"""

from __future__ import annotations

import copy
import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from eesvm._support.memory import MemoryPlan
from eesvm._support.tasks import Engine, Pending, in_order
from eesvm._support.validation import InputError
from eesvm.calibration.calibrators.base import ScoreCalibrator
from eesvm.descriptors import DescriptorCache, Transformed
from eesvm.descriptors.backbones import Backbone
from eesvm.descriptors.base import Descriptor
from eesvm.detector.class_training import (
    F32,
    CalibrationScores,
    ClassRows,
    NothingToLearnError,
    SingleSVM,
    TrainedClass,
    class_rows,
    make_trainer,
)
from eesvm.detector.options import DetectorOptions
from eesvm.detector.remote_tasks import (
    BareScores,
    Filled,
    MissingError,
    PackedRows,
    Place,
    Probe,
    block_task,
    calibration_task,
    describe_into,
    descriptors_task,
    propose_into,
    score_spans,
    score_task,
    single_task,
    windows_task,
)
from eesvm.detector.training_table import StageProgress, TrainingWindows
from eesvm.exemplars.svms import ExemplarSVMs, LinearExemplars
from eesvm.structures import Dataset, ImageRecord, Instance, Problem, Windows

_TICK = 0.2  # seconds between two looks at what is done

_logger = logging.getLogger("eesvm")

T = TypeVar("T")


class SplitTraining:
    """The stages of one training, computed by an engine.

    `cache` is where windows and descriptors are when `propose` and `describe` are done: the one that was given, or one
    in a temporary folder.
    """

    def __init__(
        self,
        engine: Engine,
        options: DetectorOptions,
        cache: DescriptorCache | None,
        progress: StageProgress | None,
        memory: MemoryPlan | None = None,
    ) -> None:
        self.engine, self.options = engine, options
        self._budget = None if memory is None else memory.training
        self._report: StageProgress = progress or (lambda stage, done, total: None)
        self._temporary = None
        if cache is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="eesvm-split-")
            cache = DescriptorCache(self._temporary.name)
        self.cache = cache
        self.is_shared = engine.sees(cache.folder)
        if self.is_shared:
            engine.keep_in(cache.folder)
        self._tables: dict[int, Any] = {}  # handles by the identity of the array
        self._classes: dict[str, _SentClass | NothingToLearnError] = {}
        self._calibrators: dict[tuple[str, str], Pending] = {}
        self._scores: dict[str, Any] = {}
        self._n_collected: Counter[str] = Counter()  # tasks by stage

    def close(self) -> None:
        """Remove what was temporary."""
        if self._temporary is not None:
            self._temporary.cleanup()

    # Images

    def propose(self, dataset: Dataset) -> None:
        """Windows of all images, into the cache."""
        options = self.options.windows
        records = [_plain_record(record) for record in dataset]
        missing = self._missing(records, lambda record, cache: propose_into(record, options, cache))
        self._fill("windows", missing, len(records), windows_task, options, self.engine.task_threads, self._place())

    def describe(self, stage: str, dataset: Dataset, windows: Sequence[Windows], descriptor: Descriptor) -> None:
        """Descriptors of these windows, into the cache."""
        records = {record.image_id: record for record in dataset}
        work = [(_plain_record(records[item.image_id]), item) for item in windows]
        missing = self._missing(work, lambda item, cache: describe_into(*item, descriptor, cache))
        handle = self.engine.share(_with_threads(descriptor, self.engine.task_threads))
        self._fill(stage, missing, len(work), descriptors_task, handle, self._place())
        self.engine.forget(handle)

    def _place(self) -> Place | None:
        """The cache as workers open it; None where they do not see it."""
        return Place(str(self.cache.folder.absolute()), self.cache.size_limit) if self.is_shared else None

    def _missing(self, work: Sequence[T], look: Callable[[T, DescriptorCache], object]) -> Iterable[T]:
        """What the cache lacks; where workers see it, they find that out themselves."""
        if self.is_shared:
            return work
        probe = Probe(self.cache.folder)

        def is_missing(item: T) -> bool:
            try:
                look(item, probe)
            except MissingError:
                return True
            return False

        return filter(is_missing, work)

    def _fill(self, stage: str, work: Iterable[Any], total: int, task: Callable[..., Filled], *shared: Any) -> None:
        """Image after image; one that a worker cannot do is left to this process, which then says what is wrong."""
        failed: list[Problem] = []
        for n_done, (_, filled) in enumerate(in_order(self.engine, task, work, *shared), start=1):
            for key, array in filled.entries:
                self.cache.put(key, array)
            failed.extend(filled.problems)
            self._report(f"{stage}, workers: {self.engine.n_workers}", n_done, total)
        if total > 1 and len(failed) == total:
            raise InputError(
                f"the workers can read none of the images, {failed[0]}: they must see the same files by the same paths"
            )
        if failed:
            _logger.warning("%d images failed on workers and are tried again here, %s", len(failed), failed[0])

    # Classes

    def send_training(
        self, windows: TrainingWindows, names: Sequence[str], checkpoint: Callable[[str], Path | None]
    ) -> None:
        """Hand in the training of these classes; `checkpoint` names the folder for the finished blocks of each."""
        found = {name: self._class_rows(windows, name) for name in names}
        self._classes |= {name: answer for name, answer in found.items() if isinstance(answer, NothingToLearnError)}
        chosen = {name: answer for name, answer in found.items() if not isinstance(answer, NothingToLearnError)}
        table = self._shared_table(windows)
        singles = [
            self.engine.submit(single_task, table, PackedRows.of(windows, rows), self.options.random_state)
            for rows, _ in chosen.values()
        ]
        self._wait(singles, "training the single SVMs", [])
        for (name, (rows, instances)), single in zip(chosen.items(), singles, strict=True):
            self._classes[name] = self._send_class(windows, rows, instances, single.result(), checkpoint(name))

    def _class_rows(
        self, windows: TrainingWindows, name: str
    ) -> tuple[ClassRows, tuple[Instance, ...]] | NothingToLearnError:
        try:
            return class_rows(windows, name, self.options.training, self.options.random_state)
        except NothingToLearnError as error:
            return error

    def _send_class(
        self,
        windows: TrainingWindows,
        rows: ClassRows,
        instances: tuple[Instance, ...],
        single: SingleSVM,
        checkpoint: Path | None,
    ) -> _SentClass:
        options = self.options.training
        trainer = make_trainer(options, single, checkpoint, memory_budget=self._budget)
        n_blocks, n_negatives = 1, int(rows.is_negative.sum())
        if isinstance(trainer, ExemplarSVMs):
            n_blocks = trainer.n_blocks(len(rows.own), n_negatives, windows.descriptors.shape[1])
        is_seen = checkpoint is not None and self.engine.sees(checkpoint.parent)
        kept = str(checkpoint.absolute()) if is_seen and checkpoint is not None else None
        table, packed = self._shared_table(windows), PackedRows.of(windows, rows)
        blocks = [
            self.engine.submit(block_task, table, packed, options, single, (number, n_blocks), kept, self._budget)
            for number in range(n_blocks)
        ]
        return _SentClass(instances, single, trainer, blocks, n_negatives)

    def trained(self, name: str) -> TrainedClass:
        """A class that was sent."""
        sent = self._classes.pop(name)
        if isinstance(sent, NothingToLearnError):
            raise sent
        others = [task for one in self._classes.values() if isinstance(one, _SentClass) for task in one.blocks]
        self._wait(sent.blocks, "training blocks of exemplars", others)
        solutions = [task.result() for task in sent.blocks]
        trainer = sent.trainer.join(solutions) if isinstance(sent.trainer, ExemplarSVMs) else solutions[0]
        return TrainedClass(name, trainer, sent.instances, sent.single, sent.n_negatives)

    def score(self, windows: TrainingWindows, is_chosen: NDArray[np.bool_], weights: F32, biases: F32) -> F32:
        """(n, E) scores of the chosen windows."""
        table, handle = self._shared_table(windows), self.engine.share(weights)
        rows = windows.rows(is_chosen)
        starts = windows.starts
        parts = [
            (starts[first : last + 1], np.packbits(is_chosen[starts[first] : starts[last]]))
            for first, last in score_spans(rows.starts, len(weights))
        ]
        scores = np.empty((rows.shape[0], len(weights)), dtype=np.float32)
        end = 0
        for _, found in in_order(self.engine, score_task, parts, table, handle, biases):
            scores[end : end + len(found)] = found
            end += len(found)
        self.engine.forget(handle)
        return scores

    def send_calibration(self, name: str, stored: str, scores: CalibrationScores) -> None:
        """Hand in one calibrator of a class."""
        if name not in self._scores:
            self._scores[name] = self.engine.share(scores.table.scores, everywhere=False)
        self._calibrators[name, stored] = self.engine.submit(
            calibration_task,
            self._scores[name],
            BareScores.of(scores),
            stored,
            self.options.calibration,
            self.options.random_state,
            self.engine.task_threads,
        )

    def calibrated(self, name: str, stored: str) -> ScoreCalibrator:
        """A calibrator that was sent."""
        task = self._calibrators.pop((name, stored))
        self._wait([task], "calibrating", list(self._calibrators.values()))
        calibrator = task.result()
        if not any(one == name for one, _ in self._calibrators):
            self.engine.forget(self._scores.pop(name))
        return calibrator

    def _shared_table(self, windows: TrainingWindows) -> Any:
        """The handle of the descriptors: shared when first needed, and once."""
        key = id(windows.descriptors)
        if key not in self._tables:
            self._tables[key] = self.engine.share(windows.descriptors)
        return self._tables[key]

    def _wait(self, wanted: Sequence[Pending], stage: str, others: Sequence[Pending]) -> None:
        """Until the tasks are done, which are counted together with others of the same stage."""
        total = self._n_collected[stage] + len(wanted) + len(others)
        while True:
            n_done = self._n_collected[stage] + sum(task.is_done() for task in (*wanted, *others))
            self._report(f"{stage}, workers: {self.engine.n_workers}", n_done, total)
            left = [task for task in wanted if not task.is_done()]
            if not left:
                break
            self.engine.wait(left, _TICK)
        self._n_collected[stage] += len(wanted)


@dataclass(frozen=True)
class _SentClass:
    """A class whose blocks are under way."""

    instances: tuple[Instance, ...]
    single: SingleSVM
    trainer: LinearExemplars
    blocks: list[Pending]
    n_negatives: int


def _plain_record(record: ImageRecord) -> ImageRecord:
    """Without annotations, which windows and descriptors do not depend on."""
    return replace(record, instances=(), metadata={})


def _with_threads(descriptor: Descriptor, n_threads: int | None) -> Descriptor:
    """The same descriptor, with so many threads for its network where it has one; numbers do not depend on them."""
    if isinstance(descriptor, Transformed):
        changed = copy.copy(descriptor)
        changed.descriptor = _with_threads(descriptor.descriptor, n_threads)
        return changed
    backbone = getattr(descriptor, "backbone", None)
    if n_threads is None or not isinstance(backbone, Backbone):
        return descriptor
    limited, plain = copy.copy(backbone), copy.copy(descriptor)
    limited.n_threads = n_threads
    plain.backbone = limited  # type: ignore[attr-defined]
    return plain
