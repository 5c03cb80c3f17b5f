"""Training, before its first stage: what a run is made from, and whether it may begin.

In: a dataset, options, and the images of other roles where they are known. Out: the images by content, the descriptor
before it is fitted, the keys under which parts are filed, and who looked at which images. Test images among the others
and a folder with a model that this run would replace by another are refused here, before anything is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from eesvm._support.amounts import enumeration
from eesvm._support.run_folder import RunFolder
from eesvm._support.validation import InputError, check_image_name
from eesvm.datasets.fingerprint import fingerprint
from eesvm.datasets.roles import PictureCodes, Roles
from eesvm.descriptors.backbones import tuned_images, untuned
from eesvm.detector.class_calibration import STORED_AS
from eesvm.detector.files import CARD_NAME, class_folder, read_card
from eesvm.detector.keys import TrainingKeys
from eesvm.detector.options import DetectorOptions, dotted
from eesvm.detector.training_descriptor import plain_descriptor
from eesvm.detector.training_table import StageProgress
from eesvm.structures import Dataset

_WAY_OUT = "choose another folder or allow replacing it (--overwrite)"


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

    def check_folder(self, folder: RunFolder, classes: Iterable[str]) -> None:
        """Refuse a folder with a model of other images, or of classes that this run leaves out.

        The same images with other annotations or options are no reason: what depends on these is made anew.
        """
        what = "a model" if (folder.root / CARD_NAME).exists() else "an unfinished training"
        before, now = _images(folder), self.fingerprint.images
        if before and set(before.values()) != set(now.values()):
            n_shared = len([one for one in before.values() if one in set(now.values())])
            shared = f": {n_shared:,} of its {len(before):,} images are among these {len(now):,}" if n_shared else ""
            raise InputError(
                f"{folder.root} holds {what} of other images ({folder.inputs.get('name')}{shared}), which training on "
                f"{self._dataset.name} would replace: {_WAY_OUT}"
            )
        lost = _lost_classes(folder, classes)
        if lost:
            raise InputError(
                f"{folder.root} holds {what} with the class{'es' * (len(lost) > 1)} {enumeration(lost)}, which this "
                f"training leaves out and would remove: {_WAY_OUT}"
            )

    def changes(self, folder: RunFolder, options: DetectorOptions, parts: Iterable[str]) -> list[str]:
        """What is other than in the finished model of a folder; nothing where there is none, or nothing is."""
        if not (folder.root / CARD_NAME).exists():
            return []
        found = []
        before, old = _finished(folder)
        if self._is_of_other_images(folder, before):
            found.append(f"it was of other images ({before.get('name')})")
        elif before.get("annotations_digest") != self.fingerprint.annotations:
            found.append("the annotations have changed")
        new = options.flat()
        found += [
            f"{name} is {_shown(value)}, not {_shown(old[name])}"
            for name, value in new.items()
            if name in old and old[name] != value and name != "n_jobs"
        ]
        gone = dict.fromkeys(part.rpartition(": ")[2] for part in set(folder.parts).difference(parts, ["model"]))
        removed = sorted(set(gone) & set(STORED_AS.values()))
        if removed:
            found.append(f"calibrated without {enumeration(removed)}")
        return found

    def _is_of_other_images(self, folder: RunFolder, before: Mapping[str, Any]) -> bool:
        """Whether the finished model is: by image, unless the folder has noted only those of a run begun since."""
        begun, code = _images(folder), before.get("images_digest")
        if begun and code in (None, folder.inputs.get("images_digest")):
            return set(begun.values()) != set(self.fingerprint.images.values())
        return code != self.fingerprint.images_digest()

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


def _images(folder: RunFolder) -> dict[str, str]:
    """Hashes of the images of the run that was begun last; empty where these are unknown."""
    found = folder.inputs.get("images")
    return {name: one for name, one in found.items() if isinstance(one, str)} if isinstance(found, dict) else {}


def _finished(folder: RunFolder) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """What the finished model is made from, and its options; a run begun since may be of others."""
    card: dict[str, Any] = {}
    with suppress(InputError):  # without a card that can be read only the last run is known
        card = read_card(folder.root)
    options = dotted(folder.options) | dotted(card.get("options", {}))
    return {**folder.inputs, **card.get("inputs", {})}, options


def _lost_classes(folder: RunFolder, classes: Iterable[str]) -> list[str]:
    """Names of the classes whose exemplars are in the folder and that this run would not train."""
    kept = {f"classes/{class_folder(name)}" for name in classes}
    lost = {part.rpartition(": ")[0] for part in folder.parts if part.endswith(": training")} - kept
    names: dict[str, str] = {}
    with suppress(InputError):  # without a card that can be read classes are called as their folders are
        entries = [entry for entry in read_card(folder.root)["classes"] if isinstance(entry, dict)]
        pairs = [(entry.get("folder"), entry.get("name")) for entry in entries]
        names = {place: name for place, name in pairs if isinstance(place, str) and isinstance(name, str)}
    return sorted(names.get(one, one.removeprefix("classes/")) for one in lost)


def _shown(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
