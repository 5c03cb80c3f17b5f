"""Which files lie below a folder, and which image belongs to which annotation.

In: a folder. Out: its files as relative paths in one order everywhere, and an index that finds images by name without
minding endings or, as a last resort, the case of letters (.jpg, .JPG). Names that files give to other files are only
followed downwards: nothing outside the folder is ever read on their word. Links that the user put there are followed.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

from eesvm.datasets.build import Builder
from eesvm.images.files import IMAGE_SUFFIXES

SPLIT_NAMES = (
    "train", "training", "trainval", "val", "valid", "validation", "test", "testing", "train2017", "val2017",
    "test2017", "train2014", "val2014",
)  # fmt: skip

_DEEPEST = 50  # nested folders


def scan(root: Path, builder: Builder) -> list[str]:
    """Relative paths, with /, of all files below `root`, sorted; hidden files and folders are passed over."""
    return sorted(_walk(root, "", builder, set()))


def is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES)


def key(path: str) -> str:
    """A relative path without its ending: what an image and its annotation have in common."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{name.rpartition('.')[0] or name}"


def below(files: Iterable[str], folder: str) -> list[str]:
    """Those of `files` below `folder`, relative to it."""
    prefix = f"{folder}/" if folder else ""
    return [name[len(prefix) :] for name in files if name.startswith(prefix)]


def safe_name(name: str) -> str | None:
    """A relative path with / that stays below the folder it is applied to; None where it does not."""
    text = name.replace("\\", "/")
    if not text or "\0" in text or text.startswith("/") or PureWindowsPath(name).drive:
        return None
    parts = [part for part in PurePosixPath(text).parts if part != "."]
    return "/".join(parts) if parts and ".." not in parts else None


def common_folder(files: Iterable[str]) -> str:
    """The deepest folder that all relative paths share, "" for the root."""
    folders = {name.rpartition("/")[0] for name in files}
    return os.path.commonpath(folders).replace(os.sep, "/") if folders and "" not in folders else ""


def split_of(path: str) -> str | None:
    """The name of a split among the folders of a relative path, the innermost if there are several."""
    return next((part for part in reversed(path.split("/")[:-1]) if part.lower() in SPLIT_NAMES), None)


def folder_splits(files: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Splits that folders make, from (relative path, image id)."""
    splits: dict[str, list[str]] = defaultdict(list)
    for path, image_id in files:
        name = split_of(path)
        if name is not None:
            splits[name].append(image_id)
    return {name: tuple(ids) for name, ids in sorted(splits.items())}


class ImageIndex:
    """Finds image files by their name without ending."""

    def __init__(self, files: Iterable[str]) -> None:
        self.files = [name for name in files if is_image(name)]
        self.by_key: dict[str, list[str]] = defaultdict(list)
        self._by_folded_key: dict[str, list[str]] = defaultdict(list)
        self._by_stem: dict[str, list[str]] = defaultdict(list)
        for name in self.files:
            self.by_key[key(name)].append(name)
            self._by_folded_key[key(name).casefold()].append(name)
            self._by_stem[key(name).rpartition("/")[2].casefold()].append(name)

    def at(self, wanted: str) -> list[str]:
        """Images whose path without ending is `wanted`, in any case of letters if there is none with exactly that."""
        return self.by_key.get(wanted) or self._by_folded_key.get(wanted.casefold(), [])

    def like(self, wanted: str) -> list[str]:
        """Images anywhere whose name is that of `wanted`, reduced to those that share the most folders with it."""
        candidates = self._by_stem.get(wanted.rpartition("/")[2].casefold(), [])
        shared = [_shared_tail(key(name), wanted) for name in candidates]
        return [name for name, count in zip(candidates, shared, strict=True) if count == max(shared)]


def _shared_tail(first: str, second: str) -> int:
    """How many path components two paths share, counted from the end and after the name."""
    count = 0
    for a, b in zip(reversed(first.split("/")[:-1]), reversed(second.split("/")[:-1]), strict=False):
        if a != b:
            break
        count += 1
    return count


def _walk(root: Path, folder: str, builder: Builder, seen: set[tuple[int, int]]) -> Iterator[str]:
    here = root / folder
    if folder.count("/") > _DEEPEST:
        builder.problem(here, f"folders that are nested more than {_DEEPEST} deep are passed over", "folder")
        return
    try:
        status = os.stat(here)
        entries = sorted(os.scandir(here), key=lambda entry: entry.name)
    except OSError as error:
        builder.problem(here, f"the folder cannot be read: {os.strerror(error.errno or 0)}", "folder")
        return
    if (status.st_dev, status.st_ino) in seen:  # a link that leads back to where it came from
        return
    seen.add((status.st_dev, status.st_ino))
    for entry in entries:
        if entry.name.startswith(".") or entry.name == "__MACOSX":
            continue
        path = f"{folder}/{entry.name}" if folder else entry.name
        try:
            is_folder, is_file = entry.is_dir(), entry.is_file()
        except OSError:  # a link in a circle
            continue
        if is_folder:
            yield from _walk(root, path, builder, seen)
        elif is_file:
            yield path
