"""Rows that solvers of exemplar SVMs are tried on, and what these are handed."""

import numpy as np

from eesvm.exemplars.solver.hinge import Share


def rows_like_a_pca(n_exemplars, n_negatives, d, seed=0, length=20.0):
    """Exemplars and negatives like rows of a PCA: centred, with a falling spectrum."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((n_exemplars + n_negatives, d)) * np.geomspace(2, 0.1, d)
    rows = (rows * (length / np.linalg.norm(rows, axis=1).mean())).astype(np.float32)
    return rows[:n_exemplars], rows[n_exemplars:]


def make_share(positives, negatives, multiplier=1.0):
    """All negatives for every exemplar, without a prior, and duals that are 0."""
    n, m = len(positives), len(negatives)
    own = np.concatenate([positives, np.full((n, 1), multiplier)], axis=1).astype(np.float32)
    ones, zeros = np.ones((n, m), dtype=np.float32), np.zeros((n, m), dtype=np.float32)
    return Share(negatives, ones, own, np.ones(n, dtype=np.float32), zeros, np.zeros(n, dtype=np.float32))
