"""The detector as an estimator: fit, predict, calibrators, pooling, bad input."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

import eesvm
from eesvm import InputError, boxes
from eesvm.detector import (
    ExemplarDetector,
    calibrate_class,
    score_class,
    score_image,
    train_class,
    training_windows,
)
from eesvm.detector.class_calibration import pooled
from eesvm.detector.model import ClassModel, Ensemble
from eesvm.detector.options import CALIBRATORS, DetectionOptions
from eesvm.images import write_image
from eesvm.structures import Dataset
from helpers.detector_scenes import CLASSES, detections, quick_options, same_detections, scenes, shared_cache, trained
from helpers.examples import few


@pytest.fixture(scope="module")
def detector():
    return trained(quick_options(), calibrators="all")


@pytest.fixture(scope="module")
def found(detector):
    return detector.predict(scenes("test"))


def hits(dataset, detections):
    """Objects of which one of the three best detections of its image has the class and overlaps it."""
    n = 0
    by_image = {one.image_id: one for one in detections}
    for instance in dataset.instances():
        one = by_image[instance.image_id]
        own = one.boxes[one.class_names == instance.class_name][:3]
        n += bool((boxes.iou(own, [instance.box]) >= 0.5).any())
    return n


def test_the_name_is_public():
    assert eesvm.ExemplarDetector is ExemplarDetector
    with pytest.raises(AttributeError, match="no attribute 'Detector'"):
        eesvm.Detector  # noqa: B018


def test_it_finds_objects(detector, found):
    dataset = scenes("test")
    assert [one.image_id for one in found] == [record.image_id for record in dataset]
    assert same_detections(found, detections(detector, "joint-sigmoid"))
    n_objects = sum(1 for _ in dataset.instances())
    assert hits(dataset, found) >= 0.6 * n_objects
    for one in found:
        assert (np.diff(one.scores) <= 0).all()
        assert len(one) <= 100
        for name in set(one.class_names.tolist()):
            own = one.boxes[one.class_names == name]
            overlaps = boxes.iou(own, own)
            assert (overlaps[~np.eye(len(own), dtype=bool)] <= 0.3).all()


def test_winners_are_exemplars_of_their_class(detector, found):
    exemplars = detector.exemplars_
    assert len(exemplars) == sum(model.n_exemplars for model in detector.models_)
    for one in found:
        names = np.array([exemplars[k].class_name for k in one.exemplars])
        assert (names == one.class_names).all()
    assert {exemplars[k].image_id for one in found for k in one.exemplars} <= {r.image_id for r in scenes("train")}


def test_exemplars_hand_on_their_annotations(detector):
    instances = {(i.image_id, i.index): i for i in scenes("train").instances()}
    for one in detector.exemplars_:
        instance = instances[one.image_id, one.index]
        x1, y1, x2, y2 = instance.box.astype(int)
        assert (one.box == instance.box).all()
        assert (one.mask == instance.mask()[y1:y2, x1:x2]).all()
        assert one.parts == instance.parts
        assert one.picture.shape == (y2 - y1, x2 - x1, 3)
        assert one.metadata["digit"] == instance.metadata["digit"]


@pytest.mark.parametrize("name", CALIBRATORS)
def test_every_calibrator_detects(detector, name):
    found = detections(detector, name)
    assert all(np.isfinite(one.scores).all() for one in found)
    assert all((one.exemplars == -1).all() == (name == "single-svm") for one in found if len(one))
    assert hits(scenes("test"), found) >= 0.35 * sum(1 for _ in scenes("test").instances())


@pytest.mark.long
def test_a_calibrator_that_was_not_fitted_comes_from_the_scores():
    lean = trained(quick_options(), classes=["three"])
    assert set(lean.models_[0].calibrators) == {"joint", "none"}
    everything = trained(quick_options(), classes="three", calibrators="all")
    assert same_detections(detections(lean, "affine"), detections(everything, "affine"))


def test_redundant_exemplars_take_no_part(detector):
    model = replace(detector.models_[0], calibrators=dict(detector.models_[0].calibrators))
    joint = model.calibrators["joint"]
    kept = np.flatnonzero(joint.active_)[:2]
    thinned = type(joint)(sigmoid=True)
    for name in ("classes_", "n_features_in_", "sigmoids_", "muted_"):
        setattr(thinned, name, getattr(joint, name))
    thinned.thresholds_ = np.full_like(joint.thresholds_, np.inf)
    thinned.thresholds_[kept] = joint.thresholds_[kept]
    thinned.active_ = np.isfinite(thinned.thresholds_)
    model.calibrators["joint"] = thinned
    for name in ("joint", "joint-sigmoid"):
        ensemble = Ensemble([model], name, quick_options(detection__pooling=1))
        assert len(ensemble.weights) == 2
        descriptors = np.asarray(model.exemplars.coef_)  # any rows will do
        found = ensemble.scores(descriptors, np.zeros((len(descriptors), 4)))[0]
        thinned.sigmoid = name == "joint-sigmoid"
        raw = model.exemplars.decision_function(descriptors)
        assert found.scores == pytest.approx(thinned.decision_function(raw), abs=1e-6)  # another matrix product
        assert set(found.winners.tolist()) <= set(kept.tolist())


def test_pooling_is_the_mean_of_the_best():
    scores = np.array([[0.1, 0.5, 0.3], [0.9, 0.2, 0.4]])
    assert pooled(scores, 1).tolist() == [0.5, 0.9]
    assert pooled(scores, 2) == pytest.approx([0.4, 0.65])
    assert pooled(scores, 9) == pytest.approx([0.3, 0.5])


@pytest.mark.long
def test_the_steps_can_be_called_one_by_one(detector):
    options = quick_options()
    windows = training_windows(scenes("train"), options, cache=shared_cache())
    models = []
    for name in CLASSES:
        trained = train_class(windows, name, options.training)
        assert trained.names == [f"{one.image_id}, object {one.index + 1}" for one in trained.instances]
        scores = score_class(windows, trained, options.calibration)
        fitted = calibrate_class(scores, ["joint", "sigmoid"], options.calibration)
        models.append(ClassModel(name, trained.exemplars, (), trained.single, fitted))
    assert all((a.exemplars.coef_ == b.exemplars.coef_).all() for a, b in zip(models, detector.models_, strict=True))
    part = slice(windows.starts[2], windows.starts[3])
    image, rows = windows.boxes[part], windows.descriptors[part]
    for name in ("joint-sigmoid", "sigmoid", "single-svm"):
        one = score_image(Ensemble(models, name, options), "x", image, rows, DetectionOptions(max_detections=7))
        assert len(one) == 7
        assert one.image_id == "x"


@pytest.mark.parametrize(
    "changes",
    few(
        [
            {"training__max_images": 5},
            {"calibration__coverage": "own-image"},
            {"training__trainer": "lda", "training__prior": None},
            {"training__own_image": False},
            {"calibration__max_negatives": 200},
        ],
        2,
    ),
)
def test_other_options_train_too(changes):
    detector = trained(quick_options(**changes), classes=["eight"])
    assert hits(scenes("test"), detections(detector, "joint-sigmoid")) > 0


@pytest.mark.long
def test_the_paper_preset_trains():
    detector = trained(quick_options("paper"), classes=["eight"])
    joint = detector.models_[0].calibrators["joint"]
    assert joint.result_.recall == 1
    assert not joint.across_groups_


def test_the_number_of_jobs_changes_nothing():
    models = [
        ExemplarDetector(quick_options(n_jobs=n, calibration__method="exact", calibration__node_limit=5)).fit(
            scenes("train", 4)
        )
        for n in (1, 2)
    ]
    for one, other in zip(models[0].models_, models[1].models_, strict=True):
        assert (one.exemplars.coef_ == other.exemplars.coef_).all()
        assert (one.single.weights == other.single.weights).all()
        assert (one.calibrators["joint"].thresholds_ == other.calibrators["joint"].thresholds_).all()
        assert (one.calibrators["joint"].sigmoids_ == other.calibrators["joint"].sigmoids_).all()
    assert same_detections(*(model.predict(scenes("test")[:2]) for model in models))


@pytest.mark.long
def test_selective_search_and_a_network():
    options = quick_options(descriptor__name="cnn", descriptor__n_components=128, windows__mode="single")
    detector = trained(options, classes=["eight"])
    eights = [i for i in scenes("test").instances("eight") if not i.is_difficult]
    found = {one.image_id: one for one in detector.predict(scenes("test"))}
    n = sum(bool((boxes.iou(found[i.image_id].boxes[:5], [i.box]) >= 0.5).any()) for i in eights)
    assert n >= 0.6 * len(eights)


def test_images_may_be_arrays_records_or_paths(detector, found, tmp_path):
    records = scenes("test")[:2]
    arrays = detector.predict([record.read() for record in records])
    assert [one.image_id for one in arrays] == ["0", "1"]
    assert (arrays[1].scores == found[1].scores).all()
    write_image(tmp_path / "a.png", records[0].read())
    (tmp_path / "broken.png").write_bytes(b"no picture")
    problems = []
    paths = detector.predict([tmp_path / "a.png", str(tmp_path / "broken.png")], problems=problems)
    assert [one.image_id for one in paths] == ["a"]
    assert (paths[0].boxes == found[0].boxes).all()
    assert [problem.path for problem in problems] == [str(tmp_path / "broken.png")]
    with pytest.raises(InputError, match="put a single one into a list"):
        detector.predict(records[0].read())
    with pytest.raises(InputError, match=r"`images\[0\]` must be a path, an ImageRecord or uint8"):
        detector.predict([np.zeros((3, 3))])


def test_images_of_one_name_are_told_apart(detector, found, tmp_path):
    paths = [tmp_path / folder / "001.png" for folder in ("cats", "dogs")]
    for path, record in zip(paths, scenes("test"), strict=False):
        path.parent.mkdir()
        write_image(path, record.read())
    apart = detector.predict([paths[0], str(paths[1])])
    assert [one.image_id for one in apart] == list(map(str, paths))
    for one, expected in zip(apart, found, strict=False):
        assert (one.boxes == expected.boxes).all()
        assert (one.scores == expected.scores).all()
    shutil.copy(paths[1], tmp_path / "0.png")
    apart = detector.predict([scenes("test")[0].read(), tmp_path / "0.png"])
    assert [one.image_id for one in apart] == ["0", str(tmp_path / "0.png")]
    assert [(one.scores == expected.scores).all() for one, expected in zip(apart, found, strict=False)] == [True, True]
    for twice in ([paths[0]] * 2, [scenes("test")[0]] * 2):
        with pytest.raises(InputError, match=r"`images` has the image '.*' 2 times: each must be there once"):
            detector.predict(twice)


def test_limits_of_detection(detector):
    options = detector.options
    detector.options = options.changed({"detection.max_detections": 3, "detection.nms": 1.0})
    try:
        assert all(len(one) == 3 for one in detector.predict(scenes("test")[:2]))
        detector.options = options.changed({"detection.min_score": 2.0})  # above any probability
        assert all(len(one) == 0 for one in detector.predict(scenes("test")[:2]))
    finally:
        detector.options = options


def test_one_image_is_enough():
    dataset = scenes("train")
    record = next(r for r in dataset if sum(i.class_name == "eight" and not i.is_difficult for i in r.instances) >= 1)
    detector = trained(quick_options(), replace(dataset, images=(record,)), ["eight"])
    assert not detector.models_[0].calibrators["joint"].across_groups_  # nobody else could cover its windows
    one = detector.predict([record])[0]
    assert boxes.iou(one.boxes[:1], [i.box for i in record.instances if i.class_name == "eight"]).max() >= 0.5


@pytest.mark.long
def test_classes_without_objects_are_named():
    dataset = replace(scenes("train", 4), classes=("three", "eight", "seven"))
    detector = trained(quick_options(), dataset)
    assert detector.classes_ == ("three", "eight")
    assert detector.skipped_classes_ == ("seven",)
    sentence = "the class 'seven' has no object to learn from in scenes: those are three, eight"
    with pytest.raises(InputError, match=sentence):
        ExemplarDetector(quick_options()).fit(dataset, ["three", "seven"])
    empty = Dataset("nothing", tuple(replace(r, instances=()) for r in dataset), ())
    with pytest.raises(InputError, match="nothing has no objects to learn from"):
        ExemplarDetector(quick_options()).fit(empty)


def test_images_that_nobody_annotated_take_no_part():
    dataset = scenes("train", 4)
    bare = replace(dataset[0], image_id="bare", instances=(), metadata={"is_annotated": False})
    with_it = trained(quick_options(), replace(dataset, images=(*dataset, bare)))
    without = trained(quick_options(), dataset)
    for one, other in zip(with_it.models_, without.models_, strict=True):
        assert (one.exemplars.coef_ == other.exemplars.coef_).all()


def test_names_that_cannot_be_written_down_are_refused_at_once():
    dataset = scenes("train", 2)
    odd = replace(dataset[0], image_id="caf\udce9")
    with pytest.raises(InputError, match=r"the name of the image 'caf\\udce9' is not text in UTF-8: give its file"):
        trained(quick_options(), replace(dataset, images=(odd, dataset[1])))


def test_a_class_whose_images_are_broken_is_left_out():
    def fails():
        raise InputError("it is broken")

    def broken(record):
        return any(instance.class_name == "three" for instance in record.instances)

    dataset = scenes("train")
    images = tuple(replace(r, read=fails) if broken(r) else r for r in dataset)
    detector = trained(quick_options(), replace(dataset, images=images))
    assert detector.classes_ == ("eight",)
    assert "the class 'three' has no object to learn from in the images that could be read" in {
        problem.reason for problem in detector.problems_
    }
    with pytest.raises(InputError, match="the class 'three' has no object to learn from in the images"):
        trained(quick_options(), replace(dataset, images=images), ["three"])


def test_what_is_wrong_with_the_call():
    with pytest.raises(InputError, match="not fitted yet: call `fit` with a dataset"):
        ExemplarDetector().predict([])
    with pytest.raises(InputError, match="`dataset` must be a Dataset, got list"):
        ExemplarDetector().fit([])
    with pytest.raises(
        InputError, match="`options` must be DetectorOptions, one of default, paper or a mapping, got 3"
    ):
        ExemplarDetector(3).fit(scenes("train"))
    with pytest.raises(InputError, match="`calibrator` must be one of"):
        ExemplarDetector(quick_options()).fit(scenes("train"), calibrators="platt")


def test_what_stands_for_no_images_is_refused(detector):
    for images in (None, 5, scenes("test")[0], "photo.jpg"):
        with pytest.raises(InputError, match="`images` must be a dataset or a list of images"):
            detector.predict(images)


def test_windows_and_descriptors_must_fit(detector):
    ensemble = Ensemble(detector.models_, "joint-sigmoid", quick_options())
    windows = training_windows(scenes("train"), quick_options(), cache=shared_cache())
    with pytest.raises(InputError, match="`boxes` must have one row for each of 5 descriptors, got 3"):
        score_image(ensemble, "x", windows.boxes[:3], windows.descriptors[:5])


def test_a_network_that_is_not_there_is_named(tmp_path):
    options = quick_options(descriptor__name="cnn", descriptor__backbone=str(tmp_path / "nofile.onnx"))
    with pytest.raises(InputError, match=r"nofile\.onnx: there is no such file; known networks are lite0"):
        trained(options, folder=tmp_path / "model")
    assert not (tmp_path / "model").exists()
