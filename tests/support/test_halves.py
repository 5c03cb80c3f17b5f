"""Conversion to float16: numpy is the reference."""

import numpy as np
import pytest

from eesvm._support.halves import to_half

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = HALVES[np.isfinite(HALVES)]


def same_bits(a, b):
    return a.dtype == b.dtype == np.float16 and (a.view(np.uint16) == b.view(np.uint16)).all()


def test_every_half_is_itself():
    assert same_bits(to_half(FINITE.astype(np.float32), 1.0), FINITE)


def test_the_middle_of_two_halves_goes_to_the_even_one():
    ordered = np.sort(FINITE.astype(np.float32))
    middles = (ordered[:-1] + ordered[1:]) / 2
    assert same_bits(to_half(middles, 1.0), middles.astype(np.float16))


@pytest.mark.parametrize("size", [1e-9, 1e-7, 1e-5, 1e-3, 1.0, 1e3])
def test_random_numbers_are_rounded_as_numpy_rounds(size):
    values = (size * np.random.default_rng(0).standard_normal((300, 70))).astype(np.float32)
    assert same_bits(to_half(values, 1.0), values.astype(np.float16))
    assert same_bits(to_half(values, 8.0), (values / np.float32(8)).astype(np.float16))


def test_a_table_without_numbers_stays_empty():
    assert to_half(np.empty((0, 3), dtype=np.float32), 2.0).shape == (0, 3)
