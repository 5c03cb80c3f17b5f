"""What a model has found, gathered for the page.

In: a fitted or loaded `ExemplarDetector`, a dataset, and the detections in it. Out: `ReportData`. Where the images are
annotated, every detection is judged and every missed object listed; where they are not, the parts that need the truth
are left out, and a note says so. So it is with what a model has not kept: training scores, the history of a search.
Detections in images that the dataset does not have, or by exemplars that the model does not have, are refused.
Not here: detecting (`detector`) and looks (`page`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from eesvm._support.validation import InputError, check_number
from eesvm._support.version import __version__
from eesvm.detector.class_calibration import JOINT, JOINT_SIGMOID
from eesvm.detector.detector import ExemplarDetector
from eesvm.detector.training_table import StageProgress
from eesvm.report import texts
from eesvm.report.data import RIGHT, Class, Exemplar, Image, ReportData, Section
from eesvm.report.exemplars import ClassPart, class_part
from eesvm.report.pictures import fitted_jpeg, share
from eesvm.report.scenes import Pixels, Scenes, choose_detections, with_masks
from eesvm.report.truth import Judgement, error_count, judge, thinned_curve
from eesvm.structures import Dataset, Detections, ExemplarAnnotation, Problem
from eesvm.transfer.detections import check_winners
from eesvm.transfer.refinement import mean_masks

EXEMPLAR_BYTES = 3_000_000  # of all their pictures; in base 64 they take a third more
_MOST_MISSED = 300


def gather(
    detector: ExemplarDetector,
    dataset: Dataset,
    detections: Sequence[Detections],
    *,
    title: str | None = None,
    calibrator: str | None = None,
    max_detections: int = 500,
    frontier_seconds: float | None = None,
    sections: Sequence[Section] = (),
    progress: StageProgress | None = None,
    problems: list[Problem] | None = None,
) -> ReportData:
    """Everything that a report shows.

    Parameters
    ----------
    detector : fitted or loaded.
    dataset : the images, with annotated objects if there are any.
    detections : of images of the dataset; images without an entry are images in which nothing was found.
    title : of the page; default: made from the classes.
    calibrator : what the detections were made with, for the text; default: that of the model.
    max_detections : how many to show, as far as possible equally many of each class, its surest. Figures and curves
        are of all detections in any case.
    frontier_seconds : for the search of each recall floor of each class; None: other floors than that of the model are
        not looked at.
    sections : whatever else the page should hold.
    progress : called with a stage, how much of it is done, and how much there is to do.
    problems : a list that receives a `Problem` for each image that could not be read.
    """
    check_number(max_detections, "max_detections", minimum=1, integer=True)
    used = calibrator or detector.checked_options().calibration.calibrator
    exemplars = detector.exemplars_
    _check(dataset, detections, exemplars)
    class_ids = _class_ids(detector, detections)
    trained = _training(detector, frontier_seconds, progress)
    judgement = judge(dataset, detections, list(class_ids))
    scenes, images, unreadable = Scenes(dataset), _pictures(exemplars), [] if problems is None else problems
    chosen = choose_detections(detections, max_detections)
    shown = [scenes.detection(found, row, class_ids, exemplars, judgement) for found, row in chosen]
    missed = () if judgement is None else scenes.missed(judgement, class_ids, _MOST_MISSED)

    means, boxes = mean_masks(exemplars), [found.box for found, _ in chosen]

    def look(scene: int, pixels: Pixels) -> None:
        shown[:] = with_masks(shown, boxes, scene, pixels, exemplars, means)

    embedded = scenes.embed(images, unreadable, None if progress is None else partial(progress, "pictures"), look)
    data = ReportData(
        title=title or texts.title(list(class_ids)),
        headline="",
        has_truth=judgement is not None,
        is_joint=used in (JOINT, JOINT_SIGMOID) and detector.checked_options().calibration.shrink is None,
        classes=_classes(class_ids, trained, detections, judgement),
        exemplars=_exemplars(trained, detections, judgement, [each.picture is not None for each in exemplars]),
        scenes=embedded,
        detections=tuple(shown),
        n_detections=sum(map(len, detections)),
        missed=missed,
        n_missed=0 if judgement is None else len(judgement.errors.missed),
        images=tuple(images),
        options=tuple((name, texts.option(value)) for name, value in detector.checked_options().flat().items()),
        sections=tuple(sections),
        footer=f"Written by eesvm {__version__}.",
    )
    has_scores = all(part.has_scores for part in trained)
    return replace(
        data,
        headline=texts.headline(detector.inputs_, data, dataset, judgement),
        facts=tuple(texts.facts(data, judgement)),
        notes=tuple(texts.notes(data, dataset, used, has_scores, sum(scene.image is None for scene in embedded))),
    )


def _check(dataset: Dataset, detections: Sequence[Detections], exemplars: Sequence[ExemplarAnnotation]) -> None:
    """Refuse detections that are of other images or of another model."""
    known = {record.image_id for record in dataset}
    if not known:
        raise InputError(f"{dataset.name} has no images")
    seen: set[str] = set()
    for entry in detections:
        if entry.image_id not in known:
            raise InputError(
                f"the detections are of other images: {dataset.name} has no image {entry.image_id}, but for example "
                f"{dataset[0].image_id}"
            )
        if entry.image_id in seen:
            raise InputError(f"the detections have two entries for the image {entry.image_id}")
        seen.add(entry.image_id)
        check_winners(entry, exemplars)


def _class_ids(detector: ExemplarDetector, detections: Sequence[Detections]) -> dict[str, int]:
    """The classes of the model, then those that only detections have, each with its place."""
    found = sorted({str(name) for entry in detections for name in entry.class_names})
    return {name: k for k, name in enumerate(dict.fromkeys((*detector.classes_, *found)))}


def _training(
    detector: ExemplarDetector, frontier_seconds: float | None, progress: StageProgress | None
) -> list[ClassPart]:
    """The exemplars and the search of each class of the model."""
    overlap = detector.checked_options().calibration.positive_overlap
    trained, first = [], 0
    for class_id, model in enumerate(detector.models_):
        if progress is not None:
            progress("exemplars", class_id, len(detector.models_))
        trained.append(class_part(model, class_id, first, overlap, frontier_seconds))
        first += model.n_exemplars
    return trained


def _pictures(exemplars: Sequence[ExemplarAnnotation]) -> list[Image]:
    """Of the exemplars that have one, in their order."""
    pictures = [each.picture for each in exemplars if each.picture is not None]
    most_bytes = share(EXEMPLAR_BYTES, len(pictures))
    return [fitted_jpeg(picture, most_bytes) for picture in pictures]


def _classes(
    class_ids: dict[str, int],
    trained: Sequence[ClassPart],
    detections: Sequence[Detections],
    judgement: Judgement | None,
) -> tuple[Class, ...]:
    counts = Counter(str(name) for entry in detections for name in entry.class_names)
    rows = []
    for name, class_id in class_ids.items():
        part = trained[class_id] if class_id < len(trained) else None
        row = Class(
            name=name,
            n_exemplars=0 if part is None else len(part.exemplars),
            n_detections=counts[name],
            search=None if part is None else part.search,
        )
        rows.append(row if judgement is None else _judged(row, judgement))
    return tuple(rows)


def _judged(row: Class, judgement: Judgement) -> Class:
    """The row of a class with what the truth says about it; as it is where the truth does not know the class."""
    found = next((each for each in judgement.report.classes if each.class_name == row.name), None)
    if found is None:
        return row
    top, everything = (
        error_count(next(each for each in counts if each.class_name == row.name))
        for counts in (judgement.errors.top, judgement.errors.everything)
    )
    return replace(
        row,
        n_objects=found.n_objects,
        n_hits=found.n_hits,
        average_precision=None if np.isnan(found.average_precision) else found.average_precision,
        curve=thinned_curve(found) if found.n_objects else None,
        top_errors=top,
        errors=everything,
    )


def _exemplars(
    trained: Sequence[ClassPart],
    detections: Sequence[Detections],
    judgement: Judgement | None,
    has_picture: Sequence[bool],
) -> tuple[Exemplar, ...]:
    """All exemplars, with the place of their picture and what they won."""
    totals, right, wrong = Counter[int](), Counter[int](), Counter[int]()
    best: dict[int, float] = {}
    for entry in detections:
        for row, one in enumerate(entry):
            totals[one.exemplar] += 1
            best[one.exemplar] = max(best.get(one.exemplar, -np.inf), one.score)
            if judgement is not None and (entry.image_id, row) in judgement.surest:
                (right if judgement.of(entry.image_id, row).kind == RIGHT else wrong)[one.exemplar] += 1
    place = np.cumsum(has_picture) - 1
    found = []
    for number, exemplar in enumerate(each for part in trained for each in part.exemplars):
        found.append(
            replace(
                exemplar,
                image=int(place[number]) if has_picture[number] else None,
                n_detections=totals[number],
                n_right=right[number],
                n_wrong=wrong[number],
                best_score=best.get(number),
            )
        )
    return tuple(found)
