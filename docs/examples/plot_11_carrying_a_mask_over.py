"""
Carrying a mask over
====================

A detection of an ensemble of exemplars says which training object it looks like. What is known about that object can
be carried over: its outline, its parts, its labels. Here the masks of training objects land on objects that were never
outlined, once from the winner alone and once by a vote of five.
"""

import matplotlib.pyplot as plt
import numpy as np

from eesvm import ExemplarDetector
from eesvm.datasets import select
from eesvm.datasets.scenes import make_scenes
from eesvm.detector.consensus import with_consensus
from eesvm.detector.options import DetectorOptions
from eesvm.report.transfer_pictures import superimposed
from eesvm.transfer.detections import choose_detections, hand_on, measure_transfer
from eesvm.transfer.quality import matched_instances

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
found = detector.predict(test)

# %%
# `choose_detections` keeps those that an exemplar won, `with_consensus` asks the five best exemplars of each, and
# `measure_transfer` compares both with the truth, which only the tester knows. "Whole box as mask" knows nothing,
# "random of the class" does not look at the image.

winners = choose_detections(detector.exemplars_, found, test, top=20)
voted = with_consensus(winners, detector, 5)
quality = measure_transfer(detector.exemplars_, voted, n_resamples=200)
for name in quality.choices:
    print(f"{name:30} mask IoU {quality[name, 'mask IoU'].mean:.2f}")

# %%
# The detection (green), the exemplar that won it laid over it and outlined, the mask of the vote, and the truth.


def outlined(picture: np.ndarray, mask: np.ndarray) -> np.ndarray:
    shown = picture.copy()
    shown[~mask] = shown[~mask] // 3
    return shown


rows = []
for each in voted:
    columns = each.detections, hand_on(detector.exemplars_, each), matched_instances(each.detections, each.record)
    rows += [(each.record, *row) for row in zip(*columns, strict=True) if row[-1] is not None]
rows.sort(key=lambda row: -row[1].score)

figure, axes = plt.subplots(4, 6, figsize=(10, 7))
for each in axes.flat:
    each.set_axis_off()
for column, (record, one, handed, truth) in enumerate(rows[:6]):
    image, exemplar = record.read(), detector.exemplars_[one.exemplar]
    x1, y1, x2, y2 = np.rint(one.box).astype(int)
    window = np.s_[max(0, y1 - 8) : y2 + 8, max(0, x1 - 8) : x2 + 8]
    pictures = (
        exemplar.picture,
        superimposed(image, one.box, exemplar, height=160),
        outlined(image, handed.whole_mask())[window],
        outlined(image, truth.mask())[window],
    )
    for each, picture in zip(axes[:, column], pictures, strict=True):
        each.imshow(picture)
for each, title in zip(axes[:, 0], ("winning exemplar", "laid over", "mask by vote of five", "truth"), strict=True):
    each.set_title(title)
plt.show()
