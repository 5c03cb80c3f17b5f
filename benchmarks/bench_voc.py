"""The paper's experiment on Pascal VOC 2007: `python benchmarks/bench_voc.py DATA`.

DATA is a folder in VOC's layout with the splits train and val. Every setting says which images tune the network, which
give exemplars and calibration, and which judge; photographs never change roles within one. Each stage can be run alone
(`--stages`), keeps what it makes in the folder of `--work`, and is resumed from there:

    windows     proposals of all images
    networks    those that are tuned; a GPU makes that quick
    raw         descriptors of the windows of `--splits` by the networks of the settings; a GPU makes crops quick
    describe    the same of all images that the settings need, and from them their tables
    judge       every class of every setting with every rule
    folds       the default with mirrored exemplars and without, on training images left out
    cross       the default calibrated on scores of a prior that has not seen the images
    ways        exemplars blended with single SVMs, and all of them against the number of photographs
    mechanism   what joint calibration owes to exemplars, negatives, the recall floor, coverage and sigmoids
    claims      tables 1 to 6 of the paper, its section 5.5 and its claims, by the rules of `eesvm reproduce`
    page        docs/results/voc2007.md, and a page of claims for each setting that has them
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from _common import ROOT
from _voc_claims import STAGES as CLAIM_STAGES
from _voc_claims import beside_paper_section, claims_page, measure_part, part_file
from _voc_page import page
from _voc_tables import (
    NETWORK,
    Setting,
    describe_split,
    has_tables,
    images_of,
    make_tables,
    read_table,
    windows_of,
    with_objects,
)
from _voc_ways import BENDS, VAL, judge_ways
from _voc_ways import tables_of as ways_tables
from bench_shrinkage import recalls, reliability
from eesvm._support.validation import InputError
from eesvm.calibration.problem import any_accepts
from eesvm.detector.class_training import (
    CalibrationScores,
    TrainedClass,
    class_rows,
    score_class,
    train_class,
    train_single,
)
from eesvm.detector.cross_fitting import cross_fitted
from eesvm.detector.options import PRESETS, DetectorOptions
from eesvm.detector.training_table import TrainingWindows
from eesvm.exemplars.scoring import score_windows
from eesvm.experiments.tables.detections import (
    VOTE,
    WINNER,
    Rule,
    RuleResult,
    calibrators_on_demand,
    judge_rules,
    regressor_of,
    transfer_choices,
)
from eesvm.finetuning import PAPER_UNITS, FinetuneOptions, finetune
from eesvm.metrics.detections import rank_detections
from eesvm.metrics.tables import make_tables as make_tables_of
from eesvm.transfer.annotations import annotate_all
from eesvm.transfer.quality import MASK_IOU

ACROSS = {"calibration.coverage": "across-images"}
MOVED = {"detection.box_regression": True}
N_RESAMPLES = 100  # of the test images

SETTINGS = (
    Setting("frozen pooled", "frozen", "pooled", "train", "val"),
    Setting("frozen crops", "frozen", "crop", "train", "val"),
    Setting("tuned crops, the paper's way", "tuned", "crop", "train", "val"),
    Setting("tuned crops, roles apart", "tuned", "crop", "val, first half", "val, second half"),
    Setting("tuned on half, the same images", "half", "crop", "train, first half", "val"),
    Setting("tuned on half, other images", "half", "crop", "train, second half", "val"),
    Setting("4096-d layer, the paper's way", "4096-d", "crop", "train", "val"),
    Setting("4096-d layer, roles apart", "4096-d", "crop", "val, first half", "val, second half"),
    Setting("HOG", "hog", "warped", "train", "val"),
    Setting("tuned on VOC 2012", "voc2012", "crop", "train", "val"),
    Setting("tuned on VOC 2012, half of val", "voc2012", "crop", "train", "val, first half"),
    Setting("frozen pooled, kernel map", "frozen", "pooled", "train", "val", is_mapped=True),
    Setting("tuned on VOC 2012, kernel map", "voc2012", "crop", "train", "val", is_mapped=True),
)
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {  # images that they are tuned on, and options of that
    "tuned": ("train", {}),
    "half": ("train, first half", {}),
    "4096-d": ("train", {"hidden": PAPER_UNITS}),
    "voc2012": (NETWORK, {"held_out": 0.1}),
}

RECIPES: dict[str, dict[str, Any]] = {
    "paper": {"training.C": 1e-2, "detection.box_regression": False, "detection.pooling": 5},
    "default": {name: value for name, value in PRESETS["default"].items() if not name.startswith("calibration.")},
}
RECIPES["default"]["detection.box_regression"] = False  # but where a rule moves boxes
RECIPES["mirror"] = {**RECIPES["default"], "training.mirror": True}
MAXIMUM = {"detection.pooling": 1}
SINGLE, RCNN = Rule("single SVM", "single-svm"), Rule("R-CNN's single SVM", "single-svm")
JOINT, NONE, SIGMOID, AFFINE, JOINT_SIGMOID = (
    Rule("joint", "joint", MAXIMUM),  # the first joint rule says at which recall false positives are counted
    Rule("none", "none", MAXIMUM),
    Rule("sigmoid", "sigmoid", MAXIMUM),
    Rule("affine", "affine", MAXIMUM),
    Rule("joint + sigmoid", "joint-sigmoid", MAXIMUM),
)
OVER_IMAGES = Rule("joint + sigmoid, across images", "joint-sigmoid", {**ACROSS, **MAXIMUM})


def pooled(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Rules that take the mean of the best few, as many as the recipe says."""
    few = [{name: value for name, value in r.changes.items() if name != "detection.pooling"} for r in rules]
    return tuple(Rule(f"{r.name}, mean of few", r.calibrator, own) for r, own in zip(rules, few, strict=True))


def shrunk(rule: Rule) -> Rule:
    return Rule(f"{rule.name}, shrunk", rule.calibrator, {**rule.changes, **ACROSS, "calibration.shrink": "auto"})


def moved(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    return tuple(Rule(f"{r.name}, boxes moved", r.calibrator, {**r.changes, **MOVED}) for r in rules)


SHRUNK = shrunk(OVER_IMAGES)
DEFAULT = pooled([SHRUNK])[0]
RULES = {
    "paper": (JOINT, NONE, SIGMOID, AFFINE, JOINT_SIGMOID, SINGLE, *pooled([NONE, SIGMOID, JOINT_SIGMOID])),
    "default": (
        OVER_IMAGES, NONE, SINGLE, *pooled([NONE, SHRUNK]),
        *moved([*pooled([NONE, SIGMOID, OVER_IMAGES, SHRUNK]), SINGLE]),
    ),
    "mirror": (*pooled([NONE, SHRUNK]), SINGLE, *moved([*pooled([NONE, SHRUNK]), SINGLE])),
}  # fmt: skip
BRIEF = (SINGLE, *pooled([NONE, SHRUNK]), *moved([*pooled([NONE, SIGMOID, SHRUNK]), SINGLE]))
FLOORS = (0.9, 0.95)  # of recall, below that of the default
PHOTOGRAPHS = (400, 1000, 2500)  # that train, for the curve; those that there are
WAYS = ("curve", "blend")
FOLDED = moved([*pooled([NONE, SHRUNK]), SINGLE])
N_FOLDS = 3
MECHANISM = (JOINT, SIGMOID, JOINT_SIGMOID, NONE)
CHANGED: dict[str, tuple[Any, ...]] = {
    "exemplars": (12, 25, 50, 100),
    "negatives": (2_000, 10_000, 160_000),
    "floor": (0.8, 0.9, 0.95, 0.98),
    "coverage": ("across-images",),
    "criterion": ("platt",),
}


def main() -> None:
    arguments = make_parser().parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    stages = {
        "windows": propose, "networks": tune, "raw": describe_raw, "describe": describe, "judge": judge, "folds": judge_folds,
        "cross": judge_cross, "ways": compare_ways,
        "mechanism": mechanism, "claims": measure_claims, "page": write_page,
    }  # fmt: skip
    for stage in arguments.stages:
        stages[stage](arguments)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("data", nargs="?", type=Path, default=ROOT.parent / "shared" / "data" / "voc2007")
    stages = ("windows", "networks", "describe", "judge", "folds", "cross", "ways", "mechanism", "claims", "page")
    add("--stages", nargs="+", choices=(*stages, "raw"), default=stages)
    add("--settings", nargs="+", choices=[s.name for s in SETTINGS], default=[s.name for s in SETTINGS])
    add("--networks", nargs="+", choices=list(NETWORKS), help="to tune (those of the settings)")
    add(
        "--splits",
        nargs="+",
        default=["train", "val"],
        help="whose windows are proposed, or described alone (train val)",
    )
    add("--network-data", type=Path, help="photographs for the role of the network alone, in VOC's layout, split train")
    add("--max-exemplars", type=int, help="of a class, a random choice of its objects (all)")
    add("--claims-exemplars", type=int, help="the same for tables 4 to 6 (all)")
    add(
        "--bends", nargs="+", type=float, default=BENDS, help="C of the exemplars that are blended, the default's first"
    )
    add("--brief", action="store_true", help="the default without rules that its tables do not compare")
    add("--no-mirror", action="store_true", help="tables without mirror images, which the recipe mirror needs")
    add("--components", type=int, default=512, help="of the PCA before a kernel map (512)")
    add("--landmarks", type=int, default=1024, help="of a kernel map; 0: the components alone (1,024)")
    add("--landmark-objects", type=float, default=0.0, help="share of the landmarks that are objects (0)")
    add("--kernel-components", type=int, help="of a kernel map (one for each landmark)")
    add("--width", type=float, default=1.0, help="of the kernel (1)")
    add("--recipes", nargs="+", choices=list(RECIPES), default=list(RECIPES))
    add("--default", type=json.loads, default={}, help="options in place of the default recipe's, as JSON")
    add("--kinds", nargs="+", choices=list(CHANGED), default=list(CHANGED), help="what the mechanism changes (all)")
    add("--folds", nargs="+", type=int, choices=range(N_FOLDS), default=[0], help="of training images left out (0)")
    add("--paper-stages", nargs="+", choices=CLAIM_STAGES, default=CLAIM_STAGES, help="of the claims (all)")
    add("--paper-images", type=int, default=60, help="that give the claims' exemplars their negatives (60)")
    add("--resamples", type=int, default=50, help="of the test images, for the claims (50)")
    add("--images", type=int, help="of each split at most (all)")
    add("--classes", nargs="+", help="to judge (all)")
    add("--crops", type=int, default=500, help="windows of an image at most (500)")
    add("--negatives", type=int, default=40_000, help="calibration negatives (40,000)")
    add("--time-limit", type=float, default=4.0, help="seconds for each joint calibration (4)")
    add("--epochs", type=int, default=8)
    add("--batches", type=int, default=250, help="of an epoch of fine-tuning (250)")
    add("--processes", type=int, default=2, help="classes judged at a time (2)")
    add("--until", type=float, default=float("inf"), help="begin no new class after this time, as `time.time()` has it")
    add("--device", default="auto")
    add("--title", default="Pascal VOC 2007", help="of the page")
    add("--note", default="", help="a sentence for the head of the page: machine, what was left out")
    add("--claims-name", default="voc2007_claims", help="that the files of the claims begin with")
    add("--prose", type=Path, help="a file of Markdown, written by hand, that follows the head of the page")
    add("--work", type=Path, default=ROOT / "build" / "voc")
    add("--output", type=Path, default=ROOT / "docs" / "results" / "voc2007.md")
    return parser


def options_of(recipe: str, arguments: argparse.Namespace, **changes: Any) -> DetectorOptions:
    common = {
        "descriptor.n_components": 256,
        "descriptor.mean_norm": 20.0,
        "training.max_images": 200 if recipe == "paper" else 400,
        "calibration.max_negatives": arguments.negatives,
        "calibration.time_limit": arguments.time_limit,
        "calibration.node_limit": None,
        "n_jobs": 1,
    }
    own = arguments.default if recipe == "default" else {}
    return DetectorOptions.make("paper").changed({**common, **RECIPES[recipe], **own, **changes})


# Preparing


def propose(arguments: argparse.Namespace) -> None:
    for split in arguments.splits:
        with clock(arguments, f"windows of {split}"):
            windows_of(split, arguments)


def tune(arguments: argparse.Namespace) -> None:
    """The networks of the settings, each tuned on the images of its role."""
    needed = dict.fromkeys(s.network for s in wanted(arguments) if s.network in NETWORKS)
    for name in arguments.networks or needed:
        path, (role, own) = Path(network_path(name, arguments)), NETWORKS[name]
        if path.exists():
            continue
        images = images_of(role, arguments)
        ids = {record.image_id for record in images}
        windows = [w for w in windows_of(role.partition(", ")[0], arguments) if w.image_id in ids]
        changes = {"min_objects": 1, "epochs": arguments.epochs, "batches_per_epoch": arguments.batches, **own}
        with clock(arguments, f"network {name}"):
            made = finetune(
                images, path, FinetuneOptions.make(changes=changes), windows=windows, device=arguments.device
            )
        best = made.card["history"][made.card["best_epoch"]]
        note(arguments, {"network": name, "epoch": made.card["best_epoch"], "held_out_ap": best["held_out_ap"]})


def network_path(name: str, arguments: argparse.Namespace) -> str:
    return {"frozen": "lite0", "hog": "hog"}.get(name) or str(arguments.work / f"{name}.onnx")


def describe_raw(arguments: argparse.Namespace) -> None:
    """Descriptors of whole splits, before PCA and scaling."""
    for setting, split in itertools.product(wanted(arguments), arguments.splits):
        with clock(arguments, f"descriptors {setting.network} {setting.mode} of {split}"):
            describe_split(setting.network, network_path(setting.network, arguments), setting.mode, split, arguments)


def describe(arguments: argparse.Namespace) -> None:
    """The tables of each setting."""
    for setting in wanted(arguments):
        if not has_tables(setting, arguments):
            splits = dict.fromkeys(role.partition(", ")[0] for role in (setting.exemplars, setting.judges))
            describe_raw(argparse.Namespace(**{**vars(arguments), "settings": [setting.name], "splits": splits}))
            with clock(arguments, f"tables of {setting.name}"):
                make_tables(setting, network_path(setting.network, arguments), arguments)


def wanted(arguments: argparse.Namespace) -> list[Setting]:
    return [setting for setting in SETTINGS if setting.name in arguments.settings]


# Judging


def judge(arguments: argparse.Namespace) -> None:
    """Every class of every setting that is not judged yet; large ones first."""
    work = [
        {"setting": setting, "recipe": recipe, "class": name, "kind": "judge"}
        for setting in wanted(arguments)
        for name in classes_of(arguments)
        for recipe in arguments.recipes
    ]
    run_all(work, arguments)


def judge_folds(arguments: argparse.Namespace) -> None:
    """The default on folds of the exemplars' images, each trained on the others."""
    work = [
        {"setting": setting, "recipe": recipe, "class": name, "kind": "fold", "value": fold}
        for setting in wanted(arguments)
        for fold in arguments.folds
        for name in classes_of(arguments)
        for recipe in ("default", "mirror")
    ]
    run_all(work, arguments)


def judge_cross(arguments: argparse.Namespace) -> None:
    work = [
        {"setting": setting, "recipe": "default", "class": name, "kind": "cross"}
        for setting in wanted(arguments)
        for name in classes_of(arguments)
    ]
    run_all(work, arguments)


def compare_ways(arguments: argparse.Namespace) -> None:
    work = [item for s in wanted(arguments) for name in classes_of(arguments) for item in ways_of(s, name, arguments)]
    run_all(work, arguments)


def ways_of(setting: Setting, name: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Folds of the training images and val for blends, and the points of the curve."""
    n = len(images_of(setting.exemplars, arguments))
    values = [("blend", value) for value in (*range(N_FOLDS - 1), VAL)]
    values += [("curve", min(value, n)) for value in PHOTOGRAPHS if value <= n or value == max(PHOTOGRAPHS)]
    common = {"setting": setting, "recipe": "default", "class": name}
    return [{**common, "kind": kind, "value": value} for kind, value in values]


def mechanism(arguments: argparse.Namespace) -> None:
    """One thing changed at a time."""
    work = [
        {"setting": setting, "recipe": "paper", "class": name, "kind": kind, "value": value}
        for setting in wanted(arguments)
        for name in classes_of(arguments)
        for kind in arguments.kinds
        for value in CHANGED[kind]
    ]
    run_all(work, arguments)


def measure_claims(arguments: argparse.Namespace) -> None:
    """What the claims are judged by; HOG is a setting of its own, and the last stage of the frozen one."""
    todo = [
        (setting, stage, name)
        for setting in wanted(arguments)
        for stage in arguments.paper_stages
        for name in classes_of(arguments)
        if not part_file(arguments.work, setting, stage, name).exists()
    ]
    run_pool(measure_part, todo, arguments)


def classes_of(arguments: argparse.Namespace) -> list[str]:
    """Those with the most objects first, so that no process is left alone with the largest."""
    dataset = images_of("train", arguments)
    names = [i.class_name for i in dataset.instances()]
    chosen = arguments.classes or dataset.classes
    return sorted(chosen, key=lambda name: -names.count(name))


def run_all(work: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    """What is not known yet; work that shares a training is done in one go."""
    known = {line["key"] for line in lines_of(arguments) if "key" in line}
    todo = [item for item in work if key_of(item) not in known]
    groups = [(list(group),) for _, group in itertools.groupby(todo, training_of)]
    run_pool(judge_class, groups, arguments)


def run_pool(
    function: Callable[..., list[dict[str, Any]]], todo: Sequence[tuple[Any, ...]], arguments: argparse.Namespace
) -> None:
    """A process for each core; lines are noted as they come."""
    began = time.time()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.processes, context) as pool:
        for done in as_completed([pool.submit(function, *one, arguments) for one in todo]):
            if (
                done.exception() is not None
            ):  # one class that fails does not cost the others; the same command tries again
                traceback.print_exception(done.exception())
                continue
            for line in done.result():
                note(arguments, line)
    print(f"{len(todo)} tasks, {time.time() - began:.0f} s", flush=True)


def training_of(item: dict[str, Any]) -> str:
    """Work with the same text shares a training."""
    own = {"kind": item["kind"], "value": item["value"]} if item["kind"] in ("exemplars", "fold", *WAYS) else {}
    return key_of({name: item[name] for name in ("setting", "recipe", "class")} | own)


def key_of(item: dict[str, Any]) -> str:
    return " | ".join(str(v.name if isinstance(v, Setting) else v) for v in item.values())


def judge_class(items: Sequence[dict[str, Any]], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """One class, trained once and in a process of its own, for all that shares the training; none where time is up."""
    if time.time() > arguments.until:
        return []
    began, first = time.perf_counter(), items[0]
    setting, name, recipe = first["setting"], first["class"], first["recipe"]
    is_way = first["kind"] in WAYS
    train, test = ways_tables(first, folds_of, arguments) if is_way else tables_of(first, arguments)
    if not len(train.objects(name)[0]) or not len(test.objects(name)[0]):
        return [{"key": key_of(item), "skipped": "no objects"} for item in items]
    if is_way:
        facts = judge_ways(first, train, test, options_of(recipe, arguments), N_RESAMPLES, arguments.bends)
        common = {
            "setting": setting.name,
            "recipe": recipe,
            "class": name,
            "kind": first["kind"],
            "value": first["value"],
        }
        return [{"key": key_of(first), **common, **facts, "seconds": time.perf_counter() - began}]
    trained = train_class(train, name, options_of(recipe, arguments).training)
    seconds = time.perf_counter() - began
    lines = []
    for item in items:
        began = time.perf_counter()
        facts = judged(item, train, test, trained, arguments)
        lines.append({
            "key": key_of(item), "setting": setting.name, "recipe": recipe, "class": name, "kind": item["kind"],
            "value": item.get("value"), "trained": seconds, **facts, "seconds": time.perf_counter() - began,
        })  # fmt: skip
    return lines


def tables_of(item: dict[str, Any], arguments: argparse.Namespace) -> tuple[TrainingWindows, TrainingWindows]:
    """Windows of the images that train and that judge."""
    setting, kind, value = item["setting"], item["kind"], item.get("value")
    train = read_table(setting, setting.exemplars, arguments)
    if kind == "fold":
        fold = folds_of(len(train.records))
        parts = [np.flatnonzero(fold != value), np.flatnonzero(fold == value)]
        return train.of_images(parts[0].tolist()), train.of_images(parts[1].tolist())
    most = int(value) if kind == "exemplars" else arguments.max_exemplars  # type: ignore[arg-type]
    if most is not None:
        train = with_objects(train, item["class"], most)
    return train, read_table(setting, setting.judges, arguments)


def folds_of(n_images: int, n_folds: int = N_FOLDS) -> np.ndarray:
    """(images,) which fold each is in; `bench_voc_trials` has the same."""
    fold = np.empty(n_images, dtype=np.int64)
    fold[np.random.default_rng(0).permutation(n_images)] = np.arange(n_images) % n_folds
    return fold


def judged(
    item: dict[str, Any], train: TrainingWindows, test: TrainingWindows, trained: TrainedClass,
    arguments: argparse.Namespace,
) -> dict[str, Any]:  # fmt: skip
    """The figures of all rules for one piece of work."""
    kind, recipe, name = item["kind"], item["recipe"], item["class"]
    options = options_of(recipe, arguments, **mechanism_changes(kind, item.get("value")))
    scores = score_class(train, trained, options.changed({"calibration.shrink": "auto"}).calibration)
    facts: dict[str, Any] = {"exemplars": len(trained.instances), "positives": scores.table.n_positives}
    plain_scores = scores
    if kind == "cross":
        scores = cross_fitted(train, trained, scores, options.changed({"calibration.cross_fit": True}))
    calibrator_of = calibrators_on_demand(scores, options)
    every = BRIEF if arguments.brief and recipe == "default" else RULES[recipe]
    rules = {"judge": every, "fold": FOLDED, "cross": moved([DEFAULT])}.get(kind, MECHANISM)
    regressor = regressor_of(train, name, options, rules)
    found = judge_rules(
        test, name, trained.exemplars, trained.single, calibrator_of, options, rules, regressor=regressor
    )
    if recipe != "paper" and kind != "cross":
        own = class_rows(train, name, options.training, options.random_state)[0]
        plain = train_single(train.table, own, "hinge", options.random_state)
        rcnn = [rule for rule in (RCNN, *moved([RCNN])) if kind == "judge" or rule is not RCNN]
        found += judge_rules(test, name, trained.exemplars, plain, calibrator_of, options, rcnn, regressor=regressor)
    facts["rows"] = [row_of(test, one) for one in found]
    if kind == "cross":
        facts["floors"] = floors_of(test, trained, {"plain": plain_scores, "cross": scores}, options)
        at_95 = facts["floors"]["0.95"]
        facts["floor"] = {key: [at_95[key][what] for what in SEARCHED] for key in at_95}
    if kind in ("judge", "cross"):
        facts["reliability"] = {one.rule: reliability(test, one) for one in found if "igmoid" in one.rule}
        if recipe != "paper":
            calibrator = calibrator_of(SHRUNK)
            facts["recall"] = recalls(test, name, trained.exemplars, calibrator)  # type: ignore[arg-type]
            facts["left_out"] = calibrator.left_out_.as_dict()  # type: ignore[attr-defined]
    if kind == "judge":
        masked = {one.rule: transfer_of(train, test, trained, one, options) for one in found if one.rule in MASKED}
        facts["transfer"] = {rule: None if made is None else made[0] for rule, made in masked.items()}
        facts["handed"] = {rule: None if made is None else made[1] for rule, made in masked.items()}
    return facts


SEARCHED, LOWERED = ("as_searched", "as_searched_negatives"), ("lowered", "lowered_negatives")


def floors_of(
    test: TrainingWindows, trained: TrainedClass, scores: Mapping[str, CalibrationScores], options: DetectorOptions
) -> dict[str, dict[str, dict[str, float]]]:
    """Shares of the positive and of the negative test windows that joint thresholds of each floor accept.

    As they were searched, and lowered as far as images left out ask for.
    """
    is_proposal = test.instance < 0
    positives = is_proposal & (test.overlap(trained.class_name, with_difficult=False) >= 0.5)
    negatives = is_proposal & (test.overlap(trained.class_name) <= 0.2)
    weights, biases = trained.exemplars.coef_, trained.exemplars.intercept_
    raw = [score_windows(test.descriptors[np.flatnonzero(own)], weights, biases) for own in (positives, negatives)]
    found: dict[str, dict[str, dict[str, float]]] = {}
    for floor in FLOORS:
        rule = Rule("floor", "joint", {**ACROSS, "calibration.shrink": 0.0, "calibration.min_recall": floor})
        found[f"{floor:g}"] = {}
        for key, one in scores.items():
            calibrator: Any = calibrators_on_demand(one, options)(rule)
            shares = {"left_out": calibrator.left_out_.recall, "shift": calibrator.left_out_.shift}
            for names, shift in ((SEARCHED, 0.0), (LOWERED, calibrator.left_out_.shift)):
                thresholds = calibrator.thresholds_ - np.float32(shift)
                shares |= {name: float(any_accepts(s, thresholds).mean()) for name, s in zip(names, raw, strict=True)}
            found[f"{floor:g}"][key] = shares
    return found


MASKED = ("joint + sigmoid", DEFAULT.name, moved([DEFAULT])[0].name, "none, mean of few")


def mechanism_changes(kind: str, value: Any) -> dict[str, Any]:
    names = {"negatives": "max_negatives", "floor": "min_recall", "criterion": "criterion", "coverage": "coverage"}
    return {f"calibration.{names[kind]}": value} if kind in names else {}


def row_of(test: TrainingWindows, one: RuleResult) -> dict[str, Any]:
    """Figures of a rule; those of the resamples are of the same images for every rule and class."""
    ranking = rank_detections(make_tables_of(test.records, one.detections, [one.class_name]), 0.5, "voc10")[0]
    n = len(test.records)
    drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), N_RESAMPLES).astype(np.float64)
    return {
        "rule": one.rule, "ap": one.detection_ap, "window_ap": one.window_ap, "recall": one.recall,
        "false_positives": one.false_positives, "search": dict(one.search), "winners": one.n_winners,
        "hits": len(one.hits), "objects": one.n_objects,
        "resampled": [round(ranking.average_precision(weights), 4) for weights in drawn],
    }  # fmt: skip


def transfer_of(
    train: TrainingWindows, test: TrainingWindows, trained: TrainedClass, one: RuleResult, options: DetectorOptions
) -> Any:
    """Mean mask IoU of each choice of exemplars and how many objects it is of; and what two of them give each object."""
    records = {record.image_id: record for record in train.records}
    own = class_rows(train, trained.class_name, options.training, options.random_state)[0].own
    described = np.asarray(train.descriptors[own])
    try:
        annotations = annotate_all(trained.objects, records, [], mirror=trained.n_mirrored > 0)
        found = transfer_choices(test, trained.exemplars, described, annotations, one)
    except InputError:
        return None
    rows = [row for row in found.rows if row.measure == MASK_IOU]
    hits = [hit for hit in one.hits if hit.exemplars]
    images = [str(test.records[test.image[np.flatnonzero(test.instance < 0)[hit.window]]].image_id) for hit in hits]
    handed = {
        name: [
            [image, int(hit.instance.index), round(float(iou), 4)]
            for image, hit, iou in zip(images, hits, found.values[choice, MASK_IOU], strict=True)
            if np.isfinite(iou)
        ]
        for name, choice in (("winner", WINNER), ("vote", VOTE))
        if (choice, MASK_IOU) in found.values
    }
    return {row.choice: [row.mean, row.n_detections] for row in rows}, handed


# Keeping


class clock:
    """Notes how long something took."""

    def __init__(self, arguments: argparse.Namespace, what: str) -> None:
        self.arguments, self.what = arguments, what

    def __enter__(self) -> None:
        self.began = time.perf_counter()

    def __exit__(self, *failure: object) -> None:
        if failure[0] is None:
            seconds = time.perf_counter() - self.began
            print(f"{self.what}: {seconds:.0f} s", flush=True)
            note(self.arguments, {"stage": self.what, "seconds": seconds})


def note(arguments: argparse.Namespace, line: dict[str, Any]) -> None:
    with (arguments.work / "results.jsonl").open("a", buffering=1 << 24) as handle:
        handle.write(json.dumps(line) + "\n")


def lines_of(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """What is noted; of what was measured twice the last."""
    file = arguments.work / "results.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return list({line.get("key", n): line for n, line in enumerate(lines)}.values())


def write_page(arguments: argparse.Namespace) -> None:
    file = arguments.work / "trials.jsonl"
    trials = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    beside_paper = [line for setting in SETTINGS for line in beside_paper_section(arguments, setting)]
    text = page(lines_of(arguments), trials, beside_paper, arguments)
    arguments.output.write_text(text)
    print(text)
    for setting in SETTINGS:
        claims = claims_page(arguments, setting)
        if claims:
            name = part_file(arguments.work, setting, "", "").parent.name
            arguments.output.with_name(f"{arguments.claims_name}_{name}.md").write_text(claims)


if __name__ == "__main__":
    main()
