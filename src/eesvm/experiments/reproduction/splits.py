"""Which images train and which test, several times over: one dataset in the roles of the paper's Val1, train and Val2.

In: a dataset, or nothing for the embedded scenes. Out: `Split`s, of which every table is made once each, and the
`Mapping` that says in words what plays which role.
Val1, the small set of tables 1 to 3, is the beginning of a split's training images; Val1+train, of tables 4 to 6, is
all of them; Val2 is the test images. Files are cut into random halves. Scenes are drawn anew for each split: their
halves share neither a digit image nor a piece of photograph, which halves of one drawing would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from eesvm._support.amounts import enumeration
from eesvm._support.validation import InputError, check_number
from eesvm.datasets import select
from eesvm.datasets.roles import without_copies
from eesvm.datasets.scenes import make_scenes
from eesvm.structures import Dataset, ImageRecord

SCENE_CLASSES = ("three", "four", "eight")
SCENE_TRAIN_SHARE = 2 / 3
MAX_EXEMPLARS = 140  # of a class in Val1, as in the paper
_LEAST_IMAGES = 4  # two for training, so that Val1 is less than all of them, and two for testing
_OWN_NAMES: tuple[
    tuple[tuple[str, ...], str], ...
] = (  # of training and test splits, the first pair that a dataset has
    (("val1", "train"), "val2"),
    *(((train,), test) for test in ("test", "val") for train in ("trainval", "train")),
    *((("train2017",), "val2017"), (("train2014",), "val2014"), (("training",), "validation"), (("train",), "valid")),
)


@dataclass(frozen=True)
class Split:
    """One way to share out the images."""

    number: int
    train: Dataset
    test: Dataset
    n_small: int  # the first so many training images are Val1


@dataclass(frozen=True)
class Splits:
    """All ways to share them out, and the words for it."""

    name: str  # of the dataset
    splits: tuple[Split, ...]
    classes: tuple[str, ...]  # measured: every split has objects of them in Val1 and in the test images
    skipped: tuple[str, ...]  # sentences: which classes are not, and why
    how: str  # a sentence on how images are shared out
    is_scenes: bool = False  # the embedded scenes

    def __len__(self) -> int:
        return len(self.splits)

    def roles(self) -> list[tuple[str, str]]:
        """What plays the role of each of the paper's sets."""
        first = self.splits[0]
        small, full = (_objects(images, self.classes) for images in (first.train[: first.n_small], first.train))
        return [
            ("Val1 (tables 1 to 3)", f"the first {first.n_small} training images of a split, {_range(small)}"),
            ("Val1+train, trainval (tables 4 to 6)", f"all {len(first.train)} training images, {_range(full)}"),
            ("Val2, test", f"{len(first.test)} test images, of which every proposed window is judged"),
        ]


def scene_splits(n_splits: int, n_images: int, classes: Sequence[str] = SCENE_CLASSES) -> Splits:
    """Scenes of their own for every split."""
    _check(n_splits, n_images, "the embedded scenes")
    n_train = min(n_images - 1, round(SCENE_TRAIN_SHARE * n_images))
    splits = []
    for number in range(n_splits):
        drawn = make_scenes(n_train, n_images - n_train, classes, random_state=number)
        train, test = (select(drawn, split=name) for name in ("train", "test"))
        splits.append(Split(number, train, test, n_train // 2))
    how = (
        f"{n_splits} {'splits are' if n_splits > 1 else 'split is'} drawn anew as {n_train} training and "
        f"{n_images - n_train} test scenes, which share neither a digit image nor a piece of photograph."
    )
    return replace(_with_classes("scenes", splits, tuple(classes), how), is_scenes=True)


def random_splits(dataset: Dataset, n_splits: int, n_images: int | None, classes: Sequence[str] | int) -> Splits:
    """Random halves of at most `n_images` images, several times; the same images in other halves.

    A photograph that the dataset holds twice is used once: its copies could be in both halves.
    """
    chosen, copies = without_copies(_drawn(dataset.images, n_images, seed=0))
    _check(n_splits, len(chosen), dataset.name)
    splits = []
    for number in range(n_splits):
        order = np.random.default_rng(number).permutation(len(chosen))
        halves = order[: len(chosen) // 2], order[len(chosen) // 2 :]
        splits.append(_split(number, dataset, *([chosen[k] for k in half] for half in halves)))
    how = (
        f"{len(chosen)} of {len(dataset)} images are cut into random halves for training and test, "
        f"{n_splits} {'times' if n_splits > 1 else 'time'}; splits of the dataset itself are not looked at."
    )
    if copies:
        names = enumeration([f"{name} ({other})" for name, other in copies], 3)
        how += f" Left out {'are copies' if len(copies) > 1 else 'is a copy'} of other photographs: {names}."
    return _with_classes(dataset.name, splits, _chosen_classes(dataset, chosen, classes), how)


def own_split(dataset: Dataset, n_images: int | None, classes: Sequence[str] | int, names: str | None = None) -> Splits:
    """The training and test images that the dataset itself names; `names`: "train,test"."""
    train_names, test_name = _own_names(dataset, names)
    by_id = {record.image_id: record for record in dataset}
    limit = None if n_images is None else n_images // 2
    test = _drawn([by_id[i] for i in dataset.splits[test_name] if i in by_id], limit, seed=0)
    taken = set(dataset.splits[test_name])
    parts: list[list[ImageRecord]] = []
    for name in train_names:
        own = [by_id[i] for i in dataset.splits[name] if i in by_id and i not in taken]
        parts.append(_drawn(own, None if limit is None else limit // len(train_names), seed=0))
        taken |= {record.image_id for record in parts[-1]}
    train = [record for part in parts for record in part]
    _check(1, 2 * min(len(train), len(test)), dataset.name)
    split = _split(0, dataset, train, test)
    if len(parts) > 1:
        split = replace(split, n_small=len(parts[0]))
    how = (
        f"The dataset's own split: {len(train)} images of {' and '.join(train_names)} for training, {len(test)} of "
        f"{test_name} for test. Intervals are over resamples of the test images."
    )
    return _with_classes(dataset.name, [split], _chosen_classes(dataset, [*train, *test], classes), how)


def _check(n_splits: int, n_images: int, name: str) -> None:
    check_number(n_splits, "splits", minimum=1, integer=True)
    if n_images < _LEAST_IMAGES:
        raise InputError(
            f"{name}: at least {_LEAST_IMAGES} images are needed, two each for training and test, got {n_images}"
        )


def _drawn(records: Sequence[ImageRecord], limit: int | None, seed: int) -> list[ImageRecord]:
    order = np.random.default_rng(seed).permutation(len(records))[:limit]
    return [records[k] for k in order]


def _split(number: int, dataset: Dataset, train: Sequence[ImageRecord], test: Sequence[ImageRecord]) -> Split:
    first, second = (replace(dataset, images=tuple(part), splits={}, problems=()) for part in (train, test))
    return Split(number, first, second, n_small=len(train) // 2)


def _with_classes(name: str, splits: Sequence[Split], classes: Sequence[str], how: str) -> Splits:
    """The splits with a Val1 that is not too large, and the classes that all of them can measure."""
    cut = tuple(replace(split, n_small=_n_small(split, classes)) for split in splits)
    kept, skipped = [], []
    for each in classes:
        missing = next((where for split in cut if (where := _lacks(split, each))), None)
        if missing is None:
            kept.append(each)
        else:
            skipped.append(f"the class {each} is left out: {missing}")
    if not kept:
        raise InputError(f"{name}: no class can be measured: {skipped[0] if skipped else 'there are no objects'}")
    return Splits(name, cut, tuple(kept), tuple(skipped), how)


def _n_small(split: Split, classes: Sequence[str]) -> int:
    """At most half of the training images, and fewer where a class would have more exemplars than in the paper."""
    counts: Counter[str] = Counter()
    for n, record in enumerate(split.train[: split.n_small]):
        counts.update(_usable(record))
        if n and max((counts[name] for name in classes), default=0) > MAX_EXEMPLARS:
            return n
    return split.n_small


def _lacks(split: Split, class_name: str) -> str | None:
    """Where a split has no object of a class."""
    small = split.train[: split.n_small]
    for what, images in ((f"the first {split.n_small} training images", small), ("the test images", split.test)):
        if not any(class_name in _usable(record) for record in images):
            return f"split {split.number + 1} has no object of it in {what}"
    return None


def _usable(record: ImageRecord) -> list[str]:
    """Classes of the objects that can be exemplars."""
    return [i.class_name for i in record.instances if not (i.is_difficult or i.is_crowd)]


def _chosen_classes(dataset: Dataset, images: Sequence[ImageRecord], classes: Sequence[str] | int) -> tuple[str, ...]:
    """Classes by name, or those with the most objects, in the order of the dataset."""
    counts = Counter(name for record in images for name in _usable(record))
    if isinstance(classes, int):
        most = {name for name, _ in counts.most_common(classes)}
        return tuple(name for name in dataset.classes if name in most)
    for name in classes:
        if name not in dataset.classes:
            known = ", ".join(dataset.classes[:20]) or "none"
            raise InputError(f"{dataset.name} has no class {name!r}: it has {known}")
    return tuple(dict.fromkeys(classes))


def _own_names(dataset: Dataset, names: str | None) -> tuple[tuple[str, ...], str]:
    if names is not None:
        train, comma, test = (part.strip() for part in names.partition(","))
        if not comma or not train or not test:
            raise InputError(f"an own split is named TRAIN,TEST, got {names!r}")
        wanted: list[tuple[tuple[str, ...], str]] = [((train,), test)]
    else:
        wanted = [pair for pair in _OWN_NAMES if {*pair[0], pair[1]} <= set(dataset.splits)]
    for train_names, test_name in wanted:
        if {*train_names, test_name} <= set(dataset.splits):
            return train_names, test_name
    known = ", ".join(name for name in dataset.splits if "=" not in name) or "none"
    asked = "training and test" if names is None else names
    raise InputError(f"{dataset.name} has no split of its own for {asked}: its splits are {known}")


def _objects(images: Sequence[ImageRecord], classes: Sequence[str]) -> list[int]:
    counts = Counter(name for record in images for name in _usable(record))
    return [counts[name] for name in classes]


def _range(counts: Sequence[int]) -> str:
    few, many = min(counts), max(counts)
    spread = f"{few}" if few == many else f"{few} to {many}"
    return f"{spread} exemplars a class in the first one"
