"""COCO: one JSON file for many images.

In: such a file, or a folder with one or several (annotations/instances_train2017.json makes the split `train2017`).
Out: a `Dataset` whose image ids are those of the file; where an earlier file gives an id to another image, the split
stands before it (val/1). Boxes x, y, width, height become x, y, x + width, y + height; polygons and both kinds of run
lengths become masks that are drawn when they are asked for; keypoints go to the metadata as name: [x, y, visibility].
What `write_coco` adds (parts, pose, splits, ...) is read back.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eesvm._support.validation import InputError
from eesvm.datasets._coco_annotation import Place, read_instance
from eesvm.datasets.build import Builder, Options, Picture, choose_split
from eesvm.datasets.tree import safe_name
from eesvm.structures import Dataset, Instance

_OTHER_CONTENT = ("captions_", "panoptic_", "stuff_", "image_info_", "person_keypoints_")  # taken if there is no other
_HEAD = 1 << 16  # bytes looked at to see whether a JSON file is one of COCO's
_LISTS = ("images", "annotations", "categories")


def read_coco(root: Path, options: Options, *, images: str | os.PathLike[str] | None = None) -> Dataset:
    """The dataset in the file or folder `root`; `images` is the folder of the images where they lie elsewhere."""
    builder = Builder(options)
    paths = annotation_files(root, options.split)
    if not paths:
        raise InputError(f"{root} has no COCO annotations: looked for .json files there and in {root / 'annotations'}")
    splits: dict[str, Sequence[str]] = {}
    given = _GivenIds()
    order: list[str] = []
    n_read = 0
    for path in paths:
        data = _load(path, builder)
        if data is None:
            continue
        file = _File(path, builder, None if images is None else Path(images), given)
        file.read(data)
        for name, ids in file.splits(data).items():
            splits[name] = tuple(dict.fromkeys((*splits.get(name, ()), *ids)))
        order.extend(file.names.values())
        n_read += 1
    if not n_read:
        raise InputError(str(builder.problems[0]))
    if options.split is not None:
        chosen = frozenset(choose_split(options.split, splits, root))
        builder.records = {image_id: record for image_id, record in builder.records.items() if image_id in chosen}
    return builder.dataset((root.parent if root.is_file() else root).resolve().name, splits, order)


def annotation_files(root: Path, split: str | None = None) -> list[Path]:
    """The files that are read of a file or folder: the one that is named after the split, or all where none is."""
    paths = [root] if root.is_file() else find_files(root)
    return [path for path in paths if _split_name(path) == split] or paths


def find_files(root: Path) -> list[Path]:
    """Files of COCO instances in a folder or its `annotations`, told by their names and their first bytes."""
    candidates = [path for folder in (root, root / "annotations") for path in _json_files(folder)]
    named = [path for path in candidates if path.name.startswith("instances")]
    if named:
        return named
    coco = [path for path in candidates if _looks_like_coco(path)]
    return [path for path in coco if not path.name.startswith(_OTHER_CONTENT)] or coco


@dataclass
class _GivenIds:
    """What the images of all files are called in the dataset: files that number from 1 each have an image 1."""

    by_name: dict[str, dict[Path, str]] = field(default_factory=dict)  # name in a file, image -> id
    taken: set[str] = field(default_factory=set)

    def give(self, name: str, image: Path, prefix: str) -> str:
        """The id of an image: its name in its file, with the prefix where another image has that id already."""
        ids = self.by_name.setdefault(name, {})
        if image not in ids:
            image_id = name
            while image_id in self.taken:
                image_id = f"{prefix}/{image_id}"
            self.taken.add(image_id)
            ids[image] = image_id
        return ids[image]


@dataclass
class _File:
    """One annotation file while it is being read; all tables are by the ids of the file."""

    path: Path
    builder: Builder
    images: Path | None = None
    given: _GivenIds = field(default_factory=_GivenIds)
    ids: dict[str, str] = field(default_factory=dict)  # of images, from those of the file to those of the dataset
    names: dict[Any, str] = field(default_factory=dict)  # of categories
    keypoints: dict[Any, list[str]] = field(default_factory=dict)  # of categories
    pictures: dict[Any, tuple[str, Picture]] = field(default_factory=dict)
    known: set[Any] = field(default_factory=set)  # ids of images, also of those that cannot be read
    instances: dict[Any, list[Instance]] = field(default_factory=dict)
    counts: Counter[Any] = field(default_factory=Counter)  # annotations of an image so far, also bad ones

    def read(self, data: dict[str, Any]) -> None:
        """Add all images and instances to the builder."""
        for number, entry in enumerate(data["categories"], start=1):
            self._add_category(entry, number)
        find = _finder(self.path, self.images)
        for number, entry in enumerate(data["images"], start=1):
            self._add_picture(entry, number, find)
        annotations = data["annotations"]
        for index, entry in enumerate(annotations):
            annotations[index] = None  # a file may have a million of them: what has been read can go
            self._add_annotation(entry, index + 1)
        for key, (image_id, picture) in self.pictures.items():
            self.builder.add(image_id, picture, self.instances.get(key, ()))

    def splits(self, data: dict[str, Any]) -> dict[str, list[str]]:
        """The split that the name of the file makes, and those that are stored in it."""
        stored = data.get("splits")
        splits = {_split_name(self.path): list(self.ids.values())}
        for name, ids in (stored if isinstance(stored, dict) else {}).items():
            if isinstance(ids, list):  # ids of other files are other images
                splits[str(name)] = [self.ids[own] for own in map(str, ids) if own in self.ids]
        return {name: ids for name, ids in splits.items() if name}

    def _problem(self, reason: str, kind: str) -> None:
        self.builder.problem(self.path, reason, kind)

    def _add_category(self, entry: Any, number: int) -> None:
        key = _identifier(entry, "id")
        name = entry.get("name") if isinstance(entry, dict) else None
        if key is None or not isinstance(name, str) or not name.strip():
            self._problem(f"category number {number} has no id or no name", "class")
            return
        if key in self.names:
            self._problem(f"category id {key!r} is there twice; {name[:50]!r} is left out", "duplicate")
            return
        self.names[key] = name.strip()
        points = entry.get("keypoints")
        if isinstance(points, list):
            self.keypoints[key] = [str(point) for point in points]

    def _add_picture(self, entry: Any, number: int, find: Callable[[str], Path | None]) -> None:
        key = _identifier(entry, "id")
        if key is None:
            self._problem(f"image number {number} has no usable id; it is left out", "annotation")
            return
        if key in self.known:
            self._problem(f"image id {key!r} is there twice; image number {number} is left out", "duplicate")
            return
        self.known.add(key)
        path = self._image_path(entry.get("file_name"), f"image {key!r}", find)
        if path is None:
            return
        width, height = entry.get("width"), entry.get("height")
        stated = (width, height) if type(width) is int and type(height) is int else None
        own = entry.get("eesvm_id")
        name = own if isinstance(own, str) else str(key)
        picture = self.builder.picture(path, self.ids.get(name, name), stated, self.path)
        if picture is not None:
            if name not in self.ids:  # else it is there twice in one file, which the builder will say
                self.ids[name] = self.given.give(name, path, _split_name(self.path) or self.path.stem)
            self.pictures[key] = (self.ids[name], picture)

    def _image_path(self, name: Any, what: str, find: Callable[[str], Path | None]) -> Path | None:
        if not isinstance(name, str):
            self._problem(f"{what} has no file name; it is left out", "missing image")
            return None
        safe = safe_name(name)
        if safe is None:
            self._problem(f"{what}: its name {name[:100]!r} leads out of the dataset; it is left out", "path")
            return None
        found = find(safe)
        if found is None:
            self._problem(f"{what}: there is no file {safe[:200]}; it is left out", "missing image")
        return found

    def _add_annotation(self, entry: Any, number: int) -> None:
        key, category = _identifier(entry, "image_id"), _identifier(entry, "category_id")
        own = _identifier(entry, "id")
        what = f"annotation number {number}" if own is None else f"annotation {own!r}"
        if key is None or key not in self.known:
            self._problem(f"{what} belongs to the image id {key!r}, which does not exist; it is left out", "reference")
            return
        if category is None or category not in self.names:
            self._problem(f"{what} has the category id {category!r}, which does not exist; it is left out", "reference")
            return
        if key not in self.pictures:
            return  # the image itself has been complained about
        image_id, picture = self.pictures[key]
        index = self.counts[key]
        self.counts[key] += 1
        points = self.keypoints.get(category, ())
        place = Place(self.path, what, image_id, index, picture, self.names[category], points)
        instance = read_instance(entry, place, self.builder)
        if instance is not None:
            self.instances.setdefault(key, []).append(instance)


def _json_files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix.lower() == ".json" and path.is_file())
    except OSError:
        return []


def _looks_like_coco(path: Path) -> bool:
    try:
        with open(path, "rb") as handle:
            ends = handle.read(_HEAD)
            handle.seek(max(0, os.path.getsize(path) - _HEAD))
            ends += handle.read(_HEAD)
    except OSError:
        return False
    return sum(f'"{name}"'.encode() in ends for name in _LISTS) >= 2


def _split_name(path: Path) -> str:
    return path.stem.removeprefix("instances").removeprefix("person_keypoints").strip("_-.")


def _load(path: Path, builder: Builder) -> dict[str, Any] | None:
    """The JSON object in a file; where it is none, that is noted."""
    try:
        with open(path, encoding="utf-8-sig") as handle:
            data = json.load(handle)
    except json.JSONDecodeError as error:
        builder.problem(path, f"it is not valid JSON: {error.msg}", "annotation", error.lineno)
        return None
    except (ValueError, RecursionError) as error:  # bytes that are no text, numbers of thousands of digits, deep nests
        builder.problem(path, f"it is not usable JSON: {error}", "annotation")
        return None
    except OSError as error:
        builder.problem(path, os.strerror(error.errno or 0), "annotation")
        return None
    missing = [name for name in _LISTS if not (isinstance(data, dict) and isinstance(data.get(name), list))]
    if missing:
        builder.problem(path, f"it is no COCO file: it has no list `{missing[0]}`", "annotation")
        return None
    return data


def _identifier(entry: Any, name: str) -> int | str | None:
    value = entry.get(name) if isinstance(entry, dict) else None
    return value if type(value) in (int, str) else None


def _finder(path: Path, images: Path | None) -> Callable[[str], Path | None]:
    """From a relative file name to the image, in the first of the usual folders in which it lies."""
    base = path.parent.parent if path.parent.name == "annotations" else path.parent
    split = _split_name(path) or "."
    usual = [base / "images", base / split, base / "images" / split, base, path.parent]
    folders = [folder for folder in (dict.fromkeys(usual) if images is None else [images]) if folder.is_dir()]

    def find(name: str) -> Path | None:
        for position, folder in enumerate(folders):
            if os.path.isfile(folder / name):  # False also for names that no file system takes
                folders.insert(0, folders.pop(position))  # its neighbours will lie there too
                return folder / name
        return None

    return find
