"""Small trees: against the exhaustive search, brute force and Algorithm 1, and every pruning against the whole tree."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from eesvm import CalibrationProblem, InputError, solve
from eesvm.calibration.ranks import rank
from eesvm.calibration.search.exhaustive import tree_size
from eesvm.experiments.search_study.small_trees import (
    BY_BOUND,
    BY_EQUIVALENCE,
    PRUNED,
    UNSEEN,
    VISITED,
    difficulty,
    small_tree,
)
from helpers import reference
from helpers.examples import few, many
from helpers.strategies import problems

SUBSETS = [(), (1,), (2,), (3, 4), (1, 2, 3, 4)]


def random_problem(seed, n_exemplars=3, n_positives=4, n_negatives=12, decimals=None):
    """Overlapping scores; with few decimals there are ties and equal sets of negatives."""
    random = np.random.default_rng(seed)
    scores = random.normal(size=(n_positives + n_negatives, n_exemplars))
    scores[:n_positives] += 0.5
    scores = scores if decimals is None else scores.round(decimals)
    return CalibrationProblem(scores[:n_positives], scores[n_positives:])


def has_cover(problem):
    return not problem.orphans().any()


def least_leaf(tree, number):
    """Loss of the best leaf below a node."""
    children = tree.nodes[number].children
    return min(least_leaf(tree, child) for child in children) if children else tree.nodes[number].loss


@pytest.mark.parametrize("seed", range(5))
def test_the_whole_tree_is_that_of_the_exhaustive_search(seed):
    problem = random_problem(seed)
    tree = small_tree(problem, observations=())
    full = solve(problem, method="exhaustive")
    assert len(tree.nodes) == tree_size(3, 4) == full.n_nodes
    assert len(tree.leaves) == full.statistics["n_leaves"] == 3**4
    assert tree.nodes[tree.best].loss == full.loss
    assert {node.fate for node in tree.nodes} == {VISITED}
    assert sorted(node.visit for node in tree.nodes) == list(range(len(tree.nodes)))


@settings(max_examples=50, deadline=None)
@given(problem=problems(max_exemplars=3, max_positives=3, bounds=True))
def test_every_subset_of_the_observations_ends_at_the_optimum(problem):
    if not has_cover(problem):
        return
    best = reference.brute_force(problem)
    for observations in SUBSETS:
        tree = small_tree(problem, observations=observations)
        assert tree.nodes[tree.best].loss == pytest.approx(best)
        assert problem.is_feasible(tree.nodes[tree.best].thresholds)


@settings(max_examples=60, deadline=None)
@given(problem=problems(max_exemplars=3, max_positives=3))
def test_nodes_are_judged_by_the_problem_and_losses_grow_downwards(problem):
    if not has_cover(problem):
        return
    tree = small_tree(problem, observations=())
    for node in tree.nodes:
        assert node.loss == problem.loss(node.thresholds)
        assert node.loss == sum(problem.negative_weights[n] for n in node.false_positives)
        assert problem.covers(node.thresholds)[list(tree.order[: node.level])].all()
        for child in node.children:
            below = tree.nodes[child]
            assert (below.parent, below.level) == (node.number, node.level + 1)
            assert below.false_positives >= node.false_positives
            assert [j for j, (a, b) in enumerate(zip(node.thresholds, below.thresholds, strict=True)) if a != b] in (
                [],
                [below.exemplar],
            )


@settings(max_examples=many(100), deadline=None)
@given(problem=problems(max_exemplars=3, max_positives=4))
def test_nothing_better_is_ever_pruned_away(problem):
    if not has_cover(problem):
        return
    tree = small_tree(problem)
    for node in tree.nodes:
        if node.fate == BY_BOUND:
            assert least_leaf(tree, node.number) >= tree.nodes[tree.best].loss
        elif node.fate == BY_EQUIVALENCE:
            siblings = [tree.nodes[c] for c in tree.nodes[node.parent].children if c != node.number]
            kept = [s for s in siblings if s.fate == VISITED and s.false_positives == node.false_positives]
            assert len(kept) == 1
            assert least_leaf(tree, kept[0].number) == pytest.approx(least_leaf(tree, node.number))
        parent_fate = None if node.parent is None else tree.nodes[node.parent].fate
        assert (node.fate == UNSEEN) == (parent_fate in (*PRUNED, UNSEEN))
        assert (node.visit is None) == (node.fate != VISITED)


@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("observations", few([(1, 2, 3, 4), (1,), (1, 2)]))
def test_algorithm1_visits_as_many_nodes(observations, decimals):
    n_compared, n_saved = 0, 0
    for seed in range(40):
        problem = random_problem(seed, decimals=decimals)
        # Without observation 4 the search draws an order of its own; small trees are told the same one.
        order = None if 4 in observations else np.random.default_rng(0).permutation(problem.n_positives)
        tree = small_tree(problem, order, observations)
        found = solve(problem, method="algorithm1", observations=observations, skip_satisfied=False)
        assert tree.nodes[tree.best].loss == found.loss
        if found.loss > max(difficulty(problem, p) for p in range(problem.n_positives)):
            # Else the search knows that it is done without looking further, which is not in the paper.
            assert len(tree.with_fate(VISITED)) == found.n_nodes
            n_compared += 1
            n_saved += len(tree.nodes) - found.n_nodes
    assert n_compared >= 10
    assert n_saved > 20 * n_compared


def test_equivalence_is_seen_where_two_exemplars_are_the_same():
    problem = random_problem(3, n_exemplars=1)
    twice = CalibrationProblem(np.tile(problem.positive_scores, 2), np.tile(problem.negative_scores, 2))
    tree = small_tree(twice, observations=(2,))
    assert len(tree.with_fate(BY_EQUIVALENCE)) == tree.depth
    assert len(tree.with_fate(VISITED)) == tree.depth + 1


def test_the_order_of_the_levels():
    problem = random_problem(1)
    costs = [difficulty(problem, p) for p in range(4)]
    assert costs == rank(problem).difficulty.tolist()
    assert small_tree(problem, observations=(4,)).order == tuple(sorted(range(4), key=lambda p: -costs[p]))
    assert small_tree(problem, (2, 0), observations=(1,)).order == (2, 0)
    free = CalibrationProblem([[2.0], [0.0]], [[1.0]])
    assert small_tree(free).order == (1,)
    assert small_tree(free, observations=()).order == (0, 1)
    only_root = small_tree(CalibrationProblem([[2.0]], [[1.0]]))
    assert (only_root.order, only_root.best, only_root.leaves) == ((), 0, only_root.nodes)


def test_paths_lead_down_from_the_root():
    tree = small_tree(random_problem(2), observations=())
    path = tree.path(tree.best)
    assert path[0] == 0
    assert [tree.nodes[n].level for n in path] == [0, 1, 2, 3, 4]
    assert all(child in tree.nodes[parent].children for parent, child in pairwise(path))


def test_what_cannot_be_grown():
    problem = random_problem(0)
    with pytest.raises(InputError, match=r"the tree has 121 nodes: small trees have at most 100"):
        small_tree(problem, observations=(), max_nodes=100)
    with pytest.raises(InputError, match=r"`order` must name positives from 0 to 3, got 4"):
        small_tree(problem, [4])
    barred = CalibrationProblem([[1.0], [2.0]], [[0.0]], forbidden=[[True], [False]])
    with pytest.raises(InputError, match="positive 0 cannot be covered by any exemplar"):
        small_tree(barred)
