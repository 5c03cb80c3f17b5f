"""The exact search beside what it was: the real tables and the cuts in two copies of the repository, in one benchmark.

In: the folder of another copy, whose own bench_solver runs the tables there, and how many runs may go on at the same
time, each on cores of its own. Out: benchmarks/results/solver_beside.md and a figure of loss and bound over time.
Certificates of the other copy are not verified again.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from _common import RESULTS, markdown
from _core_page import grid
from _solver_runs import Outcome, Runs, Table, Task
from _solver_sections import EXACT, Settings, cut_tasks, is_done, mebibytes, number, percent, real_tasks, seconds
from eesvm._support.figures import save_png

HEADINGS = ("table", "E x P x N", "search", "loss", "bound", "gap", "status", "nodes", "seconds", "peak memory")
PROOFS = ("table", "leaves", "its size", "verified", "its seconds", "its peak memory")
SLOWER = 1.2  # times the seconds of the other copy, from which a table is named
DRAWN = 60.0  # seconds of a search that is drawn
Both = dict[Table, list[Outcome | None]]  # before, where that was measured, and now


def beside(arguments: argparse.Namespace, settings: Settings, packages: Path) -> None:
    """Measure what is not in the file of --resume yet, and write the page."""
    tasks = [task for task in (*real_tasks(settings), *cut_tasks(settings)) if task.method == EXACT]
    tasks.sort(key=lambda task: not _is_long(task.table))
    copies = [Runs(_file(arguments.resume, way), packages, root) for way, root in _copies(arguments.before)]
    if not arguments.render:
        _measure(tasks, copies, arguments)
    found: Both = {task.table: [runs.known(task) for runs in copies] for task in tasks}
    page = _page({table: both for table, both in found.items() if both[1] is not None}, arguments, settings)
    folder = arguments.output or RESULTS
    (folder / "solver_beside.md").write_text(page, encoding="utf-8")
    print(page)


def _copies(before: Path) -> list[tuple[str, Path]]:
    return [("before", before), ("now", Path(__file__).resolve().parent.parent)]


def _file(resume: Path, way: str) -> Path:
    return resume.with_name(f"{resume.stem}_{way}{resume.suffix}")


def _is_long(table: Table) -> bool:
    """Whether a table takes minutes: these come first, so that none is left when all others are done."""
    return (table.across and table.source == "real") or table.n_exemplars >= 100 or table.name == "bccd_rbc"


def _measure(tasks: Sequence[Task], copies: Sequence[Runs], arguments: argparse.Namespace) -> None:
    """All runs of this copy before those of the other, as many at a time as there are groups of cores."""
    cores = sorted(os.sched_getaffinity(0))
    n_each = min(arguments.cores, len(cores))
    n_groups = max(1, min(arguments.at_once, len(cores) // n_each))
    free: SimpleQueue[list[int]] = SimpleQueue()
    for k in range(n_groups):
        free.put(cores[k * n_each : (k + 1) * n_each])
    began = time.perf_counter()

    def run(runs: Runs, task: Task) -> None:
        mine = free.get()
        try:
            outcome = runs.measure(task, cores=mine, verifies=runs is copies[-1])
        finally:
            free.put(mine)
        said = [str(outcome.get(key, "-")) for key in ("status", "loss", "bound", "seconds", "is_verified")]
        print(f"[{time.perf_counter() - began:,.0f} s] {runs.root.name}, {task.table}: {', '.join(said)}", flush=True)

    with ThreadPoolExecutor(n_groups) as pool:
        list(pool.map(lambda runs: runs.warm_up(), copies))
        list(pool.map(lambda order: run(*order), [(runs, task) for runs in reversed(copies) for task in tasks]))


def _page(found: Both, arguments: argparse.Namespace, settings: Settings) -> str:
    rows, proofs = [], []
    for table, outcomes in found.items():
        for way, outcome in zip(("before", "now"), outcomes, strict=True):
            if outcome is not None:
                rows.append(_row(table, way, outcome))
        now = outcomes[1]
        proofs.append(
            [table, number(now.get("leaves")), f"{now.get('certificate_bytes', 0) / 2**20:.1f} MiB",
             {True: "yes", False: "**no**"}.get(now.get("is_verified"), "-"), seconds(now.get("verify_seconds")),
             mebibytes(now.get("verify_peak"))]
        )  # fmt: skip
    drawn = {
        table: both for table, both in found.items() if any(run and run.get("seconds", 0) >= DRAWN for run in both)
    }
    if drawn:
        save_png(_figure(drawn), (arguments.output or RESULTS) / "solver_beside.png")
    sizes = " ".join(map(str, settings.sizes))
    machines = dict.fromkeys(str(both[1]["machine"]) for both in found.values())
    return f"""# The exact search beside what it was

`python benchmarks/bench_solver.py --before FOLDER --cores {arguments.cores} --at-once {arguments.at_once} --sizes {sizes}`,
{", ".join(machines)}. {arguments.note}

Every run has a process and cores of its own, {arguments.cores} of them, and others run beside it; limit {settings.exact_limit:g} s.

{_verdict(found)}

{markdown(HEADINGS, rows)}

{"![loss and bound over time, before and now](solver_beside.png)" if drawn else ""}

The certificates of now, each checked by `eesvm.verify` with nothing but the scores:

{markdown(PROOFS, proofs)}
"""


def _row(table: Table, way: str, outcome: Outcome) -> list[object]:
    return [table, outcome.get("size", ""), way, number(outcome.get("loss")), number(outcome.get("bound")),
            percent(outcome), outcome["status"], number(outcome.get("nodes")), seconds(outcome.get("seconds")),
            mebibytes(outcome.get("peak"))]  # fmt: skip


def _verdict(found: Both) -> str:
    """What became of proofs and times, in sentences."""
    proven = {table: both for table, both in found.items() if both[0] is not None and is_done(both[0])}
    lost = [str(table) for table, both in proven.items() if not is_done(both[1])]
    new = [str(table) for table, both in found.items() if both[0] and is_done(both[1]) and table not in proven]
    slower = [
        f"{table} ({seconds(both[0]['seconds'])} s, now {seconds(both[1]['seconds'])} s)"
        for table, both in proven.items()
        if is_done(both[1]) and both[1]["seconds"] > SLOWER * both[0]["seconds"]
    ]
    verified = sum(both[1].get("is_verified") is True for both in found.values())
    wrong = [str(table) for table, both in proven.items() if is_done(both[1]) and both[0]["loss"] != both[1]["loss"]]
    lines = [
        f"- Measured before: {sum(both[0] is not None for both in found.values())} of {len(found)} tables, "
        f"{len(proven)} of them proven optimal; now besides: {'; '.join(new) or 'none'}; no more: "
        f"{'; '.join(lost) or 'none'}.",
        f"- Proven both times, and more than {SLOWER} times as long now: {'; '.join(slower) or 'none'}.",
        f"- Verified now: {verified} of {len(found)} certificates.",
    ]
    return "\n".join([*lines, *([f"- **Other losses: {'; '.join(wrong)}.**"] if wrong else [])])


def _figure(drawn: Both) -> object:
    figure, places = grid(len(drawn))
    for axes, (table, outcomes) in zip(places, drawn.items(), strict=False):
        for outcome, way, colour in zip(outcomes, ("before", "now"), ("tab:grey", "tab:blue"), strict=True):
            if outcome is None or not outcome.get("history"):
                continue
            moments, losses, bounds = zip(*outcome["history"], strict=True)
            ends = (*moments, max(outcome["seconds"], moments[-1]))
            axes.step(ends, (*losses, losses[-1]), where="post", color=colour, linestyle=":")
            axes.step(ends, (*bounds, bounds[-1]), where="post", color=colour, label=way)
        axes.set(title=str(table), xlabel="seconds", ylim=(0, None))
        axes.title.set_fontsize(9)
    figure.axes[0].set_ylabel("bound, and loss (dotted)")
    figure.axes[0].legend(fontsize=8, loc="lower right")
    return figure
