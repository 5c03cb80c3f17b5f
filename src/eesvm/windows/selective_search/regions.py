"""Regions of a segmentation: how large they are, where they are and which of them touch.

In: labels. Out: `Regions`. Two regions touch where a pixel of one is beside or above a pixel of the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import kernel


class Regions(NamedTuple):
    """What grouping needs to know of regions, besides their histograms."""

    sizes: NDArray[np.int64]  # (n,) pixels
    boxes: NDArray[np.int32]  # (n, 4) half-open xyxy
    pairs: NDArray[np.int32]  # (m, 2) regions that touch, the lower number first, in rising order


def regions_of(labels: NDArray[np.int32], n_regions: int) -> Regions:
    """The regions of (height, width) labels from 0 to `n_regions` - 1."""
    sizes, boxes = _extents(labels, n_regions)
    keys = np.unique(_touching(labels, n_regions))
    pairs = np.stack([keys // n_regions, keys % n_regions], axis=1).astype(np.int32)
    return Regions(sizes, boxes, pairs)


@kernel()
def _extents(labels: NDArray[np.int32], n_regions: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    height, width = labels.shape
    sizes = np.zeros(n_regions, dtype=np.int64)
    boxes = np.empty((n_regions, 4), dtype=np.int32)
    boxes[:, 0], boxes[:, 1], boxes[:, 2], boxes[:, 3] = width, height, 0, 0
    for y in range(height):
        x = 0
        while x < width:  # runs of a label
            region, start = labels[y, x], x
            while x < width and labels[y, x] == region:
                x += 1
            sizes[region] += x - start
            box = boxes[region]
            box[0], box[1] = min(box[0], start), min(box[1], y)
            box[2], box[3] = max(box[2], x), y + 1
    return sizes, boxes


@kernel()
def _touching(labels: NDArray[np.int32], n_regions: int) -> NDArray[np.int64]:
    """Keys lower * n_regions + higher of neighbours, most repetitions left out."""
    height, width = labels.shape
    keys = np.empty(2 * labels.size, dtype=np.int64)
    n = 0
    for y in range(height):
        down = np.int64(-1)
        for x in range(width):
            here = np.int64(labels[y, x])
            if x + 1 < width and labels[y, x + 1] != here:
                other = np.int64(labels[y, x + 1])
                keys[n] = min(here, other) * n_regions + max(here, other)
                n += 1
            if y + 1 < height and labels[y + 1, x] != here:
                other = np.int64(labels[y + 1, x])
                key = min(here, other) * n_regions + max(here, other)
                if key != down:
                    down = key
                    keys[n] = key
                    n += 1
    return keys[:n].copy()
