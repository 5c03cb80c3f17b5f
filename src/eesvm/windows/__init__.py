"""Windows: boxes in which an object may be, before anybody knows of which class.

In: images. Out: proposals in a fixed order, files of them, and how many of a dataset"s objects they find.
"""

from typing import TYPE_CHECKING

from eesvm._support.lazy import names_from

if TYPE_CHECKING:
    from eesvm.windows.files import read_windows, write_windows
    from eesvm.windows.grid import grid_windows
    from eesvm.windows.proposals import propose, propose_dataset, with_ground_truth
    from eesvm.windows.recall import ClassRecall, WindowRecall, window_recall
    from eesvm.windows.settings import METHODS, MODES, WindowSettings

__all__ = [
    "METHODS",
    "MODES",
    "ClassRecall",
    "WindowRecall",
    "WindowSettings",
    "grid_windows",
    "propose",
    "propose_dataset",
    "read_windows",
    "window_recall",
    "with_ground_truth",
    "write_windows",
]

__getattr__, __dir__ = names_from(
    __name__,
    {
        "files": ("read_windows", "write_windows"),
        "grid": ("grid_windows",),
        "proposals": ("propose", "propose_dataset", "with_ground_truth"),
        "recall": ("ClassRecall", "WindowRecall", "window_recall"),
        "settings": ("METHODS", "MODES", "WindowSettings"),
    },
)
