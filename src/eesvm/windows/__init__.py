"""Windows: boxes in which an object may be, before anybody knows of which class."""

from eesvm.windows.proposals import (
    METHODS,
    MODES,
    Cache,
    WindowSettings,
    grid_windows,
    propose,
    propose_dataset,
    with_ground_truth,
)

__all__ = [
    "METHODS",
    "MODES",
    "Cache",
    "WindowSettings",
    "grid_windows",
    "propose",
    "propose_dataset",
    "with_ground_truth",
]
