"""Scores become ranks: the compact form that every search works on.

In: a `CalibrationProblem`. Out: `RankedProblem`, without scores. Detector j's negatives are laid out from its highest
score down, `order[j]`; accepting positive p with j means accepting the first `delta[p, j]` of them. A search state is a
*level* per detector: how many of its negatives it accepts. After this step nobody looks at a score until levels become
thresholds again.

Bounds on thresholds disappear here. A pair whose score is not above the lower threshold becomes a forbidden one; the
negatives above an upper threshold are accepted in every solution, so they leave the problem and their price is kept
aside as `fixed_loss`. Losses and bounds of a search are without it; `anytime.Run` adds it.

Symbols: `order[j, :delta[p, j]]` is B_j(p), the negatives with s_j(n) >= s_j(p) (docs/maths.md, section 1).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.sorting import stable_argsort
from eesvm._support.validation import FloatArray, InputError
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.units import quantum_of

_BLOCK_BYTES = 2**28  # of the scores that a thread holds at a time
_MUCH = 2**26  # scores: their order takes 256 MiB

FORBIDDEN = np.iinfo(np.int32).max  # the delta of a pair that may not count as coverage


@dataclass(frozen=True)
class RankedProblem:
    """The problem in ranks, without the negatives whose acceptance is free or cannot be avoided."""

    order: NDArray[np.int32]  # (E, N) negatives of each detector, by decreasing score, as far as useful
    delta: NDArray[np.int32]  # (P, E) how many negatives come along when j accepts p, or FORBIDDEN
    prices: NDArray[np.uint8] | NDArray[np.float64]  # (N,) cost of each negative; uint8 where all cost 1
    difficulty: NDArray[np.float64]  # (P,) cost of p's cheapest detector, inf where p has forbidden pairs only
    coverable: NDArray[np.intp]  # indices of the positives that some detector may cover; the others are left out
    cheapest: NDArray[np.int32]  # (P,) that detector
    positive_weights: NDArray[np.float64]  # (P,)
    left_out_budget: float  # total weight of coverable positives that may stay uncovered
    is_exact: bool  # whether every sum of prices, the fixed ones included, is exact in float64
    fixed_loss: float = 0.0  # price of the negatives that every solution accepts; no part of the losses of a search
    n_fixed: int = 0  # how many those are
    quantum: float = 1.0  # power of two of which shares and proofs count whole numbers
    cap: float = np.inf  # higher weights were cut down to it
    is_rounded: bool = False  # whether lower weights were rounded down to whole quanta, and lost something

    @property
    def n_exemplars(self) -> int:
        return len(self.order)

    def rounding_slack(self, loss: float) -> float:
        """How far a sum of prices near `loss` may be from the truth: what a bound must give away to stay a bound.

        The sum meant is the one that is reported in the end, with the fixed loss.
        """
        n_prices = len(self.prices) + self.n_fixed
        return 0.0 if self.is_exact else n_prices * float(np.finfo(np.float64).eps) * (abs(loss) + self.fixed_loss)


def rank(
    problem: CalibrationProblem, min_recall: float | None = 1.0, n_jobs: int | None = None, only_useful: bool = False
) -> RankedProblem:
    """Sort every detector's negatives and count, for every pair, the negatives that come along.

    With `only_useful`, levels that cost more than some solution that is quick to find may be left out, and the pairs
    that need them count as forbidden: no best solution uses them. It is done where it saves memory worth the time.
    Without a floor, `min_recall=None`, everything may be left out.
    """
    is_costly, is_forced = problem.negative_weights > 0, problem.forced()
    costly = np.flatnonzero(is_costly & ~is_forced)
    prices, fixed_prices = problem.negative_weights[costly], problem.negative_weights[is_costly & is_forced]
    table = _Table(problem, costly, n_jobs)
    budget = spare_budget(problem, min_recall)
    unit_prices = bool((prices == 1).all())
    if only_useful and unit_prices and problem.n_exemplars * len(costly) > _MUCH:
        table.count()
        order = table.sort(_leave_out_useless(problem, table.delta, table.difficulty))
    else:
        order = table.sort_and_count(prices)
    return RankedProblem(
        order=order,
        delta=table.delta,
        prices=prices.astype(np.uint8) if unit_prices else prices,
        difficulty=table.difficulty,
        coverable=np.flatnonzero(np.isfinite(table.difficulty)),
        cheapest=table.cheapest,
        positive_weights=problem.recall_units,
        left_out_budget=budget,
        is_exact=_sums_are_exact(problem.negative_weights[is_costly]),
        fixed_loss=float(fixed_prices.sum()),
        n_fixed=len(fixed_prices),
        quantum=quantum_of(problem.negative_weights),
    )


class _Table:
    """The scores of a problem, read a few columns at a time, which is all that a memory map costs."""

    def __init__(self, problem: CalibrationProblem, costly: NDArray[np.intp], n_jobs: int | None) -> None:
        self.problem, self.costly, self.n_jobs = problem, costly, n_jobs
        self.delta = np.empty(problem.positive_scores.shape, dtype=np.int32)
        self.difficulty = np.full(problem.n_positives, np.inf)
        self.cheapest = np.zeros(problem.n_positives, dtype=np.int32)

    def sort_and_count(self, prices: NDArray[np.float64]) -> NDArray[np.int32]:
        """Fill `delta`, `difficulty` and `cheapest`; returns the whole of `order`."""
        order = np.empty((self.problem.n_exemplars, len(self.costly)), dtype=np.int32)

        def visit(j: int, negatives: FloatArray) -> NDArray[np.float64]:
            ascending = stable_argsort(negatives)
            order[j] = ascending[::-1]
            return self._count(j, negatives[ascending], np.concatenate([[0.0], np.cumsum(prices[order[j]])]))

        for j, costs in self._columns(visit):
            self._compare(j, costs)
        return order

    def count(self) -> None:
        """Fill `delta`, `difficulty` and `cheapest` where every negative costs 1."""
        prices = np.arange(len(self.costly) + 1, dtype=np.float64)
        for j, costs in self._columns(lambda j, negatives: self._count(j, np.sort(negatives), prices)):
            self._compare(j, costs)

    def sort(self, n_first: int) -> NDArray[np.int32]:
        """(E, n_first) the first columns of `order`."""
        order = np.empty((self.problem.n_exemplars, n_first), dtype=np.int32)

        def visit(j: int, negatives: FloatArray) -> None:
            n_others = len(negatives) - n_first
            highest = np.arange(len(negatives))
            if 0 < n_first < len(negatives):
                highest = np.sort(np.argpartition(negatives, n_others)[n_others:])
            order[j] = highest[stable_argsort(negatives[highest])[::-1]][:n_first]

        for _ in self._columns(visit):
            pass
        return order

    def _columns(self, visit: Callable[[int, FloatArray], Any]) -> Iterator[tuple[int, Any]]:
        """(j, visit(j, scores of the negatives under j)) for every detector, worked out in threads."""
        scores = self.problem.negative_scores
        is_all = len(self.costly) == len(scores)
        n_threads = self.n_jobs or os.cpu_count() or 1
        # Rows of a large table are far apart: the more of each is read at once, the better, if all threads have work.
        fitting = _BLOCK_BYTES // (scores.dtype.itemsize * max(1, len(scores)))
        width = max(1, min(fitting, -(-self.problem.n_exemplars // (4 * n_threads))))

        def visit_block(first: int) -> list[tuple[int, Any]]:
            block = scores[:, first : first + width] if is_all else scores[self.costly, first : first + width]
            return [(j, visit(j, column)) for j, column in enumerate(np.ascontiguousarray(block.T), start=first)]

        if n_threads == 1:
            for first in range(0, self.problem.n_exemplars, width):
                yield from visit_block(first)
            return
        with ThreadPoolExecutor(max_workers=n_threads) as pool:  # sorting releases the lock
            for visited in pool.map(visit_block, range(0, self.problem.n_exemplars, width)):
                yield from visited

    def _count(self, j: int, ascending: FloatArray, cumulated: NDArray[np.float64]) -> NDArray[np.float64]:
        """Fill column j of `delta`; returns what each positive costs with j, inf where the pair is barred."""
        problem, positives = self.problem, self.problem.positive_scores[:, j]
        delta = len(ascending) - np.searchsorted(ascending, positives, side="left")
        barred = positives <= problem.lower_thresholds[j]
        if problem.forbidden is not None:
            barred |= problem.forbidden[:, j]
        self.delta[:, j] = np.where(barred, FORBIDDEN, delta)
        return np.where(barred, np.inf, cumulated[delta])

    def _compare(self, j: int, costs: NDArray[np.float64]) -> None:
        cheaper = costs < self.difficulty
        self.difficulty[cheaper], self.cheapest[cheaper] = costs[cheaper], j


def _leave_out_useless(problem: CalibrationProblem, delta: NDArray[np.int32], difficulty: NDArray[np.float64]) -> int:
    """Forbid, in place, pairs that cost more than a solution that is quick to find; returns the highest level left.

    The solution: the hardest positives first, each raises the detector that needs the fewest more negatives for it.
    """
    levels = np.zeros(delta.shape[1], dtype=np.int64)
    coverable = np.flatnonzero(np.isfinite(difficulty))
    for p in coverable[np.argsort(-difficulty[coverable], kind="stable")]:
        j = int((delta[p] - levels).argmin())
        levels[j] = max(levels[j], delta[p, j])
    lowest = np.where(delta <= levels, problem.positive_scores, np.inf).min(axis=0)
    under = np.nextafter(lowest.astype(problem.positive_scores.dtype), -np.inf)
    loss = problem.loss(np.where(lowest < np.inf, under, np.inf))
    is_useless = (delta > loss) & (delta != FORBIDDEN)
    delta[is_useless] = FORBIDDEN
    return int(delta[delta != FORBIDDEN].max(initial=0))


def levels_to_thresholds(
    problem: CalibrationProblem, delta: NDArray[np.int32], levels: NDArray[np.int32]
) -> FloatArray:
    """(E,) thresholds under the lowest positive that each detector accepts at its level, its upper bound if none."""
    accepted = delta <= levels
    lowest = np.where(accepted, problem.positive_scores, np.inf).min(axis=0)
    return problem.thresholds_from_lowest(lowest.astype(problem.positive_scores.dtype, copy=False))


def thresholds_to_levels(
    problem: CalibrationProblem, delta: NDArray[np.int32], thresholds: FloatArray
) -> NDArray[np.int32]:
    """(E,) the smallest levels that accept every positive that the thresholds accept: never more costly than they.

    Thresholds out of bounds are moved to the nearest bound.
    """
    thresholds = np.clip(thresholds, problem.lower_thresholds, problem.upper_thresholds)
    accepted = (problem.positive_scores > thresholds) & (delta != FORBIDDEN)
    return np.where(accepted, delta, 0).max(axis=0).astype(np.int32)


def _sums_are_exact(prices: NDArray[np.float64]) -> bool:
    """Whether all prices are multiples of one power of two so coarse that no sum of them needs more than 53 bits."""
    if len(prices) == 0:
        return True
    mantissas, exponents = np.frexp(prices)
    whole = (mantissas * 2.0**53).astype(np.int64)
    trailing_zeros = np.log2((whole & -whole).astype(np.float64)).astype(np.int64)
    _, exponent_of_total = np.frexp(prices.sum())
    return bool(exponent_of_total - (exponents - 53 + trailing_zeros).min() <= 53)


def spare_budget(problem: CalibrationProblem, min_recall: float | None) -> float:
    """What the recall floor still lets go once the positives that nobody may cover are left out."""
    if min_recall is None:
        return float(problem.recall_units[~problem.orphans()].sum())
    spare = problem.spare_budget(min_recall)
    if spare < 0:
        orphans = np.flatnonzero(problem.orphans())
        is_unscored = np.isneginf(problem.positive_scores[orphans]).all(axis=1)
        if is_unscored.any():
            raise InputError(_unscored(orphans[is_unscored], min_recall))
        which = (
            f"positive {orphans[0]}" if len(orphans) == 1 else f"{len(orphans)} positives, the first is {orphans[0]},"
        )
        raise InputError(f"{which} cannot be covered, because {_what_bars(problem, orphans)}, now {min_recall:g}")
    return spare


def _unscored(orphans: NDArray[np.intp], min_recall: float) -> str:
    """The sentence about positives for which all scores are missing."""
    shown = ", ".join(map(str, orphans[:5])) + (f" and {len(orphans) - 5} more" if len(orphans) > 5 else "")
    which = f"positive {shown} has" if len(orphans) == 1 else f"positives {shown} have"
    them = "it" if len(orphans) == 1 else "them"
    return (
        f"{which} no score at all, so no thresholds cover {them}: leave {them} out of the table or lower `min_recall`, "
        f"now {min_recall:g}"
    )


def _what_bars(problem: CalibrationProblem, orphans: NDArray[np.intp]) -> str:
    """Why nobody may cover the positives `orphans`, and what could be done about it."""
    if problem.forbidden is not None and problem.forbidden[orphans].all():
        return "`forbidden` bars every detector: allow a pair or lower `min_recall`"
    scores = problem.positive_scores[orphans]
    if np.isneginf(scores).any():
        return "every detector that scores it is barred, by `forbidden` or `lower_thresholds`: lower `min_recall`"
    if (scores <= problem.lower_thresholds).all():
        return "`lower_thresholds` bars every detector: lower a threshold or `min_recall`"
    return "`forbidden` and `lower_thresholds` bar every detector: allow a pair, lower a threshold or `min_recall`"
