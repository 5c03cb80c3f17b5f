"""Everything that the tables, claims and figures of a reproduction need, measured part by part.

In: splits, recipes, and a folder. Out: `Measured`: the `Results` of all methods on all classes of all splits, the
pruning study of section 5.5 on their score tables, and the figures. Every part is filed in the folder as it is done,
under a hash of everything that it depends on: killed at any moment, the run loses one part; the same run again reads
what is there and measures nothing.
Not here: tables and claims (`paper_tables`, `claims`), which are laid out from this every time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from eesvm._support.digests import digest
from eesvm._support.run_folder import RunFolder
from eesvm._support.validation import InputError
from eesvm.datasets.fingerprint import fingerprint
from eesvm.datasets.roles import PictureCodes
from eesvm.descriptors import DescriptorCache
from eesvm.descriptors.backbones import untuned
from eesvm.detector.class_training import NothingToLearnError
from eesvm.detector.files import class_folder
from eesvm.detector.training_descriptor import plain_descriptor
from eesvm.detector.training_table import StageProgress
from eesvm.experiments.figures.paper_figures import FigureInputs, PaperFigure, paper_figures
from eesvm.experiments.reproduction import files
from eesvm.experiments.reproduction.image_roles import check_roles
from eesvm.experiments.reproduction.measure import ClassWork
from eesvm.experiments.reproduction.recipes import Recipe
from eesvm.experiments.reproduction.results import FULL, SMALL, STAGES, Part, Results
from eesvm.experiments.reproduction.split_windows import SplitWindows
from eesvm.experiments.reproduction.splits import Split, Splits
from eesvm.experiments.search_study.pruning import SECONDS, PruningStudy, generated_table, pruning_study
from eesvm.experiments.tables.windows import Method
from eesvm.structures import Problem

N_RESAMPLES = 200  # of the test images, for the intervals of a single split

_VERSION = 1  # part of every key: to be raised when the same inputs would be measured otherwise
_PRUNING, _FIGURES = "pruning", "figures"
_LEAST_GENERATED = 1.0  # seconds of a search, below which a table of 1000 exemplars is not worth its making

T = TypeVar("T")


class Place(NamedTuple):
    """Which part of a run."""

    split: int
    stage: str
    class_name: str

    @property
    def title(self) -> str:
        return f"split {self.split + 1}, {self.stage}, {self.class_name}"

    @property
    def file(self) -> str:
        stage = self.stage.lower().replace("+", "_")
        return f"parts/split{self.split + 1}_{stage}_{class_folder(self.class_name)}"


@dataclass(frozen=True)
class Measured:
    """What a reproduction has found."""

    results: Results
    study: PruningStudy
    figures: tuple[PaperFigure, ...]
    inputs: Mapping[str, Any]  # name, sizes and hash of the dataset
    made: tuple[str, ...]  # parts that this run has measured; none: all of them were there
    problems: tuple[Problem, ...]  # images that were passed over while windows were made
    seconds: Mapping[str, float]  # by what they went into, of all parts, whenever they were measured


class Reproduction:
    """One run over all splits, stages and classes."""

    def __init__(
        self,
        splits: Splits,
        recipes: Mapping[str, Sequence[Recipe]],
        folder: str | os.PathLike[str],
        *,
        cache: DescriptorCache | None = None,
        n_resamples: int = 0,
        study_seconds: float = SECONDS,
        with_figures: bool = True,
        progress: StageProgress | None = None,
        network: PictureCodes | None = None,
    ) -> None:
        self.splits, self.recipes, self.cache, self.progress = splits, recipes, cache, progress
        self.n_resamples, self.study_seconds, self.with_figures = n_resamples, study_seconds, with_figures
        self.places = [
            Place(split.number, stage, class_name)
            for split in splits.splits
            for stage in STAGES
            for class_name in splits.classes
        ]
        files.check_folder(Path(folder), splits.name)
        self.folder = RunFolder(folder)
        self.network = network  # the images that it was tuned on, where they are known
        self.figures: list[PaperFigure] = []
        self.problems: list[Problem] = []
        self.made: list[str] = []

    def measure(self, command: Sequence[str] = ()) -> Measured:
        """All parts, read or measured."""
        described = self.recipes[SMALL][0].options.descriptor
        as_it_comes = untuned(described.name, described.backbone)
        roles = check_roles(self.splits, self.network, partial(self._report, "recognising images"), as_it_comes)
        hashes = self._fingerprints()
        inputs = {"kind": files.KIND, "name": self.splits.name, "digest": digest(hashes), **self._sizes()}
        inputs |= {} if roles is None else {"roles": roles}
        options = {stage: [recipe.options.as_dict() for recipe in own] for stage, own in self.recipes.items()}
        parts = [*(place.title for place in self.places), _PRUNING, *([_FIGURES] if self.with_figures else [])]
        self.keys = self._keys(hashes)
        self.folder.begin(command, options, inputs, parts)
        results = Results(tuple(part for split in self.splits.splits for part in self._split(split)))
        if not results.classes:
            raise InputError(f"{self.splits.name}: no class can be measured: {results.skipped[0]}")
        study = self._study(results)
        self.folder.end(parts)
        made, problems = tuple(self.made), tuple(self.problems)
        return Measured(results, study, tuple(self.figures), inputs, made, problems, self._seconds())

    # What each part depends on

    def _fingerprints(self) -> list[list[Any]]:
        """Hashes of the images and annotations of every split."""
        hashes = []
        for split in self.splits.splits:
            own: list[Any] = [split.n_small]
            for images in (split.train, split.test):
                found = fingerprint(images, partial(self._report, f"reading images of split {split.number + 1}"))
                own += [found.images_digest(), found.annotations]
            hashes.append(own)
        return hashes

    def _sizes(self) -> dict[str, Any]:
        first = self.splits.splits[0]
        counts = {"n_train": len(first.train), "n_small": first.n_small, "n_test": len(first.test)}
        return {"n_splits": len(self.splits), **counts, "classes": list(self.splits.classes)}

    def _keys(self, hashes: Sequence[Sequence[Any]]) -> dict[str, str]:
        recipes = {stage: [_recipe_facts(recipe) for recipe in own] for stage, own in self.recipes.items()}
        descriptors = {
            stage: plain_descriptor(own[0].options.descriptor).parameters() for stage, own in self.recipes.items()
        }
        return {
            place.title: digest(
                [_VERSION, hashes[place.split], place, recipes[place.stage], descriptors[place.stage], self.n_resamples]
            )
            for place in self.places
        }

    # The parts

    def _split(self, split: Split) -> list[Part]:
        """All stages of a split; figures come of the first, while its windows and exemplars are at hand."""
        windows = SplitWindows(split, self.cache, self.problems, self._sub_progress(split.number))
        works: dict[str, ClassWork] = {}
        parts = []
        for stage in STAGES:
            for class_name in self.splits.classes:
                work = ClassWork(self.recipes[stage], partial(windows.of, stage), class_name, self.n_resamples)
                parts.append(self._measured(Place(split.number, stage, class_name), work))
                works[class_name] = work
            if self.with_figures and split.number == 0 and stage == SMALL:
                self.figures = self._figures([part for part in parts if part.rows], works)
            works.clear()
        return parts

    def _measured(self, place: Place, work: ClassWork) -> Part:
        def make(root: Path) -> tuple[Part, list[str]]:
            try:
                facts = work.facts() | (work.transfer_gain() if place.stage == SMALL else {})
                part = Part(*place, rows=tuple(work.rows()), facts=facts)
            except NothingToLearnError as error:
                part = Part(*place, rows=(), skipped=str(error))
            is_studied = part.rows and place.split == 0 and place.stage == FULL
            return part, files.write_part(root, place.file, part, work.scores().table if is_studied else None)

        key = self.keys[place.title]
        return self._part(place.title, key, read=partial(files.read_part, name=place.file), make=make)

    def _study(self, results: Results) -> PruningStudy:
        """Section 5.5 on the score tables of the first split."""
        places = [Place(0, FULL, name) for name in results.classes]
        name = f"parts/{_PRUNING}"

        def make(root: Path) -> tuple[PruningStudy, list[str]]:
            study = pruning_study(
                [(place.class_name, files.read_problem(root, place.file)) for place in places],
                generated=[generated_table()] if self.study_seconds >= _LEAST_GENERATED else [],
                time_limit=self.study_seconds,
                progress=lambda what, done, total: self._report("pruning", done, total),
            )
            return study, files.write_study(root, name, study)

        key = digest([_VERSION, [self.keys[place.title] for place in places], self.study_seconds])
        return self._part(_PRUNING, key, read=partial(files.read_study, name=name), make=make)

    def _figures(self, parts: Sequence[Part], works: Mapping[str, ClassWork]) -> list[PaperFigure]:
        """Of the class with the most exemplars; none where no class could be measured."""
        if not parts:
            return []
        chosen = max(parts, key=lambda part: part.facts["n_exemplars"])
        name = f"parts/{_FIGURES}"

        def make(root: Path) -> tuple[list[PaperFigure], list[str]]:
            figures = paper_figures(_figure_inputs(self.splits.name, works[chosen.class_name]))
            return figures, files.write_figures(root, name, figures)

        key = digest([_VERSION, self.keys[Place(chosen.split, chosen.stage, chosen.class_name).title]])
        return self._part(_FIGURES, key, read=partial(files.read_figures, name=name), make=make)

    def _part(self, name: str, key: str, read: Callable[[Path], T], make: Callable[[Path], tuple[T, list[str]]]) -> T:
        """What the folder has under this key, or else what is made, and then kept."""
        if self.folder.has(name, key):
            return read(self.folder.root)
        self._report_part(name)
        started = time.perf_counter()
        made, written = make(self.folder.root)
        self.folder.keep(name, key, written, time.perf_counter() - started)
        self.made.append(name)
        return made

    # Progress and time

    def _report(self, stage: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(stage, done, total)

    def _report_part(self, text: str) -> None:
        """Parts done, of all; what follows the first comma changes without starting the clock anew."""
        done = sum(self.folder.has(place.title, self.keys[place.title]) for place in self.places)
        self._report(f"measuring, {text}", done, len(self.places))

    def _sub_progress(self, split: int) -> StageProgress:
        def report(stage: str, done: int, total: int) -> None:
            self._report_part(f"split {split + 1}: {stage} of {done} of {total} images")

        return report

    def _seconds(self) -> dict[str, float]:
        found: dict[str, float] = {}
        named = [(place.stage, place.title) for place in self.places] + [(name, name) for name in (_PRUNING, _FIGURES)]
        for kind, part in named:
            found[kind] = found.get(kind, 0.0) + float(self.folder.entry(part).get("seconds", 0.0))
        return found


def _recipe_facts(recipe: Recipe) -> list[Any]:
    """What a part depends on; the number of threads changes no result."""
    options = {name: value for name, value in recipe.options.flat().items() if name != "n_jobs"}
    return [options, [[rule.name, rule.calibrator, dict(rule.changes)] for rule in recipe.rules], recipe.is_ours]


def _figure_inputs(dataset: str, work: ClassWork) -> FigureInputs:
    recipe = work.recipes[0]
    train, test = work.windows_of(recipe.options)
    trained, calibration = work.trained(), recipe.options.calibration
    return FigureInputs(
        dataset=dataset,
        train=train,
        trained=trained,
        scores=work.scores(),
        annotations=work.annotations(train),
        result=next(result for result in work.results() if result.rule == Method.JOINT_SIGMOID),
        test_records=test.records,
        positive_overlap=calibration.positive_overlap,
        negative_overlap=calibration.negative_overlap,
    )
