"""Photographs small enough that hundreds of them fit into one page.

In: RGB arrays and the bytes that all of them may take together. Out: `Image`s, each the largest and finest JPEG of a
fixed ladder of sizes and qualities that keeps its share. A few photographs stay sharp, hundreds become small, and the
page stays below its limit whatever they show.
The page shows a piece of the one image wherever it needs one.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.extras import optional_module
from eesvm.report.data import Image

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

# Longest side in pixels, and quality. The last is taken even where it exceeds the share.
_LADDER = (
    (1024, 85),
    (800, 82),
    (640, 80),
    (512, 76),
    (400, 72),
    (320, 68),
    (256, 62),
    (192, 58),
    (128, 55),
    (96, 50),
    (64, 45),
)


def share(total_bytes: int, n_images: int) -> int:
    """Bytes that each of a number of images may have."""
    return total_bytes // max(1, n_images)


def fitted_jpeg(pixels: NDArray[np.uint8], most_bytes: int, longest: int = 1024) -> Image:
    """The largest and finest JPEG of the ladder with at most that many bytes, no side longer than `longest`."""
    pillow = optional_module("PIL.Image")
    whole = pillow.fromarray(np.ascontiguousarray(pixels))
    content = b""
    for side, quality in _LADDER:
        if side > longest:
            continue
        stream = io.BytesIO()
        _shrunk(whole, side, pillow.Resampling.BOX).save(stream, format="JPEG", quality=quality, optimize=True)
        content = stream.getvalue()
        if len(content) <= most_bytes:
            break
    return Image("image/jpeg", content)


def _shrunk(picture: PillowImage, side: int, resampling: Any) -> PillowImage:
    factor = side / max(picture.size)
    if factor >= 1:
        return picture
    width, height = (max(1, round(length * factor)) for length in picture.size)
    return picture.resize((width, height), resampling)
