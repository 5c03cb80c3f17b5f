"""The problem itself: thresholds, loss and feasibility against loops, ties, extremes, bad input."""

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eesvm import CalibrationProblem, InputError, solve
from eesvm._support.validation import OFFER
from eesvm.calibration.problem import _between
from helpers import reference
from helpers.examples import many
from helpers.strategies import problems


@settings(deadline=None)
@given(problems(), st.data())
def test_loss_and_coverage_equal_the_loops(problem, data):
    values = np.concatenate([problem.positive_scores, problem.negative_scores]).ravel()
    thresholds = np.array(
        [data.draw(st.sampled_from([-np.inf, np.inf, *values])) for _ in range(problem.n_exemplars)], dtype=np.float64
    )
    assert problem.loss(thresholds) == pytest.approx(reference.loss(problem, thresholds))
    covered = reference.covered(problem, thresholds)
    assert (problem.covers(thresholds) == covered).all()
    assert problem.is_feasible(thresholds) == covered.all()
    assert problem.recall(thresholds) == pytest.approx(np.average(covered, weights=problem.positive_weights))


@settings(deadline=None, max_examples=many(300))
@given(problems(forbidden=False))
def test_candidates_are_those_of_section_4_1(problem):
    for j in range(problem.n_exemplars):
        positives, negatives = problem.positive_scores[:, j], problem.negative_scores[:, j]
        pairs = reference.candidate_thresholds(positives.tolist(), negatives.tolist())
        candidates = problem.candidate_thresholds(j)
        assert len(candidates) == len(pairs) <= problem.n_positives + 1
        assert (np.diff(candidates) < 0).all()
        for candidate, (lowest, rejected) in zip(candidates, pairs, strict=True):
            if lowest is None:
                assert candidate == np.inf
            elif rejected is None:
                assert candidate < lowest
            else:
                assert candidate == (lowest + rejected) / 2


def test_the_figure_of_the_paper():
    # Scores from high to low: + - + + - -; one candidate under the first positive, one under the third.
    problem = CalibrationProblem([[6.0], [4.0], [3.0]], [[5.0], [2.0], [1.0]])
    assert problem.candidate_thresholds(0).tolist() == [5.5, 2.5]
    # The highest window is a negative: the tightest threshold accepts nothing.
    assert CalibrationProblem([[4.0]], [[5.0], [2.0]]).candidate_thresholds(0).tolist() == [np.inf, 3.0]
    # A negative that ties with the positive comes along.
    tie = CalibrationProblem([[4.0]], [[4.0], [2.0]])
    assert tie.candidate_thresholds(0).tolist() == [np.inf, 3.0]
    assert solve(tie).loss == 1


def test_nothing_below_steps_under_by_half_the_gap_above():
    assert CalibrationProblem([[1.0]], [[3.0]]).candidate_thresholds(0).tolist() == [np.inf, 0.0]
    assert CalibrationProblem([[1.0], [5.0]], [[5.0]]).candidate_thresholds(0).tolist() == [np.inf, -1.0]
    assert CalibrationProblem([[8.0]], [[8.0]]).candidate_thresholds(0).tolist() == [np.inf, 4.0]
    assert CalibrationProblem([[0.0]], [[0.0]]).candidate_thresholds(0).tolist() == [np.inf, -0.5]


def test_forbidden_pairs_make_no_candidates():
    problem = CalibrationProblem([[4.0], [1.0]], [[3.0], [0.0]], forbidden=[[False], [True]])
    assert problem.candidate_thresholds(0).tolist() == [3.5]
    everything = CalibrationProblem([[4.0], [1.0]], [[3.0]], forbidden=[[True], [True]])
    assert everything.candidate_thresholds(0).tolist() == [np.inf]


@settings(deadline=None, max_examples=many(500))
@given(st.data(), st.sampled_from([np.float32, np.float64]))
def test_thresholds_survive_rounding(data, dtype):
    """Neighbouring, huge and tiny floats: the threshold still separates what it should."""
    limits = {"allow_nan": False, "allow_infinity": False, "width": np.dtype(dtype).itemsize * 8}
    base = data.draw(st.floats(**limits))
    with np.errstate(over="ignore", under="ignore"):
        neighbours = [np.nextafter(dtype(base), dtype(limit)) for limit in (base, np.inf, -np.inf)]
    values = st.one_of(st.sampled_from([v for v in neighbours if np.isfinite(v)]), st.floats(**limits).map(dtype))
    table = data.draw(hnp.arrays(dtype, (6, 2), elements=values, fill=st.nothing()))
    limits = st.one_of(values, st.just(np.inf), st.just(-np.inf))
    bounds = np.sort(data.draw(hnp.arrays(dtype, (2, 2), elements=limits, fill=st.nothing())), axis=0)
    for lower, upper in ([None, None], bounds, [None, bounds[0]]):
        problem = CalibrationProblem(table[:3], table[3:], lower_thresholds=lower, upper_thresholds=upper)
        best = reference.brute_force(problem)
        if best is None:
            with pytest.raises(InputError, match="cannot be covered"):
                solve(problem, method="algorithm1")
            continue
        result = solve(problem, method="algorithm1")
        assert result.thresholds.dtype == dtype
        assert problem.is_feasible(result.thresholds)
        assert result.loss == best


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_middle_of_neighbours_is_the_lower_one(dtype):
    low = dtype(1.0)
    high = np.nextafter(low, dtype(2))
    threshold = _between(np.array([low]), np.array([high]), np.array([np.inf], dtype=dtype))
    assert threshold.dtype == dtype
    assert low <= threshold[0] < high
    biggest = np.finfo(dtype).max
    middle = _between(np.array([-biggest]), np.array([biggest]), np.array([np.inf], dtype=dtype))
    assert middle[0] == 0
    lowest = _between(np.array([-np.inf], dtype=dtype), np.array([-biggest]), np.array([np.inf], dtype=dtype))
    assert lowest[0] < -biggest


def test_dtypes_are_kept_or_widened_exactly():
    halves = CalibrationProblem(np.ones((2, 1), np.float16), np.zeros((2, 1), np.float16))
    assert halves.positive_scores.dtype == np.float32
    whole = CalibrationProblem([[3], [1]], [[2], [0]])
    assert whole.positive_scores.dtype == np.float64
    assert solve(whole).loss == 1
    mixed = CalibrationProblem(np.ones((2, 1), np.float32), np.zeros((2, 1), np.float64))
    assert mixed.positive_scores.dtype == np.float64
    swapped = CalibrationProblem(np.ones((2, 1), ">f4"), np.zeros((2, 1), ">f4"))
    assert solve(swapped).loss == 0
    scores = np.ones((2, 3), np.float32)
    assert CalibrationProblem(scores, np.zeros((2, 3), np.float32)).positive_scores is scores


def test_memory_maps_are_not_copied(tmp_path):
    np.save(tmp_path / "n.npy", np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32))
    mapped = np.load(tmp_path / "n.npy", mmap_mode="r")
    problem = CalibrationProblem(np.full((3, 4), 2, np.float32), mapped)
    assert np.shares_memory(problem.negative_scores, mapped)
    assert solve(problem).loss == problem.loss(solve(problem).thresholds)


def test_fortran_order_and_slices_give_the_same_answer():
    rng = np.random.default_rng(1)
    positives, negatives = rng.normal(size=(30, 8)) + 1, rng.normal(size=(200, 8))
    plain = solve(CalibrationProblem(positives, negatives))
    turned = solve(CalibrationProblem(np.asfortranarray(positives), np.repeat(negatives, 2, axis=1)[:, ::2]))
    assert (plain.thresholds == turned.thresholds).all()


def test_one_exemplar_constant_and_repeated_columns_work_and_are_noted():
    one = CalibrationProblem([[1.0], [0.5]], [[0.8], [0.0]])
    assert solve(one).loss == 1
    assert one.notes() == ["There is one detector only: its threshold sits just under its lowest positive."]
    table = np.array([[1.0, 3.0, 1.0], [0.0, 3.0, 0.0]])
    problem = CalibrationProblem(table, table - [[0.5, 0.0, 0.5]])
    assert problem.notes() == [
        "Column 1 is constant: such a detector can accept everything or nothing.",
        "Column 2 is the same as an earlier column: one of each would do.",
    ]
    assert solve(problem).loss == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            (np.zeros((2, 3)), np.zeros((2, 4))),
            "`positive_scores` and `negative_scores` must have one column per detector, got 3 and 4 columns",
        ),
        ((np.zeros((0, 3)), np.zeros((2, 3))), "`positive_scores` has no rows: without a positive window there is nothing to cover"),
        ((np.zeros((2, 3)), np.zeros((0, 3))), "`negative_scores` has no rows: without a negative window every threshold is perfect"),
        ((np.zeros((2, 0)), np.zeros((2, 0))), "`positive_scores` has 0 columns: there is no detector to calibrate"),
        ((np.zeros(3), np.zeros((2, 3))), "`positive_scores` must have two dimensions (windows, detectors), got shape (3,)"),
        (([[1, 2], [3]], np.zeros((2, 2))), "`positive_scores` must be a table of numbers, got rows of different lengths"),
        (([["a", "b"]], np.zeros((2, 2))), "`positive_scores` must hold numbers, got dtype <U1"),
        (([[True, False]], np.zeros((2, 2))), "`positive_scores` must hold numbers, got dtype bool"),
        ((np.ones((2, 2), complex), np.zeros((2, 2))), "`positive_scores` must hold numbers, got dtype complex128"),
        (([[0, math.nan], [math.inf, 1]], np.zeros((2, 2))), "`positive_scores` holds 2 values that are NaN or infinite, the first at row 0, column 1" + OFFER),
        ((np.zeros((2, 2)), [[0, 0], [0, -math.inf]]), "`negative_scores` holds 1 value that is NaN or infinite, the first at row 1, column 1"),
        (([[2**60, 0]], np.zeros((2, 2))), "`positive_scores` holds integers beyond 2**53, which float64 scores cannot hold exactly"),
        ((np.zeros((2, 1)), np.zeros((2, 1)), [1, 0]), "`positive_weights` must be > 0, got 0 at index 1"),
        ((np.zeros((2, 1)), np.zeros((2, 1)), None, [-1, 0]), "`negative_weights` must be >= 0, got -1 at index 0"),
        ((np.zeros((2, 1)), np.zeros((2, 1)), None, [1, 2, 3]), "`negative_weights` must have shape (2,), got (3,)"),
        ((np.zeros((2, 1)), np.zeros((2, 1)), None, ["x", "y"]), "`negative_weights` must hold numbers"),
        ((np.zeros((2, 1)), np.zeros((2, 1)), None, [1, math.nan]), "`negative_weights` holds 1 value that is NaN or infinite, the first at index 1"),
        ((np.zeros((2, 1)), np.zeros((2, 1)), None, [1e308, 1e308]), "`negative_weights` must have a finite sum"),
        ((np.zeros((2, 1)), np.zeros((2, 1)), None, None, [[0], [1]]), "`forbidden` must be an array of booleans, got dtype int64"),
        ((np.zeros((2, 1)), np.zeros((2, 1)), None, None, [[True]]), "`forbidden` must have the shape of `positive_scores`, (2, 1), got (1, 1)"),
        ((np.zeros((2, 1)), np.zeros((2, 1)), None, None, None, [0, 0]), "`lower_thresholds` must have shape (1,), got (2,)"),
        ((np.zeros((2, 2)), np.zeros((2, 2)), None, None, None, [0, [1, 2]]), "`lower_thresholds` must have shape (2,), got a ragged list"),
        ((np.zeros((2, 1)), np.zeros((2, 1)), None, None, None, None, 3.0), "`upper_thresholds` must have shape (1,), got ()"),
        ((np.zeros((2, 1)), np.zeros((2, 1)), None, None, None, None, [math.nan]), "`upper_thresholds` must be numbers; +inf switches a detector off, NaN means nothing"),
        ((np.zeros((2, 1)), np.zeros((2, 1)), None, None, None, [None]), "`lower_thresholds` must be numbers; +inf switches a detector off, NaN means nothing"),
        ((np.zeros((2, 2)), np.zeros((2, 2)), None, None, None, [0, 2], [0, 1.5]), "`lower_thresholds` must be <= `upper_thresholds`, got 2 and 1.5 for detector 1"),
        ((np.zeros((2, 1)), np.zeros((2, 1)), None, None, None, [math.inf], [0]), "`lower_thresholds` must be <= `upper_thresholds`, got inf and 0 for detector 0"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(arguments, sentence):
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        CalibrationProblem(*arguments)


def test_bounds_are_kept_in_the_dtype_of_the_scores():
    free = CalibrationProblem(np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float32))
    assert free.lower_thresholds.tolist() == [-np.inf, -np.inf]
    assert free.upper_thresholds.tolist() == [np.inf, np.inf]
    assert free.lower_thresholds.dtype == free.upper_thresholds.dtype == np.float32
    bounded = CalibrationProblem([[0, 0]], [[0, 0]], lower_thresholds=[1, -np.inf], upper_thresholds=[2, 2])
    assert bounded.lower_thresholds.dtype == bounded.upper_thresholds.dtype == np.float64
    assert repr(bounded) == "CalibrationProblem(2 detectors, 1 positives, 1 negatives, bounded thresholds)"


def test_feasible_thresholds_keep_their_bounds():
    problem = CalibrationProblem(
        [[3.0, 3.0]], [[0.0, 0.0]], lower_thresholds=[1, -np.inf], upper_thresholds=[2, np.inf]
    )
    assert problem.is_feasible([1, np.inf])
    assert problem.is_feasible([2, -np.inf])
    assert not problem.is_feasible([0.5, 0])
    assert not problem.is_feasible([2.5, 0])
    assert not problem.is_feasible([np.inf, 0])
    assert not problem.is_within_bounds([np.inf, 0])
    assert problem.forced().tolist() == [False]
    assert CalibrationProblem([[3.0]], [[1.0], [2.0]], upper_thresholds=[1]).forced().tolist() == [False, True]


@settings(deadline=None, max_examples=many(500))
@given(st.floats(allow_nan=False), st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_rounding_a_bound_moves_no_window(bound, score):
    """A float64 bound among float32 scores: on the same side of every score as before."""
    near = np.float32(score)
    with np.errstate(over="ignore"):
        scores = np.array([near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))])
        scores = np.append(scores, np.clip(np.float64(bound), -3.4e38, 3.4e38).astype(np.float32))
    scores = scores[np.isfinite(scores)][:, None]
    locked = CalibrationProblem(scores, scores, lower_thresholds=[bound], upper_thresholds=[bound])
    assert locked.lower_thresholds.dtype == np.float32
    assert locked.lower_thresholds[0] == locked.upper_thresholds[0]
    assert ((scores > locked.upper_thresholds[0]) == (scores > np.float64(bound))).all()
    assert locked.is_within_bounds([bound])  # the value as given, too
    assert locked.is_within_bounds(locked.upper_thresholds)


@settings(deadline=None, max_examples=many(300))
@given(problems(forbidden=False, bounds=True))
def test_candidates_keep_the_bounds_and_reach_the_optimum(problem):
    candidates = [problem.candidate_thresholds(j) for j in range(problem.n_exemplars)]
    for j, values in enumerate(candidates):
        assert (np.diff(values) < 0).all()
        assert (problem.lower_thresholds[j] <= values).all()
        assert (values <= problem.upper_thresholds[j]).all()
    losses = [problem.loss(t) for t in itertools.product(*candidates) if problem.is_feasible(t)]
    assert min(losses, default=None) == reference.brute_force(problem)


def test_candidates_between_bounds():
    # From high to low: + - + + - -, as in the paper's figure.
    scores = [[6.0], [4.0], [3.0]], [[5.0], [2.0], [1.0]]

    def candidates(lower, upper):
        problem = CalibrationProblem(*scores, lower_thresholds=[lower], upper_thresholds=[upper])
        return problem.candidate_thresholds(0).tolist()

    assert candidates(-np.inf, np.inf) == [5.5, 2.5]
    assert candidates(2.75, np.inf) == [5.5, 2.75]
    assert candidates(3.5, np.inf) == [5.5, 4 - 0.5]
    assert candidates(4, 7) == [5.5]
    assert candidates(-np.inf, 5) == [5, 2.5]
    assert candidates(-np.inf, 4.5) == [2.5]  # the positives up to there come without a negative
    assert candidates(-np.inf, 2) == [2]
    assert candidates(1.5, 1.5) == [1.5]
    assert candidates(np.inf, np.inf) == [np.inf]


def test_wrong_thresholds_are_refused():
    problem = CalibrationProblem([[1.0, 2.0]], [[0.0, 0.0]])
    with pytest.raises(InputError, match=r"^`thresholds` must have shape \(2,\), got \(3,\)$"):
        problem.loss([0, 0, 0])
    with pytest.raises(InputError, match=r"^`thresholds` must be numbers; \+inf switches a detector off"):
        problem.is_feasible([0, math.nan])


def test_a_recall_floor_is_not_missed_by_rounding():
    problem = CalibrationProblem(np.arange(20.0)[:, None], [[-1.0]])
    assert problem.is_feasible([0.5], min_recall=0.95)
    assert not problem.is_feasible([1.5], min_recall=0.95)
    assert repr(problem) == "CalibrationProblem(1 detectors, 20 positives, 1 negatives)"


def test_masked_scores_are_refused_and_matrices_are_tables():
    masked = np.ma.array([[5.0], [1.0], [4.0]], mask=[[1], [0], [0]])
    sentence = "`negative_scores` has masked entries: fill them with a score, or leave their rows out" + OFFER
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        CalibrationProblem([[3.0]], masked)
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix([[5.0], [1.0]])
    assert solve(CalibrationProblem([[3.0]], matrix)).loss == 1


@settings(deadline=None, max_examples=many(200))
@given(st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.7, 1.1]), min_size=2, max_size=7), st.data())
def test_recall_floors_do_not_depend_on_the_order_of_sums(weights, data):
    """Floors right at the weight of some positives: search and judge must agree to the last bit."""
    left_out = data.draw(st.sets(st.integers(0, len(weights) - 1), max_size=len(weights) - 1))
    share = sum(weights[i] for i in left_out) / sum(weights)
    floor = min(1.0, max(1e-6, 1 - share + data.draw(st.sampled_from([-1e-12, 0, 1e-16, 1e-12]))))
    scores = np.random.default_rng(len(weights)).normal(size=(len(weights) + 8, 3))
    problem = CalibrationProblem(scores[:-8], scores[-8:], positive_weights=weights)
    result = solve(problem, min_recall=floor)
    assert problem.is_feasible(result.thresholds, floor)
    assert result.status == "optimal"
    turned = CalibrationProblem(scores[:-8][::-1], scores[-8:], positive_weights=weights[::-1])
    assert solve(turned, min_recall=floor, method="exhaustive").loss == result.loss


def test_recall_units_do_not_depend_on_the_order_of_weights():
    """0.1 + 0.2 + 0.7 is a hair below 1 in one order: the exponent of a plain sum would depend on it."""
    weights = np.array([0.1, 0.2, 0.7])
    scores = np.zeros((3, 1))
    forwards = CalibrationProblem(scores, scores, positive_weights=weights)
    backwards = CalibrationProblem(scores, scores, positive_weights=weights[::-1])
    assert (forwards.recall_units == backwards.recall_units[::-1]).all()
