"""Working sets that grow from nothing: gaps that hold by plain numpy, for both losses, and answers like other ways'."""

import numpy as np
import pytest

from eesvm import ExemplarSVMs
from eesvm.exemplars.solver import Objective, pool, solve, working_sets
from eesvm.exemplars.solver.hinge import Share
from eesvm.exemplars.solver.working_sets import Descended, descend_working_sets, is_small_enough, n_slots, set_bytes
from helpers.reference_svm import liblinear, objective
from helpers.solver_rows import make_share, rows_like_a_pca


def gaps(share, found, costs):
    """(criterion, relative duality gap) of those who are done, in float64, from weights and duals alone."""
    share = Share(
        share.rows,
        *(a[found.is_done] for a in (share.targets, share.positives, share.own_targets, share.duals, share.own)),
    )
    found = Descended(*(a[found.is_done] for a in (found.weights, found.violations, found.is_done, found.stretches)))
    c, own_c, multiplier = costs.negative_cost, costs.positive_cost, costs.bias_multiplier
    rows = np.concatenate([share.rows, np.full((len(share.rows), 1), multiplier)], axis=1).astype(np.float64)
    positives, duals, own = (a.astype(np.float64) for a in (share.positives, share.duals, share.own))
    assert (duals >= 0).all()
    assert (own >= 0).all()
    added = own[:, None] * positives - duals @ rows
    longer = (1 + found.stretches[:, None]) * added
    np.testing.assert_allclose(found.weights, longer, atol=1e-5 * np.abs(added).max())
    assert (found.stretches >= 0).all()
    lower = duals.sum(axis=1) + own - (added**2).sum(axis=1) / 2
    if costs.is_squared:
        lower -= own**2 / (4 * own_c) + (duals**2).sum(axis=1) / (4 * c)
    else:
        assert (duals <= np.float32(c)).all()
        assert (own <= np.float32(own_c)).all()
    values = np.array(
        [
            objective(w[:-1], w[-1] * multiplier, x[:-1], share.rows, c, own_c / c, costs.is_squared, multiplier)
            for w, x in zip(found.weights, share.positives, strict=True)
        ]
    )
    return values, (values - lower) / values


@pytest.mark.parametrize("C", [1e-2, 1e-1, 1.0, 10.0])
@pytest.mark.parametrize("positive_weight", [1.0, 50.0])
@pytest.mark.parametrize("is_squared", [False, True])
def test_the_duality_gap_closes_by_plain_numpy(C, positive_weight, is_squared, monkeypatch):
    monkeypatch.setattr(working_sets, "_SLOTS", 12.0)
    share, costs = make_share(*rows_like_a_pca(5, 600, 60)), Objective(C * positive_weight, C, is_squared, 1.0)
    found = descend_working_sets(share, costs, 5e-4)
    assert found.is_done.all() or C > 0.1  # float32 may not do for more: such exemplars are left to others
    assert found.is_done.any()
    assert (found.violations[found.is_done] <= 5e-4).all()
    values, gap = gaps(share, found, costs)
    assert gap.max() <= 5e-4
    for k, j in enumerate(np.flatnonzero(found.is_done)[:2]):
        x, negatives = share.positives[j, :-1], share.rows
        best = objective(
            *liblinear(x, negatives, C, positive_weight, is_squared), x, negatives, C, positive_weight, is_squared
        )
        assert values[k] <= best * (1 + 5e-4)


def test_a_loose_tolerance_is_reached_where_small_violations_cost_much(monkeypatch):
    monkeypatch.setattr(working_sets, "_SLOTS", 12.0)
    share, costs = make_share(*rows_like_a_pca(6, 3000, 80)), Objective(30.0, 30.0, False, 1.0)
    found = descend_working_sets(share, costs, 1e-2)
    assert found.is_done.all()
    assert gaps(share, found, costs)[1].max() <= 1e-2


@pytest.mark.parametrize("multiplier", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("is_squared", [False, True])
def test_any_bias_feature(multiplier, is_squared, monkeypatch):
    monkeypatch.setattr(working_sets, "_SLOTS", 12.0)
    share, costs = make_share(*rows_like_a_pca(3, 200, 60), multiplier), Objective(0.5, 0.1, is_squared, multiplier)
    found = descend_working_sets(share, costs, 5e-4)
    assert found.is_done.any()
    assert gaps(share, found, costs)[1].max() <= 5e-4


def test_rows_make_place_for_others(monkeypatch):
    """A set that cannot hold every row that was ever in it finds the same."""
    positives, negatives = rows_like_a_pca(4, 500, 60, seed=1)
    costs, found = Objective(1.0, 1.0, True, 1.0), []
    for slots in (3.0, 12.0):
        monkeypatch.setattr(working_sets, "_SLOTS", slots)
        share = make_share(positives, negatives)
        answer = descend_working_sets(share, costs, 5e-4)
        assert answer.is_done.all()
        found.append(gaps(share, answer, costs)[0])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3)


def test_a_set_that_is_too_small_leaves_everything_as_it_was():
    share = make_share(*rows_like_a_pca(3, 2000, 20))
    share.duals[:] = 0.5
    found = descend_working_sets(share, Objective(1e-5, 1e-5, False, 1.0), 5e-4)
    assert not found.is_done.any()
    assert (share.duals == 0.5).all()
    assert (share.own == 0).all()


def test_rows_of_the_own_group_never_join():
    positives, negatives = rows_like_a_pca(2, 200, 60)
    share = make_share(positives, negatives)
    share.targets[0, :50] = -np.inf
    costs = Objective(1.0, 0.1, False, 1.0)
    found = descend_working_sets(share, costs, 5e-4)
    assert found.is_done.all()
    assert (share.duals[0, :50] == 0).all()
    rest = make_share(positives[:1], negatives[50:])
    expected = gaps(rest, descend_working_sets(rest, costs, 5e-4), costs)[0][0]
    weights = found.weights[0]
    assert abs(objective(weights[:-1], weights[-1], positives[0], negatives[50:], 0.1, 10.0) / expected - 1) <= 1e-3


def test_equal_rows_and_rows_of_zeros():
    positives, negatives = rows_like_a_pca(2, 100, 10)
    negatives = np.concatenate([negatives, negatives, np.zeros((5, 10), dtype=np.float32)])
    for is_squared in (False, True):
        share, costs = make_share(positives, negatives), Objective(1.0, 0.1, is_squared, 1.0)
        found = descend_working_sets(share, costs, 5e-4)
        assert np.isfinite(found.weights).all()
        if found.is_done.all():
            assert gaps(share, found, costs)[1].max() <= 5e-4


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_training_by_sets_and_without_them_agree(loss, monkeypatch):
    exemplars, negatives = rows_like_a_pca(12, 1500, 100, seed=5)
    options = {"C": 0.1, "positive_weight": 10.0, "loss": loss}
    for name in ("_LEAST_MANY", "_MANY"):
        monkeypatch.setattr(solve, name, 0)
    before = ExemplarSVMs(**options).fit(exemplars, negatives)
    grown = []
    monkeypatch.setattr(working_sets, "_LEAST_WIDTH", 0)
    monkeypatch.setattr(working_sets, "_MOST_SUPPORT", 5.0)
    monkeypatch.setattr(working_sets, "_SLOTS", 12.0)
    watched = pool.descend_working_sets
    monkeypatch.setattr(pool, "descend_working_sets", lambda *a: grown.append(len(a[0].own)) or watched(*a))
    svms = ExemplarSVMs(**options).fit(exemplars, negatives)
    assert sum(grown) == len(exemplars)  # the one that tells is not trained twice
    assert svms.converged_.all()
    np.testing.assert_allclose(svms.objective_, before.objective_, rtol=1e-3)
    again = ExemplarSVMs(**options, n_jobs=3).fit(exemplars, negatives)
    np.testing.assert_array_equal(again.coef_, svms.coef_)
    monkeypatch.setattr(pool.Pool, "_takes_over_first", lambda _: False)
    twice = ExemplarSVMs(**options).fit(exemplars, negatives)
    np.testing.assert_array_equal(twice.coef_, svms.coef_)
    np.testing.assert_array_equal(twice.gap_, svms.gap_)


def test_memory_of_a_set_is_counted():
    for width in (129, 1281):
        assert set_bytes(width) >= 4 * n_slots(width) * width


def test_sets_are_for_as_many_supporting_negatives_as_columns():
    assert is_small_enough(257, 250, is_squared=False)
    assert not is_small_enough(257, 2000, is_squared=False)
    assert not is_small_enough(513, 750, is_squared=False)
    assert is_small_enough(513, 750, is_squared=True)  # other ways take longer than those of the hinge
    assert not is_small_enough(257, 375, is_squared=True)


@pytest.mark.parametrize("way", ["visits", "sets"])
def test_the_gap_that_is_stated_is_the_true_one(way, monkeypatch):
    """Whichever way it was trained, an exemplar's gap is what plain numpy makes of its weights and duals."""
    positives, negatives = rows_like_a_pca(6, 1500, 60)  # so few are not tried out before
    C, stated = (1e-3, []) if way == "visits" else (0.3, [])
    if way == "visits":
        monkeypatch.setattr("eesvm.exemplars.solver.coordinate.worthwhile_visits", lambda *_: np.inf)
        monkeypatch.setattr("eesvm.exemplars.solver.coordinate.is_for_newton", lambda *_: False)
        monkeypatch.setattr(pool, "is_for_newton", lambda *_: False)
    else:
        monkeypatch.setattr(working_sets, "_LEAST_WIDTH", 0)
        monkeypatch.setattr(working_sets, "_MOST_SUPPORT", 100.0)
        monkeypatch.setattr(working_sets, "_HOPELESS", 100.0)
        monkeypatch.setattr(working_sets, "_SLOTS", 12.0)
    monkeypatch.setattr(pool, "descend_newton", lambda *_: pytest.fail("Newton steps over all rows"))
    evidence = pool.Pool.evidence

    def note(part, waiting, found):
        primal, gap, violation = evidence(part, waiting, found)
        for k, j in enumerate(waiting):
            duals, own = part.duals[j].astype(np.float64), float(part.own[j])
            rows = np.concatenate([negatives[part.indices], np.ones((len(part.indices), 1))], axis=1)
            added = own * np.append(part.problem.positives[j], 1.0) - duals @ rows
            w = part.weights[j].astype(np.float64)
            value = objective(w[:-1], w[-1], part.problem.positives[j], negatives, C, 50.0)
            stated.append((gap[k], (value - (duals.sum() + own - added @ added / 2)) / value, part.is_whole))
        return primal, gap, violation

    monkeypatch.setattr(pool.Pool, "evidence", note)
    svms = ExemplarSVMs(C=C, positive_weight=50.0).fit(positives, negatives)
    assert svms.converged_.all()
    whole = [(gap, true) for gap, true, is_whole in stated if is_whole]
    assert len(whole) == len(positives)
    for gap, true in whole:
        assert 0 < true <= 1e-3
        assert gap == pytest.approx(true, rel=0.05, abs=1e-5)
