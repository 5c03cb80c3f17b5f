"""The single linear SVM per class, as in R-CNN: the baseline of the paper, and the prior of exemplars.

In: descriptors of all objects of a class, and of negative windows, an array or `Rows`. Out: `LinearSVM` with one weight
vector and bias. The recipe: hinge, C 1e-3, positives count twice, bias feature 10, one epoch of hard negatives: a
window that scores above -1.0001 joins the cache, and with every 2,000 new ones the SVM is trained again on the cache
and what scores below -1.2 is dropped. Descriptors should have a mean length of 20; scaling them is up to the caller.
The cache is small, so scikit-learn's liblinear does.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from eesvm._support.not_fitted import NotFittedInputError
from eesvm._support.validation import InputError, check_choice, check_number
from eesvm.exemplars.choices import LOSSES
from eesvm.exemplars.rows import F32, Rows, as_float32, as_rows, look_at_rows
from eesvm.exemplars.scoring import score_windows

_MAX_ITERATIONS = 100_000
_one_at_a_time = threading.Lock()  # the random numbers of liblinear are the same for all threads


@dataclass(frozen=True)
class TrainingRound:
    """One time the SVM was trained."""

    n_seen: int  # negatives looked at so far, counting each epoch
    n_added: int  # hard negatives that came in
    n_cached: int  # negatives it was trained on
    n_dropped: int  # of those, easy enough afterwards


class LinearSVM(BaseEstimator):
    """One linear SVM for a class, trained with hard negatives.

    Parameters
    ----------
    C, positive_weight, loss, bias_multiplier : of the criterion, as in `ExemplarSVMs`; the defaults are R-CNN's.
    n_epochs : times that all negatives are gone through; it ends earlier when an epoch finds no hard one.
    hard_above, drop_below : a negative that scores above the first joins the cache, one that scores below the second
        leaves it.
    retrain_every : hard negatives after which the SVM is trained again.
    tol : of liblinear.
    random_state : seeds the order in which liblinear goes through the rows.

    Attributes
    ----------
    coef_, intercept_ : (d,) float32 and a float.
    rounds_ : a `TrainingRound` for each time it was trained.
    """

    def __init__(
        self,
        C: float = 1e-3,
        positive_weight: float = 2.0,
        loss: str = "hinge",
        bias_multiplier: float = 10.0,
        n_epochs: int = 1,
        hard_above: float = -1.0001,
        drop_below: float = -1.2,
        retrain_every: int = 2000,
        tol: float = 1e-4,
        random_state: int = 0,
    ) -> None:
        self.C = C
        self.positive_weight = positive_weight
        self.loss = loss
        self.bias_multiplier = bias_multiplier
        self.n_epochs = n_epochs
        self.hard_above = hard_above
        self.drop_below = drop_below
        self.retrain_every = retrain_every
        self.tol = tol
        self.random_state = random_state

    def fit(self, positives: Any, negatives: Any) -> Self:
        """Train on the positives and the hard ones among the negatives.

        Parameters
        ----------
        positives : (P, d) descriptors.
        negatives : (M, d) array or `Rows`.
        """
        self._check_parameters()
        own = as_float32(positives, "positives")
        rows = as_rows(negatives, "negatives")
        if len(own) == 0 or rows.shape[0] == 0:
            raise InputError(f"`{'positives' if len(own) == 0 else 'negatives'}` is empty: at least one row is needed")
        if rows.shape[1] != own.shape[1]:
            raise InputError(f"`negatives` must have {own.shape[1]} columns, as `positives` have, got {rows.shape[1]}")
        look_at_rows(rows, "negatives")
        self.rounds_: list[TrainingRound] = []
        cache = _Cache(own.shape[1])
        n_seen = 0
        for _ in range(self.n_epochs):
            n_seen = self._go_through(own, rows, cache, n_seen)
            if not cache.n_new_in_epoch:
                break
        self.n_features_in_ = own.shape[1]
        return self

    def decision_function(self, X: Any) -> F32:
        """(n,) scores of the windows `X` (n, d)."""
        if not hasattr(self, "coef_"):
            raise NotFittedInputError("This LinearSVM is not fitted yet: call `fit` with positives and negatives")
        return score_windows(X, self.coef_[None, :], [self.intercept_])[:, 0]

    def _check_parameters(self) -> None:
        check_number(self.C, "C", above=0)
        check_number(self.positive_weight, "positive_weight", above=0)
        check_choice(self.loss, "loss", LOSSES)
        check_number(self.bias_multiplier, "bias_multiplier", minimum=0)
        check_number(self.n_epochs, "n_epochs", minimum=1, integer=True)
        check_number(self.hard_above, "hard_above", maximum=0)
        check_number(self.drop_below, "drop_below", maximum=self.hard_above)
        check_number(self.retrain_every, "retrain_every", minimum=1, integer=True)
        check_number(self.tol, "tol", above=0)
        check_number(self.random_state, "random_state", minimum=0, integer=True)

    def _go_through(self, positives: F32, rows: Rows, cache: _Cache, n_seen: int) -> int:
        """One epoch; before there is an SVM, every negative is hard."""
        cache.n_new_in_epoch = cache.n_pending = 0
        for start, block in rows.blocks(self.retrain_every):
            hard = np.arange(len(block))
            if self.rounds_:
                hard = np.flatnonzero(block @ self.coef_ + np.float32(self.intercept_) > self.hard_above)
            cache.add(start + hard, block[hard])
            n_seen += len(block)
            if cache.n_pending >= self.retrain_every or not self.rounds_:
                self._train(positives, cache, n_seen)
        if cache.n_pending:
            self._train(positives, cache, n_seen)
        return n_seen

    def _train(self, positives: F32, cache: _Cache, n_seen: int) -> None:
        n_added, n_cached = cache.n_pending, len(cache.indices)
        X = np.concatenate([positives, cache.rows])
        y = np.arange(len(X)) < len(positives)
        from sklearn.svm import LinearSVC  # here, because it loads much that only this function needs

        svm = LinearSVC(
            C=self.C,
            loss=self.loss,
            class_weight={True: self.positive_weight, False: 1.0},
            fit_intercept=self.bias_multiplier > 0,
            intercept_scaling=self.bias_multiplier or 1.0,
            tol=self.tol,
            dual=True,
            max_iter=_MAX_ITERATIONS,
            random_state=self.random_state,
        )
        with _one_at_a_time:
            svm.fit(X, y)
        if svm.n_iter_ >= _MAX_ITERATIONS:
            raise InputError(
                f"the SVM did not converge in {_MAX_ITERATIONS:,} iterations: scale the descriptors to a mean "
                "length of about 20, or choose a smaller C"
            )
        self.coef_ = svm.coef_[0].astype(np.float32)
        self.intercept_ = float(np.ravel(svm.intercept_)[0])
        n_dropped = cache.drop(cache.rows @ self.coef_ + np.float32(self.intercept_) < self.drop_below)
        self.rounds_.append(TrainingRound(n_seen, n_added, n_cached, n_dropped))


class _Cache:
    """The hard negatives of the moment."""

    def __init__(self, n_dimensions: int) -> None:
        self.indices = np.empty(0, dtype=np.int64)
        self.rows = np.empty((0, n_dimensions), dtype=np.float32)
        self.n_pending = self.n_new_in_epoch = 0

    def add(self, indices: NDArray[np.int64], rows: F32) -> None:
        """Take in those that are not here."""
        is_new = ~np.isin(indices, self.indices)
        self.indices = np.concatenate([self.indices, indices[is_new]])
        self.rows = np.concatenate([self.rows, rows[is_new]])
        self.n_pending += int(is_new.sum())
        self.n_new_in_epoch += int(is_new.sum())

    def drop(self, is_easy: NDArray[np.bool_]) -> int:
        self.indices, self.rows = self.indices[~is_easy], self.rows[~is_easy]
        self.n_pending = 0
        return int(is_easy.sum())
