"""Walking through the tree of a proof, and what is known on the way.

In: the tree of a `Certificate`, and a `CalibrationProblem`. Out: a visit of the leaves that are asked for, at each of
which `Paid` knows the negatives that are paid and `Values` the v_p of one set of shares; `certified_bound` says what
these words mean.

A proof has thousands of leaves, and the next one differs from the last by little. So nothing is computed at a leaf:
each step down changes what it changes, and the step back up puts the old numbers back. All amounts are whole numbers
below 2**53, so that what is subtracted is subtracted exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import FloatArray, row_blocks
from eesvm.calibration.certificate import Certificate
from eesvm.calibration.problem import CalibrationProblem, any_accepts

_KEPT_BYTES = 1 << 29  # of columns that are kept for the next step, or looked at together
_PIECE_BYTES = 1 << 22  # of pairs that are compared together: what stays in the cache is added faster


@dataclass
class Step:
    """What one gets to know between two places of the tree, as {exemplar: score}."""

    opened: dict[int, float] = field(default_factory=dict)  # the lowest score opened
    shut: dict[int, float] = field(default_factory=dict)  # the highest score shut


class State(Protocol):
    """What follows a walk: `leave` undoes the last `enter`."""

    def enter(self, step: Step) -> None: ...

    def leave(self) -> None: ...


class ProofTree:
    """The tree of a certificate that has been checked."""

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate

    # Lists, since single items of arrays are slow to get; made when they are needed, since some proofs are large.

    @cached_property
    def _exemplar(self) -> list[int]:
        return list(self._certificate.split_exemplar.tolist())

    @cached_property
    def _score(self) -> list[float]:
        return list(self._certificate.split_score.tolist())

    @cached_property
    def _children(self) -> list[tuple[int, int]]:
        certificate = self._certificate
        return list(zip(certificate.open_child.tolist(), certificate.shut_child.tolist(), strict=True))

    @cached_property
    def _parent(self) -> list[int]:
        parent = [-1] * self._certificate.n_nodes
        for node, children in enumerate(self._children):
            for child in children:
                if child >= 0:
                    parent[child] = node
        return parent

    def walk(self, leaves: Iterable[int], state: State) -> Iterator[int]:
        """Visit leaves depth first; whenever one is yielded, `state` has entered all that leads to it.

        Places with one way on are passed without a stop: a single leaf is a single step.
        """
        wanted = self._with_ancestors(leaves)
        ahead: list[tuple[int, Step] | None] = [(0, Step())] if wanted else []  # None: a step back
        while ahead:
            item = ahead.pop()
            if item is None:
                state.leave()
                continue
            node, step = item
            ways = self._ways(node, wanted)
            while len(ways) == 1:
                node = self._go(node, ways[0], step)
                ways = self._ways(node, wanted)
            state.enter(step)
            ahead.append(None)
            if not ways:
                yield node
            for child in reversed(ways):
                step = Step()
                ahead.append((self._go(node, child, step), step))

    def opened(self, leaf: int) -> set[int]:
        """The exemplars that the way to a leaf opens."""
        found: set[int] = set()
        node, parent = leaf, self._parent[leaf]
        while parent >= 0:
            if node == self._children[parent][0]:
                found.add(self._exemplar[parent])
            node, parent = parent, self._parent[parent]
        return found

    def _with_ancestors(self, leaves: Iterable[int]) -> set[int]:
        found: set[int] = set()
        for leaf in leaves:
            node = leaf
            while node >= 0 and node not in found:
                found.add(node)
                node = self._parent[node]
        return found

    def _ways(self, node: int, wanted: set[int]) -> list[int]:
        return [child for child in self._children[node] if child in wanted]

    def _go(self, node: int, child: int, step: Step) -> int:
        """Add to `step` what the way to `child` says."""
        j, score = self._exemplar[node], self._score[node]
        if child == self._children[node][0]:
            step.opened[j] = min(score, step.opened.get(j, score))
        else:
            step.shut[j] = max(score, step.shut.get(j, score))
        return child


class Columns:
    """Single columns of a table; as many as fit are kept for the next time."""

    def __init__(self, table: FloatArray) -> None:
        self._table = table
        self.column = lru_cache(_room(table))(self._column)

    def _column(self, j: int) -> FloatArray:
        return np.concatenate([block[:, j] for _, block in row_blocks(self._table)])


class Reach:
    """What the negatives weigh that come along with each pair of some positives, found in one pass over the table."""

    def __init__(self, problem: CalibrationProblem, weights: NDArray[np.float64], positives: NDArray[np.intp]) -> None:
        self._place = {p: place for place, p in enumerate(positives.tolist())}
        self._weight = np.empty((len(positives), problem.n_exemplars))
        negatives = problem.negative_scores
        step = max(1, _KEPT_BYTES // max(1, negatives.itemsize * len(negatives)))
        for start in range(0, problem.n_exemplars if self._place else 0, step):
            some = slice(start, start + step)
            columns = np.asfortranarray(negatives[:, some])
            scores = problem.positive_scores[positives, some]
            for k in range(columns.shape[1]):
                order = np.argsort(columns[:, k])
                above = np.append(np.cumsum(weights[order][::-1])[::-1], 0.0)  # of each negative and those after it
                self._weight[:, start + k] = above[np.searchsorted(columns[:, k], scores[:, k], sorter=order)]

    def weights(self, p: int) -> NDArray[np.float64]:
        """(E,) for positive p."""
        return self._weight[self._place[p]]


def _room(values: NDArray[Any]) -> int:
    """How many arrays with an entry for each of `values` are kept."""
    return max(1, _KEPT_BYTES // max(1, values.itemsize * len(values)))


class Root:
    """What is known before any split: it is the same for all sets of shares."""

    def __init__(self, problem: CalibrationProblem, certificate: Certificate, weights: NDArray[np.float64]) -> None:
        self.problem, self.weights = problem, weights
        self.positives, self.negatives = Columns(problem.positive_scores), Columns(problem.negative_scores)
        owners = np.unique(-2 - certificate.shares_of[certificate.shares_of <= -2].astype(np.intp))
        self.reach = Reach(problem, weights, owners)
        self.is_paid = problem.forced()
        self.is_covered = any_accepts(problem.positive_scores, problem.upper_thresholds, problem.forbidden)
        is_alive = problem.positive_scores > np.maximum(problem.lower_thresholds, certificate.ceiling)
        if problem.forbidden is not None:
            is_alive &= ~problem.forbidden
        self.cost = np.where(is_alive, 0.0, np.inf)
        self.values = self.cost.min(axis=1)


class Paid:
    """The negatives that every solution accepts which comes this way, and what they weigh in quanta."""

    def __init__(self, root: Root) -> None:
        self.mask = root.is_paid.copy()
        self.weight = int(root.weights[self.mask].sum())
        self._weights, self._columns = root.weights, root.negatives
        self._trail: list[tuple[NDArray[np.intp], int]] = []

    def enter(self, step: Step) -> None:
        self.find(step)

    def find(self, step: Step) -> NDArray[np.intp]:
        """Enter a step; returns the negatives that it adds."""
        parts = [np.empty(0, dtype=np.intp)]
        for j, score in step.opened.items():
            parts.append(np.flatnonzero((self._columns.column(j) >= score) & ~self.mask))
            self.mask[parts[-1]] = True
        found = np.concatenate(parts)
        self._trail.append((found, self.weight))
        self.weight += int(self._weights[found].sum())
        return found

    def leave(self) -> None:
        found, self.weight = self._trail.pop()
        self.mask[found] = False


@dataclass(frozen=True)
class Shares:
    """A set of shares, an entry each, ordered by positive."""

    positive: NDArray[Any]  # (Z,) ascending
    negative: NDArray[Any]  # (Z,)
    amount: NDArray[np.float64]  # (Z,) whole quanta

    def only(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Shares:
        return Shares(self.positive[chosen], self.negative[chosen], self.amount[chosen])

    @classmethod
    def from_set(cls, certificate: Certificate, k: int) -> Shares:
        """Set `k`, or no shares where it is -1."""
        first, last = certificate.set_start[k : k + 2] if k >= 0 else (0, 0)
        start, stop = certificate.row_start[[first, last]]
        sizes = np.diff(certificate.row_start[first : last + 1])
        return cls(
            np.repeat(certificate.share_positive[first:last], sizes),
            certificate.share_negative[start:stop],
            certificate.share_amount[start:stop].astype(np.float64),
        )


class Values:
    """The v_p of one set of shares, and who is covered; `shares` must not give away more than the weights."""

    def __init__(self, root: Root, shares: Shares) -> None:
        problem = root.problem
        self.paid = Paid(root)
        self.is_covered = root.is_covered.copy()
        self.values = root.values.copy()  # (P,) inf where nobody is alive; of no meaning for the covered
        self._root, self._problem, self._columns = root, problem, root.positives
        # (P, E) the shares of p that come along with it, inf where the pair is not alive
        self._cost = root.cost.copy()
        self._shares = shares.only(~self.paid.mask[shares.negative] & ~self.is_covered[shares.positive])
        self._by_negative = np.argsort(self._shares.negative, kind="stable")
        counts = np.bincount(self._shares.negative, minlength=problem.n_negatives)
        self._start = np.concatenate([[0], np.cumsum(counts)])
        self._trail: list[list[tuple[NDArray[Any], Any, NDArray[Any]]]] = [[]]
        self._add(np.arange(len(self._shares.amount)), 1.0)
        self._trail.clear()  # nobody goes above the root

    def enter(self, step: Step) -> None:
        self._trail.append([])
        for j, score in step.opened.items():
            self._cover(j, score)
        for j, score in step.shut.items():
            self._shut(j, score)
        paid = self.paid.find(step)
        entries = np.sort(self._by_negative[_ranges(self._start[paid], self._start[paid + 1])])
        self._add(entries[~self.is_covered[self._shares.positive[entries]]], -1.0)

    def leave(self) -> None:
        self.paid.leave()
        for array, index, old in reversed(self._trail.pop()):
            array[index] = old

    def least_cost(self, exemplars: list[int]) -> NDArray[np.float64]:
        """(P,) what v_p would be if nobody but some exemplars were alive; of no meaning for the covered."""
        return self._cost[:, exemplars].min(axis=1, initial=np.inf)

    def of_everything(self, p: int) -> float:
        """What v_p would be if the whole weight of every negative belonged to p; inf where nobody is alive."""
        reach, scores = self._root.reach.weights(p), self._problem.positive_scores[p]
        alive = np.flatnonzero(self._cost[p] < np.inf)
        least = math.inf
        for k in alive[np.argsort(reach[alive])].tolist():
            if reach[k] - self.paid.weight >= least:  # nor can any that follows be less
                break
            comes_along = (self._root.negatives.column(k) >= scores[k]) & ~self.paid.mask
            least = min(least, float(self._root.weights[comes_along].sum()))
        return least

    def _put(self, array: NDArray[Any], index: Any, new: Any) -> None:
        """Set what `leave` sets back."""
        self._trail[-1].append((array, index, array[index]))
        array[index] = new

    def _cover(self, j: int, score: float) -> None:
        found = np.flatnonzero((self._columns.column(j) >= score) & ~self.is_covered)
        if self._problem.forbidden is not None:
            found = found[~self._problem.forbidden[found, j]]
        self._put(self.is_covered, found, True)

    def _shut(self, j: int, score: float) -> None:
        found = np.flatnonzero((self._columns.column(j) <= score) & ~self.is_covered)
        was_least = found[self._cost[found, j] == self.values[found]]
        self._put(self._cost, (found, j), np.inf)
        self._put(self.values, was_least, self._cost[was_least].min(axis=1))

    def _add(self, entries: NDArray[np.intp], sign: float) -> None:
        """Add the entries, ascending, to what comes along with their positives, or take them away."""
        positives, negatives = self._problem.positive_scores, self._problem.negative_scores
        step = max(1, _PIECE_BYTES // (16 * self._problem.n_exemplars))
        for start in range(0, len(entries), step):
            piece = self._shares.only(entries[start : start + step])
            comes_along = negatives[piece.negative] >= positives[piece.positive]
            first = np.flatnonzero(np.diff(piece.positive, prepend=-1))
            sums = np.add.reduceat(comes_along * (sign * piece.amount)[:, None], first, axis=0)
            rows = piece.positive[first]
            self._put(self._cost, rows, self._cost[rows] + sums)
            self._put(self.values, rows, self._cost[rows].min(axis=1))


def _ranges(starts: NDArray[np.intp], stops: NDArray[np.intp]) -> NDArray[np.intp]:
    """The numbers from each start to its stop, one range after the other."""
    sizes = stops - starts
    return np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
