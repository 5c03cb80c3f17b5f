"""Windows of whole images, kept so that calibrations can be judged by what they would detect there.

In: described training windows, the exemplars of a class, options. Out: `JudgedWindows`: of some images, with objects
of the class and without, the windows that detection could end with and their scores under every exemplar; and from any
scores of theirs a `Ranking`, whose average precision can be taken of all images or of resamples.
Calibration windows alone would not do: windows that overlap an object a little are not among them, and average
precision on a sample of negatives has chosen badly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from eesvm import boxes as box_functions
from eesvm.detector.options import DetectionOptions
from eesvm.detector.training_table import TrainingWindows
from eesvm.exemplars.scoring import score_windows
from eesvm.exemplars.svms import LinearExemplars
from eesvm.metrics.detections import Ranking, rank_detections
from eesvm.metrics.tables import make_tables
from eesvm.structures import Detections, ImageRecord, Instance

MOST_WITH, MOST_WITHOUT = 200, 100  # images with objects of the class, and without
KEPT = 80  # windows of an image that score best, in each of two ways
POOLED = 5  # exemplars whose mean says which windows score best

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


@dataclass(frozen=True)
class JudgedWindows:
    """Proposals of whole images, image after image; row i of every table is window i."""

    scores: F32  # (n, E)
    boxes: F64  # (n, 4)
    image: NDArray[np.int64]  # (n,) position among the images, never falling
    image_ids: NDArray[np.str_]  # (images,)
    weights: F64  # (images,) how many training images each stands for
    objects: F64  # (m, 4) boxes of the class
    object_image: NDArray[np.int64]  # (m,)
    is_ignored: NDArray[np.bool_]  # (m,) difficult objects and groups, which need not be found
    rows: NDArray[np.int64] | None = None  # (n,) where they stand among the training windows, where those are at hand

    @property
    def n_images(self) -> int:
        return len(self.image_ids)

    @cached_property
    def records(self) -> tuple[ImageRecord, ...]:
        """The images as an evaluation wants them; their pixels are not there."""
        found = []
        for k, name in enumerate(self.image_ids.tolist()):
            rows = np.flatnonzero(self.object_image == k).tolist()
            own = tuple(
                Instance(_CLASS, self.objects[row], name, index, is_difficult=bool(self.is_ignored[row]))
                for index, row in enumerate(rows)
            )
            found.append(ImageRecord(name, _no_pixels, 1, 1, own))
        return tuple(found)

    def ranking(self, scores: F64, options: DetectionOptions) -> Ranking:
        """What detection by one score per window comes to; a window of -inf is not detected."""
        ends = np.searchsorted(self.image, np.arange(self.n_images + 1))
        detections = []
        for record, start, stop in zip(self.records, ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            own = np.flatnonzero(np.isfinite(scores[start:stop])) + start
            kept = box_functions.nms(self.boxes[own], scores[own], options.nms, options.overlap, options.max_detections)
            rows = own[kept]
            names, nobody = np.full(len(rows), _CLASS), np.full(len(rows), -1, dtype=np.int64)
            detections.append(Detections(record.image_id, self.boxes[rows], scores[rows], names, nobody))
        return rank_detections(make_tables(self.records, detections, [_CLASS]), 0.5, "voc10")[0]


_CLASS = "object"  # there is one


def _no_pixels() -> NDArray[np.uint8]:
    raise AssertionError("images that calibrations are judged by are never looked at")


def most_judged(n_images: int) -> int:
    """How many windows of so many images are judged at most."""
    return 2 * KEPT * min(n_images, MOST_WITH + MOST_WITHOUT)


def judged_windows(
    windows: TrainingWindows, class_name: str, exemplars: LinearExemplars, random_state: int = 0
) -> JudgedWindows:
    """Proposals of random images, scored; of each image those with the highest scores.

    Scores are compared as they are and in units of the exemplar: with its mean and spread over the windows of the
    image taken out, so that windows stay which only some calibration would put on top.
    """
    chosen, weights = _drawn(windows, class_name, random_state)
    parts = [_image_windows(windows, int(k), exemplars) for k in chosen]
    names, rows = windows.image_ids[chosen], np.concatenate([own for _, own in parts])
    objects = [
        (number, instance)
        for number, k in enumerate(chosen.tolist())
        for instance in windows.records[k].instances
        if instance.class_name == class_name
    ]
    return JudgedWindows(
        scores=np.concatenate([scores for scores, _ in parts]),
        boxes=windows.boxes[rows],
        image=np.repeat(np.arange(len(chosen)), [len(own) for _, own in parts]),
        image_ids=names,
        weights=weights,
        objects=np.array([instance.box for _, instance in objects], dtype=np.float64).reshape(-1, 4),
        object_image=np.array([number for number, _ in objects], dtype=np.int64),
        is_ignored=np.array([one.is_difficult or one.is_crowd for _, one in objects], dtype=bool),
        rows=rows,
    )


def _drawn(windows: TrainingWindows, class_name: str, random_state: int) -> tuple[NDArray[np.int64], F64]:
    """Positions of some images with objects of the class and of some without, in their order, and their weights."""
    has = np.array([any(i.class_name == class_name for i in record.instances) for record in windows.records])
    random = np.random.default_rng(random_state)
    limits = ((True, MOST_WITH), (False, MOST_WITHOUT))
    parts = [random.permutation(np.flatnonzero(has == kind))[:most] for kind, most in limits]
    chosen = np.sort(np.concatenate(parts)).astype(np.int64)
    shares = {kind: (has == kind).sum() / max(1, len(part)) for (kind, _), part in zip(limits, parts, strict=True)}
    return chosen, np.array([shares[bool(kind)] for kind in has[chosen]])


def _image_windows(windows: TrainingWindows, k: int, exemplars: LinearExemplars) -> tuple[F32, NDArray[np.int64]]:
    """Scores and rows of the windows of an image that may be detected."""
    rows = np.arange(windows.starts[k], windows.starts[k + 1])
    rows = rows[windows.instance[rows] < 0]
    is_span = len(rows) and rows[-1] - rows[0] == len(rows) - 1  # objects come first: then no copy is needed
    described = windows.descriptors[rows[0] : rows[-1] + 1] if is_span else windows.descriptors[rows]
    scores = score_windows(described, exemplars.coef_, exemplars.intercept_)
    kept = np.sort(np.unique(np.concatenate([_best(scores), _best(_standardised(scores))]))) if len(rows) else rows
    return scores[kept], rows[kept]


def _standardised(scores: F32) -> F32:
    spread = scores.std(axis=0)
    return (scores - scores.mean(axis=0)) / np.where(spread > 0, spread, 1)


def _best(scores: F32) -> NDArray[np.intp]:
    n_best = min(POOLED, scores.shape[1])
    pooled = np.partition(scores, -n_best, axis=1)[:, -n_best:].mean(axis=1)
    return np.argsort(-pooled, kind="stable")[:KEPT]
