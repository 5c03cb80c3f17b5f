"""Feasible solutions without a proof: the first leaf of Algorithm 1, and completion of given thresholds.

In: a `RankedProblem` and the order in which to decide its positives. Out: levels (E,) that cover what the recall floor
asks for, and their loss.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.anytime import Run
from eesvm.calibration.ranks import FORBIDDEN, RankedProblem
from eesvm.calibration.search import tree_kernels as _kernels


def first_leaf(
    ranked: RankedProblem, sequence: NDArray[np.intp], run: Run, start: NDArray[np.int32] | None = None
) -> tuple[NDArray[np.int32], float]:
    """Go down the tree along the smallest added loss (line 4 of Algorithm 1), from `start` levels if given.

    Out of time on the way, the positives that are left go to whichever exemplar is cheapest for each alone, so that
    the answer is feasible in any case.
    """
    tree = make_tree(ranked, sequence)
    open_prices, levels = ranked.prices.copy(), np.zeros(ranked.n_exemplars, dtype=np.int32)
    trail = np.empty(len(ranked.prices), dtype=np.int32)
    n_accepted, loss, left_out, done = 0, 0.0, 0.0, 0
    if start is not None:
        levels[:] = start
        for row, level in zip(ranked.order, levels, strict=True):
            n_accepted = _kernels.accept(row, 0, level, open_prices, trail, n_accepted)
        loss = float(ranked.prices[trail[:n_accepted]].sum(dtype=np.float64))
    while done < len(sequence):
        if run.is_out_of_time():
            return cover_separately(ranked, sequence[done:], levels)
        last = min(len(sequence), done + run.chunk())
        began = time.perf_counter()
        n_accepted, loss, left_out = _kernels.cover_cheapest(
            tree, open_prices, levels, trail, n_accepted, loss, left_out, done, last
        )
        run.chunk_took(time.perf_counter() - began)
        done = last
    return levels, loss


def cover_separately(
    ranked: RankedProblem, positives: NDArray[np.intp], levels: NDArray[np.int32]
) -> tuple[NDArray[np.int32], float]:
    """Give each of the coverable `positives` to its own cheapest exemplar, on top of `levels`."""
    levels = levels.copy()
    exemplars = ranked.cheapest[positives]
    np.maximum.at(levels, exemplars, ranked.delta[positives, exemplars])
    return levels, loss_of_levels(ranked, levels)


def loss_of_levels(ranked: RankedProblem, levels: NDArray[np.int32]) -> float:
    """Total price of the negatives that some exemplar accepts at its level."""
    accepted = np.zeros(len(ranked.prices), dtype=bool)
    for row, level in zip(ranked.order, levels, strict=True):
        accepted[row[:level]] = True
    return float(ranked.prices[accepted].sum(dtype=np.float64))


def make_tree(ranked: RankedProblem, sequence: NDArray[np.intp]) -> _kernels.Tree:
    """The constants of a search tree as the kernels take them."""
    assert FORBIDDEN == _kernels.FORBIDDEN
    return _kernels.Tree(
        ranked.order,
        ranked.delta,
        ranked.prices,
        np.ascontiguousarray(sequence, dtype=np.int64),
        ranked.positive_weights,
        ranked.left_out_budget,
    )
