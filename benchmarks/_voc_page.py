"""The page of `bench_voc`: what was measured on Pascal VOC 2007, as Markdown with figures beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from _common import markdown

Lines = list[dict[str, Any]]

INTRODUCTION = """\
Average precision by VOC 2010 in per cent, means over classes. Differences are paired over classes, with 95 % t-intervals;
"over images" is the 95 % interval of the same difference on 100 resamples of the judging images, paired as well. "Boxes
moved": by the box regression of the class, in every row alike, the single SVM's included. "Mean of few": a window's
score is the mean of its five highest calibrated scores. "Shrunk": `calibration.shrink: auto`. 500 windows an image; 40,000
calibration negatives, searches of 4 seconds. "Default" are the options of the default preset, with negatives from 400
random images; "paper" is hinge, no prior, C = 1e-2 at length 20, with negatives from 200.

Ways to train and to pool are compared by a program of their own (Newton's method in batches, negatives from all images,
40 detections an image, no calibration). "single": one SVM a class by R-CNN's recipe, hinge and C = 1e-3, the hinge smoothed
over a twentieth of the margin; "squared": with the squared hinge. "S": exemplars that bend the squared SVM of their class,
C = 1e-3 and a positive weight of 50 unless it says otherwise; "default" bends R-CNN's, as the default preset did before.
"/ 5": the mean of the five best scores. "Jitter": windows with such an IoU with the object are positives of its exemplar,
too. "Other images": the SVM that is bent was trained without the exemplar's images. "S + 0.25 x": a quarter of the bend.
"""

DEFAULT, RAW, SINGLE = "joint + sigmoid, across images, shrunk, mean of few", "none, mean of few", "single SVM"
SIGMOIDS = "sigmoid, mean of few"
MOVED = ", boxes moved"
SHOWN = ("single", "single, C 0.003", "single, squared, C 0.001", "default | 5", "S, C 1e-4 | 5", "S | 5", "S | 1",
         "S, weight 5 | 5", "S, C 1e-4, weight 500 | 5", "S + 0.25 x S | 5", "S, jitter 0.7 | 5",
         "S, other images | 5", "lda | 5", "S + 0.5 x lda | 5")  # fmt: skip
UNITS = {"exemplars": "exemplars of a class", "negatives": "calibration negatives", "floor": "recall floor"}


def page(lines: Lines, trials: Lines, note: str, folder: Path) -> str:
    """The text; figures go to `folder`."""
    judged = [line for line in lines if line.get("kind") == "judge"]
    parts = ["# Pascal VOC 2007", "", f"`python benchmarks/bench_voc.py` and `bench_voc_trials.py`. {note}", ""]
    parts += [INTRODUCTION]
    for setting in dict.fromkeys(line["setting"] for line in judged):
        for recipe in ("default", "paper"):
            own = [line for line in judged if (line["setting"], line["recipe"]) == (setting, recipe)]
            if own:
                parts += [f"## {setting}: {recipe}", "", *setting_section(own), ""]
                parts += default_sections(own, folder) if recipe == "default" else []
                parts += transfer_section(own)
    parts += trial_sections(trials)
    parts += mechanism_section(lines, folder)
    stages = [[line["stage"], f"{line['seconds']:.0f}"] for line in lines if "stage" in line and line["seconds"] > 1]
    return "\n".join([*parts, "## Time", "", markdown(["stage", "seconds"], stages)]) + "\n"


def by_rule(lines: Lines, key: str) -> dict[str, np.ndarray]:
    """(classes,) values of each rule, or (classes, resamples)."""
    return {
        row["rule"]: np.array([next(r[key] for r in line["rows"] if r["rule"] == row["rule"]) for line in lines])
        for row in lines[0]["rows"]
    }


def setting_section(lines: Lines) -> list[str]:
    ap, drawn = by_rule(lines, "ap"), by_rule(lines, "resampled")
    rows = []
    for name in ap:
        end = MOVED if name.endswith(MOVED) else ""
        cells = [name, f"{100 * ap[name].mean():.1f}"]
        for other in (SINGLE + end, RAW + end, "sigmoid"):
            is_known = other in ap and other != name
            cells.append(difference(ap[name] - ap[other]) if is_known else "")
            if other.startswith(SINGLE):
                cells.append(interval(drawn[name] - drawn[other]) if is_known else "")
        rows.append(cells)
    counts = [line["exemplars"] for line in lines]
    head = f"{len(lines)} classes, {min(counts)} to {max(counts)} exemplars."
    return [head, "", markdown(["rule", "AP", "to single SVM", "over images", "to uncalibrated", "to sigmoid"], rows)]


def difference(values: np.ndarray) -> str:
    """Mean and 95 % t-interval over classes, in points."""
    n = len(values)
    half = stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    return f"{100 * values.mean():+.1f} ± {100 * half:.1f}"


def interval(values: np.ndarray) -> str:
    """95 % of the means over classes (classes, resamples) of differences on resampled images."""
    low, high = np.quantile(100 * values.mean(axis=0), (0.025, 0.975))
    return f"{low:+.1f} to {high:+.1f}"


def default_sections(lines: Lines, folder: Path) -> list[str]:
    recall = {key: 100 * float(np.mean([x["recall"][key] for x in lines])) for key in lines[0]["recall"]}
    shares = sorted(line["left_out"]["chosen"] for line in lines)
    kept = ", ".join(f"{share:g} in {shares.count(share)}" for share in dict.fromkeys(shares))
    text = [
        f"Own share of the thresholds that images left out support: {kept} classes.",
        "",
        f"The joint thresholds, asked for all positive training windows by exemplars of other images, accept "
        f"{recall['as_searched']:.1f} % of the positive test windows and {recall['as_searched_negatives']:.1f} % of the "
        f"negative ones. Images left out had said {recall['left_out']:.1f} %; lowered as far as those ask for, they accept "
        f"{recall['lowered']:.1f} and {recall['lowered_negatives']:.1f} %.",
        "",
    ]
    return [*text, *reliability_section(lines, folder)]


def reliability_section(lines: Lines, folder: Path) -> list[str]:
    """Detections by their score: how many, what they say, how many are right."""
    tables = {
        name: np.sum([line["reliability"][rule + MOVED] for line in lines], axis=0)
        for name, rule in (("default", DEFAULT), ("independent sigmoids", SIGMOIDS))
    }
    errors = {name: [100 * error(table[first:]) for first in (0, 1)] for name, table in tables.items()}
    rows = [[name, f"{a:.2f} %", f"{b:.1f} %"] for name, (a, b) in errors.items()]
    figure(
        folder / "voc2007_reliability.png", "score of a detection", "share that is right",
        {n: (t[:, 1] / np.maximum(t[:, 0], 1), t[:, 2] / np.maximum(t[:, 0], 1)) for n, t in tables.items()},
        is_diagonal=True,
    )  # fmt: skip
    head = ["scores of", "expected calibration error", "of detections that score 0.1 or more"]
    return ["### Probabilities", "", markdown(head, rows), "", "![Reliability](voc2007_reliability.png)", ""]


def error(table: np.ndarray) -> float:
    counts, scores, hits = table.T
    return float(np.abs(scores - hits).sum() / max(1, counts.sum()))


def transfer_section(lines: Lines) -> list[str]:
    """Masks that winners hand on, over all classes."""
    rows = []
    for rule in lines[0]["transfer"]:
        found = [x for line in lines if (x := line["transfer"].get(rule))]
        for choice in dict.fromkeys(name for one in found for name in one):
            known = [one[choice] for one in found if choice in one]
            n = sum(count for _, count in known)
            rows.append([rule, choice, n, f"{100 * sum(mean * count for mean, count in known) / n:.1f}"])
    return ["### Masks handed on", "", markdown(["rule", "choice", "objects", "mask IoU"], rows), ""]


def trial_sections(trials: Lines) -> list[str]:
    parts: list[str] = []
    kinds = {(line["setting"], line["fold"] is None) for line in trials if line["ap"]}
    for setting, is_judged in sorted(kinds):
        own = [x for x in trials if x["setting"] == setting and (x["fold"] is None) == is_judged and x["ap"]]
        where = "judged on val" if is_judged else "on training images left out"
        parts += [f"## Ways to train and to pool: {setting}, {where}", "", *trial_table(own), ""]
    return parts


def trial_table(lines: Lines) -> list[str]:
    classes = sorted({line["class"] for line in lines})
    keys = [key for key in ("ap", "moved_ap") if key in lines[0]]
    tables = {
        key: {way: np.array([mean_of(lines, key, way, name) for name in classes]) for way in SHOWN} for key in keys
    }
    rows = []
    for way in SHOWN:
        cells = [way.replace("|", "/")]
        for ap in tables.values():
            cells += [
                f"{100 * ap[way].mean():.1f}",
                *(difference(ap[way] - ap[other]) for other in (SHOWN[0], SHOWN[2])),
            ]
        rows.append(cells)
    head = ["way"]
    for key in keys:
        head += ["AP" + MOVED * (key == "moved_ap"), "to R-CNN's single SVM", "to the squared one"]
    return [f"{len(classes)} classes.", "", markdown(head, rows)]


def mean_of(lines: Lines, key: str, way: str, class_name: str) -> float:
    return float(np.mean([line[key][way] for line in lines if line["class"] == class_name]))


def mechanism_section(lines: Lines, folder: Path) -> list[str]:
    changed = [line for line in lines if line.get("kind") in UNITS]
    if not changed:
        return []
    classes = {line["class"] for line in changed}
    base = [x for x in lines if x.get("kind") == "judge" and x["recipe"] == "paper" and x["class"] in classes]
    parts = ["## What joint calibration owes to what", ""]
    parts += [
        f"Exemplars as in the paper, {len(classes)} classes, the maximum of all; one thing changed at a time.",
        "",
    ]
    rows = [mechanism_row("as it is", base)]
    for kind, unit in UNITS.items():
        values = sorted({line["value"] for line in changed if line["kind"] == kind})
        groups = [[x for x in changed if (x["kind"], x["value"]) == (kind, value)] for value in values]
        rows += [mechanism_row(f"{unit}: {value:,}", own) for value, own in zip(values, groups, strict=True)]
        series = {
            rule: (values, [100 * by_rule(own, "ap")[rule].mean() for own in groups])
            for rule in ("none", "sigmoid", "joint + sigmoid")
        }
        figure(folder / f"voc2007_{kind}.png", unit, "detection AP", series, is_log=kind != "floor")
        parts += [f"![{unit}](voc2007_{kind}.png)", ""]
    head = ["what", "classes", "none", "sigmoid", "joint + sigmoid", "joint minus sigmoid", "recall of thresholds"]
    return [*parts, markdown(head, rows), ""]


def mechanism_row(name: str, lines: Lines) -> list[object]:
    ap, recall = by_rule(lines, "ap"), by_rule(lines, "recall")["joint"]
    means = [f"{100 * ap[rule].mean():.1f}" for rule in ("none", "sigmoid", "joint + sigmoid")]
    gain = difference(ap["joint + sigmoid"] - ap["sigmoid"])
    return [name, len(lines), *means, gain, f"{100 * recall.mean():.0f} %"]


def figure(
    path: Path, x: str, y: str, series: dict[str, tuple[Iterable[float], Sequence[float]]],
    is_diagonal: bool = False, is_log: bool = False,
) -> None:  # fmt: skip
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(4.5, 3), layout="constrained")
    axes = drawing.subplots()
    for name, (places, values) in series.items():
        axes.plot(list(places), list(values), marker="o", label=name)
    if is_diagonal:
        axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
    if is_log:
        axes.set_xscale("log")
    axes.set(xlabel=x, ylabel=y)
    axes.legend()
    drawing.savefig(path, dpi=110)
