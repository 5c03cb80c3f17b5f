"""A bound that was tried: negatives share their price out to blocks of positives, and each block pays its own optimum.

In: a `RankedProblem`, the levels worth looking at, and shares of single positives. Out: the sum of what blocks prove, each
by a search of its own small problem: with any shares a bound, no less than that of single positives, and the optimum
where there is one block. `bench_blocks` says what it is worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.threads import Workers
from eesvm.calibration.anytime import Run
from eesvm.calibration.ranks import FORBIDDEN, RankedProblem
from eesvm.calibration.search.ascent import Shares
from eesvm.calibration.search.branching import ExactSearch
from eesvm.calibration.search.reduce import Levels, ReducedProblem

_UNITY = 2.0  # power of a likeness: the more, the fewer exemplars of a positive count
_NODES = 400  # boxes of the search of a block

F64 = NDArray[np.float64]


class BlockSearch(ExactSearch):
    """A search that does not look for what is better by less than the gap that is allowed."""

    def _margin(self) -> float:
        assert self.unit is not None
        return max(float(self.unit), self.run.gap / 2 * self.loss)


@dataclass
class _Part:
    """A block, its share of the prices, and what is proved about it."""

    positives: NDArray[np.intp]  # of the problem, ascending
    negatives: NDArray[np.intp]  # of the ranked problem, ascending, those of which it has a share
    quanta: NDArray[np.float64]  # of each, whole numbers
    likeness: NDArray[np.float64]  # (E,) which exemplars it depends on
    bound: float = 0.0  # no levels that cover the block cost less of its shares
    levels: Levels | None = None  # of the ranked problem, that cover it


class Blocks:
    """The blocks of a problem in which all positives must be covered."""

    def __init__(
        self, ranked: RankedProblem, highest: Levels, reduced: ReducedProblem, shares: Shares, size: int
    ) -> None:
        self.ranked, self.highest, self.size = ranked, highest, size
        self.parts = self._first_parts(reduced, shares)

    @property
    def bound(self) -> float:
        """What all blocks prove together, exact because amounts are whole quanta."""
        return float(sum(part.bound for part in self.parts))

    def solve(self, gap: float) -> None:
        """Search every block, up to a gap of its own."""
        for part in self.parts:
            if len(part.negatives):
                self._solve(part, gap)

    def share_anew(self, length: float) -> None:
        """Move shares to the blocks whose solutions pay for a negative, from those that do not (a supergradient)."""
        shares = np.zeros((len(self.parts), len(self.ranked.prices)))
        pays = np.zeros(shares.shape, dtype=bool)
        for k, part in enumerate(self.parts):
            shares[k, part.negatives] = part.quanta * self.ranked.quantum
            if part.levels is None:  # it never had a share, so nobody looked for what would cover it
                continue
            for row, level in zip(self.ranked.order, part.levels, strict=True):
                pays[k, row[:level]] = True
        active, n_paying = pays | (shares > 0), pays.sum(axis=0)
        step = np.where(active & (n_paying > 0), pays - n_paying / np.maximum(active.sum(axis=0), 1), 0.0)
        step[(shares <= 0) & (step < 0)] = 0
        shares = _projected(shares + length / max(float((step**2).sum()), 1e-9) * step, self.ranked.prices, active)
        for part, row in zip(self.parts, np.floor(shares / self.ranked.quantum), strict=True):
            part.negatives = np.flatnonzero(row > 0)
            part.quanta, part.bound = row[part.negatives], 0.0

    def _first_parts(self, reduced: ReducedProblem, shares: Shares) -> list[_Part]:
        """Positives that depend on the same exemplars together, the hardest first; each brings its shares."""
        likeness = _likeness(reduced.reach)
        left, groups = np.argsort(-reduced.difficulty, kind="stable"), []
        while len(left):
            nearest = np.argsort(-(likeness[left[1:]] @ likeness[left[0]]), kind="stable")[: self.size - 1] + 1
            members = np.append(0, nearest)
            groups.append(left[members])
            left = np.delete(left, members)
        group_of = np.full(len(self.ranked.delta), -1)
        for g, members in enumerate(groups):
            group_of[reduced.positives[members]] = g
        amounts = self._amounts(shares, group_of, len(groups))
        return [
            _Part(np.sort(reduced.positives[members]), *amounts[g], likeness[members].mean(axis=0))
            for g, members in enumerate(groups)
        ]

    def _amounts(
        self, shares: Shares, group_of: NDArray[Any], n_groups: int
    ) -> list[tuple[NDArray[np.intp], NDArray[np.float64]]]:
        """Of every group the negatives it has a share of, and how much; what nobody has goes to the largest share."""
        n = len(self.ranked.prices)
        group = np.repeat(group_of[shares.positives], np.diff(shares.start))
        is_in = group >= 0
        keys, place = np.unique(group[is_in] * n + shares.negatives[is_in], return_inverse=True)
        quanta = np.bincount(place, weights=shares.quanta[is_in], minlength=len(keys)).astype(np.float64)
        groups, negatives = np.divmod(keys, n)
        rest = np.floor(self.ranked.prices / self.ranked.quantum) - np.bincount(negatives, weights=quanta, minlength=n)
        by_share = np.lexsort((-quanta, negatives))
        is_first = np.ones(len(keys), dtype=bool)
        is_first[1:] = negatives[by_share][1:] != negatives[by_share][:-1]
        largest = by_share[is_first]
        quanta[largest] += rest[negatives[largest]]
        starts = np.searchsorted(groups, np.arange(n_groups + 1))
        return [(negatives[a:b], quanta[a:b]) for a, b in pairwise(starts.tolist())]

    def _solve(self, part: _Part, gap: float) -> None:
        ranked, run = self._ranked_part(part), Run(None, _NODES, gap)
        unit = Fraction(int(np.gcd.reduce(part.quanta.astype(np.int64)))) * Fraction(self.ranked.quantum)
        start = None if part.levels is None else self._levels_inside(part.positives, part.levels, ranked)
        levels, _ = BlockSearch(ranked, run, unit, Workers(1)).search(start)
        part.bound = math.floor(run.lower_bound / ranked.quantum) * ranked.quantum
        covered = (ranked.delta <= levels) & (ranked.delta != FORBIDDEN)
        part.levels = np.where(covered, self.ranked.delta[part.positives], 0).max(axis=0).astype(np.int32)

    def _levels_inside(self, positives: NDArray[np.intp], levels: Levels, ranked: RankedProblem) -> Levels:
        """The smallest levels of a block's own problem that cover what levels of the whole cover."""
        covered = (self.ranked.delta[positives] <= levels) & (ranked.delta != FORBIDDEN)
        return np.where(covered, ranked.delta, 0).max(axis=0).astype(np.int32)

    def _ranked_part(self, part: _Part) -> RankedProblem:
        """The problem of one block: its positives, the negatives of which it has a share, and what that is worth."""
        ranked, n = self.ranked, len(part.negatives)
        number = np.full(len(ranked.prices), -1, dtype=np.int32)
        number[part.negatives] = np.arange(n)
        prices = part.quanta * ranked.quantum
        delta = np.full((len(part.positives), ranked.n_exemplars), FORBIDDEN, dtype=np.int32)
        order = np.empty((ranked.n_exemplars, n), dtype=np.int32)
        costs = np.full(delta.shape, np.inf)
        for j, row in enumerate(ranked.order):
            inside = number[row[: self.highest[j]]]
            is_in = inside >= 0
            kept = inside[is_in]
            is_left = np.ones(n, dtype=bool)
            is_left[kept] = False
            order[j, : len(kept)], order[j, len(kept) :] = kept, np.flatnonzero(is_left)  # the rest is out of reach
            reach = ranked.delta[part.positives, j]
            alive = reach <= self.highest[j]
            delta[alive, j] = np.append(0, np.cumsum(is_in))[reach[alive]]
            costs[alive, j] = np.append(0.0, np.cumsum(prices[kept]))[delta[alive, j]]
        return RankedProblem(
            order=order,
            delta=delta,
            prices=prices,
            difficulty=costs.min(axis=1),
            coverable=np.arange(len(delta)),
            cheapest=costs.argmin(axis=1).astype(np.int32),
            positive_weights=np.ones(len(delta)),
            left_out_budget=0.0,
            is_exact=True,
            quantum=ranked.quantum,
        )


def _likeness(reach: NDArray[Any]) -> NDArray[np.float64]:
    """(P', E) how much each positive depends on each exemplar: rows of length 1, large where covering is cheap."""
    cheap = np.where(reach > 0, 1 / (1 + reach.astype(np.float64)), 0.0)
    cheap = (cheap / np.maximum(cheap.max(axis=1, keepdims=True), 1e-300)) ** _UNITY
    return np.asarray(cheap / np.maximum(np.linalg.norm(cheap, axis=1, keepdims=True), 1e-300))


def _projected(shares: F64, prices: NDArray[Any], active: NDArray[np.bool_]) -> F64:
    """The nearest shares >= 0 of the active blocks that add up to the price of each negative."""
    falling = -np.sort(-np.where(active, shares, -1e18), axis=0)
    excess = np.cumsum(falling, axis=0) - prices
    count = np.arange(1, len(shares) + 1)[:, None]
    n_kept = np.maximum((falling * count > excess).sum(axis=0), 1)
    cut = excess[n_kept - 1, np.arange(shares.shape[1])] / n_kept
    return np.where(active, np.maximum(shares - cut, 0.0), 0.0)
