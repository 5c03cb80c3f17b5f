"""From the bytes of an image to plain data: detections, the exemplars behind them, and what those transfer.

In: a detector, and for each image its bytes and the recall floors that are known by then. Out: dictionaries and lists
of numbers and texts that JSON can hold, and pictures of exemplars as JPEG. Nothing is kept from one image to the next.

A recall floor decides which windows stay: those that some exemplar of the class accepts under the thresholds of that
floor. The calibrator of the model ranks what stays and names the winner. Suppression comes after that choice, so it is
done once for every floor and once without: a window that a floor rejects suppresses nobody. A least score needs no
suppression of its own, because windows that score less never suppress better ones. The answer is the union of these
lists; each detection says where it stands, so that a page can move both sliders without asking again.

Masks are transferred in a frame of at most 1,000 pixels, which is what a screen shows of them.
"""

from __future__ import annotations

import io
import logging
import time
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm import boxes as box_functions
from eesvm._support.extras import optional_module
from eesvm._support.threads import one_product_thread
from eesvm._support.validation import InputError
from eesvm.datasets.plain_json import plain_json
from eesvm.descriptors import describe_dataset
from eesvm.detector.class_calibration import check_calibrators
from eesvm.detector.detector import ExemplarDetector
from eesvm.detector.model import Ensemble
from eesvm.detector.options import DetectionOptions
from eesvm.detector.training_table import propose_windows
from eesvm.exemplars.scoring import score_windows
from eesvm.images.files import MAX_PIXELS, ImageError, image_size, read_image
from eesvm.images.masks import mask_to_rle
from eesvm.report.serving.floors import FloorTable
from eesvm.structures import ExemplarAnnotation, ImageRecord, Problem
from eesvm.transfer.detections import hand_on_refined
from eesvm.transfer.refinement import Means, mean_masks

Pixels = NDArray[np.uint8]

_logger = logging.getLogger("eesvm")

_FRAME = 1000  # longest side of the frame that masks are in, in pixels
_PREVIEW = 1600  # longest side of the picture that goes back, in pixels
_LONGEST_LABEL, _MOST_LABELS = 120, 24  # of the metadata of an exemplar
_THUMBNAIL = 192  # longest side of a drawing that stands for a missing picture
_PROBABILITIES = ("sigmoid", "isotonic", "joint-sigmoid")
_ABOVE_ZERO = ("joint", "affine")


@dataclass(frozen=True)
class _Candidates:
    """Every window of an image under every class: one row each."""

    boxes: NDArray[np.float64]  # (n, 4)
    scores: NDArray[np.float64]  # (n,)
    class_ids: NDArray[np.intp]  # (n,)
    winners: NDArray[np.int64]  # (n,) exemplar of the model, -1 for none
    accepted: NDArray[np.bool_]  # (n, F) whether some exemplar accepts it at a floor


class Inference:
    """A model that looks at images.

    Parameters
    ----------
    detector : trained, or loaded from its folder.
    calibrator : another one than that of the model.
    max_pixels : the largest image that is decoded.
    """

    def __init__(self, detector: ExemplarDetector, calibrator: str | None = None, max_pixels: int = MAX_PIXELS) -> None:
        self._options = detector.checked_options()
        self.calibrator = calibrator or self._options.calibration.calibrator
        check_calibrators(self.calibrator)
        self.max_pixels = min(max_pixels, MAX_PIXELS)
        self._models = detector.models_
        self._exemplars = detector.exemplars_
        self._means = mean_masks(self._exemplars)
        self._descriptor = detector.descriptor_
        self._ensemble = Ensemble(self._models, self.calibrator, self._options)
        self._weights = np.concatenate([model.exemplars.coef_ for model in self._models])
        self._biases = np.concatenate([model.exemplars.intercept_ for model in self._models])

    def warm_up(self) -> None:
        """Look at a small picture: whatever is missing is missed now, and the first upload finds everything ready."""
        row = np.linspace(0, 255, 96, dtype=np.uint8)
        self._detect(np.stack([np.tile(row, (64, 1))] * 3, axis=2), None, with_preview=False)

    def card(self) -> dict[str, Any]:
        """What the model is."""
        kind = "probability" if self.calibrator in _PROBABILITIES else "number"
        start = 0.5 if kind == "probability" else 0.0 if self.calibrator in _ABOVE_ZERO else None
        return {
            "classes": [{"name": model.class_name, "n_exemplars": model.n_exemplars} for model in self._models],
            "n_exemplars": len(self._exemplars),
            "n_mirrored": sum(one.is_mirrored for one in self._exemplars),
            "calibrator": self.calibrator,
            "score": {"kind": kind, "start": start},
            "max_pixels": self.max_pixels,
        }

    def detect(self, content: bytes, table: FloorTable | None = None, with_preview: bool = False) -> dict[str, Any]:
        """What is found in an image; `InputError` with one sentence where it cannot be used."""
        started = time.perf_counter()
        pixels = self._decode(content)
        seconds = time.perf_counter() - started
        answer = self._detect(pixels, table, with_preview)
        answer["seconds"] = {"decoding": seconds, **answer["seconds"]}
        return answer

    def detect_pixels(self, pixels: Pixels) -> dict[str, Any]:
        """What is found in an RGB image of ours, and the image as a preview."""
        return self._detect(pixels, None, with_preview=True)

    def exemplar_picture(self, number: int) -> bytes | None:
        """A JPEG of an exemplar: its picture, or a drawing of its mask or box; None where there is no such exemplar."""
        if not 0 <= number < len(self._exemplars):
            return None
        annotation = self._exemplars[number]
        return _jpeg(annotation.picture if annotation.picture is not None else _drawing(annotation))

    def _decode(self, content: bytes) -> Pixels:
        try:
            width, height = image_size(content, max_pixels=1 << 40)  # our own limit has a clearer sentence
            if width * height > self.max_pixels:
                raise InputError(
                    f"The image has {width:,} x {height:,} pixels: {self.max_pixels / 1e6:,.4g} million are taken here."
                )
            return read_image(content)
        except ImageError as error:
            reason = str(error).partition(": ")[2]
            reason = reason.partition("<")[0].strip() or "it is broken"  # a repr of an object says nothing
            raise InputError(f"The image cannot be read: {reason}.") from None

    @one_product_thread()  # the bits of `ExemplarDetector.predict`
    def _detect(self, pixels: Pixels, table: FloorTable | None, with_preview: bool) -> dict[str, Any]:
        started = time.perf_counter()
        height, width = pixels.shape[:2]
        boxes, descriptors, proposing = self._described(pixels)
        described = time.perf_counter()
        candidates = self._candidates(boxes, descriptors, table)
        standing = _standing(candidates, self._options.detection)
        small = _shrunk(pixels, _FRAME)
        detections = [self._detection(candidates, row, places, (width, height), small) for row, places in standing]
        winners = sorted({one["exemplar"] for one in detections if one["exemplar"] is not None})
        answer = {
            "width": width,
            "height": height,
            "frame": _frame((width, height)),
            "n_windows": len(boxes),
            "floors": [] if table is None else table.floors,
            "detections": detections,
            "exemplars": {str(number): _identity(self._exemplars[number]) for number in winners},
            "seconds": {
                "windows": proposing,
                "descriptors": described - started - proposing,
                "scores": time.perf_counter() - described,
            },
        }
        if with_preview:
            answer["preview"] = "data:image/jpeg;base64," + b64encode(_jpeg(_shrunk(pixels, _PREVIEW))).decode("ascii")
        return answer

    def _described(self, pixels: Pixels) -> tuple[NDArray[np.float64], NDArray[np.float32], float]:
        """Boxes and descriptors of the windows, and the seconds that the windows took."""
        started = time.perf_counter()
        record = ImageRecord("upload", lambda: pixels, pixels.shape[1], pixels.shape[0])
        problems: list[Problem] = []
        windows = list(propose_windows([record], self._options.windows, 1, problems=problems))
        proposing = time.perf_counter() - started
        for item in describe_dataset([record], windows, self._descriptor, problems=problems):
            return item.windows.boxes, np.asarray(item.descriptors), proposing
        _logger.warning("an image could not be used: %s", problems[0].reason)  # names files and versions
        raise InputError("The image cannot be used: no windows can be found in it, or described.")

    def _candidates(
        self, boxes: NDArray[np.float64], descriptors: NDArray[np.float32], table: FloorTable | None
    ) -> _Candidates:
        found = self._ensemble.scores(descriptors, boxes)
        n_floors = 0 if table is None else len(table.floors)
        accepted = [np.zeros((len(boxes), n_floors), dtype=bool) for _ in found]
        if table is not None:
            scores = score_windows(descriptors, self._weights, self._biases)
            ends = np.cumsum([model.n_exemplars for model in self._models])[:-1]
            accepted = table.accepted(np.split(scores, ends, axis=1))
        return _Candidates(
            boxes=np.concatenate([one.boxes for one in found]),
            scores=np.concatenate([one.scores for one in found]),
            class_ids=np.repeat(np.arange(len(found)), len(boxes)),
            winners=np.concatenate([one.winners for one in found]),
            accepted=np.concatenate(accepted),
        )

    def _detection(
        self,
        candidates: _Candidates,
        row: int,
        places: Sequence[int],
        size: tuple[int, int],
        pixels: Pixels,
    ) -> dict[str, Any]:
        winner, box = int(candidates.winners[row]), candidates.boxes[row]
        return {
            "box": _rounded(box),
            "score": float(candidates.scores[row]),
            "class": self._models[int(candidates.class_ids[row])].class_name,
            "exemplar": winner if winner >= 0 else None,
            "without_floor": -1 in places,
            "at_floors": [place for place in places if place >= 0],
            **(_handed(self._exemplars[winner], box, size, pixels, self._means) if winner >= 0 else _handed_nothing()),
        }


def _standing(candidates: _Candidates, options: DetectionOptions) -> list[tuple[int, list[int]]]:
    """Rows that are detections at some floor, the best first, and at which: its index, or -1 for no floor at all."""
    usable = np.isfinite(candidates.scores)
    if options.min_score is not None:
        usable &= candidates.scores >= options.min_score
    places: dict[int, list[int]] = {}
    for place in range(-1, candidates.accepted.shape[1]):
        rows = np.flatnonzero(usable if place < 0 else usable & candidates.accepted[:, place])
        kept = box_functions.batched_nms(
            candidates.boxes[rows],
            candidates.scores[rows],
            candidates.class_ids[rows],
            options.nms,
            options.overlap,
            limit=options.max_detections,
        )[: options.max_detections]
        for row in rows[kept].tolist():
            places.setdefault(row, []).append(place)
    return sorted(places.items(), key=lambda item: (-candidates.scores[item[0]], item[0]))


def _frame(size: tuple[int, int]) -> list[int]:
    """Width and height of the frame that masks are in."""
    factor = min(1.0, _FRAME / max(size))
    return [max(1, round(side * factor)) for side in size]


def _handed(
    annotation: ExemplarAnnotation, box: NDArray[np.float64], size: tuple[int, int], pixels: Pixels, means: Means
) -> dict[str, Any]:
    """What a detection inherits: the mask in the frame, refined by its pixels; the rest in the image."""
    width, height = _frame(size)
    factors = np.array([width / size[0], height / size[1]] * 2)
    handed = hand_on_refined(annotation, box * factors, pixels, means)
    mask = None
    if handed.mask is not None and handed.mask.any():
        counts = mask_to_rle(handed.mask, compress=False)["counts"]
        mask = {"x": handed.offset[0], "y": handed.offset[1], "size": list(handed.mask.shape[::-1]), "counts": counts}
    return {
        "mask": mask,
        "parts": [{"name": part.name, "box": _rounded(part.box / factors)} for part in handed.parts],
        "keypoints": [
            {"name": name, "point": _rounded(np.array(point[:2]) / factors[:2])}
            for name, point in handed.keypoints.items()
        ],
    }


def _handed_nothing() -> dict[str, Any]:
    return {"mask": None, "parts": [], "keypoints": []}


def _identity(annotation: ExemplarAnnotation) -> dict[str, Any]:
    """Who an exemplar is: its image, its place there, and what is known of it, as texts."""
    known = {key: value for key, value in annotation.metadata.items() if key != "keypoints"}
    return {
        "class": annotation.class_name,
        "image_id": annotation.image_id,
        "index": int(annotation.index),
        "is_mirrored": annotation.is_mirrored,
        "box": _rounded(annotation.box),
        "shows": "picture" if annotation.picture is not None else "mask" if annotation.mask is not None else "box",
        "pose": annotation.pose,
        "labels": [[_cut(str(key)), _cut(_text(value))] for key, value in list(known.items())[:_MOST_LABELS]],
    }


def _text(value: Any) -> str:
    """A label as people write it."""
    value = plain_json(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(one)}" for key, one in value.items())
    return "" if value is None else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…"


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(float(value), 2) for value in values]


def _drawing(annotation: ExemplarAnnotation) -> Pixels:
    """Where no picture was kept: the mask, or the empty box, in two greys and in its own proportions."""
    if annotation.mask is not None and annotation.mask.any():
        return _shrunk(np.where(annotation.mask[:, :, None], 205, 90).astype(np.uint8).repeat(3, axis=2), _THUMBNAIL)
    sides = annotation.box[2:] - annotation.box[:2]
    width, height = (max(1, round(_THUMBNAIL * float(side / sides.max()))) for side in sides)
    return np.full((height, width, 3), 150, dtype=np.uint8)


def _shrunk(pixels: Pixels, longest: int) -> Pixels:
    height, width = pixels.shape[:2]
    factor = longest / max(height, width)
    if factor >= 1:
        return pixels
    pillow = optional_module("PIL.Image")
    size = max(1, round(width * factor)), max(1, round(height * factor))
    return np.asarray(pillow.fromarray(pixels).resize(size, pillow.Resampling.BOX))


def _jpeg(pixels: Pixels) -> bytes:
    stream = io.BytesIO()
    optional_module("PIL.Image").fromarray(np.ascontiguousarray(pixels)).save(stream, format="JPEG", quality=88)
    return stream.getvalue()
