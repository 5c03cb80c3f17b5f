"""Windows: how many objects they find, how many there are, and what they cost.

Writes benchmarks/results/windows.md. The embedded scenes are always measured, the six real sets where they are at hand;
of each set a sample of images, evenly spread, whose number stands in the tables. One process, one thread, CPU time.
OpenCV's selective search, scikit-image and the package selectivesearch are measured where they are installed.
A quarter of an hour, of which OpenCV takes most.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from _common import RESULTS, ROOT, first_calls, forget_peak, held_memory, machine, markdown
from eesvm import boxes
from eesvm.datasets import open_dataset
from eesvm.datasets.scenes import make_scenes
from eesvm.structures import ImageRecord, Windows
from eesvm.windows import WindowRecall, propose, propose_dataset, window_recall
from eesvm.windows.order import representative_order
from eesvm.windows.selective_search import PLANS
from eesvm.windows.selective_search.colours import colour_planes
from eesvm.windows.selective_search.grouping import group
from eesvm.windows.selective_search.histograms import pixel_bins, region_histograms
from eesvm.windows.selective_search.regions import regions_of
from eesvm.windows.selective_search.search import distinct
from eesvm.windows.selective_search.segmentation import segmentation, sorted_edges
from eesvm.windows.selective_search.shrinking import shrunk

DATA = ROOT.parent / "shared" / "data"  # outside the repository, skipped where absent
REAL_SETS = {
    "cards": "cards",
    "pets": "pets_voc",
    "coco": "coco_subset_128",
    "blood cells": "bccd",
    "raccoon": "raccoon",
    "voc2007": "voc2007",
}
WAYS: dict[str, dict[str, Any]] = {
    "single": {"mode": "single"},
    "fast": {"mode": "fast"},
    "default": {"mode": "default"},
    "default, 50 ms": {"mode": "default", "time_budget": 50},
    "quality": {"mode": "quality"},
    "OpenCV single": {"method": "opencv", "mode": "single"},
    "OpenCV fast": {"method": "opencv", "mode": "fast"},
    "grid": {"method": "grid"},
}
SLOW_WAYS: dict[str, dict[str, Any]] = {
    "default": {"mode": "default", "max_windows": 10_000},
    "quality": {"mode": "quality", "max_windows": 10_000},
    "OpenCV quality": {"method": "opencv", "mode": "quality", "max_windows": 10_000},
    "grid": {"method": "grid", "max_windows": 10_000},
}
BEGINNINGS = (100, 500, 1000, 2000)

Sets = dict[str, Sequence[ImageRecord]]
Propose = Callable[[np.ndarray], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=24, help="per set (24)")
    parser.add_argument("--few", type=int, default=4, help="per set for the slow ways (4)")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the real sets")
    parser.add_argument(
        "--others", type=Path, help="folder with scikit-image and selectivesearch, if they are not installed"
    )
    arguments = parser.parse_args()
    if arguments.others:
        sys.path.append(str(arguments.others))
    if has_opencv():
        importlib.import_module("cv2").setNumThreads(1)
    cold = compile_times()
    sets = found_sets(arguments.data)
    many, few = (
        {name: sample(records, n) for name, records in sets.items()} for n in (arguments.images, arguments.few)
    )
    large = sample(sets.get("cards", sets["scenes"]), 1)[0].read()
    for options in (*WAYS.values(), *SLOW_WAYS.values()):  # everything is compiled before a clock runs
        if options.get("method") != "opencv":
            propose(large[:50, :50], **options)
    growth = sizes(large)  # before anything else has taken memory
    measured = measure_ways(many, WAYS)
    photographs = [record for name, records in many.items() if name != "scenes" for record in records] or many["scenes"]
    sections = [
        ("Ways to propose", ways(many, measured)),
        ("Beginnings: the first windows of an image", beginnings(many, measured)),
        ("Orders", orders(many)),
        ("Slow ways", slow_ways(few)),
        ("Steps", steps(photographs[:: max(1, len(photographs) // 24)])),
        ("One segmentation", one_segmentation(photographs[:: max(1, len(photographs) // 6)])),
        ("Size of the image", growth),
        ("Compilation", cold),
        ("One thread and two", threads(many["scenes"])),
    ]
    command = f"python benchmarks/bench_windows.py --images {arguments.images} --few {arguments.few}"
    pages = [f"# Windows\n\n`{command}`, {machine()}; {other_versions()}."]
    pages += [f"## {title}\n\n{text}" for title, text in sections]
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "windows.md").write_text("\n\n".join(pages) + "\n")
    print("\n\n".join(pages))


def found_sets(data: Path) -> Sets:
    sets: Sets = {"scenes": make_scenes().images}
    for name, folder in REAL_SETS.items():
        if (data / folder).is_dir():
            sets[name] = [record for record in open_dataset(data / folder) if record.instances]
    return sets


def sample(records: Sequence[ImageRecord], wanted: int) -> Sequence[ImageRecord]:
    if not wanted or wanted >= len(records):
        return records
    return [records[k * len(records) // wanted] for k in range(wanted)]


def has_opencv() -> bool:
    try:
        return hasattr(importlib.import_module("cv2"), "ximgproc")
    except ImportError:
        return False


def other_versions() -> str:
    texts = []
    for name in ("cv2", "skimage"):
        try:
            texts.append(f"{name} {importlib.import_module(name).__version__}")
        except ImportError:
            texts.append(f"{name} not installed")
    return ", ".join(texts)


def measure_ways(sets: Sets, options: dict[str, dict[str, Any]]) -> dict[str, dict[str, tuple[list[Windows], float]]]:
    """Windows and CPU seconds an image, reading left out, of each set and way."""
    found: dict[str, dict[str, tuple[list[Windows], float]]] = {}
    for name, records in sets.items():
        found[name] = {}
        for way, arguments in options.items():
            if arguments.get("method") == "opencv" and not has_opencv():
                continue
            found[name][way] = proposed(records, lambda image, arguments=arguments: propose(image, **arguments))
        print(f"{name} is done", file=sys.stderr, flush=True)
    return found


def proposed(records: Sequence[ImageRecord], method: Propose) -> tuple[list[Windows], float]:
    windows, seconds = [], 0.0
    for record in records:
        image = record.read()
        began = time.process_time()
        table = method(image)
        seconds += time.process_time() - began
        windows.append(Windows(record.image_id, table, np.full(len(table), -1)))
    return windows, seconds / len(records)


def ways(sets: Sets, measured: dict[str, dict[str, tuple[list[Windows], float]]]) -> str:
    rows, summary = [], []
    for name, found in measured.items():
        records = sets[name]
        for way, (windows, seconds) in found.items():
            recall = window_recall(records, windows)
            n = recall.total.n_instances
            rows.append(
                [
                    name,
                    len(windows),
                    n,
                    way,
                    f"{recall.windows_per_image:,.0f}",
                    *shares(recall),
                    f"{1000 * seconds:.0f}",
                ]
            )
    for way in next(iter(measured.values())):
        recalls = [window_recall(sets[name], found[way][0]) for name, found in measured.items()]
        means = np.mean([[*r.total.recall, r.total.mean_overlap, r.windows_per_image] for r in recalls], axis=0)
        seconds = np.mean([found[way][1] for found in measured.values()])
        summary.append(
            [
                way,
                f"{means[3]:,.0f}",
                *(f"{100 * m:.1f} %" for m in means[:2]),
                f"{means[2]:.3f}",
                f"{1000 * seconds:.0f}",
            ]
        )
    columns = ["windows per image", "recall at 0.5", "recall at 0.7", "mean best IoU", "CPU ms per image"]
    note = (
        "At most 2,000 windows an image; one process, one thread. Time is from pixels to ordered windows; images are "
        "segmented at a longest side of 500 pixels at most. First the mean over the sets, then each set."
    )
    return f"{note}\n\n{markdown(['way', *columns], summary)}\n\n{markdown(['set', 'images', 'objects', 'way', *columns], rows)}"


def beginnings(sets: Sets, measured: dict[str, dict[str, tuple[list[Windows], float]]]) -> str:
    rows = []
    for way in next(iter(measured.values())):
        for threshold in (0.5, 0.7):
            cells = []
            for k in BEGINNINGS:
                cut = {s: [first(w, np.arange(len(w)), k) for w in measured[s][way][0]] for s in sets}
                cells.append(np.mean([window_recall(sets[s], cut[s], (threshold,)).total.recall[0] for s in sets]))
            rows.append([way, threshold, *(f"{100 * cell:.1f}" for cell in cells)])
    return f"Mean over the sets of the recall, in per cent.\n\n{markdown(['way', 'IoU', *(f'first {k:,}' for k in BEGINNINGS)], rows)}"


def orders(sets: Sets) -> str:
    """The recall that the first windows of selective search, fast, reach in our order and in others."""
    windows = {s: [propose(r.read(), mode="fast", max_windows=10**6) for r in records] for s, records in sets.items()}
    rows = []
    for label, n_draws in (("representative (ours)", 1), ("random, mean of 5", 5), ("largest first", 1)):
        for threshold in (0.5, 0.7):
            cells = []
            for k in (50, 100, 200, 500, 1000):
                draws = [
                    _cut_recall(sets[s], windows[s], k, label, seed, threshold) for s in sets for seed in range(n_draws)
                ]
                cells.append(f"{100 * np.mean(draws):.1f}")
            rows.append([label, threshold, *cells])
    headings = ["order", "IoU", "first 50", "first 100", "first 200", "first 500", "first 1,000"]
    return f"The same windows of the mode fast; mean over the sets of the recall, in per cent.\n\n{markdown(headings, rows)}"


def _cut_recall(
    records: Sequence[ImageRecord], tables: list[np.ndarray], k: int, label: str, seed: int, threshold: float
) -> float:
    cut = []
    for number, (record, table) in enumerate(zip(records, tables, strict=True)):
        rows = np.arange(len(table))
        if label == "largest first":
            rows = np.argsort(-boxes.area(table), kind="stable")
        elif label.startswith("random"):
            rows = np.random.default_rng([seed, number]).permutation(len(table))
        cut.append(first(Windows(record.image_id, table, np.full(len(table), -1)), rows, k))
    return window_recall(records, cut, (threshold,)).total.recall[0]


def first(windows: Windows, rows: np.ndarray, k: int) -> Windows:
    return Windows(windows.image_id, windows.boxes[rows[:k]], windows.instance[rows[:k]])


def slow_ways(sets: Sets) -> str:
    measured = measure_ways(sets, SLOW_WAYS)
    library = selectivesearch_library()
    if library is not None:
        for name, records in sets.items():
            measured[name]["selectivesearch (PyPI)"] = proposed(records, library)
    rows = []
    for way in next(iter(measured.values())):
        recalls = [window_recall(sets[s], found[way][0]) for s, found in measured.items()]
        means = np.mean([[*r.total.recall, r.total.mean_overlap, r.windows_per_image] for r in recalls], axis=0)
        seconds = np.mean([found[way][1] for found in measured.values()])
        rows.append(
            [
                way,
                f"{means[3]:,.0f}",
                *(f"{100 * m:.1f} %" for m in means[:2]),
                f"{means[2]:.3f}",
                f"{1000 * seconds:.0f}",
            ]
        )
    n = sum(map(len, sets.values()))
    note = f"At most 10,000 windows an image; mean over the sets, {n} images in all."
    if library is None:
        note += " The package selectivesearch is not installed."
    headings = ["way", "windows per image", "recall at 0.5", "recall at 0.7", "mean best IoU", "CPU ms per image"]
    return f"{note}\n\n{markdown(headings, rows)}"


def selectivesearch_library() -> Propose | None:
    """The package of that name, at the same working size, in our order; None where it is missing."""
    try:
        search = importlib.import_module("selectivesearch").selective_search
    except ImportError:
        return None

    def library(image: np.ndarray) -> np.ndarray:
        small = shrunk(image, 500)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            regions = search(small, scale=150, sigma=0.8, min_size=100)[1]
        x, y, w, h = np.array([region["rect"] for region in regions], dtype=float).T
        factors = np.array([image.shape[1] / small.shape[1], image.shape[0] / small.shape[0]] * 2)
        table = np.unique(np.stack([x, y, x + w, y + h], axis=1) * factors, axis=0)  # its w is x2 - x1 of pixels
        table = table[boxes.is_valid(table, min_size=10.0)]
        return table[representative_order(table, 10_000)] if len(table) else np.array([[0.0, 0, *image.shape[1::-1]]])

    return library


def steps(records: Sequence[ImageRecord]) -> str:
    """Where the time of a mode goes."""
    rows = []
    for mode in ("fast", "default"):
        spent: dict[str, float] = {}
        for record in records:
            for name, seconds in timed_steps(record, mode):
                spent[name] = spent.get(name, 0.0) + seconds / len(records)
        total = sum(seconds for name, seconds in spent.items() if name != "reading the file")
        once = spent.pop("the pixels read once")
        rows += [[mode, name, f"{1000 * s:.1f}", f"{100 * s / total:.0f} %"] for name, s in spent.items()]
        rows.append(
            [
                mode,
                "all but reading the file",
                f"{1000 * (total - once):.1f}",
                f"{(total - once) / once:,.0f} times reading the pixels once",
            ]
        )
    note = f"CPU time per image, mean over {len(records)} photographs at a longest side of 500 pixels at most."
    return f"{note}\n\n{markdown(['mode', 'step', 'CPU ms', 'share'], rows)}"


def timed_steps(record: ImageRecord, mode: str) -> list[tuple[str, float]]:
    spent: list[tuple[str, float]] = []

    def timed(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        began = time.process_time()
        result = function(*arguments)
        spent.append((name, time.process_time() - began))
        return result

    image = timed("reading the file", record.read)
    small = timed("shrinking", shrunk, image, 500)
    timed("the pixels read once", np.sum, small)
    spaces, found = {}, []
    for step in PLANS[mode]:
        if step.space not in spaces:
            planes = timed("colours", colour_planes, small, step.space)
            spaces[step.space] = (
                timed("sorted edges", sorted_edges, planes),
                timed("bins of pixels", pixel_bins, planes),
            )
        edges, bins = spaces[step.space]
        labels, n = timed("segmentations", segmentation, edges, step.scale, step.min_size)
        regions = timed("regions", regions_of, labels, n)
        histograms = timed("histograms", region_histograms, bins, labels, n)
        for similarities in step.groupings:
            found.append(timed("grouping", group, regions, *histograms, similarities, labels.size))
    table = timed("different boxes", distinct, np.concatenate(found)).astype(np.float64)
    table = table[boxes.is_valid(table, min_size=10.0)]
    if len(table):
        timed("order", representative_order, table, 2000)
    return spent


def one_segmentation(records: Sequence[ImageRecord]) -> str:
    """Felzenszwalb's segmentation of the same RGB pixels, scale 150, at least 100 pixels."""
    images = [shrunk(record.read(), 500) for record in records]
    planes = [colour_planes(image, "rgb") for image in images]
    rows = [["ours", f"{1000 * mean_seconds(lambda p: segmentation(sorted_edges(p), 150, 100), planes):.1f}"]]
    ready = [sorted_edges(p) for p in planes]
    rows.append(
        ["ours, edges already sorted", f"{1000 * mean_seconds(lambda e: segmentation(e, 150, 100), ready):.1f}"]
    )
    if has_opencv():
        graph = importlib.import_module("cv2").ximgproc.segmentation.createGraphSegmentation(0.8, 150, 100)
        rows.append(["OpenCV", f"{1000 * mean_seconds(graph.processImage, images):.1f}"])
    try:
        felzenszwalb = importlib.import_module("skimage.segmentation").felzenszwalb
        rows.append(["scikit-image", f"{1000 * mean_seconds(lambda i: felzenszwalb(i, 150, 0.8, 100), images):.1f}"])
    except ImportError:
        rows.append(["scikit-image", "not installed"])
    note = f"CPU time of one segmentation, mean over {len(images)} photographs, RGB, scale 150, at least 100 pixels."
    return f"{note}\n\n{markdown(['segmentation', 'CPU ms'], rows)}"


def mean_seconds(function: Callable[[Any], Any], items: Sequence[Any]) -> float:
    function(items[0])
    began = time.process_time()
    for item in items:
        function(item)
    return (time.process_time() - began) / len(items)


def sizes(image: np.ndarray) -> str:
    rows = []
    longest = max(image.shape[:2])
    before = held_memory("VmRSS")  # once: what is freed stays with the process for the next size
    for working_size in (125, 250, 500, 1000, 2000):
        enlarged = (
            image
            if longest >= working_size
            else np.repeat(np.repeat(image, -(-working_size // longest), 0), -(-working_size // longest), 1)
        )
        small = shrunk(enlarged, working_size)
        forget_peak()
        began = time.process_time()
        found = propose(small, mode="default", working_size=working_size)
        seconds = time.process_time() - began
        n_pixels = small.shape[0] * small.shape[1]
        peak = (held_memory("VmHWM") - before) / 2**20
        rows.append(
            [
                f"{small.shape[1]} x {small.shape[0]}",
                f"{len(found):,}",
                f"{1000 * seconds:.0f}",
                f"{1e9 * seconds / n_pixels:.0f}",
                f"{peak:.0f}",
            ]
        )
    note = "One photograph, mode default, segmented at several sizes. Memory is the peak above what the process held before the first; the picture itself, enlarged, is part of it."
    return f"{note}\n\n{markdown(['pixels', 'windows', 'CPU ms', 'ns a pixel', 'peak MiB'], rows)}"


def compile_times() -> str:
    """The first call in a new process, without and with compiled code on disk."""
    pixels = "np.random.default_rng(0).integers(0, 256, (60, 80, 3)).astype(np.uint8)"
    rows = first_calls("import numpy as np; from eesvm.windows import propose", f"propose({pixels})")
    note = "A new process imports eesvm.windows and proposes windows for an image of 80 x 60 pixels."
    return f"{note}\n\n{markdown(['', 'CPU s of the import', 'CPU s of the first call'], rows)}"


def threads(records: Sequence[ImageRecord]) -> str:
    seconds = {}
    for jobs in (1, 2):
        began = time.perf_counter()
        list(propose_dataset(records, n_jobs=jobs))
        seconds[jobs] = (time.perf_counter() - began) / len(records)
    rows = [[jobs, f"{1000 * value:.0f}", f"{seconds[1] / value:.2f}x"] for jobs, value in seconds.items()]
    note = f"Mode default on {len(records)} scenes of 320 x 240 pixels; wall-clock time, nothing is started before."
    return f"{note}\n\n{markdown(['threads', 'ms per image', 'speed'], rows)}"


def shares(recall: WindowRecall) -> list[str]:
    return [*(f"{100 * share:.1f} %" for share in recall.total.recall), f"{recall.total.mean_overlap:.3f}"]


if __name__ == "__main__":
    main()
