"""Training, before its first stage: what a run is made from, and whether it may begin.

In: a dataset, options, and the images of other roles where they are known. Out: the images by content, the descriptor
before it is fitted, the keys under which parts are filed, and who looked at which images. Test images among the others
and a folder that holds a model of other images are refused here, before anything is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eesvm._support.run_folder import RunFolder
from eesvm._support.validation import InputError, check_image_name
from eesvm.datasets.fingerprint import fingerprint
from eesvm.datasets.roles import PictureCodes, Roles
from eesvm.descriptors.backbones import tuned_images, untuned
from eesvm.detector.keys import TrainingKeys
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_descriptor import plain_descriptor
from eesvm.detector.training_table import StageProgress
from eesvm.structures import Dataset


def check_datasets(dataset: Dataset, network: Dataset | None, test: Dataset | None) -> None:
    """Refuse what is no dataset, and images whose names no file can have: all of them are to be written down."""
    for given, role in ((dataset, "dataset"), (network, "network"), (test, "test")):
        if not isinstance(given, Dataset) and (given is not None or role == "dataset"):
            raise InputError(f"`{role}` must be a Dataset, got {type(given).__name__}")
    for record in dataset:
        check_image_name(record.image_id)


class TrainingInputs:
    """What a run is made from, found by reading every image once.

    Attributes
    ----------
    fingerprint : hashes of images and annotations.
    plain : the descriptor, before scaling and PCA are fitted.
    keys : under which the parts of the run are filed.
    roles : what `Roles.summary` says; None where no other role is known.
    """

    def __init__(
        self,
        dataset: Dataset,
        options: DetectorOptions,
        *,
        network: Dataset | None,
        test: Dataset | None,
        progress: StageProgress | None,
    ) -> None:
        self._dataset, self._progress = dataset, progress
        self.fingerprint = fingerprint(dataset, self._counter("reading images"))
        self.plain = plain_descriptor(options.descriptor)
        self.keys = TrainingKeys(options, self.fingerprint, self.plain.parameters())
        self.roles = self._checked_roles(options, network, test)

    def _checked_roles(
        self, options: DetectorOptions, network: Dataset | None, test: Dataset | None
    ) -> dict[str, Any] | None:
        """Refuse test images among the others; what is known of who looked at which images."""
        tuned_on = None
        if network is not None:
            tuned_on = PictureCodes.of(network, network.name, self._counter("images of the network"))
        elif options.descriptor.name == "cnn":
            tuned_on = tuned_images(options.descriptor.backbone)
        if tuned_on is None and test is None:
            return None
        judging = None if test is None else PictureCodes.of(test, test.name, self._counter("test images"))
        own = PictureCodes.of(self._dataset, self._dataset.name, self._counter("recognising images"))
        roles = Roles(own, tuned_on, judging, untuned(options.descriptor.name, options.descriptor.backbone))
        roles.check()
        return roles.summary()

    def check_folder(self, folder: RunFolder) -> None:
        """Refuse a folder whose model is of other images altogether: training there would replace it."""
        before = folder.inputs.get("images")
        if isinstance(before, dict) and before and not set(before.values()) & set(self.fingerprint.images.values()):
            raise InputError(
                f"{folder.root} holds a model of other images ({folder.inputs.get('name')}), which training on "
                f"{self._dataset.name} would replace: name another folder, or remove it"
            )

    def noted(self) -> dict[str, Any]:
        """For `run.json`: what the run is made from, image by image."""
        return self.fingerprint.summary() | {"images": self.fingerprint.images}

    def summary(self, n_images: int) -> dict[str, Any]:
        """For the model: what it is made from, with the number of images that were used."""
        roles = {} if self.roles is None else {"roles": self.roles}
        return self.fingerprint.summary() | {"n_images": n_images} | roles

    def _counter(self, stage: str) -> Callable[[int, int], object] | None:
        progress = self._progress
        return None if progress is None else lambda done, total: progress(stage, done, total)
