"""
One set of detections, several protocols
========================================

Average precision is not one number. VOC 2007 samples the curve at eleven recalls, VOC 2010 takes the area, ILSVRC
forgives small objects. Here the same imagined detections are judged by all of them, and their errors are sorted by
kind. (``protocol="coco"`` needs ``pip install 'eesvm[coco]'``.)
"""

import matplotlib.pyplot as plt
import numpy as np

from eesvm.metrics import ERROR_KINDS, break_down_errors, evaluate_detections
from eesvm.structures import Detections, ImageRecord, Instance

CLASSES = ("bird", "boat")  # birds are small, boats are large
random = np.random.default_rng(0)


def imagined_image(number: int) -> ImageRecord:
    """Two to five objects; nothing here looks at pixels."""
    instances = []
    for index in range(random.integers(2, 6)):
        name = random.choice(CLASSES)
        width, height = random.uniform(9, 18, 2) if name == "bird" else random.uniform(60, 120, 2)
        x, y = random.uniform(0, 640 - width), random.uniform(0, 480 - height)
        instances.append(Instance(name, np.array([x, y, x + width, y + height]), f"image_{number}", index))
    return ImageRecord(f"image_{number}", lambda: np.zeros((480, 640, 3), np.uint8), 640, 480, tuple(instances))


def imagined_detections(record: ImageRecord) -> Detections:
    """A detector that knows the truth, roughly: it misplaces, confuses, repeats, misses and invents."""
    boxes, names, scores = [], [], []
    for instance in record.instances:
        if random.uniform() < 0.1:
            continue
        for _ in range(1 + (random.uniform() < 0.1)):
            boxes.append(instance.box + random.normal(0, 2.2, 4))
            names.append(random.choice(CLASSES) if random.uniform() < 0.1 else instance.class_name)
            scores.append(random.normal(1.0, 0.5))
    for _ in range(random.poisson(0.8)):
        x, y, side = random.uniform(0, 500), random.uniform(0, 350), random.uniform(10, 100)
        boxes.append(np.array([x, y, x + side, y + side]))
        names.append(random.choice(CLASSES))
        scores.append(random.normal(0.2, 0.5))
    columns = np.array(boxes).reshape(-1, 4), np.array(scores), np.array(names), np.full(len(names), -1)
    return Detections(record.image_id, *columns).sorted()


images = [imagined_image(number) for number in range(60)]
detections = [imagined_detections(record) for record in images]
reports = {name: evaluate_detections(images, detections, protocol=name) for name in ("voc07", "voc10", "ilsvrc")}
for name, report in reports.items():
    values = ", ".join(f"{one.class_name} {100 * one.average_precision:.1f}" for one in report.classes)
    print(f"{name:7} {values}; mean {100 * report.mean_average_precision:.1f} %")

# %%
# A box that is off by two pixels is a miss on a bird of ten pixels and perfect on a boat: ILSVRC asks for less overlap
# where objects are small. Kinds of errors: where the box is poor, where the class is wrong, where an object was found
# twice, and where there is nothing; and objects that nobody found.

errors = break_down_errors(images, detections)
print(errors.to_markdown().split("\n\n", 3)[-1])

# %%

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11.5, 4), width_ratios=(1, 1.1, 1.1))
width = 0.26
for place, (name, report) in enumerate(reports.items()):
    values = [100 * one.average_precision for one in report.classes]
    left.bar(np.arange(len(values)) + (place - 1) * width, values, width, label=name)
left.set_xticks(range(len(CLASSES)), CLASSES)
left.set(title="Average precision, %", ylim=(0, 112))
left.legend(ncols=3, loc="upper center", fontsize=9, columnspacing=1)
for one in reports["voc10"].classes:
    middle.plot(one.curve.recall, one.curve.precision, label=one.class_name)
middle.set(title="Curves under voc10", xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.03))
middle.legend(loc="lower left")
kinds, bottom = [*ERROR_KINDS, "n_missed"], np.zeros(5)
for counts in errors.everything:
    amounts = np.array([getattr(counts, kind) for kind in kinds])
    right.barh([*ERROR_KINDS, "missed"], amounts, left=bottom, label=counts.class_name)
    bottom += amounts
right.invert_yaxis()
right.legend(loc="upper right")
right.set_title("Errors by kind")
plt.show()
