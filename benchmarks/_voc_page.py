"""The page of `bench_voc`: what was measured on Pascal VOC 2007, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from _common import markdown

SHRUNK, NONE = "joint + sigmoid, across images, shrunk, mean of 5", "none, mean of 5"
INTRODUCTION = """\
Photographs have three roles: some tune the network, some give the exemplars and the windows to calibrate on, some judge.
"The paper's way" tunes the network on the images of the exemplars (train) and judges on val; with "roles apart" the network
is tuned on train, exemplars come from one random half of val and the other half judges. Recipes: "paper" trains exemplars
as the paper does (hinge, no prior); "default" is that of the default preset (squared hinge, bent from the direction of
the class). Average precision by VOC 2010 in per cent, boxes as proposed, mean over classes; differences are paired over
classes, with 95 % t-intervals. Recall: of the positive test windows, what the first joint thresholds of the table accept.
"Mean of 5": a window's score is the mean of its five highest calibrated scores, not the highest alone. "Shrunk": what each
exemplar learned for itself is drawn towards what all share, as far as images left out support it
(`calibration.shrink: auto`). Descriptors: crops through EfficientNet-Lite0, 500 windows an image, PCA of 256, length 20;
40,000 calibration negatives; negatives for training from 200 images.
"""


def page(lines: list[dict[str, Any]], settings: Sequence[Any], note: str) -> str:
    judged = [line for line in lines if line.get("kind") == "judge"]
    parts = ["# Pascal VOC 2007", "", f"`python benchmarks/bench_voc.py`. {note}".strip(), "", INTRODUCTION]
    for setting in settings:
        for recipe in ("paper", "default"):
            own = [line for line in judged if line["setting"] == setting.name and line["recipe"] == recipe]
            if own:
                parts += ["", f"## {setting.name}: {recipe}", "", *setting_section(own)]
    parts += mechanism_section([line for line in lines if line.get("kind") in ("exemplars", "negatives", "floor")])
    stages = [[line["stage"], f"{line['seconds']:.0f}"] for line in lines if "stage" in line and line["seconds"] > 10]
    parts += ["", "## Time", "", markdown(["stage", "seconds"], stages)]
    return "\n".join(parts) + "\n"


def by_rule(lines: list[dict[str, Any]], key: str) -> dict[str, np.ndarray]:
    """(classes,) values of each rule."""
    names = [row["rule"] for row in lines[0]["rows"]]
    return {
        name: np.array([next(row[key] for row in line["rows"] if row["rule"] == name) for line in lines], dtype=float)
        for name in names
    }


def setting_section(lines: list[dict[str, Any]]) -> list[str]:
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
    if SHRUNK in ap:
        head += f" Shrunk minus uncalibrated, mean of 5 of both: {difference(ap[SHRUNK] - ap[NONE])}."
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
