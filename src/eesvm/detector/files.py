"""The model folder: plain files that are checked when they are read.

    model.json                        the card: options, classes, counts, calibrations, hashes of every other file
    MODEL.md                          the same for people
    descriptor/pca.npz, kernel_map.npz, scaler.npz       what follows the network
    classes/NAME/exemplars.safetensors, single_svm.safetensors, annotations.safetensors, boxes.safetensors
    classes/NAME/scores.npz, windows.safetensors         what calibrators are fitted from
    classes/NAME/joint/calibration.json, certificate.npz, and sigmoid.safetensors, cooccurrence.json, ...
    classes/NAME/kept.safetensors     what the class can grow from, see `kept_windows`
    classes/NAME/judged.safetensors, shrunken-joint.safetensors, ...     see `shrinkage_files`
    classes/NAME/joint/search.json    how long the search took; not hashed, so that equal models have equal cards

In: a trained model. Out: the folder, and the model again. Each part is a function that writes some of these files and
one that reads them, so that training can keep what it has finished (`training_run`). Score table and joint calibration
are in the formats of `eesvm calibrate`, so `eesvm verify` checks the proof of a class.
Not here: pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from eesvm._support.digests import file_digest
from eesvm._support.documents import Document
from eesvm._support.files import atomic_folder, replaced_folder
from eesvm._support.tensors import check_shapes, read_arrays, write_arrays
from eesvm._support.validation import InputError
from eesvm._support.version import __version__
from eesvm.calibration.calibrators.base import ScoreCalibrator
from eesvm.calibration.calibrators.cooccurrence import CooccurrenceCalibrator
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.calibration.certificate import Certificate
from eesvm.calibration.files.arrays import load_calibrator, save_calibrator
from eesvm.calibration.files.calibrations import SEARCH_NAME, load_calibration, load_cooccurrence, save_calibration
from eesvm.calibration.files.certificates import load_certificate, save_certificate
from eesvm.calibration.tables.score_table import read_score_table, write_score_table
from eesvm.descriptors import PCA, KernelMap, MeanNormScaler, Transformed
from eesvm.descriptors.base import Descriptor
from eesvm.descriptors.transforms import Transform
from eesvm.detector.box_regression import BoxRegressor
from eesvm.detector.card import FORMAT, FORMAT_VERSION, card, transform_name, write_card
from eesvm.detector.class_calibration import COOCCURRENCE, JOINT, STORED_AS
from eesvm.detector.class_training import CalibrationScores, SingleSVM
from eesvm.detector.kept_windows import KEPT_NAME, ChosenWindows, KeptWindows, read_kept, write_kept
from eesvm.detector.model import ClassModel
from eesvm.detector.options import DetectorOptions
from eesvm.detector.shrinkage_files import (
    JUDGED_NAME,
    read_judged,
    read_shrunken,
    shrunken_name,
    write_judged,
    write_shrunken,
)
from eesvm.detector.suggestions import suggest_score
from eesvm.detector.training_descriptor import plain_descriptor
from eesvm.exemplars.files import ExemplarIdentity, load_exemplars, save_exemplars
from eesvm.structures import ExemplarAnnotation
from eesvm.transfer.annotations import load_annotations, save_annotations

CARD_NAME = "model.json"

_SINGLE, _WINDOWS, _BOXES, _VERSION = "eesvm-single-svm", "eesvm-calibration-windows", "eesvm-box-regression", 1
_F32, _F64, _I64 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)
_MAX_CARD = 1 << 28  # bytes
_CALIBRATOR_FILES = {JOINT: f"{JOINT}/calibration.json", COOCCURRENCE: f"{COOCCURRENCE}.json"}  # others: safetensors
_CERTIFICATE = "certificate.npz"
_BESIDES = (CARD_NAME, "MODEL.md", "run.json", SEARCH_NAME, ".eesvm-output")  # files of a model that have no hash in it
_KINDS: dict[str, type[PCA] | type[KernelMap] | type[MeanNormScaler]] = {
    "pca": PCA,
    "kernel_map": KernelMap,
    "scaler": MeanNormScaler,
}


@dataclass(frozen=True)
class LoadedModel:
    """A whole model, in memory or behind the files of a folder."""

    options: DetectorOptions
    classes: tuple[ClassModel, ...]
    inputs: Mapping[str, Any]  # what it was trained on: names, counts, hashes
    open_descriptor: Callable[[], Descriptor]


def save_model(folder: str | os.PathLike[str], model: LoadedModel, overwrite: bool = False) -> None:
    """Write a model folder, whole or not at all."""
    with atomic_folder(folder, overwrite) as root:
        write_model(root, model)


def replace_model(folder: str | os.PathLike[str], model: LoadedModel) -> None:
    """Put a model in the place of the one in a folder; an interruption leaves the one that is there whole."""
    stranger = _stranger(Path(folder), read_card(Path(folder))["files"])
    if stranger is not None:
        raise InputError(f"{folder} is not replaced: it holds {stranger}, which is no part of the model")
    with replaced_folder(folder) as root:
        write_model(root, model)


def _stranger(root: Path, names: Mapping[str, Any]) -> str | None:
    """The first file in a model folder that nobody of us has put there."""
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file() and name not in names and path.name not in _BESIDES and not name.startswith("checkpoints/"):
            return name
    return None


def write_model(root: Path, model: LoadedModel) -> None:
    """Write all files of a model into an empty folder."""
    descriptor = model.open_descriptor()
    files = write_descriptor(root, descriptor)
    for one in model.classes:
        if one.read_kept is not None:  # the score that is suggested needs the calibrator that detects
            one.fit_missing(model.options.calibration.calibrator, model.options)
        files += write_training(root, one, descriptor)
        files += write_regressor(root, one.class_name, one.regressor)
        if one.read_scores is not None:
            files += write_scores(root, one.class_name, one.read_scores())
        if one.read_kept is not None:
            files += write_kept_windows(root, one.class_name, one.read_kept())
        for name, calibrator in one.calibrators.items():
            files += write_calibrator(root, one.class_name, name, calibrator, one.read_certificate)
    finish_model(root, model, {name: file_digest(root / name) for name in files})


def finish_model(root: Path, model: LoadedModel, digests: Mapping[str, str]) -> None:
    """Write the card, which makes the folder a model."""
    descriptor = model.open_descriptor()
    folders = {one.class_name: f"classes/{class_folder(one.class_name)}" for one in model.classes}
    suggested = {one.class_name: suggest_score(one, model.options) for one in model.classes}
    content = card(model.options, model.classes, folders, descriptor, model.inputs, without_times(digests), suggested)
    write_card(root, content)


def without_times(digests: Mapping[str, str]) -> dict[str, str]:
    """Those of files that do not depend on the clock: the same model has the same ones, whenever it was trained."""
    return {name: value for name, value in digests.items() if Path(name).name != SEARCH_NAME}


def load_model(folder: str | os.PathLike[str]) -> LoadedModel:
    """The model in a folder; every file that is read is checked against the card."""
    root = Path(folder)
    content = read_card(root)
    reader = _Reader(root, content)
    transforms = reader.transforms()
    options = reader.options()
    dimension = reader.dimension(transforms)
    classes = tuple(reader.class_model(entry, dimension) for entry in reader.entries())
    names = [one.class_name for one in classes]
    if not names or len(set(names)) < len(names):
        reader.fail("classes", "must name at least one class, and none twice")
    changes = content["inputs"].get("changes", [])
    if not isinstance(changes, list) or not all(
        isinstance(c, dict) and isinstance(c.get("text"), str) for c in changes
    ):
        reader.fail("inputs.changes", "must be a list of objects with a text each")
    open_descriptor = partial(_open_descriptor, root / CARD_NAME, options, transforms, content["descriptor"])
    return LoadedModel(options, classes, content["inputs"], open_descriptor)


def read_card(root: Path) -> dict[str, Any]:
    """The content of `model.json`."""
    file = root / CARD_NAME
    if not root.is_dir():
        what = "it is not a folder" if root.exists() else "there is no such folder"
        raise InputError(f"{root} is not a model: {what}")
    try:
        if file.stat().st_size > _MAX_CARD:
            raise InputError(f"{file}: it is too large to be the card of a model")
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        unfinished = " yet: its training has not finished" if (root / "run.json").exists() else ""
        raise InputError(f"{root} is not a model{unfinished}: there is no {CARD_NAME} in it") from None
    except OSError as error:
        raise InputError(f"{file}: it cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{file}: it is not JSON, or it is damaged") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f'{file}: it is not the card of a model: there is no "format": "{FORMAT}"')
    document = Document(file)
    version = content.get("format_version")
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        rule = f"must be 1 to {FORMAT_VERSION}, which this eesvm {__version__} reads"
        document.fail("format_version", f"{rule}, got {version!r}")
    for name, kind in (("options", dict), ("classes", list), ("descriptor", dict), ("inputs", dict), ("files", dict)):
        if not isinstance(content.get(name), kind):
            document.fail(name, f"must be {'a list' if kind is list else 'an object'}")
    return content


def class_folder(class_name: str) -> str:
    """A name for a folder that every file system takes and that no other class has."""
    safe = re.sub(r"[^a-z0-9_-]", "_", class_name.lower())[:40]
    if safe == class_name:
        return safe
    return f"{safe}-{hashlib.blake2b(class_name.encode(), digest_size=4).hexdigest()}"


# Parts: each writes files below the root, and says which.


def write_descriptor(root: Path, descriptor: Descriptor) -> list[str]:
    """The fitted transforms behind a descriptor."""
    files = []
    for transform in _transforms_of(descriptor):
        files.append(_made(root, f"descriptor/{transform_name(transform)}.npz"))
        transform.save(root / files[-1])
    return files


def read_descriptor(root: Path, plain: Descriptor, names: Sequence[str]) -> Transformed:
    """The descriptor whose transforms are in files of these names."""
    return Transformed(plain, *(_KINDS[Path(name).stem].load(root / name) for name in names))


def write_training(root: Path, model: ClassModel, descriptor: Descriptor) -> list[str]:
    """Exemplars, the single SVM and annotations."""
    folder = f"classes/{class_folder(model.class_name)}"
    files = [_made(root, f"{folder}/{name}.safetensors") for name in ("exemplars", "single_svm", "annotations")]
    identities = [_identity(annotation) for annotation in model.annotations]
    save_exemplars(root / files[0], model.exemplars, identities, descriptor.parameters())
    single = {"weights": model.single.weights, "bias": np.array([model.single.bias], dtype=np.float32)}
    write_arrays(root / files[1], _SINGLE, _VERSION, single)
    save_annotations(root / files[2], model.annotations)
    return files


def read_training(root: Path, class_name: str) -> ClassModel:
    """What `write_training` wrote."""
    folder = root / "classes" / class_folder(class_name)
    exemplars = load_exemplars(folder / "exemplars.safetensors")
    arrays, _ = read_arrays(folder / "single_svm.safetensors", _SINGLE, _VERSION, {"weights": _F32, "bias": _F32})
    file = folder / "annotations.safetensors"
    annotations = load_annotations(file)
    n, d = exemplars.coef_.shape
    if len(annotations) != n:
        raise InputError(f"{file}: it must hold one annotation for each of {n} exemplars, got {len(annotations)}")
    if arrays["weights"].shape != (d,) or arrays["bias"].shape != (1,):
        shape = arrays["weights"].shape
        raise InputError(f"{folder / 'single_svm.safetensors'}: `weights` must have shape ({d},), got {shape}")
    single = SingleSVM(arrays["weights"], float(arrays["bias"][0]))
    return ClassModel(class_name, exemplars, annotations, single)


def write_regressor(root: Path, class_name: str, regressor: BoxRegressor | None) -> list[str]:
    """The box regression of a class, if it has one."""
    file = _made(root, _regressor_file(class_name))
    if regressor is None:
        (root / file).unlink(missing_ok=True)
        return []
    arrays: dict[str, np.ndarray] = {
        "weights": regressor.weights,
        "constant": regressor.constant,
        "n_windows": np.array([regressor.n_windows], dtype=np.int64),
        "left": np.array([regressor.left]),
    }
    write_arrays(root / file, _BOXES, _VERSION, arrays)
    return [file]


def read_regressor(root: Path, class_name: str, dimension: int) -> BoxRegressor:
    """What `write_regressor` wrote, for descriptors of this dimension."""
    file = root / _regressor_file(class_name)
    expected: dict[str, np.dtype[Any]] = {"weights": _F32, "constant": _F32, "n_windows": _I64, "left": _F64}
    arrays, _ = read_arrays(file, _BOXES, _VERSION, expected)
    check_shapes(file, arrays, {"weights": (dimension, 4), "constant": (4,), "n_windows": (1,), "left": (1,)})
    if not (np.isfinite(arrays["weights"]).all() and np.isfinite(arrays["constant"]).all()):
        raise InputError(f"{file}: `weights` and `constant` must be finite")
    n_windows, left = int(arrays["n_windows"][0]), float(arrays["left"][0])
    if n_windows < 1 or not 0 <= left < 1:
        raise InputError(f"{file}: `n_windows` must be >= 1 and `left` within 0 and 1, got {n_windows} and {left:g}")
    return BoxRegressor(arrays["weights"], arrays["constant"], n_windows, left)


def _regressor_file(class_name: str) -> str:
    return f"classes/{class_folder(class_name)}/boxes.safetensors"


def write_scores(root: Path, class_name: str, scores: CalibrationScores) -> list[str]:
    """What calibrators are fitted from."""
    folder = f"classes/{class_folder(class_name)}"
    files = [_made(root, f"{folder}/scores.npz"), _made(root, f"{folder}/windows.safetensors")]
    write_score_table(root / files[0], scores.table)
    arrays: dict[str, np.ndarray] = {
        "boxes": scores.boxes,
        "overlaps": scores.overlaps,
        "single": scores.single,
        "n_negatives": np.array([scores.n_negatives], dtype=np.int64),
    }
    write_arrays(root / files[1], _WINDOWS, _VERSION, arrays)
    judged = root / folder / JUDGED_NAME
    judged.unlink(missing_ok=True)
    if scores.judged is not None:
        write_judged(judged, scores.judged)
        files.append(f"{folder}/{JUDGED_NAME}")
    return files


def read_scores(root: Path, class_name: str) -> CalibrationScores:
    """What `write_scores` wrote."""
    folder = root / "classes" / class_folder(class_name)
    table = read_score_table(folder / "scores.npz")
    expected: dict[str, np.dtype[Any]] = {"boxes": _F64, "overlaps": _F64, "single": _F32, "n_negatives": _I64}
    file = folder / "windows.safetensors"
    arrays, _ = read_arrays(file, _WINDOWS, _VERSION, expected)
    n = table.n_rows
    shapes = {"boxes": (n, 4), "overlaps": (n,), "single": (n,), "n_negatives": (1,)}
    if any(arrays[name].shape != shape for name, shape in shapes.items()):
        raise InputError(f"{file}: it must hold one box and one score for each of {n} windows")
    n_negatives, kept = int(arrays["n_negatives"][0]), folder / JUDGED_NAME
    judged = read_judged(kept, table.n_exemplars) if kept.exists() else None
    return CalibrationScores(table, arrays["boxes"], arrays["overlaps"], arrays["single"], n_negatives, judged)


def write_kept_windows(root: Path, class_name: str, kept: KeptWindows | ChosenWindows) -> list[str]:
    """What the class can grow from."""
    file = _made(root, f"classes/{class_folder(class_name)}/{KEPT_NAME}")
    write_kept(root / file, kept)
    return [file]


def write_calibrator(
    root: Path,
    class_name: str,
    name: str,
    calibrator: ScoreCalibrator,
    read_certificate: Callable[[], Certificate] | None = None,
) -> list[str]:
    """One fitted calibrator, by the name it is kept under; with joint thresholds their proof, perhaps read for that."""
    folder = f"classes/{class_folder(class_name)}"
    shrunken, left_out = (getattr(calibrator, name, None) for name in ("shrunken_", "left_out_"))
    extra = _made(root, f"{folder}/{shrunken_name(name)}")
    (root / extra).unlink(missing_ok=True)
    if shrunken is not None and left_out is not None:
        write_shrunken(root / extra, shrunken, left_out)
        return [*_write_plain(root, folder, name, calibrator, read_certificate), extra]
    return _write_plain(root, folder, name, calibrator, read_certificate)


def _write_plain(
    root: Path,
    folder: str,
    name: str,
    calibrator: ScoreCalibrator,
    read_certificate: Callable[[], Certificate] | None,
) -> list[str]:
    if isinstance(calibrator, CooccurrenceCalibrator):
        file = _made(root, f"{folder}/{name}.json")
        save_calibration(root / file, calibrator)
        return [file]
    if not isinstance(calibrator, JointCalibrator):
        file = _made(root, f"{folder}/{name}.safetensors")
        save_calibrator(root / file, name, calibrator)
        return [file]
    files = [_made(root, f"{folder}/{JOINT}/calibration.json"), f"{folder}/{JOINT}/{SEARCH_NAME}"]
    save_calibration(root / files[0], calibrator, times_apart=True)
    certificate = calibrator.result_.certificate
    if certificate is None and read_certificate is not None:
        certificate = read_certificate()
    if certificate is not None:
        files.append(f"{folder}/{JOINT}/{_CERTIFICATE}")
        save_certificate(root / files[-1], certificate)
    return files


def certificate_reader(root: Path, names: Sequence[str]) -> Callable[[], Certificate] | None:
    """Reads the proof among the files that `write_calibrator` wrote; None where it wrote none."""
    found = [name for name in names if Path(name).name == _CERTIFICATE]
    return partial(load_certificate, root / found[0]) if found else None


def read_calibrator(root: Path, class_name: str, name: str, n_exemplars: int) -> ScoreCalibrator:
    """What `write_calibrator` wrote."""
    folder = root / "classes" / class_folder(class_name)
    calibrator: Any = _read_plain(folder, name, n_exemplars)
    extra = folder / shrunken_name(name)
    if extra.exists():
        calibrator.shrunken_, calibrator.left_out_ = read_shrunken(extra, n_exemplars)
    return calibrator


def _read_plain(folder: Path, name: str, n_exemplars: int) -> ScoreCalibrator:
    if name == COOCCURRENCE:
        file = folder / f"{name}.json"
        cooccurrence = load_cooccurrence(file)
        if len(cooccurrence.matrix_) != n_exemplars:
            raise InputError(f"{file}: it must hold a matrix of {n_exemplars} exemplars")
        return cooccurrence
    if name != JOINT:
        return load_calibrator(folder / f"{name}.safetensors", name, n_exemplars)
    file = folder / JOINT / "calibration.json"
    calibrator = load_calibration(file)
    if len(calibrator.thresholds_) != n_exemplars or not calibrator.sigmoid:
        raise InputError(f"{file}: it must hold thresholds and sigmoids of {n_exemplars} exemplars")
    return calibrator


class _Reader(Document):
    """Reads what the card names; a complaint names the file."""

    def __init__(self, root: Path, content: dict[str, Any]) -> None:
        super().__init__(root / CARD_NAME, content)
        self.root = root

    def check(self, name: str) -> Path:
        """The path of a file that the card lists, after its content has been compared with its hash."""
        digest = self.content["files"].get(name)
        if digest is None:
            self.fail("files", f"must list {name}")
        path = self.root / name
        try:
            found = file_digest(path)
        except FileNotFoundError:
            raise InputError(f"{path}: there is no such file, but {CARD_NAME} lists it") from None
        except OSError as error:
            raise InputError(f"{path}: it cannot be read ({error.strerror or error})") from None
        if found != digest:
            raise InputError(f"{path}: it is damaged or of another model: its content is not what {CARD_NAME} lists")
        return path

    def check_if_there(self, name: str) -> None:
        """The same for a file that a model need not have; one that the card lists, or that is there, must be right."""
        if name in self.content["files"] or (self.root / name).exists():
            self.check(name)

    def options(self) -> DetectorOptions:
        options = self.content["options"]
        if self.content["format_version"] == 1:
            options = _with_opencv_windows(options)
        with self.usable("options"):
            return DetectorOptions.make(config=_as_trained(options))

    def transforms(self) -> list[Transform]:
        names = self.content["descriptor"].get("transforms")
        if not isinstance(names, list) or not all(isinstance(n, str) and Path(n).stem in _KINDS for n in names):
            self.fail("descriptor.transforms", "must be a list of files called pca.npz, kernel_map.npz or scaler.npz")
        return [_KINDS[Path(name).stem].load(self.check(name)) for name in names]

    def dimension(self, transforms: Sequence[Transform]) -> int:
        """Of the descriptors, by the network's dimension and the transforms that follow it."""
        dimension = self.content["descriptor"].get("plain_dimension")
        if type(dimension) is not int or dimension < 1:
            self.fail("descriptor.plain_dimension", f"must be a whole number >= 1, got {dimension!r}")
        for transform in transforms:
            dimension = transform.output_dimension(dimension)
        return dimension

    def entries(self) -> list[dict[str, Any]]:
        for entry in self.content["classes"]:
            names = entry.get("calibrators") if isinstance(entry, dict) else None
            if not isinstance(names, list) or not isinstance(entry.get("name"), str):
                self.fail("classes", "must hold a name and a list of calibrators each")
            if not all(name in STORED_AS.values() for name in names):
                self.fail("classes", f"must hold calibrators among {', '.join(STORED_AS)}, got {names}")
        return self.content["classes"]

    def class_model(self, entry: dict[str, Any], dimension: int) -> ClassModel:
        name = entry["name"]
        folder = f"classes/{class_folder(name)}"
        for file in ("exemplars", "single_svm", "annotations"):
            self.check(f"{folder}/{file}.safetensors")
        model = read_training(self.root, name)
        if model.exemplars.coef_.shape[1] != dimension:
            raise InputError(
                f"{self.root / folder / 'exemplars.safetensors'}: the weights have {model.exemplars.coef_.shape[1]} "
                f"numbers, but the descriptor of the model has {dimension}"
            )
        if _regressor_file(name) in self.content["files"]:
            self.check(_regressor_file(name))
            model.regressor = read_regressor(self.root, name, dimension)
        for stored in entry["calibrators"]:
            self.check(f"{folder}/{_CALIBRATOR_FILES.get(stored, f'{stored}.safetensors')}")
            self.check_if_there(f"{folder}/{shrunken_name(stored)}")
            model.calibrators[stored] = read_calibrator(self.root, name, stored, model.n_exemplars)
        if f"{folder}/scores.npz" in self.content["files"]:
            model.read_scores = partial(self.scores, name, folder)
        if f"{folder}/{KEPT_NAME}" in self.content["files"]:
            model.read_kept = partial(self.kept, f"{folder}/{KEPT_NAME}", dimension)
        if f"{folder}/{JOINT}/{_CERTIFICATE}" in self.content["files"]:
            model.read_certificate = partial(self.certificate, f"{folder}/{JOINT}/{_CERTIFICATE}")
        model.facts = entry.get("facts", {})
        return model

    def scores(self, class_name: str, folder: str) -> CalibrationScores:
        for file in ("scores.npz", "windows.safetensors"):
            self.check(f"{folder}/{file}")
        self.check_if_there(f"{folder}/{JUDGED_NAME}")
        return read_scores(self.root, class_name)

    def kept(self, file: str, dimension: int) -> KeptWindows:
        return read_kept(self.check(file), dimension)

    def certificate(self, file: str) -> Certificate:
        return load_certificate(self.check(file))


def _as_trained(options: dict[str, Any]) -> dict[str, Any]:
    """Options that a model of before they existed does not state, as they were then."""
    before: dict[str, dict[str, Any]] = {
        "descriptor": {"kernel_map": None, "kernel_components": None},
        "training": {"single_loss": "hinge", "mirror": False},
        "calibration": {"shrink": None, "cross_fit": False},
    }
    given = {group: options.get(group, {}) for group in before}
    return options | {group: before[group] | own for group, own in given.items() if isinstance(own, dict)}


def _with_opencv_windows(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a card of version 1, whose selective search was OpenCV's: the model still asks for those windows."""
    windows = options.get("windows", {})
    if not isinstance(windows, dict) or windows.get("method", "selective_search") != "selective_search":
        return options
    return {**options, "windows": {"mode": "fast", **windows, "method": "opencv"}}


def _open_descriptor(
    file: Path, options: DetectorOptions, transforms: Sequence[Transform], expected: Mapping[str, Any]
) -> Transformed:
    descriptor = Transformed(plain_descriptor(options.descriptor), *transforms)
    if json.loads(json.dumps(descriptor.parameters())) != expected.get("parameters"):
        raise InputError(
            f"{file}: the model was trained with another descriptor than {options.descriptor.name} "
            f"{options.descriptor.backbone} is here: a different network, or another version of it"
        )
    return descriptor


def _transforms_of(descriptor: Descriptor) -> Sequence[Transform]:
    return descriptor.transforms if isinstance(descriptor, Transformed) else ()


def _identity(annotation: ExemplarAnnotation) -> ExemplarIdentity:
    x1, y1, x2, y2 = (float(value) for value in annotation.box)
    metadata = {"mirrored": True} if annotation.is_mirrored else {}
    return ExemplarIdentity(annotation.image_id, (x1, y1, x2, y2), annotation.class_name, annotation.index, metadata)


def _made(root: Path, name: str) -> str:
    """`name`, once the folder it lies in is there."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    return name
