"""Algorithm 1 of the paper: depth-first search with pruning, each of its four observations a switch (section 4.3).

In: a `RankedProblem`. Out: the best leaf found within the limits, with a proof when the tree is exhausted.

1. Pruning by bound: a node that costs as much as a known leaf cannot lead to a better one.
2. Pruning by equivalence: of siblings that accept the same negatives one is enough.
3. Reducing the depth: positives that the tightest thresholds accept at no cost need no level of the tree.
4. Ordering: the most difficult positives first, so that pruning cuts high up. Switched off, the order is random.

Beyond the letter of the paper, `skip_satisfied` gives a positive that the node already accepts (or can accept at no
cost) a single child. Its siblings would pay for what is free, so none leads to a better leaf; Algorithm 1 as printed
visits them all the same. With a recall floor every node gets one more child: leave the positive out, while the floor
allows it.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.anytime import Run
from eesvm.calibration.ranks import RankedProblem
from eesvm.calibration.search import tree_kernels as _kernels
from eesvm.calibration.search.bounds import max_min_bound
from eesvm.calibration.search.exhaustive import make_path
from eesvm.calibration.search.heuristics import cover_separately, first_leaf, make_tree

ALL_OBSERVATIONS = (1, 2, 3, 4)


def algorithm1(
    ranked: RankedProblem,
    run: Run,
    observations: Collection[int] = ALL_OBSERVATIONS,
    skip_satisfied: bool = True,
    start: NDArray[np.int32] | None = None,
    random_state: int = 0,
) -> tuple[NDArray[np.int32], str, dict[str, Any]]:
    """Search the tree; returns (levels, status, statistics)."""
    sequence = tree_levels(ranked, observations, random_state)
    search = _Search(ranked, sequence, run, observations, skip_satisfied)
    search.find_first_leaf(start)
    status = search.search()
    return search.best_levels, status, search.statistics()


def tree_levels(ranked: RankedProblem, observations: Collection[int], random_state: int = 0) -> NDArray[np.intp]:
    """The positives that get a level of the tree, in the order of the levels (observations 3 and 4)."""
    if 4 in observations:
        positives = ranked.coverable[np.argsort(-ranked.difficulty[ranked.coverable], kind="stable")]
    else:
        positives = np.random.default_rng(random_state).permutation(ranked.coverable)
    return positives[ranked.difficulty[positives] > 0] if 3 in observations else positives


class _Search:
    """The state of one run of Algorithm 1 between two calls of the kernel."""

    def __init__(
        self,
        ranked: RankedProblem,
        sequence: NDArray[np.intp],
        run: Run,
        observations: Collection[int],
        skip_satisfied: bool,
    ) -> None:
        self.ranked, self.sequence, self.run = ranked, sequence, run
        self.switches = _kernels.Switches(1 in observations, 2 in observations, skip_satisfied)
        self.tree = make_tree(ranked, sequence)
        self.path = make_path(ranked, len(sequence))
        self.arena = _make_arena(ranked, capacity=4 * (ranked.n_exemplars + 1) + len(sequence))
        self.counters = np.zeros(_kernels.N_COUNTERS, dtype=np.int64)
        self.counters[[_kernels.IS_NEW, _kernels.ON_FIRST_PATH]] = 1
        self.leaves: list[dict[str, float]] = []
        # A leaf at hand from the first moment on, in case the search is stopped early.
        self.best_levels, loss = cover_separately(ranked, sequence, self.path.levels)
        self.best_loss = np.array([loss])

    def find_first_leaf(self, start: NDArray[np.int32] | None) -> None:
        """The first feasible solution (line 4), and the completed warm start if that is better."""
        # Without observation 1 the search may not profit from any bound, so it is not told one.
        self._record(max_min_bound(self.ranked) if self.switches.prune_by_bound else None)
        for levels in [None] if start is None else [None, start]:
            found, loss = first_leaf(self.ranked, self.sequence, self.run, levels)
            if loss < self.best_loss[0]:
                self.best_loss[0] = loss
                self.best_levels[:] = found
        self.counters[_kernels.N_NODES] = len(self.sequence) + 1
        self.counters[_kernels.N_LEAVES] = 1
        self._note_leaf()

    def search(self) -> str:
        """Lines 5 to 15: up and down the tree until it is exhausted or a limit is reached. Returns the status."""
        status = self.run.stop_reason()
        while status is None:
            began = time.perf_counter()
            outcome = _kernels.search_tree(
                self.tree,
                self.path,
                self.arena,
                self.switches,
                self.counters,
                self.best_levels,
                self.best_loss,
                self.run.chunk(),
            )
            if outcome == _kernels.OUT_OF_BUDGET:
                self.run.chunk_took(time.perf_counter() - began)
            if outcome == _kernels.OUT_OF_SPACE:
                self.arena = _grow_arena(self.arena)
            elif outcome == _kernels.FOUND_LEAF:
                self._note_leaf()
            elif outcome == _kernels.FINISHED:
                loss = float(self.best_loss[0])
                self._record(loss - self.ranked.rounding_slack(loss))
                return "optimal"
            self._record(self._open_bound() if self.switches.prune_by_bound else None)
            status = self.run.stop_reason()
        return status

    def statistics(self) -> dict[str, Any]:
        """What section 5.5 of the paper reports, in counts."""
        n_nodes, n_bound, n_equivalent = (
            int(self.counters[c]) for c in (_kernels.N_NODES, _kernels.N_BOUND, _kernels.N_EQUIVALENT)
        )
        n_pruned = n_bound + n_equivalent
        return {
            "n_nodes": n_nodes,
            "n_pruned_by_bound": n_bound,
            "n_pruned_by_equivalence": n_equivalent,
            "n_satisfied": int(self.counters[_kernels.N_SATISFIED]),
            "share_pruned": n_pruned / max(1, n_nodes + n_pruned),
            "depth": len(self.sequence),
            "depth_removed": len(self.ranked.coverable) - len(self.sequence),
            "n_leaves": int(self.counters[_kernels.N_LEAVES]),
            "leaves": self.leaves,
        }

    def _note_leaf(self) -> None:
        self._record(None)
        self.leaves.append({"seconds": self.run.seconds, "n_nodes": self.run.n_nodes, "loss": self.run.loss})

    def _record(self, lower_bound: float | None) -> None:
        self.run.record(float(self.best_loss[0]), lower_bound, int(self.counters[_kernels.N_NODES]))

    def _open_bound(self) -> float:
        """No leaf that is still to be found costs less than the cheapest node that is still to be visited."""
        depth = self.counters[_kernels.DEPTH]
        bound = float(self.best_loss[0])
        if self.counters[_kernels.IS_NEW]:
            bound = min(bound, self.path.loss[depth])
        expanded = np.arange(depth if self.counters[_kernels.IS_NEW] else depth + 1)
        waiting = expanded[self.path.next[expanded] < self.path.end[expanded]]
        if len(waiting):
            bound = min(bound, self.arena.loss[self.path.next[waiting]].min())
        return float(bound - self.ranked.rounding_slack(bound))


def _make_arena(ranked: RankedProblem, capacity: int) -> _kernels.Arena:
    n_negatives = len(ranked.prices)
    keys = np.random.default_rng(0).integers(0, 2**64, size=n_negatives, dtype=np.uint64)
    return _kernels.Arena(
        exemplar=np.empty(capacity, dtype=np.int32),
        loss=np.empty(capacity),
        fingerprint=np.empty(capacity, dtype=np.uint64),
        marks=np.zeros(n_negatives, dtype=np.int64),
        keys=keys,
    )


def _grow_arena(arena: _kernels.Arena) -> _kernels.Arena:
    """Twice the room for children."""
    larger = {name: np.concatenate([getattr(arena, name)] * 2) for name in ("exemplar", "loss", "fingerprint")}
    return arena._replace(**larger)
