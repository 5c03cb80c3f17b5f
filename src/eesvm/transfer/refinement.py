"""Masks that follow the photograph: what exemplars hand on, moved to where the image has its edges.

In: an annotation that was handed on, the exemplars that did, what the masks of their class have in common
(`mean_masks`), and the image. Out: the same with another mask. The
surroundings of the box are made small and cut into regions of one colour by the graph segmentation that selective
search begins with. Each region has a price for being left out and one for being taken: how sure the exemplars are of
its pixels, and how often its colour is inside of what they say and how often outside. Parting neighbours of like colour
costs the length of their border. The cheapest choice of all is a minimum cut, found exactly by maximum flow; colours
are then counted again inside and outside of it. No network, and nothing that was learned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from eesvm._support.extras import optional_module
from eesvm._support.validation import InputError
from eesvm.images.masks import check_mask
from eesvm.images.warping import PixelRange, pixels_touched, source_edges
from eesvm.structures import Box, ExemplarAnnotation
from eesvm.transfer.inheritance import TransferredAnnotation, check_voters
from eesvm.transfer.target import Target, check_image, check_piece
from eesvm.windows.selective_search.colours import colour_planes
from eesvm.windows.selective_search.segmentation import segmentation, sorted_edges
from eesvm.windows.selective_search.shrinking import shrunk

_UNIT = 1000  # of prices, which maximum flow wants as whole numbers

_Floats = NDArray[np.float64]
_Indices = NDArray[np.int64]


class Settings(NamedTuple):
    """Numbers of the refinement, chosen by hand; margin, exemplars and class_share by 160 masks of PASCAL VOC."""

    side: int = 160  # of the small picture, in pixels
    margin: float = 0.3  # of the surroundings, in sides of the box
    scale: int = 30  # of the segmentation, see `segmentation`
    least_region: int = 20  # pixels
    blur: float = 0.05  # of what the exemplars say, in sides of the box
    colour: float = 12.0  # distance of colours, in grey levels, that are still much the same
    doubt: float = 0.05  # no share counts as nearer to 0 or 1
    smoothing: float = 4.0  # pixels of all colours that are added to each
    exemplars: float = 0.6  # weight of what they say, beside that of colours
    border: float = 1.0  # price of a pixel of border between regions of one colour
    class_share: float = 0.6  # of what is said, by all exemplars of the class together, where they are given
    rounds: int = 2
    is_kept_inside: bool = True


SETTINGS = Settings()

Means = Mapping[str, _Floats]  # by class: (n, n) in what share of its masks each place of the box is

_MEAN_SIDE = 32  # places of a mean mask, each way


def mean_masks(annotations: Iterable[ExemplarAnnotation]) -> dict[str, _Floats]:
    """What the masks of each class have in common, box onto box; classes without a mask are absent.

    Parameters
    ----------
    annotations : of all exemplars of a model. Masks that do not fit their box are left out.
    """
    target = Target.of((0, 0, _MEAN_SIDE, _MEAN_SIDE), (_MEAN_SIDE, _MEAN_SIDE))
    sums: dict[str, tuple[_Floats, int]] = {}
    for one in annotations:
        if one.mask is None or not np.any(one.mask):
            continue
        with suppress(InputError):
            share = target.share(one, check_piece(one, check_mask(one.mask), "mask"))
            total, n = sums.get(one.class_name, (np.zeros_like(share), 0))
            sums[one.class_name] = total + share, n + 1
    return {name: total / n for name, (total, n) in sums.items()}


def refine(
    handed: TransferredAnnotation,
    annotations: Sequence[ExemplarAnnotation],
    image: NDArray[np.uint8],
    weights: ArrayLike | None = None,
    settings: Settings = SETTINGS,
    means: Means | None = None,
) -> TransferredAnnotation:
    """What was handed on, with a mask that follows the image.

    Parts, keypoints and labels stay. Where there is no mask, where nothing is left of it in the image, or where the
    image would leave nothing of it, the annotation comes back as it was.

    Parameters
    ----------
    handed : from `transfer` or `transfer_consensus`.
    annotations : of the exemplars that handed it on.
    image : (height, width, 3) uint8, RGB: the whole image of the detection.
    weights : (k,) of their votes, as `transfer_consensus` got them; None weighs them alike.
    settings : numbers of the refinement.
    means : from `mean_masks`: `class_share` of what is said about a pixel is then the word of the whole class.
    """
    pixels = check_image(image)
    if pixels.shape[1::-1] != handed.image_size:
        sizes = [f"{width} x {height}" for width, height in (handed.image_size, pixels.shape[1::-1])]
        raise InputError(f"`image` must have the {sizes[0]} pixels of the annotation, got {sizes[1]}")
    if handed.mask is None or not handed.mask.any():
        return handed
    place = _surroundings(handed.box, handed.image_size, settings.margin)
    small = shrunk(pixels[place.y1 : place.y2, place.x1 : place.x2], settings.side)
    mean = None if means is None else means.get(handed.class_name)
    shares = _shares(check_voters(annotations, weights), handed.box, place, small.shape[:2], mean, settings.class_share)
    if not shares.any():
        return handed
    own = pixels_touched(handed.box, *handed.image_size)
    kept = own if settings.is_kept_inside else place
    chosen = _enlarged(chosen_pixels(small, _blurred(shares, settings.blur), settings), place)
    mask = chosen[kept.y1 - place.y1 : kept.y2 - place.y1, kept.x1 - place.x1 : kept.x2 - place.x1]
    return replace(handed, mask=mask.copy(), offset=kept[:2], is_refined=True) if mask.any() else handed


def chosen_pixels(image: NDArray[np.uint8], shares: _Floats, settings: Settings = SETTINGS) -> NDArray[np.bool_]:
    """(h, w) pixels of a small image that make the cheapest mask.

    Parameters
    ----------
    image : (h, w, 3) uint8, RGB.
    shares : (h, w) how sure the exemplars are that a pixel is in the mask, from 0 to 1.
    settings : numbers of the refinement.
    """
    regions = _regions(image, settings)
    n = len(regions.sizes)
    said = np.bincount(regions.labels.ravel(), weights=shares.ravel(), minlength=n) / regions.sizes
    distances = np.sqrt(((regions.colours[:, None] - regions.colours[None]) ** 2).sum(axis=2))
    alike = np.exp(-((distances / settings.colour) ** 2) / 2) * regions.sizes
    borders = settings.border * regions.borders * np.exp(-distances[tuple(regions.ends)] / (2 * settings.colour))
    inside = said
    for _ in range(settings.rounds):
        mean = np.average(inside, weights=regions.sizes)
        seen = (alike @ inside + settings.smoothing * mean) / (alike.sum(axis=1) + settings.smoothing)
        by_colour = _odds(seen, settings.doubt) - _odds(mean, settings.doubt)
        prices = regions.sizes * (settings.exemplars * _odds(said, settings.doubt) + by_colour)
        chosen = cheapest_labels(prices, regions.ends, borders)
        inside = (chosen + said) / 2
    return chosen[regions.labels]


def cheapest_labels(prices: _Floats, ends: _Indices, borders: _Floats) -> NDArray[np.bool_]:
    """(n,) which nodes to take, so that all together costs least; of equally good choices that with the fewest.

    Taking node i costs -prices[i], and parting the two ends of edge k costs borders[k], both rounded to thousandths.

    Parameters
    ----------
    prices : (n,) what is gained by taking a node; negative: what is lost.
    ends : (2, e) nodes of the edges.
    borders : (e,) what it costs to take one end and not the other, 0 or more.
    """
    n = len(prices)
    source, sink = n, n + 1
    nodes, most = np.arange(n), np.iinfo(np.int32).max // (4 * max(1, n))
    first = np.concatenate([np.full(n, source), nodes, ends[0], ends[1]])
    second = np.concatenate([nodes, np.full(n, sink), ends[1], ends[0]])
    costs = np.concatenate([np.maximum(prices, 0), np.maximum(-prices, 0), borders, borders])
    capacities = np.minimum(np.rint(costs * _UNIT), most).astype(np.int32)
    network = csr_array((capacities, (first, second)), shape=(n + 2, n + 2))
    left = network - maximum_flow(network, source, sink).flow
    left.data = np.maximum(left.data, 0)
    left.eliminate_zeros()
    reached = np.zeros(n + 2, dtype=bool)
    reached[breadth_first_order(left, source, return_predecessors=False)] = True
    return reached[:n]


class _Regions(NamedTuple):
    """Regions of one colour: where they are, how large, their colours, and where they touch."""

    labels: NDArray[np.int32]  # (h, w)
    sizes: _Floats  # (n,) pixels
    colours: _Floats  # (n, 3)
    ends: _Indices  # (2, e) the two regions of each border
    borders: _Floats  # (e,) lengths in pixels


def _regions(image: NDArray[np.uint8], settings: Settings) -> _Regions:
    planes = colour_planes(image, "lab")
    labels, n = segmentation(sorted_edges(planes), settings.scale, settings.least_region)
    flat = labels.ravel()
    sizes = np.bincount(flat, minlength=n).astype(np.float64)
    sums = [np.bincount(flat, weights=plane.ravel().astype(np.float64), minlength=n) for plane in planes]
    beside = [(labels[:, :-1], labels[:, 1:]), (labels[:-1], labels[1:])]
    pairs = [np.stack([one[one != other], other[one != other]]) for one, other in beside]
    lower, higher = np.sort(np.concatenate(pairs, axis=1), axis=0).astype(np.int64)
    keys, lengths = np.unique(lower * n + higher, return_counts=True)
    colours, ends = np.stack(sums, axis=1) / sizes[:, None], np.stack([keys // n, keys % n])
    return _Regions(labels, sizes, colours, ends, lengths.astype(np.float64))


def _surroundings(box: Box, image_size: tuple[int, int], margin: float) -> PixelRange:
    more = margin * (box[2:] - box[:2])
    return pixels_touched(np.concatenate([box[:2] - more, box[2:] + more]), *image_size)


def _shares(
    voters: Sequence[tuple[ExemplarAnnotation, float]],
    box: Box,
    place: PixelRange,
    shape: tuple[int, ...],
    mean: _Floats | None,
    class_share: float,
) -> _Floats:
    """How much of each small pixel is in masks of the exemplars, weighted, and of the class; 0 outside of the box."""
    height, width = shape
    factors = np.array([width / (place.x2 - place.x1), height / (place.y2 - place.y1)] * 2)
    target = Target.of((box - np.array([place.x1, place.y1] * 2)) * factors, (width, height))
    known = [(each, weight) for each, weight in voters if each.mask is not None and each.mask.any()]
    inside = sum(weight * target.share(each, check_mask(each.mask)) for each, weight in known)
    shares = np.zeros(shape)
    x1, y1, x2, y2 = target.pixels
    shares[y1:y2, x1:x2] = inside / sum(weight for _, weight in known)
    if mean is not None:
        columns, rows = source_edges(target.pixels, target.box, np.array([0, 0, *mean.shape[::-1]], dtype=np.float64))
        near = [
            np.clip((e[1:] + e[:-1]) / 2, 0, n - 1).astype(np.intp)
            for e, n in zip((rows, columns), mean.shape, strict=True)
        ]
        shares[y1:y2, x1:x2] = (1 - class_share) * shares[y1:y2, x1:x2] + class_share * mean[np.ix_(*near)]
    return shares


def _blurred(shares: _Floats, blur: float) -> _Floats:
    is_in = np.flatnonzero(shares.any(axis=1)), np.flatnonzero(shares.any(axis=0))
    sides = [blur * (rows[-1] + 1 - rows[0]) for rows in is_in]
    return gaussian_filter(shares, sides) if blur else shares


def _odds(shares: _Floats | np.floating, doubt: float) -> _Floats:
    """Logarithms of odds, held back from certainty."""
    return np.log((shares + doubt) / (1 - shares + doubt))


def _enlarged(chosen: NDArray[np.bool_], place: PixelRange) -> NDArray[np.bool_]:
    """The small mask on the pixels of the image: those that are in it by half or more."""
    pillow = optional_module("PIL.Image")
    size = place.x2 - place.x1, place.y2 - place.y1
    picture = pillow.fromarray(np.where(chosen, np.uint8(255), np.uint8(0)))
    return np.asarray(picture.resize(size, pillow.Resampling.BILINEAR)) >= 128
