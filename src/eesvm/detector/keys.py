"""Keys of the parts of a training: a hash of everything that each of them depends on.

In: options, the hashes of a dataset, and the parameters of the plain descriptor. Out: for every part a name that is the
same exactly when the same inputs and options would make the same part. They are known before anything is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from eesvm._support.digests import digest
from eesvm.datasets.fingerprint import Fingerprint
from eesvm.detector.class_calibration import JOINT
from eesvm.detector.options import DetectorOptions

_VERSION = 2  # part of every key: to be raised when the same inputs train another model


@dataclass(frozen=True, eq=False)
class TrainingKeys:
    """The keys of one run."""

    options: DetectorOptions
    fingerprint: Fingerprint
    plain: Mapping[str, Any]  # parameters of the descriptor before scaling and PCA

    @cache  # noqa: B019  there is one object a run
    def descriptor(self) -> str:
        """Scaling and PCA: images, windows and the network, but no annotations."""
        wanted = {name: vars(self.options.descriptor)[name] for name in ("n_components", "mean_norm")}
        windows, seed = vars(self.options.windows), self.options.random_state
        return digest([_VERSION, self.fingerprint.images_digest(), windows, dict(self.plain), wanted, seed])

    def training(self, class_name: str) -> str:
        """Exemplars: all annotations, as the ground truth of every class is among the windows."""
        return digest([self.descriptor(), self.fingerprint.annotations, class_name, vars(self.options.training)])

    def boxes(self, class_name: str) -> str:
        """The box regression: where the objects of the class are."""
        return digest([self.descriptor(), self.fingerprint.annotations, class_name, "box regression"])

    def scores(self, class_name: str) -> str:
        """The table of scores: which windows are in it."""
        wanted = ("positive_overlap", "negative_overlap", "max_negatives")
        return digest([self.training(class_name), {name: vars(self.options.calibration)[name] for name in wanted}])

    def calibration(self, class_name: str, stored: str) -> str:
        """A calibrator: what it reads of the options."""
        options = {name: value for name, value in vars(self.options.calibration).items() if name != "calibrator"}
        if stored != JOINT:
            options = {"criterion": options["criterion"]} if stored == "sigmoid" else {}
        return digest([self.scores(class_name), stored, options])
