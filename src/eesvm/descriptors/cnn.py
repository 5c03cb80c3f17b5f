"""Descriptors from a network: one pass per window, or one pass per image.

In: an RGB image and windows. Out: float32 (n, d).

`CropCNN` is R-CNN's: each window, widened so that `context` pixels of the warped picture lie around it, is warped to
the network's input size, the mean colour outside the image, and goes through the network alone; one layer comes out.

`PooledCNN` runs the whole image once and takes means of feature maps inside each window, hundreds of times cheaper.
Its levels are written "layer@grid", joined by "+": "head@1+stride_16@3" is the mean of `head` over the window (1280
numbers) followed by the means of `stride_16` over the 3 x 3 cells of the window (9 x 112 numbers, row by row, all
channels of a cell together). Each level is rooted (sign(x) |x|^power) and scaled to length 1 on its own.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm import boxes as box_functions
from eesvm._support.validation import InputError, check_number
from eesvm.descriptors.backbones import LARGEST_STRIDE, Backbone
from eesvm.descriptors.base import Boxes, Image, Rows, check_image, check_windows, normalise_rows
from eesvm.descriptors.pooling import integral_map, pool_into
from eesvm.descriptors.resampling import resample

LITE_LEVELS = "head@1+stride_16@3"
LITE_LAYER = "features"
_VERSION = 1  # to be raised when the same parameters give other numbers


class Level(NamedTuple):
    """A feature map and the grid of cells that a window is divided into on it."""

    layer: str
    grid: int


class MapMemory:
    """Feature maps of images that will be described once more, by their pixels.

    While it is open maps are kept, up to so many bytes; after that each is handed out once.

    Parameters
    ----------
    n_bytes : that it holds at most.
    """

    def __init__(self, n_bytes: int) -> None:
        self._lock, self._left, self._is_open = threading.Lock(), n_bytes, True
        self._maps: dict[bytes, list[NDArray[np.float32]]] = {}

    def get(self, image: Image, compute: Callable[[Image], list[NDArray[np.float32]]]) -> list[NDArray[np.float32]]:
        """The maps of an image.

        Parameters
        ----------
        image : (height, width, 3) uint8, RGB.
        compute : gives its maps.
        """
        if not self._maps and not (self._is_open and self._left > 0):
            return compute(image)
        key = hashlib.blake2b(np.ascontiguousarray(image).data, digest_size=16).digest() + repr(image.shape).encode()
        with self._lock:
            known = self._maps.get(key) if self._is_open else self._maps.pop(key, None)
        if known is not None:
            return known
        maps = compute(image)
        n_bytes = sum(one.nbytes for one in maps)
        with self._lock:
            if self._is_open and n_bytes <= self._left:
                self._maps[key] = maps
                self._left -= n_bytes
        return maps

    def close(self) -> None:
        """Keep no further maps; those there are can be taken."""
        self._is_open = False

    def forget(self) -> None:
        """Let go of everything."""
        self.close()
        self._maps = {}

    def __reduce__(self) -> tuple[type[MapMemory], tuple[int]]:
        return MapMemory, (0,)  # maps stay where they were made


class PooledCNN:
    """Means of feature maps inside windows.

    Parameters
    ----------
    backbone : whose layers are those of the levels; each must be a map (n, c, h, w), or tokens (n, t, c).
    levels : see `parse_levels`.
    size : the longer side of the image when it enters the network, in pixels; smaller images are enlarged. A network of
        fixed input size ignores it: the image is fitted into that size.
    power : exponent of the root; 1 leaves the means as they are.
    """

    gives_rows_away = True  # what `describe` returns is held by nobody else

    def __init__(self, backbone: Backbone, levels: list[Level], size: int = 512, power: float = 0.5) -> None:
        check_number(size, "size", minimum=LARGEST_STRIDE, maximum=4096, integer=True)
        check_number(power, "power", above=0, maximum=1)
        self.backbone, self.levels, self.size, self.power = backbone, levels, int(size), float(power)
        self.memory = MapMemory(0)

    @cached_property
    def dimension(self) -> int:
        shapes = dict(zip(self.backbone.layers, self.backbone.probe(), strict=True))
        for layer, shape in shapes.items():
            if len(shape) != 4:
                raise InputError(f"layer {layer!r} of {self.backbone.name} is no feature map, its shape is {shape}")
        return sum(level.grid**2 * shapes[level.layer][1] for level in self.levels)

    def describe(self, image: Image, boxes: ArrayLike) -> Rows:
        """(n, dimension) float32, one row per box.

        Parameters
        ----------
        image : (height, width, 3) uint8, RGB.
        boxes : (n, 4) windows in it, half-open xyxy.
        """
        image, windows = check_image(image), check_windows(boxes)
        rows = np.empty((len(windows), self.dimension), np.float32)
        if len(windows):
            height, width = image.shape[:2]
            inner, outer = self._sides(height, width)
            maps = self.memory.get(image, lambda pixels: self.backbone(self._picture(pixels)))
            scale = np.array([inner[1] / width, inner[0] / height] * 2)
            windows = box_functions.clip(windows, width, height) * scale
            self._fill(rows, dict(zip(self.backbone.layers, maps, strict=True)), windows, np.array(outer))
        return rows

    def parameters(self) -> dict[str, Any]:
        """Everything that determines the numbers, as JSON would hold it."""
        return {
            "descriptor": "cnn pooled",
            "version": _VERSION,
            "backbone": self.backbone.parameters(),
            "levels": [list(level) for level in self.levels],
            "size": None if self.backbone.is_fixed else self.size,
            "power": self.power,
        }

    def _sides(self, height: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Height and width that an image has in the picture that enters the network, and those of the picture."""
        if self.backbone.is_fixed:
            outer_height, outer_width = self.backbone.input_size
            factor = min(outer_height / height, outer_width / width)
        else:
            factor = self.size / max(height, width)
        inner_height, inner_width = (max(1, round(side * factor)) for side in (height, width))
        if not self.backbone.is_fixed:
            step = self.backbone.multiple
            outer_height, outer_width = (-(-side // step) * step for side in (inner_height, inner_width))
        return (inner_height, inner_width), (outer_height, outer_width)

    def _picture(self, image: Image) -> NDArray[np.float32]:
        """(1, h, w, 3) with the image in its upper left corner and the mean colour around."""
        height, width = image.shape[:2]
        inner, outer = self._sides(height, width)
        picture = np.empty((1, *outer, 3), np.float32)
        picture[:] = self.backbone.normalisation.mean
        whole = np.array([[0.0, 0.0, width, height]])
        picture[:, : inner[0], : inner[1]] = resample(image, whole, *inner)
        return picture

    def _fill(self, rows: Rows, maps: dict[str, NDArray[np.float32]], windows: Boxes, shape: NDArray[np.int64]) -> None:
        """Fills `rows` level by level; `windows` are in the pixels of a picture of this shape."""
        integrals: dict[str, NDArray[np.float64]] = {}
        start = 0
        for layer, grid in self.levels:
            if layer not in integrals:
                integrals[layer] = integral_map(np.ascontiguousarray(maps[layer][0].transpose(1, 2, 0)))
            stride = np.tile(shape[::-1] / np.array(maps[layer].shape[:1:-1]), 2)
            pool_into(integrals[layer], windows / stride, grid, grid, self.power == 0.5, rows, start)
            level = rows[:, start : start + grid * grid * integrals[layer].shape[2]]
            if self.power not in (0.5, 1):
                level[:] = np.copysign(np.abs(level) ** np.float32(self.power), level)
            normalise_rows(level)
            start += level.shape[1]


class CropCNN:
    """One layer of a network for each window on its own, as R-CNN has it.

    Parameters
    ----------
    backbone : with one layer: (n, d), or a map or tokens of patches, of which the mean is taken.
    context : pixels around the window, in the warped picture.
    batch_size : windows that go through the network together.
    """

    def __init__(self, backbone: Backbone, context: int = 16, batch_size: int = 8) -> None:
        check_number(batch_size, "batch_size", minimum=1, integer=True)
        check_number(context, "context", minimum=0, maximum=min(backbone.input_size) / 2 - 1)
        if len(backbone.layers) != 1:
            raise InputError(f"`layer` must be one name for crops, got {', '.join(backbone.layers)}")
        self.backbone, self.context, self.batch_size = backbone, float(context), int(batch_size)

    @cached_property
    def dimension(self) -> int:
        shape = self.backbone.probe()[0]
        if len(shape) not in (2, 4):
            raise InputError(f"layer {self.backbone.layers[0]!r} must be (n, d) or (n, c, h, w), its shape is {shape}")
        return int(shape[1])

    def describe(self, image: Image, boxes: ArrayLike) -> Rows:
        """(n, dimension) float32, one row per box.

        Parameters
        ----------
        image : (height, width, 3) uint8, RGB.
        boxes : (n, 4) windows in it, half-open xyxy.
        """
        image, windows = check_image(image), check_windows(boxes)
        rows = np.empty((len(windows), self.dimension), np.float32)
        windows = box_functions.clip(windows, image.shape[1], image.shape[0])
        wide = with_context(windows, self.backbone.input_size, self.context)
        for start in range(0, len(rows), self.batch_size):
            part = slice(start, start + self.batch_size)
            crops = resample(image, wide[part], *self.backbone.input_size, fill=self.backbone.normalisation.mean)
            layer = self.backbone(crops)[0]
            rows[part] = layer if layer.ndim == 2 else layer.mean(axis=(2, 3))
        return rows

    def parameters(self) -> dict[str, Any]:
        """Everything that determines the numbers, as JSON would hold it."""
        return {
            "descriptor": "cnn crop",
            "version": _VERSION,
            "backbone": self.backbone.parameters(),
            "input_size": list(self.backbone.input_size),
            "context": self.context,
        }


def parse_levels(text: str) -> list[Level]:
    """ "head@1+stride_16@3" -> [("head", 1), ("stride_16", 3)]; a name without a grid is the whole window."""
    levels = []
    for part in text.split("+"):
        layer, at, grid = part.rpartition("@")
        if not at:
            layer, grid = part, "1"
        if not layer or not grid.isdecimal() or not 1 <= int(grid) <= 16:
            raise InputError(f"`layer` must be names like head@1+stride_16@3, grids from 1 to 16, got {text!r}")
        levels.append(Level(layer, int(grid)))
    return levels


def with_context(boxes: Boxes, size: tuple[int, int], context: float) -> Boxes:
    """(n, 4) boxes widened about their centres: warped to `size`, the old box leaves `context` pixels on each side.

    A side shorter than one pixel counts as one.
    """
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 1.0)
    height, width = size
    half = sides / 2 * np.array([width / (width - 2 * context), height / (height - 2 * context)])
    return np.concatenate([centres - half, centres + half], axis=1)
