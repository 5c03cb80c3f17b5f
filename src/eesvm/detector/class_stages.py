"""Stages of a training of one class, by asking an engine for tasks: exemplars, scores, calibrators.

In: the table of described windows, options, an engine. Out: what each stage gives, the same to the bit whatever the
engine. Exemplars come in the blocks in which `ExemplarSVMs.fit` trains them, scores in the blocks of `score_windows`,
calibrators one by one. The table of descriptors, of which the negatives are rows, goes to each worker once: as a file
that all of them map where they see the cache folder, else as a copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.memory import MemoryPlan
from eesvm._support.tasks import Engine, Pending, in_order
from eesvm.calibration.anytime import Progress as SearchState
from eesvm.calibration.calibrators.base import ScoreCalibrator
from eesvm.detector.class_training import (
    F32,
    CalibrationScores,
    NothingToLearnError,
    TrainedClass,
    class_rows,
    make_trainer,
    score_class,
    trained_class,
)
from eesvm.detector.cross_fitting import cross_fitted
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_table import StageProgress, TrainingWindows
from eesvm.detector.training_tasks import (
    BareScores,
    PackedRows,
    block_task,
    calibration_task,
    score_spans,
    score_task,
    single_task,
)
from eesvm.exemplars.svms import ExemplarSVMs, TrainingProgress
from eesvm.structures import Instance

_TICK = 0.2  # seconds between two looks at what is done


class ClassStages:
    """What one training makes of each class.

    Tasks that run in this process report their own progress; of others, those that are done are counted.

    Parameters
    ----------
    classes : all that are to be trained; progress says which of them is being worked on.
    """

    def __init__(
        self,
        engine: Engine,
        options: DetectorOptions,
        classes: Sequence[str],
        *,
        progress: StageProgress | None,
        memory: MemoryPlan | None,
    ) -> None:
        self.engine, self.options, self.classes = engine, options, tuple(classes)
        self._progress, self._memory = progress, memory
        self._tables: dict[int, Any] = {}  # handles by the identity of the array
        self._classes: dict[str, _SentClass | NothingToLearnError] = {}
        self._calibrators: dict[tuple[str, str], Pending] = {}
        self._scores: dict[str, Any] = {}
        self._n_collected: Counter[str] = Counter()  # tasks by stage

    def send_training(
        self, windows: TrainingWindows, names: Sequence[str], checkpoint: Callable[[str], Path | None]
    ) -> None:
        """Hand in the training of these classes; `checkpoint` names the folder for the finished blocks of each."""
        for name in names:
            try:
                self._classes[name] = self._send_class(windows, name, checkpoint(name))
            except NothingToLearnError as error:
                self._classes[name] = error

    def _send_class(self, windows: TrainingWindows, name: str, checkpoint: Path | None) -> _SentClass:
        options, random_state = self.options.training, self.options.random_state
        budget = None if self._memory is None else self._memory.training
        rows, instances = class_rows(windows, name, options, random_state)
        n_blocks, n_negatives = 1, int(rows.is_negative.sum())
        trainer = make_trainer(options, None, len(rows.own), checkpoint, memory_budget=budget)
        if isinstance(trainer, ExemplarSVMs):
            n_blocks = trainer.n_blocks(len(rows.own), n_negatives, windows.descriptors.shape[1])
        if n_blocks == 1:  # nothing is done before the class is, and that is kept anyway
            checkpoint = None
        is_seen = checkpoint is not None and self.engine.sees(checkpoint.parent)
        kept = str(checkpoint.absolute()) if is_seen and checkpoint is not None else None
        table, packed = self._shared_table(windows), PackedRows.of(windows, rows)
        single = self.engine.submit(single_task, table, packed, options.single_loss, random_state)
        progress = self._training_progress(name)
        pieces = [
            self.engine.submit(block_task, table, packed, options, single, blocks, n_blocks, kept, budget, progress)
            for blocks in self._pieces(n_blocks)
        ]
        return _SentClass(instances, single, pieces, len(rows.own), n_negatives)

    def trained(self, name: str) -> TrainedClass:
        """A class that was sent."""
        sent = self._classes.pop(name)
        if isinstance(sent, NothingToLearnError):
            raise sent
        others = [task for one in self._classes.values() if isinstance(one, _SentClass) for task in one.pieces]
        self._wait(sent.pieces, "training blocks of exemplars", others)
        single = sent.single.result()
        trainer = make_trainer(self.options.training, single, sent.n_exemplars)
        found = [task.result() for task in sent.pieces]
        fitted = trainer.join(list(chain(*found))) if isinstance(trainer, ExemplarSVMs) else found[0]
        return trained_class(name, fitted, sent.instances, single, sent.n_negatives)

    def score(self, windows: TrainingWindows, trained: TrainedClass) -> CalibrationScores:
        """The scores that a class is calibrated on."""
        options, random_state = self.options.calibration, self.options.random_state
        score = partial(self._score, windows)
        found = score_class(windows, trained, options, random_state=random_state, score=score)
        return cross_fitted(windows, trained, found, self.options)

    def _score(self, windows: TrainingWindows, is_chosen: NDArray[np.bool_], weights: F32, biases: F32) -> F32:
        """(n, E) scores of the chosen windows."""
        table, handle = self._shared_table(windows), self.engine.share(weights)
        rows, starts = windows.rows(is_chosen), windows.starts
        spans = list(score_spans(rows.starts, len(weights)))
        parts = []
        for piece in self._pieces(len(spans)):
            first, last = spans[piece[0]][0], spans[piece[-1]][1]
            parts.append((starts[first : last + 1], np.packbits(is_chosen[starts[first] : starts[last]])))
        found = (scores for _, scores in in_order(self.engine, score_task, parts, table, handle, biases))
        try:
            return next(found) if len(parts) == 1 else _stacked(found, (rows.shape[0], len(weights)))
        finally:
            self.engine.forget(handle)

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
            self.options.detection.pooling,
            self.options.random_state,
            self.engine.task_threads,
            self._search_progress(name),
        )

    def calibrated(self, name: str, stored: str) -> ScoreCalibrator:
        """A calibrator that was sent."""
        task = self._calibrators.pop((name, stored))
        self._wait([task], "calibrating", list(self._calibrators.values()))
        calibrator = task.result()
        if not any(one == name for one, _ in self._calibrators):
            self.engine.forget(self._scores.pop(name))
        return calibrator

    def _pieces(self, n_blocks: int) -> list[range]:
        """Blocks 0 to n, as many together as the engine wants in one task."""
        ends = np.linspace(0, n_blocks, self.engine.n_pieces(n_blocks) + 1).round().astype(int).tolist()
        return [range(first, end) for first, end in pairwise(ends)]

    def _shared_table(self, windows: TrainingWindows) -> Any:
        """The handle of the descriptors: shared when first needed, and once."""
        key = id(windows.descriptors)
        if key not in self._tables:
            self._tables[key] = self.engine.share(windows.descriptors)
        return self._tables[key]

    # Progress

    def _training_progress(self, name: str) -> Callable[[TrainingProgress], object] | None:
        progress, text = self._progress, f"training class{self._place(name)}"
        if progress is None:
            return None
        return self.engine.local(lambda state: progress(text, state.n_done, state.n_exemplars))

    def _search_progress(self, name: str) -> Callable[[SearchState], object] | None:
        progress, limit, place = self._progress, self.options.calibration.time_limit, self._place(name)
        if progress is None:
            return None

        def report(state: SearchState) -> None:
            text = f"calibrating class{place}, gap {100 * min(1.0, state.gap):.1f} %"
            progress(text, int(state.seconds), 0 if limit is None else int(limit))

        return self.engine.local(report)

    def _place(self, name: str) -> str:
        return f" {self.classes.index(name) + 1} of {len(self.classes)}: {name}"

    def _wait(self, wanted: Sequence[Pending], stage: str, others: Sequence[Pending]) -> None:
        """Until the tasks are done, which are counted together with others of the same stage."""
        if self.engine.local(stage) is not None:
            return  # they are computed when their results are asked for
        total = self._n_collected[stage] + len(wanted) + len(others)
        while True:
            n_done = self._n_collected[stage] + sum(task.is_done() for task in (*wanted, *others))
            if self._progress is not None:
                self._progress(f"{stage}, workers: {self.engine.n_workers}", n_done, total)
            left = [task for task in wanted if not task.is_done()]
            if not left:
                break
            self.engine.wait(left, _TICK)
        self._n_collected[stage] += len(wanted)


@dataclass(frozen=True)
class _SentClass:
    """A class that is under way."""

    instances: tuple[Instance, ...]
    single: Pending
    pieces: list[Pending]
    n_exemplars: int
    n_negatives: int


def _stacked(blocks: Iterable[F32], shape: tuple[int, int]) -> F32:
    """One table of all blocks, without a second copy of them."""
    table, end = np.empty(shape, dtype=np.float32), 0
    for block in blocks:
        table[end : end + len(block)] = block
        end += len(block)
    return table
