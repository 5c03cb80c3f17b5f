"""A trained model that takes on new exemplars, or lets some go, without its training images.

In: a `LoadedModel` that keeps windows of its training images, and annotated images, or numbers of exemplars. Out:
another `LoadedModel`, and in words what happened. The one that came in stays as it is.

`add_exemplars`: each new object becomes an exemplar, trained against the negatives that are kept and those of the new
images. The exemplars there are keep their weights; the single SVM of a class is trained again, with the objects that
are kept. Windows of the new images join those that the class is calibrated on. A class that is new has the windows of
all other classes as negatives. Windows on what was rejected, boxes that somebody has looked at and refused, are all
among the negatives. `drop_exemplars`: the columns of these exemplars go, and the class is calibrated again from what
is left. Descriptor, scaling and PCA, box regression and the exemplars that stay are those of the first training: a
model that has doubled is better trained anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.amounts import counted, counted_exemplars, enumeration
from eesvm._support.validation import InputError
from eesvm.boxes import iou
from eesvm.datasets.fingerprint import fingerprint
from eesvm.descriptors import DescriptorCache
from eesvm.detector.files import LoadedModel
from eesvm.detector.grown_class import class_without, grow_class, new_class
from eesvm.detector.model import ClassModel
from eesvm.detector.news import News, Rejected
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_descriptor import training_windows
from eesvm.detector.training_table import StageProgress
from eesvm.structures import Dataset, ImageRecord, Instance, Problem
from eesvm.transfer.annotations import object_keys

_SAME = 0.9  # IoU from which on an object of the same image and class is one that is an exemplar already


@dataclass(frozen=True)
class Growth:
    """A model after a change, and what happened."""

    model: LoadedModel
    texts: tuple[str, ...]  # for each class that changed
    n_known: int = 0  # objects that were exemplars already


def add_exemplars(
    model: LoadedModel,
    dataset: Dataset,
    classes: Iterable[str] | None = None,
    *,
    rejected: Rejected | None = None,
    time_limit: float | None = None,
    cache: DescriptorCache | None = None,
    progress: StageProgress | None = None,
    problems: list[Problem] | None = None,
) -> Growth:
    """A model with the objects of a dataset as further exemplars.

    Parameters
    ----------
    model : whose classes keep windows of their training images.
    dataset : images with their annotated objects; what they do not annotate is taken for background.
    classes : whose objects are taken. Default: all that have one; one that the model lacks becomes a class of it.
    rejected : by image, classes and boxes that somebody has looked at and refused: hard negatives.
    time_limit : seconds for the search of a class. Default: the options of the model.
    cache : keeps windows and descriptors.
    progress : called with a stage, how much of it is done, and how much there is to do.
    problems : a list that receives a `Problem` for each image that is left out.

    Raises
    ------
    InputError : the model keeps no windows, or the dataset has nothing to add.
    """
    for one in model.classes:
        _check_kept(one)
    refused, dataset = rejected or {}, dataset.annotated()
    objects, n_known = _new_objects(model.classes, dataset, classes)
    wanted = _classes_to_change(model.classes, objects, refused, dataset, n_known)
    options = _in_time(model.options, time_limit)
    records = [record for record in dataset if _is_needed(record, objects, refused)]
    descriptor = model.open_descriptor()
    windows = training_windows(
        records, options, cache=cache, descriptor=descriptor, progress=progress, problems=problems
    )
    models, texts = {one.class_name: one for one in model.classes}, []
    for number, name in enumerate(wanted):
        if progress is not None:
            progress("classes", number, len(wanted))
        before = _read_once(models.get(name))
        news = News.of(windows, name, objects.get(name, ()), refused, _known_images(before), options)
        if before is None and not len(news.own):
            if problems is not None:
                problems.append(Problem(dataset.name, f"no object of the class {name} can be used", kind="class"))
            continue
        if before is None:
            models[name] = new_class(name, model.classes, news, options, problems)
        else:
            models[name] = grow_class(before, news, options, problems)
        texts.append(_added_text(name, before, models[name], news))
    if not texts:
        raise InputError(f"there is nothing to add: no object of {dataset.name} can be used")
    change = {"what": "added", "text": f"added from {dataset.name}: {'; '.join(texts)}"}
    change["images_digest"] = fingerprint(replace(dataset, images=tuple(records))).images_digest()
    changed = replace(model, classes=tuple(models.values()), inputs=_noted(model.inputs, change))
    return Growth(changed, tuple(texts), n_known)


def drop_exemplars(
    model: LoadedModel,
    exemplars: Iterable[int],
    *,
    time_limit: float | None = None,
    progress: StageProgress | None = None,
) -> Growth:
    """A model without some of its exemplars.

    Parameters
    ----------
    model : to take them from.
    exemplars : their numbers among all of the model, as in `Detections.exemplars`; an object goes with its mirror
        image. A class that loses all goes.
    time_limit : seconds for the search of a class. Default: the options of the model.
    progress : called with "classes", how many are done, and how many there are.

    Raises
    ------
    InputError : there is no such exemplar, none would be left, or the model keeps no training scores.
    """
    numbers = _with_mirror_images(model.classes, set(exemplars))
    options = _in_time(model.options, time_limit)
    first, left, texts = 0, [], []
    for done, one in enumerate(model.classes):
        if progress is not None:
            progress("classes", done, len(model.classes))
        own = np.array([number - first for number in numbers if 0 <= number - first < one.n_exemplars], dtype=np.int64)
        first += one.n_exemplars
        if len(own) < one.n_exemplars:
            left.append(class_without(one, own, options) if len(own) else one)
        if len(own):
            texts.append(_dropped_text(one, own))
    change = {"what": "dropped", "text": f"dropped {'; '.join(texts)}"}
    return Growth(replace(model, classes=tuple(left), inputs=_noted(model.inputs, change)), tuple(texts))


def _check_kept(model: ClassModel) -> None:
    if model.read_kept is None or model.read_scores is None:
        raise InputError(
            f"nothing can be added to this model: of {model.class_name} it keeps no windows of its training images, as "
            "models of earlier versions do not; train it anew"
        )


def _with_mirror_images(models: Sequence[ClassModel], numbers: set[int]) -> list[int]:
    """Numbers of exemplars and of their mirror images, checked: some are named, all exist, and not all would go."""
    objects = [(model.class_name, *key) for model in models for key in object_keys(model.annotations)]
    n_all = len(objects)
    if not numbers:
        raise InputError("no exemplar is named that is to be dropped")
    for number in sorted(numbers):
        if not 0 <= number < n_all:
            raise InputError(f"there is no exemplar {number}: the model has {n_all}, counted from 0")
    is_mirrored = [one.is_mirrored for model in models for one in model.annotations]
    twins = {(objects[number], not is_mirrored[number]) for number in numbers}
    gone = [n for n in range(n_all) if n in numbers or (objects[n], is_mirrored[n]) in twins]
    if len(gone) == n_all:
        raise InputError(f"all {n_all} exemplars would go: a model needs at least one")
    return gone


def _in_time(options: DetectorOptions, time_limit: float | None) -> DetectorOptions:
    if time_limit is None:
        return options
    return options.changed({"calibration.time_limit": time_limit, "calibration.node_limit": None})


def _new_objects(
    models: Sequence[ClassModel], dataset: Dataset, classes: Iterable[str] | None
) -> tuple[dict[str, list[Instance]], int]:
    """Objects that are not exemplars yet, by class, and how many are."""
    wanted = None if classes is None else ([classes] if isinstance(classes, str) else list(classes))
    places: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
    for model in models:
        for one in model.annotations:
            places.setdefault((model.class_name, one.image_id), []).append(one.box)
    found: dict[str, list[Instance]] = {}
    n_known, seen = 0, set()
    for instance in dataset.instances():
        if instance.is_difficult or instance.is_crowd or (wanted is not None and instance.class_name not in wanted):
            continue
        seen.add(instance.class_name)
        there = places.get((instance.class_name, instance.image_id))
        if there and iou(instance.box[None], np.array(there)).max() >= _SAME:
            n_known += 1
        else:
            found.setdefault(instance.class_name, []).append(instance)
    for name in wanted or ():
        if name not in seen:
            raise InputError(f"the class {name!r} has no object to learn from in {dataset.name}")
    return found, n_known


def _classes_to_change(
    models: Sequence[ClassModel],
    objects: Mapping[str, Sequence[Instance]],
    refused: Rejected,
    dataset: Dataset,
    n_known: int,
) -> list[str]:
    """Classes with a new object, or with something that was refused; there must be one."""
    own, of_images = {one.class_name for one in models}, {record.image_id for record in dataset}
    touched = [name for image_id, boxes in refused.items() if image_id in of_images for name, _ in boxes if name in own]
    wanted = list(dict.fromkeys([*objects, *touched]))
    if not wanted and n_known:
        raise InputError(f"there is nothing to add: all objects of {dataset.name} are exemplars of the model already")
    if not wanted:
        raise InputError(f"there is nothing to add: {dataset.name} has no object to learn from")
    return wanted


def _is_needed(record: ImageRecord, objects: Mapping[str, Sequence[Instance]], refused: Rejected) -> bool:
    return record.image_id in refused or any(one.image_id == record.image_id for own in objects.values() for one in own)


def _read_once(model: ClassModel | None) -> ClassModel | None:
    """The class with its scores in memory: they are asked for more than once."""
    if model is None or model.read_scores is None:
        return model
    scores = model.read_scores()
    return replace(model, read_scores=lambda: scores)


def _known_images(model: ClassModel | None) -> set[str]:
    """Images whose windows are among those that are kept."""
    if model is None or model.read_scores is None:
        return set()
    return set(np.asarray(model.read_scores().table.groups).tolist())


def _noted(inputs: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """What the card says a model was made from, with one more change since."""
    return {**inputs, "changes": [*inputs.get("changes", []), dict(change)]}


def _added_text(name: str, before: ClassModel | None, after: ClassModel, news: News) -> str:
    new = after.annotations[0 if before is None else before.n_exemplars :]
    n_new, n_mirrored = len(new), sum(one.is_mirrored for one in new)
    what = f"{counted_exemplars(n_new, n_mirrored)} of {name}" if n_new else f"no exemplar of {name}"
    is_new = " (a new class)" if before is None else ""
    images = f" from {counted(len({one.image_id for one in news.instances}), 'image')}" if n_new else ""
    n_refused = len(np.unique(news.windows.image[news.is_rejected]))
    refused = f", hard negatives from {counted(n_refused, 'image')}" if n_refused else ""
    return f"{what}{is_new}{images}{refused}"


def _dropped_text(model: ClassModel, dropped: NDArray[np.int64]) -> str:
    annotations = [model.annotations[k] for k in dropped.tolist()]
    gone = "" if len(annotations) < model.n_exemplars else ", and with the last of them the class"
    number = counted_exemplars(len(annotations), sum(one.is_mirrored for one in annotations))
    return f"{number} of {model.class_name}{gone} ({enumeration([one.name for one in annotations])})"
