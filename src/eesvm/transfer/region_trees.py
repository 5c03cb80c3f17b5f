"""How likely a region belongs to the object, by small decision trees that were learned from other photographs.

In: features of regions (`region_features`). Out: logarithms of odds. The trees know no class: what they say depends on
what exemplars say, on the box and on the photograph. Those in `assets` were learned by
`benchmarks/learn_refinement.py` from masks of PASCAL VOC 2007.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eesvm._support.compile import kernel
from eesvm._support.tensors import read_arrays, write_arrays
from eesvm._support.validation import InputError
from eesvm.transfer.region_features import FEATURES

_FORMAT, _VERSION = "eesvm region trees", 1
_F64, _I32 = np.dtype(np.float64), np.dtype(np.int32)
_ARRAYS: dict[str, np.dtype[Any]] = {
    "roots": _I32,
    "features": _I32,
    "thresholds": _F64,
    "right": _I32,
    "values": _F64,
    "prices": _F64,
}


class RegionTrees(NamedTuple):
    """Trees one after the other: the left child of a node follows it, and a leaf has no right child."""

    roots: NDArray[np.int32]  # (t,) first node of each tree
    features: NDArray[np.int32]  # (n,) column that a node asks for
    thresholds: NDArray[np.float64]  # (n,) left up to this value
    right: NDArray[np.int32]  # (n,) the right child; 0: a leaf
    values: NDArray[np.float64]  # (n,) what a leaf adds
    prices: NDArray[np.float64]  # (2,) what is added to the odds of all regions, and the price of a pixel of border

    def odds(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n,) logarithms of the odds that regions belong to the object, for rows of features."""
        return _summed(table, *self[:5]) + self.prices[0]

    @property
    def border(self) -> float:
        """What parting two regions of one colour costs, for a pixel of their border."""
        return float(self.prices[1])

    def save(self, path: str | PathLike[str]) -> None:
        """Write the trees to a file."""
        write_arrays(path, _FORMAT, _VERSION, self._asdict(), {"features": ", ".join(FEATURES)})


@cache
def default_trees() -> RegionTrees:
    """The trees that come with the package."""
    with as_file(files("eesvm.transfer").joinpath("assets", "region_trees.safetensors")) as path:
        return load_trees(path)


def load_trees(path: str | PathLike[str]) -> RegionTrees:
    """Trees from a file of `RegionTrees.save`, checked: no way through a tree leads back or out of it."""
    arrays, metadata = read_arrays(path, _FORMAT, _VERSION, _ARRAYS)
    trees = RegionTrees(**arrays)
    n = len(trees.features)
    if metadata.get("features") != ", ".join(FEATURES):
        raise InputError(f"{path}: its trees ask for other features than this version of eesvm has")
    own: list[NDArray[Any]] = [trees.features, trees.thresholds, trees.right, trees.values]
    if any(one.shape != (n,) for one in own) or trees.roots.ndim != 1 or trees.prices.shape != (2,):
        raise InputError(f"{path}: its arrays do not fit each other")
    is_inner, nodes = trees.right > 0, np.arange(n)
    forward = (trees.right[is_inner] > nodes[is_inner] + 1) & (trees.right[is_inner] < n)
    known = (trees.features >= 0) & (trees.features < len(FEATURES))
    roots = (trees.roots >= 0) & (trees.roots < n)
    if not (forward.all() and known.all() and roots.all() and (trees.right >= 0).all()):
        raise InputError(f"{path}: its trees are damaged")
    return trees


@kernel()
def _summed(
    table: NDArray[np.float64],
    roots: NDArray[np.int32],
    features: NDArray[np.int32],
    thresholds: NDArray[np.float64],
    right: NDArray[np.int32],
    values: NDArray[np.float64],
) -> NDArray[np.float64]:
    sums = np.zeros(len(table))
    for row in range(len(table)):
        for root in roots:
            node = root
            while right[node] > 0:
                node = node + 1 if table[row, features[node]] <= thresholds[node] else right[node]
            sums[row] += values[node]
    return sums
