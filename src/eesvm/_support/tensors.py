"""Safetensors files, read and written whole.

In: a path, or arrays and metadata. Out: its arrays and its metadata, or one sentence about what is wrong with the file;
the bytes of a file, which depend on nothing but what is in it. `write_arrays` and `read_arrays` add a format, a
version, and names and dtypes that are checked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from eesvm._support.documents import Document
from eesvm._support.files import atomic_write
from eesvm._support.halves import has_nan
from eesvm._support.validation import InputError
from eesvm._support.version import __version__


def read_tensors(
    path: str | os.PathLike[str], left_out: Container[str] = ()
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Arrays and metadata by their names.

    Parameters
    ----------
    path : of the file.
    left_out : names of arrays that are not wanted, and not read: they become empty ones, of their type.
    """
    try:
        with open(path, "rb"):  # safetensors itself does not say why it cannot open a file
            pass
        with safe_open(path, framework="numpy") as handle:
            arrays = {
                name: handle.get_slice(name)[:0] if name in left_out else handle.get_tensor(name)
                for name in handle.keys()  # noqa: SIM118
            }
            return arrays, handle.metadata() or {}
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{path}: it cannot be read ({error.strerror or error})") from None
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError):
        raise InputError(f"{path}: it is not a safetensors file, or it is damaged") from None


def tensor_bytes(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> bytes:
    """A file of these arrays; metadata in the order of their names, which safetensors leaves to chance."""
    return b"".join(tensor_pieces(arrays, metadata))


def tensor_pieces(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> list[Any]:
    """The same piece by piece, without a copy of the arrays.

    safetensors says in which order arrays go into a file, and what their types are called there; of empty ones, as it
    copies what it is given twice.
    """
    written = save({name: np.empty(0, array.dtype) for name, array in arrays.items()}, dict(metadata or {}))
    header = json.loads(written[8 : 8 + int.from_bytes(written[:8], "little")])
    texts, end = header.pop("__metadata__", None), 0
    contents = []
    for name, entry in header.items():
        array = arrays[name]
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        start, end = end, end + array.nbytes
        entry |= {"shape": list(array.shape), "data_offsets": [start, end]}
        if array.size:
            contents.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    if texts is not None:
        header = {"__metadata__": dict(sorted(texts.items())), **header}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the arrays stay aligned
    return [len(text).to_bytes(8, "little"), text, *contents]


def write_arrays(
    path: str | os.PathLike[str],
    format_name: str,
    version: int,
    arrays: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write named arrays and texts as one safetensors file, whole or not at all."""
    head = {"format": format_name, "format_version": str(version), "eesvm_version": __version__, **(metadata or {})}
    with atomic_write(path) as handle:
        for piece in tensor_pieces(arrays, head):
            handle.write(piece)


def read_arrays(
    path: str | os.PathLike[str],
    format_name: str,
    version: int,
    expected: Mapping[str, np.dtype[Any] | tuple[np.dtype[Any], ...]],
    left_out: Container[str] = (),
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays and texts that `write_arrays` wrote; they must have the expected names and dtypes, and no NaN.

    Of a tuple of dtypes any will do. Arrays that are `left_out` are not read, and empty.
    """
    arrays, metadata = read_tensors(path, left_out)
    if metadata.get("format") != format_name:
        raise InputError(f'{path}: it must have "format": "{format_name}", got {metadata.get("format")!r}')
    Document(path).check_version(metadata.get("format_version"), str(version))
    if set(arrays) != set(expected):
        raise InputError(
            f"{path}: it must hold the arrays {', '.join(sorted(expected))}, got {', '.join(sorted(arrays))}"
        )
    for name, wanted in expected.items():
        dtypes = wanted if isinstance(wanted, tuple) else (wanted,)
        if arrays[name].dtype not in dtypes:
            raise InputError(f"{path}: `{name}` must be {' or '.join(map(str, dtypes))}, got {arrays[name].dtype}")
        if dtypes[0].kind == "f" and _has_nan(arrays[name]):
            raise InputError(f"{path}: `{name}` holds a value that is NaN")
    return arrays, metadata


def _has_nan(array: NDArray[Any]) -> bool:
    return has_nan(array) if array.dtype == np.float16 else bool(np.isnan(array).any())


def check_shapes(file: Path, arrays: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse arrays of other shapes than these."""
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise InputError(f"{file}: `{name}` must have shape {shape}, got {arrays[name].shape}")
