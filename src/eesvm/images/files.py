"""Image files and RGB arrays.

In: a path or the bytes of a JPEG, PNG, GIF, BMP, PPM, TIFF, WebP, AVIF or JPEG 2000 file. Out: RGB, uint8,
(height, width, 3), turned as its EXIF tag says; transparent pixels lie over white, 16 bits become 8, of an animation
the first frame counts. Whatever cannot become that is an `ImageError`, one sentence with the file and the reason.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm._support.extras import optional_module
from eesvm._support.files import atomic_write
from eesvm._support.validation import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 89_478_485  # Pillow's own limit: 256 MiB as RGB; far above it a file is more likely an attack than a photo
IMAGE_SUFFIXES = (
    ".jpg", ".jpeg", ".jpe", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".pnm", ".tif", ".tiff", ".webp", ".avif", ".jp2",
)  # fmt: skip

_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP", "AVIF", "JPEG2000")
_ORIENTATION_TAG = 0x0112
_TURNS = {2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270",
          7: "TRANSVERSE", 8: "ROTATE_90"}  # fmt: skip

PathOrBytes = str | os.PathLike[str] | bytes


class ImageError(InputError):
    """An image cannot be read; the message is one sentence with the file and the reason."""


class Header(NamedTuple):
    """What the head of a file says: the size after EXIF rotation, and whether that rotation swaps the sides."""

    width: int
    height: int
    is_turned: bool


def read_image(image: PathOrBytes, max_pixels: int = MAX_PIXELS, rotate: bool = True) -> NDArray[np.uint8]:
    """(height, width, 3) uint8, RGB, upright unless `rotate` is False.

    Parameters
    ----------
    image : the path of a file, or its bytes.
    max_pixels : width times height above which an image is refused.
    rotate : turn the pixels as the EXIF tag says; False leaves them as they are stored.

    Raises
    ------
    ImageError : the image cannot be read, or is larger than `max_pixels`.
    """
    with _opened(image, max_pixels) as picture:
        orientation = _orientation(picture) if rotate else 1
        picture = _upright(picture, orientation)
        return np.array(_to_rgb(picture), dtype=np.uint8)


def image_header(image: PathOrBytes, max_pixels: int = MAX_PIXELS) -> Header:
    """Size after EXIF rotation, without decoding the pixels: a broken end of the file goes unnoticed.

    Parameters
    ----------
    image : the path of a file, or its bytes.
    max_pixels : width times height above which an image is refused.

    Raises
    ------
    ImageError : it is not an image, or is larger than `max_pixels`.
    """
    with _opened(image, max_pixels) as picture:
        width, height = picture.size
        is_turned = _orientation(picture) in (5, 6, 7, 8)
    return Header(height, width, True) if is_turned else Header(width, height, False)


def image_size(image: PathOrBytes, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """(width, height) after EXIF rotation, without decoding the pixels.

    Parameters
    ----------
    image : the path of a file, or its bytes.
    max_pixels : width times height above which an image is refused.

    Raises
    ------
    ImageError : it is not an image, or is larger than `max_pixels`.
    """
    return image_header(image, max_pixels)[:2]


def read_index_image(image: PathOrBytes, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """(height, width) palette numbers or grey levels of an image whose pixels number objects or classes.

    Parameters
    ----------
    image : the path of a file, or its bytes.
    max_pixels : width times height above which an image is refused.

    Raises
    ------
    ImageError : the image cannot be read, is larger than `max_pixels`, or has no such pixels.
    """
    with _opened(image, max_pixels) as picture:
        if picture.mode not in ("P", "L", "1"):
            raise ValueError(f"its pixels are {picture.mode}, not numbers of a palette or grey levels")
        picture.load()
        return np.array(picture, dtype=np.uint8)


def write_image(path: str | os.PathLike[str], image: NDArray[np.uint8], quality: int = 95) -> None:
    """Write pixels as an image file, whole or not at all.

    Parameters
    ----------
    path : the file to write; its ending, such as .jpg or .png, says the format.
    image : (height, width, 3) RGB or (height, width) grey, uint8.
    quality : of JPEG and WebP, up to 100.
    """
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)):
        raise InputError(
            f"`image` must be uint8 of shape (height, width, 3) or (height, width), got {pixels.dtype} {pixels.shape}"
        )
    if not pixels.size:
        raise InputError(f"`image` must have at least one pixel, got shape {pixels.shape}")
    pillow = optional_module("PIL.Image")
    write_picture(path, pillow.fromarray(np.ascontiguousarray(pixels)), quality)


def write_picture(path: str | os.PathLike[str], picture: Image, quality: int = 95) -> None:
    """Write a Pillow image, whole or not at all.

    Parameters
    ----------
    path : the file to write; its ending, such as .jpg or .png, says the format.
    picture : the Pillow image.
    quality : of JPEG and WebP, up to 100.
    """
    formats = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".bmp": "BMP", ".webp": "WEBP", ".tif": "TIFF"}
    suffix = Path(path).suffix.lower()
    if suffix not in formats:
        raise InputError(f"cannot write {path}: the ending {suffix!r} is not one of {', '.join(formats)}")
    options: dict[str, Any] = {"quality": quality} if formats[suffix] in ("JPEG", "WEBP") else {}
    with atomic_write(path) as handle:
        picture.save(handle, format=formats[suffix], **options)


@contextmanager
def _opened(image: PathOrBytes, max_pixels: int) -> Iterator[Image]:
    """The Pillow image, head read and size accepted; whatever goes wrong in the block becomes an `ImageError`."""
    name = "the image in memory" if isinstance(image, bytes) else os.fspath(image)
    pillow = optional_module("PIL.Image")
    try:
        with pillow.open(io.BytesIO(image) if isinstance(image, bytes) else image, formats=_FORMATS) as picture:
            _check_size(picture.size, max_pixels)
            yield picture
    except MemoryError as error:
        raise ImageError(f"{name}: there is not enough memory for it") from error
    except Exception as error:  # decoders meet hostile bytes and raise whatever they trip over
        raise ImageError(f"{name}: {_reason(error, image)}") from error


def _check_size(size: tuple[int, int], max_pixels: int) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise ValueError(f"it has no pixels ({width} x {height})")
    if width * height > max_pixels:
        raise ValueError(f"it has {width} x {height} pixels, more than the limit of {max_pixels:,} (`max_pixels`)")


def _reason(error: Exception, image: PathOrBytes) -> str:
    """Why, in words for people."""
    kind = type(error).__name__
    if kind.startswith("DecompressionBomb"):
        return "it has more pixels than Pillow's limit against decompression bombs"
    if kind == "UnidentifiedImageError":
        is_empty = not image if isinstance(image, bytes) else os.path.getsize(image) == 0
        return "the file is empty" if is_empty else "it is not an image of a known format"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    text = " ".join(str(error).split())
    return f"it is broken: {text or kind}" if not isinstance(error, ValueError) or not text else text


def _orientation(picture: Image) -> int:
    """The EXIF orientation, 1 to 8; of a TIFF Pillow takes care itself."""
    if picture.format == "TIFF":
        return 1
    try:  # the method of the base class: that of PNG would decode the whole image first
        value = optional_module("PIL.Image").Image.getexif(picture).get(_ORIENTATION_TAG, 1)
    except Exception:  # a broken EXIF block is no reason to lose the picture
        return 1
    return value if value in _TURNS else 1


def _upright(picture: Image, orientation: int) -> Image:
    picture.load()
    if orientation == 1:
        return picture
    turn = getattr(optional_module("PIL.Image").Transpose, _TURNS[orientation])
    turned = picture.transpose(turn)
    turned.info = picture.info  # which says what is transparent
    return turned


def _to_rgb(picture: Image) -> Image | NDArray[np.uint8]:
    mode = picture.mode
    if mode.startswith("I") or mode == "F":
        return _deep_to_rgb(np.asarray(picture), mode)
    has_alpha = mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in picture.info
    if not has_alpha:
        return picture.convert("RGB")
    layer = picture.convert("RGBA")
    white = optional_module("PIL.Image").new("RGBA", layer.size, (255, 255, 255, 255))
    white.alpha_composite(layer)
    return white.convert("RGB")


def _deep_to_rgb(values: NDArray[Any], mode: str) -> NDArray[np.uint8]:
    """Grey levels of more than 8 bits; Pillow would cut them off at 255.

    16 bits are scaled down. Numbers of 32 bits carry no scale, so it is taken from their range: 0 to 255 and 0 to
    65535 for integers, 0 to 1 and 0 to 255 for floats; anything beyond is refused.
    """
    if not np.isfinite(values).all():
        raise ValueError("its pixels are not all finite numbers")
    low, high = float(values.min()), float(values.max())
    if mode.startswith("I;16"):
        scale = 65535.0
    elif mode == "F":
        scale = 1.0 if high <= 1 else 255.0
    else:
        scale = 255.0 if high <= 255 else 65535.0
    if low < 0 or high > scale:
        raise ValueError(f"its pixels are numbers from {low:g} to {high:g}, which say no brightness")
    grey = np.rint(values.astype(np.float64) * (255.0 / scale)).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)
