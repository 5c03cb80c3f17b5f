"""Average precision of detections, as PASCAL VOC, ILSVRC and COCO define it.

In: annotated images and the detections in them. Out: a `DetectionReport` with average precision, counts and the
precision-recall curve of every class, their mean, and intervals over images if wanted.
Detections are ranked by score; of equal scores the image that comes first in the truth goes first, and within an image
the earlier row. A second hit on an object is a false positive; difficult objects and crowds are neither to be found nor
held against anybody (`matching` says precisely who takes what). Images without detections count: their objects are
missed.
Not here: suppression of overlapping detections, see `boxes.nms`; the blacklist of ILSVRC's validation set.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm._support.tables import markdown_table
from eesvm._support.validation import InputError, check_choice, check_number
from eesvm.metrics._coco import CocoClass, evaluate_coco
from eesvm.metrics.choices import PROTOCOLS
from eesvm.metrics.matching import HIT, IGNORED, match_detections
from eesvm.metrics.tables import Tables, make_tables
from eesvm.metrics.windows import Interval
from eesvm.structures import Dataset, Detections, ImageRecord

PROTOCOL_TEXTS = {
    "voc07": "PASCAL VOC until 2009: mean precision at recalls 0, 0.1, ..., 1",
    "voc10": "PASCAL VOC since 2010: area under the monotone precision-recall curve",
    "ilsvrc": "ILSVRC: area under the monotone curve, less overlap asked of small objects",
    "coco": "COCO: mean over IoU thresholds of the precision at 101 recalls, 100 detections per image and class",
}

_ALL = "all"
_Floats = NDArray[np.float64]


class Curve(NamedTuple):
    """Precision over recall, one point per detection that counts, highest score first; for COCO, per asked recall."""

    precision: _Floats
    recall: _Floats
    scores: _Floats  # what a detection must score to be accepted at that point


@dataclass(frozen=True, eq=False)
class ClassReport:
    """How well one class was detected; shares are NaN for a class without objects."""

    class_name: str
    average_precision: float
    n_objects: int  # that must be found
    n_ignored_objects: int  # difficult ones and crowds
    n_detections: int
    n_hits: int
    n_ignored_detections: int | None  # neither right nor wrong; None for COCO, where it depends on the threshold
    curve: Curve = field(repr=False)
    interval: Interval | None = None  # of the average precision
    values: Mapping[str, float] = field(default_factory=dict)  # of COCO: AP50, AP75, APs, ..., ARl

    @property
    def recall(self) -> float:
        """Share of the objects that are found by any of the detections."""
        return self.n_hits / self.n_objects if self.n_objects else math.nan


@dataclass(frozen=True, eq=False)
class DetectionReport:
    """How well the objects of a dataset were detected."""

    protocol: str
    iou: float | None  # None for COCO's ten thresholds, 0.5 to 0.95
    classes: tuple[ClassReport, ...]
    mean_average_precision: float  # over the classes that have objects; NaN where there are none
    interval: Interval | None  # of the mean
    confidence: float | None  # of the intervals, None where none were asked for
    values: Mapping[str, float]  # of COCO: means of AP50, AP75, APs, ..., ARl
    n_images: int
    unknown_classes: Mapping[str, int]  # class names that the truth does not have -> detections set aside

    def __getitem__(self, class_name: str) -> ClassReport:
        return {found.class_name: found for found in self.classes}[class_name]

    @property
    def n_objects(self) -> int:
        """Objects of all classes that must be found."""
        return sum(found.n_objects for found in self.classes)

    @property
    def n_detections(self) -> int:
        """Detections of all classes that count."""
        return sum(found.n_detections for found in self.classes)

    def to_csv_rows(self) -> list[tuple[Any, ...]]:
        """The header, a row per class and one for all; what does not exist is an empty string."""
        header = (
            *("protocol", "iou", "class", "average_precision", "average_precision_low", "average_precision_high"),
            *("objects", "ignored_objects", "detections", "hits", "ignored_detections", "recall", *self.values),
        )
        iou = "0.5:0.95" if self.iou is None else self.iou
        return [header, *((self.protocol, iou, *_csv_cells(found)) for found in (*self.classes, self._all()))]

    def to_table(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows as texts, shares in per cent; last comes a row for all where there are several classes."""
        header = ["class", "AP, %"]
        if self.confidence is not None:
            header.append(f"{100 * self.confidence:g} % interval")
        header += [*(f"{name}, %" for name in self.values), "objects", "detections", "hits", "recall, %"]
        shown = (*self.classes, self._all()) if len(self.classes) > 1 else self.classes
        return header, [self._texts(found) for found in shown]

    def to_markdown(self) -> str:
        """A table under a line that says what was measured."""
        return f"{self.headline()}\n\n{markdown_table(*self.to_table())}\n"

    def headline(self) -> str:
        """What was measured, in a sentence or two."""
        overlap = "0.5 to 0.95" if self.iou is None else f"{self.iou:g}"
        text = (
            f"{PROTOCOL_TEXTS[self.protocol]}. IoU {overlap}; {self.n_images:,} images, {self.n_objects:,} objects, "
            f"{self.n_detections:,} detections."
        )
        if self.unknown_classes:
            listed = ", ".join(f"{n:,} of {name}" for name, n in sorted(self.unknown_classes.items()))
            text += f" Detections of classes that the truth does not have are left out: {listed}."
        return text

    def as_dict(self) -> dict[str, Any]:
        """Plain values without the curves, for JSON; None where something does not exist."""
        header, *rows = self.to_csv_rows()
        classes = [{k: _or_none(v) for k, v in zip(header[2:], row[2:], strict=True)} for row in rows]
        together = classes.pop()
        return {
            "protocol": self.protocol,
            "iou": self.iou,
            "mean_average_precision": together["average_precision"],
            "interval": None if self.interval is None else list(self.interval),
            "confidence": self.confidence,
            **{name: together[name] for name in self.values},
            "images": self.n_images,
            "objects": self.n_objects,
            "detections": self.n_detections,
            "classes": classes,
            "unknown_classes": dict(self.unknown_classes),
        }

    def _all(self) -> ClassReport:
        """All classes as one row: of precisions the mean over the classes, of counts the sum, recall of all objects."""
        ignored = [found.n_ignored_detections for found in self.classes]
        return ClassReport(
            class_name=_ALL,
            average_precision=self.mean_average_precision,
            n_objects=self.n_objects,
            n_ignored_objects=sum(found.n_ignored_objects for found in self.classes),
            n_detections=self.n_detections,
            n_hits=sum(found.n_hits for found in self.classes),
            n_ignored_detections=sum(n or 0 for n in ignored) if None not in ignored else None,
            curve=Curve(np.empty(0), np.empty(0), np.empty(0)),
            interval=self.interval,
            values=self.values,
        )

    def _texts(self, found: ClassReport) -> list[str]:
        interval = [] if self.confidence is None else [_interval_text(found.interval)]
        counts = [f"{n:,}" for n in (found.n_objects, found.n_detections, found.n_hits)]
        shares = [_percent(found.values.get(name, math.nan)) for name in self.values]
        return [
            *(found.class_name, _percent(found.average_precision), *interval, *shares),
            *(*counts, _percent(found.recall)),
        ]


def evaluate_detections(
    truth: Dataset | Sequence[ImageRecord],
    detections: Iterable[Detections],
    *,
    protocol: str = "voc10",
    iou: float | None = None,
    classes: Iterable[str] | None = None,
    n_resamples: int = 0,
    confidence: float = 0.95,
    random_state: int = 0,
) -> DetectionReport:
    """Average precision of `detections` against the instances of `truth`.

    An image that the truth does not have is an error; detections of a class that it does not have are set aside and
    reported. The result does not depend on the order of `detections`.

    Parameters
    ----------
    truth : images with their annotated objects.
    detections : of each image, at most one entry for each; images without an entry have none.
    protocol : "voc07", "voc10", "ilsvrc" or "coco"; the last needs `pip install 'eesvm[coco]'`.
    iou : overlap that makes a hit. Default: 0.5; for COCO the mean over 0.5, 0.55, ..., 0.95. ILSVRC asks less of an
        object of w x h pixels, min(iou, w h / ((w + 10) (h + 10))).
    classes : evaluate only these. Default: all classes of the truth; one without objects has no average precision and
        is left out of the mean.
    n_resamples : bootstrap resamples of whole images behind the intervals; 0 for none, which COCO needs. A resample in
        which a class has no object says nothing about that class. An interval is for many images of this kind and
        corrected for bias: average precision comes out too high on few images, so it may lie below the estimate.
    confidence, random_state : of the intervals.
    """
    check_choice(protocol, "protocol", PROTOCOLS)
    threshold = None if iou is None else check_number(iou, "iou", above=0, maximum=1)
    check_number(n_resamples, "n_resamples", minimum=0, integer=True)
    check_number(confidence, "confidence", above=0, maximum=1)
    check_number(random_state, "random_state", minimum=0, integer=True)
    if protocol == "coco":
        if n_resamples:
            raise InputError("`n_resamples` must be 0 for the protocol 'coco': intervals are made for VOC and ILSVRC")
        return _coco_report(make_tables(truth, detections, classes), threshold)
    tables = make_tables(truth, detections, classes)
    iou = 0.5 if threshold is None else threshold
    rankings = rank_detections(tables, iou, protocol)
    reports = [ranking.report() for ranking in rankings]
    mean_interval = None
    if n_resamples:
        estimates = _resample(rankings, len(tables.records), n_resamples, np.random.default_rng(random_state))
        intervals = [
            _interval(column, found.average_precision, confidence)
            for column, found in zip(estimates.T, reports, strict=True)
        ]
        mean = _mean(found.average_precision for found in reports)
        mean_interval = _interval(np.array([_mean(row) for row in estimates]), mean, confidence)
        reports = [replace(found, interval=own) for found, own in zip(reports, intervals, strict=True)]
    return DetectionReport(
        protocol=protocol,
        iou=iou,
        classes=tuple(reports),
        mean_average_precision=_mean([found.average_precision for found in reports]),
        interval=mean_interval,
        confidence=confidence if n_resamples else None,
        values={},
        n_images=len(tables.records),
        unknown_classes=tables.unknown_classes,
    )


@dataclass(frozen=True, eq=False)
class Ranking:
    """The detections of one class that count, best first, and where the objects are."""

    class_name: str
    is_hit: NDArray[np.bool_]
    scores: _Floats
    images: NDArray[np.int64]  # of the detections
    object_images: NDArray[np.int64]  # of the objects that must be found
    n_ignored_objects: int
    n_ignored_detections: int
    is_eleven_point: bool

    def average_precision(self, image_weights: _Floats | None = None) -> float:
        """With every image counted once, or as often as `image_weights` says."""
        weights = np.ones(len(self.images)) if image_weights is None else image_weights[self.images]
        total = len(self.object_images) if image_weights is None else image_weights[self.object_images].sum()
        if not total:
            return math.nan
        hits, precision = self._cumulative(weights)
        envelope = np.maximum.accumulate(precision[::-1])[::-1]
        if not self.is_eleven_point:
            return float((weights * envelope)[self.is_hit].sum() / total)
        # Tenths are compared as whole numbers: 3 of 10 objects are a recall of 0.3, whatever 3 * 0.1 is in floats.
        first = np.searchsorted(10 * hits, np.arange(11) * total)
        return float(np.append(envelope, 0.0)[first].mean())

    def report(self) -> ClassReport:
        n_objects = len(self.object_images)
        hits, precision = self._cumulative(np.ones(len(self.images)))
        recall = hits / n_objects if n_objects else np.full(len(hits), math.nan)
        return ClassReport(
            class_name=self.class_name,
            average_precision=self.average_precision(),
            n_objects=n_objects,
            n_ignored_objects=self.n_ignored_objects,
            n_detections=len(self.is_hit) + self.n_ignored_detections,
            n_hits=int(self.is_hit.sum()),
            n_ignored_detections=self.n_ignored_detections,
            curve=Curve(precision, recall, self.scores),
        )

    def _cumulative(self, weights: _Floats) -> tuple[_Floats, _Floats]:
        """(k,) weight of the hits so far, and precision so far."""
        hits, accepted = np.cumsum(np.where(self.is_hit, weights, 0.0)), np.cumsum(weights)
        return hits, np.divide(hits, accepted, out=np.zeros_like(hits), where=accepted > 0)


def rank_detections(tables: Tables, iou: float, protocol: str) -> list[Ranking]:
    """The detections of each class by decreasing score, matched with its objects."""
    objects, found = tables.objects, tables.found
    outcome = match_detections(tables, iou, protocol == "ilsvrc").outcome
    order = np.argsort(-found.scores, kind="stable")  # equal scores stay in the order of images and rows
    order = order[np.argsort(found.classes[order], kind="stable")]
    edges = np.searchsorted(found.classes[order], np.arange(len(tables.class_names) + 1))
    rankings = []
    for class_id, name in enumerate(tables.class_names):
        rows = order[edges[class_id] : edges[class_id + 1]]
        counted = rows[outcome[rows] != IGNORED]
        is_own = objects.classes == class_id
        object_images = objects.images[is_own & objects.counts]
        ranking = Ranking(
            class_name=name,
            is_hit=outcome[counted] == HIT,
            scores=found.scores[counted],
            images=found.images[counted],
            object_images=object_images,
            n_ignored_objects=int(is_own.sum()) - len(object_images),
            n_ignored_detections=len(rows) - len(counted),
            is_eleven_point=protocol == "voc07",
        )
        rankings.append(ranking)
    return rankings


def _resample(rankings: Sequence[Ranking], n_images: int, n_resamples: int, rng: np.random.Generator) -> _Floats:
    """(n_resamples, n_classes) average precisions when images are drawn with replacement.

    Who takes what is decided within an image, so the matches stay and only weights change.
    """
    estimates = np.empty((n_resamples, len(rankings)))
    for k in range(n_resamples):
        drawn = np.bincount(rng.integers(n_images, size=n_images), minlength=n_images).astype(np.float64)
        estimates[k] = [ranking.average_precision(drawn) for ranking in rankings]
    return estimates


def _interval(estimates: _Floats, value: float, confidence: float) -> Interval | None:
    """Percentiles of the estimates from resamples, moved down by twice their bias, within 0 and 1.

    The monotone curve of few detections is ragged and encloses too much. A resample has fewer different detections than
    the data, so its estimate lies above `value` by about as much as `value` lies above that of many images. Of a mean
    over ten classes of 60 images, plain percentiles covered the truth in 44 % of simulated cases, these in 81 %; with
    300 images in 67 % and 93 %.
    """
    known = estimates[~np.isnan(estimates)]
    if not len(known):
        return None
    bias = known.mean() - value
    bounds = np.quantile(known, [(1 - confidence) / 2, (1 + confidence) / 2]) - 2 * bias
    low, high = np.clip(bounds, 0.0, 1.0)
    return Interval(float(low), float(high))


def _coco_report(tables: Tables, iou: float | None) -> DetectionReport:
    n_detections = np.bincount(tables.found.classes, minlength=len(tables.class_names))
    answers = evaluate_coco(tables, iou) if tables.class_names else []  # COCO's code has no word for no class at all
    reports = [_coco_class(answer, int(n)) for answer, n in zip(answers, n_detections, strict=True)]
    names = reports[0].values if reports else ()
    return DetectionReport(
        protocol="coco",
        iou=iou,
        classes=tuple(reports),
        mean_average_precision=_mean([found.average_precision for found in reports]),
        interval=None,
        confidence=None,
        values={name: _mean([found.values[name] for found in reports]) for name in names},
        n_images=len(tables.records),
        unknown_classes=tables.unknown_classes,
    )


def _coco_class(answer: CocoClass, n_detections: int) -> ClassReport:
    return ClassReport(
        class_name=answer.class_name,
        average_precision=answer.average_precision,
        n_objects=answer.n_objects,
        n_ignored_objects=answer.n_ignored_objects,
        n_detections=n_detections,
        n_hits=answer.n_hits,
        n_ignored_detections=None,
        curve=Curve(answer.precision, answer.recall, answer.scores),
        values=answer.values,
    )


def _mean(values: Iterable[float]) -> float:
    """Of those that exist; NaN where none does."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def _csv_cells(found: ClassReport) -> tuple[Any, ...]:
    interval = ("", "") if found.interval is None else tuple(found.interval)
    counts = (found.n_objects, found.n_ignored_objects, found.n_detections, found.n_hits)
    ignored = "" if found.n_ignored_detections is None else found.n_ignored_detections
    shares = [found.recall, *found.values.values()]
    return (
        *(found.class_name, _or_empty(found.average_precision), *interval, *counts, ignored),
        *map(_or_empty, shares),
    )


def _or_empty(value: float) -> float | str:
    return "" if math.isnan(value) else value


def _or_none(value: Any) -> Any:
    return None if value == "" else value


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f}"


def _interval_text(interval: Interval | None) -> str:
    return "-" if interval is None else f"{100 * interval.low:.1f} to {100 * interval.high:.1f}"
