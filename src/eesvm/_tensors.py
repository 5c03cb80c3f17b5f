"""Safetensors files, read whole.

In: a path. Out: its arrays and its metadata, or one sentence about what is wrong with the file.

Before: `_validation`. After: `exemplar_files`, `exemplar_annotations`, `detector_files`.
"""

from __future__ import annotations

import os
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from eesvm._validation import InputError


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Arrays and metadata by their names."""
    try:
        with open(path, "rb"):  # safetensors itself does not say why it cannot open a file
            pass
        with safe_open(path, framework="numpy") as handle:
            return {name: handle.get_tensor(name) for name in handle.keys()}, handle.metadata() or {}  # noqa: SIM118
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{path}: it cannot be read ({error.strerror or error})") from None
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError):
        raise InputError(f"{path}: it is not a safetensors file, or it is damaged") from None
