"""Arrays on disk, filed under what they were computed from.

In: a key made of the content of an image, boxes and parameters, and a function that computes the array. Out: the array,
read-only; memory-mapped where it was on disk already. Nothing is ever looked up by name or date: another pixel,
box, parameter or format version is another key, so stale data cannot be read.

An entry is one `.npy` file plus 40 bytes at its end: a mark, its length, and checksums of its head and its words. It is
written under a temporary name and moved into place, so two processes may write the same key and a killed one leaves
nothing half done; an entry that is cut short or damaged is noticed, dropped and computed again. Where nothing can be
written, a full disk say, that is logged once and the arrays are still returned.
Not here: locks, and pickle.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import re
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm._support.files import atomic_write
from eesvm._support.validation import InputError, check_number
from eesvm.descriptors.pretrained import default_cache_folder

FORMAT = 1  # to be raised when entries are written in another way

_ENTRY_NAME = re.compile(r"[0-9a-f]{40}\.npy")
_LEFTOVER_NAME = re.compile(r"\.[0-9a-f]{40}\.npy\.[0-9a-f]{12}\.part")
_FOLDER_NAME = re.compile(r"[0-9a-f]{2}")
_FOOTER = struct.Struct("<8sQQQII")  # mark, bytes before it, two sums of the words, length and checksum of the head
_MARK = b"eesvmarr"
_BLOCK_WORDS = 1 << 17
_LEFTOVER_SECONDS = 3600.0  # a temporary file of this age belongs to a process that is gone
_ROOM = 0.9  # of the limit is kept when older entries have to go

_logger = logging.getLogger("eesvm")


@dataclass(frozen=True)
class CacheInfo:
    """What a cache holds, or what was removed from it."""

    folder: Path
    n_entries: int
    n_bytes: int
    size_limit: int | None = None
    last_use: float | None = None  # seconds since 1970 of the latest use, None where there is no entry
    first_use: float | None = None  # and of the one that would go first


class DescriptorCache:
    """A folder of arrays.

    Parameters
    ----------
    folder : created when first written to; None is `entries` in the cache folder of the system (or of `EESVM_CACHE`).
    size_limit : bytes; beyond them, the entries that were not used for the longest time go. None is no limit.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, size_limit: int | None = None) -> None:
        self.folder = default_cache_folder() / "entries" if folder is None else Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"the cache {self.folder} is not a folder")
        if size_limit is not None:
            check_number(size_limit, "size_limit", minimum=0, integer=True)
        self.size_limit = size_limit
        self._n_bytes: int | None = None  # as far as we know: others write too
        self._checked: dict[str, tuple[int, float]] = {}  # key -> size and time of the file whose sums were right
        self._has_warned = False

    def fetch(
        self, image: ArrayLike | bytes, parameters: Any, compute: Callable[[], NDArray[Any]], boxes: ArrayLike = ()
    ) -> NDArray[Any]:
        """What `compute()` returns for this image, boxes and parameters, computed once and kept.

        Parameters
        ----------
        image : its pixels, or the bytes of its file.
        parameters : whatever else the numbers depend on, as JSON would hold it.
        compute : makes the array where the cache does not have it.
        boxes : (n, 4) windows that the array is about, if any.
        """
        return self.get_or_compute(cache_key(image, np.asarray(boxes, np.float64), parameters), compute)

    def get_or_compute(self, key: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """The entry `key` if it is there and whole; otherwise what `compute()` returns, which is kept.

        Parameters
        ----------
        key : of the entry, see `cache_key`.
        compute : makes the array where the cache does not have it.
        """
        found = self.get(key)
        if found is not None:
            return found
        array = np.ascontiguousarray(compute())
        if array.dtype.hasobject:
            raise InputError(f"a cache holds numbers, got an array of dtype {array.dtype}")
        self.put(key, array)
        frozen = array.view()  # so that it behaves like one from disk
        frozen.flags.writeable = False
        return frozen

    def get(self, key: str) -> NDArray[Any] | None:
        """The entry, read-only, or None; a damaged one is removed."""
        path = self._path(key)
        try:
            array = self._read(key, path)
        except FileNotFoundError:
            return None
        except OSError as error:  # says nothing about the entry, which may be whole for others
            _logger.warning("the cached entry %s cannot be read and is computed again: %s", path, error)
            return None
        except (ValueError, struct.error, EOFError) as error:
            _logger.warning("the cached entry %s is damaged and is computed again: %s", path, error)
            _remove(path)
            return None
        with suppress(OSError):  # an entry of another user, or on a disk that is read-only
            os.utime(path)  # its age is the time since its last use
        self._checked[key] = _status(path)
        return array

    def put(self, key: str, array: NDArray[Any]) -> bool:
        """Keep `array`; False where it cannot be written, which is logged once.

        Parameters
        ----------
        key : of the entry, see `cache_key`.
        array : of numbers.
        """
        path = self._path(key)
        values = np.ascontiguousarray(array)
        head = _head(values)
        content = values.reshape(-1).view(np.uint8)
        n_bytes = len(head) + len(content)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # An entry that a loss of power has cut short is noticed: nobody need wait for the disk.
            with atomic_write(path, is_awaited=False) as handle:
                handle.write(head)
                handle.write(content.data)
                handle.write(_FOOTER.pack(_MARK, n_bytes, *_sums(content), len(head), zlib.crc32(head)))
        except OSError as error:
            self._warn(error)
            return False
        self._make_room(n_bytes + _FOOTER.size)
        return True

    def info(self) -> CacheInfo:
        """How many entries there are, how large they are and when they were used."""
        entries = list(self._entries())
        times = [used for _, _, used in entries]
        return CacheInfo(
            self.folder,
            len(entries),
            sum(size for _, size, _ in entries),
            self.size_limit,
            max(times, default=None),
            min(times, default=None),
        )

    def clear(self) -> CacheInfo:
        """Remove all entries and leftovers of killed writers; files that are not the cache's stay. What was removed."""
        before = self.info()
        for path, _, _ in self._entries():
            _remove(path)
        for path in self._files(_LEFTOVER_NAME):
            _remove(path)
        for folder in self._folders():
            try:
                folder.rmdir()
            except OSError:
                continue  # something that is not ours lives there
        self._n_bytes = 0
        self._checked.clear()
        return before

    def _path(self, key: str) -> Path:
        name = f"{key}.npy"
        if not _ENTRY_NAME.fullmatch(name):
            raise InputError(f"`key` must be 40 hexadecimal digits, as `cache_key` makes them, got {key!r}")
        return self.folder / key[:2] / name

    def _read(self, key: str, path: Path) -> NDArray[Any]:
        with open(path, "rb") as handle:
            status = os.fstat(handle.fileno())
            if status.st_size < _FOOTER.size:
                raise ValueError("its end is missing")
            handle.seek(-_FOOTER.size, os.SEEK_END)
            mark, n_bytes, first_sum, second_sum, n_head, head_sum = _FOOTER.unpack(handle.read(_FOOTER.size))
            if mark != _MARK or n_bytes + _FOOTER.size != status.st_size:
                raise ValueError("its end is missing")
            handle.seek(0)
            shape, dtype = _read_head(handle.read(min(n_head, n_bytes)), head_sum)
            if n_head == n_bytes:  # nothing to map
                return np.frombuffer(b"", dtype).reshape(shape)
            array: NDArray[Any] = np.memmap(handle, dtype, "r", n_head, shape)
        is_known = self._checked.get(key) == (status.st_size, status.st_mtime)
        if not is_known and _sums(array.reshape(-1).view(np.uint8)) != (first_sum, second_sum):
            raise ValueError("its content has changed")
        return array

    def _make_room(self, n_new: int) -> None:
        if self.size_limit is None:
            return
        if self._n_bytes is not None and self._n_bytes + n_new <= self.size_limit:
            self._n_bytes += n_new
            return
        entries = sorted(self._entries(), key=lambda entry: entry[2])  # the truth, with what others wrote
        total = sum(size for _, size, _ in entries)
        if total > self.size_limit:
            for path, size, _ in entries:
                if total <= _ROOM * self.size_limit:
                    break
                _remove(path)
                total -= size
        for path in self._files(_LEFTOVER_NAME):
            if time.time() - _status(path)[1] > _LEFTOVER_SECONDS:
                _remove(path)
        self._n_bytes = total

    def _entries(self) -> Iterator[tuple[Path, int, float]]:
        """Path, bytes and time of the last use."""
        for path in self._files(_ENTRY_NAME):
            size, used = _status(path)
            if size:
                yield path, size, used

    def _files(self, pattern: re.Pattern[str]) -> Iterator[Path]:
        for folder in self._folders():
            try:
                with os.scandir(folder) as listing:
                    names = [entry.name for entry in listing]
            except FileNotFoundError:  # cleared by somebody else since
                continue
            yield from (folder / name for name in names if pattern.fullmatch(name))

    def _folders(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        with os.scandir(self.folder) as listing:
            return [Path(entry.path) for entry in listing if _FOLDER_NAME.fullmatch(entry.name) and entry.is_dir()]

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            _logger.warning(
                "the cache %s cannot be written (%s): results are computed but not kept", self.folder, error.strerror
            )
        self._has_warned = True


def cache_key(*parts: Any) -> str:
    """40 hexadecimal digits for arrays, bytes, texts, numbers, None, lists and dictionaries of them."""
    digest = hashlib.blake2b(f"eesvm {FORMAT}".encode(), digest_size=20)
    for part in parts:
        if isinstance(part, bytes):
            kind, content = "bytes", part
        elif isinstance(part, np.ndarray):
            array = np.ascontiguousarray(part)
            kind, content = f"array {array.dtype.str} {array.shape}", array.tobytes()
        else:
            kind, content = "json", json.dumps(part, sort_keys=True, allow_nan=True).encode()
        digest.update(f"\n{kind} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _head(array: NDArray[Any]) -> bytes:
    """The head of a `.npy` file."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(array))
    return head.getvalue()


def _read_head(head: bytes, checksum: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype; nothing is parsed that was not written here."""
    if zlib.crc32(head) != checksum:
        raise ValueError("its head is damaged")
    stream = io.BytesIO(head)
    np.lib.format.read_magic(stream)
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    return shape, dtype


def _sums(content: NDArray[np.uint8]) -> tuple[int, int]:
    """Two sums over the 64-bit words, one weighted by the number of the block: memory speed, and enough for accidents.

    A word that changed, a page of zeros and blocks that changed places are all noticed.
    """
    n_words = len(content) // 8
    words = content[: 8 * n_words].view("<u8")
    starts = np.arange(0, n_words, _BLOCK_WORDS)
    blocks = np.add.reduceat(words, starts) if n_words else np.zeros(0, np.uint64)
    tail = int.from_bytes(content[8 * n_words :].tobytes(), "little")
    weights = np.arange(1, 2 * len(blocks), 2, dtype=np.uint64)
    return (int(blocks.sum(dtype=np.uint64)) + tail) % 2**64, int((blocks * weights).sum(dtype=np.uint64))


def _status(path: Path) -> tuple[int, float]:
    """Bytes and time; zeros for a file that another process has just removed."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0.0
    return status.st_size, status.st_mtime


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:  # mapped by another process on some systems, or not ours to remove
        _logger.debug("cannot remove %s: %s", path, error)
