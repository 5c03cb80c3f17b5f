"""The detector on photographs, where they are there."""

from pathlib import Path

import pytest

from eesvm import ExemplarDetector, boxes
from eesvm.datasets import open_dataset, select
from eesvm.detector.options import DetectorOptions

RACCOONS = Path(__file__).resolve().parents[3] / "shared" / "data" / "raccoon"


@pytest.mark.skipif(not RACCOONS.exists(), reason="the photographs of raccoons are not at ../shared/data")
@pytest.mark.long
def test_raccoons_are_found(tmp_path):
    dataset = open_dataset(RACCOONS)
    small = [record.image_id for record in dataset if max(record.width, record.height) <= 700]
    train, test = select(dataset, image_ids=small[:24:2]), select(dataset, image_ids=small[1:16:2])
    changes = {"windows.mode": "single", "calibration.method": "greedy", "descriptor.n_components": 128}
    detector = ExemplarDetector(DetectorOptions.make(changes=changes)).fit(train, folder=tmp_path / "model")
    loaded = ExemplarDetector.load(tmp_path / "model")
    found = {one.image_id: one for one in loaded.predict(test)}
    objects = list(test.instances())
    n_hits = sum(bool((boxes.iou(found[i.image_id].boxes[:3], [i.box]) >= 0.5).any()) for i in objects)
    assert n_hits >= 0.6 * len(objects)
    picture = loaded.exemplars_[found[objects[0].image_id].exemplars[0]].picture
    assert max(picture.shape) <= 256
    assert detector.problems_ == ()
