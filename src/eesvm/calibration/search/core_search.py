"""Bounds from a few hard positives: whatever covers these alone costs nearly as much as what covers all.

In: a `RankedProblem` in which all negatives cost 1 and all positives must be covered, and the loss of a known solution.
Out: a bound that rises with every target that is reached, with a `CoreProof` of it, and better solutions where some
turn up. Dense tables have thousands of positives, and a few dozen of them, the *core*, decide most of the loss. To show
that no solution costs less than a target, it is enough that none covers the core for less: `core_kernels` searches that
depth first. Targets come closer and closer to the known loss, and are lowered where time is short; what exceeds its
budget is split and searched in parts. Of the first of these the whole story is kept; later, where a proof would become
too large, only that they were searched: whoever checks the proof can search them as well.

Parts can also be searched by shares (`core_shares`): a node takes some thousand times as long, and there are fewer.
Which way takes less time depends on the table, so one long target is tried by shares, and if that takes too long, it is
begun again plainly.

The core grows where it proves too little: when all of it is covered for less than the target, the positive that is
then the dearest of those uncovered joins it. If there is none, a better solution is found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from eesvm._support.threads import Workers
from eesvm.calibration.ranks import RankedProblem
from eesvm.calibration.search import core_kernels as kernels
from eesvm.calibration.search.core_proof import CoreProof
from eesvm.calibration.search.core_shares import CoreShares, Node
from eesvm.calibration.search.heuristics import loss_of_levels
from eesvm.calibration.search.proof import Proof
from eesvm.calibration.search.reduce import Levels

_FIRST = 0.25  # of the known loss: the first target
_NEARER, _LAST_NEARER = 0.35, 0.5  # of what is left to the known loss: the next target, the last one in time, at most
_STEP, _MORE_WORK = 0.05, 5.0  # of the loss: between two targets; how many times the words a later one may take
_APART = 0.01  # of the target: how far two targets are apart, by which growth is told
_FOR_TARGET, _IN_TIME = 0.5, 0.4  # of the seconds left: what a target may take; when so many are left, it is lowered
_FOR_LAST, _LAST_IN_TIME = 0.75, 0.15  # the same where nothing worth its while is to be done after it
_AT_ONCE = 0.004  # of the loss: what is left to the last target
_GROWTH = 17.0  # nodes below grow by a factor e for every 1/17 of the target that is left to spend
_BUDGET = 5e8  # words looked at in a part before what is left of it becomes parts of their own
_TIMES_THE_FIRST = 4  # words that its first node looks at, at most: as many in any case
_LITTLE = 0.05  # of the nodes of such a part: the deepest node that has no more below it is searched again
_STORY = 200_000  # events of a part
_SHORT = 200  # events that are told in any case: a checker would not be faster without them
_SLOWER = 15.0  # what looking at a word takes in searching by shares
_TRIAL = 1e10  # words that a target is expected to take when it is tried by shares
_TOO_LONG = 1.5  # times what was expected, after which the trial ends
_AGAIN, _TRIAL_TIME = 10.0, 0.1  # times as many words for another trial; seconds left that it may take if it is in vain
_BATCH = 16  # parts that are searched side by side, whatever the number of threads; more take more memory
_FIRST_ROOM, _MOST_BYTES = 32, 2**30  # positives of the core at first, and memory of their bits at most
_MOST_COMMON = 2**28  # bytes of numbers of common negatives
_FEW_WORDS = 600  # of bits of a pair: where they have fewer, counting them again takes no longer than comparing pairs
_AFTER = 1.0  # of the words that counting them takes: so long a target is searched without them
_UNSEEN, _MOST_ROWS = 5e8, 64  # words, and rows at most, that are counted between two looks at the time
_TOLD, _MOST_EVENTS = 4_000_000, 24_000_000  # after which stories are not kept, and at most: in certificates
_LEFT_TO_CHECKER = 1.5e10  # words of parts that were searched by shares, which are left to the checker together
_MOST_POSITIVES, _MOST_EXEMPLARS = 2**16 - 1, 2**16 - 2  # that an event can name

Story = NDArray[np.uint32]
_UNTOLD = np.array([kernels.UNTOLD], dtype=np.uint32)
_NO_LEVELS = np.empty(0, dtype=np.int32)  # of a part that need not be searched any more


@dataclass(eq=False)
class Part:
    """A box of levels to search, with the story that proves the target for it."""

    lowest: Levels
    highest: Levels
    story: Story | None = None  # all of it, or as far as the search came
    parts: list[Part] = field(default_factory=list)  # whose stories follow, one after the other
    above: Node | None = None  # whose shares it begins with, until it is searched; None: it is searched plainly
    is_shared: bool = False  # whether its story was found by shares, which name positives by other places
    work: float = 0.0  # words looked at, but for those of its parts


class CoreSearch:
    """A search that takes one step at a time."""

    def __init__(
        self,
        ranked: RankedProblem,
        proof: Proof,
        workers: Workers,
        is_out_of_time: Callable[[], bool] = lambda: False,
        seconds_left: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self.ranked, self.workers = ranked, workers
        self.is_out_of_time, self.seconds_left = is_out_of_time, seconds_left
        self.highest = np.minimum(proof.highest, ranked.order.shape[1]).astype(np.int32)
        self.cutoff = proof.cutoff
        n_exemplars = ranked.n_exemplars
        self.n_words = -(-len(ranked.prices) // 64)
        self.core: list[int] = []
        self.bits = np.zeros((0, n_exemplars, self.n_words), dtype=np.uint64)
        self.reach = np.zeros((0, n_exemplars), dtype=np.int32)
        self.pair = np.zeros((0, n_exemplars), dtype=np.int32)  # numbers of pairs, -1 where one has none
        self.pairs = np.zeros((2, 0), dtype=np.int32)  # positive of the core and exemplar of each
        self.common = np.zeros((0, 0), dtype=np.int32)  # how many negatives two of them have in common
        self.proved: Part | None = None  # of the last target that was reached
        self.pending: list[Part] = []
        self.bound, self.target = 0, 0
        self.lower_at = 0.0  # seconds left when the target is lowered
        self.began_at = 0.0  # seconds left when it was set
        self.took: list[tuple[int, float]] = []  # targets that were reached, and the seconds that each took
        self.counted: list[tuple[int, float]] = []  # the same with the words that each took
        self.work_before = 0.0  # words of the targets before this one
        self.work, self.n_nodes, self.n_events = 0.0, 0, 0  # events: that prove this target so far
        self.shares: CoreShares | None = None
        self.by_shares, self.shares_begun = False, False  # for this target
        self.proved_by_shares = False
        self.trial: float | None = None  # words after which this target is begun again plainly
        self.next_trial = _TRIAL
        self.is_over = n_exemplars > _MOST_EXEMPLARS

    def step(self, loss: float) -> Levels | None:
        """Search some parts; returns the levels of a better solution than `loss`, where one is found."""
        if not self.core:
            self._begin()
        if not self.pending:
            self._aim(int(loss))
        elif self.trial is not None and self.work - self.work_before > self.trial:
            self._begin_target(by_shares=False)
        elif self.seconds_left() < self.lower_at:
            # It may not be reached in time. What is done proves more than a lower one, and what is left is easier.
            self.target = self.bound + -(-(self.target - self.bound) // 2)
            self.lower_at /= 2
        self.target = min(self.target, int(loss))
        if self.shares is not None and self.shares_begun:
            self.shares.target = self.target
        self._count_common()
        batch, self.pending = self.pending[-_BATCH:], self.pending[:-_BATCH]
        outcomes: list[_Outcome | None] = [None] * len(batch)

        def work(first: int, last: int) -> None:
            for k in range(first, last):
                outcomes[k] = None if self.is_out_of_time() else self._search(batch[k])

        self.workers.chunks(work, len(batch), 1)
        found = [self._take_in(part, outcome) for part, outcome in zip(batch, outcomes, strict=True)]
        better = min(
            (levels for levels in found if levels is not None),
            key=lambda levels: loss_of_levels(self.ranked, levels),
            default=None,
        )
        if not self.pending and not self.is_over:
            self.bound, self.proved = max(self.bound, self.target), self.root
            self.proved_by_shares = self.by_shares
            self.took.append((self.target, self.began_at - self.seconds_left()))
            self.counted.append((self.target, self.work - self.work_before))
            self.is_over = self.bound >= loss
        self.is_over |= self.n_events > _MOST_EVENTS
        return better

    def proof(self) -> CoreProof:
        """The proof of the bound, once there is one."""
        assert self.proved is not None
        shared = self.shares.positives if self.shares is not None and self.proved_by_shares else []
        names = [*shared, *(p for p in self.core if p not in shared)]
        place = np.array([names.index(p) for p in self.core], dtype=np.uint32)
        delta = self.ranked.delta[names]
        reach = np.where(delta <= self.highest, delta, 0).astype(np.int32)
        story = _told(self.proved, place, _LEFT_TO_CHECKER)
        return CoreProof(story, np.array(names), reach, self.bound, self.cutoff, self.highest)

    def _begin(self) -> None:
        """Number the negatives so that those come first which exemplars meet early: counting ends sooner."""
        ranked = self.ranked
        place = np.zeros(len(ranked.prices))
        for row in ranked.order:  # which may leave out those that come last
            place[row] += np.arange(-len(row), 0)
        self.number = np.empty(len(place), dtype=np.int32)
        self.number[np.argsort(place, kind="stable")] = np.arange(len(place))
        self._add(int(ranked.coverable[ranked.difficulty[ranked.coverable].argmax()]))

    def has_pace(self) -> bool:
        """Whether enough targets were reached to tell what the next ones will take."""
        return _growth(self.counted, _APART) is not None

    def work_until(self, target: float) -> float:
        """Words of the target that proves as much, if they grow as they did; inf where there is nothing to go by."""
        growth = _growth(self.counted, _APART)
        if growth is None:
            return math.inf
        last, work = self.counted[-1]
        expected = work * math.exp(min(700.0, growth * (target - last)))
        return max(expected, self.work - self.work_before)

    def _aim(self, loss: int) -> None:
        self.began_at = self.seconds_left()
        nearer = _FIRST if not self.counted else _LAST_NEARER if self._is_last() else _NEARER
        self.target = self.bound + max(1, math.ceil(nearer * (loss - self.bound)))
        if loss - self.target < _AT_ONCE * loss:
            self.target = loss
        self.target = min(self.target, self._in_good_order(loss), self._in_time())
        expected = self._expected()
        is_trial = not self.by_shares and expected is not None and expected >= self.next_trial
        self._begin_target(self.by_shares or is_trial)
        if is_trial and expected is not None:
            self.trial, self.next_trial = _TOO_LONG * expected, _AGAIN * expected

    def _begin_target(self, by_shares: bool) -> None:
        """From the beginning: what was too dear to be looked at may be affordable now."""
        self.by_shares, self.shares_begun, self.trial = by_shares, False, None
        self.root = Part(np.zeros_like(self.highest), self.highest)
        self.pending, self.n_events = [self.root], 0
        self.began_at, self.work_before = self.seconds_left(), self.work
        self.lower_at = (_LAST_IN_TIME if self._is_last() else _IN_TIME) * self.began_at

    def _expected(self) -> float | None:
        """Words that the target is expected to take, None where it is not known or too late to try another way."""
        growth = _growth(self.counted, _APART)
        if growth is None:
            return None
        last, work = self.counted[-1]
        expected = work * math.exp(min(700.0, growth * (self.target - last)))
        seconds = self.took[-1][1] * expected / work
        return expected if _TOO_LONG * seconds <= _TRIAL_TIME * self.began_at else None

    def _in_good_order(self, loss: int) -> int:
        """The target that is not much more work than the last one: one that is not reached proves nothing."""
        if not self.counted:
            return 2**62
        growth = _fastest(self.counted)
        room = math.inf if growth is None else math.log(_MORE_WORK) / growth
        return self.bound + _whole(min(room, _STEP * loss))  # growth itself grows while little is to do

    def _in_time(self) -> int:
        """The target that can be reached in good time, if time grows as fast as it did."""
        growth = _fastest(self.took)
        if growth is None or math.isinf(self.began_at):
            return 2**62
        seconds = (_FOR_LAST if self._is_last() else _FOR_TARGET) * self.began_at
        return self.bound + _whole(math.log(max(1.0, seconds / self.took[-1][1])) / growth)

    def _is_last(self) -> bool:
        """Whether the time left is not enough for a target that is far from the one before it, and more."""
        return len(self.took) > 1 and _MORE_WORK * self.took[-1][1] > _FOR_TARGET * self.began_at

    def _add(self, p: int) -> None:
        """Let positive p join the core."""
        n_exemplars = self.ranked.n_exemplars
        if len(self.core) == len(self.bits):
            room = max(_FIRST_ROOM, 2 * len(self.bits))
            room = min(room, _MOST_BYTES // (8 * n_exemplars * self.n_words), _MOST_POSITIVES)
            room = min(room, math.isqrt(_MOST_BYTES // (8 * n_exemplars)))  # a search holds pairs at every depth
            if room <= len(self.core):
                self.is_over = True
                return
            bits = np.zeros((room, n_exemplars, self.n_words), dtype=np.uint64)
            bits[: len(self.core)] = self.bits
            self.bits = bits
        delta = self.ranked.delta[p]
        reach = np.where(delta <= self.highest, delta, 0).astype(np.int32)
        kernels.fill_bits(self.ranked.order, self.number, reach, self.bits[len(self.core)])
        self.reach = np.vstack([self.reach, reach])
        self.pair = np.vstack([self.pair, np.full(n_exemplars, -1, dtype=np.int32)])
        self.core.append(p)

    def _count_common(self) -> None:
        """Count what pairs have in common that are affordable now, once this target has taken as long as that takes."""
        is_new = (self.reach > 0) & (self.reach < self.target) & (self.pair < 0)
        positive, exemplar = np.nonzero(is_new)
        n_before = len(self.common)
        n_new = min(len(positive), math.isqrt(_MOST_COMMON // 4) - n_before)
        n_words = n_new * (n_before + n_new / 2) * self.n_words
        if self.n_words < _FEW_WORDS or n_new <= 0 or self.work - self.work_before < _AFTER * n_words:
            return
        cheapest = np.argsort(self.reach[is_new], kind="stable")[:n_new]
        pairs = np.hstack([self.pairs, np.array([positive[cheapest], exemplar[cheapest]], dtype=np.int32)])
        common = self._counted(pairs)
        if common is None:
            return
        self.pair[pairs[0, n_before:], pairs[1, n_before:]] = np.arange(n_before, len(common))
        self.pairs, self.common, self.work = pairs, common, self.work + n_words

    def _counted(self, pairs: NDArray[np.int32]) -> NDArray[np.int32] | None:
        """What `pairs` have in common, which begin with those that are counted already; None where time is over."""
        n_before, n = len(self.common), pairs.shape[1]
        common = np.empty((n, n), dtype=np.int32)
        common[:n_before, :n_before] = self.common
        is_done = np.zeros(n - n_before, dtype=bool)

        def work(first: int, last: int) -> None:
            if not self.is_out_of_time():
                kernels.count_common(self.bits, *pairs, n_before + first, n_before + last, common)
                is_done[first:last] = True

        n_rows = int(_UNSEEN / (n * self.n_words))
        self.workers.chunks(work, len(is_done), min(max(1, n_rows), _MOST_ROWS))
        return common if is_done.all() else None

    def _search(self, part: Part) -> _Outcome:
        is_plain = part.above is None or self.shares is None or self.shares.is_full
        return self._search_plainly(part) if is_plain else self._search_by_shares(part)

    def _search_by_shares(self, part: Part) -> _Outcome:
        assert self.shares is not None
        assert part.above is not None
        free, paid = self._free(part.lowest)
        found = self.shares.examine(free, paid, part.lowest, part.highest, part.above)
        if found.covered is not None:
            return _Outcome(kernels.COVERED, found.n_nodes, _SLOWER * found.work, free=found.covered)
        if found.is_closed:
            return _Outcome(kernels.FINISHED, found.n_nodes, _SLOWER * found.work, _UNTOLD, is_shared=True)
        assert found.node is not None
        # Not below what shares have shut, which no certificate would say.
        parts, highest, q = [], part.highest, found.positive
        for j, is_closed in zip(found.exemplar, found.closed, strict=True):
            level = self.shares.reach[q, j]
            lowest = part.lowest.copy()
            lowest[j] = max(lowest[j], level)
            story = np.array([(q << 16) + j + 1], dtype=np.uint32)
            parts.append(Part(_NO_LEVELS, _NO_LEVELS, story, is_shared=True))
            if is_closed:
                parts.append(Part(_NO_LEVELS, _NO_LEVELS, _UNTOLD, is_shared=True))
            else:
                parts.append(Part(lowest, highest, above=found.node))
            highest = highest.copy()
            highest[j] = min(highest[j], level - 1)
        parts.append(Part(_NO_LEVELS, _NO_LEVELS, _UNTOLD, is_shared=True))
        return _Outcome(kernels.OUT_OF_BUDGET, found.n_nodes, _SLOWER * found.work, parts=parts, is_shared=True)

    def _begin_shares(self) -> Node | None:
        """The root of this target, whose shares parts begin with; None where parts are searched plainly."""
        if not self.by_shares:
            return None
        if self.shares is None:
            self.shares = CoreShares(self.ranked, self.number, self.highest)
        if not self.shares_begun:
            self.work += _SLOWER * self.shares.begin(self.target, self.core)
            self.shares_begun = True
        return None if self.shares.is_full else self.shares.root

    def _search_plainly(self, part: Part) -> _Outcome:
        n_core, n_exemplars = len(self.core), self.ranked.n_exemplars
        core = kernels.Core(self.bits[:n_core], self.reach, self.pair, self.common)
        depths = n_core + 2
        frames = kernels.Frames(
            np.empty((depths, self.n_words), dtype=np.uint64),
            np.empty((depths, n_exemplars), dtype=np.int32),
            np.empty((depths, n_core), dtype=np.bool_),
            np.empty((depths, n_core)),
            np.empty((depths, n_core), dtype=np.int32),
            np.empty((depths, n_core, n_exemplars), dtype=np.int32),
            np.empty((depths, n_core, n_exemplars), dtype=np.int32),
            np.empty((depths, n_core), dtype=np.int32),
            np.empty(depths, dtype=np.int64),
        )
        frames.free[0], frames.paid[0] = self._free(part.lowest)
        if frames.paid[0] >= self.target:  # what is paid is proof enough, whoever owns the leaf
            return _Outcome(kernels.FINISHED, 1, 0, np.zeros(1, dtype=np.uint32))
        path = kernels.Path(
            np.empty(depths, dtype=np.int64),
            np.empty((depths, n_exemplars), dtype=np.int32),
            *(np.zeros(depths, dtype=np.int64) for _ in range(3)),
        )
        story = np.empty(_STORY, dtype=np.uint32)
        worth = np.exp(-_GROWTH / self.target * np.arange(self.target))
        budget = max(_BUDGET, _TIMES_THE_FIRST * float(n_core * n_exemplars * self.n_words))
        found = kernels.search(core, frames, path, part.lowest, part.highest, self.target, worth, budget, story)
        outcome, depth, n_nodes, n_events, work = (int(number) for number in found)
        if outcome == kernels.COVERED:
            return _Outcome(outcome, n_nodes, work, free=frames.free[depth].copy())
        if outcome == kernels.FINISHED:
            return _Outcome(outcome, n_nodes, work, story[:n_events].copy())
        n_events, parts = self._rest(part, path, frames.highest, depth, n_nodes, n_events)
        return _Outcome(outcome, n_nodes, work, story[:n_events].copy(), parts)

    def _rest(
        self, part: Part, path: kernels.Path, highest: NDArray[np.int32], depth: int, n_nodes: int, n_events: int
    ) -> tuple[int, list[Part]]:
        """(events that remain told, what is not searched yet), where a search of `part` came as far as `path`.

        Of every node on the path that is what its exemplars leave that were not tried, the deepest node first. A
        node below which little was done is searched again.
        """
        begun_late = np.flatnonzero(n_nodes - path.nodes[1 : depth + 1] <= _LITTLE * n_nodes)
        last = 1 + int(begun_late[0]) if len(begun_late) else depth
        parts, lowest = [], part.lowest
        for above in range(last):
            exemplar = int(path.child[above, path.next[above] - 1])
            level = self.reach[path.positive[above], exemplar]
            without = highest[above].copy()
            without[exemplar] = min(without[exemplar], level - 1)
            parts.append(Part(lowest, without))
            lowest = lowest.copy()
            lowest[exemplar] = max(lowest[exemplar], level)
        is_again = len(begun_late) > 0
        parts.append(Part(lowest, highest[last - 1 if is_again else last].copy()))
        return int(path.events[last]) if is_again else n_events, parts[::-1]

    def _free(self, lowest: Levels) -> tuple[NDArray[np.uint64], int]:
        """Bits of what the lowest levels do not accept, and how many others there are."""
        n_negatives = len(self.ranked.prices)
        is_free = np.zeros(64 * self.n_words, dtype=bool)
        is_free[:n_negatives] = True
        for j in np.flatnonzero(lowest):
            is_free[self.number[self.ranked.order[j, : lowest[j]]]] = False
        return np.packbits(is_free, bitorder="little").view(np.uint64), n_negatives - int(is_free.sum())

    def _take_in(self, part: Part, outcome: _Outcome | None) -> Levels | None:
        if outcome is None:  # out of time
            self.pending.append(part)
            return None
        self.work += outcome.work
        self.n_nodes += outcome.n_nodes
        if outcome.free is not None:
            self.pending.append(part)
            return self._extend(outcome.free)
        part.story, part.parts, part.work = outcome.story, outcome.parts, outcome.work
        part.is_shared = outcome.is_shared
        part.above, part.lowest, part.highest = None, _NO_LEVELS, _NO_LEVELS  # what it began with takes much room
        if not part.is_shared:
            if self.n_events + len(part.story) > _TOLD:
                part.story = self._untold(part)
            for rest in part.parts:
                rest.above = self._begin_shares()
        self.n_events += len(part.story) + len(part.parts)
        self.pending += [rest for rest in reversed(part.parts) if rest.story is None]
        return None

    def _untold(self, part: Part) -> Story:
        """What is kept of a part whose story would take too much room."""
        assert part.story is not None
        if part.parts:
            return part.story[: kernels.shorten(part.story, _SHORT)].copy()
        return part.story if len(part.story) <= _SHORT else _UNTOLD

    def _extend(self, free: NDArray[np.uint64]) -> Levels | None:
        """The core is covered for less than the target: what this does not cover joins it, or all is covered."""
        ranked = self.ranked
        levels, least = np.zeros(ranked.n_exemplars, dtype=np.int32), np.full(len(ranked.delta), 2**30, dtype=np.int32)
        self.work += ranked.order.size
        kernels.look_at(ranked.order, self.number, ranked.delta, self.highest, free, levels, least)
        dearest = int(ranked.coverable[least[ranked.coverable].argmax()])
        if least[dearest] == 0:
            return levels
        if dearest not in self.core:  # another part may have brought it in
            self._add(dearest)
        if self.shares is not None and self.shares_begun:
            self.shares.admit(dearest)
        return None


@dataclass(frozen=True)
class _Outcome:
    """What became of a part."""

    outcome: int
    n_nodes: int
    work: float
    story: Story = field(default_factory=lambda: np.empty(0, dtype=np.uint32))
    parts: list[Part] = field(default_factory=list)  # that are left to search
    free: NDArray[np.uint64] | None = None  # bits of what is not accepted where the core is covered
    is_shared: bool = False


def _growth(took: list[tuple[int, float]], apart: float = 0.0) -> float | None:
    """Of the logarithm of what targets take, for each negative that they are nearer: of the last and one before it."""
    if len(took) < 2:
        return None
    last, now = took[-1]
    first, before = next((one for one in reversed(took[:-1]) if one[0] <= (1 - apart) * last), took[0])
    return math.log(now / before) / (last - first) if 0 < before < now and first < last else None


def _fastest(took: list[tuple[int, float]]) -> float | None:
    """The greater of the growth to the last target and that to the one before it, since it may rise again.

    None where the last target took no longer than one before it. The first growth of all says little and is left out.
    """
    now = _growth(took, _APART)
    before = _growth(took[:-1], _APART) if len(took) > 3 else None
    return now if now is None or before is None else max(now, before)


def _whole(room: float) -> int:
    """Negatives that a target may be nearer, at least one."""
    return max(1, int(min(room, 2.0**40)))


def _told(root: Part, place: NDArray[np.uint32], most: float) -> Story:
    """The story of all parts together; parts that took no more than `most` words by shares are left to the checker.

    Plain stories name positives by their place in the core, which has the place place[k] among all.
    """
    work = _work_below(root)
    told, waiting = [], [root]
    while waiting:
        part = waiting.pop()
        assert part.story is not None
        if part.is_shared and part.parts and work[id(part)] <= most:
            told.append(_UNTOLD)
            continue
        story = part.story
        if not part.is_shared:
            named = (place[story >> 16] << 16) | (story & 0xFFFF)
            story = np.where(story == kernels.UNTOLD, story, named).astype(np.uint32)
        told.append(story)
        waiting += reversed(part.parts)
    return np.concatenate(told)


def _work_below(root: Part) -> dict[int, float]:
    """Of each part by its id, with all of its parts."""
    parts, waiting = [], [root]
    while waiting:
        part = waiting.pop()
        parts.append(part)
        waiting += part.parts
    work: dict[int, float] = {}
    for part in reversed(parts):
        work[id(part)] = part.work + sum(work[id(below)] for below in part.parts)
    return work
