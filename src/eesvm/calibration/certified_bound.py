"""The lower bound that a certificate proves, worked out from the scores.

In: a `CalibrationProblem` and a `Certificate`. Out: a number that no feasible loss is below, or an `InputError` where
the certificate is no proof. Absent on purpose: anything of a solver. This is numpy on blocks of the scores, which may
come from a memory map, and slower than it could be where that is easier to read.

The proof is a binary tree. A *split* (j, s) sends every solution one of two ways: *open*, theta_j < s, so j accepts all
that scores s or more; or *shut*, theta_j >= s, so j accepts nothing that scores s or less. What a leaf's path says is

    open_j   the lowest score opened, +inf where none is; an upper bound on theta_j opens what is above it
    shut_j   the highest score shut, at least the lower bound on theta_j and `ceiling[j]`

A leaf has *shares* mu[p, n] >= 0 that give no negative away twice, sum_p mu[p, n] <= w_n, and a price lambda. Let

    paid     the negatives with s_j(n) >= open_j for some j: every solution of the leaf accepts them
    covered  the positives with s_j(p) >= open_j for some j that is not forbidden
    alive    for p, the exemplars k, not forbidden, with s_k(p) > shut_k: nobody else can cover p
    v_p      min over alive k of sum of mu[p, n] over the unpaid n with s_k(n) >= s_k(p); inf where nobody is alive

Whoever covers p pays at least v_p of shares that belong to p alone, so no solution of the leaf costs less than

    w(paid) + sum of v_p over the p that are not covered                         where all positives must be covered
    w(paid) + sum of min(lambda u_p, v_p) over the p not covered - lambda m      where m units may be left out

A pair with s_k(p) <= ceiling[k] is ignored although a solution may use it. Such a solution accepts every negative that
k scores above the ceiling. The certificate proves the least of its leaves, its `cutoff` and what those negatives weigh.

Arithmetic: amounts are whole numbers of a `quantum`, a power of two; weights are rounded down to whole quanta, of which
there must be fewer than 2**53 in all, so that float64 adds them without rounding, in any order. The rest is Python's
integers and fractions. Where all weights are whole multiples of one number, every loss is, and the bound is rounded up.

Before: `problem`. After: `certificate`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eesvm._validation import FloatArray, InputError
from eesvm.calibration.problem import CalibrationProblem

if TYPE_CHECKING:  # a certificate is judged by what is here: importing it for real would be a circle
    from eesvm.calibration.certificate import Certificate

_BLOCK_BYTES = 1 << 26  # of memory that verifying takes at a time, about; the scores may be a memory map
_PIECE_BYTES = 1 << 22  # of scores that are compared together: what stays in the cache is multiplied faster
_EXACT = 2.0**53  # whole numbers below it, and sums of them below it, are exact in float64


def certified_bound(problem: CalibrationProblem, certificate: Certificate) -> float:
    """The lower bound that a certificate proves, rounded down to a float; an `InputError` where it is no proof."""
    certificate.check(problem)
    quantum, cutoff = float(certificate.quantum), float(certificate.cutoff)
    weights = _in_quanta(problem.negative_weights, quantum)
    bound = math.inf if cutoff == math.inf else Fraction(cutoff) / Fraction(quantum)
    bound = min(bound, _ceiling_cost(problem, certificate, weights))
    leaves = np.flatnonzero(certificate.split_exemplar < 0)
    leaves = leaves[np.argsort(certificate.shares_of[leaves], kind="stable")]  # users of one set side by side
    n_bytes = problem.n_negatives + 16 * problem.n_positives + 16 * problem.n_exemplars  # of one leaf
    step = max(1, _BLOCK_BYTES // n_bytes)
    for start in range(0, len(leaves), step):
        bound = min(bound, *_leaf_bounds(problem, certificate, weights, leaves[start : start + step]))
    return _as_loss(bound, quantum, problem.negative_weights)


def common_unit(weights: NDArray[np.float64]) -> Fraction | None:
    """The largest number that all weights are whole multiples of; None where their sums are not exact in float64.

    0 where all weights are 0.
    """
    positive = weights[weights > 0]
    if len(positive) == 0:
        return Fraction(0)
    mantissas, exponents = np.frexp(positive)
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    _, lowest_bits = np.frexp((whole & -whole).astype(np.float64))
    exponent = int((exponents - 53 + lowest_bits - 1).min())  # all weights are whole multiples of 2**exponent
    with np.errstate(over="ignore"):
        if not np.ldexp(positive.sum(), -exponent) < _EXACT:
            return None
    divisor = int(np.gcd.reduce(np.ldexp(positive, -exponent).astype(np.int64)))
    return divisor * Fraction(2) ** exponent


@dataclass(frozen=True)
class _Leaves:
    """What is known at some leaves, a row each."""

    nodes: NDArray[np.intp]  # (L,)
    shut: NDArray[np.float64]  # (L, E) only scores above it can still be accepted
    is_paid: NDArray[np.bool_]  # (L, N)
    is_open: NDArray[np.bool_]  # (L, P) positives that are not covered and that some exemplar can cover
    is_dead: NDArray[np.bool_]  # (L, P) positives that are not covered and that nobody can cover

    def rows(self, chosen: slice) -> _Leaves:
        return _Leaves(
            self.nodes[chosen], self.shut[chosen], self.is_paid[chosen], self.is_open[chosen], self.is_dead[chosen]
        )


def _leaf_bounds(
    problem: CalibrationProblem, certificate: Certificate, weights: NDArray[np.float64], nodes: NDArray[np.intp]
) -> Iterator[int | float]:
    """The bound of each leaf, in quanta; `nodes` that use the same set of shares stand side by side."""
    leaves = _leaves(problem, certificate, nodes)
    sets = certificate.shares_of[nodes]
    for k in np.unique(sets):
        users = leaves.rows(slice(*np.searchsorted(sets, [k, k + 1])))
        values = _values(problem, certificate, weights, int(k), users)
        price = 0.0 if k < 0 else float(certificate.price[k])
        at_stake = _AtStake(problem, certificate, price)
        for row in range(len(users.nodes)):
            paid = int(weights[users.is_paid[row]].sum())
            yield paid + at_stake.total(values[row], users.is_open[row], users.is_dead[row])


class _AtStake:
    """What the positives of a leaf pay, given the v_p and what the recall floor lets go."""

    def __init__(self, problem: CalibrationProblem, certificate: Certificate, price: float) -> None:
        self.must_cover_all = certificate.min_recall >= 1
        if self.must_cover_all:
            return
        quanta = Fraction(price) / Fraction(float(certificate.quantum))
        units, self.kind = np.unique(problem.recall_units, return_inverse=True)
        self.charges = [math.floor(quanta * int(unit)) for unit in units]  # lambda u_p, one for each different u_p
        self.allowance = math.ceil(quanta * Fraction(problem.left_out_budget(certificate.min_recall)))  # lambda m
        # v_p is below 2**53, so the minimum with it does not change where a larger charge is cut off there.
        self.charge = np.array([min(charge, int(_EXACT)) for charge in self.charges], dtype=np.float64)[self.kind]

    def total(self, values: NDArray[np.float64], is_open: NDArray[np.bool_], is_dead: NDArray[np.bool_]) -> int | float:
        """The sum over the positives that are not covered; never below 0, which a price of 0 proves."""
        if self.must_cover_all:
            return math.inf if is_dead.any() else int(values[is_open].sum())
        from_open = int(np.minimum(values, self.charge)[is_open].sum())
        n_dead = np.bincount(self.kind[is_dead], minlength=len(self.charges)).tolist()
        from_dead = sum(n * charge for n, charge in zip(n_dead, self.charges, strict=True))  # v_p is infinite
        return max(0, from_open + from_dead - self.allowance)


def _leaves(problem: CalibrationProblem, certificate: Certificate, nodes: NDArray[np.intp]) -> _Leaves:
    opened, shut = _path_limits(problem, certificate, nodes)
    is_covered = _some_exemplar(np.greater_equal, problem.positive_scores, opened, problem.forbidden)
    can_be_covered = _some_exemplar(np.greater, problem.positive_scores, shut, problem.forbidden)
    return _Leaves(
        nodes=nodes,
        shut=shut,
        is_paid=_some_exemplar(np.greater_equal, problem.negative_scores, opened),
        is_open=~is_covered & can_be_covered,
        is_dead=~is_covered & ~can_be_covered,
    )


def _path_limits(
    problem: CalibrationProblem, certificate: Certificate, nodes: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(L, E) the lowest score opened and the highest score shut on the way to each node, by walking up the tree."""
    lowest, highest = problem.lower_thresholds.astype(np.float64), problem.upper_thresholds.astype(np.float64)
    opened = np.tile(np.nextafter(highest, np.inf), (len(nodes), 1))  # above the bound is at or above the next number
    shut = np.tile(np.maximum(lowest, certificate.ceiling), (len(nodes), 1))
    inner = np.flatnonzero(certificate.split_exemplar >= 0)
    parent_of = np.full(certificate.n_nodes, -1)
    parent_of[certificate.open_child[inner]] = inner
    parent_of[certificate.shut_child[inner]] = inner
    rows, children = np.arange(len(nodes)), nodes
    while True:
        rows, children = rows[children > 0], children[children > 0]  # the others have arrived at the root
        if len(rows) == 0:
            return opened, shut
        parents = parent_of[children]
        j, score = certificate.split_exemplar[parents], certificate.split_score[parents]
        is_open = certificate.open_child[parents] == children
        opened[rows, j] = np.minimum(opened[rows, j], np.where(is_open, score, np.inf))
        shut[rows, j] = np.maximum(shut[rows, j], np.where(is_open, -np.inf, score))
        children = parents


def _some_exemplar(
    compare: Callable[..., NDArray[np.bool_]],
    scores: FloatArray,
    limits: NDArray[np.float64],
    forbidden: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_]:
    """(L, n) whether a window compares with the limit of some exemplar by a pair that is not forbidden."""
    result = np.zeros((len(limits), len(scores)), dtype=bool)
    # Most leaves have the same limit for an exemplar: each different one is compared with once.
    different = [np.unique(limits[:, j]) for j in range(limits.shape[1])]
    for rows in _row_slices(len(scores), scores.shape[1] * scores.itemsize):
        block = scores[rows]
        by_anybody = np.zeros(len(block), dtype=bool)
        for j, values in enumerate(different):
            if values[0] == np.inf:  # of no leaf: do not even read the column
                continue
            column = block[:, j].astype(np.float64)  # exact, and contiguous
            for value in values[values < np.inf]:
                accepted = compare(column, value)
                if forbidden is not None:
                    accepted &= ~forbidden[rows, j]
                if len(values) == 1:
                    by_anybody |= accepted
                else:
                    result[limits[:, j] == value, rows] |= accepted
        result[:, rows] |= by_anybody
    return result


def _values(
    problem: CalibrationProblem, certificate: Certificate, weights: NDArray[np.float64], k: int, leaves: _Leaves
) -> NDArray[np.float64]:
    """(L, P) v_p in quanta at leaves that use set `k`, 0 for positives without shares; wrong where not `is_open`."""
    values = np.zeros(leaves.is_open.shape)
    if k < 0:
        return values
    _check_sums(problem, certificate, weights, k, leaves)
    for row in range(certificate.set_start[k], certificate.set_start[k + 1]):
        p = certificate.share_positive[row]
        needed = np.flatnonzero(leaves.is_open[:, p])
        if len(needed) == 0:
            continue
        is_alive = problem.positive_scores[p] > leaves.shut[needed]  # (leaves, E)
        if problem.forbidden is not None:
            is_alive &= ~problem.forbidden[p]
        anywhere = np.flatnonzero(is_alive.any(axis=0))
        sums = _share_sums(problem, certificate, row, leaves.is_paid, needed, anywhere)
        values[needed, p] = np.where(is_alive[:, anywhere], sums, np.inf).min(axis=1)
    return values


def _share_sums(
    problem: CalibrationProblem,
    certificate: Certificate,
    row: int,
    is_paid: NDArray[np.bool_],
    needed: NDArray[np.intp],
    exemplars: NDArray[np.intp],
) -> NDArray[np.float64]:
    """(leaves, exemplars) of the shares in `row`, those of unpaid negatives that come along with its positive."""
    score = problem.positive_scores[certificate.share_positive[row], exemplars]
    start, stop = certificate.row_start[row : row + 2]
    sums = np.zeros((len(needed), len(exemplars)))
    n_bytes = problem.n_exemplars * problem.negative_scores.itemsize + 8 * len(exemplars) + 16 * len(needed)
    for piece in _row_slices(int(stop - start), n_bytes, _PIECE_BYTES, offset=int(start)):
        negatives = certificate.share_negative[piece]
        scores = problem.negative_scores[negatives]
        if len(exemplars) < problem.n_exemplars:
            scores = scores[:, exemplars]
        comes_along = (scores >= score).astype(np.float64)
        shares = np.where(is_paid[needed[:, None], negatives], 0.0, certificate.share_amount[piece])
        sums += shares @ comes_along
    return sums


def _check_sums(
    problem: CalibrationProblem, certificate: Certificate, weights: NDArray[np.float64], k: int, leaves: _Leaves
) -> None:
    """Refuse a set that gives away more than the weight of a negative that is not paid at some leaf.

    float64 adds whole numbers exactly up to 2**53, and never comes back below it: no excess is rounded away.
    """
    start, stop = certificate.row_start[certificate.set_start[k : k + 2]]
    negatives, amounts = certificate.share_negative[start:stop], certificate.share_amount[start:stop]
    given = np.bincount(negatives, weights=amounts, minlength=problem.n_negatives)
    excessive = np.flatnonzero(given > weights)
    wrong = np.argwhere(~leaves.is_paid[:, excessive])
    if len(wrong):
        node, n = leaves.nodes[wrong[0, 0]], excessive[wrong[0, 1]]
        raise InputError(
            f"at node {node} the shares of negative {n} are {given[n]:.0f} quanta in all, more than its weight of "
            f"{weights[n]:.0f}"
        )


def _ceiling_cost(problem: CalibrationProblem, certificate: Certificate, weights: NDArray[np.float64]) -> int | float:
    """In quanta, the least that anybody pays who accepts a score at or below a ceiling; inf where there is none."""
    capped = np.flatnonzero(certificate.ceiling > -np.inf)
    if len(capped) == 0:
        return math.inf
    above = np.zeros(len(capped))
    n_bytes = problem.n_exemplars * problem.negative_scores.itemsize + 8 * len(capped)
    for rows in _row_slices(problem.n_negatives, n_bytes, _PIECE_BYTES):
        above += weights[rows] @ (problem.negative_scores[rows][:, capped] > certificate.ceiling[capped])
    return int(above.min())


def _in_quanta(weights: NDArray[np.float64], quantum: float) -> NDArray[np.float64]:
    """(N,) weights rounded down to whole quanta, few enough for exact sums."""
    with np.errstate(over="ignore", under="ignore"):
        quanta = np.floor(weights / quantum)  # exact: dividing by a power of two changes the exponent
        total = quanta.sum()
    if not total < _EXACT:
        raise InputError(f"`quantum` is too small: the weights are {total:.3g} quanta, 2**53 or more")
    return quanta


def _as_loss(bound: Fraction | float, quantum: float, weights: NDArray[np.float64]) -> float:
    """A bound in quanta as a float: up to the next loss that is possible, then down to what a float can say."""
    if bound == math.inf:
        return math.inf
    exact = Fraction(bound) * Fraction(quantum)
    unit = common_unit(weights)
    if unit:
        exact = math.ceil(exact / unit) * unit
    if exact >= sys.float_info.max:
        return sys.float_info.max
    nearest = float(exact)
    return nearest if Fraction(nearest) <= exact else math.nextafter(nearest, -math.inf)


def _row_slices(n: int, n_bytes: int, at_once: int | None = None, offset: int = 0) -> Iterator[slice]:
    """Pieces of `n` rows of `n_bytes` each, `at_once` bytes a piece, counted from `offset`."""
    step = max(1, (at_once or _BLOCK_BYTES) // max(1, n_bytes))
    for start in range(offset, offset + n, step):
        yield slice(start, min(start + step, offset + n))
