"""Sorting, within kernels and outside of them, against numpy."""

import numpy as np
import pytest

from eesvm._support.compile import kernel
from eesvm._support.sorting import copy_into, put_in_order, stable_argsort, stable_order


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_the_order_is_that_of_numpy(dtype):
    rng = np.random.default_rng(0)
    for n in [*range(70), 255, 256, 257, 1000, 5000]:
        for n_values in (1, 2, 10, 10_000):
            keys = rng.integers(-n_values, n_values, n).astype(dtype)
            assert np.array_equal(stable_order(keys), np.argsort(keys, kind="stable"))


def test_infinities_and_sorted_keys():
    for keys in ([np.inf, -np.inf, 0.0, np.inf], np.arange(100.0), -np.arange(100.0), [0.0, -0.0] * 20):
        assert np.array_equal(stable_order(np.array(keys)), np.argsort(keys, kind="stable"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_quick_order_is_that_of_numpy(dtype):
    rng = np.random.default_rng(2)
    tiny, huge = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    ends = np.array([0.0, -0.0, np.inf, -np.inf, tiny, -tiny, huge, -huge, 1.0, -1.0], dtype=dtype)
    tables = [rng.choice(ends, n) for n in (0, 1, 2, 17, 1000)]
    tables += [rng.normal(size=n).astype(dtype) for n in (5, 300, 20_000)]
    tables += [rng.integers(-3, 3, 5000).astype(dtype), rng.normal(size=(50, 4)).astype(dtype)[:, 1]]
    for values in tables:
        assert np.array_equal(stable_argsort(values), np.argsort(values, kind="stable"))


@kernel()
def _rearranged(values, order, target):
    put_in_order(values, order)
    copy_into(target, values)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64])
def test_values_are_put_in_order_and_copied(dtype):
    rng = np.random.default_rng(1)
    for n, n_ordered in ((0, 0), (1, 1), (7, 7), (9, 5)):
        values, target = rng.integers(-9, 9, n).astype(dtype), np.full(n + 2, 99, dtype=dtype)
        order = rng.permutation(n_ordered)
        expected = np.concatenate([values[order], values[n_ordered:]])
        for rearranged in (_rearranged, _rearranged.py_func):  # compiled into a kernel, and as Python
            got, into = values.copy(), target.copy()
            rearranged(got, order, into)
            np.testing.assert_array_equal(got, expected)
            np.testing.assert_array_equal(into, [*expected, 99, 99])
