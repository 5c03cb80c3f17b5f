"""What other windows do to a user's day: `python benchmarks/bench_end_to_end.py`.

Writes benchmarks/results/end_to_end.md. The default preset twice, on windows of our own selective search and of OpenCV's
`fast`, everything else the same. Detection: each of five sets is cut into a training and a test half, several times;
average precision by VOC 2010, paired. Time: `eesvm train` on some playing cards of the train split and `eesvm detect` on
the test split as a user runs them, each from an empty cache. What has been measured is kept in the file of `--resume`, line by line.
Without OpenCV's contrib modules only windows that are in the cache already can be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from _common import RESULTS, ROOT, machine, markdown
from eesvm.datasets import open_dataset
from eesvm.datasets.writers import write_voc
from eesvm.descriptors import DescriptorCache
from eesvm.detector import ExemplarDetector
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_table import propose_windows
from eesvm.metrics import evaluate_detections
from eesvm.structures import Dataset
from eesvm.windows import window_recall

SETS = ("cards", "pets_voc", "raccoon", "bccd", "coco_subset_128")
OURS, OPENCV = "selective_search", "opencv"
WAYS: dict[str, dict[str, Any]] = {
    OURS: {},
    OPENCV: {"windows.method": "opencv", "windows.mode": "fast"},
}
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # times the standard error of so many splits


def main() -> None:
    arguments = parse_arguments()
    arguments.resume.parent.mkdir(parents=True, exist_ok=True)
    arguments.resume.touch()
    if arguments.windows_only:
        propose_all(arguments)
        return
    if not arguments.render:
        if not arguments.only_time:
            measure_detection(arguments)
        if arguments.time or arguments.only_time:
            measure_time(arguments)
    text = page([json.loads(line) for line in arguments.resume.read_text().splitlines()], arguments)
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "end_to_end.md").write_text(text)
    print(text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("data", nargs="?", type=Path, default=ROOT.parent / "shared" / "data", help="folder of datasets")
    add("--sets", nargs="+", default=SETS)
    add("--splits", type=int, default=3)
    add("--images", type=int, default=120, help="of each set at most, half of them for training (120)")
    add("--classes", type=int, default=4, help="of each set at most, those with the most objects (4)")
    add("--processes", type=int, default=1, help="trainings at a time, each with one thread (1)")
    add("--cache", type=Path, default=ROOT / "build" / "end_to_end_cache")
    add("--resume", type=Path, default=ROOT / "build" / "end_to_end.jsonl", help="file of what has been measured")
    add("--windows-only", action="store_true", help="only propose windows, into the cache")
    add("--time", action="store_true", help="also time the two commands; the machine must be quiet")
    add("--only-time", action="store_true", help="time the two commands and nothing else")
    add("--train-images", type=int, default=100, help="cards that `eesvm train` is timed on (100)")
    add("--render", action="store_true", help="only lay out what has been measured")
    add("--output", type=Path, default=RESULTS, help="folder of the page")
    return parser.parse_args()


# Detection


def options_of(way: str, split: int) -> DetectorOptions:
    return DetectorOptions().changed({**WAYS[way], "random_state": split, "n_jobs": 1})


def chosen_images(name: str, arguments: argparse.Namespace) -> tuple[Dataset, np.ndarray, list[str]]:
    dataset = open_dataset(arguments.data / name)
    chosen = np.random.default_rng(0).permutation(len(dataset))[: arguments.images]
    counts = Counter(i.class_name for i in dataset.instances() if not i.is_crowd)
    return dataset, chosen, [name for name, _ in counts.most_common(arguments.classes)]


def propose_all(arguments: argparse.Namespace) -> None:
    """Windows of all images both ways, as training and detection will ask for them."""
    for name in arguments.sets:
        dataset, chosen, _ = chosen_images(name, arguments)
        for way in WAYS:
            options, started = options_of(way, 0), time.perf_counter()
            cache = DescriptorCache(arguments.cache)
            for _ in propose_windows(part(dataset, chosen), options.windows, 1, cache=cache):
                pass
            print(f"{name}, {way}: {len(chosen)} images, {time.perf_counter() - started:.0f} s", flush=True)


def measure_detection(arguments: argparse.Namespace) -> None:
    known = {
        (line["set"], line["split"], line["way"])
        for line in map(json.loads, arguments.resume.read_text().splitlines())
        if "set" in line
    }
    work = [
        (name, split, way)
        for name in arguments.sets
        for split in range(arguments.splits)
        for way in WAYS
        if (name, split, way) not in known
    ]
    with ProcessPoolExecutor(arguments.processes) as pool, arguments.resume.open("a") as handle:
        for line in pool.map(measure, work, [arguments] * len(work)):
            handle.write(json.dumps(line) + "\n")
            handle.flush()
            print(f"{line['set']}, split {line['split']}, {line['way']}: AP {mean(line['ap']):.1f} %", flush=True)


def measure(item: tuple[str, int, str], arguments: argparse.Namespace) -> dict[str, Any]:
    """One training on a half, one detection in the other."""
    name, split, way = item
    dataset, chosen, classes = chosen_images(name, arguments)
    order = np.random.default_rng(split).permutation(chosen)
    train, test = part(dataset, order[: len(order) // 2]), part(dataset, order[len(order) // 2 :])
    objects = {c: [sum(i.class_name == c and not i.is_difficult for i in half.instances()) for half in (train, test)]
               for c in classes}  # fmt: skip
    classes = [c for c in classes if min(objects[c])]
    options, cache = options_of(way, split), DescriptorCache(arguments.cache)
    started = time.process_time()
    detector = ExemplarDetector(options).fit(train, classes, cache=cache)
    found = detector.predict(test, cache=cache)
    report = evaluate_detections(test, found, protocol="voc10", classes=classes)
    recall = window_recall(test, list(propose_windows(test, options.windows, 1, cache=cache)), thresholds=(0.5, 0.7))
    return {
        "set": name, "split": split, "way": way, "machine": machine(), "seconds": time.process_time() - started,
        "images": len(chosen), "exemplars": sum(model.n_exemplars for model in detector.models_),
        "ap": {one.class_name: 100 * one.average_precision for one in report.classes},
        "recall": 100 * recall.total.recall[0],
    }  # fmt: skip


def part(dataset: Dataset, chosen: np.ndarray) -> Dataset:
    return Dataset(dataset.name, tuple(dataset[int(k)] for k in chosen), dataset.classes)


def mean(values: dict[str, float]) -> float:
    return float(np.mean(list(values.values())))


# Time


def measure_time(arguments: argparse.Namespace) -> None:
    """`eesvm train` on cards of the train split and `eesvm detect` on the test split, from an empty cache, both ways."""
    cards = arguments.data / "cards"
    with tempfile.TemporaryDirectory() as folder:
        train = open_dataset(cards, split="train")
        chosen = np.random.default_rng(0).permutation(len(train))[: arguments.train_images]
        write_voc(part(train, np.sort(chosen)), f"{folder}/train")
        for way in WAYS:
            line = {"way": way, "train_images": len(chosen), "machine": machine()}
            changes = [f"--set={key}={value}" for key, value in WAYS[way].items()]
            model = f"{folder}/model_{way}"
            commands = {
                "train": ["train", f"{folder}/train", "-o", model, *changes, "--profile"],
                "detect": ["detect", model, str(cards), "--split", "test", "-o", f"{folder}/found_{way}", "--profile"],
            }
            for verb, command in commands.items():
                line[verb], line[f"{verb}_profile"] = timed(command, f"{folder}/cache_{verb}_{way}")
            with arguments.resume.open("a") as handle:
                handle.write(json.dumps(line) + "\n")
            print(f"{way}: train {line['train']:.0f} s, detect {line['detect']:.0f} s", flush=True)


def timed(command: list[str], cache: str) -> tuple[float, str]:
    """Seconds of an `eesvm` command, and the end of what it printed; bytecode is kept, as Python does by itself."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "eesvm", *command, "--cache", cache],
        capture_output=True, text=True, check=False, env={**environment, "COLUMNS": "200"},
    )  # fmt: skip
    seconds = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"eesvm {command[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return seconds, (done.stdout + done.stderr)[-3000:]


# The page


def page(lines: list[dict[str, Any]], arguments: argparse.Namespace) -> str:
    return "\n".join(
        [
            "# Our windows and OpenCV's, end to end",
            "",
            "`python benchmarks/bench_end_to_end.py`; the section on time alone: `--only-time --train-images 40`.",
            "",
            "The default preset, once on windows of our own selective search (mode default), once on those of OpenCV "
            "(mode fast, the default before); everything else the same.",
            *(detection_section([line for line in lines if "set" in line], arguments) or known("Detection", arguments)),
            *(time_section([line for line in lines if "train" in line]) or known("Time", arguments)),
            "",
        ]
    )


def known(title: str, arguments: argparse.Namespace) -> list[str]:
    """A section of the page that is there, of which nothing was measured now."""
    page = (arguments.output or RESULTS) / "end_to_end.md"
    parts = page.read_text().split("\n## ") if page.exists() else []
    return ["", *("## " + part.rstrip("\n") for part in parts if part.startswith(f"{title}\n"))]


def detection_section(lines: list[dict[str, Any]], arguments: argparse.Namespace) -> list[str]:
    rows = []
    for name in arguments.sets:
        by_way = {way: {one["split"]: one for one in lines if one["set"] == name and one["way"] == way} for way in WAYS}
        splits = sorted(by_way[OURS].keys() & by_way[OPENCV].keys())
        if not splits:
            continue
        ap = {way: np.array([mean(by_way[way][split]["ap"]) for split in splits]) for way in WAYS}
        recall = {way: np.mean([by_way[way][split]["recall"] for split in splits]) for way in WAYS}
        difference = ap[OURS] - ap[OPENCV]
        half = T_95[len(splits)] * difference.std(ddof=1) / np.sqrt(len(splits)) if len(splits) > 1 else np.nan
        one = by_way[OURS][splits[0]]
        rows.append(
            [
                name, one["images"], len(one["ap"]), len(splits), f"{ap[OPENCV].mean():.1f}", f"{ap[OURS].mean():.1f}",
                f"{difference.mean():+.1f} ± {half:.1f}", f"{recall[OPENCV]:.1f}", f"{recall[OURS]:.1f}",
            ]
        )  # fmt: skip
    if not rows:
        return []
    headings = ["set", "images", "classes", "splits", "AP, OpenCV", "AP, ours", "difference, 95 %", "recall, OpenCV", "recall, ours"]  # fmt: skip
    return [
        "",
        "## Detection",
        "",
        "Average precision by VOC 2010 in per cent, mean over the classes with the most objects, then over splits into "
        "halves; the difference is paired, with a t-interval over the splits, which are few. Recall: objects of the "
        f"test half that some window overlaps by 0.5. {machines(lines)}.",
        "",
        markdown(headings, rows),
    ]


def time_section(lines: list[dict[str, Any]]) -> list[str]:
    best = {way: lines_of_way[-1] for way in WAYS if (lines_of_way := [one for one in lines if one["way"] == way])}
    if set(best) != set(WAYS):
        return []
    rows = []
    for verb in ("train", "detect"):
        seconds = {way: {"in all": best[way][verb], **stages(best[way][f"{verb}_profile"])} for way in WAYS}
        for stage, ours in seconds[OURS].items():
            theirs = seconds[OPENCV].get(stage, 0.0)
            if max(ours, theirs) >= 0.5:
                cells = [f"{value:.1f} ({100 * value / best[way][verb]:.0f} %)"
                         for way, value in ((OPENCV, theirs), (OURS, ours))]  # fmt: skip
                rows.append([verb, stage, *cells, f"{theirs / max(ours, 1e-9):.1f}"])
    return [
        "",
        "## Time",
        "",
        f"Playing cards, `eesvm train` on {best[OURS]['train_images']} photographs of the train split and `eesvm detect` "
        "on the 67 of the test split, each from an empty cache, with kernels compiled before; wall clock, both cores, "
        "start of the program included. Stages are those that `--profile` prints, from half a second on. In training "
        "the classes overlap: while one is scored and calibrated, the next one is trained, and a stage is what was "
        "waited for. In detection images are looked at side by side, and the time is shared out by what threads did. "
        f"{machines(lines)}.",
        "",
        markdown(
            ["command", "stage", "OpenCV, s", "ours, s", "times faster"],
            rows,
        ),
    ]


def machines(lines: list[dict[str, Any]]) -> str:
    return "; ".join(sorted({line.get("machine", "an unknown machine") for line in lines}))


def stages(profile: str) -> dict[str, float]:
    """Seconds of the stages that `--profile` has printed."""
    found = re.findall(r"^([a-zA-Z][a-zA-Z ]*?) +([\d.]+) +[\d.]+ %$", profile, re.MULTILINE)
    return {name: float(seconds) for name, seconds in found}


if __name__ == "__main__":
    main()
