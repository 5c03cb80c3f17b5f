"""How much memory a training may take, and what each of its stages gets of that.

In: bytes, or a text such as "4GB". Out: a `MemoryPlan`, which the stages ask: how many windows may be held in memory,
how many exemplars may be trained together, whether a class can be calibrated within the limit. Nothing that is computed
is silently reduced: descriptors that do not fit are mapped from a temporary file, exemplars are trained in
smaller blocks, and a calibration that cannot fit is refused with the option that makes it smaller.
Pages of mapped files do not count: the system takes them back when somebody needs the room.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from eesvm._support.validation import InputError, check_number

LEAST = 1 << 30

_PYTHON = 600 << 20  # libraries, a network and one image
_PROPOSER = 250 << 20  # one more process that proposes windows
_SCORE = 20  # bytes that a search takes for each score of its table, the score included
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True)
class MemoryPlan:
    """What may be taken, in bytes."""

    n_bytes: int

    def __post_init__(self) -> None:
        check_number(self.n_bytes, "memory", integer=True)
        if self.n_bytes < LEAST:
            raise InputError(f"`memory` must be {as_text(LEAST)} or more, got {as_text(self.n_bytes)}")

    @property
    def descriptors(self) -> int:
        """Of the described windows of all images."""
        return self._rest // 2

    @property
    def training(self) -> int:
        """Besides the windows, while exemplars are trained."""
        return self._rest // 4

    def n_processes(self, wanted: int) -> int:
        """How many processes may propose windows side by side, `wanted` at most."""
        return max(1, min(wanted, 1 + self._rest // _PROPOSER))

    def check_calibration(self, class_name: str, n_windows: int, n_exemplars: int, held: int) -> None:
        """Refuse to calibrate this many scores beside `held` bytes that are in memory anyway."""
        needed = _PYTHON + held + _SCORE * n_windows * n_exemplars
        if needed > self.n_bytes:
            raise InputError(
                f"to calibrate the class {class_name!r}, {n_exemplars:,} exemplars on {n_windows:,} windows, takes "
                f"about {as_text(needed)}, and {as_text(self.n_bytes)} are allowed: lower calibration.max_negatives or "
                "allow more memory"
            )

    @property
    def _rest(self) -> int:
        return self.n_bytes - _PYTHON


def bytes_of(text: str) -> int:
    """Bytes from a text such as "4GB", "512 MiB" or "2000000000"; a kilobyte is 1,024 bytes."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", text.lower())
    if found is None:
        raise InputError(f"an amount of memory is needed, such as 4GB, got {text!r}")
    return int(float(found[1]) * _UNITS[found[2]])


def as_text(n_bytes: int) -> str:
    """Bytes for people."""
    for unit in ("T", "G", "M", "k"):
        if n_bytes >= _UNITS[unit.lower()]:
            return f"{n_bytes / _UNITS[unit.lower()]:.3g} {unit}B"
    return f"{n_bytes} bytes"
