"""Calibrating a score table and scoring new rows with the result: what the command line does, as functions.

In: a `ScoreTable` and an unfitted `JointCalibrator`. Out: the fitted one; per detector, what its threshold does
(`ExemplarSummary`); per row, what was decided and by whom (`RowScores`); a split of the rows by their groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import NOT_FIRED, FloatArray, InputError, check_number, row_blocks
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.calibration.held_out import HeldOut, cross_validate, make_folds
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.tables.score_table import ScoreTable


@dataclass(frozen=True)
class ExemplarSummary:
    """What the threshold of each detector does on the table it was fitted to; every array is (E,)."""

    thresholds: FloatArray
    active: NDArray[np.bool_]
    positives_responsible: NDArray[np.intp]  # those it wins by the largest margin
    positives_accepted: NDArray[np.intp]
    negatives_accepted: NDArray[np.intp]
    negatives_accepted_alone: NDArray[np.intp]  # by it and by nobody else: what switching it off would save

    def columns(self) -> list[list[object]]:
        """The arrays as columns of numbers, in the order above; active is 0 or 1.

        Thresholds stay in their own dtype, whose text is the shortest that reads back as the same number.
        """
        return [
            list(self.thresholds),
            self.active.astype(int).tolist(),
            self.positives_responsible.tolist(),
            self.positives_accepted.tolist(),
            self.negatives_accepted.tolist(),
            self.negatives_accepted_alone.tolist(),
        ]


@dataclass(frozen=True)
class RowScores:
    """What a calibration says about each row; every array is (n,)."""

    scores: FloatArray  # the highest calibrated score
    accepted: NDArray[np.bool_]  # whether any detector scores the row above its threshold
    exemplars: NDArray[np.intp]  # whose calibrated score is the highest; -1 where no detector that matters scored it
    margins: FloatArray  # the score of that detector minus its threshold, -inf where there is none


def fit_table(table: ScoreTable, calibrator: JointCalibrator, across_groups: bool = False) -> CalibrationProblem:
    """Fit `calibrator`, in place, to a table with its weights and forbidden pairs; returns the problem that was solved.

    Parameters
    ----------
    table : scores with a label for every row.
    calibrator : its bounds on thresholds and its `detector_cost` hold; its `exemplar_groups` are not used.
    across_groups : a detector does not cover the windows of its own group.
    """
    problem = table.problem(
        across_groups, calibrator.lower_thresholds, calibrator.upper_thresholds, calibrator.detector_cost
    )
    _check_unscored(table, problem, calibrator)
    calibrator.fit_problem(problem, table.parted_groups())
    calibrator.missing = table.missing
    calibrator.exemplar_names_ = table.exemplar_names
    calibrator.across_groups_ = across_groups
    return problem


def hold_out(table: ScoreTable, calibrator: JointCalibrator, problem: CalibrationProblem, n_folds: int = 5) -> HeldOut:
    """What a calibrator that was fitted to a table does on rows that it was not fitted to, by cross-validation.

    Whole groups are held out where the table has groups. Where detectors have groups, too, a held-out positive counts
    as accepted only by detectors of other groups.

    Parameters
    ----------
    table : that it was fitted to.
    calibrator : fitted; it stays as it is. Refits are by its `refit_as_fitted`.
    problem : what `fit_table` returned.
    n_folds : at least 2.
    """
    own, others = table.parted_groups() or (None, None)
    folds = make_folds(problem, n_folds, own, others, calibrator.random_state)
    judged = None
    if table.groups is not None and table.exemplar_groups is not None:
        judged = table.problem(True, problem.lower_thresholds, problem.upper_thresholds, problem.detector_cost)
    fitted = getattr(calibrator, "votes_", calibrator.thresholds_)
    return cross_validate(problem, folds, calibrator.refit_as_fitted, fitted, judged)


def _check_unscored(table: ScoreTable, problem: CalibrationProblem, calibrator: JointCalibrator) -> None:
    """Name the rows of positives without any score, where the recall floor does not let them go."""
    if table.missing != NOT_FIRED:
        return
    rows = table.unscored_positives()
    if len(rows) == problem.n_positives:
        raise InputError("no positive has any score: there is nothing that thresholds could accept")
    if calibrator.max_loss is not None or calibrator.min_precision is not None:
        return
    name = "min_recall" if calibrator.target_recall is None else "target_recall"
    floor = check_number(getattr(calibrator, name), name, above=0, maximum=1)
    if len(rows) and problem.spare_budget(floor) < 0:
        shown = ", ".join(map(str, rows[:5])) + (f" and {len(rows) - 5} more" if len(rows) > 5 else "")
        which = f"row {shown} is a positive" if len(rows) == 1 else f"rows {shown} are positives"
        most = float(problem.positive_weights[~problem.orphans()].sum() / problem.positive_weights.sum())
        raise InputError(
            f"{which} without any score (rows count from 0), which no thresholds accept: leave out what has no score, "
            f"or lower `{name}`, now {floor:g}, to {math.floor(1e4 * most) / 1e4:g} at most"
        )


def summarise_exemplars(problem: CalibrationProblem, thresholds: FloatArray) -> ExemplarSummary:
    """Count, detector by detector, what the thresholds accept.

    Parameters
    ----------
    problem : the scores to count in.
    thresholds : (E,) array, +inf for a redundant exemplar.
    """
    n_exemplars = problem.n_exemplars
    assignment = problem.assign(thresholds)
    positives, negatives, alone = (np.zeros(n_exemplars, dtype=np.intp) for _ in range(3))
    for _, block in row_blocks(problem.positive_scores):
        positives += (block > thresholds).sum(axis=0)
    for _, block in row_blocks(problem.negative_scores):
        above = block > thresholds
        negatives += above.sum(axis=0)
        alone += above[above.sum(axis=1) == 1].sum(axis=0)
    return ExemplarSummary(
        thresholds=thresholds,
        active=thresholds < np.inf,
        positives_responsible=np.bincount(assignment[assignment >= 0], minlength=n_exemplars),
        positives_accepted=positives,
        negatives_accepted=negatives,
        negatives_accepted_alone=alone,
    )


def score_rows(calibrator: JointCalibrator, scores: FloatArray) -> RowScores:
    """Apply a fitted calibrator to the scores of new rows.

    Parameters
    ----------
    calibrator : fitted.
    scores : (n, E) of the rows.
    """
    exemplars = calibrator.assign(scores)
    winning = scores[np.arange(len(scores)), exemplars]
    is_there = winning > -np.inf  # NaN, where missing scores are allowed, is not either
    with np.errstate(invalid="ignore"):
        margins = winning - calibrator.thresholds_[exemplars]
    return RowScores(
        scores=calibrator.decision_function(scores),
        accepted=calibrator.predict(scores) == calibrator.classes_[1],
        exemplars=np.where(is_there, exemplars, -1),
        margins=np.where(is_there, margins, margins.dtype.type(-np.inf)),
    )


def split_table(table: ScoreTable, test_size: float = 0.5, random_state: int = 0) -> tuple[ScoreTable, ScoreTable]:
    """Training and test rows: whole groups where the table has groups, else rows, each class by itself.

    A group with a positive row is drawn among such groups, so that both parts have about the same share of positives.
    Detectors that come from a test group are left out: they have seen what they would be tested on.

    Parameters
    ----------
    table : scores with a label for every row.
    test_size : share of the groups, or rows, of each kind that are for testing, in (0, 1].
    random_state : seeds the draw.
    """
    check_number(test_size, "test_size", above=0, maximum=1)
    if table.labels is None:
        raise InputError("splitting a table needs a label for every row")
    groups = np.arange(table.n_rows) if table.groups is None else table.groups
    _, ids = np.unique(groups, return_inverse=True)
    has_positive = np.zeros(ids.max() + 1, dtype=bool)
    has_positive[ids[table.labels == 1]] = True
    is_test_group = np.zeros(len(has_positive), dtype=bool)
    random = np.random.default_rng(random_state)
    for kind in (True, False):
        members = random.permutation(np.flatnonzero(has_positive == kind))
        is_test_group[members[: round(test_size * len(members))]] = True
    is_test = is_test_group[ids]
    for part, name in ((~is_test, "training"), (is_test, "test")):
        for label, noun in ((1, "positive"), (0, "negative")):
            if not (table.labels[part] == label).any():
                unit = "row" if table.groups is None else "group"
                raise InputError(
                    f"a test share of {test_size:g} leaves no {noun} row in the {name} part: there are "
                    f"{int(has_positive.sum())} {unit}s with a positive and {int((~has_positive).sum())} without"
                )
    train, test = table.rows(~is_test), table.rows(is_test)
    if test.groups is None or table.exemplar_groups is None:
        return train, test
    is_unseen = ~np.isin(table.exemplar_groups, test.groups)
    if not is_unseen.any():
        raise InputError(f"with a test share of {test_size:g} every detector comes from a test group")
    return train.exemplars(is_unseen), test.exemplars(is_unseen)
