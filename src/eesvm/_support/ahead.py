"""Compiling ahead: a second process compiles what will be needed later, while this one is busy with what comes first.

In: a function, by its name, that calls kernels with arrays of the kinds that the real work has, and a kernel that tells
whether this was done before. Out: compiled code in numba's cache on disk, where this process finds it.
Numba compiles one function at a time in a process, so a second core is idle for most of a first run. The helper writes
nothing else, says nothing, and ends with this process, however that ends. There is none on a single core, without a
cache that both can use, or where the cache has the kernel. What goes wrong in it is no error here: code that was not
compiled ahead is compiled when it is needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from eesvm._support.processes import end_with
from eesvm._support.threads import n_cores


@contextmanager
def compiled_ahead(rehearsal: str, kernel: Callable[..., Any]) -> Iterator[subprocess.Popen[bytes] | None]:
    """Let a second process run `rehearsal`, `module:function`, until the block ends, if `kernel` was never compiled."""
    if n_cores() < 2 or not _is_missing(kernel):
        yield None
        return
    line = [sys.executable, "-m", __name__, rehearsal, str(os.getpid())]
    try:
        nowhere = subprocess.DEVNULL
        helper = subprocess.Popen(line, stdin=nowhere, stdout=nowhere, stderr=nowhere)
    except OSError:  # no more processes, or no memory for one
        yield None
        return
    try:
        yield helper
    finally:
        helper.kill()
        helper.wait()


def wait_for(helper: subprocess.Popen[bytes] | None, kernel: Callable[..., Any], seconds: float = 30.0) -> None:
    """Wait while the helper is at work and has not compiled `kernel` yet: to compile it twice would take longer."""
    end = time.monotonic() + seconds
    while helper is not None and helper.poll() is None and _is_missing(kernel) and time.monotonic() < end:
        time.sleep(0.05)


def _is_missing(kernel: Any) -> bool:
    """Whether a cache on disk could have the kernel, and has it for no kind of arguments."""
    folder = getattr(getattr(kernel, "_cache", None), "cache_path", None)  # None where nothing is kept
    if folder is None:
        return False
    function = kernel.py_func
    name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}-{function.__code__.co_firstlineno}"
    return not any(Path(folder).glob(f"{name}.*.nbc"))


def _main(rehearsal: str, parent: str) -> None:
    with suppress(OSError):  # whoever waits for an answer goes first, where there is not enough for both
        os.nice(5)
    end_with(int(parent))
    module, function = rehearsal.split(":")
    getattr(import_module(module), function)()


if __name__ == "__main__":
    _main(*sys.argv[1:])
