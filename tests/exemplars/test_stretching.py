"""Weights that become a little longer: what that saves by plain numpy, and that no other length saves much more."""

import numpy as np
import pytest

from eesvm import ExemplarSVMs
from eesvm.exemplars.solver.stretching import stretch
from helpers.reference_svm import objective
from helpers.solver_rows import rows_like_a_pca


def criterion(e, slopes, targets, cap, own, square):
    counted = np.isfinite(slopes)
    s, t = slopes[counted].astype(np.float64), targets[counted].astype(np.float64)
    lost = cap * np.maximum(s + e * (s - t), 0).sum() + own[3] * max(own[0] - e * (own[1] - own[0]), 0)
    return (1 + e) ** 2 * square / 2 + lost


@pytest.mark.parametrize("cap", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_it_saves_what_it_says_and_about_as_much_as_can_be_saved(seed, cap):
    random = np.random.default_rng(seed)
    slopes = (1e-3 * random.standard_normal(3000)).astype(np.float32)
    slopes[:100] -= 1
    slopes[7] = -np.inf
    targets = np.where(random.random(3000) < 0.5, 1, random.uniform(-0.2, 2, 3000)).astype(np.float32)
    targets[7] = -np.inf
    duals = np.where(np.isfinite(slopes), np.clip(cap * random.uniform(-1, 2, 3000), 0, cap), 0).astype(np.float32)
    own, square, most = (random.normal() * 1e-3, 1.0, cap * random.random(), 5 * cap), 0.5, 1e-2
    e, saved, violation = stretch(slopes, targets, duals, np.float32(cap), own, square, most)
    assert 0 <= e <= most
    before = criterion(0, slopes, targets, cap, own, square)
    assert saved == pytest.approx(before - criterion(e, slopes, targets, cap, own, square), abs=1e-5 * before)
    best = min(criterion(t, slopes, targets, cap, own, square) for t in np.linspace(0, most, 300))
    assert before - saved <= best + 0.05 * (before - best) + 1e-6 * before
    slopes, targets, duals = (a[np.isfinite(slopes)] for a in (slopes, targets, duals))
    now = slopes + e * (slopes - targets)
    worst = np.where(duals <= 0, now, np.where(duals >= np.float32(cap), -now, np.abs(now)))
    own_now = own[0] - e * (own[1] - own[0])
    assert violation == pytest.approx(max(worst.max(), abs(own_now)), rel=1e-3)


def test_weights_that_only_pay_are_left_alone():
    slopes, targets = np.full(50, -0.5, dtype=np.float32), np.ones(50, dtype=np.float32)
    e, saved, _ = stretch(slopes, targets, np.zeros(50, np.float32), np.float32(1), (-0.1, 1.0, 0.0, 1.0), 2.0, 1e-3)
    assert e == saved == 0


@pytest.mark.parametrize("positive_weight", [1.0, 50.0])
def test_gaps_are_true_where_the_cost_is_large_and_many_rows_are_on_the_margin(positive_weight):
    positives, negatives = rows_like_a_pca(10, 3000, 40)
    svms = ExemplarSVMs(C=0.1, positive_weight=positive_weight).fit(positives, negatives)
    exact = ExemplarSVMs(C=0.1, positive_weight=positive_weight, tol=1e-5).fit(positives, negatives)
    assert svms.converged_.all()
    for j, x in enumerate(positives):
        value = objective(svms.coef_[j], svms.intercept_[j], x, negatives, 0.1, positive_weight)
        assert value == pytest.approx(svms.objective_[j], rel=1e-4)
        assert value * (1 - svms.gap_[j]) <= exact.objective_[j] * (1 + 1e-5)
