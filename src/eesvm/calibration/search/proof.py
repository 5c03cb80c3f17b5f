"""A proof under construction: a binary tree of boxes, with shares at its leaves.

In: splits and bounds, as a search finds them. Out: at any time the bound that all leaves together prove, and the
`Certificate` that others can check.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import FloatArray
from eesvm.calibration.certificate import Certificate
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.ranks import RankedProblem
from eesvm.calibration.search.ascent import Shares
from eesvm.calibration.search.reduce import Box


@dataclass(eq=False)
class Leaf:
    """A node that has not been split, with what is proved about its box."""

    node: int
    box: Box
    bound: float  # no solution in the box costs less
    shares: Shares | None = None  # that prove the bound
    price: float = 0.0  # of leaving out a unit of weight
    owner: int = -1  # the positive to which all prices belong, in place of `shares`


class Proof:
    """Node 0 is the root. `splits[node]` is (exemplar, level, open child, shut child), None for a leaf."""

    def __init__(self, box: Box) -> None:
        self.splits: list[tuple[int, int, int, int] | None] = [None]
        self.leaves: dict[int, Leaf] = {0: Leaf(0, box, 0.0)}
        self.cutoff = math.inf  # levels that cost as much are outside the box of the root
        self.highest = box.highest  # (E,) levels of that box

    def bound(self) -> float:
        return min(self.cutoff, min((leaf.bound for leaf in self.leaves.values()), default=math.inf))

    def split(self, leaf: Leaf, exemplar: int, level: int) -> tuple[Leaf, Leaf]:
        """Replace a leaf by two: `exemplar` reaches `level`, or stays below it. Both inherit bound and shares."""
        lowest, highest = leaf.box.lowest.copy(), leaf.box.highest.copy()
        lowest[exemplar], highest[exemplar] = level, level - 1
        first = len(self.splits)
        self.splits += [None, None]
        self.splits[leaf.node] = (exemplar, level, first, first + 1)
        del self.leaves[leaf.node]
        children = (
            Leaf(first, Box(lowest, leaf.box.highest), leaf.bound, leaf.shares, leaf.price, leaf.owner),
            Leaf(first + 1, Box(leaf.box.lowest, highest), leaf.bound, leaf.shares, leaf.price, leaf.owner),
        )
        for child in children:
            self.leaves[child.node] = child
        return children

    def share_sets(self) -> list[tuple[Shares, float]]:
        """Every set of shares that some leaf uses, with its price."""
        found: dict[int, tuple[Shares, float]] = {}
        for node in sorted(self.leaves):
            leaf = self.leaves[node]
            if leaf.shares is not None and leaf.owner < 0:
                found.setdefault(id(leaf.shares), (leaf.shares, leaf.price))
        return list(found.values())

    def certificate(
        self,
        problem: CalibrationProblem,
        ranked: RankedProblem,
        min_recall: float,
        quantum: float,
        detector_price: float = 0.0,
    ) -> Certificate:
        """The proof in terms of scores, windows and exemplars."""
        sets = self.share_sets()
        number = {id(shares): k for k, (shares, _) in enumerate(sets)}
        n_nodes = len(self.splits)
        exemplar, score = np.full(n_nodes, -1, dtype=np.int32), np.zeros(n_nodes)
        open_child, shut_child, shares_of = (np.full(n_nodes, -1, dtype=np.int32) for _ in range(3))
        highest_score = ScoresOfLevels(problem, ranked)
        for node, split in enumerate(self.splits):
            if split is not None:
                exemplar[node], open_child[node], shut_child[node] = split[0], split[2], split[3]
                score[node] = highest_score(split[0], split[1])
        for node, leaf in self.leaves.items():
            if leaf.owner >= 0:
                shares_of[node] = -2 - leaf.owner
            elif leaf.shares is not None:
                shares_of[node] = number[id(leaf.shares)]
        negatives = np.flatnonzero((problem.negative_weights > 0) & ~problem.forced())
        parts = [shares for shares, _ in sets]
        n_rows = [len(part.positives) for part in parts]
        entries = [np.diff(part.start) for part in parts]
        return Certificate(
            min_recall=min_recall,
            cutoff=self.cutoff + ranked.fixed_loss,
            ceiling=ceiling_of(problem, ranked, self.cutoff, self.highest),
            split_exemplar=exemplar,
            split_score=score,
            open_child=open_child,
            shut_child=shut_child,
            shares_of=shares_of,
            set_start=np.concatenate([[0], np.cumsum(n_rows)]).astype(np.int64),
            share_positive=_joined([part.positives for part in parts], np.int32),
            row_start=np.concatenate([[0], np.cumsum(_joined(entries, np.int64))]).astype(np.int64),
            share_negative=_joined([negatives[part.negatives] for part in parts], np.int32),
            share_amount=_joined([part.quanta for part in parts], np.int64),
            price=np.array([price for _, price in sets]),
            quantum=quantum,
            detector_price=detector_price,
            weight_cap=ranked.cap,
        )

    def cut_off(self, cutoff: float, box: Box) -> None:
        """Narrow the root, which must be a leaf, to the levels that cost less than a known solution."""
        self.cutoff, self.highest = cutoff, box.highest
        self.leaves[0].box = box


def ceiling_of(
    problem: CalibrationProblem, ranked: RankedProblem, cutoff: float, highest: NDArray[np.int32]
) -> FloatArray:
    """(E,) the highest score among the pairs that a cutoff has put above the `highest` levels.

    Pairs that ranking has left out as useless are among them; pairs that the problem forbids are not.
    """
    ceiling = np.full(ranked.n_exemplars, -np.inf, dtype=problem.positive_scores.dtype)
    if cutoff < math.inf:
        for j in range(ranked.n_exemplars):
            scores = problem.positive_scores[:, j]
            is_dead = (ranked.delta[:, j] > highest[j]) & (scores > problem.lower_thresholds[j])
            if problem.forbidden is not None:
                is_dead &= ~problem.forbidden[:, j]
            ceiling[j] = scores[is_dead].max(initial=-np.inf)
    return ceiling


class ScoresOfLevels:
    """The highest score of a positive that has a given level under an exemplar: what a split looks like in scores."""

    def __init__(self, problem: CalibrationProblem, ranked: RankedProblem) -> None:
        self.problem, self.ranked = problem, ranked
        self.known: dict[tuple[int, int], float] = {}

    def __call__(self, exemplar: int, level: int) -> float:
        if (exemplar, level) not in self.known:
            at_level = self.ranked.delta[:, exemplar] == level
            self.known[exemplar, level] = float(self.problem.positive_scores[at_level, exemplar].max())
        return self.known[exemplar, level]


def _joined(parts: list[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype=dtype), *parts]).astype(dtype)
