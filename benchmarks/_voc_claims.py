"""The claims of the paper on the tables of `bench_voc`: measured and judged as `eesvm reproduce` does, part by part.

A part is one class in one stage: tables 1 to 3 (Val1: the first half of the exemplars' images, or fewer where a class has
more than 140 objects there), tables 4 to 6 (all of them), and HOG. Each part is a file below the work folder; those of
tables 4 to 6 hold the searches of section 5.5 as well. Descriptors and windows are those of the setting.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from _common import markdown
from _voc_numbers import difference, slug
from _voc_tables import Setting, read_table, with_objects
from eesvm._support.documents import write_json
from eesvm.calibration.problem import CalibrationProblem
from eesvm.detector.class_training import NothingToLearnError
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_table import TrainingWindows
from eesvm.experiments.claims.measurements import Evidence
from eesvm.experiments.claims.sheet import CLAIMS, Claim, Judged, claims_table, summary
from eesvm.experiments.figures.paper_figures import paper_figures
from eesvm.experiments.paper import PAPER_TABLES, RECALL
from eesvm.experiments.reproduction.measure import ClassWork
from eesvm.experiments.reproduction.recipes import Recipe, make_recipes
from eesvm.experiments.reproduction.results import FULL, HOG, SMALL, STAGES, Part, Results
from eesvm.experiments.reproduction.run import _figure_inputs
from eesvm.experiments.reproduction.splits import MAX_EXEMPLARS
from eesvm.experiments.search_study.pruning import PruningStudy, Search, pruning_study
from eesvm.experiments.tables.estimates import Sample, log_ratio
from eesvm.experiments.tables.files import to_markdown
from eesvm.experiments.tables.paper_tables import paper_tables, pruning_table, search_table
from eesvm.experiments.tables.windows import Method

__all__ = ["STAGES", "beside_paper_section", "claims_page", "measure_part", "part_file"]

FIGURES, FIGURES_CLASS = (2, 3, 4, 5, 6), "bus"  # those that show no photographs
PERSON = "person"  # has by far the most objects
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
    elif arguments.claims_exemplars is not None:
        train = with_objects(train, class_name, arguments.claims_exemplars)
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
    """The figures of the first setting with their captions; their files go beside the page."""
    folder = part_file(arguments.work, setting, SMALL, "").parent / "figures"
    if setting.name != FIRST_SETTING or not (folder / "captions.json").exists():
        return []
    lines = [f"## Figures, drawn from the class {FIGURES_CLASS}"]
    for _, name, caption, alt in json.loads((folder / "captions.json").read_text())["figures"]:
        if name is not None:
            target = arguments.output.with_name(f"{arguments.claims_name}_{folder.parent.name}_{name}.png")
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
    found = [json.loads(file.read_text()) for file in part_files(arguments.work, setting)]
    if not found:
        return ""
    small, large, both = results_of([Part.from_dict(one["part"]) for one in found])
    if not small.parts and not large.parts:
        return ""  # HOG alone says nothing
    studies = [one["study"] for one in found if one["study"]]
    searches = tuple(Search(**search) for study in studies for search in study["searches"])
    study = PruningStudy(searches, STUDY_SECONDS, 0, tuple(note for one in studies for note in one["notes"]))
    first = small if small.parts else large
    known = (first, large if large.parts else first, both if both.parts else large if large.parts else first)
    evidence = [Evidence(results, study, True, arguments.paper_images) for results in known]
    judged = judge_all(*evidence)
    tables = list(paper_tables(small, True)[:3]) if small.parts else []
    if large.parts:
        tables += [*paper_tables(large, True)[3:5], paper_tables(known[2], True)[5]]
    searched = [search_table(results) for results in (small, large)]
    rows = tuple(row for table in searched for row in table.rows)
    tables += [replace(searched[0], rows=rows), *([pruning_table(study)] if searches else ())]
    claims, *made = [to_markdown(table).rstrip() for table in (claims_table(judged), *tables)]
    alone = [Evidence(without(results, PERSON), study, True, arguments.paper_images) for results in known]
    own = judge_all(*alone)
    made = [claims, *person_lines(judged, own), *joint_section(small, large), *made]
    hours = sum(one["seconds"] for one in found) / 3600
    head = page_head(arguments, setting, [one.classes for one in (small, large, both)], hours)
    return "\n\n".join([*head, *made, *figure_lines(arguments, setting)]) + "\n"


def results_of(parts: Sequence[Part]) -> tuple[Results, Results, Results]:
    """Of tables 1 to 3; of tables 4 to 6; and those again of the classes that were measured with HOG, too."""
    of_stage = {stage: {part.class_name for part in parts if part.stage == stage} for stage in STAGES}
    common = of_stage[FULL] & of_stage[HOG] if of_stage[FULL] else of_stage[HOG]
    chosen = [
        [part for part in parts if part.stage == SMALL],
        [part for part in parts if part.stage == FULL],
        [part for part in parts if part.stage != SMALL and part.class_name in common],
    ]
    return Results(tuple(chosen[0])), Results(tuple(chosen[1])), Results(tuple(chosen[2]))


def judge_all(small: Evidence, large: Evidence, both: Evidence) -> Judged:
    """Each claim by the tables that it is about."""
    return [
        (claim, claim.find(small if is_of_small(claim) else both if is_of_hog(claim) else large)) for claim in CLAIMS
    ]


def is_of_hog(claim: Claim) -> bool:
    """Those that set descriptors of a network beside HOG, or are about HOG alone."""
    return "HOG" in claim.text or "double its mAP" in claim.text


def is_of_small(claim: Claim) -> bool:
    """Those of section 5.3 but for HOG's, and of redundant exemplars."""
    return claim.section == "2" or ("5.3" in claim.section and "citing" not in claim.section)


def without(results: Results, class_name: str) -> Results:
    return Results(tuple(part for part in results.parts if part.class_name != class_name))


def person_lines(judged: Judged, own: Judged) -> list[str]:
    """Claims whose verdict hangs on the class with by far the most windows."""
    changed = [
        f'"{claim.text}": {other.verdict}, {other.measured}'
        for (claim, found), (_, other) in zip(judged, own, strict=True)
        if found.verdict != other.verdict
    ]
    return ["Other verdicts without the class person: " + "; ".join(changed or ["none"]) + ". " + summary(own)]


def beside_paper_section(arguments: argparse.Namespace, setting: Setting) -> list[str]:
    """Tables 1 to 3 in one, means over classes, beside the paper's; nothing where they were not measured."""
    found = [json.loads(file.read_text())["part"] for file in part_files(arguments.work, setting)]
    results = results_of([Part.from_dict(part) for part in found])[0]
    if not results.classes:
        return []
    rows = []
    for method, is_ours in results.methods(SMALL):
        false = [positives_of(results, name) for name in (method, Method.SIGMOID)]
        ratio = log_ratio(*false).estimate()
        low, value, high = (f"{math.exp(one):.2f}" for one in (ratio.low, ratio.value, ratio.high))
        cells = [f"{value} ({low} to {high})" if method != Method.SIGMOID else "1", paper_ratio(method)]
        for measure, number in (("window_ap", 2), ("detection_ap", 3)):
            own = needed(results.mean(SMALL, method, measure))
            gain = (own - needed(results.mean(SMALL, Method.SIGMOID, measure))).estimate().scaled(100.0)
            apart = f" {gain.value:+.1f} ({gain.low:+.1f} to {gain.high:+.1f})" if method != Method.SIGMOID else ""
            paper = PAPER_TABLES[number].rows.get(method)
            cells += [f"{100 * own.estimate().value:.1f}{apart}", "" if paper is None else f"{paper.mean:.1f}"]
        rows.append([method + ", beyond the paper" * is_ours, *cells])
    recall = needed(results.mean(SMALL, Method.JOINT, "recall")).estimate().scaled(100.0)
    text = (
        f"{len(results.classes)} classes. Val1: at most {MAX_EXEMPLARS} exemplars a class, of the first half of the images. "
        "False positives are counted at the recall of the joint thresholds, "
        f"{recall.value:.1f} % ({recall.low:.1f} to {recall.high:.1f}; paper {PAPER_TABLES[1].rows[RECALL].mean:.1f}), and "
        "stated as a multiple of those of independent sigmoids. Behind AP the difference to these. In brackets over images. "
        "The paper's figures are of ILSVRC 2014. All verdicts, and all classes: "
        f"[the claims]({arguments.claims_name}_{slug(setting.name)}.md)."
    )
    head = ["method", "false positives", "paper", "window AP", "paper", "detection AP", "paper"]
    return [f"## Tables 1 to 3 beside the paper's: {setting.name}", "", text, "", markdown(head, rows), ""]


def positives_of(results: Results, method: str) -> Sample:
    """False positives; the joint thresholds count as they are."""
    return needed(results.mean(SMALL, method, "accepted" if method == Method.JOINT else "false_positives"))


def paper_ratio(method: str) -> str:
    rows = PAPER_TABLES[1].rows
    return f"{rows[method].mean / rows[Method.SIGMOID].mean:.2f}" if method in rows else ""


def joint_section(small: Results, large: Results) -> list[str]:
    """Joint calibration beside independent sigmoids and beside none, which the paper's tables of AP leave out."""
    rows = [
        joint_row(title, results, stage, measure)
        for title, results, stage in (
            ("1 to 3", small, SMALL),
            ("1 to 3, without person", without(small, PERSON), SMALL),
            ("4 to 6", large, FULL),
        )
        for measure in ("window_ap", "detection_ap")
        if results.classes
    ]
    head = ["tables", "classes", "AP of", "none", "sigmoid", "joint + sigmoid", "joint minus sigmoid", "over classes",
            "joint minus none", "over classes"]  # fmt: skip
    text = "In brackets intervals over resamples of the test images; after ± 95 % t-intervals over classes."
    return ["## Joint calibration beside sigmoids and no calibration", text, markdown(head, rows)]


def joint_row(title: str, results: Results, stage: str, measure: str) -> list[object]:
    methods = (Method.NO_CALIBRATION, Method.SIGMOID, Method.JOINT_SIGMOID)
    means = [needed(results.mean(stage, method, measure)) for method in methods]
    cells: list[object] = [title, len(results.classes), {"window_ap": "windows", "detection_ap": "detections"}[measure]]
    cells += [f"{100 * mean.estimate().value:.1f}" for mean in means]
    for mean, other in ((means[1], methods[1]), (means[0], methods[0])):
        gain = (means[2] - mean).estimate().scaled(100.0)
        pairs = [
            [needed(results.sample(stage, method, measure, name)).values[0] for method in (methods[2], other)]
            for name in results.classes
        ]
        cells += [
            f"{gain.value:+.1f} ({gain.low:+.1f} to {gain.high:+.1f})",
            difference(np.subtract(*np.array(pairs).T)),
        ]
    return cells


def needed(sample: Sample | None) -> Sample:
    assert sample is not None, "a class lacks a method"
    return sample


def page_head(
    arguments: argparse.Namespace, setting: Setting, classes: Sequence[Sequence[str]], hours: float
) -> list[str]:
    options: DetectorOptions = recipes_of(arguments)[SMALL][0].options
    small, large, both = classes
    left_out = sorted(set(small) - set(large)) if large else []
    full = f"tables 4 to 6 on {len(large)}" if large else "tables 4 to 6 and section 5.5 not at all"
    if large and len(both) < len(large):
        full += f", of those HOG on {len(both)}" if both else ", HOG not at all"
    words = f"--paper-images {arguments.paper_images} --crops {arguments.crops} --resamples {arguments.resamples}"
    most = ""
    if large and arguments.claims_exemplars is not None:
        words += f" --claims-exemplars {arguments.claims_exemplars}"
        most = (
            f" Tables 4 to 6: at most {arguments.claims_exemplars} exemplars a class, a random choice of its objects."
        )
    return [
        f"# Pascal VOC 2007: the paper's claims, {setting.name}",
        *([arguments.note] if arguments.note else []),
        f"What it comes to is said on [the page of this run]({arguments.output.name}).",
        f"Made by `python benchmarks/bench_voc.py --stages claims page --settings {setting.name!r} {words}` and judged by "
        f"the rules of [`eesvm reproduce`](../reproduce.md): tables 1 to 3 on {len(small)} classes, {full}"
        + (f" (not measured in time: {', '.join(left_out)})" if left_out else "")
        + f"; {hours:.1f} hours of one core. Network: {setting.network}, {setting.mode}; exemplars and calibration: "
        f"{setting.exemplars}; test: {setting.judges}. Intervals are over {arguments.resamples} resamples of the test images. "
        f"Val1 is the first half of the exemplars' images, or for a class with more than {MAX_EXEMPLARS} objects there as many "
        f"as hold so many.{most} {arguments.crops} windows an image, negatives of {options.training.max_images} random images, "
        f"{options.calibration.max_negatives:,} calibration negatives, searches of {options.calibration.time_limit:g} s, "
        + (
            f"those of section 5.5 of {STUDY_SECONDS:g} s; HOG behind a PCA of 256, too."
            if large
            else "on one core each."
        ),
    ]
