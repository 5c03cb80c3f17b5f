"""What the page of `bench_voc` begins with: the default on every setting in one table; and masks of the same objects.

In: lines of its results. Out: Markdown.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from _common import markdown
from _voc_numbers import DEFAULT, MOVED, RAW, RCNN, SIGMOIDS, SINGLE, Lines, by_rule, difference, error, interval

PAPER = "joint + sigmoid"
MAPPED = ", kernel map"  # how settings end whose rows are mapped
TOLERANCE = 0.03  # of a recall floor, as in `eesvm.detector.shrinkage`


def summary_section(lines: Lines) -> list[str]:
    """The calibrated default of the package, setting by setting."""
    judged = [line for line in lines if line.get("kind") == "judge" and line["recipe"] == "default"]
    crossed = [line for line in lines if line.get("kind") == "cross"]
    settings = list(dict.fromkeys(line["setting"] for line in judged))
    rows = [summary_row(name, [x for x in judged if x["setting"] == name]) for name in settings]
    head = [
        "setting", "classes", "AP of the default", "to the single SVM", "to R-CNN's", "to uncalibrated",
        "calibration error, 0.1 or more", "of independent sigmoids",
    ]  # fmt: skip
    text = "Boxes moved in every row; in brackets over images. The single SVM has the squared hinge, R-CNN's the hinge."
    return ["## The default on every setting", "", text, "", markdown(head, rows), "", *recall_section(judged, crossed)]


def summary_row(name: str, judged: Lines) -> list[object]:
    ap, drawn = (by_rule(judged, key) for key in ("ap", "resampled"))
    own = DEFAULT + MOVED
    gains = [
        f"{difference(ap[own] - ap[other])} ({interval(drawn[own] - drawn[other])})"
        for other in (SINGLE + MOVED, RCNN + MOVED, RAW + MOVED)
    ]
    tables = [np.sum([line["reliability"][rule + MOVED] for line in judged], axis=0) for rule in (DEFAULT, SIGMOIDS)]
    errors = [f"{100 * error(table[1:]):.1f} %" for table in tables]
    return [name, len(judged), f"{100 * ap[own].mean():.1f}", *gains, *errors]


def mapped_section(lines: Lines) -> list[str]:
    """The default behind a kernel map beside single SVMs on plain rows and behind the same map."""
    judged = [line for line in lines if line.get("kind") == "judge" and line["recipe"] == "default"]
    rows: list[list[object]] = []
    for name in dict.fromkeys(x["setting"] for x in judged if x["setting"].endswith(MAPPED)):
        both = [[x for x in judged if x["setting"] == one] for one in (name, name.removesuffix(MAPPED))]
        shared = set.intersection(*({x["class"] for x in own} for own in both))
        if len(shared) < 2:
            continue
        kept = [sorted((x for x in own if x["class"] in shared), key=lambda x: x["class"]) for own in both]
        (ap, plain), (drawn, plain_drawn) = ([by_rule(own, key) for own in kept] for key in ("ap", "resampled"))
        for end, words in ((MOVED, "moved"), ("", "as proposed")):
            own = DEFAULT + end
            others = [(plain, plain_drawn, rule) for rule in (SINGLE, RCNN, DEFAULT)]
            others += [(ap, drawn, rule) for rule in (SINGLE, RCNN, RAW)]
            gains = [
                f"{difference(ap[own] - beside[rule + end])} ({interval(drawn[own] - resampled[rule + end])})"
                for beside, resampled, rule in others
            ]
            rows.append([name.removesuffix(MAPPED), len(shared), words, f"{100 * ap[own].mean():.1f}", *gains])
    head = [
        "setting", "classes", "boxes", "AP of the default behind the map", "to the single SVM on plain rows", "to R-CNN's on plain rows",
        "to the default on plain rows", "to the single SVM behind the map", "to R-CNN's behind the map", "to uncalibrated",
    ]  # fmt: skip
    return ["## A kernel map", "", markdown(head, rows), ""] if rows else []


def recall_section(judged: Lines, crossed: Lines) -> list[str]:
    """What joint thresholds accept of the test windows, on every setting."""
    rows: list[list[object]] = []
    for name in dict.fromkeys(line["setting"] for line in judged):
        plain, cross = ([x for x in some if x["setting"] == name] for some in (judged, crossed))
        both = f"{len(plain)}, at 95 % {len(cross)}" if cross and len(cross) != len(plain) else len(plain)
        rows.append([name, both, "off", *recall_cells(plain), *floor_cells(cross, "plain")])
        if cross:
            rows.append([name, len(cross), "on", *recall_cells(cross), *floor_cells(cross, "cross")])
    head = [
        "setting",
        "classes",
        "`cross_fit`",
        "100 % asked for: recall",
        "negatives",
        "95 % asked for: recall",
        "negatives",
    ]
    text = "Shares of the positive and of the negative test windows, means over classes with 95 % t-intervals."
    parts = ["## What the thresholds accept of new images", "", text, "", markdown(head, rows), ""]
    return [*parts, *floors_part([line for line in crossed if "floors" in line])]


def floors_part(crossed: Lines) -> list[str]:
    """Floors below 100 %: thresholds as they were searched, and lowered as far as images left out ask for."""
    rows: list[list[object]] = []
    for name in dict.fromkeys(line["setting"] for line in crossed):
        own = [line for line in crossed if line["setting"] == name]
        for floor in sorted(own[0]["floors"], key=float, reverse=True):
            for key, words in (("plain", "off"), ("cross", "on")):
                found = [line["floors"][floor][key] for line in own]
                kinds = (("as_searched", "as_searched_negatives"), ("lowered", "lowered_negatives"))
                cells = [percent([one[part] for one in found]) for pair in kinds for part in pair]
                within = sum(one["lowered"] >= float(floor) - TOLERANCE for one in found)
                said = percent([one["left_out"] for one in found])
                rows.append(
                    [name, f"{100 * float(floor):g} %", words, said, *cells, f"{within} of {len(found)}"],
                )
    head = ["setting", "asked for", "`cross_fit`", "images left out said", "as searched: recall", "negatives",
            "lowered: recall", "negatives", "classes within 3 points"]  # fmt: skip
    text = (
        "Floors below 100 %. Lowered: all thresholds of a class moved down by the same amount, so far that images left "
        "out of the search are accepted to within 3 points of the floor."
    )
    return [text, "", markdown(head, rows), ""] if rows else []


def recall_cells(lines: Lines) -> list[str]:
    return [percent([x["recall"][key] for x in lines]) for key in ("as_searched", "as_searched_negatives")]


def floor_cells(lines: Lines, key: str) -> list[str]:
    return [percent([x["floor"][key][place] for x in lines]) for place in (0, 1)]


def percent(values: list[float]) -> str:
    return f"{difference(np.array(values)).lstrip('+')} %" if values else ""


def handed_section(lines: Lines) -> list[str]:
    """Masks of the default's exemplars and of the paper's on the objects that both find and hand a mask to."""
    known = {
        recipe: [line for line in lines if line["recipe"] == recipe and line.get("handed")]
        for recipe in ("default", "paper")
    }
    if not all(known.values()):
        return []
    rows = []
    for choice in ("winner", "vote"):
        own, other = (masks(known[recipe], rule, choice) for recipe, rule in (("default", DEFAULT), ("paper", PAPER)))
        both = sorted(own.keys() & other.keys())
        if len(both) > 1:
            pairs = np.array([[own[key], other[key]] for key in both])
            means = [f"{100 * mean:.1f}" for mean in pairs.mean(axis=0)]
            rows.append([choice, len(both), *means, difference(pairs[:, 0] - pairs[:, 1])])
    head = ["mask of", "objects", "default", "paper's setting", "difference"]
    text = "Mean IoU of masks on the same objects, boxes as proposed; intervals over objects."
    title = f"## {lines[0]['setting']}: masks of the default and of the paper's setting"
    return [title, "", text, "", markdown(head, rows), ""] if rows else []


def masks(lines: Lines, rule: str, choice: str) -> dict[tuple[Any, ...], float]:
    """IoU by class, image and object."""
    return {
        (line["class"], image, index): iou
        for line in lines
        for image, index, iou in (line["handed"].get(rule) or {}).get(choice, ())
    }
