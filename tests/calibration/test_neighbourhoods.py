"""The neighbourhood search: its bookkeeping against a slow recount, its answers against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from eesvm import CalibrationProblem, InputError
from eesvm.calibration.anytime import Run
from eesvm.calibration.ranks import FORBIDDEN, levels_to_thresholds, rank
from eesvm.calibration.search import neighbourhood_kernels as kernels
from eesvm.calibration.search.neighbourhoods import NeighbourhoodSearch
from helpers import reference
from helpers.examples import few
from helpers.strategies import RECALL_FLOORS, problems


def ranked_or_skip(problem, min_recall=1.0):
    try:
        return rank(problem, min_recall)
    except InputError:  # a positive with nothing but forbidden pairs
        assume(False)


def random_problem(seed, n_exemplars=12, n_positives=60, n_negatives=150, weights=None, forbidden=0.0):
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(n_positives + n_negatives, 6))
    scores = hidden @ rng.normal(size=(6, n_exemplars)) + rng.normal(size=(n_positives + n_negatives, n_exemplars))
    return CalibrationProblem(
        np.round(scores[:n_positives] + 1, 1),
        np.round(scores[n_positives:], 1),
        positive_weights=rng.integers(1, 5, n_positives) if weights else None,
        negative_weights=rng.random(n_negatives)
        if weights == "real"
        else rng.integers(0, 4, n_negatives)
        if weights
        else None,
        forbidden=rng.random((n_positives, n_exemplars)) < forbidden if forbidden else None,
    )


VARIANTS = [
    ({}, 1.0),
    ({"forbidden": 0.3}, 1.0),
    ({"weights": "whole"}, 0.9),
    ({"weights": "real"}, 1.0),
    ({"weights": "real", "forbidden": 0.3}, 0.8),
    ({"forbidden": 0.1}, 0.95),
]


def recount(ranked, levels):
    """Holders of every negative, coverers of every positive, loss and weight left out, by sets."""
    held = [set() for _ in ranked.prices]
    covered = [set() for _ in ranked.delta]
    for j, level in enumerate(levels):
        for n in ranked.order[j, :level]:
            held[n].add(j)
        for p in range(len(ranked.delta)):
            if ranked.delta[p, j] <= level:
                covered[p].add(j)
    loss = sum(float(price) for price, holders in zip(ranked.prices, held, strict=True) if holders)
    left_out = sum(ranked.positive_weights[p] for p in ranked.coverable if not covered[p])
    return held, covered, loss, left_out


def assert_consistent(search, ranked):
    """What the state says of itself is what a recount finds, and nothing of a move lingers."""
    state, table, bits = search._state, search._table, kernels.INDEX_BITS
    held, covered, loss, left_out = recount(ranked, state.levels)
    covered = [covered[p] for p in search._positives]
    for packed, members in [(state.holders, held), (state.coverers, covered)]:
        assert (packed >> bits).tolist() == [len(m) for m in members]
        assert (packed & ((1 << bits) - 1)).tolist() == [int(np.bitwise_xor.reduce([0, *m])) for m in members]
    assert np.array_equal(state.open_prices, np.where([len(m) > 0 for m in held], 0, ranked.prices))
    assert state.n_covered.tolist() == (table.delta <= state.levels).sum(axis=0).tolist()
    assert state.totals[kernels.LEFT_OUT] == left_out
    assert state.totals[kernels.N_ACCEPTED] == sum(len(m) > 0 for m in held)
    assert state.totals[kernels.LOSS] == (loss if ranked.is_exact else pytest.approx(loss, rel=1e-12))
    assert np.array_equal(state.caps, table.highest)
    assert not search._scratch.is_touched.any()
    assert not search._scratch.is_lost.any()
    assert left_out <= ranked.left_out_budget
    assert (state.levels >= table.lowest).all()
    assert (state.levels <= table.highest).all()


def assert_best_is_feasible(search, ranked, problem, min_recall):
    _, _, loss, left_out = recount(ranked, search.best_levels)
    assert left_out <= ranked.left_out_budget
    assert search.best_loss == pytest.approx(loss, rel=1e-12)
    thresholds = levels_to_thresholds(problem, ranked.delta, search.best_levels)
    assert problem.is_feasible(thresholds, min_recall)
    assert problem.loss(thresholds) <= search.best_loss + 1e-9


@pytest.mark.parametrize(("options", "min_recall"), VARIANTS)
def test_the_state_is_what_a_recount_finds_after_every_move(options, min_recall):
    problem = random_problem(0, **options)
    ranked = rank(problem, min_recall)
    search = NeighbourhoodSearch(ranked, random_state=1)
    assert_consistent(search, ranked)
    best = search.best_loss
    for _ in range(60):
        improved = search.step(1)
        assert_consistent(search, ranked)
        assert improved == (search.best_loss < best)
        best = search.best_loss
    for _ in range(3):
        search._start_elsewhere()
        assert_consistent(search, ranked)
    assert_best_is_feasible(search, ranked, problem, min_recall)


@settings(max_examples=60, deadline=None)
@given(problem=problems(), min_recall=st.sampled_from(RECALL_FLOORS), seed=st.integers(0, 3))
def test_feasible_and_never_below_the_optimum(problem, min_recall, seed):
    ranked = ranked_or_skip(problem, min_recall)
    search = NeighbourhoodSearch(ranked, random_state=seed)
    start = search.best_loss
    search.step(40)
    assert_consistent(search, ranked)
    assert_best_is_feasible(search, ranked, problem, min_recall)
    assert search.best_loss <= start
    assert search.best_loss >= reference.brute_force(problem, min_recall) - 1e-9


@pytest.mark.parametrize("min_recall", few([1.0, 0.8]))
def test_finds_the_optimum_of_most_small_problems(min_recall):
    hits = 0
    for seed in range(20):
        problem = random_problem(seed, 8, 12, 30, weights="whole" if seed % 2 else None, forbidden=0.2 * (seed % 3))
        optimum = reference.mixed_integer_program(problem, min_recall)
        search = NeighbourhoodSearch(rank(problem, min_recall))
        search.step(1500)
        assert search.best_loss >= optimum - 1e-6
        hits += search.best_loss <= optimum + 1e-6
    assert hits >= 18


@pytest.mark.parametrize(("options", "min_recall"), VARIANTS)
def test_never_worse_than_the_start(options, min_recall):
    ranked = rank(random_problem(3, **options), min_recall)
    rng = np.random.default_rng(0)
    for _ in range(5):
        assignment = np.where(ranked.delta == FORBIDDEN, 2.0, rng.random(ranked.delta.shape)).argmin(axis=1)
        levels = np.zeros(ranked.n_exemplars, dtype=np.int32)
        np.maximum.at(levels, assignment, ranked.delta[np.arange(len(assignment)), assignment])
        _, _, loss, _ = recount(ranked, levels)
        before = levels.copy()
        search = NeighbourhoodSearch(ranked, levels)
        assert np.array_equal(levels, before)
        assert search.best_loss <= loss + 1e-9
        search.step(20)
        assert_consistent(search, ranked)


def test_a_start_that_covers_too_little_is_completed():
    ranked = rank(random_problem(4))
    search = NeighbourhoodSearch(ranked, np.ones(ranked.n_exemplars, dtype=np.int32))
    assert_consistent(search, ranked)
    assert search.best_loss > 0


def test_equal_seeds_give_equal_runs_however_they_are_sliced():
    ranked = rank(random_problem(5, 12, 60, 150))
    searches = [NeighbourhoodSearch(ranked, random_state=seed) for seed in (7, 7, 8)]
    searches[0].step(5000)
    for _ in range(1000):
        searches[1].step(5)
    searches[2].step(5000)
    assert searches[0].n_moves == searches[1].n_moves == 5000
    assert len(searches[0]._pool) == len(searches[1]._pool) > 0  # it has started from elsewhere
    assert np.array_equal(searches[0]._state.levels, searches[1]._state.levels)
    assert searches[0].best_loss == searches[1].best_loss
    assert searches[0]._state.generator[0] != searches[2]._state.generator[0]


def test_shuffled_rows_and_columns_lead_to_the_same_loss():
    problem = random_problem(6, 8, 25, 60)
    rng = np.random.default_rng(0)
    losses = set()
    for _ in range(3):
        exemplars, positives, negatives = (rng.permutation(n) for n in (8, 25, 60))
        shuffled = CalibrationProblem(
            problem.positive_scores[positives][:, exemplars], problem.negative_scores[negatives][:, exemplars]
        )
        search = NeighbourhoodSearch(rank(shuffled))
        search.step(3000)
        losses.add(search.best_loss)
    assert losses == {reference.mixed_integer_program(problem)}


def test_starting_elsewhere_keeps_the_best_and_a_pool_of_different_solutions():
    ranked = rank(random_problem(9, 20, 100, 300, forbidden=0.3))
    search = NeighbourhoodSearch(ranked)
    search.step(12_000)
    assert search._pool
    assert len(search._pool) <= 8
    assert len({levels.tobytes() for _, levels in search._pool}) == len(search._pool)
    for loss, levels in search._pool:
        assert recount(ranked, levels)[2] == loss
        assert loss >= search.best_loss
    assert_consistent(search, ranked)


@pytest.mark.parametrize("min_recall", [1.0, 0.8])
def test_levels_stay_between_their_limits(min_recall):
    problem = random_problem(10)
    ranked = rank(problem, min_recall)
    free = NeighbourhoodSearch(ranked)
    free.step(300)
    rng = np.random.default_rng(0)
    lowest = rng.integers(0, 10, ranked.n_exemplars).astype(np.int32)
    highest = np.maximum(lowest, free.best_levels)
    highest[0] = np.iinfo(np.int32).max  # more than there are negatives
    search = NeighbourhoodSearch(ranked, lowest=lowest, highest=highest)
    for _ in range(30):
        search.step(5)
        assert_consistent(search, ranked)
    assert (search.best_levels >= lowest).all()
    assert (search.best_levels <= highest).all()


def test_limits_that_leave_a_positive_uncovered_are_an_error_unless_it_may_be_left_out():
    problem = random_problem(11)
    ranked = rank(problem)
    highest = np.zeros(ranked.n_exemplars, dtype=np.int32)
    with pytest.raises(InputError, match="no levels up to `highest` cover the positives"):
        NeighbourhoodSearch(ranked, highest=highest)
    with pytest.raises(InputError, match="no levels up to `highest` cover the positives"):
        NeighbourhoodSearch(ranked, highest=highest, run=Run(time_limit=0))
    hardest = ranked.difficulty.argmax()
    highest = np.full(ranked.n_exemplars, ranked.delta[hardest].min() - 1, dtype=np.int32)
    n_hopeless = int((ranked.delta > highest).all(axis=1).sum())
    relaxed = rank(problem, 1 - (n_hopeless + 2) / problem.n_positives)
    assert_consistent(NeighbourhoodSearch(relaxed, highest=highest, run=Run(time_limit=0)), relaxed)
    search = NeighbourhoodSearch(relaxed, highest=highest)
    search.step(1)
    for _ in range(5):
        search._start_elsewhere()
        assert_consistent(search, relaxed)


def test_a_proposal_is_adopted_only_if_it_is_better():
    ranked = rank(random_problem(12, 20, 100, 300, forbidden=0.2))
    good = NeighbourhoodSearch(ranked, random_state=3)
    good.step(3000)
    covers = ranked.delta <= good.best_levels
    assignment = np.where(covers.any(axis=1), covers.argmax(axis=1), -1).astype(np.int32)
    search = NeighbourhoodSearch(ranked)
    start = search.best_loss
    levels = search._state.levels.copy()
    assert not search.propose(ranked.cheapest)
    assert search.best_loss == start
    assert np.array_equal(search._state.levels, levels)
    assert search.propose(assignment)
    assert search.best_loss <= good.best_loss < start
    assert_consistent(search, ranked)
    search.propose(np.full(100, -1, dtype=np.int32))
    assert_consistent(search, ranked)
    with pytest.raises(InputError, match=r"`assignment` must have shape \(100,\), got \(99,\)"):
        search.propose(assignment[:-1])


@pytest.mark.parametrize(("options", "min_recall"), VARIANTS)
def test_the_first_cover_is_feasible_in_time_and_out_of_it(options, min_recall):
    problem = random_problem(13, **options)
    ranked = rank(problem, min_recall)
    for run in (None, Run(), Run(time_limit=0)):
        search = NeighbourhoodSearch(ranked, run=run)
        levels, loss = search.best_levels, search.best_loss
        _, _, expected, left_out = recount(ranked, levels)
        assert loss == pytest.approx(expected, rel=1e-12)
        assert left_out <= ranked.left_out_budget
        assert problem.is_feasible(levels_to_thresholds(problem, ranked.delta, levels), min_recall)


def test_nothing_to_pay_and_nothing_to_cover():
    free = rank(CalibrationProblem([[2.0], [3.0]], [[1.0], [0.0]]))
    worthless = rank(CalibrationProblem([[2.0], [3.0]], [[4.0], [5.0]], negative_weights=[0, 0]))
    barred = rank(CalibrationProblem([[2.0], [3.0]], [[4.0], [1.0]], forbidden=[[True], [False]]), 0.5)
    for ranked, loss in [(free, 0), (worthless, 0), (barred, 1)]:
        search = NeighbourhoodSearch(ranked)
        assert not search.step(50)
        assert search.best_loss == loss
