"""Both losses where C is large: each exemplar has a working set of its own, which grows from nothing.

In: a `Share` of all negatives, see `hinge`, whose rows are without the column of the bias. Out: the duals, in place,
the weights that they add up to, what violation is left, and who is done.

Where C is large, an exemplar has about as many supporting negatives as dimensions, and they are hardly those of any
other exemplar: neither a common pool nor a common start helps. Steps over all rows begin with thousands of them. So the
set begins with the rows that violate the margin most at the exemplar itself, and a round is

    coordinate descent on the set, again and again, to a part of the worst violation outside it
    Newton's step for the duals between their bounds, where hardly any of them leaves its bounds by that
    slopes of all rows, by one product for some exemplars: who is done is known then, by the duality gap of the weights
    as they are, or with the hinge of weights that are a little longer (`stretching`)
    the rows outside that violate the margin most join

With z = 2C for the squared hinge and infinity for the hinge, K the products of rows, the positive among them, and signs
such that w = sum of v_i x_i, the dual is to maximise t.v - v'(K + 1/z) v / 2 between bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from eesvm._support.compile import kernel
from eesvm.exemplars.rows import F32
from eesvm.exemplars.solver.hinge import Share
from eesvm.exemplars.solver.problem import F64, Objective
from eesvm.exemplars.solver.row_products import scores_of
from eesvm.exemplars.solver.stretching import Goal, enough_longer
from eesvm.exemplars.solver.visits import POSITIVE, REASSOCIATE, RESTING, STRIDE, dot, shuffle

# Where sets were faster than other ways: columns, and rows with duals as a multiple of these.
_LEAST_WIDTH, _MOST_SUPPORT = 192, 1.25
_WIDE, _MOST_SUPPORT_SQUARED = 384, 1.6  # of the squared hinge, from so many columns on
_HOPELESS = 1.6  # times the columns: rows with duals on the way from which on there will be too many in the end
_SLOTS = 1.8  # times the columns: rows that a set holds
_SURPLUS = 2.0  # times smaller than `tol` is the duality gap that is aimed at
_LEAST_JOINING = 64  # rows that may join in a round, at least
_FIRST_ACCURACY, _LOOSE = 0.3, 0.15  # of the margin, in a first round; of the worst violation outside in others
_EPOCHS = 120  # of coordinate descent before a Newton step
_MAX_DESCENTS = 12  # in a round
_MAX_ROUNDS = 40
_CROWDED = 1.3  # times the columns: duals between their bounds that are too many for a Newton step
_LEAVING, _MAX_LEAVING = 0.1, 5  # share of them that may leave in it, and how often some may
# Violations that are aimed at, at least, where small ones add up to a gap: so many times smaller than `tol`, and of the
# margin. Float32 has no more.
_FINER, _FINEST = 64.0, 1e-5
_RIDGE = 1e-6  # relative, so that equal rows can be solved for
_LINE = 64  # bytes that come from memory together


@dataclass(frozen=True)
class Descended:
    """What became of a share: all but the duals of those who are done, which are changed in place."""

    weights: F64  # (n, d + 1) what duals add up to, times 1 + `stretches`
    violations: F64  # (n,)
    is_done: NDArray[np.bool_]  # (n,)
    stretches: F64  # (n,)


def is_wide_enough(width: int) -> bool:
    """Whether sets may be faster than other ways, in so many columns with that of the bias."""
    return width > _LEAST_WIDTH


def is_small_enough(width: int, n_support: int, is_squared: bool) -> bool:
    """Whether they are, for exemplars like one with so many supporting negatives."""
    most = _MOST_SUPPORT_SQUARED if is_squared and width >= _WIDE else _MOST_SUPPORT
    return n_support <= most * width


def n_slots(width: int) -> int:
    """Rows that the set of an exemplar holds, in so many columns with that of the bias."""
    return int(_SLOTS * width) + _LEAST_JOINING


def set_bytes(width: int) -> int:
    """Memory that the set of an exemplar takes."""
    return 4 * (n_slots(width) * (_padded(width) + 10) + _n_solved(width) ** 2) + _LINE


def step_bytes(width: int) -> int:
    """Memory that the work on one set at a time takes besides."""
    return 4 * _n_solved(width) * (_n_solved(width) + 2 * width)


def _n_solved(width: int) -> int:
    """Duals between their bounds, at most, that a Newton step solves for."""
    return int(_CROWDED * width)


def _padded(width: int) -> int:
    """Columns with those that are added so that every row begins where a line of memory does."""
    n = _LINE // 4
    return -(-width // n) * n


def _aligned(n: int, width: int) -> F32:
    """(n, padded) zeros; visits to rows that begin with a line of memory take up to a third less time."""
    floats = np.zeros(n * _padded(width) + _LINE // 4, dtype=np.float32)
    first = -(floats.ctypes.data // 4) % (_LINE // 4)
    return floats[first : first + n * _padded(width)].reshape(n, -1)


def descend_working_sets(share: Share, objective: Objective, tol: float, is_trial: bool = False) -> Descended:
    """Optimise the duals of a share from nothing to `tol`; an exemplar whose set is too small stays as it was.

    A trial ends where sets are about to be larger than is worth while.
    """
    n, width = share.positives.shape
    found = Descended(np.zeros((n, width)), np.full(n, np.inf), np.zeros(n, dtype=np.bool_), np.zeros(n))
    sets = [_Set(share, j, objective, tol) for j in range(n)]
    active = np.arange(n)
    for _ in range(_MAX_ROUNDS):
        weights = np.array([sets[j].weights[:width] for j in active]).astype(np.float32)
        slopes = _slopes(share, active, weights, np.float32(objective.bias_multiplier))
        goes_on = np.array([sets[j].round(slopes[k]) for k, j in enumerate(active)])
        if is_trial and not objective.is_squared:  # its sets become smaller again
            goes_on &= [np.count_nonzero(sets[j].values) <= _HOPELESS * width for j in active]
        active = active[goes_on]
        if len(active) == 0:
            break
    for j, one in enumerate(sets):
        if one.is_done:
            found.weights[j], found.stretches[j] = (1 + one.longer) * one.weights[:width], one.longer
            found.violations[j], found.is_done[j] = one.violation, True
            one.hand_over()
    return found


def _slopes(share: Share, active: NDArray[np.intp], weights: F32, multiplier: np.float32) -> F32:
    """(m, P) of all rows."""
    slopes = share.targets[active]
    slopes += scores_of(share.rows, weights[:, :-1])
    slopes += weights[:, -1:] * multiplier
    return slopes


class _Products:
    """Products of rows of a set with each other, which are computed once as long as the rows stay in their places."""

    def __init__(self, n_places: int, most: int) -> None:
        self.table: F32 = np.empty((0, 0), dtype=np.float32)
        self.most, self.n = most, 0
        self.places = np.empty(most, dtype=np.int64)  # of the rows that the table is of; -1 for those that have gone
        self.position = np.full(n_places, -1, dtype=np.int64)  # of a place in the table

    def forget(self, places: NDArray[np.int64]) -> None:
        """Other rows are in these places now."""
        gone = self.position[places]
        self.places[gone[gone >= 0]] = -1
        self.position[places] = -1

    def follow(self, wanted: NDArray[np.intp], rows: F32) -> NDArray[np.int64]:
        """Where the table has the rows in these places, of which there are `most` at most."""
        missing = wanted[self.position[wanted] < 0]
        if self.n + len(missing) > self.most:
            self._keep(self.position[wanted])
        if len(self.table) == 0:
            self.table = np.empty((self.most, self.most), dtype=np.float32)
        if len(missing):
            old, new, fresh = slice(0, self.n), slice(self.n, self.n + len(missing)), rows[missing]
            if self.n:
                self.table[new, old] = fresh @ rows[self.places[old]].T
                self.table[old, new] = self.table[new, old].T
            self.table[new, new] = fresh @ fresh.T
            self.places[new] = missing
            self.position[missing] = np.arange(self.n, self.n + len(missing))
            self.n += len(missing)
        return self.position[wanted]

    def _keep(self, positions: NDArray[np.int64]) -> None:
        """Let go of all rows but those in these positions, -1 for none."""
        kept = np.sort(positions[positions >= 0])
        self.table[: len(kept), : len(kept)] = self.table[np.ix_(kept, kept)]
        self.n = len(kept)
        self.places[: self.n] = self.places[kept]
        self.position[:] = -1
        self.position[self.places[: self.n]] = np.arange(self.n)


class _Set:
    """The working set of one exemplar; place 0 is the positive's, rows have their signs, and zeros at their ends."""

    def __init__(self, share: Share, j: int, objective: Objective, tol: float) -> None:
        self.width = width = share.positives.shape[1]
        self.share, self.j, self.objective, self.tol = share, j, objective, tol
        n = min(n_slots(width), len(share.rows) + 1)
        self.rows, self.moving, self.n = _aligned(n, width), _aligned(1, width)[0], 1
        self.rows[0, :width] = share.positives[j]
        c, own_c = objective.negative_cost, objective.positive_cost
        self.ridges = np.full(n, 0.5 / c if objective.is_squared else 0.0, dtype=np.float32)
        self.ridges[0] = 0.5 / own_c if objective.is_squared else 0.0
        self.caps = np.full(n, np.inf if objective.is_squared else c, dtype=np.float32)
        self.caps[0] = np.inf if objective.is_squared else own_c
        self.targets, self.values, self.squares = np.empty(n, dtype=np.float32), np.zeros(n), np.empty(n, np.float32)
        self.targets[0] = share.own_targets[j]
        self.squares[0] = max(float(self.rows[0] @ self.rows[0]), 1e-30)
        self.indices = np.full(n, -1, dtype=np.int64)
        self.products = _Products(n, _n_solved(width))
        self.is_inside = np.zeros(len(share.rows), dtype=np.bool_)
        self.values[0] = np.clip(self.targets[0] / (self.squares[0] + self.ridges[0]), 0, self.caps[0])
        self.weights = self.values[0] * self.rows[0].astype(np.float64)
        self.accuracy, self.finest, self.n_rounds = _FIRST_ACCURACY, tol / 4, 0
        self.longer = 0.0  # by which weights are longer in the end than what duals add up to
        self.is_done, self.has_stepped, self.violation, self.residual = False, False, np.inf, np.inf

    def round(self, slopes: F32) -> bool:
        """Look at the slopes of all rows; unless that ends it, let violators join and descend. Whether it goes on."""
        outside = np.maximum(slopes, np.float32(0))
        gap, primal = self._gap(outside)
        outside[self.is_inside] = 0
        worst = float(outside.max(initial=0.0))
        is_resting = self.values[1 : self.n] <= 0  # some may have been left out of the last visits
        inside = slopes[self.indices[1 : self.n]]
        self.residual = max(self.residual, float(inside.max(initial=0.0, where=is_resting)))
        self.violation = max(worst, self.residual)
        is_finest = self.finest <= min(self.tol / _FINER, _FINEST)
        if self.violation <= self.tol and (gap <= self.tol / _SURPLUS * primal or self._stretch(slopes, gap, primal)):
            self.is_done = True
            return False
        n_joined = self._join(outside, slopes)
        if n_joined < 0:
            return False
        if n_joined == 0:
            if self.residual <= self.finest:  # violations that are small have added up to a gap that is not
                if is_finest:
                    return False
                self.finest /= 4
            self.accuracy = self.finest
        self.accuracy = max(self.finest, min(self.accuracy, _LOOSE * worst))
        if n_joined > 0 or not self._step_is_enough():
            self._descend()
        self.n_rounds += 1
        return True

    def _stretch(self, slopes: F32, gap: float, primal: float) -> bool:
        """Whether the duality gap is small enough for weights that are a little longer; they will be then."""
        o, n = self.objective, self.n
        if o.is_squared:
            return False
        duals, targets = np.zeros_like(slopes), self.share.targets[self.j]
        duals[self.indices[1:n]] = self.values[1:n]
        target = float(self.targets[0])
        own = target - float(self.weights @ self.rows[0]), target, float(self.values[0]), float(self.caps[0])
        square, goal = float(self.weights @ self.weights), Goal(gap, primal, self.tol / _SURPLUS, self.tol)
        longer = enough_longer(slopes, targets, duals, np.float32(o.negative_cost), own, square, goal)
        if longer is None:
            return False
        self.longer, self.violation = longer
        return True

    def hand_over(self) -> None:
        """Write the duals where others look for them."""
        share, n = self.share, self.n
        share.duals[self.j] = 0
        share.duals[self.j, self.indices[1:n]] = self.values[1:n]
        share.own[self.j] = self.values[0]

    def _gap(self, short: F32) -> tuple[float, float]:
        """The duality gap over all rows, and the criterion."""
        o, n = self.objective, self.n
        square = float(self.weights @ self.weights)
        missing = max(float(self.targets[0]) - float(self.weights @ self.rows[0]), 0.0)
        total = float(np.einsum("p,p->", short, short) if o.is_squared else short.sum(dtype=np.float64))
        loss = o.positive_cost * (missing**2 if o.is_squared else missing) + o.negative_cost * total
        gain = float(self.values[:n] @ self.targets[:n])
        gain -= float((self.values[:n] ** 2) @ self.ridges[:n]) / 2
        return square + loss - gain, square / 2 + loss

    def _join(self, outside: F32, slopes: F32) -> int:
        """Let the worst violators in, in the places of rows that have no dual; how many, -1 where there is no place."""
        fresh = np.flatnonzero(outside > self.finest)
        if len(fresh) == 0:
            return 0
        values, n = self.values[: self.n], self.n
        most = self.width if n == 1 else max(_LEAST_JOINING, int(np.count_nonzero(values)))
        places = np.arange(n, min(len(self.rows), n + most))
        if len(places) < min(most, len(fresh)):
            resting = 1 + np.flatnonzero(values[1:] <= 0)
            resting = resting[np.argsort(slopes[self.indices[resting]], kind="stable")]
            resting = resting[slopes[self.indices[resting]] < 0]
            places = np.concatenate([places, resting[: most - len(places)]])
        if len(places) == 0:
            return -1
        if len(fresh) > len(places):
            fresh = np.sort(fresh[np.argpartition(-outside[fresh], len(places) - 1)[: len(places)]])
        places = places[: len(fresh)]
        self.is_inside[self.indices[places[places < n]]] = False
        self.is_inside[fresh] = True
        self.n = max(n, int(places.max()) + 1)
        self.indices[places], self.values[places] = fresh, 0
        self.products.forget(places)
        self.rows[places, : self.width - 1] = -self.share.rows[fresh]
        self.rows[places, self.width - 1] = -np.float32(self.objective.bias_multiplier)
        self.targets[places] = self.share.targets[self.j, fresh]
        joined = self.rows[places]
        self.squares[places] = np.maximum(np.einsum("nd,nd->n", joined, joined), np.float32(1e-30))
        return len(fresh)

    def _descend(self) -> None:
        """Optimise the duals of the set to its accuracy."""
        n, next_step, pause = self.n, 0, 1
        for k in range(_MAX_DESCENTS):
            values, seed = self.values[:n].astype(np.float32), 64 * self.n_rounds + k
            rows, targets, caps, ridges = self.rows[:n], self.targets[:n], self.caps[:n], self.ridges[:n]
            self.moving[:] = self.weights
            self.residual = _visit(
                rows, self.squares[:n], targets, ridges, caps, values, self.moving,
                _EPOCHS, np.float32(self.accuracy), seed,
            )  # fmt: skip
            self.values[:n] = values
            self._add_up()
            if self.residual <= self.accuracy:
                return
            if k >= next_step:
                if self._step_is_enough():
                    return
                if not self.has_stepped:
                    next_step, pause = k + 1 + pause, 2 * pause

    def _step_is_enough(self) -> bool:
        """Take a Newton step, if there is one; whether no condition is violated by more than the accuracy then."""
        self.has_stepped = self._newton_step()
        if self.has_stepped:
            n, values = self.n, self.values[: self.n].astype(np.float32)
            slopes = self.targets[:n] - self.rows[:n] @ self.weights.astype(np.float32) - self.ridges[:n] * values
            violations = np.where(values <= 0, slopes, np.where(values >= self.caps[:n], -slopes, np.abs(slopes)))
            self.residual = max(float(violations.max()), 0.0)
        return self.has_stepped and self.residual <= self.accuracy

    def _add_up(self) -> None:
        """Weights from duals."""
        supporting = np.flatnonzero(self.values[: self.n])
        self.weights = _sum_of(self.rows, supporting, self.values[supporting])

    def _newton_step(self) -> bool:
        """Solve for the duals between their bounds, without those that leave them; whether that went well."""
        values, caps = self.values[: self.n], self.caps[: self.n]
        free = np.flatnonzero((values > 0) & (values < caps))
        if not 0 < len(free) <= self.products.most:
            return False
        positions = self.products.follow(free, self.rows)
        weights, moved, within = self.weights, values[free], np.arange(len(free))
        for _ in range(_MAX_LEAVING):
            some = free[within]
            ridges = self.ridges[some]
            matrix = np.empty((len(within), len(within)), dtype=np.float32)
            _among(self.products.table, positions[within], matrix)
            matrix[np.diag_indices(len(within))] *= np.float32(1 + _RIDGE)
            matrix[np.diag_indices(len(within))] += ridges
            factor, failure = lapack.spotrf(matrix.T, lower=False, overwrite_a=True, clean=False)
            if failure:
                return False
            new, at = moved[within], weights
            for _ in range(2):  # products in float32 are good for a direction
                scores = _scores_of(self.rows, some, at.astype(np.float32))
                left = self.targets[some] - scores - ridges * new.astype(np.float32)
                step, _ = lapack.spotrs(factor, left, lower=False)
                new, at = new + step, at + _sum_of(self.rows, some, step.astype(np.float64))
                is_out = (new < 0) | (new > caps[some])
                if is_out.any():
                    break
            else:
                moved[within] = new
                self.values[free] = moved.astype(np.float32)
                self._add_up()
                return True
            leaving = within[is_out]
            if len(leaving) > _LEAVING * len(free) or len(leaving) == len(within):
                return False
            bounds = np.where(new[is_out] < 0, 0.0, caps[some[is_out]])
            weights = weights + _sum_of(self.rows, free[leaving], bounds - moved[leaving])
            moved[leaving], within = bounds, within[~is_out]
        return False


@kernel(fastmath=REASSOCIATE)
def _visit(  # type: ignore[no-untyped-def]
    rows, squares, targets, ridges, caps, values, weights, n_epochs, tol, seed
):
    """Epochs over all duals in random order, without those that rest at a bound; in place: values, weights.

    Returns the worst violation of the last one.
    """
    zero, n = np.float32(0), len(values)
    order, n_active, state = np.arange(n), n, np.uint64(seed + 1)
    worst, worst_before = zero, np.float32(np.inf)
    for _ in range(n_epochs):
        state = shuffle(order, n_active, state)
        every = max(1, n_active // POSITIVE)
        worst, at, next_own, i, goes_on = zero, 0, every, 0, n_active > 0
        total = dot(weights, rows[0])
        while goes_on:
            v, change = values[i], zero
            s = targets[i] - total - ridges[i] * v
            if (v <= zero and s <= zero) or (v >= caps[i] and s >= zero):
                if abs(s) > RESTING * worst_before and i != 0:
                    at -= 1
                    n_active -= 1
                    order[at], order[n_active] = order[n_active], order[at]
            else:
                worst = max(worst, abs(s))
                moved = min(max(v + STRIDE * s / (squares[i] + ridges[i]), zero), caps[i])
                change = moved - v
                values[i] = moved
            row, goes_on = rows[i], at < n_active
            if goes_on and at >= next_own:
                next_own, i = at + every, 0
            elif goes_on:
                i = order[at]
                at += 1
            # The next score is taken along while weights are corrected, which are then read once and not twice.
            following, total = rows[i], zero
            if change != zero:
                for k in range(len(row)):
                    weights[k] += change * row[k]
                    total += weights[k] * following[k]
            elif goes_on:
                total = dot(weights, following)
        worst_before = worst
        if worst <= tol:
            break
    return worst


@kernel()
def _sum_of(rows, chosen, values):  # type: ignore[no-untyped-def]
    """values @ rows[chosen] in float64."""
    out = np.zeros(rows.shape[1])
    for i in range(len(values)):
        value, row = values[i], rows[chosen[i]]
        for k in range(len(row)):
            out[k] += value * row[k]
    return out


@kernel(fastmath=REASSOCIATE)
def _scores_of(rows, chosen, weights):  # type: ignore[no-untyped-def]
    """rows[chosen] @ weights."""
    out = np.empty(len(chosen), dtype=rows.dtype)
    for i in range(len(chosen)):
        row, total = rows[chosen[i]], np.float32(0)
        for k in range(len(row)):
            total += row[k] * weights[k]
        out[i] = total
    return out


@kernel()
def _among(products, chosen, matrix):  # type: ignore[no-untyped-def]
    """Fill in the products of some rows with each other."""
    for a in range(len(chosen)):
        row = products[chosen[a]]
        for b in range(len(chosen)):
            matrix[a, b] = row[chosen[b]]
