"""Masks that winners of one preset and of another transfer: `python benchmarks/bench_mask_presets.py`.

Writes benchmarks/results/mask_presets.md. Images with masks of VOC 2007 are cut into halves, several times: one trains a
detector with each preset, the other judges, as in bench_masks.py, but masks are transferred as they are. Compared are
objects that both presets find. What has been measured is kept below `--work`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from _common import RESULTS, ROOT, machine, markdown
from bench_masks import (
    CHEAP,
    WHOLE_BOX,
    cell,
    difference,
    first_windows,
    halves,
    handed_on,
    images_of,
    interval,
    judged,
    paired,
)
from eesvm.descriptors import DescriptorCache
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_descriptor import fit_descriptor
from eesvm.detector.training_table import describe_windows, propose_windows
from eesvm.transfer.measures import MASK_IOU

SET = "voc2007"
NO_MAP = {"descriptor.n_components": 256, "descriptor.kernel_map": None, "descriptor.kernel_components": None}
PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("default", {}),
    "default without its kernel map": ("default", NO_MAP),
    "paper": ("paper", {}),
}
CHOICES = ("winner", "vote of 5", "nearest", "random", WHOLE_BOX)
HEAD = """\
# Masks that presets transfer

{machine}; `python benchmarks/bench_mask_presets.py`.

The 422 images of PASCAL VOC 2007 that have masks, cut into halves, {n} times: one trains a preset (frozen
EfficientNet-Lite0, pooled; {seconds:g} s for the joint thresholds of a class; the first {windows} windows of each image,
negatives of 60 images, 10,000 to calibrate on), the other judges. Judged is the best detection of each object that is
found (IoU of 0.5), where the preset puts its box; void pixels count neither way. Masks are transferred as they are, not
refined: the winner's, a vote of the five best, that of the exemplar with the nearest descriptor, the mean of ten random
exemplars of the class, and the whole box. In per cent, with 95 % intervals over images; a photograph is in several splits.
On frozen descriptors of so few images the paper's exemplars have next to no AP ([why](../../docs/results/voc2007.md)); the
objects that they find are found by some detection, however low its score.
"""


def main() -> None:
    arguments = parse_arguments()
    arguments.work.mkdir(parents=True, exist_ok=True)
    images = images_of(SET, arguments.data)
    for preset in PRESETS:
        measure(preset, images, arguments)
    text = page(arguments)
    if arguments.output:
        (arguments.output / "mask_presets.md").write_text(text)
    print(text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("data", nargs="?", type=Path, default=ROOT.parent / "shared" / "data", help="folder of datasets")
    add("--splits", type=int, default=3)
    add("--time-limit", type=float, default=1.0, help="seconds for each joint calibration (1)")
    add("--windows", type=int, default=500, help="proposals of each image, the first so many (500)")
    add("--cache", type=Path, default=ROOT / "build" / "masks_cache", help="of windows and descriptors")
    add("--work", type=Path, default=ROOT / "build" / "mask_presets", help="folder of what has been measured")
    add("--output", type=Path, default=RESULTS, help="folder of the page")
    return parser.parse_args()


def file_of(arguments: argparse.Namespace, preset: str, split: int) -> Path:
    return arguments.work / f"{preset.replace(' ', '_')}_{split}.json"


def measure(preset: str, images: list[Any], arguments: argparse.Namespace) -> None:
    """Detections of all splits, and the masks that they get."""
    todo = [split for split in range(arguments.splits) if not file_of(arguments, preset, split).exists()]
    if not todo:
        return
    name, changes = PRESETS[preset]
    options = DetectorOptions.make(name, changes={**CHEAP, **changes, "calibration.time_limit": arguments.time_limit})
    cache = DescriptorCache(arguments.cache)
    proposed = list(propose_windows(images, options.windows, 1, True, cache))
    descriptor = fit_descriptor(images, proposed, options, cache=cache)
    table = first_windows(describe_windows(images, proposed, descriptor, cache=cache), arguments.windows)
    records = {record.image_id: record for record in images}
    names = sorted({i.class_name for r in images for i in r.instances if not (i.is_crowd or i.is_difficult)})
    for split in todo:
        train, test = (table.of_images(half) for half in halves(len(table.records), split))
        started, own = time.perf_counter(), options.changed({"random_state": split})
        classes = [one for class_name in names for one in judged(train, test, class_name, own)]
        rows = [
            {**row, "split": split}
            for one in classes
            if one["hits"]
            for row in handed_on(one, records, split, None, refine=False)
        ]
        content = {"rows": rows, "ap": {one["class"]: one["ap"] for one in classes}}
        file_of(arguments, preset, split).write_text(json.dumps(content))
        print(f"{preset}, split {split}: {len(rows)} detections, {time.perf_counter() - started:.0f} s", flush=True)


def page(arguments: argparse.Namespace) -> str:
    parts = [
        HEAD.format(machine=machine(), n=arguments.splits, seconds=arguments.time_limit, windows=arguments.windows)
    ]
    read = {
        preset: [json.loads(file_of(arguments, preset, split).read_text()) for split in range(arguments.splits)]
        for preset in PRESETS
    }
    rows = {preset: [row for part in parts_of for row in part["rows"]] for preset, parts_of in read.items()}
    parts += [
        "## What each transfers\n",
        markdown(
            ["preset", "objects", *CHOICES, "detection AP"],
            [
                [
                    preset,
                    len(found),
                    *(cell(found, choice, MASK_IOU) for choice in CHOICES),
                    f"{100 * np.mean([np.mean(list(part['ap'].values())) for part in read[preset]]):.1f}",
                ]
                for preset, found in rows.items()
            ],
        ),
        "\n## On the same objects\n",
        "Points of mask IoU of the default above the other preset, on objects that both find.\n",
        markdown(
            ["default minus", "objects", *CHOICES],
            [[other, *compared(rows["default"], rows[other])] for other in PRESETS if other != "default"],
        ),
        "\nPoints above a random exemplar of the class, each preset on its own objects.\n",
        markdown(
            ["preset", "winner", "vote of 5"],
            [[preset, *(above_random(found, choice) for choice in CHOICES[:2])] for preset, found in rows.items()],
        ),
        "",
    ]
    return "\n".join(parts)


def compared(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> list[str]:
    cells = [difference(*(paired(rows, choice, MASK_IOU) for rows in (one, other))) for choice in CHOICES]
    return [cells[0][1], *(text for text, _ in cells)]


def above_random(rows: list[dict[str, Any]], choice: str) -> str:
    values, random = (paired(rows, which, MASK_IOU) for which in (choice, "random"))
    gains = {key: value - random[key] for key, value in values.items() if key in random}
    low, high = interval(gains)
    return f"{100 * np.mean(list(gains.values())):+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


if __name__ == "__main__":
    main()
