"""The policy on bad images: one of them never ends a run.

In: a `Problem` that a stop met. Out: it is raised, listed or logged, as the caller of that stop asked for.
"""

from __future__ import annotations

import logging

from eesvm._support.validation import InputError
from eesvm.structures import Problem

_logger = logging.getLogger("eesvm")


def skip(problem: Problem, problems: list[Problem] | None, strict: bool) -> None:
    """Go on without what the problem names: it is appended to `problems`, or logged; with `strict` it is raised."""
    if strict:
        raise InputError(str(problem))
    if problems is None:
        _logger.warning("skipped %s", problem)
    else:
        problems.append(problem)


def reason(error: Exception) -> str:
    """What an error says, in one line and without the path, which a problem names anyway."""
    text = getattr(error, "strerror", None) or str(error)
    return " ".join(text.split()) or type(error).__name__
