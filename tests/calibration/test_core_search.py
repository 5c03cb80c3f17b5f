"""Bounds from a few hard positives: against brute force, and their certificates by both ways of checking them."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from eesvm import CalibrationProblem, InputError, load_certificate, save_certificate, solve, verify
from eesvm._support.threads import Workers, workers
from eesvm.calibration import ranks
from eesvm.calibration.anytime import Run
from eesvm.calibration.certificate import SEARCHED
from eesvm.calibration.proofs import certified_bound as checker
from eesvm.calibration.proofs import hard, hard_shares, owners
from eesvm.calibration.ranks import FORBIDDEN, rank
from eesvm.calibration.search import branching, core_search
from eesvm.calibration.search import core_kernels as kernels
from eesvm.calibration.search.core_search import CoreSearch
from eesvm.calibration.search.proof import Proof
from eesvm.calibration.search.reduce import cheap_box
from eesvm.calibration.sharing import node
from helpers import reference
from helpers.cores import certificate_of, random_problem, searched
from helpers.examples import few, many
from helpers.strategies import problems


def search_small_parts(monkeypatch, budget=40.0):
    """Parts of so many words, of which nothing is told any more once stories are long enough."""
    monkeypatch.setattr(core_search, "_BUDGET", budget)
    monkeypatch.setattr(core_search, "_TIMES_THE_FIRST", 0)
    monkeypatch.setattr(core_search, "_SHORT", 1)


# Bounds leave nothing to search in many problems: these do not count, and others are tried in their place.
@settings(max_examples=many(400), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(problems(weights=False, bounds=True))
def test_it_ends_at_the_optimum_with_a_proof(problem):
    try:
        ranked = rank(problem)
    except InputError:
        assume(False)
    assume(len(ranked.coverable) > 0 and ranked.difficulty[ranked.coverable].max() > 0)
    search, loss, ranked = searched(problem, Workers(1))
    optimum = reference.brute_force(problem)
    assert search.bound == loss == optimum - ranked.fixed_loss
    assert checker.certified_bound(problem, certificate_of(search, problem, ranked)) == optimum


def compare_pairs(monkeypatch, pairs=8192):
    """Have the search count at once what pairs have in common, of as many as that."""
    monkeypatch.setattr(core_search, "_FEW_WORDS", 0)
    monkeypatch.setattr(core_search, "_AFTER", 0.0)
    monkeypatch.setattr(core_search, "_MOST_COMMON", 4 * pairs**2)


# As above: bounds leave nothing to search in many problems.
@settings(max_examples=many(400), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(problems(weights=False, bounds=True))
def test_it_ends_at_the_optimum_where_pairs_are_compared(problem):
    try:
        ranked = rank(problem)
    except InputError:
        assume(False)
    assume(len(ranked.coverable) > 0 and ranked.difficulty[ranked.coverable].max() > 0)
    optimum = reference.brute_force(problem)
    for pairs in (2, 8192):
        with pytest.MonkeyPatch.context() as monkeypatch:
            compare_pairs(monkeypatch, pairs)
            search, loss, ranked = searched(problem, Workers(1))
        assert search.bound == loss == optimum - ranked.fixed_loss
        assert checker.certified_bound(problem, certificate_of(search, problem, ranked)) == optimum


@pytest.mark.parametrize("pairs", [5, 60, 8192])
@pytest.mark.parametrize("seed", range(6))
def test_comparing_pairs_changes_no_bound(seed, pairs, monkeypatch):
    problem = random_problem(seed, forbidden=0.2 * (seed % 2))
    counted, loss, _ = searched(problem, Workers(1))
    assert len(counted.common) == 0
    compare_pairs(monkeypatch, pairs)
    for budget, n_told in ((2e8, 4_000_000), (40.0, 4_000_000), (40.0, 30)):
        search_small_parts(monkeypatch, budget)
        monkeypatch.setattr(core_search, "_TOLD", n_told)
        compared, same_loss, ranked = searched(problem, Workers(1))
        assert (compared.bound, same_loss) == (counted.bound, loss)
        for way in WAYS_OF_SEARCHING:
            search_by(way, monkeypatch)
            assert checker.certified_bound(problem, certificate_of(compared, problem, ranked)) == loss
    q, j = compared.pairs
    assert 0 < len(compared.common) <= pairs
    assert np.array_equal(compared.pair[q, j], np.arange(len(q)))
    assert np.count_nonzero(compared.pair >= 0) == len(q)
    sets = np.unpackbits(compared.bits[q, j].view(np.uint8), axis=1).astype(int)
    assert np.array_equal(compared.common, sets @ sets.T)


@pytest.mark.parametrize("most_looks", [0, 5])
def test_counting_ends_with_the_time(most_looks, monkeypatch):
    """Time is over after a few rows of each count, then there is some again: what was begun is left out."""
    compare_pairs(monkeypatch)
    monkeypatch.setattr(core_search, "_UNSEEN", 1)  # row by row
    looks, late = [], []
    count = CoreSearch._count_common

    def count_in_no_time(search):
        pair, pairs, common, work = search.pair.copy(), search.pairs, search.common, search.work
        looks.clear()
        search.is_out_of_time = lambda: looks.append(1) or len(looks) > most_looks
        count(search)
        search.is_out_of_time = lambda: False
        if len(looks) > most_looks:
            late.append(len(common))
            assert search.pairs is pairs
            assert search.common is common
            assert search.work == work
            assert np.array_equal(search.pair, pair)

    monkeypatch.setattr(CoreSearch, "_count_common", count_in_no_time)
    problem = random_problem(0)
    search, loss, ranked = searched(problem, Workers(1))
    assert late, "all was counted in time, so nothing is shown"
    assert search.bound == loss
    assert checker.certified_bound(problem, certificate_of(search, problem, ranked)) == loss
    assert (len(search.common) > 0) == (most_looks > 0)
    q, j = search.pairs
    sets = np.unpackbits(search.bits[q, j].view(np.uint8), axis=1).astype(int)
    assert np.array_equal(search.common, sets @ sets.T)


@pytest.mark.parametrize("seed", range(6))
def test_parts_and_a_growing_core_end_at_the_same_bound(seed, monkeypatch):
    problem = random_problem(seed)
    whole, loss, _ = searched(problem, Workers(1))
    search_small_parts(monkeypatch)
    monkeypatch.setattr(core_search, "_FIRST_ROOM", 1)
    parts, same_loss, ranked = searched(problem, Workers(1))
    assert parts.root.parts, "nothing was split, so nothing is shown"
    assert (parts.bound, same_loss) == (whole.bound, loss)
    result = solve(problem)
    assert result.status == "optimal"
    assert result.loss == loss
    assert checker.certified_bound(problem, certificate_of(parts, problem, ranked)) == loss


@pytest.mark.parametrize("seed", [6, 9, 10])
def test_a_part_that_has_paid_the_target_is_done(seed, monkeypatch):
    search_small_parts(monkeypatch, 0.0)
    problem = random_problem(seed)
    search, loss, ranked = searched(problem, Workers(1))
    assert search.bound == loss == solve(problem).loss
    assert checker.certified_bound(problem, certificate_of(search, problem, ranked)) == loss


@pytest.mark.parametrize("least", [0, 1, 3])
@pytest.mark.parametrize("little", [0.0, 0.05, 0.4, 1.0])
def test_what_is_left_of_a_part_is_searched(little, least, monkeypatch):
    """Whatever part of the way down is searched again, and whatever is told of what was done."""
    search_small_parts(monkeypatch, 400.0)
    monkeypatch.setattr(core_search, "_LITTLE", little)
    monkeypatch.setattr(core_search, "_SHORT", least)
    for seed, n_told in ((0, 0), (3, 100), (4, 10**6)):
        monkeypatch.setattr(core_search, "_TOLD", n_told)
        problem = random_problem(seed)
        search, loss, ranked = searched(problem, Workers(1))
        assert search.root.parts
        assert search.bound == loss == solve(problem).loss
        certificate = certificate_of(search, problem, ranked)
        assert certificate.is_searched.any() == (n_told < 10**6)
        assert checker.certified_bound(problem, certificate) == loss


@pytest.mark.parametrize("most", [0, 1, 2, 5, 40])
@pytest.mark.parametrize("seed", range(20))
def test_what_is_finished_may_be_left_out(seed, most):
    rng = np.random.default_rng(seed)

    def story(depth, is_open):
        """Events below a node as a nested list, the last child unfinished where it `is_open`."""
        children = [[int(rng.integers(1, 9)), story(depth - 1, False)] for _ in range(rng.integers(4) * (depth > 0))]
        if is_open:
            return [*children, [9, story(depth - 1, True)]] if depth > 0 else children
        return [*children, [0, []]]

    def told(nodes):
        return [event for exemplar, below in nodes for event in ((7 << 16) + exemplar, *told(below))]

    def short(nodes, is_open):
        """The same, told shortly: what is long is not told, but for what is not finished."""
        events = []
        for place, (exemplar, below) in enumerate(nodes):
            is_last = is_open and place == len(nodes) - 1 and exemplar == 9
            is_long = exemplar != 0 and not is_last and len(told(below)) > most
            below = [kernels.UNTOLD] if is_long else short(below, is_last)
            events += [(7 << 16) + exemplar, *below]
        return events

    nodes = story(4, True)
    events = np.array(told(nodes), dtype=np.uint32)
    kept = events.copy()
    assert kept[: kernels.shorten(kept, most)].tolist() == short(nodes, True)


def test_parts_wait_where_time_is_over():
    problem = random_problem(0)
    ranked = rank(problem)
    search = CoreSearch(ranked, Proof(cheap_box(ranked, np.inf)), Workers(1), lambda: True)
    assert search.step(1000.0) is None
    assert (search.bound, search.n_nodes, len(search.pending)) == (0, 0, 1)


def test_negatives_of_no_weight_do_not_count(monkeypatch):
    plain = random_problem(7)
    weights = np.append(np.ones(plain.n_negatives), 0.0)
    problem = CalibrationProblem(
        plain.positive_scores,
        np.vstack([plain.negative_scores, np.full(plain.n_exemplars, 9.0)]),
        negative_weights=weights,
        forbidden=plain.forbidden,
    )
    search, loss, ranked = searched(problem, Workers(1))
    for way in WAYS_OF_CHECKING:
        check_by(way, monkeypatch)
        assert checker.certified_bound(problem, certificate_of(search, problem, ranked)) == loss


@pytest.mark.parametrize("n_told", [0, 30, 100])
@pytest.mark.parametrize("seed", range(4))
def test_parts_that_are_not_told_are_searched_by_the_checker(seed, n_told, monkeypatch):
    search_small_parts(monkeypatch)
    problem = random_problem(seed, forbidden=0.2 * (seed % 2))
    told, loss, ranked = searched(problem, Workers(1))
    whole = certificate_of(told, problem, ranked)
    assert not whole.is_searched.any()
    monkeypatch.setattr(core_search, "_TOLD", n_told)
    untold, same_loss, ranked = searched(problem, Workers(1))
    certificate = certificate_of(untold, problem, ranked)
    assert untold.bound == same_loss == loss
    assert certificate.is_searched.any()
    assert certificate.n_nodes < whole.n_nodes
    for way in WAYS_OF_SEARCHING:
        search_by(way, monkeypatch)
        assert checker.certified_bound(problem, certificate) == loss
        fewer = replace(certificate, hard=certificate.hard[1:])  # what they cost alone
        assert checker.certified_bound(problem, fewer) <= loss
        nothing = certificate.without_searched()  # what is paid
        assert checker.certified_bound(problem, nothing) < loss


# Bytes that the compiled one may take, words from which on it compares pairs, and after which it shares out; of how many
# positives all have lanes, and words of a search below a place.
WAYS_OF_SEARCHING = {
    "compiled": (2**31, 10**9, 1e8, 0.9, 2e7),
    "by comparing pairs": (2**31, 0, 1e8, 0.9, 2e7),
    "by numpy": (0, 0, 1e8, 0.9, 2e7),
    "by shares": (2**31, 10**9, -1.0, 0.9, 2e7),
    "by shares, place by place": (2**31, 10**9, -1.0, 0.9, 0.0),
    "by shares of few": (2**31, 10**9, -1.0, 0.3, 200.0),
}


def search_by(way, monkeypatch):
    most, few, plain, lanes, below = WAYS_OF_SEARCHING[way]
    monkeypatch.setattr(hard, "_MOST_BYTES", most)
    monkeypatch.setattr(hard, "_FEW_WORDS", few)
    monkeypatch.setattr(hard, "_PLAIN_WORDS", plain)
    monkeypatch.setattr(node, "_MANY_LANES", lanes)
    monkeypatch.setattr(hard_shares, "_SEARCH", 0.0 if plain < 0 else 4.0)
    monkeypatch.setattr(hard_shares, "_LEAST_SEARCH", below)


@pytest.mark.parametrize("seed", range(many(60)))
def test_a_searched_leaf_proves_what_its_hard_positives_cost(seed, monkeypatch):
    """Any tree, any list: the least over the leaves of what brute force finds, never more than the optimum."""
    rng = np.random.default_rng(seed)
    scale = (1.0, 1e-300, 2e307)[seed % 3]
    problem = random_problem(seed, 4, 6, 9, forbidden=0.2 * (seed % 2), scale=scale)
    search, loss, ranked = searched(problem, Workers(1))
    certificate = certificate_of(search, problem, ranked)
    for n_splits, is_deep in ((0, False), (5, False), (12, True)):
        positives = np.sort(rng.permutation(6)[: rng.integers(1, 7)]).astype(np.int32)
        tree = random_tree(certificate, problem, n_splits, is_deep, rng)
        is_leaf = tree.split_exemplar < 0
        some = is_leaf & (rng.random(len(is_leaf)) < 0.7)
        shares_of = np.where(some, np.int32(SEARCHED), tree.shares_of)
        for cutoff in (certificate.cutoff, np.inf):
            changed = replace(tree, shares_of=shares_of, hard=positives, cutoff=cutoff)
            found = []
            for way in WAYS_OF_SEARCHING:
                search_by(way, monkeypatch)
                found.append(checker.certified_bound(problem, changed))
            assert min(found) == max(found) <= loss
    alone = CalibrationProblem(
        problem.positive_scores[positives],
        problem.negative_scores,
        forbidden=None if problem.forbidden is None else problem.forbidden[positives],
    )
    root = random_tree(certificate, problem, 0, False, rng)
    root = replace(
        root,
        shares_of=np.array([SEARCHED], dtype=np.int32),
        hard=positives,
        cutoff=np.inf,
        ceiling=np.full(4, -np.inf),
    )
    for way in WAYS_OF_SEARCHING:
        search_by(way, monkeypatch)
        assert checker.certified_bound(problem, root) == reference.brute_force(alone)


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("words", [1, 7 * 60 * 4, 1e8])
def test_what_comes_along_with_two_pairs_is_counted_some_rows_at_a_time(words, cores, monkeypatch):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**63, (9, 8, 4), dtype=np.uint64)
    may = rng.random((9, 8)) < 0.9
    row = np.where(may, np.arange(72).reshape(9, 8), -1).astype(np.int32)
    cost = np.unpackbits(bits.view(np.uint8), axis=2).sum(axis=2, dtype=np.int32)
    monkeypatch.setattr(hard, "_WORDS_AT_ONCE", words)
    monkeypatch.setattr(hard, "n_cores", lambda: cores)
    monkeypatch.setattr(hard, "_FEW_WORDS", 5)
    number, both = hard._compared(bits.reshape(-1, 4), row, cost, 1)
    assert (number == -1).all()
    assert both.shape == (0, 0)
    monkeypatch.setattr(hard, "_FEW_WORDS", 4)
    number, both = hard._compared(bits.reshape(-1, 4), row, cost, 1)
    assert np.array_equal(number >= 0, may)
    sets = np.unpackbits(bits.view(np.uint8), axis=2).astype(int)
    p, j = np.nonzero(may)
    assert np.array_equal(both[np.ix_(number[p, j], number[p, j])], sets[p, j] @ sets[p, j].T)


@pytest.mark.parametrize("leaves_at_once", [0.9, 1, 2.5, 100])
def test_leaves_are_searched_at_once_as_far_as_memory_goes(leaves_at_once, monkeypatch):
    search_small_parts(monkeypatch)
    monkeypatch.setattr(core_search, "_TOLD", 0)
    problem = random_problem(1)
    search, loss, ranked = searched(problem, Workers(1))
    certificate = certificate_of(search, problem, ranked)
    n_words = -(-problem.n_negatives // 64)
    n_bytes = hard._bytes_of_leaf(len(certificate.hard), problem.n_exemplars, n_words)
    in_order, by_numpy, threads = hard.in_order, hard._least_by_numpy, []
    monkeypatch.setattr(hard, "_MOST_BYTES", int(leaves_at_once * n_bytes))
    monkeypatch.setattr(hard, "n_cores", lambda: 4)
    monkeypatch.setattr(hard, "in_order", lambda work, items, n: threads.append(n) or in_order(work, items, n))
    monkeypatch.setattr(hard, "_least_by_numpy", lambda *known: threads.append(0) or by_numpy(*known))
    assert checker.certified_bound(problem, certificate) == loss
    assert threads == [min(4, int(leaves_at_once))]


@pytest.mark.parametrize("n_exemplars", [1, 2, 7, 20, 1000, core_search._MOST_EXEMPLARS])
def test_what_our_own_search_leaves_fits_into_memory(n_exemplars):
    most = math.isqrt(core_search._MOST_BYTES // (8 * n_exemplars))
    for n_hard in range(1, min(most, core_search._MOST_POSITIVES) + 1):
        assert hard._bytes_of_leaf(n_hard, n_exemplars) <= hard._MOST_BYTES


@pytest.mark.parametrize(
    ("way", "most"),
    [
        ("compiled", (30.0, 30.0, 1, 500)),
        ("by shares", (-1.0, 30.0, 1, 500)),
        ("by numpy", (1e8, 30.0, 1, 500)),
        ("by numpy", (1e8, 1e10, 20_000, 0)),
        ("by numpy, few scores", (1e8, 1e10, 20_000, 500)),
    ],
)
def test_a_leaf_that_takes_too_long_proves_what_is_paid(way, most, monkeypatch):
    search_small_parts(monkeypatch)
    monkeypatch.setattr(core_search, "_TOLD", 0)
    problem = random_problem(1)
    search, loss, ranked = searched(problem, Workers(1))
    certificate = certificate_of(search, problem, ranked)
    search_by(way.split(",")[0], monkeypatch)
    if way.endswith("few scores"):
        monkeypatch.setattr(hard, "_MOST_LOOKED", 5000)
    for name, value in zip(("_PLAIN_WORDS", "_MOST_WORDS", "_MOST_NODES", "_MOST_DEPTH"), most, strict=True):
        monkeypatch.setattr(hard, name, value)
    assert checker.certified_bound(problem, certificate) < loss


@pytest.mark.parametrize("few_words", [0, 10**9])
@pytest.mark.parametrize("seed", range(3))
def test_the_checker_looks_at_hardly_more_words_than_the_search(seed, few_words, monkeypatch):
    """Else a proof of ten minutes is not checked in an hour, or its leaves prove what is paid and it is refused."""
    monkeypatch.setattr(core_search, "_TOLD", 0)
    search_small_parts(monkeypatch, 1e6)
    monkeypatch.setattr(core_search, "_FEW_WORDS", few_words)
    monkeypatch.setattr(hard, "_FEW_WORDS", few_words)
    monkeypatch.setattr(hard, "_MOST_WORDS", 4e6)
    problem = random_problem(seed, 40, 60, 2000)
    search, _, ranked = searched(problem, Workers(1))
    certificate = certificate_of(search, problem, ranked)
    assert certificate.is_searched.sum() >= 5
    assert checker.certified_bound(problem, certificate) == search.bound


def test_weights_that_differ_are_searched_by_numpy():
    plain = random_problem(2, 4, 6, 9)
    weights = np.random.default_rng(2).integers(1, 5, 9).astype(float)
    problem = CalibrationProblem(
        plain.positive_scores, plain.negative_scores, forbidden=plain.forbidden, negative_weights=weights
    )
    search, _, ranked = searched(plain, Workers(1))
    certificate = replace(
        random_tree(certificate_of(search, plain, ranked), plain, 0, False, np.random.default_rng(0)),
        shares_of=np.array([SEARCHED], dtype=np.int32),
        hard=np.arange(6, dtype=np.int32),
        cutoff=np.inf,
        ceiling=np.full(4, -np.inf),
    )
    assert checker.certified_bound(problem, certificate) == reference.brute_force(problem)


@pytest.mark.parametrize(
    ("hard_positives", "message"),
    [([], "must name"), ([3, 3], "ascend"), ([-1, 3], ">= 0"), ([3, 60], "< 60")],
)
def test_a_list_of_hard_positives_is_checked(hard_positives, message, monkeypatch):
    search_small_parts(monkeypatch)
    monkeypatch.setattr(core_search, "_TOLD", 0)
    problem = random_problem(0)
    search, _, ranked = searched(problem, Workers(1))
    certificate = replace(certificate_of(search, problem, ranked), hard=np.array(hard_positives, dtype=np.int32))
    with pytest.raises(InputError, match=message):
        checker.certified_bound(problem, certificate)


def test_searched_leaves_survive_a_file(tmp_path, monkeypatch):
    search_small_parts(monkeypatch)
    monkeypatch.setattr(core_search, "_TOLD", 0)
    problem = random_problem(0)
    search, loss, ranked = searched(problem, Workers(1))
    save_certificate(tmp_path / "certificate.npz", certificate_of(search, problem, ranked))
    certificate = load_certificate(tmp_path / "certificate.npz")
    assert certificate.is_searched.any()
    assert checker.certified_bound(problem, certificate) == loss


@pytest.mark.parametrize("n_events", [6, 9, 14, 31, 70])
def test_a_full_story_splits_a_part(n_events, monkeypatch):
    problem = random_problem(6)
    _, loss, _ = searched(problem, Workers(1))
    monkeypatch.setattr(core_search, "_STORY", n_events)
    parts, same_loss, ranked = searched(problem, Workers(1))
    assert parts.root.parts, "nothing was split, so nothing is shown"
    assert parts.bound == same_loss == loss
    assert checker.certified_bound(problem, certificate_of(parts, problem, ranked)) == loss


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_any_number_of_threads_tells_the_same_story(n_jobs, monkeypatch):
    search_small_parts(monkeypatch)
    problem = random_problem(1)
    alone, _, _ = searched(problem, Workers(1))
    with workers(n_jobs) as threads:
        together, _, _ = searched(problem, threads)
    assert alone.core == together.core
    assert np.array_equal(alone.proof().story, together.proof().story)


def test_a_bound_on_the_way_is_proved(monkeypatch):
    search_small_parts(monkeypatch)
    problem = random_problem(2)
    ranked = rank(problem)
    loss = solve(problem).loss
    search, bounds = CoreSearch(ranked, Proof(cheap_box(ranked, np.inf)), Workers(1)), {0}
    while not search.is_over:
        search.step(loss)
        if search.bound not in bounds:  # and in the middle of the next target, too
            bounds.add(search.bound)
            search.step(loss)
            assert checker.certified_bound(problem, certificate_of(search, problem, ranked)) >= search.bound
    assert len(bounds) > 3


@pytest.mark.parametrize("seed", [2, 3])
def test_a_target_is_lowered_where_time_is_short(seed, monkeypatch):
    search_small_parts(monkeypatch)
    monkeypatch.setattr(core_search, "_BATCH", 1)
    problem = random_problem(seed)
    ranked, loss = rank(problem), solve(problem).loss
    left = [1000.0]

    def seconds_left():
        left[0] *= 0.95
        return left[0]

    search = CoreSearch(ranked, Proof(cheap_box(ranked, np.inf)), Workers(1), lambda: False, seconds_left)
    first_targets, bounds = {}, [0]
    while not search.is_over:
        search.step(loss)
        first_targets.setdefault(search.bound if search.pending else bounds[-1], search.target)
        if search.bound > bounds[-1]:
            bounds.append(search.bound)
            assert search.bound <= checker.certified_bound(problem, certificate_of(search, problem, ranked)) <= loss
    assert bounds[-1] == loss  # time is always short, but never over
    assert any(reached < first_targets[before] for before, reached in pairwise(bounds))


@pytest.mark.parametrize(
    ("took", "left", "target"),
    [
        ([], 100.0, None),
        ([(100, 1.0), (120, 4.0)], np.inf, None),  # no limit
        # Four times as long for every 20: 50 s in place of 4 are enough for 36 more.
        ([(100, 1.0), (120, 4.0)], 100.0, 156),
        ([(100, 1.0), (120, 4.0)], 5.0, 121),  # not even the last one could be reached again
        ([(100, 4.0), (120, 1.0)], 100.0, None),  # no growth to go by
        ([(100, 0.0), (120, 1.0)], 100.0, None),
    ],
)
def test_the_next_target_is_one_that_can_be_reached_in_time(took, left, target):
    ranked = rank(random_problem(0))
    search = CoreSearch(ranked, Proof(cheap_box(ranked, np.inf)), Workers(1), lambda: False, lambda: left)
    search.took, search.began_at, search.bound = took, left, 120
    assert search._in_time() == (2**62 if target is None else target)


@pytest.mark.parametrize(
    ("counted", "target", "work_until_160"),
    [
        ([], 2**62, np.inf),  # nothing to go by: a quarter of what is left
        ([(120, 8.0)], 170, np.inf),  # the second is 5 % of the loss nearer
        # Five times the words for every 20.
        ([(100, 4.0), (120, 20.0)], 140, 500.0),
        ([(100, 1.0), (110, 1.0), (120, 25.0)], 125, 25.0**5),  # the last two count
        ([(100, 4.0), (119, 9.0), (120, 20.0)], 140, 500.0),  # unless they are too near
        ([(119, 5.0), (120, 25.0)], 121, 25.0 * 5.0**40),  # and nothing else is there
        ([(100, 4.0), (120, 3.0)], 170, np.inf),  # fewer than before
        ([(100, 1.0), (120, 1e12)], 121, 1e36),  # one more at least
        ([(60, 1.0), (80, 1.0), (100, 25.0), (120, 125.0)], 130, 3125.0),  # they grew faster before, and may again
    ],
)
def test_the_next_target_is_not_much_more_work_than_the_last(counted, target, work_until_160):
    ranked = rank(random_problem(0))
    search = CoreSearch(ranked, Proof(cheap_box(ranked, np.inf)), Workers(1))
    search.counted, search.bound = counted, 120
    assert search._in_good_order(1000) == target
    assert search.work_until(160) == pytest.approx(work_until_160)


def test_a_target_that_took_longer_than_expected_is_not_expected_soon():
    ranked = rank(random_problem(0))
    search = CoreSearch(ranked, Proof(cheap_box(ranked, np.inf)), Workers(1))
    search.counted, search.work_before, search.work = [(100, 4.0), (120, 20.0)], 24.0, 1024.0
    assert search.work_until(140) == 1000.0


def turns(monkeypatch, seconds_left):
    """An exact search of which only the turns of the core are looked at, with a core that took four times as long for
    every 20 negatives and looks at a word a second."""
    ranked = rank(random_problem(0))
    run = Run(time_limit=1e6)
    monkeypatch.setattr(run, "seconds_left", lambda: seconds_left)
    search = branching.ExactSearch(ranked, run, None, Workers(1))
    core = CoreSearch(ranked, search.proof, Workers(1))
    core.counted, core.bound, core.work, core.work_before = [(100, 4.0), (120, 16.0)], 120, 20.0, 20.0
    search.core, search.core_seconds, search.loss = core, 20.0, 1000.0
    return search


@pytest.mark.parametrize(("shares", "expected"), [(119, True), (139, True), (159, True), (160, False), (1e9, False)])
def test_a_core_catches_up_by_its_own_pace(shares, expected, monkeypatch):
    search = turns(monkeypatch, seconds_left=4 * 256.0)  # a quarter of it is enough for 160
    search.proof.leaves[0].bound = shares
    assert search._catches_up(search.core, is_root=False) == expected


def test_a_core_does_not_take_the_time_of_shares_that_prove_much(monkeypatch):
    search = turns(monkeypatch, seconds_left=4 * 256.0)
    search.proof.leaves[0].bound, search.loss = 139.0, 270.0
    assert not search._catches_up(search.core, is_root=False)


@pytest.mark.parametrize("seconds_left", [1024.0, 4096.0])
def test_a_core_waits_for_a_root_that_climbs(seconds_left, monkeypatch):
    """Shares gained 20 in ten seconds, and would prove half of the loss of 1,000 in 200 more; where they gain nothing,
    the core has its turns."""
    search = turns(monkeypatch, seconds_left)
    search.proof.leaves[0].bound = 125.0
    search.climbed = [(10.0, 80.0), (20.0, 100.0)]
    assert not search._catches_up(search.core, is_root=True)
    search.climbed = [(10.0, 100.0), (20.0, 100.0)]
    assert search._catches_up(search.core, is_root=True)


@pytest.mark.parametrize(("seconds_left", "expected"), [(401.0, True), (399.0, False)])
def test_a_core_whose_pace_is_not_known_is_tried_for_a_twentieth_of_the_time(seconds_left, expected, monkeypatch):
    search = turns(monkeypatch, seconds_left)
    search.core.counted = [(120, 16.0)]
    search.proof.leaves[0].bound = 130.0
    assert search._catches_up(search.core, is_root=False) == expected
    search.proof.leaves[0].bound = 501.0  # shares that prove more than half of the loss need no other proof
    assert not search._catches_up(search.core, is_root=False)


@pytest.mark.parametrize(
    ("climbed", "bound", "expected"),
    [
        ([], 120, False),
        ([(10.0, 50.0)], 120, False),
        # 20 in the second half of 20 seconds: 200 more in a hundred.
        ([(1.0, 10.0), (9.0, 80.0), (10.0, 80.0), (20.0, 100.0)], 299, False),
        ([(1.0, 10.0), (9.0, 80.0), (10.0, 80.0), (20.0, 100.0)], 301, True),
        ([(5.0, 80.0), (20.0, 80.0)], 81, True),  # no gain
        ([(15.0, 80.0), (20.0, 90.0)], 291, True),  # the first is all that is known
        ([(20.0, 90.0), (20.0, 90.0)], 291, False),
        ([], 501, True),  # more than half of the loss
    ],
)
def test_the_root_is_beaten_where_its_pace_is_too_slow(climbed, bound, expected, monkeypatch):
    search = turns(monkeypatch, seconds_left=100.0)
    search.loss, search.climbed = 1000.0, climbed
    assert search._root_is_beaten(bound, True) == expected
    assert search._root_is_beaten(bound, False) == (bound > 500)  # without a clock only that counts


@pytest.mark.parametrize("seed", few(range(4)))
def test_leaves_are_counted_as_they_are_added_up(seed, monkeypatch):
    problem = random_problem(seed, forbidden=0.0 if seed % 2 else 0.3)
    search, loss, ranked = searched(problem, Workers(1))
    certificate = certificate_of(search, problem, ranked)
    bounds = {}
    for way in WAYS_OF_CHECKING:
        check_by(way, monkeypatch)
        assert checker.certified_bound(problem, certificate) == loss
        for change in ("shares_of", "split_score", "ceiling"):
            for again in few(range(20), 6):
                bound = checker.certified_bound(problem, damaged(certificate, change, 20 * seed + again))
                assert bound <= loss
                bounds.setdefault((change, again), []).append(bound)
    # The slow way also sees other positives that nobody can cover, so it may find more; compiled or not is the same.
    assert all(counted == compiled <= added for counted, compiled, _, added in bounds.values())
    assert all(compiled == in_parts for _, compiled, in_parts, _ in bounds.values())
    assert any(bound < loss for found in bounds.values() for bound in found)


WAYS_OF_CHECKING = {  # from how many leaves on they are counted, by a compiled walk, and bytes held at a time
    "counted": (1, 10**9, 2**28),
    "compiled": (1, 1, 2**28),
    "compiled, few positives at a time": (1, 1, 1),
    "added up": (10**9, 10**9, 2**28),
}


def check_by(way, monkeypatch):
    many_owned, very_many, kept_bytes = WAYS_OF_CHECKING[way]
    monkeypatch.setattr(checker, "_MANY_OWNED", many_owned)
    monkeypatch.setattr(owners, "_VERY_MANY", very_many)
    monkeypatch.setattr(owners, "_KEPT_BYTES", kept_bytes)


def damaged(certificate, name, seed):
    """Other owners at the leaves, other scores at the splits, or other ceilings: no proof, or one of less."""
    rng, values = np.random.default_rng(seed), getattr(certificate, name).copy()
    if name == "ceiling":
        return replace(certificate, ceiling=rng.permutation(values))
    places = np.flatnonzero((certificate.split_exemplar < 0) == (name == "shares_of"))
    values[places] = rng.permutation(values[places])
    return replace(certificate, **{name: values})


@pytest.mark.parametrize("seed", range(many(60)))
def test_any_tree_proves_no_more_than_the_optimum(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    scale = (1.0, 1e-300, 2e307)[seed % 3]  # differences between the largest are infinite
    problem = random_problem(seed, 4, 6, 9, forbidden=0.2 * (seed % 2), scale=scale)
    search, loss, ranked = searched(problem, Workers(1))
    for n_splits, is_deep in ((0, False), (5, False), (40, True)):
        certificate = random_tree(certificate_of(search, problem, ranked), problem, n_splits, is_deep, rng)
        counted, compiled, in_parts, added = bounds_of(problem, certificate, monkeypatch)
        assert counted == compiled == in_parts <= added <= loss


def random_tree(certificate, problem, n_splits, is_deep, rng):
    """Any splits, and leaves of any owners, in arrays that may be parts of others and not be written to."""
    exemplar, children, leaves = [-1], [(-1, -1)], [0]
    for _ in range(n_splits):
        node = leaves.pop() if is_deep else leaves.pop(rng.integers(len(leaves)))
        exemplar[node] = rng.integers(problem.n_exemplars)
        children[node] = tuple(rng.permutation([len(exemplar), len(exemplar) + 1]))
        leaves += [len(exemplar), len(exemplar) + 1]
        exemplar += [-1, -1]
        children += [(-1, -1)] * 2
    exemplar = np.array(exemplar, dtype=np.int32)
    owners = rng.integers(problem.n_positives, size=len(exemplar))
    arrays = np.array(children, dtype=np.int32)
    arrays.flags.writeable = bool(rng.integers(2))
    return replace(
        certificate,
        split_exemplar=exemplar,
        split_score=problem.positive_scores[rng.permutation(owners), exemplar].astype(np.float64),
        open_child=arrays[:, 0],
        shut_child=arrays[:, 1],
        shares_of=np.where(exemplar < 0, -2 - owners, -1).astype(np.int32),
    )


def bounds_of(problem, certificate, monkeypatch):
    found = []
    for way in WAYS_OF_CHECKING:
        check_by(way, monkeypatch)
        found.append(checker.certified_bound(problem, certificate))
    return found


@pytest.mark.long
def test_a_long_way_down_takes_little_memory(monkeypatch):
    problem = random_problem(0, 3, 6)
    search, _, ranked = searched(problem, Workers(1))
    certificate = replace(certificate_of(search, problem, ranked), ceiling=np.full(3, -np.inf), quantum=1.0)
    problem, n_splits = random_problem(0, 3, 6, 100_000), 8000
    certificate = random_tree(certificate, problem, n_splits, True, np.random.default_rng(0))
    check_by("compiled", monkeypatch)
    compiled = checker.certified_bound(problem, certificate)
    monkeypatch.setattr(owners, "_MOST_BYTES", 0)
    tracemalloc.start()
    assert checker.certified_bound(problem, certificate) == compiled
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n_splits / 4 * problem.n_negatives / 8, "half of them open something: no set of negatives for each"


@pytest.mark.parametrize("way", ["counted", "compiled"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("split_exemplar", 12),
        ("split_exemplar", -2),
        ("split_exemplar", 2**31 - 1),
        ("split_score", np.nan),
        ("split_score", np.inf),
        ("open_child", 0),
        ("open_child", -1),
        ("open_child", 2**31 - 1),
        ("shut_child", 1),  # the child of two
        ("shut_child", -(2**31)),
        ("shares_of", -62),
        ("shares_of", -(2**31)),
        ("shares_of", 0),
    ],
)
def test_what_is_no_tree_is_refused(name, value, way, monkeypatch):
    check_by(way, monkeypatch)
    problem = random_problem(0)
    search, _, ranked = searched(problem, Workers(1))
    certificate = certificate_of(search, problem, ranked)
    values = getattr(certificate, name).copy()
    values[np.flatnonzero((certificate.split_exemplar < 0) == (name == "shares_of"))[0]] = value
    with pytest.raises(InputError, match=r"must|parent") as refusal:
        checker.certified_bound(problem, replace(certificate, **{name: values}))
    assert "\n" not in str(refusal.value)


def test_a_proof_that_becomes_too_large_is_given_up(monkeypatch):
    problem = random_problem(1)
    whole, loss, _ = searched(problem, Workers(1))
    search_small_parts(monkeypatch)
    monkeypatch.setattr(core_search, "_BATCH", 1)
    monkeypatch.setattr(core_search, "_MOST_EVENTS", 100)
    search, _, ranked = searched(problem, Workers(1))
    assert search.is_over
    assert search.pending, "the target was reached, so nothing is shown"
    assert 0 < search.bound < whole.bound == loss
    certificate = certificate_of(search, problem, ranked)
    assert certificate.n_nodes <= 100
    assert search.bound <= checker.certified_bound(problem, certificate) <= loss


def test_counting_by_bits_without_numpy_2(monkeypatch):
    bits = np.random.default_rng(0).integers(0, 2**63, (5, 7), dtype=np.uint64)
    expected = [sum(int(word).bit_count() for word in row) for row in bits]
    assert owners.n_ones(bits).tolist() == expected
    monkeypatch.delattr(np, "bitwise_count", raising=False)
    assert owners.n_ones(bits).tolist() == expected


def test_the_exact_search_turns_to_the_core(monkeypatch):
    for name in ("_PLAIN_WORK", "_EARLY_WORK"):
        monkeypatch.setattr(branching, name, 0 if name == "_PLAIN_WORK" else 1e18)  # no search but that of the core
    monkeypatch.setattr(branching, "_CORE_BEHIND", (1e9, 1e9))
    problem = random_problem(3, 15, 80, 200)
    result = solve(problem)
    assert result.statistics["core_bound"] == result.loss == result.lower_bound
    assert result.status == "optimal"
    assert result.certificate.n_shares == 0
    assert verify(problem, result).is_valid


def test_with_a_limit_in_seconds_time_is_shared_out_by_the_clock(monkeypatch):
    for name in ("_PLAIN_WORK", "_EARLY_WORK"):
        monkeypatch.setattr(branching, name, 0 if name == "_PLAIN_WORK" else 1e18)
    monkeypatch.setattr(branching, "_CORE_PACE", 1e300)  # by work the core would have one turn
    monkeypatch.setattr(branching, "_CORE_BEHIND", (1e9, 1e9))
    problem = random_problem(3, 15, 80, 200)
    result = solve(problem, time_limit=3600)
    assert result.statistics["core_bound"] == result.loss == result.lower_bound
    assert verify(problem, result).is_valid


@pytest.mark.parametrize(
    ("found_at", "n_idle", "expected"),
    [(40.0, 1000, 30.0), (60.0, 1000, 30.0), (28.0, 1000, 10.0), (33.0, 1000, 16.0), (0.0, 0, 30.0)],
)
def test_walkers_beside_the_core_have_more_of_its_time_where_they_may_yet_find_something(
    monkeypatch, found_at, n_idle, expected
):
    """They walked for 50 s: in the fourth case the last better solution came after 33, and for long after 66."""
    run = Run(time_limit=1e6)
    search = branching.ExactSearch(rank(random_problem(3)), run, None, Workers(1), 0)
    search.core_seconds, search.walk_seconds, search.found_at, search.n_idle = 100.0, 50.0, found_at, n_idle

    def walk(n_moves):
        search.walk_seconds += 1.0

    monkeypatch.setattr(search, "_walk", walk)
    search._walk_beside(None, by_clock=True)
    assert search.beside_seconds == expected


def test_a_full_memory_ends_it_with_the_bound_so_far(monkeypatch):
    problem = random_problem(4)
    monkeypatch.setattr(core_search, "_MOST_BYTES", 8 * problem.n_exemplars * 3 * 2)  # room for two positives
    search, loss, ranked = searched(problem, Workers(1))
    assert search.is_over
    assert len(search.core) <= 2
    assert search.bound <= loss
    if search.bound:
        assert checker.certified_bound(problem, certificate_of(search, problem, ranked)) >= search.bound


def test_what_follows_from_accepted_negatives():
    ranked = rank(random_problem(5))
    rng = np.random.default_rng(5)
    n_exemplars, n_negatives = ranked.order.shape
    number = rng.permutation(n_negatives).astype(np.int32)
    is_free = rng.random(n_negatives) < 0.3
    padded = np.zeros(64 * -(-n_negatives // 64), dtype=bool)
    padded[number] = is_free
    free = np.packbits(padded, bitorder="little").view(np.uint64)
    highest = np.full(n_exemplars, n_negatives, dtype=np.int32)
    levels, least = np.zeros(n_exemplars, dtype=np.int32), np.full(len(ranked.delta), 2**30, dtype=np.int32)
    kernels.look_at(ranked.order, number, ranked.delta, highest, free, levels, least)
    for j, row in enumerate(ranked.order):
        assert levels[j] == np.append(np.flatnonzero(is_free[row]), n_negatives)[0]
    for p, reach in enumerate(ranked.delta):
        costs = [is_free[ranked.order[j, :k]].sum() for j, k in enumerate(reach) if k != FORBIDDEN]
        assert least[p] == min(costs)


def test_tables_whose_ranks_leave_out_the_dear_levels(monkeypatch):
    monkeypatch.setattr(ranks, "_MUCH", 0)
    monkeypatch.setattr(branching, "_PLAIN_WORK", 0)
    monkeypatch.setattr(branching, "_EARLY_WORK", np.inf)
    monkeypatch.setattr(branching, "_CORE_BEHIND", (np.inf, np.inf))
    for seed in range(4):
        problem = random_problem(seed, 10, 40, 300, forbidden=0.1)
        result = solve(problem)
        assert result.statistics["core_bound"] == result.loss
        assert result.loss == solve(problem, method="algorithm1").loss
        assert verify(problem, result).is_valid


def test_a_limit_on_boxes_limits_the_core(monkeypatch):
    monkeypatch.setattr(branching, "_PLAIN_WORK", 0)
    monkeypatch.setattr(branching, "_EARLY_WORK", np.inf)
    monkeypatch.setattr(branching, "_DIVE_GAP", -1.0)
    monkeypatch.setattr(branching, "_CORE_AHEAD", (1e9, 1e9))
    monkeypatch.setattr(branching, "_CORE_BEHIND", (1e9, 1e9))
    monkeypatch.setattr(branching, "_CORE_BETWEEN_BOXES", 0.0)
    limited = solve(random_problem(3, 15, 80, 200), node_limit=2)
    assert limited.statistics["core_nodes"] == 0
    assert limited.status == "node_limit"
