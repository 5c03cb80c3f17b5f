"""Options that might belong to the default preset, by detection AP: `python benchmarks/bench_defaults.py`.

Writes benchmarks/results/defaults.md, or another `--page`. Each set is cut into a training and a test half, several times, and each way
trains the default preset with a few options changed; average precision by VOC 2010, paired. What has been measured is
kept in the file of `--resume`, line by line; an interrupted benchmark goes on there.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from _common import RESULTS, ROOT, machine, markdown
from bench_end_to_end import chosen_images, mean, part
from eesvm.descriptors import DescriptorCache
from eesvm.detector import ExemplarDetector
from eesvm.detector.options import DetectorOptions
from eesvm.metrics import evaluate_detections

SETS = ("raccoon", "cards", "bccd")
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"training.mirror": False},
    "mirrored": {"training.mirror": True},
    "plain, lite2": {"training.mirror": False, "descriptor.backbone": "lite2"},
    "mirrored, lite2": {"training.mirror": True, "descriptor.backbone": "lite2"},
    "no map": {"descriptor.n_components": 256, "descriptor.kernel_map": None},
    "map of 512": {"descriptor.n_components": 256, "descriptor.kernel_map": 512},
    "map of 1,024": {
        "descriptor.n_components": 512,
        "descriptor.kernel_map": 1024,
        "descriptor.kernel_components": None,
    },
    "map": {},
    "map, uncalibrated": {"calibration.calibrator": "none"},
}


def main() -> None:
    arguments = parse_arguments()
    arguments.resume.parent.mkdir(parents=True, exist_ok=True)
    arguments.resume.touch()
    until = time.time() + arguments.seconds
    known = {tuple(line[key] for key in ("set", "split", "way")) for line in lines_of(arguments)}
    work = [
        (name, split, way)
        for split in range(arguments.splits)
        for name in arguments.sets
        for way in arguments.ways
        if (name, split, way) not in known
    ]
    with ProcessPoolExecutor(arguments.processes) as pool, arguments.resume.open("a") as handle:
        for done in as_completed([pool.submit(measure, item, arguments, until) for item in work]):
            if (line := done.result()) is not None:
                handle.write(json.dumps(line) + "\n")
                handle.flush()
                print(f"{line['set']}, split {line['split']}, {line['way']}: AP {mean(line['ap']):.1f} %", flush=True)
    text = page(lines_of(arguments), arguments)
    if arguments.output:
        (arguments.output / f"{arguments.page}.md").write_text(text)
    print(text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("data", nargs="?", type=Path, default=ROOT.parent / "shared" / "data", help="folder of datasets")
    add("--sets", nargs="+", default=SETS)
    add("--ways", nargs="+", choices=WAYS, default=("plain", "mirrored"))
    add("--to", nargs="+", choices=WAYS, help="ways that others are compared with, a table each (the first of --ways)")
    add("--splits", type=int, default=3)
    add("--images", type=int, default=120, help="of each set at most, half of them for training (120)")
    add("--classes", type=int, default=4, help="of each set at most, those with the most objects (4)")
    add("--time-limit", type=float, default=10.0, help="seconds for each joint calibration (10)")
    add("--processes", type=int, default=1, help="trainings at a time, each with one thread (1)")
    add("--seconds", type=float, default=float("inf"), help="begin no training after so many seconds")
    add("--cache", type=Path, default=ROOT / "build" / "defaults_cache")
    add("--resume", type=Path, default=ROOT / "build" / "defaults.jsonl", help="file of what has been measured")
    add("--note", default="", help="a sentence for the page, such as where it was measured")
    add("--output", type=Path, default=RESULTS, help="folder of the page")
    add("--page", default="defaults", help="name of the page (defaults)")
    arguments = parser.parse_args()
    arguments.to = arguments.to or arguments.ways[:1]
    return arguments


def lines_of(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    return [json.loads(line) for line in arguments.resume.read_text().splitlines()]


def measure(item: tuple[str, int, str], arguments: argparse.Namespace, until: float) -> dict[str, Any] | None:
    """One training on a half, one detection in the other; None: too late."""
    if time.time() > until:
        return None
    name, split, way = item
    dataset, chosen, classes = chosen_images(name, arguments)
    order = np.random.default_rng(split).permutation(chosen)
    train, test = (part(dataset, half) for half in (order[: len(order) // 2], order[len(order) // 2 :]))
    has = [{i.class_name for i in half.instances() if not (i.is_difficult or i.is_crowd)} for half in (train, test)]
    classes = [c for c in classes if c in has[0] & has[1]]
    changes = {**WAYS[way], "random_state": split, "n_jobs": 1, "calibration.time_limit": arguments.time_limit}
    cache = DescriptorCache(arguments.cache)
    started = time.process_time()
    detector = ExemplarDetector(DetectorOptions().changed(changes)).fit(train, classes, cache=cache)
    trained = time.process_time()
    report = evaluate_detections(test, detector.predict(test, cache=cache), protocol="voc10", classes=classes)
    return {
        "set": name, "split": split, "way": way, "images": len(chosen), "train": trained - started,
        "detect": time.process_time() - trained, "exemplars": len(detector.exemplars_),
        "ap": {one.class_name: 100 * one.average_precision for one in report.classes},
    }  # fmt: skip


def page(lines: list[dict[str, Any]], arguments: argparse.Namespace) -> str:
    return "\n".join(
        [
            "# Options of the default preset on trial",
            "",
            f"`python benchmarks/bench_defaults.py --sets {' '.join(arguments.sets)}"
            f" --ways {' '.join(repr(way) for way in arguments.ways)} --splits {arguments.splits}"
            f"{f' --to {chr(32).join(map(repr, arguments.to))}' if len(arguments.to) > 1 else ''}"
            f" --images {arguments.images} --classes {arguments.classes} --time-limit {arguments.time_limit:g}"
            f"{'' if arguments.page == 'defaults' else f' --page {arguments.page}'}`,"
            f" {machine().partition(', Python')[0]}. {arguments.note}".rstrip(),
            "",
            f"Of each set at most {arguments.images} images, drawn at random, and {arguments.classes} classes. It is cut "
            f"into halves, one to train on and one to judge, {arguments.splits} times; the default preset, with the options "
            f"of its column; {arguments.time_limit:g} s for the joint thresholds of a class. Average "
            "precision by VOC 2010 in per cent, mean over the classes with the most objects, then over splits; differences "
            "are to the first way of each table, paired, with t-intervals over the splits, which are few.",
            "",
            *(f"{markdown(*table(lines, arguments, first))}\n" for first in arguments.to),
        ]
    )


def table(lines: list[dict[str, Any]], arguments: argparse.Namespace, first: str) -> tuple[list[str], list[list[Any]]]:
    """All ways beside the first: a row for each set, and one for their mean."""
    others = [way for way in arguments.ways if way != first]
    headings = ["set", "images", "classes", "splits", f"AP, {first}"]
    headings += [f"{title}, {way}" for way in others for title in ("AP", "difference")]
    rows: list[list[Any]] = []
    of_sets: list[dict[str, dict[int, float]]] = []
    for name in arguments.sets:
        by_way = {
            way: {one["split"]: one for one in lines if (one["set"], one["way"]) == (name, way)}
            for way in arguments.ways
        }
        splits = sorted(set.intersection(*(set(by_split) for by_split in by_way.values())))
        if len(splits) < 2:
            continue
        one = by_way[first][splits[0]]
        ap = {way: {split: mean(by_way[way][split]["ap"]) for split in splits} for way in arguments.ways}
        rows.append([name, one["images"], len(one["ap"]), len(splits), *cells(ap, first, others)])
        of_sets.append(ap)
    if len(rows) > 1:
        splits = sorted(set.intersection(*(set(ap[first]) for ap in of_sets)))
        ap = {way: {k: float(np.mean([each[way][k] for each in of_sets])) for k in splits} for way in arguments.ways}
        rows.append(["mean", "", "", len(splits), *cells(ap, first, others)])
    return headings, rows


def cells(ap: dict[str, dict[int, float]], first: str, others: list[str]) -> list[str]:
    """The first way, and each of the others with its difference to it, from figures of each split."""
    values = {way: np.array(list(by_split.values())) for way, by_split in ap.items()}
    found = [f"{values[first].mean():.1f}"]
    for way in others:
        gain = values[way] - values[first]
        reach = stats.t.ppf(0.975, len(gain) - 1) * gain.std(ddof=1) / np.sqrt(len(gain))
        found += [f"{values[way].mean():.1f}", f"{gain.mean():+.1f} ± {reach:.1f}"]
    return found


if __name__ == "__main__":
    main()
