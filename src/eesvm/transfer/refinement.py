"""Masks that follow the photograph: what exemplars transfer, moved to where the image has its edges.

In: an annotation that was transferred, the exemplars that did, what the masks of their class have in common
(`mean_masks`), and the image. Out: the same with another mask. The surroundings of the box are made small and cut into
regions of one colour (`regions`). How likely each belongs to the object is said by trees (`region_trees`) from what
exemplars and class say about it, from its place, its colour and the regions around it (`region_features`). Parting
neighbours of like colour costs the length of their border. The cheapest choice of all is a minimum cut, found exactly
by maximum flow. No network.
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
from eesvm.transfer.region_features import Said, region_features
from eesvm.transfer.region_trees import RegionTrees, default_trees
from eesvm.transfer.regions import Regions, regions_of_image
from eesvm.transfer.target import Target, check_image, check_piece
from eesvm.windows.selective_search.shrinking import shrunk

_UNIT = 1000  # of prices, which maximum flow wants as whole numbers

_Floats = NDArray[np.float64]
_Indices = NDArray[np.int64]


_SIDE = 160  # of the small picture, in pixels
_MARGIN = 0.3  # of the surroundings, in sides of the box
_BLUR = 0.05  # of what is said, in sides of the box
_COLOUR = 12.0  # distance of colours, in grey levels, that are still much the same

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


class View(NamedTuple):
    """What refinement looks at: the box of a detection with its surroundings, made small."""

    place: PixelRange  # in the image
    image: NDArray[np.uint8]  # (h, w, 3) small
    box: Box  # in pixels of the small image

    @classmethod
    def of(cls, box: Box, pixels: NDArray[np.uint8]) -> View:
        """The view of a box in an image.

        Parameters
        ----------
        box : of the detection.
        pixels : (height, width, 3) uint8, RGB: the whole image.
        """
        more = _MARGIN * (box[2:] - box[:2])
        around = np.concatenate([box[:2] - more, box[2:] + more])
        place = pixels_touched(around, pixels.shape[1], pixels.shape[0])
        image = shrunk(pixels[place.y1 : place.y2, place.x1 : place.x2], _SIDE)
        height, width = image.shape[:2]
        factors = np.array([width / (place.x2 - place.x1), height / (place.y2 - place.y1)] * 2)
        return cls(place, image, (box - np.array([place.x1, place.y1] * 2)) * factors)


def refine(
    handed: TransferredAnnotation,
    annotations: Sequence[ExemplarAnnotation],
    image: NDArray[np.uint8],
    weights: ArrayLike | None = None,
    means: Means | None = None,
    trees: RegionTrees | None = None,
) -> TransferredAnnotation:
    """What was transferred, with a mask that follows the image.

    Parts, keypoints and labels stay. Where there is no mask, where nothing is left of it in the image, or where the
    image would leave nothing of it, the annotation comes back as it was.

    Parameters
    ----------
    handed : from `transfer` or `transfer_consensus`.
    annotations : of the exemplars that transferred it.
    image : (height, width, 3) uint8, RGB: the whole image of the detection.
    weights : (k,) of their votes, as `transfer_consensus` got them; None weighs them alike.
    means : from `mean_masks`: the whole class then has a say beside the exemplars.
    trees : that judge regions. Default: those that come with the package.
    """
    pixels = check_image(image)
    if pixels.shape[1::-1] != handed.image_size:
        sizes = [f"{width} x {height}" for width, height in (handed.image_size, pixels.shape[1::-1])]
        raise InputError(f"`image` must have the {sizes[0]} pixels of the annotation, got {sizes[1]}")
    if handed.mask is None or not handed.mask.any():
        return handed
    view = View.of(handed.box, pixels)
    said = what_is_said(
        check_voters(annotations, weights), view, None if means is None else means.get(handed.class_name)
    )
    if not said.vote.any():
        return handed
    place, kept = view.place, pixels_touched(handed.box, *handed.image_size)
    chosen = _enlarged(chosen_pixels(view, said, trees or default_trees()), place)
    mask = chosen[kept.y1 - place.y1 : kept.y2 - place.y1, kept.x1 - place.x1 : kept.x2 - place.x1]
    return replace(handed, mask=mask.copy(), offset=kept[:2], is_refined=True) if mask.any() else handed


def chosen_pixels(view: View, said: Said, trees: RegionTrees) -> NDArray[np.bool_]:
    """(h, w) pixels of a small image that make the cheapest mask.

    Parameters
    ----------
    view : the small image and the box in it.
    said : how sure exemplars and class are of its pixels.
    trees : that judge regions.
    """
    regions = regions_of_image(view.image)
    prices = regions.sizes * trees.odds(region_features(regions, view.box, blurred(said, view.box)))
    return cheapest_labels(prices, regions.ends, trees.border * soft_borders(regions))[regions.fine.labels]


def soft_borders(regions: Regions) -> _Floats:
    """(e,) the lengths of borders, those between different colours shortened.

    Parameters
    ----------
    regions : of the small image.
    """
    return regions.borders * np.exp(-regions.distances[tuple(regions.ends)] / (2 * _COLOUR))


def blurred(said: Said, box: Box) -> Said:
    """What is said with soft edges: exemplars do not know a place to the pixel.

    Parameters
    ----------
    said : by exemplars and class.
    box : of the detection, in the same pixels.
    """
    sides = _BLUR * (box[3] - box[1]), _BLUR * (box[2] - box[0])
    return Said(*(gaussian_filter(plane, sides) for plane in said))


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


def what_is_said(voters: Sequence[tuple[ExemplarAnnotation, float]], view: View, mean: _Floats | None) -> Said:
    """How much of each small pixel is in masks of the exemplars, weighted, and of the class; 0 outside of the box.

    Without a mean of the class the exemplars speak for it.

    Parameters
    ----------
    voters : exemplars with their weights.
    view : the small image and the box in it.
    mean : the mean mask of the class.
    """
    height, width = view.image.shape[:2]
    target = Target.of(view.box, (width, height))
    known = [(each, weight) for each, weight in voters if each.mask is not None and each.mask.any()]
    inside = sum(weight * target.share(each, check_mask(each.mask)) for each, weight in known)
    votes = inside / sum(weight for _, weight in known)
    of_class = votes if mean is None else _moved_onto(mean, target)
    x1, y1, x2, y2 = target.pixels
    said = Said(np.zeros((height, width)), np.zeros((height, width)))
    for plane, values in zip(said, (votes, of_class), strict=True):
        plane[y1:y2, x1:x2] = values
    return said


def _moved_onto(mean: _Floats, target: Target) -> _Floats:
    """The mean mask of a class on the pixels that a box touches, each from the nearest of its places."""
    columns, rows = source_edges(target.pixels, target.box, np.array([0, 0, *mean.shape[::-1]], dtype=np.float64))
    near = [
        np.clip((e[1:] + e[:-1]) / 2, 0, n - 1).astype(np.intp)
        for e, n in zip((rows, columns), mean.shape, strict=True)
    ]
    return mean[np.ix_(*near)]


def _enlarged(chosen: NDArray[np.bool_], place: PixelRange) -> NDArray[np.bool_]:
    """The small mask on the pixels of the image: those that are in it by half or more."""
    pillow = optional_module("PIL.Image")
    size = place.x2 - place.x1, place.y2 - place.y1
    picture = pillow.fromarray(np.where(chosen, np.uint8(255), np.uint8(0)))
    return np.asarray(picture.resize(size, pillow.Resampling.BILINEAR)) >= 128
