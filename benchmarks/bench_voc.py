"""The paper's experiment on Pascal VOC 2007: `python benchmarks/bench_voc.py DATA`.

DATA is a folder in VOC's layout with the splits train and val. Every setting says which images tune the network, which
give exemplars and calibration, and which judge; photographs never change roles within one. Each stage can be run alone
(`--stages`), keeps what it makes in the folder of `--work`, and is resumed from there:

    prepare     windows, networks and descriptors; a GPU makes crops quick
    judge       every class of every setting with every rule
    mechanism   what joint calibration owes to the number of exemplars, of negatives, and to the recall floor
    page        docs/results/voc2007.md
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from _common import ROOT
from _voc_page import page
from bench_finetune import beginning, descriptor_of
from eesvm.datasets import open_dataset, select
from eesvm.descriptors import DescriptorCache
from eesvm.detector.class_training import score_class, train_class
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_descriptor import fit_descriptor
from eesvm.detector.training_table import TrainingWindows, describe_windows, propose_windows
from eesvm.experiments.tables.detections import Rule, calibrators_on_demand, judge_rules
from eesvm.finetuning import PAPER_UNITS, FinetuneOptions, finetune
from eesvm.structures import Dataset, Windows

ACROSS = {"calibration.coverage": "across-images"}
FLOOR = {**ACROSS, "calibration.min_recall": 0.95}


@dataclass(frozen=True)
class Setting:
    """Which images have which role, and how windows are described."""

    name: str
    network: str  # "frozen", "tuned" or "4096-d", the tuned ones on the images of `train`
    mode: str  # "pooled" or "crop"
    exemplars: str  # "train", or "val, first half"
    judges: str  # "val", or "val, second half"


SETTINGS = (
    Setting("frozen pooled", "frozen", "pooled", "train", "val"),
    Setting("frozen crops", "frozen", "crop", "train", "val"),
    Setting("tuned crops, the paper's way", "tuned", "crop", "train", "val"),
    Setting("tuned crops, roles apart", "tuned", "crop", "val, first half", "val, second half"),
    Setting("4096-d layer, the paper's way", "4096-d", "crop", "train", "val"),
    Setting("4096-d layer, roles apart", "4096-d", "crop", "val, first half", "val, second half"),
)
NETWORKS: dict[str, dict[str, Any]] = {"tuned": {}, "4096-d": {"hidden": PAPER_UNITS}}

RECIPES: dict[str, dict[str, Any]] = {
    "paper": {"training.C": 1e-2, "detection.box_regression": False},
    "default": {
        "training.loss": "squared_hinge",
        "training.C": 1e-3,
        "training.positive_weight": 50.0,
        "training.prior": "class",
    },
}
SINGLE = Rule("single SVM", "single-svm")
MAXIMUM = (
    Rule("joint", "joint"),  # the first joint rule says at which recall false positives are counted
    Rule("none", "none"),
    Rule("sigmoid", "sigmoid"),
    Rule("affine", "affine"),
    Rule("joint + sigmoid", "joint-sigmoid"),
    Rule("joint + sigmoid, across images", "joint-sigmoid", ACROSS),
    Rule("joint + sigmoid, across images, recall 0.95", "joint-sigmoid", FLOOR),
)
SHRUNK = tuple(
    Rule(f"{rule.name}, shrunk", rule.calibrator, {**rule.changes, "calibration.shrink": "auto"})
    for rule in (MAXIMUM[5], MAXIMUM[2], MAXIMUM[3])
)
ACROSS_ONLY = (Rule("joint, across images", "joint", ACROSS),)


def pooled(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    return tuple(Rule(f"{r.name}, mean of 5", r.calibrator, {**r.changes, "detection.pooling": 5}) for r in rules)


RULES = (*MAXIMUM, *pooled((*MAXIMUM[1:], *SHRUNK)), SINGLE)
MECHANISM = (MAXIMUM[0], Rule("sigmoid", "sigmoid"), Rule("joint + sigmoid", "joint-sigmoid"), Rule("none", "none"))


def main() -> None:
    arguments = parse_arguments()
    arguments.work.mkdir(parents=True, exist_ok=True)
    for stage in arguments.stages:
        {"prepare": prepare, "judge": judge, "mechanism": mechanism, "page": write_page}[stage](arguments)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("data", nargs="?", type=Path, default=ROOT.parent / "shared" / "data" / "voc2007")
    stages = ("prepare", "judge", "mechanism", "page")
    add("--stages", nargs="+", choices=stages, default=stages)
    add("--settings", nargs="+", choices=[s.name for s in SETTINGS], default=[s.name for s in SETTINGS])
    add("--images", type=int, help="of each split at most (all)")
    add("--classes", nargs="+", help="to judge (all)")
    add("--crops", type=int, default=500, help="windows of an image at most in crop mode (500)")
    add("--negatives", type=int, default=40_000, help="calibration negatives (40,000)")
    add("--time-limit", type=float, default=10.0, help="seconds for each joint calibration (10)")
    add("--epochs", type=int, default=8)
    add("--batches", type=int, default=250, help="of an epoch of fine-tuning (250)")
    add("--processes", type=int, default=2, help="classes judged at a time (2)")
    add("--seconds", type=float, default=float("inf"), help="begin no new class after this long")
    add("--device", default="auto")
    add("--note", default="", help="a sentence for the head of the page: machine, what was left out")
    add("--work", type=Path, default=ROOT / "build" / "voc")
    add("--output", type=Path, default=ROOT / "docs" / "results" / "voc2007.md")
    return parser.parse_args()


def options_of(recipe: str, arguments: argparse.Namespace, **changes: Any) -> DetectorOptions:
    common = {
        "descriptor.n_components": 256,
        "descriptor.mean_norm": 20.0,
        "training.max_images": 200,
        "calibration.max_negatives": arguments.negatives,
        "calibration.time_limit": arguments.time_limit,
        "calibration.node_limit": None,
        "n_jobs": 1,
    }
    return DetectorOptions.make("paper").changed({**common, **RECIPES[recipe], **changes})


# Preparing


def images_of(role: str, arguments: argparse.Namespace) -> Dataset:
    """The images of a role; halves of a split are its even and odd images in a fixed random order."""
    split, _, half = role.partition(", ")
    dataset = select(open_dataset(arguments.data), split=split)
    order = np.random.default_rng(0).permutation(len(dataset))[: arguments.images]
    if half:
        order = order[("first half", "second half").index(half) :: 2]
    return Dataset(dataset.name, tuple(dataset[int(k)] for k in np.sort(order)), dataset.classes)


def prepare(arguments: argparse.Namespace) -> None:
    """Windows of all images, the networks, and the table of each role in each setting."""
    cache = DescriptorCache(arguments.work / "cache")
    windows: dict[str, list[Windows]] = {}
    for split in ("train", "val"):
        with clock(arguments, f"windows of {split}"):
            found = images_of(split, arguments)
            windows[split] = list(propose_windows(found, DetectorOptions().windows, None, True, cache))
    for setting in wanted(arguments):
        network = network_of(setting.network, windows["train"], arguments)
        train, test = (table_folder(setting, role, arguments) for role in (setting.exemplars, setting.judges))
        if (train / "ids.npy").exists() and (test / "ids.npy").exists():
            continue
        with clock(arguments, f"descriptors of {setting.network} {setting.mode}, {setting.exemplars}"):
            plain = descriptor_of(network, setting.mode, arguments.device)
            limit = arguments.crops if setting.mode == "crop" else None
            parts = [images_of(role, arguments) for role in (setting.exemplars, setting.judges)]
            fitted = None
            for folder, part in zip((train, test), parts, strict=True):
                ids = {record.image_id for record in part}
                chosen = [beginning(w, limit) for one in windows.values() for w in one if w.image_id in ids]
                if fitted is None:
                    fitted = fit_descriptor(part, chosen, options_of("paper", arguments), plain=plain)
                write_table(folder, describe_windows(part, chosen, fitted))


def wanted(arguments: argparse.Namespace) -> list[Setting]:
    return [setting for setting in SETTINGS if setting.name in arguments.settings]


def network_of(name: str, windows: Sequence[Windows], arguments: argparse.Namespace) -> str:
    """The path of a network, tuned on the images of `train` where it is not the stock one."""
    if name == "frozen":
        return "lite0"
    path = arguments.work / f"{name}.onnx"
    if not path.exists():
        changes = {
            "min_objects": 1,
            "epochs": arguments.epochs,
            "batches_per_epoch": arguments.batches,
            **NETWORKS[name],
        }
        with clock(arguments, f"network {name}"):
            options = FinetuneOptions.make(changes=changes)
            card = finetune(images_of("train", arguments), path, options, windows=windows, device=arguments.device).card
        best = card["history"][card["best_epoch"]]
        note(arguments, {"network": name, "epoch": card["best_epoch"], "held_out_ap": best["held_out_ap"]})
    return str(path)


def table_folder(setting: Setting, role: str, arguments: argparse.Namespace) -> Path:
    return arguments.work / "tables" / f"{setting.name} - {role}".replace(",", "").replace(" ", "_")


def write_table(folder: Path, table: TrainingWindows) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("starts", "boxes", "instance", "descriptors"):
        np.save(folder / f"{name}.npy", getattr(table, name))
    np.save(folder / "ids.npy", table.image_ids)  # the last one: with it the table is whole


def read_table(setting: Setting, role: str, arguments: argparse.Namespace) -> TrainingWindows:
    folder = table_folder(setting, role, arguments)
    records = {record.image_id: record for record in images_of(role, arguments)}
    kept = tuple(records[str(k)] for k in np.load(folder / "ids.npy"))
    arrays = [np.load(folder / f"{name}.npy") for name in ("starts", "boxes", "instance")]
    descriptors = np.load(folder / "descriptors.npy", mmap_mode="r")  # shared by all processes
    return TrainingWindows(kept, *arrays, descriptors, descriptor=None)  # type: ignore[arg-type]


# Judging


def judge(arguments: argparse.Namespace) -> None:
    """Every class of every setting that is not judged yet; large ones first."""
    work = [
        {"setting": setting, "recipe": recipe, "class": name, "kind": "judge"}
        for setting in wanted(arguments)
        for name in classes_of(arguments)
        for recipe in RECIPES
    ]
    run_all(work, arguments)


def mechanism(arguments: argparse.Namespace) -> None:
    """One thing changed at a time, where roles are apart and where they are not."""
    everything = {
        "exemplars": (25, 50, 100, 200),
        "negatives": (5_000, 20_000, 80_000, None),
        "floor": (0.9, 0.95, 0.98),
    }
    settings = [setting for setting in wanted(arguments) if setting.network == "tuned"]
    work = [
        {"setting": setting, "recipe": "paper", "class": name, "kind": kind, "value": value}
        for setting in settings
        for kind, values in everything.items()
        for value in values
        for name in classes_of(arguments)
        if name != "person"  # as large as all others together
    ]
    run_all(work, arguments)


def classes_of(arguments: argparse.Namespace) -> list[str]:
    """Those with the most objects first, so that no process is left alone with the largest."""
    dataset = images_of("train", arguments)
    names = [i.class_name for i in dataset.instances()]
    chosen = arguments.classes or dataset.classes
    return sorted(chosen, key=lambda name: -names.count(name))


def run_all(work: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    known = {line["key"] for line in lines_of(arguments) if "key" in line}
    todo = [item for item in work if key_of(item) not in known]
    began = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.processes, context) as pool:
        waiting = {pool.submit(judge_class, item, arguments, began + arguments.seconds): item for item in todo}
        for done in as_completed(waiting):
            line = done.result()
            if line is not None:
                note(arguments, line)
    print(f"{len(todo)} classes, {time.perf_counter() - began:.0f} s", flush=True)


def key_of(item: dict[str, Any]) -> str:
    return " | ".join(str(v.name if isinstance(v, Setting) else v) for v in item.values())


def judge_class(item: dict[str, Any], arguments: argparse.Namespace, deadline: float) -> dict[str, Any] | None:
    """One class, in a process of its own; None where time is up."""
    if time.perf_counter() > deadline:
        return None
    began, setting, name = time.perf_counter(), item["setting"], item["class"]
    train, test = (read_table(setting, role, arguments) for role in (setting.exemplars, setting.judges))
    if not len(train.objects(name)[0]) or not len(test.objects(name)[0]):
        return {"key": key_of(item), "skipped": "no objects"}
    kind, value = item["kind"], item.get("value")
    changes: dict[str, Any] = {}
    if kind == "negatives":
        changes["calibration.max_negatives"] = value
    elif kind == "floor":
        changes["calibration.min_recall"] = value
    options = options_of(item["recipe"], arguments, **changes)
    if kind == "exemplars":
        train = with_objects(train, name, int(value))
    trained = train_class(train, name, options.training)
    scores = score_class(train, trained, options.changed({"calibration.shrink": "auto"}).calibration)
    calibrator_of = calibrators_on_demand(scores, options)
    groups: tuple[Sequence[Rule], ...] = (RULES, ACROSS_ONLY) if kind == "judge" else (MECHANISM,)
    rows = [
        {
            "rule": one.rule, "ap": one.detection_ap, "window_ap": one.window_ap, "recall": one.recall,
            "false_positives": one.false_positives, "search": dict(one.search),
        }
        for rules in groups
        for one in judge_rules(test, name, trained.exemplars, trained.single, calibrator_of, options, rules)
    ]  # fmt: skip
    facts = {"exemplars": len(trained.instances), "positives": scores.table.n_positives, "rows": rows}
    return {
        "key": key_of(item), "setting": setting.name, "recipe": item["recipe"], "class": name, "kind": kind,
        "value": value, **facts, "seconds": time.perf_counter() - began,
    }  # fmt: skip


def with_objects(table: TrainingWindows, class_name: str, n: int) -> TrainingWindows:
    """The table with `n` objects of a class as possible exemplars; the windows of all stay positives."""
    rows, _ = table.objects(class_name)
    dropped = np.random.default_rng(0).permutation(rows)[n:]
    instance = table.instance.copy()
    instance[dropped] = -1
    return TrainingWindows(
        table.records, table.starts, table.boxes, instance, table.descriptors, descriptor=table.descriptor
    )


# Keeping


class clock:
    """Notes how long something took."""

    def __init__(self, arguments: argparse.Namespace, what: str) -> None:
        self.arguments, self.what = arguments, what

    def __enter__(self) -> None:
        self.began = time.perf_counter()

    def __exit__(self, *failure: object) -> None:
        if failure[0] is None:
            seconds = time.perf_counter() - self.began
            print(f"{self.what}: {seconds:.0f} s", flush=True)
            note(self.arguments, {"stage": self.what, "seconds": seconds})


def note(arguments: argparse.Namespace, line: dict[str, Any]) -> None:
    with (arguments.work / "results.jsonl").open("a") as handle:
        handle.write(json.dumps(line) + "\n")


def lines_of(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    file = arguments.work / "results.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def write_page(arguments: argparse.Namespace) -> None:
    text = page(lines_of(arguments), wanted(arguments), arguments.note)
    arguments.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
