"""The hinge, at the end: weights that are a little longer, so that small violations do not cost C each.

In: the slopes of all rows, the duals, and the squared length of the weights. Out: the factor by which longer weights
lower the criterion, and by how much. Where C is large, thousands of rows that miss their margin by next to nothing add
up to most of the duality gap, although the duals are good: they would have to be ten times as exact for a gap that is
small. Weights w (1 + e) miss margins by e less, for e |w|^2 in all. The dual is left as it is, and so is the lower
bound that it proves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import inner, kernel
from eesvm.exemplars.solver.visits import REASSOCIATE, violation

_PRECISION, _LEAST = 0.1, 1e-7  # of e: the criterion is flat where it is lowest; below float32 there is no e
_ROOM = 0.99  # of the largest e: violations are as large, and rounded


@dataclass(frozen=True)
class Goal:
    """What weights are worth now, and what they shall be worth."""

    gap: float  # their duality gap
    primal: float  # the criterion
    wanted: float  # share of the criterion that the gap may be
    most: float  # violation of a condition, and e


def enough_longer(
    slopes: NDArray[Any], targets: NDArray[Any], duals: NDArray[Any], cap: Any, own: Any, square: float, goal: Goal
) -> tuple[float, float] | None:
    """The e with which w (1 + e) reach the goal, and the worst violation then; None where no e does. As `stretch`."""
    e, saved, worst = stretch(slopes, targets, duals, cap, own, square, _ROOM * goal.most)
    is_enough = goal.gap - saved <= goal.wanted * (goal.primal - saved) and worst <= goal.most
    return (e, worst) if is_enough else None


@kernel(fastmath=REASSOCIATE)
def stretch(slopes, targets, duals, cap, own, square, most):  # type: ignore[no-untyped-def]
    """The e up to `most` for which the criterion at w (1 + e) is about lowest.

    Parameters
    ----------
    slopes, targets, duals : (P,) shortfalls at w, margins, and duals; -inf marks a row that does not count.
    cap : C.
    own : of the positive, its slope, margin, dual and C+.
    square : |w|^2.
    most : the largest e.

    Returns
    -------
    tuple : e; by how much the criterion is less than at w; the worst violation of a condition.
    """
    (own_slope, own_target, own_dual, own_cap), zero = own, slopes.dtype.type(0)
    own_score = own_target - own_slope
    low, high = 0.0, most
    if _rise(slopes, targets, cap, own_slope, own_score, own_cap, square, 0.0) >= 0.0:
        high = 0.0
    while high - low > _PRECISION * high and high > _LEAST:
        middle = (low + high) / 2
        if _rise(slopes, targets, cap, own_slope, own_score, own_cap, square, middle) < 0.0:
            low = middle
        else:
            high = middle
    saved, worst = -square * (high + high * high / 2), 0.0
    e = slopes.dtype.type(high)
    for i in range(len(slopes)):
        s, v = slopes[i], duals[i]
        now = s + e * (s - targets[i]) if s > -np.inf else s
        short = now if now > 0 else zero
        saved += cap * ((s if s > 0 else zero) - short)
        off = short if v <= 0 else (short - now if v >= cap else abs(now))
        worst = off if off > worst else worst
    own_now = own_slope - high * own_score
    saved += own_cap * (max(own_slope, 0.0) - max(own_now, 0.0))
    return high, saved, max(worst, violation(own_now, own_dual, own_cap))


@inner(fastmath=REASSOCIATE)
def _rise(slopes, targets, cap, own_slope, own_score, own_cap, square, e):  # type: ignore[no-untyped-def]
    """The derivative of the criterion by e."""
    zero = slopes.dtype.type(0)
    total, factor = zero, slopes.dtype.type(e)
    for i in range(len(slopes)):
        s, score = slopes[i], slopes[i] - targets[i]
        total += score if s + factor * score > zero else zero
    rise = (1.0 + e) * square + cap * total
    return rise - own_cap * own_score if own_slope - e * own_score > 0.0 else rise
