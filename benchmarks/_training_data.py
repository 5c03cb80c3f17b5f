"""Descriptors for the benchmark of training: of photographs, and generated ones.

Photographs: objects of one class are the exemplars, windows of selective search that overlap no object of the class by
more than 0.2 the negatives. Descriptors are the default's, pooled from a network, reduced by PCA to the wanted number
of dimensions and scaled to a mean length of 20; "mapped" sets have the default's kernel map in between, of 1,024
landmarks, cut to as many numbers. What was described is kept in a folder.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from _common import ROOT
from eesvm import datasets
from eesvm.descriptors import PCA, KernelMap, MeanNormScaler, describe_dataset, make_descriptor
from eesvm.exemplars.mining import overlap_with
from eesvm.windows import propose_dataset

DATA = ROOT.parent / "shared" / "data"  # outside the repository, skipped where absent
CLASSES = {"voc2007": ("train", "person", 120, 400), "pets_voc": ("trainval", "cat", 56, 420)}  # images, windows each
_NEGATIVES, _EXEMPLARS = 20_000, 60
MAPPED = " mapped"  # at the end of the name of a set
_LANDMARKS = 1024


def real_sets() -> list[str]:
    """Datasets at hand."""
    found = [name for name in CLASSES if (DATA / name).is_dir()]
    return [*found, *(name + MAPPED for name in found)]


def real_rows(name: str, n_dimensions: int, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Exemplars and negatives of a dataset in so many dimensions, float32 of mean length 20."""
    kept = folder / f"{name.replace(' ', '_')}_{n_dimensions}.npz"
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        exemplars, negatives = _described(name.removesuffix(MAPPED), folder)
        pca = PCA(n_dimensions).fit(negatives)
        exemplars, negatives = pca.transform(exemplars), pca.transform(negatives)
        if name.endswith(MAPPED):
            kernel_map = KernelMap(_LANDMARKS, n_components=n_dimensions).fit(negatives)
            exemplars, negatives = kernel_map.transform(exemplars), kernel_map.transform(negatives)
        scaler = MeanNormScaler(20.0).fit(negatives)
        np.savez(kept, exemplars=scaler.transform(exemplars), negatives=scaler.transform(negatives))
    with np.load(kept) as stored:
        return stored["exemplars"], stored["negatives"]


def gaussian_rows(
    n_exemplars: int, n_negatives: int, n_dimensions: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian rows whose standard deviations fall from 2 to 0.1 over the dimensions."""
    random = np.random.default_rng(seed)
    scale = np.geomspace(2, 0.1, n_dimensions)
    rows = (random.standard_normal((n_exemplars + n_negatives, n_dimensions)) * scale).astype(np.float32)
    return rows[:n_exemplars], rows[n_exemplars:]


def _described(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Exemplars and negatives as the network describes them."""
    (split, class_name, n_images, n_windows), kept = CLASSES[name], folder / f"{name}_described.npz"
    if not kept.exists():
        images = list(datasets.open_dataset(DATA / name, split=split))
        chosen = np.sort(np.random.default_rng(0).permutation(len(images))[:n_images])
        images = [images[k] for k in chosen]
        options = {"include_ground_truth": True, "mode": "fast", "max_windows": n_windows}
        windows = list(propose_dataset(images, n_jobs=1, **options))
        exemplars, negatives = [], []
        for image, item in zip(images, describe_dataset(images, windows, make_descriptor()), strict=True):
            own = [instance.box for instance in image.instances if instance.class_name == class_name]
            names = np.array([image.instances[k].class_name if k >= 0 else "" for k in item.windows.instance])
            exemplars.append(item.descriptors[names == class_name])
            far = overlap_with(item.windows.boxes, np.reshape(own, (-1, 4))) <= 0.2
            negatives.append(item.descriptors[far])
        exemplars, negatives = np.concatenate(exemplars), np.concatenate(negatives)
        random = np.random.default_rng(0)
        exemplars = exemplars[np.sort(random.permutation(len(exemplars))[:_EXEMPLARS])]
        negatives = negatives[np.sort(random.permutation(len(negatives))[:_NEGATIVES])]
        np.savez(kept, exemplars=exemplars, negatives=negatives)
    with np.load(kept) as stored:
        return stored["exemplars"], stored["negatives"]
