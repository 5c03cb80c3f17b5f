"""Random problems with everything that may be asked for, and an oracle that tries every cut of every exemplar.

In: a seed. Out: a sentence for everything that is wrong about the answers of `solve`; none where all is well. The oracle
knows nothing of the package but the arrays of a `CalibrationProblem`; it compares losses as exact fractions.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from eesvm import CalibrationProblem, InputError, solve, verify

NEAR = 1e-9  # of a number: what float64 sums and recall tolerances may blur; nearer ones are compared exactly or not at all
METHODS = ("algorithm1", "exhaustive", "greedy")


def run_case(seed):
    """(how many solves, what is wrong) with one random problem."""
    random = np.random.default_rng(seed)
    problem = random_problem(random)
    oracle = Oracle(problem)
    wrong = []
    n_solves = 0
    others = other_floors(np.random.default_rng([seed, 1]))
    for question in [*random_questions(random, problem), *others]:
        n_solves += 1
        try:
            wrong += [f"{question}: {fault}" for fault in faults(problem, oracle, question)]
        except Exception as error:
            wrong.append(f"{question}: {type(error).__name__}: {error}")
    return n_solves, [f"seed {seed}: {fault}" for fault in wrong]


# Problems


def random_problem(random):
    """2 to 4 exemplars, up to 8 positives and 12 negatives."""
    n_exemplars, n_positives, n_negatives = random.integers(2, 5), random.integers(1, 9), random.integers(1, 13)
    dtype = random.choice([np.float32, np.float64])
    scores = _scores(random, (n_positives + n_negatives, n_exemplars), dtype)
    missing = random.random() < 0.2
    if missing:
        scores[random.random(scores.shape) < 0.15] = np.nan
    lower, upper = _bounds(random, scores, dtype)
    return CalibrationProblem(
        scores[:n_positives],
        scores[n_positives:],
        positive_weights=_maybe(random, 0.3, lambda: _positive_weights(random, n_positives)),
        negative_weights=_maybe(random, 0.7, lambda: negative_weights(random, n_negatives)),
        forbidden=_maybe(random, 0.3, lambda: random.random((n_positives, n_exemplars)) < 0.3),
        lower_thresholds=lower,
        upper_thresholds=upper,
        missing="not-fired" if missing else "refuse",
        detector_cost=_maybe(random, 0.25, lambda: negative_weights(random, n_exemplars)),
    )


def _maybe(random, chance, make):
    return make() if random.random() < chance else None


def _scores(random, shape, dtype):
    """On a coarse grid, with ties and duplicates, or all different; huge, tiny, or as they come."""
    scores = random.integers(-4, 5, shape) / 2 if random.random() < 0.5 else random.normal(size=shape)
    if random.random() < 0.3:
        scores[:, -1] = scores[:, 0]
    if random.random() < 0.3:
        scores[random.integers(len(scores))] = scores[random.integers(len(scores))]
    scales = [1.0, 1.0, 1.0, 1e-30, 1e30, np.finfo(dtype).max / 8, np.finfo(dtype).tiny, np.finfo(dtype).tiny * 1e-3]
    offset = random.choice([0.0, 0.0, 0.0, 1000.0])
    return (scores * random.choice(scales) + offset).astype(dtype)


def _bounds(random, scores, dtype):
    if random.random() < 0.6:
        return None, None
    n_exemplars = scores.shape[1]
    lower, upper = np.full(n_exemplars, -np.inf), np.full(n_exemplars, np.inf)
    for j in range(n_exemplars):
        column = scores[:, j][np.isfinite(scores[:, j])].astype(np.float64)
        if len(column) == 0:
            continue
        first, second = np.sort([random.choice(column) / 2 + random.choice(column) / 2, random.choice(column)])
        kind = random.integers(6)
        if kind == 0:
            lower[j] = first
        elif kind == 1:
            upper[j] = second
        elif kind == 2:
            lower[j] = upper[j] = random.choice([first, second, np.inf])
        elif kind == 3:
            lower[j], upper[j] = first, second
    return lower, upper


def _positive_weights(random, n):
    kind = random.integers(4)
    if kind == 0:
        return random.integers(1, 5, n) / 4
    if kind == 1:
        return random.random(n) + 0.01
    return random.integers(1, 8, n).astype(float) if kind == 2 else np.exp(3 * random.normal(size=n))


def negative_weights(random, n):
    """Counts, quarters, tenths, real numbers, and numbers that float64 cannot add up."""
    tiny = 5e-324
    kinds = [
        lambda: random.integers(0, 6, n).astype(float),
        lambda: random.integers(0, 12, n) / 4,
        lambda: random.integers(0, 12, n) * 0.1,
        lambda: random.random(n),
        lambda: np.exp(random.normal(size=n)),
        lambda: np.exp(8 * random.normal(size=n)),
        lambda: 10 ** random.uniform(-300, 300, n),
        lambda: random.choice([0.0, 1e-300, 1.0, 1 + 2**-52, 1e300], n),
        lambda: np.where(random.random(n) < 0.3, 1e20, random.integers(1, 6, n)),  # never accept these
        lambda: np.where(random.random(n) < 0.3, 1e12, random.random(n)),
        lambda: random.integers(0, 6, n) * tiny,
        lambda: random.random(n) * 1e-310,
        lambda: np.where(random.random(n) < 0.5, tiny, 1e300 * random.random(n)),
        lambda: random.integers(2**51, 2**53, n).astype(float),
        lambda: random.random(n) * 1e306,
        lambda: np.zeros(n),
    ]
    return kinds[random.integers(len(kinds))]()


# Questions


def random_questions(random, problem):
    """Options of `solve`: always one for the exact search, often others on the same problem."""
    floor = float(random.choice([1.0, 1.0, 1.0, 0.9, 0.75, 0.5, 0.3]))
    questions = [{"min_recall": floor, "random_state": int(random.integers(100))}]
    if random.random() < 0.5:
        questions.append({"min_recall": floor, "method": str(random.choice(METHODS))})
    if random.random() < 0.2:
        questions.append({"min_recall": floor, "max_detectors": int(random.integers(1, problem.n_exemplars + 1))})
    if random.random() < 0.2:
        questions.append({"min_recall": floor, "node_limit": int(random.integers(1, 4))})
    total = float(problem.negative_weights.sum() + problem.detector_cost.sum())
    if random.random() < 0.2:
        share = float(random.choice([0.0, 0.1, 0.3, 0.5, 1.0]))
        questions.append({"max_loss": total * share})
    if random.random() < 0.1 and not problem.detector_cost.any():
        questions.append({"min_precision": float(random.choice([0.1, 0.3, 0.5, 0.8, 1.0]))})
    if random.random() < 0.1:
        limit = int(random.integers(1, problem.n_exemplars + 1))
        questions.append({"max_loss": total * float(random.random()), "max_detectors": limit})
    return questions


def other_floors(random):
    """Options of three more exact searches: the oracle of a problem answers them, too."""
    floors = random.choice([1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.2], 3, replace=False)
    return [{"min_recall": float(floor), "random_state": int(random.integers(100))} for floor in floors]


# The oracle


@dataclass(frozen=True)
class Choices:
    """All combinations of cuts: bit masks of the positives covered, the negatives accepted, the exemplars in use."""

    covered: np.ndarray
    accepted: np.ndarray
    in_use: np.ndarray


class Oracle:
    """What is possible, by trying everything."""

    def __init__(self, problem):
        self.problem = problem
        self.choices = _all_choices(problem)
        self.exact_weights = [Fraction(w) for w in problem.negative_weights.tolist()]
        self.exact_costs = [Fraction(c) for c in problem.detector_cost.tolist()]
        self.losses = (
            _sums(problem.negative_weights)[self.choices.accepted] + _sums(problem.detector_cost)[self.choices.in_use]
        )
        self.recalls = _sums(problem.positive_weights)[self.choices.covered] / problem.positive_weights.sum()

    def least_loss(self, min_recall, max_detectors=None):
        """The least loss, an exact fraction, at recalls that are certainly, and at recalls that are possibly enough."""
        return tuple(
            self._least(self.recalls >= min_recall + blur, max_detectors) for blur in (NEAR * (min_recall < 1), -NEAR)
        )

    def _least(self, is_enough, max_detectors):
        possible = np.flatnonzero(is_enough & self._keeps_limit(max_detectors))
        if len(possible) == 0:
            return None
        losses = self.losses[possible]
        near = possible[losses <= losses.min() * (1 + NEAR)]
        keys = np.unique(self.choices.accepted[near] | self.choices.in_use[near] << 16)
        return min(self.exact_loss(int(key) & 0xFFFF, int(key) >> 16) for key in keys)

    def exact_loss(self, accepted, in_use):
        total = sum((w for n, w in enumerate(self.exact_weights) if accepted >> n & 1), Fraction(0))
        return total + sum((c for j, c in enumerate(self.exact_costs) if in_use >> j & 1), Fraction(0))

    def most_recall(self, max_loss=None, min_precision=None, max_detectors=None):
        """The most recall at losses that are certainly, and that are possibly allowed; None where none is."""
        covered = self.recalls * self.problem.positive_weights.sum()
        found = []
        for blur in (-NEAR, NEAR):
            if max_loss is not None:
                is_allowed = self.losses <= max_loss * (1 + blur)
            else:
                is_allowed = self.losses * min_precision <= covered * (1 - min_precision) * (1 + blur)
            recalls = self.recalls[is_allowed & self._keeps_limit(max_detectors)]
            found.append(float(recalls.max()) if len(recalls) else None)
        return tuple(found)

    def _keeps_limit(self, max_detectors):
        if max_detectors is None:
            return np.ones(len(self.losses), dtype=bool)
        return _sums(np.ones(self.problem.n_exemplars))[self.choices.in_use] <= max_detectors


def _all_choices(problem):
    keys = np.zeros(1, dtype=np.int64)  # 16 bits for each of the three
    for j in range(problem.n_exemplars):
        cuts = np.array([covered | accepted << 16 | in_use << 32 for covered, accepted, in_use in _cuts(problem, j)])
        keys = np.unique(keys[:, None] | cuts)
    return Choices(keys & 0xFFFF, keys >> 16 & 0xFFFF, keys >> 32)


def _cuts(problem, j):
    """(covered, accepted, in use) of exemplar j at every threshold that the bounds allow."""
    positives, negatives = problem.positive_scores[:, j], problem.negative_scores[:, j]
    lower, upper = problem.lower_thresholds[j], problem.upper_thresholds[j]
    cuts = set()
    for threshold in [-np.inf, np.inf, lower, upper, *positives, *negatives]:
        if lower <= threshold <= upper:
            covers = positives > threshold
            if problem.forbidden is not None:
                covers = covers & ~problem.forbidden[:, j]
            cuts.add((_mask(covers), _mask(negatives > threshold), int(threshold < np.inf) << j))
    return cuts


def _mask(flags):
    return sum(1 << int(i) for i in np.flatnonzero(flags))


def _sums(weights):
    """(2 ** n,) the sum of the weights in every bit mask."""
    sums = np.zeros(1)
    for weight in weights:
        sums = np.concatenate([sums, sums + weight])
    return sums


# Judgement


def faults(problem, oracle, question):
    """Everything that is wrong with the answer to one question."""
    if "max_loss" in question or "min_precision" in question:
        return _recall_faults(problem, oracle, question)
    certainly, possibly = oracle.least_loss(question["min_recall"], question.get("max_detectors"))
    try:
        result = solve(problem, n_jobs=1, **question)
    except InputError as error:
        return [] if certainly is None or "max_detectors` must be" in str(error) else [f"refused: {error}"]
    found = [] if possibly is not None else ["solved, but there is no solution"]
    if possibly is None:
        return found
    found += _judge(problem, result)
    loss = _loss(problem, result)
    if Fraction(result.lower_bound) > (possibly if certainly is None else certainly):
        found.append(f"the lower bound {result.lower_bound!r} is above the optimum {float(possibly)!r}")
    if loss < possibly:
        found.append(f"the loss {result.loss!r} is below the optimum {float(possibly)!r}")
    must_be_optimal = result.status == "optimal" or (result.method != "greedy" and "node_limit" not in question)
    if must_be_optimal and certainly is not None and loss > certainly * (1 + Fraction(NEAR)):
        found.append(f"the loss {result.loss!r} is above the optimum {float(certainly)!r}, status {result.status}")
    is_provable = question["min_recall"] == 1 or not 0 < result.loss < 1e-250  # else prices are too small for floats
    if result.method == "exact" and "node_limit" not in question and result.status != "optimal" and is_provable:
        found.append(f"the status is {result.status}, loss {result.loss!r}, lower bound {result.lower_bound!r}")
    return found


def _judge(problem, result):
    """What `verify` says, and whether the loss is the one that was meant."""
    verification = verify(problem, result)
    found = [p for p in verification.problems if result.certificate is not None or "no certificate" not in p]
    if verification.loss != result.loss:
        found.append(f"the loss is given as {result.loss!r}, verify says {verification.loss!r}")
    if result.loss != float(_loss(problem, result)):
        found.append(f"the loss is given as {result.loss!r}, but it is {float(_loss(problem, result))!r}")
    if result.certificate is not None and result.goal is None and result.lower_bound > verification.lower_bound:
        found.append(f"the bound is given as {result.lower_bound!r}, proven is {verification.lower_bound!r}")
    return found


def _loss(problem, result):
    thresholds = result.thresholds
    accepted = (problem.negative_scores > thresholds).any(axis=1)
    total = sum((Fraction(w) for w in problem.negative_weights[accepted].tolist()), Fraction(0))
    return total + sum((Fraction(c) for c in problem.detector_cost[thresholds < np.inf].tolist()), Fraction(0))


def _recall_faults(problem, oracle, question):
    certainly, possibly = oracle.most_recall(**question)
    try:
        result = solve(problem, n_jobs=1, **question)
    except InputError as error:
        if "max_detectors` must be" in str(error):
            return []
        return [] if certainly is None or certainly <= NEAR else [f"refused: {error}"]
    if possibly is None:
        return ["solved, but nothing is within the budget"]
    found = _judge(problem, result)
    if result.recall > possibly * (1 + NEAR):
        found.append(f"the recall {result.recall!r} is above the most possible {possibly!r}")
    if certainly is not None and result.recall_bound < certainly * (1 - NEAR):
        found.append(f"the bound {result.recall_bound!r} is below the possible {certainly!r}")
    if certainly is not None and result.status == "optimal" and result.recall < certainly * (1 - NEAR):
        found.append(f"the recall {result.recall!r} is given as optimal, possible is {certainly!r}")
    return found
