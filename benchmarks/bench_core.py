"""Hard positives beside shares alone: `python benchmarks/bench_core.py [--limit 60]`.

`--together FOLDER` searches all dense tables at the same time instead, a process of `--threads` threads for each, and
leaves a file of JSON in FOLDER for each, once when it has a result and again when that is verified. `--page FOLDER`
lays these out, in another section of the page. `--alone FOLDER` lays out tables that had the machine to themselves, one
after the other with `--only`.

The exact search on dense tables, with the turns of the core and without them, one after the other in one process, each
with the same limit; every certificate is verified. Writes benchmarks/results/core.md and core.png. Needs the score
tables that benchmarks/_common.py looks for.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from _common import RESULTS, generated_problem, held_memory, machine, markdown
from _core_page import TURNS, TURNS_NOTE, put_section, write_alone, write_beside, write_dense
from _solver_runs import Table, noise, warm_up
from eesvm import CalibrationResult, solve, verify
from eesvm._support.threads import Workers
from eesvm.calibration.proofs import certified_bound, hard, hard_shares, owners
from eesvm.calibration.ranks import rank
from eesvm.calibration.search import branching, core_search, core_shares
from eesvm.calibration.search.proof import Proof
from eesvm.calibration.search.reduce import cheap_box
from eesvm.calibration.sharing import node

TABLES = (
    Table("cut", "pets_cat", True, 100, n_negatives=20_000),
    Table("cut", "bccd_rbc", False, 100, n_negatives=20_000),
    Table("cut", "bccd_rbc", True, 100, n_negatives=20_000),
    Table("generated", "overlapping", False, 100, 2_473, 20_000),
    Table("real", "pets_cat", True),
)
DENSE = {
    "pets_across": TABLES[4],
    "rbc_own": Table("real", "bccd_rbc", False),
    "rbc_across": Table("real", "bccd_rbc", True),
    "pets_100_across": TABLES[0],
    "rbc_100_own": TABLES[1],
    "rbc_100_across": TABLES[2],
    "overlapping_100": TABLES[3],
}
WAYS = {"shares": (0.0, 0.0), "shares and hard positives": branching._CORE_BEHIND}
HEADINGS = ("table", "search", "loss", "bound", "gap", "status", "core", "leaves", "verified", "its seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of each search")
    parser.add_argument("--together", type=Path, metavar="FOLDER", help="all dense tables side by side")
    parser.add_argument("--only", nargs="+", choices=DENSE, default=list(DENSE), help="some of these")
    parser.add_argument("--threads", type=int, default=2, help="of each of these")
    parser.add_argument("--page", type=Path, metavar="FOLDER", help="lay out what --together left there")
    parser.add_argument("--alone", type=Path, metavar="FOLDER", help="the same, where each table was searched alone")
    parser.add_argument(
        "--beside", type=Path, nargs=2, metavar="FOLDER", help="lay out what two states of the code left there"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        search_one(options.child, options)
        return
    if options.page:
        write_dense(options.page, "python benchmarks/bench_core.py")
        return
    if options.alone:
        write_alone(options.alone, "python benchmarks/bench_core.py")
        return
    if options.beside:
        write_beside(*options.beside, "python benchmarks/bench_core.py")
        return
    warm_up("exact", 70_000)
    if options.together:
        search_together(options)
        return
    rows, histories = [], {}
    for table in TABLES:
        problem = table.problem()
        for way, turn in WAYS.items():
            branching._CORE_BEHIND = turn
            result = solve(problem, time_limit=options.limit)
            began = time.perf_counter()
            is_valid = verify(problem, result).is_valid
            rows.append(row(str(table), way, result, is_valid, time.perf_counter() - began))
            histories[str(table), way] = result.history
            print(*rows[-1], sep=" | ", flush=True)
    page = f"`python benchmarks/bench_core.py --limit {options.limit:g}`, {machine()}. {__doc__.split(chr(10) * 2)[2].strip()}"
    put_section(TURNS, f"{page}\n\n{TURNS_NOTE}\n\n{markdown(HEADINGS, rows)}\n\n![loss and bound over time](core.png)")
    draw(histories, options.limit)


def search_together(options: argparse.Namespace) -> None:
    """A process for each table."""
    problem = generated_problem(20, 200, 3000, "overlapping")
    warm_result = solve(problem, time_limit=20)
    owners._VERY_MANY = 1
    certified_bound._MANY_OWNED = 1
    verify(problem, warm_result)  # compiles that, too
    warm_up_shares()
    options.together.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, "--limit", str(options.limit), "--threads", str(options.threads)]
    command += ["--together", str(options.together)]
    children = [subprocess.Popen([*command, "--child", name]) for name in options.only]
    for child in children:
        child.wait()


def warm_up_shares() -> None:
    """Compile what large parts need, in the search and in the checker."""
    core_search._BUDGET, core_search._TIMES_THE_FIRST, hard._PLAIN_WORDS = 0.0, 0, -1.0
    core_search._TRIAL, core_search._TOO_LONG = 0.0, np.inf
    setattr(core_search.CoreSearch, "_expected", lambda search: 1.0)  # noqa: B010
    core_shares._POSITIVES = core_shares._ROUNDS = core_shares._ROOT_ROUNDS = node._SWEEPS = (
        1  # so that little is closed
    )
    hard_shares._ROUNDS = hard_shares._LEAF_ROUNDS = hard_shares._ROOT_ROUNDS = 1
    core_shares._LEAST_DIVE = core_shares._DIVE = hard_shares._LEAST_SEARCH = hard_shares._SEARCH = -1.0
    for n_exemplars, n_positives, n_negatives in ((12, 40, 600), (70, 30, 70_000)):  # ranks of two bytes, and of four
        problem = noise(n_exemplars, n_positives, n_negatives, seed=0)
        loss, ranked = solve(problem, time_limit=1).loss, rank(problem)
        search = core_search.CoreSearch(ranked, Proof(cheap_box(ranked, np.inf)), Workers(1))
        for _ in range(30):
            search.step(loss)
        if search.proved is not None:
            certified_bound.certified_bound(problem, search.proof().certificate(problem, ranked, 1.0, ranked.quantum))


def search_one(name: str, options: argparse.Namespace) -> None:
    """Search one table and keep what comes of it."""
    file = options.together / f"{name}.json"
    problem = DENSE[name].problem()
    warm_up("exact", problem.n_negatives)
    cpu = time.process_time()
    result = solve(problem, time_limit=options.limit, n_jobs=options.threads)
    cpu = time.process_time() - cpu
    assert result.certificate is not None
    steps = np.unique(np.linspace(0, len(result.history) - 1, min(len(result.history), 2000)).astype(int))
    outcome = {
        "table": str(DENSE[name]),
        "machine": machine(),
        "limit": options.limit,
        "threads": options.threads,
        "loss": result.loss,
        "bound": result.lower_bound,
        "gap": result.gap,
        "status": result.status,
        "seconds": result.seconds,
        "cpu_seconds": cpu,
        "nodes": result.n_nodes,
        "statistics": {key: value for key, value in result.statistics.items() if isinstance(value, int | float | str)},
        "history": [list(map(float, result.history[step])) for step in steps],
        "leaves": result.certificate.n_leaves,
        "shares": result.certificate.n_shares,
        "searched": int(result.certificate.is_searched.sum()),
        "certificate_bytes": sum(
            value.nbytes for value in vars(result.certificate).values() if isinstance(value, np.ndarray)
        ),
        "peak": held_memory("VmHWM"),
    }
    file.write_text(json.dumps(outcome))
    began = time.perf_counter()
    verification = verify(problem, result)
    outcome |= {
        "is_verified": verification.is_valid,
        "verify_problems": verification.problems,
        "verify_seconds": time.perf_counter() - began,
        "peak": held_memory("VmHWM"),
    }
    file.write_text(json.dumps(outcome))
    print(name, *(outcome[key] for key in ("loss", "bound", "gap", "leaves", "is_verified")), flush=True)


def row(table: str, way: str, result: CalibrationResult, is_valid: bool, seconds: float) -> list[object]:
    assert result.certificate is not None
    figures = f"{result.loss:,.0f}", f"{result.lower_bound:,.0f}", f"{100 * result.gap:.1f} %"
    core = result.statistics.get("core") or "-"
    checked = "yes" if is_valid else "no", f"{seconds:.1f}"
    return [table, way, *figures, result.status, core, f"{result.certificate.n_leaves:,}", *checked]


def draw(histories: dict[tuple[str, str], list[tuple[float, float, float]]], limit: float) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(TABLES), 3.6), layout="constrained")
    for axes, table in zip(figure.subplots(1, len(TABLES)), TABLES, strict=True):
        for way, colour in zip(WAYS, ("tab:grey", "tab:blue"), strict=True):
            seconds, losses, bounds = zip(*histories[str(table), way], strict=True)
            ends = (*seconds, limit)
            axes.step(ends, (*losses, losses[-1]), where="post", color=colour, linestyle=":")
            axes.step(ends, (*bounds, bounds[-1]), where="post", color=colour, label=way)
        axes.set(title=str(table), xlabel="seconds", ylim=(0, None))
        axes.title.set_fontsize(9)
    figure.axes[0].set_ylabel("bound, and loss (dotted)")
    figure.axes[0].legend(fontsize=8)
    figure.savefig(Path(RESULTS, "core.png"), dpi=100)


if __name__ == "__main__":
    main()
