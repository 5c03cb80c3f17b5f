"""Detections as files of the tools in which people annotate: YOLO, Label Studio, CVAT and labelme.

In: images with what was found in them, with masks where exemplars hand some on. Out: a file or folder that the tool
imports, in which each object names the training object that won it:

- `yolo/`, `yolo-seg/`: data.yaml, labels/IMAGE.txt (`class cx cy width height`, or `class x1 y1 x2 y2 ...`, in shares
  of the image), and objects.csv, which has score and exemplar of each line: the format has no place for them. An object
  has one polygon: parts of a mask are connected by bridges without area, holes are filled. An object without mask is
  outlined by its box.
- `label_studio.json`: tasks with predictions; score and exemplar are in `score` and `meta`. `label_studio.xml` is the
  labelling interface that they need. Images are addressed as local files.
- `cvat.xml`: CVAT for images 1.1, boxes or masks with the attributes score and exemplar; `cvat_labels.json` are the
  labels to begin a task with.
- `labelme/IMAGE.json`: rectangles or polygons; score and exemplar are in `description`.

Boxes are cut to their image. Not here: COCO (`files`, `metrics.detection_files`) and VOC.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from eesvm import boxes as geometry
from eesvm._support.files import atomic_write
from eesvm._support.validation import InputError, check_choice
from eesvm._support.version import __version__
from eesvm.datasets.tree import safe_name
from eesvm.datasets.writers import relative_names
from eesvm.images.outlines import joined_polygon, mask_polygons
from eesvm.structures import Box, Dataset, Detections, ExemplarAnnotation, ImageRecord
from eesvm.transfer.choices import MASK_FORMATS
from eesvm.transfer.detections import check_winners
from eesvm.transfer.inheritance import TransferredAnnotation

_ATTRIBUTES = ("score", "exemplar")
_PERCENT = 100.0
_DECLARATION = '<?xml version="1.0" encoding="utf-8"?>\n'
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # names of files may have them


@dataclass(frozen=True)
class LabelledObject:
    """One object as a tool shows it."""

    class_name: str
    box: Box  # (4,) within the image
    score: float
    exemplar: int  # number in the model, -1 for none
    origin: str  # the training object in words, "" for none
    mask: NDArray[np.bool_] | None = None  # a piece of the image
    offset: tuple[int, int] = (0, 0)  # x, y of the piece

    @property
    def text(self) -> str:
        """The exemplar, by number and in words; "" for none."""
        return f"{self.exemplar}: {self.origin}" if self.exemplar >= 0 else ""

    def polygons(self) -> list[NDArray[np.float64]]:
        """(k, 2) corners of the parts of the mask, or of the box."""
        parts = [] if self.mask is None else mask_polygons(self.mask)
        if parts:
            return [part + self.offset for part in parts]
        x1, y1, x2, y2 = self.box
        return [np.array([[x1, y1], [x2, y1], [x2, y2], [x1, y2]])]


@dataclass(frozen=True)
class LabelledImage:
    """One image with its objects."""

    record: ImageRecord
    stem: str  # of files about it
    file_name: str  # of the image, below the folder that all images share
    objects: tuple[LabelledObject, ...]


def labelled_images(
    records: Sequence[ImageRecord],
    found: Iterable[Detections],
    exemplars: Sequence[ExemplarAnnotation],
    handed: Iterable[Sequence[TransferredAnnotation]] | None = None,
) -> Iterator[LabelledImage]:
    """Images as `write_labels` takes them, one by one; a detection outside its image is left out.

    Parameters
    ----------
    records : the images; those of `found` must be among them.
    found : the detections of each image.
    exemplars : all of the model.
    handed : what the detections of each image inherit, from `hand_on`. Default: boxes alone.
    """
    names = relative_names(Dataset("", tuple(records), ()))
    numbers = {record.image_id: number for number, record in enumerate(records)}
    annotations = iter(handed) if handed is not None else None
    for one in found:
        if one.image_id not in numbers:
            raise InputError(f"the image {one.image_id!r} of the detections is not among those given")
        check_winners(one, exemplars)
        record = records[numbers[one.image_id]]
        is_safe = safe_name(one.image_id) == one.image_id
        stem = one.image_id if is_safe else f"image_{numbers[one.image_id] + 1}"
        own = next(annotations) if annotations is not None else (None,) * len(one)
        yield LabelledImage(record, stem, names[one.image_id], tuple(_objects(record, one, exemplars, own)))


def write_labels(
    folder: Path, kind: str, images: Iterable[LabelledImage], classes: Sequence[str], place: str | os.PathLike[str] = ""
) -> None:
    """Write the files of one tool into an existing folder.

    Parameters
    ----------
    folder : to write into.
    kind : one of `MASK_FORMATS`.
    images : with their objects.
    classes : of the model: they number YOLO's classes and name the labels.
    place : where `folder` will lie in the end, for relative paths from labelme's files. Default: where it is.
    """
    check_choice(kind, "kind", MASK_FORMATS)
    if kind == "label-studio":
        _write_label_studio(folder, images, classes)
    elif kind == "cvat":
        _write_cvat(folder, images, classes)
    elif kind == "labelme":
        _write_labelme(folder / "labelme", images, Path(place or folder) / "labelme")
    else:
        _write_yolo(folder / kind, images, classes, with_masks=kind == "yolo-seg")


def _objects(
    record: ImageRecord,
    found: Detections,
    exemplars: Sequence[ExemplarAnnotation],
    handed: Sequence[TransferredAnnotation | None],
) -> Iterator[LabelledObject]:
    for one, own in zip(found, handed, strict=True):
        box = geometry.clip([one.box], record.width, record.height)[0]
        if box[2] <= box[0] or box[3] <= box[1]:
            continue
        winner = exemplars[one.exemplar] if one.exemplar >= 0 else None
        origin = "" if winner is None else f"{winner.image_id}, object {winner.index + 1}"
        mask, offset = (None, (0, 0)) if own is None else (own.mask, own.offset)
        yield LabelledObject(one.class_name, box, one.score, one.exemplar, origin, mask, offset)


# YOLO


def _write_yolo(folder: Path, images: Iterable[LabelledImage], classes: Sequence[str], with_masks: bool) -> None:
    numbers = {name: number for number, name in enumerate(classes)}
    rows: list[Sequence[Any]] = [("labels", "line", "image", "class", "score", "exemplar", "training_object")]
    for image in images:
        name, lines = f"labels/{image.stem}.txt", []
        for line, one in enumerate(image.objects, start=1):
            shares = _yolo_shares(one, image.record, with_masks)
            lines.append(" ".join([str(numbers[one.class_name]), *(f"{share:.6f}" for share in shares)]))
            rows.append((name, line, image.file_name, one.class_name, one.score, one.exemplar, one.origin))
        _write_text(folder / name, "".join(f"{line}\n" for line in lines))
    # JSON is YAML, and quotes every name that needs it.
    listed = "".join(f"  {number}: {json.dumps(name)}\n" for name, number in numbers.items())
    _write_text(folder / "data.yaml", f"# Put the images into images/ beside labels/.\ntrain: images\nnames:\n{listed}")
    with atomic_write(folder / "objects.csv", text=True) as handle:
        csv.writer(handle, lineterminator="\n").writerows(rows)


def _yolo_shares(one: LabelledObject, record: ImageRecord, with_masks: bool) -> list[float]:
    size = np.array([record.width, record.height], dtype=np.float64)
    if with_masks:
        return np.clip(joined_polygon(one.polygons()) / size, 0, 1).ravel().tolist()
    low, high = one.box[:2] / size, one.box[2:] / size
    return [*((low + high) / 2).tolist(), *(high - low).tolist()]


# Label Studio


def _write_label_studio(folder: Path, images: Iterable[LabelledImage], classes: Sequence[str]) -> None:
    tasks = []
    for image in images:
        results = [
            result for row, one in enumerate(image.objects) for result in _label_studio_results(one, image.record, row)
        ]
        best = max((one.score for one in image.objects), default=0.0)
        tasks.append(
            {
                "data": {"image": f"/data/local-files/?d={quote(image.file_name)}"},
                "predictions": [{"model_version": f"eesvm {__version__}", "score": best, "result": results}],
            }
        )
    _write_json(folder / "label_studio.json", tasks)
    view = ElementTree.Element("View")
    ElementTree.SubElement(view, "Image", name="image", value="$image")
    for name, kind in (("box", "RectangleLabels"), ("outline", "PolygonLabels")):
        labels = ElementTree.SubElement(view, kind, name=name, toName="image")
        for each in classes:
            ElementTree.SubElement(labels, "Label", value=each)
    _write_xml(folder / "label_studio.xml", view, head="")  # to be pasted, where a declaration is an error


def _label_studio_results(one: LabelledObject, record: ImageRecord, row: int) -> Iterator[dict[str, Any]]:
    """A rectangle, or a polygon for each part of a mask; sides are percentages of the image."""
    size = np.array([record.width, record.height], dtype=np.float64)
    common = {
        "to_name": "image",
        "original_width": record.width,
        "original_height": record.height,
        "image_rotation": 0,
        "score": one.score,
        "meta": {"text": [f"exemplar {one.text}"] if one.text else []},
    }
    if one.mask is None or not one.mask.any():
        (x1, y1), (x2, y2) = _PERCENT * one.box[:2] / size, _PERCENT * one.box[2:] / size
        sides = {"x": float(x1), "y": float(y1), "width": float(x2 - x1), "height": float(y2 - y1), "rotation": 0}
        value = {**sides, "rectanglelabels": [one.class_name]}
        yield {"id": f"object{row}", "type": "rectanglelabels", "from_name": "box", **common, "value": value}
        return
    for part, polygon in enumerate(one.polygons()):
        value = {"points": (_PERCENT * polygon / size).tolist(), "closed": True, "polygonlabels": [one.class_name]}
        name = f"object{row}" if part == 0 else f"object{row}_{part}"
        yield {"id": name, "type": "polygonlabels", "from_name": "outline", **common, "value": value}


# CVAT


def _write_cvat(folder: Path, images: Iterable[LabelledImage], classes: Sequence[str]) -> None:
    root = ElementTree.Element("annotations")
    ElementTree.SubElement(root, "version").text = "1.1"
    task = ElementTree.SubElement(ElementTree.SubElement(root, "meta"), "task")
    ElementTree.SubElement(task, "name").text = f"eesvm {__version__}"
    labels = ElementTree.SubElement(task, "labels")
    for name in classes:
        label = ElementTree.SubElement(labels, "label")
        ElementTree.SubElement(label, "name").text = name
        attributes = ElementTree.SubElement(label, "attributes")
        for each in _ATTRIBUTES:
            attribute = ElementTree.SubElement(attributes, "attribute")
            about = {"name": each, "mutable": "False", "input_type": "text", "default_value": "", "values": ""}
            for tag, text in about.items():
                ElementTree.SubElement(attribute, tag).text = text
    for number, image in enumerate(images):
        size = {"width": str(image.record.width), "height": str(image.record.height)}
        entry = ElementTree.SubElement(root, "image", {"id": str(number), "name": image.file_name, **size})
        for one in image.objects:
            shape = _cvat_shape(entry, one)
            for each, text in zip(_ATTRIBUTES, (f"{one.score:.6g}", one.text), strict=True):
                ElementTree.SubElement(shape, "attribute", name=each).text = text
    _write_xml(folder / "cvat.xml", root)
    text_attribute = {"mutable": False, "input_type": "text", "default_value": "", "values": [""]}
    attributes_of_all = [{"name": each, **text_attribute} for each in _ATTRIBUTES]
    _write_json(folder / "cvat_labels.json", [{"name": name, "attributes": attributes_of_all} for name in classes])


def _cvat_shape(entry: ElementTree.Element, one: LabelledObject) -> ElementTree.Element:
    common = {"label": one.class_name, "source": "auto", "occluded": "0", "z_order": "0"}
    if one.mask is None or not one.mask.any():
        corners = dict(zip(("xtl", "ytl", "xbr", "ybr"), (f"{value:.2f}" for value in one.box), strict=True))
        return ElementTree.SubElement(entry, "box", common | corners)
    height, width = one.mask.shape
    pixels = one.mask.ravel()  # row by row
    edges = np.concatenate([[0], np.flatnonzero(pixels[1:] != pixels[:-1]) + 1, [pixels.size]])
    runs = ([0] if pixels[0] else []) + np.diff(edges).tolist()  # they begin outside
    place = {"left": str(one.offset[0]), "top": str(one.offset[1]), "width": str(width), "height": str(height)}
    return ElementTree.SubElement(entry, "mask", common | {"rle": ", ".join(map(str, runs))} | place)


# labelme


def _write_labelme(folder: Path, images: Iterable[LabelledImage], place: Path) -> None:
    for image in images:
        record, file = image.record, f"{image.stem}.json"
        path = os.path.relpath(record.path, (place / file).parent) if record.path else image.file_name
        shapes = [shape for number, one in enumerate(image.objects) for shape in _labelme_shapes(one, number)]
        document: dict[str, Any] = {
            "version": "5.5.0",
            "flags": {},
            "shapes": shapes,
            "imagePath": path,
            "imageData": None,
            "imageHeight": record.height,
            "imageWidth": record.width,
        }
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        _write_json(folder / file, document)


def _labelme_shapes(one: LabelledObject, number: int) -> Iterator[dict[str, Any]]:
    """A rectangle, or a polygon for each part of a mask; parts of one object are a group."""
    is_box = one.mask is None or not one.mask.any()
    outlines = [one.box.reshape(2, 2)] if is_box else one.polygons()
    exemplar = f", exemplar {one.text}" if one.text else ""
    for points in outlines:
        yield {
            "label": one.class_name,
            "points": points.tolist(),
            "group_id": number if len(outlines) > 1 else None,
            "description": f"score {one.score:.6g}{exemplar}",
            "shape_type": "rectangle" if is_box else "polygon",
            "flags": {},
        }


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, text=True) as handle:
        handle.write(text)


def _write_json(path: Path, content: Any) -> None:
    _write_text(path, json.dumps(content, allow_nan=False, ensure_ascii=False, indent=1) + "\n")


def _write_xml(path: Path, root: ElementTree.Element, head: str = _DECLARATION) -> None:
    ElementTree.indent(root)
    text = _NOT_XML.sub("?", ElementTree.tostring(root, encoding="unicode"))
    _write_text(path, f"{head}{text}\n")
