"""Solve random problems in all processes and compare every answer with an oracle: `python fuzz/soak.py [options]`.

`make soak` runs it; SOAK="--minutes 60" for longer. A finding is printed with its seed, and `--first SEED --problems 1`
repeats it. The problems and the oracle, which tries every cut of every exemplar, are in tests/helpers/soak.py, those for
the search of hard positives in tests/helpers/soak_core.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from multiprocessing import get_context
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

CHUNK = 200  # problems that a process takes at a time
EVERY_MOVE = 4  # every so many problems are solved with all moves of neighbourhood search


def main() -> None:
    options = read_options()
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # for processes that start now
    started = time.monotonic()
    n_problems = n_solves = n_findings = 0
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        waiting = {pool.submit(run_chunk, *chunk) for chunk in first_chunks(options)}
        following = options.first + sum(size for _, size in first_chunks(options))
        while waiting:
            done = next(as_completed(waiting))
            waiting.remove(done)
            size, solves, findings = done.result()
            n_problems, n_solves, n_findings = n_problems + size, n_solves + solves, n_findings + len(findings)
            print(*findings, sep="\n", end="\n" if findings else "", flush=True)
            if time.monotonic() - started < 60 * options.minutes and following < options.first + options.problems:
                size = min(CHUNK, options.first + options.problems - following)
                waiting.add(pool.submit(run_chunk, following, size))
                following += size
    print(
        f"seeds {options.first} to {following - 1}: {n_problems:,} problems, {n_solves:,} solves, {n_findings} findings, "
        f"{time.monotonic() - started:.0f} s in {options.processes} processes"
    )
    sys.exit(1 if n_findings else 0)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="no new problems after that (10)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first problem (0)")
    parser.add_argument("--problems", type=int, default=10**9, help="how many at most")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def first_chunks(options: argparse.Namespace) -> list[tuple[int, int]]:
    """(first seed, problems) of one chunk for every process, and of one that waits."""
    starts = range(options.first, options.first + min(options.problems, 2 * CHUNK * options.processes), CHUNK)
    return [(start, min(CHUNK, options.first + options.problems - start)) for start in starts]


def run_chunk(first: int, size: int) -> tuple[int, int, list[str]]:
    """(problems, solves, findings) of the seeds from `first` on."""
    import eesvm._support.threads as threads
    from helpers.soak import run_case
    from helpers.soak_core import run_core_case

    threads.product_threads = _no_limits  # a thread that holds a limit takes longer than such a small problem

    outcomes = []
    for seed in range(first, first + size):
        with few_moves() if seed % EVERY_MOVE else nullcontext():
            outcomes.append(run_case(seed))
        outcomes.append(run_core_case(seed))
    return size, sum(n for n, _ in outcomes), [fault for _, faults in outcomes for fault in faults]


@contextmanager
def few_moves() -> Iterator[None]:
    """Neighbourhood search makes a tenth of its moves: more is left to bounds and splits, and problems take less time."""
    from eesvm.calibration.search import branching, limited_search

    with (
        patch.multiple(branching, _FIRST_MOVES=40, _MOVES=10, _MANY_MOVES=30, _FEW_MOVES=6),
        patch.object(limited_search, "_FIRST_WALKS", 2),
    ):
        yield


@contextmanager
def _no_limits(*_: object) -> Iterator[None]:
    yield


if __name__ == "__main__":
    main()
