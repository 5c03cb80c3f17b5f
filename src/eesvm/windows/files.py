"""Windows in a file: one .npz with plain arrays, never pickle.

In: `Windows` per image. Out: a file, and the same windows again. `image_ids` (n,) names the images, rows `starts[i]` to
`starts[i + 1]` of `boxes` (half-open xyxy) and of `instance` belong to image i.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from eesvm._support.archives import load_named_arrays
from eesvm._support.files import atomic_write
from eesvm._support.validation import InputError
from eesvm.boxes import check_boxes
from eesvm.structures import Windows

_NAMES = ("image_ids", "starts", "boxes", "instance")


def write_windows(path: str | os.PathLike[str], windows: Iterable[Windows]) -> None:
    """Write the windows of some images, whole or not at all.

    Parameters
    ----------
    path : the file to write, in numpy's .npz format; an existing one is replaced.
    windows : of each image.
    """
    found = list(windows)
    with atomic_write(path) as handle:
        np.savez_compressed(
            handle,
            image_ids=np.array([w.image_id for w in found], dtype=str),
            starts=np.cumsum([0, *(len(w) for w in found)]).astype(np.int64),
            boxes=np.concatenate([np.empty((0, 4)), *(w.boxes for w in found)]),
            instance=np.concatenate([np.empty(0, dtype=np.int64), *(w.instance for w in found)]),
        )


def read_windows(path: str | os.PathLike[str]) -> list[Windows]:
    """The windows that `write_windows` wrote."""
    stored = load_named_arrays(path, _NAMES, "windows")
    if set(stored) != set(_NAMES):
        raise InputError(f"{os.fspath(path)} does not hold windows: its arrays must be {', '.join(_NAMES)}")
    ids, starts, boxes, instance = (stored[name] for name in _NAMES)
    boxes = check_boxes(boxes, f"boxes of {os.fspath(path)}")
    is_consistent = (
        ids.ndim == 1
        and starts.dtype.kind in "iu"
        and starts.shape == (len(ids) + 1,)
        and (starts[0], starts[-1]) == (0, len(boxes))
        and (np.diff(starts) >= 0).all()
        and instance.shape == (len(boxes),)
        and instance.dtype.kind in "iu"
    )
    if not is_consistent:
        raise InputError(f"{os.fspath(path)} holds arrays that do not belong together")
    pieces = [slice(start, stop) for start, stop in pairwise(starts)]
    return [
        Windows(str(name), boxes[rows], instance[rows].astype(np.int64)) for name, rows in zip(ids, pieces, strict=True)
    ]
