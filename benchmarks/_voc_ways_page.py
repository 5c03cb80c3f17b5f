"""The sections of `bench_voc`'s page on blends with single SVMs, and on the number of photographs.

In: lines of its results. Out: Markdown, and a figure of each curve. The blend that is put forward is chosen by its mean
AP on training images left out alone; what val says of all of them stands beside.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from _common import markdown
from _voc_numbers import Lines, by_rule, difference, figure, interval, slug
from _voc_ways import DEFAULT, RCNN, SQUARED, STRONGER, VAL

SUPPORT = "with support"


def ways_sections(lines: Lines, stem: Path) -> list[str]:
    parts: list[str] = []
    for setting in dict.fromkeys(line["setting"] for line in lines if line.get("kind") in ("curve", "blend")):
        own = [line for line in lines if line.get("setting") == setting and "skipped" not in line]
        parts += blend_section(setting, [line for line in own if line["kind"] == "blend"])
        parts += curve_section(setting, [line for line in own if line["kind"] == "curve"], stem)
    return parts


def common_classes(groups: list[Lines]) -> list[Lines]:
    """Lines of the classes that all groups have, in the same order."""
    names = set.intersection(*({line["class"] for line in own} for own in groups)) if groups else set()
    return [sorted((x for x in own if x["class"] in names), key=lambda line: str(line["class"])) for own in groups]


def blend_section(setting: str, lines: Lines) -> list[str]:
    values = sorted({line["value"] for line in lines}, key=str)
    groups = common_classes([[line for line in lines if line["value"] == value] for value in values])
    if len(values) < 2 or VAL not in values or len(groups[0]) < 2:
        return []
    folds = [by_rule(own, "ap") for value, own in zip(values, groups, strict=True) if value != VAL]
    val = groups[values.index(VAL)]
    ap, drawn = by_rule(val, "ap"), by_rule(val, "resampled")
    left_out = {way: np.mean([fold[way] for fold in folds], axis=0) for way in ap}
    chosen = chosen_way(left_out)
    rows = []
    for way in sorted(ap, key=lambda way: -left_out[way].mean()):
        cells = [f"**{way}**" if way == chosen else way, f"{100 * left_out[way].mean():.1f}"]
        cells.append(difference(left_out[way] - left_out[DEFAULT]) if way != DEFAULT else "")
        cells.append(f"{100 * ap[way].mean():.1f}")
        cells += [
            f"{difference(ap[way] - ap[other])} ({interval(drawn[way] - drawn[other])})" if way != other else ""
            for other in (DEFAULT, SQUARED, RCNN)
        ]
        rows.append(cells)
    head = ["way", "AP on training images left out", "to the default there", "AP on val", "to the default",
            "to the single SVM", "to R-CNN's"]  # fmt: skip
    text = (
        f"{len(val)} classes, boxes moved in every row, no calibration; ± over classes, in brackets over images. "
        f'"{DEFAULT}" is the default preset as it is. "+ 0.5 of R-CNN\'s": half of the score is that of R-CNN\'s single '
        'SVM. "With support x 1": the mean of what windows with an IoU of 0.5 or more score above -1 is added. In bold the '
        f"way with exemplars that does best on {len(folds)} of 3 folds of the training images, which is the one that counts on val."
    )
    return [f"## {setting}: exemplars blended with single SVMs", "", text, "", markdown(head, rows), ""]


def chosen_way(left_out: dict[str, np.ndarray]) -> str:
    """The best way with exemplars, by images left out."""
    return max((way for way in left_out if way.startswith("exemplars")), key=lambda way: left_out[way].mean())


def curve_section(setting: str, lines: Lines, stem: Path) -> list[str]:
    values = sorted({line["value"] for line in lines})
    counts = [sum(line["value"] == value for line in lines) for value in values]
    values = [value for value, count in zip(values, counts, strict=True) if 2 * count >= max(counts)]
    groups = common_classes([[line for line in lines if line["value"] == value] for value in values])
    if len(values) < 2 or len(groups[0]) < 2:
        return []
    stronger = [f"{RCNN}, C {C:g}" for C in STRONGER]
    rows, series = [], {way: [] for way in (DEFAULT, SQUARED, RCNN, *stronger)}
    for value, own in zip(values, groups, strict=True):
        ap, drawn = by_rule(own, "ap"), by_rule(own, "resampled")
        for way, points in series.items():
            points.append(100 * float(ap[way].mean()))
        gains = [
            f"{difference(ap[DEFAULT] - ap[way])} ({interval(drawn[DEFAULT] - drawn[way])})" for way in (SQUARED, RCNN)
        ]
        best = max(stronger, key=lambda way: ap[way].mean())
        gains.append(f"{difference(ap[DEFAULT] - ap[best])} (C {best.rpartition(' ')[2]})")
        means = [f"{100 * ap[way].mean():.1f}" for way in series]
        rows.append([f"{value:,}", f"{np.mean([line['exemplars'] for line in own]):.0f}", *means, *gains])
    name = f"{stem.name}_{slug(setting)}_photographs.png"
    shown = {"default": DEFAULT, "single SVM": SQUARED, "R-CNN's": RCNN, "R-CNN's, C 0.01": stronger[-1]}
    figure(
        stem.with_name(name), "photographs that train", "detection AP",
        {label: (values, series[way]) for label, way in shown.items()}, is_log=True,
    )  # fmt: skip
    head = ["photographs", "exemplars a class", "default", "single SVM", "R-CNN's", *(f"R-CNN's, C {C:g}" for C in STRONGER),
            "default minus single SVM", "minus R-CNN's", "minus the best of a larger C"]  # fmt: skip
    text = (
        f"{len(groups[0])} classes ({', '.join(line['class'] for line in groups[0])}); the same val, boxes moved in every "
        "row, the default uncalibrated; negatives from 400 of the photographs. R-CNN's single SVM has the hinge and C = "
        "1e-3; the last columns give it a larger C. ± over classes, in brackets over images."
    )
    title = f"## {setting}: how the default and single SVMs grow with photographs"
    return [title, "", text, "", markdown(head, rows), "", f"![photographs]({name})", ""]
