"""Runs tasks, here or on workers.

In: functions of a module, and arguments. Out: their results. `Engine` is what a training asks for: to take a task, to
hand out its result, and to bring a large value to the workers once, not once per task. `LocalEngine` computes in this
process; `dask_tasks.DaskEngine` on a cluster. Which engine is at work changes no result.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, Self, TypeVar, cast, runtime_checkable

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

    Who asks for a result computes it, unless a thread in the background has begun with it; then the next task that
    nobody has begun is computed in the meantime. Tasks call back in the thread that has made the engine, and are silent
    in others.

    Parameters
    ----------
    n_jobs : threads of a task; None is one per core.
    n_background : threads that compute tasks before they are asked for.
    """

    fills_cache = False

    def __init__(self, n_jobs: int | None = None, n_background: int = 0) -> None:
        self.task_threads = n_jobs
        self.n_ahead = min(1, n_background)  # so that the background has something to compute until the end
        self._n_background, self._owner = n_background, threading.get_ident()
        self._threads: list[threading.Thread] = []
        self._waiting: deque[_Lazy] = deque()
        self._changed, self._is_closing = threading.Condition(), False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Begin no further tasks, and end those in the background."""
        with self._changed:
            self._is_closing = True
            self._waiting.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def n_pieces(self, n_blocks: int) -> int:
        """One task for all blocks."""
        return 1

    def local(self, value: T) -> T | None:
        """The value itself; a function that is called in the background only finds out whether to go on."""
        if not callable(value) or self._n_background == 0:
            return value

        def call(*arguments: Any) -> Any:
            if threading.get_ident() == self._owner:
                return value(*arguments)
            if self._is_closing:
                raise ClosedError
            return None

        return cast(T, call)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Pending:
        """Note down what to compute, for whoever comes first."""
        if self._n_background == 0:
            return _Lazy(function, arguments)
        task = _Lazy(function, arguments, self._help)
        with self._changed:
            self._waiting.append(task)
            if len(self._threads) < self._n_background:
                thread = threading.Thread(target=self._work, name=f"eesvm-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()
        return task

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_closing:
                    self._changed.wait()
                if self._is_closing:
                    return
                task = self._waiting.popleft()
            task.compute()

    def _help(self) -> bool:
        """Compute the next task that nobody has begun; whether there was one."""
        with self._changed:
            task = self._waiting.popleft() if self._waiting else None
        if task is not None:
            task.compute()
        return task is not None


class ClosedError(Exception):
    """Raised inside a task whose result nobody wants any more."""


class _Lazy:
    """A task of the serial engine; `help_others` is called while another thread computes it."""

    def __init__(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], help_others: Callable[[], bool] | None = None
    ) -> None:
        self._work: tuple[Callable[..., Any], tuple[Any, ...]] | None = (function, arguments)
        self._value: Any = None
        self._error: Exception | None = None
        self._begin, self._done, self._help_others = threading.Lock(), threading.Event(), help_others

    def is_done(self) -> bool:
        return self._done.is_set()

    def compute(self) -> None:
        """Unless somebody has begun already."""
        if not self._begin.acquire(blocking=False):
            return
        assert self._work is not None
        function, arguments = self._work
        try:
            self._value = function(*(each.result() if isinstance(each, _Lazy) else each for each in arguments))
        except Exception as error:
            self._error = error
        finally:
            self._work = None
            self._done.set()

    def result(self) -> Any:
        self.compute()
        while not self._done.is_set():
            if self._help_others is None or not self._help_others():
                self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value
