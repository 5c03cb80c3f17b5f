"""How well photographs are recognised by their codes: false matches between different ones, misses after re-encoding.

    python benchmarks/bench_likeness.py ../shared/data/voc2007 ../shared/data/raccoon -o benchmarks/results/likeness.md

Every image of every dataset is compared with every other. Pairs within the limit are listed: they are copies that a
dataset holds twice, or false matches. Some images of each dataset are resized and written as JPEG, without EXIF.
"""

from __future__ import annotations

import argparse
import io
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from eesvm._support.tables import markdown_table
from eesvm.datasets import open_dataset
from eesvm.images.likeness import MOST_DISTANCE, picture_code

QUALITIES = (30, 50, 75, 95)
SIZES = (1.0, 0.9, 0.7, 0.5)
FILTERS = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS)
N_LISTED = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="folders of datasets")
    parser.add_argument("--changed", type=int, default=60, help="images of each that are re-encoded (60)")
    parser.add_argument("-o", "--output", default="benchmarks/results/likeness.md")
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    started = time.process_time()
    names, codes, changed, sources = [], [], [], []
    for path in arguments.data:
        images = open_dataset(path, check="none").images
        drawn = set(random.permutation(len(images))[: arguments.changed].tolist())
        for number, record in enumerate(images):
            pixels = record.read()
            names.append(f"{Path(path).name}: {record.image_id}")
            codes.append(picture_code(pixels))
            if number in drawn:
                changed += [picture_code(variant) for variant in variants(pixels, random)]
                sources += [len(codes) - 1] * len(QUALITIES) * len(SIZES)
        print(path, len(codes), f"{time.process_time() - started:.0f} s", flush=True)
    distances = pairwise(np.array(codes), np.array(codes))
    to_own = np.array(
        [pairwise(np.array([codes[k]]), np.array([code]))[0, 0] for k, code in zip(sources, changed, strict=True)]
    )
    Path(arguments.output).write_text(page(names, distances, to_own, len(arguments.data)), encoding="utf-8")


def variants(pixels: NDArray[np.uint8], random: np.random.Generator) -> list[NDArray[np.uint8]]:
    """The picture at every size and quality."""
    found = []
    for size in SIZES:
        picture = Image.fromarray(pixels)
        if size != 1:
            shape = round(size * picture.width), round(size * picture.height)
            picture = picture.resize(shape, FILTERS[random.integers(len(FILTERS))])
        for quality in QUALITIES:
            buffer = io.BytesIO()
            picture.save(buffer, "JPEG", quality=quality)
            found.append(np.asarray(Image.open(buffer).convert("RGB")))
    return found


def pairwise(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(n, m) share of the steps of two codes that only one of them has."""
    first, second = (np.unpackbits(codes, axis=1).astype(np.float32) for codes in (one, other))
    common = first @ second.T
    union = first.sum(axis=1)[:, None] + second.sum(axis=1)[None, :] - common
    return np.where(union > 0, 1 - common / np.maximum(union, 1), 1).astype(np.float32)


def page(names: list[str], distances: NDArray[np.float32], to_own: NDArray[np.float32], n_sets: int) -> str:
    n = len(names)
    pairs = [
        (float(distances[i, j]), i, j) for i, j in zip(*np.triu_indices(n, 1), strict=True) if distances[i, j] < 0.5
    ]
    pairs.sort()
    matches = [pair for pair in pairs if pair[0] <= MOST_DISTANCE]
    table = to_own.reshape(-1, len(SIZES), len(QUALITIES)).max(axis=0)
    rows = [[f"{size:g}", *(f"{value:.3f}" for value in row)] for size, row in zip(SIZES, table, strict=True)]
    nearest = next((f"{pair[0]:.3f}" for pair in pairs if pair[0] > MOST_DISTANCE), "more than 0.5")
    lines = [
        "# Recognising photographs by their codes",
        "",
        "Made by `benchmarks/bench_likeness.py`. The distance of two codes is the share of their steps that only one of",
        f"them has; up to {MOST_DISTANCE:g} they are taken for the same photograph.",
        "",
        f"{n:,} images of {n_sets} datasets, {n * (n - 1) // 2:,} pairs: {len(matches)} are within the limit, the next",
        f"pair is at {nearest}. Within the limit are (copies that a dataset holds twice, or near ones):",
        "",
        *(f"- {distance:.3f}: {names[i]} and {names[j]}" for distance, i, j in matches[:N_LISTED]),
        *([f"- and {len(matches) - N_LISTED} more"] if len(matches) > N_LISTED else []),
        "",
        f"{len(to_own):,} re-encoded copies: {int((to_own > MOST_DISTANCE).sum())} missed, mean distance "
        f"{to_own.mean():.3f}. The largest distance by size (rows) and JPEG quality (columns):",
        "",
        markdown_table(["size", *map(str, QUALITIES)], rows),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
