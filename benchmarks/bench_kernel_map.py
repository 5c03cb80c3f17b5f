"""A kernel map in front of linear SVMs: what it brings on Pascal VOC 2007, and what of it is rows, numbers or kernel.

`python benchmarks/bench_kernel_map.py DATA --work FOLDER` cuts the training images into three folds; every way is trained on
two of them and judged by detection AP on the third. `--val` trains on all training images and judges on those of val.
Windows and descriptors in the folder are those of `bench_voc.py`. The PCA is of all training images, as there; the kernel
map and the scaling are fitted to images that train. Negatives of all ways are 100 proposals of each image that trains,
and boxes are those of one regression, which reads plain descriptors, in all ways alike. Exemplars are uncalibrated.

A way is a learner behind rows:

    plain          PCA to 256 numbers, as in the default preset
    512            PCA to 512 numbers
    map            the 256 numbers, mapped by 512 landmarks (`descriptor.kernel_map`)
    object map     the same with objects of all classes as landmarks (`KernelMap.fit(rows, landmarks)`)
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from _common import ROOT, markdown
from _voc_page import difference
from _voc_tables import beginning, describe_split, images_of, windows_of
from _voc_ways import Judge
from bench_voc import folds_of
from eesvm._support.threads import one_product_thread
from eesvm.descriptors import PCA, KernelMap, MeanNormScaler
from eesvm.detector.box_regression import regress_boxes
from eesvm.detector.class_training import fit_single, make_trainer
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_table import TrainingWindows
from eesvm.exemplars.scoring import score_windows

N_COMPONENTS, MOST_COMPONENTS, N_LANDMARKS, MEAN_NORM = 256, 512, 512, 20.0
N_FOLDS, N_RESAMPLES = 3, 100
NEGATIVES_OF_AN_IMAGE = 100
SAMPLE_IMAGES, SAMPLE_WINDOWS = 150, 80  # that the PCA, the map and the scaling are fitted to
POOLING = 5
EIGHT = ("bicycle", "bird", "bus", "car", "cat", "chair", "dog", "horse")
SINGLE, RCNN, EXEMPLARS, BEST = "single SVM", "R-CNN's single SVM", "exemplars", "best exemplar"
RBF = "RBF SVM"
PLAIN, LONG, MAP, OBJECT_MAP = "plain", "512", "map", "object map"
WAYS = (
    *((PLAIN, one) for one in (SINGLE, RCNN, EXEMPLARS, BEST, RBF)),
    *((LONG, one) for one in (SINGLE, EXEMPLARS, BEST)),
    *((MAP, one) for one in (SINGLE, EXEMPLARS, BEST)),
    *((OBJECT_MAP, one) for one in (SINGLE, EXEMPLARS, BEST)),
)
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
    add("--classes", nargs="+", default=list(EIGHT), help="to judge (eight of them)")
    add("--folds", nargs="+", type=int, choices=range(N_FOLDS), default=list(range(N_FOLDS)))
    add("--val", action="store_true", help="train on all training images, judge on val")
    add("--page", action="store_true", help="only write what has been found")
    add("--until", type=float, default=float("inf"), help="begin no new class after this time, as `time.time()` has it")
    add("--processes", type=int, default=1, help="for windows and descriptors (1)")
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
            n = MOST_COMPONENTS if kind == LONG else N_COMPONENTS
            sample, transforms = self._sample[:, :n], []
            if kind in (MAP, OBJECT_MAP):
                objects = None if kind == MAP else np.asarray(self.train.descriptors[self.train.instance >= 0])[:, :n]
                transforms.append(KernelMap(N_LANDMARKS).fit(sample, objects))
                sample = transforms[0].transform(sample)
            transforms.append(MeanNormScaler(MEAN_NORM).fit(sample))
            found = []
            for table, rows in ((self.train, self.used), (self.test, self.judged)):
                values = np.asarray(table.descriptors[rows])[:, :n]
                for transform in transforms:
                    values = transform.transform(values)
                found.append(values)
            self._known[kind] = Rows(*found)
        return self._known[kind]

    @cached_property
    def plain_train(self) -> TrainingWindows:
        """The windows that train with plain descriptors, for box regression."""
        return replace(self.train, descriptors=np.asarray(self.train.descriptors)[:, :N_COMPONENTS])


# Learning


@one_product_thread()
def judge_class(cut: Cut, name: str, ways: Sequence[tuple[str, str]], n_resamples: int) -> dict[str, Any]:
    """Detection AP of every way, with boxes as proposed and moved."""
    objects = cut.train.objects(name)[0]
    is_object = np.isin(cut.used, objects)
    overlap = cut.train.overlap(name)[cut.used]
    is_proposal = cut.train.instance[cut.used] < 0
    learning = Learning(is_object, is_proposal & (overlap <= 0.3), is_proposal & (overlap <= 0.2))
    boxes = cut.test.boxes[cut.judged]
    judges = [Judge(cut.test, name, cut.judged, b) for b in (boxes, moved(cut, name, boxes))]
    found, seconds = {}, {}
    singles: dict[str, Any] = {}
    for kind, learner in ways:
        rows = cut.rows(kind)
        began = time.process_time()
        scores = learning.scores(rows, learner, singles.setdefault(kind, {}))
        seconds[way_of(kind, learner)] = round(time.process_time() - began, 2)
        found[way_of(kind, learner)] = [one.precisions(scores, n_resamples) for one in judges]
    return {"objects": int(is_object.sum()), "ap": found, "seconds": seconds}


def moved(cut: Cut, name: str, boxes: np.ndarray) -> np.ndarray:
    regressor, ended = regress_boxes(cut.plain_train, name), boxes.copy()
    if regressor is not None:
        image = cut.test.image[cut.judged]
        starts = np.searchsorted(image, np.arange(len(cut.test.records) + 1))
        for a, b in itertools.pairwise(starts.tolist()):
            rows = np.asarray(cut.test.descriptors[cut.judged[a:b]])[:, :N_COMPONENTS]
            ended[a:b] = regressor.move(boxes[a:b], rows)
    return ended


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
    """Every class of every cut that is not known yet; a line of JSON each."""
    arguments.work.mkdir(parents=True, exist_ok=True)
    train = table_of("train", arguments)
    folds = folds_of(len(train.records), N_FOLDS)
    known = {(line["cut"], line["class"]) for line in lines_of(arguments)}
    for one in ["val"] if arguments.val else arguments.folds:
        todo = [name for name in arguments.classes if (one, name) not in known]
        if not todo:
            continue
        if one == "val":
            cut = Cut(train, table_of("val", arguments))
        else:
            cut = Cut(*(train.of_images(np.flatnonzero(own).tolist()) for own in (folds != one, folds == one)))
        for name in todo:
            if time.time() > arguments.until:
                return
            found = judge_class(cut, name, WAYS, N_RESAMPLES if one == "val" else 0)
            with (arguments.work / "kernel_map.jsonl").open("a", buffering=1 << 22) as handle:
                handle.write(json.dumps({"cut": one, "class": name, **found}) + "\n")
            print(one, name, {way: round(100 * ap[1][0], 1) for way, ap in found["ap"].items()}, flush=True)


def lines_of(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    file = arguments.work / "kernel_map.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


# The page


def page(arguments: argparse.Namespace) -> str:
    lines = lines_of(arguments)
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
    if val:
        parts += ["## Judged on val", *sections(val)]
    return "\n\n".join(parts) + "\n"


def sections(lines: list[dict[str, Any]]) -> list[str]:
    cuts = list(dict.fromkeys(line["cut"] for line in lines))
    names = sorted({line["class"] for line in lines})
    names = [name for name in names if sum(line["class"] == name for line in lines) == len(cuts)]
    if not names:
        return []
    own = [line for line in lines if line["class"] in names]
    text = f"{len(names)} classes ({', '.join(names)})"
    text += f", mean of {len(cuts)} folds." if len(cuts) > 1 or cuts[0] != "val" else "; in brackets over images."
    return [text, *(part for place in (1, 0) for part in section(own, names, place))]


def section(lines: list[dict[str, Any]], names: list[str], place: int) -> list[str]:
    ways = list(lines[0]["ap"])
    ap = {w: np.array([np.mean([x["ap"][w][place][0] for x in lines if x["class"] == n]) for n in names]) for w in ways}

    def drawn(way: str) -> np.ndarray:
        return np.array([line["ap"][way][place][1] for line in lines]).mean(axis=0)

    references = (way_of(PLAIN, SINGLE), way_of(PLAIN, RCNN), way_of(PLAIN, EXEMPLARS), way_of(MAP, SINGLE))
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
    return ["Boxes moved:" if place else "Boxes as proposed:", markdown(head, rows)]


if __name__ == "__main__":
    main()
