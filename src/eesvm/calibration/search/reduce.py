"""Exact reductions: what an improvement on a known solution can not use is left out (docs/maths.md, section 3).

In: a `RankedProblem` and a *box*, the lowest and highest level that each exemplar may take. Out: `ReducedProblem`, the
positives and negatives that still matter, as ranks and reaches laid out for the ascent.

1. Satisfied positives: covered by the lowest levels, or coverable without any negative.
2. Levels that cost as much as the known solution are dead, and with them their pairs.
3. Dominated positives: covered whenever some other positive is.
4. Negatives that no live level accepts, or that the lowest levels accept already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.ranks import RankedProblem
from eesvm.calibration.search import ascent_kernels as _ascent_kernels

Levels = NDArray[np.int32]


@dataclass(frozen=True)
class Box:
    """The levels that are still considered: lowest[j] <= level of j <= highest[j]."""

    lowest: Levels  # (E,)
    highest: Levels  # (E,)


@dataclass(frozen=True)
class ReducedProblem:
    """What is left of a problem inside a box."""

    positives: NDArray[np.intp]  # (P',) which positives of the problem
    negatives: NDArray[np.intp]  # (N',) which negatives of the ranked problem
    rank: NDArray[np.uint16] | NDArray[np.int32]  # (N', E) place of each negative under each exemplar, capped
    reach: NDArray[np.uint16] | NDArray[np.int32]  # (P', E) delta, 0 where the pair is dead
    row_of: NDArray[np.int32]  # (N,) row of each negative of the ranked problem, -1 for those left out
    prices: NDArray[np.float64]  # (N',)
    weights: NDArray[np.float64]  # (P',) of the positives towards the recall floor
    difficulty: NDArray[np.float64]  # (P',) cost of the cheapest exemplar before anything is accepted
    left_out_budget: float  # total weight of positives that may stay uncovered


def cheap_box(ranked: RankedProblem, cutoff: float) -> Box:
    """All levels that cost less than `cutoff`."""
    n_exemplars, highest_level = ranked.order.shape
    if ranked.prices.dtype == np.uint8:
        highest = np.full(n_exemplars, min(highest_level, max(0.0, np.ceil(cutoff) - 1)), dtype=np.int32)
    else:
        limit = cutoff + ranked.rounding_slack(cutoff)  # in doubt a level is alive
        highest = np.array(
            [np.searchsorted(np.cumsum(ranked.prices[row]), limit, side="left") for row in ranked.order], dtype=np.int32
        )
    return Box(np.zeros(n_exemplars, dtype=np.int32), highest)


def reduce(ranked: RankedProblem, box: Box) -> ReducedProblem:
    """Leave out what is satisfied, dead or dominated. A positive without a live pair stays, with an empty reach."""
    alive = ranked.delta <= box.highest  # never true of a forbidden pair
    open_positives = ranked.coverable[~(ranked.delta[ranked.coverable] <= box.lowest).any(axis=1)]
    alive, delta = alive[open_positives], ranked.delta[open_positives]
    if ranked.left_out_budget == 0:
        totals = np.where(alive, delta, len(ranked.prices) + 1).sum(axis=1, dtype=np.int64)
        reach = np.where(alive, delta, 0)
        kept = np.sort(_ascent_kernels.undominated(reach, np.argsort(-totals, kind="stable")))
        open_positives, reach = open_positives[kept], reach[kept]
    else:  # a dominated positive may be left out together with the other one, and then its weight counts
        reach = np.where(alive, delta, 0)
    highest = reach.max(axis=0, initial=0)
    dtype: Any = np.uint16 if highest.max() < np.iinfo(np.uint16).max else np.int32
    row_of = _rows_in_reach(ranked, box.lowest, highest)
    rank = np.full((int(row_of.max(initial=-1)) + 1, ranked.n_exemplars), np.iinfo(dtype).max, dtype=dtype)
    for j, level in enumerate(highest):
        rows = row_of[ranked.order[j, :level]]
        is_left = rows >= 0
        rank[rows[is_left], j] = np.flatnonzero(is_left)
    negatives = np.flatnonzero(row_of >= 0)
    return ReducedProblem(
        positives=open_positives,
        negatives=negatives,
        rank=rank,
        reach=reach.astype(dtype),
        row_of=row_of,
        prices=ranked.prices[negatives].astype(np.float64),
        weights=ranked.positive_weights[open_positives],
        difficulty=ranked.difficulty[open_positives],
        left_out_budget=ranked.left_out_budget,
    )


def _rows_in_reach(ranked: RankedProblem, lowest: Levels, highest: NDArray[np.int32]) -> NDArray[np.int32]:
    """(N,) a row number for every negative that some live level accepts and no lowest level does, -1 for the rest."""
    matters = np.zeros(len(ranked.prices), dtype=bool)
    for row, level in zip(ranked.order, highest, strict=True):
        matters[row[:level]] = True
    for row, level in zip(ranked.order, lowest, strict=True):
        matters[row[:level]] = False
    return np.where(matters, np.cumsum(matters) - 1, -1).astype(np.int32)
