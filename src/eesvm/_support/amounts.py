"""Amounts, shares, times and lists as texts.

In: plain values. Out: what a reader is shown, the same on the screen, in reports and on cards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_YEAR = 365.25 * 24 * 3600


def amount(value: float) -> str:
    """A loss or a bound: whole numbers without decimals."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def thousands(value: float) -> str:
    """A large count as the paper prints it: 57k."""
    return f"{value / 1000:.0f}k"


def percent(share: float) -> str:
    """A share between 0 and 1; one that is not whole never reads as 0 or 100."""
    text = f"{100 * share:.2f}"
    if share > 0 and text == "0.00":
        return "< 0.01 %"
    return "> 99.99 %" if share < 1 and text == "100.00" else f"{text.rstrip('0').rstrip('.')} %"


def rounded_percent(share: float | None, form: str = ".1f", missing: str = "none") -> str:
    """A share in a fixed format; `missing` stands for None and NaN."""
    return missing if share is None or math.isnan(share) else f"{100 * share:{form}} %"


def duration(seconds: float) -> str:
    """3 s, 2 min 5 s, 1 h 2 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def rough_duration(seconds: float) -> str:
    """Seconds in the unit that one would say them in: 0.35 s, 15 h, 2.1e9 years."""
    for unit, length in (("years", _YEAR), ("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            number = seconds / length
            return f"{number:.1e} {unit}".replace("e+", "e") if number >= 1e5 else f"{number:,.0f} {unit}"
    return f"{seconds:.2g} s"


def file_size(n_bytes: int) -> str:
    """740 bytes, 1.2 kB, 3.4 GB."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.1f} {unit}"
    return f"{n_bytes} bytes"


def counted(n: int, one: str, many: str = "") -> str:
    """1 image, 1,200 images."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def counted_exemplars(n: int, n_mirrored: int = 0, word: str = " exemplar") -> str:
    """12 exemplars; where mirror images are among them: 12 exemplars (6 objects, each with its mirror image)."""
    text = f"{n:,}{word}{'s' if word and n != 1 else ''}"
    return f"{text} ({counted(n - n_mirrored, 'object')}, each with its mirror image)" if n_mirrored else text


def enumeration(names: Sequence[str], most: int = 6) -> str:
    """one, two and three; one, two and 5 more."""
    shown = [*names[:most], f"{len(names) - most} more"] if len(names) > most else list(names)
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
