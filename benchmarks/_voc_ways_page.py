"""The sections of `bench_voc`'s page on blends with single SVMs, and on the number of photographs.

In: lines of its results. Out: Markdown, and a figure of each curve. The blend that is put forward is chosen by its mean
AP on training images left out alone; what val says of all of them stands beside.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from _common import markdown
from _voc_numbers import MOVED, RAW, SINGLE, Lines, by_rule, difference, figure, interval, slug
from _voc_numbers import RCNN as JUDGED_RCNN
from _voc_ways import DEFAULT, RCNN, SQUARED, STRONGER, VAL

PHOTOGRAPHS = 2500  # that there are
JUDGED = {RAW + MOVED: DEFAULT, SINGLE + MOVED: SQUARED, JUDGED_RCNN + MOVED: RCNN}


def ways_sections(lines: Lines, stem: Path) -> list[str]:
    parts: list[str] = []
    for setting in dict.fromkeys(line["setting"] for line in lines if line.get("kind") in ("curve", "blend")):
        own = [line for line in lines if line.get("setting") == setting and "skipped" not in line]
        parts += blend_section(setting, [line for line in own if line["kind"] == "blend"])
        parts += curve_section(setting, curve_lines(own), stem)
    return parts


def curve_lines(lines: Lines) -> Lines:
    """Points of the curve; that of all photographs from the default as it was judged, where it was not measured anew."""
    found = [line for line in lines if line["kind"] == "curve"]
    known, classes = {(line["class"], line["value"]) for line in found}, {line["class"] for line in found}
    judged = [x for x in lines if (x["kind"], x["recipe"]) == ("judge", "default") and x["class"] in classes]
    for line in judged:
        if (line["class"], PHOTOGRAPHS) not in known:
            named = [{**row, "rule": JUDGED[row["rule"]]} for row in line["rows"] if row["rule"] in JUDGED]
            found.append({**line, "kind": "curve", "value": PHOTOGRAPHS, "rows": named})
    return found


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
    rows: list[list[object]] = []
    series: dict[str, tuple[list[float], list[float]]] = {way: ([], []) for way in (DEFAULT, SQUARED, RCNN, *stronger)}
    for value, own in zip(values, groups, strict=True):
        ways = set.intersection(*({row["rule"] for row in line["rows"]} for line in own))
        kept = [{**line, "rows": [row for row in line["rows"] if row["rule"] in ways]} for line in own]
        ap, drawn = by_rule(kept, "ap"), by_rule(kept, "resampled")
        for way in ways & series.keys():
            series[way][0].append(value)
            series[way][1].append(100 * float(ap[way].mean()))
        gains = [
            f"{difference(ap[DEFAULT] - ap[way])} ({interval(drawn[DEFAULT] - drawn[way])})" if way in ap else ""
            for way in (SQUARED, RCNN, *stronger)
        ]
        means = [f"{100 * ap[way].mean():.1f}" if way in ap else "" for way in series]
        rows.append([f"{value:,}", f"{np.mean([line['exemplars'] for line in own]):.0f}", *means, *gains])
    name = f"{stem.name}_{slug(setting)}_photographs.png"
    shown = {"default": DEFAULT, "single SVM": SQUARED, "R-CNN's": RCNN, "R-CNN's, C 0.01": stronger[-1]}
    figure(
        stem.with_name(name), "photographs that train", "detection AP",
        {label: series[way] for label, way in shown.items() if series[way][0]}, is_log=True,
    )  # fmt: skip
    head = ["photographs", "exemplars a class", "default", "single SVM", "R-CNN's", *(f"R-CNN's, C {C:g}" for C in STRONGER),
            "default minus single SVM", "minus R-CNN's", *(f"minus R-CNN's, C {C:g}" for C in STRONGER)]  # fmt: skip
    text = (
        f"{len(groups[0])} classes ({', '.join(line['class'] for line in groups[0])}); the same val, boxes moved in every "
        "row, the default uncalibrated; negatives from 400 of the photographs. R-CNN's single SVM has the hinge and C = "
        "1e-3, or C as stated. ± over classes, in brackets over images."
    )
    title = f"## {setting}: how the default and single SVMs grow with photographs"
    return [title, "", text, "", markdown(head, rows), "", f"![photographs]({name})", ""]
