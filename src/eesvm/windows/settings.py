"""Settings of windows, checked.

In: what a caller asks for. Out: `WindowSettings`, or one sentence about the setting that is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from eesvm._support.validation import InputError, check_choice, check_number

METHODS = ("selective_search", "opencv", "grid")
MODES = ("default", "fast", "quality", "single")


@dataclass(frozen=True)
class WindowSettings:
    """How windows are proposed; see `propose`."""

    group: ClassVar[str] = ""  # what stands before the name of a setting in a complaint about it

    method: str = "selective_search"
    mode: str = "default"
    max_windows: int = 2000
    min_size: float = 10.0
    working_size: int = 500
    time_budget: float | None = None  # milliseconds an image

    def __post_init__(self) -> None:
        check_choice(self.method, f"{self.group}method", METHODS)
        check_choice(self.mode, f"{self.group}mode", MODES)
        check_number(self.max_windows, f"{self.group}max_windows", minimum=1, integer=True)
        check_number(self.min_size, f"{self.group}min_size", minimum=1)
        check_number(self.working_size, f"{self.group}working_size", minimum=16, integer=True)
        if self.time_budget is not None:
            check_number(self.time_budget, f"{self.group}time_budget", minimum=0)
            if self.method != "selective_search":
                raise InputError(
                    f"`{self.group}time_budget` must be None with the method {self.method}, got {self.time_budget:g}"
                )
