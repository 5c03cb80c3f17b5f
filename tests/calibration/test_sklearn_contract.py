"""What scikit-learn expects of an estimator, and what our own errors say."""

import pickle
import re

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import (
    check_classifier_data_not_an_array,
    check_classifiers_classes,
    check_estimators_dtypes,
    check_fit2d_1feature,
    parametrize_with_checks,
)

from eesvm import AffineCalibrator, InputError, IsotonicCalibrator, JointCalibrator, SigmoidCalibrator, Uncalibrated
from eesvm._support.validation import OFFER

LABEL_CHECKS = (
    check_classifier_data_not_an_array,
    check_classifiers_classes,
    check_estimators_dtypes,
    check_fit2d_1feature,
)
CALIBRATORS = [
    Uncalibrated(),
    SigmoidCalibrator(),
    SigmoidCalibrator(criterion="platt", margin=None),
    IsotonicCalibrator(),
    AffineCalibrator(),
    JointCalibrator(),
    JointCalibrator(sigmoid=True),
]

OBJECTS = "A table that does not hold numbers is refused with an InputError, which is a ValueError and not a TypeError."
LABELS = "Which of two labels is positive is not guessed: labels such as 1 and 2, or texts, need `pos_label`."
PROBABILITIES = "The decision function is a probability, compared with 0.5 or left to the thresholds, never with 0."


def expected_failures(calibrator):
    failures = {"check_dtype_object": OBJECTS, **{check.__name__: LABELS for check in LABEL_CHECKS}}
    if isinstance(calibrator, SigmoidCalibrator | IsotonicCalibrator) or getattr(calibrator, "sigmoid", False):
        failures["check_classifiers_train"] = PROBABILITIES
    return failures


@parametrize_with_checks(CALIBRATORS, expected_failed_checks=expected_failures)
def test_check_estimator(estimator, check, request):
    """A failure that is expected leaves no traceback: to lay one out, pytest parses whole files of scikit-learn."""
    expected = request.node.get_closest_marker("xfail")
    try:
        check(estimator)
    except Exception:
        if expected is None:
            raise
    else:
        return
    pytest.xfail(expected.kwargs["reason"])


class Told:
    """Is told which label is positive: the last."""

    def fit(self, S, y, *arguments):
        self.pos_label = np.unique(np.asarray(y))[-1]
        return super().fit(S, y, *arguments)


@pytest.mark.parametrize("check", LABEL_CHECKS)
@pytest.mark.parametrize("estimator", CALIBRATORS, ids=repr)
def test_check_estimator_that_is_told_the_positive_label(estimator, check):
    kind = type(estimator)
    has_probabilities = kind is IsotonicCalibrator or getattr(estimator, "sigmoid", kind is SigmoidCalibrator)
    if check is check_classifiers_classes and has_probabilities and estimator.get_params().get("criterion") != "platt":
        pytest.skip(PROBABILITIES)
    told = type(kind.__name__, (Told, kind), {"__init__": kind.__init__})(**estimator.get_params())
    check(kind.__name__, told)


def table(n=120, n_exemplars=4):
    rng = np.random.default_rng(0)
    y = (np.arange(n) % 5 == 0).astype(int)
    return rng.normal(-1, 0.8, (n, n_exemplars)) + y[:, None], y


def halve(S):
    return S * 0.5


@pytest.fixture(params=CALIBRATORS, ids=repr)
def calibrator(request):
    return clone(request.param)


def test_clones_and_pickles_answer_alike(calibrator):
    S, y = table()
    expected = calibrator.fit(S, y).transform(S)
    np.testing.assert_array_equal(clone(calibrator).fit(S, y).transform(S), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(calibrator)).transform(S), expected)
    assert clone(calibrator).get_params() == calibrator.get_params()


def test_works_in_a_pipeline_and_cross_validation(calibrator):
    S, y = table()
    pipeline = make_pipeline(FunctionTransformer(halve), calibrator).fit(S, y)
    alone = clone(calibrator).fit(S * 0.5, y)
    np.testing.assert_array_equal(pipeline.transform(S), alone.transform(S * 0.5))
    np.testing.assert_array_equal(pipeline.decision_function(S), alone.decision_function(S * 0.5))
    np.testing.assert_array_equal(pipeline.predict(S), alone.predict(S * 0.5))
    scores = cross_val_score(calibrator, S, y, cv=3, scoring="average_precision")
    assert ((scores > 0) & (scores <= 1)).all()


def test_groups_travel_through_a_pipeline():
    S, y = table()
    groups = np.arange(len(S)) % 7
    joint = JointCalibrator(exemplar_groups=np.arange(4))
    pipeline = Pipeline([("joint", clone(joint))]).fit(S, y, joint__groups=groups)
    np.testing.assert_array_equal(pipeline[-1].thresholds_, joint.fit(S, y, groups=groups).thresholds_)


def test_data_frames_keep_their_columns(calibrator):
    S, y = table()
    names = ["cell", "disc", "ring", "blob"]
    frame = pd.DataFrame(S, columns=names, index=[f"w{i}" for i in range(len(S))])
    expected = clone(calibrator).fit(S, y).transform(S)
    calibrator.fit(frame, pd.Series(y, index=frame.index))
    assert calibrator.feature_names_in_.tolist() == names
    assert calibrator.get_feature_names_out().tolist() == names
    assert calibrator.n_features_in_ == 4
    np.testing.assert_array_equal(calibrator.transform(frame), expected)
    framed = calibrator.set_output(transform="pandas").transform(frame)
    assert framed.columns.tolist() == names
    np.testing.assert_array_equal(framed.to_numpy(), expected)
    assert calibrator.decision_function(frame).shape == (len(S),)
    with pytest.raises(InputError, match=r"^`S` has other columns than in `fit`: The feature names should match"):
        calibrator.transform(frame[names[::-1]])


def test_polars_frames_keep_their_columns(calibrator):
    pl = pytest.importorskip("polars")
    S, y = table()
    frame = pl.DataFrame(S, schema=["cell", "disc", "ring", "blob"])
    expected = clone(calibrator).fit(S, y).transform(S)
    calibrator.fit(frame, pl.Series(y))
    assert calibrator.feature_names_in_.tolist() == frame.columns
    np.testing.assert_array_equal(calibrator.transform(frame), expected)
    assert calibrator.set_output(transform="polars").transform(frame).columns == frame.columns
    with pytest.raises(InputError, match=r"^`S` has other columns than in `fit`: The feature names should match"):
        calibrator.transform(frame.select(frame.columns[::-1]))


def test_holes_of_frames_are_missing_scores():
    pl = pytest.importorskip("polars")
    S, y = table()
    holes = np.random.default_rng(0).random(S.shape) < 0.2
    expected = JointCalibrator(missing="not-fired", min_recall=0.8).fit(np.where(holes, np.nan, S), y).thresholds_
    rows = [[None if hole else score for score, hole in zip(*row, strict=True)] for row in zip(S, holes, strict=True)]
    for frame in (
        pl.DataFrame(rows, schema=["a", "b", "c", "d"], orient="row"),
        pd.DataFrame(rows, columns=["a", "b", "c", "d"]).astype("Float64"),
    ):
        found = JointCalibrator(missing="not-fired", min_recall=0.8).fit(frame, y).thresholds_
        np.testing.assert_array_equal(found, expected)


def test_frames_of_mixed_and_nullable_columns_are_numbers(calibrator):
    S, y = table()
    S = S.round(1)
    expected = clone(calibrator).fit(S, y).transform(S)
    frame = pd.DataFrame(S).astype({0: "float32", 1: "Float64"}).rename(columns=str)
    np.testing.assert_allclose(calibrator.fit(frame, y).transform(frame), expected, rtol=1e-4, atol=1e-6)


def test_names_without_a_frame(calibrator):
    S, y = table()
    calibrator.fit(S, y)
    assert not hasattr(calibrator, "feature_names_in_")
    assert calibrator.get_feature_names_out().tolist() == ["x0", "x1", "x2", "x3"]


def bad_training_input():
    S, y = table()
    holed = S.copy()
    holed[7, 2], holed[9, 0] = np.nan, np.inf
    return [
        (S, y[:-1], "`y` must have one label per window, shape (120,), got shape (119,)"),
        (holed, y, "`S` holds 2 values that are NaN or infinite, the first at row 7, column 2" + OFFER),
        (S, np.zeros(120, dtype=int), "`y` holds no positive window: got one class only, 0"),
        (S, np.full(120, -1), "`y` holds no positive window: got one class only, -1"),
        (S, np.ones(120, dtype=bool), "`y` holds no negative window: got one class only, True"),
        (
            S,
            np.full(120, "cell"),
            "`y` must hold two labels, for negative and positive windows: got one class only, cell",
        ),
        (
            S,
            np.arange(120) % 3,
            "Only binary classification is supported. The type of the target is multiclass: "
            "`y` must hold two labels, got 3",
        ),
        (S, y + 0.5, "Unknown label type: `y` must hold two labels, got continuous values such as 1.5"),
        (S, np.where(y, np.nan, 0.0), "`y` holds 24 values that are NaN or infinite, the first at index 0"),
        (S, np.array([None, *y[1:]], dtype=object), "`y` must hold two labels that can be compared with each other"),
        (S, None, "{name} requires y to be passed, but the target y is None"),
        (S[:, :0], y, "`S` has 0 feature(s) (shape=(120, 0)) while a minimum of 1 is required, a column per detector"),
        (S[:0], y[:0], "`S` has 0 sample(s) (shape=(0, 4)) while a minimum of 1 is required, a row per window"),
        (S[:, :, None], y, "`S` must have two dimensions (windows, detectors), got shape (120, 4, 1)"),
        (
            S[0],
            y,
            "`S` must have two dimensions (windows, detectors), got shape (4,): "
            "Reshape your data by `reshape(1, -1)` if it is one window",
        ),
        (sparse.csr_array(S), y, "`S` must be a dense table, got a sparse one: call its `toarray()` first"),
        (S.astype(str), y, "`S` must hold numbers, got dtype <U32"),
        (S + 1j, y, "Complex data not supported: `S` must hold real numbers, got dtype complex128"),
    ]


@pytest.mark.parametrize(("S", "y", "message"), bad_training_input())
def test_bad_training_input_is_refused(calibrator, S, y, message):
    with pytest.raises(InputError) as caught:
        calibrator.fit(S, y)
    assert str(caught.value) == message.format(name=type(calibrator).__name__)


def test_a_failed_fit_leaves_the_calibrator_unfitted(calibrator):
    S, y = table()
    bad = {"quantile": 7} if isinstance(calibrator, AffineCalibrator) else {"n_jobs": 0}
    if isinstance(calibrator, Uncalibrated):
        return  # has nothing to set
    with pytest.raises(InputError):
        calibrator.set_params(**bad).fit(S, y)
    with pytest.raises(NotFittedError):
        calibrator.predict(S)


def test_ragged_rows_are_refused(calibrator):
    with pytest.raises(InputError, match=r"^`S` must be a table of numbers: setting an array element with a sequence"):
        calibrator.fit([[1.0, 2.0], [3.0]], [0, 1])


@pytest.mark.parametrize("method", ["transform", "decision_function", "predict", "assign"])
def test_bad_scores_are_refused_later_too(calibrator, method):
    S, y = table()
    name = type(calibrator).__name__
    not_fitted = f"^This {name} is not fitted yet: call `fit` with scores and labels$"
    with pytest.raises(InputError, match=not_fitted) as caught:
        getattr(calibrator, method)(S)
    assert isinstance(caught.value, NotFittedError)
    calibrator.fit(S, y)
    message = f"`S` has other columns than in `fit`: X has 3 features, but {name} is expecting 4 features as input."
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        getattr(calibrator, method)(S[:, :3])
    S[3, 1] = np.nan
    message = "`S` holds 1 value that is NaN or infinite, the first at row 3, column 1" + OFFER
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        getattr(calibrator, method)(S)
