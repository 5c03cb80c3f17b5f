"""Sigmoids: against Nelder-Mead, finite differences, a literal Newton loop and brute force."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from eesvm import InputError
from eesvm.calibration.calibrators import sigmoid
from eesvm.calibration.calibrators.sigmoid import (
    MUTED,
    MUTED_CEILING,
    apply_sigmoids,
    fit_sigmoid,
    fit_sigmoids,
    sigmoid_arguments,
)
from helpers.reference import log_loss, squared_error


def random_case(rng):
    """Scores of one exemplar, from easily separated to upside down, with and without ties, outliers and two modes."""
    n_positives = int(np.exp(rng.uniform(np.log(2), np.log(200))))
    n_negatives = int(np.exp(rng.uniform(0, np.log(2000))))
    kind = rng.integers(6)
    if kind == 3:  # half of the positives look like background
        positives = np.append(rng.normal(3, 0.3, n_positives // 2), rng.normal(-1, 0.5, n_positives - n_positives // 2))
        negatives = rng.normal(-1, 0.7, n_negatives)
    elif kind == 4:  # outliers
        positives, negatives = rng.standard_t(1.5, n_positives), rng.standard_t(1.5, n_negatives) - 1
    else:
        distance = (1.0, 0.0, -1.0, None, None, 0.5)[kind]
        positives, negatives = rng.normal(distance, 1, n_positives), rng.normal(-distance, 1, n_negatives)
    if kind == 5:
        positives, negatives = positives.round(), negatives.round()
    scale = 10 ** rng.uniform(-1, 1.3)
    return positives * scale, negatives * scale


def svm_like_case(rng):
    """What the independent calibration sees: scores above the margin -1, most of them near it, few positives."""
    positives = -1 + np.append(rng.exponential(0.3, rng.integers(5, 300)), rng.normal(1.8, 0.3, rng.integers(1, 9)))
    negatives = -1 + rng.exponential(rng.uniform(0.1, 0.4), rng.integers(200, 3000))
    return positives, negatives


def nelder_mead(positives, negatives, start=None):
    """The original's minimiser from the original's start, but with slope >= 0."""

    def criterion(parameters):
        return squared_error(*parameters, positives, negatives) if parameters[0] >= 0 else np.inf

    return minimize(criterion, start or [3.0, positives.mean()], method="Nelder-Mead")


@pytest.mark.parametrize("make_case", [random_case, svm_like_case])
def test_least_squares_is_never_worse_than_nelder_mead(make_case):
    rng = np.random.default_rng(0)
    n_better = 0
    for _ in range(100):
        positives, negatives = make_case(rng)
        ours = squared_error(*fit_sigmoid(positives, negatives), positives, negatives)
        theirs = nelder_mead(positives, negatives).fun
        assert ours <= theirs * (1 + 1e-6) + 1e-12
        n_better += ours < theirs * (1 - 1e-3)
    if make_case is random_case:
        assert n_better >= 5  # Nelder-Mead does get stuck, which is why there are several starts


def test_least_squares_is_never_worse_than_many_starts():
    rng = np.random.default_rng(1)
    for _ in range(12):
        positives, negatives = random_case(rng)
        scores = np.append(positives, negatives)
        ours = squared_error(*fit_sigmoid(positives, negatives), positives, negatives)
        starts = [
            [slope / scores.std(), np.quantile(scores, q)] for slope in (0.3, 3, 30) for q in (0, 0.3, 0.7, 0.95, 1)
        ]
        assert ours <= min(nelder_mead(positives, negatives, start).fun for start in starts) * (1 + 1e-6) + 1e-12


def test_derivatives_agree_with_finite_differences():
    rng = np.random.default_rng(2)
    points, targets, weights = rng.normal(size=30), rng.integers(0, 2, 30).astype(float), rng.random(30)

    def at(slope, offset):
        return np.array(sigmoid._error_and_derivatives(slope, offset, points, targets, weights, 1e-3))

    step = 1e-5
    along_slope = (at(1.3 + step, -0.4) - at(1.3 - step, -0.4)) / (2 * step)
    along_offset = (at(1.3, -0.4 + step) - at(1.3, -0.4 - step)) / (2 * step)
    _, da, db, daa, dab, dbb = at(1.3, -0.4)
    np.testing.assert_allclose([along_slope[0], along_offset[0]], [da, db], rtol=1e-7)
    np.testing.assert_allclose(
        [along_slope[1], along_slope[2], along_offset[1], along_offset[2]], [daa, dab, dab, dbb], rtol=1e-7
    )


def platt_by_the_book(positives, negatives):
    """Appendix C of Lin, Lin and Weng (2007), line by line: A and B of 1 / (1 + exp(A f + B))."""
    prior1, prior0 = len(positives), len(negatives)
    scores = np.append(positives, negatives)
    targets = np.append(np.full(prior1, (prior1 + 1) / (prior1 + 2)), np.full(prior0, 1 / (prior0 + 2)))

    def loss(a, b):
        return sum(
            t * f + np.log1p(np.exp(-f)) if f >= 0 else (t - 1) * f + np.log1p(np.exp(f))
            for f, t in zip(a * scores + b, targets, strict=True)
        )

    a, b = 0.0, np.log((prior0 + 1) / (prior1 + 1))
    value = loss(a, b)
    for _ in range(100):
        p = expit(-(a * scores + b))
        d1, d2 = targets - p, p * (1 - p)
        g1, g2 = np.sum(scores * d1), np.sum(d1)
        if abs(g1) < 1e-9 and abs(g2) < 1e-9:
            break
        h11, h22, h21 = np.sum(scores**2 * d2) + 1e-12, np.sum(d2) + 1e-12, np.sum(scores * d2)
        det = h11 * h22 - h21 * h21
        step_a, step_b = -(h22 * g1 - h21 * g2) / det, -(-h21 * g1 + h11 * g2) / det
        slope_along_step = g1 * step_a + g2 * step_b
        step = 1.0
        while step >= 1e-10:
            new = loss(a + step * step_a, b + step * step_b)
            if new < value + 1e-4 * step * slope_along_step:
                a, b, value = a + step * step_a, b + step * step_b, new
                break
            step /= 2
        else:
            break
    return a, b


def test_platt_agrees_with_the_published_algorithm():
    rng = np.random.default_rng(3)
    n_rising = 0
    for _ in range(40):
        positives, negatives = random_case(rng)
        a, b = platt_by_the_book(positives, negatives)
        slope, centre = fit_sigmoid(positives, negatives, "platt")
        if a < 0:
            n_rising += 1
            np.testing.assert_allclose([slope, slope * centre], [-a, b], rtol=1e-5, atol=1e-6)
        else:
            targets = np.append(
                np.full(len(positives), (len(positives) + 1) / (len(positives) + 2)),
                np.full(len(negatives), 1 / (len(negatives) + 2)),
            )
            np.testing.assert_allclose(expit(slope * (positives - centre)), targets.mean(), rtol=1e-6)
    assert 20 <= n_rising < 40


def test_platt_minimises_its_criterion():
    rng = np.random.default_rng(4)
    for _ in range(30):
        positives, negatives = random_case(rng)
        ours = log_loss(*fit_sigmoid(positives, negatives, "platt"), positives, negatives)
        start = [1 / np.append(positives, negatives).std(), positives.mean()]
        theirs = minimize(
            lambda p, *data: log_loss(p[0], p[1], *data) if p[0] >= 0 else np.inf,
            start,
            args=(positives, negatives),
            method="Nelder-Mead",
        )
        assert ours <= theirs.fun * (1 + 1e-8)


@pytest.mark.parametrize("criterion", ["least_squares", "platt"])
def test_slope_is_positive_even_when_positives_score_lower(criterion):
    rng = np.random.default_rng(5)
    positives, negatives = rng.normal(-2, 0.5, 50), rng.normal(2, 0.5, 150)
    slope, centre = fit_sigmoid(positives, negatives, criterion)
    assert slope > 0
    assert np.isfinite(centre)
    probabilities = expit(slope * (np.append(positives, negatives) - centre))
    np.testing.assert_allclose(probabilities, 0.25, atol=0.01)  # constant: the share of positives


@pytest.mark.parametrize("criterion", ["least_squares", "platt"])
@pytest.mark.parametrize("value", [0.1, 7.0])
def test_equal_scores_give_the_share_of_positives(criterion, value):
    slope, centre = fit_sigmoid(np.full(30, value), np.full(90, value), criterion)
    np.testing.assert_allclose(expit(slope * (value + np.array([-0.1, 0, 0.1]) - centre)), 0.25, atol=0.01)


@pytest.mark.parametrize("criterion", ["least_squares", "platt"])
def test_fits_move_with_the_scores(criterion):
    rng = np.random.default_rng(6)
    positives, negatives = rng.normal(0, 1, 40), rng.normal(-1, 1, 400)
    slope, centre = fit_sigmoid(positives, negatives, criterion)
    moved = fit_sigmoid(positives + 5, negatives + 5, criterion)
    np.testing.assert_allclose(moved, (slope, centre + 5), rtol=1e-6)
    shuffled = fit_sigmoid(rng.permutation(positives), rng.permutation(negatives), criterion)
    assert shuffled == (slope, centre)
    in_float32 = fit_sigmoid(positives.astype(np.float32), negatives.astype(np.float32), criterion)
    np.testing.assert_allclose(in_float32, (slope, centre), rtol=1e-4)


@pytest.mark.parametrize("criterion", ["least_squares", "platt"])
@pytest.mark.parametrize("scale", [1e-200, 1e-20, 1e20, 1e200])
def test_scores_of_any_size_give_numbers(criterion, scale):
    rng = np.random.default_rng(11)
    positives, negatives = scale * rng.normal(1, 1, 30), scale * rng.normal(-1, 1, 90)
    slope, centre = fit_sigmoid(positives, negatives, criterion)
    probabilities = expit(slope * (np.append(positives, negatives) - centre))
    assert np.isfinite(probabilities).all()
    if criterion == "platt" or scale > 1:  # for tiny scores the penalty of the slope allows a constant only
        assert probabilities[:30].mean() > probabilities[30:].mean() + 0.2


@pytest.mark.parametrize(
    ("n_positives", "n_negatives", "min_positives", "is_muted"),
    [
        (0, 5, 2, True),
        (1, 5, 2, True),
        (2, 5, 2, False),
        (2, 0, 2, True),
        (1, 5, 1, False),
        (0, 5, 1, True),
        (4, 5, 5, True),
    ],
)
def test_too_few_windows_mute(n_positives, n_negatives, min_positives, is_muted):
    rng = np.random.default_rng(7)
    positives, negatives = rng.normal(1, 1, (n_positives, 1)), rng.normal(-1, 1, (n_negatives, 1))
    fitted = fit_sigmoid(positives[:, 0], negatives[:, 0], min_positives=min_positives)
    assert (fitted == MUTED) == is_muted
    sigmoids, muted = fit_sigmoids(positives, negatives, min_positives=min_positives)
    assert muted.tolist() == [is_muted]
    assert tuple(sigmoids[0]) == fitted


def test_muted_exemplars_stay_low_at_any_score():
    scores = np.array([[0.0, 0.0], [60.0, 60.0], [1e6, 1e6]])
    probabilities = apply_sigmoids(scores, np.array([MUTED, MUTED]), np.array([True, False]))
    np.testing.assert_allclose(probabilities[0], expit(-10.0))
    assert probabilities[1:, 0].tolist() == [MUTED_CEILING, MUTED_CEILING]
    assert probabilities[2, 1] == 1.0


def test_arguments_order_what_probabilities_cannot():
    scores, sigmoids = np.array([[500.0, 600.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])
    assert apply_sigmoids(scores, sigmoids, np.zeros(2, dtype=bool)).tolist() == [[1.0, 1.0]]
    assert sigmoid_arguments(scores, sigmoids).tolist() == [[500.0, 600.0]]


def small_table(seed, n_positives=12, n_negatives=400, n_exemplars=5):
    rng = np.random.default_rng(seed)
    return rng.normal(0, 1, (n_positives, n_exemplars)), rng.normal(-1, 1, (n_negatives, n_exemplars))


def test_each_exemplar_is_fitted_to_its_own_windows():
    positives, negatives = small_table(8)
    keep = positives > -0.2
    sigmoids, _ = fit_sigmoids(positives, negatives, keep, lowest_negative=-1.5)
    for j in range(5):
        column = negatives[:, j]
        assert tuple(sigmoids[j]) == fit_sigmoid(positives[keep[:, j], j], column[column >= -1.5])


def test_thinning_draws_the_same_windows_for_all_exemplars():
    positives, negatives = small_table(9)
    sigmoids, _ = fit_sigmoids(positives, negatives, max_negatives_per_positive=10, random_state=3)
    drawn = np.random.default_rng(3).permutation(400)[:120]
    for j in range(5):
        assert tuple(sigmoids[j]) == fit_sigmoid(positives[:, j], negatives[drawn, j])
    other, _ = fit_sigmoids(positives, negatives, max_negatives_per_positive=10, random_state=4)
    assert (other != sigmoids).any()
    everything, _ = fit_sigmoids(positives, negatives, max_negatives_per_positive=None)
    assert tuple(everything[0]) == fit_sigmoid(positives[:, 0], negatives[:, 0])


@pytest.mark.parametrize("criterion", ["least_squares", "platt"])
def test_threads_and_the_order_of_exemplars_change_nothing(criterion):
    positives, negatives = small_table(10)
    options = {"criterion": criterion, "max_negatives_per_positive": 20}
    alone, _ = fit_sigmoids(positives, negatives, n_jobs=1, **options)
    for n_jobs in (2, None):
        np.testing.assert_array_equal(fit_sigmoids(positives, negatives, n_jobs=n_jobs, **options)[0], alone)
    np.testing.assert_array_equal(fit_sigmoids(positives[:, ::-1], negatives[:, ::-1], **options)[0], alone[::-1])


def test_an_unknown_criterion_is_refused():
    message = "^`criterion` must be one of 'least_squares', 'platt', got 'mse'$"
    with pytest.raises(InputError, match=message):
        fit_sigmoid(np.ones(3), np.zeros(3), "mse")
    with pytest.raises(InputError, match=message):
        fit_sigmoids(np.ones((3, 1)), np.zeros((3, 1)), criterion="mse")
