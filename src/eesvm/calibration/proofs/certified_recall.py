"""The most recall that a certificate leaves possible within a budget, worked out from the scores.

In: a `CalibrationProblem`, a `Certificate` and a `RecallGoal`. Out: a share of the positives' weight that no thresholds
within the budget exceed, or an `InputError` where the certificate is no proof.

A leaf with shares and a price lambda (`certified_bound` says what they are) proves for all its solutions

    loss + lambda * left out  >=  c  =  w(paid) + sum of min(lambda u_p, v_p) over the p that are not covered

where only positives that somebody may cover count. A solution within the budget pays at most base + rate * covered, so
that a line through c decides how little it can leave out; nor can it cover what is dead in the leaf. The certificate
proves the least of its leaves. Pairs below a ceiling are ignored: whoever uses one has to pay more than a solution may.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.certificate import Certificate
from eesvm.calibration.goal import RecallGoal, recall_divisor, recall_of_left_out
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.proofs.certified_bound import (
    EXACT,
    by_set,
    ceiling_cost,
    in_quanta,
    leaf_values,
    paid_back,
    priced,
    quanta_without_price,
)
from eesvm.calibration.proofs.walk import ProofTree, Root


def certified_recall(
    problem: CalibrationProblem, certificate: Certificate, goal: RecallGoal, max_detectors: int | None = None
) -> float:
    """The recall that no thresholds within the budget exceed, rounded up to a float; 0 where there are none.

    With `max_detectors`, of thresholds that keep no more exemplars in use.
    """
    return recall_of_left_out(problem, certified_left_out(problem, certificate, goal, max_detectors))


def certified_left_out(
    problem: CalibrationProblem, certificate: Certificate, goal: RecallGoal, max_detectors: int | None = None
) -> int | float:
    """The fewest recall units, of positives that somebody may cover, that thresholds within the budget leave out.

    inf where no thresholds are within the budget.
    """
    plain, problem = problem, priced(problem, certificate, max_detectors)
    certificate.check(problem)
    certificate = certificate.without_searched()
    quantum = float(certificate.quantum)
    weights = in_quanta(problem.negative_weights, certificate)
    without_price = quanta_without_price(plain, certificate)
    permitted = goal.allowance(plain, is_proof=True).times(1 / Fraction(quantum))
    allowance = permitted.less(-paid_back(problem, certificate, max_detectors))
    if ceiling_cost(problem, certificate, weights) <= allowance.at(0):
        return 0
    root, tree = Root(problem, certificate, weights), ProofTree(certificate)
    least: Fraction | float = math.inf
    for k, leaves in by_set(certificate, np.flatnonzero(certificate.split_exemplar < 0)):
        found = _leaf_lines(root, certificate, tree, k, leaves, max_detectors, without_price)
        for cost, price, dead, paid in found:
            with_price = allowance.least_left_out(cost, price, dead)
            least = min(least, max(with_price, permitted.least_left_out(paid, Fraction(0), dead)))
    if least == math.inf:
        return math.inf
    divisor = recall_divisor(problem)
    return math.ceil(Fraction(least) / divisor) * divisor


def _leaf_lines(
    root: Root,
    certificate: Certificate,
    tree: ProofTree,
    k: int,
    leaves: Sequence[int],
    max_detectors: int | None,
    without_price: NDArray[np.float64] | None,
) -> Iterator[tuple[int, Fraction, int, int]]:
    """c, the price of leaving out, dead units, and what is paid without the price of exemplars, at leaves of a set."""
    line = _Line(root.problem, certificate, float(certificate.price[k]) if k >= 0 else 0.0)
    for _, v, values in leaf_values(root, certificate, tree, k, leaves, max_detectors):
        cost, dead = line.through(v, values.is_covered)
        paid = values.paid.weight if without_price is None else int(without_price[values.paid.mask].sum())
        yield values.paid.weight + cost, line.price, dead, paid


class _Line:
    """c without what is paid, and the units of dead positives, for one price of leaving out."""

    def __init__(self, problem: CalibrationProblem, certificate: Certificate, price: float) -> None:
        self.price = Fraction(price) / Fraction(float(certificate.quantum))  # quanta for a unit
        self._orphans, self._units = problem.orphans(), problem.recall_units
        units, self._kind = np.unique(problem.recall_units, return_inverse=True)
        self._charges = [math.floor(self.price * int(unit)) for unit in units]  # lambda u_p, for each different u_p
        # v_p is below 2**53, so the minimum with it does not change where a larger charge is cut off there.
        self._charge = np.array([min(charge, int(EXACT)) for charge in self._charges], dtype=np.float64)

    def through(self, values: NDArray[np.float64], is_covered: NDArray[np.bool_]) -> tuple[int, int]:
        counts = ~(is_covered | self._orphans)
        values, kind = values[counts], self._kind[counts]
        is_dead = np.isposinf(values)
        from_open = int(np.minimum(values, self._charge[kind])[~is_dead].sum())
        n_dead = np.bincount(kind[is_dead], minlength=len(self._charges)).tolist()
        from_dead = sum(n * charge for n, charge in zip(n_dead, self._charges, strict=True))
        return from_open + from_dead, int(self._units[counts][is_dead].sum())
