"""Parts of a long run: read where the folder has them, else made and kept.

In: a `RunFolder`, or none; for each part a key and three functions: how it is read, made and written. Out: the part.
Problems that are met while a part is made are noted with it, so that a run that reads it speaks of them too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from eesvm._support.run_folder import RunFolder

T = TypeVar("T")


class PartKey(NamedTuple):
    """What a part is called, and a hash of everything that it depends on."""

    name: str
    key: str


class Parts:
    """The parts of one run.

    Parameters
    ----------
    folder : where they are kept; None keeps nothing, and everything is made.
    problems : a list that grows while parts are made; its items are dataclasses.
    read_problem : makes such an item of its fields.

    Attributes
    ----------
    changed : names of the parts that were made, not read.
    seconds : of each stage.
    """

    def __init__(self, folder: RunFolder | None, problems: list[Any], read_problem: Callable[..., Any]) -> None:
        self._folder, self._problems, self._read_problem = folder, problems, read_problem
        self.changed: list[str] = []
        self.seconds: dict[str, float] = {}

    def has(self, part: PartKey) -> bool:
        """Whether the folder has this part, made from the same things."""
        return self._folder is not None and self._folder.has(*part)

    def get(
        self,
        part: PartKey,
        read: Callable[[Path, list[str]], T],
        make: Callable[[], T],
        write: Callable[[Path, T], list[str]],
    ) -> T:
        """What the folder has under this key, or else what is made, and then kept."""
        name, key = part
        folder, problems = self._folder, self._problems
        if folder is None:
            self.changed.append(name)
            return make()
        if folder.has(name, key):
            entry = folder.entry(name)
            problems.extend(self._noted(entry))
            return read(folder.root, list(entry["files"]))
        started, n_known = time.perf_counter(), len(problems)
        made = make()
        with self.stage("files"):
            folder.keep(name, key, write(folder.root, made), time.perf_counter() - started)
            if len(problems) > n_known:
                folder.note(name, problems=[asdict(problem) for problem in problems[n_known:]])
        self.changed.append(name)
        return made

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what is done inside."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def _noted(self, entry: dict[str, Any]) -> list[Any]:
        with suppress(TypeError):  # somebody has written into the file
            return [self._read_problem(**problem) for problem in entry.get("problems", [])]
        return []


class Held(Generic[T]):
    """A value that is made or read when first asked for, and then held until it is forgotten."""

    def __init__(self, fetch: Callable[[], T]) -> None:
        self._fetch = fetch
        self._value: T | None = None

    def __call__(self) -> T:
        if self._value is None:
            self._value = self._fetch()
        return self._value

    @property
    def is_held(self) -> bool:
        """Whether the value is in memory."""
        return self._value is not None

    def forget(self) -> None:
        """Let the value go; it is fetched again when asked for."""
        self._value = None
