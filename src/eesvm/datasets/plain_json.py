"""Free values, such as metadata, in what JSON has.

In: any value. Out: the same of None, texts, truth values, numbers, lists and objects with texts as keys.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def plain_json(value: Any) -> Any:
    """`value` in what JSON has: arrays and tuples become lists, anything else and non-finite numbers become strings."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, np.generic | np.ndarray):
        return plain_json(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_json(one) for one in value]
    return str(value)
