"""Proposing windows: selective search, or a grid.

In: an RGB image, or a dataset. Out: (n, 4) half-open xyxy boxes, the most representative first, or `Windows` per image.
"selective_search" is our own (Uijlings et al. 2013); "opencv" is OpenCV's, which needs `eesvm[opencv]`; "grid" never
looks at the pixels. The order is a function of the set of boxes alone (`order`).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np
from joblib import Parallel, delayed  # type: ignore[import-untyped]
from numpy.typing import NDArray

from eesvm import boxes as box_functions
from eesvm._support.processes import end_with
from eesvm._support.threads import n_cores
from eesvm._support.validation import InputError, check_number
from eesvm.datasets.problems import reason, skip
from eesvm.structures import Dataset, ImageRecord, Problem, Windows
from eesvm.windows.grid import grid_windows
from eesvm.windows.opencv import opencv, opencv_search, opencv_segmentation
from eesvm.windows.order import representative_order
from eesvm.windows.selective_search import VERSION as _SEARCH_VERSION
from eesvm.windows.selective_search import selective_search
from eesvm.windows.settings import WindowSettings

_ORDER_VERSION = 1  # part of the key of cached windows: to be raised when the same boxes come in another order
_IMAGES_PER_PROCESS = 8  # from which on a process is worth its start

_Floats = NDArray[np.float64]


class Cache(Protocol):
    """What `propose_dataset` asks of a cache; with several jobs it is used in the workers."""

    def fetch(
        self, image: NDArray[np.uint8], parameters: dict[str, Any], compute: Callable[[], _Floats]
    ) -> NDArray[Any]:
        """What is stored for these pixels and parameters (JSON-able), or else what `compute` returns, then stored."""


def propose(
    image: NDArray[np.uint8],
    method: str = "selective_search",
    mode: str = "default",
    max_windows: int = 2000,
    min_size: float = 10.0,
    working_size: int = 500,
    time_budget: float | None = None,
) -> _Floats:
    """(n, 4) half-open xyxy boxes in an RGB image, all different, all within it; at least one.

    The order depends on the image and the arguments only, and every beginning of it is a good choice of that many.
    Where nothing is large enough, the answer is the whole image.

    Parameters
    ----------
    image : (height, width, 3) uint8, RGB.
    method : "selective_search", "opencv" (OpenCV's version, if it is installed) or "grid".
    mode : of selective search, see `selective_search.strategies`: "default", "fast" (regions are merged in 8 ways),
        "quality" (in 80: more windows, several times slower) or "single" (in 1: few windows). OpenCV's default is fast.
    max_windows : how many to keep.
    min_size : of both sides, in pixels of the image.
    working_size : an image with a longer side than this is made smaller before it is segmented, and the boxes are
        enlarged again: time grows with the pixels, what is found hardly does. The grid ignores it.
    time_budget : milliseconds after which selective search begins no further segmentation, the most useful ones come
        first; at least one is always done. The windows then depend on the machine and on what else it does.
    """
    return _propose(image, WindowSettings(method, mode, max_windows, min_size, working_size, time_budget))


def propose_dataset(
    dataset: Dataset | Sequence[ImageRecord],
    *,
    include_ground_truth: bool = False,
    n_jobs: int | None = None,
    cache: Cache | None = None,
    progress: Callable[[int, int], object] | None = None,
    problems: list[Problem] | None = None,
    strict: bool = False,
    **options: Any,
) -> Iterator[Windows]:
    """`Windows` of each image that can be read, in the order of the dataset, the same for any `n_jobs`.

    Memory stays flat: a few images are under way at a time. A bad image is skipped.

    Parameters
    ----------
    dataset : the images.
    include_ground_truth : put the boxes of the instances first, as training wants them; groups of objects (`is_crowd`)
        and empty boxes stay out, and so does a proposal that equals one of them. `max_windows` counts proposals.
    n_jobs : how many images are worked on side by side, in threads, with "opencv" in processes; None is 1, -1 one per
        core, or fewer processes for a few images, which are done before processes start.
    cache : windows that it holds are not computed again.
    progress : called with the number of images done, and of all.
    problems : a list that receives a `Problem` for each skipped image; without one they are logged as warnings.
    strict : raise `InputError` at the first bad image instead of skipping it.
    options : of `propose`.
    """
    settings = WindowSettings(**options)
    n_workers = _n_workers(n_jobs, len(dataset), _IMAGES_PER_PROCESS if settings.method == "opencv" else 1)
    if settings.method == "opencv":
        opencv_segmentation()  # a missing package is one error here, not one per image
    return _propose_all(dataset, settings, include_ground_truth, n_workers, cache, progress, problems, strict)


def _propose(image: NDArray[np.uint8], settings: WindowSettings) -> _Floats:
    image = np.asarray(image)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
        raise InputError(f"`image` must be uint8 of shape (height, width, 3), got {image.dtype} {image.shape}")
    height, width = image.shape[:2]
    if settings.method == "grid":
        return grid_windows(width, height, settings.max_windows, settings.min_size)
    found = _searched(image, settings)
    found = found[box_functions.is_valid(found, min_size=settings.min_size)]
    if not len(found):
        return np.array([[0.0, 0.0, width, height]])
    return found[representative_order(found, settings.max_windows)]


def _searched(image: NDArray[np.uint8], settings: WindowSettings) -> _Floats:
    if settings.method == "opencv":
        return opencv_search(image, settings.mode, settings.working_size)
    return selective_search(image, settings.mode, settings.working_size, settings.time_budget)


def _n_workers(n_jobs: int | None, n_images: int, images_per_worker: int = _IMAGES_PER_PROCESS) -> int:
    if n_jobs is None:
        return 1
    check_number(n_jobs, "n_jobs", minimum=-1, integer=True)
    if n_jobs == 0:
        raise InputError("`n_jobs` must be a number of processes or -1 for one per core, got 0")
    if n_jobs > 0:
        return int(n_jobs)
    return max(1, min(n_cores(), n_images // images_per_worker))


def _propose_all(
    records: Sequence[ImageRecord],
    settings: WindowSettings,
    include_ground_truth: bool,
    n_workers: int,
    cache: Cache | None,
    progress: Callable[[int, int], object] | None,
    problems: list[Problem] | None,
    strict: bool,
) -> Iterator[Windows]:
    for done, (record, answer) in enumerate(zip(records, _answers(records, settings, n_workers, cache), strict=True)):
        if isinstance(answer, str):
            reason = answer.removeprefix(f"{record.path}: ")  # readers name the file themselves
            skip(Problem(record.path or record.image_id, reason, kind="image"), problems, strict)
        else:
            yield _windows(record, answer, include_ground_truth)
        if progress is not None:
            progress(done + 1, len(records))


def _answers(
    records: Sequence[ImageRecord], settings: WindowSettings, n_workers: int, cache: Cache | None
) -> Iterator[_Floats | str]:
    """Boxes, or why there are none, for each image in turn."""
    if n_workers == 1:
        yield from (_answer(record.read, settings, cache) for record in records)
        return
    if settings.method == "opencv":
        yield from _answers_of_processes(records, settings, n_workers, cache)
    else:
        yield from _answers_of_threads(records, settings, n_workers, cache)


def _answers_of_threads(
    records: Sequence[ImageRecord], settings: WindowSettings, n_workers: int, cache: Cache | None
) -> Iterator[_Floats | str]:
    """A few images are under way at a time, so that neither pixels nor answers pile up."""
    waiting: deque[Future[_Floats | str]] = deque()
    with ThreadPoolExecutor(n_workers) as pool:
        try:
            for record in records:
                waiting.append(pool.submit(_answer, record.read, settings, cache))
                if len(waiting) >= 2 * n_workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # whoever stops early does not wait for images that nobody asks for
            for future in waiting:
                future.cancel()


def _answers_of_processes(
    records: Sequence[ImageRecord], settings: WindowSettings, n_workers: int, cache: Cache | None
) -> Iterator[_Floats | str]:
    # The workers live in processes of their own: a script needs no `if __name__ == "__main__"` for these.
    parallel = Parallel(n_workers, return_as="generator", batch_size=1, pre_dispatch="2 * n_jobs")
    try:
        yield from parallel(delayed(_answer_in_worker)(os.getpid(), record.read, settings, cache) for record in records)
    except RuntimeError as error:
        if "Terminated" not in type(error).__name__ and "Broken" not in type(error).__name__:
            raise
        raise InputError(
            "a process that proposes windows has died, perhaps of lack of memory: lower `n_jobs`"
        ) from error


def _answer_in_worker(
    parent: int, read: Callable[[], NDArray[np.uint8]], settings: WindowSettings, cache: Cache | None
) -> _Floats | str:
    end_with(parent)
    opencv().setNumThreads(1)  # the processes already share out the cores
    return _answer(read, settings, cache)


def _answer(read: Callable[[], NDArray[np.uint8]], settings: WindowSettings, cache: Cache | None) -> _Floats | str:
    try:
        image = read()
        if cache is None:
            return _propose(image, settings)
        # A copy: what a cache returns may be a view of a file that is gone before long.
        return np.array(cache.fetch(image, _parameters(settings), lambda: _propose(image, settings)), dtype=np.float64)
    except MemoryError:
        return "there is not enough memory for it"
    except (InputError, OSError, ValueError) as error:
        return reason(error)
    except Exception as error:  # OpenCV's own kind, which cannot be named without importing it
        if type(error).__module__.split(".")[0] != "cv2":
            raise
        return f"OpenCV cannot segment it: {' '.join(str(error).split())}"


def _parameters(settings: WindowSettings) -> dict[str, Any]:
    """All that the windows of an image depend on, besides its pixels."""
    parameters = {"stop": "windows", "order": _ORDER_VERSION, **asdict(settings)}
    if settings.method == "selective_search":
        parameters["selective_search"] = _SEARCH_VERSION
    if settings.method == "opencv":
        parameters["opencv"] = opencv().__version__
    return parameters


def _windows(record: ImageRecord, proposals: _Floats, include_ground_truth: bool) -> Windows:
    windows = Windows(record.image_id, proposals, np.full(len(proposals), -1, dtype=np.int64))
    return with_ground_truth(windows, record) if include_ground_truth else windows


def with_ground_truth(windows: Windows, record: ImageRecord) -> Windows:
    """The boxes of the objects first, then the proposals without those that are such a box.

    Parameters
    ----------
    windows : of the image, proposals only.
    record : the image with its annotated objects; groups and empty boxes stay out.
    """
    instances = [instance for instance in record.instances if not instance.is_crowd]
    truth = np.array([instance.box for instance in instances], dtype=np.float64).reshape(-1, 4)
    is_real = box_functions.is_valid(truth)
    truth, ids = truth[is_real], np.array([i.index for i in instances], dtype=np.int64)[is_real]
    proposals = windows.boxes[box_functions.iou(windows.boxes, truth).max(axis=1, initial=0.0) < 1.0]
    return Windows(
        record.image_id,
        np.concatenate([truth, proposals]),
        np.concatenate([ids, np.full(len(proposals), -1, dtype=np.int64)]),
    )
