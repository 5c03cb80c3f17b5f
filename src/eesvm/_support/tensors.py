"""Safetensors files, read and written whole.

In: a path, or arrays and metadata. Out: its arrays and its metadata, or one sentence about what is wrong with the file;
the bytes of a file, which depend on nothing but what is in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from eesvm._support.validation import InputError


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


def tensor_bytes(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> bytes:
    """A file of these arrays; metadata in the order of their names, which safetensors leaves to chance."""
    written = save(dict(arrays), dict(metadata or {}))
    end = 8 + int.from_bytes(written[:8], "little")
    header = json.loads(written[8:end])
    if "__metadata__" in header:
        header = {"__metadata__": dict(sorted(header.pop("__metadata__").items())), **header}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the arrays stay aligned
    return b"".join([len(text).to_bytes(8, "little"), text, memoryview(written)[end:]])
