"""Which calibration is best on held-out rows, in words: whether joint calibration wins there, and by how much.

In: a `WindowComparison`, and the labels and groups of its rows. Out: sentences. The difference to the best of the
others has an interval: rows, or groups of rows, are drawn again, and both are counted on each draw at the recall that
the joint thresholds have there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm._support.amounts import amount
from eesvm.experiments.tables.windows import Method, WindowComparison, WindowRow
from eesvm.metrics import false_positives, false_positives_at_recall, recall_at

N_RESAMPLES = 200
_JOINT = (Method.JOINT, Method.JOINT_SIGMOID)
_WORDS = {
    Method.NO_CALIBRATION: "scores as they are",
    Method.SIGMOID: "a sigmoid for each detector alone",
    Method.JOINT: "the joint thresholds",
    Method.JOINT_SIGMOID: "joint thresholds with sigmoids",
    Method.ISOTONIC: "isotonic regression of each detector alone",
    Method.AFFINE: "an affine map of each detector alone",
    Method.SINGLE_SVM: "the single SVM",
}

Bools = NDArray[np.bool_]
F64 = NDArray[np.float64]


def verdicts(
    comparison: WindowComparison,
    is_positive: ArrayLike,
    is_accepted: ArrayLike,
    groups: ArrayLike | None = None,
    random_state: int = 0,
) -> list[str]:
    """Which method has the fewest false positives, and which the highest average precision.

    Parameters
    ----------
    comparison : every method on the same rows.
    is_positive : (n,) which of these rows are positive.
    is_accepted : (n,) which of them the joint thresholds accept.
    groups : (n,) rows of one group are drawn together. Default: rows are drawn one by one.
    random_state : int >= 0, seeds the draws.

    Returns
    -------
    list : one sentence for each measure.
    """
    joint = min((comparison[name] for name in _JOINT), key=lambda row: row.false_positives)
    others = [row for row in comparison.rows if row.method not in _JOINT]
    if not others:
        return []
    best = min(others, key=lambda row: row.false_positives)
    rows = np.asarray(is_positive, dtype=bool), np.asarray(is_accepted, dtype=bool)
    differences = _differences(comparison, best, joint, *rows, groups, random_state)
    return [_counted(joint, best, differences), _ranked(comparison)]


def _counted(joint: WindowRow, best: WindowRow, differences: F64) -> str:
    more = best.false_positives - joint.false_positives
    own, other = _named(joint), _named(best)
    if more == 0:
        return f"Joint calibration is level with the best without it by false positives here: {own}, {other}."
    low, high = np.quantile(differences if more > 0 else -differences, [0.025, 0.975])
    between = f"95 % interval {_signed(low)} to {_signed(high)}{', so it may be chance' if round(low) <= 0 else ''}"
    if more > 0:
        return (
            f"Joint calibration has the fewest false positives here: {own}; the best without it, {other}, has "
            f"{amount(more)} more ({between})."
        )
    return (
        f"Joint calibration does not have the fewest false positives here: {other}; the best with it, {own}, has "
        f"{amount(-more)} more ({between})."
    )


def _ranked(comparison: WindowComparison) -> str:
    rows = [row for row in comparison.rows if row.average_precision is not None]
    best = max(rows, key=lambda row: row.average_precision or 0.0)
    joint = comparison[Method.JOINT_SIGMOID]
    assert best.average_precision is not None
    assert joint.average_precision is not None
    text = f"Highest average precision here: {_WORDS[Method(best.method)]}, {100 * best.average_precision:.1f} %"
    if best.method == joint.method:
        return f"{text}."
    return f"{text}; {_WORDS[Method.JOINT_SIGMOID]} have {100 * joint.average_precision:.1f} %."


def _named(row: WindowRow) -> str:
    return f"{_WORDS[Method(row.method)]} ({row.false_positives:,.0f})"


def _signed(value: float) -> str:
    return f"{round(value) + 0:,}".replace("-", "−")


def _differences(
    comparison: WindowComparison,
    best: WindowRow,
    joint: WindowRow,
    is_positive: Bools,
    is_accepted: Bools,
    groups: ArrayLike | None,
    random_state: int,
) -> F64:
    """(N_RESAMPLES,) by how many false positives `best` exceeds `joint` when the rows are drawn again."""

    def ordered(method: str) -> tuple[Bools, F64, NDArray[np.intp]]:
        scores = np.asarray(comparison.scores[method], dtype=np.float64)
        order = np.argsort(-scores, kind="stable")  # sorted once: the metrics notice and do not sort again
        return is_positive[order], scores[order], order

    def counted(ranked: tuple[Bools, F64, NDArray[np.intp]], recall: float, weights: F64) -> float:
        labels, scores, order = ranked
        return false_positives_at_recall(labels, scores, recall=recall, sample_weight=weights[order])

    other, own = ordered(best.method), ordered(joint.method)
    found = []
    for weights in _draws(is_positive, groups, random_state):
        recall = recall_at(is_positive, is_accepted, sample_weight=weights)
        if joint.method == Method.JOINT:
            reference = false_positives(is_positive, is_accepted, sample_weight=weights)
        else:
            reference = counted(own, recall, weights)
        found.append(counted(other, recall, weights) - reference)
    return np.array(found)


def _draws(is_positive: Bools, groups: ArrayLike | None, random_state: int) -> Iterator[F64]:
    """How often each row is drawn; a draw without a positive says nothing, and is left out."""
    n = len(is_positive)
    ids = np.arange(n) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1].reshape(-1)
    n_groups, random, n_left = int(ids.max()) + 1, np.random.default_rng(random_state), N_RESAMPLES
    for _ in range(100 * N_RESAMPLES):
        weights = np.bincount(random.integers(n_groups, size=n_groups), minlength=n_groups)[ids].astype(np.float64)
        if weights[is_positive].any():
            n_left -= 1
            yield weights
        if not n_left:
            return
