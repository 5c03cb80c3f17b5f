"""Shares at a node of a search, made anew from those of a node above it.

In: pairs, which of them are affordable at the node, who is covered there and which negatives are free. Out: a
`Sharing`, which nodes below begin with. Most positives can afford few exemplars; a few that can afford many more do
without lanes, and so without shares, unless it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eesvm.calibration.sharing.ascent import improve
from eesvm.calibration.sharing.entries import Entries, inherit, no_entries
from eesvm.calibration.sharing.lanes import Lanes, Pairs, number_lanes

_MANY_LANES = 0.9  # of the positives have fewer lanes than the others, which do without: rounded up to whole words
_LANES_LOST = 0.05  # of the positives: so many more may have none before lanes are numbered anew
_SWEEPS = 8  # in each round of ascent
_KEEPS = np.float32(0.5)  # regrets are worth so much less below
_ENOUGH = 0.02  # by how much a bound of floats is more than needed, so that one of whole units is


@dataclass(eq=False)
class Sharing:
    """Shares, and what positives choose: (K, L)."""

    lanes: Lanes
    choice: NDArray[np.float32]
    regret: NDArray[np.float32]
    entries: Entries


def nothing_shared(high: NDArray[np.int32], n_words: int) -> Sharing:
    """What a root begins with: no shares, and positives that choose nothing yet. high (K, E) is > 0 for all pairs."""
    lanes = number_lanes(high, np.ones(len(high), dtype=bool), 64)
    choice, regret = (np.zeros(lanes.exemplar.shape, dtype=np.float32) for _ in range(2))
    return Sharing(lanes, choice, regret, no_entries(np.zeros(n_words, dtype=np.uint64), 1))


def share_out(
    pairs: Pairs,
    above: Sharing,
    free: NDArray[np.uint64],
    is_covered: NDArray[np.bool_],
    high: NDArray[np.int32],
    needed: float,
    rounds: int,
    grow: tuple[int, int],
    all_have_lanes: bool = False,
) -> tuple[Sharing, float]:
    """Shares that prove `needed` or as much as `rounds` of ascent find; and work, in words.

    high (K, E) is > 0 where a pair is affordable. Entries that are missing are looked for first and then every so many
    rounds, as `grow` says.
    """
    lanes = _lanes(high, is_covered, above.lanes, all_have_lanes)
    is_same = lanes is above.lanes
    choice, regret = _inherited(above, lanes, is_same, high)
    entries = inherit(pairs, above.entries, free, is_covered, above.lanes, lanes, is_same, _KEEPS)
    if len(above.entries.negative) == 0:
        entries = no_entries(free, lanes.exemplar.shape[1] // 64)
    entries, _, work = improve(
        pairs, lanes, entries, free, is_covered, high, choice, regret, needed + _ENOUGH, rounds, _SWEEPS, *grow
    )
    return Sharing(lanes, choice, regret, entries), float(work)


def _lanes(high: NDArray[np.int32], is_covered: NDArray[np.bool_], lanes: Lanes, all_have_lanes: bool) -> Lanes:
    """Lanes for what is affordable: those of the node above, unless some are missing or half of them are idle."""
    n_alive = (high[~is_covered] > 0).sum(axis=1)
    most = int(n_alive.max() if all_have_lanes else np.quantile(n_alive, _MANY_LANES, method="higher"))
    n_lanes = 64 * max(1, -(-most // 64))
    few_have_lanes = len(high) != len(lanes.n) or (lanes.n[~is_covered] > 0).mean() < _MANY_LANES - _LANES_LOST
    if few_have_lanes or n_lanes <= lanes.exemplar.shape[1] // 2:
        return number_lanes(high, is_covered, n_lanes)
    is_missing = ((high > 0) & (lanes.place < 0)).any(axis=1) & ~is_covered
    if not all_have_lanes:
        is_missing &= lanes.n > 0
    return number_lanes(high, is_covered, n_lanes) if is_missing.any() else lanes


def _inherited(
    above: Sharing, lanes: Lanes, is_same: bool, high: NDArray[np.int32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Choice and regrets of the node above, in lanes as they are now; who chose nothing alive takes the cheapest."""
    if is_same:
        choice, regret = above.choice.copy(), above.regret * _KEEPS
    else:
        choice, regret = (np.zeros(lanes.exemplar.shape, dtype=np.float32) for _ in range(2))
        n = len(above.lanes.n)  # positives that came later have none
        old = np.take_along_axis(above.lanes.place, lanes.exemplar[:n].astype(np.int64), axis=1)
        is_known = (old >= 0) & (np.arange(lanes.exemplar.shape[1]) < lanes.n[:n, None])
        old = np.where(is_known, old, 0)
        choice[:n] = np.where(is_known, np.take_along_axis(above.choice, old, axis=1), 0)
        regret[:n] = np.where(is_known, np.take_along_axis(above.regret, old, axis=1) * _KEEPS, 0)
    price = np.take_along_axis(high, lanes.exemplar.astype(np.int64), axis=1)
    is_alive = (price > 0) & (np.arange(price.shape[1]) < lanes.n[:, None])
    choice[~is_alive] = 0
    total = choice.sum(axis=1, keepdims=True)
    cheapest = np.where(is_alive, price, np.iinfo(np.int32).max).argmin(axis=1)
    is_lost = (total[:, 0] <= 0) & is_alive.any(axis=1)
    choice[is_lost, cheapest[is_lost]] = 1
    return np.divide(choice, total, out=choice, where=total > 0), regret
