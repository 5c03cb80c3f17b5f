"""The paper's tables 1 and 2: rows against direct computation from the calibrators."""

import csv
import dataclasses
import io

import numpy as np
import pytest

from eesvm import (
    AffineCalibrator,
    InputError,
    IsotonicCalibrator,
    JointCalibrator,
    SigmoidCalibrator,
    Uncalibrated,
    metrics,
)
from eesvm.experiments.tables import windows as window_tables
from eesvm.experiments.tables.verdicts import _counted, _draws, _signed, verdicts
from eesvm.experiments.tables.windows import (
    ACROSS_IMAGES,
    OWN_IMAGE,
    Method,
    WindowComparison,
    WindowRow,
    compare_calibrators,
)

ROWS = [each for each in Method if each != Method.COOCCURRENCE]


def half(seed, n_positives=40, n_negatives=200, n_exemplars=5):
    rng = np.random.default_rng(seed)
    positives = rng.normal(-1, 0.8, (n_positives, n_exemplars))
    positives[np.arange(n_positives), rng.integers(n_exemplars, size=n_positives)] += 1.5
    S = np.vstack((positives, rng.normal(-1, 0.8, (n_negatives, n_exemplars))))
    return S, np.repeat([1, 0], [n_positives, n_negatives]), rng.integers(12, size=len(S))


@pytest.fixture(scope="module")
def data():
    S_train, y_train, groups_train = half(0)
    S_test, y_test, groups_test = half(1)
    single_svm = S_test.mean(axis=1)
    return S_train, y_train, groups_train, S_test, y_test, groups_test, single_svm


@pytest.fixture(scope="module")
def tables(data):
    S_train, y_train, groups_train, S_test, y_test, groups_test, single_svm = data
    return compare_calibrators(
        S_train,
        y_train,
        S_test,
        y_test,
        groups_train,
        groups_test,
        np.arange(5),
        single_svm=single_svm,
        method="greedy",
        n_resamples=40,
        n_jobs=1,
    )


def test_rows_carry_the_names_and_the_order_of_the_paper(tables):
    assert [comparison.variant for comparison in tables.comparisons] == [OWN_IMAGE, ACROSS_IMAGES]
    for comparison in tables.comparisons:
        assert (
            [row.method for row in comparison.rows]
            == ROWS
            == [
                "EE-SVM no calibration",
                "EE-SVM indep. sigmoid calibration",
                "EE-SVM joint calibration",
                "EE-SVM joint calibration w/ sigmoid",
                "EE-SVM indep. isotonic regression",
                "EE-SVM indep. affine calibration",
                "Single Linear-SVM",
            ]
        )
    assert (tables.n_positives, tables.n_negatives, tables.confidence) == (40, 200, 0.95)


@pytest.mark.parametrize("variant", [0, 1])
def test_rows_agree_with_the_calibrators(data, tables, variant):
    S_train, y_train, groups_train, S_test, y_test, _, single_svm = data
    comparison = tables.comparisons[variant]
    joint = JointCalibrator(sigmoid=True, method="greedy", exemplar_groups=np.arange(5) if variant else None)
    joint.fit(S_train, y_train, groups=groups_train if variant else None)
    accepted = joint.predict(S_test) == 1
    recall = accepted[y_test == 1].mean()
    assert comparison.recall == comparison[Method.JOINT].recall == pytest.approx(recall)
    assert comparison[Method.JOINT].false_positives == accepted[y_test == 0].sum()
    assert comparison[Method.JOINT].average_precision is None
    np.testing.assert_array_equal(comparison.result.thresholds, joint.thresholds_)
    scores = {Method.SINGLE_SVM: single_svm, Method.JOINT_SIGMOID: joint.decision_function(S_test)}
    for name, calibrator in {
        Method.NO_CALIBRATION: Uncalibrated(),
        Method.SIGMOID: SigmoidCalibrator(),
        Method.ISOTONIC: IsotonicCalibrator(),
        Method.AFFINE: AffineCalibrator(),
    }.items():
        scores[name] = calibrator.fit(S_train, y_train).decision_function(S_test)
    for name, values in scores.items():
        row = comparison[name]
        assert row.false_positives == metrics.false_positives_at_recall(y_test, values, recall)
        assert row.average_precision == metrics.average_precision(y_test, values)
        lowest = np.sort(values[y_test == 1])[::-1][round(recall * 40) - 1]
        assert row.recall == pytest.approx((values[y_test == 1] >= lowest).mean())
        assert row.recall >= recall - 1e-12


def test_the_variants_have_their_own_recall_and_share_average_precision(tables):
    own, across = tables.comparisons
    assert own.recall != across.recall
    for name in (Method.NO_CALIBRATION, Method.SIGMOID, Method.ISOTONIC, Method.AFFINE, Method.SINGLE_SVM):
        assert own[name].average_precision == across[name].average_precision
    with pytest.raises(KeyError):
        own["another"]


def test_intervals_draw_the_images_of_the_test_windows(data, tables):
    _, _, _, S_test, y_test, groups_test, _ = data
    own = tables.comparisons[0]
    expected = metrics.bootstrap_interval(metrics.average_precision, y_test, S_test.max(axis=1), groups_test, 40)
    assert own[Method.NO_CALIBRATION].average_precision_interval == expected
    assert own[Method.JOINT].average_precision_interval is None
    for row in own.rows:
        low, high = row.false_positives_interval
        assert low <= row.false_positives <= high


def test_the_search_runs_once_per_variant(data, monkeypatch):
    S_train, y_train, groups_train, S_test, y_test, _, _ = data
    calls = []
    original = window_tables.JointCalibrator.fit

    def counted(self, *arguments, **options):
        calls.append(options)
        return original(self, *arguments, **options)

    monkeypatch.setattr(window_tables.JointCalibrator, "fit", counted)
    compare_calibrators(S_train, y_train, S_test, y_test, groups_train, None, np.arange(5), method="greedy")
    assert len(calls) == 2


def test_without_images_resamples_or_a_single_svm_there_is_less(data):
    S_train, y_train, _, S_test, y_test, _, _ = data
    alone = compare_calibrators(S_train, y_train, S_test, y_test, method="greedy")
    assert [comparison.variant for comparison in alone.comparisons] == [OWN_IMAGE]
    assert [row.method for row in alone.comparisons[0].rows] == ROWS[:-1]
    assert all(row.false_positives_interval is None for row in alone.comparisons[0].rows)
    assert alone.confidence is None


def test_labels_and_threads_change_nothing(data):
    S_train, y_train, groups_train, S_test, y_test, groups_test, _ = data
    images = (groups_train, groups_test, np.arange(5))
    plain = compare_calibrators(S_train, y_train, S_test, y_test, *images, method="greedy", n_resamples=5, n_jobs=1)
    names = np.array(["background", "cell"])
    named = compare_calibrators(
        S_train,
        names[y_train],
        S_test,
        names[y_test],
        *images,
        method="greedy",
        n_resamples=5,
        n_jobs=2,
        pos_label="cell",
    )
    assert named.to_csv_rows() == plain.to_csv_rows()


def test_csv_rows_can_be_written_and_read_back(tables):
    rows = tables.to_csv_rows()
    handle = io.StringIO()
    csv.writer(handle).writerows(rows)
    handle.seek(0)
    read = list(csv.DictReader(handle))
    assert len(read) == 14
    joint = read[2]
    assert (joint["variant"], joint["method"], joint["average_precision"]) == (OWN_IMAGE, Method.JOINT, "")
    assert float(joint["false_positives"]) == tables.comparisons[0][Method.JOINT].false_positives
    assert (
        float(read[0]["average_precision_low"])
        == tables.comparisons[0][Method.NO_CALIBRATION].average_precision_interval.low
    )


def test_markdown_is_a_table_per_variant(tables):
    text = tables.to_markdown()
    lines = text.splitlines()
    assert [line.split(": ")[0] for line in lines if line.startswith("**")] == [
        "**own image allowed**",
        "**across images**",
    ]
    assert lines[2] == "| method | recall, % | false positives (95 % interval) | window AP, % (95 % interval) |"
    assert sum(line.startswith("| EE-SVM") for line in lines) == 12
    row = tables.comparisons[0][Method.JOINT]
    low, high = row.false_positives_interval
    assert (
        f"| {Method.JOINT} | {100 * row.recall:.1f} | {row.false_positives:.0f} ({low:.0f} to {high:.0f}) |  |" in lines
    )


def test_rows_are_frozen(tables):
    with pytest.raises(dataclasses.FrozenInstanceError):
        tables.comparisons[0].rows[0].recall = 1.0


def test_bad_input_is_refused(data):
    S_train, y_train, groups_train, S_test, y_test, _, single_svm = data
    cases = [
        (
            {"S_test": S_test[:, :4]},
            "`S_train` and `S_test` must have one column per detector, got 5 and 4 columns",
        ),
        ({"y_test": y_test + 1}, "`y_train` and `y_test` must hold the same two labels, got 0, 1 and 1, 2"),
        (
            {"y_train": y_train + 1, "y_test": y_test + 1},
            "`y_train` holds the labels 1 and 2: say which one is positive by `pos_label`",
        ),
        ({"y_test": y_test[:-1]}, "`y_test` must have one label per window, shape (240,), got shape (239,)"),
        ({"y_test": np.zeros(240)}, "`y_test` holds no positive window: got one class only, 0.0"),
        (
            {"groups_train": groups_train},
            "`groups_train` is given but `exemplar_groups` is not: the variant across images needs both",
        ),
        (
            {"exemplar_groups": np.arange(5)},
            "`exemplar_groups` is given but `groups_train` is not: the variant across images needs both",
        ),
        ({"groups_test": [1]}, "`groups_test` must have one group per window, shape (240,), got shape (1,)"),
        (
            {"single_svm": single_svm[:-1]},
            "`single_svm` must have one score per test window, shape (240,), got shape (239,)",
        ),
        ({"single_svm": y_test.astype(str)}, "`single_svm` must hold numbers, got dtype <U21"),
        ({"n_resamples": -1}, "`n_resamples` must be >= 0, got -1"),
        ({"confidence": 2}, "`confidence` must be <= 1, got 2"),
    ]
    for change, message in cases:
        arguments = {"S_train": S_train, "y_train": y_train, "S_test": S_test, "y_test": y_test, "method": "greedy"}
        with pytest.raises(InputError) as caught:
            compare_calibrators(**(arguments | change))
        assert str(caught.value) == message


def comparison_of(scores, is_positive, is_accepted):
    """A comparison whose figures are counted here, one by one."""
    recall = is_accepted[is_positive].mean()
    rows = []
    for name, own in scores.items():
        if name == Method.JOINT:
            rows.append(WindowRow(name, recall, int(is_accepted[~is_positive].sum()), None))
            continue
        cut = max(s for s in own[is_positive] if (own[is_positive] >= s).mean() >= recall - 1e-12)
        rows.append(WindowRow(name, recall, int((own[~is_positive] >= cut).sum()), float(own[is_positive].mean())))
    return WindowComparison("own image allowed", recall, tuple(rows), None, scores)


@pytest.mark.parametrize(
    ("winner", "name"),
    [(Method.JOINT, "the joint thresholds"), (Method.JOINT_SIGMOID, "joint thresholds with sigmoids")],
)
@pytest.mark.parametrize(("better", "words"), [(1, "does not have"), (-1, "has")])
def test_which_calibration_is_best_is_said_with_its_interval(better, words, winner, name):
    random = np.random.default_rng(0)
    is_positive = np.arange(60) < 20
    good, poor = is_positive + random.normal(0, 0.3, 60), is_positive + random.normal(0, 1.0, 60)
    joint, other = (poor, good) if better == 1 else (good, poor)
    thresholded = joint if winner == Method.JOINT else -joint
    is_accepted = thresholded > np.sort(thresholded[is_positive])[4]
    scores = {Method.NO_CALIBRATION: other, Method.JOINT: thresholded, Method.JOINT_SIGMOID: -thresholded}
    comparison = comparison_of(scores, is_positive, is_accepted)
    first, second = verdicts(comparison, is_positive, is_accepted)
    counts = {row.method: row.false_positives for row in comparison.rows}
    best = min(Method.JOINT, Method.JOINT_SIGMOID, key=lambda name: counts[name])
    assert f"Joint calibration {words} the fewest false positives here: " in first
    assert f"scores as they are ({counts[Method.NO_CALIBRATION]})" in first
    assert best == winner
    assert f"{name} ({counts[best]})" in first
    more = abs(counts[Method.NO_CALIBRATION] - counts[best])
    drawn = []
    for weights in _draws(is_positive, None, 0):
        rows = np.repeat(np.arange(60), weights.astype(int))
        own = comparison_of({name: each[rows] for name, each in scores.items()}, is_positive[rows], is_accepted[rows])
        drawn.append(better * (own[best].false_positives - own[Method.NO_CALIBRATION].false_positives))
    low, high = np.quantile(drawn, [0.025, 0.975])
    low, high = round(low), round(high)
    chance = ", so it may be chance" if low <= 0 else ""
    assert first.endswith(f"has {more} more (95 % interval {low:,} to {high:,}{chance}).".replace("-", "−"))
    assert second.startswith("Highest average precision here: ")


def test_bounds_are_judged_as_they_are_shown():
    assert [_signed(value) for value in (-1200.4, -0.3, 0.3, 1.0)] == ["−1,200", "0", "0", "1"]
    joint, best = WindowRow(Method.JOINT, 1.0, 2, None), WindowRow(Method.SIGMOID, 1.0, 3, None)
    assert _counted(joint, best, np.full(9, 0.3)).endswith("(95 % interval 0 to 0, so it may be chance).")
    assert _counted(joint, best, np.full(9, 0.7)).endswith("(95 % interval 1 to 1).")


def test_rows_of_a_group_are_drawn_together():
    groups = np.repeat(np.arange(5), 4)
    for weights in _draws(np.arange(20) % 4 == 0, groups, 3):
        assert (weights.reshape(5, 4) == weights[::4, None]).all()
        assert weights.sum() == 20
