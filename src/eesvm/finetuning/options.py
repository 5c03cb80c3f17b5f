"""Options of fine-tuning: R-CNN's recipe, and where this one departs from it.

In: a preset and single changes. Out: frozen, checked `FinetuneOptions`, and as plain values again. The batches are
R-CNN's: 32 windows with IoU >= 0.5 with an object, which have its class, and 96 windows of background. What R-CNN does
not have: the learning rate falls along a cosine, the statistics of batch normalisation stay those of ImageNet, and
held-out images decide how long it takes.
Not here: torch, and options of how to run (device, threads), which are arguments of `finetune`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from eesvm._support.validation import InputError, check_choice, check_number
from eesvm.detector.options import WindowOptions

NETWORKS = ("lite0", "lite1", "lite2")
BATCH_NORMS = ("frozen", "adapted")
PAPER_UNITS = 4096  # of the layer that the paper's descriptors come from

# The one place in which presets differ. "small": on two cores the 363 photographs of a set of playing cards take less
# than half an hour.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "small": {"input_size": 128, "epochs": 6, "batches_per_epoch": 80},
}
DEFAULT_PRESET = "default"


@dataclass(frozen=True)
class FinetuneOptions:
    """What is trained on what, and for how long."""

    network: str = "lite0"  # whose ImageNet weights it starts from; a module of the caller's takes its place
    stages: int | None = None  # train only this many last stages of the network; None: all
    hidden: int | None = None  # units of a layer before the classes, which becomes the descriptor; the paper's: 4096
    input_size: int | None = None  # side of a crop; None: what the network was trained with
    windows: WindowOptions = field(default_factory=WindowOptions)
    positive_overlap: float = 0.5  # IoU from which a window has the class of the object; the others are background
    positives: int = 32  # of a batch
    backgrounds: int = 96  # of a batch
    epochs: int = 12  # at most
    batches_per_epoch: int | None = None  # None: as many as show every positive once, but not more than 200
    patience: int = 4  # epochs without a better held-out loss after which it stops
    learning_rate: float = 0.01  # of the network
    score_factor: float = 5.0  # times that for the scores of the classes, which start from nothing
    max_gradient: float = 2.0  # length that a longer gradient is cut to: one bad batch must not undo what was learned
    momentum: float = 0.9
    weight_decay: float = 5e-4
    dropout: float = 0.2
    batch_norm: str = "frozen"  # whether normalisation keeps the statistics of ImageNet or follows the windows
    flip: bool = True  # mirror half of the windows
    jitter: float = 0.1  # move each side of a window by up to this share of the window
    colour: float = 0.2  # change brightness, contrast and saturation by up to this share
    held_out: float = 0.2  # share of the images that decide when to stop and are not trained on
    held_out_windows: int = 2048  # of them that are looked at after each epoch, in the proportion of a batch
    min_objects: int = 3  # that a class must have
    random_state: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.network, str) or not self.network:
            raise InputError(f"`network` must be a name, got {self.network!r}")
        for name, rules in _NUMBERS.items():
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                check_number(value, name, **rules)
        check_choice(self.batch_norm, "batch_norm", BATCH_NORMS)
        check_choice(self.flip, "flip", (True, False))

    @classmethod
    def make(cls, preset: str = DEFAULT_PRESET, changes: Mapping[str, Any] | None = None) -> Self:
        """A preset with changes.

        Parameters
        ----------
        preset : "default" or "small".
        changes : values by name; options of windows have dotted names, `windows.max_windows`.
        """
        check_choice(preset, "preset", tuple(PRESETS))
        return cls().changed(PRESETS[preset]).changed(changes or {})

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """A copy with other values."""
        known = {f.name for f in fields(self)} - {"windows"} | {f"windows.{f.name}" for f in fields(WindowOptions)}
        for name in changes:
            if name not in known:
                raise InputError(f"there is no option `{name}` of fine-tuning: there are {', '.join(sorted(known))}")
        own = {name: value for name, value in changes.items() if "." not in name}
        of_windows = {name.partition(".")[2]: value for name, value in changes.items() if "." in name}
        return replace(self, **own, windows=replace(self.windows, **of_windows))

    @property
    def batch_size(self) -> int:
        """Windows of a batch, of objects and of background."""
        return self.positives + self.backgrounds

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as a JSON file holds them."""
        return asdict(self)


_OPTIONAL = ("stages", "hidden", "input_size", "batches_per_epoch")
_NUMBERS: dict[str, dict[str, Any]] = {
    "stages": {"minimum": 0, "integer": True},
    "hidden": {"minimum": 1, "maximum": 65536, "integer": True},
    "input_size": {"minimum": 64, "maximum": 1024, "integer": True},
    "positive_overlap": {"above": 0, "maximum": 1},
    "positives": {"minimum": 1, "integer": True},
    "backgrounds": {"minimum": 1, "integer": True},
    "epochs": {"minimum": 1, "integer": True},
    "batches_per_epoch": {"minimum": 1, "integer": True},
    "patience": {"minimum": 1, "integer": True},
    "learning_rate": {"above": 0},
    "score_factor": {"above": 0},
    "max_gradient": {"above": 0},
    "momentum": {"minimum": 0, "maximum": 0.999},
    "weight_decay": {"minimum": 0},
    "dropout": {"minimum": 0, "maximum": 0.95},
    "jitter": {"minimum": 0, "maximum": 0.5},
    "colour": {"minimum": 0, "maximum": 0.9},
    "held_out": {"above": 0, "maximum": 0.9},
    "held_out_windows": {"minimum": 4, "integer": True},
    "min_objects": {"minimum": 1, "integer": True},
    "random_state": {"minimum": 0, "integer": True},
}
