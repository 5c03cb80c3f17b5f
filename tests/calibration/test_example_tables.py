"""The built-in tables are what their docstrings say, and the same every time."""

import numpy as np
import pytest

from eesvm import InputError, solve
from eesvm.calibration.tables.examples import FAMILIES, digit_score_table, exemplar_lda, synthetic_score_table


@pytest.fixture(scope="module")
def digits():
    return digit_score_table()


def test_digits_are_real_split_by_image_and_the_same_every_time(digits):
    assert digits.train.n_exemplars == 90
    assert (digits.train.n_positives, digits.train.n_rows) == (810, 8064)
    assert not set(digits.train.groups) & set(digits.test.groups)
    assert set(digits.train.exemplar_groups) <= set(digits.train.groups[digits.train.labels == 1])
    assert len(digits.test_windows) == digits.test.n_rows
    np.testing.assert_array_equal(digits.test.labels, digits.test_digits == 9)
    again = digit_score_table()
    np.testing.assert_array_equal(again.train.scores, digits.train.scores)
    other = digit_score_table(random_state=1)
    assert not np.array_equal(other.train.groups, digits.train.groups)


def test_an_exemplar_prefers_its_own_image(digits):
    own = digits.train.groups[:, None] == digits.train.exemplar_groups
    winners = digits.train.scores.argmax(axis=0)
    assert own[winners, np.arange(digits.train.n_exemplars)].mean() > 0.9
    scores = digits.train.scores[winners, np.arange(digits.train.n_exemplars)]
    assert scores.mean() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("across", [False, True])
def test_the_joint_problem_is_not_trivial_and_not_hopeless(digits, across):
    problem = digits.train.problem(across)
    free = problem.positive_scores > problem.negative_scores.max(axis=0)
    if across:
        free &= ~problem.forbidden
    assert 0.2 < free.any(axis=1).mean() < 0.9
    greedy = solve(problem, method="greedy")
    best = solve(problem, method="algorithm1", time_limit=60)
    assert best.status == "optimal"
    assert 0 < best.loss < greedy.loss < problem.n_negatives / 4


@pytest.mark.parametrize("digit", [-1, 10, 3.5])
def test_digits_that_do_not_exist(digit):
    with pytest.raises(InputError, match=r"^`digit` must be "):
        digit_score_table(digit)


def test_exemplar_lda_is_the_closed_form():
    random = np.random.default_rng(0)
    exemplars, background = random.normal(size=(3, 4)), random.normal(size=(50, 4))
    weights, biases = exemplar_lda(exemplars, background, shrinkage=0.0)
    directions = np.linalg.inv(np.cov(background.T)) @ (exemplars - background.mean(axis=0)).T
    ratio = weights / directions.T
    np.testing.assert_allclose(ratio, ratio[0, 0])
    own = (weights * exemplars).sum(axis=1) + biases
    np.testing.assert_allclose(own, -(weights @ background.mean(axis=0) + biases))
    assert own.mean() == pytest.approx(1)


@pytest.mark.parametrize("family", FAMILIES)
def test_synthetic_tables_are_the_same_in_memory_and_on_disk(tmp_path, family):
    sizes = (7, 30, 10_000)  # more rows than one block
    table = synthetic_score_table(*sizes, family)
    assert table.scores.shape == (10_030, 7)
    assert table.scores.dtype == np.float32
    assert table.n_positives == 30
    mapped = synthetic_score_table(*sizes, family, out=tmp_path / "table")
    assert isinstance(mapped.scores, np.memmap)
    assert np.shares_memory(mapped.problem().negative_scores, mapped.scores)
    np.testing.assert_array_equal(mapped.scores, table.scores)
    np.testing.assert_array_equal(mapped.groups, table.groups)
    wide = synthetic_score_table(*sizes, family, dtype=np.float64)
    np.testing.assert_array_equal(wide.scores.astype(np.float32), table.scores)
    assert not np.array_equal(synthetic_score_table(*sizes, family, random_state=1).scores, table.scores)


def test_families_differ_as_they_say():
    def free(family):
        problem = synthetic_score_table(40, 400, 5000, family).problem()
        return (problem.positive_scores > problem.negative_scores.max(axis=0)).any(axis=1).mean()

    assert free("easy") > 0.7 > 0.3 > free("overlapping")
    lowest = {
        family: np.quantile(synthetic_score_table(40, 400, 50, family).problem().positive_scores.max(axis=1), 0.0)
        for family in FAMILIES
    }
    assert lowest["heavy_tailed"] < lowest["easy"]


def test_impossible_tables(tmp_path):
    with pytest.raises(InputError, match=r"^`n_positives` must be >= 1, got 0$"):
        synthetic_score_table(2, 0, 3)
    with pytest.raises(
        InputError, match=r"^`family` must be one of 'easy', 'heavy_tailed', 'overlapping', got 'hard'$"
    ):
        synthetic_score_table(2, 3, 3, "hard")
    with pytest.raises(InputError, match=r"already exists"):
        synthetic_score_table(2, 3, 3, out=tmp_path)
