"""Shares of hard positives at the nodes of a search: what closes parts that are too large to be searched plainly.

In: a `RankedProblem` in which all negatives cost 1, a target, and parts: boxes of levels, each with the shares of a
node above it to begin with. Out, for each part: it holds no solution below the target; or its children; or levels that
cover all hard positives for less. Whatever a box has not paid is shared out anew among the positives that are not
covered in it (docs/maths.md, section 5). If what they pay for it does not close the box, a search below looks at the
shares as they are; if that is too long, the box is split, and its children begin with its shares.

The core alone is too few: it is chosen so that it costs just more than the target. Shares want a few hundred positives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.ranks import RankedProblem
from eesvm.calibration.search import ascent_kernels, core_kernels
from eesvm.calibration.search import core_dive_kernels as dives
from eesvm.calibration.search import core_share_kernels as kernels
from eesvm.calibration.search.reduce import Levels
from eesvm.calibration.sharing.lanes import Pairs
from eesvm.calibration.sharing.node import Sharing, nothing_shared, share_out

Bits = NDArray[np.uint64]

_POSITIVES = 250  # that hold shares
_CONSIDERED = 8  # times as many, the dearest, of which those are taken that no other one makes needless
_MOST_BYTES, _KEPT_FREE = 2**31, 0.1  # of bits of pairs; part that is left for positives that come later
_ROUNDS, _GROW = 4, (2, 2)  # of ascent
_ROOT_ROUNDS, _ROOT_GROW = 25, (0, 1)
_MOST_UNITS = 2**27  # of all negatives together: what lanes pay stays far below what dead ones do
_GROWTH = 17.0  # nodes below grow by a factor e for every 1/17 of the target that is left to spend
_DIVE = 4.0  # words looked at, for each of the ascent
_LEAST_DIVE = 2e7
_WEIGHED = 10  # positives of which one is branched on


@dataclass(eq=False)
class Node:
    """What children begin with."""

    paid: int
    highest: NDArray[np.int32]  # (E,)
    low: NDArray[np.int32]  # (K, E) bounds of what pairs cost
    high: NDArray[np.int32]  # (K, E) 0: not affordable
    sharing: Sharing


@dataclass(frozen=True)
class Found:
    """What became of a part."""

    work: float
    n_nodes: int
    is_closed: bool = False
    covered: Bits | None = None  # free bits of where all hard positives are covered
    positive: int = -1  # place of the one that children cover in turn
    exemplar: tuple[int, ...] = ()  # of each child
    closed: tuple[bool, ...] = ()  # whether shares close it
    node: Node | None = None
    all_have_lanes: bool = True  # of those that are not covered


class CoreShares:
    """The positives that hold shares, and the search of parts by them."""

    def __init__(self, ranked: RankedProblem, number: NDArray[np.int32], highest: NDArray[np.int32]) -> None:
        self.ranked, self.number, self.highest = ranked, number, highest
        self.n_words = -(-len(ranked.prices) // 64)
        n_exemplars = ranked.n_exemplars
        self.positives: list[int] = []
        self.reach = np.zeros((0, n_exemplars), dtype=np.int32)
        self.row = np.zeros((0, n_exemplars), dtype=np.int32)
        self.bits = np.zeros((0, self.n_words), dtype=np.uint64)
        self.n_rows, self.n_pairs = 0, 0  # of bits, and pairs that may need one
        self.target, self.worth = 0, np.ones(1)
        self.is_full = 64 * self.n_words > _MOST_UNITS  # or some positive that must hold shares found no room
        self.unit = 1 << max(0, min(12, (_MOST_UNITS // max(1, len(ranked.prices))).bit_length() - 1))
        self.root: Node | None = None  # of the target

    def begin(self, target: int, core: list[int]) -> float:
        """Choose positives for a target, beside those of the core, and share out at the root; returns work.

        Where there is no room for those of the core, it is full, and nothing is shared out.
        """
        self.target = target
        self.worth = np.exp(-_GROWTH / target * np.arange(target))
        for p in core:
            self.is_full |= not self._add(p)
        if self.is_full:
            return 0.0
        for p in self._hardest() if len(self.positives) < _POSITIVES else ():
            if len(self.positives) >= _POSITIVES or not self._add(p, (1 - _KEPT_FREE) * _MOST_BYTES):
                break
        self._fill_rows()
        n_exemplars = self.ranked.n_exemplars
        free = np.zeros(64 * self.n_words, dtype=bool)
        free[: len(self.ranked.prices)] = True
        begin = self._untouched() if self.root is None else self._again(self.root)
        found = self.examine(
            np.packbits(free, bitorder="little").view(np.uint64),
            0,
            np.zeros(n_exemplars, dtype=np.int32),
            self.highest.copy(),
            begin,
            rounds=_ROOT_ROUNDS,
            only_shares=True,
        )
        self.root = found.node or begin  # none where no solution costs less than the target
        return found.work

    def _add(self, p: int, most_bytes: float = math.inf) -> bool:
        """Let positive p hold shares, if there is room for all its pairs that may ever be affordable."""
        if p in self.positives:
            return True
        delta = self.ranked.delta[p]
        reach = np.where(delta <= self.highest, delta, 0).astype(np.int32)
        n_pairs = self.n_pairs + int((reach > 0).sum())
        if 8 * self.n_words * n_pairs > min(most_bytes, _MOST_BYTES):
            return False
        self.n_pairs = n_pairs
        self.positives.append(int(p))
        self.reach = np.vstack([self.reach, reach])
        self.row = np.vstack([self.row, np.full(len(delta), -1, dtype=np.int32)])
        return True

    def admit(self, p: int) -> None:
        """Let positive p hold shares in what is left to search of this target."""
        self.is_full |= not self._add(p)
        if not self.is_full:
            self._fill_rows()

    def _hardest(self) -> NDArray[np.intp]:
        """Positives by what they cost at least, but for those that are covered whenever some other one is."""
        ranked = self.ranked
        costly = ranked.coverable[ranked.difficulty[ranked.coverable] > 0]
        dearest = costly[np.argsort(-ranked.difficulty[costly], kind="stable")][: _CONSIDERED * _POSITIVES]
        delta = ranked.delta[dearest]
        reach = np.where(delta < self.target, delta, 0).astype(np.int32)
        kept = ascent_kernels.undominated(reach, np.arange(len(dearest)))
        return np.asarray(dearest[kept])

    def _fill_rows(self) -> None:
        """Bits for all pairs that are affordable at the root and have none yet, as far as there is room."""
        is_new = (self.reach > 0) & (self.reach < self.target) & (self.row < 0)
        n_new = int(is_new.sum())
        if self.n_rows + n_new > len(self.bits):
            room = max(self.n_rows + n_new, min(2 * len(self.bits), self.n_pairs))
            bits = np.zeros((room, self.n_words), dtype=np.uint64)
            bits[: self.n_rows] = self.bits[: self.n_rows]
            self.bits = bits
        self.row[is_new] = np.arange(self.n_rows, self.n_rows + n_new)
        q, j = np.nonzero(is_new)
        core_kernels.fill_pairs(self.ranked.order, self.number, self.reach, q, j, self.bits[self.n_rows :])
        self.n_rows += n_new

    @property
    def hard(self) -> kernels.Hard:
        return kernels.Hard(self.bits, self.row, self.reach)

    def _untouched(self) -> Node:
        """What the root begins with: no shares, and positives that choose nothing yet."""
        reach = np.where(self.row >= 0, self.reach, 0)
        return Node(0, self.highest, reach, reach.copy(), nothing_shared(reach, self.n_words))

    def _again(self, root: Node) -> Node:
        """The root of the last target, with the pairs that have become affordable since."""
        untouched = self._untouched()
        return Node(0, self.highest, untouched.low, untouched.high, root.sharing)

    def examine(
        self,
        free: Bits,
        paid: int,
        lowest: Levels,
        highest: Levels,
        above: Node,
        rounds: int = _ROUNDS,
        only_shares: bool = False,
    ) -> Found:
        """Close a box, find its children, or that it covers all positives for less than the target."""
        left = self.target - paid
        if left <= 0:
            return Found(0.0, 1, is_closed=True)
        above = self._widened(above)
        highest = np.minimum(highest, above.highest).astype(np.int32)
        is_covered = np.any((self.reach > 0) & (self.reach <= lowest), axis=1)
        low, high = above.low.copy(), above.high.copy()
        dead = kernels.weigh(self.hard, free, highest, is_covered, left, paid - above.paid, low, high)
        if dead >= 0:
            return Found(float(low.size), 1, is_closed=True)
        if is_covered.all():
            return Found(float(low.size), 1, covered=free)
        found = self._share_out(free, paid, highest, is_covered, low, high, above, rounds, only_shares, False)
        if found.covered is not None and not found.all_have_lanes:  # some were not looked at
            found = self._share_out(free, paid, highest, is_covered, low, high, above, rounds, only_shares, True)
        return found

    def _share_out(
        self,
        free: Bits,
        paid: int,
        highest: NDArray[np.int32],
        is_covered: NDArray[np.bool_],
        low: NDArray[np.int32],
        high: NDArray[np.int32],
        above: Node,
        rounds: int,
        only_shares: bool,
        all_have_lanes: bool,
    ) -> Found:
        hard, left, highest = self.hard, self.target - paid, highest.copy()
        is_covered, low, high = is_covered.copy(), low.copy(), high.copy()
        sharing, work = share_out(
            Pairs(hard.bits, hard.row),
            above.sharing,
            free,
            is_covered,
            high,
            left - 1,
            rounds,
            _ROOT_GROW if only_shares else _GROW,
            all_have_lanes,
        )
        lanes, entries = sharing.lanes, sharing.entries
        amount = np.empty(len(entries.owner), dtype=np.int32)
        cost, least = np.empty(lanes.exemplar.shape, dtype=np.int32), np.empty(len(high), dtype=np.int32)
        proved = kernels.in_whole_units(entries, is_covered, lanes, high, self.unit, amount, cost, least)
        needed = (left - 1) * self.unit
        if proved <= needed:
            room = needed - proved
            proved = kernels.shut_the_dear(hard, lanes, is_covered, room, highest, high, cost, least)
        if proved > needed and not only_shares:
            return Found(work, 1, is_closed=True)
        node = Node(paid, highest, low, high, sharing)
        if only_shares:
            return Found(work, 1, node=node)
        shares = dives.Shares(entries, amount, dives.place_of(entries.negative, 64 * self.n_words))
        box = (hard, lanes, shares, free, is_covered, cost, high, paid, self.target, self.unit, self.worth)
        outcome, bits, n_nodes, done = dives.dive(*box, max(_LEAST_DIVE, _DIVE * work))
        work += done
        if outcome == dives.FINISHED:
            return Found(work, n_nodes, is_closed=True)
        if outcome == dives.COVERED:
            return Found(work, n_nodes, covered=bits, all_have_lanes=bool((lanes.n[~is_covered] > 0).all()))
        positive, exemplar, closed, done = dives.branch(*box, _WEIGHED)
        work += done
        if positive < 0:
            return Found(work, n_nodes, covered=free, all_have_lanes=bool((lanes.n[~is_covered] > 0).all()))
        return Found(
            work,
            n_nodes + len(exemplar),
            positive=int(positive),
            exemplar=tuple(exemplar.tolist()),
            closed=tuple(closed.tolist()),
            node=node,
        )

    def _widened(self, above: Node) -> Node:
        """With rows for the positives that came later."""
        n_new = len(self.positives) - len(above.low)
        if n_new == 0:
            return above
        reach = np.where(self.row >= 0, self.reach, 0)[-n_new:]
        low = np.vstack([above.low, np.zeros_like(reach)])
        return Node(
            above.paid,
            above.highest,
            low,
            np.vstack([above.high, reach]),
            above.sharing,
        )
