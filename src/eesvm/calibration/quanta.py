"""Weights as searches count them: whole numbers of a quantum, so that every sum of them is exact.

In: a `CalibrationProblem`. Out: its ranks, with every weight rounded down to whole quanta. Losses and bounds of a
search for the least loss, and of its certificate, are about these weights, and exact; what is proved of them holds for
the weights as given, which are no less.

Weights above a *cap* are cut down to it. It is more than twice the loss of a simple solution, or, where few detectors
may be in use, of a known one, so no good solution accepts such a negative, and one that must never be accepted does not
make all others too small to tell apart.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.ranks import RankedProblem, rank
from eesvm.calibration.units import quantum_of

_Ranked = tuple[RankedProblem, CalibrationProblem]


def rank_whole(
    problem: CalibrationProblem,
    min_recall: float,
    n_jobs: int | None = None,
    only_useful: bool = False,
    besides: float = 0.0,
    known: float = 0.0,
) -> _Ranked:
    """Rank a problem without other costs in whole quanta; returns also the problem with the weights that this means.

    `besides` is what losses of the search may contain besides the weights, and `known` the loss of a known solution,
    needed where the simple one has too many detectors in use: the cap is above both.
    """
    whole, quantum, is_rounded = _rounded(problem, math.inf)
    cap = math.inf
    if is_rounded:
        cap = _cap(problem, 2 * max(_simple_loss(problem, min_recall, n_jobs), known) + 4 * besides)
        whole, quantum, is_rounded = _rounded(problem, cap)
    ranked = rank(whole, min_recall, n_jobs, only_useful)
    return replace(ranked, quantum=quantum, cap=cap, is_rounded=is_rounded), whole


def rank_capped(problem: CalibrationProblem, most: float, n_jobs: int | None = None) -> _Ranked:
    """Rank a problem without a floor in which nobody may pay more than `most`; nothing is rounded."""
    cap = _cap(problem, 4 * most)
    capped = _with_weights(problem, np.minimum(problem.negative_weights, cap))
    return replace(rank(capped, None, n_jobs), cap=cap), capped


def _cap(problem: CalibrationProblem, most: float) -> float:
    """A power of two above `most`, or inf; where that is 0, above the least weight."""
    weights = problem.negative_weights
    number = most or float(weights[weights > 0].min(initial=np.inf))
    return math.inf if number >= 2.0**1022 else math.ldexp(1.0, math.frexp(number)[1])


def _rounded(problem: CalibrationProblem, cap: float) -> tuple[CalibrationProblem, float, bool]:
    """The problem with whole weights, the quantum, and whether weights below the cap had more digits."""
    weights = np.minimum(problem.negative_weights, cap)
    quantum = quantum_of(weights)
    whole = np.floor(weights / quantum) * quantum
    return _with_weights(problem, whole), quantum, bool((whole != weights).any())


def _with_weights(problem: CalibrationProblem, weights: NDArray[np.float64]) -> CalibrationProblem:
    changed = copy.copy(problem)
    changed.negative_weights = weights
    return changed


def _simple_loss(problem: CalibrationProblem, min_recall: float, n_jobs: int | None) -> float:
    """What it costs at most to cover the easiest positives that are enough, each by its own cheapest exemplar.

    At most as many times the least loss as there are positives: any solution pays for the hardest of them, or for one
    that is harder.
    """
    ranked = rank(problem, min_recall, n_jobs)
    difficulty, units = ranked.difficulty[ranked.coverable], ranked.positive_weights[ranked.coverable]
    hardest_first = np.argsort(-difficulty, kind="stable")
    n_left_out = int(np.searchsorted(np.cumsum(units[hardest_first]), ranked.left_out_budget, side="right"))
    with np.errstate(over="ignore"):
        return float(difficulty[hardest_first[n_left_out:]].sum()) + ranked.fixed_loss
