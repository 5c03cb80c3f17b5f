"""The parts of bench_solver: which runs each needs, and how their outcomes are laid out.

In: `Settings`, and outcomes of `_solver_runs`. Out: lists of tasks, Markdown, and pictures by file name.
Absent on purpose: running anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import _solver_plots as plots
from _common import markdown
from _solver_runs import BASELINES, Outcome, Table, Task, recall_frontier
from eesvm.calibration.tables.examples import FAMILIES

EXACT, ALGORITHM1 = "exact", "algorithm1"
VARIANTS = (False, True)  # own-image pairs allowed, forbidden

# What short runs of prototypes had found on the real tables; (name, across images).
BEST_KNOWN = {
    ("bccd_platelets", False): 13,
    ("bccd_wbc", False): 2018,
    ("bccd_wbc", True): 9309,
    ("pets_cat", False): 10148,
    ("pets_cat", True): 38915,
    ("bccd_rbc", False): 42830,  # the first leaf of Algorithm 1, nothing better was known
}


MOMENTS = (10, 60, 180, 300, 600)  # seconds at which the state of a long search is shown


@dataclass(frozen=True)
class Settings:
    limit: float
    long_limit: float  # of Algorithm 1 where exact has a proof and it has none yet
    exact_limit: float
    real_limit: float  # of exact on the whole real tables
    baseline_limit: float
    large_limit: float
    frontier_limit: float
    max_nonzeros: int
    real: tuple[str, ...]
    sizes: tuple[int, ...]  # exemplars of the tables of the paper's size
    cut_negatives: int  # 0: all
    growth: tuple[int, ...]  # exemplars
    large: tuple[int, int, int]
    large_families: tuple[str, ...]
    scratch: Path

    def seconds(self, method: str, table: Table) -> float:
        own = self.real_limit if table.source == "real" else self.exact_limit
        return {EXACT: own, ALGORITHM1: self.limit}.get(method, self.baseline_limit)

    def tasks(self, table: Table, methods: Sequence[str]) -> list[Task]:
        return [
            Task(table, method, self.seconds(method, table), self.max_nonzeros if method in BASELINES else 0)
            for method in methods
        ]


Outcomes = dict[tuple[Table, str], Outcome]
Pictures = dict[str, object]


@dataclass(frozen=True)
class Section:
    """A part of the page: what must be measured, and how that is laid out."""

    name: str
    title: str
    tasks: Callable[[Settings], list[Task]]
    render: Callable[[Settings, Outcomes, Pictures], str]


# Real tables


def real_tasks(settings: Settings) -> list[Task]:
    methods = (EXACT, ALGORITHM1, *BASELINES)
    return [
        task
        for name in settings.real
        for across in VARIANTS
        for task in settings.tasks(Table("real", name, across), methods)
    ]


def real_tables(settings: Settings, outcomes: Outcomes, pictures: Pictures) -> str:
    tables = list(dict.fromkeys(table for table, _ in outcomes))
    rows, proofs, panels = [], [], []
    for table in tables:
        for method in (EXACT, ALGORITHM1, *BASELINES):
            if outcome := outcomes.get((table, method)):
                rows.append([table, outcome.get("size", ""), method, *brief(outcome)])
        ours = outcomes.get((table, EXACT), {})
        if ours.get("history"):
            known = BEST_KNOWN.get((table.name, table.across))
            proofs.append(certificate_row(table, ours, known))
            other = outcomes.get((table, ALGORITHM1), {})
            panels.append(
                plots.Panel(
                    str(table),
                    ours["history"],
                    ours["seconds"],
                    other.get("history", ()),
                    other.get("seconds", 0),
                    known,
                )
            )
    if panels:
        pictures["solver_history.png"] = plots.histories(panels)
    headings = ["table", "E x P x N", "method", *BRIEF]
    proof_headings = ["table", "best known", "exact", "gap", "first solution", "to a gap of 2 %", "0.2 %", "redundant",
                      "leaves", "shares", "verified", "its seconds", "its peak memory"]  # fmt: skip
    return (
        f"{markdown(headings, rows)}\n\nLosses that were known before, and the certificates of exact, each checked by "
        f"`eesvm.verify` with nothing but the scores:\n\n{markdown(proof_headings, proofs)}\n\n"
        "The best known losses were found before the windows were stored in half precision, and belong to slightly other "
        "scores: on pets_cat with own images the first leaf of Algorithm 1 was 10,152 and is 10,154 on the stored windows, "
        f"where 10,151 is proven to be the least.\n\n{progress_of(outcomes)}"
        "![loss and bound over time on the real tables](solver_history.png)\n\n"
        f"A model of more than {settings.max_nonzeros:,} nonzeros is not tried."
    )


def progress_of(outcomes: Outcomes) -> str:
    """Loss and bound as time goes by, of the searches that take minutes: which of the two is it that limits them?"""
    rows = []
    for (table, method), outcome in outcomes.items():
        history = outcome.get("history") or []
        if method == EXACT and outcome.get("seconds", 0) >= MOMENTS[1]:
            known = [[step for step in history if step[0] <= moment] for moment in MOMENTS]
            rows.append([table, *(f"{number(s[-1][1])} / {number(s[-1][2])}" if s else "-" for s in known)])
    if not rows:
        return ""
    headings = ["table", *(f"{moment} s" for moment in MOMENTS)]
    return (
        f"Loss / bound of exact as time goes by, where it takes a minute or more:\n\n{markdown(headings, rows)}\n\n"
        "Where the bound has stopped rising although thousands of boxes were split, it is the relaxation that limits: so "
        "many exemplars are nearly as good as each other that a positive can be covered by a little of each.\n\n"
    )


def certificate_row(table: Table, ours: Outcome, known: float | None) -> list[object]:
    reached = ours["seconds_to"]
    return [
        table,
        number(known),
        number(ours["loss"]),
        percent(ours),
        seconds(ours["history"][0][0]),
        seconds(reached["0.02"]),
        seconds(reached["0.002"]),
        f"{ours['n_redundant'] / ours['n_exemplars']:.0%}",
        number(ours["leaves"]),
        number(ours["shares"]),
        {True: "yes", False: "**no**"}.get(ours.get("is_verified"), "-"),
        seconds(ours.get("verify_seconds")),
        mebibytes(ours.get("verify_peak")),
    ]


# Tables of the paper's exact size


def cut_tasks(settings: Settings) -> list[Task]:
    tables = [
        Table("cut", name, across, n, 0, settings.cut_negatives)
        for name in settings.real
        for n in settings.sizes
        for across in VARIANTS
    ]
    negatives = settings.cut_negatives or 20_000
    tables += [
        Table("generated", family, False, n, paper_positives(n), negatives)
        for family in FAMILIES
        for n in settings.sizes
    ]
    smallest = min(settings.sizes)
    return [
        task
        for table in tables
        for task in settings.tasks(table, (EXACT, ALGORITHM1, *(BASELINES if table.n_exemplars == smallest else ())))
    ]


def paper_positives(n_exemplars: int) -> int:
    """From 500 positives at 30 exemplars to 3,600 at 140."""
    return max(50, round(500 + (n_exemplars - 30) * 3100 / 110))


def cut_tables(settings: Settings, outcomes: Outcomes, pictures: Pictures) -> str:
    rows, pairs, verdicts, baselines = [], [], [], []
    for table in dict.fromkeys(table for table, _ in outcomes):
        ours, theirs = outcomes.get((table, EXACT), {}), outcomes.get((table, ALGORITHM1), {})
        if "seconds" in ours and "seconds" in theirs:
            rows.append(
                [table, ours["size"], number(ours["loss"]), percent(ours), ours["status"], number(ours["nodes"]),
                 seconds(ours["seconds"]), number(theirs["loss"]), percent(theirs), theirs["status"],
                 number(theirs["nodes"]), seconds(theirs["seconds"]), ratio(ours, theirs),
                 {True: "yes", False: "**no**"}.get(ours.get("is_verified"), "-"), mebibytes(ours["peak"])]
            )  # fmt: skip
            kind = (
                "generated" if table.source == "generated" else "across images" if table.across else "own image allowed"
            )
            name = table.name.replace("_", "-") if table.source == "generated" else table.name
            pairs.append(plots.Pair(name, kind, ours["seconds"], theirs["seconds"], is_done(ours), is_done(theirs)))
            verdicts.append((str(table), ours, theirs))
        for method in BASELINES:
            if outcome := outcomes.get((table, method)):
                baselines.append([table, outcome.get("size", ""), method, *brief(outcome)])
        if any((table, method) in outcomes for method in BASELINES) and "seconds" in ours:
            baselines.append([table, ours["size"], EXACT, *brief(ours)])
    if pairs:
        pictures["solver_times.png"] = plots.times(pairs, "Algorithm 1")
    headings = ["table", "E x P x N", "exact: loss", "gap", "status", "nodes", "seconds", "Algorithm 1: loss", "gap",
                "status", "nodes", "seconds", "Algorithm 1 : exact", "verified", "peak memory of exact"]  # fmt: skip
    negatives = f"{settings.cut_negatives:,} random negatives" if settings.cut_negatives else "all negatives"
    return (
        "The paper proves optima at 30 to 140 exemplars and 500 to 3,600 positives. Parts of the real tables: random images "
        f"until there are so many exemplars, all positives of those images, {negatives}. The ratio of times is a lower "
        f"bound where Algorithm 1 did not finish.\n\n{verdict(verdicts)}\n\n{markdown(headings, rows)}\n\n"
        "![seconds of exact and of Algorithm 1](solver_times.png)\n\nThe integer programs on the smallest of them:\n\n"
        f"{markdown(['table', 'E x P x N', 'method', *BRIEF], baselines)}"
    )


def verdict(compared: Sequence[tuple[str, Outcome, Outcome]]) -> str:
    """What the table says about proofs and times, in sentences."""
    proven = [name for name, ours, _ in compared if is_done(ours)]
    long = [
        (theirs["seconds"] / ours["seconds"] if is_done(ours) else 0.0, name)
        for name, ours, theirs in compared
        if theirs["seconds"] >= 10 and (is_done(ours) or is_done(theirs))
    ]
    slow = [name for name, ours, theirs in compared if is_done(theirs) and ours["seconds"] > 2 * theirs["seconds"] + 1]
    n_open = sum(not is_done(ours) and not is_done(theirs) for _, ours, theirs in compared)
    wrong = [name for name, ours, theirs in compared if is_done(ours) and theirs["loss"] < ours["loss"]]
    wrong += [name for name, ours, theirs in compared if is_done(theirs) and theirs["loss"] != ours["loss"]]
    lines = [f"- exact proved {len(proven)} of {len(compared)} tables optimal{_except(compared, proven)}."]
    if long:
        quick = sum(value >= 20 for value, _ in long)
        lines.append(
            f"- Where Algorithm 1 needs 10 s or more and one of them finished ({len(long)} tables), exact is at least 20 "
            f"times faster on {quick}; the least ratio is {min(long)[0]:.3g} ({min(long)[1]}). Neither finished {n_open}."
        )
    where = f"on {len(slow)} tables: {'; '.join(slow)}" if slow else "on no table"
    lines.append(f"- Where Algorithm 1 finished, exact takes more than twice its time and a second {where}.")
    if wrong:
        lines.append(f"- **The losses contradict each other on: {'; '.join(wrong)}.**")
    return "\n".join(lines)


def _except(compared: Sequence[tuple[str, Outcome, Outcome]], proven: Sequence[str]) -> str:
    missing = [name for name, _, _ in compared if name not in proven]
    return f", all but: {'; '.join(missing)}" if missing else ""


# Growth with size


def growth_tasks(settings: Settings) -> list[Task]:
    return [
        task
        for family in FAMILIES
        for n in settings.growth
        for task in settings.tasks(Table("generated", family, False, n, 20 * n, 200 * n), (EXACT,))
    ]


def growth(_: Settings, outcomes: Outcomes, pictures: Pictures) -> str:
    rows: list[list[object]] = []
    lines: dict[str, list[tuple[int, float, bool, float]]] = {}
    for (table, _method), ours in outcomes.items():
        if "seconds" not in ours:
            rows.append([table.name, "", *[""] * 4, ours["status"], *[""] * 4])
            continue
        reached = ours["seconds_to"]
        rows.append(
            [table.name, ours["size"], number(ours["loss"]), number(ours["bound"]), percent(ours), number(ours["nodes"]),
             ours["status"], seconds(reached["0.05"]), seconds(reached["0.01"]),
             seconds(ours["seconds"] if is_done(ours) else None), mebibytes(ours["peak"])]
        )  # fmt: skip
        lines.setdefault(table.name, []).append((table.n_exemplars, ours["seconds"], is_done(ours), ours["peak"]))
    if lines:
        pictures["solver_growth.png"] = plots.growth(lines)
    headings = ["family", "E x P x N", "loss", "bound", "gap", "nodes", "status", "seconds to a gap of 5 %", "1 %",
                "to the proof", "peak memory"]  # fmt: skip
    return (
        f"exact on generated tables, positives and negatives in proportion to the exemplars.\n\n{markdown(headings, rows)}"
        "\n\n![time and memory over size](solver_growth.png)"
    )


# The large table


def large_tasks(settings: Settings) -> list[Task]:
    return [
        Task(Table("memory map", family, False, *settings.large), EXACT, settings.large_limit)
        for family in settings.large_families
    ]


def large(_: Settings, outcomes: Outcomes, pictures: Pictures) -> str:
    parts = []
    panels = []
    for (table, _method), ours in outcomes.items():
        if "history" not in ours:
            parts.append(f"{table}: {ours['status']}.")
            continue
        headings = ["family", "E x P x N", *BRIEF[:-1], "first solution", "to a gap of 5 %", "verified", "its seconds",
                    "check of the scores"]  # fmt: skip
        row = [table.name, ours["size"], *brief(ours)[:-1], seconds(ours["history"][0][0]),
               seconds(ours["seconds_to"]["0.05"]),
               {True: "yes", False: "**no**"}.get(ours.get("is_verified"), "-"),
               seconds(ours.get("verify_seconds")), seconds(ours["open_seconds"])]  # fmt: skip
        moments = [t for t in (30, 60, 120, 300, 600, 900, 1200, 1500, 1800, 3600) if t <= ours["seconds"]]
        over_time = [[f"{t} s", *state_at(ours["history"], t)] for t in moments]
        over_time.append([f"{ours['seconds']:,.0f} s", *state_at(ours["history"], ours["seconds"])])
        parts.append(
            f"{markdown(headings, [row])}\n\n{markdown(['after', 'loss', 'bound', 'gap'], over_time)}\n\n"
            f"Peak memory: {mebibytes(ours['peak'])} resident (VmHWM: it counts the pages of the mapped scores that happen "
            f"to be in memory, which the system takes back when it needs them), {mebibytes(ours['peak_private'])} without "
            "mapped files (RssAnon, looked at every 0.05 s): what the search itself holds."
        )
        panels.append(plots.Panel(table.name.replace("_", "-"), ours["history"], ours["seconds"]))
    if panels:
        pictures["solver_large.png"] = plots.histories(panels)
        parts.append("![loss and bound over time](solver_large.png)")
    start = (
        "The scores are a memory map on disk whose pages are not in memory at first. `CalibrationProblem` reads and checks "
        "them once, for which see the last column; after that the solver's clock begins."
    )
    missing = [family for family in FAMILIES if family not in {table.name for table, _ in outcomes}]
    if missing:
        start += f" Families that were not run: {', '.join(missing)}."
    return "\n\n".join([start, *parts])


def state_at(history: Sequence[Sequence[float]], moment: float) -> list[str]:
    reached = [point for point in history if point[0] <= moment]
    if not reached:
        return ["-"] * 3
    _, loss, bound = reached[-1]
    return [number(loss), number(bound), percent({"loss": loss, "bound": bound})]


# The recall frontier


def frontier_tasks(settings: Settings) -> list[Task]:
    if recall_frontier is None:
        return []
    wanted = (("bccd_wbc", False), ("bccd_wbc", True), ("bccd_rbc", False))
    return [
        Task(Table("real", name, across), "frontier", settings.frontier_limit)
        for name, across in wanted
        if name in settings.real
    ]


def frontiers(settings: Settings, outcomes: Outcomes, pictures: Pictures) -> str:
    rows, owed, curves = [], [], []
    for (table, _method), found in outcomes.items():
        if "floors" not in found:
            rows.append([table, "", "", "", "", "", str(found["status"]), ""])
            continue
        for floor in found["floors"]:
            gap = percent({"loss": floor["loss"], "bound": floor["lower_bound"]})
            rows.append(
                [table, f"{floor['floor']:g}", number(floor["n_left_out"]), number(floor["loss"]),
                 number(floor["lower_bound"]), gap, floor["status"], seconds(floor["seconds"])]
            )  # fmt: skip
        owed += [
            [table, f"{share['share']:.1%}", f"{share['owed']:.1%}", f"{share['low']:.1%} to {share['high']:.1%}"]
            for share in found["owed"]
        ]
        curves.append(
            (str(table), [(floor["floor"], floor["loss"], floor["lower_bound"]) for floor in found["floors"]])
        )
    picture = ""
    if curves:
        pictures["solver_frontier.png"] = plots.frontiers(curves)
        picture = "\n\n![loss and bound over recall floors](solver_frontier.png)"
    headings = ["table", "recall floor", "left out", "loss", "bound", "gap", "status", "seconds"]
    owed_headings = ["table", "hardest positives", "share of the loss owed to them", "proven to lie in"]
    return (
        f"`eesvm.recall_frontier` with {settings.frontier_limit:g} s for each floor.\n\n{markdown(headings, rows)}\n\n"
        f"{markdown(owed_headings, owed)}{picture}"
    )


# Cells

BRIEF = ["loss", "bound", "gap", "status", "nodes", "seconds", "peak memory"]


def brief(outcome: Outcome) -> list[str]:
    return [
        number(outcome.get("loss")),
        number(outcome.get("bound")),
        percent(outcome),
        str(outcome["status"]),
        number(outcome.get("nodes")),
        seconds(outcome.get("seconds")),
        mebibytes(outcome.get("peak")),
    ]


def is_done(outcome: Outcome) -> bool:
    return outcome["status"] == "optimal"


def ratio(ours: Outcome, theirs: Outcome) -> str:
    sign = "" if is_done(ours) == is_done(theirs) else "> " if is_done(ours) else "< "
    if not is_done(ours) and not is_done(theirs):
        return "neither finished"
    return f"{sign}{theirs['seconds'] / ours['seconds']:,.3g}x"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.10g}"


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def mebibytes(value: float | None) -> str:
    return "-" if value is None else f"{value / 2**20:,.0f} MiB"


def percent(outcome: Outcome) -> str:
    loss, bound = outcome.get("loss"), outcome.get("bound")
    if loss is None or bound is None:
        return "-"
    gap = (loss - bound) / loss if loss > 0 else 0.0
    return "0" if not gap else f"{100 * gap:.2g} %" if gap < 0.1 else f"{100 * gap:.0f} %"


SECTIONS = [
    Section("real", "Real tables", real_tasks, real_tables),
    Section("cut", "Tables of the size of the paper's exact experiments", cut_tasks, cut_tables),
    Section("growth", "Growth with size", growth_tasks, growth),
    Section("frontier", "The recall frontier", frontier_tasks, frontiers),
    Section("large", "A large table", large_tasks, large),
]
