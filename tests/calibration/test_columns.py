"""The search by columns, for few exemplars and a recall floor: against references, and its parts against slow ones."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eesvm import CalibrationProblem, InputError, verify
from eesvm.calibration import exact
from eesvm.calibration.ranks import rank
from eesvm.calibration.search import column_kernels as kernels
from eesvm.calibration.search.columns import Columns
from eesvm.calibration.search.heuristics import loss_of_levels
from eesvm.calibration.search.reduce import Box
from helpers import reference
from helpers.evidence import check_evidence, solve_or_none
from helpers.evidence import verified_solve as solve
from helpers.examples import few, many
from helpers.strategies import problems

FLOORS = (0.95, 0.9, 0.75, 0.6, 0.5, 0.3)

thorough = settings(max_examples=many(500), deadline=None, suppress_health_check=list(HealthCheck))
quick = settings(max_examples=many(200), deadline=None, suppress_health_check=list(HealthCheck))


def routes(seed, n_exemplars=5, n_positives=40, n_negatives=60, step=0.25, **options):
    """Positives that belong to one exemplar each, negatives to none; scores on a grid, so that there are ties."""
    random = np.random.default_rng(seed)
    positives = random.normal(size=(n_positives, n_exemplars))
    positives[np.arange(n_positives), random.integers(n_exemplars, size=n_positives)] += 1.5
    negatives = random.normal(size=(n_negatives, n_exemplars)) + random.normal(size=(n_negatives, 1)) / 2
    return CalibrationProblem(np.round(positives / step) * step, np.round(negatives / step) * step, **options)


def small_floor_problem(seed):
    """A problem that `reference.brute_force` can do, of every kind."""
    random = np.random.default_rng(seed)
    n_exemplars, n_positives, n_negatives = random.integers([1, 1, 1], [5, 12, 10])
    span = random.choice([1, 2, 4])
    scores = random.integers(-span, span + 1, (n_positives + n_negatives, n_exemplars)) / 2
    options = {}
    if random.random() < 0.4:
        options["positive_weights"] = random.choice([0.25, 0.5, 1, 3], n_positives)
    if random.random() < 0.4:
        options["negative_weights"] = random.choice([0, 0.25, 1, 2.5], n_negatives)
    if random.random() < 0.3:
        options["forbidden"] = random.random((n_positives, n_exemplars)) < 0.3
    if random.random() < 0.2:
        options["upper_thresholds"] = random.choice([np.inf, 0.5, 1.0], n_exemplars)
    return CalibrationProblem(scores[:n_positives], scores[n_positives:], **options), float(random.choice(FLOORS))


@pytest.fixture(params=[1, 7])
def steps(request, monkeypatch):
    """So few steps of ascent that boxes have to be cut and split."""
    monkeypatch.setattr("eesvm.calibration.search.column_search._STEPS", request.param)
    monkeypatch.setattr("eesvm.calibration.search.column_search._ROOT_CHUNKS", 1)
    return request.param


@thorough
@given(problems(max_positives=7, bounds=True), st.sampled_from(FLOORS))
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


def test_thousands_of_small_problems_equal_brute_force():
    for seed in range(many(2000)):
        problem, min_recall = small_floor_problem(seed)
        best = reference.brute_force(problem, min_recall)
        result = solve_or_none(problem, min_recall=min_recall)
        assert (result is None) == (best is None), seed
        if result is not None:
            assert result.lower_bound == result.loss == pytest.approx(best, abs=1e-9), seed
            assert verify(problem, result).problems == [], seed


def test_few_steps_need_splits_and_prove_the_same(steps):
    for seed in range(many(150)):
        problem, min_recall = small_floor_problem(seed)
        best = reference.brute_force(problem, min_recall)
        result = solve_or_none(problem, min_recall=min_recall)
        assert (result is None) == (best is None), seed
        if result is not None:
            assert result.lower_bound == result.loss == pytest.approx(best, abs=1e-9), seed
            assert verify(problem, result).problems == [], seed


@pytest.mark.parametrize("min_recall", [0.95, 0.8, 0.6])
@pytest.mark.parametrize("seed", few(range(4)))
def test_equals_the_integer_program(seed, min_recall):
    random = np.random.default_rng(100 + seed)
    options = {}
    if seed % 2:
        options["negative_weights"] = random.choice([0.5, 1, 2], 30)
        options["positive_weights"] = random.choice([1, 2, 5], 25)
    if seed % 3 == 0:
        options["forbidden"] = random.random((25, 4)) < 0.1
    problem = routes(seed, n_exemplars=4, n_positives=25, n_negatives=30, **options)
    result = solve(problem, min_recall=min_recall)
    assert result.status == "optimal"
    assert result.loss == pytest.approx(reference.mixed_integer_program(problem, min_recall), abs=1e-6)
    assert verify(problem, result).problems == []


@pytest.mark.parametrize("seed", few([1, 0, 2, 3]))
def test_both_exact_searches_agree(monkeypatch, seed):
    problem = routes(seed, n_exemplars=6, n_positives=60, n_negatives=80)
    by_columns = solve(problem, min_recall=0.9)
    assert by_columns.statistics["boxes"] > 0
    monkeypatch.setattr(exact, "MOST_EXEMPLARS", 0)
    by_shares = solve(problem, min_recall=0.9)
    assert "boxes" not in by_shares.statistics
    assert by_columns.loss == by_shares.loss == by_columns.lower_bound == by_shares.lower_bound


@pytest.mark.parametrize("weights", ["thirds", "tiny", "huge", "zero"])
def test_odd_weights(weights):
    random = np.random.default_rng(3)
    scale = {"thirds": 1 / 3, "tiny": 1e-280, "huge": 1e290, "zero": 0.0}[weights]
    problem = routes(
        1, n_positives=20, n_negatives=20, n_exemplars=3, negative_weights=scale * random.integers(1, 4, 20)
    )
    result = solve(problem, min_recall=0.8)
    best = reference.brute_force(problem, 0.8)
    assert result.status == "optimal"
    assert result.loss == pytest.approx(best, rel=1e-9, abs=0)
    assert result.lower_bound <= best
    assert verify(problem, result).problems == []


@pytest.mark.parametrize("seed", few([2, 0, 1, 3, 4]))
def test_the_order_of_rows_and_columns_and_monotone_scores_change_nothing(seed):
    random = np.random.default_rng(seed)
    problem = routes(seed)
    loss = solve(problem, min_recall=0.9).loss
    positives, negatives = problem.positive_scores, problem.negative_scores
    columns, rows, others = (random.permutation(n) for n in (5, 40, 60))
    changed = CalibrationProblem(positives[rows][:, columns], negatives[others][:, columns])
    rescaled = CalibrationProblem(np.exp(positives) * 3, np.exp(negatives) * 3)
    repeated = CalibrationProblem(np.hstack([positives, positives]), np.hstack([negatives, negatives]))
    twice = CalibrationProblem(np.repeat(positives, 2, axis=0), np.repeat(negatives, 2, axis=0))
    weighted = CalibrationProblem(positives, negatives, np.full(40, 2.0), np.full(60, 2.0))
    assert [solve(other, min_recall=0.9).loss for other in (changed, rescaled, repeated)] == [loss] * 3
    assert [solve(other, min_recall=0.9).loss for other in (twice, weighted)] == [2 * loss] * 2


def test_limits_are_kept_and_the_bound_holds():
    problem = routes(0, n_exemplars=6, n_positives=80, n_negatives=100, step=0.01)
    best = solve(problem, min_recall=0.9)
    assert best.status == "optimal"
    for limits, status in (
        ({"node_limit": 1}, "node_limit"),
        ({"time_limit": 0}, "time_limit"),
        ({"gap": 0.4}, "gap_reached"),
    ):
        result = solve(problem, min_recall=0.9, **limits)
        assert result.status == status
        assert result.lower_bound <= best.loss <= result.loss
        assert verify(problem, result).problems == []


def test_a_start_is_used_and_progress_is_reported():
    problem = routes(0, n_exemplars=6, n_positives=80, n_negatives=100, step=0.01)
    best, seen = solve(problem, min_recall=0.9), []
    again = solve(problem, min_recall=0.9, start=best.thresholds, progress=seen.append)
    assert again.history[0][1] == again.loss == best.loss
    assert [state.lower_bound for state in seen] == sorted(state.lower_bound for state in seen)


def test_the_number_of_threads_changes_nothing():
    problem = routes(2, n_exemplars=6, n_positives=80, n_negatives=100, step=0.01)
    one, two = (solve(problem, min_recall=0.9, n_jobs=n) for n in (1, 2))
    assert one.n_nodes == two.n_nodes
    np.testing.assert_array_equal(one.thresholds, two.thresholds)
    np.testing.assert_array_equal(one.certificate.share_amount, two.certificate.share_amount)


def test_damaged_certificates_prove_less_or_nothing():
    problem = routes(4, n_exemplars=6, n_positives=80, n_negatives=100)
    result = solve(problem, min_recall=0.9)
    certificate = result.certificate
    assert certificate.n_shares > 0
    assert result.loss > 0
    damages = {
        "shares twice": {"share_amount": certificate.share_amount * 2},
        "no shares": {"share_amount": certificate.share_amount * 0},
        "another price": {"price": certificate.price * 0},
        "a lower floor": {"min_recall": 0.5},
        "a leaf without shares": {"shares_of": np.minimum(certificate.shares_of, -1)},
    }
    for name, damage in damages.items():
        checked = verify(problem, replace(result, certificate=replace(certificate, **damage)))
        assert not checked.is_valid, name
        assert checked.lower_bound <= result.loss, name


def random_box(random, ranked):
    ends = np.sort(random.integers(0, ranked.order.shape[1] + 1, (2, ranked.n_exemplars)), axis=0).astype(np.int32)
    return Box(ends[0], ends[1])


def best_in_box(ranked, box):
    """The least loss of levels within a box by trying all of them, inf where none covers enough."""
    choices = [
        sorted({int(low), *(int(d) for d in ranked.delta[:, j] if low < d <= high)})
        for j, (low, high) in enumerate(zip(box.lowest, box.highest, strict=True))
    ]
    best = np.inf
    for levels in np.stack(np.meshgrid(*choices), axis=-1).reshape(-1, len(choices)):
        is_missed = ~(ranked.delta[ranked.coverable] <= levels).any(axis=1)
        if ranked.positive_weights[ranked.coverable][is_missed].sum() <= ranked.left_out_budget:
            best = min(best, loss_of_levels(ranked, levels.astype(np.int32)))
    return best


def paid(ranked, box):
    return loss_of_levels(ranked, box.lowest)


@quick
@given(problems(max_exemplars=3, max_positives=6, max_negatives=8), st.sampled_from(FLOORS), st.integers(0, 2**32))
def test_any_multipliers_prove_a_bound(problem, min_recall, seed):
    """Whatever values and shares are, what they are worth in quanta is no more than the best of their box costs."""
    try:
        ranked = rank(problem, min_recall)
    except InputError:
        return
    random, quantum = np.random.default_rng(seed), ranked.quantum
    columns, box = Columns(ranked, quantum), random_box(random, ranked)
    position = columns.begin(box)
    position.values[:] = random.exponential(size=len(position.values))
    position.shares[:] *= random.exponential(size=len(position.shares))
    best = best_in_box(ranked, box)
    for is_improved in (False, True):
        if is_improved and columns.spare(position.play) >= 0:
            columns.ascend(position, 1e3, 50, 10)
        value, _ = columns.proved(position.multipliers(is_precise=False), 100.0)
        assert paid(ranked, box) + value <= best + 1e-9
        inner = Box(
            *np.sort(random.integers(box.lowest, box.highest + 1, (2, ranked.n_exemplars)), axis=0).astype(np.int32)
        )
        inside = columns.begin_from(inner, position.multipliers(is_precise=True))
        value, _ = columns.proved(inside.multipliers(is_precise=True), 100.0)
        assert paid(ranked, inner) + value <= best_in_box(ranked, inner) + 1e-9


@quick
@given(problems(max_positives=6, max_negatives=8), st.sampled_from(FLOORS), st.integers(0, 2**32))
def test_every_exemplar_pays_every_value_and_nobody_pays_twice(problem, min_recall, seed):
    try:
        ranked = rank(problem, min_recall)
    except InputError:
        return
    random, columns = np.random.default_rng(seed), Columns(ranked, ranked.quantum)
    position = columns.begin(random_box(random, ranked))
    position.values[:] = random.exponential(size=len(position.values))
    play = position.play
    values, shares = kernels.in_quanta(play, columns.price_quanta, position.values, position.shares, columns.scale)
    positive, negative, amount = kernels.match(play, values, shares)
    assert (np.bincount(negative, amount, len(play.negatives)) <= columns.price_quanta[play.negatives]).all()
    is_alive = columns.delta[play.positives] <= position.box.highest
    for i, p in enumerate(play.positives):
        mine = negative[positive == i]
        assert amount[positive == i].sum() == values[i] * is_alive[i].sum()
        for j in np.flatnonzero(is_alive[i]):
            accepted = play.negatives[mine]
            within = np.isin(accepted, columns.order[j, : columns.delta[p, j]])
            assert amount[positive == i][within].sum() >= values[i]
