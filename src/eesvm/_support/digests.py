"""Hashes of content: what JSON can hold, arrays, files.

In: the content. Out: 40 hexadecimal digits, the same on every machine.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np


def digest(value: Any, *arrays: np.ndarray) -> str:
    """For anything that JSON can hold, and arrays."""
    hasher = hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=20)
    for array in arrays:
        _add(hasher, array)
    return hasher.hexdigest()


def array_digest(array: np.ndarray) -> str:
    """For type, shape and content of an array."""
    hasher = hashlib.blake2b(digest_size=20)
    _add(hasher, array)
    return hasher.hexdigest()


def file_digest(path: Path) -> str:
    """For the content of a file."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.blake2b(digest_size=20)).hexdigest()


def _add(hasher: hashlib.blake2b, array: np.ndarray) -> None:
    hasher.update(f"{array.dtype.str} {array.shape}".encode())
    hasher.update(np.ascontiguousarray(array).data)
