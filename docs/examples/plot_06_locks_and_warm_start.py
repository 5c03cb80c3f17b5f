"""
A detector was added: locks, bounds and warm starts
===================================================

Thresholds live longer than one search. A detector joins; some of the others are fixed by an agreement and must stay;
and nobody wants to start from nothing. The table is that of :doc:`plot_01_alert_rules`.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from eesvm import CalibrationProblem, solve

data = load_breast_cancer()
names = [str(name) for name in data.feature_names]
scores = (data.data - np.median(data.data, axis=0)) / data.data.std(axis=0)
positives, negatives = scores[data.target == 0], scores[data.target == 1]
FLOOR = 0.95

# %%
# Last year there were the first 20 measurements only.

before = CalibrationProblem(positives[:, :20], negatives[:, :20])
old = dict(zip(names[:20], solve(before, min_recall=FLOOR, time_limit=3).thresholds, strict=True))

# %%
# Now there are ten more. Old thresholds are a start as they are; what is new starts switched off (+inf), and the search
# begins with a solution that is at least as good as the old one.

now = CalibrationProblem(positives, negatives)
start = np.array([old.get(name, np.inf) for name in names])
free = solve(now, min_recall=FLOOR, start=start, time_limit=3)

# %%
# If some limits may not move (they are printed in a manual, say), lock them: equal lower and upper bounds. A one-sided
# bound forbids a limit to become more tolerant than it was.

lower, upper = np.full(30, -np.inf), np.full(30, np.inf)
printed = [names.index(name) for name in ("mean radius", "mean texture", "mean concavity", "radius error")]
lower[printed] = upper[printed] = start[printed]
lower[:20] = np.maximum(lower[:20], start[:20] - 0.5)  # the others of last year: by half a unit at most
locked = CalibrationProblem(positives, negatives, lower_thresholds=lower, upper_thresholds=upper)
kept = solve(locked, min_recall=FLOOR, start=free.thresholds, time_limit=3)

ways = {
    "last year's limits": now.loss(start),
    "ten more rules,\nsome limits locked": kept.loss,
    "ten more rules,\nall free": free.loss,
}
for name, loss in ways.items():
    print(f"{' '.join(name.split()):40} {loss:3.0f} false alarms")

# %%

figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 6.2), width_ratios=(1.6, 1))
top = 6.0  # where limits that are switched off are drawn
for limits, marker, colour, name in (
    (start, "o", "0.6", "last year"),
    (kept.thresholds, "D", "C0", "now, some locked"),
    (free.thresholds, "^", "C1", "now, all free"),
):
    left.plot(np.minimum(limits, top), np.arange(30), marker, color=colour, ms=5, label=name)
left.plot(start[printed], printed, "s", ms=11, mfc="none", mec="k", label="locked")
left.axhspan(19.5, 29.5, color="0.95", zorder=0)
left.annotate("new", (5.1, 23.7), color="0.4")
left.set_yticks(range(30), names, fontsize=8)
left.set_xticks([0, 2, 4, top], ["0", "2", "4", "off"])
left.invert_yaxis()
left.set(xlabel="limit, in standard deviations from the median", title=f"Limits for a recall of {FLOOR:.0%}")
left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.09), ncols=4, fontsize=8)
right.bar(list(ways), list(ways.values()), color=["0.6", "C0", "C1"], width=0.6)
for place, loss in enumerate(ways.values()):
    right.annotate(f"{loss:.0f}", (place, loss), ha="center", va="bottom")
right.tick_params(axis="x", labelsize=8)
right.set_title(f"False alarms among {len(negatives)}")
plt.show()
