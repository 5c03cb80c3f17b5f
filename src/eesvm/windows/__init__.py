"""Windows: boxes in which an object may be, before anybody knows of which class."""

from eesvm.windows.proposals import (
    METHODS,
    MODES,
    Cache,
    ClassRecall,
    WindowRecall,
    WindowSettings,
    grid_windows,
    propose,
    propose_dataset,
    read_windows,
    window_recall,
    with_ground_truth,
    write_windows,
)

__all__ = [
    "METHODS",
    "MODES",
    "Cache",
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
