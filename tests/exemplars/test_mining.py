"""Hard negatives: the right windows, from memory or from a stream."""

import numpy as np
import pytest

from eesvm import ExemplarLDA, ExemplarSVMs, InputError
from eesvm.exemplars.mining import ImageWindows, draw_images, mine, negative_rows, windows_of_class
from eesvm.structures import Instance, Windows
from helpers.reference_svm import objective, relu_features


def make_source(n_images=12, n_windows=40, d=24, n_exemplars=6, seed=0):
    """Exemplars from images 0, 1, ..., and a list of images; every seventh window lies on an object."""
    exemplars, windows = relu_features(n_exemplars, n_images * n_windows, d, seed)
    images = [
        ImageWindows(f"image{k}", windows[k * n_windows : (k + 1) * n_windows], np.arange(n_windows) % 7 != 3)
        for k in range(n_images)
    ]
    return exemplars, [f"image{j}" for j in range(n_exemplars)], images


class Streamed:
    """A source that can only be gone through, and counts how often it was."""

    def __init__(self, images):
        self.images, self.n_passes = images, 0

    def __iter__(self):
        self.n_passes += 1
        return iter(self.images)


def allowed(images, name):
    """All negatives of an exemplar from image `name`."""
    return np.concatenate([i.descriptors[i.is_negative] for i in images if i.image_id != name])


@pytest.mark.parametrize("is_streamed", [False, True])
def test_exemplars_are_trained_against_what_is_allowed(is_streamed):
    exemplars, names, images = make_source()
    svms = ExemplarSVMs.original()
    report = mine(svms, exemplars, names, Streamed(images) if is_streamed else images)
    assert report.converged.all()
    assert report.n_windows == sum(int(i.is_negative.sum()) for i in images)
    assert svms.converged_.all()
    for j, name in enumerate(names):
        negatives = allowed(images, name)
        best = ExemplarSVMs.original(tol=1e-4).fit(exemplars[j : j + 1], negatives).objective_[0]
        mine_ = objective(svms.coef_[j], svms.intercept_[j], exemplars[j], negatives, 0.01, 50.0)
        assert mine_ <= best * 1.001


def test_own_image_and_objects_are_never_negatives():
    exemplars, names, images = make_source(n_images=4, n_exemplars=4)
    poisoned = []
    for image in images:  # the exemplar itself, in its own image and on an object elsewhere
        own = np.concatenate([image.descriptors, exemplars])
        flags = np.concatenate([image.is_negative, [name == image.image_id for name in names]])
        poisoned.append(ImageWindows(image.image_id, own, flags))
    clean, dirty = ExemplarSVMs.original(), ExemplarSVMs.original()
    mine(clean, exemplars, names, images)
    mine(dirty, exemplars, names, poisoned)
    own = np.diag(dirty.decision_function(exemplars))
    np.testing.assert_allclose(own, np.diag(clean.decision_function(exemplars)), atol=0.5)
    assert (own > 0.5).all()


def test_the_report_adds_up():
    exemplars, names, images = make_source()
    svms = ExemplarSVMs.original()
    report = mine(svms, exemplars, names, images)
    assert report.added == svms.added_
    assert report.image_ids == tuple(image.image_id for image in images)
    assert ((report.rounds >= 1) & (report.rounds <= len(report.added))).all()


def test_images_are_drawn_at_random_and_the_draw_repeats():
    _, _, images = make_source(n_images=20)
    drawn = draw_images(images, 5, random_state=1)
    assert len(set(drawn)) == 5
    assert drawn == draw_images(images, 5, random_state=1)
    assert drawn != draw_images(images, 5, random_state=2)
    assert [name for name in (i.image_id for i in images) if name in drawn] == list(drawn)
    assert len(draw_images(images, None)) == len(draw_images(images, 2000)) == 20
    exemplars, names, images = make_source()
    report = mine(ExemplarSVMs(), exemplars, names, images, n_images=4)
    assert report.image_ids == draw_images(images, 4)


def test_a_stream_is_read_anew_for_each_look():
    exemplars, names, images = make_source()
    source = Streamed(images)
    streamed, listed = ExemplarSVMs.original(), ExemplarSVMs.original()
    mine(streamed, exemplars, names, source)
    mine(listed, exemplars, names, images)
    np.testing.assert_array_equal(streamed.coef_, listed.coef_)
    assert source.n_passes > 3


def test_windows_on_objects_of_the_class_are_marked():
    windows = Windows(
        "a", np.array([[0, 0, 10, 10], [0, 0, 10, 9], [20, 20, 30, 30], [100, 0, 110, 10.0]]), np.full(4, -1)
    )
    instances = [
        Instance("cat", np.array([0, 0, 10, 10.0]), "a", 0),
        Instance("dog", np.array([20, 20, 30, 30.0]), "a", 1),
    ]
    rows = np.zeros((4, 3), dtype=np.float32)
    assert windows_of_class(windows, rows, instances, "cat").is_negative.tolist() == [False, False, True, True]
    assert windows_of_class(windows, rows, instances, "dog").is_negative.tolist() == [True, True, False, True]
    assert windows_of_class(windows, rows, instances, "cow").is_negative.all()


def test_memory_mapped_parts_stay_on_disk(tmp_path):
    _, _, images = make_source(n_images=3)
    mapped = []
    for image in images:
        np.save(tmp_path / f"{image.image_id}.npy", image.descriptors)
        rows = np.load(tmp_path / f"{image.image_id}.npy", mmap_mode="r")
        mapped.append(ImageWindows(image.image_id, rows, image.is_negative))
    rows, names = negative_rows(mapped)
    assert all(isinstance(part, np.memmap) for part in rows.parts)
    expected = np.concatenate([i.descriptors[i.is_negative] for i in images])
    np.testing.assert_array_equal(np.concatenate([block.copy() for _, block in rows.blocks(17)]), expected)
    assert names[0] == "image0"
    assert names[-1] == "image2"


def test_a_prior_counts():
    exemplars, names, images = make_source()
    prior = 0.02 * np.ones(24), -0.5
    svms = ExemplarSVMs(1e-3, 5.0, prior=prior)
    mine(svms, exemplars, names, images)
    for j in range(2):
        negatives = allowed(images, names[j])
        best = ExemplarSVMs(1e-3, 5.0, prior=prior).fit(exemplars[j : j + 1], negatives).objective_[0]
        value = objective(svms.coef_[j], svms.intercept_[j], exemplars[j], negatives, 1e-3, 5.0, prior=prior)
        assert value <= best * 1.01


def test_bad_input_gets_one_sentence():
    exemplars, names, images = make_source()
    cases = [
        ("`n_images` must be >= 1, got 0", images, {"n_images": 0}),
        ("`source` holds the image 'image0' twice", [images[0], images[0]], {}),
        ("`source` holds no image: there is nothing to take negatives from", [], {}),
        (
            "`is_negative` of image 'x' must be 40 booleans, one per window, got int64 of shape (3,)",
            [ImageWindows("x", images[0].descriptors, np.arange(3))],
            {},
        ),
        (
            "`negatives` is empty: an exemplar SVM needs at least one negative",
            [ImageWindows("x", images[0].descriptors, np.zeros(40, dtype=bool))],
            {},
        ),
        (
            "`source` must be a list, or something else that can be gone through again, got a generator",
            (image for image in images),
            {},
        ),
        ("`source` must hold ImageWindows, got ndarray", [images[0].descriptors], {}),
        (
            "`descriptors` of image 'x' must have two dimensions (windows, descriptor), got shape (24,)",
            Streamed([ImageWindows("x", images[0].descriptors[0])]),
            {},
        ),
        ("`negative_groups` leaves exemplar 2 without negatives: all are of its own group", [images[2]], {}),
    ]
    for sentence, source, options in cases:
        with pytest.raises(InputError) as error:
            mine(ExemplarSVMs(), exemplars, names, source, **options)
        assert str(error.value) == sentence
    with pytest.raises(InputError, match=r"^`C` must be a number, got 'x'$"):
        mine(ExemplarSVMs(C="x"), exemplars, names, images)
    with pytest.raises(
        InputError, match=r"^`svms` must be ExemplarSVMs, got ExemplarLDA: other trainers have no hard "
    ):
        mine(ExemplarLDA(), exemplars, names, images)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_where_no_negative_is_hard_none_is_taken(loss):
    """The prior keeps all negatives away, so each exemplar has itself to please only."""
    exemplars, names, images = make_source()
    away = [ImageWindows(image.image_id, -image.descriptors) for image in images]
    for C in (1e-4, 1e-2):  # not enough to reach the margin, and enough
        svms = ExemplarSVMs(C, 1.0, loss, prior=(np.zeros(24), -5.0), bias_multiplier=0)
        report = mine(svms, exemplars, names, away)
        assert sum(report.added) == 0
        assert report.converged.all()
        np.testing.assert_allclose(
            svms.coef_ / np.linalg.norm(svms.coef_, axis=1, keepdims=True),
            exemplars / np.linalg.norm(exemplars, axis=1, keepdims=True),
            atol=1e-5,
        )
