"""The bounds of leaves at which one positive owns everything, many of them in little time.

In: what `certified_bound` knows at the root of a proof, and its tree. Out: the least bound of such leaves, in quanta,
where all positives must be covered and all negatives that weigh anything weigh the same. A proof by hard
positives has them by the hundred thousand, so negatives are held as bits, and what comes along with a positive is
counted instead of added up. It is never more than what `certified_bound` finds without it, which also sees other
positives that nobody can cover; the words are explained there.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.certificate import Certificate
from eesvm.calibration.proofs import owner_kernels as kernels
from eesvm.calibration.proofs.walk import ProofTree, Root, Step

_KEPT_BYTES = 1 << 28  # of bits of positives, and again of splits, that are kept at a time
_MOST_BYTES = 1 << 31  # of what a compiled walk holds besides
_VERY_MANY = 20_000  # leaves, from which on compiling a walk takes less time than it saves
_NEVER = 2**62  # more than there are negatives
_ONES = np.array([byte.bit_count() for byte in range(256)], dtype=np.uint8)

Bits = NDArray[np.uint64]


def counted_weight(root: Root, leaves: int, least: int) -> float | None:
    """What a negative weighs that is not paid at the root, if that is the same for all, and worth counting."""
    weights = root.weights[~root.is_paid & (root.weights > 0)]
    if leaves < least or len(weights) == 0 or (weights != weights[0]).any():
        return None
    return float(weights[0])


def least_owned(root: Root, certificate: Certificate, tree: ProofTree, leaves: Sequence[int], weight: float) -> float:
    """The least of the bounds of `leaves`, each owned by a positive; inf where none holds a solution."""
    if len(leaves) >= _VERY_MANY:
        found = _least_compiled(root, certificate, np.asarray(leaves, dtype=np.intp), weight)
        if found is not None:
            return found
    owner = {leaf: -2 - int(certificate.shares_of[leaf]) for leaf in leaves}
    bits_of = SetsOfNegatives(root)
    owners = sorted(set(owner.values()))
    at_a_time = max(1, _KEPT_BYTES // max(1, bits_of.bytes_of_positive))
    least = math.inf
    for start in range(0, len(owners), at_a_time):
        some = set(owners[start : start + at_a_time])
        tables = {p: bits_of.positive(p) for p in some}
        way = Way(root, certificate, bits_of)
        for leaf in tree.walk([leaf for leaf in leaves if owner[leaf] in some], way):
            least = min(least, way.bound(owner[leaf], tables[owner[leaf]], weight))
    return least


def _least_compiled(root: Root, certificate: Certificate, leaves: NDArray[np.intp], weight: float) -> float | None:
    """The same by a compiled walk; None where it would need much memory."""
    problem, bits_of = root.problem, SetsOfNegatives(root)
    owner_of = -2 - certificate.shares_of[leaves].astype(np.intp)
    owners, row_of = np.unique(owner_of, return_inverse=True)
    is_split = certificate.split_exemplar >= 0
    split = np.full(certificate.n_nodes, -1, dtype=np.int32)
    keys = np.stack([certificate.split_exemplar[is_split].astype(np.float64), certificate.split_score[is_split]])
    order = np.lexsort(keys)
    in_order = keys[:, order]
    is_new = np.append(True, (in_order[:, 1:] != in_order[:, :-1]).any(axis=0))[: len(order)]
    number = np.empty(len(order), dtype=np.int32)
    number[order] = np.cumsum(is_new) - 1
    split[is_split] = number
    pairs = in_order[:, is_new]
    owner = np.full(certificate.n_nodes, -1, dtype=np.int32)
    shut = np.maximum(problem.lower_thresholds, certificate.ceiling).astype(np.float64)
    score = certificate.split_score.astype(np.float64)
    tree = kernels.Tree(certificate.split_exemplar, score, split, certificate.open_child, certificate.shut_child, owner)
    depths = kernels.measure(tree, np.zeros(certificate.n_nodes, dtype=np.bool_))
    at_a_time = max(1, _KEPT_BYTES // max(1, bits_of.bytes_of_positive))
    n_rows = min(at_a_time, len(owners))
    n_bytes = 8 * bits_of.n_words * (pairs.shape[1] + depths[1] + 1)
    if n_bytes + 9 * n_rows * problem.n_exemplars > _MOST_BYTES:
        return None
    split_bits = np.zeros((max(1, pairs.shape[1]), bits_of.n_words), dtype=np.uint64)
    for k, (j, opened) in enumerate(pairs.T):
        split_bits[k] = bits_of.packed(root.negatives.column(int(j)) >= opened)
    least = _NEVER
    for start in range(0, len(owners), at_a_time):
        some = owners[start : start + at_a_time]
        is_here = (row_of >= start) & (row_of < start + at_a_time)
        is_wanted = np.zeros(certificate.n_nodes, dtype=np.bool_)
        is_wanted[leaves[is_here]] = True
        kernels.measure(tree, is_wanted)
        owner[leaves[is_here]] = row_of[is_here] - start
        may = np.ones((len(some), problem.n_exemplars), dtype=bool)
        if problem.forbidden is not None:
            may = ~problem.forbidden[some]
        known = kernels.Owners(
            np.stack([bits_of.positive(int(p)) for p in some]),
            problem.positive_scores[some].astype(np.float64),
            np.ascontiguousarray(may),
            root.is_covered[some],
        )
        nothing = np.full(problem.n_exemplars, np.inf)
        least = kernels.least_owned(tree, known, split_bits, is_wanted, nothing, shut.copy(), depths, least)
    if least == _NEVER:
        return math.inf
    return int(root.weights[root.is_paid].sum()) + weight * float(least)


class SetsOfNegatives:
    """Sets of negatives that are not paid at the root and weigh something, a bit each."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.is_open = ~root.is_paid & (root.weights > 0)
        self.n_words = -(-len(self.is_open) // 64)
        self.bytes_of_positive = 8 * self.n_words * root.problem.n_exemplars
        self._splits: OrderedDict[tuple[int, float], Bits] = OrderedDict()

    def packed(self, is_in: NDArray[np.bool_]) -> Bits:
        """(W,) of a mask (N,)."""
        padded = np.zeros(64 * self.n_words, dtype=bool)
        padded[: len(is_in)] = is_in & self.is_open
        return np.packbits(padded, bitorder="little").view(np.uint64)

    def positive(self, p: int) -> Bits:
        """(E, W) the negatives that come along with p under each exemplar."""
        scores = self.root.problem.positive_scores[p]
        return np.stack([self.packed(self.root.negatives.column(j) >= scores[j]) for j in range(len(scores))])

    def split(self, j: int, score: float) -> Bits:
        """(W,) the negatives that exemplar j accepts once `score` is opened."""
        key = (j, score)
        if key not in self._splits:
            self._splits[key] = self.packed(self.root.negatives.column(j) >= score)
            if len(self._splits) * 8 * self.n_words > _KEPT_BYTES:
                self._splits.popitem(last=False)
        return self._splits[key]


class Way:
    """What is paid, opened and shut on the way to a leaf."""

    def __init__(self, root: Root, certificate: Certificate, bits_of: SetsOfNegatives) -> None:
        problem = root.problem
        self.root, self.bits_of = root, bits_of
        self.paid = np.zeros(bits_of.n_words, dtype=np.uint64)
        self.at_root = int(root.weights[root.is_paid].sum())
        self.opened = np.full(problem.n_exemplars, np.inf)
        self.shut = np.maximum(problem.lower_thresholds, certificate.ceiling).astype(np.float64)
        self._trail: list[tuple[Bits, list[tuple[Any, int, float]]]] = []

    def enter(self, step: Step) -> None:
        # What is opened without accepting more needs no set of its own: the longest way has no more than negatives.
        before: list[tuple[Any, int, float]] = []
        self._trail.append((self.paid, before))
        for j, score in step.opened.items():
            bits = self.bits_of.split(j, score)
            if (bits & ~self.paid).any():
                self.paid = self.paid | bits
            before.append((self.opened, j, self.opened[j]))
            self.opened[j] = min(self.opened[j], score)
        for j, score in step.shut.items():
            before.append((self.shut, j, self.shut[j]))
            self.shut[j] = max(self.shut[j], score)

    def leave(self) -> None:
        self.paid, before = self._trail.pop()
        for array, j, score in before:
            array[j] = score

    def bound(self, p: int, bits: Bits, weight: float) -> float:
        """What is paid here, and the least that covering p adds; inf where nobody can."""
        problem = self.root.problem
        scores = problem.positive_scores[p]
        may = np.ones(len(scores), dtype=bool) if problem.forbidden is None else ~problem.forbidden[p]
        paid = self.at_root + weight * float(n_ones(self.paid[None])[0])
        if self.root.is_covered[p] or (may & (scores >= self.opened)).any():
            return paid
        alive = np.flatnonzero(may & (scores > self.shut))
        if len(alive) == 0:
            return math.inf
        return paid + weight * float(n_ones(bits[alive] & ~self.paid).min())


def n_ones(bits: Bits) -> NDArray[np.int64]:
    """(n,) ones in each row."""
    if hasattr(np, "bitwise_count"):  # numpy 2
        return np.asarray(np.bitwise_count(bits).sum(axis=1, dtype=np.int64))
    return np.asarray(_ONES[bits.view(np.uint8)].sum(axis=1, dtype=np.int64))
