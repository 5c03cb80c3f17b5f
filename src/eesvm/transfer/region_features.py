"""What is known of each region: by the exemplars, by its place, by colours, and by the way out of the box.

In: regions of a small image, the box of the detection in it, and how sure exemplars and their class are of each pixel.
Out: a table with a row for each region and a column for each of `FEATURES`. Colours count only as distances from one
another, so that nothing depends on what is green or grey in one collection of photographs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from eesvm.structures import Box
from eesvm.transfer.regions import Regions

_Floats = NDArray[np.float64]
_Columns = dict[str, _Floats]

_DOUBT = 0.05  # no share counts as nearer to 0 or 1
_CLASS_SHARE = 0.6  # of the class in what is said, beside exemplars
_REACHES = (6, 12, 25)  # distances of colours, in grey levels, that are still much the same
_SMOOTHING = 4.0  # pixels of all colours that are added to each
_FARTHEST = 400.0  # grey levels on a way through regions
_SIZES = tuple(f"{name} {k}" for k in (1, 2, 3) for name in ("vote", "class", "inside", "size"))

FEATURES = (
    *("vote", "class", "said", "fill of the vote", "fill of the class"),
    *("inside", "across", "down", "depth", "off the middle", "size", "aspect", "cut off"),
    *(f"{name} {reach}" for reach in _REACHES for name in ("colour said", "colour inside")),
    *("contrast", "texture"),
    *(f"way from {place}{kind}" for place in ("outside", "border", "core") for kind in ("", ", relative")),
    *_SIZES,
)


class Said(NamedTuple):
    """How sure those who speak are that a pixel is in the mask, from 0 to 1."""

    vote: _Floats  # (h, w) by the exemplars
    of_class: _Floats  # (h, w) by all masks of the class


def region_features(regions: Regions, box: Box, said: Said) -> _Floats:
    """(n, f) the features of each region.

    Parameters
    ----------
    regions : of the small image.
    box : of the detection, in pixels of that image.
    said : by the exemplars and by their class.
    """
    height, width = said.vote.shape
    x = (np.arange(width) + 0.5 - box[0]) / (box[2] - box[0])
    y = (np.arange(height) + 0.5 - box[1]) / (box[3] - box[1])
    is_inside = (((x > 0) & (x < 1))[None] & ((y > 0) & (y < 1))[:, None]).astype(np.float64)
    inside = regions.fine.means(is_inside)
    mixed = regions.fine.means((1 - _CLASS_SHARE) * said.vote + _CLASS_SHARE * said.of_class)
    columns = {
        **_by_exemplars(regions, said, mixed, is_inside),
        **_by_place(regions, x, y, inside, is_inside.sum()),
        **_by_colour(regions, mixed, inside),
        **_by_ways(regions, mixed, inside),
        **_by_coarser(regions, said, is_inside),
    }
    columns["aspect"] = np.full(len(inside), np.log((box[2] - box[0]) / (box[3] - box[1])))
    n_cut = sum((box[0] <= 1, box[1] <= 1, box[2] >= width - 1, box[3] >= height - 1))
    columns["cut off"] = np.full(len(inside), float(n_cut))
    return np.stack([columns[name] for name in FEATURES], axis=1)


def odds(shares: _Floats | np.floating, doubt: float = _DOUBT) -> _Floats:
    """Logarithms of odds, held back from certainty."""
    return np.log((shares + doubt) / (1 - shares + doubt))


def _by_exemplars(regions: Regions, said: Said, mixed: _Floats, is_inside: _Floats) -> _Columns:
    n, area = len(mixed), max(1.0, is_inside.sum())
    return {
        "vote": odds(regions.fine.means(said.vote)),
        "class": odds(regions.fine.means(said.of_class)),
        "said": odds(mixed),
        "fill of the vote": np.full(n, (said.vote * is_inside).sum() / area),
        "fill of the class": np.full(n, (said.of_class * is_inside).sum() / area),
    }


def _by_place(regions: Regions, x: _Floats, y: _Floats, inside: _Floats, area: float) -> _Columns:
    shape = regions.fine.labels.shape
    depth = np.minimum(np.minimum(x, 1 - x)[None], np.minimum(y, 1 - y)[:, None])
    across = regions.fine.means(np.broadcast_to(x, shape))
    return {
        "inside": inside,
        "across": across,
        "down": regions.fine.means(np.broadcast_to(y[:, None], shape)),
        "depth": regions.fine.means(depth),
        "off the middle": np.abs(across - 0.5),
        "size": np.log(regions.sizes / max(1.0, area)),
    }


def _by_colour(regions: Regions, mixed: _Floats, inside: _Floats) -> _Columns:
    """How much of what has this colour is inside of what is said, and of the box, against all colours."""
    columns = {}
    for reach in _REACHES:
        alike = np.exp(-((regions.distances / reach) ** 2) / 2) * regions.sizes
        for name, shares in (("said", mixed), ("inside", inside)):
            mean = np.average(shares, weights=regions.sizes)
            seen = (alike @ shares + _SMOOTHING * mean) / (alike.sum(axis=1) + _SMOOTHING)
            columns[f"colour {name} {reach}"] = odds(seen) - odds(mean)
    around = regions.sizes * (inside < 0.5)
    background = np.average(regions.colours, axis=0, weights=around if around.any() else regions.sizes)
    columns["contrast"] = np.sqrt(((regions.colours - background) ** 2).sum(axis=1))
    columns["texture"] = regions.fine.means(_slopes(regions.planes[0].astype(np.float64)))
    return columns


def _slopes(plane: _Floats) -> _Floats:
    """(h, w) how much a plane changes at each pixel; along an axis of one pixel it does not."""
    slopes = [np.gradient(plane, axis=k) if plane.shape[k] > 1 else np.zeros_like(plane) for k in (0, 1)]
    return np.hypot(*slopes)


def _by_ways(regions: Regions, mixed: _Floats, inside: _Floats) -> _Columns:
    """Least change of colour on a way to each region: from outside the box, the image's border, its likely core."""
    first, second = regions.ends
    steps = regions.distances[first, second] + 1
    n, both = len(inside), (np.concatenate([first, second]), np.concatenate([second, first]))
    graph = csr_array((np.concatenate([steps, steps]), both), shape=(n, n))
    on_border = np.zeros(n, dtype=bool)
    labels = regions.fine.labels
    for side in (labels[0], labels[-1], labels[:, 0], labels[:, -1]):
        on_border[side] = True
    is_in = inside > 0.5
    likely = mixed >= (np.quantile(mixed[is_in], 0.8) if is_in.any() else mixed.max())
    columns = {}
    for name, starts in (("outside", inside < 0.3), ("border", on_border & (inside < 0.5)), ("core", likely)):
        found = dijkstra(graph, indices=np.flatnonzero(starts), min_only=True) if starts.any() else np.full(n, 100.0)
        ways = np.minimum(found, _FARTHEST)
        columns[f"way from {name}"] = ways
        columns[f"way from {name}, relative"] = ways / (1 + np.average(ways, weights=regions.sizes * is_in + 1e-6))
    return columns


def _by_coarser(regions: Regions, said: Said, is_inside: _Floats) -> _Columns:
    """The same of the larger regions that a region lies in."""
    columns, area = {}, max(1.0, is_inside.sum())
    for k, segments in enumerate(regions.coarser, 1):
        for name, plane in (("vote", said.vote), ("class", said.of_class), ("inside", is_inside)):
            columns[f"{name} {k}"] = odds(regions.fine.means(segments.means(plane)[segments.labels]))
        columns[f"size {k}"] = regions.fine.means(np.log(segments.sizes / area)[segments.labels])
    return columns
