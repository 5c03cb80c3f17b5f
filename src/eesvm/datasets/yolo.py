"""YOLO: one text file for each image, one object a line.

In: a folder with images/ and labels/ (or the text files beside the images), or its data.yaml. Out: a `Dataset`. A
line is `class cx cy width height`, all in shares of the image, or `class x1 y1 x2 y2 ...`, a polygon, which becomes
mask and box; one more number after a box is its `confidence`, and with `kpt_shape` in data.yaml keypoints follow.
Rotated boxes are read as polygons of four corners. An empty text file says that its image shows nothing. An image
without a text file may show anything: it is marked as not annotated where other images of its split have one, unless
data.yaml (`skip_if_label_file_missing`) or the caller (`unlabelled`) says otherwise.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from eesvm._support.validation import InputError
from eesvm.datasets._coco_annotation import ShapeMask
from eesvm.datasets._yolo_config import CLASS_FILES, Config, find_config, read_class_file, read_config
from eesvm.datasets.build import Builder, Options, Picture, choose_split, without_annotation
from eesvm.datasets.tree import ImageIndex, common_folder, folder_splits, is_image, key, safe_name, scan
from eesvm.images.masks import check_polygon
from eesvm.structures import Dataset, Instance

_LARGEST = 1e9  # of any number in a line; a share of the image is about 1
_LABEL_LINE = re.compile(rb"\s*\d+(\s+[-+]?[\d.]+([eE][-+]?\d+)?){4,}\s*$")


def read_yolo(root: Path, options: Options) -> Dataset:
    """The dataset in the folder `root`, or beside the data.yaml `root`."""
    builder = Builder(options)
    base = root.parent if root.is_file() else root
    files = scan(base, builder)
    config = _config(root if root.is_file() else find_config(root), base, files, builder)
    index = ImageIndex(files)
    prefix = common_folder(index.files)
    ids = {name: key(name).removeprefix(f"{prefix}/") for name in index.files}
    chosen_files = _split_files(config, base, files, index, builder)
    splits = {name: tuple(ids[path] for path in paths) for name, paths in chosen_files.items()}
    splits = splits or folder_splits(ids.items())
    wanted = set(choose_split(options.split, splits, base)) if options.split is not None else None
    listed = {path for paths in chosen_files.values() for path in paths} or set(index.files)
    labels = {name for name in files if name.lower().endswith(".txt")}
    chosen = [name for name in index.files if name in listed and (wanted is None or ids[name] in wanted)]
    label_files = {name: _label_file(name, labels) for name in chosen}
    without = {ids[name] for name, label in label_files.items() if label is None}
    skipped = _skipped(without, {ids[name] for name in chosen} - without, splits, config, builder)
    for name in chosen:
        bare = without_annotation(ids[name] not in skipped) if ids[name] in without else {}
        _add(base, name, ids[name], label_files[name], bare, config, builder)
    if wanted is None:
        _report_orphans(base, index, labels, builder)
    order = [config.names[number] for number in sorted(config.names)]
    return builder.dataset(base.resolve().name, splits, order)


def _skipped(
    without: set[str], labelled: set[str], splits: Mapping[str, Sequence[str]], config: Config, builder: Builder
) -> set[str]:
    """Which of the images without label file are not taken for images without objects."""
    asked = builder.options.unlabelled
    if asked is not None or config.skips_unlabelled is not None:
        return without if asked == "skip" or (asked is None and config.skips_unlabelled) else set()
    of_no_split = (without | labelled).difference(*splits.values())
    groups = [set(members) for members in (*splits.values(), of_no_split)]
    return {image_id for group in groups if group & labelled for image_id in group & without}


def is_label_file(path: Path) -> bool:
    """Whether the first line of a text file looks like an object of YOLO's."""
    try:
        with open(path, "rb") as handle:
            return _LABEL_LINE.match(handle.readline(1 << 16)) is not None
    except OSError:
        return False


def _config(path: Path | None, base: Path, files: list[str], builder: Builder) -> Config:
    """What data.yaml says, completed by a file of class names."""
    config = Config()
    if path is not None:
        try:
            config = read_config(path)
        except InputError as error:
            builder.problem(path, str(error).removeprefix(f"{path}: "), "annotation")
    if config.names:
        return config
    found = next((name for name in files if name.rpartition("/")[2] in CLASS_FILES), None)
    try:
        names = {} if found is None else read_class_file(base / found)
    except InputError as error:
        builder.problem(base, str(error), "annotation")
        names = {}
    if not names:
        builder.problem(
            base, "no data.yaml or classes.txt names the classes; they are called by their numbers", "class"
        )
    return replace(config, names=names)


def _split_files(
    config: Config, base: Path, files: list[str], index: ImageIndex, builder: Builder
) -> dict[str, list[str]]:
    """The images of every split that data.yaml names."""
    splits = {}
    for split, entries in config.splits.items():
        images: dict[str, None] = {}
        for entry in entries:
            images.update(dict.fromkeys(_entry_files(entry, split, config, base, files, index, builder)))
        splits[split] = list(images)
    return {name: images for name, images in splits.items() if images}


def _entry_files(
    entry: str, split: str, config: Config, base: Path, files: list[str], index: ImageIndex, builder: Builder
) -> Iterable[str]:
    """Images of one folder or list. Paths of somebody else's machine are tried below this folder, never outside it."""
    tail = re.sub(r"^(\.{1,2}/)+", "", entry.replace("\\", "/"))
    for candidate in (f"{config.root}/{entry}", entry, tail, tail.rpartition("/datasets/")[2]):
        name = safe_name(candidate.rstrip("/"))
        if name is None:
            continue
        if name in files and name.lower().endswith(".txt"):
            return _listed(base / name, index, builder)
        images = [image for image in index.files if image.startswith(f"{name}/")]
        if images:
            return images
    builder.problem(base, f"data.yaml says {split}: {entry[:200]!r}, but no images are found there", "path")
    return []


def _listed(path: Path, index: ImageIndex, builder: Builder) -> list[str]:
    """The images of a list, one path a line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        builder.problem(path, f"the list cannot be read: {error}", "list")
        return []
    known = set(index.files)
    images = []
    for number, line in enumerate(lines, start=1):
        text = line.strip().replace("\\", "/")
        if not text:
            continue
        name = safe_name(text)
        found = [name] if name in known else index.like(key(text)) if is_image(text) else []
        if len(found) == 1 and found[0] is not None:
            images.append(found[0])
        else:
            builder.problem(path, f"the list names {text[:200]!r}, of which there is no image", "list", number)
    return images


def _label_file(image: str, labels: set[str]) -> str | None:
    """The text file of an image: in `labels` instead of `images`, or beside it."""
    parts = key(image).split("/")
    swapped = [
        "/".join([*parts[:position], "labels", *parts[position + 1 :]])
        for position in range(len(parts) - 2, -1, -1)
        if parts[position] == "images"
    ]
    beside = key(image)
    flat = "/".join(["labels", *parts])
    return next((f"{name}.txt" for name in (*swapped, beside, flat) if f"{name}.txt" in labels), None)


def _add(
    base: Path, image: str, image_id: str, label: str | None, bare: dict[str, bool], config: Config, builder: Builder
) -> None:
    picture = builder.picture(base / image, image_id)
    if picture is None:
        return
    instances: list[Instance] = []
    lines = [] if label is None else _lines(base / label, builder)
    for number, line in lines or ():
        instance = _instance(line, image_id, number, picture, base / str(label), config, builder)
        if instance is not None:
            instances.append(instance)
    # What a file that cannot be read would say of its image is unknown: the image is no negative.
    builder.add(
        image_id, picture, instances, {"is_annotated": False, "has_annotation": True} if lines is None else bare
    )


def _lines(path: Path, builder: Builder) -> list[tuple[int, str]] | None:
    """Numbers and texts of the lines that are not blank; None where the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        builder.problem(path, f"{os.strerror(error.errno or 0)}; nothing is learnt from its image", "annotation")
        return None
    except UnicodeDecodeError as error:
        builder.problem(path, f"it is no text: {error.reason}; nothing is learnt from its image", "annotation")
        return None
    return [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]


def _instance(
    line: str, image_id: str, number: int, picture: Picture, path: Path, config: Config, builder: Builder
) -> Instance | None:
    """The object of one line."""
    try:
        class_number, numbers = _numbers(line)
        corners, points, extra = _geometry(numbers, picture, config)
    except InputError as error:
        builder.problem(path, f"{error}; the line is left out", "annotation", number)
        return None
    if config.names and class_number not in config.names:
        reason = f"class {class_number} is not among the {len(config.names)} named ones; the object is left out"
        builder.problem(path, reason, "class", number)
        return None
    name = config.names.get(class_number, str(class_number))
    if not builder.accepts_class(name, "the object", (path, number)):
        return None
    text = "the box " + ", ".join(f"{value:g}" for value in corners) + f" of class {name[:50]}"
    box = builder.box(corners, picture, text, (path, number))
    if box is None:
        return None
    mask = None if points is None else ShapeMask((points,), picture.height, picture.width)
    return Instance(name, box, image_id, number - 1, mask, metadata=extra, source=f"{path}:{number}")


def _numbers(line: str) -> tuple[int, list[float]]:
    first, *rest = line.split()
    try:
        class_number, numbers = float(first), [float(text) for text in rest]
    except ValueError:
        raise InputError("a line must hold numbers only: class cx cy width height") from None
    if not all(abs(number) < _LARGEST for number in (class_number, *numbers)):
        raise InputError(f"a line must hold numbers below {_LARGEST:g} only")
    if class_number != int(class_number) or class_number < 0:
        raise InputError(f"the class must be a whole number from 0, got {first[:50]}")
    return int(class_number), numbers


def _geometry(
    numbers: list[float], picture: Picture, config: Config
) -> tuple[tuple[float, float, float, float], np.ndarray | None, dict[str, Any]]:
    """Corners in pixels, the points of a polygon if it is one, and what else the line says."""
    scale = np.array([picture.width, picture.height], dtype=np.float64)
    n_keypoints = math.prod(config.keypoints) if config.keypoints else 0
    if len(numbers) in (4, 5, 4 + n_keypoints):
        cx, cy, width, height = numbers[:4]
        x1, x2 = (cx - width / 2) * picture.width, (cx + width / 2) * picture.width
        y1, y2 = (cy - height / 2) * picture.height, (cy + height / 2) * picture.height
        return (x1, y1, x2, y2), None, _extra(numbers[4:], scale, config)
    if len(numbers) < 6 or len(numbers) % 2:
        raise InputError(f"a line must hold a class and 4 numbers, or x, y of three points or more; got {len(numbers)}")
    points = check_polygon(np.array(numbers).reshape(-1, 2) * scale)
    (x1, y1), (x2, y2) = points.min(axis=0), points.max(axis=0)
    return (float(x1), float(y1), float(x2), float(y2)), points, {}


def _extra(numbers: list[float], scale: np.ndarray, config: Config) -> dict[str, Any]:
    if len(numbers) == 1:
        return {"confidence": numbers[0]}
    if not numbers or config.keypoints is None:
        return {}
    points = np.array(numbers).reshape(config.keypoints)
    points[:, :2] *= scale
    return {"keypoints": {str(number): point.tolist() for number, point in enumerate(points, start=1)}}


def _report_orphans(base: Path, index: ImageIndex, labels: set[str], builder: Builder) -> None:
    """Text files with objects for which there is no image."""
    used = {_label_file(image, labels) for image in index.files}
    for name in sorted(labels - used):
        if name.rpartition("/")[2] not in CLASS_FILES and is_label_file(base / name):
            builder.problem(base / name, "there is no image for these objects; they are left out", "missing image")
