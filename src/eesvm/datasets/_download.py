"""One archive over HTTP, resumable and checked.

In: the name, size and SHA-256 of an archive and the address of its folder. Out: the file, complete and with that
checksum. Bytes that have arrived lie in a file that ends in .part and are never asked for again. A server that
ignores the request for the rest is read from the start. What is not the right file is deleted.
"""

from __future__ import annotations

import hashlib
import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from eesvm._support.validation import InputError
from eesvm._support.version import __version__

_BLOCK = 1 << 18  # bytes
_FIRST_PAUSE = 0.5  # seconds before a second try; doubled each time
_WORTH_ANOTHER_TRY = (408, 425, 429, 500, 502, 503, 504)


class FetchError(InputError):
    """A dataset cannot be fetched; one sentence with the file and the reason."""


@dataclass(frozen=True)
class Archive:
    """A file on a server."""

    part: str  # what it is of the dataset: trainval, test
    file_name: str
    sha256: str
    size: int  # bytes

    def files(self, folder: Path) -> tuple[Path, Path]:
        """The finished archive and the unfinished one."""
        return folder / self.file_name, folder / f"{self.file_name}.part"


@dataclass(frozen=True)
class FetchProgress:
    """How far one archive is."""

    stage: str  # "download", "check" or "unpack"
    file_name: str
    done: int  # bytes
    total: int


ProgressCallback = Callable[[FetchProgress], object]


class _Cut(Exception):
    """The connection ended early; trying again may help."""


def download(
    archive: Archive, base_url: str, folder: Path, progress: ProgressCallback | None, timeout: float, retries: int
) -> Path:
    """The archive in `folder`, downloaded as far as it is not there yet."""
    if not base_url.startswith(("http://", "https://")):
        raise InputError(f"`base_url` must start with http:// or https://, got {base_url!r}")
    finished, unfinished = archive.files(folder)
    if not finished.is_file():
        _download_all(archive, f"{base_url.rstrip('/')}/{archive.file_name}", unfinished, progress, timeout, retries)
        _check(archive, unfinished, progress)
        unfinished.replace(finished)
    else:
        _check(archive, finished, progress)
    return finished


def _download_all(
    archive: Archive, url: str, path: Path, progress: ProgressCallback | None, timeout: float, retries: int
) -> None:
    if _size(path) > archive.size:  # left behind by something else
        path.unlink()
    tries, furthest = 0, 0
    while (there := _size(path)) < archive.size:
        furthest = max(furthest, there)
        try:
            _download_rest(archive, url, path, there, progress, timeout)
            if _size(path) < archive.size:
                raise _Cut("the connection ended early")
        except _Cut as error:
            tries = 0 if _size(path) > furthest else tries + 1
            if tries > retries:
                state = f"{_size(path) / 1e6:.1f} of {archive.size / 1e6:.1f} MB are there, run it again to resume"
                raise FetchError(f"{url} cannot be downloaded: {error}; {state}") from error
            time.sleep(_FIRST_PAUSE * 2**tries if tries else 0)


def _download_rest(
    archive: Archive, url: str, path: Path, start: int, progress: ProgressCallback | None, timeout: float
) -> None:
    """Append what is missing from byte `start` on."""
    headers = {"User-Agent": f"eesvm/{__version__}", **({"Range": f"bytes={start}-"} if start else {})}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout) as response:
            continues = response.status == 206 and _range_start(response) == start
            with open(path, "ab" if continues else "wb") as handle:
                _copy(response, handle, archive, start if continues else 0, progress)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # there is no such rest: what we have is not the beginning of that file
            path.unlink(missing_ok=True)
            raise _Cut("the server has a shorter file") from error
        if error.code in _WORTH_ANOTHER_TRY:
            raise _Cut(f"the server answers {error.code} {error.reason}") from error
        raise FetchError(f"{url} cannot be downloaded: the server answers {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise _Cut(f"the server cannot be reached ({error.reason})") from error
    except (ConnectionError, TimeoutError, ssl.SSLError, http.client.HTTPException) as error:
        raise _Cut(f"the connection was cut ({error or type(error).__name__})") from error


def _copy(response: Any, handle: IO[bytes], archive: Archive, done: int, progress: ProgressCallback | None) -> None:
    while block := response.read(_BLOCK):
        handle.write(block)
        done += len(block)
        if progress is not None:
            progress(FetchProgress("download", archive.file_name, min(done, archive.size), archive.size))
        if done > archive.size:
            break  # not the file that we want: the checksum will say so


def _check(archive: Archive, path: Path, progress: ProgressCallback | None) -> None:
    """Compare the checksum; a wrong file is deleted, so that the next try starts anew."""
    digest, done = hashlib.sha256(), 0
    with open(path, "rb") as handle:
        while block := handle.read(1 << 22):
            digest.update(block)
            done += len(block)
            if progress is not None:
                progress(FetchProgress("check", archive.file_name, done, max(done, archive.size)))
    if digest.hexdigest() != archive.sha256:
        path.unlink()
        raise FetchError(
            f"{archive.file_name} has the wrong checksum and was deleted: SHA-256 {digest.hexdigest()}, "
            f"not {archive.sha256}"
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _range_start(response: Any) -> int | None:
    """12 of `Content-Range: bytes 12-99/100`."""
    text = str(response.headers.get("Content-Range", ""))
    first = text.removeprefix("bytes ").partition("-")[0]
    return int(first) if first.isdigit() else None
