"""
A small detector, and which training object won
===============================================

From annotated scenes to detections that name the training object they resemble. HOG and few windows make this quick
rather than good; the defaults (a network, more windows) are better and take minutes.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from eesvm import ExemplarDetector
from eesvm.boxes import iou
from eesvm.datasets import select
from eesvm.datasets.scenes import make_scenes
from eesvm.detector.options import DetectorOptions
from eesvm.metrics import evaluate_detections

scenes = make_scenes(n_train=24, n_test=8, classes=("three", "eight"))
train, test = select(scenes, split="train"), select(scenes, split="test")
options = DetectorOptions.make(
    changes={
        "windows.mode": "single",
        "descriptor.name": "hog",
        "descriptor.n_components": None,
        "calibration.method": "greedy",
        "n_jobs": 1,
    }
)
detector = ExemplarDetector(options).fit(train)
print({model.class_name: model.n_exemplars for model in detector.models_})

# %%
# Every detection has a box, a class, a score, and the number of the exemplar that won it.

found = detector.predict(test)
report = evaluate_detections(test, found, protocol="voc10")
print(report.to_markdown())

# %%
# The best detections, and beside each the training object it looks like. Green where the class is right, orange where
# there is no object of that class.

pairs = [(record, one) for record, all_found in zip(test, found, strict=True) for one in all_found.top(2)]
pairs.sort(key=lambda pair: -pair[1].score)


def is_right(record, box, class_name: str) -> bool:
    own = [instance.box for instance in record.instances if instance.class_name == class_name]
    return bool(len(own) and iou(box[None], np.array(own)).max() >= 0.5)


figure, axes = plt.subplots(3, 8, figsize=(11, 4.6), width_ratios=(2, 1) * 4)
for each in axes.flat:
    each.set_axis_off()
for place, (record, one) in enumerate(pairs[:12]):
    left, right = axes[place // 4, 2 * (place % 4)], axes[place // 4, 2 * (place % 4) + 1]
    x1, y1, x2, y2 = one.box
    colour = "#009E73" if is_right(record, one.box, one.class_name) else "#D55E00"
    left.imshow(record.read())
    left.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, ec=colour, lw=2.5))
    left.set_title(f"{one.class_name} {one.score:.2f}", fontsize=9, loc="left")
    exemplar = detector.exemplars_[one.exemplar]
    right.imshow(exemplar.picture)
    right.set_title("looks like", fontsize=8, color="0.4")
plt.show()
