"""One run of a solver on one table, in a process of its own, so that its peak memory is its own.

In: a `Task`: a table, a method and a limit. Out: a dictionary of plain numbers, the outcome. `Runs` keeps outcomes in a
file of JSON lines, if one is given, so that a benchmark of hours can be interrupted and its tables laid out again.
Absent on purpose: what the figures mean, which `bench_solver` says.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import numpy as np

from _common import INSTANCES, ROOT, forget_peak, generated_problem, held_memory, machine, real_problem, size
from _solver_models import compact_model, solve_with_cp_sat, solve_with_highs
from eesvm import CalibrationProblem, CalibrationResult, solve, verify

try:
    from eesvm import recall_frontier
except ImportError:
    recall_frontier = None

BASELINES = ("HiGHS", "CP-SAT")
GAPS = (0.05, 0.02, 0.01, 0.002, 0.0)  # "seconds until" are kept for these
FLOORS = (1.0, 0.999, 0.995, 0.99, 0.98, 0.95)  # of a frontier
_BASELINE_MEMORY = 16 * 2**30  # address space of a baseline, which must not bring the machine down
_HISTORY_LENGTH = 600  # points kept of a history

Outcome = dict[str, object]


@dataclass(frozen=True)
class Table:
    """Which score table; sizes are 0 where they follow from the table."""

    source: str  # "real", "cut" (a part of a real one, by images), "generated" or "memory map" (generated, on disk)
    name: str  # of a real table, or the family of a generated one
    across: bool = False  # own-image pairs are forbidden
    n_exemplars: int = 0
    n_positives: int = 0
    n_negatives: int = 0

    def __str__(self) -> str:
        part = f", {self.n_exemplars} exemplars" if self.n_exemplars else ""
        if self.source in ("generated", "memory map"):
            return f"{self.source}, {self.name.replace('_', '-')}{part}"
        return f"{self.name}{part}, {'across images' if self.across else 'own image allowed'}"

    def problem(self, folder: str = "") -> CalibrationProblem:
        """The problem; `folder` holds the scores of a memory map."""
        if self.source == "real":
            return real_problem(self.name, self.across)
        if self.source == "cut":
            return cut_by_images(self.name, self.across, self.n_exemplars, self.n_negatives)
        if self.source == "generated":
            return generated_problem(self.n_exemplars, self.n_positives, self.n_negatives, self.name)
        scores = np.load(Path(folder) / "scores.npy", mmap_mode="r")
        return CalibrationProblem(scores[: self.n_positives], scores[self.n_positives :])


@dataclass(frozen=True)
class Task:
    table: Table
    method: str  # of `solve`, "frontier" or one of BASELINES
    limit: float  # seconds; for each floor of a frontier
    max_nonzeros: int = 0  # of the model of a baseline

    @property
    def key(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def longest(self) -> float:
        """Seconds, if every limit is needed."""
        return self.limit * (len(FLOORS) if self.method == "frontier" else 1)


class Runs:
    """Outcomes of tasks: from the file where they are in it, else measured now and added to it."""

    def __init__(self, file: Path | None, packages: Path, root: Path = ROOT) -> None:
        self.file, self.packages, self.root = file, packages, root
        self.n_read = 0
        self._known: dict[str, Outcome] = {}
        self._writing = threading.Lock()  # runs of several threads end in one file
        if file is not None and file.exists():
            for line in file.read_text().splitlines():
                record = json.loads(line)
                self._known[record["key"]] = record["outcome"]
            self.n_read = len(self._known)

    def known(self, task: Task) -> Outcome | None:
        return self._known.get(task.key)

    def measure(self, task: Task, folder: str = "", cores: Sequence[int] = (), verifies: bool = True) -> Outcome:
        """`cores`: that it may use, all if none are named. Unless it `verifies` it ends when it has a solution."""
        outcome = self._known.get(task.key)
        if outcome is None:
            outcome = self._run_child(task, folder, cores, verifies) | {
                "date": str(date.today()),
                "machine": machine(),
            }
            self._known[task.key] = outcome
            if self.file is not None and not outcome["status"].startswith("failed"):
                with self._writing, self.file.open("a") as handle:
                    handle.write(json.dumps({"key": task.key, "outcome": outcome}) + "\n")
        return outcome

    def warm_up(self) -> None:
        """Have everything compiled and kept on disk, so that no run pays for it."""
        self._run_child(Task(Table("generated", "easy"), "warm up", 600), "")

    def _run_child(self, task: Task, folder: str, cores: Sequence[int] = (), verifies: bool = True) -> Outcome:
        """What the child printed: a line about the solution, and one about its verification, if it `verifies`."""
        order = asdict(task) | {"folder": folder, "packages": str(self.packages)}
        command = [sys.executable, str(self.root / "benchmarks" / "bench_solver.py"), "--child", json.dumps(order)]
        if cores:
            command = ["taskset", "-c", ",".join(map(str, cores)), *command]
        paths = [str(self.root / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        outcome: Outcome = {}
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(command, text=True, env=environment, stdout=subprocess.PIPE, stderr=errors) as child,
        ):
            is_late = threading.Event()
            timer = threading.Timer(3 * task.longest + 1200, lambda: (is_late.set(), child.kill()))
            timer.start()
            try:
                for line in child.stdout or ():
                    if line.startswith("{"):
                        outcome |= json.loads(line)
                    if not verifies and "status" in outcome:
                        break
                else:
                    child.wait()
            finally:
                timer.cancel()
                child.kill()
            if "status" not in outcome:
                errors.seek(0)
                lines = errors.read().strip().splitlines() or [f"the process ended with {child.wait()}"]
                outcome["status"] = (
                    f"failed: {'it did not end long after its limit' if is_late.is_set() else lines[-1][:100]}"
                )
        return outcome


def cut_by_images(name: str, across: bool, n_exemplars: int, n_negatives: int, seed: int = 0) -> CalibrationProblem:
    """Part of a real table: random images until there are enough exemplars, their positives, random negatives."""
    with np.load(INSTANCES / f"{name}.npz") as stored:
        exemplar_image, positive_image = stored["exemplar_image"], stored["positive_image"]
    random = np.random.default_rng(seed)
    images = random.permutation(np.unique(exemplar_image))
    of_image = [np.flatnonzero(exemplar_image == image) for image in images]
    n_images = 1 + int(np.searchsorted(np.cumsum([len(part) for part in of_image]), n_exemplars))
    columns = np.sort(np.concatenate(of_image[:n_images])[:n_exemplars])
    positives = np.flatnonzero(np.isin(positive_image, images[:n_images]))
    whole = real_problem(name, across)
    negatives = np.sort(random.permutation(whole.n_negatives)[: n_negatives or None])
    return CalibrationProblem(
        np.ascontiguousarray(whole.positive_scores[positives][:, columns]),
        np.ascontiguousarray(whole.negative_scores[negatives][:, columns]),
        forbidden=None if whole.forbidden is None else whole.forbidden[positives][:, columns],
    )


def run_here(task: Task, folder: str, packages: str) -> Iterator[Outcome]:
    """Solve the table and say how that went, then verify the result if it carries a certificate."""
    began = time.perf_counter()
    problem = task.table.problem(folder)
    about = {"open_seconds": time.perf_counter() - began}
    about |= {"size": size(problem), "n_exemplars": problem.n_exemplars, "n_positives": problem.n_positives}
    if task.method in BASELINES:
        yield about | _run_baseline(problem, task, packages)
        return
    warm_up(task.method, problem.n_negatives)
    if task.method == "frontier":
        yield about | _run_frontier(problem, task)
        return
    with peak_memory() as peak:
        result = solve(problem, method=task.method, time_limit=task.limit)
    yield about | _summary(result) | peak
    if result.certificate is not None:
        with peak_memory() as peak:
            began = time.perf_counter()
            verification = verify(problem, result)
            seconds = time.perf_counter() - began
        yield {
            "is_verified": verification.is_valid,
            "verify_seconds": seconds,
            "verify_peak": peak["peak"],
            "verify_problems": verification.problems,
        }


def warm_up(method: str, n_negatives: int) -> None:
    """Compile, or load what was compiled before, all kernels that the table needs."""
    for seed in range(6):  # some of them need a tree
        problem = noise(12, 30, 200, seed)
        if method == "frontier":
            solve(problem, min_recall=0.9, time_limit=5)
        solve(problem, method="exact" if method == "frontier" else method, time_limit=5)
    if method in ("exact", "frontier") and n_negatives >= np.iinfo(np.uint16).max:  # ranks of more than two bytes
        solve(noise(3, 6, 70_000, 0, shift=-3.0), time_limit=10)


def noise(n_exemplars: int, n_positives: int, n_negatives: int, seed: int, shift: float = 1.0) -> CalibrationProblem:
    random = np.random.default_rng(seed)
    positives = random.normal(shift, size=(n_positives, n_exemplars)).astype(np.float32)
    return CalibrationProblem(positives, random.normal(size=(n_negatives, n_exemplars)).astype(np.float32))


@contextmanager
def peak_memory() -> Iterator[dict[str, int]]:
    """Bytes held at most by this process within: `peak` in all, `peak_private` without mapped files (Linux)."""
    found: dict[str, int] = {}
    most, is_over = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while True:
            most = max(most, held_memory("RssAnon"))
            if is_over.wait(0.05):
                return

    forget_peak()
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        is_over.set()
        watcher.join()
        found |= {"peak": held_memory("VmHWM"), "peak_private": most}


def _summary(result: CalibrationResult) -> Outcome:
    history = result.history
    steps = np.unique(np.linspace(0, len(history) - 1, min(len(history), _HISTORY_LENGTH)).astype(int))
    outcome: Outcome = {
        "loss": result.loss,
        "bound": result.lower_bound,
        "status": result.status,
        "nodes": result.n_nodes,
        "seconds": result.seconds,
        "n_redundant": result.n_redundant,
        "history": [history[step] for step in steps],
        "seconds_to": {
            f"{gap:g}": next((t for t, loss, bound in history if loss - bound <= gap * loss), None) for gap in GAPS
        },
    }
    if result.certificate is not None:
        held = (value.nbytes for value in vars(result.certificate).values() if isinstance(value, np.ndarray))
        outcome |= {"leaves": result.certificate.n_leaves, "shares": result.certificate.n_shares}
        outcome |= {"certificate_bytes": sum(held)}
    return outcome


def _run_frontier(problem: CalibrationProblem, task: Task) -> Outcome:
    with peak_memory() as peak:
        began = time.perf_counter()
        frontier = recall_frontier(problem, FLOORS, time_limit=task.limit)
        seconds = time.perf_counter() - began
    owed = [asdict(share) for share in frontier.share_of_loss_owed_to_hardest]
    return {"status": "done", "seconds": seconds, "floors": frontier.table(), "owed": owed} | peak


def _run_baseline(problem: CalibrationProblem, task: Task, packages: str) -> Outcome:
    """Reduce, build the compact model and solve it, all within the limit."""
    resource.setrlimit(resource.RLIMIT_AS, (_BASELINE_MEMORY, _BASELINE_MEMORY))
    warm_up("exact", 0)  # the reductions are compiled
    with peak_memory() as peak:
        began = time.perf_counter()
        model = compact_model(problem)
        if model.n_nonzeros > task.max_nonzeros:
            return {"status": "model too large", "nonzeros": model.n_nonzeros}
        left = max(1.0, task.limit - (time.perf_counter() - began))
        solve_with = solve_with_highs if task.method == "HiGHS" else solve_with_cp_sat
        outcome = solve_with(model, left, packages)
        seconds = time.perf_counter() - began
    return outcome | peak | {"seconds": seconds, "nonzeros": model.n_nonzeros}


def child(order: str) -> None:
    """Do the task that `order` describes, and print what comes of it as JSON lines."""
    task = json.loads(order)
    folder, packages, table = task.pop("folder"), task.pop("packages"), Table(**task.pop("table"))
    if task["method"] == "warm up":
        warm_up("algorithm1", 0)
        warm_up("frontier" if recall_frontier else "exact", 10**6)
        verify(problem := generated_problem(30, 500, 5000, "overlapping"), solve(problem, time_limit=30))
        print(json.dumps({"status": "done"}))
        return
    for outcome in run_here(Task(table, **task), folder, packages):
        print(json.dumps(outcome), flush=True)
