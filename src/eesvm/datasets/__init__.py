"""Datasets: annotated files of any common format to one `Dataset`, and out again.

In: a path with PASCAL VOC, ILSVRC, COCO or YOLO annotations, or just images. Out: a `Dataset` of images that are read
when they are needed, instances with half-open boxes, splits, and every problem that was met on the way.
`scenes` makes a dataset without any file; `fetch` downloads official ones. A new format is a sign in `formats`, a
reader beside `voc`, and an entry in `_READERS` here.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from eesvm._support.validation import InputError, check_choice
from eesvm.datasets.build import Options
from eesvm.datasets.coco import read_coco
from eesvm.datasets.folder import read_folder
from eesvm.datasets.formats import detect_format
from eesvm.datasets.ilsvrc import read_ilsvrc
from eesvm.datasets.overview import Summary, select, summary
from eesvm.datasets.voc import read_voc
from eesvm.datasets.writers import write_coco, write_voc
from eesvm.datasets.yolo import read_yolo
from eesvm.structures import Dataset

__all__ = ["FORMATS", "Summary", "open_dataset", "select", "summary", "write_coco", "write_voc"]

_READERS: dict[str, Callable[..., Dataset]] = {
    "voc": read_voc,
    "ilsvrc": read_ilsvrc,
    "coco": read_coco,
    "yolo": read_yolo,
    "folder": read_folder,
}
FORMATS = tuple(_READERS)


def open_dataset(
    path: str | os.PathLike[str],
    format: str | None = None,
    split: str | None = None,
    *,
    classes: Iterable[str] | None = None,
    strict: bool = False,
    check: str = "header",
    unlabelled: str | None = None,
    **options: Any,
) -> Dataset:
    """The dataset at `path`.

    Parameters
    ----------
    path : a folder, a COCO .json, a YOLO .yaml or an image.
    format : "voc", "ilsvrc", "coco", "yolo" or "folder"; auto-detected if not given.
    split : read only the images of this split.
    classes : the class list; objects of other classes are problems. Default: the classes that occur.
    strict : raise `InputError` at the first problem, instead of leaving out what is wrong and listing it.
    check : "header" opens every image for its size; "full" also decodes it and its masks; "none" believes the sizes in
        the annotations, for collections on slow disks.
    unlabelled : images without an annotation of their own: "skip" marks them `is_annotated: False`, so that nothing is
        learned from them and nothing judged by them; "keep" takes them as images without objects. Default: as the
        format has it. VOC skips them, ILSVRC keeps them; YOLO does what `skip_if_label_file_missing` in its data.yaml
        says, else it skips them where other images of the same split have label files.
    options : of one format. voc: `first_pixel` (0 for files that count from 0), `images` (folder of the images). coco:
        `images`. ilsvrc: `synsets`, names of the synsets.
    """
    root = Path(path)
    if not root.exists():
        raise InputError(f"{path} does not exist")
    if format is None:
        format = detect_format(root)
    check_choice(format, "format", FORMATS)
    if root.is_file() and format in ("voc", "ilsvrc"):
        raise InputError(f"a dataset of the format {format} is a folder, got the file {path}")
    _check_options(format, options)
    names = None if classes is None else tuple(classes)
    return _READERS[format](root, Options(split, names, strict, check, unlabelled), **options)


def _check_options(format: str, options: dict[str, Any]) -> None:
    parameters = inspect.signature(_READERS[format]).parameters.values()
    allowed = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for name in options:
        if name not in allowed:
            raise InputError(f"the format {format} has no option `{name}`: it has {', '.join(allowed) or 'none'}")
