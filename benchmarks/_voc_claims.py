"""The claims of the paper on the tables of `bench_voc`: measured and judged as `eesvm reproduce` does, part by part.

A part is one class in one stage: tables 1 to 3 (Val1: the first half of the exemplars' images, or fewer where a class has
more than 140 objects there), tables 4 to 6 (all of them), and HOG. Each part is a file below the work folder; those of
tables 4 to 6 hold the searches of section 5.5 as well. Descriptors and windows are those of the setting.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from _voc_numbers import slug
from _voc_tables import Setting, read_table
from eesvm._support.documents import write_json
from eesvm.calibration.problem import CalibrationProblem
from eesvm.detector.class_training import NothingToLearnError
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_table import TrainingWindows
from eesvm.experiments.claims.measurements import Evidence
from eesvm.experiments.claims.sheet import claims_table, judge_claims
from eesvm.experiments.figures.paper_figures import paper_figures
from eesvm.experiments.reproduction.measure import ClassWork
from eesvm.experiments.reproduction.recipes import Recipe, make_recipes
from eesvm.experiments.reproduction.results import FULL, HOG, SMALL, STAGES, Part, Results
from eesvm.experiments.reproduction.run import _figure_inputs
from eesvm.experiments.reproduction.splits import MAX_EXEMPLARS
from eesvm.experiments.search_study.pruning import PruningStudy, Search, pruning_study
from eesvm.experiments.tables.files import to_markdown
from eesvm.experiments.tables.paper_tables import paper_tables, pruning_table, search_table

__all__ = ["STAGES", "claims_page", "measure_part", "part_file"]

FIGURES, FIGURES_CLASS = (2, 3, 4, 5, 6), "bus"  # those that show no photographs
STUDY_SECONDS = 2.0  # of each search of section 5.5
FIRST_SETTING = "frozen pooled"  # train and val; its parts of HOG are those of all settings with these roles
HOG_SETTING = "HOG"  # whose tables the last stage takes, where the roles are the same


def part_file(work: Path, setting: Setting, stage: str, class_name: str) -> Path:
    return work / "claims" / slug(setting.name) / f"{stage.lower().replace('+', '_')}_{class_name}.json"


def measure_part(setting: Setting, stage: str, class_name: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Files one part, in a process of its own; nothing where time is up."""
    if time.time() > arguments.until:
        return []
    began = time.perf_counter()
    own = replace(setting, name=HOG_SETTING) if stage == HOG else setting
    train, test = (read_table(own, role, arguments) for role in (own.exemplars, own.judges))
    if stage == SMALL:
        train = train.of_images(range(n_small(train, class_name)))
    work = ClassWork(recipes_of(arguments)[stage], lambda _: (train, test), class_name, arguments.resamples)
    try:
        facts = work.facts() | (work.transfer_gain() if stage == SMALL else {})
        part = Part(0, stage, class_name, rows=tuple(work.rows()), facts=facts)
        study = study_of(class_name, work) if stage == FULL else None
    except NothingToLearnError as error:
        part, study = Part(0, stage, class_name, rows=(), skipped=str(error)), None
    file = part_file(arguments.work, setting, stage, class_name)
    file.parent.mkdir(parents=True, exist_ok=True)
    seconds = time.perf_counter() - began
    write_json(file, {"part": part.as_dict(), "study": study and asdict(study), "seconds": seconds})
    print(f"{setting.name}, {stage}, {class_name}: {seconds:.0f} s", flush=True)
    if stage == SMALL and class_name == FIGURES_CLASS and not part.skipped:
        draw_figures(work, file.parent / "figures")
    return []


def recipes_of(arguments: argparse.Namespace) -> dict[str, list[Recipe]]:
    """Those of `eesvm reproduce`; ours only where searches run to the optimum, and HOG behind the PCA as all others."""
    changes = {
        "windows.max_windows": arguments.crops,
        "descriptor.n_components": 256,
        "training.max_images": arguments.paper_images,
        "n_jobs": 1,
    }
    recipes = make_recipes(arguments.time_limit, changes)
    return {**recipes, FULL: [recipe for recipe in recipes[FULL] if not recipe.is_ours]}


def n_small(table: TrainingWindows, class_name: str) -> int:
    """Images of Val1: half, or fewer where the class would have more exemplars than in the paper."""
    half, count = len(table.records) // 2, 0
    for n, record in enumerate(table.records[:half]):
        count += sum(i.class_name == class_name and not (i.is_difficult or i.is_crowd) for i in record.instances)
        if count > MAX_EXEMPLARS:
            return n
    return half


def study_of(class_name: str, work: ClassWork) -> PruningStudy:
    """Section 5.5 on the score table of a class."""
    table = work.scores().table
    is_positive = table.labels == 1
    problem = CalibrationProblem(table.scores[is_positive], table.scores[~is_positive])
    return pruning_study([(class_name, problem)], time_limit=STUDY_SECONDS)


def draw_figures(work: ClassWork, folder: Path) -> None:
    """The paper's figures of score tables and trees."""
    drawn = paper_figures(_figure_inputs("Pascal VOC 2007", work), FIGURES)
    folder.mkdir(parents=True, exist_ok=True)
    for one in drawn:
        if one.png is not None:
            (folder / f"{one.name}.png").write_bytes(one.png)
    captions = [[one.number, one.name if one.png is not None else None, one.caption, one.alt] for one in drawn]
    write_json(folder / "captions.json", {"figures": captions})


def figure_lines(arguments: argparse.Namespace, setting: Setting) -> list[str]:
    """The figures with their captions; their files go beside the page."""
    folder = part_file(arguments.work, setting, SMALL, "").parent / "figures"
    if not (folder / "captions.json").exists():
        return []
    lines = [f"## Figures, drawn from the class {FIGURES_CLASS}"]
    for _, name, caption, alt in json.loads((folder / "captions.json").read_text())["figures"]:
        if name is not None:
            target = arguments.output.with_name(f"voc2007_claims_{folder.parent.name}_{name}.png")
            target.write_bytes((folder / f"{name}.png").read_bytes())
            lines.append(f"![{alt}]({target.name})")
        lines.append(caption)
    return lines


def part_files(work: Path, setting: Setting) -> list[Path]:
    """What was measured of a setting; parts of HOG are those of any setting with the same roles."""
    folder = part_file(work, setting, SMALL, "").parent
    found = sorted(folder.glob("*.json"))
    hog = part_file(work, replace(setting, name=FIRST_SETTING), HOG, "*")
    has_hog = any(file.name.startswith(hog.name[:4]) for file in found)
    is_shared = (setting.exemplars, setting.judges) == ("train", "val")
    return found if not found or has_hog or not is_shared else [*found, *sorted(hog.parent.glob(hog.name))]


def claims_page(arguments: argparse.Namespace, setting: Setting) -> str:
    """The claims with their verdicts, and the tables they are judged by; nothing where nothing was measured."""
    files = part_files(arguments.work, setting)
    found = [json.loads(file.read_text()) for file in files]
    if not found:
        return ""
    parts = [Part.from_dict(one["part"]) for one in found]
    stages = {stage: {part.class_name for part in parts if part.stage == stage} for stage in STAGES}
    measured = {stage: names for stage, names in stages.items() if names}
    whole = set.intersection(*measured.values())
    results = Results(tuple(part for part in parts if part.class_name in whole))
    studies = [one["study"] for one in found if one["study"] and one["part"]["class_name"] in whole]
    searches = tuple(Search(**search) for study in studies for search in study["searches"])
    study = PruningStudy(searches, STUDY_SECONDS, 0, tuple(note for one in studies for note in one["notes"]))
    judged = judge_claims(Evidence(results, study, True, arguments.paper_images))
    tables = [*paper_tables(results, True), search_table(results), pruning_table(study)]
    options: DetectorOptions = recipes_of(arguments)[SMALL][0].options
    missing = [stage for stage in STAGES if stage not in measured]
    hours = sum(one["seconds"] for one in found) / 3600
    head = [
        f"# Pascal VOC 2007: the paper's claims, {setting.name}",
        f"Made by `python benchmarks/bench_voc.py --stages claims page --settings {setting.name!r} --paper-images "
        f"{arguments.paper_images}` and judged by the rules of [`eesvm reproduce`](../reproduce.md), on {len(whole)} classes and {hours:.1f} hours of one core. Network: "
        f"{setting.network}, {setting.mode}; exemplars and calibration: {setting.exemplars}; test: {setting.judges}. "
        f"Intervals are over {arguments.resamples} resamples of the test images. Val1 is the first half of the exemplars' "
        f"images, or for a class with more than {MAX_EXEMPLARS} objects there as many as hold so many. "
        f"{arguments.crops} windows an image, negatives of {options.training.max_images} random images, "
        f"{options.calibration.max_negatives:,} calibration negatives, searches of {options.calibration.time_limit:g} s, "
        f"those of section 5.5 of {STUDY_SECONDS:g} s; HOG behind a PCA of 256, too."
        + (f" Not measured: {', '.join(missing)}." if missing else ""),
    ]
    made = [to_markdown(table).rstrip() for table in (claims_table(judged), *tables)]
    return "\n\n".join([*head, *made, *figure_lines(arguments, setting)]) + "\n"
