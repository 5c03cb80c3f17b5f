"""Metrics: against loops over thresholds and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from eesvm import InputError, metrics
from eesvm.metrics import (
    average_precision,
    bootstrap_interval,
    false_positives,
    false_positives_at_recall,
    precision_recall_curve,
    recall_at,
)


@st.composite
def ranked_windows(draw):
    """Labels with a positive, scores with ties, whole-number weights that leave a positive its weight."""
    n = draw(st.integers(1, 12))
    y = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n).filter(any))
    scores = draw(st.lists(st.integers(-3, 3), min_size=n, max_size=n))
    weights = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    weights[y.index(1)] += 1
    return np.array(y), np.array(scores, dtype=float), np.array(weights)


def repeated(values, weights):
    return np.repeat(values, weights)


def slow_false_positives_at_recall(y, scores, recall):
    """Lower the threshold score by score until enough positives are in."""
    if recall == 0:
        return 0
    for threshold in sorted(set(scores), reverse=True):
        accepted = scores >= threshold
        if accepted[y == 1].sum() >= recall * (y == 1).sum() - 1e-9:
            return accepted[y == 0].sum()
    raise AssertionError("the lowest score accepts everything")


@given(ranked_windows(), st.sampled_from([0, 0.1, 1 / 3, 0.5, 2 / 3, 0.95, 1]))
def test_false_positives_at_recall_agrees_with_a_loop(windows, recall):
    y, scores, weights = windows
    assert false_positives_at_recall(y, scores, recall) == slow_false_positives_at_recall(y, scores, recall)
    assert false_positives_at_recall(y, scores, recall, weights) == slow_false_positives_at_recall(
        repeated(y, weights), repeated(scores, weights), recall
    )


def test_false_positives_at_recall_by_hand():
    y = np.array([1, 0, 1, 0, 0, 1])
    scores = np.array([0.9, 0.8, 0.7, 0.7, 0.6, 0.1])
    assert false_positives_at_recall(y, scores, 0) == 0
    assert false_positives_at_recall(y, scores, 1 / 3) == 0
    assert (
        false_positives_at_recall(y, scores, 0.34) == 2
    )  # the negative that ties with the second positive comes along
    assert false_positives_at_recall(y, scores, 1.0) == 3


def test_a_recall_of_nineteen_in_twenty_needs_nineteen():
    y, scores = np.append(np.ones(20), 0), np.append(np.arange(20, 0, -1), 1.5)
    assert false_positives_at_recall(y, scores, 0.95) == 0
    assert false_positives_at_recall(y, scores, 19 / 20) == 0
    assert false_positives_at_recall(y, scores, 0.951) == 1


@given(ranked_windows())
def test_average_precision_agrees_with_scikit_learn(windows):
    y, scores, weights = windows
    assert average_precision(y, scores) == pytest.approx(average_precision_score(y, scores), abs=1e-12)
    expected = average_precision_score(repeated(y, weights), repeated(scores, weights))
    assert average_precision(y, scores, weights) == pytest.approx(expected, abs=1e-12)


@given(ranked_windows())
def test_curve_agrees_with_a_loop(windows):
    y, scores, weights = windows
    precision, recall, thresholds = precision_recall_curve(y, scores, weights)
    assert thresholds.tolist() == sorted(set(scores), reverse=True)
    for point, threshold in enumerate(thresholds):
        accepted = scores >= threshold
        true, false = weights[accepted & (y == 1)].sum(), weights[accepted & (y == 0)].sum()
        assert precision[point] == (pytest.approx(true / (true + false)) if true + false else 1)
        assert recall[point] == pytest.approx(true / weights[y == 1].sum())
        assert recall_at(y, accepted, weights) == pytest.approx(recall[point])
        assert false_positives(y, accepted, weights) == false
    assert recall[-1] == 1


@given(ranked_windows())
def test_only_the_order_of_the_scores_matters(windows):
    y, scores, weights = windows
    assert average_precision(y, 2 * scores - 7, weights) == average_precision(y, scores, weights)
    order = np.random.default_rng(0).permutation(len(y))
    shuffled = average_precision(y[order], scores[order], weights[order])
    assert shuffled == pytest.approx(average_precision(y, scores, weights), abs=1e-12)


@pytest.mark.parametrize("labels", [(False, True), (-1, 1), (0, 1), (0.0, 1.0)])
def test_the_usual_labels_are_understood(labels):
    y, scores = np.array([0, 1, 0, 1]), np.array([0.5, 0.4, 0.1, 0.9])
    assert average_precision(np.array(labels)[y], scores) == average_precision(y, scores)


def test_infinite_scores_rank_first_or_last():
    y, scores = [0, 1, 1], [-np.inf, np.inf, 0.0]
    assert average_precision(y, scores) == 1
    assert false_positives_at_recall([1, 0, 1], scores, 1) == 1


def test_bootstrap_with_one_window_per_group_and_group_weights():
    """Windows repeated within their group give the interval of the groups themselves."""
    rng = np.random.default_rng(0)
    y, scores = rng.integers(0, 2, 60), rng.normal(size=60)
    alone = bootstrap_interval(average_precision, y, scores, n_resamples=200)
    assert bootstrap_interval(average_precision, y, scores, np.arange(60), n_resamples=200) == alone
    thrice = bootstrap_interval(
        average_precision, np.repeat(y, 3), np.repeat(scores, 3), np.repeat(np.arange(60), 3), n_resamples=200
    )
    np.testing.assert_allclose(thrice, alone, rtol=1e-12)


def test_bootstrap_agrees_with_explicit_resampling():
    rng = np.random.default_rng(1)
    y, scores, groups = rng.integers(0, 2, 80), rng.normal(size=80), rng.integers(0, 9, 80)
    draws = np.random.default_rng(7)
    estimates = []
    for _ in range(100):
        chosen = draws.integers(9, size=9)
        rows = np.concatenate([np.flatnonzero(groups == group) for group in chosen])
        estimates.append(average_precision_score(y[rows], scores[rows]))
    interval = bootstrap_interval(average_precision, y, scores, groups, 100, confidence=0.9, random_state=7)
    np.testing.assert_allclose(interval, np.quantile(estimates, [0.05, 0.95]), rtol=1e-9)
    assert interval.low <= average_precision(y, scores) <= interval.high


def test_bootstrap_takes_group_names_and_any_metric():
    rng = np.random.default_rng(2)
    y, scores, groups = rng.integers(0, 2, 80), rng.normal(size=80), rng.integers(0, 9, 80)
    names = np.array([f"image {i}" for i in range(9)])[groups]
    by_name = bootstrap_interval(average_precision, y, scores, names, 50)
    assert by_name == bootstrap_interval(average_precision, y, scores, groups, 50)
    accepted = scores > 0
    low, high = bootstrap_interval(recall_at, y, accepted, groups, 50)
    assert low <= recall_at(y, accepted) <= high
    narrow = bootstrap_interval(average_precision, y, scores, groups, 50, confidence=0.5)
    assert by_name.low <= narrow.low <= narrow.high <= by_name.high


def test_bootstrap_draws_again_when_no_positive_is_in():
    y, scores, groups = [1, 0, 0, 0], [3.0, 2.0, 1.0, 0.0], [0, 1, 2, 3]
    assert bootstrap_interval(average_precision, y, scores, groups, 100) == (1.0, 1.0)


def test_bootstrap_gives_up_drawing_at_some_point(monkeypatch):
    monkeypatch.setattr(metrics.windows, "_MAX_REDRAWS", 3)
    message = "^`groups` has too few groups with a positive window to resample, 1 of 4$"
    with pytest.raises(InputError, match=message):
        bootstrap_interval(average_precision, [1, 0, 0, 0], [3.0, 2.0, 1.0, 0.0], [0, 1, 2, 3], 100)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: average_precision([0, 0], [1, 2]),
            "`y` holds no positive window, so recall and precision mean nothing",
        ),
        (lambda: average_precision([0, 1, 2], [1, 2, 3]), "`y` must hold 0 and 1, -1 and 1 or booleans, got 0, 1, 2"),
        (lambda: average_precision([-1, 0, 1], [1, 2, 3]), "`y` must hold 0 and 1, -1 and 1 or booleans, got -1, 0, 1"),
        (lambda: average_precision(["a", "b"], [1, 2]), "`y` must hold 0 and 1, -1 and 1 or booleans, got dtype <U1"),
        (lambda: average_precision([[0, 1]], [1, 2]), "`y` must have one dimension, got shape (1, 2)"),
        (lambda: average_precision([0, 1], [1]), "`scores` must have one value per window, shape (2,), got shape (1,)"),
        (lambda: average_precision([0, 1, 1], [1, np.nan, np.nan]), "`scores` holds 2 NaN, the first at index 1"),
        (lambda: average_precision([0, 1], ["a", "b"]), "`scores` must hold numbers, got dtype <U1"),
        (lambda: average_precision([0, 1], [1, 2], [1, -2]), "`sample_weight` must be >= 0, got -2 at index 1"),
        (lambda: average_precision([0, 1], [1, 2], [1]), "`sample_weight` must have shape (2,), got (1,)"),
        (lambda: recall_at([0, 1], [0.3, 0.7]), "`accepted` must hold booleans, True where a window is accepted"),
        (lambda: false_positives_at_recall([0, 1], [1, 2], 1.1), "`recall` must be <= 1, got 1.1"),
        (lambda: false_positives_at_recall([0, 1], [1, 2], -0.1), "`recall` must be >= 0, got -0.1"),
        (
            lambda: bootstrap_interval(average_precision, [0, 1], [1, 2], [1]),
            "`groups` must have one group per window, shape (2,), got shape (1,)",
        ),
        (
            lambda: bootstrap_interval(average_precision, [0, 1], [1, 2], n_resamples=0),
            "`n_resamples` must be >= 1, got 0",
        ),
        (
            lambda: bootstrap_interval(average_precision, [0, 1], [1, 2], confidence=0),
            "`confidence` must be > 0, got 0",
        ),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message
