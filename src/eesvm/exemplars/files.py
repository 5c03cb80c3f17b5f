"""Trained exemplars as one safetensors file: the weights, and beside them as JSON what each of them is.

In: a fitted `ExemplarSVMs` or `ExemplarLDA`, and the identity of every exemplar. Out: a file that appears whole or not
at all, and from it an estimator that scores as the saved one and knows its `exemplars_`.
Everything is checked when it is read: the format number, the names, dtypes, shapes and values of the arrays, and the
JSON field by field. Not here: pickle, which can run code from the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm._support.documents import Document, is_number, plain
from eesvm._support.files import atomic_write
from eesvm._support.tensors import read_tensors, tensor_bytes
from eesvm._support.validation import InputError
from eesvm._support.version import __version__
from eesvm.exemplars.lda import ExemplarLDA
from eesvm.exemplars.svms import ExemplarSVMs, LinearExemplars
from eesvm.structures import Instance

FORMAT = "eesvm-exemplars"
FORMAT_VERSION = 1

_ESTIMATORS: dict[str, type[LinearExemplars]] = {"ExemplarSVMs": ExemplarSVMs, "ExemplarLDA": ExemplarLDA}
_PARAMETERS = {
    "ExemplarSVMs": ("C", "positive_weight", "loss", "bias_multiplier", "tol"),
    "ExemplarLDA": ("shrinkage",),
}
_ARRAYS = {"coef": np.float32, "intercept": np.float32}
_EVIDENCE = {
    "objective": np.float64,
    "gap": np.float64,
    "violation": np.float64,
    "n_support": np.int64,
    "converged": np.bool_,
}


@dataclass(frozen=True)
class ExemplarIdentity:
    """The object that an exemplar was trained on."""

    image_id: str
    box: tuple[float, float, float, float]  # x1, y1, x2, y2, half-open
    class_name: str
    index: int = 0  # among the instances of its image
    metadata: Mapping[str, Any] = field(default_factory=dict)  # whatever JSON holds

    @classmethod
    def of(cls, instance: Instance) -> Self:
        """The identity of an annotated object."""
        x1, y1, x2, y2 = (float(value) for value in instance.box)
        return cls(instance.image_id, (x1, y1, x2, y2), instance.class_name, instance.index, dict(instance.metadata))


def save_exemplars(
    path: str | os.PathLike[str],
    exemplars: LinearExemplars,
    identities: Sequence[ExemplarIdentity | Instance],
    descriptor: Mapping[str, Any] | None = None,
) -> None:
    """Write fitted exemplars, each with its identity, whole or not at all.

    Parameters
    ----------
    path : the file to write; an existing one is replaced.
    exemplars : fitted `ExemplarSVMs` or `ExemplarLDA`.
    identities : (E,) the object behind each exemplar.
    descriptor : `parameters()` of the descriptor they belong to, if it is known.
    """
    name = type(exemplars).__name__
    if _ESTIMATORS.get(name) is not type(exemplars) or not hasattr(exemplars, "coef_"):
        raise InputError("`exemplars` must be fitted ExemplarSVMs or ExemplarLDA")
    if len(identities) != len(exemplars.coef_):
        raise InputError(
            f"`identities` must hold one for each of {len(exemplars.coef_)} exemplars, got {len(identities)}"
        )
    known = [ExemplarIdentity.of(one) if isinstance(one, Instance) else one for one in identities]
    content = {
        "eesvm_version": __version__,
        "estimator": name,
        "parameters": {key: plain(getattr(exemplars, key)) for key in _PARAMETERS[name]},
        "descriptor": None if descriptor is None else dict(descriptor),
        "exemplars": [_as_json(one) for one in known],
    }
    try:
        text = json.dumps(content, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"`identities` and `descriptor` must hold what JSON can hold: {error}") from error
    kinds: dict[str, Any] = {**_ARRAYS, **(_EVIDENCE if name == "ExemplarSVMs" else {})}
    arrays: dict[str, NDArray[Any]] = {
        key: np.ascontiguousarray(getattr(exemplars, f"{key}_"), dtype=dtype) for key, dtype in kinds.items()
    }
    metadata = {"format": FORMAT, "format_version": str(FORMAT_VERSION), "content": text}
    with atomic_write(path) as handle:
        handle.write(tensor_bytes(arrays, metadata))


def load_exemplars(path: str | os.PathLike[str]) -> LinearExemplars:
    """The exemplars that `save_exemplars` wrote; `exemplars_` are their identities, `descriptor_` the parameters."""
    return _Reader(Path(path)).exemplars()


class _Reader(Document):
    """The exemplars of a file."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.arrays, metadata = read_tensors(file)
        if metadata.get("format") != FORMAT:
            raise InputError(f'{file}: it holds no exemplars: there is no "format": "{FORMAT}"')
        self.check_version(metadata.get("format_version"), str(FORMAT_VERSION))
        self.content = self.parse("content", metadata.get("content", ""))
        if not isinstance(self.content, dict):
            self.fail("content", "must be an object")

    def exemplars(self) -> LinearExemplars:
        name = self.content.get("estimator")
        if not isinstance(name, str) or name not in _ESTIMATORS:
            self.fail("estimator", f"must be one of {', '.join(_ESTIMATORS)}, got {name!r}")
        estimator = _ESTIMATORS[name](**self.parameters(name))
        with self.usable("parameters"):
            estimator.check_parameters()
        self.check_arrays({**_ARRAYS, **(_EVIDENCE if name == "ExemplarSVMs" else {})})
        for key, array in self.arrays.items():
            setattr(estimator, f"{key}_", array)
        estimator.n_features_in_ = self.arrays["coef"].shape[1]
        estimator.exemplars_ = self.identities(len(self.arrays["coef"]))
        estimator.descriptor_ = self.descriptor()
        return estimator

    def check_arrays(self, expected: dict[str, Any]) -> None:
        if set(self.arrays) != set(expected):
            self.fail(
                "arrays", f"must be {', '.join(sorted(expected))}, got {', '.join(sorted(self.arrays)) or 'none'}"
            )
        coef = self.arrays["coef"]
        if coef.ndim != 2 or 0 in coef.shape:
            self.fail("coef", f"must have shape (exemplars, dimensions), got {coef.shape}")
        for name, dtype in expected.items():
            array = self.arrays[name]
            if array.dtype != dtype:
                self.fail(name, f"must be {np.dtype(dtype)}, got {array.dtype}")
            if name != "coef" and array.shape != (len(coef),):
                self.fail(name, f"must have shape ({len(coef)},), got {array.shape}")
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                self.fail(name, "holds a value that is NaN or infinite")

    def parameters(self, name: str) -> dict[str, Any]:
        values = self.content.get("parameters")
        self.check_object("parameters", values, _PARAMETERS[name])
        for key, value in values.items():
            if not (isinstance(value, str) or is_number(value)):
                self.fail(f"parameters.{key}", f"must be a number or a text, got {value!r}")
        return values

    def identities(self, n: int) -> tuple[ExemplarIdentity, ...]:
        values = self.content.get("exemplars")
        if not isinstance(values, list) or len(values) != n:
            self.fail("exemplars", f"must be a list of {n}")
        return tuple(self.identity(value, f"exemplars[{number}]") for number, value in enumerate(values))

    def identity(self, value: Any, where: str) -> ExemplarIdentity:
        self.check_object(where, value, ExemplarIdentity.__dataclass_fields__)
        for key in ("image_id", "class_name"):
            self.check_text(f"{where}.{key}", value[key])
        self.check_index(f"{where}.index", value["index"])
        if not isinstance(value["metadata"], dict):
            self.fail(f"{where}.metadata", "must be an object")
        box = value["box"]
        if not isinstance(box, list) or len(box) != 4 or not all(map(is_number, box)) or not _is_box(box):
            self.fail(f"{where}.box", "must be four numbers x1, y1, x2, y2 with x1 < x2 and y1 < y2")
        return ExemplarIdentity(**{**value, "box": tuple(float(number) for number in box)})

    def descriptor(self) -> dict[str, Any] | None:
        value = self.content.get("descriptor")
        if value is not None and not isinstance(value, dict):
            self.fail("descriptor", "must be null or an object")
        return value


def _as_json(one: Any) -> dict[str, Any]:
    if not isinstance(one, ExemplarIdentity):
        raise InputError(f"`identities` must hold ExemplarIdentity or Instance, got {type(one).__name__}")
    box = np.asarray(one.box, dtype=np.float64)
    if box.shape != (4,) or not np.isfinite(box).all() or not _is_box(box):
        raise InputError(f"`identities` must have boxes x1, y1, x2, y2 with x1 < x2 and y1 < y2, got {one.box}")
    return {
        "image_id": str(one.image_id),
        "box": box.tolist(),
        "class_name": str(one.class_name),
        "index": int(one.index),
        "metadata": dict(one.metadata),
    }


def _is_box(box: ArrayLike) -> bool:
    x1, y1, x2, y2 = np.asarray(box, dtype=np.float64)
    return bool(x1 < x2 and y1 < y2)
