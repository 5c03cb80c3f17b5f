"""Every calibration, trainer and pooling on real photographs: `python benchmarks/bench_detection.py DATA`.

Writes benchmarks/results/detection.md. DATA is a folder of datasets. Each is cut into a training and a test half, several
times; images of one half are never seen by the other, and neither are the scaling and the PCA of the descriptors. What has
been measured is kept in the file of `--resume`, line by line, so that an interrupted benchmark can be resumed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path

import numpy as np

from _common import RESULTS, ROOT
from _detection_page import page
from eesvm import datasets
from eesvm.descriptors import DescriptorCache
from eesvm.detector.options import PRESETS, DetectorOptions
from eesvm.detector.training_descriptor import training_windows
from eesvm.detector.training_table import describe_windows, propose_windows
from eesvm.experiments.tables.detections import PAPER_RULES, Rule, compare_rules, transfer_choices
from eesvm.structures import Dataset
from eesvm.transfer.annotations import annotate_all

SETS = ("cards", "pets_voc", "raccoon", "bccd", "coco_subset_128")
WITH_MASKS = ("pets_voc", "coco_subset_128")
ACROSS = {"calibration.coverage": "across-images"}
FLOOR = {**ACROSS, "calibration.min_recall": 0.95}

# What is trained; everything else is as in the paper's preset, but for a PCA so that all of it takes an hour and not ten.
# The scale of descriptors is 20 in all of them: what C = 1e-4 is to descriptors of length 200 is C = 1e-2 to these.
SQUARED = {"training.loss": "squared_hinge", "training.positive_weight": 50.0}
CLASS_PRIOR = {**SQUARED, "training.C": 1e-3, "training.prior": "class"}
RECIPES = {
    "paper": {"training.C": 1e-2},
    "squared hinge": {**SQUARED, "training.C": 1e-2},
    "class prior": CLASS_PRIOR,
    "class prior, moved boxes": {**CLASS_PRIOR, "detection.box_regression": True},
    "LDA": {"training.trainer": "lda"},
}
MORE_RULES = (
    Rule("joint sigmoid, across images", "joint-sigmoid", ACROSS),
    Rule("joint sigmoid, across images, recall 0.95", "joint-sigmoid", FLOOR),
)


def pooled(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(
        Rule(f"{rule.name}, mean of 5", rule.calibrator, {**rule.changes, "detection.pooling": 5}) for rule in rules
    )


RULES = {
    "paper": (*PAPER_RULES, *MORE_RULES),
    "class prior, moved boxes": (
        *(rule for rule in PAPER_RULES if rule.calibrator in ("none", "joint-sigmoid", "affine", "single-svm")),
        *pooled((*(rule for rule in PAPER_RULES if rule.calibrator in ("none", "joint-sigmoid", "affine")), MORE_RULES[0])),
    ),
    "other": (
        *(rule for rule in PAPER_RULES if rule.calibrator in ("none", "sigmoid", "joint", "joint-sigmoid", "affine", "single-svm")),
        *MORE_RULES,
        *pooled((*(rule for rule in PAPER_RULES if rule.calibrator in ("none", "sigmoid", "joint-sigmoid", "affine")), *MORE_RULES)),
    ),
}  # fmt: skip


def main() -> None:
    arguments = parse_arguments()
    known = read(arguments.resume)
    for name in arguments.sets:
        for split in range(arguments.splits):
            todo = [recipe for recipe in arguments.recipes if (name, split, recipe) not in known]
            if todo and not arguments.render:
                measure(name, split, todo, arguments)
    lines = [json.loads(line) for line in arguments.resume.read_text().splitlines()]
    command = f"python benchmarks/bench_detection.py --images {arguments.images} --classes {arguments.classes}"
    text = page(lines, arguments.sets, tuple(arguments.recipes), command)
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "detection.md").write_text(text)
    print(text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("data", nargs="?", type=Path, default=ROOT.parent / "shared" / "data", help="folder of datasets")
    add("--sets", nargs="+", default=SETS)
    add("--recipes", nargs="+", choices=RECIPES, default=tuple(RECIPES))
    add("--splits", type=int, default=3)
    add("--images", type=int, default=160, help="of each set at most, half of them for training (160)")
    add("--classes", type=int, default=6, help="of each set at most, those with the most objects (6)")
    add("--time-limit", type=float, default=4.0, help="seconds for each joint calibration (4)")
    add("--cache", type=Path, default=ROOT / "build" / "detection_cache")
    add("--resume", type=Path, default=ROOT / "build" / "detection.jsonl", help="file of what has been measured")
    add("--render", action="store_true", help="only lay out what has been measured")
    add("--output", type=Path, default=RESULTS, help="folder of the page")
    return parser.parse_args()


def read(path: Path) -> set[tuple[str, int, str]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return {(line["set"], line["split"], line["recipe"]) for line in lines}


def measure(name: str, split: int, recipes: list[str], arguments: argparse.Namespace) -> None:
    dataset = datasets.open_dataset(arguments.data / name)
    chosen = np.random.default_rng(0).permutation(len(dataset))[: arguments.images]
    classes = [
        c
        for c, _ in Counter(i.class_name for i in dataset.instances() if not i.is_crowd).most_common(arguments.classes)
    ]
    order = np.random.default_rng(split).permutation(chosen)
    halves = [part(dataset, order[: len(order) // 2]), part(dataset, order[len(order) // 2 :])]
    cache = DescriptorCache(arguments.cache)
    base = DetectorOptions.make("paper").changed(
        {
            "descriptor.n_components": PRESETS["default"]["descriptor.n_components"],
            "descriptor.mean_norm": 20.0,
            "training.max_images": 40,
            "calibration.time_limit": arguments.time_limit,
            "calibration.max_negatives": 20_000,
            "random_state": split,
        }
    )
    started = time.perf_counter()
    train = training_windows(halves[0], base, cache=cache)
    found = list(propose_windows(halves[1], base.windows, base.n_jobs, True, cache))
    test = describe_windows(halves[1], found, train.descriptor)
    print(
        f"{name}, split {split}: {len(train):,} and {len(test):,} windows, {time.perf_counter() - started:.0f} s",
        flush=True,
    )
    records = {record.image_id: record for record in halves[0]}
    for recipe in recipes:
        started = time.perf_counter()
        rows, transfers = [], []
        for class_name in classes:
            if not len(train.objects(class_name)[0]) or not len(test.objects(class_name)[0]):
                continue
            options = base.changed(RECIPES[recipe])
            rules = RULES.get(recipe, RULES["other"])
            trained, results = compare_rules(train, test, class_name, options, rules)
            rows += [row(result) for result in results]
            if name in WITH_MASKS:
                annotations = annotate_all(trained.instances, records)
                described = train.descriptors[train.objects(class_name)[0]]
                transfers += [
                    {"rule": result.rule, "class": class_name, **cell}
                    for result in results
                    if result.rule in TRANSFERRED
                    for cell in transfer_cells(
                        transfer_choices(test, trained.exemplars, described, annotations, result)
                    )
                ]
        seconds = time.perf_counter() - started
        print(f"  {recipe}: {seconds:.0f} s", flush=True)
        line = {"set": name, "split": split, "recipe": recipe, "seconds": seconds, "rows": rows, "transfer": transfers}
        with arguments.resume.open("a") as handle:
            handle.write(json.dumps(line) + "\n")


TRANSFERRED = (
    "EE-SVM joint calibration w/ sigmoid",
    "joint sigmoid, across images",
    "joint sigmoid, across images, mean of 5",
)


def part(dataset: Dataset, chosen: np.ndarray) -> Dataset:
    images = tuple(dataset[int(k)] for k in chosen)
    return Dataset(dataset.name, images, dataset.classes)


def row(result) -> dict[str, object]:
    return {
        "rule": result.rule,
        "class": result.class_name,
        "exemplars": result.n_exemplars,
        "used": result.n_used,
        "objects": result.n_objects,
        "recall": result.recall,
        "false_positives": result.false_positives,
        "window_ap": result.window_ap,
        "detection_ap": result.detection_ap,
        "winners": result.n_winners,
        "hits": len(result.hits),
        **({"search": dict(result.search)} if result.search else {}),
    }


def transfer_cells(quality) -> list[dict[str, object]]:
    return [
        {"choice": one.choice, "measure": one.measure, "n": one.n_detections, "mean": one.mean, "used": one.n_exemplars}
        for one in quality.rows
    ]


if __name__ == "__main__":
    main()
