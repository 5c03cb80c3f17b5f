"""The single linear SVM per class, as in R-CNN: the baseline of the paper, and the prior of exemplars.

In: descriptors of all objects of a class, and of negative windows, an array or `Rows`. Out: `LinearSVM` with one weight
vector and bias. The recipe: hinge, C 1e-3, positives count twice, bias feature 10, one epoch of hard negatives: a
window that scores above -1.0001 joins the cache, and with every 2,000 new ones the SVM is trained again on the cache
and what scores below -1.2 is dropped. Descriptors should have a mean length of 20; scaling them is up to the caller.
The cache is small. With the hinge scikit-learn's liblinear does; with the squared hinge Newton's method is several
times faster, because it starts from the previous solution.
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
from eesvm.exemplars.solver.many_positives import MAX_STEEPNESS, RunningSVM
from eesvm.exemplars.solver.newton import MAX_WIDTH
from eesvm.exemplars.solver.problem import Objective

_MAX_ITERATIONS = 100_000
_GAP = 1e-2  # times `tol`, of the criterion, that Newton's method may leave
_SEVERAL = 4  # times `retrain_every`, hard negatives that a cache holds, about
_MOVED_TOGETHER = 256  # rows
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
    tol : of liblinear; with the squared hinge, at most a hundredth of it is left of the criterion on the cache.
    random_state : seeds the order in which liblinear goes through the rows; Newton's method has no need of it.

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
        facts = look_at_rows(rows, "negatives")
        self.rounds_: list[TrainingRound] = []
        cache = _Cache(own, rows.shape[0])
        running = self._running(own, float(facts.squares.mean(dtype=np.float64)))
        n_seen = 0
        for _ in range(self.n_epochs):
            n_seen = self._go_through(rows, cache, running, n_seen)
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

    def _running(self, positives: F32, mean_square: float) -> RunningSVM | None:
        """The Newton solver that is kept between rounds; None where liblinear is used."""
        if self.loss != "squared_hinge" or positives.shape[1] >= MAX_WIDTH:
            return None
        objective = Objective(self.C * self.positive_weight, self.C, True, self.bias_multiplier)
        steepness = objective.positive_cost * float(
            np.einsum("nd,nd->", positives, positives, dtype=np.float64)
        ) + objective.negative_cost * _SEVERAL * self.retrain_every * (mean_square + self.bias_multiplier**2)
        return None if steepness > MAX_STEEPNESS else RunningSVM(positives.shape[1], objective)

    def _go_through(self, rows: Rows, cache: _Cache, running: RunningSVM | None, n_seen: int) -> int:
        """One epoch; before there is an SVM, every negative is hard."""
        cache.begin_epoch()
        for start, block in rows.blocks(self.retrain_every):
            if self.rounds_:
                hard = np.flatnonzero(block @ self.coef_ + np.float32(self.intercept_) > self.hard_above)
                cache.add(start, hard, block)
            else:
                cache.add(start, np.arange(len(block)), block)
            n_seen += len(block)
            if cache.n_pending >= self.retrain_every or not self.rounds_:
                self._train(cache, running, n_seen)
        if cache.n_pending:
            self._train(cache, running, n_seen)
        return n_seen

    def _train(self, cache: _Cache, running: RunningSVM | None, n_seen: int) -> None:
        n_added, n_cached = cache.n_pending, len(cache)
        slopes = None
        if running is not None:
            slopes = running.fit(cache.all_rows, cache.n_positives, cache.is_counted, _GAP * self.tol)
        if running is not None and slopes is not None:
            self.coef_ = running.weights[:-1].astype(np.float32)
            self.intercept_ = float(running.weights[-1] * self.bias_multiplier)
            is_easy = slopes[cache.n_positives :] - 1 < self.drop_below
        else:
            self._train_liblinear(cache)
            is_easy = cache.rows @ self.coef_ + np.float32(self.intercept_) < self.drop_below
        if running is not None:
            running.leave(cache.rows[is_easy & cache.is_counted[cache.n_positives :]], self.C)
        n_dropped = cache.drop(is_easy)
        self.rounds_.append(TrainingRound(n_seen, n_added, n_cached, n_dropped))

    def _train_liblinear(self, cache: _Cache) -> None:
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
        X = cache.all_rows
        with _one_at_a_time:
            svm.fit(X, np.arange(len(X)) < cache.n_positives)
        if svm.n_iter_ >= _MAX_ITERATIONS:
            raise InputError(
                f"the SVM did not converge in {_MAX_ITERATIONS:,} iterations: scale the descriptors to a mean "
                "length of about 20, or choose a smaller C"
            )
        self.coef_ = svm.coef_[0].astype(np.float32)
        self.intercept_ = float(np.ravel(svm.intercept_)[0])


class _Cache:
    """The positives, and behind them the hard negatives of the moment."""

    def __init__(self, positives: F32, n_negatives: int) -> None:
        self.n_positives, self._end = len(positives), len(positives)
        self._buffer = positives.copy()
        self._is_counted = np.zeros(len(positives), dtype=bool)
        self._indices = np.empty(0, dtype=np.int64)
        self._is_held = np.zeros(n_negatives, dtype=bool)
        self.n_pending = self.n_new_in_epoch = 0

    def __len__(self) -> int:
        return self._end - self.n_positives

    @property
    def all_rows(self) -> F32:
        """(n, d) of positives and hard negatives."""
        return self._buffer[: self._end]

    @property
    def rows(self) -> F32:
        """(m, d) of hard negatives."""
        return self._buffer[self.n_positives : self._end]

    @property
    def is_counted(self) -> NDArray[np.bool_]:
        """(n,) notes of `RunningSVM`."""
        return self._is_counted[: self._end]

    def begin_epoch(self) -> None:
        self.n_new_in_epoch = self.n_pending = 0

    def add(self, start: int, hard: NDArray[np.intp], block: F32) -> None:
        """Take in those of the hard rows of a block that are not here; it begins with row `start` of all."""
        new = hard[~self._is_held[start + hard]]
        end = self._end + len(new)
        if end > len(self._buffer):
            self._grow(max(end, 2 * len(self._buffer)))
        np.take(block, new, axis=0, out=self._buffer[self._end : end], mode="clip")
        self._is_counted[self._end : end] = False
        self._indices[len(self) : len(self) + len(new)] = start + new
        self._is_held[start + new] = True
        self._end = end
        self.n_pending += len(new)
        self.n_new_in_epoch += len(new)

    def drop(self, is_easy: NDArray[np.bool_]) -> int:
        """Let go of some; the others keep their order, on which the last bits of liblinear depend."""
        kept = np.flatnonzero(~is_easy)
        n, n_kept = len(self), len(kept)
        self._is_held[self._indices[:n][is_easy]] = False
        rows, counted = self.rows, self.is_counted[self.n_positives :]
        for first in range(0, n_kept, _MOVED_TOGETHER):  # rows only move forward, so nothing is overwritten too early
            some = kept[first : first + _MOVED_TOGETHER]
            rows[first : first + len(some)] = rows[some]
        counted[:n_kept] = counted[kept]
        self._indices[:n_kept] = self._indices[kept]
        self._end = self.n_positives + n_kept
        self.n_pending = 0
        return n - n_kept

    def _grow(self, n: int) -> None:
        buffer = np.empty((n, self._buffer.shape[1]), dtype=np.float32)
        buffer[: self._end] = self._buffer[: self._end]
        self._buffer = buffer
        self._is_counted = np.resize(self._is_counted, n)
        self._indices = np.resize(self._indices, n - self.n_positives)
