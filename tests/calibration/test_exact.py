"""The exact search: against brute force, the integer program and Algorithm 1; its parts against slow versions of them."""

import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eesvm import CalibrationProblem, InputError, verify
from eesvm._support.threads import Workers
from eesvm.calibration import ranks
from eesvm.calibration.anytime import Run
from eesvm.calibration.proofs.certified_bound import certified_bound
from eesvm.calibration.ranks import FORBIDDEN, rank
from eesvm.calibration.search import ascent_kernels as _ascent_kernels
from eesvm.calibration.search import branching
from eesvm.calibration.search.ascent import Ascent
from eesvm.calibration.search.dives import Dive
from eesvm.calibration.search.heuristics import loss_of_levels
from eesvm.calibration.search.proof import Leaf
from eesvm.calibration.search.reduce import Box, cheap_box, reduce
from helpers import reference
from helpers.evidence import check_evidence, solve_or_none
from helpers.evidence import verified_solve as solve
from helpers.examples import few, many
from helpers.strategies import RECALL_FLOORS, problems

INSTANCES = Path(__file__).resolve().parents[3] / "shared" / "instances"  # outside the repository

thorough = settings(max_examples=many(1500), deadline=None, suppress_health_check=list(HealthCheck))
quick = settings(max_examples=many(150), deadline=None, suppress_health_check=list(HealthCheck))

# Ways to a proof that the search would rarely take by itself on problems small enough for a reference.
WAYS = {
    "as it likes": {},
    "without shares": {"_PLAIN_WORK": math.inf},
    "without shares, which gives up": {"_PLAIN_WORK": 50.0},
    "hard positives": {"_CORE_BEHIND": (math.inf, math.inf), "_EARLY_WORK": math.inf},
    "splits only": {"_DIVE_GAP": -1.0, "_EARLY_WORK": math.inf},
    "dives only": {"_DIVE_GAP": math.inf, "_PATIENCE": 1, "_PROGRESS": math.inf, "_ROUND": 2},
    "dives that give up": {"_DIVE_GAP": math.inf, "_DIVE_WORK": 50.0, "_ROUND": 1, "_PROGRESS": math.inf},
    "dives between rounds": {"_DIVE_GAP": math.inf, "_EARLY_WORK": 0.0, "_EARLY_DIVES": (math.inf, math.inf)},
    "dives between rounds that give up": {"_DIVE_GAP": math.inf, "_EARLY_WORK": 0.0, "_EARLY_DIVES": (1e-3, 1e-3)},
}


def tangled(seed, n_exemplars=8, n_positives=24, n_negatives=60, **options):
    """Scores that have little in common between exemplars: shares alone leave a gap."""
    random = np.random.default_rng(seed)
    positives = random.normal(0.4, 1, (n_positives, n_exemplars)).astype(np.float32)
    return CalibrationProblem(positives, random.normal(size=(n_negatives, n_exemplars)).astype(np.float32), **options)


@pytest.fixture(autouse=True)
def shares_are_needed(monkeypatch):
    """Problems as small as these are settled by prices alone, and what these tests are about would never be seen."""
    monkeypatch.setattr(branching, "_PLAIN_WORK", 0)
    monkeypatch.setattr(branching, "_CORE_BEHIND", (0.0, 0.0))  # nor is there a turn for hard positives alone


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    for name, value in WAYS[request.param].items():
        monkeypatch.setattr(branching, name, value)
    return request.param


@thorough
@given(problems(bounds=True), st.sampled_from(RECALL_FLOORS))
def test_equals_brute_force_and_proves_it(problem, min_recall):
    best = reference.brute_force(problem, min_recall)
    result = solve_or_none(problem, min_recall=min_recall)
    assert (result is None) == (best is None)
    if result is not None:
        assert result.loss == pytest.approx(best, abs=1e-9)
        assert result.status == "optimal"
        assert result.lower_bound == result.loss
        check_evidence(problem, result, min_recall)
        assert verify(problem, result).problems == []


@settings(thorough, max_examples=many(500))
@given(problems(bounds=True), st.sampled_from([50.0, math.inf]))
def test_prices_alone_prove_the_same(problem, budget):
    best = reference.brute_force(problem, 1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(branching, "_PLAIN_WORK", budget)
        result = solve_or_none(problem)
    assert (result is None) == (best is None)
    if result is not None:
        assert result.lower_bound == result.loss == pytest.approx(best, abs=1e-9)
        check_evidence(problem, result, 1.0)
        assert verify(problem, result).problems == []


@settings(thorough, max_examples=many(500))
@given(problems(bounds=True, weights=False), st.sampled_from(RECALL_FLOORS))
def test_levels_that_are_too_dear_may_be_left_out(problem, min_recall):
    """As for tables so large that the order of all negatives would take too much memory."""
    expected = solve_or_none(problem, min_recall=min_recall)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "_MUCH", 0)
        result = solve_or_none(problem, min_recall=min_recall)
    assert (result is None) == (expected is None)
    if result is not None:
        assert (result.loss, result.status) == (expected.loss, "optimal")
        assert verify(problem, result).problems == []


def test_pairs_that_ranking_leaves_out_are_in_the_certificate(monkeypatch):
    negatives = np.zeros((2, 4), dtype=np.float32)
    negatives[1, 3] = -0.5  # the others accept both, for more than the solution costs
    problem = CalibrationProblem(np.zeros((4, 4), dtype=np.float32), negatives)
    monkeypatch.setattr(ranks, "_MUCH", 0)
    result = solve(problem, min_recall=0.75)
    assert (result.loss, result.lower_bound) == (1, 1)
    np.testing.assert_array_equal(result.certificate.ceiling, np.zeros(4))
    assert verify(problem, result).problems == []


def test_what_is_left_out_is_more_than_a_solution_costs(monkeypatch):
    problem = tangled(0)
    whole = rank(problem)
    monkeypatch.setattr(ranks, "_MUCH", 0)
    part = rank(problem, only_useful=True)
    n = part.order.shape[1]
    assert solve(problem).loss <= n < whole.order.shape[1]
    np.testing.assert_array_equal(part.order, whole.order[:, :n])
    np.testing.assert_array_equal(part.delta, np.where(whole.delta <= n, whole.delta, FORBIDDEN))


@pytest.mark.parametrize("seed", few(range(5), 2))
def test_every_way_to_a_proof_ends_at_the_same_optimum(way, seed):
    problem = tangled(seed, n_exemplars=12, n_positives=50, n_negatives=300)
    result = solve(problem)
    assert result.status == "optimal"
    assert result.loss == result.lower_bound == solve(problem, method="algorithm1").loss
    assert verify(problem, result).is_valid
    assert certified_bound(problem, result.certificate) == result.loss


@pytest.mark.parametrize("seed", range(4))
def test_recall_floors_agree_with_the_integer_program(seed):
    problem = tangled(seed, n_exemplars=6, n_positives=14, n_negatives=40)
    result = solve(problem, min_recall=0.8)
    assert result.status == "optimal"
    assert result.loss == result.lower_bound == pytest.approx(reference.mixed_integer_program(problem, 0.8), abs=1e-6)
    assert verify(problem, result).is_valid


def test_the_ways_are_what_they_are_called(way):
    statistics = solve(tangled(7, n_exemplars=15, n_positives=80, n_negatives=600)).statistics
    if way == "splits only":
        assert statistics["splits"] > 0
        assert statistics["dives"] == 0
    elif way == "dives only":
        assert statistics["splits"] == 0
        assert statistics["dive_nodes"] > 10
    elif way == "dives between rounds":
        assert (statistics["splits"], statistics["dives"]) == (0, 1)
    elif way == "dives between rounds that give up":
        assert statistics["dives"] > 2
    elif way == "without shares":
        assert (statistics["ascent_rounds"], statistics["dives"]) == (0, 1)
    elif way == "without shares, which gives up":
        assert min(statistics["ascent_rounds"], statistics["dives"]) > 0
    elif way == "hard positives":
        assert (statistics["splits"], statistics["dives"], statistics["shares"]) == (0, 0, 0)
        assert statistics["core_bound"] > 0
    elif way == "dives that give up":
        assert min(statistics["splits"], statistics["dives"]) > 0


@quick
@given(
    problems(max_exemplars=6, max_positives=12, max_negatives=30, bounds=True),
    st.sampled_from(RECALL_FLOORS),
    st.integers(1, 30),
)
def test_what_a_stopped_search_claims_is_proved(problem, min_recall, node_limit):
    complete = solve_or_none(problem, method="algorithm1", min_recall=min_recall)
    if complete is None:
        return
    for options in ({"node_limit": node_limit}, {"time_limit": 0.0}, {"gap": 0.3}):
        stopped = solve(problem, min_recall=min_recall, **options)
        check_evidence(problem, stopped, min_recall)
        assert stopped.lower_bound <= complete.loss <= stopped.loss
        assert verify(problem, stopped).problems == []


@pytest.mark.parametrize("min_recall", few([0.95, 1.0]))
def test_threads_change_nothing(min_recall):
    problem = tangled(3, n_exemplars=20, n_positives=120, n_negatives=900)
    first, *others = [solve(problem, min_recall=min_recall, n_jobs=n, node_limit=many(100)) for n in (1, 2, 3)]
    for other in others:
        assert (other.thresholds == first.thresholds).all()
        assert (other.loss, other.lower_bound, other.n_nodes) == (first.loss, first.lower_bound, first.n_nodes)
        assert [h[1:] for h in other.history] == [h[1:] for h in first.history]
        for name in vars(first.certificate):
            assert np.array_equal(getattr(other.certificate, name), getattr(first.certificate, name))


def test_seeds_change_the_way_and_not_the_optimum():
    problem = tangled(4, n_exemplars=12, n_positives=60, n_negatives=300)
    results = [solve(problem, random_state=seed) for seed in range(4)]
    assert {result.loss for result in results} == {solve(problem, method="algorithm1").loss}


def test_weights_that_do_not_add_up_exactly_are_proved_up_to_rounding():
    random = np.random.default_rng(0)
    problem = tangled(5, negative_weights=random.random(60) + 0.1)
    result = solve(problem)
    best = reference.mixed_integer_program(problem)
    assert result.status == "optimal"
    assert result.loss == pytest.approx(best, rel=1e-6)
    assert result.loss * (1 - 1e-8) < result.lower_bound <= result.loss
    assert verify(problem, result).is_valid


def test_weights_of_very_different_size():
    problem = tangled(6, negative_weights=np.ldexp(1.0, np.arange(60) - 30))
    result = solve(problem)
    assert result.loss == solve(problem, method="algorithm1").loss
    assert result.status == "optimal"
    assert verify(problem, result).is_valid


def test_a_large_gap_is_closed_by_splitting_and_the_certificate_is_small():
    problem = tangled(7, n_exemplars=15, n_positives=80, n_negatives=600)
    result = solve(problem)
    assert result.status == "optimal"
    assert result.loss == solve(problem, method="algorithm1").loss
    assert result.certificate.n_leaves == result.statistics["leaves"] > 1
    assert verify(problem, result).is_valid


def test_a_box_in_which_everything_left_is_free_has_a_solution():
    """A recall floor right at the weight of a positive, in boxes that leave nothing to pay for."""
    scores = np.random.default_rng(3).normal(size=(11, 3))
    for weights in ([0.1, 0.7, 0.7], [0.2, 0.7, 1.1], [0.3, 0.7, 0.7]):
        problem = CalibrationProblem(scores[:3], scores[3:], positive_weights=weights)
        floor = 1 - weights[1] / sum(weights) + 1e-12
        result = solve(problem, min_recall=floor)
        assert result.loss == solve(problem, "exhaustive", min_recall=floor).loss
        assert verify(problem, result).is_valid


@pytest.mark.parametrize("first", few([1, 1000]))
@pytest.mark.long
def test_a_leaf_keeps_the_shares_that_prove_its_bound(monkeypatch, first):
    """Ascents that get worse and worse: what is split or searched below a leaf must rest on what the leaf came with."""
    evaluate, divisors = Ascent.evaluate, itertools.count(first)
    monkeypatch.setattr(Ascent, "evaluate", lambda self: self._evaluate(evaluate(self).quanta // next(divisors)))
    problem = tangled(7, n_exemplars=15, n_positives=80, n_negatives=600)
    for options in ({}, {"node_limit": 40}):
        result = solve(problem, **options)
        assert result.lower_bound <= solve(problem, method="algorithm1").loss
        assert verify(problem, result).problems == []


# Parts


@quick
@given(problems(max_exemplars=5, max_positives=8, max_negatives=12, weights=False))
def test_reductions_keep_what_matters(problem):
    try:
        ranked = rank(problem)
    except InputError:
        return
    cutoff = solve(problem, method="greedy").loss + 1
    reduced = reduce(ranked, cheap_box(ranked, cutoff))
    for p, reach in zip(reduced.positives, reduced.reach, strict=True):
        for j, level in enumerate(reach.tolist()):
            is_alive = ranked.delta[p, j] != FORBIDDEN and ranked.delta[p, j] < cutoff
            assert level == (ranked.delta[p, j] if is_alive else 0)
    for row, n in enumerate(reduced.negatives):
        for j in range(ranked.n_exemplars):
            place = int(np.flatnonzero(ranked.order[j] == n)[0])
            if place < reduced.reach[:, j].max(initial=0):
                assert reduced.rank[row, j] == place
            else:
                assert reduced.rank[row, j] >= reduced.reach[:, j].max(initial=0)
    assert (
        solve(
            CalibrationProblem(
                problem.positive_scores[reduced.positives],
                problem.negative_scores,
                forbidden=None if problem.forbidden is None else problem.forbidden[reduced.positives],
            ),
            method="algorithm1",
        ).loss
        == solve(problem, method="algorithm1").loss
        if len(reduced.positives)
        else solve(problem).loss == 0
    )


@quick
@given(st.integers(0, 10_000))
def test_dominated_positives_are_those_covered_whenever_another_is(seed):
    random = np.random.default_rng(seed)
    reach = random.integers(0, 4, (random.integers(1, 12), random.integers(1, 5))).astype(np.int32)
    reach = reach[(reach > 0).any(axis=1)]
    totals = np.where(reach > 0, reach, 100).sum(axis=1)
    kept = set(_ascent_kernels.undominated(reach, np.argsort(-totals, kind="stable")).tolist())

    def dominates(q, p):
        return all(reach[q, j] == 0 or 0 < reach[p, j] <= reach[q, j] for j in range(reach.shape[1]))

    for p in range(len(reach)):
        others = [q for q in kept if q != p and dominates(q, p)]
        assert (p in kept) == (not others)


def reference_value(reduced, ascent, evaluation, p):
    """v_p by loops over exact fractions."""
    entries = range(ascent.start[p], ascent.start[p + 1])
    costs = [
        sum(Fraction(evaluation.quanta[e]) for e in entries if reduced.rank[ascent.row[e], j] < reduced.reach[p, j])
        for j in np.flatnonzero(reduced.reach[p] > 0)
    ]
    return min(costs)


@pytest.fixture
def climbed():
    problem = tangled(8, n_exemplars=10, n_positives=40, n_negatives=200)
    ranked = rank(problem)
    box = cheap_box(ranked, solve(problem, method="greedy").loss)
    ascent = Ascent(reduce(ranked, box), 2.0**-40, Workers(1))
    ascent.begin(ranked.order)
    for _ in range(5):
        ascent.iterate(10)
        evaluation = ascent.evaluate()
        ascent.keep()
        ascent.grow(ranked.order, tidy=True)
    ascent.go_back()
    return problem, ranked, box, ascent, evaluation


def test_shares_are_whole_and_give_nothing_away_twice(climbed):
    _, _, _, ascent, evaluation = climbed
    assert (evaluation.quanta == np.floor(evaluation.quanta)).all()
    assert (evaluation.quanta >= 0).all()
    given_away = np.bincount(ascent.row, weights=evaluation.quanta, minlength=len(ascent.price_quanta))
    assert (given_away <= ascent.price_quanta).all()
    shares = ascent.shares(evaluation)
    assert shares.quanta.sum() == evaluation.quanta.sum()


def test_the_value_of_shares_equals_the_slow_sum(climbed):
    _, _, _, ascent, evaluation = climbed
    for p in range(len(ascent.problem.reach)):
        assert Fraction(evaluation.values[p]) == reference_value(ascent.problem, ascent, evaluation, p)
        assert evaluation.values[p] == ascent.costs(evaluation)[p][ascent.problem.reach[p] > 0].min()


def test_the_ascent_reaches_the_value_of_the_linear_program(climbed):
    """The best shares prove the value of the linear program over fractional choices, here by HiGHS."""
    from scipy.optimize import linprog

    _, ranked, _, ascent, _ = climbed
    reduced = ascent.problem
    for _ in range(60):
        ascent.iterate(40)
        evaluation = ascent.evaluate()
        ascent.grow(ranked.order, tidy=True)
    n_positives, n_exemplars = reduced.reach.shape
    n_x, n_y = n_positives * n_exemplars, len(reduced.prices)
    rows, equal = [], np.zeros((n_positives, n_x + n_y))
    for p in range(n_positives):
        equal[p, p * n_exemplars : (p + 1) * n_exemplars] = reduced.reach[p] > 0
        for n in range(n_y):
            needs = (reduced.reach[p] > 0) & (reduced.rank[n] < reduced.reach[p])
            if needs.any():
                row = np.zeros(n_x + n_y)
                row[p * n_exemplars : (p + 1) * n_exemplars][needs] = 1
                row[n_x + n] = -1
                rows.append(row)
    program = linprog(
        np.concatenate([np.zeros(n_x), reduced.prices]),
        np.array(rows),
        np.zeros(len(rows)),
        equal,
        np.ones(n_positives),
    )
    value = evaluation.values.sum() * 2.0**-40
    assert value <= program.fun * (1 + 1e-9)
    assert value >= program.fun * 0.99


def test_depth_first_search_leaves_everything_as_it_was(climbed):
    problem, ranked, box, ascent, evaluation = climbed
    dive = Dive(ranked, Leaf(0, box, 0.0), ascent, evaluation, 2.0**-40)
    before = [np.array(part) for part in dive.state]
    optimum = solve(problem, method="algorithm1").loss
    most = (optimum + 1) * 2.0**40
    branched = dive.best_branching(most)
    assert branched is not None
    for part, old in zip(dive.state, before, strict=True):
        assert np.array_equal(part, old)
    is_finished, loss, levels, n_nodes = dive.search(most, 2.0**40, math.inf)
    assert loss_of_levels(ranked, levels.astype(np.int32)) == optimum
    assert is_finished
    assert n_nodes > 1
    assert loss == optimum * 2.0**40
    for part, old in zip(dive.state, before, strict=True):
        assert np.array_equal(part, old)


def test_children_are_bounded_as_their_boxes_are(climbed):
    """The bound of a child at a glance equals what the shares prove about its box, worked out from scratch."""
    _, ranked, box, ascent, evaluation = climbed
    reduced, quantum = ascent.problem, 2.0**-40
    dive = Dive(ranked, Leaf(0, box, 0.0), ascent, evaluation, quantum)
    branched = dive.best_branching(np.inf)
    lowest, highest = box.lowest.copy(), box.highest.copy()
    for j, level, bound in zip(branched.exemplars, branched.levels, branched.bounds, strict=True):
        child = Box(lowest.copy(), highest.copy())
        child.lowest[j] = level
        paid = set()
        for k in range(ranked.n_exemplars):
            paid |= set(ranked.order[k, : child.lowest[k]].tolist())
        total = sum(Fraction(float(ranked.prices[n])) / Fraction(quantum) for n in paid)
        for p in range(len(reduced.reach)):
            reach = reduced.reach[p].astype(int)
            if ((reach > 0) & (reach <= child.lowest)).any():
                continue
            alive = np.flatnonzero((reach > 0) & (reach <= child.highest))
            entries = [
                e for e in range(ascent.start[p], ascent.start[p + 1]) if reduced.negatives[ascent.row[e]] not in paid
            ]
            total += min(
                sum(Fraction(evaluation.quanta[e]) for e in entries if reduced.rank[ascent.row[e], k] < reach[k])
                for k in alive
            )
        assert Fraction(bound) == total
        highest[j] = level - 1


def test_the_search_may_run_out_of_time_anywhere(monkeypatch):
    """Whenever the clock is looked at for the last time, there is a solution and a bound that verifies."""
    problem = tangled(9, n_exemplars=10, n_positives=40, n_negatives=200)
    optimum = solve(problem, method="algorithm1").loss
    for n_looks in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89):
        looks = iter(range(n_looks))
        monkeypatch.setattr(Run, "is_out_of_time", lambda self, looks=looks: next(looks, None) is None)
        result = solve(problem, time_limit=1e9)
        assert result.lower_bound <= optimum <= result.loss
        assert verify(problem, result).is_valid


@pytest.mark.skipif(not INSTANCES.is_dir(), reason="the real score tables are not here")
@pytest.mark.parametrize(("across_images", "optimum"), few([(False, 13), (True, 2402)]))
def test_a_real_table_is_proved(across_images, optimum):
    archive = np.load(INSTANCES / "bccd_platelets.npz")

    def scores(windows):
        wide = windows.astype(np.float64) @ archive["weights"].T.astype(np.float64) + archive["bias"]
        return wide.astype(np.float32)

    forbidden = archive["positive_image"][:, None] == archive["exemplar_image"][None, :] if across_images else None
    problem = CalibrationProblem(
        scores(archive["positive_windows"]), scores(archive["negative_windows"]), forbidden=forbidden
    )
    result = solve(problem)
    assert (result.status, result.loss, result.lower_bound) == ("optimal", optimum, optimum)
    assert verify(problem, result).is_valid


@pytest.mark.long
def test_a_node_limit_counts_boxes_and_not_what_is_searched_within_them():
    """Else the depth-first look at the whole problem uses it up before any share is climbed."""
    random = np.random.default_rng(0)
    directions = random.normal(0, 1, (30, 8))
    problem = CalibrationProblem(
        random.normal(0, 1, (300, 8)) @ directions.T + 0.3 * np.linalg.norm(directions, axis=1),
        random.normal(0, 1, (3000, 8)) @ directions.T,
    )
    one = solve(problem, node_limit=1, n_jobs=1)
    assert one.status == "node_limit"
    assert one.n_nodes > 1000  # of the depth-first looks
    assert one.statistics["ascent_rounds"] > 5
    two = solve(problem, node_limit=2, n_jobs=2)
    assert two.lower_bound >= one.lower_bound
    again = solve(problem, node_limit=1, n_jobs=2)
    assert (again.loss, again.lower_bound, again.n_nodes) == (one.loss, one.lower_bound, one.n_nodes)
