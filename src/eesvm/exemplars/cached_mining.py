"""Mining with a cache of hard negatives per exemplar, as the original exemplar SVM code does it.

In: exemplars, negatives in blocks, and the image of each. Out: exemplars that were trained on their caches. A round
looks at a batch of images with the current exemplars: negatives that score above -1 and are not in an exemplar's cache
join it, the highest first; the exemplar is trained on its cache, and keeps its support and some of the nearest others.
It has enough when all images in a row gave it nothing new.
A cache that is smaller than the support gives another SVM than all negatives would.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from eesvm.exemplars.rows import F32, Rows
from eesvm.exemplars.svms import (
    ExemplarSVMs,
    TrainingProgress,
    check_both_groups,
    check_prior,
    check_someone_is_left,
    check_training,
)

_BLOCK_ROWS = 4096


@dataclass(frozen=True)
class MiningOptions:
    """See `mining.mine`."""

    images_per_round: int
    windows_per_round: int
    cache_limit: int
    keep_factor: float
    max_passes: int


class CachedMining:
    """One run: the exemplars so far, their caches, and what each round brought."""

    def __init__(
        self, svms: ExemplarSVMs, exemplars: Any, rows: Rows, exemplar_images: Any, images: Any, options: MiningOptions
    ) -> None:
        self.svms, self.options, self.negatives = svms, options, rows
        self.positives, _, _ = check_training(exemplars, rows)
        n = len(self.positives)
        self.own_images, self.images = check_both_groups(exemplar_images, images, n, rows.shape[0])
        check_someone_is_left(self.own_images, self.images)
        self.trainer = clone(svms).set_params(checkpoint=None, progress=None)
        self.weights, self.biases, self.first_objective = _without_negatives(self.positives, svms)
        self.caches = [np.empty(0, dtype=np.int64) for _ in range(n)]  # increasing row numbers
        self.store = _Store(self.positives.shape[1])
        self.fitted: list[ExemplarSVMs | None] = [None] * n
        self.added: list[int] = []
        self.rounds = np.zeros(n, dtype=np.int64)
        self.converged = np.zeros(n, dtype=bool)

    def run(self) -> None:
        """Mine until every exemplar has enough, and give the exemplars to `svms`."""
        started = time.perf_counter()
        for _ in range(self.options.max_passes):
            waiting = np.flatnonzero(~self.converged)
            has_new = np.zeros(len(self.positives), dtype=bool)
            found: dict[int, _Candidates] = {}
            for start, block, ends_round in self._pieces():
                self._look(start, block, waiting, found)
                if ends_round:
                    has_new[list(found)] = True
                    self._train(found)
                    found = {}
                    self._report(started)
            self.converged[waiting] = ~has_new[waiting]
            if self.converged.all():
                break
        self._report(started)
        self._hand_over()

    def n_cached(self) -> NDArray[np.int64]:
        return np.array([len(cache) for cache in self.caches])

    def _pieces(self) -> Iterator[tuple[int, F32, bool]]:
        """(first row, rows, whether they end a round); a round ends after a number of images, and with the last row."""
        is_first = np.concatenate([[True], self.images[1:] != self.images[:-1]])
        ends = np.append(np.flatnonzero(is_first)[self.options.images_per_round :: self.options.images_per_round], 0)
        ends[-1] = self.negatives.shape[0]
        for start, block in self.negatives.blocks(_BLOCK_ROWS):
            cuts = ends[(ends > start) & (ends < start + len(block))]
            bounds = [start, *map(int, cuts), start + len(block)]
            for low, high in pairwise(bounds):
                yield low, block[low - start : high - start], high in ends

    def _look(self, start: int, block: F32, waiting: NDArray[np.intp], found: dict[int, _Candidates]) -> None:
        """Note the negatives of a block that score above -1, for each exemplar that does not have them."""
        scores = block @ self.weights[waiting].T + self.biases[waiting]
        is_hard = scores > -1 + self.svms.tol
        is_hard &= self.images[start : start + len(block), None] != self.own_images[waiting]
        for column in np.flatnonzero(is_hard.any(axis=0)):
            j, local = int(waiting[column]), np.flatnonzero(is_hard[:, column])
            local = local[~np.isin(start + local, self.caches[j], assume_unique=True)]
            if len(local):
                candidates = found.setdefault(j, _Candidates(self.options.windows_per_round))
                candidates.add(start + local, scores[local, column])

    def _train(self, found: dict[int, _Candidates]) -> None:
        """Train the exemplars that found something, and trim their caches."""
        self.added.append(sum(len(candidates.indices) for candidates in found.values()))
        if found:
            self.store.add(np.unique(np.concatenate([c.indices for c in found.values()])), self.negatives)
        for j, candidates in found.items():
            self.caches[j] = self._fit_one(j, np.sort(np.concatenate([self.caches[j], candidates.indices])))
            self.rounds[j] = len(self.added)
        self.store.keep(np.unique(np.concatenate(self.caches)))

    def _fit_one(self, j: int, cache: NDArray[np.int64]) -> NDArray[np.int64]:
        """Train exemplar j on its cache; returns what it keeps."""
        rows = self.store.take(cache)
        if len(rows) > 1 and (rows == rows[0]).all():
            rows = rows[:1]  # one window, cut out again and again
            cache = cache[:1]
        svm = clone(self.trainer).fit(self.positives[j : j + 1], rows)
        self.fitted[j], self.weights[j], self.biases[j] = svm, svm.coef_[0], svm.intercept_[0]
        scores = rows @ svm.coef_[0] + svm.intercept_[0]
        n_kept = max(int((scores >= -1).sum()), int(np.ceil(self.options.keep_factor * svm.n_support_[0])), 1)
        nearest = np.argsort(-scores, kind="stable")[: min(n_kept, self.options.cache_limit)]
        return np.sort(cache[nearest])

    def _report(self, started: float) -> None:
        if self.svms.progress is not None:
            n_done, seconds = int(self.converged.sum()), time.perf_counter() - started
            self.svms.progress(TrainingProgress(n_done, len(self.positives), len(self.added), seconds))

    def _hand_over(self) -> None:
        """Make `svms` look as after `fit`; the evidence of each exemplar is about its cache."""
        svms = self.svms
        svms.coef_, svms.intercept_ = self.weights, self.biases
        svms.n_features_in_ = self.positives.shape[1]
        for name in ("objective_", "gap_", "violation_", "n_support_"):  # nothing to complain of without a cache
            values = [0.0 if svm is None else getattr(svm, name)[0] for svm in self.fitted]
            setattr(svms, name, np.array(values, dtype=np.int64 if name == "n_support_" else np.float64))
        untouched = np.array([svm is None for svm in self.fitted])
        svms.objective_[untouched] = self.first_objective[untouched]
        svms.n_scans_, svms.added_ = self.rounds, tuple(self.added)
        is_solved = np.array([svm is None or bool(svm.converged_[0]) for svm in self.fitted])
        svms.converged_ = self.converged & is_solved


class _Candidates:
    """The highest-scoring negatives of a round, for one exemplar."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.indices = np.empty(0, dtype=np.int64)
        self.scores = np.empty(0, dtype=np.float32)

    def add(self, indices: NDArray[np.int64], scores: F32) -> None:
        indices, scores = np.concatenate([self.indices, indices]), np.concatenate([self.scores, scores])
        best = np.argsort(-scores, kind="stable")[: self.limit]
        self.indices, self.scores = indices[best], scores[best]


class _Store:
    """The rows that are in some cache."""

    def __init__(self, n_dimensions: int) -> None:
        self.indices = np.empty(0, dtype=np.int64)  # increasing
        self.rows = np.empty((0, n_dimensions), dtype=np.float32)

    def add(self, indices: NDArray[np.int64], negatives: Rows) -> None:
        new = np.setdiff1d(indices, self.indices, assume_unique=True)
        both = np.concatenate([self.indices, new])
        order = np.argsort(both)
        self.indices, self.rows = both[order], np.concatenate([self.rows, negatives.take(new)])[order]

    def take(self, indices: NDArray[np.int64]) -> F32:
        return self.rows[np.searchsorted(self.indices, indices)]

    def keep(self, indices: NDArray[np.int64]) -> None:
        kept = np.searchsorted(self.indices, indices)
        self.indices, self.rows = self.indices[kept], self.rows[kept]


def _without_negatives(positives: F32, svms: ExemplarSVMs) -> tuple[F32, F32, NDArray[np.float64]]:
    """Weights, biases and criterion before there is a negative: the prior, and the best step towards the exemplar.

    A step of length a adds a x to the weights. It costs a^2 |x|^2 / 2, and a |x|^2 of what the prior leaves to be done.
    """
    weights, bias = check_prior(svms.prior, positives.shape[1])
    cost, feature = svms.C * svms.positive_weight, svms.bias_multiplier**2
    squares = np.einsum("ed,ed->e", positives, positives).astype(np.float64) + feature
    missing = np.maximum(1 - (positives @ weights + bias), 0).astype(np.float64)
    is_squared = svms.loss == "squared_hinge"
    steps = missing / (squares + 1 / (2 * cost)) if is_squared else np.minimum(missing / squares, cost)
    left = missing - steps * squares
    objective = steps**2 * squares / 2 + cost * (left**2 if is_squared else left)
    moved = weights + steps.astype(np.float32)[:, None] * positives
    return moved, (bias + steps * feature).astype(np.float32), objective
