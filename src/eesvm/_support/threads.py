"""Threads: how many, and how the work of independent exemplars is spread over them.

In: `n_jobs`, None for one per core that this process may use. Out: limits that hold inside a `with` block, and a loop
over chunks in threads. Inside `workers` a matrix product takes one thread, because each chunk has products of its own:
many small products that are spread over threads one by one wait for each other more than they compute.
The last bits of a product depend on its number of threads. What must not depend on the machine takes one.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from threadpoolctl import threadpool_limits

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


class _OneProductThread:
    """The limit of `one_product_thread`, which holds from the first block that begins to the last that ends."""

    def __init__(self) -> None:
        self.lock, self.depth = threading.Lock(), 0
        self.limit: threadpool_limits | None = None

    def enter(self) -> None:
        with self.lock:
            if self.depth == 0:
                self.limit = threadpool_limits(limits=1, user_api="blas")
            self.depth += 1

    def leave(self) -> None:
        with self.lock:
            self.depth -= 1
            if self.depth == 0 and self.limit is not None:
                self.limit.restore_original_limits()
                self.limit = None


_one = _OneProductThread()


@contextmanager
def one_product_thread() -> Iterator[None]:
    """Matrix products of all threads take one thread each until the block ends; blocks may overlap in any way."""
    _one.enter()
    try:
        yield
    finally:
        _one.leave()


@contextmanager
def product_threads(n_jobs: int | None) -> Iterator[None]:
    """Matrix products take `n_jobs` threads until the block ends; None leaves them as they are.

    Inside `one_product_thread` they take one.
    """
    if n_jobs is None or _one.depth:  # to look for libraries takes milliseconds
        yield
        return
    with threadpool_limits(limits=n_threads(n_jobs), user_api="blas"):
        yield


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
