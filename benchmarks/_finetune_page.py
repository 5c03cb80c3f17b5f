"""The page of the fine-tuning benchmark: what was measured on splits becomes means with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from _common import machine, markdown

SIGMOID, JOINT_SIGMOID, SINGLE = "independent sigmoid", "joint + sigmoid", "single SVM"
ACROSS = "joint + sigmoid, across images"
TITLES = {"pets_voc": "pets"}
MODES = {"pooled": "Pooled descriptors", "crop": "Crop descriptors"}
PAPER_RECALL = 92.2
EPOCH = 200  # batches: the most that the defaults of fine-tuning give an epoch

Line = dict[str, Any]


def page(lines: Sequence[Line], command: str, note: str = "") -> str:
    """Markdown from the lines of the file of results; the note goes to its head."""
    measured = [line for line in lines if "set" in line]
    parts = ["# Fine-tuning", f"`{command}`, laid out on {machine()}.", note, _how(measured)]
    for mode, title in MODES.items():
        if any(line["mode"] == mode for line in measured):
            parts += [f"## {title}", _main_table(measured, mode), _differences(measured, mode)]
    parts += [
        _training([line["training"] for line in lines if "training" in line]),
        _speed([line["speed"] for line in lines if "speed" in line]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _how(lines: Sequence[Line]) -> str:
    return (
        "Every set is cut in two halves of images, several times. On one half the network is fine-tuned (a fifth of it is held "
        "out to stop by), exemplars and the single SVM are trained and calibrated as in the paper, with own-image pairs "
        "allowed; the other half judges. `frozen` is the same with the weights of ImageNet. A figure is the mean over the "
        "classes of a set, then over the splits; behind it, where there are several, a 95 % t-interval over the splits, which "
        "share images and are few, so that it is a rough guide. `probe`: share of test boxes, objects and as many windows of "
        "background, whose class a ridge classifier on the descriptors names. `recall`: of the joint thresholds on the positive "
        f"test windows, {PAPER_RECALL} % in the paper. `FP`: false positives at that recall. `AP`: average precision of windows, "
        "then of detections by VOC 2010, in per cent. Descriptors have 256 components; crops are those of the first 500 "
        "proposals of an image."
    )


def _main_table(lines: Sequence[Line], mode: str) -> str:
    header = ["set", "splits", "network", "probe", "recall"]
    for rule in ("indep. sigmoid", "joint + sigmoid", "single SVM"):
        header += [f"{rule}: FP", "window AP", "detection AP"]
    rows = []
    for name in _names(lines, mode):
        for variant in _variants(lines, name, mode):
            own = _lines(lines, name, variant, mode)
            cells = [TITLES.get(name, name), len(own), variant]
            cells.append(_cell([100 * line["probe"] for line in own]))
            cells.append(_cell(_means(own, SIGMOID, "recall", 100)))
            for rule in (SIGMOID, JOINT_SIGMOID, SINGLE):
                cells.append(_cell(_means(own, rule, "false_positives"), 0))
                cells += [_cell(_means(own, rule, key, 100)) for key in ("window_ap", "detection_ap")]
            rows.append(cells)
    return markdown(header, rows)


def _differences(lines: Sequence[Line], mode: str) -> str:
    """What fine-tuning adds, and what the paper claims, split by split."""
    questions: list[tuple[str, Callable[[str], list[float]]]] = []
    for rule in (SIGMOID, JOINT_SIGMOID, SINGLE):
        questions.append((f"fine-tuned - frozen, {rule}", _gain(lines, mode, rule)))
    for variant in ("frozen", "fine-tuned"):
        for other, paper in ((SIGMOID, "+3.3"), (SINGLE, "-6.4")):
            text = f"{variant}: joint + sigmoid - {other} (paper: {paper})"
            questions.append((text, _between(lines, mode, variant, JOINT_SIGMOID, other)))
    names = _names(lines, mode)
    rows = [[text, *(_cell(values(name)) for name in names)] for text, values in questions]
    return "Differences of detection AP in points, split by split.\n\n" + markdown(
        ["difference", *(TITLES.get(name, name) for name in names)], rows
    )


def _gain(lines: Sequence[Line], mode: str, rule: str) -> Callable[[str], list[float]]:
    def values(name: str) -> list[float]:
        before = {line["split"]: line for line in _lines(lines, name, "frozen", mode)}
        after = [line for line in _lines(lines, name, "fine-tuned", mode) if line["split"] in before]
        pairs = [(_means([line], rule, "detection_ap", 100), _means([before[line["split"]]], rule, "detection_ap", 100)) for line in after]  # fmt: skip
        return [a[0] - b[0] for a, b in pairs]

    return values


def _between(lines: Sequence[Line], mode: str, variant: str, rule: str, other: str) -> Callable[[str], list[float]]:
    def values(name: str) -> list[float]:
        own = _lines(lines, name, variant, mode)
        first, second = (_means(own, which, "detection_ap", 100) for which in (rule, other))
        return [a - b for a, b in zip(first, second, strict=True)]

    return values


def _training(found: Sequence[dict[str, Any]]) -> str:
    latest = {(facts["set"], facts["split"], facts["variant"]): facts for facts in found}
    rows = []
    for (name, split, variant), facts in sorted(latest.items()):
        best = facts["history"][facts["best_epoch"]]
        per_batch = 1000 * facts["seconds"] / facts["n_batches"]
        losses = (facts["history"][0]["held_out_loss"], best["held_out_loss"])
        rows.append(
            [TITLES.get(name, name), split, variant, facts["n_train"], facts["n_batches"], facts["best_epoch"]]
            + [f"{loss:.3f}" for loss in losses]
            + [f"{100 * best['held_out_ap']:.1f}", facts["runtime"]["device"], f"{per_batch:,.0f}"]
        )
    if not rows:
        return ""
    header = ["set", "split", "network", "images", "batches", "best epoch", "held-out loss before", "after"]
    header += ["held-out window AP", "device", "ms a batch"]
    text = "The time of a batch includes its crops, the looks at held-out windows and the start of the device."
    return f"## The trainings\n\n{text}\n\n{markdown(header, rows)}"


def _speed(found: Sequence[dict[str, Any]]) -> str:
    if not found:
        return ""
    rows = []
    for speed in found:
        for row in speed["rows"]:
            stages = "all" if row["stages"] is None else f"last {row['stages']}"
            rate = row["flops"] / row["step"]
            crops = row["crops"] or 0.0
            rows.append([
                speed["device"], f"{row['size']} px", stages, f"{1000 * row['step']:,.0f}", f"{1000 * crops:,.0f}", f"{EPOCH * (row['step'] + crops):,.0f}",
                f"{row['flops'] / 1e9:,.0f}", f"{rate / 1e12:,.2f}", f"{100 * rate / speed['product_flops']:.1f} %",
            ])  # fmt: skip
    header = [
        "device",
        "crop",
        "stages",
        "ms a batch",
        "ms its crops",
        "s an epoch",
        "GFLOP a batch",
        "TFLOP/s",
        "of a matrix product",
    ]
    text = (
        "A batch is 128 crops, forward and backward and the step of the optimiser; its crops are made beside that on a CPU, "
        "before it on a GPU; an epoch is "
        f"{EPOCH} batches with their crops, the longest of the defaults. Times of a CPU are processor time divided by the number of threads, which is what the clock "
        "says on cores that nobody else uses. The last column compares with a large matrix product on the same device, in bfloat16 on a GPU: "
        "depthwise convolutions have few operations per byte and many small kernels, and reach a small share of it."
    )
    return f"## Time of a batch\n\n{text}\n\n{markdown(header, rows)}"


def _names(lines: Sequence[Line], mode: str) -> list[str]:
    return list(dict.fromkeys(line["set"] for line in lines if line["mode"] == mode))


def _variants(lines: Sequence[Line], name: str, mode: str) -> list[str]:
    return list(dict.fromkeys(line["variant"] for line in lines if (line["set"], line["mode"]) == (name, mode)))


def _lines(lines: Sequence[Line], name: str, variant: str, mode: str) -> list[Line]:
    own = [line for line in lines if (line["set"], line["variant"], line["mode"]) == (name, variant, mode)]
    return sorted(own, key=lambda line: line["split"])


def _means(lines: Sequence[Line], rule: str, key: str, factor: float = 1.0) -> list[float]:
    """One mean over the classes for each split."""
    return [factor * float(np.mean([row[key] for row in line["rows"] if row["rule"] == rule])) for line in lines]


def _cell(values: Sequence[float], digits: int = 1) -> str:
    if not len(values):
        return ""
    text = f"{np.mean(values):,.{digits}f}"
    if len(values) < 2:
        return text
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{text} ± {half:,.{digits}f}"
