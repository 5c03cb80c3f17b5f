"""Matrix products on processors that OpenBLAS does not know yet.

In: what the system says of its processor. Out: a choice for OpenBLAS, which reads it when numpy is imported. For a
processor of AMD that came later than itself it takes kernels for AVX2, where those for AVX-512 multiply matrices nearly
twice as fast. They round differently: last bits of descriptors and weights do, too, as between any two processors. Only
commands choose, before they import numpy; who uses the package from Python sets `OPENBLAS_CORETYPE`, or does not.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

VARIABLE, KERNELS = "OPENBLAS_CORETYPE", "SkylakeX"

_KNOWN_FAMILY = 25  # of AMD, up to which OpenBLAS chooses well
_WANTED = {"avx2", "fma", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}  # what the kernels consist of


def choose_kernels(described: str | os.PathLike[str] = "/proc/cpuinfo") -> None:
    """Set the variable that OpenBLAS reads, unless somebody has, or numpy is there already.

    Parameters
    ----------
    described : file in which Linux describes its processors; other systems have none, and are left alone.
    """
    if VARIABLE not in os.environ and "numpy" not in sys.modules and _has_better_kernels(_first(Path(described))):
        os.environ[VARIABLE] = KERNELS


def _has_better_kernels(facts: dict[str, str]) -> bool:
    family = facts.get("cpu family", "")
    is_new = facts.get("vendor_id") == "AuthenticAMD" and family.isdecimal() and int(family) > _KNOWN_FAMILY
    return is_new and set(facts.get("flags", "").split()) >= _WANTED


def _first(file: Path) -> dict[str, str]:
    """What is said of the first processor."""
    facts: dict[str, str] = {}
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, colon, value = line.partition(":")
                if not colon:
                    break
                facts[name.strip()] = value.strip()
    except OSError:
        return {}
    return facts
