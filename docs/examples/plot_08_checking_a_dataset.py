"""
Checking the data of a set
==========================

Files from many hands are never all right. A reader of this package leaves out or mends what is wrong, continues, and
keeps a list by file and line. Here a small set in VOC's format is written, damaged in six places, and read again.
"""

import re
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from eesvm.datasets import open_dataset, summary, write_voc
from eesvm.datasets.scenes import make_scenes

folder = TemporaryDirectory()
root = Path(folder.name) / "set"
write_voc(make_scenes(n_train=8, n_test=4), root)
annotations = sorted((root / "Annotations").glob("*.xml"))


def change(file: Path, pattern: str, replacement: str) -> None:
    file.write_text(re.sub(pattern, replacement, file.read_text(), count=1))


change(annotations[0], r"<xmax>\d+", "<xmax>700")  # reaches outside of the image
change(annotations[1], r"<xmin>(\d+)", "<xmin>900")  # lies outside
change(annotations[2], r"<name>\w+</name>", "<name></name>")  # has no class
annotations[3].write_text(annotations[3].read_text()[:300])  # was cut off
change(annotations[4], r"<width>\d+", "<width>640")  # states another size than the image has
images = sorted((root / "JPEGImages").iterdir())
images[5].write_bytes(images[5].read_bytes()[:20])  # is no image any more

# %%
# `open_dataset` finds out what it is and reads what can be read. On the command line: ``eesvm data info FOLDER``.

dataset = open_dataset(root)
for problem in dataset.problems:
    print(str(problem).replace(f"{root}/", ""))

# %%
# With ``strict=True`` the first of them is an error instead. What is left:

counts = summary(dataset)
print(f"{counts.n_images} images, {counts.n_instances} objects: {counts.classes}")

# %%
# What the first problem was: a box that reached outside is cut off at the border.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8))
record = dataset[0]
left.imshow(record.read())
for instance in record.instances:
    x1, y1, x2, y2 = instance.box
    left.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, ec="#E69F00", lw=2))
    left.annotate(instance.class_name, (x1, y1), (2, 3), textcoords="offset points", color="#E69F00", weight="bold")
left.set_axis_off()
left.set_title(f"{record.image_id}: {len(record.instances)} objects")
kinds = Counter(problem.kind for problem in dataset.problems)
right.barh(list(kinds), list(kinds.values()), color="C1")
right.xaxis.get_major_locator().set_params(integer=True)
right.set_title(f"{len(dataset.problems)} problems by kind")
plt.show()
folder.cleanup()
