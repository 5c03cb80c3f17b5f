"""The page of `bench_voc`: what was measured on Pascal VOC 2007, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from _common import machine, markdown

PAPER_AP = {"none": 19.7, "sigmoid": 40.8, "joint + sigmoid": 42.7, "single SVM": 49.1}


def page(lines: list[dict[str, Any]], settings: Sequence[Any], rules: Sequence[Any], across: Sequence[Any]) -> str:
    judged = [line for line in lines if line.get("kind") == "judge"]
    parts = ["# Pascal VOC 2007", "", f"`python benchmarks/bench_voc.py`, {machine()}.", ""]
    for setting in settings:
        for recipe in ("paper", "default"):
            own = [line for line in judged if line["setting"] == setting.name and line["recipe"] == recipe]
            if own:
                parts += ["", f"## {setting.name}: {recipe}", "", *setting_section(own, [*rules, *across])]
    parts += mechanism_section([line for line in lines if line.get("kind") in ("exemplars", "negatives", "floor")])
    return "\n".join(parts) + "\n"


def by_rule(lines: list[dict[str, Any]], key: str) -> dict[str, np.ndarray]:
    """(classes,) values of each rule."""
    names = [row["rule"] for row in lines[0]["rows"]]
    return {
        name: np.array([next(row[key] for row in line["rows"] if row["rule"] == name) for line in lines], dtype=float)
        for name in names
    }


def setting_section(lines: list[dict[str, Any]], rules: Sequence[Any]) -> list[str]:
    ap, recall = by_rule(lines, "ap"), by_rule(lines, "recall")
    rows = []
    for name in ap:
        rows.append(
            [
                name,
                f"{100 * ap[name].mean():.1f}",
                "" if name == "sigmoid" else difference(ap[name] - ap["sigmoid"]),
                "" if name == "single SVM" else difference(ap[name] - ap["single SVM"]),
                f"{100 * recall[name].mean():.0f}",
            ]
        )
    n_exemplars = [line["exemplars"] for line in lines]
    head = f"{len(lines)} classes, {min(n_exemplars)} to {max(n_exemplars)} exemplars."
    return [head, "", markdown(["rule", "AP", "to sigmoid", "to single SVM", "recall"], rows)]


def difference(values: np.ndarray) -> str:
    """Mean and 95 % t-interval over classes, in points."""
    n = len(values)
    half = stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    return f"{100 * values.mean():+.1f} ± {100 * half:.1f}"


def mechanism_section(lines: list[dict[str, Any]]) -> list[str]:
    if not lines:
        return []
    rows = []
    for setting, kind, value in dict.fromkeys((line["setting"], line["kind"], line["value"]) for line in lines):
        own = [x for x in lines if (x["setting"], x["kind"], x["value"]) == (setting, kind, value)]
        ap = by_rule(own, "ap")
        rows.append(
            [
                setting, kind, "all" if value is None else value, len(own), f"{100 * ap['none'].mean():.1f}",
                f"{100 * ap['sigmoid'].mean():.1f}", f"{100 * ap['joint + sigmoid'].mean():.1f}",
                difference(ap["joint + sigmoid"] - ap["sigmoid"]),
            ]
        )  # fmt: skip
    headings = ["setting", "what", "how many", "classes", "none", "sigmoid", "joint + sigmoid", "joint minus sigmoid"]
    return ["", "## What joint calibration owes to what", "", markdown(headings, rows)]
