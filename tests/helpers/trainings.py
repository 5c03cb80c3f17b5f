"""Small trainings whose models are compared file by file."""

import hashlib
import json

from eesvm.detector import ExemplarDetector
from helpers.detector_scenes import quick_options, scenes


def model_files(folder):
    """What is in the files of a model, without the times that searches took, and the hashes of files with such."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.name == "calibration.json":
            content = json.loads(path.read_text())
            content["result"] |= {"seconds": 0, "history": [], "statistics": {}}
            found[name] = content
        elif path.is_file() and name not in ("run.json", "model.json"):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def fitted(folder, changes=None, dataset=None, **arguments):
    options = quick_options(**(changes or {}))
    dataset = scenes("train", 4) if dataset is None else dataset
    return ExemplarDetector(options).fit(dataset, calibrators=["joint", "affine"], folder=folder, **arguments)
