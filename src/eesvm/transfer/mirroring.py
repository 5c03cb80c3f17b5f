"""The mirror image of an exemplar: everything that it transfers, with left and right swapped.

In: the `ExemplarAnnotation` of an object. Out: that of its mirror image, in place: mask, picture, parts and keypoints
are mirrored about the middle of the pixels that the box touches, so the box stays where the object is, within a pixel.
Names of parts and keypoints and the pose change sides, "left eye" becomes "right eye"; other labels stay as they are.
Mirrored twice it is what it was.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm.images.warping import pixels_touched
from eesvm.structures import Box, ExemplarAnnotation, Part
from eesvm.transfer.target import KEYPOINTS, check_box, keypoint_numbers

_SIDES = {"left": "right", "right": "left", "l": "r", "r": "l"}
# A word of its own: not beside a small letter, except that a capital may follow or begin it ("leftEye", "eyeLeft").
_WORD = re.compile(r"(?<![A-Za-z])(?:left|right|LEFT|RIGHT|Left|Right)(?![a-z])|(?<=[a-z])(?:Left|Right)(?![a-z])")
_LETTER = re.compile(r"(?<![A-Za-z0-9])[lrLR](?![A-Za-z0-9])")


def mirrored(annotation: ExemplarAnnotation) -> ExemplarAnnotation:
    """The mirror image of an exemplar, with its identity.

    Parameters
    ----------
    annotation : of the object, or of its mirror image, which gives the object again.
    """
    box = check_box(annotation.box, "the box of an exemplar")
    touched = pixels_touched(box, 1 << 31, 1 << 31)
    axis, width = touched.x1 + touched.x2, touched.x2 - touched.x1
    metadata = dict(annotation.metadata)
    if isinstance(metadata.get(KEYPOINTS), Mapping):
        metadata[KEYPOINTS] = _mirrored_points(metadata[KEYPOINTS], axis)
    names = {part.name for part in annotation.parts}
    return replace(
        annotation,
        box=_mirrored_box(box, axis),
        mask=_mirrored_piece(annotation.mask, width),
        picture=None if annotation.picture is None else annotation.picture[:, ::-1],
        parts=tuple(Part(other_side(part.name, names), _mirrored_box(part.box, axis)) for part in annotation.parts),
        pose=None if annotation.pose is None else other_side(annotation.pose),
        metadata=metadata,
        is_mirrored=not annotation.is_mirrored,
    )


def other_side(name: str, known: Collection[str] = ()) -> str:
    """A name with left and right swapped; one that speaks of neither stays.

    Parameters
    ----------
    name : of a part, keypoint or pose: "left_eye", "Left", "eyeRight".
    known : all names there are. The letters l and r, as in "eye_l", are sides only where the other side is known, too.
    """
    swapped = _WORD.sub(lambda found: _in_case_of(found[0]), name)
    if swapped != name:
        return swapped
    swapped = _LETTER.sub(lambda found: _in_case_of(found[0]), name)
    return swapped if swapped in known else name


def _in_case_of(word: str) -> str:
    other = _SIDES[word.lower()]
    return other.upper() if word.isupper() else other.capitalize() if word[0].isupper() else other


def _mirrored_box(box: Any, axis: int) -> Box:
    x1, y1, x2, y2 = np.asarray(box, dtype=np.float64)
    return np.array([axis - x2, y1, axis - x1, y2])


def _mirrored_piece(mask: NDArray[np.bool_] | None, width: int) -> NDArray[np.bool_] | None:
    """The mask, filled up to the pixels that its box touches: at the right border of an image it may be smaller."""
    if mask is None:
        return None
    missing = max(0, width - mask.shape[1])
    return (np.pad(mask, ((0, 0), (0, missing))) if missing else mask)[:, ::-1]


def _mirrored_points(points: Mapping[str, Any], axis: int) -> dict[str, Any]:
    """Keypoints under their new names, in the order of these as it was; what is no place stays as it is."""
    moved = {}
    for name, values in points.items():
        numbers = keypoint_numbers(values)
        place = values if numbers is None else [axis - float(numbers[0]), *numbers[1:].tolist()]
        moved[other_side(str(name), points)] = place
    return moved
