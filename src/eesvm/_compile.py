"""How kernels are compiled: cached on disk where that is possible, without the interpreter lock.

In: a function of arrays and numbers. Out: the same, compiled by numba at its first call.
A read-only installation without a writable home has nowhere to keep compiled code: there it is compiled anew in every
process, instead of failing at import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: `njit(cache=True, nogil=True, **options)`, without the cache where there is no place for one."""

    def compile_lazily(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:  # "cannot cache function ...: no locator available"
            return njit(nogil=True, **options)(function)

    return compile_lazily
