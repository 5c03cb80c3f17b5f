"""Calibrations judged by images left out: what is left out, which strength follows, and models that keep it."""

import re
from functools import cache

import numpy as np
import pytest

from eesvm import ExemplarDetector, InputError
from eesvm.calibration.calibrators.joint import JointCalibrator
from eesvm.calibration.calibrators.shrinkage import ShrunkenCalibrator, own_scales
from eesvm.calibration.problem import any_accepts
from eesvm.detector.class_calibration import SHRINKABLE, calibrate_class, score_rule
from eesvm.detector.class_training import score_class, train_class
from eesvm.detector.left_out import KEPT, judged_windows
from eesvm.detector.options import CALIBRATORS, DetectionOptions, DetectorOptions
from eesvm.detector.shrinkage import FOLDS, STRENGTHS, choose_strength, highest_elsewhere, left_out
from eesvm.detector.training_descriptor import training_windows
from eesvm.metrics import evaluate_detections
from eesvm.structures import Detections
from helpers.detector_scenes import CLASSES, detections, quick_options, same_detections, scenes, shared_cache, trained

AUTO = {"calibration__shrink": "auto", "detection__box_regression": False}


@cache
def windows():
    return training_windows(scenes("train"), quick_options(), cache=shared_cache())


@cache
def scored(class_name="three"):
    options = quick_options(**AUTO)
    made = train_class(windows(), class_name, options.training)
    return made, score_class(windows(), made, options.calibration)


def fit(scores):
    """Greedy thresholds across images."""
    table = scores.table
    problem = table.problem(True)
    return JointCalibrator(method="greedy").fit_problem(problem)


# What calibrations are judged by


def test_judged_windows_are_proposals_of_whole_images_with_their_scores():
    made, scores = scored()
    judged = scores.judged
    assert judged.image_ids.tolist() == [record.image_id for record in windows().records]
    assert (judged.weights == 1).all()
    assert (np.diff(judged.image) >= 0).all()
    for k, record in enumerate(windows().records):
        own = judged.image == k
        assert KEPT <= own.sum() <= 2 * KEPT
        a, b = windows().starts[k], windows().starts[k + 1]
        rows = np.flatnonzero(windows().instance[a:b] < 0) + a
        proposals = {tuple(box): row for box, row in zip(windows().boxes[rows].tolist(), rows, strict=True)}
        for box, found in zip(judged.boxes[own].tolist(), judged.scores[own], strict=True):
            expected = windows().descriptors[proposals[tuple(box)]] @ made.exemplars.coef_.T + made.exemplars.intercept_
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
        objects = [instance.box for instance in record.instances if instance.class_name == "three"]
        np.testing.assert_array_equal(judged.objects[judged.object_image == k], np.array(objects).reshape(-1, 4))


def test_the_ranking_is_that_of_an_evaluation():
    _, scores = scored()
    judged, options = scores.judged, DetectionOptions(nms=1.0, max_detections=None)
    best = judged.scores.max(axis=1).astype(float)
    found = []
    for k, record in enumerate(windows().records):
        own = judged.image == k
        names = np.full(own.sum(), "three")
        found.append(Detections(record.image_id, judged.boxes[own], best[own], names, np.full(own.sum(), -1)))
    expected = evaluate_detections(windows().records, found, classes=["three"])["three"].average_precision
    assert judged.ranking(best, options).average_precision() == pytest.approx(expected)


def test_a_sample_of_images_weighs_as_much_as_all(monkeypatch):
    monkeypatch.setattr("eesvm.detector.left_out.MOST_WITH", 3)
    monkeypatch.setattr("eesvm.detector.left_out.MOST_WITHOUT", 2)
    made, _ = scored()
    judged = judged_windows(windows(), "three", made.exemplars)
    has = np.isin(np.arange(judged.n_images), judged.object_image)
    assert has.sum() == 3
    n_with = sum(any(i.class_name == "three" for i in record.instances) for record in windows().records)
    assert judged.weights[has].sum() == pytest.approx(n_with)
    assert judged.weights.sum() == pytest.approx(len(windows().records) if (~has).any() else n_with)


# Leaving out


def test_images_that_are_left_out_are_neither_calibrated_on_nor_scored_by_their_exemplars():
    _, scores = scored()
    seen = []

    def watched(others):
        seen.append((set(others.table.groups.tolist()), set(others.table.exemplar_groups.tolist())))
        return fit(others)

    left_out(scores, watched, DetectionOptions())
    images = {record.image_id for record in windows().records}
    assert len(seen) == min(FOLDS, len(set(scores.table.exemplar_groups.tolist())))
    missing = [images - groups for groups, _ in seen]
    assert set.union(*missing) == images
    assert sum(map(len, missing)) == len(images)
    for gone, (_, exemplars) in zip(missing, seen, strict=True):
        assert not gone & exemplars


@pytest.mark.long
def test_precisions_are_those_of_a_slow_version():
    _, scores = scored()
    judged, options, kept = scores.judged, DetectionOptions(), []

    def watched(others):
        kept.append((others, fit(others)))
        return kept[-1][1]

    found = left_out(scores, watched, options)
    for place, strength in enumerate(STRENGTHS):
        pooled = np.full(len(judged.image), np.nan)
        for others, calibrator in kept:
            used = np.isin(scores.table.exemplar_names, others.table.exemplar_names)
            absent = ~np.isin(judged.image_ids, others.table.groups)
            scales = own_scales(calibrator, highest_elsewhere(others))
            for row in np.flatnonzero(absent[judged.image]):
                own = ShrunkenCalibrator.of(scales, strength).transform(judged.scores[row : row + 1, used])[0]
                pooled[row] = np.sort(own)[-5:].mean()
        expected = judged.ranking(pooled, options).average_precision(judged.weights)
        assert found.precisions[place] == pytest.approx(expected)


def test_the_recall_left_out_and_the_shift_that_keeps_it():
    _, scores = scored()
    table, kept = scores.table, []
    found = left_out(scores, lambda others: kept.append((others, fit(others))) or kept[-1][1], DetectionOptions())
    accepted, lowered = [], []
    for others, calibrator in kept:
        used = np.isin(table.exemplar_names, others.table.exemplar_names)
        rows = (table.labels == 1) & ~np.isin(table.groups, others.table.groups)
        for shift, where in ((0.0, accepted), (found.shift, lowered)):
            where.append(any_accepts(table.scores[rows][:, used], calibrator.thresholds_ - np.float32(shift)))
    assert np.concatenate(accepted).mean() == pytest.approx(found.recall)
    assert np.concatenate(lowered).mean() >= 0.97


def test_the_best_scores_elsewhere():
    _, scores = scored()
    table, found = scores.table, highest_elsewhere(scores)
    for j, image in enumerate(table.exemplar_groups):
        elsewhere = (table.labels == 1) & (table.groups != image)
        assert found[j] == table.scores[elsewhere, j].max()


# The choice


def test_the_smallest_strength_within_a_standard_error_of_the_best_is_taken():
    random = np.random.default_rng(0)
    for _ in range(500):
        precisions = random.random(6)
        resampled = precisions[:, None] + random.normal(0, random.choice([0.01, 0.2, 1.0]), (6, 40))
        best = precisions.argmax()
        errors = [(resampled[best] - one).std(ddof=1) for one in resampled]
        expected = next(k for k in range(6) if k == best or precisions[best] - precisions[k] <= errors[k])
        assert choose_strength(precisions, resampled) == expected


def test_equal_precisions_choose_no_calibration():
    assert choose_strength(np.full(6, 0.4), np.full((6, 10), 0.4)) == 0


# Calibrators and models


def test_every_kind_has_scales_that_were_drawn_together():
    _, scores = scored()
    options = quick_options(**AUTO)
    names = ("joint-sigmoid", "sigmoid", "affine", "none", "isotonic")
    fitted = calibrate_class(scores, names, options.calibration, pooling=options.detection.pooling, n_jobs=1)
    assert {name for name, one in fitted.items() if hasattr(one, "shrunken_")} == set(SHRINKABLE)
    raw = scores.judged.scores[:50]
    for name in ("joint", "joint-sigmoid", "sigmoid", "affine"):
        rule = score_rule(name, fitted, raw.shape[1], 5)
        assert len(rule.used) == raw.shape[1]
        found, winners = rule(raw, scores.judged.boxes[:50])
        best, values = rule.best(raw, 3)
        assert (best[:, 0] == winners).all()
        assert (np.diff(values, axis=1) <= 0).all()
        if name in ("joint-sigmoid", "sigmoid"):
            assert ((found > 0) & (found < 1)).all()
            assert ((values > 0) & (values < 1)).all()


def test_strength_zero_ranks_as_no_calibration_does():
    _, scores = scored()
    options = quick_options(**(AUTO | {"calibration__shrink": 0.0}))
    fitted = calibrate_class(scores, ("joint-sigmoid", "none"), options.calibration, n_jobs=1)
    raw, boxes = scores.judged.scores, scores.judged.boxes
    shared, none = (score_rule(name, fitted, raw.shape[1], 5)(raw, boxes) for name in ("joint-sigmoid", "none"))
    order = np.argsort(none[0])
    assert (np.diff(shared[0][order]) >= -1e-12).all()
    assert (shared[1] == none[1]).mean() > 0.99


def test_scores_without_whole_images_are_refused():
    made, _ = scored()
    plain = score_class(windows(), made, quick_options(calibration__shrink=None).calibration)
    assert plain.judged is None
    message = "`calibration.shrink` needs scores of whole images: score the class with this option"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        calibrate_class(plain, ["joint"], quick_options(**AUTO).calibration)


def test_names_that_no_calibrator_has_are_refused():
    _, scores = scored()
    for names in (["magic"], ["none", "magic"], iter(["magic"])):
        sentence = f"`names` must be one of {', '.join(map(repr, CALIBRATORS))}, got 'magic'"
        with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
            calibrate_class(scores, names, quick_options().calibration)
    assert calibrate_class(scores, ["single-svm"], quick_options().calibration) == {}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("some", "`calibration.shrink` must be one of 'auto', got 'some'"),
        (1.5, "`calibration.shrink` must be <= 1, got 1.5"),
        (-0.5, "`calibration.shrink` must be >= 0, got -0.5"),
    ],
)
def test_shrinkage_that_cannot_be(value, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        DetectorOptions.make(changes={"calibration.shrink": value})


def test_shrinkage_from_texts():
    for text, value in (("auto", "auto"), ("none", None), ("0.3", 0.3), ("0", 0.0)):
        assert DetectorOptions.make(changes={"calibration.shrink": text}).calibration.shrink == value


@pytest.mark.long
def test_a_model_keeps_its_scales_and_says_them(tmp_path):
    options = quick_options(**AUTO)
    detector = trained(options, folder=tmp_path / "model")
    expected = detections(detector, "joint-sigmoid")
    assert same_detections(detections(ExemplarDetector.load(tmp_path / "model"), "joint-sigmoid"), expected)
    again = trained(options, folder=tmp_path / "model")
    assert again.changed_ == []
    assert same_detections(detections(again, "joint-sigmoid"), expected)
    page = (tmp_path / "model" / "MODEL.md").read_text()
    assert "| class | own share | AP, raw scores | AP, as chosen | recall of thresholds |" in page
    for name in CLASSES:
        assert (tmp_path / "model" / "classes" / name / "judged.safetensors").exists()
        assert (tmp_path / "model" / "classes" / name / "shrunken-joint.safetensors").exists()
    loaded = ExemplarDetector.load(tmp_path / "model")
    assert same_detections(detections(loaded, "affine"), detections(detector, "affine"))  # fitted when asked for
    assert hasattr(loaded.models_[0].calibrators["affine"], "shrunken_")


@pytest.mark.long
def test_another_option_redoes_what_depends_on_it(tmp_path):
    trained(quick_options(**AUTO), folder=tmp_path / "model")
    fixed = trained(quick_options(**(AUTO | {"calibration__shrink": 0.5})), folder=tmp_path / "model")
    assert {name.split(": ")[-1] for name in fixed.changed_} == {"joint", "model"}
    assert all(model.calibrators["joint"].shrunken_.strength_ == 0.5 for model in fixed.models_)
    plain = trained(quick_options(calibration__shrink=None, detection__box_regression=False), folder=tmp_path / "model")
    assert {name.split(": ")[-1] for name in plain.changed_} == {"scores", "kept windows", "joint", "none", "model"}
    assert not list((tmp_path / "model").rglob("shrunken-*")) + list((tmp_path / "model").rglob("judged*"))
    ExemplarDetector.load(tmp_path / "model")


@pytest.mark.long
def test_a_damaged_file_is_refused(tmp_path):
    trained(quick_options(**AUTO), folder=tmp_path / "model")
    file = tmp_path / "model" / "classes" / "three" / "shrunken-joint.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    with pytest.raises(InputError, match="it is damaged or of another model"):
        ExemplarDetector.load(tmp_path / "model")


def test_a_class_in_one_image_cannot_leave_any_out():
    dataset = scenes("train")
    one = next(record for record in dataset if {i.class_name for i in record.instances} == set(CLASSES))
    detector = trained(quick_options(**AUTO), type(dataset)("one", (one,), CLASSES))
    for model in detector.models_:
        assert model.calibrators["joint"].left_out_.chosen in STRENGTHS
