"""Exemplar LDA: a linear detector per object in closed form, from the mean and covariance of the negatives.

In: descriptors of E objects and of M negatives. Out: `ExemplarLDA`, with the interface of `ExemplarSVMs`.
With mu and S the mean and the shrunk covariance of all negatives (Hariharan, Malik, Ramanan 2012), exemplar j gets

    w_j = S^-1 (x_j - mu)         f_j(x) = w_j.x - w_j.(x_j + mu) / 2

which is the dot product of whitened descriptors; it is 0 half way between the exemplar and the mean negative. Two
passes over the negatives and one d x d system serve all exemplars.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from eesvm._support.threads import n_threads, product_threads
from eesvm._support.validation import InputError, check_number
from eesvm.exemplars.rows import Rows
from eesvm.exemplars.svms import LinearExemplars, check_both_groups, check_training

_BLOCK_ROWS = 4096
_LEAST_SHARE = 1e-6  # of the mean variance, added to every one: keeps the system solvable without shrinkage


class ExemplarLDA(LinearExemplars):
    """One linear discriminant per exemplar against the statistics of shared negatives.

    Parameters
    ----------
    shrinkage : 0 to 1, how far the covariance is drawn towards a multiple of the identity; "auto" is the amount of
        Ledoit and Wolf (2004).
    n_jobs : threads of the matrix products, None for one per core.

    Attributes
    ----------
    coef_, intercept_ : (E, d) and (E,) float32.
    mean_, covariance_ : (d,) and (d, d) float64 of the negatives, the covariance after shrinkage.
    shrinkage_ : the amount used.
    """

    def __init__(self, shrinkage: float | str = "auto", n_jobs: int | None = None) -> None:
        self.shrinkage = shrinkage
        self.n_jobs = n_jobs

    def fit(self, exemplars: Any, negatives: Any, exemplar_groups: Any = None, negative_groups: Any = None) -> Self:
        """Train one detector for each exemplar.

        Parameters
        ----------
        exemplars : (E, d) descriptors.
        negatives : (M, d) array or `Rows`, at least two rows.
        exemplar_groups, negative_groups : (E,) and (M,), checked and otherwise ignored, so that the trainers can be
            exchanged.
        """
        self.check_parameters()
        positives, rows, _ = check_training(exemplars, negatives)
        check_both_groups(exemplar_groups, negative_groups, len(positives), rows.shape[0])
        if rows.shape[0] < 2:
            raise InputError("`negatives` must hold at least 2 rows, as their covariance is needed, got 1")
        with product_threads(self.n_jobs):
            statistics = background(rows)
            self.mean_ = statistics.mean
            amount = statistics.shrinkage if self.shrinkage == "auto" else float(self.shrinkage)
            self.shrinkage_ = amount
            self.covariance_ = shrunk(statistics.covariance, amount)
            difference = positives - self.mean_
            weights = linalg.solve(self.covariance_, difference.T, assume_a="pos").T
        self.coef_ = weights.astype(np.float32)
        self.intercept_ = (-np.einsum("ed,ed->e", weights, positives + self.mean_) / 2).astype(np.float32)
        self.n_features_in_ = positives.shape[1]
        return self

    def check_parameters(self) -> None:
        """Refuse parameters that cannot be trained with."""
        n_threads(self.n_jobs)
        if isinstance(self.shrinkage, str) and self.shrinkage != "auto":
            raise InputError(f"`shrinkage` must be a number from 0 to 1 or 'auto', got {self.shrinkage!r}")
        if self.shrinkage != "auto":
            check_number(self.shrinkage, "shrinkage", minimum=0, maximum=1)


@dataclass(frozen=True)
class Background:
    """What LDA needs to know of the negatives."""

    mean: NDArray[np.float64]  # (d,)
    covariance: NDArray[np.float64]  # (d, d)
    shrinkage: float  # the amount of Ledoit and Wolf


def background(rows: Rows) -> Background:
    """Mean, covariance and amount of shrinkage, in two passes over the rows."""
    n, d = rows.shape
    mean = np.zeros(d)
    for _, block in rows.blocks(_BLOCK_ROWS):
        mean += block.sum(axis=0, dtype=np.float64)
    mean /= n
    covariance, fourth_powers = np.zeros((d, d)), 0.0
    for _, block in rows.blocks(_BLOCK_ROWS):
        centred = block - mean.astype(np.float32)
        covariance += centred.T @ centred
        fourth_powers += float((np.einsum("nd,nd->n", centred, centred).astype(np.float64) ** 2).sum())
    covariance /= n
    if np.trace(covariance) < np.finfo(np.float32).tiny * d:
        raise InputError("`negatives` vary by too little for float32: scale them")
    return Background(mean, covariance, _ledoit_wolf(covariance, fourth_powers / n, n))


def shrunk(covariance: NDArray[np.float64], amount: float) -> NDArray[np.float64]:
    """The covariance, drawn towards the identity times its mean variance."""
    d = len(covariance)
    variance = np.trace(covariance) / d
    drawn = (1 - amount) * covariance
    drawn[np.diag_indices(d)] += (amount + _LEAST_SHARE) * variance
    return drawn


def _ledoit_wolf(covariance: NDArray[np.float64], fourth_power: float, n: int) -> float:
    """How much of the covariance is noise: its expected squared error over its squared distance from the target.

    `fourth_power` is the mean of |x - mean|^4.
    """
    d = len(covariance)
    square = float((covariance**2).sum())
    distance = square - np.trace(covariance) ** 2 / d
    if distance <= 0:
        return 1.0
    return float(np.clip((fourth_power - square) / n / distance, 0, 1))
