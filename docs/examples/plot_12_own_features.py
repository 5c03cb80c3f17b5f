"""
Own features: any array will do
===============================

Exemplars need rows of numbers, and do not ask where they come from: a network of yours, embeddings of texts or sounds.
Here they are the 64 pixels of handwritten digits. Every training image of a seven becomes a detector of its own,
thresholds are found jointly, and each test image that is accepted names the training image it looks like.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from eesvm import ExemplarSVMs, JointCalibrator, metrics

digits = load_digits()
features = digits.data - digits.data.mean(axis=0)
features *= 20 / np.linalg.norm(features, axis=1).mean()  # a mean length of 20, which C is made for
is_seven = digits.target == 7
random = np.random.default_rng(0).permutation(len(features))
train, calibration, test = np.array_split(random, 3)

# %%
# One linear SVM per seven of the training part, against everything else there.

exemplars = train[is_seven[train]]
svms = ExemplarSVMs.original().fit(features[exemplars], features[train[~is_seven[train]]])
print(f"{len(exemplars)} exemplars, largest duality gap {svms.gap_.max():.1e}")

# %%
# Calibration on images that no exemplar was trained on: who accepts what, so that no seven is missed?

calibrator = JointCalibrator(sigmoid=True).fit(svms.decision_function(features[calibration]), is_seven[calibration])
result = calibrator.result_
print(f"{result.loss:.0f} false positives, bound {result.lower_bound:.0f}; {result.active.sum()} exemplars are in use")

# %%
# And on the rest:

scores = svms.decision_function(features[test])
accepted, winner = calibrator.predict(scores), calibrator.assign(scores)
print(f"recall {metrics.recall_at(is_seven[test], accepted):.3f}", end=", ")
print(f"false positives {metrics.false_positives(is_seven[test], accepted):.0f} of {(~is_seven[test]).sum()}")

# %%
# Some accepted images and their winners. The orange ones are mistakes, and their winners show why they were made.

rows = np.flatnonzero(accepted)
mistakes = rows[~is_seven[test[rows]]][:4]
shown = np.concatenate([rows[is_seven[test[rows]]][: 12 - len(mistakes)], mistakes])
figure, axes = plt.subplots(2, 12, figsize=(11, 2.1))
for each in axes.flat:
    each.set(xticks=[], yticks=[])
for column, row in enumerate(shown):
    colour = "#009E73" if is_seven[test[row]] else "#D55E00"
    for each, image in zip(axes[:, column], (test[row], exemplars[winner[row]]), strict=True):
        each.imshow(digits.images[image], cmap="gray_r")
        each.spines[:].set(visible=True, color=colour, lw=2)
axes[0, 0].set_ylabel("accepted")
axes[1, 0].set_ylabel("looks like")
plt.show()
