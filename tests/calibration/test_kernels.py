"""The compiled loops and the ranks against plain numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eesvm import CalibrationProblem, InputError
from eesvm.calibration.ranks import FORBIDDEN, _sums_are_exact, levels_to_thresholds, rank, thresholds_to_levels
from eesvm.calibration.search import tree_kernels as _kernels
from eesvm.calibration.search.bounds import max_min_bound
from eesvm.calibration.search.heuristics import loss_of_levels
from helpers.examples import many
from helpers.strategies import problems


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_added_cost_accept_and_reopen(dtype):
    rng = np.random.default_rng(0)
    prices = rng.integers(1, 2 if dtype is np.uint8 else 9, 200).astype(dtype)
    open_prices, trail = prices.copy(), np.empty(200, dtype=np.int32)
    rows = np.array([rng.permutation(200) for _ in range(3)], dtype=np.int32)
    n_accepted = 0
    for row, (start, stop) in zip(rows, [(0, 90), (20, 200), (50, 51)], strict=True):
        expected = open_prices[row[start:stop]].sum(dtype=np.float64)
        assert _kernels.added_cost(row, start, stop, open_prices, np.inf) == expected
        assert _kernels.added_cost(row, start, stop, open_prices, expected) == expected  # equal is not too much
        if expected > 1:
            assert _kernels.added_cost(row, start, stop, open_prices, expected - 1) > expected - 1
        n_accepted = _kernels.accept(row, start, stop, open_prices, trail, n_accepted)
        assert (open_prices[row[start:stop]] == 0).all()
    assert sorted(trail[:n_accepted]) == np.flatnonzero(open_prices == 0).tolist()
    _kernels.reopen(prices, open_prices, trail, 0, n_accepted)
    assert (open_prices == prices).all()


@settings(deadline=None, max_examples=many(200))
@given(problems(max_exemplars=4, max_positives=6, max_negatives=12))
def test_ranks_say_what_comes_along(problem):
    try:
        ranked = rank(problem)
    except InputError:
        return
    costly = np.flatnonzero(problem.negative_weights > 0)
    for p in range(problem.n_positives):
        costs = []
        for j in range(problem.n_exemplars):
            if problem.forbidden is not None and problem.forbidden[p, j]:
                assert ranked.delta[p, j] == FORBIDDEN
                continue
            along = costly[problem.negative_scores[costly, j] >= problem.positive_scores[p, j]]
            assert sorted(costly[ranked.order[j, : ranked.delta[p, j]]]) == along.tolist()
            costs.append(problem.negative_weights[along].sum())
        assert ranked.difficulty[p] == min(costs)
    assert max_min_bound(ranked) == ranked.difficulty.max()


@settings(deadline=None, max_examples=many(200))
@given(problems(forbidden=False, max_negatives=12), st.data())
def test_levels_and_thresholds_are_two_views_of_one_solution(problem, data):
    ranked = rank(problem)
    levels = np.array(
        [data.draw(st.sampled_from([0, *ranked.delta[:, j]])) for j in range(problem.n_exemplars)], dtype=np.int32
    )
    thresholds = levels_to_thresholds(problem, ranked.delta, levels)
    assert problem.loss(thresholds) == loss_of_levels(ranked, levels)
    assert (problem.covers(thresholds) == (ranked.delta <= levels).any(axis=1)).all()
    assert (thresholds_to_levels(problem, ranked.delta, thresholds) == levels).all()


def test_weights_whose_sums_are_exact_are_recognised():
    assert _sums_are_exact(np.ones(10**6))
    assert _sums_are_exact(np.array([0.25, 1e9, 3.0]))
    assert _sums_are_exact(np.empty(0))
    assert not _sums_are_exact(np.array([0.1, 1.0]))
    assert not _sums_are_exact(np.array([1e-300, 1e300]))
    assert not _sums_are_exact(np.array([5e-324, 1.0]))


def test_free_negatives_cost_nothing_and_change_nothing():
    problem = CalibrationProblem([[1.0], [0.0]], [[2.0], [0.5]], negative_weights=[0, 3])
    ranked = rank(problem)
    assert ranked.order.shape == (1, 1)
    assert ranked.difficulty.tolist() == [0, 3]
