"""Classifying windows with every calibration: tables 1 and 2 of the paper on any score table.

In: scores and labels of training and test windows, optionally the image of each window and exemplar. Out: a
`WindowTables` of frozen rows under the paper's names, as CSV rows or Markdown.
Table 1 counts false positives at the recall that the joint thresholds reach on the test windows; table 2 is average
precision. With images there is a second pair of tables, whose exemplars may not cover windows of their own image: the
thresholds reach another recall then, so every method is counted again at that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm._support.tables import markdown_table
from eesvm._support.validation import (
    MISSING,
    FloatArray,
    InputError,
    check_choice,
    check_finite,
    check_groups,
    check_labels,
    check_number,
    check_table,
    two_labels,
)
from eesvm.calibration.anytime import ProgressCallback
from eesvm.calibration.calibrators.base import ScoreCalibrator
from eesvm.calibration.calibrators.independent import (
    AffineCalibrator,
    IsotonicCalibrator,
    SigmoidCalibrator,
    Uncalibrated,
)
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.calibration.result import CalibrationResult
from eesvm.metrics import (
    Interval,
    Metric,
    average_precision,
    bootstrap_interval,
    false_positives,
    false_positives_at_recall,
    precision_recall_curve,
    recall_at,
)

OWN_IMAGE = "own image allowed"
ACROSS_IMAGES = "across images"

CSV_HEADER = (
    *("variant", "method", "recall"),
    *("false_positives", "false_positives_low", "false_positives_high"),
    *("average_precision", "average_precision_low", "average_precision_high"),
)


class Method(StrEnum):
    """A row of the paper's tables, under the name that the paper prints."""

    NO_CALIBRATION = "EE-SVM no calibration"
    SIGMOID = "EE-SVM indep. sigmoid calibration"
    JOINT = "EE-SVM joint calibration"
    JOINT_SIGMOID = "EE-SVM joint calibration w/ sigmoid"
    ISOTONIC = "EE-SVM indep. isotonic regression"
    AFFINE = "EE-SVM indep. affine calibration"
    COOCCURRENCE = "EE-SVM co-occurrence"
    SINGLE_SVM = "Single Linear-SVM"

    __repr__ = str.__repr__  # error sentences quote the name as that of any other rule


@dataclass(frozen=True)
class WindowRow:
    """One method on the test windows."""

    method: str
    recall: float  # where its false positives are counted: at least that of the joint thresholds, as scores may tie
    false_positives: float
    average_precision: float | None  # None for the thresholds alone, which give a decision and not a score
    false_positives_interval: Interval | None = None
    average_precision_interval: Interval | None = None


@dataclass(frozen=True)
class WindowComparison:
    """All methods at the recall of one variant of the joint thresholds."""

    variant: str  # OWN_IMAGE, as in the paper, or ACROSS_IMAGES
    recall: float  # of the joint thresholds on the test windows
    rows: tuple[WindowRow, ...]
    result: CalibrationResult  # of the search on the training windows
    scores: Mapping[str, FloatArray] = field(repr=False)  # (n_test,) per method; for the thresholds the largest margin

    def __getitem__(self, method: str) -> WindowRow:
        return {row.method: row for row in self.rows}[method]


@dataclass(frozen=True)
class WindowTables:
    """The paper's tables 1 and 2 side by side, once per variant."""

    comparisons: tuple[WindowComparison, ...]
    n_positives: int  # in the test windows
    n_negatives: int
    confidence: float | None  # of the intervals, None where none were asked for

    def to_csv_rows(self) -> list[tuple[Any, ...]]:
        """The header and one row per variant and method; what does not exist is an empty string."""
        rows = [(comparison.variant, *_csv_cells(row)) for comparison in self.comparisons for row in comparison.rows]
        return [CSV_HEADER, *rows]

    def to_markdown(self) -> str:
        """A table per variant, with percentages as in the paper, under a line about the search behind it."""
        interval = "" if self.confidence is None else f" ({100 * self.confidence:g} % interval)"
        header = ("method", "recall, %", f"false positives{interval}", f"window AP, %{interval}")
        parts = []
        for comparison in self.comparisons:
            parts.append(_headline(comparison, self.n_positives, self.n_negatives))
            parts.append(markdown_table(header, map(_texts, comparison.rows)))
        return "\n\n".join(parts) + "\n"


def compare_calibrators(
    S_train: Any,
    y_train: Any,
    S_test: Any,
    y_test: Any,
    groups_train: ArrayLike | None = None,
    groups_test: ArrayLike | None = None,
    exemplar_groups: ArrayLike | None = None,
    *,
    single_svm: ArrayLike | None = None,
    method: str = "exact",
    min_recall: float = 1.0,
    time_limit: float | None = 60.0,
    node_limit: int | None = None,
    gap: float = 0.0,
    criterion: str = "least_squares",
    margin: float | None = -1.0,
    n_resamples: int = 0,
    confidence: float = 0.95,
    progress: ProgressCallback | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    pos_label: Any = None,
    missing: str = "refuse",
    max_loss: float | None = None,
    min_precision: float | None = None,
) -> WindowTables:
    """Fit every calibrator on training windows and compare them on test windows.

    Parameters
    ----------
    S_train, S_test : (n, E) scores of the windows under each exemplar.
    y_train, y_test : (n,) labels, two values, of which `pos_label` is positive.
    groups_train, exemplar_groups : the image of each training window and of each exemplar; with both of them the
        variant across images is computed too.
    groups_test : the image of each test window, which intervals draw as a whole. Default: windows are drawn one by one.
    single_svm : (n_test,) scores of a single classifier on the test windows, for a row of their own.
    method, min_recall, time_limit, node_limit, gap, progress : of each search, see `solve`.
    criterion : of the sigmoids, also of the joint ones.
    margin : of the independent sigmoids, see `SigmoidCalibrator`.
    n_resamples : bootstrap resamples behind each interval; 0 for no intervals. The recall stays fixed in them.
    confidence : of the intervals.
    random_state, n_jobs : seeds everything that draws; threads, which change nothing in the result.
    pos_label : the label of the positives. Default: 1 beside 0 or -1, and True; other labels need it.
    missing : what missing scores mean, see `ScoreCalibrator`.
    max_loss, min_precision : ask for the most recall within that loss on the training windows, or at that precision.
    """
    check_choice(missing, "missing", MISSING)
    is_known, is_positive = _check_tables(S_train, y_train, S_test, y_test, pos_label, missing)
    _check_images(groups_train, exemplar_groups)
    judge = _Judge(is_positive, groups_test, n_resamples, confidence, random_state)
    calibrators: dict[str, ScoreCalibrator] = {
        Method.NO_CALIBRATION: Uncalibrated(),
        Method.SIGMOID: SigmoidCalibrator(criterion=criterion, margin=margin, random_state=random_state, n_jobs=n_jobs),
        Method.ISOTONIC: IsotonicCalibrator(n_jobs=n_jobs),
        Method.AFFINE: AffineCalibrator(random_state=random_state),
    }
    for calibrator in calibrators.values():
        calibrator.missing = missing
    ranked = {
        name: judge.rank(each.fit(S_train, is_known).decision_function(S_test)) for name, each in calibrators.items()
    }
    if single_svm is not None:
        ranked[Method.SINGLE_SVM] = judge.rank(_check_single_svm(single_svm, len(is_positive)))
    joint = JointCalibrator(
        sigmoid=True,
        method=method,
        min_recall=min_recall,
        time_limit=time_limit,
        node_limit=node_limit,
        gap=gap,
        criterion=criterion,
        progress=progress,
        random_state=random_state,
        n_jobs=n_jobs,
        missing=missing,
        max_loss=max_loss,
        min_precision=min_precision,
    )
    comparisons = [judge.compare(OWN_IMAGE, joint.fit(S_train, is_known), S_test, ranked)]
    if exemplar_groups is not None:
        joint.set_params(exemplar_groups=exemplar_groups).fit(S_train, is_known, groups=groups_train)
        comparisons.append(judge.compare(ACROSS_IMAGES, joint, S_test, ranked))
    return WindowTables(
        comparisons=tuple(comparisons),
        n_positives=int(is_positive.sum()),
        n_negatives=int((~is_positive).sum()),
        confidence=confidence if n_resamples else None,
    )


@dataclass(frozen=True)
class _Ranked:
    """What does not depend on a recall, so that two variants share it."""

    scores: FloatArray
    average_precision: float
    interval: Interval | None


@dataclass(frozen=True)
class _Judge:
    """Turns decisions and scores of the test windows into rows."""

    is_positive: NDArray[np.bool_]
    groups: ArrayLike | None
    n_resamples: int
    confidence: float
    random_state: int

    def __post_init__(self) -> None:
        check_number(self.n_resamples, "n_resamples", minimum=0, integer=True)
        check_number(self.confidence, "confidence", above=0, maximum=1)
        if self.groups is not None:
            check_groups(self.groups, len(self.is_positive), "groups_test", "window")

    def rank(self, scores: FloatArray) -> _Ranked:
        precision = average_precision(self.is_positive, scores)
        return _Ranked(scores, precision, self._interval(average_precision, scores))

    def compare(
        self, variant: str, joint: JointCalibrator, S_test: Any, ranked: dict[str, _Ranked]
    ) -> WindowComparison:
        """All rows, in the order of the paper, at the recall of these joint thresholds."""
        is_accepted = joint.predict(S_test) == joint.classes_[1]
        recall = recall_at(self.is_positive, is_accepted)
        rows = {name: self._row(name, each, recall) for name, each in ranked.items()}
        rows[Method.JOINT] = WindowRow(
            method=Method.JOINT,
            recall=recall,
            false_positives=false_positives(self.is_positive, is_accepted),
            average_precision=None,
            false_positives_interval=self._interval(false_positives, is_accepted),
        )
        with_sigmoid = self.rank(joint.decision_function(S_test))
        rows[Method.JOINT_SIGMOID] = self._row(Method.JOINT_SIGMOID, with_sigmoid, recall)
        scores = {name: each.scores for name, each in ranked.items()}
        scores |= {
            Method.JOINT: joint.tie_breaker(check_table(S_test, "S_test", joint.missing)).max(axis=1),
            Method.JOINT_SIGMOID: with_sigmoid.scores,
        }
        names = [str(name) for name in Method if name in rows]
        ordered = {name: scores[name] for name in names}
        return WindowComparison(variant, recall, tuple(rows[name] for name in names), joint.result_, ordered)

    def _row(self, name: str, ranked: _Ranked, recall: float) -> WindowRow:
        count = partial(false_positives_at_recall, recall=recall)
        return WindowRow(
            method=name,
            recall=_recall_reached(self.is_positive, ranked.scores, recall),
            false_positives=count(self.is_positive, ranked.scores),
            average_precision=ranked.average_precision,
            false_positives_interval=self._interval(count, ranked.scores),
            average_precision_interval=ranked.interval,
        )

    def _interval(self, metric: Metric, scores: np.ndarray) -> Interval | None:
        """The same seed for every metric and method: they are compared on the same resamples."""
        if self.n_resamples == 0:
            return None
        return bootstrap_interval(
            metric, self.is_positive, scores, self.groups, self.n_resamples, self.confidence, self.random_state
        )


def _check_tables(
    S_train: Any, y_train: Any, S_test: Any, y_test: Any, pos_label: Any, missing: str
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which training and test windows are positive, once both tables are known to fit together."""
    train, test = check_table(S_train, "S_train", missing), check_table(S_test, "S_test", missing)
    if train.shape[1] != test.shape[1]:
        raise InputError(
            "`S_train` and `S_test` must have one column per detector, "
            f"got {train.shape[1]} and {test.shape[1]} columns"
        )
    train_classes, _ = two_labels(y_train, len(train), "y_train")
    classes, _ = two_labels(y_test, len(test), "y_test")
    if not np.array_equal(train_classes, classes):
        raise InputError(
            "`y_train` and `y_test` must hold the same two labels, "
            f"got {', '.join(map(str, train_classes))} and {', '.join(map(str, classes))}"
        )
    _, is_known = check_labels(y_train, len(train), "y_train", pos_label)
    _, is_positive = check_labels(y_test, len(test), "y_test", pos_label)
    return is_known, is_positive


def _check_images(groups_train: ArrayLike | None, exemplar_groups: ArrayLike | None) -> None:
    names = ("groups_train", "exemplar_groups")
    if (groups_train is None) != (exemplar_groups is None):
        given, missing = names if exemplar_groups is None else names[::-1]
        raise InputError(f"`{given}` is given but `{missing}` is not: the variant across images needs both")


def _check_single_svm(scores: ArrayLike, n: int) -> NDArray[np.float64]:
    values = np.asarray(scores)
    if values.dtype.kind not in "fiu":
        raise InputError(f"`single_svm` must hold numbers, got dtype {values.dtype}")
    if values.shape != (n,):
        raise InputError(f"`single_svm` must have one score per test window, shape ({n},), got shape {values.shape}")
    values = values.astype(np.float64)
    check_finite(values, "single_svm")
    return values


def _recall_reached(is_positive: NDArray[np.bool_], scores: FloatArray, recall: float) -> float:
    """The recall at the operating point that `false_positives_at_recall` counts at."""
    if recall == 0:
        return 0.0
    recalls = precision_recall_curve(is_positive, scores)[1]
    return float(recalls[np.searchsorted(recalls, recall - 1e-12)])


def _csv_cells(row: WindowRow) -> tuple[Any, ...]:
    precision = "" if row.average_precision is None else row.average_precision
    count_interval, precision_interval = row.false_positives_interval, row.average_precision_interval
    none = ("", "")
    counts = (row.false_positives, *(count_interval or none))
    return row.method, row.recall, *counts, precision, *(precision_interval or none)


def _headline(comparison: WindowComparison, n_positives: int, n_negatives: int) -> str:
    result = comparison.result
    return (
        f"**{comparison.variant}**: joint thresholds accept {result.loss:.10g} training negatives "
        f"(at least {result.lower_bound:.10g} needed, {result.status}), "
        f"{result.n_redundant} of {len(result.thresholds)} detectors redundant; "
        f"test recall {100 * comparison.recall:.1f} % of {n_positives} positives, {n_negatives} negatives"
    )


def _texts(row: WindowRow) -> list[str]:
    count = f"{row.false_positives:.0f}"
    if row.false_positives_interval is not None:
        count += " ({:.0f} to {:.0f})".format(*row.false_positives_interval)
    precision = "" if row.average_precision is None else f"{100 * row.average_precision:.1f}"
    if row.average_precision_interval is not None:
        low, high = row.average_precision_interval
        precision += f" ({100 * low:.1f} to {100 * high:.1f})"
    return [row.method, f"{100 * row.recall:.1f}", count, precision]
