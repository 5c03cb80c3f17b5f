"""Random problems for the search of hard positives, at limits so small that every way of ending a part is met.

In: a seed. Out: a sentence for everything that is wrong. The problems of helpers/soak are settled before hard positives
get a turn, so here the search is called itself, and its proof is checked. What it must prove is known from Algorithm 1
where there are many exemplars, and from the oracle that tries every cut where there are few.
"""

from __future__ import annotations

from unittest.mock import patch

import numpy as np

from eesvm import CalibrationProblem, InputError, solve
from eesvm._support.threads import Workers
from eesvm.calibration.proofs import certified_bound as checker
from eesvm.calibration.proofs import hard, hard_shares, owners
from eesvm.calibration.ranks import rank
from eesvm.calibration.search import core_search, core_shares
from eesvm.calibration.search.core_search import CoreSearch
from eesvm.calibration.search.heuristics import loss_of_levels
from eesvm.calibration.search.neighbourhoods import NeighbourhoodSearch
from eesvm.calibration.search.proof import Proof
from eesvm.calibration.search.reduce import cheap_box
from eesvm.calibration.sharing import node
from helpers.soak import Oracle

_MOST_STEPS = 20_000


def run_core_case(seed):
    """(how many searches, what is wrong) with one random problem."""
    random = np.random.default_rng([seed, 2])
    try:
        found = _faults(random, _problem(random))
    except Exception as error:
        found = [f"{type(error).__name__}: {error}"]
    return 1, [f"core {seed}: {fault}" for fault in found]


def _problem(random):
    """Few exemplars for the oracle, or up to twelve; negatives of one to four words of bits."""
    is_small = random.random() < 0.3
    n_exemplars = random.integers(2, 5) if is_small else random.integers(3, 13)
    n_positives = random.integers(1, 9 if is_small else 31)
    n_negatives = random.integers(1, 13 if is_small else 200)
    hidden = random.normal(size=(n_positives + n_negatives, 3))
    scores = hidden @ random.normal(size=(3, n_exemplars)) + random.random() * random.normal(
        size=(n_positives + n_negatives, n_exemplars)
    )
    scores = np.round(scores, random.choice([0, 1, 6]))
    forbidden = random.random((n_positives, n_exemplars)) < 0.3 if random.random() < 0.5 else None
    return CalibrationProblem(
        scores[:n_positives] + random.choice([0.0, 0.5]), scores[n_positives:], forbidden=forbidden
    )


def _limits(random):
    return {
        "_BUDGET": float(random.choice([0.0, 40.0, 1000.0, 2e8])),
        "_TIMES_THE_FIRST": int(random.choice([0, 4])),
        "_LITTLE": float(random.choice([0.0, 0.05, 1.0])),
        "_STORY": int(random.choice([40, 200, 60_000])),
        "_SHORT": int(random.choice([0, 5, 200])),
        "_TOLD": int(random.choice([0, 10, 4_000_000])),
        "_BATCH": int(random.choice([1, 3, 16])),
        **dict.fromkeys(("_FIRST", "_NEARER", "_LAST_NEARER"), float(random.choice([0.1, 0.35, 1.0]))),
        "_FIRST_ROOM": int(random.choice([1, 32])),
        "_FEW_WORDS": int(random.choice([0, 600])),
        "_AFTER": float(random.choice([0.0, 1.0])),
        "_MOST_COMMON": int(random.choice([4 * 5**2, 2**28])),
        "_TRIAL": float(random.choice([0.0, 1e10])),
        "_TOO_LONG": float(random.choice([0.0, 2.0, np.inf])),
        "_LEFT_TO_CHECKER": float(random.choice([0.0, 2000.0, np.inf])),
    }


def _limits_of_shares(random):
    return {
        "_POSITIVES": int(random.choice([1, 5, 250])),
        "_MOST_BYTES": int(random.choice([8 * 3 * 12 * 40, 2**31], p=[0.1, 0.9])),
        "_ROUNDS": int(random.choice([1, 4])),
        "_LEAST_DIVE": float(random.choice([-1.0, 0.0, 300.0, 2e7])),
        "_DIVE": float(random.choice([-1.0, 0.0, 4.0])),
    }


def _limits_of_checker(random):
    return {
        "_SEARCH": float(random.choice([-1.0, 0.0, 4.0])),
        "_LEAST_SEARCH": float(random.choice([-1.0, 300.0, 2e7])),
        "_LEAF_ROUNDS": int(random.choice([1, 8])),
    }


def _faults(random, problem):
    try:
        ranked = rank(problem)
    except InputError:  # somebody cannot be covered
        return []
    if len(ranked.coverable) == 0 or ranked.difficulty[ranked.coverable].max() == 0:
        return []
    lanes = patch.object(node, "_MANY_LANES", float(random.choice([0.3, 0.9])))
    with (
        patch.multiple(core_search, **_limits(random)),
        patch.multiple(core_shares, **_limits_of_shares(random)),
        patch.object(CoreSearch, "_expected", lambda search: 1.0),
        lanes,
    ):
        search, loss = _searched(ranked)
        if not search.bound >= loss:
            return [f"it ended at {search.bound} below the loss of {loss}"]
        certificate = search.proof().certificate(problem, ranked, 1.0, ranked.quantum)
    with (
        patch.multiple(hard_shares, **_limits_of_checker(random)),
        patch.object(hard, "_PLAIN_WORDS", float(random.choice([-1.0, 1e9]))),
        lanes,
        patch.object(checker, "_MANY_OWNED", int(random.choice([1, 200]))),
        patch.object(owners, "_VERY_MANY", int(random.choice([1, 20_000]))),
        patch.object(hard, "_FEW_WORDS", int(random.choice([0, 600]))),
    ):
        proven = checker.certified_bound(problem, certificate)
    optimum = _optimum(problem)
    wrong = [] if loss + ranked.fixed_loss == optimum else [f"the loss {loss + ranked.fixed_loss} is not {optimum}"]
    return wrong + ([] if proven == optimum else [f"{proven} is proven, the optimum is {optimum}"])


def _searched(ranked):
    loss = NeighbourhoodSearch(ranked, None, 0).best_loss
    search = CoreSearch(ranked, Proof(cheap_box(ranked, np.inf)), Workers(1))
    for _ in range(_MOST_STEPS):
        if search.is_over or search.bound >= loss:
            break
        levels = search.step(loss)
        if levels is not None:
            loss = min(loss, loss_of_levels(ranked, levels))
    return search, loss


def _optimum(problem):
    if problem.n_exemplars < 5 and problem.n_positives < 9 and problem.n_negatives < 13:
        return float(Oracle(problem).least_loss(1.0)[1])
    result = solve(problem, method="algorithm1", n_jobs=1)
    assert result.status == "optimal", result.status
    return result.loss
