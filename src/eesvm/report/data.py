"""All that a report shows, as plain data.

In: numbers and texts that others have computed. Out: `ReportData` and its parts: frozen dataclasses of numbers, texts,
tuples and bytes, and `to_json`, which the script of the page reads under the same names.
Classes, exemplars, scenes and images are named by their place in the tuples of `ReportData`. Boxes are x1, y1, x2, y2
in pixels of the image as it was, whatever size it is shown at. What is not known is None.
Not here: computing (`gather`) and looks (`page`).
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from eesvm.report.static_page import Picture, Table

RIGHT, IGNORED, UNJUDGED = "right", "ignored", "unjudged"  # kinds of detections, beside `metrics.ERROR_KINDS`
ACTIVE, MUTED, REDUNDANT, UNKNOWN = "active", "muted", "redundant", "unknown"  # states of exemplars

BoxTuple = tuple[float, float, float, float]


@dataclass(frozen=True)
class Image:
    """An image file that the page holds once, however often it shows it."""

    mime: str  # such as "image/jpeg"
    content: bytes  # of the file


@dataclass(frozen=True)
class Object:
    """An annotated object of a scene."""

    class_name: str
    box: BoxTuple
    must_be_found: bool  # False for difficult ones and crowds


@dataclass(frozen=True)
class Scene:
    """An image in which something was found or missed."""

    image_id: str
    width: int
    height: int
    image: int | None  # None where it could not be read
    objects: tuple[Object, ...] = ()


@dataclass(frozen=True)
class Mask:
    """The outline of a mask in an image."""

    outline: str  # an SVG path in a box of `outline_size`
    outline_size: tuple[int, int]
    place: BoxTuple  # where that box lies in the image


@dataclass(frozen=True)
class ShownDetection:
    """A detection that the page shows."""

    scene: int
    class_id: int
    score: float
    box: BoxTuple
    exemplar: int | None
    kind: str = UNJUDGED  # RIGHT, one of `metrics.ERROR_KINDS`, IGNORED or UNJUDGED
    iou: float | None = None  # with `object`
    object: int | None = None  # of the scene: what it hits, or what its error is about
    is_surest: bool = False  # whether it is one of the N surest of its class, which has N objects
    is_own_image: bool = False  # whether its exemplar is an object of the same image
    mask: Mask | None = None  # that it inherits, refined by the image


@dataclass(frozen=True)
class Missed:
    """An object that no detection found."""

    scene: int
    object: int
    class_id: int
    best_iou: float  # of a detection of its class


@dataclass(frozen=True)
class Histogram:
    """How often scores of training windows fall between equally spaced edges from `low` to `high`."""

    low: float
    high: float
    positives: tuple[int, ...]  # positive windows in each bin
    negatives: tuple[int, ...]  # negative ones


@dataclass(frozen=True)
class Coverage:
    """What a threshold accepts among the training windows of the class."""

    positives_responsible: int  # that it accepts by a larger margin than any other exemplar
    positives_accepted: int
    negatives_accepted: int
    negatives_accepted_alone: int  # by it and nobody else
    objects: tuple[tuple[int, int], ...]  # exemplars whose windows it is responsible for, and how many of them
    n_elsewhere: int = 0  # windows it is responsible for whose object is no exemplar


@dataclass(frozen=True)
class Exemplar:
    """A training object with its detector."""

    class_id: int
    image_id: str
    index: int  # among the objects of its image
    width: float  # of its box
    height: float
    image: int | None = None
    outline: str = ""  # of its mask: an SVG path in a box of `outline_size`; "" where there is none
    outline_size: tuple[int, int] = (1, 1)
    parts: tuple[tuple[str, BoxTuple], ...] = ()  # in shares of its box
    keypoints: tuple[tuple[str, float, float], ...] = ()  # likewise
    labels: tuple[tuple[str, str], ...] = ()  # pose and metadata
    state: str = UNKNOWN
    threshold: float | None = None  # None also for a redundant one, which accepts nothing
    scores: Histogram | None = None
    coverage: Coverage | None = None
    n_windows: int = 0  # positive training windows that show this object
    n_detections: int = 0  # that it won, shown or not
    n_right: int = 0  # of the N surest of its class, which has N objects
    n_wrong: int = 0  # likewise
    best_score: float | None = None
    is_mirrored: bool = False


@dataclass(frozen=True)
class Curve:
    """How a class was found when all detections down to a score are kept; one entry per point, highest score first."""

    score: tuple[float, ...]
    recall: tuple[float, ...]
    precision: tuple[float, ...]
    false_positives: tuple[int, ...]  # so far


@dataclass(frozen=True)
class Floor:
    """The joint calibration when only a share of the positives must be accepted."""

    floor: float  # that share, by weight
    loss: float
    lower_bound: float
    n_left_out: int  # positives that nobody accepts
    status: str


@dataclass(frozen=True)
class Search:
    """The joint calibration of a class."""

    loss: float
    lower_bound: float
    gap: float
    status: str
    recall: float
    min_recall: float
    across_images: bool
    seconds: float
    n_nodes: int
    n_positives: int
    n_negatives: int
    n_redundant: int
    history: tuple[tuple[float, float, float], ...] = ()  # seconds, loss, lower bound
    floors: tuple[Floor, ...] = ()


@dataclass(frozen=True)
class ErrorCount:
    """Detections of a class by kind."""

    n_detections: int
    n_hits: int
    kinds: tuple[tuple[str, int], ...]  # false positives of each kind
    n_missed: int  # objects


@dataclass(frozen=True)
class Class:
    """One class of the model, or of the detections."""

    name: str
    n_exemplars: int
    n_detections: int
    n_objects: int | None = None
    n_hits: int | None = None
    average_precision: float | None = None
    curve: Curve | None = None
    top_errors: ErrorCount | None = None  # among the N surest detections of a class with N objects
    errors: ErrorCount | None = None  # among all
    search: Search | None = None


@dataclass(frozen=True)
class Fact:
    """A figure of the summary."""

    name: str
    value: str  # as it is shown
    note: str = ""  # what it means


@dataclass(frozen=True)
class Section:
    """Whatever else belongs to the report: a heading, paragraphs, tables, pictures."""

    title: str  # the heading
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class ReportData:
    """The whole report."""

    title: str
    headline: str
    facts: tuple[Fact, ...] = ()
    notes: tuple[str, ...] = ()  # what was left out, and what to be careful about
    has_truth: bool = False
    is_joint: bool = True  # whether the detections were made with the joint thresholds
    classes: tuple[Class, ...] = ()
    exemplars: tuple[Exemplar, ...] = ()  # in the order of the model
    scenes: tuple[Scene, ...] = ()
    detections: tuple[ShownDetection, ...] = ()  # highest score first
    n_detections: int = 0  # shown or not
    missed: tuple[Missed, ...] = ()
    n_missed: int = 0
    images: tuple[Image, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    sections: tuple[Section, ...] = ()
    footer: str = ""

    def to_json(self) -> str:
        """The data as JSON in ASCII: numbers to nine digits, bytes in base 64, what is no number as null."""
        return json.dumps(_plain(self), allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
