"""The page of `bench_voc`: what was measured on Pascal VOC 2007, as Markdown with figures beside it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from _common import markdown
from _voc_mechanism import mechanism_sections
from _voc_numbers import (
    DEFAULT,
    MOVED,
    RAW,
    RCNN,
    SIGMOIDS,
    SINGLE,
    Lines,
    by_rule,
    difference,
    error,
    figure,
    interval,
    slug,
)
from _voc_summary import handed_section, mapped_section, summary_section
from _voc_ways_page import ways_sections

INTRODUCTION = """\
Average precision by VOC 2010 in per cent, means over classes. Differences are paired over classes, with 95 % t-intervals;
"over images" is the 95 % interval of the same difference on 100 resamples of the judging images, paired as well. "Boxes
moved": by the box regression of the class, in every row alike, the single SVM's included. "Mean of few": a window's
score is the mean of its five highest calibrated scores. "Shrunk": `calibration.shrink: auto`. {sizes}; {n_negatives:,}
calibration negatives, searches of 4 seconds. "Default" are the options of the default preset, with negatives from 400
random images; "paper" is hinge, no prior, C = 1e-2 at length 20, with negatives from 200.
"""
ABOUT_TRIALS = """Ways to train and to pool are compared by a program of their own (Newton's method in batches, negatives from all images,
40 detections an image, no calibration). "single": one SVM a class by R-CNN's recipe, hinge and C = 1e-3, the hinge smoothed
over a twentieth of the margin; "squared": with the squared hinge. "S": exemplars that bend the squared SVM of their class,
C = 1e-3 and a positive weight of 50 unless it says otherwise; "default" bends R-CNN's, as the default preset did before.
"/ 5": the mean of the five best scores. "Jitter": windows with such an IoU with the object are positives of its exemplar,
too. "Other images": the SVM that is bent was trained without the exemplar's images. "S + 0.25 x": a quarter of the bend.
"""

FEWEST_MASKS = 20  # objects that a mean of masks is shown of

SHOWN = ("single", "single, C 0.003", "single, squared, C 0.001", "default | 5", "S, C 1e-4 | 5", "S | 5", "S | 1",
         "S, weight 5 | 5", "S, C 1e-4, weight 500 | 5", "S + 0.25 x S | 5", "S, jitter 0.7 | 5",
         "S, other images | 5", "lda | 5", "S + 0.5 x lda | 5")  # fmt: skip
MIRRORED = ("single", "single, mirrored", "single, squared, C 0.001", "single, squared, mirrored",
            "single, squared, mirrored, weight 1", "S, C 1e-4 | 5", "S, C 1e-4, mirrored | 5", "S, C 1e-4, mirrored | 10",
            "S, C 1e-4, only the prior mirrored | 5", "S, C 1e-4, only exemplars mirrored | 5", "S | 5", "S, mirrored | 5",
            "S, C 1e-4, weight 500 | 5", "S, C 1e-4, weight 500, mirrored | 5")  # fmt: skip


def page(lines: Lines, trials: Lines, beside_paper: Sequence[str], arguments: argparse.Namespace) -> str:
    """The text, with the section that stands beside the paper's; figures go beside the output and begin with its name."""
    stem, n_negatives = arguments.output.with_suffix(""), arguments.negatives
    judged = [line for line in lines if line.get("kind") == "judge"]
    programs = "`python benchmarks/bench_voc.py`" + " and `bench_voc_trials.py`" * bool(trials)
    parts = [f"# {arguments.title}", "", f"{programs}. {arguments.note}", ""]
    if arguments.prose is not None:
        parts += [arguments.prose.read_text(encoding="utf-8").rstrip(), "", "## How to read the tables", ""]
    sizes = f"{arguments.crops} windows an image"
    sizes += f" and at most {arguments.max_exemplars} exemplars a class" * (arguments.max_exemplars is not None)
    parts += [INTRODUCTION.format(sizes=sizes, n_negatives=n_negatives), *([ABOUT_TRIALS] if trials else [])]
    parts += [*beside_paper, *summary_section(lines), *mapped_section(lines)]
    for setting in dict.fromkeys(line["setting"] for line in judged):
        parts += mirror_sections(lines, setting)
        for recipe in ("default", "mirror", "paper"):
            own = [line for line in judged if (line["setting"], line["recipe"]) == (setting, recipe)]
            if own:
                parts += [f"## {setting}: {recipe}", "", *setting_section(own), ""]
                parts += default_sections(own, stem, recipe) if recipe != "paper" else []
                parts += class_section(own) if recipe == "default" else []
                parts += cross_section(lines, own) if recipe == "default" else []
                parts += transfer_section(own)
        parts += handed_section([line for line in judged if line["setting"] == setting])
    parts += [*ways_sections(lines, stem), *trial_sections(trials)]
    parts += mechanism_sections(lines, stem, n_negatives)
    stages = [[line["stage"], f"{line['seconds']:.0f}"] for line in lines if "stage" in line and line["seconds"] > 1]
    return "\n".join([*parts, "## Time", "", markdown(["stage", "seconds"], stages)]) + "\n"


def setting_section(lines: Lines) -> list[str]:
    ap, drawn = by_rule(lines, "ap"), by_rule(lines, "resampled")
    others = {"to single SVM": SINGLE, "to R-CNN's": RCNN, "to uncalibrated": RAW, "to sigmoid": "sigmoid"}
    others = {head: other for head, other in others.items() if other in ap}
    rows = []
    for name in ap:
        end = MOVED if name.endswith(MOVED) else ""
        cells = [name, f"{100 * ap[name].mean():.1f}"]
        for other in others.values():
            beside = other if other == "sigmoid" else other + end
            is_known = beside in ap and beside != name
            cells.append(difference(ap[name] - ap[beside]) if is_known else "")
            if other == SINGLE:
                cells.append(interval(drawn[name] - drawn[beside]) if is_known else "")
        rows.append(cells)
    counts = [line["exemplars"] for line in lines]
    head = f"{len(lines)} classes, {min(counts)} to {max(counts)} exemplars."
    heads = ["rule", "AP", *others]
    heads.insert(3, "over images")
    return [head, "", markdown(heads, rows)]


def class_section(lines: Lines) -> list[str]:
    """The default beside single SVMs, class by class."""
    rules = {"default": DEFAULT, "uncalibrated": RAW, "single SVM": SINGLE, "R-CNN's": RCNN}
    kept = sorted(lines, key=lambda line: str(line["class"]))
    ap = by_rule(kept, "ap")
    rows = [
        [line["class"], line["exemplars"], *(f"{100 * ap[rule + MOVED][k]:.1f}" for rule in rules.values())]
        for k, line in enumerate(kept)
    ]
    return ["### Classes, boxes moved", "", markdown(["class", "exemplars", *rules], rows), ""]


def mirror_sections(lines: Lines, setting: str) -> list[str]:
    """The default with mirrored exemplars and without, beside single SVMs with mirrored positives and without."""
    parts: list[str] = []
    for kind, where in (("fold", "on training images left out"), ("judge", "judged on val")):
        own = [line for line in lines if line.get("kind") == kind and line["setting"] == setting]
        both = [[line for line in own if line["recipe"] == recipe] for recipe in ("default", "mirror")]
        names = sorted({line["class"] for line in both[0]} & {line["class"] for line in both[1]})
        if len(names) > 1:
            parts += [f"## {setting}: mirrored exemplars, {where}", "", *mirror_table(both, names), ""]
    return parts


def mirror_table(both: Sequence[Lines], names: Sequence[str]) -> list[str]:
    ap, drawn = {}, {}
    for lines, title in zip(both, ("", ", mirrored"), strict=True):
        kept = sorted((line for line in lines if line["class"] in names), key=lambda line: line["class"])
        for rule, name in ((RCNN, RCNN), (SINGLE, SINGLE), (RAW, "default, uncalibrated"), (DEFAULT, "default")):
            ap[name + title], drawn[name + title] = (by_rule(kept, key)[rule + MOVED] for key in ("ap", "resampled"))
    others = {
        "to R-CNN's": RCNN, "to the single SVM": SINGLE, "to that, mirrored": f"{SINGLE}, mirrored",
        "to the default": "default",
    }  # fmt: skip
    rows = []
    for name in ap:
        beside = [
            f"{difference(ap[name] - ap[one])} ({interval(drawn[name] - drawn[one])})" if one != name else ""
            for one in others.values()
        ]
        rows.append([name, f"{100 * ap[name].mean():.1f}", *beside])
    head = f'{len(names)} classes; boxes moved in every row; in brackets over images. "Mirrored" is `training.mirror`: mirror '
    head += "images of the objects are exemplars and positives of the single SVM, too."
    return [head, "", markdown(["", "AP", *others], rows)]


def default_sections(lines: Lines, stem: Path, recipe: str = "default") -> list[str]:
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
    return [*text, *(reliability_section(lines, stem) if recipe == "default" else [])]


def cross_section(lines: Lines, judged: Lines) -> list[str]:
    """Calibration on scores of a prior that has not seen the images, beside calibration as it is."""
    found = {x["class"]: x for x in lines if x.get("kind") == "cross" and x["setting"] == judged[0]["setting"]}
    plain = [line for line in judged if line["class"] in found]
    if not plain:
        return []
    cross = [found[line["class"]] for line in plain]
    rows = []
    for name, own, key in (("as it is", plain, "plain"), ("prior of other images", cross, "cross")):
        ap, drawn = (by_rule(own, what)[DEFAULT + MOVED] for what in ("ap", "resampled"))
        base, base_drawn = (by_rule(plain, what)[DEFAULT + MOVED] for what in ("ap", "resampled"))
        recall = {what: 100 * float(np.mean([line["recall"][what] for line in own])) for what in own[0]["recall"]}
        floor = 100 * np.mean([line["floor"][key] for line in cross], axis=0)
        table = np.sum([line["reliability"][DEFAULT + MOVED] for line in own], axis=0)
        gain = "" if own is plain else f"{difference(ap - base)} ({interval(drawn - base_drawn)})"
        cells = [f"{recall[what]:.1f} %" for what in ("left_out", "as_searched", "as_searched_negatives")]
        rows.append(
            [
                name,
                *cells,
                f"{floor[0]:.1f} %",
                f"{floor[1]:.1f} %",
                f"{100 * ap.mean():.1f}",
                gain,
                f"{100 * error(table[1:]):.1f} %",
            ]
        )
    head = ["calibrated on scores of", "images left out say", "floor of 100 %: test recall", "negatives", "floor of 95 %: test recall",
            "negatives", "AP", "difference", "calibration error, 0.1 or more"]  # fmt: skip
    text = (
        f"{len(plain)} classes. The prior of the exemplars has seen every calibration window. In the second row windows of a fifth "
        "of the images are scored with the single SVM of the other four fifths in its place, and everything is fitted to that."
    )
    return ["### Recall on new images", "", text, "", markdown(head, rows), ""]


def reliability_section(lines: Lines, stem: Path) -> list[str]:
    """Detections by their score: how many, what they say, how many are right."""
    tables = {
        name: np.sum([line["reliability"][rule + MOVED] for line in lines], axis=0)
        for name, rule in (("default", DEFAULT), ("independent sigmoids", SIGMOIDS))
    }
    errors = {name: [100 * error(table[first:]) for first in (0, 1)] for name, table in tables.items()}
    rows = [[name, f"{a:.2f} %", f"{b:.1f} %"] for name, (a, b) in errors.items()]
    name = f"{stem.name}_reliability_{slug(lines[0]['setting'])}.png"
    figure(
        stem.with_name(name), "score of a detection", "share that is right",
        {n: (t[:, 1] / np.maximum(t[:, 0], 1), t[:, 2] / np.maximum(t[:, 0], 1)) for n, t in tables.items()},
        is_diagonal=True,
    )  # fmt: skip
    head = ["scores of", "expected calibration error", "of detections that score 0.1 or more"]
    return ["### Probabilities", "", markdown(head, rows), "", f"![Reliability]({name})", ""]


def transfer_section(lines: Lines) -> list[str]:
    """Masks that winners hand on, over all classes."""
    rows = []
    for rule in lines[0]["transfer"]:
        found = [x for line in lines if (x := line["transfer"].get(rule))]
        for choice in dict.fromkeys(name for one in found for name in one):
            known = [one[choice] for one in found if choice in one]
            n = sum(count for _, count in known)
            if n >= FEWEST_MASKS:
                rows.append([rule, choice, n, f"{100 * sum(mean * count for mean, count in known) / n:.1f}"])
    return ["### Masks handed on", "", markdown(["rule", "choice", "objects", "mask IoU"], rows), ""] if rows else []


def trial_sections(trials: Lines) -> list[str]:
    """Of the ways that were compared first, then of mirrored ones, which were measured in a run of their own."""
    parts: list[str] = []
    for ways, title in ((SHOWN, "Ways to train and to pool"), (MIRRORED, "Mirrored exemplars, uncalibrated")):
        known = [line for line in trials if set(ways) <= set(line["ap"])]
        for setting, is_judged in sorted({(line["setting"], line["fold"] is None) for line in known}):
            own = [x for x in known if x["setting"] == setting and (x["fold"] is None) == is_judged]
            where = "judged on val" if is_judged else "on training images left out"
            beside = {"to R-CNN's single SVM": ways[0], "to the squared one": ways[2]}
            if ways is MIRRORED:
                beside |= {"to that, mirrored": ways[3], "to the default": ways[5]}
            parts += [f"## {title}: {setting}, {where}", "", *trial_table(own, ways, beside), ""]
    return parts


def trial_table(lines: Lines, ways: Sequence[str], beside: dict[str, str]) -> list[str]:
    classes = sorted({line["class"] for line in lines})
    keys = [key for key in ("ap", "moved_ap") if key in lines[0]]
    tables = {
        key: {way: np.array([mean_of(lines, key, way, name) for name in classes]) for way in ways} for key in keys
    }
    rows = []
    for way in ways:
        cells = [way.replace("|", "/")]
        for ap in tables.values():
            cells += [
                f"{100 * ap[way].mean():.1f}",
                *(difference(ap[way] - ap[other]) if other != way else "" for other in beside.values()),
            ]
        rows.append(cells)
    head = ["way"]
    for key in keys:
        head += ["AP" + MOVED * (key == "moved_ap"), *beside]
    return [f"{len(classes)} classes.", "", markdown(head, rows)]


def mean_of(lines: Lines, key: str, way: str, class_name: str) -> float:
    return float(np.mean([line[key][way] for line in lines if line["class"] == class_name]))
