"""Masks that detections inherit, with mirrored exemplars and refined by the photograph: `python benchmarks/bench_masks.py`.

Writes benchmarks/results/masks.md. Images with masks of each set are cut into halves, several times: one trains a
detector with the default preset, once with and once without `training.mirror`, the other judges. Windows are described
once a set; the PCA and the scaling, which see no annotation, are fitted to proposals of 150 random images of it. What
has been measured is kept below `--work`, so that an interrupted benchmark can be resumed: detections first, which take
long, then the masks that they get.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from _common import RESULTS, ROOT, machine, markdown
from eesvm import datasets
from eesvm.descriptors import DescriptorCache
from eesvm.detector.class_calibration import STORED_AS, score_rule
from eesvm.detector.class_training import class_rows, score_class, train_class
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_descriptor import fit_descriptor
from eesvm.detector.training_table import TrainingWindows, describe_windows, propose_windows
from eesvm.exemplars.scoring import score_windows
from eesvm.experiments.tables.detections import Rule, calibrators_on_demand, judge_rules, regressor_of
from eesvm.structures import ImageRecord
from eesvm.transfer import mirrored
from eesvm.transfer.annotations import annotate_all
from eesvm.transfer.detections import vote_weights
from eesvm.transfer.measures import MASK_IOU, PART_IOU, POSE
from eesvm.transfer.quality import WHOLE_BOX, Consensus, NothingToCompareError, Refined, random_choice, transfer_quality
from eesvm.transfer.region_trees import RegionTrees, load_trees
from learn_refinement import learn

SETS = {"voc2007": None, "pets_voc": 160, "coco_subset_128": None}  # at most so many images with masks
MOST_CLASSES = {"coco_subset_128": 6}  # those with the most objects
RULE = Rule("default preset", "joint-sigmoid")
CHEAP = {"training.max_images": 60, "calibration.max_negatives": 10_000, "n_jobs": 1}
N_VOTERS = 5
N_OF_CLASS = 30  # random exemplars that stand for their class
MEASURES = (MASK_IOU, PART_IOU, POSE)
CHOICES = (
    "winner",
    "winner, refined",
    "vote of 5",
    "vote of 5, refined",
    "class, refined",
    "nearest",
    "random",
    WHOLE_BOX,
)
TITLES = {
    "voc2007": "PASCAL VOC 2007: 422 images with masks, 20 classes",
    "pets_voc": "Pets: 160 images, cats and dogs, with heads as parts",
    "coco_subset_128": "Everyday scenes of COCO: 128 images, the 6 most frequent classes",
}
HEAD = """\
# Masks that detections inherit

{machine}; `{command}`.

Each set is cut into halves, {n} times: one trains the default preset (frozen EfficientNet-Lite0, pooled; {seconds:g} s
for the joint thresholds of a class; the first {windows} windows of each image, negatives of 60 images, 10,000 to
calibrate on), the other judges. "Mirrored" is `training.mirror`: the mirror image of each object is an exemplar, too,
and an object of the single SVM that is their prior. Judged is the best detection of each object that is found (IoU of
0.5), boxes moved by regression; void pixels count neither way. "Vote" are the five best calibrated exemplars, weighted
by their scores; "refined" is what the photograph and the mean mask of the class make of the mask
(`eesvm.transfer.refine`): trees judge regions, learned on VOC from the training half of each split
(`benchmarks/learn_refinement.py`); on the other sets those of the package, learned from VOC. "Class" is a vote of 30
random exemplars of the class, all alike: what is lost without a winner; "nearest" has the nearest descriptor, "random" is
the mean of ten exemplars of the class. In per cent, with 95 % intervals over images; a photograph is in several splits.
"""


def main() -> None:
    arguments = parse_arguments()
    arguments.work.mkdir(parents=True, exist_ok=True)
    for name in arguments.sets:
        detect(name, arguments)
        measure(name, arguments)
    text = page(arguments)
    if arguments.output:
        (arguments.output / "masks.md").write_text(text)
    print(text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("data", nargs="?", type=Path, default=ROOT.parent / "shared" / "data", help="folder of datasets")
    add("--sets", nargs="+", choices=SETS, default=tuple(SETS))
    add("--splits", type=int, default=3)
    add("--time-limit", type=float, default=1.0, help="seconds for each joint calibration (1)")
    add("--windows", type=int, default=500, help="proposals of each image, the first so many (500)")
    add("--cache", type=Path, default=ROOT / "build" / "masks_cache", help="of windows and descriptors")
    add("--work", type=Path, default=ROOT / "build" / "masks", help="folder of what has been measured")
    add("--again", action="store_true", help="measure the masks again, on the detections that are known")
    add("--output", type=Path, default=RESULTS, help="folder of the page")
    return parser.parse_args()


def images_of(name: str, data: Path) -> list[ImageRecord]:
    """The images of a set with masks, or a random choice of them."""
    found = [r for r in datasets.open_dataset(data / name) if any(i.mask is not None for i in r.instances)]
    if SETS[name] is None:
        return found
    return [found[k] for k in np.sort(np.random.default_rng(0).permutation(len(found))[: SETS[name]]).tolist()]


def detect(name: str, arguments: argparse.Namespace) -> None:
    """The detections of all splits, with mirrored exemplars and without, and who speaks for them."""
    todo = [
        (split, mirror)
        for split in range(arguments.splits)
        for mirror in (False, True)
        if not detections_file(arguments, name, split, mirror).exists()
    ]
    if not todo:
        return
    options = DetectorOptions.make(changes={**CHEAP, "calibration.time_limit": arguments.time_limit})
    images, cache = images_of(name, arguments.data), DescriptorCache(arguments.cache)
    proposed = list(propose_windows(images, options.windows, 1, True, cache))
    descriptor = fit_descriptor(images, proposed, options, cache=cache)
    table = first_windows(describe_windows(images, proposed, descriptor, cache=cache, mirror=True), arguments.windows)
    for split, mirror in todo:
        train, test = (table.of_images(part) for part in halves(len(table.records), split))
        started = time.perf_counter()
        own = options.changed({"training.mirror": mirror, "random_state": split})
        classes = [one for class_name in class_names(name, images) for one in judged(train, test, class_name, own)]
        seconds = time.perf_counter() - started
        content = {"set": name, "split": split, "mirror": mirror, "seconds": seconds, "classes": classes}
        detections_file(arguments, name, split, mirror).write_text(json.dumps(content))
        print(f"{name}, split {split}, mirror {mirror}: {seconds:.0f} s", flush=True)


def first_windows(table: TrainingWindows, n: int) -> TrainingWindows:
    """The first `n` proposals of each image, and all objects."""
    is_kept = table.instance >= 0
    for start, stop in itertools.pairwise(table.starts.tolist()):
        is_kept[start + np.flatnonzero(table.instance[start:stop] < 0)[:n]] = True
    rows = np.flatnonzero(is_kept)
    return replace(
        table,
        starts=np.concatenate([[0], np.cumsum(np.add.reduceat(is_kept.astype(np.int64), table.starts[:-1]))]),
        boxes=table.boxes[rows],
        instance=table.instance[rows],
        descriptors=np.concatenate([table.descriptors[rows], table.descriptors[len(table) :]]),
        mirrored=np.searchsorted(rows, table.mirrored),
    )


def class_names(name: str, images: list[ImageRecord]) -> list[str]:
    counts = Counter(i.class_name for r in images for i in r.instances if not i.is_crowd and not i.is_difficult)
    return [class_name for class_name, _ in counts.most_common(MOST_CLASSES.get(name))]


def detections_file(arguments: argparse.Namespace, name: str, split: int, mirror: bool) -> Path:
    return arguments.work / f"{name}_{split}_{'mirrored' if mirror else 'plain'}.json"


def judged(
    train: TrainingWindows, test: TrainingWindows, class_name: str, options: DetectorOptions
) -> Iterator[dict[str, Any]]:
    """A class: its average precision, and the best detection of each object that it finds."""
    if len(train.objects(class_name)[0]) < 2 or not len(test.objects(class_name)[0]):
        return
    trained = train_class(train, class_name, options.training, random_state=options.random_state)
    scores = score_class(train, trained, options.calibration, random_state=options.random_state)
    calibrator_of = calibrators_on_demand(scores, options)
    regressor = regressor_of(train, class_name, options, [RULE])
    exemplars = trained.exemplars
    (result,) = judge_rules(
        test, class_name, exemplars, trained.single, calibrator_of, options, [RULE], regressor=regressor
    )
    fitted = {STORED_AS[RULE.calibrator]: calibrator_of(RULE)}
    how = score_rule(RULE.calibrator, fitted, len(exemplars.coef_), options.detection.pooling)
    rows = np.flatnonzero(test.instance < 0)[[hit.window for hit in result.hits]]
    windows = np.asarray(test.descriptors[rows]).reshape(len(rows), -1)
    raw = score_windows(windows, exemplars.coef_[how.used], exemplars.intercept_[how.used])
    voters, calibrated = how.best(raw, N_VOTERS)
    described = train.descriptors[class_rows(train, class_name, options.training, options.random_state)[0].own]
    nearest = ((described**2).sum(axis=1) - 2 * windows @ described.T).argmin(axis=1) if len(rows) else []
    hits = [
        {
            "image": hit.instance.image_id,
            "index": hit.instance.index,
            "box": hit.box.tolist(),
            "voters": voters[k].tolist(),
            "scores": calibrated[k].tolist(),
            "nearest": int(nearest[k]),
        }
        for k, hit in enumerate(result.hits)
    ]
    yield {
        "class": class_name,
        "exemplars": [[i.image_id, i.index] for i in trained.instances],
        "n_mirrored": trained.n_mirrored,
        "n_objects": result.n_objects,
        "ap": result.detection_ap,
        "hits": hits,
    }


def measure(name: str, arguments: argparse.Namespace) -> None:
    """What each way to choose exemplars hands on to the detections."""
    records: dict[str, ImageRecord] = {}
    for split in range(arguments.splits):
        for mirror in (False, True):
            file = masks_file(arguments, name, split, mirror)
            if file.exists() and not arguments.again:
                continue
            records = records or {record.image_id: record for record in images_of(name, arguments.data)}
            content = json.loads(detections_file(arguments, name, split, mirror).read_text())
            started = time.perf_counter()
            trees = trees_of(name, split, arguments)
            rows = [row for one in content["classes"] if one["hits"] for row in handed_on(one, records, split, trees)]
            file.write_text(json.dumps(rows))
            print(f"{file.stem}: {len(rows)} detections, {time.perf_counter() - started:.0f} s", flush=True)


def halves(n: int, split: int) -> tuple[list[int], list[int]]:
    """Numbers of the images that a split trains on, and of those that judge."""
    first, second = np.array_split(np.random.default_rng(split).permutation(n), 2)
    return sorted(first.tolist()), sorted(second.tolist())


def trees_of(name: str, split: int, arguments: argparse.Namespace) -> RegionTrees | None:
    """Trees that have not seen the images that judge: of VOC those of the other half, else those of the package."""
    if name != "voc2007":
        return None
    file = arguments.work / f"{name}_{split}_trees.safetensors"
    if not file.exists():
        images = images_of(name, arguments.data)
        learn([images[k] for k in halves(len(images), split)[0]], split).save(file)
    return load_trees(file)


def masks_file(arguments: argparse.Namespace, name: str, split: int, mirror: bool) -> Path:
    return arguments.work / f"{name}_{split}_{'mirrored' if mirror else 'plain'}_masks.json"


def handed_on(
    one: dict[str, Any], records: dict[str, ImageRecord], split: int, trees: RegionTrees | None, refine: bool = True
) -> list[dict[str, Any]]:
    """The measures of all choices, detection by detection, of one class; without `refine` of masks as they are."""
    find = {(r.image_id, i.index): i for r in records.values() for i in r.instances}
    n_objects = len(one["exemplars"]) - one["n_mirrored"]
    annotations = list(annotate_all([find[tuple(key)] for key in one["exemplars"][:n_objects]], records))
    annotations += [mirrored(each) for each in annotations[: one["n_mirrored"]]]
    hits = one["hits"]
    instances = [find[hit["image"], hit["index"]] for hit in hits]
    winner = np.array([hit["voters"][0] for hit in hits])
    vote = Consensus([hit["voters"] for hit in hits], [vote_weights(hit["scores"]) for hit in hits])
    some = np.random.default_rng(split).permutation(len(annotations))[:N_OF_CLASS].tolist()
    read = lru_cache(maxsize=4)(lambda image_id: records[image_id].read())
    choices = {
        "winner": winner,
        "winner, refined": Refined(winner),
        "vote of 5": vote,
        "vote of 5, refined": Refined(vote),
        "class, refined": Refined(Consensus([some] * len(hits), [[1.0] * len(some)] * len(hits))),
        "nearest": np.array([hit["nearest"] for hit in hits]),
        "random": random_choice(annotations, instances, random_state=split),
    }
    try:
        quality = transfer_quality(
            annotations,
            {choice: how for choice, how in choices.items() if refine or not isinstance(how, Refined)},
            boxes=np.array([hit["box"] for hit in hits]),
            instances=instances,
            image_sizes=[(records[hit["image"]].width, records[hit["image"]].height) for hit in hits],
            n_resamples=1,
            read_image=lambda number: read(hits[number]["image"]),
            trees=trees,
        )
    except NothingToCompareError:
        return []
    return [
        {
            "class": one["class"],
            "image": hit["image"],
            "index": hit["index"],
            "values": {
                f"{choice} | {measure}": float(values[k])
                for (choice, measure), values in quality.values.items()
                if measure in MEASURES and not np.isnan(values[k])
            },
        }
        for k, hit in enumerate(hits)
    ]


def page(arguments: argparse.Namespace) -> str:
    """All sets as Markdown."""
    parts = [
        HEAD.format(
            machine=machine(),
            command=f"python benchmarks/bench_masks.py --sets {' '.join(arguments.sets)}",
            n=arguments.splits,
            seconds=arguments.time_limit,
            windows=arguments.windows,
        )
    ]
    for name in arguments.sets:
        found = {
            mirror: [
                {**row, "split": split}
                for split in range(arguments.splits)
                for row in json.loads(masks_file(arguments, name, split, mirror).read_text())
            ]
            for mirror in (False, True)
        }
        parts += [f"## {TITLES[name]}", "", *set_lines(found), *unseen_lines(name, found, arguments)]
        parts += [*precision_lines(name, arguments), ""]
    return "\n".join(parts)


def unseen_lines(name: str, found: dict[bool, list[dict[str, Any]]], arguments: argparse.Namespace) -> list[str]:
    """Of VOC: the images that were not looked at while the features of regions were chosen."""
    if name != "voc2007" or arguments.splits < 2:
        return []
    images = images_of(name, arguments.data)
    seen = {images[k].image_id for k in halves(len(images), 0)[1]}
    texts = []
    for mirror, what in ((False, "plain"), (True, "mirrored")):
        rows = [row for row in found[mirror] if row["image"] not in seen]
        cells = ", ".join(
            f"{choice} {cell(rows, choice, MASK_IOU)}"
            for choice in ("winner, refined", "vote of 5, refined", "class, refined", WHOLE_BOX)
        )
        texts.append(f"{what} ({len(rows)} detections) {cells}")
    about = "What regions are judged by was chosen on images of the half that judges in the first split"
    return [f"{about}. Images that are not in it: {'; '.join(texts)}.", ""]


def set_lines(found: dict[bool, list[dict[str, Any]]]) -> list[str]:
    known = {key for rows in found.values() for row in rows for key in row["values"]}
    measures = [measure for measure in MEASURES if any(key.endswith(f"| {measure}") for key in known)]
    columns = [(measure, mirror) for measure in measures for mirror in (False, True)]
    headings = ["choice", *(f"{m}, {'mirrored' if mirror else 'plain'}" for m, mirror in columns)]
    rows = [[choice, *(cell(found[mirror], choice, m) for m, mirror in columns)] for choice in CHOICES]
    plain = paired(found[False], "winner", MASK_IOU)
    differences = [
        ["mirrored winner", paired(found[True], "winner", MASK_IOU), plain],
        ["winner, refined", paired(found[False], "winner, refined", MASK_IOU), plain],
        ["mirrored winner, refined", paired(found[True], "winner, refined", MASK_IOU), plain],
        ["mirrored vote, refined", paired(found[True], "vote of 5, refined", MASK_IOU), plain],
    ]
    box = paired(found[True], WHOLE_BOX, MASK_IOU)
    (most, n_most), *_ = Counter(row["class"] for row in found[False]).most_common()
    alone = [row for row in found[False] if row["class"] == most]
    differences.append(["mirrored vote, refined, less the box", differences[-1][1], box])
    differences.append(["mirrored winner, refined, less the box", differences[2][1], box])
    return [
        f"{len(found[False])} detections of plain exemplars, {len(found[True])} of mirrored ones, each the best of its object.",
        "",
        markdown(headings, rows),
        "",
        f"Of {most} alone, the class with the most detections ({n_most} of plain exemplars): "
        + ", ".join(f"{choice} {cell(alone, choice, MASK_IOU)}" for choice in CHOICES)
        + ".",
        "",
        "Points of mask IoU above the winner of plain exemplars (or the box), on the objects that both find:",
        "",
        markdown(
            ["", "difference", "objects"], [[title, *difference(one, other)] for title, one, other in differences]
        ),
        "",
    ]


def cell(rows: list[dict[str, Any]], choice: str, measure: str) -> str:
    values = paired(rows, choice, measure)
    if not values:
        return ""
    low, high = interval(values)
    return f"{100 * np.mean(list(values.values())):.1f} ({100 * low:.1f} to {100 * high:.1f})"


def paired(rows: list[dict[str, Any]], choice: str, measure: str) -> dict[tuple[str, int, int, str], float]:
    """Values by image, object, split and class."""
    key = f"{choice} | {measure}"
    return {
        (row["image"], row["index"], row["split"], row["class"]): row["values"][key]
        for row in rows
        if key in row["values"]
    }


def difference(one: dict[Any, float], other: dict[Any, float]) -> list[str]:
    gains = {key: value - other[key] for key, value in one.items() if key in other}
    low, high = interval(gains)
    return [f"{100 * np.mean(list(gains.values())):+.1f} ({100 * low:+.1f} to {100 * high:+.1f})", str(len(gains))]


def interval(values: dict[Any, float]) -> tuple[float, float]:
    """95 % of the mean when whole images are drawn with replacement, all splits of an image together."""
    ids = np.unique([key[0] for key in values], return_inverse=True)[1]
    sums, counts = np.bincount(ids, weights=list(values.values())), np.bincount(ids)
    random = np.random.default_rng(0)
    draws = random.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=1000)
    low, high = np.quantile((draws @ sums) / (draws @ counts), [0.025, 0.975])
    return float(low), float(high)


def precision_lines(name: str, arguments: argparse.Namespace) -> list[str]:
    """Average precision of detections, class by class and split by split."""
    found = {
        mirror: {
            (split, one["class"]): one["ap"]
            for split in range(arguments.splits)
            for one in json.loads(detections_file(arguments, name, split, mirror).read_text())["classes"]
        }
        for mirror in (False, True)
    }
    gains = np.array([found[True][key] - ap for key, ap in found[False].items()])
    means = [100 * np.mean(list(found[mirror].values())) for mirror in (False, True)]
    reach = 196 * gains.std(ddof=1) / np.sqrt(len(gains))
    return [
        f"Detection AP, mean over classes and splits: plain {means[0]:.1f}, mirrored {means[1]:.1f}; difference "
        f"{100 * gains.mean():+.1f} +- {reach:.1f} over {len(gains)} pairs of class and split."
    ]


if __name__ == "__main__":
    main()
