"""Threads: how many, and how the work of independent exemplars is spread over them.

In: `n_jobs`, None for one per core that this process may use. Out: limits that hold inside a `with` block, and a loop
over chunks in threads. Inside `workers` a matrix product takes one thread, because each chunk has products of its own:
many small products that are spread over threads one by one wait for each other more than they compute.
The last bits of a product depend on its number of threads. What must not depend on the machine takes one.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from threadpoolctl import ThreadpoolController

from eesvm._support.validation import check_number

T = TypeVar("T")
Answer = TypeVar("Answer")


class Workers:
    """A fixed number of threads."""

    def __init__(self, n: int, pool: ThreadPoolExecutor | None = None) -> None:
        self.n, self._pool = n, pool

    def chunks(self, work: Callable[[int, int], object], n: int, size: int) -> None:
        """Call `work(start, stop)` for pieces of `size` of 0 .. n."""
        pieces = [(start, min(start + size, n)) for start in range(0, n, size)]
        if self._pool is None or len(pieces) < 2:
            for piece in pieces:
                work(*piece)
        else:
            for _ in self._pool.map(lambda piece: work(*piece), pieces):
                pass


@contextmanager
def workers(n_jobs: int | None) -> Iterator[Workers]:
    """`n_jobs` threads until the block ends, in which matrix products take one thread each."""
    n = n_threads(n_jobs)
    with one_product_thread():
        if n == 1:
            yield Workers(1)
        else:
            with ThreadPoolExecutor(n) as pool:
                yield Workers(n, pool)


class _ProductLimit:
    """The least number of threads that an open block asks for; blocks of all threads may overlap in any way.

    One thread of our own holds the limit. The library that sets it listens to a single thread as long as that one
    limits, and a block may end in another thread than the one it began in.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: list[int] = []
        self._holder: _Holder | None = None

    def enter(self, n: int) -> None:
        with self._lock:
            self._asked.append(n)
            self._apply()

    def leave(self, n: int) -> None:
        with self._lock:
            self._asked.remove(n)
            self._apply()

    def _apply(self) -> None:
        limit = min(self._asked, default=None)
        if limit == (None if self._holder is None else self._holder.limit):
            return
        if self._holder is not None:
            self._holder.end()
        self._holder = None if limit is None else _Holder(limit)


class _Holder:
    """A thread that limits matrix products of all threads until it is told to end."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._begun, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold, name="eesvm-product-limit", daemon=True)
        self._thread.start()
        self._begun.wait()

    def _hold(self) -> None:
        try:
            with _libraries().limit(limits=self.limit, user_api="blas"):
                self._begun.set()
                self._ended.wait()
        finally:
            self._begun.set()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


_limit = _ProductLimit()
_known: tuple[int, ThreadpoolController] | None = None  # how many modules there were, and what they had loaded


def _libraries() -> ThreadpoolController:
    """Whatever computes products. To look for it takes milliseconds, and there is nothing new without a new module."""
    global _known
    n_modules = len(sys.modules)
    if _known is None or _known[0] != n_modules:
        _known = n_modules, ThreadpoolController()
    return _known[1]


@contextmanager
def one_product_thread() -> Iterator[None]:
    """Matrix products of all threads take one thread each until the block ends; blocks may overlap in any way."""
    with product_threads(1):
        yield


@contextmanager
def product_threads(n_jobs: int | None) -> Iterator[None]:
    """Matrix products take `n_jobs` threads until the block ends, or fewer where another block asks for fewer.

    None leaves them as they are.
    """
    if n_jobs is None:
        yield
        return
    n = n_threads(n_jobs)
    _limit.enter(n)
    try:
        yield
    finally:
        _limit.leave(n)


def n_threads(n_jobs: int | None) -> int:
    """The number of threads that `n_jobs` asks for."""
    if n_jobs is not None:
        return int(check_number(n_jobs, "n_jobs", minimum=1, integer=True))
    return n_cores()


def n_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(work: Callable[[T], Answer], items: Iterable[T], n_workers: int) -> Iterator[tuple[T, Answer]]:
    """Each item with `work(item)`, in order, by some threads; at most two items per thread are under way."""
    if n_workers == 1:
        yield from ((item, work(item)) for item in items)
        return
    waiting: deque[tuple[T, Future[Answer]]] = deque()
    pool = ThreadPoolExecutor(n_workers)
    try:
        for item in items:
            waiting.append((item, pool.submit(work, item)))
            if len(waiting) >= 2 * n_workers:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    finally:
        pool.shutdown(cancel_futures=True)
