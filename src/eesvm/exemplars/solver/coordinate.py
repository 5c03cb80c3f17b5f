"""The hinge over all negatives: coordinate descent on the rows themselves, for some exemplars side by side.

In: a `Share` of all negatives, see `hinge`, whose rows are without the column of the bias, and duals to start from.
Out: the duals, in place, what violation is left, and who is done.

A visit to a row is a product with the weights and, if its dual moves, a correction of them: 2 d numbers, whatever the
number of rows. So nothing grows with the square of the dimensions, as Newton's equations do, and where exemplars are
done after a few looks at all rows nothing is faster. Where C is large, visits do not end, and Newton steps go on from
where they have come to. A round is

    slopes of all rows, by one product for all exemplars; who is done is known then, by the duality gap of the weights
    as they are, or of weights that are a little longer (`stretching`)
    the rows that violate their condition, that are between their bounds, or that are near the margin: visited in
    random order, again and again, without those that rest at a bound and pull away from the margin (shrinking)

While many want a row it is visited for all of them before the next one is, so that it comes from memory once; when it
is wanted by few, everybody goes on alone (`visits`). The only positive is visited many times as often. Weights are
added up from duals before each round, so that float32 errors do not add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from eesvm._support.compile import kernel
from eesvm.exemplars.rows import F32
from eesvm.exemplars.solver.hinge import Share
from eesvm.exemplars.solver.problem import F64, Objective
from eesvm.exemplars.solver.row_products import scores_of, sums_of
from eesvm.exemplars.solver.stretching import Goal, enough_longer
from eesvm.exemplars.solver.visits import are_many, dot, violation, visit_alone, visit_together

_MAX_ROUNDS = 40
_FIRST_VISITS_IF_NARROW = 1.0  # where visits pay at all in few columns, they are few
_FIRST_VISITS = 3.0  # times the rows, in a first round; twice as many in each further one
_NEAR = 2.0  # times the worst violation: so near to its margin a row is visited
_SURPLUS = 2.8  # times smaller than `tol` is the duality gap that is aimed at: the last visits are not cheap
_SMALL, _FINER = 1.2, (0.25, 0.9)  # times the accuracy are small violations; what it is multiplied by then
_WORTH_STRETCHING = 100.0  # times `tol` is a duality gap that longer weights may close: visits cost more
_FINEST = 16.0  # times smaller than `tol` are violations that are aimed at, at least: float32 has no more
_REFINEMENTS, _RIDGE = 3, 1e-6  # of Newton's step at the end
_MAX_LEAVING, _LEAVING = 5, 0.05  # times that duals go to their bounds in it, and how many of them at a time
_SPARSE, _BLOCK_ROWS = 0.08, 2048  # share of positive duals below which weights are added up one by one
_MOST_TOGETHER = 64  # exemplars: bits of a number
_LIMIT, _LIMIT_WIDTH = 10.0, 128  # visits to a row that are worth while in so many columns; they grow by the square
_FEW_COLUMNS, _LEAST_LIMIT = 320, 2.5  # columns up to which only exemplars are visited that hardly move
_DENSE = 2  # times the columns: duals between their bounds that are many
_DENSE_WIDTH = 448  # columns above which visits are faster even then


@dataclass(frozen=True)
class Descended:
    """What became of a share: all but the duals, which are changed in place."""

    weights: F32  # (n, d + 1) of those who are done: what their duals add up to, or a little longer
    dual_squares: F64  # (n,) squared lengths of what their duals add up to
    violations: F64  # (n,)
    is_done: NDArray[np.bool_]  # (n,)
    visits: F64  # (n,) times that all rows were visited, about
    settled: F64  # (n,) violation from which on a Newton step may end it


def worthwhile_visits(width: int, n_free: int) -> float:
    """Visits to a row after which Newton steps would have been faster.

    These are quick where many more duals than columns are between their bounds: they are then the same for all
    exemplars, about.
    """
    if is_for_newton(width, n_free):
        return 0.0
    return _LIMIT * (width / _LIMIT_WIDTH) ** 2 if width > _FEW_COLUMNS else _LEAST_LIMIT


def is_for_newton(width: int, n_free: int) -> bool:
    """Whether Newton steps are faster even where visits end."""
    return n_free > _DENSE * width and may_be_for_newton(width)


def may_be_for_newton(width: int) -> bool:
    """Whether that depends on how many duals are between their bounds."""
    return width <= _DENSE_WIDTH


def descend_coordinates(
    share: Share, squares: F32, objective: Objective, tol: float, max_visits: float = np.inf
) -> Descended:
    """Optimise the duals of a share to `tol`, as long as visits to rows are worth while, and `max_visits` at most."""
    (n, n_rows), width = share.duals.shape, share.rows.shape[1]
    assert n <= _MOST_TOGETHER
    multiplier = np.float32(objective.bias_multiplier)
    costs = np.float32(objective.negative_cost), np.float32(objective.positive_cost)
    found = Descended(
        np.empty_like(share.positives),
        np.zeros(n),
        np.full(n, np.inf),
        np.zeros(n, dtype=np.bool_),
        np.zeros(n),
        np.full(n, 4 * tol),
    )
    lengths, goal, active = squares + multiplier**2, tol / _SURPLUS, np.arange(n)
    accuracy, share_of_gap = np.full(n, tol), np.ones(n)
    budget = first_visits = _FIRST_VISITS if width > _FEW_COLUMNS else _FIRST_VISITS_IF_NARROW
    for round_ in range(_MAX_ROUNDS):
        found.weights[active] = weights = _weights(share, active, multiplier)
        slopes = share.targets[active] + scores_of(share.rows, weights[:, :-1])
        slopes += weights[:, -1:] * multiplier
        wants = np.zeros(n_rows, dtype=np.uint64)
        for k, j in enumerate(active):
            own = share.positives[j], share.own[j], share.own_targets[j], weights[k]
            facts = _look(slopes[k], share.duals[j], own, costs)
            found.violations[j], found.dual_squares[j] = facts[0], facts[3]
            share_of_gap[j] = goal * facts[2] / max(facts[1], np.finfo(np.float64).tiny)
            found.is_done[j] = facts[0] <= tol and facts[1] <= goal * facts[2]
            if not found.is_done[j]:
                found.is_done[j] = _stretch(share, j, slopes[k], facts, found, costs, tol)
            if not found.is_done[j]:
                _want(slopes[k], share.duals[j], facts[0], (costs[0], accuracy[j]), np.uint64(j), wants)
        n_free = np.count_nonzero((share.duals > 0) & (share.duals < costs[0]), axis=1)
        limits = np.minimum([worthwhile_visits(width, free) for free in n_free.tolist()], max_visits)
        active = active[~found.is_done[active] & (found.visits[active] < limits[active])]
        if len(active) == 0:
            break
        is_solved = np.array([_solve_free(share, j, found, costs, multiplier) for j in active])
        if is_solved.any():  # what that gave is looked at before it is visited
            wants &= ~np.bitwise_or.reduce(np.uint64(1) << active[is_solved].astype(np.uint64))
        is_fine = accuracy > tol / _FINEST
        left = np.minimum(np.where(is_fine, budget, first_visits), limits - found.visits)
        left[np.setdiff1d(np.arange(n), active[~is_solved])] = 0
        most, limits = (left * n_rows).astype(np.int64), accuracy.astype(np.float32)
        visits = _visit_all(
            share, active[~is_solved], found.weights, wants, lengths, (*costs, multiplier), limits, most, round_
        )
        found.visits[active] += visits[active] / n_rows
        is_small = found.violations <= _SMALL * accuracy  # such violations have added up to a gap that is not
        finer = np.clip(share_of_gap[is_small], *_FINER)  # gaps fall as violations do
        accuracy[is_small] = np.maximum(accuracy[is_small] * finer, tol / _FINEST)
        budget *= 2
    return found


def _stretch(
    share: Share, j: Any, slopes: F32, facts: tuple[float, ...], found: Descended, costs: tuple[Any, Any], tol: float
) -> bool:
    """Whether exemplar j is done if its weights become a little longer; they do then."""
    violated, gap, primal, square, own_slope = facts
    if not (violated <= tol and gap <= _WORTH_STRETCHING * tol * primal):
        return False
    own = float(own_slope), float(share.own_targets[j]), float(share.own[j]), float(costs[1])
    goal = Goal(gap, primal, tol / _SURPLUS, tol)
    longer = enough_longer(slopes, share.targets[j], share.duals[j], costs[0], own, square, goal)
    if longer is None:
        return False
    e, found.violations[j] = longer
    found.weights[j] *= np.float32(1 + e)
    return True


def _solve_free(
    share: Share, j: Any, found: Descended, costs: tuple[np.float32, np.float32], multiplier: np.float32
) -> bool:
    """Newton's step for the duals between their bounds, where these have settled; whether there was one.

    Visits go to such an end slowly, and the more so the larger C is.
    """
    duals, (cap, own_cap), width = share.duals[j], costs, share.rows.shape[1] + 1
    free = np.flatnonzero((duals > 0) & (duals < cap))
    if found.violations[j] > found.settled[j] or not 0 < len(free) <= width:
        return False
    rows = np.empty((len(free) + 1, width), dtype=np.float32)
    rows[:-1, :-1], rows[:-1, -1], rows[-1] = -share.rows[free], -multiplier, share.positives[j]
    rows = rows[: len(rows) - (not 0 < share.own[j] < own_cap)]
    values = np.append(duals[free], share.own[j])[: len(rows)].astype(np.float64)
    targets = np.append(share.targets[j, free], share.own_targets[j])[: len(rows)].astype(np.float64)
    caps = np.append(np.full(len(free), cap), own_cap)[: len(rows)].astype(np.float64)
    products = (rows @ rows.T).astype(np.float64)
    products[np.diag_indices(len(rows))] *= 1 + _RIDGE
    found.settled[j] /= 4  # where one comes too early, the next comes later
    weights, within = _exact_weights(share, j, multiplier), np.arange(len(rows))
    for _ in range(_MAX_LEAVING):
        known = values[within], weights.copy()
        if not _solve(products[np.ix_(within, within)], rows[within], targets[within], *known):
            return False
        is_outside = (known[0] < 0) | (known[0] > caps[within])
        if not is_outside.any():
            values[within] = known[0]
            break
        leaving = within[is_outside]  # they go to their bounds, and the others are solved for once more
        moved = np.where(known[0][is_outside] < 0, 0.0, caps[leaving])
        weights += (moved - values[leaving]) @ rows[leaving]
        values[leaving], within = moved, within[~is_outside]
        if len(leaving) > _LEAVING * len(rows) or len(within) == 0:
            return False
    else:
        return False
    duals[free] = values[: len(free)]
    if len(rows) > len(free):
        share.own[j] = values[-1]
    return True


def _solve(products: F64, rows: F32, targets: F64, values: F64, weights: F64) -> bool:
    """Find values of rows that reach their targets; in place: values, weights. Whether there are any."""
    try:
        factors = linalg.cho_factor(products, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError:
        return False
    for _ in range(_REFINEMENTS):  # products in float32 are good for a direction
        step = linalg.cho_solve(factors, targets - rows @ weights, check_finite=False)
        values += step
        weights += step @ rows
    return bool(np.isfinite(values).all())


def _visit_all(
    share: Share,
    chosen: NDArray[np.intp],
    weights: F32,
    wants: NDArray[np.uint64],
    lengths: F32,
    costs: tuple[np.float32, ...],
    accuracy: F32,
    most: NDArray[np.int64],
    seed: int,
) -> NDArray[np.int64]:
    """Visit the rows that the chosen exemplars want, `most` times at most; how often that was. In place: duals."""
    visits, moving, goes_on = np.zeros(len(share.own), dtype=np.int64), weights.copy(), most > 0
    if are_many(int(np.bitwise_count(wants).sum()), np.count_nonzero(wants)):
        duals, own_rows = np.ascontiguousarray(share.duals.T), (share.positives, share.own, share.own_targets, moving)
        targets, limits = np.ascontiguousarray(share.targets.T), (accuracy, most, visits, goes_on)
        visit_together(share.rows, lengths, targets, duals, wants, own_rows, costs, limits, seed)
        share.duals[chosen] = duals.T[chosen]
    for j in chosen[goes_on[chosen]]:
        rows = np.flatnonzero(wants & (np.uint64(1) << np.uint64(j)))
        own_row, left = (share.positives[j], share.own[j], share.own_targets[j], moving[j]), most[j] - visits[j]
        share.own[j], n_visits = visit_alone(
            share.rows, lengths, share.targets[j], share.duals[j], rows, own_row, costs, accuracy[j], left, seed
        )
        visits[j] += n_visits
    return visits


def _weights(share: Share, active: NDArray[np.intp], multiplier: np.float32) -> F32:
    """(m, d + 1) what duals add up to."""
    if np.count_nonzero(share.duals[active]) < _SPARSE * share.duals[active].size:
        return np.array([_exact_weights(share, j, multiplier) for j in active], dtype=np.float32)
    duals = share.duals[active]
    weights = share.own[active, None] * share.positives[active]
    weights[:, :-1] -= sums_of(duals, share.rows)
    weights[:, -1] -= multiplier * duals.sum(axis=1, dtype=np.float64).astype(np.float32)
    return weights


def _exact_weights(share: Share, j: Any, multiplier: np.float32) -> F64:
    """(d + 1,) the same of one exemplar, in float64."""
    supporting = np.flatnonzero(share.duals[j])
    duals = share.duals[j, supporting].astype(np.float64)
    weights = np.float64(share.own[j]) * share.positives[j].astype(np.float64)
    for start in range(0, len(supporting), _BLOCK_ROWS):
        part = slice(start, start + _BLOCK_ROWS)
        weights[:-1] -= duals[part] @ share.rows[supporting[part]].astype(np.float64)
    weights[-1] -= multiplier * duals.sum()
    return weights


@kernel()
def _look(slopes, duals, own_row, costs):  # type: ignore[no-untyped-def]
    """Of an exemplar: its violation, its duality gap, its criterion, the square of its weights, and its own slope."""
    positive, own, own_target, weights = own_row
    cap, own_cap = costs
    zero, n = np.float32(0), len(duals)
    own_slope = own_target - dot(weights, positive)
    worst, gap, loss = zero, 0.0, 0.0
    for i in range(n):
        s, v = slopes[i], duals[i]
        worst = max(worst, violation(s, v, cap))
        loss += max(s, zero)
        if v > zero:
            gap -= v * s
    own_short = max(own_slope, zero)
    worst = max(worst, violation(own_slope, own, own_cap))
    loss = cap * loss + own_cap * own_short
    gap += loss - own * own_slope
    square = 0.0
    for k in range(len(weights)):
        square += np.float64(weights[k]) * weights[k]
    return worst, gap, square / 2 + loss, square, own_slope


@kernel()
def _want(slopes, duals, worst, limits, number, wants):  # type: ignore[no-untyped-def]
    """Note the rows that an exemplar wants to visit, in place: `wants`."""
    cap, accuracy = limits
    near, bit = np.float32(_NEAR) * max(worst, np.float32(accuracy)), np.uint64(1) << number
    for i in range(len(duals)):
        if abs(slopes[i]) <= near or violation(slopes[i], duals[i], cap) > np.float32(0):
            wants[i] |= bit
