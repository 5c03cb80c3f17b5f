"""What Newton steps do to every row: duals from scores, and the line search.

In: arrays of (exemplars, rows), of which `active` says which exemplars are meant. Out: in place, as each kernel says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eesvm._support.compile import inner, kernel

_LANES = 256  # rows of a block; a running maximum is kept for each place in it
_REASSOCIATE = {"reassoc", "contract", "nsz"}  # sums in any order, but infinities stay what they are


@kernel(fastmath=_REASSOCIATE)
def evaluate(  # type: ignore[no-untyped-def]
    slopes, base, active, stiffness, cap, cost, duals, is_between, facts
):
    """Fill in duals, `is_between` and, for each active exemplar, facts.

    Facts: the duality gap of the hinge, the worst violation, the farthest move from `base`, how many rows are between
    their bounds, and the loss: of the hinge less its gap, of the squared hinge without its cost.
    """
    zero: Any = np.float32(0)
    offs, moves = np.empty(_LANES, slopes.dtype), np.empty(_LANES, slopes.dtype)
    for k in range(len(active)):
        own_slopes, own_base, own_duals, own_between = slopes[active[k]], base[active[k]], duals[k], is_between[k]
        gap, product, square, n, n_rows = 0.0, 0.0, 0.0, 0, len(own_slopes)
        # Three loops that the compiler takes many rows at a time; `min` and `max`, a branch, or the largest of all
        # rows in one number would keep it from that, and take ten times as long.
        for i in range(n_rows):
            raw = own_base[i] + stiffness * own_slopes[i]
            least = raw if raw > zero else zero
            own_duals[i] = least if least < cap else cap
            between = (raw > zero) & (raw < cap)
            own_between[i] = between
            n += between
        for i in range(n_rows):
            s, v = own_slopes[i], own_duals[i]
            short = s if s > zero else zero
            pull = v * s if v > zero else zero
            gap += cost * short
            square += short * short
            product += pull
        offs[:], moves[:] = 0, 0
        for start in range(0, n_rows, _LANES):
            some = slice(start, start + _LANES)
            part, before, betweens = own_slopes[some], own_base[some], own_between[some]
            now = own_duals[some]
            for lane in range(len(part)):
                s, v = part[lane], now[lane]
                short = s if s > zero else zero
                off = abs(s) if betweens[lane] else (short if v <= zero else short - s)
                offs[lane] = off if off > offs[lane] else offs[lane]
                move = abs(v - before[lane])
                moves[lane] = move if move > moves[lane] else moves[lane]
        worst, moved = offs.max(), moves.max()
        facts[k, 0], facts[k, 1], facts[k, 2], facts[k, 3] = gap - product, worst, moved, n
        facts[k, 4] = product if cap < np.inf else square


@kernel()
def mask(scores, is_between, left, stiffness):  # type: ignore[no-untyped-def]
    """`scores` times the stiffness where a row is between its bounds, else 0."""
    masked = np.zeros_like(scores)
    for k in range(len(left)):
        own, between, out = scores[k], is_between[left[k]], masked[k]
        for i in range(len(own)):
            if between[i]:
                out[i] = stiffness * own[i]
    return masked


@kernel()
def add_changes(change, scores, left, lengths):  # type: ignore[no-untyped-def]
    """In place: `change` of the exemplars that are left, by `lengths` times their scores."""
    for k in range(len(left)):
        total, own, length = change[left[k]], scores[k], scores.dtype.type(lengths[k])
        for i in range(len(own)):
            total[i] += length * own[i]


@inner(fastmath=_REASSOCIATE)
def _slope(slopes, change, base, stiffness, cap, t):  # type: ignore[no-untyped-def]
    """Of the losses of the negatives, along a direction, after a step of length `t`."""
    total, zero = 0.0, np.float32(0)
    for i in range(len(slopes)):
        total += min(max(base[i] + stiffness * (slopes[i] + t * change[i]), zero), cap) * change[i]
    return total


@kernel()
def search(  # type: ignore[no-untyped-def]
    slopes, base, active, change, own, along, stiffness, own_stiffness, cap, own_cap, lengths
):
    """Find steps after which the slope is less than 0.3 of what it was, and take them; in place: slopes, lengths."""
    for k in range(len(active)):
        j = active[k]
        own_base, own_slope, own_change = own[k]
        first, mixed, square = along[k]
        low, high, at_low, at_high, t = 0.0, np.inf, first, 0.0, 1.0
        for _ in range(12):
            value = mixed + t * square + _slope(slopes[j], change[k], base[j], stiffness, cap, np.float32(t))
            value += min(max(own_base + own_stiffness * (own_slope + t * own_change), 0.0), own_cap) * own_change
            if abs(value) <= 0.3 * abs(first):
                break
            if value > 0:
                high, at_high = t, value
            else:
                low, at_low = t, value
            t = 2 * t if high == np.inf else low + (high - low) * min(max(at_low / (at_low - at_high), 0.1), 0.9)
        lengths[k] = t
        step, mine, moves = np.float32(t), slopes[j], change[k]
        for i in range(len(mine)):
            mine[i] += step * moves[i]
