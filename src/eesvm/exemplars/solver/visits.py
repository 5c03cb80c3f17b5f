"""Coordinate descent on duals of the hinge: epochs over rows, for some exemplars side by side or for one alone.

In: rows, duals, the weights that these add up to, and which rows are wanted. Out: the same arrays, changed in place.
A visit to a row is a product with the weights and, if its dual moves, a correction of them. Steps are longer than is
best for one dual alone (`STRIDE`), which takes from a sixth to a third fewer visits: successive over-relaxation.
Not here: which rows are wanted, and who is done, which `coordinate` and `working_sets` decide.
"""

from __future__ import annotations

import numpy as np

from eesvm._support.compile import inner, kernel, prefetch

STRIDE = np.float32(1.5)  # times the step that is best for one dual
# Of the worst violation of the epoch before: a row that is at its bound and pulls away from the margin by more than
# that rests until all rows are looked at again. At 1, as in liblinear, there were up to 1.6 times as many visits.
RESTING = np.float32(0.25)
POSITIVE = 16  # visits to the positive in an epoch
REASSOCIATE = {"reassoc", "contract", "nsz"}  # sums in any order, but infinities stay what they are
_ENOUGH = 0.8  # of the accuracy: violations in an epoch up to which it is the last
_MANY_WANT = 3  # exemplars, on average, that make it worth while to visit rows together
_LINE = 16  # numbers that come from memory together


@inner()
def violation(slope, dual, cap):  # type: ignore[no-untyped-def]
    """How much a dual variable wants to move where it still can."""
    if dual <= 0:
        return max(slope, np.float32(0))
    return max(-slope, np.float32(0)) if dual >= cap else abs(slope)


@inner(fastmath=REASSOCIATE)
def dot(a, b):  # type: ignore[no-untyped-def]
    """The product of two rows, as long as the second one is."""
    total = np.float32(0)
    for k in range(len(b)):
        total += a[k] * b[k]
    return total


@inner()
def shuffle(order, n, state):  # type: ignore[no-untyped-def]
    """The first n in random order, in place; returns the next state."""
    for i in range(n - 1, 0, -1):
        state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        k = np.int64((state >> np.uint64(33)) % np.uint64(i + 1))
        order[i], order[k] = order[k], order[i]
    return state


@inner()
def are_many(n_pairs, n_rows):  # type: ignore[no-untyped-def]
    """Whether rows are wanted by so many exemplars that these had better visit them together."""
    return n_pairs > _MANY_WANT * n_rows


@kernel()
def visit_together(  # type: ignore[no-untyped-def]
    rows, squares, targets, duals, wants, own_rows, costs, limits, seed
):
    """Epochs over the rows that somebody wants: a row is visited for all who want it before the next one is.

    They end when nobody violates a condition by its `accuracy`, all visits are used up, or rows are wanted by few.
    In place: duals (P, n), duals of positives, weights, visits, who goes on, and `wants`, a bit for every exemplar.
    """
    positives, own, own_targets, weights = own_rows
    accuracy, max_visits, visits, goes_on = limits
    cap, own_cap, multiplier = costs
    zero, width, n, tiny = np.float32(0), rows.shape[1], duals.shape[1], np.float32(1e-30)
    worst, worst_before = np.zeros(n, np.float32), np.full(n, np.inf, np.float32)
    active, n_visits = np.flatnonzero(wants & _bits(goes_on)), visits.sum()
    n_active, state = len(active), np.uint64(seed + 1)
    while n_active > 0 and goes_on.any():
        state = shuffle(active, n_active, state)
        bits = _bits(goes_on)
        worst[:] = 0
        every, next_own, at = max(1, n_active // POSITIVE), 0, 0
        while at < n_active:
            if at >= next_own:
                next_own = at + every
                for j in range(n):
                    if goes_on[j]:
                        slope = own_targets[j] - dot(weights[j], positives[j])
                        worst[j] = max(worst[j], violation(slope, own[j], own_cap))
                        moved = min(max(own[j] + slope / max(dot(positives[j], positives[j]), tiny), zero), own_cap)
                        if moved != own[j]:
                            _add(weights[j], moved - own[j], positives[j])
                            own[j] = moved
            i = active[at]
            if wants[i] & bits == 0:
                n_active -= 1
                active[at], active[n_active] = active[n_active], active[at]
                continue
            row = rows[i]
            for j in range(n):
                bit = np.uint64(1) << np.uint64(j)
                if not wants[i] & bits & bit:
                    continue
                v, own_weights = duals[i, j], weights[j]
                s = targets[i, j] + dot(own_weights, row) + own_weights[width] * multiplier
                visits[j] += 1
                off = violation(s, v, cap)
                if off == zero:
                    if (v <= zero or v >= cap) and abs(s) > RESTING * worst_before[j]:
                        wants[i] &= ~bit
                    continue
                worst[j] = max(worst[j], off)
                moved = min(max(v + STRIDE * s / max(squares[i], tiny), zero), cap)
                change = moved - v
                if change != zero:
                    duals[i, j] = moved
                    _add(own_weights, -change, row)
                    own_weights[width] -= change * multiplier
            at += 1
        for j in range(n):
            worst_before[j] = worst[j]
            visits[j] += goes_on[j]  # an epoch without rows is a visit, too
            goes_on[j] &= worst[j] > np.float32(_ENOUGH) * accuracy[j] and visits[j] < max_visits[j]
        if not are_many(visits.sum() - n_visits, n_active):
            break
        n_visits = visits.sum()


@inner()
def _bits(chosen):  # type: ignore[no-untyped-def]
    """A number with a bit for everybody who is chosen."""
    bits = np.uint64(0)
    for j in range(len(chosen)):
        if chosen[j]:
            bits |= np.uint64(1) << np.uint64(j)
    return bits


@kernel(fastmath=REASSOCIATE)
def visit_alone(  # type: ignore[no-untyped-def]
    rows, squares, targets, duals, chosen, own_row, costs, accuracy, max_visits, seed
):
    """The same for one exemplar and the rows that it wants. In place: duals (P,), weights, the order of `chosen`.

    The next score is taken along while weights are corrected, which are then read once and not twice, and the row after
    the next is asked for. Returns the dual of the positive, and how many visits there were.
    """
    positive, own, own_target, weights = own_row
    cap, own_cap, multiplier = costs
    zero, width, tiny = np.float32(0), rows.shape[1], np.float32(1e-30)
    own_square = max(dot(positive, positive), tiny)
    worst_before, n_active, visits, state = np.float32(np.inf), len(chosen), 0, np.uint64(seed + 1)
    while n_active > 0 and visits < max_visits:
        state = shuffle(chosen, n_active, state)
        every = max(1, n_active // POSITIVE)
        worst, next_own, at, is_own, goes_on = zero, every, 0, True, True
        row = positive[:width]
        total = dot(row, weights[:width])
        while goes_on:
            change = zero
            if is_own:
                s = own_target - total - weights[width] * positive[width]
                worst = max(worst, violation(s, own, own_cap))
                moved = min(max(own + s / own_square, zero), own_cap)
                change = moved - own
                own = moved
                weights[width] += change * positive[width]
            else:
                i = chosen[at]
                v, s = duals[i], targets[i] + total + weights[width] * multiplier
                off = violation(s, v, cap)
                visits += 1
                at += 1
                if off == zero:
                    if (v <= zero or v >= cap) and abs(s) > RESTING * worst_before:
                        at -= 1
                        n_active -= 1
                        chosen[at], chosen[n_active] = chosen[n_active], chosen[at]
                else:
                    worst = max(worst, off)
                    moved = min(max(v + STRIDE * s / max(squares[i], tiny), zero), cap)
                    change = v - moved
                    duals[i] = moved
                    weights[width] += change * multiplier
            goes_on = at < n_active
            is_own = goes_on and at >= next_own
            if is_own:
                next_own += every
            following, total = positive[:width] if is_own or not goes_on else rows[chosen[at]], zero
            if at + 1 < n_active:
                ahead = rows[chosen[at + 1]]
                for k in range(0, width, _LINE):
                    prefetch(ahead, k)
            if change != zero:
                for k in range(width):
                    weights[k] += change * row[k]
                    total += weights[k] * following[k]
            elif goes_on:
                for k in range(width):
                    total += weights[k] * following[k]
            row = following
        worst_before = worst
        if worst <= np.float32(_ENOUGH) * accuracy:
            break
    return own, visits


@inner(fastmath=REASSOCIATE)
def _add(weights, factor, row):  # type: ignore[no-untyped-def]
    for k in range(len(row)):
        weights[k] += factor * row[k]
