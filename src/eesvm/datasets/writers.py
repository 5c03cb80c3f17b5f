"""Datasets as files that other tools read.

In: a `Dataset`. Out: a VOC devkit folder, or a COCO JSON file with or without its images, whole or not at all. What a
format has a place for is written there; COCO keeps all else under keys of its own that others ignore and
`open_dataset` reads back, VOC keeps it in tags. Images that are files are copied byte for byte, others are written as
PNG. VOC holds at most 254 masks in an image, and a pixel belongs to one object: where masks overlap, the later one
has it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from eesvm._support.files import atomic_folder, atomic_write
from eesvm._support.validation import InputError
from eesvm.datasets.plain_json import plain_json
from eesvm.datasets.tree import is_image, safe_name
from eesvm.datasets.voc_writer import annotation_xml, list_text, object_image
from eesvm.images.files import write_image, write_picture
from eesvm.images.masks import mask_to_rle
from eesvm.structures import Dataset, ImageRecord, Instance


def write_voc(dataset: Dataset, folder: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write a devkit: JPEGImages, Annotations, ImageSets and, where there are masks, SegmentationObject.

    Boxes become VOC's, counted from 1 with both ends included: x1 + 1, y1 + 1, x2, y2.

    Parameters
    ----------
    dataset : whose image ids can be file names.
    folder : to write, whole or not at all.
    overwrite : replace an existing folder, if it is empty or holds only what an earlier call wrote.
    """
    _check_ids(dataset)
    lists = _list_names(dataset)
    with atomic_folder(folder, overwrite) as target:
        for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
            (target / name).mkdir(parents=True)
        for record in dataset:
            file_name = _store_image(record, target / "JPEGImages")
            text = annotation_xml(record, Path(file_name).name, dataset.name)
            _write_text(target / "Annotations" / f"{record.image_id}.xml", text)
            objects = object_image(record)
            if objects is not None:
                path = target / "SegmentationObject" / f"{record.image_id}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                write_picture(path, objects)
        for file_name, split in lists.items():
            _write_text(target / "ImageSets" / file_name, list_text(dataset, split))


def write_coco(dataset: Dataset, target: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write a .json file, or a folder with `instances.json` and `images`. Masks become run lengths.

    In a .json file alone, images are named relative to the folder that all of them share: pass that folder as `images`
    to read it again.

    Parameters
    ----------
    dataset : whose image ids can be file names.
    target : a .json file, or a folder; written whole or not at all.
    overwrite : replace an existing file, or a folder that is empty or holds only what an earlier call wrote.
    """
    _check_ids(dataset)
    path = Path(target)
    if path.suffix.lower() == ".json":
        if path.exists() and not overwrite:
            raise InputError(f"{target} already exists: choose another name or allow overwriting it")
        _write_json(path, _coco_document(dataset, relative_names(dataset)))
        return
    with atomic_folder(target, overwrite) as folder:
        (folder / "images").mkdir()
        names = {record.image_id: _store_image(record, folder / "images") for record in dataset}
        _write_json(folder / "instances.json", _coco_document(dataset, names))


def _check_ids(dataset: Dataset) -> None:
    """Image ids become file names: they must not lead elsewhere."""
    seen: set[str] = set()
    for record in dataset:
        if safe_name(record.image_id) != record.image_id:
            raise InputError(f"the image id {record.image_id!r} cannot be used as a file name")
        if record.image_id in seen:
            raise InputError(f"the image id {record.image_id!r} is there twice")
        seen.add(record.image_id)


def _list_names(dataset: Dataset) -> dict[str, str]:
    """From the files below ImageSets to the splits they list: names of splits must neither lead elsewhere nor meet."""
    lists: dict[str, str] = {}
    for split in dataset.splits:
        if "=" in split:  # the lists of one class are written from their parts
            continue
        if safe_name(split) != split:
            raise InputError(f"the split {split!r} cannot be used as a file name")
        folder = "Segmentation" if split.startswith("Segmentation/") else "Main"
        file_name = f"{folder}/{split.removeprefix('Segmentation/').replace('/', '_')}.txt"
        if file_name in lists:
            raise InputError(f"the splits {lists[file_name]!r} and {split!r} would both become {file_name}")
        lists[file_name] = split
    return lists


def _store_image(record: ImageRecord, folder: Path) -> str:
    """Copy or write an image; returns its name relative to `folder`."""
    is_file = bool(record.path) and is_image(record.path)
    name = record.image_id + (Path(record.path).suffix if is_file else ".png")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if is_file:
        shutil.copyfile(record.path, path)
    else:
        write_image(path, record.read())
    return name


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    with atomic_write(path, text=True) as handle:
        for piece in json.JSONEncoder(default=plain_json, allow_nan=False).iterencode(document):
            handle.write(piece)


def relative_names(dataset: Dataset) -> dict[str, str]:
    """File names relative to the folder that all stored images share; made images are named after their ids."""
    paths = {record.image_id: os.path.abspath(record.path) for record in dataset if record.path}
    shared = os.path.commonpath([os.path.dirname(path) for path in paths.values()]) if paths else ""
    return {
        record.image_id: Path(os.path.relpath(paths[record.image_id], shared)).as_posix()
        if record.image_id in paths
        else f"{record.image_id}.png"
        for record in dataset
    }


def _coco_document(dataset: Dataset, names: Mapping[str, str]) -> dict[str, Any]:
    found = {instance.class_name for instance in dataset.instances()}
    classes = [*dataset.classes, *sorted(found.difference(dataset.classes))]
    categories = {name: number for number, name in enumerate(classes, start=1)}
    ids = _coco_ids(dataset)
    images = [
        {
            "id": ids[record.image_id],
            "file_name": names[record.image_id],
            "width": record.width,
            "height": record.height,
            **({} if str(ids[record.image_id]) == record.image_id else {"eesvm_id": record.image_id}),
        }
        for record in dataset
    ]
    return {
        "info": {"description": dataset.name},
        "images": images,
        "categories": [{"id": number, "name": name} for name, number in categories.items()],
        "annotations": list(_coco_annotations(dataset, ids, categories)),
        "splits": {name: list(members) for name, members in dataset.splits.items()},
    }


def _coco_ids(dataset: Dataset) -> dict[str, int]:
    """Whole numbers, as COCO's tools expect: the ids themselves where all are such numbers."""
    ids = [record.image_id for record in dataset]
    if all(image_id.isascii() and image_id.isdigit() and str(int(image_id[:18])) == image_id for image_id in ids):
        return {image_id: int(image_id) for image_id in ids}
    return {image_id: number for number, image_id in enumerate(ids, start=1)}


def _coco_annotations(
    dataset: Dataset, ids: Mapping[str, int], categories: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    number = 0
    for record in dataset:
        for instance in record.instances:
            number += 1
            yield {
                "id": number,
                "image_id": ids[record.image_id],
                "category_id": categories[instance.class_name],
                **_coco_shape(instance),
                **_coco_extras(instance),
            }


def _coco_shape(instance: Instance) -> dict[str, Any]:
    mask = None if instance.mask is None else instance.mask()
    box = coco_box(instance.box)
    area = instance.area
    if area is None:
        area = box[2] * box[3] if mask is None else int(np.count_nonzero(mask))
    shape: dict[str, Any] = {
        "bbox": box,
        "area": area,
        "iscrowd": int(instance.is_crowd),
    }
    if mask is not None:
        shape["segmentation"] = mask_to_rle(mask)
    return shape


def _coco_extras(instance: Instance) -> dict[str, Any]:
    """What COCO has no place for, only where there is something to say."""
    extras: dict[str, Any] = {
        "difficult": int(instance.is_difficult),
        "truncated": int(instance.is_truncated),
        "pose": instance.pose,
        "parts": [{"name": part.name, "bbox": coco_box(part.box)} for part in instance.parts],
        "attributes": plain_json(dict(instance.metadata)),
    }
    return {key: value for key, value in extras.items() if value}


def coco_box(box: np.ndarray) -> list[float]:
    """x, y, width and height of a box."""
    x1, y1, x2, y2 = map(float, box)
    return [x1, y1, x2 - x1, y2 - y1]
