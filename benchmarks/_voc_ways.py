"""The exemplars of the default blended with single SVMs, and all of them against the number of photographs.

In: the tables of a setting of `bench_voc`. Out: lines for its results, with the detection AP of every way to score a window.
Scores are those of the package's own trainers, uncalibrated; boxes are moved by the regression of the class in every
way alike. Two kinds of work:

    curve    `value` photographs train; the images of the judges judge
    blend    `value` is a fold of the training images that judges what the others train, or "val"
"""

from __future__ import annotations

import itertools
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from _voc_tables import read_table, with_objects
from eesvm import boxes as geometry
from eesvm._support.threads import one_product_thread
from eesvm.detector.box_regression import regress_boxes
from eesvm.detector.class_training import SingleSVM as Single
from eesvm.detector.class_training import class_rows, make_trainer, trained_class, training_rows
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_table import TrainingWindows
from eesvm.exemplars.scoring import score_windows
from eesvm.exemplars.single_svm import LinearSVM
from eesvm.metrics.detections import rank_detections
from eesvm.metrics.tables import make_tables
from eesvm.structures import Detections

Scores = dict[str, np.ndarray]

SQUARED, RCNN = "single SVM", "R-CNN's single SVM"
STRONGER = (1e-2,)  # C of R-CNN's SVM, which is 1e-3
BENDS = (1e-4, 1e-3)  # C of exemplars; the first is the default's
POOLINGS = (1, 5, 20)
SHARES = (0.25, 0.5, 0.75)  # of R-CNN's SVM in a blend
SUPPORTS = (0.5, 1.0)  # weight of what windows nearby say
NEAR = 0.5  # IoU of windows nearby
SUPPRESSION, MOST_DETECTIONS = 0.3, 100
BLOCK = 1 << 15  # windows scored at a time
VAL = "val"


def exemplars_way(C: float = BENDS[0], pooling: int = 5) -> str:
    return f"exemplars, C {C:g}, mean of {pooling}"


DEFAULT = exemplars_way()


@one_product_thread()
def judge_ways(
    item: Mapping[str, Any], train: TrainingWindows, test: TrainingWindows, options: DetectorOptions, n_resamples: int,
    bends: Sequence[float] = BENDS,
) -> dict[str, Any]:  # fmt: skip
    """AP of every way, and on resamples of the images of the judges, which are the same for every way and class."""
    name, is_curve = item["class"], item["kind"] == "curve"
    n_resamples = n_resamples if is_curve or item["value"] == VAL else 0
    began = time.perf_counter()
    rows = np.flatnonzero(test.instance < 0)
    if is_curve:
        scores, n = curve_scores(name, train, test, rows, options)
    else:
        scores, n = blend_scores(name, train, test, rows, options, bends)
    trained = time.perf_counter() - began
    judge = Judge(test, name, rows, moved_boxes(name, train, test, rows, options))
    if not is_curve:
        scores |= judge.supported({way: scores[way] for way in (DEFAULT, SQUARED, RCNN, blend_name(DEFAULT, 0.5))})
    found = {way: judge.precisions(own, n_resamples) for way, own in scores.items()}
    return {
        "exemplars": n, "photographs": len(train.records), "trained_and_scored": trained,
        "rows": [{"rule": way, "ap": ap, "resampled": drawn} for way, (ap, drawn) in found.items()],
    }  # fmt: skip


def tables_of(
    item: Mapping[str, Any], folds_of: Callable[[int], np.ndarray], arguments: Namespace
) -> tuple[TrainingWindows, TrainingWindows]:
    """Windows of the images that train and that judge."""
    setting, value = item["setting"], item["value"]
    train = read_table(setting, setting.exemplars, arguments)
    if item["kind"] == "curve":
        chosen = np.sort(np.random.default_rng(0).permutation(len(train.records))[: int(value)])
        train, test = train.of_images(chosen.tolist()), read_table(setting, setting.judges, arguments)
    elif value == VAL:
        test = read_table(setting, setting.judges, arguments)
    else:
        folds = folds_of(len(train.records))
        parts = [np.flatnonzero(folds != value), np.flatnonzero(folds == value)]
        train, test = (train.of_images(part.tolist()) for part in parts)
    if arguments.max_exemplars is not None:
        train = with_objects(train, item["class"], arguments.max_exemplars)
    return train, test


def curve_scores(
    name: str, train: TrainingWindows, test: TrainingWindows, rows: np.ndarray, options: DetectorOptions
) -> tuple[Scores, int]:
    """Scores of the windows of `test` by each way, and the number of exemplars."""
    singles = {SQUARED: ("squared_hinge", 1e-3), RCNN: ("hinge", 1e-3)}
    singles |= {f"{RCNN}, C {C:g}": ("hinge", C) for C in STRONGER}
    scores, made = single_scores(name, train, test, rows, options, singles)
    pools, n = exemplar_scores(name, train, test, rows, options, made[SQUARED], BENDS[0], (5,))
    return scores | pools, n


def blend_scores(
    name: str, train: TrainingWindows, test: TrainingWindows, rows: np.ndarray, options: DetectorOptions,
    bends: Sequence[float],
) -> tuple[Scores, int]:  # fmt: skip
    """The same for blends."""
    singles = {SQUARED: ("squared_hinge", 1e-3), RCNN: ("hinge", 1e-3)}
    scores, made = single_scores(name, train, test, rows, options, singles)
    pools: Scores = {}
    n = 0
    for C in bends:
        found, n = exemplar_scores(name, train, test, rows, options, made[SQUARED], C, POOLINGS)
        pools |= found
    other = scores[RCNN]
    blends = {
        blend_name(way, share): (1 - share) * own + share * other
        for way, own in {SQUARED: scores[SQUARED], **pools}.items()
        for share in (SHARES if way != SQUARED else (0.5,))
        if not way.endswith("mean of 1")
    }
    return scores | pools | blends, n


def blend_name(way: str, share: float) -> str:
    return f"{way} + {share:g} of R-CNN's"


def single_scores(
    name: str, train: TrainingWindows, test: TrainingWindows, rows: np.ndarray, options: DetectorOptions,
    recipes: Mapping[str, tuple[str, float]],
) -> tuple[Scores, dict[str, Single]]:  # fmt: skip
    chosen, _ = class_rows(train, name, options.training, options.random_state)
    objects, negatives = train.descriptors[chosen.own], train.rows(chosen.is_single_negative)
    made = {}
    for way, (loss, C) in recipes.items():
        svm = LinearSVM(C=C, loss=loss, random_state=options.random_state).fit(objects, negatives)
        made[way] = Single(svm.coef_, float(np.float32(svm.intercept_)))
    weights, biases = np.stack([one.weights for one in made.values()]), [one.bias for one in made.values()]
    parts = [score_windows(test.descriptors[part], weights, biases) for part in blocks(rows)]
    return dict(zip(made, np.concatenate(parts).T.astype(np.float64), strict=True)), made


def exemplar_scores(
    name: str, train: TrainingWindows, test: TrainingWindows, rows: np.ndarray, options: DetectorOptions,
    single: Single, C: float, poolings: Sequence[int],
) -> tuple[Scores, int]:  # fmt: skip
    """Means of the best few exemplars, which bend the single SVM."""
    own = options.changed({"training.C": C}).training
    chosen, instances = class_rows(train, name, own, options.random_state)
    trainer = make_trainer(own, single)
    trainer.fit(*training_rows(train.table, chosen, own.own_image))
    made = trained_class(name, trainer, instances, single, int(chosen.is_negative.sum()))
    most = min(max(poolings), len(instances))
    best = np.empty((len(rows), most))
    end = 0
    for part in blocks(rows):
        raw = score_windows(test.descriptors[part], made.exemplars.coef_, made.exemplars.intercept_)
        kept = np.partition(raw, raw.shape[1] - most, axis=1)[:, -most:]
        best[end : end + len(part)] = -np.sort(-kept, axis=1)
        end += len(part)
    return {exemplars_way(C, k): best[:, :k].mean(axis=1) for k in poolings}, len(instances)


def blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), BLOCK):
        yield rows[start : start + BLOCK]


def moved_boxes(
    name: str, train: TrainingWindows, test: TrainingWindows, rows: np.ndarray, options: DetectorOptions
) -> np.ndarray:
    """(n, 4) boxes of windows where the regression of the class puts them."""
    boxes, regressor = test.boxes[rows].copy(), regress_boxes(train, name, options.random_state)
    if regressor is not None:
        for own in parts_of(test, rows):
            boxes[own] = regressor.move(boxes[own], test.descriptors[rows[own]])
    return boxes


def parts_of(test: TrainingWindows, rows: np.ndarray) -> list[slice]:
    """The windows of each image among some, image after image."""
    starts = np.searchsorted(test.image[rows], np.arange(len(test.records) + 1)).tolist()
    return [slice(a, b) for a, b in itertools.pairwise(starts)]


class Judge:
    """Windows of one class on the judging images, and the detection AP of scores of them."""

    def __init__(self, test: TrainingWindows, class_name: str, rows: np.ndarray, boxes: np.ndarray) -> None:
        self.records, self.class_name, self.boxes, self.parts = test.records, class_name, boxes, parts_of(test, rows)
        self.proposed = test.boxes[rows]

    def supported(self, scores: Scores) -> Scores:
        """Each way with the mean of what windows nearby score above -1 added, for each weight of that."""
        table = np.stack(list(scores.values()), axis=1)
        support = np.empty_like(table)
        for own in self.parts:
            near = (geometry.iou(self.proposed[own], self.proposed[own]) >= NEAR).astype(np.float64)
            support[own] = near @ np.maximum(table[own] + 1, 0) / near.sum(axis=1, keepdims=True)
        return {
            f"{way}, with support x {weight:g}": table[:, k] + weight * support[:, k]
            for k, way in enumerate(scores)
            for weight in SUPPORTS
        }

    def precisions(self, scores: np.ndarray, n_resamples: int) -> tuple[float, list[float]]:
        """AP, and AP on resamples of the images."""
        found = []
        for record, own in zip(self.records, self.parts, strict=True):
            boxes, values = self.boxes[own], scores[own]
            kept = geometry.nms(boxes, values, SUPPRESSION, "iou", MOST_DETECTIONS)
            names, nobody = np.full(len(kept), self.class_name), np.full(len(kept), -1, np.int64)
            found.append(Detections(record.image_id, boxes[kept], values[kept], names, nobody))
        ranking = rank_detections(make_tables(self.records, found, [self.class_name]), 0.5, "voc10")[0]
        n = len(self.records)
        drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), n_resamples).astype(np.float64)
        resampled = [round(ranking.average_precision(weights), 4) for weights in drawn]
        return float(ranking.average_precision(np.ones(n))), resampled
