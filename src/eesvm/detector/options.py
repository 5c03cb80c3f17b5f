"""Options of the detector, checked, and the presets: what training and detection are told.

In: a preset, a YAML file or a mapping, and single changes, of which later ones win. Out: `DetectorOptions`, checked,
and as plain values again. Every option has a dotted name, `training.C`, which is where it stands in a YAML file:

    training:
      C: 1.0e-4

Not here: doing anything with them, and options that say how to run rather than what comes out (`n_jobs`
excepted, which changes no result).
"""

from __future__ import annotations

import difflib
import functools
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from eesvm._support.extras import optional_module
from eesvm._support.validation import InputError, check_choice, check_number
from eesvm.calibration.choices import CRITERIA, SEARCH_METHODS
from eesvm.exemplars.choices import LOSSES
from eesvm.windows.settings import WindowSettings

CALIBRATORS = ("none", "sigmoid", "isotonic", "affine", "joint", "joint-sigmoid", "cooccurrence", "single-svm")
COVERAGES = ("own-image", "across-images")
TRAINERS = ("svm", "lda")
PRIORS = (None, "class")
AUTO = "auto"
DESCRIPTORS = ("cnn", "hog")

# The one place in which presets differ. "paper": the settings of section 5.2. The paper does not say how long its
# descriptors are, nor what an exemplar weighs against its negatives: with the weight of 50 of the code it builds on,
# C = 1e-4 tells exemplars of one class apart where descriptors have a length of about 200. The PCA is ours: descriptors
# of the stock network are never negative, and unless they are centred exemplars find next to nothing. "default":
# descriptors whose products say how alike two windows are, exemplars that bend the direction of their class, thresholds
# that have to hold for images other than the exemplar's own, scales that are an exemplar's own only as far as images
# left out support it, a score that several exemplars agree on, and boxes that are moved towards the object.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        "descriptor.n_components": 512,
        "descriptor.kernel_map": 1024,
        "descriptor.kernel_components": 512,
        "descriptor.mean_norm": 20.0,
        "training.loss": "squared_hinge",
        "training.C": 1e-4,
        "training.positive_weight": 50.0,
        "training.prior": "class",
        "training.single_loss": "squared_hinge",
        "training.mirror": False,
        "calibration.calibrator": "joint-sigmoid",
        "calibration.coverage": "across-images",
        "calibration.min_recall": 1.0,
        "calibration.shrink": "auto",
        "detection.pooling": 5,
        "detection.box_regression": True,
    },
    "paper": {
        "descriptor.n_components": 256,
        "descriptor.kernel_map": None,
        "descriptor.kernel_components": None,
        "descriptor.mean_norm": 200.0,
        "training.loss": "hinge",
        "training.C": 1e-4,
        "training.positive_weight": 50.0,
        "training.prior": None,
        "training.single_loss": "hinge",
        "training.mirror": False,
        "calibration.calibrator": "joint-sigmoid",
        "calibration.coverage": "own-image",
        "calibration.min_recall": 1.0,
        "calibration.shrink": None,
        "detection.pooling": 1,
        "detection.box_regression": False,
    },
}
DEFAULT_PRESET = "default"

_MAX_BYTES = 1 << 20  # of a YAML file of options


def _preset(name: str) -> Any:
    return PRESETS[DEFAULT_PRESET][name]


@dataclass(frozen=True)
class WindowOptions(WindowSettings):
    """Where windows come from; see `windows.propose`."""

    group: ClassVar[str] = "windows."


@dataclass(frozen=True)
class DescriptorOptions:
    """How windows are described; see `descriptors.make_descriptor`."""

    name: str = "cnn"
    mode: str | None = None  # None: "pooled" for cnn, "warped" for hog
    backbone: str = "lite0"
    layer: str | None = None
    size: int | None = None  # of the pooled picture; None: 512
    n_components: int | None = _preset("descriptor.n_components")  # of a PCA; None: no PCA
    kernel_map: int | None = _preset("descriptor.kernel_map")  # landmarks of a kernel map; None: no map
    kernel_components: int | None = _preset("descriptor.kernel_components")  # numbers of its rows; None: all
    mean_norm: float | None = _preset(
        "descriptor.mean_norm"
    )  # length that descriptors are scaled to; None: as they are

    def __post_init__(self) -> None:
        check_choice(self.name, "descriptor.name", DESCRIPTORS)
        for name in ("mode", "layer", "backbone"):
            value = getattr(self, name)
            if not isinstance(value, str) and (value is not None or name == "backbone"):
                raise InputError(f"`descriptor.{name}` must be a text, got {value!r}")
        _check_optional(self.size, "descriptor.size", minimum=32, maximum=4096, integer=True)
        _check_optional(self.n_components, "descriptor.n_components", minimum=1, integer=True)
        _check_optional(self.kernel_map, "descriptor.kernel_map", minimum=1, maximum=8192, integer=True)
        _check_optional(self.kernel_components, "descriptor.kernel_components", minimum=1, maximum=8192, integer=True)
        _check_optional(self.mean_norm, "descriptor.mean_norm", above=0)

    @property
    def is_fitted(self) -> bool:
        """Whether anything that is fitted to images follows the plain descriptor."""
        return any(value is not None for value in (self.n_components, self.kernel_map, self.mean_norm))


@dataclass(frozen=True)
class TrainingOptions:
    """How exemplars, and the single SVM beside them, are trained."""

    trainer: str = "svm"
    loss: str = _preset("training.loss")
    C: float = _preset("training.C")
    positive_weight: float = _preset("training.positive_weight")
    prior: str | None = _preset("training.prior")  # "class": exemplars bend the single SVM of their class
    max_overlap: float = 0.2  # IoU up to which a window beside an object of the class is a negative
    single_max_overlap: float = 0.3  # the same for the single SVM, as in R-CNN
    single_loss: str = _preset("training.single_loss")  # of the single SVM, which is also the prior; R-CNN's: the hinge
    max_images: int | None = 2000  # random images that negatives come from; None: all
    own_image: bool = True  # whether an exemplar's own image gives negatives, too
    mirror: bool = _preset("training.mirror")  # whether the mirror image of each object is an exemplar, too

    def __post_init__(self) -> None:
        check_choice(self.trainer, "training.trainer", TRAINERS)
        check_choice(self.loss, "training.loss", LOSSES)
        check_choice(self.single_loss, "training.single_loss", LOSSES)
        check_number(self.C, "training.C", above=0)
        check_number(self.positive_weight, "training.positive_weight", above=0)
        check_choice(self.prior, "training.prior", PRIORS)
        check_number(self.max_overlap, "training.max_overlap", minimum=0, maximum=1)
        check_number(self.single_max_overlap, "training.single_max_overlap", minimum=0, maximum=1)
        _check_optional(self.max_images, "training.max_images", minimum=1, integer=True)
        check_choice(self.own_image, "training.own_image", (True, False))
        check_choice(self.mirror, "training.mirror", (True, False))
        if self.prior is not None and self.trainer == "lda":
            raise InputError("`training.prior` must be none with the trainer lda, which has no prior")


@dataclass(frozen=True)
class CalibrationOptions:
    """What makes the scores of exemplars comparable."""

    calibrator: str = _preset("calibration.calibrator")
    coverage: str = _preset("calibration.coverage")  # "across-images": exemplars do not cover their own image
    min_recall: float = _preset("calibration.min_recall")
    method: str = "exact"
    node_limit: int | None = 500  # boxes in the search of a class: unlike a time limit it ends the same way every time
    time_limit: float | None = 120.0  # seconds, for classes so large that even so many boxes take too long
    gap: float = 0.01
    criterion: str = "least_squares"  # of sigmoids
    # Share of the scales of exemplars that is their own, 0 to 1; "auto": as images left out support it, class by class;
    # None: all of it, and sigmoids of each exemplar, as in the paper.
    shrink: str | float | None = _preset("calibration.shrink")
    # Whether windows are scored by a class prior that has not seen their image; "auto": where `min_recall` is below 1.
    cross_fit: str | bool = AUTO
    positive_overlap: float = 0.5  # IoU from which a window is a positive
    negative_overlap: float = 0.2  # and up to which it is a negative; between them it is neither
    max_negatives: int | None = 50_000  # drawn at random from all images; None: all

    def __post_init__(self) -> None:
        check_choice(self.calibrator, "calibration.calibrator", CALIBRATORS)
        check_choice(self.coverage, "calibration.coverage", COVERAGES)
        check_number(self.min_recall, "calibration.min_recall", above=0, maximum=1)
        check_choice(self.method, "calibration.method", SEARCH_METHODS)
        _check_optional(self.time_limit, "calibration.time_limit", minimum=0)
        _check_optional(self.node_limit, "calibration.node_limit", minimum=1, integer=True)
        check_number(self.gap, "calibration.gap", minimum=0)
        check_choice(self.criterion, "calibration.criterion", CRITERIA)
        check_choice(self.cross_fit, "calibration.cross_fit", (AUTO, True, False))
        if isinstance(self.shrink, str):
            check_choice(self.shrink, "calibration.shrink", (AUTO,))
        _check_optional(None if self.shrink == AUTO else self.shrink, "calibration.shrink", minimum=0, maximum=1)
        check_number(self.positive_overlap, "calibration.positive_overlap", above=0, maximum=1)
        check_number(self.negative_overlap, "calibration.negative_overlap", minimum=0, maximum=1)
        if self.negative_overlap >= self.positive_overlap:
            raise InputError(
                "`calibration.negative_overlap` must be < `calibration.positive_overlap`, "
                f"got {self.negative_overlap:g} and {self.positive_overlap:g}"
            )
        _check_optional(self.max_negatives, "calibration.max_negatives", minimum=1, integer=True)

    @property
    def is_cross_fitted(self) -> bool:
        """Whether `cross_fit` applies: thresholds of a floor below 100 % are cut through what the prior has learned."""
        return self.min_recall < 1 if self.cross_fit == AUTO else bool(self.cross_fit)


@dataclass(frozen=True)
class DetectionOptions:
    """What becomes of the calibrated scores of an image's windows."""

    pooling: int = _preset("detection.pooling")  # the mean of the k best calibrated scores; 1 is their maximum
    box_regression: bool = _preset(
        "detection.box_regression"
    )  # whether a model learns to move windows towards their objects, and does
    nms: float = 0.3  # of two windows of a class that overlap by more, the lower one goes
    overlap: str = "iou"
    max_detections: int | None = 100  # per image
    min_score: float | None = None

    def __post_init__(self) -> None:
        check_number(self.pooling, "detection.pooling", minimum=1, integer=True)
        check_choice(self.box_regression, "detection.box_regression", (True, False))
        check_number(self.nms, "detection.nms", minimum=0, maximum=1)
        from eesvm.boxes import OVERLAPS  # here, because a parser that names options should not load kernels

        check_choice(self.overlap, "detection.overlap", OVERLAPS)
        _check_optional(self.max_detections, "detection.max_detections", minimum=1, integer=True)
        _check_optional(self.min_score, "detection.min_score")


@dataclass(frozen=True)
class DetectorOptions:
    """All options of a detector; `DetectorOptions()` is the default preset."""

    windows: WindowOptions = field(default_factory=WindowOptions)
    descriptor: DescriptorOptions = field(default_factory=DescriptorOptions)
    training: TrainingOptions = field(default_factory=TrainingOptions)
    calibration: CalibrationOptions = field(default_factory=CalibrationOptions)
    detection: DetectionOptions = field(default_factory=DetectionOptions)
    random_state: int = 0
    n_jobs: int | None = None  # processes and threads, None for one per core; changes no result

    def __post_init__(self) -> None:
        check_number(self.random_state, "random_state", minimum=0, integer=True)
        _check_optional(self.n_jobs, "n_jobs", minimum=1, integer=True)

    @classmethod
    def make(
        cls,
        preset: str | None = None,
        config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> Self:
        """A preset, changed by a file or mapping, changed by dotted names.

        Parameters
        ----------
        preset : "default" or "paper". Default: the one that `config` names as `preset`, else "default".
        config : path of a YAML file, or a nested mapping like it.
        changes : values by dotted names. They may be texts, which become what their option is:
            {"training.C": "1e-4", "training.prior": "none"}.
        """
        content = dict(config) if isinstance(config, Mapping) else {} if config is None else read_yaml(config)
        named = content.pop("preset", DEFAULT_PRESET)
        preset = named if preset is None else preset
        check_choice(preset, "preset", tuple(PRESETS))
        where = "" if config is None or isinstance(config, Mapping) else f"{os.fspath(config)}: "
        try:
            options = cls().changed(PRESETS[preset]).changed(dotted(content))
        except InputError as error:
            raise InputError(f"{where}{error}") from None
        return options.changed(changes or {})

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """A copy with other values for options given by their dotted names."""
        known = self.flat()
        groups: dict[str, dict[str, Any]] = {}
        for name, value in changes.items():
            if name not in known:
                raise InputError(f"there is no option `{name}`{_nearest(name, known)}")
            group, _, option = name.rpartition(".")
            owner = getattr(self, group) if group else self
            groups.setdefault(group, {})[option] = _converted(value, _kind(owner, option))
        own = groups.pop("", {})
        parts = {group: replace(getattr(self, group), **values) for group, values in groups.items()}
        return replace(self, **parts, **own)

    def flat(self) -> dict[str, Any]:
        """Every option by its dotted name."""
        return dotted(asdict(self))

    def as_dict(self) -> dict[str, Any]:
        """Nested plain values, as a YAML or JSON file holds them."""
        return asdict(self)


def read_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The mapping in a YAML file; nothing in it is executed."""
    file = Path(path)
    yaml = optional_module("yaml")
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path}: it is too large to be a file of options ({file.stat().st_size:,} bytes)")
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: it cannot be read ({error.strerror or error})") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 1}"
        raise InputError(f"{path}: it is not YAML{line}") from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise InputError(f"{path}: it must hold options by name, such as `training:` and below it `C: 1.0e-4`")
    return content


def dotted(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested options by their dotted names.

    Parameters
    ----------
    content : mappings of mappings.
    prefix : before every name.
    """
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            flat.update(dotted(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat


@functools.cache  # they take milliseconds, for every option that is changed
def _type_hints(owner: Any) -> dict[str, Any]:
    return typing.get_type_hints(owner)


def _kind(owner: Any, option: str) -> tuple[type, ...]:
    """The types that an option of a dataclass may have."""
    hint = _type_hints(owner.__class__)[option]
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if any(is_dataclass(kind) for kind in kinds):
        names = ", ".join(f.name for f in fields(kinds[0]))
        raise InputError(f"`{option}` must hold options by name: {names}")
    return kinds


def _converted(value: Any, kinds: tuple[type, ...]) -> Any:
    """A text as the number, truth value or nothing that its option wants; YAML, too, reads 1e-4 as a text."""
    if isinstance(value, int) and not isinstance(value, bool) and float in kinds and int not in kinds:
        return float(value)
    if not isinstance(value, str):
        return value
    word = value.strip().lower()
    if types.NoneType in kinds and word in ("none", "null", ""):
        return None
    if bool in kinds and word in ("true", "false", "yes", "no"):
        return word in ("true", "yes")
    for kind in (int, float):
        if kind in kinds:
            try:
                return kind(word)
            except ValueError:
                continue
    return value


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if not close:
        ends = [option for option in known if option.rpartition(".")[2] == name.rpartition(".")[2]]
        close = ends[:1]
    return f": did you mean `{close[0]}`?" if close else f": there are {', '.join(known)}"


def _check_optional(value: Any, name: str, **rules: Any) -> None:
    if value is not None:
        check_number(value, name, **rules)
