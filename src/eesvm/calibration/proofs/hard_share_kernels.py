"""What shares of hard positives prove at a place of a searched leaf, and a compiled search below it that uses them.

Shares and lanes come from `sharing`, and are believed in nothing: that everybody who can be afforded has a lane is
looked at here, which lanes need a negative is read from the scores again, and a negative gives away no more than it
weighs. Numbers are whole units, so what is proved is exact, also on the way down. Much here is as in the search that
made the proof, and written again on purpose.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from eesvm._support.bits import first_one, has
from eesvm._support.compile import inner, kernel
from eesvm.calibration.proofs.hard_kernels import n_unpaid_all

# Lane by lane, as `sharing.lanes` has them; shares[at[i] : at[i + 1]] are those of the i-th negative that has any: to
# whom, how many units, and bits of the lanes that need it; `place` (N,) is i for each negative, -1 where it has none.
# (I + 1,) (S,) (S,) (S, L / 64) (N,)
Shares = namedtuple("Shares", "at owner amount need place")
# What is known on the way down, a row for each positive covered: what each lane pays, the least of each positive, about
# how many places there are below if it is chosen. (D, W) (D, K) (D, K, L) (D, K) (D, K) (D,)
Down = namedtuple("Down", "paid is_covered cost least rating n_paid")

SHUT = np.int32(1 << 29)  # what a lane costs that is not to be had
_DEEPEST, _CANDIDATES = 200, 5
_ONE = np.uint64(1)


@kernel()
def afford(hard: Any, paid: Any, shut: Any, is_covered: Any, left: Any, price: Any, least: Any, most: Any) -> Any:
    """Whether every positive that is not covered can be, for less than `left`.

    least and most (K, E) are bounds of what pairs cost before negatives were paid for `price`, and are brought up to
    date; most is 0 where a pair is not affordable or shut. Who costs nothing any more is noted as covered.
    """
    for q in range(len(is_covered)):
        is_alive = is_covered[q]
        for j in range(len(shut)):
            if is_covered[q]:
                break
            if most[q, j] == 0:
                continue
            least[q, j] = max(0, least[q, j] - price)
            if hard.scores[q, j] > shut[j] and least[q, j] < left <= most[q, j]:
                n = n_unpaid_all(hard.bits[hard.row[q, j]], paid)
                least[q, j], most[q, j] = n, max(1, n)
                is_covered[q] = n == 0
            if hard.scores[q, j] <= shut[j] or least[q, j] >= left:
                most[q, j] = 0
            is_alive |= most[q, j] > 0
        if not is_alive and not is_covered[q]:
            return False
    return True


@kernel()
def is_whole(lanes: Any, is_covered: Any, most: Any) -> Any:
    """Whether every exemplar that can be afforded has a lane, of the positives that have any."""
    for q in range(len(is_covered)):
        if is_covered[q] or lanes.n[q] == 0:
            continue
        for j in range(most.shape[1]):
            lane = lanes.place[q, j]
            if most[q, j] > 0 and not (0 <= lane < lanes.n[q] and lanes.exemplar[q, lane] == j):
                return False
    return True


@kernel()
def whole_shares(hard: Any, lanes: Any, entries: Any, paid: Any, unit: Any) -> Any:
    """`Shares` in units, `unit` of them for each negative that is not paid, as `entries` have them about."""
    n_lanes = lanes.exemplar.shape[1]
    n_negatives, n, n_kept = 64 * len(paid), 0, 0
    for i in range(len(entries.negative)):
        n += entries.n_active[i]
    shares = Shares(
        np.zeros(len(entries.negative) + 1, dtype=np.int64),
        np.empty(n, dtype=np.int32),
        np.empty(n, dtype=np.int32),
        np.zeros((n, n_lanes // 64), dtype=np.uint64),
        np.full(n_negatives, -1, dtype=np.int32),
    )
    n, negative = 0, np.empty(n, dtype=np.int32)
    for i in range(len(entries.negative)):
        m, first = entries.negative[i], entries.start[i]
        if has(paid, m) or shares.place[m] >= 0:
            continue
        total, left = np.float32(0), np.int64(unit)
        for e in range(first, first + entries.n_active[i]):
            total += entries.share[e]
        for e in range(first, first + entries.n_active[i]):
            part = np.int64(entries.share[e] / total * np.float32(unit)) if total > 0 else np.int64(0)
            part = max(np.int64(0), min(left, part))
            is_last = e == first + entries.n_active[i] - 1
            amount = left if is_last else part
            if amount > 0:
                shares.owner[n], shares.amount[n], negative[n] = entries.owner[e], amount, m
                n += 1
            left -= amount
        shares.place[m], n_kept = n_kept, n_kept + 1
        shares.at[n_kept] = n
    shares.at[n_kept:] = n
    _read_needs(hard, lanes, shares, negative[:n])
    return Shares(shares.at, shares.owner[:n], shares.amount[:n], shares.need[:n], shares.place)


@inner()
def _read_needs(hard: Any, lanes: Any, shares: Any, negative: Any) -> None:
    """Owner by owner, so that the bits of a pair are read once."""
    begin = np.zeros(len(lanes.n) + 1, dtype=np.int64)
    for s in range(len(negative)):
        begin[shares.owner[s] + 1] += 1
    for q in range(len(lanes.n)):
        begin[q + 1] += begin[q]
    at, in_order = begin.copy(), np.empty(len(negative), dtype=np.int64)
    for s in range(len(negative)):
        in_order[at[shares.owner[s]]] = s
        at[shares.owner[s]] += 1
    for q in range(len(lanes.n)):
        for lane in range(lanes.n[q] if begin[q] < begin[q + 1] else 0):
            bits = hard.bits[hard.row[q, lanes.exemplar[q, lane]]]
            for k in range(begin[q], begin[q + 1]):
                s = in_order[k]
                shares.need[s, lane >> 6] |= has(bits, negative[s]) << np.uint64(lane & 63)


@inner()
def _charge(need: Any, amount: Any, cost: Any) -> None:
    """Lanes that need a negative pay so much more."""
    for w in range(len(need)):
        word = need[w]
        for b in range(64):
            cost[64 * w + b] += amount if (word >> np.uint64(b)) & _ONE else np.int32(0)


@inner()
def _least_of_all(lanes: Any, is_covered: Any, cost: Any, least: Any) -> Any:
    """The sum of what positives pay at least, of those that are not covered and have lanes; each of them in `least`."""
    total = np.int64(0)
    for q in range(len(is_covered)):
        least[q] = 0
        if is_covered[q] or lanes.n[q] == 0:
            continue
        least[q] = cost[q].min()
        total += least[q]
    return total


@kernel()
def prices(lanes: Any, shares: Any, is_covered: Any, most: Any) -> Any:
    """(what lanes pay (K, L), the least of each positive (K,), the sum of these over those that are not covered)."""
    cost = np.full(lanes.exemplar.shape, SHUT, dtype=np.int32)
    for q in range(len(is_covered)):
        for lane in range(lanes.n[q]):
            if most[q, lanes.exemplar[q, lane]] > 0:
                cost[q, lane] = 0
    for s in range(len(shares.owner)):
        _charge(shares.need[s], shares.amount[s], cost[shares.owner[s]])
    least = np.zeros(len(is_covered), dtype=np.int32)
    return cost, least, _least_of_all(lanes, is_covered, cost, least)


@kernel()
def shut_the_dear(
    hard: Any, lanes: Any, is_covered: Any, spare: Any, shut: Any, most: Any, cost: Any, least: Any
) -> Any:
    """What positives pay at least once all pairs are shut that cost over `spare` more than their positive has to pay.

    No way for less than what is left uses such a pair, nor one of the same exemplar that needs a lower threshold.
    """
    for q in range(len(is_covered)):
        for lane in range(0 if is_covered[q] else lanes.n[q]):
            if cost[q, lane] < SHUT // 2 and cost[q, lane] - least[q] > spare:
                j = lanes.exemplar[q, lane]
                shut[j] = max(shut[j], hard.scores[q, j])
    for q in range(len(is_covered)):
        for j in range(len(shut)):
            if most[q, j] > 0 and hard.scores[q, j] <= shut[j]:
                most[q, j] = 0
                if lanes.place[q, j] >= 0:
                    cost[q, lanes.place[q, j]] = SHUT
    return _least_of_all(lanes, is_covered, cost, least)


@inner()
def _start(lanes: Any, depths: Any, paid: Any, is_covered: Any, cost: Any, most: Any, worth: Any) -> Any:
    n_positives, n_lanes = cost.shape
    down = Down(
        np.empty((depths, len(paid)), dtype=np.uint64),
        np.empty((depths, n_positives), dtype=np.bool_),
        np.empty((depths, n_positives, n_lanes), dtype=np.int32),
        np.zeros((depths, n_positives), dtype=np.int32),
        np.zeros((depths, n_positives)),
        np.zeros(depths, dtype=np.int64),
    )
    down.paid[0, :], down.is_covered[0, :] = paid, is_covered
    down.cost[0, :, :] = cost
    for q in range(n_positives):
        for lane in range(lanes.n[q]):
            if cost[q, lane] < SHUT // 2:
                down.rating[0, q] += worth[min(most[q, lanes.exemplar[q, lane]], len(worth) - 1)]
    _least_of_all(lanes, is_covered, cost, down.least[0])
    return down


@inner()
def _choose(
    hard: Any, lanes: Any, down: Any, depth: Any, left: Any, worth: Any, seen: Any, price: Any, lane_of: Any
) -> Any:
    """(the positive to cover next, -1 where all are; in how many ways it can be for less than `left`; words looked at).

    The first rows of price and lane_of (2, L) receive these ways.
    """
    cost, rating = down.cost[depth], down.rating[depth]
    seen[:] = False
    best, n_best, best_total, n_seen, work = -1, 0, np.inf, 0, 0
    while n_seen < _CANDIDATES:
        p = -1
        for q in range(len(seen)):
            if not seen[q] and not down.is_covered[depth, q] and lanes.n[q] > 0 and (p < 0 or rating[q] < rating[p]):
                p = q
        if p < 0:
            break
        seen[p] = True
        total, n, is_free = 0.0, 0, False
        for lane in range(lanes.n[p]):
            if cost[p, lane] >= SHUT // 2:
                continue
            n_more = n_unpaid_all(hard.bits[hard.row[p, lanes.exemplar[p, lane]]], down.paid[depth])
            work += down.paid.shape[1]
            if n_more >= left:  # and wherever more is paid below
                cost[p, lane] = SHUT
                continue
            price[1, n], lane_of[1, n] = n_more, lane
            is_free |= n_more == 0
            total += worth[n_more]
            n += 1
        rating[p] = total
        if n == 0:
            return p, 0, work
        down.least[depth, p] = cost[p].min()
        if is_free:
            down.is_covered[depth, p] = True
            continue
        n_seen += 1
        if total < best_total:
            best, n_best, best_total = p, n, total
            price[0, :n], lane_of[0, :n] = price[1, :n], lane_of[1, :n]
    return best, n_best, work


@inner()
def _cheapest_first(price: Any, lane_of: Any, n: Any) -> None:
    for k in range(1, n):
        here, lane, at = price[k], lane_of[k], k
        while at > 0 and price[at - 1] > here:
            price[at], lane_of[at] = price[at - 1], lane_of[at - 1]
            at -= 1
        price[at], lane_of[at] = here, lane


@inner()
def _sum(least: Any, is_covered: Any) -> Any:
    total = np.int64(0)
    for q in range(len(least)):
        total += 0 if is_covered[q] else least[q]
    return total


@inner()
def _go_down(hard: Any, lanes: Any, shares: Any, down: Any, depth: Any, p: Any, j: Any) -> Any:
    """Below, exemplar j covers p; returns what the others pay at least there."""
    n_lanes = down.cost.shape[2]
    for q in range(len(lanes.n)):
        comes_along = hard.may[q, j] and hard.scores[q, j] >= hard.scores[p, j]
        down.is_covered[depth + 1, q] = down.is_covered[depth, q] or comes_along
        down.rating[depth + 1, q] = down.rating[depth, q]
        for lane in range(0 if down.is_covered[depth + 1, q] else n_lanes):
            down.cost[depth + 1, q, lane] = down.cost[depth, q, lane]
    bits = hard.bits[hard.row[p, j]]
    for w in range(len(bits)):
        new = bits[w] & ~down.paid[depth, w]
        down.paid[depth + 1, w] = down.paid[depth, w] | bits[w]
        while new != 0:
            i = shares.place[64 * w + first_one(new)]
            new &= new - _ONE
            for s in range(shares.at[max(i, 0)], shares.at[i + 1] if i >= 0 else 0):
                _charge(shares.need[s], -shares.amount[s], down.cost[depth + 1, shares.owner[s]])
    return _least_of_all(lanes, down.is_covered[depth + 1], down.cost[depth + 1], down.least[depth + 1])


@inner()
def _shut_pair(hard: Any, lanes: Any, down: Any, depth: Any, p: Any, j: Any) -> None:
    """From now on somebody else covers p: j accepts nothing that scores so low, whomever that would cover."""
    score = hard.scores[p, j]
    for q in range(len(lanes.n)):
        lane = lanes.place[q, j]
        if lane >= 0 and hard.scores[q, j] <= score and down.cost[depth, q, lane] < SHUT // 2:
            down.cost[depth, q, lane] = SHUT
            if not down.is_covered[depth, q]:
                down.least[depth, q] = down.cost[depth, q].min()


@kernel()
def least_below(
    hard: Any, lanes: Any, shares: Any, paid: Any, is_covered: Any, cost: Any, most: Any, room: Any,
    unit: Any, worth: Any, budget: Any,
) -> Any:  # fmt: skip
    """(the least that covering all positives with lanes adds, `room` if that is less; whether all was searched; work).

    `worth` (room + 1,) guides the search. Where it is not finished after about `budget` words, the first is the least
    that was found.
    """
    n_positives, n_lanes = cost.shape
    depths = min(_DEEPEST, n_positives + 2)
    down = _start(lanes, depths, paid, is_covered, cost, most, worth)
    price, lane_of = np.empty((depths + 1, n_lanes), dtype=np.int64), np.empty((depths + 1, n_lanes), dtype=np.int64)
    n_ways, way = np.zeros(depths, dtype=np.int64), np.zeros(depths, dtype=np.int64)
    positive, seen = np.zeros(depths, dtype=np.int64), np.zeros(n_positives, dtype=np.bool_)
    depth, least, work, is_new = 0, room, 0, True
    while depth >= 0:
        left = least - down.n_paid[depth]
        if is_new:
            is_new = False
            if work > budget or depth + 1 >= depths:
                return least, False, work
            rows = slice(depth, depth + 2)
            p, n, done = _choose(hard, lanes, down, depth, left, worth, seen, price[rows], lane_of[rows])
            work += done + n_positives
            if p < 0:
                least = down.n_paid[depth]
            if p < 0 or n == 0:
                depth -= 1
                continue
            positive[depth], n_ways[depth], way[depth] = p, n, 0
            _cheapest_first(price[depth], lane_of[depth], n)
        p, k = positive[depth], way[depth]
        if k > 0:
            _shut_pair(hard, lanes, down, depth, p, lanes.exemplar[p, lane_of[depth, k - 1]])
        work += n_positives
        if k == n_ways[depth] or _sum(down.least[depth], down.is_covered[depth]) > (left - 1) * unit:
            depth -= 1
            continue
        way[depth] = k + 1
        rest = left - price[depth, k]  # what may be spent below
        if rest <= 0:
            continue
        j = lanes.exemplar[p, lane_of[depth, k]]
        work += n_positives * n_lanes // 8 + 50 * price[depth, k]
        if _go_down(hard, lanes, shares, down, depth, p, j) > (rest - 1) * unit:
            continue
        down.n_paid[depth + 1] = down.n_paid[depth] + price[depth, k]
        depth, is_new = depth + 1, True
    return least, True, work


@kernel()
def ways_on(
    hard: Any, lanes: Any, shares: Any, paid: Any, is_covered: Any, cost: Any, most: Any, room: Any,
    unit: Any, worth: Any,
) -> Any:  # fmt: skip
    """(a positive, -1 where all are covered; the exemplars that may cover it, none of which covers what a former one
    could; whether shares prove that such a way costs `room` or more; work). No other way is worth looking at."""
    n_lanes = cost.shape[1]
    down = _start(lanes, 2, paid, is_covered, cost, most, worth)
    price, lane_of = np.empty((2, n_lanes), dtype=np.int64), np.empty((2, n_lanes), dtype=np.int64)
    seen = np.zeros(len(is_covered), dtype=np.bool_)
    p, n, work = _choose(hard, lanes, down, 0, room, worth, seen, price, lane_of)
    exemplar, is_closed = np.empty(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
    _cheapest_first(price[0], lane_of[0], n)
    for k in range(n):
        if _sum(down.least[0], down.is_covered[0]) > (room - 1) * unit:
            return p, exemplar[:k], is_closed[:k], work
        j, rest = lanes.exemplar[p, lane_of[0, k]], room - price[0, k]
        exemplar[k], is_closed[k] = j, _go_down(hard, lanes, shares, down, 0, p, j) > (rest - 1) * unit
        work += len(is_covered) * n_lanes // 8 + 50 * price[0, k]
        _shut_pair(hard, lanes, down, 0, p, j)
    return p, exemplar, is_closed, work
