"""The exact search for few exemplars and a recall floor: boxes of levels, bounded column by column.

In: a `RankedProblem` in which positives may be left out. Out: as from `ExactSearch`, of which this is a variant. Where
exemplars are few, a bound that lets every exemplar choose its level (`columns`) is improved within milliseconds. What
it says about single levels cuts most of a box off, and the rest is split where the choice of a level is least decided
(docs/maths.md, section 7).
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.search.ascent import Shares
from eesvm.calibration.search.branching import ExactSearch
from eesvm.calibration.search.columns import Columns, Multipliers, Position
from eesvm.calibration.search.proof import Leaf
from eesvm.calibration.search.reduce import Box, Levels

MOST_EXEMPLARS = 32  # for which this search is the better one
_STEPS, _ROOT_CHUNKS = 60, 16  # of the ascent in every box; the root gets as many for several times
_PATIENCE = 12  # steps without progress before the ascent aims lower
_ROUNDS = 5  # of ascent and cutting off, before a box is split
_WORTH_CUTTING = 0.1  # of the levels of an exemplar
_WALK_EVERY = 4  # boxes between two rounds of neighbourhood search
_MARGIN = 1e-3  # of the least improvement: how far the ascent goes beyond what is enough


class ColumnSearch(ExactSearch):
    """The state of one search."""

    def search(self, start: Levels | None = None) -> tuple[Levels, str]:
        """Search until the proof is complete or a limit is reached: (levels, status)."""
        self._prepare()
        levels, status = super().search(start)
        self._write_shares()
        self.statistics["shares"] = sum(len(shares.quanta) for shares, _ in self.proof.share_sets())
        return levels, status

    def _prepare(self) -> None:
        self.columns = Columns(self.ranked, self.quantum)
        self.evidence: dict[int, tuple[Multipliers, float]] = {}  # by leaf: what proves its bound, with its price
        self.taken: Leaf | None = None
        self.least_closed = np.inf
        self.statistics |= {"boxes": 0, "cuts": 0, "steps": 0}

    def _write_shares(self) -> None:
        """Give every leaf the shares that prove its bound."""
        written: dict[int, Shares] = {}
        for node, (multipliers, price) in self.evidence.items():
            leaf = self.proof.leaves[node]
            if id(multipliers) not in written:
                written[id(multipliers)] = self.columns.shares(multipliers)
            leaf.shares, leaf.price, leaf.owner = written[id(multipliers)], price, -1

    def _record(self) -> None:
        if self.taken is None:
            super()._record()
            return
        bound = min(self.least_closed, self.taken.bound, self.queue[0][0] if self.queue else np.inf)
        self.run.record(self.loss, min(self.loss, bound), len(self.proof.splits), n_limited=self.n_taken)

    def _push(self, leaf: Leaf) -> None:
        if self._is_closed(leaf.bound):
            self.least_closed = min(self.least_closed, leaf.bound)
        else:
            heapq.heappush(self.queue, (leaf.bound, leaf.node))

    def _take(self, leaf: Leaf) -> None:
        """Improve the bound of a box, cut off what can not hold anything better, and split the rest."""
        self.taken = leaf
        if not self._narrow(leaf):
            self._push(leaf)
            return
        self.statistics["boxes"] += 1
        if self.statistics["boxes"] % _WALK_EVERY == 0:
            self._walk(self._n_moves())
        self._try(leaf.box.lowest)
        position = self._begin(leaf)
        for turn in range(_ROUNDS):
            steps = self._climb_columns(leaf, position)
            if self._is_closed(leaf.bound) or self._status() is not None:
                break
            rest = self._cut_off(leaf, position) if turn + 1 < _ROUNDS else leaf
            if rest is leaf:
                self._split(leaf, position, steps)
                return
            self.taken = leaf = rest
            if not self._narrow(leaf):
                break
            position = self.columns.begin_inside(leaf.box, position)
        self._push(leaf)
        self._record()

    def _narrow(self, leaf: Leaf) -> bool:
        """Leave out of a box what can hold no solution; False, and a bound to match, where nothing is left."""
        return True

    def _begin(self, leaf: Leaf) -> Position:
        if leaf.node not in self.evidence:
            return self.columns.begin(leaf.box)
        return self.columns.begin_from(leaf.box, self.evidence[leaf.node][0])

    # Bounds

    def _target(self) -> float:
        """The bound that closes a box, and a little more against what rounding takes away."""
        if self.unit is not None and self._margin() == self.unit:
            return self.loss - (1 - _MARGIN) * float(self.unit)
        return self.loss - self._margin() / 4

    def _climb_columns(self, leaf: Leaf, position: Position) -> NDArray[np.int64]:
        """Raise the bound of a leaf as far as some steps do; returns the levels that were chosen on the way."""
        paid, play = self._paid(leaf.box), position.play
        steps = np.empty((0, self.ranked.n_exemplars), dtype=np.int64)
        if self.columns.spare(play) >= 0 and len(play.negatives) == 0:  # all that is in play is free
            self._try(self.columns.highest_useful(position))
            self._settle(leaf, position)
            self.evidence.pop(leaf.node, None)
            return steps
        for _ in range(_ROOT_CHUNKS if leaf.node == 0 else 1):
            if self.columns.spare(play) >= 0:
                _, steps = self.columns.ascend(position, self._target() - paid, _STEPS, _PATIENCE)
                self.statistics["steps"] += len(steps)
            self._prove(leaf, position)
            if leaf.node != 0 or self._is_closed(leaf.bound) or self._status() is not None:
                break
            self._walk(self._n_moves())
        return steps

    def _settle(self, leaf: Leaf, position: Position) -> None:
        """The bound of a box in which all that is in play is free, after its best solution was tried."""
        leaf.bound = self._settled()

    def _prove(self, leaf: Leaf, position: Position) -> None:
        """Take over what a position proves about its box, if it is no less than what is known."""
        multipliers = position.multipliers(self._is_precise())
        bound, price = self._proved(multipliers, leaf.box)
        if bound >= leaf.bound:
            leaf.bound = bound
            self.evidence[leaf.node] = multipliers, price
            self._record()

    def _proved(self, multipliers: Multipliers, box: Box) -> tuple[float, float]:
        """The bound that multipliers prove for their box, and the price of leaving out that it needs."""
        value, price = self.columns.proved(multipliers, self.loss)
        return self._possible_loss(self._paid(box) + value), price

    def _is_precise(self) -> bool:
        """Whether multipliers have to be kept in full precision."""
        return self._margin() < 1e-4 * self.loss

    # Smaller boxes

    def _cut_off(self, leaf: Leaf, position: Position) -> Leaf:
        """Cut levels off that can be shown to hold nothing better; returns the leaf of what is left."""
        first, last = self.columns.useful_levels(position, self._target() - self._paid(leaf.box))
        for j in range(len(first)):
            levels = self.columns.levels(position, j)
            if len(levels) < 2:
                continue
            below, above = levels[levels < first[j]], levels[levels > last[j]]
            if first[j] > leaf.box.lowest[j] and len(below) + 1 >= _WORTH_CUTTING * len(levels):
                leaf = self._cut(leaf, position, j, int(first[j]), is_above=False)
            if len(above) > 0 and len(above) >= _WORTH_CUTTING * len(levels):
                leaf = self._cut(leaf, position, j, int(above[0]), is_above=True)
        return leaf

    def _cut(self, leaf: Leaf, position: Position, exemplar: int, level: int, is_above: bool) -> Leaf:
        """Split at a level if one side can be shown to hold nothing better; returns the leaf of the other side."""
        lowest, highest = leaf.box.lowest.copy(), leaf.box.highest.copy()
        if is_above:
            lowest[exemplar] = level
        else:
            highest[exemplar] = level - 1
        box = Box(lowest, highest)
        multipliers = self.columns.begin_inside(box, position).multipliers(self._is_precise())
        bound, price = self._proved(multipliers, box)
        if not self._is_closed(bound):
            return leaf
        opened, shut = self._divide(leaf, exemplar, level)
        closed, rest = (opened, shut) if is_above else (shut, opened)
        closed.bound = max(closed.bound, bound)
        self.evidence[closed.node] = multipliers, price
        self.statistics["cuts"] += 1
        self._push(closed)
        return rest

    def _divide(self, leaf: Leaf, exemplar: int, level: int) -> tuple[Leaf, Leaf]:
        """Split a leaf; both sides inherit what proves its bound."""
        children = self.proof.split(leaf, exemplar, level)
        evidence = self.evidence.pop(leaf.node, None)
        for child in children:
            if evidence is not None:
                self.evidence[child.node] = evidence
        return children

    def _split(self, leaf: Leaf, position: Position, steps: NDArray[np.int64]) -> None:
        """Split a box where the levels chosen on the way differ most."""
        exemplar, level = self.columns.undecided(position, steps[len(steps) // 3 :])
        if exemplar < 0:  # nothing is left to decide, and rounding stands between the bound and the solution
            self.least_closed = min(self.least_closed, leaf.bound)
            return
        self.statistics["splits"] += 1
        for child in self._divide(leaf, exemplar, level):
            self._push(child)
        self._record()
