"""Descriptors before and after fine-tuning: `python benchmarks/bench_finetune.py DATA`.

Writes benchmarks/results/finetune.md. DATA is a folder of datasets. Each is cut into a training and a test half, several
times. On the training half the network is fine-tuned, exemplars and the single SVM are trained and calibrated; the test
half judges all of it. What has been measured is kept in the file of `--resume`, line by line, so that an interrupted
benchmark goes on where it was. `--speed` measures how long a batch takes on this machine and adds that to the file.
Windows come from the cache, or from files SET.npz in the folder of `--windows` (`eesvm windows SET --ground-truth -o SET.npz`).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import RidgeClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from _common import RESULTS, ROOT
from _finetune_page import page
from _finetune_speed import measure_speed
from eesvm import boxes, datasets
from eesvm._support.threads import n_cores
from eesvm.descriptors import DescriptorCache, make_descriptor
from eesvm.descriptors.backbones import Backbone, stated_layer
from eesvm.detector.class_training import score_class, train_class
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_descriptor import fit_descriptor
from eesvm.detector.training_table import TrainingWindows, describe_windows, propose_windows
from eesvm.experiments.tables.detections import Rule, calibrators_on_demand, judge_rules
from eesvm.finetuning import PAPER_UNITS, FinetuneOptions, finetune
from eesvm.structures import Dataset, Windows
from eesvm.windows import read_windows

SETS = ("cards", "pets_voc", "raccoon")
FROZEN, TUNED, PAPER = "frozen", "fine-tuned", "fine-tuned, 4096-d layer"
VARIANTS = {FROZEN: None, TUNED: {}, PAPER: {"hidden": PAPER_UNITS}}
MODES = ("pooled", "crop")
ACROSS = {"calibration.coverage": "across-images"}
# Two groups, because the recall that a group is judged at is that of its own joint thresholds.
RULES = (
    (Rule("joint", "joint"), Rule("independent sigmoid", "sigmoid"), Rule("joint + sigmoid", "joint-sigmoid"),
     Rule("single SVM", "single-svm")),
    (Rule("joint, across images", "joint", ACROSS), Rule("joint + sigmoid, across images", "joint-sigmoid", ACROSS)),
)  # fmt: skip
# As in the paper, but for a PCA that makes all of it affordable: see bench_detection.
CHANGES = {
    "descriptor.n_components": 256,
    "descriptor.mean_norm": 20.0,
    "training.C": 1e-2,
    "training.max_images": 40,
    "calibration.max_negatives": 20_000,
}


def main() -> None:
    arguments = parse_arguments()
    arguments.resume.parent.mkdir(parents=True, exist_ok=True)
    arguments.resume.touch()
    if not arguments.render:
        if arguments.speed:
            keep(arguments.resume, {"speed": measure_speed(arguments.device)})
        else:
            measure(arguments)
    lines = [json.loads(line) for line in arguments.resume.read_text().splitlines()]
    text = page(lines, "python benchmarks/bench_finetune.py", arguments.note)
    if arguments.output:
        (arguments.output / "finetune.md").write_text(text)
    print(text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("data", nargs="?", type=Path, default=ROOT.parent / "shared" / "data", help="folder of datasets")
    add("--sets", nargs="+", default=SETS)
    add("--variants", nargs="+", choices=VARIANTS, default=(FROZEN, TUNED))
    add("--modes", nargs="+", choices=MODES, default=("pooled",), help="crop costs a pass per window")
    add("--crops", type=int, default=500, help="windows of an image at most in crop mode (500)")
    add("--splits", type=int, default=3)
    add("--first-split", type=int, default=0)
    add("--images", type=int, default=240, help="of each set at most, half of them for training (240)")
    add("--classes", type=int, default=3, help="of each set that are judged at most, those with the most objects (3)")
    add("--preset", default="default", help="of fine-tuning")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="options of fine-tuning, values as in JSON")
    add("--time-limit", type=float, default=4.0, help="seconds for each joint calibration (4)")
    add("--device", default="auto")
    add("--jobs", type=int, default=1, help="processes that judge while the next network is trained (1: none)")
    add("--windows", type=Path, help="folder of files with windows")
    add("--cache", type=Path, default=ROOT / "build" / "detection_cache")
    add("--networks", type=Path, default=ROOT / "build" / "finetuned", help="folder for the networks")
    add("--resume", type=Path, default=ROOT / "build" / "finetune.jsonl", help="file of what has been measured")
    add("--speed", action="store_true", help="measure the time of a batch, and nothing else")
    add("--render", action="store_true", help="only lay out what has been measured")
    add("--note", default="", help="a paragraph for the head of the page")
    add("--output", type=Path, default=RESULTS, help="folder of the page")
    return parser.parse_args()


def measure(arguments: argparse.Namespace) -> None:
    """Everything that the file does not have yet."""
    known = {tuple(line[k] for k in ("set", "split", "variant", "mode")) for line in stored(arguments.resume)}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max(1, arguments.jobs), context) as pool, tempfile.TemporaryDirectory() as folder:
        waiting: list[Future[dict[str, Any]]] = []
        for split in range(arguments.first_split, arguments.first_split + arguments.splits):
            for name in arguments.sets:
                for variant in arguments.variants:
                    modes = [m for m in arguments.modes if (name, split, variant, m) not in known]
                    modes = [m for m in modes if variant != PAPER or m == "crop"]
                    if modes:
                        jobs = prepare(name, split, variant, modes, arguments, Path(folder))
                        waiting += [pool.submit(judge, job) for job in jobs]
                waiting = collect(waiting, arguments.resume, block=arguments.jobs == 1)
        collect(waiting, arguments.resume, block=True)


def stored(path: Path) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, path.read_text().splitlines()) if "set" in line]


def keep(path: Path, line: dict[str, Any]) -> None:
    with path.open("a") as handle:
        handle.write(json.dumps(line) + "\n")


def collect(waiting: list[Future[dict[str, Any]]], path: Path, block: bool) -> list[Future[dict[str, Any]]]:
    """Keep what is done; the rest. One that failed does not cost the others what they have found."""
    failures = []
    for future in waiting:
        if not block and not future.done():
            continue
        if (failure := future.exception()) is not None:
            failures.append(failure)
            continue
        line = future.result()
        keep(path, line)
        print(
            f"  judged {line['set']} {line['split']} {line['variant']} {line['mode']}: {line['seconds']:.0f} s",
            flush=True,
        )
    if failures:
        raise failures[0]
    return [] if block else [future for future in waiting if not future.done()]


def prepare(
    name: str, split: int, variant: str, modes: Sequence[str], arguments: argparse.Namespace, folder: Path
) -> list[dict[str, Any]]:
    """Fine-tune where that is wanted, describe both halves, and write down what a judge needs."""
    train, test = halves(arguments.data / name, split, arguments.images)
    windows = windows_of(name, [*train, *test], arguments)
    options = detector_options(split, arguments)
    network = "lite0"
    if VARIANTS[variant] is not None:
        network, facts = tune(name, split, variant, train, windows, arguments)
        keep(arguments.resume, {"training": {"set": name, "split": split, "variant": variant, **facts}})
    jobs = []
    for mode in modes:
        started = time.perf_counter()
        plain = descriptor_of(network, mode, arguments.device)
        limit = arguments.crops if mode == "crop" else None
        own = [[beginning(w, limit) for w in windows if w.image_id in ids(part)] for part in (train, test)]
        fitted = fit_descriptor(train, own[0], options, plain=plain)
        tables = [describe_windows(part, found, fitted) for part, found in zip((train, test), own, strict=True)]
        files = [str(folder / f"{name}-{split}-{variant}-{mode}-{k}") for k in range(2)]
        for table, file in zip(tables, files, strict=True):
            np.savez(file, ids=table.image_ids, starts=table.starts, boxes=table.boxes, instance=table.instance,
                     descriptors=table.descriptors)  # fmt: skip
        share = probe(plain, train, test, windows)
        seconds = time.perf_counter() - started
        print(f"{name} {split} {variant} {mode}: probe {100 * share:.1f} %, described in {seconds:.0f} s", flush=True)
        line = {"set": name, "split": split, "variant": variant, "mode": mode, "probe": share}
        jobs.append({"line": line, "files": files, "data": str(arguments.data), "images": arguments.images,
                     "classes": judged_classes(arguments.data / name, arguments.classes), "options": options})  # fmt: skip
    return jobs


def judge(job: dict[str, Any]) -> dict[str, Any]:
    """Train and calibrate on one half, judge on the other; runs in a process of its own."""
    started = time.perf_counter()
    line = job["line"]
    parts = halves(Path(job["data"]) / line["set"], line["split"], job["images"])
    train, test = (table_of(part, file) for part, file in zip(parts, job["files"], strict=True))
    rows = []
    for class_name in job["classes"]:
        if len(train.objects(class_name)[0]) and len(test.objects(class_name)[0]):
            rows += judge_class(train, test, class_name, job["options"])
    for file in job["files"]:
        Path(f"{file}.npz").unlink()
    return {**line, "rows": rows, "seconds": time.perf_counter() - started}


def judge_class(
    train: TrainingWindows, test: TrainingWindows, class_name: str, options: DetectorOptions
) -> list[dict[str, Any]]:
    """What `compare_rules` does, with a recall for each group of rules."""
    trained = train_class(train, class_name, options.training, random_state=options.random_state)
    scores = score_class(train, trained, options.calibration, random_state=options.random_state)
    calibrator_of = calibrators_on_demand(scores, options)
    return [
        row(result)
        for rules in RULES
        for result in judge_rules(test, class_name, trained.exemplars, trained.single, calibrator_of, options, rules)
    ]


def table_of(part: Dataset, file: str) -> TrainingWindows:
    records = {record.image_id: record for record in part}
    with np.load(f"{file}.npz") as found:
        columns = [found[name] for name in ("starts", "boxes", "instance", "descriptors")]
        return TrainingWindows(tuple(records[str(k)] for k in found["ids"]), *columns, descriptor=None)


def row(result: Any) -> dict[str, Any]:
    return {
        "rule": result.rule,
        "class": result.class_name,
        "exemplars": result.n_exemplars,
        "objects": result.n_objects,
        "recall": result.recall,
        "false_positives": result.false_positives,
        "window_ap": result.window_ap,
        "detection_ap": result.detection_ap,
        "negatives": result.n_negatives,
        "search": dict(result.search),
    }


def halves(path: Path, split: int, n_images: int) -> tuple[Dataset, Dataset]:
    dataset = datasets.open_dataset(path)
    chosen = np.random.default_rng(0).permutation(len(dataset))[:n_images]
    order = np.random.default_rng(split).permutation(chosen)
    parts = (order[: len(order) // 2], order[len(order) // 2 :])
    first, second = (Dataset(dataset.name, tuple(dataset[int(k)] for k in part), dataset.classes) for part in parts)
    return first, second


def ids(part: Dataset) -> set[str]:
    return {record.image_id for record in part}


def judged_classes(path: Path, n: int) -> list[str]:
    counts = Counter(i.class_name for i in datasets.open_dataset(path).instances() if not i.is_crowd)
    return [name for name, _ in counts.most_common(n)]


def windows_of(name: str, records: Sequence[Any], arguments: argparse.Namespace) -> list[Windows]:
    if arguments.windows:
        wanted = {record.image_id for record in records}
        return [item for item in read_windows(arguments.windows / f"{name}.npz") if item.image_id in wanted]
    return list(propose_windows(records, DetectorOptions().windows, None, True, DescriptorCache(arguments.cache)))


def beginning(found: Windows, n: int | None) -> Windows:
    """The objects and the first n proposals, of which every beginning is a good choice."""
    return found[(found.instance >= 0) | (np.cumsum(found.instance < 0) <= (n or len(found)))]


def detector_options(split: int, arguments: argparse.Namespace) -> DetectorOptions:
    n_jobs = None if arguments.jobs == 1 else max(1, n_cores() // (arguments.jobs + 1))
    changes = CHANGES | {"calibration.time_limit": arguments.time_limit, "random_state": split, "n_jobs": n_jobs}
    return DetectorOptions.make("paper").changed(changes)


def tune(
    name: str, split: int, variant: str, train: Dataset, windows: list[Windows], arguments: argparse.Namespace
) -> tuple[str, dict[str, Any]]:
    """The path of the network, and what its card says of the training."""
    given = dict(text.split("=", 1) for text in arguments.set)
    changes = {key: json.loads(value) for key, value in given.items()} | VARIANTS[variant] | {"min_objects": 1}
    options = FinetuneOptions.make(arguments.preset, {**changes, "random_state": split})
    arguments.networks.mkdir(parents=True, exist_ok=True)
    path = arguments.networks / f"{name}-{split}-{variant.replace(', ', '-').replace(' ', '-')}.onnx"
    started = time.perf_counter()
    card = finetune(train, path, options, windows=windows, device=arguments.device, overwrite=True).card
    best = card["history"][card["best_epoch"]]
    print(
        f"{name} {split} {variant}: epoch {card['best_epoch']} of {len(card['history']) - 1}, held-out loss "
        f"{best['held_out_loss']:.3f}, AP {100 * best['held_out_ap']:.1f}, {time.perf_counter() - started:.0f} s", flush=True,
    )  # fmt: skip
    kept = ("history", "best_epoch", "n_batches", "seconds", "runtime", "options", "stopped")
    return str(path), {key: card[key] for key in kept} | {"n_train": card["inputs"]["n_train"]}


def descriptor_of(network: str, mode: str, device: str) -> Any:
    if mode == "pooled" or device == "cpu" or not has_gpu():
        return make_descriptor(mode=mode, backbone=network)
    from _torch_crops import TorchCrops

    layer = "features" if network == "lite0" else stated_layer(network, "crop")
    return TorchCrops(Backbone(network, [layer]))


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def probe(plain: Any, train: Dataset, test: Dataset, windows: list[Windows]) -> float:
    """Share of test boxes, objects and as many windows of background, whose class a ridge classifier names."""
    model = make_pipeline(StandardScaler(), RidgeClassifierCV(np.logspace(1, 6, 6)))
    found = {item.image_id: item for item in windows}
    model.fit(*described(plain, train, found))
    return float(model.score(*described(plain, test, found)))


def described(plain: Any, part: Dataset, windows: dict[str, Windows]) -> tuple[np.ndarray, list[str]]:
    rows, labels = [], []
    for record in part:
        truth = np.array([i.box for i in record.instances], dtype=np.float64).reshape(-1, 4)
        others = windows[record.image_id].boxes[windows[record.image_id].instance < 0]
        others = others[boxes.iou(others, truth).max(axis=1, initial=0.0) < 0.3]
        drawn = np.random.default_rng(len(others)).permutation(len(others))[: max(1, len(truth))]
        rows.append(plain.describe(record.read(), np.concatenate([truth, others[drawn]])))
        labels += [i.class_name for i in record.instances] + ["background"] * len(drawn)
    return np.concatenate(rows), labels


if __name__ == "__main__":
    main()
