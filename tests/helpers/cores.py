"""Searches by hard positives, to their end, and problems for them."""

from __future__ import annotations

import numpy as np

from eesvm import CalibrationProblem
from eesvm.calibration.ranks import FORBIDDEN, rank
from eesvm.calibration.search.core_search import CoreSearch
from eesvm.calibration.search.heuristics import loss_of_levels
from eesvm.calibration.search.neighbourhoods import NeighbourhoodSearch
from eesvm.calibration.search.proof import Proof
from eesvm.calibration.search.reduce import cheap_box


def random_problem(seed, n_exemplars=12, n_positives=60, n_negatives=150, forbidden=0.2, scale=1.0):
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(n_positives + n_negatives, 6))
    scores = hidden @ rng.normal(size=(6, n_exemplars)) + rng.normal(size=(n_positives + n_negatives, n_exemplars))
    scores = np.clip(scores, -8, 8)
    return CalibrationProblem(
        np.round(scores[:n_positives] + 0.5, 1) * scale,
        np.round(scores[n_positives:], 1) * scale,
        forbidden=rng.random((n_positives, n_exemplars)) < forbidden,
    )


def searched(problem, threads, most_steps=10_000):
    """A core search to its end: (search, the best loss that it and a greedy start know of)."""
    ranked = rank(problem)
    loss = NeighbourhoodSearch(ranked, None, 0).best_loss
    search = CoreSearch(ranked, Proof(cheap_box(ranked, np.inf)), threads)
    for _ in range(most_steps):
        if search.is_over or search.bound >= loss:
            return search, loss, ranked
        levels = search.step(loss)
        if levels is not None:
            covered = ((ranked.delta <= levels) & (ranked.delta != FORBIDDEN)).any(axis=1)
            assert covered[ranked.coverable].all()
            assert loss_of_levels(ranked, levels) < loss
            loss = loss_of_levels(ranked, levels)
    raise AssertionError("the search did not end")


def certificate_of(search, problem, ranked):
    return search.proof().certificate(problem, ranked, 1.0, ranked.quantum)
