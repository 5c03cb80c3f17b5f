"""The unit of weights: what every sum of them is a whole multiple of. And the quantum that searches count in.

In: weights. Out: an exact fraction, or None where float64 rounds their sums; a power of two.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

_EXACT = 2.0**53  # whole numbers below it, and sums of them below it, are exact in float64
_BITS = 50  # all weights together are fewer than 2**50 quanta
_LEAST_EXPONENT = -1074  # of a power of two that float64 can hold
_TOLERANCE = 1e-9  # of the loss, where weights are no whole quanta: what an optimal one may be above its bound


def quantum_of(weights: NDArray[np.float64]) -> float:
    """A power of two so small that shares lose next to nothing, so large that sums of all weights are exact."""
    exponent = math.frexp(math.fsum(weights.tolist()) or 1.0)[1]
    return math.ldexp(1.0, max(exponent - _BITS, _LEAST_EXPONENT))


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


def is_optimal(loss: float, bound: float, is_rounded: bool) -> bool:
    """Whether a loss counts as proven to be optimal; `is_rounded`: whole quanta took something from weights."""
    return loss - bound <= (_TOLERANCE * loss if is_rounded else 0.0)
