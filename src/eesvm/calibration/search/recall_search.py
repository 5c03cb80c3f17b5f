"""The search for the most recall within a budget, by boxes of levels that are bounded column by column.

In: a `RankedProblem` with few exemplars, and an `Allowance`. Out: as from `ColumnSearch`, of which this is a variant:
what is minimised is the weight that is left out, in recall units. A box holds nothing better than what is known if
leaving out less would cost more than may be paid. That is the question of a recall floor, at a floor that rises
whenever a better solution is found; a box that is closed at one floor stays closed at every higher one (docs/maths.md,
section 8).
"""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from eesvm._support.threads import Workers
from eesvm._support.validation import InputError
from eesvm.calibration.anytime import Run
from eesvm.calibration.goal import Allowance
from eesvm.calibration.ranks import RankedProblem
from eesvm.calibration.search.column_search import ColumnSearch
from eesvm.calibration.search.columns import Multipliers, Position
from eesvm.calibration.search.detector_limit import DetectorLimit
from eesvm.calibration.search.filling import Filling
from eesvm.calibration.search.neighbourhoods import NeighbourhoodSearch
from eesvm.calibration.search.proof import Leaf
from eesvm.calibration.search.reduce import Box, Levels, cheap_box

_FIRST_MOVES, _LAST_MOVES = 400, 400  # of neighbourhood search, before the first box and after the last
_FEWEST_STEPS = 2.0**-40  # of all units: differences in recall that are not looked for
_FIRST_JUMP = 0.02  # of what is left out: how much less the first neighbourhood search aims at


class RecallSearch(ColumnSearch):
    """The state of one search; `loss` is the units that the best solution leaves out.

    Parameters
    ----------
    permitted, provable : what a solution may pay, as it is judged here and as proofs must assume.
    fixed : weights of the negatives that every solution accepts, without a price on exemplars.
    unit : of the losses, None where their sums are rounded.
    divisor : of what can be left out, in recall units.
    limit : how many exemplars may be in use.
    enough : units; a solution that leaves out no more ends the search with the status "enough".
    """

    def __init__(
        self,
        ranked: RankedProblem,
        run: Run,
        permitted: Allowance,
        provable: Allowance,
        fixed: NDArray[np.float64],
        unit: Fraction | None,
        divisor: int,
        workers: Workers,
        random_state: int = 0,
        limit: DetectorLimit | None = None,
        enough: float = -math.inf,
    ) -> None:
        super().__init__(ranked, run, unit, workers, random_state)
        self.limit = DetectorLimit.none(ranked.n_exemplars) if limit is None else limit
        self.enough = enough
        self.permitted = permitted.less(Fraction(math.fsum(fixed)))
        # Proofs count whole quanta of every weight.
        in_quanta = provable.times(1 / Fraction(self.quantum))
        self.without_price = in_quanta.less(int(np.floor(fixed / self.quantum).sum()))  # none is above the cap
        paid_back = Fraction(self.limit.price) * self.limit.most / Fraction(self.quantum)
        self.in_quanta = self.without_price.less(-paid_back)
        self.provable = self.in_quanta.times(Fraction(self.quantum))
        self.loss_unit = self.unit
        self.step = max(float(divisor), _FEWEST_STEPS * provable.total)
        self.unit = Fraction(divisor) if self.step == divisor else None

    def search(self, start: Levels | None = None) -> tuple[Levels, str]:
        """Search until the proof is complete or a limit is reached: (levels, status)."""
        self._prepare()
        self.columns.least_price = float(self.provable.rate)
        self.walker: NeighbourhoodSearch | None = None
        self.walker_goal = math.inf
        self.bound = 0.0  # units that every solution leaves out
        self.levels, self.loss = np.zeros(self.ranked.n_exemplars, dtype=np.int32), math.inf
        highest = cheap_box(self.ranked, self._cutoff()).highest
        self.filling = Filling(self.ranked, self.permitted, self.limit, highest)
        self._random = np.random.default_rng(self.random_state)
        for levels in [self.levels] if start is None else [self.levels, start]:
            self._offer(levels)
        self.jump = max(self.step, _FIRST_JUMP * min(self.loss, self.provable.total))
        self._record()
        if self._status() is None:
            self._walk(_FIRST_MOVES)
        self._search_boxes()
        self._write_shares()
        self._save_loss()
        self.statistics["shares"] = sum(len(shares.quanta) for shares, _ in self.proof.share_sets())
        # Weights that are too small beside others can not be told apart in a proof.
        is_proven = self.bound >= self.loss - self._margin() / 2
        return self.levels, self._status() or ("optimal" if is_proven else "feasible")

    def _search_boxes(self) -> None:
        cutoff = self._cutoff()
        self.proof.cut_off(cutoff, cheap_box(self.ranked, cutoff))
        self._push(self.proof.leaves[0])
        while self.queue and self._status() is None:
            self._take(self.proof.leaves[heapq.heappop(self.queue)[1]])
            self.n_taken += 1
            self._record()
        self.statistics["leaves"] = len(self.proof.leaves)

    def _cutoff(self) -> float:
        return beyond(self.provable, self.loss_unit, len(self.ranked.prices) * self.quantum)

    def _status(self) -> str | None:
        return "enough" if self.loss <= self.enough else super()._status()

    def _narrow(self, leaf: Leaf) -> bool:
        box = self.limit.within(leaf.box)
        if box is None:
            leaf.bound = math.inf
            return False
        leaf.box = box
        return True

    def _record(self) -> None:
        if self.taken is not None:
            open_bound = self.queue[0][0] if self.queue else math.inf
            self.bound = max(self.bound, min(self.least_closed, self.taken.bound, open_bound))
        if self.loss < math.inf:
            self.run.record(self.loss, min(self.loss, self.bound), len(self.proof.splits), n_limited=self.n_taken)

    def _margin(self) -> float:
        return self.step

    # Solutions

    def _offer(self, levels: Levels) -> None:
        """Raise levels as far as the budget allows, and take them over if they are better than the best so far."""
        self._try(self.filling.raised(levels))

    def _try(self, levels: Levels) -> None:
        """Take over levels if they are within the budget and leave out less than the best so far."""
        left_out = self.filling.left_out(levels)
        if left_out < self.loss and self.filling.permits(levels):
            self.levels, self.loss, self.n_idle = levels.astype(np.int32), left_out, 0
            self.columns.budget = self.loss - self.step
            self._record()

    def _walk(self, n_moves: int) -> None:
        """Look for a cheap solution that leaves out less; how much less follows what succeeds."""
        self.n_idle += 1
        goal = max(0.0, self.loss - self.jump)
        if self.loss == 0 or self.loss == math.inf:
            return
        if self.walker is None or self.walker_goal != goal or self.limit.is_free.any():
            self.walker, self.walker_goal = self._new_walker(goal), goal
        before = self.loss
        if self.walker is not None:
            self.walker.step(n_moves)
            self._offer(self.walker.best_levels)
        self.jump = 2 * self.jump if self.loss < before else max(self.step, self.jump / 2)

    def _new_walker(self, goal: float) -> NeighbourhoodSearch | None:
        """A walk to solutions that leave out no more than a goal, None where the limit stands in the way."""
        tightened = replace(self.filling.plain, left_out_budget=goal)
        seed = self.random_state + self.n_idle
        if not self.limit.is_free.any():
            return NeighbourhoodSearch(tightened, self.levels, seed)
        highest = self.limit.reach(self.levels, self.filling.highest, self._random)
        try:
            return NeighbourhoodSearch(tightened, self.levels, seed, highest=highest)
        except InputError:
            return None

    def _save_loss(self) -> None:
        """Of solutions that leave out as little, look for one that costs less."""
        if self.loss < math.inf and not self.run.is_out_of_time():
            tightened = replace(self.filling.plain, left_out_budget=self.loss)
            highest = np.where(self.limit.is_free & (self.levels == 0), 0, self.filling.highest).astype(np.int32)
            walker = NeighbourhoodSearch(tightened, self.levels, self.random_state, highest=highest)
            walker.step(_LAST_MOVES)
            if walker.best_loss < self.filling.loss(self.levels):  # nor does it leave out more
                self.levels = walker.best_levels

    # Bounds

    def _target(self) -> float:
        """What a box must be shown to cost if less than now is left out."""
        most = float(self.provable.at(int(self.columns.budget)))
        if self.loss_unit is not None:
            return (math.floor(most / self.loss_unit) + 1e-3) * float(self.loss_unit)
        return most * (1 + 1e-10) + 4 * len(self.ranked.prices) * self.quantum

    def _proved(self, multipliers: Multipliers, box: Box) -> tuple[float, float]:
        cost, price, dead = self.columns.line(multipliers, round(self._paid(box) / self.quantum), self.in_quanta)
        return max(self._left_out(cost, price, dead), self._left_out_without_price(box, dead)), price

    def _settle(self, leaf: Leaf, position: Position) -> None:
        dead = int(self.columns.units[position.play.dead].sum())
        bound = self._left_out(round(self._paid(leaf.box) / self.quantum), 0.0, dead)
        leaf.bound = max(leaf.bound, bound, self._left_out_without_price(leaf.box, dead))

    def _left_out_without_price(self, box: Box, dead: int) -> float:
        """What the lowest levels of a box say if exemplars in use have no price."""
        if not self.limit.is_free.any():
            return 0.0
        paid = self.limit.paid_quanta(self.ranked, box, self.quantum, self.loss_unit is not None)
        return self._left_out(paid, 0.0, dead, self.without_price)

    def _left_out(self, cost: int, price: float, dead: int, allowance: Allowance | None = None) -> float:
        """The fewest units that a box can leave out, by a line that is proved for it."""
        allowance = self.in_quanta if allowance is None else allowance
        least = allowance.least_left_out(cost, Fraction(price) / Fraction(self.quantum), dead)
        if least == math.inf:
            return math.inf
        least = Fraction(least) if self.unit is None else math.ceil(Fraction(least) / self.unit) * self.unit
        return math.nextafter(float(least), -math.inf) if Fraction(float(least)) > least else float(least)

    def _is_precise(self) -> bool:
        return True


def beyond(allowance: Allowance, unit: Fraction | None, rounding: float) -> float:
    """A loss that is more than any solution may have; losses are multiples of `unit`, or rounded."""
    most = allowance.at(0)
    if unit:
        return float((math.floor(most / unit) + 1) * unit)
    return float(most) * (1 + 1e-9) + 4 * rounding
