"""Files of models and results, believed only after every field has been checked.

In: what a file holds. Out: the same, or an `InputError` that names the file, the field and the rule; and JSON files,
written whole or not at all.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from eesvm._support.files import atomic_write
from eesvm._support.validation import InputError
from eesvm._support.version import __version__


class Document:
    """A file whose fields are checked one after the other."""

    def __init__(self, file: str | os.PathLike[str], content: Any = None) -> None:
        self.file, self.content = file, content

    def fail(self, field: str, rule: str) -> NoReturn:
        """Refuse the file because of a field."""
        raise InputError(f"{self.file}: `{field}` {rule}")

    def check_version(self, found: object, wanted: int | str) -> None:
        if type(found) is not type(wanted) or found != wanted:
            self.fail("format_version", f"must be {wanted}, which this eesvm {__version__} reads, got {found!r}")

    def check_text(self, field: str, value: object) -> None:
        if not isinstance(value, str):
            self.fail(field, f"must be a text, got {value!r}")

    def check_index(self, field: str, value: object, kind: str = "an integer") -> None:
        if type(value) is not int or value < 0:
            self.fail(field, f"must be {kind} >= 0, got {value!r}")

    def check_object(self, field: str, value: object, names: Collection[str]) -> None:
        """An object with exactly these names."""
        if not isinstance(value, dict) or set(value) != set(names):
            self.fail(field, f"must hold {', '.join(names)}")

    def parse(self, field: str, text: str) -> Any:
        """What a text of JSON holds."""
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            self.fail(field, "is not JSON")

    @contextmanager
    def usable(self, field: str) -> Iterator[None]:
        """What is refused in the block is so because of the field."""
        try:
            yield
        except InputError as error:
            self.fail(field, f"cannot be used: {error}")


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write JSON for programs and people; NaN and infinities are refused."""
    with atomic_write(path, text=True) as handle:
        json.dump(content, handle, indent=1, allow_nan=False, ensure_ascii=False)
        handle.write("\n")


def is_number(value: object) -> bool:
    """Whether a value from JSON is a finite number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer with hundreds of digits
        return False


def plain(value: Any) -> Any:
    """A numpy scalar as what JSON can hold, anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value
