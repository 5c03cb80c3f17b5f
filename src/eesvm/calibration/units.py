"""The unit of weights: what every sum of them is a whole multiple of.

In: weights. Out: an exact fraction, or None where float64 rounds their sums.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

_EXACT = 2.0**53  # whole numbers below it, and sums of them below it, are exact in float64


def common_unit(weights: NDArray[np.float64]) -> Fraction | None:
    """The largest number that all weights are whole multiples of; None where their sums are not exact in float64.

    0 where all weights are 0.
    """
    positive = weights[weights > 0]
    if len(positive) == 0:
        return Fraction(0)
    mantissas, exponents = np.frexp(positive)
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    _, lowest_bits = np.frexp((whole & -whole).astype(np.float64))
    exponent = int((exponents - 53 + lowest_bits - 1).min())  # all weights are whole multiples of 2**exponent
    with np.errstate(over="ignore"):
        if not np.ldexp(positive.sum(), -exponent) < _EXACT:
            return None
    divisor = int(np.gcd.reduce(np.ldexp(positive, -exponent).astype(np.int64)))
    return divisor * Fraction(2) ** exponent
