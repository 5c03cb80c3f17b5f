"""One annotation of a COCO file.

In: the JSON object of an annotation, with the picture and the class that its ids lead to. Out: an `Instance`, or None
and a problem. Polygons become compact arrays; what cannot be used of them is left out and named.
Not here: ids, which `coco` follows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import InputError
from eesvm.datasets.build import Builder, Picture
from eesvm.images.masks import check_polygon, check_rle, mask_box, polygons_to_mask, rle_to_mask
from eesvm.structures import Instance, Part

Shape = tuple[NDArray[np.float64], ...] | dict[str, Any]  # polygons or run lengths
Corners = tuple[float, float, float, float]

_OWN_KEYS = frozenset(
    (
        "id", "image_id", "category_id", "bbox", "segmentation", "iscrowd", "area", "keypoints", "num_keypoints",
        "attributes", "parts", "pose", "difficult", "truncated",
    )
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class ShapeMask:
    """Draws a mask when it is called; small to keep and to print."""

    shape: Shape = field(repr=False)
    height: int
    width: int

    def __call__(self) -> NDArray[np.bool_]:
        if isinstance(self.shape, dict):
            return rle_to_mask(self.shape)
        return polygons_to_mask(self.shape, self.height, self.width)


@dataclass(frozen=True)
class Place:
    """Where an annotation belongs and how to speak of it."""

    path: Path  # of the annotation file
    what: str  # "annotation 17"
    image_id: str
    index: int  # among the annotations of its image
    picture: Picture
    class_name: str
    keypoints: Sequence[str] = ()  # names of the keypoints of its class


def read_instance(entry: dict[str, Any], place: Place, builder: Builder) -> Instance | None:
    """The instance that an annotation describes."""
    if not builder.accepts_class(place.class_name, place.what, (place.path, None)):
        return None
    shape = _shape(entry.get("segmentation"), place, builder)
    corners = _corners(entry.get("bbox")) or _corners_of(shape)
    if corners is None:
        builder.problem(place.path, f"{place.what} has no box of four numbers; it is left out", "box")
        return None
    box = builder.box(corners, place.picture, _box_text(place.what, place.class_name, corners), (place.path, None))
    if box is None:
        return None
    pose = entry.get("pose")
    return Instance(
        class_name=place.class_name,
        box=box,
        image_id=place.image_id,
        index=place.index,
        mask=ShapeMask(shape, place.picture.height, place.picture.width) if shape else None,
        parts=tuple(_parts(entry.get("parts"), place, builder)),
        is_difficult=bool(entry.get("difficult")),
        is_truncated=bool(entry.get("truncated")),
        is_crowd=bool(entry.get("iscrowd")),
        pose=pose if isinstance(pose, str) else None,
        area=_area(entry.get("area")),
        metadata=_metadata(entry, place.keypoints),
        source=f"{place.path}, {place.what}",
    )


def _area(value: Any) -> float | None:
    return float(value) if _is_number(value) and 0 < value < math.inf else None


def _shape(value: Any, place: Place, builder: Builder) -> Shape | None:
    """Polygons or run lengths that can be drawn, None for nothing."""
    if not value:
        return None
    picture = place.picture
    try:
        if isinstance(value, dict):
            _, height, width = check_rle(value)
            if (height, width) != (picture.height, picture.width):
                raise InputError(f"its run lengths are for {width} x {height} pixels, not for the image")
            return {"size": value["size"], "counts": value["counts"]}
        if not isinstance(value, list):
            raise InputError("its segmentation is neither polygons nor run lengths")
        return tuple(check_polygon(polygon) for polygon in value)
    except InputError as error:
        builder.problem(place.path, f"{place.what}: {error}; it is kept without mask", "mask")
        return None


def _corners(box: Any) -> Corners | None:
    """x1, y1, x2, y2 of a `bbox`; None where it is not four numbers."""
    if not (isinstance(box, list) and len(box) == 4 and all(_is_number(value) for value in box)):
        return None
    x, y, width, height = map(float, box)
    return x, y, x + width, y + height


def _corners_of(shape: Shape | None) -> Corners | None:
    """The box around polygons or run lengths, for annotations that have no `bbox`."""
    if not shape:
        return None
    if isinstance(shape, dict):
        box = mask_box(rle_to_mask(shape))
        return None if box is None else (box[0], box[1], box[2], box[3])
    points = np.concatenate(shape)
    (x1, y1), (x2, y2) = points.min(axis=0), points.max(axis=0)
    return float(x1), float(y1), float(x2), float(y2)


def _is_number(value: Any) -> bool:
    """A number that float64 can hold; JSON allows integers of any length."""
    if isinstance(value, float):
        return True
    return type(value) is int and math.log2(abs(value) + 1) < 1000


def _box_text(what: str, class_name: str, corners: Corners) -> str:
    x1, y1, x2, y2 = corners
    return f"{what} ({class_name[:50]}): its box {x1:g}, {y1:g}, {x2 - x1:g}, {y2 - y1:g}"


def _parts(value: Any, place: Place, builder: Builder) -> Iterator[Part]:
    for part in value if isinstance(value, list) else ():
        corners = _corners(part.get("bbox")) if isinstance(part, dict) else None
        if corners is None:
            builder.problem(place.path, f"{place.what} has a part without box; the part is left out", "box")
            continue
        name = str(part.get("name", ""))
        box = builder.box(corners, place.picture, _box_text(f"{place.what}, part", name, corners), (place.path, None))
        if box is not None:
            yield Part(name, box)


def _metadata(entry: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """All that has no place of its own, the attributes that annotation tools write, and the keypoints."""
    values = {key: value for key, value in entry.items() if key not in _OWN_KEYS}
    if "id" in entry:
        values["annotation_id"] = entry["id"]
    attributes = entry.get("attributes")
    if isinstance(attributes, dict):
        values.update(attributes)
    points = entry.get("keypoints")
    if isinstance(points, list) and points and len(points) % 3 == 0 and all(map(_is_number, points)):
        triples = [points[start : start + 3] for start in range(0, len(points), 3)]
        known = names if len(names) == len(triples) else [str(number) for number in range(1, len(triples) + 1)]
        values["keypoints"] = dict(zip(known, triples, strict=True))
    return values
