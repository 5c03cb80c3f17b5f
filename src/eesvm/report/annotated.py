"""An image with what was found in it, as `eesvm detect --draw` writes it.

In: an RGB image and its detections. Out: the image with a frame around each, in the colour of its class, the mask that
it inherits, refined by the image, and above it class, score and the training object that won, by number and name.
Better detections are drawn over worse ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from eesvm._support.extras import optional_module
from eesvm._support.validation import InputError
from eesvm.report.transfer_pictures import draw_outline, text_font
from eesvm.structures import Box, Detection, Detections, ExemplarAnnotation
from eesvm.transfer.detections import hand_on_refined
from eesvm.transfer.inheritance import TransferredAnnotation
from eesvm.transfer.refinement import Means
from eesvm.transfer.target import check_image

# Colour-blind safe (Okabe and Ito), the ones that stand out on photographs first.
_COLOURS = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#d55e00", "#cc79a7", "#0072b2")
_DARK = ("#009e73", "#d55e00", "#0072b2")  # text on them is white
_VEIL = 0.25  # of its colour, over the pixels of a mask


def annotated(
    image: NDArray[np.uint8],
    found: Detections,
    exemplars: Sequence[ExemplarAnnotation] = (),
    classes: Sequence[str] = (),
    means: Means | None = None,
) -> NDArray[np.uint8]:
    """The image with its detections.

    Parameters
    ----------
    image : (h, w, 3) uint8, RGB.
    found : its detections.
    exemplars : all of the model, to name the winners and for their masks. Default: they are not named.
    classes : of the model, so that a class has one colour in all images. Default: those that were found.
    means : from `mean_masks` of these exemplars, once for all images.

    Returns
    -------
    ndarray : an RGB picture of the same size, uint8.
    """
    pixels = check_image(image)
    height, width = pixels.shape[:2]
    thickness, size = max(2, min(height, width) // 200), max(10, min(height, width) // 32)
    names = list(classes or sorted(set(found.class_names.tolist())))
    worst_first = [(one, _winner(one, exemplars), _colour(one.class_name, names)) for one in reversed(list(found))]
    tinted = np.array(pixels)
    for one, winner, colour in worst_first:
        if winner is not None:
            _tint(tinted, _handed(winner, one.box, pixels, means), colour, thickness)
    picture = optional_module("PIL.Image").fromarray(tinted)
    pen = optional_module("PIL.ImageDraw").Draw(picture)
    font = text_font(size)
    for one, winner, colour in worst_first:
        x1, y1, x2, y2 = np.clip(one.box, 0, [width - 1, height - 1, width - 1, height - 1]).tolist()
        pen.rectangle((x1, y1, max(x1, x2 - 1), max(y1, y2 - 1)), outline=colour, width=thickness)
        text = f"{one.class_name} {one.score:.2f}" + ("" if winner is None else f"  #{one.exemplar} {winner.name}")
        wide, high = font.getlength(text) + 6, size + 6
        left, top = max(0.0, min(x1, width - wide)), y1 - high if y1 >= high else y1
        pen.rectangle((left, top, left + wide, top + high), fill=colour)
        pen.text((left + 3, top + 2), text, fill="white" if colour in _DARK else "black", font=font)
    return np.asarray(picture)


def _winner(one: Detection, exemplars: Sequence[ExemplarAnnotation]) -> ExemplarAnnotation | None:
    return exemplars[one.exemplar] if 0 <= one.exemplar < len(exemplars) else None


def _colour(class_name: str, names: Sequence[str]) -> str:
    return _COLOURS[names.index(class_name) % len(_COLOURS)] if class_name in names else _COLOURS[0]


def _handed(
    winner: ExemplarAnnotation, box: Box, pixels: NDArray[np.uint8], means: Means | None
) -> TransferredAnnotation | None:
    """What files have, too; None where the mask does not fit."""
    try:
        return hand_on_refined(winner, box, pixels, means)
    except InputError:
        return None


def _tint(picture: NDArray[np.uint8], handed: TransferredAnnotation | None, colour: str, thickness: int) -> None:
    """Draw a mask into the picture: its outline, and a veil inside. Only its own rectangle is looked at."""
    if handed is None or handed.mask is None:
        return
    mask, (x, y) = handed.mask, handed.offset
    view = picture[y : y + mask.shape[0], x : x + mask.shape[1]]
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    view[mask] = np.rint((1 - _VEIL) * view[mask] + _VEIL * np.array([red, green, blue])).astype(np.uint8)
    draw_outline(view, mask, (red, green, blue), thickness)
