"""OpenCV's selective search, where OpenCV is installed.

In: an RGB image. Out: different boxes, sorted by their coordinates: OpenCV returns the same set on every call, but in a
random order. It needs `eesvm[opencv]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm import boxes as box_functions
from eesvm._support.extras import optional_module
from eesvm._support.validation import InputError


def opencv_search(image: NDArray[np.uint8], mode: str, working_size: int) -> NDArray[np.float64]:
    """(n, 4) half-open xyxy boxes; `mode` is "fast", "quality" or "single", and "default" is "fast"."""
    height, width = image.shape[:2]
    small = _shrunk(image, working_size)
    search = opencv_segmentation().createSelectiveSearchSegmentation()
    search.setBaseImage(np.ascontiguousarray(small[:, :, ::-1]))  # OpenCV expects BGR
    {
        "default": search.switchToSelectiveSearchFast,
        "fast": search.switchToSelectiveSearchFast,
        "quality": search.switchToSelectiveSearchQuality,
        "single": search.switchToSingleStrategy,
    }[mode]()
    x, y, w, h = np.asarray(search.process(), dtype=np.float64).reshape(-1, 4).T
    factors = np.array([width / small.shape[1], height / small.shape[0]] * 2)
    return np.unique(box_functions.clip(np.stack([x, y, x + w, y + h], axis=1) * factors, width, height), axis=0)


def opencv_segmentation() -> Any:
    """OpenCV's module of segmentations, which is in its contrib packages only."""
    ximgproc = getattr(opencv(), "ximgproc", None)
    if ximgproc is None:
        raise InputError(
            "selective search is not in the installed OpenCV: pip install 'eesvm[opencv]', which brings "
            "opencv-contrib-python-headless, in an environment without another OpenCV"
        )
    return ximgproc.segmentation


def opencv() -> Any:
    """OpenCV itself; a sentence says what to install where it is missing."""
    return optional_module("cv2", "opencv")


def _shrunk(image: NDArray[np.uint8], longest: int) -> NDArray[np.uint8]:
    height, width = image.shape[:2]
    factor = longest / max(height, width)
    if factor >= 1:
        return image
    cv2 = opencv()
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA)
