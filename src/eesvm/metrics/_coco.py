"""COCO's average precision, computed by faster-coco-eval, which gives the digits of COCO's own code.

In: `Tables`, and one IoU or None for COCO's ten. Out: a `CocoClass` per class.
Crowds are passed on as such. COCO does not know difficult objects, so they are passed as crowds: not to be found, and
no detection on them is held against anybody. An object counts as small, medium or large by the number of pixels of its
mask, or by its box where it has no mask. At most 100 detections per image and class count. Of equal scores COCO's code
puts the image of the lower number first: that is the image id where all ids are numbers, else the place in the truth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.extras import optional_module
from eesvm.metrics.tables import Tables
from eesvm.structures import Instance

_RANGES = {"s": 1, "m": 2, "l": 3}  # small, medium, large: their places in COCO's list of areas, 0 is all of them
_LIMITS = {1: 0, 10: 1, 100: 2}  # most detections per image and class: their places in COCO's list

_Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CocoClass:
    """One class; NaN where there is no object to find."""

    class_name: str
    average_precision: float
    values: Mapping[str, float]  # AP50, AP75, APs, APm, APl, AR1, AR10, AR100, ARs, ARm, ARl
    n_objects: int
    n_ignored_objects: int
    n_hits: int  # at the lowest IoU
    precision: _Floats  # (101,) at the lowest IoU
    recall: _Floats  # (101,) 0, 0.01, ..., 1
    scores: _Floats  # (101,)


def evaluate_coco(tables: Tables, iou: float | None) -> list[CocoClass]:
    """COCO's numbers of every class."""
    package = optional_module("faster_coco_eval", "coco")
    document = _document(tables)
    # As annotations with scores, and not by `loadRes`, which in older versions stumbles over an empty list.
    results = {**document, "annotations": _results(tables)}
    truth, found = (package.COCO(each, print_function=_silent) for each in (document, results))
    judge = package.COCOeval_faster(truth, found, "bbox", print_function=_silent)
    if iou is not None:
        judge.params.iouThrs = np.array([iou])
    judge.evaluate()
    judge.accumulate()
    thresholds = [round(float(value), 10) for value in judge.params.iouThrs]
    precision, recall, scores = (np.asarray(judge.eval[name]) for name in ("precision", "recall", "scores"))
    recalls = np.asarray(judge.params.recThrs, dtype=np.float64)
    objects = tables.objects
    answers = []
    for k, name in enumerate(tables.class_names):
        is_own = objects.classes == k
        n_objects = int((is_own & objects.counts).sum())
        # Axes: IoU, recall, class, area, limit on detections; recall has no axis of its own kind.
        reached = float(recall[0, k, 0, -1]) if n_objects else 0.0
        answer = CocoClass(
            class_name=name,
            average_precision=_known_mean(precision[:, :, k, 0, -1]),
            values=_values(precision[:, :, k], recall[:, k], thresholds),
            n_objects=n_objects,
            n_ignored_objects=int(is_own.sum()) - n_objects,
            n_hits=round(reached * n_objects),
            precision=precision[0, :, k, 0, -1] if n_objects else np.empty(0),
            recall=recalls if n_objects else np.empty(0),
            scores=scores[0, :, k, 0, -1] if n_objects else np.empty(0),
        )
        answers.append(answer)
    return answers


def _values(precision: np.ndarray, recall: np.ndarray, thresholds: list[float]) -> dict[str, float]:
    """The summary of one class: precision (IoU, recall, area, limit), recall (IoU, area, limit)."""
    at = {f"AP{100 * iou:.0f}": thresholds.index(iou) for iou in (0.5, 0.75) if iou in thresholds}
    return {
        **{name: _known_mean(precision[k, :, 0, -1]) for name, k in at.items()},
        **{f"AP{name}": _known_mean(precision[:, :, area, -1]) for name, area in _RANGES.items()},
        **{f"AR{limit}": _known_mean(recall[:, 0, place]) for limit, place in _LIMITS.items()},
        **{f"AR{name}": _known_mean(recall[:, area, -1]) for name, area in _RANGES.items()},
    }


def _document(tables: Tables) -> dict[str, Any]:
    """The truth in COCO's form; classes are numbered in their order, from 1."""
    objects = tables.objects
    numbers = _image_numbers(tables)
    ignored = (objects.is_crowd | objects.is_difficult).tolist()
    columns = zip(
        numbers[objects.images].tolist(), objects.classes.tolist(), _xywh(objects.boxes), ignored, strict=True
    )
    annotations = [
        {
            "id": number,
            "image_id": image,
            "category_id": class_id + 1,
            "bbox": box,
            "area": _area(instance, box),
            "iscrowd": int(is_ignored),
        }
        for number, ((image, class_id, box, is_ignored), instance) in enumerate(
            zip(columns, objects.instances, strict=True), start=1
        )
    ]
    images = [
        {"id": number, "width": record.width, "height": record.height}
        for number, record in zip(numbers.tolist(), tables.records, strict=True)
    ]
    categories = [{"id": k, "name": name} for k, name in enumerate(tables.class_names, start=1)]
    return {"info": {}, "images": images, "categories": categories, "annotations": annotations}


def _area(instance: Instance, box: list[float]) -> float:
    """What decides whether an object is small, medium or large: what its file says, else its mask, else its box."""
    if instance.area is not None:
        return instance.area
    return box[2] * box[3] if instance.mask is None else int(np.count_nonzero(instance.mask()))


def _results(tables: Tables) -> list[dict[str, Any]]:
    """The detections in the order that decides between equal scores."""
    found = tables.found
    images = _image_numbers(tables)[found.images].tolist()
    columns = (images, found.classes.tolist(), _xywh(found.boxes), found.scores.tolist())
    return [
        {
            "id": number,
            "image_id": image,
            "category_id": class_id + 1,
            "bbox": box,
            "area": box[2] * box[3],
            "iscrowd": 0,
            "score": score,
        }
        for number, (image, class_id, box, score) in enumerate(zip(*columns, strict=True), start=1)
    ]


def _image_numbers(tables: Tables) -> NDArray[np.int64]:
    """(n_images,) from 1, in the order of the ids where all are numbers, else in that of the truth."""
    ids = [record.image_id for record in tables.records]
    numbers = np.arange(1, len(ids) + 1)
    if all(image_id.isascii() and image_id.isdigit() for image_id in ids):
        numbers[sorted(range(len(ids)), key=lambda k: (len(ids[k].lstrip("0")), ids[k].lstrip("0")))] = numbers.copy()
    return numbers


def _xywh(boxes: _Floats) -> list[list[float]]:
    listed: list[list[float]] = np.hstack([boxes[:, :2], np.maximum(boxes[:, 2:] - boxes[:, :2], 0.0)]).tolist()
    return listed


def _known_mean(values: np.ndarray) -> float:
    """Of what exists: COCO writes -1 where there is no object."""
    known = values[values > -1]
    return float(known.mean()) if known.size else math.nan


def _silent(*_: object) -> None:
    """Takes what the package would log."""
