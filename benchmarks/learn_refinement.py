"""Learns the trees that judge regions of a photograph: `python benchmarks/learn_refinement.py`.

Writes src/eesvm/transfer/assets/region_trees.safetensors, from all masks of PASCAL VOC 2007 below DATA. `learn` is also
called by bench_masks.py, with the training half of each split. Each object is seen through boxes that miss it as
detections do, and what is said about it comes from one or five random objects of its class in other images, and from
the mean mask of these. Regions are weighted so that every object counts alike. Two numbers, what is added to the odds
and the price of a border, are those with the highest IoU on a third of the images, by trees of the others.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from _common import ROOT
from eesvm.boxes import iou
from eesvm.datasets import open_dataset
from eesvm.structures import ExemplarAnnotation, ImageRecord
from eesvm.transfer import mirrored
from eesvm.transfer.annotations import annotate_all
from eesvm.transfer.measures import read_truth
from eesvm.transfer.refinement import View, blurred, cheapest_labels, mean_masks, soft_borders, what_is_said
from eesvm.transfer.region_features import region_features
from eesvm.transfer.region_trees import RegionTrees
from eesvm.transfer.regions import regions_of_image
from eesvm.windows.selective_search.shrinking import shrunk

ASSET = ROOT / "src" / "eesvm" / "transfer" / "assets" / "region_trees.safetensors"
LEAST_AREA = 200  # pixels of a box
BIASES = (0.0, 0.25, 0.5, 0.75, 1.0)
BORDERS = (0.5, 1.0, 2.0)
TREES = {
    "max_iter": 100,
    "learning_rate": 0.1,
    "max_leaf_nodes": 12,
    "min_samples_leaf": 60,
    "l2_regularization": 5.0,
    "max_bins": 64,
}


class Lesson(NamedTuple):
    """The regions around one object, and what they are."""

    image_id: str
    table: NDArray[np.float64]  # (n, f) features
    inside: NDArray[np.float64]  # (n,) pixels of the object
    outside: NDArray[np.float64]  # (n,) other pixels, void ones left out
    n_inside: float  # pixels of the object in all
    sizes: NDArray[np.float64]
    ends: NDArray[np.int64]
    borders: NDArray[np.float64]

    def iou(self, odds: NDArray[np.float64], border: float) -> float:
        """Of the regions that are chosen by these odds."""
        chosen = cheapest_labels(self.sizes * odds, self.ends, border * self.borders)
        common = self.inside[chosen].sum()
        return float(common / max(1e-9, self.n_inside + self.outside[chosen].sum()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, default=ROOT.parent / "shared" / "data" / "voc2007")
    parser.add_argument("--output", type=Path, default=ASSET)
    arguments = parser.parse_args()
    records = [record for record in open_dataset(arguments.data) if any(one.mask for one in record.instances)]
    trees = learn(records)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    trees.save(arguments.output)


def learn(records: Sequence[ImageRecord], random_state: int = 0, times: int = 2) -> RegionTrees:
    """Trees from the masks of some images, each object looked at `times` times."""
    started = time.process_time()
    made = list(lessons(records, np.random.default_rng(random_state), times))
    images = sorted({one.image_id for one in made})
    judges = set(np.random.default_rng(random_state).permutation(images)[: len(images) // 3].tolist())
    first = fitted([one for one in made if one.image_id not in judges], random_state)
    left_out = [(one, first.odds(one.table)) for one in made if one.image_id in judges]
    worth = {
        (bias, border): np.mean([one.iou(odds + bias, border) for one, odds in left_out])
        for bias, border in itertools.product(BIASES, BORDERS)
    }
    bias, border = max(worth, key=lambda key: worth[key])
    trees = fitted(made, random_state)
    seconds = time.process_time() - started
    print(f"{len(made)} lessons, {seconds:.0f} s; left out: {worth[bias, border]:.3f} with {bias:g} and {border:g}")
    return trees._replace(prices=np.array([trees.prices[0] + bias, border]))


def lessons(records: Sequence[ImageRecord], random: np.random.Generator, times: int) -> Iterator[Lesson]:
    by_id = {record.image_id: record for record in records}
    instances = [one for record in records for one in record.instances if one.mask is not None and not one.is_crowd]
    known: dict[str, list[ExemplarAnnotation]] = {}
    for one in annotate_all(instances, by_id, []):
        if one.mask is not None:
            known.setdefault(one.class_name, []).extend([one, mirrored(one)])
    for record in records:
        own = [one for one in instances if one.image_id == record.image_id]
        pixels = record.read() if own else None
        for one in own:
            others = [each for each in known.get(one.class_name, ()) if each.image_id != record.image_id]
            truth = read_truth(one)
            if len(others) < 2 or truth.mask is None or np.prod(one.box[2:] - one.box[:2]) < LEAST_AREA:
                continue
            mean = mean_masks(others)[one.class_name]
            for _ in range(times):
                box = missed(one.box, random, (record.width, record.height))
                yield lesson(others, mean, box, truth, pixels, random)


def missed(box: NDArray[np.float64], random: np.random.Generator, size: tuple[int, int]) -> NDArray[np.float64]:
    """A box that overlaps the object by half or more, in the image."""
    spread = random.uniform(0.03, 0.18)
    for _ in range(50):
        moved = box + random.normal(0, spread, 4) * np.tile(box[2:] - box[:2], 2)
        moved = np.clip(moved, 0, np.tile(size, 2))
        if (moved[2:] - moved[:2] > 4).all() and iou([moved], [box])[0, 0] >= 0.5:
            return moved
    return box


def lesson(
    others: Sequence[ExemplarAnnotation],
    mean: NDArray[np.float64],
    box: NDArray[np.float64],
    truth: Any,
    pixels: NDArray[np.uint8],
    random: np.random.Generator,
) -> Lesson:
    view = View.of(box, pixels)
    voters = [(others[k], 1.0) for k in random.choice(len(others), random.choice([1, 5]))]
    regions, said = regions_of_image(view.image), what_is_said(voters, view, mean if random.random() < 0.9 else None)
    whole = np.zeros((2, *pixels.shape[:2]), dtype=np.uint8)
    (x, y), (h, w) = truth.offset, truth.mask.shape
    whole[0, y : y + h, x : x + w] = 255 * truth.mask
    whole[1] = 255 if truth.void is None else np.where(truth.void, 0, 255)
    n_inside = truth.mask.sum() * view.image[..., 0].size / whole[0, place(view)[0], place(view)[1]].size
    pieces = np.stack([whole[0], whole[1], whole[1]], axis=2)[place(view)]
    small = np.asarray(shrunk(pieces, max(view.image.shape[:2])), dtype=np.float64) / 255
    inside, seen = (regions.fine.means(small[..., k]) * regions.sizes for k in (0, 1))
    return Lesson(
        truth.instance.image_id,
        region_features(regions, view.box, blurred(said, view.box)),
        inside,
        np.maximum(0, seen - inside),
        float(n_inside),
        regions.sizes,
        regions.ends,
        soft_borders(regions),
    )


def place(view: View) -> tuple[slice, slice]:
    return slice(view.place.y1, view.place.y2), slice(view.place.x1, view.place.x2)


def fitted(made: Sequence[Lesson], random_state: int) -> RegionTrees:
    """Boosted trees: every region twice, as what it is and as what it is not, by its pixels."""
    tables = np.concatenate([one.table for one in made])
    weights = [
        np.concatenate([getattr(one, name) / (one.n_inside + 20) for one in made]) for name in ("inside", "outside")
    ]
    weight = np.concatenate(weights)
    labels, rows = np.repeat([1, 0], len(tables)), np.tile(np.arange(len(tables)), 2)
    counts = weight > 1e-9
    weight *= counts.sum() / weight.sum()
    model = HistGradientBoostingClassifier(random_state=random_state, early_stopping=False, **TREES)
    model.fit(tables[rows[counts]], labels[counts], sample_weight=weight[counts])
    return trees_of(model)


def trees_of(model: HistGradientBoostingClassifier) -> RegionTrees:
    nodes = [predictor.nodes for (predictor,) in model._predictors]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in nodes])[:-1]])
    right = [
        np.where(one["is_leaf"], 0, one["right"].astype(np.int64) + start)
        for one, start in zip(nodes, starts, strict=True)
    ]
    every = np.concatenate(nodes)
    assert all(
        (one["left"][~one["is_leaf"].astype(bool)] == np.flatnonzero(~one["is_leaf"].astype(bool)) + 1).all()
        for one in nodes
    )
    is_leaf = every["is_leaf"].astype(bool)
    return RegionTrees(
        roots=starts.astype(np.int32),
        features=np.where(is_leaf, 0, every["feature_idx"]).astype(np.int32),
        thresholds=np.where(is_leaf, 0.0, every["num_threshold"]),
        right=np.concatenate(right).astype(np.int32),
        values=np.where(is_leaf, every["value"], 0.0),
        prices=np.array([float(np.ravel(model._baseline_prediction)[0]), 1.0]),
    )


if __name__ == "__main__":
    main()
