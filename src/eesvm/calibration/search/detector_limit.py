"""A limit on the number of exemplars in use: what a search by boxes has to know about it.

In: how many, and a price for each that is in use. Out: smaller boxes, and who may be raised. Exemplars that an upper
threshold keeps in use are counted before (docs/maths.md, section 9).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.ranks import RankedProblem
from eesvm.calibration.search.reduce import Box, Levels


@dataclass(frozen=True)
class DetectorLimit:
    """At most `most` of the exemplars `is_free`, those that can be switched off, are in use."""

    most: int
    price: float  # that the ranked problem adds to the cost of each
    is_free: NDArray[np.bool_]  # (E,)

    @classmethod
    def none(cls, n_exemplars: int) -> DetectorLimit:
        return cls(n_exemplars, 0.0, np.zeros(n_exemplars, dtype=bool))

    def used(self, levels: Levels) -> NDArray[np.bool_]:
        """(E,) the free exemplars in use; a level of 0 is off."""
        return (levels > 0) & self.is_free

    def n_used(self, levels: Levels) -> int:
        return int(self.used(levels).sum())

    def paid_quanta(self, ranked: RankedProblem, box: Box, quantum: float, is_exact: bool) -> int:
        """What the lowest levels of a box pay without the price, in whole quanta as proofs count them."""
        accepted = np.zeros(len(ranked.prices), dtype=bool)
        for row, level in zip(ranked.order, box.lowest, strict=True):
            accepted[row[:level]] = True
        paid = int(np.floor(self.without_price(ranked).prices[accepted] / quantum).sum())
        return paid if is_exact else max(0, paid - int(self.is_free.sum()))

    def without_price(self, ranked: RankedProblem) -> RankedProblem:
        """The ranked problem as it is without the price of exemplars, but for what it says of single positives."""
        if not self.is_free.any():
            return ranked
        prices = ranked.prices.astype(np.float64)
        # The negative that is the cost of an exemplar is the first that it accepts.
        prices[ranked.order[self.is_free, 0]] = np.maximum(prices[ranked.order[self.is_free, 0]] - self.price, 0.0)
        return replace(ranked, prices=prices)

    def within(self, box: Box) -> Box | None:
        """What the limit leaves of a box, None where that is nothing: once enough are open, all others are shut."""
        n_open = self.n_used(box.lowest)
        if n_open > self.most:
            return None
        if n_open < self.most:
            return box
        return Box(box.lowest, np.where(self.used(box.lowest) | ~self.is_free, box.highest, 0).astype(np.int32))

    def reach(self, levels: Levels, highest: Levels, random: np.random.Generator) -> Levels:
        """(E,) the highest levels for a walk among the exemplars in use, some of them exchanged for others."""
        used = self.used(levels)
        inside, outside = np.flatnonzero(used), np.flatnonzero(self.is_free & ~used)
        n_dropped = int(random.integers(1, 3)) if len(inside) == self.most else 0
        used[random.permutation(inside)[:n_dropped]] = False
        used[random.permutation(outside)[: self.most - int(used.sum())]] = True
        return np.where(used | ~self.is_free, highest, 0).astype(np.int32)
