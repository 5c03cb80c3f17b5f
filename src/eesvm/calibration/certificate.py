"""Certificates: a proof of a lower bound that anybody can check without the search that found it.

In: the arrays of a tree of splits with shares at its leaves. Out: `Certificate` as data, whose form is checked here;
whether it proves its bound is for `proofs.verify` to say. Whatever a stranger puts into a certificate, it is refused or
its bound does not exceed the optimum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import FloatArray, InputError, check_number
from eesvm.calibration.problem import CalibrationProblem

_DTYPES: dict[str, tuple[str, ...]] = {
    "ceiling": ("float32", "float64"),
    "split_exemplar": ("int32",),
    "split_score": ("float64",),
    "open_child": ("int32",),
    "shut_child": ("int32",),
    "shares_of": ("int32",),
    "set_start": ("int64",),
    "share_positive": ("int32",),
    "row_start": ("int64",),
    "share_negative": ("int32",),
    "share_amount": ("int64", "uint32"),
    "price": ("float64",),
    "hard": ("int32",),
}
SEARCHED = -(2**31)  # in `shares_of`: the leaf is left to the checker, who searches it


@dataclass(frozen=True, eq=False)
class Certificate:
    """A proof that no thresholds reach `min_recall` at a loss below the bound that `verify` works out from it.

    Node 0 of the tree is the root, children come after their parents, and there is at least one leaf.
    """

    min_recall: float
    cutoff: float  # the bound is never above it; inf: no cutoff
    ceiling: FloatArray  # (E,) pairs with s_j(p) <= ceiling[j] are ignored; -inf: none is
    split_exemplar: NDArray[np.int32]  # (M,) -1 marks a leaf
    split_score: NDArray[np.float64]  # (M,) a value of the dtype of the scores; of no meaning at a leaf
    open_child: NDArray[np.int32]  # (M,) -1 at a leaf
    shut_child: NDArray[np.int32]  # (M,) -1 at a leaf
    # (M,) at a leaf the set of shares it uses, -1: none, -2 - p: all for p, SEARCHED: left to the checker; else -1
    shares_of: NDArray[np.int32]
    set_start: NDArray[np.int64]  # (K + 1,) set k is the rows set_start[k] to set_start[k + 1]
    share_positive: NDArray[np.int32]  # (R,) the positive of each row, ascending within a set
    row_start: NDArray[np.int64]  # (R + 1,) row r is the shares row_start[r] to row_start[r + 1]
    share_negative: NDArray[np.int32]  # (Z,) ascending within a row
    share_amount: NDArray[np.int64] | NDArray[np.uint32]  # (Z,) in quanta
    price: NDArray[np.float64]  # (K,) lambda of each set, per recall unit; of no meaning where min_recall is 1
    quantum: float  # a power of two
    detector_price: float = 0.0  # added to the cost of every detector in use, where their number is limited
    weight_cap: float = math.inf  # negatives that weigh more count as this much
    hard: NDArray[np.int32] = field(  # (H,) positives, ascending, whose coverage is searched at leaves that say so
        default_factory=lambda: np.empty(0, dtype=np.int32)
    )

    @property
    def n_nodes(self) -> int:
        """Nodes of the tree, leaves included."""
        return len(self.split_exemplar)

    @property
    def n_leaves(self) -> int:
        """Boxes that the tree ends in."""
        return int((self.split_exemplar < 0).sum())

    @property
    def n_shares(self) -> int:
        """Shares of negatives in all sets together."""
        return len(self.share_negative)

    @property
    def is_searched(self) -> NDArray[np.bool_]:
        """(M,) the leaves that are left to the checker."""
        return np.asarray(self.shares_of == SEARCHED)

    def without_searched(self) -> Certificate:
        """The same, but that leaves which are left to the checker prove no more than what is paid there."""
        if not self.is_searched.any():
            return self
        return replace(self, shares_of=np.where(self.is_searched, np.int32(-1), self.shares_of))

    def check(self, problem: CalibrationProblem | None = None) -> None:
        """Raise an `InputError` where the arrays do not make up a certificate, or not one for `problem`.

        What passes can be walked and added up; whether the shares fit the weights is for `verify` to see.
        """
        check_number(self.min_recall, "min_recall", above=0, maximum=1)
        if not isinstance(self.cutoff, int | float | np.floating) or not self.cutoff >= 0:
            raise InputError(f"`cutoff` must be a number >= 0 or inf, got {self.cutoff!r}")
        check_number(self.quantum, "quantum", above=0)
        check_number(self.detector_price, "detector_price", minimum=0)
        if not isinstance(self.weight_cap, int | float | np.floating) or not self.weight_cap > 0:
            raise InputError(f"`weight_cap` must be a number > 0 or inf, got {self.weight_cap!r}")
        if math.frexp(self.quantum)[0] != 0.5:
            raise InputError(f"`quantum` must be a power of two, got {self.quantum!r}")
        self._check_arrays()
        self._check_tree()
        self._check_shares()
        if problem is not None:
            self._check_fits(problem)

    def _check_arrays(self) -> None:
        for name, dtypes in _DTYPES.items():
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.ndim != 1:
                raise InputError(f"`{name}` must be an array with one dimension")
            if str(array.dtype) not in dtypes:
                raise InputError(f"`{name}` must have dtype {' or '.join(dtypes)}, got {array.dtype}")
        n_nodes, n_sets, n_rows = len(self.split_exemplar), len(self.price), len(self.share_positive)
        for name, length in {
            "split_score": n_nodes,
            "open_child": n_nodes,
            "shut_child": n_nodes,
            "shares_of": n_nodes,
            "set_start": n_sets + 1,
            "row_start": n_rows + 1,
            "share_amount": len(self.share_negative),
        }.items():
            if len(getattr(self, name)) != length:
                raise InputError(f"`{name}` must have {length} entries, got {len(getattr(self, name))}")
        if np.isnan(self.ceiling).any() or np.isposinf(self.ceiling).any():
            raise InputError("`ceiling` must hold finite numbers, or -inf for no ceiling")
        if not np.isfinite(self.split_score).all():
            raise InputError("`split_score` must hold finite numbers")
        if not (np.isfinite(self.price) & (self.price >= 0)).all():
            raise InputError("`price` must hold finite numbers >= 0")

    def _check_tree(self) -> None:
        n_nodes = self.n_nodes
        if n_nodes == 0:
            raise InputError("the tree is empty: it needs a root at least")
        is_inner = self.split_exemplar >= 0
        _check_range(self.split_exemplar, "split_exemplar", -1, None)
        _check_range(self.shares_of, "shares_of", None, len(self.price))
        if len(self.hard) == 0 and self.is_searched.any():
            raise InputError("`hard` must name positives where leaves are left to the checker")
        if (self.shares_of[is_inner] != -1).any():
            raise InputError("`shares_of` must be -1 at a node that is not a leaf")
        parents = np.flatnonzero(is_inner)
        for name in ("open_child", "shut_child"):
            children = getattr(self, name)
            if (children[~is_inner] != -1).any():
                raise InputError(f"`{name}` must be -1 at a leaf")
            if not ((children[is_inner] > parents) & (children[is_inner] < n_nodes)).all():
                raise InputError(f"`{name}` must be a node after its parent, below {n_nodes}")
        children = np.concatenate([self.open_child[is_inner], self.shut_child[is_inner]])
        n_parents = np.bincount(children, minlength=n_nodes)
        if (n_parents[1:] != 1).any():
            node = 1 + int(np.argmax(n_parents[1:] != 1))
            raise InputError(f"every node but the root must have one parent, node {node} has {n_parents[node]}")

    def _check_shares(self) -> None:
        for name, end in (("set_start", len(self.share_positive)), ("row_start", self.n_shares)):
            starts = getattr(self, name)
            if starts[0] != 0 or starts[-1] != end or (starts[1:] < starts[:-1]).any():
                raise InputError(f"`{name}` must rise from 0 to {end}")
        _check_range(self.share_positive, "share_positive", 0, None)
        _check_range(self.share_negative, "share_negative", 0, None)
        _check_range(self.hard, "hard", 0, None)
        if (self.hard[1:] <= self.hard[:-1]).any():
            raise InputError("`hard` must ascend")
        _check_ascending(self.share_positive, self.set_start, "share_positive", "set")
        _check_ascending(self.share_negative, self.row_start, "share_negative", "row")
        if (self.share_amount < 0).any():
            raise InputError(f"`share_amount` must be >= 0, got {self.share_amount.min()}")

    def _check_fits(self, problem: CalibrationProblem) -> None:
        if len(self.ceiling) != problem.n_exemplars:
            raise InputError(f"`ceiling` must have {problem.n_exemplars} entries, got {len(self.ceiling)}")
        _check_range(self.split_exemplar, "split_exemplar", -1, problem.n_exemplars)
        _check_range(self.shares_of[~self.is_searched], "shares_of", -1 - problem.n_positives, len(self.price))
        _check_range(self.hard, "hard", 0, problem.n_positives)
        _check_range(self.share_positive, "share_positive", 0, problem.n_positives)
        _check_range(self.share_negative, "share_negative", 0, problem.n_negatives)
        dtype = problem.negative_scores.dtype
        with np.errstate(over="ignore"):
            narrowed = self.split_score.astype(dtype)
        if (narrowed != self.split_score).any():
            raise InputError(f"`split_score` must hold numbers that are a {dtype}, as the scores are")


def _check_range(values: NDArray[Any], name: str, minimum: int | None, end: int | None) -> None:
    rules = []
    wrong = np.zeros(len(values), dtype=bool)
    if minimum is not None:
        rules.append(f">= {minimum}")
        wrong |= values < minimum
    if end is not None:
        rules.append(f"< {end}")
        wrong |= values >= end
    if wrong.any():
        raise InputError(f"`{name}` must be {' and '.join(rules)}, got {values[np.argmax(wrong)]}")


def _check_ascending(values: NDArray[Any], starts: NDArray[np.int64], name: str, of: str) -> None:
    """Strictly, within each of the parts that begin at `starts`."""
    is_first = np.zeros(len(values) + 1, dtype=bool)
    is_first[starts] = True
    if ((values[1:] <= values[:-1]) & ~is_first[1 : len(values)]).any():
        raise InputError(f"`{name}` must ascend within each {of}")
