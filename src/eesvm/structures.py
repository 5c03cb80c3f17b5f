"""Frozen dataclasses that travel between the stops: what a file reader, a proposer and a detector hand over.

Boxes are (4,) or (n, 4) float64 arrays of x1, y1, x2, y2 in pixels, half-open: a box of one pixel at the origin is
0, 0, 1, 1. Readers convert whatever their format says. Images are RGB, uint8, (height, width, 3).
Absent on purpose: behaviour. Reading is the business of `datasets` and `images`, geometry of `boxes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Box = NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """A named part of an instance, such as a head."""

    name: str
    box: Box  # (4,)


@dataclass(frozen=True)
class Instance:
    """One annotated object."""

    class_name: str
    box: Box  # (4,)
    image_id: str
    index: int  # its position among the instances of its image, as in the file
    mask: Callable[[], NDArray[np.bool_]] | None = None  # reads its (height, width) mask, lazily
    parts: tuple[Part, ...] = ()
    is_difficult: bool = False
    is_truncated: bool = False
    is_crowd: bool = False
    pose: str | None = None
    area: float | None = None  # in pixels, where the file states it: COCO sorts objects into small and large by it
    metadata: Mapping[str, Any] = field(default_factory=dict)  # free: subcategory, attributes, ...
    source: str = ""  # the file, and line where there is one, that it comes from


@dataclass(frozen=True)
class ImageRecord:
    """One image of a dataset: where it is, how large it is, what is in it."""

    image_id: str  # unique in its dataset
    read: Callable[[], NDArray[np.uint8]]  # reads the RGB image, lazily
    width: int
    height: int
    instances: tuple[Instance, ...] = ()
    path: str = ""  # "" for an image that is made, not stored
    metadata: Mapping[str, Any] = field(default_factory=dict)  # free: label of its folder, is_annotated, ...


@dataclass(frozen=True)
class Problem:
    """Something wrong in a file of a dataset; the run goes on without what it names."""

    path: str
    reason: str
    line: int | None = None
    kind: str = "other"  # a word to count problems by: box, image, class, ...

    def __str__(self) -> str:
        return f"{self.path}{'' if self.line is None else f':{self.line}'}: {self.reason}"


@dataclass(frozen=True)
class Dataset(Sequence[ImageRecord]):
    """Images with their instances, the classes and splits they belong to, and what was wrong with the files."""

    name: str
    images: tuple[ImageRecord, ...]
    classes: tuple[str, ...]
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # split name -> image ids
    problems: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Any) -> Any:
        return self.images[index]

    def annotated(self) -> Dataset:
        """Without the images that nobody has annotated, of which one may not say that they show nothing.

        Where nobody has annotated any, all of them stay.
        """
        images = tuple(image for image in self.images if image.metadata.get("is_annotated", True))
        return replace(self, images=images) if 0 < len(images) < len(self.images) else self

    def instances(self, class_name: str | None = None) -> Iterator[Instance]:
        """All instances, or those of one class, image by image."""
        for image in self.images:
            for instance in image.instances:
                if class_name is None or instance.class_name == class_name:
                    yield instance


@dataclass(frozen=True)
class Windows:
    """Proposals of one image."""

    image_id: str
    boxes: NDArray[np.float64]  # (n, 4)
    instance: NDArray[np.int64]  # (n,) index of the instance whose ground-truth box this is, -1 for a proposal

    def __len__(self) -> int:
        return len(self.boxes)


@dataclass(frozen=True)
class ExemplarAnnotation:
    """What a training object can hand on: everything a detection inherits from the exemplar that won it."""

    class_name: str
    image_id: str
    index: int  # its position among the instances of its image
    box: Box  # (4,) in its own image; parts are in the same coordinates
    mask: NDArray[np.bool_] | None = None  # (height, width) of the pixels that the box touches
    parts: tuple[Part, ...] = ()
    pose: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)  # subcategory, attributes, ...
    picture: NDArray[np.uint8] | None = None  # (height, width, 3) of the pixels that the box touches


@dataclass(frozen=True)
class Detections:
    """What was found in one image, in decreasing order of score."""

    image_id: str
    boxes: NDArray[np.float64]  # (n, 4)
    scores: NDArray[np.float64]  # (n,)
    class_names: NDArray[np.str_]  # (n,)
    exemplars: NDArray[np.int64]  # (n,) the winning exemplar among all of the model, -1 where there is none

    def __len__(self) -> int:
        return len(self.boxes)
