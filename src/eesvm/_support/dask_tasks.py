"""Dask as the engine: tasks on the workers of a cluster, on this machine or on others.

In: the address of a scheduler, "local", or a Dask client or cluster. Out: `DaskEngine`. A worker that dies costs the
tasks it was at: Dask gives them to others, and what only it held is sent again. A worker computes one task at a time,
with as many threads for matrix products as this process has, because their last bits depend on that number; so a
training is the same to the bit wherever processors and numerical libraries are of the same kind.
Arrays that tasks share are files in a folder that all see, mapped and not copied; without such a folder, and for other
values, they are sent to the workers once.
Dask pickles what it sends, and runs what it receives: a scheduler belongs on a network that is trusted.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self
from weakref import WeakSet

import numpy as np

from eesvm._support.extras import optional_module
from eesvm._support.tasks import LOCAL, Engine, LocalEngine, Pending, T
from eesvm._support.threads import n_threads, one_product_thread
from eesvm._support.validation import InputError
from eesvm._support.version import __version__

_SCHEMES = ("tcp://", "tls://", "ws://", "wss://", "ucx://")
_CONNECT_SECONDS = 10.0
_WORKERS_SECONDS = 60.0  # that are waited for the first worker
_LOOK_SECONDS = 2.0  # between two questions to the scheduler
_STEP_SECONDS = 0.005  # between two looks at tasks
_MAX_SENDINGS = 4  # of a task whose shared values were lost with their last worker

_logger = logging.getLogger("eesvm")
_one_at_a_time = threading.Lock()  # limits on threads are the whole process's


@dataclass
class Traffic:
    """Bytes of values, as Dask estimates them; files that are mapped count where they are written."""

    written: int = 0  # shared as files
    shared: int = 0  # sent to workers once, times the workers
    sent: int = 0  # arguments of tasks
    returned: int = 0  # results


class DaskEngine:
    """An engine whose workers are Dask's.

    Parameters
    ----------
    scheduler : address, "local", or a Dask client or cluster; the latter two stay open.
    n_workers : of "local"; None is one per core.

    Attributes
    ----------
    traffic : what was moved.
    """

    fills_cache = True
    n_ahead: int | None = None

    def __init__(self, scheduler: Any, n_workers: int | None = None) -> None:
        self.dask = optional_module("distributed", "distributed")
        self._owned = ExitStack()  # what is closed in the end
        self._folder: Path | None = None
        self._seen: dict[str, bool] = {}
        self._under_way: WeakSet[_Task] = WeakSet()
        self._looked = 0.0
        self._has_warned = False
        self.traffic = Traffic()
        try:
            self.client = self._connect(scheduler, n_workers)
            self.name = getattr(self.client.scheduler, "address", str(scheduler))
            self.task_threads: int | None = self._greet()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what is under way, remove shared files, leave."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._under_way and self.client.status == "running":
            self.client.cancel([task.sent for task in self._under_way], force=True)
        self._under_way.clear()
        with _quiet("distributed.client"):  # which prints a traceback where the scheduler cannot be reached
            self._owned.close()

    @property
    def n_workers(self) -> int:
        """Workers at the last look, at least one."""
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._look()
        return max(1, self._n_workers)

    def sees(self, folder: str | os.PathLike[str]) -> bool:
        """Whether every worker finds a file that is written here."""
        place = str(Path(folder).absolute())
        if place not in self._seen:
            self._seen[place] = self._probe(Path(place))
        return self._seen[place]

    def keep_in(self, folder: str | os.PathLike[str]) -> None:
        """Shared arrays become files in a new folder in there, which is deleted when the engine is closed."""
        if self._folder is None:
            self._folder = Path(folder).absolute() / f"shared-{uuid.uuid4().hex}"

    def share(self, value: Any, everywhere: bool = True) -> Any:
        """A handle for the arguments of tasks."""
        if self._folder is not None and isinstance(value, np.ndarray):
            return self._write(value)
        return _Scattered(self, value, everywhere)

    def forget(self, handle: Any) -> None:
        """Let go of a shared value."""
        if isinstance(handle, _MappedArray):
            Path(handle.path).unlink(missing_ok=True)
        elif isinstance(handle, _Scattered):
            handle.release()

    def n_pieces(self, n_blocks: int) -> int:
        """A task for each block."""
        return n_blocks

    def local(self, value: T) -> T | None:
        """Tasks run elsewhere."""
        return None

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Pending:
        """Hand in a task."""
        self.traffic.sent += sum(_size(each) for each in arguments if not isinstance(each, _Scattered | _Task))
        task = _Task(self, function, arguments)
        self._under_way.add(task)
        return task

    def wait(self, tasks: Sequence[Pending], seconds: float) -> None:
        """Return when one of the tasks is done, or when the time is up."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not any(task.is_done() for task in tasks):
            time.sleep(_STEP_SECONDS)
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._look()

    # Connecting

    def _connect(self, scheduler: Any, n_workers: int | None) -> Any:
        if isinstance(scheduler, self.dask.Client):
            return scheduler
        if isinstance(scheduler, str) and scheduler == LOCAL:
            scheduler = self._own(_local_cluster(self.dask, n_workers, self._owned))
        elif isinstance(scheduler, str) and not scheduler.startswith(_SCHEMES):
            raise InputError(f"`scheduler` must be an address such as tcp://HOST:PORT, or {LOCAL}, got {scheduler!r}")
        try:
            return self._own(self.dask.Client(scheduler, timeout=_CONNECT_SECONDS, set_as_default=False))
        except (OSError, ValueError, TypeError, TimeoutError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"there is no Dask scheduler at {scheduler}: {reason}") from error

    def _own(self, opened: Any) -> Any:
        return self._owned.enter_context(opened)

    def _greet(self) -> int:
        """Wait for a worker, and ask all for their version; returns how many threads a task may take."""
        try:
            self.client.wait_for_workers(1, timeout=_WORKERS_SECONDS)
        except TimeoutError:
            raise InputError(f"the Dask scheduler at {self.name} has no workers: start some") from None
        for worker, version in self._ask(_version).items():
            if isinstance(version, Exception):
                raise InputError(f"the worker {worker} cannot load eesvm {__version__}: {version}") from version
            _check_version(version, f"the worker {worker}", __version__)
        self._look()
        return max(1, min(self.client.nthreads().values(), default=1))

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """What a function returns, or raises, on every worker; one that dies meanwhile says nothing."""
        try:
            answers = self.client.run(function, *arguments, on_error="return")
        except (OSError, CancelledError):
            self.fail()
        return {worker: answer for worker, answer in answers.items() if not isinstance(answer, OSError)}

    def _probe(self, folder: Path) -> bool:
        token = uuid.uuid4().hex
        path = folder / f".{token}.part"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(token)
        except OSError:
            return False
        try:
            answers = self._ask(_can_see, str(path), token).values()
            return bool(answers) and all(answer is True for answer in answers)
        finally:
            path.unlink(missing_ok=True)

    def _look(self) -> None:
        """Count the workers; say so when there are none, and stop when there is no scheduler."""
        self._looked = time.monotonic()
        if self.client.status != "running":
            self.fail()
        try:
            self._n_workers = len(self.client.nthreads())
        except (OSError, CancelledError):
            self.fail()
        if not self._n_workers and not self._has_warned:
            _logger.warning("the Dask scheduler at %s has no workers left: waiting for one", self.name)
        self._has_warned = not self._n_workers

    def fail(self) -> NoReturn:
        """The sentence for a scheduler that cannot be reached any more."""
        raise InputError(f"the Dask scheduler at {self.name} is lost: start it, and the same call resumes from here")

    def _write(self, array: np.ndarray) -> _MappedArray:
        assert self._folder is not None
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{uuid.uuid4().hex}.npy"
        np.save(path, array, allow_pickle=False)
        self.traffic.written += array.nbytes
        return _MappedArray(str(path))

    def send(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """The future of a task."""
        if self.client.status != "running":
            self.fail()
        ready = [each.future() if isinstance(each, _Scattered | _Task) else each for each in arguments]
        try:
            return self.client.submit(_run, __version__, function, *ready, pure=False)
        except (TypeError, AttributeError, RecursionError, ValueError) as error:
            raise InputError(_unsendable(arguments, error)) from error

    def scatter(self, value: Any, everywhere: bool) -> Any:
        """The future of a value on one worker or on all.

        Dask's own way to bring a value to all workers does not end where one of them dies meanwhile; so it goes to one,
        and tasks that do nothing make the others fetch it.
        """
        for _ in range(_MAX_SENDINGS):
            try:
                future = self.client.scatter(value, hash=False)
            except (TypeError, AttributeError, RecursionError, ValueError) as error:
                raise InputError(_unsendable([value], error)) from error
            except OSError:
                continue  # the worker that it was meant for has died
            if everywhere:
                self._spread(future)
            if not future.cancelled():
                return future
        raise InputError(f"the workers of {self.name} die before they have what they need: give them more memory")

    def _spread(self, future: Any) -> None:
        workers = list(self.client.nthreads())
        fetched = [
            self.client.submit(_touch, future, workers=[worker], allow_other_workers=True, pure=False)
            for worker in workers
        ]
        while not all(one.done() for one in fetched):
            time.sleep(_STEP_SECONDS)
            if time.monotonic() - self._looked > _LOOK_SECONDS:
                self._look()


class _Task:
    """A task that was handed in."""

    def __init__(self, engine: DaskEngine, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._engine, self._function, self._arguments = engine, function, arguments
        self.sent = engine.send(function, arguments)
        self._n_sent = 1

    def future(self) -> Any:
        """Dask's future of the result; a task that was lost is handed in again."""
        if self.sent.cancelled() and self._n_sent < _MAX_SENDINGS:
            self._send_again()
        return self.sent

    def is_done(self) -> bool:
        """Whether there is a result."""
        return bool(self.future().done())

    def result(self) -> Any:
        """What the task returned, or raised."""
        while True:
            self._engine.wait([self], _LOOK_SECONDS)
            if not self.is_done():
                continue
            try:
                value = self.sent.result()
            except CancelledError:
                if self._n_sent >= _MAX_SENDINGS:
                    raise InputError(
                        f"the workers of {self._engine.name} died {self._n_sent} times at the same task: "
                        "give them more memory"
                    ) from None
                self._send_again()
                continue
            except self._engine.dask.comm.CommClosedError:
                self._engine.fail()
            except self._engine.dask.KilledWorker as error:
                raise InputError(
                    f"{error.allowed_failures + 1} workers of {self._engine.name} died at the same task: "
                    "give them more memory"
                ) from error
            self._engine.traffic.returned += _size(value)
            return value

    def _send_again(self) -> None:
        self._n_sent += 1
        self.sent = self._engine.send(self._function, self._arguments)


class _Scattered:
    """A value that was sent to the workers; sent again when the last one that held it is gone."""

    def __init__(self, engine: DaskEngine, value: Any, everywhere: bool) -> None:
        self._engine, self._value, self._everywhere = engine, value, everywhere
        self._future: Any = None

    def future(self) -> Any:
        """The future of the value."""
        if self._future is None or self._future.cancelled():
            self._engine.traffic.shared += _size(self._value) * (self._engine.n_workers if self._everywhere else 1)
            self._future = self._engine.scatter(self._value, self._everywhere)
        return self._future

    def release(self) -> None:
        """Let the workers drop it."""
        self._future = None


@dataclass(frozen=True)
class _MappedArray:
    """An array in a file that workers see."""

    path: str

    def open(self) -> np.ndarray:
        try:
            return np.load(self.path, mmap_mode="r", allow_pickle=False)
        except ValueError:  # there is nothing to map in an empty array
            return np.load(self.path, allow_pickle=False)
        except OSError as error:
            raise InputError(f"a worker does not see the shared file {self.path}: {error.strerror}") from error


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Nothing is logged under this name until the block ends."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _local_cluster(dask: Any, n_workers: int | None, until: ExitStack) -> Any:
    """Worker processes on this machine, which end with this one."""
    config = optional_module("dask", "distributed").config
    # Dask would give up on a worker that was killed and is not back within 15 seconds.
    until.enter_context(config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}))
    # Dask would set numbers of threads in our own environment, too; tasks set theirs themselves.
    environment = {"distributed.nanny.pre-spawn-environ": {"MALLOC_TRIM_THRESHOLD_": 65536}}
    with config.set(environment):
        return dask.LocalCluster(
            n_workers=n_threads(n_workers),
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=0,  # Dask counts mapped files as memory of the worker, which they are not
            silence_logs=logging.ERROR,
            preload=[__name__],  # see `dask_setup`
        )


# On workers


def dask_setup(worker: Any) -> None:
    """What a worker of a local cluster begins with: Ctrl-C in a terminal is for the training, which then ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(version: str, function: Callable[..., Any], *arguments: Any) -> Any:
    _check_version(__version__, "a worker", version)
    opened = [argument.open() if isinstance(argument, _MappedArray) else argument for argument in arguments]
    with _one_at_a_time, one_product_thread():
        return function(*opened)


def _touch(value: Any) -> None:
    """Have the value here."""


def _version() -> str:
    return __version__


def _can_see(path: str, token: str) -> bool:
    try:
        if Path(path).read_text() != token:
            return False
        own = Path(path).with_suffix(f".{uuid.uuid4().hex[:8]}")
        own.write_text(token)
        own.unlink()
    except OSError:
        return False
    return True


def _check_version(found: str, worker: str, wanted: str) -> None:
    if found != wanted:
        raise InputError(f"{worker} has eesvm {found}, but this training is run by eesvm {wanted}: install that one")


def _unsendable(arguments: Sequence[Any], error: Exception) -> str:
    """What cannot be pickled."""
    pickle = optional_module("cloudpickle", "distributed")
    for argument in arguments:
        for item in argument if isinstance(argument, tuple) else (argument,):
            try:
                pickle.dumps(item)
            except Exception as reason:
                name = f"the image {item.image_id!r}" if hasattr(item, "image_id") else f"a {type(item).__name__}"
                return f"{name} cannot be sent to workers, because it cannot be pickled: {reason}"
    return f"a task cannot be sent to workers: {error}"


def _size(value: Any) -> int:
    from dask.sizeof import sizeof

    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, tuple | list):
        return sum(_size(item) for item in value)
    if hasattr(value, "__dataclass_fields__"):
        return sum(_size(getattr(value, name)) for name in value.__dataclass_fields__)
    return int(sizeof(value))


@contextmanager
def open_engine(scheduler: Any, n_workers: int | None = None, side_by_side: bool = False) -> Iterator[Engine]:
    """The engine that a scheduler stands for, closed in the end.

    Parameters
    ----------
    scheduler : None for this process; the address of a Dask scheduler; "local" for workers on this machine, as many
        as `n_workers` or cores; a Dask client or cluster; or an engine, which stays open.
    n_workers : of "local", and threads of this process; None is one per core.
    side_by_side : whether this process may compute several tasks at a time, which takes the memory of several.
    """
    if scheduler is None:
        with LocalEngine(n_workers, n_threads(n_workers) - 1 if side_by_side else 0) as engine:
            yield engine
        return
    if isinstance(scheduler, Engine):
        yield scheduler
        return
    with DaskEngine(scheduler, n_workers=n_workers) as cluster:
        yield cluster
