"""
The gap closes over time
========================

A search for thresholds has two sides. *Loss*: the best thresholds so far and the negatives they accept. *Lower bound*:
what no thresholds can undercut, proven. A search may be stopped at any moment; the gap between the two says what
stopping costs at most. Here the same table is given to the solver of this package and to the paper's Algorithm 1.
"""

import matplotlib.pyplot as plt
import numpy as np

from eesvm import solve
from eesvm.calibration.tables.examples import synthetic_score_table

problem = synthetic_score_table(50, 800, 8000, "overlapping").problem()
results = {method: solve(problem, method=method, time_limit=6) for method in ("exact", "algorithm1")}
for method, result in results.items():
    print(f"{method:10} loss {result.loss:,.0f}, bound {result.lower_bound:,.0f}, gap {result.gap:.1%}")

# %%
# Both find good thresholds at once. The difference is the proof: Algorithm 1 bounds a subtree by the negatives it has
# paid for already, while the exact solver divides the price of every negative among the positives that need it.
#
# ``result.history`` holds a line whenever one of the two sides improved.

figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
for each, (method, result) in zip(axes, results.items(), strict=True):
    seconds, losses, bounds = np.array([*result.history, (result.seconds, result.loss, result.lower_bound)]).T
    each.fill_between(seconds, bounds, losses, step="post", color="0.9")
    each.step(seconds, losses, where="post", color="C1", marker="o", ms=3, label="loss of the best thresholds so far")
    each.step(seconds, bounds, where="post", color="C0", marker="o", ms=3, label="lower bound")
    each.set(title=f"{method}: {result.status}", xlabel="seconds", ylim=(0, None))
axes[0].set_ylabel("accepted negatives")
axes[1].legend(loc="center right")
plt.show()
