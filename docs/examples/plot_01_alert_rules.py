"""
Alert rules: a recall floor, the fewest false alarms, and a proof
=================================================================

Thirty measurements, each with a limit; an alarm is raised when *any* of them is above its limit. That is an OR of
thirty detectors, and the limits are what has to be found: catch at least 97 % of the known positives, with the fewest
false alarms. The rules could as well be fraud checks or guardrails around a language model.

The numbers are real: scikit-learn's breast cancer data, 30 measurements of 569 samples. They serve as a table of
scores here and say nothing about medicine.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from eesvm import CalibrationProblem, solve, verify

data = load_breast_cancer()
scores = (data.data - np.median(data.data, axis=0)) / data.data.std(axis=0)  # one unit for the picture; no need for it
is_positive = data.target == 0  # malignant
is_training = np.random.default_rng(0).permutation(len(scores)) < len(scores) // 2

positives, negatives = scores[is_training & is_positive], scores[is_training & ~is_positive]
problem = CalibrationProblem(positives, negatives)
problem

# %%
# One call finds all limits together. The lower bound says that no others do better on these rows.

FLOOR = 0.97
result = solve(problem, min_recall=FLOOR)
print(f"{result.loss:.0f} false alarms, at least {result.lower_bound:.0f} are unavoidable: {result.status}")
print(f"recall {result.recall:.3f}, {result.active.sum()} of {len(data.feature_names)} rules are in use")

# %%
# Nobody has to believe the solver: the certificate is checked by the scores alone.

verify(problem, result)

# %%
# What people do without it: the same quantile of the negatives for every rule, as strict as the floor allows; or the
# one measurement that does best alone.


def same_quantile() -> np.ndarray:
    for quantile in np.linspace(1, 0, 4001):
        limits = np.quantile(negatives, quantile, axis=0)
        if problem.recall(limits) >= FLOOR:
            return limits
    raise AssertionError("the lowest limits accept everything")


def best_single_rule() -> np.ndarray:
    lowest = np.nextafter(np.quantile(positives, 1 - FLOOR, axis=0, method="lower"), -np.inf)
    return min((np.where(np.arange(30) == j, lowest, np.inf) for j in range(30)), key=problem.loss)


ways = {"one rule": best_single_rule(), "same\nquantile": same_quantile(), "jointly": result.thresholds}
for name, limits in ways.items():
    print(f"{' '.join(name.split()):14} recall {problem.recall(limits):.3f}, false alarms {problem.loss(limits):3.0f}")

# %%
# And on the half of the samples that nothing was fitted to? Thirty limits adapt to the known positives better than one
# does, so recall falls a little more. The remedy is a higher floor.

ways["jointly,\n99 %"] = solve(problem, min_recall=0.99).thresholds

rest, rest_positive = scores[~is_training], is_positive[~is_training]
outcomes = {name: (rest > limits).any(axis=1) for name, limits in ways.items()}

figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.6), width_ratios=(1.7, 1))
busiest = np.argsort(-np.bincount(result.assignment[result.assignment >= 0], minlength=30))[:10]
for line, rule in enumerate(busiest):
    left.plot(negatives[:, rule], np.full(len(negatives), line + 0.15), "|", color="0.6", ms=7)
    left.plot(positives[:, rule], np.full(len(positives), line - 0.15), "|", color="C0", ms=7)
    left.plot([result.thresholds[rule]] * 2, [line - 0.4, line + 0.4], color="C1", lw=2.5)
left.set_yticks(range(10), data.feature_names[busiest])
left.invert_yaxis()
left.set_xlabel("standard deviations from the median")
left.set_title("The ten busiest rules: positives (blue), negatives (grey), limit")

names = list(ways)
right.bar(names, [outcomes[name][~rest_positive].sum() for name in names], color=["0.7", "0.7", "C1", "C1"], width=0.6)
for place, name in enumerate(names):
    count, recall = outcomes[name][~rest_positive].sum(), outcomes[name][rest_positive].mean()
    right.annotate(f"{count}\nrecall {100 * recall:.0f} %", (place, count), ha="center", va="bottom", fontsize=8)
right.margins(x=0.08, y=0.2)
right.set_title(f"False alarms, {(~rest_positive).sum()} new negatives")
plt.show()
