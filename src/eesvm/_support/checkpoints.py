"""Finished blocks of a long training, kept in a folder and filed under what they were computed from.

In: arrays, and everything they depend on. Out: the same arrays when the same training is started again.
The name of a file is a digest of inputs and parameters, so another descriptor, parameter or format never finds it; a
file appears whole or not at all, and one that is damaged is computed again.
A folder of checkpoints may be deleted at any time.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from eesvm._support.files import atomic_write
from eesvm._support.validation import InputError

FORMAT = 1  # to be raised when blocks are computed or written in another way

_logger = logging.getLogger("eesvm")


class Checkpoints:
    """A folder of blocks."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            self.folder = Path(folder)
            self.folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise InputError(f"`checkpoint` must be a folder, and {folder} is not one") from None
        except (OSError, TypeError) as error:
            raise InputError(f"`checkpoint` must be a folder that can be made, got {folder!r}: {error}") from error

    def load(self, key: str) -> dict[str, np.ndarray] | None:
        """The arrays of a block, or None."""
        path = self._path(key)
        try:
            return load_file(path)
        except FileNotFoundError:
            return None
        except (OSError, SafetensorError, ValueError) as error:
            _logger.warning("the checkpoint %s is damaged and is computed again: %s", path, error)
            return None

    def save(self, key: str, arrays: dict[str, np.ndarray]) -> None:
        """Keep the arrays of a block."""
        with atomic_write(self._path(key)) as handle:
            handle.write(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.safetensors"
