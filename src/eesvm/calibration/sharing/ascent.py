"""Ascent over shares: rounds of a game between the negatives and the positives.

Both sides play predictive regret matching+ as in `search/ascent_kernels`, but here a sweep over the negatives answers
the choice of the positives and adds up what lanes cost in one go. Where a negative has one entry there is nothing to
play. Numbers are floats: what shares prove is about what they prove here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eesvm._support.compile import inner, kernel
from eesvm.calibration.sharing.entries import WANTED, look_for_wanted, part_in_need, review, with_wanted

_FAR = np.float32(1e30)  # what a lane costs that is not to be had
_ONE = np.uint64(1)
_SETTLED_BY, _SETTLED = 2, np.float32(0.02)  # after which sweep of a round negatives rest that changed by less


@kernel()
def improve(
    pairs: Any,
    lanes: Any,
    entries: Any,
    free: Any,
    is_covered: Any,
    high: Any,
    choice: Any,
    regret: Any,
    needed: Any,
    n_rounds: Any,
    n_sweeps: Any,
    grow_first: Any,
    grow_every: Any,
) -> Any:
    """(entries, what they prove, work): rounds of sweeps until that is `needed`; choice and regret change in place.

    Entries that are missing are looked for in every `grow_every`th round from `grow_first` on.
    """
    held = np.zeros(64 * len(free), dtype=np.float32)
    by, who = np.zeros((len(held), WANTED), dtype=np.float32), np.zeros((len(held), WANTED), dtype=np.int32)
    base, cost = np.empty(choice.shape, dtype=np.float32), np.empty(choice.shape, dtype=np.float32)
    several, need = np.empty(len(entries.negative), dtype=np.int64), np.empty(len(is_covered), dtype=np.float32)
    n_words, best, work = entries.bits.shape[1], 0.0, 0
    for r in range(n_rounds):
        review(entries, choice, held)
        if len(entries.owner) == 0 or (r >= grow_first and (r - grow_first) % grow_every == 0):
            by[:], who[:] = 0, -1
            look_for_wanted(pairs, lanes, free, is_covered, choice, held, by, who)
            entries = with_wanted(pairs, lanes, entries, by, who)
            work += 10 * len(free) * len(is_covered)
        n_several = _begin_costs(entries, high, lanes, base, several)
        amount, total, n_busy = entries.share.copy(), 0.0, n_several
        work += n_words * len(entries.owner)
        for t in range(1, n_sweeps + 1):
            total += t * t
            weight = np.float32(t * t / total)
            if t == _SETTLED_BY:
                before = amount.copy()
            _sweep(entries, several[:n_busy], choice, amount, weight, base, need, cost)
            value = _reply(is_covered, lanes, choice, regret, cost)
            work += 3 * n_words * n_busy
            if t == _SETTLED_BY:
                n_busy = _settle(entries, several[:n_busy], before, amount, base)
            if value >= needed:
                entries.share[:] = amount
                return entries, value, work
        best = max(best, _value(entries, several[:n_busy], is_covered, lanes, base, cost))
        if best >= needed:
            break
    return entries, best, work


@inner(fastmath=True)
def _begin_costs(entries: Any, high: Any, lanes: Any, base: Any, several: Any) -> Any:
    """What lanes pay to negatives with one share, _FAR where they are not affordable; the others: how many."""
    for q in range(len(base)):
        for lane in range(base.shape[1]):
            is_alive = lane < lanes.n[q] and high[q, lanes.exemplar[q, lane]] > 0
            base[q, lane] = np.float32(0) if is_alive else _FAR
    n = 0
    for i in range(len(entries.negative)):
        first = entries.start[i]
        if entries.n_active[i] == 1:
            _charge(entries.bits[first], np.float32(1), base[entries.owner[first]])
        elif entries.n_active[i] > 1:
            several[n] = i
            n += 1
    return n


@inner(fastmath=True)
def _sweep(entries: Any, several: Any, choice: Any, amount: Any, weight: Any, base: Any, need: Any, cost: Any) -> None:
    """Negatives give their weight to those who need it most; shares are averages, to which this counts `weight`."""
    regret, share = entries.regret, entries.share
    for q in range(len(base)):
        for lane in range(base.shape[1]):
            cost[q, lane] = base[q, lane]
    for i in several:
        first, last = entries.start[i], entries.start[i] + entries.n_active[i]
        given, total = np.float32(0), np.float32(0)
        for e in range(first, last):
            part = part_in_need(entries.bits[e], choice[entries.owner[e]])
            need[e - first] = part
            given += amount[e] * part
        for e in range(first, last):
            more = need[e - first] - given
            regret[e] = max(regret[e] + more, np.float32(0))
            amount[e] = max(regret[e] + more, np.float32(0))
            total += amount[e]
        for e in range(first, last):
            amount[e] = amount[e] / total if total > 0 else np.float32(1) / np.float32(last - first)
            share[e] += weight * (amount[e] - share[e])
            if amount[e] > 0:
                _charge(entries.bits[e], amount[e], cost[entries.owner[e]])


@inner(fastmath=True)
def _charge(bits: Any, amount: Any, cost: Any) -> None:
    """The lanes that need a negative pay for a share of it."""
    for w in range(len(bits)):
        word = bits[w]
        for b in range(64):
            cost[64 * w + b] += amount if (word >> np.uint64(b)) & _ONE else np.float32(0)


@inner(fastmath=True)
def _settle(entries: Any, several: Any, before: Any, amount: Any, base: Any) -> Any:
    """Negatives that give as they gave before are paid for once, and come last; how many others there are."""
    n = 0
    for k in range(len(several)):
        i = several[k]
        first, last, most = entries.start[i], entries.start[i] + entries.n_active[i], np.float32(0)
        for e in range(first, last):
            most = max(most, abs(amount[e] - before[e]))
        if most > _SETTLED:
            several[k], several[n] = several[n], i
            n += 1
            continue
        for e in range(first, last):
            entries.share[e] = amount[e]
            if amount[e] > 0:
                _charge(entries.bits[e], amount[e], base[entries.owner[e]])
    return n


@inner(fastmath=True)
def _reply(is_covered: Any, lanes: Any, choice: Any, regret: Any, cost: Any) -> Any:
    """Positives shift their choice to lanes that are cheap; what they pay at least in all."""
    total: Any = 0.0
    n_lanes = choice.shape[1]
    for q in range(len(is_covered)):
        if is_covered[q] or lanes.n[q] == 0:
            continue
        chosen, regrets, costs = choice[q], regret[q], cost[q]
        paid, least, sum_of_chosen = np.float32(0), _FAR, np.float32(0)
        for lane in range(n_lanes):
            paid += chosen[lane] * costs[lane]
            least = min(least, costs[lane])
        for lane in range(n_lanes):
            more = paid - costs[lane]
            regrets[lane] = max(regrets[lane] + more, np.float32(0))
            chosen[lane] = max(regrets[lane] + more, np.float32(0))
            sum_of_chosen += chosen[lane]
        if sum_of_chosen > 0:
            for lane in range(n_lanes):
                chosen[lane] /= sum_of_chosen
        else:
            is_chosen = False
            for lane in range(n_lanes):
                chosen[lane] = np.float32(1) if costs[lane] == least and not is_chosen else np.float32(0)
                is_chosen |= costs[lane] == least
        total += least
    return total


@inner(fastmath=True)
def _value(entries: Any, several: Any, is_covered: Any, lanes: Any, base: Any, cost: Any) -> Any:
    """What positives pay at least in all, by shares as they are on average."""
    for q in range(len(base)):
        for lane in range(base.shape[1]):
            cost[q, lane] = base[q, lane]
    for i in several:
        for e in range(entries.start[i], entries.start[i] + entries.n_active[i]):
            if entries.share[e] > 0:
                _charge(entries.bits[e], entries.share[e], cost[entries.owner[e]])
    total: Any = 0.0
    for q in range(len(is_covered)):
        if not is_covered[q] and lanes.n[q] > 0:
            least = _FAR
            for lane in range(base.shape[1]):
                least = min(least, cost[q, lane])
            total += least
    return total
