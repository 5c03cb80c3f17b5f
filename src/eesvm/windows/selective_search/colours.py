"""Colour spaces of selective search.

In: an RGB image, uint8 (height, width, 3). Out: planes, uint8 (n_channels, height, width), of one colour space.
Segmentations of different spaces disagree where light, shade or highlights matter, and so find different objects.

    hsv   hue in 0 .. 179, saturation, value
    lab   CIE L*a*b* of sRGB under D65; L* scaled to 0 .. 255, a* and b* shifted by 128
    rgb   as it is
    rgi   the share of red and of green in the sum of the three, and intensity
    grey  intensity
    hue   the hue of hsv alone
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import inner, kernel

SPACES = ("hsv", "lab", "rgb", "rgi", "grey", "hue")

Planes = NDArray[np.uint8]
_Table = NDArray[np.float32]

_CURVE_STEPS = 4096  # of the table of the cube root: finer than 8 bits of L* need


def colour_planes(image: NDArray[np.uint8], space: str) -> Planes:
    """The planes of a colour space, one of `SPACES`."""
    image = np.ascontiguousarray(image)
    if space == "lab":
        return _lab(image, _LINEAR, _CURVE)
    if space == "hue":
        return _hsv(image)[:1].copy()
    return {"hsv": _hsv, "rgb": _rgb, "rgi": _rgi, "grey": _grey}[space](image)


def _linear_light() -> _Table:
    """Linear light of the 256 values of sRGB."""
    v = np.arange(256) / 255
    return np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4).astype(np.float32)


def _lightness_curve() -> _Table:
    """The function f of CIE L*a*b* for arguments from 0 to 1."""
    t = np.arange(_CURVE_STEPS + 1) / _CURVE_STEPS
    return np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29).astype(np.float32)


_LINEAR, _CURVE = _linear_light(), _lightness_curve()


@kernel()
def _rgb(image: NDArray[np.uint8]) -> Planes:
    height, width, _ = image.shape
    planes = np.empty((3, height, width), dtype=np.uint8)
    for y in range(height):
        for x in range(width):
            planes[0, y, x] = image[y, x, 0]
            planes[1, y, x] = image[y, x, 1]
            planes[2, y, x] = image[y, x, 2]
    return planes


@kernel()
def _grey(image: NDArray[np.uint8]) -> Planes:
    height, width, _ = image.shape
    planes = np.empty((1, height, width), dtype=np.uint8)
    for y in range(height):
        for x in range(width):
            r, g, b = np.int32(image[y, x, 0]), np.int32(image[y, x, 1]), np.int32(image[y, x, 2])
            planes[0, y, x] = (4899 * r + 9617 * g + 1868 * b + 8192) >> 14
    return planes


@kernel()
def _rgi(image: NDArray[np.uint8]) -> Planes:
    height, width, _ = image.shape
    planes = np.empty((3, height, width), dtype=np.uint8)
    for y in range(height):
        for x in range(width):
            r, g, b = np.int32(image[y, x, 0]), np.int32(image[y, x, 1]), np.int32(image[y, x, 2])
            total = r + g + b
            if total == 0:  # black is grey, whose shares are a third
                planes[0, y, x] = 85
                planes[1, y, x] = 85
            else:
                planes[0, y, x] = (255 * r + total // 2) // total
                planes[1, y, x] = (255 * g + total // 2) // total
            planes[2, y, x] = (4899 * r + 9617 * g + 1868 * b + 8192) >> 14
    return planes


@kernel()
def _hsv(image: NDArray[np.uint8]) -> Planes:
    height, width, _ = image.shape
    planes = np.empty((3, height, width), dtype=np.uint8)
    for y in range(height):
        for x in range(width):
            r, g, b = np.int32(image[y, x, 0]), np.int32(image[y, x, 1]), np.int32(image[y, x, 2])
            high, low = max(r, g, b), min(r, g, b)
            span = high - low
            hue = np.float64(0.0)
            if span > 0:
                step = np.float64(30.0) / np.float64(span)
                if high == r:
                    hue = (g - b) * step
                elif high == g:
                    hue = 60.0 + (b - r) * step
                else:
                    hue = 120.0 + (r - g) * step
                if hue < -0.5:
                    hue += 180.0
            rounded = np.int32(hue + 0.5)
            planes[0, y, x] = rounded if rounded < 180 else 0
            planes[1, y, x] = np.int32(np.float32(255 * span) / np.float32(high) + np.float32(0.5)) if high > 0 else 0
            planes[2, y, x] = high
    return planes


@kernel()
def _lab(image: NDArray[np.uint8], linear: _Table, curve: _Table) -> Planes:
    height, width, _ = image.shape
    planes = np.empty((3, height, width), dtype=np.uint8)
    top = len(curve) - 1
    for y in range(height):
        for x in range(width):
            r, g, b = linear[image[y, x, 0]], linear[image[y, x, 1]], linear[image[y, x, 2]]
            # Divided by the white of D65, so that grey has three equal numbers.
            fx = curve[_step(np.float32(0.433953) * r + np.float32(0.376219) * g + np.float32(0.189828) * b, top)]
            fy = curve[_step(np.float32(0.212671) * r + np.float32(0.715160) * g + np.float32(0.072169) * b, top)]
            fz = curve[_step(np.float32(0.017758) * r + np.float32(0.109477) * g + np.float32(0.872765) * b, top)]
            planes[0, y, x] = np.int32(max(0.0, (116.0 * fy - 16.0) * 2.55) + 0.5)
            planes[1, y, x] = np.int32(500.0 * (fx - fy) + 128.5)
            planes[2, y, x] = np.int32(200.0 * (fy - fz) + 128.5)
    return planes


@inner()
def _step(t: np.float32, top: int) -> int:
    return min(top, int(t * top + np.float32(0.5)))
