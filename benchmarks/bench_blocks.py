"""What blocks of positives prove, against their size: `python benchmarks/bench_blocks.py [options]`.

On parts of a real table across images, in processor seconds of one thread: shares of single positives after 2 rounds of
ascent and after many; then blocks that begin with either, as they are, and after some seconds of ascent over the shares of
blocks. Writes benchmarks/results/blocks.md and blocks.png. Needs the score tables that benchmarks/_common.py looks for.
"""

from __future__ import annotations

import argparse
import time
from copy import deepcopy
from pathlib import Path

from _blocks import Blocks
from _common import RESULTS
from _solver_runs import cut_by_images
from eesvm._support.threads import Workers
from eesvm.calibration.ranks import RankedProblem, rank
from eesvm.calibration.search.ascent import Ascent, Shares
from eesvm.calibration.search.neighbourhoods import NeighbourhoodSearch
from eesvm.calibration.search.reduce import Box, ReducedProblem, cheap_box, reduce

TOLERANCE = 0.003  # of a block's loss, which its search may miss
Row = tuple[str, int, str, int, float, float, float, int]  # table, size, shares, blocks, seconds, first, best, steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", default="pets_cat")
    parser.add_argument("--exemplars", type=int, nargs="+", default=[30, 100])
    parser.add_argument("--negatives", type=int, default=20_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--seconds", type=float, default=20.0, help="of ascent over the shares of blocks")
    parser.add_argument("--rounds", type=int, default=24, help="of ascent, for the second kind of shares")
    parser.add_argument("--moves", type=int, default=2000, help="of the search for a good solution")
    options = parser.parse_args()
    rows: list[Row] = []
    for n in options.exemplars:
        problem = cut_by_images(options.table, True, n, options.negatives)
        rows += measure(f"{options.table}, {n} exemplars", rank(problem), options)
    write(rows, options)


def measure(name: str, ranked: RankedProblem, options: argparse.Namespace) -> list[Row]:
    walker = NeighbourhoodSearch(ranked, None, 0)
    walker.step(options.moves)
    box = cheap_box(ranked, walker.best_loss)
    reduced = reduce(ranked, box)
    print(f"{name}: loss {walker.best_loss:g}, {len(reduced.positives)} positives that matter", flush=True)
    rows: list[Row] = []
    for label, seconds, shares, bound in shares_of(ranked, reduced, options.rounds):
        rows.append((name, 0, label, 0, seconds, bound / walker.best_loss, bound / walker.best_loss, 0))
        print(rows[-1], flush=True)
        for size in options.sizes:
            rows.append(
                (
                    name,
                    size,
                    label,
                    *solve_blocks(ranked, box, reduced, shares, size, walker.best_loss, options.seconds),
                )
            )
            print(rows[-1], flush=True)
    return rows


def shares_of(ranked: RankedProblem, reduced: ReducedProblem, n_rounds: int) -> list[tuple[str, float, Shares, float]]:
    """Shares after 2 rounds of ascent and after many, with the seconds they took and what they prove."""
    began, n_iterations, found = time.process_time(), 8, []
    ascent = Ascent(reduced, ranked.quantum, Workers(1))
    ascent.begin(ranked.order)
    for k in range(1, n_rounds + 1):
        ascent.iterate(n_iterations)
        if k in (2, n_rounds):
            evaluation = ascent.evaluate()
            bound = float(evaluation.values.sum()) * ranked.quantum
            found.append((f"{k} rounds", time.process_time() - began, ascent.shares(evaluation), bound))
        if ascent.grow(ranked.order, k % 2 == 0) < 0.01 * len(ascent.row):
            n_iterations = min(64, 2 * n_iterations)
    return found


def solve_blocks(
    ranked: RankedProblem, box: Box, reduced: ReducedProblem, shares: Shares, size: int, loss: float, limit: float
) -> tuple[int, float, float, float, int]:
    """(blocks, seconds of the first look, what it proves of the loss, the best after some seconds of ascent, steps)."""
    began = time.process_time()
    blocks = Blocks(ranked, box.highest, reduced, shares, size)
    blocks.solve(TOLERANCE)
    seconds, first = time.process_time() - began, blocks.bound
    best, length, n_vain, n_steps, kept = first, 0.5, 0, 0, deepcopy(blocks.parts)
    while time.process_time() - began < limit:
        blocks.share_anew(length * (loss - blocks.bound))
        blocks.solve(TOLERANCE)
        n_steps, n_vain = n_steps + 1, 0 if blocks.bound > 1.0005 * best else n_vain + 1
        if blocks.bound > best:
            best, kept = blocks.bound, deepcopy(blocks.parts)
        if n_vain == 3:
            blocks.parts, length, n_vain = deepcopy(kept), length / 2, 0
    return len(blocks.parts), seconds, first / loss, best / loss, n_steps


def write(rows: list[Row], options: argparse.Namespace) -> None:
    lines = [
        "| table | shares of | block size | blocks | seconds | proven at once, of the loss | after ascent | its steps |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, size, label, n_blocks, seconds, first, best, n_steps in rows:
        what = str(size) if size else "single positives, no search"
        after = f"{100 * best:.1f} % | {n_steps}" if n_steps else "- | -"
        lines.append(
            f"| {name} | {label} | {what} | {n_blocks or '-'} | {seconds:.1f} | {100 * first:.1f} % | {after} |"
        )
    arguments = f"--exemplars {shown(options.exemplars)} --sizes {shown(options.sizes)} --seconds {options.seconds:g}"
    page = (
        f"# Blocks of positives\n\n{__doc__.split(chr(10), 2)[2].strip()}\n\n`python benchmarks/bench_blocks.py {arguments}`\n\n"
        + "\n".join(lines)
    )
    Path(RESULTS, "blocks.md").write_text(
        f"{page}\n\n![proven against the size of blocks](blocks.png)\n", encoding="utf-8"
    )
    draw(rows, Path(RESULTS, "blocks.png"), options)


def shown(numbers: list[int]) -> str:
    return " ".join(map(str, numbers))


def draw(rows: list[Row], path: Path, options: argparse.Namespace) -> None:
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row[0] for row in rows))
    figure = Figure(figsize=(5.5 * len(names), 4), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for label in dict.fromkeys(row[2] for row in rows):
            single, *parts = [row for row in rows if row[0] == name and row[2] == label]
            sizes = [row[1] for row in parts]
            (line,) = axes.plot(sizes, [100 * row[5] for row in parts], "o--", label=f"{label}, at once")
            if options.seconds > 0:
                axes.plot(sizes, [100 * row[6] for row in parts], "o-", color=line.get_color(), label="after ascent")
            axes.axhline(100 * single[5], color=line.get_color(), linestyle=":", label=f"{label}, single positives")
        axes.set(title=f"{name}, across images", xlabel="positives of a block", ylabel="proven, % of the loss")
        axes.set_xscale("log", base=2)
        axes.legend(title="shares of")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
