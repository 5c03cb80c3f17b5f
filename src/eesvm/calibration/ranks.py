"""Scores become ranks: the compact form that every search works on.

In: a `CalibrationProblem`. Out: `RankedProblem`, without scores. Exemplar j's negatives are laid out from its highest
score down, `order[j]`; accepting positive p with j means accepting the first `delta[p, j]` of them. A search state is a
*level* per exemplar: how many of its negatives it accepts. After this stop nobody looks at a score until levels become
thresholds again. Absent on purpose: a dense positives x negatives table; memory is that of the scores as int32.

Bounds on thresholds disappear here. A pair whose score is not above the lower threshold becomes a forbidden one; the
negatives above an upper threshold are accepted in every solution, so they leave the problem and their price is kept
aside as `fixed_loss`. Losses and bounds of a search are without it; `anytime.Run` adds it.

Symbols: `order[j, :delta[p, j]]` is B_j(p), the negatives with s_j(n) >= s_j(p) (docs/maths.md, section 1).

Before: `problem`. After: `bounds`, `heuristics`, `exhaustive`, `algorithm1`.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eesvm._validation import FloatArray, InputError
from eesvm.calibration.problem import CalibrationProblem

FORBIDDEN = np.iinfo(np.int32).max  # the delta of a pair that may not count as coverage


@dataclass(frozen=True)
class RankedProblem:
    """The problem in ranks, without the negatives whose acceptance is free or cannot be avoided."""

    order: NDArray[np.int32]  # (E, N) negatives of each exemplar, by decreasing score
    delta: NDArray[np.int32]  # (P, E) how many negatives come along when j accepts p, or FORBIDDEN
    prices: NDArray[np.uint8] | NDArray[np.float64]  # (N,) cost of each negative; uint8 where all cost 1
    difficulty: NDArray[np.float64]  # (P,) cost of p's cheapest exemplar, inf where p has forbidden pairs only
    coverable: NDArray[np.intp]  # indices of the positives that some exemplar may cover; the others are left out
    cheapest: NDArray[np.int32]  # (P,) that exemplar
    positive_weights: NDArray[np.float64]  # (P,)
    left_out_budget: float  # total weight of coverable positives that may stay uncovered
    is_exact: bool  # whether every sum of prices, the fixed ones included, is exact in float64
    fixed_loss: float = 0.0  # price of the negatives that every solution accepts; no part of the losses of a search
    n_fixed: int = 0  # how many those are

    @property
    def n_exemplars(self) -> int:
        return len(self.order)

    def rounding_slack(self, loss: float) -> float:
        """How far a sum of prices near `loss` may be from the truth: what a bound must give away to stay a bound.

        The sum meant is the one that is reported in the end, with the fixed loss.
        """
        n_prices = len(self.prices) + self.n_fixed
        return 0.0 if self.is_exact else n_prices * float(np.finfo(np.float64).eps) * (abs(loss) + self.fixed_loss)


def rank(problem: CalibrationProblem, min_recall: float = 1.0, n_jobs: int | None = None) -> RankedProblem:
    """Sort every exemplar's negatives and count, for every pair, the negatives that come along."""
    is_costly, is_forced = problem.negative_weights > 0, problem.forced()
    costly = np.flatnonzero(is_costly & ~is_forced)
    prices, fixed_prices = problem.negative_weights[costly], problem.negative_weights[is_costly & is_forced]
    negatives = problem.negative_scores
    selected = negatives if len(costly) == len(negatives) else negatives[costly]
    n_positives, n_exemplars = problem.positive_scores.shape
    order = np.empty((n_exemplars, len(costly)), dtype=np.int32)
    delta = np.empty((n_positives, n_exemplars), dtype=np.int32)
    cost = np.full(n_positives, np.inf)
    cheapest = np.zeros(n_positives, dtype=np.int32)
    unit_prices = bool((prices == 1).all())

    def rank_exemplar(j: int) -> NDArray[np.float64]:
        """Fill row j of `order` and column j of `delta`; return what each positive costs with j."""
        order[j], delta[:, j] = _rank_column(selected[:, j], problem.positive_scores[:, j])
        if unit_prices:
            costs = delta[:, j].astype(np.float64)
        else:
            costs = np.concatenate([[0.0], np.cumsum(prices[order[j]])])[delta[:, j]]
        barred = problem.positive_scores[:, j] <= problem.lower_thresholds[j]
        if problem.forbidden is not None:
            barred |= problem.forbidden[:, j]
        delta[barred, j] = FORBIDDEN
        costs[barred] = np.inf
        return costs

    with ThreadPoolExecutor(max_workers=n_jobs or os.cpu_count()) as pool:  # sorting releases the interpreter lock
        for j, costs in enumerate(pool.map(rank_exemplar, range(n_exemplars))):
            cheaper = costs < cost
            cost[cheaper], cheapest[cheaper] = costs[cheaper], j

    coverable = np.flatnonzero(np.isfinite(cost))
    return RankedProblem(
        order=order,
        delta=delta,
        prices=prices.astype(np.uint8) if unit_prices else prices,
        difficulty=cost,
        coverable=coverable,
        cheapest=cheapest,
        positive_weights=problem.recall_units,
        left_out_budget=_spare_budget(problem, min_recall),
        is_exact=_sums_are_exact(problem.negative_weights[is_costly]),
        fixed_loss=float(fixed_prices.sum()),
        n_fixed=len(fixed_prices),
    )


def levels_to_thresholds(
    problem: CalibrationProblem, delta: NDArray[np.int32], levels: NDArray[np.int32]
) -> FloatArray:
    """(E,) thresholds under the lowest positive that each exemplar accepts at its level, its upper bound if none."""
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


def _rank_column(negatives: FloatArray, positives: FloatArray) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Negatives by decreasing score, and for each positive how many of them score at least as high."""
    ascending = np.argsort(negatives, kind="stable")
    n_lower = np.searchsorted(negatives[ascending], positives, side="left")
    return ascending[::-1], len(negatives) - n_lower


def _sums_are_exact(prices: NDArray[np.float64]) -> bool:
    """Whether all prices are multiples of one power of two so coarse that no sum of them needs more than 53 bits."""
    if len(prices) == 0:
        return True
    mantissas, exponents = np.frexp(prices)
    whole = (mantissas * 2.0**53).astype(np.int64)
    trailing_zeros = np.log2((whole & -whole).astype(np.float64)).astype(np.int64)
    _, exponent_of_total = np.frexp(prices.sum())
    return bool(exponent_of_total - (exponents - 53 + trailing_zeros).min() <= 53)


def _spare_budget(problem: CalibrationProblem, min_recall: float) -> float:
    """What the recall floor still lets go once the positives that nobody may cover are left out."""
    spare = problem.spare_budget(min_recall)
    if spare < 0:
        orphans = np.flatnonzero(problem.orphans())
        which = (
            f"positive {orphans[0]}" if len(orphans) == 1 else f"{len(orphans)} positives, the first is {orphans[0]},"
        )
        raise InputError(f"{which} cannot be covered, because {_what_bars(problem, orphans)}, now {min_recall:g}")
    return spare


def _what_bars(problem: CalibrationProblem, orphans: NDArray[np.intp]) -> str:
    """Why nobody may cover the positives `orphans`, and what could be done about it."""
    if problem.forbidden is not None and problem.forbidden[orphans].all():
        return "`forbidden` bars every exemplar: allow a pair or lower `min_recall`"
    if (problem.positive_scores[orphans] <= problem.lower_thresholds).all():
        return "`lower_thresholds` bars every exemplar: lower a threshold or `min_recall`"
    return "`forbidden` and `lower_thresholds` bar every exemplar: allow a pair, lower a threshold or `min_recall`"
