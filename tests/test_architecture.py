"""The floor plan: rooms in one order, imports that only go up it, and a map in the documentation that says so."""

import ast
import importlib.util
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import eesvm
from helpers.imports import imported_modules, statements

PACKAGE = Path(eesvm.__file__).parent
ROAD_MAP = Path(__file__).resolve().parents[1] / "docs" / "_ext" / "road_map.py"

# The road. A module imports from its own room and from rooms before it, never from one behind it.
ROAD = (
    "_support",
    "structures",
    "boxes",
    "images",
    "datasets",
    "windows",
    "descriptors",
    "metrics",
    "exemplars",
    "calibration",
    "transfer",
    "detector",
    "finetuning",
    "report",
    "experiments",
    "cli",
)

# The same inside three rooms: a part imports from parts before it.
PARTS = {
    "exemplars": ("choices", "rows", "scoring", "solver", "svms", "lda", "single_svm", "mining", "files"),
    "calibration": (
        "choices",
        "units",
        "problem",
        "detector_costs",
        "goal",
        "certificate",
        "anytime",
        "result",
        "ranks",
        "quanta",
        "sharing",
        "search",
        "proofs",
        "few_detectors",
        "recall_floors",
        "recall",
        "floor_with_few",
        "exact",
        "frontier",
        "held_out",
        "pooled",
        "votes",
        "calibrators",
        "tables",
        "files",
    ),
    "detector": (
        "options",
        "training_table",
        "training_descriptor",
        "left_out",
        "class_training",
        "cross_fitting",
        "shrinkage",
        "box_regression",
        "class_calibration",
        "shrinkage_files",
        "kept_windows",
        "model",
        "suggestions",
        "news",
        "grown_scores",
        "grown_class",
        "card",
        "files",
        "growing",
        "keys",
        "training_inputs",
        "training_tasks",
        "image_stages",
        "class_stages",
        "training_run",
        "image_look",
        "detector",
        "consensus",
    ),
}

CORE = {"numpy", "scipy", "sklearn", "numba", "eesvm"}
HEAVY = ("cv2", "PIL", "onnxruntime", "onnx", "torch", "matplotlib", "dask", "rich")  # scikit-learn may load pandas
SCORE_FILES = {"pyarrow", "safetensors"}  # what the files of score tables and calibrations may need besides


def package_files():
    return sorted(PACKAGE.rglob("*.py"))


@cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def place(module):
    """A dotted name below the package as its parts: eesvm.detector.files is ("detector", "files")."""
    return tuple(module.split(".")[1:])


@cache
def imports_within(path):
    """Line and place of every import of the package in a file, lazy and type-only ones included."""
    return list(_imports_within(path))


def _imports_within(path):
    for node in statements(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, place(alias.name)) for alias in node.names if alias.name.startswith("eesvm"))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} is a relative import"
            if node.module.split(".")[0] == "eesvm":
                for alias in node.names:
                    yield node.lineno, (*place(node.module), alias.name)


def against_the_road(order, depth, files):
    """Imports of a stop that comes later in `order`, as `file:line imports ...`."""
    found = []
    for path in files:
        own = path.relative_to(PACKAGE).with_suffix("").parts
        if len(own) <= depth or own[depth] not in order:
            continue
        for line, target in imports_within(path):
            is_inside = target[:depth] == own[:depth] and len(target) > depth and target[depth] in order
            if is_inside and order.index(target[depth]) > order.index(own[depth]):
                found.append(f"{path.relative_to(PACKAGE.parent)}:{line} imports eesvm.{'.'.join(target)}")
    return found


def test_every_import_goes_up_the_road():
    assert against_the_road(ROAD, 0, package_files()) == []


@pytest.mark.parametrize("room", PARTS)
def test_every_import_inside_a_room_goes_up_its_parts(room):
    assert against_the_road(PARTS[room], 1, (PACKAGE / room).rglob("*.py")) == []


def test_an_import_down_the_road_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path / "eesvm")
    for name, text in {
        "boxes.py": "import numpy\n",
        "images/files.py": "def f():\n    from eesvm.cli import main\n",
        "windows/order.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import eesvm.detector.model\n",
        "detector/options.py": "from eesvm import report\nfrom eesvm.detector import files\nfrom eesvm import boxes\n",
    }.items():
        path = tmp_path / "eesvm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert against_the_road(ROAD, 0, package_files()) == [
        "eesvm/detector/options.py:1 imports eesvm.report",
        "eesvm/images/files.py:2 imports eesvm.cli.main",
        "eesvm/windows/order.py:3 imports eesvm.detector.model",
    ]
    assert against_the_road(PARTS["detector"], 1, package_files()) == [
        "eesvm/detector/options.py:2 imports eesvm.detector.files"
    ]


def test_the_road_names_every_room():
    entries = {path.stem if path.suffix == ".py" else path.name for path in PACKAGE.iterdir()}
    assert entries - {"__init__", "__main__", "__pycache__", "py.typed"} == set(ROAD)
    for room, parts in PARTS.items():
        found = {path.stem if path.suffix == ".py" else path.name for path in (PACKAGE / room).iterdir()}
        assert found - {"__init__", "__pycache__"} == set(parts)


def private_names(path):
    """Imports of what another module, or another folder, marks as its own by an underscore."""
    for line, target in imports_within(path):
        for depth, name in enumerate(target[1:], start=1):
            is_private = name.startswith("_") and not name.startswith("__")
            if is_private and path.parent != PACKAGE.joinpath(*target[:depth]):
                yield f"{path.relative_to(PACKAGE.parent)}:{line} imports eesvm.{'.'.join(target)}"


def test_no_underscored_name_of_a_neighbour_is_imported():
    assert [found for path in package_files() for found in private_names(path)] == []


def test_every_module_says_what_it_is():
    for path in package_files():
        text = ast.get_docstring(parsed(path))
        assert text, f"{path} has no docstring"
        assert text.split("\n\n")[0].endswith("."), f"{path}: a docstring opens with a sentence"


def test_the_map_in_the_documentation_is_current():
    """`make docs` writes it."""
    script = "import road_map; page = road_map.PAGE.read_text(); print(road_map.page_with_map(page) == page)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROAD_MAP.parent, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "True", "docs/design.md is old: run `make docs`, or python docs/_ext/road_map.py"


def test_the_map_names_a_module_that_has_no_place_on_the_road(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("road_map", ROAD_MAP)
    road_map = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(road_map)
    shutil.copytree(PACKAGE, tmp_path / "eesvm", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(road_map, "PACKAGE", tmp_path / "eesvm")
    assert road_map.road_map() in road_map.PAGE.read_text(encoding="utf-8")
    new = tmp_path / "eesvm" / "exemplars" / "boosting.py"
    new.write_text('"""Boosted exemplars."""\n')
    with pytest.raises(SystemExit) as caught:
        road_map.road_map()
    assert str(caught.value) == f"{new}: name 'boosting' in PARTS of tests/test_architecture.py, after what it imports"


def test_calibration_needs_scores_and_nothing_else():
    for path in sorted((PACKAGE / "calibration").rglob("*.py")):
        for module in imported_modules(path):
            root = module.split(".")[0]
            known = CORE | SCORE_FILES if path.parent.name in ("tables", "files") else CORE
            assert root in known or root in sys.stdlib_module_names, f"{path.name} imports {module}"
            allowed = ("eesvm.calibration", "eesvm._support")
            assert root != "eesvm" or module.startswith(allowed), f"{path.name} imports {module}"


def test_importing_the_package_loads_no_heavy_module():
    script = f"import sys, eesvm; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_module_is_longer_than_a_sitting():
    for path in package_files():
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 600, f"{path} should be two modules"
