"""Official datasets by name: download, check, unpack.

In: a name such as "voc2007" and a folder. Out: the dataset below that folder, ready for `open_dataset`. A download
that was cut off is resumed, also in a later call; an archive is unpacked only if its SHA-256 is the
known one; the folder of the dataset appears whole or not at all. Nothing is downloaded unless this is called.
Not here: datasets behind a login (ILSVRC), mirrors, which `base_url` names.
"""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from eesvm._support.files import atomic_folder
from eesvm._support.validation import InputError, check_choice
from eesvm.datasets._download import Archive, FetchError, FetchProgress, ProgressCallback, download
from eesvm.datasets.tree import safe_name

__all__ = ["COLLECTIONS", "Archive", "Collection", "FetchError", "FetchProgress", "fetch"]

_RECORD = ".eesvm-fetched"  # inside a finished dataset: the parts it is made of


@dataclass(frozen=True)
class Collection:
    """A dataset that is published as archives."""

    base_url: str
    folder: str  # inside the archives
    archives: tuple[Archive, ...]


# Names and addresses as on the site of the PASCAL VOC challenges; SHA-256 as in torchvision's prototype datasets for
# these addresses; sizes, and the same SHA-256, as in the list of checksums of TensorFlow Datasets.
COLLECTIONS = {
    "voc2007": Collection(
        "http://host.robots.ox.ac.uk/pascal/VOC/voc2007/",
        "VOCdevkit/VOC2007",
        (
            Archive(
                "trainval",
                "VOCtrainval_06-Nov-2007.tar",
                "7d8cd951101b0957ddfd7a530bdc8a94f06121cfc1e511bb5937e973020c7508",
                460_032_000,
            ),
            Archive(
                "test",
                "VOCtest_06-Nov-2007.tar",
                "6836888e2e01dca84577a849d339fa4f73e1e4f135d312430c4856b5609b4892",
                451_020_800,
            ),
        ),
    ),
    "voc2012": Collection(
        "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/",
        "VOCdevkit/VOC2012",
        (
            Archive(
                "trainval",
                "VOCtrainval_11-May-2012.tar",
                "e14f763270cf193d0b5f74b169f44157a4b0c6efa708f4dd0ff78ee691763bcb",
                1_999_639_040,
            ),
        ),
    ),
}


def fetch(
    name: str,
    folder: str | os.PathLike[str],
    *,
    parts: Iterable[str] | None = None,
    base_url: str | None = None,
    keep_archives: bool = False,
    progress: ProgressCallback | None = None,
    timeout: float = 30.0,
    retries: int = 5,
) -> Path:
    """Download a dataset; returns the folder to open.

    Parameters
    ----------
    name : one of `COLLECTIONS`.
    folder : where the archives and, in a folder of its own, the dataset go.
    parts : "trainval", "test"; all of them if not given.
    base_url : another place where files of the same names lie, for mirrors.
    keep_archives : leave the archives in `folder` after unpacking.
    progress : called with a `FetchProgress` as bytes arrive and files are unpacked.
    timeout : seconds without a byte after which a connection counts as cut.
    retries : how often to try again without getting any further.

    Raises
    ------
    FetchError : it cannot be downloaded or unpacked, or does not fit on the disk; a download that was cut is resumed by
        the next call.
    """
    check_choice(name, "name", tuple(COLLECTIONS))
    collection = COLLECTIONS[name]
    archives = _choose_parts(collection, parts)
    target = Path(folder) / collection.folder
    if _is_complete(target, archives):
        return target
    if target.exists():
        raise InputError(f"{target} is there already and is not all of {name}: remove it or choose another folder")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        _check_space(Path(folder), archives)
        files = [
            download(archive, base_url or collection.base_url, Path(folder), progress, timeout, retries)
            for archive in archives
        ]
        _unpack(files, archives, collection.folder, target, progress)
    except OSError as error:
        raise FetchError(_disk_text(error, folder)) from error
    if not keep_archives:
        for file in files:
            file.unlink(missing_ok=True)
    return target


def _choose_parts(collection: Collection, parts: Iterable[str] | None) -> list[Archive]:
    there = {archive.part: archive for archive in collection.archives}
    wanted = list(there) if parts is None else list(dict.fromkeys([parts] if isinstance(parts, str) else parts))
    for part in wanted:
        check_choice(part, "parts", tuple(there))
    if not wanted:
        raise InputError("`parts` must name at least one part")
    return [there[part] for part in wanted]


def _is_complete(target: Path, archives: list[Archive]) -> bool:
    try:
        there = (target / _RECORD).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        return False
    return {archive.part for archive in archives} <= set(there)


def _check_space(folder: Path, archives: list[Archive]) -> None:
    """What is still to come, and once more the whole for what is unpacked."""
    there = sum(path.stat().st_size for archive in archives for path in archive.files(folder) if path.is_file())
    needed = 2 * sum(archive.size for archive in archives) - there
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise FetchError(f"{folder} has {free / 1e9:.2f} GB of space left, but {needed / 1e9:.2f} GB are needed")


def _unpack(
    files: list[Path], archives: list[Archive], inside: str, target: Path, progress: ProgressCallback | None
) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_folder(target) as temporary:
        for file in files:
            _unpack_one(file, inside, temporary, progress)
        if not any(temporary.iterdir()):
            raise FetchError(f"the archives hold nothing below {inside}")
        (temporary / _RECORD).write_text("\n".join(archive.part for archive in archives), encoding="utf-8")


def _unpack_one(file: Path, inside: str, folder: Path, progress: ProgressCallback | None) -> None:
    """Plain files below `inside`; an archive with a name or a link that leads elsewhere is refused as a whole."""
    total = file.stat().st_size
    try:
        with tarfile.open(file, mode="r:") as archive:
            for member in archive:
                name = safe_name(member.name)
                if name is None or not (member.isreg() or member.isdir()):
                    raise FetchError(f"{file.name} is refused: its member {member.name[:100]!r} is no plain file in it")
                if member.isreg() and name.startswith(f"{inside}/"):
                    _write_member(archive, member, folder / name[len(inside) + 1 :])
                if progress is not None:
                    progress(FetchProgress("unpack", file.name, min(total, member.offset_data + member.size), total))
    except (tarfile.TarError, EOFError) as error:
        raise FetchError(f"{file.name} cannot be unpacked: {error}") from error


def _write_member(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = archive.extractfile(member)
    if source is None:
        raise FetchError(f"the member {member.name[:100]!r} cannot be read")
    path.parent.mkdir(parents=True, exist_ok=True)
    with source, open(path, "xb") as handle:
        shutil.copyfileobj(source, handle, 1 << 20)


def _disk_text(error: OSError, folder: str | os.PathLike[str]) -> str:
    where = os.fsdecode(error.filename) if error.filename else os.fspath(folder)
    more = "; free some space and run it again, it resumes where it stopped" if error.errno == errno.ENOSPC else ""
    return f"{where}: {error.strerror or error}{more}"
