"""Detections as files: COCO results, VOC's text files, and CSV.

In: `Detections` per image. Out: a file or folder that other tools read, whole or not at all, and the same detections
again. All three hold image, class, score and box; COCO results and CSV also the winning exemplar. None has a place for
an image without detections: `searched_images` keeps which images were looked at. Readers return the images in the order
in which they first occur, each with its detections in decreasing order of score, equal ones in the order of the file;
what cannot be used is refused in one sentence with the file and the line or entry.
A folder that `eesvm detect` wrote is read by what is in it: detections.csv, else detections.json, else voc. Text says
of itself only by the end of its last line that it is whole: our CSV always has one and is refused without it, the CSV
and VOC files of others may lack it.

- CSV: `image_id,class,score,x1,y1,x2,y2,exemplar`; half-open boxes as everywhere in this package. Exact.
- COCO results (.json): a list of entries with `image_id`, `category_id`, `bbox` as x, y, width, height, and `score`,
  which pycocotools and faster-coco-eval load; `category_name`, `exemplar` and `eesvm_id` (an image id that is no
  number) are ours, others ignore them. Sides are rounded in their last bit.
- VOC: a folder with one `comp3_det_test_CLASS.txt` per class, lines `image_id score x1 y1 x2 y2`, where boxes count
  from 1 and include both ends: x1 + 1, y1 + 1, x2, y2. Corners are rounded in their last bits.

Not here: masks and parts that were carried over; see `transfer`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from eesvm._support.files import atomic_folder, atomic_write
from eesvm._support.validation import InputError
from eesvm.boxes import check_boxes
from eesvm.structures import Dataset, Detection, Detections

PathLike = str | os.PathLike[str]
Ids = Dataset | PathLike | Mapping[str, Any]

VOC_PREFIX = "comp3_det_test"
CSV_COLUMNS = ("image_id", "class", "score", "x1", "y1", "x2", "y2", "exemplar")

_VOC_NAME = re.compile(r"(comp\d+_det_[^_]+)_(.+)\.txt")
IN_FOLDER = ("detections.csv", "detections.json", "voc")  # what `eesvm detect` writes, the first one there is read
_LARGEST = 1e9  # of a coordinate, as in `boxes`
_LARGEST_EXEMPLAR = 2**53
_ROUNDING = 1e-6  # pixels by which an empty box may have become negative on its way through a file


def write_detections(path: PathLike, detections: Iterable[Detections], ids: Ids | None = None) -> None:
    """Write a .csv file, COCO results as .json, or, to any name without suffix, a folder of VOC text files.

    Parameters
    ----------
    path : the file or folder; an existing file is replaced, an existing folder is not.
    detections : of each image.
    ids : of COCO results, see `write_coco_results`; for VOC files a `Dataset` says which classes get a file in any
        case.
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".csv":
        write_csv_detections(path, detections)
    elif suffix == ".json":
        write_coco_results(path, detections, ids)
    elif not suffix:
        write_voc_detections(path, detections, ids.classes if isinstance(ids, Dataset) else ())
    else:
        raise InputError(f"{path} must end in .csv or .json, or be a folder for VOC text files")


def read_detections(path: PathLike, ids: Ids | None = None) -> list[Detections]:
    """Read what `write_detections` and `eesvm detect` write, and COCO results and VOC text files of other detectors.

    Parameters
    ----------
    path : a .csv or .json file, a folder of VOC text files, or the folder that `eesvm detect` wrote.
    ids : of COCO results, see `read_coco_results`.
    """
    place = locate_detections(path)
    if place.is_dir():
        return read_voc_detections(place)
    suffix = place.suffix.lower()
    if suffix == ".json":
        return read_coco_results(place, ids)
    if suffix == ".csv":
        return read_csv_detections(place)
    raise InputError(
        f"{path} is no file of detections: those are .csv, COCO results as .json, or a folder with VOC files"
    )


def locate_detections(path: PathLike) -> Path:
    """The file or folder of VOC files that `read_detections` reads: `path`, or what `eesvm detect` put in that folder.

    A folder with VOC files of its own is one of these, whatever else is in it.
    """
    place = Path(path)
    if not place.exists():
        raise InputError(f"{path} does not exist")
    if not place.is_dir() or any(_VOC_NAME.fullmatch(entry.name) for entry in place.iterdir()):
        return place
    for name in IN_FOLDER:
        if (place / name).exists():
            return place / name
    wanted = f"{VOC_PREFIX}_CLASS.txt, {', '.join(IN_FOLDER)}"
    raise InputError(f"{path} has no files of detections: looked for {wanted}")


def write_csv_detections(path: PathLike, detections: Iterable[Detections]) -> None:
    """Write one row per detection; numbers are written so that the same floats are read again.

    Parameters
    ----------
    path : the file to write; an existing one is replaced.
    detections : of each image.
    """
    with atomic_write(path, text=True) as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(CSV_COLUMNS)
        for row in _rows(detections):
            writer.writerow((row.image_id, row.class_name, row.score, *row.box.tolist(), row.exemplar))


def read_csv_detections(path: PathLike) -> list[Detections]:
    """Read a table with the columns image_id, class, score, x1, y1, x2, y2 and, if there, exemplar, in any order."""
    table = _Table()
    try:
        with open(path, encoding="utf-8-sig", newline="") as handle:
            text = handle.read()
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = [name.strip() for name in next(reader, [])]
        places = _csv_places(header, path)
        _check_csv_end(text, header, path)
        for cells in reader:
            if not cells:
                continue
            where = f"{os.fspath(path)}:{reader.line_num}"
            if len(cells) != len(header):
                raise InputError(f"{where}: the line has {len(cells)} columns, the header {len(header)}")
            _add_csv_line(table, cells, places, where)
    except csv.Error as error:
        raise InputError(f"{os.fspath(path)}:{reader.line_num}: it is not valid CSV: {error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{os.fspath(path)} is not a text file in UTF-8") from error
    return table.detections()


def write_coco_results(
    path: PathLike, detections: Iterable[Detections], ids: Ids | None = None, classes: Iterable[str] = ()
) -> None:
    """Write COCO results.

    Parameters
    ----------
    path : the file to write; an existing one is replaced.
    detections : of each image.
    ids : whose numbers images and categories get. The annotation file of a COCO dataset, or its content: the numbers
        in it, so that COCO's tools accept the results together with that file. A `Dataset`: the numbers that
        `write_coco` gives it, which are not those of the official file that it may have been read from. None: image
        ids that are whole numbers become numbers, others stay texts, which COCO's tools do not take; classes are
        numbered by name.
    classes : those that `ids` do not have get the next numbers; any other class that they do not have is an error.
    """
    found = list(detections)
    images, categories = coco_numbers(found, ids)
    categories = number_classes(categories, classes)
    with atomic_write(path, text=True) as handle:
        handle.write("[")
        for number, row in enumerate(_rows(found)):
            for table, key, what in ((images, row.image_id, "image"), (categories, row.class_name, "category")):
                if key not in table:
                    raise InputError(f"cannot write {os.fspath(path)}: the {what} {key!r} has no COCO id")
            x1, y1, x2, y2 = row.box.tolist()
            entry = {
                "image_id": images[row.image_id],
                "category_id": categories[row.class_name],
                "bbox": [x1, y1, x2 - x1, y2 - y1],
                "score": row.score,
                "category_name": row.class_name,
                "exemplar": row.exemplar,
                **({} if str(images[row.image_id]) == row.image_id else {"eesvm_id": row.image_id}),
            }
            handle.write((",\n" if number else "\n") + json.dumps(entry, allow_nan=False))
        handle.write("\n]\n")


def read_coco_results(path: PathLike, ids: Ids | None = None) -> list[Detections]:
    """Read COCO results.

    Parameters
    ----------
    path : of the .json file.
    ids : where numbers of images and categories get their names from, see `write_coco_results`; needed for files of
        other detectors, as ours hold the names.
    """
    entries = _load_json(path)
    if not isinstance(entries, list):
        raise InputError(f"{os.fspath(path)} holds no COCO results: they are a list of detections")
    names = _CocoNames.of(ids)
    table = _Table()
    for number, entry in enumerate(entries, start=1):
        where = f"{os.fspath(path)}, entry {number}"
        if not isinstance(entry, dict):
            raise InputError(f"{where}: it is no detection with image_id, category_id, bbox and score")
        for key in ("image_id", "category_id", "bbox", "score"):
            if key not in entry:
                raise InputError(f"{where}: it has no {key}")
        image_id, class_name = names.image(entry, where), names.category(entry, where)
        box = _coco_corners(entry["bbox"], where)
        table.add(image_id, class_name, entry["score"], box, entry.get("exemplar", -1), where)
    return table.detections()


def read_annotation_ids(paths: Iterable[PathLike]) -> dict[str, Any]:
    """What `ids` needs of COCO annotation files that describe one dataset: their `images` and `categories`.

    As for whoever reads that dataset, an entry that cannot be used is passed over, and so is a file, unless all are.
    """
    ids: dict[str, Any] = {"images": [], "categories": []}
    errors: list[Exception] = []
    n_read = 0
    for path in paths:
        try:
            document = _load_json(path)
            lists = {name: _entries(document, name, os.fspath(path)) for name in ids}
        except (InputError, OSError) as error:
            errors.append(error)
            continue
        ids["images"] += [entry for entry in lists["images"] if _has_id(entry)]
        ids["categories"] += [entry for entry in lists["categories"] if _has_id(entry) and _has_name(entry)]
        n_read += 1
    if errors and not n_read:
        raise errors[0]
    return ids


def write_voc_detections(
    folder: PathLike,
    detections: Iterable[Detections],
    classes: Iterable[str] = (),
    prefix: str = VOC_PREFIX,
    overwrite: bool = False,
) -> None:
    """Write a folder with one text file per class.

    Parameters
    ----------
    folder : to write, whole or not at all.
    detections : of each image.
    classes : they get a file even where nothing was found.
    prefix : of the file names, before the name of the class.
    overwrite : replace an existing folder, if it is empty or holds only what an earlier call wrote.
    """
    lines: dict[str, list[str]] = {name: [] for name in classes}
    for row in _rows(detections):
        check_voc_names([row.image_id])
        x1, y1, x2, y2 = row.box.tolist()
        numbers = " ".join(map(repr, (row.score, x1 + 1, y1 + 1, x2, y2)))
        lines.setdefault(row.class_name, []).append(f"{row.image_id} {numbers}\n")
    check_voc_names((), lines)
    with atomic_folder(folder, overwrite) as target:
        for name, texts in lines.items():
            (target / f"{prefix}_{name}.txt").write_text("".join(texts), encoding="utf-8")


def check_voc_names(image_ids: Iterable[str], classes: Iterable[str] = ()) -> None:
    """Refuse names that VOC text files cannot hold, which is better known before the search than after it.

    Parameters
    ----------
    image_ids : must have no spaces.
    classes : must be possible as a part of file names.
    """
    for image_id in image_ids:
        if image_id.split() != [image_id]:
            raise InputError(f"the image id {image_id!r} has spaces or is empty: VOC text files cannot hold it")
    for name in classes:
        if not name or name != name.strip() or re.search(r"[/\\\0\n]", name):
            raise InputError(f"the class {name!r} cannot be part of a file name")


def read_voc_detections(folder: PathLike, prefix: str | None = None) -> list[Detections]:
    """Read a folder of VOC text files, one per class; they hold no exemplars.

    Parameters
    ----------
    folder : with files named PREFIX_CLASS.txt.
    prefix : which files to read. Default: those named as in the challenge, such as comp3_det_test; several sets in one
        folder are refused.
    """
    table = _Table()
    for class_name, path in _voc_files(Path(folder), prefix):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not a text file in UTF-8") from error
        for number, line in enumerate(lines, start=1):
            cells = line.split()
            if not cells:
                continue
            where = f"{path}:{number}"
            if len(cells) != 6:
                raise InputError(f"{where}: the line has {len(cells)} columns, not image_id, score, x1, y1, x2, y2")
            values = [_parse(text, name, where) for text, name in zip(cells[1:], CSV_COLUMNS[2:7], strict=True)]
            score, x1, y1, x2, y2 = values
            table.add(cells[0], class_name, score, (x1 - 1, y1 - 1, x2, y2), -1, where)
    return table.detections()


def _rows(detections: Iterable[Detections]) -> Iterator[Detection]:
    """One by one, checked."""
    seen: set[str] = set()
    for entry in detections:
        if entry.image_id in seen:
            raise InputError(f"`detections` has two entries for the image {entry.image_id!r}")
        seen.add(entry.image_id)
        what = f"the detections of the image {entry.image_id!r}"
        boxes = check_boxes(entry.boxes, f"boxes of {entry.image_id}")
        scores = np.asarray(entry.scores, dtype=np.float64)
        if {len(boxes)} != {len(scores), len(entry.class_names), len(entry.exemplars)}:
            raise InputError(f"{what} must have equally many boxes, scores, class names and exemplars")
        if (boxes[:, 2:] < boxes[:, :2]).any():
            raise InputError(f"{what} have a box of negative width or height")
        if not np.isfinite(scores).all():
            raise InputError(f"{what} have a score that is NaN or infinite, which files do not hold")
        yield from replace(entry, boxes=boxes, scores=scores)


@dataclass
class _Table:
    """Detections while a file is being read, by image."""

    images: dict[str, list[tuple[str, float, Sequence[float], int]]] = field(default_factory=dict)

    def add(self, image_id: str, class_name: str, score: Any, box: Sequence[Any], exemplar: Any, where: str) -> None:
        """Check one detection, of which `where` says where it stands, and keep it."""
        corners = [_number(value, name, where) for value, name in zip(box, ("x1", "y1", "x2", "y2"), strict=True)]
        for low, high, side in ((0, 2, "width"), (1, 3, "height")):
            size = corners[high] - corners[low]
            if size < -_ROUNDING:
                raise InputError(f"{where}: its box has the negative {side} {size:g}")
            corners[high] = max(corners[high], corners[low])
        if max(map(abs, corners)) > _LARGEST:
            raise InputError(f"{where}: its box has a coordinate beyond {_LARGEST:g}")
        whole = _number(exemplar, "exemplar", where)
        if whole != int(whole) or not -1 <= whole <= _LARGEST_EXEMPLAR:
            raise InputError(f"{where}: its exemplar must be a whole number from -1, got {whole:g}")
        if not image_id or not class_name:
            raise InputError(f"{where}: its {'class' if image_id else 'image id'} is empty")
        row = (class_name, _number(score, "score", where), corners, int(whole))
        self.images.setdefault(image_id, []).append(row)

    def detections(self) -> list[Detections]:
        found = []
        for image_id, rows in self.images.items():
            names, scores, boxes, exemplars = zip(*sorted(rows, key=lambda row: -row[1]), strict=True)
            entry = Detections(
                image_id=image_id,
                boxes=np.array(boxes, dtype=np.float64),
                scores=np.array(scores, dtype=np.float64),
                class_names=np.array(names),
                exemplars=np.array(exemplars, dtype=np.int64),
            )
            found.append(entry)
        return found


def _number(value: Any, name: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}: its {name} must be a number, got {str(value)[:50]!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{where}: its {name} is NaN or infinite")
    return number


def _parse(text: str, name: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{where}: its {name} must be a number, got {text[:50]!r}") from None


def _csv_places(header: Sequence[str], path: PathLike) -> dict[str, int]:
    """Where each column is."""
    for name in CSV_COLUMNS:
        if header.count(name) > 1:
            raise InputError(f"{os.fspath(path)}:1: the column {name} is there twice")
        if name not in header and name != "exemplar":
            raise InputError(
                f"{os.fspath(path)}:1: there is no column {name}: {', '.join(CSV_COLUMNS[:-1])} are needed"
            )
    return {name: header.index(name) for name in CSV_COLUMNS if name in header}


def _check_csv_end(text: str, header: Sequence[str], path: PathLike) -> None:
    """Refuse a table of ours that ends within a line: its last number may be half of one, and still be a number."""
    if tuple(header) == CSV_COLUMNS and not text.endswith(("\n", "\r")):
        n_lines = text.count("\n") + 1
        raise InputError(
            f"{os.fspath(path)}:{n_lines}: the last line has no end, so the file may be cut off: eesvm "
            "ends every line that it writes; if the file is whole, add the line end"
        )


def _add_csv_line(table: _Table, cells: Sequence[str], places: Mapping[str, int], where: str) -> None:
    values = {name: _parse(cells[places[name]], name, where) for name in CSV_COLUMNS[2:] if name in places}
    box = [values[name] for name in ("x1", "y1", "x2", "y2")]
    image_id, class_name = cells[places["image_id"]], cells[places["class"]]
    table.add(image_id, class_name, values["score"], box, values.get("exemplar", -1), where)


def _voc_files(folder: Path, prefix: str | None) -> list[tuple[str, Path]]:
    """Class and path of each file of detections."""
    paths = sorted(path for path in folder.iterdir() if path.suffix == ".txt" and path.is_file())
    if prefix is not None:
        named = [(prefix, path.stem.removeprefix(f"{prefix}_"), path) for path in paths]
        named = [(first, name, path) for first, name, path in named if path.stem == f"{prefix}_{name}"]
    else:
        matches = [(_VOC_NAME.fullmatch(path.name), path) for path in paths]
        named = [(match.group(1), match.group(2), path) for match, path in matches if match is not None]
    if not named:
        wanted = "comp3_det_test_CLASS.txt" if prefix is None else f"{prefix}_CLASS.txt"
        raise InputError(f"{folder} has no files of detections: looked for {wanted}")
    prefixes = sorted({first for first, _, _ in named})
    if len(prefixes) > 1:
        raise InputError(f"{folder} holds several sets of detections, {' and '.join(prefixes)}: keep one in a folder")
    return [(name, path) for _, name, path in named]


def coco_numbers(
    found: Sequence[Detections], ids: Ids | None
) -> tuple[Mapping[str, int | str], Mapping[str, int | str]]:
    """Numbers of images and of categories in COCO files, two mappings from their names.

    Parameters
    ----------
    found : the detections; they count where `ids` is None.
    ids : whose numbers to take, see `write_coco_results`.
    """
    if isinstance(ids, Dataset):
        occurring = {instance.class_name for instance in ids.instances()}
        classes = [*ids.classes, *sorted(occurring.difference(ids.classes))]
        numbered = _whole_numbers([record.image_id for record in ids])
        if numbered is None:  # as `write_coco` does
            numbered = {record.image_id: number for number, record in enumerate(ids, start=1)}
        return numbered, {name: number for number, name in enumerate(classes, start=1)}
    if ids is not None:
        names = _CocoNames.of(ids)
        return {v: k for k, v in names.images.items()}, {v: k for k, v in names.categories.items()}
    image_ids = [entry.image_id for entry in found]
    classes = sorted({str(name) for entry in found for name in entry.class_names})
    whole = _whole_numbers(image_ids)
    images: dict[str, int | str] = {i: i for i in image_ids} if whole is None else {**whole}
    return images, {name: number for number, name in enumerate(classes, start=1)}


def number_classes(categories: Mapping[str, int | str], classes: Iterable[str]) -> dict[str, int | str]:
    """The numbers of categories in COCO files; those of `classes` that have none get the next ones.

    Parameters
    ----------
    categories : numbers by name.
    classes : names that need a number.
    """
    numbers = dict(categories)
    free = max((number for number in numbers.values() if isinstance(number, int)), default=0) + 1
    for name in classes:
        if name not in numbers:
            numbers[name] = free
            free += 1
    return numbers


def _whole_numbers(image_ids: Sequence[str]) -> dict[str, int] | None:
    """Image ids as numbers, where all of them are plain whole numbers of at most 18 digits."""
    if all(i.isascii() and i.isdigit() and str(int(i[:18])) == i for i in image_ids):
        return {image_id: int(image_id) for image_id in image_ids}
    return None


@dataclass(frozen=True)
class _CocoNames:
    """From the ids in a COCO file to names."""

    images: Mapping[int | str, str]
    categories: Mapping[int | str, str]
    is_complete: bool  # an id that is not in there is an error

    @classmethod
    def of(cls, ids: Ids | None) -> _CocoNames:
        if ids is None:
            return cls({}, {}, False)
        if isinstance(ids, Dataset):
            images, categories = coco_numbers((), ids)
            named: dict[int | str, str] = {record.image_id: record.image_id for record in ids}  # a file may use these
            named.update((number, image_id) for image_id, number in images.items())
            return cls(named, {v: k for k, v in categories.items()}, True)
        where = "the annotations" if isinstance(ids, Mapping) else os.fspath(ids)
        document = ids if isinstance(ids, Mapping) else _load_json(ids)
        images_by_id = _by_id(document, "images", _image_name, where)
        return cls(images_by_id, _by_id(document, "categories", lambda entry: str(entry["name"]).strip(), where), True)

    def image(self, entry: Mapping[str, Any], where: str) -> str:
        own = entry.get("eesvm_id")
        if isinstance(own, str):
            return own
        is_ours = "exemplar" in entry  # then the number is the name, of images in other splits, too
        return self._name(entry["image_id"], self.images, "image", where, self.is_complete and not is_ours)

    def category(self, entry: Mapping[str, Any], where: str) -> str:
        own = entry.get("category_name")
        if isinstance(own, str):
            return own
        if not self.is_complete:
            raise InputError(
                f"{where}: the name of its category_id {entry['category_id']!r} is not known: "
                "the annotation file of the dataset is needed, too"
            )
        return self._name(entry["category_id"], self.categories, "category", where, True)

    @staticmethod
    def _name(key: Any, names: Mapping[int | str, str], what: str, where: str, must_be_known: bool) -> str:
        if type(key) not in (int, str):
            raise InputError(f"{where}: its {what}_id must be a whole number or a text, got {str(key)[:50]!r}")
        if must_be_known and key not in names:
            raise InputError(f"{where}: its {what}_id {key!r} is not in the annotations")
        return names.get(key, str(key))


def _by_id(document: Any, name: str, text: Callable[[Mapping[str, Any]], str], where: str) -> dict[int | str, str]:
    names: dict[int | str, str] = {}
    for number, entry in enumerate(_entries(document, name, where), start=1):
        try:
            names.setdefault(entry["id"], text(entry))  # of two with one id the first counts, as for the reader
        except (TypeError, KeyError):
            raise InputError(f"{where}: entry {number} of `{name}` has no id or no name") from None
    return names


def _image_name(entry: Mapping[str, Any]) -> str:
    own = entry.get("eesvm_id")
    return own if isinstance(own, str) else str(entry["id"])


def _has_id(entry: Any) -> bool:
    return isinstance(entry, Mapping) and type(entry.get("id")) in (int, str)


def _has_name(entry: Mapping[str, Any]) -> bool:
    name = entry.get("name")
    return isinstance(name, str) and bool(name.strip())


def _entries(document: Any, name: str, where: str) -> list[Any]:
    entries = document.get(name) if isinstance(document, Mapping) else None
    if not isinstance(entries, list):
        raise InputError(f"{where}: it is no COCO file: it has no list `{name}`")
    return entries


def _load_json(path: PathLike) -> Any:
    try:
        with open(path, encoding="utf-8-sig") as handle:
            return json.load(handle)
    except json.JSONDecodeError as error:
        raise InputError(f"{os.fspath(path)}:{error.lineno}: it is not valid JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # bytes that are no text, numbers of thousands of digits, deep nests
        raise InputError(f"{os.fspath(path)}: it is not usable JSON: {error}") from error


def _coco_corners(box: Any, where: str) -> tuple[float, float, float, float]:
    if not isinstance(box, list) or len(box) != 4:
        raise InputError(f"{where}: its bbox must be four numbers, x, y, width and height")
    x, y, width, height = (_number(value, "bbox", where) for value in box)
    return x, y, x + width, y + height
