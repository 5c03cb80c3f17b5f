"""Calibration windows scored by a class prior that has not seen their image."""

from dataclasses import replace

import numpy as np
import pytest

from eesvm.detector import score_class, train_class
from eesvm.detector.class_training import calibration_rows, class_rows
from eesvm.detector.cross_fitting import FOLDS, cross_fitted, moved_by
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
    fold = np.random.default_rng(0).permutation(len(windows.records)) % FOLDS
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


@pytest.mark.parametrize("changes", [{"calibration.cross_fit": False}, {"training.prior": None}])
def test_without_the_option_or_a_prior_scores_stay(work, changes):
    windows, found, scores = work
    assert cross_fitted(windows, found, scores, OPTIONS.changed(changes)) is scores


def test_how_far_windows_were_moved_can_be_told_from_their_scores(work):
    windows, found, scores = work
    moved = cross_fitted(windows, found, scores, OPTIONS)
    chosen, _, _ = calibration_rows(windows, "three", OPTIONS.calibration)
    told = moved_by(windows.descriptors[chosen], moved.table.scores, found.exemplars)
    np.testing.assert_allclose(moved.table.scores - told, scores.table.scores, rtol=1e-3, atol=1e-3)
    assert (moved_by(windows.descriptors[chosen], moved.table.scores[:, :0], found.exemplars) == 0).all()


def test_only_scores_and_what_follows_are_made_anew(tmp_path):
    trained(quick_options(), classes=["three"], folder=tmp_path / "model")
    other = trained(OPTIONS, classes=["three"], folder=tmp_path / "model")
    assert "classes/three: training" not in other.changed_
    assert {"classes/three: scores", "classes/three: joint"} <= set(other.changed_)
    assert trained(OPTIONS, classes=["three"], folder=tmp_path / "model").changed_ == []


def test_a_class_that_grows_keeps_its_windows_moved():
    images = scenes("train").images
    first, new = (replace(scenes("train"), images=part) for part in (images[:9], images[9:11]))
    detector = trained(OPTIONS, first, classes=["three"])
    before = detector.models_[0].read_scores()
    n_rows, n_old = before.table.scores.shape
    detector.partial_fit(new, cache=shared_cache(), classes=["three"])
    model = detector.models_[0]
    scores, kept = model.read_scores(), model.read_kept()
    assert (scores.table.scores[:n_rows, :n_old] == before.table.scores).all()
    moved = moved_by(kept.rows[:n_rows], before.table.scores, model.exemplars)
    plain = kept.rows @ model.exemplars.coef_.T + model.exemplars.intercept_
    plain[:n_rows] += moved
    assert np.abs(moved).max() > 0.05
    np.testing.assert_allclose(scores.table.scores, plain, atol=0.02)
    is_old = np.isin(scores.judged.image_ids, before.judged.image_ids)[scores.judged.image]
    np.testing.assert_allclose(scores.judged.scores[is_old][:, :n_old], before.judged.scores, atol=0.02)
    n_left = detector.models_[0].n_exemplars - 1
    detector.drop([0])
    assert detector.models_[0].read_scores().table.n_exemplars == n_left
