"""Layers of vision transformers as feature maps.

In: tokens (n, t, d) of a picture of a known size. Out: a map (n, d, rows, columns). The tokens of the patches come
last, row by row; what stands before them (the class token, registers) is no place in the picture and is left out. How
large a patch is says the convolution that cuts them out; where there is none, the size that fits best does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import InputError

MOST_BEFORE = 16  # tokens that may stand before those of the patches
_LEAST_PATCH = 4  # pixels; convolutions with a smaller step are no cutting into patches


def stated_patch(model: Any) -> int | None:
    """The side of a patch, by the first convolution that cuts a picture into squares; None where there is none."""
    for node in model.graph.node:
        facts = {one.name: list(one.ints) for one in node.attribute}
        strides, kernel = facts.get("strides", []), facts.get("kernel_shape")
        if node.op_type != "Conv" or len(strides) != 2 or len(set(strides)) != 1 or strides[0] < _LEAST_PATCH:
            continue
        if kernel is None or kernel == strides:
            return int(strides[0])
    return None


def fitting_patch(n_tokens: int, height: int, width: int) -> int | None:
    """The side of a patch of which a picture has as many as there are tokens, or as few less as possible; else None."""
    found = [
        patch
        for patch in range(_LEAST_PATCH, min(height, width) + 1)
        if height % patch == 0
        and width % patch == 0
        and 0 <= n_tokens - _n_patches(height, width, patch) <= MOST_BEFORE
    ]
    return found[0] if found else None  # the smallest, which leaves the fewest tokens before


def as_map(tokens: NDArray[np.float32], height: int, width: int, patch: int | None, name: str) -> NDArray[np.float32]:
    """(n, d, rows, columns) of tokens (n, t, d); `name` is what a complaint calls the layer."""
    n, n_tokens, d = tokens.shape
    side = fitting_patch(n_tokens, height, width) if patch is None else patch
    n_before = -1 if side is None else n_tokens - _n_patches(height, width, side)
    if side is None or not 0 <= n_before <= MOST_BEFORE or height < side or width < side:
        patches = "patches" if side is None else f"patches of {side} x {side} pixels"
        raise InputError(
            f"{name} has {n_tokens} tokens for a picture of {width} x {height} pixels, which are no grid of {patches} "
            f"with up to {MOST_BEFORE} tokens before it"
        )
    places = tokens[:, n_before:].reshape(n, height // side, width // side, d)
    return np.ascontiguousarray(places.transpose(0, 3, 1, 2))


def _n_patches(height: int, width: int, patch: int) -> int:
    return (height // patch) * (width // patch)
