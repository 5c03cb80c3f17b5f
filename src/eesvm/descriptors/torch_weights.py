"""Weights saved by torch, read without torch and without trusting the file.

In: the path of a `.pth` file, in the zip layout of today or the older layout of one pickle after another. Out: names
and contiguous arrays. A pickle can call any function it names; here it may name only an ordered dictionary, the
function that rebuilds a tensor and the storage types, and anything else is refused before it runs. Tensors are views
into storages: offset and **strides** are honoured, because weights that come from another framework are often stored
transposed and would otherwise load silently wrong.
"""

from __future__ import annotations

import math
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import InputError

Weights = dict[str, NDArray[Any]]

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001
_STORAGE_TYPES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "BoolStorage": "|b1",
}


def read_torch_weights(path: str | os.PathLike[str]) -> Weights:
    """The state dictionary in the file at `path`: name -> array, in the order of the file."""
    try:
        with open(path, "rb") as handle:
            is_zip = handle.read(2) == b"PK"
            handle.seek(0)
            return _read_zip(handle) if is_zip else _read_legacy(handle)
    except OSError as error:
        raise InputError(f"cannot read the weights {path}: {error.strerror or error}") from error
    except _Refused as error:
        raise InputError(f"the weights {path} are refused: {error}") from error
    except Exception as error:  # a pickle machine that is fed garbage may raise anything at all
        raise InputError(f"{path} is not a complete file of torch weights: {error}") from error


class _Refused(Exception):
    """The file asks for something that weights do not need."""


class _Storage(NamedTuple):
    dtype: np.dtype[Any]
    key: str
    n_elements: int


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements


class _Unpickler(pickle.Unpickler):
    """A pickle machine that knows five names. What it hands out is made anew per file, so a file can change nothing."""

    def __init__(self, handle: Any) -> None:
        super().__init__(handle, encoding="utf-8")
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, shape, strides, *_: _Tensor(_checked(storage), offset, shape, strides)
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return lambda tensor, *_: tensor
        if module == "torch" and name in _STORAGE_TYPES:
            return np.dtype(_STORAGE_TYPES[name])
        raise _Refused(f"they name {module}.{name}, which weights have no use for")

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _, n_elements, *views = pid
        if kind != "storage" or not isinstance(dtype, np.dtype) or any(views):
            raise _Refused(f"they refer to {pid!r} in place of a storage")
        storage = _Storage(dtype, str(key), int(n_elements))
        if self.storages.setdefault(storage.key, storage) != storage:
            raise _Refused(f"storage {storage.key} is declared twice with different sizes")
        return storage


def _checked(storage: Any) -> _Storage:
    if not isinstance(storage, _Storage):
        raise _Refused("a tensor is built on something that is not a storage")
    return storage


def _read_zip(handle: BinaryIO) -> Weights:
    """One zip archive: a pickle, and every storage as an uncompressed member of its own."""
    with zipfile.ZipFile(handle) as archive:
        members = {info.filename: info for info in archive.infolist()}
        root = next(name for name in members if name.endswith("/data.pkl")).removesuffix("data.pkl")
        if root + "byteorder" in members and archive.read(root + "byteorder") != b"little":
            raise _Refused("they are stored with the most significant byte first")
        with archive.open(root + "data.pkl") as pickled:
            unpickler = _Unpickler(pickled)
            content = unpickler.load()

        def read(storage: _Storage) -> bytes:
            info = members[f"{root}data/{storage.key}"]
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > info.compress_size:
                raise _Refused(f"member {info.filename} is compressed")
            return archive.read(info)

        return _resolve(content, unpickler.storages, read)


def _read_legacy(handle: BinaryIO) -> Weights:
    """Magic number, protocol, machine, content and order of the storages as five pickles, then the raw storages."""
    if _Unpickler(handle).load() != _LEGACY_MAGIC or _Unpickler(handle).load() != _LEGACY_PROTOCOL:
        raise _Refused("they do not start as torch files do")
    if not _Unpickler(handle).load().get("little_endian", True):
        raise _Refused("they are stored with the most significant byte first")
    unpickler = _Unpickler(handle)
    content = unpickler.load()
    blobs: dict[str, bytes] = {}
    for key in _Unpickler(handle).load():
        storage = unpickler.storages[key]
        n_elements = int.from_bytes(handle.read(8), "little", signed=True)
        if n_elements != storage.n_elements:
            raise ValueError(f"storage {key} holds {n_elements} elements, {storage.n_elements} were declared")
        blobs[key] = handle.read(n_elements * storage.dtype.itemsize)
    return _resolve(content, unpickler.storages, lambda storage: blobs[storage.key])


def _resolve(content: Any, storages: Mapping[str, _Storage], read: Callable[[_Storage], bytes]) -> Weights:
    """The arrays behind the names in `content`."""
    if not isinstance(content, dict):
        raise _Refused(f"they hold a {type(content).__name__}, not names with tensors")
    arrays: Weights = {}
    for key, storage in storages.items():
        blob = read(storage)
        if len(blob) != storage.n_elements * storage.dtype.itemsize:
            raise ValueError(f"storage {key} is cut short")
        arrays[key] = np.frombuffer(blob, storage.dtype)
    return {str(name): _as_array(str(name), tensor, arrays) for name, tensor in content.items()}


def _as_array(name: str, tensor: Any, arrays: Weights) -> NDArray[Any]:
    """The view that `tensor` describes, copied into C order; its bounds are checked before anything is read."""
    if not isinstance(tensor, _Tensor):
        raise _Refused(f"entry {name!r} is a {type(tensor).__name__}, not a tensor")
    storage, offset, shape, strides = tensor
    numbers = (offset, *shape, *strides)
    if len(shape) != len(strides) or not all(type(number) is int and number >= 0 for number in numbers):
        raise _Refused(f"tensor {name!r} has shape {shape}, strides {strides} and offset {offset}")
    n_elements = math.prod(shape)
    last = offset + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    # More elements than the storage has would be overlapping views, a way to ask for any amount of memory.
    if n_elements > storage.n_elements or (n_elements and last >= storage.n_elements):
        raise _Refused(f"tensor {name!r} reaches outside its storage")
    if not n_elements:
        return np.empty(shape, storage.dtype)
    steps = [stride * storage.dtype.itemsize for stride in strides]
    view = np.lib.stride_tricks.as_strided(arrays[storage.key][offset:], shape, steps, writeable=False)
    return np.array(view, order="C")
