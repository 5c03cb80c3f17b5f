"""Products of all rows with few exemplars: what numpy says, for any number of exemplars and rows."""

import numpy as np
import pytest

from eesvm.exemplars.solver.row_products import scores_of, sums_of


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_rows", [0, 1, 3, 4, 31, 32, 33, 70])
@pytest.mark.parametrize("n_exemplars", [1, 2, 3, 4, 7, 8, 9])
def test_products_are_those_of_numpy(n_exemplars, n_rows, dtype):
    random = np.random.default_rng(n_exemplars)
    rows = random.standard_normal((n_rows, 19)).astype(dtype)
    weights = random.standard_normal((n_exemplars, 20)).astype(dtype)[:, :-1]  # a part of an array, as callers have it
    values = random.standard_normal((n_exemplars, n_rows)).astype(dtype)
    scores, sums = scores_of(rows, weights), sums_of(values, rows)
    assert scores.dtype == sums.dtype == dtype
    np.testing.assert_allclose(scores, weights @ rows.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sums, values @ rows, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [20, 96, 130])
@pytest.mark.parametrize("n_exemplars", [2, 10, 11, 17, 32, 33])
def test_products_of_more_exemplars(n_exemplars, width):
    random = np.random.default_rng(width)
    rows = random.standard_normal((203, width)).astype(np.float32)
    weights = random.standard_normal((n_exemplars, width + 1)).astype(np.float32)[:, :-1]
    values = random.standard_normal((n_exemplars, 203)).astype(np.float32)
    np.testing.assert_allclose(scores_of(rows, weights), weights @ rows.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(sums_of(values, rows), values @ rows, rtol=1e-4, atol=1e-3)


def test_company_does_not_change_scores():
    random = np.random.default_rng(0)
    rows, weights = (random.standard_normal((n, 37)).astype(np.float32) for n in (101, 8))
    together = scores_of(rows, weights)
    for n in range(2, 8):
        np.testing.assert_array_equal(scores_of(rows, weights[:n]), together[:n])
