"""Files and folders that appear whole or not at all.

In: a path, and whatever the caller writes inside the `with` block. Out: the finished file or folder under that path.
Until the block has ended everything lives under a temporary name beside it, so a full disk, a missing permission or
Ctrl-C leaves what was there before. A folder carries a list of its own files, and only such a folder is ever replaced.
What the files hold is the business of the callers.
"""

from __future__ import annotations

import csv
import ctypes
import os
import shutil
import tokenize
import uuid
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from eesvm._support.validation import InputError

# What zipfile and numpy raise over a .npz file that is damaged, or whose headers are.
ARCHIVE_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    SyntaxError,
    tokenize.TokenError,
)
_ROOM = 1 << 16  # bytes that are tried
_LIST_NAME = ".eesvm-output"  # inside a folder of ours: the names of the files that we put there


@contextmanager
def atomic_write(path: str | os.PathLike[str], text: bool = False, is_awaited: bool = True) -> Iterator[IO[Any]]:
    """A handle whose content becomes the file `path` when the block ends without an error, and is deleted otherwise.

    Where that `is_awaited`, the content is on the disk by then, and outlives a loss of power.
    """
    target = Path(os.path.realpath(path))  # through a symbolic link, not over it
    if target.is_dir():
        raise InputError(f"cannot write {path}: it is a folder")
    text_options: dict[str, Any] = {"encoding": "utf-8", "newline": ""} if text else {}
    if target.exists() and not target.is_file():  # a device or a pipe cannot be replaced, only written to
        with open(target, "w" if text else "wb", **text_options) as handle:
            yield handle
        return
    temporary = _temporary_sibling(target)
    try:
        with _naming(path, temporary):
            with open(temporary, "x" if text else "xb", **text_options) as handle:
                yield handle
                if is_awaited:
                    handle.flush()
                    os.fsync(handle.fileno())
            os.replace(temporary, target)
    finally:
        with suppress(OSError):  # on a read-only disk this fails too, and would hide why
            temporary.unlink(missing_ok=True)


def write_csv(path: Path, rows: Iterable[Iterable[object]]) -> None:
    """A table as a csv file."""
    with atomic_write(path, text=True) as handle:
        csv.writer(handle, lineterminator="\n").writerows(rows)


@contextmanager
def atomic_folder(path: str | os.PathLike[str], overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder that becomes the folder `path` when the block ends without an error, and is deleted otherwise.

    An existing folder is replaced only with `overwrite`, only once the new one is complete, and only if it is empty or
    holds nothing but what an earlier call put there.
    """
    check_output_folder(path, overwrite)
    target = Path(os.path.realpath(path))
    temporary = _temporary_sibling(target)
    try:
        with _naming(path, temporary):
            temporary.mkdir(parents=True)
            yield temporary
            names = sorted(entry.relative_to(temporary).as_posix() for entry in temporary.rglob("*"))
            (temporary / _LIST_NAME).write_text("\n".join(names) + "\n", encoding="utf-8")
            check_output_folder(path, overwrite)  # the search in between may have taken an hour
            _move_into_place(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def replaced_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary folder that takes the place of the existing folder `path` when the block ends without an error.

    For a folder that the caller knows to be of ours: whatever it holds goes. Where the system can exchange two names in
    one step, there is no moment without a whole folder under `path`.
    """
    target = Path(os.path.realpath(path))
    temporary = _temporary_sibling(target)
    try:
        with _naming(path, temporary):
            temporary.mkdir()
            yield temporary
            if _exchange(temporary, target):
                return  # the old one has the temporary name now
            _move_into_place(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names in one step, by Linux's renameat2; False where that is not possible."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    here = -100  # AT_FDCWD: paths are as they are
    return rename(here, os.fsencode(first), here, os.fsencode(second), ctypes.c_uint(2)) == 0  # RENAME_EXCHANGE


def check_output_folder(path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Refuse, before any work is done, a folder that `atomic_folder` would refuse after it."""
    if not os.fspath(path):
        raise InputError("the output folder has an empty name")
    target = Path(os.path.realpath(path))
    if target.is_dir():
        if not overwrite:
            raise InputError(f"{path} already exists: choose another folder or allow overwriting it (--overwrite)")
        stranger = _foreign_entry(target)
        if stranger is not None:
            raise InputError(f"{path} is not replaced: it holds {stranger}, which eesvm did not write")
    elif target.exists():
        raise InputError(f"{path} already exists and is not a folder")
    parent = next(folder for folder in target.parents if os.path.lexists(folder))
    if not parent.is_dir():
        raise InputError(f"cannot create {path}: {parent} is not a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot create {path}: no permission to write in {parent}")


def check_room(path: str | os.PathLike[str]) -> None:
    """Refuse, before any long work, a place where not even a small file can be written: a full or a read-only disk.

    Parameters
    ----------
    path : the file or folder that is to be written later.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_dir() and not target.is_file():
        return  # a device or a pipe needs nothing beside it
    parent = next(folder for folder in target.parents if folder.is_dir())
    probe = _temporary_sibling(parent / target.name)
    try:
        with _naming(path, probe), open(probe, "xb") as handle:
            handle.write(bytes(_ROOM))
            handle.flush()
            os.fsync(handle.fileno())
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)


def check_output_file(path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Refuse, before any work is done, a file that is not to be replaced or that `atomic_write` could not write."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise InputError(f"cannot write {path}: it is a folder")
    if target.exists() and not overwrite:
        raise InputError(f"{path} already exists: choose another name or allow overwriting it (--overwrite)")
    if not target.parent.is_dir():
        raise InputError(f"cannot create {path}: its folder does not exist")
    is_replaced = target.is_file() or not target.exists()  # a device or a pipe needs nothing beside it
    if is_replaced and not os.access(target.parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot create {path}: no permission to write in {target.parent}")


def _temporary_sibling(target: Path) -> Path:
    return target.with_name(f".{target.name[:50]}.{uuid.uuid4().hex[:12]}.part")


@contextmanager
def _naming(path: str | os.PathLike[str], temporary: Path) -> Iterator[None]:
    """Errors of the operating system about the temporary name, or about no name at all, speak of `path` instead."""
    try:
        yield
    except OSError as error:
        ours = error.filename is None or Path(os.fsdecode(error.filename)).is_relative_to(temporary)
        if error.errno is None or not ours:
            raise
        raise OSError(error.errno, os.strerror(error.errno), os.fspath(path)) from error


def _foreign_entry(folder: Path) -> str | None:
    """The first thing in `folder` that is not on its list of our files, or None where there is no such thing."""
    try:
        ours = set((folder / _LIST_NAME).read_text(encoding="utf-8").splitlines()) | {_LIST_NAME}
    except (OSError, UnicodeDecodeError):
        ours = set()
    for root, folders, files in os.walk(folder):
        for name in sorted(folders + files):
            entry = Path(root, name).relative_to(folder).as_posix()
            if entry not in ours:
                return entry
    return None


def _move_into_place(temporary: Path, target: Path) -> None:
    """Rename `temporary` to `target`; a folder already there steps aside first, and comes back if that fails."""
    if not target.exists():
        os.rename(temporary, target)
        return
    old = _temporary_sibling(target)
    try:
        os.rename(target, old)
        os.rename(temporary, target)
    except BaseException:
        if old.exists() and not target.exists():
            os.rename(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)
