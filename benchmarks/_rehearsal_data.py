"""Generated stand-ins for the described windows of a large dataset, on disk.

In: sizes. Out: `TrainingWindows` whose descriptors are a memory map, and a table of test windows with their classes.
A class has a direction of its own and several kinds within it; an object mixes both with something that only it has; the
windows around an object resemble it; and some of the background resembles a class. Absent on purpose: images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eesvm.detector.training_table import TrainingWindows
from eesvm.structures import ImageRecord, Instance

SIZE, CELL = (640, 480), 160  # of an image, and of the squares that objects and background keep to
N_KINDS, N_BACKGROUNDS = 40, 200  # of a class, and of what is not an object
LENGTH = 20.0  # of a descriptor, as with the default options


@dataclass(frozen=True)
class Sizes:
    """How large the stand-in is."""

    exemplars: tuple[int, ...]  # of each class
    positives: tuple[int, ...]  # windows of each class, objects included
    background: int  # windows of an image
    test_images: int
    test_objects: int  # of each class
    dimension: int
    objects_per_image: int = 2

    @property
    def n_images(self) -> int:
        return -(-sum(self.exemplars) // self.objects_per_image)


def paper_sizes(n_classes: int = 10, dimension: int = 256) -> Sizes:
    """640 to 2,000 exemplars and 3,000 to 13,000 positive windows a class, two million test negatives."""
    exemplars = np.linspace(640, 2000, n_classes).round().astype(int)
    positives = np.linspace(3000, 13_000, n_classes).round().astype(int)
    return Sizes(tuple(exemplars.tolist()), tuple(positives.tolist()), 100, 20_000, 500, dimension)


def tiny_sizes() -> Sizes:
    return Sizes((12, 20), (60, 100), 20, 60, 10, 32)


class World:
    """What descriptors of classes and backgrounds look like."""

    def __init__(self, sizes: Sizes, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.dimension = sizes.dimension
        self.classes = self._directions(len(sizes.exemplars))
        self.kinds = self._directions(len(sizes.exemplars) * N_KINDS).reshape(-1, N_KINDS, sizes.dimension)
        self.backgrounds = self._directions(N_BACKGROUNDS)

    def objects(self, classes: np.ndarray) -> np.ndarray:
        kind = self.random.integers(N_KINDS, size=len(classes))
        return 0.8 * self.classes[classes] + 0.7 * self.kinds[classes, kind] + 0.9 * self._directions(len(classes))

    def seen(self, objects: np.ndarray, noise: float) -> np.ndarray:
        """Windows on objects, one for each row."""
        return self._scaled(objects + noise * self._directions(len(objects)))

    def background(self, n: int) -> np.ndarray:
        likeness = self.random.exponential(0.12, n)[:, None].astype(np.float32)  # a few look much like an object
        like = self.random.integers(len(self.classes), size=n)
        kind = self.random.integers(N_KINDS, size=n)
        chosen = self.backgrounds[self.random.integers(N_BACKGROUNDS, size=n)]
        rows = chosen + likeness * (self.classes[like] + 0.7 * self.kinds[like, kind])
        return self._scaled(rows + 0.9 * self._directions(n))

    def _directions(self, n: int) -> np.ndarray:
        rows = self.random.standard_normal((n, self.dimension), dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def _scaled(self, rows: np.ndarray) -> np.ndarray:
        return (LENGTH / 1.4 * rows).astype(np.float32)


def make_training(folder: Path, sizes: Sizes, world: World) -> None:
    """Write what `open_training` reads: descriptors, boxes, and which object each window shows."""
    random = world.random
    owner = np.repeat(np.arange(len(sizes.exemplars)), sizes.exemplars)
    owner = random.permutation(owner)
    image = np.arange(len(owner)) // sizes.objects_per_image
    extra = np.zeros(len(owner), dtype=np.int64)  # windows around each object
    for k, wanted in enumerate(sizes.positives):
        own = np.flatnonzero(owner == k)
        extra[own] = np.diff(np.linspace(0, wanted - len(own), len(own) + 1).astype(np.int64))
    per_image = np.bincount(image, weights=1 + extra, minlength=sizes.n_images).astype(np.int64) + sizes.background
    starts = np.concatenate([[0], np.cumsum(per_image)])
    rows = _new(folder / "train.npy", int(starts[-1]), sizes.dimension)
    boxes, instance = np.zeros((len(rows), 4)), np.full(len(rows), -1)
    at = starts[:-1].copy()
    vectors = world.objects(owner)
    for j, (k, n) in enumerate(zip(image.tolist(), extra.tolist(), strict=True)):
        a, b = at[k], at[k] + 1 + n
        place = j - k * sizes.objects_per_image
        rows[a] = world.seen(vectors[j : j + 1], 0.2)
        rows[a + 1 : b] = world.seen(np.repeat(vectors[j : j + 1], n, axis=0), 0.6)
        boxes[a:b] = _cells(np.full(b - a, place)) + np.concatenate([np.zeros((1, 4)), random.uniform(-6, 6, (n, 4))])
        instance[a] = place
        at[k] = b
    for a, b in zip(at.tolist(), starts[1:].tolist(), strict=True):
        rows[a:b] = world.background(b - a)
        boxes[a:b] = _cells(random.integers(4, 12, b - a)) + random.uniform(-20, 20, (b - a, 4))
    rows.flush()
    np.savez(folder / "train_windows.npz", starts=starts, boxes=boxes, instance=instance, owner=owner, image=image)


def open_training(folder: Path) -> TrainingWindows:
    with np.load(folder / "train_windows.npz") as stored:
        starts, boxes, instance, owner, image = (
            stored[name] for name in ("starts", "boxes", "instance", "owner", "image")
        )
    first = np.searchsorted(image, np.arange(len(starts)))
    records = tuple(
        ImageRecord(
            f"image{k}",
            _no_image,
            *SIZE,
            tuple(
                Instance(class_name(owner[j]), _cells(np.array([j - a]))[0], f"image{k}", int(j - a))
                for j in range(a, b)
            ),
        )
        for k, (a, b) in enumerate(zip(first[:-1].tolist(), first[1:].tolist(), strict=True))
    )
    rows = np.load(folder / "train.npy", mmap_mode="r")
    return TrainingWindows(records, starts, boxes, instance, rows, descriptor=None)  # type: ignore[arg-type]


def make_test(folder: Path, sizes: Sizes, world: World) -> None:
    """Test windows and the class of each, -1 for background."""
    n_objects = sizes.test_objects * len(sizes.exemplars)
    owner = np.concatenate([
        np.full(sizes.test_images * sizes.background, -1),
        np.repeat(np.arange(len(sizes.exemplars)), 3 * sizes.test_objects),
    ])  # fmt: skip
    rows = _new(folder / "test.npy", len(owner), sizes.dimension)
    n_background = len(owner) - 3 * n_objects
    for a, b in blocks(n_background):
        rows[a:b] = world.background(b - a)
    vectors = world.objects(np.repeat(np.arange(len(sizes.exemplars)), sizes.test_objects))
    rows[n_background:] = world.seen(np.repeat(vectors, 3, axis=0), 0.6)
    rows.flush()
    np.save(folder / "test_owner.npy", owner)


def blocks(n: int, size: int = 20_000) -> Iterator[tuple[int, int]]:
    for a in range(0, n, size):
        yield a, min(n, a + size)


def class_name(k: int) -> str:
    return f"class{k}"


def _cells(place: np.ndarray) -> np.ndarray:
    """(n, 4) boxes in the squares of an image."""
    x, y = place % 4 * CELL + 20.0, place // 4 * CELL + 20.0
    return np.column_stack([x, y, x + 120, y + 120])


def _new(path: Path, n_rows: int, n_columns: int) -> np.ndarray:
    return np.lib.format.open_memmap(path, "w+", dtype=np.float32, shape=(n_rows, n_columns))


def _no_image() -> np.ndarray:
    raise RuntimeError("there is no image behind a generated window")
