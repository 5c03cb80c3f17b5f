"""The page on which detections are reviewed, behind the other addresses of a model.

    GET  /review                    the page
    GET  /assets/review.js          its script
    GET  /api/review                images, how often each was saved, classes and their least scores
    POST /api/review/N              what is found in image N, and what was said about it
    POST /api/review/N/save         what somebody says about it: {"version", "objects", "rejected"}

In: an `Inference`, image records, a `ReviewFolder`. Out: `ReviewSite`, a `Site` for the server. An object that keeps
its mask gets that of its exemplar, refined by the photograph within the box as it was corrected. A save that was begun
from an older version of the image is refused with status 409.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.documents import is_number
from eesvm._support.validation import InputError
from eesvm.datasets.reviews import MOST_OBJECTS, ReviewFolder, StaleReviewError, checked_entry
from eesvm.images.masks import mask_to_rle
from eesvm.report.serving.inference import Inference
from eesvm.report.serving.messages import Response, json_response
from eesvm.report.serving.server import JSON_NEEDED, Site, Upload
from eesvm.structures import ExemplarAnnotation, ImageRecord
from eesvm.transfer.detections import hand_on_refined
from eesvm.transfer.refinement import mean_masks

_ASSETS = {
    "/review": ("review.html", "text/html; charset=utf-8"),
    "/assets/review.js": ("review.js", "text/javascript; charset=utf-8"),
    "/assets/review.css": ("review.css", "text/css; charset=utf-8"),
}
_IMAGE = re.compile(r"/api/review/(0|[1-9][0-9]{0,8})(/save)?")


class ReviewSite:
    """A model, and images on which its detections are reviewed.

    Parameters
    ----------
    site : the addresses of the model.
    inference : looks at images.
    records : the images.
    folder : where reviews are kept.
    exemplars : all of the model.
    least : by class, from which score on detections are shown. Default: all are.
    """

    def __init__(
        self,
        site: Site,
        inference: Inference,
        records: Sequence[ImageRecord],
        folder: ReviewFolder,
        exemplars: Sequence[ExemplarAnnotation],
        least: Mapping[str, float] | None = None,
    ) -> None:
        self._site, self._inference, self._folder = site, inference, folder
        self._records, self._exemplars, self._least = list(records), exemplars, dict(least or {})
        self._means = mean_masks(exemplars)
        self._numbers = {
            (one.class_name, one.image_id, one.index, one.is_mirrored): place for place, one in enumerate(exemplars)
        }
        assets = files("eesvm.report.serving") / "assets"
        self._assets = {
            target: Response((assets / name).read_bytes(), kind) for target, (name, kind) in _ASSETS.items()
        }

    def page(self, target: str) -> Response | None:
        """The answer to GET."""
        if target == "/api/review":
            try:
                return json_response(self._overview())
            except InputError as error:
                return _refused(error, 422)
        return self._assets.get(target) or self._site.page(target)

    def upload(self, target: str) -> Upload | None:
        """What takes a POST."""
        found = _IMAGE.fullmatch(target)
        if found is None or int(found[1]) >= len(self._records):
            return self._site.upload(target)
        record = self._records[int(found[1])]
        return Upload(_is_json, partial(self._answer, self._save if found[2] else self._look, record), JSON_NEEDED)

    def _overview(self) -> dict[str, Any]:
        versions = self._folder.versions()
        images = [{"name": one.image_id, "version": versions.get(one.image_id, 0)} for one in self._records]
        return {"images": images, "least": self._least, "folder": str(self._folder.root)}

    def _answer(self, work: Any, record: ImageRecord, body: bytes) -> Response:
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            return json_response({"error": "What was sent is not JSON."}, 400)
        try:
            if not isinstance(content, dict):
                raise InputError("An object is needed here.")
            return json_response(work(record, content))
        except StaleReviewError as error:
            return _refused(error, 409)
        except InputError as error:
            return _refused(error, 422)
        except OSError as error:  # of this machine, such as a full disk: what was sent may be sent again
            place = f" ({error.filename})" if error.filename is not None else ""
            return json_response({"error": f"The server cannot do this: {error.strerror or error}{place}."}, 500)
        except MemoryError:
            return json_response({"error": "There is not enough memory for this image."}, 422)

    def _look(self, record: ImageRecord, content: Mapping[str, Any]) -> dict[str, Any]:
        """What is found in an image, the image itself, and what was said about it."""
        answer = self._inference.detect_pixels(record.read())
        version = self._folder.versions().get(record.image_id, 0)  # first: what is saved from now on makes it old
        objects, rejected = self._folder.objects(record.image_id)
        said = {"objects": [self._shown(one) for one in objects], "rejected": [self._shown(one) for one in rejected]}
        return {**answer, "review": {"version": version, **said}}

    def _save(self, record: ImageRecord, content: Mapping[str, Any]) -> dict[str, Any]:
        version = content.get("version")
        if type(version) is not int or version < 0:
            raise InputError("`version` must be the version of the image that was reviewed.")
        lists = content.get("objects"), content.get("rejected")
        if not all(isinstance(one, list) and all(isinstance(each, dict) for each in one) for one in lists):
            raise InputError("`objects` and `rejected` must be lists of objects.")
        if max(len(one) for one in lists if one is not None) > MOST_OBJECTS:
            raise InputError(f"an image may have {MOST_OBJECTS:,} objects at most")
        saved, _ = self._folder.objects(record.image_id)
        masks = {_place(one): one["segmentation"] for one in saved if "segmentation" in one}
        pixels = record.read() if any(each.get("mask") is True for each in content["objects"]) else None
        objects, rejected = (
            [self._entry(each, record, masks, pixels, one is lists[0]) for each in one]
            for one in lists
            if one is not None
        )
        return {"version": self._folder.save(record, version, objects, rejected)}

    def _entry(
        self,
        given: Mapping[str, Any],
        record: ImageRecord,
        masks: Mapping[Any, Any],
        pixels: NDArray[np.uint8] | None,
        is_object: bool,
    ) -> dict[str, Any]:
        """An object with its exemplar by name, and with the mask that it keeps, as saved or refined."""
        kept = {key: given[key] for key in ("class", "bbox", "review", "score") if key in given}
        checked_entry(kept, record, is_object)  # before a mask is made for it
        if given.get("mask") is True and _place(given) in masks:
            kept["segmentation"] = masks[_place(given)]
        number = given.get("exemplar")
        if number is None:
            return kept
        if type(number) is not int or not 0 <= number < len(self._exemplars):
            n_all = len(self._exemplars)
            raise InputError(f"there is no exemplar {str(number)[:40]}: the model has {n_all}, counted from 0")
        winner = self._exemplars[number]
        identity = {"image_id": winner.image_id, "index": int(winner.index), "mirrored": int(winner.is_mirrored)}
        kept["exemplar"] = {"number": number, **identity}
        wants_mask = is_object and given.get("mask") is True and "segmentation" not in kept and winner.mask is not None
        if wants_mask and pixels is not None:
            x, y, width, height = given["bbox"]
            handed = hand_on_refined(winner, np.array([x, y, x + width, y + height]), pixels, self._means)
            if handed.mask is not None and handed.mask.any():
                kept["segmentation"] = mask_to_rle(handed.whole_mask())
        return kept

    def _shown(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """What the page wants to know of an entry; its exemplar may have another number in this model."""
        said = entry.get("exemplar")
        who: Any = None
        if isinstance(said, Mapping):
            who = entry["class"], said.get("image_id"), said.get("index"), bool(said.get("mirrored", 0))
        return {
            "class": entry["class"],
            "bbox": entry.get("bbox"),
            "review": entry.get("review"),
            "score": entry.get("score"),
            "exemplar": self._numbers.get(who),
            "has_mask": "segmentation" in entry,
        }


def _place(entry: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Class and box, which tell an object from others of its image."""
    box: Any = entry.get("bbox")
    is_box = isinstance(box, list) and len(box) == 4 and all(is_number(one) for one in box)
    return (entry.get("class"), *(round(float(one), 2) for one in box)) if is_box else None


def _is_json(media_type: str) -> bool:
    return media_type == "application/json"


def _refused(error: Exception, status: int) -> Response:
    sentence = " ".join(str(error).split())
    if not sentence.partition(" ")[0].endswith(":"):  # the name of a file stays as it is
        sentence = sentence[:1].upper() + sentence[1:]
    return json_response({"error": sentence + ("" if sentence.endswith(".") else ".")}, status)
