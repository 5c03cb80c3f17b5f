"""Ways to train and pool exemplars, compared on the training images of Pascal VOC alone: what the default could be.

`python benchmarks/bench_voc_trials.py DATA --work FOLDER` after `bench_voc.py --stages prepare` with the same folder. Images
of the exemplars' role are cut into folds; every way is trained on all folds but one and judged by detection AP on that
one, boxes as proposed. Everything is done in batches by torch, on a GPU where there is one: exemplars by Newton's method on
the criterion of `ExemplarSVMs`, with the hinge smoothed over a twentieth of the margin where it is asked for.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _common import ROOT, markdown
from _voc_page import difference
from _voc_tables import read_table
from bench_voc import SETTINGS
from eesvm import boxes as geometry
from eesvm.detector.box_regression import regress_boxes
from eesvm.detector.training_table import TrainingWindows

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Tensor = torch.Tensor

SMOOTH = 0.05  # of the margin, over which the hinge bends
KEPT = 40  # detections of an image
N_RESAMPLES = 100  # of the judging images
POOLINGS: tuple[int | str, ...] = (1, 3, 5, 10, 20, 50, "all", "soft")


@dataclass(frozen=True)
class Recipe:
    """How exemplars are trained."""

    name: str
    loss: str = "squared"  # or "hinge", "lda"
    C: float = 1e-3
    weight: float = 50.0
    prior: str | None = "single"  # a key of SINGLES, or "folds": trained without the exemplar's own fold of images
    share: float = 1.0  # of the prior
    jitter: float | None = None  # IoU with the object from which windows are positives of its exemplar, too
    mirror: bool = False  # mirror images of the objects are exemplars, too


@dataclass(frozen=True)
class Single:
    """How the single SVM is trained."""

    loss: str = "hinge"
    C: float = 1e-3
    weight: float = 2.0
    jitter: float | None = None
    mirror: bool = False  # mirror images of the objects are positives, too


SQUARED, MIRRORED = "single, squared, C 0.001", "single, squared, mirrored"
SINGLES = {
    "single": Single(),
    "single, C 0.003": Single(C=3e-3),
    **{f"single, squared, C {C:g}": Single("squared", C) for C in (3e-4, 1e-3, 3e-3, 1e-2)},
    "single, squared, weight 10": Single("squared", 1e-3, 10.0),
    "single, squared, jitter 0.7": Single("squared", jitter=0.7),
    "single, squared, jitter 0.5": Single("squared", jitter=0.5),
    "single, mirrored": Single(mirror=True),
    MIRRORED: Single("squared", mirror=True),
    "single, squared, mirrored, weight 1": Single("squared", weight=1.0, mirror=True),
}
RECIPES = (
    Recipe("default"),
    Recipe("weight 5", weight=5),
    Recipe("S", prior=SQUARED),
    Recipe("S, weight 5", prior=SQUARED, weight=5),
    Recipe("S, weight 1", prior=SQUARED, weight=1),
    Recipe("S, C 1e-4", prior=SQUARED, C=1e-4),
    Recipe("S, C 1e-4, weight 5", prior=SQUARED, C=1e-4, weight=5),
    Recipe("S, C 1e-4, weight 500", prior=SQUARED, C=1e-4, weight=500),
    Recipe("S, jitter 0.7, weight 5", prior=SQUARED, weight=5, jitter=0.7),
    Recipe("S, jitter 0.7", prior=SQUARED, jitter=0.7),
    Recipe("S, other images, weight 5", prior="folds", weight=5),
    Recipe("S, other images", prior="folds"),
    Recipe("Sj, jitter 0.7, weight 5", prior="single, squared, jitter 0.7", weight=5, jitter=0.7),
    Recipe("S3, weight 5", prior="single, squared, C 0.003", weight=5),
    Recipe("S, C 1e-4, mirrored", prior=MIRRORED, C=1e-4, mirror=True),
    Recipe("S, mirrored", prior=MIRRORED, mirror=True),
    Recipe("S, C 1e-4, weight 500, mirrored", prior=MIRRORED, C=1e-4, weight=500, mirror=True),
    Recipe("S, C 1e-4, only the prior mirrored", prior=MIRRORED, C=1e-4),
    Recipe("S, C 1e-4, only exemplars mirrored", prior=SQUARED, C=1e-4, mirror=True),
    Recipe("lda", "lda", prior=None),
    Recipe("lda, jitter 0.7", "lda", prior=None, jitter=0.7),
)

KEYS = {
    "single",
    "single, C 0.003",
    SQUARED,
    "default | 5",
    "weight 5 | 5",
    "S | 5",
    "S, weight 5 | 5",
    "S, C 1e-4 | 5",
    "single, mirrored",
    MIRRORED,
    "single, squared, mirrored, weight 1",
    "S, C 1e-4, mirrored | 5",
    "S, C 1e-4, mirrored | 10",
}


def main() -> None:
    arguments = parse_arguments()
    if arguments.choose:
        print(json.dumps(choose(arguments)))
        return
    if arguments.page:
        print(page(arguments))
        return
    for setting in (one for one in SETTINGS if one.name in arguments.settings):
        if arguments.judge:
            trial = Trial(read_table(setting, setting.exemplars, arguments), arguments.folds)
            judges = Trial(read_table(setting, setting.judges, arguments), arguments.folds)
            work = [(name, None) for name in arguments.classes or trial.classes]
        else:
            trial = judges = Trial(read_table(setting, setting.exemplars, arguments), arguments.folds)
            names = arguments.classes or trial.classes
            work = [(name, fold) for fold in range(arguments.judged) for name in names]
        known = {(x["setting"], x["class"], x["fold"]) for x in lines_of(arguments)}
        for name, fold in work:
            if (setting.name, name, fold) in known:
                continue
            if time.time() > arguments.until:
                return
            began = time.perf_counter()
            found = trial.judge(name, fold, judges, arguments.ways)
            line = {"setting": setting.name, "class": name, "fold": fold, **found}
            line["seconds"] = time.perf_counter() - began
            with (arguments.work / "trials.jsonl").open("a", buffering=1 << 22) as handle:
                handle.write(json.dumps(line) + "\n")
            print(setting.name, name, fold, f"{line['seconds']:.1f} s", flush=True)


def lines_of(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    file = arguments.work / "trials.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("data", nargs="?", type=Path, default=ROOT.parent / "shared" / "data" / "voc2007")
    add("--work", type=Path, default=ROOT / "build" / "voc")
    add("--settings", nargs="+", default=["frozen pooled"])
    add("--classes", nargs="+")
    add("--ways", nargs="+", choices=[*SINGLES, *(recipe.name for recipe in RECIPES)], help="to train (all)")
    add("--folds", type=int, default=3)
    add("--judged", type=int, default=2, help="folds that judge, one after the other (2 of 3)")
    add("--judge", action="store_true", help="train on all images of the exemplars, judge on those of the judges")
    add("--images", type=int, help="as for `bench_voc`")
    add("--page", action="store_true", help="only print what has been found")
    add("--choose", action="store_true", help="only print the best way that the package has, as options")
    add("--until", type=float, default=float("inf"), help="the time, as `time.time()` has it, at which to stop")
    return parser.parse_args()


class Trial:
    """The windows of one setting, on the device."""

    def __init__(self, table: TrainingWindows, folds: int) -> None:
        self.table, self.classes = table, classes_of(table)
        rows = torch.from_numpy(np.array(table.descriptors)).to(DEVICE)
        self.rows = torch.cat([rows, torch.ones(len(rows), 1, device=DEVICE)], dim=1)
        order = np.random.default_rng(0).permutation(len(table.records))
        fold_of_image = np.empty(len(order), dtype=np.int64)
        fold_of_image[order] = np.arange(len(order)) % folds
        self.fold = fold_of_image[table.image]

    def judge(
        self, class_name: str, fold: int | None, judges: Trial, ways: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Detection AP of ways: on a fold of the images, or on those of the judges with boxes moved as well."""
        is_train = np.full(len(self.table), True) if fold is None else self.fold != fold
        objects = self.table.objects(class_name)[0]
        objects = objects[is_train[objects]]
        if not len(objects):
            return {"ap": {}}
        task = Task(self, class_name, objects, is_train, self.table.overlap(class_name))
        is_test = judges.table.instance < 0
        test = np.flatnonzero(is_test if fold is None else is_test & (judges.fold == fold))
        scores = self._scores(task, judges.rows[torch.from_numpy(test).to(DEVICE)], ways)
        boxes = judges.table.boxes[test]
        found: dict[str, Any] = {"exemplars": len(objects)}
        found["ap"], found["resampled"] = Detecting(judges.table, test, boxes, class_name).precisions(
            scores, fold is None
        )
        if fold is None:
            regressor = regress_boxes(self.table, class_name)
            if regressor is not None:
                starts = np.flatnonzero(np.diff(judges.table.image[test], prepend=-1))
                parts = zip(starts, [*starts[1:], len(test)], strict=True)
                moved = [regressor.move(boxes[a:b], judges.table.descriptors[test[a:b]]) for a, b in parts]
                boxes = np.concatenate(moved)
            detecting = Detecting(judges.table, test, boxes, class_name)
            found["moved_ap"], found["moved_resampled"] = detecting.precisions(scores, True)
        return found

    def _scores(self, task: Task, rows: Tensor, ways: Sequence[str] | None) -> dict[str, Tensor]:
        """Scores of test windows by name of the way; mixtures of ways only if all are wanted."""
        scores = {name: rows @ task.single(name) for name in SINGLES if ways is None or name in ways}
        for recipe in RECIPES:
            if ways is None or recipe.name in ways:
                for k, one in pooled(rows @ task.exemplars(recipe).T):
                    scores[f"{recipe.name} | {k}"] = one
        if ways is not None:
            return scores
        base = scores[SQUARED]
        for name in ("S | 5", "S | 20", "S, jitter 0.7 | 5", "S, C 1e-4, weight 500 | 5"):
            for factor in (0.25, 0.5):
                scores[f"S + {factor:g} x {name}"] = base + factor * (scores[name] - base)
        for name in ("lda | 5", "lda, jitter 0.7 | 5"):
            for factor in (0.25, 0.5):
                scores[f"S + {factor:g} x {name}"] = standardised(base) + factor * standardised(scores[name])
        return scores


def classes_of(table: TrainingWindows) -> list[str]:
    names = [i.class_name for record in table.records for i in record.instances if not i.is_difficult]
    return sorted(set(names), key=lambda name: (names.count(name), name))


def standardised(scores: Tensor) -> Tensor:
    return (scores - scores.mean()) / scores.std()


def pooled(raw: Tensor) -> Iterator[tuple[int | str, Tensor]]:
    best = raw.topk(min(50, raw.shape[1]), dim=1).values
    for k in POOLINGS:
        if k == "all":
            yield k, raw.mean(dim=1)
        elif k == "soft":
            weights = 1.0 / torch.arange(1, best.shape[1] + 1, device=DEVICE)
            yield k, (best * weights).sum(dim=1) / weights.sum()
        else:
            yield k, best[:, : int(k)].mean(dim=1)


@dataclass
class Task:
    """What detectors of one class are trained on in one fold."""

    trial: Trial
    class_name: str
    objects: np.ndarray
    is_train: np.ndarray
    overlap: np.ndarray
    made: dict[str, Tensor] = field(default_factory=dict)

    def rows(self, which: np.ndarray) -> Tensor:
        places = np.flatnonzero(which) if which.dtype == bool else which
        return self.trial.rows[torch.from_numpy(places).to(DEVICE)]

    def single(self, name: str, without: int | None = None) -> Tensor:
        """(d + 1,) weights, the bias last; `without` leaves out the images of one of five groups."""
        key = f"{name} {without}"
        if key not in self.made:
            recipe, table = SINGLES[name], self.trial.table
            used = self.is_train if without is None else self.is_train & (table.image % 5 != without)
            objects = self.objects[used[self.objects]]
            if not len(objects):
                return self.single(name)
            positives, weights = self._positives(self._with_mirror(objects, recipe.mirror), recipe.jitter)
            n = positives.shape[0] * positives.shape[1]
            positives, weights = positives.reshape(1, n, -1), weights.reshape(1, n)
            negatives = self.rows(used & (self.overlap <= 0.3))
            scale = torch.ones(positives.shape[2], device=DEVICE)
            scale[-1] = 10.0  # the constant feature of R-CNN
            found = newton(positives * scale, weights * recipe.weight, negatives * scale, recipe.C, recipe.loss)
            self.made[key] = found[0] * scale
        return self.made[key]

    def _with_mirror(self, objects: np.ndarray, mirror: bool) -> np.ndarray:
        return np.concatenate([objects, self.trial.table.mirror_images(objects)]) if mirror else objects

    def _positives(self, objects: np.ndarray, jitter: float | None) -> tuple[Tensor, Tensor]:
        """(E, J, d + 1) rows that are positives of each object, itself first, and (E, J) their weights of sum 1."""
        table = self.trial.table
        own = [[row] for row in objects.tolist()]
        if jitter is not None:
            for k, row in enumerate(objects.tolist()):
                start, stop = table.starts[table.image[row]], table.starts[table.image[row] + 1]
                near = geometry.iou(table.boxes[row][None], table.boxes[start:stop])[0]
                own[k] += [
                    j for j in (start + np.argsort(-near)[:8]).tolist() if near[j - start] >= jitter and j != row
                ]
        most = max(map(len, own))
        places = torch.tensor([rows + [rows[0]] * (most - len(rows)) for rows in own], device=DEVICE)
        counts = torch.tensor([len(rows) for rows in own], device=DEVICE)
        is_real = torch.arange(most, device=DEVICE)[None] < counts[:, None]
        return self.trial.rows[places], is_real / counts[:, None]

    def exemplars(self, recipe: Recipe) -> Tensor:
        """(E, d + 1) weights, the bias last."""
        positives, weights = self._positives(self._with_mirror(self.objects, recipe.mirror), recipe.jitter)
        if recipe.loss == "lda":
            mean = (positives * weights[..., None]).sum(dim=1)
            return self._lda(mean)
        negatives = self.rows(self.is_train & (self.overlap <= 0.2))
        if recipe.prior is None:
            prior = torch.zeros(len(positives), positives.shape[2], device=DEVICE)
        elif recipe.prior == "folds":
            groups = self.trial.table.image[self.objects] % 5
            prior = torch.stack([self.single(SQUARED, int(g)) for g in groups.tolist()])
        else:
            prior = self.single(recipe.prior)[None].expand(len(positives), -1)
        weights = weights * recipe.weight
        return newton(positives, weights, negatives, recipe.C, recipe.loss, prior * recipe.share)

    def _lda(self, own: Tensor) -> Tensor:
        if "lda" not in self.made:
            rows = self.rows(self.is_train)[:, :-1]
            self.made["mean"] = rows.mean(dim=0)
            centred = rows - self.made["mean"]
            covariance = centred.T @ centred / len(rows)
            ridge = 0.01 * covariance.diagonal().mean()
            self.made["lda"] = torch.linalg.inv(covariance + ridge * torch.eye(len(covariance), device=DEVICE))
        weights = (own[:, :-1] - self.made["mean"]) @ self.made["lda"]
        bias = -(weights * (own[:, :-1] + self.made["mean"]) / 2).sum(dim=1, keepdim=True)
        return torch.cat([weights, bias], dim=1)


def newton(
    positives: Tensor, weights: Tensor, negatives: Tensor, C: float, loss: str, prior: Tensor | None = None
) -> Tensor:
    """(E, d) minima of 1/2 |w - prior|^2 + C sum w+ loss(1 - w.x+) + C sum loss(1 + w.x-), by Newton's method."""
    parts = []
    for start in range(0, len(positives), 64):
        own = slice(start, start + 64)
        about = torch.zeros_like(positives[own, 0]) if prior is None else prior[own]
        parts.append(_newton(positives[own], C * weights[own], negatives, C, loss, about))
    return torch.cat(parts)


def _newton(positives: Tensor, costs: Tensor, negatives: Tensor, C: float, loss: str, prior: Tensor) -> Tensor:
    at = prior.clone()
    value = _value(at, positives, costs, negatives, C, loss, prior)
    d = at.shape[1]
    for _ in range(60):
        margins = 1 - torch.einsum("ejd,ed->ej", positives, at)
        others = 1 + negatives @ at.T  # (M, E)
        is_used = (others > 0).any(dim=1)
        rows, others = negatives[is_used], others[is_used]
        slopes, curves = derivatives(others, loss)
        own_slopes, own_curves = derivatives(margins, loss)
        gradient = (at - prior) + C * (slopes.T @ rows) - torch.einsum("ej,ejd->ed", costs * own_slopes, positives)
        hessian = torch.eye(d, device=DEVICE).expand(len(at), d, d).clone()
        hessian += torch.einsum("ej,ejc,ejd->ecd", costs * own_curves, positives, positives)
        step = max(1, (1 << 31) // (4 * d * len(at)))
        torch.backends.cuda.matmul.allow_tf32 = True  # it only says where to go
        for start in range(0, len(rows), step):
            block, c = rows[start : start + step], curves[start : start + step]
            hessian += C * torch.matmul((block[None] * c.T[..., None]).transpose(1, 2), block)
        torch.backends.cuda.matmul.allow_tf32 = False
        direction = torch.linalg.solve(hessian, gradient)
        size = torch.ones(len(at), device=DEVICE)
        for _ in range(12):
            new = at - size[:, None] * direction
            found = _value(new, positives, costs, negatives, C, loss, prior)
            is_worse = found > value + 1e-6 * value.abs()
            if not is_worse.any():
                break
            size = torch.where(is_worse, size / 2, size)
        new = torch.where(is_worse[:, None], at, new)
        found = torch.where(is_worse, value, found)
        is_done = bool((value - found <= 1e-5 * value).all())
        at, value = new, found
        if is_done:
            break
    return at


def _value(
    at: Tensor, positives: Tensor, costs: Tensor, negatives: Tensor, C: float, loss: str, prior: Tensor
) -> Tensor:
    own = costs * losses(1 - torch.einsum("ejd,ed->ej", positives, at), loss)
    return 0.5 * ((at - prior) ** 2).sum(1) + own.sum(1) + C * losses(1 + negatives @ at.T, loss).sum(0)


def losses(margins: Tensor, loss: str) -> Tensor:
    above = margins.clamp(min=0)
    if loss == "squared":
        return above**2
    return torch.where(above < SMOOTH, above**2 / (2 * SMOOTH), above - SMOOTH / 2)


def derivatives(margins: Tensor, loss: str) -> tuple[Tensor, Tensor]:
    above = margins.clamp(min=0)
    if loss == "squared":
        return 2 * above, 2.0 * (margins > 0)
    return (above / SMOOTH).clamp(max=1), ((margins > 0) & (margins < SMOOTH)) / SMOOTH


class Detecting:
    """Detections of one class and their average precision, for many scores of the test windows at a time."""

    def __init__(self, table: TrainingWindows, test: np.ndarray, boxes: np.ndarray, class_name: str) -> None:
        """`test` are windows of `table`, image after image, and `boxes` where they lie."""
        self.images, place = np.unique(table.image[test], return_inverse=True)
        column = np.arange(len(test)) - np.searchsorted(place, np.arange(len(self.images)))[place]
        width = int(column.max()) + 1
        padded = np.zeros((len(self.images), width, 4), dtype=np.float32)
        padded[place, column] = boxes
        corners = torch.from_numpy(padded).to(DEVICE)
        self.near = torch.cat([overlapping(part) for part in corners.split(50)])
        self.where = (torch.from_numpy(place).to(DEVICE), torch.from_numpy(column).to(DEVICE))
        rows = np.full((len(self.images), width), -1)
        rows[place, column] = np.arange(len(test))
        self.rows = torch.from_numpy(rows).to(DEVICE)
        self.place = place
        self._match(table, boxes, class_name)
        random = np.random.default_rng(0)
        n = len(self.images)
        self.drawn = random.multinomial(n, np.full(n, 1 / n), N_RESAMPLES).astype(np.float64)

    def _match(self, table: TrainingWindows, boxes: np.ndarray, class_name: str) -> None:
        """Of each window its nearest object, numbered, whether it hits it, and whether that need not be found."""
        self.nearest, self.is_near = np.full(len(boxes), -1), np.zeros(len(boxes), bool)
        ignored: list[bool] = []
        owners: list[int] = []
        ends = np.searchsorted(self.place, np.arange(len(self.images) + 1))
        for k, image in enumerate(self.images.tolist()):
            objects = [i for i in table.records[image].instances if i.class_name == class_name]
            if objects:
                own = slice(ends[k], ends[k + 1])
                overlaps = geometry.iou(boxes[own], np.array([i.box for i in objects]))
                self.nearest[own] = overlaps.argmax(axis=1) + len(ignored)
                self.is_near[own] = overlaps.max(axis=1) >= 0.5
                ignored += [i.is_difficult or i.is_crowd for i in objects]
                owners += [k] * len(objects)
        self.is_ignored, self.owner = np.array(ignored, dtype=bool), np.array(owners, dtype=np.int64)

    def precisions(
        self, scores: dict[str, Tensor], is_resampled: bool
    ) -> tuple[dict[str, float], dict[str, list[float]]]:
        """AP of every way, and, if wanted, those of some ways on resamples of the images."""
        names = list(scores)
        found: dict[str, float] = {}
        resampled: dict[str, list[float]] = {}
        for start in range(0, len(names), 24):
            some = names[start : start + 24]
            grid = torch.full((len(some), *self.rows.shape), -torch.inf, device=DEVICE)
            grid[:, self.where[0], self.where[1]] = torch.stack([scores[name] for name in some])
            kept, rows = suppress(grid, self.near, self.rows)
            for name, s, r in zip(some, kept.cpu().numpy(), rows.cpu().numpy(), strict=True):
                ranked = self._ranked(s.ravel(), r.ravel())
                found[name] = round(self._precision(*ranked, np.ones(len(self.images))), 5)
                if is_resampled and name in KEYS:
                    resampled[name] = [round(self._precision(*ranked, weights), 4) for weights in self.drawn]
        return found, resampled

    def _ranked(self, scores: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(k,) whether a detection is right and (k,) the image it is of, the best first; those that do not count left out."""
        order = np.argsort(-scores, kind="stable")
        rows = rows[order[np.isfinite(scores[order])]]
        target, is_hit = self.nearest[rows], self.is_near[rows]
        hits = np.flatnonzero(is_hit)
        first = np.zeros(len(rows), bool)
        first[hits[np.unique(target[hits], return_index=True)[1]]] = True
        counts = np.ones(len(rows), bool)
        counts[hits] = ~self.is_ignored[target[hits]]
        return first[counts], self.place[rows[counts]]

    def _precision(self, is_right: np.ndarray, images: np.ndarray, weights: np.ndarray) -> float:
        """Average precision by VOC 2010, every image counted as often as its weight says."""
        own = weights[images]
        true, all_ = np.cumsum(own * is_right), np.cumsum(own)
        precision = np.maximum.accumulate((true / np.maximum(all_, 1e-12))[::-1])[::-1]
        n_objects = weights[self.owner[~self.is_ignored]].sum()
        return float((precision * own * is_right).sum() / max(n_objects, 1e-12))


def overlapping(boxes: Tensor) -> Tensor:
    """(images, n, n) whether two windows (images, n, 4) of an image overlap by more than 0.3."""
    low = torch.maximum(boxes[:, :, None, :2], boxes[:, None, :, :2])
    high = torch.minimum(boxes[:, :, None, 2:], boxes[:, None, :, 2:])
    shared = (high - low).clamp(min=0).prod(dim=3)
    area = (boxes[..., 2:] - boxes[..., :2]).prod(dim=2)
    return shared > 0.3 * (area[:, :, None] + area[:, None, :] - shared)


def suppress(grid: Tensor, near: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """(V, I, KEPT) scores and windows that remain, the best first; -inf where no window is left."""
    images = torch.arange(grid.shape[1], device=DEVICE)[None].expand(grid.shape[0], -1)
    scores, windows = [], []
    for _ in range(KEPT):
        best, place = grid.max(dim=2)
        scores.append(best)
        windows.append(rows[images, place])
        grid = grid.masked_fill(near[images, place], -torch.inf)
        grid.scatter_(2, place[..., None], -torch.inf)
    return torch.stack(scores, dim=2), torch.stack(windows, dim=2)


def page(arguments: argparse.Namespace) -> str:
    """Every way of every setting: mean AP over classes and folds, and differences to the best single SVM."""
    lines, parts = [line for line in lines_of(arguments) if line["ap"]], []
    for setting in dict.fromkeys(line["setting"] for line in lines):
        own = [line for line in lines if line["setting"] == setting]
        classes = sorted({line["class"] for line in own})
        for kind in ("ap", "moved_ap"):
            if kind in own[0]:
                parts += [
                    f"## {setting}" + (", boxes moved" if kind == "moved_ap" else ""),
                    *section(own, classes, kind),
                ]
    return "\n\n".join(parts)


OPTIONS = {  # ways that the package has, as its options
    "default": {},
    "weight 5": {"training.positive_weight": 5.0},
    "S": {},
    "S, weight 5": {"training.positive_weight": 5.0},
    "S, weight 1": {"training.positive_weight": 1.0},
    "S, C 1e-4": {"training.C": 1e-4},
    "S, C 1e-4, weight 5": {"training.C": 1e-4, "training.positive_weight": 5.0},
    "S, C 1e-4, weight 500": {"training.C": 1e-4, "training.positive_weight": 500.0},
}


def choose(arguments: argparse.Namespace) -> dict[str, Any]:
    """The way that the package has with the highest AP on the folds, mean of the settings; as options."""
    lines = [line for line in lines_of(arguments) if line["ap"] and line["fold"] is not None]
    settings = {line["setting"] for line in lines}
    means = {
        (name, k): np.mean([np.mean([x["ap"][f"{name} | {k}"] for x in lines if x["setting"] == s]) for s in settings])
        for name in OPTIONS
        for k in (1, 3, 5, 10, 20)
    }
    name, k = max(means, key=lambda way: means[way])
    loss = "squared_hinge" if name.startswith("S") else "hinge"
    return {**OPTIONS[name], "training.single_loss": loss, "detection.pooling": k}


def section(lines: list[dict[str, Any]], classes: list[str], kind: str, top: int | None = None) -> list[str]:
    ways = list(lines[0][kind])
    table = np.array([[np.mean([x[kind][w] for x in lines if x["class"] == c]) for c in classes] for w in ways])
    means = dict(zip(ways, table.mean(axis=1), strict=True))
    best = max((w for w in ways if w in SINGLES), key=lambda w: means[w])
    rows = []
    for way in sorted(ways, key=lambda w: -means[w])[:top]:
        gains = [difference(table[ways.index(way)] - table[ways.index(other)]) for other in ("single", best)]
        rows.append([way, f"{100 * means[way]:.1f}", *gains])
    text = f"{len(classes)} classes; the best single SVM is {best!r} ({100 * means[best]:.1f})."
    return [text, markdown(["way", "AP", "to R-CNN's single SVM", "to the best single SVM"], rows)]


if __name__ == "__main__":
    main()
