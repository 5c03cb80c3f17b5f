"""Outlines of masks, for drawings that are scaled and for tools that know polygons alone.

In: a boolean mask. Out: the path of its outline as SVG writes it, in units of half a pixel; or the polygons around its
parts, in pixels, or one that runs around all of them. The outline runs between
the centres of pixels that are in and their neighbours that are out, around a mask that touches its border along the
border. It is then simplified: corners that lie within half a pixel of a straight line are left out, and with them the
stairs that pixels make of slanted lines. What would become too small for a triangle stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_Point = tuple[int, int]


def outline(mask: NDArray[np.bool_], tolerance: float = 1.0) -> str:
    """The outline of a (height, width) mask, in a box of 2 width x 2 height; "" where the mask is empty.

    `tolerance` is how far corners that are left out may lie from the line, in the same units; 0 keeps all of them.
    """
    return "".join(_path(loop) for loop in _loops(mask, tolerance))


def mask_polygons(mask: NDArray[np.bool_], tolerance: float = 1.0) -> list[NDArray[np.float64]]:
    """(k, 2) corners x, y of a polygon around each part of a (height, width) mask, in pixels, the largest part first.

    Holes are filled. An empty mask has none.

    Parameters
    ----------
    mask : (height, width) bool.
    tolerance : how far corners that are left out may lie from the outline, in half pixels.
    """
    polygons = [np.array(loop, dtype=np.float64) / 2 for loop in _loops(mask, tolerance)]
    around = [(_area(polygon), polygon) for polygon in polygons]
    return [polygon for area, polygon in sorted(around, key=lambda one: -one[0]) if area > 0]


def joined_polygon(polygons: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """(k, 2) corners of one polygon around several, which narrow bridges without area connect.

    Parameters
    ----------
    polygons : (k, 2) corners of each; at least one.
    """
    whole = polygons[0]
    for other in polygons[1:]:
        distances = ((whole[:, None, :] - other[None, :, :]) ** 2).sum(axis=2)
        here, there = np.unravel_index(int(distances.argmin()), distances.shape)
        around = np.concatenate([other[there:], other[: there + 1]])
        whole = np.concatenate([whole[: here + 1], around, whole[here:]])
    return whole


def _loops(mask: NDArray[np.bool_], tolerance: float) -> Iterator[list[_Point]]:
    """Simplified outlines of all parts and holes, in half pixels."""
    following = _steps(np.pad(np.asarray(mask, dtype=bool), 1))
    for start in tuple(following):
        if start not in following:  # an earlier loop has come through here
            continue
        loop = [start]
        while (point := following.pop(loop[-1])) != start:
            loop.append(point)
        yield _simplified(_corners(loop), tolerance)


def _area(polygon: NDArray[np.float64]) -> float:
    """Signed: above 0 around a part, below 0 around a hole."""
    (x, y), (next_x, next_y) = polygon.T, np.roll(polygon, -1, axis=0).T
    return float((next_x * y - x * next_y).sum()) / 2


def _steps(padded: NDArray[np.bool_]) -> dict[_Point, _Point]:
    """From each point between two pixels of which one is in, where the outline goes next, with the inside to its left.

    A cell lies between four pixel centres; in units of half a pixel the one right of and below pixel x, y of the padded
    mask has its centre at 2 x, 2 y of the mask. Where only two opposite corners are in, each gets its own outline.
    """
    corners = padded[:-1, :-1], padded[:-1, 1:], padded[1:, 1:], padded[1:, :-1]  # clockwise from the upper left
    is_mixed = np.logical_or.reduce(corners) & ~np.logical_and.reduce(corners)
    following = {}
    for y, x in np.argwhere(is_mixed).tolist():
        is_in = [bool(corner[y, x]) for corner in corners]
        # Midpoints of the cell's sides: each lies between the corner with its number and the next one, clockwise.
        sides = (2 * x, 2 * y - 1), (2 * x + 1, 2 * y), (2 * x, 2 * y + 1), (2 * x - 1, 2 * y)
        entries = [k for k in range(4) if is_in[(k + 1) % 4] and not is_in[k]]
        for entry in entries:  # the outline leaves where the run of corners that are in ends
            leave = next(k % 4 for k in range(entry + 1, entry + 4) if not is_in[(k + 1) % 4])
            following[sides[entry]] = sides[leave]
    return following


def _corners(loop: list[_Point]) -> list[_Point]:
    """The loop without points in the middle of a straight line."""
    around = zip([loop[-1], *loop[:-1]], loop, [*loop[1:], loop[0]], strict=True)
    return [b for a, b, c in around if (b[0] - a[0]) * (c[1] - b[1]) != (b[1] - a[1]) * (c[0] - b[0])]


def _simplified(loop: list[_Point], tolerance: float) -> list[_Point]:
    """The loop after Ramer, Douglas and Peucker, between its first point and the one that is farthest from it."""
    points = np.array(loop, dtype=np.float64)
    far = int(((points - points[0]) ** 2).sum(axis=1).argmax())
    closed = np.vstack([points, points[:1]])
    kept = {0, far} | _needed(closed, 0, far, tolerance) | _needed(closed, far, len(loop), tolerance)
    return [loop[k] for k in sorted(kept)] if len(kept) > 2 else loop


def _needed(points: NDArray[np.float64], first: int, last: int, tolerance: float) -> set[int]:
    """Points between two others without which the line between those would be too far away."""
    kept: set[int] = set()
    pending = [(first, last)]
    while pending:
        a, b = pending.pop()
        if b - a < 2:
            continue
        along, offsets = points[b] - points[a], points[a + 1 : b] - points[a]
        length = float(np.hypot(*along))
        distances = np.hypot(offsets[:, 0], offsets[:, 1])
        if length:
            distances = np.abs(along[0] * offsets[:, 1] - along[1] * offsets[:, 0]) / length
        worst = a + 1 + int(distances.argmax())
        if distances[worst - a - 1] > tolerance:
            kept.add(worst)
            pending += [(a, worst), (worst, b)]
    return kept


def _path(points: list[_Point]) -> str:
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(points)]
    return f"M{points[0][0]} {points[0][1]}l{' '.join(f'{x} {y}' for x, y in steps)}z"
