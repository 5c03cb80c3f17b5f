"""Calibration windows scored by a class prior that has not seen their image."""

from dataclasses import replace

import numpy as np
import pytest

from eesvm._support.validation import InputError
from eesvm.boxes import iou
from eesvm.detector import score_class, train_class
from eesvm.detector.class_training import calibration_rows, class_rows
from eesvm.detector.cross_fitting import FOLDS, _folds, cross_fitted, moved_by
from eesvm.detector.options import DetectorOptions
from eesvm.detector.training_descriptor import training_windows
from eesvm.exemplars.single_svm import LinearSVM
from helpers.detector_scenes import quick_options, scenes, shared_cache, trained

OPTIONS = quick_options(calibration__cross_fit=True)


@pytest.fixture(scope="module")
def work():
    windows = training_windows(scenes("train"), OPTIONS, cache=shared_cache())
    found = train_class(windows, "three", OPTIONS.training)
    return windows, found, score_class(windows, found, OPTIONS.calibration)


def test_each_window_is_scored_without_its_fold_of_the_images(work):
    windows, found, scores = work
    moved = cross_fitted(windows, found, scores, OPTIONS)
    rows, _ = class_rows(windows, "three", OPTIONS.training, 0)
    chosen, _, _ = calibration_rows(windows, "three", OPTIONS.calibration)
    fold = _folds(windows, "three", 0)
    for number in range(FOLDS):
        own = rows.own[fold[rows.own_image] != number]
        negatives = rows.is_single_negative & (fold[windows.image] != number)
        other = LinearSVM(loss=OPTIONS.training.single_loss).fit(windows.descriptors[own], windows.rows(negatives))
        change = other.coef_ - found.single.weights, other.intercept_ - found.single.bias
        for places, before, after in (
            (chosen, scores.table.scores, moved.table.scores),
            (scores.judged.rows, scores.judged.scores, moved.judged.scores),
        ):
            is_of_fold = fold[windows.image[places]] == number
            expected = windows.descriptors[places[is_of_fold]] @ change[0] + change[1]
            difference = after[is_of_fold] - before[is_of_fold]
            np.testing.assert_allclose(
                difference, np.repeat(expected[:, None], before.shape[1], 1), rtol=1e-3, atol=1e-3
            )


def test_objects_score_lower_where_the_prior_has_not_learned_them(work):
    windows, found, scores = work
    moved = cross_fitted(windows, found, scores, OPTIONS)
    is_object = (np.asarray(scores.table.labels) == 1) & (scores.overlaps > 0.999)
    assert (moved.table.scores - scores.table.scores)[is_object].mean() < 0
    np.testing.assert_array_equal(moved.single, scores.single)


@pytest.mark.parametrize(
    "changes",
    [
        {"calibration.cross_fit": False},
        {"calibration.cross_fit": False, "calibration.min_recall": 0.95},
        {"calibration.cross_fit": "auto"},
        {"training.prior": None},
    ],
)
def test_without_the_option_or_a_prior_scores_stay(work, changes):
    windows, found, scores = work
    assert cross_fitted(windows, found, scores, OPTIONS.changed(changes)) is scores


def test_a_floor_below_all_positives_is_cut_through_scores_of_images_left_out(work):
    windows, found, scores = work
    auto = OPTIONS.changed({"calibration.cross_fit": "auto", "calibration.min_recall": 0.95})
    moved, wanted = (cross_fitted(windows, found, scores, options).table for options in (auto, OPTIONS))
    np.testing.assert_array_equal(moved.scores, wanted.scores)


def test_the_default_leaves_it_to_the_floor():
    calibration = DetectorOptions().calibration
    assert calibration.cross_fit == "auto"
    assert not calibration.is_cross_fitted
    assert replace(calibration, min_recall=0.95).is_cross_fitted
    assert not replace(calibration, min_recall=0.95, cross_fit=False).is_cross_fitted
    assert DetectorOptions.make(changes={"calibration.cross_fit": "true"}).calibration.is_cross_fitted
    with pytest.raises(InputError, match=r"^`calibration\.cross_fit` must be one of "):
        DetectorOptions.make(changes={"calibration.cross_fit": "sometimes"})


@pytest.mark.long
def test_how_far_windows_were_moved_can_be_told_from_their_scores(work):
    windows, found, scores = work
    moved = cross_fitted(windows, found, scores, OPTIONS)
    chosen, _, _ = calibration_rows(windows, "three", OPTIONS.calibration)
    told = moved_by(windows.descriptors[chosen], moved.table.scores, found.exemplars)
    np.testing.assert_allclose(moved.table.scores - told, scores.table.scores, rtol=1e-3, atol=1e-3)
    assert (moved_by(windows.descriptors[chosen], moved.table.scores[:, :0], found.exemplars) == 0).all()


@pytest.mark.long
def test_only_scores_and_what_follows_are_made_anew(tmp_path):
    trained(quick_options(), classes=["three"], folder=tmp_path / "model")
    other = trained(OPTIONS, classes=["three"], folder=tmp_path / "model")
    assert "classes/three: training" not in other.changed_
    assert {"classes/three: scores", "classes/three: joint"} <= set(other.changed_)
    assert trained(OPTIONS, classes=["three"], folder=tmp_path / "model").changed_ == []


def test_images_with_objects_are_shared_out_evenly_and_so_are_the_others(work):
    windows, _, _ = work
    fold = _folds(windows, "three", 3)
    has = np.array([any(one.class_name == "three" for one in record.instances) for record in windows.records])
    for members in (has, ~has):
        counts = np.bincount(fold[members], minlength=FOLDS)
        assert len(counts) == FOLDS
        assert counts.max() - counts.min() <= 1
    assert (fold == _folds(windows, "three", 3)).all()
    assert (fold != _folds(windows, "three", 4)).any()


def split_scenes(n, m):
    images = scenes("train").images
    return tuple(replace(scenes("train"), images=part) for part in (images[:n], images[n:m]))


@pytest.mark.long
def test_a_class_that_grows_is_scored_without_images_in_its_priors():
    first, new = split_scenes(9, 11)
    detector = trained(OPTIONS, first, classes=["three"])
    before, prior = detector.models_[0].read_scores(), detector.models_[0].single
    n_rows, n_old = before.table.scores.shape
    detector.partial_fit(new, cache=shared_cache(), classes=["three"])
    model = detector.models_[0]
    scores, kept = model.read_scores(), model.read_kept()
    assert (scores.table.scores[:n_rows, :n_old] == before.table.scores).all()
    moved = moved_by(kept.rows[:n_rows], before.table.scores, model.exemplars)
    change = prior.weights - model.single.weights, prior.bias - model.single.bias
    expected = kept.rows @ model.exemplars.coef_.T + model.exemplars.intercept_
    expected[:n_rows] += moved
    unseen = kept.rows[n_rows:] @ change[0] + change[1]
    expected[n_rows:, n_old:] += unseen[:, None]
    assert min(np.abs(moved).max(), np.abs(unseen).max()) > 0.05
    np.testing.assert_allclose(scores.table.scores, expected, atol=0.02)
    is_object = scores.overlaps[n_rows:] > 0.999
    assert unseen[is_object].mean() < 0  # the prior had not learned them
    is_old = np.isin(scores.judged.image_ids, before.judged.image_ids)[scores.judged.image]
    np.testing.assert_allclose(scores.judged.scores[is_old][:, :n_old], before.judged.scores, atol=0.02)
    expected = kept.judged_rows @ model.exemplars.coef_.T + model.exemplars.intercept_
    expected[is_old] += moved_by(kept.judged_rows[is_old], before.judged.scores, model.exemplars)
    expected[~is_old, n_old:] += (kept.judged_rows[~is_old] @ change[0] + change[1])[:, None]
    np.testing.assert_allclose(scores.judged.scores, expected, atol=0.02)
    detector.partial_fit(replace(new, images=scenes("train").images[11:13]), cache=shared_cache(), classes=["three"])
    third, n_second = detector.models_[0], model.n_exemplars
    table, rows = third.read_scores().table.scores, third.read_kept().rows[n_rows : len(kept.rows)]
    assert (table[: len(kept.rows), :n_second] == scores.table.scores).all()
    plain = rows @ third.exemplars.coef_[n_second:].T + third.exemplars.intercept_[n_second:]
    np.testing.assert_allclose(table[n_rows : len(kept.rows), n_second:], plain + unseen[:, None], atol=0.02)
    judged = third.read_scores().judged.scores[: len(scores.judged.scores), :n_second]
    np.testing.assert_array_equal(judged, scores.judged.scores)
    n_left = detector.models_[0].n_exemplars - 1
    detector.drop([0])
    assert detector.models_[0].read_scores().table.n_exemplars == n_left


@pytest.mark.long
def test_windows_of_an_image_that_is_added_again_stay_moved():
    whole, _ = split_scenes(6, 6)
    late = whole[0].instances[1]
    partly = replace(whole[0], instances=(whole[0].instances[0], *whole[0].instances[2:]))
    detector = trained(OPTIONS, replace(whole, images=(partly, *whole.images[1:])), classes=["three"])
    old, n_old = detector.models_[0], detector.models_[0].n_exemplars
    before, kept_before = old.read_scores(), old.read_kept()
    detector.partial_fit(replace(whole, images=whole.images[:1]), cache=shared_cache(), classes=["three"])
    model = detector.models_[0]
    scores, kept = model.read_scores(), model.read_kept()
    assert model.n_exemplars == n_old + 1
    is_again = (scores.table.groups == partly.image_id) & (iou(scores.boxes, late.box[None])[:, 0] >= 0.5)
    is_judged_again = (scores.judged.image_ids == partly.image_id)[scores.judged.image]
    tables = (before.table.groups, before.boxes), (scores.table.groups, scores.boxes)
    judged = [(one.image_ids[one.image], one.boxes) for one in (before.judged, scores.judged)]
    for places, then, now, rows_then, rows, again in (
        (tables, before.table.scores, scores.table.scores, kept_before.rows, kept.rows, is_again),
        (
            judged,
            before.judged.scores,
            scores.judged.scores,
            kept_before.judged_rows,
            kept.judged_rows,
            is_judged_again,
        ),
    ):
        names = [[f"{image} {np.round(box, 2)}" for image, box in zip(*part, strict=True)] for part in places]
        moved = dict(zip(names[0], moved_by(rows_then, then, old.exemplars)[:, 0].tolist(), strict=True))
        assert max(abs(moved.get(names[1][k], 0)) for k in np.flatnonzero(again)) > 0.03
        expected = rows @ model.exemplars.coef_.T + model.exemplars.intercept_
        expected += np.array([moved.get(name, 0) for name in names[1]])[:, None]
        expected[again, n_old:] += (old.single.scores(rows[again]) - model.single.scores(rows[again]))[:, None]
        np.testing.assert_allclose(now, expected, atol=0.02)


@pytest.mark.long
def test_without_a_prior_a_class_grows_as_it_does_without_the_option():
    first, new = split_scenes(5, 7)
    grown = []
    for cross_fit in (False, True):
        options = quick_options(calibration__cross_fit=cross_fit, training__prior=None)
        detector = trained(options, first, classes=["three"])
        detector.partial_fit(new, cache=shared_cache(), classes=["three"])
        grown.append(detector.models_[0].read_scores())
    np.testing.assert_array_equal(grown[0].table.scores, grown[1].table.scores)
    np.testing.assert_array_equal(grown[0].judged.scores, grown[1].judged.scores)
