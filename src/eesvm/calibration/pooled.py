"""Thresholds for new rows: what was found for each detector alone, drawn towards a threshold that all of them share.

In: a `CalibrationProblem`, a recall that is wanted on new rows, folds, and a function that fits thresholds jointly.
Out: `Pooled`, one threshold per exemplar. Thresholds that fit these rows best owe part of their lead to chance. Each is
moved along a line to where all detectors would have the same one, in one of several units, as far as pays on
held-out rows; then all are lowered together until held-out rows have the recall.
Not here: a proof, which only fitted rows can have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product, starmap
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import FloatArray, check_number
from eesvm.calibration.held_out import Folds, part, training_parts
from eesvm.calibration.problem import CalibrationProblem

_F64 = NDArray[np.float64]

UNITS = ("scores", "spreads", "quantiles")
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
_TAIL = 0.1  # share of the negatives from which the end of a column's distribution is drawn on


class Choice(NamedTuple):
    """How thresholds are drawn together."""

    units: str  # one of UNITS, in which they are
    strength: float  # the share of each threshold that is its own: 0 is one for all, 1 what was found jointly
    keep_off: bool  # whether detectors that were found redundant stay switched off


CHOICES = tuple(starmap(Choice, product(UNITS, STRENGTHS, (False, True))))


@dataclass(frozen=True)
class Units:
    """Rising maps, one per column: the scores as they are, in standard deviations of the negatives, or in quantiles.

    A quantile is minus the logarithm of the share of negatives above. Between two negatives its map is a line; beyond
    the last it goes on as an exponential tail would.
    """

    name: str
    knots: Sequence[_F64]  # for each column the scores of negatives, rising; empty for the scores as they are
    heights: Sequence[_F64]  # what they are mapped to
    slopes: Sequence[float]  # beyond the first and the last

    @classmethod
    def of(cls, name: str, negatives: FloatArray) -> Units:
        """Maps by the scores (N, E) of negatives; `name` is one of `UNITS`."""
        if name == "scores":
            return cls(name, [], [], [])
        if name == "spreads":
            zero = [np.zeros(1)] * negatives.shape[1]
            return cls(name, zero, zero, [1 / _spread(column[column > -np.inf]) for column in negatives.T])
        columns = [_quantiles(column[column > -np.inf].astype(np.float64), len(negatives)) for column in negatives.T]
        knots, heights, slopes = zip(*columns, strict=True)
        return cls(name, knots, heights, slopes)

    def values(self, scores: FloatArray) -> _F64:
        """(n, E) mapped scores; what is missing stays -inf."""
        wide = scores.astype(np.float64)
        for j, (knots, heights, slope) in enumerate(zip(self.knots, self.heights, self.slopes, strict=True)):
            wide[:, j] = _line(wide[:, j], knots, heights, slope)
        return wide

    def scores(self, values: _F64) -> _F64:
        """(E,) the scores that have the values (E,), one of each column."""
        found = values.astype(np.float64)
        for j, (knots, heights, slope) in enumerate(zip(self.knots, self.heights, self.slopes, strict=True)):
            found[j] = _line(found[j : j + 1], heights, knots, 1 / slope)[0]
        return found


def _spread(column: FloatArray) -> float:
    """The standard deviation; 1 where there is none."""
    spread = float(column.std(dtype=np.float64)) if len(column) else 0.0
    return spread if 0 < spread < np.inf else 1.0


def _quantiles(column: _F64, n_negatives: int) -> tuple[_F64, _F64, float]:
    """Knots, heights and the slope beyond them."""
    if not len(column):
        return np.zeros(1), np.zeros(1), 1.0
    knots, counts = np.unique(column, return_counts=True)
    above = counts[::-1].cumsum()[::-1] - counts
    heights = -np.log((above + counts / 2 + 0.5) / (n_negatives + 1))
    tail = np.sort(column)[-max(2, round(_TAIL * len(column))) :]
    excess = float((tail - tail[0]).mean())
    return knots, heights, 1 / excess if excess > 0 else 1.0


def _line(points: _F64, knots: _F64, heights: _F64, slope: float) -> _F64:
    """The broken line through the knots, with one slope before the first and after the last."""
    with np.errstate(invalid="ignore"):
        beyond = np.maximum(points - knots[-1], 0) + np.minimum(points - knots[0], 0)
    return np.interp(points, knots, heights) + slope * beyond


@dataclass(frozen=True)
class Offsets:
    """Joint thresholds of some rows, as offsets in some units."""

    units: Units
    offsets: _F64  # (E,)
    is_off: NDArray[np.bool_]  # (E,) switched off

    @classmethod
    def of(cls, units: Units, problem: CalibrationProblem, thresholds: FloatArray, keep_off: bool) -> Offsets:
        """A redundant detector has the highest of what accepts no positive and of the middle of the others."""
        values = allowed_values(units, problem)
        is_off = np.asarray(thresholds == np.inf)
        offsets = units.values(thresholds[None].astype(np.float64))[0]
        known = offsets[np.isfinite(offsets)]
        middle = float(np.median(known)) if len(known) else 0.0
        highest = values.max(axis=0)
        guesses = np.maximum(np.where(np.isfinite(highest), highest, middle), middle)
        offsets = np.where(is_off, guesses, np.where(np.isfinite(offsets), offsets, middle))
        return cls(units, offsets, is_off if keep_off else np.zeros_like(is_off))

    def pooled(self, values: _F64, strength: float) -> _F64:
        """(n,) how far the values (n, E) of rows are above a threshold of 0 for all, before it is moved."""
        moved = values - strength * self.offsets
        moved[:, self.is_off] = -np.inf
        return moved.max(axis=1)

    def thresholds(self, level: float, strength: float) -> _F64:
        """(E,) in the unit of the scores."""
        return np.where(self.is_off, np.inf, self.units.scores(level + strength * self.offsets))


@dataclass(frozen=True)
class Pooled:
    """Thresholds for new rows, and how they were chosen."""

    thresholds: FloatArray  # (E,), +inf for a detector that is switched off
    offsets: Offsets  # of all rows, in the units chosen
    choice: Choice
    lowered: float  # by how much, in those units, all were lowered for the recall of held-out rows
    false_alarms: dict[Choice, float]  # held out at that recall, by what could be chosen


def pool(
    problem: CalibrationProblem,
    recall: float,
    folds: Folds,
    fit: Callable[[CalibrationProblem, float], FloatArray],
    fitted: FloatArray,
    choices: Sequence[Choice] = CHOICES,
) -> Pooled:
    """Thresholds that have a recall on new rows, at the fewest false alarms there.

    Parameters
    ----------
    problem : the rows, with bounds on thresholds.
    recall : what new rows shall have, in (0, 1].
    folds : where each row is held out.
    fit : thresholds (E,) of a part of the rows, and of its share of the negatives' weight.
    fitted : (E,) those of all rows.
    choices : what to choose from; of equally good ones, the first.
    """
    check_number(recall, "recall", above=0, maximum=1)
    trials = {choice: _Trial(problem) for choice in choices}
    for fold, rest, share in training_parts(problem, folds):
        held_out = part(problem, folds.positives == fold, folds.negatives == fold)
        found = fit(rest, share)
        for name in {choice.units for choice in choices}:
            units = Units.of(name, rest.negative_scores)
            seen, unseen = Rows.of(units, rest), Rows.of(units, held_out)
            for choice in [choice for choice in choices if choice.units == name]:
                made = Offsets.of(units, rest, found, choice.keep_off)
                level = seen.pooled(made, choice.strength).level(recall)
                trials[choice].add(folds, fold, unseen.pooled(made, choice.strength), recall, level)
    alarms = {choice: trial.alarms for choice, trial in trials.items()}
    best = min(choices, key=lambda choice: round(alarms[choice], 12))
    made = Offsets.of(Units.of(best.units, problem.negative_scores), problem, fitted, best.keep_off)
    level = Rows.of(made.units, problem).pooled(made, best.strength).level(recall)
    lowered = max(0.0, -trials[best].positives(problem).level(recall))
    thresholds = _rounded(problem, made.thresholds(level - lowered, best.strength))
    return Pooled(thresholds, made, best, lowered, alarms)


def allowed_values(units: Units, problem: CalibrationProblem) -> _F64:
    """(P, E) mapped scores of the positives, -inf where coverage is forbidden."""
    values = units.values(problem.positive_scores)
    if problem.forbidden is not None:
        values[problem.forbidden] = -np.inf
    return values


@dataclass(frozen=True)
class Rows:
    """Mapped scores of the rows of a problem."""

    positives: _F64  # (P, E)
    negatives: _F64  # (N, E)
    problem: CalibrationProblem

    @classmethod
    def of(cls, units: Units, problem: CalibrationProblem) -> Rows:
        return cls(allowed_values(units, problem), units.values(problem.negative_scores), problem)

    def pooled(self, made: Offsets, strength: float) -> Decisions:
        positives, negatives = (made.pooled(values, strength) for values in (self.positives, self.negatives))
        n_coverable = int((self.positives > -np.inf).any(axis=1).sum())  # also by what is switched off
        weights = self.problem.positive_weights, self.problem.negative_weights
        return Decisions(positives, negatives, *weights, n_coverable)


@dataclass(frozen=True)
class Decisions:
    """One number per row, accepted where it is above a level."""

    positives: _F64
    negatives: _F64
    positive_weights: _F64
    negative_weights: _F64
    n_coverable: int | None = None  # positives that somebody may cover; None: those whose number is not -inf

    def lowest(self, recall: float) -> float:
        """The number of the last positive, from the highest down, that a recall needs.

        It is -inf, so that everything is accepted, where only detectors that are switched off would cover that one.
        """
        order = np.argsort(-self.positives, kind="stable")
        covered = self.positive_weights[order].cumsum()
        place = int(np.searchsorted(covered, recall * covered[-1] * (1 - 1e-12)))
        n = int((self.positives > -np.inf).sum()) if self.n_coverable is None else self.n_coverable
        return float(self.positives[order[min(place, max(n, 1) - 1)]])  # what nobody may cover is never the last

    def false_alarms(self, recall: float) -> float:
        """The share of the negatives' weight that is accepted where so many positives are."""
        total = float(self.negative_weights.sum())
        return float(self.negative_weights[self.negatives >= self.lowest(recall)].sum()) / total if total > 0 else 0.0

    def level(self, recall: float) -> float:
        """Half way from the last positive that is needed to the next number below."""
        lowest = self.lowest(recall)
        everything = np.concatenate([self.positives, self.negatives])
        below = everything[(everything < lowest) & (everything > -np.inf)]
        return lowest / 2 + float(below.max()) / 2 if len(below) else lowest - 1.0


class _Trial:
    """What one choice of units and strength does on held-out rows."""

    def __init__(self, problem: CalibrationProblem) -> None:
        self._above = np.empty(problem.n_positives)  # how far above the level of the fitted rows
        self._alarms: list[tuple[float, float]] = []

    def add(self, folds: Folds, fold: int, pooled: Decisions, recall: float, level: float) -> None:
        with np.errstate(invalid="ignore"):  # where all detectors are switched off the level is -inf, too
            above = pooled.positives - level
        self._above[folds.positives == fold] = np.where(pooled.positives > -np.inf, above, -np.inf)
        self._alarms.append((float(pooled.negative_weights.sum()), pooled.false_alarms(recall)))

    @property
    def alarms(self) -> float:
        """Mean over folds, by the weight of their negatives."""
        total = sum(weight for weight, _ in self._alarms)
        return sum(weight * alarms for weight, alarms in self._alarms) / total if total > 0 else 0.0

    def positives(self, problem: CalibrationProblem) -> Decisions:
        return Decisions(self._above, np.empty(0), problem.positive_weights, np.empty(0))


def _rounded(problem: CalibrationProblem, thresholds: _F64) -> FloatArray:
    """In the dtype of the scores, down, and within the bounds."""
    dtype = problem.positive_scores.dtype
    with np.errstate(over="ignore"):
        narrow = thresholds.astype(dtype)
    narrow = np.where(narrow > thresholds, np.nextafter(narrow, dtype.type(-np.inf)), narrow)
    return np.clip(narrow, problem.lower_thresholds, problem.upper_thresholds)
