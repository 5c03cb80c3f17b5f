"""Parts that are searched by shares of hard positives: against brute force, whatever is done at a node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from eesvm import InputError, solve
from eesvm._support.threads import Workers, workers
from eesvm.calibration.certificate import SEARCHED
from eesvm.calibration.proofs import certified_bound as checker
from eesvm.calibration.proofs import hard, hard_shares
from eesvm.calibration.ranks import rank
from eesvm.calibration.search import core_search, core_shares
from eesvm.calibration.search.core_search import CoreSearch
from eesvm.calibration.search.proof import Proof
from eesvm.calibration.search.reduce import cheap_box
from eesvm.calibration.sharing import node
from helpers import reference
from helpers.cores import certificate_of, random_problem, searched
from helpers.examples import many
from helpers.strategies import problems

# Words of a dive at least and for each of the ascent; positives; of how many all have lanes; rounds of ascent.
WAYS = {
    "as ever": (2e7, 4.0, 250, 0.9, 4),
    "without diving": (0.0, 0.0, 250, 0.9, 4),
    "short dives": (300.0, 0.1, 20, 0.9, 1),
    "few positives": (0.0, 0.0, 3, 0.9, 1),
    "few have lanes": (2000.0, 0.1, 20, 0.3, 2),
}


def search_by_shares(monkeypatch, way, budget=40.0):
    """Shares after so many words of every target."""
    monkeypatch.setattr(core_search, "_TRIAL", 0.0)
    monkeypatch.setattr(core_search, "_TOO_LONG", np.inf)
    monkeypatch.setattr(CoreSearch, "_expected", lambda search: 1.0)
    least_dive, dive, n_positives, many_lanes, rounds = WAYS[way]
    monkeypatch.setattr(core_search, "_BUDGET", budget)
    monkeypatch.setattr(core_search, "_TIMES_THE_FIRST", 0)
    monkeypatch.setattr(core_shares, "_LEAST_DIVE", least_dive)
    monkeypatch.setattr(core_shares, "_DIVE", dive)
    monkeypatch.setattr(core_shares, "_POSITIVES", n_positives)
    monkeypatch.setattr(core_shares, "_ROUNDS", rounds)
    monkeypatch.setattr(node, "_MANY_LANES", many_lanes)
    monkeypatch.setattr(core_search, "_LEFT_TO_CHECKER", 2000.0)  # words, so that some is told and some is not


@settings(max_examples=many(400), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(problems(weights=False, bounds=True))
def test_it_ends_at_the_optimum_with_a_proof(problem):
    try:
        ranked = rank(problem)
    except InputError:
        assume(False)
    assume(len(ranked.coverable) > 0 and ranked.difficulty[ranked.coverable].max() > 0)
    optimum = reference.brute_force(problem)
    for way in ("without diving", "short dives", "few have lanes"):
        with pytest.MonkeyPatch.context() as monkeypatch:
            search_by_shares(monkeypatch, way, 0.0)
            search, loss, ranked = searched(problem, Workers(1))
        assert search.bound == loss == optimum - ranked.fixed_loss
        assert checker.certified_bound(problem, certificate_of(search, problem, ranked)) == optimum


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(many(40)))
def test_the_bound_is_that_of_a_plain_search(seed, way, monkeypatch):
    rng = np.random.default_rng(seed)
    n_exemplars, n_positives = int(rng.integers(3, 13)), int(rng.integers(5, 60))
    n_negatives = int(rng.integers(30, 200))
    problem = random_problem(seed, n_exemplars, n_positives, n_negatives, forbidden=0.2 * (seed % 2))
    try:
        plain, loss, _ = searched(problem, Workers(1))
    except InputError:
        pytest.skip("nobody can cover some positive")
    search_by_shares(monkeypatch, way)
    shared, same_loss, ranked = searched(problem, Workers(1))
    assert (shared.bound, same_loss) == (plain.bound, loss)
    assert checker.certified_bound(problem, certificate_of(shared, problem, ranked)) == loss


@pytest.mark.parametrize("n_jobs", [1, 2, 16])
@pytest.mark.parametrize("way", WAYS)
def test_any_number_of_threads_tells_the_same_story(way, n_jobs, monkeypatch):
    search_by_shares(monkeypatch, way)
    problem = random_problem(1)
    alone, _, _ = searched(problem, Workers(1))
    with workers(n_jobs) as threads:
        together, _, _ = searched(problem, threads)
    assert alone.shares.positives == together.shares.positives
    assert np.array_equal(alone.proof().story, together.proof().story)


def test_every_way_is_taken(monkeypatch):
    """Parts are closed by shares, by dives, and by their children, in the search and in what it leaves to its checker."""
    search_by_shares(monkeypatch, "without diving")
    problem = random_problem(1)
    search, loss, ranked = searched(problem, Workers(1))
    whole = search.proof()
    assert search.proved_by_shares
    waiting = [search.proved]
    while waiting:  # nothing is kept of what they began with
        part = waiting.pop()
        assert part.above is None
        assert len(part.lowest) == len(part.highest) == 0
        waiting += part.parts
    assert whole.n_splits > 0
    monkeypatch.setattr(core_search, "_LEFT_TO_CHECKER", np.inf)
    left = search.proof()
    assert left.n_splits < whole.n_splits
    monkeypatch.setattr(hard, "_PLAIN_WORDS", -1.0)
    for words in (0.0, -1.0):  # the second closes nothing below a place
        monkeypatch.setattr(hard_shares, "_SEARCH", words)
        monkeypatch.setattr(hard_shares, "_LEAST_SEARCH", words)
        for proof in (whole, left):
            certificate = proof.certificate(problem, ranked, 1.0, ranked.quantum)
            assert certificate.is_searched.any()
            assert checker.certified_bound(problem, certificate) == loss


@pytest.mark.parametrize("n_pairs", [0, 6 * 12, 9 * 12, 12 * 12, 15 * 12, 40 * 12])
@pytest.mark.parametrize("way", ["without diving", "few positives"])
def test_parts_go_on_plainly_where_shares_have_no_room(way, n_pairs, monkeypatch):
    search_by_shares(monkeypatch, way)
    monkeypatch.setattr(core_shares, "_MOST_BYTES", 8 * 3 * n_pairs)
    for seed in (0, 1, 21, 38, 69):  # some of which shut pairs by shares before there is no more room
        problem = random_problem(seed)
        search, loss, ranked = searched(problem, Workers(1))
        assert search.bound == loss == solve(problem).loss
        assert checker.certified_bound(problem, certificate_of(search, problem, ranked)) == loss


def test_a_target_that_takes_too_long_by_shares_is_begun_again(monkeypatch):
    search_by_shares(monkeypatch, "few positives", 0.0)
    problem = random_problem(1)
    by_shares, loss, _ = searched(problem, Workers(1))
    monkeypatch.setattr(core_search, "_TOO_LONG", 0.0)
    monkeypatch.setattr(core_search, "_TRIAL", 500.0)
    monkeypatch.setattr(core_search, "_BATCH", 1)
    monkeypatch.setattr(CoreSearch, "_expected", lambda search: search.counted[-1][1] if search.counted else None)
    plain, same_loss, ranked = searched(problem, Workers(1))
    assert by_shares.proved_by_shares
    assert not plain.proved_by_shares
    assert plain.shares is not None  # one trial
    assert (plain.bound, same_loss) == (by_shares.bound, loss)
    assert checker.certified_bound(problem, certificate_of(plain, problem, ranked)) == loss


@pytest.mark.parametrize("seconds_left", [np.inf, 1000.0, 100.0])
def test_a_trial_is_expected_to_take_as_long_as_the_targets_before(seconds_left):
    """Five times the words for every 20 negatives, a word a second: 100 for the next 20."""
    search = CoreSearch(rank(random_problem(0)), Proof(cheap_box(rank(random_problem(0)), np.inf)), Workers(1))
    search.counted = search.took = [(100, 4.0), (120, 20.0)]
    search.began_at, search.target = seconds_left, 140
    assert search._expected() == (pytest.approx(100.0) if seconds_left == np.inf else None)
    search.took = [(100, 4e-3), (120, 20e-3)]
    assert search._expected() == pytest.approx(100.0)
    search.counted = search.took[:1]
    assert search._expected() is None


def test_a_target_is_lowered_while_parts_are_shared(monkeypatch):
    search_by_shares(monkeypatch, "without diving", 0.0)
    monkeypatch.setattr(core_search, "_BATCH", 1)
    problem = random_problem(2)
    ranked, loss = rank(problem), solve(problem).loss
    left = [1000.0]

    def seconds_left():
        left[0] *= 0.8
        return left[0]

    search = CoreSearch(ranked, Proof(cheap_box(ranked, np.inf)), Workers(1), lambda: False, seconds_left)
    lowered, target = 0, 0
    while not search.is_over:
        n_bounds = len(search.took)
        search.step(loss)
        lowered += search.target < target and len(search.took) == n_bounds
        target = search.target
        if len(search.took) > n_bounds:
            assert checker.certified_bound(problem, certificate_of(search, problem, ranked)) >= search.bound
    assert lowered > 0
    assert search.bound == loss


def test_a_checker_does_not_trust_the_lanes_it_gets(monkeypatch):
    """Lanes that leave out the cheapest exemplar of everybody would prove too much."""
    problem = random_problem(1)
    search, loss, ranked = searched(problem, Workers(1))
    root = certificate_of(search, problem, ranked)
    root = replace(
        root,
        split_exemplar=np.full(1, -1, dtype=np.int32),
        split_score=np.zeros(1),
        open_child=np.full(1, -1, dtype=np.int32),
        shut_child=np.full(1, -1, dtype=np.int32),
        shares_of=np.array([SEARCHED], dtype=np.int32),
        hard=np.arange(60, dtype=np.int32),
        cutoff=np.inf,
    )
    monkeypatch.setattr(hard, "_PLAIN_WORDS", -1.0)
    assert checker.certified_bound(problem, root) == loss
    number_lanes = node.number_lanes

    def without_the_cheapest(high, is_covered, n_lanes):
        cheapest = np.where(high > 0, high, 2**30).argmin(axis=1)
        fewer = high.copy()
        fewer[np.arange(len(high)), cheapest] = 0
        return number_lanes(fewer, is_covered, n_lanes)

    monkeypatch.setattr(node, "number_lanes", without_the_cheapest)
    assert checker.certified_bound(problem, root) < loss


@pytest.mark.parametrize("cutoff", [151.0, 3e9, 1e300])
def test_a_cutoff_may_be_more_than_all_negatives_weigh(cutoff, monkeypatch):
    search_by_shares(monkeypatch, "without diving")
    problem = random_problem(1)
    search, loss, ranked = searched(problem, Workers(1))
    certificate = replace(certificate_of(search, problem, ranked), cutoff=cutoff)
    assert certificate.is_searched.any()
    assert loss <= checker.certified_bound(problem, certificate) <= loss
