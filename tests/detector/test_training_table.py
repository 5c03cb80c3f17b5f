"""The table of training windows: what it holds, labels, parts of it."""

import errno
import os
from dataclasses import replace

import numpy as np
import pytest

from eesvm import InputError, boxes
from eesvm.descriptors import DescriptorCache
from eesvm.detector.training_descriptor import training_windows
from eesvm.detector.training_table import NEGATIVE, POSITIVE, _empty_table
from eesvm.structures import Problem
from helpers.detector_scenes import CLASSES, quick_options, scenes


@pytest.fixture(scope="module")
def table():
    return training_windows(scenes("train"), quick_options())


def test_windows_of_all_images_in_one_table(table):
    dataset = scenes("train")
    assert [r.image_id for r in table.records] == [r.image_id for r in dataset]
    assert len(table) == table.starts[-1] == len(table.descriptors) == len(table.image)
    assert table.descriptors.dtype == np.float32
    assert np.linalg.norm(table.descriptors, axis=1).mean() == pytest.approx(20, rel=0.05)
    for name in CLASSES:
        rows, instances = table.objects(name)
        expected = [i for i in dataset.instances(name) if not i.is_difficult]
        assert list(instances) == expected
        assert (table.boxes[rows] == np.array([i.box for i in expected])).all()
        assert [table.image_ids[k] for k in table.image[rows]] == [i.image_id for i in expected]


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system cannot reserve a disk's space")
def test_a_disk_too_small_for_the_descriptors_is_said_at_once(monkeypatch):
    reserved = []

    def full(descriptor, start, n_bytes):
        reserved.append(n_bytes)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OSError, match="No space left on device"):
        _empty_table(3, 5, memory=0)
    assert reserved == [60]


def test_labels_are_by_overlap(table):
    labels = table.labels("three", 0.5, 0.2)
    for k, record in enumerate(table.records):
        part = slice(table.starts[k], table.starts[k + 1])
        every = [i.box for i in record.instances if i.class_name == "three"]
        easy = [i.box for i in record.instances if i.class_name == "three" and not i.is_difficult]
        most = boxes.iou(table.boxes[part], every).max(axis=1, initial=0.0)
        best = boxes.iou(table.boxes[part], easy).max(axis=1, initial=0.0)
        assert ((labels[part] == POSITIVE) == (best >= 0.5)).all()
        assert ((labels[part] == NEGATIVE) == (most <= 0.2)).all()


def test_difficult_objects_are_neither(table):
    dataset = scenes("train")
    records = [
        replace(r, instances=tuple(replace(i, is_difficult=i.class_name == "three") for i in r.instances))
        for r in dataset
    ]
    windows = replace(table, records=tuple(records))
    assert (windows.labels("three") != POSITIVE).all()
    assert (windows.labels("three") == NEGATIVE).sum() == (table.labels("three") == NEGATIVE).sum()
    assert len(windows.objects("three")[0]) == 0


def test_parts_of_the_table(table):
    part = table.of_images([3, 1])
    assert part.image_ids.tolist() == [table.records[3].image_id, table.records[1].image_id]
    assert (part.descriptors[: part.starts[1]] == table.descriptors[table.starts[3] : table.starts[4]]).all()
    wanted = table.labels("eight") == NEGATIVE
    rows = table.rows(wanted)
    assert (np.concatenate([block for _, block in rows.blocks(100)]) == table.descriptors[wanted]).all()


def test_a_cache_and_any_number_of_jobs_give_the_same_table(table, tmp_path):
    cache = DescriptorCache(tmp_path)
    for n_jobs in (2, 1):  # two processes fill the cache, one reads it
        again = training_windows(scenes("train"), quick_options(n_jobs=n_jobs), cache=cache)
        assert (again.descriptors == table.descriptors).all()
        assert (again.boxes == table.boxes).all()


@pytest.mark.long
def test_pca_is_fitted_to_proposals():
    few = scenes("train")[:3]
    short = training_windows(few, quick_options(descriptor__n_components=24))
    assert short.descriptors.shape[1] == short.descriptor.dimension == 24
    moved = [replace(r, instances=r.instances[:1]) for r in few]  # annotations do not change the descriptor
    other = training_windows(moved, quick_options(descriptor__n_components=24))
    assert other.descriptor.parameters() == short.descriptor.parameters()


def test_bad_images_are_listed():
    def fails():
        raise InputError("it is broken")

    records = list(scenes("train")[:3])
    records[1] = replace(records[1], read=fails)
    problems = []
    table = training_windows(records, quick_options(), problems=problems)
    assert len(table.records) == 2
    assert problems == [Problem("train_0001", "it is broken", kind="image")]
    with pytest.raises(InputError, match="none of the images can be read: there is nothing to train on"):
        training_windows([replace(r, read=fails) for r in records], quick_options(), problems=problems)


@pytest.mark.long
def test_mirror_images_are_described_behind_the_windows(table):
    both = training_windows(scenes("train"), quick_options(training__mirror=True))
    n = len(table)
    assert len(both) == n == both.starts[-1] == len(both.image)
    assert (both.descriptors[:n] == table.descriptors).all()
    rows, instances = both.objects("three")
    for row, mirror_image, instance in zip(rows, both.mirror_images(rows), instances, strict=True):
        record = both.records[both.image[row]]
        pixels = np.ascontiguousarray(record.read()[:, ::-1])
        expected = both.descriptor.describe(pixels, boxes.flip([instance.box], record.width))
        np.testing.assert_allclose(both.descriptors[mirror_image], expected[0], rtol=1e-4, atol=1e-4)
    chosen = [7, 2, 5]
    some = both.of_images(chosen)
    rows, instances = some.objects("three")
    own, everything = both.objects("three")
    names = [(each.image_id, each.index) for each in everything]
    places = [names.index((each.image_id, each.index)) for each in instances]
    assert (some.descriptors[some.mirror_images(rows)] == both.descriptors[both.mirror_images(own[places])]).all()
    with pytest.raises(InputError, match=r"^the windows were described without mirror images: describe them with "):
        table.mirror_images(rows)
