"""How long `eesvm add` takes: `python benchmarks/bench_add.py DATA/bccd OUT`.

A model of about `--exemplars` exemplars of one class is trained, or taken from OUT where it is there, and `--added` objects
of further images are added to it by the verb, in a process of its own, `--times` times. Prints seconds of each by the clock
and of processor time, the start of Python, reading the model and writing it anew included, and how busy the machine was.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from _common import ROOT  # noqa: F401  puts src on the path
from eesvm.datasets import open_dataset
from eesvm.datasets.writers import write_coco
from eesvm.structures import Dataset

COMMAND = [sys.executable, "-m", "eesvm"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--class-name", default="RBC")
    parser.add_argument("--exemplars", type=int, default=500)
    parser.add_argument("--added", type=int, default=10)
    parser.add_argument("--times", type=int, default=3)
    arguments = parser.parse_args()
    out = arguments.out
    if not (out / "model" / "model.json").exists():
        prepare(arguments)
    size = sum(path.stat().st_size for path in (out / "model").rglob("*") if path.is_file()) / 1e6
    print(f"model folder {size:.0f} MB", flush=True)
    for _ in range(arguments.times):
        started, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [*COMMAND, "add", str(out / "model"), str(out / "more"), "-o", str(out / "grown"), "--overwrite"]
        subprocess.run([*command, "--no-cache"], check=True)
        elapsed, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        user, system = after.ru_utime - used.ru_utime, after.ru_stime - used.ru_stime
        load = f"load {os.getloadavg()[0]:.1f} over the last minute"
        print(f"{elapsed:.1f} s, of processor time {user:.1f} and {system:.1f} s in the system; {load}", flush=True)


def prepare(arguments: argparse.Namespace) -> None:
    """Images until there are enough objects for the model, and then for what is added."""
    dataset = open_dataset(arguments.data)
    order = np.random.default_rng(0).permutation(len(dataset)).tolist()
    parts: tuple[list, list] = ([], [])
    counts = [0, 0]
    for row in order:
        own = [one for one in dataset[row].instances if one.class_name == arguments.class_name and not one.is_difficult]
        which = 0 if counts[0] < arguments.exemplars else 1
        left = (arguments.exemplars, arguments.added)[which] - counts[which]
        if left <= 0:
            break
        # Of an image with more objects than are wanted, the others are difficult: neither exemplars nor background.
        kept = [replace(one, is_difficult=number >= left) for number, one in enumerate(own)]
        counts[which] += min(left, len(own))
        parts[which].append(replace(dataset[row], instances=tuple(kept)))
    for name, images in zip(("first", "more"), parts, strict=True):
        write_coco(Dataset(name, tuple(images), (arguments.class_name,)), arguments.out / name, overwrite=True)
    subprocess.run(
        [*COMMAND, "train", str(arguments.out / "first"), "-o", str(arguments.out / "model"), "--time-limit", "20"],
        check=True,
    )


if __name__ == "__main__":
    main()
