"""Held-out figures are those of a plain loop; pooled thresholds and votes decide what they say they decide."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from eesvm import CalibrationProblem, InputError, JointCalibrator, load_calibration, save_calibration, solve, verify
from eesvm._support.amounts import percent
from eesvm.calibration.held_out import (
    cross_validate,
    make_folds,
    part,
    resampled,
    share_with_interval,
    training_parts,
)
from eesvm.calibration.pooled import Choice, Decisions, Offsets, Rows, Units, pool
from eesvm.calibration.tables.examples import synthetic_score_table
from eesvm.calibration.tables.fit import fit_table, hold_out
from eesvm.calibration.tables.score_table import ScoreTable, write_score_table
from eesvm.cli import main
from helpers.examples import few, many
from helpers.strategies import problems


def table(seed=0, n_positives=60, n_negatives=180, n_exemplars=4):
    return synthetic_score_table(n_exemplars, n_positives, n_negatives, "overlapping", seed)


def quantile_fit(problem, share=1.0, groups=None):
    """Thresholds that are quick to find."""
    return np.quantile(problem.negative_scores, 0.9, axis=0).astype(problem.positive_scores.dtype)


@settings(max_examples=many(200), deadline=None)
@given(st.integers(2, 7), st.integers(2, 30), st.integers(2, 30), st.integers(0, 5), st.booleans())
def test_every_row_is_held_out_once_and_groups_stay_together(n_folds, n_positives, n_negatives, seed, is_grouped):
    problem = CalibrationProblem(np.zeros((n_positives, 1)), np.zeros((n_negatives, 1)))
    random = np.random.default_rng(seed)
    groups = [random.integers(4, size=n) for n in (n_positives, n_negatives)] if is_grouped else [None, None]
    if is_grouped and any(len(set(each)) < 2 for each in groups):
        with pytest.raises(
            InputError, match=r"^cross-validation needs positives from two rows or groups at least, and"
        ):
            make_folds(problem, n_folds, *groups, seed)
        return
    folds = make_folds(problem, n_folds, *groups, seed)
    assert 2 <= folds.n_folds <= n_folds
    assert set(folds.positives) == set(range(folds.n_folds))
    if is_grouped:
        where = {}
        for group, fold in zip(np.concatenate(groups), np.concatenate([folds.positives, folds.negatives]), strict=True):
            assert where.setdefault(group, fold) == fold
    assert set(folds.negatives) == set(range(folds.n_folds))


@pytest.mark.parametrize("seed", range(5))
def test_cross_validation_is_a_plain_loop(seed):
    random = np.random.default_rng(seed)
    positives, negatives = random.normal(1, 1, (30, 3)), random.normal(0, 1, (40, 3))
    weights = random.integers(1, 4, 30), random.integers(0, 4, 40)
    problem = CalibrationProblem(positives, negatives, *weights, forbidden=random.random((30, 3)) < 0.2)
    folds = make_folds(problem, 4, random_state=seed)
    held_out = cross_validate(problem, folds, quantile_fit, quantile_fit(problem))
    caught = alarms = 0.0
    for rows, fold_of, weight, is_positive in (
        (positives, folds.positives, weights[0], True),
        (negatives, folds.negatives, weights[1], False),
    ):
        for i, row in enumerate(rows):
            limits = np.quantile(negatives[folds.negatives != fold_of[i]], 0.9, axis=0)
            may = ~problem.forbidden[i] if is_positive else np.ones(3, dtype=bool)
            if any(s > t and m for s, t, m in zip(row, limits, may, strict=True)):
                caught, alarms = caught + weight[i] * is_positive, alarms + weight[i] * (not is_positive)
    assert held_out.recall.value == pytest.approx(caught / weights[0].sum(), abs=1e-12)
    assert held_out.false_alarms.value == pytest.approx(alarms / weights[1].sum(), abs=1e-12)
    assert held_out.fitted_recall == pytest.approx(problem.recall(quantile_fit(problem)))


def test_a_budget_is_that_of_the_part():
    problem = table().problem()
    folds = make_folds(problem, 3)
    shares = []

    def fit(rest, share, groups):
        shares.append(share)
        assert [len(each) for each in groups] == [rest.n_positives, rest.n_negatives]
        return rest.upper_thresholds

    held_out = cross_validate(problem, folds, fit, problem.upper_thresholds)
    assert shares == pytest.approx([2 / 3] * 3)
    assert (held_out.recall.value, held_out.false_alarms.value) == (0, 0)


def test_intervals_are_wilsons_and_wider_for_groups():
    is_in = np.arange(40) % 4 == 0
    alone = share_with_interval(is_in, np.ones(40), np.arange(40))
    n, p, z = 40, 0.25, 1.959964
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    assert (alone.value, alone.low, alone.high) == pytest.approx((p, middle - half, middle + half))
    heavier = share_with_interval(is_in, np.full(40, 7.0), np.arange(40))
    assert (heavier.low, heavier.high) == pytest.approx((alone.low, alone.high))
    grouped = share_with_interval(np.sort(is_in), np.ones(40), np.arange(40) // 10)
    assert grouped.low < alone.low < alone.high < grouped.high
    nothing = share_with_interval(np.zeros(40, dtype=bool), np.ones(40), np.arange(40))
    assert nothing.low == 0 < nothing.high < 0.1
    assert share_with_interval(is_in, np.zeros(40), np.arange(40)).high == 1


def test_rows_are_drawn_by_groups():
    groups = np.array([3, 3, 7, 9, 9, 9])
    for seed in range(20):
        rows = resampled(groups, np.random.default_rng(seed))
        counts = np.bincount(rows, minlength=6)
        assert counts[0] == counts[1]
        assert counts[3] == counts[4] == counts[5]
        assert counts[0] + counts[2] + counts[3] == 3


@settings(max_examples=many(200), deadline=None)
@given(st.integers(0, 10_000))
def test_quantiles_rise_and_go_back(seed):
    random = np.random.default_rng(seed)
    negatives = np.round(random.normal(size=(random.integers(2, 40), 3)), random.integers(0, 4))
    negatives[random.random(negatives.shape) < 0.2] = -np.inf
    units = Units.of("quantiles", negatives)
    points = np.sort(random.normal(size=(20, 3)) * 3, axis=0)
    values = units.values(points)
    assert (np.diff(values, axis=0) >= 0).all()
    for point, value in zip(points, values, strict=True):
        np.testing.assert_allclose(units.scores(value), point, atol=1e-9)
    assert np.isneginf(units.values(np.full((1, 3), -np.inf))).all()


@settings(max_examples=many(300), deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.3, 0.5, 0.9, 1.0]))
def test_levels_have_the_recall_and_no_more(seed, recall):
    random = np.random.default_rng(seed)
    made = Decisions(
        random.integers(6, size=12) / 2, random.integers(6, size=9) / 2, random.integers(1, 4, 12) + 0.0, np.ones(9)
    )

    def caught(level):
        return made.positive_weights[made.positives > level].sum() / made.positive_weights.sum()

    levels = np.unique(np.concatenate([made.positives, made.negatives, [-1.0]]))
    enough = [level for level in levels if caught(level) >= recall - 1e-9]
    level = made.level(recall)
    assert caught(level) >= recall - 1e-9
    assert (made.positives > level).tolist() == (made.positives > max(enough)).tolist()
    assert made.false_alarms(recall) == pytest.approx((made.negatives > max(enough)).mean())


@pytest.mark.parametrize(
    "choice",
    [
        Choice("scores", 0.0, False),
        Choice("quantiles", 0.0, True),
        Choice("scores", 1.0, False),
        Choice("quantiles", 0.5, False),
        Choice("spreads", 0.75, True),
    ],
    ids=str,
)
def test_pooled_thresholds_decide_as_their_numbers_do(choice):
    problem = table().problem()
    folds = make_folds(problem, 3)
    pooled = pool(problem, 0.9, folds, quantile_fit, quantile_fit(problem), choices=[choice])
    assert pooled.choice == choice
    assert pooled.offsets.units.name == choice.units
    assert problem.recall(pooled.thresholds) >= 0.9
    made = Rows.of(pooled.offsets.units, problem).pooled(pooled.offsets, choice.strength)
    level = made.level(0.9) - pooled.lowered
    np.testing.assert_array_equal(problem.covers(pooled.thresholds), made.positives > level)
    np.testing.assert_array_equal(problem.accepts(pooled.thresholds), made.negatives > level)
    if choice[:2] == ("scores", 0.0):
        assert len(set(pooled.thresholds.tolist())) == 1
    if choice.strength == 1:  # moved together, as far apart as they were
        moved = pooled.thresholds.astype(float) - quantile_fit(problem)
        np.testing.assert_allclose(moved, moved[0], atol=1e-5)


def test_exemplars_that_are_off_stay_off_where_few_may_be_in_use():
    problem = table().problem()
    limits = quantile_fit(problem)
    limits[1] = np.inf
    folds = make_folds(problem, 3)
    off = Choice("scores", 0.5, True)
    assert pool(problem, 0.9, folds, lambda *_: limits, limits, [off]).thresholds[1] == np.inf
    units = Units.of("scores", problem.negative_scores)
    assert Offsets.of(units, problem, limits, False).offsets[1] >= problem.positive_scores[:, 1].max()


@settings(max_examples=many(150), deadline=None)
@given(problems(bounds=True), st.sampled_from([0.5, 0.75, 1.0]))
def test_any_problem_gets_thresholds_for_new_rows(problem, recall):
    if problem.n_positives < 2 or problem.n_negatives < 2 or problem.spare_budget(recall) < 0:
        return
    calibrator = JointCalibrator(target_recall=recall, n_folds=2, n_jobs=1).fit_problem(problem)
    assert problem.is_feasible(calibrator.thresholds_, recall)
    assert verify(problem, calibrator.result_).is_valid
    assert calibrator.result_.loss == problem.loss(calibrator.thresholds_)


def test_thresholds_for_new_rows_follow_columns_and_units():
    made = table(3)
    first = JointCalibrator(target_recall=0.9, n_jobs=1).fit(made.scores, made.labels)
    doubled = JointCalibrator(target_recall=0.9, n_jobs=1).fit(made.scores * 2, made.labels)
    np.testing.assert_allclose(doubled.thresholds_, 2 * first.thresholds_, rtol=1e-5)
    np.testing.assert_array_equal(doubled.predict(made.scores * 2), first.predict(made.scores))


@pytest.mark.parametrize("when", [0, 1, 3])
def test_ctrl_c_in_any_search_ends_all_of_them(when, monkeypatch):
    """Thresholds are then those of the search, with its proof, and say that they were not drawn together."""
    made, n_searches = table(3), itertools.count()

    def interrupted(problem, **options):
        result = solve(problem, **options)
        return replace(result, statistics=result.statistics | {"is_interrupted": next(n_searches) == when})

    monkeypatch.setattr("eesvm.calibration.calibrators.joint.solve", interrupted)
    calibrator = JointCalibrator(target_recall=0.9, n_jobs=1).fit(made.scores, made.labels)
    assert calibrator.result_.statistics["is_interrupted"]
    assert not hasattr(calibrator, "pooled_")
    plain = JointCalibrator(min_recall=0.9, n_jobs=1).fit(made.scores, made.labels)
    np.testing.assert_array_equal(calibrator.thresholds_, plain.thresholds_)
    assert calibrator.result_.lower_bound == plain.result_.lower_bound
    assert next(n_searches) == when + 2  # the plain one was the last


def test_useless_exemplars_stay_off_and_units_of_their_own_do_not_count():
    """One threshold for all would be set by the loudest column, and by a column that knows nothing."""
    random = np.random.default_rng(0)
    scores, labels = random.normal(size=(900, 3)), (np.arange(900) < 300).astype(np.int8)
    scores[np.arange(300), np.arange(300) % 2] += 4
    scores[:, 1] *= 1000
    scores[:, 2] += 5
    calibrator = JointCalibrator(target_recall=0.9, n_jobs=1).fit(scores, labels)
    choice = calibrator.pooled_.choice
    assert choice.keep_off
    assert choice.units != "scores" or choice.strength == 1
    assert np.isfinite(calibrator.thresholds_).tolist() == [True, True, False]
    new = random.normal(size=(900, 3))
    new[:, 2] += 5
    new[np.arange(300), np.arange(300) % 2] += 4
    accepted = calibrator.predict(new * [1, 1000, 1]) == 1
    assert accepted[:300].mean() > 0.85
    assert accepted[300:].mean() < 0.1


def test_a_wanted_recall_is_met_on_new_rows():
    """Where rows are many, held-out recall is within a few standard errors of what was wanted."""
    both = table(0, 400, 800, 6)
    is_train = np.zeros(both.n_rows, dtype=bool)
    for label in (0, 1):
        members = np.random.default_rng(0).permutation(np.flatnonzero(both.labels == label))
        is_train[members[::2]] = True
    train, test = both.rows(is_train), both.rows(~is_train)
    calibrator = JointCalibrator(target_recall=0.9, n_jobs=1).fit(train.scores, train.labels)
    caught = calibrator.predict(test.scores)[test.labels == 1].mean()
    assert abs(caught - 0.9) < 4 * np.sqrt(0.09 / 200)


def test_a_vote_is_a_majority():
    made = table(1)
    calibrator = JointCalibrator(min_recall=0.9, n_bootstraps=5, n_jobs=1, scale="spread").fit(made.scores, made.labels)
    assert calibrator.votes_.shape == (5, 4)
    counts = [sum((row > vote).any() for vote in calibrator.votes_) for row in made.scores]
    np.testing.assert_array_equal(calibrator.predict(made.scores), [int(count >= 3) for count in counts])
    np.testing.assert_array_equal(calibrator.decision_function(made.scores) > 0, calibrator.predict(made.scores) == 1)
    again = JointCalibrator(min_recall=0.9, n_bootstraps=5, n_jobs=1, scale="spread").fit(made.scores, made.labels)
    np.testing.assert_array_equal(again.votes_, calibrator.votes_)
    again.set_params(n_bootstraps=0).fit(made.scores, made.labels)
    assert not hasattr(again, "votes_")


def test_votes_and_wanted_recall_are_kept(tmp_path):
    made = table(2)
    for options in (
        {"n_bootstraps": 3, "min_recall": 0.8},
        {"target_recall": 0.8},
        {"target_recall": 0.8, "n_bootstraps": 2},
    ):
        saved = JointCalibrator(n_jobs=1, **options).fit(made.scores, made.labels)
        save_calibration(tmp_path / "c.json", saved)
        loaded = load_calibration(tmp_path / "c.json")
        assert loaded.get_params() == saved.get_params()
        for method in ("transform", "decision_function", "predict", "assign"):
            np.testing.assert_array_equal(getattr(loaded, method)(made.scores), getattr(saved, method)(made.scores))
    content = json.loads((tmp_path / "c.json").read_text())
    for changes, sentence in (
        ({"votes": None}, "`votes` must be a list of 2 lists of thresholds"),
        ({"votes": [[1.0] * 4, [1.0] * 3]}, "`votes` must hold lists of 4 thresholds"),
        ({"votes": [[1.0] * 4, ["x"] * 4]}, '`votes[1]` must hold finite numbers, "-inf", and null for redundant detectors'),
        ({"new_rows": {}}, "`new_rows` must hold target_recall, n_folds, n_bootstraps"),
        ({"new_rows": content["new_rows"] | {"n_folds": 1}}, "`new_rows.n_folds` must be a whole number >= 2, got 1"),
        ({"new_rows": content["new_rows"] | {"target_recall": 2}}, "`new_rows.target_recall` must be null or a number > 0 and <= 1, got 2"),
    ):  # fmt: skip
        (tmp_path / "d.json").write_text(json.dumps(content | changes))
        with pytest.raises(InputError) as caught:
            load_calibration(tmp_path / "d.json")
        assert str(caught.value) == f"{tmp_path / 'd.json'}: {sentence}"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"target_recall": 0}, "`target_recall` must be > 0, got 0"),
        ({"target_recall": 0.9, "min_recall": 0.9}, "`target_recall` excludes `min_recall`, `max_loss` and `min_precision`: it chooses the floor itself"),
        ({"target_recall": 0.9, "max_loss": 3}, "`target_recall` excludes `min_recall`, `max_loss` and `min_precision`: it chooses the floor itself"),
        ({"n_bootstraps": -1}, "`n_bootstraps` must be >= 0, got -1"),
        ({"n_bootstraps": 2, "sigmoid": True}, "`n_bootstraps` and `sigmoid` exclude each other: a vote has no probability"),
        ({"n_folds": 1}, "`n_folds` must be >= 2, got 1"),
    ],
    ids=str,
)  # fmt: skip
def test_options_are_checked(options, sentence):
    made = table()
    with pytest.raises(InputError) as caught:
        JointCalibrator(**options).fit(made.scores, made.labels)
    assert str(caught.value) == sentence


def test_own_images_do_not_count_when_held_out():
    """An exemplar that finds its own image only is worth nothing on new ones."""
    n = 12
    scores = np.vstack([np.eye(n) + 0.0, np.zeros((30, n))])
    labels = np.repeat([1, 0], [n, 30]).astype(np.int8)
    groups = np.concatenate([np.arange(n), 100 + np.arange(30)])
    made = ScoreTable(scores, labels, groups, np.arange(n))
    calibrator = JointCalibrator(n_jobs=1)
    problem = fit_table(made, calibrator)
    held_out = hold_out(made, calibrator, problem, 4)
    assert held_out.fitted_recall == 1
    assert held_out.recall.value == 0
    assert held_out.is_grouped
    assert held_out.warnings == [
        "recall on held-out rows is 0.0 %, not 100.0 %: new rows will be missed more often than these"
    ]


@pytest.mark.parametrize(
    "options", [{"max_loss": 10.0}, {"min_precision": 0.8}, {"n_bootstraps": 3}, {"target_recall": 0.9}, {"max_detectors": 2, "min_recall": 0.5}], ids=str
)  # fmt: skip
def test_whatever_is_asked_for_can_be_held_out(options):
    made = table(4)
    calibrator = JointCalibrator(n_jobs=1, **options)
    problem = fit_table(made, calibrator)
    before = calibrator.thresholds_.copy()
    held_out = hold_out(made, calibrator, problem, 3)
    np.testing.assert_array_equal(calibrator.thresholds_, before)
    assert 0 <= held_out.recall.low <= held_out.recall.value <= held_out.recall.high <= 1


@pytest.mark.long
@pytest.mark.parametrize(
    "options", [{"target_recall": 0.9}, {"min_recall": 0.9, "n_bootstraps": 2}, {"min_recall": 0.9}]
)
def test_positives_without_a_score_are_held_out_like_others(options):
    """Without some of the others they are too many for the floor, which is then the highest that can be met."""
    made = table(5, n_positives=40)
    scores = np.asarray(made.scores, dtype=np.float64)
    unscored = np.flatnonzero(made.labels == 1)[[3, 8, 20, 31]]
    scores[unscored] = np.nan
    made = ScoreTable(scores, made.labels, missing="not-fired")
    calibrator = JointCalibrator(n_jobs=1, missing="not-fired", **options)
    problem = fit_table(made, calibrator)
    held_out = hold_out(made, calibrator, problem)
    assert 0.8 < held_out.fitted_recall <= 0.9
    assert 0.6 < held_out.recall.value <= 0.9
    everything = hold_out(
        made, JointCalibrator(n_jobs=1, missing="not-fired", target_recall=0.01).fit_problem(problem), problem
    )
    assert everything.recall.value <= held_out.recall.value


ONE_OF_TWO = np.array([[2.0, 0], [2, 0], [2, 0], [0, 2], [0, 2], [0, 2], [1, 1], [1, 1], [1, 1], [3, 3]])


def test_parts_that_cannot_meet_a_budget_are_refitted():
    """A share of the budget is not enough for anything: parts get what `refit` finds for them."""
    made = ScoreTable(ONE_OF_TWO, np.array([1, 1, 1, 1, 1, 1, 0, 0, 0, 0]))
    calibrator = JointCalibrator(n_jobs=1, max_loss=1.0, n_bootstraps=2)
    problem = fit_table(made, calibrator)
    assert hold_out(made, calibrator, problem, 3).recall.value == recall_of_refits(problem, calibrator, 3)


@pytest.mark.long
def test_parts_in_which_one_detector_is_not_enough_are_fitted_like_the_whole():
    """One detector has the recall in some parts, and not in others."""
    scores = ONE_OF_TWO.copy()
    scores[4, 0] = 2
    made = ScoreTable(scores, np.array([1, 1, 1, 1, 1, 1, 0, 0, 0, 0]))
    for seed in few(range(4)):
        calibrator = JointCalibrator(n_jobs=1, target_recall=0.66, max_detectors=1, random_state=seed)
        problem = fit_table(made, calibrator)
        folds, covered = make_folds(problem, 3, random_state=seed), 0.0
        for fold, rest, _ in training_parts(problem, folds):
            groups = folds.positive_groups[folds.positives != fold], folds.negative_groups[folds.negatives != fold]
            thresholds = clone(calibrator).set_params(node_limit=1).fit_problem(rest, groups).thresholds_
            covered += (problem.positive_scores > thresholds).any(axis=1)[folds.positives == fold].sum()
        assert hold_out(made, calibrator, problem, 3).recall.value == covered / 6


def recall_of_refits(problem, calibrator, n_folds):
    """Recall on held-out rows of what `refit` finds for the others, fold by fold."""
    folds, covered = make_folds(problem, n_folds), 0.0
    for fold, rest, share in training_parts(problem, folds):
        accepted = (problem.positive_scores > calibrator.refit(rest, share)).any(axis=1)
        covered += problem.positive_weights[accepted & (folds.positives == fold)].sum()
    return covered / problem.positive_weights.sum()


def test_parts_that_are_too_small_for_folds_of_their_own_are_refitted():
    """Two positives: a part has one, and what new rows need cannot be tried on it."""
    made = ScoreTable(np.array([[2.0, 0], [3, 1], [1, 1], [0, 2], [1, 0], [0, 1]]), np.array([1, 1, 0, 0, 0, 0]))
    calibrator = JointCalibrator(n_jobs=1, target_recall=0.9)
    problem = fit_table(made, calibrator)
    assert hold_out(made, calibrator, problem, 2).recall.value == recall_of_refits(problem, calibrator, 2)


def test_limits_of_refits_are_those_of_the_calibrator():
    made = table()
    for limit, expected in ((None, 1), (7, 7)):
        calibrator = JointCalibrator(n_jobs=1, target_recall=0.9, node_limit=limit, time_limit=50.0)
        problem = fit_table(made, calibrator)
        seen = []
        calibrator.progress = lambda *_, seen=seen: seen.append(True)
        refitted = calibrator.refit_as_fitted(
            problem, 1.0, (np.arange(problem.n_positives), -1 - np.arange(problem.n_negatives))
        )
        alike = JointCalibrator(n_jobs=1, target_recall=0.9, node_limit=expected, time_limit=10.0).fit_problem(
            problem, (np.arange(problem.n_positives), -1 - np.arange(problem.n_negatives))
        )
        np.testing.assert_array_equal(refitted, alike.thresholds_)
        assert not seen


def test_a_recall_that_needs_what_is_switched_off_accepts_everything():
    """One positive in four is scored by the last detector alone, which is off: with it missed, 0.9 cannot be had."""
    nothing = np.nan
    problem = CalibrationProblem(
        np.array([[2.0, nothing], [3, nothing], [4, nothing], [nothing, 5]]),
        np.array([[1.0, 1], [0, 6], [2.5, 0]]),
        missing="not-fired",
    )
    units = Units.of("scores", problem.negative_scores)
    rows = Rows.of(units, problem)
    made = Offsets.of(units, problem, np.array([1.5, np.inf]), keep_off=True)
    assert rows.pooled(made, 1.0).false_alarms(0.9) == 1
    assert rows.pooled(made, 1.0).false_alarms(0.75) == 1 / 3
    assert rows.pooled(Offsets.of(units, problem, np.array([1.5, np.inf]), keep_off=False), 1.0).false_alarms(0.9) < 1


def test_parts_keep_everything():
    problem = table().problem()
    some = part(problem, np.array([3, 1]), np.array([0, 0, 2]), 0.5)
    np.testing.assert_array_equal(some.positive_scores, problem.positive_scores[[3, 1]])
    np.testing.assert_array_equal(some.negative_scores, problem.negative_scores[[0, 0, 2]])


def test_the_command_says_what_to_expect(tmp_path, capsys):
    write_score_table(tmp_path / "s.npz", table())
    call = ["calibrate", str(tmp_path / "s.npz"), "-o", str(tmp_path / "out"), "--jobs", "1", "--overwrite"]
    assert main(call) == 0
    text = capsys.readouterr().out
    assert "expected of new rows, by cross-validation over " in text
    assert "held_out.json" in text
    content = json.loads((tmp_path / "out" / "held_out.json").read_text())
    assert content["recall"]["low"] <= content["recall"]["value"] <= content["recall"]["high"]
    assert main([*call, "--folds", "0"]) == 0
    assert "expected of new rows" not in capsys.readouterr().out
    assert not (tmp_path / "out" / "held_out.json").exists()
    assert main([*call, "--target-recall", "0.9", "--verify"]) == 0
    text = capsys.readouterr().out
    facts = [line.split("  ", 2) for line in text.split("\n\n")[0].splitlines()]
    values = {name: value.strip() for _, name, value in facts}
    assert values["asked for"] == "a recall of 90 % on new rows"
    result = load_calibration(tmp_path / "out").result_
    assert values["loss"] == (
        f"{result.loss:,.0f} (weight of the accepted negatives), with recall {percent(result.recall)} here"
    )
    assert values["status"] == "chosen for new rows, so not the best on these"
    assert values["for comparison"] == (
        f"for a recall of 90 % of these rows alone no thresholds have a loss below {result.lower_bound:,.0f}"
    )
    assert not {"lower bound", "gap", "recall"} & set(values)  # they are about the best thresholds of these rows
    assert "interrupted" not in text
    assert main(["verify", str(tmp_path / "s.npz"), str(tmp_path / "out")]) == 0


def test_too_few_rows_are_no_error(tmp_path, capsys):
    np.savez(tmp_path / "s.npz", positive_scores=np.ones((1, 2)), negative_scores=np.zeros((3, 2)))
    assert main(["calibrate", str(tmp_path / "s.npz"), "-o", str(tmp_path / "out")]) == 0
    assert (
        "note: nothing is said about new rows: cross-validation needs positives from two rows or groups at least, and "
        "negatives from two\n"
    ) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--folds", "1"], "--folds must be 0, or 2 or more, got 1"),
        (["--folds", "0", "--target-recall", "0.9"], "--target-recall needs rows that are held out: --folds must be 2 or more, got 0"),
        (["--target-recall", "0.9", "--min-recall", "0.9"], "--target-recall goes with no --min-recall, --max-loss or --min-precision"),
        (["--target-recall", "0.9", "--max-loss", "3"], "--target-recall goes with no --min-recall, --max-loss or --min-precision"),
    ],
    ids=str,
)  # fmt: skip
def test_options_of_the_command_are_checked(tmp_path, capsys, options, sentence):
    assert main(["calibrate", "absent.csv", "-o", str(tmp_path / "out"), *options]) == 2
    assert capsys.readouterr().err == f"eesvm: error: {sentence}\n"


@pytest.mark.parametrize("n", [2, 10, 14, 50, 69, 75, 80, 90, 120, 125, 138])
def test_all_and_nothing_reach_the_ends_of_their_intervals(n):
    every, groups = np.ones(n), np.arange(n)
    assert share_with_interval(np.ones(n, dtype=bool), every, groups).high == 1.0
    assert share_with_interval(np.zeros(n, dtype=bool), every, groups).low == 0.0


@pytest.mark.parametrize("weights", [[1e300, 1e300, 1.0], [1e-300, 3e-300, 1e-310], [1e20, 1.0, 1.0], [0.1, 0.2, 0.3]])
def test_shares_of_weights_of_any_size(weights):
    weights = np.array(weights)
    for chosen in ([True, True, True], [True, False, False], [False, True, True], [False, False, False]):
        found = share_with_interval(np.array(chosen), weights, np.array([0, 0, 1]))
        assert 0 <= found.low <= found.value <= found.high <= 1


def test_few_detectors_that_cannot_reach_the_floor_in_a_part_reach_what_they_can():
    scores = np.full((10, 2), np.nan)
    scores[:9, 0], scores[9, 1] = np.arange(9) + 1.0, 1.0
    calibrator = JointCalibrator(sigmoid=False, max_detectors=1, min_recall=0.9, missing="not-fired")
    whole = CalibrationProblem(scores, np.zeros((5, 2)), missing="not-fired")
    assert np.isfinite(calibrator.refit(whole)).sum() == 1
    part_of = CalibrationProblem(
        scores[2:], np.zeros((5, 2)), missing="not-fired"
    )  # one of the two covers 7 of 8 at most
    thresholds = calibrator.refit(part_of)
    assert part_of.recall(thresholds) == 7 / 8


def test_positives_that_nobody_may_cover_are_never_the_last_that_a_recall_needs():
    decisions = Decisions(np.array([3.0, 2.0, -np.inf, -np.inf]), np.array([0.0]), np.ones(4), np.ones(1))
    assert decisions.lowest(0.9) == 2.0
    assert np.isfinite(decisions.level(0.9))
