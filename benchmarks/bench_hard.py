"""How much of the loss a few hard positives decide, and what it takes to prove it: `python benchmarks/bench_hard.py`.

In processor seconds of one thread, for each dense table: the loss of a neighbourhood search of all positives; the same for
the k hardest alone, each the dearest of those that the levels so far leave uncovered; then the nodes that the search of
hard positives needs for one share of the loss after the other, until one takes more than `--most` seconds.

Writes benchmarks/results/hard.md. Needs the score tables that benchmarks/_common.py looks for.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from _common import RESULTS, machine, markdown
from bench_core import DENSE
from eesvm._support.threads import Workers
from eesvm.calibration.ranks import RankedProblem, rank
from eesvm.calibration.search import core_kernels
from eesvm.calibration.search.core_search import CoreSearch
from eesvm.calibration.search.neighbourhoods import NeighbourhoodSearch
from eesvm.calibration.search.proof import Proof
from eesvm.calibration.search.reduce import Levels, cheap_box

SIZES = (5, 10, 20, 50, 100)
SHARES = (0.2, 0.25, 0.3, 0.34, 0.38, 0.42, 0.46, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
FEW_MOVES = 40  # of the search that says who is the next of the hardest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=DENSE, default=["rbc_own", "rbc_across"])
    parser.add_argument(
        "--walk", type=float, default=20.0, help="seconds of neighbourhood search of all positives (20)"
    )
    parser.add_argument(
        "--most", type=float, default=10.0, help="seconds for a share of the loss, and for k positives (10)"
    )
    options = parser.parse_args()
    losses, nodes = [], []
    for name in options.only:
        ranked = rank(DENSE[name].problem())
        table = str(DENSE[name])
        loss = walked(ranked, options.walk)[1]
        print(table, loss, flush=True)
        for k, part in hardest(ranked, options.most):
            losses.append([table, f"{loss:,.0f}", k, f"{part:,.0f}", f"{100 * part / loss:.0f} %"])
            print(*losses[-1], flush=True)
        for row in proven(ranked, loss, options.most):
            nodes.append([table, *row])
            print(*nodes[-1], flush=True)
    command = f"python benchmarks/bench_hard.py --only {' '.join(options.only)} --walk {options.walk:g} --most {options.most:g}"
    Path(RESULTS, "hard.md").write_text(
        f"# How hard the hard positives are\n\n{__doc__.split(chr(10) * 2)[1].strip()}\n\n`{command}`, {machine()}.\n\n"
        + markdown(("table", "loss of all", "hardest positives", "their loss", "of that of all"), losses)
        + "\n\n"
        + markdown(("table", "proven, of the loss", "bound", "core", "nodes", "CPU seconds"), nodes)
        + "\n"
    )


def walked(ranked: RankedProblem, seconds: float, moves: int | None = None) -> tuple[Levels, float]:
    """The levels of a neighbourhood search, and their loss."""
    search = NeighbourhoodSearch(ranked, None, 0)
    began = time.process_time()
    while time.process_time() - began < seconds and search.n_moves < (moves or math.inf):
        search.step(20)
        if search.best_loss == 0:
            break
    return search.best_levels, search.best_loss


def hardest(ranked: RankedProblem, seconds: float) -> Iterator[tuple[int, float]]:
    """(k, loss of the k hardest)."""
    core = [int(ranked.coverable[ranked.difficulty[ranked.coverable].argmax()])]
    while len(core) < max(SIZES):
        levels, _ = walked(replace(ranked, coverable=np.array(core)), seconds, FEW_MOVES)
        dearest = next_hardest(ranked, levels)
        if dearest < 0:
            break
        core.append(dearest)
        if len(core) in SIZES:
            yield len(core), walked(replace(ranked, coverable=np.array(core)), seconds)[1]


def next_hardest(ranked: RankedProblem, levels: Levels) -> int:
    """The dearest positive to cover besides what levels accept, -1 where all are covered."""
    n_negatives = len(ranked.prices)
    is_free = np.zeros(-(-n_negatives // 64) * 64, dtype=bool)
    is_free[:n_negatives] = True
    for row, level in zip(ranked.order, levels, strict=True):
        is_free[row[:level]] = False
    free = np.packbits(is_free, bitorder="little").view(np.uint64)
    least = np.full(len(ranked.delta), 2**30, dtype=np.int32)
    top = np.full(ranked.n_exemplars, ranked.order.shape[1], dtype=np.int32)
    number = np.arange(n_negatives, dtype=np.int32)
    core_kernels.look_at(ranked.order, number, ranked.delta, top, free, np.zeros_like(top), least)
    dearest = int(ranked.coverable[least[ranked.coverable].argmax()])
    return dearest if least[dearest] > 0 else -1


def proven(ranked: RankedProblem, loss: float, seconds: float) -> Iterator[list[object]]:
    """A row for each share of the loss that was proven in time, and for the first that was not."""
    proof = Proof(cheap_box(ranked, np.inf))
    proof.cut_off(loss, cheap_box(ranked, loss))
    began = time.process_time()
    search = CoreSearch(ranked, proof, Workers(1), lambda: time.process_time() - began > seconds)
    for share in SHARES:
        began, n_before = time.process_time(), search.n_nodes
        search._aim(int(loss))
        search.target = math.ceil(share * loss)
        while search.bound < share * loss and time.process_time() - began < seconds:
            search.step(loss)
        took, n_nodes = time.process_time() - began, search.n_nodes - n_before
        if search.bound < share * loss:
            yield [f"{100 * share:.0f} %, not reached", "-", len(search.core), f"{n_nodes:,}", f"{took:.1f}"]
            return
        yield [f"{100 * share:.0f} %", f"{search.bound:,}", len(search.core), f"{n_nodes:,}", f"{took:.1f}"]


if __name__ == "__main__":
    main()
