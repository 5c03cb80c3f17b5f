"""Files of scales that were drawn together, and of the windows that they were judged by.

    classes/NAME/judged.safetensors              windows of whole images with their scores
    classes/NAME/shrunken-NAME.safetensors       slopes, offsets, link, and what images left out said

In: `JudgedWindows`, a `ShrunkenCalibrator` with its `LeftOut`. Out: the files, and the same things back, checked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from eesvm._support.documents import Document, is_number
from eesvm._support.tensors import check_shapes, read_arrays, write_arrays
from eesvm._support.validation import InputError
from eesvm.calibration.calibrators.shrinkage import ShrunkenCalibrator
from eesvm.detector.left_out import JudgedWindows
from eesvm.detector.shrinkage import LeftOut

JUDGED_NAME = "judged.safetensors"

_JUDGED, _SHRUNKEN, _VERSION = "eesvm-judged-windows", "eesvm-shrunken-scales", 1
_F64, _I64 = np.dtype(np.float64), np.dtype(np.int64)
_TABLES: dict[str, np.dtype[Any]] = {
    "scores": np.dtype(np.float32),
    "boxes": _F64,
    "image": _I64,
    "weights": _F64,
    "objects": _F64,
    "object_image": _I64,
    "is_ignored": np.dtype(np.bool_),
}
_NUMBERS = ("strengths", "precisions", "errors")


def shrunken_name(stored: str) -> str:
    """The file of a calibrator that is kept under this name."""
    return f"shrunken-{stored}.safetensors"


def write_judged(file: Path, judged: JudgedWindows) -> None:
    """The windows, and the names of their images."""
    arrays = {name: getattr(judged, name) for name in _TABLES}
    write_arrays(file, _JUDGED, _VERSION, arrays, {"images": json.dumps(judged.image_ids.tolist())})


def read_judged(file: Path, n_exemplars: int) -> JudgedWindows:
    """What `write_judged` wrote, for `n_exemplars` exemplars."""
    arrays, metadata = read_arrays(file, _JUDGED, _VERSION, _TABLES)
    names = Document(file).parse("images", metadata.get("images", ""))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{file}: `images` must be a list of names")
    n, m = len(arrays["image"]), len(arrays["object_image"])
    shapes: dict[str, tuple[int, ...]] = {"scores": (n, n_exemplars), "boxes": (n, 4), "weights": (len(names),)}
    check_shapes(file, arrays, shapes | {"objects": (m, 4), "is_ignored": (m,)})
    for name in ("image", "object_image"):
        own = arrays[name]
        if len(own) and (own.min() < 0 or own.max() >= len(names) or (np.diff(own) < 0).any()):
            raise InputError(f"{file}: `{name}` must rise from 0 to the {len(names)} images at most")
    return JudgedWindows(image_ids=np.array(names, dtype=np.str_), **arrays)


def write_shrunken(file: Path, shrunken: ShrunkenCalibrator, found: LeftOut) -> None:
    """Scales and what led to them."""
    arrays = {"slopes": shrunken.slopes_, "offsets": shrunken.offsets_}
    write_arrays(file, _SHRUNKEN, _VERSION, arrays, {"left_out": json.dumps(found.as_dict(), sort_keys=True)})


def read_shrunken(file: Path, n_exemplars: int) -> tuple[ShrunkenCalibrator, LeftOut]:
    """What `write_shrunken` wrote, for `n_exemplars` exemplars."""
    arrays, metadata = read_arrays(file, _SHRUNKEN, _VERSION, {"slopes": _F64, "offsets": _F64})
    check_shapes(file, arrays, {"slopes": (n_exemplars,), "offsets": (n_exemplars,)})
    if not (
        np.isfinite(arrays["slopes"]).all() and np.isfinite(arrays["offsets"]).all() and (arrays["slopes"] > 0).all()
    ):
        raise InputError(f"{file}: `slopes` must be > 0, and they and `offsets` finite")
    found = _left_out(Document(file), metadata.get("left_out", ""))
    shrunken = ShrunkenCalibrator()
    shrunken.slopes_, shrunken.offsets_ = arrays["slopes"], arrays["offsets"]
    shrunken.strength_, shrunken.link_ = found.chosen, found.link
    shrunken.n_features_in_, shrunken.classes_ = n_exemplars, np.array([0, 1])
    return shrunken, found


def _left_out(document: Document, text: str) -> LeftOut:
    content = document.parse("left_out", text)
    document.check_object("left_out", content, list(LeftOut.__dataclass_fields__))
    for name in (*_NUMBERS, "link"):
        values = content[name]
        if not isinstance(values, list) or not all(map(is_number, values)):
            document.fail(f"left_out.{name}", "must be a list of numbers")
    if len({len(content[name]) for name in _NUMBERS}) > 1 or len(content["link"]) != 2:
        document.fail("left_out", "must have as many precisions and errors as strengths, and two numbers as a link")
    for name in ("chosen", "recall", "shift"):
        if not is_number(content[name]) and (content[name] is not None or name == "chosen"):
            document.fail(f"left_out.{name}", f"must be a number, got {content[name]!r}")
    tuples = {name: tuple(content[name]) for name in (*_NUMBERS, "link")}
    return LeftOut(**{**content, **tuples})
