"""The question and the shape of an answer: dataclasses of arrays that have been checked.

In: positives, negatives and a criterion. Out: `TrainingProblem` for the solver, `Solution` from it.
Not here: solving; checking what a user passed, which is done in `exemplars`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from eesvm.exemplars.rows import F32, Rows

F64 = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Objective:
    """The criterion in the package's docstring."""

    positive_cost: float  # C+
    negative_cost: float  # C-
    is_squared: bool
    bias_multiplier: float  # B; 0 means no bias

    def loss(self, shortfalls: F64) -> F64:
        """Of rows that miss their margin by so much."""
        hinge = np.maximum(shortfalls, 0)
        return hinge**2 if self.is_squared else hinge


@dataclass(frozen=True)
class Margins:
    """What each row must reach, (E,) and (M,); 1 for a plain SVM. A prior f0 turns 1 into 1 - y f0(x)."""

    positives: F64
    negatives: F64


@dataclass(frozen=True)
class TrainingProblem:
    """Exemplars that are trained together."""

    positives: F32  # (E, d)
    negatives: Rows  # (M, d)
    objective: Objective
    margins: Margins
    squares: F32  # (M,) squared lengths of the negatives
    positive_groups: Integers  # (E,) and (M,): a negative of an exemplar's group is none of its negatives
    negative_groups: Integers

    @cached_property
    def difference(self) -> float:
        """By how much a positive more or less moves scores, at most and on average, in units of the margin."""
        spread = self.positives - self.positives.mean(axis=0)
        return self.objective.positive_cost * float(np.einsum("nd,nd->n", spread, spread).mean())

    @property
    def has_alike_exemplars(self) -> bool:
        """Whether that is less than the margin, so that the SVMs are close together."""
        return self.difference < 1

    def part(self, members: NDArray[np.intp]) -> TrainingProblem:
        """The same for some of the exemplars."""
        margins = Margins(self.margins.positives[members], self.margins.negatives)
        return TrainingProblem(
            self.positives[members],
            self.negatives,
            self.objective,
            margins,
            self.squares,
            self.positive_groups[members],
            self.negative_groups,
        )


@dataclass(frozen=True)
class Budget:
    """Memory for training, in bytes. One that is not strict gives way to what a single exemplar cannot do without."""

    n_bytes: int
    is_strict: bool = True


@dataclass(frozen=True)
class Solution:
    """One row per exemplar."""

    weights: F32  # (E, d)
    biases: F32  # (E,)
    objective: F64  # (E,) value of the criterion over all negatives
    gap: F64  # (E,) (criterion - its lower bound from the dual) / criterion, over all negatives
    violation: F64  # (E,) how far the worst row is from its optimality condition at the weights, in units of the margin
    n_support: Integers  # (E,) negatives with a positive dual variable
    n_scans: Integers  # (E,) looks at all negatives until it was done
    added: tuple[int, ...]  # negatives that came into the pool after each scan, summed where exemplars were split
    pool_size: int  # the largest number of negatives held at a time
