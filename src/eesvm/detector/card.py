"""The card of a model: what it is, what it was made from and how good its calibration is, as JSON and as a page.

In: the classes of a model, its options, inputs and the hashes of its files. Out: `model.json` and `MODEL.md`.
Not here: reading it, which `files` does.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eesvm._support.amounts import counted, counted_exemplars, enumeration
from eesvm._support.documents import write_json
from eesvm._support.files import atomic_write
from eesvm._support.tables import markdown_table
from eesvm._support.version import __version__
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.datasets.roles import mean_separability, sentences
from eesvm.descriptors import PCA, KernelMap, MeanNormScaler, Transformed
from eesvm.descriptors.base import Descriptor
from eesvm.descriptors.transforms import Transform
from eesvm.detector.class_calibration import CHANGED, JOINT, STORED_AS
from eesvm.detector.model import ClassModel
from eesvm.detector.options import DetectorOptions
from eesvm.detector.suggestions import SuggestedScore

FORMAT = "eesvm-model"
FORMAT_VERSION = 3  # up to 2 there was no kernel map; up to 1 the windows of selective search were OpenCV's

_COLUMNS = ["class", "exemplars", "redundant", "positives", "negatives", "false positives", "at least", "gap", "search"]


def card(
    options: DetectorOptions,
    classes: Sequence[ClassModel],
    folders: Mapping[str, str],
    descriptor: Descriptor,
    inputs: Mapping[str, Any],
    digests: Mapping[str, str],
    suggested: Mapping[str, SuggestedScore | None],
) -> dict[str, Any]:
    """The content of `model.json`."""
    plain = descriptor.descriptor if isinstance(descriptor, Transformed) else descriptor
    transforms = descriptor.transforms if isinstance(descriptor, Transformed) else ()
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "eesvm_version": __version__,
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "options": {name: value for name, value in options.as_dict().items() if name != "n_jobs"},
        "descriptor": {
            "parameters": descriptor.parameters(),
            "plain_dimension": plain.dimension,
            "dimension": descriptor.dimension,
            "transforms": [f"descriptor/{transform_name(t)}.npz" for t in transforms],
            "sizes": {t.kind: t.size for t in transforms if not isinstance(t, MeanNormScaler)},
        },
        "inputs": dict(inputs),
        "classes": [_class_entry(one, folders[one.class_name], suggested.get(one.class_name)) for one in classes],
        "files": dict(sorted(digests.items())),
    }


def transform_name(transform: Transform) -> str:
    """Of the file that a fitted transform is kept in."""
    return "pca" if isinstance(transform, PCA) else "kernel_map" if isinstance(transform, KernelMap) else "scaler"


def _class_entry(model: ClassModel, folder: str, suggested: SuggestedScore | None) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": model.class_name,
        "folder": folder,
        "n_exemplars": model.n_exemplars,
        "calibrators": list(model.calibrators),
        "facts": model.facts,
    }
    if _is_of_one_image(model):  # then what was learned of single exemplars was judged by the images it is of
        entry["is_of_one_image"] = True
    n_mirrored = sum(one.is_mirrored for one in model.annotations)
    if n_mirrored:
        entry["n_mirrored"] = n_mirrored
    if model.regressor is not None:
        entry["box_regression"] = {"n_windows": model.regressor.n_windows, "left": model.regressor.left}
    shrinkage = {name: one.left_out_.as_dict() for name, one in _shrunken(model)}
    if shrinkage:
        entry["shrinkage"] = shrinkage
    if suggested is not None:
        entry["suggested_score"] = suggested.as_dict()
    joint = model.calibrators.get(JOINT)
    if isinstance(joint, JointCalibrator):
        result = joint.result_
        entry["calibration"] = {
            "loss": float(result.loss),
            "lower_bound": float(result.lower_bound),
            "gap": float(result.gap),
            "status": result.status,
            "recall": float(result.recall),
            "min_recall": float(result.min_recall),
            "across_images": bool(getattr(joint, "across_groups_", False)),
            "n_redundant": result.n_redundant,
        }
    return entry


def _is_of_one_image(model: ClassModel) -> bool:
    return len({one.image_id for one in model.annotations}) == 1


def _shrunken(model: ClassModel) -> list[tuple[str, Any]]:
    """Calibrators whose scales were drawn together, by the names they are kept under."""
    return [(name, one) for name, one in model.calibrators.items() if hasattr(one, "left_out_")]


def write_card(root: Path, content: Mapping[str, Any]) -> None:
    """`MODEL.md`, then `model.json`, which makes the folder a model."""
    with atomic_write(root / "MODEL.md", text=True) as handle:
        handle.write(page(content))
    write_json(root / "model.json", content)


def page(content: Mapping[str, Any]) -> str:
    """The card for people."""
    options, inputs, descriptor = content["options"], content["inputs"], content["descriptor"]
    calibration, detection = options["calibration"], options["detection"]
    n_exemplars, n_mirrored = (
        sum(entry.get(name, 0) for entry in content["classes"]) for name in ("n_exemplars", "n_mirrored")
    )
    lines = [
        f"# Detector of {enumeration([entry['name'] for entry in content['classes']])}",
        "",
        f"{counted_exemplars(n_exemplars, n_mirrored)} in "
        f"{counted(len(content['classes']), 'class', 'classes')}, trained on "
        f"{counted(inputs.get('n_images', 0), 'image')} of {inputs.get('name', 'a dataset')} by eesvm "
        f"{content['eesvm_version']}.",
        "",
        markdown_table(_COLUMNS, map(_cells, content["classes"]), numbers=False),
        "",
        *_search_text(calibration, content["classes"]),
        *_shrinkage_text(calibration, content["classes"]),
        *_suggestion_text(content["classes"]),
        *_changes_text(inputs),
        *_roles_text(inputs, content["classes"]),
        "## How it was made",
        "",
        f"- windows: {options['windows']['method']}, {options['windows']['mode']}, at most "
        f"{options['windows']['max_windows']:,} an image",
        f"- descriptor: {_descriptor_text(options['descriptor'], descriptor['sizes'])}, "
        f"{descriptor['dimension']:,} numbers a window",
        f"- exemplars: {_training_text(options['training'])}",
        f"- calibration: {calibration['calibrator']}, {calibration['coverage']}; detection: "
        f"{_pooling_text(detection['pooling'])}, {_boxes_text(detection, content['classes'])}, suppression at "
        f"{detection['nms']:g}",
        f"- seed {options['random_state']}; images {inputs.get('images_digest', '?')}, annotations "
        f"{inputs.get('annotations_digest', '?')}",
        "",
        "All options, and a hash of every file, are in `model.json`.",
        "",
    ]
    return "\n".join(lines)


def _cells(entry: Mapping[str, Any]) -> list[str]:
    facts, joint = entry.get("facts", {}), entry.get("calibration")
    cells = [entry["name"], f"{entry['n_exemplars']:,}"]
    cells.append("" if joint is None else f"{joint['n_redundant']:,}")
    cells += [f"{facts[name]:,}" if name in facts else "" for name in ("n_positives", "n_negatives")]
    if joint is None:
        cells += ["", "", "", ""]
    else:
        gap = f"{100 * joint['gap']:.1f} %"
        cells += [f"{joint['loss']:,.0f}", f"{joint['lower_bound']:,.0f}", gap, joint["status"]]
    return cells


def _boxes_text(detection: Mapping[str, Any], classes: Sequence[Mapping[str, Any]]) -> str:
    left = [entry["box_regression"]["left"] for entry in classes if "box_regression" in entry]
    if not detection["box_regression"] or not left:
        return "boxes as they are proposed"
    some = "" if len(left) == len(classes) else f" in {len(left)} of the classes"
    gone = 100 - 100 * np.mean(left)
    return (
        f"boxes moved by regression{some} (on training images left out, {gone:.0f} % of their squared error is removed)"
    )


def _pooling_text(n_best: int) -> str:
    return "the best calibrated score" if n_best == 1 else f"the mean of the {n_best} best calibrated scores"


def _search_text(calibration: Mapping[str, Any], classes: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the columns of the joint thresholds mean, if any class has some."""
    joint = {entry["name"]: entry["calibration"] for entry in classes if "calibration" in entry}
    if not joint:
        return []
    across = [name for name, search in joint.items() if search["across_images"]]
    others = [name for name in joint if name not in across]
    without = " without the exemplars of the same image" if across else ""
    if across and others:
        without += f" (those of {enumeration(others)} with them: all objects of such a class are in one image)"
    part = "" if calibration.get("shrink") is not None else "; they take no part in detection"
    return [
        "False positives are training windows that the joint thresholds accept while they accept "
        f"{100 * calibration['min_recall']:g} % of the positives{without}; no thresholds accept fewer than the number "
        "beside it. Redundant exemplars have no threshold and accept nothing: the positives are accepted without "
        f"them{part}.",
        "",
    ]


def _shrinkage_text(calibration: Mapping[str, Any], classes: Sequence[Mapping[str, Any]]) -> list[str]:
    """How far exemplars have scales of their own, class by class, for the calibrator that detects."""
    stored = STORED_AS.get(calibration["calibrator"])
    found = {entry["name"]: entry["shrinkage"][stored] for entry in classes if stored in entry.get("shrinkage", {})}
    if not found:
        return []
    single = [entry["name"] for entry in classes if entry["name"] in found and entry.get("is_of_one_image")]
    rows = [[name, *_shrinkage_cells(one, is_judged=name not in single)] for name, one in found.items()]
    alone = (
        [f"All objects of {enumeration(single)} are in one image: none can be left out, so nothing is stated here.", ""]
        if single
        else []
    )
    since = [
        f"{entry['facts'][CHANGED]} of {entry['name']}" for entry in classes if entry.get("facts", {}).get(CHANGED)
    ]
    changes = [f"Since then few exemplars came, went or met hard negatives: {enumeration(since)}.", ""] if since else []
    return [
        "Detections are scored by exemplars on a scale that they share; of its own scale an exemplar keeps as much as "
        "images left out support. Average precision there, by cross-validation over images; exemplars have learned "
        "from these images, too, so compare the columns with each other: all figures are lower on new images.",
        "",
        markdown_table(["class", "own share", "AP, raw scores", "AP, as chosen", "recall of thresholds"], rows),
        "",
        *alone,
        *changes,
    ]


def _shrinkage_cells(found: Mapping[str, Any], is_judged: bool) -> list[str]:
    if not is_judged:
        return [f"{found['chosen']:g}", "", "", ""]
    precisions = dict(zip(found["strengths"], found["precisions"], strict=True))
    raw, recall = precisions.get(0.0), found["recall"]
    return [
        f"{found['chosen']:g}",
        "" if raw is None else f"{100 * raw:.1f} %",
        f"{100 * precisions[found['chosen']]:.1f} %",
        "" if recall is None else f"{100 * recall:.0f} %",
    ]


def _suggestion_text(classes: Sequence[Mapping[str, Any]]) -> list[str]:
    """From which score on detections are worth showing."""
    found = [(entry["name"], entry["suggested_score"]) for entry in classes if entry.get("suggested_score")]
    if not found:
        return []
    rows = [
        [name, f"{one['score']:.3g}", *(f"{100 * one[what]:.0f} %" for what in ("precision", "recall"))]
        for name, one in found
    ]
    return [
        "Detections are worth showing from these scores on (`eesvm detect --score auto`): there F1 is best in training "
        "images, each without the exemplars of its own objects. What all exemplars share has learned from these "
        "images, so precision and recall are lower on new ones, and much lower where training images are few.",
        "",
        markdown_table(["class", "score", "precision", "recall"], rows),
        "",
    ]


def _changes_text(inputs: Mapping[str, Any]) -> list[str]:
    """What was added and dropped after training."""
    changes = inputs.get("changes")
    if not isinstance(changes, list) or not changes:
        return []
    return ["## What was changed after training", "", *(f"- {change['text']}" for change in changes), ""]


def _roles_text(inputs: Mapping[str, Any], classes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which images the network, the exemplars and the test are from, where that is known."""
    roles = inputs.get("roles")
    if not isinstance(roles, Mapping):
        return []
    shares = mean_separability(entry.get("facts", {}) for entry in classes)
    return ["## Which images had which role", "", " ".join(sentences(roles, shares)), ""]


def _descriptor_text(options: Mapping[str, Any], sizes: Mapping[str, int]) -> str:
    text = " ".join(str(options[name]) for name in ("name", "mode", "backbone", "layer") if options[name] is not None)
    if options["name"] == "hog":
        text = text.replace(f" {options['backbone']}", "")
    pca = f", PCA to {sizes[PCA.kind]}" if PCA.kind in sizes else ""
    kernel_map = f", kernel map of {sizes[KernelMap.kind]:,} landmarks" if KernelMap.kind in sizes else ""
    return text + pca + kernel_map


def _training_text(options: Mapping[str, Any]) -> str:
    mirror = ", each object and its mirror image" if options.get("mirror") else ""
    if options["trainer"] == "lda":
        return f"LDA{mirror}"
    prior = "no prior" if options["prior"] is None else f"prior: {options['prior']}"
    return f"{options['loss']}, C {options['C']:g}, positive weight {options['positive_weight']:g}, {prior}{mirror}"
