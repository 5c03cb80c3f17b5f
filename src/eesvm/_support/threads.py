"""Threads: how many, and how the work of independent exemplars is spread over them.

In: `n_jobs`, None for one per core that this process may use. Out: limits that hold inside a `with` block, and a loop
over chunks in threads. Inside `workers` a matrix product takes one thread, because each chunk has products of its own:
many small products that are spread over threads one by one wait for each other more than they compute.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

from eesvm._support.validation import check_number


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
    with threadpool_limits(limits=1, user_api="blas"):
        if n == 1:
            yield Workers(1)
        else:
            with ThreadPoolExecutor(n) as pool:
                yield Workers(n, pool)


@contextmanager
def product_threads(n_jobs: int | None) -> Iterator[None]:
    """Matrix products take `n_jobs` threads until the block ends; None leaves them as they are."""
    if n_jobs is None:  # to look for libraries takes milliseconds
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
