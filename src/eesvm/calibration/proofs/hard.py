"""The bounds of leaves that a proof leaves to its checker: what covering its hard positives costs there.

In: what `certified_bound` knows at the root of a proof, its tree, and a limit. Out: the least bound of such leaves in
quanta, where all positives must be covered. At each leaf all exemplars of one hard positive after the other are tried,
but for what costs as much as the limit: a search, though one of a small part of the problem that was shown to be
short. A proof with millions of nodes can be kept that way, and takes about as long to check as it took to find.

By compiled code with negatives as bits where all weigh the same, else by numpy. What is too long to be searched plainly
is searched by shares (`hard_shares`). A leaf that takes far longer than any that our search leaves proves what is paid
there, so that no certificate can keep its checker busy for ever.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from eesvm._support.threads import in_order, n_cores
from eesvm.calibration.certificate import Certificate
from eesvm.calibration.proofs import hard_kernels as kernels
from eesvm.calibration.proofs.hard_shares import Place, SharedSearch, TooMuch
from eesvm.calibration.proofs.owners import Bits, SetsOfNegatives, Way, counted_weight, n_ones
from eesvm.calibration.proofs.walk import ProofTree, Root

_MOST_BYTES = 1 << 31  # of bits of hard positives, and as many of what searching leaves takes besides
_PLAIN_WORDS, _MOST_WORDS = 1e9, 2e10  # of bits looked at in a leaf: before negatives are shared out, and in all
_MANY, _PLAIN_OF_MANY = 120, 1e8  # so many hard positives are there to hold shares: fewer words before these are made
_FEW_WORDS = 600  # of bits of a pair: pairs are compared with others where they have as many
_MOST_COMPARED, _WORDS_OF_LEAF = 1 << 28, 5e7  # bytes of numbers of pairs of pairs; words that a leaf takes, about
_WORDS_AT_ONCE, _ROWS_AT_ONCE = 5e8, 64  # at most, of what is compared: Ctrl-C does not wait longer
_MOST_NODES, _MOST_DEPTH, _MOST_LOOKED = 20_000, 500, 1e11  # of a leaf that is searched by numpy; scores looked at
_GROWTH = 17.0  # a guide of the search: nodes grow by a factor e for every 1/17 of the limit that is left


@dataclass(frozen=True)
class _Leaf:
    paid: Bits
    shut: NDArray[np.float64]
    is_covered: NDArray[np.bool_]


def least_searched(
    root: Root, certificate: Certificate, tree: ProofTree, leaves: Sequence[int], limit: Fraction | float
) -> int | float:
    """The least of the bounds of `leaves`, or something that is no less than the limit."""
    problem = root.problem
    hard = certificate.hard[~problem.orphans()[certificate.hard]]
    sets = SetsOfNegatives(root)
    weight = counted_weight(root, len(leaves), 0)
    if weight is None or _bytes_of_leaf(len(hard), problem.n_exemplars) > _MOST_BYTES:
        return _least_by_numpy(root, certificate, tree, leaves, hard, limit)
    at_root = int(root.weights[root.is_paid].sum())
    most = len(root.weights) + 1  # nothing costs more than all negatives
    if limit < math.inf:
        most = min(most, max(0, math.ceil((Fraction(limit) - at_root) / int(weight))))
    found = _hard_positives(root, sets, hard, most, len(leaves))
    if found is None:
        return _least_by_numpy(root, certificate, tree, leaves, hard, limit)
    known, cost = found
    may, scores, way = known.may, known.scores, Way(root, certificate, sets)
    everything = sets.packed(np.ones(len(root.weights), dtype=bool))
    plain = min(_PLAIN_WORDS, _PLAIN_OF_MANY) if len(hard) > _MANY else _PLAIN_WORDS
    shared = SharedSearch(known, cost, everything, most, _GROWTH)

    def reached() -> Iterator[_Leaf]:
        for _ in tree.walk(leaves, way):
            is_covered = root.is_covered[hard] | (may & (scores >= way.opened)).any(axis=1)
            yield _Leaf(way.paid, way.shut.copy(), is_covered)

    def search(leaf: _Leaf) -> int:
        n_paid = int(n_ones(leaf.paid[None])[0])
        scale = _GROWTH / max(1, most)
        room = max(0, most - n_paid)
        least = kernels.least_cost(known, leaf.paid, leaf.shut, leaf.is_covered, room, scale, plain)
        if least != kernels.TOO_MUCH:
            return n_paid + int(least)
        try:
            return shared.least_cost(Place(leaf.paid, n_paid, leaf.shut, leaf.is_covered), most, _MOST_WORDS)
        except TooMuch:
            return n_paid

    n_workers = min(n_cores(), max(1, _MOST_BYTES // _bytes_of_leaf(len(hard), problem.n_exemplars, sets.n_words)))
    least = min((found for _, found in in_order(search, reached(), n_workers)), default=most)
    if least >= most:
        return math.inf if limit == math.inf else math.ceil(limit)
    return at_root + int(weight) * least


def _hard_positives(
    root: Root, sets: SetsOfNegatives, hard: NDArray[np.int32], most: int, n_leaves: int
) -> tuple[kernels.Hard, NDArray[np.int32]] | None:
    """The pairs that cost less than `most`, and what pairs cost (K, E); None where they take too much room."""
    problem = root.problem
    may = np.ones((len(hard), problem.n_exemplars), dtype=bool)
    if problem.forbidden is not None:
        may = ~problem.forbidden[hard]
    row, cost = np.full(may.shape, -1, dtype=np.int32), np.full(may.shape, most, dtype=np.int32)
    bits, n_rows = [np.empty((0, sets.n_words), dtype=np.uint64)], 0
    for k, p in enumerate(hard):
        of_pair = sets.positive(int(p))
        cost[k, may[k]] = n_ones(of_pair)[may[k]]
        used = np.flatnonzero(may[k] & (cost[k] < most))
        row[k, used] = n_rows + np.arange(len(used))
        bits.append(of_pair[used])
        n_rows += len(used)
        if 8 * sets.n_words * n_rows > _MOST_BYTES:
            return None
    table = np.concatenate(bits)
    scores = problem.positive_scores[hard].astype(np.float64)
    return kernels.Hard(table, row, scores, np.ascontiguousarray(may), *_compared(table, row, cost, n_leaves)), cost


def _bytes_of_leaf(n_hard: int, n_exemplars: int, n_words: int = 1) -> int:
    """What the search of a leaf holds on its way down.

    Our own search has as many positives as make half of `_MOST_BYTES` of pairs at most, so what it leaves fits in.
    """
    return 8 * (n_hard + 2) * (n_hard * n_exemplars + n_words)


def _compared(
    bits: NDArray[np.uint64], row: NDArray[np.int32], cost: NDArray[np.int32], n_leaves: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Numbers of the cheapest pairs, and how many negatives come along with both of two of them.

    As many as are compared in no more time than the leaves take, and none where counting costs little: (K, E) (M, M).
    """
    number, n_words = np.full(row.shape, -1, dtype=np.int32), bits.shape[1]
    if n_words < _FEW_WORDS:
        return number, np.empty((0, 0), dtype=np.int32)
    room = min(_MOST_COMPARED // 4, 2 * n_leaves * _WORDS_OF_LEAF / n_words)
    positive, exemplar = np.nonzero(row >= 0)
    cheapest = np.argsort(cost[positive, exemplar], kind="stable")[: math.isqrt(int(room))]
    positive, exemplar = positive[cheapest], exemplar[cheapest]
    number[positive, exemplar] = np.arange(len(cheapest))
    return number, _both(bits, row[positive, exemplar])


def _both(bits: NDArray[np.uint64], row: NDArray[np.int32]) -> NDArray[np.int32]:
    """How many negatives come along with both of two pairs, given the rows of these: some rows at a time. (M, M)"""
    n = len(row)
    both = np.empty((n, n), dtype=np.int32)
    n_rows = min(max(1, int(_WORDS_AT_ONCE / max(1, n * bits.shape[1]))), _ROWS_AT_ONCE)

    def fill(first: int) -> None:
        kernels.fill_both(bits, row, first, min(first + n_rows, n), both)

    for _ in in_order(fill, range(0, n, n_rows), n_cores()):
        pass
    return both


def _least_by_numpy(
    root: Root,
    certificate: Certificate,
    tree: ProofTree,
    leaves: Sequence[int],
    hard: NDArray[np.int32],
    limit: Fraction | float,
) -> int | float:
    """The same, whatever negatives weigh."""
    way, search = Way(root, certificate, SetsOfNegatives(root)), _Search(root, hard)
    least = math.inf if limit == math.inf else math.ceil(limit)
    for _ in tree.walk(leaves, way):
        bits = np.unpackbits(way.paid.view(np.uint8), bitorder="little")[: len(root.weights)]
        is_paid = root.is_paid | bits.astype(bool)
        paid = int(root.weights[is_paid].sum())
        is_covered = root.is_covered[hard] | (search.may & (search.scores >= way.opened)).any(axis=1)
        if paid >= least:
            continue
        search.n_nodes, search.n_looked = 0, 0
        try:
            least = paid + search.least(is_paid, way.shut, is_covered, least - paid)
        except TooMuch:
            least = paid
    return least if least == math.inf else int(least)


class _Search:
    """All ways to cover some positives, one positive after the other."""

    def __init__(self, root: Root, hard: NDArray[np.int32]) -> None:
        problem = root.problem
        self.root, self.n_nodes, self.n_looked = root, 0, 0
        self.scores = problem.positive_scores[hard].astype(np.float64)
        self.may = np.ones(self.scores.shape, dtype=bool) if problem.forbidden is None else ~problem.forbidden[hard]

    def _comes_along(self, p: int, j: int) -> NDArray[np.bool_]:
        """(N,) the negatives that exemplar j accepts when it accepts p."""
        return np.asarray(self.root.negatives.column(j) >= self.scores[p, j])

    def least(
        self,
        is_paid: NDArray[np.bool_],
        shut: NDArray[np.float64],
        is_covered: NDArray[np.bool_],
        room: float,
        depth: int = 0,
    ) -> float:
        """What the cheapest way adds to what is paid, `room` if that is less."""
        self.n_nodes += 1
        if self.n_nodes > _MOST_NODES or depth > _MOST_DEPTH:
            raise TooMuch
        weights = np.where(is_paid, 0.0, self.root.weights)
        choice: tuple[int, list[tuple[float, int]]] | None = None
        for p in np.flatnonzero(~is_covered).tolist():
            alive = np.flatnonzero(self.may[p] & (self.scores[p] > shut)).tolist()
            self.n_looked += len(alive) * len(weights)
            if self.n_looked > _MOST_LOOKED:
                raise TooMuch
            costs = sorted((float(weights[self._comes_along(p, j)].sum()), j) for j in alive)
            costs = [(cost, j) for cost, j in costs if cost < room]
            if choice is None or len(costs) < len(choice[1]):
                choice = p, costs
            if not costs:
                break
        if choice is None:
            return 0.0
        p, shut = choice[0], shut.copy()
        for cost, j in choice[1]:
            if cost < room:
                also = is_covered | (self.may[:, j] & (self.scores[:, j] >= self.scores[p, j]))
                below = self.least(is_paid | self._comes_along(p, j), shut, also, room - cost, depth + 1)
                room = min(room, cost + below)
            shut[j] = max(shut[j], self.scores[p, j])
        return room
