"""
Why independent calibration loses under the maximum
===================================================

Two detectors, one decision: a window is accepted when either scores it above its own threshold. If each threshold is
set by looking at its own detector alone, both accept what only one of them needs to accept. Choosing them together
lets each be strict about what the other covers.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Polygon

from eesvm import CalibrationProblem, solve

random = np.random.default_rng(0)
negatives = random.normal(0, 1, (800, 2))
kind_a = random.normal((4.0, 0.2), (0.5, 0.7), (40, 2))  # objects that the first detector knows
kind_b = random.normal((0.2, 4.0), (0.7, 0.5), (40, 2))  # objects that the second one knows
between = np.linspace(0, 1, 30)[:, None]  # and objects between the two, which both know more or less
both = (1 - between) * (3.2, 0.9) + between * (0.9, 3.2) + random.normal(0, 0.15, (30, 2))
positives = np.concatenate([kind_a, kind_b, both])
problem = CalibrationProblem(positives, negatives)

# %%
# *Independently*: each detector is to accept its own objects and those that both know. The threshold of each sits under
# the lowest of them, as if the other did not exist. *Jointly*: `solve`.

own = {0: np.concatenate([kind_a, both])[:, 0], 1: np.concatenate([kind_b, both])[:, 1]}
independent = np.array([np.nextafter(own[j].min(), -np.inf) for j in range(2)])
joint = solve(problem).thresholds
for name, thresholds in (("independently", independent), ("jointly", joint)):
    print(f"{name:14} recall {problem.recall(thresholds):.2f}, false positives {problem.loss(thresholds):.0f}")

# %%
# The same positives are accepted. What is saved are negatives that one detector accepted for objects which the other
# one covers anyway.

figure, axes = plt.subplots(1, 2, figsize=(10, 5), sharex=True, sharey=True)
for each, name, thresholds in zip(axes, ("independently", "jointly"), (independent, joint), strict=True):
    x, y = thresholds
    corners = [(x, -5), (9, -5), (9, 9), (-5, 9), (-5, y), (x, y)]
    each.add_patch(Polygon(corners, color="C1", alpha=0.12, lw=0))
    each.plot([x, x, -5], [-5, y, y], color="C1", lw=2)
    accepted = problem.accepts(thresholds)
    each.plot(*negatives[~accepted].T, ".", color="0.75", ms=4, label="negative")
    each.plot(*negatives[accepted].T, "x", color="C1", ms=6, label="accepted negative")
    each.plot(*positives.T, ".", color="C0", ms=8, label="positive")
    each.set(xlim=(-3.4, 5.4), ylim=(-3.4, 5.4), xlabel="score of the first detector", aspect="equal")
    each.set_title(f"{name}: {accepted.sum()} false positives")
axes[0].set_ylabel("score of the second detector")
axes[1].legend(loc="lower left", frameon=True)
plt.show()
