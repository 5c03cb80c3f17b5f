"""Training the network on windows, batch by batch, until held-out images say that it is enough.

In: a `WindowClassifier`, batches of windows and their pixels. Out: the classifier with the weights of the epoch whose
loss on held-out windows was lowest, and the curves. Stochastic gradient descent with momentum; the learning rate rises
over the first batches and then falls along a cosine to 0. Every batch is a function of its number and the seed, and so
is every random number, so a run that is resumed from a checkpoint ends with the same bits as one that was never
interrupted, on the same machine with the same number of threads. On a GPU products are of bfloat16 where it has that.
When a loss is not a number any more, training ends with the best weights it had.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch.nn import functional

from eesvm.descriptors.backbones import Normalisation
from eesvm.finetuning.checkpoints import CheckpointFile
from eesvm.finetuning.crops import CropReader, ahead
from eesvm.finetuning.crops_torch import DeviceCrops
from eesvm.finetuning.efficientnet_torch import WindowClassifier
from eesvm.finetuning.options import FinetuneOptions
from eesvm.finetuning.runtime import Runtime, torch_settings
from eesvm.finetuning.windows_sampler import BACKGROUND, WindowBatch, WindowSampler
from eesvm.metrics import average_precision

_CPU_PART = 32  # windows whose gradients are computed together on a CPU: a batch is added up from such parts
_LUMA = (0.299, 0.587, 0.114)

Tensors = dict[str, torch.Tensor]
Reader = CropReader | DeviceCrops
T = TypeVar("T")


@dataclass(frozen=True)
class Epoch:
    """One point of the curves; epoch 0 is the network before training."""

    number: int
    loss: float | None  # mean over the batches
    held_out_loss: float
    held_out_accuracy: float
    held_out_ap: float  # mean over the classes
    learning_rate: float
    seconds: float


@dataclass
class TrainingState:
    """Where a training stands, besides the weights."""

    n_batches: int = 0
    loss_sum: float = 0.0  # of the epoch that is under way
    seconds: float = 0.0
    epoch_seconds: float = 0.0
    history: list[Epoch] = field(default_factory=list)
    best_epoch: int = 0  # 0: none has been finished
    stopped: str = ""  # why it ended; empty while it runs


class Trainer:
    """One training; `run` ends it."""

    def __init__(
        self,
        classifier: WindowClassifier,
        sampler: WindowSampler,
        reader: Reader,
        held_out: tuple[Reader, WindowBatch],
        normalisation: Normalisation,
        options: FinetuneOptions,
        runtime: Runtime,
    ) -> None:
        self.sampler, self.reader, self.held_out = sampler, reader, held_out
        self.options, self.runtime = options, runtime
        self.classifier = classifier.to(runtime.device, memory_format=torch.channels_last)
        self.optimiser = _optimiser(self.classifier, options)
        self.state = TrainingState()
        self.best: Tensors = {}
        self._mean, self._std, self._luma = (
            torch.tensor(values, dtype=torch.float32, device=runtime.device)[:, None, None]
            for values in (normalisation.mean, normalisation.std, _LUMA)
        )
        self._is_bgr = normalisation.channel_order == "bgr"

    @property
    def n_all(self) -> int:
        """Batches, if it does not stop early."""
        return self.options.epochs * self.sampler.batches_per_epoch

    def run(
        self,
        checkpoint: CheckpointFile,
        progress: Callable[[TrainingState, int], object] | None = None,
        save_every: float = 60.0,
    ) -> TrainingState:
        """Train to the end; the classifier then has its best weights.

        `progress` is called after every batch and every epoch, with the state and the number of all batches.
        `save_every` is in seconds; the end of every epoch is kept in any case.
        """
        tell = (lambda: None) if progress is None else (lambda: progress(self.state, self.n_all))
        with torch_settings(self.runtime):
            if not self._restore(checkpoint):
                self._end_epoch(0)
                self._save(checkpoint)
            tell()
            while not self.state.stopped:
                self._epoch(checkpoint, tell, save_every)
                self._save(checkpoint)
                tell()
        if self.best:
            self.classifier.load_state_dict(self.best)
        self.classifier.eval()
        return self.state

    def evaluate(self) -> tuple[float, float, float]:
        """Loss, accuracy and mean average precision on the held-out windows."""
        reader, windows = self.held_out
        self.classifier.eval()
        parts = []
        step = self.options.batch_size
        pieces = [slice(start, start + step) for start in range(0, len(windows.boxes), step)]

        def make(number: int) -> Any:
            return reader.read(windows.part(pieces[number]))

        with torch.no_grad():
            for pixels in _each(make, 0, len(pieces), self.runtime):
                x = self._input(pixels)
                with self.runtime.precision():
                    parts.append(self.classifier(x).float().cpu())
        logits = torch.cat(parts)
        labels = torch.from_numpy(windows.labels)
        loss = float(functional.cross_entropy(logits, labels))
        accuracy = float((logits.argmax(1) == labels).double().mean())
        return loss, accuracy, _mean_ap(logits.softmax(1).double().numpy(), windows.labels)

    # One epoch

    def _epoch(self, checkpoint: CheckpointFile, tell: Callable[[], object], save_every: float) -> None:
        """The batches that are left of the epoch, then a look at the held-out windows."""
        state, per_epoch = self.state, self.sampler.batches_per_epoch
        number = state.n_batches // per_epoch + 1
        self._set_mode()
        started = saved = time.perf_counter()
        for batch, pixels in _each(self._read, state.n_batches, number * per_epoch, self.runtime):
            loss = self._step(batch, pixels)
            if not math.isfinite(loss):
                place = f"batch {state.n_batches % per_epoch + 1} of epoch {number}"
                state.stopped = f"the loss became {loss} in {place}"
                return
            state.n_batches += 1
            state.loss_sum += loss
            started = self._count_seconds(started)
            tell()
            if started - saved > save_every and state.n_batches % per_epoch:
                self._save(checkpoint)
                saved = time.perf_counter()
        self._end_epoch(number)

    def _step(self, batch: WindowBatch, pixels: Any) -> float:
        """One batch; the loss before it. Weights stay as they are where it, or its gradient, is not finite."""
        torch.manual_seed(_seed(self.options.random_state, self.state.n_batches))
        for group in self.optimiser.param_groups:
            group["lr"] = group["factor"] * learning_rate(self.state.n_batches, self.n_all, self.options.learning_rate)
        self.optimiser.zero_grad(set_to_none=True)
        labels = torch.from_numpy(batch.labels).to(self.runtime.device, non_blocking=True)
        total = torch.zeros((), device=self.runtime.device)
        for part in self._parts(len(labels)):
            x = self._input(pixels[part], batch.is_mirrored[part], batch.colours[part])
            with self.runtime.precision():
                logits = self.classifier(x)
            loss = functional.cross_entropy(logits.float(), labels[part], reduction="sum") / len(labels)
            loss.backward()
            total += loss.detach()
        trained = [parameter for group in self.optimiser.param_groups for parameter in group["params"]]
        length = torch.nn.utils.clip_grad_norm_(trained, self.options.max_gradient)
        value = float(total if torch.isfinite(length) else length)
        if math.isfinite(value):
            self.optimiser.step()
        return value

    def _end_epoch(self, number: int) -> None:
        """Look at the held-out windows, keep the weights if they are the best, and decide whether to go on."""
        state, started = self.state, time.perf_counter()
        loss, accuracy, ap = self.evaluate()
        if not math.isfinite(loss):
            state.stopped = f"the loss on the held-out windows became {loss} after epoch {number}"
            return
        self._count_seconds(started)
        rate = learning_rate(state.n_batches, self.n_all, self.options.learning_rate)
        mean = state.loss_sum / self.sampler.batches_per_epoch if number else None
        # The start is no candidate: its classifier is noise, whatever its loss happens to be.
        is_best = number > 0 and (not state.best_epoch or loss < state.history[state.best_epoch].held_out_loss)
        state.history.append(Epoch(number, mean, loss, accuracy, ap, rate, state.epoch_seconds))
        state.loss_sum = state.epoch_seconds = 0.0
        if is_best:
            state.best_epoch = number
            self.best = {name: tensor.detach().clone() for name, tensor in self.classifier.state_dict().items()}
        if number == self.options.epochs:
            state.stopped = f"all {number} epochs are done"
        elif number - state.best_epoch >= self.options.patience:
            state.stopped = f"the loss on the held-out windows has not fallen for {self.options.patience} epochs"

    def _read(self, number: int) -> tuple[WindowBatch, Any]:
        batch = self.sampler.batch(number)
        return batch, self.reader.read(batch)

    def _input(
        self, pixels: Any, is_mirrored: np.ndarray | None = None, colours: np.ndarray | None = None
    ) -> torch.Tensor:
        """(n, 3, h, w), mirrored and with other colours where wanted, normalised."""
        device = self.runtime.device
        x = pixels if isinstance(pixels, torch.Tensor) else torch.from_numpy(pixels).permute(0, 3, 1, 2)
        if is_mirrored is not None:
            mask = torch.from_numpy(is_mirrored).to(device)[:, None, None, None]
            x = torch.where(mask, x.flip(3), x)
        if colours is not None and self.options.colour:
            x = self._recoloured(x, torch.from_numpy(colours).to(device))
        x = (x - self._mean) / self._std
        return (x.flip(1) if self._is_bgr else x).contiguous(memory_format=torch.channels_last)

    def _recoloured(self, x: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        brightness, contrast, saturation = factors.T[:, :, None, None, None]
        x = x * brightness
        grey = (x * self._luma).sum(dim=1, keepdim=True)
        middle = grey.mean(dim=(2, 3), keepdim=True)
        x = grey + saturation * (x - grey)
        return (middle + contrast * (x - middle)).clamp(0.0, 255.0)

    def _parts(self, n: int) -> Iterator[slice]:
        """Pieces of a batch; statistics that follow the windows need all of it at once."""
        is_whole = self.runtime.is_gpu or self.options.batch_norm == "adapted"
        step = n if is_whole else _CPU_PART
        return (slice(start, min(start + step, n)) for start in range(0, n, step))

    def _set_mode(self) -> None:
        """What follows the windows, and what stays as it is: stages that are not trained never follow."""
        self.classifier.train()
        for norm in self.classifier.norms():
            is_trained = norm.weight is None or norm.weight.requires_grad
            if self.options.batch_norm == "frozen" or not is_trained:
                norm.eval()

    def _count_seconds(self, started: float) -> float:
        """Add the time since `started`; the time now."""
        now = time.perf_counter()
        self.state.seconds += now - started
        self.state.epoch_seconds += now - started
        return now

    # Checkpoints

    def _save(self, checkpoint: CheckpointFile) -> None:
        groups = {"network": self.classifier.state_dict(), "best": self.best, "momentum": self._momentum()}
        checkpoint.save(groups, asdict(self.state))

    def _restore(self, checkpoint: CheckpointFile) -> bool:
        found = checkpoint.load()
        if found is None:
            return False
        groups, facts = found
        self.classifier.load_state_dict(groups["network"])
        self.best = {name: tensor.to(self.runtime.device) for name, tensor in groups.get("best", {}).items()}
        named = dict(self.classifier.named_parameters())
        for name, tensor in groups.get("momentum", {}).items():
            buffer = torch.empty_like(named[name]).copy_(tensor)
            self.optimiser.state[named[name]]["momentum_buffer"] = buffer
        self.state = TrainingState(**(facts | {"history": [Epoch(**epoch) for epoch in facts["history"]]}))
        return True

    def _momentum(self) -> Tensors:
        state = self.optimiser.state
        buffers = {
            name: state[parameter].get("momentum_buffer")
            for name, parameter in self.classifier.named_parameters()
            if parameter in state
        }
        return {name: buffer for name, buffer in buffers.items() if buffer is not None}


def learning_rate(n_batches: int, n_all: int, highest: float) -> float:
    """Of batch `n_batches`, counted from 0: a straight rise over the first twentieth, then half a cosine to 0."""
    n_rising = max(1, n_all // 20)
    if n_batches < n_rising:
        return highest * (n_batches + 1) / n_rising
    return highest * 0.5 * (1 + math.cos(math.pi * (n_batches - n_rising) / max(1, n_all - n_rising)))


def _optimiser(classifier: WindowClassifier, options: FinetuneOptions) -> torch.optim.SGD:
    """The scores learn faster; decay is for matrices and kernels, not for biases and normalisation.

    A hidden layer, though new, does not: its steps are multiplied by what the scores have learned.
    """
    scores = {id(parameter) for parameter in classifier.scores.parameters()}
    groups: dict[tuple[bool, bool], list[torch.Tensor]] = {}
    for parameter in classifier.parameters():
        if parameter.requires_grad:
            groups.setdefault((id(parameter) in scores, parameter.ndim > 1), []).append(parameter)
    return torch.optim.SGD(
        [
            {
                "params": parameters,
                "factor": options.score_factor if is_score else 1.0,
                "weight_decay": options.weight_decay if has_decay else 0.0,
            }
            for (is_score, has_decay), parameters in groups.items()
        ],
        lr=options.learning_rate,
        momentum=options.momentum,
    )


def _mean_ap(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Average precision of each class against everything else, averaged over the classes that occur."""
    present = [label for label in np.unique(labels).tolist() if label != BACKGROUND]
    return float(np.mean([average_precision(labels == label, probabilities[:, label]) for label in present]))


def _seed(random_state: int, number: int) -> int:
    """Of the random numbers of one batch."""
    return int(np.random.SeedSequence([random_state, number]).generate_state(1)[0])


def _each(make: Callable[[int], T], start: int, stop: int, runtime: Runtime) -> Iterator[T]:
    """make(start), ..., make(stop - 1): ahead of time where other cores do it than those that train."""
    return map(make, range(start, stop)) if runtime.is_gpu else ahead(make, start, stop)
