"""Which images a detector was given: `images.csv` beside its detections, which have no place for an image without any.

In: detections per image, and the images that could not be read. Out: a table with a row per image, and from it the ids
of those that were searched and of those that could not be.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from eesvm._support.files import write_csv
from eesvm.metrics.detection_files import IN_FOLDER
from eesvm.structures import Detections

PathLike = str | os.PathLike[str]

SEARCH_NAME = "images.csv"
_COLUMNS = ("image_id", "status", "detections", "problem")
_SEARCHED, _UNREADABLE = "searched", "unreadable"


@dataclass(frozen=True)
class Search:
    """Which images a detector was given."""

    searched: frozenset[str]  # ids of those that were looked at
    unreadable: frozenset[str]  # of those that could not be


def write_search(path: PathLike, detections: Iterable[Detections], unreadable: Mapping[str, str]) -> None:
    """Write one row per image: its id, whether it was searched or could not be read, its detections, and the problem.

    Parameters
    ----------
    path : the file to write; an existing one is replaced.
    detections : of each image that was searched.
    unreadable : ids of images that could not be read, and why.
    """
    rows = [(one.image_id, _SEARCHED, len(one), "") for one in detections]
    rows += [(image_id, _UNREADABLE, 0, why) for image_id, why in unreadable.items()]
    write_csv(Path(path), [_COLUMNS, *rows])


def read_search(detections: PathLike) -> Search | None:
    """What `eesvm detect` wrote beside its detections about the images; None where there is no such file.

    Parameters
    ----------
    detections : the file, or folder of VOC text files, that `locate_detections` found.
    """
    place = Path(detections)
    if place.name not in IN_FOLDER:
        return None  # a file of its own, which what lies beside it may say nothing about
    path = place.parent / SEARCH_NAME
    try:
        with open(path, encoding="utf-8", newline="") as handle:
            header, *rows = csv.reader(handle, strict=True)
    except (OSError, ValueError, csv.Error):
        return None  # not written by eesvm: ignored
    if tuple(header) != _COLUMNS or any(len(row) != len(header) for row in rows):
        return None
    found = {status: frozenset(row[0] for row in rows if row[1] == status) for status in (_SEARCHED, _UNREADABLE)}
    return Search(found[_SEARCHED], found[_UNREADABLE])
