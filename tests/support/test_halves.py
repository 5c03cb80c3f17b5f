"""Conversion to float16: numpy is the reference."""

import numpy as np
import pytest

from eesvm._support.halves import (
    from_half,
    has_nan,
    is_finite,
    largest,
    largest_of_rows,
    round_to_half,
    rows_to_half,
    to_half,
)

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


@pytest.mark.parametrize("n", [0, 1, 3000])
def test_some_rows_are_those_of_a_copy(n):
    random = np.random.default_rng(n)
    table = random.standard_normal((5000, 70)).astype(np.float32)
    rows = np.sort(random.choice(5000, n, replace=False))
    assert same_bits(rows_to_half(table, rows, 4.0), to_half(table[rows], 4.0))
    assert largest_of_rows(table, rows) == largest(table[rows])


@pytest.mark.parametrize("scale", [2.0**-9, 1.0, 64.0])
@pytest.mark.parametrize("size", [1e-9, 1e-6, 1e-4, 1.0])
def test_rounding_in_place_is_there_and_back_again(size, scale):
    values = (scale * size * np.random.default_rng(0).standard_normal((300, 700))).astype(np.float32)  # several parts
    values[0, :3] = 0.0, -0.0, scale
    expected = (values / np.float32(scale)).astype(np.float16).astype(np.float32) * np.float32(scale)
    np.testing.assert_array_equal(from_half(to_half(values, scale), scale), expected)
    round_to_half(values, scale)
    np.testing.assert_array_equal(values.view(np.uint32), expected.view(np.uint32))


def test_every_half_stays_and_middles_go_to_the_even_one_in_place():
    ordered = np.sort(FINITE.astype(np.float32))
    for values in (ordered, (ordered[:-1] + ordered[1:]) / 2):
        expected = values.astype(np.float16).astype(np.float32)
        round_to_half(values, 1.0)
        np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("value", [*HALVES[::97].tolist(), np.nan, -np.inf])
def test_what_is_no_number_is_found(value):
    table = np.zeros((3, 5), dtype=np.float16)
    table[1, 2] = value
    for one in (table, table.T):
        assert is_finite(one) == np.isfinite(value)
        assert has_nan(one) == np.isnan(value)


def test_the_largest_magnitude():
    assert largest(np.array([[1.0, -3.0], [2.0, 0.0]], dtype=np.float32)) == 3
    assert largest(np.empty((0, 4), dtype=np.float32)) == 0
