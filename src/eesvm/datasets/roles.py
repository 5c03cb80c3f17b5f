"""Which images have which role: those a network was tuned on, those of exemplars and calibration, those that judge.

In: datasets, or the codes that a network's file holds. Out: `PictureCodes`, by which photographs are recognised
whatever their name, size or compression, and `Roles`: test images among the others are an error, and what the network
shares with the exemplars is counted and said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from eesvm._support.amounts import counted, enumeration
from eesvm._support.validation import InputError
from eesvm.images.likeness import CODE_BYTES, CODE_VERSION, Codes, picture_code, same_pictures
from eesvm.structures import ImageRecord

_NAMED = 3  # photographs that an error names


@dataclass(frozen=True, eq=False)
class PictureCodes:
    """The photographs of a collection, to be recognised elsewhere."""

    source: str  # name of the dataset
    names: tuple[str, ...]  # image ids; where a file holds only codes, their numbers
    codes: Codes  # (n, 120)

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def of(
        cls, images: Iterable[ImageRecord], source: str, progress: Callable[[int, int], object] | None = None
    ) -> Self:
        """Of all images that can be read."""
        names, codes = [], []
        records = list(images)
        for done, record in enumerate(records, start=1):
            try:
                codes.append(picture_code(record.read()))
                names.append(record.image_id)
            except (InputError, OSError, ValueError, MemoryError):
                pass  # whoever uses the image says what is wrong with it
            if progress is not None:
                progress(done, len(records))
        return cls(source, tuple(names), np.array(codes, dtype=np.uint8).reshape(-1, CODE_BYTES))

    def as_dict(self) -> dict[str, Any]:
        """Plain values without names, for the file of a network."""
        return {"version": CODE_VERSION, "source": self.source, "codes": [row.tobytes().hex() for row in self.codes]}

    @classmethod
    def from_dict(cls, content: Any, where: str) -> Self | None:
        """What `as_dict` gave; None for codes of another version. `where` is for errors."""
        if isinstance(content, Mapping) and content.get("version") != CODE_VERSION:
            return None
        try:
            source, texts = str(content["source"]), content["codes"]
            codes = np.frombuffer(b"".join(bytes.fromhex(text) for text in texts), dtype=np.uint8)
            table = codes.reshape(len(texts), CODE_BYTES)
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{where}: what it says about the images it was tuned on cannot be read") from None
        return cls(source, tuple(map(str, range(1, len(table) + 1))), table)

    def shared_with(self, other: PictureCodes) -> list[tuple[str, str]]:
        """Names here and there of the same photographs."""
        return [(self.names[i], other.names[j]) for i, j in self.row_pairs(other)]

    def row_pairs(self, other: PictureCodes) -> list[tuple[int, int]]:
        """The same as rows."""
        return same_pictures(self.codes, other.codes)


def without_copies(images: Sequence[ImageRecord]) -> tuple[list[ImageRecord], list[tuple[str, str]]]:
    """The images without those that show the same photograph as an earlier one, and pairs: who went, whom it copies."""
    codes = PictureCodes.of(images, "")
    copies: dict[str, str] = {}
    for later, earlier in sorted(codes.row_pairs(codes)):
        if earlier < later and codes.names[earlier] not in copies:
            copies.setdefault(codes.names[later], codes.names[earlier])
    return [record for record in images if record.image_id not in copies], list(copies.items())


@dataclass(frozen=True, eq=False)
class Roles:
    """The images of one experiment by role; None where a role is not known, or not filled."""

    exemplars: PictureCodes
    network: PictureCodes | None = None
    test: PictureCodes | None = None
    untuned: str | None = None  # name of what describes windows, where no images have tuned it: "lite0", "hog"

    def check(self) -> None:
        """Refuse test images that the network was tuned on, or that are among the exemplars' and calibration's."""
        if self.test is None:
            return
        for others, what in ((self.exemplars, "to train and calibrate on"), (self.network, "the network was tuned on")):
            shared = [] if others is None else self.test.shared_with(others)
            if shared:
                raise InputError(_complaint(shared, what))

    @property
    def n_shared(self) -> int | None:
        """How many of the exemplars' images the network was tuned on; None where that is not known."""
        if self.network is None:
            return None
        return len({name for name, _ in self.exemplars.shared_with(self.network)})

    def summary(self) -> dict[str, Any]:
        """What a card says about it."""
        return {
            "n_exemplar_images": len(self.exemplars),
            "network": None if self.network is None else {"source": self.network.source, "n_images": len(self.network)},
            "n_shared": self.n_shared,
            "test": None if self.test is None else {"source": self.test.source, "n_images": len(self.test)},
            **({} if self.network is not None or self.untuned is None else {"untuned": self.untuned}),
        }


def sentences(summary: Mapping[str, Any], separability: Mapping[str, float] | None = None) -> list[str]:
    """What `Roles.summary` says, for people; `separability` has shares of negatives, see `separability_text`."""
    network, n_shared, n_own = summary["network"], summary["n_shared"], summary["n_exemplar_images"]
    lines = []
    if network is None and summary.get("untuned") == "hog":
        lines.append("Windows are described by HOG, which no images have tuned.")
    elif network is None and summary.get("untuned"):
        lines.append(
            f"The network is {summary['untuned']} as it comes: trained to name the pictures of ImageNet, and tuned on "
            "no boxes."
        )
    elif network is None:
        lines.append("The images that the network was tuned on, if any, are not known.")
    elif not n_shared:
        lines.append(
            f"The network was tuned on {counted(network['n_images'], 'image')} of {network['source']}; none of the "
            f"{counted(n_own, 'image')} of the exemplars is among them."
        )
    else:
        lines.append(
            f"The network was tuned on {counted(network['n_images'], 'image')} of {network['source']}, among them "
            f"{n_shared:,} of the {counted(n_own, 'image')} that exemplars and calibration come from, as in the paper: "
            "the fewer they are, the better it knows their windows by heart, and the less calibration can learn there."
        )
    if separability:
        lines.append(separability_text(separability))
    if summary["test"] is not None:
        test = summary["test"]
        lines.append(
            f"None of the {counted(test['n_images'], 'test image')} of {test['source']} is among the others "
            "(judged by content, not by name)."
        )
    return lines


def mean_separability(facts: Iterable[Mapping[str, Any]]) -> dict[str, float] | None:
    """Means over the classes whose facts have it; None where none has."""
    known = [one["separability"] for one in facts if one.get("separability")]
    return {name: float(np.mean([one[name] for one in known])) for name in ("own", "across")} if known else None


def separability_text(shares: Mapping[str, float]) -> str:
    """How far apart calibration windows are: false positives as shares of negatives, own pairs and across images."""
    return (
        "How separable the calibration windows are: at full recall the joint thresholds accept "
        f"{_share(shares['own'])} of the negatives where exemplars may cover windows of their own image, and "
        f"{_share(shares['across'])} where they may not."
    )


def _share(value: float) -> str:
    return f"{100 * value:.2g} %"


def _complaint(shared: Sequence[tuple[str, str]], what: str) -> str:
    named = {mine: mine if mine == other else f"{mine} ({other} there)" for mine, other in reversed(shared)}
    names = enumeration(sorted(named.values()), _NAMED)
    if len(named) == 1:
        return f"the test image {names} is among the images {what}, judged by content: take it out of one of the two"
    return (
        f"{len(named):,} test images are among the images {what}, judged by content, {names}: "
        "take them out of one of the two"
    )
