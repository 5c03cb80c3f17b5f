"""JointCalibrator: thresholds are what the search found, sigmoids follow the covered positives."""

import json

import numpy as np
import pytest
from scipy.special import expit

from eesvm import CalibrationProblem, InputError, JointCalibrator, solve
from eesvm.calibration.calibrators.joint import covered_pairs, own_image_pairs, spreads
from eesvm.calibration.calibrators.sigmoid import MUTED, fit_sigmoid


def table(seed=0, n_positives=25, n_negatives=150, n_exemplars=5, dtype=np.float64):
    """Each positive looks like one exemplar; windows come from ten images, exemplars from the first five."""
    rng = np.random.default_rng(seed)
    positives = rng.normal(-1, 0.8, (n_positives, n_exemplars))
    positives[np.arange(n_positives), rng.integers(n_exemplars, size=n_positives)] += 2
    negatives = rng.normal(-1, 0.8, (n_negatives, n_exemplars))
    order = rng.permutation(n_positives + n_negatives)
    y = np.repeat([1, 0], [n_positives, n_negatives])[order]
    S = np.vstack((positives, negatives))[order].astype(dtype)
    return S, y, rng.integers(10, size=len(S)), np.arange(n_exemplars)


def loop_over_pairs(S, thresholds):
    """Accepted windows, the slow way."""
    return np.array([any(s > t for s, t in zip(row, thresholds, strict=True)) for row in S])


def test_thresholds_are_those_of_the_search():
    S, y, _, _ = table()
    calibrator = JointCalibrator().fit(S, y)
    result = solve(CalibrationProblem(S[y == 1], S[y == 0]))
    np.testing.assert_array_equal(calibrator.thresholds_, result.thresholds)
    assert calibrator.result_.loss == result.loss
    assert calibrator.result_.status == "optimal"
    np.testing.assert_array_equal(calibrator.active_, calibrator.thresholds_ < np.inf)


@pytest.mark.parametrize("sigmoid", [False, True])
@pytest.mark.parametrize("min_recall", [1.0, 0.8])
def test_predict_is_acceptance_by_the_thresholds(sigmoid, min_recall):
    S, y, _, _ = table()
    calibrator = JointCalibrator(sigmoid=sigmoid, min_recall=min_recall).fit(S, y)
    accepted = loop_over_pairs(S, calibrator.thresholds_)
    np.testing.assert_array_equal(calibrator.predict(S), accepted.astype(int))
    assert accepted[y == 1].mean() >= min_recall
    assert accepted[y == 0].sum() == calibrator.result_.loss


@pytest.mark.parametrize("seed", range(20))
def test_margins_in_units_of_the_spread_do_not_depend_on_units(seed):
    S, y, _, _ = table(seed=seed)
    units = 2.0 ** np.random.default_rng(seed).integers(-12, 13, S.shape[1])  # powers of two round nothing
    plain, scaled, other = JointCalibrator(), JointCalibrator(scale="spread"), JointCalibrator(scale="spread")
    for calibrator, scores in ((plain, S), (scaled, S), (other, S * units)):
        calibrator.fit(scores, y)
    np.testing.assert_allclose(scaled.scales_, S.std(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(scaled.transform(S), (S - scaled.thresholds_) / scaled.scales_)
    np.testing.assert_array_equal(scaled.decision_function(S), scaled.transform(S).max(axis=1))
    np.testing.assert_array_equal(scaled.predict(S), plain.predict(S))
    np.testing.assert_array_equal(scaled.decision_function(S) > 0, plain.decision_function(S) > 0)
    np.testing.assert_array_equal(other.predict(S * units), scaled.predict(S))
    np.testing.assert_allclose(other.transform(S * units), scaled.transform(S), rtol=1e-9)
    np.testing.assert_array_equal(other.assign(S * units), scaled.assign(S))


def test_spreads_of_odd_columns():
    column = np.array([1.0, 2.0, 4.0])
    odd = np.stack([column, np.full(3, 0.1), [1e308, -1e308, 0], column * 1e-200], axis=1)
    np.testing.assert_allclose(spreads(odd[:1], odd[1:]), [column.std(), 1, 1, 1], rtol=1e-12)


def test_another_scale_needs_another_fit():
    S, y, _, _ = table()
    calibrator = JointCalibrator().fit(S, y).set_params(scale="spread")
    with pytest.raises(InputError, match=r"^`scale` was changed after `fit`: call `fit` again$"):
        calibrator.transform(S)
    with pytest.raises(InputError, match=r"^`scale` must be one of 'none', 'spread', got 'wide'$"):
        calibrator.set_params(scale="wide").fit(S, y)


def test_without_sigmoid_transform_is_the_margin():
    S, y, _, _ = table(dtype=np.float32)
    calibrator = JointCalibrator().fit(S, y)
    calibrator.thresholds_[3] = np.inf
    margins = calibrator.transform(S)
    assert margins.dtype == np.float32
    assert (margins[:, 3] == -np.inf).all()
    np.testing.assert_array_equal(margins, S - calibrator.thresholds_)
    np.testing.assert_array_equal(calibrator.decision_function(S), margins.max(axis=1))
    np.testing.assert_array_equal(calibrator.decision_function(S) > 0, calibrator.predict(S) == 1)
    np.testing.assert_array_equal(calibrator.assign(S), margins.argmax(axis=1))


@pytest.mark.parametrize("criterion", ["least_squares", "platt"])
@pytest.mark.parametrize("across_images", [False, True])
def test_sigmoids_are_fitted_to_covered_positives_and_all_negatives(criterion, across_images):
    S, y, groups, exemplar_groups = table(seed=1)
    calibrator = JointCalibrator(sigmoid=True, criterion=criterion, method="greedy")
    if across_images:
        calibrator.set_params(exemplar_groups=exemplar_groups).fit(S, y, groups=groups)
    else:
        calibrator.fit(S, y)
    probabilities = calibrator.transform(S)
    for j, threshold in enumerate(calibrator.thresholds_):
        positives = [
            S[i, j]
            for i in range(len(S))
            if y[i] == 1 and S[i, j] > threshold and not (across_images and groups[i] == exemplar_groups[j])
        ]
        slope, centre = fit_sigmoid(np.array(positives), S[y == 0, j], criterion)
        assert tuple(calibrator.sigmoids_[j]) == (slope, centre)
        assert calibrator.muted_[j] == (len(positives) < 2)
        expected = expit(slope * (S[:, j] - centre)) if threshold < np.inf else np.zeros(len(S))
        np.testing.assert_allclose(probabilities[:, j], expected, rtol=1e-12)
    np.testing.assert_array_equal(calibrator.decision_function(S), probabilities.max(axis=1))


def test_redundant_exemplars_have_probability_zero():
    S, y, _, _ = table()
    S[:, 2] = np.where(y == 1, -5.0, 5.0)  # scores background only
    calibrator = JointCalibrator(sigmoid=True).fit(S, y)
    assert not calibrator.active_[2]
    assert calibrator.thresholds_[2] == np.inf
    assert calibrator.muted_[2]
    assert tuple(calibrator.sigmoids_[2]) == MUTED
    assert (calibrator.transform(S)[:, 2] == 0).all()
    assert not (calibrator.assign(S) == 2).any()


def test_ties_of_probabilities_go_to_the_largest_margin():
    S, y, _, _ = table()
    calibrator = JointCalibrator(sigmoid=True).fit(S, y)
    calibrator.sigmoids_ = np.tile([1.0, 0.0], (5, 1))
    calibrator.thresholds_ = np.array([10.0, 20.0, 5.0, 5.0, np.inf])
    calibrator.active_ = calibrator.thresholds_ < np.inf
    calibrator.muted_ = np.zeros(5, dtype=bool)
    saturated = np.array([[50.0, 90.0, 80.0, 80.0, 99.0]])
    assert calibrator.transform(saturated).tolist() == [[1.0, 1.0, 1.0, 1.0, 0.0]]
    assert calibrator.assign(saturated).tolist() == [2]
    underflown = np.full((1, 5), -800.0)
    assert not calibrator.transform(underflown).any()
    assert calibrator.assign(underflown).tolist() == [2]


def test_across_images_forbids_pairs_of_one_image():
    S, y, groups, exemplar_groups = table()
    names = np.array([f"image {i}" for i in range(10)])
    calibrator = JointCalibrator(exemplar_groups=exemplar_groups).fit(S, y, groups=groups)
    forbidden = groups[y == 1][:, None] == exemplar_groups[None, :]
    result = solve(CalibrationProblem(S[y == 1], S[y == 0], forbidden=forbidden))
    np.testing.assert_array_equal(calibrator.thresholds_, result.thresholds)
    named = JointCalibrator(exemplar_groups=names[exemplar_groups].astype(object)).fit(S, y, groups=names[groups])
    np.testing.assert_array_equal(named.thresholds_, result.thresholds)
    assert result.loss >= JointCalibrator().fit(S, y).result_.loss


@pytest.mark.parametrize("sigmoid", [False, True])
def test_bounds_on_thresholds_reach_the_problem(sigmoid):
    S, y, _, _ = table(dtype=np.float32)
    lower = [-np.inf, 0.5, -np.inf, np.inf, -1]
    upper = [np.inf, 0.5, 1, np.inf, 0]
    calibrator = JointCalibrator(sigmoid=sigmoid, min_recall=0.8, lower_thresholds=lower, upper_thresholds=upper).fit(
        S, y
    )
    problem = CalibrationProblem(S[y == 1], S[y == 0], lower_thresholds=lower, upper_thresholds=upper)
    result = solve(problem, min_recall=0.8)
    np.testing.assert_array_equal(calibrator.thresholds_, result.thresholds)
    assert calibrator.thresholds_[1] == 0.5
    assert calibrator.active_.tolist() == [True, True, True, False, True]
    assert calibrator.result_.loss == loop_over_pairs(S, calibrator.thresholds_)[y == 0].sum()
    assert calibrator.lower_thresholds is lower  # as it was given
    assert np.isneginf(calibrator.transform(S)[:, 3]).all() or sigmoid
    free = JointCalibrator(sigmoid=sigmoid, min_recall=0.8).fit_problem(problem)
    np.testing.assert_array_equal(free.thresholds_, result.thresholds)


def test_own_image_pairs_and_covered_pairs_agree_with_loops():
    S, y, groups, exemplar_groups = table()
    forbidden = own_image_pairs(groups, exemplar_groups, y == 1, 5)
    images = groups[y == 1]
    assert forbidden.tolist() == [[image == exemplar for exemplar in exemplar_groups] for image in images]
    problem = CalibrationProblem(S[y == 1], S[y == 0], forbidden=forbidden)
    thresholds = np.array([0.0, -1.0, np.inf, 0.5, -0.5])
    covered = covered_pairs(problem, thresholds)
    for p, row in enumerate(S[y == 1]):
        for j in range(5):
            assert covered[p, j] == (row[j] > thresholds[j] and images[p] != exemplar_groups[j])
    assert own_image_pairs(None, None, y == 1, 5) is None


@pytest.mark.parametrize("sigmoid", [False, True])
def test_shifting_a_column_shifts_its_threshold(sigmoid):
    S, y, _, _ = table(seed=2)
    shift = np.array([0.0, 4.0, -2.0, 0.5, 0.0])
    before = JointCalibrator(sigmoid=sigmoid).fit(S, y)
    after = JointCalibrator(sigmoid=sigmoid).fit(S + shift, y)
    assert after.result_.loss == before.result_.loss
    np.testing.assert_allclose(after.thresholds_, before.thresholds_ + shift, rtol=1e-12)
    np.testing.assert_allclose(after.transform(S + shift), before.transform(S), rtol=1e-5, atol=1e-9)
    np.testing.assert_array_equal(after.predict(S + shift), before.predict(S))


def test_the_order_of_windows_and_exemplars_does_not_change_the_loss():
    S, y, _, _ = table(seed=3)
    rng = np.random.default_rng(0)
    loss = JointCalibrator().fit(S, y).result_.loss
    rows, columns = rng.permutation(len(S)), rng.permutation(5)
    assert JointCalibrator().fit(S[rows], y[rows]).result_.loss == loss
    assert JointCalibrator().fit(S[:, columns], y).result_.loss == loss


def test_threads_change_nothing():
    S, y, _, _ = table()
    alone = JointCalibrator(sigmoid=True, n_jobs=1).fit(S, y)
    together = JointCalibrator(sigmoid=True, n_jobs=2).fit(S, y)
    np.testing.assert_array_equal(alone.thresholds_, together.thresholds_)
    np.testing.assert_array_equal(alone.sigmoids_, together.sigmoids_)
    np.testing.assert_array_equal(alone.transform(S), together.transform(S))


def test_options_reach_the_search():
    S, y, _, _ = table()
    seen = []
    calibrator = JointCalibrator(method="algorithm1", node_limit=1, progress=seen.append).fit(S, y)
    assert calibrator.result_.method == "algorithm1"
    assert seen
    assert JointCalibrator(method="greedy").fit(S, y).result_.method == "greedy"
    start = calibrator.thresholds_
    assert JointCalibrator(start=start).fit(S, y).result_.loss <= calibrator.result_.loss


def test_a_second_fit_forgets_the_first():
    S, y, groups, exemplar_groups = table()
    calibrator = JointCalibrator(sigmoid=True, exemplar_groups=exemplar_groups).fit(S, y, groups)
    calibrator.set_params(exemplar_groups=None, sigmoid=False).fit(S[:, :3], y)
    assert calibrator.transform(S[:, :3]).shape == (len(S), 3)
    np.testing.assert_array_equal(calibrator.transform(S[:, :3]), S[:, :3] - calibrator.thresholds_)


@pytest.mark.parametrize(
    ("exemplar_groups", "groups", "message"),
    [
        (None, np.zeros(175), "`groups` is given but `exemplar_groups` is not: the image of each detector is missing"),
        (np.zeros(5), None, "`exemplar_groups` is given but `groups` is not: `fit` needs the image of each window"),
        (np.zeros(5), np.zeros(9), "`groups` must have one group per window, shape (175,), got shape (9,)"),
        (np.zeros(4), np.zeros(175), "`exemplar_groups` must have one group per detector, shape (5,), got shape (4,)"),
        (
            np.zeros(5, dtype=np.int64),
            np.full(175, "0"),
            "`groups` and `exemplar_groups` must be of one kind, got dtypes <U1 and int64",
        ),
    ],
)
def test_images_must_fit_together(exemplar_groups, groups, message):
    S, y, _, _ = table()
    with pytest.raises(InputError) as caught:
        JointCalibrator(exemplar_groups=exemplar_groups).fit(S, y, groups=groups)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "best"}, "`method` must be one of 'exact', 'algorithm1', 'exhaustive', 'greedy', got 'best'"),
        ({"min_recall": 0}, "`min_recall` must be > 0, got 0"),
        ({"time_limit": -1}, "`time_limit` must be >= 0, got -1"),
        ({"gap": -0.1}, "`gap` must be >= 0, got -0.1"),
        ({"criterion": "mse"}, "`criterion` must be one of 'least_squares', 'platt', got 'mse'"),
        ({"min_positives": 0}, "`min_positives` must be >= 1, got 0"),
        ({"n_jobs": 0}, "`n_jobs` must be >= 1, got 0"),
        ({"upper_thresholds": np.zeros(4)}, "`upper_thresholds` must have shape (5,), got (4,)"),
        (
            {"lower_thresholds": np.ones(5), "upper_thresholds": np.zeros(5)},
            "`lower_thresholds` must be <= `upper_thresholds`, got 1 and 0 for detector 0",
        ),
    ],
)
def test_bad_parameters_are_refused_in_fit(options, message):
    S, y, _, _ = table()
    with pytest.raises(InputError) as caught:
        JointCalibrator(**options).fit(S, y)
    assert str(caught.value) == message


def test_thresholds_as_plain_numbers():
    S, y, _, _ = table(dtype=np.float32)
    S[:, 2] = -5  # of no use
    calibrator = JointCalibrator(min_recall=0.9).fit(S, y)
    limits = calibrator.to_dict()
    assert list(limits) == [f"exemplar_{j}" for j in range(5)]
    assert limits["exemplar_2"] is None
    reached = calibrator.to_dict(at_least=True, off=99.0)
    assert reached["exemplar_2"] == 99
    accepted = [any(float(s) >= limit for s, limit in zip(row, reached.values(), strict=True)) for row in S]
    np.testing.assert_array_equal(calibrator.predict(S) == 1, accepted)
    assert json.loads(json.dumps(limits)) == limits
    calibrator.exemplar_names_ = list("abcde")
    assert list(calibrator.to_dict()) == list("abcde")


def test_thresholds_that_are_not_there():
    with pytest.raises(
        InputError, match=r"^This JointCalibrator is not fitted yet: call `fit` with scores and labels$"
    ):
        JointCalibrator().to_dict()
    S, y, _, _ = table()
    voting = JointCalibrator(n_bootstraps=2, method="greedy").fit(S, y)
    with pytest.raises(InputError, match=r"^a vote of refits has no thresholds of its own: fit with `n_bootstraps=0`$"):
        voting.to_dict()
