"""A matplotlib figure as a PNG file.

In: a figure. Out: bytes that depend on nothing but the figure, or a file that appears whole or not at all.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from eesvm._support.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def png_bytes(figure: Figure) -> bytes:
    """The picture as PNG, without a date or a version inside: the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def save_png(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write the picture as PNG, whole or not at all."""
    with atomic_write(path) as handle:
        handle.write(png_bytes(figure))
