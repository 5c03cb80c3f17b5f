"""Where an annotation is carried to: the map from an exemplar's box to a detection's box, and what it does.

In: the box of a detection and the size of its image, then annotations of exemplars. Out: `Target`, which gives their
masks, parts and keypoints in that image. The map stretches both axes, box onto box. A pixel is in the mask where at
least half of it is. What lies outside the image is cut off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm import boxes as geometry
from eesvm._support.validation import InputError, check_number
from eesvm.images.files import MAX_PIXELS
from eesvm.images.masks import check_mask
from eesvm.images.warping import PixelRange, covered_share, pixels_touched, source_edges
from eesvm.structures import Box, ExemplarAnnotation, Part

KEYPOINTS = "keypoints"  # the key under which readers keep them in the metadata: name -> x, y and perhaps visibility
HALF = 0.5 - 1e-9  # rounding must not decide what is exactly half

_LEAST_SIDE = 1e-6  # of a box, in pixels: below it the map has no scale


@dataclass(frozen=True)
class Target:
    """The place that annotations are carried to."""

    box: Box
    image_size: tuple[int, int]
    pixels: PixelRange

    @classmethod
    def of(cls, box: ArrayLike, image_size: tuple[int, int]) -> Target:
        width, height = _check_size(image_size)
        corners = check_box(box, "box")
        pixels = pixels_touched(corners, width, height)
        if pixels.x1 >= pixels.x2 or pixels.y1 >= pixels.y2:
            raise InputError(f"`box` must overlap the image of {width} x {height} pixels, got {box_text(corners)}")
        return cls(corners, (width, height), pixels)

    def mask(self, annotation: ExemplarAnnotation) -> NDArray[np.bool_] | None:
        """The pixels that are in the mask by half or more, of those that the box touches."""
        if annotation.mask is None:
            return None
        mask = check_piece(annotation, check_mask(annotation.mask), "mask")
        if not mask.any():  # an object with no pixel was never outlined
            return None
        return self.share(annotation, mask) >= HALF

    def share(self, annotation: ExemplarAnnotation, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
        """How much of each pixel that the box touches is in the exemplar's mask."""
        return covered_share(mask, source_edges(self.pixels, self.box, source_box(annotation)))

    def parts(self, annotation: ExemplarAnnotation) -> list[Part]:
        """The parts, cut to the image; one that lies outside of it is gone."""
        mapped = []
        for part in annotation.parts:
            corners = self.points(check_box(part.box, f"the part {part.name}").reshape(2, 2), annotation)
            inside = geometry.clip([corners.ravel()], *self.image_size)[0]
            if geometry.is_valid([inside])[0]:
                mapped.append(Part(part.name, inside))
        return mapped

    def keypoints(self, annotation: ExemplarAnnotation) -> dict[str, tuple[float, ...]]:
        """x, y and visibility of those that are annotated and lie in the image; what is no place is left out."""
        known = annotation.metadata.get(KEYPOINTS)
        mapped = {}
        for name, values in known.items() if isinstance(known, Mapping) else ():
            numbers = keypoint_numbers(values)
            if numbers is None or (len(numbers) == 3 and numbers[2] == 0):  # 0: the formats' word for not annotated
                continue
            x, y = self.points(numbers[None, :2], annotation)[0]
            if 0 <= x <= self.image_size[0] and 0 <= y <= self.image_size[1]:
                mapped[str(name)] = (float(x), float(y), *numbers[2:].tolist())
        return mapped

    def points(self, points: NDArray[np.float64], annotation: ExemplarAnnotation) -> NDArray[np.float64]:
        """(n, 2) points of the exemplar's image where they lie here."""
        source = source_box(annotation)
        share = (points - source[:2]) / (source[2:] - source[:2])
        return self.box[:2] + share * (self.box[2:] - self.box[:2])


def keypoint_numbers(values: Any) -> NDArray[np.float64] | None:
    """x, y and perhaps a visibility, finite; None for anything else, which metadata that nobody checks may hold."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):  # tags within tags, a text, a number of hundreds of digits
        return None
    return numbers if numbers.shape in ((2,), (3,)) and np.isfinite(numbers).all() else None


def _check_size(image_size: Any) -> tuple[int, int]:
    try:
        width, height = image_size
    except (TypeError, ValueError) as error:
        raise InputError(f"`image_size` must be (width, height), got {image_size!r}") from error
    sides = [int(check_number(side, "image_size", minimum=1, integer=True)) for side in (width, height)]
    if sides[0] * sides[1] > MAX_PIXELS:
        raise InputError(f"`image_size` must be at most {MAX_PIXELS:,} pixels, got {width} x {height}")
    return sides[0], sides[1]


def check_box(box: ArrayLike, name: str) -> Box:
    """One box with an area."""
    shown = f"`{name}`" if name == "box" else name
    try:
        corners = np.asarray(box, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{shown} must be x1, y1, x2, y2") from error
    if corners.shape != (4,):
        raise InputError(f"{shown} must be x1, y1, x2, y2, got shape {corners.shape}")
    if not (np.abs(corners) <= 1e9).all():  # also what is not a number
        raise InputError(f"{shown} must hold finite coordinates within 1e9, got {box_text(corners)}")
    if not (corners[2:] - corners[:2] > _LEAST_SIDE).all():
        raise InputError(f"{shown} must have an area, got {box_text(corners)}")
    return corners


def source_box(annotation: ExemplarAnnotation) -> Box:
    return check_box(annotation.box, f"the box of the exemplar {annotation.name}")


def check_piece(annotation: ExemplarAnnotation, piece: NDArray[Any], what: str) -> NDArray[Any]:
    """A mask or picture must not exceed the pixels that its box touches; at the image's border it may be smaller."""
    corners = source_box(annotation)
    touched = pixels_touched(corners, 1 << 31, 1 << 31)
    width, height = touched.x2 - touched.x1, touched.y2 - touched.y1
    if piece.shape[0] > height or piece.shape[1] > width:
        raise InputError(
            f"the {what} of the exemplar {annotation.name} must have the {width} x "
            f"{height} pixels that its box touches, got {piece.shape[1]} x {piece.shape[0]}"
        )
    return piece


def check_image(image: Any) -> NDArray[np.uint8]:
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
        raise InputError(f"`image` must be uint8 of shape (height, width, 3), got {pixels.dtype} {pixels.shape}")
    return pixels


def names_of(exemplars: Sequence[tuple[str, int]]) -> str:
    return "; ".join(f"{image_id}, object {index + 1}" for image_id, index in exemplars)


def box_text(box: NDArray[np.float64]) -> str:
    return ", ".join(f"{side:g}" for side in box)
