"""Score tables that need no download: real ones from handwritten digits, synthetic ones of any size.

In: a digit, or sizes and a family. Out: `DigitExample` with a training and a test `ScoreTable`, or one `ScoreTable`.
The digits are the 1,797 images of 8 x 8 pixels that scikit-learn carries. Every training image of the digit is an
exemplar, and its detector is linear and in closed form: w = Sigma^-1 (x - mu), with the mean and the covariance of the
negatives (exemplar LDA). The synthetic tables are for benchmarks: what they measure is time, not usefulness.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from eesvm._support.files import atomic_folder
from eesvm._support.validation import check_choice, check_number
from eesvm.calibration.tables.score_table import ScoreTable

FAMILIES = ("easy", "heavy_tailed", "overlapping")
_NEGATIVE_SPREAD = {"easy": 0.22, "heavy_tailed": 0.22, "overlapping": 0.3}

_SHIFT = 0.35  # of a pixel: a whole one is an eighth of the image, and would make another picture of it
_SHRINKAGE = 1.0  # what is added to each variance, in units of the mean variance
_LATENT_DIMENSIONS = 24
_BLOCK_ROWS = 8192  # part of the recipe: each block has its own random numbers


@dataclass(frozen=True)
class DigitExample:
    """Score tables of one digit, and the pictures behind their rows and columns."""

    digit: int
    train: ScoreTable
    test: ScoreTable
    exemplar_images: NDArray[np.float64]  # (E, 8, 8), ink from 0 to 1
    train_windows: NDArray[np.float64]  # (n_train, 8, 8)
    test_windows: NDArray[np.float64]  # (n_test, 8, 8)
    test_digits: NDArray[np.int_]  # (n_test,) what was really written


def digit_score_table(digit: int = 9, random_state: int = 0) -> DigitExample:
    """Detectors of one handwritten digit, one per training image, and their scores on all digits.

    Half of the images of every digit are for training. A window is an image moved by about a third of a pixel in one of
    eight directions, or not at all; the group of a window, and of an exemplar, is the number of its image. Positive
    windows, those of `digit`, come first.

    Parameters
    ----------
    digit : which to detect, 0 to 9.
    random_state : int >= 0, seeds the draw of the training images.
    """
    check_number(digit, "digit", minimum=0, maximum=9, integer=True)
    check_number(random_state, "random_state", minimum=0, integer=True)
    from sklearn.datasets import load_digits  # here, because the command line should start without it

    data = load_digits()
    images, digits = data.images / 16.0, data.target
    is_training = _half_of_each(digits, np.random.default_rng(random_state))
    exemplars = np.flatnonzero(is_training & (digits == digit))
    train, test = (_windows(images, digits, digit, rows) for rows in (is_training, ~is_training))
    background = _describe(train.images[train.labels == 0])
    weights, biases = exemplar_lda(_describe(images[exemplars]), background, _SHRINKAGE)

    def table(part: _Windows) -> ScoreTable:
        scores = (_describe(part.images) @ weights.T + biases).astype(np.float32)
        names = [f"image_{index}" for index in exemplars]
        return ScoreTable(scores, part.labels, part.groups, exemplars, names)

    return DigitExample(digit, table(train), table(test), images[exemplars], train.images, test.images, test.digits)


def exemplar_lda(
    exemplars: NDArray[np.float64], background: NDArray[np.float64], shrinkage: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(E, d) weights and (E,) biases; a score of zero lies halfway between the exemplar and the mean background.

    One unit for all: on average an exemplar scores +1 at itself and -1 at the mean background, where an SVM has its
    margins. Calibrators that look at margins, as the independent sigmoid does, need such a unit.

    Parameters
    ----------
    exemplars : (E, d) descriptors.
    background : (n, d) descriptors whose mean and covariance count.
    shrinkage : how much of the mean variance is added to each variance.
    """
    mean = background.mean(axis=0)
    covariance = np.cov(background, rowvar=False)
    covariance += shrinkage * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    weights = np.linalg.solve(covariance, (exemplars - mean).T).T
    weights /= (weights * (exemplars - mean)).sum(axis=1).mean() / 2
    return weights, -(weights * (exemplars + mean) / 2).sum(axis=1)


def synthetic_score_table(
    n_exemplars: int,
    n_positives: int,
    n_negatives: int,
    family: str = "easy",
    random_state: int = 0,
    dtype: DTypeLike = np.float32,
    out: str | os.PathLike[str] | None = None,
) -> ScoreTable:
    """A score table drawn from a latent space, positives first; the same arguments give the same table.

    Exemplars are directions. A positive lies near one of them, a negative anywhere; scores are inner products.

    Parameters
    ----------
    n_exemplars, n_positives, n_negatives : how many of each, at least 1.
    family : how far positives lie from their exemplar: "easy" (near, so most cost nothing), "heavy_tailed" (near, but a
        few very far: these rule the loss) or "overlapping" (half-way into the negatives: nearly nothing is free).
    random_state : int >= 0, seeds all that is drawn.
    dtype : of the scores.
    out : a new folder for the table, for one that does not fit into memory: it is filled block by block, and `scores`
        of the result is a memory map of the file in it.
    """
    for name, value in (("n_exemplars", n_exemplars), ("n_positives", n_positives), ("n_negatives", n_negatives)):
        check_number(value, name, minimum=1, integer=True)
    check_choice(family, "family", FAMILIES)
    check_number(random_state, "random_state", minimum=0, integer=True)
    recipe = _Recipe(n_exemplars, n_positives, n_negatives, family, random_state)
    shape = (n_positives + n_negatives, n_exemplars)
    if out is None:
        scores = np.empty(shape, dtype=dtype)
        recipe.fill(scores)
    else:
        with atomic_folder(out) as folder:
            recipe.fill(np.lib.format.open_memmap(folder / "scores.npy", mode="w+", dtype=np.dtype(dtype), shape=shape))
        scores = np.load(Path(out) / "scores.npy", mmap_mode="r")
    labels = np.repeat(np.array([1, 0], dtype=np.int8), (n_positives, n_negatives))
    groups = np.concatenate([recipe.sources(), n_exemplars + np.arange(n_negatives) // 50])
    return ScoreTable(scores, labels, groups, np.arange(n_exemplars))


@dataclass(frozen=True)
class _Windows:
    images: NDArray[np.float64]
    labels: NDArray[np.int8]
    groups: NDArray[np.int_]
    digits: NDArray[np.int_]


def _half_of_each(digits: NDArray[np.int_], random: np.random.Generator) -> NDArray[np.bool_]:
    chosen = np.zeros(len(digits), dtype=bool)
    for digit in np.unique(digits):
        members = random.permutation(np.flatnonzero(digits == digit))
        chosen[members[: len(members) // 2]] = True
    return chosen


def _windows(images: NDArray[np.float64], digits: NDArray[np.int_], digit: int, chosen: NDArray[np.bool_]) -> _Windows:
    """The nine windows of each chosen image; those of `digit` first."""
    ids = np.flatnonzero(chosen)
    ids = np.concatenate([ids[digits[ids] == digit], ids[digits[ids] != digit]])
    steps = (-_SHIFT, 0.0, _SHIFT)
    windows = np.stack([_shifted(images[ids], down, right) for down in steps for right in steps], axis=1)
    ids = np.repeat(ids, windows.shape[1])
    return _Windows(windows.reshape(-1, *images.shape[1:]), (digits[ids] == digit).astype(np.int8), ids, digits[ids])


def _shifted(images: NDArray[np.float64], down: float, right: float) -> NDArray[np.float64]:
    """(n, h, w) images moved by a part of a pixel, by linear interpolation; what enters at the border is blank."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    for step, axis in ((down, 1), (right, 2)):
        padded = (1 - abs(step)) * padded + abs(step) * np.roll(padded, int(np.sign(step)), axis)
    return padded[:, 1:-1, 1:-1]


def _describe(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, h * w) pixels with mean 0 and norm 1: how much ink there is does not matter."""
    pixels = images.reshape(len(images), -1)
    pixels = pixels - pixels.mean(axis=1, keepdims=True)
    return pixels / np.linalg.norm(pixels, axis=1, keepdims=True)


@dataclass(frozen=True)
class _Recipe:
    """How a synthetic table is drawn, in blocks that do not depend on each other."""

    n_exemplars: int
    n_positives: int
    n_negatives: int
    family: str
    random_state: int

    def fill(self, scores: NDArray[Any]) -> None:
        """Write all scores into `scores`, in place."""
        directions = self.directions().T
        for start, latent in self.blocks():
            scores[start : start + len(latent)] = latent @ directions

    def directions(self) -> NDArray[np.float64]:
        """(E, d) unit vectors, crowded on one side, as the exemplars of one class are."""
        points = self.random(0).normal(size=(self.n_exemplars, _LATENT_DIMENSIONS))
        points[:, 0] += 2.0
        return points / np.linalg.norm(points, axis=1, keepdims=True)

    def sources(self) -> NDArray[np.int_]:
        """(P,) the exemplar each positive was drawn near."""
        return self.random(1).permutation(np.arange(self.n_positives) % self.n_exemplars)

    def blocks(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """(first row, latent points) of the positives, then of the negatives."""
        directions, sources = self.directions(), self.sources()
        for start in range(0, self.n_positives, _BLOCK_ROWS):
            near = directions[sources[start : start + _BLOCK_ROWS]]
            yield start, near + self.offsets(near.shape, self.random(2, start))
        for start in range(0, self.n_negatives, _BLOCK_ROWS):
            size = (min(_BLOCK_ROWS, self.n_negatives - start), _LATENT_DIMENSIONS)
            yield self.n_positives + start, self.random(3, start).normal(scale=_NEGATIVE_SPREAD[self.family], size=size)

    def offsets(self, shape: tuple[int, ...], random: np.random.Generator) -> NDArray[np.float64]:
        """How far each positive lies from its exemplar, and in which direction."""
        n = shape[0]
        if self.family == "heavy_tailed":
            distances = 0.3 * (1 + random.pareto(2.0, n))
        else:
            distances = random.uniform(*((0.1, 0.6) if self.family == "easy" else (0.3, 1.2)), n)
        noise = random.normal(size=shape)
        return noise / np.linalg.norm(noise, axis=1, keepdims=True) * distances[:, None]

    def random(self, *stream: int) -> np.random.Generator:
        return np.random.default_rng([self.random_state, FAMILIES.index(self.family), *stream])
