"""Where a training begins: it decides which parts of a model are missing, so that a run can be interrupted and resumed.

In: a dataset, options, an engine, and where results are kept. Out: `ClassModel`s, and in a model folder every finished
part: the descriptor's scaling and PCA; for each class its exemplars, its box regression, its training scores, the
windows it can grow from and its calibrators. A part is filed in `run.json` under a key: a hash of everything it depends
on. A part whose key and files are as they were is read, not made; so an interrupted run is resumed, a second run does
nothing, and another option redoes what depends on it. `training_inputs` says what a run is made from, and how a part is
made is for `image_stages` and `class_stages` to say.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from eesvm._support.digests import digest
from eesvm._support.memory import MemoryPlan
from eesvm._support.parts import Held, Parts
from eesvm._support.run_folder import RunFolder
from eesvm._support.tasks import Engine, LocalEngine, ahead
from eesvm._support.threads import one_product_thread
from eesvm._support.validation import InputError
from eesvm.calibration.calibrators.base import ScoreCalibrator
from eesvm.descriptors import DescriptorCache, Transformed
from eesvm.descriptors.base import Descriptor
from eesvm.detector.box_regression import BoxRegressor, regress_boxes
from eesvm.detector.class_calibration import JOINT, separability, stored_names
from eesvm.detector.class_stages import ClassStages
from eesvm.detector.class_training import (
    CalibrationScores,
    NothingToLearnError,
    choose_classes,
    n_scored,
    trained_class,
)
from eesvm.detector.files import (
    LoadedModel,
    certificate_reader,
    class_folder,
    finish_model,
    read_calibrator,
    read_descriptor,
    read_regressor,
    read_scores,
    read_training,
    without_times,
    write_calibrator,
    write_descriptor,
    write_kept_windows,
    write_regressor,
    write_scores,
    write_training,
)
from eesvm.detector.image_stages import ImageStages
from eesvm.detector.kept_windows import ChosenWindows, KeptWindows, keep_windows, read_kept
from eesvm.detector.left_out import JudgedWindows, most_judged
from eesvm.detector.model import ClassModel
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_inputs import TrainingInputs, check_datasets
from eesvm.detector.training_table import StageProgress, TrainingWindows
from eesvm.structures import Dataset, Problem, Windows
from eesvm.transfer.annotations import annotate_all

BegunClass = tuple[ClassModel, Held[CalibrationScores]]  # a class without calibrators, and what they are fitted to


class TrainingRun:
    """One training, from a dataset to the classes of a model.

    Attributes
    ----------
    problems : what was wrong with images and classes.
    skipped : classes without an object to learn from.
    replaced : what is other than in the finished model that the folder held; empty where there was none.
    changed : names of the parts that were made, not read.
    seconds : of each stage.
    """

    def __init__(
        self,
        dataset: Dataset,
        options: DetectorOptions,
        classes: Iterable[str] | None,
        calibrators: Sequence[str],
        *,
        cache: DescriptorCache | None = None,
        folder: str | os.PathLike[str] | None = None,
        progress: StageProgress | None = None,
        engine: Engine | None = None,
        memory: MemoryPlan | None = None,
        network: Dataset | None = None,
        test: Dataset | None = None,
        overwrite: bool = False,
    ) -> None:
        check_datasets(dataset, network, test)
        self.dataset, self.options, self.cache, self.progress = dataset.annotated(), options, cache, progress
        self.problems: list[Problem] = []
        self.is_explicit = classes is not None
        self.classes, self.skipped = choose_classes(self.dataset, classes)
        self.calibrators = stored_names(calibrators)
        self.command: tuple[str, ...] = ()
        self.folder = None if folder is None else RunFolder(folder)
        self._parts = Parts(self.folder, self.problems, Problem)
        self.changed, self.seconds = self._parts.changed, self._parts.seconds
        self._descriptor: Descriptor | None = None
        self._windows: TrainingWindows | None = None
        self._proposals: list[Windows] | None = None
        self._engine: Engine = LocalEngine(options.n_jobs) if engine is None else engine
        self._memory = memory
        self._network, self._test = network, test
        self._may_overwrite = overwrite
        self.replaced: list[str] = []
        self._n_bytes_held = 0  # scores of classes that are done, where no folder keeps them

    def train(self) -> list[ClassModel]:
        """All classes, made or read."""
        engine, options, progress, memory = self._engine, self.options, self.progress, self._memory
        self._images = ImageStages(
            engine, self.dataset, options, cache=self.cache, progress=progress, memory=memory, problems=self.problems
        )
        self._stages = ClassStages(engine, options, self.classes, progress=progress, memory=memory)
        try:
            self._begin()
            with one_product_thread():  # last bits do not depend on the machine, and classes are trained side by side
                models = self._train_classes()
                if self.folder is not None:
                    self._finish(models)
        except InputError:
            if self.folder is not None:
                self.folder.discard()
            raise
        finally:
            self._images.close()
        self.problems[:] = dict.fromkeys(self.problems)  # parts that look at the same image say the same of it
        return models

    def _begin(self) -> None:
        """Read the images, name the parts, and note in the folder what is about to be done."""
        with self._parts.stage("reading images"):
            self._inputs = TrainingInputs(
                self.dataset, self.options, network=self._network, test=self._test, progress=self.progress
            )
            self.keys = self._inputs.keys
        if self.folder is not None:
            if not self._may_overwrite:
                self._inputs.check_folder(self.folder, self.classes)
            parts = self._part_names()
            self.replaced = self._inputs.changes(self.folder, self.options, parts)
            self.folder.begin(self.command, self.options.as_dict(), self._inputs.noted(), parts)

    @property
    def descriptor(self) -> Descriptor:
        """Fitted, or read from the folder."""
        if self._descriptor is None:
            self._descriptor = self._parts.get(
                self.keys.descriptor(),
                read=lambda root, files: read_descriptor(root, self._inputs.plain, files),
                make=self._fit_descriptor,
                write=write_descriptor,
            )
        return self._descriptor

    @property
    def windows(self) -> TrainingWindows:
        """Proposed and described when first needed: a run that only calibrates never needs them."""
        if self._windows is None:
            descriptor, proposals = self.descriptor, self._propose()
            with self._parts.stage("descriptors"):
                self._windows = self._images.describe(proposals, descriptor)
            if self.folder is not None:  # for runs that look at no image: the descriptor depends on the same ones
                self.folder.note("descriptor", n_images=len(self._windows.records))
        return self._windows

    @property
    def inputs(self) -> dict[str, Any]:
        """What the model is made from; images that could not be read are not counted."""
        return self._inputs.summary(self._n_images())

    def _n_images(self) -> int:
        """How many images are learned from, as far as that is known here or from an earlier run."""
        if self._windows is not None:
            return len(self._windows.records)
        if self._proposals is not None:
            return len(self._proposals)
        noted = None if self.folder is None else self.folder.entry("descriptor").get("n_images")
        return noted if isinstance(noted, int) else len(self._inputs.fingerprint.images)

    # The parts of a class

    def _train_classes(self) -> list[ClassModel]:
        """Each class in turn; as many are begun ahead as the engine asks for, before calibrators are waited for."""
        missing = [name for name in self.classes if not self._parts.has(self.keys.training(name))]
        if missing:
            windows = self.windows
            with self._parts.stage("training"):
                self._stages.send_training(windows, missing, self._checkpoint)
        models = [self._calibrated(*one) for one in ahead(self._begun_classes(), self._engine.n_ahead)]
        if not models:
            raise InputError(f"nothing can be learned from {self.dataset.name}: {self.problems[-1].reason}")
        self.classes = tuple(model.class_name for model in models)
        return models

    def _begun_classes(self) -> Iterator[BegunClass]:
        """Classes with exemplars and scores; one that nothing can be learned of is left out, unless asked for."""
        for name in self.classes:
            try:
                yield self._begun(name)
            except NothingToLearnError as error:
                if self.is_explicit:
                    raise
                self.problems.append(Problem(self.dataset.name, str(error), kind="class"))

    def _begun(self, name: str) -> BegunClass:
        model = self._parts.get(
            self.keys.training(name),
            read=lambda root, files: read_training(root, name),
            make=lambda: self._train(name),
            write=lambda root, made: write_training(root, made, self.descriptor),
        )
        if self.options.detection.box_regression:
            model.regressor = self._parts.get(
                self.keys.boxes(name),
                read=lambda root, files: read_regressor(root, name, model.exemplars.coef_.shape[1]) if files else None,
                make=lambda: self._regress(name),
                write=lambda root, made: write_regressor(root, name, made),
            )
        scores = Held(
            lambda: self._parts.get(
                self.keys.scores(name),
                read=lambda root, files: read_scores(root, name),
                make=lambda: self._score(model),
                write=lambda root, found: write_scores(root, name, found),
            )
        )
        model.facts = self._facts(name, scores)
        for stored in self.calibrators:  # they are fitted while windows are kept
            if not self._parts.has(self.keys.calibration(name, stored)):
                found = scores()
                if self.folder is not None:  # then they may be of an earlier run, which was allowed more memory
                    self._check_memory(model, found.table.n_rows)
                self._stages.send_calibration(name, stored, found)
        model.read_kept = self._kept(model, scores)
        if self.folder is not None:
            scores.forget()  # they can be read again: those of all classes may be more than memory holds
        return model, scores

    def _kept(self, model: ClassModel, scores: Held[CalibrationScores]) -> Callable[[], KeptWindows]:
        """Reads what is kept of the windows of a class, which a folder has by then; without one it is held."""
        name = model.class_name

        def known(root: Path, files: list[str]) -> KeptWindows | ChosenWindows:
            return read_kept(root / files[0], model.exemplars.coef_.shape[1])

        def fetch() -> KeptWindows | ChosenWindows:
            return self._parts.get(
                self.keys.kept(name),
                read=known,
                make=lambda: self._keep(model, scores().judged if scores.is_held else None),
                write=lambda root, chosen: write_kept_windows(root, name, chosen),
            )

        def read() -> KeptWindows:  # anew each time: those of all classes may be more than memory holds
            found = fetch()
            return found.kept() if isinstance(found, ChosenWindows) else found

        if self.folder is None:
            kept = read()
            self._n_bytes_held += kept.rows.nbytes + kept.hard.nbytes + kept.judged_rows.nbytes
            return lambda: kept
        if not self._parts.has(self.keys.kept(name)):
            fetch()

        def read_judged() -> KeptWindows:
            part = self.keys.kept(name)
            if self.folder is None or not self.folder.has(*part):
                return read()
            files = self.folder.entry(part.name)["files"]
            return read_kept(self.folder.root / next(iter(files)), model.exemplars.coef_.shape[1], only_judged=True)

        model.read_judged = read_judged
        return read

    def _calibrated(self, model: ClassModel, scores: Held[CalibrationScores]) -> ClassModel:
        for stored in self.calibrators:
            model.calibrators[stored] = self._calibrator(model, stored)
        model.read_scores = scores
        return model

    def _calibrator(self, model: ClassModel, stored: str) -> Any:
        name = model.class_name

        def read(root: Path, files: list[str]) -> ScoreCalibrator:
            if stored == JOINT:
                model.read_certificate = certificate_reader(root, files)
            return read_calibrator(root, name, stored, model.n_exemplars)

        return self._parts.get(
            self.keys.calibration(name, stored),
            read=read,
            make=lambda: self._calibrate(name, stored),
            write=lambda root, made: write_calibrator(root, name, stored, made),
        )

    def _facts(self, name: str, scores: Held[CalibrationScores]) -> dict[str, Any]:
        """How many windows a class is calibrated on; its scores are made where they are missing.

        Where the network was tuned on images of the exemplars, also how separable that has made them.
        """
        part = self.keys.scores(name)
        roles = self._inputs.roles
        is_tuned = bool(roles and roles["n_shared"])
        if self.folder is not None and self.folder.has(*part):
            known = self.folder.entry(part.name).get("facts")
            if known is not None and ("separability" in known or not is_tuned):
                return known
        found = scores()
        n_positives = found.table.n_positives
        facts: dict[str, Any] = {
            "n_positives": n_positives,
            "n_negatives": found.table.n_rows - n_positives,
            "n_negatives_in_all": found.n_negatives,
        }
        if is_tuned:
            facts["separability"] = separability(found)
        if self.folder is not None:
            self.folder.note(part.name, facts=facts)
        return facts

    # Making them

    def _propose(self) -> list[Windows]:
        if self._proposals is None:
            with self._parts.stage("windows"):
                self._proposals = self._images.propose()
        return self._proposals

    def _fit_descriptor(self) -> Transformed:
        proposals = self._propose()
        with self._parts.stage("scaling and PCA"):
            return self._images.fit_descriptor(proposals, self._inputs.plain)

    def _train(self, name: str) -> ClassModel:
        windows = self.windows
        with self._parts.stage("training"):
            trained = self._stages.trained(name)
        with self._parts.stage("annotations"):
            records = {record.image_id: record for record in windows.records}
            annotations = annotate_all(trained.objects, records, self.problems, mirror=trained.n_mirrored > 0)
        return ClassModel(name, trained.exemplars, annotations, trained.single)

    def _regress(self, name: str) -> BoxRegressor | None:
        windows = self.windows
        with self._parts.stage("box regression"):
            return regress_boxes(windows, name, self.options.random_state)

    def _checkpoint(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder.checkpoints(class_folder(name))

    def _score(self, model: ClassModel) -> CalibrationScores:
        windows = self.windows
        _, instances = windows.objects(model.class_name)
        trained = trained_class(model.class_name, model.exemplars, instances, model.single, 0)
        n_windows = n_scored(windows, model.class_name, self.options.calibration)
        if self.options.calibration.shrink is not None:
            n_windows += most_judged(len(windows.records))
        self._check_memory(model, n_windows)
        with self._parts.stage("scores"):
            scores = self._stages.score(windows, trained)
        if self.folder is None:
            self._n_bytes_held += scores.table.scores.nbytes
        return scores

    def _keep(self, model: ClassModel, judged: JudgedWindows | None) -> ChosenWindows:
        windows = self.windows
        with self._parts.stage("scores"):
            return keep_windows(windows, model.class_name, model.exemplars, model.single, self.options, judged)

    def _check_memory(self, model: ClassModel, n_windows: int) -> None:
        """Refuse, before they are made or fitted to, scores of a class that are more than the run may hold."""
        if self._memory is not None:
            held = self._n_bytes_held
            if self._windows is not None and not isinstance(self._windows.descriptors, np.memmap):
                held += self._windows.descriptors.nbytes
            self._memory.check_calibration(model.class_name, n_windows, model.n_exemplars, held)

    def _calibrate(self, name: str, stored: str) -> Any:
        with self._parts.stage("calibration"):
            return self._stages.calibrated(name, stored)

    def _finish(self, models: list[ClassModel]) -> None:
        """Write the card, unless nothing has changed."""
        assert self.folder is not None
        descriptor = self.descriptor  # made anew if its files are damaged, so before they are listed
        parts = self._part_names()
        files = without_times(self.folder.files(parts))
        inputs = self.inputs
        options = {name: value for name, value in self.options.as_dict().items() if name != "n_jobs"}
        key = digest([files, options, inputs, [model.class_name for model in models]])
        if not self.folder.has("model", key):
            with self._parts.stage("files"):
                finish_model(
                    self.folder.root,
                    LoadedModel(self.options, tuple(models), inputs, lambda: descriptor),
                    files,
                )
                self.folder.keep("model", key, ["MODEL.md", "model.json"], 0.0)
            self.changed.append("model")
        self.folder.end([*parts, "model"])
        shutil.rmtree(self.folder.root / "checkpoints", ignore_errors=True)

    def _part_names(self) -> list[str]:
        parts = chain(*(self.keys.of_class(name, self.calibrators) for name in self.classes))
        return [part.name for part in (self.keys.descriptor(), *parts)]
