"""Selective search (Uijlings et al. 2013): boxes around regions that grow together.

In: an RGB image and a mode. Out: the boxes of the regions of all hierarchies, each once. An image is brought into a few
colour spaces; each is segmented at a few scales; the regions of each segmentation are grouped in a few ways. What
belongs to a colour space, sorted edges and bins of histograms, is computed once for all its segmentations.
Everything is compiled and releases the interpreter lock, so images can be searched in threads side by side.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import compile_seconds
from eesvm._support.validation import InputError
from eesvm.windows.selective_search.colours import colour_planes
from eesvm.windows.selective_search.grouping import group
from eesvm.windows.selective_search.histograms import PixelBins, pixel_bins, region_histograms
from eesvm.windows.selective_search.regions import regions_of
from eesvm.windows.selective_search.segmentation import Edges, segmentation, sorted_edges
from eesvm.windows.selective_search.shrinking import shrunk
from eesvm.windows.selective_search.strategies import PLANS, Step

VERSION = 1  # part of the key of cached windows: to be raised when the same image gives other boxes

_MAX_PIXELS = 1 << 26  # that are segmented: some 7 GB

_Floats = NDArray[np.float64]


class Space(NamedTuple):
    """An image in one colour space, ready to be segmented."""

    edges: Edges
    bins: PixelBins


def selective_search(
    image: NDArray[np.uint8], mode: str = "default", working_size: int = 500, time_budget: float | None = None
) -> _Floats:
    """(n, 4) half-open xyxy boxes in an RGB image, all different, sorted by their coordinates.

    Parameters
    ----------
    mode : one of `PLANS`.
    working_size : an image with a longer side is made smaller before it is segmented, and the boxes are enlarged again.
    time_budget : milliseconds after which no further step of the mode is begun; the first one is always done. What is
        found then depends on the machine and on what else it does.
    """
    height, width = image.shape[:2]
    try:
        small = shrunk(image, working_size)
        if small.shape[0] * small.shape[1] > _MAX_PIXELS:
            raise InputError(
                f"`working_size` must leave an image at most {_MAX_PIXELS:,} pixels, got {working_size} for one of "
                f"{width} x {height}"
            )
        found = hierarchies(small, PLANS[mode], time_budget)
    except MemoryError:
        raise InputError(
            f"there is not enough memory to segment an image of {width} x {height}: lower `working_size`, "
            f"got {working_size}"
        ) from None
    factors = np.array([width / small.shape[1], height / small.shape[0]] * 2)
    return np.minimum(found * factors, np.array([width, height] * 2, dtype=np.float64))


def hierarchies(image: NDArray[np.uint8], steps: Sequence[Step], time_budget: float | None = None) -> _Floats:
    """The boxes of the regions of all steps, as far as the time budget goes."""
    began = time.perf_counter() - compile_seconds()
    last_use = {step.space: number for number, step in enumerate(steps)}
    spaces: dict[str, Space] = {}
    found: list[NDArray[np.int32]] = []
    for number, step in enumerate(steps):
        elapsed = time.perf_counter() - compile_seconds() - began
        if found and time_budget is not None and 1000 * elapsed >= time_budget:
            break
        if step.space not in spaces:
            planes = colour_planes(image, step.space)
            spaces[step.space] = Space(sorted_edges(planes), pixel_bins(planes))
        found += _boxes(spaces[step.space], step)
        if last_use[step.space] == number:
            del spaces[step.space]
    return distinct(np.concatenate(found)).astype(np.float64)


def _boxes(space: Space, step: Step) -> list[NDArray[np.int32]]:
    """The boxes of each grouping of one segmentation."""
    labels, n_regions = segmentation(space.edges, step.scale, step.min_size)
    regions = regions_of(labels, n_regions)
    colours, texture = region_histograms(space.bins, labels, n_regions)
    return [group(regions, colours, texture, similarities, labels.size) for similarities in step.groupings]


def distinct(boxes: NDArray[np.int32]) -> NDArray[np.int32]:
    """The different boxes, sorted by x1, y1, x2, y2."""
    ordered = boxes[np.lexsort(boxes.T[::-1])]
    is_new = np.ones(len(ordered), dtype=bool)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return ordered[is_new]
