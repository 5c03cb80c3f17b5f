"""What joint calibration owes to what: the section of `bench_voc`'s page on exemplars as in the paper, one thing changed at a time.

In: lines of its results. Out: Markdown, and a figure for each thing that was changed in each setting.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from _common import markdown
from _voc_numbers import Lines, by_rule, difference, figure, slug

UNITS = {
    "exemplars": "exemplars of a class", "negatives": "calibration negatives", "floor": "recall floor",
    "coverage": "who covers a positive", "criterion": "criterion of sigmoids",
}  # fmt: skip
ALL = 1_000_000  # exemplars or negatives: more than there are
AS_IS = {"coverage": "own-image", "criterion": "least_squares", "floor": 1.0, "exemplars": ALL + 1}
HEAD = (
    "what", "classes", "none", "sigmoid", "joint + sigmoid", "joint minus sigmoid", "joint minus none",
    "recall of thresholds", "loss on the calibration negatives",
)  # fmt: skip


def mechanism_sections(lines: Lines, stem: Path, n_negatives: int) -> list[str]:
    """A part for each setting, and one that sets them side by side."""
    changed = [line for line in lines if line.get("kind") in UNITS]
    papers = [line for line in lines if line.get("kind") == "judge" and line["recipe"] == "paper"]
    if not changed:
        return []
    parts = ["## What joint calibration owes to what", ""]
    parts += [
        "Exemplars as in the paper (hinge, no prior), the maximum of all, boxes as proposed; one thing changed at a time. "
        "The recall is that of the joint thresholds on the positive test windows. Where a class has no more exemplars than "
        "asked for, all of them count.",
        "",
        *descriptors_part(changed, papers, stem),
    ]
    for setting in dict.fromkeys(line["setting"] for line in changed):
        own, base = ([line for line in some if line["setting"] == setting] for some in (changed, papers))
        parts += setting_part(setting, own, base, stem, n_negatives)
    return parts


def descriptors_part(changed: Lines, papers: Lines, stem: Path) -> list[str]:
    """Frozen and tuned descriptors, on the classes that all settings have."""
    swept = {line["class"] for line in changed}
    named = list(dict.fromkeys(line["setting"] for line in papers))
    settings = [
        name for name in named if not name.startswith(tuple(f"{other}, " for other in named))
    ]  # no parts of others
    groups = {name: [x for x in papers if x["setting"] == name and x["class"] in swept] for name in settings}
    common = set.intersection(*({line["class"] for line in own} for own in groups.values())) if groups else set()
    if len(groups) < 2 or len(common) < 2:
        return []
    groups = {name: in_order(own, common) for name, own in groups.items()}
    rows = [mechanism_row(name, own) for name, own in groups.items()]
    draw(stem, "descriptors", "descriptors", {name.replace(", ", ",\n"): own for name, own in groups.items()})
    return ["### Descriptors", "", markdown(list(HEAD), rows), "", f"![descriptors]({stem.name}_descriptors.png)", ""]


def setting_part(setting: str, changed: Lines, base: Lines, stem: Path, n_negatives: int) -> list[str]:
    parts, rows = [f"### {setting}", ""], []
    as_is = {**AS_IS, "negatives": n_negatives}
    for kind, unit in UNITS.items():
        found = groups_of(kind, changed, base, as_is.get(kind))
        if len(found) < 2:
            continue
        rows += [mechanism_row(f"{unit}: {shown(value)}", own) for value, own in found.items()]
        draw(stem, f"{slug(setting)}_{kind}", unit, {place(kind, value, own): own for value, own in found.items()})
        parts += [f"![{unit}]({stem.name}_{slug(setting)}_{kind}.png)", ""]
    return [*parts, markdown(list(HEAD), rows), ""] if rows else []


def groups_of(kind: str, changed: Lines, base: Lines, as_is: Any) -> dict[Any, Lines]:
    """Lines by value, of the classes that have all of them; values that few classes have are left out."""
    values = {line["value"] for line in changed if line["kind"] == kind}
    groups = {value: [x for x in changed if (x["kind"], x["value"]) == (kind, value)] for value in values}
    if kind == "exemplars":  # a class that has no more than that is as it is
        groups = {n: [*own, *(x for x in base if x["exemplars"] <= n)] for n, own in groups.items()}
    if as_is is not None and base and values:
        groups[as_is] = base
    most = max((len(own) for value, own in groups.items() if value in values), default=0)
    groups = {value: own for value, own in groups.items() if 2 * len(own) >= most}
    common = set.intersection(*({line["class"] for line in own} for own in groups.values())) if groups else set()
    return {value: in_order(groups[value], common) for value in sorted(groups)} if common else {}


def in_order(lines: Lines, classes: set[str]) -> Lines:
    return sorted((line for line in lines if line["class"] in classes), key=lambda line: str(line["class"]))


def place(kind: str, value: Any, lines: Lines) -> Any:
    """On the axis; all exemplars are as many as the classes have on average."""
    if isinstance(value, str) or value <= ALL:
        return value
    return float(np.mean([line["exemplars"] for line in lines])) if kind == "exemplars" else ALL


def shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "all" if value > ALL else f"{value:,}"


def draw(stem: Path, name: str, unit: str, groups: dict[Any, Lines]) -> None:
    values = list(groups)
    series = {
        rule: (values, [100 * float(by_rule(own, "ap")[rule].mean()) for own in groups.values()])
        for rule in ("none", "sigmoid", "joint + sigmoid")
    }
    is_log = name.endswith(("_exemplars", "_negatives"))
    path = stem.with_name(f"{stem.name}_{name}.png")
    figure(path, unit, "detection AP", series, is_log=is_log, is_line=not isinstance(values[0], str))


def mechanism_row(name: str, lines: Lines) -> list[object]:
    ap, recall = by_rule(lines, "ap"), by_rule(lines, "recall")["joint"]
    means = [f"{100 * ap[rule].mean():.1f}" for rule in ("none", "sigmoid", "joint + sigmoid")]
    gains = [difference(ap["joint + sigmoid"] - ap[other]) for other in ("sigmoid", "none")]
    losses = [row["search"].get("loss") for line in lines for row in line["rows"] if row["rule"] == "joint"]
    known = [loss for loss in losses if loss is not None]
    return [name, len(lines), *means, *gains, f"{100 * recall.mean():.0f} %", f"{np.mean(known):,.0f}" if known else ""]
