"""What a training run depends on, in a few bytes: hashes of images and annotations.

In: a dataset. Out: a hash of the content of every image, and one of all annotations, masks included. A file that was
renamed or touched has the same hash; one that was changed has another.
An image that cannot be read has a hash that says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from eesvm._support.digests import digest
from eesvm._support.validation import InputError
from eesvm.datasets.plain_json import plain_json
from eesvm.structures import Dataset, ImageRecord, Instance


@dataclass(frozen=True)
class Fingerprint:
    """Hashes of a dataset."""

    name: str
    images: dict[str, str]  # by image id, in the order of the dataset
    annotations: str
    n_instances: int

    def images_digest(self) -> str:
        return digest(list(self.images.items()))

    def summary(self) -> dict[str, Any]:
        """What a card says about it."""
        return {
            "name": self.name,
            "n_images": len(self.images),
            "n_objects": self.n_instances,
            "images_digest": self.images_digest(),
            "annotations_digest": self.annotations,
        }


def fingerprint(dataset: Dataset, progress: Callable[[int, int], object] | None = None) -> Fingerprint:
    """Look at the content of every image and annotation."""
    images: dict[str, str] = {}
    notes = hashlib.blake2b(digest_size=20)
    for done, record in enumerate(dataset, start=1):
        images[record.image_id] = _image_digest(record)
        notes.update(json.dumps(_annotation(record), sort_keys=True).encode())
        for instance in record.instances:
            notes.update(_mask_bytes(instance))
        if progress is not None:
            progress(done, len(dataset))
    n_instances = sum(len(record.instances) for record in dataset)
    return Fingerprint(dataset.name, images, notes.hexdigest(), n_instances)


def _image_digest(record: ImageRecord) -> str:
    hasher = hashlib.blake2b(digest_size=20)
    try:
        if record.path:
            how = record.read.keywords if isinstance(record.read, partial) else {}
            hasher.update(Path(record.path).read_bytes())
            hasher.update(json.dumps(plain_json(dict(how)), sort_keys=True).encode())
        else:
            pixels = record.read()
            hasher.update(f"{pixels.shape}".encode())
            hasher.update(np.ascontiguousarray(pixels).data)
    except (InputError, OSError, ValueError, MemoryError) as error:
        return f"unreadable: {type(error).__name__}"
    return hasher.hexdigest()


def _annotation(record: ImageRecord) -> list[Any]:
    return [record.image_id, record.width, record.height, [_facts(instance) for instance in record.instances]]


def _facts(instance: Instance) -> list[Any]:
    flags: Sequence[bool] = (instance.is_difficult, instance.is_truncated, instance.is_crowd)
    parts = [[part.name, np.asarray(part.box).tolist()] for part in instance.parts]
    box = np.asarray(instance.box).tolist()
    return [instance.class_name, instance.index, box, *flags, parts, instance.pose, plain_json(dict(instance.metadata))]


def _mask_bytes(instance: Instance) -> bytes:
    if instance.mask is None:
        return b""
    try:
        return np.packbits(instance.mask()).tobytes()
    except (InputError, OSError, ValueError, MemoryError) as error:
        return f"unreadable: {type(error).__name__}".encode()
