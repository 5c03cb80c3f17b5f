"""Covering as much as a budget allows, greedily.

In: levels, and the room that is left in a budget. Out: higher levels, in place. The step that covers most for what it
costs comes first; what `recall_search` makes of it is checked there.
"""

# njit erases the signatures; shapes and dtypes stand in the docstrings.
# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

from eesvm._support.compile import inner, kernel


@kernel()
def fill(order, delta, by_delta, units, prices, highest, rate, room, slots, is_free, levels, is_accepted, is_covered):
    """Raise `levels` (E,), with the masks of what they accept and cover, while there is room; returns what is left.

    `by_delta` (E, P) are the positives of each exemplar by `delta` (P, E). Covering a unit makes room for `rate` more.
    Of those `is_free` only `slots` more may leave level 0.
    """
    while True:
        best, exemplar, level = 0.0, -1, -1
        for j in range(len(levels)):
            if is_free[j] and levels[j] == 0 and slots <= 0:
                continue
            found, at = _best_step(order[j], delta[:, j], by_delta[j], units, prices, highest[j], rate, room, levels[j],
                                   is_accepted, is_covered)  # fmt: skip
            if found > best:
                best, exemplar, level = found, j, at
        if exemplar < 0:
            return room
        if is_free[exemplar] and levels[exemplar] == 0:
            slots -= 1
        for k in range(levels[exemplar], level):
            n = order[exemplar, k]
            if not is_accepted[n]:
                is_accepted[n] = True
                room -= prices[n]
        levels[exemplar] = level
        for p in by_delta[exemplar]:
            if delta[p, exemplar] > level:
                break
            if not is_covered[p]:
                is_covered[p] = True
                room += rate * units[p]


@inner()
def _best_step(order, delta, by_delta, units, prices, highest, rate, room, level, is_accepted, is_covered):
    """(units covered for a unit of loss, level) of the best step of one exemplar; (0, -1) where none fits."""
    cost = gain = best = 0.0
    at, reached = -1, level
    for p in by_delta:
        if delta[p] > highest:
            break
        while reached < delta[p]:
            if not is_accepted[order[reached]]:
                cost += prices[order[reached]]
            reached += 1
        if is_covered[p]:
            continue
        gain += units[p]
        if cost - rate * gain <= room and gain > best * max(cost, 1e-300):
            best, at = gain / max(cost, 1e-300), reached
    return best, at
