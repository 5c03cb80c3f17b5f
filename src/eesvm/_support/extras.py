"""Packages that only some rooms need, imported when they are first needed.

In: the name of a module and the extra that brings it. Out: the module, or one sentence that says what to install.
The core stays small: a score table needs no image library.
"""

from __future__ import annotations

import importlib
from typing import Any

from eesvm._support.validation import InputError


class MissingPackageError(InputError, ImportError):
    """A package that comes with an extra is not installed."""


def optional_module(name: str, extra: str = "vision") -> Any:
    """The module `name`, which the extra `extra` installs."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0]
        raise MissingPackageError(
            f"this needs the package {package}, which is not installed: pip install 'eesvm[{extra}]'"
        ) from error
