"""The sections of core.md: each is replaced by the command that measures it, and the other stays.

In: what `bench_core --together` left in a folder. Out: a section that shows it beside what the exact search did before
it knew of hard positives, and a figure of loss and bound over time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _common import RESULTS, markdown

# The sections, in this order.
BESIDE, ALONE, DENSE, TURNS = (
    "Old and new side by side",
    "All of the time",
    "The dense tables",
    "With and without hard positives",
)
HEADINGS = ("table", "loss", "bound", "gap", "loss before", "gap before", "status", "core", "seconds", "CPU seconds")
PAIRS = ("table", "limit", "search", "loss", "bound", "gap", "core", "nodes", "CPU seconds")
PAIRS += ("proof MiB", "verified", "its seconds")
PROOFS = ("table", "leaves", "its MiB", "verified", "its seconds", "peak MiB of both")

# Loss and gap after 600 s on two cores of another machine, 2026-11-16, and (seconds, loss, bound) on the way.
BEFORE: dict[str, tuple[float, float, list[tuple[float, float, float]]]] = {
    "pets_across": (
        37_434,
        0.30,
        [
            (10, 37_647, 11_197),
            (60, 37_434, 20_131),
            (180, 37_434, 23_322),
            (300, 37_434, 24_192),
            (600, 37_434, 26_148),
        ],
    ),
    "rbc_own": (
        37_775,
        0.62,
        [
            (10, 41_157, 2_563),
            (60, 38_791, 14_465),
            (180, 37_775, 14_467),
            (300, 37_775, 14_468),
            (600, 37_775, 14_494),
        ],
    ),
    "rbc_across": (
        43_005,
        0.63,
        [
            (10, 44_639, 3_708),
            (60, 43_552, 15_541),
            (180, 43_273, 15_588),
            (300, 43_273, 15_710),
            (600, 43_005, 15_998),
        ],
    ),
    "pets_100_across": (12_362, 0.078, []),
    "rbc_100_own": (7_225, 0.12, []),
    "rbc_100_across": (9_868, 0.10, []),
    "overlapping_100": (8_869, 0.089, []),
}

# What 570 s gave before proofs left parts to their checker: (bound, gap), the section of the dense tables of 2026-11-18.
LIMITED = {
    "pets_across": (32_627, 0.128),
    "rbc_own": (14_308, 0.621),
    "rbc_across": (15_448, 0.641),
    "pets_100_across": (12_198, 0.013),
    "rbc_100_own": (6_568, 0.091),
    "rbc_100_across": (9_257, 0.062),
    "overlapping_100": (7_934, 0.105),
}
AGAIN = ("table", "limit", "loss", "bound", "gap", "bound before", "gap before", "core", "nodes", "CPU seconds")
CHECKS = ("table", "leaves", "left to the checker", "MiB", "verified", "its seconds", "peak MiB of both")

DENSE_NOTE = """Measured before targets were lowered where time is short, and at a limit of sixteen million nodes that a proof had to
pass before no target followed it. This limit, and not time, ended the hard positives on 100 exemplars of bccd_rbc, after
143 and 157 s; on all of pets_cat across images the target after 32,627 was not reached in the last 460 s. On all of
bccd_rbc and on the generated table shares prove more than hard positives, which take some of their time."""
TURNS_NOTE = """Measured before negatives were counted many words at a time, and very many leaves checked by compiled code; and just
before parts of the search were made half as large and a time limit was seen between them."""
ALONE_NOTE = """Since the sections below were measured, proofs leave parts to their checker, so that their size no longer ends the search, and with a limit in seconds
the core gets eight ninths of them where it proves more than shares. "Before" is the next section: 570 s on another
machine, where each table had 1.3 to 1.6 cores. Here other work took some of the two cores, so CPU seconds are what to
compare: 903 of them before on all of pets_cat, 751 on 100 exemplars of bccd_rbc, of which the core could use those of the
first 157 s. On the latter 9,264 was proved after 97 s, and the next target not reached in the 173 s left; since then
targets are set for half of the time that is left, not 0.7 of it. The goals were 10 % on all of pets_cat and 3 % on the
cuts of 100 exemplars: they are not reached here."""

BESIDE_NOTE = """"Before", all parts of the search are searched plainly. "Now" one long target is tried by shares of some 250 hard positives
that are made anew at every node, and so are the following ones where that does not take much longer; the last target is set
for more of the time that is left; and proofs are checked by shares where that is needed. Proofs of "before" were not
checked here. Since then targets come no more than 5 % of the loss nearer at a time: on all of bccd_rbc across images the one
after 17,198 was too far, and took 370 seconds. Negatives whose shares have settled rest, which saves a fifth of the time of
shares (a script, two tables), and 16 parts are searched at a time instead of 64, so that shares take less memory (up to 6.6 GB here)."""


def put_section(title: str, text: str) -> None:
    """Replace a section of the page, or add it."""
    file = Path(RESULTS, "core.md")
    head, *parts = file.read_text(encoding="utf-8").split("\n## ")
    sections = dict(part.split("\n", 1) for part in parts) | {title: f"\n{text.strip()}\n"}
    known = [name for name in (BESIDE, ALONE, DENSE, TURNS) if name in sections]
    others = [name for name in sections if name not in known]  # written by hand
    page = [head.strip() + "\n", *(f"{name}\n{sections[name].rstrip()}\n" for name in others + known)]
    file.write_text("\n## ".join(page), encoding="utf-8")


def write_dense(folder: Path, command: str) -> None:
    """The section and the figure of what was measured into a folder."""
    found = {name: json.loads(file.read_text()) for name in BEFORE if (file := folder / f"{name}.json").exists()}
    some = next(iter(found.values()))
    rows, proofs = [], []
    for name, outcome in found.items():
        loss, gap, _ = BEFORE[name]
        figures = f"{outcome['loss']:,.0f}", f"{outcome['bound']:,.0f}", percent(outcome["gap"])
        core = outcome["statistics"].get("core", "-")
        times = f"{outcome['seconds']:.0f}", f"{outcome['cpu_seconds']:,.0f}"
        rows.append([outcome["table"], *figures, f"{loss:,}", percent(gap), outcome["status"], core, *times])
        is_verified = {True: "yes", False: "no", None: "not yet"}[outcome.get("is_verified")]
        seconds = f"{outcome['verify_seconds']:.1f}" if "verify_seconds" in outcome else "-"
        sizes = f"{outcome['certificate_bytes'] / 2**20:,.1f}", is_verified, seconds, f"{outcome['peak'] / 2**20:,.0f}"
        proofs.append([outcome["table"], f"{outcome['leaves']:,}", *sizes])
    text = f"""`{command} --limit {some["limit"]:g} --threads {some["threads"]} --together FOLDER`, then `--page FOLDER`;
{some["machine"]}. All tables at the same time, a process of {some["threads"]} threads for each.

"Before" is what the exact search did without hard positives: [the solver's page](solver.md) of 2026-11-16, 600 s for
each table, one after the other, on another machine with two cores. So machine, limit and what ran beside it differ, too.

{markdown(HEADINGS, rows)}

{DENSE_NOTE}

The certificates, each checked by `eesvm.verify` with the scores alone:

{markdown(PROOFS, proofs)}

![loss and bound over time](core_dense.png)
"""
    put_section(DENSE, text)
    draw_dense(found, "core_dense.png")


def write_alone(folder: Path, command: str) -> None:
    """The section of what was measured into a folder, one table after the other."""
    found = {name: json.loads(file.read_text()) for name in BEFORE if (file := folder / f"{name}.json").exists()}
    some = next(iter(found.values()))
    rows, checks = [], []
    for name, outcome in found.items():
        bound, gap = LIMITED[name]
        figures = (
            f"{outcome['loss']:,.0f}",
            f"{outcome['bound']:,.0f}",
            percent(outcome["gap"]),
            f"{bound:,}",
            percent(gap),
        )
        core, nodes = outcome["statistics"].get("core", "-"), outcome["statistics"].get("core_nodes", 0)
        row = [
            outcome["table"],
            f"{outcome['limit']:g} s",
            *figures,
            core,
            f"{nodes:,}",
            f"{outcome['cpu_seconds']:,.0f}",
        ]
        rows.append(row)
        is_verified = {True: "yes", False: "no", None: "not yet"}[outcome.get("is_verified")]
        seconds = f"{outcome['verify_seconds']:.0f}" if "verify_seconds" in outcome else "-"
        sizes = f"{outcome['leaves']:,}", f"{outcome['searched']:,}", f"{outcome['certificate_bytes'] / 2**20:,.1f}"
        checks.append([outcome["table"], *sizes, is_verified, seconds, f"{outcome['peak'] / 2**20:,.0f}"])
    text = f"""`{command} --limit SECONDS --threads {some["threads"]} --together FOLDER --only TABLE` for one table after the other, then
`--alone FOLDER`; {some["machine"]}.

{ALONE_NOTE}

{markdown(AGAIN, rows)}

{markdown(CHECKS, checks)}

![loss and bound over time](core_alone.png)
"""
    put_section(ALONE, text)
    draw_dense(found, "core_alone.png")


def write_beside(before: Path, after: Path, command: str) -> None:
    """The section and the figure of two states of the code that were measured at the same time."""
    found = {}
    for name in BEFORE:
        files = before / f"{name}.json", after / f"{name}.json"
        if all(file.exists() for file in files):
            found[name] = [json.loads(file.read_text()) for file in files]
    rows = []
    for outcomes in found.values():
        for way, outcome in zip(("before", "now"), outcomes, strict=True):
            statistics = outcome["statistics"]
            core = statistics.get("core", "-")
            is_verified = {True: "yes", False: "no", None: "not yet"}[outcome.get("is_verified")]
            seconds = f"{outcome['verify_seconds']:.0f}" if "verify_seconds" in outcome else "-"
            figures = f"{outcome['loss']:,.0f}", f"{outcome['bound']:,.0f}", percent(outcome["gap"])
            work = f"{outcome['nodes']:,}", f"{outcome['cpu_seconds']:,.0f}"
            limit = f"{outcome['limit']:g} s"
            size = f"{outcome['certificate_bytes'] / 2**20:.1f}"
            rows.append([outcome["table"], limit, way, *figures, core, *work, size, is_verified, seconds])
    some = next(iter(found.values()))[1]
    text = f"""`{command} --child TABLE --limit {some["limit"]:g} --threads {some["threads"]} --together FOLDER` for every table in two copies of the
repository, all at the same time, then `--beside FOLDER_BEFORE FOLDER_NOW`; {some["machine"]}.

{BESIDE_NOTE}

{markdown(PAIRS, rows)}

![loss and bound over time](core_beside.png)
"""
    put_section(BESIDE, text)
    draw_beside(found)


def draw_beside(found: Mapping[str, Any]) -> None:
    figure, places = grid(len(found))
    for axes, outcomes in zip(places, found.values(), strict=False):
        for outcome, way, colour in zip(outcomes, ("before", "now"), ("tab:grey", "tab:blue"), strict=True):
            seconds, losses, bounds = zip(*outcome["history"], strict=True)
            ends = (*seconds, max(outcome["seconds"], seconds[-1]))
            axes.step(ends, (*losses, losses[-1]), where="post", color=colour, linestyle=":")
            axes.step(ends, (*bounds, bounds[-1]), where="post", color=colour, label=way)
        axes.set(title=outcomes[0]["table"], xlabel="seconds", ylim=(0, None))
        axes.title.set_fontsize(9)
    figure.axes[0].set_ylabel("bound, and loss (dotted)")
    figure.axes[0].legend(fontsize=8, loc="lower right")
    figure.savefig(Path(RESULTS, "core_beside.png"), dpi=100)


def grid(n: int) -> tuple[Any, Any]:
    """A figure with n panels, four a row, and these."""
    from matplotlib.figure import Figure

    n_rows, n_columns = -(-n // 4), min(4, n)
    figure = Figure(figsize=(4 * n_columns, 3.6 * n_rows), layout="constrained")
    places = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for axes in places[n:]:
        axes.set_axis_off()
    return figure, places


def percent(gap: float) -> str:
    return f"{100 * gap:.0f} %" if gap >= 0.0995 else f"{100 * gap:.2g} %"


def draw_dense(found: Mapping[str, Any], file: str) -> None:
    figure, places = grid(len(found))
    for axes, (name, outcome) in zip(places, found.items(), strict=False):
        loss, gap, way = BEFORE[name]
        way = way or [(600, loss, loss * (1 - gap))]
        seconds, losses, bounds = zip(*way, strict=True)
        axes.plot(seconds, losses, "o:", color="tab:grey", markersize=3)
        axes.plot(seconds, bounds, "o-", color="tab:grey", markersize=3, label="before, on another machine")
        seconds, losses, bounds = zip(*outcome["history"], strict=True)
        ends = (*seconds, max(outcome["seconds"], seconds[-1]))
        axes.step(ends, (*losses, losses[-1]), where="post", color="tab:blue", linestyle=":")
        axes.step(ends, (*bounds, bounds[-1]), where="post", color="tab:blue", label="now")
        axes.set(title=outcome["table"], xlabel="seconds", ylim=(0, None))
        axes.title.set_fontsize(9)
    figure.axes[0].set_ylabel("bound, and loss (dotted)")
    figure.axes[0].legend(fontsize=8, loc="lower right")
    figure.savefig(Path(RESULTS, file), dpi=100)
