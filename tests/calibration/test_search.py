"""Algorithm 1 and the exhaustive tree against brute force, an integer program, and each other."""

import itertools
import math
import os
import signal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eesvm import CalibrationProblem, InputError
from eesvm.calibration.search.exhaustive import tree_size
from helpers import reference
from helpers.evidence import check_evidence, solve_or_none
from helpers.evidence import verified_solve as solve
from helpers.examples import few, many
from helpers.strategies import RECALL_FLOORS, problems

# Each example is a whole optimisation problem; the count is what matters here, not how fast one runs.
thorough = settings(max_examples=many(2000), deadline=None, suppress_health_check=list(HealthCheck))
quick = settings(max_examples=many(300), deadline=None, suppress_health_check=list(HealthCheck))


@thorough
@given(problems(), st.sampled_from(RECALL_FLOORS))
def test_searches_equal_brute_force_and_the_integer_program(problem, min_recall):
    best = reference.brute_force(problem, min_recall)
    program = reference.mixed_integer_program(problem, min_recall)
    for method in ("algorithm1", "exhaustive"):
        result = solve_or_none(problem, method=method, min_recall=min_recall)
        if best is None:
            assert result is None
            assert program is None
            continue
        assert result.status == "optimal"
        assert result.loss == pytest.approx(best, abs=1e-9)
        assert result.loss == pytest.approx(program, abs=1e-6)
        assert result.lower_bound == result.loss  # the weights are quarters: sums are exact
        check_evidence(problem, result, min_recall)


@settings(thorough, max_examples=many(1500))
@given(problems(bounds=True), st.sampled_from(RECALL_FLOORS))
def test_bounded_thresholds_equal_brute_force_and_the_integer_program(problem, min_recall):
    best = reference.brute_force(problem, min_recall)
    program = reference.mixed_integer_program(problem, min_recall)
    for method in ("exact", "algorithm1", "exhaustive"):
        result = solve_or_none(problem, method=method, min_recall=min_recall)
        if best is None:
            assert result is None
            assert program is None
            continue
        assert result.status == "optimal"
        assert result.loss == pytest.approx(best, abs=1e-9)
        assert result.loss == pytest.approx(program, abs=1e-6)
        assert result.lower_bound == result.loss
        check_evidence(problem, result, min_recall)


@quick
@given(problems(max_exemplars=3, max_positives=4), st.sampled_from(RECALL_FLOORS))
def test_every_subset_of_observations_gives_the_same_loss(problem, min_recall):
    expected = solve_or_none(problem, method="exhaustive", min_recall=min_recall)
    for size in range(5):
        for observations in itertools.combinations((1, 2, 3, 4), size):
            for skip_satisfied in (True, False):
                result = solve_or_none(
                    problem,
                    method="algorithm1",
                    min_recall=min_recall,
                    observations=observations,
                    skip_satisfied=skip_satisfied,
                    random_state=size,
                )
                assert (result is None) == (expected is None)
                if result is not None:
                    assert result.loss == expected.loss
                    assert result.status == "optimal"


@quick
@given(problems(max_exemplars=6, max_positives=9, max_negatives=30), st.sampled_from(RECALL_FLOORS), st.integers(1, 12))
def test_a_stopped_search_is_feasible_and_its_bound_holds(problem, min_recall, node_limit):
    complete = solve_or_none(problem, method="algorithm1", min_recall=min_recall)
    if complete is None:
        return
    for options in ({"node_limit": node_limit}, {"time_limit": 0.0}, {"gap": 0.3}, {"method": "greedy"}):
        stopped = solve(problem, **{"method": "algorithm1", "min_recall": min_recall, **options})
        check_evidence(problem, stopped, min_recall)
        assert stopped.lower_bound <= complete.loss <= stopped.loss
        if "gap" in options:
            assert stopped.gap <= 0.3
    check_evidence(problem, complete, min_recall)


@settings(quick, max_examples=many(500))
@given(
    problems(max_exemplars=6, max_positives=9, max_negatives=30, bounds=True),
    st.sampled_from(RECALL_FLOORS),
    st.integers(1, 12),
)
def test_a_stopped_search_keeps_the_bounds_on_thresholds(problem, min_recall, node_limit):
    complete = solve_or_none(problem, method="algorithm1", min_recall=min_recall)
    if complete is None:
        return
    check_evidence(problem, complete, min_recall)
    seen = []
    for options in (
        {"node_limit": node_limit},
        {"time_limit": 0.0},
        {"gap": 0.3},
        {"method": "greedy"},
        {"method": "exhaustive", "node_limit": node_limit},
        {"node_limit": node_limit, "start": complete.thresholds},
        {"node_limit": node_limit, "start": np.zeros(problem.n_exemplars)},
        {"node_limit": node_limit, "observations": ()},
    ):
        stopped = solve(
            problem, **{"method": "algorithm1", "min_recall": min_recall, "progress": seen.append} | options
        )
        check_evidence(problem, stopped, min_recall)
        assert stopped.lower_bound <= complete.loss <= stopped.loss
        if stopped.status == "gap_reached":
            assert stopped.gap <= 0.3
    assert all(state.lower_bound <= complete.loss <= state.loss for state in seen)
    assert solve(problem, min_recall=min_recall, start=complete.thresholds, node_limit=1).loss == complete.loss


@quick
@given(problems(max_exemplars=5, max_positives=6, max_negatives=12, bounds=True), st.data())
def test_locks_at_an_optimal_solution_cost_nothing(problem, data):
    before = solve_or_none(problem)
    if before is None:
        return
    locked = np.array(data.draw(st.lists(st.booleans(), min_size=problem.n_exemplars, max_size=problem.n_exemplars)))
    lower = np.where(locked, before.thresholds, problem.lower_thresholds)
    upper = np.where(locked, before.thresholds, problem.upper_thresholds)
    again = bounded(problem, lower, upper)
    after = solve(again)
    check_evidence(again, after)
    assert after.loss == before.loss
    assert (after.thresholds[locked] == before.thresholds[locked]).all()
    relaxed = solve(bounded(problem, None, problem.upper_thresholds))  # fewer rules, no larger loss
    assert relaxed.loss <= before.loss


@quick
@given(problems(max_exemplars=5, max_positives=6, max_negatives=12, bounds=True))
def test_an_exemplar_that_is_locked_off_is_as_good_as_absent(problem):
    if problem.n_exemplars == 1:
        return
    lower, upper = problem.lower_thresholds.copy(), problem.upper_thresholds.copy()
    lower[0] = upper[0] = np.inf
    without = CalibrationProblem(
        problem.positive_scores[:, 1:],
        problem.negative_scores[:, 1:],
        problem.positive_weights,
        problem.negative_weights,
        None if problem.forbidden is None else problem.forbidden[:, 1:],
        lower[1:],
        upper[1:],
    )
    off, absent = solve_or_none(bounded(problem, lower, upper)), solve_or_none(without)
    assert (off is None) == (absent is None)
    if off is not None:
        assert not off.active[0]
        assert off.loss == absent.loss
        assert (off.thresholds[1:] == absent.thresholds).all()


@quick
@given(problems(max_exemplars=4, max_positives=6, max_negatives=12), st.data())
def test_thresholds_that_are_all_locked_are_judged_as_they_are(problem, data):
    values = st.one_of(st.integers(-17, 17).map(lambda i: i / 4), st.sampled_from([-np.inf, np.inf]))
    thresholds = data.draw(st.lists(values, min_size=problem.n_exemplars, max_size=problem.n_exemplars))
    locked = bounded(problem, thresholds, thresholds)
    result = solve_or_none(locked)
    assert (result is not None) == problem.is_feasible(thresholds) == locked.is_feasible(thresholds)
    if result is not None:
        assert (result.thresholds == thresholds).all()
        assert result.loss == result.lower_bound == problem.loss(thresholds)


def bounded(problem, lower, upper):
    """The same problem with other bounds on its thresholds."""
    return CalibrationProblem(
        problem.positive_scores,
        problem.negative_scores,
        problem.positive_weights,
        problem.negative_weights,
        problem.forbidden,
        lower,
        upper,
    )


@quick
@given(problems(max_exemplars=5, max_positives=8, max_negatives=20), st.randoms(use_true_random=False))
def test_permutations_change_nothing(problem, random):
    def shuffled(n):
        return np.array(random.sample(range(n), n))

    p, n, e = shuffled(problem.n_positives), shuffled(problem.n_negatives), shuffled(problem.n_exemplars)
    permuted = CalibrationProblem(
        problem.positive_scores[p][:, e],
        problem.negative_scores[n][:, e],
        problem.positive_weights[p],
        problem.negative_weights[n],
        None if problem.forbidden is None else problem.forbidden[p][:, e],
    )
    before, after = solve_or_none(problem), solve_or_none(permuted)
    assert (before is None) == (after is None)
    if before is not None:
        assert after.loss == before.loss


@quick
@given(problems(max_exemplars=5, max_positives=8, max_negatives=20, forbidden=False), st.data())
def test_increasing_rescaling_of_one_exemplar_changes_nothing(problem, data):
    j = data.draw(st.integers(0, problem.n_exemplars - 1))
    rescale = data.draw(st.sampled_from([lambda s: 3 * s - 7, lambda s: s**3 + s, np.arctan, np.exp]))
    positives = problem.positive_scores.astype(np.float64)
    negatives = problem.negative_scores.astype(np.float64)
    positives[:, j], negatives[:, j] = rescale(positives[:, j]), rescale(negatives[:, j])
    rescaled = CalibrationProblem(positives, negatives, problem.positive_weights, problem.negative_weights)
    before, after = solve(problem), solve(rescaled)
    assert after.loss == before.loss
    assert (rescaled.covers(after.thresholds) == problem.covers(before.thresholds)).all()
    assert (rescaled.accepts(after.thresholds) == problem.accepts(before.thresholds)).all()


@quick
@given(problems(max_exemplars=4, max_positives=6, max_negatives=12, forbidden=False))
def test_duplicates_behave_like_what_they_duplicate(problem):
    once = solve(problem).loss
    positives, negatives = problem.positive_scores, problem.negative_scores
    w_pos, w_neg = problem.positive_weights, problem.negative_weights

    def loss(*arguments):
        return solve(CalibrationProblem(*arguments)).loss

    assert loss(np.repeat(positives, 2, axis=0), negatives, None, w_neg) == once
    assert loss(np.repeat(positives, 2, axis=1), np.repeat(negatives, 2, axis=1), w_pos, w_neg) == once
    doubled = np.repeat(negatives, 2, axis=0)
    assert loss(positives, doubled, w_pos, np.repeat(w_neg, 2)) == loss(positives, negatives, w_pos, 2 * w_neg)


def random_problem(seed, n_positives=60, n_negatives=400, n_exemplars=12, **options):
    rng = np.random.default_rng(seed)
    shift = rng.exponential(1.0, size=(n_positives, 1))
    positives = rng.normal(size=(n_positives, n_exemplars)) + shift
    return CalibrationProblem(positives, rng.normal(size=(n_negatives, n_exemplars)), **options)


@pytest.mark.parametrize("seed", few(range(20), 6))
def test_agrees_with_the_integer_program_on_medium_problems(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(
        seed, 12, 60, 6, negative_weights=rng.integers(0, 5, 60), forbidden=rng.random((12, 6)) < 0.2
    )
    for min_recall in (1.0, 0.8):
        result = solve(problem, method="algorithm1", min_recall=min_recall)
        assert result.loss == pytest.approx(reference.mixed_integer_program(problem, min_recall))
        check_evidence(problem, result, min_recall)


def test_weights_that_do_not_add_up_exactly_still_give_a_bound():
    weights = np.random.default_rng(3).random(60)
    problem = random_problem(3, 12, 60, 6, negative_weights=weights)
    result = solve(problem, method="algorithm1")
    assert result.status == "optimal"
    assert result.lower_bound < result.loss  # given away to rounding
    assert result.gap < 1e-12
    assert result.loss == pytest.approx(reference.mixed_integer_program(problem), rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_bounds_agree_with_the_integer_program_on_medium_problems(seed):
    rng = np.random.default_rng(seed)
    middle, half = rng.normal(size=6), rng.exponential(1.0, size=6)
    problem = random_problem(
        seed,
        12,
        60,
        6,
        negative_weights=rng.random(60) if seed % 2 else rng.integers(0, 5, 60),
        lower_thresholds=np.where(rng.random(6) < 0.5, middle - half, -np.inf),
        upper_thresholds=np.where(rng.random(6) < 0.3, middle + half, np.inf),
    )
    for min_recall in (0.5, 0.8):
        result = solve_or_none(problem, method="algorithm1", min_recall=min_recall)
        program = reference.mixed_integer_program(problem, min_recall)
        assert (result is None) == (program is None)
        if result is not None:
            assert result.status == "optimal"
            assert result.loss == pytest.approx(program)
            assert result.gap < 1e-12
            check_evidence(problem, result, min_recall)


def test_bounds_on_thresholds_by_hand():
    # Exemplar 0 covers both positives at the price of one negative; 1 covers the second only, at two.
    positives, negatives = [[5.0, 0.0], [3.0, 1.0]], [[4.0, 2.0], [0.0, 3.0], [-1.0, -1.0]]

    def best(**options):
        problem = CalibrationProblem(positives, negatives, **options)
        result = solve(problem)
        check_evidence(problem, result)
        return result.loss, result.thresholds.tolist()

    inf = np.inf
    assert best() == (1, [1.5, inf])
    assert best(lower_thresholds=[2, -inf]) == (1, [2, inf])  # raised, and still under 3
    assert best(lower_thresholds=[3, -inf]) == (2, [4.5, -0.5])  # 3 is not above 3: 1 covers it
    assert best(upper_thresholds=[inf, 2.5]) == (2, [1.5, 2.5])  # the negative at 3 is paid for, whoever covers
    assert best(upper_thresholds=[inf, 3]) == (1, [1.5, 3])  # nothing is above 3
    assert best(upper_thresholds=[inf, 1.5]) == (2, [1.5, -0.5])  # both are paid for: the rest is free
    assert best(lower_thresholds=[0, inf], upper_thresholds=[0, inf]) == (1, [0, inf])
    assert best(lower_thresholds=[-0.5, inf], upper_thresholds=[-0.5, inf]) == (2, [-0.5, inf])
    assert best(upper_thresholds=[-inf, inf]) == (3, [-inf, -0.5])
    locked = CalibrationProblem(positives, negatives, lower_thresholds=[inf, inf], upper_thresholds=[inf, inf])
    sentence = (
        "2 positives, the first is 0, cannot be covered, because `lower_thresholds` bars every detector: "
        "lower a threshold or `min_recall`, now 1"
    )
    with pytest.raises(InputError, match=f"^{sentence}$"):
        solve(locked)
    mixed = CalibrationProblem(
        positives, negatives, forbidden=[[False, True], [False, False]], lower_thresholds=[5, -inf]
    )
    sentence = (
        "positive 0 cannot be covered, because `forbidden` and `lower_thresholds` bar every detector: "
        "allow a pair, lower a threshold or `min_recall`, now 1"
    )
    with pytest.raises(InputError, match=f"^{sentence}$"):
        solve(mixed)
    assert solve(mixed, min_recall=0.5).loss == 2


@pytest.mark.parametrize("method", ["algorithm1", "exhaustive", "greedy"])
def test_progress_and_gap_count_what_is_fixed(method):
    # Two negatives are accepted in any case, one more for the second positive.
    problem = CalibrationProblem([[5.0], [1.0]], [[4.0], [3.0], [2.0], [0.0]], upper_thresholds=[2.5])
    seen = []
    result = solve(problem, method=method, progress=seen.append)
    assert (result.loss, result.lower_bound, result.status) == (3, 3, "optimal")
    assert (seen[-1].loss, result.history[-1][1]) == (3, 3)
    assert min(state.loss for state in seen) == 3
    if method == "algorithm1":
        assert [leaf["loss"] for leaf in result.statistics["leaves"]] == [3]


def test_a_fixed_loss_of_uneven_weights_gives_rounding_away():
    rng = np.random.default_rng(3)
    problem = random_problem(3, 12, 60, 6, negative_weights=rng.random(60), upper_thresholds=np.full(6, 1.0))
    result = solve(problem, method="algorithm1")
    everything = solve(bounded(problem, None, np.full(6, -np.inf)), method="algorithm1")
    for found in (result, everything):
        assert found.status == "optimal"
        assert found.lower_bound < found.loss
        assert found.gap < 1e-12
    assert everything.loss == problem.negative_weights.sum()


def test_old_thresholds_start_a_problem_with_other_exemplars_and_windows():
    problem = random_problem(5, 200, 2000, 20)
    names = [f"detector {j}" for j in range(20)]
    good = solve(problem, method="algorithm1", node_limit=100_000)
    old = dict(zip(names[:15], good.thresholds[:15], strict=True))  # five were not there before
    start = [old.get(name, np.inf) for name in names]
    fewer = CalibrationProblem(problem.positive_scores[10:], problem.negative_scores[:-100])
    repaired = solve(fewer, method="algorithm1", node_limit=300, start=start)
    check_evidence(fewer, repaired)
    unchanged = solve(problem, method="algorithm1", node_limit=300, start=good.thresholds)
    assert unchanged.loss <= good.loss
    clipped = bounded(problem, np.zeros(20), np.full(20, 2.5))
    check_evidence(
        clipped, solve(clipped, method="algorithm1", node_limit=300, start=np.full(20, 9.0), min_recall=0.3), 0.3
    )


def test_the_exhaustive_tree_has_as_many_nodes_as_the_paper_says():
    problem = random_problem(0, 6, 20, 3)
    expected = (3**7 - 1) // 2
    assert tree_size(3, 6) == expected
    full = solve(problem, method="exhaustive")
    assert full.n_nodes == expected
    assert full.statistics["n_leaves"] == 3**6
    literal = solve(problem, method="algorithm1", observations=(), skip_satisfied=False)
    assert literal.n_nodes == expected
    assert literal.loss == full.loss


def test_a_larger_search_is_deterministic_and_prunes():
    problem = random_problem(1)
    first = solve(problem, method="algorithm1", n_jobs=1)
    second = solve(problem, method="algorithm1", n_jobs=2)
    assert first.status == "optimal"
    assert first.n_nodes == second.n_nodes
    assert (first.thresholds == second.thresholds).all()
    statistics = {k: v for k, v in first.statistics.items() if k != "leaves"}
    assert statistics == {k: v for k, v in second.statistics.items() if k != "leaves"}
    assert statistics["n_pruned_by_bound"] > 0
    assert statistics["depth"] + statistics["depth_removed"] == problem.n_positives
    assert [leaf["loss"] for leaf in first.statistics["leaves"]][-1] == first.loss


def test_ordering_the_positives_saves_nodes():
    problem = random_problem(2, 30, 200, 8)
    ordered = solve(problem, method="algorithm1")
    unordered = solve(problem, method="algorithm1", observations=(1, 2, 3))
    assert ordered.loss == unordered.loss
    assert ordered.n_nodes < unordered.n_nodes


def test_equivalence_prunes_identical_exemplars():
    problem = random_problem(4, 20, 100, 4)
    twice = CalibrationProblem(
        np.repeat(problem.positive_scores, 2, axis=1), np.repeat(problem.negative_scores, 2, axis=1)
    )
    with_it = solve(twice, method="algorithm1")
    without = solve(twice, method="algorithm1", observations=(1, 3, 4))
    assert with_it.loss == without.loss
    assert with_it.statistics["n_pruned_by_equivalence"] > 0
    assert without.statistics["n_pruned_by_equivalence"] == 0
    assert with_it.n_nodes < without.n_nodes


@pytest.mark.parametrize("method", ["algorithm1", "exhaustive"])
def test_a_callback_that_interrupts_returns_the_best_so_far(method):
    problem = random_problem(5, 200, 2000, 20)
    calls = []

    def interrupt(progress):
        calls.append(progress)
        if len(calls) == 3:
            raise KeyboardInterrupt

    result = solve(problem, method=method, progress=interrupt)
    assert result.status == "feasible"
    check_evidence(problem, result)
    assert calls[-1].loss >= result.loss
    assert calls[-1].seconds >= calls[0].seconds


@pytest.mark.parametrize("method", ["algorithm1", "exhaustive"])
def test_ctrl_c_ends_the_search_with_the_best_so_far(method):
    problem = random_problem(5, 200, 2000, 20)
    before = signal.getsignal(signal.SIGINT)
    calls = []

    def press_ctrl_c(progress):
        calls.append(progress)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    result = solve(problem, method=method, progress=press_ctrl_c)
    assert result.status == "feasible"
    check_evidence(problem, result)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_aborts():
    def press_twice(progress):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):  # the signal is handled between two steps of the interpreter
            pass

    with pytest.raises(KeyboardInterrupt):
        solve(random_problem(5, 200, 2000, 20), method="algorithm1", progress=press_twice)


def test_limits_are_named_in_the_status():
    problem = random_problem(5, 200, 2000, 20)
    stopped = solve(problem, method="algorithm1", node_limit=1000)
    assert stopped.status == "node_limit"
    assert stopped.n_nodes == 1000
    assert solve(problem, method="algorithm1", time_limit=0).status == "time_limit"
    assert solve(problem, method="exhaustive", time_limit=0).status == "time_limit"
    assert solve(problem, method="greedy").status == "feasible"
    loose = solve(problem, method="algorithm1", gap=0.999)
    assert loose.status == "gap_reached"
    assert 0 < loose.gap <= 0.999


def test_a_warm_start_is_never_lost():
    problem = random_problem(5, 200, 2000, 20)
    good = solve(problem, method="algorithm1", node_limit=200_000)
    again = solve(problem, method="algorithm1", node_limit=300, start=good.thresholds)
    assert again.loss <= good.loss
    more = CalibrationProblem(
        np.concatenate([problem.positive_scores, problem.negative_scores[:5]]), problem.negative_scores[5:]
    )
    repaired = solve(more, method="algorithm1", node_limit=300, start=good.thresholds)
    check_evidence(more, repaired)


def test_every_observation_helps_on_its_own_terms():
    problem = random_problem(6, 15, 80, 5)
    full_depth = solve(problem, method="algorithm1", observations=(1, 2, 4)).statistics
    assert full_depth["depth"] == problem.n_positives
    unbounded = solve(random_problem(6, 7, 30, 3), method="algorithm1", observations=(2, 3, 4)).statistics
    assert unbounded["n_pruned_by_bound"] == 0


def test_more_recall_costs_more():
    problem = random_problem(7, 20, 200, 5)
    losses = [solve(problem, min_recall=r, method="algorithm1").loss for r in (0.5, 0.7, 0.9, 1.0)]
    assert losses == sorted(losses)
    assert losses[0] < losses[-1]


def test_a_positive_that_nobody_may_cover_is_named_or_left_out():
    forbidden = np.zeros((20, 5), dtype=bool)
    forbidden[7] = True
    problem = random_problem(8, 20, 100, 5, forbidden=forbidden)
    sentence = "positive 7 cannot be covered, because `forbidden` bars every detector: allow a pair or lower `min_recall`, now 1"
    with pytest.raises(InputError, match=f"^{sentence}$"):
        solve(problem)
    result = solve(problem, min_recall=0.95)
    assert result.assignment[7] == -1
    assert (np.delete(result.assignment, 7) >= 0).all()
    assert result.recall == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"method": "magic"}, "`method` must be one of 'exact', 'algorithm1', 'exhaustive', 'greedy', got 'magic'"),
        ({"gap": -0.1}, "`gap` must be >= 0, got -0.1"),
        ({"time_limit": -1}, "`time_limit` must be >= 0, got -1"),
        ({"time_limit": math.nan}, "`time_limit` must be finite, got nan"),
        ({"node_limit": 2.5}, "`node_limit` must be an integer, got 2.5"),
        ({"min_recall": 0}, "`min_recall` must be > 0, got 0"),
        ({"min_recall": 1.5}, "`min_recall` must be <= 1, got 1.5"),
        ({"min_recall": "all"}, "`min_recall` must be a number, got 'all'"),
        ({"observations": (1, 5)}, r"`observations` must be some of 1, 2, 3 and 4, got \(1, 5\)"),
        ({"observations": None}, "`observations` must be some of 1, 2, 3 and 4, got None"),
        ({"start": np.zeros(3)}, r"`start` must have shape \(5,\), got \(3,\)"),
        ({"start": np.full(5, np.nan)}, r"`start` must be numbers; \+inf switches a detector off, NaN means nothing"),
        ({"start": np.zeros(5), "method": "greedy"}, "`start` has no use with method='greedy'"),
        ({"n_jobs": 0}, "`n_jobs` must be >= 1, got 0"),
    ],
)
def test_wrong_options_get_one_sentence(options, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        solve(random_problem(9, 5, 10, 5), **options)


def test_solve_wants_a_problem():
    with pytest.raises(InputError, match=r"^`problem` must be a CalibrationProblem, got ndarray$"):
        solve(np.zeros((3, 2)))
