"""An image with what was found in it, as `eesvm detect --draw` writes it.

In: an RGB image and its detections. Out: the image with a frame around each, in the colour of its class, and above it
class, score and the training object that won. Better detections are drawn over worse ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from eesvm._support.extras import optional_module
from eesvm.report.transfer_pictures import text_font
from eesvm.structures import Detections, ExemplarAnnotation
from eesvm.transfer.target import check_image

# Colour-blind safe (Okabe and Ito), the ones that stand out on photographs first.
_COLOURS = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#d55e00", "#cc79a7", "#0072b2")
_DARK = ("#009e73", "#d55e00", "#0072b2")  # text on them is white


def annotated(
    image: NDArray[np.uint8],
    found: Detections,
    exemplars: Sequence[ExemplarAnnotation] = (),
    classes: Sequence[str] = (),
) -> NDArray[np.uint8]:
    """The image with its detections.

    Parameters
    ----------
    image : (h, w, 3) uint8, RGB.
    found : its detections.
    exemplars : all of the model, to name the winners. Default: they are not named.
    classes : of the model, so that a class has one colour in all images. Default: those that were found.

    Returns
    -------
    ndarray : an RGB picture of the same size, uint8.
    """
    pixels = check_image(image)
    picture = optional_module("PIL.Image").fromarray(np.ascontiguousarray(pixels))
    pen = optional_module("PIL.ImageDraw").Draw(picture)
    height, width = pixels.shape[:2]
    thickness, size = max(2, min(height, width) // 200), max(10, min(height, width) // 32)
    font = text_font(size)
    names = list(classes or sorted(set(found.class_names.tolist())))
    for one in reversed(list(found)):
        colour = _COLOURS[names.index(one.class_name) % len(_COLOURS)] if one.class_name in names else _COLOURS[0]
        x1, y1, x2, y2 = np.clip(one.box, 0, [width - 1, height - 1, width - 1, height - 1]).tolist()
        pen.rectangle((x1, y1, max(x1, x2 - 1), max(y1, y2 - 1)), outline=colour, width=thickness)
        text = f"{one.class_name} {one.score:.2f}"
        if 0 <= one.exemplar < len(exemplars):
            winner = exemplars[one.exemplar]
            text += f"  {winner.image_id}, object {winner.index + 1}"
        wide, high = font.getlength(text) + 6, size + 6
        left, top = max(0.0, min(x1, width - wide)), y1 - high if y1 >= high else y1
        pen.rectangle((left, top, left + wide, top + high), fill=colour)
        pen.text((left + 3, top + 2), text, fill="white" if colour in _DARK else "black", font=font)
    return np.asarray(picture)
