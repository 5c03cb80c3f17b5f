"""Many images, one descriptor: rows as they come, image by image.

In: images, and the windows of each. Out: the descriptors of one image after another, in the order of the windows; a few
images are under way at a time, so memory does not grow with their number. With a cache, what was computed before comes
from disk without even decoding the file, and an interrupted run is resumed. A bad image is skipped
and listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from eesvm._support.threads import in_order, n_cores, one_product_thread
from eesvm._support.validation import InputError, check_number
from eesvm.datasets.problems import reason, skip
from eesvm.descriptors.base import Descriptor, Rows
from eesvm.descriptors.cache import DescriptorCache
from eesvm.descriptors.network_threads import with_threads
from eesvm.images.files import read_image
from eesvm.structures import Dataset, ImageRecord, Problem, Windows


class _Job(NamedTuple):
    """What is the same for all images."""

    descriptor: Descriptor
    cache: DescriptorCache | None
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Described:
    """The windows of one image and their descriptors."""

    windows: Windows
    descriptors: Rows  # (n, d), read-only where a cache is used

    @property
    def image_id(self) -> str:
        """Of the image that was described."""
        return self.windows.image_id


def describe_dataset(
    dataset: Dataset | Sequence[ImageRecord],
    windows: Iterable[Windows],
    descriptor: Descriptor,
    *,
    cache: DescriptorCache | None = None,
    n_jobs: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    problems: list[Problem] | None = None,
    strict: bool = False,
) -> Iterator[Described]:
    """Descriptors of each of the `windows`, one image at a time.

    Parameters
    ----------
    dataset : the images; only those with windows are read.
    windows : what `propose_dataset` gives, or a list, in any order; each is matched to its image by `image_id`.
    descriptor : describes the windows of an image.
    cache : descriptors that it holds are not computed again.
    n_jobs : threads; None is 1, -1 one per core. The order and the numbers are the same for any.
    progress : called with the number of images done, and of all.
    problems : a list that receives a `Problem` for each skipped image; without one they are logged as warnings.
    strict : raise `InputError` at the first bad image instead of skipping it.
    """
    n_workers = _n_workers(n_jobs)
    records = {record.image_id: record for record in dataset}
    descriptor.dimension  # noqa: B018  a network without such a layer is one error here, not one per image
    if n_workers > 1:
        descriptor = with_threads(descriptor, 1)
    job = _Job(descriptor, cache, descriptor.parameters())
    return _describe_all(records, windows, job, n_workers, progress, problems, strict)


def _describe_all(
    records: dict[str, ImageRecord],
    windows: Iterable[Windows],
    job: _Job,
    n_workers: int,
    progress: Callable[[int, int], object] | None,
    problems: list[Problem] | None,
    strict: bool,
) -> Iterator[Described]:
    def work(item: Windows) -> Rows | Problem:
        return _describe_one(_record(records, item), item, job)

    with one_product_thread():
        for done, (item, answer) in enumerate(in_order(work, windows, n_workers), start=1):
            if isinstance(answer, Problem):
                skip(answer, problems, strict)
            else:
                yield Described(item, answer)
            if progress is not None:
                progress(done, len(records))


def _describe_one(record: ImageRecord, item: Windows, job: _Job) -> Rows | Problem:
    try:
        if job.cache is None:
            return job.descriptor.describe(record.read(), item.boxes)
        how = _plain_reading(record)
        image = record.read() if how is None else Path(record.path).read_bytes()

        def compute() -> Rows:
            pixels = record.read() if isinstance(image, bytes) else image
            return job.descriptor.describe(pixels, item.boxes)

        return job.cache.fetch(image, [job.parameters, how], compute, item.boxes)
    except (InputError, OSError, ValueError, MemoryError) as error:
        return Problem(record.path or record.image_id, reason(error), kind="image")


def _plain_reading(record: ImageRecord) -> dict[str, Any] | None:
    """The options of `read_image` where an image is read by it: the bytes of its file then stand for its pixels.

    None is any other way of reading, of which only the pixels can tell.
    """
    read = record.read
    if isinstance(read, partial) and read.func is read_image and read.args == (record.path,):
        return dict(read.keywords)
    return None


def _record(records: dict[str, ImageRecord], item: Windows) -> ImageRecord:
    try:
        return records[item.image_id]
    except KeyError:
        raise InputError(f"`windows` name the image {item.image_id!r}, which the dataset does not have") from None


def _n_workers(n_jobs: int | None) -> int:
    if n_jobs is None:
        return 1
    check_number(n_jobs, "n_jobs", minimum=-1, integer=True)
    if n_jobs == 0:
        raise InputError("`n_jobs` must be a number of threads or -1 for one per core, got 0")
    return int(n_jobs) if n_jobs > 0 else n_cores()
