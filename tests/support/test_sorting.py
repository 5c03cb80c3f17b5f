"""Sorting within kernels, against numpy."""

import numpy as np
import pytest

from eesvm._support.sorting import stable_order


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
