"""`ExemplarDetector`: the estimator that trains, detects, saves and loads.

In: a dataset to learn from; images to look at. Out: detections with the exemplar that won each of them. `fit` runs
`training_run`, which makes what is missing. Each step can be called on its own: `training_windows`, `train_class`,
`regress_boxes`, `score_class`, `calibrate_class`, `score_image` are what `fit` and `predict` are made of.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from eesvm._support.amounts import enumeration
from eesvm._support.dask_tasks import open_engine
from eesvm._support.memory import MemoryPlan, bytes_of
from eesvm._support.not_fitted import NotFittedInputError
from eesvm._support.threads import in_order, n_threads, one_product_thread
from eesvm._support.validation import InputError
from eesvm.datasets.problems import skip
from eesvm.descriptors import DescriptorCache
from eesvm.descriptors.base import Descriptor
from eesvm.descriptors.network_threads import with_threads
from eesvm.detector.class_calibration import check_calibrators
from eesvm.detector.files import LoadedModel, load_model, replace_model, save_model
from eesvm.detector.growing import Growth, add_exemplars, drop_exemplars
from eesvm.detector.image_look import STAGES, ImageLook, StageClock
from eesvm.detector.model import Ensemble
from eesvm.detector.news import Rejected
from eesvm.detector.options import PRESETS, DetectorOptions
from eesvm.detector.suggestions import NothingSuggestedError, suggest_score, why_none
from eesvm.detector.training_run import TrainingRun
from eesvm.detector.training_table import StageProgress, propose_windows
from eesvm.images.files import image_size, read_image
from eesvm.structures import Dataset, Detections, ExemplarAnnotation, ImageRecord, Problem, Windows

Images = Dataset | Iterable[ImageRecord | NDArray[np.uint8] | str | os.PathLike[str]]


class ExemplarDetector(BaseEstimator):
    """An ensemble of exemplar SVMs per class, calibrated so that its maximum means something.

    Parameters
    ----------
    options : `DetectorOptions`, the name of a preset ("default", "paper"), or a mapping of dotted names to values.

    Attributes
    ----------
    classes_ : names of the classes.
    models_ : a `ClassModel` for each.
    exemplars_ : `ExemplarAnnotation` of every exemplar of the model; `Detections.exemplars` are places in it.
    descriptor_ : what describes windows, scaling and PCA included.
    problems_ : what was wrong with training images.
    replaced_ : in what the last `fit` differs from the finished model that its folder held; empty where there was none.
    seconds_ : of each stage of the last `fit` or `predict`.
    """

    def __init__(self, options: DetectorOptions | str | Mapping[str, Any] | None = None) -> None:
        self.options = options

    def fit(
        self,
        dataset: Dataset,
        classes: Iterable[str] | None = None,
        *,
        calibrators: str | Iterable[str] | None = None,
        cache: DescriptorCache | None = None,
        folder: str | os.PathLike[str] | None = None,
        command: Sequence[str] = (),
        progress: StageProgress | None = None,
        scheduler: Any = None,
        memory: int | str | None = None,
        network: Dataset | None = None,
        test: Dataset | None = None,
        overwrite: bool = False,
    ) -> Self:
        """Train on all images of the dataset.

        Parameters
        ----------
        dataset : images with their annotated objects.
        classes : which to train; default: all that have an object. Objects of other classes are negatives.
        calibrators : which to fit besides that of the options, or "all".
        cache : keeps windows and descriptors.
        folder : a model folder in which every finished part is kept as soon as it is done. The same `fit` after an
            interruption is resumed from there; after a change of options or annotations it redoes what depends on
            them, in place of what was there.
        command : what the folder says it was made by.
        progress : called with a stage, how much of it is done, and how much there is to do.
        scheduler : who computes where work splits: the address of a Dask scheduler, "local" for workers on this
            machine, a Dask client or cluster, or an engine. The model is the same. None is this process.
        memory : bytes that each process may take, or a text such as "4GB"; mapped files do not count. Less memory means
            smaller blocks of exemplars, whose last bits may differ. None: as much as is quick.
        network : images that the network was tuned on. Default: those that its file tells, where `finetune` wrote it.
            What it shares with the dataset is said on the card.
        test : images that are to judge the detector later. One that is among the dataset's or the network's is an
            error; photographs are recognised by content, whatever their name, size or compression.
        overwrite : replace what the folder holds also where that is a model of other images, or of classes that are
            not trained now; without it such a folder is an error.
        """
        options = self.checked_options()
        plan = None if memory is None else MemoryPlan(bytes_of(memory) if isinstance(memory, str) else memory)
        wanted = check_calibrators([options.calibration.calibrator, *check_calibrators(calibrators or ["none"])])
        with open_engine(scheduler, options.n_jobs, side_by_side=plan is None) as engine:
            run = TrainingRun(
                dataset,
                options,
                classes,
                wanted,
                cache=cache,
                folder=folder,
                progress=progress,
                engine=engine,
                memory=plan,
                network=network,
                test=test,
                overwrite=overwrite,
            )
            run.command = tuple(command)
            self.models_ = run.train()
        self.classes_ = tuple(model.class_name for model in self.models_)
        self.descriptor_ = run.descriptor
        self.problems_ = tuple(run.problems)
        self.skipped_classes_ = run.skipped
        self.seconds_ = run.seconds
        self.changed_, self.replaced_ = run.changed, run.replaced
        self.inputs_ = run.inputs
        return self

    def partial_fit(
        self,
        dataset: Dataset,
        classes: Iterable[str] | None = None,
        *,
        rejected: Rejected | None = None,
        time_limit: float | None = None,
        cache: DescriptorCache | None = None,
        progress: StageProgress | None = None,
    ) -> Self:
        """Take on the objects of a dataset as further exemplars, against the negatives that the model keeps.

        Exemplars there are keep their weights and numbers within their class; `changes_` says what happened. An
        unfitted detector is fitted.

        Parameters
        ----------
        dataset, classes, rejected, time_limit, cache, progress : see `add_exemplars`.
        """
        if not hasattr(self, "models_"):
            return self.fit(dataset, classes, cache=cache, progress=progress)
        problems: list[Problem] = []
        growth = add_exemplars(
            self.as_loaded(),
            dataset,
            classes,
            rejected=rejected,
            time_limit=time_limit,
            cache=cache,
            progress=progress,
            problems=problems,
        )
        self.problems_ = tuple(problems)
        return self._take(growth)

    def drop(self, exemplars: Iterable[int], *, time_limit: float | None = None) -> Self:
        """Let exemplars go, by their places in `exemplars_`, and calibrate their classes again.

        Parameters
        ----------
        exemplars, time_limit : see `drop_exemplars`.
        """
        self._check_fitted()
        return self._take(drop_exemplars(self.as_loaded(), exemplars, time_limit=time_limit))

    def _take(self, growth: Growth) -> Self:
        self.models_ = list(growth.model.classes)
        self.classes_ = tuple(one.class_name for one in self.models_)
        self.inputs_, self.changes_ = dict(growth.model.inputs), growth
        return self

    @property
    def exemplars_(self) -> tuple[ExemplarAnnotation, ...]:
        """`ExemplarAnnotation` of every exemplar, class by class."""
        self._check_fitted()
        return tuple(annotation for model in self.models_ for annotation in model.annotations)

    def checked_options(self) -> DetectorOptions:
        """The options as `DetectorOptions`."""
        given = self.options
        if given is None or isinstance(given, DetectorOptions):
            return given or DetectorOptions()
        if isinstance(given, str):
            return DetectorOptions.make(given)
        if isinstance(given, Mapping):
            return DetectorOptions.make(config=given)
        raise InputError(f"`options` must be DetectorOptions, one of {', '.join(PRESETS)} or a mapping, got {given!r}")

    def predict(self, images: Images, **arguments: Any) -> list[Detections]:
        """`Detections` of every image that can be read.

        Parameters
        ----------
        images : a dataset, or records, RGB arrays or paths of images, see `detect`.
        arguments : by name, see `detect`.
        """
        return list(self.detect(images, **arguments))

    def detect(
        self,
        images: Images,
        *,
        calibrator: str | None = None,
        cache: DescriptorCache | None = None,
        progress: StageProgress | None = None,
        problems: list[Problem] | None = None,
    ) -> Iterator[Detections]:
        """Detections image by image.

        Parameters
        ----------
        images : a dataset, or records, RGB arrays or paths of images. An array is called by its place, a file by its
            name without ending, or by its path where several would be called the same.
        calibrator : another one than that of the options; fitted from the training scores where need be.
        cache : keeps windows, which cost most; descriptors are made again.
        progress : called with "images", images done, and their number.
        problems : a list that receives a `Problem` for each skipped image; without one they are logged.
        """
        self._check_fitted()
        options = self.checked_options()
        ensemble = Ensemble(self.models_, calibrator or options.calibration.calibrator, options)
        records = as_records(images)
        return self._detect(records, ensemble, options, cache, progress, problems)

    def _detect(
        self,
        records: Sequence[ImageRecord],
        ensemble: Ensemble,
        options: DetectorOptions,
        cache: DescriptorCache | None,
        progress: StageProgress | None,
        problems: list[Problem] | None,
    ) -> Iterator[Detections]:
        seconds = self.seconds_ = dict.fromkeys(STAGES, 0.0)
        n_workers = min(n_threads(options.n_jobs), max(1, len(records)))
        descriptor = self.descriptor_ if n_workers == 1 else self._side_by_side()
        look = ImageLook(ensemble, descriptor, options, cache)
        clock = StageClock(seconds)
        work: Iterable[tuple[ImageRecord, Windows | None]] = ((record, None) for record in records)
        if options.windows.method == "opencv":  # whose processes propose ahead
            known = {record.image_id: record for record in records}
            found = propose_windows(records, options.windows, options.n_jobs, cache=cache, problems=problems)
            work = ((known[item.image_id], item) for item in clock.proposed(found))
        with one_product_thread():
            for n_done, (_, looked) in enumerate(clock.waiting(in_order(look, work, n_workers)), start=1):
                clock.add(looked.seconds)
                for problem in looked.problems:
                    skip(problem, problems, strict=False)
                if progress is not None:
                    progress("images", n_done, len(records))
                if looked.detections is not None:
                    yield looked.detections

    def _side_by_side(self) -> Descriptor:
        """The descriptor for images that are looked at in several threads: its network takes one."""
        known = self.__dict__.get("_narrow")
        if known is None or known[0] is not self.descriptor_:
            known = self.__dict__["_narrow"] = self.descriptor_, with_threads(self.descriptor_, 1)
        return known[1]

    def suggested_scores(self, calibrator: str | None = None, precision: float | None = None) -> dict[str, float]:
        """From which score on detections of each class are worth showing, by training images: see `suggest_score`.

        `found.at_least(detector.suggested_scores())` are those detections; a class about which training images say
        nothing is not there, and keeps all.

        Parameters
        ----------
        calibrator : that `detect` is called with. Default: that of the options.
        precision : that is asked for. Default: the scores with the best F1.

        Raises
        ------
        InputError : the model says nothing about any class, or no score of a class has the precision.
        """
        self._check_fitted()
        options = self.checked_options()
        found = {one.class_name: suggest_score(one, options, calibrator, precision) for one in self.models_}
        scores = {name: one.score for name, one in found.items() if one is not None}
        if not scores:
            is_old = all(one.read_kept is None for one in self.models_)
            name = calibrator or options.calibration.calibrator
            whys = dict.fromkeys(why_none(one, name) for one in self.models_)
            why = "it keeps no windows of its training images" if is_old else enumeration(list(whys), most=3)
            raise NothingSuggestedError(f"the model cannot suggest scores: {why}")
        return scores

    def save(self, folder: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the model folder, whole or not at all.

        Parameters
        ----------
        folder : to write.
        overwrite : replace an existing folder, if it is empty or holds only what an earlier call wrote.
        """
        self._check_fitted()
        save_model(folder, self.as_loaded(), overwrite)

    def replace(self, folder: str | os.PathLike[str]) -> None:
        """Put this model in the place of the one in a folder; an interruption leaves the one that is there whole.

        Parameters
        ----------
        folder : of a model.
        """
        self._check_fitted()
        replace_model(folder, self.as_loaded())

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """The detector in a model folder."""
        model = load_model(folder)
        detector = cls(model.options)
        detector.models_ = list(model.classes)
        detector.classes_ = tuple(one.class_name for one in model.classes)
        detector._descriptor = model.open_descriptor
        detector.problems_ = ()
        detector.inputs_ = dict(model.inputs)
        return detector

    def as_loaded(self) -> LoadedModel:
        """What a model folder holds."""
        descriptor = self.descriptor_
        return LoadedModel(self.checked_options(), tuple(self.models_), self.inputs_, lambda: descriptor)

    @property
    def descriptor_(self) -> Descriptor:
        """Opened when it is first needed: a loaded model may never look at an image."""
        opened = self.__dict__.get("_opened")
        if opened is None:
            self._check_fitted()
            opened = self.__dict__["_opened"] = self._descriptor()
        return opened

    @descriptor_.setter
    def descriptor_(self, descriptor: Descriptor) -> None:
        self.__dict__["_opened"] = descriptor

    def _check_fitted(self) -> None:
        if not hasattr(self, "models_"):
            raise NotFittedInputError("This ExemplarDetector is not fitted yet: call `fit` with a dataset")


def as_records(images: Images) -> Sequence[ImageRecord]:
    """Image records of whatever stands for images, each under a name of its own."""
    if isinstance(images, str | os.PathLike | np.ndarray | ImageRecord) or not isinstance(images, Iterable):
        raise InputError("`images` must be a dataset or a list of images: put a single one into a list")
    records = named_apart([_record(k, image) for k, image in enumerate(images)])
    for name, n_times in Counter(record.image_id for record in records).items():
        if n_times > 1:  # windows find their image by its name
            raise InputError(f"`images` has the image {name!r} {n_times} times: each must be there once")
    return records


def named_apart(records: Sequence[ImageRecord]) -> list[ImageRecord]:
    """The records, where several have one name under their paths: cats/001.jpg and dogs/001.jpg are both called 001."""
    counts = Counter(record.image_id for record in records)
    return [replace(r, image_id=r.path) if counts[r.image_id] > 1 and r.path else r for r in records]


def _record(number: int, image: Any) -> ImageRecord:
    if isinstance(image, ImageRecord):
        return image
    if isinstance(image, str | os.PathLike):
        path = os.fspath(image)
        try:
            width, height = image_size(path)
        except InputError:
            width = height = 1  # the reader of the pixels says what is wrong, as for any other image
        return ImageRecord(Path(path).stem, partial(read_image, path), width, height, path=path)
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise InputError(
            f"`images[{number}]` must be a path, an ImageRecord or uint8 of shape (height, width, 3), "
            f"got {pixels.dtype} {pixels.shape}"
        )
    return ImageRecord(str(number), lambda: pixels, pixels.shape[1], pixels.shape[0])
