"""The loop of review and `eesvm add` in a real browser: `python benchmarks/bench_review.py DATA/raccoon OUT`.

A model is trained on `--boxes` images with their boxes. Then, round by round, some images without boxes are reviewed on
the page of `eesvm serve --review`, by a reviewer who knows the hidden annotations and does what a person would do with
mouse and keyboard: a detection on an object is accepted, or corrected where it lies badly, other detections that are
shown are rejected, what was missed is drawn. `eesvm add` takes the answers. After each round the average precision on
all other images, and for comparison that of a training anew on all images with all their boxes. Needs Chromium (CHROMIUM
is its path) and playwright. Prints a Markdown table; `--page` also writes it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from _common import ROOT  # noqa: F401  puts src on the path
from eesvm import boxes as geometry
from eesvm.datasets import open_dataset
from eesvm.datasets.writers import write_coco
from eesvm.descriptors import DescriptorCache
from eesvm.detector.detector import ExemplarDetector
from eesvm.metrics import evaluate_detections
from eesvm.structures import Dataset, ImageRecord

FOUND, WELL = 0.5, 0.7  # IoU of a detection that is accepted once corrected, and as it is
COMMAND = [sys.executable, "-m", "eesvm"]


def main() -> None:
    arguments = parse_arguments()
    out = arguments.out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    dataset = open_dataset(arguments.data)
    order = np.random.default_rng(arguments.seed).permutation(len(dataset)).tolist()
    n_boxes, n_hidden = arguments.boxes, arguments.hidden
    parts = [order[:n_boxes], order[n_boxes : n_boxes + n_hidden], order[n_boxes + n_hidden :][: arguments.test]]
    first, hidden, test = (part(dataset, rows) for rows in parts)
    write_coco(first, out / "first")
    extra = ["--set", "n_jobs=1"]
    run("train", str(out / "first"), "-o", str(out / "model"), "--quiet", *extra)
    rows = [row("20 boxes drawn" if n_boxes == 20 else f"{n_boxes} images", Counter(), out / "model", test, 0.0, 0.0)]
    say(rows[-1])
    for number, members in enumerate(np.array_split(np.arange(len(hidden)), arguments.rounds), start=1):
        own = part(hidden, members.tolist())
        started = time.perf_counter()
        counts = review(out / "model", out / f"review_{number}", own, out / f"round_{number}.png")
        reviewed = time.perf_counter() - started
        started = time.perf_counter()
        run("add", str(out / "model"), str(out / f"review_{number}"), "--quiet")
        added = time.perf_counter() - started
        rows.append(row(f"round {number}", counts, out / "model", test, reviewed, added))
        say(rows[-1])
    everything = part(dataset, [*parts[0], *parts[1]])
    write_coco(everything, out / "all")
    run("train", str(out / "all"), "-o", str(out / "anew"), "--quiet", *extra)
    rows.append(row("trained anew on all", Counter(), out / "anew", test, 0.0, 0.0))
    text = table(rows, len(test))
    print(text)
    (out / "rows.json").write_text(json.dumps(rows, indent=1))
    if arguments.page is not None:
        arguments.page.write_text(text + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--boxes", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--test", type=int, default=1000, help="test images at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", type=Path)
    return parser.parse_args()


def part(dataset: Dataset, rows: list[int]) -> Dataset:
    return Dataset(dataset.name, tuple(dataset[row] for row in rows), dataset.classes)


def run(*arguments: str) -> None:
    subprocess.run([*COMMAND, *arguments], check=True)


def row(name: str, counts: Counter[str], model: Path, test: Dataset, reviewed: float, added: float) -> dict[str, Any]:
    detector = ExemplarDetector.load(model)
    found = detector.predict(list(test), cache=DescriptorCache())
    report = evaluate_detections(test, found)
    return {
        "name": name,
        **{key: counts[key] for key in ("accepted", "corrected", "drawn", "rejected")},
        "exemplars": len(detector.exemplars_),
        "ap": float(report.mean_average_precision),
        "review_seconds": reviewed,
        "add_seconds": added,
    }


def say(one: dict[str, Any]) -> None:
    print(json.dumps(one), flush=True)


def review(model: Path, folder: Path, images: Dataset, picture: Path) -> Counter[str]:
    """One round on the page, image by image."""
    from playwright.sync_api import sync_playwright

    paths = [record.path for record in images]
    command = [*COMMAND, "serve", str(model), "--port", "0", "--quiet", "--floors", "none", "--review", str(folder)]
    counts: Counter[str] = Counter()
    with subprocess.Popen([*command, "--images", *paths], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            with sync_playwright() as playwright:
                chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": 1400, "height": 1000})
                page.set_default_timeout(120_000)
                page.goto(address)
                for number, record in enumerate(images):
                    page.wait_for_function(
                        "n => document.getElementById('status').textContent.startsWith(`Image ${n}`)", arg=number + 1
                    )
                    counts += review_image(page, record)
                    if number == 0:
                        page.screenshot(path=picture)
                    page.get_by_role("button", name="Reject the rest, save, next").click()
                    page.wait_for_function(
                        "n => document.querySelector('#title').textContent.startsWith(`Review: ${n} of`)",
                        arg=number + 1,
                    )
                browser.close()
        finally:
            server.terminate()
            server.wait()
    return counts


def review_image(page: Any, record: ImageRecord) -> Counter[str]:
    """Accept or correct the best detection of each object, draw what was missed; the rest is rejected by the button."""
    counts: Counter[str] = Counter()
    for instance in (one for one in record.instances if not (one.is_difficult or one.is_crowd)):
        shown = boxes_shown(page, record)
        overlaps = geometry.iou(instance.box[None], shown)[0] if len(shown) else np.zeros(0)
        best = int(overlaps.argmax()) if len(overlaps) else -1
        if best < 0 or overlaps[best] < FOUND:
            draw(page, record, instance.box)
            counts["drawn"] += 1
            continue
        page.locator("#list .object").nth(best).get_by_role("button", name="Accept", exact=True).click()
        if overlaps[best] < WELL:
            correct(page, record, instance.box)
            counts["corrected"] += 1
        else:
            counts["accepted"] += 1
    counts["rejected"] += page.locator("#list .object.undecided").count()
    return counts


def boxes_shown(page: Any, record: ImageRecord) -> Any:
    """(n, 4) boxes in pixels of the image, in the order of the list."""
    shares = page.eval_on_selector_all(
        "#boxes .box", "nodes => nodes.map(n => ['left','top','width','height'].map(k => parseFloat(n.style[k]) / 100))"
    )
    if not shares:
        return np.empty((0, 4))
    x, y, w, h = np.array(shares).T
    size = np.array([record.width, record.height] * 2)
    return np.stack([x, y, x + w, y + h], axis=1) * size


def draw(page: Any, record: ImageRecord, box: Any) -> None:
    """A new box, by dragging; the object that is chosen is let go of first, so that none is in the way."""
    (x1, y1), (x2, y2) = on_screen(page, record, box[:2]), on_screen(page, record, box[2:])
    page.evaluate("document.querySelectorAll('#boxes .box').forEach(n => { n.style.pointerEvents = 'none'; })")
    drag(page, (x1, y1), (x2, y2))


def correct(page: Any, record: ImageRecord, box: Any) -> None:
    """Drag two corners of the chosen box to where the object is."""
    for corner, point in ((0, box[:2]), (3, box[2:])):
        handle = page.locator("#boxes .box.active .corner").nth(corner).bounding_box()
        start = handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2
        drag(page, start, on_screen(page, record, point))


def drag(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=3)
    page.mouse.up()


def on_screen(page: Any, record: ImageRecord, point: Any) -> tuple[float, float]:
    area = page.locator("#canvas").bounding_box()
    inside = np.clip(np.asarray(point) / [record.width, record.height], 0.001, 0.999)
    return area["x"] + inside[0] * area["width"], area["y"] + inside[1] * area["height"]


def table(rows: list[dict[str, Any]], n_test: int) -> str:
    lines = [
        f"| | accepted | corrected | drawn | rejected | exemplars | AP, {n_test} test images | review | `add` |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for one in rows:
        said = [
            str(one[key]) if one["review_seconds"] else "" for key in ("accepted", "corrected", "drawn", "rejected")
        ]
        times = [f"{one[key]:.0f} s" if one["review_seconds"] else "" for key in ("review_seconds", "add_seconds")]
        cells = [one["name"], *said, str(one["exemplars"]), f"{100 * one['ap']:.1f}", *times]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
