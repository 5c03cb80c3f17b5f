"""Parts of a calibration problem: some of its exemplars, positives and negatives, with everything that belongs to them.

In: a `CalibrationProblem`. Out: a `Cut`, which remembers where in the problem it comes from: chosen by hand, at random
with a seed, or found by trying small draws until one shows what is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.problem import CalibrationProblem

_Indices = NDArray[np.intp]
_Scores = NDArray[np.floating]

_DRAWS_OF_NEGATIVES = 8  # for each draw of exemplars and positives


@dataclass(frozen=True)
class Cut:
    """A part of a problem; row i of its scores is row `positives[i]`, or `negatives[i]`, of the whole."""

    problem: CalibrationProblem
    exemplars: _Indices
    positives: _Indices
    negatives: _Indices


def cut_problem(problem: CalibrationProblem, exemplars: _Indices, positives: _Indices, negatives: _Indices) -> Cut:
    """The part with these exemplars, positives and negatives, in these orders."""
    part = CalibrationProblem(
        np.ascontiguousarray(problem.positive_scores[np.ix_(positives, exemplars)]),
        np.ascontiguousarray(problem.negative_scores[np.ix_(negatives, exemplars)]),
        problem.positive_weights[positives],
        problem.negative_weights[negatives],
        None if problem.forbidden is None else problem.forbidden[np.ix_(positives, exemplars)],
        problem.lower_thresholds[exemplars],
        problem.upper_thresholds[exemplars],
    )
    return Cut(part, exemplars, positives, negatives)


def random_cut(
    problem: CalibrationProblem, n_exemplars: int, n_positives: int, n_negatives: int, random_state: int = 0
) -> Cut | None:
    """A random part of at most these sizes, with positives that some exemplar of it may cover; None without any.

    With one seed, exemplars and negatives of a smaller part are among those of a larger one.
    """
    streams = np.random.default_rng(random_state).spawn(3)
    exemplars = np.sort(streams[0].permutation(problem.n_exemplars)[:n_exemplars])
    coverable = _coverable(problem, exemplars)
    positives = np.sort(streams[1].permutation(coverable)[:n_positives])
    negatives = np.sort(streams[2].permutation(problem.n_negatives)[:n_negatives])
    return cut_problem(problem, exemplars, positives, negatives) if len(positives) else None


def find_cut(
    problem: CalibrationProblem,
    n_exemplars: int,
    n_positives: int,
    n_negatives: int,
    is_wanted: Callable[[CalibrationProblem], bool],
    rate: Callable[[_Scores, _Scores], float],
    *,
    enough: float = math.inf,
    n_draws: int,
    random_state: int = 0,
) -> Cut | None:
    """The draw with the highest rating among those that are wanted, of equal ones the first; None where none is.

    `rate` is given the scores of the positives and of the negatives. The first wanted draw with a rating of `enough`
    ends the search. Negatives come by decreasing score under the first exemplar.
    """
    if problem.n_exemplars < n_exemplars or problem.n_positives < n_positives:
        return None
    random = np.random.default_rng(random_state)
    best, best_rating = None, -math.inf
    for _ in range(-(-n_draws // _DRAWS_OF_NEGATIVES)):
        exemplars = random.choice(problem.n_exemplars, n_exemplars, replace=False)
        positives = random.choice(problem.n_positives, n_positives, replace=False)
        own, others = problem.positive_scores[np.ix_(positives, exemplars)], problem.negative_scores[:, exemplars]
        for negatives in _draw_negatives(own, others, n_negatives, random):
            rating = rate(own, others[negatives])
            if rating <= best_rating:  # most draws are no better, and rating is the quick part
                continue
            cut = cut_problem(problem, exemplars, positives, negatives)
            if not cut.problem.orphans().any() and is_wanted(cut.problem):
                best, best_rating = cut, rating
                if rating >= enough:
                    return best
    return best


def _draw_negatives(
    positives: _Scores, negatives: _Scores, n_wanted: int, random: np.random.Generator
) -> Iterator[_Indices]:
    """Some draws among the negatives that outscore a positive: the others cost nobody anything.

    What a negative does to a tree is which positives it outscores under which exemplar. Nearly all do the same, so what
    it does is drawn first, and then one that does it.
    """
    patterns = (negatives[:, None] >= positives).reshape(len(negatives), -1) @ (1 << np.arange(positives.size))
    rivals = np.flatnonzero(patterns)
    rivals = rivals[np.argsort(patterns[rivals], kind="stable")]
    _, starts, sizes = np.unique(patterns[rivals], return_index=True, return_counts=True)
    for _ in range(_DRAWS_OF_NEGATIVES if len(rivals) >= n_wanted else 0):
        kinds = random.integers(len(starts), size=n_wanted)
        drawn = np.unique(rivals[starts[kinds] + (random.random(n_wanted) * sizes[kinds]).astype(np.intp)])
        if len(drawn) == n_wanted:
            yield drawn[np.argsort(-negatives[drawn, 0], kind="stable")]


def _coverable(problem: CalibrationProblem, exemplars: _Indices) -> _Indices:
    """Positives that some of the exemplars may cover."""
    may_cover = problem.positive_scores[:, exemplars] > problem.lower_thresholds[exemplars]
    if problem.forbidden is not None:
        may_cover &= ~problem.forbidden[:, exemplars]
    return np.flatnonzero(may_cover.any(axis=1))
