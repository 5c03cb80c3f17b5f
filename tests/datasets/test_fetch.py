"""Fetching against a server on this machine: whole, cut off, wrong, missing, full disk."""

import errno
import re
import tarfile

import numpy as np
import pytest

from eesvm import InputError
from eesvm.datasets import _download, open_dataset
from eesvm.datasets.fetch import COLLECTIONS, FetchError, fetch
from helpers.archive_server import announce, tar_bytes
from helpers.dataset_files import pixels


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_both_parts_make_one_dataset(server, tmp_path):
    seen = []
    folder = fetch("voc2007", tmp_path / "new" / "data", progress=seen.append)
    assert folder == tmp_path / "new" / "data" / "VOCdevkit" / "VOC2007"
    dataset = open_dataset(folder, strict=True)
    assert dataset.splits == {"test": ("b",), "trainval": ("a",)}
    np.testing.assert_array_equal(dataset[0].read(), pixels(400, 300))
    assert not list((tmp_path / "new" / "data").glob("*.tar*"))
    assert not (folder.parent / "readme").exists()
    assert {state.stage for state in seen} == {"download", "check", "unpack"}
    last = [state for state in seen if state.stage == "download"][-1]
    assert (last.file_name, last.done) == ("test.tar", last.total)


def test_a_finished_dataset_is_not_fetched_again(server, tmp_path):
    fetch("voc2007", tmp_path)
    server.ranges.clear()
    fetch("voc2007", tmp_path)
    fetch("voc2007", tmp_path, parts=["test"])
    assert server.ranges == []


def test_one_part(server, tmp_path):
    folder = fetch("voc2007", tmp_path, parts="test", keep_archives=True)
    assert open_dataset(folder).splits == {"test": ("b",)}
    assert (tmp_path / "test.tar").is_file()
    with pytest.raises(InputError, match="is there already and is not all of voc2007: remove it or choose another"):
        fetch("voc2007", tmp_path)


def test_archives_that_are_there_are_used(server, tmp_path):
    for name, content in server.files.items():
        (tmp_path / name).write_bytes(content)
    fetch("voc2007", tmp_path)
    assert server.ranges == []


def test_cut_connections_go_on_where_they_stopped(server, tmp_path):
    server.cuts = [1000, 2000, 0, 5000]
    fetch("voc2007", tmp_path, parts=["trainval"])
    assert server.ranges == [None, "bytes=1000-", "bytes=3000-", "bytes=3000-", "bytes=8000-"]


def test_a_later_call_goes_on_where_the_last_one_stopped(server, tmp_path):
    server.cuts = [1000] + [0] * 4
    with pytest.raises(FetchError, match=r"trainval\.tar cannot be downloaded: .*; 0\.0 of 0\.\d MB are there, run it"):
        fetch("voc2007", tmp_path, retries=2)
    assert names(tmp_path) == ["trainval.tar.part"]
    server.cuts.clear()
    server.ranges.clear()
    fetch("voc2007", tmp_path)
    assert server.ranges[0] == "bytes=1000-"


def test_a_server_that_knows_no_ranges(server, tmp_path):
    server.ignores_range = True
    server.cuts = [1000]
    fetch("voc2007", tmp_path, parts=["trainval"])
    assert server.ranges == [None, "bytes=1000-"]


def test_a_part_of_another_file_is_thrown_away(server, tmp_path):
    (tmp_path / "trainval.tar.part").write_bytes(b"x" * 10_000_000)  # too long to be the beginning of ours
    fetch("voc2007", tmp_path, parts=["trainval"])
    other = tmp_path / "other"
    other.mkdir()
    (other / "test.tar.part").write_bytes(b"x" * 100)
    with pytest.raises(FetchError, match=r"^test\.tar has the wrong checksum and was deleted: SHA-256"):
        fetch("voc2007", other, parts=["test"])
    assert names(other) == []
    fetch("voc2007", other, parts=["test"])


def test_wrong_content(server, tmp_path):
    server.files["trainval.tar"] = bytes(len(server.files["trainval.tar"]))
    with pytest.raises(
        FetchError, match=r"^trainval\.tar has the wrong checksum and was deleted: SHA-256 \w+, not \w+$"
    ):
        fetch("voc2007", tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("length", [10, -10])
def test_wrong_length(server, tmp_path, length):
    content = server.files["trainval.tar"]
    server.files["trainval.tar"] = content + b"x" * length if length > 0 else content[:length]
    with pytest.raises(FetchError, match=r"wrong checksum|the server has a shorter file|the connection ended early"):
        fetch("voc2007", tmp_path, retries=1)
    assert not (tmp_path / "VOCdevkit").exists()


def test_missing_file_and_tired_server(server, tmp_path):
    server.codes = [503, 500]
    fetch("voc2007", tmp_path / "one", parts=["test"])
    del server.files["test.tar"]
    with pytest.raises(FetchError, match=r"test\.tar cannot be downloaded: the server answers 404 Not Found$"):
        fetch("voc2007", tmp_path / "two", parts=["test"])
    server.codes = [503] * 9
    with pytest.raises(FetchError, match=r"the server answers 503 Service Unavailable; 0.0 of"):
        fetch("voc2007", tmp_path / "two", parts=["trainval"], retries=1)


def test_no_server(tmp_path, monkeypatch):
    monkeypatch.setattr(_download, "_FIRST_PAUSE", 0.001)
    with pytest.raises(FetchError, match=r"cannot be downloaded: the server cannot be reached \(.*refused"):
        fetch("voc2007", tmp_path, base_url="http://127.0.0.1:9/", retries=1)
    for url in ("file:///etc/", "ftp://x/", ""):
        with pytest.raises(InputError, match=r"^`base_url` must start with http:// or https://, got"):
            _download.download(COLLECTIONS["voc2007"].archives[0], url, tmp_path, None, 1, 0)


def test_full_disk_while_downloading(server, tmp_path, monkeypatch):
    copy = _download._copy

    def full(response, handle, *rest):
        handle.write(response.read(500))
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "trainval.tar.part"))

    monkeypatch.setattr(_download, "_copy", full)
    with pytest.raises(FetchError, match="No space left on device; free some space and run it again, it resumes"):
        fetch("voc2007", tmp_path)
    monkeypatch.setattr(_download, "_copy", copy)
    server.ranges.clear()
    fetch("voc2007", tmp_path)
    assert server.ranges[0] == "bytes=500-"


def test_full_disk_while_unpacking(server, tmp_path, monkeypatch):
    from eesvm.datasets.fetch import shutil

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(FetchError, match="No space left on device"):
        fetch("voc2007", tmp_path)
    assert names(tmp_path) == ["test.tar", "trainval.tar"]  # complete and checked: they are used the next time


def test_too_small_a_disk_is_noticed_first(server, tmp_path, monkeypatch):
    from eesvm.datasets.fetch import shutil

    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(FetchError, match=r"has 0\.00 GB of space left, but \d+\.\d\d GB are needed$"):
        fetch("voc2007", tmp_path)
    assert server.ranges == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("VOCdevkit/VOC2007/../../../evil", b"x"),
        ("/tmp/evil", b"x"),
        ("VOCdevkit/VOC2007/link", (tarfile.SYMTYPE, "/etc/passwd")),
        ("VOCdevkit/VOC2007/link", (tarfile.LNKTYPE, "VOCdevkit/VOC2007/a")),
        ("VOCdevkit/VOC2007/pipe", (tarfile.FIFOTYPE, "")),
    ],
)
def test_archives_with_other_than_plain_files_are_refused(server, tmp_path, monkeypatch, name, content):
    server.files = {"trainval.tar": tar_bytes([("VOCdevkit/VOC2007/a", b"x"), (name, content)])}
    announce(server, monkeypatch)
    with pytest.raises(FetchError, match=r"^trainval\.tar is refused: its member '.*' is no plain file in it$"):
        fetch("voc2007", tmp_path / "in")
    assert names(tmp_path) == ["in/trainval.tar"]


@pytest.mark.parametrize("content", [b"no archive" * 100, tar_bytes([("other/file", b"x")])])
def test_archives_without_the_dataset(server, tmp_path, monkeypatch, content):
    server.files = {"trainval.tar": content}
    announce(server, monkeypatch)
    with pytest.raises(FetchError, match=r"cannot be unpacked: |hold nothing below VOCdevkit/VOC2007"):
        fetch("voc2007", tmp_path)
    assert not (tmp_path / "VOCdevkit/VOC2007").exists()


def test_arguments(tmp_path):
    with pytest.raises(InputError, match="`name` must be one of 'voc2007', 'voc2012', got 'voc1999'"):
        fetch("voc1999", tmp_path)
    with pytest.raises(InputError, match="`parts` must be one of 'trainval', 'test', got 'val'"):
        fetch("voc2007", tmp_path, parts=["val"])
    with pytest.raises(InputError, match="`parts` must name at least one part"):
        fetch("voc2007", tmp_path, parts=[])


def test_what_is_known_of_the_official_archives():
    for collection in COLLECTIONS.values():
        assert collection.base_url.startswith("http://host.robots.ox.ac.uk/pascal/VOC/")
        for archive in collection.archives:
            assert re.fullmatch(r"[0-9a-f]{64}", archive.sha256)
            assert archive.size > 4e8
