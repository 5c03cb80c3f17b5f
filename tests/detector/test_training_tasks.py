"""Engines, and a training in pieces: the same model to the bit, whoever computes and wherever the cache is."""

import logging
import threading
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from eesvm import ExemplarSVMs, InputError
from eesvm._support.dask_tasks import open_engine
from eesvm._support.tasks import ClosedError, Engine, LocalEngine, SerialEngine, ahead, in_order
from eesvm.descriptors import DescriptorCache
from eesvm.detector import ExemplarDetector
from eesvm.detector.training_tasks import score_spans, score_task
from eesvm.exemplars import svms as exemplars
from eesvm.exemplars.rows import PartedRows
from eesvm.exemplars.scoring import score_windows
from helpers.detector_scenes import quick_options, scenes
from helpers.trainings import fitted, model_files


class Elsewhere(SerialEngine):
    """An engine whose tasks see none of our folders."""

    n_workers = 3

    def __init__(self):
        self.n_tasks = 0
        self.shared = []

    def sees(self, folder):
        return False

    def share(self, value, everywhere=True):
        self.shared.append(value)
        return value

    def submit(self, function, *arguments):
        self.n_tasks += 1
        return super().submit(function, *arguments)


@pytest.fixture
def small_blocks(monkeypatch):
    """Exemplars are trained four at a time, so that a few of them make several blocks."""
    monkeypatch.setattr(exemplars, "_MAX_BLOCK", 4)
    monkeypatch.setattr(exemplars, "_MAX_CHECKPOINT_BLOCK", 4)


def add(one, other):
    return one + other


def fail(one, other):
    raise InputError(f"{one} is not {other}")


def test_the_serial_engine_computes_when_asked():
    engine = SerialEngine()
    assert isinstance(engine, Engine)
    task = engine.submit(add, 1, 2)
    assert not task.is_done()
    assert task.result() == 3
    assert task.is_done()
    wrong = engine.submit(fail, 1, 2)
    engine.wait([task, wrong], 1.0)
    assert wrong.is_done()
    with pytest.raises(InputError, match="1 is not 2"):
        wrong.result()
    assert engine.share(task) is task


def test_results_come_in_order_and_few_are_under_way():
    engine = Elsewhere()
    results = in_order(engine, add, range(20), 100)
    assert next(results) == (0, 100)
    assert engine.n_tasks == 2 * engine.n_workers
    assert list(results) == [(k, k + 100) for k in range(1, 20)]


@pytest.mark.parametrize(("n_ahead", "taken"), [(0, [1, 2, 3, 4]), (2, [3, 4, 4, 4]), (None, [4, 4, 4, 4])])
def test_items_are_taken_ahead_as_asked(n_ahead, taken):
    seen = []
    items = ahead((seen.append(k) or k for k in range(4)), n_ahead)
    assert [(item, len(seen)) for item in items] == list(enumerate(taken))


def test_a_task_among_the_arguments_stands_for_its_result():
    engine = SerialEngine()
    first = engine.submit(add, 1, 2)
    assert engine.submit(add, first, 10).result() == 13
    assert first.is_done()
    with pytest.raises(InputError, match="1 is not 2"):
        engine.submit(add, engine.submit(fail, 1, 2), 10).result()


def test_what_stands_for_an_engine():
    with open_engine(None, 3, side_by_side=True) as engine:
        assert isinstance(engine, LocalEngine)
        assert engine.task_threads == 3
    mine = SerialEngine()
    with open_engine(mine) as engine:
        assert engine is mine


def test_tasks_in_the_background_are_done_once_each_and_in_any_thread():
    counts, lock = Counter(), threading.Lock()

    def count(k, other=0):
        with lock:
            counts[k] += 1
        time.sleep(0.001)
        return k + other

    with LocalEngine(None, n_background=3) as engine:
        firsts = [engine.submit(count, k) for k in range(40)]
        seconds = [engine.submit(count, 100 + k, first) for k, first in enumerate(firsts)]
        assert [task.result() for task in reversed(seconds)] == [100 + 2 * k for k in reversed(range(40))]
        assert [task.result() for task in firsts] == list(range(40))
        wrong = engine.submit(fail, 1, 2)
        with pytest.raises(InputError, match="1 is not 2"):
            engine.submit(add, wrong, 1).result()
    assert set(counts.values()) == {1}
    assert len(counts) == 80


def test_who_waits_for_a_task_in_the_background_does_another_one():
    threads, begun, may_end = {}, threading.Event(), threading.Event()

    def slow():
        threads["slow"] = threading.get_ident()
        begun.set()
        may_end.wait(60)

    def other():
        threads["other"] = threading.get_ident()
        may_end.set()

    with LocalEngine(None, n_background=1) as engine:
        first = engine.submit(slow)
        assert begun.wait(60)
        engine.submit(other)
        first.result()
    assert threads["other"] == threading.get_ident() != threads["slow"]


def test_only_the_thread_that_made_an_engine_hears_of_its_tasks_and_closing_ends_them():
    heard, begun = [], threading.Event()
    engine = LocalEngine(None, n_background=1)
    call = engine.local(heard.append)

    def endless():
        begun.set()
        while True:
            call("from the background")
            time.sleep(0.001)

    task = engine.submit(endless)
    assert begun.wait(60)
    call("from here")
    engine.close()
    assert heard == ["from here"]
    with pytest.raises(ClosedError):
        task.result()


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_blocks_trained_apart_are_those_of_one_training(loss, small_blocks):
    random = np.random.default_rng(3)
    positives, negatives = random.normal(1, 1, (14, 30)), random.normal(0, 1, (700, 30))
    prior = random.normal(0, 0.1, 30), 0.1
    svms = ExemplarSVMs(C=0.01, loss=loss, prior=prior, n_jobs=4)
    n_blocks = svms.n_blocks(14, 700, 30)
    assert n_blocks == 4
    parts = [svms.fit_blocks(some, n_blocks, positives, negatives) for some in ([3], [1, 2], [0])]
    apart = ExemplarSVMs(C=0.01, loss=loss, prior=prior).join([block for part in parts[::-1] for block in part])
    together = svms.fit(positives, negatives)
    for name in ("coef_", "intercept_", "objective_", "gap_", "violation_", "n_support_", "n_scans_", "converged_"):
        assert (getattr(apart, name) == getattr(together, name)).all(), name
    assert apart.added_ == together.added_


@pytest.mark.parametrize("n_exemplars", [1, 7, 4_000, 20_000])
def test_scores_in_pieces_are_those_of_one_product(n_exemplars, monkeypatch):
    monkeypatch.setattr("eesvm.detector.training_tasks.TASK_BYTES", 1 << 16)
    random = np.random.default_rng(n_exemplars)
    sizes = np.array([0, 70, 0, 0, 300, 5, 64, 1, 200, 0])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    table = random.normal(size=(starts[-1], 8)).astype(np.float32)
    weights = random.normal(size=(n_exemplars, 8)).astype(np.float32)
    biases = random.normal(size=n_exemplars).astype(np.float32)
    is_chosen = random.random(len(table)) < 0.8
    bounds = list(pairwise(starts))
    rows = PartedRows([table[a:b] for a, b in bounds], [is_chosen[a:b] for a, b in bounds])
    spans = list(score_spans(rows.starts, n_exemplars))
    assert [a for a, _ in spans] == [0, *(b for _, b in spans[:-1])]
    assert spans[-1][1] == len(sizes)
    assert n_exemplars < 4_000 or len(spans) > 1
    parts = [(starts[a : b + 1], np.packbits(is_chosen[starts[a] : starts[b]])) for a, b in spans]
    found = np.concatenate([score_task(part, table, weights, biases) for part in parts])
    assert (found == score_windows(rows, weights, biases)).all()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"training__own_image": False, "training__max_images": 3, "calibration__max_negatives": 100},
        {"training__trainer": "lda", "training__prior": None, "descriptor__n_components": 16},
        {"windows__method": "grid", "windows__max_windows": 60, "descriptor__mean_norm": None},
        {"descriptor__n_components": 24, "descriptor__kernel_map": 60, "descriptor__kernel_components": 40},
    ],
)
@pytest.mark.long
def test_a_training_in_pieces_ends_with_the_same_files(changes, tmp_path, small_blocks):
    cache = DescriptorCache(tmp_path / "cache")
    one = fitted(tmp_path / "whole", changes, cache=cache)
    calls = []
    other = fitted(
        tmp_path / "pieces", changes, cache=cache, scheduler=SerialEngine(), progress=lambda *call: calls.append(call)
    )
    elsewhere = Elsewhere()
    fitted(tmp_path / "elsewhere", changes, scheduler=elsewhere)
    expected = model_files(tmp_path / "whole")
    assert len(expected) > 8
    assert model_files(tmp_path / "pieces") == expected
    assert model_files(tmp_path / "elsewhere") == expected
    assert other.classes_ == one.classes_
    assert all(done <= total for _, done, total in calls if total)
    stages = {stage.split(",")[0]: (done, total) for stage, done, total in calls}
    assert {"windows", "descriptors", "training blocks of exemplars", "calibrating"} <= set(stages)
    assert all(done == total for done, total in stages.values())
    tables = [value for value in elsewhere.shared if isinstance(value, np.ndarray) and value.ndim == 2]
    assert sum(len(table) > 100 for table in tables) <= 1 + 2 * len(one.classes_)  # the negatives once, and scores


@pytest.mark.long
def test_a_second_run_asks_for_nothing_that_is_there(tmp_path):
    cache = DescriptorCache(tmp_path / "cache")
    engine = Elsewhere()
    fitted(tmp_path / "model", cache=cache, scheduler=engine)
    n_all, engine.n_tasks = engine.n_tasks, 0
    assert fitted(tmp_path / "model", cache=cache, scheduler=engine).changed_ == []
    assert engine.n_tasks == 0
    fitted(tmp_path / "again", cache=cache, scheduler=engine)
    n_images = len(scenes("train", 4))
    assert engine.n_tasks == n_all - 3 * n_images  # windows, sample and descriptors came from the cache
    engine.n_tasks = 0
    lower = {"calibration__min_recall": 0.9, "calibration__cross_fit": False}
    again = fitted(tmp_path / "model", lower, cache=cache, scheduler=engine)
    assert engine.n_tasks == len(again.classes_)  # a search for each class


def test_classes_that_cannot_be_learned_are_left_out_as_always(tmp_path):
    dataset = scenes("train")

    def fails():
        raise InputError("it is broken")

    def broken(record):
        return any(instance.class_name == "three" for instance in record.instances)

    dataset = replace(dataset, images=tuple(replace(r, read=fails) if broken(r) else r for r in dataset))
    cache = DescriptorCache(tmp_path / "cache")
    serial = ExemplarDetector(quick_options()).fit(dataset, cache=cache)
    split = ExemplarDetector(quick_options()).fit(dataset, cache=cache, scheduler=Elsewhere())
    assert split.classes_ == serial.classes_ == ("eight",)
    assert split.problems_ == serial.problems_
    with pytest.raises(InputError, match="the class 'three' has no object to learn from in the images"):
        ExemplarDetector(quick_options()).fit(dataset, ["three"], cache=cache, scheduler=SerialEngine())


@pytest.mark.long
def test_images_that_failed_before_do_not_end_a_run_that_goes_on(tmp_path, caplog, monkeypatch):
    from eesvm.detector import training_tasks as split_tasks

    cache = DescriptorCache(tmp_path / "cache")
    dataset = scenes("train", 4)
    fitted(tmp_path / "first", dataset=replace(dataset, images=dataset[2:]), cache=cache)
    monkeypatch.setattr(
        split_tasks, "propose_into", lambda record, options, cache: [split_tasks.Problem(record.image_id, "no memory")]
    )
    with caplog.at_level(logging.WARNING, "eesvm"):
        fitted(tmp_path / "second", dataset=dataset, cache=cache, scheduler=Elsewhere())
    assert "2 images failed on workers and are tried again here" in caplog.text


@pytest.mark.long
def test_images_that_only_workers_cannot_read(tmp_path, caplog, monkeypatch):
    from eesvm.detector import training_tasks as split_tasks

    def blind(record, options, cache):
        return [split_tasks.Problem(record.image_id, "it is not there")]

    monkeypatch.setattr(split_tasks, "propose_into", blind)
    sentence = "the workers can read none of the images, .*: it is not there: they must see the same files by the same"
    with pytest.raises(InputError, match=sentence):
        fitted(tmp_path / "none", scheduler=SerialEngine())
    real, seen = split_tasks.describe_into, []

    def half_blind(record, item, descriptor, cache):
        seen.append(record)
        return (
            [split_tasks.Problem(record.image_id, "no memory")]
            if len(seen) == 1
            else real(record, item, descriptor, cache)
        )

    monkeypatch.undo()
    monkeypatch.setattr(split_tasks, "describe_into", half_blind)
    with caplog.at_level(logging.WARNING, "eesvm"):
        assert fitted(tmp_path / "some", scheduler=SerialEngine()).problems_ == ()
    assert "1 images failed on workers and are tried again here" in caplog.text
    fitted(tmp_path / "whole")
    assert model_files(tmp_path / "some") == model_files(tmp_path / "whole")
