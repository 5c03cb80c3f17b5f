"""Depth-first search inside a box whose shares are known, and the bounds of the children of a positive.

In: a leaf of a `Proof` and the ascent that ended there. Out: the same box solved, as splits and leaves of the proof, or
a positive whose children are a good way to split the box.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.ranks import RankedProblem
from eesvm.calibration.search import dive_kernels as kernels
from eesvm.calibration.search.ascent import Ascent, Evaluation
from eesvm.calibration.search.proof import Leaf, Proof

_MAX_EVENTS = 200_000  # in the story of one search
_MAX_NOTES = 4_000_000
_CANDIDATES, _CLOSE_CANDIDATES = 64, 3  # positives whose cost, and whose children, are looked at to split a box
_BRANCHING_WORK = 2e8  # numbers looked at while that is done, about


@dataclass(frozen=True)
class Branching:
    """A positive and what is known about its children, in whole quanta."""

    positive: int  # of the problem
    exemplars: NDArray[np.int32]  # (C,)
    levels: NDArray[np.int64]  # (C,)
    bounds: NDArray[np.float64]  # (C,)


class Dive:
    """Everything that a search below one leaf needs."""

    def __init__(
        self, ranked: RankedProblem, leaf: Leaf, ascent: Ascent, evaluation: Evaluation, quantum: float
    ) -> None:
        reduced = ascent.problem
        n_positives, n_exemplars = reduced.reach.shape
        self.positives, self.leaf = reduced.positives, leaf
        is_accepted = np.zeros(len(ranked.prices), dtype=bool)
        for row, level in zip(ranked.order, leaf.box.lowest, strict=True):
            is_accepted[row[:level]] = True
        price = np.floor(ranked.prices / quantum)
        self.state = kernels.State(
            leaf.box.lowest.astype(np.int64),
            leaf.box.highest.astype(np.int64),
            np.zeros(n_exemplars, dtype=np.int64),
            is_accepted,
            np.zeros(n_positives, dtype=bool),
            ascent.costs(evaluation),
            evaluation.values.copy(),
            evaluation.cheapest.copy(),
        )
        far = np.where(reduced.reach > 0, reduced.reach.astype(np.int64), np.iinfo(np.int64).max)
        self.field = kernels.Field(
            ranked.order,
            reduced.row_of,
            reduced.rank,
            reduced.reach,
            np.ascontiguousarray(np.argsort(far, axis=0, kind="stable").T.astype(np.int32)),
            np.argsort(-reduced.difficulty, kind="stable"),
            price,
            ascent.entry_start,
            ascent.entry,
            np.repeat(np.arange(n_positives), np.diff(ascent.start)).astype(np.int32),
            evaluation.quanta,
        )
        self._sort_by_cost(_CANDIDATES)
        if self.costs.max(initial=0) == 0:
            self._sort_by_cost(n_positives)
        self.sums = np.array([price[is_accepted].sum(), evaluation.values.sum()])
        n_notes = min(_MAX_NOTES, 64 * n_positives + n_positives * n_positives)
        self.trail = kernels.Trail(
            np.empty(len(ranked.prices), dtype=np.int32),
            np.empty(n_positives, dtype=np.int32),
            np.empty(n_notes, dtype=np.int32),
            np.empty(n_notes),
            np.empty(n_notes, dtype=np.int32),
            np.full(n_positives, -1, dtype=np.int64),
        )

    def _sort_by_cost(self, n: int) -> None:
        """The first `n` of the sequence by what they would still cost, most first."""
        candidates = self.field.sequence[:n].copy()
        costs = np.zeros(len(candidates))
        kernels.least_costs(self.field, self.state, candidates, costs)
        by_cost = np.argsort(-costs, kind="stable")
        self.field.sequence[:n], self.costs = candidates[by_cost], costs[by_cost]

    def best_branching(self, most: float) -> Branching | None:
        """Of the most difficult positives the one whose weakest child has the best bound; None where there is none.

        Children that cost more than `most` by their price alone are left out.
        """
        best, work = None, 0
        for p, cost in zip(self.field.sequence[:_CLOSE_CANDIDATES], self.costs, strict=False):
            if cost == 0 or work >= _BRANCHING_WORK:
                break
            child = np.empty(self.field.reach.shape[1], dtype=np.int32)
            bound = np.empty(len(child))
            budget = _BRANCHING_WORK - work
            n, done = kernels.child_bounds(
                self.field, self.state, self.trail, self.sums.copy(), p, most, budget, child, bound
            )
            work += done
            levels = self.field.reach[p, child[:n]].astype(np.int64)
            branching = Branching(int(self.positives[p]), child[:n].copy(), levels, bound[:n].copy())
            if n == 0:
                return branching
            if best is None or branching.bounds.min() > best.bounds.min():
                best = branching
        return best

    def search(self, best: float, margin: float, budget: float) -> tuple[bool, float, NDArray[np.int64], int]:
        """Search depth first: (whether it finished, the best loss, its levels, nodes); all in whole quanta."""
        self.events = np.empty((_MAX_EVENTS, 3), dtype=np.int32)
        levels = np.zeros(len(self.state.level), dtype=np.int64)
        outcome, best, n_nodes, n_events = kernels.dive(
            self.field, self.state, self.trail, self.sums.copy(), best, margin, levels, budget, self.events
        )
        self.events = self.events[:n_events]
        return outcome == kernels.FINISHED, float(best), levels, int(n_nodes)

    def enter(self, proof: Proof, loss: float) -> None:
        """Write the finished search into the proof, all of whose new leaves are closed at `loss`.

        There may be hundreds of thousands, which nobody looks into again: they all keep the box of the leaf they were.
        """
        if len(self.events) == 0:
            return
        splits, leaves = proof.splits, proof.leaves
        top = leaves.pop(self.leaf.node)
        stack: list[int] = []  # what is left, once the children so far are forbidden, of the nodes above
        node, level_of = top.node, self.field.reach
        for p, exemplar, what in self.events.tolist():
            if exemplar < 0:
                owner = int(self.positives[p]) if what == kernels.BY_POSITIVE else top.owner
                leaves[node] = Leaf(node, top.box, loss, top.shares, top.price, owner)
                if stack:
                    node = stack.pop()
            elif what != kernels.FREE:  # which is no choice, so no split
                opened = len(splits)
                splits[node] = (exemplar, int(level_of[p, exemplar]), opened, opened + 1)
                splits += (None, None)
                if what == kernels.BY_SHARES:
                    leaves[opened] = Leaf(opened, top.box, loss, top.shares, top.price, top.owner)
                    node = opened + 1
                else:
                    stack.append(opened + 1)
                    node = opened
