"""Datasets that verbs are given.

In: a path, or the word scenes. Out: the dataset.
"""

from __future__ import annotations

from pathlib import Path

from eesvm.datasets import open_dataset, select
from eesvm.datasets.scenes import make_scenes
from eesvm.structures import Dataset

_EMBEDDED = "scenes"


def open_data(
    path: str, format_name: str | None, split: str | None, strict: bool, unlabelled: str | None = None
) -> Dataset:
    """A dataset by its path, or the embedded scenes; a file or folder of their name goes before them."""
    if path != _EMBEDDED or Path(path).exists():
        return open_dataset(path, format_name, split, strict=strict, unlabelled=unlabelled)
    scenes = make_scenes()
    return scenes if split is None else select(scenes, split=split)
