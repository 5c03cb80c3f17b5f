"""Joint calibration: thresholds from the search, then optionally a sigmoid per exemplar (sections 3 and "Settings").

In: a score table and labels, optionally the image of each window and of each exemplar. Out: `JointCalibrator`.
Step 1 finds thresholds under which the ensemble accepts the positives at the fewest false positives; step 2 fits each
exemplar's sigmoid to the positives above its threshold and all negatives. Not here: searching (`exact`) and
fitting (`sigmoid`), which both work without this class.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from eesvm._support.not_fitted import NotFittedInputError
from eesvm._support.validation import (
    FloatArray,
    InputError,
    check_choice,
    check_groups,
    check_number,
    group_ids,
    row_blocks,
)
from eesvm.calibration.anytime import ProgressCallback
from eesvm.calibration.calibrators.base import ScoreCalibrator
from eesvm.calibration.calibrators.independent import check_sigmoid_options
from eesvm.calibration.calibrators.sigmoid import apply_sigmoids, fit_sigmoids
from eesvm.calibration.exact import solve
from eesvm.calibration.few_detectors import total_weight
from eesvm.calibration.held_out import Groups, make_folds
from eesvm.calibration.pooled import CHOICES, pool
from eesvm.calibration.problem import CalibrationProblem, any_accepts
from eesvm.calibration.result import CalibrationResult
from eesvm.calibration.votes import accepted_by_most, bootstrap_thresholds, middle_margin

SCALES = ("none", "spread")
_REFIT_NODES = 1  # of a search for refits: what it finds there is seldom bettered, only proven
_LEARNED = (  # what an earlier fit may have left behind
    "feature_names_in_",
    "exemplar_names_",
    "across_groups_",
    "sigmoids_",
    "muted_",
    "scales_",
    "pooled_",
    "votes_",
)


class JointCalibrator(ScoreCalibrator):
    """Thresholds that are chosen together, for the maximum over exemplars; with or without sigmoids.

    `transform` gives `S - thresholds_`, in units of `scales_` if there are any, or with `sigmoid=True` probabilities. A
    redundant exemplar, whose threshold is +inf, gives -inf or exactly 0. `predict` is positive where some exemplar
    scores above its threshold, with sigmoids too: the thresholds are what the search has proved something about.
    `assign` takes the highest output; where probabilities tie, the exemplar with the largest margin, then the lower
    index.

    Parameters
    ----------
    sigmoid : fit a sigmoid per exemplar after the thresholds.
    method, min_recall, time_limit, node_limit, gap, start, progress : of the search, see `solve`.
    max_loss, min_precision : ask for the most recall within this loss, or at this precision; see `solve`.
    max_detectors : how many exemplars may be in use; see `solve`.
    detector_cost : a number or (E,) array, what it costs to use an exemplar at all; see `CalibrationProblem`.
    exemplar_groups : (E,) the image each exemplar comes from. With it `fit` needs `groups`, the image of each window,
        and an exemplar cannot cover the windows of its own image. Default: it can, as in the paper.
    lower_thresholds, upper_thresholds : (E,) bounds on the thresholds, equal values lock one; see `CalibrationProblem`.
    criterion, min_positives, max_negatives_per_positive : of the sigmoids, see `SigmoidCalibrator`.
    random_state : int >= 0, seeds the search and the draw of negatives.
    n_jobs : threads; the result does not depend on it, unless `time_limit` ends the search.
    pos_label, missing : the positive label and what missing scores mean, see `ScoreCalibrator`.
    scale : "none" compares margins as they are, as in the paper, which is right for scores of one unit; "spread"
        divides those of a column by its standard deviation in `fit`, so that none wins by its units alone. Decisions
        stay the same.
    target_recall : the recall that is wanted on new rows. Thresholds are searched for this floor, drawn towards one
        that all exemplars share, and lowered together, as far as cross-validation says is good (see `pooled.pool`),
        which also says whether redundant exemplars stay switched off.
        With it there is no `min_recall`, no budget, and no proof that the thresholds are optimal.
    n_folds : of that cross-validation.
    n_bootstraps : refit the thresholds so often to rows drawn with replacement; `predict` accepts what most of the
        refits accept, and `decision_function` is the margin that most of them grant. Default: 0, no vote.

    Attributes
    ----------
    thresholds_ : (E,) in the dtype of the scores, +inf for redundant exemplars.
    active_ : (E,) bool, False for redundant exemplars.
    lower_thresholds_, upper_thresholds_ : (E,) the bounds that the thresholds had to keep, infinite where none.
    detector_cost_ : (E,) what it costs to use each exemplar.
    result_ : CalibrationResult, the thresholds with their loss, lower bound, gap and status.
    scales_ : (E,) with `scale="spread"`: the unit of each exemplar's margin; 1 for a constant column.
    sigmoids_ : (E, 2) slope and centre, with `sigmoid=True`.
    muted_ : (E,) bool, with `sigmoid=True`: exemplars with too few positives above their threshold for a sigmoid.
    pooled_ : with `target_recall`: how the thresholds were drawn together.
    votes_ : (B, E), with `n_bootstraps`: the thresholds of each refit.
    """

    def __init__(
        self,
        sigmoid: bool = False,
        method: str = "exact",
        min_recall: float = 1.0,
        time_limit: float | None = None,
        node_limit: int | None = None,
        gap: float = 0.0,
        exemplar_groups: ArrayLike | None = None,
        lower_thresholds: ArrayLike | None = None,
        upper_thresholds: ArrayLike | None = None,
        criterion: str = "least_squares",
        min_positives: int = 2,
        max_negatives_per_positive: int | None = 10_000,
        start: ArrayLike | None = None,
        progress: ProgressCallback | None = None,
        random_state: int = 0,
        n_jobs: int | None = None,
        pos_label: Any = None,
        scale: str = "none",
        missing: str = "refuse",
        max_loss: float | None = None,
        min_precision: float | None = None,
        max_detectors: int | None = None,
        detector_cost: ArrayLike | None = None,
        target_recall: float | None = None,
        n_folds: int = 5,
        n_bootstraps: int = 0,
    ) -> None:
        self.sigmoid = sigmoid
        self.method = method
        self.min_recall = min_recall
        self.time_limit = time_limit
        self.node_limit = node_limit
        self.gap = gap
        self.exemplar_groups = exemplar_groups
        self.lower_thresholds = lower_thresholds
        self.upper_thresholds = upper_thresholds
        self.criterion = criterion
        self.min_positives = min_positives
        self.max_negatives_per_positive = max_negatives_per_positive
        self.start = start
        self.progress = progress
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.pos_label = pos_label
        self.scale = scale
        self.missing = missing
        self.max_loss = max_loss
        self.min_precision = min_precision
        self.max_detectors = max_detectors
        self.detector_cost = detector_cost
        self.target_recall = target_recall
        self.n_folds = n_folds
        self.n_bootstraps = n_bootstraps

    def fit(self, S: Any, y: Any, groups: Any = None) -> Self:
        """Search thresholds for the scores and labels of windows.

        Parameters
        ----------
        S : (n_windows, n_exemplars) scores; the columns of a data frame name the exemplars.
        y : (n_windows,) labels with two values, of which `pos_label` is positive.
        groups : (n_windows,) the image of each window; needed with `exemplar_groups`. With `target_recall` or
            `n_bootstraps`, windows of one image are held out, or drawn, together.
        """
        scores, is_positive, classes = self._check_training(S, y)
        parted: Groups | None = None
        if groups is not None:
            images = check_groups(groups, len(scores), "groups", "window")
            parted = images[is_positive], images[~is_positive]
        is_refitted = self.target_recall is not None or self.n_bootstraps != 0
        own = None if is_refitted and self.exemplar_groups is None else groups
        forbidden = own_image_pairs(own, self.exemplar_groups, is_positive, scores.shape[1])
        names = getattr(self, "feature_names_in_", None)
        problem = CalibrationProblem(
            scores[is_positive],
            scores[~is_positive],
            forbidden=forbidden,
            lower_thresholds=self.lower_thresholds,
            upper_thresholds=self.upper_thresholds,
            missing=self.missing,
            detector_cost=self.detector_cost,
        )
        self.fit_problem(problem, parted)
        if names is not None:
            self.feature_names_in_ = names
        self.classes_ = classes
        return self

    def fit_problem(self, problem: CalibrationProblem, groups: Groups | None = None) -> Self:
        """Search thresholds for a problem as it is, with its weights, forbidden pairs and bounds; labels are 0 and 1.

        The calibrator's own `exemplar_groups`, bounds on thresholds and `detector_cost` are for `fit`, which makes a
        problem of them.

        Parameters
        ----------
        problem : what to solve.
        groups : of the positives (P,) and of the negatives (N,), which are held out or drawn together.
        """
        self._check_options()
        # A problem has no names, and does not say where its forbidden pairs come from: these are of another one, and so
        # are sigmoids.
        for stale in _LEARNED:
            if hasattr(self, stale):
                delattr(self, stale)
        self.result_ = self._search(problem)
        if self.target_recall is not None:
            self._pool(problem, groups)
        if self.n_bootstraps:
            rows = problem.n_positives, problem.n_negatives
            alone = np.split(np.arange(sum(rows)), rows[:1])
            ids = alone if groups is None else group_ids(*groups, names=("groups",))
            self.votes_ = bootstrap_thresholds(
                problem, (ids[0], ids[1]), self.refit, self.n_bootstraps, self.random_state
            )
        self.lower_thresholds_, self.upper_thresholds_ = problem.lower_thresholds, problem.upper_thresholds
        self.detector_cost_ = problem.detector_cost
        self.thresholds_ = self.result_.thresholds
        self.active_ = self.result_.active
        if self.scale == "spread":
            self.scales_ = spreads(problem.positive_scores, problem.negative_scores)
        if self.sigmoid:
            self._fit_sigmoids(problem)
        self.n_features_in_ = problem.n_exemplars
        self.classes_ = np.array([0, 1])
        return self

    def to_dict(self, at_least: bool = False, off: float | None = None) -> dict[str, float | None]:
        """The thresholds by name, as plain numbers for JSON and other tools.

        Names are those of the data frame, the table or the file that the calibrator comes from, else exemplar_0, ...

        Parameters
        ----------
        at_least : accept scores that reach the number, as many tools do, and not only those above it: the numbers are
            the next ones above the thresholds, so that decisions stay the same.
        off : what stands for an exemplar that is switched off; JSON has no infinity.
        """
        if not hasattr(self, "thresholds_"):
            raise NotFittedInputError("This JointCalibrator is not fitted yet: call `fit` with scores and labels")
        if hasattr(self, "votes_"):
            raise InputError("a vote of refits has no thresholds of its own: fit with `n_bootstraps=0`")
        limits = self.thresholds_
        if at_least:
            limits = np.where(limits < np.inf, np.nextafter(limits, limits.dtype.type(np.inf)), limits)
        names = getattr(self, "exemplar_names_", None)
        if names is None:
            names = getattr(self, "feature_names_in_", [f"exemplar_{j}" for j in range(len(limits))])
        return {str(name): off if limit == np.inf else float(limit) for name, limit in zip(names, limits, strict=True)}

    def refit(self, problem: CalibrationProblem, share: float = 1.0) -> FloatArray:
        """(E,) thresholds of a part of the rows, by a short search; the calibrator stays as it is.

        Where there is a time limit, `n_folds` refits share as much again.

        A floor that the part cannot meet becomes the highest that it can; where nothing can be covered, at all or
        within a budget, thresholds are the strictest.

        Parameters
        ----------
        problem : the part.
        share : of the negatives' weight, by which a budget is multiplied.
        """
        is_exact = self.method == "exact"
        if self._goal_is_recall() and problem.orphans().all():
            return problem.upper_thresholds
        try:
            result = self._search(
                problem,
                progress=None,
                start=None,
                time_limit=None if self.time_limit is None else self.time_limit / self.n_folds,
                node_limit=_REFIT_NODES if is_exact and self.node_limit is None else self.node_limit,
                min_recall=_reachable(problem, self._floor()) if self._goal_is_recall() else self.min_recall,
                max_loss=None if self.max_loss is None else self.max_loss * share,
            )
        except InputError:
            if not self._goal_is_recall():
                return problem.upper_thresholds
            if self.max_detectors is None:
                raise
            result = solve(problem, max_loss=total_weight(problem), max_detectors=self.max_detectors, node_limit=1)
        _stop_if_interrupted(result)
        return result.thresholds

    def refit_as_fitted(self, problem: CalibrationProblem, share: float, groups: Groups) -> FloatArray:
        """(E,) thresholds, or (B, E) those of a vote, of a part of the rows: as `refit`, and then what `fit` does.

        Parameters
        ----------
        problem : the part.
        share : of the negatives' weight, by which a budget is multiplied.
        groups : of its positives and of its negatives.
        """
        is_plain = self.target_recall is None and not self.n_bootstraps
        if is_plain or problem.orphans().all():
            return self.refit(problem, share)
        copy = clone(self).set_params(
            time_limit=None if self.time_limit is None else self.time_limit / self.n_folds,
            node_limit=_REFIT_NODES if self.method == "exact" and self.node_limit is None else self.node_limit,
            sigmoid=False,
            progress=None,
        )
        if self._goal_is_recall():
            name = "min_recall" if self.target_recall is None else "target_recall"
            copy.set_params(**{name: _reachable(problem, self._floor())})
        elif self.max_loss is not None:
            copy.set_params(max_loss=self.max_loss * share)
        try:
            copy.fit_problem(problem, groups)
        except InputError:  # the part cannot meet what is asked for, or is too small to be cut into folds once more
            return self.refit(problem, share)
        _stop_if_interrupted(copy.result_)
        return getattr(copy, "votes_", copy.thresholds_)

    def _goal_is_recall(self) -> bool:
        return self.max_loss is None and self.min_precision is None

    def _floor(self) -> float:
        return self.min_recall if self.target_recall is None else self.target_recall

    def _check_options(self) -> None:
        check_sigmoid_options(self)
        check_choice(self.scale, "scale", SCALES)
        check_number(self.n_bootstraps, "n_bootstraps", minimum=0, integer=True)
        check_number(self.n_folds, "n_folds", minimum=2, integer=True)
        if self.n_bootstraps and self.sigmoid:
            raise InputError("`n_bootstraps` and `sigmoid` exclude each other: a vote has no probability")
        if self.target_recall is None:
            return
        check_number(self.target_recall, "target_recall", above=0, maximum=1)
        if self.min_recall != 1 or not self._goal_is_recall():
            raise InputError(
                "`target_recall` excludes `min_recall`, `max_loss` and `min_precision`: it chooses the floor itself"
            )

    def _search(self, problem: CalibrationProblem, **changes: Any) -> CalibrationResult:
        options = {
            "method": self.method,
            "time_limit": self.time_limit,
            "gap": self.gap,
            "min_recall": self._floor(),
            "start": self.start,
            "progress": self.progress,
            "random_state": self.random_state,
            "n_jobs": self.n_jobs,
            "node_limit": self.node_limit,
            "max_loss": self.max_loss,
            "min_precision": self.min_precision,
            "max_detectors": self.max_detectors,
        }
        return solve(problem, **(options | changes))

    def _pool(self, problem: CalibrationProblem, groups: Groups | None) -> None:
        """Draw the thresholds of the result together; those of the search stay where bounds do not let them move."""
        own, others = groups or (None, None)
        folds = make_folds(problem, self.n_folds, own, others, self.random_state)
        floor, result = self._floor(), self.result_
        if _is_interrupted(result):  # thresholds stay those of the search
            return
        is_limited = self.max_detectors is not None or bool(problem.detector_cost.any())
        choices = [choice for choice in CHOICES if choice.keep_off or not is_limited]
        try:
            self.pooled_ = pool(problem, floor, folds, self.refit, result.thresholds, choices)
        except KeyboardInterrupt:
            self.result_ = replace(result, statistics=result.statistics | {"is_interrupted": True})
            return
        thresholds = self.pooled_.thresholds
        if problem.is_feasible(thresholds, floor):
            self.result_ = replace(
                result,
                thresholds=thresholds,
                loss=problem.loss(thresholds),
                recall=problem.recall(thresholds),
                assignment=problem.assign(thresholds),
                status="feasible",
            )

    def _fit_sigmoids(self, problem: CalibrationProblem) -> None:
        self.sigmoids_, self.muted_ = fit_sigmoids(
            problem.positive_scores,
            problem.negative_scores,
            covered_pairs(problem, self.thresholds_),
            criterion=self.criterion,
            min_positives=self.min_positives,
            max_negatives_per_positive=self.max_negatives_per_positive,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
        )

    def _calibrate(self, scores: FloatArray) -> FloatArray:
        if not self.sigmoid:
            return self.tie_breaker(scores)
        if not hasattr(self, "sigmoids_"):
            raise NotFittedInputError("`sigmoid` was switched on after `fit`: call `fit` again")
        probabilities = apply_sigmoids(scores, self.sigmoids_, self.muted_)
        probabilities[:, ~self.active_] = 0.0
        return probabilities

    def decision_function(self, S: Any) -> FloatArray:
        """(n_windows,) the highest calibrated score of each window; of a vote, the margin that most refits grant it."""
        if not hasattr(self, "votes_"):
            return super().decision_function(S)
        return middle_margin(self._check_scores(S), self.votes_, getattr(self, "scales_", 1.0))

    def _accept(self, scores: FloatArray) -> NDArray[np.bool_]:
        if hasattr(self, "votes_"):
            return accepted_by_most(scores, self.votes_)
        return any_accepts(scores, self.thresholds_)

    def tie_breaker(self, scores: FloatArray) -> FloatArray:
        if self.scale != "none" and not hasattr(self, "scales_"):
            raise NotFittedInputError("`scale` was changed after `fit`: call `fit` again")
        with np.errstate(invalid="ignore"):  # a score that is missing under a threshold of -inf
            margins = scores - self.thresholds_
        margins[np.isneginf(scores)] = -np.inf
        return margins if self.scale == "none" else margins / self.scales_


def spreads(*tables: FloatArray) -> NDArray[np.float64]:
    """(E,) standard deviation of each column over the rows of all tables; 1 where it is 0 or not a finite number.

    Scores that are missing count for nothing.
    """
    blocks = [block for table in tables for _, block in row_blocks(table)]  # views
    is_there = [block > -np.inf for block in blocks]
    n = np.maximum(np.sum([mask.sum(axis=0) for mask in is_there], axis=0), 1)
    pairs = list(zip(blocks, is_there, strict=True))
    with np.errstate(over="ignore", invalid="ignore"):
        means = np.sum([block.sum(axis=0, dtype=np.float64, where=mask) for block, mask in pairs], axis=0) / n
        found = np.sqrt(np.sum([((block - means) ** 2).sum(axis=0, where=mask) for block, mask in pairs], axis=0) / n)
    # The mean of equal numbers may come out a rounding error beside them.
    lowest = np.min([np.where(mask, block, np.inf).min(axis=0) for block, mask in pairs], axis=0)
    is_constant = lowest >= np.max([block.max(axis=0) for block in blocks], axis=0)
    return np.where(np.isfinite(found) & (found > 0) & ~is_constant, found, 1.0)


def own_image_pairs(
    groups: Any, exemplar_groups: Any, is_positive: NDArray[np.bool_], n_exemplars: int
) -> NDArray[np.bool_] | None:
    """(P, E) pairs of a positive window and an exemplar of the same image; None where no images are given."""
    if groups is None and exemplar_groups is None:
        return None
    if exemplar_groups is None:
        raise InputError("`groups` is given but `exemplar_groups` is not: the image of each detector is missing")
    if groups is None:
        raise InputError("`exemplar_groups` is given but `groups` is not: `fit` needs the image of each window")
    images = check_groups(groups, len(is_positive), "groups", "window")[is_positive]
    exemplar_images = check_groups(exemplar_groups, n_exemplars, "exemplar_groups", "detector")
    image_ids, exemplar_ids = group_ids(images, exemplar_images, names=("groups", "exemplar_groups"))
    return image_ids[:, None] == exemplar_ids[None, :]


def _is_interrupted(result: CalibrationResult) -> bool:
    return bool(result.statistics.get("is_interrupted", False))


def _stop_if_interrupted(result: CalibrationResult) -> None:
    """Ctrl-C in one of many refits ends all of them, not the one search alone."""
    if _is_interrupted(result):
        raise KeyboardInterrupt


def _reachable(problem: CalibrationProblem, floor: float) -> float:
    """The floor, or the recall of all positives that somebody may cover where that is less."""
    if problem.spare_budget(floor) >= 0:
        return floor
    units = problem.recall_units
    return max(float(units[~problem.orphans()].sum() / units.sum()), 1e-9)


def covered_pairs(problem: CalibrationProblem, thresholds: FloatArray) -> NDArray[np.bool_]:
    """(P, E) whether the exemplar covers the positive: by a score above its threshold and not by a forbidden pair."""
    pairs = problem.positive_scores > thresholds
    return pairs if problem.forbidden is None else pairs & ~problem.forbidden
