"""A kernel map in front of linear SVMs: what it brings on Pascal VOC 2007, and what of it is rows, numbers or kernel.

`python benchmarks/bench_kernel_map.py DATA --work FOLDER` cuts the training images into three folds; every way is trained on
two of them and judged by detection AP on the third. `--val` trains on all training images and judges on those of val.
Windows and descriptors in the folder are those of `bench_voc.py`. The PCA is of all training images, as there; the kernel
map and the scaling are fitted to images that train. Negatives of all ways are 100 proposals of each image that trains.
Boxes are as proposed, moved by one regression that reads 256 components, in all ways alike, and moved by one that reads
the way's own rows. Exemplars are uncalibrated.

A way is a learner behind rows, and rows are made by a PCA, and by a kernel map of some landmarks if any. "Half" means
that half of the landmarks are objects of all classes, drawn at random, and half proposals; else all are proposals.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from _common import ROOT, markdown
from _voc_numbers import difference, slug
from _voc_tables import beginning, describe_split, images_of, landmarks_of, split_of, windows_of
from _voc_ways import Judge
from bench_voc import folds_of
from eesvm._support.threads import one_product_thread
from eesvm.descriptors import PCA, KernelMap, MeanNormScaler
from eesvm.descriptors.transforms import Transform
from eesvm.detector.box_regression import fit_boxes, windows_of_objects
from eesvm.detector.class_training import fit_single, make_trainer
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_table import TrainingWindows
from eesvm.exemplars.scoring import score_windows

N_COMPONENTS, MOST_COMPONENTS, MEAN_NORM = 256, 512, 20.0
N_FOLDS, N_RESAMPLES = 3, 100
NEGATIVES_OF_AN_IMAGE = 100
SAMPLE_IMAGES, SAMPLE_WINDOWS = 150, 80  # that the PCA, the map and the scaling are fitted to
MOST_REGRESSED = 5_000  # windows that a regression of boxes is fitted to
POOLING = 5
SINGLE, RCNN, EXEMPLARS, BEST = "single SVM", "R-CNN's single SVM", "exemplars", "best exemplar"
RBF = "RBF SVM"


class Kind(NamedTuple):
    """How rows are made."""

    components: int = N_COMPONENTS
    landmarks: int = 0  # 0: no kernel map
    landmark_objects: float = 0.0  # share of the landmarks that are objects
    mean_norm: float = MEAN_NORM  # twice the length is the same as four times the C
    width: float = 1.0  # of the kernel
    directions: int | None = None  # of the map that are kept, those along which landmarks vary most; None: all


KINDS = {
    "256": Kind(),
    "512": Kind(512),
    "256, map of 512": Kind(256, 512),
    "256, map of 512, half": Kind(256, 512, 0.5),
    "256, map of 1,024, half": Kind(256, 1024, 0.5),
    "512, map of 512": Kind(512, 512),
    "512, map of 512, half": Kind(512, 512, 0.5),
    "512, map of 1,024": Kind(512, 1024),
    "512, map of 1,024, half": Kind(512, 1024, 0.5),
    "512, map of 1,024, first 512": Kind(512, 1024, directions=512),
    "512, map of 1,024, first 256": Kind(512, 1024, directions=256),
    "256, map of 512, length 50": Kind(256, 512, 0.0, 50.0),
    "256, map of 512, length 100": Kind(256, 512, 0.0, 100.0),
    "512, map of 1,024, half, length 50": Kind(512, 1024, 0.5, 50.0),
    "512, map of 1,024, half, length 100": Kind(512, 1024, 0.5, 100.0),
    "256, length 50": Kind(256, mean_norm=50.0),
}
PLAIN, LONG = "256", "512"
ALWAYS, PLAINLY = (SINGLE, EXEMPLARS, BEST), (SINGLE, RCNN, EXEMPLARS, BEST, RBF)  # learners behind rows
MOVED = {1: "moved alike", 2: "moved by the way's own rows", 0: "as proposed"}  # by their place in a line
BLOCK = 1 << 13


def main() -> None:
    arguments = parse_arguments()
    if not arguments.page:
        measure(arguments)
    text = page(arguments)
    if text and arguments.output is not None:
        arguments.output.write_text(text)
    print(text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("data", nargs="?", type=Path, default=ROOT.parent / "shared" / "data" / "voc2007")
    add("--work", type=Path, default=ROOT / "build" / "voc")
    add("--classes", nargs="+", help="to judge (all)")
    add("--folds", nargs="+", type=int, choices=range(N_FOLDS), default=list(range(N_FOLDS)))
    add("--val", action="store_true", help="train on all training images, judge on val")
    add("--page", action="store_true", help="only write what has been found")
    add("--until", type=float, default=float("inf"), help="begin no new class after this time, as `time.time()` has it")
    add("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), help="of rows (all)")
    add("--processes", type=int, default=1, help="(1)")
    add("--crops", type=int, default=500, help="windows of an image at most (500)")
    add("--images", type=int, help="of each split at most (all)")
    add("--note", default="", help="a sentence for the head of the page")
    add("--prose", type=Path, help="a file of Markdown, written by hand, that follows the head of the page")
    add("--output", type=Path)
    arguments = parser.parse_args()
    arguments.network_data, arguments.device = None, "cpu"
    return arguments


# Rows


def projected(split: str, arguments: argparse.Namespace) -> np.ndarray:
    """(n, 512) float32 principal components of the windows of a split; the directions are those of train."""
    file = arguments.work / f"components_{split}.npy"
    if not file.exists():
        raw = np.load(describe_split("frozen", "lite0", "pooled", split, arguments), mmap_mode="r")
        pca = components(arguments)
        with one_product_thread():
            found = [pca.transform(raw[a : a + BLOCK].astype(np.float32)) for a in range(0, len(raw), BLOCK)]
        np.save(file, np.concatenate(found))
    return np.load(file, mmap_mode="r")


def components(arguments: argparse.Namespace) -> PCA:
    file = arguments.work / "components.npz"
    if not file.exists():
        raw = np.load(describe_split("frozen", "lite0", "pooled", "train", arguments), mmap_mode="r")
        windows = windows_of("train", arguments)
        starts = np.cumsum([0, *map(len, windows)])
        is_proposal = np.concatenate([one.instance < 0 for one in windows])
        sample = sampled(starts, range(len(windows)), is_proposal)
        PCA(MOST_COMPONENTS).fit(raw[sample].astype(np.float32)).save(file)
    return PCA.load(file)


def sampled(starts: np.ndarray, images: Iterable[int], is_proposal: np.ndarray) -> np.ndarray:
    """Some proposals of some images, as `training_descriptor.sample_windows` draws them."""
    random, images = np.random.default_rng(0), np.fromiter(images, np.int64)
    rows = []
    for k in np.sort(random.permutation(len(images))[:SAMPLE_IMAGES]):
        own = np.arange(starts[images[k]], starts[images[k] + 1])
        rows.append(np.sort(random.permutation(own[is_proposal[own]])[:SAMPLE_WINDOWS]))
    return np.concatenate(rows)


def table_of(split: str, arguments: argparse.Namespace) -> TrainingWindows:
    rows, windows = projected(split, arguments), windows_of(split, arguments)
    windows = [beginning(one, arguments.crops) for one in windows]
    records = {record.image_id: record for record in images_of(split, arguments)}
    return TrainingWindows(
        tuple(records[one.image_id] for one in windows),
        np.cumsum([0, *map(len, windows)]),
        np.concatenate([one.boxes for one in windows]),
        np.concatenate([one.instance for one in windows]),
        rows,
        descriptor=None,  # type: ignore[arg-type]
    )


def some_windows(table: TrainingWindows) -> np.ndarray:
    """(n,) whether a window is an object, or among those proposals of its image that may be negatives."""
    random, chosen = np.random.default_rng(0), table.instance >= 0
    for a, b in itertools.pairwise(table.starts.tolist()):
        proposals = a + np.flatnonzero(table.instance[a:b] < 0)
        chosen[random.permutation(proposals)[:NEGATIVES_OF_AN_IMAGE]] = True
    return chosen


@dataclass(frozen=True)
class Rows:
    """What a way reads: rows of windows that train, and of proposals that judge."""

    train: np.ndarray
    test: np.ndarray
    components: int
    transforms: tuple[Transform, ...]

    def of(self, descriptors: np.ndarray) -> np.ndarray:
        """The rows of some principal components."""
        return transformed(descriptors[:, : self.components], self.transforms)


def transformed(values: np.ndarray, transforms: Iterable[Transform]) -> np.ndarray:
    for transform in transforms:
        values = transform.transform(values)
    return values


class Cut:
    """Images that train and images that judge, with their rows."""

    def __init__(self, train: TrainingWindows, test: TrainingWindows) -> None:
        self.train, self.test = train, test
        self.used = np.flatnonzero(some_windows(train))
        self.judged = np.flatnonzero(test.instance < 0)
        sample = sampled(train.starts, range(len(train.records)), train.instance < 0)
        self._sample = np.asarray(train.descriptors[sample])
        self._known: dict[str, Rows] = {}

    def rows(self, kind: str) -> Rows:
        """The rows of one kind, made once."""
        if kind not in self._known:
            own = KINDS[kind]
            n, transforms = own.components, []
            sample = self._sample[:, :n]
            if own.landmarks:
                objects = np.asarray(self.train.descriptors[self.train.instance >= 0])[:, :n]
                landmarks = landmarks_of(sample, objects, own.landmarks, own.landmark_objects)
                kernel_map = KernelMap(len(landmarks), own.width, n_components=own.directions)
                transforms.append(kernel_map.fit(sample, landmarks))
                sample = transforms[0].transform(sample)
            transforms.append(MeanNormScaler(own.mean_norm).fit(sample))
            train, test = (
                transformed(np.asarray(table.descriptors[rows])[:, :n], transforms)
                for table, rows in ((self.train, self.used), (self.test, self.judged))
            )
            self._known[kind] = Rows(train, test, n, tuple(transforms))
        return self._known[kind]


# Learning


def judge_kind(cut: Cut, name: str, kind: str, n_resamples: int) -> dict[str, Any]:
    """Detection AP of every learner behind rows of one kind, for a class."""
    objects = cut.train.objects(name)[0]
    is_object = np.isin(cut.used, objects)
    overlap = cut.train.overlap(name)[cut.used]
    is_proposal = cut.train.instance[cut.used] < 0
    learning = Learning(is_object, is_proposal & (overlap <= 0.3), is_proposal & (overlap <= 0.2))
    boxes = [cut.test.boxes[cut.judged], *(moved(cut, name, one) for one in dict.fromkeys((PLAIN, kind)))]
    judges = [Judge(cut.test, name, cut.judged, one) for one in boxes]
    found, seconds = {}, {}
    singles: dict[str, Any] = {}
    for learner in PLAINLY if kind in (PLAIN, LONG) else ALWAYS:
        began = time.process_time()
        scores = learning.scores(cut.rows(kind), learner, singles)
        seconds[learner] = round(time.process_time() - began, 2)
        found[learner] = [one.precisions(scores, n_resamples) for one in judges]
        found[learner] += found[learner][-1:] * (len(MOVED) - len(judges))  # plain rows move boxes alike
    return {"objects": int(is_object.sum()), "ap": found, "seconds": seconds}


def moved(cut: Cut, name: str, kind: str) -> np.ndarray:
    """The proposals that judge, moved by a regression that reads rows of one kind."""
    rows, targets = windows_of_objects(cut.train, name)
    random = np.random.default_rng(0)
    chosen = np.sort(random.permutation(len(rows))[:MOST_REGRESSED])
    rows, targets = rows[chosen], targets[chosen]
    values = cut.rows(kind).of(np.asarray(cut.train.descriptors[rows]))
    regressor = fit_boxes(values, cut.train.boxes[rows], targets, cut.train.image[rows])
    boxes = cut.test.boxes[cut.judged].copy()
    if regressor is not None:
        starts = np.searchsorted(cut.test.image[cut.judged], np.arange(len(cut.test.records) + 1))
        for a, b in itertools.pairwise(starts.tolist()):
            boxes[a:b] = regressor.move(boxes[a:b], cut.rows(kind).test[a:b])
    return boxes


def way_of(kind: str, learner: str) -> str:
    return f"{learner}, {kind}"


@dataclass(frozen=True)
class Learning:
    """Which rows are objects of a class, and negatives of the single SVM and of exemplars."""

    is_object: np.ndarray
    is_single_negative: np.ndarray
    is_negative: np.ndarray

    def scores(self, rows: Rows, learner: str, singles: dict[str, Any]) -> np.ndarray:
        """(n,) scores of the rows that judge; `singles` keeps what was trained on these rows."""
        objects, others = rows.train[self.is_object], rows.train[self.is_single_negative]
        loss = "hinge" if learner == RCNN else "squared_hinge"
        if loss not in singles:
            singles[loss] = fit_single(objects, others, loss, 0)
        single = singles[loss]
        if learner in (SINGLE, RCNN):
            return single.scores(rows.test).astype(np.float64)
        if learner == RBF:
            return self._kernel_scores(rows, objects, others, single.scores(others))
        if EXEMPLARS not in singles:
            singles[EXEMPLARS] = make_trainer(DetectorOptions().training, single)
            singles[EXEMPLARS].fit(objects, rows.train[self.is_negative])
        trainer, best = singles[EXEMPLARS], []
        for a in range(0, len(rows.test), BLOCK):
            raw = score_windows(rows.test[a : a + BLOCK], trainer.coef_, trainer.intercept_)
            k = min(POOLING if learner == EXEMPLARS else 1, raw.shape[1])
            best.append(np.partition(raw, raw.shape[1] - k, axis=1)[:, -k:].mean(axis=1))
        return np.concatenate(best).astype(np.float64)

    def _kernel_scores(self, rows: Rows, objects: np.ndarray, others: np.ndarray, hardness: np.ndarray) -> np.ndarray:
        """Those of an SVM with a Gaussian kernel, of the objects, the 3,000 hardest negatives and 3,000 random ones."""
        from sklearn.svm import SVC

        random = np.random.default_rng(0)
        chosen = np.union1d(np.argsort(-hardness)[:3000], random.permutation(len(others))[:3000])
        X = np.concatenate([objects, others[chosen]])
        gamma = 1.0 / (2 * float(rows.train.var(axis=0).sum()))
        svm = SVC(C=10.0, gamma=gamma, class_weight={True: 2.0, False: 1.0}, cache_size=500)
        svm.fit(X, np.arange(len(X)) < len(objects))
        support, weights = svm.support_vectors_.astype(np.float32), svm.dual_coef_[0].astype(np.float32)
        squares, found = (support**2).sum(axis=1), []
        for a in range(0, len(rows.test), BLOCK):
            part = rows.test[a : a + BLOCK]
            distances = (part**2).sum(axis=1)[:, None] + squares - 2 * part @ support.T
            found.append(np.exp(-np.float32(gamma) * distances) @ weights)
        return np.concatenate(found).astype(np.float64)


def measure(arguments: argparse.Namespace) -> None:
    """Every class of every cut behind every kind of rows that is not known yet; a line of JSON each."""
    arguments.work.mkdir(parents=True, exist_ok=True)
    for split in ("train", "val")[: 1 + arguments.val]:
        projected(split, arguments)
    known = {(line["cut"], line["kind"], line["class"]) for line in lines_of(arguments)}
    classes = arguments.classes or list(split_of(arguments.data, "train").classes)
    jobs = []
    for cut, kind in itertools.product(["val"] if arguments.val else arguments.folds, arguments.kinds):
        todo = [name for name in classes if (cut, kind, name) not in known]
        jobs += [(cut, kind, todo, arguments)] if todo else []
    with ProcessPoolExecutor(arguments.processes, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(measure_part, jobs))


@one_product_thread()
def measure_part(job: tuple[str | int, str, list[str], argparse.Namespace]) -> None:
    """Some classes of one cut behind one kind of rows; each is filed as soon as it is measured."""
    where, kind, classes, arguments = job
    if where == "val":
        cut = Cut(table_of("train", arguments), table_of("val", arguments))
    else:
        train = table_of("train", arguments)
        folds = folds_of(len(train.records), N_FOLDS)
        cut = Cut(*(train.of_images(np.flatnonzero(own).tolist()) for own in (folds != where, folds == where)))
    for name in classes:
        if time.time() > arguments.until:
            return
        found = judge_kind(cut, name, kind, N_RESAMPLES if where == "val" else 0)
        with (arguments.work / f"kernel_map_{where}_{slug(kind)}.jsonl").open("a", 1 << 22) as handle:
            handle.write(json.dumps({"cut": where, "kind": kind, "class": name, **found}) + "\n")
        print(where, kind, name, {way: round(100 * ap[2][0], 1) for way, ap in found["ap"].items()}, flush=True)


def lines_of(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    files = sorted(arguments.work.glob("kernel_map_*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


# The page


def page(arguments: argparse.Namespace) -> str:
    lines = merged(lines_of(arguments))
    parts = [
        "# A kernel map in front of linear SVMs",
        f"`python benchmarks/bench_kernel_map.py`. {arguments.note}".strip(),
    ]
    if arguments.prose is not None:
        parts.append(arguments.prose.read_text().strip())
    left_out = [line for line in lines if line["cut"] != "val"]
    val = [line for line in lines if line["cut"] == "val"]
    if left_out:
        parts += ["## Training images left out", *sections(left_out)]
        first = [line for line in left_out if line["cut"] == 0]
        if first and set(first[0]["ap"]) != set(left_out[-1]["ap"]):
            parts += ["## What was looked at on fold 0 alone", *sections(first)]
    if val:
        parts += ["## Judged on val", *sections(val)]
    return "\n\n".join(parts) + "\n"


def merged(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for each class of each cut, with all ways that it was measured by."""
    found: dict[tuple[Any, str], dict[str, Any]] = {}
    for line in sorted(lines, key=lambda one: list(KINDS).index(one["kind"])):
        own = found.setdefault((line["cut"], line["class"]), {**line, "ap": {}, "seconds": {}})
        for part in ("ap", "seconds"):
            own[part] |= {way_of(line["kind"], learner): value for learner, value in line[part].items()}
    return list(found.values())


def sections(lines: list[dict[str, Any]]) -> list[str]:
    """Tables of what was measured for every class that has all ways of all cuts."""
    cuts = list(dict.fromkeys(line["cut"] for line in lines))
    of_cuts = [{way for line in lines if line["cut"] == cut for way in line["ap"]} for cut in cuts]
    ways = [
        way for way in dict.fromkeys(way for line in lines for way in line["ap"]) if all(way in one for one in of_cuts)
    ]
    whole = [line for line in lines if set(line["ap"]) >= set(ways)]
    names = sorted({line["class"] for line in whole})
    names = [name for name in names if sum(line["class"] == name for line in whole) == len(cuts)]
    if not names:
        return []
    own = [line for line in whole if line["class"] in names]
    text = f"{len(names)} classes"
    text += f", mean of {len(cuts)} folds." if len(cuts) > 1 or cuts[0] != "val" else "; in brackets over images."
    return [text, *(part for place in MOVED for part in section(own, names, ways, place))]


def section(lines: list[dict[str, Any]], names: list[str], ways: Sequence[str], place: int) -> list[str]:
    ap = {w: np.array([np.mean([x["ap"][w][place][0] for x in lines if x["class"] == n]) for n in names]) for w in ways}

    def drawn(way: str) -> np.ndarray:
        return np.array([line["ap"][way][place][1] for line in lines]).mean(axis=0)

    references = (way_of(PLAIN, SINGLE), way_of(PLAIN, RCNN), way_of(PLAIN, EXEMPLARS))
    rows = []
    for way in ways:
        cells = [way, f"{100 * ap[way].mean():.1f}"]
        for other in references:
            gain = "" if way == other else difference(ap[way] - ap[other])
            if gain and lines[0]["ap"][way][place][1]:
                low, high = 100 * np.percentile(drawn(way) - drawn(other), [2.5, 97.5])
                gain += f" ({low:+.1f} to {high:+.1f})"
            cells.append(gain)
        rows.append([*cells, f"{np.mean([x['seconds'][way] for x in lines]):.1f}"])
    head = ["way", "AP", *(f"to {one}" for one in references), "CPU s"]
    return [f"Boxes {MOVED[place]}:", markdown(head, rows)]


if __name__ == "__main__":
    main()
