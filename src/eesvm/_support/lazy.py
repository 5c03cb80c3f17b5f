"""Packages whose names are imported when they are first asked for.

In: which module of a package has which names. Out: `__getattr__` and `__dir__` of the package. Who wants one
module of a room, such as a parser that names its options, need not wait for all others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def names_from(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of `package`: names by the module of it that has them."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{home_of[name]}"), name)
        setattr(sys.modules[package], name, found)  # the next time it is there
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return find, names
