"""Compiled search of a leaf that a proof leaves to its checker; `hard` says what it finds.

It shares nothing with the search that made the proof, and finds what the search of `hard` in numpy finds.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from eesvm._support.compile import inner, kernel

# The hard positives: bits of what comes along under each exemplar, scores, who may cover them. (K, E, W) (K, E) (K, E)
Hard = namedtuple("Hard", "bits scores may")
# What is known on the way down, a row for each positive covered. (D, W) (D, E) (D, K) (D, K) (D, K, E) (D,)
Known = namedtuple("Known", "paid shut is_covered rating is_alive n_paid")

TOO_MUCH = -1
_STRIDE = 64  # words counted between two looks at the limit
_CANDIDATES = 10  # positives that are weighed at a time


@inner()
def _ones(word: Any) -> Any:
    """How many bits of a uint64 are set."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@inner()
def _n_unpaid_all(bits: Any, paid: Any) -> Any:
    n: Any = np.int64(0)
    for w in range(len(bits)):
        n += np.int64(_ones(bits[w] & ~paid[w]))
    return n


@inner()
def _n_unpaid(bits: Any, paid: Any, stop: Any) -> Any:
    """How many bits are not paid; counting ends once it is `stop` or more."""
    n, start = 0, 0
    while start < len(bits) and n < stop:
        end = min(start + _STRIDE, len(bits))
        n += _n_unpaid_all(bits[start:end], paid[start:end])
        start = end
    return n


@inner()
def _choose(hard: Any, known: Any, depth: Any, left: Any, scale: Any, seen: Any, cost: Any, costs: Any) -> Any:
    """(a positive, exemplars that it can afford for less than `left`, words looked at), -1 where all are covered.

    `costs` receives what these cost, `left` for all others. A positive without any ends the looking.
    """
    paid, shut = known.paid[depth], known.shut[depth]
    seen[:] = False
    best, n_best, best_total, n_seen, work = -1, 0, np.inf, 0, 0
    while n_seen < _CANDIDATES:
        p = -1
        for q in range(len(seen)):
            if seen[q] or known.is_covered[depth, q]:
                continue
            if p < 0 or known.rating[depth, q] < known.rating[depth, p]:
                p = q
        if p < 0:
            break
        seen[p] = True
        n_alive, total, is_free = 0, 0.0, False
        for j in range(len(shut)):
            cost[j] = left
            if not known.is_alive[depth, p, j]:
                continue
            if hard.scores[p, j] > shut[j]:
                cost[j] = _n_unpaid(hard.bits[p, j], paid, left)
                work += len(paid)
            if cost[j] >= left:  # also wherever more is paid and less is left: what is paid for lowers both alike
                cost[j] = left
                known.is_alive[depth, p, j] = False
                continue
            n_alive += 1
            is_free |= cost[j] == 0
            total += np.exp(-scale * cost[j])
        known.rating[depth, p] = total
        if n_alive == 0:
            return p, 0, work
        if is_free:
            known.is_covered[depth, p] = True
            continue
        n_seen += 1
        if total < best_total:
            best, n_best, best_total = p, n_alive, total
            costs[:] = cost
    return best, n_best, work


@kernel()
def least_cost(hard: Any, paid: Any, shut: Any, is_covered: Any, room: Any, scale: Any, budget: Any) -> Any:
    """The least number of negatives that covering all hard positives adds to `paid` (W,), `room` if that is less.

    `shut` (E,) is the highest score that each exemplar does not accept, `is_covered` (K,) who is covered. TOO_MUCH
    where more than `budget` words would have to be looked at. `scale` guides the search and changes nothing else.
    """
    n_hard, n_exemplars, n_words = hard.bits.shape
    depths = n_hard + 2
    known = Known(
        np.empty((depths, n_words), dtype=np.uint64),
        np.empty((depths, n_exemplars)),
        np.empty((depths, n_hard), dtype=np.bool_),
        np.zeros((depths, n_hard)),
        np.empty((depths, n_hard, n_exemplars), dtype=np.bool_),
        np.zeros(depths, dtype=np.int64),
    )
    known.paid[0, :], known.shut[0, :], known.is_covered[0, :] = paid, shut, is_covered
    known.is_alive[0, :, :] = hard.may
    positive, costs = np.zeros(depths, dtype=np.int64), np.empty((depths, n_exemplars), dtype=np.int64)
    cost, seen = np.empty(n_exemplars, dtype=np.int64), np.empty(n_hard, dtype=np.bool_)
    depth, least, work, is_new = 0, room, 0, True
    while depth >= 0:
        if is_new:
            is_new = False
            left = least - known.n_paid[depth]
            if left <= 0:
                depth -= 1
                continue
            p, n, done = _choose(hard, known, depth, left, scale, seen, cost, costs[depth])
            work += done + n_exemplars
            if work > budget:
                return TOO_MUCH
            if p < 0:  # all are covered
                least = known.n_paid[depth]
            if p < 0 or n == 0:
                depth -= 1
                continue
            positive[depth] = p
        p, j = positive[depth], -1
        for k in range(n_exemplars):  # the cheapest that is left
            if costs[depth, k] < least - known.n_paid[depth] and (j < 0 or costs[depth, k] < costs[depth, j]):
                j = k
        if j < 0:
            depth -= 1
            continue
        for w in range(n_words):
            known.paid[depth + 1, w] = known.paid[depth, w] | hard.bits[p, j, w]
        known.n_paid[depth + 1] = known.n_paid[depth] + costs[depth, j]
        known.shut[depth + 1, :], known.rating[depth + 1, :] = known.shut[depth], known.rating[depth]
        for q in range(n_hard):
            comes_along = hard.may[q, j] and hard.scores[q, j] >= hard.scores[p, j]
            known.is_covered[depth + 1, q] = known.is_covered[depth, q] or comes_along
            known.is_alive[depth + 1, q, :] = known.is_alive[depth, q]
        known.shut[depth, j] = max(known.shut[depth, j], hard.scores[p, j])  # from now on somebody else covers p
        costs[depth, j] = least
        depth, is_new = depth + 1, True
    return least
