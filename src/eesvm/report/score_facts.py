"""What a page about a score table shows: which detector catches what, which are redundant, which rows decide.

In: a `CalibrationProblem` and thresholds. Out: plain arrays and lists, counted in numpy; nothing is drawn here.
Rows are counted within the positives and within the negatives; `ScoreReport.rows` says where they stand in the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import FloatArray
from eesvm.calibration.calibrators.joint import covered_pairs
from eesvm.calibration.problem import CalibrationProblem

N_BINS = 40
_MOST_ROWS = 15  # of each list of rows


@dataclass(frozen=True)
class Detector:
    """What one column does."""

    index: int
    name: str
    threshold: float
    positives: int  # that it accepts
    positives_alone: int  # that nobody else accepts: what switching it off would lose
    negatives: int
    negatives_alone: int  # what switching it off would save
    edges: NDArray[np.float64]  # (N_BINS + 1,) of the histograms
    positive_counts: NDArray[np.intp]  # (N_BINS,) scores of positives
    negative_counts: NDArray[np.intp]

    @property
    def state(self) -> str:
        """off: accepts nothing; idle: nobody would miss it; needed."""
        if self.threshold == np.inf:
            return "off"
        return "needed" if self.positives_alone else "idle"


@dataclass(frozen=True)
class Deciding:
    """A positive that holds a threshold down: without it the threshold could rise, and false alarms would be gone."""

    row: int
    detector: int
    score: float
    saved: int  # false alarms


@dataclass(frozen=True)
class Near:
    """A row and the detector that comes nearest to accepting it, or accepts it most clearly."""

    row: int
    detector: int
    margin: float  # above its threshold, in standard deviations of the column


@dataclass(frozen=True)
class TableFacts:
    """All of it."""

    detectors: list[Detector]
    together: NDArray[np.float64]  # (E, E) share of the positives that row j accepts which column k accepts, too
    deciding: list[Deciding]
    missed: list[Near]  # positives, the nearest to acceptance first
    alarms: list[Near]  # negatives, the most clearly accepted first
    n_missed: int
    n_alarms: int


def table_facts(
    problem: CalibrationProblem, thresholds: FloatArray, names: list[str], units: NDArray[np.float64]
) -> TableFacts:
    """Count what thresholds do.

    Parameters
    ----------
    problem : the rows.
    thresholds : (E,), +inf for a detector that is switched off.
    names : (E,) of the columns.
    units : (E,) by which margins are divided.
    """
    covered = covered_pairs(problem, thresholds)
    accepted = problem.negative_scores > thresholds
    is_missed, is_alarm = ~covered.any(axis=1), accepted.any(axis=1)
    return TableFacts(
        detectors=[_detector(problem, thresholds, covered, accepted, j, name) for j, name in enumerate(names)],
        together=_together(covered),
        deciding=_deciding(problem, thresholds, covered, accepted),
        missed=_nearest(_allowed(problem), thresholds, units, np.flatnonzero(is_missed)),
        alarms=_nearest(problem.negative_scores, thresholds, units, np.flatnonzero(is_alarm)),
        n_missed=int(is_missed.sum()),
        n_alarms=int(is_alarm.sum()),
    )


def _allowed(problem: CalibrationProblem) -> FloatArray:
    """Scores of positives by the detectors that may cover them."""
    if problem.forbidden is None:
        return problem.positive_scores
    return np.where(problem.forbidden, -np.inf, problem.positive_scores)


def _detector(
    problem: CalibrationProblem,
    thresholds: FloatArray,
    covered: NDArray[np.bool_],
    accepted: NDArray[np.bool_],
    j: int,
    name: str,
) -> Detector:
    alone = [pairs[:, j] & (pairs.sum(axis=1) == 1) for pairs in (covered, accepted)]
    columns = [scores[:, j][scores[:, j] > -np.inf] for scores in (problem.positive_scores, problem.negative_scores)]
    there = np.concatenate(columns).astype(np.float64)
    low, high = (float(there.min()), float(there.max())) if len(there) else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1.0, N_BINS + 1)
    counts = [np.histogram(column, edges)[0] for column in columns]
    return Detector(
        index=j,
        name=name,
        threshold=float(thresholds[j]),
        positives=int(covered[:, j].sum()),
        positives_alone=int(alone[0].sum()),
        negatives=int(accepted[:, j].sum()),
        negatives_alone=int(alone[1].sum()),
        edges=edges,
        positive_counts=counts[0],
        negative_counts=counts[1],
    )


def _together(covered: NDArray[np.bool_]) -> NDArray[np.float64]:
    both = covered.T.astype(np.float64) @ covered
    return np.asarray(both / np.maximum(np.diag(both), 1)[:, None])


def _deciding(
    problem: CalibrationProblem, thresholds: FloatArray, covered: NDArray[np.bool_], accepted: NDArray[np.bool_]
) -> list[Deciding]:
    """For each detector its lowest positive that nobody else accepts, and what the threshold above it would save."""
    found = []
    alone_positive, alone_negative = covered.sum(axis=1) == 1, accepted.sum(axis=1) == 1
    for j in np.flatnonzero(thresholds < np.inf):
        own = np.flatnonzero(covered[:, j] & alone_positive)
        if not len(own):
            continue
        order = own[np.argsort(problem.positive_scores[own, j], kind="stable")]
        lowest = problem.positive_scores[order[0], j]
        next_one = problem.positive_scores[order[1], j] if len(order) > 1 else np.inf
        alarms = problem.negative_scores[accepted[:, j] & alone_negative, j]
        if lowest < next_one:
            found.append(Deciding(int(order[0]), int(j), float(lowest), int((alarms < next_one).sum())))
    return sorted(found, key=lambda each: -each.saved)[:_MOST_ROWS]


def _nearest(
    scores: FloatArray, thresholds: FloatArray, units: NDArray[np.float64], rows: NDArray[np.intp]
) -> list[Near]:
    """The rows with the largest margins."""
    if not len(rows) or not (thresholds < np.inf).any():
        return []
    with np.errstate(invalid="ignore"):
        margins = np.where(np.isneginf(scores[rows]), -np.inf, (scores[rows] - thresholds) / units)
    best = margins.argmax(axis=1)
    largest = margins[np.arange(len(rows)), best]
    order = np.argsort(-largest, kind="stable")[:_MOST_ROWS]
    return [Near(int(rows[k]), int(best[k]), float(largest[k])) for k in order]
