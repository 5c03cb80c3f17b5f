"""What may follow a descriptor: principal components, a kernel map, and scaling to a mean norm.

In: rows (n, d). Out: rows. All are fitted on a sample of rows, remember plain arrays only, and go to `.npz` files and
back without pickle. `Transformed` puts them behind a descriptor and is a descriptor itself, whose parameters name the
fitted arrays, so that a cache never confuses two fits.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from eesvm._support.archives import load_named_arrays
from eesvm._support.files import atomic_write
from eesvm._support.threads import one_product_thread
from eesvm._support.validation import InputError, check_number, check_table, row_blocks
from eesvm.descriptors.base import Descriptor, Image, Rows

_LEAST_VALUE = 1e-6  # of the largest: a direction in which landmarks vary less is rounding
_MAPPED_TOGETHER = 1 << 12  # rows
_EXACT_SIDE = 512  # of a sample: up to so many rows or columns float64 takes no time
_LEAST_SHARE = 1e-4  # of the variance along the first direction: one with less is near rounding in float32


class _Fitted:
    """Saving and loading of named arrays, and a hash of them."""

    kind: ClassVar[str]
    names: ClassVar[tuple[str, ...]]  # of the fitted arrays, which are attributes with a trailing underscore
    dimensions: ClassVar[tuple[int, ...]]  # of each of them

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The fitted arrays by name."""
        if not hasattr(self, f"{self.names[0]}_"):
            raise InputError(f"this {type(self).__name__} is not fitted yet: call `fit` with a sample of descriptors")
        return {name: np.asarray(getattr(self, f"{name}_")) for name in self.names}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted arrays to a `.npz` file, whole or not at all."""
        arrays = self.arrays()
        with atomic_write(path) as handle:
            np.savez(handle, kind=np.array(self.kind), **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        content = load_named_arrays(path, {"kind", *cls.names}, f"a {cls.__name__}")
        if str(content.pop("kind", "")) != cls.kind or set(content) != set(cls.names):
            raise InputError(f"{path} does not hold a {cls.__name__}")
        made = cls()
        for name, dimension in zip(cls.names, cls.dimensions, strict=True):
            values = content[name]
            if values.ndim != dimension or values.dtype.kind != "f" or not np.isfinite(values).all():
                raise InputError(f"{path} does not hold a {cls.__name__}: `{name}` must be finite numbers")
            setattr(made, f"{name}_", values if values.ndim else float(values))
        return made

    def transform(self, rows: ArrayLike) -> Rows:
        """The rows, transformed."""
        raise NotImplementedError

    def transform_own(self, rows: Rows) -> Rows:
        """The same of float32 rows that nobody else needs: they may be changed."""
        return self.transform(rows)

    def parameters(self) -> dict[str, Any]:
        """The kind, and a hash of the fitted arrays."""
        digest = hashlib.sha256()
        for name, values in self.arrays().items():
            digest.update(f"{name} {values.dtype.str} {values.shape}".encode())
            digest.update(np.ascontiguousarray(values).tobytes())
        return {"transform": self.kind, "arrays": digest.hexdigest()}


class MeanNormScaler(_Fitted):
    """Scale all rows by one number, so that those of the sample have length `target` on average (R-CNN: 20).

    One C then means the same for any network.
    """

    kind, names, dimensions = "mean norm", ("factor",), (0,)

    def __init__(self, target: float = 20.0) -> None:
        self.target = target

    def fit(self, rows: ArrayLike) -> Self:
        """Learn the factor from a sample of rows."""
        check_number(self.target, "target", above=0)
        sample = check_table(rows, "rows")
        lengths = [np.linalg.norm(block.astype(np.float64), axis=1) for _, block in row_blocks(sample)]
        mean = float(np.concatenate(lengths).mean())
        if mean == 0:
            raise InputError("`rows` must not be all zeros: they have no norm to scale")
        self.factor_ = self.target / mean
        return self

    def transform(self, rows: ArrayLike) -> Rows:
        """The rows, scaled."""
        factor = float(self.arrays()["factor"])
        return np.asarray(rows, np.float32) * np.float32(factor)

    def transform_own(self, rows: Rows) -> Rows:
        """The rows, scaled in place."""
        rows *= np.float32(self.arrays()["factor"])
        return rows

    def output_dimension(self, dimension: int) -> int:
        """Numbers per row after the transform: as many as before."""
        return dimension


class PCA(_Fitted):
    """Project rows on the `n_components` directions in which the sample varies most.

    Each direction is turned so that its entry of largest magnitude is positive: the same sample gives the same rows.
    """

    kind, names, dimensions = "pca", ("mean", "components"), (1, 2)

    def __init__(self, n_components: int = 256) -> None:
        self.n_components = n_components

    def fit(self, rows: ArrayLike) -> Self:
        """Learn the directions from a sample of rows."""
        sample = check_table(rows, "rows")
        most = min(sample.shape)
        check_number(self.n_components, "n_components", minimum=1, integer=True)
        if self.n_components > most:
            raise InputError(
                f"`n_components` must be at most {most} for a sample of shape {sample.shape}, got {self.n_components}"
            )
        mean = np.asarray(np.mean(sample, axis=0, dtype=np.float64))
        with one_product_thread():
            components = _leading_directions(sample, mean, self.n_components)
        largest = np.argmax(np.abs(components), axis=1)
        components *= np.where(components[np.arange(len(components)), largest] < 0, -1.0, 1.0)[:, None]
        self.mean_, self.components_ = mean.astype(np.float32), components.astype(np.float32)
        return self

    def transform(self, rows: ArrayLike) -> Rows:
        """(n, n_components) the rows, projected."""
        values = self._checked(np.asarray(rows, np.float32))
        return np.asarray((values - self.mean_) @ self.components_.T)

    def transform_own(self, rows: Rows) -> Rows:
        """(n, n_components) the rows, centred in place and projected."""
        values = self._checked(rows)
        values -= self.mean_
        return np.asarray(values @ self.components_.T)

    def _checked(self, rows: Rows) -> Rows:
        mean = self.arrays()["mean"]
        if rows.ndim != 2 or rows.shape[1] != len(mean):
            raise InputError(f"`rows` must have shape (n, {len(mean)}), got {rows.shape}")
        return rows

    @property
    def size(self) -> int:
        """Numbers per row after the transform."""
        return len(self.components_)

    def output_dimension(self, dimension: int) -> int:
        """Numbers per row after the transform; an `InputError` for rows of another length than those of `fit`."""
        fitted = self.arrays()["components"]
        if dimension != fitted.shape[1]:
            raise InputError(
                f"this PCA was fitted to {fitted.shape[1]} numbers per row, the descriptor has {dimension}"
            )
        return len(fitted)


class KernelMap(_Fitted):
    """Map rows so that their products are nearly those of a Gaussian kernel, `exp(-distance**2 / spread)`.

    A linear SVM of mapped rows is then an SVM with that kernel: it can say that a window is like some of its objects,
    where one of plain rows can only say that it lies in a direction. The map is Nystroem's: rows are compared with
    `n_landmarks` landmarks, rows of the sample or given ones, and the similarities are turned and scaled so that those
    between landmarks are exact, or as near to that as `n_components` numbers allow. The spread is `width` times the
    mean squared distance between two rows of the sample. A landmark that adds nothing to the others leaves a column of
    zeros.

    Parameters
    ----------
    n_landmarks : rows that others are compared with.
    n_components : numbers per row after the transform, those by which landmarks differ most; None: one per landmark.
    width : of the kernel; the larger, the more nearly linear.
    random_state : seeds the draw of landmarks.
    """

    kind, names, dimensions = "kernel map", ("landmarks", "directions", "spread"), (2, 2, 0)

    def __init__(
        self, n_landmarks: int = 512, width: float = 1.0, random_state: int = 0, n_components: int | None = None
    ) -> None:
        self.n_landmarks, self.width, self.random_state = n_landmarks, width, random_state
        self.n_components = n_components

    def fit(self, rows: ArrayLike, landmarks: ArrayLike | None = None) -> Self:
        """Draw landmarks, and learn the spread of a sample of rows.

        Parameters
        ----------
        rows : (n, d) the sample.
        landmarks : (m, d) rows to draw landmarks from, such as those of objects. Default: the sample.
        """
        check_number(self.n_landmarks, "n_landmarks", minimum=1, integer=True)
        n = self.n_landmarks if self.n_components is None else self.n_components
        check_number(n, "n_components", minimum=1, maximum=self.n_landmarks, integer=True)
        check_number(self.width, "width", above=0)
        check_number(self.random_state, "random_state", minimum=0, integer=True)
        sample = check_table(rows, "rows")
        choices = sample if landmarks is None else check_table(landmarks, "landmarks")
        if choices.shape[1] != sample.shape[1]:
            raise InputError(f"`landmarks` must have {sample.shape[1]} columns, as `rows` have, got {choices.shape[1]}")
        if self.n_landmarks > len(choices):
            raise InputError(
                f"`n_landmarks` must be at most {len(choices)}, the rows there are, got {self.n_landmarks}"
            )
        spread = self.width * 2.0 * float(np.var(sample, axis=0, dtype=np.float64).sum())
        if spread == 0:
            raise InputError("`rows` must not be all the same: there is no distance to compare with")
        drawn = np.random.default_rng(self.random_state).choice(len(choices), self.n_landmarks, replace=False)
        chosen = np.asarray(choices[np.sort(drawn)], np.float32)
        with one_product_thread():
            values, vectors = linalg.eigh(_similarities(chosen.astype(np.float64), chosen, spread))
        values, vectors = values[::-1][:n], vectors[:, ::-1][:, :n]
        largest = np.argmax(np.abs(vectors), axis=0)
        vectors = vectors * np.where(vectors[largest, np.arange(len(values))] < 0, -1.0, 1.0)
        is_real = values > _LEAST_VALUE * values[0]
        scales = np.where(is_real, 1.0 / np.sqrt(np.where(is_real, values, 1.0)), 0.0)
        self.landmarks_, self.directions_, self.spread_ = chosen, (vectors * scales).T.astype(np.float32), spread
        return self

    def transform(self, rows: ArrayLike) -> Rows:
        """(n, n_components) the rows, mapped."""
        arrays = self.arrays()
        values, landmarks = np.asarray(rows, np.float32), arrays["landmarks"]
        if values.ndim != 2 or values.shape[1] != landmarks.shape[1]:
            raise InputError(f"`rows` must have shape (n, {landmarks.shape[1]}), got {values.shape}")
        mapped = np.empty((len(values), len(arrays["directions"])), np.float32)
        for start in range(0, len(values), _MAPPED_TOGETHER):
            part = slice(start, start + _MAPPED_TOGETHER)
            mapped[part] = _similarities(values[part], landmarks, float(arrays["spread"])) @ arrays["directions"].T
        return mapped

    @property
    def size(self) -> int:
        """Landmarks."""
        return len(self.landmarks_)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        made = super().load(path)
        n, shape = len(made.landmarks_), made.directions_.shape
        if not 0 < shape[0] <= n or shape[1] != n or not made.spread_ > 0:
            raise InputError(f"{path} does not hold a KernelMap: its arrays do not fit together")
        return made

    def output_dimension(self, dimension: int) -> int:
        """Numbers per row after the transform; an `InputError` for rows of another length than those of `fit`."""
        landmarks = self.arrays()["landmarks"]
        if dimension != landmarks.shape[1]:
            raise InputError(
                f"this KernelMap was fitted to {landmarks.shape[1]} numbers per row, the descriptor has {dimension}"
            )
        return len(self.directions_)


Transform = MeanNormScaler | PCA | KernelMap


class Transformed:
    """A descriptor followed by fitted transforms, in their order.

    Parameters
    ----------
    descriptor : describes the windows.
    transforms : fitted; each is applied to what the one before it gives.
    """

    def __init__(self, descriptor: Descriptor, *transforms: Transform) -> None:
        self.descriptor, self.transforms = descriptor, transforms
        dimension = descriptor.dimension
        for transform in transforms:
            dimension = transform.output_dimension(dimension)
        self.dimension = dimension

    def describe(self, image: Image, boxes: ArrayLike) -> Rows:
        """(n, dimension) float32, one row per box.

        Parameters
        ----------
        image : (height, width, 3) uint8, RGB.
        boxes : (n, 4) windows in it, half-open xyxy.
        """
        rows, is_own = self.descriptor.describe(image, boxes), getattr(self.descriptor, "gives_rows_away", False)
        for transform in self.transforms:
            rows, is_own = transform.transform_own(rows) if is_own else transform.transform(rows), True
        return rows

    def parameters(self) -> dict[str, Any]:
        """Everything that determines the numbers, as JSON would hold it."""
        return {
            "descriptor": "transformed",
            "of": self.descriptor.parameters(),
            "transforms": [transform.parameters() for transform in self.transforms],
        }


def _similarities(rows: NDArray[Any], landmarks: NDArray[Any], spread: float) -> NDArray[Any]:
    """(n, m) of rows to landmarks, 1 where they are the same; as exact as the type of the rows."""
    others = landmarks.astype(rows.dtype, copy=False)
    found = rows @ others.T
    found *= -2
    found += np.einsum("nd,nd->n", rows, rows)[:, None]
    found += np.einsum("nd,nd->n", others, others)
    np.maximum(found, 0, out=found)
    found *= -1.0 / spread
    return np.exp(found, out=found)


def _leading_directions(sample: NDArray[Any], mean: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """(n, d) eigenvectors of the covariance; of a large one in float32, where that tells directions from rounding."""
    if max(_EXACT_SIDE, 2 * n) <= min(sample.shape):
        directions = _directions(sample, mean, n, np.dtype(np.float32), _LEAST_SHARE)
        if directions is not None:
            return directions
    directions = _directions(sample, mean, n, np.dtype(np.float64))
    assert directions is not None
    return directions


def _directions(
    sample: NDArray[Any], mean: NDArray[np.float64], n: int, dtype: np.dtype[Any], least_share: float = -np.inf
) -> NDArray[np.float64] | None:
    """The same by the smaller of its two Gram matrices; None where the sample varies less along one of them.

    The least share is of the variance along the first one.
    """
    if len(sample) >= sample.shape[1]:
        covariance = np.zeros((sample.shape[1],) * 2, dtype)
        for _, block in row_blocks(sample):
            centred = (block - mean).astype(dtype, copy=False)
            covariance += centred.T @ centred
        values, vectors = _leading(covariance, n)
        return vectors.T.astype(np.float64) if values[-1] >= least_share * values[0] else None
    centred = (sample - mean).astype(dtype, copy=False)
    values, vectors = _leading(centred @ centred.T, n)
    if values[-1] < least_share * values[0]:
        return None
    directions = (vectors.T @ centred).astype(np.float64)
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    is_real = lengths > 1e-10 * lengths.max()  # a sample of n rows varies in at most n - 1 directions
    return np.where(is_real, directions / np.where(is_real, lengths, 1.0), 0.0)


def _leading(matrix: NDArray[Any], n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The n largest eigenvalues of a symmetric matrix, falling, and (d, n) their eigenvectors; no others."""
    d = len(matrix)
    values, vectors = linalg.eigh(matrix, subset_by_index=[d - n, d - 1], overwrite_a=True, check_finite=False)
    return values[::-1], vectors[:, ::-1]
