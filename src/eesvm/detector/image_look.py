"""One look at an image: windows, descriptors, scores and suppression, one after the other in one thread.

In: a trained ensemble, a descriptor, options. Out: the detections of an image, or what is wrong with it, and how long
each stage took. Images are looked at side by side: a kernel, a network or a product that is spread over several threads
leaves cores idle between two of them, and an image is decoded once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache as once
from typing import TypeVar

import numpy as np

from eesvm.descriptors import DescriptorCache, describe_dataset
from eesvm.descriptors.base import Descriptor
from eesvm.detector.model import Ensemble, score_image
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_table import propose_windows
from eesvm.structures import Detections, ImageRecord, Problem, Windows

STAGES = WINDOWS, DESCRIPTORS, SCORES = "windows", "descriptors", "scores and suppression"

T = TypeVar("T")


@dataclass
class Looked:
    """What was seen of one image."""

    detections: Detections | None = None  # None where a problem says why
    problems: list[Problem] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))


@dataclass(frozen=True)
class ImageLook:
    """Detects in one image after the other."""

    ensemble: Ensemble
    descriptor: Descriptor
    options: DetectorOptions
    cache: DescriptorCache | None  # keeps windows

    def __call__(self, item: tuple[ImageRecord, Windows | None]) -> Looked:
        """Look at an image, whose windows may be known.

        Parameters
        ----------
        item : the image, and its windows.
        """
        record, windows = item
        record, looked, clock = replace(record, read=once(record.read)), Looked(), time.perf_counter
        started = clock()
        found = [windows] if windows is not None else self._propose(record, looked.problems)
        proposed = clock()
        described = list(describe_dataset([record], found, self.descriptor, problems=looked.problems))
        ready = clock()
        for one in described:
            looked.detections = score_image(
                self.ensemble, one.image_id, one.windows.boxes, np.asarray(one.descriptors), self.options.detection
            )
        looked.seconds = dict(zip(STAGES, (proposed - started, ready - proposed, clock() - ready), strict=True))
        return looked

    def _propose(self, record: ImageRecord, problems: list[Problem]) -> list[Windows]:
        return list(propose_windows([record], self.options.windows, 1, cache=self.cache, problems=problems))


class StageClock:
    """Shares out the time that was waited for images among the stages that threads were busy with.

    Parameters
    ----------
    seconds : of each stage; kept up to date.
    """

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds, self._busy, self._waited = seconds, dict.fromkeys(seconds, 0.0), 0.0

    def waiting(self, items: Iterable[T]) -> Iterator[T]:
        """The items, while the time that they take to come is counted."""
        iterator, started = iter(items), time.perf_counter()
        for item in iterator:
            self._waited += time.perf_counter() - started
            yield item
            started = time.perf_counter()

    def proposed(self, items: Iterable[T]) -> Iterator[T]:
        """Windows that others propose, while the time that they take to come is noted as such."""
        started = time.perf_counter()
        for item in items:
            self.add({WINDOWS: time.perf_counter() - started})
            yield item
            started = time.perf_counter()

    def add(self, busy: Mapping[str, float]) -> None:
        """Note what a thread was busy with."""
        for stage, spent in busy.items():
            self._busy[stage] += spent
        total = sum(self._busy.values())
        for stage, spent in self._busy.items():
            self._seconds[stage] = self._waited * spent / total if total > 0 else 0.0
