"""The most recall within a budget, few detectors, and what they cost: against brute force and an integer program."""

import itertools
import json
import math
import os
import re
import signal
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

import eesvm.calibration.floor_with_few as floor_module
import eesvm.calibration.recall as recall_module
from eesvm import (
    CalibrationProblem,
    InputError,
    JointCalibrator,
    load_calibration,
    load_certificate,
    recall_frontier,
    save_calibration,
    save_certificate,
    verify,
)
from eesvm.calibration.anytime import Run
from eesvm.calibration.detector_costs import costs_as_negatives
from eesvm.calibration.goal import Allowance, RecallGoal
from eesvm.calibration.proofs.certified_recall import certified_recall
from eesvm.calibration.tables.examples import synthetic_score_table
from eesvm.calibration.tables.score_table import write_score_table
from eesvm.cli import main
from helpers import reference, soak
from helpers.evidence import verified_solve as solve
from helpers.examples import ALL, few, many

BUDGETS = (0.0, 0.25, 1.0, 1.5, 2.0, 3.0, 5.0)
PRECISIONS = (1.0, 0.9, 0.75, 0.6, 0.5, 0.3, 0.1)
FLOORS = (1.0, 0.9, 0.6, 0.3)


def small_problem(random, costs=False, max_exemplars=4):
    """A problem with ties, missing scores, weights, forbidden pairs and bounds, each of them now and then."""
    n_exemplars, n_positives = random.integers(1, max_exemplars + 1), random.integers(1, 6)
    n_negatives, span = random.integers(1, 7), random.choice([1, 3, 8])
    scores = random.integers(-span, span + 1, (n_positives + n_negatives, n_exemplars)) / 2
    scores[random.random(scores.shape) < random.choice([0, 0.2, 0.5])] = np.nan
    if n_exemplars > 1 and random.random() < 0.2:
        scores[:, -1] = scores[:, 0]
    options = {"missing": "not-fired"}
    if random.random() < 0.3:
        options["forbidden"] = random.random((n_positives, n_exemplars)) < 0.3
    if random.random() < 0.5:
        options["positive_weights"] = random.integers(1, 9, n_positives) / 4
        options["negative_weights"] = random.integers(0, 9, n_negatives) / 4
    if random.random() < 0.2:
        options["lower_thresholds"] = random.choice([-np.inf, -0.5, 0.25], n_exemplars)
    if random.random() < 0.2:
        options["upper_thresholds"] = random.choice([np.inf, np.inf, 0.5, 1.5], n_exemplars)
    if costs:
        options["detector_cost"] = (
            float(random.choice([0.25, 1, 2])) if random.random() < 0.5 else random.integers(0, 5, n_exemplars) / 4
        )
    return CalibrationProblem(scores[:n_positives], scores[n_positives:], **options)


def best(problem, min_recall=None, max_loss=None, min_precision=None, max_detectors=None):
    """The least loss at a floor, or the most weight that can be covered; None where nothing is feasible."""
    found = None
    for wins, false, in_use in thresholds_by_effect(problem):
        if max_detectors is not None and sum(in_use) > max_detectors:
            continue
        gained = sum(problem.positive_weights[p] for p in wins)
        paid = sum(problem.negative_weights[n] for n in false)
        paid += sum(cost for cost, is_on in zip(problem.detector_cost, in_use, strict=True) if is_on)
        if min_recall is not None:
            left_out = problem.positive_weights.sum() - gained
            if left_out <= reference.left_out_allowance(problem, min_recall):
                found = paid if found is None else min(found, paid)
            continue
        if max_loss is not None:
            is_allowed = paid <= max_loss * (1 + 1e-12)
        else:
            is_allowed = paid * min_precision <= gained * (1 - min_precision) + 1e-11
        if is_allowed:
            found = gained if found is None else max(found, gained)
    return found


def thresholds_by_effect(problem):
    """(positives covered, negatives accepted, who is in use) of all thresholds that the bounds allow."""
    choices = []
    for j in range(problem.n_exemplars):
        lower, upper = problem.lower_thresholds[j], problem.upper_thresholds[j]
        positives, negatives = problem.positive_scores[:, j], problem.negative_scores[:, j]
        options = set()
        for t in (-np.inf, np.inf, lower, upper, *positives, *negatives):
            if lower <= t <= upper:
                wins = reference.accepted_by(positives, t)
                if problem.forbidden is not None:
                    wins = frozenset(p for p in wins if not problem.forbidden[p, j])
                options.add((wins, reference.accepted_by(negatives, t), bool(t < np.inf)))
        choices.append(options)
    for combination in itertools.product(*choices):
        sides = (frozenset().union(*(option[k] for option in combination)) for k in (0, 1))
        yield *sides, [option[2] for option in combination]


def question(random, costs):
    kind = random.integers(2 if costs else 3)
    if kind == 0:
        return {"min_recall": float(random.choice(FLOORS))}
    return (
        {"max_loss": float(random.choice(BUDGETS))}
        if kind == 1
        else {"min_precision": float(random.choice(PRECISIONS))}
    )


def check(problem, options, expected):
    """Solve, and compare with what is expected; returns whether there was a solution."""
    is_floor = "min_recall" in options
    if expected is None or (not is_floor and expected == 0):
        with pytest.raises(InputError):
            solve(problem, n_jobs=1, **options)
        return False
    result = solve(problem, n_jobs=1, **options)
    assert result.status == "optimal"
    if is_floor:
        assert result.loss == result.lower_bound == expected
        assert problem.is_feasible(result.thresholds, options["min_recall"])
    else:
        share = expected / problem.positive_weights.sum()
        assert result.recall == pytest.approx(share, abs=1e-12)
        assert result.recall_bound == pytest.approx(share, abs=1e-12)
        assert result.recall <= result.recall_bound
        assert result.goal.permits(problem, result.thresholds)
    assert problem.is_within_bounds(result.thresholds)
    assert (result.thresholds < np.inf).sum() <= options.get("max_detectors", problem.n_exemplars)
    verification = verify(problem, result)
    assert verification.is_valid, verification.problems
    return True


@pytest.mark.parametrize("seed", range(3))
def test_budgets_and_precisions_equal_brute_force(seed):
    random = np.random.default_rng(seed)
    solved = 0
    for _ in range(many(300)):
        problem = small_problem(random)
        options = question(random, False)
        solved += check(problem, options, best(problem, **options))
    assert solved > many(300) * 80 // 300


@pytest.mark.parametrize("seed", range(2))
def test_costs_equal_brute_force(seed):
    random = np.random.default_rng(100 + seed)
    solved = 0
    for _ in range(many(250)):
        problem = small_problem(random, costs=True)
        options = question(random, True)
        solved += check(problem, options, best(problem, **options))
    assert solved > many(250) * 80 // 250


@pytest.mark.parametrize("seed", range(3))
def test_few_detectors_equal_brute_force(seed):
    random = np.random.default_rng(200 + seed)
    solved = 0
    for _ in range(many(130)):
        costs = bool(random.random() < 0.3)
        problem = small_problem(random, costs)
        options = question(random, costs) | {"max_detectors": int(random.integers(1, problem.n_exemplars + 1))}
        n_always = int((problem.upper_thresholds < np.inf).sum())
        if options["max_detectors"] < n_always:
            with pytest.raises(InputError, match=r"^`max_detectors` must be >= "):
                solve(problem, **options)
            continue
        solved += check(problem, options, best(problem, **options))
    assert solved > many(130) * 30 // 130


def test_floors_of_many_detectors_equal_brute_force(monkeypatch):
    """The way that more than 32 detectors take."""
    monkeypatch.setattr(recall_module, "MOST_EXEMPLARS", 0)
    random = np.random.default_rng(300)
    solved = 0
    for _ in range(many(300)):
        costs = bool(random.random() < 0.3)
        problem = small_problem(random, costs)
        options = question(random, costs)
        expected = best(problem, **options)
        if "min_precision" not in options:
            solved += check(problem, options, expected)
            continue
        try:  # what floors prove about a precision may be loose
            result = solve(problem, n_jobs=1, **options)
        except InputError:
            assert not expected
            continue
        share = (expected or 0.0) / problem.positive_weights.sum()
        assert result.recall - 1e-12 <= share <= result.recall_bound + 1e-12
        assert verify(problem, result).is_valid
        solved += result.status == "optimal"
    assert solved > many(300) // 3


# A second opinion on larger problems


def medium_problem(seed, n_exemplars=6, n_positives=30, n_negatives=50, **options):
    random = np.random.default_rng(seed)
    positives = random.normal(size=(n_positives, n_exemplars))
    positives[np.arange(n_positives), random.integers(0, n_exemplars, n_positives)] += random.normal(
        1.5, 1, n_positives
    )
    scores = np.vstack([positives, random.normal(size=(n_negatives, n_exemplars))]).round(1)
    scores[random.random(scores.shape) < 0.2] = np.nan
    return CalibrationProblem(scores[:n_positives], scores[n_positives:], missing="not-fired", **options)


def integer_program(problem, min_recall=None, max_loss=None, min_precision=None, max_detectors=None):
    """The same as `best` by HiGHS: x[j, k] j's level, y[n] accepted, z[p] left out."""
    levels = [
        (j, value)
        for j in range(problem.n_exemplars)
        for value in sorted(set(problem.positive_scores[:, j].tolist()))
        if value > -np.inf
    ]
    n_x, n_n, n_p = len(levels), problem.n_negatives, problem.n_positives
    rows, low, high = [], [], []

    def add(entries, least, most):
        row = np.zeros(n_x + n_n + n_p)
        for column, value in entries:
            row[column] += value
        rows.append(row), low.append(least), high.append(most)

    for j in range(problem.n_exemplars):
        add([(k, 1) for k, (owner, _) in enumerate(levels) if owner == j], 0, 1)
    for k, (j, value) in enumerate(levels):
        for n in np.flatnonzero(problem.negative_scores[:, j] >= value):
            add([(n_x + n, 1), (k, -1)], 0, np.inf)
    for p in range(n_p):
        wins = [(k, 1) for k, (j, value) in enumerate(levels) if problem.positive_scores[p, j] >= value]
        add([*wins, (n_x + n_n + p, 1)], 1, np.inf)
    if max_detectors is not None:
        add([(k, 1) for k in range(n_x)], 0, max_detectors)
    loss = [(k, problem.detector_cost[j]) for k, (j, _) in enumerate(levels)]
    loss += [(n_x + n, w) for n, w in enumerate(problem.negative_weights)]
    missed = [(n_x + n_n + p, w) for p, w in enumerate(problem.positive_weights)]
    total = problem.positive_weights.sum()
    if min_recall is not None:
        add(missed, 0, reference.left_out_allowance(problem, min_recall))
    elif max_loss is not None:
        add(loss, 0, max_loss)
    else:  # q loss <= (1 - q) (total - missed)
        entries = [(k, min_precision * w) for k, w in loss] + [(k, (1 - min_precision) * w) for k, w in missed]
        add(entries, -np.inf, (1 - min_precision) * total + 1e-9)
    objective = np.zeros(n_x + n_n + n_p)
    for column, weight in loss if min_recall is not None else missed:
        objective[column] += weight
    outcome = milp(
        objective,
        constraints=LinearConstraint(np.array(rows), low, high),
        integrality=np.ones(len(objective)),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0},
    )
    if outcome.status == 2:
        return None
    return outcome.fun if min_recall is not None else total - outcome.fun


@pytest.mark.parametrize("seed", few(range(4)))
@pytest.mark.parametrize(
    ("problem_options", "options"),
    [
        ({}, {"max_loss": 5}),
        ({}, {"min_precision": 0.8}),
        ({"detector_cost": 2.0}, {"max_loss": 8}),
        ({"detector_cost": 3.0}, {"min_recall": 0.7}),
        ({}, {"max_loss": 6, "max_detectors": 2}),
        ({}, {"min_precision": 0.7, "max_detectors": 3}),
        ({}, {"min_recall": 0.5, "max_detectors": 3}),
    ],
    ids=str,
)
def test_equals_the_integer_program(seed, problem_options, options):
    problem = medium_problem(seed, **problem_options)
    expected = integer_program(problem, **options)
    assert check(problem, options, None if expected is None else round(expected, 6))


@pytest.mark.long
def test_small_problems_equal_the_integer_program():
    """Missing scores, weights, ties, costs and limits, by a solver that knows nothing of ours."""
    random = np.random.default_rng(400)
    solved = 0
    for _ in range(many(2000)):
        costs = bool(random.random() < 0.3)
        drawn = small_problem(random, costs, max_exemplars=6)
        problem = CalibrationProblem(
            drawn.positive_scores,
            drawn.negative_scores,
            drawn.positive_weights,
            drawn.negative_weights,
            missing="not-fired",
            detector_cost=drawn.detector_cost,
        )
        options = question(random, costs)
        if random.random() < 0.3:
            options["max_detectors"] = int(random.integers(1, problem.n_exemplars + 1))
        expected = integer_program(problem, **options)
        solved += check(problem, options, None if expected is None else round(expected, 6))
    assert solved > many(2000) // 3


# What changes nothing


@pytest.mark.parametrize(
    "options", [{"max_loss": 6}, {"min_precision": 0.8}, {"max_loss": 6, "max_detectors": 3}], ids=str
)
def test_order_scale_and_copies_change_nothing(options):
    problem = medium_problem(5)
    P, N = problem.positive_scores, problem.negative_scores
    random = np.random.default_rng(0)
    recall = solve(problem, n_jobs=1, **options).recall

    def again(P, N, options=options, **more):
        return solve(CalibrationProblem(P, N, missing="not-fired", **more), n_jobs=1, **options).recall

    columns = random.permutation(P.shape[1])
    assert again(P[random.permutation(len(P))][:, columns], N[random.permutation(len(N))][:, columns]) == recall
    assert again(np.exp(P) + 3 * P, np.exp(N) + 3 * N) == recall  # -inf stays -inf
    assert again(np.hstack([P, P[:, :1]]), np.hstack([N, N[:, :1]])) == recall  # a copy of a detector
    twice = options | ({"max_loss": 2 * options["max_loss"]} if "max_loss" in options else {})
    assert again(np.vstack([P, P]), np.vstack([N, N]), twice) == recall  # every case twice
    assert again(P, N, positive_weights=np.full(len(P), 0.3), negative_weights=np.full(len(N), 0.3), options=options | (
        {"max_loss": 0.3 * options["max_loss"]} if "max_loss" in options else {})) == pytest.approx(recall)  # fmt: skip


def test_budget_and_floor_are_two_sides_of_one_frontier():
    for seed in few(range(4)):
        problem = medium_problem(seed)
        for floor in (0.9, 0.7, 0.5):
            loss = solve(problem, min_recall=floor, n_jobs=1).loss
            within = solve(problem, max_loss=loss, n_jobs=1)
            assert within.recall >= floor - 1e-12
            if loss >= 1:
                below = solve(problem, max_loss=loss - 1, n_jobs=1)
                assert below.recall_bound < floor


@pytest.mark.parametrize("weights", ["thirds", "tiny", "huge", "mixed"])
def test_odd_weights(weights):
    random = np.random.default_rng(7)
    for _ in range(many(60)):
        problem = small_problem(random)
        n = problem.n_negatives
        factor = {"thirds": 1 / 3, "tiny": 1e-200, "huge": 1e200, "mixed": 1.0}[weights]
        prices = random.integers(0, 5, n) * factor * (random.choice([1e-9, 1.0, 1e9], n) if weights == "mixed" else 1.0)
        shares = random.random(problem.n_positives) + 0.1
        odd = CalibrationProblem(
            problem.positive_scores, problem.negative_scores, shares, prices, problem.forbidden, missing="not-fired"
        )
        options = {"max_loss": float(2 * factor)}
        expected = best(odd, **options)
        if not expected:
            continue
        result = solve(odd, n_jobs=1, **options)
        assert result.recall == pytest.approx(expected / shares.sum(), rel=1e-9)
        assert result.recall_bound >= result.recall
        assert (result.status == "optimal") == (result.recall_bound == pytest.approx(result.recall, rel=1e-9))
        assert result.status == "optimal" or weights == "mixed"
        assert verify(odd, result).is_valid


def test_odd_weights_with_few_detectors():
    random = np.random.default_rng(5)
    solved = 0
    for _ in range(many(100)):
        problem = small_problem(random)
        odd = CalibrationProblem(
            problem.positive_scores,
            problem.negative_scores,
            random.random(problem.n_positives) + 0.1,
            random.integers(0, 5, problem.n_negatives) / 3,
            missing="not-fired",
            detector_cost=random.random(problem.n_exemplars) if random.random() < 0.4 else None,
        )
        options = question(random, True) | {"max_detectors": int(random.integers(1, problem.n_exemplars + 1))}
        expected = best(odd, **options)
        if not expected:
            continue
        result = solve(odd, n_jobs=1, **options)
        if "min_recall" in options:
            assert result.loss == pytest.approx(expected)
            assert result.lower_bound == pytest.approx(expected)
        else:
            assert result.recall == pytest.approx(expected / odd.positive_weights.sum())
            assert result.recall_bound == pytest.approx(result.recall)
        assert verify(odd, result).is_valid
        solved += 1
    assert solved > many(100) * 30 // 100


def test_weights_with_more_digits_than_there_are_quanta():
    """Their sums are exact in float64, but not in the quanta of a search: claims have a tolerance."""
    random = np.random.default_rng(0)
    for _ in range(many(100)):
        weights = [random.random() / 2 + 0.5, 0.25, 0.125]
        scores = random.integers(0, 4, (7, 2)) * 1.0
        problem = CalibrationProblem(scores[:4], scores[4:], negative_weights=weights)
        result = solve(problem, n_jobs=1, min_recall=float(random.choice([1, 0.5, 0.3])))
        assert verify(problem, result).is_valid


def test_sums_that_are_rounded_are_within_the_budget():
    problem = CalibrationProblem([[1.0], [3.0]], [[2.0], [2.0], [0.0]], negative_weights=[0.1, 0.2, 1.0])
    assert solve(problem, max_loss=0.3).recall == 1.0  # 0.1 + 0.2 is a little more
    nine = CalibrationProblem(np.arange(1, 10.0)[:, None], [[1.5], [0.0]])
    assert solve(nine, min_precision=0.9).recall == 1.0  # 9 of 10


# Limits, bounds and certificates


@pytest.mark.long
def test_limits_are_kept_and_the_bound_holds():
    problem = medium_problem(11, *((7, 40, 60) if ALL else (6, 30, 40)))
    for options in few([{"max_loss": 15}, {"min_precision": 0.8}, {"max_loss": 15, "max_detectors": 4}], 2):
        true = integer_program(problem, **options) / problem.n_positives
        for limits in ({"node_limit": 1}, {"time_limit": 0.0}, {"node_limit": 5}, {"gap": 0.5}):
            result = solve(problem, n_jobs=1, **options, **limits)
            assert result.recall - 1e-9 <= true <= result.recall_bound + 1e-9
            assert result.goal.permits(problem, result.thresholds)
            assert verify(problem, result).is_valid
    floor = solve(problem, min_recall=0.8, max_detectors=4, node_limit=3, n_jobs=1)
    assert floor.lower_bound <= integer_program(problem, min_recall=0.8, max_detectors=4) + 1e-6 <= floor.loss + 1e-5
    assert verify(problem, floor).is_valid


def test_a_start_progress_and_threads():
    problem = medium_problem(3)
    states = []
    result = solve(problem, max_loss=5, progress=states.append, n_jobs=1)
    assert {state.what for state in states} == {"left out"}
    assert states[-1].loss == pytest.approx(1 - result.recall)
    again = solve(problem, max_loss=5, start=result.thresholds, n_jobs=2)
    assert again.recall == result.recall
    assert all(before[1] >= after[1] for before, after in itertools.pairwise(result.history))


def test_claims_that_do_not_hold():
    problem = medium_problem(4)
    result = solve(problem, max_loss=5, n_jobs=1)
    more = min(1.0, result.recall + 0.1)
    too_little = verify(problem, replace(result, recall_bound=result.recall - 0.1))
    assert too_little.problems[0].startswith("the bound on the recall is given as 0.5")
    assert too_little.problems[0].endswith(f"{too_little.recall_bound:.17g} is proven")
    assert too_little.recall_bound == pytest.approx(result.recall, abs=1e-12)
    assert verify(problem, replace(result, recall=more)).problems[0].startswith("the recall is given as ")
    assert verify(problem, replace(result, loss=result.loss + 1)).problems[0].startswith("the loss is given as ")
    assert verify(problem, replace(result, max_loss=result.loss - 1)).problems[0] == (
        f"the loss is {result.loss:g}, which is not a loss of {result.loss - 1:g} at most"
    )
    without = verify(problem, replace(result, certificate=None))
    assert without.problems[0].endswith("but there is no certificate to prove it")
    assert verify(problem, replace(result, max_loss=-1.0)).problems == ["`max_loss` must be >= 0, got -1.0"]
    few = solve(problem, max_loss=5, max_detectors=2, n_jobs=1)
    assert verify(problem, replace(few, max_detectors=1)).problems[0] == "2 detectors are in use, more than 1"
    assert "it sets a price on detectors in use, but their number is not limited" in str(
        verify(problem, replace(few, max_detectors=None)).problems
    )


def test_a_certificate_of_another_question_never_proves_too_much():
    """Trees, shares and prices are about the scores: whatever they were made for, their bounds hold for all goals."""
    random = np.random.default_rng(9)
    for _ in range(many(60)):
        problem = small_problem(random)
        made = []
        for options in (
            {"max_loss": 1.0},
            {"min_precision": 0.6},
            {"min_recall": 0.6},
            {"max_loss": 2.0, "max_detectors": 1},
        ):
            try:
                made.append(solve(problem, n_jobs=1, **options))
            except InputError:
                continue
        for options in ({"max_loss": 0.0}, {"max_loss": 3.0}, {"min_precision": 0.75}, {"min_precision": 0.3}):
            true = (best(problem, **options) or 0.0) / problem.positive_weights.sum()
            one = (best(problem, max_detectors=1, **options) or 0.0) / problem.positive_weights.sum()
            for result in made:
                if result.certificate.detector_price == 0:
                    assert certified_recall(problem, result.certificate, RecallGoal(**options)) >= true - 1e-12
                assert certified_recall(problem, result.certificate, RecallGoal(**options), 1) >= one - 1e-12


def test_tampering_never_proves_more_than_the_optimum():
    random = np.random.default_rng(10)
    for _ in range(many(150)):
        problem = small_problem(random)
        options = question(random, True) | {"max_detectors": int(random.integers(1, problem.n_exemplars + 1))}
        try:
            result = solve(problem, n_jobs=1, **options)
        except InputError:
            continue
        certificate = result.certificate
        changes = {
            "price": certificate.price * random.choice([0.0, 0.5, 2.0, 100.0]),
            "detector_price": certificate.detector_price * random.choice([0.0, 0.5, 1.0, 3.0]),
            "share_amount": (certificate.share_amount * random.choice([0.0, 0.5, 1.0])).astype(np.int64),
        }
        for name, value in changes.items():
            damaged = replace(certificate, **{name: value})
            verification = verify(problem, replace(result, certificate=damaged))
            if "min_recall" in options:
                assert verification.lower_bound <= result.loss
            elif verification.recall_bound < 1:
                assert verification.recall_bound >= result.recall - 1e-12


def test_least_left_out():
    budget = Allowance(Fraction(10), Fraction(0), 100)
    assert budget.least_left_out(30, Fraction(2), 3) == 10  # 30 - 2 x <= 10
    assert budget.least_left_out(30, Fraction(2), 30) == 30
    assert budget.least_left_out(5, Fraction(0), 7) == 7
    assert budget.least_left_out(11, Fraction(0), 7) == math.inf
    assert budget.least_left_out(1000, Fraction(1), 7) == math.inf
    share = Allowance(Fraction(0), Fraction(1), 100)  # may pay what it covers
    assert share.least_left_out(120, Fraction(3), 0) == 10  # 120 - 3 x <= 100 - x
    assert share.least_left_out(120, Fraction(1), 0) == math.inf
    assert share.least_left_out(90, Fraction(0), 5) == 5
    assert share.least_left_out(90, Fraction(0), 20) == math.inf  # 90 <= 100 - x does not hold from 20 on


def test_costs_are_negatives_of_their_own():
    problem = CalibrationProblem([[1.0, 2.0]], [[0.0, 3.0]], detector_cost=[2.0, 0.0])
    extended = costs_as_negatives(problem)
    assert extended.negative_scores.tolist() == [[0.0, 3.0], [np.inf, -np.inf]]
    assert extended.negative_weights.tolist() == [1.0, 2.0]
    for thresholds in ([0.5, np.inf], [np.inf, 1.0], [-np.inf, -np.inf], [np.inf, np.inf]):
        assert extended.loss(thresholds) == problem.loss(thresholds)
    assert costs_as_negatives(CalibrationProblem([[1.0]], [[0.0]])).negative_scores.shape == (1, 1)
    assert solve(problem).thresholds.tolist() == [np.inf, 1.5]  # the false alarm is cheaper than the other's cost
    with_methods = {solve(problem, method=m).loss for m in ("exact", "algorithm1", "exhaustive")}
    assert with_methods == {1.0}
    assert recall_frontier(problem, [1.0]).losses.tolist() == [1.0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_loss": -1}, "`max_loss` must be >= 0, got -1"),
        ({"max_loss": math.nan}, "`max_loss` must be finite, got nan"),
        ({"max_loss": "3"}, "`max_loss` must be a number, got '3'"),
        ({"min_precision": 0}, "`min_precision` must be > 0, got 0"),
        ({"min_precision": 1.1}, "`min_precision` must be <= 1, got 1.1"),
        ({"max_loss": 1, "min_precision": 0.5}, "`max_loss` and `min_precision` exclude each other: give one of them"),
        ({"max_loss": 1, "min_recall": 0.5},
         "`min_recall` and `max_loss` exclude each other: what is asked for is the most recall"),
        ({"max_loss": 1, "method": "greedy"}, "`max_loss` needs method='exact', got 'greedy'"),
        ({"max_detectors": 2, "method": "algorithm1"}, "`max_detectors` needs method='exact', got 'algorithm1'"),
        ({"max_detectors": 0}, "`max_detectors` must be >= 1, got 0"),
        ({"max_detectors": 1.5}, "`max_detectors` must be an integer, got 1.5"),
        ({"max_detectors": 7}, "`max_detectors` must be <= 2, the number of detectors, got 7"),
        ({"max_loss": 0.0}, "no thresholds accept a positive at a loss of 0 at most: the cheapest positive needs 1"),
        ({"min_precision": 0.9},
         "no thresholds accept a positive at a precision of 0.9 at least: single detectors reach 0.6667"),
        ({"max_detectors": 1},
         "no single detector reaches a recall of 1: the most is 0.666666; raise `max_detectors` or lower `min_recall`"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(options, sentence):
    problem = CalibrationProblem([[1.0, np.nan], [1.0, np.nan], [np.nan, 1.0]], [[2.0, 3.0]], missing="not-fired")
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        solve(problem, **options)


def test_more_bad_input():
    with pytest.raises(InputError, match=r"^`detector_cost` must be >= 0, got -1 at index 1$"):
        CalibrationProblem([[1.0, 2.0]], [[0.0, 0.0]], detector_cost=[0, -1])
    with pytest.raises(InputError, match=r"^`detector_cost` must be >= 0, got -1$"):
        CalibrationProblem([[1.0, 2.0]], [[0.0, 0.0]], detector_cost=-1)
    with pytest.raises(InputError, match=r"^`detector_cost` must have shape \(2,\), got \(3,\)$"):
        CalibrationProblem([[1.0, 2.0]], [[0.0, 0.0]], detector_cost=[1, 1, 1])
    forced = CalibrationProblem([[1.0]], [[2.0]], upper_thresholds=[0.0])
    with pytest.raises(
        InputError, match=r"^`max_loss` must be >= 1, the loss that `upper_thresholds` cause in any case, got 0$"
    ):
        solve(forced, max_loss=0)
    costly = CalibrationProblem([[1.0]], [[0.0]], detector_cost=1)
    with pytest.raises(InputError, match=r"^`min_precision` and `detector_cost` exclude each other: "):
        solve(costly, min_precision=0.5)
    with pytest.raises(InputError, match=r"^one of `max_loss` and `min_precision` must be given, not both$"):
        RecallGoal()
    known = solve(CalibrationProblem([[1.0]], [[0.0]]), max_loss=0)
    with pytest.raises(InputError, match=r"^`known\[0\]` was made for a loss of 0 at most, not for a recall floor$"):
        recall_frontier(CalibrationProblem([[1.0]], [[0.0]]), known=[known])


# Files, estimators, the command


def table():
    return synthetic_score_table(6, 60, 400, "overlapping", random_state=1)


@pytest.mark.parametrize(
    "options",
    [{"max_loss": 10}, {"min_precision": 0.9}, {"min_recall": 0.5, "max_detectors": 3}, {"detector_cost": 2.0}, {}],
    ids=str,
)
def test_estimators_and_files(tmp_path, options):
    example = table()
    calibrator = JointCalibrator(n_jobs=1, **options).fit(example.scores, example.labels)
    save_calibration(tmp_path / "c.json", calibrator)
    loaded = load_calibration(tmp_path / "c.json")
    np.testing.assert_array_equal(loaded.thresholds_, calibrator.thresholds_)
    assert loaded.detector_cost_.tolist() == calibrator.detector_cost_.tolist()
    for name in ("max_loss", "min_precision", "max_detectors", "recall_bound", "recall", "loss", "status"):
        assert getattr(loaded.result_, name) == getattr(calibrator.result_, name)
    save_certificate(tmp_path / "c.npz", calibrator.result_.certificate)
    result = replace(loaded.result_, certificate=load_certificate(tmp_path / "c.npz"))
    problem = example.problem(detector_cost=options.get("detector_cost"))
    assert verify(problem, result).is_valid
    content = json.loads((tmp_path / "c.json").read_text())
    assert ("goal" in content) == bool(set(options) & {"max_loss", "min_precision", "max_detectors"})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"goal": {"max_loss": 1}}, "`goal` must hold max_loss, min_precision, max_detectors"),
        ({"goal": {"max_loss": "a", "min_precision": None, "max_detectors": None}}, "`goal.max_loss` must be a number or null, got 'a'"),
        ({"goal": {"max_loss": 1, "min_precision": None, "max_detectors": 1.5}}, "`goal.max_detectors` must be a whole number or null, got 1.5"),
        ({"goal": {"max_loss": 1, "min_precision": 1, "max_detectors": None}}, "`parameters` cannot be used: `max_loss` and `min_precision` exclude each other: give one of them"),
        ({"detector_cost": [1]}, "`detector_cost` must be a list of 6 numbers >= 0"),
    ],
)  # fmt: skip
def test_files_that_are_refused(tmp_path, change, sentence):
    example = table()
    save_calibration(tmp_path / "c.json", JointCalibrator(max_loss=10, n_jobs=1).fit(example.scores, example.labels))
    content = json.loads((tmp_path / "c.json").read_text()) | change
    (tmp_path / "c.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=f"{re.escape(sentence)}$"):
        load_calibration(tmp_path / "c.json")


def test_old_certificates_are_read(tmp_path):
    result = solve(medium_problem(0), max_loss=3, n_jobs=1)
    save_certificate(tmp_path / "c.npz", result.certificate)
    with np.load(tmp_path / "c.npz") as arrays:
        old = {name: arrays[name] for name in arrays if name != "detector_price"}
    np.savez(tmp_path / "old.npz", **old)
    assert load_certificate(tmp_path / "old.npz").detector_price == 0


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        (["--max-loss", "10"], "the most recall with a loss of 10 at most"),
        (["--min-precision", "0.9"], "the most recall with a precision of 0.9 at least"),
        (["--max-loss", "60", "--compare"], "counted at the recall of the joint thresholds"),
        (["--max-loss", "10", "--compare"], "the most recall with a loss of 10 at most"),
        (["--max-detectors", "3", "--min-recall", "0.5"], "3 detectors may be in use"),
        (["--detector-cost", "3"], "of the loss"),
    ],
    ids=str,
)
def test_the_command(tmp_path, capsys, options, fact):
    write_score_table(tmp_path / "s.npz", table())
    scores, out = str(tmp_path / "s.npz"), str(tmp_path / "out")
    assert main(["calibrate", scores, "-o", out, "--verify", "--jobs", "1", *options]) == 0
    text = capsys.readouterr().out
    assert fact in text
    assert "optimal (proven)" in text
    assert main(["verify", scores, out]) == 0
    assert capsys.readouterr().out.startswith("verified: ")
    assert main(["apply", out, scores, "-o", str(tmp_path / "d.csv")]) == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--max-loss", "1", "--min-precision", "0.5"], "`max_loss` and `min_precision` exclude each other: give one of them"),
        (["--max-loss", "1", "--min-recall", "0.5"], "`min_recall` and `max_loss` exclude each other: what is asked for is the most recall"),
        (["--max-loss", "1", "--method", "greedy"], "`max_loss` needs method='exact', got 'greedy'"),
        (["--max-detectors", "2", "--method", "greedy"], "--max-detectors needs --method exact, got greedy"),
        (["--max-detectors", "2", "--frontier"], "--frontier does not go with --max-detectors: its floors know of no such limit"),
        (["--min-precision", "0.5", "--detector-cost", "1"], "--detector-cost does not go with --min-precision, which knows of no other costs"),
    ],
    ids=str,
)  # fmt: skip
def test_options_that_exclude_each_other(tmp_path, capsys, options, sentence):
    assert main(["calibrate", "absent.csv", "-o", str(tmp_path / "out"), *options]) == 2
    assert capsys.readouterr().err == f"eesvm: error: {sentence}\n"


# Few detectors: the search tries prices, searches to the end, and where rounding leaves a gap it searches again.

ROUNDED = {"min_recall": 0.3, "max_detectors": 3}  # of a problem that is searched again, as the soak found it


def rounded_problem():
    return soak.random_problem(np.random.default_rng(647691))


def count_searches(monkeypatch, at_search=None):
    """How often `floor_with_few` searches; `at_search(n)` is called when the n-th search has begun."""
    calls, begun = [], floor_module.LimitedSearch

    def begin(ranked, run, *rest):
        calls.append(run)
        search = begun(ranked, run, *rest)
        if at_search is not None:
            at_search(len(calls))
        return search

    monkeypatch.setattr(floor_module, "LimitedSearch", begin)
    return calls


def test_searching_again_keeps_to_the_node_limit(monkeypatch):
    calls = count_searches(monkeypatch)
    whole = solve(rounded_problem(), **ROUNDED)
    n_trials = sum(run.node_limit is not None for run in calls)
    assert whole.status == "optimal"
    assert len(calls) > n_trials + 1  # it has searched again
    calls.clear()
    cut = solve(rounded_problem(), **ROUNDED, node_limit=5)
    assert cut.status == "node_limit"
    assert cut.loss == whole.loss
    assert len(calls) == n_trials + 2  # the search, and one more that the limit ends


def test_searching_again_keeps_to_the_time_limit(monkeypatch):
    calls = count_searches(monkeypatch)
    monkeypatch.setattr(floor_module, "_rest_of", lambda run: Run(0.0, None, run.gap))
    cut = solve(rounded_problem(), **ROUNDED, time_limit=100)
    assert cut.status == "time_limit"
    assert [run.time_limit == 0.0 for run in calls].count(True) == 1


@pytest.mark.parametrize("at", ["a trial", "the search", "again"])
def test_ctrl_c_ends_all_searches_with_few_detectors(at, monkeypatch):
    n_trials = len(floor_module._FACTORS)
    number = {"a trial": 2, "the search": n_trials + 1, "again": n_trials + 2}[at]

    def press(n):
        if n == number:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    calls = count_searches(monkeypatch, press)
    cut = solve(rounded_problem(), **ROUNDED)
    assert cut.status == "feasible"
    assert signal.getsignal(signal.SIGINT) is before
    assert len(calls) == (3 if at == "a trial" else number)  # after a trial only the search, which ends at once
    assert all(run.n_limited <= 1 for run in calls[number - 1 :])
