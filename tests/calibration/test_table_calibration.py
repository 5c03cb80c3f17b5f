"""The functions behind the command line agree with the estimators and with plain counting."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eesvm import InputError, JointCalibrator
from eesvm.calibration.tables.examples import synthetic_score_table
from eesvm.calibration.tables.fit import fit_table, score_rows, split_table, summarise_exemplars
from eesvm.calibration.tables.score_table import ScoreTable
from eesvm.experiments.tables.windows import Method, compare_calibrators

TABLE = synthetic_score_table(8, 60, 300, "overlapping", random_state=3)


@pytest.mark.parametrize("sigmoid", [False, True])
@pytest.mark.parametrize("across", [False, True])
def test_fitting_a_table_is_fitting_the_estimator(sigmoid, across):
    ours = JointCalibrator(sigmoid=sigmoid, time_limit=20)
    problem = fit_table(TABLE, ours, across)
    theirs = JointCalibrator(sigmoid=sigmoid, time_limit=20, exemplar_groups=TABLE.exemplar_groups if across else None)
    theirs.fit(TABLE.scores, TABLE.labels, groups=TABLE.groups if across else None)
    assert ours.result_.status == "optimal"
    np.testing.assert_array_equal(ours.transform(TABLE.scores), theirs.transform(TABLE.scores))
    assert ours.result_.statistics["n_negatives"] == problem.n_negatives == 300


def test_weights_and_forbidden_pairs_of_the_table_are_used():
    scores = np.array([[3.0, 1.0], [2.0, 0.0], [1.0, 0.5]])
    labels = np.array([1, 0, 0], dtype=np.int8)
    forbidden = np.array([[True, False]])
    calibrator = JointCalibrator()
    fit_table(ScoreTable(scores, labels, weights=np.array([1.0, 1.0, 5.0]), forbidden=forbidden), calibrator)
    assert calibrator.active_.tolist() == [False, True]
    fit_table(ScoreTable(scores, labels), calibrator)
    assert calibrator.active_[0]


def test_summary_counts():
    calibrator = JointCalibrator(time_limit=20)
    problem = fit_table(TABLE, calibrator)
    summary = summarise_exemplars(problem, calibrator.thresholds_)
    above = problem.negative_scores > calibrator.thresholds_
    np.testing.assert_array_equal(summary.negatives_accepted, above.sum(axis=0))
    np.testing.assert_array_equal(summary.negatives_accepted_alone, above[above.sum(axis=1) == 1].sum(axis=0))
    np.testing.assert_array_equal(
        summary.positives_accepted, (problem.positive_scores > calibrator.thresholds_).sum(axis=0)
    )
    assert summary.positives_responsible.sum() == problem.n_positives
    assert [len(column) for column in summary.columns()] == [8] * 6


@pytest.mark.parametrize("sigmoid", [False, True])
def test_rows_are_scored_as_the_calibrator_does(sigmoid):
    calibrator = JointCalibrator(sigmoid=sigmoid, time_limit=20)
    fit_table(TABLE, calibrator)
    rows = score_rows(calibrator, TABLE.scores)
    np.testing.assert_array_equal(rows.scores, calibrator.decision_function(TABLE.scores))
    np.testing.assert_array_equal(rows.accepted, (TABLE.scores > calibrator.thresholds_).any(axis=1))
    np.testing.assert_array_equal(rows.exemplars, calibrator.assign(TABLE.scores))
    if not sigmoid:
        np.testing.assert_array_equal(rows.margins, rows.scores)


@settings(max_examples=50)
@given(st.integers(0, 1000), st.floats(0.2, 0.8), st.booleans())
def test_a_split_keeps_groups_whole_and_classes_mixed(seed, test_size, grouped):
    groups = np.random.default_rng(seed).integers(0, 30, 100)
    labels = (groups < 12).astype(np.int8)
    table = ScoreTable(np.arange(100.0)[:, None], labels, groups=groups if grouped else None)
    train, test = split_table(table, test_size, seed)
    rows = np.concatenate([train.scores[:, 0], test.scores[:, 0]])
    assert sorted(rows) == list(range(100))
    assert {0, 1} == set(train.labels) == set(test.labels)
    if grouped:
        assert not set(train.groups) & set(test.groups)


def test_exemplars_of_test_groups_stay_out():
    train, test = split_table(TABLE, 0.5, 0)
    assert train.n_exemplars == test.n_exemplars < TABLE.n_exemplars
    assert not set(test.groups) & set(train.exemplar_groups)


def test_splits_that_cannot_be(monkeypatch):
    table = ScoreTable(np.ones((5, 1)), np.array([1, 0, 0, 0, 0], dtype=np.int8))
    message = (
        r"^a test share of 0\.5 leaves no positive row in the test part: "
        r"there are 1 rows with a positive and 4 without$"
    )
    with pytest.raises(InputError, match=message):
        split_table(table, 0.5)
    with pytest.raises(InputError, match=r"^splitting a table needs a label for every row$"):
        split_table(ScoreTable(np.ones((5, 1))))


def test_a_comparison_keeps_the_scores_behind_its_rows():
    train, test = split_table(ScoreTable(TABLE.scores, TABLE.labels), 0.5, 0)
    tables = compare_calibrators(train.scores, train.labels, test.scores, test.labels, time_limit=20)
    result, scores = tables.comparisons[0].result, tables.comparisons[0].scores
    assert list(scores) == [name for name in Method if name not in (Method.COOCCURRENCE, Method.SINGLE_SVM)]
    again = compare_calibrators(
        train.scores,
        train.labels,
        test.scores,
        test.labels,
        time_limit=20,
        single_svm=scores["EE-SVM joint calibration w/ sigmoid"],
    )
    rows = again.comparisons[0]
    assert rows[Method.SINGLE_SVM].average_precision == rows["EE-SVM joint calibration w/ sigmoid"].average_precision
    np.testing.assert_array_equal(scores[Method.JOINT] > 0, (test.scores > result.thresholds).any(axis=1))
