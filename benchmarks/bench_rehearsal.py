"""A rehearsal at the size of the paper's largest experiment: `python benchmarks/bench_rehearsal.py`.

Writes docs/results/rehearsal.md. Section 5.4 of the paper: ten classes of 640 to 2,000 exemplars and 3,000 to 13,000
positive windows, tested on two million negatives. The described windows are generated, and on disk; everything after that
is what `eesvm train` and the tables of `eesvm reproduce` do: training, scores, calibration, evaluation, one class after
the other, with time, peak memory and disk of each stage. A class that is done is kept in the folder of `--scratch`, so an
interrupted rehearsal goes on where it was. `--tiny` is a quick look whether everything runs, printed and not written.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from _common import ROOT, forget_peak, held_memory, machine, markdown
from _rehearsal_data import (
    Sizes,
    World,
    blocks,
    class_name,
    make_test,
    make_training,
    open_training,
    paper_sizes,
    tiny_sizes,
)
from eesvm._support.files import atomic_write
from eesvm.calibration.files.calibrations import save_calibration
from eesvm.calibration.problem import any_accepts
from eesvm.calibration.tables.score_table import write_score_table
from eesvm.detector.class_calibration import calibrate_class
from eesvm.detector.class_training import score_class, train_class
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_table import TrainingWindows
from eesvm.exemplars.files import save_exemplars
from eesvm.exemplars.scoring import score_windows
from eesvm.metrics import average_precision, false_positives_at_recall, recall_at

STAGES = ("windows made up", "training", "scores", "joint calibration", "independent sigmoids", "evaluation")
# Measured on photographs with one core, see benchmarks/results/windows.md and descriptors.md.
WINDOW_SECONDS, DESCRIPTOR_SECONDS, WINDOWS_PER_IMAGE, BYTES_PER_WINDOW = 1.0, 0.1, 2000, 2 * 1280
ILSVRC_IMAGES, ILSVRC_CLASSES, WORKERS = 80_000, 200, 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--tiny", action="store_true", help="small and printed only")
    add("--classes", type=int, default=10)
    add("--dimension", type=int, default=256, help="of descriptors (256, that of the default options)")
    add("--time-limit", type=float, default=30.0, help="seconds for the search of a class (30)")
    add("--scratch", type=Path, help="folder for some 4 GB (a temporary one)")
    arguments = parser.parse_args()
    sizes = tiny_sizes() if arguments.tiny else paper_sizes(arguments.classes, arguments.dimension)
    with scratch(arguments.scratch) as folder:
        made = made_windows(folder, sizes)
        windows = open_training(folder)
        results = [of_class(k, folder, windows, arguments.time_limit) for k in range(len(sizes.exemplars))]
    text = page(sizes, made, results, arguments.time_limit)
    print(text)
    if not arguments.tiny:
        (ROOT / "docs" / "results").mkdir(exist_ok=True)
        (ROOT / "docs" / "results" / "rehearsal.md").write_text(text)


@contextmanager
def scratch(given: Path | None) -> Iterator[Path]:
    if given is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
    else:
        given.mkdir(parents=True, exist_ok=True)
        yield given


class Stages:
    """Seconds and peak memory of stages, and what they wrote."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, float]] = {}

    @contextmanager
    def stage(self, name: str, files: Sequence[Path] = ()) -> Iterator[None]:
        forget_peak()
        began = time.perf_counter()
        yield
        seconds, peak = time.perf_counter() - began, held_memory("VmHWM")
        self.found[name] = {"seconds": seconds, "peak": peak, "disk": sum(file.stat().st_size for file in files)}


def made_windows(folder: Path, sizes: Sizes) -> dict[str, float]:
    """Generate the windows, unless they are there."""
    note = folder / "made.json"
    if note.exists():
        known = json.loads(note.read_text())
        if known["sizes"] == json.loads(json.dumps(asdict(sizes))):
            return known["stage"]
        raise SystemExit(f"{folder} holds a rehearsal of another size: give another folder")
    stages, world = Stages(), World(sizes)
    with stages.stage(STAGES[0], [folder / "train.npy", folder / "test.npy"]):
        make_training(folder, sizes, world)
        make_test(folder, sizes, world)
    keep(note, {"sizes": asdict(sizes), "stage": stages.found[STAGES[0]]})
    return stages.found[STAGES[0]]


def of_class(k: int, folder: Path, windows: TrainingWindows, time_limit: float) -> dict[str, Any]:
    """Everything from training to evaluation of one class, unless it is known."""
    name, note = class_name(k), folder / f"{class_name(k)}.json"
    known = json.loads(note.read_text()) if note.exists() else {}
    if known.get("time limit") == time_limit:
        return known
    options = DetectorOptions.make(
        changes={
            "calibration.time_limit": time_limit,
            "calibration.node_limit": None,
            "calibration.max_negatives": 100_000,
        }
    )
    stages = Stages()
    files = {end: folder / f"{name}{end}" for end in (".safetensors", ".npz", "-joint.json")}
    with stages.stage("training", [files[".safetensors"]]):
        trained = train_class(windows, name, options.training)
        save_exemplars(files[".safetensors"], trained.exemplars, trained.instances)
    with stages.stage("scores", [files[".npz"]]):
        scores = score_class(windows, trained, options.calibration)
        write_score_table(files[".npz"], scores.table)
    with stages.stage("joint calibration", [files["-joint.json"]]):
        fitted = calibrate_class(scores, ["joint"], options.calibration)
        save_calibration(files["-joint.json"], fitted["joint"], exemplar_names=trained.names)
    with stages.stage("independent sigmoids"):
        fitted |= calibrate_class(scores, ["sigmoid"], options.calibration)
    result = fitted["joint"].result_
    found: dict[str, Any] = {
        "class": name, "exemplars": len(trained.instances), "training negatives": trained.n_negatives,
        "positives": scores.table.n_positives, "negatives": scores.table.n_rows - scores.table.n_positives,
        "loss": result.loss, "bound": result.lower_bound, "gap": result.gap, "redundant": result.n_redundant,
        "status": result.status, "time limit": time_limit,
    }  # fmt: skip
    del scores
    with stages.stage("evaluation"):
        found |= evaluate(folder, k, trained, fitted)
    found["stages"] = stages.found
    keep(note, found)
    seconds = ", ".join(f"{stage} {item['seconds']:.0f} s" for stage, item in stages.found.items())
    print(f"{name}: {found['exemplars']:,} exemplars, gap {100 * found['gap']:.1f} %; {seconds}", flush=True)
    return found


def evaluate(folder: Path, k: int, trained: Any, fitted: dict[str, Any]) -> dict[str, Any]:
    """Tables 4 and 5 of the paper, the scores of one block of windows in memory at a time."""
    rows, owner = np.load(folder / "test.npy", mmap_mode="r"), np.load(folder / "test_owner.npy")
    thresholds = fitted["joint"].thresholds_
    scores = {name: np.empty(len(rows)) for name in ("sigmoid", "joint", "single")}
    is_accepted = np.empty(len(rows), dtype=bool)
    for a, b in blocks(len(rows)):
        raw = score_windows(rows[a:b], trained.exemplars.coef_, trained.exemplars.intercept_)
        is_accepted[a:b] = any_accepts(raw, thresholds)
        for name in ("sigmoid", "joint"):
            scores[name][a:b] = fitted[name].decision_function(raw)
        scores["single"][a:b] = trained.single.scores(rows[a:b])
    is_positive = owner == k
    recall = recall_at(is_positive, is_accepted)
    return {
        "test windows": len(rows),
        "recall": recall,
        "accepted": int((is_accepted & ~is_positive).sum()),
        "false positives": {n: false_positives_at_recall(is_positive, s, recall) for n, s in scores.items()},
        "window AP": {n: average_precision(is_positive, s) for n, s in scores.items()},
    }


def keep(path: Path, content: dict[str, Any]) -> None:
    with atomic_write(path, text=True) as handle:
        handle.write(json.dumps(content))


# The page


def page(sizes: Sizes, made: dict[str, float], results: Sequence[dict[str, Any]], time_limit: float) -> str:
    sums = {stage: [result["stages"][stage] for result in results] for stage in STAGES[1:]}
    rows = [[STAGES[0], f"{made['seconds']:.0f}", "", mebibytes(made["peak"]), mebibytes(made["disk"])]]
    rows += [
        [stage, f"{sum(i['seconds'] for i in items):.0f}", f"{max(i['seconds'] for i in items):.0f}",
         mebibytes(max(i["peak"] for i in items)), mebibytes(sum(i["disk"] for i in items))]
        for stage, items in sums.items()
    ]  # fmt: skip
    total = made["seconds"] + sum(i["seconds"] for items in sums.values() for i in items)
    rows.append(
        ["all", f"{total:.0f}", "", mebibytes(max(made["peak"], *(i["peak"] for x in sums.values() for i in x))), ""]
    )
    n_images, n_exemplars = sizes.n_images, sum(sizes.exemplars)
    return (
        f"# A rehearsal at the size of the paper's section 5.4\n\n`python benchmarks/bench_rehearsal.py`, {machine()}, "
        f"search limit {time_limit:g} s a class.\n\nThe windows are generated, not cut from images, as vectors of "
        f"{sizes.dimension} numbers: {n_images:,} training images with {n_exemplars:,} objects of {len(sizes.exemplars)} "
        f"classes, and {results[0]['test windows']:,} test windows. So the figures of merit below tell of the generated "
        "vectors and not of photographs; times, memory and disk are what this is about. Descriptors are read from a memory "
        "map, whose pages count towards the peaks below while the system has room for them.\n\n## Stages\n\n"
        + markdown(["stage", "seconds, all classes", "slowest class", "peak memory", "on disk"], rows)
        + "\n\n## Classes\n\n"
        + markdown(
            [
                "class",
                "exemplars",
                "positives",
                "negatives",
                "false positives",
                "at least",
                "gap",
                "redundant",
                "seconds of training",
                "of calibration",
            ],
            [class_row(result) for result in results],
        )
        + "\n\nOn the test windows, at the recall that the joint thresholds reach:\n\n"
        + markdown(
            [
                "class",
                "recall",
                "joint thresholds",
                "joint + sigmoid",
                "independent sigmoids",
                "single SVM",
                "window AP, joint + sigmoid",
                "independent sigmoids",
                "single SVM",
            ],
            [test_row(result) for result in results],
        )
        + f"\n\n## On paper: {ILSVRC_IMAGES:,} images and {WORKERS} workers\n\n"
        + on_paper(sizes, results)
        + "\n"
    )


def class_row(result: dict[str, Any]) -> list[str]:
    seconds = {stage: f"{item['seconds']:.0f}" for stage, item in result["stages"].items()}
    return [
        result["class"], f"{result['exemplars']:,}", f"{result['positives']:,}", f"{result['negatives']:,}",
        f"{result['loss']:,.0f}", f"{result['bound']:,.0f}", f"{100 * result['gap']:.1f} %", f"{result['redundant']:,}",
        seconds["training"], seconds["joint calibration"],
    ]  # fmt: skip


def test_row(result: dict[str, Any]) -> list[str]:
    counts, precisions = result["false positives"], result["window AP"]
    names = ("joint", "sigmoid", "single")
    return [result["class"], f"{100 * result['recall']:.1f} %", f"{result['accepted']:,}",
            *(f"{counts[name]:,.0f}" for name in names), *(f"{100 * precisions[name]:.1f}" for name in names)]  # fmt: skip


def on_paper(sizes: Sizes, results: Sequence[dict[str, Any]]) -> str:
    """What was measured here, in proportion: images for windows, classes for the rest."""

    def mean(stage: str) -> float:
        return sum(result["stages"][stage]["seconds"] for result in results) / len(results)

    cores = os.cpu_count() or 1
    jobs = [
        ("windows", ILSVRC_IMAGES * WINDOW_SECONDS, "1.0 s an image and core, `benchmarks/results/windows.md`"),
        (
            "descriptors, pooled",
            ILSVRC_IMAGES * DESCRIPTOR_SECONDS,
            "0.1 s an image, `benchmarks/results/descriptors.md`",
        ),
        *(
            (stage, cores * mean(stage) * ILSVRC_CLASSES, f"{mean(stage):.0f} s a class here, on {cores} cores")
            for stage in ("training", "scores", "joint calibration", "independent sigmoids")
        ),
    ]
    rows = [[name, f"{seconds / 3600:.1f}", f"{seconds / 60 / WORKERS:.1f}", why] for name, seconds, why in jobs]
    total = sum(seconds for _, seconds, _ in jobs)
    rows.append(["all", f"{total / 3600:.1f}", f"{total / 60 / WORKERS:.1f}", ""])
    disk = ILSVRC_IMAGES * WINDOWS_PER_IMAGE * BYTES_PER_WINDOW / 2**30
    reduced = ILSVRC_IMAGES * WINDOWS_PER_IMAGE * 4 * sizes.dimension / 2**30
    return (
        f"{ILSVRC_CLASSES} classes of {sum(sizes.exemplars) // len(sizes.exemplars):,} exemplars on average. Reckoned in "
        "proportion from what was measured on this machine, for workers of one core each that are never idle; nobody has "
        "run it.\n\n"
        + markdown(["stage", "core hours", f"minutes with {WORKERS} workers", "from"], rows)
        + f"\n\nDisk: {disk:,.0f} GiB of descriptors in the cache ({WINDOWS_PER_IMAGE:,} windows an image, 1,280 half-precision "
        f"numbers each), and {reduced:,.0f} GiB for the table of {sizes.dimension} numbers a window that training reads. A "
        "class with 2,000 exemplars and 100,000 negatives needs the memory that the table of stages shows; classes are "
        "independent of each other, so that a worker with that much takes one at a time."
    )


def mebibytes(n: float) -> str:
    return f"{n / 2**20:,.0f} MiB"


if __name__ == "__main__":
    main()
