"""Models that grow and shrink: `add`, `drop`, what is kept for them, and the scores that are suggested."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from eesvm import ExemplarDetector, InputError
from eesvm.calibration.calibrators.shrinkage import ShrunkenCalibrator, own_scales
from eesvm.cli import main
from eesvm.cli.drop import _numbers
from eesvm.datasets import write_coco
from eesvm.datasets.scenes import make_scenes
from eesvm.detector import training_run
from eesvm.detector.grown_scores import corrected, places_of
from eesvm.detector.kept_windows import keep_windows, read_kept, write_kept
from eesvm.detector.news import News
from eesvm.detector.shrinkage import highest_elsewhere
from eesvm.detector.suggestions import _chosen, suggest_score
from eesvm.detector.training_descriptor import training_windows
from eesvm.exemplars.scoring import score_windows
from eesvm.metrics.detection_files import read_detections
from eesvm.metrics.detections import Ranking
from eesvm.structures import Dataset
from helpers.detector_scenes import CLASSES, detections, quick_options, same_detections, scenes, shared_cache, trained
from helpers.examples import few
from helpers.trainings import model_files


def some(dataset, rows, classes=CLASSES):
    """Some images with the objects of some classes."""
    images = [
        replace(dataset[row], instances=tuple(i for i in dataset[row].instances if i.class_name in classes))
        for row in rows
    ]
    return Dataset("scenes", tuple(images), tuple(classes))


def few_windows(**changes):
    """Quick options with a hundred windows an image: nearly every test here calibrates in five folds, again and again."""
    return quick_options(windows__max_windows=100, **changes)


@cache
def first():
    """A detector of the first eight training scenes."""
    return trained(few_windows(), some(scenes("train"), range(8)))


def copied(detector=None):
    """The same detector again, to be changed."""
    detector = first() if detector is None else detector
    other = ExemplarDetector(detector.options)
    other.models_, other.classes_ = list(detector.models_), detector.classes_
    other.descriptor_, other.inputs_, other.problems_ = detector.descriptor_, dict(detector.inputs_), ()
    return other


@cache
def grown_once():
    return copied().partial_fit(some(scenes("train"), range(8, 12)), cache=shared_cache())


def grown():
    """The detector with the objects of four more scenes."""
    return copied(grown_once())


def test_what_is_kept_is_the_same_whether_windows_were_scored_before_or_not(monkeypatch):
    options, images = few_windows(), some(scenes("train"), range(8))
    given = []

    def keep_anew(*arguments):
        given.append(arguments[-1])
        return keep_windows(*arguments[:-1])

    monkeypatch.setattr(training_run, "keep_windows", keep_anew)
    anew = ExemplarDetector(options).fit(images, cache=shared_cache())
    assert all(judged is not None and judged.rows is not None for judged in given)
    for one, other in zip(first().models_, anew.models_, strict=True):
        kept, expected = one.read_kept(), other.read_kept()
        for name in ("rows", "hard", "hard_boxes", "hard_images", "judged_rows"):
            np.testing.assert_array_equal(getattr(kept, name), getattr(expected, name))
        for name in ("scores", "boxes", "image", "image_ids", "weights", "objects", "object_image", "is_ignored"):
            np.testing.assert_array_equal(getattr(kept.judged, name), getattr(expected.judged, name))
        assert kept.judged.rows is None


def n_objects(dataset, name):
    return sum(1 for _ in dataset.instances(name))


def test_added_exemplars_stand_behind_the_others_which_stay_as_they_are():
    before, after = first(), grown()
    more = some(scenes("train"), range(8, 12))
    for old, new in zip(before.models_, after.models_, strict=True):
        n = old.n_exemplars
        assert new.n_exemplars == n + n_objects(more, old.class_name)
        assert np.array_equal(new.exemplars.coef_[:n], old.exemplars.coef_)
        assert new.annotations[:n] == old.annotations
        assert [one.image_id for one in new.annotations[n:]] == [i.image_id for i in more.instances(old.class_name)]
        table, known = new.read_scores().table, old.read_scores().table
        assert np.array_equal(table.scores[: known.n_rows, :n], known.scores)
        assert len(new.read_kept().rows) == table.n_rows
        assert new.single.weights.shape == old.single.weights.shape
        assert not np.array_equal(new.single.weights, old.single.weights)
    assert first().models_[0].n_exemplars == before.models_[0].n_exemplars


def test_scores_of_the_table_are_those_of_the_windows():
    after = grown()
    for model in after.models_:
        table, kept = model.read_scores().table, model.read_kept()
        again = score_windows(kept.rows, model.exemplars.coef_, model.exemplars.intercept_)
        np.testing.assert_allclose(table.scores, again, atol=0.02)  # kept as float16
        n_old = first().models_[after.classes_.index(model.class_name)].read_scores().table.n_rows
        np.testing.assert_allclose(table.scores[n_old:], again[n_old:], atol=1e-5)


@pytest.mark.long
def test_a_model_that_has_grown_detects_and_is_saved(tmp_path):
    after = grown()
    found = detections(after, "joint-sigmoid")
    assert max(one.exemplars.max() for one in found if len(one)) < len(after.exemplars_)
    after.save(tmp_path / "model")
    again = ExemplarDetector.load(tmp_path / "model")
    assert same_detections(detections(again, "joint-sigmoid"), found)
    changes = json.loads((tmp_path / "model/model.json").read_text())["inputs"]["changes"]
    assert [one["what"] for one in changes] == ["added"]
    assert "## What was changed after training" in (tmp_path / "model/MODEL.md").read_text()
    assert again.partial_fit(some(scenes("test"), range(2)), cache=shared_cache()).inputs_["changes"][0] == changes[0]


def test_a_new_class_has_the_windows_of_the_others_as_negatives():
    only = trained(few_windows(), some(scenes("train"), range(8), ["three"]), ["three"])
    n = only.models_[0].n_exemplars
    more = some(scenes("train"), range(8, 12), ["eight"])
    only.partial_fit(more, cache=shared_cache())
    assert only.classes_ == ("three", "eight")
    three, eight = only.models_
    assert (three.n_exemplars, eight.n_exemplars) == (n, n_objects(more, "eight"))
    assert set(eight.calibrators) == set(three.calibrators)
    table = eight.read_scores().table
    assert table.n_positives > 0
    assert table.n_rows - table.n_positives >= three.read_scores().table.n_rows
    found = detections(only, "joint-sigmoid")
    assert {name for one in found for name in one.class_names.tolist()} == {"three", "eight"}


def test_objects_that_are_exemplars_already_are_left_out():
    detector = copied()
    with pytest.raises(InputError) as error:
        detector.partial_fit(some(scenes("train"), range(8)), cache=shared_cache())
    assert str(error.value) == ("there is nothing to add: all objects of scenes are exemplars of the model already")
    detector.partial_fit(some(scenes("train"), range(6, 10)), cache=shared_cache())
    assert detector.changes_.n_known == sum(n_objects(some(scenes("train"), range(6, 8)), name) for name in CLASSES)


def test_an_object_that_was_missed_in_a_training_image_is_no_negative_any_more():
    whole = scenes("train")
    row = next(k for k in range(8) if sum(i.class_name == "eight" for i in whole[k].instances) >= 1)
    record = whole[row]
    missed = next(i for i in record.instances if i.class_name == "eight")
    poorer = [
        replace(
            one, instances=tuple(i for i in one.instances if (i.image_id, i.index) != (record.image_id, missed.index))
        )
        for one in some(whole, range(8))
    ]
    detector = trained(few_windows(), Dataset("poorer", tuple(poorer), CLASSES), ["eight"])
    model, options = detector.models_[0], detector.options
    kept, scores = corrected(model.read_kept(), model.read_scores(), [missed], options)
    from eesvm.boxes import iou

    is_here = np.asarray(scores.table.groups) == record.image_id
    overlaps = iou(scores.boxes[is_here], missed.box[None])[:, 0]
    labels = np.asarray(scores.table.labels)[is_here]
    assert (overlaps[labels == 0] <= options.calibration.negative_overlap).all()
    near = kept.hard_images == record.image_id
    assert (iou(kept.hard_boxes[near], missed.box[None]) <= options.training.max_overlap).all()
    assert scores.table.n_rows == len(kept.rows) == len(scores.boxes) == len(scores.single)
    n = model.n_exemplars
    detector.partial_fit(some(whole, [row], ["eight"]), cache=shared_cache())
    after = detector.models_[0]
    assert after.n_exemplars == n + 1
    table = after.read_scores().table
    own = np.asarray(table.groups) == record.image_id
    negatives = after.read_scores().boxes[own & (np.asarray(table.labels) == 0)]
    assert (iou(negatives, missed.box[None]) <= options.calibration.negative_overlap).all()


def test_what_was_rejected_joins_the_negatives():
    more = some(scenes("train"), range(8, 10), ["three"])
    images = Dataset("scenes", tuple(replace(record, instances=()) for record in more), CLASSES)
    box = [5.0, 5.0, 45.0, 45.0]
    rejected = {record.image_id: [("three", box)] for record in images}
    detector = copied()
    detector.partial_fit(images, rejected=rejected, cache=shared_cache())
    before, after = first().models_[0], detector.models_[0]
    assert after.n_exemplars == before.n_exemplars
    windows = training_windows(images, detector.options, descriptor=detector.descriptor_, cache=shared_cache())
    news = News.of(windows, "three", (), rejected, set(), detector.options)
    assert news.is_rejected.sum() > 0
    n_new = after.read_scores().table.n_rows - before.read_scores().table.n_rows
    assert n_new >= news.is_rejected.sum()
    n_images = len(np.unique(windows.image[news.is_rejected]))
    assert detector.changes_.texts == (
        f"no exemplar of three, hard negatives from {n_images} image{'s' * (n_images != 1)}",
    )
    assert np.array_equal(detector.models_[1].exemplars.coef_, first().models_[1].exemplars.coef_)


def test_dropping_exemplars_is_training_scores_without_their_columns():
    detector, before = copied(), first()
    detector.drop([0, 2])
    old, new = before.models_[0], detector.models_[0]
    stay = [k for k in range(old.n_exemplars) if k not in (0, 2)]
    assert np.array_equal(new.exemplars.coef_, old.exemplars.coef_[stay])
    assert np.array_equal(new.read_scores().table.scores, old.read_scores().table.scores[:, stay])
    assert [one.image_id for one in new.annotations] == [old.annotations[k].image_id for k in stay]
    assert detector.models_[1] is before.models_[1]
    assert detector.inputs_["changes"][-1]["what"] == "dropped"


def test_adding_and_dropping_the_same_gives_the_same_columns():
    after, before = grown(), first()
    n = before.models_[0].n_exemplars
    rest = before.models_[0].n_exemplars + (after.models_[0].n_exemplars - n)
    new = [*range(n, rest), *range(rest + before.models_[1].n_exemplars, len(after.exemplars_))]
    after.drop(new)
    for old, again in zip(before.models_, after.models_, strict=True):
        assert np.array_equal(again.exemplars.coef_, old.exemplars.coef_)
        assert again.annotations == old.annotations


def test_what_images_left_out_said_stands_until_much_has_changed(monkeypatch, tmp_path):
    detector, before = copied(), first().models_[0]
    monkeypatch.setattr("eesvm.detector.grown_class._LITTLE", 1.5 / (before.n_exemplars - 1))
    said = before.calibrators["joint"].left_out_
    detector.drop([0])
    once = detector.models_[0]
    assert once.calibrators["joint"].left_out_ is said
    assert (once.calibrators["joint"].shrunken_.link_, once.facts["n_changed"]) == (said.link, 1)
    expected = ShrunkenCalibrator.of(
        own_scales(once.calibrators["joint"], highest_elsewhere(once.read_scores())), said.chosen
    )
    assert np.array_equal(once.calibrators["joint"].shrunken_.offsets_, expected.offsets_)
    detector.save(tmp_path / "model")
    card = (tmp_path / "model" / "MODEL.md").read_text()
    assert "Since then few exemplars came, went or met hard negatives: 1 of three." in card
    again = ExemplarDetector.load(tmp_path / "model").drop([0]).models_[0]
    assert again.n_exemplars == before.n_exemplars - 2
    assert again.calibrators["joint"].left_out_ != said
    assert "n_changed" not in again.facts


def test_a_class_without_exemplars_goes():
    detector = copied()
    n = detector.models_[0].n_exemplars
    detector.drop(range(n))
    assert detector.classes_ == ("eight",)


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ([99], "there is no exemplar 99: the model has {n}, counted from 0"),
        ([-1], "there is no exemplar -1: the model has {n}, counted from 0"),
        ([], "no exemplar is named that is to be dropped"),
        (None, "all {n} exemplars would go: a model needs at least one"),
    ],
)
def test_exemplars_that_cannot_be_dropped(numbers, sentence):
    n = len(first().exemplars_)
    with pytest.raises(InputError) as error:
        copied().drop(range(n) if numbers is None else numbers)
    assert str(error.value) == sentence.format(n=n)


@pytest.mark.parametrize(
    ("classes", "sentence"),
    [
        (["dog"], "the class 'dog' has no object to learn from in scenes"),
        (None, "there is nothing to add: scenes has no object to learn from"),
    ],
)
def test_nothing_to_add(classes, sentence):
    empty = Dataset("scenes", tuple(replace(record, instances=()) for record in scenes("test")[:2]), CLASSES)
    with pytest.raises(InputError) as error:
        copied().partial_fit(empty, classes, cache=shared_cache())
    assert str(error.value) == sentence


def test_a_model_that_keeps_no_windows_cannot_grow():
    detector = copied()
    detector.models_ = [replace(model, read_kept=None) for model in detector.models_]
    with pytest.raises(InputError) as error:
        detector.partial_fit(some(scenes("test"), range(2)), cache=shared_cache())
    assert str(error.value) == (
        "nothing can be added to this model: of three it keeps no windows of its training images, as models of earlier "
        "versions do not; train it anew"
    )
    with pytest.raises(InputError) as error:
        detector.suggested_scores()
    assert str(error.value) == ("the model cannot suggest scores: it keeps no windows of its training images")


@pytest.mark.long
@pytest.mark.parametrize(
    ("trainer", "shrink"), few([("svm", 0.3), ("lda", None), ("svm", None), ("lda", 0.3)], 2), ids=str
)
def test_every_kind_of_model_can_grow(trainer, shrink):
    options = few_windows(
        calibration__shrink=shrink, training__trainer=trainer, training__prior=None if trainer == "lda" else "class"
    )
    only = ("three",)
    detector = trained(options, some(scenes("train"), range(6), only), calibrators=["affine", "sigmoid"])
    n = len(detector.exemplars_)
    detector.partial_fit(some(scenes("train"), range(8, 10), only), cache=shared_cache())
    assert len(detector.exemplars_) > n
    for model in detector.models_:
        assert set(model.calibrators) == {"joint", "affine", "sigmoid"}
        judged = model.read_scores().judged
        assert (judged is None) == (shrink is None)
        if judged is not None:
            assert judged.scores.shape == (len(judged.image), model.n_exemplars)
    detector.drop([0])
    detections(detector, "affine")


def test_the_search_starts_from_the_thresholds_there_are():
    detector = trained(
        few_windows(calibration__method="exact", calibration__node_limit=3), some(scenes("train"), range(8))
    )
    detector.partial_fit(some(scenes("train"), range(8, 10)), time_limit=0.0, cache=shared_cache())
    for model in detector.models_:
        joint = model.calibrators["joint"]
        table = model.read_scores().table
        problem = table.problem(True)
        assert problem.recall(joint.thresholds_) >= 1 - 1e-9
        assert joint.start is None


# What is kept


def test_kept_windows_are_read_back(tmp_path):
    kept = first().models_[0].read_kept()
    write_kept(tmp_path / "kept.safetensors", kept)
    again = read_kept(tmp_path / "kept.safetensors", kept.rows.shape[1], len(kept.rows))
    for name in ("rows", "hard", "hard_boxes", "hard_images", "judged_rows"):
        np.testing.assert_allclose(getattr(again, name), getattr(kept, name), rtol=1e-3) if name.endswith(
            "rows"
        ) or name == "hard" else np.testing.assert_array_equal(getattr(again, name), getattr(kept, name))
    assert np.array_equal(again.judged.image_ids, kept.judged.image_ids)
    write_kept(tmp_path / "again.safetensors", again)
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "kept.safetensors").read_bytes()
    with pytest.raises(InputError, match=r"`rows` must have shape \(\d+, 7\), got \(\d+, \d+\)$"):
        read_kept(tmp_path / "kept.safetensors", 7)


# Suggested scores


def slow_suggestion(model, options, precision=None):
    """Every score that a detection has as threshold, by counting."""
    from eesvm import boxes as geometry
    from eesvm.detector.class_calibration import score_rule

    kept = model.read_kept()
    rule = score_rule("joint-sigmoid", model.calibrators, model.n_exemplars, options.detection.pooling)
    raw = score_windows(kept.judged_rows, model.exemplars.coef_, model.exemplars.intercept_)[:, rule.used]
    own = np.array([one.image_id for one in model.annotations])[rule.used]
    hits, n_objects, weights = [], 0.0, []
    for k, image_id in enumerate(kept.judged.image_ids.tolist()):
        rows = np.flatnonzero(kept.judged.image == k)
        scores = raw[rows].copy()
        scores[:, own == image_id] = raw.min(axis=0)[own == image_id]
        if (own == image_id).all():
            continue
        final, _ = rule(scores, kept.judged.boxes[rows])
        boxes = kept.judged.boxes[rows]
        if model.regressor is not None:
            boxes = model.regressor.move(boxes, kept.judged_rows[rows])
        left = geometry.nms(boxes, final, options.detection.nms, options.detection.overlap)
        objects = kept.judged.objects[kept.judged.object_image == k]
        n_objects += kept.judged.weights[k] * len(objects)
        taken = set()
        for row in left.tolist():
            overlaps = geometry.iou(boxes[row][None], objects)[0] if len(objects) else np.zeros(0)
            best = int(overlaps.argmax()) if len(overlaps) else -1
            is_hit = best >= 0 and overlaps[best] >= 0.5 and best not in taken
            taken |= {best} if is_hit else set()
            hits.append((float(final[row]), is_hit))
            weights.append(kept.judged.weights[k])
    found = []
    for least in sorted({score for score, _ in hits}):
        chosen = [(is_hit, w) for (score, is_hit), w in zip(hits, weights, strict=True) if score >= least]
        n_hits = sum(w for is_hit, w in chosen if is_hit)
        found.append((least, n_hits / sum(w for _, w in chosen), n_hits / n_objects))
    if precision is not None:
        return min((one for one in found if one[1] >= precision), default=None)
    return max(found, key=lambda one: (2 * one[1] * one[2] / max(1e-12, one[1] + one[2]), one[0]))


def test_suggested_scores_are_the_best_by_counting():
    detector = trained(few_windows(), some(scenes("train"), range(6)))
    for model in detector.models_:
        one = suggest_score(model, detector.options)
        least, precision, recall = slow_suggestion(model, detector.options)
        assert (one.score, one.precision, one.recall) == pytest.approx((least, precision, recall))
        wanted = slow_suggestion(model, detector.options, one.precision)
        assert suggest_score(model, detector.options, precision=one.precision).score == pytest.approx(wanted[0])
    assert suggest_score(detector.models_[0], detector.options, "single-svm") is None


def ranking(scores, hits, n_objects):
    nobody = np.zeros(len(scores), dtype=np.int64)
    objects = np.zeros(n_objects, dtype=np.int64)
    return Ranking("dog", np.array(hits, dtype=bool), np.array(scores), nobody, objects, 0, 0, False)


def test_scores_with_a_precision():
    found = ranking([0.9, 0.8, 0.8, 0.3, 0.2], [True, False, True, True, False], 4)
    assert _chosen(found, np.ones(1), None, "joint", "dog").score == 0.3
    assert _chosen(found, np.ones(1), 0.7, "joint", "dog").score == 0.3
    assert _chosen(found, np.ones(1), 0.76, "joint", "dog").score == 0.9
    worse = ranking([0.9, 0.8], [False, True], 1)
    with pytest.raises(InputError) as error:
        _chosen(worse, np.ones(1), 0.6, "joint", "dog")
    assert str(error.value) == (
        "no score gives detections of dog a precision of 0.6 in the training images: the highest is 0.5"
    )
    assert _chosen(ranking([0.9], [False], 1), np.ones(1), None, "joint", "dog") is None
    assert _chosen(ranking([], [], 1), np.ones(1), None, "joint", "dog") is None


@pytest.mark.long
def test_a_model_with_a_kernel_map_grows_and_shrinks(tmp_path):
    kernel_map = {"descriptor__n_components": 24, "descriptor__kernel_map": 60, "descriptor__kernel_components": 40}
    options, images = few_windows(**kernel_map), some(scenes("train"), range(5))
    detector = trained(options, images)
    detector.save(tmp_path / "model")
    ExemplarDetector(options.changed({"n_jobs": 2})).fit(images).save(tmp_path / "two")  # without a cache
    assert model_files(tmp_path / "model") == model_files(tmp_path / "two")

    loaded, n = ExemplarDetector.load(tmp_path / "model"), len(detector.exemplars_)
    assert same_detections(detections_of(detector), detections_of(loaded))
    loaded.partial_fit(some(scenes("train"), range(5, 6)), cache=shared_cache())
    new = [k for k, one in enumerate(loaded.exemplars_) if one.image_id == scenes("train")[5].image_id]
    assert new
    assert len(loaded.exemplars_) == n + len(new)
    assert all(one.exemplars.coef_.shape[1] == 40 for one in loaded.models_)
    loaded.save(tmp_path / "grown")
    grown = ExemplarDetector.load(tmp_path / "grown")
    assert same_detections(detections_of(loaded), detections_of(grown))
    grown.drop(new)
    for one, other in zip(detector.models_, grown.models_, strict=True):
        np.testing.assert_array_equal(one.exemplars.coef_, other.exemplars.coef_)
    assert len(detections_of(grown)) == 2


def detections_of(detector):
    return detector.predict(scenes("test")[:2])


# The verbs


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two datasets and a model of the first, made by the verbs."""
    folder = tmp_path_factory.mktemp("growing")
    drawn = make_scenes(12, 2, classes=CLASSES)
    train = [record for record in drawn if record.image_id.startswith("train")]
    for name, images in (("first", train[:8]), ("more", train[8:])):
        write_coco(Dataset(name, tuple(images), CLASSES), folder / name)
    options = [
        "--windows",
        "grid",
        "--max-windows",
        "60",
        "--descriptor",
        "hog",
        "--set",
        "descriptor.n_components=none",
        "--set",
        "descriptor.kernel_map=none",
    ]
    assert main(["train", str(folder / "first"), "-o", str(folder / "model"), *options, "--no-cache", "--quiet"]) == 0
    return folder


def test_add_and_drop(place, tmp_path, capsys):
    model, out = str(place / "model"), str(tmp_path / "grown")
    assert main(["add", model, str(place / "more"), "-o", out, "--no-cache", "--time-limit", "1"]) == 0
    said = capsys.readouterr().out
    assert "exemplars of eight from" in said
    n = len(ExemplarDetector.load(out).exemplars_)
    assert main(["add", out, str(place / "more"), "--no-cache", "--quiet"]) == 1
    assert capsys.readouterr().err == (
        "eesvm: error: there is nothing to add: all objects of more are exemplars of the model already\n"
    )
    name = ExemplarDetector.load(out).exemplars_[1].image_id
    assert main(["drop", out, "0", name, "--time-limit", "1"]) == 0
    left = ExemplarDetector.load(out)
    assert len(left.exemplars_) < n
    assert name not in {one.image_id for one in left.exemplars_}
    assert [one["what"] for one in left.inputs_["changes"]] == ["added", "dropped"]
    assert main(["drop", out, "nobody"]) == 1
    assert capsys.readouterr().err == (
        "eesvm: error: the model has no exemplar 'nobody': name its number, its image, or 'IMAGE, object K'\n"
    )


def test_least_scores_and_files_for_other_tools_by_the_verb(place, tmp_path, capsys):
    detector, more = first(), str(place / "more")
    detector.save(tmp_path / "model")
    out = [
        "detect",
        str(tmp_path / "model"),
        more,
        "-o",
        str(tmp_path / "found"),
        "--no-cache",
        "--format",
        "csv,yolo,cvat",
    ]
    assert main([*out, "--score", "auto", "--draw"]) == 0
    least = detector.suggested_scores()
    assert f"least scores: {', '.join(f'{name} {score:.3g}' for name, score in least.items())}" in " ".join(
        capsys.readouterr().out.split()
    )
    assert sorted(path.name for path in (tmp_path / "found").iterdir()) == [
        ".eesvm-output", "cvat.xml", "cvat_labels.json", "detections.csv", "images.csv", "pictures", "yolo",
    ]  # fmt: skip
    assert len(list((tmp_path / "found/pictures").glob("*.jpg"))) == 4
    for found in read_detections(tmp_path / "found"):
        assert found.at_least(least) == found


def test_training_does_not_go_on_with_a_model_that_has_grown(place, tmp_path, capsys):
    out = str(tmp_path / "grown")
    assert main(["add", str(place / "model"), str(place / "more"), "-o", out, "--no-cache", "--quiet"]) == 0
    assert main(["train", str(place / "first"), "-o", out, "--no-cache", "--quiet"]) == 1
    assert str(out) in capsys.readouterr().err


def test_files_of_others_in_a_model_folder_are_not_lost(place, tmp_path, capsys):
    shutil.copytree(place / "model", tmp_path / "model")
    (tmp_path / "model/notes.txt").write_text("mine")
    assert main(["drop", str(tmp_path / "model"), "0", "--time-limit", "1"]) == 1
    assert capsys.readouterr().err == (
        f"eesvm: error: {tmp_path / 'model'} is not replaced: it holds notes.txt, which is no part of the model\n"
    )
    assert (tmp_path / "model/notes.txt").read_text() == "mine"


@pytest.mark.long
def test_an_interrupted_add_leaves_the_model_whole(place, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(place / "model", model)
    before = {path.relative_to(model): path.read_bytes() for path in model.rglob("*") if path.is_file()}
    for delay in (0.5, 1.5, 2.5):
        command = [sys.executable, "-m", "eesvm", "add", str(model), str(place / "more"), "--no-cache", "--quiet"]
        with subprocess.Popen(command, env=os.environ, stderr=subprocess.DEVNULL) as running:
            time.sleep(delay)
            running.send_signal(signal.SIGKILL)
        after = {path.relative_to(model): path.read_bytes() for path in model.rglob("*") if path.is_file()}
        if after != before:  # it was quicker than that: then it must be whole, too
            assert len(ExemplarDetector.load(model).exemplars_) > len(ExemplarDetector.load(place / "model").exemplars_)
            return
        ExemplarDetector.load(model)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--score", "0.5", "--precision", "0.9"], "--precision needs --score auto"),
        (["--format", "yolo-seg"], "--format must be some of csv, coco, voc, yolo, label-studio, cvat, labelme, joined by "
         "commas, got 'yolo-seg': `eesvm transfer` writes masks"),
    ],
)  # fmt: skip
def test_wrong_calls(place, tmp_path, capsys, arguments, sentence):
    out = ["-o", str(tmp_path / "found"), "--no-cache"]
    assert main(["detect", str(place / "model"), str(place / "more"), *out, *arguments]) == 2
    assert capsys.readouterr().err == f"eesvm: error: {sentence}\n"
    assert main(["detect", str(place / "model"), str(place / "more"), "-o", str(tmp_path / "f.csv"), "--draw"]) == 2
    assert capsys.readouterr().err == (f"eesvm: error: {tmp_path / 'f.csv'} is one file: for --draw, name a folder\n")


def test_a_card_whose_changes_are_none_is_refused(place, tmp_path):
    shutil.copytree(place / "model", tmp_path / "model")
    card = json.loads((tmp_path / "model/model.json").read_text())
    for changes in ("x", [1], [{"what": "added"}]):
        card["inputs"]["changes"] = changes
        (tmp_path / "model/model.json").write_text(json.dumps(card))
        with pytest.raises(InputError) as error:
            ExemplarDetector.load(tmp_path / "model")
        assert str(error.value) == (
            f"{tmp_path / 'model/model.json'}: `inputs.changes` must be a list of objects with a text each"
        )


def test_an_image_that_is_added_again_has_its_windows_once():
    more = some(scenes("train"), range(8, 10), ["three"])
    images = Dataset("scenes", tuple(replace(record, instances=()) for record in more), CLASSES)
    rejected = {record.image_id: [("three", [5.0, 5.0, 45.0, 45.0])] for record in images}
    detector = copied()
    places = []
    for _ in range(2):
        detector.partial_fit(images, rejected=rejected, cache=shared_cache())
        scores, kept = detector.models_[0].read_scores(), detector.models_[0].read_kept()
        places.append(places_of(np.asarray(scores.table.groups), scores.boxes))
        assert len(kept.rows) == len(scores.boxes) == scores.table.n_rows
        hard = places_of(kept.hard_images, kept.hard_boxes)
        assert len(set(hard.tolist())) == len(hard)
    assert sorted(places[0]) == sorted(places[1])


def test_own_images_give_no_negatives_where_options_say_so():
    options = few_windows(training__own_image=False)
    detector = trained(options, some(scenes("train"), range(8), ["three"]), ["three"])
    n = detector.models_[0].n_exemplars
    more = some(scenes("train"), range(8, 12), ["three"])
    detector.partial_fit(more, cache=shared_cache())
    other = trained(few_windows(), some(scenes("train"), range(8), ["three"]), ["three"])
    other.partial_fit(more, cache=shared_cache())
    with_own, without = (one.models_[0].exemplars.coef_[n:] for one in (other, detector))
    assert with_own.shape == without.shape
    assert not np.array_equal(with_own, without)


def test_a_model_with_another_calibrator_by_default_is_saved_whole(tmp_path):
    detector = copied()
    detector.models_ = [replace(one, calibrators=dict(one.calibrators)) for one in detector.models_]
    detector.options = detector.options.changed({"calibration.calibrator": "affine"})
    detector.save(tmp_path / "model")
    assert "affine" in ExemplarDetector.load(tmp_path / "model").models_[0].calibrators


def test_a_number_that_is_also_an_image():
    detector = copied()
    model = detector.models_[0]
    renamed = (replace(model.annotations[0], image_id="1"), *model.annotations[1:])
    detector.models_ = [replace(model, annotations=renamed), *detector.models_[1:]]
    with pytest.raises(InputError, match=r"^1 is the number of an exemplar and the name of an image: write #1, or "):
        _numbers("1", detector)
    assert _numbers("#1", detector) == [1]
    assert _numbers(f"1, object {renamed[0].index + 1}", detector) == [0]
