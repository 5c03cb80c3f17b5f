"""Box regression: how far, and which way, a window of a class lies from its object, read off the window's descriptor.

In: the training windows that overlap an object of a class, their descriptors and the objects' boxes. Out: a
`BoxRegressor`, which moves the boxes of new windows. One linear map a class, by ridge regression, as in R-CNN; how
strongly it is held back is chosen by how well it does on images that it was not fitted to, and where it does no better
there than leaving boxes as they are, there is none.
Absent on purpose: scores, which stay those of the window as it was proposed, and exemplars, who stay the winners.

Before: `training_windows`. After: `detector_model`, `detector_run`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eesvm import boxes as box_functions
from eesvm.training_windows import TrainingWindows

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

# How strongly the map is held back, in units of the mean squared length of descriptors; the last leaves little more
# than a constant.
PENALTIES = (*(10.0 ** (exponent / 2) for exponent in range(-3, 5)), 1e4)

_MIN_OVERLAP = 0.5  # IoU of a window with the object that it is a window of
_FURTHEST_SHIFT, _LARGEST_GROWTH = 0.5, float(np.log(2))  # what two boxes with an IoU of 0.5 can differ by
_FOLDS = 5
_MOST_WINDOWS = 20_000
_MOST_UNKNOWNS = 3_000  # longer descriptors are fitted to that many windows, which makes that many unknowns


@dataclass(frozen=True)
class BoxRegressor:
    """A linear map from descriptors to the way from a window to its object."""

    weights: F32  # (d, 4)
    constant: F32  # (4,)
    n_windows: int  # that it was fitted to
    left: float  # of the mean squared way, the share that is left in images that it was not fitted to

    def move(self, boxes: F64, descriptors: F32, image_size: tuple[int, int] | None = None) -> F64:
        """(n, 4) the boxes of windows with these descriptors, moved; within an image of this width and height."""
        moved = moved_by(boxes, np.asarray(descriptors @ self.weights + self.constant, dtype=np.float64))
        return moved if image_size is None else box_functions.clip(moved, *image_size)


def regress_boxes(windows: TrainingWindows, class_name: str, random_state: int = 0) -> BoxRegressor | None:
    """The box regressor of a class; None where its windows do not say where their objects are."""
    rows, targets = windows_of_objects(windows, class_name)
    dimension = windows.descriptors.shape[1]
    most = _MOST_WINDOWS if dimension <= _MOST_UNKNOWNS else _MOST_UNKNOWNS
    if len(rows) > most:
        chosen = np.sort(np.random.default_rng(random_state).choice(len(rows), most, replace=False))
        rows, targets = rows[chosen], targets[chosen]
    return fit_boxes(windows.descriptors[rows], windows.boxes[rows], targets, windows.image[rows], random_state)


def windows_of_objects(windows: TrainingWindows, class_name: str) -> tuple[NDArray[np.intp], F64]:
    """(n,) proposals that are windows of an object of the class, and (n, 4) the box of that object."""
    rows: list[NDArray[np.intp]] = []
    targets: list[F64] = []
    for k, record in enumerate(windows.records):
        objects = [
            instance.box
            for instance in record.instances
            if instance.class_name == class_name and not (instance.is_difficult or instance.is_crowd)
        ]
        if not objects:
            continue
        start, stop = windows.starts[k], windows.starts[k + 1]
        overlaps = box_functions.iou(windows.boxes[start:stop], np.array(objects))
        found = np.flatnonzero((overlaps.max(axis=1) >= _MIN_OVERLAP) & (windows.instance[start:stop] < 0))
        rows.append(start + found)
        targets.append(np.array(objects, dtype=np.float64)[overlaps[found].argmax(axis=1)])
    if not rows:
        return np.empty(0, dtype=np.intp), np.empty((0, 4))
    return np.concatenate(rows), np.concatenate(targets)


def fit_boxes(
    descriptors: F32, boxes: F64, targets: F64, images: NDArray[np.int64], random_state: int = 0
) -> BoxRegressor | None:
    """The regressor from windows with these descriptors and boxes to the boxes of their objects.

    `images` says which image each window is of: each fold of the cross-validation leaves some images out. None where
    there are fewer than two, or where the windows are left best as they are.
    """
    names, fold_of = np.unique(images, return_inverse=True)
    n_folds = min(_FOLDS, len(names))
    if n_folds < 2:
        return None
    folds = (np.random.default_rng(random_state).permutation(len(names)) % n_folds)[fold_of]
    ways = ways_between(boxes, targets)
    # Beyond as many numbers as there are windows descriptors hold nothing that ridge regression would use.
    basis = np.linalg.qr(descriptors.T.astype(np.float64))[0] if descriptors.shape[1] > len(descriptors) else None
    parts = [_Moments.of(descriptors[folds == k], ways[folds == k], basis) for k in range(n_folds)]
    everything = sum(parts[1:], start=parts[0])
    held_out = np.zeros(len(PENALTIES))
    for part in parts:
        others = everything - part
        for number, penalty in enumerate(PENALTIES):
            held_out[number] += part.squared_error(others.solved(penalty))
    left = float(held_out.min() / everything.squared_ways) if everything.squared_ways > 0 else 1.0
    if not left < 1:
        return None
    solution = everything.solved(PENALTIES[int(held_out.argmin())])
    weights = solution[:-1] if basis is None else basis @ solution[:-1]
    return BoxRegressor(weights.astype(np.float32), solution[-1].astype(np.float32), len(boxes), left)


@dataclass(frozen=True)
class _Moments:
    """All that ridge regression needs to know of some windows; a last column of ones stands for the constant."""

    gram: F64  # (d + 1, d + 1)
    product: F64  # (d + 1, 4) with the ways
    squared_ways: float

    @classmethod
    def of(cls, descriptors: F32, ways: F64, basis: F64 | None) -> _Moments:
        rows = descriptors.astype(np.float64)
        rows = np.column_stack([rows if basis is None else rows @ basis, np.ones(len(rows))])
        return cls(rows.T @ rows, rows.T @ ways, float((ways**2).sum()))

    def __add__(self, other: _Moments) -> _Moments:
        return _Moments(self.gram + other.gram, self.product + other.product, self.squared_ways + other.squared_ways)

    def __sub__(self, other: _Moments) -> _Moments:
        return _Moments(self.gram - other.gram, self.product - other.product, self.squared_ways - other.squared_ways)

    def solved(self, penalty: float) -> F64:
        """(d + 1, 4) the weights; the constant is not held back."""
        n_windows = self.gram[-1, -1]
        mean_square = np.trace(self.gram[:-1, :-1]) / n_windows
        held_back = np.full(len(self.gram), penalty * (mean_square or 1.0))
        held_back[-1] = 0
        return np.asarray(np.linalg.solve(self.gram + np.diag(held_back), self.product), dtype=np.float64)

    def squared_error(self, solution: F64) -> float:
        """Of the ways that a solution gives these windows."""
        crossed = (solution * self.product).sum()
        return float(self.squared_ways - 2 * crossed + (solution * (self.gram @ solution)).sum())


def ways_between(boxes: F64, targets: F64) -> F64:
    """(n, 4) from boxes to targets: the shift of the centre in units of the box, and the logarithm of its growth."""
    centres, sizes = _centres_and_sizes(boxes)
    target_centres, target_sizes = _centres_and_sizes(targets)
    return np.hstack([(target_centres - centres) / sizes, np.log(target_sizes / sizes)])


def moved_by(boxes: F64, ways: F64) -> F64:
    """(n, 4) the boxes at the end of these ways, of which none is longer than that of a window to its object."""
    centres, sizes = _centres_and_sizes(boxes)
    centres = centres + np.clip(ways[:, :2], -_FURTHEST_SHIFT, _FURTHEST_SHIFT) * sizes
    sizes = sizes * np.exp(np.clip(ways[:, 2:], -_LARGEST_GROWTH, _LARGEST_GROWTH))
    return np.hstack([centres - sizes / 2, centres + sizes / 2])


def _centres_and_sizes(boxes: F64) -> tuple[F64, F64]:
    return (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
