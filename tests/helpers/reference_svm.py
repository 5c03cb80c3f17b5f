"""Slow, obvious linear SVMs in float64. They share no code with the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.optimize import lsq_linear
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

INSTANCES = Path(__file__).resolve().parents[3] / "shared" / "instances"  # outside the repository


def loss_of(shortfall, squared):
    shortfall = np.maximum(shortfall, 0)
    return shortfall**2 if squared else shortfall


def objective(weights, bias, positive, negatives, C, positive_weight=1.0, squared=False, multiplier=1.0, prior=None):
    """The criterion of one exemplar, term by term; `negatives` are those that count for it."""
    prior_weights, prior_bias = (np.zeros(len(positive)), 0.0) if prior is None else prior
    own = weights.astype(np.float64) - prior_weights
    own_bias = float(bias) - prior_bias
    penalty = own @ own / 2 + ((own_bias / multiplier) ** 2 / 2 if multiplier else 0.0)
    weights = weights.astype(np.float64)
    cost = C * positive_weight * loss_of(1 - (positive.astype(np.float64) @ weights + bias), squared)
    return penalty + cost + C * loss_of(1 + negatives.astype(np.float64) @ weights + bias, squared).sum()


def liblinear(positive, negatives, C, positive_weight=1.0, squared=False, multiplier=1.0):
    """(weights, bias) by scikit-learn, to a tolerance of 1e-6."""
    X = np.concatenate([positive[None], negatives]).astype(np.float64)
    svm = LinearSVC(
        C=C,
        loss="squared_hinge" if squared else "hinge",
        class_weight={1: positive_weight, 0: 1.0},
        intercept_scaling=multiplier,
        tol=1e-6,
        max_iter=1_000_000,
        random_state=0,
    ).fit(X, np.arange(len(X)) == 0)
    return svm.coef_[0], svm.intercept_[0]


def coordinate_descent(positive, negatives, C, positive_weight=1.0, squared=False, multiplier=1.0, prior=None, n=3000):
    """(weights, bias) by dual coordinate descent over all rows, one at a time, `n` times."""
    prior_weights, prior_bias = (np.zeros(len(positive)), 0.0) if prior is None else prior
    y = np.array([1.0] + [-1.0] * len(negatives))
    X = np.concatenate([positive[None], negatives]).astype(np.float64)
    targets = 1 - y * (X @ prior_weights + prior_bias)
    X = np.concatenate([X, np.full((len(X), 1), multiplier)], axis=1)
    costs = np.array([C * positive_weight] + [C] * len(negatives))
    caps, diagonal = (np.full(len(X), np.inf), 1 / (2 * costs)) if squared else (costs, np.zeros(len(X)))
    w, duals = np.zeros(X.shape[1]), [0.0] * len(X)
    steps = [max(x @ x + added, 1e-12) for x, added in zip(X, diagonal, strict=True)]
    rows = list(zip(X, y.tolist(), targets.tolist(), diagonal.tolist(), caps.tolist(), steps, strict=True))
    for _ in range(n):
        largest = 0.0
        for i, (x, sign, target, added, cap, step) in enumerate(rows):
            slope = target - sign * (w @ x) - added * duals[i]
            moved = min(max(duals[i] + slope / step, 0.0), cap)
            if moved != duals[i]:
                w += (moved - duals[i]) * sign * x
            largest = max(largest, abs(moved - duals[i]))
            duals[i] = moved
        if largest < 1e-12:
            break
    return w[:-1] + prior_weights, w[-1] * multiplier + prior_bias


def worst_violation(weights, bias, positive, negatives, duals_of):
    """How far an exemplar is from its optimality conditions, given its duals (own, of the negatives) and caps."""
    own, others, own_cap, cap, own_diagonal, diagonal = duals_of
    slopes = np.append(
        1 + negatives.astype(np.float64) @ weights + bias - diagonal * others,
        1 - positive.astype(np.float64) @ weights - bias - own_diagonal * own,
    )
    values, caps = np.append(others, own), np.append(np.full(len(others), cap), own_cap)
    return max(
        (max(s, 0) if v <= 0 else max(-s, 0) if v >= c else abs(s))
        for s, v, c in zip(slopes, values, caps, strict=True)
    )


def relu_features(n_exemplars, n_negatives, n_dimensions, seed=0):
    """Rows like the last layer of a network: not negative, of low rank with noise, of mean length 20."""
    random = np.random.default_rng(seed)
    base = random.standard_normal((16, n_dimensions))
    z = random.standard_normal((n_exemplars + n_negatives, 16))
    rows = np.maximum(0, z @ base / 4 + 0.5 * random.standard_normal((len(z), n_dimensions)) - 0.3) + 0.01
    rows = (rows * (20 / np.linalg.norm(rows, axis=1).mean())).astype(np.float32)
    return rows[:n_exemplars], rows[n_exemplars:]


def optimality_error(
    weights, bias, positive, negatives, C, positive_weight=1.0, squared=False, multiplier=1.0, tol=1e-3
):
    """How far the weights are from a sum of rows as optimality asks for, found from weights and rows alone.

    A row that misses its margin by s counts with its cost (hinge) or twice its cost times s (squared hinge), one inside
    its margin not at all. An error of `tol` in s leaves an interval for each; the best choice within them is compared
    with the weights. Returned in units of the margin: the distance times the length of the longest row.
    """
    y = np.array([1.0] + [-1.0] * len(negatives))
    X = np.concatenate([positive[None], negatives]).astype(np.float64)
    X = np.concatenate([X, np.full((len(X), 1), multiplier)], axis=1)
    w = np.append(weights.astype(np.float64), float(bias) / multiplier)
    costs = np.array([C * positive_weight] + [C] * len(negatives))
    s = 1 - y * (X @ w)
    least, most = ((2 * costs * np.maximum(e, 0) if squared else costs * (e > 0)) for e in (s - tol, s + tol))
    rows, width = y[:, None] * X, most - least
    is_open = width > 0
    left = w - least @ rows
    if is_open.any():
        columns = (width[:, None] * rows)[is_open].T
        with threadpool_limits(1):  # many small steps, which threads only disturb
            q, r = np.linalg.qr(columns)
            left = left - columns @ lsq_linear(r, left @ q, (0, 1)).x
    return np.linalg.norm(left) * np.linalg.norm(X, axis=1).max()
