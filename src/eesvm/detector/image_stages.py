"""Stages of a training that look at images, by asking an engine for tasks: windows, then descriptors.

In: a dataset, options, an engine, and the cache for windows and descriptors. Out: the windows of all images, the
descriptor with its scaling and PCA, and the table of described windows, the same to the bit whatever the engine. Where
an engine fills the cache, windows and descriptors come image by image and are then read from there.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from eesvm._support.memory import MemoryPlan
from eesvm._support.tasks import Engine, in_order
from eesvm._support.threads import n_cores
from eesvm._support.validation import InputError
from eesvm.descriptors import DescriptorCache, Transformed
from eesvm.descriptors.base import Descriptor
from eesvm.descriptors.cnn import MapMemory, PooledCNN
from eesvm.descriptors.network_threads import with_threads
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_descriptor import fit_descriptor, sample_windows
from eesvm.detector.training_table import (
    StageProgress,
    TrainingWindows,
    describe_windows,
    mirrored_objects,
    propose_windows,
)
from eesvm.detector.training_tasks import (
    Filled,
    MissingError,
    Place,
    Probe,
    describe_into,
    descriptors_task,
    propose_into,
    windows_task,
)
from eesvm.structures import Dataset, ImageRecord, Problem, Windows

_logger = logging.getLogger("eesvm")

_MAP_BYTES = 256 << 20  # of feature maps that are kept from fitting the PCA until all windows are described

T = TypeVar("T")


class ImageStages:
    """What one training makes of its images.

    Parameters
    ----------
    problems : a list that receives a `Problem` for each image that is left out.
    """

    def __init__(
        self,
        engine: Engine,
        dataset: Dataset,
        options: DetectorOptions,
        *,
        cache: DescriptorCache | None,
        progress: StageProgress | None,
        memory: MemoryPlan | None,
        problems: list[Problem],
    ) -> None:
        self.engine, self.dataset, self.options = engine, dataset, options
        self._progress, self._memory, self._problems = progress, memory, problems
        self._maps = MapMemory(0)
        self._temporary = None
        if cache is None and engine.fills_cache:
            self._temporary = tempfile.TemporaryDirectory(prefix="eesvm-training-")
            cache = DescriptorCache(self._temporary.name)
        self.cache = cache
        self.is_shared = cache is not None and engine.sees(cache.folder)
        if cache is not None and self.is_shared:
            engine.keep_in(cache.folder)

    @property
    def _n_jobs(self) -> int | None:
        """Images that are looked at side by side; None is one per core."""
        wanted = self.options.n_jobs
        if self._memory is None:
            return wanted
        return self._memory.n_processes(n_cores() if wanted is None else wanted)

    def close(self) -> None:
        """Remove what was temporary."""
        self._maps.forget()
        if self._temporary is not None:
            self._temporary.cleanup()

    def propose(self) -> list[Windows]:
        """The windows of all images that can be read."""
        options = self.options.windows
        records = [_plain_record(record) for record in self.dataset]
        look = partial(_propose_from, options)
        self._fill("windows", records, look, windows_task, options, self.engine.task_threads)
        proposals = list(
            propose_windows(
                self.dataset,
                options,
                self._n_jobs,
                include_ground_truth=True,
                cache=self.cache,
                progress=self._progress,
                problems=self._problems,
            )
        )
        if not proposals:
            raise InputError("none of the images can be read: there is nothing to train on")
        return proposals

    def fit_descriptor(self, proposals: Sequence[Windows], plain: Descriptor) -> Transformed:
        """The plain descriptor, scaled and reduced as the options say."""
        wanted = self.options.descriptor
        if wanted.is_fitted:
            self._fill_descriptors("scaling", self.dataset, sample_windows(proposals, self.options.random_state), plain)
        if isinstance(plain, PooledCNN) and self._memory is None:
            plain.memory = self._maps = MapMemory(_MAP_BYTES)
        try:
            return fit_descriptor(
                self.dataset,
                proposals,
                replace(self.options, n_jobs=self._n_jobs),
                plain=plain,
                cache=self.cache,
                progress=self._progress,
            )
        finally:
            self._maps.close()

    def describe(self, proposals: Sequence[Windows], descriptor: Descriptor) -> TrainingWindows:
        """The table of described windows."""
        self._fill_descriptors("descriptors", self.dataset, proposals, descriptor)
        mirror = self.options.training.mirror
        if mirror:
            self._fill_descriptors("mirror images", *mirrored_objects(self.dataset, proposals), descriptor)
        try:
            return describe_windows(
                self.dataset,
                proposals,
                descriptor,
                cache=self.cache,
                progress=self._progress,
                problems=self._problems,
                mirror=mirror,
                n_jobs=self._n_jobs,
                **({} if self._memory is None else {"memory": self._memory.descriptors}),
            )
        finally:
            self._maps.forget()

    def _fill_descriptors(
        self, stage: str, images: Sequence[ImageRecord], windows: Sequence[Windows], descriptor: Descriptor
    ) -> None:
        """Descriptors of these windows, into the cache."""
        records = {record.image_id: record for record in images}
        work = [(_plain_record(records[item.image_id]), item) for item in windows]
        handle = self.engine.share(with_threads(descriptor, self.engine.task_threads))
        self._fill(stage, work, partial(_describe_from, descriptor), descriptors_task, handle)
        self.engine.forget(handle)

    def _fill(
        self,
        stage: str,
        work: Sequence[T],
        look: Callable[[T, DescriptorCache], object],
        task: Callable[..., Filled],
        *shared: Any,
    ) -> None:
        """Image after image; one that a worker cannot do is left to this process, which then says what is wrong."""
        cache = self.cache
        if cache is None or not self.engine.fills_cache:
            return
        place = Place(str(cache.folder.absolute()), cache.size_limit) if self.is_shared else None
        # Where workers see the cache, they find out themselves what it lacks.
        missing = work if self.is_shared else _missing(cache, work, look)
        failed: list[Problem] = []
        for n_done, (_, filled) in enumerate(in_order(self.engine, task, missing, *shared, place), start=1):
            for key, array in filled.entries:
                cache.put(key, array)
            failed.extend(filled.problems)
            if self._progress is not None:
                self._progress(f"{stage}, workers: {self.engine.n_workers}", n_done, len(work))
        if len(work) > 1 and len(failed) == len(work):
            raise InputError(
                f"the workers can read none of the images, {failed[0]}: they must see the same files by the same paths"
            )
        if failed:
            _logger.warning("%d images failed on workers and are tried again here, %s", len(failed), failed[0])


def _missing(cache: DescriptorCache, work: Sequence[T], look: Callable[[T, DescriptorCache], object]) -> Iterable[T]:
    """What the cache lacks."""
    probe = Probe(cache.folder)

    def is_missing(item: T) -> bool:
        try:
            look(item, probe)
        except MissingError:
            return True
        return False

    return filter(is_missing, work)


def _propose_from(options: Any, record: ImageRecord, cache: DescriptorCache) -> object:
    return propose_into(record, options, cache)


def _describe_from(descriptor: Descriptor, item: tuple[ImageRecord, Windows], cache: DescriptorCache) -> object:
    return describe_into(*item, descriptor, cache)


def _plain_record(record: ImageRecord) -> ImageRecord:
    """Without annotations, which windows and descriptors do not depend on."""
    return replace(record, instances=(), metadata={})
