"""The texts and index images of a VOC devkit.

In: an `ImageRecord`. Out: its XML annotation, the image that numbers its objects, the lines of a list. Metadata whose
key is a tag name becomes a tag, anything else an <attribute> with name and value, as CVAT writes it.
Not here: files; `writers` puts them in place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from eesvm._support.extras import optional_module
from eesvm._support.validation import InputError
from eesvm.images.masks import VOID, check_mask
from eesvm.structures import Box, Dataset, ImageRecord, Instance

if TYPE_CHECKING:
    from PIL.Image import Image

_TAG = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_OWN_TAGS = ("name", "pose", "truncated", "difficult", "bndbox", "part", "attributes")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MOST_MASKS = VOID - 1  # numbers of a palette image, of which 0 is background


def annotation_xml(record: ImageRecord, file_name: str, database: str) -> str:
    """The annotation file of an image."""
    lines = [
        "<annotation>",
        f"  <filename>{_text(file_name)}</filename>",
        f"  <source><database>{_text(database)}</database></source>",
        f"  <size><width>{record.width}</width><height>{record.height}</height><depth>3</depth></size>",
        f"  <segmented>{int(any(instance.mask is not None for instance in record.instances))}</segmented>",
    ]
    for instance in record.instances:
        lines += ["  <object>", *(f"    {line}" for line in _object_lines(instance)), "  </object>"]
    return "\n".join([*lines, "</annotation>", ""])


def object_image(record: ImageRecord) -> Image | None:
    """A palette image whose pixels number the objects from 1; None where no object has a mask."""
    if not any(instance.mask is not None for instance in record.instances):
        return None
    if len(record.instances) > _MOST_MASKS:
        count = len(record.instances)
        raise InputError(f"image {record.image_id!r} has {count} objects, VOC masks hold at most {_MOST_MASKS}")
    numbers = np.zeros((record.height, record.width), dtype=np.uint8)
    for instance in record.instances:
        if instance.void is not None:
            numbers[_checked(instance.void(), record)] = VOID
    for number, instance in enumerate(record.instances, start=1):
        if instance.mask is not None:
            numbers[_checked(instance.mask(), record)] = number
    picture = optional_module("PIL.Image").fromarray(numbers)
    picture.putpalette(palette())
    return picture


def _checked(pixels: NDArray[np.bool_], record: ImageRecord) -> NDArray[np.bool_]:
    mask, shape = check_mask(pixels), (record.height, record.width)
    if mask.shape != shape:
        raise InputError(f"a mask of image {record.image_id!r} has shape {mask.shape}, not {shape}")
    return mask


def list_text(dataset: Dataset, split: str) -> str:
    """The lines of a list: an image id, and its label where the list is that of one class."""
    labels = {image_id: value for value in (1, 0, -1) for image_id in dataset.splits.get(f"{split}={value}", ())}
    lines = [f"{image_id} {labels[image_id]:2d}" if labels else image_id for image_id in dataset.splits[split]]
    return "".join(f"{line}\n" for line in lines)


def _object_lines(instance: Instance) -> Iterator[str]:
    yield f"<name>{_text(instance.class_name)}</name>"
    yield f"<pose>{_text(instance.pose or 'Unspecified')}</pose>"
    yield f"<truncated>{int(instance.is_truncated)}</truncated>"
    yield f"<difficult>{int(instance.is_difficult)}</difficult>"
    yield _box_text(instance.box)
    for part in instance.parts:
        yield f"<part><name>{_text(part.name)}</name>{_box_text(part.box)}</part>"
    attributes = []
    for key, value in instance.metadata.items():
        if _TAG.fullmatch(str(key)) and str(key) not in _OWN_TAGS:
            yield from _tags(str(key), value)
        else:
            attributes.append((key, value))
    inner = (
        f"<attribute><name>{_text(key)}</name><value>{_text(value)}</value></attribute>" for key, value in attributes
    )
    if attributes:
        yield f"<attributes>{''.join(inner)}</attributes>"


def _tags(key: str, value: Any) -> Iterator[str]:
    """Nested mappings with tag names stay nested, lists repeat their tag, all else is text."""
    if isinstance(value, Mapping) and value and all(_TAG.fullmatch(str(name)) for name in value):
        yield f"<{key}>{''.join(tag for name, inner in value.items() for tag in _tags(str(name), inner))}</{key}>"
    elif isinstance(value, list | tuple) and len(value) > 1:
        for inner in value:
            yield from _tags(key, inner)
    else:
        yield f"<{key}>{_text(value)}</{key}>"


def _box_text(box: Box) -> str:
    x1, y1, x2, y2 = map(float, box)
    numbers = {"xmin": x1 + 1, "ymin": y1 + 1, "xmax": x2, "ymax": y2}
    inner = "".join(f"<{tag}>{_number(value)}</{tag}>" for tag, value in numbers.items())
    return f"<bndbox>{inner}</bndbox>"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _text(value: Any) -> str:
    """Text for XML; characters that XML cannot hold become question marks."""
    return escape(_NOT_XML.sub("?", str(value)))


def palette() -> list[int]:
    """The colours that VOC gives to numbers: their bits dealt out to red, green and blue, highest first."""
    colours = np.zeros((256, 3), dtype=int)
    for number in range(256):
        for bit in range(8):
            colours[number, bit % 3] |= (number >> bit & 1) << (7 - bit // 3)
    return colours.ravel().tolist()
