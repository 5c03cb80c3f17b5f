"""The least loss at a recall floor with few exemplars in use, by boxes of levels that are bounded column by column.

In: a `RankedProblem` that adds a price to the cost of every exemplar, and levels that keep the limit. Out: as from
`ColumnSearch`, of which this is a variant. Losses here are those of the problem plus the price for all that may be in
use, which no solution exceeds (docs/maths.md, section 9).
"""

from __future__ import annotations

import heapq
import math
from fractions import Fraction

import numpy as np

from eesvm._support.threads import Workers
from eesvm._support.validation import InputError
from eesvm.calibration.anytime import Run
from eesvm.calibration.ranks import RankedProblem
from eesvm.calibration.search.column_search import ColumnSearch
from eesvm.calibration.search.columns import Multipliers
from eesvm.calibration.search.detector_limit import DetectorLimit
from eesvm.calibration.search.heuristics import loss_of_levels
from eesvm.calibration.search.neighbourhoods import NeighbourhoodSearch
from eesvm.calibration.search.proof import Leaf
from eesvm.calibration.search.reduce import Box, Levels, cheap_box

_FIRST_WALKS = 8


class LimitedSearch(ColumnSearch):
    """The state of one search."""

    def __init__(
        self,
        ranked: RankedProblem,
        run: Run,
        unit: Fraction | None,
        workers: Workers,
        random_state: int,
        limit: DetectorLimit,
    ) -> None:
        super().__init__(ranked, run, unit, workers, random_state)
        self.limit = limit

    def search(self, start: Levels | None = None) -> tuple[Levels, str]:
        """Search from levels that keep the limit, until the proof is complete or a limit is reached."""
        assert start is not None
        self._prepare()
        self._plain = self.limit.without_price(self.ranked)
        self._random = np.random.default_rng(self.random_state)
        self.levels, self.loss = start, math.inf
        self._adopt(start)
        for _ in range(_FIRST_WALKS):
            if self._status() is None:
                self._walk(self._n_moves())
        self.proof.cut_off(self.loss, cheap_box(self.ranked, self.loss))
        self._push(self.proof.leaves[0])
        while self.queue and self._status() is None:
            self._take(self.proof.leaves[heapq.heappop(self.queue)[1]])
            self.n_taken += 1
            self._record()
        self._write_shares()
        self.statistics["leaves"] = len(self.proof.leaves)
        self.statistics["shares"] = sum(len(shares.quanta) for shares, _ in self.proof.share_sets())
        return self.levels, self._status() or "optimal"

    def _narrow(self, leaf: Leaf) -> bool:
        box = self.limit.within(leaf.box)
        if box is None:
            leaf.bound = math.inf
            return False
        leaf.box = box
        return True

    def _proved(self, multipliers: Multipliers, box: Box) -> tuple[float, float]:
        """The better of what is proved with the price, and what the lowest levels pay without."""
        bound, price = super()._proved(multipliers, box)
        paid = self.limit.paid_quanta(self.ranked, box, self.quantum, self.unit is not None) * self.quantum
        return max(bound, self._possible_loss(paid + self.limit.most * self.limit.price)), price

    def _adopt(self, levels: Levels) -> None:
        n_free = self.limit.most - self.limit.n_used(levels)
        loss = loss_of_levels(self.ranked, levels) + n_free * self.limit.price
        if n_free >= 0 and loss < self.loss:
            self.levels, self.loss, self.n_idle = levels.astype(np.int32), loss, 0
            self._record()

    def _walk(self, n_moves: int) -> None:
        """A walk among the exemplars in use, some of them exchanged."""
        self.n_idle += 1
        top = np.full(self.ranked.n_exemplars, self.ranked.order.shape[1], dtype=np.int32)
        highest = self.limit.reach(self.levels, top, self._random)
        try:
            walker = NeighbourhoodSearch(self._plain, self.levels, self.random_state + self.n_idle, highest=highest)
        except InputError:  # these do not reach the floor
            return
        walker.step(n_moves)
        self._adopt(walker.best_levels)
