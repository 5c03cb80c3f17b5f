"""
Comparing calibrators on windows that none of them has seen
===========================================================

Ninety detectors of a handwritten nine, one per training image, score all digits of a training and of a test half.
Every calibrator makes their scores comparable in its own way; then the highest decides. How good is the ranking of the
test windows?
"""

import matplotlib.pyplot as plt

from eesvm import AffineCalibrator, IsotonicCalibrator, JointCalibrator, SigmoidCalibrator, Uncalibrated
from eesvm.calibration.tables.examples import digit_score_table
from eesvm.metrics import average_precision, false_positives_at_recall, precision_recall_curve

example = digit_score_table(9)
train, test = example.train, example.test
print(f"{train.n_exemplars} detectors; {test.n_rows:,} test windows, {test.n_positives} of them show a nine")

# %%
# "Across images" forbids a detector to cover windows of the image that it was made from, which it knows by heart.

calibrators = {
    "none": Uncalibrated(),
    "isotonic": IsotonicCalibrator(),
    "sigmoid": SigmoidCalibrator(),
    "affine": AffineCalibrator(),
    "joint + sigmoid": JointCalibrator(sigmoid=True, time_limit=10),
    "joint + sigmoid,\nacross images": JointCalibrator(
        sigmoid=True, time_limit=10, exemplar_groups=train.exemplar_groups
    ),
}
scores = {}
for name, calibrator in calibrators.items():
    groups = {"groups": train.groups} if "across" in name else {}
    scores[name] = calibrator.fit(train.scores, train.labels, **groups).decision_function(test.scores)

# %%
# Curves of all, and the false positives that 95 % recall costs:

figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), width_ratios=(1.2, 1))
for place, (name, values) in enumerate(scores.items()):
    precision, recall, _ = precision_recall_curve(test.labels, values)
    area = 100 * average_precision(test.labels, values)
    style = {"lw": 2.5} if "joint" in name else {"lw": 1.2, "ls": "--"}
    left.plot(recall, precision, color=f"C{place}", label=f"{' '.join(name.split())} (AP {area:.0f})", **style)
    count = false_positives_at_recall(test.labels, values, 0.95)
    right.barh(name, count, color=f"C{place}")
    right.annotate(f" {count:.0f}", (count, place), va="center")
left.set(xlabel="recall", ylabel="precision", xlim=(0.4, 1), ylim=(0, 1.02), title="Precision and recall of windows")
left.legend(loc="lower left")
right.invert_yaxis()
right.margins(x=0.12)
right.set_title(f"False positives at 95 % recall, of {(test.labels == 0).sum():,}")
plt.show()
