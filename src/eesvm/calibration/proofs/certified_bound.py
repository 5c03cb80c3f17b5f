"""The lower bound that a certificate proves, worked out from the scores.

In: a `CalibrationProblem` and a `Certificate`. Out: a number that no feasible loss is below, or an `InputError` where
the certificate is no proof. Not here: anything of a solver, and the walk through the tree (`walk`). This
is numpy, but for proofs with very many leaves that positives own, which `owners` has walked by compiled code; the
scores of the negatives may come from a memory map.

The proof is a binary tree. A *split* (j, s) sends every solution one of two ways: *open*, theta_j < s, so j accepts all
that scores s or more; or *shut*, theta_j >= s, so j accepts nothing that scores s or less. What a leaf's path says is

    open_j   the lowest score opened, +inf where none is; an upper bound on theta_j opens what is above it
    shut_j   the highest score shut, at least the lower bound on theta_j and `ceiling[j]`

A leaf has *shares* mu[p, n] >= 0 that give no negative away twice, sum_p mu[p, n] <= w_n, and a price lambda. Let

    paid     the negatives with s_j(n) >= open_j for some j: every solution of the leaf accepts them
    covered  the positives with s_j(p) >= open_j for some j that is not forbidden
    alive    for p, the exemplars k, not forbidden, with s_k(p) > shut_k: nobody else can cover p
    v_p      min over alive k of sum of mu[p, n] over the unpaid n with s_k(n) >= s_k(p); inf where nobody is alive

Covering p costs at least v_p of shares that belong to p alone, so no solution of the leaf costs less than

    w(paid) + sum of v_p over the p that are not covered                         where all positives must be covered
    w(paid) + sum of min(lambda u_p, v_p) over the p not covered - lambda m      where m units may be left out

over the positives that somebody may cover; the others are left out in any case, and m is what remains then.

Shares are kept in sets that many leaves may use. A leaf can also do without one: it gives nothing to anybody and proves
w(paid), or it gives the whole weight of every negative to one positive p. Then v_p is the least that covering p costs,
and all other v_q are 0. Or it is left to the checker, with a list of hard positives for all such leaves: it proves the
least that covering all of these costs, which is searched for (`hard`). A leaf without a set has no price: where
something may be left out, it proves w(paid) only.

A pair with s_k(p) <= ceiling[k] is ignored although a solution may use it. Such a solution accepts every negative with
s_k(n) >= ceiling[k], since s_k(n) >= s_k(p) then. The certificate proves the least of its leaves, its `cutoff` and what
those negatives weigh. A leaf with w(paid) no less than that changes nothing, and its shares are not looked at.

Arithmetic: amounts are whole numbers of a `quantum`, a power of two; weights are cut down to `weight_cap` and rounded
down to whole quanta, of which there must be fewer than 2**53 in all, so that float64 adds them without rounding, in any
order. The rest is Python's integers and fractions. Where all weights are whole multiples of one number, every loss is,
and the bound is rounded up; likewise in quanta, for losses below the cap.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import InputError, check_number, row_blocks
from eesvm.calibration.certificate import Certificate
from eesvm.calibration.detector_costs import costs_as_negatives, weights_without_price
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.proofs.hard import least_searched
from eesvm.calibration.proofs.owners import counted_weight, least_owned
from eesvm.calibration.proofs.walk import Paid, ProofTree, Root, Shares, Values
from eesvm.calibration.units import common_unit, quantum_of

_MANY_OWNED = 40  # leaves that a positive owns: from then on they are counted by bits
EXACT = 2.0**53  # whole numbers below it, and sums of them below it, are exact in float64


def certified_bound(problem: CalibrationProblem, certificate: Certificate, max_detectors: int | None = None) -> float:
    """The lower bound that a certificate proves, rounded down to a float; an `InputError` where it is no proof.

    With `max_detectors` it holds for thresholds that keep no more exemplars in use.
    """
    true_weights = costs_as_negatives(problem).negative_weights
    plain = problem
    problem = priced(problem, certificate, max_detectors)
    certificate.check(problem)
    back, without_price = paid_back(problem, certificate, max_detectors), quanta_without_price(plain, certificate)
    quantum, cutoff = float(certificate.quantum), float(certificate.cutoff)
    weights = in_quanta(problem.negative_weights, certificate)
    bound = math.inf if cutoff == math.inf else Fraction(cutoff) / Fraction(quantum)
    bound = min(bound, ceiling_cost(problem, certificate, weights))
    left_to_us, certificate = certificate, certificate.without_searched()
    root, tree = Root(problem, certificate, weights), ProofTree(certificate)
    paid = Paid(root)
    leaves = np.flatnonzero(certificate.split_exemplar < 0)
    if max_detectors is None and certificate.detector_price == 0 and problem.spare_budget(certificate.min_recall) == 0:
        is_searched = left_to_us.is_searched[leaves]
        if is_searched.any():
            bound = min(bound, least_searched(root, certificate, tree, leaves[is_searched].tolist(), bound))
            leaves = leaves[~is_searched]
        leaves, owned = _without_owned(root, certificate, tree, leaves)
        bound = min(bound, owned)
    paid_at: dict[int, int] = {}
    for leaf in tree.walk(leaves.tolist(), paid):
        paid_at[leaf] = paid.weight  # of this leaf: the walk changes it
    for k, users in by_set(certificate, leaves):
        matter = [leaf for leaf in users if paid_at[leaf] < bound]
        found = _leaf_bounds(root, certificate, tree, k, matter, max_detectors, without_price)
        bound = min([bound, *(max(with_price, without + back) for with_price, without in found)])
    if bound < math.inf:
        bound = max(Fraction(bound) - back, Fraction(0))
        # A price that is no whole number of quanta is rounded together with a cost, and says nothing of whole losses.
        if Fraction(float(certificate.detector_price)) % Fraction(quantum) == 0:
            bound = _possible(bound, true_weights, certificate)
    return _as_loss(bound, quantum, true_weights)


def _without_owned(
    root: Root, certificate: Certificate, tree: ProofTree, leaves: NDArray[np.intp]
) -> tuple[NDArray[np.intp], float]:
    """Leaves that no positive owns, and the least bound of the others; all leaves where those are few, or not alike."""
    is_owned = certificate.shares_of[leaves] <= -2
    is_owned &= ~root.problem.orphans()[np.where(is_owned, -2 - certificate.shares_of[leaves], 0)]
    weight = counted_weight(root, int(is_owned.sum()), _MANY_OWNED)
    if weight is None:
        return leaves, math.inf
    return leaves[~is_owned], least_owned(root, certificate, tree, leaves[is_owned].tolist(), weight)


def _possible(bound: Fraction, weights: NDArray[np.float64], certificate: Certificate) -> Fraction:
    """A bound in quanta, up to the next loss that is possible in them: any multiple of the unit, or the cap or more."""
    quanta = in_quanta(weights, certificate)
    cap = np.floor(certificate.weight_cap / certificate.quantum)
    unit = int(np.gcd.reduce(quanta[quanta < cap].astype(np.int64), initial=0))
    possible = bound if unit == 0 else Fraction(math.ceil(bound / unit) * unit)
    return possible if cap == math.inf else max(bound, min(possible, Fraction(int(cap))))


def paid_back(problem: CalibrationProblem, certificate: Certificate, max_detectors: int | None) -> Fraction:
    """In quanta, the price for as many exemplars as may be in use besides those that are in any case."""
    n_others = max(0, (max_detectors or 0) - int((problem.upper_thresholds < np.inf).sum()))
    return Fraction(float(certificate.detector_price)) * n_others / Fraction(float(certificate.quantum))


def quanta_without_price(problem: CalibrationProblem, certificate: Certificate) -> NDArray[np.float64] | None:
    """(N + E',) weights of the negatives of the priced problem as they are without the price; None without one."""
    if certificate.detector_price == 0:
        return None
    weights = weights_without_price(problem, float(certificate.detector_price))
    return in_quanta(weights, certificate)


def priced(problem: CalibrationProblem, certificate: Certificate, max_detectors: int | None) -> CalibrationProblem:
    """The problem that the shares of a certificate are about: what exemplars cost, and their price, are negatives."""
    price = check_number(certificate.detector_price, "detector_price", minimum=0)
    if price > 0 and max_detectors is None:
        raise InputError("it sets a price on detectors in use, but their number is not limited")
    return costs_as_negatives(problem, price)


def by_set(certificate: Certificate, leaves: NDArray[np.intp]) -> Iterator[tuple[int, list[int]]]:
    """Every set that is used, and the leaves that use it; -1 for all those that use none."""
    if len(leaves) == 0:
        return
    sets = np.maximum(certificate.shares_of[leaves], -1)
    by_set = np.argsort(sets, kind="stable")
    used, first = np.unique(sets[by_set], return_index=True)
    for k, users in zip(used.tolist(), np.split(leaves[by_set], first[1:]), strict=True):
        yield k, users.tolist()


def _leaf_bounds(
    root: Root,
    certificate: Certificate,
    tree: ProofTree,
    k: int,
    leaves: Sequence[int],
    max_detectors: int | None,
    without_price: NDArray[np.float64] | None,
) -> Iterator[tuple[int | float, int]]:
    """The bounds, in quanta, of leaves that all use set `k`, and what is paid there without the price of exemplars."""
    at_stake = _AtStake(root.problem, certificate, float(certificate.price[k]) if k >= 0 else 0.0)
    for _, v, values in leaf_values(root, certificate, tree, k, leaves, max_detectors):
        paid = values.paid.weight if without_price is None else int(without_price[values.paid.mask].sum())
        yield values.paid.weight + at_stake.total(v, values.is_covered), paid


def leaf_values(
    root: Root,
    certificate: Certificate,
    tree: ProofTree,
    k: int,
    leaves: Sequence[int],
    max_detectors: int | None = None,
) -> Iterator[tuple[int, NDArray[np.float64], Values]]:
    """(leaf, v_p, what is paid and covered) at leaves that use set `k`, refused where it is no set of shares there.

    What is paid and covered is right until the next one is asked for. Leaves in which more than `max_detectors` are
    open hold no solution and are passed over; where as many are open, nobody else can cover anything.
    """
    if not leaves:
        return
    always = set(np.flatnonzero(root.problem.upper_thresholds < np.inf).tolist())
    shares = Shares.from_set(certificate, k)
    # float64 adds whole numbers exactly up to 2**53, and never comes back below it: no excess is rounded away.
    given = np.bincount(shares.negative, weights=shares.amount, minlength=len(root.weights))
    excessive = np.flatnonzero(given > root.weights)
    values = Values(root, shares.only(given[shares.negative] <= root.weights[shares.negative]))
    for leaf in tree.walk(leaves, values):
        for n in excessive[~values.paid.mask[excessive]]:
            raise InputError(
                f"at node {leaf} the shares of negative {n} are {given[n]:.0f} quanta in all, more than its weight of "
                f"{root.weights[n]:.0f}"
            )
        v, p = values.values, -2 - int(certificate.shares_of[leaf])
        if p >= 0:
            v = v.copy()
            v[p] = values.of_everything(p)
        if max_detectors is not None:
            in_use = sorted(tree.opened(leaf) | always)
            if len(in_use) > max_detectors:
                continue
            v = np.maximum(v, values.least_cost(in_use)) if len(in_use) == max_detectors else v
        yield leaf, v, values


class _AtStake:
    """What the positives of a leaf pay, given the v_p and what the recall floor lets go."""

    def __init__(self, problem: CalibrationProblem, certificate: Certificate, price: float) -> None:
        self.orphans = problem.orphans()  # left out in every solution
        spare = problem.spare_budget(certificate.min_recall)
        self.is_infeasible, self.must_cover_all = spare < 0, spare <= 0
        if self.must_cover_all:
            return
        quanta = Fraction(price) / Fraction(float(certificate.quantum))
        units, self.kind = np.unique(problem.recall_units, return_inverse=True)
        self.charges = [math.floor(quanta * int(unit)) for unit in units]  # lambda u_p, one for each different u_p
        self.allowance = math.ceil(quanta * Fraction(spare))  # lambda m
        # v_p is below 2**53, so the minimum with it does not change where a larger charge is cut off there.
        self.charge = np.array([min(charge, int(EXACT)) for charge in self.charges], dtype=np.float64)

    def total(self, values: NDArray[np.float64], is_covered: NDArray[np.bool_]) -> int | float:
        """The sum over the positives that are not covered; never below 0, which a price of 0 proves."""
        counts = ~(is_covered | self.orphans)
        values = values[counts]
        is_dead = np.isposinf(values)
        if self.must_cover_all:
            return math.inf if is_dead.any() or self.is_infeasible else int(values.sum())
        kind = self.kind[counts]
        from_open = int(np.minimum(values, self.charge[kind])[~is_dead].sum())
        n_dead = np.bincount(kind[is_dead], minlength=len(self.charges)).tolist()
        from_dead = sum(n * charge for n, charge in zip(n_dead, self.charges, strict=True))  # v_p is infinite
        return max(0, from_open + from_dead - self.allowance)


def ceiling_cost(problem: CalibrationProblem, certificate: Certificate, weights: NDArray[np.float64]) -> int | float:
    """In quanta, the least that anybody pays who accepts a score at or below a ceiling; inf where there is none."""
    capped = np.flatnonzero(certificate.ceiling > -np.inf)
    if len(capped) == 0:
        return math.inf
    cost, is_forced = np.zeros(len(capped)), problem.forced()
    for start, block in row_blocks(problem.negative_scores):
        rows = slice(start, start + len(block))
        cost += weights[rows] @ ((block[:, capped] >= certificate.ceiling[capped]) | is_forced[rows, None])
    return int(cost.min())


def in_quanta(weights: NDArray[np.float64], certificate: Certificate) -> NDArray[np.float64]:
    """(N,) weights up to the cap, rounded down to whole quanta, few enough for exact sums."""
    with np.errstate(over="ignore", under="ignore"):
        # Exact: dividing by a power of two changes the exponent.
        quanta = np.floor(np.minimum(weights, certificate.weight_cap) / float(certificate.quantum))
        total = quanta.sum()
    if not total < EXACT:
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


def is_rounded(problem: CalibrationProblem, certificate: Certificate) -> bool:
    """Whether weights below the cap are more than the whole quanta that a certificate counts, and have to be."""
    weights = costs_as_negatives(problem, float(certificate.detector_price)).negative_weights
    weights = np.minimum(weights, certificate.weight_cap)
    finest = quantum_of(weights)
    if (np.floor(weights / finest) * finest == weights).all():
        return False  # a search counts them whole, so a certificate that does not is coarser than it needs to be
    return bool((in_quanta(weights, certificate) * float(certificate.quantum) != weights).any())
