"""Lists of images, the splits of PASCAL VOC and ILSVRC: one image a line, and in lists of one class also a label.

In: text files such as ImageSets/Main/train.txt and ImageSets/Main/car_train.txt. Out: splits, names to image ids. A
list with labels makes four: `car_train` has all its images, `car_train=1` those with the class, `car_train=0` those
in which it is difficult or only partly annotated, `car_train=-1` those without it.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from eesvm.datasets.build import Builder
from eesvm.images.files import IMAGE_SUFFIXES

_LABELS = {"1": 1, "+1": 1, "0": 0, "-1": -1}


def read_splits(
    path: Path, name: str, known: Container[str], builder: Builder, has_index: bool = False
) -> dict[str, tuple[str, ...]]:
    """The splits that one list makes; `has_index` says that a number after a name means nothing."""
    entries = _entries(path, known, builder, has_index)
    splits = {name: tuple(dict.fromkeys(image_id for image_id, _ in entries))}
    if any(label is not None for _, label in entries):
        for value in (1, 0, -1):
            splits[f"{name}={value}"] = tuple(dict.fromkeys(image_id for image_id, label in entries if label == value))
    return splits


def _entries(path: Path, known: Container[str], builder: Builder, has_index: bool) -> list[tuple[str, int | None]]:
    """(image id, label or None) of every line that names an image there is."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        builder.problem(path, f"the list cannot be read: {error}", "list")
        return []
    entries = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        entry = _entry(line.strip(), known, has_index)
        if entry is None:
            builder.problem(path, f"the list names {line.strip()[:100]!r}, of which there is no image", "list", number)
        else:
            entries.append(entry)
    return entries


def _entry(line: str, known: Container[str], has_index: bool) -> tuple[str, int | None] | None:
    if (image_id := _known_name(line, known)) is not None:  # the name itself may hold blanks
        return image_id, None
    name, _, last = line.rpartition(" ") if " " in line else line.rpartition("\t")
    image_id = _known_name(name.strip(), known)
    if image_id is None or not (last in _LABELS or (has_index and last.isdigit())):
        return None
    return image_id, None if has_index else _LABELS[last]


def _known_name(name: str, known: Container[str]) -> str | None:
    if name in known:
        return name
    stem, dot, ending = name.rpartition(".")
    return stem if f"{dot}{ending}".lower() in IMAGE_SUFFIXES and stem in known else None
