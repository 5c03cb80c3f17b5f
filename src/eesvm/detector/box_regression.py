"""Box regression: how far, and which way, a window of a class lies from its object, read off the window's descriptor.

In: the training windows that overlap an object of a class, their descriptors and the objects' boxes. Out: a
`BoxRegressor`, which moves the boxes of new windows. One linear map a class, by ridge regression, as in R-CNN; how
strongly it is held back is chosen by how well it does on images that it was not fitted to. Where it is not clearly
better there than leaving boxes as they are, there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from eesvm import boxes as box_functions
from eesvm._support.threads import workers
from eesvm.detector.training_table import TrainingWindows

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

# How strongly the map is held back, in units of the mean squared distance of descriptors from their mean; the last
# leaves little more than a constant.
PENALTIES = (*(10.0 ** (exponent / 2) for exponent in range(-3, 5)), 1e4)

_MIN_OVERLAP = 0.5  # IoU of a window with the object that it is a window of
_FURTHEST_SHIFT, _LARGEST_GROWTH = 0.5, float(np.log(2))  # what two boxes with an IoU of 0.5 can differ by
_FOLDS = 5
_BLOCK = 256  # columns of long descriptors that are looked at together

# What is fitted to is bounded, so that a class takes seconds and about a quarter of a gigabyte at most.
_MOST_WINDOWS = 10_000
_MOST_UNKNOWNS = 2_000  # windows of longer descriptors, which have as many directions as there are windows
_MOST_NUMBERS = 1 << 23  # of all descriptors together


@dataclass(frozen=True)
class BoxRegressor:
    """A linear map from descriptors to the way from a window to its object."""

    weights: F32  # (d, 4)
    constant: F32  # (4,)
    n_windows: int  # that it was fitted to
    left: float  # of the mean squared way, the share that is left in images that it was not fitted to

    def move(self, boxes: F64, descriptors: F32) -> F64:
        """(n, 4) the boxes of the windows of an image, moved, but not beyond what these windows cover together.

        Parameters
        ----------
        boxes : (n, 4) the windows of one image, half-open xyxy.
        descriptors : (n, d) of these windows.
        """
        if not len(boxes):
            return np.empty((0, 4))
        moved = moved_by(boxes, np.asarray(descriptors @ self.weights + self.constant, dtype=np.float64))
        first, last = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
        return np.clip(moved, np.tile(first, 2), np.tile(last, 2))


def regress_boxes(windows: TrainingWindows, class_name: str, random_state: int = 0) -> BoxRegressor | None:
    """The box regressor of a class; None where its windows do not say where their objects are.

    Parameters
    ----------
    windows : of the training images.
    class_name : whose objects the boxes are moved to.
    random_state : seeds the draw of windows, where there are too many, and of the folds.
    """
    rows, targets = windows_of_objects(windows, class_name)
    dimension = windows.descriptors.shape[1]
    most = min(_MOST_WINDOWS if dimension <= _MOST_UNKNOWNS else _MOST_UNKNOWNS, _MOST_NUMBERS // dimension)
    if len(rows) > most:
        chosen = np.sort(np.random.default_rng(random_state).choice(len(rows), most, replace=False))
        rows, targets = rows[chosen], targets[chosen]
    with workers(1):  # dozens of small systems: threads would wait for each other, and change last bits
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
    there are fewer images than folds, or where the gain on images left out could well be chance.
    """
    names, image_of = np.unique(images, return_inverse=True)
    if len(names) < _FOLDS:
        return None
    ways = ways_between(boxes, targets)
    centre = descriptors.mean(axis=0, dtype=np.float64)
    rows, directions = _coordinates(descriptors, centre)
    folds = (np.random.default_rng(random_state).permutation(len(names)) % _FOLDS)[image_of]
    everything = _Moments.of(rows, ways)
    left = np.empty((len(PENALTIES), len(ways)))  # squared, of each window, by regressors that have not seen its image
    for fold in range(_FOLDS):
        own = folds == fold
        others = everything - _Moments.of(rows[own], ways[own])
        for number, penalty in enumerate(PENALTIES):
            weights, constant = others.solved(penalty)
            left[number, own] = ((rows[own] @ weights + constant - ways[own]) ** 2).sum(axis=1)
    best = int(left.sum(axis=1).argmin())
    squared = (ways**2).sum(axis=1)
    if not _is_gain(np.bincount(image_of, squared - left[best]).astype(np.float64)):
        return None
    weights, constant = everything.solved(PENALTIES[best])
    if directions is not None:
        weights = directions @ weights
    return BoxRegressor(
        weights.astype(np.float32),
        (constant - centre @ weights).astype(np.float32),
        len(boxes),
        float(left[best].sum() / squared.sum()),
    )


def _is_gain(of_images: F64) -> bool:
    """Whether images gain more than the standard error of their mean: the best of many penalties tends to gain."""
    error = of_images.std(ddof=1) / np.sqrt(len(of_images))
    return bool(of_images.mean() > error)


def _coordinates(descriptors: F32, centre: F64) -> tuple[F64, F64 | None]:
    """(n, k) the descriptors about their centre, and (d, k) the directions these are along, None for the given ones.

    Of n descriptors longer than n, ridge regression uses nothing but what lies along n directions.
    """
    n, d = descriptors.shape
    if d <= n:
        return descriptors - centre, None
    blocks = [slice(start, start + _BLOCK) for start in range(0, d, _BLOCK)]
    products = np.zeros((n, n))
    for block in blocks:
        part = descriptors[:, block] - centre[block]
        products += part @ part.T
    values, vectors = scipy.linalg.eigh(products)
    used = values > max(values[-1], 0.0) * n * np.finfo(np.float64).eps
    lengths = np.sqrt(values[used])
    directions = np.empty((d, int(used.sum())))
    for block in blocks:
        directions[block] = (descriptors[:, block] - centre[block]).T @ (vectors[:, used] / lengths)
    return vectors[:, used] * lengths, directions


@dataclass(frozen=True)
class _Moments:
    """All that ridge regression needs to know of some windows."""

    n: int
    rows: F64  # (k,) sum
    ways: F64  # (4,) sum
    gram: F64  # (k, k)
    product: F64  # (k, 4) with the ways

    @classmethod
    def of(cls, rows: F64, ways: F64) -> _Moments:
        return cls(len(rows), rows.sum(axis=0), ways.sum(axis=0), rows.T @ rows, rows.T @ ways)

    def __sub__(self, other: _Moments) -> _Moments:
        return _Moments(
            self.n - other.n,
            self.rows - other.rows,
            self.ways - other.ways,
            self.gram - other.gram,
            self.product - other.product,
        )

    def solved(self, penalty: float) -> tuple[F64, F64]:
        """(k, 4) weights and (4,) the constant, which is not held back."""
        mean, mean_way = self.rows / self.n, self.ways / self.n
        system = self.gram - self.n * np.outer(mean, mean)
        mean_square = np.trace(system) / self.n
        system[np.diag_indices_from(system)] += penalty * mean_square if mean_square > 0 else 1.0
        product = self.product - self.n * np.outer(mean, mean_way)
        weights = scipy.linalg.cho_solve(scipy.linalg.cho_factor(system, overwrite_a=True), product)
        return weights, mean_way - mean @ weights


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
