"""What thresholds do on rows that they were not fitted to, by cross-validation over rows or groups.

In: a `CalibrationProblem`, for each of its rows the fold it is held out in, and a function that fits thresholds.
Out: `HeldOut`, recall and false alarms on held-out rows with intervals, beside those on the fitted rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import FloatArray, InputError, check_number
from eesvm.calibration.problem import CalibrationProblem

Groups = tuple[NDArray[Any], NDArray[Any]]  # of the positives and of the negatives

_Z = 1.959964  # of a normal distribution, 95 % lie between minus this and this


@dataclass(frozen=True)
class Share:
    """A share of weight, and the interval in which it lies with 95 %."""

    value: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Whether a value lies in the interval."""
        return self.low <= value <= self.high


@dataclass(frozen=True)
class HeldOut:
    """Recall and false alarms of rows that were not fitted, and of the fitted ones."""

    recall: Share
    false_alarms: Share  # share of the negatives' weight
    fitted_recall: float
    fitted_false_alarms: float
    n_folds: int
    is_grouped: bool  # whether whole groups were held out

    @property
    def warnings(self) -> list[str]:
        """A sentence for each of the two figures that is worse on held-out rows by more than its interval."""
        recall, alarms = self.recall, self.false_alarms
        told = []
        if self.fitted_recall > recall.high:
            told.append(
                f"recall on held-out rows is {100 * recall.value:.1f} %, not {100 * self.fitted_recall:.1f} %: "
                "new rows will be missed more often than these"
            )
        if self.fitted_false_alarms < alarms.low:
            told.append(
                f"false alarms on held-out rows are {100 * alarms.value:.1f} % of the negatives, not "
                f"{100 * self.fitted_false_alarms:.1f} %"
            )
        return told


@dataclass(frozen=True)
class Folds:
    """(P,) and (N,) the fold in which each positive and each negative is held out, and the groups they belong to."""

    positives: NDArray[np.intp]
    negatives: NDArray[np.intp]
    positive_groups: NDArray[np.intp]
    negative_groups: NDArray[np.intp]
    is_grouped: bool

    @property
    def n_folds(self) -> int:
        """How many there are."""
        return int(self.positives.max()) + 1


def make_folds(
    problem: CalibrationProblem,
    n_folds: int = 5,
    positive_groups: NDArray[Any] | None = None,
    negative_groups: NDArray[Any] | None = None,
    random_state: int = 0,
) -> Folds:
    """Deal groups, or rows where there are none, into folds, so that each has positives and negatives.

    Parameters
    ----------
    problem : whose rows are dealt.
    n_folds : at least 2; fewer are made where there are not as many groups with a positive, or without.
    positive_groups, negative_groups : (P,) and (N,), where each row comes from; both or none.
    random_state : seeds the deal.
    """
    check_number(n_folds, "n_folds", minimum=2, integer=True)
    n_positives, n_rows = problem.n_positives, problem.n_positives + problem.n_negatives
    ids = np.arange(n_rows)
    is_grouped = positive_groups is not None and negative_groups is not None
    if positive_groups is not None and negative_groups is not None:
        _, ids = np.unique(np.concatenate([positive_groups, negative_groups]), return_inverse=True)
    has_positive, has_negative = (np.zeros(int(ids.max()) + 1, dtype=bool) for _ in range(2))
    has_positive[ids[:n_positives]] = True
    has_negative[ids[n_positives:]] = True
    n_folds = min(n_folds, int(has_positive.sum()), int(has_negative.sum()))
    if n_folds < 2:
        raise InputError("cross-validation needs positives from two rows or groups at least, and negatives from two")
    random = np.random.default_rng(random_state)
    fold = np.empty(len(has_positive), dtype=np.intp)
    both = random.permutation(np.flatnonzero(has_positive & has_negative))
    fold[both] = np.arange(len(both)) % n_folds
    for members in (has_positive & ~has_negative, ~has_positive):  # numbered on from the last of both
        chosen = random.permutation(np.flatnonzero(members))
        fold[chosen] = (len(both) + np.arange(len(chosen))) % n_folds
    return Folds(fold[ids[:n_positives]], fold[ids[n_positives:]], ids[:n_positives], ids[n_positives:], is_grouped)


def part(
    problem: CalibrationProblem, positives: NDArray[Any], negatives: NDArray[Any], cost_share: float = 1.0
) -> CalibrationProblem:
    """The problem of some of its rows, by masks or indices; what using a detector costs is multiplied."""
    return CalibrationProblem(
        problem.positive_scores[positives],
        problem.negative_scores[negatives],
        problem.positive_weights[positives],
        problem.negative_weights[negatives],
        None if problem.forbidden is None else problem.forbidden[positives],
        problem.lower_thresholds,
        problem.upper_thresholds,
        problem.missing,
        problem.detector_cost * cost_share,
    )


def training_parts(problem: CalibrationProblem, folds: Folds) -> Iterator[tuple[int, CalibrationProblem, float]]:
    """(fold, the problem of all other rows, their share of the negatives' weight), in the order of the folds."""
    total = problem.negative_weights.sum()
    for fold in range(folds.n_folds):
        negatives = folds.negatives != fold
        share = float(problem.negative_weights[negatives].sum() / total) if total > 0 else 1.0
        yield fold, part(problem, folds.positives != fold, negatives, share), share


def cross_validate(
    problem: CalibrationProblem,
    folds: Folds,
    fit: Callable[[CalibrationProblem, float, Groups], FloatArray],
    fitted: FloatArray,
    judged: CalibrationProblem | None = None,
) -> HeldOut:
    """Recall and false alarms of thresholds on the rows that they were not fitted to.

    Parameters
    ----------
    problem : all rows.
    folds : where each row is held out.
    fit : thresholds (E,) of a problem, or of a vote (B, E), given its share of the negatives' weight, by which a budget
        is multiplied, and the groups of its rows.
    fitted : (E,) or (B, E) thresholds that were fitted to all rows, for comparison.
    judged : the same rows, with other forbidden pairs for those that are held out.
    """
    judged = problem if judged is None else judged
    covered, accepted = np.zeros(problem.n_positives, dtype=bool), np.zeros(problem.n_negatives, dtype=bool)
    for fold, rest, share in training_parts(problem, folds):
        is_in = folds.positives == fold, folds.negatives == fold
        groups = folds.positive_groups[~is_in[0]], folds.negative_groups[~is_in[1]]
        covered[is_in[0]], accepted[is_in[1]] = _decided(part(judged, *is_in), fit(rest, share, groups))
    total = problem.negative_weights.sum()
    known = _decided(problem, fitted)
    return HeldOut(
        recall=share_with_interval(covered, problem.positive_weights, folds.positive_groups),
        false_alarms=share_with_interval(accepted, problem.negative_weights, folds.negative_groups),
        fitted_recall=float(problem.positive_weights[known[0]].sum() / problem.positive_weights.sum()),
        fitted_false_alarms=float(problem.negative_weights[known[1]].sum() / total) if total else 0.0,
        n_folds=folds.n_folds,
        is_grouped=folds.is_grouped,
    )


def _decided(problem: CalibrationProblem, thresholds: FloatArray) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which positives are covered and which negatives accepted, by most of the thresholds where there are several."""
    votes = np.atleast_2d(thresholds)
    covered = np.sum([problem.covers(vote) for vote in votes], axis=0, dtype=np.intp)
    accepted = np.sum([problem.accepts(vote) for vote in votes], axis=0, dtype=np.intp)
    return np.asarray(2 * covered > len(votes)), np.asarray(2 * accepted > len(votes))


def share_with_interval(is_in: NDArray[np.bool_], weights: NDArray[np.float64], groups: NDArray[np.intp]) -> Share:
    """The share of weight that is in, with Wilson's interval for as many draws as the groups amount to.

    Parameters
    ----------
    is_in : (n,) which rows count.
    weights : (n,) >= 0.
    groups : (n,) rows of one group are not independent of each other.
    """
    heaviest = float(weights.max(initial=0.0))
    if heaviest <= 0:
        return Share(0.0, 0.0, 1.0)
    weights = weights / heaviest  # squares of very large and very small weights are beyond float64
    total = float(weights.sum())
    _, ids = np.unique(groups, return_inverse=True)
    all_weight, in_weight = np.bincount(ids, weights), np.bincount(ids, weights * is_in)
    value = min(1.0, float(in_weight.sum() / total))
    # As many independent draws as would have this variance (of a ratio); where all or nothing is in, by weights alone.
    draws = total**2 / float((all_weight**2).sum())
    variance = float(((in_weight - value * all_weight) ** 2).sum()) / total**2
    if variance > 0 and 0 < value < 1:
        draws = min(value * (1 - value) / variance, float(len(ids)))
    spread = _Z * np.sqrt(value * (1 - value) / draws + _Z**2 / (4 * draws**2))
    middle, scale = value + _Z**2 / (2 * draws), 1 + _Z**2 / draws
    low = 0.0 if value == 0 else max(0.0, float((middle - spread) / scale))
    high = 1.0 if value == 1 else min(1.0, float((middle + spread) / scale))
    return Share(value, low, high)


def resampled(groups: NDArray[np.intp], random: np.random.Generator) -> NDArray[np.intp]:
    """Indices of rows, drawn with replacement group by group: as many groups as there are.

    Parameters
    ----------
    groups : (n,) the group of each row; one of its own for each row that stands alone.
    random : draws.
    """
    _, ids = np.unique(groups, return_inverse=True)
    order = np.argsort(ids, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(ids))[:-1])
    return np.concatenate([members[k] for k in random.integers(len(members), size=len(members))])
