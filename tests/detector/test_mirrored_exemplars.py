"""Mirrored exemplars in training, calibration, detection and files."""

from dataclasses import replace

import numpy as np
import pytest

from eesvm.detector import ExemplarDetector, score_class, train_class
from eesvm.detector.training_descriptor import training_windows
from helpers.detector_scenes import detections, quick_options, same_detections, scenes, shared_cache, trained

pytestmark = pytest.mark.long  # trains twice as many exemplars


@pytest.fixture(scope="module")
def plain():
    return trained(quick_options())


@pytest.fixture(scope="module")
def both():
    return trained(quick_options(training__mirror=True))


def test_each_object_and_its_mirror_image_are_exemplars(plain, both):
    for one, other in zip(plain.models_, both.models_, strict=True):
        n = one.n_exemplars
        assert other.n_exemplars == 2 * n
        assert [each.is_mirrored for each in other.annotations] == [False] * n + [True] * n
        for k, each in enumerate(other.annotations[n:]):
            assert each.name == f"{one.annotations[k].name}, mirrored"
            np.testing.assert_array_equal(each.mask, one.annotations[k].mask[:, ::-1])


def test_a_mirror_image_is_of_its_own_image_in_calibration():
    options = quick_options(training__mirror=True, training__own_image=False)
    windows = training_windows(scenes("train"), options, cache=shared_cache())
    found = train_class(windows, "three", options.training)
    n = len(found.instances) // 2
    assert found.n_mirrored == n
    assert found.instances[:n] == found.instances[n:]
    table = score_class(windows, found, options.calibration).table
    assert (table.exemplar_groups[:n] == table.exemplar_groups[n:]).all()
    assert table.exemplar_names[n:] == [f"{name}, mirrored" for name in table.exemplar_names[:n]]
    problem = table.problem(across_groups=True)
    assert (problem.forbidden[:, :n] == problem.forbidden[:, n:]).all()
    assert problem.forbidden.any()


def test_they_detect_and_files_keep_them(both, tmp_path):
    found = detections(both, "joint-sigmoid")
    winners = np.concatenate([one.exemplars for one in found])
    assert {both.exemplars_[winner].is_mirrored for winner in winners.tolist()} == {True, False}
    both.save(tmp_path / "model")
    card = (tmp_path / "model" / "MODEL.md").read_text()
    assert "each object and its mirror image" in card
    n = len(both.exemplars_)
    assert f"{n} exemplars ({n // 2} objects, each with its mirror image) in 2 classes" in card
    again = ExemplarDetector.load(tmp_path / "model")
    assert same_detections(detections(again, "joint-sigmoid"), found)
    assert [each.name for each in again.exemplars_] == [each.name for each in both.exemplars_]
    identities = again.models_[0].exemplars.exemplars_
    assert [one.metadata for one in identities] == [
        {"mirrored": True} if each.is_mirrored else {} for each in again.models_[0].annotations
    ]


@pytest.mark.long
def test_a_run_that_mirrors_does_nothing_twice(tmp_path):
    trained(quick_options(training__mirror=True), classes=["three"], folder=tmp_path / "model")
    again = trained(quick_options(training__mirror=True), classes=["three"], folder=tmp_path / "model")
    assert again.changed_ == []
    other = trained(quick_options(), classes=["three"], folder=tmp_path / "model")
    assert "classes/three: training" in other.changed_
    assert not any(each.is_mirrored for each in other.exemplars_)


@pytest.mark.long
def test_objects_come_and_go_with_their_mirror_images(tmp_path):
    images = scenes("train").images
    first = replace(scenes("train"), images=images[:8])
    detector = trained(quick_options(training__mirror=True), first)
    before = len(detector.exemplars_)
    new = replace(scenes("train"), images=images[8:10])
    n_new = sum(i.class_name in detector.classes_ for i in new.instances())
    detector.partial_fit(new, cache=shared_cache(), classes=detector.classes_)
    assert len(detector.exemplars_) == before + 2 * n_new
    objects = [(one.class_name, one.image_id, one.index) for one in detector.exemplars_]
    assert all(objects.count(one) == 2 for one in objects)
    chosen = next(k for k, one in enumerate(detector.exemplars_) if one.is_mirrored)
    detector.drop([chosen])
    left = [(one.class_name, one.image_id, one.index) for one in detector.exemplars_]
    assert objects[chosen] not in left
    assert len(left) == len(objects) - 2
    detector.save(tmp_path / "model")
    again = ExemplarDetector.load(tmp_path / "model")
    assert [one.name for one in again.exemplars_] == [one.name for one in detector.exemplars_]
