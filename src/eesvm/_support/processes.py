"""Worker processes that do not outlive the process they work for.

In: a worker. Out: it ends within a second or two of its parent, however that was ended; a pool that learns of the end
of its parent only when the next task is due would otherwise stay for good.
"""

from __future__ import annotations

import os
import threading
import time

_LOOK_SECONDS = 1.0  # between two looks at who the parent is

_watched: set[int] = set()  # processes whose end is waited for


def end_with(parent: int) -> None:
    """Called in a worker: watch over the process it works for, once for each worker."""
    if parent in _watched or parent == os.getpid():
        return
    _watched.add(parent)
    threading.Thread(target=_watch, args=(parent,), name="eesvm-end-with-parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)  # nobody is left who could read a traceback
