"""Certificates: worked by hand, against a slow reference and the true optimum, tampered with, saved and loaded."""

import contextlib
import json
import math
import re
import shutil
import zipfile
from dataclasses import fields, replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eesvm
from eesvm import CalibrationProblem, Certificate, InputError, load_certificate, save_certificate, solve, verify
from eesvm.calibration.calibrators import joint
from eesvm.calibration.proofs import walk as proof_walk
from eesvm.calibration.proofs.certified_bound import certified_bound
from eesvm.calibration.proofs.verify import TOLERANCE
from eesvm.calibration.ranks import rank
from eesvm.calibration.search.bounds import max_min_bound
from eesvm.calibration.tables.examples import synthetic_score_table
from eesvm.calibration.tables.score_table import ScoreTable, write_score_table
from eesvm.calibration.units import common_unit
from eesvm.cli import main
from helpers import reference
from helpers.examples import many
from helpers.strategies import RECALL_FLOORS, problems

FRACTIONAL = settings(max_examples=many(600), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def make(problem, tree=-1, sets=(), prices=None, quantum=1.0, min_recall=1.0, cutoff=np.inf, ceiling=None):
    """A certificate from plain lists.

    `tree` is the number of a set (-1: none, -2 - p: all for positive p) for a leaf, or (exemplar, score, open tree, shut tree); a set is a
    dictionary of dictionaries, {positive: {negative: amount}}.
    """
    nodes = []

    def add(part):
        nodes.append([-1, 0.0, -1, -1, part] if isinstance(part, int) else [part[0], part[1], -1, -1, -1])
        node = len(nodes) - 1
        if not isinstance(part, int):
            nodes[node][2], nodes[node][3] = add(part[2]), add(part[3])
        return node

    add(tree)
    columns = list(zip(*nodes, strict=True))
    rows = [(p, row) for shares in sets for p, row in sorted(shares.items())]
    entries = [entry for _, row in rows for entry in sorted(row.items())]
    return Certificate(
        min_recall=min_recall,
        cutoff=cutoff,
        ceiling=np.array([-np.inf] * problem.n_exemplars if ceiling is None else ceiling, dtype=float),
        split_exemplar=np.array(columns[0], dtype=np.int32),
        split_score=np.array(columns[1], dtype=np.float64),
        open_child=np.array(columns[2], dtype=np.int32),
        shut_child=np.array(columns[3], dtype=np.int32),
        shares_of=np.array(columns[4], dtype=np.int32),
        set_start=np.cumsum([0, *(len(shares) for shares in sets)], dtype=np.int64),
        share_positive=np.array([p for p, _ in rows], dtype=np.int32),
        row_start=np.cumsum([0, *(len(row) for _, row in rows)], dtype=np.int64),
        share_negative=np.array([n for n, _ in entries], dtype=np.int32),
        share_amount=np.array([amount for _, amount in entries], dtype=np.int64),
        price=np.array([0.0] * len(sets) if prices is None else prices, dtype=float),
        quantum=quantum,
    )


def reference_bound(problem, certificate):
    """The bound of the design read aloud, with fractions and loops; refuses nothing."""
    c, quantum = certificate, Fraction(certificate.quantum)
    n_exemplars = problem.n_exemplars
    weights = [math.floor(Fraction(w) / quantum) * quantum for w in problem.negative_weights.tolist()]
    positives, negatives = problem.positive_scores.tolist(), problem.negative_scores.tolist()
    lower, upper = problem.lower_thresholds.tolist(), problem.upper_thresholds.tolist()
    exemplars = range(n_exemplars)

    def allowed(p, j):
        return problem.forbidden is None or not problem.forbidden[p, j]

    def can_be_covered(p):
        return any(allowed(p, j) and positives[p][j] > lower[j] for j in exemplars)

    def spare_budget(min_recall):
        units = {p: int(u) for p, u in enumerate(problem.recall_units)}
        spare = Fraction(problem.left_out_budget(min_recall)) - sum(
            u for p, u in units.items() if not can_be_covered(p)
        )
        units = [u for p, u in units.items() if can_be_covered(p)]
        if spare < 0 or not units:
            return spare
        return 0 if spare < min(units) else spare // math.gcd(*units) * math.gcd(*units)

    def leaf(node, path):
        opened = {j: [s for i, s, is_open in path if i == j and is_open] for j in exemplars}
        shut = {
            j: max([lower[j], c.ceiling[j], *(s for i, s, is_open in path if i == j and not is_open)])
            for j in exemplars
        }

        def accepted(row, j):
            return row[j] > upper[j] or any(row[j] >= s for s in opened[j])

        unpaid = [n for n, row in enumerate(negatives) if not any(accepted(row, j) for j in exemplars)]
        paid = sum(w for n, w in enumerate(weights) if n not in unpaid)
        k = c.shares_of[node]
        shares = {}
        if k >= 0:
            for r in range(c.set_start[k], c.set_start[k + 1]):
                for z in range(c.row_start[r], c.row_start[r + 1]):
                    shares[c.share_positive[r], c.share_negative[z]] = int(c.share_amount[z]) * quantum
        if k <= -2:
            shares = {(-2 - k, n): w for n, w in enumerate(weights)}
        values = {}
        for p, row in enumerate(positives):
            if not any(accepted(row, j) and allowed(p, j) for j in exemplars):
                alive = [j for j in exemplars if allowed(p, j) and row[j] > shut[j]]
                sums = [sum(shares.get((p, n), 0) for n in unpaid if negatives[n][j] >= row[j]) for j in alive]
                values[p] = min(sums, default=math.inf)
        spare = spare_budget(c.min_recall)
        if spare < 0:
            return math.inf
        values = {p: value for p, value in values.items() if can_be_covered(p)}
        if spare == 0:
            return paid + sum(values.values())
        price = Fraction(0) if k < 0 else Fraction(float(c.price[k]))
        units = [int(u) for u in problem.recall_units]
        charges = {p: math.floor(price * units[p] / quantum) * quantum for p in values}
        allowance = math.ceil(price * spare / quantum) * quantum
        return paid + max(0, sum(min(charges[p], values[p]) for p in values) - allowance)

    def walk(node, path):
        j, s = int(c.split_exemplar[node]), float(c.split_score[node])
        if j < 0:
            return leaf(node, path)
        return min(walk(c.open_child[node], [*path, (j, s, True)]), walk(c.shut_child[node], [*path, (j, s, False)]))

    bound = min(math.inf if c.cutoff == math.inf else Fraction(c.cutoff), walk(0, []))
    for j in exemplars:
        if c.ceiling[j] > -math.inf:
            forced = [any(row[k] > upper[k] for k in exemplars) for row in negatives]
            reached = [forced[n] or row[j] >= c.ceiling[j] for n, row in enumerate(negatives)]
            bound = min(bound, sum(w for n, w in enumerate(weights) if reached[n]))
    whole = math.gcd(*(int(w / quantum) for w in weights)) * quantum  # losses in whole quanta are multiples of it
    bound = bound if whole == 0 or bound == math.inf else math.ceil(bound / whole) * whole
    unit = math.gcd(*(int(4 * w) for w in problem.negative_weights.tolist()))  # the strategy has quarters only
    return bound if unit == 0 or bound == math.inf else math.ceil(bound * 4 / unit) * Fraction(unit, 4)


def optimum(problem, min_recall=1.0):
    best = reference.brute_force(problem, min_recall)
    return math.inf if best is None else best


# B_0(p0) = {0}, B_1(p0) = {2, 3}, B_0(p1) = {0, 1}, B_1(p1) = {2}: whatever one does costs 2.
POSITIVES = [[3.0, 1.0], [1.0, 3.0]]
NEGATIVES = [[4.0, 0.0], [2.0, 0.0], [0.0, 4.0], [0.0, 2.0]]
GOOD = {0: {0: 1, 3: 1}, 1: {1: 1, 2: 1}}


def pair(**options):
    return CalibrationProblem(POSITIVES, NEGATIVES, **options)


def in_units(problem, price):
    """A price per positive as a price per recall unit."""
    return [price / problem.recall_units[0]]


def test_no_tree_and_no_shares_prove_nothing():
    assert certified_bound(pair(), make(pair())) == 0


def test_shares_at_the_root_prove_the_optimum():
    assert certified_bound(pair(), make(pair(), 0, [GOOD])) == 2
    # Half of every negative for either positive: both have an exemplar that needs one negative only.
    halves = {p: dict.fromkeys(range(4), 1) for p in (0, 1)}
    assert certified_bound(pair(), make(pair(), 0, [halves], quantum=0.5)) == 1
    # One eighth too little for 2 still proves 2, because losses are whole; all weights of 3 make it 6.
    eighths = {0: {0: 8, 3: 8}, 1: {1: 8, 2: 7}}
    assert certified_bound(pair(), make(pair(), 0, [eighths], quantum=0.125)) == 2
    heavy = pair(negative_weights=[3.0] * 4)
    assert certified_bound(heavy, make(heavy, 0, [{0: {0: 3, 3: 3}, 1: {1: 1, 2: 1}}])) == 6


def test_branching():
    problem = pair()
    # Opening exemplar 0 at 3 accepts negative 0 and covers positive 0; shutting it leaves exemplar 1 for both.
    assert certified_bound(problem, make(problem, (0, 3.0, -1, -1))) == 0
    shut_only = {0: {2: 1, 3: 1}}
    assert certified_bound(problem, make(problem, (0, 3.0, -1, 0), [shut_only])) == 1
    open_only = {1: {1: 1, 2: 1}}
    assert certified_bound(problem, make(problem, (0, 3.0, 1, 0), [shut_only, open_only])) == 2
    # Negative 0 is paid in the open leaf, so shares of it beyond its weight do no harm there, and no good either.
    beyond = {0: {0: 50}, 1: {0: 70, 1: 1, 2: 1}}
    assert certified_bound(problem, make(problem, (0, 3.0, 1, 0), [shut_only, beyond])) == 2
    with pytest.raises(
        InputError,
        match=r"^at node 2 the shares of negative 0 are 120 quanta in all, more than its weight of 1$",
    ):
        certified_bound(problem, make(problem, (0, 3.0, 1, 1), [shut_only, beyond]))


def test_recall_floor():
    problem = pair()
    options = {"min_recall": 0.5, "prices": in_units(problem, 1.0)}
    fine = {p: dict.fromkeys(row, 2**20) for p, row in GOOD.items()}
    # 1 + 1 for the positives, less 1 for the one that may be left out.
    assert certified_bound(problem, make(problem, 0, [fine], quantum=2.0**-20, **options)) == 1
    # The budget is a hair above one positive, which is as good as one.
    assert certified_bound(problem, make(problem, 0, [GOOD], **options)) == 1
    assert certified_bound(problem, make(problem, 0, [GOOD], min_recall=0.5)) == 0
    # Weights of 3, a price of 2.5 that is rounded down to 2 for either and up to 3 for the budget: 1, and so 3.
    heavy = pair(negative_weights=[3.0] * 4)
    threes = {p: dict.fromkeys(row, 3) for p, row in GOOD.items()}
    certificate = make(heavy, 0, [threes], in_units(heavy, 2.5), min_recall=0.5)
    assert certified_bound(heavy, certificate) == 3
    # A tenth of two positives is none: both must be covered, whatever the price.
    assert certified_bound(heavy, make(heavy, 0, [threes], min_recall=0.9)) == 6
    # Nobody can cover positive 1 in the shut leaf, and it alone may go: positive 0 must be covered, by exemplar 1.
    blocked = pair(forbidden=[[False, False], [True, True]])
    shut_only = {0: {2: 2**20, 3: 2**20}}
    tree = (0, 3.0, -1, 0)
    certificate = make(blocked, tree, [shut_only], in_units(problem, 2.0), 2.0**-20, 0.5)
    assert certified_bound(blocked, certificate) == 1
    assert optimum(blocked, 0.5) == 1


def test_ceilings_and_cutoff():
    problem = pair()
    own = {0: {0: 1}, 1: {2: 1}}  # proves 2 once nobody may cover the other's positive
    assert certified_bound(problem, make(problem, 0, [own])) == 0
    assert certified_bound(problem, make(problem, 0, [own], ceiling=[1.0, 1.0], cutoff=2.0)) == 2
    assert certified_bound(problem, make(problem, 0, [own], ceiling=[1.0, 1.0])) == 2
    assert certified_bound(problem, make(problem, 0, [own], ceiling=[1.0, 1.0], cutoff=0.5)) == 1  # losses are whole
    # Whoever accepts a score of 2.5 or less by exemplar 1 pays for one negative; the cutoff can say what it will.
    assert certified_bound(problem, make(problem, 0, [own], ceiling=[1.0, 2.5], cutoff=2.0)) == 1


def test_a_negative_that_ties_with_a_ceiling_is_paid_for():
    # Positive 0 by exemplar 1 needs a score of 2 accepted, and with it negatives 2 and 3, which score 4 and 2.
    problem = CalibrationProblem([[3.0, 2.0], [1.0, 3.0]], [[4.0, 0.0], [5.0, 0.0], [0.0, 4.0], [0.0, 2.0]])
    own = {0: {0: 1, 1: 1}}
    assert certified_bound(problem, make(problem, 0, [own], cutoff=2.0)) == 0
    assert certified_bound(problem, make(problem, 0, [own], ceiling=[-np.inf, 2.0], cutoff=2.0)) == 2
    assert certified_bound(problem, make(problem, 0, [own], ceiling=[-np.inf, np.nextafter(2.0, 3.0)], cutoff=2.0)) == 1


def test_leaves_that_give_everything_to_one_positive():
    for_0, for_1 = -2, -3
    # Negatives 0 and 3 are double: positive 0 needs {0} or {2, 3}, weights 2 and 3, and positive 1 {0, 1} or {2}.
    problem = pair(negative_weights=[2.0, 1.0, 1.0, 2.0])
    assert certified_bound(problem, make(problem, for_0)) == 2
    assert certified_bound(problem, make(problem, for_1)) == 1
    # Opening exemplar 0 at 3 pays 2 for negative 0, and {1} or {2} is left for positive 1; shut, positive 0 needs 3.
    assert certified_bound(problem, make(problem, (0, 3.0, for_1, for_0))) == 3
    assert certified_bound(problem, make(problem, (0, 3.0, for_0, for_0))) == 2  # it is covered in the open leaf
    assert certified_bound(problem, make(problem, (0, 3.0, for_1, for_1))) == 1
    # A ceiling of 3 leaves exemplar 1 for positive 0, which costs 3; but to pass the ceiling costs 2.
    assert certified_bound(problem, make(problem, for_0, ceiling=[3.0, -np.inf])) == 2
    # Shut at both of its scores, nobody can cover positive 1; the other leaves pay 3 for {0, 1} and 1 for {2}.
    assert certified_bound(problem, make(problem, (0, 1.0, -1, (1, 3.0, -1, for_1)))) == 1
    nobody = pair(forbidden=[[False, False], [True, True]])
    assert certified_bound(nobody, make(nobody, for_1)) == math.inf
    # Without a price nothing is charged for leaving a positive out: what is paid is all.
    assert certified_bound(problem, make(problem, for_0, min_recall=0.5)) == 0
    assert certified_bound(problem, make(problem, (0, 3.0, for_1, for_0), min_recall=0.5)) == 0
    forced = pair(upper_thresholds=[2.0, np.inf])
    assert certified_bound(forced, make(forced, for_1, min_recall=0.5)) == 1


def test_leaves_that_cannot_matter_are_not_looked_at():
    # What is paid in the open leaf reaches the cutoff, so it does not matter that its shares are too many.
    problem = pair()
    sets = [{0: {2: 1, 3: 1}}, {1: {1: 7}}]
    assert certified_bound(problem, make(problem, (0, 3.0, 1, 0), sets, cutoff=1.0)) == 1
    with pytest.raises(InputError, match=r"^at node 1 the shares of negative 1 are 7 quanta in all"):
        certified_bound(problem, make(problem, (0, 3.0, 1, 0), sets, cutoff=2.0))


def test_a_deep_tree_with_many_leaves():
    table = synthetic_score_table(6, 25, 300, "overlapping", random_state=5)
    problem = table.problem()
    random = np.random.default_rng(5)
    scores = problem.positive_scores

    def grow(depth):
        """A chain with side branches."""
        if depth == 0:
            return int(random.integers(-1 - problem.n_positives, 2))
        j, p = random.integers(problem.n_exemplars), random.integers(problem.n_positives)
        ways = [grow(depth - 1), grow(min(depth - 1, int(random.integers(3))))]
        if random.random() < 0.5:
            ways.reverse()
        return (int(j), float(scores[p, j]), *ways)

    amounts = np.floor(2.0**20 * random.dirichlet(np.ones(problem.n_positives), problem.n_negatives))
    whole = {p: {n: int(amounts[n, p]) for n in range(problem.n_negatives)} for p in range(problem.n_positives)}
    part = {p: {n: a for n, a in row.items() if n % 3 == p % 3} for p, row in whole.items()}
    for depth in (3, 40, 120):
        certificate = make(problem, grow(depth), [whole, part], quantum=2.0**-20)
        assert certified_bound(problem, certificate) == reference_bound(problem, certificate)


def test_forbidden_pairs():
    problem = pair(forbidden=[[True, False], [False, False]])
    assert certified_bound(problem, make(problem, 0, [{0: {2: 1, 3: 1}}])) == 2
    # A forbidden pair does not cover: opening exemplar 0 pays for negative 0 and leaves positive 0 uncovered.
    assert certified_bound(problem, make(problem, (0, 3.0, 0, 0), [{0: {2: 1, 3: 1}}])) == 2
    nobody = pair(forbidden=[[False, False], [True, True]])
    assert certified_bound(nobody, make(nobody)) == math.inf


def test_threshold_bounds():
    forced = pair(upper_thresholds=[2.0, np.inf])  # accepts negative 0 and covers positive 0
    assert certified_bound(forced, make(forced)) == 1
    assert certified_bound(forced, make(forced, 0, [{1: {1: 1, 2: 1}}])) == 2
    raised = pair(lower_thresholds=[-np.inf, 3.0])  # exemplar 1 rejects positive 1, which scores 3
    assert certified_bound(raised, make(raised, 0, [{1: {0: 1, 1: 1}}])) == 2
    locked = pair(lower_thresholds=[3.0, 3.0], upper_thresholds=[3.0, 3.0])
    assert certified_bound(locked, make(locked)) == math.inf


def test_weights_that_are_no_whole_quanta_are_rounded_down():
    problem = pair(negative_weights=[0.1, 0.1, 0.1, 0.1])
    quantum = 2.0**-40
    amount = math.floor(0.1 / quantum)
    shares = {0: {0: amount, 3: amount}, 1: {1: amount, 2: amount}}
    certificate = make(problem, 0, [shares], quantum=quantum)
    assert certified_bound(problem, certificate) == 2 * amount * quantum < 0.2
    uneven = pair(negative_weights=[0.1, 0.1, 0.1, 1e-9 / 3])
    certificate = make(uneven, 0, [{1: {1: amount, 2: amount}}], quantum=quantum)
    assert certified_bound(uneven, certificate) == amount * quantum
    shares[0][0] += 1
    with pytest.raises(InputError, match=r"^at node 0 the shares of negative 0 are \d+ quanta in all, more than"):
        certified_bound(problem, make(problem, 0, [shares], quantum=quantum))


@pytest.mark.parametrize(
    ("weights", "unit"),
    [
        ([1, 1, 1], 1),
        ([0.25, 0.5, 1e6], Fraction(1, 4)),
        ([0, 6, 9], 3),
        ([0, 0], 0),
        ([5e-324, 1e-323], Fraction(5e-324)),
        ([1e300, 1e-300], None),
        ([0.1], Fraction(0.1)),
        ([0.1, 0.3], None),
        ([2.0**53 - 1], 2**53 - 1),
        ([2.0**52, 2.0**52 - 1, 1], None),
    ],
)
def test_common_unit(weights, unit):
    assert common_unit(np.array(weights, dtype=float)) == unit


@FRACTIONAL
@given(problems(bounds=True), st.sampled_from(RECALL_FLOORS), st.data())
def test_no_certificate_proves_more_than_the_optimum(problem, min_recall, data):
    certificate = data.draw(certificates(problem, min_recall))
    proven = certified_bound(problem, certificate)
    assert proven <= optimum(problem, min_recall)
    assert proven == max(0, reference_bound(problem, certificate))


@settings(FRACTIONAL, max_examples=many(200))
@given(problems(max_exemplars=2, max_positives=4, max_negatives=4, bounds=True), st.sampled_from(RECALL_FLOORS))
def test_a_tree_that_decides_everything_proves_the_optimum(problem, min_recall):
    certificate = full_tree(problem, min_recall)
    best = optimum(problem, min_recall)
    proven = certified_bound(problem, certificate)
    assert proven == best or (best == math.inf and proven > problem.negative_weights.sum())


@settings(FRACTIONAL, max_examples=many(100))
@given(problems())
def test_all_weight_on_the_hardest_positive_proves_the_simple_bound(problem):
    try:
        ranked = rank(problem)
    except InputError:
        return
    p = int(ranked.difficulty.argmax())
    shares = {p: {n: int(4 * w) for n, w in enumerate(problem.negative_weights.tolist())}}
    unit = common_unit(problem.negative_weights)
    simple = max_min_bound(ranked)
    expected = math.ceil(Fraction(simple) / unit) * unit if unit else 0
    assert certified_bound(problem, make(problem, 0, [shares], quantum=0.25)) == expected


@settings(FRACTIONAL, max_examples=many(300))
@given(problems(), st.sampled_from(RECALL_FLOORS), st.data())
def test_tampering_never_proves_more_than_the_optimum(problem, min_recall, data):
    certificate = data.draw(certificates(problem, min_recall))
    name = data.draw(st.sampled_from([field.name for field in fields(Certificate) if field.name != "min_recall"]))
    value = getattr(certificate, name)
    if isinstance(value, float):
        value = data.draw(st.floats())
    elif len(value):
        value = value.copy()
        index = data.draw(st.integers(0, len(value) - 1))
        if value.dtype.kind == "f":
            value[index] = data.draw(st.floats(width=8 * value.itemsize))
        else:
            near, far = st.integers(-2, 6), st.integers(np.iinfo(value.dtype).min, np.iinfo(value.dtype).max)
            value[index] = data.draw(near | far)
    changed = replace(certificate, **{name: value})
    result = SimpleNamespace(
        thresholds=np.full(problem.n_exemplars, np.inf), loss=0.0, lower_bound=0.0, status="feasible",
        min_recall=min_recall, certificate=changed, recall=0.0, max_loss=None, min_precision=None, max_detectors=None,
    )  # fmt: skip
    verification = verify(problem, result)
    assert 0 <= verification.lower_bound <= optimum(problem, min_recall)


@pytest.mark.long
@settings(FRACTIONAL, max_examples=60)
@given(problems(bounds=True), st.sampled_from(RECALL_FLOORS), st.data())
def test_the_size_of_pieces_changes_nothing(problem, min_recall, data):
    certificate = data.draw(certificates(problem, min_recall))
    whole = certified_bound(problem, certificate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proof_walk, "_KEPT_BYTES", data.draw(st.sampled_from([1, 100, 200])))
        patch.setattr(proof_walk, "_PIECE_BYTES", data.draw(st.sampled_from([1, 60, 100])))
        assert certified_bound(problem, certificate) == whole


def test_scores_on_disk(tmp_path):
    table = synthetic_score_table(8, 30, 400, "overlapping", random_state=3)
    problem = table.problem()
    path = tmp_path / "negatives.npy"
    np.save(path, problem.negative_scores)
    mapped = CalibrationProblem(problem.positive_scores, np.load(path, mmap_mode="r"))
    random = np.random.default_rng(0)
    shares = {p: {int(n): 1 for n in random.choice(400, 50, replace=False)} for p in range(30)}
    certificate = make(problem, 0, [shares], quantum=2.0**-5)
    assert certified_bound(mapped, certificate) == certified_bound(problem, certificate)


# What `verify` says


def judged(problem, certificate, **changes):
    """A result with the optimal thresholds of `problem`, and what `verify` says about it."""
    result = solve(problem, "exhaustive", min_recall=certificate.min_recall if certificate else 1.0)
    result = replace(result, certificate=certificate)
    return verify(problem, replace(result, **changes))


def test_a_result_that_holds():
    verification = judged(pair(), make(pair(), 0, [GOOD]))
    assert verification.problems == []
    assert verification.is_valid
    assert verification.is_feasible
    assert verification.bound_holds
    assert (verification.loss, verification.lower_bound) == (2, 2)


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        ({"loss": 1.0}, ["the loss is given as 1, but the scores say 2"]),
        ({"loss": math.nan}, ["the loss is given as nan, but the scores say 2"]),
        ({"lower_bound": 2.5}, ["the lower bound is given as 2.5, but 2 is proven"]),
        ({"lower_bound": math.nan}, ["the lower bound is given as nan, but 2 is proven"]),
        ({"thresholds": np.array([np.inf, 2.5]), "loss": 1.0}, ["the thresholds have a recall of 0.5, below the floor of 1"]),
        ({"thresholds": np.array([-np.inf, 2.5]), "loss": 4.0}, ["a loss of 4 is given as optimal, but 2 is proven"]),
        ({"thresholds": np.array([1.0])}, ["`thresholds` must have shape (2,), got (1,)"]),
        ({"thresholds": np.array([1.0, np.nan])}, ["`thresholds` must be numbers; +inf switches a detector off, NaN means nothing"]),
        ({"min_recall": 0.9}, [
            "the certificate proves nothing: it is for a recall of 1.0, not of 0.9",
            "the lower bound is given as 2, but 0 is proven", "a loss of 2 is given as optimal, but 0 is proven"]),
        ({"certificate": None}, ["the lower bound is given as 2, but there is no certificate to prove it",
                                 "a loss of 2 is given as optimal, but there is no certificate to prove it"]),
        ({"certificate": None, "lower_bound": 0.0, "status": "feasible"}, []),
        ({"certificate": 7, "lower_bound": 0.0, "status": "feasible"},
         ["the certificate proves nothing: it must be a Certificate, got int"]),
    ],
)  # fmt: skip
def test_claims_that_do_not_hold(changes, sentences):
    result = replace(solve(pair(), "exhaustive"), certificate=make(pair(), 0, [GOOD]))
    verification = verify(pair(), replace(result, **changes))
    assert verification.problems == sentences
    assert verification.is_valid == (not sentences)


def test_thresholds_outside_of_their_bounds():
    problem = pair(lower_thresholds=[-np.inf, 1.0])
    result = replace(solve(problem, "greedy"), lower_bound=0.0, thresholds=np.array([np.inf, 0.5]), loss=2.0)
    verification = verify(problem, replace(result, status="feasible"))
    assert verification.problems == ["a threshold is outside of its bounds"]
    assert not verification.is_feasible


def test_optimal_losses_of_fractional_weights_have_a_tolerance():
    uneven = pair(negative_weights=[0.1, 0.3, 0.1, 0.7])
    quantum = 2.0**-45
    shares = {p: {n: math.floor(uneven.negative_weights[n] / quantum) for n in row} for p, row in GOOD.items()}
    best, certificate = optimum(uneven), make(uneven, 0, [shares], quantum=quantum)
    proven = certified_bound(uneven, certificate)
    assert best * (1 - TOLERANCE) < proven < best
    verification = judged(uneven, certificate, lower_bound=proven)
    assert verification.problems == []
    # Bounds have no tolerance: they are what is proven.
    assert not judged(uneven, certificate, lower_bound=math.nextafter(proven, 1)).is_valid
    coarse = {p: {n: math.floor(uneven.negative_weights[n] * 2**8) for n in row} for p, row in GOOD.items()}
    assert judged(uneven, make(uneven, 0, [coarse], quantum=2.0**-8), lower_bound=0.0).problems == [
        "a loss of 0.20000000000000001 is given as optimal, but 0.1953125 is proven"
    ]
    coarse = {p: {n: math.floor(uneven.negative_weights[n] * 2**8) for n in row} for p, row in GOOD.items()}
    assert not judged(uneven, make(uneven, 0, [coarse], quantum=2.0**-8), lower_bound=best).is_valid
    # Whole weights have none, however coarse the quantum is.
    assert not judged(pair(), make(pair(), 0, [GOOD]), lower_bound=2 + 1e-12).is_valid


def test_what_is_no_problem_is_refused():
    with pytest.raises(InputError, match=r"^`problem` must be a CalibrationProblem, got list$"):
        verify([], None)


def array(dtype, *values):
    return np.array(values, dtype=dtype)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"min_recall": 0}, "`min_recall` must be > 0, got 0"),
        ({"cutoff": math.nan}, "`cutoff` must be a number >= 0 or inf, got nan"),
        ({"cutoff": -1.0}, "`cutoff` must be a number >= 0 or inf, got -1.0"),
        ({"quantum": 3.0}, "`quantum` must be a power of two, got 3.0"),
        ({"quantum": math.inf}, "`quantum` must be finite, got inf"),
        ({"quantum": 0.0}, "`quantum` must be > 0, got 0.0"),
        ({"quantum": 2.0**-60}, "`quantum` is too small: the weights are 4.61e+18 quanta, 2**53 or more"),
        ({"quantum": 5e-324}, "`quantum` is too small: the weights are inf quanta, 2**53 or more"),
        ({"ceiling": array(float, 0.0)}, "`ceiling` must have 2 entries, got 1"),
        ({"ceiling": array(float, 0.0, math.nan)}, "`ceiling` must hold finite numbers, or -inf for no ceiling"),
        ({"ceiling": array(float, 0.0, math.inf)}, "`ceiling` must hold finite numbers, or -inf for no ceiling"),
        ({"ceiling": array(int, 0, 1)}, "`ceiling` must have dtype float32 or float64, got int64"),
        ({"ceiling": [0.0, 1.0]}, "`ceiling` must be an array with one dimension"),
        ({"split_score": array(float, math.nan, 0, 0)}, "`split_score` must hold finite numbers"),
        ({"split_score": array(float, 1.0)}, "`split_score` must have 3 entries, got 1"),
        ({"split_exemplar": array("i4", 2, -1, -1)}, "`split_exemplar` must be >= -1 and < 2, got 2"),
        ({"split_exemplar": array("i4", 0, -2, -1)}, "`split_exemplar` must be >= -1, got -2"),
        ({"split_exemplar": array(">i4", 0, -1, -1)}, "`split_exemplar` must have dtype int32, got >i4"),
        ({"open_child": array("i4", 0, -1, -1)}, "`open_child` must be a node after its parent, below 3"),
        ({"open_child": array("i4", 3, -1, -1)}, "`open_child` must be a node after its parent, below 3"),
        ({"open_child": array("i4", -1, -1, -1)}, "`open_child` must be a node after its parent, below 3"),
        ({"shut_child": array("i4", 1, -1, -1)}, "every node but the root must have one parent, node 1 has 2"),
        ({"shut_child": array("i4", 2, -1, 0)}, "`shut_child` must be -1 at a leaf"),
        ({"shares_of": array("i4", -1, 1, 0)}, "`shares_of` must be < 1, got 1"),
        ({"shares_of": array("i4", -1, 0, -4)}, "`shares_of` must be >= -3 and < 1, got -4"),
        ({"shares_of": array("i4", -2, 0, 0)}, "`shares_of` must be -1 at a node that is not a leaf"),
        ({"shares_of": array("i4", 0, 0, 0)}, "`shares_of` must be -1 at a node that is not a leaf"),
        ({"set_start": array("i8", 0, 3)}, "`set_start` must rise from 0 to 2"),
        ({"row_start": array("i8", 0, 5, 4)}, "`row_start` must rise from 0 to 4"),
        ({"row_start": array("i8", 1, 2, 4)}, "`row_start` must rise from 0 to 4"),
        ({"share_positive": array("i4", 0, 2)}, "`share_positive` must be >= 0 and < 2, got 2"),
        ({"share_positive": array("i4", 0, 0)}, "`share_positive` must ascend within each set"),
        ({"share_negative": array("i4", 0, 3, 1, 4)}, "`share_negative` must be >= 0 and < 4, got 4"),
        ({"share_negative": array("i4", 0, 3, -1, 2)}, "`share_negative` must be >= 0, got -1"),
        ({"share_negative": array("i4", 3, 3, 1, 2)}, "`share_negative` must ascend within each row"),
        ({"share_amount": array("i8", 1, 1, 1, -1)}, "`share_amount` must be >= 0, got -1"),
        ({"share_amount": array("f8", 1, 1, 1, 1)}, "`share_amount` must have dtype int64 or uint32, got float64"),
        ({"share_amount": array("i8", 1, 1, 1, 2**62)},
         f"at node 1 the shares of negative 2 are {2**62} quanta in all, more than its weight of 1"),
        ({"price": array(float, -1.0)}, "`price` must hold finite numbers >= 0"),
        ({"price": array(float, math.inf)}, "`price` must hold finite numbers >= 0"),
    ],
)  # fmt: skip
def test_what_makes_no_certificate(changes, sentence):
    good = make(pair(), (0, 3.0, 0, 0), [GOOD])
    good.check(pair())
    with pytest.raises(InputError) as caught:
        certified_bound(pair(), replace(good, **changes))
    assert str(caught.value) == sentence
    if "min_recall" not in changes:
        verification = verify(pair(), replace(solve(pair()), certificate=replace(good, **changes)))
        assert verification.lower_bound == 0
        assert f"the certificate proves nothing: {sentence}" in verification.problems


def test_an_empty_tree_and_a_score_of_another_dtype():
    none = make(pair())
    tree = ("split_exemplar", "split_score", "open_child", "shut_child", "shares_of")
    empty = replace(none, **{name: getattr(none, name)[:0] for name in tree})
    with pytest.raises(InputError, match=r"^the tree is empty: it needs a root at least$"):
        empty.check()
    single = CalibrationProblem(np.float32(POSITIVES), np.float32(NEGATIVES))
    make(single, (0, 3.0, -1, -1)).check(single)
    for score in (0.1, 1e300):
        with pytest.raises(
            InputError, match=r"^`split_score` must hold numbers that are a float32, as the scores are$"
        ):
            make(single, (0, score, -1, -1)).check(single)


def test_amounts_of_32_bits():
    certificate = make(pair(), 0, [GOOD])
    assert certified_bound(pair(), replace(certificate, share_amount=certificate.share_amount.astype(np.uint32))) == 2


# Files


def test_a_certificate_survives_its_file(tmp_path):
    certificate = make(
        pair(), (0, 3.0, 0, -1), [GOOD], min_recall=0.5, prices=[1e-17], cutoff=5.0, ceiling=[-np.inf, 1]
    )
    save_certificate(tmp_path / "c.npz", certificate)
    loaded = load_certificate(tmp_path / "c.npz")
    for field in fields(Certificate):
        np.testing.assert_array_equal(getattr(loaded, field.name), getattr(certificate, field.name))
        assert np.asarray(getattr(loaded, field.name)).dtype == np.asarray(getattr(certificate, field.name)).dtype
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.npz"]


def test_only_certificates_are_saved(tmp_path):
    with pytest.raises(InputError, match=r"^`certificate` must be a Certificate, got int$"):
        save_certificate(tmp_path / "c.npz", 7)
    with pytest.raises(InputError, match=r"^`quantum` must be a power of two, got 3.0$"):
        save_certificate(tmp_path / "c.npz", replace(make(pair()), quantum=3.0))
    assert list(tmp_path.iterdir()) == []


def stored(path):
    """The arrays of a good certificate, as they are in its file."""
    save_certificate(path, make(pair(), 0, [GOOD]))
    with np.load(path) as arrays:
        return dict(arrays)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda a: a.pop("price"), "array 'price' is missing"),
        (lambda a: a.update(more=np.ones(3)), "array 'more' is not part of a certificate"),
        (lambda a: a.pop("certificate_format"), "it is not a certificate: there is no `certificate_format`, only 'ceiling'"),
        (lambda a: a.update(certificate_format=np.int64(2)), "`certificate_format` must be 1, which is all that this version reads"),
        (lambda a: a.update(certificate_format=np.ones(2)), "`certificate_format` must be 1, which is all that this version reads"),
        (lambda a: a.update(quantum=np.ones(2)), "`quantum` must be one number of dtype float64"),
        (lambda a: a.update(cutoff=np.array("x")), "`cutoff` must be one number of dtype float64"),
        (lambda a: a.update(price=np.array([None])), "the array `price` holds Python objects (a pickle), which are never loaded"),
        (lambda a: a.update(price=np.array(["x"])), "`price` must have dtype float64, got <U1"),
        (lambda a: a.update(set_start=np.zeros((2, 2))), "`set_start` must be an array with one dimension"),
        (lambda a: a.update(row_start=a["row_start"][::-1].copy()), "`row_start` must rise from 0 to 4"),
    ],
)  # fmt: skip
def test_files_that_are_no_certificate(tmp_path, change, sentence):
    path = tmp_path / "c.npz"
    arrays = stored(path)
    change(arrays)
    np.savez(path, **arrays)
    with pytest.raises(InputError) as caught:
        load_certificate(path)
    assert str(caught.value).startswith(f"{path}: {sentence}")


def test_cut_and_missing_files(tmp_path):
    path = tmp_path / "c.npz"
    stored(path)
    content = path.read_bytes()
    for n in (0, 1, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:n])
        with pytest.raises(InputError, match=r"c\.npz: (the file is empty|it is not a whole \.npz archive)"):
            load_certificate(path)
    with pytest.raises(InputError, match=r"none\.npz: there is no such file$"):
        load_certificate(tmp_path / "none.npz")
    with pytest.raises(InputError, match=r": it is a folder, not a file$"):
        load_certificate(tmp_path)


@settings(max_examples=many(150), deadline=None)
@given(st.data())
def test_damage_never_surfaces_as_another_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damage") / "c.npz"
    stored(path)
    content = bytearray(path.read_bytes())
    for index in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[index] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(InputError):
        assert certified_bound(pair(), load_certificate(path)) <= 2


def test_arrays_that_claim_to_be_huge(tmp_path):
    path = tmp_path / "c.npz"
    arrays = stored(path)
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                if name == "share_amount":
                    header = {"descr": "<i8", "fortran_order": False, "shape": (10**13,)}
                    np.lib.format.write_array_header_1_0(member, header)
                    member.write(bytes(64))
                else:
                    np.lib.format.write_array(member, value)
    with pytest.raises(InputError, match=r"the array `share_amount` declares shape .* which the file does not hold$"):
        load_certificate(path)


# The command


def proving_solve(problem, **options):
    """A search that finds the optimum and proves it by deciding everything."""
    result = solve(problem, **options)
    certificate = full_tree(problem, result.min_recall)
    return replace(result, lower_bound=certified_bound(problem, certificate), certificate=certificate)


def small_table():
    table = synthetic_score_table(2, 6, 12, "overlapping", random_state=7)
    groups = np.array([*"aabbcc", *"xxxxxxxxxxxx"])
    names = ["first", "second"]
    return ScoreTable(table.scores, table.labels, groups, np.array(["a", "b"]), exemplar_names=names)


@pytest.fixture
def scores(tmp_path, monkeypatch):
    monkeypatch.setattr(joint, "solve", proving_solve)
    write_score_table(tmp_path / "scores.npz", small_table())
    return tmp_path / "scores.npz"


@pytest.mark.parametrize("options", [[], ["--across-groups"], ["--min-recall", "0.7", "--across-groups"]])
def test_calibrate_verify_and_verify_again(tmp_path, scores, capsys, options):
    out = tmp_path / "out"
    assert main(["calibrate", str(scores), "-o", str(out), "--verify", *options]) == 0
    text = capsys.readouterr().out
    assert "certificate.npz" in text
    *_, line = text.splitlines()
    problem = small_table().problem("--across-groups" in options)
    loss = optimum(problem, 0.7 if "0.7" in options else 1.0)
    assert line.startswith(f"verified: loss {loss:.0f} and recall ")
    assert f"from the scores, lower bound {loss:.0f} from a certificate with " in line
    conditions = ["a recall of 70 % is enough"] * ("--min-recall" in options)
    conditions += ["4 pairs are forbidden"] * ("--across-groups" in options)
    said, _ = line.rsplit(" (", 1)  # then how long it took
    assert said.endswith(f"; both hold{' where ' * bool(conditions)}{', '.join(conditions)}")
    for path in (out, out / "calibration.json"):
        assert main(["verify", str(scores), str(path)]) == 0
        (again,) = capsys.readouterr().out.splitlines()
        assert re.fullmatch(re.escape(said) + r" \(\d+ s\)", again)
    assert main(["verify", str(scores), str(out), "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    # The calibration alone still loads, and so does the certificate.
    assert eesvm.load_calibration(out).result_.min_recall == (0.7 if "0.7" in options else 1.0)
    assert eesvm.load_calibration(out).across_groups_ == ("--across-groups" in options)
    assert load_certificate(out / "certificate.npz").n_leaves > 1


def test_bounds_are_kept_with_the_calibration(tmp_path, scores, capsys):
    plain, bounded, bounds = tmp_path / "plain", tmp_path / "bounded", tmp_path / "bounds.csv"
    assert main(["calibrate", str(scores), "-o", str(plain), "--quiet"]) == 0
    bounds.write_text("exemplar,lower,upper\nsecond,inf,\n")  # switched off
    assert main(["calibrate", str(scores), "-o", str(bounded), "--verify", "--bounds", str(bounds)]) == 0
    *_, line = capsys.readouterr().out.splitlines()
    first, second = (eesvm.load_calibration(out) for out in (plain, bounded))
    assert first.active_.all()
    assert second.active_.tolist() == [True, False]
    assert second.result_.loss > first.result_.loss
    assert main(["verify", str(scores), str(bounded)]) == 0
    assert capsys.readouterr().out.splitlines() == [line]
    # Without the bounds, the same certificate does not prove that loss: they are part of the claim.
    content = json.loads((bounded / "calibration.json").read_text())
    assert content.pop("lower_thresholds") == [None, "inf"]
    (bounded / "calibration.json").write_text(json.dumps(content))
    assert "the calibration does not hold" in complaint(capsys, "verify", scores, bounded)


def complaint(capsys, *arguments):
    assert main(list(map(str, arguments))) == 1
    return capsys.readouterr().err.removeprefix("eesvm: error: ").rstrip("\n")


def test_verify_says_what_does_not_hold(tmp_path, scores, capsys):
    out = tmp_path / "out"
    assert main(["calibrate", str(scores), "-o", str(out), "--across-groups", "--quiet"]) == 0
    content = json.loads((out / "calibration.json").read_text())
    loss = content["result"]["loss"]
    claim = json.dumps(content | {"result": content["result"] | {"loss": loss - 1, "lower_bound": loss - 1}})
    (out / "calibration.json").write_text(claim)
    assert complaint(capsys, "verify", scores, out) == (
        f"{out}: the calibration does not hold: the loss is given as {loss - 1:g}, but the scores say {loss:g}; "
        f"or was it made from another table than {scores}?"
    )
    (out / "calibration.json").write_text(json.dumps(content))
    shutil.copy(out / "certificate.npz", tmp_path / "kept.npz")
    (out / "certificate.npz").unlink()
    assert "there is no certificate to prove it" in complaint(capsys, "verify", scores, out)
    (out / "certificate.npz").write_bytes(b"PK")
    assert complaint(capsys, "verify", scores, out).startswith(f"{out / 'certificate.npz'}: it is not a whole .npz")
    shutil.copy(tmp_path / "kept.npz", out / "certificate.npz")
    assert main(["verify", str(scores), str(out)]) == 0
    capsys.readouterr()
    table = small_table()
    write_score_table(tmp_path / "other.npz", replace(table, scores=-table.scores))
    assert "the calibration does not hold" in complaint(capsys, "verify", tmp_path / "other.npz", out)


def test_calibrate_verify_without_a_certificate(tmp_path, capsys):
    write_score_table(tmp_path / "s.npz", synthetic_score_table(6, 60, 400, "overlapping", random_state=1))
    out = tmp_path / "out"
    text = complaint(capsys, "calibrate", tmp_path / "s.npz", "-o", out, "--method", "algorithm1", "--verify")
    assert text.startswith("the calibration does not hold: the lower bound is given as ")
    assert (out / "calibration.json").exists()


# Strategies


@st.composite
def certificates(draw, problem, min_recall):
    """Certificates of any shape whose shares respect the weights: most of them weak, all of them proofs."""
    quantum = draw(st.sampled_from([2.0**-20, 0.125, 0.25, 1.0, 2.0]))
    n_sets = draw(st.integers(0, 2))
    sets = [draw(_share_sets(problem, quantum)) for _ in range(n_sets)]
    unit = float(problem.recall_units.min())
    prices = [draw(st.sampled_from([0, 0.1, 1, 2.5, 100])) / unit for _ in range(n_sets)]
    values = sorted({*problem.positive_scores.ravel().tolist(), *problem.negative_scores.ravel().tolist()})
    score = st.sampled_from(values) | st.integers(-20, 20).map(lambda i: i / 4)
    leaf = st.integers(-1 - problem.n_positives, -1)
    if n_sets:
        leaf = st.integers(0, n_sets - 1) | leaf
    tree = draw(
        st.recursive(leaf, lambda t: st.tuples(st.integers(0, problem.n_exemplars - 1), score, t, t), max_leaves=5)
    )
    ceiling = [draw(st.just(-np.inf) | score) for _ in range(problem.n_exemplars)]
    if draw(st.booleans()):
        ceiling = None
    cutoff = draw(st.just(np.inf) | st.integers(0, 40).map(lambda i: i / 4))
    return make(
        problem, tree, sets, prices, quantum, min_recall, cutoff if ceiling or draw(st.booleans()) else np.inf, ceiling
    )


@st.composite
def _share_sets(draw, problem, quantum):
    """{positive: {negative: amount}}: every negative divided among the positives, all of it or a part."""
    shares = {p: {} for p in range(problem.n_positives)}
    for n, weight in enumerate(problem.negative_weights.tolist()):
        parts = draw(st.lists(st.integers(0, 3), min_size=problem.n_positives, max_size=problem.n_positives))
        for p, part in enumerate(parts):
            if part:
                shares[p][n] = math.floor(weight / quantum) * part // sum(parts)
    return {p: row for p, row in shares.items() if row}


def full_tree(problem, min_recall=1.0):
    """Split at every score of every exemplar: each leaf knows what every exemplar accepts."""
    columns = np.concatenate([problem.positive_scores, problem.negative_scores]).T
    # Nothing is opened at or below a lower threshold: such a branch holds no solution, which a bound need not notice.
    descending = [
        sorted({score for score in column.tolist() if score > lower}, reverse=True)
        for column, lower in zip(columns, problem.lower_thresholds, strict=True)
    ]

    def split(j, k):
        if j == len(descending):
            return 0
        if k == len(descending[j]):
            return split(j + 1, 0)
        return (j, descending[j][k], split(j, k + 1), split(j + 1, 0))

    # A price so high that leaving out more than the budget costs more than everything.
    enough = 4.0 * (1 + problem.negative_weights.sum()) / problem.recall_units.min()
    return make(problem, split(0, 0), [{}], [enough * 1e6], 2.0**-20, min_recall)
