"""Certificates in a file: one .npz with plain arrays, never pickle.

In: a `Certificate`. Out: a file, and from it the same certificate, believed only after every array has been checked.
Not here: the problem. Whether the certificate proves something about given scores is for `proofs.verify` to say.
"""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.archives import check_readable, listed, load_arrays
from eesvm._support.files import atomic_write
from eesvm._support.validation import InputError
from eesvm.calibration.certificate import Certificate

FORMAT_VERSION = 1

_VERSION_NAME = "certificate_format"
_NAMES = tuple(field.name for field in fields(Certificate))
_SCALARS = ("min_recall", "cutoff", "quantum", "detector_price", "weight_cap")
_DEFAULTS: dict[str, NDArray[Any]] = {  # of files from before there were any
    "detector_price": np.array(0.0),
    "weight_cap": np.array(np.inf),
    "hard": np.empty(0, dtype=np.int32),
}


def save_certificate(path: str | os.PathLike[str], certificate: Certificate) -> None:
    """Write a certificate as a compressed .npz, whole or not at all.

    Parameters
    ----------
    path : the file to write; an existing one is replaced.
    certificate : checked before it is written.
    """
    if not isinstance(certificate, Certificate):
        raise InputError(f"`certificate` must be a Certificate, got {type(certificate).__name__}")
    certificate.check()
    arrays: dict[str, Any] = {name: getattr(certificate, name) for name in _NAMES}
    arrays |= {name: np.float64(arrays[name]) for name in _SCALARS} | {_VERSION_NAME: np.int64(FORMAT_VERSION)}
    with atomic_write(path) as handle:  # plain dtypes, which `check` has seen to, are never pickled
        np.savez_compressed(handle, **arrays)


def load_certificate(path: str | os.PathLike[str]) -> Certificate:
    """The certificate that `save_certificate` wrote; its shape is checked, not yet what it proves."""
    file = Path(path)
    try:
        check_readable(file)
        certificate = _certificate(load_arrays(file, {_VERSION_NAME, *_NAMES}))
        certificate.check()
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return certificate


def _certificate(arrays: dict[str, NDArray[Any]]) -> Certificate:
    version = arrays.get(_VERSION_NAME)
    if version is None:
        raise InputError(f"it is not a certificate: there is no `{_VERSION_NAME}`, only {listed(sorted(arrays))}")
    if version.shape != () or version.dtype.kind not in "iu" or version != FORMAT_VERSION:
        raise InputError(f"`{_VERSION_NAME}` must be {FORMAT_VERSION}, which is all that this version reads")
    arrays = _DEFAULTS | arrays
    missing = [name for name in _NAMES if name not in arrays]
    if missing:
        raise InputError(f"{listed(missing, 'array')} missing")
    strange = sorted(arrays.keys() - {_VERSION_NAME, *_NAMES})
    if strange:
        raise InputError(f"{listed(strange, 'array')} not part of a certificate")
    for name in _SCALARS:
        if arrays[name].shape != () or arrays[name].dtype != np.float64:
            raise InputError(f"`{name}` must be one number of dtype float64")
    values: dict[str, Any] = {name: arrays[name] for name in _NAMES}
    return Certificate(**(values | {name: float(arrays[name]) for name in _SCALARS}))
