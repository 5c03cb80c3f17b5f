"""Lanes: the exemplars that can cover a positive, numbered among themselves.

A positive has as many lanes as exemplars that it can afford in a box, so that a word of bits says of 64 of them which
need a negative.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from eesvm._support.compile import kernel

# Pairs of a positive and an exemplar that may cover it: bits of the negatives that are accepted with it, and the
# row of each pair in these, -1 where it has none. (M, W) (K, E)
Pairs = namedtuple("Pairs", "bits row")
# Lanes of each positive: its exemplars, how many, and the lane of each exemplar, -1 for none. (K, L) (K,) (K, E)
Lanes = namedtuple("Lanes", "exemplar n place")


@kernel()
def number_lanes(high: Any, is_covered: Any, n_lanes: Any) -> Any:
    """Lanes for all pairs that are affordable, `n_lanes` of a positive at most; who has more of them has none."""
    n_positives, n_exemplars = high.shape
    lanes = Lanes(
        np.zeros((n_positives, n_lanes), dtype=np.int32),
        np.zeros(n_positives, dtype=np.int64),
        np.full((n_positives, n_exemplars), -1, dtype=np.int32),
    )
    for q in range(n_positives):
        n_alive = 0
        for j in range(n_exemplars):
            n_alive += high[q, j] > 0
        if is_covered[q] or n_alive > n_lanes:
            continue
        n = 0
        for j in range(n_exemplars):
            if high[q, j] > 0:
                lanes.exemplar[q, n], lanes.place[q, j] = j, n
                n += 1
        lanes.n[q] = n
    return lanes
