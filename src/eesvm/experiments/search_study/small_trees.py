"""The search tree of a tiny problem as plain nodes, and what pruning does to it (sections 4.2 and 4.3 of the paper).

In: a `CalibrationProblem` with a handful of exemplars and positives. Out: `SmallTree`: every node of the perfect tree
with its thresholds, its false positives and its loss, and what became of it in Algorithm 1: visited, pruned by bound
(observation 1) or by equivalence (observation 2), or never seen because a node above it was pruned.
It follows the letter of the paper: a positive that is accepted already still has a child for every exemplar. Everything
is recomputed from the scores at every node, so it can check the searches that are fast.
Not here: speed, and recall floors; `calibration.search` is for searching.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import InputError
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.search.algorithm1 import ALL_OBSERVATIONS

VISITED, BY_BOUND, BY_EQUIVALENCE, UNSEEN = "visited", "pruned by bound", "pruned by equivalence", "never seen"
PRUNED = (BY_BOUND, BY_EQUIVALENCE)


@dataclass(frozen=True)
class TreeNode:
    """A configuration of thresholds, and how the search came by it."""

    number: int  # its place in `SmallTree.nodes`; the root is 0
    parent: int | None
    children: tuple[int, ...]  # one for each exemplar that may cover the next positive, in their order; none at a leaf
    level: int  # how many positives are decided
    exemplar: int | None  # the edge to it: this exemplar was made to accept positive `order[level - 1]`
    thresholds: tuple[float, ...]
    false_positives: frozenset[int]  # negatives with a weight that some exemplar accepts
    loss: float
    fate: str = UNSEEN
    visit: int | None = None  # visit order, from 0


@dataclass(frozen=True)
class SmallTree:
    """The perfect tree, level by level."""

    order: tuple[int, ...]  # the positive of each level
    nodes: tuple[TreeNode, ...]
    best: int  # the leaf that the search ended with

    @property
    def depth(self) -> int:
        return len(self.order)

    @property
    def leaves(self) -> tuple[TreeNode, ...]:
        return tuple(node for node in self.nodes if node.level == self.depth)

    def path(self, number: int) -> tuple[int, ...]:
        """Nodes from the root to this one."""
        parent = self.nodes[number].parent
        return (number,) if parent is None else (*self.path(parent), number)

    def with_fate(self, fate: str) -> tuple[TreeNode, ...]:
        return tuple(node for node in self.nodes if node.fate == fate)


def small_tree(
    problem: CalibrationProblem,
    order: Sequence[int] | None = None,
    observations: Collection[int] = ALL_OBSERVATIONS,
    max_nodes: int = 5000,
) -> SmallTree:
    """Build the whole tree, then search it with some of the paper's observations.

    `order` names the positives that get a level, from the root down; by default all as they come. Observation 3 drops
    those that the root accepts, observation 4 puts the most difficult first. More than `max_nodes` nodes are an error.
    """
    sequence = _sequence(problem, range(problem.n_positives) if order is None else order, observations)
    n_nodes = _n_nodes(problem, sequence)
    if n_nodes > max_nodes:
        raise InputError(f"the tree has {n_nodes:,} nodes: small trees have at most {max_nodes:,}")
    nodes = _grow(problem, sequence)
    walk = _Walk(nodes, 1 in observations, 2 in observations)
    walk.enter(0)
    judged = [replace(n, fate=walk.fates[n.number], visit=walk.visits.get(n.number)) for n in nodes]
    return SmallTree(tuple(sequence), tuple(judged), walk.best)


def difficulty(problem: CalibrationProblem, positive: int) -> float:
    """Weight of the false positives that the cheapest exemplar makes when it accepts this positive (observation 4)."""
    costs = []
    for exemplar in _allowed(problem, positive):
        outscores = problem.negative_scores[:, exemplar] >= problem.positive_scores[positive, exemplar]
        costs.append(float(problem.negative_weights[outscores].sum()))
    return min(costs)


def _sequence(problem: CalibrationProblem, order: Sequence[int], observations: Collection[int]) -> list[int]:
    for positive in order:
        if not 0 <= positive < problem.n_positives:
            raise InputError(f"`order` must name positives from 0 to {problem.n_positives - 1}, got {positive}")
        if not _allowed(problem, positive):
            raise InputError(f"positive {positive} cannot be covered by any exemplar")
    sequence = [int(positive) for positive in order]
    if 4 in observations:
        sequence.sort(key=lambda positive: -difficulty(problem, positive))
    if 3 in observations:
        is_free = problem.covers(_tightest(problem))
        sequence = [positive for positive in sequence if not is_free[positive]]
    return sequence


def _tightest(problem: CalibrationProblem) -> tuple[float, ...]:
    """The thresholds of the root."""
    return tuple(float(problem.candidate_thresholds(j)[0]) for j in range(problem.n_exemplars))


def _allowed(problem: CalibrationProblem, positive: int) -> list[int]:
    """Exemplars that may cover a positive."""
    may_cover = problem.positive_scores[positive] > problem.lower_thresholds
    if problem.forbidden is not None:
        may_cover &= ~problem.forbidden[positive]
    return np.flatnonzero(may_cover).tolist()


def _n_nodes(problem: CalibrationProblem, sequence: Sequence[int]) -> int:
    widths = [1]
    for positive in sequence:
        widths.append(widths[-1] * len(_allowed(problem, positive)))
    return sum(widths)


def _grow(problem: CalibrationProblem, sequence: Sequence[int]) -> list[TreeNode]:
    """All nodes, level by level, children in the order of their exemplars."""
    candidates = [problem.candidate_thresholds(j) for j in range(problem.n_exemplars)]
    nodes = [_node(problem, 0, None, 0, None, _tightest(problem))]
    for number, parent in enumerate(nodes):  # which grows on the way
        if parent.level == len(sequence):
            continue
        positive, first = sequence[parent.level], len(nodes)
        for exemplar in _allowed(problem, positive):
            lowered = _lowered(parent.thresholds, exemplar, problem.positive_scores[positive, exemplar], candidates)
            nodes.append(_node(problem, len(nodes), number, parent.level + 1, exemplar, lowered))
        nodes[number] = replace(parent, children=tuple(range(first, len(nodes))))
    return nodes


def _node(
    problem: CalibrationProblem,
    number: int,
    parent: int | None,
    level: int,
    exemplar: int | None,
    thresholds: tuple[float, ...],
) -> TreeNode:
    accepted = problem.accepts(np.array(thresholds)) & (problem.negative_weights > 0)
    loss = float(problem.negative_weights[accepted].sum())
    return TreeNode(number, parent, (), level, exemplar, thresholds, frozenset(np.flatnonzero(accepted).tolist()), loss)


def _lowered(
    thresholds: tuple[float, ...], exemplar: int, score: float, candidates: Sequence[NDArray[np.floating]]
) -> tuple[float, ...]:
    """The thresholds after one exemplar is made to accept a score: its highest candidate that does, if it must move."""
    needed = float(candidates[exemplar][candidates[exemplar] < score].max())
    return (*thresholds[:exemplar], min(thresholds[exemplar], needed), *thresholds[exemplar + 1 :])


class _Walk:
    """Lines 4 to 15 of Algorithm 1: depth first, the cheapest child first."""

    def __init__(self, nodes: Sequence[TreeNode], by_bound: bool, by_equivalence: bool) -> None:
        self.nodes, self.by_bound, self.by_equivalence = nodes, by_bound, by_equivalence
        self.fates = [UNSEEN] * len(nodes)
        self.visits: dict[int, int] = {}
        self.best, self.best_loss = 0, math.inf

    def enter(self, number: int) -> None:
        node = self.nodes[number]
        self.fates[number], self.visits[number] = VISITED, len(self.visits)
        if not node.children:
            if node.loss < self.best_loss:
                self.best, self.best_loss = number, node.loss
            return
        entered: set[frozenset[int]] = set()
        for child in sorted(node.children, key=lambda c: self.nodes[c].loss):  # equal losses: by exemplar
            if self.by_bound and self.nodes[child].loss >= self.best_loss:
                self.fates[child] = BY_BOUND
            elif self.by_equivalence and self.nodes[child].false_positives in entered:
                self.fates[child] = BY_EQUIVALENCE
            else:
                entered.add(self.nodes[child].false_positives)
                self.enter(child)
