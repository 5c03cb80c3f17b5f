"""The single linear SVM: liblinear's answer, from hard negatives only."""

import numpy as np
import pytest
from scipy import linalg
from sklearn.exceptions import NotFittedError
from sklearn.svm import LinearSVC

from eesvm import ExemplarSVMs, InputError, LinearSVM
from eesvm.exemplars.rows import StreamedRows
from helpers.reference_svm import relu_features


def criterion(w, b, positives, negatives, C=1e-3, positive_weight=2.0, multiplier=10.0, power=1):
    w = np.asarray(w, dtype=np.float64)
    hinge = (
        C * positive_weight * (np.maximum(1 - positives @ w - b, 0) ** power).sum()
        + C * (np.maximum(1 + negatives @ w + b, 0) ** power).sum()
    )
    return w @ w / 2 + ((b / multiplier) ** 2 / 2 if multiplier else 0.0) + hinge


def liblinear(positives, negatives, C, positive_weight=2.0, multiplier=10.0, loss="squared_hinge"):
    X = np.concatenate([positives, negatives]).astype(np.float64)
    svm = LinearSVC(
        C=C, loss=loss, class_weight={True: positive_weight, False: 1}, tol=1e-8, max_iter=1_000_000, random_state=0,
        fit_intercept=multiplier > 0, intercept_scaling=multiplier or 1.0,
    ).fit(X, np.arange(len(X)) < len(positives))  # fmt: skip
    return svm.coef_[0], float(np.ravel(svm.intercept_)[0])


def test_the_recipe_comes_close_to_all_negatives_and_epochs_close_the_rest():
    positives, negatives = relu_features(30, 5000, 40)
    X, y = np.concatenate([positives, negatives]).astype(np.float64), np.arange(5030) < 30
    full = LinearSVC(C=1e-3, loss="hinge", class_weight={True: 2, False: 1}, intercept_scaling=10, tol=1e-6, max_iter=1_000_000, random_state=0).fit(X, y)  # fmt: skip
    best = criterion(full.coef_[0], full.intercept_[0], positives, negatives)
    svm = LinearSVM(retrain_every=500).fit(positives, negatives)
    assert criterion(svm.coef_, svm.intercept_, positives, negatives) <= best * 1.02
    svm = LinearSVM(retrain_every=500, n_epochs=5, tol=1e-6).fit(positives, negatives)
    assert criterion(svm.coef_, svm.intercept_, positives, negatives) <= best * 1.001
    assert len(svm.rounds_) > 1


@pytest.mark.parametrize("multiplier", [10.0, 1.0, 0.0])
@pytest.mark.parametrize(("n_positives", "C", "weight"), [(1, 1e-4, 50.0), (30, 1e-3, 2.0), (400, 0.1, 1.0)])
def test_the_squared_hinge_is_liblinears_on_all_rows(n_positives, C, weight, multiplier):
    positives, negatives = relu_features(n_positives, 1500, 40)
    expected = criterion(*liblinear(positives, negatives, C, weight, multiplier), positives, negatives, C, weight, multiplier, 2)  # fmt: skip
    # All rows are in the cache, so the recipe is a plain SVM.
    svm = LinearSVM(C, weight, "squared_hinge", multiplier, retrain_every=2000).fit(positives, negatives)
    found = criterion(svm.coef_, svm.intercept_, positives, negatives, C, weight, multiplier, 2)
    assert expected * (1 - 1e-6) <= found <= expected * (1 + 1e-5)


def test_the_squared_hinge_goes_through_the_rounds_that_liblinear_goes_through(monkeypatch):
    positives, negatives = relu_features(20, 6000, 40)
    svm = LinearSVM(loss="squared_hinge", retrain_every=300, n_epochs=3).fit(positives, negatives)
    monkeypatch.setattr(LinearSVM, "_running", lambda *_: None)
    slow = LinearSVM(loss="squared_hinge", retrain_every=300, n_epochs=3, tol=1e-7).fit(positives, negatives)
    np.testing.assert_allclose(svm.coef_, slow.coef_, atol=2e-3 * np.abs(slow.coef_).max())
    assert svm.intercept_ == pytest.approx(slow.intercept_, rel=1e-2)
    assert len(svm.rounds_) == len(slow.rounds_) > 5
    for one, other in zip(svm.rounds_, slow.rounds_, strict=True):
        np.testing.assert_allclose([one.n_seen, one.n_cached], [other.n_seen, other.n_cached], rtol=0.02)


@pytest.mark.parametrize(("scale", "C"), [(200.0, 10.0), (20.0, 1e6)])
def test_what_is_too_steep_for_float32_is_left_to_liblinear(scale, C, monkeypatch):
    positives, negatives = (scale * rows for rows in relu_features(3, 200, 300))
    before = []
    monkeypatch.setattr(LinearSVM, "_train_liblinear", lambda self, cache, own=LinearSVM._train_liblinear: (before.append(1), own(self, cache)))  # fmt: skip
    svm = LinearSVM(C, loss="squared_hinge").fit(positives, negatives)
    assert before
    assert (svm.decision_function(positives) > svm.decision_function(negatives).max()).all()


def test_where_steps_do_not_end_liblinear_goes_on(monkeypatch):
    positives, negatives = relu_features(10, 3000, 30)
    expected = LinearSVM(loss="squared_hinge", retrain_every=400, tol=1e-7).fit(positives, negatives)
    monkeypatch.setattr("eesvm.exemplars.solver.many_positives._MAX_STEPS", 2)
    svm = LinearSVM(loss="squared_hinge", retrain_every=400, tol=1e-7).fit(positives, negatives)
    np.testing.assert_allclose(svm.coef_, expected.coef_, atol=5e-3 * np.abs(expected.coef_).max())


def test_without_a_factorisation_liblinear_goes_on_to_the_end(monkeypatch):
    positives, negatives = relu_features(10, 3000, 30)
    expected = LinearSVM(loss="squared_hinge", retrain_every=400, tol=1e-7).fit(positives, negatives)
    tried = []

    def fail(*arguments, own=linalg.cho_factor, **options):
        tried.append(1)
        if len(tried) == 4:
            raise linalg.LinAlgError("not positive definite")
        return own(*arguments, **options)

    monkeypatch.setattr(linalg, "cho_factor", fail)
    svm = LinearSVM(loss="squared_hinge", retrain_every=400, tol=1e-7).fit(positives, negatives)
    assert len(tried) == 4  # none in later rounds
    assert len(svm.rounds_) > 2
    np.testing.assert_allclose(svm.coef_, expected.coef_, atol=5e-3 * np.abs(expected.coef_).max())


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_rounds_say_what_happened(loss):
    positives, negatives = relu_features(10, 3000, 30)
    svm = LinearSVM(retrain_every=400, loss=loss).fit(positives, negatives)
    assert svm.rounds_[0].n_added == svm.rounds_[0].n_cached == 400  # before there is an SVM, every negative is hard
    cached = 0
    for step in svm.rounds_:
        assert 0 <= step.n_dropped <= step.n_cached
        assert step.n_cached == cached + step.n_added
        cached = step.n_cached - step.n_dropped
    assert [step.n_seen for step in svm.rounds_] == sorted(step.n_seen for step in svm.rounds_)
    assert svm.rounds_[-1].n_seen <= 3000


def test_streams_give_the_same():
    positives, negatives = relu_features(10, 1000, 20)
    whole = LinearSVM(retrain_every=200).fit(positives, negatives)
    parts = [negatives[k : k + 200] for k in range(0, 1000, 200)]
    streamed = LinearSVM(retrain_every=200).fit(positives, StreamedRows(lambda: parts, negatives.shape))
    np.testing.assert_array_equal(streamed.coef_, whole.coef_)


def test_one_object_is_enough_and_it_serves_as_prior():
    positives, negatives = relu_features(1, 300, 30)
    svm = LinearSVM().fit(positives, negatives)
    assert svm.coef_.shape == (30,)
    assert svm.decision_function(negatives).shape == (300,)
    bent = ExemplarSVMs(prior=svm).fit(positives, negatives)
    assert bent.converged_.all()


def test_without_bias_there_is_none():
    positives, negatives = relu_features(5, 300, 30)
    assert LinearSVM(bias_multiplier=0).fit(positives, negatives).intercept_ == 0


POSITIVES, NEGATIVES = relu_features(3, 30, 16)
BAD = {
    "`positives` is empty: at least one row is needed": ({}, POSITIVES[:0], NEGATIVES),
    "`negatives` is empty: at least one row is needed": ({}, POSITIVES, NEGATIVES[:0]),
    "`negatives` must have 16 columns, as `positives` have, got 15": ({}, POSITIVES, NEGATIVES[:, 1:]),
    "`positives` holds a value that is NaN, infinite or beyond float32, in row 1": ({}, np.where(np.arange(3)[:, None] == 1, np.inf, POSITIVES), NEGATIVES),
    "`C` must be > 0, got 0": ({"C": 0}, POSITIVES, NEGATIVES),
    "`drop_below` must be <= -1.0001, got -0.5": ({"drop_below": -0.5}, POSITIVES, NEGATIVES),
    "`n_epochs` must be >= 1, got 0": ({"n_epochs": 0}, POSITIVES, NEGATIVES),
}  # fmt: skip


@pytest.mark.parametrize("sentence", BAD)
def test_bad_input_gets_one_sentence(sentence):
    options, *arrays = BAD[sentence]
    with pytest.raises(InputError) as error:
        LinearSVM(**options).fit(*arrays)
    assert str(error.value) == sentence


def test_it_must_be_fitted():
    with pytest.raises(
        NotFittedError, match=r"^This LinearSVM is not fitted yet: call `fit` with positives and negatives$"
    ):
        LinearSVM().decision_function(NEGATIVES)


def test_what_does_not_converge_says_so(monkeypatch):
    monkeypatch.setattr("eesvm.exemplars.single_svm._MAX_ITERATIONS", 1)
    with pytest.raises(
        InputError,
        match=r"^the SVM did not converge in 1 iterations: scale the descriptors to a mean length of about 20, or choose a smaller C$",
    ):
        LinearSVM(C=100).fit(POSITIVES, NEGATIVES)
