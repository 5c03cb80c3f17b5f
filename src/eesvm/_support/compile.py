"""How kernels are compiled: cached on disk where that is possible, without the interpreter lock.

In: a function of arrays and numbers. Out: the same, compiled by numba at its first call; and how long that took, which
is no part of what a search may take: in a new installation it is more than many a search.
A read-only installation without a writable home has nowhere to keep compiled code: there it is compiled anew in every
process, instead of failing at import.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import event
from numba.core.cgutils import voidptr_t
from numba.extending import intrinsic, register_jitable


class _CompileTime(event.Listener):
    """Seconds in which numba compiled something, or read it from its cache."""

    def __init__(self) -> None:
        self._done, self._depth, self._since = 0.0, 0, 0.0

    def on_start(self, event: event.Event) -> None:
        if self._depth == 0:
            self._since = time.perf_counter()
        self._depth += 1

    def on_end(self, event: event.Event) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._done += time.perf_counter() - self._since

    @property
    def seconds(self) -> float:
        return self._done + (time.perf_counter() - self._since if self._depth > 0 else 0.0)


_compile_time = _CompileTime()
event.register("numba:compile", _compile_time)


def compile_seconds() -> float:
    """How long this process has been compiling."""
    return _compile_time.seconds


def kernel(*bare: Any, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: `njit(cache=True, nogil=True, **options)`, without the cache where there is no place for one."""
    _refuse_bare("kernel", bare)

    def compile_lazily(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:  # "cannot cache function ...: no locator available"
            return njit(nogil=True, **options)(function)

    return compile_lazily


def inner(*bare: Any, counted: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator for what only kernels call: compiled into them, without an entrance and a cache of its own.

    Called from Python it runs as the Python that it is. One that neither makes nor returns arrays need not count who
    holds those that it is given: `counted=False` leaves that out, which is a tenth of what there is to compile.
    """
    _refuse_bare("inner", bare)

    def compile_within(function: Callable[..., Any]) -> Callable[..., Any]:
        return register_jitable(cache=False, _nrt=counted, **options)(function)

    return compile_within


def _refuse_bare(name: str, bare: tuple[Any, ...]) -> None:
    if bare:
        raise TypeError(f"write @{name}() with its parentheses, and options by their names")


def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask for a value of a contiguous array to come near the processor, where it is read faster later on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), voidptr_t)
        number = ir.IntType(32)
        shape = ir.FunctionType(ir.VoidType(), [voidptr_t, number, number, number])
        ask = builder.module.declare_intrinsic("llvm.prefetch", (voidptr_t,), shape)
        builder.call(ask, [address, number(0), number(2), number(1)])  # to read, near, data
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


prefetch: Any = intrinsic(_prefetch)  # prefetch(array, index), for kernels alone
