"""Which exemplars of a model speak for its detections: the few best of each, instead of the winner alone.

In: a detector and detections with their winners. Out: the same detections, each with its best exemplars and their
calibrated scores, as `transfer` takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from eesvm._support.validation import check_number
from eesvm.descriptors import describe_dataset
from eesvm.detector.detector import ExemplarDetector
from eesvm.detector.model import Ensemble
from eesvm.structures import Detections, Problem, Windows
from eesvm.transfer.detections import ImageDetections, Progress


def with_consensus(
    chosen: Sequence[ImageDetections],
    detector: ExemplarDetector,
    n_best: int,
    *,
    calibrator: str | None = None,
    progress: Progress | None = None,
    problems: list[Problem] | None = None,
) -> list[ImageDetections]:
    """The same detections, for which the `n_best` best exemplars of their class speak.

    Each box is described and scored again; where the model has moved it, that is not the window that its winner won,
    and others may be best on it. Detections of an image that cannot be read keep their winners.

    Parameters
    ----------
    chosen : what `choose_detections` gives.
    detector : the model that made the detections.
    n_best : exemplars for each detection, at least 1.
    calibrator : the one that the detections were made with, if it is not that of the model.
    progress : called with the number of images done, and of all.
    problems : a list that receives a `Problem` for each image that cannot be read; without one they are logged.
    """
    check_number(n_best, "n_best", minimum=1, integer=True)
    options = detector.checked_options()
    ensemble = Ensemble(detector.models_, calibrator or options.calibration.calibrator, options)
    windows = [_as_windows(one.detections) for one in chosen]
    described = describe_dataset(
        [one.record for one in chosen], windows, detector.descriptor_, progress=progress, problems=problems
    )
    by_image = {one.record.image_id: one for one in chosen}
    for item in described:
        one = by_image[item.image_id]
        voters, scores = ensemble.best(np.asarray(item.descriptors), one.detections.class_names, n_best)
        by_image[item.image_id] = replace(one, voters=voters, scores=scores)
    return list(by_image.values())


def classes_with_moved_boxes(detector: ExemplarDetector) -> set[str]:
    """Classes whose detections are elsewhere than the windows that were scored."""
    if not detector.checked_options().detection.box_regression:
        return set()
    return {model.class_name for model in detector.models_ if model.regressor is not None}


def _as_windows(found: Detections) -> Windows:
    return Windows(found.image_id, found.boxes, np.full(len(found), -1))
