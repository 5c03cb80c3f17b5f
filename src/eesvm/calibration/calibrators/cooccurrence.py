"""The co-occurrence matrix of the original E-SVM code ("M"): exemplars that fire together vouch for each other.

In: a score table, labels, and of every window its box and its image. Out: `CooccurrenceCalibrator`.
A detection is a window and an exemplar that scores it at least -1 and keeps it when its own windows are suppressed. Its
context is, for every exemplar, the best score + 1 of a detection that overlaps it. Learning counts which exemplars are
in the context of right detections; a detection then scores the sum of its context, plus the same sum with these counts
for weights. Boxes are plain (n, 4) arrays of x1, y1, x2, y2, half-open.
It is a heuristic, as its author says, and breaks the association: a score no longer belongs to one exemplar alone, all
that overlap earn it. `assign` still names the exemplar of the detection.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import inner, kernel
from eesvm._support.validation import FloatArray, InputError, check_finite, check_groups, check_number, group_ids
from eesvm.calibration.calibrators.base import ScoreCalibrator, winning_exemplar

_Floats = NDArray[np.float64]


class CooccurrenceCalibrator(ScoreCalibrator):
    """Scores that grow with the exemplars that fire on the same place and did so on positives; positive above 1.

    With x the context of a detection of exemplar e, and M the learned matrix, its calibrated score is
    `sum(x) + M[:, e] @ x`, which is never below 0. Where an exemplar has no detection at a window, `transform` gives a
    number below 0 that rises with the raw score, so such windows rank below all detections and among themselves by
    their highest score. A lone detection on the decision boundary of its SVM (raw score 0) has a context of 1, hence
    "positive above 1". `assign` takes the highest calibrated score, then the highest raw one, then the lower index.

    What a window scores depends on the other windows of its image: hand over whole images. All methods need `boxes`
    (n, 4), half-open xyxy, and `groups` (n,), the image of each window.

    Parameters
    ----------
    margin : lowest raw score of a detection; scores count from here on.
    suppression : a window goes where a better one of the same exemplar covers more than this share of its area.
    max_detections : of an exemplar in an image.
    min_overlap : IoU from which on two detections are at the same place.
    min_truth : overlap with the truth from which on a detection is learned from.
    pos_label, missing : the positive label and what missing scores mean, see `ScoreCalibrator`.

    Attributes
    ----------
    matrix_ : (E, E) M[a, e] is how much exemplar a vouches for detections of exemplar e; 0 or more.
    n_learned_ : int, the detections it was learned from.
    """

    _accept_above = 1.0

    def __init__(
        self,
        margin: float = -1.0,
        suppression: float = 0.5,
        max_detections: int = 10,
        min_overlap: float = 0.5,
        min_truth: float = 0.5,
        pos_label: Any = None,
        missing: str = "refuse",
    ) -> None:
        self.margin = margin
        self.suppression = suppression
        self.max_detections = max_detections
        self.min_overlap = min_overlap
        self.min_truth = min_truth
        self.pos_label = pos_label
        self.missing = missing

    def fit(
        self,
        S: Any,
        y: Any,
        boxes: Any = None,
        groups: Any = None,
        overlaps: Any = None,
        exemplar_groups: Any = None,
    ) -> Self:
        """Learn from the scores, labels and places of the windows of whole images.

        Parameters
        ----------
        S : (n_windows, n_exemplars) scores.
        y : (n_windows,) labels with two values, of which `pos_label` is positive.
        boxes : (n_windows, 4) half-open xyxy; needed.
        groups : (n_windows,) the image of each window; needed.
        overlaps : (n,) IoU of each window with the object it covers best. Default: 1 for positives, 0 for negatives.
        exemplar_groups : (E,) the image each exemplar comes from; its detections there are left out. Default: none is.
        """
        scores, is_positive, classes = self._check_training(S, y)
        check_options(self)
        places = _check_places(boxes, groups, len(scores))
        truth = is_positive.astype(np.float64) if overlaps is None else _check_overlaps(overlaps, len(scores))
        own = _own_images(places, exemplar_groups, scores.shape[1])
        self.matrix_ = np.zeros((scores.shape[1],) * 2)
        self.n_learned_ = 0
        for image, rows in places.images():
            forbidden = None if own is None else own == image
            context = self._context(scores, places, rows, forbidden)
            self.n_learned_ += learn(self.matrix_, context, truth[context.windows], self.min_truth)
        self.classes_ = classes  # last, as it is what makes a calibrator count as fitted
        return self

    def fit_transform(self, S: Any, y: Any = None, boxes: Any = None, groups: Any = None, **options: Any) -> FloatArray:
        """`fit`, then `transform` of the same windows.

        Parameters
        ----------
        S, y, boxes, groups : of the windows, see `fit`.
        options : `overlaps` and `exemplar_groups` of `fit`.
        """
        return self.fit(S, y, boxes, groups, **options).transform(S, boxes, groups)

    def transform(self, S: Any, boxes: Any = None, groups: Any = None) -> FloatArray:
        """(n_windows, n_exemplars) calibrated scores; below 0 where the exemplar has no detection.

        Parameters
        ----------
        S : (n_windows, n_exemplars) scores.
        boxes : (n_windows, 4) half-open xyxy; needed.
        groups : (n_windows,) the image of each window; needed.
        """
        scores = self._check_scores(S)
        calibrated = np.empty(scores.shape)
        for rows, block in self._by_image(scores, boxes, groups):
            calibrated[rows] = block
        return calibrated

    def decision_function(self, S: Any, boxes: Any = None, groups: Any = None) -> FloatArray:
        """(n_windows,) the highest calibrated score of each window.

        Parameters
        ----------
        S, boxes, groups : of the windows, see `transform`.
        """
        scores = self._check_scores(S)
        highest = np.empty(len(scores))
        for rows, block in self._by_image(scores, boxes, groups):
            highest[rows] = block.max(axis=1)
        return highest

    def predict(self, S: Any, boxes: Any = None, groups: Any = None) -> np.ndarray:
        """(n_windows,) labels.

        Parameters
        ----------
        S, boxes, groups : of the windows, see `transform`.
        """
        is_accepted = self.decision_function(S, boxes, groups) > self._accept_above
        return self.classes_[is_accepted.astype(np.intp)]

    def assign(self, S: Any, boxes: Any = None, groups: Any = None) -> NDArray[np.intp]:
        """(n_windows,) the exemplar with the highest calibrated score.

        Parameters
        ----------
        S, boxes, groups : of the windows, see `transform`.
        """
        scores = self._check_scores(S)
        winners = np.empty(len(scores), dtype=np.intp)
        for rows, block in self._by_image(scores, boxes, groups):
            winners[rows] = winning_exemplar(block, scores[rows])
        return winners

    def _calibrate(self, scores: FloatArray) -> FloatArray:
        raise InputError(_NEEDS_BOXES)

    def _by_image(self, scores: FloatArray, boxes: Any, groups: Any) -> Iterator[tuple[NDArray[np.intp], _Floats]]:
        """Rows of each image and their calibrated scores."""
        places = _check_places(boxes, groups, len(scores))
        for _, rows in places.images():
            block = below_detections(scores[rows])
            context = self._context(scores, places, rows, None)
            at = np.searchsorted(rows, context.windows)  # rows rise within an image
            block[at] = np.where(context.is_detection, support(context, self.matrix_), block[at])
            yield rows, block

    def _context(
        self, scores: FloatArray, places: _Places, rows: NDArray[np.intp], forbidden: NDArray[np.bool_] | None
    ) -> Context:
        block = scores[rows]
        if forbidden is not None:
            block[:, forbidden] = -np.inf
        return find_context(
            block,
            places.boxes[rows],
            rows,
            margin=self.margin,
            suppression=self.suppression,
            max_detections=self.max_detections,
            min_overlap=self.min_overlap,
        )


@dataclass(frozen=True)
class Context:
    """The windows of an image that have a detection, and what fires around them."""

    windows: NDArray[np.intp]  # (w,) their rows in the table
    is_detection: NDArray[np.bool_]  # (w, E) whether the exemplar has a detection there
    scores: (
        _Floats  # (w, E) the best score, counted from the margin, of a detection of the exemplar that overlaps; 0: none
    )


def find_context(
    scores: FloatArray,
    boxes: _Floats,
    rows: NDArray[np.intp],
    margin: float = -1.0,
    suppression: float = 0.5,
    max_detections: int = 10,
    min_overlap: float = 0.5,
) -> Context:
    """Detections among the windows of one image, (n, E) scores at (n, 4) boxes, and their context."""
    may_fire = np.flatnonzero((scores >= margin).any(axis=1))  # most windows of an image are left behind here
    near = np.ascontiguousarray(scores[may_fire], dtype=np.float64)
    kept = _suppress(near, boxes[may_fire], margin, suppression, max_detections)
    fires = np.flatnonzero(kept.any(axis=1))
    is_detection, heights = kept[fires], near[fires] - margin
    windows = may_fire[fires]
    return Context(rows[windows], is_detection, _best_around(heights, is_detection, boxes[windows], min_overlap))


def learn(matrix: _Floats, context: Context, truth: _Floats, min_truth: float) -> int:
    """Add an image to the matrix, in place; returns how many detections were learned from.

    A detection with overlap o >= `min_truth` with the truth and k exemplars in its context adds o / k in its column, at
    each of the k.
    """
    is_active = context.scores > 0
    n_active = is_active.sum(axis=1)
    is_used = (truth >= min_truth) & (n_active > 0)
    shares = np.where(is_used, truth / np.maximum(n_active, 1), 0.0)
    matrix += is_active.T.astype(np.float64) @ (context.is_detection * shares[:, None])
    return int(context.is_detection[is_used].sum())


def support(context: Context, matrix: _Floats) -> _Floats:
    """(w, E) for a detection of each exemplar at each window the sum of its context and its weighted sum."""
    return context.scores.sum(axis=1, keepdims=True) + context.scores @ matrix


def below_detections(scores: FloatArray) -> _Floats:
    """Raw scores as numbers below 0 in the same order: s - 1 up to 0, and -1 / (1 + s) above."""
    raw = scores.astype(np.float64)
    return np.where(raw <= 0, raw - 1, -1 / (1 + np.maximum(raw, 0)))


def check_options(calibrator: CooccurrenceCalibrator) -> None:
    """The parameters, whether they come from a caller or a file."""
    check_number(calibrator.margin, "margin")
    check_number(calibrator.max_detections, "max_detections", minimum=1, integer=True)
    check_number(calibrator.suppression, "suppression", minimum=0, maximum=1)
    check_number(calibrator.min_overlap, "min_overlap", above=0, maximum=1)
    check_number(calibrator.min_truth, "min_truth", above=0, maximum=1)


_NEEDS_BOXES = "`boxes` and `groups` must be given: co-occurrence looks at what overlaps in the same image"


@dataclass(frozen=True)
class _Places:
    """Where the windows are."""

    boxes: _Floats  # (n, 4)
    image_ids: NDArray[np.intp]  # (n,)
    groups: np.ndarray  # (n,) as the caller named them

    def images(self) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Each image and its rows, which rise."""
        order = np.argsort(self.image_ids, kind="stable")
        starts = np.flatnonzero(np.diff(self.image_ids[order], prepend=-1))
        for rows in np.split(order, starts[1:]):
            yield int(self.image_ids[rows[0]]), rows


def _check_places(boxes: Any, groups: Any, n: int) -> _Places:
    if boxes is None or groups is None:
        raise InputError(_NEEDS_BOXES)
    try:
        table = np.ascontiguousarray(boxes, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("`boxes` must be an (n, 4) table of numbers") from error
    if table.shape != (n, 4):
        raise InputError(f"`boxes` must have one box per window, shape ({n}, 4), got shape {table.shape}")
    check_finite(table, "boxes")
    images = check_groups(groups, n, "groups", "window")
    return _Places(table, group_ids(images, names=("groups",))[0], images)


def _check_overlaps(overlaps: Any, n: int) -> _Floats:
    try:
        truth = np.asarray(overlaps, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("`overlaps` must hold numbers") from error
    if truth.shape != (n,):
        raise InputError(f"`overlaps` must have one value per window, shape ({n},), got shape {truth.shape}")
    check_finite(truth, "overlaps")
    if truth.min() < 0 or truth.max() > 1:
        raise InputError(f"`overlaps` must lie between 0 and 1, got {truth.min():g} to {truth.max():g}")
    return truth


def _own_images(places: _Places, exemplar_groups: Any, n_exemplars: int) -> NDArray[np.intp] | None:
    """(E,) the id of the image that each exemplar comes from, as in `places`."""
    if exemplar_groups is None:
        return None
    origins = check_groups(exemplar_groups, n_exemplars, "exemplar_groups", "exemplar")
    together, own = group_ids(places.groups, origins, names=("groups", "exemplar_groups"))
    known = dict(zip(together.tolist(), places.image_ids.tolist(), strict=True))
    return np.array([known.get(image, -1) for image in own.tolist()], dtype=np.intp)


@kernel()
def _suppress(scores: _Floats, boxes: _Floats, margin: float, share: float, limit: int) -> NDArray[np.bool_]:
    """(n, E) what is left of the windows that an exemplar scores at least `margin`, best first, at most `limit`.

    A window goes where a kept one covers more than `share` of its area. Of equal scores the lower row comes first.
    """
    n, n_exemplars = scores.shape
    kept = np.zeros((n, n_exemplars), dtype=np.bool_)
    chosen = np.empty(limit, dtype=np.int64)
    for exemplar in range(n_exemplars):
        candidates = np.flatnonzero(scores[:, exemplar] >= margin)
        order = np.argsort(-scores[candidates, exemplar], kind="mergesort")
        n_chosen = 0
        for position in order:
            if n_chosen == limit:
                break
            i = candidates[position]
            is_free = True
            for k in range(n_chosen):
                if _intersection(boxes, chosen[k], i) > share * _area(boxes, i):
                    is_free = False
                    break
            if is_free:
                chosen[n_chosen] = i
                n_chosen += 1
                kept[i, exemplar] = True
    return kept


@kernel()
def _best_around(heights: _Floats, is_detection: NDArray[np.bool_], boxes: _Floats, least: float) -> _Floats:
    """(w, E) the best height of a detection of each exemplar at the same place; a window is at its own place."""
    n, n_exemplars = heights.shape
    best = np.zeros((n, n_exemplars))
    window, exemplar = np.nonzero(is_detection)  # window by window, with few exemplars each
    starts = np.searchsorted(window, np.arange(n + 1))
    for i in range(n):
        for j in range(n):
            common = _intersection(boxes, i, j)
            if i == j or (common > 0 and common >= least * (_area(boxes, i) + _area(boxes, j) - common)):
                for k in range(starts[j], starts[j + 1]):
                    best[i, exemplar[k]] = max(best[i, exemplar[k]], heights[j, exemplar[k]])
    return best


@inner()
def _area(boxes: _Floats, i: int) -> float:
    return max(0.0, boxes[i, 2] - boxes[i, 0]) * max(0.0, boxes[i, 3] - boxes[i, 1])


@kernel()
def _intersection(boxes: _Floats, i: int, j: int) -> float:
    width = min(boxes[i, 2], boxes[j, 2]) - max(boxes[i, 0], boxes[j, 0])
    height = min(boxes[i, 3], boxes[j, 3]) - max(boxes[i, 1], boxes[j, 1])
    return width * height if width > 0 and height > 0 else 0.0
