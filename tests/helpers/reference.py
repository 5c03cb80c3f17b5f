"""Slow, obvious versions of what the package computes fast. They share no code with it."""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.special import expit


def accepted_by(scores, threshold):
    """Indices of the windows that one exemplar accepts."""
    return frozenset(i for i, score in enumerate(scores) if score > threshold)


def loss(problem, thresholds):
    """The loss by three loops."""
    total = 0.0
    for n, row in enumerate(problem.negative_scores):
        if any(score > threshold for score, threshold in zip(row, thresholds, strict=True)):
            total += problem.negative_weights[n]
    return total


def covered(problem, thresholds):
    """For each positive, whether some exemplar accepts it by a pair that is not forbidden."""
    result = []
    for p, row in enumerate(problem.positive_scores):
        allowed = [True] * len(row) if problem.forbidden is None else ~problem.forbidden[p]
        result.append(any(s > t and ok for s, t, ok in zip(row, thresholds, allowed, strict=True)))
    return np.array(result)


def left_out_allowance(problem, min_recall):
    """Weight of positives that may stay uncovered."""
    total = float(problem.positive_weights.sum())
    return (1 - min_recall) * total + 1e-12 * total


def combinations(problem):
    """(positives covered, negatives accepted) of all thresholds that the bounds allow, each once."""
    choices = []
    for j in range(problem.positive_scores.shape[1]):
        positives, negatives = problem.positive_scores[:, j], problem.negative_scores[:, j]
        options = set()
        lower, upper = problem.lower_thresholds[j], problem.upper_thresholds[j]
        for threshold in [-np.inf, np.inf, lower, upper, *positives, *negatives]:
            if not lower <= threshold <= upper:
                continue
            wins = accepted_by(positives, threshold)
            if problem.forbidden is not None:
                wins = frozenset(p for p in wins if not problem.forbidden[p, j])
            options.add((wins, accepted_by(negatives, threshold)))
        choices.append(options)
    reached = {(frozenset(), frozenset())}
    for options in choices:
        reached = {(wins | more, false | others) for wins, false in reached for more, others in options}
    return reached


def brute_force(problem, min_recall=1.0):
    """The least loss over all thresholds, or None where no thresholds are feasible.

    A threshold matters only through what it accepts, so each exemplar tries every score of its column (and -inf, +inf,
    and its bounds), as far as the bounds allow.
    """
    best, allowance = None, left_out_allowance(problem, min_recall)
    weights, prices = problem.positive_weights.tolist(), problem.negative_weights.tolist()
    for wins, false in combinations(problem):
        missed = sum(w for p, w in enumerate(weights) if p not in wins)
        if missed <= allowance:
            cost = sum(prices[n] for n in false)
            best = cost if best is None else min(best, cost)
    return best


def precision(problem, thresholds):
    """Weight of the covered positives in the weight of all that is accepted; 1 where that is nothing."""
    won = sum(w for w, is_won in zip(problem.positive_weights, covered(problem, thresholds), strict=True) if is_won)
    return won / (won + loss(problem, thresholds)) if won + loss(problem, thresholds) else 1.0


def best_recall(problem, max_loss=None, min_precision=None):
    """The most weight that thresholds within a budget, or at a precision, can cover; None where there are none."""
    best = None
    weights, prices = problem.positive_weights.tolist(), problem.negative_weights.tolist()
    for wins, false in combinations(problem):
        gained = sum(weights[p] for p in wins)
        paid = sum(prices[n] for n in false)
        if max_loss is not None:
            is_allowed = paid <= max_loss * (1 + 1e-12)
        else:
            is_allowed = paid * min_precision <= gained * (1 - min_precision) + 1e-11
        if is_allowed:
            best = gained if best is None else max(best, gained)
    return best


def mixed_integer_program(problem, min_recall=1.0):
    """The least loss by a compact integer program, or None where it is infeasible.

    x[j, k]: exemplar j accepts exactly what scores at least the k-th highest value of its positives, or its threshold is
    at the upper bound; y[n]: negative n is accepted; z[p]: positive p is left out.
    """
    n_positives, n_exemplars = problem.positive_scores.shape
    n_negatives = len(problem.negative_scores)
    pairs = [
        (j, value)
        for j in range(n_exemplars)
        for value in sorted(set(problem.positive_scores[:, j].tolist()))
        if value > problem.lower_thresholds[j]
    ]
    n_x = len(pairs)
    n_variables = n_x + n_negatives + n_positives
    objective = np.concatenate([np.zeros(n_x), problem.negative_weights, np.zeros(n_positives)])
    rows, lower, upper = [], [], []

    def add(entries, low, high):
        row = np.zeros(n_variables)
        for column, value in entries:
            row[column] += value
        rows.append(row)
        lower.append(low)
        upper.append(high)

    for j in range(n_exemplars):  # at most one level each
        add([(k, 1) for k, (owner, _) in enumerate(pairs) if owner == j], 0, 1)
    for k, (j, value) in enumerate(pairs):  # a level accepts its negatives
        for n in range(n_negatives):
            if problem.negative_scores[n, j] >= value:
                add([(n_x + n, 1), (k, -1)], 0, np.inf)
    for n in range(n_negatives):  # what scores above an upper threshold is accepted
        if any(s > t for s, t in zip(problem.negative_scores[n], problem.upper_thresholds, strict=True)):
            add([(n_x + n, 1)], 1, 1)
    for p in range(n_positives):  # covered or left out
        if any(
            problem.positive_scores[p, j] > problem.upper_thresholds[j]
            and (problem.forbidden is None or not problem.forbidden[p, j])
            for j in range(n_exemplars)
        ):
            continue
        entries = [
            (k, 1)
            for k, (j, value) in enumerate(pairs)
            if problem.positive_scores[p, j] >= value and (problem.forbidden is None or not problem.forbidden[p, j])
        ]
        add([*entries, (n_x + n_negatives + p, 1)], 1, np.inf)
    budget = left_out_allowance(problem, min_recall) if min_recall < 1 else 0
    add([(n_x + n_negatives + p, w) for p, w in enumerate(problem.positive_weights)], 0, budget)
    outcome = milp(
        objective,
        constraints=LinearConstraint(np.array(rows), lower, upper),
        integrality=np.ones(n_variables),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0},
    )
    return None if outcome.status == 2 else outcome.fun


def candidate_thresholds(positives, negatives):
    """Section 4.1 read aloud: walk down the sorted scores, a candidate wherever a positive is followed by a negative.

    A negative that ties with a positive comes before it. Returns (lowest accepted, highest rejected) pairs; the second
    is None where nothing is below, the first is None for the threshold above everything.
    """
    events = sorted([(s, 1, "+") for s in positives] + [(s, 0, "-") for s in negatives], key=lambda e: (-e[0], e[1]))
    pairs = [(None, None)] if events[0][2] == "-" else []
    for (score, _, sign), following in zip(events, [*events[1:], None], strict=True):
        if sign == "+" and (following is None or following[2] == "-"):
            pairs.append((score, None if following is None else following[0]))
    return pairs


def squared_error(slope, centre, positives, negatives):
    """The criterion "least_squares" of a sigmoid: mean squared error + 1e-6 slope^2."""
    errors = np.append(1.0 - expit(slope * (positives - centre)), expit(slope * (negatives - centre)))
    return float(np.mean(errors**2) + 1e-6 * slope**2)


def log_loss(slope, centre, positives, negatives):
    """The criterion "platt": total cross-entropy to Platt's targets (N+ + 1) / (N+ + 2) and 1 / (N- + 2)."""
    total = 0.0
    targets = ((len(positives) + 1) / (len(positives) + 2), 1 / (len(negatives) + 2))
    for scores, target in zip((positives, negatives), targets, strict=True):
        arguments = slope * (scores - centre)
        total += float(np.sum(np.logaddexp(0.0, arguments) - target * arguments))
    return total
