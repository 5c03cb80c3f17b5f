"""The recall frontier: what the loss, and the bound on it, become when more and more positives may be left out.

In: a `CalibrationProblem` and recall floors. Out: `RecallFrontier`, one row per floor, and how much of the loss at the
highest floor a few hard positives cost. Not here: searching, which is `solve`; drawing and files.

The least loss never rises when the floor falls: thresholds for a floor are thresholds for every lower one. So floors
are solved from the highest down, each from the best thresholds known so far, and everything found serves both ways: a
solution bounds the loss of every floor that it meets from above, and what is proved for a floor is a lower bound for
every higher one (docs/maths.md, section 1).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm._support.validation import FloatArray, InputError, check_number
from eesvm.calibration.anytime import Progress, ProgressCallback, relative_gap
from eesvm.calibration.exact import check_search_options, solve
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.result import CalibrationResult

DEFAULT_FLOORS = (1.0, 0.999, 0.995, 0.99, 0.98, 0.95, 0.9, 0.8, 0.5)
HARDEST = (0.001, 0.01, 0.05)  # shares of the positives' weight
_COLUMNS = {  # of the Markdown table
    "floor": "recall floor",
    "recall": "recall",
    "n_left_out": "left out",
    "loss": "loss",
    "lower_bound": "lower bound",
    "status": "status",
    "owed": "share of the loss saved",
}


@dataclass(frozen=True)
class OwedLoss:
    """How much of the loss at the highest floor goes away when the hardest `share` of the positives may be left out.

    `owed` is what the thresholds found show; the truth, between optima, lies between `low` and `high`.
    """

    share: float  # of the positives' weight
    n_left_out: int  # positives that the thresholds behind `owed` leave out
    owed: float
    low: float
    high: float


@dataclass(frozen=True)
class RecallFrontier:
    """Loss and bound over recall floors, from the highest floor down; `lower_bounds <= optima <= losses` everywhere.

    Losses and bounds never rise from one row to the next. Of equal losses the thresholds that leave out less are kept,
    so `recalls` may be well above the floors. `statuses` are those of `CalibrationResult`.
    """

    floors: NDArray[np.float64]  # (F,) decreasing
    recalls: NDArray[np.float64]  # (F,) share of the positives' weight that is covered
    losses: NDArray[np.float64]  # (F,)
    lower_bounds: NDArray[np.float64]  # (F,)
    statuses: tuple[str, ...]  # (F,)
    thresholds: FloatArray  # (F, E), +inf for a redundant detector
    n_left_out: NDArray[np.intp]  # (F,) positives that nobody covers
    seconds: NDArray[np.float64]  # (F,) spent on each floor, 0 where it needed no search of its own
    share_of_loss_owed_to_hardest: tuple[OwedLoss, ...]  # 0.1 %, 1 % and 5 %, those whose floor is not above all
    is_complete: bool = True  # False where Ctrl-C came before the last floor was done

    def table(self) -> list[dict[str, Any]]:
        """One dictionary of Python numbers per floor.

        `owed`, `owed_low` and `owed_high` are the share of the loss at the highest floor that this floor saves.
        """
        rows = []
        for k, floor in enumerate(self.floors.tolist()):
            owed, low, high = (0.0, 0.0, 0.0) if k == 0 else _owed(self.losses, self.lower_bounds, k, k)
            rows.append(
                {
                    "floor": floor,
                    "recall": float(self.recalls[k]),
                    "n_left_out": int(self.n_left_out[k]),
                    "loss": float(self.losses[k]),
                    "lower_bound": float(self.lower_bounds[k]),
                    "gap": relative_gap(float(self.losses[k]), float(self.lower_bounds[k])),
                    "status": self.statuses[k],
                    "owed": owed,
                    "owed_low": low,
                    "owed_high": high,
                    "seconds": float(self.seconds[k]),
                }
            )
        return rows

    def to_markdown(self) -> str:
        """The table for people; where nothing is proven, a share is given as the range it must lie in."""
        lines = [f"| {' | '.join(_COLUMNS.values())} |", f"|{'---|' * len(_COLUMNS)}"]
        for row in self.table():
            texts = row | {
                "recall": f"{row['recall']:.4f}",
                "loss": f"{row['loss']:,.10g}",
                "lower_bound": f"{row['lower_bound']:,.10g}",
                "owed": share_text(row["owed"], row["owed_low"], row["owed_high"]),
            }
            lines.append(f"| {' | '.join(str(texts[name]) for name in _COLUMNS)} |")
        return "\n".join(lines) + "\n"


def recall_frontier(
    problem: CalibrationProblem,
    floors: Iterable[float] | None = None,
    *,
    time_limit: float | None = None,
    gap: float = 0.0,
    progress: ProgressCallback | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    start: ArrayLike | None = None,
    known: Sequence[CalibrationResult] = (),
) -> RecallFrontier:
    """Solve a problem for several recall floors, each from what the others have found.

    Ctrl-C ends the search at hand and with it the frontier: the floors that were begun are returned with the best that
    is known about them.

    Parameters
    ----------
    problem : the scores, weights, forbidden pairs and bounds on the thresholds.
    floors : shares of the positives' weight that must be covered, each in (0, 1], in any order. Default: those of 1,
        0.999, 0.995, 0.99, 0.98, 0.95, 0.9, 0.8 and 0.5 that can be met and differ in what they let go.
    time_limit : seconds for each floor.
    gap, progress, random_state, n_jobs : of each search, see `solve`.
    start : (E,) thresholds to begin with, see `solve`.
    known : results of earlier searches on this problem. Their thresholds and bounds count, and a floor that one of them
        was made for is not searched again.
    """
    if not isinstance(problem, CalibrationProblem):
        raise InputError(f"`problem` must be a CalibrationProblem, got {type(problem).__name__}")
    check_search_options("exact", time_limit, gap, 1.0, random_state, n_jobs, None)
    wanted = _default_floors(problem) if floors is None else _check_floors(floors)
    evidence = _Evidence(problem, start)
    for result in _check_known(problem, known):
        evidence.add(result)
    watch = _Watch(progress)
    searched = {result.min_recall: result.status for result in known}
    statuses: list[str] = []
    seconds: list[float] = []
    try:
        for floor in wanted:
            began = time.perf_counter()
            status = searched.get(floor) or evidence.settles(floor, gap)
            if status is None:
                result = solve(
                    problem,
                    time_limit=time_limit,
                    gap=gap,
                    min_recall=floor,
                    start=evidence.best_start(floor),
                    progress=watch if progress is not None else None,
                    random_state=random_state,
                    n_jobs=n_jobs,
                )
                evidence.add(result)
                status = result.status
                watch.is_interrupted |= result.statistics["is_interrupted"]
                seconds.append(time.perf_counter() - began)
            else:
                seconds.append(0.0)
            statuses.append(status)
            if watch.is_interrupted:
                break
    except KeyboardInterrupt:  # a second Ctrl-C, or one between two searches
        if not statuses:
            raise
    return _assemble(problem, evidence, wanted, statuses, seconds, gap)


def share_text(owed: float, low: float, high: float) -> str:
    """A share in per cent, with the range that it must lie in where that is wider than what is printed."""
    texts = [f"{100 * share:.1f}" for share in (owed, low, high)]
    return f"{texts[0]} %" if texts[1] == texts[2] else f"{texts[0]} % ({texts[1]} to {texts[2]})"


class _Watch:
    """A progress callback that remembers an interrupt from it, also where the search ends at that moment anyway."""

    def __init__(self, progress: ProgressCallback | None) -> None:
        self._progress = progress
        self.is_interrupted = False

    def __call__(self, state: Progress) -> None:
        try:
            if self._progress is not None:
                self._progress(state)
        except KeyboardInterrupt:
            self.is_interrupted = True
            raise


@dataclass(frozen=True)
class _Solution:
    thresholds: FloatArray
    loss: float
    left_out: float  # recall units of the positives that nobody covers


class _Evidence:
    """All solutions and bounds so far, whatever floor they were made for."""

    def __init__(self, problem: CalibrationProblem, start: ArrayLike | None) -> None:
        self._problem = problem
        self._spares: dict[float, float] = {}
        self._solutions: list[_Solution] = []
        # Whatever is left out, what the upper thresholds accept is paid for.
        self._bounds = [(np.inf, math.fsum(problem.negative_weights[problem.forced()].tolist()))]
        # The start is no answer itself: its thresholds need not follow the rule of `problem` between two scores.
        self._start: _Solution | None = None
        if start is not None:
            limits = problem.check_thresholds(start, "start")
            self._start = self._judge(np.clip(limits, problem.lower_thresholds, problem.upper_thresholds))

    def add(self, result: CalibrationResult) -> None:
        self._solutions.append(self._judge(result.thresholds))
        self._bounds.append((self.spare(result.min_recall), result.lower_bound))

    def _judge(self, thresholds: FloatArray) -> _Solution:
        problem = self._problem
        left_out = float(problem.recall_units[~problem.covers(thresholds)].sum())
        return _Solution(thresholds, problem.loss(thresholds), left_out)

    def spare(self, floor: float) -> float:
        """What the floor lets go beyond the positives that nobody may cover; equal values make equal problems."""
        if floor not in self._spares:
            self._spares[floor] = self._problem.spare_budget(floor)
        return self._spares[floor]

    def best(self, floor: float) -> _Solution | None:
        """The least loss among the solutions that meet the floor; of equal ones, the one that leaves out least."""
        return self._best_of(self._solutions, floor)

    def _best_of(self, solutions: list[_Solution], floor: float) -> _Solution | None:
        budget = self._problem.left_out_budget(floor)
        feasible = [solution for solution in solutions if solution.left_out <= budget]
        return min(feasible, key=lambda solution: (solution.loss, solution.left_out), default=None)

    def best_start(self, floor: float) -> FloatArray | None:
        """The best thresholds known for the floor; those given as a start, incomplete as they may be, if none are."""
        given = [] if self._start is None else [self._start]
        solution = self._best_of(self._solutions + given, floor) or self._start
        return None if solution is None else solution.thresholds

    def lower_bound(self, floor: float) -> float:
        """The best bound that was proved for this floor or one that lets go at least as much."""
        return max(bound for budget, bound in self._bounds if budget >= self.spare(floor))

    def settles(self, floor: float, gap: float) -> str | None:
        """The status of a floor that needs no search of its own, else None."""
        solution = self.best(floor)
        if solution is None:
            return None
        lower_bound = self.lower_bound(floor)
        if solution.loss <= lower_bound:
            return "optimal"
        return "gap_reached" if relative_gap(solution.loss, lower_bound) <= gap else None


def _assemble(
    problem: CalibrationProblem,
    evidence: _Evidence,
    wanted: list[float],
    statuses: list[str],
    seconds: list[float],
    gap: float,
) -> RecallFrontier:
    """The rows of the floors that have a status, each with the best that any search has found or proved for it."""
    floors = wanted[: len(statuses)]
    solutions = [solution for solution in map(evidence.best, floors) if solution is not None]
    losses = np.array([solution.loss for solution in solutions])
    # Where sums of weights are rounded, a bound may pass the loss by the last digit.
    bounds = np.minimum([evidence.lower_bound(floor) for floor in floors], losses)
    rows = zip(statuses, losses.tolist(), bounds.tolist(), strict=True)
    covered = [problem.covers(solution.thresholds) for solution in solutions]
    n_left_out = np.array([(~mask).sum() for mask in covered], dtype=np.intp)
    total = problem.positive_weights.sum()
    return RecallFrontier(
        floors=np.array(floors),
        recalls=np.array([(total - problem.positive_weights[~mask].sum()) / total for mask in covered]),
        losses=losses,
        lower_bounds=bounds,
        statuses=tuple(_final_status(status, loss, bound, gap) for status, loss, bound in rows),
        thresholds=np.stack([solution.thresholds for solution in solutions]),
        n_left_out=n_left_out,
        seconds=np.array(seconds[: len(statuses)]),
        share_of_loss_owed_to_hardest=_owed_to_hardest(evidence, floors, losses, bounds, n_left_out),
        is_complete=len(floors) == len(wanted),
    )


def _final_status(status: str, loss: float, lower_bound: float, gap: float) -> str:
    """The status of a floor once what the other floors gave is added."""
    if status == "optimal" or loss <= lower_bound:
        return "optimal"
    return "gap_reached" if relative_gap(loss, lower_bound) <= gap else status


def _owed_to_hardest(
    evidence: _Evidence,
    floors: list[float],
    losses: NDArray[np.float64],
    bounds: NDArray[np.float64],
    n_left_out: NDArray[np.intp],
) -> tuple[OwedLoss, ...]:
    """What each of the shares `HARDEST` saves. A floor that is not there lies between its neighbours that are."""
    spares = np.array([evidence.spare(floor) for floor in floors])  # never falls from one floor to the next
    rows = []
    for share in HARDEST:
        spare = evidence.spare(1 - share)
        above = int((spares <= spare).sum()) - 1  # the last floor that lets go no more
        if above < 0:
            continue
        if spares[above] == spares[0] == spare:  # the highest floor lets go as much: the two are one problem
            owed = (0.0, 0.0, 0.0)
        else:
            owed = _owed(losses, bounds, above, int((spares < spare).sum()))
        rows.append(OwedLoss(share, int(n_left_out[above]), *owed))
    return tuple(rows)


def _owed(
    losses: NDArray[np.float64], bounds: NDArray[np.float64], above: int, below: int
) -> tuple[float, float, float]:
    """(owed, low, high): share of the optimum of row 0 that a floor between the rows `above` and `below` saves.

    The floor's optimum is at most the loss of `above` and at least the bound of `below`, or 0 where there is no such
    row; the optimum of row 0 lies between its bound and its loss. The ratio is largest and smallest at the ends.
    """
    most, least = float(losses[0]), float(bounds[0])
    if most <= 0:
        return 0.0, 0.0, 0.0
    bound = float(bounds[below]) if below < len(bounds) else 0.0
    low = max(0.0, 1 - float(losses[above]) / least) if least > 0 else 0.0
    return 1 - float(losses[above]) / most, low, 1 - bound / most


def _default_floors(problem: CalibrationProblem) -> list[float]:
    """Those of `DEFAULT_FLOORS` that can be met, one of each that let go the same."""
    spares = [problem.spare_budget(floor) for floor in DEFAULT_FLOORS]
    floors = [
        floor
        for k, (floor, spare) in enumerate(zip(DEFAULT_FLOORS, spares, strict=True))
        if spare >= 0 and spare not in spares[:k]
    ]
    return floors or [DEFAULT_FLOORS[-1]]  # the search says what is in the way


def _check_floors(floors: Iterable[float]) -> list[float]:
    """Floors in (0, 1] from the highest down, no two the same."""
    try:
        given = list(floors)
    except TypeError as error:
        raise InputError(f"`floors` must be a list of recall floors, got {floors!r}") from error
    values = [check_number(floor, f"floors[{k}]", above=0, maximum=1) for k, floor in enumerate(given)]
    if not values:
        raise InputError("`floors` must hold at least one recall floor, got none")
    values.sort(reverse=True)
    for higher, lower in pairwise(values):
        if higher == lower:
            raise InputError(f"`floors` must differ from each other, got {lower:g} twice")
    return values


def _check_known(problem: CalibrationProblem, known: Sequence[CalibrationResult]) -> Sequence[CalibrationResult]:
    """Results whose thresholds this problem judges as they say."""
    for k, result in enumerate(known):
        if not isinstance(result, CalibrationResult):
            raise InputError(f"`known` must hold results of `solve`, got {type(result).__name__} at index {k}")
        if result.goal is not None:
            raise InputError(f"`known[{k}]` was made for {result.goal}, not for a recall floor")
        if result.max_detectors is not None:
            raise InputError(f"`known[{k}]` was made for {result.max_detectors} detectors in use, which floors are not")
        thresholds = problem.check_thresholds(result.thresholds, f"known[{k}].thresholds")
        if not problem.is_feasible(thresholds, result.min_recall) or problem.loss(thresholds) != result.loss:
            raise InputError(f"`known[{k}]` is the result of another problem: its loss or recall is another one here")
    return known
