"""What `bench_voc` works on: images by role, their windows, descriptors of each network, and tables of both.

Descriptors are computed once for each network and split and kept in half precision before PCA and scaling, which are
fitted to the images of the exemplars alone; a table of a setting is made of them whenever it is asked for.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from eesvm.datasets import open_dataset, select
from eesvm.descriptors import PCA, KernelMap, MeanNormScaler, make_descriptor
from eesvm.descriptors.backbones import Backbone, stated_layer
from eesvm.descriptors.transforms import Transform
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_descriptor import sample_windows
from eesvm.detector.training_table import TrainingWindows, mirrored_objects, propose_windows
from eesvm.structures import Dataset, ImageRecord, Windows
from eesvm.windows import read_windows, write_windows

N_COMPONENTS, MEAN_NORM = 256, 20.0
N_THREADS = 4  # that transform descriptors
HALVES = ("first half", "second half")
NETWORK = "network"  # the role of photographs that tune the network and do nothing else


@dataclass(frozen=True)
class Setting:
    """Which images have which role, and how windows are described."""

    name: str
    network: str  # "frozen", "hog", or a key of `bench_voc.NETWORKS`
    mode: str  # "pooled", "crop" or "warped"
    exemplars: str  # "train", "train, first half", "val, first half", ...
    judges: str  # likewise
    is_mapped: bool = False  # rows by `--components`, `--landmarks` and what belongs to them instead of a PCA alone


def images_of(role: str, arguments: argparse.Namespace) -> Dataset:
    """The images of a role; halves of a split are its even and odd images in a fixed random order."""
    split, _, half = role.partition(", ")
    dataset = split_of(arguments.network_data, "train") if split == NETWORK else split_of(arguments.data, split)
    order = np.random.default_rng(0).permutation(len(dataset))[: arguments.images]
    if half:
        order = order[HALVES.index(half) :: 2]
    return Dataset(dataset.name, tuple(dataset[int(k)] for k in np.sort(order)), dataset.classes)


@cache
def split_of(data: Path, split: str) -> Dataset:
    return select(open_dataset(data), split=split)


def windows_of(split: str, arguments: argparse.Namespace) -> list[Windows]:
    """The objects and the first proposals of every image of a split."""
    file = arguments.work / f"windows_{split}.npz"
    if not file.exists():
        options = DetectorOptions().windows
        found = propose_windows(images_of(split, arguments), options, arguments.processes, True)
        write_windows(file, [beginning(one, arguments.crops) for one in found])
    return read_windows(file)


def beginning(found: Windows, n: int) -> Windows:
    """The objects and the first n proposals, of which every beginning is a good choice."""
    return found[(found.instance >= 0) | (np.cumsum(found.instance < 0) <= n)]


def describe_split(
    network: str, path: str, mode: str, split: str, arguments: argparse.Namespace, mirror: bool = False
) -> Path:
    """The file of the descriptors of all windows of a split, float16 (n, d), before PCA and scaling.

    With `mirror` those of its objects in the mirror images.
    """
    name = f"{network} {mode} {split}" + " mirrored" * mirror
    file = arguments.work / "raw" / f"{name}.npy".replace(" ", "_")
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        records, windows = list(images_of(split, arguments)), windows_of(split, arguments)
        if mirror:
            records, windows = mirrored_objects(records, windows)
        on_gpu = mode == "crop" and has_gpu(arguments.device)
        parts = gpu_parts(path, records, windows) if on_gpu else core_parts(path, mode, records, windows, arguments)
        table, end = None, 0
        partial = file.with_suffix(".part")
        for part in parts:
            if table is None:
                shape = (sum(map(len, windows)), part.shape[1])
                table = np.lib.format.open_memmap(partial, "w+", np.float16, shape)
            table[end : end + len(part)] = part
            end += len(part)
        assert table is not None
        assert end == len(table)
        table.flush()
        partial.rename(file)
    return file


def has_gpu(device: str) -> bool:
    if device == "cpu":
        return False
    import torch

    return torch.cuda.is_available()


def gpu_parts(path: str, records: Sequence[ImageRecord], windows: Sequence[Windows]) -> Iterator[np.ndarray]:
    """Crops of many images through the network at a time, while threads read the next images."""
    from _torch_crops import TorchCrops

    layer = "features" if path == "lite0" else stated_layer(path, "crop")
    crops = TorchCrops(Backbone(path, [layer], device="cpu"), batch_size=1024, is_half=True)
    with ThreadPoolExecutor(4) as pool:
        images = pool.map(lambda record: record.read(), records)
        yield from crops.describe_many(zip(images, (w.boxes for w in windows), strict=True))


def core_parts(
    path: str, mode: str, records: Sequence[ImageRecord], windows: Sequence[Windows], arguments: argparse.Namespace
) -> Iterator[np.ndarray]:
    """Image after image, a process for each core."""
    context = multiprocessing.get_context("spawn")
    jobs = [(path, mode, record, one.boxes) for record, one in zip(records, windows, strict=True)]
    with ProcessPoolExecutor(arguments.processes, context) as pool:
        yield from pool.map(_describe, jobs, chunksize=8)


_DESCRIPTORS: dict[tuple[str, str], Any] = {}


def _describe(job: tuple[str, str, ImageRecord, np.ndarray]) -> np.ndarray:
    path, mode, record, boxes = job
    if (path, mode) not in _DESCRIPTORS:
        _DESCRIPTORS[path, mode] = (
            make_descriptor("hog", mode) if path == "hog" else make_descriptor(mode=mode, backbone=path, n_threads=1)
        )
    return _DESCRIPTORS[path, mode].describe(record.read(), boxes).astype(np.float16)


def make_tables(setting: Setting, path: str, arguments: argparse.Namespace) -> None:
    """The tables of exemplars and judges, with a PCA and a scale of the exemplars' images."""
    transforms: list[Transform] | None = None
    for role in (setting.exemplars, setting.judges):
        folder = table_folder(setting, role, arguments)
        split = role.partition(", ")[0]
        raw = np.load(describe_split(setting.network, path, setting.mode, split, arguments), mmap_mode="r")
        windows = windows_of(split, arguments)
        starts = np.cumsum([0, *map(len, windows)])
        ids = {record.image_id for record in images_of(role, arguments)}
        own = [k for k, one in enumerate(windows) if one.image_id in ids]
        if transforms is None:
            parts = [raw[starts[k] : starts[k + 1]] for k in own]
            transforms = fit_transforms([windows[k] for k in own], parts, arguments if setting.is_mapped else None)
        if (folder / "ids.npy").exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        rows = np.concatenate([np.arange(starts[k], starts[k + 1]) for k in own])
        found = transformed(raw, rows, transforms)
        if role == setting.exemplars and not arguments.no_mirror:
            file = describe_split(setting.network, path, setting.mode, split, arguments, mirror=True)
            is_object = np.concatenate([one.instance >= 0 for one in windows])
            is_own = is_object[rows]
            mirrored = (np.cumsum(is_object) - 1)[rows[is_own]]
            found = np.concatenate([found, transformed(np.load(file, mmap_mode="r"), mirrored, transforms)])
            np.save(folder / "mirrored.npy", np.flatnonzero(is_own))
        np.save(folder / "descriptors.npy", found)
        np.save(folder / "starts.npy", np.cumsum([0, *(len(windows[k]) for k in own)]))
        np.save(folder / "boxes.npy", np.concatenate([windows[k].boxes for k in own]))
        np.save(folder / "instance.npy", np.concatenate([windows[k].instance for k in own]))
        np.save(folder / "ids.npy", np.array([windows[k].image_id for k in own]))  # the last: now the table is whole


def transformed(raw: np.ndarray, rows: np.ndarray, transforms: Sequence[Transform]) -> np.ndarray:
    """float32 descriptors of some rows."""
    dimension = raw.shape[1]
    for one in transforms:
        dimension = one.output_dimension(dimension)
    found = np.empty((len(rows), dimension), np.float32)
    pieces = [slice(start, start + (1 << 15)) for start in range(0, len(rows), 1 << 15)]

    def fill(part: slice) -> None:
        values = raw[rows[part]]
        for one in transforms:
            values = one.transform(values)
        found[part] = values

    with ThreadPoolExecutor(N_THREADS) as pool:
        list(pool.map(fill, pieces))
    return found


def fit_transforms(
    windows: Sequence[Windows], raw: Sequence[np.ndarray], mapped: argparse.Namespace | None
) -> list[Transform]:
    """As `training_descriptor.fit_descriptor` fits them, from the same sample of proposals.

    `mapped` says how many components and landmarks there are, and which share of the landmarks are objects.
    """
    numbered = [Windows(one.image_id, one.boxes, np.where(one.instance < 0, -1, 0)) for one in windows]
    place = {one.image_id: k for k, one in enumerate(numbered)}
    rows = []
    for one in sample_windows(numbered, 0):
        whole = numbered[place[one.image_id]]
        among = {tuple(box): k for k, box in reversed(list(enumerate(whole.boxes.tolist())))}
        rows.append(raw[place[one.image_id]][[among[tuple(box)] for box in one.boxes.tolist()]])
    sample = np.concatenate(rows).astype(np.float32)
    n_components = mapped.components if mapped else N_COMPONENTS
    transforms: list[Transform] = [PCA(min(n_components, len(sample) - 1, sample.shape[1])).fit(sample)]
    sample = transforms[0].transform(sample)
    if mapped and mapped.landmarks:
        objects = [part[one.instance >= 0] for one, part in zip(windows, raw, strict=True)]
        own = transforms[0].transform(np.concatenate(objects))
        choices = landmarks_of(sample, own, mapped.landmarks, mapped.landmark_objects)
        kernel_map = KernelMap(len(choices), mapped.width, n_components=mapped.kernel_components)
        transforms.append(kernel_map.fit(sample, choices))
        sample = transforms[1].transform(sample)
    return [*transforms, MeanNormScaler(MEAN_NORM).fit(sample)]


def landmarks_of(sample: np.ndarray, objects: np.ndarray, n: int, share: float) -> np.ndarray:
    """n rows: random objects, as many as the share says and there are, and random proposals."""
    random = np.random.default_rng(0)
    n_objects = min(round(share * n), len(objects))
    drawn = [
        random.choice(len(rows), min(wanted, len(rows)), replace=False)
        for rows, wanted in ((sample, n - n_objects), (objects, n_objects))
    ]
    return np.concatenate([sample[np.sort(drawn[0])], objects[np.sort(drawn[1])]])


def table_folder(setting: Setting, role: str, arguments: argparse.Namespace) -> Path:
    return arguments.work / "tables" / f"{setting.name} - {role}".replace(",", "").replace(" ", "_")


def has_tables(setting: Setting, arguments: argparse.Namespace) -> bool:
    roles = (setting.exemplars, setting.judges)
    return all((table_folder(setting, role, arguments) / "ids.npy").exists() for role in roles)


def read_table(setting: Setting, role: str, arguments: argparse.Namespace) -> TrainingWindows:
    folder = table_folder(setting, role, arguments)
    records = {record.image_id: record for record in images_of(role, arguments)}
    kept = tuple(records[str(k)] for k in np.load(folder / "ids.npy"))
    arrays = [np.load(folder / f"{name}.npy") for name in ("starts", "boxes", "instance")]
    descriptors = np.load(folder / "descriptors.npy", mmap_mode="r")  # shared by all processes
    file = folder / "mirrored.npy"
    mirrored = np.load(file) if file.exists() else np.empty(0, dtype=np.int64)
    return TrainingWindows(kept, *arrays, descriptors, descriptor=None, mirrored=mirrored)  # type: ignore[arg-type]


def with_objects(table: TrainingWindows, class_name: str, n: int) -> TrainingWindows:
    """The table with `n` objects of a class at most as possible exemplars; the windows of all stay positives."""
    rows, _ = table.objects(class_name)
    dropped = np.random.default_rng(0).permutation(rows)[n:]
    instance = table.instance.copy()
    instance[dropped] = -1
    return TrainingWindows(
        table.records, table.starts, table.boxes, instance, table.descriptors, descriptor=table.descriptor
    )
