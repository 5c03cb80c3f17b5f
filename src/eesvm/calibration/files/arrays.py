"""Calibrators of the other kinds, and small sets of named arrays in general, as safetensors files.

In: a fitted sigmoid, isotonic or affine calibrator. Out: a file, and from it a calibrator that scores as the saved one.
`save_arrays` and `load_arrays` are what that takes: a format, a version, names, dtypes and shapes that are checked.
Absent on purpose: joint calibrations and co-occurrence, which are JSON (`calibrations`); pickle.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.files import atomic_write
from eesvm._support.tensors import read_tensors, tensor_bytes
from eesvm._support.validation import InputError
from eesvm._support.version import __version__
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
_ARRAYS: dict[str, dict[str, np.dtype[Any]]] = {
    "none": {},
    "sigmoid": {"sigmoids": _F64, "muted": _BOOL},
    "isotonic": {"begins": np.dtype(np.float32), "values": _F64, "n_steps": np.dtype(np.int64)},
    "affine": {"scale": _F64, "offset": _F64},
}


def save_calibrator(path: str | os.PathLike[str], name: str, calibrator: ScoreCalibrator) -> None:
    """Write a fitted calibrator of the kind `name`."""
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
    save_arrays(path, FORMAT, FORMAT_VERSION, arrays, {"calibrator": name})


def load_calibrator(path: str | os.PathLike[str], name: str, n_exemplars: int) -> ScoreCalibrator:
    """The calibrator of the kind `name` for so many exemplars, from a file that `save_calibrator` wrote."""
    arrays, metadata = load_arrays(path, FORMAT, FORMAT_VERSION, {"n_exemplars": np.dtype(np.int64)} | _ARRAYS[name])
    if metadata.get("calibrator") != name:
        raise InputError(f"{path}: `calibrator` must be {name}, got {metadata.get('calibrator')!r}")
    if arrays["n_exemplars"].tolist() != [n_exemplars]:
        raise InputError(f"{path}: `n_exemplars` must be {n_exemplars}, got {arrays['n_exemplars'].tolist()}")
    calibrator = _made(Path(path), name, arrays, n_exemplars)
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
    return Uncalibrated()


def save_arrays(
    path: str | os.PathLike[str],
    format_name: str,
    version: int,
    arrays: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write named arrays and texts as one safetensors file, whole or not at all."""
    head = {"format": format_name, "format_version": str(version), "eesvm_version": __version__, **(metadata or {})}
    with atomic_write(path) as handle:
        handle.write(tensor_bytes({name: np.ascontiguousarray(array) for name, array in arrays.items()}, head))


def load_arrays(
    path: str | os.PathLike[str], format_name: str, version: int, expected: Mapping[str, np.dtype[Any]]
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays and texts that `save_arrays` wrote; they must have the expected names and dtypes, and no NaN."""
    arrays, metadata = read_tensors(path)
    if metadata.get("format") != format_name:
        raise InputError(f'{path}: it must have "format": "{format_name}", got {metadata.get("format")!r}')
    if metadata.get("format_version") != str(version):
        found = metadata.get("format_version")
        raise InputError(
            f"{path}: `format_version` must be {version}, which this eesvm {__version__} reads, got {found!r}"
        )
    if set(arrays) != set(expected):
        raise InputError(
            f"{path}: it must hold the arrays {', '.join(sorted(expected))}, got {', '.join(sorted(arrays))}"
        )
    for name, dtype in expected.items():
        if arrays[name].dtype != dtype:
            raise InputError(f"{path}: `{name}` must be {dtype}, got {arrays[name].dtype}")
        if dtype.kind == "f" and np.isnan(arrays[name]).any():
            raise InputError(f"{path}: `{name}` holds a value that is NaN")
    return arrays, metadata


def check_shapes(file: Path, arrays: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse arrays of other shapes than these."""
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise InputError(f"{file}: `{name}` must have shape {shape}, got {arrays[name].shape}")
