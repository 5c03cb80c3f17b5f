"""Untrusted files: what can be opened, what a file really is, and .npz archives that are checked before they are read.

In: a path. Out: the arrays of an archive, or an `InputError` that says what is wrong: a pickle, an array that declares
more than the file holds, another format under this name.
"""

from __future__ import annotations

import math
import os
import sys
import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.files import ARCHIVE_DAMAGE
from eesvm._support.validation import InputError

MAGIC = {
    b"PK\x03\x04": "a zip archive",
    b"PAR1": "a parquet file",
    b"\x1f\x8b": "gzip-compressed",
    b"\x93NUMPY": "a single numpy array (.npy)",
    b"\xff\xfe": "UTF-16 text instead of UTF-8",
    b"\xfe\xff": "UTF-16 text instead of UTF-8",
}

_DEFLATE_RATIO = 1032  # the most that deflate can compress; an archive that claims more lies about its sizes


def load_named_arrays(path: str | os.PathLike[str], known: Collection[str], what: str) -> dict[str, NDArray[Any]]:
    """`load_arrays` for files that hold `what`: a complaint names the file and says so."""
    file = Path(path)
    try:
        check_readable(file)
    except InputError as error:
        raise InputError(f"cannot read {path}: {error}") from None
    try:
        return load_arrays(file, known)
    except InputError as error:
        raise InputError(f"{path} does not hold {what}: {error}") from None


def load_arrays(path: Path, known: Collection[str]) -> dict[str, NDArray[Any]]:
    """The arrays of an archive after a look at what each of them claims to be; empty ones for names not `known`."""
    if not zipfile.is_zipfile(path):
        kind = instead(path, besides=b"PK\x03\x04")
        raise InputError(f"it is not a whole .npz archive{kind or ': it may have been cut short'}")
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            if len(members) < len(archive.infolist()):  # numpy may then read another one than is looked at here
                raise InputError("the .npz archive has two arrays of the same name")
            for name in members.keys() & set(known):
                _check_npz_member(archive, members[name], name, path.stat().st_size)
        with np.load(path, allow_pickle=False) as arrays:
            return {name: _checked_text(arrays[name], name) if name in known else np.empty(0) for name in members}
    except InputError:
        raise
    except (*ARCHIVE_DAMAGE, KeyError, OSError, RuntimeError) as error:
        # RuntimeError covers encrypted members and compressions that zipfile does not know.
        raise InputError(f"the .npz archive is damaged ({error})") from None


def _check_npz_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, file_size: int) -> None:
    """Refuse pickles, and arrays that declare more data than there is, before memory is taken for them."""
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(member)
        header_size = member.tell()
    if dtype.hasobject:
        raise InputError(f"the array `{name}` holds Python objects (a pickle), which are never loaded")
    n_bytes = math.prod(shape) * max(dtype.itemsize, 1)  # elements of no bytes could claim any number of them
    # A member as large as it says, in a file large enough to hold it: then the header may be believed.
    n_stored = min(info.file_size, _DEFLATE_RATIO * min(info.compress_size, file_size) + 1024)
    if n_bytes != info.file_size - header_size or n_stored < info.file_size:
        raise InputError(
            f"the array `{name}` declares shape {shape} and {n_bytes:,} bytes, which the file does not hold"
        )


def _checked_text(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Refuse text with numbers that are no characters, of which Python cannot make strings."""
    if array.dtype.kind == "U" and array.size and array.dtype.itemsize:
        codes = np.ascontiguousarray(array).reshape(-1).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if codes.max() > sys.maxunicode:
            raise InputError(f"the array `{name}` holds text with a character that does not exist")
    return array


def check_readable(path: Path) -> None:
    """Refuse what cannot be opened as a file with something in it."""
    try:
        if path.is_dir():
            raise InputError("it is a folder, not a file")
        if not path.exists():
            raise InputError("there is no such file")
        with open(path, "rb") as handle:
            if not handle.read(1):
                raise InputError("the file is empty")
    except PermissionError:
        raise InputError("no permission to read it") from None
    except OSError as error:
        raise InputError(f"it cannot be read ({error.strerror})") from None


def listed(names: Sequence[str], noun: str = "") -> str:
    """`'a', 'b' and 3 more`; with a noun `column 'a' is` or `columns 'a', 'b' and 3 more are`."""
    shown = ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    if not noun:
        return shown or "nothing"
    return f"{noun} {shown} is" if len(names) == 1 else f"{noun}s {shown} are"


def instead(path: Path, besides: bytes = b"\0") -> str:
    """`, but ...` where the first bytes of a file say what it is, and that is not what begins with `besides`."""
    with open(path, "rb") as handle:
        head = handle.read(4096)
    for magic, kind in MAGIC.items():
        if head.startswith(magic) and magic != besides:
            return f", but {kind}"
    return "" if b"\0" in head else ", but text" if head.isascii() else ""
