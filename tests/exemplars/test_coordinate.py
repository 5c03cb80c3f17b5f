"""Visits to rows, the hinge over all negatives: gaps that hold by plain numpy, whoever visits together."""

import numpy as np
import pytest

from eesvm import ExemplarSVMs
from eesvm.exemplars.solver import Objective, coordinate, visits
from eesvm.exemplars.solver.coordinate import descend_coordinates, worthwhile_visits
from helpers.reference_svm import liblinear, objective
from helpers.solver_rows import make_share, rows_like_a_pca


def descend(share, C, positive_weight, multiplier=1.0, tol=5e-4, max_visits=1000.0):
    squares = np.einsum("nd,nd->n", share.rows, share.rows)
    o = Objective(C * positive_weight, C, False, multiplier)
    return descend_coordinates(share, squares, o, tol, max_visits)


@pytest.fixture(autouse=True)
def any_number_of_visits(monkeypatch, request):
    """Tables of tests are small, where Newton steps would take over early."""
    if "worth" not in request.node.name:
        monkeypatch.setattr(coordinate, "worthwhile_visits", lambda *_: np.inf)


def gaps(share, found, C, positive_weight, multiplier=1.0):
    """(criterion, relative duality gap) in float64, from weights and duals alone."""
    rows = np.concatenate([share.rows, np.full((len(share.rows), 1), multiplier)], axis=1).astype(np.float64)
    positives, duals, own = (a.astype(np.float64) for a in (share.positives, share.duals, share.own))
    assert (duals >= 0).all()
    assert (duals <= np.float32(C)).all()
    assert (own >= 0).all()
    assert (own <= np.float32(C * positive_weight)).all()
    added = own[:, None] * positives - duals @ rows
    np.testing.assert_allclose(found.weights, added, atol=1e-3 * np.abs(added).max())
    np.testing.assert_allclose(found.dual_squares, (added**2).sum(axis=1), rtol=1e-4)
    lower = duals.sum(axis=1) + own - (added**2).sum(axis=1) / 2
    values = np.array(
        [
            objective(w[:-1], w[-1] * multiplier, x[:-1], share.rows, C, positive_weight, False, multiplier)
            for w, x in zip(found.weights, share.positives, strict=True)
        ]
    )
    return values, (values - lower) / values


@pytest.mark.parametrize("C", [1e-5, 1e-3, 1e-2, 1e-1, 1.0])
@pytest.mark.parametrize("positive_weight", [1.0, 50.0])
def test_the_duality_gap_closes_by_plain_numpy(C, positive_weight):
    share = make_share(*rows_like_a_pca(5, 600, 60))
    found = descend(share, C, positive_weight)
    assert found.is_done.all()
    assert (found.violations <= 5e-4).all()
    values, gap = gaps(share, found, C, positive_weight)
    assert gap.max() <= 5e-4
    for k in range(2):
        x, negatives = share.positives[k, :-1], share.rows
        best = objective(*liblinear(x, negatives, C, positive_weight), x, negatives, C, positive_weight)
        assert values[k] <= best * (1 + 5e-4)


@pytest.mark.parametrize("multiplier", [0.0, 1.0, 10.0])
def test_any_bias_feature(multiplier):
    share = make_share(*rows_like_a_pca(3, 300, 20), multiplier)
    found = descend(share, 0.01, 5.0, multiplier)
    assert found.is_done.all()
    assert gaps(share, found, 0.01, 5.0, multiplier)[1].max() <= 5e-4


@pytest.mark.parametrize("many_want", [0, 1000])
def test_who_visits_together_finds_what_everybody_finds_alone(many_want, monkeypatch):
    positives, negatives = rows_like_a_pca(6, 500, 40, seed=3)
    monkeypatch.setattr(visits, "_MANY_WANT", many_want)
    share = make_share(positives, negatives)
    found = descend(share, 0.01, 20.0)
    assert found.is_done.all()
    together = gaps(share, found, 0.01, 20.0)[0]
    for k in range(len(positives)):
        one = make_share(positives[k : k + 1], negatives)
        alone = gaps(one, descend(one, 0.01, 20.0), 0.01, 20.0)[0][0]
        assert abs(alone / together[k] - 1) <= 1e-3


def test_rows_of_the_own_group_are_never_visited():
    positives, negatives = rows_like_a_pca(2, 200, 15)
    share = make_share(positives, negatives)
    share.targets[0, :50] = -np.inf
    found = descend(share, 0.01, 10.0)
    assert found.is_done.all()
    assert (share.duals[0, :50] == 0).all()
    rest = make_share(positives[:1], negatives[50:])
    expected = gaps(rest, descend(rest, 0.01, 10.0), 0.01, 10.0)[0][0]
    weights = found.weights[0]
    assert abs(objective(weights[:-1], weights[-1], positives[0], negatives[50:], 0.01, 10.0) / expected - 1) <= 1e-3


def test_visits_that_are_used_up_leave_duals_to_go_on_from():
    share = make_share(*rows_like_a_pca(3, 400, 30))
    few = descend(share, 1.0, 50.0, max_visits=2.0)
    assert not few.is_done.any()
    assert (few.visits < 4).all()
    again = descend(share, 1.0, 50.0)
    assert again.is_done.all()
    assert gaps(share, again, 1.0, 50.0)[1].max() <= 5e-4


def test_rows_that_are_there_twice_and_rows_of_zeros_are_left_to_newton_steps():
    exemplars, negatives = rows_like_a_pca(2, 100, 10)
    negatives = np.concatenate([negatives, negatives[:30], np.zeros((5, 10), dtype=np.float32)])
    assert not descend(make_share(exemplars, negatives), 0.1, 10.0, max_visits=10).is_done.any()
    svms = ExemplarSVMs(C=0.1, positive_weight=10.0, loss="hinge").fit(exemplars, negatives)
    assert svms.converged_.all()


def test_more_columns_are_worth_more_visits():
    assert (
        worthwhile_visits(10, 0) == worthwhile_visits(256, 0) < worthwhile_visits(512, 0) < worthwhile_visits(1280, 0)
    )
    assert worthwhile_visits(256, 1000) == 0 < worthwhile_visits(1280, 10_000)


def test_trainings_are_done_by_visits_where_they_end(monkeypatch):
    calls = []
    monkeypatch.setattr("eesvm.exemplars.solver.pool.descend_newton", lambda *_: calls.append(1))
    exemplars, negatives = rows_like_a_pca(12, 1500, 200)
    svms = ExemplarSVMs(C=1e-6, positive_weight=50.0, loss="hinge").fit(exemplars, negatives)
    assert svms.converged_.all()
    assert not calls
