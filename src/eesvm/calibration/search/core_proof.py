"""A proof by hard positives: a tree of splits, each leaf of which is closed by what one positive costs there.

In: the story of a finished search of the core. Out: the `Certificate`, in terms of scores; it needs no shares, since at
each leaf all prices belong to one positive, or its checker has to search it again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.certificate import SEARCHED, Certificate
from eesvm.calibration.problem import CalibrationProblem
from eesvm.calibration.ranks import RankedProblem
from eesvm.calibration.search import core_kernels as kernels
from eesvm.calibration.search.ascent import Shares
from eesvm.calibration.search.proof import ScoresOfLevels, ceiling_of


class CoreProof:
    """What `Proof` is to shares."""

    def __init__(
        self,
        story: NDArray[np.uint32],
        core: NDArray[np.intp],
        reach: NDArray[np.int32],
        bound: float,
        cutoff: float,
        highest: NDArray[np.int32],
    ) -> None:
        self.story, self.core, self.reach = story, core, reach
        self.cutoff, self.highest, self._bound = cutoff, highest, float(bound)
        self.n_splits = int(np.count_nonzero(((story & 0xFFFF) != 0) & (story != kernels.UNTOLD)))

    def bound(self) -> float:
        return self._bound

    def share_sets(self) -> list[tuple[Shares, float]]:
        return []

    @property
    def leaves(self) -> range:
        return range(self.n_splits + 1)

    def certificate(
        self,
        problem: CalibrationProblem,
        ranked: RankedProblem,
        min_recall: float,
        quantum: float,
        detector_price: float = 0.0,
    ) -> Certificate:
        """The proof in terms of scores, windows and exemplars."""
        n_nodes = 2 * self.n_splits + 1
        positive, exemplar, open_child, shut_child = (np.empty(n_nodes, dtype=np.int32) for _ in range(4))
        kernels.unfold(self.story, positive, exemplar, open_child, shut_child)
        is_searched = exemplar == -2
        exemplar[is_searched] = -1
        owner = np.where(exemplar < 0, -2 - self.core[positive], -1).astype(np.int32)
        return Certificate(
            min_recall=min_recall,
            cutoff=self._bound + ranked.fixed_loss,  # a checker need not look at what costs more
            ceiling=ceiling_of(problem, ranked, self.cutoff, self.highest),
            split_exemplar=exemplar,
            split_score=self._scores(problem, ranked, positive, exemplar),
            open_child=open_child,
            shut_child=shut_child,
            shares_of=np.where(is_searched, np.int32(SEARCHED), owner),
            set_start=np.zeros(1, dtype=np.int64),
            share_positive=np.empty(0, dtype=np.int32),
            row_start=np.zeros(1, dtype=np.int64),
            share_negative=np.empty(0, dtype=np.int32),
            share_amount=np.empty(0, dtype=np.int64),
            price=np.empty(0),
            quantum=quantum,
            detector_price=detector_price,
            weight_cap=ranked.cap,
            hard=np.sort(self.core).astype(np.int32) if is_searched.any() else np.empty(0, dtype=np.int32),
        )

    def _scores(
        self,
        problem: CalibrationProblem,
        ranked: RankedProblem,
        positive: NDArray[np.int32],
        exemplar: NDArray[np.int32],
    ) -> NDArray[np.float64]:
        """(M,) the score of each split, 0 at leaves."""
        highest_score = ScoresOfLevels(problem, ranked)
        is_split = exemplar >= 0
        pairs, which = np.unique(positive[is_split].astype(np.int64) << 16 | exemplar[is_split], return_inverse=True)
        of_pair = [
            highest_score(int(j), int(self.reach[p, j])) for p, j in zip(pairs >> 16, pairs & 0xFFFF, strict=True)
        ]
        scores = np.zeros(len(exemplar))
        scores[is_split] = np.array(of_pair, dtype=np.float64)[which]
        return scores
