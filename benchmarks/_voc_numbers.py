"""What the pages of `bench_voc` share: figures of rules over classes, their differences with intervals, and drawings.

In: lines of its results. Out: arrays, texts and PNG files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

Lines = list[dict[str, Any]]

DEFAULT, RAW, SINGLE = "joint + sigmoid, across images, shrunk, mean of few", "none, mean of few", "single SVM"
SIGMOIDS, RCNN = "sigmoid, mean of few", "R-CNN's single SVM"
MOVED = ", boxes moved"


def by_rule(lines: Lines, key: str) -> dict[str, np.ndarray]:
    """(classes,) values of each rule that all lines have, or (classes, resamples)."""
    found = [{row["rule"]: row[key] for row in line["rows"]} for line in lines]
    return {rule: np.array([own[rule] for own in found]) for rule in found[0] if all(rule in own for own in found)}


def difference(values: np.ndarray) -> str:
    """Mean and 95 % t-interval over classes, in points."""
    n = len(values)
    if n < 2:
        return f"{100 * values.mean():+.1f}"
    half = stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n)
    return f"{100 * values.mean():+.1f} ± {100 * half:.1f}"


def interval(values: np.ndarray) -> str:
    """95 % of the means over classes (classes, resamples) of differences on resampled images; NaN: without the class."""
    low, high = np.quantile(100 * np.nanmean(values, axis=0), (0.025, 0.975))
    return f"{low:+.1f} to {high:+.1f}"


def figure(
    path: Path, x: str, y: str, series: dict[str, tuple[Iterable[Any], Sequence[float]]],
    is_diagonal: bool = False, is_log: bool = False, is_line: bool = True,
) -> None:  # fmt: skip
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(4.5, 3), layout="constrained")
    axes = drawing.subplots()
    for name, (places, values) in series.items():
        axes.plot(list(places), list(values), marker="o", linestyle="-" if is_line else "none", label=name)
    if is_diagonal:
        axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
    if is_log:
        places = sorted({place for own, _ in series.values() for place in own})
        axes.set_xscale("log")
        axes.set_xticks(places, [f"{place:,.0f}" for place in places])
        axes.minorticks_off()
    axes.set(xlabel=x, ylabel=y)
    axes.legend()
    drawing.savefig(path, dpi=110)


def error(table: np.ndarray) -> float:
    """Expected calibration error of a reliability table: bins with their number, sums of scores and hits."""
    counts, scores, hits = table.T
    return float(np.abs(scores - hits).sum() / max(1, counts.sum()))


def slug(name: str) -> str:
    """A name as part of the name of a file."""
    return name.lower().replace(",", "").replace("'", "").replace(" ", "_")
