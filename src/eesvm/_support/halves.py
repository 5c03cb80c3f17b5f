"""Tables of numbers as float16, several times faster than numpy converts them.

In: float32, and a power of two as their unit. Out: float16, the same that numpy gives: rounded to the nearest, and to
the even one where two are as near.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import kernel

F32 = NDArray[np.float32]
F16 = NDArray[np.float16]

_LEAST_NORMAL = np.float32(2.0**-14)
_STEPS = np.float32(2.0**24)  # of the numbers below that, to 1


def to_half(table: F32, scale: float) -> F16:
    """`table / scale` as float16.

    Parameters
    ----------
    table : of any shape; in units of `scale` no number may be beyond float16.
    scale : a power of two.
    """
    flat = np.ascontiguousarray(table, dtype=np.float32).reshape(-1)
    out = np.empty(len(flat), dtype=np.uint16)
    units = flat * np.float32(1 / scale)
    _narrow(units, units.view(np.uint32), out)
    return out.view(np.float16).reshape(np.shape(table))


@kernel()
def _narrow(values, bits, out):  # type: ignore[no-untyped-def]
    """Fill in the bits of float16."""
    for i in range(len(values)):
        sign = (bits[i] >> np.uint32(16)) & np.uint32(0x8000)
        size = abs(values[i])
        if size < _LEAST_NORMAL:
            low = np.uint32(np.rint(size * _STEPS))
        else:
            own = bits[i] & np.uint32(0x7FFFFFFF)
            own += np.uint32(0xFFF) + ((own >> np.uint32(13)) & np.uint32(1))
            low = (own >> np.uint32(13)) - np.uint32(112 << 10)
        out[i] = np.uint16(sign | low)
