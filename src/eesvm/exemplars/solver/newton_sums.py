"""The sums of rows times their duals, for many exemplars: kept from look to look, where few duals have changed.

In: rows, and duals as they are now. Out: the sums. A product of all duals with all rows is taken only where many duals
are other than at the look before. A Newton step says how those change that stay between their bounds, and what these
changes add up to; then the rows that have come to a bound, or left one, are all that is left to be added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import kernel
from eesvm.exemplars.solver.problem import F64
from eesvm.exemplars.solver.row_products import sums_of

_SPARSE = 0.1  # share of the rows up to which their sum is faster row by row
_REASSOCIATE = {"reassoc", "contract", "nsz"}  # sums in any order


@dataclass(frozen=True)
class Moved:
    """What a step has done to the duals of some exemplars that were, and still are, between their bounds."""

    members: NDArray[np.intp]  # (m,) which exemplars
    change: NDArray[Any]  # (m, P) of slopes, in a step of length 1
    was_between: NDArray[np.bool_]  # (m, P)
    factors: F64  # (m,) from these changes to those of duals
    sums: F64  # (m, d) of rows times the changes of duals


class RunningSums:
    """The sums for n exemplars, as far as they are known."""

    def __init__(self, rows: NDArray[Any], n: int) -> None:
        self._rows = rows
        self._duals = np.zeros((n, len(rows)), dtype=rows.dtype)
        self._sums = np.zeros((n, rows.shape[1]))
        self.is_exact = np.ones(n, dtype=np.bool_)  # whether all were added up at once; of no rows they were

    def follow(
        self, members: NDArray[np.intp], duals: NDArray[Any], is_between: NDArray[np.bool_], moved: Moved | None
    ) -> F64:
        """(m, d) of these exemplars, whose duals (m, P) are between their bounds as said."""
        changed, n_changed = np.empty_like(duals), np.zeros(len(members), dtype=np.int64)
        if moved is None:
            _differences(duals, self._duals, members, changed, n_changed)
        else:
            steps = np.full(len(members), -1)
            steps[np.searchsorted(members, moved.members)] = np.arange(len(moved.members))
            between = is_between, moved.was_between
            _left_over(duals, self._duals, members, steps, between, moved.change, moved.factors, changed, n_changed)
            self._sums[moved.members] += moved.sums
        self.is_exact[members] &= (n_changed == 0) & (moved is None)
        is_sparse = n_changed <= _SPARSE * len(self._rows)
        if is_sparse.any():
            self._sums[members[is_sparse]] += _added(changed, np.flatnonzero(is_sparse), self._rows)
        self.add_up(members[~is_sparse], duals[~is_sparse])
        return self._sums[members]

    def add_up(self, members: NDArray[np.intp], duals: NDArray[Any]) -> F64:
        """(m, d) of these exemplars, anew."""
        if len(members):
            self._sums[members] = rows_times(duals, self._rows)
            self.is_exact[members] = True
        return self._sums[members]


def rows_times(values: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """values @ rows, which pays attention to zeros where there are many."""
    if np.count_nonzero(values) >= _SPARSE * values.size:
        return sums_of(values, rows)
    return np.asarray(_added(values, np.arange(len(values)), rows))


@kernel(fastmath=_REASSOCIATE)
def _added(values, chosen, rows):  # type: ignore[no-untyped-def]
    """values[chosen] @ rows, row by row; first it is noted which values are not 0, without a branch for each."""
    out = np.zeros((len(chosen), rows.shape[1]), dtype=rows.dtype)
    places = np.empty(values.shape[1], dtype=np.int64)
    for k in range(len(chosen)):
        own, total, n = values[chosen[k]], out[k], 0
        for i in range(len(own)):
            places[n] = i
            n += own[i] != 0
        for a in range(n):
            value, row = own[places[a]], rows[places[a]]
            for c in range(len(row)):
                total[c] += value * row[c]
    return out


@kernel()
def _differences(duals, known, members, changed, n_changed):  # type: ignore[no-untyped-def]
    """Fill in by how much duals have changed, and how many; in place: `known`, the duals as they were."""
    for k in range(len(members)):
        now, before, own, n = duals[k], known[members[k]], changed[k], 0
        for i in range(len(now)):
            own[i] = now[i] - before[i]
            n += own[i] != 0
            before[i] = now[i]
        n_changed[k] = n


@kernel()
def _left_over(  # type: ignore[no-untyped-def]
    duals, known, members, steps, between, change, factors, changed, n_changed
):
    """The same, less what steps have done to rows that were between their bounds.

    Rows that still are differ from that by rounding alone, and have not changed but for it.
    """
    is_between, was_between = between
    zero = duals.dtype.type(0)
    for k in range(len(members)):
        now, before, own, n, step = duals[k], known[members[k]], changed[k], 0, steps[k]
        is_now, factor = is_between[k], duals.dtype.type(factors[max(step, 0)])
        was, moves = was_between[max(step, 0)], change[max(step, 0)]
        for i in range(len(now)):
            value = now[i] - before[i]
            if step >= 0 and was[i]:
                value = zero if is_now[i] else value - factor * moves[i]
            own[i] = value
            n += value != 0
            before[i] = now[i]
        n_changed[k] = n
