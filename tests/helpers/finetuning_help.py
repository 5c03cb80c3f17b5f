"""Small scenes, quick options and a tiny network that the tests of fine-tuning share."""

import os
from functools import cache

import pytest

from eesvm.finetuning import FinetuneOptions
from eesvm.windows import propose_dataset
from helpers.detector_scenes import CLASSES, scenes

QUICK = {
    "input_size": 64,
    "epochs": 2,
    "batches_per_epoch": 3,
    "positives": 6,
    "backgrounds": 10,
    "held_out": 0.3,
    "held_out_windows": 48,
}


def one_thread_of_torch():
    """Torch, with one thread: the tests run beside others. Skips where it is missing."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    torch = pytest.importorskip("torch", reason="fine-tuning needs torch: pip install 'eesvm[torch]'")
    torch.set_num_threads(1)
    return torch


def quick_options(**changes):
    """Options under which a training takes a second."""
    return FinetuneOptions.make(changes=QUICK | changes)


@cache
def grid_of(split):
    """Windows of the scenes, the objects among them, without looking at pixels."""
    found = propose_dataset(scenes(split), include_ground_truth=True, method="grid", max_windows=200)
    return tuple(found)


def tiny_network(torch, width=8, seed=0):
    """Two convolutions: (n, 3, h, w) -> (n, width, h / 8, w / 8)."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 5, stride=4, padding=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(4, width, 3, stride=2, padding=1),
        torch.nn.ReLU(),
    )


def tune(output, dataset=None, module=None, windows=None, **arguments):
    """`finetune` on the training scenes, quickly and with one thread; names of options are taken out."""
    from eesvm.finetuning import finetune

    names = set(FinetuneOptions().as_dict())
    options = quick_options(**{name: arguments.pop(name) for name in list(arguments) if name in names - {"held_out"}})
    dataset = scenes("train") if dataset is None else dataset
    windows = grid_of("train") if windows is None else windows
    return finetune(
        dataset, output, options, windows=windows, module=module, **({"n_threads": 1, "device": "cpu"} | arguments)
    )


__all__ = ["CLASSES", "grid_of", "one_thread_of_torch", "quick_options", "scenes", "tiny_network", "tune"]
