"""The exact solver against Algorithm 1, a compact integer program (HiGHS) and CP-SAT: `make bench-solver`.

Writes benchmarks/results/solver.md and its pictures. Every run has a process of its own, one after the other. The whole
takes hours, since Algorithm 1 is given ten minutes on each of dozens of tables: with `--resume FILE` what has been measured
is kept in FILE, so that an interrupted benchmark can be resumed, and `--render` lays the tables out again.
`--before FOLDER` measures the exact search alone, in another copy of the repository and in this one, and writes
benchmarks/results/solver_beside.md.
`--quick` is a look whether everything works: small tables and short limits, printed and not written.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import distributions
from math import ceil
from pathlib import Path

from _common import RESULTS, ROOT, machine, real_names
from _solver_beside import beside
from _solver_runs import Runs, Table, Task, child
from _solver_sections import (
    ALGORITHM1,
    BRIEF,
    EXACT,
    SECTIONS,
    Pictures,
    Section,
    Settings,
    brief,
    cut_tasks,
    is_done,
    real_tasks,
)
from eesvm._support.figures import save_png
from eesvm.calibration.tables.examples import FAMILIES, synthetic_score_table

PACKAGES = ROOT / ".venv" / "bench"  # highspy and ortools, apart from the rest: ortools wants an older protobuf


def main() -> None:
    arguments = parse_arguments()
    if arguments.child:
        child(arguments.child)
        return
    settings = make_settings(arguments)
    if arguments.before:
        beside(arguments, settings, PACKAGES)
        return
    runs = Runs(arguments.resume, PACKAGES)
    chosen = choose_sections(arguments)
    tasks = [task for section in chosen for task in section.tasks(settings)]
    announce(tasks, runs)
    if any(runs.known(task) is None for task in tasks):
        runs.warm_up()
    began = time.perf_counter()
    for number, task in enumerate(tasks, start=1):
        measure(task, runs, settings, f"[{number}/{len(tasks)}, {time.perf_counter() - began:,.0f} s]")
    for task in longer_tasks(settings, runs) if tasks else ():
        measure(task, runs, settings, "[longer]")
    pictures: Pictures = {}
    pages = [heading(settings, runs), *([arguments.note] if arguments.note else [])]
    for section in SECTIONS:
        outcomes = {(task.table, task.method): runs.known(task) for task in section.tasks(settings)}
        outcomes = {key: outcome for key, outcome in outcomes.items() if outcome is not None}
        if section.name in ("real", "cut"):
            longer = {(task.table, task.method): runs.known(task) for task in longer_tasks(settings, runs)}
            outcomes |= {key: outcome for key, outcome in longer.items() if outcome is not None and key in outcomes}
        if outcomes:
            pages.append(f"## {section.title}\n\n{section.render(settings, outcomes, pictures)}")
        elif section.name == "real" and not settings.real:
            pages.append(f"## {section.title}\n\nThe real tables are not at hand.")
    deliver("\n\n".join(pages) + "\n", pictures, output_folder(arguments))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--limit", type=float, help="seconds for Algorithm 1 on each table (600)")
    add(
        "--long-limit",
        type=float,
        help="at most so many seconds for Algorithm 1 where exact has a proof and it has none yet (600)",
    )
    add("--exact-limit", type=float, help="seconds for the exact solver (600)")
    add(
        "--real-limit",
        type=float,
        help="seconds for exact on whole real tables and unproven others (that of --exact-limit)",
    )
    add("--baseline-limit", type=float, help="seconds for HiGHS and for CP-SAT (120)")
    add("--large-limit", type=float, help="seconds for the large table (1800)")
    add("--frontier-limit", type=float, help="seconds for each floor of the recall frontiers (120)")
    add("--max-nonzeros", type=int, default=5_000_000, help="a larger compact model is not tried (5,000,000)")
    add("--only", choices=[section.name for section in SECTIONS], help="one part of the benchmark")
    add("--large", action="store_true", help="also a generated table of 2,000 x 13,000 x 1,000,000, in a memory map")
    add("--large-families", nargs="+", choices=FAMILIES, default=["easy"], help="families of the large table (easy)")
    add("--scratch", type=Path, help="folder for the memory map, 8 GB (that for temporary files)")
    add("--sizes", type=int, nargs="+", help="exemplars of the tables of the paper's size (30 60 100 140)")
    add(
        "--cut-negatives",
        type=int,
        default=20_000,
        help="negatives of those tables, 0 for all of the real ones (20,000)",
    )
    add("--quick", action="store_true", help="small tables, limits of 10 s; printed, written only with --output")
    add(
        "--resume",
        type=Path,
        help="JSON lines of finished runs, read and added to; a new file after a change of the code",
    )
    add("--render", action="store_true", help="measure nothing, lay out what --resume holds")
    add("--note", default="", help="a sentence for the head of the page: what else has to be known of these runs")
    add("--output", type=Path, help="folder for the page and its pictures (benchmarks/results)")
    add(
        "--before",
        type=Path,
        help="another copy of the repository: exact on real tables and cuts there and here, alone",
    )
    add("--cores", type=int, default=2, help="with --before: of each run (2)")
    add(
        "--at-once", type=int, default=1, help="with --before: so many runs at the same time, each on its own cores (1)"
    )
    add("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.render and arguments.resume is None:
        parser.error("--render needs --resume FILE")
    if arguments.before and arguments.resume is None:
        parser.error("--before needs --resume FILE")
    return arguments


def make_settings(arguments: argparse.Namespace) -> Settings:
    quick = arguments.quick

    def seconds(given: float | None, default: float) -> float:
        return given if given is not None else 10.0 if quick else default

    names = real_names()
    return Settings(
        limit=seconds(arguments.limit, 600),
        long_limit=seconds(arguments.long_limit, 600),
        exact_limit=seconds(arguments.exact_limit, 600),
        real_limit=seconds(arguments.real_limit or arguments.exact_limit, 600),
        baseline_limit=seconds(arguments.baseline_limit, 120),
        large_limit=seconds(arguments.large_limit, 1800),
        frontier_limit=seconds(arguments.frontier_limit, 120),
        max_nonzeros=arguments.max_nonzeros,
        real=tuple(name for name in names if not quick or name in ("bccd_platelets", "bccd_wbc")),
        sizes=tuple(arguments.sizes or ((30,) if quick else (30, 60, 100, 140))),
        cut_negatives=arguments.cut_negatives,
        growth=(25, 50) if quick else (25, 50, 100, 200, 400),
        large=(200, 1300, 50_000) if quick else (2000, 13_000, 1_000_000),
        large_families=tuple(arguments.large_families),
        scratch=arguments.scratch or Path(tempfile.gettempdir()),
    )


def choose_sections(arguments: argparse.Namespace) -> list[Section]:
    if arguments.render:
        return []
    if arguments.only:
        return [section for section in SECTIONS if section.name == arguments.only]
    return [section for section in SECTIONS if section.name != "large" or arguments.large]


def announce(tasks: Sequence[Task], runs: Runs) -> None:
    open_tasks = [task for task in tasks if runs.known(task) is None]
    hours = sum(task.longest for task in open_tasks) / 3600
    print(f"{len(open_tasks)} of {len(tasks)} runs to go, {hours:.1f} h if every one needs its limit", flush=True)


def longer_tasks(settings: Settings, runs: Runs) -> list[Task]:
    """Runs to be made again with more time.

    exact, where it proved no optimum of a table of the paper's size; Algorithm 1, where only this shows that exact is
    twenty times faster.
    """
    tables = dict.fromkeys(task.table for task in [*cut_tasks(settings), *real_tasks(settings)])
    longer = []
    for ours, theirs in (settings.tasks(table, (EXACT, ALGORITHM1)) for table in tables):
        own, other = runs.known(ours), runs.known(theirs)
        if own and not is_done(own) and settings.real_limit > ours.limit:
            longer.append(replace(ours, limit=settings.real_limit))
        if own and other and is_done(own) and not is_done(other):
            limit = min(settings.long_limit, 10 * ceil(2.5 * own["seconds"]))
            if limit > max(theirs.limit, 20 * own["seconds"]):
                longer.append(replace(theirs, limit=limit))
    return longer


def measure(task: Task, runs: Runs, settings: Settings, where: str) -> None:
    """Run the task unless it is known, and say so."""
    if runs.known(task) is not None:
        return
    print(f"{where} {task.table}: {task.method} ...", flush=True)
    if task.table.source == "memory map":
        with large_table(task.table, settings.scratch) as folder:
            outcome = runs.measure(task, folder)
    else:
        outcome = runs.measure(task)
    cells = [f"{name} {cell}" for name, cell in zip(BRIEF, brief(outcome), strict=True) if cell != "-"]
    print(f"    {', '.join([str(outcome.get('size', '')), *cells])}", flush=True)


@contextmanager
def large_table(table: Table, scratch: Path) -> Iterator[str]:
    """A generated table on disk, whose pages are not in memory."""
    with tempfile.TemporaryDirectory(dir=scratch) as parent:
        folder = Path(parent) / "table"
        began = time.perf_counter()
        synthetic_score_table(table.n_exemplars, table.n_positives, table.n_negatives, table.name, out=folder)
        with (folder / "scores.npy").open("rb") as handle:
            os.fsync(handle.fileno())
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        print(f"    the table was written in {time.perf_counter() - began:.0f} s", flush=True)
        yield str(folder)


def output_folder(arguments: argparse.Namespace) -> Path | None:
    """Where to write: nowhere if this is a quick look, or one part without the others."""
    if arguments.output is not None:
        return arguments.output
    is_partial = arguments.quick or (arguments.only and arguments.resume is None)
    return None if is_partial else RESULTS


def deliver(text: str, pictures: Pictures, folder: Path | None) -> None:
    print(f"\n{text}")
    if folder is None:
        print("printed only; --output FOLDER writes it")
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "solver.md").write_text(text)
    for name, figure in pictures.items():
        save_png(figure, folder / name)
    print(f"written to {folder / 'solver.md'}")


def heading(settings: Settings, runs: Runs) -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    longer = (
        f" (on tables that exact proved and it did not: 25 times as long as exact, {settings.long_limit:g} s at most)"
        if settings.long_limit > settings.limit
        else ""
    )
    resumed = f" {runs.n_read} runs were kept from an earlier part of the same benchmark." if runs.n_read else ""
    return (
        f"# The exact solver\n\n`{command()}`, {machine()} and {memory:.0f} GiB, {versions()}. Limits: exact "
        f"{settings.exact_limit:g} s ({settings.real_limit:g} s on the whole real tables, and again on the others that were not proven), Algorithm 1 {settings.limit:g} s{longer}, HiGHS and CP-SAT {settings.baseline_limit:g} s each, "
        f"the large table {settings.large_limit:g} s.{resumed}\n\n"
        "Every run has a process of its own. Peak memory is the most that the process held in memory while it solved, the "
        "scores included. exact and CP-SAT use all cores. HiGHS and CP-SAT get a compact model to which the reductions of "
        "the exact solver were applied, with the first leaf of Algorithm 1 as a cap and to start from; making it counts as their time; their "
        "bounds are rounded up to whole numbers. Nodes: of the tree, or what the solver counts as such (branches of CP-SAT)."
    )


def command() -> str:
    """The command line without the paths of this machine."""
    given, shown = iter(sys.argv[1:]), []
    for word in given:
        if word in ("--resume", "--output", "--scratch", "--note"):
            next(given, None)
        elif word != "--render" and not word.startswith(("--resume=", "--output=", "--scratch=", "--note=")):
            shown.append(word)
    return shlex.join(["python", "benchmarks/bench_solver.py", *shown])


def versions() -> str:
    found = {package.name: package.version for package in distributions(path=[*sys.path, str(PACKAGES)])}
    highs = f"highspy {found['highspy']}" if "highspy" in found else f"HiGHS of scipy {found['scipy']}"
    return f"{highs}, " + (f"ortools {found['ortools']}" if "ortools" in found else "no ortools")


if __name__ == "__main__":
    main()
