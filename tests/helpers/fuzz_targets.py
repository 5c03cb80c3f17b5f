"""Every reader of files as a target for fuzzing: valid files to begin with, and what reads a damaged one.

A target reads bytes that anybody may have written. It may refuse them with `InputError`, or read them; anything else, an
exception of another kind, a crash, unbounded memory, is a finding.
"""

import contextlib
import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from eesvm import (
    AffineCalibrator,
    CalibrationProblem,
    CooccurrenceCalibrator,
    ExemplarSVMs,
    InputError,
    JointCalibrator,
    solve,
)
from eesvm.calibration.files.arrays import load_calibrator, save_calibrator
from eesvm.calibration.files.calibrations import load_calibration, load_cooccurrence, save_calibration
from eesvm.calibration.files.certificates import load_certificate, save_certificate
from eesvm.calibration.tables.score_table import ScoreTable, read_score_table, write_score_table
from eesvm.datasets import open_dataset
from eesvm.datasets.reviews import ReviewFolder, read_review
from eesvm.descriptors import PCA, KernelMap, MeanNormScaler
from eesvm.detector.box_regression import BoxRegressor
from eesvm.detector.card import FORMAT_VERSION
from eesvm.detector.files import load_model, read_regressor, write_regressor
from eesvm.detector.kept_windows import KeptWindows, read_kept, write_kept
from eesvm.detector.left_out import JudgedWindows
from eesvm.detector.options import DetectorOptions
from eesvm.exemplars.files import ExemplarIdentity, load_exemplars, save_exemplars
from eesvm.images import read_image
from eesvm.metrics.detection_files import read_detections, write_detections
from eesvm.structures import Detections, ExemplarAnnotation, ImageRecord, Windows
from eesvm.transfer.annotations import load_annotations, save_annotations
from eesvm.windows import read_windows, write_windows
from helpers.dataset_files import coco_document, save_image, voc_object, voc_xml


@dataclass(frozen=True)
class Target:
    """A reader."""

    seeds: Callable[[], Sequence[bytes]]  # valid files
    read: Callable[[bytes], object]  # raises InputError, or nothing
    needs_more: bool = False  # files beside this one, which are not there, so that even a valid one is refused

    def try_reading(self, content: bytes) -> bool:
        """Whether the content can be used."""
        try:
            self.read(content)
        except InputError:
            return False
        return True


def _from_file(name, load, content):
    """Read content under a name in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="eesvm-fuzz-") as folder:
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return load(path)


def _written(name, write):
    """What `write(path)` writes, as bytes."""
    with tempfile.TemporaryDirectory(prefix="eesvm-fuzz-") as folder:
        path = Path(folder, name)
        write(path)
        return path.read_bytes()


def _in_dataset(kind, place, others, content):
    """Open a dataset of one image whose annotation has this content, and look at all of it."""
    with tempfile.TemporaryDirectory(prefix="eesvm-fuzz-") as folder:
        root = Path(folder)
        save_image(root / "images" / "a.png")
        for name, text in others.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(text)
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_bytes(content)
        for record in open_dataset(root, kind):
            for instance in record.instances:
                if instance.mask is not None:
                    instance.mask()


def _coco_seeds():
    annotation = {
        "id": 1, "image_id": 1, "category_id": 3, "bbox": [2, 3, 20, 15], "area": 250.5, "iscrowd": 0, "pose": "left",
        "segmentation": [[2, 3, 20, 3, 12, 15]], "keypoints": [4, 4, 2], "parts": [{"name": "ear", "bbox": [3, 3, 4, 4]}],
    }  # fmt: skip
    other = {**annotation, "id": 2, "segmentation": {"size": [30, 40], "counts": [10, 20, 1170]}, "iscrowd": 1}
    images = [{"id": 1, "file_name": "images/a.png", "width": 40, "height": 30}]
    return [json.dumps(coco_document([annotation, other], images=images)).encode()]


def _table():
    random = np.random.default_rng(0)
    return ScoreTable(
        scores=random.normal(size=(8, 3)).astype(np.float32),
        labels=np.array([1, 1, 1, 0, 0, 0, 0, 0], dtype=np.int8),
        groups=np.array(list("aabbccdd")),
        exemplar_groups=np.array(list("abc")),
        exemplar_names=["one", "two", "three"],
    )


def _joint():
    table = _table()
    return JointCalibrator(sigmoid=True).fit(table.scores, table.labels)


def _certificate():
    random = np.random.default_rng(1)
    problem = CalibrationProblem(random.normal(size=(20, 5)), random.normal(size=(80, 5)))
    return solve(problem).certificate


def _exemplars():
    random = np.random.default_rng(2)
    return ExemplarSVMs().fit(random.normal(size=(3, 4)) + 1, random.normal(size=(20, 4)))


def _regressor():
    return BoxRegressor(np.ones((3, 4), dtype=np.float32), np.zeros(4, dtype=np.float32), 20, 0.5)


def _identities():
    return [ExemplarIdentity("a", (1.0, 2.0, 11.0, 14.0), "dog", k, {"breed": "pug"}) for k in range(3)]


def _annotation():
    mask = np.zeros((12, 10), dtype=bool)
    mask[3:9, 2:8] = True
    return ExemplarAnnotation("dog", "a", 0, np.array([1.0, 2, 11, 14]), mask, (), "left", {"breed": "pug"})


def _found():
    boxes = np.array([[1.0, 2, 11, 14], [3, 3, 9, 9]])
    return [Detections("a", boxes, np.array([0.9, 0.5]), np.array(["dog", "cat"]), np.array([0, -1]))]


def _windows():
    return [Windows("a", np.array([[1.0, 2, 11, 14], [3, 3, 9, 9]]), np.array([0, -1]))]


def _cooccurrence():
    table = _table()
    boxes = np.tile([[1.0, 2, 11, 14], [2, 2, 12, 13]], (4, 1))
    return CooccurrenceCalibrator().fit(table.scores, table.labels, boxes, table.groups)


def _card_seeds():
    """A card that is whole, of a folder that is not."""
    content = {
        "format": "eesvm-model", "format_version": FORMAT_VERSION, "options": {}, "inputs": {}, "files": {},
        "classes": [{"name": "dog", "calibrators": ["joint"]}], "descriptor": {"transforms": [], "plain_dimension": 3},
    }  # fmt: skip
    return [json.dumps(content).encode()]


def _image_seeds():
    from PIL import Image

    picture, seeds = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)), []
    for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"):
        stream = io.BytesIO()
        picture.save(stream, kind)
        seeds.append(stream.getvalue())
    return seeds


def _options(path):
    DetectorOptions.make(config=path)


def _kept():
    random = np.random.default_rng(3)
    rows = random.normal(size=(5, 3)).astype(np.float32)
    boxes = np.tile([[1.0, 2, 11, 14]], (5, 1))
    judged = JudgedWindows(
        scores=np.empty((5, 0), dtype=np.float32),
        boxes=boxes,
        image=np.array([0, 0, 1, 1, 1]),
        image_ids=np.array(["a", "b"]),
        weights=np.ones(2),
        objects=boxes[:1],
        object_image=np.array([1]),
        is_ignored=np.array([False]),
    )
    return KeptWindows(rows, rows[:2], boxes[:2], np.array(["a", "c"]), judged, rows)


def _review_seeds():
    thing = {"class": "dog", "bbox": [2, 3, 20, 15], "review": "accepted"}
    record = ImageRecord("a", lambda: np.zeros((30, 40, 3), np.uint8), 40, 30)

    def write(path):
        ReviewFolder(path.parent, "model").save(record, 0, [thing], [{"class": "cat", "bbox": [1, 1, 5, 5]}])

    return [_written("instances.json", write)]


TARGETS = {
    "voc": Target(
        lambda: [voc_xml(voc_object() + voc_object("cat", extra="<part><name>ear</name></part>"), "a.png").encode()],
        partial(_in_dataset, "voc", "images/a.xml", {}),
    ),
    "ilsvrc": Target(
        lambda: [voc_xml(voc_object("n02084071"), "a").encode()],
        partial(_in_dataset, "ilsvrc", "Annotations/DET/val/a.xml", {"Data/DET/val/a.JPEG": b""}),
    ),
    "coco": Target(_coco_seeds, partial(_in_dataset, "coco", "instances.json", {})),
    "yolo": Target(
        lambda: [b"0 0.5 0.5 0.2 0.3\n1 0.1 0.1 0.3 0.1 0.3 0.4\n"],
        partial(_in_dataset, "yolo", "images/a.txt", {"data.yaml": b"names: [dog, cat]\n"}),
    ),
    "yolo-yaml": Target(
        lambda: [b"names: [dog, cat]\ntrain: images\n", b"names:\n  0: dog\n  1: cat\npath: .\nval: images\n"],
        partial(_in_dataset, "yolo", "data.yaml", {"images/a.txt": b"0 0.5 0.5 0.2 0.3\n"}),
    ),
    "scores-npz": Target(
        lambda: [_written("t.npz", lambda path: write_score_table(path, _table()))],
        partial(_from_file, "t.npz", read_score_table),
    ),
    "scores-csv": Target(
        lambda: [b"label,one,two\n1,0.5,-1.25\n1,2e-3,4\n0,-7,0.125\n0,1,2\n"],
        partial(_from_file, "t.csv", read_score_table),
    ),
    "calibration": Target(
        lambda: [_written("c.json", lambda path: save_calibration(path, _joint()))],
        partial(_from_file, "c.json", load_calibration),
    ),
    "certificate": Target(
        lambda: [_written("c.npz", lambda path: save_certificate(path, _certificate()))],
        partial(_from_file, "c.npz", load_certificate),
    ),
    "boxes": Target(
        lambda: [
            _written(
                "classes/cat/boxes.safetensors", lambda path: write_regressor(path.parents[2], "cat", _regressor())
            )
        ],
        partial(_from_file, "classes/cat/boxes.safetensors", lambda path: read_regressor(path.parents[2], "cat", 3)),
    ),
    "kept-windows": Target(
        lambda: [_written("kept.safetensors", lambda path: write_kept(path, _kept()))],
        partial(_from_file, "kept.safetensors", lambda path: read_kept(path, 3)),
    ),
    "review": Target(_review_seeds, partial(_from_file, "instances.json", read_review)),
    "exemplars": Target(
        lambda: [_written("e.safetensors", lambda path: save_exemplars(path, _exemplars(), _identities()))],
        partial(_from_file, "e.safetensors", load_exemplars),
    ),
    "windows": Target(
        lambda: [_written("w.npz", lambda path: write_windows(path, _windows()))],
        partial(_from_file, "w.npz", read_windows),
    ),
    "pca": Target(
        lambda: [_written("pca.npz", PCA(2).fit(_table().scores).save)],
        partial(_from_file, "pca.npz", PCA.load),
    ),
    "kernel-map": Target(
        lambda: [_written("kernel_map.npz", KernelMap(2).fit(_table().scores).save)],
        partial(_from_file, "kernel_map.npz", KernelMap.load),
    ),
    "scaling": Target(
        lambda: [_written("scaler.npz", MeanNormScaler().fit(_table().scores).save)],
        partial(_from_file, "scaler.npz", MeanNormScaler.load),
    ),
    "cooccurrence": Target(
        lambda: [_written("m.json", lambda path: save_calibration(path, _cooccurrence()))],
        partial(_from_file, "m.json", load_cooccurrence),
    ),
    "model-card": Target(
        _card_seeds, partial(_from_file, "model.json", lambda path: load_model(path.parent)), needs_more=True
    ),
    "annotations": Target(
        lambda: [_written("a.safetensors", lambda path: save_annotations(path, [_annotation()]))],
        partial(_from_file, "a.safetensors", load_annotations),
    ),
    "calibrator": Target(
        lambda: [
            _written(
                "a.safetensors",
                lambda path: save_calibrator(path, "affine", AffineCalibrator().fit(_table().scores, _table().labels)),
            )
        ],
        partial(_from_file, "a.safetensors", lambda path: load_calibrator(path, "affine", 3)),
    ),
    "detections-csv": Target(
        lambda: [_written("d.csv", lambda path: write_detections(path, _found()))],
        partial(_from_file, "d.csv", read_detections),
    ),
    "detections-json": Target(
        lambda: [_written("d.json", lambda path: write_detections(path, _found()))],
        partial(_from_file, "d.json", read_detections),
    ),
    "options": Target(
        lambda: [b"preset: paper\ntraining:\n  C: 2e-4\ndetection:\n  nms: 0.5\n"],
        partial(_from_file, "o.yaml", _options),
    ),
    "image": Target(_image_seeds, lambda content: read_image(content, max_pixels=1_000_000)),
}


def unpacked(content: bytes) -> list[tuple[str, bytes]] | None:
    """The members of a zip, so that what is inside can be damaged as well; None for other files."""
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]
    return None


def packed(members: Sequence[tuple[str, bytes]]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return stream.getvalue()
