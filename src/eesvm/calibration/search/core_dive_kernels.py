"""Compiled depth-first search below a node whose shares are known, and the children of such a node.

What is paid on the way down is taken out of the shares of its negatives: what the other positives then pay at least,
each to its cheapest lane, is a bound of the node below, which closes most of them at once. Shares are whole units, so
going down loses nothing. Positives are chosen as in `core_kernels`; lanes and entries are of `sharing`.
The checker has a search like this one, on purpose of its own.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from eesvm._support.bits import count_both, first_one
from eesvm._support.compile import inner, kernel
from eesvm._support.sorting import copy_into
from eesvm.calibration.search.core_share_kernels import DEAD, charge_whole, least_of, least_of_all

FINISHED, OUT_OF_BUDGET, COVERED = 0, 1, 2
_DEEPEST = 200
_CANDIDATES = 5  # positives that are weighed at a node
_ONE = np.uint64(1)

# Shares in whole units: the entries, of which only the first n_active of a negative count, their amounts, and the place
# of each negative among those that have entries. (Z,) (N,)
Shares = namedtuple("Shares", "entries amount place")
# A row for each depth. `least` is what positives pay at least, `rating` guesses the nodes below if one is branched on.
# (D, W) (D, K) (D, K, L) (D, K) (D, K) (D,)
Ways = namedtuple("Ways", "free is_covered cost least rating paid")


@kernel()
def place_of(negative: Any, n_negatives: Any) -> Any:
    """(n_negatives,) the place of each number in `negative`, -1 where it is not there."""
    place = np.full(n_negatives, -1, dtype=np.int32)
    for i in range(len(negative)):
        place[negative[i]] = i
    return place


@inner()
def _pay(hard: Any, shares: Any, pair: Any, free: Any, below: Any, cost: Any) -> None:
    """A pair's negatives are paid: free bits without them are put below, and lanes no longer pay for their shares."""
    bits, entries = hard.bits[pair], shares.entries
    for w in range(len(free)):
        word = bits[w] & free[w]
        below[w] = free[w] & ~bits[w]
        while word != 0:
            i = shares.place[64 * w + first_one(word)]
            word &= word - _ONE
            for e in range(entries.start[max(i, 0)], entries.start[i] + entries.n_active[i] if i >= 0 else 0):
                charge_whole(entries.bits[e], -shares.amount[e], cost[entries.owner[e]])


@inner()
def _cover(hard: Any, p: Any, j: Any, is_covered: Any, below: Any) -> None:
    """below (K,): who is covered once exemplar j covers p."""
    for q in range(len(is_covered)):
        below[q] = is_covered[q] or 0 < hard.reach[q, j] <= hard.reach[p, j]


@inner()
def _saved(hard: Any, lanes: Any, p: Any, j: Any, is_covered: Any, cost: Any, least: Any) -> Any:
    """How much more than they have to those pay whom exemplar j covers with p: a child costs at least so much more."""
    more = np.int64(0)
    for q in range(len(is_covered)):
        lane = lanes.place[q, j]
        if lane >= 0 and not is_covered[q] and 0 < hard.reach[q, j] <= hard.reach[p, j] and cost[q, lane] < DEAD // 2:
            more += cost[q, lane] - least[q]
    return more


@inner()
def _shut(hard: Any, lanes: Any, p: Any, j: Any, is_covered: Any, cost: Any, least: Any) -> Any:
    """Exemplar j stays below what covers p; how much more positives pay at least."""
    level, more = hard.reach[p, j], np.int64(0)
    for q in range(len(is_covered)):
        lane = lanes.place[q, j]
        if lane < 0 or hard.reach[q, j] < level or cost[q, lane] >= DEAD // 2:
            continue
        was = cost[q, lane]
        cost[q, lane] = DEAD
        if was == least[q] and not is_covered[q]:
            least[q] = least_of(cost[q])
            more += least[q] - was
    return more


@inner()
def _choose(
    hard: Any,
    lanes: Any,
    ways: Any,
    depth: Any,
    target: Any,
    worth: Any,
    seen: Any,
    prices: Any,
    lane_of: Any,
    n_most: Any,
) -> Any:
    """(positive to branch on, -1 where all are covered; how many lanes it can afford; words looked at).

    prices and lane_of (2, L) receive in their first rows what these cost and which they are.
    """
    free, cost, is_covered = ways.free[depth], ways.cost[depth], ways.is_covered[depth]
    rating, left = ways.rating[depth], target - ways.paid[depth]
    seen[:] = False
    best, n_best, best_total, n_seen, work = -1, 0, np.inf, 0, 0
    while n_seen < n_most:
        p = -1
        for q in range(len(seen)):
            if not seen[q] and not is_covered[q] and lanes.n[q] > 0 and (p < 0 or rating[q] < rating[p]):
                p = q
        if p < 0:
            break
        seen[p] = True
        total, n, is_free = 0.0, 0, False
        for lane in range(lanes.n[p]):
            if cost[p, lane] >= DEAD // 2:
                continue
            price = count_both(hard.bits[hard.row[p, lanes.exemplar[p, lane]]], free)
            work += len(free)
            if price >= left:
                cost[p, lane] = DEAD
                continue
            prices[1, n], lane_of[1, n] = price, lane
            is_free |= price == 0
            total += worth[price]
            n += 1
        rating[p] = total
        if n == 0:
            return p, 0, work
        ways.least[depth, p] = least_of(cost[p])
        if is_free:
            is_covered[p] = True
            continue
        n_seen += 1
        if total < best_total:
            best, n_best, best_total = p, n, total
            for k in range(n):
                prices[0, k], lane_of[0, k] = prices[1, k], lane_of[1, k]
    return best, n_best, work


@inner()
def _sort(prices: Any, lane_of: Any, n: Any) -> None:
    """The cheapest first, equal ones as they are."""
    for k in range(1, n):
        price, lane, at = prices[k], lane_of[k], k
        while at > 0 and prices[at - 1] > price:
            prices[at], lane_of[at] = prices[at - 1], lane_of[at - 1]
            at -= 1
        prices[at], lane_of[at] = price, lane


@inner()
def _sum_of_least(least: Any, is_covered: Any) -> Any:
    total = np.int64(0)
    for q in range(len(least)):
        if not is_covered[q]:
            total += least[q]
    return total


@inner()
def _go_down(hard: Any, lanes: Any, shares: Any, ways: Any, depth: Any, p: Any, j: Any) -> Any:
    """Fill the row below, where exemplar j covers p; returns what the others pay at least there."""
    _cover(hard, p, j, ways.is_covered[depth], ways.is_covered[depth + 1])
    for q in range(len(lanes.n)):
        if not ways.is_covered[depth + 1, q]:
            for lane in range(ways.cost.shape[2]):
                ways.cost[depth + 1, q, lane] = ways.cost[depth, q, lane]
    _pay(hard, shares, hard.row[p, j], ways.free[depth], ways.free[depth + 1], ways.cost[depth + 1])
    return least_of_all(ways.cost[depth + 1], ways.is_covered[depth + 1], lanes, ways.least[depth + 1])


@inner()
def _rooms(depths: Any, n_words: Any, cost: Any) -> Any:
    n_positives, n_lanes = cost.shape
    return Ways(
        np.empty((depths, n_words), dtype=np.uint64),
        np.empty((depths, n_positives), dtype=np.bool_),
        np.empty((depths, n_positives, n_lanes), dtype=np.int32),
        np.zeros((depths, n_positives), dtype=np.int32),
        np.zeros((depths, n_positives)),
        np.zeros(depths, dtype=np.int64),
    )


@inner()
def _enter(lanes: Any, ways: Any, free: Any, is_covered: Any, cost: Any, high: Any, worth: Any) -> None:
    """The first row."""
    copy_into(ways.free[0], free)
    copy_into(ways.is_covered[0], is_covered)
    for q in range(len(is_covered)):
        for lane in range(cost.shape[1]):
            ways.cost[0, q, lane] = cost[q, lane]
            if lane < lanes.n[q] and cost[q, lane] < DEAD // 2:
                ways.rating[0, q] += worth[min(high[q, lanes.exemplar[q, lane]], len(worth) - 1)]
    least_of_all(cost, is_covered, lanes, ways.least[0])


@kernel()
def dive(
    hard: Any,
    lanes: Any,
    shares: Any,
    free: Any,
    is_covered: Any,
    cost: Any,
    high: Any,
    paid: Any,
    target: Any,
    unit: Any,
    worth: Any,
    budget: Any,
) -> Any:
    """Show that nobody covers the positives for less than `target` below a node: (outcome, free bits, nodes, work).

    `worth` (target,) is exp(-scale * price). The free bits are those of where all are covered, if that is the outcome.
    """
    n_positives, n_lanes = cost.shape
    depths = min(_DEEPEST, n_positives + 2)
    ways = _rooms(depths, len(free), cost)
    _enter(lanes, ways, free, is_covered, cost, high, worth)
    ways.paid[0] = paid
    prices, lane_of = np.empty((depths + 1, n_lanes), dtype=np.int64), np.empty((depths + 1, n_lanes), dtype=np.int64)
    n_children, next_child = np.zeros(depths, dtype=np.int64), np.zeros(depths, dtype=np.int64)
    positive, total = np.zeros(depths, dtype=np.int64), np.zeros(depths, dtype=np.int64)
    seen = np.zeros(n_positives, dtype=np.bool_)
    depth, is_new, n_nodes, work = 0, True, 0, 0
    while depth >= 0:
        left = target - ways.paid[depth]
        if is_new:
            is_new = False
            n_nodes += 1
            if work > budget or depth + 1 >= depths:
                return OUT_OF_BUDGET, ways.free[0], n_nodes, work
            row = slice(depth, depth + 2)
            p, n, done = _choose(hard, lanes, ways, depth, target, worth, seen, prices[row], lane_of[row], _CANDIDATES)
            work += done + n_positives
            if p < 0:
                return COVERED, ways.free[depth], n_nodes, work
            if n == 0:
                depth -= 1
                continue
            positive[depth], n_children[depth], next_child[depth] = p, n, 0
            total[depth] = _sum_of_least(ways.least[depth], ways.is_covered[depth])
            _sort(prices[depth], lane_of[depth], n)
        p, k = positive[depth], next_child[depth]
        if k > 0:
            j = lanes.exemplar[p, lane_of[depth, k - 1]]
            total[depth] += _shut(hard, lanes, p, j, ways.is_covered[depth], ways.cost[depth], ways.least[depth])
        if k == n_children[depth] or total[depth] > (left - 1) * unit:
            depth -= 1
            continue
        next_child[depth] = k + 1
        price, j = prices[depth, k], lanes.exemplar[p, lane_of[depth, k]]
        n_nodes += 1
        more = _saved(hard, lanes, p, j, ways.is_covered[depth], ways.cost[depth], ways.least[depth])
        work += n_positives
        if total[depth] + more > (left - 1) * unit:
            continue
        work += n_positives * n_lanes // 8 + 50 * price
        below = _go_down(hard, lanes, shares, ways, depth, p, j)
        if below > (left - price - 1) * unit:
            continue
        copy_into(ways.rating[depth + 1], ways.rating[depth])
        ways.paid[depth + 1] = ways.paid[depth] + price
        depth, is_new = depth + 1, True
    return FINISHED, ways.free[0], n_nodes, work


@kernel()
def branch(
    hard: Any,
    lanes: Any,
    shares: Any,
    free: Any,
    is_covered: Any,
    cost: Any,
    high: Any,
    paid: Any,
    target: Any,
    unit: Any,
    worth: Any,
    n_most: Any,
) -> Any:
    """The children of a node: (positive, -1 where all are covered; exemplars; whether shares close them; work).

    Children cover the positive by one exemplar after the other, and not by those before. After the last of them
    nothing is left that is worth looking for.
    """
    n_lanes = cost.shape[1]
    ways = _rooms(2, len(free), cost)
    _enter(lanes, ways, free, is_covered, cost, high, worth)
    ways.paid[0] = paid
    prices, lane_of = np.empty((2, n_lanes), dtype=np.int64), np.empty((2, n_lanes), dtype=np.int64)
    seen = np.zeros(len(is_covered), dtype=np.bool_)
    p, n, work = _choose(hard, lanes, ways, 0, target, worth, seen, prices, lane_of, n_most)
    exemplar, is_closed = np.empty(n, dtype=np.int32), np.zeros(n, dtype=np.bool_)
    _sort(prices[0], lane_of[0], n)
    left = target - paid
    for k in range(n):
        j, price = lanes.exemplar[p, lane_of[0, k]], prices[0, k]
        if _sum_of_least(ways.least[0], ways.is_covered[0]) > (left - 1) * unit:
            return p, exemplar[:k], is_closed[:k], work
        exemplar[k] = j
        below = _go_down(hard, lanes, shares, ways, 0, p, j)
        is_closed[k] = below > (left - price - 1) * unit
        work += len(is_covered) * n_lanes // 8 + 50 * price
        _shut(hard, lanes, p, j, ways.is_covered[0], ways.cost[0], ways.least[0])
    return p, exemplar, is_closed, work
