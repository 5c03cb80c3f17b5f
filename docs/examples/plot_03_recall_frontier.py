"""
The recall frontier: what the last few positives cost
=====================================================

Must really *every* known positive be accepted? A few odd ones, some of them wrong labels perhaps, can cause most of
the false alarms. The recall frontier solves the same problem for several recall floors and shows what each would save,
with a lower bound for each.

The table is that of :doc:`plot_01_alert_rules`: thirty measurements, an alarm when any is above its limit.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from eesvm import CalibrationProblem, recall_frontier

data = load_breast_cancer()
positives, negatives = data.data[data.target == 0], data.data[data.target == 1]
problem = CalibrationProblem(positives, negatives)

floors = [1, 0.995, 0.99, 0.98, 0.97, 0.95, 0.93, 0.9]
frontier = recall_frontier(problem, floors, time_limit=2)
print(frontier.to_markdown())

# %%
# What a few hard positives cost, as a range where it is not proven:

for owed in frontier.share_of_loss_owed_to_hardest:
    print(f"the hardest {owed.share:.1%} of the positives: {owed.low:.0%} to {owed.high:.0%} of the false alarms")

# %%
# Which positives are they? Those that the thresholds of a floor leave out: worth a second look at their labels.

left_out = [np.flatnonzero(~problem.covers(thresholds)) for thresholds in frontier.thresholds]
print(f"left out at a floor of {floors[3]}: rows {left_out[3].tolist()} of the positives")

# %%

figure, axes = plt.subplots(figsize=(7.5, 4.2))
shares = 100 * (1 - frontier.floors)
axes.fill_between(shares, frontier.lower_bounds, frontier.losses, color="0.9")
axes.plot(shares, frontier.losses, "o-", color="C1", label="loss of the best thresholds found")
axes.plot(shares, frontier.lower_bounds, "o--", color="C0", ms=3, label="lower bound")
for share, loss, rows in zip(shares, frontier.losses, left_out, strict=True):
    note = f"{loss:.0f}" if not len(rows) else f"{loss:.0f}  ({len(rows)} left out)"
    axes.annotate(note, (share, loss), (6, 5), textcoords="offset points", fontsize=9)
axes.set(xlabel="positives that may be left out, %", ylabel=f"false alarms among {len(negatives)}", ylim=(0, None))
axes.margins(x=0.08)
axes.legend()
plt.show()
