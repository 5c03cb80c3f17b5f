"""Newton steps over all negatives: as good as slow references on all kinds of tables, with gaps that hold."""

import numpy as np
import pytest
from scipy.optimize import minimize

from eesvm import ExemplarSVMs
from eesvm._support.threads import workers
from eesvm.exemplars.rows import ArrayRows, PartedRows, held_in_memory
from eesvm.exemplars.solver import Budget, Margins, Objective, TrainingProblem
from eesvm.exemplars.solver import newton as newton_module
from eesvm.exemplars.solver import solve as solve_module
from eesvm.exemplars.solver.newton import descend_newton
from eesvm.exemplars.solver.newton_gram import nearest
from eesvm.exemplars.solver.newton_matrices import CountedRows, OwnMatrices, solve_directly, solve_system
from eesvm.exemplars.solver.newton_sums import Moved, RunningSums
from eesvm.exemplars.solver.pool import Pool
from helpers.examples import ALL, few, many
from helpers.reference_svm import coordinate_descent, liblinear, objective, relu_features
from helpers.solver_rows import make_share, rows_like_a_pca

LOSSES = ["hinge", "squared_hinge"]
BUDGET = Budget(1 << 28)


def newton(positives, negatives, C, positive_weight, squared, multiplier=1.0, tol=5e-4):
    """(weights, gap, violation) of each exemplar, the gap by plain numpy from weights and duals."""
    share = make_share(positives, negatives, multiplier)
    start = np.zeros((len(positives), positives.shape[1] + 1), dtype=np.float32)
    o = Objective(C * positive_weight, C, squared, multiplier)
    found = descend_newton(share, start, o, tol)
    weights, squares, violations = found.weights, found.dual_squares, found.violations
    rows = np.concatenate([negatives, np.full((len(negatives), 1), multiplier)], axis=1).astype(np.float64)
    duals, own = share.duals.astype(np.float64), share.own.astype(np.float64)
    added = own[:, None] * share.positives.astype(np.float64) - duals @ rows
    np.testing.assert_allclose((added**2).sum(axis=1), squares, rtol=1e-3, atol=1e-3)
    gain = duals.sum(axis=1) + own
    if squared:
        gain -= (duals**2).sum(axis=1) / (4 * C) + own**2 / (4 * C * positive_weight)
    lower = gain - (added**2).sum(axis=1) / 2
    values = np.array(
        [
            objective(w[:-1], w[-1] * multiplier, x, negatives, C, positive_weight, squared, multiplier)
            for w, x in zip(weights, positives, strict=True)
        ]
    )
    if not squared:
        assert (duals <= np.float32(C)).all()
    assert (duals >= 0).all()
    return values, lower, violations


def test_rows_that_count_are_copied_where_they_are_few():
    rows = np.arange(400.0).reshape(100, 4)
    counted = CountedRows(rows)
    assert counted.rows is rows
    everywhere = np.ones((3, 100), dtype=bool)
    assert not counted.has_all(everywhere)  # there is no copy, so nothing is gained

    def counts(*chosen):
        found = np.zeros((3, 100), dtype=bool)
        found[np.arange(len(chosen)) % 3, list(chosen)] = True
        return found

    counted.follow(counts(5, 70, 20, 6), 4)
    np.testing.assert_array_equal(counted.rows, rows[[5, 6, 20, 70]])
    np.testing.assert_array_equal(counted.columns(everywhere * np.arange(100)), [[5, 6, 20, 70]] * 3)
    assert counted.has_all(counts(6, 20))
    assert not counted.has_all(counts(6, 21))
    before = counted.rows
    counted.follow(counts(6, 20), 0)  # nothing is saved by another copy
    assert counted.rows is before
    counted.follow(counts(6, 21), 0)  # a row is missing, and a copy does not pay
    assert counted.rows is rows
    assert counted.columns(everywhere) is everywhere
    counted.follow(counts(99), 100)
    np.testing.assert_array_equal(counted.rows, rows[[99]])
    counted = CountedRows(rows, may_copy=False)
    counted.follow(counts(99), 100)
    assert counted.rows is rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_matrix_follows_the_rows_that_count(dtype):
    random = np.random.default_rng(5)
    rows = random.normal(size=(200, 6)).astype(np.float32)
    matrices, counts = OwnMatrices(rows, 2.0), random.random(200) < 0.5
    augmented = np.column_stack([rows, np.full(200, 2.0)]).astype(np.float64)
    for flipped in (0, 1, 10, 150, 30, 30, 30, 30, 30, 30, 30):
        chosen = random.choice(200, flipped, replace=False)
        counts[chosen] ^= True
        found = matrices.follow(7, counts, np.dtype(dtype))
        assert found.dtype == dtype
        np.testing.assert_allclose(found, augmented[counts].T @ augmented[counts], atol=1e-3)
    np.testing.assert_allclose(
        matrices.follow(8, ~counts, np.dtype(dtype)), augmented[~counts].T @ augmented[~counts], atol=1e-3
    )
    own, target = 100 * random.normal(size=7), random.normal(size=7)
    for row in (None, own):
        system = np.eye(7) + 0.3 * found + (0 if row is None else np.outer(row, row))
        np.testing.assert_allclose(
            solve_system(found, 0.3, row, target), np.linalg.solve(system, target), rtol=2e-3, atol=1e-7
        )
    assert solve_system(-found, 0.3, None, target) is None


@pytest.mark.parametrize("cap", [0.5, np.inf])
def test_sums_follow_duals_whatever_has_moved_them(cap):
    random = np.random.default_rng(3)
    rows, slopes = random.normal(size=(300, 7)).astype(np.float32), random.normal(size=(4, 300)).astype(np.float32)
    sums, stiffness = RunningSums(rows, 4), np.float32(0.7)
    members, moved = np.arange(4), None

    def duals_of(slopes):
        raw = stiffness * slopes
        return np.clip(raw, 0, np.float32(cap)), (raw > 0) & (raw < cap)

    for step in range(9):
        duals, is_between = duals_of(slopes[members])
        found = sums.follow(members, duals, is_between, moved)
        np.testing.assert_allclose(found, duals.astype(np.float64) @ rows, atol=2e-5)
        exact = sums.add_up(members[:1], duals[:1])
        np.testing.assert_allclose(exact, duals[:1].astype(np.float64) @ rows, atol=1e-5)
        assert sums.is_exact[members[0]]
        if step == 3:  # some leave, and one of the others does not move
            members, duals, is_between = members[1:], duals[1:], is_between[1:]
        movers = members[step % 2 :]
        change = (10.0 ** -(step / 2) * random.normal(size=(len(movers), 300))).astype(np.float32)
        lengths = random.uniform(0.2, 1.5, size=len(movers))
        was_between = is_between[step % 2 :]
        pulled = (stiffness * lengths[:, None] * np.where(was_between, change, 0)) @ rows
        moved = Moved(movers, change, was_between, stiffness * lengths, pulled)
        slopes[movers] += lengths[:, None].astype(np.float32) * change


@pytest.mark.parametrize("C", [1e-2, 1.0])
def test_copies_of_few_rows_change_nothing(C, monkeypatch):
    positives, negatives = rows_like_a_pca(12, 3000 if ALL else 1200, 40)
    found = newton(positives, negatives, C, 50.0, True)
    lengths = []
    monkeypatch.setattr(CountedRows, "follow", lambda self, counts, n, own=CountedRows.follow: (own(self, counts, n), lengths.append(len(self.rows))))  # fmt: skip
    monkeypatch.setattr("eesvm.exemplars.solver.newton_matrices._COPY", 0)
    monkeypatch.setattr(newton_module._Descent, "_direct", newton_module._Descent._conjugate)
    always = newton(positives, negatives, C, 50.0, True)
    assert min(lengths) < len(negatives)
    np.testing.assert_allclose(always[0], found[0], rtol=5e-4)
    assert (always[0] - always[1] <= 1e-3 * always[0]).all()


@pytest.mark.parametrize("squared", [False, True], ids=LOSSES)
@pytest.mark.parametrize("C", [1e-5, 1e-3, 1e-1, 1.0])
@pytest.mark.parametrize("positive_weight", [1.0, 50.0])
def test_the_duality_gap_closes_by_plain_numpy(squared, C, positive_weight):
    for kind in (rows_like_a_pca, relu_features):
        values, lower, violations = newton(*kind(6, 700 if ALL else 200, 24), C, positive_weight, squared)
        assert (values - lower <= 1e-3 * values).all()
        assert (lower <= values * (1 + 1e-6)).all()
        assert (violations <= 5e-4).all()


ODD_TABLES = {
    "rows of zeros": lambda x: np.where(np.arange(len(x))[:, None] % 3 == 0, np.float32(0), x),
    "constant columns": lambda x: np.where(np.arange(x.shape[1]) % 2 == 0, np.float32(1.5), x),
    "columns of zeros": lambda x: np.where(np.arange(x.shape[1]) % 2 == 0, np.float32(0), x),
    "fewer rows than columns": lambda x: x[:7],
    "one row": lambda x: x[:1],
    "a row that is far longer": lambda x: np.where(np.arange(len(x))[:, None] == 3, 5 * x, x),
    "tiny rows": lambda x: x * np.float32(1e-3),
    "repeated rows": lambda x: np.concatenate([x[:40]] * 5),
}


@pytest.mark.parametrize("squared", [False, True], ids=LOSSES)
@pytest.mark.parametrize("name", ODD_TABLES)
def test_odd_tables(name, squared):
    positives, negatives = rows_like_a_pca(5, 200, 12)
    negatives = np.ascontiguousarray(ODD_TABLES[name](negatives))
    for C, multiplier in ((1e-6, 1.0), (1e-2, 0.0), (1e-2, 10.0), (0.3, 1.0)):
        values, lower, _ = newton(positives, negatives, C, 3.0, squared, multiplier)
        assert (values - lower <= 1e-3 * values + 1e-9).all()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", few(ODD_TABLES, 4))
def test_a_large_cost_on_odd_tables(name, loss):
    """Newton steps alone do not always get there; the whole training does."""
    positives, negatives = rows_like_a_pca(5, 200, 12)
    svms = ExemplarSVMs(10.0, 3.0, loss).fit(positives, np.ascontiguousarray(ODD_TABLES[name](negatives)))
    assert svms.converged_.all()


def test_hundreds_of_small_problems_are_as_good_as_coordinate_descent():
    random = np.random.default_rng(0)
    for _ in range(many(150)):
        d, m = int(random.integers(1, 7)), int(random.integers(1, 30))
        table = np.round(random.standard_normal((m + 2, d)) * random.choice([0.5, 3.0]), 1).astype(np.float32)
        C, squared = float(10 ** random.uniform(-4, 0.5)), bool(random.integers(2))
        values, lower, _ = newton(table[:2], table[2:], C, 2.0, squared)
        for j in range(2):
            best = coordinate_descent(table[j], table[2:], C, 2.0, squared, n=400)
            best = objective(*best, table[j], table[2:], C, 2.0, squared)
            assert values[j] <= best * 1.001 + 1e-7
            assert lower[j] <= best * (1 + 1e-5) + 1e-7


def test_the_hinge_agrees_with_a_quadratic_programme():
    positives, negatives = rows_like_a_pca(3, 60, 8)
    values, _, _ = newton(positives, negatives, 0.02, 10.0, False)
    for x, value in zip(positives, values, strict=True):
        rows = np.concatenate([x[None], -negatives]).astype(np.float64)
        rows = np.concatenate([rows, np.array([[1.0]] + [[-1.0]] * 60)], axis=1)
        caps = np.array([0.2] + [0.02] * 60)
        dual = minimize(
            lambda v, rows=rows: ((v @ rows) @ (v @ rows)) / 2 - v.sum(),
            np.zeros(61),
            jac=lambda v, rows=rows: rows @ (v @ rows) - 1,
            bounds=[(0, c) for c in caps],
            method="L-BFGS-B",
            options={"maxiter": 20_000, "maxfun": 200_000, "ftol": 1e-14, "gtol": 1e-9},
        )
        assert value == pytest.approx(-dual.fun, rel=1e-3)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("C", "positive_weight"), [(1e-4, 1.0), (1e-2, 50.0), (1.0, 1.0)])
def test_both_ways_to_train_give_the_same_criterion(loss, C, positive_weight, monkeypatch):
    positives, negatives = rows_like_a_pca(10, 900, 16)
    found = ExemplarSVMs(C, positive_weight, loss).fit(positives, negatives)
    monkeypatch.setattr(solve_module, "MAX_WIDTH", 0)
    monkeypatch.setattr("eesvm.exemplars.solver.pool.MAX_WIDTH", 0)
    other = ExemplarSVMs(C, positive_weight, loss).fit(positives, negatives)
    assert found.converged_.all()
    np.testing.assert_allclose(found.objective_, other.objective_, rtol=1e-3)
    assert (found.objective_ * (1 - found.gap_) <= other.objective_ * (1 + 1e-6)).all()  # lower bounds are such


@pytest.mark.parametrize("loss", LOSSES)
def test_liblinear_is_not_better(loss):
    positives, negatives = rows_like_a_pca(9, 1500, 20)
    for C, weight in ((1e-4, 50.0), (1e-2, 50.0), (1e-2, 1.0)):
        svms = ExemplarSVMs(C, weight, loss).fit(positives, negatives)
        for j in (0, 5):
            case = positives[j], negatives, C, weight, loss == "squared_hinge"
            best = objective(*liblinear(*case), *case)
            assert objective(svms.coef_[j], svms.intercept_[j], *case) <= best * (1 + 1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_same_bits_for_any_number_of_threads(loss):
    positives, negatives = rows_like_a_pca(70, 3000, 16)
    for C, weight in ((1e-4, 1.0), (1e-2, 50.0)):
        one = ExemplarSVMs(C, weight, loss, n_jobs=1).fit(positives, negatives)
        for n_jobs in (2, 3, 4):
            other = ExemplarSVMs(C, weight, loss, n_jobs=n_jobs).fit(positives, negatives)
            np.testing.assert_array_equal(one.coef_, other.coef_)
            np.testing.assert_array_equal(one.intercept_, other.intercept_)
            np.testing.assert_allclose(one.objective_, other.objective_, rtol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_groups_and_priors(loss):
    positives, negatives = rows_like_a_pca(9, 300, 10)
    own, others = np.arange(9) % 3, np.arange(300) % 4
    prior = np.full(10, 0.02), -0.3
    svms = ExemplarSVMs(1e-2, 5.0, loss, prior=prior).fit(positives, negatives, own, others)
    assert svms.converged_.all()
    for j in few(range(9), 3):
        case = positives[j], negatives[others != own[j]], 1e-2, 5.0, loss == "squared_hinge", 1.0, prior
        best = objective(*coordinate_descent(*case, n=800), *case)
        assert objective(svms.coef_[j], svms.intercept_[j], *case) <= best * 1.001


def test_a_table_in_memory_is_read_where_it_lies():
    positives, negatives = rows_like_a_pca(8, 400, 10)
    assert held_in_memory(ArrayRows(negatives)) is negatives
    assert held_in_memory(ArrayRows(negatives.astype(np.float64))) is None
    assert held_in_memory(ArrayRows(negatives[:, ::2])) is None
    assert held_in_memory(PartedRows([negatives])) is None
    expected = ExemplarSVMs(1e-3).fit(positives, negatives)
    for other in (negatives.astype(np.float64), PartedRows([negatives[:150], negatives[150:]])):
        np.testing.assert_array_equal(ExemplarSVMs(1e-3).fit(positives, other).coef_, expected.coef_)


@pytest.mark.parametrize(("kind", "is_dense"), [(rows_like_a_pca, True), (relu_features, False)])
def test_one_exemplar_tells_which_way_wins(kind, is_dense, monkeypatch):
    positives, negatives = kind(12, 4000, 32)
    pools = []
    kept = Pool.evidence

    def spy(pool, waiting, found):
        pools.append(pool)
        return kept(pool, waiting, found)

    monkeypatch.setattr(Pool, "evidence", spy)
    ExemplarSVMs(1e-3).fit(positives, negatives)
    last = pools[-1]
    assert last.takes_newton_steps == last.is_whole == is_dense


@pytest.mark.parametrize("is_hopeful", [False, True])
def test_a_small_pool_is_given_a_chance_where_violations_are_small(is_hopeful, monkeypatch):
    monkeypatch.setattr(solve_module, "_FIRST_ROWS", 64)  # so that the first three looks find more than is taken in
    monkeypatch.setattr(solve_module, "_EASY", 10.0)
    monkeypatch.setattr(solve_module, "_HOPEFUL", 1.0 if is_hopeful else 0.0)
    pools = []
    kept = Pool.evidence
    monkeypatch.setattr(Pool, "evidence", lambda pool, *facts: pools.append(pool) or kept(pool, *facts))
    svms = ExemplarSVMs(3e-4).fit(*relu_features(12, 4000, 64))
    assert pools[-1].is_whole != is_hopeful
    assert svms.converged_.all()


def test_what_newton_steps_do_not_solve_is_left_to_others(monkeypatch):
    monkeypatch.setattr(newton_module, "_MAX_STAGES", 1)
    monkeypatch.setattr(solve_module, "_NEWTON_ROUNDS", 1)
    positives, negatives = rows_like_a_pca(4, 300, 12)
    for loss in LOSSES:
        svms = ExemplarSVMs(1e-2, 50.0, loss).fit(positives, negatives)
        assert svms.converged_.all()


def make_problem(positives, negatives, C=0.01, squared=False):
    n, m = len(positives), len(negatives)
    squares = np.einsum("nd,nd->n", negatives, negatives)
    margins = Margins(np.ones(n), np.ones(m))
    groups = np.full(n, -1), np.zeros(m, dtype=np.int64)
    return TrainingProblem(positives, ArrayRows(negatives), Objective(C, C, squared, 1.0), margins, squares, *groups)


@pytest.mark.parametrize("squared", [False, True], ids=LOSSES)
def test_a_sample_stands_for_all_negatives(squared):
    """Where the sample is every negative there is, so many times, its solution is that of all of them."""
    positives, few = rows_like_a_pca(1, 2600, 8)
    repeated = make_problem(positives, np.repeat(few, 3, axis=0), 1e-3, squared)
    sample = solve_module._sampled(repeated, BUDGET)
    np.testing.assert_array_equal(sample.negatives.take(np.arange(2600)), few)
    with workers(1) as threads:
        pools = [Pool(problem, np.arange(1), BUDGET, 1) for problem in (repeated, sample)]
        for pool in pools:
            solve_module._Training(pool.problem, 1e-3, threads, None).begin(pool, None)
        start = solve_module._spread(repeated, pools[1])
        whole = solve_module.solve_together(repeated, 1e-3, BUDGET, threads)
    case = positives[0], np.repeat(few, 3, axis=0), 1e-3, 1.0, squared
    found = objective(start.weights[:-1], start.weights[-1], *case)
    assert found == pytest.approx(float(whole.objective[0]), rel=1e-3)
    assert (start.duals > 0).all()
    assert (np.diff(start.indices) > 0).all()


def test_a_sample_is_not_taken_of_few_negatives_or_without_memory():
    positives, negatives = rows_like_a_pca(2, 6000, 8)
    problem = make_problem(positives, negatives)
    assert solve_module._sampled(problem, BUDGET).negatives.shape == (3000, 8)
    assert solve_module._sampled(problem, Budget(100_000)) is problem
    small = make_problem(positives, negatives[:4000])
    assert solve_module._sampled(small, BUDGET) is small


@pytest.mark.parametrize("loss", LOSSES)
def test_a_positive_that_counts_a_million_times(loss):
    """Its products do not fit into float32 beside those of the negatives."""
    positives, negatives = rows_like_a_pca(9, 3000, 12)
    svms = ExemplarSVMs(1e-2, 1e6, loss).fit(positives, negatives)
    assert svms.converged_.all()
    case = positives[3], negatives, 1e-2, 1e6, loss == "squared_hinge"
    best = objective(*liblinear(*case), *case)
    assert objective(svms.coef_[3], svms.intercept_[3], *case) <= best * (1 + 1e-4)


def test_a_direct_solution_is_one():
    random = np.random.default_rng(0)
    for n in (0, 3, 8, 20):
        rows, target = random.standard_normal((n, 8)), random.standard_normal(8)
        found = solve_directly(rows, target)
        np.testing.assert_allclose(found + rows.T @ (rows @ found), target, atol=1e-10)


def test_a_pool_of_everything_is_not_made_where_the_budget_forbids():
    positives, negatives = rows_like_a_pca(20, 2000, 16)
    own = np.full(20, -1), np.zeros(2000, dtype=np.int64)
    problem = TrainingProblem(
        positives,
        ArrayRows(negatives),
        Objective(0.1, 0.01, False, 1.0),
        Margins(np.ones(20), np.ones(2000)),
        np.einsum("nd,nd->n", negatives, negatives),
        *own,
    )
    assert Pool(problem, np.arange(20), BUDGET, 1).can_hold_everything(8)
    assert not Pool(problem, np.arange(20), Budget(500_000), 1).can_hold_everything(8)
    with workers(1) as threads:
        small = solve_module.solve_together(problem, 1e-3, Budget(1_500_000), threads)
        large = solve_module.solve_together(problem, 1e-3, BUDGET, threads)
    np.testing.assert_allclose(small.objective, large.objective, rtol=1e-3)


def test_last_steps_near_the_margin_end_where_steps_over_all_rows_do(monkeypatch):
    positives, negatives = rows_like_a_pca(8, 1500, 24)
    n_calls = []
    descend = newton_module.descend_near
    monkeypatch.setattr(newton_module, "descend_near", lambda *a: n_calls.append(1) or descend(*a))
    for C, positive_weight in [(0.1, 50.0), (1.0, 1.0), (1.0, 50.0)]:
        values, lower, violations = newton(positives, negatives, C, positive_weight, False)
        assert (values - lower <= 1e-3 * values).all()
        assert (violations <= 5e-4).all()
        n_near = len(n_calls)
        with monkeypatch.context() as patch:
            patch.setattr(newton_module, "NEAR_WIDTH", 0)
            others, _, _ = newton(positives, negatives, C, positive_weight, False)
        assert len(n_calls) == n_near  # the other way takes none
        np.testing.assert_allclose(values, others, rtol=1e-3)
    assert n_calls


def test_rows_of_the_own_group_are_never_near():
    slopes = np.array([0.5, -np.inf, 0.1, -0.2, -np.inf, 3.0], dtype=np.float32)
    is_between = np.array([False, False, False, True, False, False])
    rows = nearest(slopes, is_between, np.array([5]), width=1)
    np.testing.assert_array_equal(rows, [3, 5, 2, 0])
