"""Compiled depth-first search that covers a few hard positives, with sets of negatives held as bits.

A node has accepted some negatives; `free` has a bit for each of the others. Covering positive p by exemplar j costs the
free bits of B_j(p), which a processor counts 64 at a time. Below a node there is a solution for less than `target` only
if every positive has an exemplar that it can afford, so a positive without one closes the node. Else one positive is
chosen and covered by each exemplar in turn, the cheapest first; those before are forbidden, so that no solution is met
twice.

Which positive: if the nodes below grow by a factor e for every so many negatives that are left to spend, a positive has
about the sum of exp(-scale * cost) over its exemplars below it, and the one with the least sum is taken. A pair that
costs too much at a node does so in all nodes below: what is accepted there takes as much from what may be spent as it
takes from the cost, or more.

Where there are many negatives, counting is what takes time. How many negatives two pairs have in common need be counted
only once: covering a positive by one pair lowers what another still costs by no more than that. So most nodes are
closed, and most pairs dropped, by comparing numbers, and few positives are counted at each of the others.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from eesvm._support.bits import count_both
from eesvm._support.compile import inner, kernel
from eesvm._support.sorting import copy_into

FINISHED, OUT_OF_BUDGET, COVERED = 0, 1, 2
UNTOLD = 0xFFFF  # an event
_STRIDE = 64  # words counted between two looks at the limit
_CANDIDATES, _COMPARED = 10, 3  # positives that are weighed at a node, and where pairs were compared first
_PER_PAIR = 8  # words that are looked at in the time in which two pairs are compared
_TILE = 32  # pairs whose bits are kept in the cache

# The core: bits of B_j(p) and how many there are, 0 where j can not cover p; the number of a pair, -1 where it has
# none, and how many negatives two of these have in common. (K, E, W) (K, E) (K, E) (M, M)
Core = namedtuple("Core", "bits reach pair common")
# What is known on the way down, a row for each depth; the first n_alive exemplars of `alive` may be affordable, for
# `cost` or more. `order` has the positives that are most likely to close a node first.
# (D, W) (D, E) (D, K) (D, K) (D, K) (D, K, E) (D, K, E) (D, K) (D,)
Frames = namedtuple("Frames", "free highest is_covered rating n_alive alive cost order paid")
# The way down to where a search ended: the positive of each node, -1 where none is chosen yet, its exemplars that are
# affordable, the place of the one after the current one, and the events and nodes before it. (D,) (D, E) (D,) (D,) (D,)
Path = namedtuple("Path", "positive child next events nodes")


@kernel()
def fill_bits(order: Any, number: Any, reach: Any, bits: Any) -> None:
    """bits[j] (W,), all zero, get a one for each of the first reach[j] negatives of exemplar j, by their numbers."""
    for j in range(len(reach)):
        for k in range(reach[j]):
            n = number[order[j, k]]
            bits[j, n >> 6] |= np.uint64(1) << np.uint64(n & 63)


@kernel()
def fill_pairs(order: Any, number: Any, reach: Any, positive: Any, exemplar: Any, bits: Any) -> None:
    """bits[k] (W,), all zero, get a one for each negative of pair k: exemplar[k] for positive[k]."""
    for k in range(len(positive)):
        q, j = positive[k], exemplar[k]
        for m in range(reach[q, j]):
            n = number[order[j, m]]
            bits[k, n >> 6] |= np.uint64(1) << np.uint64(n & 63)


@kernel()
def look_at(order: Any, number: Any, delta: Any, highest: Any, free: Any, levels: Any, least: Any) -> None:
    """What follows from the negatives that are not free: the level of each exemplar, what each positive still costs.

    levels[j] is how many negatives of j come before its first free one; least[p] the cost of the cheapest exemplar.
    """
    missing = np.empty(order.shape[1] + 1, dtype=np.int32)
    for j in range(len(order)):
        missing[0] = 0
        for k in range(highest[j]):
            n = number[order[j, k]]
            is_free = (free[n >> 6] >> np.uint64(n & 63)) & np.uint64(1)
            missing[k + 1] = missing[k] + np.int32(is_free)
        level = 0
        while level < highest[j] and missing[level + 1] == 0:
            level += 1
        levels[j] = level
        for p in range(len(delta)):
            if delta[p, j] <= highest[j]:
                least[p] = min(least[p], missing[delta[p, j]])


@inner()
def _count(bits: Any, free: Any, stop: Any) -> Any:
    """How many bits are free; counting ends once it is `stop` or more."""
    n, start = 0, 0
    while start < len(bits) and n < stop:
        end = min(start + _STRIDE, len(bits))
        n += count_both(bits[start:end], free[start:end])
        start = end
    return n


@kernel()
def count_common(bits: Any, positive: Any, exemplar: Any, first: Any, last: Any, common: Any) -> None:
    """common[a, b] for pairs a from `first` to `last` and all b up to a, and common[b, a].

    Pair a is exemplar[a] for positive[a]. (K, E, W) (M,) (M,) (M, M)
    """
    for start in range(0, last, _TILE):
        for a in range(max(first, start), last):
            mine = bits[positive[a], exemplar[a]]
            for b in range(start, min(start + _TILE, a + 1)):
                n = count_both(mine, bits[positive[b], exemplar[b]])
                common[a, b], common[b, a] = n, n


@inner()
def _weigh(core: Any, frames: Any, depth: Any, p: Any, target: Any, worth: Any, cost: Any) -> Any:
    """cost[k] of the k-th exemplar that p can afford, others are dropped: (the least, how many, their sum of worth)."""
    most = target - frames.paid[depth]
    free, highest, alive = frames.free[depth], frames.highest[depth], frames.alive[depth, p]
    known = frames.cost[depth, p]
    least, n_alive, total = most, 0, 0.0
    for k in range(frames.n_alive[depth, p]):
        j = alive[k]
        if core.reach[p, j] > highest[j]:
            continue
        n = _count(core.bits[p, j], free, most)
        if n >= most:
            continue
        alive[n_alive], known[n_alive], cost[n_alive] = j, n, n
        least, n_alive = min(least, n), n_alive + 1
        total += worth[n]
    frames.n_alive[depth, p] = n_alive
    return least, n_alive, total


@inner()
def _choose(core: Any, frames: Any, depth: Any, target: Any, worth: Any, seen: Any, cost: Any, costs: Any) -> Any:
    """(the positive to branch on, -1 where all are covered; exemplars that it can afford; words looked at).

    `costs` receives what they cost.
    """
    n_words = frames.free.shape[1]
    seen[:] = False
    most = _CANDIDATES if len(core.common) == 0 else _COMPARED
    best, best_n, best_total, n_seen, work = -1, 0, np.inf, 0, 0
    while n_seen < most or depth == 0:  # the first node rates all
        p = -1
        for q in range(len(seen)):
            if seen[q] or frames.is_covered[depth, q]:
                continue
            if p < 0 or frames.rating[depth, q] < frames.rating[depth, p]:
                p = q
        if p < 0:
            break
        seen[p] = True
        work += frames.n_alive[depth, p] * n_words
        least, n_alive, total = _weigh(core, frames, depth, p, target, worth, cost)
        frames.rating[depth, p] = total
        if n_alive == 0:
            return p, 0, work
        if least == 0:  # it comes for nothing: no choice
            frames.is_covered[depth, p] = True
            continue
        n_seen += 1
        if best < 0 or total < best_total:
            best, best_n, best_total = p, n_alive, total
            for k in range(n_alive):
                costs[k] = cost[k]
        if n_alive == 1:
            break
    return best, best_n, work


@inner()
def _sort_children(child: Any, costs: Any, n: Any) -> None:
    """The cheapest of the first n exemplars first, equal ones in the order in which they are."""
    for k in range(1, n):
        j, cost, at = child[k], costs[k], k
        while at > 0 and costs[at - 1] > cost:
            child[at], costs[at] = child[at - 1], costs[at - 1]
            at -= 1
        child[at], costs[at] = j, cost


@inner()
def _go_down(core: Any, frames: Any, depth: Any, p: Any, j: Any, cost: Any, target: Any, worth: Any) -> Any:
    """(a positive that closes the node below, in which exemplar j covers p, or -1, and that node is entered; words)."""
    own, work = core.pair[p, j], 0
    frames.paid[depth + 1] = frames.paid[depth] + cost
    for place in range(len(core.reach)):
        q = frames.order[depth, place]
        is_covered = frames.is_covered[depth, q] or 0 < core.reach[q, j] <= core.reach[p, j]
        frames.is_covered[depth + 1, q] = is_covered
        frames.rating[depth + 1, q] = frames.rating[depth, q]
        if is_covered:
            continue
        n_alive = frames.n_alive[depth, q]
        if own >= 0:
            n_alive, total = _compare(core, frames, depth, q, own, cost, target, worth)
            work += _PER_PAIR * frames.n_alive[depth, q]
            if n_alive == 0:
                return q, work
            frames.rating[depth + 1, q] = total
        else:
            for k in range(n_alive):
                frames.alive[depth + 1, q, k] = frames.alive[depth, q, k]
            if len(core.common) > 0:
                for k in range(n_alive):
                    frames.cost[depth + 1, q, k] = max(0, frames.cost[depth, q, k] - cost)
        frames.n_alive[depth + 1, q] = n_alive
    free, bits, below = frames.free[depth], core.bits[p, j], frames.free[depth + 1]
    for w in range(len(free)):
        below[w] = free[w] & ~bits[w]
    copy_into(frames.highest[depth + 1], frames.highest[depth])
    return -1, work


@inner()
def _compare(core: Any, frames: Any, depth: Any, q: Any, own: Any, cost: Any, target: Any, worth: Any) -> Any:
    """(how many exemplars q may still afford in the node below, their sum of worth), by what they cost at least there.

    Pair `own` is paid there, for `cost`. Of the negatives that a pair of q needed, no more than that are paid now, nor
    more than both have in common.
    """
    common, numbers, reach, highest = core.common[own], core.pair[q], core.reach[q], frames.highest[depth]
    alive, known = frames.alive[depth, q], frames.cost[depth, q]
    below, least = frames.alive[depth + 1, q], frames.cost[depth + 1, q]
    most = target - frames.paid[depth + 1]
    n_alive, total = 0, 0.0
    for k in range(frames.n_alive[depth, q]):
        i = alive[k]
        number = numbers[i]
        n = max(0, known[k] - (min(cost, common[number]) if number >= 0 else cost))
        if n < most and reach[i] <= highest[i]:
            below[n_alive], least[n_alive] = i, n
            n_alive += 1
            total += worth[n]
    return n_alive, total


@inner()
def _sort_positives(frames: Any, depth: Any) -> None:
    """Those with the least rating first; they are nearly in order."""
    order, rating = frames.order[depth], frames.rating[depth]
    for place in range(1, len(order)):
        q, at = order[place], place
        while at > 0 and rating[order[at - 1]] > rating[q]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = q


@inner()
def _enter_root(core: Any, frames: Any, lowest: Any, highest: Any) -> None:
    """The first frame: levels from `lowest` to `highest`, whose free bits are given."""
    copy_into(frames.highest[0], highest)
    for q in range(len(core.reach)):
        frames.is_covered[0, q], frames.rating[0, q], frames.order[0, q] = False, -1.0, q
        n_alive = 0
        for j in range(len(lowest)):
            reach = core.reach[q, j]
            if 0 < reach <= highest[j]:
                frames.alive[0, q, n_alive], frames.cost[0, q, n_alive] = j, 0
                n_alive += 1
            if 0 < reach <= lowest[j]:
                frames.is_covered[0, q] = True
        frames.n_alive[0, q] = n_alive


@kernel()
def search(
    core: Any, frames: Any, path: Any, lowest: Any, highest: Any, target: Any, worth: Any, budget: Any, story: Any
) -> Any:
    """Show that no levels in a box cover the core for less than `target`: (outcome, depth, nodes, events, words).

    The first frame holds the free bits and what is paid; worth[c] (target,) is exp(-scale * c). `story` (n,) tells what
    was done, as `unfold` reads it. The search ends early where it has looked at more than `budget` words or the story
    is full, and where the core is covered for less: frame `depth` has the bits then. `path` says how far it came.
    """
    n_exemplars = len(lowest)
    costs = np.empty(path.child.shape, dtype=np.int64)
    cost, seen = np.zeros(n_exemplars, dtype=np.int64), np.zeros(len(core.reach), dtype=np.bool_)
    n_children = np.zeros(len(frames.paid), dtype=np.int64)
    _enter_root(core, frames, lowest, highest)
    depth, n_nodes, n_events, work, is_new = 0, 0, 0, 0, True
    while depth >= 0:
        if is_new:
            path.positive[depth], path.events[depth], path.nodes[depth] = -1, n_events, n_nodes
            if work > budget or n_events + depth + 2 > len(story):  # every node above may end without another look
                return OUT_OF_BUDGET, depth, n_nodes, n_events, work
            n_nodes += 1
            p, n, done = _choose(core, frames, depth, target, worth, seen, cost, costs[depth])
            work += done + n_exemplars
            if p < 0:
                return COVERED, depth, n_nodes, n_events, work
            path.positive[depth], n_children[depth], path.next[depth] = p, n, 0
            for k in range(n):
                path.child[depth, k] = frames.alive[depth, p, k]
            _sort_children(path.child[depth], costs[depth], n)
            if len(core.common) > 0:
                _sort_positives(frames, depth)
            is_new = False
        p, k = path.positive[depth], path.next[depth]
        if k > 0:
            j = path.child[depth, k - 1]
            frames.highest[depth, j] = min(frames.highest[depth, j], core.reach[p, j] - 1)
        if k == n_children[depth]:
            story[n_events] = p << 16
            n_events, depth = n_events + 1, depth - 1
            continue
        if n_events + depth + 4 > len(story):  # a node below may be closed without being entered
            return OUT_OF_BUDGET, depth, n_nodes, n_events, work
        j = path.child[depth, k]
        path.next[depth] = k + 1
        story[n_events] = (p << 16) + j + 1
        n_events += 1
        q, done = _go_down(core, frames, depth, p, j, costs[depth, k], target, worth)
        work += done
        if q >= 0:
            story[n_events] = q << 16
            n_events, n_nodes = n_events + 1, n_nodes + 1
            continue
        copy_into(frames.order[depth + 1], frames.order[depth])
        depth, is_new = depth + 1, True
    return FINISHED, depth, n_nodes, n_events, work


@kernel()
def shorten(story: Any, most: Any) -> Any:
    """Leave out what is below an exemplar where that is finished and takes more than `most` events: how many stay."""
    first, began = np.empty(len(story), dtype=np.int64), np.empty(len(story), dtype=np.int64)
    n, n_open = 0, 0
    for k in range(len(story)):
        event = story[k]
        story[n] = event
        n += 1
        if event & 0xFFFF != 0 and event != UNTOLD:
            first[n_open], began[n_open] = n, k + 1
            n_open += 1
        elif n_open > 0:  # all below the last exemplar that is open is told
            n_open -= 1
            if k + 1 - began[n_open] > most:
                n = first[n_open]
                story[n] = UNTOLD
                n += 1
    return n


@kernel()
def unfold(story: Any, positive: Any, exemplar: Any, open_child: Any, shut_child: Any) -> None:
    """A story as a binary tree: all arrays have an entry for each node, in the order in which they are met.

    An event is positive * 2^16 + exemplar + 1 where a node covers a positive by an exemplar, after which it tells what
    is below, then goes on with the node without that exemplar; and positive * 2^16 where the positive closes it, or
    UNTOLD where what is below is not told: the exemplar is -2 then.
    """
    waiting = np.empty(len(story) + 1, dtype=np.int64)
    node, n_nodes, n_waiting = 0, 1, 0
    for k in range(len(story)):
        event = np.int64(story[k])
        j = (event & 0xFFFF) - 1 if event != UNTOLD else np.int64(-2)
        positive[node], exemplar[node] = event >> 16, j
        open_child[node], shut_child[node] = -1, -1
        if j >= 0:
            open_child[node], shut_child[node] = n_nodes, n_nodes + 1
            waiting[n_waiting] = n_nodes + 1
            node, n_nodes, n_waiting = n_nodes, n_nodes + 2, n_waiting + 1
        elif n_waiting > 0:
            n_waiting -= 1
            node = waiting[n_waiting]
