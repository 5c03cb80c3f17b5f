"""Sets as bits of uint64, 64 of them a word: inner functions of compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from eesvm._support.compile import inner


@intrinsic
def n_ones(typing_context: Any, word: Any) -> Any:
    """How many bits of a uint64 are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@inner()
def first_one(word: Any) -> Any:
    """The place of the lowest bit that is set."""
    return np.int64(n_ones((word & (~word + np.uint64(1))) - np.uint64(1)))  # type: ignore[call-arg]


@inner()
def count_both(bits: Any, others: Any) -> Any:
    """How many are in both of two sets of as many words."""
    n: Any = np.int64(0)
    for w in range(len(bits)):
        n += np.int64(n_ones(bits[w] & others[w]))  # type: ignore[call-arg]
    return n


@inner()
def has(bits: Any, n: Any) -> Any:
    """1 where number n is in a set, else 0."""
    return (bits[n >> 6] >> np.uint64(n & 63)) & np.uint64(1)
