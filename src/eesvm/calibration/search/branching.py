"""Our exact search: shares prove a bound on a box of levels, and where a gap is left the box is split.

In: a `RankedProblem`. Out: the best levels found, and a `Proof` of the bound. The search holds a solution and a valid
bound from its first moment on. It takes turns: neighbourhood search for better solutions, ascent for better bounds. The
box with the weakest bound comes first, since it holds the bound of all. What the ascent does not settle is searched
depth first, if that promises to be short, and else split by the exemplars of one difficult positive: covered by the
first, or by the second and not the first, and so on, which between them lose no solution (docs/maths.md, section 5).
"""

from __future__ import annotations

import heapq
import math
import time
from fractions import Fraction
from typing import Any

import numpy as np

from eesvm._support.threads import Workers
from eesvm.calibration.anytime import Run, relative_gap
from eesvm.calibration.ranks import RankedProblem
from eesvm.calibration.search.ascent import FEW_FOUND, Ascent, Evaluation, Shares
from eesvm.calibration.search.core_search import CoreSearch
from eesvm.calibration.search.dives import Dive
from eesvm.calibration.search.heuristics import loss_of_levels
from eesvm.calibration.search.neighbourhoods import NeighbourhoodSearch
from eesvm.calibration.search.proof import Leaf, Proof
from eesvm.calibration.search.reduce import Box, Levels, ReducedProblem, cheap_box, reduce

_ROUND, _MAX_ROUND = 8, 64  # iterations between two looks at what shares are missing
_NODE_ROUNDS = 6  # of ascent, below the root
_PATIENCE = 3  # rounds over which the ascent of the root must make progress
_PROGRESS, _LEAST_PROGRESS = 0.05, 0.004  # of the gap, or of the loss, over that many rounds; below it, in each
_TIDY_ROUNDS = 2  # unused shares are dropped every so many rounds
_WALKERS = 2  # neighbourhood searches side by side
_FIRST_MOVES, _MOVES = 400, 100  # of each walker at the beginning, and in each round
_WIDE_GAP, _MANY_MOVES = 0.1, 300  # of the loss, at which walkers make more moves
_IDLE_ROUNDS, _FEW_MOVES = 20, 60  # rounds without a better solution, after which walkers make fewer moves
_DIVE_WORK = 2e8  # numbers looked at in a search that is given up
_PLAIN_WORK = 1e8  # numbers looked at in a search without shares: a problem that is easy without them needs none
_EARLY_WORK = 1e7  # numbers that the ascent looks at before its box is searched for the first time, then twice as many
_EARLY_DIVES = 1.0, 0.2  # of what the ascent has looked at: what a search of the root, of other boxes, may look at
_DIVE_GAP = 0.1  # largest gap, of the loss, at which a box is searched depth first; adapts to what succeeds
# Time of the core for each second of other work, where it proves more and where less: while the root climbs, and later.
_CORE_AHEAD, _CORE_BEHIND = (1.0, 8.0), (0.05, 0.2)
_CORE_FAR = 0.5  # of the loss: from there on the core does not wait for the root, whose shares rarely get as far
_CORE_CATCHES_UP = 0.25  # of the seconds left: if it needs no more to prove what shares do, it has its time as if ahead
_CORE_TRIAL = 0.05  # of the seconds left: so long it has its time as if ahead until its pace is known
_CORE_BETWEEN_BOXES = 0.5  # the most of it, where boxes are counted
_CORE_PACE = 2.0  # numbers that ascents look at in the time in which the core looks at a word: a clock without a limit
_CORE_WALKS_LEAST, _CORE_WALKS_MOST = 0.1, 0.3  # of the core's time: walkers have long found nothing, or may yet
_CORE_WORDS = 200.0  # of the core, for each number of a table: so often they move where there is no clock
_LONG = 2.0  # times the seconds of walking until the last better solution: then none has been found for long
_INEXACT = 1e-10  # of the loss: what is not worth looking for where weights are rounded


class ExactSearch:
    """The state of one search. Losses are those of the ranked problem."""

    def __init__(
        self,
        ranked: RankedProblem,
        run: Run,
        unit: Fraction | None,
        workers: Workers,
        random_state: int = 0,
        by_core: bool = True,
    ) -> None:
        self.ranked, self.run, self.workers = ranked, run, workers
        self.random_state = random_state
        self.quantum = ranked.quantum
        self.blur = _lost_quanta(ranked, self.quantum)
        # Every loss is a multiple of the unit, unless rounding to quanta blurs it.
        is_clear = unit and (self.blur == 0 or unit > 2 * len(ranked.prices) * self.quantum)
        self.unit = unit if is_clear else None
        self.must_cover_all = ranked.left_out_budget == 0
        self.proof = Proof(cheap_box(ranked, math.inf))
        self.queue: list[tuple[float, int]] = []
        self.statistics: dict[str, Any] = {"ascent_rounds": 0, "dives": 0, "dive_nodes": 0, "splits": 0}
        self.dive_gap = _DIVE_GAP
        self.n_idle = 0
        self.by_core = by_core and self.must_cover_all and ranked.prices.dtype == np.uint8
        self.core: CoreSearch | None = None
        self.walk_at = 0.0  # work of the core after which walkers move again
        self.began = time.perf_counter()
        self.core_seconds, self.walk_seconds = 0.0, 0.0  # how long the core has worked, and walkers
        self.beside_seconds = 0.0  # of walkers, between steps of the core
        self.found_at = 0.0  # seconds of walkers until the best solution was found
        self.climbed: list[tuple[float, float]] = []  # seconds without the core, and what the root's shares proved then
        self.work = 0.0  # numbers that ascents and dives have looked at
        self.n_taken = 0  # boxes that are done with: what the node limit counts

    def search(self, start: Levels | None = None) -> tuple[Levels, str]:
        """Search until the proof is complete or a limit is reached: (levels, status)."""
        self.walkers = [NeighbourhoodSearch(self.ranked, start, self.random_state, run=self.run)]
        self.levels, self.loss = self.walkers[0].best_levels.copy(), self.walkers[0].best_loss
        root = self.proof.leaves[0]
        self._prove_by_one_positive(root)
        self._record()
        for k in range(1, _WALKERS):
            if self._status() is None:  # from nothing: a good start may also be a trap
                self.walkers.append(NeighbourhoodSearch(self.ranked, None, self.random_state + k))
        for _ in range(4):
            if self._status() is None:
                self._walk(_FIRST_MOVES // 4)
        if self._status() is None:
            self.proof.cut_off(self.loss, cheap_box(self.ranked, self.loss))
            self._push(root)
            if self.by_core:
                self.core = CoreSearch(
                    self.ranked, self.proof, self.workers, self.run.is_out_of_time, self.run.seconds_left
                )
        while self.queue and self._status() is None:
            self._take(self.proof.leaves[heapq.heappop(self.queue)[1]])
            self.n_taken += 1
            self._record()
            self._turn_to_core(False)
        status = self._status() or "optimal"
        self._take_better_proof()
        self.statistics["leaves"] = len(self.proof.leaves)
        self.statistics["shares"] = sum(len(shares.quanta) for shares, _ in self.proof.share_sets())
        return self.levels, status

    def _take_better_proof(self) -> None:
        """The proof by hard positives replaces that by shares, if it proves more."""
        if self.core is None:
            return
        self.statistics |= {"core": len(self.core.core), "core_bound": self.core.bound, "core_nodes": self.core.n_nodes}
        if self.core.bound > self.proof.bound():
            self.proof = self.core.proof()  # type: ignore[assignment]  # what is asked of it now, both can do

    def _status(self) -> str | None:
        return self.run.stop_reason()

    def _record(self) -> None:
        n_nodes = len(self.proof.splits) + self._n_dive_nodes() + (self.core.n_nodes if self.core else 0)
        self.run.record(self.loss, min(self.loss, self._bound()), n_nodes, n_limited=self.n_taken)

    def _bound(self) -> float:
        """What shares prove, or the core, if that is more."""
        return max(self.proof.bound(), self.core.bound if self.core else 0)

    def _n_dive_nodes(self) -> int:
        return int(self.statistics["dive_nodes"])

    def _is_closed(self, bound: float) -> bool:
        """Whether a box with this bound holds nothing that is worth looking for."""
        return bound >= self.loss - self._margin() / 2

    def _margin(self) -> float:
        """The least improvement that is worth looking for."""
        if self.unit is not None:
            return max(float(self.unit), _INEXACT * self.loss if self.ranked.is_rounded else 0.0)
        return 2 * len(self.ranked.prices) * self.quantum + _INEXACT * self.loss

    def _settled(self) -> float:
        """The bound of a box in which nothing is left that is worth looking for."""
        margin = self._margin()
        if self.unit is not None:
            return self.loss if margin == self.unit else self.loss - margin
        return max(0.0, self.loss - margin - len(self.ranked.prices) * self.quantum)

    def _push(self, leaf: Leaf) -> None:
        if not self._is_closed(leaf.bound):
            heapq.heappush(self.queue, (leaf.bound, leaf.node))

    # Solutions

    def _walk(self, n_moves: int) -> None:
        """All walkers make some moves; the best solution of any is kept."""

        def work(first: int, last: int) -> None:
            for walker in self.walkers[first:last]:
                walker.step(n_moves)

        began = time.perf_counter()
        self.workers.chunks(work, len(self.walkers), 1)
        self.walk_seconds += time.perf_counter() - began
        best = min(self.walkers, key=lambda walker: walker.best_loss)
        self.n_idle += 1
        if best.best_loss < self.loss:
            self._adopt(best.best_levels)

    def _n_moves(self) -> int:
        """Moves until the next round: more where the gap is wide, fewer where walkers have long found nothing."""
        if self.n_idle >= _IDLE_ROUNDS:
            return _FEW_MOVES
        return _MANY_MOVES if relative_gap(self.loss, self._bound()) > _WIDE_GAP else _MOVES

    def _adopt(self, levels: Levels) -> None:
        """Take over a solution if it is better than the best so far."""
        loss = loss_of_levels(self.ranked, levels)
        if loss < self.loss:
            self.levels, self.loss, self.n_idle = levels.astype(np.int32), loss, 0
            self.found_at = self.walk_seconds
            self._record()

    def _try(self, levels: Levels) -> None:
        """Take over levels if they cover enough and are better than the best so far."""
        covered = (self.ranked.delta[self.ranked.coverable] <= levels).any(axis=1)
        left_out = self.ranked.positive_weights[self.ranked.coverable][~covered].sum()
        if left_out <= self.ranked.left_out_budget:
            self._adopt(levels)

    # Bounds

    def _prove_by_one_positive(self, root: Leaf) -> None:
        """The simplest shares: all prices belong to the most difficult positive."""
        ranked = self.ranked
        if self.must_cover_all and len(ranked.coverable):
            hardest = ranked.coverable[ranked.difficulty[ranked.coverable].argmax()]
            root.owner = int(hardest)
            difficulty = float(ranked.difficulty[hardest])
            # Prices count in whole quanta, rounded down, and sums of others than counts are rounded as well.
            blur = 0.0 if self.unit is not None else len(ranked.prices) * self.quantum
            root.bound = self._possible_loss(max(0.0, difficulty - blur - ranked.rounding_slack(difficulty)))

    def _take(self, leaf: Leaf) -> None:
        """Improve the bound of a leaf; search or split what that does not settle."""
        self._try(leaf.box.lowest)
        reduced = reduce(self.ranked, leaf.box)
        ascent = Ascent(reduced, self.quantum, self.workers)
        if leaf.node == 0 and self._dive_without_shares(leaf, ascent):
            self._record()
            return
        if leaf.shares is None:
            ascent.begin(self.ranked.order)
        else:
            ascent.begin_from(leaf.shares)
        evaluation = self._climb(leaf, ascent)
        self._record()
        if evaluation is None or self._status() is not None or self._is_closed(leaf.bound):
            return
        if self.must_cover_all:
            self._branch(leaf, ascent, evaluation)
        else:
            self._halve(leaf, ascent, evaluation)
        self._record()

    def _dive_without_shares(self, root: Leaf, ascent: Ascent) -> bool:
        """Search the whole problem by prices alone, as Algorithm 1 does; whether that has settled it."""
        if not self.must_cover_all or _PLAIN_WORK == 0:
            return False
        before = root.shares, root.price, root.owner
        nothing = ascent.evaluate()
        root.shares, root.price, root.owner = ascent.shares(nothing), 0.0, -1
        if self._dive(Dive(self.ranked, root, ascent, nothing, self.quantum), _PLAIN_WORK):
            return True
        root.shares, root.price, root.owner = before
        return False

    def _climb(self, leaf: Leaf, ascent: Ascent) -> Evaluation | None:
        """Rounds of ascent, until the leaf is closed, more rounds bring little, or a limit is reached.

        Returns what the shares of the leaf prove, or None where a search between two rounds has settled the box.
        """
        paid = self._paid(leaf.box)
        is_root = leaf.node == 0
        n_iterations, bounds, is_better, work = _ROUND, [], False, 0.0
        next_dive = _EARLY_WORK
        best: tuple[float, Evaluation, float] | None = None
        while True:
            ascent.iterate(n_iterations, self.run.is_out_of_time)
            work += n_iterations * ascent.work
            self.work += n_iterations * ascent.work
            evaluation = ascent.evaluate()
            value, price = self._value(ascent.problem, evaluation)
            self.statistics["ascent_rounds"] += 1
            if best is None or value > best[0]:
                best = (value, evaluation, price)
                ascent.keep()
                bound = self._possible_loss(paid + value)
                is_better |= bound >= leaf.bound  # else the leaf keeps the shares that it came with
                if is_better:
                    leaf.bound = bound
                    self._record()
                    if work >= next_dive and self._may_dive(leaf, is_root):
                        leaf.shares, leaf.price, leaf.owner = ascent.shares(evaluation), price, -1
                        dive = Dive(self.ranked, leaf, ascent, evaluation, self.quantum)
                        if self._dive(dive, min(_DIVE_WORK, _EARLY_DIVES[not is_root] * work)):
                            return None
                        next_dive = 2 * work
            bounds.append(best[0])
            if self._is_closed(leaf.bound) or self._status() is not None:
                break
            self._walk(self._n_moves())
            self._turn_to_core(is_root)
            if self._is_closed(leaf.bound) or self._status() is not None:
                break
            lag, enough = 1, _PROGRESS * (self.loss - paid - best[0])
            if is_root:
                lag, enough = _PATIENCE, min(enough, _LEAST_PROGRESS * self.loss) * n_iterations / _ROUND
            if len(bounds) > lag and bounds[-1] - bounds[-1 - lag] < enough:
                break
            if not is_root and len(bounds) >= _NODE_ROUNDS:
                break
            n_found = ascent.grow(self.ranked.order, len(bounds) % _TIDY_ROUNDS == 0)
            if n_found < FEW_FOUND * len(ascent.row):  # better shares are then a matter of patience
                n_iterations = min(_MAX_ROUND, 2 * n_iterations)
        if not is_better:  # what follows has to rest on the shares that prove the bound
            if leaf.owner >= 0:
                leaf.shares, leaf.owner = self._shares_of(leaf.owner), -1
            assert leaf.shares is not None
            return ascent.begin_from(leaf.shares)
        ascent.go_back()
        leaf.shares, leaf.price, leaf.owner = ascent.shares(best[1]), best[2], -1
        return best[1]

    def _turn_to_core(self, is_root: bool) -> None:
        """Let the search of a few hard positives catch up: it gets more of the time where it proves more."""
        core = self.core
        by_clock = self.run.node_limit is None and math.isfinite(self.run.seconds_left())
        if is_root and by_clock:
            self.climbed.append((self._other_seconds(), self.proof.bound()))
        while core is not None and not core.is_over and self._status() is None:
            is_ahead = core.bound > self.proof.bound()
            is_early = is_root and not (is_ahead and self._root_is_beaten(core.bound, by_clock))
            is_promising = is_ahead or (by_clock and self._catches_up(core, is_root))
            share = (_CORE_AHEAD if is_promising else _CORE_BEHIND)[not is_early]
            # A limit on boxes stands for a time that does not depend on clocks.
            if self.run.node_limit is not None:
                share = min(share, _CORE_BETWEEN_BOXES)
            if not by_clock:
                core_time, other_time = _CORE_PACE * core.work, self.work
            else:
                core_time, other_time = self.core_seconds, self._other_seconds()
            if core_time >= share * other_time:
                break
            began = time.perf_counter()
            levels = core.step(self.loss)
            self.core_seconds += time.perf_counter() - began
            if levels is not None:
                self._adopt(levels)
            if is_ahead or by_clock:
                self._walk_beside(core, by_clock)
            self._record()

    def _other_seconds(self) -> float:
        """All but what the core has worked."""
        return time.perf_counter() - self.began - self.core_seconds

    def _catches_up(self, core: CoreSearch, is_root: bool) -> bool:
        """Whether shares prove little, and the core will soon prove more, by what its targets took, or is on trial."""
        shares = self._root_may_prove() if is_root else self.proof.bound()
        if shares > _CORE_FAR * self.loss:  # shares that get so far often get to the end
            return False
        if not core.has_pace():
            return self.core_seconds <= _CORE_TRIAL * self.run.seconds_left()
        seconds = core.work_until(self.proof.bound() + 1) * self.core_seconds / max(core.work, 1.0)
        return seconds <= _CORE_CATCHES_UP * self.run.seconds_left()

    def _root_is_beaten(self, bound: float, by_clock: bool) -> bool:
        """Whether the root's shares are not expected to prove as much as `bound`."""
        return bound > _CORE_FAR * self.loss or (by_clock and self._root_may_prove() < bound)

    def _root_may_prove(self) -> float:
        """What the root's shares would prove in the seconds left at the pace of the second half of their time.

        Gains only become smaller, so they will prove less.
        """
        if len(self.climbed) < 2:
            return math.inf
        seconds, proved = self.climbed[-1]
        earlier = [entry for entry in self.climbed if entry[0] <= seconds / 2]
        since, before = earlier[-1] if earlier else self.climbed[0]
        if seconds <= since:
            return math.inf
        return proved + (proved - before) / (seconds - since) * self.run.seconds_left()

    def _walk_beside(self, core: CoreSearch, by_clock: bool) -> None:
        """Let walkers have their part of the time that the core has had."""
        if not by_clock and core.work >= self.walk_at:
            self._walk(_FEW_MOVES)
            self.walk_at = core.work + _CORE_WORDS * self.ranked.order.size
        while by_clock and self._status() is None:
            may_find = self.n_idle < _IDLE_ROUNDS or self.walk_seconds < _LONG * self.found_at
            if self.beside_seconds >= (_CORE_WALKS_MOST if may_find else _CORE_WALKS_LEAST) * self.core_seconds:
                break
            before = self.walk_seconds
            self._walk(_FEW_MOVES)
            self.beside_seconds += self.walk_seconds - before

    def _shares_of(self, owner: int) -> Shares:
        """All prices that may matter to one positive, given to it."""
        levels = np.where(self.ranked.delta[owner] <= len(self.ranked.prices), self.ranked.delta[owner], 0)
        rows = zip(self.ranked.order, levels, strict=True)
        negatives = np.unique(np.concatenate([row[:level] for row, level in rows]))
        quanta = np.floor(self.ranked.prices[negatives] / self.quantum)
        return Shares(np.array([owner]), np.array([0, len(negatives)]), negatives, quanta)

    def _value(self, reduced: ReducedProblem, evaluation: Evaluation) -> tuple[float, float]:
        """What evaluated shares prove on top of what is paid, and the price of leaving out that this needs."""
        if self.must_cover_all:
            return float(evaluation.values.sum()) * self.quantum, 0.0
        units, values = reduced.weights, evaluation.values
        by_ratio = np.argsort(-values / units, kind="stable")
        last = int(np.searchsorted(np.cumsum(units[by_ratio]), reduced.left_out_budget, side="right"))
        if last == len(by_ratio):
            return 0.0, 0.0
        is_dead = np.isinf(values)
        if is_dead[by_ratio[last]]:  # more than the budget has to be left out: any price is right, if it is high enough
            excess = float(units[is_dead].sum()) - reduced.left_out_budget
            price = 2 * (self.loss + 1) / self.quantum / excess
        else:
            price = float(values[by_ratio[last]] / units[by_ratio[last]])
        charges = np.minimum(np.floor(price * units * (1 - 2**-50)), values)
        bound = float(charges.sum()) - math.ceil(price * reduced.left_out_budget * (1 + 2**-50)) - 2
        return max(0.0, bound) * self.quantum, price * self.quantum

    def _paid(self, box: Box) -> float:
        """Price of what the lowest levels accept, in whole quanta."""
        accepted = np.zeros(len(self.ranked.prices), dtype=bool)
        for row, level in zip(self.ranked.order, box.lowest, strict=True):
            accepted[row[:level]] = True
        return float(np.floor(self.ranked.prices[accepted] / self.quantum).sum()) * self.quantum

    def _possible_loss(self, bound: float) -> float:
        """The least loss that is not below a bound: losses are multiples of the unit."""
        if self.unit is None or not math.isfinite(bound):
            return bound
        return float(math.ceil(Fraction(bound) / self.unit) * self.unit)

    # Branching

    def _branch(self, leaf: Leaf, ascent: Ascent, evaluation: Evaluation) -> None:
        """Search the box depth first where that promises to be short, else split it by a difficult positive."""
        dive = Dive(self.ranked, leaf, ascent, evaluation, self.quantum)
        gap = relative_gap(self.loss, leaf.bound)
        if gap <= self.dive_gap:
            if self._dive(dive, _DIVE_WORK):
                self.dive_gap = max(self.dive_gap, 1.3 * gap)
                return
            self.dive_gap = min(self.dive_gap, 0.9 * gap)
            dive = Dive(self.ranked, leaf, ascent, evaluation, self.quantum)
        branching = dive.best_branching((self.loss - self._margin()) / self.quantum)
        if branching is None:  # every positive can be covered for nothing: what is paid is the best of the box
            self._adopt_all(leaf)
            leaf.bound = self._settled()
            return
        self.statistics["splits"] += 1
        for exemplar, level, bound in zip(
            branching.exemplars.tolist(), branching.levels.tolist(), branching.bounds.tolist(), strict=True
        ):
            opened, leaf = self.proof.split(leaf, exemplar, level)
            opened.bound = max(opened.bound, self._possible_loss(bound * self.quantum))
            self._push(opened)
        leaf.bound = self._settled()
        leaf.owner = branching.positive

    def _may_dive(self, leaf: Leaf, is_root: bool) -> bool:
        """Whether a search between two rounds of ascent has a chance."""
        if not self.must_cover_all or self._is_closed(leaf.bound):
            return False
        return is_root or relative_gap(self.loss, leaf.bound) <= self.dive_gap

    def _dive(self, dive: Dive, budget: float) -> bool:
        """Search a box depth first; whether it finished within the budget, and with that settled the box."""
        best = self.loss / self.quantum
        # Losses in whole quanta are rounded down, so one that is better by a margin may look less so.
        margin = self._margin() / self.quantum - self.blur
        is_finished, found, levels, n_nodes = dive.search(best, margin, budget)
        self.work += budget
        self.statistics["dives"] += 1
        self.statistics["dive_nodes"] += n_nodes
        if found < best:
            self._adopt(levels.astype(np.int32))
        if is_finished:
            dive.enter(self.proof, self._settled())
        return is_finished

    def _adopt_all(self, leaf: Leaf) -> None:
        """Cover every positive of a box by levels that add nothing to what its lowest levels accept."""
        search = NeighbourhoodSearch(self.ranked, leaf.box.lowest, lowest=leaf.box.lowest, highest=leaf.box.highest)
        self._adopt(search.best_levels)

    def _halve(self, leaf: Leaf, ascent: Ascent, evaluation: Evaluation) -> None:
        """Split a box in two, at the exemplar and level whose halves promise the largest rise of the bound."""
        reach = ascent.problem.reach
        if len(ascent.problem.prices) == 0:  # all that is alive is free, and as good as what is paid
            self._try(np.maximum(leaf.box.lowest, reach.max(axis=0, initial=0).astype(np.int32)))
            leaf.bound = self._settled()
            return
        split = _promising_split(self.ranked, ascent, evaluation)
        self.statistics["splits"] += 1
        for child in self.proof.split(leaf, *split):
            self._push(child)


def _promising_split(ranked: RankedProblem, ascent: Ascent, evaluation: Evaluation) -> tuple[int, int]:
    """Open, all of a level is paid for instead of the part that the fractional choice needs; shut, whoever chose the
    exemplar at that level or above has to go elsewhere, at a cost that is guessed by what they are worth."""
    problem = ascent.problem
    choice = ascent.mean_choice[:, :-1]
    needed = np.zeros(len(problem.prices), dtype=np.float32)
    np.maximum.at(needed, ascent.row, np.minimum(ascent.load, 1))
    missing = problem.prices * (1 - needed)
    values = np.where(np.isfinite(evaluation.values), evaluation.values, 0)
    values = values + 1e-3 * values.mean() + 1e-9
    best, split = -1.0, (-1, -1)
    for j in range(problem.reach.shape[1]):
        users = np.flatnonzero(problem.reach[:, j] > 0)
        if len(users) == 0:
            continue
        users = users[np.argsort(-problem.reach[users, j].astype(np.int64), kind="stable")]
        levels = problem.reach[users, j].astype(np.int64)
        shut = np.cumsum((choice[users, j] + 1e-6) * values[users])
        rows = problem.row_of[ranked.order[j, : levels[0]]]
        opened = np.concatenate([[0.0], np.cumsum(np.where(rows >= 0, missing[rows], 0))])[levels]
        score = np.minimum(shut, opened) + 1e-3 * (shut + opened)
        at = int(score.argmax())
        if score[at] > best:
            best, split = float(score[at]), (j, int(levels[at]))
    return split


def _lost_quanta(ranked: RankedProblem, quantum: float) -> int:
    """What the loss of any solution loses at most, where prices are rounded down to whole quanta."""
    quanta = ranked.prices.astype(np.float64) / quantum
    lost = float((quanta - np.floor(quanta)).sum())
    return 0 if lost == 0 else min(len(quanta), math.ceil(lost) + 1)  # the sum itself is rounded, by far less than 1
