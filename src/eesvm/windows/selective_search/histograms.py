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

from eesvm._support.compile import kernel
from eesvm.windows.selective_search.colours import Planes

COLOUR_BINS = 25  # a channel
TEXTURE_BINS = 10  # a channel, direction and sign
_DIRECTIONS = 4
_SIGNED = 2 * TEXTURE_BINS  # bins of one direction: positive, then negative

Histograms = NDArray[np.float32]


class PixelBins(NamedTuple):
    """Bins of the pixels, relative to where the histogram of the channel or direction starts."""

    bins: NDArray[np.uint8]  # (n_pixels, 5 * n_channels): first the colours, then the directions of each channel
    n_channels: int


def pixel_bins(planes: Planes) -> PixelBins:
    """The bins of all pixels."""
    n_channels, height, width = planes.shape
    bins = np.empty((height * width, (1 + _DIRECTIONS) * n_channels), dtype=np.uint8)
    for channel in range(n_channels):
        gradients = _gradients(planes[channel])
        _fill_bins(planes[channel], gradients, channel, n_channels, bins)
    return PixelBins(bins, n_channels)


def region_histograms(pixels: PixelBins, labels: NDArray[np.int32], n_regions: int) -> tuple[Histograms, Histograms]:
    """(n_regions, 25 * n_channels) counts of colours and (n_regions, 80 * n_channels) of texture."""
    return _histograms(pixels.bins, labels.reshape(-1), n_regions, pixels.n_channels)


@kernel()
def _gradients(plane: NDArray[np.uint8]) -> NDArray[np.int32]:
    """(4, height, width): derivatives to the right, down, lower right, lower left; the border is repeated."""
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
    found = np.empty((_DIRECTIONS, height, width), dtype=np.int32)
    for y in range(height):
        a, b, c = padded[y], padded[y + 1], padded[y + 2]
        for x in range(width):
            right = 3 * (a[x + 2] - a[x] + c[x + 2] - c[x]) + 10 * (b[x + 2] - b[x])
            down = 3 * (c[x] - a[x] + c[x + 2] - a[x + 2]) + 10 * (c[x + 1] - a[x + 1])
            found[0, y, x] = right
            found[1, y, x] = down
            found[2, y, x] = right + down
            found[3, y, x] = down - right
    return found


@kernel()
def _fill_bins(
    plane: NDArray[np.uint8], gradients: NDArray[np.int32], channel: int, n_channels: int, bins: NDArray[np.uint8]
) -> None:
    """Fill the columns of one channel. Bins of a direction: 1 to 9 positive, 11 to 19 negative, 0 for neither."""
    n_pixels = plane.size
    flat = plane.reshape(n_pixels)
    for pixel in range(n_pixels):
        bins[pixel, channel] = np.int32(flat[pixel]) * COLOUR_BINS >> 8
    for direction in range(_DIRECTIONS):
        values = gradients[direction].reshape(n_pixels)
        high, low = 1, -1
        for pixel in range(n_pixels):
            high, low = max(high, values[pixel]), min(low, values[pixel])
        up, down = np.float32(TEXTURE_BINS) / np.float32(high + 1), np.float32(TEXTURE_BINS) / np.float32(low - 1)
        column = n_channels + _DIRECTIONS * channel + direction
        for pixel in range(n_pixels):
            value = np.float32(values[pixel])
            place = np.int32(value * up)
            if value < 0:
                place = np.int32(value * down)
                if place > 0:
                    place += TEXTURE_BINS
            bins[pixel, column] = place


@kernel()
def _histograms(
    bins: NDArray[np.uint8], labels: NDArray[np.int32], n_regions: int, n_channels: int
) -> tuple[Histograms, Histograms]:
    n_columns = bins.shape[1] - n_channels
    colours = np.zeros((n_regions, n_channels * COLOUR_BINS), dtype=np.int32)
    texture = np.zeros((n_regions, n_columns * _SIGNED), dtype=np.int32)
    for pixel in range(len(labels)):
        region = labels[pixel]
        for channel in range(n_channels):
            colours[region, COLOUR_BINS * channel + bins[pixel, channel]] += 1
        for column in range(n_columns):
            texture[region, _SIGNED * column + bins[pixel, n_channels + column]] += 1
    _complete(texture, colours[:, :COLOUR_BINS])
    return colours.astype(np.float32), texture.astype(np.float32)


@kernel()
def _complete(texture: NDArray[np.int32], colours: NDArray[np.int32]) -> None:
    """In place: what counts in no other bin of a sign counts in its first."""
    for region in range(len(texture)):
        size = colours[region].sum()
        for start in range(0, texture.shape[1], TEXTURE_BINS):
            texture[region, start] = size - texture[region, start + 1 : start + TEXTURE_BINS].sum()
