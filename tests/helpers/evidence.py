"""Checks of a search's answer that hold whatever the method."""

import numpy as np
import pytest

from eesvm import InputError, solve, verify
from helpers import reference


def verified_solve(problem, *options, **named):
    """`eesvm.solve`, and what it returns is verified."""
    result = solve(problem, *options, **named)
    check_verified(problem, result)
    return result


def solve_or_none(problem, **options):
    """The result, verified, or None where no thresholds are feasible."""
    try:
        return verified_solve(problem, **options)
    except InputError as error:
        reasons = ["`forbidden` bars every detector"]
        if (problem.lower_thresholds > -np.inf).any():
            reasons += [
                "`lower_thresholds` bars every detector",
                "`forbidden` and `lower_thresholds` bar every detector",
            ]
        if not any(f"cannot be covered, because {reason}" in str(error) for reason in reasons):
            raise
        return None


def check_evidence(problem, result, min_recall=1.0):
    """What every result promises, whatever the method."""
    assert problem.is_feasible(result.thresholds, min_recall)
    assert (problem.lower_thresholds <= result.thresholds).all()
    assert (result.thresholds <= problem.upper_thresholds).all()
    assert result.thresholds.dtype == problem.positive_scores.dtype
    assert result.min_recall == min_recall
    assert result.loss == problem.loss(result.thresholds) == pytest.approx(reference.loss(problem, result.thresholds))
    assert 0 <= result.lower_bound <= result.loss
    covered = reference.covered(problem, result.thresholds)
    assert ((result.assignment >= 0) == covered).all()
    for p in np.flatnonzero(covered):
        j = result.assignment[p]
        assert problem.positive_scores[p, j] > result.thresholds[j]
        assert problem.forbidden is None or not problem.forbidden[p, j]
    assert (result.active == (result.thresholds < np.inf)).all()
    losses, bounds = [h[1] for h in result.history], [h[2] for h in result.history]
    assert losses == sorted(losses, reverse=True)
    assert bounds == sorted(bounds)
    if result.history:
        assert result.history[-1][1:] == pytest.approx((result.loss, result.lower_bound))
    check_verified(problem, result)


def check_verified(problem, result):
    """Everything that can be proved by the scores and the certificate is; without a certificate, all but the bound."""
    verification = verify(problem, result)
    unproven = "but there is no certificate to prove it"
    problems = verification.problems
    assert [p for p in problems if result.certificate is not None or not p.endswith(unproven)] == []
    assert verification.is_feasible
    assert verification.loss == result.loss
    if result.certificate is not None:
        assert result.lower_bound <= verification.lower_bound or result.goal is not None
