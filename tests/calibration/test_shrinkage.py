"""Scales drawn together: both ends of the way, its middle, and the link from scores to probabilities."""

import re

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from eesvm import AffineCalibrator, InputError, JointCalibrator, SigmoidCalibrator, Uncalibrated
from eesvm.calibration.calibrators.shrinkage import Scales, ShrunkenCalibrator, can_shrink, fit_link, own_scales


def table(seed=0, n=120, n_exemplars=6):
    """Scores of which each column has a scale of its own."""
    random = np.random.default_rng(seed)
    labels = (np.arange(n) < n // 3).astype(int)
    slopes, offsets = random.uniform(0.5, 2, n_exemplars), random.normal(0, 2, n_exemplars)
    return (random.normal(size=(n, n_exemplars)) + 2 * labels[:, None]) * slopes + offsets, labels


def scales(seed, n=7):
    random = np.random.default_rng(seed)
    is_learned = random.random(n) < 0.8
    return Scales(np.exp(random.normal(size=n)), random.normal(size=n), is_learned)


@pytest.mark.parametrize("seed", range(20))
def test_strength_zero_is_raw_scores(seed):
    scores = np.random.default_rng(seed).normal(size=(30, 7))
    np.testing.assert_allclose(ShrunkenCalibrator.of(scales(seed), 0.0).transform(scores), scores, atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_strength_one_is_the_exemplar_s_own_scale(seed):
    """Up to one slope and one offset that all of them share."""
    own, scores = scales(seed), np.random.default_rng(seed).normal(size=(30, 7))
    known = own.is_learned if own.is_learned.any() else np.ones(7, bool)
    slope, centre = np.exp(np.median(np.log(own.slopes[known]))), np.median(own.offsets[known])
    expected = own.slopes * (scores - own.offsets) / slope + centre
    np.testing.assert_allclose(ShrunkenCalibrator.of(own, 1.0).transform(scores), expected, atol=1e-9)


@pytest.mark.parametrize("strength", [0.1, 0.5, 0.9])
def test_between_them_offsets_and_logarithms_move_along_lines(strength):
    own = Scales(np.array([0.5, 1.0, 4.0]), np.array([-1.0, 0.0, 3.0]), np.ones(3, bool))
    shrunken = ShrunkenCalibrator.of(own, strength)
    np.testing.assert_allclose(shrunken.slopes_, [0.5**strength, 1.0, 4.0**strength])
    np.testing.assert_allclose(shrunken.offsets_, [-strength, 0.0, 3 * strength])


def test_joint_thresholds_are_the_offsets_and_redundant_exemplars_get_a_strict_one():
    scores, labels = table()
    joint = JointCalibrator().fit(scores, labels)
    joint.thresholds_ = joint.thresholds_.copy()
    joint.thresholds_[0] = joint.thresholds_[1] = np.inf
    highest = scores[labels == 1].max(axis=0)
    highest[1] = -np.inf  # no positive of another image
    own = own_scales(joint, highest)
    middle = np.median(joint.thresholds_[np.isfinite(joint.thresholds_)])
    assert own.offsets[0] == max(highest[0], middle)
    assert own.offsets[1] == middle
    np.testing.assert_array_equal(own.offsets[2:][own.is_learned[2:]], joint.thresholds_[2:][own.is_learned[2:]])
    assert (own.slopes == 1).all()


@pytest.mark.parametrize("calibrator", [SigmoidCalibrator(margin=None), AffineCalibrator(quantile=0.99)])
def test_at_full_strength_independent_calibrators_order_windows_as_they_do(calibrator):
    scores, labels = table()
    calibrator.fit(scores, labels)
    shrunken = ShrunkenCalibrator.of(own_scales(calibrator, scores.max(axis=0)), 1.0)
    calibrated = calibrator.transform(scores)
    if isinstance(calibrator, SigmoidCalibrator):
        calibrated = calibrator.tie_breaker(scores)  # the arguments of the sigmoids: those do not round to 0 or 1
    order = np.argsort(calibrated, axis=None)
    found = shrunken.transform(scores).ravel()[order]
    assert (np.diff(found) >= -1e-6 * np.abs(found).max()).all()


def test_muted_exemplars_get_the_median_slope_and_a_strict_offset():
    scores, labels = table(n_exemplars=5)
    sigmoid = SigmoidCalibrator(margin=None).fit(scores, labels)
    sigmoid.muted_ = np.array([True, False, False, False, False])
    own = own_scales(sigmoid, scores.max(axis=0))
    assert own.slopes[0] == np.median(sigmoid.sigmoids_[1:, 0])
    assert own.offsets[0] == np.quantile(sigmoid.sigmoids_[1:, 1], 0.9)
    sigmoid.muted_[:] = True
    nothing = ShrunkenCalibrator.of(own_scales(sigmoid, scores.max(axis=0)), 1.0)
    np.testing.assert_array_equal(nothing.transform(scores), scores)


def test_calibrators_without_scales_are_refused():
    scores, labels = table()
    plain = Uncalibrated().fit(scores, labels)
    assert not can_shrink(plain)
    with pytest.raises(InputError, match=r"^Uncalibrated has no slopes and offsets to be drawn together$"):
        own_scales(plain, scores.max(axis=0))


@pytest.mark.parametrize("strength", [-0.1, 1.1])
def test_a_strength_is_a_share(strength):
    rule = ">= 0" if strength < 0 else "<= 1"
    with pytest.raises(InputError, match=re.escape(f"`strength` must be {rule}, got {strength:g}")):
        ShrunkenCalibrator.of(scales(0), strength)


@pytest.mark.parametrize("seed", range(10))
def test_the_link_is_the_minimum_of_a_slow_search(seed):
    random = np.random.default_rng(seed)
    scores = random.normal(3, 2, 200)
    is_right = random.random(200) < expit(1.5 * (scores - 4))
    weights = random.uniform(0.5, 3, 200)
    slope, centre = fit_link(scores, is_right, weights)
    n_right, n_wrong = weights[is_right].sum(), weights[~is_right].sum()
    targets = np.where(is_right, (n_right + 1) / (n_right + 2), 1 / (n_wrong + 2))

    def loss(at):
        arguments = at[0] * scores + at[1]
        return weights @ (np.logaddexp(0, arguments) - targets * arguments)

    best = minimize(loss, [0.0, 0.0], method="BFGS", options={"gtol": 1e-8})
    assert loss([slope, -slope * centre]) <= best.fun + 1e-6


def test_a_link_never_falls_and_is_the_share_of_the_right_ones_where_nothing_is_to_be_learned():
    scores = np.array([0.0, 1.0, 2.0, 3.0])
    falling = fit_link(scores, np.array([True, True, False, False]))
    assert falling[0] > 0
    shares = expit(falling[0] * (scores - falling[1]))
    np.testing.assert_allclose(shares, 0.5, atol=1e-4)
    constant = fit_link(np.full(4, 7.0), np.array([True, False, False, False]))
    np.testing.assert_allclose(expit(constant[0] * (7.0 - constant[1])), 2 / 6, atol=1e-4)
    assert np.isfinite(fit_link(np.empty(0), np.empty(0, bool))).all()


def test_scores_that_are_parted_do_not_become_certainties():
    scores = np.concatenate([np.full(20, -1.0), np.full(5, 1.0)])
    slope, centre = fit_link(scores, scores > 0)
    highest, lowest = expit(slope * (1 - centre)), expit(slope * (-1 - centre))
    assert highest == pytest.approx(6 / 7, abs=1e-3)
    assert lowest == pytest.approx(1 / 22, abs=1e-3)
