"""A vote of refits: a row is accepted when most of them accept it.

In: a problem, the group of each row, and a function that fits thresholds. Out: (B, E) thresholds of B refits to rows
drawn with replacement, and what they decide together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import FloatArray
from eesvm.calibration.held_out import part, resampled
from eesvm.calibration.problem import CalibrationProblem, any_accepts


def bootstrap_thresholds(
    problem: CalibrationProblem,
    groups: tuple[NDArray[np.intp], NDArray[np.intp]],
    fit: Callable[[CalibrationProblem, float], FloatArray],
    n_bootstraps: int,
    random_state: int = 0,
) -> FloatArray:
    """(B, E) thresholds, each fitted to as many groups of rows as there are, drawn with replacement.

    Parameters
    ----------
    problem : all rows.
    groups : of the positives (P,) and of the negatives (N,); a number of its own for a row that stands alone.
    fit : thresholds (E,) of a problem, and of its share of the negatives' weight.
    n_bootstraps : B.
    random_state : seeds the draws.
    """
    total, found = float(problem.negative_weights.sum()), []
    for seed in np.random.SeedSequence(random_state).spawn(n_bootstraps):
        random = np.random.default_rng(seed)
        positives, negatives = (resampled(each, random) for each in groups)
        share = float(problem.negative_weights[negatives].sum()) / total if total > 0 else 1.0
        found.append(fit(part(problem, positives, negatives, share), share))
    return np.stack(found)


def accepted_by_most(scores: FloatArray, votes: FloatArray) -> NDArray[np.bool_]:
    """(n,) whether more than half of the refits (B, E) accept the row of (n, E) scores."""
    return np.asarray(2 * sum(any_accepts(scores, vote).astype(np.intp) for vote in votes) > len(votes))


def middle_margin(scores: FloatArray, votes: FloatArray, scales: FloatArray | float) -> FloatArray:
    """(n,) the largest margin of a row, in units of `scales`, that more than half of the refits grant."""
    margins = []
    for vote in votes:
        with np.errstate(invalid="ignore"):  # a score that is missing under a threshold of -inf
            above = np.where(np.isneginf(scores), -np.inf, (scores - vote) / scales)
        margins.append(above.max(axis=1))
    return np.asarray(np.sort(margins, axis=0)[(len(votes) - 1) // 2])
