"""Lower bounds on the loss, each with its proof in the docstring.

In: a `RankedProblem`. Out: a number that no feasible solution can beat, without the fixed loss, as a search counts.
"""

from __future__ import annotations

import numpy as np

from eesvm.calibration.ranks import RankedProblem


def max_min_bound(ranked: RankedProblem) -> float:
    """The largest difficulty among the positives that cannot all be left out.

    Proof. Take the positives by decreasing difficulty, and the shortest prefix whose weight exceeds the budget. A
    feasible solution leaves out no more than the budget, so it covers some p of that prefix; whichever exemplar j
    covers p accepts all of B_j(p), which costs at least min_j cost(B_j(p)) = difficulty(p), at least the difficulty of
    the last of the prefix. With nothing left out the prefix is the single most difficult positive.

    What rounding may add to the fixed loss is given away too, so the number can be a hair below zero.
    """
    difficulty, weights = ranked.difficulty[ranked.coverable], ranked.positive_weights[ranked.coverable]
    by_difficulty = np.argsort(-difficulty, kind="stable")
    last = int(np.searchsorted(np.cumsum(weights[by_difficulty]), ranked.left_out_budget, side="right"))
    bound = 0.0 if last == len(weights) else float(difficulty[by_difficulty[last]])
    return bound - ranked.rounding_slack(bound)
