"""The state of a fine-tuning, in one file that is whole or not there.

In: tensors and plain facts. Out: the same again when the same run is started once more. The file is filed under the key
of its run, a hash of everything that the result depends on, so a run with other images, options or weights never finds
it. It is safetensors, never pickle. What it holds is enough to go on bit by bit: weights, best weights, momentum, and
the number of batches that are done, which stands for the sampler and for random numbers: both start anew from the seed
and that number at every batch.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.numpy import save

from eesvm._support.files import atomic_write
from eesvm._support.tensors import read_tensors
from eesvm._support.validation import InputError
from eesvm.finetuning.card import CHECKPOINTS

FORMAT = "eesvm-finetuning-1"

_logger = logging.getLogger("eesvm")

Groups = dict[str, dict[str, torch.Tensor]]


class CheckpointFile:
    """Where one run keeps its state."""

    def __init__(self, output: str | os.PathLike[str], key: str) -> None:
        self.folder = Path(f"{os.fspath(output)}{CHECKPOINTS}")
        self.path = self.folder / f"{key}.safetensors"

    def save(self, groups: Groups, facts: dict[str, Any]) -> None:
        """Replace the state by this one."""
        arrays = {
            f"{group}/{name}": tensor.detach().cpu().contiguous().numpy()
            for group, tensors in groups.items()
            for name, tensor in tensors.items()
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path) as handle:
            handle.write(save(arrays, {"format": FORMAT, "facts": json.dumps(facts)}))

    def load(self) -> tuple[Groups, dict[str, Any]] | None:
        """The state, or None where there is none; a damaged one is passed over, and the run starts over."""
        if not self.path.exists():
            return None
        try:
            arrays, metadata = read_tensors(self.path)
            if metadata.get("format") != FORMAT:
                raise InputError(f"{self.path}: it is not a checkpoint of this version")
            facts = json.loads(metadata["facts"])
        except (InputError, KeyError, ValueError) as error:
            _logger.warning("the checkpoint cannot be used, and the run starts over: %s", error)
            return None
        groups: Groups = {}
        for entry, array in arrays.items():
            group, _, name = entry.partition("/")
            groups.setdefault(group, {})[name] = torch.from_numpy(array)
        return groups, facts

    def remove(self) -> None:
        """Take the state away, and its folder unless something else lies there."""
        self.path.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()
