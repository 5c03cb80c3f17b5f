"""What went wrong: every false positive by its kind, and every object that was missed.

In: annotated images and the detections in them. Out: an `ErrorBreakdown`: counts per class and in total, over all
detections and over the best-scoring ones, and lists with image and index, worst first, for those who want to look at
them.

A false positive is, in this order (after Hoiem, Chodpathumwan and Dai: Diagnosing error in object detectors, 2012):

- duplicate: a second hit on an object of its class (Hoiem et al. count these as localisation);
- localisation: it overlaps an object of its class by an IoU of at least 0.1, but not enough for a hit;
- confusion: it overlaps an object of another class, of any other and not only of similar ones, by at least 0.1;
- background: all the rest.

Difficult objects are objects here, crowds are not; detections that the protocol ignores are no errors. The best-scoring
detections are the first N of a class with N objects: a perfect detector would find all of them with these, so
weaknesses are not drowned in a long tail of low scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm._support.tables import markdown_table
from eesvm._support.validation import check_choice, check_number
from eesvm.metrics.matching import HIT, IGNORED, MISS, SECOND_HIT, Matches, match_detections, nearest_of_other_classes
from eesvm.metrics.tables import Tables, choose_classes, make_tables
from eesvm.structures import Dataset, Detections, ImageRecord

ERROR_KINDS = ("localisation", "confusion", "duplicate", "background")

_PROTOCOLS = ("voc07", "voc10", "ilsvrc")  # COCO's matches depend on ten thresholds
_NEAR = 0.1  # IoU from which a detection has to do with an object at all
_TOTAL = "all"
_CODES = {kind: code for code, kind in enumerate(ERROR_KINDS)}
_RIGHT, _NOT_JUDGED = 100, 101  # codes of detections that are no errors

_Integers = NDArray[np.int64]


class FalsePositive(NamedTuple):
    """A detection that is wrong."""

    image_id: str
    detection: int  # its row in the `Detections` of its image
    class_name: str
    score: float
    kind: str  # one of ERROR_KINDS
    iou: float  # with the object that the kind is about; of background, with the nearest object of its class
    instance: int  # `Instance.index` of that object, -1 for background
    instance_class: str  # "" for background
    x1: float  # its box
    y1: float
    x2: float
    y2: float


class MissedObject(NamedTuple):
    """An object that no detection found."""

    image_id: str
    instance: int  # its `Instance.index`
    class_name: str
    best_iou: float  # highest IoU of a detection of its class, 0 where none comes near


@dataclass(frozen=True)
class ErrorCounts:
    """How often each kind of error occurs among some detections of a class."""

    class_name: str  # "all" for the sum over the classes
    n_objects: int  # that must be found
    n_detections: int  # looked at, without ignored ones
    n_hits: int
    localisation: int
    confusion: int
    duplicate: int
    background: int

    @property
    def n_missed(self) -> int:
        """Objects that none of these detections found."""
        return self.n_objects - self.n_hits

    @property
    def n_false_positives(self) -> int:
        """Detections that are no hits."""
        return self.n_detections - self.n_hits


@dataclass(frozen=True)
class ErrorBreakdown:
    """Errors by kind."""

    protocol: str
    iou: float
    top: tuple[ErrorCounts, ...]  # per class, among the N best-scoring detections of a class with N objects
    total_top: ErrorCounts
    everything: tuple[ErrorCounts, ...]  # per class, among all detections
    total: ErrorCounts
    false_positives: tuple[FalsePositive, ...] = field(repr=False)  # highest score first
    missed: tuple[MissedObject, ...] = field(repr=False)  # by all detections, in the order of the truth

    def to_csv_rows(self) -> list[tuple[Any, ...]]:
        """The header, and one row per class and choice of detections, top or all."""
        header = ("among", "class", "objects", "detections", "hits", *ERROR_KINDS, "missed")
        groups = (("top", (*self.top, self.total_top)), ("all", (*self.everything, self.total)))
        return [header, *((among, *_cells(counts)) for among, rows in groups for counts in rows)]

    def to_table(self, top: bool = True) -> tuple[list[str], list[list[str]]]:
        """Header and rows as texts, among the top detections or all; last comes the sum of several classes."""
        rows, total = (self.top, self.total_top) if top else (self.everything, self.total)
        shown = (*rows, total) if len(rows) > 1 else rows
        header = ["class", "objects", "detections", "hits", *ERROR_KINDS, "missed"]
        return header, [[counts.class_name, *(f"{n:,}" for n in _cells(counts)[1:])] for counts in shown]

    def to_markdown(self) -> str:
        """Two tables: among the top detections, and among all of them."""
        parts = []
        for title, top in (
            ("Errors among the N best-scoring detections of a class with N objects", True),
            ("Errors among all detections", False),
        ):
            table = markdown_table(*self.to_table(top))
            parts.append(f"{title} ({self.protocol}, IoU {self.iou:g}):\n\n{table}")
        return "\n\n".join(parts) + "\n"


def break_down_errors(
    truth: Dataset | Sequence[ImageRecord],
    detections: Iterable[Detections],
    *,
    protocol: str = "voc10",
    iou: float = 0.5,
    classes: Iterable[str] | None = None,
) -> ErrorBreakdown:
    """Every false positive by its kind, and every missed object.

    Parameters
    ----------
    truth : images with their annotated objects.
    detections : of each image, at most one entry for each; images without an entry have none.
    protocol, iou : who hits what, see `evaluate_detections`; "voc07" and "voc10" are the same here.
    classes : look at detections and objects of these classes only; confusion may be with any class of the truth.
    """
    check_choice(protocol, "protocol", _PROTOCOLS)
    iou = check_number(iou, "iou", above=0, maximum=1)
    tables = make_tables(truth, detections, None)  # confusion may be with a class that is not asked for
    wanted = tables.class_names if classes is None else choose_classes(classes, tables.class_names)
    matches = match_detections(tables, iou, protocol == "ilsvrc")
    codes, partner, overlap = _kinds(tables, matches)
    class_ids = [tables.class_names.index(name) for name in wanted]
    ranked = [_ranked(tables, codes, class_id) for class_id in class_ids]
    n_objects = [int((tables.objects.counts & (tables.objects.classes == class_id)).sum()) for class_id in class_ids]
    top = tuple(_count(name, n, codes[rows[:n]]) for name, n, rows in zip(wanted, n_objects, ranked, strict=True))
    everything = tuple(_count(name, n, codes[rows]) for name, n, rows in zip(wanted, n_objects, ranked, strict=True))
    return ErrorBreakdown(
        protocol=protocol,
        iou=iou,
        top=top,
        total_top=_sum(top),
        everything=everything,
        total=_sum(everything),
        false_positives=_list_false(tables, codes, partner, overlap, class_ids),
        missed=_list_missed(tables, matches, class_ids),
    )


def _kinds(tables: Tables, matches: Matches) -> tuple[_Integers, _Integers, NDArray[np.float64]]:
    """(n,) code of each detection, and the object that it is about, with their IoU."""
    codes = np.full(len(tables.found), _CODES["background"], dtype=np.int64)
    partner, overlap = matches.partner.copy(), matches.overlap.copy()
    codes[matches.outcome == HIT] = _RIGHT
    codes[matches.outcome == IGNORED] = _NOT_JUDGED
    codes[matches.outcome == SECOND_HIT] = _CODES["duplicate"]
    is_miss = matches.outcome == MISS
    codes[is_miss & (overlap >= _NEAR)] = _CODES["localisation"]
    far = np.flatnonzero(is_miss & (overlap < _NEAR))
    partner[far] = -1
    other, other_iou = nearest_of_other_classes(tables, far)
    is_confused = other_iou >= _NEAR
    confused = far[is_confused]
    codes[confused] = _CODES["confusion"]
    partner[confused], overlap[confused] = other[is_confused], other_iou[is_confused]
    return codes, partner, overlap


def _ranked(tables: Tables, codes: _Integers, class_id: int) -> NDArray[np.intp]:
    """Rows of the detections of a class that are judged, best first, ties in their fixed order."""
    rows = np.flatnonzero((tables.found.classes == class_id) & (codes != _NOT_JUDGED))
    return rows[np.argsort(-tables.found.scores[rows], kind="stable")]


def _count(class_name: str, n_objects: int, codes: _Integers) -> ErrorCounts:
    kinds = {kind: int((codes == code).sum()) for kind, code in _CODES.items()}
    return ErrorCounts(class_name, n_objects, len(codes), int((codes == _RIGHT).sum()), **kinds)


def _sum(rows: Sequence[ErrorCounts]) -> ErrorCounts:
    kinds = {kind: sum(getattr(counts, kind) for counts in rows) for kind in ERROR_KINDS}
    n_objects, n_hits = sum(counts.n_objects for counts in rows), sum(counts.n_hits for counts in rows)
    return ErrorCounts(_TOTAL, n_objects, sum(counts.n_detections for counts in rows), n_hits, **kinds)


def _list_false(
    tables: Tables, codes: _Integers, partner: _Integers, overlap: NDArray[np.float64], class_ids: Sequence[int]
) -> tuple[FalsePositive, ...]:
    found = tables.found
    rows = np.flatnonzero((codes < len(ERROR_KINDS)) & np.isin(found.classes, class_ids))
    rows = rows[np.argsort(-found.scores[rows], kind="stable")]
    columns = (
        [tables.records[k].image_id for k in found.images[rows].tolist()],
        found.positions[rows].tolist(),
        [tables.class_names[k] for k in found.classes[rows].tolist()],
        found.scores[rows].tolist(),
        [ERROR_KINDS[code] for code in codes[rows].tolist()],
        overlap[rows].tolist(),
        [-1 if k < 0 else tables.objects.instances[k].index for k in partner[rows].tolist()],
        ["" if k < 0 else tables.objects.instances[k].class_name for k in partner[rows].tolist()],
        *found.boxes[rows].T.tolist(),
    )
    return tuple(map(FalsePositive._make, zip(*columns, strict=True)))


def _list_missed(tables: Tables, matches: Matches, class_ids: Sequence[int]) -> tuple[MissedObject, ...]:
    objects = tables.objects
    is_found = np.zeros(len(objects), dtype=bool)
    is_found[matches.partner[matches.outcome == HIT]] = True
    rows = np.flatnonzero(objects.counts & ~is_found & np.isin(objects.classes, class_ids))
    columns = (
        [tables.records[k].image_id for k in objects.images[rows].tolist()],
        [objects.instances[k].index for k in rows.tolist()],
        [objects.instances[k].class_name for k in rows.tolist()],
        matches.best[rows].tolist(),
    )
    return tuple(map(MissedObject._make, zip(*columns, strict=True)))


def _cells(counts: ErrorCounts) -> tuple[Any, ...]:
    kinds = (getattr(counts, kind) for kind in ERROR_KINDS)
    return (counts.class_name, counts.n_objects, counts.n_detections, counts.n_hits, *kinds, counts.n_missed)
