"""Compiled search of a leaf that a proof leaves to its checker; `hard` says what it finds.

It shares nothing with the search that made the proof, and finds what the search of `hard` in numpy finds.

Where it is known how many negatives two pairs have in common, what one costs once the other is paid is known to be no
less than before less that many. A positive whose pairs all are too dear by that closes a place without any counting.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from eesvm._support.compile import inner, kernel

# The hard positives: bits of what comes along in each pair of one of them and an exemplar, the row of a pair in these,
# -1 where it costs too much to be used; scores, who may cover them; a number for some pairs, -1 for the others, and how
# many negatives come along with both of two of these. (R, W) (K, E) (K, E) (K, E) (K, E) (M, M)
Hard = namedtuple("Hard", "bits row scores may number both")
# What is known on the way down, a row for each positive covered: of each positive, who can still be afforded, how many
# these are, and what each costs at least. (D, W) (D, E) (D, K) (D, K) (D, K, E) (D, K) (D, K, E) (D,)
Known = namedtuple("Known", "paid shut is_covered rating alive n_alive at_least n_paid")

TOO_MUCH = -1
_STRIDE = 64  # words counted between two looks at the limit
_CANDIDATES, _FEWER = 10, 3  # positives that are weighed at a time, and where pairs have been compared
_PAIRS = 8  # words looked at in the time in which two pairs are compared
_BLOCK = 24  # pairs that are compared with many others while they are at hand


@inner()
def _ones(word: Any) -> Any:
    """How many bits of a uint64 are set."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@inner()
def n_unpaid_all(bits: Any, paid: Any) -> Any:
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
        n += n_unpaid_all(bits[start:end], paid[start:end])
        start = end
    return n


@kernel()
def fill_both(bits: Any, row: Any, first: Any, last: Any, both: Any) -> None:
    """both[a, b]: negatives that come along with pairs a and b, for a from `first` to `last` and b up to a; both[b, a].

    Pair a has row[a] of the bits. (R, W) (M,) (M, M)
    """
    for start in range(0, last, _BLOCK):
        for a in range(max(first, start), last):
            outside = ~bits[row[a]]
            for b in range(start, min(start + _BLOCK, a + 1)):
                n = n_unpaid_all(bits[row[b]], outside)
                both[a, b], both[b, a] = n, n


@inner()
def _choose(hard: Any, known: Any, depth: Any, left: Any, worth: Any, seen: Any, cost: Any, costs: Any) -> Any:
    """(a positive, exemplars that it can afford for less than `left`, words looked at), -1 where all are covered.

    `costs` receives what these cost. A positive without any ends the looking.
    """
    paid, shut = known.paid[depth], known.shut[depth]
    seen[:] = False
    most = _CANDIDATES if len(hard.both) == 0 else _FEWER
    best, n_best, best_total, n_seen, work = -1, 0, np.inf, 0, 0
    while n_seen < most or depth == 0:  # all are weighed first: what they cost is compared further down
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
        for k in range(known.n_alive[depth, p]):
            j = known.alive[depth, p, k]
            if hard.scores[p, j] <= shut[j]:
                continue
            n = _n_unpaid(hard.bits[hard.row[p, j]], paid, left)
            work += len(paid)
            if n >= left:  # also wherever more is paid and less is left: what is paid for lowers both alike
                continue
            known.alive[depth, p, n_alive], known.at_least[depth, p, n_alive], cost[n_alive] = j, n, n
            n_alive += 1
            is_free |= n == 0
            total += worth[n]
        known.n_alive[depth, p], known.rating[depth, p] = n_alive, total
        if n_alive == 0:
            return p, 0, work
        if is_free:
            known.is_covered[depth, p] = True
            continue
        n_seen += 1
        if total < best_total:
            best, n_best, best_total = p, n_alive, total
            costs[:n_alive] = cost[:n_alive]
    return best, n_best, work


@inner()
def _pay(hard: Any, known: Any, depth: Any, p: Any, j: Any, price: Any, left: Any, worth: Any) -> Any:
    """(whether there is a place below, where exemplar j covers p for `price` and `left` is left, words looked at).

    False if some positive has no affordable exemplar left.
    """
    own, work = hard.number[p, j], 0
    for q in range(len(hard.scores)):
        comes_along = hard.may[q, j] and hard.scores[q, j] >= hard.scores[p, j]
        known.is_covered[depth + 1, q] = known.is_covered[depth, q] or comes_along
        known.rating[depth + 1, q] = known.rating[depth, q]
        n_alive = 0
        if known.is_covered[depth + 1, q]:
            continue
        total = 0.0
        for k in range(known.n_alive[depth, q]):
            i = known.alive[depth, q, k]
            if hard.scores[q, i] <= known.shut[depth, i]:
                continue
            in_both = price  # at most
            if own >= 0 and hard.number[q, i] >= 0:
                in_both = min(price, hard.both[own, hard.number[q, i]])
            n = max(0, known.at_least[depth, q, k] - in_both)
            if n < left:
                known.alive[depth + 1, q, n_alive], known.at_least[depth + 1, q, n_alive] = i, n
                n_alive += 1
                total += worth[n]
        work += _PAIRS * known.n_alive[depth, q]
        if n_alive == 0:
            return False, work
        known.n_alive[depth + 1, q] = n_alive
        if own >= 0:
            known.rating[depth + 1, q] = total
    bits = hard.bits[hard.row[p, j]]
    for w in range(len(bits)):
        known.paid[depth + 1, w] = known.paid[depth, w] | bits[w]
    known.shut[depth + 1, :] = known.shut[depth]
    return True, work


@kernel()
def least_cost(hard: Any, paid: Any, shut: Any, is_covered: Any, room: Any, scale: Any, budget: Any) -> Any:
    """The least number of negatives that covering all hard positives adds to `paid` (W,), `room` if that is less.

    `shut` (E,) is the highest score that each exemplar does not accept, `is_covered` (K,) who is covered. TOO_MUCH
    where more than `budget` words would have to be looked at. `scale` guides the search and changes nothing else.
    """
    n_hard, n_exemplars = hard.row.shape
    n_words = len(paid)
    depths = n_hard + 2
    known = Known(
        np.empty((depths, n_words), dtype=np.uint64),
        np.empty((depths, n_exemplars)),
        np.empty((depths, n_hard), dtype=np.bool_),
        np.zeros((depths, n_hard)),
        np.empty((depths, n_hard, n_exemplars), dtype=np.int32),
        np.zeros((depths, n_hard), dtype=np.int32),
        np.zeros((depths, n_hard, n_exemplars), dtype=np.int32),
        np.zeros(depths, dtype=np.int64),
    )
    known.paid[0, :], known.shut[0, :], known.is_covered[0, :] = paid, shut, is_covered
    for q in range(n_hard):
        for j in range(n_exemplars):
            if hard.row[q, j] >= 0:
                known.alive[0, q, known.n_alive[0, q]] = j
                known.n_alive[0, q] += 1
    worth = np.exp(-scale * np.arange(max(room, 1)))
    positive, n_children = np.zeros(depths, dtype=np.int64), np.zeros(depths, dtype=np.int64)
    costs, cost = np.empty((depths, n_exemplars), dtype=np.int64), np.empty(n_exemplars, dtype=np.int64)
    seen = np.empty(n_hard, dtype=np.bool_)
    depth, least, work, is_new = 0, room, 0, True
    while depth >= 0:
        if is_new:
            is_new = False
            left = least - known.n_paid[depth]
            if left <= 0:
                depth -= 1
                continue
            p, n, done = _choose(hard, known, depth, left, worth, seen, cost, costs[depth])
            work += done + n_exemplars
            if work > budget:
                return TOO_MUCH
            if p < 0:  # all are covered
                least = known.n_paid[depth]
            if p < 0 or n == 0:
                depth -= 1
                continue
            positive[depth], n_children[depth] = p, n
        p, at = positive[depth], -1
        for k in range(n_children[depth]):  # the cheapest that is left
            if costs[depth, k] < least - known.n_paid[depth] and (at < 0 or costs[depth, k] < costs[depth, at]):
                at = k
        if at < 0:
            depth -= 1
            continue
        j, price = known.alive[depth, p, at], costs[depth, at]
        known.n_paid[depth + 1] = known.n_paid[depth] + price
        is_new, done = _pay(hard, known, depth, p, j, price, least - known.n_paid[depth + 1], worth)
        work += done
        known.shut[depth, j] = max(known.shut[depth, j], hard.scores[p, j])  # from now on somebody else covers p
        costs[depth, at] = room
        if is_new:
            depth += 1
    return least
