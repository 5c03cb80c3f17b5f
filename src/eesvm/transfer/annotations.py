"""What the objects behind exemplars transfer, taken from a dataset and kept in a file beside the weights.

In: annotated instances and their images. Out: `ExemplarAnnotation`s as `transfer.annotate` takes them, in what JSON has
and with small pictures; one safetensors file with masks as bits and pictures as PNG, and the rest as JSON. So a
detection can be explained, and annotations carried over, without the dataset.
Pictures are made smaller where a side exceeds 256 pixels; masks keep every pixel. A mask or picture that cannot be
read or does not fit its object costs that mask or picture, not the run.
Not here: carrying anything over (`inheritance`).
"""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.documents import Document, is_number
from eesvm._support.extras import optional_module
from eesvm._support.tensors import read_tensors, write_arrays
from eesvm._support.threads import n_cores
from eesvm._support.validation import InputError
from eesvm.datasets.plain_json import plain_json
from eesvm.datasets.problems import reason
from eesvm.images.files import read_image
from eesvm.structures import ExemplarAnnotation, ImageRecord, Instance, Part, Problem
from eesvm.transfer import inheritance as transfer
from eesvm.transfer.mirroring import mirrored

FORMAT = "eesvm-annotations"
FORMAT_VERSION = 1

MIRROR_OF = "mirror_of"  # all that is kept of a mirror image: the number of its object

_LONGEST = 256  # side of a picture
_MAX_MASK = 1 << 28  # pixels
_FIELDS = {"class_name", "image_id", "index", "box", "mask_shape", "parts", "pose", "metadata"}


def annotate_all(
    instances: Sequence[Instance],
    records: Mapping[str, ImageRecord],
    problems: list[Problem] | None = None,
    mirror: bool = False,
) -> tuple[ExemplarAnnotation, ...]:
    """The annotation of each instance; a mask or picture that cannot be read is left out and listed.

    Parameters
    ----------
    instances : the objects; where those of an image follow each other, it is read once.
    records : the images by their ids.
    problems : a list that receives a `Problem` for each mask or picture that cannot be read.
    mirror : whether their mirror images follow, in the same order.
    """
    pictures: dict[str, NDArray[np.uint8] | None] = {}
    found = []
    for instance in instances:
        record = records[instance.image_id]
        if instance.image_id not in pictures:
            pictures.clear()  # instances come image by image: one at a time is enough
            pictures[instance.image_id] = _pixels(record, problems)
        found.append(_annotation(instance, record, pictures[instance.image_id], problems))
    return (*found, *map(mirrored, found)) if mirror else tuple(found)


def save_annotations(path: str | os.PathLike[str], annotations: Sequence[ExemplarAnnotation]) -> None:
    """Write annotations to `path`, whole or not at all.

    Parameters
    ----------
    path : the file to write; an existing one is replaced.
    annotations : of the exemplars, in their order.
    """
    arrays: dict[str, NDArray[Any]] = {"count": np.array([len(annotations)], dtype=np.int64)}
    sources = _sources(annotations)
    pictures = {k: one.picture for k, one in enumerate(annotations) if one.picture is not None and k not in sources}
    with ThreadPoolExecutor(n_cores()) as pool:  # compression releases the lock
        compressed = dict(zip(pictures, pool.map(_as_png, pictures.values()), strict=True))
    for number, one in enumerate(annotations):
        if number in sources:
            continue
        if one.mask is not None:
            arrays[f"mask_{number}"] = np.packbits(one.mask.ravel())
        if number in compressed:
            arrays[f"picture_{number}"] = np.frombuffer(compressed[number], dtype=np.uint8)
    entries = [{MIRROR_OF: sources[k]} if k in sources else _as_json(one) for k, one in enumerate(annotations)]
    text = json.dumps(entries, allow_nan=False, ensure_ascii=False)
    write_arrays(path, FORMAT, FORMAT_VERSION, arrays, {"annotations": text})


def _sources(annotations: Sequence[ExemplarAnnotation]) -> dict[int, int]:
    """Of exemplars that are mirror images, the number of the object that each is the mirror image of."""
    keys = object_keys(annotations)
    known = {key: k for k, key in enumerate(keys) if not annotations[k].is_mirrored}
    mirror_images = {k: key for k, key in enumerate(keys) if annotations[k].is_mirrored}
    for image_id, index, number in mirror_images.values():
        if (image_id, index, number) not in known:
            raise InputError(
                f"`annotations` must hold the object of each mirror image, but object {index + 1} of image {image_id} "
                "is missing"
            )
    return {k: known[key] for k, key in mirror_images.items()}


def object_keys(annotations: Sequence[ExemplarAnnotation]) -> list[tuple[str, int, int]]:
    """Image, index and a count that tell objects apart; a mirror image has that of its object.

    An object that was annotated anew may have the index of another: both, and their mirror images, come in one order.

    Parameters
    ----------
    annotations : of the exemplars of a class, in their order.
    """
    counts: Counter[tuple[str, int, bool]] = Counter()
    keys = []
    for one in annotations:
        place = one.image_id, one.index, one.is_mirrored
        keys.append((one.image_id, one.index, counts[place]))
        counts[place] += 1
    return keys


def load_annotations(path: str | os.PathLike[str]) -> tuple[ExemplarAnnotation, ...]:
    """The annotations that `save_annotations` wrote."""
    return _Reader(Path(path)).annotations()


def _pixels(record: ImageRecord, problems: list[Problem] | None) -> NDArray[np.uint8] | None:
    try:
        return record.read()
    except (InputError, OSError, ValueError, MemoryError) as error:
        _note(Problem(record.path or record.image_id, reason(error), kind="image"), problems)
        return None


def _annotation(
    instance: Instance, record: ImageRecord, pixels: NDArray[np.uint8] | None, problems: list[Problem] | None
) -> ExemplarAnnotation:
    place = instance.source or record.path or record.image_id
    try:
        found = transfer.annotate(instance, pixels)
    except (InputError, OSError, ValueError, MemoryError) as error:
        _note(Problem(place, reason(error), kind="annotation" if instance.mask is None else "mask"), problems)
        found = _without_mask(replace(instance, mask=None), pixels)
    else:
        if found.mask is None and instance.mask is not None and np.any(instance.mask()):
            what = f"the mask of object {instance.index + 1} lies outside of its box; it is kept without mask"
            _note(Problem(place, what, kind="mask"), problems)
    picture = None if found.picture is None else _small(found.picture)
    return replace(found, metadata=plain_json(dict(found.metadata)), picture=picture)


def _without_mask(instance: Instance, pixels: NDArray[np.uint8] | None) -> ExemplarAnnotation:
    """The annotation of an instance without mask, and without picture where the box lies outside of the image."""
    try:
        return transfer.annotate(instance, pixels)
    except InputError:
        return transfer.annotate(instance)


def _small(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = pixels.shape[:2]
    factor = _LONGEST / max(height, width)
    if factor >= 1 or not pixels.size:
        return np.ascontiguousarray(pixels)
    pillow = optional_module("PIL.Image")
    size = max(1, round(width * factor)), max(1, round(height * factor))
    return np.array(pillow.fromarray(np.ascontiguousarray(pixels)).resize(size, pillow.Resampling.BOX), dtype=np.uint8)


def _as_png(picture: NDArray[np.uint8]) -> bytes:
    stream = io.BytesIO()
    optional_module("PIL.Image").fromarray(picture).save(stream, format="PNG", compress_level=2)
    return stream.getvalue()


def _as_json(one: ExemplarAnnotation) -> dict[str, Any]:
    return {
        "class_name": one.class_name,
        "image_id": one.image_id,
        "index": int(one.index),
        "box": np.asarray(one.box, dtype=np.float64).tolist(),
        "mask_shape": None if one.mask is None else list(one.mask.shape),
        "parts": [{"name": part.name, "box": np.asarray(part.box, dtype=np.float64).tolist()} for part in one.parts],
        "pose": one.pose,
        "metadata": plain_json(dict(one.metadata)),
    }


def _note(problem: Problem, problems: list[Problem] | None) -> None:
    if problems is not None:
        problems.append(problem)


class _Reader(Document):
    """The annotations of a file."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.arrays, metadata = read_tensors(file)
        if metadata.get("format") != FORMAT:
            raise InputError(f'{file}: it holds no annotations: there is no "format": "{FORMAT}"')
        self.check_version(metadata.get("format_version"), str(FORMAT_VERSION))
        self.content = self.parse("annotations", metadata.get("annotations", ""))

    def annotations(self) -> tuple[ExemplarAnnotation, ...]:
        if not isinstance(self.content, list) or not all(isinstance(one, dict) for one in self.content):
            self.fail("annotations", "must be a list of objects")
        if self.arrays.get("count", np.zeros(1)).tolist() != [len(self.content)]:
            self.fail("count", f"must be {len(self.content)}, the number of annotations")
        objects = {k: self.annotation(k, one) for k, one in enumerate(self.content) if MIRROR_OF not in one}
        return tuple(objects.get(k) or self.mirror_image(k, one, objects) for k, one in enumerate(self.content))

    def mirror_image(
        self, number: int, one: dict[str, Any], objects: Mapping[int, ExemplarAnnotation]
    ) -> ExemplarAnnotation:
        where = f"annotations[{number}]"
        self.check_object(where, one, [MIRROR_OF])
        source = one[MIRROR_OF]
        if type(source) is not int or source not in objects:
            self.fail(f"{where}.{MIRROR_OF}", f"must be the number of an object among the annotations, got {source!r}")
        return mirrored(objects[source])

    def annotation(self, number: int, one: dict[str, Any]) -> ExemplarAnnotation:
        where = f"annotations[{number}]"
        self.check_object(where, one, sorted(_FIELDS))
        for key in ("class_name", "image_id"):
            self.check_text(f"{where}.{key}", one[key])
        self.check_index(f"{where}.index", one["index"])
        if one["pose"] is not None and not isinstance(one["pose"], str):
            self.fail(f"{where}.pose", f"must be a text or null, got {one['pose']!r}")
        if not isinstance(one["metadata"], dict):
            self.fail(f"{where}.metadata", "must be an object")
        return ExemplarAnnotation(
            class_name=one["class_name"],
            image_id=one["image_id"],
            index=one["index"],
            box=self.box(one["box"], f"{where}.box"),
            mask=self.mask(number, one["mask_shape"]),
            parts=self.parts(one["parts"], f"{where}.parts"),
            pose=one["pose"],
            metadata=one["metadata"],
            picture=self.picture(number),
        )

    def box(self, value: Any, where: str) -> NDArray[np.float64]:
        is_box = isinstance(value, list) and len(value) == 4
        if not is_box or not all(map(is_number, value)):
            self.fail(where, "must be four numbers x1, y1, x2, y2")
        return np.array(value, dtype=np.float64)

    def parts(self, value: Any, where: str) -> tuple[Part, ...]:
        if not isinstance(value, list):
            self.fail(where, "must be a list")
        for part in value:
            if not isinstance(part, dict) or set(part) != {"name", "box"} or not isinstance(part["name"], str):
                self.fail(where, "must hold a name and a box each")
        return tuple(Part(part["name"], self.box(part["box"], where)) for part in value)

    def mask(self, number: int, shape: Any) -> NDArray[np.bool_] | None:
        bits = self.arrays.get(f"mask_{number}")
        if shape is None and bits is None:
            return None
        is_shape = isinstance(shape, list) and len(shape) == 2 and all(type(n) is int and n > 0 for n in shape)
        if not is_shape or shape[0] * shape[1] > _MAX_MASK:
            self.fail(f"annotations[{number}].mask_shape", "must be two numbers of pixels")
        n = shape[0] * shape[1]
        if bits is None or bits.dtype != np.uint8 or bits.shape != (-(-n // 8),):
            self.fail(f"mask_{number}", f"must hold {n} bits")
        return np.unpackbits(bits, count=n).astype(bool).reshape(shape)

    def picture(self, number: int) -> NDArray[np.uint8] | None:
        content = self.arrays.get(f"picture_{number}")
        if content is None:
            return None
        try:
            return read_image(content.astype(np.uint8).tobytes(), max_pixels=_LONGEST**2)
        except InputError as error:
            self.fail(f"picture_{number}", f"is no picture: {error}")
