"""The answer of a search: thresholds, what they accept, and the evidence for it.

In: what a search found. Out: `CalibrationResult`, which always carries loss, lower bound, gap and status.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import FloatArray
from eesvm.calibration.anytime import recall_gap
from eesvm.calibration.certificate import Certificate
from eesvm.calibration.goal import RecallGoal


@dataclass(frozen=True)
class CalibrationResult:
    """Thresholds together with the evidence of how good they are.

    `lower_bound <= optimum <= loss`; `gap` is `(loss - lower_bound) / loss`. `status` says why the search ended:
    "optimal", "gap_reached", "time_limit", "node_limit" or "feasible" (a heuristic, or stopped by hand).

    Where recall was asked for, by `max_loss` or `min_precision`, `recall <= most recall possible <= recall_bound`; the
    loss is what the thresholds happen to pay, no `lower_bound` is looked for, and `history` holds the share of the
    positives that is left out and the bound on it.
    """

    thresholds: FloatArray  # (E,), +inf for a redundant detector
    loss: float  # as CalibrationProblem.loss computes it
    lower_bound: float
    status: str
    method: str
    assignment: NDArray[np.intp]  # (P,), the detector responsible for each positive, -1 where it is left out
    recall: float  # share of the positives' weight that is covered
    n_nodes: int
    seconds: float
    history: list[tuple[float, float, float]]  # (seconds, loss, lower bound) whenever one improved
    statistics: dict[str, Any] = field(default_factory=dict)
    certificate: Certificate | None = None  # evidence for the lower bound that can be checked without the search
    min_recall: float = 1.0  # the recall floor that the thresholds were asked to meet
    max_loss: float | None = None  # the budget that they were asked to keep while they cover as much as possible
    min_precision: float | None = None  # or the precision
    max_detectors: int | None = None  # how many detectors may be in use
    recall_bound: float = 1.0  # no thresholds within the budget, or at the precision, have more recall

    def __repr__(self) -> str:
        """One line: the arrays are for programs."""
        found = f"loss {self.loss:g}, lower bound {self.lower_bound:g}"
        if self.goal is not None:
            found = f"recall {self.recall:.4g}, at most {self.recall_bound:.4g}, loss {self.loss:g}"
        return f"CalibrationResult({self.status}, {found}, {len(self.thresholds)} thresholds, method {self.method})"

    @property
    def goal(self) -> RecallGoal | None:
        """What was asked for where it was recall, else None."""
        if self.max_loss is None and self.min_precision is None:
            return None
        return RecallGoal(self.max_loss, self.min_precision)

    @property
    def gap(self) -> float:
        """(loss - lower_bound) / loss; 0 means proven optimal, up to what rounding of fractional weights gives away.

        Where recall was asked for, (recall_bound - recall) / recall_bound.
        """
        if self.goal is not None:
            return recall_gap(self.recall, self.recall_bound)
        return (self.loss - self.lower_bound) / self.loss if self.loss > 0 else 0.0

    @property
    def active(self) -> NDArray[np.bool_]:
        """(E,) False for the redundant detectors, whose threshold is +inf: they accept nothing."""
        return np.asarray(self.thresholds) < np.inf

    @property
    def n_redundant(self) -> int:
        """How many detectors accept nothing."""
        return int((~self.active).sum())
