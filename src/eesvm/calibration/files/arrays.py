"""Calibrators of one exemplar at a time as safetensors files: none, sigmoid, isotonic, affine.

In: a fitted calibrator of these kinds. Out: a file, and from it a calibrator that scores as the saved one.
Not here: joint calibrations and co-occurrence, which are JSON (`calibrations`); pickle.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.tensors import check_shapes, read_arrays, write_arrays
from eesvm._support.validation import MISSING, InputError, check_choice
from eesvm.calibration.calibrators.base import ScoreCalibrator
from eesvm.calibration.calibrators.independent import (
    AffineCalibrator,
    IsotonicCalibrator,
    SigmoidCalibrator,
    Uncalibrated,
)

FORMAT = "eesvm-calibrator"
FORMAT_VERSION = 1

_F64, _BOOL = np.dtype(np.float64), np.dtype(np.bool_)
_Dtypes = np.dtype[Any] | tuple[np.dtype[Any], ...]  # the dtype of an array, or those it may have
_ARRAYS: dict[str, dict[str, _Dtypes]] = {
    "none": {},
    "sigmoid": {"sigmoids": _F64, "muted": _BOOL},
    "isotonic": {"begins": (np.dtype(np.float32), _F64), "values": _F64, "n_steps": np.dtype(np.int64)},
    "affine": {"scale": _F64, "offset": _F64},
}


def save_calibrator(path: str | os.PathLike[str], name: str, calibrator: ScoreCalibrator) -> None:
    """Write a fitted calibrator of the kind `name`."""
    check_choice(name, "name", tuple(_ARRAYS))
    arrays: dict[str, Any] = {"n_exemplars": np.array([calibrator.n_features_in_], dtype=np.int64)}
    if isinstance(calibrator, SigmoidCalibrator):
        arrays |= {"sigmoids": calibrator.sigmoids_, "muted": calibrator.muted_}
    elif isinstance(calibrator, IsotonicCalibrator):
        arrays |= {
            "begins": np.concatenate([begins for begins, _ in calibrator.steps_]),
            "values": np.concatenate([values for _, values in calibrator.steps_]),
            "n_steps": np.array([len(values) for _, values in calibrator.steps_], dtype=np.int64),
        }
    elif isinstance(calibrator, AffineCalibrator):
        arrays |= {"scale": calibrator.scale_, "offset": calibrator.offset_}
    elif not isinstance(calibrator, Uncalibrated):
        raise InputError(f"`calibrator` must be of a kind that has a file, {', '.join(_ARRAYS)}, got {calibrator!r}")
    if arrays.keys() != {"n_exemplars", *_ARRAYS[name]}:
        raise InputError(f"`calibrator` must be of the kind {name!r}, got {calibrator!r}")
    metadata = {"calibrator": name} | ({} if calibrator.missing == MISSING[0] else {"missing": calibrator.missing})
    write_arrays(path, FORMAT, FORMAT_VERSION, arrays, metadata)


def load_calibrator(path: str | os.PathLike[str], name: str, n_exemplars: int) -> ScoreCalibrator:
    """The calibrator of the kind `name` for `n_exemplars` exemplars, from a file that `save_calibrator` wrote."""
    check_choice(name, "name", tuple(_ARRAYS))
    expected: dict[str, _Dtypes] = {"n_exemplars": np.dtype(np.int64), **_ARRAYS[name]}
    arrays, metadata = read_arrays(path, FORMAT, FORMAT_VERSION, expected)
    if metadata.get("calibrator") != name:
        raise InputError(f"{path}: `calibrator` must be {name}, got {metadata.get('calibrator')!r}")
    if arrays["n_exemplars"].tolist() != [n_exemplars]:
        raise InputError(f"{path}: `n_exemplars` must be {n_exemplars}, got {arrays['n_exemplars'].tolist()}")
    calibrator = _made(Path(path), name, arrays, n_exemplars)
    calibrator.missing = metadata.get("missing", MISSING[0])
    if calibrator.missing not in MISSING:
        raise InputError(f"{path}: `missing` must be one of {', '.join(MISSING)}, got {calibrator.missing!r}")
    calibrator.n_features_in_, calibrator.classes_ = n_exemplars, np.array([0, 1])
    return calibrator


def _made(file: Path, name: str, arrays: dict[str, NDArray[Any]], n: int) -> ScoreCalibrator:
    if name == "sigmoid":
        sigmoid = SigmoidCalibrator()
        check_shapes(file, arrays, {"sigmoids": (n, 2), "muted": (n,)})
        sigmoid.sigmoids_, sigmoid.muted_ = arrays["sigmoids"], arrays["muted"]
        return sigmoid
    if name == "isotonic":
        isotonic = IsotonicCalibrator()
        check_shapes(file, arrays, {"n_steps": (n,)})
        total = int(arrays["n_steps"].sum())
        check_shapes(file, arrays, {"begins": (total,), "values": (total,)})
        if (arrays["n_steps"] < 1).any():
            raise InputError(f"{file}: `n_steps` must be >= 1")
        ends = np.cumsum(arrays["n_steps"])[:-1]
        isotonic.steps_ = list(zip(np.split(arrays["begins"], ends), np.split(arrays["values"], ends), strict=True))
        return isotonic
    if name == "affine":
        affine = AffineCalibrator()
        check_shapes(file, arrays, {"scale": (n,), "offset": (n,)})
        affine.scale_, affine.offset_ = arrays["scale"], arrays["offset"]
        affine.muted_ = np.isneginf(affine.offset_)
        return affine
    if name == "none":
        return Uncalibrated()
    raise InputError(f"{file}: nothing makes a calibrator of the kind {name!r} from its arrays")
