"""What shares prove at a node of a search, in whole units, and what no solution needs there that is worth looking for.

`core_shares` says what it is for, `sharing` where the shares come from.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from eesvm._support.bits import count_both
from eesvm._support.compile import inner, kernel

# The hard positives: bits of the negatives of pairs; the row of a pair in these, -1 where it has none; and how many
# negatives a pair has, 0 where j can not cover p. (M, W) (K, E) (K, E)
Hard = namedtuple("Hard", "bits row reach")

DEAD = np.int32(1 << 29)  # what a lane costs that is not to be had; none that is costs half as much
_ONE = np.uint64(1)


@kernel()
def weigh(hard: Any, free: Any, highest: Any, is_covered: Any, left: Any, price: Any, low: Any, high: Any) -> Any:
    """A positive that no exemplar can cover for less than `left`, -1 if there is none.

    low and high (K, E) hold bounds of what pairs cost at the node above, after which negatives were paid for `price`;
    they are brought up to date, by counting where that decides whether a pair is affordable. high is 0 where it is not,
    which is also said of pairs above `highest`. Who costs nothing any more is noted as covered.
    """
    for q in range(len(is_covered)):
        if is_covered[q]:
            continue
        n_alive = 0
        for j in range(len(highest)):
            if high[q, j] == 0:
                continue
            if hard.reach[q, j] > highest[j]:
                high[q, j] = 0
                continue
            low[q, j] = max(0, low[q, j] - price)
            if low[q, j] < left <= high[q, j]:
                n = count_both(hard.bits[hard.row[q, j]], free)
                low[q, j], high[q, j] = n, max(n, 1)  # 0 would say that it is not affordable
                if n == 0:
                    is_covered[q] = True
                    break
            if low[q, j] >= left:
                high[q, j] = 0
            n_alive += high[q, j] > 0
        if n_alive == 0 and not is_covered[q]:
            return q
    return -1


@kernel()
def in_whole_units(
    entries: Any, is_covered: Any, lanes: Any, high: Any, unit: Any, amount: Any, cost: Any, least: Any
) -> Any:
    """What shares prove, in units: rounded to whole ones, `unit` of them for each negative, and exact from here on.

    amount (Z,) are the shares, cost (K, L) what lanes pay, DEAD where they are not affordable, least (K,) the cheapest.
    """
    for q in range(len(is_covered)):
        for lane in range(cost.shape[1]):
            is_alive = lane < lanes.n[q] and high[q, lanes.exemplar[q, lane]] > 0
            cost[q, lane] = np.int32(0) if is_alive else DEAD
    amount[:] = 0
    for i in range(len(entries.negative)):
        first, last = entries.start[i], entries.start[i] + entries.n_active[i]
        total, left, largest = np.float32(0), unit, first
        for e in range(first, last):
            total += entries.share[e]
        for e in range(first, last):
            part = 0
            if total > 0:
                part = min(left, np.int64(entries.share[e] / total * np.float32(unit)))
            amount[e] = part
            left -= part
            if entries.share[e] > entries.share[largest]:
                largest = e
        if last > first:
            amount[largest] += left
        for e in range(first, last):
            charge_whole(entries.bits[e], amount[e], cost[entries.owner[e]])
    return least_of_all(cost, is_covered, lanes, least)


@kernel()
def shut_the_dear(
    hard: Any, lanes: Any, is_covered: Any, room: Any, highest: Any, high: Any, cost: Any, least: Any
) -> Any:
    """Shut the pairs that no solution uses that is worth looking for: they pay `room` more than their positive has to.

    Their exemplars stay below them, in `highest`, and all pairs above that are not affordable any more. Returns what
    shares prove then, or a number that is more than anybody needs where a positive is left without a pair.
    """
    for q in range(len(is_covered)):
        if is_covered[q]:
            continue
        for lane in range(lanes.n[q]):
            j = lanes.exemplar[q, lane]
            if cost[q, lane] < DEAD // 2 and cost[q, lane] - least[q] > room:
                highest[j] = min(highest[j], hard.reach[q, j] - 1)
    for q in range(len(is_covered)):
        for j in range(len(highest)):
            if high[q, j] > 0 and hard.reach[q, j] > highest[j]:
                high[q, j] = 0
                if lanes.place[q, j] >= 0:
                    cost[q, lanes.place[q, j]] = DEAD
    return least_of_all(cost, is_covered, lanes, least)


@inner()
def charge_whole(bits: Any, amount: Any, cost: Any) -> None:
    """The lanes that need a negative pay for so many units of it, which may be fewer than none."""
    if amount != 0:
        for w in range(len(bits)):
            word = bits[w]
            for b in range(64):
                cost[64 * w + b] += amount if (word >> np.uint64(b)) & _ONE else np.int32(0)


@inner()
def least_of(cost: Any) -> Any:
    least = cost[0]
    for lane in range(len(cost)):
        least = min(least, cost[lane])
    return least


@inner()
def least_of_all(cost: Any, is_covered: Any, lanes: Any, least: Any) -> Any:
    """least (K,) of each positive that has lanes and is not covered, 0 of the others; their sum."""
    total = np.int64(0)
    for q in range(len(is_covered)):
        least[q] = 0
        if not is_covered[q] and lanes.n[q] > 0:
            least[q] = least_of(cost[q])
            total += least[q]
    return total
