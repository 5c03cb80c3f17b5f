"""One arithmetic: what is solved, recomputed and proven about weights of any size agrees to the last bit."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from eesvm import CalibrationProblem, load_certificate, save_certificate, verify
from eesvm.calibration.detector_costs import costs_as_negatives
from eesvm.calibration.proofs.certified_bound import certified_bound
from eesvm.calibration.quanta import rank_whole
from helpers.evidence import verified_solve as solve
from helpers.soak import Oracle, negative_weights, random_problem


def tangled(weights, seed=0, n_positives=8, n_exemplars=4, **options):
    random = np.random.default_rng(seed)
    positives = random.normal(0.4, 1, (n_positives, n_exemplars))
    return CalibrationProblem(
        positives, random.normal(size=(len(weights), n_exemplars)), negative_weights=weights, **options
    )


def test_the_order_of_windows_changes_no_bit_of_a_loss():
    random = np.random.default_rng(0)
    problem = tangled(np.exp(20 * random.normal(size=50)), detector_cost=random.random(4))
    thresholds = np.zeros(4)
    exact = sum(Fraction(w) for w in problem.negative_weights[problem.accepts(thresholds)])
    assert problem.loss(thresholds) == float(exact + sum(Fraction(c) for c in problem.detector_cost))
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(50)
        shuffled = CalibrationProblem(
            problem.positive_scores,
            problem.negative_scores[order],
            negative_weights=problem.negative_weights[order],
            detector_cost=problem.detector_cost,
        )
        assert shuffled.loss(thresholds) == problem.loss(thresholds)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("min_recall", [1.0, 0.6])
def test_weights_of_all_sizes_are_proven_optimal(seed, min_recall):
    random = np.random.default_rng(seed)
    problem = tangled(negative_weights(random, 12), seed)
    result = solve(problem, min_recall=min_recall, n_jobs=1)
    optimum = Oracle(problem).least_loss(min_recall)[0]
    assert optimum - Fraction(1e-9) * optimum <= Fraction(result.loss) <= optimum * (1 + Fraction(1e-9))
    assert Fraction(result.lower_bound) <= optimum
    if min_recall == 1 or not 0 < result.loss < 1e-250:
        assert result.status == "optimal"
        assert result.gap < 1e-9


def test_a_negative_that_must_never_be_accepted_does_not_blur_the_others():
    random = np.random.default_rng(3)
    counts = random.integers(1, 6, 30).astype(float)
    plain = solve(tangled(counts), n_jobs=1)
    rejected = ~tangled(counts).accepts(plain.thresholds)
    for heavy in (1e9, 1e20, 1e300):
        result = solve(tangled(np.where(rejected, heavy, counts)), n_jobs=1)
        assert (result.loss, result.lower_bound, result.status) == (plain.loss, plain.loss, "optimal")


def test_where_all_is_free_small_weights_stay_apart():
    # The first exemplar covers everything at no loss; 1 and 1e300 in one problem must not make 1 nothing.
    problem = CalibrationProblem(
        [[1.0, 0.0], [2.0, 3.0]], [[0.0, 2.0], [0.0, 1.0], [0.5, 0.5]], negative_weights=[1.0, 1.0, 1e300]
    )
    for method in ("exact", "algorithm1", "greedy"):
        assert solve(problem, method=method).loss == 0


def test_the_price_of_detectors_is_below_the_cap():
    """Found by the soak: one exemplar is in use in any case, at no loss, and prices are set by a loss of 3e116."""
    problem = random_problem(np.random.default_rng(237))
    result = solve(problem, min_recall=0.3, max_detectors=3, n_jobs=1)
    assert (result.loss, result.status) == (0, "optimal")


def test_weights_become_whole_quanta():
    weights = np.append(np.random.default_rng(0).random(20), [1e18, 1e-18])
    problem = tangled(weights, n_positives=3)
    ranked, whole = rank_whole(problem, 1.0)
    assert ranked.is_rounded
    assert ranked.cap < 1e3
    quanta = whole.negative_weights / ranked.quantum
    assert (quanta == np.floor(quanta)).all()
    assert quanta.sum() < 2**50
    below = problem.negative_weights <= ranked.cap
    lost = problem.negative_weights[below] - whole.negative_weights[below]
    assert (lost >= 0).all()
    assert (lost < ranked.quantum).all()
    counts, same = rank_whole(tangled([1.0, 2.0, 0.25, 0.0]), 1.0)
    assert not counts.is_rounded
    assert counts.cap == math.inf
    assert same.negative_weights.tolist() == [1.0, 2.0, 0.25, 0.0]


def test_a_bound_that_is_one_bit_too_high_is_refused():
    random = np.random.default_rng(1)
    problem = tangled(random.random(12))
    result = solve(problem, n_jobs=1)
    proven = verify(problem, result).lower_bound
    assert result.lower_bound <= proven < result.loss
    too_high = math.nextafter(proven, math.inf)
    assert verify(problem, replace(result, lower_bound=too_high)).problems == [
        f"the lower bound is given as {too_high:.17g}, but {proven:.17g} is proven"
    ]
    other = math.nextafter(result.loss, math.inf)
    assert verify(problem, replace(result, loss=other)).problems == [
        f"the loss is given as {other:.17g}, but the scores say {result.loss:.17g}"
    ]


def test_a_cap_lower_than_needed_proves_less_and_never_more():
    problem = tangled(np.random.default_rng(2).random(12) * 10)
    result = solve(problem, n_jobs=1)
    optimum = Oracle(problem).least_loss(1.0)[0]
    for cap in (1e-3, 0.1, 1.0, 3.0, 1e9, math.inf):
        changed = verify(problem, replace(result, certificate=replace(result.certificate, weight_cap=cap)))
        assert Fraction(changed.lower_bound) <= optimum
    for cap in (0.0, -1.0, math.nan, "much"):
        changed = replace(result, certificate=replace(result.certificate, weight_cap=cap))
        assert verify(problem, changed).problems[0] == (
            f"the certificate proves nothing: `weight_cap` must be a number > 0 or inf, got {cap!r}"
        )


def test_a_cap_is_kept_in_a_file_and_files_without_one_are_read(tmp_path):
    problem = tangled(np.append(np.random.default_rng(2).random(11), 1e15))
    certificate = solve(problem, n_jobs=1).certificate
    assert certificate.weight_cap < math.inf
    save_certificate(tmp_path / "now.npz", certificate)
    assert load_certificate(tmp_path / "now.npz").weight_cap == certificate.weight_cap
    with np.load(tmp_path / "now.npz") as stored:
        np.savez(tmp_path / "before.npz", **{name: stored[name] for name in stored if name != "weight_cap"})
    assert load_certificate(tmp_path / "before.npz").weight_cap == math.inf


def test_a_cost_and_its_price_are_never_rounded_up():
    random = np.random.default_rng(0)
    costs = np.exp(10 * random.normal(size=200))
    problem = CalibrationProblem(np.zeros((1, 200)), np.zeros((1, 200)), detector_cost=costs)
    for price in (1.0, 0.3, 1e-9, 1e9):
        sums = costs_as_negatives(problem, price).negative_weights[1:]
        for cost, total in zip(costs.tolist(), sums.tolist(), strict=True):
            exact = Fraction(cost) + Fraction(price)
            assert Fraction(total) <= exact < Fraction(math.nextafter(total, math.inf))


def trivial_certificate(problem, **fields):
    """One leaf, in which all negatives are for the first positive."""
    solved = solve(problem, n_jobs=1).certificate
    empty = {name: getattr(solved, name)[:0] for name in ("share_positive", "share_negative", "share_amount", "price")}
    one = {name: np.array([-1], dtype=np.int32) for name in ("split_exemplar", "open_child", "shut_child")}
    starts = {name: np.zeros(1, dtype=np.int64) for name in ("set_start", "row_start")}
    return replace(
        solved,
        cutoff=math.inf,
        ceiling=np.full(problem.n_exemplars, -np.inf),
        split_score=np.zeros(1),
        shares_of=np.array([-2], dtype=np.int32),
        **empty,
        **one,
        **starts,
        **fields,
    )


def test_a_price_that_is_no_whole_number_of_quanta_proves_no_whole_losses():
    problem = CalibrationProblem([[1.0, 0.0]], [[0.0, 2.0]], negative_weights=[4.0], detector_cost=[0.5, 0.5])
    certificate = trivial_certificate(problem, quantum=1.0, detector_price=0.5)
    assert certified_bound(problem, certificate, max_detectors=1) <= 0.5  # what the first exemplar alone costs


def test_a_coarse_certificate_of_whole_weights_has_no_tolerance():
    problem = CalibrationProblem([[1.0, 1.0]], [[2.0, 0.0], [0.0, 2.0]], negative_weights=[2e9, 2e9 + 1])
    good = solve(problem, n_jobs=1)
    assert good.loss == 2e9
    worse = np.array([np.inf, 0.5])
    certificate = trivial_certificate(problem, quantum=2.0)
    claim = replace(
        good,
        thresholds=worse,
        loss=problem.loss(worse),
        lower_bound=min(2e9, good.lower_bound),
        certificate=certificate,
    )
    found = verify(problem, claim)
    assert any("is given as optimal" in sentence for sentence in found.problems)
