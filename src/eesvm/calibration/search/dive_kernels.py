"""Compiled depth-first search inside a box whose shares are known.

Every node has the bound that the shares of the box prove for it: what is paid, plus for each uncovered positive its
cheapest live exemplar in its own shares of what is not paid. Going down one step changes few of these numbers: an
accepted negative is taken out of the costs of the positives that own shares of it, a forbidden exemplar out of the
choice of the positives that liked it best. All amounts are whole quanta held as float64, so that going up restores
every number to the bit.

A node takes the next uncovered positive of a fixed sequence; child i covers it with the i-th cheapest exemplar and
forbids the i - 1 before it, so no solution is met twice.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from eesvm._support.compile import inner, kernel
from eesvm._support.sorting import copy_into, put_in_order, stable_order

FINISHED, OUT_OF_BUDGET = 0, 1
# What becomes of a child, or of what is left when all children are forbidden: it is searched further; it costs nothing,
# so that it is no real choice; it is closed by the bound of the shares; or by the price of its positive alone.
DESCENDED, FREE, BY_SHARES, BY_POSITIVE = 0, 1, 2, 3
N_COUNTS = 5  # lengths of three trails, a stamp, and the work done
_STRIDE = 32  # negatives looked at between two checks of the limit

# What stays the same: the negatives of each exemplar by rank; row of each negative; rank and reach in the box; the
# positives of each exemplar by reach; the order in which positives are decided; prices; shares by negative.
Field = namedtuple(
    "Field", "order row_of rank reach by_reach sequence price entry_start entry owner quanta"
)  # (E,N) (N,) (N',E) (P,E) (E,P) (P,) (N,) (N'+1,) (Z,) (Z,) (Z,)

# What changes on the way down and is restored on the way up. `cost` is what each exemplar costs a positive in its own
# unpaid shares, `worth` the least of them over live exemplars, `favourite` where it is.
State = namedtuple("State", "level highest n_passed is_accepted is_covered cost worth favourite")

# Trails: what happened since the root, in order, so that it can be undone backwards.
Trail = namedtuple("Trail", "accepted covered positive worth favourite marks")


@inner(counted=False)
def _find_favourite(field, state, q):
    """The cheapest live exemplar of q in its own shares; a worth of inf where none is alive."""
    reach, cost = field.reach[q], state.cost[q]
    least, favourite = np.inf, -1
    for j in range(len(cost)):
        if cost[j] < least and reach[j] > 0 and reach[j] <= state.highest[j]:
            least, favourite = cost[j], j
    state.worth[q], state.favourite[q] = least, favourite


@inner(counted=False)
def _note(state, trail, n_noted, q):
    """Remember the worth of q before it changes."""
    trail.positive[n_noted], trail.worth[n_noted], trail.favourite[n_noted] = q, state.worth[q], state.favourite[q]
    return n_noted + 1


@inner(counted=False)
def _open(field, state, trail, counts, j, level, sums):
    """Exemplar j reaches `level`: sums[0] (paid) and sums[1] (worth of uncovered positives) are brought up to date."""
    n_accepted, n_covered, n_noted, stamp = counts[0], counts[1], counts[2], counts[3] + 1
    counts[3] = stamp
    n_exemplars = len(state.level)
    first_noted = n_noted
    for k in range(state.level[j], level):
        n = field.order[j, k]
        if state.is_accepted[n]:
            continue
        state.is_accepted[n] = True
        trail.accepted[n_accepted] = n
        n_accepted += 1
        sums[0] += field.price[n]
        row = field.row_of[n]
        if row < 0:
            continue
        places = field.rank[row]
        for e in range(field.entry_start[row], field.entry_start[row + 1]):
            entry = field.entry[e]
            q, part = field.owner[entry], field.quanta[entry]
            if part == 0:
                continue
            counts[4] += n_exemplars
            cost, reach = state.cost[q], field.reach[q]
            for i in range(n_exemplars):
                cost[i] -= part if places[i] < reach[i] else 0.0
            if trail.marks[q] != stamp and not state.is_covered[q]:
                trail.marks[q] = stamp
                n_noted = _note(state, trail, n_noted, q)
    counts[4] += level - state.level[j]
    state.level[j] = level
    while state.n_passed[j] < field.by_reach.shape[1]:
        q = field.by_reach[j, state.n_passed[j]]
        if field.reach[q, j] == 0 or field.reach[q, j] > level:
            break
        state.n_passed[j] += 1
        if not state.is_covered[q]:
            state.is_covered[q] = True
            trail.covered[n_covered] = q
            n_covered += 1
            sums[1] -= state.worth[q]
    for k in range(first_noted, n_noted):
        q = trail.positive[k]
        if not state.is_covered[q]:
            before = state.worth[q]
            _find_favourite(field, state, q)
            sums[1] += state.worth[q] - before
    counts[4] += (n_noted - first_noted) * n_exemplars
    counts[0], counts[1], counts[2] = n_accepted, n_covered, n_noted


@inner(counted=False)
def _undo_open(field, state, trail, counts, j, old_level, old_counts):
    """Take `_open` back, down to the lengths that the trails had before."""
    n_accepted, n_covered, n_noted = old_counts[0], old_counts[1], old_counts[2]
    n_exemplars = len(state.level)
    for k in range(n_accepted, counts[0]):
        n = trail.accepted[k]
        state.is_accepted[n] = False
        row = field.row_of[n]
        if row < 0:
            continue
        places = field.rank[row]
        for e in range(field.entry_start[row], field.entry_start[row + 1]):
            entry = field.entry[e]
            q, part = field.owner[entry], field.quanta[entry]
            if part == 0:
                continue
            cost, reach = state.cost[q], field.reach[q]
            for i in range(n_exemplars):
                cost[i] += part if places[i] < reach[i] else 0.0
    for k in range(n_covered, counts[1]):
        state.is_covered[trail.covered[k]] = False
    _undo_notes(state, trail, counts, n_noted)
    counts[0], counts[1] = n_accepted, n_covered
    state.level[j] = old_level
    while state.n_passed[j] > 0 and field.reach[field.by_reach[j, state.n_passed[j] - 1], j] > old_level:
        state.n_passed[j] -= 1


@inner(counted=False)
def _undo_notes(state, trail, counts, n_noted):
    for k in range(counts[2] - 1, n_noted - 1, -1):
        q = trail.positive[k]
        state.worth[q], state.favourite[q] = trail.worth[k], trail.favourite[k]
    counts[2] = n_noted


@inner(counted=False)
def _shut(field, state, trail, counts, j, level, sums):
    """Exemplar j stays below `level`: whoever liked it best there looks for another. True where that fails for one."""
    state.highest[j] = level - 1
    is_dead = False
    for k in range(field.by_reach.shape[1] - 1, -1, -1):
        q = field.by_reach[j, k]
        if field.reach[q, j] == 0:  # pairs that were dead from the start come last in the order
            continue
        if field.reach[q, j] < level:
            break
        if not state.is_covered[q] and state.favourite[q] == j:
            counts[2] = _note(state, trail, counts[2], q)
            before = state.worth[q]
            _find_favourite(field, state, q)
            counts[4] += len(state.level)
            if state.favourite[q] < 0:
                is_dead = True
                state.worth[q] = before  # the sum stays finite; the node is dead anyway
            else:
                sums[1] += state.worth[q] - before
    return is_dead


@inner()
def _find_children(field, state, counts, p, limit, child, cost):
    """Exemplars that may cover p for at most `limit`, cheapest first; a free one comes alone. Returns their number."""
    n_children = 0
    for j in range(len(state.level)):
        level = np.int64(field.reach[p, j])
        if level == 0 or level > state.highest[j]:
            continue
        added = 0.0
        k = np.int64(state.level[j])
        while k < level and added <= limit:
            end = min(k + _STRIDE, level)
            for m in range(k, end):
                n = field.order[j, m]
                if not state.is_accepted[n]:
                    added += field.price[n]
            counts[4] += end - k
            k = end
        if added == 0:
            child[0], cost[0] = j, 0.0
            return 1
        if added <= limit:
            child[n_children], cost[n_children] = j, added
            n_children += 1
    if n_children > 1:
        sequence = stable_order(cost[:n_children])
        put_in_order(child, sequence)
        put_in_order(cost, sequence)
    return n_children


@kernel()
def least_costs(field, state, positives, cost):
    """cost[i] = price of what the cheapest live exemplar of positives[i] would add."""
    for i in range(len(positives)):
        p = positives[i]
        least = np.inf
        for j in range(len(state.level)):
            level = np.int64(field.reach[p, j])
            if level == 0 or level > state.highest[j]:
                continue
            added = 0.0
            k = np.int64(state.level[j])
            while k < level and added < least:
                end = min(k + _STRIDE, level)
                for m in range(k, end):
                    n = field.order[j, m]
                    if not state.is_accepted[n]:
                        added += field.price[n]
                k = end
            least = min(least, added)
        cost[i] = least


@kernel()
def child_bounds(field, state, trail, sums, p, most, budget, child, bound):
    """Bounds of the children of p, in the order in which they are to be split off; the state is left as it was.

    Child i covers p with child[i], and the children before it are forbidden. Exemplars whose price alone brings the
    node above `most` are no children. Once `budget` units of work are spent, children get the bound of the node without
    those before them, which holds for them too; once the trail is full, that of the node without some of those before.
    Returns the number of children and the work done.
    """
    counts = np.zeros(N_COUNTS, dtype=np.int64)
    n_positives = len(field.reach)
    old_highest, before = state.highest.copy(), sums.copy()
    cost = np.empty(len(state.level))
    n_children = _find_children(field, state, counts, p, most - sums[0], child, cost)
    for i in range(n_children):
        j, level = child[i], np.int64(field.reach[p, child[i]])
        old_level, old_counts, old_sums = state.level[j], counts[:3].copy(), sums.copy()
        bound[i] = sums[0] + sums[1]
        has_room = counts[2] + 2 * n_positives <= len(trail.worth)  # opening and shutting note each positive once
        if has_room and counts[4] < budget:
            _open(field, state, trail, counts, j, level, sums)
            bound[i] = sums[0] + sums[1]
            _undo_open(field, state, trail, counts, j, old_level, old_counts)
            copy_into(sums, old_sums)
        if has_room and _shut(field, state, trail, counts, j, level, sums):
            n_children = i + 1
            break
    copy_into(state.highest, old_highest)
    _undo_notes(state, trail, counts, 0)
    copy_into(sums, before)
    trail.marks[:] = -1
    return n_children, counts[4]


@kernel()
def dive(field, state, trail, sums, best, margin, best_level, budget, events):
    """Search everything inside the box: (outcome, best loss, nodes, events).

    `sums` holds what is paid and the worth of all uncovered positives. A node is worth going on with while its bound is
    at most best - margin; `best_level` receives the levels of a better solution. Beyond `budget` units of work the
    search gives up, and `state` is left as it was then. `events` (n, 3) tells what happened, in order: the positive,
    the exemplar or -1 at the end of its children, and what became of it.
    """
    n_positives, n_exemplars = field.reach.shape
    counts = np.zeros(N_COUNTS, dtype=np.int64)
    most = min(n_positives, 4096) + 1
    place, positive = np.zeros(most + 1, dtype=np.int64), np.empty(most, dtype=np.int64)
    child, n_children = np.empty((most, n_exemplars), dtype=np.int32), np.zeros(most, dtype=np.int64)
    next_child, first_note = np.zeros(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    is_free = np.zeros(most, dtype=np.bool_)
    old_highest, old_level = np.empty((most, n_exemplars), dtype=np.int64), np.empty(most, dtype=np.int64)
    old_counts, old_sums, sums_at = np.empty((most, 3), dtype=np.int64), np.empty((most, 2)), np.empty((most, 2))
    cost = np.empty(n_exemplars)
    depth, n_nodes, n_events, is_new = 0, 0, 0, True
    while depth >= 0:
        if n_events + n_exemplars + 2 > len(events):  # each child of a node may be told of, and its end
            return OUT_OF_BUDGET, best, n_nodes, n_events
        if is_new:
            n_nodes += 1
            while place[depth] < n_positives and state.is_covered[field.sequence[place[depth]]]:
                place[depth] += 1
            if place[depth] == n_positives:
                if sums[0] < best:
                    best = sums[0]
                    copy_into(best_level, state.level)
                events[n_events, 0], events[n_events, 1], events[n_events, 2] = -1, -1, BY_SHARES
                n_events += 1
                depth -= 1
                is_new = False
                continue
            if counts[4] > budget or depth + 1 >= most:
                return OUT_OF_BUDGET, best, n_nodes, n_events
            p = field.sequence[place[depth]]
            positive[depth], first_note[depth], next_child[depth] = p, counts[2], 0
            copy_into(sums_at[depth], sums)
            n_children[depth] = _find_children(field, state, counts, p, best - margin - sums[0], child[depth], cost)
            is_free[depth] = n_children[depth] == 1 and cost[0] == 0
            is_new = False
        else:
            j = child[depth, next_child[depth] - 1]
            _undo_open(field, state, trail, counts, j, old_level[depth], old_counts[depth])
            copy_into(sums, old_sums[depth])
        # Forbid the last child to its siblings, then look for the next that is worth a visit.
        p = positive[depth]
        ending = BY_POSITIVE
        while True:
            if counts[2] + 2 * n_positives > len(trail.worth):  # opening and shutting note each positive once
                return OUT_OF_BUDGET, best, n_nodes, n_events
            if next_child[depth] > 0:
                j = child[depth, next_child[depth] - 1]
                old_highest[depth, next_child[depth] - 1] = state.highest[j]
                if is_free[depth]:
                    break
                if _shut(field, state, trail, counts, j, np.int64(field.reach[p, j]), sums):
                    ending = BY_SHARES  # a positive that nobody can cover
                    break
                if sums[0] + sums[1] > best - margin:
                    ending = BY_SHARES
                    break
            if next_child[depth] == n_children[depth]:
                break
            j = child[depth, next_child[depth]]
            next_child[depth] += 1
            old_level[depth] = state.level[j]
            copy_into(old_sums[depth], sums)
            copy_into(old_counts[depth], counts[:3])
            _open(field, state, trail, counts, j, np.int64(field.reach[p, j]), sums)
            if sums[0] + sums[1] <= best - margin or is_free[depth]:
                events[n_events, 0], events[n_events, 1] = p, j
                events[n_events, 2] = FREE if is_free[depth] else DESCENDED
                n_events += 1
                is_new = True
                break
            n_nodes += 1
            events[n_events, 0], events[n_events, 1], events[n_events, 2] = p, j, BY_SHARES
            n_events += 1
            _undo_open(field, state, trail, counts, j, old_level[depth], old_counts[depth])
            copy_into(sums, old_sums[depth])
        if is_new:
            depth += 1
            place[depth] = place[depth - 1] + 1
        else:
            if not is_free[depth]:
                events[n_events, 0], events[n_events, 1], events[n_events, 2] = p, -1, ending
                n_events += 1
            for k in range(next_child[depth] - 1, -1, -1):
                state.highest[child[depth, k]] = old_highest[depth, k]
            _undo_notes(state, trail, counts, first_note[depth])
            copy_into(sums, sums_at[depth])
            depth -= 1
    return FINISHED, best, n_nodes, n_events
