"""From which score on a detection of a class is worth showing.

In: a class of a model with the windows that are kept of its training images. Out: `SuggestedScore`: the score with the
best F1, or the lowest one with a precision that is asked for, and what precision and recall detections have there.
Images are detected in as if they were new: exemplars of an image do not score in it. What is shared by all exemplars
(the single SVM, the calibrator) has seen the image, so new photographs will do worse.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import InputError, check_number
from eesvm.detector.class_calibration import SINGLE_SVM, ScoreRule, score_rule
from eesvm.detector.left_out import JudgedWindows
from eesvm.detector.model import ClassModel
from eesvm.detector.options import DetectorOptions
from eesvm.metrics.detections import Ranking

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class SuggestedScore:
    """A least score for the detections of a class, and what training images say about it."""

    score: float
    precision: float
    recall: float
    n_objects: int  # that are to be found in these images
    calibrator: str

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        return {**asdict(self), "f1": self.f1}


class NothingSuggestedError(InputError):
    """Training images suggest no score for any class of a model."""


def suggest_score(
    model: ClassModel, options: DetectorOptions, calibrator: str | None = None, precision: float | None = None
) -> SuggestedScore | None:
    """The least score that training images suggest; None where they say nothing.

    They say nothing where the model keeps none of their windows, about the single SVM, which has seen all of them, and
    about a class whose objects are all in one image.

    Parameters
    ----------
    model : the class.
    options : of the detector.
    calibrator : one of `CALIBRATORS`. Default: that of the options.
    precision : the lowest score with at least this precision is wanted. Default: the one with the best F1.

    Raises
    ------
    InputError : no score has that precision.
    """
    name = calibrator or options.calibration.calibrator
    if model.read_kept is None or name == SINGLE_SVM:
        return None
    model.fit_missing(name, options)
    kept = (model.read_judged or model.read_kept)()
    rule = score_rule(name, model.calibrators, model.n_exemplars, options.detection.pooling)
    judged = kept.scored(model.exemplars)
    own = np.array([annotation.image_id for annotation in model.annotations], dtype=np.str_)
    scores, weights = _as_if_new(judged, rule, own)
    boxes = judged.boxes
    if model.regressor is not None and options.detection.box_regression:
        boxes = model.regressor.move(boxes, kept.judged_rows)
    ranking = replace(judged, boxes=boxes).ranking(scores, options.detection)
    return _chosen(ranking, weights, precision, name, model.class_name)


def why_none(model: ClassModel, calibrator: str) -> str:
    """Why training images suggest no score for a class, where they do not.

    Parameters
    ----------
    model : the class.
    calibrator : that detects.
    """
    if model.read_kept is None:
        return "the model keeps no windows of its training images"
    if calibrator == SINGLE_SVM:
        return "the single SVM has seen every training image"
    if len({annotation.image_id for annotation in model.annotations}) == 1:
        return "its objects are all in one training image"
    return "none of its objects is found again in the training images"


def _as_if_new(judged: JudgedWindows, rule: ScoreRule, own: NDArray[np.str_]) -> tuple[F64, F64]:
    """(n,) scores of windows without the exemplars of their image, and weights of images, 0 where nobody else is."""
    scores, weights = np.full(len(judged.image), -np.inf), judged.weights.copy()
    used = own[rule.used]
    raw = judged.scores[:, rule.used]
    silent = raw.min(axis=0) if len(raw) else np.zeros(len(used), dtype=np.float32)
    ends = np.searchsorted(judged.image, np.arange(judged.n_images + 1))
    for k, image_id in enumerate(judged.image_ids.tolist()):
        part, is_own = slice(ends[k], ends[k + 1]), used == image_id
        if is_own.all():
            weights[k] = 0.0
            continue
        scores[part], _ = rule(np.where(is_own, silent, raw[part]), judged.boxes[part])
    return scores, weights


def _chosen(
    ranking: Ranking, weights: F64, precision: float | None, calibrator: str, class_name: str
) -> SuggestedScore | None:
    total = float(weights[ranking.object_images].sum())
    own = weights[ranking.images]
    hits, accepted = np.cumsum(np.where(ranking.is_hit, own, 0.0)), np.cumsum(own)
    is_end = np.append(ranking.scores[1:] < ranking.scores[:-1], True)[: len(own)] & (accepted > 0)
    if not total or not is_end.any() or not hits[-1]:
        return None
    places = np.flatnonzero(is_end)
    precisions, recalls = hits[places] / accepted[places], hits[places] / total
    best = int(np.argmax(2 * hits[places] / (accepted[places] + total)))
    if precision is not None:
        check_number(precision, "precision", above=0, maximum=1)
        enough = np.flatnonzero((precisions >= precision) & (recalls > 0))
        if not len(enough):
            raise InputError(
                f"no score gives detections of {class_name} a precision of {precision:g} in the training images: the "
                f"highest is {precisions.max():.3g}"
            )
        best = int(enough[-1])
    score = float(ranking.scores[places[best]])
    n_objects = int((weights[ranking.object_images] > 0).sum())
    return SuggestedScore(score, float(precisions[best]), float(recalls[best]), n_objects, calibrator)
