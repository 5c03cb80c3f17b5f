"""How long mirrored exemplars and refined masks take: `python benchmarks/bench_mask_times.py OUT`.

Three stages, each a line of OUT/times.jsonl that is not measured again: `eesvm train` on some photographs with and
without mirrored exemplars, from an empty cache; detection by the two models, photograph by photograph in turn, the best
of several times; refinement of a mask handed on by one exemplar and by a vote of five, in processor time. For the other
stages the machine must be quiet.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from _common import ROOT, machine, markdown
from bench_end_to_end import part
from eesvm.datasets import open_dataset
from eesvm.datasets.writers import write_coco
from eesvm.detector import ExemplarDetector
from eesvm.transfer import refine, transfer, transfer_consensus
from eesvm.transfer.annotations import annotate_all
from eesvm.transfer.refinement import mean_masks

WAYS = {"plain": "false", "mirrored": "true"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("out", type=Path, help="folder of models and of what has been measured")
    add("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of datasets")
    add("--set", default="raccoon", help="to train on and to detect in")
    add("--masks", default="pets_voc", help="set with masks")
    add("--images", type=int, default=60, help="to train on")
    add("--photographs", type=int, default=12, help="others, to detect in, and to refine masks in")
    add("--times", type=int, default=3)
    add("--stages", nargs="+", choices=STAGES, default=tuple(STAGES))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "times.jsonl"
    known = {} if not file.exists() else {one["stage"]: one for one in map(json.loads, file.read_text().splitlines())}
    for stage in arguments.stages:
        if stage not in known:
            known[stage] = {"stage": stage, **STAGES[stage](arguments)}
            with file.open("a") as handle:
                handle.write(json.dumps(known[stage]) + "\n")
    print(machine())
    for stage, one in known.items():
        print(f"\n{stage}\n")
        print(markdown(["what", "value"], [[key, value] for key, value in one.items() if key != "stage"]))


def shuffled(arguments: argparse.Namespace) -> tuple[Any, np.ndarray]:
    dataset = open_dataset(arguments.data / arguments.set)
    return dataset, np.random.default_rng(0).permutation(len(dataset))


def train(arguments: argparse.Namespace) -> dict[str, Any]:
    """Seconds of the verb, both ways."""
    dataset, order = shuffled(arguments)
    folder = arguments.out / "train"
    write_coco(part(dataset, order[: arguments.images]), folder, overwrite=True)
    found: dict[str, Any] = {}
    for way, value in WAYS.items():
        command = ["train", str(folder), "-o", str(arguments.out / way), "--set", f"training.mirror={value}"]
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "eesvm", *command, "--no-cache", "--quiet"], check=True)
        found[f"seconds, {way}"] = round(time.perf_counter() - started, 1)
        found[f"exemplars, {way}"] = len(ExemplarDetector.load(arguments.out / way).exemplars_)
    return {"set": arguments.set, "images": arguments.images, **found}


def detect(arguments: argparse.Namespace) -> dict[str, Any]:
    """Seconds for a photograph, the best of several times, both ways in turn."""
    dataset, order = shuffled(arguments)
    chosen = part(dataset, order[arguments.images : arguments.images + arguments.photographs])
    detectors = {way: ExemplarDetector.load(arguments.out / way) for way in WAYS}
    best = {way: np.full(len(chosen), np.inf) for way in WAYS}
    for _ in range(arguments.times):
        for k in range(len(chosen)):
            for way, detector in detectors.items():
                best[way][k] = min(best[way][k], seconds(partial(detector.predict, part(chosen, [k]))))
    ratios = best["mirrored"] / best["plain"]
    return {
        "photographs": len(chosen),
        **{f"seconds a photograph, {way}": round(float(values.mean()), 3) for way, values in best.items()},
        "ratio of the sums": round(float(best["mirrored"].sum() / best["plain"].sum()), 3),
        "ratios, lowest to highest": f"{ratios.min():.2f} to {ratios.max():.2f}",
    }


def refining(arguments: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of processor time of a mask: handed on, and refined after that."""
    found = [r for r in open_dataset(arguments.data / arguments.masks) if any(i.mask for i in r.instances)]
    records = [found[k] for k in np.random.default_rng(0).permutation(len(found))[: 5 + arguments.photographs].tolist()]
    exemplars = list(annotate_all([r.instances[0] for r in records[:5]], {r.image_id: r for r in records}))
    images = [(r.instances[0].box, r.read()) for r in records[5:]]
    means = mean_masks(exemplars)
    rows: dict[str, Any] = {"set": arguments.masks, "photographs": len(images)}
    for name, voters in (("winner", exemplars[:1]), ("vote of 5", exemplars)):
        handing, refined = [], []
        for box, pixels in images:
            size = pixels.shape[1], pixels.shape[0]
            runs = range(arguments.times + 1)
            give = partial(transfer, voters[0]) if len(voters) == 1 else partial(transfer_consensus, voters, None)
            handing.append(min(processor_seconds(partial(give, box, size)) for _ in runs))
            one = give(box, size)
            refined.append(min(processor_seconds(partial(refine, one, voters, pixels, means=means)) for _ in runs))
        rows[f"handed on by {name}, ms"] = f"{1000 * np.mean(handing):.1f}"
        rows[f"refined, {name}, ms"] = f"{1000 * np.mean(refined):.1f} ({1000 * max(refined):.1f} at most)"
    return rows


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def processor_seconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


STAGES: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "train": train,
    "detect": detect,
    "refine": refining,
}

if __name__ == "__main__":
    main()
