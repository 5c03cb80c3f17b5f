"""One look at all negatives: what they cost each exemplar, and which of them are its worst violators.

In: weights, and the negatives in blocks. Out: per exemplar the sum of losses, and the violators outside the pool.
Where the weights w_j are close to their mean w, most blocks need no E x n product: a row with
t + w.x + max_j |w_j - w| |x| <= 0 is inside the margin of every exemplar (Cauchy-Schwarz), so it costs nothing and
violates nothing. With the paper's small C that leaves a few rows in a hundred.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import kernel
from eesvm._support.threads import Workers
from eesvm.exemplars.rows import F32
from eesvm.exemplars.solver.problem import F64, Integers, TrainingProblem

MAX_ROWS = 2048  # scored together
_WORTH_SKIPPING = 0.7  # of a block must stay out at most, for a copy of the rest to pay
_LONGEST_PAUSE = 15  # blocks
_ROUNDING = 1e-5  # relative error of a float32 product of long rows, with room


@dataclass(frozen=True)
class Scan:
    """What was seen; n exemplars were looked at."""

    rows: Integers  # violators outside the pool, of any exemplar, increasing
    loss: F64  # (n,) sum of the negatives' losses
    worst: F64  # (n,) largest violation outside the pool


@dataclass(frozen=True)
class Look:
    """What to look for."""

    n_violators: int  # kept per exemplar
    above: float  # violations up to this are none
    n_rows: int = MAX_ROWS


def scan(
    problem: TrainingProblem, weights: F32, is_pooled: NDArray[np.bool_], groups: Integers, look: Look, workers: Workers
) -> Scan:
    """Look at all negatives with `weights` (n, d + 1) of exemplars from `groups` (n,)."""
    n, margins = len(weights), problem.margins.negatives
    worst = np.full((n, look.n_violators), look.above, dtype=np.float32)
    rows = np.full((n, look.n_violators), -1, dtype=np.int64)
    loss, largest = np.zeros(n), np.zeros(n)
    multiplier = np.float32(problem.objective.bias_multiplier)
    biases = weights[:, -1] * multiplier
    centre = weights.mean(axis=0)
    radius = np.linalg.norm(weights - centre, axis=1).max() + _ROUNDING * np.linalg.norm(weights, axis=1).max()
    pause = n_left = 0  # blocks in which nothing is skipped untried, after one in which too little could be
    for start, block in problem.negatives.blocks(look.n_rows):
        ids = np.arange(start, start + len(block))
        n_left -= 1
        if n > 1 and n_left < 0:
            lengths = np.sqrt(problem.squares[ids] + multiplier**2)
            bound = margins[ids] + block @ centre[:-1] + centre[-1] * multiplier + radius * lengths
            near = np.flatnonzero(bound > 0)
            if len(near) <= _WORTH_SKIPPING * len(block):
                block, ids, pause = block[near], ids[near], 0
            else:
                n_left = pause = min(2 * pause + 1, _LONGEST_PAUSE)
        if len(ids) == 0:
            continue
        facts = ids, margins[ids], problem.negative_groups[ids], is_pooled[ids]

        def work(first: int, last: int, block=block, facts=facts) -> None:  # type: ignore[no-untyped-def]
            own = slice(first, last)
            scores = weights[own, :-1] @ block.T
            state = loss[own], largest[own], worst[own], rows[own]
            _go_through(scores, facts, biases[own], groups[own], problem.objective.is_squared, state)

        workers.chunks(work, n, -(-n // workers.n))
    found = np.unique(rows)
    return Scan(found[found >= 0], loss, largest)


@kernel()
def _go_through(  # type: ignore[no-untyped-def]
    scores, facts, biases, own_groups, is_squared, state
):
    """Add the losses of a block to `loss`; of the rows that are not known, note the `largest` shortfall and keep the
    worst ones in the heaps (worst, rows)."""
    ids, margins, groups, is_known = facts
    loss, largest, worst, rows = state
    for j in range(len(scores)):
        total = 0.0
        heap, held = worst[j], rows[j]
        for i in range(scores.shape[1]):
            shortfall = margins[i] + scores[j, i] + biases[j]
            if shortfall <= 0 or groups[i] == own_groups[j]:
                continue
            total += shortfall * shortfall if is_squared else shortfall
            if is_known[i]:
                continue
            largest[j] = max(largest[j], shortfall)
            if shortfall > heap[0]:  # the least of the worst
                k = 0
                while True:
                    child = 2 * k + 1
                    if child >= len(heap):
                        break
                    if child + 1 < len(heap) and heap[child + 1] < heap[child]:
                        child += 1
                    if heap[child] >= shortfall:
                        break
                    heap[k], held[k] = heap[child], held[child]
                    k = child
                heap[k], held[k] = shortfall, ids[i]
        loss[j] += total
