"""The calibration problem (sections 3 and 4.1 of the paper).

In: the scores of positive and negative windows under every detector, optional weights, forbidden pairs and bounds on
the thresholds.
Out: `CalibrationProblem`, which can judge any thresholds in plain numpy.
Nothing here knows a solver, so it can be trusted to check all of them.

Conventions, decided once:
- Detector j accepts window x iff `s_j(x) > theta_j`, strictly. A negative that ties with a positive cannot be
  separated from it: whoever accepts the positive accepts the negative.
- A threshold is the mean of the lowest accepted positive score and the highest negative score below it. Where no
  negative is below, it is half the distance to the next score above lower than that positive (half of its own size,
  at least 0.5, where the column holds no other score). It is returned in the dtype of the scores; where rounding
  would break the rule, it is the lower of the two scores, which still accepts the one and rejects the other.
- A detector without which the positives are accepted is redundant: its threshold is +inf, and it accepts nothing.
- Bounds on a threshold win over the rule: it is moved into [lower, upper], which changes neither the positives nor the
  negatives it accepts beyond those that the bounds decide. A detector that is needed for nothing beyond what its upper
  bound makes it accept has exactly that bound as its threshold.
- A score that is missing, where missing means that the detector did not fire, is kept as -inf. It is above no
  threshold, not even one of -inf, and no threshold is ever set by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm._support.validation import (
    MISSING,
    FloatArray,
    InputError,
    check_choice,
    check_number,
    check_scores,
    check_weights,
    row_blocks,
)

_RECALL_TOLERANCE = 1e-12  # of the total positive weight: 0.95 of 20 windows is 19, not 19.000000000000004


class CalibrationProblem:
    """One threshold per detector: accept every positive with some detector, and few negatives with any.

    Parameters
    ----------
    positive_scores : (P, E) array, the score of each positive window under each detector, higher is better.
    negative_scores : (N, E) array, likewise for the negative windows.
    positive_weights : (P,) array > 0, how much each positive counts towards the recall floor. Default: 1.
    negative_weights : (N,) array >= 0, what it costs to accept each negative. Default: 1.
    forbidden : (P, E) bool array; where True, acceptance by that detector does not count as coverage of that positive
        (a window cut from the detector's own training image, say). Default: nothing is forbidden.
    lower_thresholds, upper_thresholds : (E,) arrays, each threshold must lie in [lower, upper]. Equal values lock it:
        both +inf keep the detector switched off, both t fix it at t. Default: -inf and +inf. They are kept in the dtype
        of the scores, rounded down: a score of that dtype is above the rounded value exactly when it is above the given
        one, so rounding moves no window to the other side. Values beyond the range of the dtype become infinite.
    detector_cost : a number or (E,) array >= 0, what it costs to use a detector at all; one whose threshold is +inf is
        not in use. It is part of the loss. Default: 0.
    missing : "refuse" (the default) refuses NaN. "not-fired" takes NaN, -inf and masked entries of the scores for
        detectors that did not fire: they accept that window at no threshold.

    The arrays are kept without a copy where their dtype allows it, and must not change afterwards.
    """

    def __init__(
        self,
        positive_scores: ArrayLike,
        negative_scores: ArrayLike,
        positive_weights: ArrayLike | None = None,
        negative_weights: ArrayLike | None = None,
        forbidden: ArrayLike | None = None,
        lower_thresholds: ArrayLike | None = None,
        upper_thresholds: ArrayLike | None = None,
        missing: str = "refuse",
        detector_cost: ArrayLike | None = None,
    ) -> None:
        check_choice(missing, "missing", MISSING)
        positives = check_scores(positive_scores, "positive_scores", missing)
        negatives = check_scores(negative_scores, "negative_scores", missing)
        if positives.shape[1] != negatives.shape[1]:
            raise InputError(
                "`positive_scores` and `negative_scores` must have one column per detector, "
                f"got {positives.shape[1]} and {negatives.shape[1]} columns"
            )
        if positives.shape[1] == 0:
            raise InputError("`positive_scores` has 0 columns: there is no detector to calibrate")
        if len(positives) == 0:
            raise InputError("`positive_scores` has no rows: without a positive window there is nothing to cover")
        if len(negatives) == 0:
            raise InputError("`negative_scores` has no rows: without a negative window every threshold is perfect")
        dtype = np.result_type(positives, negatives)
        self.positive_scores: FloatArray = positives.astype(dtype, copy=False)
        self.negative_scores: FloatArray = negatives.astype(dtype, copy=False)
        self.missing = missing
        self.positive_weights = check_weights(positive_weights, len(positives), "positive_weights", allow_zero=False)
        self.negative_weights = check_weights(negative_weights, len(negatives), "negative_weights", allow_zero=True)
        self.detector_cost = _check_costs(detector_cost, positives.shape[1])
        self.recall_units, self.unit_weight = _whole_units(self.positive_weights)
        self.forbidden = _check_forbidden(forbidden, positives.shape)
        self.lower_thresholds = self._check_bound(lower_thresholds, "lower_thresholds", -np.inf)
        self.upper_thresholds = self._check_bound(upper_thresholds, "upper_thresholds", np.inf)
        crossed = np.flatnonzero(self.lower_thresholds > self.upper_thresholds)
        if len(crossed):
            j = crossed[0]
            raise InputError(
                "`lower_thresholds` must be <= `upper_thresholds`, "
                f"got {self.lower_thresholds[j]:g} and {self.upper_thresholds[j]:g} for detector {j}"
            )

    @property
    def n_exemplars(self) -> int:
        """How many detectors there are: columns of the scores."""
        return self.positive_scores.shape[1]

    @property
    def n_positives(self) -> int:
        """Rows of `positive_scores`."""
        return len(self.positive_scores)

    @property
    def n_negatives(self) -> int:
        """Rows of `negative_scores`."""
        return len(self.negative_scores)

    def __repr__(self) -> str:
        extras = ", forbidden pairs" if self.forbidden is not None else ""
        if (self.lower_thresholds > -np.inf).any() or (self.upper_thresholds < np.inf).any():
            extras += ", bounded thresholds"
        return (
            f"CalibrationProblem({self.n_exemplars} detectors, {self.n_positives} positives, "
            f"{self.n_negatives} negatives{extras})"
        )

    def accepts(self, thresholds: ArrayLike) -> NDArray[np.bool_]:
        """(N,) True for the negatives that some detector accepts."""
        return any_accepts(self.negative_scores, self.check_thresholds(thresholds))

    def covers(self, thresholds: ArrayLike) -> NDArray[np.bool_]:
        """(P,) True for the positives that some detector accepts by a pair that is not forbidden."""
        return any_accepts(self.positive_scores, self.check_thresholds(thresholds), self.forbidden)

    def loss(self, thresholds: ArrayLike) -> float:
        """Total weight of the negatives that some detector accepts (equation 2), and the cost of those in use.

        It is the exact sum, rounded once to a float: no order of the windows changes it.
        """
        weights, costs = self.negative_weights[self.accepts(thresholds)], self.detector_cost[self.in_use(thresholds)]
        return math.fsum(np.concatenate([weights, costs]).tolist())

    def in_use(self, thresholds: ArrayLike) -> NDArray[np.bool_]:
        """(E,) whether a detector can accept anything: its threshold is not +inf."""
        return np.asarray(self.check_thresholds(thresholds) < np.inf)

    def recall(self, thresholds: ArrayLike) -> float:
        """Share of the positives' weight that is covered."""
        total = self.positive_weights.sum()
        return float((total - self.positive_weights[~self.covers(thresholds)].sum()) / total)

    def precision(self, thresholds: ArrayLike) -> float:
        """Weight of the covered positives in the weight of all that is accepted; 1 where nothing is."""
        covered = float(self.positive_weights[self.covers(thresholds)].sum())
        accepted = covered + float(self.negative_weights[self.accepts(thresholds)].sum())
        return covered / accepted if accepted > 0 else 1.0

    def is_feasible(self, thresholds: ArrayLike, min_recall: float = 1.0) -> bool:
        """Whether the thresholds keep their bounds and the uncovered positives weigh no more than the floor allows.

        Parameters
        ----------
        thresholds : (E,) numbers; +inf switches a detector off.
        min_recall : share of the positives' weight that must be covered, in (0, 1].
        """
        if not self.is_within_bounds(thresholds):
            return False
        return bool(self.recall_units[~self.covers(thresholds)].sum() <= self.left_out_budget(min_recall))

    def is_within_bounds(self, thresholds: ArrayLike) -> bool:
        """Whether every threshold, in the dtype of the scores, lies between its bounds."""
        limits = _round_down(self.check_thresholds(thresholds), self.positive_scores.dtype)  # as the bounds themselves
        return bool(((self.lower_thresholds <= limits) & (limits <= self.upper_thresholds)).all())

    def forced(self) -> NDArray[np.bool_]:
        """(N,) True for the negatives that every solution accepts, because an upper threshold leaves no choice."""
        if not (self.upper_thresholds < np.inf).any():
            return np.zeros(self.n_negatives, dtype=bool)
        return any_accepts(self.negative_scores, self.upper_thresholds)

    def left_out_budget(self, min_recall: float) -> float:
        """Total `recall_units` of positives that may stay uncovered under a recall floor."""
        total = self.recall_units.sum()
        return 0.0 if min_recall >= 1 else float((1.0 - min_recall) * total + _RECALL_TOLERANCE * total)

    def orphans(self) -> NDArray[np.bool_]:
        """(P,) True for the positives that nobody may cover: by `forbidden`, by `lower_thresholds`, or not scored."""
        orphans = np.empty(self.n_positives, dtype=bool)
        for start, block in row_blocks(self.positive_scores):
            barred = block <= self.lower_thresholds
            if self.forbidden is not None:
                barred |= self.forbidden[start : start + len(block)]
            orphans[start : start + len(block)] = barred.all(axis=1)
        return orphans

    def spare_budget(self, min_recall: float) -> float:
        """`recall_units` of positives that may stay uncovered although somebody may cover them; negative: infeasible.

        Rounded down to what sums of their units can come to: multiples of their common divisor, not less than one.
        """
        orphans = self.orphans()
        spare = self.left_out_budget(min_recall) - float(self.recall_units[orphans].sum())
        units = self.recall_units[~orphans].astype(np.int64)
        if spare < 0 or len(units) == 0:
            return spare
        divisor = float(np.gcd.reduce(units))
        return spare // divisor * divisor if spare >= units.min() else 0.0

    def candidate_thresholds(self, exemplar: int) -> FloatArray:
        """The thresholds worth considering for one detector (section 4.1), tightest first, so in decreasing order.

        The first accepts no negative that it need not (it is the upper bound, by default +inf, where the highest window
        up to there is a negative or ties with one); each further one sits between a negative and the lowest of the
        positives that follow it upwards; the last accepts every positive that may be covered.
        """
        lower, upper = self.lower_thresholds[exemplar], self.upper_thresholds[exemplar]
        negatives = np.unique(self.negative_scores[:, exemplar])
        negatives = negatives[negatives <= upper]
        positives = self.positive_scores[:, exemplar]
        may_be_covered = (positives > lower) & (positives <= upper)  # those above are accepted in any case
        if self.forbidden is not None:
            may_be_covered &= ~self.forbidden[:, exemplar]
        positives = positives[may_be_covered]
        n_below = np.searchsorted(negatives, positives, side="left")
        # Positives with the same negatives below them share a candidate: the one under the lowest of them.
        lowest = np.array([positives[n_below == n].min() for n in np.unique(n_below)[::-1]], dtype=positives.dtype)
        candidates = np.maximum(self._thresholds_below(np.full(len(lowest), exemplar), lowest), lower)
        if len(lowest) == 0 or (negatives >= lowest[0]).any():
            candidates = np.concatenate([np.array([upper], dtype=positives.dtype), candidates])
        return candidates

    def thresholds_from_lowest(self, lowest: FloatArray) -> FloatArray:
        """(E,) thresholds just under the lowest positive score each detector is to accept (+inf: accept nothing).

        Bounds win. Where the lowest positive is above the upper bound, that bound accepts all there is to accept. Else
        the threshold t is raised to the lower bound, which is still under the positive; the windows in between that it
        now rejects are positives that may not be covered, since no negative lies between t and the positive.
        """
        thresholds = self.upper_thresholds.copy()
        exemplars = np.flatnonzero(np.isfinite(lowest) & (lowest <= thresholds))
        rule = self._thresholds_below(exemplars, lowest[exemplars])
        thresholds[exemplars] = np.maximum(rule, self.lower_thresholds[exemplars])
        return thresholds

    def assign(self, thresholds: ArrayLike) -> NDArray[np.intp]:
        """(P,) the detector responsible for each positive: of those that cover it, the one with the largest margin.

        Equal margins go to the lower index; -1 marks a positive that nobody covers.
        """
        limits = self.check_thresholds(thresholds)
        assignment = np.empty(self.n_positives, dtype=np.intp)
        for start, block in row_blocks(self.positive_scores):
            rows = slice(start, start + len(block))
            # An infinite margin is the largest, as it should be; where a score is missing it may be no number.
            with np.errstate(over="ignore", invalid="ignore"):
                margins = block - limits
            if self.forbidden is not None:
                margins[self.forbidden[rows]] = -np.inf
            # The decision is by comparison, not by the sign of a difference that may have been rounded to zero.
            margins[block <= limits] = -np.inf
            assignment[rows] = np.where(np.isneginf(margins).all(axis=1), -1, margins.argmax(axis=1))
        return assignment

    def notes(self, names: Sequence[str] | None = None) -> list[str]:
        """Sentences about columns that are legal but worth knowing: one detector, constant or repeated columns.

        Parameters
        ----------
        names : of the columns; without them they are counted from 0.
        """
        notes = []
        if self.n_exemplars == 1:
            notes.append("There is one detector only: its threshold sits just under its lowest positive.")
        everything = (self.positive_scores, self.negative_scores)
        lowest = np.minimum(*(np.where(scores > -np.inf, scores, np.inf).min(axis=0) for scores in everything))
        highest = np.maximum(*(scores.max(axis=0) for scores in everything))
        constant = np.flatnonzero(lowest == highest)
        if len(constant):
            notes.append(f"{_columns(constant, names)} constant: such a detector can accept everything or nothing.")
        empty = np.flatnonzero(np.isneginf(highest))
        if len(empty):
            notes.append(f"{_columns(empty, names)} without any score: such a detector accepts nothing.")
        repeated = _repeated_columns(*everything)
        if len(repeated):
            notes.append(f"{_columns(repeated, names)} the same as an earlier column: one of each would do.")
        return notes

    def _thresholds_below(self, exemplars: NDArray[np.intp], lowest: FloatArray) -> FloatArray:
        """Thresholds that accept `lowest[i]` under `exemplars[i]` and reject the highest negative below it."""
        below = np.full(len(lowest), -np.inf, dtype=lowest.dtype)
        above = np.full(len(lowest), np.inf, dtype=lowest.dtype)
        for scores in (self.negative_scores, self.positive_scores):
            for _, block in row_blocks(scores):
                columns = block[:, exemplars]
                np.minimum(above, np.where(columns > lowest, columns, np.inf).min(axis=0), out=above)
                if scores is self.negative_scores:
                    np.maximum(below, np.where(columns < lowest, columns, -np.inf).max(axis=0), out=below)
        return _between(below, lowest, above)

    def _check_bound(self, values: ArrayLike | None, name: str, default: float) -> FloatArray:
        """(E,) one side of the bounds in the dtype of the scores; `default` where `values` is None."""
        dtype = self.positive_scores.dtype
        if values is None:
            return np.full(self.n_exemplars, default, dtype=dtype)
        return _round_down(self.check_thresholds(values, name), dtype)

    def check_thresholds(self, thresholds: ArrayLike, name: str = "thresholds") -> FloatArray:
        """`thresholds` as an array of E numbers, none of them NaN; an `InputError` about `name` otherwise.

        Parameters
        ----------
        thresholds : (E,) numbers; +inf switches a detector off.
        name : what an error calls them.
        """
        try:
            limits = np.asarray(thresholds)
        except ValueError as error:
            raise InputError(f"`{name}` must have shape ({self.n_exemplars},), got a ragged list") from error
        if limits.shape != (self.n_exemplars,):
            raise InputError(f"`{name}` must have shape ({self.n_exemplars},), got {limits.shape}")
        if limits.dtype.kind not in "fiu" or np.isnan(limits).any():
            raise InputError(f"`{name}` must be numbers; +inf switches a detector off, NaN means nothing")
        return limits


def any_accepts(
    scores: FloatArray, thresholds: FloatArray, forbidden: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """(n,) whether any detector scores the window above its threshold by a pair that is not forbidden."""
    accepted = np.empty(len(scores), dtype=bool)
    for start, block in row_blocks(scores):
        above = block > thresholds
        if forbidden is not None:
            above &= ~forbidden[start : start + len(block)]
        accepted[start : start + len(block)] = above.any(axis=1)
    return accepted


def _round_down(values: FloatArray, dtype: np.dtype[Any]) -> FloatArray:
    """The largest numbers of `dtype` that are <= `values`; +inf for values above all finite ones."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = values.astype(dtype)
        too_high = (rounded > values) & (rounded < np.inf)
        return np.where(too_high, np.nextafter(rounded, np.array(-np.inf, dtype=dtype)), rounded)


def _whole_units(weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], Fraction]:
    """(P,) `weights` in units so small that they are whole, and sums of them exact in any order; the unit."""
    exponent = math.frexp(math.fsum(weights))[1]  # of the exact sum, which no order of the weights changes
    return np.maximum(np.rint(np.ldexp(weights, 52 - exponent)), 1.0), Fraction(2) ** (exponent - 52)


def _check_costs(costs: ArrayLike | None, n_exemplars: int) -> NDArray[np.float64]:
    if costs is None or np.ndim(costs) == 0:
        number = 0.0 if costs is None else check_number(costs, "detector_cost", minimum=0)
        return check_weights(np.full(n_exemplars, number), n_exemplars, "detector_cost", allow_zero=True)
    return check_weights(costs, n_exemplars, "detector_cost", allow_zero=True)


def _check_forbidden(forbidden: ArrayLike | None, shape: tuple[int, ...]) -> NDArray[np.bool_] | None:
    if forbidden is None:
        return None
    mask = np.asarray(forbidden)
    if mask.dtype != bool:
        raise InputError(f"`forbidden` must be an array of booleans, got dtype {mask.dtype}")
    if mask.shape != shape:
        raise InputError(f"`forbidden` must have the shape of `positive_scores`, {shape}, got {mask.shape}")
    return mask if mask.any() else None


def _between(below: FloatArray, lowest: FloatArray, above: FloatArray) -> FloatArray:
    """The threshold rule of the module docstring, elementwise; -inf below and +inf above mean "no such score"."""
    with np.errstate(invalid="ignore", over="ignore"):
        middle = below / 2 + lowest / 2  # halves first: the sum of two huge scores would overflow
        step = np.where(np.isfinite(above), above / 2 - lowest / 2, np.maximum(np.abs(lowest), 1) / 2)
        under = np.maximum(lowest - step, np.finfo(lowest.dtype).min)
        under = np.where(under < lowest, under, np.nextafter(lowest, -np.inf))
    middle = np.where((middle >= below) & (middle < lowest), middle, below)
    return np.where(np.isneginf(below), under, middle).astype(lowest.dtype, copy=False)


def _repeated_columns(*tables: FloatArray) -> NDArray[np.intp]:
    """Indices of columns that equal an earlier one in every table."""
    seen: set[bytes] = set()
    repeated = []
    for column in range(tables[0].shape[1]):
        digest = blake2b()
        for table in tables:
            digest.update((table[:, column] + 0.0).tobytes())  # + 0.0 makes -0.0 equal to 0.0
        if digest.digest() in seen:
            repeated.append(column)
        seen.add(digest.digest())
    return np.array(repeated, dtype=np.intp)


def _columns(indices: NDArray[np.intp], names: Sequence[str] | None) -> str:
    """'Column 3 is' or 'Columns 1, 2, 3 and 4 more are'; with names, these."""
    shown = ", ".join(str(j) if names is None else repr(names[j]) for j in indices[:5])
    more = f" and {len(indices) - 5} more" if len(indices) > 5 else ""
    return f"Column {shown} is" if len(indices) == 1 else f"Columns {shown}{more} are"
