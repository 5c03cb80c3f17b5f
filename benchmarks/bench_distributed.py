"""Training with Dask workers on this machine: overhead, speed-up, bytes moved, memory of a worker.

Writes benchmarks/results/distributed.md. Embedded scenes, HOG descriptors and an empty cache for every run; the model of
every run is compared with that of the run without workers, to the bit. Workers are started beforehand, which is timed
on its own. Some ten minutes on two cores; `--tiny` is a quick look whether everything runs, printed and not written.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from _common import RESULTS, machine, markdown
from eesvm._support.dask_tasks import DaskEngine
from eesvm.datasets.scenes import make_scenes
from eesvm.descriptors import DescriptorCache
from eesvm.detector import ExemplarDetector
from eesvm.detector.options import DetectorOptions

STAGES = ("windows", "scaling and PCA", "descriptors", "training", "scores", "calibration")
N_EMPTY_TASKS = 200


class Apart(DaskEngine):
    """Workers that see no folder of ours, as on machines without a common disk."""

    def sees(self, folder: Any) -> bool:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="a few scenes, printed and not written")
    parser.add_argument("--images", type=int, default=120, help="scenes to train on (120)")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="numbers of workers (1 2)")
    arguments = parser.parse_args()
    n_images = 4 if arguments.tiny else arguments.images
    dataset = make_scenes(n_images, 0)
    text = report(dataset, arguments.workers)
    if not arguments.tiny:
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / "distributed.md").write_text(text)
    print(text)


def report(dataset: Any, numbers: list[int]) -> str:
    serial, seconds, stages = train(dataset, None)
    rows = [["no workers", f"{seconds:.1f}", "1.00", "", "", *stages]]
    costs = []
    for n in numbers:
        for name, kind in (("common folder", DaskEngine), ("none in common", Apart)):
            started = time.perf_counter()
            with kind("local", n_workers=n) as engine:
                starting = time.perf_counter() - started
                overhead = empty_tasks(engine)
                model, used, stages = train(dataset, engine)
                peak = max(engine.client.run(peak_memory).values())
                is_same = "yes" if same(model, serial) else "no"
                moved = asdict(engine.traffic)
            rows.append([f"{n}, {name}", f"{used:.1f}", f"{seconds / used:.2f}", f"{peak >> 20:,}", is_same, *stages])
            costs.append(
                [f"{n}, {name}", f"{starting:.1f}", f"{1000 * overhead:.1f}", *(mebibytes(v) for v in moved.values())]
            )
    heading = ("workers", "s", "speed-up", "peak MiB of a worker", "same model", *STAGES)
    n_objects = sum(1 for _ in dataset.instances())
    return (
        f"# Training with Dask workers\n\n`python benchmarks/bench_distributed.py`, {machine()}.\n\n"
        f"{len(dataset)} scenes, {n_objects} objects of {len(dataset.classes)} classes.\n\n## Time\n\n"
        f"Stages in seconds. Without workers the libraries use both cores, in windows and searches above all; a worker keeps to one thread, so that two workers are to be compared with one.\n\n{markdown(heading, rows)}\n\n"
        "## Overhead and bytes moved\n\nStarting the workers, a task that does nothing, and MiB of values.\n\n"
        + markdown(("workers", "start, s", "task, ms", "files written", "shared", "sent", "returned"), costs)
        + "\n"
    )


def train(dataset: Any, engine: DaskEngine | None) -> tuple[ExemplarDetector, float, list[str]]:
    changes = {"descriptor.name": "hog", "descriptor.n_components": 256, "calibration.node_limit": 20, "n_jobs": 1}
    with tempfile.TemporaryDirectory() as folder:
        detector = ExemplarDetector(DetectorOptions.make(changes=changes))
        started = time.perf_counter()
        detector.fit(dataset, cache=DescriptorCache(Path(folder) / "cache"), scheduler=engine)
        seconds = time.perf_counter() - started
    return detector, seconds, [f"{detector.seconds_.get(stage, 0.0):.1f}" for stage in STAGES]


def empty_tasks(engine: DaskEngine) -> float:
    """Seconds for a task that does nothing."""
    engine.submit(int).result()
    started = time.perf_counter()
    for task in [engine.submit(int) for _ in range(N_EMPTY_TASKS)]:
        task.result()
    return (time.perf_counter() - started) / N_EMPTY_TASKS


def peak_memory() -> int:
    """Bytes, mapped files included."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def same(one: ExemplarDetector, other: ExemplarDetector) -> bool:
    return one.classes_ == other.classes_ and all(
        np.array_equal(a.exemplars.coef_, b.exemplars.coef_)
        and np.array_equal(a.single.weights, b.single.weights)
        and np.array_equal(a.calibrators["joint"].thresholds_, b.calibrators["joint"].thresholds_)
        and np.array_equal(a.calibrators["joint"].sigmoids_, b.calibrators["joint"].sigmoids_)
        for a, b in zip(one.models_, other.models_, strict=True)
    )


def mebibytes(n_bytes: int) -> str:
    return f"{n_bytes / (1 << 20):.1f}"


if __name__ == "__main__":
    main()
