"""The exhaustive search tree (section 4.2): a perfect tree with a level per positive and a child per exemplar.

In: a `RankedProblem`. Out: the best leaf. Nothing is pruned, so E exemplars and P positives make
(E^(P+1) - 1) / (E - 1) nodes: a reference for tiny problems and the yardstick of the paper's runtimes.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.anytime import Run
from eesvm.calibration.ranks import RankedProblem
from eesvm.calibration.search import tree_kernels as _kernels
from eesvm.calibration.search.heuristics import cover_separately, make_tree


def exhaustive(ranked: RankedProblem, run: Run) -> tuple[NDArray[np.int32], str, dict[str, Any]]:
    """Visit every node; returns (levels, status, statistics)."""
    n_levels = len(ranked.coverable)
    tree = make_tree(ranked, ranked.coverable)
    path = make_path(ranked, n_levels)
    counters = np.zeros(_kernels.N_COUNTERS, dtype=np.int64)
    counters[_kernels.N_NODES] = 1  # the root
    best_levels, loss = cover_separately(ranked, ranked.coverable, path.levels)
    best_loss = np.array([loss])  # a leaf like any other, at hand before the walk begins
    run.record(loss=loss)
    status = None
    while status is None:
        began = time.perf_counter()
        outcome = _kernels.enumerate_leaves(tree, path, counters, best_levels, best_loss, run.chunk())
        run.chunk_took(time.perf_counter() - began)
        run.record(loss=float(best_loss[0]), n_nodes=int(counters[_kernels.N_NODES]))
        status = "optimal" if outcome == _kernels.FINISHED else run.stop_reason()
    if status == "optimal":
        loss = float(best_loss[0])
        run.record(lower_bound=loss - ranked.rounding_slack(loss))
    n_leaves = int(counters[_kernels.N_LEAVES])
    size = tree_size(ranked.n_exemplars, n_levels)
    # Python refuses to print integers of more than 4,300 digits.
    return best_levels, status, {"n_leaves": n_leaves, "tree_size": size if size.bit_length() < 10_000 else math.inf}


def tree_size(n_exemplars: int, n_positives: int) -> int:
    """Number of nodes of the perfect tree, as an exact integer."""
    if n_exemplars == 1:
        return n_positives + 1
    return (n_exemplars ** (n_positives + 1) - 1) // (n_exemplars - 1)


def make_path(ranked: RankedProblem, n_levels: int) -> _kernels.Path:
    """An empty path at the root: nothing accepted, nothing decided."""
    n_negatives = len(ranked.prices)

    def per_depth(dtype: type) -> np.ndarray:
        return np.zeros(n_levels + 1, dtype=dtype)

    return _kernels.Path(
        open_prices=ranked.prices.copy(),
        levels=np.zeros(ranked.n_exemplars, dtype=np.int32),
        trail=np.empty(n_negatives, dtype=np.int32),
        loss=per_depth(np.float64),
        left_out=per_depth(np.float64),
        moved=per_depth(np.int32),
        old_level=per_depth(np.int32),
        trail_start=per_depth(np.int64),
        first=per_depth(np.int64),
        next=per_depth(np.int64),
        end=per_depth(np.int64),
    )
