"""The direction of imports: the calibration core stays free of images, networks and files."""

import subprocess
import sys
from pathlib import Path

import eesvm
from helpers.imports import imported_modules

PACKAGE = Path(eesvm.__file__).parent
CORE = {"numpy", "scipy", "sklearn", "numba", "eesvm"}
HEAVY = (
    "cv2",
    "PIL",
    "onnxruntime",
    "onnx",
    "torch",
    "matplotlib",
    "dask",
    "rich",
)  # scikit-learn itself loads pandas if it can


def test_calibration_needs_scores_and_nothing_else():
    allowed = ("eesvm.calibration", "eesvm._support.validation", "eesvm._support.compile", "eesvm._support.threads")
    for path in sorted((PACKAGE / "calibration").glob("*.py")):
        for module in imported_modules(path):
            root = module.split(".")[0]
            assert root in CORE or root in sys.stdlib_module_names, f"{path.name} imports {module}"
            assert root != "eesvm" or module.startswith(allowed), f"{path.name} imports {module}"


def test_importing_the_package_loads_no_heavy_module():
    script = f"import sys, eesvm; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_module_is_longer_than_a_sitting():
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 600, f"{path} should be two modules"
