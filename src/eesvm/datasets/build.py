"""Shared by all readers: what becomes of what they find, so that all formats judge alike.

In: boxes, class names, image files and complaints of a reader. Out: `Instance`s, pictures that can be read later, and
in the end a `Dataset` with the list of its problems. One bad file never ends a run: it is left out and listed; with
`strict` the first problem is an `InputError` instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import InputError, check_choice
from eesvm.images.files import ImageError, image_header, read_image
from eesvm.structures import Box, Dataset, ImageRecord, Instance, Problem

CHECKS = ("none", "header", "full")
UNLABELLED = ("skip", "keep")

_ROUNDING = 0.5  # pixels a box may reach outside before that counts as a mistake rather than as rounding
_LARGEST = 1e9  # of a coordinate; beyond it arithmetic on boxes loses the pixel


@dataclass(frozen=True)
class Options:
    """What the caller of a reader asked for."""

    split: str | None = None
    classes: tuple[str, ...] | None = None
    strict: bool = False
    check: str = "header"  # of the images: "none" believes the annotations, "header" opens, "full" decodes each
    unlabelled: str | None = None  # images without annotation: "skip", "keep" as images without objects, or by format

    def __post_init__(self) -> None:
        check_choice(self.check, "check", CHECKS)
        if self.unlabelled is not None:
            check_choice(self.unlabelled, "unlabelled", UNLABELLED)
        if self.classes is not None and len(set(self.classes)) < len(self.classes):
            raise InputError("`classes` holds a name more than once")


@dataclass(frozen=True)
class Picture:
    """An image file whose size is known and whose pixels can be read."""

    path: Path
    width: int
    height: int
    read: Callable[[], NDArray[np.uint8]]


@dataclass
class Builder:
    """Collects images, instances and problems; the one place where they are judged."""

    options: Options
    problems: list[Problem] = field(default_factory=list)
    records: dict[str, ImageRecord] = field(default_factory=dict)

    def problem(
        self, path: Path | str, reason: str, kind: str, line: int | None = None, image_id: str | None = None
    ) -> None:
        """Note that something is wrong with a file; an error in a strict run."""
        problem = Problem(_printable(str(path)), _printable(reason), line, kind, image_id)
        if self.options.strict:
            raise InputError(str(problem))
        self.problems.append(problem)

    def picture(
        self, path: Path, image_id: str, stated: tuple[int, int] | None = None, source: Path | None = None
    ) -> Picture | None:
        """The image `path`, whose annotation in `source` says it has the size `stated`; None if it cannot be read."""
        if self.options.check == "none" and stated is not None and min(stated) > 0:
            return Picture(path, *stated, partial(_read_stated, str(path), width=stated[0], height=stated[1]))
        try:
            width, height, is_turned = image_header(path)
            read = partial(read_image, str(path))
            if is_turned and stated == (height, width) and width != height:
                # The annotator worked on the pixels as they are stored: so must everybody who uses these boxes.
                reason = "its EXIF rotation is ignored, because its annotation has the size of the stored pixels"
                self.problem(path, reason, "rotation")
                width, height, read = height, width, partial(read_image, str(path), rotate=False)
            if self.options.check == "full":
                read()
        except ImageError as error:
            self.problem(path, f"{_without_name(error, path)}; the image is left out", "image", image_id=image_id)
            return None
        if stated is not None and stated != (width, height):
            said = f"says that the image has {stated[0]} x {stated[1]} pixels, but it has {width} x {height}"
            self.problem(source or path, said, "size")
        return Picture(path, width, height, read)

    def box(
        self, corners: Sequence[float], picture: Picture, written: str, source: tuple[Path, int | None]
    ) -> Box | None:
        """A half-open box inside the picture; None where nothing of it is. `written` is what the file says."""
        reason, box = judge_box(corners, picture.width, picture.height)
        if reason:
            consequence = "it is left out" if box is None else "it is cut off there"
            self.problem(source[0], f"{written} {reason}; {consequence}", "box", source[1])
        return box

    def accepts_class(self, name: str, what: str, source: tuple[Path, int | None]) -> bool:
        """Whether an object of class `name` belongs to the classes that were asked for."""
        if not name:
            self.problem(source[0], f"{what} has no class name; it is left out", "class", source[1])
            return False
        if self.options.classes is not None and name not in self.options.classes:
            reason = f"{what} has the class {name!r}, which is not among the given classes; it is left out"
            self.problem(source[0], reason, "class", source[1])
            return False
        return True

    def add(
        self,
        image_id: str,
        picture: Picture,
        instances: Iterable[Instance],
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep an image, unless one with its name is there already."""
        if image_id in self.records:
            first = self.records[image_id].path
            reason = f"an image with the identifier {image_id!r} is there already ({first}); this one is left out"
            self.problem(picture.path, reason, "duplicate")
            return
        self.records[image_id] = ImageRecord(
            image_id,
            picture.read,
            picture.width,
            picture.height,
            tuple(instances),
            str(picture.path),
            metadata or {},
        )

    def sort(self) -> None:
        """Order the images by their ids."""
        self.records = dict(sorted(self.records.items()))

    def dataset(
        self, name: str, splits: Mapping[str, Sequence[str]] | None = None, order: Sequence[str] = ()
    ) -> Dataset:
        """All that was kept; classes come in the given order, else in that of `order`, else sorted."""
        present = {instance.class_name for record in self.records.values() for instance in record.instances}
        classes = self.options.classes
        if classes is None:
            known = [name for name in dict.fromkeys(order) if name in present]
            classes = (*known, *sorted(present.difference(known)))
        kept = {
            split: tuple(image_id for image_id in ids if image_id in self.records)
            for split, ids in (splits or {}).items()
        }
        return Dataset(name, tuple(self.records.values()), classes, kept, tuple(self.problems))


def without_annotation(is_kept: bool) -> dict[str, bool]:
    """The metadata of an image that nobody has annotated, and that is kept as one without objects, or skipped."""
    return {"is_annotated": True, "has_annotation": False} if is_kept else {"is_annotated": False}


def judge_box(corners: Sequence[float], width: int, height: int) -> tuple[str, Box | None]:
    """What is wrong with a half-open box, "" for nothing, and what remains of it, None for nothing."""
    x1, y1, x2, y2 = corners
    if not all(math.isfinite(value) and abs(value) < _LARGEST for value in corners):
        return "does not hold usable numbers", None
    if x2 < x1 or y2 < y1:
        return "is inverted", None
    if x2 == x1 or y2 == y1:
        return "has no area", None
    if x1 >= width or y1 >= height or x2 <= 0 or y2 <= 0:
        return f"lies outside the image of {width} x {height} pixels", None
    box = np.array([max(x1, 0.0), max(y1, 0.0), min(x2, width), min(y2, height)], dtype=np.float64)
    outside = max(-x1, -y1, x2 - width, y2 - height)
    return (f"reaches outside the image of {width} x {height} pixels" if outside > _ROUNDING else ""), box


def choose_split(split: str, splits: Mapping[str, Sequence[str]], root: Path) -> Sequence[str]:
    """The image ids of one split, or an error that names the splits there are."""
    if split not in splits:
        names = [name for name in splits if "=" not in name]
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise InputError(f"{root} has no split {split!r}{like_split(split, splits)}: it has {shown or 'no splits'}")
    return splits[split]


def like_split(split: str, splits: Iterable[str]) -> str:
    """A hint at the split that was meant: VOC's lists for segmentation are called Segmentation/train and so on."""
    meant = next((name for name in splits if name.rpartition("/")[2] == split), None)
    return "" if meant is None else f" (did you mean --split {meant}?)"


def _read_stated(path: str, width: int, height: int) -> NDArray[np.uint8]:
    """The pixels of an image whose annotation was believed: they must have its size, or its boxes lie elsewhere."""
    pixels = read_image(path)
    if pixels.shape[:2] == (width, height) != (height, width):
        pixels = read_image(path, rotate=False)  # the annotator may have worked on the pixels as they are stored
    if pixels.shape[:2] != (height, width):
        found = f"it has {pixels.shape[1]} x {pixels.shape[0]} pixels"
        raise ImageError(f"{path}: {found}, but its annotation says {width} x {height}")
    return pixels


def _printable(text: str) -> str:
    """A text in one line that any screen can show, whatever bytes the file name in it is made of."""
    shown = "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")


def _without_name(error: ImageError, path: Path) -> str:
    return str(error).removeprefix(f"{path}: ")
