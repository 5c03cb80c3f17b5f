"""Windows: how many objects they find, how many there are, and what they cost.

Writes benchmarks/results/windows.md. The embedded scenes are always measured, the five real sets where they are at hand;
of each set a sample of images, evenly spread, whose number stands in the tables. A few minutes on two cores.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from _common import RESULTS, ROOT, machine, markdown
from eesvm import boxes
from eesvm.datasets import open_dataset
from eesvm.datasets.scenes import make_scenes
from eesvm.structures import ImageRecord, Windows
from eesvm.windows.proposals import WindowRecall, propose_dataset, window_recall

DATA = ROOT.parent / "shared" / "data"  # outside the repository, skipped where absent
REAL_SETS = {
    "cards": "cards",
    "pets": "pets_voc",
    "coco": "coco_subset_128",
    "blood cells": "bccd",
    "raccoon": "raccoon",
}
WAYS: dict[str, dict[str, Any]] = {
    "single": {"mode": "single"},
    "fast": {"mode": "fast"},
    "quality": {"mode": "quality", "max_windows": 10_000},
    "grid, 2,000": {"method": "grid"},
    "grid, 10,000": {"method": "grid", "max_windows": 10_000},
}
BEGINNINGS = (50, 100, 200, 500, 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=40, help="per set for the recall of the default; 0: all (40)")
    parser.add_argument("--few", type=int, default=8, help="per set for the comparison of ways (8)")
    parser.add_argument("--jobs", type=int, default=2, help="processes, where time is not measured (2)")
    arguments = parser.parse_args()
    sets = {name: records for name, records in found_sets().items() if records}
    windows = {name: propose_all(sample(records, arguments.images), arguments.jobs) for name, records in sets.items()}
    sections = [
        ("Recall of the default", recall_of_the_default(sets, windows)),
        ("Beginnings: the first windows of an image", beginnings(sets, windows)),
        ("Ways to propose", ways({name: sample(records, arguments.few) for name, records in sets.items()})),
        ("One core and two", cores(sample(sets["scenes"], 24))),
    ]
    command = f"python benchmarks/bench_windows.py --images {arguments.images} --few {arguments.few}"
    pages = [f"# Windows\n\n`{command}`, {machine()}."]
    pages += [f"## {title}\n\n{text}" for title, text in sections]
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "windows.md").write_text("\n\n".join(pages) + "\n")
    print("\n\n".join(pages))


def found_sets() -> dict[str, Sequence[ImageRecord]]:
    sets: dict[str, Sequence[ImageRecord]] = {"scenes": make_scenes().images}
    for name, folder in REAL_SETS.items():
        if (DATA / folder).is_dir():
            sets[name] = [record for record in open_dataset(DATA / folder) if record.instances]
    return sets


def sample(records: Sequence[ImageRecord], wanted: int) -> Sequence[ImageRecord]:
    if not wanted or wanted >= len(records):
        return records
    return [records[k * len(records) // wanted] for k in range(wanted)]


def propose_all(records: Sequence[ImageRecord], jobs: int) -> list[Windows]:
    return list(propose_dataset(records, n_jobs=jobs, max_windows=100_000))


def recall_of_the_default(sets: dict[str, Sequence[ImageRecord]], windows: dict[str, list[Windows]]) -> str:
    rows = []
    for name, found in windows.items():
        kept = [w[:2000] for w in found]
        recall = window_recall(sets[name], kept)
        n = f"{recall.n_images:,} of {len(sets[name]):,}"
        rows.append([name, n, f"{recall.total.n_instances:,}", f"{recall.windows_per_image:,.0f}", *shares(recall)])
    headings = [
        "set",
        "images with objects",
        "objects",
        "windows per image",
        "recall at 0.5",
        "recall at 0.7",
        "mean best IoU",
    ]
    return f"Selective search, fast, at most 2,000 windows.\n\n{markdown(headings, rows)}"


def beginnings(sets: dict[str, Sequence[ImageRecord]], windows: dict[str, list[Windows]]) -> str:
    """Mean over the sets of the recall that the first k windows reach, in our order and in others."""
    rows = []
    for label, order in (("representative (ours)", None), ("random, mean of 5", 5), ("largest first", "area")):
        for threshold in (0.5, 0.7):
            cells = [np.mean([_cut_recall(sets[s], windows[s], k, order, threshold) for s in sets]) for k in BEGINNINGS]
            rows.append([label, threshold, *(f"{100 * cell:.1f}" for cell in cells)])
    note = "The same windows of selective search, fast; mean over the sets of the recall, in per cent."
    return f"{note}\n\n{markdown(['order', 'IoU', *(f'first {k:,}' for k in BEGINNINGS)], rows)}"


def ways(sets: dict[str, Sequence[ImageRecord]]) -> str:
    rows = []
    for name, records in sets.items():
        for way, options in WAYS.items():
            began = time.process_time()
            recall = window_recall(records, propose_dataset(records, **options))
            seconds = (time.process_time() - began) / len(records)
            rows.append(
                [
                    name,
                    len(records),
                    recall.total.n_instances,
                    way,
                    f"{recall.windows_per_image:,.0f}",
                    *shares(recall),
                    f"{seconds:.2f}",
                ]
            )
    headings = ["set", "images", "objects", "way", "windows per image", "recall at 0.5", "recall at 0.7", "mean best IoU",
                "CPU seconds per image"]  # fmt: skip
    note = "One process. Seconds include reading the image; it is segmented at a longest side of 500 pixels at most."
    return f"{note}\n\n{markdown(headings, rows)}"


def cores(records: Sequence[ImageRecord]) -> str:
    seconds = {}
    for jobs in (1, 2):
        list(propose_dataset(records[:4], n_jobs=jobs))  # start the workers, and compile, before the clock runs
        began = time.perf_counter()
        list(propose_dataset(records, n_jobs=jobs))
        seconds[jobs] = (time.perf_counter() - began) / len(records)
    rows = [[jobs, f"{value:.2f}", f"{seconds[1] / value:.2f}x"] for jobs, value in seconds.items()]
    note = f"Selective search, fast, on {len(records)} scenes of 320 x 240 pixels; wall-clock time, workers started before."
    return f"{note}\n\n{markdown(['processes', 'seconds per image', 'speed'], rows)}"


def shares(recall: WindowRecall) -> list[str]:
    return [*(f"{100 * share:.1f} %" for share in recall.total.recall), f"{recall.total.mean_overlap:.3f}"]


def _cut_recall(
    records: Sequence[ImageRecord], windows: Sequence[Windows], k: int, order: int | str | None, threshold: float
) -> float:
    n_draws = order if isinstance(order, int) else 1
    recalls = []
    for seed in range(n_draws):
        cut = []
        for number, found in enumerate(windows):
            rows = np.arange(len(found))
            if order == "area":
                rows = np.argsort(-boxes.area(found.boxes), kind="stable")
            elif order is not None:
                rows = np.random.default_rng([seed, number]).permutation(len(found))
            cut.append(found[rows[:k]])
        recalls.append(window_recall(records, cut, (threshold,)).total.recall[0])
    return float(np.mean(recalls))


if __name__ == "__main__":
    main()
