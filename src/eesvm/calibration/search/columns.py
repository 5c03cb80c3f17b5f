"""The column bound: exemplars pay for what they accept, and are paid for what they cover (docs/maths.md, section 7).

In: a `RankedProblem` with few exemplars and positives that may be left out, and a box of levels. Out: `Multipliers`, a
value for every positive and each exemplar's share of every negative, the bound that they prove in whole quanta, and the
`Shares` that prove it to others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.goal import Allowance
from eesvm.calibration.ranks import RankedProblem
from eesvm.calibration.search import column_kernels as kernels
from eesvm.calibration.search.ascent import Shares
from eesvm.calibration.search.column_kernels import Play
from eesvm.calibration.search.reduce import Box

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

_FIRST_VALUE = 0.01  # of every positive, in mean prices
_PROVED = 2.0**-50  # relative: more than what rounding can do to a product


@dataclass(frozen=True, eq=False)
class Multipliers:
    """Values and shares found for a box; they prove as much for every box inside. In mean prices."""

    box: Box
    values: F32 | F64  # (P',) of the positives in play
    shares: F32 | F64  # (K,) of the events that are negatives


@dataclass(frozen=True, eq=False)
class Position:
    """A box, what is in play in it, and where the ascent stands."""

    box: Box
    play: Play
    values: F64
    shares: F64

    def multipliers(self, is_precise: bool) -> Multipliers:
        """A copy to keep, in half the space unless it is to be precise."""
        dtype: Any = np.float64 if is_precise else np.float32
        return Multipliers(self.box, self.values.astype(dtype), self.shares[self.play.event >= 0].astype(dtype))


class Columns:
    """Constants of a problem, and what can be said about its boxes."""

    def __init__(self, ranked: RankedProblem, quantum: float) -> None:
        # Positives that are free, or that nobody may cover, are decided before any box is looked at.
        self.positives = ranked.coverable[ranked.difficulty[ranked.coverable] > 0]
        self.order, self.delta = ranked.order, np.ascontiguousarray(ranked.delta[self.positives])
        self.units, self.budget = ranked.positive_weights[self.positives], ranked.left_out_budget
        prices = ranked.prices.astype(np.float64)
        self.price_quanta = np.floor(prices / quantum).astype(np.int64)
        self.mean_price = float(prices.mean()) if len(prices) else 1.0
        self.mean_unit = float(self.units.mean()) if len(self.units) else 1.0
        self.prices = prices / self.mean_price
        self.quantum, self.scale = quantum, self.mean_price / quantum
        self.least_price = 0.0  # of leaving out a unit
        self._all_values = np.zeros(len(self.positives))
        self._all_shares = np.zeros((ranked.n_exemplars, len(prices)))

    def begin(self, box: Box) -> Position:
        """Every negative divided evenly."""
        play = self._play(box)
        n_entries = np.diff(play.entry_start)
        shares = np.zeros(len(play.event))
        shares[play.entry] = np.repeat(play.prices / n_entries, n_entries)
        return Position(box, play, np.full(len(play.positives), _FIRST_VALUE), shares)

    def begin_from(self, box: Box, multipliers: Multipliers) -> Position:
        """Where the multipliers of a box around it stand in this one."""
        around, play = self._play(multipliers.box), self._play(box)
        values, shares = self._restored(around, multipliers)
        values, shares = kernels.inherit(around, values, shares, play, self._all_values, self._all_shares)
        return Position(box, play, values, shares)

    def begin_inside(self, box: Box, position: Position) -> Position:
        """Where `position` stands in a box inside its own."""
        play = self._play(box)
        values, shares = kernels.inherit(
            position.play, position.values, position.shares, play, self._all_values, self._all_shares
        )
        return Position(box, play, values, shares)

    def spare(self, play: Play) -> float:
        """Units that may be left out besides the dead; negative where the box holds no solution."""
        return float(self.budget - self.units[play.dead].sum())

    def ascend(self, position: Position, target: float, n_steps: int, patience: int) -> tuple[float, NDArray[np.int64]]:
        """Improve a position in place until it proves `target`; (bound without what is paid, levels of each step)."""
        play = position.play
        ends = np.empty((n_steps, len(self.order)), dtype=np.int64)
        in_mean_units = play._replace(units=play.units / self.mean_unit)
        bound, n_made = kernels.ascend(
            in_mean_units,
            self.spare(play) / self.mean_unit,
            self.least_price / self.mean_price * self.mean_unit,
            position.values,
            position.shares,
            target / self.mean_price,
            n_steps,
            patience,
            ends,
        )
        return bound * self.mean_price, ends[:n_made]

    def useful_levels(self, position: Position, target: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(E,) the first and the last level of each exemplar at which `position` falls short of `target`."""
        play = position.play
        first, last = (np.empty(len(self.order), dtype=np.int64) for _ in range(2))
        price = _price_at_which_it_ends(position.values, play.units, self.spare(play))
        price = max(price, self.least_price / self.mean_price)
        bound = np.minimum(position.values, price * play.units).sum() - price * self.spare(play)
        bound += kernels.cheapest_levels(play, position.values, position.shares, first)
        slack = target / self.mean_price - bound
        kernels.useful_levels(
            play, self.delta, position.values, position.shares, slack, position.box.lowest, first, last
        )
        return first, last

    def levels(self, position: Position, exemplar: int) -> NDArray[np.int32]:
        """The levels of an exemplar that are in play, ascending."""
        start, play = position.play.start, position.play
        story = play.event[start[exemplar] : start[exemplar + 1]]
        return np.unique(self.delta[play.positives[~story[story < 0]], exemplar])

    def highest_useful(self, position: Position) -> NDArray[np.int32]:
        """(E,) the levels that cover all that is in play."""
        delta = self.delta[position.play.positives]
        reach = np.where(delta <= position.box.highest, delta, 0).max(axis=0, initial=0)
        return np.maximum(position.box.lowest, reach).astype(np.int32)

    def undecided(self, position: Position, steps: NDArray[np.int64]) -> tuple[int, int]:
        """The exemplar and the level at which to split a box."""
        exemplar, level = kernels.undecided_level(position.play, self.delta, steps)
        return int(exemplar), int(level)

    def proved(self, multipliers: Multipliers, loss: float) -> tuple[float, float]:
        """What multipliers prove about their box on top of what is paid, by whole quanta alone, and the price for it.

        `loss` is what a box without solutions is to be shown to cost.
        """
        play = self._play(multipliers.box)
        values, _ = self._in_quanta(play, multipliers)
        return self._worth(play, values.astype(np.float64), loss)

    def line(self, multipliers: Multipliers, paid: int, allowance: Allowance) -> tuple[int, float, int]:
        """What multipliers prove about their box in whole quanta: loss + price * left out >= cost; (cost, price, dead).

        The price is the one at which an allowance, in quanta, says most about what has to be left out.
        """
        play = self._play(multipliers.box)
        values = self._in_quanta(play, multipliers)[0].astype(np.float64)
        dead = self.units[play.dead]
        room = float(allowance.at(int(dead.sum() + play.units.sum()))) - paid
        price = _price_at_which_room_ends(values, play.units, room, float(allowance.rate)) * self.quantum
        if not math.isfinite(price):
            price = 0.0
        in_quanta = price / self.quantum
        charges = np.floor(in_quanta * play.units * (1 - _PROVED))
        dead_charges = np.floor(in_quanta * dead * (1 - _PROVED))
        return paid + int(np.minimum(charges, values).sum()) + int(dead_charges.sum()), price, int(dead.sum())

    def shares(self, multipliers: Multipliers) -> Shares:
        """What each positive is paid by all exemplars together, as shares that everybody can check."""
        play = self._play(multipliers.box)
        paid = kernels.match(play, *self._in_quanta(play, multipliers))
        rows, start, columns, quanta = kernels.add_up(*paid, len(play.positives), len(play.negatives))
        return Shares(
            positives=self.positives[play.positives[rows]],
            start=start,
            negatives=play.negatives[columns].astype(np.intp),
            quanta=quanta,
        )

    def _play(self, box: Box) -> Play:
        play: Play = kernels.find_play(self.order, self.delta, self.units, self.prices, box.lowest, box.highest)
        return play

    def _restored(self, play: Play, multipliers: Multipliers) -> tuple[F64, F64]:
        shares = np.zeros(len(play.event))
        shares[play.event >= 0] = multipliers.shares
        return multipliers.values.astype(np.float64), shares

    def _in_quanta(self, play: Play, multipliers: Multipliers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        values, shares = self._restored(play, multipliers)
        whole: tuple[NDArray[np.int64], NDArray[np.int64]] = kernels.in_quanta(
            play, self.price_quanta, values, shares, self.scale
        )
        return whole

    def _worth(self, play: Play, values: F64, loss: float) -> tuple[float, float]:
        """Sum of values, cut at the price of leaving out, less what the budget is worth at that price."""
        spare = self.spare(play)
        if spare < 0:
            return self._worth_without_solutions(len(play.dead), -spare, loss)
        price = _price_at_which_it_ends(values, play.units, spare)
        charges = np.floor(price * play.units * (1 - _PROVED))
        dead_charges = np.floor(price * self.units[play.dead] * (1 - _PROVED))
        total = float(np.minimum(charges, values).sum()) + float(dead_charges.sum())
        bound = total - math.ceil(price * self.budget * (1 + _PROVED)) - 2
        return max(0.0, bound) * self.quantum, price * self.quantum

    def _worth_without_solutions(self, n_dead: int, excess: float, loss: float) -> tuple[float, float]:
        """More than `loss`, by a price that is high enough for the units that the dead exceed the budget by.

        It is a power of two, so that nothing is rounded but each charge of the dead, down to whole quanta.
        """
        needed = 2 * (loss + self.mean_price) / self.quantum + n_dead + 2
        price = math.ldexp(1.0, math.frexp(needed / excess)[1])
        return (price * excess - n_dead - 2) * self.quantum, price * self.quantum


def _price_at_which_it_ends(values: F64, units: F64, budget: float) -> float:
    """The value per unit at which the budget runs out, if the most valuable are left out first."""
    by_ratio = np.argsort(-values / units, kind="stable")
    last = int(np.searchsorted(np.cumsum(units[by_ratio]), budget, side="right"))
    return 0.0 if last == len(by_ratio) else float(values[by_ratio[last]] / units[by_ratio[last]])


def _price_at_which_room_ends(values: F64, units: F64, room: float, rate: float) -> float:
    """The value per unit at which there is no room left, if the least valuable are covered first.

    `room` is what may be paid while nothing is covered, each unit that is covered adds `rate`. 0 where all can be
    covered, and `rate` where nothing fits.
    """
    by_ratio = np.argsort(values / units, kind="stable")
    left = room - np.cumsum(values[by_ratio] - rate * units[by_ratio])
    n_cheap = int((values <= rate * units).sum())  # each of them leaves more room
    most = max(room, float(left[:n_cheap].max(initial=room)))
    if most < 0:
        return rate
    short = np.flatnonzero(left[n_cheap:] < 0)
    if len(short) == 0:
        return 0.0
    last = by_ratio[n_cheap + short[0]]
    return float(values[last] / units[last])
