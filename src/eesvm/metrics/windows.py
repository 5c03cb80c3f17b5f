"""How good a ranking or a decision is, for windows (tables 1 and 2 of the paper).

In: labels `y` of windows (0/1, -1/1 or booleans) and their scores, higher is better; optionally weights. Out: numbers.
Windows of equal score are never separated: they are accepted together, so an order among them cannot help or hurt.
Not here: boxes. Everything here works on windows, whatever they were cut from; see `detections` for boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm._support.validation import InputError, check_groups, check_number, check_weights, group_ids

Metric = Callable[..., float]

_RECALL_TOLERANCE = 1e-12  # of the total weight: 0.95 of 20 windows is 19, not 19.000000000000004
_MAX_REDRAWS = 1000  # per interval, of resamples without a positive


class Interval(NamedTuple):
    """A confidence interval."""

    low: float  # its lower end
    high: float  # its upper end


def false_positives_at_recall(
    y: ArrayLike, scores: ArrayLike, recall: float, sample_weight: ArrayLike | None = None
) -> float:
    """Number (or weight) of negatives accepted in order to accept the share `recall` of the positives.

    A window is accepted where its score is at least that of the positive that completes the recall, so negatives that
    tie with it count. A recall of 0 needs no window at all and gives 0.

    Parameters
    ----------
    y : (n,) labels: 0 and 1, -1 and 1, or booleans.
    scores : (n,) one score per window; higher is more positive.
    recall : share of the positives' weight that must be accepted, in [0, 1].
    sample_weight : (n,) weights of the windows. Default: 1 each.
    """
    check_number(recall, "recall", minimum=0, maximum=1)
    positive_weight, negative_weight = _cumulative(*_check(y, scores, sample_weight))[:2]
    if recall == 0:
        return 0.0
    needed = recall * positive_weight[-1] - _RECALL_TOLERANCE * positive_weight[-1]
    return float(negative_weight[np.searchsorted(positive_weight, needed)])


def recall_at(y: ArrayLike, accepted: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Share of the positives that are accepted, by their number or weight.

    Parameters
    ----------
    y : (n,) labels: 0 and 1, -1 and 1, or booleans.
    accepted : (n,) booleans, or 0 and 1.
    sample_weight : (n,) weights of the windows. Default: 1 each.
    """
    is_positive, is_accepted, weights = _check(y, _check_accepted(accepted), sample_weight)
    return float(weights[is_positive & (is_accepted > 0)].sum() / weights[is_positive].sum())


def false_positives(y: ArrayLike, accepted: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Number (or weight) of the negatives that are accepted.

    Parameters
    ----------
    y : (n,) labels: 0 and 1, -1 and 1, or booleans.
    accepted : (n,) booleans, or 0 and 1.
    sample_weight : (n,) weights of the windows. Default: 1 each.
    """
    is_positive, is_accepted, weights = _check(y, _check_accepted(accepted), sample_weight, needs_positive=False)
    return float(weights[~is_positive & (is_accepted > 0)].sum())


def average_precision(y: ArrayLike, scores: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Mean of the precision over the positives, with one operating point per distinct score and no interpolation.

    Parameters
    ----------
    y : (n,) labels: 0 and 1, -1 and 1, or booleans.
    scores : (n,) one score per window; higher is more positive.
    sample_weight : (n,) weights of the windows. Default: 1 each.
    """
    precision, recall, _ = precision_recall_curve(y, scores, sample_weight)
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


def precision_recall_curve(
    y: ArrayLike, scores: ArrayLike, sample_weight: ArrayLike | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(k,) precision, recall and score of the operating points, one per distinct score, from the highest down.

    A point accepts the windows of its score and above; the recall of the last one is 1.

    Parameters
    ----------
    y : (n,) labels: 0 and 1, -1 and 1, or booleans.
    scores : (n,) one score per window; higher is more positive.
    sample_weight : (n,) weights of the windows. Default: 1 each.
    """
    positive_weight, negative_weight, distinct = _cumulative(*_check(y, scores, sample_weight))
    accepted = positive_weight + negative_weight
    # Above the first window with a weight nothing is accepted; a precision of 1 there has no recall to count for.
    precision = np.divide(positive_weight, accepted, out=np.ones_like(accepted), where=accepted > 0)
    return precision, positive_weight / positive_weight[-1], distinct


def bootstrap_interval(
    metric: Metric,
    y: ArrayLike,
    scores: ArrayLike,
    groups: ArrayLike | None = None,
    n_resamples: int = 1000,
    confidence: float = 0.95,
    random_state: int = 0,
) -> Interval:
    """Percentile interval of `metric(y, scores, sample_weight=...)` when whole groups are drawn with replacement.

    Windows of one image are alike, so with `groups` the image of each window is drawn, not the window. A resample is a
    vector of whole-number weights. One without a positive says nothing and is drawn again.

    Parameters
    ----------
    metric : a function of labels, scores and `sample_weight`, such as `average_precision`.
    y : (n,) labels: 0 and 1, -1 and 1, or booleans.
    scores : (n,) one score per window.
    groups : (n,) the image of each window. Default: every window is a group of its own.
    n_resamples : how often to draw.
    confidence : share of the resamples that lie within the interval.
    random_state : int >= 0, seeds the draws.
    """
    check_number(n_resamples, "n_resamples", minimum=1, integer=True)
    check_number(confidence, "confidence", above=0, maximum=1)
    check_number(random_state, "random_state", minimum=0, integer=True)
    is_positive, values, _ = _check(y, scores, None)
    order = np.argsort(-values, kind="stable")  # sorted once: the metrics notice and do not sort again
    is_positive, values = is_positive[order], values[order]
    ids = np.arange(len(values)) if groups is None else _dense_ids(groups, len(values))
    draws = _group_draws(ids[order], is_positive, n_resamples, np.random.default_rng(random_state))
    estimates = [metric(is_positive, values, sample_weight=weights) for weights in draws]
    low, high = np.quantile(estimates, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high))


def _check(
    y: ArrayLike, scores: ArrayLike, sample_weight: ArrayLike | None, needs_positive: bool = True
) -> tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64]]:
    """Which windows are positive, their scores and their weights."""
    is_positive = _check_binary(y)
    values = np.asarray(scores)
    if values.dtype.kind not in "fiub":
        raise InputError(f"`scores` must hold numbers, got dtype {values.dtype}")
    if values.shape != is_positive.shape:
        raise InputError(
            f"`scores` must have one value per window, shape {is_positive.shape}, got shape {values.shape}"
        )
    values = values.astype(np.float64, copy=False)
    is_nan = np.isnan(values)  # infinite scores are fine: they rank first or last
    if is_nan.any():
        raise InputError(f"`scores` holds {int(is_nan.sum())} NaN, the first at index {int(is_nan.argmax())}")
    weights = check_weights(sample_weight, len(values), "sample_weight", allow_zero=True)
    if needs_positive and not weights[is_positive].sum() > 0:
        raise InputError("`y` holds no positive window, so recall and precision mean nothing")
    return is_positive, values, weights


def _check_binary(y: ArrayLike) -> NDArray[np.bool_]:
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise InputError(f"`y` must have one dimension, got shape {labels.shape}")
    if labels.dtype == bool:
        return labels
    if labels.dtype.kind not in "iuf":
        raise InputError(f"`y` must hold 0 and 1, -1 and 1 or booleans, got dtype {labels.dtype}")
    is_positive = labels == 1
    others = np.unique(labels[~is_positive])
    if len(others) > 1 or not np.isin(others, (0, -1)).all():
        raise InputError(
            f"`y` must hold 0 and 1, -1 and 1 or booleans, got {', '.join(map(str, np.unique(labels)[:5]))}"
        )
    return is_positive


def _check_accepted(accepted: ArrayLike) -> np.ndarray:
    decisions = np.asarray(accepted)
    if decisions.dtype != bool and not np.isin(decisions, (0, 1)).all():
        raise InputError("`accepted` must hold booleans, True where a window is accepted")
    return decisions


def _cumulative(
    is_positive: NDArray[np.bool_], scores: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(k,) weight of positives and of negatives at or above each distinct score, highest first, and these scores."""
    if not (scores[1:] <= scores[:-1]).all():
        order = np.argsort(-scores, kind="stable")
        is_positive, scores, weights = is_positive[order], scores[order], weights[order]
    is_last = np.append(scores[1:] < scores[:-1], True)
    positive_weight = np.cumsum(np.where(is_positive, weights, 0.0))[is_last]
    negative_weight = np.cumsum(np.where(is_positive, 0.0, weights))[is_last]
    return positive_weight, negative_weight, scores[is_last]


def _dense_ids(groups: Any, n: int) -> NDArray[np.intp]:
    return group_ids(check_groups(groups, n, "groups", "window"), names=("groups",))[0]


def _group_draws(
    ids: NDArray[np.intp], is_positive: NDArray[np.bool_], n_resamples: int, rng: np.random.Generator
) -> Iterator[NDArray[np.float64]]:
    """Weights of the windows in each resample: how often their group was drawn."""
    n_groups = int(ids.max()) + 1
    has_positive = np.bincount(ids[is_positive], minlength=n_groups) > 0
    n_drawn, n_redraws = 0, 0
    while n_drawn < n_resamples:
        counts = np.bincount(rng.integers(n_groups, size=n_groups), minlength=n_groups)
        if counts[has_positive].any():
            n_drawn += 1
            yield counts.astype(np.float64)[ids]
        elif (n_redraws := n_redraws + 1) > _MAX_REDRAWS:
            n_with = int(has_positive.sum())
            raise InputError(f"`groups` has too few groups with a positive window to resample, {n_with} of {n_groups}")
