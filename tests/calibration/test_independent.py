"""Calibrators of one exemplar at a time: against loops, scikit-learn and hand-made tables."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.isotonic import IsotonicRegression

from eesvm import AffineCalibrator, InputError, IsotonicCalibrator, SigmoidCalibrator, Uncalibrated
from eesvm.calibration.calibrators.base import winning_exemplar
from eesvm.calibration.calibrators.independent import apply_steps, fit_affine, fit_steps
from eesvm.calibration.calibrators.sigmoid import MUTED, fit_sigmoid

CALIBRATORS = [
    Uncalibrated(),
    SigmoidCalibrator(),
    SigmoidCalibrator("platt"),
    IsotonicCalibrator(),
    AffineCalibrator(),
]


def table(seed=0, n_positives=40, n_negatives=300, n_exemplars=6, dtype=np.float64):
    rng = np.random.default_rng(seed)
    positives = rng.normal(-0.5, 1, (n_positives, n_exemplars))
    negatives = rng.normal(-1.2, 0.7, (n_negatives, n_exemplars))
    order = rng.permutation(n_positives + n_negatives)
    y = np.repeat([1, 0], [n_positives, n_negatives])
    return np.vstack((positives, negatives))[order].astype(dtype), y[order]


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=repr)
def test_the_maximum_decides(calibrator):
    S, y = table()
    calibrated = calibrator.fit(S, y).transform(S)
    assert calibrated.shape == S.shape
    np.testing.assert_array_equal(calibrator.decision_function(S), calibrated.max(axis=1))
    accept_above = 0.5 if isinstance(calibrator, SigmoidCalibrator | IsotonicCalibrator) else 0.0
    np.testing.assert_array_equal(calibrator.predict(S), (calibrated.max(axis=1) > accept_above).astype(int))
    winners = calibrator.assign(S)
    np.testing.assert_array_equal(calibrated[np.arange(len(S)), winners], calibrated.max(axis=1))


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=repr)
def test_calibrated_scores_never_fall_with_the_score(calibrator):
    S, y = table()
    calibrator.fit(S, y)
    ladder = np.repeat(np.linspace(-5, 5, 101)[:, None], 6, axis=1)
    assert (np.diff(calibrator.transform(ladder), axis=0) >= 0).all()


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=repr)
def test_the_order_of_windows_and_exemplars_does_not_matter(calibrator):
    S, y = table()
    rng = np.random.default_rng(1)
    expected = calibrator.fit(S, y).transform(S)
    rows, columns = rng.permutation(len(S)), rng.permutation(6)
    np.testing.assert_allclose(calibrator.fit(S[rows], y[rows]).transform(S), expected, rtol=1e-12)
    np.testing.assert_allclose(calibrator.fit(S[:, columns], y).transform(S[:, columns]), expected[:, columns])


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=repr)
@pytest.mark.parametrize("labels", [(False, True), (-1, 1), ("background", "cell"), (3, 8), (0.0, 1.0)])
@pytest.mark.parametrize("order", [1, -1])
def test_labels_of_every_kind(calibrator, labels, order):
    S, y = table()
    calibrator = clone(calibrator)
    expected = calibrator.fit(S, y).transform(S)
    is_positive = calibrator.predict(S) == 1
    labels = labels[::order]
    named = np.array(labels)[y]
    if labels not in [(False, True), (-1, 1), (0.0, 1.0)]:
        calibrator.set_params(pos_label=labels[1])
    np.testing.assert_array_equal(calibrator.fit(S, named).transform(S), expected)
    np.testing.assert_array_equal(calibrator.classes_, labels)
    np.testing.assert_array_equal(calibrator.predict(S), np.array(labels)[is_positive.astype(int)])


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=repr)
@pytest.mark.parametrize(
    ("labels", "pos_label", "message"),
    [
        (("bad", "good"), None, "`y` holds the labels 'bad' and 'good': say which one is positive by `pos_label`"),
        ((3, 8), None, "`y` holds the labels 3 and 8: say which one is positive by `pos_label`"),
        (("0", "1"), None, "`y` holds the labels '0' and '1': say which one is positive by `pos_label`"),
        (("bad", "good"), "ugly", "`pos_label` must be one of the labels in `y`, 'bad' or 'good', got 'ugly'"),
        (("0", "1"), 1, "`pos_label` must be one of the labels in `y`, '0' or '1', got 1"),
        ((0, 1), "1", "`pos_label` must be one of the labels in `y`, 0 or 1, got '1'"),
    ],
)
def test_which_label_is_positive_is_not_guessed(calibrator, labels, pos_label, message):
    S, y = table()
    with pytest.raises(InputError) as caught:
        clone(calibrator).set_params(pos_label=pos_label).fit(S, np.array(labels)[y])
    assert str(caught.value) == message


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=repr)
def test_float32_scores_are_understood(calibrator):
    S, y = table(dtype=np.float32)
    expected = calibrator.fit(S.astype(np.float64), y).transform(S.astype(np.float64))
    np.testing.assert_allclose(calibrator.fit(S, y).transform(S), expected, rtol=1e-5, atol=1e-6)


def test_uncalibrated_hands_out_a_copy():
    S, y = table()
    calibrated = Uncalibrated().fit(S, y).transform(S)
    np.testing.assert_array_equal(calibrated, S)
    calibrated[:] = 0
    assert S.any()


@pytest.mark.parametrize("margin", [-1.0, -0.3, None])
@pytest.mark.parametrize("criterion", ["least_squares", "platt"])
def test_sigmoids_use_the_windows_above_the_margin(margin, criterion):
    S, y = table()
    calibrator = SigmoidCalibrator(criterion, margin=margin).fit(S, y)
    for j in range(6):
        lowest = -np.inf if margin is None else margin
        positives = [s for s, label in zip(S[:, j], y, strict=True) if label == 1 and s >= lowest]
        negatives = [s for s, label in zip(S[:, j], y, strict=True) if label == 0 and s >= lowest]
        slope, centre = fit_sigmoid(np.array(positives), np.array(negatives), criterion)
        assert tuple(calibrator.sigmoids_[j]) == (slope, centre)
        np.testing.assert_allclose(calibrator.transform(S)[:, j], expit(slope * (S[:, j] - centre)), rtol=1e-12)
    assert not calibrator.muted_.any()


def test_an_exemplar_without_windows_above_the_margin_is_muted():
    S, y = table()
    S[:, 2] = np.minimum(S[:, 2], -1.001)
    S[:, 4] = np.where(y == 1, S[:, 4], -3)
    calibrator = SigmoidCalibrator().fit(S, y)
    assert calibrator.muted_.tolist() == [False, False, True, False, True, False]
    assert tuple(calibrator.sigmoids_[2]) == tuple(calibrator.sigmoids_[4]) == MUTED
    assert (calibrator.transform(S)[:, [2, 4]] < 1e-4).all()
    assert SigmoidCalibrator(min_positives=41).fit(S, y).muted_.all()


def test_saturated_sigmoids_are_told_apart_by_their_arguments():
    S, y = table()
    calibrator = SigmoidCalibrator().fit(S, y)
    calibrator.sigmoids_ = np.tile([1.0, 0.0], (6, 1))
    high = np.array([[50.0, 70.0, 60.0, 70.0, 1.0, 0.0]])
    assert calibrator.transform(high)[0, :4].tolist() == [1.0] * 4
    assert calibrator.assign(high).tolist() == [1]


def pool_adjacent_violators(scores, labels):
    """The slow way: merge neighbouring blocks while their means fall; equal scores start in one block."""
    blocks = [[labels[scores == value].sum(), (scores == value).sum(), value] for value in np.unique(scores)]
    merged = True
    while merged:
        merged = False
        for i in range(len(blocks) - 1):
            if blocks[i][0] / blocks[i][1] >= blocks[i + 1][0] / blocks[i + 1][1]:
                total, count, _ = blocks.pop(i + 1)
                blocks[i][0] += total
                blocks[i][1] += count
                merged = True
                break
    return np.array([begin for _, _, begin in blocks]), np.array([total / count for total, count, _ in blocks])


@pytest.mark.parametrize("decimals", [0, 1, 8])
def test_steps_agree_with_slow_pooling_and_scikit_learn(decimals):
    S, y = table(n_positives=20, n_negatives=60)
    for column in S.T.round(decimals):
        begins, values = fit_steps(column, y == 1)
        slow_begins, slow_values = pool_adjacent_violators(column, y)
        np.testing.assert_array_equal(begins, slow_begins)
        np.testing.assert_allclose(values, slow_values, rtol=1e-12)
        theirs = IsotonicRegression().fit(column, y).predict(column)
        np.testing.assert_allclose(apply_steps(column, begins, values), theirs, rtol=1e-12)


def test_steps_are_constant_between_scores_and_beyond():
    begins, values = fit_steps(np.array([0.0, 1.0, 2.0, 3.0]), np.array([False, True, False, True]))
    np.testing.assert_array_equal(begins, [0.0, 1.0, 3.0])
    np.testing.assert_array_equal(values, [0.0, 0.5, 1.0])
    asked = np.array([-9.0, 0.0, 0.99, 1.0, 2.0, 2.99, 3.0, 9.0])
    assert apply_steps(asked, begins, values).tolist() == [0, 0, 0, 0.5, 0.5, 0.5, 1, 1]


def test_isotonic_ties_go_to_the_higher_raw_score():
    S, y = table()
    calibrator = IsotonicCalibrator().fit(S, y)
    high = np.array([[7.0, 9.0, 8.0, 9.0, 7.0, 7.0]])
    assert (calibrator.transform(high) == 1).all()
    assert calibrator.assign(high).tolist() == [1]


def test_affine_takes_the_mean_to_minus_one_and_the_quantile_to_zero():
    S, y = table()
    calibrator = AffineCalibrator(quantile=0.99).fit(S, y)
    negatives = S[y == 0]
    at_mean = calibrator.transform(negatives.mean(axis=0)[None])
    at_quantile = calibrator.transform(np.quantile(negatives, 0.99, axis=0)[None])
    np.testing.assert_allclose(at_mean, -1, rtol=1e-12)
    np.testing.assert_allclose(at_quantile, 0, atol=1e-12)
    assert (calibrator.transform(negatives) > 0).sum(axis=0).tolist() == [3] * 6
    without_positives = AffineCalibrator(quantile=0.99).fit(np.vstack((negatives, S[:1] + 50)), np.append(y[y == 0], 1))
    np.testing.assert_array_equal(without_positives.scale_, calibrator.scale_)


def test_affine_mutes_a_column_without_height():
    negatives = np.array([[0.1, 1.0, 5.0], [0.1, 2.0, 0.0], [0.1, 4.0, 5.0]], dtype=np.float32)
    scales, offsets = fit_affine(negatives, 0.5)
    assert scales[[0, 1]].tolist() == [0.0, 0.0]  # constant, and a median below the mean
    assert offsets[[0, 1]].tolist() == [-np.inf, -np.inf]
    assert scales[2] > 0
    S, y = table()
    S[:, 3] = 0.7
    calibrator = AffineCalibrator().fit(S, y)
    assert calibrator.muted_.tolist() == [False, False, False, True, False, False]
    assert (calibrator.transform(S)[:, 3] == -np.inf).all()
    assert not (calibrator.assign(S) == 3).any()


def test_affine_draws_negatives():
    S, y = table()
    few = AffineCalibrator(max_negatives=50, random_state=5).fit(S, y)
    np.testing.assert_array_equal(few.scale_, AffineCalibrator(max_negatives=50, random_state=5).fit(S, y).scale_)
    drawn = np.random.default_rng(5).choice(np.flatnonzero(y == 0), 50, replace=False)
    np.testing.assert_array_equal(few.scale_, fit_affine(S[drawn], 0.9999)[0])
    assert (few.scale_ != AffineCalibrator().fit(S, y).scale_).all()


@pytest.mark.parametrize(
    "calibrator", [SigmoidCalibrator(), SigmoidCalibrator("platt"), IsotonicCalibrator()], ids=repr
)
def test_threads_change_nothing(calibrator):
    S, y = table()
    alone = calibrator.set_params(n_jobs=1).fit(S, y).transform(S)
    np.testing.assert_array_equal(calibrator.set_params(n_jobs=2).fit(S, y).transform(S), alone)
    np.testing.assert_array_equal(calibrator.set_params(n_jobs=None).fit(S, y).transform(S), alone)


def test_winning_exemplar_breaks_ties_in_order():
    calibrated = np.array([[1.0, 2.0, 2.0], [0.0, 0.0, 0.0], [3.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    tie_breaker = np.array([[9.0, 1.0, 2.0], [1.0, 1.0, 0.0], [0.0, 9.0, 9.0], [-np.inf, -np.inf, 5.0]])
    assert winning_exemplar(calibrated, tie_breaker).tolist() == [2, 0, 0, 0]


def test_large_tables_are_judged_in_blocks(monkeypatch):
    S, y = table()
    calibrator = SigmoidCalibrator().fit(S, y)
    expected = calibrator.decision_function(S), calibrator.predict(S), calibrator.assign(S)
    monkeypatch.setattr("eesvm._support.validation._BLOCK_ELEMENTS", 50)
    for now, before in zip(
        (calibrator.decision_function(S), calibrator.predict(S), calibrator.assign(S)), expected, strict=True
    ):
        np.testing.assert_array_equal(now, before)


@pytest.mark.parametrize(
    ("calibrator", "message"),
    [
        (SigmoidCalibrator(criterion="mse"), "`criterion` must be one of 'least_squares', 'platt', got 'mse'"),
        (SigmoidCalibrator(margin="low"), "`margin` must be a number, got 'low'"),
        (SigmoidCalibrator(min_positives=0), "`min_positives` must be >= 1, got 0"),
        (SigmoidCalibrator(max_negatives_per_positive=0.5), "`max_negatives_per_positive` must be an integer, got 0.5"),
        (SigmoidCalibrator(random_state=None), "`random_state` must be an integer, got None"),
        (SigmoidCalibrator(n_jobs=0), "`n_jobs` must be >= 1, got 0"),
        (IsotonicCalibrator(n_jobs=-1), "`n_jobs` must be >= 1, got -1"),
        (AffineCalibrator(quantile=0), "`quantile` must be > 0, got 0"),
        (AffineCalibrator(quantile=1.1), "`quantile` must be <= 1, got 1.1"),
        (AffineCalibrator(max_negatives=0), "`max_negatives` must be >= 1, got 0"),
        (AffineCalibrator(random_state=-1), "`random_state` must be >= 0, got -1"),
    ],
)
def test_bad_parameters_are_refused_in_fit(calibrator, message):
    with pytest.raises(InputError) as caught:
        calibrator.fit(*table())
    assert str(caught.value) == message


@pytest.mark.parametrize("factor", [5e307, 1e-310])
def test_scores_at_the_end_of_the_floats_give_numbers(factor):
    random = np.random.default_rng(0)
    scores = np.concatenate([random.uniform(0, 1, (20, 3)), random.uniform(-1, 0.5, (200, 3))]) * factor
    labels = np.repeat([1, 0], [20, 200])
    for calibrator in (SigmoidCalibrator(margin=None), SigmoidCalibrator("platt", margin=None), IsotonicCalibrator()):
        assert np.isfinite(calibrator.fit(scores, labels).decision_function(scores)).all()
    assert not np.isnan(AffineCalibrator().fit(scores, labels).decision_function(scores)).any()
