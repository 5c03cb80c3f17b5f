"""What people have said about detections: a COCO dataset that also knows what was rejected, and of which model.

    REVIEW/instances.json     COCO; `rejected` is a list of its own, which other tools ignore
    REVIEW/images/            the images that were reviewed

In: for an image the objects that were accepted, corrected or drawn, and the detections that were rejected. Out: a
folder that `open_dataset` and COCO's tools read, and `Review`: the rejected boxes and the hash of the model's card.
Every image has a version, and a save that was begun from an older one is refused, so that of two people who review one
image the second hears of the first. The file is read, changed and replaced under a lock, whole or not at all.
Detections that nobody has decided about are kept as difficult objects: neither examples nor background.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import category

from eesvm._support.digests import file_digest
from eesvm._support.documents import is_number
from eesvm._support.files import atomic_write
from eesvm._support.validation import InputError
from eesvm.datasets.tree import is_image, safe_name
from eesvm.images.files import write_image
from eesvm.images.masks import check_rle
from eesvm.structures import ImageRecord

REVIEW_NAME = "instances.json"
ACCEPTED, CORRECTED, DRAWN, UNDECIDED = "accepted", "corrected", "drawn", "undecided"

_KEY, _VERSION = "eesvm_review", 1
_LISTS = ("images", "annotations", "categories", "rejected")
_MAX_BYTES = 1 << 28
MOST_OBJECTS = 10_000  # of an image
_LARGEST = 1e9
_LONGEST_NAME = 200


class StaleReviewError(InputError):
    """Somebody else has reviewed the image in the meantime."""


@dataclass(frozen=True)
class Review:
    """A review as `eesvm add` wants it."""

    model: str  # hash of the card of the model whose detections were reviewed
    rejected: Mapping[str, tuple[tuple[str, tuple[float, ...]], ...]]  # image -> class and box


def find_review(path: str | os.PathLike[str]) -> Path | None:
    """The file of a review, where `path` is one or a folder with one."""
    place = Path(path)
    file = place / REVIEW_NAME if place.is_dir() else place
    if file.suffix.lower() != ".json" or not file.is_file():
        return None
    try:
        content = _load(file)
    except InputError:
        return None  # whoever reads it as a dataset says what is wrong
    about = content.get("info") if isinstance(content, dict) else None
    return file if isinstance(about, dict) and _KEY in about else None


def read_review(file: str | os.PathLike[str]) -> Review:
    """The rejected boxes in a review, and of which model it is."""
    content = _checked(Path(file), _load(Path(file)))
    images = {entry["id"]: entry.get("eesvm_id", str(entry["id"])) for entry in content["images"]}
    names = {entry["id"]: entry["name"] for entry in content["categories"]}
    rejected: dict[str, list[tuple[str, tuple[float, ...]]]] = {image_id: [] for image_id in images.values()}
    for number, entry in enumerate(content["rejected"], start=1):
        where = f"{os.fspath(file)}: entry {number} of `rejected`"
        if not isinstance(entry, dict) or entry.get("image_id") not in images or entry.get("category_id") not in names:
            raise InputError(f"{where} must name an image and a category of the file")
        x, y, width, height = _check_box(entry.get("bbox"), where)
        own = names[entry["category_id"]], (x, y, x + width, y + height)
        rejected[images[entry["image_id"]]].append(own)
    return Review(content["info"][_KEY]["model"], {image_id: tuple(own) for image_id, own in rejected.items()})


class ReviewFolder:
    """A folder in which reviews of images are kept.

    Parameters
    ----------
    folder : to be made where it is not there.
    model : hash of the card of the model whose detections are reviewed.
    ancestors : hashes of models that it has grown from, whose reviews are continued.
    """

    def __init__(self, folder: str | os.PathLike[str], model: str, ancestors: Sequence[str] = ()) -> None:
        self.root, self.file, self.model = Path(folder), Path(folder) / REVIEW_NAME, model
        self._lock = threading.Lock()
        if self.root.exists() and not self.root.is_dir():
            raise InputError(f"{folder} is not a folder")
        if self.root.is_dir() and not self.file.exists() and any(_visible(self.root)):
            raise InputError(
                f"{folder} is not a review: it holds {next(_visible(self.root)).name} and no {REVIEW_NAME}"
            )
        if self.file.exists():
            found = _checked(self.file, _load(self.file))["info"][_KEY]["model"]
            if found != model and found not in ancestors:
                raise InputError(f"{self.file} is a review of another model: name another folder")

    def versions(self) -> dict[str, int]:
        """By image, how often it has been saved."""
        return {_name(entry): _saved(entry) for entry in self._content()["images"]}

    def objects(self, image_id: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What was said about an image: entries of objects and of what was rejected, classes by name."""
        content = self._content()
        names = {entry["id"]: entry["name"] for entry in content["categories"]}
        number = next((entry["id"] for entry in content["images"] if _name(entry) == image_id), None)
        lists = ([e for e in content[key] if e["image_id"] == number] for key in ("annotations", "rejected"))
        objects, rejected = ([{**entry, "class": names[entry["category_id"]]} for entry in own] for own in lists)
        return objects, rejected

    def save(
        self,
        record: ImageRecord,
        version: int,
        objects: Sequence[Mapping[str, Any]],
        rejected: Sequence[Mapping[str, Any]],
    ) -> int:
        """Replace what is said about an image; returns its new version.

        Parameters
        ----------
        record : the image, which is copied into the folder.
        version : that the review was begun from, 0 for none.
        objects : each with `class`, `bbox` (x, y, width, height) and `review`, perhaps `segmentation` (run lengths of
            the whole image), `score` and `exemplar`.
        rejected : each with `class` and `bbox`, perhaps `score` and `exemplar`.

        Raises
        ------
        StaleReviewError : the image has another version by now.
        InputError : an object cannot be kept.
        """
        if any(category(one) == "Cs" for one in record.image_id):  # how Python reads bytes that are not UTF-8
            raise InputError(f"the name of {record.image_id!a} is not UTF-8: give the file another name")
        entries = [checked_entry(one, record, is_object=True) for one in objects[: MOST_OBJECTS + 1]]
        refused = [checked_entry(one, record, is_object=False) for one in rejected[: MOST_OBJECTS + 1]]
        if max(len(entries), len(refused)) > MOST_OBJECTS:
            raise InputError(f"an image may have {MOST_OBJECTS:,} objects at most")
        with self._locked():
            content = self._content()
            image = next((entry for entry in content["images"] if _name(entry) == record.image_id), None)
            if (0 if image is None else _saved(image)) != version:
                raise StaleReviewError(
                    f"somebody else has reviewed {record.image_id} in the meantime: look at it again before you save"
                )
            if image is None:
                image = self._added(content, record)
            else:
                self._check_same(image, record)
            image["review"] = {"version": version + 1}
            self._put(content, image["id"], entries, refused)
            content["info"][_KEY] = {"format_version": _VERSION, "model": self.model}
            with atomic_write(self.file, text=True) as handle:
                handle.write(json.dumps(content, allow_nan=False, ensure_ascii=False, indent=1) + "\n")
        return version + 1

    def _put(self, content: dict[str, Any], number: int, entries: list[Any], refused: list[Any]) -> None:
        categories = {entry["name"]: entry["id"] for entry in content["categories"]}
        for name in dict.fromkeys(entry["class"] for entry in (*entries, *refused)):
            if name not in categories:
                categories[name] = max(categories.values(), default=0) + 1
                content["categories"].append({"id": categories[name], "name": name})
        for key, own in (("annotations", entries), ("rejected", refused)):
            kept = [entry for entry in content[key] if entry["image_id"] != number]
            free = max((entry.get("id", 0) for entry in kept), default=0) + 1
            for place, entry in enumerate(own):
                named = {"id": free + place, "image_id": number, "category_id": categories[entry["class"]]}
                kept.append(named | {name: value for name, value in entry.items() if name != "class"})
            content[key] = kept

    def _added(self, content: dict[str, Any], record: ImageRecord) -> dict[str, Any]:
        """The entry of an image that is new, and its file among ours."""
        number = max((entry["id"] for entry in content["images"]), default=0) + 1
        is_file = bool(record.path) and is_image(record.path)
        stem = record.image_id if safe_name(record.image_id) == record.image_id else f"image_{number}"
        name = stem + (Path(record.path).suffix if is_file else ".png")
        target = self.root / "images" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if is_file:
            temporary = target.with_name(f".{target.name}.part")
            shutil.copyfile(record.path, temporary)
            os.replace(temporary, target)
        else:
            write_image(target, record.read())
        size = {"width": record.width, "height": record.height}
        entry = {"id": number, "file_name": name, **size, "eesvm_id": record.image_id}
        content["images"].append(entry)
        return entry

    def _check_same(self, image: Mapping[str, Any], record: ImageRecord) -> None:
        """Refuse another photograph of the same name."""
        mine = self.root / "images" / (safe_name(str(image.get("file_name"))) or "")
        if (
            record.path
            and is_image(record.path)
            and mine.is_file()
            and file_digest(mine) != file_digest(Path(record.path))
        ):
            raise InputError(f"the review has another photograph called {record.image_id}: name another folder")

    def _content(self) -> dict[str, Any]:
        if not self.file.exists():
            about = {"description": "reviewed detections", _KEY: {"format_version": _VERSION, "model": self.model}}
            return {"info": about, "images": [], "categories": [], "annotations": [], "rejected": []}
        return _checked(self.file, _load(self.file))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """No other thread or process changes the file meanwhile."""
        self.root.mkdir(parents=True, exist_ok=True)
        with self._lock, open(self.root / ".lock", "w", encoding="utf-8") as handle:
            with suppress(ImportError, OSError):  # a system without such locks has one server at a time
                import fcntl

                fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def _visible(folder: Path) -> Iterator[Path]:
    return (entry for entry in sorted(folder.iterdir()) if not entry.name.startswith("."))


def _name(entry: Mapping[str, Any]) -> str:
    return entry.get("eesvm_id", str(entry["id"]))


def _saved(entry: Mapping[str, Any]) -> int:
    return entry.get("review", {}).get("version", 0)


def _load(file: Path) -> Any:
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise InputError(f"{file}: it is too large to be a review")
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: it cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{file}: it is not JSON, or it is damaged") from None


def _checked(file: Path, content: Any) -> dict[str, Any]:
    """The content, if it is that of a review."""
    about = content.get("info") if isinstance(content, dict) else None
    own = about.get(_KEY) if isinstance(about, dict) else None
    if not isinstance(own, dict) or not isinstance(own.get("model"), str):
        raise InputError(f"{file}: it is not a review: there is no `info.{_KEY}` that names a model")
    if own.get("format_version") != _VERSION:
        raise InputError(f"{file}: its format version must be {_VERSION}, got {own.get('format_version')!r}")
    for key in _LISTS:
        if not isinstance(content.get(key), list) or not all(isinstance(entry, dict) for entry in content[key]):
            raise InputError(f"{file}: `{key}` must be a list of objects")
    for key, text in (("images", "eesvm_id"), ("categories", "name")):
        for entry in content[key]:
            if type(entry.get("id")) is not int or not isinstance(
                entry.get(text, "" if key == "images" else None), str
            ):
                raise InputError(f"{file}: an entry of `{key}` has no whole number as id, or no name")
            review = entry.get("review", {})
            if not isinstance(review, dict) or type(review.get("version", 0)) is not int:
                raise InputError(f"{file}: `review` of an image must hold its version")
    known = {key: {entry["id"] for entry in content[key]} for key in ("images", "categories")}
    for key in ("annotations", "rejected"):
        for entry in content[key]:
            pair = entry.get("image_id"), entry.get("category_id")
            if not all(type(number) is int for number in pair) or type(entry.get("id", 0)) is not int:
                raise InputError(f"{file}: an entry of `{key}` must have whole numbers as ids")
            if pair[0] not in known["images"] or pair[1] not in known["categories"]:
                raise InputError(f"{file}: an entry of `{key}` names an image or a category that is not there")
    return content


def checked_entry(given: Mapping[str, Any], record: ImageRecord, is_object: bool) -> dict[str, Any]:
    """What is kept of an object, or of what was rejected, once it has been checked.

    Parameters
    ----------
    given : what was said about it, see `ReviewFolder.save`.
    record : the image that it is in.
    is_object : whether it is an object; else it was rejected.

    Raises
    ------
    InputError : it cannot be kept.
    """
    what = f"an object of {record.image_id}"
    if not isinstance(given, Mapping) or not isinstance(given.get("class"), str) or not given["class"].strip():
        raise InputError(f"{what} has no class")
    if len(given["class"]) > _LONGEST_NAME or any(category(one) in ("Cc", "Cs") for one in given["class"]):
        raise InputError(f"the class of {what} must be a name of up to {_LONGEST_NAME} characters that can be shown")
    box = _within(_check_box(given.get("bbox"), what), record)
    if box[2] <= 0 or box[3] <= 0:
        raise InputError(f"the box of {what} has no area within the image")
    entry: dict[str, Any] = {"class": given["class"], "bbox": box}
    if given.get("score") is not None:
        if not is_number(given["score"]):
            raise InputError(f"the score of {what} must be a number")
        entry["score"] = float(given["score"])
    if isinstance(given.get("exemplar"), Mapping):
        entry["exemplar"] = {str(key): value for key, value in given["exemplar"].items() if is_plain(value)}
    if not is_object:
        return entry
    state = given.get("review")
    if state not in (ACCEPTED, CORRECTED, DRAWN, UNDECIDED):
        raise InputError(f"`review` of {what} must be accepted, corrected, drawn or undecided, got {str(state)[:40]!r}")
    entry |= {"review": state, "iscrowd": 0, "area": box[2] * box[3], "difficult": int(state == UNDECIDED)}
    if given.get("segmentation") is not None:
        entry |= _mask(given["segmentation"], record, what)
    return entry


def is_plain(value: Any) -> bool:
    """Whether a value is a text, a whole number or nothing."""
    return value is None or isinstance(value, str) or type(value) is int


def _mask(rle: Any, record: ImageRecord, what: str) -> dict[str, Any]:
    try:
        runs, height, width = check_rle(rle)
    except (InputError, TypeError, KeyError, ValueError) as error:
        raise InputError(f"the mask of {what} cannot be used: {error}") from None
    if (width, height) != (record.width, record.height):
        raise InputError(
            f"the mask of {what} has {width} x {height} pixels, its image {record.width} x {record.height}"
        )
    area = int(runs[1::2].sum())
    return {"segmentation": dict(rle), "area": area} if area else {}


def _within(box: tuple[float, float, float, float], record: ImageRecord) -> list[float]:
    x, y, width, height = box
    left, top = max(0.0, x), max(0.0, y)
    return [left, top, min(float(record.width), x + width) - left, min(float(record.height), y + height) - top]


def _check_box(box: Any, where: str) -> tuple[float, float, float, float]:
    if not isinstance(box, list) or len(box) != 4 or not all(is_number(value) for value in box):
        raise InputError(f"{where} must have a `bbox` of four numbers")
    x, y, width, height = (float(value) for value in box)
    if max(abs(x), abs(y), width, height) > _LARGEST or width < 0 or height < 0:
        raise InputError(f"{where} has a `bbox` that is no box")
    return x, y, width, height
