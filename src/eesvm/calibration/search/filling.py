"""Solutions within a budget: levels are raised greedily while there is room, and judged exactly.

In: a `RankedProblem`, what may be paid, and how many exemplars may be in use. Out: levels, and what they leave out.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from eesvm.calibration.goal import Allowance
from eesvm.calibration.ranks import RankedProblem
from eesvm.calibration.search.detector_limit import DetectorLimit
from eesvm.calibration.search.fill_kernels import fill
from eesvm.calibration.search.heuristics import loss_of_levels
from eesvm.calibration.search.reduce import Levels


class Filling:
    """What is needed to raise and to judge levels; `highest` are those that a solution may take at most."""

    def __init__(self, ranked: RankedProblem, permitted: Allowance, limit: DetectorLimit, highest: Levels) -> None:
        self.permitted, self.limit, self.highest = permitted, limit, highest
        self.plain = limit.without_price(ranked)
        self._prices = self.plain.prices.astype(np.float64)
        self._delta = np.ascontiguousarray(ranked.delta[ranked.coverable])
        self._by_delta = np.argsort(self._delta.T, axis=1, kind="stable")
        self._units = ranked.positive_weights[ranked.coverable]

    def raised(self, levels: Levels) -> Levels:
        """The levels, raised by the steps that cover most for what they cost."""
        levels = levels.astype(np.int32).copy()
        is_accepted = np.zeros(len(self._prices), dtype=bool)
        for row, level in zip(self.plain.order, levels, strict=True):
            is_accepted[row[:level]] = True
        is_covered = (self._delta <= levels).any(axis=1)
        room = float(self.permitted.at(int(self._units[~is_covered].sum()))) - float(self._prices[is_accepted].sum())
        fill(
            self.plain.order, self._delta, self._by_delta, self._units, self._prices, self.highest,
            float(self.permitted.rate), room, self.limit.most - self.limit.n_used(levels), self.limit.is_free, levels,
            is_accepted, is_covered,
        )  # fmt: skip
        return levels

    def left_out(self, levels: Levels) -> float:
        """Recall units that the levels leave out."""
        return float(self._units[~(self._delta <= levels).any(axis=1)].sum())

    def loss(self, levels: Levels) -> float:
        """What the levels pay, without a price on exemplars."""
        return loss_of_levels(self.plain, levels)

    def permits(self, levels: Levels) -> bool:
        """Whether the levels keep the budget and the limit."""
        if self.limit.n_used(levels) > self.limit.most:
            return False
        return Fraction(self.loss(levels)) <= self.permitted.at(int(self.left_out(levels)))
