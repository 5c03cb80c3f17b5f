"""Annotation transfer for the detections of a model: from winning exemplars to annotated images.

In: the exemplars of a model, detections that name them, and the images. Out: for each image its detections and who
speaks for them (`ImageDetections`: the winners of the file, or the few best exemplars of each window, see
`detector.consensus`), the annotations these transfer, and where the images are annotated themselves how good those are.
Images are dealt with one by one, so the masks of a whole collection are never in memory together. Detections that
cannot be used are listed as problems; those that cannot be of this model are refused.
Not here: files (`files`), and the arithmetic of `inheritance` and `quality`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm._support.validation import InputError, check_number
from eesvm.datasets.problems import reason, skip
from eesvm.structures import Detections, ExemplarAnnotation, ImageRecord, Instance, Problem
from eesvm.transfer.inheritance import TransferredAnnotation, transfer, transfer_consensus
from eesvm.transfer.quality import (
    Consensus,
    NothingToCompareError,
    Refined,
    TransferQuality,
    matched_instances,
    random_choice,
    transfer_quality,
)
from eesvm.transfer.refinement import Means, refine
from eesvm.transfer.target import Target

WINNER = "winning exemplar"
RANDOM = "random exemplar of the class"

Progress = Callable[[int, int], object]  # how much is done, and of how much


@dataclass(frozen=True)
class ImageDetections:
    """The detections of one image, and which exemplars of the model speak for each of them."""

    record: ImageRecord
    detections: Detections
    voters: tuple[tuple[int, ...], ...]  # of each detection, the best first
    scores: tuple[tuple[float, ...], ...]  # calibrated, of each of them

    @property
    def weights(self) -> tuple[tuple[float, ...], ...]:
        """Of the votes: calibrated scores above 0; where there is none, the best votes alone."""
        return tuple(vote_weights(scores) for scores in self.scores)


def vote_weights(scores: Sequence[float]) -> tuple[float, ...]:
    """Weights of exemplars with these calibrated scores, the best first: who rejects a window has no vote."""
    positive = tuple(max(0.0, score) if np.isfinite(score) else 0.0 for score in scores)
    return positive if any(positive) else (1.0, *(0.0 for _ in scores[1:]))


def choose_detections(
    exemplars: Sequence[ExemplarAnnotation],
    detections: Iterable[Detections],
    records: Iterable[ImageRecord],
    *,
    min_score: float | None = None,
    top: int | None = None,
    problems: list[Problem] | None = None,
) -> list[ImageDetections]:
    """Detections that annotations can be handed to, with the exemplar that won each.

    Left out are detections without exemplar and, as problems, those in images that are not there and those whose box
    has no place in its image.

    Parameters
    ----------
    exemplars : all of the model.
    detections : of each image.
    records : the images.
    min_score : leave out detections that score less.
    top : keep the `top` best of all images together.
    problems : a list that receives a `Problem` for each thing that is passed over; without one they are logged.
    """
    if top is not None:
        check_number(top, "top", minimum=1, integer=True)
    known = {record.image_id: record for record in records}
    chosen = []
    for found in detections:
        check_winners(found, exemplars)
        is_kept = found.exemplars >= 0
        if min_score is not None:
            is_kept &= found.scores >= min_score
        if not is_kept.any():
            continue
        if found.image_id not in known:
            _pass_over(Problem(found.image_id, "the image is not among those given", kind="missing image"), problems)
            continue
        usable = _usable(found[is_kept], known[found.image_id], problems)
        if len(usable):
            chosen.append(_of_winners(known[found.image_id], usable))
    return chosen if top is None else _best(chosen, int(top))


def hand_on(
    exemplars: Sequence[ExemplarAnnotation],
    image: ImageDetections,
    pixels: NDArray[np.uint8] | None = None,
    means: Means | None = None,
) -> tuple[TransferredAnnotation, ...]:
    """What each detection of an image inherits from those who speak for it.

    Parameters
    ----------
    exemplars : all of the model.
    image : its detections, and who speaks for them.
    pixels : (height, width, 3) uint8, RGB, of the image: masks are then refined by it. Default: they are as warped.
    means : from `refinement.mean_masks` of all exemplars, once for all images: the class then has a say in refinement.
    """
    size = (image.record.width, image.record.height)
    handed = []
    for box, voters, weights in zip(image.detections.boxes, image.voters, image.weights, strict=True):
        speaking = [exemplars[each] for each in voters]
        is_vote = len(speaking) > 1
        one = transfer_consensus(speaking, weights, box, size) if is_vote else transfer(speaking[0], box, size)
        handed.append(one if pixels is None else refine(one, speaking, pixels, weights, means=means))
    return tuple(handed)


def hand_on_refined(
    exemplar: ExemplarAnnotation, box: ArrayLike, pixels: NDArray[np.uint8], means: Means | None = None
) -> TransferredAnnotation:
    """What one detection inherits from one exemplar, its mask refined by the image: what pictures and files show.

    Parameters
    ----------
    exemplar : that won it.
    box : of the detection, half-open xyxy; it must overlap the image.
    pixels : (height, width, 3) uint8, RGB, of the image.
    means : from `refinement.mean_masks` of all exemplars of the model.
    """
    handed = transfer(exemplar, box, (pixels.shape[1], pixels.shape[0]))
    return refine(handed, [exemplar], pixels, means=means)


def measure_transfer(
    exemplars: Sequence[ExemplarAnnotation],
    chosen: Sequence[ImageDetections],
    *,
    refined: bool = False,
    labels: Iterable[str] | None = None,
    iou: float = 0.5,
    n_draws: int = 10,
    n_resamples: int = 1000,
    random_state: int = 0,
    progress: Progress | None = None,
    problems: list[Problem] | None = None,
) -> TransferQuality | None:
    """How good the annotations are, beside those of random exemplars and the whole box; None where nothing is known.

    Where several exemplars speak for detections, their vote is a row of its own, and so are refined masks. A mask of
    the truth that cannot be read is a problem, and no mask. Why the result is None is what `why_nothing_compared` says.

    Parameters
    ----------
    exemplars : all of the model.
    chosen : what `choose_detections` gives; the objects of its images are the truth.
    refined : compare what those who speak for detections transfer after refinement by the image, too.
    labels : keys of the metadata to compare, see `transfer_quality`.
    iou : least overlap of a detection with an object of its class to be compared with it.
    n_draws : random exemplars per detection, over which the row is averaged.
    n_resamples : of the bootstrap that draws whole images.
    random_state : seeds the random exemplars and the bootstrap.
    progress : called with the number of detections done, and of all.
    problems : a list that receives a `Problem` for each mask that cannot be read; without one they are logged.
    """
    instances = [
        each for one in chosen for each in matched_instances(one.detections, _guarded(one.record, problems), iou)
    ]
    if not any(instance is not None for instance in instances):
        return None
    speaking: dict[str, NDArray[np.int64] | Consensus] = {
        WINNER: np.concatenate([one.detections.exemplars for one in chosen])
    }
    voters = [each for one in chosen for each in one.voters]
    n_voters = max(map(len, voters))
    if n_voters > 1:
        speaking[f"vote of {n_voters}"] = Consensus(voters, [each for one in chosen for each in one.weights])
    choices: dict[str, ArrayLike | Consensus | Refined] = {**speaking}
    if refined:
        last, choice = list(speaking.items())[-1]
        choices[f"{last}, refined"] = Refined(choice)
    choices[RANDOM] = random_choice(exemplars, instances, n_draws, random_state)
    try:
        return transfer_quality(
            exemplars,
            choices,
            boxes=np.concatenate([one.detections.boxes for one in chosen]),
            instances=instances,
            image_sizes=[(one.record.width, one.record.height) for one in chosen for _ in range(len(one.detections))],
            labels=labels,
            n_resamples=n_resamples,
            random_state=random_state,
            progress=progress,
            read_image=_image_reader(chosen),
        )
    except NothingToCompareError:
        return None


def _image_reader(chosen: Sequence[ImageDetections]) -> Callable[[int], NDArray[np.uint8] | None]:
    """Reads the image of a detection, by its number among all; one image is kept. None: it cannot be read."""
    images = [one.record for one in chosen for _ in range(len(one.detections))]

    @lru_cache(maxsize=1)
    def read(image_id: str, number: int) -> NDArray[np.uint8] | None:
        return pixels_of(images[number], [])

    first = {record.image_id: number for number, record in reversed(list(enumerate(images)))}
    return lambda number: read(images[number].image_id, first[images[number].image_id])


def pixels_of(record: ImageRecord, problems: list[Problem] | None) -> NDArray[np.uint8] | None:
    """The image, or None where it cannot be read, which is then a problem.

    Parameters
    ----------
    record : the image.
    problems : a list that receives the `Problem`; without one it is logged.
    """
    try:
        return record.read()
    except (InputError, OSError, ValueError, MemoryError) as error:
        _pass_over(Problem(record.path or record.image_id, reason(error), kind="image"), problems)
    return None


def why_nothing_compared(chosen: Sequence[ImageDetections], iou: float = 0.5) -> str:
    """Why `measure_transfer` gives None for these detections: a sentence without its full stop.

    Parameters
    ----------
    chosen, iou : as `measure_transfer` got them.
    """
    if not any(not each.is_crowd for one in chosen for each in one.record.instances):
        return "no object is annotated in these images, so there is nothing to compare with"
    matched = [each for one in chosen for each in matched_instances(one.detections, one.record, iou)]
    n_matched = sum(each is not None for each in matched)
    if not n_matched:
        return f"no detection overlaps an annotated object of its class by {iou:g}, so there is nothing to compare with"
    overlap = "1 detection overlaps" if n_matched == 1 else f"{n_matched:,} detections overlap"
    return (
        f"{overlap} an annotated object of the same class, but there is nothing to compare: no mask, part, pose or "
        "label is known of both the exemplars and the objects"
    )


def check_winners(found: Detections, exemplars: Sequence[ExemplarAnnotation]) -> None:
    """Refuse detections that another model must have made.

    Parameters
    ----------
    found : the detections of an image.
    exemplars : all of the model.
    """
    for one in found:
        if one.exemplar >= len(exemplars):
            raise InputError(
                f"the detections are of another model: a detection in {one.image_id} names the exemplar "
                f"{one.exemplar}, but the model has {len(exemplars)}, counted from 0"
            )
        if one.exemplar >= 0 and exemplars[one.exemplar].class_name != one.class_name:
            raise InputError(
                f"the detections are of another model: a {one.class_name} in {one.image_id} names the exemplar "
                f"{one.exemplar}, which is a {exemplars[one.exemplar].class_name}"
            )


def _usable(found: Detections, record: ImageRecord, problems: list[Problem] | None) -> Detections:
    """Those whose box has an area and touches the image."""
    rows = []
    for row, one in enumerate(found):
        try:
            Target.of(one.box, (record.width, record.height))
        except InputError as error:
            what = f"a detection of {one.class_name} is left out: {reason(error)}"
            _pass_over(Problem(record.path or record.image_id, what, kind="box"), problems)
        else:
            rows.append(row)
    return found[rows]


def _of_winners(record: ImageRecord, found: Detections) -> ImageDetections:
    voters = tuple((winner,) for winner in found.exemplars.tolist())
    return ImageDetections(record, found, voters, tuple((score,) for score in found.scores.tolist()))


def _best(chosen: Sequence[ImageDetections], top: int) -> list[ImageDetections]:
    """The `top` best detections of all images; of equal ones those that come first."""
    scores = np.concatenate([one.detections.scores for one in chosen]) if chosen else np.empty(0)
    is_kept = np.zeros(len(scores), dtype=bool)
    is_kept[np.argsort(-scores, kind="stable")[:top]] = True
    kept, start = [], 0
    for one in chosen:
        best = one.detections[is_kept[start : start + len(one.detections)]]
        start += len(one.detections)
        if len(best):
            kept.append(_of_winners(one.record, best))
    return kept


def _guarded(record: ImageRecord, problems: list[Problem] | None) -> ImageRecord:
    """The record with masks that are empty where they cannot be read, which is then a problem."""
    return replace(record, instances=tuple(_with_safe_mask(each, record, problems) for each in record.instances))


def _with_safe_mask(instance: Instance, record: ImageRecord, problems: list[Problem] | None) -> Instance:
    safe = partial(_read_mask, instance, record, problems)
    mask, void = (None if read is None else partial(safe, read) for read in (instance.mask, instance.void))
    return replace(instance, mask=mask, void=void)


def _read_mask(
    instance: Instance,
    record: ImageRecord,
    problems: list[Problem] | None,
    read: Callable[[], NDArray[np.bool_]],
) -> NDArray[np.bool_]:
    try:
        return read()
    except (InputError, OSError, ValueError, MemoryError) as error:
        where = instance.source or record.path or record.image_id
        _pass_over(Problem(where, reason(error), kind="mask"), problems)
    return np.zeros((1, 1), dtype=bool)


def _pass_over(problem: Problem, problems: list[Problem] | None) -> None:
    skip(problem, problems, strict=False)
