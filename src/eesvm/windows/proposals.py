"""Proposing windows: selective search, or a grid.

In: an RGB image, or a dataset. Out: (n, 4) half-open xyxy boxes, the most representative first, or `Windows` per image;
and how many of a dataset's objects such windows find.
"selective_search" is OpenCV's (Uijlings et al. 2013), as in the paper: it needs `eesvm[vision]`. It returns the same
set on every call, but in a random order; the order here is our own (see `order`). "grid" is the plain
alternative, which never looks at the pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from joblib import Parallel, delayed  # type: ignore[import-untyped]
from numpy.typing import NDArray

from eesvm import boxes as box_functions
from eesvm._support.extras import optional_module
from eesvm._support.threads import n_cores
from eesvm._support.validation import InputError, check_choice, check_number
from eesvm.datasets.problems import reason, skip
from eesvm.structures import Dataset, ImageRecord, Problem, Windows
from eesvm.windows.files import read_windows, write_windows
from eesvm.windows.order import representative_order
from eesvm.windows.recall import ClassRecall, WindowRecall, window_recall

__all__ = [
    "METHODS",
    "MODES",
    "ClassRecall",
    "WindowRecall",
    "grid_windows",
    "propose",
    "propose_dataset",
    "read_windows",
    "window_recall",
    "with_ground_truth",
    "write_windows",
]

METHODS = ("selective_search", "grid")
MODES = ("fast", "quality", "single")

_ORDER_VERSION = 1  # part of the key of cached windows: to be raised when the same image gives other windows
_IMAGES_PER_PROCESS = 8  # from which on a process is worth its start
_ASPECTS = (1.0, 0.5, 2.0, 0.7, 1.4)  # width : height, in the order in which a grid offers them
_GRID_STEP = 2**0.5  # between the sizes of a grid
_GRID_STRIDE = 0.25  # of the side of a window

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
    mode: str = "fast",
    max_windows: int = 2000,
    min_size: float = 10.0,
    working_size: int = 500,
) -> _Floats:
    """(n, 4) half-open xyxy boxes in an RGB image, all different, all within it; at least one.

    The order depends on the image and the arguments only, and every beginning of it is a good choice of that many.
    Where nothing is large enough, the answer is the whole image.

    Parameters
    ----------
    method : "selective_search" or "grid".
    mode : of selective search: "fast" (merges in 8 ways), "quality" (in 80: more windows, several times slower) or
        "single" (in 1: few windows).
    max_windows : how many to keep.
    min_size : of both sides, in pixels of the image.
    working_size : an image with a longer side than this is made smaller before it is segmented, and the boxes are
        enlarged again: time grows with the pixels, what is found hardly does. The grid ignores it.
    """
    return _propose(image, WindowSettings(method, mode, max_windows, min_size, working_size))


def grid_windows(width: int, height: int, max_windows: int = 2000, min_size: float = 10.0) -> _Floats:
    """(n, 4) half-open xyxy boxes on a regular grid: the whole image, then from large to small.

    Sizes fall by the square root of 2, widths to heights are 1, 1/2, 2, 0.7 and 1.4, neighbours are a quarter of a side
    apart. Within a size the order is scattered, so that a limit does not leave one corner of the image empty. Without a
    limit, a box of 1.6 times `min_size` or more, not longer than two to one, is overlapped by an IoU of about 0.6.
    """
    for name, value in (("width", width), ("height", height), ("max_windows", max_windows)):
        check_number(value, name, minimum=1, integer=True)
    check_number(min_size, "min_size", minimum=1)
    found = [np.array([[0.0, 0.0, width, height]])]
    n, size, level = 1, float(min(width, height)), 0
    while size >= min_size and n < max_windows:
        level += 1
        windows = _grid_level(width, height, size, min_size)
        scattered = np.argsort(np.random.Generator(np.random.PCG64(level)).random(len(windows)), kind="stable")
        found.append(windows[scattered])
        n += len(windows)
        size /= _GRID_STEP
    return _distinct(np.concatenate(found))[:max_windows]


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
    include_ground_truth : put the boxes of the instances first, as training wants them; groups of objects (`is_crowd`)
        and empty boxes stay out, and so does a proposal that equals one of them. `max_windows` counts proposals.
    n_jobs : processes; None is 1, -1 one per core, or fewer for a few images, which are done before processes start.
    cache : windows that it holds are not computed again.
    progress : called with the number of images done, and of all.
    problems : a list that receives a `Problem` for each skipped image; without one they are logged as warnings.
    strict : raise `InputError` at the first bad image instead of skipping it.
    options : of `propose`.
    """
    settings = WindowSettings(**options)
    n_workers = _n_workers(n_jobs, len(dataset))
    if settings.method == "selective_search":
        _segmentation()  # a missing package is one error here, not one per image
    return _propose_all(dataset, settings, include_ground_truth, n_workers, cache, progress, problems, strict)


@dataclass(frozen=True)
class WindowSettings:
    """How windows are proposed; see `propose`."""

    group: ClassVar[str] = ""  # what stands before the name of a setting in a complaint about it

    method: str = "selective_search"
    mode: str = "fast"
    max_windows: int = 2000
    min_size: float = 10.0
    working_size: int = 500

    def __post_init__(self) -> None:
        check_choice(self.method, f"{self.group}method", METHODS)
        check_choice(self.mode, f"{self.group}mode", MODES)
        check_number(self.max_windows, f"{self.group}max_windows", minimum=1, integer=True)
        check_number(self.min_size, f"{self.group}min_size", minimum=1)
        check_number(self.working_size, f"{self.group}working_size", minimum=16, integer=True)


def _propose(image: NDArray[np.uint8], settings: WindowSettings) -> _Floats:
    image = np.asarray(image)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
        raise InputError(f"`image` must be uint8 of shape (height, width, 3), got {image.dtype} {image.shape}")
    height, width = image.shape[:2]
    if settings.method == "grid":
        return grid_windows(width, height, settings.max_windows, settings.min_size)
    found = _selective_search(image, settings.mode, settings.working_size)
    found = found[box_functions.is_valid(found, min_size=settings.min_size)]
    if not len(found):
        return np.array([[0.0, 0.0, width, height]])
    return found[representative_order(found, settings.max_windows)]


def _selective_search(image: NDArray[np.uint8], mode: str, working_size: int) -> _Floats:
    """Different boxes, sorted by their coordinates."""
    height, width = image.shape[:2]
    small = _shrunk(image, working_size)
    search = _segmentation().createSelectiveSearchSegmentation()
    search.setBaseImage(np.ascontiguousarray(small[:, :, ::-1]))  # OpenCV expects BGR
    {
        "fast": search.switchToSelectiveSearchFast,
        "quality": search.switchToSelectiveSearchQuality,
        "single": search.switchToSingleStrategy,
    }[mode]()
    x, y, w, h = np.asarray(search.process(), dtype=np.float64).reshape(-1, 4).T
    factors = np.array([width / small.shape[1], height / small.shape[0]] * 2)
    return np.unique(box_functions.clip(np.stack([x, y, x + w, y + h], axis=1) * factors, width, height), axis=0)


def _segmentation() -> Any:
    """OpenCV's module of segmentations, which is in its contrib packages only."""
    ximgproc = getattr(optional_module("cv2"), "ximgproc", None)
    if ximgproc is None:
        raise InputError(
            "selective search is not in the installed OpenCV: pip install 'eesvm[vision]', which brings "
            "opencv-contrib-python-headless, in an environment without another OpenCV"
        )
    return ximgproc.segmentation


def _shrunk(image: NDArray[np.uint8], longest: int) -> NDArray[np.uint8]:
    height, width = image.shape[:2]
    factor = longest / max(height, width)
    if factor >= 1:
        return image
    cv2 = optional_module("cv2")
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA)


def _grid_level(width: int, height: int, size: float, min_size: float) -> _Floats:
    """Windows whose area is that of a square of this size, in all aspects that fit."""
    found = []
    for aspect in _ASPECTS:
        w, h = size * aspect**0.5, size / aspect**0.5
        if min_size <= w <= width and min_size <= h <= height:
            x = np.linspace(0, width - w, 1 + int(np.ceil((width - w) / (_GRID_STRIDE * w))))
            y = np.linspace(0, height - h, 1 + int(np.ceil((height - h) / (_GRID_STRIDE * h))))
            left, top = (a.ravel() for a in np.meshgrid(x, y))
            found.append(np.stack([left, top, left + w, top + h], axis=1))
    return np.concatenate(found) if found else np.empty((0, 4))


def _distinct(boxes: _Floats) -> _Floats:
    """The boxes without repetitions, in the order in which they first occur."""
    return boxes[np.sort(np.unique(boxes, axis=0, return_index=True)[1])]


def _n_workers(n_jobs: int | None, n_images: int) -> int:
    if n_jobs is None:
        return 1
    check_number(n_jobs, "n_jobs", minimum=-1, integer=True)
    if n_jobs == 0:
        raise InputError("`n_jobs` must be a number of processes or -1 for one per core, got 0")
    if n_jobs > 0:
        return int(n_jobs)
    return max(1, min(n_cores(), n_images // _IMAGES_PER_PROCESS))


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
    # The workers live in processes of their own: a script needs no `if __name__ == "__main__"` for these.
    parallel = Parallel(n_workers, return_as="generator", batch_size=1, pre_dispatch="2 * n_jobs")
    try:
        yield from parallel(delayed(_answer_in_worker)(record.read, settings, cache) for record in records)
    except RuntimeError as error:
        if "Terminated" not in type(error).__name__ and "Broken" not in type(error).__name__:
            raise
        raise InputError(
            "a process that proposes windows has died, perhaps of lack of memory: lower `n_jobs`"
        ) from error


def _answer_in_worker(
    read: Callable[[], NDArray[np.uint8]], settings: WindowSettings, cache: Cache | None
) -> _Floats | str:
    if settings.method == "selective_search":
        optional_module("cv2").setNumThreads(1)  # the processes already share out the cores
    return _answer(read, settings, cache)


def _answer(read: Callable[[], NDArray[np.uint8]], settings: WindowSettings, cache: Cache | None) -> _Floats | str:
    try:
        image = read()
        if cache is None:
            return _propose(image, settings)
        # A copy: what a cache returns may be a view of a file that is gone before long.
        return np.array(cache.fetch(image, _parameters(settings), lambda: _propose(image, settings)), dtype=np.float64)
    except (InputError, OSError, ValueError, MemoryError) as error:
        return reason(error)
    except Exception as error:  # OpenCV's own kind, which cannot be named without importing it
        if type(error).__module__.split(".")[0] != "cv2":
            raise
        return f"OpenCV cannot segment it: {' '.join(str(error).split())}"


def _parameters(settings: WindowSettings) -> dict[str, Any]:
    """All that the windows of an image depend on, besides its pixels."""
    parameters = {"stop": "windows", "order": _ORDER_VERSION, **asdict(settings)}
    if settings.method == "selective_search":
        parameters["opencv"] = optional_module("cv2").__version__
    return parameters


def _windows(record: ImageRecord, proposals: _Floats, include_ground_truth: bool) -> Windows:
    windows = Windows(record.image_id, proposals, np.full(len(proposals), -1, dtype=np.int64))
    return with_ground_truth(windows, record) if include_ground_truth else windows


def with_ground_truth(windows: Windows, record: ImageRecord) -> Windows:
    """The boxes of the objects first, then the proposals without those that are such a box."""
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
