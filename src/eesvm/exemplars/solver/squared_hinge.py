"""The squared hinge over the pool: Newton's method for all exemplars at once.

In: a `Share` (see `hinge`) and starting weights. Out: the dual variables, in place, and what violation is left.
Every exemplar's criterion is smooth and piecewise quadratic. Where the exemplars share most of their support, Newton's
equations are solved by conjugate gradients, whose products with rows are one matrix product for all of them; the
preconditioner is the inverse of the mean Hessian, to which theirs are close. Where their supports are small, each
equation is solved directly. A line search on the scores, which costs no product, makes each step go down.

With v = 2C max(0, shortfall) for the duals, the gradient g is w minus the weights that the duals add up to. The duality
gap is then |g|^2 / 2, and no optimality condition of the dual is violated by more than |g| max |x|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from eesvm.exemplars.rows import F32
from eesvm.exemplars.solver.hinge import Share
from eesvm.exemplars.solver.problem import F64, Objective

Floats = NDArray[np.floating[Any]]  # float32, or float64 where the criterion is too steep for it

_MAX_STEPS = 50
_DIRECTIONS, _GOOD_DIRECTIONS = 50, 8  # conjugate ones to expect, without and with a preconditioner
_MAX_CONJUGATE = 40  # directions per step
_FORCING = 0.1  # how far a step solves its Newton equation
_MAX_HALVINGS = 20
_SLOPE_SHARE = 1e-4  # of the promised descent that a step must bring
_ROUNDING = 1e-6  # relative, of a criterion added up in float32


def descend_squared(share: Share, weights: F32, objective: Objective, tol: float, inverse: F32 | None) -> F64:
    """Optimise a share from `weights` (n, d + 1) to `tol`; returns the violation that is left, (n,)."""
    violations = np.empty(len(weights))
    longest = np.sqrt(max(_longest_square(share.rows), _longest_square(share.positives)))
    weights = weights.astype(share.rows.dtype)
    state = _State(share, np.arange(len(weights)), weights, weights @ share.rows.T)
    for step in range(_MAX_STEPS):
        point = _evaluate(state, objective)
        norms = np.linalg.norm(point.gradient, axis=1).astype(np.float64)
        is_done = (norms * longest <= tol) & (norms**2 <= tol * point.value)
        ends = is_done | (step == _MAX_STEPS - 1)
        finished = state.active[ends]
        share.duals[finished] = 2 * objective.negative_cost * point.shortfalls[ends]
        share.own[finished] = 2 * objective.positive_cost * point.own_shortfalls[ends]
        violations[finished] = norms[ends] * longest
        if ends.all():
            break
        state, point, norms = state.part(~ends), point.part(~ends), norms[~ends]
        if _is_direct_cheaper(point, inverse is not None):
            direction = _direct_direction(state, point, objective)
            change = direction @ share.rows.T
        else:
            goal = np.maximum(_FORCING * norms, tol / longest / 4)
            direction, change = _conjugate_direction(state, point, objective, inverse, goal)
        length = _line_search(state, point, objective, direction, change)
        state.weights += length[:, None] * direction
        state.scores += length[:, None] * change
    return violations


def amplification(objective: Objective, longest_square: float) -> float:
    """By how much the gradient enlarges errors of scores: beyond some hundreds, float32 is not enough for it."""
    return 2 * max(objective.positive_cost, objective.negative_cost) * longest_square


def mean_hessian_inverse(rows: F32, shares: F32, negative_cost: float) -> F32:
    """(d + 1, d + 1) inverse of the mean over exemplars of I + 2C sum of x x' over supporting rows.

    `shares` (P,) says for which part of the exemplars a row is supporting.
    """
    supporting = np.flatnonzero(shares)
    weighted = rows[supporting]
    weighted *= np.sqrt(2 * negative_cost * shares[supporting, None])
    hessian = weighted.T @ weighted
    hessian[np.diag_indices(len(hessian))] += 1
    return np.linalg.inv(hessian)


@dataclass
class _State:
    """Exemplars that are not done; `weights` and `scores` change in place."""

    share: Share
    active: NDArray[np.intp]
    weights: Floats  # (n, d + 1)
    scores: Floats  # (n, P)

    @property
    def positives(self) -> Floats:
        return self.share.positives[self.active]

    def part(self, kept: NDArray[np.bool_]) -> _State:
        return _State(self.share, self.active[kept], self.weights[kept], self.scores[kept])


@dataclass
class _Point:
    """The criterion at the current weights."""

    value: F64  # (n,)
    gradient: Floats  # (n, d + 1)
    shortfalls: Floats  # (n, P), 0 where the margin is kept
    own_shortfalls: Floats  # (n,)

    def part(self, kept: NDArray[np.bool_]) -> _Point:
        return _Point(self.value[kept], self.gradient[kept], self.shortfalls[kept], self.own_shortfalls[kept])


def _evaluate(state: _State, objective: Objective) -> _Point:
    share, active, positives = state.share, state.active, state.positives
    shortfalls = np.maximum(share.targets[active] + state.scores, 0)
    own = np.maximum(share.own_targets[active] - _dot(state.weights, positives), 0)
    c, own_c = 2 * objective.negative_cost, 2 * objective.positive_cost
    gradient = state.weights - (own_c * own)[:, None] * positives + c * (shortfalls @ share.rows)
    value = (_dot(state.weights, state.weights) + own_c * own**2 + c * _dot(shortfalls, shortfalls)) / 2
    return _Point(value.astype(np.float64), gradient, shortfalls, own)


def _is_direct_cheaper(point: _Point, is_preconditioned: bool) -> bool:
    """By the products of rows that either way takes."""
    n_support, width = np.count_nonzero(point.shortfalls) / len(point.shortfalls), point.gradient.shape[1]
    n_directions = _GOOD_DIRECTIONS if is_preconditioned else _DIRECTIONS
    return min(n_support, width) * n_support < 2 * n_directions * point.shortfalls.shape[1]


def _direct_direction(state: _State, point: _Point, objective: Objective) -> Floats:
    """Each exemplar's Newton equation, solved in the smaller of its dimensions and its support."""
    directions = np.empty_like(point.gradient)
    cost, own_cost = math.sqrt(2 * objective.negative_cost), math.sqrt(2 * objective.positive_cost)
    for k, j in enumerate(state.active):
        rows = cost * state.share.rows[point.shortfalls[k] > 0]
        if point.own_shortfalls[k] > 0:
            rows = np.concatenate([rows, own_cost * state.share.positives[j : j + 1]])
        directions[k] = _solve(rows, -point.gradient[k])
    return directions


def _solve(rows: Floats, target: Floats) -> Floats:
    """x with (I + rows' rows) x = target."""
    if len(rows) == 0:
        return target
    is_wide = rows.shape[0] < rows.shape[1]
    products = rows @ rows.T if is_wide else rows.T @ rows
    products[np.diag_indices(len(products))] += 1
    try:
        factors = linalg.cho_factor(products.T, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError:  # beside such long rows float32 loses the 1
        return _solve(rows.astype(np.float64), target.astype(np.float64)).astype(rows.dtype)
    known = rows @ target if is_wide else target
    solved = linalg.cho_solve(factors, known, overwrite_b=is_wide, check_finite=False)
    return np.asarray(target - solved @ rows if is_wide else solved)


def _conjugate_direction(
    state: _State, point: _Point, objective: Objective, inverse: F32 | None, goal: F64
) -> tuple[Floats, Floats]:
    """Preconditioned conjugate gradients until the residuals are below `goal`; returns directions and their scores."""
    rows, positives = state.share.rows, state.positives
    is_supporting = point.shortfalls > 0
    c = 2 * objective.negative_cost
    own_c = (point.own_shortfalls > 0).astype(rows.dtype) * 2 * objective.positive_cost
    direction, change = np.zeros_like(point.gradient), np.zeros_like(state.scores)
    residual: Floats = -point.gradient
    search: Floats = residual if inverse is None else residual @ inverse
    energy = _dot(residual, search)
    for _ in range(_MAX_CONJUGATE):
        scores = search @ rows.T
        curved = search + (own_c * _dot(search, positives))[:, None] * positives
        curved += c * (np.where(is_supporting, scores, rows.dtype.type(0)) @ rows)
        length = _ratio(energy, _dot(search, curved))
        direction += length[:, None] * search
        change += length[:, None] * scores
        residual = residual - length[:, None] * curved
        if (np.linalg.norm(residual, axis=1) <= goal).all():
            break
        preconditioned = residual if inverse is None else residual @ inverse
        old, energy = energy, _dot(residual, preconditioned)
        search = preconditioned + _ratio(energy, old)[:, None] * search
    return direction, change


def _line_search(state: _State, point: _Point, objective: Objective, direction: Floats, change: Floats) -> Floats:
    """(n,) the first of 1, 1/2, 1/4, ... that goes down enough."""
    share, active = state.share, state.active
    square, mixed = _dot(state.weights, state.weights), _dot(state.weights, direction)
    moved = _dot(direction, direction)
    own_slack = share.own_targets[active] - _dot(state.weights, state.positives)
    own_change = _dot(direction, state.positives)
    promised = _dot(point.gradient, direction)
    lengths = np.ones(len(active), dtype=share.rows.dtype)
    todo = np.arange(len(active))
    for _ in range(_MAX_HALVINGS):
        t = lengths[todo]
        shortfalls = np.maximum(share.targets[active[todo]] + state.scores[todo] + t[:, None] * change[todo], 0)
        own = np.maximum(own_slack[todo] - t * own_change[todo], 0)
        value = (square[todo] + 2 * t * mixed[todo] + t**2 * moved[todo]) / 2
        value += objective.positive_cost * own**2 + objective.negative_cost * _dot(shortfalls, shortfalls)
        allowed = point.value[todo] * (1 + _ROUNDING) + _SLOPE_SHARE * t * promised[todo]
        todo = todo[value > allowed]
        if len(todo) == 0:
            break
        lengths[todo] /= 2
    return lengths


def _dot(a: Floats, b: Floats) -> Floats:
    return np.einsum("nd,nd->n", a, b)


def _ratio(a: Floats, b: Floats) -> Floats:
    return a / np.maximum(b, np.finfo(np.float32).tiny)


def _longest_square(rows: Floats) -> float:
    return float(_dot(rows, rows).max(initial=0.0))
