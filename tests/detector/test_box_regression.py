"""Box regression: against a slow reference by scikit-learn, where there is nothing to learn, in models and in files."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from eesvm import InputError
from eesvm._support.tensors import write_arrays
from eesvm.boxes import iou
from eesvm.cli import main
from eesvm.detector import ExemplarDetector
from eesvm.detector.box_regression import (
    PENALTIES,
    BoxRegressor,
    fit_boxes,
    moved_by,
    regress_boxes,
    ways_between,
    windows_of_objects,
)
from eesvm.detector.files import read_regressor, write_regressor
from eesvm.detector.model import Ensemble, score_image
from eesvm.detector.training_descriptor import training_windows
from eesvm.images import write_image
from eesvm.metrics.detection_files import read_detections
from helpers.detector_scenes import CLASSES, detections, quick_options, same_detections, scenes, shared_cache, trained
from helpers.examples import few

LEARNED = CLASSES[0]


def learnable(n=120, d=6, n_images=12, noise=0.02, seed=0):
    """Windows whose descriptors say where the object is."""
    rng = np.random.default_rng(seed)
    descriptors = rng.normal(size=(n, d)).astype(np.float32)
    corners = rng.uniform(0, 100, (n, 2))
    boxes = np.hstack([corners, corners + rng.uniform(20, 60, (n, 2))])
    ways = 0.05 * descriptors @ rng.normal(size=(d, 4)) + [0.05, -0.02, 0.1, 0.0] + rng.normal(0, noise, (n, 4))
    return descriptors, boxes, moved_by(boxes, ways), rng.integers(0, n_images, n)


def by_scikit_learn(descriptors, boxes, targets, images, random_state=0):
    """What is left in held-out images, the gain of each, and the map fitted to all, with the best penalty."""
    ways, rows = ways_between(boxes, targets), descriptors.astype(np.float64)
    names = np.unique(images)
    numbers = np.random.default_rng(random_state).permutation(len(names)) % 5
    fold = np.array([numbers[np.searchsorted(names, image)] for image in images])

    def fitted(is_used, penalty):
        about = rows[is_used] - rows[is_used].mean(axis=0)
        strength = penalty * (about**2).sum(axis=1).mean()
        return Ridge(alpha=strength).fit(rows[is_used], ways[is_used])

    def squared_errors(penalty):
        found = np.empty_like(ways)
        for k in range(5):
            found[fold == k] = fitted(fold != k, penalty).predict(rows[fold == k])
        return ((found - ways) ** 2).sum(axis=1)

    best = min(PENALTIES, key=lambda penalty: squared_errors(penalty).sum())
    left, squared = squared_errors(best), (ways**2).sum(axis=1)
    gains = [(squared - left)[images == name].sum() for name in names]
    return left.sum() / squared.sum(), gains, fitted(np.ones(len(rows), dtype=bool), best)


@pytest.mark.parametrize(("n", "d"), few([(120, 6), (25, 90), (40, 30), (300, 12)], 2))
def test_it_is_what_scikit_learn_finds(n, d):
    for seed in range(3):
        given = learnable(n, d, n_images=7, seed=seed)
        found = fit_boxes(*given)
        left, gains, model = by_scikit_learn(*given)
        if np.mean(gains) <= np.std(gains, ddof=1) / np.sqrt(len(gains)):
            assert found is None
            continue
        assert found.left == pytest.approx(left, rel=1e-6)
        np.testing.assert_allclose(found.weights, model.coef_.T, atol=1e-5)
        np.testing.assert_allclose(found.constant, model.intercept_, atol=1e-5)
        assert found.n_windows == n


def test_it_learns_where_objects_are():
    descriptors, boxes, targets, images = learnable(noise=0.005)
    found = fit_boxes(descriptors, boxes, targets, images)
    assert found.left < 0.1
    before = np.diag(iou(boxes, targets)).mean()
    assert np.diag(iou(found.move(boxes, descriptors), targets)).mean() > before + 0.5 * (1 - before)


def test_the_scale_of_descriptors_does_not_matter():
    descriptors, boxes, targets, images = learnable()
    one, other = (fit_boxes(factor * descriptors, boxes, targets, images) for factor in (1, 64))
    assert one.left == pytest.approx(other.left)
    np.testing.assert_allclose(one.move(boxes, descriptors), other.move(boxes, 64 * descriptors), rtol=1e-5)


def test_where_nothing_is_to_be_learned_there_is_none():
    descriptors, boxes, targets, images = learnable()
    for n_images in (1, 4):  # too few to be left out in turn
        assert fit_boxes(descriptors, boxes, targets, images % n_images) is None
    assert fit_boxes(descriptors, boxes, targets, images % 5) is not None
    assert fit_boxes(descriptors, boxes, boxes, images) is None  # windows are where the objects are
    assert fit_boxes(descriptors[:0], boxes[:0], targets[:0], images[:0]) is None
    rng = np.random.default_rng(1)
    n_found = 0
    for _ in range(40):
        noise = moved_by(boxes, rng.normal(0, 0.1, (len(boxes), 4)))
        n_found += fit_boxes(descriptors, boxes, noise, images) is not None
    assert n_found <= 4
    # Descriptors that say nothing still leave a constant to be learned.
    shifted = fit_boxes(np.zeros_like(descriptors), boxes, boxes + np.array([4.0, 0, 4.0, 0]), images)
    assert shifted.left < 0.2
    assert not shifted.weights.any()


def test_ways_lead_from_windows_to_objects():
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 200, (4000, 2))
    boxes = np.hstack([corners, corners + rng.uniform(5, 90, (4000, 2))])
    targets = boxes + rng.normal(0, 12, boxes.shape)
    # The furthest that an object can be from its window: twice as large, and at one end of it.
    boxes = np.vstack([boxes, [[10, 0, 20, 10], [0, 0, 20, 10]]])
    targets = np.vstack([targets, [[0, 0, 20, 10], [10, 0, 20, 10]]])
    is_box = (targets[:, 2:] > targets[:, :2]).all(axis=1)
    boxes, targets = boxes[is_box], targets[is_box]
    is_near = np.array([iou(a[None], b[None])[0, 0] >= 0.5 for a, b in zip(boxes, targets, strict=True)])
    assert is_near[-2:].all()
    assert 500 < is_near.sum() < len(boxes)
    ended = moved_by(boxes[is_near], ways_between(boxes[is_near], targets[is_near]))
    np.testing.assert_allclose(ended, targets[is_near], atol=1e-9)


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e18])
def test_odd_scales_and_offsets_are_learned_as_well(scale):
    descriptors, boxes, targets, images = learnable()
    plain = fit_boxes(descriptors, boxes, targets, images)
    found = fit_boxes(np.float32(scale) * descriptors, boxes, targets, images)
    assert found.left == pytest.approx(plain.left, rel=1e-3)
    far = fit_boxes(descriptors + np.float32(100), boxes, targets, images)  # as descriptors are that are never negative
    assert far.left == pytest.approx(plain.left, rel=1e-2)


@pytest.mark.parametrize("strength", [0.1, 1e3, 1e30])
def test_moved_boxes_have_an_area_within_what_windows_cover(strength):
    rng = np.random.default_rng(2)
    corners = np.stack([rng.uniform(0, 310, 500), rng.uniform(0, 230, 500)], axis=1)
    boxes = np.hstack([corners, np.minimum(corners + rng.uniform(1, 300, (500, 2)), [320, 240])])
    weights = (strength * rng.normal(size=(5, 4))).astype(np.float32)
    regressor = BoxRegressor(weights, np.zeros(4, dtype=np.float32), 1, 0.5)
    moved = regressor.move(boxes, rng.normal(size=(500, 5)).astype(np.float32))
    assert (moved[:, 2:] > moved[:, :2]).all()
    assert (moved >= np.tile(boxes[:, :2].min(axis=0), 2)).all()
    assert (moved <= np.tile(boxes[:, 2:].max(axis=0), 2)).all()
    assert regressor.move(boxes[:0], np.empty((0, 5), dtype=np.float32)).shape == (0, 4)


@cache
def windows():
    return training_windows(scenes("train"), quick_options(), cache=shared_cache())


def test_windows_of_objects_by_slow_loops():
    table = windows()
    record = table.records[1]
    odd = tuple(replace(one, is_difficult=k == 0, is_crowd=k == 1) for k, one in enumerate(record.instances))
    table = replace(table, records=(table.records[0], replace(record, instances=odd), *table.records[2:]))
    for name in CLASSES:
        expected = []
        for row in range(len(table)):
            objects = [
                one
                for one in table.records[table.image[row]].instances
                if one.class_name == name and not one.is_difficult and not one.is_crowd
            ]
            overlaps = [float(iou(table.boxes[row][None], np.array([one.box]))[0, 0]) for one in objects]
            if table.instance[row] < 0 and overlaps and max(overlaps) >= 0.5:
                expected.append((row, tuple(objects[int(np.argmax(overlaps))].box)))
        rows, targets = windows_of_objects(table, name)
        assert list(zip(rows.tolist(), map(tuple, targets), strict=True)) == expected
        assert expected
    assert len(windows_of_objects(table, "no such class")[0]) == 0
    assert regress_boxes(table, "no such class") is None


def test_a_sample_is_enough_where_there_are_many(monkeypatch):
    name, options = LEARNED, quick_options(windows__max_windows=2000)
    table = training_windows(scenes("train"), options, cache=shared_cache())
    whole = regress_boxes(table, name)
    monkeypatch.setattr("eesvm.detector.box_regression._MOST_WINDOWS", whole.n_windows - 5)
    sample, again, other = (regress_boxes(table, name, seed) for seed in (0, 0, 1))
    assert sample.n_windows == whole.n_windows - 5
    assert (sample.weights == again.weights).all()
    assert (sample.weights != other.weights).any()
    monkeypatch.setattr("eesvm.detector.box_regression._MOST_UNKNOWNS", 26)
    assert regress_boxes(table, name).n_windows == 26
    monkeypatch.setattr("eesvm.detector.box_regression._MOST_UNKNOWNS", 27)
    monkeypatch.setattr("eesvm.detector.box_regression._MOST_NUMBERS", 26 * table.descriptors.shape[1])
    assert regress_boxes(table, name).n_windows == 26


@pytest.fixture(scope="module")
def detector():
    """Of its two classes only the first has windows that boxes can be learned from."""
    found = trained(quick_options())
    assert [model.regressor is None for model in found.models_] == [False, True]
    assert found.models_[0].class_name == LEARNED
    return found


def test_detections_are_moved_windows(detector):
    table, options = windows(), quick_options()
    part = slice(table.starts[2], table.starts[3])
    boxes, rows = table.boxes[part], table.descriptors[part]
    plain = options.changed({"detection.box_regression": False})
    moved, proposed = (Ensemble(detector.models_, "joint-sigmoid", own) for own in (options, plain))
    for model, one, other in zip(
        detector.models_, moved.scores(rows, boxes), proposed.scores(rows, boxes), strict=True
    ):
        expected = regress_boxes(table, model.class_name, options.random_state)
        if expected is None:
            assert (one.boxes == boxes).all()
        else:
            assert (model.regressor.weights == expected.weights).all()
            assert (one.boxes == expected.move(boxes, rows)).all()
            assert (one.boxes != boxes).any(axis=1).all()
        assert (other.boxes == boxes).all()
        assert (one.scores == other.scores).all()
        assert (one.winners == other.winners).all()
    found = score_image(proposed, "x", boxes, rows, options.detection)
    assert all((boxes == box).all(axis=1).any() for box in found.boxes)


def test_the_paper_leaves_boxes_where_they_are():
    assert quick_options().detection.box_regression
    assert not quick_options("paper").detection.box_regression


def test_a_model_keeps_it(detector, tmp_path):
    detector.save(tmp_path / "model")
    loaded = ExemplarDetector.load(tmp_path / "model")
    assert loaded.models_[1].regressor is None
    one, other = detector.models_[0].regressor, loaded.models_[0].regressor
    assert (one.weights == other.weights).all()
    assert (one.constant == other.constant).all()
    assert (one.n_windows, one.left) == (other.n_windows, other.left)
    assert same_detections(detections(detector, "joint-sigmoid"), detections(loaded, "joint-sigmoid"))
    card = json.loads((tmp_path / "model" / "model.json").read_text())
    assert "box_regression" not in card["classes"][1]
    assert card["classes"][0]["box_regression"] == {"n_windows": one.n_windows, "left": one.left}
    gone = f"{100 - 100 * one.left:.0f} % of their squared error is removed"
    page = (tmp_path / "model" / "MODEL.md").read_text()
    assert f"boxes moved by regression in 1 of the classes (on training images left out, {gone})" in page


def test_models_of_earlier_versions_leave_boxes_alone(detector, tmp_path):
    detector.save(tmp_path / "model")
    (file,) = (tmp_path / "model").glob("classes/*/boxes.safetensors")
    file.unlink()
    card = json.loads((tmp_path / "model" / "model.json").read_text())
    del card["options"]["detection"]["box_regression"]
    card["files"] = {name: value for name, value in card["files"].items() if not name.endswith("/boxes.safetensors")}
    (tmp_path / "model" / "model.json").write_text(json.dumps(card))
    old = detections(ExemplarDetector.load(tmp_path / "model"), "joint-sigmoid")
    plain = ExemplarDetector(quick_options(detection__box_regression=False))
    plain.models_, plain.descriptor_ = detector.models_, detector.descriptor_
    assert same_detections(old, detections(plain, "joint-sigmoid"))
    assert not same_detections(old, detections(detector, "joint-sigmoid"))


def test_a_class_that_has_none_any_more_leaves_no_file(tmp_path):
    regressor = BoxRegressor(np.ones((3, 4), dtype=np.float32), np.zeros(4, dtype=np.float32), 9, 0.5)
    (file,) = write_regressor(tmp_path, "cat", regressor)
    assert (read_regressor(tmp_path, "cat", 3).weights == 1).all()
    assert write_regressor(tmp_path, "cat", None) == []
    assert not (tmp_path / file).exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": np.ones((4, 4), dtype=np.float32)}, "`weights` must have shape (3, 4), got (4, 4)"),
        ({"constant": np.ones(3, dtype=np.float32)}, "`constant` must have shape (4,), got (3,)"),
        ({"weights": np.full((3, 4), np.inf, dtype=np.float32)}, "`weights` and `constant` must be finite"),
        ({"constant": np.full(4, np.nan, dtype=np.float32)}, "`constant` holds a value that is NaN"),
        ({"weights": np.ones((3, 4))}, "`weights` must be float32, got float64"),
        ({"left": np.array([np.inf])}, "`n_windows` must be >= 1 and `left` within 0 and 1, got 9 and inf"),
        ({"n_windows": np.array([-7])}, "`n_windows` must be >= 1 and `left` within 0 and 1, got -7 and 0.5"),
    ],
)
def test_damaged_files_are_refused(tmp_path, changes, message):
    arrays = {
        "weights": np.ones((3, 4), dtype=np.float32),
        "constant": np.zeros(4, dtype=np.float32),
        "n_windows": np.array([9], dtype=np.int64),
        "left": np.array([0.5]),
    }
    file = tmp_path / "classes" / "cat" / "boxes.safetensors"
    file.parent.mkdir(parents=True)
    write_arrays(file, "eesvm-box-regression", 1, {**arrays, **changes})
    with pytest.raises(InputError) as caught:
        read_regressor(tmp_path, "cat", 3)
    assert str(caught.value) == f"{file}: {message}"


@pytest.mark.long
def test_a_folder_without_it_gets_it(tmp_path):
    """It is learned when it is wanted, and only then; the rest of the model stays."""
    folder, plain = tmp_path / "model", quick_options(detection__box_regression=False)
    first = trained(plain, folder=folder)
    assert not any(model.regressor for model in first.models_)
    assert not list(folder.glob("**/boxes.safetensors"))
    again = trained(quick_options(), folder=folder)
    assert {part.rpartition(": ")[2] for part in again.changed_} == {"boxes", "model"}
    assert trained(quick_options(), folder=folder).changed_ == []
    (file,) = folder.glob("**/boxes.safetensors")
    assert str(file.relative_to(folder)) in json.loads((folder / "model.json").read_text())["files"]
    assert ExemplarDetector.load(folder).models_[0].regressor is not None
    assert trained(plain, folder=folder).changed_ == ["model"]
    assert not file.exists()


@pytest.mark.long
def test_the_command_can_leave_boxes_alone(detector, tmp_path):
    detector.save(tmp_path / "model")
    for record in scenes("test")[:3]:
        write_image(tmp_path / f"{record.image_id}.png", record.read())
    common = ["detect", str(tmp_path / "model"), str(tmp_path / "*.png"), "--no-cache", "--quiet", "--jobs", "1"]
    assert main([*common, "-o", str(tmp_path / "moved.csv")]) == 0
    assert main([*common, "-o", str(tmp_path / "proposed.csv"), "--no-box-regression"]) == 0
    moved, proposed = (read_detections(tmp_path / f"{name}.csv") for name in ("moved", "proposed"))
    assert all((one.boxes == one.boxes.round()).all() for one in proposed)  # windows are of whole pixels
    learned = [one.of_class(LEARNED).boxes for one in moved]
    assert all(len(boxes) and (boxes != boxes.round()).any(axis=1).all() for boxes in learned)
