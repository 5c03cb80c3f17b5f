"""What every search shares: limits, progress, and the record of loss and bound over time.

In: the limits a caller set. Out: for the search, "stop now, because ..."; for the caller, progress and a history.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from eesvm._support.compile import compile_seconds

_CHUNK_SECONDS = 0.1  # how long a compiled kernel runs before limits and Ctrl-C are looked at again
_PROGRESS_SECONDS = 0.2  # how often progress is reported while nothing improves


@dataclass(frozen=True)
class Progress:
    """What a progress callback receives."""

    seconds: float
    loss: float  # of the best solution so far, inf before the first
    lower_bound: float
    n_nodes: int
    time_limit: float | None
    what: str = "loss"  # what `loss` and `lower_bound` are: "left out" where recall is asked for

    @property
    def gap(self) -> float:
        """(loss - lower_bound) / loss."""
        return relative_gap(self.loss, self.lower_bound)


ProgressCallback = Callable[[Progress], object]


class Run:
    """One run of a search: its clock, its limits, its best loss and bound so far.

    `offset` is what every solution pays on top of the losses and bounds that the search records (`fixed_loss` of the
    ranked problem). What the run holds, reports and decides by includes it. A search for recall records units of
    positives that are left out: `scale` makes them shares, `whole` is the share of all.
    """

    scale = 1.0
    whole: float | None = None

    def __init__(
        self,
        time_limit: float | None = None,
        node_limit: int | None = None,
        gap: float = 0.0,
        progress: ProgressCallback | None = None,
    ) -> None:
        self.time_limit, self.node_limit, self.gap = time_limit, node_limit, gap
        self.loss, self.lower_bound, self.n_nodes, self.n_limited = math.inf, 0.0, 0, 0
        self.offset = 0.0
        self.history: list[tuple[float, float, float]] = []
        self.is_interrupted = False
        self._progress = progress
        self._started = time.perf_counter() - compile_seconds()
        self._reported = -math.inf
        self._chunk = 64

    @property
    def seconds(self) -> float:
        """Since the beginning, without what it takes to compile kernels once in an installation."""
        return time.perf_counter() - compile_seconds() - self._started

    def record(
        self,
        loss: float | None = None,
        lower_bound: float | None = None,
        n_nodes: int | None = None,
        n_limited: int | None = None,
    ) -> None:
        """Note a new state of the search; worse losses and weaker bounds than those held change nothing.

        `n_limited` is how many of the nodes count towards the node limit, if not all of them.
        """
        loss = None if loss is None else loss * self.scale + self.offset
        lower_bound = None if lower_bound is None else lower_bound * self.scale + self.offset
        better = (loss is not None and loss < self.loss) or (lower_bound is not None and lower_bound > self.lower_bound)
        self.loss = min(self.loss, math.inf if loss is None else loss)
        self.lower_bound = max(self.lower_bound, 0.0 if lower_bound is None else lower_bound)
        if n_nodes is not None:
            self.n_nodes, self.n_limited = n_nodes, n_nodes if n_limited is None else n_limited
        if better and self.loss < math.inf:
            self.history.append((self.seconds, self.loss, self.lower_bound))
        if self._progress is not None and (better or self.seconds - self._reported > _PROGRESS_SECONDS):
            self._report()

    def _report(self) -> None:
        """Call the progress callback; a KeyboardInterrupt from it counts as Ctrl-C."""
        self._reported = self.seconds
        state = Progress(self._reported, self.loss, self.lower_bound, self.n_nodes, self.time_limit, self._what())
        try:
            if self._progress is not None:
                self._progress(state)
        except KeyboardInterrupt:
            if self.is_interrupted:
                raise
            self.is_interrupted = True

    def _what(self) -> str:
        return "loss" if self.whole is None else "left out"

    def is_out_of_time(self) -> bool:
        """Whether to end with what there is, because of the time limit or Ctrl-C."""
        return self.is_interrupted or (self.time_limit is not None and self.seconds >= self.time_limit)

    def seconds_left(self) -> float:
        """Until the time limit; inf where there is none."""
        return math.inf if self.time_limit is None else self.time_limit - self.seconds

    @contextmanager
    def patient_with_interrupts(self) -> Iterator[None]:
        """Within, Ctrl-C asks the search to end at its next look at the limits; a second one raises at once.

        A KeyboardInterrupt anywhere could hit a half-made step, or a callback of the compiler behind the kernels, where
        it would be printed and forgotten. Python handles signals in the main thread only; elsewhere nothing changes.
        """

        def note(number: int, frame: FrameType | None) -> None:
            if self.is_interrupted:
                raise KeyboardInterrupt
            self.is_interrupted = True

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler if before is None else before)

    @contextmanager
    def lent_to(self, part: Run) -> Iterator[None]:
        """Within, `part` searches for this run, by a clock and limits of its own; Ctrl-C ends both."""
        with part.patient_with_interrupts():
            part.is_interrupted |= self.is_interrupted
            yield
        self.is_interrupted |= part.is_interrupted

    def stop_reason(self) -> str | None:
        """The status to end with if a limit has been reached, else None."""
        if self.loss <= self.lower_bound:
            return "optimal"
        if self._gap_left() <= self.gap:
            return "gap_reached"
        if self.is_out_of_time():
            return "feasible" if self.is_interrupted else "time_limit"
        if self.node_limit is not None and self.n_limited >= self.node_limit:
            return "node_limit"
        return None

    def _gap_left(self) -> float:
        """Of losses as always; of recalls, how far the recall is from its bound, as a share of the bound."""
        if self.whole is None:
            return relative_gap(self.loss, self.lower_bound)
        return recall_gap(self.whole - self.loss, self.whole - self.lower_bound)

    def chunk(self) -> int:
        """How many nodes to visit before asking again."""
        left = math.inf if self.node_limit is None else self.node_limit - self.n_limited
        return int(max(1, min(self._chunk, left)))

    def chunk_took(self, seconds: float) -> None:
        """Adapt the chunk, so that each takes about a tenth of a second whatever the size of the problem."""
        if seconds < _CHUNK_SECONDS / 2:
            self._chunk *= 2
        elif seconds > _CHUNK_SECONDS * 2:
            self._chunk = max(1, self._chunk // 2)


def recall_gap(recall: float, recall_bound: float) -> float:
    """(recall_bound - recall) / recall_bound; 0 where nothing can be covered, or the bound is the recall rounded up."""
    return (recall_bound - recall) / recall_bound if recall_bound > math.nextafter(recall, math.inf) else 0.0


def relative_gap(loss: float, lower_bound: float) -> float:
    """(loss - lower_bound) / loss; 0 for a loss of zero, inf before there is a solution."""
    if loss <= lower_bound:
        return 0.0
    return math.inf if loss == math.inf else (loss - lower_bound) / loss
