"""Detecting with every calibration: the rows of tables 1 to 3 of the paper, on held-out images of any dataset.

In: described windows of training and of test images, a class, options, and the rules to compare: a calibrator each,
with other options where wanted. Out: a frozen `RuleResult` for each rule, from one training and one table of scores:
windows (recall, false positives at the recall of the joint thresholds, average precision), detections (average
precision), how many different exemplars win, and the hits that annotations can be carried onto. With weights of the
test images all of it is also measured on resamples of them, the same ones for every rule.
Test windows are proposals; those with IoU >= 0.5 are positive, the others negative, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm import boxes as geometry
from eesvm._support.validation import InputError
from eesvm.calibration.calibrators.base import ScoreCalibrator
from eesvm.calibration.calibrators.cooccurrence import CooccurrenceCalibrator
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.calibration.problem import any_accepts
from eesvm.detector.box_regression import BoxRegressor, regress_boxes
from eesvm.detector.class_calibration import SINGLE_SVM, STORED_AS, ScoreRule, calibrate_class, score_rule
from eesvm.detector.class_training import (
    CalibrationScores,
    NothingToLearnError,
    SingleSVM,
    TrainedClass,
    score_class,
    train_class,
)
from eesvm.detector.cross_fitting import cross_fitted
from eesvm.detector.options import DetectionOptions, DetectorOptions
from eesvm.detector.training_table import TrainingWindows
from eesvm.exemplars.scoring import score_windows
from eesvm.exemplars.svms import LinearExemplars
from eesvm.experiments.tables.windows import Method
from eesvm.metrics import (
    average_precision,
    evaluate_detections,
    false_positives,
    false_positives_at_recall,
    recall_at,
)
from eesvm.metrics.detections import rank_detections
from eesvm.metrics.tables import make_tables
from eesvm.structures import Detections, ExemplarAnnotation, Instance
from eesvm.transfer.quality import Consensus, TransferQuality, matched_instances, random_choice, transfer_quality

WINNER, UNCALIBRATED, NEAREST, RANDOM, VOTE = (
    "calibrated winner",
    "uncalibrated winner",
    "nearest exemplar",
    "random exemplar",
    "vote of the best exemplars",
)

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rule:
    """A way to turn the scores of all exemplars of a class into one score per window."""

    name: str
    calibrator: str  # one of `CALIBRATORS` of `eesvm.detector.options`
    changes: Mapping[str, Any] = field(default_factory=dict)  # options by their dotted names: calibration, detection


PAPER_RULES = (
    Rule(Method.NO_CALIBRATION, "none"),
    Rule(Method.SIGMOID, "sigmoid"),
    Rule(Method.JOINT, "joint"),
    Rule(Method.JOINT_SIGMOID, "joint-sigmoid"),
    Rule(Method.ISOTONIC, "isotonic"),
    Rule(Method.AFFINE, "affine"),
    Rule(Method.COOCCURRENCE, "cooccurrence"),
    Rule(Method.SINGLE_SVM, "single-svm"),
)


@dataclass(frozen=True)
class Hit:
    """The best detection of a test object."""

    instance: Instance
    box: _Floats  # (4,)
    image_size: tuple[int, int]  # width and height
    window: int  # among the test windows
    exemplars: tuple[int, ...]  # of the class, by decreasing calibrated score; empty for the single SVM


@dataclass(frozen=True)
class RuleResult:
    """One rule on the test images of one class."""

    rule: str
    class_name: str
    n_exemplars: int
    n_used: int  # those that are not redundant
    n_objects: int
    recall: float  # of the joint thresholds on the test windows: where false positives are counted
    false_positives: float
    window_ap: float
    detection_ap: float
    hits: tuple[Hit, ...] = field(repr=False)
    detections: tuple[Detections, ...] = field(repr=False)
    search: Mapping[str, Any] = field(default_factory=dict)  # loss, bound, gap and status of a joint calibration
    accepted: float | None = None  # test negatives that joint thresholds accept as they are
    n_positives: int = 0  # test windows
    n_negatives: int = 0
    resamples: Mapping[str, tuple[float, ...]] = field(default_factory=dict, repr=False)  # of the measures, by name

    @property
    def n_winners(self) -> int:
        """How many different exemplars win the detection of some object."""
        return len({hit.exemplars[0] for hit in self.hits if hit.exemplars})


def compare_rules(
    train: TrainingWindows,
    test: TrainingWindows,
    class_name: str,
    options: DetectorOptions | None = None,
    rules: Sequence[Rule] = PAPER_RULES,
) -> tuple[TrainedClass, list[RuleResult]]:
    """Train the exemplars of a class once, and judge every rule on the test images."""
    options = DetectorOptions() if options is None else options
    trained = train_class(train, class_name, options.training, random_state=options.random_state)
    scores = score_class(train, trained, options.calibration, random_state=options.random_state)
    scores = cross_fitted(train, trained, scores, options)
    calibrator_of = calibrators_on_demand(scores, options)
    return trained, judge_rules(
        test,
        class_name,
        trained.exemplars,
        trained.single,
        calibrator_of,
        options,
        rules,
        regressor=regressor_of(train, class_name, options, rules),
    )


def regressor_of(
    train: TrainingWindows, class_name: str, options: DetectorOptions, rules: Sequence[Rule]
) -> BoxRegressor | None:
    """The box regressor of a class, if any of the rules moves boxes."""
    if not any(options.changed(dict(rule.changes)).detection.box_regression for rule in rules):
        return None
    return regress_boxes(train, class_name, options.random_state)


def calibrators_on_demand(scores: CalibrationScores, options: DetectorOptions) -> Callable[[Rule], ScoreCalibrator]:
    """A function that fits the calibrator of a rule to these scores; rules that share one share it."""
    return _Calibrators(scores, options).of


def judge_rules(
    test: TrainingWindows,
    class_name: str,
    exemplars: LinearExemplars,
    single: SingleSVM,
    calibrator_of: Callable[[Rule], ScoreCalibrator],
    options: DetectorOptions,
    rules: Sequence[Rule] = PAPER_RULES,
    *,
    regressor: BoxRegressor | None = None,
    recall: float | None = None,
    image_weights: _Floats | None = None,
) -> list[RuleResult]:
    """Judge every rule on test images; `calibrator_of` gives the fitted calibrator of a rule.

    Parameters
    ----------
    regressor : moves the boxes of rules with the option `detection.box_regression`.
    recall : where false positives are counted. Default: what the joint thresholds of the first joint rule reach.
    image_weights : (resamples, images) how often each test image is drawn, for `RuleResult.resamples`.
    """
    windows = _TestWindows(test, class_name, exemplars, single, image_weights, regressor)
    recall = _joint_recall(rules, calibrator_of, windows) if recall is None else recall
    return [windows.judge(rule, calibrator_of, recall, options) for rule in rules]


class _Calibrators:
    """Calibrators fitted to the same scores, each kept for the rules that share it."""

    def __init__(self, scores: CalibrationScores, options: DetectorOptions) -> None:
        self.scores, self.options = scores, options
        self.fitted: dict[tuple[Any, ...], ScoreCalibrator] = {}

    def of(self, rule: Rule) -> ScoreCalibrator:
        changes = {name: value for name, value in rule.changes.items() if name.startswith("calibration.")}
        stored = STORED_AS[rule.calibrator]
        key = (stored, *sorted(changes.items()))
        if key not in self.fitted:
            options = self.options.changed(changes)
            fitted = calibrate_class(
                self.scores,
                [stored],
                options.calibration,
                pooling=options.detection.pooling,
                random_state=options.random_state,
                n_jobs=options.n_jobs,
            )
            self.fitted[key] = fitted[stored]
        return self.fitted[key]


class _TestWindows:
    """The proposals of the test images and what every exemplar says about them."""

    def __init__(
        self,
        test: TrainingWindows,
        class_name: str,
        exemplars: LinearExemplars,
        single: SingleSVM,
        image_weights: _Floats | None = None,
        regressor: BoxRegressor | None = None,
    ) -> None:
        self.test, self.class_name, self.image_weights = test, class_name, image_weights
        self.rows = np.flatnonzero(test.instance < 0)
        self.boxes, self.image = test.boxes[self.rows], test.image[self.rows]
        self.starts = np.searchsorted(self.image, np.arange(len(test.records) + 1))
        self.is_positive = test.overlap(class_name, with_difficult=False)[self.rows] >= 0.5
        if not self.is_positive.any():
            raise NothingToLearnError(f"no window of the test images shows an object of the class {class_name!r}")
        descriptors = test.rows(test.instance < 0)
        self.raw = score_windows(descriptors, exemplars.coef_, exemplars.intercept_)
        self.single = score_windows(descriptors, single.weights[None, :], [single.bias])[:, 0]
        self.moved = self.boxes if regressor is None else self._moved(regressor)

    def _moved(self, regressor: BoxRegressor) -> _Floats:
        """(n, 4) where the regression puts the boxes."""
        boxes = np.empty_like(self.boxes)
        for start, stop in zip(self.starts[:-1], self.starts[1:], strict=True):
            own = slice(start, stop)
            boxes[own] = regressor.move(self.boxes[own], self.test.descriptors[self.rows[own]])
        return boxes

    def judge(
        self,
        rule: Rule,
        calibrator_of: Callable[[Rule], ScoreCalibrator],
        recall: float,
        options: DetectorOptions,
    ) -> RuleResult:
        detection = options.changed(dict(rule.changes)).detection
        search: dict[str, Any] = {}
        is_accepted: NDArray[np.bool_] | None = None
        if rule.calibrator == SINGLE_SVM:
            scores, how = self.single.astype(np.float64), None
        else:
            calibrator = calibrator_of(rule)
            search = _search_facts(calibrator)
            if isinstance(calibrator, JointCalibrator):
                is_accepted = any_accepts(self.raw, calibrator.thresholds_)
            how = score_rule(rule.calibrator, {STORED_AS[rule.calibrator]: calibrator}, self.n, detection.pooling)
            scores = self._scores(how)
        detections, windows = self._detect(scores, detection)
        report = evaluate_detections(self.test.records, detections, classes=[self.class_name])[self.class_name]
        return RuleResult(
            rule=rule.name,
            class_name=self.class_name,
            n_exemplars=self.n,
            n_used=self.n if how is None else len(how.used),
            n_objects=report.n_objects,
            recall=recall,
            false_positives=false_positives_at_recall(self.is_positive, scores, recall),
            window_ap=average_precision(self.is_positive, scores),
            detection_ap=float(report.average_precision),
            hits=tuple(self._hits(detections, windows, how)),
            detections=tuple(detections),
            search=search,
            accepted=None if is_accepted is None else false_positives(self.is_positive, is_accepted),
            n_positives=int(self.is_positive.sum()),
            n_negatives=int((~self.is_positive).sum()),
            resamples=self._resamples(scores, is_accepted, recall, detections),
        )

    @property
    def n(self) -> int:
        return self.raw.shape[1]

    def _scores(self, how: ScoreRule) -> _Floats:
        parts = zip(self.starts[:-1], self.starts[1:], strict=True)
        return np.concatenate([how(self.raw[a:b, how.used], self.boxes[a:b])[0] for a, b in parts])

    def _resamples(
        self,
        scores: _Floats,
        is_accepted: NDArray[np.bool_] | None,
        recall: float,
        detections: Sequence[Detections],
    ) -> dict[str, tuple[float, ...]]:
        """Every measure with the images drawn as the weights say; NaN where no object of the class is drawn."""
        if self.image_weights is None:
            return {}
        ranking = rank_detections(make_tables(self.test.records, detections, [self.class_name]), 0.5, "voc10")[0]
        order = np.argsort(-scores, kind="stable")  # sorted once: the metrics notice and do not sort again
        is_positive, sorted_scores, images = self.is_positive[order], scores[order], self.image[order]
        accepted = None if is_accepted is None else is_accepted[order]
        found: dict[str, list[float]] = {"false_positives": [], "window_ap": [], "detection_ap": []}
        if accepted is not None:
            found |= {"recall": [], "accepted": []}
        for drawn in self.image_weights:
            weights = drawn[images]
            found["detection_ap"].append(ranking.average_precision(drawn))
            if not weights[is_positive].any():
                for name in found.keys() - {"detection_ap"}:
                    found[name].append(np.nan)
                continue
            found["false_positives"].append(false_positives_at_recall(is_positive, sorted_scores, recall, weights))
            found["window_ap"].append(average_precision(is_positive, sorted_scores, weights))
            if accepted is not None:
                found["recall"].append(recall_at(is_positive, accepted, weights))
                found["accepted"].append(false_positives(is_positive, accepted, weights))
        return {name: tuple(values) for name, values in found.items()}

    def _detect(self, scores: _Floats, options: DetectionOptions) -> tuple[list[Detections], list[NDArray[np.int64]]]:
        """Detections of every image, and the test window that each of them is."""
        found, windows = [], []
        boxes = self.moved if options.box_regression else self.boxes
        for k, record in enumerate(self.test.records):
            rows = np.arange(self.starts[k], self.starts[k + 1])
            kept = geometry.nms(boxes[rows], scores[rows], options.nms, options.overlap, options.max_detections)
            rows = rows[kept]
            names = np.full(len(rows), self.class_name)
            found.append(
                Detections(record.image_id, boxes[rows], scores[rows], names, np.full(len(rows), -1, np.int64))
            )
            windows.append(rows)
        return found, windows

    def _hits(
        self, detections: Sequence[Detections], windows: Sequence[NDArray[np.int64]], how: ScoreRule | None
    ) -> Iterable[Hit]:
        """The best detection of every object that is found."""
        for record, found, rows in zip(self.test.records, detections, windows, strict=True):
            seen: set[int] = set()
            for instance, box, row in zip(matched_instances(found, record), found.boxes, rows.tolist(), strict=True):
                if instance is not None and instance.index not in seen:
                    seen.add(instance.index)
                    yield Hit(instance, box, (record.width, record.height), row, self._ranking(row, how))

    def _ranking(self, row: int, how: ScoreRule | None, n_best: int = 5) -> tuple[int, ...]:
        """The winner of a window, then the exemplars that come after it."""
        if how is None:
            return ()
        raw = self.raw[row : row + 1, how.used]
        if isinstance(how.calibrator, CooccurrenceCalibrator):  # its scores are sums over exemplars: there is no second
            return (int(how(raw, self.boxes[row : row + 1])[1][0]),)
        return tuple(how.best(raw, n_best)[0][0].tolist())


def transfer_choices(
    test: TrainingWindows,
    exemplars: LinearExemplars,
    described: NDArray[np.float32],
    annotations: Sequence[ExemplarAnnotation],
    result: RuleResult,
    random_state: int = 0,
) -> TransferQuality:
    """How good the annotations are that the winners of a rule transfer, beside other choices of exemplars.

    `described` (E, d) and `annotations` are those of the exemplars of the class, in their order.
    """
    hits = [hit for hit in result.hits if hit.exemplars]
    if not hits:
        raise InputError(f"the rule {result.rule!r} finds no object of the class {result.class_name!r}")
    rows = np.flatnonzero(test.instance < 0)[[hit.window for hit in hits]]
    windows = np.asarray(test.descriptors[rows])
    raw = score_windows(windows, exemplars.coef_, exemplars.intercept_)
    distances = (described**2).sum(axis=1) - 2 * windows @ described.T
    instances = [hit.instance for hit in hits]
    choices = {
        WINNER: np.array([hit.exemplars[0] for hit in hits]),
        UNCALIBRATED: raw.argmax(axis=1),
        NEAREST: distances.argmin(axis=1),
        RANDOM: random_choice(annotations, instances, random_state=random_state),
        VOTE: Consensus([hit.exemplars for hit in hits]),
    }
    return transfer_quality(
        annotations,
        choices,
        np.array([hit.box for hit in hits]),
        instances,
        [hit.image_size for hit in hits],
        best_exemplar=True,
        random_state=random_state,
    )


def _joint_recall(
    rules: Sequence[Rule], calibrator_of: Callable[[Rule], ScoreCalibrator], windows: _TestWindows
) -> float:
    """Recall of the joint thresholds on the test windows, those of the first rule that has some."""
    for rule in rules:
        if STORED_AS.get(rule.calibrator) == "joint":
            calibrator = calibrator_of(rule)
            assert isinstance(calibrator, JointCalibrator)
            return recall_at(windows.is_positive, any_accepts(windows.raw, calibrator.thresholds_))
    return 1.0


def _search_facts(calibrator: ScoreCalibrator) -> dict[str, Any]:
    result = getattr(calibrator, "result_", None)
    if result is None:
        return {}
    return {
        "loss": result.loss,
        "bound": result.lower_bound,
        "gap": result.gap,
        "status": result.status,
        "seconds": result.seconds,
    }
