"""The calibration problem as a compact integer program, for HiGHS and for CP-SAT.

In: a `CalibrationProblem` of unit weights. Out: loss, bound, status and nodes of the solver. The model gets the reductions
that the exact search has (zero-cost and dominated positives, levels that cost more than the first leaf of Algorithm 1,
negatives nobody accepts) and negatives that are alike in every exemplar are one with a weight:

    min sum_g w_g y_g   with   x[j, k + 1] <= x[j, k],   x[j, k] <= y_g where level k of j is the first to accept g,
    sum_j x[j, level of p in j] >= 1 for every positive p,   x in {0, 1},   y in [0, 1].

x[j, k] says that exemplar j opens at least its level k. Absent on purpose: scores; the model is made of ranks.
"""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csc_array, vstack

from eesvm import CalibrationProblem, solve
from eesvm.calibration.ranks import rank, thresholds_to_levels
from eesvm.calibration.search.reduce import cheap_box, reduce

Pairs = NDArray[np.int64]  # (2, n)


@dataclass(frozen=True)
class CompactModel:
    n_positives: int
    n_levels: int  # x variables
    weights: NDArray[np.int64]  # (G,) of the groups of negatives, the y variables
    cover: Pairs  # (positive, level): the level covers the positive
    accept: Pairs  # (group, level): the level accepts the group
    nested: Pairs  # (level, the next deeper level of the same exemplar)
    start: NDArray[np.bool_]  # (levels and groups,) the first leaf of Algorithm 1, to start with

    @property
    def n_nonzeros(self) -> int:
        return self.cover.shape[1] + 2 * (self.accept.shape[1] + self.nested.shape[1])


def compact_model(problem: CalibrationProblem) -> CompactModel:
    ranked = rank(problem)
    first_leaf = solve(problem, method="greedy")
    # A level that costs as much as the first leaf stays, and so does the first leaf.
    reduced = reduce(ranked, cheap_box(ranked, first_leaf.loss + 1))
    levels = [np.unique(column[column > 0]) for column in reduced.reach.T]
    starts = np.concatenate([[0], np.cumsum([len(values) for values in levels])])
    first = [np.searchsorted(values, row, side="right") for values, row in zip(levels, reduced.rank.T, strict=True)]
    # (G, E) the level at which each exemplar accepts each group of negatives
    groups, weights = np.unique(np.stack(first, axis=1).astype(np.int32), axis=0, return_counts=True)
    opened = thresholds_to_levels(problem, ranked.delta, first_leaf.thresholds)
    n_opened = [int(np.searchsorted(values, level, side="right")) for values, level in zip(levels, opened, strict=True)]
    cover, accept, nested = [], [], []
    for j, values in enumerate(levels):
        users = np.flatnonzero(reduced.reach[:, j] > 0)
        cover.append(np.stack([users, starts[j] + np.searchsorted(values, reduced.reach[users, j])]))
        hit = np.flatnonzero(groups[:, j] < len(values))
        accept.append(np.stack([hit, starts[j] + groups[hit, j]]))
        nested.append(starts[j] + np.stack([np.arange(1, len(values)) - 1, np.arange(1, len(values))]))
    is_open = np.concatenate([np.arange(len(values)) < n for values, n in zip(levels, n_opened, strict=True)])
    return CompactModel(
        len(reduced.positives),
        int(starts[-1]),
        weights,
        *(np.concatenate(pairs, axis=1) for pairs in (cover, accept, nested)),
        start=np.concatenate([is_open, (groups < n_opened).any(axis=1)]),
    )


def solve_with_highs(model: CompactModel, seconds: float, packages: str) -> dict[str, object]:
    """With highspy from the folder `packages` or where it is installed, else with the HiGHS that scipy carries."""
    if model.n_positives == 0:
        return {"loss": 0.0, "bound": 0.0, "status": "optimal", "nodes": 0}
    sys.path.insert(0, packages)
    try:
        import highspy
    except ImportError:
        return _solve_with_scipy(model, seconds)
    matrix, lower = _rows(model)
    n_rows, n_columns = matrix.shape
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = n_columns, n_rows
    program.col_cost_ = _costs(model)
    program.col_lower_, program.col_upper_ = np.zeros(n_columns), np.ones(n_columns)
    program.row_lower_, program.row_upper_ = lower, np.full(n_rows, highspy.kHighsInf)
    program.a_matrix_.start_, program.a_matrix_.index_ = matrix.indptr, matrix.indices
    program.a_matrix_.value_ = matrix.data
    kinds = highspy.HighsVarType
    program.integrality_ = [kinds.kInteger] * model.n_levels + [kinds.kContinuous] * len(model.weights)
    solver = highspy.Highs()
    for option, value in (("output_flag", False), ("time_limit", seconds), ("mip_rel_gap", 0.0)):
        solver.setOptionValue(option, value)
    solver.passModel(program)
    start = highspy.HighsSolution()
    start.col_value = model.start.astype(float).tolist()
    solver.setSolution(start)
    solver.run()
    status, info = solver.getModelStatus(), solver.getInfo()
    has_solution = info.primal_solution_status == 2
    names = {highspy.HighsModelStatus.kOptimal: "optimal", highspy.HighsModelStatus.kTimeLimit: "time_limit"}
    return {
        "loss": float(round(info.objective_function_value)) if has_solution else None,
        "bound": max(0.0, _whole(info.mip_dual_bound)) if math.isfinite(info.mip_dual_bound) else 0.0,
        "status": names.get(status, solver.modelStatusToString(status)),
        "nodes": max(0, int(info.mip_node_count)),
    }


def _solve_with_scipy(model: CompactModel, seconds: float) -> dict[str, object]:
    """Without a start, and without a bound where no solution was found: scipy does not pass them on."""
    matrix, lower = _rows(model)
    outcome = milp(
        _costs(model),
        constraints=LinearConstraint(matrix, lower, np.inf),
        integrality=np.repeat([1, 0], [model.n_levels, len(model.weights)]),
        bounds=Bounds(0, 1),
        options={"time_limit": seconds, "mip_rel_gap": 0},
    )
    bound = outcome.mip_dual_bound
    return {
        "loss": None if outcome.x is None else float(round(outcome.fun)),
        "bound": None if bound is None or not math.isfinite(bound) else _whole(bound),
        "status": {0: "optimal", 1: "time_limit"}.get(outcome.status, f"HiGHS status {outcome.status}"),
        "nodes": None if outcome.mip_node_count is None else int(outcome.mip_node_count),
    }


def solve_with_cp_sat(model: CompactModel, seconds: float, packages: str) -> dict[str, object]:
    """With ortools from the folder `packages`, or where it is installed."""
    sys.path.insert(0, packages)
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        return {"status": "not installed"}
    program = cp_model.CpModel()
    opens = [program.new_bool_var("") for _ in range(model.n_levels)]
    accepted = [program.new_bool_var("") for _ in model.weights]
    for level, deeper in model.nested.T.tolist():
        program.add_implication(opens[deeper], opens[level])
    for group, level in model.accept.T.tolist():
        program.add_implication(opens[level], accepted[group])
    by_positive = np.argsort(model.cover[0], kind="stable")
    parts = np.searchsorted(model.cover[0][by_positive], np.arange(1, model.n_positives))
    for covering in np.split(model.cover[1][by_positive], parts) if model.n_positives else []:
        program.add_bool_or([opens[level] for level in covering.tolist()])
    program.minimize(cp_model.LinearExpr.weighted_sum(accepted, model.weights.tolist()))
    for variable, value in zip(opens + accepted, model.start.tolist(), strict=True):
        program.add_hint(variable, value)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = os.cpu_count() or 1
    status = solver.solve(program)
    has_solution = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    is_limited = status in (cp_model.FEASIBLE, cp_model.UNKNOWN)
    return {
        "loss": solver.objective_value if has_solution else None,
        "bound": max(0.0, _whole(solver.best_objective_bound)),
        "status": "time_limit" if is_limited else solver.status_name(status).lower(),
        "nodes": solver.num_branches,
    }


def _costs(model: CompactModel) -> NDArray[np.float64]:
    return np.concatenate([np.zeros(model.n_levels), model.weights])


def _rows(model: CompactModel) -> tuple[csc_array, NDArray[np.float64]]:
    """The rows of the program and their lower ends; levels come first, then groups."""
    n_x, n_variables = model.n_levels, model.n_levels + len(model.weights)
    covers = coo_array((np.ones(model.cover.shape[1]), tuple(model.cover)), shape=(model.n_positives, n_variables))
    rows = [
        covers,
        _difference(n_x + model.accept[0], model.accept[1], n_variables),
        _difference(model.nested[0], model.nested[1], n_variables),
    ]
    lower = np.concatenate([np.ones(model.n_positives), np.zeros(model.accept.shape[1] + model.nested.shape[1])])
    return csc_array(vstack(rows)), lower


def _difference(plus: NDArray[np.int64], minus: NDArray[np.int64], n_variables: int) -> coo_array:
    """Rows that say variable[plus] - variable[minus]."""
    index = np.arange(len(plus))
    values = np.concatenate([np.ones(len(plus)), -np.ones(len(plus))])
    return coo_array((values, (np.tile(index, 2), np.concatenate([plus, minus]))), shape=(len(plus), n_variables))


def _whole(bound: float) -> float:
    """The least loss a bound allows: losses are whole, and solvers are right up to a tolerance."""
    return float(math.ceil(bound - 1e-5))
