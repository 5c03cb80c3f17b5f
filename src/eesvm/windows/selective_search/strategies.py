"""Modes of selective search: which segmentations of an image are grouped in which ways.

In: the name of a mode. Out: its steps. A step is one segmentation and the ways in which its regions are grouped; each
way gives one hierarchy of regions. Steps stand in the order of their worth, so that any beginning of them is a good use
of its time. "single", "fast" and "quality" are those of OpenCV, with 1, 8 and 80 hierarchies. "default" has 8, too, but
half of them start from small regions, which find the small objects that the others miss. Of 20 combinations of colour
spaces, scales and groupings it was among the smallest, and found about as much as any with 2,000 windows an image.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from eesvm.windows.selective_search.grouping import Similarities

_ALL = Similarities(colour=True, texture=True, size=True, fill=True)
_NO_COLOUR = Similarities(colour=False, texture=True, size=True, fill=True)
_FILL = Similarities(colour=False, texture=False, size=False, fill=True)
_SIZE = Similarities(colour=False, texture=False, size=True, fill=False)


class Step(NamedTuple):
    """One segmentation, and how its regions are grouped."""

    space: str  # of colours
    scale: int  # of the segmentation: the constant k
    min_size: int  # of a region, in pixels of the image that is segmented
    groupings: tuple[Similarities, ...]


def _steps(
    spaces: tuple[str, ...], scales: tuple[int, ...], min_size: int, groupings: tuple[Similarities, ...]
) -> tuple[Step, ...]:
    """Every scale in every space."""
    return tuple(Step(space, scale, min_size, groupings) for scale, space in product(scales, spaces))


PLANS: dict[str, tuple[Step, ...]] = {
    "default": (
        *_steps(("hsv", "lab"), (50,), 20, (_ALL, _NO_COLOUR)),
        *_steps(("hsv", "lab"), (150,), 100, (_ALL, _NO_COLOUR)),
    ),
    "fast": _steps(("hsv", "lab"), (150, 300), 100, (_ALL, _NO_COLOUR)),
    "quality": _steps(
        ("hsv", "lab", "rgi", "grey", "hue"), (150, 300, 450, 600), 100, (_ALL, _NO_COLOUR, _FILL, _SIZE)
    ),
    "single": _steps(("hsv",), (200,), 100, (_ALL,)),
}
