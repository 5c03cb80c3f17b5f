"""The cache: right, whole, bounded, shared and resumable; and the stream of descriptors over it."""

import dataclasses
import errno
import json
import logging
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

from eesvm import InputError
from eesvm.cli import main
from eesvm.datasets import open_dataset
from eesvm.descriptors import HOG, PCA, DescriptorCache, Transformed, cache, describe_dataset
from eesvm.descriptors.cache import cache_key
from eesvm.images import read_image, write_image
from eesvm.structures import ImageRecord, Windows

ARRAY = np.arange(60, dtype=np.float32).reshape(5, 12)
KEY = cache_key("a key")


def refuse():
    raise AssertionError("computed again")


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def entry(folder):
    (path,) = files(folder)
    return path


# -- entries


@pytest.mark.parametrize(
    "array",
    [
        ARRAY,
        np.asfortranarray(ARRAY),
        ARRAY[:, ::2],
        np.empty((0, 7), np.float32),
        np.array([1, 2, 3], np.int64),
        np.arange(13, dtype=np.uint8),
        np.ones((300, 700)),
    ],
)
def test_what_was_kept_comes_back(tmp_path, array):
    first = DescriptorCache(tmp_path).get_or_compute(KEY, lambda: array)
    second = DescriptorCache(tmp_path).get_or_compute(KEY, refuse)
    for found in (first, second):
        np.testing.assert_array_equal(found, array)
        assert found.dtype == array.dtype
        assert not found.flags.writeable
    assert isinstance(second, np.memmap) or array.size == 0
    np.testing.assert_array_equal(np.load(entry(tmp_path)), array)  # plain .npy, for whoever looks in


def test_computing_leaves_the_array_of_the_caller_writeable(tmp_path):
    array = ARRAY.copy()
    DescriptorCache(tmp_path).get_or_compute(KEY, lambda: array)
    array[0, 0] = 5
    assert array.flags.writeable
    assert DescriptorCache(tmp_path).get_or_compute(KEY, lambda: array)[0, 0] == ARRAY[0, 0]


def test_objects_are_refused(tmp_path):
    with pytest.raises(InputError, match="a cache holds numbers, got an array of dtype object"):
        DescriptorCache(tmp_path).get_or_compute(KEY, lambda: np.array([{}]))
    assert not files(tmp_path)


def test_key_depends_on_everything():
    image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    boxes = np.array([[0.0, 0, 1, 1]])
    parameters = {"descriptor": "hog", "cells": 8}
    keys = [
        cache_key(image, boxes, parameters),
        cache_key(image.reshape(1, 4, 3), boxes, parameters),
        cache_key(image.astype(np.int8), boxes, parameters),
        cache_key(image.tobytes(), boxes, parameters),
        cache_key(image + 1, boxes, parameters),
        cache_key(image, boxes + 1e-9, parameters),
        cache_key(image, boxes[:0], parameters),
        cache_key(image, boxes, {**parameters, "cells": 9}),
        cache_key(image, boxes, {**parameters, "more": None}),
        cache_key(image, parameters, boxes),
    ]
    assert len(set(keys)) == len(keys)
    assert cache_key(image, boxes, {"cells": 8, "descriptor": "hog"}) == keys[0]
    assert all(len(key) == 40 for key in keys)


def test_another_format_is_another_key(monkeypatch):
    monkeypatch.setattr(cache, "FORMAT", cache.FORMAT + 1)
    assert cache_key("a key") != KEY


def test_changed_parameters_never_read_stale_data(tmp_path):
    store = DescriptorCache(tmp_path)
    image = np.random.default_rng(0).integers(0, 256, (40, 50, 3)).astype(np.uint8)
    boxes = np.array([[0, 0, 20, 20], [10, 10, 50, 40.0]])
    for _ in range(2):
        for cells in (3, 4, 5):
            hog = HOG(cells)
            found = store.fetch(image, hog.parameters(), lambda hog=hog: hog.describe(image, boxes), boxes)
            np.testing.assert_array_equal(found, hog.describe(image, boxes))
    assert store.info().n_entries == 3


@pytest.mark.parametrize("key", ["../../etc/passwd", "abc", KEY.upper(), KEY + "0"])
def test_keys_are_checked(tmp_path, key):
    with pytest.raises(InputError, match="`key` must be 40 hexadecimal digits"):
        DescriptorCache(tmp_path).get(key)


# -- damage


def damage_cut(content):
    return content[: len(content) // 2]


def damage_empty(content):
    return b""


def damage_one_bit(content):
    return content[:200] + bytes([content[200] ^ 4]) + content[201:]


def damage_zeros(content):
    return content[:192] + bytes(64) + content[256:]


def damage_head(content):
    return content[:9] + b"\xff" * 40 + content[49:]


def damage_shape(content):
    return content.replace(b"(5, 12)", b"(6, 10)").replace(b"'<f4'", b"'<f8'")


def damage_pickle(content):
    return pickle.dumps(os.system)


def damage_end(content):
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize("damage", [value for name, value in sorted(globals().items()) if name.startswith("damage_")])
def test_damaged_entries_are_noticed_and_computed_again(tmp_path, caplog, damage):
    DescriptorCache(tmp_path).put(KEY, ARRAY)
    path = entry(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    found = DescriptorCache(tmp_path).get_or_compute(KEY, lambda: ARRAY)
    np.testing.assert_array_equal(found, ARRAY)
    assert "is damaged and is computed again" in caplog.text
    np.testing.assert_array_equal(DescriptorCache(tmp_path).get_or_compute(KEY, refuse), ARRAY)


def test_entries_of_another_user_are_used_and_stay(tmp_path, monkeypatch, caplog):
    DescriptorCache(tmp_path).put(KEY, ARRAY)

    def not_yours(path, *_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.utime", not_yours)
    np.testing.assert_array_equal(DescriptorCache(tmp_path).get_or_compute(KEY, refuse), ARRAY)
    assert caplog.text == ""
    assert entry(tmp_path).exists()


@contextmanager
def no_more_files():
    """Every further attempt to open a file fails with "Too many open files"."""
    resource = pytest.importorskip("resource", reason="open files are not limited on this system")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_an_entry_that_cannot_be_read_now_is_not_removed(tmp_path, caplog):
    store = DescriptorCache(tmp_path)
    store.put(KEY, ARRAY)
    with no_more_files():
        assert DescriptorCache(tmp_path).get(KEY) is None
    assert "cannot be read and is computed again" in caplog.text
    np.testing.assert_array_equal(DescriptorCache(tmp_path).get_or_compute(KEY, refuse), ARRAY)


def test_folders_that_another_process_clears_meanwhile(tmp_path):
    is_done = threading.Event()

    def clear():
        while not is_done.is_set():
            for folder in tmp_path.iterdir():
                shutil.rmtree(folder, ignore_errors=True)

    other = threading.Thread(target=clear)
    other.start()
    try:
        store = DescriptorCache(tmp_path, size_limit=1)
        for k in range(200):
            store.put(f"{k:02x}" + KEY[2:], ARRAY)
    finally:
        is_done.set()
        other.join()
    assert store.put(KEY, ARRAY)


def test_any_flipped_byte_of_head_and_end_is_survived(tmp_path):
    DescriptorCache(tmp_path).put(KEY, ARRAY)
    path = entry(tmp_path)
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    for position in [*range(128), *range(len(whole) - 40, len(whole))]:
        path.write_bytes(whole[:position] + bytes([random.integers(0, 256)]) + whole[position + 1 :])
        found = DescriptorCache(tmp_path).get(KEY)
        assert found is None or np.array_equal(found, ARRAY)
        path.write_bytes(whole)


def test_flipped_bits_and_blocks_that_changed_places_are_noticed():
    content = np.random.default_rng(0).integers(0, 256, 3 * 8 * cache._BLOCK_WORDS).astype(np.uint8)
    blocks = content.reshape(3, -1)
    assert cache._sums(content) != cache._sums(np.ascontiguousarray(blocks[[1, 0, 2]]).reshape(-1))
    assert cache._sums(content) == cache._sums(content.copy())
    right = cache._sums(content)
    for position in np.random.default_rng(1).integers(0, len(content), 50):
        content[position] ^= 1
        assert cache._sums(content) != right
        content[position] ^= 1


def test_sums_are_checked_once_while_the_file_stays(tmp_path, monkeypatch):
    store = DescriptorCache(tmp_path)
    store.put(KEY, ARRAY)
    store.get(KEY)
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_sums", refuse)
        store.get(KEY)
    path = entry(tmp_path)
    path.write_bytes(damage_one_bit(path.read_bytes()))
    os.utime(path, (1, 1))
    assert store.get(KEY) is None


# -- size limit


def test_the_longest_unused_entries_go_first(tmp_path):
    store = DescriptorCache(tmp_path, size_limit=10_000)
    keys = [cache_key(k) for k in range(12)]
    for k, key in enumerate(keys[:8]):
        store.put(key, np.zeros(250, np.float32))  # about 1160 bytes each
        os.utime(store._path(key), (k, k))
    assert store.info().n_entries == 8
    store.get(keys[0])  # used again
    for key in keys[8:]:
        store.put(key, np.zeros(250, np.float32))
    info = store.info()
    assert info.n_bytes <= 10_000
    kept = [store.get(key) is not None for key in keys]
    assert kept[0]
    assert not any(kept[1:4])
    assert all(kept[-3:])


def test_the_limit_counts_what_other_processes_wrote(tmp_path):
    small, other = DescriptorCache(tmp_path, size_limit=5000), DescriptorCache(tmp_path)
    small.put(cache_key("first"), np.zeros(250, np.float32))
    for k in range(10):
        other.put(cache_key(k), np.zeros(250, np.float32))
        small.put(cache_key("x", k), np.zeros(250, np.float32))
    assert small.info().n_bytes <= 5000 + 3 * 1200


def test_mapped_arrays_survive_their_removal(tmp_path):
    store = DescriptorCache(tmp_path, size_limit=0)
    unlimited = DescriptorCache(tmp_path)
    unlimited.put(KEY, ARRAY)
    mapped = unlimited.get(KEY)
    store.put(cache_key(2), ARRAY)
    assert not files(tmp_path)
    np.testing.assert_array_equal(mapped, ARRAY)


def test_old_leftovers_of_killed_writers_are_swept(tmp_path):
    store = DescriptorCache(tmp_path, size_limit=100)
    store.put(KEY, ARRAY)
    folder = tmp_path / KEY[:2]
    folder.mkdir(exist_ok=True)
    old, new = (folder / f".{KEY}.npy.{digit * 12}.part" for digit in "ab")
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    store.put(KEY, ARRAY)
    assert not old.exists()
    assert new.exists()


@pytest.mark.parametrize("limit", [-1, 2.5, "1 GB"])
def test_the_limit_is_checked(tmp_path, limit):
    with pytest.raises(InputError, match="`size_limit` must be"):
        DescriptorCache(tmp_path, size_limit=limit)


# -- information and clearing


def test_info_and_clear(tmp_path):
    store = DescriptorCache(tmp_path / "cache")
    assert store.info() == cache.CacheInfo(tmp_path / "cache", 0, 0)
    assert store.clear().n_entries == 0
    for k in range(5):
        store.put(cache_key(k), ARRAY)
    info = store.info()
    assert (info.n_entries, info.n_bytes) == (5, sum(path.stat().st_size for path in files(tmp_path)))
    assert time.time() - 60 < info.first_use <= info.last_use <= time.time() + 1
    stranger = tmp_path / "cache" / KEY[:2] / "notes.txt"
    stranger.parent.mkdir(exist_ok=True)
    stranger.write_text("mine")
    (tmp_path / "cache" / "readme.npy").write_text("mine too")
    assert store.clear().n_entries == 5
    assert [path.name for path in files(tmp_path)] == sorted(["notes.txt", "readme.npy"]) or len(files(tmp_path)) == 2


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"the cache .*file is not a folder"):
        DescriptorCache(tmp_path / "file")


def test_the_default_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("EESVM_CACHE", str(tmp_path))
    assert DescriptorCache().folder == tmp_path / "entries"


# -- trouble with the disk


def test_a_full_disk_is_one_sentence_and_results_still_come(tmp_path, monkeypatch, caplog):
    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache, "atomic_write", full)
    store = DescriptorCache(tmp_path)
    with caplog.at_level(logging.WARNING, "eesvm"):
        for k in range(3):
            np.testing.assert_array_equal(store.get_or_compute(cache_key(k), lambda: ARRAY), ARRAY)
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "cannot be written (No space left on device): results are computed but not kept"
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_a_device_that_is_really_full(tmp_path, caplog):
    store = DescriptorCache(tmp_path)
    path = store._path(KEY)
    path.parent.mkdir(parents=True)
    path.symlink_to("/dev/full")
    assert store.put(KEY, np.zeros(100_000)) is False
    assert "No space left on device" in caplog.text


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path, caplog):
    tmp_path.chmod(0o500)
    try:
        found = DescriptorCache(tmp_path / "cache").get_or_compute(KEY, lambda: ARRAY)
    finally:
        tmp_path.chmod(0o700)
    np.testing.assert_array_equal(found, ARRAY)
    assert "Permission denied" in caplog.text


# -- several processes


def write_many(folder, n, seed):
    store = DescriptorCache(folder, size_limit=400_000)
    for k in np.random.default_rng(seed).integers(0, 12, n):
        expected = np.full((50, 40), k, np.float32)
        found = store.get_or_compute(cache_key("shared", int(k)), lambda expected=expected: expected)
        if not np.array_equal(found, expected):
            return False
    return True


@pytest.mark.long
def test_two_processes_share_a_cache(tmp_path):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.starmap(write_many, [(tmp_path, 150, 0), (tmp_path, 150, 1)]) == [True, True]
    assert not [path for path in files(tmp_path) if path.suffix == ".part"]


def test_a_writer_killed_half_way_leaves_nothing_to_read(tmp_path):
    script = f"""
import numpy as np, os, time
from eesvm.descriptors import DescriptorCache
from eesvm.descriptors import cache
real = cache.atomic_write
from contextlib import contextmanager
@contextmanager
def slow(path, **options):
    with real(path, **options) as handle:
        yield handle
        handle.flush()
        print("half", flush=True)
        time.sleep(60)
cache.atomic_write = slow
DescriptorCache({str(tmp_path)!r}).put({KEY!r}, np.zeros(1000))
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "half\n"
        process.send_signal(signal.SIGKILL)
    finally:
        process.wait()
        process.stdout.close()
    assert [path.suffix for path in files(tmp_path)] == [".part"]
    store = DescriptorCache(tmp_path)
    assert store.get(KEY) is None
    store.put(KEY, ARRAY)
    np.testing.assert_array_equal(store.get(KEY), ARRAY)
    store.clear()
    assert not files(tmp_path)


def test_a_cache_travels_to_other_processes(tmp_path):
    store = pickle.loads(pickle.dumps(DescriptorCache(tmp_path, size_limit=1000)))
    assert (store.folder, store.size_limit) == (tmp_path, 1000)


# -- the stream


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    random = np.random.default_rng(0)
    for k in range(6):
        write_image(folder / f"{k}.png", random.integers(0, 256, (40, 50, 3)).astype(np.uint8))
    return open_dataset(folder)


def some_windows(dataset):
    boxes = np.array([[0, 0, 20, 20], [10, 10, 50, 40.0]])
    return [Windows(record.image_id, boxes + k, np.full(2, -1)) for k, record in enumerate(dataset)]


class Counting(HOG):
    n_calls = 0

    def describe(self, image, boxes):
        self.n_calls += 1
        return super().describe(image, boxes)


@pytest.mark.parametrize("n_jobs", [None, 3, -1])
def test_stream_in_order(photos, tmp_path, n_jobs):
    seen = []
    found = list(
        describe_dataset(photos, some_windows(photos), HOG(), n_jobs=n_jobs, progress=lambda *done: seen.append(done))
    )
    assert [item.image_id for item in found] == [record.image_id for record in photos]
    assert seen == [(k, 6) for k in range(1, 7)]
    for item, record, windows in zip(found, photos, some_windows(photos), strict=True):
        np.testing.assert_array_equal(item.descriptors, HOG().describe(record.read(), windows.boxes))


def test_second_pass_comes_from_the_cache_and_decodes_nothing(photos, tmp_path, monkeypatch):
    store = DescriptorCache(tmp_path / "cache")
    first = list(describe_dataset(photos, some_windows(photos), HOG(), cache=store))
    monkeypatch.setattr("PIL.Image.open", refuse)
    counting = Counting()
    second = list(describe_dataset(photos, some_windows(photos), counting, cache=DescriptorCache(store.folder)))
    assert counting.n_calls == 0
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a.descriptors, b.descriptors)


def test_a_run_goes_on_where_it_stopped(photos, tmp_path):
    store, counting = DescriptorCache(tmp_path / "cache"), Counting()
    stream = describe_dataset(photos, some_windows(photos), counting, cache=store)
    for _ in range(4):
        next(stream)
    stream.close()
    assert counting.n_calls == 4
    list(describe_dataset(photos, some_windows(photos), counting, cache=store))
    assert counting.n_calls == 6


def test_a_renamed_image_is_known_and_a_changed_one_is_not(photos, tmp_path):
    store, counting = DescriptorCache(tmp_path / "cache"), Counting()
    windows = [dataclasses.replace(item, boxes=some_windows(photos)[0].boxes) for item in some_windows(photos)]
    list(describe_dataset(photos, windows, counting, cache=store))
    folder = tmp_path / "photos"
    (folder / "0.png").rename(folder / "a.png")
    write_image(folder / "1.png", np.zeros((40, 50, 3), np.uint8))
    again = open_dataset(folder)
    boxes = windows[0].boxes
    renewed = [Windows(record.image_id, boxes, np.full(2, -1)) for record in again]
    found = {item.image_id: item for item in describe_dataset(again, renewed, counting, cache=store)}
    assert counting.n_calls == 7
    changed = next(record for record in again if record.path.endswith("1.png"))
    assert (found[changed.image_id].descriptors == 0).all()


def test_the_way_of_reading_is_part_of_the_key(photos, tmp_path):
    """The same file may be read turned and as it is stored, or by a function of the user's: different pixels."""
    store, hog = DescriptorCache(tmp_path / "cache"), HOG()
    record = photos[0]
    ways = [
        record.read,
        partial(read_image, record.path, rotate=False),
        lambda: np.ascontiguousarray(read_image(record.path)[:, ::-1]),
        lambda: np.ascontiguousarray(read_image(record.path)[::-1]),
    ]
    boxes = np.array([[0, 0, 20, 20.0]])
    for way in ways:
        other = ImageRecord(record.image_id, way, 50, 40, path=record.path)
        (item,) = describe_dataset([other], [Windows(record.image_id, boxes, np.array([-1]))], hog, cache=store)
        np.testing.assert_array_equal(item.descriptors, hog.describe(way(), boxes))
    assert store.info().n_entries == 4


def test_two_fits_of_a_transform_do_not_mix(photos, tmp_path):
    store, hog = DescriptorCache(tmp_path / "cache"), HOG(3)
    rows = np.concatenate([item.descriptors for item in describe_dataset(photos, some_windows(photos), hog)])
    for sample in (rows[:6], rows[6:]):
        both = Transformed(hog, PCA(3).fit(sample))
        for item, record in zip(describe_dataset(photos, some_windows(photos), both, cache=store), photos, strict=True):
            np.testing.assert_array_equal(item.descriptors, both.describe(record.read(), item.windows.boxes))


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("with_cache", [False, True])
def test_bad_images_are_skipped_and_listed(photos, tmp_path, n_jobs, with_cache, caplog):
    windows = some_windows(photos)
    (tmp_path / "photos" / "1.png").write_bytes(b"")
    (tmp_path / "photos" / "2.png").unlink()
    windows[4] = Windows(windows[4].image_id, np.array([[5.0, 5, 1, 1]]), np.array([-1]))
    store = DescriptorCache(tmp_path / "cache") if with_cache else None
    problems = []
    found = list(describe_dataset(photos, windows, HOG(), cache=store, n_jobs=n_jobs, problems=problems))
    assert len(found) == 3
    assert [os.path.basename(problem.path) for problem in problems] == ["1.png", "2.png", "4.png"]
    assert "empty" in problems[0].reason
    assert "No such file" in problems[1].reason
    assert "x1 <= x2" in problems[2].reason
    assert not caplog.records
    assert len(list(describe_dataset(photos, windows, HOG(), cache=store))) == 3
    assert len(caplog.records) == 3
    with pytest.raises(InputError, match=r"1\.png: .*empty"):
        list(describe_dataset(photos, windows, HOG(), cache=store, n_jobs=n_jobs, strict=True))


def test_windows_of_an_unknown_image_are_an_error(photos):
    windows = [Windows("elsewhere", np.array([[0, 0, 1, 1.0]]), np.array([-1]))]
    with pytest.raises(InputError, match="`windows` name the image 'elsewhere', which the dataset does not have"):
        list(describe_dataset(photos, windows, HOG()))


@pytest.mark.parametrize("n_jobs", [0, -2, 1.5])
def test_jobs_are_checked(photos, n_jobs):
    with pytest.raises(InputError, match="`n_jobs` must be"):
        describe_dataset(photos, [], HOG(), n_jobs=n_jobs)


def test_few_images_are_under_way_at_a_time():
    alive = []

    def read(k):
        alive.append(k)
        return np.zeros((8, 8, 3), np.uint8)

    records = [ImageRecord(str(k), partial(read, k), 8, 8) for k in range(40)]
    windows = [Windows(str(k), np.array([[0, 0, 8, 8.0]]), np.array([-1])) for k in range(40)]
    for n_jobs in (1, 2):
        alive.clear()
        for done, _ in enumerate(describe_dataset(records, windows, HOG(2), n_jobs=n_jobs)):
            assert len(alive) <= done + 1 + 2 * n_jobs


# -- the command


def test_command_info_and_clear(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("EESVM_CACHE", str(tmp_path))
    for k in range(3):
        DescriptorCache(tmp_path / "entries").put(cache_key(k), ARRAY)
    (tmp_path / "backbones").mkdir()
    (tmp_path / "backbones" / "lite0-v1-0000.onnx").write_bytes(b"network")
    assert main(["cache", "info"]) == 0
    shown = capsys.readouterr().out
    assert "entries         3\n" in shown
    assert "lite0-v1-0000.onnx (7 bytes)" in shown
    assert main(["cache", "info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_entries"] == 3
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out.startswith("removed 3 entries, 1.2 kB\nremoved 1 converted networks")
    assert not files(tmp_path)


def test_command_with_a_folder(tmp_path, capsys):
    DescriptorCache(tmp_path / "mine").put(KEY, ARRAY)
    assert main(["cache", "info", "--folder", str(tmp_path / "mine")]) == 0
    assert "entries         1\n" in capsys.readouterr().out
    assert main(["cache", "clear", "--quiet", "--folder", str(tmp_path / "mine")]) == 0
    assert capsys.readouterr().out == ""
    assert not files(tmp_path)
    (tmp_path / "file").write_text("")
    assert main(["cache", "info", "--folder", str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err.endswith("file is not a folder\n")
