"""What else might help the ensemble: `python benchmarks/bench_detection_trials.py DATA`.

Boxes moved by the exemplar that wins (the mean way from the training windows it won to their objects), by the class (the
`box_regression` of the detector) and then averaged with the boxes around them; other C, with and without calibration; and C
chosen by cross-validation over training images. Same halves as `bench_detection.py`, default training. Prints a table for
each trial; lines of `--resume` are kept as they are measured.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _common import ROOT
from bench_detection import SETS, part
from eesvm import boxes as geometry
from eesvm import datasets
from eesvm.descriptors import DescriptorCache
from eesvm.detector.box_regression import moved_by, regress_boxes, ways_between, windows_of_objects
from eesvm.detector.class_calibration import STORED_AS, score_rule
from eesvm.detector.class_training import TrainedClass, score_class, train_class
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_descriptor import training_windows
from eesvm.detector.training_table import TrainingWindows, describe_windows, propose_windows
from eesvm.experiments.tables.detections import Rule, _Calibrators, _TestWindows, compare_rules
from eesvm.metrics import evaluate_detections
from eesvm.structures import Detections

F64 = NDArray[np.float64]

RULE = Rule("ours", "joint-sigmoid")
COSTS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
SWEPT = (1e-3, 1e-5, 3e-5, 1e-4, 3e-4, 3e-3)  # the default first
_SHRINKAGE = 10.0  # windows of the class's mean way that each exemplar is given
_VOTE = 0.7  # IoU of boxes that are averaged


def main() -> None:
    arguments = parse_arguments()
    arguments.resume.parent.mkdir(parents=True, exist_ok=True)
    arguments.resume.touch()
    for name in arguments.sets:
        for split in range(arguments.splits):
            for line in measure(name, split, arguments):
                with arguments.resume.open("a") as handle:
                    handle.write(json.dumps(line) + "\n")
    lines = read(arguments.resume)
    for trial in dict.fromkeys(line["trial"] for line in lines):
        print(f"\n{table([line for line in lines if line['trial'] == trial])}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("data", nargs="?", type=Path, default=ROOT.parent / "shared" / "data", help="folder of datasets")
    add("--sets", nargs="+", default=SETS)
    add("--trials", nargs="+", choices=TRIALS, default=TRIALS)
    add("--splits", type=int, default=3)
    add("--images", type=int, default=80)
    add("--classes", type=int, default=3)
    add("--cache", type=Path, default=ROOT / "build" / "detection_cache")
    add("--resume", type=Path, default=ROOT / "build" / "detection_boxes_and_costs.jsonl")
    return parser.parse_args()


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def measure(name: str, split: int, arguments: argparse.Namespace) -> Iterator[dict[str, object]]:
    dataset = datasets.open_dataset(arguments.data / name)
    counts = Counter(i.class_name for i in dataset.instances() if not i.is_crowd)
    done = {(line["set"], line["split"], line["class"], line["trial"]) for line in read(arguments.resume)}
    classes = [class_name for class_name, _ in counts.most_common(arguments.classes)]
    todo = [(c, t) for t in arguments.trials for c in classes if (name, split, c, t) not in done]
    if not todo:
        return
    chosen = np.random.default_rng(0).permutation(len(dataset))[: arguments.images]
    order = np.random.default_rng(split).permutation(chosen)
    halves = [part(dataset, order[: len(order) // 2]), part(dataset, order[len(order) // 2 :])]
    cache = DescriptorCache(arguments.cache)
    options = DetectorOptions().changed(
        {
            "calibration.time_limit": 4.0,
            "calibration.max_negatives": 20_000,
            "detection.box_regression": False,
            "random_state": split,
        }
    )
    train = training_windows(halves[0], options, cache=cache)
    found = list(propose_windows(halves[1], options.windows, options.n_jobs, True, cache))
    test = describe_windows(halves[1], found, train.descriptor)
    for class_name, trial in todo:
        if not len(train.objects(class_name)[0]) or not len(test.objects(class_name)[0]):
            continue
        values = TRIALS[trial](train, test, class_name, options)
        yield {"set": name, "split": split, "class": class_name, "trial": trial, "detection_ap": values}
        print(name, split, class_name, {key: round(100 * value, 1) for key, value in values.items()}, flush=True)


def with_other_costs(
    train: TrainingWindows, test: TrainingWindows, class_name: str, options: DetectorOptions
) -> dict[str, float]:
    values = {}
    for cost in SWEPT:
        changed = options.changed({"training.C": cost, "detection.box_regression": True})
        for result in compare_rules(
            train, test, class_name, changed, [Rule("joint", "joint-sigmoid"), Rule("none", "none")]
        )[1]:
            values[f"C = {cost:g}, {result.rule}"] = result.detection_ap
    return values


def with_best_cost(
    train: TrainingWindows, test: TrainingWindows, class_name: str, options: DetectorOptions
) -> dict[str, float]:
    changed = options.changed({"training.C": best_cost(train, class_name, options)})
    return {
        name: compare_rules(train, test, class_name, own, [RULE])[1][0].detection_ap
        for name, own in {"ours": options, "C by cross-validation": changed}.items()
    }


def with_regression(
    train: TrainingWindows, test: TrainingWindows, class_name: str, options: DetectorOptions
) -> dict[str, float]:
    """Detection AP of boxes as they are and of moved ones, of the ensemble and of the single SVM."""
    trained = train_class(train, class_name, options.training, random_state=options.random_state)
    scores = score_class(train, trained, options.calibration, random_state=options.random_state)
    calibrator = _Calibrators(scores, options).of(RULE)
    n = len(trained.instances)
    how = score_rule(RULE.calibrator, {STORED_AS[RULE.calibrator]: calibrator}, n, options.detection.pooling)
    regressor = regress_boxes(train, class_name, options.random_state)
    windows = _TestWindows(test, class_name, trained.exemplars, trained.single, regressor=regressor)
    parts = zip(windows.starts[:-1], windows.starts[1:], strict=True)
    judged = [how(windows.raw[a:b, how.used], windows.boxes[a:b]) for a, b in parts]
    ours, winners = (np.concatenate([one[k] for one in judged]) for k in (0, 1))
    rows, targets = windows_of_objects(train, class_name)
    of_exemplar = means_by_winner(train, trained, rows, ways_between(train.boxes[rows], targets), how)
    by_exemplar = moved_by(windows.boxes, of_exemplar[winners])
    single = windows.single.astype(np.float64)
    return {
        "ours": judge(windows, ours, windows.boxes, options),
        "moved by the exemplar": judge(windows, ours, by_exemplar, options),
        "moved by the class": judge(windows, ours, windows.moved, options),
        "moved by the class, averaged": judge(windows, ours, windows.moved, options, _VOTE),
        "single SVM": judge(windows, single, windows.boxes, options),
        "single SVM, moved by the class": judge(windows, single, windows.moved, options),
    }


def means_by_winner(train: TrainingWindows, trained: TrainedClass, rows: NDArray[np.intp], ways: F64, how) -> F64:
    """(E, 4) the mean way of the windows of other images that each exemplar wins, drawn towards that of the class."""
    raw = train.descriptors[rows] @ trained.exemplars.coef_.T + trained.exemplars.intercept_
    images = train.image_ids[train.image[rows]]
    raw[images[:, None] == np.array([instance.image_id for instance in trained.instances])] = -np.inf
    winners = how(np.ascontiguousarray(np.maximum(raw, -1e6)[:, how.used], dtype=np.float32), train.boxes[rows])[1]
    sums = np.zeros((len(trained.instances), 4))
    np.add.at(sums, winners, ways)
    counts = np.bincount(winners, minlength=len(sums))[:, None]
    return (sums + _SHRINKAGE * ways.mean(axis=0)) / (counts + _SHRINKAGE)


def judge(
    windows: _TestWindows, scores: F64, boxes: F64, options: DetectorOptions, min_overlap: float | None = None
) -> float:
    """Detection AP of scored boxes, averaged with those that overlap them by `min_overlap`, by their scores."""
    found = []
    for k, record in enumerate(windows.test.records):
        rows = slice(windows.starts[k], windows.starts[k + 1])
        clipped, own = geometry.clip(boxes[rows], record.width, record.height), scores[rows]
        kept = geometry.nms(
            clipped, own, options.detection.nms, options.detection.overlap, options.detection.max_detections
        )
        ended = clipped[kept]
        if min_overlap is not None and len(kept):
            votes = np.where(geometry.iou(ended, clipped) >= min_overlap, np.maximum(own, 1e-9), 0.0)
            ended = votes @ clipped / votes.sum(axis=1, keepdims=True)
        names = np.full(len(kept), windows.class_name)
        found.append(Detections(record.image_id, ended, own[kept], names, np.full(len(kept), -1, np.int64)))
    report = evaluate_detections(windows.test.records, found, classes=[windows.class_name])
    return float(report[windows.class_name].average_precision)


def best_cost(train: TrainingWindows, class_name: str, options: DetectorOptions) -> float:
    """The C of the best mean detection AP when each half of the training images is searched with the other."""
    order = np.random.default_rng(options.random_state).permutation(len(train.records))
    halves = [train.of_images(np.sort(order[k::2]).tolist()) for k in (0, 1)]
    if not all(len(half.objects(class_name)[0]) for half in halves):
        return options.training.C
    found: defaultdict[float, list[float]] = defaultdict(list)
    for learn, look in (halves, halves[::-1]):
        for cost in COSTS:
            changed = options.changed({"training.C": cost})
            found[cost].append(compare_rules(learn, look, class_name, changed, [RULE])[1][0].detection_ap)
    return max(found, key=lambda cost: (np.mean(found[cost]), -cost))


TRIALS = {"boxes": with_regression, "C": with_other_costs, "C by cross-validation": with_best_cost}


def table(lines: list[dict[str, Any]]) -> str:
    """Means over classes and splits; differences to the first column are taken split by split."""
    values: defaultdict[tuple[str, int], list[dict[str, float]]] = defaultdict(list)
    for line in lines:
        values[line["set"], line["split"]].append(line["detection_ap"])
    names = list(lines[0]["detection_ap"])
    means = {key: np.array([np.mean([one[name] for one in found]) for name in names]) for key, found in values.items()}
    sets = list(dict.fromkeys(name for name, _ in means))
    rows = [f"| set | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    by_set = {name: np.array([mean for (of, _), mean in means.items() if of == name]) for name in sets}
    for name, found in by_set.items():
        rows.append(f"| {name} | " + " | ".join(f"{100 * value:.1f}" for value in found.mean(axis=0)) + " |")
    overall = np.array([found.mean(axis=0) for found in by_set.values()]).mean(axis=0)
    rows.append("| mean of the sets | " + " | ".join(f"{100 * value:.1f}" for value in overall) + " |")
    gains = np.array([mean - mean[0] for mean in means.values()])
    error = 1.96 * gains.std(axis=0, ddof=1) / np.sqrt(len(gains))
    cells = (f"{100 * gain:+.1f} ± {100 * half:.1f}" for gain, half in zip(gains.mean(axis=0), error, strict=True))
    rows.append("| minus the first, split by split | " + " | ".join(cells) + " |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
