"""Windows: the same for every call, process and number of jobs; good beginnings; bad images skipped."""

import hashlib
import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eesvm import InputError, boxes
from eesvm.datasets.scenes import make_scenes
from eesvm.structures import ImageRecord, Windows
from eesvm.windows.grid import grid_windows
from eesvm.windows.order import representative_order
from eesvm.windows.proposals import _n_workers, propose, propose_dataset
from eesvm.windows.recall import window_recall

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
QUICK = {"mode": "single"}


@pytest.fixture(scope="module")
def scenes():
    return make_scenes(4, 4)


def random_boxes(n, seed=0):
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 60, (n, 2))
    table = np.hstack([corners, corners + rng.integers(5, 40, (n, 2))]).astype(float)
    return np.unique(table, axis=0)


def slow_order(table):
    """The same greedy choice, all of it again at every step."""
    table = table[np.lexsort(table.T[::-1])]
    overlaps = boxes.iou(table, table)
    closeness = np.where(overlaps >= 0.3, overlaps, 0) ** 3
    weights, reached, order = np.sqrt(boxes.area(table)), np.zeros(len(table)), []
    for _ in table:
        added = (weights * np.maximum(closeness - reached, 0)).sum(axis=1)
        added[order] = -1
        order.append(int(np.flatnonzero(added > added.max() - 1e-9)[0]))
        reached = np.maximum(reached, closeness[order[-1]])
    return table[order]


def worth(selected, table):
    overlaps = boxes.iou(table, selected)
    return (np.sqrt(boxes.area(table)) * (np.where(overlaps >= 0.3, overlaps, 0) ** 3).max(axis=1)).sum()


def is_within(found, width, height):
    return boxes.is_valid(found, width, height).all() and len(np.unique(found, axis=0)) == len(found)


def test_order_is_the_greedy_one():
    for seed in range(5):
        table = random_boxes(60, seed)
        expected = slow_order(table)
        found = table[representative_order(table, 1000)]
        # Where two windows add the same up to rounding, either may come first.
        assert worth(found[:10], table) == pytest.approx(worth(expected[:10], table))
        assert (found[:10] == expected[:10]).all()
        assert sorted(map(tuple, found)) == sorted(map(tuple, table))


def test_order_is_a_function_of_the_set():
    table = random_boxes(300)
    reference = table[representative_order(table, 300)]
    shuffled = np.random.default_rng(1).permutation(table)
    assert (shuffled[representative_order(shuffled, 300)] == reference).all()
    assert (table[representative_order(table, 20)] == reference[:20]).all()


def test_beginnings_stand_for_the_whole():
    table = random_boxes(300)
    order = representative_order(table, 300)
    rng = np.random.default_rng(0)
    for k in (5, 20, 80):
        others = [worth(table[rng.permutation(len(table))[:k]], table) for _ in range(20)]
        assert worth(table[order[:k]], table) > max(others)


@pytest.mark.parametrize("mode", ["single", "fast", "quality", "default"])
def test_every_call_gives_the_same_windows(scenes, mode):
    image = scenes[0].read()[:120, :160]
    first = propose(image, mode=mode)
    assert (propose(image, mode=mode) == first).all()
    assert is_within(first, 160, 120)
    assert (propose(image, mode=mode, max_windows=15) == first[:15]).all()


def test_opencv_returns_a_constant_set_in_any_order(scenes):
    cv2 = pytest.importorskip("cv2")
    image = np.ascontiguousarray(scenes[1].read()[:120, :160, ::-1])
    sets, orders = set(), set()
    for _ in range(4):
        search = cv2.ximgproc.segmentation.createSelectiveSearchSegmentation()
        search.setBaseImage(image)
        search.switchToSelectiveSearchFast()
        found = np.asarray(search.process())
        orders.add(found.tobytes())
        sets.add(np.unique(found, axis=0).tobytes())
    assert len(sets) == 1
    assert len(orders) > 1  # when this fails, OpenCV has become deterministic: good news


@pytest.mark.long
def test_another_process_gives_the_same_windows(scenes):
    script = (
        "from eesvm.datasets.scenes import make_scenes; from eesvm.windows.proposals import propose; import hashlib, sys\n"
        "print([m for m in ('cv2', 'PIL') if m in sys.modules])  # importing loads no image library\n"
        "print(hashlib.sha256(propose(make_scenes(1, 0)[0].read(), mode='single').tobytes()).hexdigest())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    found = propose(scenes[0].read(), mode="single")
    assert done.stdout.split() == ["[]", hashlib.sha256(found.tobytes()).hexdigest()]


def test_more_modes_find_more(scenes):
    image = scenes[2].read()
    n_single, n_fast = (len(propose(image, mode=mode)) for mode in ("single", "fast"))
    assert 20 < n_single < n_fast


def test_windows_find_the_objects_of_the_scenes(scenes):
    found = window_recall(scenes, propose_dataset(scenes.images[2:6]))
    assert found.total.recall[0] > 0.9
    assert 100 < found.windows_per_image < 2000


@pytest.mark.parametrize("shape", [(1, 1), (1, 60), (60, 1), (2, 2), (7, 5), (15, 400), (400, 15), (33, 20)])
@pytest.mark.parametrize("method", ["selective_search", "grid"])
@pytest.mark.parametrize("is_noise", [True, False])
def test_small_and_thin_images(shape, method, is_noise):
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3)).astype(np.uint8)
    found = propose(pixels if is_noise else np.zeros_like(pixels), method)
    assert is_within(found, shape[1], shape[0])
    sides = (found[:, 2:] - found[:, :2]).min(axis=1)
    whole = [[0, 0, shape[1], shape[0]]]
    assert (sides >= 10).all() or found.tolist() == whole


def test_large_images_are_segmented_small(scenes):
    record = scenes[0]
    image = np.repeat(np.repeat(record.read(), 4, axis=0), 4, axis=1)  # 1280 x 960
    found = propose(image, working_size=320)
    assert is_within(found, 1280, 960)
    truth = np.array([i.box for i in record.instances if not i.is_difficult]) * 4
    assert boxes.match(truth, found).iou.mean() > 0.7
    direct = propose(record.read(), min_size=4)
    assert boxes.match(direct * 4, found).iou.mean() > 0.8


def test_min_size_counts_pixels_of_the_image(scenes):
    image = scenes[0].read()
    for method in ("selective_search", "grid"):
        found = propose(image, method, mode="single", min_size=50)
        assert (found[:, 2:] - found[:, :2]).min() >= 50


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 400))
def test_grid_windows_lie_in_the_image(width, height, limit):
    found = grid_windows(width, height, limit)
    assert 1 <= len(found) <= limit
    assert found[0].tolist() == [0, 0, width, height]
    assert is_within(found, width, height + 1e-9)
    assert (grid_windows(width, height, 10 * limit)[: len(found)] == found).all()


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_full_grid_misses_no_ordinary_box(data):
    width, height = data.draw(st.integers(80, 200)), data.draw(st.integers(80, 200))
    w = data.draw(st.integers(25, min(width, 2 * height)))
    h = data.draw(st.integers(max(25, w // 2), min(height, max(25, 2 * w))))
    x, y = data.draw(st.integers(0, width - w)), data.draw(st.integers(0, height - h))
    found = grid_windows(width, height, 10**6, min_size=16)
    assert boxes.match([[x, y, x + w, y + h]], found).iou[0] > 0.55


def test_dataset_in_order_and_the_same_for_any_number_of_jobs(scenes):
    calls = []
    alone = list(propose_dataset(scenes, progress=lambda done, total: calls.append((done, total)), **QUICK))
    together = list(propose_dataset(scenes, n_jobs=2, **QUICK))
    assert [w.image_id for w in alone] == [r.image_id for r in scenes] == [w.image_id for w in together]
    assert calls == [(k, 8) for k in range(1, 9)]
    for one, other in zip(alone, together, strict=True):
        assert (one.boxes == other.boxes).all()
        assert (one.instance == -1).all()
        assert len(one) == len(one.boxes) == len(one.instance)


def test_images_that_only_a_closure_can_read_reach_the_workers(scenes):
    pixels = scenes[0].read()[:60, :80]
    records = [ImageRecord(f"copy {k}", lambda: pixels, 80, 60) for k in range(3)]
    found = list(propose_dataset(records, n_jobs=2, **QUICK))
    assert len(found) == 3
    assert (found[0].boxes == found[2].boxes).all()


def test_images_are_read_when_they_are_needed():
    reads = []

    def read(k):
        reads.append(k)
        return np.zeros((20, 20, 3), dtype=np.uint8)

    records = [ImageRecord(str(k), lambda k=k: read(k), 20, 20) for k in range(5)]
    stream = propose_dataset(records, method="grid")
    assert reads == []
    next(stream)
    next(stream)
    assert reads == [0, 1]


def test_ground_truth_comes_first_when_asked_for(scenes):
    record = scenes[0]
    proposal = propose(record.read(), mode="single")[0]
    truth = (
        replace(record.instances[0], index=0),
        replace(record.instances[0], index=1, is_crowd=True),
        replace(record.instances[0], index=2, box=np.array([5.0, 5.0, 5.0, 9.0])),
        replace(record.instances[0], index=3, box=proposal),
    )
    plain = next(propose_dataset([record], **QUICK))
    found = next(propose_dataset([replace(record, instances=truth)], include_ground_truth=True, **QUICK))
    assert found.instance[:3].tolist() == [0, 3, -1]
    assert found.boxes[0].tolist() == truth[0].box.tolist()
    assert found.boxes[1].tolist() == proposal.tolist()
    assert (found.boxes[2:] == plain.boxes[1:]).all()
    assert (found.instance[2:] == -1).all()
    empty = next(propose_dataset([replace(record, instances=())], include_ground_truth=True, **QUICK))
    assert (empty.boxes == plain.boxes).all()


class Memory:
    """A cache that counts."""

    def __init__(self):
        self.stored, self.n_computed = {}, 0

    def fetch(self, image, parameters, compute):
        key = hashlib.sha256(image.tobytes()).hexdigest() + json.dumps(parameters, sort_keys=True)
        if key not in self.stored:
            self.n_computed += 1
            self.stored[key] = compute()
        return self.stored[key]


def test_cached_windows_are_not_computed_again(scenes):
    cache, records = Memory(), scenes.images[:3]
    first = list(propose_dataset(records, cache=cache, **QUICK))
    again = list(propose_dataset(records, cache=cache, **QUICK))
    assert cache.n_computed == 3
    assert all((a.boxes == b.boxes).all() for a, b in zip(first, again, strict=True))
    for changed in ({"max_windows": 9}, {"min_size": 20}, {"working_size": 200}, {"mode": "fast"}, {"method": "grid"},
                    {"time_budget": 1e6}):  # fmt: skip
        before = cache.n_computed
        list(propose_dataset(records[:1], cache=cache, **{**QUICK, **changed}))
        assert cache.n_computed == before + 1, changed


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_windows_from_disk_are_the_same(scenes, tmp_path, n_jobs):
    from eesvm.descriptors.cache import DescriptorCache

    cache, records = DescriptorCache(tmp_path), scenes.images[:3]
    plain = list(propose_dataset(records, **QUICK))
    for _ in range(2):
        found = list(propose_dataset(records, n_jobs=n_jobs, cache=cache, **QUICK))
        assert cache.info().n_entries == 3
        assert all((a.boxes == b.boxes).all() for a, b in zip(plain, found, strict=True))
    cache.clear()
    assert found[0].boxes.sum() == plain[0].boxes.sum()  # no view of a file that is gone


def broken_dataset(scenes):
    def unreadable():
        raise OSError("the disk is gone")

    grey = replace(scenes[1], image_id="grey", read=lambda: np.zeros((9, 9), dtype=np.uint8), path="grey.png")
    gone = replace(scenes[2], image_id="gone", read=unreadable, path="")
    return [scenes[0], grey, gone, scenes[3]]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_bad_images_are_skipped_and_listed(scenes, n_jobs):
    problems, calls = [], []
    found = list(
        propose_dataset(
            broken_dataset(scenes), n_jobs=n_jobs, problems=problems, progress=lambda *c: calls.append(c), **QUICK
        )
    )
    assert [w.image_id for w in found] == ["train_0000", "train_0003"]
    assert [str(p) for p in problems] == [
        "grey.png: `image` must be uint8 of shape (height, width, 3), got uint8 (9, 9)",
        "gone: the disk is gone",
    ]
    assert {p.kind for p in problems} == {"image"}
    assert calls[-1] == (4, 4)


@pytest.mark.long
def test_a_worker_that_dies_is_one_sentence(scenes):
    pytest.importorskip("cv2", reason="only OpenCV's windows are made in processes")
    fatal = replace(scenes[0], read=lambda: os._exit(3))
    with pytest.raises(InputError, match="a process that proposes windows has died, perhaps of lack of memory"):
        list(propose_dataset([fatal, fatal], n_jobs=2, method="opencv", **QUICK))


def test_bad_images_are_logged_or_raised(scenes, caplog):
    with caplog.at_level(logging.WARNING, "eesvm"):
        assert len(list(propose_dataset(broken_dataset(scenes), **QUICK))) == 2
    assert "skipped gone: the disk is gone" in caplog.text
    with pytest.raises(InputError, match=r"^gone: the disk is gone$"):
        list(propose_dataset(broken_dataset(scenes)[2:], strict=True, **QUICK))


def test_recall_counts_what_it_says(scenes):
    record = scenes[0]
    make = record.instances[0]
    instances = (
        replace(make, class_name="a", box=np.array([0.0, 0, 10, 10])),
        replace(make, class_name="a", box=np.array([50.0, 0, 60, 10])),
        replace(make, class_name="b", box=np.array([0.0, 50, 10, 60])),
        replace(make, class_name="b", box=np.array([0.0, 80, 10, 90]), is_difficult=True),
        replace(make, class_name="c", box=np.array([0.0, 90, 10, 99]), is_crowd=True),
    )
    dataset = [replace(record, instances=instances), replace(scenes[1], image_id="not proposed")]
    table = np.array([[0.0, 0, 10, 10], [50, 0, 60, 6], [0, 80, 10, 90], [0, 50, 10, 60]])
    windows = [Windows(record.image_id, table, np.array([-1, -1, -1, 2]))]  # the last one is ground truth
    found = window_recall(dataset, iter(windows))
    assert found.total == ("total", 3, (2 / 3, 1 / 3), pytest.approx(1.6 / 3))
    assert [c[:3] for c in found.classes] == [("a", 2, (1.0, 0.5)), ("b", 1, (0.0, 0.0))]
    assert (found.n_images, found.n_windows, found.windows_per_image) == (1, 3, 3.0)
    assert window_recall(dataset, windows, include_difficult=True).total.n_instances == 4
    assert window_recall(dataset, windows, (0.6,)).total.recall == (2 / 3,)
    nothing = window_recall(dataset, [])
    assert np.isnan([nothing.total.mean_overlap, nothing.windows_per_image, *nothing.total.recall]).all()
    with pytest.raises(InputError, match="`windows` has an image that is not in the dataset: x"):
        window_recall(dataset, [Windows("x", table, np.full(4, -1))])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"method": "edges"}, "`method` must be one of 'selective_search', 'opencv', 'grid', got 'edges'"),
        ({"mode": "slow"}, "`mode` must be one of 'default', 'fast', 'quality', 'single', got 'slow'"),
        ({"max_windows": 0}, "`max_windows` must be >= 1, got 0"),
        ({"min_size": 0}, "`min_size` must be >= 1, got 0"),
        ({"working_size": 3}, "`working_size` must be >= 16, got 3"),
        ({"working_size": 2.5}, "`working_size` must be an integer, got 2.5"),
        ({"working_size": "large"}, "`working_size` must be an integer, got 'large'"),
        ({"time_budget": -1}, "`time_budget` must be >= 0, got -1"),
        ({"time_budget": float("inf")}, "`time_budget` must be finite, got inf"),
        ({"method": "grid", "time_budget": 5}, "`time_budget` must be None with the method grid, got 5"),
    ],
)
def test_wrong_arguments_are_named(arguments, sentence, scenes):
    with pytest.raises(InputError, match=sentence):
        propose(np.zeros((9, 9, 3), dtype=np.uint8), **arguments)
    with pytest.raises(InputError, match=sentence):  # before the first image is read
        propose_dataset(scenes, **arguments)


def test_a_wrong_image_or_number_of_jobs_is_named(scenes):
    with pytest.raises(
        InputError, match=r"`image` must be uint8 of shape \(height, width, 3\), got float64 \(3, 3, 3\)"
    ):
        propose(np.zeros((3, 3, 3)))
    with pytest.raises(InputError, match="`n_jobs` must be a number of processes or -1 for one per core, got 0"):
        propose_dataset(scenes, n_jobs=0)


def test_without_opencv_one_sentence_says_what_to_install(monkeypatch, scenes):
    import types

    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(InputError, match=r"pip install 'eesvm\[opencv\]'"):
        propose_dataset(scenes, method="opencv")
    assert len(propose(np.zeros((40, 40, 3), dtype=np.uint8), "grid")) > 1
    assert len(next(propose_dataset(scenes, **QUICK))) > 20
    monkeypatch.setitem(sys.modules, "cv2", types.ModuleType("cv2"))  # an OpenCV without its contrib modules
    with pytest.raises(InputError, match=r"not in the installed OpenCV: pip install 'eesvm\[opencv\]'"):
        propose_dataset(scenes, method="opencv")


@pytest.mark.skipif(not DATA.is_dir(), reason="the real photographs are not at hand (../shared/data)")
def test_real_photographs():
    from eesvm.datasets import open_dataset

    records = open_dataset(DATA / "raccoon").images[::67]
    found = window_recall(records, propose_dataset(records, working_size=300))
    assert found.n_images == len(records)
    assert found.total.recall[0] >= 0.5


def test_a_few_images_need_no_processes(monkeypatch):
    monkeypatch.setattr("eesvm.windows.proposals.n_cores", lambda: 4)
    assert [_n_workers(-1, n) for n in (0, 1, 8, 15, 16, 31, 32, 1000)] == [1, 1, 1, 1, 2, 3, 4, 4]
    assert _n_workers(3, 1) == 3  # who asks for them gets them
    assert _n_workers(None, 1000) == 1
