"""
Windows and their recall
========================

A detector classifies windows; what no window overlaps cannot be found. Selective search proposes some hundred per
image. Their order matters: here the first ones represent the rest, and a hundred of them find about what two hundred
do in a random order.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from eesvm.boxes import iou
from eesvm.datasets.scenes import make_scenes
from eesvm.structures import Windows
from eesvm.windows.proposals import propose_dataset, window_recall

scenes = make_scenes(n_train=0, n_test=12)
windows = list(propose_dataset(scenes, n_jobs=1, mode="fast"))
recall = window_recall(scenes, windows)
print(f"{recall.windows_per_image:.0f} windows per image, {recall.total.n_instances} objects")
print(f"recall at IoU 0.5: {recall.total.recall[0]:.1%}, at IoU 0.7: {recall.total.recall[1]:.1%}")

# %%
# How many windows are enough? The same windows in the package's order, and in a random one.

budgets = np.array([5, 10, 20, 50, 100, 200, 500])
random = np.random.default_rng(0)


def first(budget: int, shuffled: bool) -> list[Windows]:
    orders = [random.permutation(len(each)) if shuffled else np.arange(len(each)) for each in windows]
    return [each[order[:budget]] for each, order in zip(windows, orders, strict=True)]


def recalls(shuffled: bool) -> np.ndarray:
    return np.array([window_recall(scenes, first(int(n), shuffled)).total.recall for n in budgets])


ordered, shuffled = recalls(False), np.mean([recalls(True) for _ in range(5)], axis=0)

# %%
# On the left the best window for each object of a scene, with its IoU.

figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), width_ratios=(1.2, 1))
record, found = scenes[1], windows[1]
left.imshow(record.read())
for x1, y1, x2, y2 in found.boxes[:30]:
    left.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, ec="white", lw=0.6, alpha=0.6))
for instance in record.instances:
    overlaps = iou(found.boxes, instance.box[None])[:, 0]
    x1, y1, x2, y2 = found.boxes[overlaps.argmax()]
    left.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, ec="#E69F00", lw=2.2))
    left.annotate(f"{overlaps.max():.2f}", (x1 + 3, y1 + 3), va="top", color="#E69F00", weight="bold")
left.set_axis_off()
left.set_title("The first 30 windows (white), the best for each object (orange)")
for column, threshold in enumerate((0.5, 0.7)):
    right.plot(budgets, 100 * ordered[:, column], "o-", color=f"C{column}", label=f"IoU {threshold}, in this order")
    right.plot(budgets, 100 * shuffled[:, column], "o--", color=f"C{column}", ms=3, label=f"IoU {threshold}, at random")
right.set_xscale("log")
right.set_xticks(budgets, budgets)
right.minorticks_off()
right.set(xlabel="windows per image", ylabel="recall, %", ylim=(0, 103), title="How many windows are enough")
right.legend(loc="lower right")
plt.show()
