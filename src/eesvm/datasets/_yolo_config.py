"""What a YOLO dataset says about itself: names of classes, folders of its splits.

In: data.yaml, or classes.txt, obj.names and the like. Out: `Config`. YAML is read without building objects, and every
value is text: a class called `no` stays `no`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eesvm._support.extras import optional_module
from eesvm._support.validation import InputError

CONFIG_NAMES = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
CLASS_FILES = ("classes.txt", "obj.names", "names.txt", "labels.txt", "_darknet.labels")
SPLITS = ("train", "val", "test")

_LARGEST_FILE = 1 << 24  # bytes
_MOST_DIGITS = 18  # of a number; thousands of them are more than `int` takes


@dataclass(frozen=True)
class Config:
    """Names of the classes by number, folders or lists of the splits, shape of the keypoints."""

    names: dict[int, str] = field(default_factory=dict)
    root: str = ""
    splits: dict[str, list[str]] = field(default_factory=dict)
    keypoints: tuple[int, int] | None = None
    skips_unlabelled: bool | None = None  # images without label file; None where nothing is said


def find_config(root: Path) -> Path | None:
    """The YAML file of a folder: one of the usual names, else the first that speaks of names."""
    usual = [root / name for name in CONFIG_NAMES if (root / name).is_file()]
    others = sorted(path for path in root.glob("*.y*ml") if path.suffix.lower() in (".yaml", ".yml"))
    return next((path for path in [*usual, *others] if _speaks_of_names(path)), None)


def read_config(path: Path) -> Config:
    """The part of a data.yaml that matters here."""
    yaml = optional_module("yaml")
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise InputError(f"{path}: it has more than {_LARGEST_FILE >> 20} MiB")
        data = yaml.load(path.read_text(encoding="utf-8-sig"), Loader=yaml.BaseLoader)
    except InputError:
        raise
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        reason = getattr(error, "problem", None) or "it cannot be parsed"
        raise InputError(f"{where}: it is not valid YAML: {reason}") from error
    except (OSError, ValueError, OverflowError, RecursionError) as error:  # also versions and characters out of range
        raise InputError(f"{path}: it cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise InputError(f"{path}: it is no list of settings")
    splits = {name: _texts(data.get(name)) for name in SPLITS}
    return Config(
        names=_names(data.get("names"), path),
        root=data["path"] if isinstance(data.get("path"), str) else "",
        splits={name: entries for name, entries in splits.items() if entries},
        keypoints=_keypoints(data.get("kpt_shape")),
        skips_unlabelled=_truth(data.get("skip_if_label_file_missing")),
    )


def read_class_file(path: Path) -> dict[int, str]:
    """One name a line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: the names of the classes cannot be read: {error}") from error
    return {number: line.strip() for number, line in enumerate(lines) if line.strip()}


def _speaks_of_names(path: Path) -> bool:
    try:
        with open(path, "rb") as handle:
            return any(line.startswith((b"names:", b"names :")) for line in handle.read(_LARGEST_FILE).splitlines())
    except OSError:
        return False


def _names(value: Any, path: Path) -> dict[int, str]:
    """Names by number, from a list or from a mapping of numbers."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        pairs: list[tuple[Any, Any]] = list(enumerate(value))
    elif isinstance(value, dict):
        pairs = list(value.items())
    else:
        pairs = []
    names = {}
    for number, name in pairs:
        if not isinstance(name, str) or not str(number).strip().isdecimal():
            raise InputError(f"{path}: `names` must be a list of names, or number: name")
        if len(str(number).strip()) > _MOST_DIGITS:
            raise InputError(f"{path}: a number in `names` has more than {_MOST_DIGITS} digits")
        names[int(number)] = name.strip()
    return names


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str) and text.strip()]


def _truth(value: Any) -> bool | None:
    """What YAML calls true or false; None for anything else."""
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    return words.get(value.strip().lower()) if isinstance(value, str) else None


def _keypoints(value: Any) -> tuple[int, int] | None:
    if not (isinstance(value, list) and len(value) == 2):
        return None
    if not all(isinstance(v, str) and v.isdecimal() and len(v) <= _MOST_DIGITS for v in value):
        return None
    count, size = int(value[0]), int(value[1])
    return (count, size) if 0 < count < 1000 and size in (2, 3) else None
