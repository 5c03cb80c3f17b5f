"""Parts that are searched by shares of hard positives: against brute force, whatever is done at a node."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from eesvm import InputError
from eesvm._support.threads import Workers
from eesvm.calibration.proofs import certified_bound as checker
from eesvm.calibration.ranks import rank
from eesvm.calibration.search import core_search, core_shares
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
    """Shares after so many words."""
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
