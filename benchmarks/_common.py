"""What the benchmarks share: real and generated problems, Markdown tables, peak memory."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numba
import numpy as np

from eesvm import CalibrationProblem, __version__
from eesvm._support.tables import markdown_table
from eesvm.calibration.tables.examples import synthetic_score_table

ROOT = Path(__file__).resolve().parent.parent
INSTANCES = ROOT.parent / "shared" / "instances"  # real tables; outside the repository, skipped where absent
RESULTS = ROOT / "benchmarks" / "results"


def real_names() -> list[str]:
    """Names of the real tables at hand."""
    return sorted(path.stem for path in INSTANCES.glob("*.npz"))


def real_problem(name: str, across_images: bool = False) -> CalibrationProblem:
    """A real table: the scores are the product of the stored windows and exemplar weights."""
    with np.load(INSTANCES / f"{name}.npz") as stored:
        weights, bias = stored["weights"].T.astype(np.float64), stored["bias"]
        positives, negatives = (
            np.concatenate([(part @ weights + bias).astype(np.float32) for part in _parts(stored[key])])
            for key in ("positive_windows", "negative_windows")
        )
        forbidden = stored["positive_image"][:, None] == stored["exemplar_image"] if across_images else None
    return CalibrationProblem(positives, negatives, forbidden=forbidden)


def generated_problem(
    n_exemplars: int, n_positives: int, n_negatives: int, family: str, seed: int = 0
) -> CalibrationProblem:
    """A generated table as a problem."""
    table = synthetic_score_table(n_exemplars, n_positives, n_negatives, family, seed)
    return CalibrationProblem(table.scores[:n_positives], table.scores[n_positives:])


def cut(
    problem: CalibrationProblem, n_exemplars: int, n_positives: int, n_negatives: int, seed: int = 0
) -> CalibrationProblem:
    """A random part of a problem, down to the given sizes."""
    random = np.random.default_rng(seed)
    columns, positives, negatives = (
        np.sort(random.permutation(n)[:wanted])
        for n, wanted in (
            (problem.n_exemplars, n_exemplars),
            (problem.n_positives, n_positives),
            (problem.n_negatives, n_negatives),
        )
    )
    return CalibrationProblem(
        np.ascontiguousarray(problem.positive_scores[positives][:, columns]),
        np.ascontiguousarray(problem.negative_scores[negatives][:, columns]),
        forbidden=None if problem.forbidden is None else problem.forbidden[positives][:, columns],
    )


def size(problem: CalibrationProblem) -> str:
    return f"{problem.n_exemplars} x {problem.n_positives:,} x {problem.n_negatives:,}"


def markdown(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    return markdown_table(headings, [[str(cell) for cell in row] for row in rows], numbers=False)


def machine() -> str:
    """One line on what ran this."""
    return (
        f"{date.today()}, eesvm {__version__}, Python {sys.version.split()[0]}, numpy {np.__version__}, "
        f"numba {numba.__version__}, {platform.machine()} with {os.cpu_count()} cores"
    )


def held_memory(field: str) -> int:
    """Bytes, from /proc: VmRSS is what this process holds, RssAnon that outside of mapped files, VmHWM the most it held.

    Not from getrusage, whose peak is handed on from the process that started this one.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def forget_peak() -> None:
    """VmHWM counts from here."""
    Path("/proc/self/clear_refs").write_text("5")


def _parts(windows: np.ndarray, rows: int = 4096) -> list[np.ndarray]:
    return [windows[start : start + rows].astype(np.float64) for start in range(0, len(windows), rows)]


def first_calls(start: str, call: str) -> list[list[str]]:
    """CPU seconds of `start` and then of `call` in a new process, without and with compiled code on disk, as rows."""
    script = f"import time\n{start}\nbegan = time.process_time()\n{call}\nprint(began, time.process_time() - began)"
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        for label in ("nothing compiled yet", "compiled code on disk"):
            command = [sys.executable, "-c", script]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            rows.append([label, *(f"{float(seconds):.1f}" for seconds in done.stdout.split())])
    return rows
