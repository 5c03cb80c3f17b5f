"""The pixels of the scenes: backgrounds and surfaces cut from the two photographs that scikit-learn carries.

In: sizes, patches of opacity and a stream of random numbers. Out: RGB images as float64, 0 to 255.
Training and test scenes are cut from different halves of the photographs. Resampling is plain numpy; decoding the two
JPEG files is not, and another decoder may move a value by one or two.
Not here: where things are; see `scenes`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from eesvm._support.extras import optional_module
from eesvm.datasets._scene_glyphs import Draw, Patch, blob

Image = NDArray[np.float64]

_LUMINANCE = np.array([0.299, 0.587, 0.114])
_CHANNEL_ORDERS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))


@lru_cache(maxsize=1)
def photographs() -> tuple[NDArray[np.uint8], ...]:
    """The two photographs of scikit-learn, RGB, 427 x 640 pixels."""
    optional_module("PIL.Image")  # what scikit-learn reads them with
    from sklearn.datasets import load_sample_image

    return load_sample_image("china.jpg"), load_sample_image("flower.jpg")


def background(width: int, height: int, half: int, draw: Draw) -> Image:
    """Two views blended by a cloud, and pieces of others pasted on top."""
    image = surface(width, height, half, draw, zoom=(1.0, 2.0))
    cloud = _resize(draw.table(4, 5), height, width)[..., None]
    other = surface(width, height, half, draw, zoom=(1.0, 3.0))
    image += np.clip(3 * (cloud - 0.6), 0.0, 1.0) * (other - image)
    for _ in range(4 + draw.integer(7)):
        sides = (draw.uniform(20, 110), draw.uniform(15, 70))
        piece = blob(*sides, draw.uniform(0, np.pi), (2.0, 2.0, 4.0, 8.0)[draw.integer(4)])
        x, y = draw.integer(width) - piece.shape[1] // 2, draw.integer(height) - piece.shape[0] // 2
        paste(image, surface(piece.shape[1], piece.shape[0], half, draw), piece * draw.uniform(0.5, 1.0), x, y)
    return image


def surface(width: int, height: int, half: int, draw: Draw, zoom: tuple[float, float] = (0.8, 3.0)) -> Image:
    """A rectangle cut from one half of a photograph, perhaps mirrored, in other colours."""
    photo = photographs()[draw.integer(2)]
    middle = photo.shape[1] // 2
    photo = photo[:, :middle] if half == 0 else photo[:, middle:]
    factor = draw.uniform(*zoom)
    h, w = (max(2, min(size, round(side / factor))) for size, side in zip(photo.shape, (height, width), strict=False))
    top, left = draw.integer(photo.shape[0] - h + 1), draw.integer(photo.shape[1] - w + 1)
    piece = photo[top : top + h, left : left + w].astype(np.float64)
    if draw.chance(0.5):
        piece = piece[:, ::-1]
    return _recolour(_resize(piece, height, width), draw)


def fill(image: Image, opacity: Patch, x: int, y: int, contrast: float, half: int, draw: Draw) -> Image:
    """(h, w, 3) surface of a thing: a colour away from what lies behind it by `contrast`, shading, some texture."""
    height, width = opacity.shape
    rows, columns = slice(max(0, y), y + height), slice(max(0, x), x + width)
    behind = image[rows, columns].reshape(-1, 3).mean(axis=0)
    tint = 60 * (draw.table(3) - 0.5)
    tint -= tint @ _LUMINANCE  # colour only: how light it is, the contrast says
    level = behind @ _LUMINANCE
    is_lighter = draw.chance(0.5) if 95 < level < 160 else level <= 95
    colour = (behind + level) / 2 + (1 if is_lighter else -1) * 170 * contrast + tint
    texture = surface(width, height, half, draw)
    texture -= texture.mean(axis=(0, 1))
    down, right = np.mgrid[:height, :width]
    shading = (draw.uniform(-1, 1) * (down / height - 0.5) + draw.uniform(-1, 1) * (right / width - 0.5)) * 60
    return np.clip(colour + draw.uniform(0.1, 0.5) * texture + shading[..., None], 0.0, 255.0)


def paste(image: Image, piece: Image, opacity: Patch, x: int, y: int) -> None:
    """Blend `piece` into `image`, in place, with its upper left corner at x, y; what lies outside is cut."""
    inner, outer = overlap(image.shape, opacity.shape, x, y)
    amount = opacity[inner][..., None]
    image[outer] += amount * (piece[inner] - image[outer])


def overlap(
    image: tuple[int, ...], patch: tuple[int, ...], x: int, y: int
) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """The part of a patch at x, y that lies in the image: as (rows, columns) of the patch, and of the image."""
    top, left = max(0, y), max(0, x)
    bottom, right = max(top, min(image[0], y + patch[0])), max(left, min(image[1], x + patch[1]))
    return (slice(top - y, bottom - y), slice(left - x, right - x)), (slice(top, bottom), slice(left, right))


def finish(image: Image, draw: Draw) -> NDArray[np.uint8]:
    """A little noise, as a camera adds, and bytes."""
    noise = draw.table(*image.shape) - draw.table(*image.shape)
    return np.clip(np.rint(image + draw.uniform(2, 8) * noise), 0, 255).astype(np.uint8)


def _recolour(image: Image, draw: Draw) -> Image:
    order = _CHANNEL_ORDERS[draw.integer(len(_CHANNEL_ORDERS))] if draw.chance(0.4) else (0, 1, 2)
    gains = draw.uniform(0.7, 1.15) + 0.3 * (draw.table(3) - 0.5)
    return np.clip(image[..., order] * gains + draw.uniform(-20, 30), 0.0, 255.0)


def _resize(image: NDArray[np.float64], height: int, width: int) -> NDArray[np.float64]:
    """Linear interpolation between the centres of pixels, along one axis after the other."""
    for axis, size in ((0, height), (1, width)):
        n = image.shape[axis]
        at = np.clip((np.arange(size) + 0.5) * n / size - 0.5, 0, n - 1)
        low = np.minimum(at.astype(np.intp), max(0, n - 2))
        share = (at - low).reshape([-1 if a == axis else 1 for a in range(image.ndim)])
        high = np.minimum(low + 1, n - 1)
        image = (1 - share) * image.take(low, axis) + share * image.take(high, axis)
    return image
