"""Pruning statistics and runtimes (section 5.5 of the paper), measured on real score tables.

In: calibration problems by name. Out: a frozen `PruningStudy`: a `Search` for every search that was run, on cuts of
each table to the paper's sizes; the numbers of the section drawn from them; CSV rows and Markdown.
A search that reached its time limit says so; what it would have taken is never guessed, but for the exhaustive tree,
whose size is known: there the time follows from the measured number of nodes per second, and is called an estimate.
Not here: training exemplars, laying the study out (`tables`), and files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import mean, median
from typing import Any

import numpy as np

from eesvm._support.validation import InputError, check_number
from eesvm.calibration.exact import solve
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.result import CalibrationResult
from eesvm.calibration.search.algorithm1 import ALL_OBSERVATIONS
from eesvm.calibration.tables.examples import synthetic_score_table
from eesvm.experiments.search_study.cuts import random_cut

ALGORITHM1, EXACT, EXHAUSTIVE = "Algorithm 1", "exact", "exhaustive tree"
WITHOUT = {
    1: "without observation 1 (bound)",
    2: "without observation 2 (equivalence)",
    3: "without observation 3 (depth)",
    4: "without observation 4 (order)",
}
LITERAL = "satisfied positives not skipped"  # Algorithm 1 to the letter; see `calibration.search.algorithm1`

TINY = (15, 50)  # E-SVMs and positives of the problem that the paper searches exhaustively
SIZES = (TINY, (50, 250), (100, 500))
MAX_POSITIVES, MAX_NEGATIVES = 1_000, 20_000  # of the cut with all E-SVMs, and of any cut
SECONDS = 3.0  # of each search, unless told otherwise

_EXHAUSTIVE_SECONDS = 1.0  # enough to count nodes per second
_SWITCHES: dict[str, dict[str, Any]] = {
    **{name: {"observations": set(ALL_OBSERVATIONS) - {number}} for number, name in WITHOUT.items()},
    LITERAL: {"skip_satisfied": False},
}

StudyProgress = Callable[[str, int, int], object]  # what is searched, searches done, of how many at most


@dataclass(frozen=True)
class Search:
    """One search of one cut of a table."""

    table: str
    is_generated: bool  # the table was drawn from a recipe, not from images
    is_largest: bool  # the largest cut of its table, with all E-SVMs
    n_exemplars: int
    n_positives: int
    n_negatives: int
    search: str  # ALGORITHM1, EXACT, EXHAUSTIVE, LITERAL or a value of WITHOUT
    status: str
    seconds: float
    time_limit: float
    loss: float
    lower_bound: float
    n_nodes: int  # visited
    n_redundant: int  # E-SVMs that accept no positive in the solution found
    depth: int | None = None  # levels of the tree that was searched
    depth_removed: int | None = None  # levels that observation 3 saved
    n_by_bound: int | None = None  # nodes pruned
    n_by_equivalence: int | None = None
    first_seconds: float | None = None  # until the first feasible solution
    first_loss: float | None = None
    first_nodes: int | None = None
    n_tree_nodes: int | None = None  # of the exhaustive tree

    @property
    def is_finished(self) -> bool:
        return self.status == "optimal"

    @property
    def n_later(self) -> int | None:
        """Nodes visited after the first feasible solution; 0 where that met a bound and there was nothing to search."""
        return None if self.first_nodes is None else self.n_nodes - self.first_nodes

    @property
    def cut(self) -> tuple[str, int, int, int]:
        """What was searched: table and sizes."""
        return self.table, self.n_exemplars, self.n_positives, self.n_negatives

    @property
    def pruned_share(self) -> float | None:
        """Of the nodes met after the first feasible solution, pruned or visited, how many were pruned."""
        if self.n_by_bound is None or self.n_by_equivalence is None or self.n_later is None:
            return None
        n_pruned = self.n_by_bound + self.n_by_equivalence
        return n_pruned / (n_pruned + self.n_later) if n_pruned + self.n_later else None

    @property
    def depth_reduction(self) -> float | None:
        """Share of the levels that observation 3 saved."""
        if self.depth is None or self.depth_removed is None:
            return None
        return self.depth_removed / max(1, self.depth + self.depth_removed)

    @property
    def estimate(self) -> float | None:
        """Seconds of the whole exhaustive tree: measured where it was walked to its end, else by nodes per second."""
        if self.n_tree_nodes is None:
            return None
        return self.seconds if self.is_finished else self.n_tree_nodes * self.seconds / self.n_nodes


@dataclass(frozen=True)
class PruningStudy:
    """Section 5.5 on the tables at hand. The named numbers are of real tables; None: could not be measured."""

    searches: tuple[Search, ...]
    time_limit: float
    random_state: int
    notes: tuple[str, ...]  # sentences: sizes that the tables do not have, and what could not be measured

    @property
    def depth_reduction(self) -> float | None:
        """Observation 3: share of the levels that it saves, mean over the largest cuts (the paper: 0.2)."""
        return _mean([s.depth_reduction for s in self.of(ALGORITHM1) if s.is_largest])

    @property
    def orderings(self) -> tuple[tuple[Search, Search], ...]:
        """Observation 4: searches sorted by difficulty and in random order, on the largest cut of each table that the
        first of them searched to the end."""
        pairs = {s.table: (self.beside(s, ALGORITHM1), s) for s in self.of(WITHOUT[4])}  # the larger cut comes later
        return tuple((ordered, random) for ordered, random in pairs.values() if ordered.is_finished and ordered.n_later)

    @property
    def ordering_speedup(self) -> float | None:
        """Observation 4: seconds in random order over seconds sorted, median over the tables (the paper: 60).

        Ranking the scores is included in both. Of a search in random order that was stopped, the seconds until then
        count: see `ordering_is_lower_bound`.
        """
        ratios = [random.seconds / ordered.seconds for ordered, random in self.orderings]
        return median(ratios) if ratios else None

    @property
    def ordering_node_ratio(self) -> float | None:
        """The same in visited nodes, which do not depend on the machine where searches came to an end."""
        ratios = [random.n_nodes / ordered.n_nodes for ordered, random in self.orderings]
        return median(ratios) if ratios else None

    @property
    def ordering_is_lower_bound(self) -> bool:
        """Whether a search in random order was stopped by the time limit: the true numbers are larger."""
        return any(not random.is_finished for _, random in self.orderings)

    @property
    def pruned_share(self) -> Mapping[int, float] | None:
        """Observations 1 and 2: `Search.pruned_share` by number of E-SVMs, means (the paper: 0.4 at 100)."""
        return self._pruned_share(is_generated=False) or None

    @property
    def generated_pruned_share(self) -> Mapping[int, float] | None:
        """The same on generated tables (the paper, on real ones: 0.7 at 1000)."""
        return self._pruned_share(is_generated=True) or None

    @property
    def redundant_share(self) -> float | None:
        """Share of the E-SVMs that accept no positive at the optimum, mean over tables (the paper: up to 0.25).

        Of each table the largest cut counts whose optimum is proven.
        """
        largest: dict[str, Search] = {}
        for search in self.of(EXACT):
            if search.is_finished:  # cuts come by size
                largest[search.table] = search
        return _mean([s.n_redundant / s.n_exemplars for s in largest.values()])

    @property
    def exhaustive_estimate(self) -> float | None:
        """Seconds that the exhaustive tree takes at 15 x 50, median over the tables that large (the paper: 54,000).

        An estimate from nodes per second and the number of nodes: nobody can wait for it.
        """
        found = [s.estimate for s in self.of(EXHAUSTIVE) if (s.n_exemplars, s.n_positives) == TINY]
        return median([seconds for seconds in found if seconds is not None]) if found else None

    def of(self, kind: str, is_generated: bool = False) -> tuple[Search, ...]:
        """All searches of one kind, on real tables or on generated ones."""
        return tuple(s for s in self.searches if s.search == kind and s.is_generated == is_generated)

    def beside(self, search: Search, kind: str) -> Search:
        """Another search of the same cut."""
        return next(s for s in self.searches if s.cut == search.cut and s.search == kind)

    def to_csv_rows(self) -> list[tuple[object, ...]]:
        """The header and one row per search; what does not exist is an empty string."""
        derived = ("pruned_share", "depth_reduction", "estimate")
        names = (*(one.name for one in fields(Search)), *derived)
        values = ([getattr(search, name) for name in names] for search in self.searches)
        return [names, *(tuple("" if value is None else value for value in row) for row in values)]

    def to_markdown(self) -> str:
        """Tables of the section, each under a sentence with the paper's figures."""
        from eesvm.experiments.search_study.tables import markdown

        return markdown(self)

    def _pruned_share(self, is_generated: bool) -> dict[int, float]:
        shares: dict[int, list[float]] = {}
        for search in self.of(ALGORITHM1, is_generated):
            if search.pruned_share is not None:
                shares.setdefault(search.n_exemplars, []).append(search.pruned_share)
        return {n: mean(shares[n]) for n in sorted(shares)}


def pruning_study(
    tables: Sequence[tuple[str, CalibrationProblem]],
    *,
    generated: Sequence[tuple[str, CalibrationProblem]] = (),
    time_limit: float = SECONDS,
    random_state: int = 0,
    progress: StudyProgress | None = None,
) -> PruningStudy:
    """Measure what each observation of the paper saves on these tables.

    Parameters
    ----------
    tables : (name, problem) of real score tables, under different names. Each is cut to 15 x 50, 50 x 250 and 100 x 500
        E-SVMs x positives as far as it is that large, and to all its E-SVMs x 1,000, with up to 20,000 negatives.
    generated : tables of generators, such as `generated_table()`: searched alike, marked, and left out of the means.
    time_limit : seconds of each search; the default makes a study of five tables last about two minutes.
    random_state : seeds the cuts, and the order of the positives where observation 4 is off.
    progress : called with what is searched next, the searches done, and how many there will be at most.
    """
    names = [name for name, _ in (*tables, *generated)]
    if not tables or len(set(names)) < len(names):
        raise InputError("`tables` must hold at least one (name, problem), and each name once")
    check_number(time_limit, "time_limit", above=0)
    check_number(random_state, "random_state", minimum=0, integer=True)
    _warm_up()
    bench = _Bench(time_limit, random_state, progress, n_tables=len(tables) + len(generated))
    for is_generated, group in ((False, tables), (True, generated)):
        for name, problem in group:
            bench.study(name, problem, is_generated)
    return PruningStudy(tuple(bench.searches), time_limit, random_state, tuple(bench.notes))


def generated_table(n_exemplars: int = 1000, random_state: int = 0) -> tuple[str, CalibrationProblem]:
    """A generated table of a size that the paper prunes 70 % of the nodes at; for `generated`."""
    table = synthetic_score_table(n_exemplars, n_exemplars // 2, 5 * n_exemplars, "overlapping", random_state)
    return f"generated, {n_exemplars} E-SVMs", table.problem()


def _warm_up() -> None:
    """Load every kernel before anything is measured."""
    scores = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    problem = CalibrationProblem(scores[:8], scores[8:])
    for method in ("algorithm1", "exhaustive", "exact"):
        solve(problem, method=method, node_limit=100)


class _Bench:
    """Runs searches one after the other and keeps what came of them."""

    def __init__(self, time_limit: float, random_state: int, progress: StudyProgress | None, n_tables: int) -> None:
        self.time_limit, self.random_state, self.progress = time_limit, random_state, progress
        self.searches: list[Search] = []
        self.notes: list[str] = []
        self.done = 0
        self.per_table = 2 * (len(SIZES) + 1) + 1 + len(_SWITCHES) + 1
        self.total = n_tables * self.per_table

    def study(self, name: str, problem: CalibrationProblem, is_generated: bool) -> None:
        """All searches of one table."""
        ends_at = self.done + self.per_table
        parts, finished = self._cut(name, problem), []
        for part in parts:
            facts = {"table": name, "is_generated": is_generated, "is_largest": part is parts[-1]}
            found = self._run(part, facts, ALGORITHM1, method="algorithm1")
            self._run(part, facts, EXACT)
            if part is parts[0]:
                self._run(part, facts, EXHAUSTIVE, method="exhaustive")
                for label, options in _SWITCHES.items():
                    self._run(part, facts, label, method="algorithm1", **options)
            if found.is_finished and found.n_later:
                finished.append((part, facts))
        if finished and finished[-1][0] is not parts[0]:
            self._run(*finished[-1], WITHOUT[4], method="algorithm1", **_SWITCHES[WITHOUT[4]])
        elif parts and not finished:
            self.notes.append(
                f"{name}: what the order saves is not known. Algorithm 1 reached its limit on every cut, or its first "
                "feasible solution was the best there is."
            )
        self.done = ends_at

    def _cut(self, name: str, problem: CalibrationProblem) -> list[CalibrationProblem]:
        """The tiny cut, larger ones, and the one with all E-SVMs, each once; nothing where nothing can be covered."""
        n_exemplars, n_positives = problem.n_exemplars, problem.n_positives
        sizes = [TINY, *((e, p) for e, p in SIZES if TINY[0] < e <= n_exemplars), (n_exemplars, MAX_POSITIVES)]
        found = [random_cut(problem, e, p, MAX_NEGATIVES, self.random_state) for e, p in sizes]
        parts = {cut.problem.positive_scores.shape: cut.problem for cut in found if cut is not None}
        if not parts:
            self.notes.append(f"{name}: no positive may be covered by any E-SVM, so nothing is searched.")
        elif n_exemplars < SIZES[-1][0]:
            self.notes.append(
                f"{name} has {n_exemplars} E-SVMs and {n_positives:,} positives: there are no larger cuts of it."
            )
        return list(parts.values())

    def _run(self, part: CalibrationProblem, facts: Mapping[str, Any], label: str, **options: Any) -> Search:
        if self.progress is not None:
            size = f"{part.n_exemplars} x {part.n_positives}"
            self.progress(f"{facts['table']}, {size}, {label}", self.done, self.total)
        limit = min(self.time_limit, _EXHAUSTIVE_SECONDS) if label == EXHAUSTIVE else self.time_limit
        result = solve(part, time_limit=limit, random_state=self.random_state, **options)
        if result.statistics["is_interrupted"]:
            raise KeyboardInterrupt
        search = Search(
            **facts,
            n_exemplars=part.n_exemplars,
            n_positives=part.n_positives,
            n_negatives=part.n_negatives,
            search=label,
            time_limit=limit,
            n_tree_nodes=_tree_nodes(part) if label == EXHAUSTIVE else None,
            **_measured(result),
        )
        self.searches.append(search)
        self.done += 1
        return search


def _measured(result: CalibrationResult) -> dict[str, Any]:
    """The fields of a `Search` that its result tells."""
    statistics = result.statistics
    found = {name: getattr(result, name) for name in ("status", "seconds", "loss", "lower_bound", "n_nodes")}
    found["n_redundant"] = result.n_redundant
    if result.method == "algorithm1":
        first = statistics["leaves"][0]
        found |= {name: statistics[name] for name in ("depth", "depth_removed")}
        found |= {f"n_by_{how}": statistics[f"n_pruned_by_{how}"] for how in ("bound", "equivalence")}
        found |= {f"first_{name}": first[name] for name in ("seconds", "loss")} | {"first_nodes": first["n_nodes"]}
    return found


def _tree_nodes(problem: CalibrationProblem) -> int:
    """Nodes of the exhaustive tree, exactly: E^0 + E^1 + ... + E^P, less where pairs are barred."""
    may_cover = problem.positive_scores > problem.lower_thresholds
    if problem.forbidden is not None:
        may_cover &= ~problem.forbidden
    n_nodes = width = 1
    for n_children in may_cover.sum(axis=1).tolist():
        width *= n_children
        n_nodes += width
    return n_nodes


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None
