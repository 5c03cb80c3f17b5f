"""Tables of numbers as float16, several times faster than numpy converts them.

In: float32, and a power of two as their unit. Out: float16, the same that numpy gives: rounded to the nearest, and to
the even one where two are as near; or float32 again, rounded like that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import kernel

F32 = NDArray[np.float32]
F16 = NDArray[np.float16]

_LEAST_NORMAL = np.float32(2.0**-14)
_STEPS = np.float32(2.0**24)  # of the numbers below that, to 1
_EXPONENT, _ALL_BUT_SIGN = np.uint16(0x7C00), np.uint16(0x7FFF)
_TOGETHER = 1 << 16  # numbers


def to_half(table: F32, scale: float) -> F16:
    """`table / scale` as float16.

    Parameters
    ----------
    table : of any shape; in units of `scale` no number may be beyond float16.
    scale : a power of two.
    """
    flat = np.ascontiguousarray(table, dtype=np.float32).reshape(-1)
    out = np.empty(len(flat), dtype=np.uint16)
    for part in _parts(len(flat)):
        units = flat[part] * np.float32(1 / scale)
        _narrow(units, units.view(np.uint32), out[part])
    return out.view(np.float16).reshape(np.shape(table))


def rows_to_half(table: F32, rows: NDArray[np.int64], scale: float) -> F16:
    """`to_half(table[rows], scale)`, without such a copy of the rows.

    Parameters
    ----------
    table : (n, d).
    rows : (m,) which of its rows.
    scale : a power of two.
    """
    out = np.empty((len(rows), table.shape[1]), dtype=np.float16)
    for start, some in _picked(table, rows):
        out[start : start + len(some)] = to_half(some, scale)
    return out


def largest_of_rows(table: F32, rows: NDArray[np.int64]) -> float:
    """`largest(table[rows])`, likewise.

    Parameters
    ----------
    table, rows : see `rows_to_half`.
    """
    return max((largest(some) for _, some in _picked(table, rows)), default=0.0)


def from_half(table: F16, scale: float) -> F32:
    """What `to_half` was given, rounded.

    Parameters
    ----------
    table : of any shape.
    scale : a power of two.
    """
    return np.multiply(table, np.float32(scale), dtype=np.float32)


def round_to_half(table: F32, scale: float) -> None:
    """In place: what `from_half` makes of what `to_half` makes of the table.

    Parameters
    ----------
    table : contiguous, of any shape; in units of `scale` no number may be beyond float16.
    scale : a power of two.
    """
    flat = table.reshape(-1)
    for part in _parts(len(flat)):
        units = flat[part]
        units *= np.float32(1 / scale)
        _round(units, units.view(np.uint32))
        units *= np.float32(scale)


def largest(table: NDArray[np.floating[Any]]) -> float:
    """The largest magnitude of a table, 0 for one without numbers."""
    return max(float(table.max()), -float(table.min())) if table.size else 0.0


def is_finite(table: F16) -> bool:
    """Whether a table holds neither infinity nor NaN; numpy takes several times as long to tell."""
    return not ((np.ascontiguousarray(table).view(np.uint16) & _EXPONENT) == _EXPONENT).any()


def has_nan(table: F16) -> bool:
    """Whether a table holds NaN."""
    return bool(((np.ascontiguousarray(table).view(np.uint16) & _ALL_BUT_SIGN) > _EXPONENT).any())


def _picked(table: F32, rows: NDArray[np.int64]) -> Iterator[tuple[int, F32]]:
    """Copies of some rows at a time, each with its place; the next copy takes the place of the one before."""
    n_together = max(1, _TOGETHER // table.shape[1])
    room = np.empty((min(n_together, len(rows)), table.shape[1]), dtype=np.float32)
    for start in range(0, len(rows), n_together):
        some = rows[start : start + n_together]
        yield start, np.take(table, some, axis=0, out=room[: len(some)], mode="clip")


def _parts(n: int) -> Iterator[slice]:
    """Pieces that stay in the cache of a core from one pass to the next."""
    return (slice(start, start + _TOGETHER) for start in range(0, n, _TOGETHER))


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


@kernel()
def _round(values, bits):  # type: ignore[no-untyped-def]
    """In place: round to what float16 can hold; `bits` are those of the values."""
    for i in range(len(values)):
        size = abs(values[i])
        if size < _LEAST_NORMAL:
            values[i] = math.copysign(np.rint(size * _STEPS) / _STEPS, values[i])
        else:
            own = bits[i]
            own += np.uint32(0xFFF) + ((own >> np.uint32(13)) & np.uint32(1))
            bits[i] = own & np.uint32(0xFFFFE000)
