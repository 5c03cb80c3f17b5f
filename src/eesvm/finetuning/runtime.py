"""What fine-tuning computes with: a GPU, or the cores.

In: what was asked for. Out: a `Runtime`: device, name, threads, and the precision of its products; and torch's own
settings for as long as a training lasts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch

from eesvm._support.threads import n_cores
from eesvm._support.validation import InputError, check_choice, check_number
from eesvm.descriptors.backbones import DEVICES


class Runtime(NamedTuple):
    """What computes."""

    device: torch.device
    name: str
    n_threads: int

    @property
    def is_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def has_bfloat16(self) -> bool:
        return self.is_gpu and torch.cuda.is_bf16_supported(including_emulation=False)

    def precision(self) -> AbstractContextManager[Any]:
        return torch.autocast("cuda", dtype=torch.bfloat16) if self.has_bfloat16 else nullcontext()


def choose_runtime(device: str = "auto", n_threads: int | None = None) -> Runtime:
    """A GPU where there is one; "cpu" and "cuda" insist."""
    check_choice(device, "device", DEVICES)
    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        reason = "this torch was built without CUDA" if torch.version.cuda is None else "torch finds no GPU here"
        raise InputError(f"`device` is 'cuda', but {reason}: leave it out to train on the CPU")
    threads = n_cores() if n_threads is None else int(check_number(n_threads, "n_threads", minimum=1, integer=True))
    if device == "cpu" or not has_gpu:
        return Runtime(torch.device("cpu"), f"CPU, {threads} thread{'s' * (threads > 1)}", threads)
    return Runtime(torch.device("cuda", 0), torch.cuda.get_device_name(0), threads)


@contextmanager
def torch_settings(runtime: Runtime) -> Iterator[None]:
    """Threads and random numbers as the training needs them, and afterwards as they were."""
    threads = torch.get_num_threads()
    devices = [runtime.device] if runtime.is_gpu else []
    with torch.random.fork_rng(devices=devices):
        torch.set_num_threads(runtime.n_threads)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
