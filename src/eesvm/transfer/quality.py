"""How good transferred annotations are, where the truth is known: masks, parts, poses and labels.

In: the annotations of all exemplars, detections with the instance that each was matched to, and named choices of
exemplars for them: the calibrated winner, the uncalibrated one, the nearest neighbour, random ones, several at once.
Out: a frozen `TransferQuality`: for each choice and measure the mean over detections with an interval over images, and
how many different exemplars were used; differences between two choices on the same detections.
Two rows need no choice: the whole box as mask, which knows nothing, and the best exemplar, which knows the truth.
The caller says where a choice comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm import boxes as geometry
from eesvm._support.tables import markdown_table
from eesvm._support.validation import InputError, check_number
from eesvm.metrics import Interval
from eesvm.structures import Detections, ExemplarAnnotation, ImageRecord, Instance
from eesvm.transfer.measures import MASK_IOU, PART_IOU, PARTS_FOUND, POSE, Draw, Judge, Truth, candidates, read_truth
from eesvm.transfer.refinement import mean_masks
from eesvm.transfer.region_trees import RegionTrees

WHOLE_BOX = "whole box as mask"
BEST_EXEMPLAR = "best exemplar"

CSV_HEADER = ("choice", "measure", "n_detections", "n_images", "n_exemplars", "mean", "low", "high")

_Key = tuple[str, str]


class NothingToCompareError(InputError):
    """No detection is matched to an object of which something is known that exemplars transfer."""


@dataclass(frozen=True)
class Consensus:
    """A choice of several exemplars for each detection, which vote by their weights; None weighs them alike."""

    exemplars: Sequence[Sequence[int]]  # of each detection
    weights: Sequence[Sequence[float]] | None = None  # of each of them


@dataclass(frozen=True)
class Refined:
    """A choice whose masks are refined by the image of the detection."""

    choice: ArrayLike | Consensus


@dataclass(frozen=True)
class QualityRow:
    """One measure of one choice."""

    choice: str
    measure: str
    n_detections: int  # those where both the truth and the choice say something about the measure
    n_images: int
    n_exemplars: int  # different ones that the choice uses on all detections
    mean: float
    interval: Interval


@dataclass(frozen=True)
class TransferQuality:
    """All choices by all measures; a pair without any detection has no row."""

    rows: tuple[QualityRow, ...]
    confidence: float
    n_resamples: int
    random_state: int
    values: Mapping[_Key, NDArray[np.float64]] = field(repr=False)  # (n,) by choice and measure, NaN where unknown
    image_ids: NDArray[np.intp] = field(repr=False)  # (n,) of the detections

    def __getitem__(self, key: _Key) -> QualityRow:
        return {(row.choice, row.measure): row for row in self.rows}[key]

    @property
    def choices(self) -> tuple[str, ...]:
        """Names of the choices, in the order of the rows."""
        return tuple(dict.fromkeys(row.choice for row in self.rows))

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the measures, in the order of the rows."""
        return tuple(dict.fromkeys(row.measure for row in self.rows))

    def difference(self, choice: str, other: str, measure: str) -> QualityRow:
        """How much better `choice` is than `other`, on the detections where both are known.

        Parameters
        ----------
        choice, other : names of two choices.
        measure : name of the measure.

        Returns
        -------
        QualityRow : mean of the differences and its interval.
        """
        for name in (choice, other):
            if (name, measure) not in self.values:
                raise InputError(f"there is no {measure} of the choice {name}")
        gain = self.values[choice, measure] - self.values[other, measure]
        return self._row(f"{choice} - {other}", measure, gain, 0)

    def to_csv_rows(self) -> list[tuple[Any, ...]]:
        """The header and one row per choice and measure."""
        return [
            CSV_HEADER,
            *(
                (row.choice, row.measure, row.n_detections, row.n_images, row.n_exemplars, row.mean, *row.interval)
                for row in self.rows
            ),
        ]

    def to_table(self) -> tuple[list[str], list[list[str]]]:
        """Header and a row per choice: mean and interval of each measure in per cent, the detections in the header."""
        found = {(row.choice, row.measure): row for row in self.rows}
        usual = {m: max(row.n_detections for row in self.rows if row.measure == m) for m in self.measures}
        header = ["choice", "exemplars used", *(f"{measure} (n = {n})" for measure, n in usual.items())]
        rows = []
        for choice in self.choices:
            used = max(row.n_exemplars for row in self.rows if row.choice == choice)
            cells = [_cell(found.get((choice, measure)), n) for measure, n in usual.items()]
            rows.append([choice, str(used or ""), *cells])
        return header, rows

    def note(self) -> str:
        """What the numbers of the table are."""
        return f"Per cent, with {100 * self.confidence:g} % intervals over images."

    def to_markdown(self) -> str:
        """The table, and below it what its numbers are."""
        return f"{markdown_table(*self.to_table())}\n\n{self.note()}\n"

    def _row(self, choice: str, measure: str, values: NDArray[np.float64], n_exemplars: int) -> QualityRow:
        known = ~np.isnan(values)
        if not known.any():
            raise InputError(f"no detection has a {measure} of {choice}")
        ids = np.unique(self.image_ids[known], return_inverse=True)[1]
        interval = _interval(values[known], ids, self.n_resamples, self.confidence, self.random_state)
        return QualityRow(
            choice=choice,
            measure=measure,
            n_detections=int(known.sum()),
            n_images=int(ids.max()) + 1,
            n_exemplars=n_exemplars,
            mean=float(values[known].mean()),
            interval=interval,
        )


def matched_instances(detections: Detections, record: ImageRecord, iou: float = 0.5) -> list[Instance | None]:
    """For each detection of an image the instance of its class that it overlaps most, None where that is below `iou`.

    Several detections may share an instance. Crowds are no objects and match nothing.

    Parameters
    ----------
    detections : of the image.
    record : the image with its annotated objects.
    iou : least overlap of a match.
    """
    objects = [instance for instance in record.instances if not instance.is_crowd]
    matched: list[Instance | None] = [None] * len(detections)
    for name in np.unique(detections.class_names):
        own = [instance for instance in objects if instance.class_name == name]
        rows = np.flatnonzero(detections.class_names == name)
        truth = np.array([instance.box for instance in own]).reshape(-1, 4)
        for row, best in zip(rows, geometry.match(detections.boxes[rows], truth, iou).truth, strict=True):
            matched[row] = own[best] if best >= 0 else None
    return matched


def random_choice(
    annotations: Sequence[ExemplarAnnotation],
    instances: Sequence[Instance | None],
    n_draws: int = 10,
    random_state: int = 0,
) -> NDArray[np.int64]:
    """(n, n_draws) exemplars of the class of each instance, evenly, never from its own image; -1 where none is.

    Parameters
    ----------
    annotations : of all exemplars.
    instances : (n,) the object of each detection, None for a false positive.
    n_draws : exemplars per instance, drawn with replacement.
    random_state : int >= 0, seeds the draws.
    """
    check_number(n_draws, "n_draws", minimum=1, integer=True)
    check_number(random_state, "random_state", minimum=0, integer=True)
    rng = np.random.default_rng(random_state)
    drawn = np.full((len(instances), n_draws), -1, dtype=np.int64)
    for row, instance in enumerate(instances):
        eligible = [] if instance is None else candidates(annotations, instance)
        if eligible:
            drawn[row] = rng.choice(eligible, n_draws)
    return drawn


def transfer_quality(
    annotations: Sequence[ExemplarAnnotation],
    choices: Mapping[str, ArrayLike | Consensus | Refined],
    boxes: ArrayLike,
    instances: Sequence[Instance | None],
    image_sizes: Sequence[tuple[int, int]],
    *,
    labels: Iterable[str] | None = None,
    whole_box: bool = True,
    best_exemplar: bool = False,
    n_resamples: int = 1000,
    confidence: float = 0.95,
    random_state: int = 0,
    progress: Callable[[int, int], object] | None = None,
    read_image: Callable[[int], NDArray[np.uint8] | None] | None = None,
    trees: RegionTrees | None = None,
) -> TransferQuality:
    """Measure what each choice of exemplars transfers to detections whose object is known.

    A measure leaves out a detection where the object or the chosen exemplar is not annotated for it at all, and the
    row's `n_detections` says how many are left. A part that the object has and the exemplar, which has others, lacks
    counts as an IoU of 0. Void pixels of an object's image (`Instance.void`) are left out of both masks.

    Parameters
    ----------
    annotations : of all exemplars.
    choices : by name: (n,) an exemplar for each detection, -1 for none; (n, draws) of them, whose results are averaged;
        or a `Consensus`.
    boxes : (n, 4) of the detections.
    instances : (n,) the object that each was matched to (see `matched_instances`), None for a false positive, which
        is left out.
    image_sizes : (n,) width and height of each detection's image.
    labels : keys of the metadata to compare. Default: those whose values are texts or booleans.
    whole_box : add the row of a mask that fills the box.
    best_exemplar : add the row of the exemplar of the class, not from the same image, whose mask fits best; without a
        mask, whose parts do. It tries them all.
    n_resamples, confidence, random_state : of the bootstrap that draws whole images.
    progress : called with the number of detections done, and of all.
    read_image : gives the image of a detection by its number, for choices that are `Refined`; None: it cannot be read,
        and the mask stays as it was.
    trees : that judge regions where choices are `Refined`. Default: those that come with the package.

    Raises
    ------
    NothingToCompareError : no detection is matched to an object that has something to compare.
    """
    _check_options(n_resamples, confidence, random_state)
    table = geometry.check_boxes(boxes)
    n = len(table)
    _check_lengths(n, instances=instances, image_sizes=image_sizes)
    drawn = {name: _check_choice(choice, name, n, len(annotations)) for name, choice in choices.items()}
    keys = _label_keys(annotations, instances) if labels is None else tuple(labels)
    names = _check_names(choices, whole_box, best_exemplar)
    values: dict[_Key, NDArray[np.float64]] = {}
    used: dict[str, set[int]] = {name: set() for name in names}
    truth: Truth | None = None
    means = mean_masks(annotations) if any(isinstance(choice, Refined) for choice in choices.values()) else None
    for i, instance in enumerate(instances):
        if progress is not None:
            progress(i, n)
        if instance is None:
            continue
        if truth is None or truth.instance is not instance:  # detections of one object follow each other
            truth = read_truth(instance)
        read = None if read_image is None else partial(read_image, i)
        judge = Judge(annotations, table[i], image_sizes[i], truth, keys, read, means, trees)
        for name in names:
            draws = [judge.best()] if name == BEST_EXEMPLAR else [] if name == WHOLE_BOX else drawn[name][i]
            results = [judge.whole_box()] if name == WHOLE_BOX else [judge.measures(draw) for draw in draws]
            used[name].update(exemplar for draw in draws for exemplar in draw.exemplars)
            for measure in dict.fromkeys(measure for result in results for measure in result):
                known = [result[measure] for result in results if measure in result]
                values.setdefault((name, measure), np.full(n, np.nan))[i] = np.mean(known)
    if not values:
        raise NothingToCompareError("no detection is matched to an object that has something to compare")
    image_ids = _image_ids(instances)
    ordered = _in_order(values, names, keys)
    blank = TransferQuality((), confidence, n_resamples, random_state, ordered, image_ids)
    rows = [blank._row(*key, each, len(used[key[0]])) for key, each in ordered.items()]
    return replace(blank, rows=tuple(rows))


def _label_keys(annotations: Sequence[ExemplarAnnotation], instances: Sequence[Instance | None]) -> tuple[str, ...]:
    """Keys whose values are texts or booleans wherever they occur: names of kinds, not numbers of things."""
    kinds: dict[str, bool] = {}
    known = [each.metadata for each in annotations]
    known += [instance.metadata for instance in instances if instance is not None]
    for metadata in known:
        for key, value in metadata.items():
            kinds[key] = kinds.get(key, True) and isinstance(value, str | bool | np.bool_)
    return tuple(key for key, is_kind in kinds.items() if is_kind)


def _in_order(
    values: Mapping[_Key, NDArray[np.float64]], names: Sequence[str], keys: Sequence[str]
) -> dict[_Key, NDArray[np.float64]]:
    """Choices as they were named, measures from masks to labels; the part IoU by name only if there are several."""
    measures = {measure for _, measure in values}
    parts = sorted(measure for measure in measures if measure.startswith(f"{PART_IOU}, "))
    order = [MASK_IOU, PART_IOU, PARTS_FOUND, *(parts if len(parts) > 1 else ()), POSE, *keys]
    return {(name, measure): values[name, measure] for name in names for measure in order if (name, measure) in values}


def _interval(
    values: NDArray[np.float64], ids: NDArray[np.intp], n_resamples: int, confidence: float, random_state: int
) -> Interval:
    """Percentile interval of the mean when whole images are drawn with replacement; the same draws for every row."""
    sums, counts = np.bincount(ids, weights=values), np.bincount(ids)
    n = len(sums)
    rng = np.random.default_rng(random_state)
    means = np.empty(n_resamples)
    for k in range(n_resamples):
        times = np.bincount(rng.integers(n, size=n), minlength=n)
        means[k] = times @ sums / (times @ counts)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high))


def _image_ids(instances: Sequence[Instance | None]) -> NDArray[np.intp]:
    names = ["" if instance is None else instance.image_id for instance in instances]
    return np.unique(names, return_inverse=True)[1].reshape(-1)


def _check_options(n_resamples: int, confidence: float, random_state: int) -> None:
    check_number(n_resamples, "n_resamples", minimum=1, integer=True)
    check_number(confidence, "confidence", above=0, maximum=1)
    check_number(random_state, "random_state", minimum=0, integer=True)


def _check_names(choices: Mapping[str, Any], whole_box: bool, best_exemplar: bool) -> list[str]:
    """The names of all rows: the choices, then those that need none."""
    added = [*([WHOLE_BOX] if whole_box else []), *([BEST_EXEMPLAR] if best_exemplar else [])]
    for name in added:
        if name in choices:
            raise InputError(f"`choices` must not use the name {name!r}, which is a row of its own")
    return [*choices, *added]


def _check_lengths(n: int, **columns: Sequence[Any]) -> None:
    for name, column in columns.items():
        if len(column) != n:
            raise InputError(f"`{name}` must have one entry per detection, {n}, got {len(column)}")


def _check_choice(choice: ArrayLike | Consensus | Refined, name: str, n: int, n_exemplars: int) -> list[list[Draw]]:
    """For each detection what is drawn for it."""
    if isinstance(choice, Refined):
        return [[d._replace(is_refined=True) for d in s] for s in _check_choice(choice.choice, name, n, n_exemplars)]
    if isinstance(choice, Consensus):
        _check_lengths(n, **{f"choices[{name!r}].exemplars": choice.exemplars})
        weights = [None] * n if choice.weights is None else [tuple(map(float, each)) for each in choice.weights]
        _check_lengths(n, **{f"choices[{name!r}].weights": weights})
        votes = [Draw(tuple(map(int, each)), w) for each, w in zip(choice.exemplars, weights, strict=True)]
        _check_range([exemplar for vote in votes for exemplar in vote.exemplars], name, n_exemplars, lowest=0)
        return [[vote] for vote in votes]
    table = np.asarray(choice)
    if table.dtype.kind not in "iu" or table.ndim not in (1, 2) or len(table) != n:
        raise InputError(
            f"`choices[{name!r}]` must be whole numbers of shape ({n},) or ({n}, draws), or a Consensus, "
            f"got {table.dtype} {table.shape}"
        )
    _check_range(table.ravel().tolist(), name, n_exemplars, lowest=-1)
    return [[Draw((int(j),)) for j in np.atleast_1d(row) if j >= 0] for row in table]


def _check_range(exemplars: Sequence[int], name: str, n_exemplars: int, lowest: int) -> None:
    for exemplar in exemplars:
        if not lowest <= exemplar < n_exemplars:
            rule = f"from {lowest} to {n_exemplars - 1}"
            raise InputError(f"`choices[{name!r}]` must hold exemplars {rule}, got {exemplar}")


def _cell(row: QualityRow | None, usual: int) -> str:
    if row is None:
        return ""
    low, high = (f"{100 * side:.1f}" for side in row.interval)
    fewer = "" if row.n_detections == usual else f", n = {row.n_detections}"
    return f"{100 * row.mean:.1f} ({low} to {high}{fewer})"
