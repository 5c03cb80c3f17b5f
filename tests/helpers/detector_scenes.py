"""Small scenes and quick options that the tests of the detector share."""

import atexit
import shutil
import tempfile
from dataclasses import replace
from functools import cache, partial

import numpy as np

from eesvm.datasets import select
from eesvm.datasets.scenes import make_scenes
from eesvm.descriptors import DescriptorCache
from eesvm.detector import ExemplarDetector
from eesvm.detector.model import Ensemble, score_image
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_descriptor import training_windows
from eesvm.detector.training_table import describe_windows, propose_windows
from helpers.examples import ALL

CLASSES = ("three", "eight")
QUICK = {
    "windows.mode": "single",
    "windows.max_windows": 2000 if ALL else 100,  # the mode proposes 130 to 200 windows of a scene
    "descriptor.name": "hog",
    "descriptor.n_components": None,
    "descriptor.kernel_map": None,
    "calibration.method": "greedy",
    "n_jobs": 1,
}


@cache
def scenes(split, n=12):
    """The training or the test half of some scenes, drawn once."""
    drawn = select(make_scenes(n, n // 2, classes=CLASSES), split=split)
    return replace(drawn, images=tuple(replace(r, read=partial(np.array, r.read())) for r in drawn))


@cache
def shared_cache():
    """Windows and descriptors that several tests need."""
    folder = tempfile.mkdtemp(prefix="eesvm-test-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return DescriptorCache(folder)


def trained(options, dataset=None, classes=None, **arguments):
    """A detector with these options, fitted to the training scenes."""
    detector = ExemplarDetector(options)
    return detector.fit(scenes("train") if dataset is None else dataset, classes, cache=shared_cache(), **arguments)


def quick_options(preset="default", **changes):
    """Options under which training takes a second or two; names with two underscores for dots."""
    return DetectorOptions.make(preset, changes=QUICK | {name.replace("__", "."): v for name, v in changes.items()})


@cache
def windows_to_test():
    """Windows of the test scenes with the descriptors of `quick_options()` trained on the training scenes."""
    proposals = list(propose_windows(scenes("test"), quick_options().windows, 1))
    descriptor = training_windows(scenes("train"), quick_options(), cache=shared_cache()).descriptor
    return describe_windows(scenes("test"), proposals, descriptor)


def detections(detector, calibrator):
    """What `predict` finds in the test scenes, without proposing and describing their windows again."""
    windows, options = windows_to_test(), detector.checked_options()
    ensemble = Ensemble(detector.models_, calibrator, options)
    return [
        score_image(ensemble, record.image_id, windows.boxes[a:b], windows.descriptors[a:b], options.detection)
        for record, a, b in zip(windows.records, windows.starts[:-1], windows.starts[1:], strict=True)
    ]


def same_detections(one, other):
    """Whether two lists of detections are equal to the bit."""
    return len(one) == len(other) and all(
        a.image_id == b.image_id
        and (a.boxes == b.boxes).all()
        and (a.scores == b.scores).all()
        and (a.class_names == b.class_names).all()
        and (a.exemplars == b.exemplars).all()
        for a, b in zip(one, other, strict=True)
    )
