"""ILSVRC detection (DET): VOC's XML in the folders of ImageNet.

In: a folder with Data/DET, Annotations/DET and ImageSets/DET as of 2015, or the folders of 2013 and 2014
(ILSVRC2013_DET_val beside ILSVRC2013_DET_bbox_val, ...). Out: a `Dataset`; ids are the names in its lists, such as
ILSVRC2013_train/n02084071/n02084071_4. Boxes count pixels from 0 and include both ends. Classes are synsets
(n02084071), or names where a list of names is found or given; metadata keeps the `synset`. An image without XML has
no objects, as its documentation says. Lists of one class (train_17.txt) are read only when they are asked for: there
are hundreds.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from eesvm._support.validation import InputError
from eesvm.datasets._image_sets import read_splits
from eesvm.datasets.build import Builder, Options, choose_split
from eesvm.datasets.tree import ImageIndex, below, scan
from eesvm.datasets.voc import Layout, read_annotated_images
from eesvm.structures import Dataset

_PAIRS = (  # images, annotations, and the split that their folder makes
    *((f"Data/{task}/{split}", f"Annotations/{task}/{split}", split)
      for task in ("DET", "CLS-LOC") for split in ("train", "val", "test")),
    ("ILSVRC2014_DET_train", "ILSVRC2014_DET_bbox_train", "train"),
    ("ILSVRC2013_DET_train", "ILSVRC2013_DET_bbox_train", "train"),
    ("ILSVRC2013_DET_val", "ILSVRC2013_DET_bbox_val", "val"),
    ("ILSVRC2013_DET_test", "ILSVRC2013_DET_bbox_test", "test"),
)  # fmt: skip
_LIST_FOLDERS = ("ImageSets/DET", "ImageSets/CLS-LOC", "data/det_lists", "det_lists")
_CLASS_LIST = re.compile(r"train(_pos|_part|_neg)?_\d+")
_NAME_FILES = (
    "synsets.txt", "map_det.txt", "LOC_synset_mapping.txt", "devkit/data/map_det.txt", "data/map_det.txt",
)  # fmt: skip
_SYNSET = re.compile(r"n\d{8}")

Names = Mapping[str, str] | str | os.PathLike[str] | None


def read_ilsvrc(root: Path, options: Options, *, synsets: Names = None) -> Dataset:
    """The dataset in `root`; `synsets` maps n02084071 to dog, or is a file with a line `n02084071 dog` for each."""
    builder = Builder(options)
    files = scan(root, builder)
    pairs = find_pairs(files)
    if not pairs:
        raise InputError(f"{root} has none of ILSVRC's folders: {', '.join(pair[0] for pair in _PAIRS)}")
    names = _class_names(root, synsets, builder)
    layouts = [(_layout(root, files, images, xml, names), split) for images, xml, split in pairs]
    splits = _splits(root, layouts, options.split, builder)
    chosen = None if options.split is None else frozenset(choose_split(options.split, splits, root))
    for layout, _ in layouts:
        read_annotated_images(layout, builder, chosen)
    builder.sort()
    return builder.dataset(root.resolve().name, splits)


def find_pairs(files: Iterable[str]) -> list[tuple[str, str, str]]:
    """The known pairs of folders of images and annotations of which at least the images are there."""
    folders = {"/".join(name.split("/")[:depth]) for name in files for depth in (1, 3)}
    return [pair for pair in _PAIRS if pair[0] in folders]


def read_synsets(path: Path) -> dict[str, str]:
    """Names from lines such as `n02084071 dog, domestic dog` or `n02084071 58 dog`: the first name counts."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: the names of the synsets cannot be read: {error}") from error
    names = {}
    for line in text.splitlines():
        synset, _, rest = line.strip().partition(" ")
        name = re.sub(r"^\d+\s+", "", rest.strip()).split(",")[0].strip()
        if _SYNSET.fullmatch(synset) and name:
            names[synset] = name
    if not names:
        raise InputError(f"{path}: there is no line such as `n02084071 dog`")
    return names


def _class_names(root: Path, synsets: Names, builder: Builder) -> dict[str, str]:
    """Synset to class name; a name that two synsets share gets the synset added."""
    if isinstance(synsets, Mapping):
        names = {str(synset): str(name) for synset, name in synsets.items()}
    elif synsets is not None:
        names = read_synsets(Path(synsets))
    else:
        found = next((root / name for name in _NAME_FILES if (root / name).is_file()), None)
        try:
            names = {} if found is None else read_synsets(found)
        except InputError as error:
            builder.problem(found or root, str(error).removeprefix(f"{found}: "), "list")
            names = {}
    count = Counter(names.values())
    return {synset: name if count[name] == 1 else f"{name} ({synset})" for synset, name in names.items()}


def _layout(root: Path, files: list[str], images: str, annotations: str, names: dict[str, str]) -> Layout:
    return Layout(
        image_root=root / images,
        images=ImageIndex(below(files, images)),
        annotation_root=root / annotations,
        annotations=[name for name in below(files, annotations) if name.lower().endswith(".xml")],
        first_pixel=0,
        needs_annotations=False,
        class_name=lambda synset: names.get(synset, synset),
        name_key="synset",
    )


def _splits(
    root: Path, layouts: list[tuple[Layout, str]], wanted: str | None, builder: Builder
) -> dict[str, tuple[str, ...]]:
    """The lists there are, and where there is none of that name, everything in the folder train, val or test."""
    owners: dict[str, str] = {}  # of two images with one id the first is kept, so the id belongs to its split alone
    for layout, split in layouts:
        for name in layout.images.files:
            owners.setdefault(layout.image_id(name), split)
    ids: dict[str, list[str]] = {split: [] for _, split in layouts}
    for image_id, split in owners.items():
        ids[split].append(image_id)
    splits: dict[str, tuple[str, ...]] = {}
    for folder in _LIST_FOLDERS:
        for path in sorted((root / folder).glob("*.txt")):
            is_class_list = _CLASS_LIST.fullmatch(path.stem) is not None
            if not is_class_list or path.stem == (wanted or "").partition("=")[0]:
                for name, members in read_splits(path, path.stem, owners, builder, not is_class_list).items():
                    splits[name] = tuple(dict.fromkeys((*splits.get(name, ()), *members)))
    return {**{name: tuple(members) for name, members in ids.items() if name not in splits}, **splits}
