"""Names and keys of the parts of a training; a key is a hash of everything that a part depends on.

In: options, the hashes of a dataset, and the parameters of the plain descriptor. Out: the name of each part and a key,
which is the same exactly when the same inputs and options would make the same part. They are known before anything is
computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from eesvm._support.digests import digest
from eesvm._support.parts import PartKey
from eesvm.datasets.fingerprint import Fingerprint
from eesvm.detector.class_calibration import JOINT, SHRINKABLE
from eesvm.detector.files import class_folder
from eesvm.detector.options import DetectorOptions

_VERSION = 4  # part of every key: to be raised when the same inputs train another model


@dataclass(frozen=True, eq=False)
class TrainingKeys:
    """The keys of one run."""

    options: DetectorOptions
    fingerprint: Fingerprint
    plain: Mapping[str, Any]  # parameters of the descriptor before scaling and PCA

    @cache  # noqa: B019  there is one object a run
    def descriptor(self) -> PartKey:
        """Scaling and PCA: images, windows and the network, but no annotations."""
        wanted = {name: vars(self.options.descriptor)[name] for name in ("n_components", "mean_norm")}
        if self.options.descriptor.kernel_map is not None:  # without one, as before there was such an option
            wanted["kernel_map"] = self.options.descriptor.kernel_map
            if self.options.descriptor.kernel_components is not None:
                wanted["kernel_components"] = self.options.descriptor.kernel_components
        windows, seed = vars(self.options.windows), self.options.random_state
        key = digest([_VERSION, self.fingerprint.images_digest(), windows, dict(self.plain), wanted, seed])
        return PartKey("descriptor", key)

    def training(self, class_name: str) -> PartKey:
        """Exemplars: all annotations, as the ground truth of every class is among the windows."""
        found, options = self.fingerprint.annotations, dict(vars(self.options.training))
        if not options["mirror"]:  # as before there was such an option
            del options["mirror"]
        key = digest([self.descriptor().key, found, class_name, options])
        return _of_class(class_name, "training", key)

    def boxes(self, class_name: str) -> PartKey:
        """The box regression: where the objects of the class are."""
        key = digest([self.descriptor().key, self.fingerprint.annotations, class_name, "box regression"])
        return _of_class(class_name, "boxes", key)

    def scores(self, class_name: str) -> PartKey:
        """The table of scores: which windows are in it."""
        wanted = ("positive_overlap", "negative_overlap", "max_negatives")
        options = {name: vars(self.options.calibration)[name] for name in wanted}
        if self.options.calibration.shrink is not None:
            options["judged"] = True
        if self.options.calibration.is_cross_fitted and self.options.training.prior is not None:
            options["cross_fit"] = True
        return _of_class(class_name, "scores", digest([self.training(class_name).key, options]))

    def kept(self, class_name: str) -> PartKey:
        """Windows that the class can grow from: those of the table, and others of the same images."""
        return _of_class(class_name, "kept windows", digest([self.scores(class_name).key, "kept windows"]))

    def calibration(self, class_name: str, stored: str) -> PartKey:
        """A calibrator: what it reads of the options."""
        options = {name: value for name, value in vars(self.options.calibration).items() if name != "calibrator"}
        shrink = options.pop("shrink")
        del options["cross_fit"]  # it is in the scores
        if stored != JOINT:
            options = {"criterion": options["criterion"]} if stored == "sigmoid" else {}
        if shrink is not None and stored in SHRINKABLE:
            options["shrink"] = [shrink, self.options.detection.pooling]
        return _of_class(class_name, stored, digest([self.scores(class_name).key, stored, options]))

    def of_class(self, class_name: str, calibrators: Iterable[str]) -> list[PartKey]:
        """All parts of a class, in the order in which they are made."""
        boxes = [self.boxes(class_name)] if self.options.detection.box_regression else []
        calibrations = [self.calibration(class_name, stored) for stored in calibrators]
        return [self.training(class_name), *boxes, self.scores(class_name), self.kept(class_name), *calibrations]


def _of_class(class_name: str, kind: str, key: str) -> PartKey:
    return PartKey(f"classes/{class_folder(class_name)}: {kind}", key)
