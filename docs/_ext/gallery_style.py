"""One look for all pictures of the gallery; an example that is run by itself has matplotlib's own."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl

_STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "figure.constrained_layout.use": True,
    "figure.dpi": 110,
    "font.size": 10,
    "legend.frameon": False,
    # Okabe and Ito's palette, which stays apart for colour-blind readers.
    "axes.prop_cycle": mpl.cycler(color=["#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#222222"]),
}


def reset(gallery_conf: dict[str, Any], name: str) -> None:
    """Called by sphinx-gallery before each example."""
    mpl.rcParams.update(_STYLE)
