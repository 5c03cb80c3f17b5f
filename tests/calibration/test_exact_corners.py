"""Problems made to trip the exact search: prices that its quanta do not fit, choices that are even over many exemplars."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from eesvm import CalibrationProblem, JointCalibrator, verify
from eesvm._support.threads import Workers
from eesvm.calibration.ranks import rank
from eesvm.calibration.search.ascent import Ascent
from eesvm.calibration.search.reduce import cheap_box, reduce
from helpers.evidence import verified_solve as solve
from helpers.examples import few


def set_problem(sets, n_positives, n_negatives, weights=None):
    """Exemplar j covers positive sets[j][0] alone, and accepts the negatives sets[j][1] when it does."""
    positives, negatives = np.zeros((n_positives, len(sets))), np.zeros((n_negatives, len(sets)))
    for j, (p, accepted) in enumerate(sets):
        positives[p, j] = 1
        negatives[list(accepted), j] = 2
    forbidden = positives == 0
    return CalibrationProblem(positives, negatives, negative_weights=weights, forbidden=forbidden)


def three_ways(n=30):
    """Each positive has three exemplars; all the a's cost 17, all the b's 16, all the c's 15."""
    parts = np.split(np.arange(44), np.cumsum([12, 3, 12, 2, 13]))
    x, f, y, y1, z, g = map(set, parts)
    first = [(0, x | g), (0, y | g), (0, z | g)]
    return [first[k] if i == 0 else (i, [x | f, y | y1, z][k]) for k in range(3) for i in range(n)]


@pytest.mark.parametrize("weight", [1.0, 2.0**45 + 1, 2.0**44 + 1, 2.0**46 + 3])
def test_a_solution_that_is_better_by_one_unit_is_not_cut_off_by_rounding(weight):
    sets = three_ways()
    problem = set_problem(sets, 30, 44, np.full(44, weight))
    result = solve(problem, random_state=0)
    assert result.status == "optimal"
    assert Fraction(result.loss) == 15 * Fraction(weight)
    assert result.lower_bound <= result.loss
    assert verify(problem, result).is_valid


@pytest.mark.parametrize("side", few([12, 60, 140], 2))
def test_choices_that_are_even_over_many_exemplars(side):
    """The negatives are a square; one positive takes a row of it, the other a column."""
    cells = np.arange(side * side).reshape(side, side)
    sets = [(0, cells[j]) for j in range(side)] + [(1, cells[:, k]) for k in range(side)]
    problem = set_problem(sets, 2, side * side)
    result = solve(problem, node_limit=3000, time_limit=20)
    assert result.loss == 2 * side - 1
    assert result.lower_bound <= result.loss
    assert verify(problem, result).is_valid


def test_the_ascent_grows_where_a_choice_is_even_over_many():
    side = 140
    cells = np.arange(side * side).reshape(side, side)
    problem = set_problem([(0, cells[j]) for j in range(side)], 1, side * side)
    ranked = rank(problem)
    ascent = Ascent(reduce(ranked, cheap_box(ranked, math.inf)), ranked.quantum, Workers(1))
    ascent.begin(ranked.order)
    for _ in range(20):
        ascent.iterate(16, lambda: False)
        ascent.grow(ranked.order, tidy=False)
    ascent.iterate(64, lambda: False)
    assert ascent.evaluate().values.sum() * ranked.quantum > side / 2


def test_weights_whose_sums_are_rounded_never_lift_the_bound_above_the_optimum():
    sets, weights = [], []
    for block in range(2):
        x, y, e, f = range(4 * block, 4 * block + 4)
        for i in range(30):
            p = 30 * block + i
            sets += [(p, {x} if i == 0 else {x, f}), (p, {y, e} if i == 0 else {y})]
        weights += [1.0, 1.0, 1e-12, 1e-11]
    problem = set_problem(sets, 60, 8, np.array(weights))
    best = 2 * (Fraction(1.0) + Fraction(1e-12))
    result = solve(problem)
    assert Fraction(result.lower_bound) <= best
    assert result.loss == pytest.approx(float(best), rel=1e-9)
    assert verify(problem, result).is_valid


def test_weights_that_float64_can_hardly_hold():
    problem = set_problem([(0, {0}), (1, {1})], 2, 2, np.array([1e-310, 1e-310]))
    result = solve(problem)
    assert result.status == "optimal"
    assert result.loss == 2e-310
    assert verify(problem, result).is_valid


@pytest.mark.parametrize("exponent", few([-600, 61, -170, -61, 130, 600], 2))
@pytest.mark.parametrize("min_recall", [1.0, 0.9])
def test_a_power_of_two_in_all_weights_changes_nothing_else(exponent, min_recall):
    random = np.random.default_rng(3)
    scores = random.normal(size=(18, 4)), random.normal(size=(90, 4)) - 0.5
    weights = random.integers(1, 9, 90).astype(float)
    plain = solve(CalibrationProblem(*scores, negative_weights=weights), min_recall=min_recall)
    problem = CalibrationProblem(*scores, negative_weights=np.ldexp(weights, exponent))
    scaled = solve(problem, min_recall=min_recall)
    assert scaled.status == plain.status == "optimal"
    assert scaled.loss == math.ldexp(plain.loss, exponent)
    assert verify(problem, scaled).is_valid


def test_seeds_and_trees_of_any_size():
    random = np.random.default_rng(0)
    problem = CalibrationProblem(random.normal(size=(12, 4)), random.normal(size=(40, 4)))
    expected = solve(problem).loss
    for seed in (2**64 - 1, 2**64, 10**400):
        assert solve(problem, random_state=seed).loss == expected
    large = CalibrationProblem(random.normal(size=(3000, 20)), random.normal(size=(40, 20)))
    walked = solve(large, method="exhaustive", node_limit=100)
    assert walked.statistics["tree_size"] == math.inf
    assert "inf" in repr(walked.statistics)


def test_a_recall_that_the_thresholds_do_not_have_is_found_out():
    random = np.random.default_rng(1)
    problem = CalibrationProblem(random.normal(size=(40, 4)), random.normal(size=(80, 4)))
    result = solve(problem, min_recall=0.9)
    assert result.recall < 1
    assert verify(problem, result).is_valid
    assert "the recall is given as 1" in verify(problem, replace(result, recall=1.0)).problems[0]


def test_sigmoids_of_an_earlier_fit_are_gone():
    random = np.random.default_rng(2)
    S, y = random.normal(size=(60, 3)), np.repeat([1, 0], [20, 40])
    calibrator = JointCalibrator(sigmoid=True).fit(S, y)
    calibrator.set_params(sigmoid=False).fit(S + 1, y)
    assert not hasattr(calibrator, "sigmoids_")
    assert not hasattr(calibrator, "muted_")
