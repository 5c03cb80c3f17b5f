"""A pruning study as Markdown: the statements of section 5.5 of the paper, and the tables behind each.

In: a `PruningStudy`. Out: text. A search that was stopped shows its limit, "> 3", and never a guess.
"""

from __future__ import annotations

from collections.abc import Sequence

from eesvm._support.amounts import rough_duration, rounded_percent
from eesvm._support.tables import markdown_table
from eesvm.experiments.search_study.pruning import (
    ALGORITHM1,
    EXACT,
    EXHAUSTIVE,
    LITERAL,
    TINY,
    WITHOUT,
    PruningStudy,
    Search,
)


def markdown(study: PruningStudy) -> str:
    """All sections, and what there is to know about the tables."""
    parts = [
        f"Each search stops after {study.time_limit:g} s; `> {study.time_limit:g}` marks one that did. Cuts of tables "
        f"are drawn with the seed {study.random_state}. Sizes are E-SVMs x positives x negatives.",
        _section("Observation 3: depth of the tree", _depth(study)),
        _section("Observation 4: order of the positives", _order(study)),
        _section("Observations 1 and 2: pruned nodes", _pruned(study)),
        _section("Each observation switched off", _switches(study)),
        _section("Exhaustive search", _exhaustive(study)),
        _section("Runtimes, and redundant E-SVMs", _runtimes(study)),
    ]
    if study.notes:
        parts.append("\n".join(f"- {note}" for note in study.notes))
    return "\n\n".join(parts) + "\n"


def _depth(study: PruningStudy) -> tuple[str, str]:
    rows = [
        [s.table, _size(s), f"{s.depth + s.depth_removed:,}", f"{s.depth:,}", _percent(s.depth_reduction)]
        for s in _everywhere(study, ALGORITHM1)
        if s.is_largest and s.depth is not None and s.depth_removed is not None
    ]
    said = f"The paper: 20 % fewer levels on average. Here: {_percent(study.depth_reduction)}."
    return said, _table(["table", "size", "levels", "after observation 3", "saved"], rows)


def _order(study: PruningStudy) -> tuple[str, str]:
    rows = []
    for ordered, random in study.orderings:
        more = "" if random.is_finished else "> "
        ratios = [f"{more}{random.seconds / ordered.seconds:,.1f}", f"{more}{random.n_nodes / ordered.n_nodes:,.1f}"]
        both = (cell for s in (ordered, random) for cell in (_seconds(s), f"{s.n_nodes:,}", f"{s.loss:,.0f}"))
        rows.append([ordered.table, _size(ordered), *both, *ratios])
    speedup, more = study.ordering_speedup, "more than " if study.ordering_is_lower_bound else ""
    here = "not measured" if speedup is None else f"{more}{speedup:,.1f} times as long in random order (median)"
    said = (
        f"The paper: 2 h in random order, 2 min sorted, at 100 E-SVMs, so 60 times as long. Here: {here}. Seconds "
        "include the ranking of the scores, which takes as long in either order."
    )
    header = ["table", "size", "sorted: s", "nodes", "loss", "random: s", "nodes", "loss", "ratio of s", "of nodes"]
    return said, _table(header, rows)


def _pruned(study: PruningStudy) -> tuple[str, str]:
    rows = []
    for s in _everywhere(study, ALGORITHM1):
        counts = (f"{n:,}" for n in (s.n_later, s.n_by_bound, s.n_by_equivalence))
        rows.append([s.table, _size(s), *counts, _percent(s.pruned_share), _seconds(s)])
    shares = study.pruned_share or {}
    here = ", ".join(f"{_percent(share)} at {n:,}" for n, share in shares.items()) or "not measured"
    said = (
        "The paper: after a first feasible solution, 40 % of the nodes are pruned at 100 E-SVMs, 70 % at 1000. "
        f"Here: {here}. Counted are nodes met after the first feasible solution, until the search ended or was stopped."
    )
    header = ["table", "size", "visited", "pruned by bound", "by equivalence", "share pruned", "s"]
    return said, _table(header, rows)


def _switches(study: PruningStudy) -> tuple[str, str]:
    labels = [ALGORITHM1, *WITHOUT.values(), LITERAL]
    rows = []
    for tiny in _everywhere(study, EXHAUSTIVE):
        searches = [study.beside(tiny, label) for label in labels]
        rows.append([tiny.table, _size(tiny), *(f"{_seconds(s)} ({s.n_nodes:,})" for s in searches)])
    said = (
        "Seconds, and nodes in brackets. The last column is Algorithm 1 to the letter: where a positive is accepted "
        "already, the E-SVMs that would pay for it are tried all the same."
    )
    return said, _table(["table", "size", "all four", *(label.capitalize() for label in labels[1:])], rows)


def _exhaustive(study: PruningStudy) -> tuple[str, str]:
    rows = []
    for s in _everywhere(study, EXHAUSTIVE):
        assert s.n_tree_nodes is not None
        assert s.estimate is not None
        taken = f"{rough_duration(s.estimate)} ({'measured' if s.is_finished else 'estimate'})"
        others = (_seconds(study.beside(s, kind)) for kind in (ALGORITHM1, EXACT))
        rows.append(
            [
                s.table,
                _size(s),
                f"{s.n_tree_nodes:.1e}".replace("e+", "e"),
                f"{s.n_nodes / s.seconds:,.0f}",
                taken,
                *others,
            ]
        )
    estimate = study.exhaustive_estimate
    here = "not measured at that size" if estimate is None else f"{rough_duration(estimate)} (estimate, median)"
    said = (
        f"The paper: 15 h at {TINY[0]} x {TINY[1]}, a few seconds for its algorithm. Here: {here}. The perfect tree of "
        f"that size has {TINY[0]}^{TINY[1]} leaves: the paper does not say what kept its search to 15 h."
    )
    header = ["table", "size", "nodes of the tree", "nodes per s", "exhaustive", "Algorithm 1: s", "exact: s"]
    return said, _table(header, rows)


def _runtimes(study: PruningStudy) -> tuple[str, str]:
    rows = []
    for found in _everywhere(study, ALGORITHM1):
        ours = study.beside(found, EXACT)
        first = [f"{found.first_seconds:.2f}", f"{found.first_loss:,.0f}"]
        searches = (cell for s in (found, ours) for cell in (_seconds(s), f"{s.loss:,.0f}", f"{s.lower_bound:,.0f}"))
        redundant = f"{_percent(ours.n_redundant / ours.n_exemplars)}{'' if ours.is_finished else ' (not proven)'}"
        rows.append([found.table, _size(found), *first, *searches, redundant])
    said = (
        "The paper: up to 25 % of the E-SVMs accept no positive at the optimum. Here: "
        f"{_percent(study.redundant_share)} (mean over the largest cuts with a proven optimum)."
    )
    header = ["table", "size", "first feasible: s", "loss", "Algorithm 1: s", "loss", "bound"]
    return said, _table([*header, "exact: s", "loss", "bound", "redundant"], rows)


def _everywhere(study: PruningStudy, kind: str) -> list[Search]:
    return [*study.of(kind), *study.of(kind, is_generated=True)]


def _section(title: str, content: tuple[str, str]) -> str:
    said, table = content
    return f"### {title}\n\n{said}\n\n{table}"


def _size(search: Search) -> str:
    return f"{search.n_exemplars:,} x {search.n_positives:,} x {search.n_negatives:,}"


def _seconds(search: Search) -> str:
    return f"{search.seconds:.2f}" if search.is_finished else f"> {search.time_limit:g}"


def _percent(share: float | None) -> str:
    return rounded_percent(share, ".3g", "not measured")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return markdown_table(header, rows, numbers=False) if rows else "No search of the tables at hand tells."
