"""Windows with labels, splits of images, batches that are functions of their number, and their pixels."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from eesvm import InputError, boxes
from eesvm.descriptors.cnn import with_context
from eesvm.descriptors.resampling import resample
from eesvm.finetuning.crops import CropReader, ImageStore, ahead, pieces_by_image
from eesvm.finetuning.options import FinetuneOptions
from eesvm.finetuning.windows_sampler import (
    BACKGROUND,
    IGNORED,
    WindowSampler,
    check_classes,
    check_same_classes,
    count_objects,
    fixed_windows,
    label_windows,
    split_images,
)
from eesvm.structures import ImageRecord, Instance, Windows
from helpers.finetuning_help import CLASSES, grid_of, one_thread_of_torch, quick_options, scenes


def record(*instances, name="a", side=100):
    return ImageRecord(name, lambda: np.zeros((side, side, 3), np.uint8), side, side, instances)


def instance(class_name, box, index=0, **facts):
    return Instance(class_name, np.array(box, dtype=float), "a", index, **facts)


def labelled(split="train", overlap=0.5):
    return label_windows(scenes(split).images, grid_of(split), CLASSES, overlap)


# -- labels


def test_a_window_has_the_class_of_the_object_it_overlaps_most():
    image = record(
        instance("cat", [0, 0, 40, 40]),
        instance("dog", [0, 0, 40, 60], 1),
        instance("dog", [60, 60, 100, 100], 2, is_difficult=True),
        instance("bird", [0, 60, 30, 100], 3),
    )
    windows = Windows("a", np.array([
        [0, 0, 40, 40], [0, 0, 40, 59], [0, 0, 40, 19], [60, 60, 100, 100], [0, 60, 30, 100], [50, 0, 90, 40],
    ], dtype=float), np.full(6, -1))  # fmt: skip
    found = label_windows([image], [windows], ("cat", "dog"), 0.5)
    assert found.labels.tolist() == [1, 2, BACKGROUND, IGNORED, BACKGROUND, BACKGROUND]


def test_labels_are_those_of_a_plain_loop():
    found = labelled()
    for row in np.random.default_rng(0).permutation(len(found))[:200]:
        own = found.records[found.image[row]]
        overlaps = [(boxes.iou(found.boxes[row : row + 1], [i.box])[0, 0], i.class_name) for i in own.instances]
        best = max(overlaps, default=(0.0, ""), key=lambda pair: pair[0])
        expected = 1 + CLASSES.index(best[1]) if best[0] >= 0.5 else BACKGROUND
        assert found.labels[row] == expected
    assert set(found.labels.tolist()) == {0, 1, 2}


def test_images_without_windows_are_passed_over():
    found = label_windows(scenes("train").images, grid_of("train")[1:3], CLASSES, 0.5)
    assert [r.image_id for r in found.records] == [w.image_id for w in grid_of("train")[1:3]]
    with pytest.raises(InputError, match="none of the images has windows: there is nothing to train on"):
        label_windows(scenes("train").images, [], CLASSES, 0.5)


# -- splits and classes


def test_held_out_images_are_a_share_of_every_class_and_the_same_each_time():
    images = scenes("train", 24).images
    train, held_out = split_images(images, CLASSES, 0.3, 0)
    assert {r.image_id for r in train} | {r.image_id for r in held_out} == {r.image_id for r in images}
    assert not {r.image_id for r in train} & {r.image_id for r in held_out}
    counts, kept = count_objects(images), count_objects(train)
    for name in CLASSES:
        assert kept[name] >= 0.7 * counts[name]
    assert held_out
    assert [r.image_id for r in split_images(images, CLASSES, 0.3, 0)[1]] == [r.image_id for r in held_out]
    assert [r.image_id for r in split_images(images, CLASSES, 0.3, 1)[1]] != [r.image_id for r in held_out]


def test_a_class_with_one_object_is_never_held_out():
    images = [record(instance("cat", [0, 0, 9, 9]), name=str(k)) for k in range(20)]
    images[7] = record(instance("dog", [0, 0, 9, 9]), name="7")
    for seed in range(20):
        train, held_out = split_images(images, ("cat", "dog"), 0.3, seed)
        assert count_objects(train)["dog"] == 1
        assert 0 < len(held_out) <= 6


def test_too_few_objects_and_classes_that_differ_are_named():
    counts = Counter({"cat": 5, "dog": 1})
    sentence = r"^the class 'dog' has 1 object to learn from, and fine-tuning needs 3: name the classes that have more, or allow fewer \(`min_objects`\)$"
    with pytest.raises(InputError, match=sentence):
        check_classes(counts, ("cat", "dog"), 3)
    check_classes(counts, ("cat",), 3)
    with pytest.raises(InputError, match="the class 'bird' has no object in the held-out images"):
        check_same_classes(counts, ("cat", "bird"), "the held-out images")
    with pytest.raises(InputError, match="the class 'dog' has objects in the held-out images and none to learn from"):
        check_same_classes(counts, ("cat",), "the held-out images")


# -- batches


def test_a_batch_is_a_function_of_its_number():
    first, second = (WindowSampler(labelled(), quick_options()) for _ in range(2))
    for number in (5, 0, 3):
        for a, b in zip(first.batch(number), second.batch(number), strict=True):
            np.testing.assert_array_equal(a, b)
    other = WindowSampler(labelled(), quick_options(random_state=1)).batch(0)
    assert (other.boxes != first.batch(0).boxes).any()


def test_a_batch_has_its_proportion_and_shows_every_positive_once_before_any_again():
    windows = labelled()
    sampler = WindowSampler(windows, quick_options(jitter=0.0))
    n_positives, n = len(sampler.positives), sampler.options.positives
    seen = []
    for number in range(-(-n_positives // n)):
        batch = sampler.batch(number)
        assert (batch.labels > 0).sum() == n
        assert (batch.labels == BACKGROUND).sum() == sampler.options.backgrounds
        seen += [tuple(box) for box in np.column_stack([batch.image, batch.boxes])[:n].tolist()]
    assert max(Counter(seen[:n_positives]).values()) == 1
    assert replace(sampler.options, batches_per_epoch=None) != sampler.options
    assert WindowSampler(windows, quick_options(batches_per_epoch=None)).batches_per_epoch == -(-n_positives // n)


def test_windows_move_but_keep_what_they_show():
    windows = labelled()
    sampler = WindowSampler(windows, quick_options(jitter=0.3, positives=40, backgrounds=40))
    batch = sampler.batch(0)
    np.testing.assert_array_equal(windows.relabel(batch.image, batch.boxes), batch.labels)
    still = WindowSampler(windows, quick_options(jitter=0.0, positives=40, backgrounds=40)).batch(0)
    moved = np.abs(batch.boxes - still.boxes)
    sides = np.tile(still.boxes[:, 2:] - still.boxes[:, :2], 2)
    assert (moved <= 0.3 * sides + 1e-9).all()
    assert (moved.max(axis=1) > 0).mean() > 0.5


def test_looks_can_be_switched_off():
    batch = WindowSampler(labelled(), quick_options(flip=False, colour=0.0)).batch(0)
    assert not batch.is_mirrored.any()
    assert (batch.colours == 1).all()
    batch = WindowSampler(labelled(), quick_options(colour=0.2, positives=50, backgrounds=50)).batch(0)
    assert 20 < batch.is_mirrored.sum() < 80
    assert (np.abs(batch.colours - 1) <= 0.2 + 1e-6).all()
    assert batch.colours.std() > 0.05


def test_held_out_windows_are_fixed_and_as_they_are():
    windows = labelled("test")
    batch = fixed_windows(windows, quick_options(held_out_windows=32))
    n_positives = min(12, len(windows.rows(True)))
    assert (batch.labels > 0).sum() == n_positives
    assert (batch.labels == 0).sum() == -(-n_positives * 10 // 6)
    assert not batch.is_mirrored.any()
    empty = replace(windows, labels=np.zeros_like(windows.labels))
    with pytest.raises(InputError, match="the held-out images have no window of an object"):
        fixed_windows(empty, quick_options())
    with pytest.raises(InputError, match="no window of the training images shows an object"):
        WindowSampler(empty, quick_options())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 0}, "`learning_rate` must be > 0, got 0"),
        ({"positives": 0}, "`positives` must be >= 1, got 0"),
        ({"batch_norm": "on"}, "`batch_norm` must be one of 'frozen', 'adapted', got 'on'"),
        ({"input_size": 20}, "`input_size` must be >= 64, got 20"),
        ({"epoch": 3}, "there is no option `epoch` of fine-tuning"),
        ({"windows.mode": "best"}, "`windows.mode` must be one of"),
    ],
)
def test_options_are_checked(changes, message):
    with pytest.raises(InputError, match=message):
        FinetuneOptions.make(changes=changes)


def test_presets():
    assert FinetuneOptions.make().input_size is None
    assert FinetuneOptions.make("small").input_size == 128
    with pytest.raises(InputError, match="`preset` must be one of 'default', 'small', got 'large'"):
        FinetuneOptions.make("large")


# -- pixels


def test_crops_are_those_of_crop_mode():
    batch = WindowSampler(labelled(), quick_options()).batch(0)
    records = labelled().records
    reader = CropReader(records, 64, (1.0, 2.0, 3.0), 2)
    pixels = reader.read(batch)
    reader.close()
    for k in range(len(batch.boxes)):
        image = records[batch.image[k]].read()
        windows = boxes.clip(batch.boxes[k : k + 1], image.shape[1], image.shape[0])
        expected = resample(image, with_context(windows, (64, 64), 16.0), 64, 64, fill=(1.0, 2.0, 3.0))
        np.testing.assert_array_equal(pixels[k], expected[0])


def test_a_device_makes_the_same_crops():
    torch = one_thread_of_torch()
    from eesvm.finetuning.crops_torch import DeviceCrops

    random = np.random.default_rng(0)
    shapes = [(60, 90), (120, 40), (75, 75)]
    images = [random.integers(0, 256, (h, w, 3)).astype(np.uint8) for h, w in shapes]
    records = [ImageRecord("", lambda image=image: image, *image.shape[1::-1]) for image in images]
    batch = WindowSampler(labelled(), quick_options(positives=20, backgrounds=20)).batch(0)
    batch = batch._replace(image=np.arange(40) % 3, boxes=random.uniform(-5, 60, (40, 2))[:, [0, 1, 0, 1]])
    batch.boxes[:, 2:] += random.uniform(1, 80, (40, 2))
    expected = CropReader(records, 64, (9.0, 8.0, 7.0), 1).read(batch)
    found = DeviceCrops(records, 64, (9.0, 8.0, 7.0), torch.device("cpu")).read(batch)
    np.testing.assert_allclose(found.permute(0, 2, 3, 1).numpy(), expected, atol=0.01)


def test_images_leave_memory_when_it_is_short():
    reads = []

    def read(k):
        reads.append(k)
        return np.full((10, 10, 3), k, np.uint8)

    records = [ImageRecord(str(k), lambda k=k: read(k), 10, 10) for k in range(3)]
    store = ImageStore(records, limit=700)  # two images
    for k in (0, 1, 0, 2, 0, 1):
        assert store[k][0, 0, 0] == k
    assert reads == [0, 1, 2, 1]


def test_pieces_and_work_ahead():
    batch = WindowSampler(labelled(), quick_options()).batch(1)
    pieces = pieces_by_image(batch)
    assert sorted(np.concatenate(pieces).tolist()) == list(range(len(batch.boxes)))
    assert all(len(set(batch.image[rows].tolist())) == 1 for rows in pieces)
    assert list(ahead(lambda k: k * k, 2, 6)) == [4, 9, 16, 25]
    assert list(ahead(lambda k: k, 3, 3)) == []
