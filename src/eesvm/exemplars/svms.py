"""Exemplar SVMs: one linear SVM per object, its own descriptor the only positive, trained together.

In: descriptors of E objects and of M negative windows, optionally the image of each and a prior. Out: `ExemplarSVMs`
with E weight vectors and biases, each with the evidence of how far from optimal it can be. For exemplar j

    min  1/2 (|v|^2 + (b/B)^2) + C w+ loss(1 - f_j(x_j)) + C sum_n loss(1 + f_j(x_n))      f_j(x) = f_prior(x) + v.x + b

with the hinge or its square as loss. B is `bias_multiplier`: the bias is the weight of a constant feature B, as in
liblinear, so it is penalised, and the less the larger B is.
Not here: what is a negative (`mining`), and solving (`solver`).
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from eesvm._support.checkpoints import FORMAT, Checkpoints
from eesvm._support.digests import digest
from eesvm._support.not_fitted import NotFittedInputError
from eesvm._support.threads import Workers, n_threads, workers
from eesvm._support.validation import (
    InputError,
    check_choice,
    check_finite,
    check_groups,
    check_number,
    group_ids,
)
from eesvm.exemplars.choices import LOSSES
from eesvm.exemplars.rows import F32, RowFacts, Rows, as_float32, as_rows, look_at_rows
from eesvm.exemplars.scoring import score_windows
from eesvm.exemplars.solver import Budget, Margins, Objective, Solution, TrainingProblem, solve_together

_LEAST_BUDGET = 96 << 20  # bytes of the default budget; half the size of the negatives where that is more
_MAX_BLOCK = 1024  # exemplars trained together
_MAX_CHECKPOINT_BLOCK = 256  # so that little is lost
_LEAST_COST, _MAX_STEEPNESS, _MAX_MARGIN = 1e-30, 1e12, 1e9  # far from where float32 or float64 give out
_SHARE_OF_EXEMPLARS = 4  # at most 1 / this of the budget for what does not depend on the negatives


@dataclass(frozen=True)
class TrainingProgress:
    """What a progress callback receives after each look at all negatives, or each round of cached mining."""

    n_done: int
    n_exemplars: int
    n_scans: int  # such looks by the block of exemplars that is trained now; rounds
    seconds: float


class LinearExemplars(BaseEstimator):
    """What the trainers of exemplars share: `coef_` (E, d), `intercept_` (E,) and scores."""

    coef_: F32
    intercept_: F32
    n_features_in_: int

    def check_parameters(self) -> None:
        """Refuse parameters that cannot be trained with."""
        raise NotImplementedError

    def decision_function(self, X: Any) -> F32:
        """(n, E) scores of the windows `X` (n, d)."""
        if not hasattr(self, "coef_"):
            name = type(self).__name__
            raise NotFittedInputError(f"This {name} is not fitted yet: call `fit` with exemplars and negatives")
        return score_windows(X, self.coef_, self.intercept_, n_jobs=getattr(self, "n_jobs", None))


class ExemplarSVMs(LinearExemplars):
    """One SVM per exemplar against shared negatives.

    Parameters
    ----------
    C : weight of the losses; 1e-4 is the paper's, for descriptors of mean length 20.
    positive_weight : times C, the weight of the exemplar's own loss.
    loss : "hinge" or "squared_hinge".
    prior : (weights (d,), bias), or a fitted linear SVM of the class, which every exemplar bends towards itself: only
        the difference from it is penalised. None is the plain exemplar SVM.
    bias_multiplier : the constant feature B whose weight is the bias; 0 trains without bias.
    tol : for every exemplar, its duality gap is at most `tol` of its objective, and no row misses its optimality
        condition by more than `tol` of the margin.
    memory_budget : bytes for training, besides negatives, exemplars and results; exemplars are trained in smaller
        groups where it asks for that. None: 96 MiB, or half the size of the negatives where that is more, or what a
        single exemplar needs where even that is more; (d, d) matrices per thread come on top: a few, or some thirty
        where d is small.
    checkpoint : folder in which finished blocks of exemplars are kept; an interrupted `fit` is resumed from there.
    progress : called with a `TrainingProgress`.
    n_jobs : threads, None for one per core.

    Attributes
    ----------
    coef_, intercept_ : (E, d) and (E,) float32, prior included.
    objective_ : (E,) value of the criterion over all negatives.
    gap_ : (E,) at most this part of it could be saved; the duality gap.
    violation_ : (E,) how far the worst row is from its optimality condition at the weights, in units of the margin.
    n_support_ : (E,) supporting negatives.
    n_scans_ : (E,) looks at all negatives until the exemplar was done.
    added_ : negatives that were taken into consideration after each look, over all exemplars; where all were from the
        beginning, those that support any.
    converged_ : (E,) bool, whether `tol` was reached.
    """

    def __init__(
        self,
        C: float = 1e-4,
        positive_weight: float = 1.0,
        loss: str = "hinge",
        prior: Any = None,
        bias_multiplier: float = 1.0,
        tol: float = 1e-3,
        memory_budget: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Callable[[TrainingProgress], object] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.C = C
        self.positive_weight = positive_weight
        self.loss = loss
        self.prior = prior
        self.bias_multiplier = bias_multiplier
        self.tol = tol
        self.memory_budget = memory_budget
        self.checkpoint = checkpoint
        self.progress = progress
        self.n_jobs = n_jobs

    @classmethod
    def original(cls, **options: Any) -> Self:
        """The settings of the original exemplar SVM code: C 0.01 and positive weight 50."""
        return cls(**{"C": 0.01, "positive_weight": 50.0, **options})

    def fit(
        self,
        exemplars: Any,
        negatives: Any,
        exemplar_groups: Any = None,
        negative_groups: Any = None,
    ) -> Self:
        """Train one SVM for each exemplar.

        Parameters
        ----------
        exemplars : (E, d) descriptors.
        negatives : (M, d) array or `Rows`.
        exemplar_groups, negative_groups : (E,) and (M,) groups, such as image names; the negatives of an exemplar's own
            group are not its negatives. Both or neither.
        """
        problem, facts = self._problem(exemplars, negatives, exemplar_groups, negative_groups)
        n_blocks = self.n_blocks(len(problem.positives), *problem.negatives.shape)
        return self.join(self._solve_blocks(problem, facts, range(n_blocks), n_blocks))

    def fit_blocks(
        self,
        numbers: Sequence[int],
        n_blocks: int,
        exemplars: Any,
        negatives: Any,
        exemplar_groups: Any = None,
        negative_groups: Any = None,
    ) -> list[Solution]:
        """Train some of the blocks of exemplars that `fit` trains in turn, for a training in several places.

        Parameters
        ----------
        numbers : of the blocks to train, from 0.
        n_blocks : how many there are in all, see `n_blocks`.
        exemplars, negatives, exemplar_groups, negative_groups : of all blocks, see `fit`.

        Returns
        -------
        list : a solution for each block; `join` wants those of all blocks.
        """
        problem, facts = self._problem(exemplars, negatives, exemplar_groups, negative_groups)
        return self._solve_blocks(problem, facts, numbers, n_blocks)

    def join(self, solutions: Sequence[Solution]) -> Self:
        """What `fit` learns from the solutions of all blocks, in their order."""
        self._learn(solutions, *check_prior(self.prior, solutions[0].weights.shape[1]))
        return self

    def n_blocks(self, n_exemplars: int, n_negatives: int, n_dimensions: int) -> int:
        """In how many blocks `fit` trains a number of exemplars.

        Parameters
        ----------
        n_exemplars : how many are trained.
        n_negatives, n_dimensions : shape of the negatives.
        """
        size = self._budget(n_negatives, n_dimensions).n_bytes // _SHARE_OF_EXEMPLARS // (16 * (n_dimensions + 1))
        return -(-n_exemplars // max(1, min(size, _MAX_BLOCK if self.checkpoint is None else _MAX_CHECKPOINT_BLOCK)))

    def _problem(
        self, exemplars: Any, negatives: Any, exemplar_groups: Any, negative_groups: Any
    ) -> tuple[TrainingProblem, RowFacts]:
        self.check_parameters()
        positives, rows, facts = check_training(exemplars, negatives, self.checkpoint is not None)
        groups = check_both_groups(exemplar_groups, negative_groups, len(positives), rows.shape[0])
        check_someone_is_left(*groups)
        weights, bias = check_prior(self.prior, positives.shape[1])
        objective = Objective(self.C * self.positive_weight, self.C, self.loss == "squared_hinge", self.bias_multiplier)
        _check_steepness(objective, positives, facts)
        margins = _margins(positives, rows, weights, bias)
        return TrainingProblem(positives, rows, objective, margins, facts.squares, *groups), facts

    def check_parameters(self) -> None:
        """Refuse parameters that cannot be trained with."""
        check_number(self.C, "C", above=0)
        check_number(self.positive_weight, "positive_weight", above=0)
        check_choice(self.loss, "loss", LOSSES)
        check_number(self.bias_multiplier, "bias_multiplier", minimum=0)
        check_number(self.tol, "tol", minimum=1e-5, maximum=0.5)
        if self.memory_budget is not None:
            check_number(self.memory_budget, "memory_budget", minimum=1, integer=True)
        n_threads(self.n_jobs)
        if self.progress is not None and not callable(self.progress):
            raise InputError(f"`progress` must be a function, got {self.progress!r}")

    def _solve_blocks(
        self, problem: TrainingProblem, facts: RowFacts, numbers: Sequence[int], n_blocks: int
    ) -> list[Solution]:
        blocks = np.array_split(np.arange(len(problem.positives)), n_blocks)
        with workers(self.n_jobs) as threads:
            return self._solve(problem, facts, [blocks[number] for number in numbers], threads)

    def _solve(
        self, problem: TrainingProblem, facts: RowFacts, blocks: Sequence[NDArray[np.intp]], threads: Workers
    ) -> list[Solution]:
        started, n_exemplars = time.perf_counter(), len(problem.positives)
        budget = self._budget(*problem.negatives.shape)
        kept = None if self.checkpoint is None else Checkpoints(self.checkpoint)
        solutions: list[Solution] = []
        for members in blocks:
            n_before = int(members[0])

            def report(n_done: int, n_scans: int, n_before: int = n_before) -> None:
                if self.progress is not None:
                    seconds = time.perf_counter() - started
                    self.progress(TrainingProgress(n_before + n_done, n_exemplars, n_scans, seconds))

            block = problem.part(members)
            key = "" if kept is None else self._key(block, facts)
            solution = None if kept is None else _from_arrays(kept.load(key), block.positives.shape)
            if solution is None:
                solution = solve_together(block, self.tol, budget, threads, report)
                if kept is not None:
                    kept.save(key, _as_arrays(solution))
            solutions.append(solution)
        return solutions

    def _budget(self, n_negatives: int, n_dimensions: int) -> Budget:
        if self.memory_budget is not None:
            return Budget(int(self.memory_budget))
        return Budget(max(_LEAST_BUDGET, 2 * n_negatives * n_dimensions), is_strict=False)

    def _key(self, block: TrainingProblem, facts: RowFacts) -> str:
        parameters = {
            **{name: float(getattr(self, name)) for name in ("C", "positive_weight", "bias_multiplier", "tol")},
            "loss": self.loss,
            "negatives": facts.digest,
        }
        groups, ids = np.unique(block.positive_groups, return_inverse=True)  # which numbers they have does not matter
        places = np.minimum(np.searchsorted(groups, block.negative_groups), len(groups) - 1)
        places[groups[places] != block.negative_groups] = -1
        margins = block.margins
        return digest([FORMAT, parameters], block.positives, margins.positives, margins.negatives, ids, places)

    def _learn(self, solutions: Sequence[Solution], weights: F32, bias: float) -> None:
        self.coef_ = np.concatenate([s.weights for s in solutions]) + weights
        self.intercept_ = np.concatenate([s.biases for s in solutions]) + np.float32(bias)
        self.objective_ = np.concatenate([s.objective for s in solutions])
        self.gap_ = np.concatenate([s.gap for s in solutions])
        self.violation_ = np.concatenate([s.violation for s in solutions])
        self.n_support_ = np.concatenate([s.n_support for s in solutions])
        self.n_scans_ = np.concatenate([s.n_scans for s in solutions])
        longest = max(len(s.added) for s in solutions)
        self.added_ = tuple(sum(s.added[k] for s in solutions if k < len(s.added)) for k in range(longest))
        self.converged_ = (self.gap_ <= self.tol) & (self.violation_ <= self.tol)
        self.n_features_in_ = self.coef_.shape[1]
        if not self.converged_.all():
            warnings.warn(
                f"{int((~self.converged_).sum())} of {len(self.converged_)} exemplars did not reach `tol` "
                f"{self.tol:g}: see `gap_` and `violation_`, and scale the descriptors or choose a smaller C",
                ConvergenceWarning,
                stacklevel=3,
            )


def check_training(exemplars: Any, negatives: Any, with_digest: bool = False) -> tuple[F32, Rows, RowFacts]:
    """Exemplars as float32, negatives as `Rows`, and what a look at the negatives tells."""
    positives = as_float32(exemplars, "exemplars")
    if len(positives) == 0:
        raise InputError("`exemplars` is empty: at least one is needed")
    is_zero = ~positives.any(axis=1)
    if is_zero.any():
        raise InputError(
            f"`exemplars` holds a descriptor of zeros, row {int(np.argmax(is_zero))}: it describes nothing"
        )
    rows = as_rows(negatives, "negatives")
    if rows.shape[0] == 0:
        raise InputError("`negatives` is empty: an exemplar SVM needs at least one negative")
    if rows.shape[1] != positives.shape[1]:
        raise InputError(
            f"`negatives` must have {positives.shape[1]} columns, as `exemplars` have, got {rows.shape[1]}"
        )
    facts = look_at_rows(rows, "negatives", with_digest)
    if facts.is_constant and rows.shape[0] > 1:
        raise InputError(f"`negatives` holds the same descriptor {rows.shape[0]} times: there is nothing to learn from")
    return positives, rows, facts


def check_both_groups(
    exemplar_groups: Any, negative_groups: Any, n_exemplars: int, n_negatives: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Groups as integers, the same ones for the same groups; without groups, numbers that are all apart."""
    if exemplar_groups is None and negative_groups is None:
        return np.full(n_exemplars, -1), np.zeros(n_negatives, dtype=np.int64)
    if exemplar_groups is None:
        raise InputError("`negative_groups` is given, `exemplar_groups` is not: the group of each exemplar is missing")
    if negative_groups is None:
        raise InputError("`exemplar_groups` is given, `negative_groups` is not: the group of each negative is missing")
    own = check_groups(exemplar_groups, n_exemplars, "exemplar_groups", "exemplar")
    others = check_groups(negative_groups, n_negatives, "negative_groups", "negative")
    ids = group_ids(own, others, names=("exemplar_groups", "negative_groups"))
    return ids[0].astype(np.int64), ids[1].astype(np.int64)


def check_someone_is_left(exemplar_groups: NDArray[np.int64], negative_groups: NDArray[np.int64]) -> None:
    """Refuse an exemplar whose own group holds all negatives."""
    groups = np.unique(negative_groups)
    if len(groups) == 1 and (exemplar_groups == groups[0]).any():
        index = int(np.argmax(exemplar_groups == groups[0]))
        raise InputError(f"`negative_groups` leaves exemplar {index} without negatives: all are of its own group")


def check_prior(prior: Any, n_dimensions: int) -> tuple[F32, float]:
    """(weights (d,), bias) of a prior, zeros for None."""
    if prior is None:
        return np.zeros(n_dimensions, dtype=np.float32), 0.0
    if hasattr(prior, "coef_") and hasattr(prior, "intercept_"):
        prior = np.squeeze(prior.coef_), prior.intercept_
    try:
        first, second = prior
        with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused as such
            weights, bias = np.array(first, dtype=np.float32), np.array(second, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("`prior` must be (weights, bias) or a fitted linear SVM with one weight vector") from error
    if weights.shape != (n_dimensions,) and weights.size == n_dimensions == 1:
        weights = weights.reshape(1)  # `squeeze` went one too far
    if weights.shape != (n_dimensions,) or bias.size != 1:
        raise InputError(
            f"`prior` must have weights of shape ({n_dimensions},) and one bias, got {weights.shape} and {bias.shape}"
        )
    check_finite(weights, "prior")
    check_finite(bias.reshape(1), "prior")
    return weights, float(bias.reshape(()))


def _check_steepness(objective: Objective, positives: F32, facts: RowFacts) -> None:
    """Refuse a criterion that floating-point numbers cannot follow, rather than return noise."""
    costs = objective.positive_cost, objective.negative_cost
    if min(costs) < _LEAST_COST:
        raise InputError(f"`C` and `positive_weight` must make costs of at least {_LEAST_COST:g}, got {min(costs):g}")
    square = max(float(np.einsum("nd,nd->n", positives, positives).max()), float(facts.squares.max()))
    steepness = max(costs) * (square + objective.bias_multiplier**2)
    if steepness > _MAX_STEEPNESS:
        raise InputError(
            "the cost, `C` or `C` times `positive_weight`, times the squared length of the longest descriptor, bias "
            f"feature included, is {steepness:.0e}, more than {_MAX_STEEPNESS:.0e}: scale the descriptors to a mean "
            "length of about 20, or choose a smaller C"
        )


def _margins(positives: F32, negatives: Rows, weights: F32, bias: float) -> Margins:
    """What is left to do after the prior: 1 - y f_prior(x)."""
    own, others = np.ones(len(positives)), np.ones(negatives.shape[0])
    if weights.any() or bias:
        with np.errstate(over="ignore", invalid="ignore"):
            own -= positives @ weights + bias
            for start, block in negatives.blocks(4096):
                others[start : start + len(block)] += block @ weights + bias
        largest = max(float(np.abs(own).max()), float(np.abs(others).max()))  # NaN where products overflowed
        if not largest <= _MAX_MARGIN:
            raise InputError(f"`prior` scores some descriptors beyond {_MAX_MARGIN:.0e}: scale it")
    return Margins(own, others)


def _as_arrays(solution: Solution) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in vars(solution).items()}


def _from_arrays(arrays: dict[str, np.ndarray] | None, shape: tuple[int, ...]) -> Solution | None:
    """The solution that `_as_arrays` took apart; None where it is not one."""
    if arrays is None or set(arrays) != set(Solution.__dataclass_fields__) or arrays["weights"].shape != shape:
        return None
    added, pool_size = tuple(int(n) for n in arrays.pop("added")), arrays.pop("pool_size").item()
    return Solution(**arrays, added=added, pool_size=pool_size)
