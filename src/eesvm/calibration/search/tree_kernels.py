"""Compiled inner loops of the searches: free functions on flat arrays, no recursion, no Python objects.

A search keeps, per exemplar, its level (how many of its negatives it accepts) and, per negative, its *open price*: what
accepting it would add to the loss now, so 0 once some exemplar accepts it. The trail lists accepted negatives in the
order of their acceptance, so that going up the tree restores their prices.

`prices` is uint8 where every negative costs 1 (small enough for the first-level cache), float64 otherwise; numba
compiles the functions for both. Losses are float64 throughout, which is exact for counts.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from eesvm._support.compile import inner, kernel
from eesvm._support.sorting import copy_into, put_in_order, stable_order

FORBIDDEN = np.iinfo(np.int32).max
LEFT_OUT = -1  # in place of an exemplar: this positive stays uncovered

# Why a kernel returned to Python.
FINISHED, OUT_OF_BUDGET, FOUND_LEAF, OUT_OF_SPACE = 0, 1, 2, 3

# Constants of a tree: one level per entry of `sequence`, the positives in the order they are decided.
Tree = namedtuple("Tree", "order delta prices sequence positive_weights left_out_budget")

# The path from the root to the current node, indexed by depth, and the state that belongs to it.
Path = namedtuple(
    "Path",
    "open_prices levels trail "  # (N,) prices, (E,) int32, (N,) int32
    "loss left_out moved old_level trail_start "  # (D + 1,) on entering the node at that depth
    "first next end",  # (D + 1,) its children in the arena: first, next unvisited, end
)

# Children of the nodes on the path, deepest last, and room to compare them: (capacity,) each but for marks, keys (N,).
Arena = namedtuple("Arena", "exemplar loss fingerprint marks keys")

# Switches of the search: observations 1 and 2, and whether a positive that is accepted already gets a single child.
Switches = namedtuple("Switches", "prune_by_bound prune_by_equivalence skip_satisfied")

# Positions in the integer `counters` array.
DEPTH, IS_NEW, ON_FIRST_PATH, N_ACCEPTED, N_NODES, N_BOUND, N_EQUIVALENT, N_SATISFIED, N_LEAVES, N_MARKS = range(10)
N_COUNTERS = 10

_STRIDE = 32  # negatives looked at between two checks of the limit


@kernel()
def added_cost(ranked, start, stop, open_prices, limit):
    """What accepting ranked[start:stop] would add; may stop early with some value > limit."""
    cost = 0.0
    while start < stop and cost <= limit:
        end = min(start + _STRIDE, stop)
        part = 0
        for k in range(start, end):
            part += open_prices[ranked[k]]
        cost += part
        start = end
    return cost


@kernel()
def accept(ranked, start, stop, open_prices, trail, n_accepted):
    """Accept ranked[start:stop]: zero their open prices, append them to the trail, return its new length."""
    for k in range(start, stop):
        n = ranked[k]
        if open_prices[n] > 0:
            open_prices[n] = 0
            trail[n_accepted] = n
            n_accepted += 1
    return n_accepted


@kernel()
def reopen(prices, open_prices, trail, start, stop):
    """Undo `accept`: give the negatives trail[start:stop] their price again."""
    for k in range(start, stop):
        open_prices[trail[k]] = prices[trail[k]]


@kernel()
def cover_cheapest(tree, open_prices, levels, trail, n_accepted, loss, left_out, first, last):
    """Decide the positives sequence[first:last] one by one, each at the smallest added loss. In place.

    Leaving a positive out adds nothing, so it is preferred while the budget lasts, unless covering it is free too.
    Equal costs go to the lower exemplar. Returns (n_accepted, loss, left_out).
    """
    for i in range(first, last):
        p = tree.sequence[i]
        best, best_cost = LEFT_OUT, np.inf
        # The exemplar with the least way to go first: its cost lets the others give up early.
        guess, way = LEFT_OUT, np.int64(FORBIDDEN)
        for j in range(len(levels)):
            if tree.delta[p, j] != FORBIDDEN and np.int64(tree.delta[p, j]) - levels[j] < way:
                guess, way = j, np.int64(tree.delta[p, j]) - levels[j]
        if guess != LEFT_OUT:
            best = guess
            best_cost = added_cost(tree.order[guess], levels[guess], tree.delta[p, guess], open_prices, np.inf)
        for j in range(len(levels)):
            if best_cost == 0:
                break
            if j == guess or tree.delta[p, j] == FORBIDDEN:
                continue
            cost = added_cost(tree.order[j], levels[j], tree.delta[p, j], open_prices, best_cost)
            if cost < best_cost or (cost == best_cost and j < best):
                best, best_cost = j, cost
        if best_cost > 0 and left_out + tree.positive_weights[p] <= tree.left_out_budget:
            left_out += tree.positive_weights[p]
        elif tree.delta[p, best] > levels[best]:
            n_accepted = accept(tree.order[best], levels[best], tree.delta[p, best], open_prices, trail, n_accepted)
            levels[best] = tree.delta[p, best]
            loss += best_cost
    return n_accepted, loss, left_out


@kernel()
def enumerate_leaves(tree, path, counters, best_levels, best_loss, budget):
    """Walk the perfect tree of section 4.2 for `budget` nodes: every exemplar a child of every node. In place.

    `path.next[d]` is the next child to visit at depth d: exemplars first, then leaving the positive out.
    """
    n_levels = len(tree.sequence)
    n_exemplars = len(path.levels)
    while budget > 0:
        depth = counters[DEPTH]
        if depth == n_levels:
            counters[N_LEAVES] += 1
            if path.loss[depth] < best_loss[0]:
                best_loss[0] = path.loss[depth]
                copy_into(best_levels, path.levels)
        if depth < n_levels and path.next[depth] <= n_exemplars:
            child = path.next[depth]
            path.next[depth] += 1
            p = tree.sequence[depth]
            if child == n_exemplars:
                if path.left_out[depth] + tree.positive_weights[p] > tree.left_out_budget:
                    continue
                _go_down(tree, path, counters, LEFT_OUT, path.loss[depth])
            elif tree.delta[p, child] != FORBIDDEN:
                stop = tree.delta[p, child]
                cost = added_cost(tree.order[child], path.levels[child], stop, path.open_prices, np.inf)
                _go_down(tree, path, counters, child, path.loss[depth] + cost)
            else:
                continue
            path.next[depth + 1] = 0
            counters[N_NODES] += 1
            budget -= 1
        elif depth == 0:
            return FINISHED
        else:
            _go_up(tree, path, counters)
    return OUT_OF_BUDGET


@kernel()
def search_tree(tree, path, arena, switches, counters, best_levels, best_loss, budget):
    """Algorithm 1: depth first, cheapest child first, for `budget` nodes or until a better leaf. In place.

    Returns why it stopped; called again with the same arrays, it resumes.
    """
    n_levels = len(tree.sequence)
    while budget > 0:
        depth = counters[DEPTH]
        if counters[IS_NEW]:
            if depth < n_levels:
                start = path.end[depth - 1] if depth > 0 else 0
                if start + len(path.levels) + 1 > len(arena.exemplar):
                    return OUT_OF_SPACE
                _expand(tree, path, arena, switches, counters, best_loss[0], start)
            counters[IS_NEW] = 0
            if depth == n_levels:
                path.first[depth] = path.next[depth] = path.end[depth] = path.end[depth - 1] if depth > 0 else 0
                if path.loss[depth] < best_loss[0]:
                    best_loss[0] = path.loss[depth]
                    copy_into(best_levels, path.levels)
                    counters[N_LEAVES] += 1
                    return FOUND_LEAF
        child = path.next[depth]
        if child < path.end[depth] and switches.prune_by_bound and arena.loss[child] >= best_loss[0]:
            counters[N_BOUND] += path.end[depth] - child  # children are sorted: the rest are no cheaper
            path.next[depth] = path.end[depth]
        elif child < path.end[depth]:
            path.next[depth] += 1
            _go_down(tree, path, counters, arena.exemplar[child], arena.loss[child])
            counters[IS_NEW] = 1
            if not counters[ON_FIRST_PATH]:  # the nodes of the first path were counted when the first leaf was found
                counters[N_NODES] += 1
                budget -= 1
        elif depth == 0:
            return FINISHED
        else:
            counters[ON_FIRST_PATH] = 0
            _go_up(tree, path, counters)
    return OUT_OF_BUDGET


@inner(counted=False)
def _go_down(tree, path, counters, exemplar, loss):
    """Enter the child that covers the current positive with `exemplar` (or leaves it out), at the given loss."""
    depth = counters[DEPTH]
    p = tree.sequence[depth]
    path.moved[depth + 1] = exemplar
    path.trail_start[depth + 1] = counters[N_ACCEPTED]
    path.loss[depth + 1] = loss
    path.left_out[depth + 1] = path.left_out[depth]
    if exemplar == LEFT_OUT:
        path.left_out[depth + 1] += tree.positive_weights[p]
    else:
        level, stop = path.levels[exemplar], tree.delta[p, exemplar]
        path.old_level[depth + 1] = level
        if stop > level:
            counters[N_ACCEPTED] = accept(
                tree.order[exemplar], level, stop, path.open_prices, path.trail, counters[N_ACCEPTED]
            )
            path.levels[exemplar] = stop
    counters[DEPTH] = depth + 1


@inner(counted=False)
def _go_up(tree, path, counters):
    """Leave the current node for its parent and undo what entering it did."""
    depth = counters[DEPTH]
    reopen(tree.prices, path.open_prices, path.trail, path.trail_start[depth], counters[N_ACCEPTED])
    counters[N_ACCEPTED] = path.trail_start[depth]
    if path.moved[depth] != LEFT_OUT:
        path.levels[path.moved[depth]] = path.old_level[depth]
    counters[DEPTH] = depth - 1


@inner()
def _expand(tree, path, arena, switches, counters, best_loss, start):
    """Write the children of the current node that survive pruning into arena[start:], cheapest first."""
    depth = counters[DEPTH]
    p = tree.sequence[depth]
    loss = path.loss[depth]
    room = best_loss - loss if switches.prune_by_bound else np.inf
    unit_prices = tree.prices.itemsize == 1
    path.first[depth] = path.next[depth] = start
    if switches.skip_satisfied:
        for j in range(len(path.levels)):
            if tree.delta[p, j] <= path.levels[j]:
                path.end[depth] = _only_child(arena, counters, start, j, loss)
                return
    end = start
    for j in range(len(path.levels)):
        stop = tree.delta[p, j]
        if stop == FORBIDDEN:
            continue
        # With unit prices at most N_ACCEPTED of these negatives are paid for already: no need to look at them.
        if unit_prices and stop - counters[N_ACCEPTED] >= room:
            counters[N_BOUND] += 1
            continue
        cost = added_cost(tree.order[j], path.levels[j], stop, path.open_prices, room)
        if cost >= room:
            counters[N_BOUND] += 1
            continue
        if cost == 0 and switches.skip_satisfied:
            path.end[depth] = _only_child(arena, counters, start, j, loss)
            return
        arena.exemplar[end], arena.loss[end] = j, loss + cost
        end += 1
    if path.left_out[depth] + tree.positive_weights[p] <= tree.left_out_budget:
        arena.exemplar[end], arena.loss[end] = LEFT_OUT, loss
        end += 1
    _sort_children(arena, start, end)
    if switches.prune_by_equivalence:
        kept = _drop_equivalent(tree, path, arena, counters, start, end)
        counters[N_EQUIVALENT] += end - kept
        end = kept
    path.end[depth] = end


@inner(counted=False)
def _only_child(arena, counters, start, exemplar, loss):
    """The positive is accepted at no cost: one child, the others would only accept more. Returns its end."""
    arena.exemplar[start], arena.loss[start] = exemplar, loss
    counters[N_SATISFIED] += 1
    return start + 1


@inner()
def _sort_children(arena, start, end):
    """Sort arena[start:end] by loss, equal losses by exemplar (leaving out first)."""
    if end - start < 2:
        return
    if arena.exemplar[end - 1] == LEFT_OUT:  # it was appended last; rotate it to the front
        loss = arena.loss[end - 1]
        for k in range(end - 1, start, -1):
            arena.exemplar[k], arena.loss[k] = arena.exemplar[k - 1], arena.loss[k - 1]
        arena.exemplar[start], arena.loss[start] = LEFT_OUT, loss
    by_loss = stable_order(arena.loss[start:end])
    put_in_order(arena.exemplar[start:end], by_loss)
    put_in_order(arena.loss[start:end], by_loss)


@inner(counted=False)
def _drop_equivalent(tree, path, arena, counters, start, end):
    """Keep one of every set of children with the same accepted negatives (observation 2); return the new end.

    Equal sets have equal losses, so only runs of equal loss are compared: by fingerprint first, then exactly.
    """
    p = tree.sequence[counters[DEPTH]]
    kept = start
    k = start
    while k < end:
        run_end = k + 1
        while run_end < end and arena.loss[run_end] == arena.loss[k]:
            run_end += 1
        run_kept = kept
        for i in range(k, run_end):
            j = arena.exemplar[i]
            print_i = np.uint64(0)
            is_new = True
            if run_end - k > 1 and j != LEFT_OUT:
                print_i = _fingerprint(tree.order[j], path.levels[j], tree.delta[p, j], path.open_prices, arena.keys)
                for other in range(run_kept, kept):
                    rival = arena.exemplar[other]
                    if rival != LEFT_OUT and arena.fingerprint[other] == print_i:
                        counters[N_MARKS] += 1
                        if _same_negatives(tree, path, arena, p, rival, j, counters[N_MARKS]):
                            is_new = False
                            break
            if is_new:
                arena.exemplar[kept], arena.loss[kept], arena.fingerprint[kept] = j, arena.loss[i], print_i
                kept += 1
        k = run_end
    return kept


@inner(counted=False)
def _fingerprint(ranked, start, stop, open_prices, keys):
    """A number that equal sets of newly accepted negatives share."""
    fingerprint = np.uint64(0)
    for k in range(start, stop):
        if open_prices[ranked[k]] > 0:
            fingerprint ^= keys[ranked[k]]
    return fingerprint


@inner(counted=False)
def _same_negatives(tree, path, arena, p, first, second, mark):
    """Whether covering p with either exemplar newly accepts exactly the same negatives."""
    balance = 0
    for k in range(path.levels[first], tree.delta[p, first]):
        n = tree.order[first, k]
        if path.open_prices[n] > 0:
            arena.marks[n] = mark
            balance += 1
    for k in range(path.levels[second], tree.delta[p, second]):
        n = tree.order[second, k]
        if path.open_prices[n] > 0:
            if arena.marks[n] != mark:
                return False
            balance -= 1
    return balance == 0
