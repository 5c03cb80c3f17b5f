"""A plain folder of images, without annotations.

In: a folder, or one image file. Out: a `Dataset` without instances. Images are called by their paths in the folder
without ending, or with it where several would be called the same. Folders called train, test and the like make
splits; the name of any other folder that holds images becomes the `label` in the metadata of its images.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from eesvm.datasets.build import Builder, Options, choose_split
from eesvm.datasets.tree import SPLIT_NAMES, common_folder, folder_splits, is_image, key, scan
from eesvm.structures import Dataset


def read_folder(root: Path, options: Options) -> Dataset:
    """All images below `root`."""
    builder = Builder(options)
    base = root.parent if root.is_file() else root
    files = [root.name] if root.is_file() else [name for name in scan(root, builder) if is_image(name)]
    prefix = common_folder(files)
    counts = Counter(key(name) for name in files)
    ids = {name: (key(name) if counts[key(name)] == 1 else name).removeprefix(f"{prefix}/") for name in files}
    splits = folder_splits(ids.items())
    chosen = None if options.split is None else frozenset(choose_split(options.split, splits, root))
    for name, image_id in ids.items():
        if chosen is not None and image_id not in chosen:
            continue
        picture = builder.picture(base / name, image_id)
        if picture is not None:
            builder.add(image_id, picture, (), {"is_annotated": False, **_label(name, prefix)})
    return builder.dataset(root.resolve().name, splits)


def _label(name: str, prefix: str) -> dict[str, str]:
    """The innermost folder of an image below the one that all images share, unless it is the name of a split."""
    folders = name.removeprefix(f"{prefix}/").split("/")[:-1] if prefix else name.split("/")[:-1]
    labels = [folder for folder in folders if folder.lower() not in SPLIT_NAMES]
    return {"label": labels[-1]} if labels else {}
