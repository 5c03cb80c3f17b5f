"""Small trainings whose models are compared file by file."""

import hashlib

from eesvm.detector import ExemplarDetector
from helpers.detector_scenes import quick_options, scenes


def model_files(folder):
    """Hashes of all files of a model but the two that hold times: run.json, and search.json of each class."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.name not in ("run.json", "search.json")
    }


def fitted(folder, changes=None, dataset=None, **arguments):
    options = quick_options(**(changes or {}))
    dataset = scenes("train", 4) if dataset is None else dataset
    return ExemplarDetector(options).fit(dataset, calibrators=["joint", "affine"], folder=folder, **arguments)
