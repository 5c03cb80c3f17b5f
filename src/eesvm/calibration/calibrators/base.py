"""The estimator contract that every calibrator keeps.

In: a score table `S` (n_windows, n_exemplars) and labels `y` with two values, of which `pos_label` is positive.
Out: `ScoreCalibrator`, on which `transform` gives one calibrated score per window and exemplar, `decision_function`
their maximum (equation 1 of the paper), `predict` a label and `assign` the exemplar that wins the window.
Not here: any calibration. A calibrator adds what it learns in `_fit` and its arithmetic in `_calibrate`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, OneToOneFeatureMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from eesvm._support.not_fitted import NotFittedInputError
from eesvm._support.validation import (
    MISSING,
    NOT_FIRED,
    FloatArray,
    InputError,
    check_choice,
    check_labels,
    check_table,
    row_blocks,
)


class ScoreCalibrator(OneToOneFeatureMixin, ClassifierMixin, TransformerMixin, BaseEstimator, ABC):
    """Base of the calibrators: everything but the calibration.

    Parameters
    ----------
    pos_label : the label of the positive windows. Default: 1 beside 0 or -1, and True; other labels need it.
    missing : "refuse" (the default) refuses NaN among the scores. "not-fired" takes NaN, -inf and masked entries for
        exemplars that did not fire on that window: what is learned is learned from the scores that are there, and the
        exemplar gives the least there is, -inf or a probability of 0, where its score is missing.

    Attributes
    ----------
    classes_ : (2,) array, the negative label and the positive one.
    n_features_in_ : int, the number of exemplars.
    feature_names_in_ : (E,) array of str, the names of the exemplars, where `fit` saw a data frame.
    """

    pos_label: Any
    missing: str
    _accept_above = 0.0  # `predict` says positive where `decision_function` is greater than this

    def fit(self, S: Any, y: Any) -> Self:
        """Learn from the scores of windows and their labels.

        Parameters
        ----------
        S : (n_windows, n_exemplars) scores; the columns of a data frame name the exemplars.
        y : (n_windows,) labels with two values, of which `pos_label` is positive.
        """
        scores, is_positive, classes = self._check_training(S, y)
        self._fit(scores, is_positive)
        self.classes_ = classes  # last, as it is what makes a calibrator count as fitted
        return self

    def transform(self, S: Any) -> FloatArray:
        """(n_windows, n_exemplars) calibrated scores."""
        return self._calibrate(self._check_scores(S))

    def decision_function(self, S: Any) -> FloatArray:
        """(n_windows,) the highest calibrated score of each window."""
        return _by_blocks(self._check_scores(S), lambda block: self._calibrate(block).max(axis=1))

    def predict(self, S: Any) -> np.ndarray:
        """(n_windows,) labels."""
        is_accepted = self._accept(self._check_scores(S))
        return self.classes_[is_accepted.astype(np.intp)]

    def assign(self, S: Any) -> NDArray[np.intp]:
        """(n_windows,) the exemplar with the highest calibrated score; the class says how ties are broken."""
        return _by_blocks(
            self._check_scores(S), lambda block: winning_exemplar(self._calibrate(block), self.tie_breaker(block))
        )

    @abstractmethod
    def _calibrate(self, scores: FloatArray) -> FloatArray:
        """The pure arithmetic of `transform`, on scores that have been checked."""

    def _fit(self, scores: FloatArray, is_positive: NDArray[np.bool_]) -> None:
        """Learn; a calibrator that learns nothing leaves it at that."""

    def _accept(self, scores: FloatArray) -> NDArray[np.bool_]:
        """(n_windows,) whether the window is taken for positive."""
        return _by_blocks(scores, lambda block: self._calibrate(block).max(axis=1) > self._accept_above)

    def tie_breaker(self, scores: FloatArray) -> FloatArray:
        """Scores that decide between exemplars whose calibrated scores are equal."""
        return scores

    def _check_training(self, S: Any, y: Any) -> tuple[FloatArray, NDArray[np.bool_], np.ndarray]:
        """Checked scores, which windows are positive, and the two labels; notes the number and names of columns."""
        name = type(self).__name__
        if y is None:
            raise InputError(f"{name} requires y to be passed, but the target y is None")
        check_choice(self.missing, "missing", MISSING)
        scores = check_table(S, "S", self.missing)
        try:
            labels = column_or_1d(y, warn=True)
        except ValueError as error:
            raise InputError(f"`y` must have one label per window, shape ({len(scores)},): {error}") from error
        classes, is_positive = check_labels(labels, len(scores), pos_label=self.pos_label)
        validate_data(self, S if hasattr(S, "columns") else scores, skip_check_array=True)
        return scores, is_positive, classes

    def _check_scores(self, S: Any) -> FloatArray:
        """Checked scores for a fitted calibrator."""
        name = type(self).__name__
        try:
            check_is_fitted(self, "classes_")
        except NotFittedError as error:
            raise NotFittedInputError(f"This {name} is not fitted yet: call `fit` with scores and labels") from error
        check_choice(self.missing, "missing", MISSING)
        scores = check_table(S, "S", self.missing)
        try:
            validate_data(self, S if hasattr(S, "columns") else scores, reset=False, skip_check_array=True)
        except ValueError as error:
            raise InputError(f"`S` has other columns than in `fit`: {error}") from error
        return scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.allow_nan = self.missing == NOT_FIRED
        tags.classifier_tags.poor_score = True  # the columns are scores of detectors, not features to learn from
        return tags


def winning_exemplar(calibrated: FloatArray, tie_breaker: FloatArray) -> NDArray[np.intp]:
    """(n,) column of the highest calibrated score; equal ones by the higher `tie_breaker`, then by the lower index."""
    is_top = calibrated == calibrated.max(axis=1, keepdims=True)
    winners = is_top.argmax(axis=1)
    tied = np.flatnonzero(is_top.sum(axis=1) > 1)
    if len(tied):
        contenders = np.where(is_top[tied], tie_breaker[tied], -np.inf)
        is_decided = contenders.max(axis=1) > -np.inf
        winners[tied[is_decided]] = contenders[is_decided].argmax(axis=1)
    return winners


def _by_blocks(scores: FloatArray, function: Callable[[FloatArray], np.ndarray]) -> Any:
    """`function` of blocks of rows, so that no second table of the size of `scores` is held."""
    return np.concatenate([function(block) for _, block in row_blocks(scores)])
