"""How long a batch of fine-tuning takes on this machine, and what share of its throughput that is."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from eesvm.finetuning.crops_torch import make_reader
from eesvm.finetuning.options import FinetuneOptions
from eesvm.finetuning.runtime import Runtime, choose_runtime, torch_settings
from eesvm.finetuning.starts import make_classifier, start_from
from eesvm.finetuning.training import Trainer
from eesvm.finetuning.windows_sampler import WindowBatch
from eesvm.structures import ImageRecord

SETTINGS = ((224, None), (224, 4), (128, None), (128, 4), (96, None))


def measure_speed(device: str) -> dict[str, Any]:
    """Seconds of a batch for some sizes of crops, with all stages or the last four trained."""
    runtime = choose_runtime(device)
    n = 20 if runtime.is_gpu else 2
    rate = product_rate(runtime)
    rows = [speed_of(size, stages, runtime, n) for size, stages in SETTINGS]
    return {"device": runtime.name, "torch": torch.__version__, "product_flops": rate, "rows": rows}


def product_rate(runtime: Runtime) -> float:
    """Floating point operations a second of a large matrix product, in the precision that training uses."""
    side = 8192 if runtime.is_gpu else 2048
    kind = torch.bfloat16 if runtime.has_bfloat16 else torch.float32
    a, b = (torch.randn(side, side, device=runtime.device, dtype=kind) for _ in range(2))
    seconds = timed(lambda: a @ b, runtime, 10)
    return 2 * side**3 / seconds


def speed_of(size: int, stages: int | None, runtime: Runtime, n: int) -> dict[str, Any]:
    options = FinetuneOptions(input_size=size, stages=stages)
    start = start_from(options)
    classifier = make_classifier(start, 7, options)
    batch = random_batch(options.batch_size)
    reader = make_reader(tuple(picture(k) for k in range(40)), size, (127.0,) * 3, runtime)
    sampler = type("Sampler", (), {"batches_per_epoch": 100})()
    trainer = Trainer(classifier, sampler, reader, (reader, batch), start.normalisation, options, runtime)
    pixels = reader.read(batch)
    trainer._set_mode()
    with torch_settings(runtime):
        row = {
            "size": size,
            "stages": stages,
            "step": timed(lambda: trainer._step(batch, pixels), runtime, n),
            "crops": timed(lambda: reader.read(batch), runtime, max(2, n // 2)),
            "flops": flops(trainer, pixels),
        }
    reader.close()
    print(row, flush=True)
    return row


def flops(trainer: Trainer, pixels: np.ndarray) -> float:
    """Operations of a batch: twice the multiplications forward, and as many again for each of the two gradients.

    Torch's own counter takes the backward pass of a depthwise convolution for one of a full convolution.
    """
    total = 0.0

    def count(module: Any, inputs: Any, output: torch.Tensor) -> None:
        nonlocal total
        forward = 2 * output.numel() * module.weight[0].numel()
        n_gradients = 2 * module.weight.requires_grad
        total += forward * (1 + n_gradients)

    layers = [m for m in trainer.classifier.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
    handles = [layer.register_forward_hook(count) for layer in layers]
    with torch.no_grad():
        trainer.classifier(trainer._input(pixels))
    for handle in handles:
        handle.remove()
    return total


def timed(work: Any, runtime: Runtime, n: int) -> float:
    """Seconds, the median of n after some to warm up.

    On a GPU by the clock. On cores that may be shared with others: the processor time, divided by the threads.
    """
    is_gpu, seconds = runtime.is_gpu, []
    clock = time.perf_counter if is_gpu else time.process_time
    for k in range(n + 2):
        started = clock()
        work()
        if is_gpu:
            torch.cuda.synchronize()
        if k >= 2:
            seconds.append(clock() - started)
    return float(np.median(seconds)) / (1 if is_gpu else runtime.n_threads)


def random_batch(n: int) -> WindowBatch:
    """Windows anywhere in 40 pictures of 500 x 375 pixels."""
    random = np.random.default_rng(0)
    low = random.uniform(0, [300, 200], (n, 2))
    sides = random.uniform(40, 200, (n, 2))
    return WindowBatch(
        random.integers(0, 40, n),
        np.concatenate([low, np.minimum(low + sides, [500, 375])], axis=1),
        random.integers(0, 7, n),
        random.random(n) < 0.5,
        np.ones((n, 3), np.float32) + random.uniform(-0.2, 0.2, (n, 3)).astype(np.float32),
    )


def picture(seed: int) -> ImageRecord:
    pixels = np.random.default_rng(seed).integers(0, 256, (375, 500, 3)).astype(np.uint8)
    return ImageRecord(str(seed), lambda: pixels, 500, 375)
