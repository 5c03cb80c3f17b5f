"""The dual bound: negatives split their price among positives, and each positive pays for its cheapest exemplar.

In: a `ReducedProblem`. Out: sparse shares whose bound no solution inside the box can beat (docs/maths.md, section 4).
The best shares are a fair game between positives, who choose exemplars that are cheap in their own shares, and
negatives, who give their price to the positives whose choice needs them most. Both sides play predictive regret
matching+; the average of their play tends to the best shares, and there is no step size to tune. Shares are entries of
a sparse table that grows where a positive needs a negative more than anybody who has a share of it.

Deterministic for any number of threads: each thread has its own positives or negatives, and nothing else is shared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eesvm._support.threads import Workers
from eesvm.calibration.search import ascent_kernels as kernels
from eesvm.calibration.search.reduce import ReducedProblem

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Integers = NDArray[np.int64]

_FIRST_EXEMPLARS = 1  # whose negatives make the first entries of a positive
_FIRST_SLACK = 1.5  # if they are at most this much more expensive than the cheapest
_FIRST_ENTRIES = 1000  # of a positive at most
_FAR = 60  # powers of two from 1 at which prices are scaled: float32 ends at 127
_LEAST_CHOICE = 2e-2  # of a positive's choice that is worth looking at when entries are looked for
_MAX_WALK = 10_000  # negatives of a positive's choice that are looked at then
_EAGERNESS = 0.5  # 0: only the neediest positive of a negative gets a new entry; 1: all who need more than is held
_GROWTH = 0.5  # new entries of a positive, of those it has
FEW_FOUND = 0.01  # new entries, of those there are, at which growth is about over
_FORGETTING = 0.8  # regrets are worth this much less after growth: they were learnt among fewer entries
_WARMTH = 4.0  # how much regret given shares begin with: the more, the longer they last
_CANDIDATES = 4  # for each new entry of a positive that is allowed
_LEAST_ROOM = 30  # new entries of a positive that are allowed in any case


@dataclass(frozen=True)
class Shares:
    """A finished set of shares, in whole quanta."""

    positives: NDArray[np.intp]  # (R,) of the problem, those that hold shares
    start: Integers  # (R + 1,)
    negatives: NDArray[np.intp]  # (Z,) of the ranked problem
    quanta: F64  # (Z,) whole numbers


@dataclass(frozen=True)
class Evaluation:
    """What a set of shares proves about each positive, in whole quanta."""

    values: F64  # (P',) cheapest exemplar, inf where no pair is alive
    cheapest: NDArray[np.int64]  # (P',)
    quanta: F64  # of every entry


class Ascent:
    """Shares of a reduced problem, improved round by round."""

    start: Integers  # (P' + 1,) entries of each positive
    row: NDArray[np.int32]  # (Z,) negative of each entry
    amount: F32  # (Z,) share at present
    mean_amount: F32  # (Z,) share on average over the last iterations
    regret: F32  # (Z,)
    load: F32  # (Z,) how much the positive's choice needs the negative
    entry_start: Integers  # (N' + 1,) entries of each negative, in `entry`
    entry: NDArray[np.int32]  # (Z,)

    def __init__(self, problem: ReducedProblem, quantum: float, workers: Workers) -> None:
        self.problem, self.workers = problem, workers
        n_positives, n_exemplars = problem.reach.shape
        self.price_quanta = np.floor(problem.prices / quantum)
        exponent = _exponent(problem.prices)
        self.prices = np.ldexp(problem.prices, -exponent, dtype=np.float64).astype(np.float32)
        self.fee = np.full(n_positives, -1, dtype=np.float32)
        self.fees = _Fees(problem, exponent) if problem.left_out_budget > 0 else None
        self.choice = np.zeros((n_positives, n_exemplars + 1), dtype=np.float32)
        self.choice_regret = np.zeros_like(self.choice)
        self.mean_choice = np.zeros_like(self.choice)
        nothing = np.empty(0, dtype=np.float32)
        self._set_entries(np.zeros(n_positives + 1, dtype=np.int64), np.empty(0, dtype=np.int32), nothing, nothing)
        self.keep()

    def begin(self, order: NDArray[np.int32]) -> None:
        """First entries: the negatives of each positive's cheapest exemplars, shared evenly."""
        reach = self.problem.reach
        arguments = (order, self.problem.row_of, reach, _FIRST_EXEMPLARS, _FIRST_SLACK, _FIRST_ENTRIES)
        start, _ = kernels.first_entries(*arguments, 0)
        start, row = kernels.first_entries(*arguments, int(start[-1]))
        self._set_entries(start, row, np.zeros(len(row), dtype=np.float32), np.zeros(len(row), dtype=np.float32))
        has_pair = np.flatnonzero((reach > 0).any(axis=1))
        far = np.iinfo(reach.dtype).max
        cheapest = np.where(reach > 0, reach, far).argmin(axis=1)
        self.choice[has_pair, cheapest[has_pair]] = 1
        self._update_loads(self.choice)

    def begin_from(self, shares: Shares) -> Evaluation:
        """First entries: those of given shares, as far as they matter here; returns what they prove as they are."""
        problem = self.problem
        position = np.full(max(problem.positives.max(initial=-1), shares.positives.max(initial=-1)) + 1, -1)
        position[problem.positives] = np.arange(len(problem.positives))
        owner = np.repeat(position[shares.positives], np.diff(shares.start))
        row = problem.row_of[shares.negatives]
        kept = (owner >= 0) & (row >= 0)
        owner, row, amount = owner[kept], row[kept], shares.quanta[kept]
        sequence = np.argsort(owner, kind="stable")
        owner, row, amount = owner[sequence], row[sequence], amount[sequence]
        start = np.searchsorted(owner, np.arange(len(problem.positives) + 1)).astype(np.int64)
        part = (amount / np.maximum(self.price_quanta[row], 1)).astype(np.float32)
        self._set_entries(start, row.astype(np.int32), part * self.prices[row], part * np.float32(_WARMTH))
        evaluation = self._evaluate(amount)
        has_pair = np.flatnonzero(evaluation.cheapest >= 0)
        self.choice[:] = 0
        self.choice[has_pair, evaluation.cheapest[has_pair]] = 1
        self._update_loads(self.choice)
        return evaluation

    def iterate(self, n_iterations: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Both sides reply to each other; `mean_amount` and `mean_choice` are averages over these iterations."""
        n_positives, n_rows = len(self.problem.reach), len(self.problem.prices)
        total = 0.0
        for iteration in range(1, n_iterations + 1):
            if iteration > 1 and is_over():
                break
            if self.fees is not None:
                self.fees.reply(self.choice, self.fee)
            total += iteration**2
            weight = np.float32(iteration**2 / total)

            def negatives(first: int, last: int, weight: np.float32 = weight) -> None:
                kernels.negatives_reply(
                    first,
                    last,
                    self.entry_start,
                    self.entry,
                    self.prices,
                    self.amount,
                    self.regret,
                    self.load,
                    self.mean_amount,
                    weight,
                )

            def positives(first: int, last: int, weight: np.float32 = weight) -> None:
                kernels.positives_reply(
                    first,
                    last,
                    self.problem.rank,
                    self.problem.reach,
                    self.start,
                    self.row,
                    self.amount,
                    self.fee,
                    self.choice,
                    self.choice_regret,
                    self.mean_choice,
                    self.load,
                    weight,
                )

            self.workers.chunks(negatives, n_rows, _piece(n_rows))
            self.workers.chunks(positives, n_positives, _piece(n_positives))

    @property
    def work(self) -> int:
        """Numbers that are looked at in one iteration, about."""
        return (len(self.row) + 3 * len(self.problem.reach)) * self.problem.reach.shape[1]

    def evaluate(self) -> Evaluation:
        """What the average shares prove, without a rounding error."""
        quanta = np.zeros(len(self.row))
        kernels.whole_quanta(self.entry_start, self.entry, self.price_quanta, self.mean_amount, quanta)
        return self._evaluate(quanta)

    def _evaluate(self, quanta: F64) -> Evaluation:
        n = len(self.problem.reach)
        values, cheapest = np.empty(n), np.empty(n, dtype=np.int64)

        def work(first: int, last: int) -> None:
            p = self.problem
            kernels.exact_values(first, last, p.rank, p.reach, self.start, self.row, quanta, values, cheapest)

        self.workers.chunks(work, n, _piece(n))
        return Evaluation(values, cheapest, quanta)

    def costs(self, evaluation: Evaluation) -> F64:
        """(P', E) what each exemplar costs each positive in its own shares, in whole quanta."""
        p, costs = self.problem, np.zeros(self.problem.reach.shape)

        def work(first: int, last: int) -> None:
            kernels.exact_costs(first, last, p.rank, p.reach, self.start, self.row, evaluation.quanta, costs)

        self.workers.chunks(work, len(costs), _piece(len(costs)))
        return costs

    def grow(self, order: NDArray[np.int32], tidy: bool) -> int:
        """Add the entries that are missing most; returns how many. With `tidy` entries that nobody uses are dropped."""
        problem, n_positives = self.problem, len(self.problem.reach)
        choice = np.zeros_like(self.mean_choice)
        kernels.main_choice(self.mean_choice, problem.reach, _LEAST_CHOICE, _MAX_WALK, choice)
        self._update_loads(choice)
        held = np.zeros(len(problem.prices), dtype=np.float32)
        np.maximum.at(held, self.row, self.load)
        room = np.maximum(_LEAST_ROOM, (_GROWTH * np.diff(self.start)).astype(np.int64))
        begin = np.concatenate([[0], np.cumsum(_CANDIDATES * room)])
        found, need = np.empty(begin[-1], dtype=np.int32), np.empty(begin[-1], dtype=np.float32)
        n_found = np.zeros(n_positives, dtype=np.int64)

        def look(first: int, last: int) -> None:
            kernels.wanted_entries(
                first,
                last,
                order,
                problem.row_of,
                problem.reach,
                choice,
                held,
                self.start,
                self.row,
                begin,
                found,
                need,
                n_found,
            )

        self.workers.chunks(look, n_positives, -(-n_positives // (4 * self.workers.n)))
        kernels.neediest_entries(begin, room, found, need, n_found, _EAGERNESS, np.zeros_like(held))
        kept = np.ones(len(self.row), dtype=bool)
        if tidy:
            kept = (self.mean_amount > 1e-6) | (self.regret > 0) | (self.load >= held[self.row] - 0.05)
        is_growing = n_found.sum() > FEW_FOUND * len(self.row)
        regret = self.regret * np.float32(_FORGETTING) if is_growing else self.regret
        self._set_entries(
            *kernels.merge_entries(self.start, kept, begin, n_found, found, self.row, self.amount, regret)
        )
        self._update_loads(self.choice)
        return int(n_found.sum())

    def keep(self) -> None:
        """Remember the present entries, until they are grown."""
        self.kept = (self.start, self.row, self.amount, self.regret, self.mean_amount, self.entry_start, self.entry)

    def go_back(self) -> None:
        """Return to the entries that were remembered last."""
        self.start, self.row, self.amount, self.regret, self.mean_amount, self.entry_start, self.entry = self.kept
        self.load = np.zeros(len(self.row), dtype=np.float32)
        self._update_loads(self.mean_choice)

    def shares(self, evaluation: Evaluation) -> Shares:
        """The average shares as they were evaluated, without the entries that came to nothing."""
        held = evaluation.quanta > 0
        owner = np.repeat(np.arange(len(self.problem.positives)), np.diff(self.start))[held]
        row = self.row[held]
        sequence = np.lexsort((row, owner))
        owners, counts = np.unique(owner, return_counts=True)
        return Shares(
            self.problem.positives[owners],
            np.concatenate([[0], np.cumsum(counts)]),
            self.problem.negatives[row[sequence]],
            evaluation.quanta[held][sequence],
        )

    def _set_entries(self, start: Integers, row: NDArray[np.int32], amount: F32, regret: F32) -> None:
        self.start, self.row, self.amount, self.regret = start, row, amount, regret
        self.load, self.mean_amount = np.zeros(len(row), dtype=np.float32), np.zeros(len(row), dtype=np.float32)
        self.entry_start, self.entry = kernels.by_negative(row, len(self.problem.prices))

    def _update_loads(self, choice: F32) -> None:
        def work(first: int, last: int) -> None:
            kernels.loads_of_choice(
                first, last, self.problem.rank, self.problem.reach, self.start, self.row, choice, self.load
            )

        self.workers.chunks(work, len(choice), _piece(len(choice)))


class _Fees:
    """The price of leaving a positive out, per unit of its weight: what makes the budget just suffice.

    A third side of the game with two moves, free and as dear as the dearest positive; regret matching+ again.
    """

    def __init__(self, problem: ReducedProblem, exponent: int) -> None:
        self.units = problem.weights
        self.budget = problem.left_out_budget
        self.most = math.ldexp(float((problem.difficulty / problem.weights).max(initial=0.0)), -exponent)
        self.regret, self.part = np.zeros(2), 0.5

    def reply(self, choice: F32, fee: F32) -> None:
        """Raise the price where the choice leaves out more than the budget, lower it where less."""
        excess = float(self.units @ choice[:, -1]) - self.budget
        gain = excess / max(self.budget, 1.0)
        advantage = np.array([-self.part * gain, (1 - self.part) * gain])  # of the moves free and dear
        self.regret = np.maximum(self.regret + advantage, 0)
        guess = np.maximum(self.regret + advantage, 0)
        if guess.sum() > 0:
            self.part = float(guess[1] / guess.sum())
        fee[:] = self.part * self.most * self.units


def _exponent(prices: F64) -> int:
    """Of the power of two that divides prices before they become float32; 0 unless they are out of its reach."""
    _, exponent = math.frexp(float(prices.max(initial=0.0)))
    return exponent if abs(exponent) > _FAR else 0


def _piece(n: int) -> int:
    """Work is handed to threads in pieces small enough to even out and large enough to be worth the handing."""
    return max(64, -(-n // 16))
