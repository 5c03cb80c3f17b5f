"""Regions of one colour: the pieces of a photograph that a refined mask is made of.

In: a small image. Out: `Regions` at the finest of several scales, where they touch, and the labels of the coarser
scales, by the graph segmentation that selective search begins with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm.windows.selective_search.colours import Planes, colour_planes
from eesvm.windows.selective_search.segmentation import segmentation, sorted_edges

SCALES = ((30, 20), (100, 50), (300, 100), (800, 200))  # of `segmentation`, and the fewest pixels of a region

_Floats = NDArray[np.float64]


class Segments(NamedTuple):
    """Labels of pixels, and how many pixels have each."""

    labels: NDArray[np.int32]  # (h, w)
    sizes: _Floats  # (n,)

    def means(self, plane: NDArray[np.generic]) -> _Floats:
        """(n,) the mean of a plane over each region."""
        return np.bincount(self.labels.ravel(), weights=plane.ravel(), minlength=len(self.sizes)) / self.sizes


class Regions(NamedTuple):
    """The finest regions: their colours, where they touch, and the larger ones that they lie in."""

    fine: Segments
    planes: Planes  # (3, h, w) of CIE L*a*b*
    colours: _Floats  # (n, 3)
    distances: _Floats  # (n, n) of colours, in grey levels
    ends: NDArray[np.int64]  # (2, e) the two regions of each border
    borders: _Floats  # (e,) lengths in pixels
    coarser: tuple[Segments, ...]

    @property
    def sizes(self) -> _Floats:
        """(n,) pixels of each region."""
        return self.fine.sizes


def regions_of_image(image: NDArray[np.uint8], scales: Sequence[tuple[int, int]] = SCALES) -> Regions:
    """The regions of an image.

    Parameters
    ----------
    image : (h, w, 3) uint8, RGB.
    scales : of the segmentations, the finest first, each with the fewest pixels of a region.
    """
    planes = colour_planes(image, "lab")
    edges = sorted_edges(planes)
    fine, *coarser = (_segments(*segmentation(edges, scale, least)) for scale, least in scales)
    colours = np.stack([fine.means(plane) for plane in planes], axis=1)
    distances = np.sqrt(((colours[:, None] - colours[None]) ** 2).sum(axis=2))
    return Regions(fine, planes, colours, distances, *_touching(fine), tuple(coarser))


def _segments(labels: NDArray[np.int32], n: int) -> Segments:
    return Segments(labels, np.bincount(labels.ravel(), minlength=n).astype(np.float64))


def _touching(regions: Segments) -> tuple[NDArray[np.int64], _Floats]:
    labels, n = regions.labels, len(regions.sizes)
    beside = [(labels[:, :-1], labels[:, 1:]), (labels[:-1], labels[1:])]
    pairs = [np.stack([one[one != other], other[one != other]]) for one, other in beside]
    lower, higher = np.sort(np.concatenate(pairs, axis=1), axis=0).astype(np.int64)
    keys, lengths = np.unique(lower * n + higher, return_counts=True)
    return np.stack([keys // n, keys % n]), lengths.astype(np.float64)
