"""The hinge over the pool: coordinate descent on each exemplar's dual.

In: a `Share`, the pool as some exemplars see it. Out: their dual variables, in place, and what violation is left.
For one exemplar, with v for the duals of negatives and a for its positive's, K the products of augmented rows and
k = K between pool and positive, the dual is

    max  t.v + t_j a - 1/2 (v'K v - 2 a k'v + a^2 |x_j|^2)         0 <= v <= C-, 0 <= a <= C+

Its slopes are the shortfalls s_n = t_n + w.x_n and s_j = t_j - w.x_j with w = a x_j - sum_n v_n x_n. Rows far inside
their margin rest at v = 0 and rows far outside at v = C-, so a descent moves a small *part* of the pool only: the free
variables, the violators, and what is near its margin. Coordinate descent finds out who is free, Newton steps solve for
those. It ends when no slope points where its variable can still go by more than `tol`, and when the duality gap, the
sum of C max(0, s) - v s, is at most `tol` of the dual, which is half the sum of v (t + s). Then all slopes are computed
from scratch, so that float32 errors do not add up and resting rows are heard, and looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse  # noqa: F401  compiled products and solutions call what `linalg` loads

from eesvm._support.compile import inner, kernel
from eesvm._support.sorting import stable_order
from eesvm.exemplars.rows import F32
from eesvm.exemplars.solver.problem import F64, Objective
from eesvm.exemplars.solver.visits import violation

_NEAR = 0.02  # of the margin: so near to it a row takes part in a descent
_PART = 256  # rows of a part, or twice the free variables where these are many
_EPOCHS = 10  # of coordinate descent, then a Newton step on the free variables
_NEWTON_STEPS = 30  # of one descent
_MAX_DESCENTS = 60  # between two scans
_RIDGE = 1e-7  # relative, so that free variables with equal rows can be solved for
_SPARSE = 0.05  # share of positive duals below which their product with the rows is a sparse one


@dataclass
class Share:
    """The pool as n exemplars see it; P negatives in d + 1 dimensions. Duals are changed in place."""

    rows: NDArray[Any]  # (P, d + 1), these four of one float dtype
    targets: NDArray[Any]  # (n, P) margins, -inf for negatives of the exemplar's own group
    positives: NDArray[Any]  # (n, d + 1)
    own_targets: NDArray[Any]  # (n,)
    duals: F32  # (n, P)
    own: F32  # (n,) dual of the positive
    may_copy: bool = True  # whether there is memory for a copy of some of the rows


def combine(duals: F32, rows: F32) -> F32:
    """duals @ rows, which pays attention to zeros where there are many."""
    if duals.size and np.count_nonzero(duals) < _SPARSE * duals.size:
        return sparse.csr_array(duals) @ rows
    return duals @ rows


def descend_hinge(share: Share, objective: Objective, tol: float) -> F64:
    """Optimise the duals of a share to `tol`; returns the violation that is left, (n,)."""
    cap, own_cap = np.float32(objective.negative_cost), np.float32(objective.positive_cost)
    violations = np.zeros(len(share.own))
    active = np.arange(len(share.own))
    for _ in range(_MAX_DESCENTS):
        weights = share.own[active, None] * share.positives[active] - combine(share.duals[active], share.rows)
        slopes = share.targets[active] + weights @ share.rows.T
        own_slopes = share.own_targets[active] - np.einsum("nd,nd->n", weights, share.positives[active])
        is_done = np.zeros(len(active), dtype=np.bool_)
        for k, j in enumerate(active):
            violations[j], share.own[j], is_done[k] = _descend_one(
                share.rows, share.positives[j], slopes[k], share.targets[j], share.duals[j],
                own_slopes[k], share.own_targets[j], share.own[j], cap, own_cap, tol,
            )  # fmt: skip
        active = active[~is_done]
        if len(active) == 0:
            break
    return violations


def floats_of_a_part(n_pool: int, n_free: int, width: int) -> int:
    """Numbers that the descent of one exemplar with about `n_free` free variables holds."""
    n = min(n_pool, max(_PART, 2 * n_free)) + 1
    return n * (n + width) + 2 * 2 * min(n, n_free) ** 2  # the Newton step is in float64, twice


@kernel()
def _descend_one(  # type: ignore[no-untyped-def]
    rows, positive, slopes, targets, duals, own_slope, own_target, own, cap, own_cap, tol
):
    """Optimise a part of the duals of one exemplar, in place, unless all are optimal.

    Returns the violation before, the dual of the positive, and whether everything was optimal.
    """
    worst, gap, dual = _look(slopes, targets, duals, cap)
    worst = max(worst, violation(own_slope, own, own_cap))
    gap += own_cap * max(own_slope, 0.0) - own * own_slope
    dual += own * (own_target + own_slope) / 2
    if worst <= tol and gap <= tol * max(dual, 0.0):
        return worst, own, True
    part = _choose_part(slopes, duals, cap)
    n = len(part)
    signed = np.empty((n + 1, rows.shape[1]), np.float32)
    values, part_slopes = np.empty(n + 1, np.float32), np.empty(n + 1, np.float32)
    for a in range(n):
        signed[a] = -rows[part[a]]
        values[a], part_slopes[a] = duals[part[a]], slopes[part[a]]
    signed[n], values[n], part_slopes[n] = positive, own, own_slope  # the positive is the last variable
    caps = np.full(n + 1, cap)
    caps[n] = own_cap
    _descend(np.dot(signed, signed.T), part_slopes, values, caps, dual, np.float32(tol / 2))
    for a in range(n):
        duals[part[a]] = values[a]
    return worst, values[n], False


@inner()
def _choose_part(slopes, duals, cap):  # type: ignore[no-untyped-def]
    """Free variables, then violators from the worst on, then rows from the nearest to their margin on."""
    urgency = np.empty(len(duals), np.float32)
    n_free = 0
    for i in range(len(duals)):
        if 0 < duals[i] < cap:
            urgency[i] = np.inf
            n_free += 1
        else:
            is_violator = slopes[i] < 0 if duals[i] > 0 else slopes[i] > 0
            urgency[i] = abs(slopes[i]) if is_violator else -abs(slopes[i])
    part = np.flatnonzero(urgency > -_NEAR)
    limit = max(_PART, 2 * n_free)
    if len(part) > limit:
        part = part[stable_order(-urgency[part])[:limit]]
    return part


@kernel()
def _descend(gram, slopes, values, caps, dual, tol):  # type: ignore[no-untyped-def]
    """Optimise `values` in 0 .. caps. In place: values, and slopes (targets - gram @ values)."""
    for _ in range(_NEWTON_STEPS):
        dual, is_done = _coordinate_descent(gram, slopes, values, caps, dual, tol)
        if is_done:
            break
        dual += _newton_step(gram, slopes, values, caps)


@kernel()
def _newton_step(gram, slopes, values, caps):  # type: ignore[no-untyped-def]
    """Go to the optimum of the free variables, or as far towards it as all of them stay within bounds.

    In place: values, slopes. Returns what the dual gains.
    """
    free = np.flatnonzero((values > 0) & (values < caps))
    n = len(free)
    if n == 0:
        return 0.0
    products, step = np.empty((n, n)), np.empty(n)
    for a in range(n):
        step[a] = slopes[free[a]]
        for b in range(n):
            products[a, b] = gram[free[a], free[b]]
        products[a, a] = products[a, a] * (1 + _RIDGE) + 1e-30
    step[:] = np.linalg.solve(products, step)
    length = 1.0
    for a in range(n):
        room = caps[free[a]] - values[free[a]] if step[a] > 0 else values[free[a]]
        if abs(step[a]) * length > room:
            length = room / abs(step[a])
    gain = 0.0
    for a in range(n):
        i = free[a]
        moved = np.float32(min(max(values[i] + length * step[a], 0.0), caps[i]))
        gain += _move(gram, slopes, values, i, moved)
    return gain


@kernel()
def _coordinate_descent(gram, slopes, values, caps, dual, tol):  # type: ignore[no-untyped-def]
    """Some epochs over all variables. In place: values, slopes. Returns the dual, and whether `tol` was reached."""
    n = len(values)
    tiny, zero = np.float32(1e-30), np.float32(0)
    for _ in range(_EPOCHS):
        worst, gap = zero, 0.0
        for i in range(n):
            worst = max(worst, violation(slopes[i], values[i], caps[i]))
            gap += caps[i] * max(slopes[i], 0.0) - values[i] * slopes[i]
        if worst <= tol and gap <= tol * max(dual, 0.0):
            return dual, True
        idle = min(np.float32(0.1) * worst, np.float32(0.5) * tol)  # too little to bother
        for i in range(n):
            if violation(slopes[i], values[i], caps[i]) > idle:
                moved = min(max(values[i] + slopes[i] / max(gram[i, i], tiny), zero), caps[i])
                dual += _move(gram, slopes, values, i, moved)
    return dual, False


@inner()
def _move(gram, slopes, values, i, moved):  # type: ignore[no-untyped-def]
    """Set one variable and correct all slopes, in place; returns what the dual gains."""
    change = moved - values[i]
    gain = change * (slopes[i] - np.float32(0.5) * change * gram[i, i])
    values[i] = moved
    row = gram[i]
    for k in range(len(slopes)):
        slopes[k] -= change * row[k]
    return gain


@inner()
def _look(slopes, targets, duals, cap):  # type: ignore[no-untyped-def]
    """(largest violation, duality gap, dual) of one exemplar's negatives."""
    worst, gap, twice_dual = 0.0, 0.0, 0.0
    for i in range(len(duals)):
        worst = max(worst, violation(slopes[i], duals[i], cap))
        if duals[i] > 0:
            gap += cap * max(slopes[i], 0.0) - duals[i] * slopes[i]
            twice_dual += duals[i] * (targets[i] + slopes[i])
        elif slopes[i] > 0:
            gap += cap * slopes[i]
    return worst, gap, twice_dual / 2
