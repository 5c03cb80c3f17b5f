"""Small examples in a real score table: the cuts that figures 2 to 6 of the paper show.

In: a calibration problem. Out: for each figure two E-SVMs with a few positives and negatives of the problem whose tree
shows what the figure is about, or None where no draw does. Of all draws that do, the one is taken whose scores lie
furthest apart, so that they can be told apart on paper. The same problem and seed give the same example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.problem import CalibrationProblem
from eesvm.experiments.search_study.cuts import Cut, find_cut
from eesvm.experiments.search_study.small_trees import BY_BOUND, BY_EQUIVALENCE, SmallTree, difficulty, small_tree

N_DRAWS = 2500
_ENOUGH = 0.06  # of the range of scores: signs that far apart do not touch,
_LEGIBLE = 0.035  # and those only just
_STRETCH = 12  # windows of figure 3,
_MOST_STARTS = 60  # from one of so many highest ones on,
_MOST_EXEMPLARS = 100  # under one of so many E-SVMs


def pipeline(problem: CalibrationProblem, random_state: int = 0) -> Cut | None:
    """Figure 2: three positives, the first of them free; thresholds of both E-SVMs move on the way to the best leaf."""

    def is_wanted(part: CalibrationProblem) -> bool:
        n_candidates = [len(part.candidate_thresholds(j)) for j in (0, 1)]
        if not all(2 <= n <= 4 for n in n_candidates):
            return False
        tree = small_tree(part, observations=())
        root, best = tree.nodes[0], tree.nodes[tree.best]
        losses = {leaf.loss for leaf in tree.leaves}
        return (
            _is_perfect(tree, part)
            and part.covers(root.thresholds).tolist() == [True, False, False]
            and all(np.not_equal(root.thresholds, best.thresholds))
            and len(losses) >= 3
        )

    return _find(problem, 3, (5, 4), is_wanted, random_state)


def by_bound(problem: CalibrationProblem, random_state: int = 0) -> Cut | None:
    """Figure 4: the first leaf costs less than the other node below the root."""

    def is_wanted(part: CalibrationProblem) -> bool:
        tree = small_tree(part, observations=(1,))
        left, right, best = tree.nodes[1], tree.nodes[2], tree.nodes[tree.best]
        if not _is_perfect(tree, part) or right.fate != BY_BOUND:
            return False
        return best.number == 3 and 0 < left.loss < best.loss < right.loss

    return _find(problem, 2, (7, 6, 5), is_wanted, random_state)


def by_equivalence(problem: CalibrationProblem, random_state: int = 0) -> Cut | None:
    """Figure 5: both E-SVMs accept the first positive with the same false positives, and the second with others."""

    def is_wanted(part: CalibrationProblem) -> bool:
        tree = small_tree(part, observations=(2,))
        kept, same = tree.nodes[1], tree.nodes[2]
        if not _is_perfect(tree, part) or same.fate != BY_EQUIVALENCE:
            return False
        losses = {leaf.loss for leaf in tree.leaves}
        return 0 < kept.loss < max(losses) and len(losses) > 1

    return _find(problem, 2, (5, 4, 3), is_wanted, random_state)


def by_order(problem: CalibrationProblem, random_state: int = 0) -> Cut | None:
    """Figure 6: no subtree is pruned by bound where the first positive comes first, some where the harder one does."""

    def is_wanted(part: CalibrationProblem) -> bool:
        if not 0 < difficulty(part, 0) < difficulty(part, 1):
            return False
        trees = [small_tree(part, order, observations=(1,)) for order in ((0, 1), (1, 0))]
        return _is_perfect(trees[0], part) and [_prunes_subtree(tree) for tree in trees] == [False, True]

    return _find(problem, 2, (7, 6, 5), is_wanted, random_state)


def score_stretch(problem: CalibrationProblem) -> tuple[int, float, float] | None:
    """Figure 3: an E-SVM, and the lowest and the highest score of some windows that follow each other under it.

    Of the first E-SVMs, and of stretches among their highest windows, taken is the one with the most candidates, up to
    five, that can be told apart. None where there is no candidate.
    """
    best, best_rating = None, 0.0
    for exemplar in range(min(problem.n_exemplars, _MOST_EXEMPLARS)):
        scores = np.concatenate([problem.positive_scores[:, exemplar], problem.negative_scores[:, exemplar]])
        is_coverable = np.arange(len(scores)) < problem.n_positives
        if problem.forbidden is not None:
            is_coverable[: problem.n_positives] &= ~problem.forbidden[:, exemplar]
        order = np.argsort(-scores, kind="stable")[: _MOST_STARTS + _STRETCH]
        for first in range(max(1, len(order) - _STRETCH + 1)):
            chosen = order[first : first + _STRETCH]
            is_positive = chosen < problem.n_positives
            apart = _apart(scores[chosen[is_positive]], scores[chosen[~is_positive]])
            n_turns = _n_turns(scores[chosen], is_coverable[chosen], ~is_positive)
            rating = min(n_turns, 5) * min(apart + 1e-6, _ENOUGH)
            if rating > best_rating:
                best, best_rating = (exemplar, float(scores[chosen[-1]]), float(scores[chosen[0]])), rating
    return best


def _find(
    problem: CalibrationProblem,
    n_positives: int,
    n_negatives: Sequence[int],
    is_wanted: Callable[[CalibrationProblem], bool],
    random_state: int,
) -> Cut | None:
    """The wanted draw of two E-SVMs that is easiest to read; fewer negatives are tried where it cannot be read well."""
    best, best_rating = None, -1.0
    for n in n_negatives:
        cut = find_cut(
            problem,
            2,
            n_positives,
            n,
            is_wanted,
            _legibility,
            enough=_ENOUGH,
            n_draws=N_DRAWS,
            random_state=random_state,
        )
        rating = -1.0 if cut is None else _legibility(cut.problem.positive_scores, cut.problem.negative_scores)
        if rating > best_rating:
            best, best_rating = cut, rating
        if best_rating >= _LEGIBLE:
            break
    return best


def _legibility(positives: NDArray[np.floating], negatives: NDArray[np.floating]) -> float:
    """Of the scores (n, E) of both kinds, on an axis for each E-SVM."""
    return min(_apart(*columns) for columns in zip(positives.T, negatives.T, strict=True))


def _n_turns(scores: NDArray[np.floating], is_positive: NDArray[np.bool_], is_negative: NDArray[np.bool_]) -> int:
    """How often, in decreasing scores, a positive is followed by a lower negative: a candidate lies between them."""
    return int((is_positive[:-1] & is_negative[1:] & (scores[:-1] > scores[1:])).sum())


def _apart(positives: NDArray[np.floating], negatives: NDArray[np.floating]) -> float:
    """How far apart signs on an axis are that could touch, in units of its length.

    Those are neighbours of one kind, and a positive with the window below it, if that is a negative: a threshold stands
    between. Under the lowest window of all a threshold stands half as far off as the next window above.
    """
    scores = np.sort(np.concatenate([positives, negatives]))
    span = float(scores[-1] - scores[0])
    if span == 0:
        return 0.0
    gaps = [np.diff(np.sort(own)) for own in (positives, negatives)]
    below = np.where(negatives < positives[:, None], negatives, -np.inf).max(axis=1, initial=-np.inf)
    gaps.append(np.where(positives == scores[0], scores[scores > scores[0]].min() - scores[0], positives - below))
    return min(float(part.min(initial=span)) for part in gaps) / span


def _is_perfect(tree: SmallTree, part: CalibrationProblem) -> bool:
    """Whether every E-SVM may cover every positive."""
    return len(tree.leaves) == part.n_exemplars**tree.depth


def _prunes_subtree(tree: SmallTree) -> bool:
    return any(node.fate == BY_BOUND and node.children for node in tree.nodes)
