"""Fine-tuning from a dataset to an ONNX file.

In: annotated images, options, and where the network goes. Out: the ONNX file, its card and its curves; a
`FinetuneResult`. An interrupted run is resumed from its last checkpoint, which lies in a folder beside the file;
started again after it has finished, it does nothing.
Not here: torch at import; it is loaded when `finetune` is called.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from eesvm._support.digests import digest
from eesvm._support.extras import optional_module
from eesvm._support.files import atomic_write
from eesvm._support.validation import InputError, check_choice
from eesvm.datasets.roles import PictureCodes
from eesvm.descriptors.backbones import DEVICES, Normalisation
from eesvm.descriptors.cache import DescriptorCache
from eesvm.detector.training_table import StageProgress
from eesvm.finetuning.card import CHECKPOINTS, has_card, make_card, read_card, write_card
from eesvm.finetuning.learning_data import LearningData, gather_data
from eesvm.finetuning.options import FinetuneOptions
from eesvm.finetuning.windows_sampler import WindowSampler, fixed_windows
from eesvm.structures import Dataset, Problem, Windows

if TYPE_CHECKING:
    import torch

    from eesvm.finetuning.checkpoints import CheckpointFile
    from eesvm.finetuning.efficientnet_torch import WindowClassifier
    from eesvm.finetuning.runtime import Runtime
    from eesvm.finetuning.starts import Start
    from eesvm.finetuning.training import TrainingState

_VERSION = 1  # part of the key of a run: to be raised when the same inputs train another network

EpochCallback = Callable[["TrainingState", int], object]


@dataclass(frozen=True)
class FinetuneResult:
    """What came of it."""

    output: Path
    card: dict[str, Any]
    is_new: bool  # False: the file was there already, made from the same things
    problems: tuple[Problem, ...] = ()


def finetune(
    dataset: Dataset,
    output: str | os.PathLike[str],
    options: FinetuneOptions | None = None,
    *,
    classes: Iterable[str] | None = None,
    held_out: Dataset | None = None,
    windows: Sequence[Windows] | None = None,
    module: torch.nn.Module | None = None,
    normalisation: Normalisation | None = None,
    cache: DescriptorCache | None = None,
    device: str = "auto",
    n_threads: int | None = None,
    overwrite: bool = False,
    save_every: float = 60.0,
    progress: StageProgress | None = None,
    on_epoch: EpochCallback | None = None,
) -> FinetuneResult:
    """Fine-tune a network on the windows of a dataset, and write it as ONNX.

    Parameters
    ----------
    dataset : the training images, and no others.
    output : the ONNX file. Card, page and curves lie beside it, with other endings.
    options : default: `FinetuneOptions()`.
    classes : which to tell apart; default: all that have an object. Objects of others are background.
    held_out : images to stop by; default: a share of `dataset`.
    windows : of all images, where they are known; default: they are proposed. Each is matched to its image by its id.
    module : a torch module to train in place of the network of the options: pictures (n, 3, h, w) to (n, d) or to a map
        (n, d, h', w'). It is changed. It must be a module that torch can write as ONNX.
    normalisation : of the pixels that the module takes; default: torchvision's.
    cache : keeps windows.
    device : "auto" takes a GPU where there is one, "cpu" and "cuda" insist.
    n_threads : default: one per core. On a CPU the last bits of the result depend on it.
    overwrite : replace a file that was made from other things.
    save_every : seconds after which the state is kept; the end of an epoch is kept in any case.
    progress : called with a stage, how much of it is done, and how much there is to do.
    on_epoch : called after each epoch with the state, and the number of batches if it does not stop early.
    """
    load_torch()
    from eesvm.finetuning.runtime import choose_runtime
    from eesvm.finetuning.starts import start_from

    options = FinetuneOptions() if options is None else options
    check_choice(device, "device", DEVICES)
    path = check_output(output, overwrite)
    runtime = choose_runtime(device, n_threads)
    start = start_from(options, module, normalisation)
    data = gather_data(
        dataset, options, classes=classes, held_out=held_out, windows=windows, cache=cache, n_jobs=n_threads,
        progress=progress,
    )  # fmt: skip
    key = digest([_VERSION, options.as_dict(), data.digest(), start.facts()])
    card = read_card(path)
    if card is not None and card.get("key") == key:
        return FinetuneResult(path, card, False, data.problems)
    if path.exists() and not overwrite:
        raise InputError(
            f"{output} already exists and was made from other things: choose another name or allow overwriting it "
            "(--overwrite)"
        )
    run = _Run(path, key, data, start, options, runtime)
    return FinetuneResult(path, run.train_and_write(save_every, progress, on_epoch), True, data.problems)


def load_torch() -> Any:
    """Torch, or one sentence that says what to install."""
    # Threads of torch that wait for each other by spinning make a machine on which others work many times slower.
    # They read this when torch is loaded, and never again.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return optional_module("torch", "torch")


def check_output(output: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Refuse, before any work is done, what could not be written after it or would cost another file."""
    path = Path(output)
    if path.suffix != ".onnx":
        raise InputError(f"the output must end in .onnx, got {output}")
    if path.is_dir():
        raise InputError(f"cannot write {output}: it is a folder")
    parent = path.resolve().parent
    if not parent.is_dir():
        raise InputError(f"cannot write {output}: there is no folder {parent}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {output}: no permission to write in {parent}")
    if has_card(path):
        return path
    card = path.with_suffix(".json")
    if card.exists():  # perhaps the annotations of the dataset: not even --overwrite means those
        raise InputError(f"cannot write the card of {output}: {card} is there, and it is not the card of a network")
    others = [path]
    if not Path(f"{path}{CHECKPOINTS}").exists():  # else a killed run may have left a picture and a page
        others += [path.with_suffix(".md"), path.with_suffix(".png")]
    strangers = [other for other in others if other.exists()]
    if strangers and not overwrite:
        raise InputError(
            f"{strangers[0]} already exists and was not made by this: choose another name or allow overwriting it "
            "(--overwrite)"
        )
    return path


class _Run(NamedTuple):
    """One fine-tuning whose inputs have all been checked."""

    path: Path
    key: str
    data: LearningData
    start: Start
    options: FinetuneOptions
    runtime: Runtime

    def train_and_write(
        self, save_every: float, progress: StageProgress | None, on_epoch: EpochCallback | None
    ) -> dict[str, Any]:
        """Everything that takes long; the card."""
        from eesvm.finetuning.checkpoints import CheckpointFile
        from eesvm.finetuning.starts import make_classifier

        checkpoint = CheckpointFile(self.path, self.key)
        classifier = make_classifier(self.start, len(self.data.classes) + 1, self.options)
        state = self._train(classifier, checkpoint, save_every, _teller(self.options, progress, on_epoch))
        if state.best_epoch == 0:
            checkpoint.remove()  # to go on from it would end in the same way
            raise InputError(
                f"nothing was learned: {state.stopped}, before the first epoch was done: lower `learning_rate`, "
                f"which is {self.options.learning_rate:g}"
            )
        card = self._write(classifier, state)
        checkpoint.remove()
        return card

    def _train(
        self, classifier: WindowClassifier, checkpoint: CheckpointFile, save_every: float, tell: EpochCallback
    ) -> TrainingState:
        from eesvm.finetuning.crops_torch import make_reader
        from eesvm.finetuning.training import Trainer

        start, data = self.start, self.data
        readers = [
            make_reader(part.records, start.input_size, start.normalisation.mean, self.runtime)
            for part in (data.train, data.held_out)
        ]
        sampler = WindowSampler(data.train, self.options)
        held_out = (readers[1], fixed_windows(data.held_out, self.options))
        try:
            trainer = Trainer(
                classifier, sampler, readers[0], held_out, start.normalisation, self.options, self.runtime
            )
            return trainer.run(checkpoint, tell, save_every)
        finally:
            for reader in readers:
                reader.close()

    def _write(self, classifier: WindowClassifier, state: TrainingState) -> dict[str, Any]:
        """Card, page and curves, then the ONNX file: what is killed before that is there writes all of it anew."""
        from eesvm.finetuning.export import export_onnx, stated_facts

        start = self.start
        classifier = classifier.cpu()
        images = PictureCodes.of((*self.data.train.records, *self.data.held_out.records), self.data.fingerprint.name)
        content = export_onnx(classifier, start.depth, start.normalisation, start.input_size, self.path.stem, images)
        layers = stated_facts(classifier, start.normalisation, start.input_size)["layers"]
        running = {"device": self.runtime.name, "torch": optional_module("torch").__version__}
        sha256 = hashlib.sha256(content).hexdigest()
        inputs = self.data.summary() | {"n_coded": len(images)}
        card = make_card(self.key, self.options, inputs, start.facts(), layers, state, running, sha256)
        write_card(self.path, card)
        with atomic_write(self.path) as handle:
            handle.write(content)
        return card


def _teller(
    options: FinetuneOptions, progress: StageProgress | None, on_epoch: EpochCallback | None
) -> Callable[[TrainingState, int], None]:
    """Passes on how far training is: every batch to `progress`, every epoch to `on_epoch`."""
    told = -1  # the last epoch that was

    def tell(state: TrainingState, n_all: int) -> None:
        nonlocal told
        if progress is not None:
            number = min(state.n_batches * options.epochs // n_all + 1, options.epochs)
            last = f", held out {state.history[-1].held_out_loss:.3f}" if state.history else ""
            progress(f"fine-tuning, epoch {number}/{options.epochs}{last}", state.n_batches, n_all)
        if on_epoch is not None and len(state.history) - 1 > told:
            told = len(state.history) - 1
            on_epoch(state, n_all)

    return tell
