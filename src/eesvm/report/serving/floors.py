"""Recall floors of a whole model, searched in the background.

In: the classes of a model with the training scores they keep, and recall floors. Out: `FloorTable`: for every floor
jointly calibrated thresholds of every class, with loss and bound, and which windows some exemplar accepts there; until
it is there, how far the search is, and where there are no scores, why there will be none.
The thresholds of one floor need not lie below those of a higher one, exemplar by exemplar, so a window that is accepted
at a low floor may be rejected at a high one. Hence acceptance is told for each floor, never by "the lowest floor".
Not here: searching itself (`calibration.frontier`), and scores of windows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import FloatArray, InputError, check_number
from eesvm.calibration.anytime import Progress
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.calibration.frontier import DEFAULT_FLOORS, RecallFrontier, recall_frontier
from eesvm.calibration.problem import CalibrationProblem, any_accepts
from eesvm.calibration.result import CalibrationResult
from eesvm.detector.class_calibration import JOINT
from eesvm.detector.model import ClassModel
from eesvm.detector.options import DetectorOptions

PREPARING, READY, ABSENT = "preparing", "ready", "absent"

_logger = logging.getLogger("eesvm")


@dataclass(frozen=True)
class ClassFloors:
    """One class: the sizes of its training table, and a row for every floor."""

    class_name: str
    n_positives: int
    n_negatives: int
    frontier: RecallFrontier


@dataclass(frozen=True)
class FloorTable:
    """All classes of a model at the same floors, from the highest down."""

    classes: tuple[ClassFloors, ...]

    @property
    def floors(self) -> list[float]:
        return self.classes[0].frontier.floors.tolist()

    def accepted(self, scores: Sequence[FloatArray]) -> list[NDArray[np.bool_]]:
        """For each class (n, F) whether some exemplar accepts a window, from the (n, E) scores under all of them."""
        return [
            np.stack([any_accepts(own, thresholds) for thresholds in one.frontier.thresholds], axis=1)
            for own, one in zip(scores, self.classes, strict=True)
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Plain data for each floor: what it costs in all, and in each class.

        The sums of losses and bounds are a loss and a bound of all classes together: no class affects another.
        """
        rows = []
        tables = [one.frontier.table() for one in self.classes]
        for k, floor in enumerate(self.floors):
            classes = [
                {
                    "class": one.class_name,
                    "n_positives": one.n_positives,
                    "n_negatives": one.n_negatives,
                    **{name: table[k][name] for name in ("recall", "n_left_out", "loss", "lower_bound", "status")},
                }
                for one, table in zip(self.classes, tables, strict=True)
            ]
            names = ("n_positives", "n_negatives", "n_left_out", "loss", "lower_bound")
            totals = {name: sum(one[name] for one in classes) for name in names}
            rows.append({"floor": floor, **totals, "classes": classes})
        return rows


@dataclass(frozen=True)
class FloorState:
    """How far the search is."""

    kind: str  # PREPARING, READY or ABSENT
    text: str = ""  # for people
    table: FloorTable | None = None


class FloorSearch:
    """Searches thresholds for floors in a thread of its own, on one core, while images are looked at.

    Parameters
    ----------
    floors : recall floors; None is those of `recall_frontier` that differ from the next higher one in some class, and
        an empty list no search at all.
    time_limit : seconds for each floor of each class.
    """

    def __init__(
        self,
        models: Sequence[ClassModel],
        options: DetectorOptions,
        floors: Sequence[float] | None = None,
        time_limit: float = 2.0,
    ) -> None:
        self._models, self._options = models, options
        self._floors, self._time_limit = None if floors is None else _checked(floors), time_limit
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eesvm-floors", daemon=True)
        without = [model.class_name for model in models if model.read_scores is None]
        if self._floors == []:
            self.state = FloorState(ABSENT, "Recall floors were switched off when the server was started.")
        elif without:
            names = without[0] if len(without) == 1 else f"{without[0]} and {len(without) - 1} more"
            text = f"The model keeps no training scores of {names}, from which thresholds could be found."
            self.state = FloorState(ABSENT, text)
        else:
            self.state = FloorState(PREPARING, _progress_text(0, len(models)))

    def start(self) -> None:
        """Begin, unless there is nothing to search in."""
        if self.state.kind == PREPARING:
            self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """End the search at its next look at the clock."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def wait(self, timeout: float | None = None) -> FloorState:
        """The state once the search has ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return self.state

    def _run(self) -> None:
        found = []
        try:
            for done, model in enumerate(self._models):
                self.state = FloorState(PREPARING, _progress_text(done, len(self._models)))
                found.append(self._search(model))
                if self._stopping.is_set():
                    return
            table = FloorTable(tuple(found))
            self.state = FloorState(READY, table=_without_repetitions(table) if self._floors is None else table)
        except KeyboardInterrupt:  # of `_look_up`, before the first floor of a class was done
            return
        except Exception as error:  # a damaged file, lack of memory: the page works without floors
            _logger.warning("there will be no recall floors: %s", error)
            self.state = FloorState(ABSENT, "The training scores of the model cannot be used; the terminal says why.")

    def _search(self, model: ClassModel) -> ClassFloors:
        if model.read_scores is None:
            raise InputError(f"the model keeps no training scores of {model.class_name}")
        table = model.read_scores().table
        is_across = self._options.calibration.coverage == "across-images"
        if table.exemplar_groups is None or len(set(table.exemplar_groups.tolist())) == 1:
            is_across = False  # as in training: nobody else could cover the image that all exemplars come from
        problem = table.problem(is_across)
        known, start = _known(model, problem)
        frontier = recall_frontier(
            problem,
            DEFAULT_FLOORS if self._floors is None else self._floors,
            time_limit=self._time_limit,
            gap=self._options.calibration.gap,
            progress=self._look_up,
            random_state=self._options.random_state,
            n_jobs=1,
            start=start,
            known=known,
        )
        return ClassFloors(model.class_name, problem.n_positives, problem.n_negatives, frontier)

    def _look_up(self, progress: Progress) -> None:
        if self._stopping.is_set():
            raise KeyboardInterrupt


def _checked(floors: Sequence[float]) -> list[float]:
    return sorted({check_number(floor, "floors", above=0, maximum=1) for floor in floors}, reverse=True)


def _known(model: ClassModel, problem: CalibrationProblem) -> tuple[list[CalibrationResult], FloatArray | None]:
    """What the model's own calibration knows of the problem: a result that stands, or thresholds to begin with."""
    joint = model.calibrators.get(JOINT)
    if not isinstance(joint, JointCalibrator):
        return [], None
    result = joint.result_
    is_same = problem.is_feasible(result.thresholds, result.min_recall) and (
        problem.loss(result.thresholds) == result.loss
    )
    if not is_same or result.status == "feasible":
        return [], result.thresholds
    return [result], None


def _without_repetitions(table: FloorTable) -> FloorTable:
    """The table without floors whose thresholds are those of the next higher floor in every class."""
    stacks = [one.frontier.thresholds for one in table.classes]
    n_floors = len(stacks[0])
    kept = [k for k in range(n_floors) if k == 0 or any((one[k] != one[k - 1]).any() for one in stacks)]
    return FloorTable(
        tuple(replace(one, frontier=_rows_of(one.frontier, np.array(kept, dtype=np.intp))) for one in table.classes)
    )


def _rows_of(frontier: RecallFrontier, kept: NDArray[np.intp]) -> RecallFrontier:
    names = ("floors", "recalls", "losses", "lower_bounds", "thresholds", "n_left_out", "seconds")
    columns = {name: getattr(frontier, name)[kept] for name in names}
    return replace(frontier, statuses=tuple(frontier.statuses[k] for k in kept), **columns)


def _progress_text(done: int, total: int) -> str:
    return f"Thresholds are being searched: class {done + 1} of {total}."
