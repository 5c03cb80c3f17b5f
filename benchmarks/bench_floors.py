"""Few exemplars and a recall floor: what the search by columns proves, and what the search by shares proves instead.

In: .npz files with `positives` and `negatives`, a table of scores each; without any, a table of correlated detectors is
generated. Nothing is fetched. Out: lines of a Markdown table. Times are CPU seconds of one thread, without compiling.

    python benchmarks/bench_floors.py unsmile.npz --floors 0.999 0.99 0.975 0.95 --search columns --time-limit 120
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from eesvm import CalibrationProblem, solve, verify
from eesvm.calibration import exact


def generated(seed: int = 0) -> CalibrationProblem:
    """9 correlated detectors, 2,802 positives of which each belongs to one or two, 935 negatives."""
    random = np.random.default_rng(seed)
    positives, negatives = (random.normal(size=(n, 9)) + random.normal(size=(n, 1)) for n in (2802, 935))
    for _ in range(2):
        positives[np.arange(2802), random.integers(9, size=2802)] += random.exponential(2.0, 2802)
    return CalibrationProblem(positives, negatives)


def measured(name: str, problem: CalibrationProblem, floor: float, time_limit: float, is_checked: bool) -> str:
    solve(problem, min_recall=floor, time_limit=2.0, n_jobs=1)  # compiles what is not yet compiled
    began = time.process_time()
    result = solve(problem, min_recall=floor, time_limit=time_limit, n_jobs=1)
    seconds = time.process_time() - began
    began = time.process_time()
    checked = ""
    if is_checked:
        is_valid = verify(problem, result).is_valid
        checked = f"{'holds' if is_valid else 'FAILS'}, {time.process_time() - began:.1f} s"
    cells = [name, f"{floor:g}", f"{result.loss:g}", f"{result.lower_bound:g}", f"{result.gap:.1%}", result.status]
    return " | ".join(["", *cells, f"{seconds:.1f}", str(result.n_nodes), checked, ""]).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--floors", nargs="+", type=float, default=[0.99, 0.95, 0.9])
    parser.add_argument("--search", choices=["columns", "shares"], default="columns")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--verify", action="store_true")
    options = parser.parse_args()
    if options.search == "shares":
        exact.MOST_EXEMPLARS = 0
    tables = {}
    for file in options.files:
        with np.load(file) as arrays:
            tables[file.stem] = CalibrationProblem(arrays["positives"], arrays["negatives"])
    tables = tables or {"generated": generated()}
    print("| table | floor | loss | bound | gap | status | CPU s | nodes | certificate |\n|" + "---|" * 9, flush=True)
    for name, problem in tables.items():
        for floor in options.floors:
            print(measured(name, problem, floor, options.time_limit, options.verify), flush=True)


if __name__ == "__main__":
    main()
