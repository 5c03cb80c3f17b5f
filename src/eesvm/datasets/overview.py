"""What a dataset holds, and parts of it.

In: a `Dataset`. Out: `Summary`, counts that can be printed or written as JSON, and smaller datasets by split, class
or image.
Nothing here opens an image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from eesvm._support.validation import InputError
from eesvm.datasets.build import like_split
from eesvm.structures import Dataset


@dataclass(frozen=True)
class Summary:
    """Counts of a dataset."""

    name: str
    n_images: int
    n_empty_images: int  # annotated, without a single instance
    n_unlabelled_images: int  # without an annotation of their own, of which one cannot tell what they show
    n_skipped_images: int  # of which nothing is learned, as they are not known to be annotated
    n_instances: int
    classes: dict[str, int]  # instances of each class, in the order of the dataset
    class_images: dict[str, int]  # images with each class
    splits: dict[str, tuple[int, int]]  # images and instances of each; lists of one class are left out
    split_classes: dict[str, dict[str, int]]  # instances by split and class
    n_class_lists: int  # how many lists of one class there are
    image_sizes: dict[str, tuple[int, int]]  # smallest, median and largest width and height
    box_sizes: dict[str, tuple[float, float]]  # likewise of the instances
    n_masks: int
    n_parts: int
    n_difficult: int
    n_truncated: int
    n_crowd: int
    metadata: dict[str, int]  # how many instances carry each kind of metadata
    problems: dict[str, int]  # by kind

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def summary(dataset: Dataset) -> Summary:
    """Counts of images, instances, classes, splits, sizes and problems."""
    instances = list(dataset.instances())
    counts = Counter(instance.class_name for instance in instances)
    in_images = Counter(name for image in dataset for name in {instance.class_name for instance in image.instances})
    per_image = {image.image_id: Counter(i.class_name for i in image.instances) for image in dataset}
    whole = {name: ids for name, ids in dataset.splits.items() if not _is_class_list(name, dataset)}
    split_counts = {name: sum((per_image[i] for i in ids), Counter[str]()) for name, ids in whole.items()}
    boxes = np.array([instance.box for instance in instances]).reshape(-1, 4)
    return Summary(
        name=dataset.name,
        n_images=len(dataset),
        n_empty_images=sum(not image.instances and image.has_annotation for image in dataset),
        n_unlabelled_images=sum(not image.has_annotation for image in dataset),
        n_skipped_images=len(dataset) - len(dataset.annotated()),
        n_instances=len(instances),
        classes={name: counts[name] for name in dataset.classes},
        class_images={name: in_images[name] for name in dataset.classes},
        splits={name: (len(ids), split_counts[name].total()) for name, ids in whole.items()},
        split_classes={
            name: {label: found[label] for label in dataset.classes if found[label]}
            for name, found in split_counts.items()
        },
        n_class_lists=sum(f"{name}=1" in dataset.splits for name in dataset.splits),
        image_sizes=_sizes(np.array([(image.width, image.height) for image in dataset]), int),
        box_sizes=_sizes(boxes[:, 2:] - boxes[:, :2], float),
        n_masks=sum(instance.mask is not None for instance in instances),
        n_parts=sum(len(instance.parts) for instance in instances),
        n_difficult=sum(instance.is_difficult for instance in instances),
        n_truncated=sum(instance.is_truncated for instance in instances),
        n_crowd=sum(instance.is_crowd for instance in instances),
        metadata=dict(Counter(key for instance in instances for key in instance.metadata)),
        problems=dict(Counter(problem.kind for problem in dataset.problems).most_common()),
    )


def select(
    dataset: Dataset,
    split: str | None = None,
    classes: Iterable[str] | None = None,
    image_ids: Iterable[str] | None = None,
) -> Dataset:
    """The images of a split, or those with the given ids, with the instances of the given classes only.

    Images in which none of the classes occurs stay: they are the negatives. Orders are those of the dataset; of
    `classes` and `image_ids`, those given. Problems are all kept.

    Parameters
    ----------
    dataset : to choose from; it stays as it is.
    split : name of the split whose images to keep; None keeps all.
    classes : names of the classes to keep; None keeps all.
    image_ids : ids of the images to keep, in the order wanted; None keeps all.
    """
    images = {image.image_id: image for image in dataset}
    kept = list(images)
    if split is not None:
        kept = _known([split], dataset.splits, "split") and [i for i in dataset.splits[split] if i in images]
    if image_ids is not None:
        within = set(kept)
        kept = [image_id for image_id in _known(image_ids, images, "image") if image_id in within]
    names = dataset.classes if classes is None else tuple(_known(classes, dataset.classes, "class"))
    chosen = []
    for image_id in kept:
        image = images[image_id]
        instances = tuple(instance for instance in image.instances if instance.class_name in names)
        chosen.append(image if len(instances) == len(image.instances) else replace(image, instances=instances))
    ids = frozenset(kept)
    splits = {name: tuple(i for i in members if i in ids) for name, members in dataset.splits.items()}
    return replace(dataset, images=tuple(chosen), classes=names, splits=splits)


def _is_class_list(name: str, dataset: Dataset) -> bool:
    """car_train, car_train=1, car_train=0 and car_train=-1."""
    return "=" in name or f"{name}=1" in dataset.splits


def _sizes(sides: np.ndarray, kind: type) -> dict[str, tuple[Any, Any]]:
    if not len(sides):
        return {}
    ranges = {"smallest": sides.min(axis=0), "median": np.median(sides, axis=0), "largest": sides.max(axis=0)}
    return {name: (kind(width), kind(height)) for name, (width, height) in ranges.items()}


def _known(names: Iterable[str], there: Iterable[str], what: str) -> list[str]:
    if isinstance(names, str):
        names = [names]
    chosen, known = list(dict.fromkeys(names)), set(there)
    for name in chosen:
        if name not in known:
            listed = ", ".join(list(there)[:20]) or "none"
            hint = like_split(name, there) if what == "split" else ""
            more = ", ..." if len(known) > 20 else ""
            raise InputError(f"the dataset has no {what} {name!r}{hint}: it has {listed}{more}")
    return chosen
