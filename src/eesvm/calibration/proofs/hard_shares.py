"""Searching a leaf by shares: what is too long to be searched plainly is closed by what hard positives pay.

In: the hard positives, what is paid, shut and covered at a leaf, and what may be spent. Out: the least that covering
all of them adds. At each place on the way shares of what is not paid are made anew, beginning with those of the place
above. They close the place, or bound a compiled search below it; where that takes too long, one positive is covered in
every way, and each way is a place of its own.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.proofs import hard_share_kernels as kernels
from eesvm.calibration.proofs.hard_kernels import Hard
from eesvm.calibration.proofs.owners import n_ones
from eesvm.calibration.sharing.lanes import Pairs
from eesvm.calibration.sharing.node import Sharing, nothing_shared, share_out

_ROOT_ROUNDS, _LEAF_ROUNDS, _ROUNDS = 25, 8, 4  # of ascent
_SEARCH, _LEAST_SEARCH = 4.0, 2e7  # words of the search below a place, for each one of the ascent, and at least
_MOST_UNITS = 2**27  # of all negatives together: no sum of them comes near what a lane costs that is shut
_DEEPEST = 200  # places on the way down


class TooMuch(Exception):
    """More would have to be looked at than is reasonable."""


@dataclass(frozen=True, eq=False)
class Place:
    """What is paid, shut and covered there: (W,) (E,) (K,); how many are paid, and how many places are above it."""

    paid: NDArray[np.uint64]
    n_paid: int
    shut: NDArray[np.float64]
    is_covered: NDArray[np.bool_]
    depth: int = 0


@dataclass(frozen=True, eq=False)
class _Known:
    """What places below begin with: least and most (K, E) that pairs cost, once n_paid negatives were paid."""

    n_paid: int
    least: NDArray[np.int32]
    most: NDArray[np.int32]
    sharing: Sharing


@dataclass(eq=False)
class _Left:
    """Of one leaf: how many negatives must not be paid in all, and how many words may still be looked at."""

    limit: int
    words: float


class SharedSearch:
    """Searches leaves, one after the other or side by side."""

    def __init__(
        self, hard: Hard, cost: NDArray[np.int32], everything: NDArray[np.uint64], most: int, growth: float
    ) -> None:
        """cost (K, E) is what pairs cost at the root, and `everything` (W,) has the negatives that count there.

        Ways that pay for `most` or more do not matter; places below a place grow by a factor e for every
        `most / growth` that may be spent.
        """
        self.hard, self.pairs, self.everything = hard, Pairs(hard.bits, hard.row), everything
        self.unit = 1 << max(0, min(12, (_MOST_UNITS // (64 * len(everything))).bit_length() - 1))
        self.worth = np.exp(-growth / max(1, most) * np.arange(most + 1))
        # A pair that costs nothing is affordable, which 0 would deny.
        self.cost = np.where(hard.row >= 0, np.maximum(cost, 1), 0).astype(np.int32)
        self.most, self._lock = most, threading.Lock()
        self._root: _Known | None = None

    @property
    def root(self) -> _Known:
        """Shares of everything, made when the first leaf wants them."""
        with self._lock:
            if self._root is None:
                sharing, is_covered = nothing_shared(self.cost, len(self.everything)), ~np.any(self.cost > 0, axis=1)
                if not is_covered.all():
                    sharing, _ = share_out(
                        self.pairs, sharing, self.everything, is_covered, self.cost, self.most, _ROOT_ROUNDS, (0, 1)
                    )
                self._root = _Known(0, np.where(self.cost > 1, self.cost, 0).astype(np.int32), self.cost, sharing)
            return self._root

    def least_cost(self, leaf: Place, limit: int, most_words: float) -> int:
        """The least number of negatives that are paid once all are covered, `limit` if that is less.

        `TooMuch` where more than about `most_words` would have to be looked at.
        """
        if 64 * len(self.everything) > _MOST_UNITS:
            raise TooMuch
        left = _Left(limit, most_words)
        self._search(left, self.root, leaf, _LEAF_ROUNDS)
        return left.limit

    def _search(self, left: _Left, above: _Known, place: Place, rounds: int = _ROUNDS) -> None:
        """Lower the limit to what the cheapest way on pays, if that is less."""
        if place.n_paid >= left.limit:
            return
        if place.depth > _DEEPEST:
            raise TooMuch
        least, most, is_covered = above.least.copy(), above.most.copy(), place.is_covered.copy()
        room, price = left.limit - place.n_paid, place.n_paid - above.n_paid
        _spend(left, least.size)
        if not kernels.afford(self.hard, place.paid, place.shut, is_covered, room, price, least, most):
            return
        if is_covered.all():
            left.limit = place.n_paid
            return
        known = _Known(place.n_paid, least, most, above.sharing)
        for all_have_lanes in (False, True):
            if self._share(left, known, replace(place, is_covered=is_covered), rounds, all_have_lanes):
                return

    def _share(self, left: _Left, known: _Known, place: Place, rounds: int, all_have_lanes: bool) -> bool:
        """Search on by shares; False where something was found but some have no lanes: to be done again with all."""
        hard, is_covered, room = self.hard, place.is_covered, left.limit - place.n_paid
        needed, free = (room - 1) * self.unit, self.everything & ~place.paid
        sharing, words = share_out(
            self.pairs, known.sharing, free, is_covered, known.most, room - 1, rounds, (2, 2), all_have_lanes
        )
        _spend(left, words)
        lanes, shut, most = sharing.lanes, place.shut.copy(), known.most.copy()
        if not kernels.is_whole(lanes, is_covered, most):
            raise TooMuch
        shares = kernels.whole_shares(hard, lanes, sharing.entries, place.paid, self.unit)
        cost, lowest, proved = kernels.prices(lanes, shares, is_covered, most)
        if proved <= needed:
            proved = kernels.shut_the_dear(hard, lanes, is_covered, needed - proved, shut, most, cost, lowest)
        if proved > needed:
            return True
        here = (hard, lanes, shares, place.paid, is_covered, cost, most)
        guide = (self.unit, self.worth)
        found, is_finished, done = kernels.least_below(*here, room, *guide, max(_LEAST_SEARCH, _SEARCH * words))
        _spend(left, done)
        some_have_none = bool((lanes.n[~is_covered] == 0).any())
        if found < room and some_have_none:
            return False
        left.limit = place.n_paid + int(found)
        if is_finished:
            return True
        p, exemplars, is_closed, done = kernels.ways_on(*here, int(found), *guide)
        _spend(left, done)
        if p < 0 and some_have_none:
            return False
        if p < 0:
            left.limit = min(left.limit, place.n_paid)
            return True
        known = replace(known, most=most, sharing=sharing)
        for j, is_done in zip(exemplars.tolist(), is_closed.tolist(), strict=True):
            if not is_done:
                self._search(left, known, self._covering(replace(place, shut=shut.copy()), int(p), j))
            shut[j] = max(shut[j], hard.scores[p, j])  # from now on somebody else covers p
        return True

    def _covering(self, place: Place, p: int, j: int) -> Place:
        """Where exemplar j covers p."""
        hard = self.hard
        new = hard.bits[hard.row[p, j]] & ~place.paid
        comes_along = hard.may[:, j] & (hard.scores[:, j] >= hard.scores[p, j])
        n_paid = place.n_paid + int(n_ones(new[None])[0])
        return Place(place.paid | new, n_paid, place.shut, place.is_covered | comes_along, place.depth + 1)


def _spend(left: _Left, words: float) -> None:
    left.words -= words
    if left.words < 0:
        raise TooMuch
