"""Better and better incumbents: a large-neighbourhood search over levels.

In: a `RankedProblem` and, if at hand, levels to start from. Out: feasible levels and their loss, at any time.
Losses are those of the ranked problem, without what every solution pays anyway.

A move lowers or raises a few exemplars that have something in common, covers again what was lost at the least added
cost, and tightens every level to what only its exemplar covers. It stays if the loss is not higher. When many moves in
a row were of no use, the solution joins a small pool of the best ones, and the search continues from two of them laid
over each other (the union of what they accept covers everything; tightening then keeps a mixture) or from one of them
with part of its exemplars switched off.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import InputError
from eesvm.calibration.anytime import Run
from eesvm.calibration.ranks import FORBIDDEN, RankedProblem
from eesvm.calibration.search import neighbourhood_kernels as _kernels

_N_NEAR = 12  # exemplars per positive that moves look at
_PATIENCE = 1000  # moves without progress before the search starts from somewhere else
_POOL_SIZE = 8
_KICK_NOISE, _KICK_SPREAD = 1.0, 1.0  # how much costs and urgencies are blurred when a solution is made anew
_LEEWAY = 20  # negatives' worth of loss that never makes a move hopeless: small losses are lumpy


class NeighbourhoodSearch:
    """Levels that get better with every `step`.

    Parameters
    ----------
    ranked : the problem in ranks. Positives that cost nothing or cannot be covered play no role.
    levels : (E,) levels to start from; what they leave uncovered is covered first. Default: start from nothing.
    random_state : seeds every random choice; equal seeds and equal numbers of moves give equal levels.
    lowest, highest : (E,) limits between which the levels must stay. Default: none.
    run : looked at only while the start is covered; out of time, what is left goes to its own cheapest exemplar.

    Attributes
    ----------
    best_levels : (E,) the best levels so far. best_loss : their loss. n_moves : moves tried so far.
    """

    def __init__(
        self,
        ranked: RankedProblem,
        levels: NDArray[np.int32] | None = None,
        random_state: int = 0,
        *,
        lowest: NDArray[np.int32] | None = None,
        highest: NDArray[np.int32] | None = None,
        run: Run | None = None,
    ) -> None:
        n_exemplars, highest_level = ranked.order.shape
        self._positives = ranked.coverable[ranked.difficulty[ranked.coverable] > 0]
        self._n_all_positives = len(ranked.delta)
        self._table = _make_table(
            ranked,
            self._positives,
            np.zeros(n_exemplars, dtype=np.int32) if lowest is None else lowest.astype(np.int32),
            np.full(n_exemplars, highest_level, dtype=np.int32)
            if highest is None
            else np.minimum(highest, highest_level).astype(np.int32),
        )
        self._state = _make_state(self._table, random_state)
        self._scratch = _make_scratch(self._table)
        self._counters = np.zeros(_kernels.N_COUNTERS, dtype=np.int64)
        self._generator = np.random.default_rng(random_state)
        self._pool: list[tuple[float, NDArray[np.int32]]] = []
        self._cover_start(levels, run)
        self._best_levels = self._state.levels.copy()
        self._best_loss = np.array([self._state.totals[_kernels.LOSS]])

    @property
    def best_levels(self) -> NDArray[np.int32]:
        return self._best_levels.copy()

    @property
    def best_loss(self) -> float:
        return float(self._best_loss[0])

    @property
    def n_moves(self) -> int:
        return int(self._counters[_kernels.N_MOVES])

    def step(self, n_moves: int) -> bool:
        """Try `n_moves` moves; True if the best loss fell."""
        before = self.best_loss
        while n_moves > 0:
            n_moves -= _kernels.make_moves(
                self._table,
                self._state,
                self._scratch,
                self._counters,
                self._best_levels,
                self._best_loss,
                n_moves,
                _PATIENCE,
            )
            if (self._state.levels <= self._table.lowest).all():  # nothing left to lower, so nothing to gain
                break
            if self._counters[_kernels.N_STALE] >= _PATIENCE:
                self._start_elsewhere()
        return self.best_loss < before

    def propose(self, assignment: NDArray[np.int32]) -> bool:
        """Try the solution that gives each positive p to `assignment[p]` (-1: to anybody); True if it is the new best.

        A good one that is not the best joins the pool that the search starts from again.
        """
        if assignment.shape != (self._n_all_positives,):
            raise InputError(f"`assignment` must have shape ({self._n_all_positives},), got {assignment.shape}")
        exemplars = assignment[self._positives]
        chosen = np.flatnonzero(exemplars >= 0)
        deltas = self._table.delta[chosen, exemplars[chosen]]
        usable = deltas <= self._table.highest[exemplars[chosen]]
        levels = self._table.lowest.copy()
        np.maximum.at(levels, exemplars[chosen[usable]], deltas[usable])
        before = self._state.levels.copy()
        is_better = self._go_to(levels)
        self._remember()
        if not is_better:
            self._go_to(before)
        return is_better

    def _cover_start(self, levels: NDArray[np.int32] | None, run: Run | None) -> None:
        """From all levels at their lowest to a feasible, tight state."""
        table, state, scratch = self._table, self._state, self._scratch
        start = table.lowest if levels is None else np.clip(levels, table.lowest, table.highest).astype(np.int32)
        _kernels.start_from(table, state, scratch, start)
        sequence = np.argsort(-table.urgency, kind="stable").astype(np.int32)
        allowance, done = table.budget, 0
        while done < len(sequence):
            if run is not None and run.is_out_of_time():
                self._cover_separately(sequence[done:], allowance)
                break
            last = len(sequence) if run is None else min(len(sequence), done + run.chunk())
            began = time.perf_counter()
            allowance = _kernels.cover_first(table, state, scratch, sequence, done, last, allowance)
            if run is not None:
                run.chunk_took(time.perf_counter() - began)
            if allowance < 0:
                raise InputError("no levels up to `highest` cover the positives")
            done = last
        _kernels.settle(table, state, scratch)

    def _cover_separately(self, positives: NDArray[np.int32], allowance: float) -> None:
        """Give each positive that nobody covers to the exemplar with the fewest negatives, whatever the others do."""
        table, state = self._table, self._state
        positives = positives[state.coverers[positives] == 0]
        allowed = np.where(table.delta[positives] <= table.highest, table.delta[positives], FORBIDDEN)
        exemplars = allowed.argmin(axis=1)
        deltas = allowed[np.arange(len(positives)), exemplars]
        is_hopeless = deltas == FORBIDDEN
        if table.weights[positives[is_hopeless]].sum() > allowance:
            raise InputError("no levels up to `highest` cover the positives")
        levels = state.levels.copy()
        np.maximum.at(levels, exemplars[~is_hopeless], deltas[~is_hopeless])
        _kernels.start_from(table, state, self._scratch, levels)

    def _start_elsewhere(self) -> None:
        """Put the solution at hand into the pool, and go on from a mixture or a damaged copy of what is there."""
        self._remember()
        generator = self._generator
        if len(self._pool) > 1 and generator.random() < 0.5:
            first, second = generator.choice(len(self._pool), 2, replace=False)
            levels = np.maximum(self._pool[first][1], self._pool[second][1])
        else:
            levels = self._pool[int(len(self._pool) * generator.random() ** 2)][1].copy()
            is_off = generator.random(len(levels)) < generator.uniform(0.2, 1.0)
            levels[is_off] = self._table.lowest[is_off]
        self._go_to(levels, _KICK_NOISE, _KICK_SPREAD)
        self._counters[_kernels.N_STALE] = 0

    def _go_to(self, levels: NDArray[np.int32], noise: float = 0.0, spread: float = 0.0) -> bool:
        """Take on levels, completed and tightened; True if they are the new best."""
        _kernels.go_to(self._table, self._state, self._scratch, levels, noise, spread)
        is_better = bool(self._state.totals[_kernels.LOSS] < self._best_loss[0])
        if is_better:
            self._best_loss[0] = self._state.totals[_kernels.LOSS]
            self._best_levels[:] = self._state.levels
        return is_better

    def _remember(self) -> None:
        """Put the current solution into the pool, unless it is there already or no better than a full pool."""
        loss, levels = float(self._state.totals[_kernels.LOSS]), self._state.levels
        if not any(loss == other and np.array_equal(levels, theirs) for other, theirs in self._pool):
            self._pool.append((loss, levels.copy()))
            self._pool.sort(key=lambda entry: entry[0])
            del self._pool[_POOL_SIZE:]


def _make_table(
    ranked: RankedProblem, positives: NDArray[np.intp], lowest: NDArray[np.int32], highest: NDArray[np.int32]
) -> _kernels.Table:
    """The constants as the kernels take them; two more tables of the size of `delta`."""
    assert FORBIDDEN == _kernels.FORBIDDEN
    delta = np.ascontiguousarray(ranked.delta[positives])
    n_positives, n_exemplars = delta.shape
    sorted_positives = np.empty((n_exemplars, n_positives), dtype=np.int32)
    sorted_deltas = np.empty((n_exemplars, n_positives), dtype=np.int32)
    for first in range(0, n_exemplars, 64):
        rows = slice(first, first + 64)
        sorted_deltas[rows], sorted_positives[rows] = _sort_rows(delta[:, rows].T)
    n_near = min(_N_NEAR, n_exemplars)
    near = np.empty((n_positives, n_near), dtype=np.int32)
    for first in range(0, n_positives, 1024):
        rows = slice(first, first + 1024)
        near[rows] = _sort_rows(delta[rows], n_near)[1]
    weights = ranked.positive_weights[positives]
    # Within limits some positives cannot be covered: they are the first to be left out.
    difficulty = np.where((delta <= highest).any(axis=1), ranked.difficulty[positives], np.inf)
    return _kernels.Table(
        order=ranked.order,
        prices=ranked.prices,
        delta=delta,
        positives=sorted_positives,
        deltas=sorted_deltas,
        near=near,
        weights=weights,
        urgency=difficulty / weights if ranked.left_out_budget > 0 else difficulty,
        budget=float(ranked.left_out_budget),
        lowest=lowest,
        highest=highest,
        lowest_price=float(ranked.prices.min()) if len(ranked.prices) else 0.0,
        leeway=_LEEWAY * float(ranked.prices.mean()) if len(ranked.prices) else 0.0,
        is_exact=bool(ranked.is_exact),
    )


def _sort_rows(rows: NDArray[np.int32], n_first: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The `n_first` smallest values of each row in order, and their columns; equal values by column.

    Value and column share a 64-bit key: no two keys are equal, so any sort gives the same order on any machine.
    """
    keys = (rows.astype(np.int64, order="C") << 32) | np.arange(rows.shape[1])
    if n_first is not None and n_first < rows.shape[1]:
        keys.partition(n_first - 1, axis=1)
        keys = keys[:, :n_first].copy()
    keys.sort(axis=1)
    return keys >> 32, keys & 0xFFFFFFFF


def _make_state(table: _kernels.Table, random_state: int) -> _kernels.State:
    """All levels at zero: nothing accepted, nothing covered."""
    n_exemplars, n_negatives = len(table.order), len(table.prices)
    return _kernels.State(
        levels=np.zeros(n_exemplars, dtype=np.int32),
        caps=table.highest.copy(),
        n_covered=np.zeros(n_exemplars, dtype=np.int64),
        holders=np.zeros(n_negatives, dtype=np.int64),
        open_prices=table.prices.copy(),
        coverers=np.zeros(len(table.weights), dtype=np.int64),
        totals=np.array([0.0, table.weights.sum(), 0.0]),
        generator=np.array([random_state % 2**64], dtype=np.uint64),
    )


def _make_scratch(table: _kernels.Table) -> _kernels.Scratch:
    n_exemplars, n_positives = len(table.order), len(table.weights)
    return _kernels.Scratch(
        touched=np.zeros(n_exemplars, dtype=np.int64),
        old_levels=np.zeros(n_exemplars, dtype=np.int32),
        is_touched=np.zeros(n_exemplars, dtype=bool),
        lost=np.zeros(n_positives, dtype=np.int32),
        is_lost=np.zeros(n_positives, dtype=bool),
        group=np.zeros(n_exemplars, dtype=np.int64),
        chosen=np.zeros(_kernels.MAX_CHOSEN, dtype=np.int64),
        goals=np.zeros(_kernels.MAX_CHOSEN, dtype=np.int64),
        lengths=np.zeros(2, dtype=np.int64),
    )
