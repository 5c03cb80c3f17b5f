"""Hard negatives from training images: which windows an exemplar is trained against.

In: exemplars, and a source of images whose windows have been described. Out: fitted exemplars, and a report of how many
negatives each round added and when each exemplar had enough. Never negatives: windows of the exemplar's own image, and
windows that the source marks as lying on an object of the class.

Training goes through all windows after every round, takes in the violators, and ends when there are none: it *is*
hard-negative mining, with a proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm import boxes
from eesvm._support.validation import InputError, check_number
from eesvm.exemplars.rows import PartedRows, Rows, StreamedRows
from eesvm.exemplars.svms import ExemplarSVMs
from eesvm.structures import Instance, Windows


@dataclass(frozen=True)
class ImageWindows:
    """The described windows of one image. A `NegativeSource` is anything that yields these, the same every time."""

    image_id: str | int
    descriptors: np.ndarray  # (n, d), in memory or memory-mapped
    is_negative: NDArray[np.bool_] | None = None  # (n,) False for windows on an object of the class; None: all True


NegativeSource = Iterable[ImageWindows]


@dataclass(frozen=True)
class MiningReport:
    """What mining did."""

    image_ids: tuple[str | int, ...]  # images that negatives came from
    n_windows: int  # negatives in them
    added: tuple[int, ...]  # negatives that came in after each round, over all exemplars
    rounds: NDArray[np.int64]  # (E,) rounds until the exemplar had enough
    converged: NDArray[np.bool_]  # (E,) whether it had


def mine(
    svms: ExemplarSVMs,
    exemplars: Any,
    exemplar_images: Sequence[str | int],
    source: NegativeSource,
    *,
    n_images: int | None = 2000,
    random_state: int = 0,
) -> MiningReport:
    """Fit `svms` to exemplars, with negatives from random images.

    Parameters
    ----------
    svms : what is fitted, in place.
    exemplars : (E, d) descriptors.
    exemplar_images : (E,) the image each exemplar comes from; windows of that image are not its negatives.
    source : a list, or anything that can be gone through again and again; a generator cannot.
    n_images : how many images are drawn; None takes all.
    random_state : seeds the draw of images.

    Returns
    -------
    MiningReport : which images were drawn, how many negatives they have, and the rounds that each exemplar took.
    """
    if not isinstance(svms, ExemplarSVMs):
        raise InputError(
            f"`svms` must be ExemplarSVMs, got {type(svms).__name__}: other trainers have no hard negatives, and are "
            "fitted to all of `negative_rows`"
        )
    svms.check_parameters()
    if n_images is not None:
        check_number(n_images, "n_images", minimum=1, integer=True)
    check_number(random_state, "random_state", minimum=0, integer=True)
    drawn = draw_images(source, n_images, random_state)
    rows, images = negative_rows(source, drawn)
    svms.fit(exemplars, rows, exemplar_images, images)
    return MiningReport(drawn, rows.shape[0], svms.added_, svms.n_scans_, svms.converged_)


def draw_images(source: NegativeSource, n_images: int | None, random_state: int = 0) -> tuple[str | int, ...]:
    """Identifiers of `n_images` random images of the source, in its order.

    Parameters
    ----------
    source : a list, or anything that can be gone through again and again; a generator cannot.
    n_images : how many to draw; None, or more than there are, takes all.
    random_state : seeds the draw.
    """
    ids = [image.image_id for image in _chosen(source, None)]
    if len(set(ids)) < len(ids):
        twice = next(name for k, name in enumerate(ids) if name in ids[:k])
        raise InputError(f"`source` holds the image {twice!r} twice")
    if n_images is None or n_images >= len(ids):
        return tuple(ids)
    chosen = np.random.default_rng(random_state).choice(len(ids), n_images, replace=False)
    return tuple(ids[k] for k in np.sort(chosen))


def negative_rows(
    source: NegativeSource, image_ids: Sequence[str | int] | None = None
) -> tuple[Rows, NDArray[np.str_] | NDArray[np.int64]]:
    """The negatives of some images as `Rows`, and the image of each.

    A list or tuple of `ImageWindows` stays where it is, in memory or mapped; any other source is read again whenever
    the rows are.

    Parameters
    ----------
    source : a list, or anything that can be gone through again and again; a generator cannot.
    image_ids : the images whose negatives to take; None takes all.
    """
    wanted = None if image_ids is None else set(image_ids)
    if isinstance(source, list | tuple):
        images = list(_chosen(source, wanted))
        if images:
            parts = PartedRows([i.descriptors for i in images], [_negatives_of(i) for i in images])
            return parts, np.array([i.image_id for i in images])[parts.part_of_row]
    counts, ids, width = [], [], 0
    for image in _chosen(source, wanted):
        counts.append(int(np.count_nonzero(_negatives_of(image))))
        ids.append(image.image_id)
        width = image.descriptors.shape[1]
    if not ids:
        raise InputError("`source` holds no image: there is nothing to take negatives from")

    def read() -> Iterator[np.ndarray]:
        return (image.descriptors[_negatives_of(image)] for image in _chosen(source, wanted))

    return StreamedRows(read, (sum(counts), width)), np.repeat(np.array(ids), counts)


def windows_of_class(
    windows: Windows,
    descriptors: np.ndarray,
    instances: Iterable[Instance],
    class_name: str,
    max_overlap: float = 0.2,
) -> ImageWindows:
    """`ImageWindows` of a class: windows on its objects are no negatives.

    Parameters
    ----------
    windows : of one image.
    descriptors : (n, d) of these windows.
    instances : the annotated objects of the image.
    class_name : whose objects count.
    max_overlap : IoU with an object up to which a window is a negative, in [0, 1].
    """
    check_number(max_overlap, "max_overlap", minimum=0, maximum=1)
    objects = [instance.box for instance in instances if instance.class_name == class_name]
    overlap = overlap_with(windows.boxes, np.array(objects).reshape(-1, 4))
    return ImageWindows(windows.image_id, descriptors, overlap <= max_overlap)


def overlap_with(windows: ArrayLike, objects: ArrayLike) -> NDArray[np.float64]:
    """(n,) the largest IoU of each window with any of the objects, 0 where there is none.

    Parameters
    ----------
    windows : (n, 4) half-open xyxy.
    objects : (m, 4) likewise.
    """
    return boxes.iou(windows, objects).max(axis=1, initial=0.0)


def _chosen(source: NegativeSource, wanted: set[str | int] | None) -> Iterator[ImageWindows]:
    """Images of the source, as far as they are wanted."""
    if isinstance(source, Iterator):
        kind = type(source).__name__
        raise InputError(f"`source` must be a list, or something else that can be gone through again, got a {kind}")
    for image in source:
        if not isinstance(image, ImageWindows):
            raise InputError(f"`source` must hold ImageWindows, got {type(image).__name__}")
        if np.ndim(image.descriptors) != 2:
            raise InputError(
                f"`descriptors` of image {image.image_id!r} must have two dimensions (windows, descriptor), "
                f"got shape {np.shape(image.descriptors)}"
            )
        if wanted is None or image.image_id in wanted:
            yield image


def _negatives_of(image: ImageWindows) -> NDArray[np.bool_]:
    n = len(image.descriptors)
    if image.is_negative is None:
        return np.ones(n, dtype=bool)
    mask = np.asarray(image.is_negative)
    if mask.shape != (n,) or mask.dtype != bool:
        raise InputError(
            f"`is_negative` of image {image.image_id!r} must be {n} booleans, one per window, "
            f"got {mask.dtype} of shape {mask.shape}"
        )
    return mask
