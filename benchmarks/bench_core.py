"""Hard positives beside shares alone: `python benchmarks/bench_core.py [--limit 60]`.

The exact search on dense tables, with the turns of the core and without them, one after the other in one process, each
with the same limit; every certificate is verified. Writes benchmarks/results/core.md and core.png. Needs the score
tables that benchmarks/_common.py looks for.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from _common import RESULTS, machine, markdown
from _solver_runs import Table, warm_up
from eesvm import CalibrationResult, solve, verify
from eesvm.calibration.search import branching

TABLES = (
    Table("cut", "pets_cat", True, 100, n_negatives=20_000),
    Table("cut", "bccd_rbc", False, 100, n_negatives=20_000),
    Table("cut", "bccd_rbc", True, 100, n_negatives=20_000),
    Table("generated", "overlapping", False, 100, 2_473, 20_000),
    Table("real", "pets_cat", True),
)
WAYS = {"shares": (0.0, 0.0), "shares and hard positives": branching._CORE_BEHIND}
HEADINGS = ("table", "search", "loss", "bound", "gap", "status", "core", "leaves", "verified", "its seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of each search")
    options = parser.parse_args()
    warm_up("exact", 70_000)
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
    page = f"# Hard positives\n\n`python benchmarks/bench_core.py --limit {options.limit:g}`, {machine()}. {__doc__.split(chr(10), 2)[2].strip()}"
    Path(RESULTS, "core.md").write_text(
        f"{page}\n\n{markdown(HEADINGS, rows)}\n\n![loss and bound over time](core.png)\n", encoding="utf-8"
    )
    draw(histories, options.limit)


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
