"""What is trained and judged in a reproduction: options and rules of each stage, and how they differ from the paper's.

In: a time limit and single options by their dotted names. Out: `Recipe`s by stage, the paper's and ours, and
`CHANGES`, which says in words where "as in the paper" had to give way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eesvm.detector.options import PRESETS, DetectorOptions
from eesvm.experiments.reproduction import SECONDS
from eesvm.experiments.reproduction.results import FULL, HOG, SMALL
from eesvm.experiments.tables.detections import PAPER_RULES, Rule
from eesvm.experiments.tables.windows import Method

DEFAULT_PRESET = "eesvm, default preset"
ACROSS_IMAGES = "EE-SVM joint calibration w/ sigmoid, across images"
EARLY_NODES = 100_000  # after which the search of tables 4 to 6 is stopped

# What reproductions change in the paper's settings, and why; stated in every output.
CHANGES: tuple[tuple[str, Any, str], ...] = (
    ("windows.max_windows", 1000, "windows of an image at most; the paper takes a few thousand"),
    (
        "descriptor.n_components",
        256,
        "a PCA, which centres descriptors (not HOG): those of the stock network are never negative, and without it "
        "hardly an exemplar tells other objects of its class from background",
    ),
    (
        "descriptor.mean_norm",
        20.0,
        "length of descriptors as in R-CNN; at the preset's 200 the penalty on the bias weighs a hundred times as much",
    ),
    ("training.C", 1e-2, "what the paper's 1e-4 is to descriptors of length 200"),
    ("training.max_images", 40, "random training images that give negatives; the paper takes 2,000"),
    ("calibration.max_negatives", 20_000, "random negative windows to calibrate on; the paper takes all"),
)
NETWORK = "a network pooled per window that has never been fine-tuned; the paper fine-tunes its own for detection"

_EARLY_RULES = (Method.NO_CALIBRATION, Method.SIGMOID, Method.JOINT, Method.JOINT_SIGMOID)
_HOG_RULES = (Method.SIGMOID, Method.JOINT_SIGMOID, Method.SINGLE_SVM)


@dataclass(frozen=True)
class Recipe:
    """One training, and the rules that are judged on it."""

    options: DetectorOptions
    rules: tuple[Rule, ...]
    is_ours: bool = False


def make_recipes(time_limit: float = SECONDS, changes: Mapping[str, Any] | None = None) -> dict[str, list[Recipe]]:
    """Recipes by stage, the paper's first; `changes` are for its rows, ours take what their preset leaves open."""
    given = dict(changes or {})
    limits = {"calibration.time_limit": time_limit, "calibration.gap": 0.0}
    stated = {name: value for name, value, _ in CHANGES}
    paper = DetectorOptions.make("paper", changes=limits | stated | given)
    early = paper.changed({"calibration.method": "algorithm1", "calibration.node_limit": EARLY_NODES})
    plain: dict[str, Any] = {"descriptor.mode": None, "descriptor.layer": None, "descriptor.n_components": None}
    plain["descriptor.backbone"] = DetectorOptions().descriptor.backbone  # HOG has no network, tuned or not
    asked = {name: value for name, value in given.items() if name == "descriptor.n_components"}
    hog = early.changed({"descriptor.name": "hog"} | plain | asked)
    ours = Recipe(_default_options(limits | stated, given), (Rule(DEFAULT_PRESET, "joint-sigmoid"),), is_ours=True)
    return {
        SMALL: [
            Recipe(paper, _named(PAPER_RULES, lambda name: name != Method.COOCCURRENCE)),
            Recipe(paper, _beyond_the_paper(), is_ours=True),
            ours,
        ],
        FULL: [Recipe(early, _named(PAPER_RULES, lambda name: name in _EARLY_RULES)), ours],
        HOG: [Recipe(hog, _named(PAPER_RULES, lambda name: name in _HOG_RULES))],
    }


def _default_options(stated: Mapping[str, Any], given: Mapping[str, Any]) -> DetectorOptions:
    """The default preset on the same windows and within the same limits; descriptors can be asked for."""
    fixed = PRESETS["default"]
    shared = {name: value for name, value in {**stated, **given}.items() if name not in fixed}
    asked = {name: value for name, value in given.items() if name.startswith("descriptor.")}
    return DetectorOptions.make("default", changes=shared | asked)


def _named(rules: tuple[Rule, ...], is_wanted: Any) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if is_wanted(rule.name))


def _beyond_the_paper() -> tuple[Rule, ...]:
    """Rules that the paper does not have, on its exemplars."""
    across = Rule(ACROSS_IMAGES, "joint-sigmoid", {"calibration.coverage": "across-images"})
    return (*_named(PAPER_RULES, lambda name: name == Method.COOCCURRENCE), across)
