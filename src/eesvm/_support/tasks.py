"""Runs tasks, here or on workers.

In: functions of a module, and arguments. Out: their results. `Engine` is what a training asks for: to take a task, to
hand out its result, and to bring a large value to the workers once, not once per task. `LocalEngine` computes in this
process; `dask_tasks.DaskEngine` on a cluster. Which engine is at work changes no result.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

LOCAL = "local"

T = TypeVar("T")


class Pending(Protocol):
    """A task that was handed in."""

    def is_done(self) -> bool:
        """Whether `result` would return, or raise, at once."""

    def result(self) -> Any:
        """What the function returned, or raised."""


@runtime_checkable
class Engine(Protocol):
    """Runs tasks."""

    @property
    def fills_cache(self) -> bool:
        """Whether windows and descriptors are made by tasks and left in a cache, or by the caller as it needs them."""

    @property
    def n_ahead(self) -> int | None:
        """How many pieces of work to hand in before the first of them is waited for; None for all."""

    @property
    def n_workers(self) -> int:
        """How many tasks are computed at a time."""

    @property
    def task_threads(self) -> int | None:
        """Threads that a task should take; None is one per core."""

    def sees(self, folder: str | os.PathLike[str]) -> bool:
        """Whether tasks find in this folder what is written to it here, and the other way round."""

    def keep_in(self, folder: str | os.PathLike[str]) -> None:
        """A folder that tasks see, for arrays that are shared."""

    def share(self, value: Any, everywhere: bool = True) -> Any:
        """A handle that stands for a large value among the arguments of tasks; `everywhere`: most workers need it."""

    def forget(self, handle: Any) -> None:
        """Let go of a shared value."""

    def n_pieces(self, n_blocks: int) -> int:
        """Into how many tasks to cut work that falls into `n_blocks` blocks."""

    def local(self, value: T) -> T | None:
        """A value that only tasks of this process can use, such as a callback; None where they run elsewhere."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Pending:
        """Hand in `function(*arguments)`; a task among the arguments stands for its result."""

    def wait(self, tasks: Sequence[Pending], seconds: float) -> None:
        """Return when another one of the tasks is done, after `seconds` at the latest."""


def ahead(items: Iterable[T], n_ahead: int | None) -> Iterator[T]:
    """The items in order, while `n_ahead` after the current one are taken already; None for all."""
    if n_ahead is None:
        yield from list(items)
        return
    waiting: deque[T] = deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > n_ahead:
            yield waiting.popleft()
    yield from waiting


def in_order(
    engine: Engine, function: Callable[..., Any], items: Iterable[Any], *shared: Any
) -> Iterator[tuple[Any, Any]]:
    """Each item with `function(item, *shared)`, in order; two tasks per worker are under way, so memory stays flat."""
    waiting: deque[tuple[Any, Pending]] = deque()
    for item in items:
        waiting.append((item, engine.submit(function, item, *shared)))
        while len(waiting) >= 2 * max(1, engine.n_workers):
            first, task = waiting.popleft()
            yield first, task.result()
    for item, task in waiting:
        yield item, task.result()


class SerialEngine:
    """Tasks one after the other, in this process, each when its result is asked for."""

    fills_cache = True
    n_ahead: int | None = None
    n_workers = 1
    task_threads: int | None = None

    def sees(self, folder: str | os.PathLike[str]) -> bool:
        """There is nobody else."""
        return True

    def keep_in(self, folder: str | os.PathLike[str]) -> None:
        """Not needed: a shared value is the value."""

    def share(self, value: Any, everywhere: bool = True) -> Any:
        """The value itself."""
        return value

    def forget(self, handle: Any) -> None:
        """Nothing was kept."""

    def n_pieces(self, n_blocks: int) -> int:
        """A task for each block."""
        return n_blocks

    def local(self, value: T) -> T | None:
        """Tasks are treated as if they ran elsewhere."""
        return None

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Pending:
        """Note down what to compute."""
        return _Lazy(function, arguments)

    def wait(self, tasks: Sequence[Pending], seconds: float) -> None:
        """Compute the first of the tasks that is not done; an error is kept until its result is asked for."""
        for task in tasks:
            if isinstance(task, _Lazy) and not task.is_done():
                task.compute()
                return


class LocalEngine(SerialEngine):
    """One machine: nothing is cut up, sent ahead or brought back, and tasks may call back.

    Parameters
    ----------
    n_jobs : threads of a task; None is one per core.
    """

    fills_cache = False
    n_ahead = 0

    def __init__(self, n_jobs: int | None = None) -> None:
        self.task_threads = n_jobs

    def n_pieces(self, n_blocks: int) -> int:
        """One task for all blocks."""
        return 1

    def local(self, value: T) -> T | None:
        """The value itself."""
        return value


class _Lazy:
    """A task of the serial engine."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._work: tuple[Callable[..., Any], tuple[Any, ...]] | None = (function, arguments)
        self._value: Any = None
        self._error: Exception | None = None

    def is_done(self) -> bool:
        return self._work is None

    def compute(self) -> None:
        if self._work is None:
            return
        function, arguments = self._work
        try:
            self._value = function(*(each.result() if isinstance(each, _Lazy) else each for each in arguments))
        except Exception as error:
            self._error = error
        self._work = None

    def result(self) -> Any:
        self.compute()
        if self._error is not None:
            raise self._error
        return self._value
