"""What exemplars keep of their objects where masks and boxes do not fit each other."""

import numpy as np

from eesvm.structures import ImageRecord, Instance
from eesvm.transfer.annotations import annotate_all


def test_a_mask_outside_of_its_box_is_a_problem_and_an_empty_one_is_not():
    record = ImageRecord("a", lambda: np.zeros((40, 50, 3), np.uint8), 50, 40, path="a.png")
    beside, across, empty = (np.zeros((40, 50), dtype=bool) for _ in range(3))
    beside[:5, :5] = across[8:12, 8:12] = True
    instances = [
        Instance("dog", np.array([10.0, 10, 30, 30]), "a", k, mask=lambda own=own: own)
        for k, own in enumerate((beside, across, empty))
    ]
    problems = []
    found = annotate_all(instances, {"a": record}, problems)
    assert [one.mask is None for one in found] == [True, False, True]
    assert found[1].mask.sum() == 4  # what lies in the box
    assert [(one.path, one.reason, one.kind) for one in problems] == [
        ("a.png", "the mask of object 1 lies outside of its box; it is kept without mask", "mask")
    ]
