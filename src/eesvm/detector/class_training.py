"""One class: its exemplars, its single SVM, and their scores on the windows that calibration looks at.

In: `TrainingWindows`, a class and options. Out: `TrainedClass`, with one linear detector per object and one for all
objects together, and `CalibrationScores`: a score table of positive and negative windows (sets P and N of the paper).
Both steps are functions, so that one table of windows serves many trainers, and one training many calibrators.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.amounts import counted
from eesvm._support.threads import one_product_thread
from eesvm._support.validation import InputError
from eesvm.calibration.tables.score_table import ScoreTable
from eesvm.detector.left_out import JudgedWindows, judged_windows
from eesvm.detector.options import CalibrationOptions, TrainingOptions
from eesvm.detector.training_table import NEGATIVE, POSITIVE, DescriptorTable, TrainingWindows
from eesvm.exemplars.lda import ExemplarLDA
from eesvm.exemplars.scoring import score_windows
from eesvm.exemplars.single_svm import LinearSVM
from eesvm.exemplars.svms import ExemplarSVMs, LinearExemplars, TrainingProgress
from eesvm.structures import Dataset, Instance

F32 = NDArray[np.float32]
Scorer = Callable[[NDArray[np.bool_], F32, F32], F32]  # which windows, weights, biases -> scores

# Threads of the trainer, and exemplars for each further one: fewer spend more time on waiting for each other than they
# save. They depend on nothing else, as the last bits of weights depend on how exemplars are shared out.
_MOST_THREADS, _PER_THREAD = 4, 32

_FEW_NEGATIVES = 100  # windows; an image has hundreds


class NothingToLearnError(InputError):
    """A class has no object, or no negative window, to learn from."""


@dataclass(frozen=True)
class SingleSVM:
    """One linear detector for a whole class."""

    weights: F32  # (d,)
    bias: float

    def scores(self, descriptors: F32) -> F32:
        """(n,) scores of descriptors (n, d)."""
        return score_windows(descriptors, self.weights[None, :], [self.bias])[:, 0]


def has_few_negatives(facts: Mapping[str, Any]) -> bool:
    """Whether a class has next to no negative windows, or fewer than positives, before any are drawn."""
    found = facts.get("n_negatives_in_all")
    return found is not None and found < max(_FEW_NEGATIVES, facts.get("n_positives", 0))


@dataclass(frozen=True)
class TrainedClass:
    """The detectors of one class."""

    class_name: str
    exemplars: LinearExemplars  # fitted; row j of its weights belongs to instance j
    instances: tuple[Instance, ...]
    single: SingleSVM
    n_negatives: int  # windows that the exemplars were trained against
    n_mirrored: int = 0  # the last so many exemplars are mirror images of the first, in their order

    @property
    def objects(self) -> tuple[Instance, ...]:
        """The instances, each once."""
        return self.instances[: len(self.instances) - self.n_mirrored]

    @property
    def is_mirrored(self) -> NDArray[np.bool_]:
        """(E,) whether an exemplar is the mirror image of its instance."""
        return np.arange(len(self.instances)) >= len(self.instances) - self.n_mirrored

    @property
    def names(self) -> list[str]:
        """A name for each exemplar: its image and its place among the objects there, counted from 1 as people do."""
        return [
            f"{instance.image_id}, object {instance.index + 1}" + (", mirrored" if is_mirrored else "")
            for instance, is_mirrored in zip(self.instances, self.is_mirrored.tolist(), strict=True)
        ]


@dataclass(frozen=True)
class CalibrationScores:
    """Scores of the windows that a class is calibrated on, and what the table cannot hold of them."""

    table: ScoreTable  # rows: positives and negatives; columns: exemplars; groups are images
    boxes: NDArray[np.float64]  # (n, 4)
    overlaps: NDArray[np.float64]  # (n,) the largest IoU with an object of the class
    single: F32  # (n,) scores of the single SVM
    n_negatives: int  # negatives there are, of which the table may hold a sample
    judged: JudgedWindows | None = None  # of whole images, where calibrations are to be judged by images left out


@dataclass(frozen=True)
class ClassRows:
    """Which windows the detectors of one class are trained on, out of n."""

    own: NDArray[np.int64]  # (E,) the objects, followed by their mirror images where those are exemplars, too
    own_image: NDArray[np.int64]  # (E,) the image that each is of
    is_negative: NDArray[np.bool_]  # (n,) of the exemplars
    is_single_negative: NDArray[np.bool_]  # (n,) of the single SVM


def choose_classes(dataset: Dataset, wanted: Iterable[str] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Classes to train and classes that have no object to learn from; one of those that was asked for is an error."""
    usable = {i.class_name for i in dataset.instances() if not (i.is_difficult or i.is_crowd)}
    if wanted is None:
        names = dataset.classes
        if not usable:
            raise InputError(f"{dataset.name} has no objects to learn from{_what_was_wrong(dataset)}")
        return tuple(n for n in names if n in usable), tuple(n for n in names if n not in usable)
    if isinstance(wanted, str):
        wanted = [wanted]
    chosen = tuple(dict.fromkeys(wanted))
    if not chosen:
        raise InputError("`classes` is empty: at least one is needed")
    for name in chosen:
        if name not in usable:
            known = ", ".join(n for n in dataset.classes if n in usable) or "none"
            raise InputError(f"the class {name!r} has no object to learn from in {dataset.name}: those are {known}")
    return chosen, ()


def _what_was_wrong(dataset: Dataset) -> str:
    """How many problems its files have, which may be why there are no objects, and one of them."""
    problems = dataset.problems
    if not problems:
        return ""
    first = next((each for each in problems if each.kind in ("annotation", "box")), problems[0])
    return f": `eesvm data info` lists {counted(len(problems), 'problem')}, such as {first}"


@one_product_thread()  # the same bits wherever it is called
def train_class(
    windows: TrainingWindows,
    class_name: str,
    options: TrainingOptions | None = None,
    *,
    random_state: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[TrainingProgress], object] | None = None,
    memory_budget: int | None = None,
) -> TrainedClass:
    """Train an exemplar for each object of the class, and the single SVM, against windows of random images.

    Parameters
    ----------
    windows : of the training images.
    class_name : the class to train.
    options : of the training. Default: those of the default preset.
    random_state : seeds the draw of images, and the single SVM.
    checkpoint, progress, memory_budget : see `ExemplarSVMs`; the trainer "lda" has no use for them.

    Raises
    ------
    NothingToLearnError : the class has no object, or no negative window.
    """
    options = TrainingOptions() if options is None else options
    chosen, instances = class_rows(windows, class_name, options, random_state)
    single = train_single(windows.table, chosen, options.single_loss, random_state)
    trainer = make_trainer(options, single, len(chosen.own), checkpoint, progress, memory_budget)
    trainer.fit(*training_rows(windows.table, chosen, options.own_image))
    return trained_class(class_name, trainer, instances, single, int(chosen.is_negative.sum()))


def class_rows(
    windows: TrainingWindows, class_name: str, options: TrainingOptions, random_state: int
) -> tuple[ClassRows, tuple[Instance, ...]]:
    """What a class is trained on, and its objects, each once; `NothingToLearnError` where that is not enough."""
    own, instances = windows.objects(class_name)
    if not len(own):
        raise NothingToLearnError(
            f"the class {class_name!r} has no object to learn from in the images that could be read"
        )
    is_drawn = _drawn_images(windows, options.max_images, random_state)
    overlap = windows.overlap(class_name)
    is_negative = is_drawn & (overlap <= options.max_overlap)
    if not is_negative.any():
        raise NothingToLearnError(
            f"the class {class_name!r} has no negative windows: all overlap an object by more than "
            f"{options.max_overlap:g}; images without the class would give some"
        )
    images = windows.image[own]
    if options.mirror:
        own, images = np.concatenate([own, windows.mirror_images(own)]), np.tile(images, 2)
    return ClassRows(own, images, is_negative, is_drawn & (overlap <= options.single_max_overlap)), instances


def trained_class(
    class_name: str,
    exemplars: LinearExemplars,
    objects: tuple[Instance, ...],
    single: SingleSVM,
    n_negatives: int,
) -> TrainedClass:
    """Exemplars of objects, or where there are twice as many of them of objects and their mirror images."""
    n_mirrored = len(exemplars.coef_) - len(objects)
    return TrainedClass(class_name, exemplars, objects + objects[:n_mirrored], single, n_negatives, n_mirrored)


def train_single(table: DescriptorTable, chosen: ClassRows, loss: str, random_state: int) -> SingleSVM:
    """One SVM for all objects of a class."""
    return fit_single(table.descriptors[chosen.own], table.rows(chosen.is_single_negative), loss, random_state)


def fit_single(objects: F32, negatives: Any, loss: str, random_state: int) -> SingleSVM:
    """The same from descriptors."""
    svm = LinearSVM(loss=loss, random_state=random_state).fit(objects, negatives)
    return SingleSVM(svm.coef_, float(np.float32(svm.intercept_)))


def training_rows(table: DescriptorTable, chosen: ClassRows, own_image: bool) -> tuple[Any, ...]:
    """What a trainer of exemplars is fitted to: exemplars, negatives, and groups where they matter."""
    groups = () if own_image else (chosen.own_image, table.image[chosen.is_negative])
    return table.descriptors[chosen.own], table.rows(chosen.is_negative), *groups


def make_trainer(
    options: TrainingOptions,
    single: SingleSVM | None,
    n_exemplars: int,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[TrainingProgress], object] | None = None,
    memory_budget: int | None = None,
) -> LinearExemplars:
    """The trainer of so many exemplars that the options name; `single` is the prior, where one is wanted."""
    if options.trainer == "lda":
        return ExemplarLDA()
    return ExemplarSVMs(
        C=options.C,
        positive_weight=options.positive_weight,
        loss=options.loss,
        prior=(single.weights, single.bias) if single is not None and options.prior == "class" else None,
        checkpoint=checkpoint,
        progress=progress,
        n_jobs=min(_MOST_THREADS, 1 + n_exemplars // _PER_THREAD),
        memory_budget=memory_budget,
    )


@one_product_thread()  # the same bits wherever it is called
def score_class(
    windows: TrainingWindows,
    trained: TrainedClass,
    options: CalibrationOptions | None = None,
    *,
    random_state: int = 0,
    score: Scorer | None = None,
) -> CalibrationScores:
    """Score all positive windows of the class and a random sample of its negative ones.

    Parameters
    ----------
    windows : of the training images.
    trained : the detectors of the class.
    options : of the calibration. Default: those of the default preset.
    random_state : seeds the draw of negatives.
    score : called with (n,) booleans for the windows to score, weights (E, d) and biases (E,); returns their scores,
        which may come from elsewhere. Default: they are computed here.

    Raises
    ------
    NothingToLearnError : the class has no negative window.
    """
    options = CalibrationOptions() if options is None else options
    chosen, labels, n_negatives = calibration_rows(windows, trained.class_name, options, random_state)
    is_chosen = np.zeros(len(windows), dtype=bool)
    is_chosen[chosen] = True
    rows = windows.rows(is_chosen)
    exemplars = trained.exemplars
    weights, biases = exemplars.coef_, exemplars.intercept_
    table = ScoreTable(
        scores=score_windows(rows, weights, biases) if score is None else score(is_chosen, weights, biases),
        labels=labels,
        groups=windows.image_ids[windows.image[chosen]],
        exemplar_groups=np.array([instance.image_id for instance in trained.instances], dtype=np.str_),
        exemplar_names=trained.names,
    )
    single = score_windows(rows, trained.single.weights[None, :], [trained.single.bias])[:, 0]
    overlaps = windows.overlap(trained.class_name)[chosen]
    judged = None
    if options.shrink is not None:
        judged = judged_windows(windows, trained.class_name, exemplars, random_state)
    return CalibrationScores(table, windows.boxes[chosen], overlaps, single, n_negatives, judged)


def calibration_rows(
    windows: TrainingWindows, class_name: str, options: CalibrationOptions, random_state: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int8], int]:
    """Which windows a class is calibrated on, their labels 0 and 1, and how many negatives there are in all.

    Parameters
    ----------
    windows : of the training images.
    class_name : the class.
    options : of the calibration.
    random_state : seeds the draw of negatives.

    Raises
    ------
    NothingToLearnError : the class has no negative window.
    """
    labels = windows.labels(class_name, options.positive_overlap, options.negative_overlap)
    negatives = np.flatnonzero(labels == NEGATIVE)
    n_negatives = len(negatives)
    if options.max_negatives is not None and n_negatives > options.max_negatives:
        random = np.random.default_rng(random_state)
        negatives = np.sort(random.choice(negatives, options.max_negatives, replace=False))
    if not len(negatives):
        raise NothingToLearnError(f"the class {class_name!r} has no negative windows to be calibrated on")
    chosen = np.sort(np.concatenate([np.flatnonzero(labels == POSITIVE), negatives]))
    return chosen, (labels[chosen] == POSITIVE).astype(np.int8), n_negatives


def n_scored(windows: TrainingWindows, class_name: str, options: CalibrationOptions) -> int:
    """How many windows `score_class` scores."""
    labels = windows.labels(class_name, options.positive_overlap, options.negative_overlap)
    n_negatives = int((labels == NEGATIVE).sum())
    if options.max_negatives is not None:
        n_negatives = min(n_negatives, options.max_negatives)
    return int((labels == POSITIVE).sum()) + n_negatives


def _drawn_images(windows: TrainingWindows, n_images: int | None, random_state: int) -> NDArray[np.bool_]:
    """(n,) whether a window belongs to one of `n_images` random images."""
    n = len(windows.records)
    is_drawn = np.ones(n, dtype=bool)
    if n_images is not None and n_images < n:
        is_drawn[:] = False
        is_drawn[np.random.default_rng(random_state).choice(n, n_images, replace=False)] = True
    return is_drawn[windows.image]
