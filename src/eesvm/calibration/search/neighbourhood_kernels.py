"""Compiled inner loops of the neighbourhood search: free functions on flat arrays, no recursion, no Python objects.

A state is a level per exemplar plus what follows from it and is kept up to date: who holds each negative, who covers
each positive, the open prices. `holders[n]` packs how many exemplars accept negative n (high bits) with the bitwise
exclusive-or of their indices (low bits), so that of two holders each knows the other; `coverers[p]` does the same for
positives.

A move lowers or raises a few exemplars, covers again what was lost, tightens every level to what only its exemplar
covers, and is undone unless the loss is not higher than before. Random numbers come from one 64-bit counter in the
state: the same seed makes the same moves, whatever else runs.

Costs are scanned from the far end of a slice: what lies near the top of an exemplar's order is mostly accepted already
by others, what lies deep is not, so a candidate that is too expensive shows it early. Indices are unsigned in the inner
loops, which spares the test for negative ones and halves the time.
"""
# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False
# njit erases the signatures; shapes and dtypes stand in the docstrings.

from __future__ import annotations

from collections import namedtuple

import numpy as np

from eesvm._support.compile import inner, kernel
from eesvm._support.sorting import copy_into, stable_order

FORBIDDEN = np.iinfo(np.int32).max
NOBODY = -1  # in place of an exemplar
INDEX_BITS = 32  # of `holders` and `coverers`: the indices below, the number of exemplars above
_ONE = 1 << INDEX_BITS

# Constants of a search; positives are those that cost something and can be covered.
Table = namedtuple(
    "Table",
    "order prices delta "  # (E, N) int32, (N,), (P, E) int32 as in RankedProblem
    "positives deltas "  # (E, P) int32 each: the positives of an exemplar by increasing delta, and those deltas
    "near "  # (P, K) int32: the exemplars with the smallest deltas, smallest first
    "weights urgency budget "  # (P,) float64, (P,) float64 (the highest is covered first, or left out first), float
    "lowest highest "  # (E,) int32, limits of the levels
    "lowest_price leeway "  # a floor for any price; how much more a move may always cost before the tightening
    "is_exact",  # whether sums of prices are exact
)

State = namedtuple(
    "State",
    "levels caps n_covered "  # (E,) int32, int32, int64: level, limit of the level for now, covered of `positives`
    "holders open_prices coverers "  # (N,) int64, (N,) like prices, (P,) int64
    "totals generator",  # (3,) float64, see below; (1,) uint64
)
LOSS, LEFT_OUT, N_ACCEPTED = range(3)  # positions in `totals`

Scratch = namedtuple(
    "Scratch",
    "touched old_levels is_touched "  # (E,) each: the exemplars that the move changed, and from which level
    "lost is_lost "  # (P,) each: the positives that the move uncovered at some time
    "group "  # (E,) exemplars to choose from
    "chosen goals "  # (MAX_CHOSEN,) each: the exemplars that a move starts with, and the levels they go to
    "lengths",  # (2,) how many entries of `touched` and `lost` are in use
)
N_TOUCHED, N_LOST = range(2)  # positions in `lengths`

# Positions in the integer `counters` array.
N_MOVES, N_STALE, N_IMPROVED = range(3)
N_COUNTERS = 3

# Kinds of moves, drawn with these shares.
FEW, RAISE, NEAR_POSITIVE, SHARED_NEGATIVES, ONE_STEP, ONE_EXEMPLAR, SHARED_POSITIVES = range(7)
_SHARES = (0.14, 0.08, 0.15, 0.15, 0.14, 0.2, 0.14)
# Ways to lower a level.
TO_LOWEST, ANYWHERE, BY_STEPS = range(3)

_STRIDE = 64  # negatives looked at between two checks of the limit
_MAX_GROUP = 6  # exemplars that a move starts with, give or take a few
MAX_CHOSEN = _MAX_GROUP + 2
_N_PROBES = 24  # negatives or positives looked at to find exemplars that share them
_NOISE = 0.3  # a cost counts up to so much more when exemplars are compared within a move
_SPREAD = 0.5  # an urgency counts up to so much more or less when lost positives are put in order
_BAN_SHARE = 0.5  # moves in which a lowered exemplar may not come back to its old level
_COVER_ALL_SHARE = 0.25  # with a budget: moves that cover all that was lost, so that tightening finds whom to leave out
_HOPELESS = 0.05  # a move is abandoned before the tightening when the loss has grown by this share


@inner(counted=False)
def draw(generator):
    """A number in [0, 1): splitmix64 on the counter."""
    generator[0] += np.uint64(0x9E3779B97F4A7C15)
    z = generator[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


@inner(counted=False)
def draw_below(generator, n):
    """A whole number in [0, n)."""
    return np.int64(draw(generator) * n)


@inner(counted=False)
def set_level(table, state, scratch, j, new):
    """Move exemplar j to level `new`; positives that nobody covers any more are added to `lost`. In place."""
    old = state.levels[j]
    totals = state.totals
    change, n_change = 0.0, 0
    for k in range(np.uint64(old), np.uint64(max(old, new))):
        n = np.uint64(table.order[j, k])
        held_by = state.holders[n]
        if held_by == 0:
            change += table.prices[n]
            n_change += 1
            state.open_prices[n] = 0
        state.holders[n] = (held_by + _ONE) ^ j
    for k in range(np.uint64(new), np.uint64(max(old, new))):
        n = np.uint64(table.order[j, k])
        held_by = (state.holders[n] - _ONE) ^ j
        if held_by == 0:
            change -= table.prices[n]
            n_change -= 1
            state.open_prices[n] = table.prices[n]
        state.holders[n] = held_by
    totals[LOSS] += change
    totals[N_ACCEPTED] += n_change
    state.levels[j] = new
    k = state.n_covered[j]
    while k < len(table.weights) and table.deltas[j, k] <= new:
        p = table.positives[j, k]
        if state.coverers[p] == 0:
            totals[LEFT_OUT] -= table.weights[p]
        state.coverers[p] = (state.coverers[p] + _ONE) ^ j
        k += 1
    while k > 0 and table.deltas[j, k - 1] > new:
        k -= 1
        p = table.positives[j, k]
        state.coverers[p] = (state.coverers[p] - _ONE) ^ j
        if state.coverers[p] == 0:
            totals[LEFT_OUT] += table.weights[p]
            _note_lost(scratch, p)
    state.n_covered[j] = k


@kernel()
def start_from(table, state, scratch, levels):
    """Take on `levels`. In place."""
    for j in range(len(levels)):
        if levels[j] != state.levels[j]:
            set_level(table, state, scratch, j, np.int64(levels[j]))


@kernel()
def cover_first(table, state, scratch, sequence, first, last, allowance):
    """`cover_in_order`, without a blur and whatever it costs."""
    return cover_in_order(table, state, scratch, sequence, first, last, allowance, 0.0, np.inf)


@kernel()
def settle(table, state, scratch):
    """Tighten, and make what has been changed so far the state that moves begin with. In place."""
    tighten(table, state, scratch, 0.0)
    forget_move(scratch)
    state.totals[LOSS] = loss_of_state(table, state)


@inner(counted=False)
def cover_in_order(table, state, scratch, sequence, first, last, allowance, noise, limit):
    """Cover the positives sequence[first:last] that nobody covers, each by the least added cost. In place.

    While `allowance` lasts, positives are left out instead. Returns what is left of it, or -1 where a positive has
    no exemplar under the caps or the loss has passed `limit`.
    """
    for i in range(first, last):
        p = sequence[i]
        if state.coverers[p] != 0:
            continue
        if table.weights[p] <= allowance:
            allowance -= table.weights[p]
            continue
        j = _cheapest_exemplar(table, state, p, noise)
        if j == NOBODY:
            return -1.0
        _change(table, state, scratch, j, np.int64(table.delta[p, j]))
        if state.totals[LOSS] > limit:
            return -1.0
    return allowance


@inner(counted=False)
def tighten(table, state, scratch, noise):
    """Lower every level to what only its exemplar covers, in random order, then spend what the budget leaves.

    What leaving positives out would save is blurred by `noise`. In place.
    """
    n = _list_active(table, state, scratch.group)
    for i in range(n):
        chosen = i + draw_below(state.generator, n - i)
        j = scratch.group[chosen]
        scratch.group[chosen] = scratch.group[i]
        k = state.n_covered[j]
        while k > 0 and state.coverers[table.positives[j, k - 1]] >> INDEX_BITS > 1:
            k -= 1
        new = max(table.lowest[j], table.deltas[j, k - 1] if k > 0 else 0)
        if new < state.levels[j]:
            _change(table, state, scratch, j, np.int64(new))
    while state.totals[LEFT_OUT] < table.budget:
        j, new = _best_to_leave_out(table, state, noise)
        if j == NOBODY:
            break
        _change(table, state, scratch, j, np.int64(new))


@kernel()
def go_to(table, state, scratch, levels, noise, spread):
    """Take on `levels`, cover what they leave uncovered, tighten. In place; False where that cannot be done."""
    for j in range(len(levels)):  # up before down: fewer positives are lost on the way
        if levels[j] > state.levels[j]:
            set_level(table, state, scratch, j, np.int64(levels[j]))
    for j in range(len(levels)):
        if levels[j] < state.levels[j]:
            set_level(table, state, scratch, j, np.int64(levels[j]))
    forget_move(scratch)
    for p in range(len(table.weights)):
        if state.coverers[p] == 0:
            _note_lost(scratch, p)
    is_possible = _cover_lost(table, state, scratch, noise, spread, np.inf, True)
    if is_possible:
        tighten(table, state, scratch, noise)
    forget_move(scratch)
    state.totals[LOSS] = loss_of_state(table, state)
    return is_possible


@inner(counted=False)
def loss_of_state(table, state):
    """The loss summed from scratch, always in the same order."""
    loss = 0.0
    for n in range(len(table.prices)):
        if state.holders[n] != 0:
            loss += table.prices[n]
    return loss


@inner(counted=False)
def forget_move(scratch):
    """What has been changed so far stays: start a new list of changes."""
    for i in range(scratch.lengths[N_TOUCHED]):
        scratch.is_touched[scratch.touched[i]] = False
    for i in range(scratch.lengths[N_LOST]):
        scratch.is_lost[scratch.lost[i]] = False
    scratch.lengths[:] = 0


@kernel()
def make_moves(table, state, scratch, counters, best_levels, best_loss, n_moves, patience):
    """Try up to `n_moves` moves, or until `patience` of them in a row were of no use. In place; returns how many."""
    for i in range(n_moves):
        n_active = _list_active(table, state, scratch.group)
        if n_active == 0 or counters[N_STALE] >= patience:
            return i
        before = state.totals[LOSS]
        n_chosen, is_banned = _plan(table, state, scratch, n_active)
        for k in range(n_chosen):
            j = scratch.chosen[k]
            if scratch.goals[k] != state.levels[j] and not scratch.is_touched[j]:  # it may have been chosen twice
                if is_banned:
                    state.caps[j] = state.levels[j] - 1
                _change(table, state, scratch, j, scratch.goals[k])
        leaves_out = table.budget == 0 or draw(state.generator) >= _COVER_ALL_SHARE
        limit = before + _HOPELESS * before + table.leeway if leaves_out else np.inf
        is_possible = _cover_lost(table, state, scratch, _NOISE, _SPREAD, limit, leaves_out)
        if is_possible:
            tighten(table, state, scratch, _NOISE)
            if not table.is_exact:  # sums of differences drift, and a drift must not pass for progress
                state.totals[LOSS] = loss_of_state(table, state)
        counters[N_MOVES] += 1
        counters[N_STALE] += 1
        if is_possible and state.totals[LOSS] <= before:
            if state.totals[LOSS] < before:
                counters[N_STALE] = 0
                counters[N_IMPROVED] += 1
            if state.totals[LOSS] < best_loss[0]:
                best_loss[0] = state.totals[LOSS]
                copy_into(best_levels, state.levels)
        else:
            _undo(table, state, scratch, before)
        for k in range(scratch.lengths[N_TOUCHED]):
            state.caps[scratch.touched[k]] = table.highest[scratch.touched[k]]
        forget_move(scratch)
    return n_moves


@inner(counted=False)
def _list_active(table, state, group):
    """Write the exemplars that can be lowered into `group`; returns how many."""
    n = 0
    for j in range(len(state.levels)):
        if state.levels[j] > table.lowest[j]:
            group[n] = j
            n += 1
    return n


@inner(counted=False)
def _note_lost(scratch, p):
    if not scratch.is_lost[p]:
        scratch.is_lost[p] = True
        scratch.lost[scratch.lengths[N_LOST]] = p
        scratch.lengths[N_LOST] += 1


@inner(counted=False)
def _change(table, state, scratch, j, new):
    """`set_level`, with a note of the level before the move."""
    if not scratch.is_touched[j]:
        scratch.is_touched[j] = True
        scratch.old_levels[j] = state.levels[j]
        scratch.touched[scratch.lengths[N_TOUCHED]] = j
        scratch.lengths[N_TOUCHED] += 1
    set_level(table, state, scratch, j, new)


@inner(counted=False)
def _undo(table, state, scratch, loss):
    """Put every changed exemplar back to its level before the move."""
    for i in range(scratch.lengths[N_TOUCHED]):
        j = scratch.touched[i]
        set_level(table, state, scratch, j, np.int64(scratch.old_levels[j]))
    state.totals[LOSS] = loss


@inner(counted=False)
def _cost_of_slice(order, j, start, stop, open_prices, limit):
    """What accepting order[j, start:stop] would add, from its far end; may stop early with some value > limit."""
    cost = 0.0
    while stop > start and cost <= limit:
        end = max(stop - _STRIDE, start)
        part = 0
        for k in range(np.uint64(end), np.uint64(stop)):
            part += open_prices[np.uint64(order[j, k])]
        cost += part
        stop = end
    return cost


@inner(counted=False)
def _cheapest_exemplar(table, state, p, noise):
    """The exemplar that covers p at the least added cost, each cost blurred by `noise`; NOBODY if the caps bar all."""
    row = table.delta[p]
    guess, way = NOBODY, np.int64(FORBIDDEN)
    for j in range(len(row)):
        if row[j] <= state.caps[j] and np.int64(row[j]) - state.levels[j] < way:
            guess, way = j, np.int64(row[j]) - state.levels[j]
    if guess == NOBODY or way <= 0:
        return guess
    # The exemplar with the least way to go first: its cost lets the others give up early.
    best = guess
    blur = 1.0 + noise * draw(state.generator)
    best_cost = blur * _cost_of_slice(table.order, guess, state.levels[guess], row[guess], state.open_prices, np.inf)
    for j in range(len(row)):
        if best_cost == 0:
            break
        # No more than N_ACCEPTED of the negatives above p are paid for; each of the others costs something.
        if (
            j == guess
            or row[j] > state.caps[j]
            or (row[j] - state.totals[N_ACCEPTED]) * table.lowest_price >= best_cost
        ):
            continue
        blur = 1.0 + noise * draw(state.generator)
        cost = blur * _cost_of_slice(table.order, j, state.levels[j], row[j], state.open_prices, best_cost / blur)
        if cost < best_cost:
            best, best_cost = j, cost
    return best


@inner()
def _cover_lost(table, state, scratch, noise, spread, limit, leaves_out):
    """Cover the lost positives, the most urgent first, urgencies blurred by `spread`. In place; False: given up.

    With `leaves_out`, the first ones are left out while the budget lasts.
    """
    n, weight = 0, 0.0
    for i in range(scratch.lengths[N_LOST]):
        p = scratch.lost[i]
        scratch.is_lost[p] = state.coverers[p] == 0
        if scratch.is_lost[p]:
            scratch.lost[n] = p
            weight += table.weights[p]
            n += 1
    scratch.lengths[N_LOST] = n
    if n == 0:
        return True
    keys = np.empty(n)
    for i in range(n):
        keys[i] = -table.urgency[scratch.lost[i]] * (1 - spread + 2 * spread * draw(state.generator))
    sequence = scratch.lost[:n][stable_order(keys)]
    # What was left out before stays so.
    allowance = table.budget - (state.totals[LEFT_OUT] - weight) if leaves_out else 0.0
    return cover_in_order(table, state, scratch, sequence, 0, n, allowance, noise, limit) >= 0


@inner(counted=False)
def _best_to_leave_out(table, state, noise):
    """The exemplar and the lower level for it that save most per weight left out within the budget, or NOBODY.

    Savings are blurred by `noise`.
    """
    spare = table.budget - state.totals[LEFT_OUT]
    best, best_level, best_rate = NOBODY, np.int32(0), 0.0
    for j in range(len(state.levels)):
        level, weight, saving = state.levels[j], 0.0, 0.0
        k = state.n_covered[j] - 1
        while k >= 0 and level > table.lowest[j]:
            p = table.positives[j, k]
            if state.coverers[p] >> INDEX_BITS == 1:
                weight += table.weights[p]
            if weight > spare:
                break
            new = max(table.lowest[j], table.deltas[j, k - 1] if k > 0 else 0)
            for i in range(np.uint64(new), np.uint64(level)):
                n = np.uint64(table.order[j, i])
                if state.holders[n] >> INDEX_BITS == 1:
                    saving += table.prices[n]
            level = new
            blurred = saving * (1.0 + noise * draw(state.generator))
            if blurred > best_rate * weight:
                best, best_level, best_rate = j, new, blurred / max(weight, 1e-300)
            k -= 1
    return best, best_level


@inner(counted=False)
def _plan(table, state, scratch, n_active):
    """The first half of a move, of a random kind: exemplars and goals for their levels into `chosen` and `goals`.

    `scratch.group` holds the `n_active` exemplars that can be lowered. Returns how many are planned, and whether those
    that are lowered may not come back to their level.
    """
    generator, chosen = state.generator, scratch.chosen
    ticket, kind = draw(generator), 0
    while kind < len(_SHARES) - 1 and ticket >= _SHARES[kind]:
        ticket -= _SHARES[kind]
        kind += 1
    size = 1 + draw_below(generator, _MAX_GROUP)
    is_banned = draw(generator) < _BAN_SHARE or kind in (ONE_STEP, ONE_EXEMPLAR)
    chosen[0] = scratch.group[draw_below(generator, n_active)]
    n, n_ways = 1, 2
    if kind == RAISE:
        return _plan_to_raise(table, state, scratch), False
    if kind == FEW:
        for k in range(1, size):
            chosen[k] = scratch.group[draw_below(generator, n_active)]
        n = size
    elif kind == NEAR_POSITIVE:
        n = _choose_near(table, state, chosen, size + 2)
    elif kind in (SHARED_NEGATIVES, SHARED_POSITIVES):
        n, n_ways = _choose_sharing(table, state, chosen, size, kind == SHARED_NEGATIVES), 3
    for k in range(n):
        way = BY_STEPS if kind == ONE_STEP else draw_below(generator, n_ways)
        scratch.goals[k] = _lower_level(table, state, chosen[k], way)
    return n, is_banned


@inner(counted=False)
def _plan_to_raise(table, state, scratch):
    """Plan to raise exemplars near one or two random positives so that they cover them; returns how many."""
    generator = state.generator
    n, n_wanted = 0, 1 + draw_below(generator, 2)
    for _ in range(n_wanted):
        p = draw_below(generator, len(table.weights))
        if table.budget > 0 and draw(generator) < 0.5:  # rather one that is left out, to leave out another
            for _ in range(_N_PROBES):
                if state.coverers[p] == 0:
                    break
                p = draw_below(generator, len(table.weights))
        j = table.near[p, draw_below(generator, table.near.shape[1])]
        if state.levels[j] < table.delta[p, j] <= state.caps[j]:
            scratch.chosen[n], scratch.goals[n] = j, table.delta[p, j]
            n += 1
    return n


@inner(counted=False)
def _choose_near(table, state, chosen, n_near):
    """Choose most of the exemplars near a positive that chosen[0] covers, in its place; returns how many."""
    if state.n_covered[chosen[0]] == 0:
        return 1
    p = table.positives[chosen[0], draw_below(state.generator, state.n_covered[chosen[0]])]
    n = 0
    for k in range(min(n_near, table.near.shape[1])):
        if draw(state.generator) < 0.7:
            chosen[n] = table.near[p, k]
            n += 1
    return n


@inner(counted=False)
def _choose_sharing(table, state, chosen, size, by_negatives):
    """Choose up to `size` exemplars that alone share a negative or positive with chosen[0]; returns how many in all."""
    j = chosen[0]
    n = 1
    n_own = np.int64(state.levels[j]) if by_negatives else state.n_covered[j]
    for _ in range(_N_PROBES):
        if n > size or n_own == 0:
            break
        k = draw_below(state.generator, n_own)
        held_by = state.holders[table.order[j, k]] if by_negatives else state.coverers[table.positives[j, k]]
        if held_by >> INDEX_BITS == 2:
            chosen[n] = (held_by & (_ONE - 1)) ^ j
            n += 1
    return n


@inner(counted=False)
def _lower_level(table, state, j, way):
    """A level for exemplar j that is lower than its own, if there is one."""
    level = np.int64(0)
    if way == ANYWHERE:
        level = np.int64(state.levels[j] * draw(state.generator))
    elif way == BY_STEPS and state.n_covered[j] > 0:
        k = state.n_covered[j] - 1
        while k > 0 and draw(state.generator) < 0.5:
            k -= 1
        level = np.int64(table.deltas[j, k]) - 1
    return max(level, np.int64(table.lowest[j]))
