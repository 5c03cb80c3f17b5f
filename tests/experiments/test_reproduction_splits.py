"""How one dataset plays the paper's Val1, Val1+train and Val2, and the arithmetic of intervals."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from eesvm import InputError
from eesvm.experiments.reproduction.splits import MAX_EXEMPLARS, own_split, random_splits, scene_splits
from eesvm.experiments.tables.estimates import (
    Estimate,
    Sample,
    log_ratio,
    mean_sample,
    resampled_estimate,
    split_estimate,
)
from eesvm.structures import Dataset, ImageRecord, Instance


def record(name, *classes, difficult=False):
    box = np.array([1.0, 1.0, 9.0, 9.0])
    objects = tuple(Instance(c, box, name, k, is_difficult=difficult) for k, c in enumerate(classes))
    return ImageRecord(name, lambda: np.zeros((10, 10, 3), np.uint8), 10, 10, objects)


def dataset(*images, splits=None):
    classes = tuple(dict.fromkeys(i.class_name for image in images for i in image.instances))
    return Dataset("photos", tuple(images), classes, splits or {})


def twenty(**options):
    return dataset(*(record(f"i{k}", "cat", "dog") for k in range(20)), **options)


def ids(images):
    return [image.image_id for image in images]


# Splits


def test_halves_share_no_image_and_val1_is_the_beginning_of_training():
    found = random_splits(twenty(), 3, None, 10)
    assert len(found) == 3
    for split in found.splits:
        assert not set(ids(split.train)) & set(ids(split.test))
        assert sorted([*ids(split.train), *ids(split.test)]) == sorted(f"i{k}" for k in range(20))
        assert (len(split.train), len(split.test), split.n_small) == (10, 10, 5)
    assert len({tuple(ids(split.train)) for split in found.splits}) == 3
    assert ids(random_splits(twenty(), 1, None, 10).splits[0].test) == ids(found.splits[0].test)


def test_a_photograph_that_is_there_twice_is_used_once():
    random = np.random.default_rng(0)
    pixels = [random.integers(0, 256, (40, 40, 3), dtype=np.uint8) for _ in range(8)]
    images = [replace(record(f"i{k}", "cat"), read=partial(np.array, pixels[k % 8])) for k in range(9)]  # i8 is i0
    for split in (found := random_splits(dataset(*images), 3, None, 10)).splits:
        assert len({*ids(split.train), *ids(split.test)} & {"i0", "i8"}) == 1
        assert len(split.train) + len(split.test) == 8
    assert found.how.endswith((" Left out is a copy of other photographs: i8 (i0).", "photographs: i0 (i8)."))


def test_a_limit_keeps_the_same_images_in_all_splits():
    found = random_splits(twenty(), 2, 8, 10)
    images = [sorted([*ids(split.train), *ids(split.test)]) for split in found.splits]
    assert images[0] == images[1]
    assert len(images[0]) == 8
    assert found.how == (
        "8 of 20 images are cut into random halves for training and test, 2 times; splits of the dataset itself are "
        "not looked at."
    )


def test_roles_are_put_into_words():
    found = random_splits(twenty(), 2, None, 10)
    assert found.roles() == [
        ("Val1 (tables 1 to 3)", "the first 5 training images of a split, 5 exemplars a class in the first one"),
        (
            "Val1+train, trainval (tables 4 to 6)",
            "all 10 training images, 10 exemplars a class in the first one",
        ),
        ("Val2, test", "10 test images, of which every proposed window is judged"),
    ]


def test_scenes_of_a_split_are_drawn_for_it_and_keep_their_halves_apart():
    found = scene_splits(2, 12, ("three", "eight"))
    first, second = found.splits
    assert (len(first.train), len(first.test), first.n_small) == (8, 4, 4)
    drawn = [
        {i.metadata["digit_image"] for image in part for i in image.instances} for part in (first.train, first.test)
    ]
    assert not drawn[0] & drawn[1]
    assert not np.array_equal(first.train[0].read(), second.train[0].read())


def test_val1_never_has_more_exemplars_of_a_class_than_the_paper():
    crowded = dataset(*(record(f"i{k}", *["cell"] * 30) for k in range(40)))
    split = random_splits(crowded, 1, None, 10).splits[0]
    assert 30 * split.n_small <= MAX_EXEMPLARS < 30 * (split.n_small + 1)


def test_the_most_frequent_classes_are_taken_and_named_ones_as_named():
    images = [record(f"i{k}", *["cat"] * 3, "dog", *["cow"] * (k % 2)) for k in range(20)]
    assert random_splits(dataset(*images), 1, None, 2).classes == ("cat", "dog")
    assert random_splits(dataset(*images), 1, None, ("cow", "cat")).classes == ("cow", "cat")


def test_a_class_that_some_half_lacks_is_left_out_and_said():
    images = [record(f"i{k}", "cat", *(["dog"] if k == 0 else [])) for k in range(20)]
    found = random_splits(dataset(*images), 2, None, 10)
    assert found.classes == ("cat",)
    assert len(found.skipped) == 1
    assert found.skipped[0].startswith("the class dog is left out: split 1 has no object of it in the ")
    only_difficult = [record(f"i{k}", "cat", difficult=True) for k in range(8)]
    with pytest.raises(InputError, match="photos: no class can be measured: there are no objects"):
        random_splits(dataset(*only_difficult), 1, None, 10)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_too_few_images_are_refused(n):
    few = dataset(*(record(f"i{k}", "cat") for k in range(n)))
    with pytest.raises(
        InputError, match=f"photos: at least 4 images are needed, two each for training and test, got {n}"
    ):
        random_splits(few, 3, None, 10)


def test_an_unknown_class_is_named():
    with pytest.raises(InputError, match="photos has no class 'cow': it has cat, dog"):
        random_splits(twenty(), 1, None, ("cow",))


def test_the_own_split_of_a_dataset():
    names = [f"i{k}" for k in range(20)]
    own = twenty(splits={"trainval": tuple(names[:12]), "train": tuple(names[:6]), "test": tuple(names[12:])})
    found = own_split(own, None, 10)
    (split,) = found.splits
    assert (sorted(ids(split.train)), sorted(ids(split.test))) == (sorted(names[:12]), sorted(names[12:]))
    assert split.n_small == 6
    assert "Intervals are over resamples of the test images." in found.how
    named = own_split(own, 8, 10, "train, test").splits[0]
    assert set(ids(named.train)) <= set(names[:6])
    assert (len(named.train), len(named.test)) == (4, 4)


def test_ilsvrc_with_the_lists_of_the_paper_is_used_as_in_the_paper():
    names = [f"i{k}" for k in range(20)]
    lists = {"val1": tuple(names[:5]), "val2": tuple(names[5:9]), "train": tuple(names[9:]), "val": tuple(names[:9])}
    (split,) = own_split(twenty(splits=lists), None, 10).splits
    assert sorted(ids(split.train[: split.n_small])) == sorted(names[:5])
    assert sorted(ids(split.train)) == sorted([*names[:5], *names[9:]])
    assert sorted(ids(split.test)) == sorted(names[5:9])


def test_training_images_of_an_own_split_are_never_tested_on():
    names = [f"i{k}" for k in range(20)]
    overlapping = {"train": tuple(names[:15]), "test": tuple(names[10:])}
    (split,) = own_split(twenty(splits=overlapping), None, 10).splits
    assert sorted(ids(split.train)) == sorted(names[:10])


@pytest.mark.parametrize(
    ("splits", "names", "sentence"),
    [
        ({}, None, "photos has no split of its own for training and test: its splits are none"),
        ({"summer": ("i1",)}, "train,test", "photos has no split of its own for train,test: its splits are summer"),
        ({"summer": ("i1",)}, "train", "an own split is named TRAIN,TEST, got 'train'"),
    ],
)
def test_an_own_split_that_is_not_there(splits, names, sentence):
    with pytest.raises(InputError, match=sentence):
        own_split(twenty(splits=splits), None, 10, names)


def test_an_own_split_without_images():
    images = [replace(record(f"i{k}", "cat"), instances=()) for k in range(4)]
    lists = {"train": ("i0", "i1", "i2"), "test": ("gone",)}
    with pytest.raises(InputError, match="at least 4 images are needed"):
        own_split(dataset(*images, splits=lists), None, 10)


# Intervals


def test_an_interval_over_splits_is_students():
    """By hand: mean 2, standard deviation 1, t of two degrees 4.3027, so 4.3027 / sqrt(3)."""
    found = split_estimate([1.0, 2.0, 3.0])
    assert (found.value, found.n) == (2.0, 3)
    assert found.high - 2.0 == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert 2.0 - found.low == pytest.approx(found.high - 2.0)


def test_one_split_has_no_interval():
    found = split_estimate([0.5])
    assert found.value == 0.5
    assert not found.has_interval
    assert math.isnan(found.high)


def test_differences_are_paired():
    """Two methods that vary together differ by the same in every split, whatever the spread of each."""
    one, other = Sample((10.0, 20.0, 60.0)), Sample((9.0, 19.0, 59.0))
    assert (one - other).estimate() == Estimate(1.0, 1.0, 1.0, 3)
    assert one.estimate().high - one.estimate().low > 100


def test_means_over_classes_are_taken_within_each_split():
    found = mean_sample([Sample((1.0, 2.0), (3.0, math.nan)), Sample((3.0, 6.0), (5.0, 1.0))])
    assert found.values == (2.0, 4.0)
    assert found.resamples[0] == 4.0
    assert math.isnan(found.resamples[1])


def test_resamples_are_percentiles_moved_by_twice_their_bias():
    """0, ..., 100 have percentiles 2.5 and 97.5 and the mean 50; the value 45 makes that a bias of 5."""
    found = resampled_estimate(45.0, [float(k) for k in range(101)] + [math.nan])
    assert (found.value, found.n) == (45.0, 101)
    assert (found.low, found.high) == pytest.approx((2.5 - 10.0, 97.5 - 10.0))
    assert not resampled_estimate(1.0, [math.nan]).has_interval
    assert Sample((45.0,), tuple(map(float, range(101)))).estimate() == found


def test_ratios_of_counts_survive_zeros():
    """One is added to each count: 49 over 99 is a half, none over none is 1."""
    found = log_ratio(Sample((49.0, 0.0), (0.0, math.nan)), Sample((99.0, 0.0), (1.0, 3.0)))
    assert found.values == pytest.approx((math.log(0.5), 0.0))
    assert found.resamples[0] == pytest.approx(math.log(0.5))
    assert math.isnan(found.resamples[1])
