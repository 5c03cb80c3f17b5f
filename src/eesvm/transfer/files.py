"""Transferred annotations as files: COCO, VOC's XML, and images that number the objects.

In: the detections of images and what they inherit. Out: one COCO file, written while the images come, so that none of
their masks has to stay; the XML text and the index image of one image.

An annotation in the COCO file has the box of the detection, the mask as compressed run lengths, `score`, keypoints in
the order of its category, and, under keys that other tools ignore, `parts`, `pose`, `subcategory`, all other labels as
`attributes`, and `exemplar`: number in the model, image, index and class of the training object that won, and
`mirrored` where its mirror image did. Where several
vote, `votes` are those with their calibrated scores and weights, and `agreement` is the share of weight behind each
thing. What the exemplars say nothing about is not there. `open_dataset` reads such a file as any other COCO file.
Not here: pictures to look at, see `report.transfer_pictures`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from eesvm import boxes as geometry
from eesvm._support.extras import optional_module
from eesvm._support.files import atomic_write
from eesvm._support.version import __version__
from eesvm.datasets.tree import safe_name
from eesvm.datasets.voc_writer import annotation_xml, palette
from eesvm.datasets.writers import coco_box, relative_names
from eesvm.images.masks import VOID, mask_to_rle
from eesvm.metrics.detection_files import Ids, coco_numbers, number_classes
from eesvm.structures import Dataset, ExemplarAnnotation, ImageRecord, Instance
from eesvm.transfer.annotations import plain_json
from eesvm.transfer.detections import ImageDetections
from eesvm.transfer.inheritance import Agreement, TransferredAnnotation
from eesvm.transfer.target import KEYPOINTS

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_MASKS = VOID - 1  # that an index image tells apart, where 0 is background

_SUBCATEGORY = "subcategory"
_OWN_ID = "annotation_id"  # under which the COCO reader keeps the id of an annotation
_VISIBLE = 2  # COCO's word for a keypoint that is there, for those whose format has none

Handed = tuple[ImageDetections, Sequence[TransferredAnnotation]]


@dataclass(frozen=True)
class CocoNames:
    """What images and categories are called in a COCO file."""

    images: Mapping[str, int | str]  # numbers by image id
    files: Mapping[str, str]  # file names by image id
    categories: Mapping[str, int | str]  # numbers by class
    keypoints: Mapping[str, tuple[str, ...]]  # names of the keypoints of a class, in order


def coco_names(
    records: Sequence[ImageRecord], exemplars: Sequence[ExemplarAnnotation], ids: Ids | None = None
) -> CocoNames:
    """Names for images and for the classes of a model.

    Parameters
    ----------
    records : the images.
    exemplars : all of the model.
    ids : whose numbers to take, see `write_coco_results`. Classes that it does not have get the next numbers; where it
        does not have an image, all images are numbered anew. Default: images are numbered as they come where their ids
        are no numbers.
    """
    classes = tuple(dict.fromkeys(each.class_name for each in exemplars))
    own = Dataset("", tuple(records), classes)
    images, categories = coco_numbers((), own if ids is None else ids)
    if not all(record.image_id in images for record in records):
        images, _ = coco_numbers((), own)
    numbers = number_classes(categories, classes)
    keypoints: dict[str, dict[str, None]] = {}
    for each in exemplars:
        points = each.metadata.get(KEYPOINTS)
        if isinstance(points, Mapping):
            keypoints.setdefault(each.class_name, {}).update(dict.fromkeys(map(str, points)))
    return CocoNames(images, relative_names(own), numbers, {name: tuple(points) for name, points in keypoints.items()})


def write_coco_transfer(
    path: str | os.PathLike[str],
    handed: Iterable[Handed],
    exemplars: Sequence[ExemplarAnnotation],
    names: CocoNames,
    description: str = "",
) -> None:
    """Write images with their transferred annotations, whole or not at all.

    Parameters
    ----------
    path : the file to write; an existing one is replaced.
    handed : each image with the annotations of its detections, as `hand_on` gives them; gone through once.
    exemplars : all of the model.
    names : from `coco_names`.
    description : of the file.
    """
    images = []
    with atomic_write(path, text=True) as handle:
        about = {"description": description, "version": f"eesvm {__version__}"}
        handle.write(f'{{"info": {_json(about)},\n"annotations": [')
        number = 0
        for image, annotations in handed:
            images.append(_image_entry(image.record, names))
            for row, annotation in enumerate(annotations):
                handle.write(",\n" if number else "\n")
                number += 1
                entry = {"id": number, **_entry(image, row, annotation, exemplars, names)}
                handle.write(_json(entry))
        categories = [_category_entry(name, names) for name in names.categories]
        handle.write(f'\n],\n"images": {_json(images)},\n"categories": {_json(categories)}}}\n')


def voc_xml(
    image: ImageDetections,
    annotations: Sequence[TransferredAnnotation],
    exemplars: Sequence[ExemplarAnnotation],
    file_name: str,
) -> str:
    """The VOC annotation of an image; score and exemplar are tags of their own.

    Parameters
    ----------
    image : its detections.
    annotations : what each detection inherits, from `hand_on`.
    exemplars : all of the model.
    file_name : of the image, for the annotation.
    """
    record = image.record
    instances = []
    for row, (annotation, found) in enumerate(zip(annotations, image.detections, strict=True)):
        points = {KEYPOINTS: annotation.keypoints} if annotation.keypoints else {}
        extras = {"score": found.score, "exemplar": _identity(found.exemplar, exemplars), **points}
        instance = Instance(
            class_name=annotation.class_name,
            box=geometry.clip([annotation.box], record.width, record.height)[0],
            image_id=record.image_id,
            index=row,
            mask=annotation.whole_mask if annotation.mask is not None else None,
            parts=annotation.parts,
            pose=annotation.pose,
            metadata={**plain_json(handed_labels(annotation)), **extras},
        )
        instances.append(instance)
    return annotation_xml(replace(record, instances=tuple(instances)), file_name, "transferred by eesvm")


def index_image(record: ImageRecord, annotations: Sequence[TransferredAnnotation]) -> Image | None:
    """A palette image whose pixels number the annotations from 1; of two masks the first one has the pixel.

    None where no annotation has a mask. Only the first `MOST_MASKS` annotations find a place.

    Parameters
    ----------
    record : the image.
    annotations : what each of its detections inherits, from `hand_on`.
    """
    if not any(annotation.mask is not None for annotation in annotations):
        return None
    numbers = np.zeros((record.height, record.width), dtype=np.uint8)
    for number, annotation in reversed(list(enumerate(annotations[:MOST_MASKS], start=1))):
        if annotation.mask is not None:
            (x, y), (height, width) = annotation.offset, annotation.mask.shape
            numbers[y : y + height, x : x + width][annotation.mask] = number
    picture = optional_module("PIL.Image").fromarray(numbers)
    picture.putpalette(palette())
    return picture


def file_stem(image_id: str, names: CocoNames) -> str:
    """A relative path for files about an image: its id, or its number where the id would lead elsewhere.

    Parameters
    ----------
    image_id : of the image.
    names : from `coco_names`.
    """
    return image_id if safe_name(image_id) == image_id else f"image_{names.images[image_id]}"


def handed_labels(annotation: TransferredAnnotation) -> dict[str, Any]:
    """The metadata without the id that the exemplar's annotation has in its own file: it is no label."""
    return {key: value for key, value in annotation.metadata.items() if key != _OWN_ID}


def _image_entry(record: ImageRecord, names: CocoNames) -> dict[str, Any]:
    number = names.images[record.image_id]
    own = {} if str(number) == record.image_id else {"eesvm_id": record.image_id}
    size = {"width": record.width, "height": record.height}
    return {"id": number, "file_name": names.files[record.image_id], **size, **own}


def _category_entry(name: str, names: CocoNames) -> dict[str, Any]:
    points = {KEYPOINTS: list(names.keypoints[name])} if name in names.keypoints else {}
    return {"id": names.categories[name], "name": name, **points}


def _entry(
    image: ImageDetections,
    row: int,
    annotation: TransferredAnnotation,
    exemplars: Sequence[ExemplarAnnotation],
    names: CocoNames,
) -> dict[str, Any]:
    box = coco_box(annotation.box)
    (found,) = image.detections[row]
    # A mask of which nothing is left on a small box is none, as in the files of other tools.
    mask = annotation.mask if annotation.mask is not None and annotation.mask.any() else None
    optional: dict[str, Any] = {
        "pose": annotation.pose,
        _SUBCATEGORY: annotation.subcategory,
        "parts": [{"name": part.name, "bbox": coco_box(part.box)} for part in annotation.parts],
        "attributes": {key: value for key, value in handed_labels(annotation).items() if key != _SUBCATEGORY},
        **_keypoints(annotation, names.keypoints.get(found.class_name, ())),
        **_votes(image, row, annotation.agreement, exemplars),
    }
    return {
        "image_id": names.images[image.record.image_id],
        "category_id": names.categories[found.class_name],
        "bbox": box,
        "area": box[2] * box[3] if mask is None else int(np.count_nonzero(mask)),
        "iscrowd": 0,
        **({} if mask is None else {"segmentation": mask_to_rle(annotation.whole_mask())}),
        "score": found.score,
        "exemplar": _identity(found.exemplar, exemplars),
        **{key: value for key, value in plain_json(optional).items() if value not in (None, [], {})},
    }


def _keypoints(annotation: TransferredAnnotation, order: Sequence[str]) -> dict[str, Any]:
    """COCO's flat list: x, y and visibility of each, zeros for those that nobody knows."""
    if not annotation.keypoints:
        return {}
    points = [annotation.keypoints.get(name, (0.0, 0.0, 0)) for name in order]
    flat = [number for point in points for number in (*point[:2], int(point[2]) if len(point) > 2 else _VISIBLE)]
    return {KEYPOINTS: flat, "num_keypoints": len(annotation.keypoints)}


def _votes(
    image: ImageDetections, row: int, agreement: Agreement, exemplars: Sequence[ExemplarAnnotation]
) -> dict[str, Any]:
    voters = image.voters[row]
    if len(voters) == 1:
        return {}
    columns = zip(voters, image.scores[row], image.weights[row], strict=True)
    votes = [{**_identity(voter, exemplars), "score": s, "weight": weight} for voter, s, weight in columns]
    shares = {
        "mask": agreement.mask,
        "pose": agreement.pose,
        "parts": list(agreement.parts),
        KEYPOINTS: dict(agreement.keypoints),
        "attributes": dict(agreement.metadata),
    }
    return {"votes": votes, "agreement": {key: share for key, share in shares.items() if share}}


def _identity(number: int, exemplars: Sequence[ExemplarAnnotation]) -> dict[str, Any]:
    each = exemplars[number]
    own = {_OWN_ID: plain_json(each.metadata[_OWN_ID])} if _OWN_ID in each.metadata else {}
    sides = {"mirrored": True} if each.is_mirrored else {}
    return {"number": number, "image_id": each.image_id, "index": each.index, "class": each.class_name, **sides, **own}


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)
