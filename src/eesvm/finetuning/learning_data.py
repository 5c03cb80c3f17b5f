"""What fine-tuning learns from: windows of training images with their classes, and windows to stop by.

In: a dataset, perhaps another one to stop by, classes, windows. Out: `LearningData`, checked: every class has enough
objects, no image is on both sides, both sides have the same classes. Only the images that are given are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from eesvm._support.digests import array_digest, digest
from eesvm._support.validation import InputError
from eesvm.datasets.fingerprint import Fingerprint, fingerprint
from eesvm.descriptors.cache import DescriptorCache
from eesvm.detector.class_training import choose_classes
from eesvm.detector.training_table import StageProgress, propose_windows
from eesvm.finetuning.options import FinetuneOptions
from eesvm.finetuning.windows_sampler import (
    LabelledWindows,
    check_classes,
    check_same_classes,
    count_objects,
    label_windows,
    split_images,
)
from eesvm.structures import Dataset, ImageRecord, Problem, Windows


@dataclass(frozen=True)
class LearningData:
    """Labelled windows to train on and to stop by."""

    classes: tuple[str, ...]
    train: LabelledWindows
    held_out: LabelledWindows
    objects: Counter[str]  # of all images of the dataset
    fingerprint: Fingerprint
    problems: tuple[Problem, ...]

    def digest(self) -> str:
        """The same exactly when the same pixels, windows and classes are learned from."""
        windows = [
            [[record.image_id for record in part.records], array_digest(part.boxes), array_digest(part.labels)]
            for part in (self.train, self.held_out)
        ]
        return digest([self.fingerprint.images_digest(), self.fingerprint.annotations, list(self.classes), windows])

    def summary(self) -> dict[str, Any]:
        """What a card says about it."""
        names = ("background", *self.classes)
        parts = (("train_windows", self.train), ("held_out_windows", self.held_out))
        return {
            **self.fingerprint.summary(),
            "objects": {name: self.objects[name] for name in self.classes},
            "n_train": len(self.train.records),
            "n_held_out": len(self.held_out.records),
            "held_out_images": sorted(record.image_id for record in self.held_out.records),
            **{
                part: {name: int((table.labels == label).sum()) for label, name in enumerate(names)}
                for part, table in parts
            },
        }


def gather_data(
    dataset: Dataset,
    options: FinetuneOptions,
    *,
    classes: Iterable[str] | None = None,
    held_out: Dataset | None = None,
    windows: Sequence[Windows] | None = None,
    cache: DescriptorCache | None = None,
    n_jobs: int | None = None,
    progress: StageProgress | None = None,
) -> LearningData:
    """See `finetune` for the arguments."""
    for name, given in (("dataset", dataset), ("held_out", held_out)):
        if not isinstance(given, Dataset) and (given is not None or name == "dataset"):
            raise InputError(f"`{name}` must be a Dataset, got {type(given).__name__}")
    dataset, held_out = dataset.annotated(), None if held_out is None else held_out.annotated()
    chosen, _ = choose_classes(dataset, classes)
    objects = count_objects(dataset.images)
    check_classes(objects, chosen, options.min_objects)
    train, stopping = _sides(dataset, held_out, chosen, classes is not None, options)
    everything = Dataset(dataset.name, (*dataset.images, *(held_out or ())), dataset.classes)
    problems: list[Problem] = []
    if windows is None:
        windows = list(propose_windows(everything, options.windows, n_jobs, True, cache, progress, problems))
    label = partial(label_windows, windows=windows, classes=chosen, positive_overlap=options.positive_overlap)
    count = None if progress is None else partial(progress, "reading images")
    return LearningData(chosen, label(train), label(stopping), objects, fingerprint(everything, count), tuple(problems))


def _sides(
    dataset: Dataset, held_out: Dataset | None, classes: Sequence[str], is_explicit: bool, options: FinetuneOptions
) -> tuple[Sequence[ImageRecord], Sequence[ImageRecord]]:
    """Images to train on and images to stop by."""
    if held_out is None:
        return split_images(dataset.images, classes, options.held_out, options.random_state)
    counts = count_objects(held_out.images)
    if is_explicit:  # who names the classes knows that there are others
        counts = Counter({name: counts[name] for name in classes})
    check_same_classes(counts, classes, "the held-out images")
    shared = {record.image_id for record in held_out} & {record.image_id for record in dataset}
    if shared:
        raise InputError(f"the image {min(shared)!r} is both to be trained on and held out")
    return dataset.images, held_out.images
