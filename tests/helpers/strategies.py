"""Hypothesis strategies: small calibration problems with plenty of ties."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eesvm import CalibrationProblem

RECALL_FLOORS = (1.0, 1.0, 0.9, 0.75, 0.5, 0.3)


@st.composite
def problems(draw, max_exemplars=4, max_positives=5, max_negatives=6, weights=True, forbidden=True, bounds=False):
    """Problems on a coarse grid of scores: ties, repeated rows and repeated columns come by themselves.

    With `bounds`, thresholds are bounded and locked at scores, half-way between them, and at the infinities.
    """
    n_exemplars = draw(st.integers(1, max_exemplars))
    n_positives = draw(st.integers(1, max_positives))
    n_negatives = draw(st.integers(1, max_negatives))
    span = draw(st.sampled_from([1, 3, 8]))
    table = draw(
        hnp.arrays(
            np.int8, (n_positives + n_negatives, n_exemplars), elements=st.integers(-span, span), fill=st.nothing()
        )
    )
    scores = table.astype(draw(st.sampled_from([np.float32, np.float64]))) / 2
    if draw(st.booleans()) and n_exemplars > 1:
        scores[:, -1] = scores[:, 0]
    if draw(st.booleans()) and n_negatives > 1:
        scores[-1] = scores[-2]
    lower, upper = draw(_bounds(n_exemplars, span)) if bounds else (None, None)
    return CalibrationProblem(
        scores[:n_positives],
        scores[n_positives:],
        positive_weights=draw(_weights(n_positives, minimum=1)) if weights else None,
        negative_weights=draw(_weights(n_negatives, minimum=0)) if weights else None,
        forbidden=draw(_masks((n_positives, n_exemplars))) if forbidden else None,
        lower_thresholds=lower,
        upper_thresholds=upper,
    )


def _weights(n, minimum):
    quarters = hnp.arrays(np.int8, n, elements=st.integers(minimum, 12), fill=st.nothing())
    return st.one_of(st.none(), quarters.map(lambda w: w / 4))


def _masks(shape):
    return st.one_of(st.none(), hnp.arrays(bool, shape, fill=st.nothing()))


def _bounds(n_exemplars, span):
    """(lower, upper) lists; scores are multiples of 1/2 up to span / 2, so multiples of 1/4 fall on and between them."""
    value = st.one_of(st.integers(-2 * span - 1, 2 * span + 1).map(lambda i: i / 4), st.sampled_from([-np.inf, np.inf]))
    free, lock = st.just((-np.inf, np.inf)), value.map(lambda v: (v, v))
    from_below, from_above = value.map(lambda v: (v, np.inf)), value.map(lambda v: (-np.inf, v))
    interval = st.tuples(value, value).map(sorted).map(tuple)
    pairs = st.lists(
        st.one_of(free, free, lock, from_below, from_above, interval), min_size=n_exemplars, max_size=n_exemplars
    )
    return pairs.map(lambda rows: tuple(zip(*rows, strict=True)))
