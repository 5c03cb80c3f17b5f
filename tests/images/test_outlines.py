"""Outlines of masks: exact without tolerance, near and short with it."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.path import Path

from eesvm.images.outlines import outline
from helpers.examples import many


def filled(path, shape):
    """The mask that a path encloses by the even-odd rule, at the centres of pixels."""
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    centres = np.column_stack([2 * columns.ravel() + 1, 2 * rows.ravel() + 1])
    crossings = np.zeros(len(centres), dtype=int)
    for start, steps in re.findall(r"M([^l]+)l([^z]+)z", path):
        corner = np.array(start.split(), dtype=int)
        points = np.vstack([corner, corner + np.cumsum(np.array(steps.split(), dtype=int).reshape(-1, 2), axis=0)])
        crossings += Path(np.vstack([points, points[:1]])).contains_points(centres)
    return (crossings % 2 == 1).reshape(shape)


@settings(max_examples=many(100), deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1), st.floats(0.1, 0.9))
def test_without_tolerance_it_encloses_the_mask_and_nothing_else(height, width, seed, density):
    mask = np.random.default_rng(seed).random((height, width)) < density
    np.testing.assert_array_equal(filled(outline(mask, tolerance=0), mask.shape), mask)


def test_smallest_outlines():
    assert outline(np.zeros((3, 4), dtype=bool)) == ""
    assert outline(np.ones((1, 1), dtype=bool)) == "M1 0l-1 1 1 1 1 -1z"
    assert outline(np.eye(2, dtype=bool)).count("M") == 2  # corners that touch are not connected
    ring = np.ones((3, 3), dtype=bool)
    ring[1, 1] = False
    assert outline(ring).count("M") == 2


def test_stairs_become_lines():
    rows, columns = np.mgrid[:60, :60]
    disc = (rows - 29.5) ** 2 + (columns - 29.5) ** 2 < 27**2
    path, exact = outline(disc), outline(disc, tolerance=0)
    assert len(path) < len(exact) / 2
    back = filled(path, disc.shape)
    assert (back & disc).sum() / (back | disc).sum() > 0.96
    slope = rows < columns
    assert len(outline(slope).split()) < 14


def test_a_long_winding_outline_is_no_problem():
    comb = np.zeros((200, 201), dtype=bool)
    comb[:, ::2] = True
    comb[::199, :] = True
    assert outline(comb, tolerance=0).count("M") == 1 + comb.shape[1] // 2
    spiral = np.zeros((120, 120), dtype=bool)
    for k in range(0, 56, 4):
        spiral[k : 120 - k, k] = spiral[119 - k, k : 120 - k] = spiral[k : 120 - k, 119 - k] = True
        spiral[k, k + 4 : 120 - k] = True
    np.testing.assert_array_equal(filled(outline(spiral, tolerance=0), spiral.shape), spiral)


@pytest.mark.parametrize("shape", [(1, 7), (7, 1)])
def test_a_line_of_pixels(shape):
    assert filled(outline(np.ones(shape, dtype=bool), tolerance=0), shape).all()
    assert filled(outline(np.ones(shape, dtype=bool)), shape).sum() >= 5
