"""Colour and texture of pixels as bins of histograms, computed once for all segmentations of a colour space.

In: planes of a colour space. Out: for each pixel its bins, and for labels the histograms of each region.
Colour: 25 bins a channel. Texture: derivatives (Scharr) in four directions a channel, positive and negative ones apart,
ten bins each from 0 to the largest of the image; a pixel counts in one bin of each of the eight.
Histograms are counts, so they add up when regions are merged.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import inner, kernel
from eesvm.windows.selective_search.colours import Planes

COLOUR_BINS = 25  # a channel
TEXTURE_BINS = 10  # a channel, direction and sign
_DIRECTIONS = 4
_SIGNED = 2 * TEXTURE_BINS  # bins of one direction: positive, then negative

Histograms = NDArray[np.float32]


class PixelBins(NamedTuple):
    """Bins of the pixels, relative to where the histogram of the channel or direction starts."""

    bins: NDArray[np.uint8]  # (5 * n_channels, n_pixels): first the colours, then the directions of each channel
    n_channels: int


def pixel_bins(planes: Planes) -> PixelBins:
    """The bins of all pixels."""
    n_channels = len(planes)
    bins = np.empty(((1 + _DIRECTIONS) * n_channels, planes[0].size), dtype=np.uint8)
    for channel, plane in enumerate(planes):
        first = n_channels + _DIRECTIONS * channel
        _fill_colour(plane.reshape(-1), bins[channel])
        _fill_texture(_gradients(plane).reshape(2, -1), bins[first : first + _DIRECTIONS])
    return PixelBins(bins, n_channels)


def region_histograms(pixels: PixelBins, labels: NDArray[np.int32], n_regions: int) -> tuple[Histograms, Histograms]:
    """(n_regions, 25 * n_channels) counts of colours and (n_regions, 80 * n_channels) of texture."""
    return _histograms(pixels.bins, labels.reshape(-1), n_regions, pixels.n_channels)


@kernel()
def _gradients(plane: NDArray[np.uint8]) -> NDArray[np.int32]:
    """(2, height, width): derivatives to the right and down; the border is repeated."""
    height, width = plane.shape
    padded = np.empty((height + 2, width + 2), dtype=np.int32)
    for y in range(height):
        row = padded[y + 1]
        for x in range(width):
            row[x + 1] = plane[y, x]
        row[0] = row[1]
        row[width + 1] = row[width]
    padded[0] = padded[1]
    padded[height + 1] = padded[height]
    found = np.empty((2, height, width), dtype=np.int32)
    for y in range(height):
        a, b, c = padded[y], padded[y + 1], padded[y + 2]
        right, down = found[0, y], found[1, y]
        for x in range(width):
            right[x] = 3 * (a[x + 2] - a[x] + c[x + 2] - c[x]) + 10 * (b[x + 2] - b[x])
            down[x] = 3 * (c[x] - a[x] + c[x + 2] - a[x + 2]) + 10 * (c[x + 1] - a[x + 1])
    return found


@kernel()
def _fill_colour(plane: NDArray[np.uint8], bins: NDArray[np.uint8]) -> None:
    """In place."""
    for pixel in range(len(plane)):
        bins[pixel] = np.int32(plane[pixel]) * COLOUR_BINS >> 8


@kernel()
def _fill_texture(gradients: NDArray[np.int32], bins: NDArray[np.uint8]) -> None:
    """In place, for the directions right, down, lower right and lower left: 0 for neither sign's higher bins."""
    right, down = gradients[0], gradients[1]
    values = np.empty_like(right)
    for direction in range(_DIRECTIONS):
        along = np.int32(0 if direction == 1 else -1 if direction == 3 else 1)
        across = np.int32(0 if direction == 0 else 1)
        for pixel in range(len(values)):
            values[pixel] = along * right[pixel] + across * down[pixel]
        _fill_signed(values, bins[direction])


@inner()
def _fill_signed(values: NDArray[np.int32], bins: NDArray[np.uint8]) -> None:
    """In place: 1 to 9 for positive values, 11 to 19 for negative ones, 0 where both are in their first bin."""
    high, low = np.int32(0), np.int32(0)
    for pixel in range(len(values)):
        high, low = max(high, values[pixel]), min(low, values[pixel])
    up = np.float32(TEXTURE_BINS) / np.float32(high + 1)
    down = np.float32(TEXTURE_BINS) / np.float32(low - 1)
    for pixel in range(len(values)):
        value = np.float32(values[pixel])
        positive = np.int32(max(value, np.float32(0)) * up)
        negative = np.int32(min(value, np.float32(0)) * down)
        bins[pixel] = positive + negative + (np.int32(TEXTURE_BINS) if negative > 0 else np.int32(0))


@kernel()
def _histograms(
    bins: NDArray[np.uint8], labels: NDArray[np.int32], n_regions: int, n_channels: int
) -> tuple[Histograms, Histograms]:
    n_columns = len(bins) - n_channels
    colours = np.zeros((n_regions, n_channels * COLOUR_BINS), dtype=np.int32)
    texture = np.zeros((n_regions, n_columns * _SIGNED), dtype=np.int32)
    for pixel in range(len(labels)):
        region = labels[pixel]
        for channel in range(n_channels):
            colours[region, COLOUR_BINS * channel + bins[channel, pixel]] += 1
        for column in range(n_columns):
            texture[region, _SIGNED * column + bins[n_channels + column, pixel]] += 1
    _complete(texture, colours[:, :COLOUR_BINS])
    return colours.astype(np.float32), texture.astype(np.float32)


@inner()
def _complete(texture: NDArray[np.int32], colours: NDArray[np.int32]) -> None:
    """In place: what counts in no other bin of a sign counts in its first."""
    for region in range(len(texture)):
        size = 0
        for k in range(colours.shape[1]):
            size += colours[region, k]
        for start in range(0, texture.shape[1], TEXTURE_BINS):
            others = 0
            for k in range(start + 1, start + TEXTURE_BINS):
                others += texture[region, k]
            texture[region, start] = size - others
