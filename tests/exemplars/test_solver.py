"""The batched kernel: optimal for every exemplar, whatever the loss, prior, groups, blocks and threads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eesvm import InputError
from eesvm._support.threads import workers
from eesvm.exemplars.rows import ArrayRows
from eesvm.exemplars.solver import Budget, Margins, Objective, TrainingProblem, solve_together, squared_hinge
from eesvm.exemplars.solver import hinge as hinge_module
from eesvm.exemplars.solver.pool import Pool
from eesvm.exemplars.solver.scan import Look, scan
from eesvm.exemplars.solver.squared_hinge import mean_hessian_inverse
from helpers.examples import few
from helpers.reference_svm import coordinate_descent, objective, relu_features, worst_violation

BUDGET = 1 << 28


def make_problem(positives, negatives, C=1e-3, positive_weight=1.0, squared=False, multiplier=1.0, groups=None):
    own, others = groups or (np.full(len(positives), -1), np.zeros(len(negatives), dtype=np.int64))
    return TrainingProblem(
        positives,
        ArrayRows(negatives),
        Objective(C * positive_weight, C, squared, multiplier),
        Margins(np.ones(len(positives)), np.ones(len(negatives))),
        np.einsum("nd,nd->n", negatives, negatives),
        np.asarray(own),
        np.asarray(others),
    )


def solve(problem, tol=1e-3, budget=BUDGET, n_jobs=1):
    with workers(n_jobs) as threads:
        return solve_together(problem, tol, Budget(budget), threads)


@pytest.mark.parametrize("squared", [False, True], ids=["hinge", "squared"])
@pytest.mark.parametrize("C", [1e-4, 1e-2, 1.0])
def test_reported_evidence_is_what_plain_numpy_says(squared, C):
    positives, negatives = relu_features(12, 800, 40)
    solution = solve(make_problem(positives, negatives, C, 5.0, squared))
    for j, positive in enumerate(positives):
        w, b = solution.weights[j].astype(np.float64), float(solution.biases[j])
        value = objective(w, b, positive, negatives, C, 5.0, squared)
        assert solution.objective[j] == pytest.approx(value, rel=1e-4)  # ours is summed from float32 products
    assert (solution.gap <= 1e-3).all()
    assert (solution.violation <= 1e-3).all()


@pytest.mark.parametrize("squared", [False, True], ids=["hinge", "squared"])
@pytest.mark.parametrize("alike", [True, False])
def test_the_optimality_conditions_hold_to_tol(squared, alike, monkeypatch):
    """The duals of the pool are taken from the solver; everything else is computed here, over all negatives."""
    positives, negatives = relu_features(10, 600, 30)
    C, positive_weight = (1e-4, 1.0) if alike else (0.01, 50.0)
    pools = []
    kept = Pool.evidence

    def spy(pool, waiting, found):
        pools.append(pool)
        return kept(pool, waiting, found)

    monkeypatch.setattr(Pool, "evidence", spy)
    problem = make_problem(positives, negatives, C, positive_weight, squared)
    solution = solve(problem, 1e-3)
    pool = next(p for p in reversed(pools) if len(p) == len(positives))
    for j in range(len(positives)):
        others = np.zeros(len(negatives))
        others[pool.indices] = pool.duals[j]
        own_cap, cap = (np.inf, np.inf) if squared else (np.float32(C * positive_weight), np.float32(C))
        diagonals = (1 / (2 * C * positive_weight), 1 / (2 * C)) if squared else (0.0, 0.0)
        duals = (float(pool.own[j]), others, own_cap, cap, *diagonals)
        w = pool.own[j] * positives[j].astype(np.float64) - others @ negatives.astype(np.float64)
        b = float(pool.own[j]) - others.sum()
        np.testing.assert_allclose(solution.weights[j], w, atol=1e-5)
        assert worst_violation(w, b, positives[j], negatives, duals) <= 1.1e-3


@pytest.mark.parametrize("squared", [False, True], ids=["hinge", "squared"])
@pytest.mark.parametrize("C", few([1e-2, 1e-4]))
def test_splitting_order_threads_and_company_do_not_matter(squared, C):
    positives, negatives = relu_features(24, 1500, 50, seed=3)
    problem = make_problem(positives, negatives, C, 3.0, squared)
    whole = solve(problem)
    order = np.random.default_rng(0).permutation(len(positives))
    others = {
        "shuffled": solve(problem.part(order)).objective[np.argsort(order)],
        "two threads": solve(problem, n_jobs=2).objective,
        "one by one": np.array([solve(problem.part(np.array([j]))).objective[0] for j in range(len(positives))]),
        "split": solve(problem, budget=smallest_budget(problem)).objective,
    }
    for name, values in others.items():
        np.testing.assert_allclose(values, whole.objective, rtol=1e-3, err_msg=name)


def smallest_budget(problem):
    """A budget under which the exemplars do not fit into one pool."""
    budget = 1 << 22
    while budget > 1000:
        try:
            solve(problem, budget=budget // 2)
        except InputError:
            break
        budget //= 2
    return budget


def test_the_same_input_gives_the_same_numbers():
    problem = make_problem(*relu_features(10, 500, 30), 1e-3)
    first, second = solve(problem), solve(problem)
    np.testing.assert_array_equal(first.weights, second.weights)
    np.testing.assert_array_equal(first.gap, second.gap)


@pytest.mark.parametrize("squared", [False, True], ids=["hinge", "squared"])
def test_a_negative_of_the_own_group_does_not_count(squared):
    positives, negatives = relu_features(9, 300, 20)
    own, others = np.arange(9) % 3, np.arange(300) % 4
    solution = solve(make_problem(positives, negatives, 1e-3, 2.0, squared, groups=(own, others)))
    for j in range(9):
        theirs = negatives[others != own[j]]
        best = objective(*coordinate_descent(positives[j], theirs, 1e-3, 2.0, squared), positives[j], theirs, 1e-3, 2.0, squared)  # fmt: skip
        mine = objective(solution.weights[j], solution.biases[j], positives[j], theirs, 1e-3, 2.0, squared)
        assert mine <= best * 1.001


@st.composite
def small_problems(draw):
    n_exemplars, n_negatives, d = draw(st.integers(1, 4)), draw(st.integers(1, 9)), draw(st.integers(1, 4))
    numbers = hnp.arrays(np.int8, (n_exemplars + n_negatives, d), elements=st.integers(-3, 3), fill=st.nothing())
    table = draw(numbers).astype(np.float32) * draw(st.sampled_from([0.01, 0.5, 10.0]))
    C = draw(st.sampled_from([1e-4, 0.01, 1.0]))
    return table[:n_exemplars], table[n_exemplars:], C, draw(st.booleans()), draw(st.sampled_from([0.0, 1.0, 3.0]))


@settings(max_examples=60, deadline=None)
@given(small_problems())
def test_small_problems_with_ties_zeros_and_repeated_rows(problem):
    positives, negatives, C, squared, multiplier = problem
    solution = solve(make_problem(positives, negatives, C, 2.0, squared, multiplier))
    for j in range(len(positives)):
        best = coordinate_descent(positives[j], negatives, C, 2.0, squared, multiplier, n=300)
        value = objective(*best, positives[j], negatives, C, 2.0, squared, multiplier)
        mine = objective(solution.weights[j], solution.biases[j], positives[j], negatives, C, 2.0, squared, multiplier)
        assert mine <= value * 1.001 + 1e-7
        assert solution.gap[j] <= 1e-3


def test_a_budget_that_is_too_small_says_what_is_needed():
    problem = make_problem(*relu_features(1, 200, 50), 1e-4)
    with pytest.raises(
        InputError,
        match=r"^`memory_budget` is too small: one exemplar needs at least [\d,]+ bytes, got 10; None takes as much as is needed$",
    ):
        solve(problem, budget=10)


def test_memory_is_predicted_from_above():
    """What tracemalloc sees of numpy stays below what the pool predicts for itself."""
    import tracemalloc

    positives, negatives = relu_features(40, 4000, 100)
    problem = make_problem(positives, negatives, 0.01, 50.0)
    solve(problem)  # compiles
    tracemalloc.start()
    solution = solve(problem)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    pool = Pool(problem, np.arange(40), Budget(BUDGET), 1)
    assert peak <= pool.n_bytes(solution.pool_size) + problem.positives.nbytes * 4 + 100 * len(negatives)


def test_a_scan_skips_only_what_cannot_matter():
    positives, negatives = relu_features(30, 3000, 40)
    problem = make_problem(positives, negatives, 1e-4)
    random = np.random.default_rng(0)
    centre = np.append(-0.05 * negatives.mean(axis=0), -0.2)
    weights = (centre + 1e-3 * random.standard_normal((30, 41))).astype(np.float32)
    is_pooled = random.random(3000) < 0.1
    with workers(1) as threads:
        found = scan(problem, weights, is_pooled, problem.positive_groups, Look(5, 0.01), threads)
    shortfalls = 1 + weights[:, :-1] @ negatives.T + weights[:, -1:]
    np.testing.assert_allclose(found.loss, np.maximum(shortfalls, 0).sum(axis=1), rtol=1e-4, atol=1e-4)
    outside = np.where(is_pooled, 0, np.maximum(shortfalls, 0))
    np.testing.assert_allclose(found.worst, outside.max(axis=1), atol=1e-5)
    expected = {int(n) for row in outside for n in np.argsort(-row)[:5] if row[n] > 0.01}
    assert set(found.rows) == expected


def test_newton_and_coordinate_steps_never_go_up():
    random = np.random.default_rng(0)
    rows = random.standard_normal((30, 8)).astype(np.float32)
    gram, caps = rows @ rows.T, np.full(30, 0.3, dtype=np.float32)
    targets = np.ones(30, dtype=np.float32)
    values = random.uniform(0, 0.3, 30).astype(np.float32)

    def dual():
        return targets @ values - values @ gram @ values / 2

    slopes = targets - gram @ values
    for _ in range(5):
        before = dual()
        gain = hinge_module._newton_step(gram, slopes, values, caps)
        assert dual() == pytest.approx(before + gain, abs=1e-4)
        assert gain >= -1e-6
        before = dual()
        after, _ = hinge_module._coordinate_descent(gram, slopes, values, caps, before, np.float32(1e-4))
        assert dual() == pytest.approx(after, abs=1e-4)
        assert after >= before - 1e-6
        np.testing.assert_allclose(slopes, targets - gram @ values, atol=1e-4)
        assert ((values >= 0) & (values <= caps)).all()


def test_the_preconditioner_is_the_inverse_of_the_mean_hessian():
    random = np.random.default_rng(0)
    rows, shares = random.standard_normal((20, 5)).astype(np.float32), random.random(20).astype(np.float32)
    hessian = np.eye(5) + 2 * 0.3 * (rows * shares[:, None]).T @ rows
    np.testing.assert_allclose(mean_hessian_inverse(rows, shares, 0.3) @ hessian, np.eye(5), atol=1e-4)


@pytest.mark.parametrize("shape", [(400, 60), (30, 60)])
@pytest.mark.parametrize("length", [1.0, 500.0, 1e10])
def test_newton_equations_are_solved_well_enough_for_a_direction(shape, length):
    """Rows of few directions; beside long ones float32 loses the identity, and float64 has to do."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((shape[0], 10)) @ random.standard_normal((10, shape[1]))
    rows = (rows * np.sqrt(length / (10 * shape[1]))).astype(np.float32)
    target = random.standard_normal(shape[1]).astype(np.float32)
    expected = np.linalg.solve(np.eye(shape[1]) + rows.T.astype(np.float64) @ rows, target)
    found = squared_hinge._solve(rows, target)
    assert found.dtype == np.float32
    assert np.linalg.norm(found - expected) <= 1e-2 * np.linalg.norm(expected)
