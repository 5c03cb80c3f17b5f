"""The co-occurrence matrix against a literal walk over detections, by hand, and through a file."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from eesvm import (
    CooccurrenceCalibrator,
    InputError,
    JointCalibrator,
    load_calibration,
    load_cooccurrence,
    save_calibration,
)
from eesvm.calibration.calibrators.cooccurrence import below_detections
from helpers.examples import many


def area(box):
    return max(0, box[2] - box[0]) * max(0, box[3] - box[1])


def common(a, b):
    return area((max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])))


def iou(a, b):
    both = common(a, b)
    return both / (area(a) + area(b) - both) if both else 0.0


def slow_detections(S, boxes, groups):
    """(window, exemplar) of every detection."""
    found = []
    for group in sorted(set(groups)):
        rows = [w for w in range(len(S)) if groups[w] == group]
        for e in range(S.shape[1]):
            kept = []
            for w in sorted((w for w in rows if S[w, e] >= -1), key=lambda w: (-S[w, e], w)):
                if len(kept) < 10 and all(common(boxes[k], boxes[w]) <= 0.5 * area(boxes[w]) for k in kept):
                    kept.append(w)
            found += [(w, e) for w in kept]
    return found


def slow_context(detections, S, boxes, groups, i):
    """x: for each exemplar the best score + 1 of a detection that overlaps detection i."""
    window = detections[i][0]
    x = np.zeros(S.shape[1])
    for w, e in detections:
        if groups[w] == groups[window] and (w == window or iou(boxes[w], boxes[window]) >= 0.5):
            x[e] = max(x[e], S[w, e] + 1)
    return x


def slow_fit(S, boxes, groups, overlaps, exemplar_groups):
    matrix = np.zeros((S.shape[1],) * 2)
    detections = slow_detections(S, boxes, groups)
    if exemplar_groups is not None:
        detections = [(w, e) for w, e in detections if groups[w] != exemplar_groups[e]]
    for i, (w, e) in enumerate(detections):
        active = np.flatnonzero(slow_context(detections, S, boxes, groups, i))
        if overlaps[w] >= 0.5:
            for a in active:
                matrix[a, e] += overlaps[w] / len(active)
    return matrix


def slow_transform(matrix, S, boxes, groups):
    detections = slow_detections(S, boxes, groups)
    result = np.array([[s - 1 if s <= 0 else -1 / (1 + s) for s in row] for row in S.tolist()])
    for i, (w, e) in enumerate(detections):
        x = slow_context(detections, S, boxes, groups, i)
        result[w, e] = matrix[:, e] @ x + x.sum()
    return result


@st.composite
def tables(draw):
    n, n_exemplars = draw(st.integers(2, 14)), draw(st.integers(1, 4))
    S = draw(hnp.arrays(np.int8, (n, n_exemplars), elements=st.integers(-8, 8), fill=st.nothing())) / 4
    corners = draw(hnp.arrays(np.int8, (n, 2), elements=st.integers(0, 4), fill=st.nothing())).astype(float)
    sizes = draw(hnp.arrays(np.int8, (n, 2), elements=st.integers(0, 5), fill=st.nothing())).astype(float)
    groups = draw(hnp.arrays(np.int8, n, elements=st.integers(0, 2), fill=st.nothing()))
    truth = draw(hnp.arrays(np.int8, n, elements=st.integers(0, 4), fill=st.nothing())) / 4
    y = (np.arange(n) % 2).astype(int)
    return S, y, np.hstack([corners, corners + sizes]), groups, truth


@settings(deadline=None, max_examples=many(150))
@given(tables(), st.booleans(), st.sampled_from([np.float32, np.float64]))
def test_equal_to_a_literal_walk(table, is_across, dtype):
    S, y, boxes, groups, truth = table
    S = S.astype(dtype)
    own = np.arange(S.shape[1]) % 4 if is_across else None
    calibrator = CooccurrenceCalibrator().fit(S, y, boxes, groups, truth, own)
    expected = slow_fit(S, boxes, groups, truth, own)
    np.testing.assert_allclose(calibrator.matrix_, expected, atol=1e-12)
    calibrated = calibrator.transform(S, boxes, groups)
    np.testing.assert_allclose(calibrated, slow_transform(expected, S, boxes, groups), atol=1e-12)
    np.testing.assert_array_equal(calibrator.decision_function(S, boxes, groups), calibrated.max(axis=1))
    winners = calibrator.assign(S, boxes, groups)
    np.testing.assert_array_equal(calibrated[np.arange(len(S)), winners], calibrated.max(axis=1))
    np.testing.assert_array_equal(calibrator.predict(S, boxes, groups), (calibrated.max(axis=1) > 1).astype(int))
    binary = CooccurrenceCalibrator().fit(S, y, boxes, groups)
    np.testing.assert_allclose(binary.matrix_, slow_fit(S, boxes, groups, y, None), atol=1e-12)


def hand_worked():
    """Two exemplars at one place of image a, the first alone at another; image b has a lone detection of the second."""
    boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 8], [50, 50, 60, 60], [0, 0, 10, 10], [0, 0, 10, 10]], dtype=float)
    groups = np.array(["a", "a", "a", "b", "b"])
    S = np.array([[1.0, -2.0], [-3.0, 0.5], [0.0, -2.0], [-2.0, 0.0], [-1.5, -3.0]])
    return S, np.array([1, 1, 0, 0, 0]), boxes, groups


def test_by_hand():
    S, y, boxes, groups = hand_worked()
    calibrator = CooccurrenceCalibrator().fit(S, y, boxes, groups, overlaps=[0.8, 0.6, 0.1, 0.0, 0.0])
    # Windows 0 and 1 overlap by 0.8; both contexts are (2, 1.5), two active exemplars each.
    np.testing.assert_allclose(calibrator.matrix_, [[0.4, 0.3], [0.4, 0.3]])
    assert calibrator.n_learned_ == 2
    calibrated = calibrator.transform(S, boxes, groups)
    np.testing.assert_allclose(
        calibrated,
        [
            [3.5 + 0.4 * 3.5, -3.0],
            [-4.0, 3.5 + 0.3 * 3.5],
            [1.0 + 0.4, -3.0],
            [-3.0, 1.0 + 0.3],
            [-2.5, -4.0],  # nobody fires: by the raw score, below all detections
        ],
    )
    assert calibrator.assign(S, boxes, groups).tolist() == [0, 1, 0, 1, 0]
    assert calibrator.predict(S, boxes, groups).tolist() == [1, 1, 1, 1, 0]
    across = CooccurrenceCalibrator().fit(S, y, boxes, groups, exemplar_groups=["a", "z"])
    np.testing.assert_allclose(across.matrix_, [[0, 0], [0, 1]])  # the first exemplar says nothing about its own image


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_windows_without_a_detection_keep_their_order_below_zero(values):
    pressed = below_detections(np.sort(np.array(values))[None])[0]
    assert (pressed < 0).all()
    assert (np.diff(pressed) >= 0).all()


def random_table(n=300, n_exemplars=6, n_images=5, seed=0):
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 80, (n, 2))
    boxes = np.hstack([corners, corners + rng.uniform(10, 60, (n, 2))])
    y = (np.arange(n) % 4 == 0).astype(int)
    return rng.normal(-1.2, 0.8, (n, n_exemplars)) + y[:, None], y, boxes, rng.integers(n_images, size=n)


def test_images_do_not_see_each_other_and_order_does_not_matter():
    S, y, boxes, groups = random_table()
    calibrator = CooccurrenceCalibrator().fit(S, y, boxes, groups)
    expected = calibrator.transform(S, boxes, groups)
    one = groups == 3
    np.testing.assert_allclose(calibrator.transform(S[one], boxes[one], groups[one]), expected[one], rtol=1e-12)
    order = np.random.default_rng(1).permutation(len(S))
    shuffled = CooccurrenceCalibrator().fit(S[order], y[order], boxes[order], groups[order])
    np.testing.assert_allclose(shuffled.matrix_, calibrator.matrix_, rtol=1e-12)
    np.testing.assert_allclose(shuffled.transform(S[order], boxes[order], groups[order]), expected[order], rtol=1e-9)


def test_estimator_conventions():
    S, y, boxes, groups = random_table()
    calibrator = CooccurrenceCalibrator(margin=-0.5, max_detections=3)
    assert clone(calibrator).get_params() == calibrator.get_params()
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        calibrator.transform(S, boxes, groups)
    expected = calibrator.fit_transform(S, y, boxes, groups)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(calibrator)).transform(S, boxes, groups), expected)
    frame = pd.DataFrame(S, columns=list("abcdef"))
    framed = clone(calibrator).set_params(pos_label="yes").fit(frame, np.where(y, "yes", "no"), boxes, groups)
    assert framed.feature_names_in_.tolist() == list("abcdef")
    assert set(framed.predict(frame, boxes, groups)) == {"no", "yes"}
    with pytest.raises(InputError, match=r"^`S` has other columns than in `fit`"):
        framed.transform(frame[["a", "b"]], boxes, groups)


S, Y, BOXES, GROUPS = hand_worked()
NEEDS_BOXES = "`boxes` and `groups` must be given: co-occurrence looks at what overlaps in the same image"


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({}, {"groups": GROUPS}, NEEDS_BOXES),
        ({}, {"boxes": BOXES}, NEEDS_BOXES),
        (
            {},
            {"boxes": BOXES[:4], "groups": GROUPS},
            "`boxes` must have one box per window, shape (5, 4), got shape (4, 4)",
        ),
        ({}, {"boxes": "x", "groups": GROUPS}, "`boxes` must be an (n, 4) table of numbers"),
        (
            {},
            {"boxes": BOXES * np.nan, "groups": GROUPS},
            "`boxes` holds 20 values that are NaN or infinite, the first at row 0, column 0",
        ),
        (
            {},
            {"boxes": BOXES, "groups": GROUPS[:3]},
            "`groups` must have one group per window, shape (5,), got shape (3,)",
        ),
        (
            {},
            {"boxes": BOXES, "groups": GROUPS, "overlaps": [1, 2, 0, 0, 0]},
            "`overlaps` must lie between 0 and 1, got 0 to 2",
        ),
        (
            {},
            {"boxes": BOXES, "groups": GROUPS, "overlaps": [1]},
            "`overlaps` must have one value per window, shape (5,), got shape (1,)",
        ),
        (
            {},
            {"boxes": BOXES, "groups": GROUPS, "exemplar_groups": ["a"]},
            "`exemplar_groups` must have one group per exemplar, shape (2,), got shape (1,)",
        ),
        ({"min_overlap": 0}, {"boxes": BOXES, "groups": GROUPS}, "`min_overlap` must be > 0, got 0"),
        ({"max_detections": 0}, {"boxes": BOXES, "groups": GROUPS}, "`max_detections` must be >= 1, got 0"),
        ({"suppression": 2}, {"boxes": BOXES, "groups": GROUPS}, "`suppression` must be <= 1, got 2"),
    ],
)
def test_bad_input_is_refused(options, arguments, message):
    with pytest.raises(InputError) as caught:
        CooccurrenceCalibrator(**options).fit(S, Y, **arguments)
    assert str(caught.value) == message


def test_later_calls_need_boxes_too():
    calibrator = CooccurrenceCalibrator().fit(S, Y, BOXES, GROUPS)
    for method in (calibrator.transform, calibrator.decision_function, calibrator.predict, calibrator.assign):
        with pytest.raises(InputError, match=NEEDS_BOXES):
            method(S)


# --- files


def test_a_loaded_matrix_scores_like_the_saved_one(tmp_path):
    S, y, boxes, groups = random_table()
    saved = CooccurrenceCalibrator(min_overlap=0.4, pos_label="yes").fit(S, np.where(y, "yes", "no"), boxes, groups)
    save_calibration(tmp_path / "m.json", saved, list("abcdef"))
    loaded = load_cooccurrence(tmp_path / "m.json")
    np.testing.assert_array_equal(loaded.matrix_, saved.matrix_)
    np.testing.assert_array_equal(loaded.transform(S, boxes, groups), saved.transform(S, boxes, groups))
    assert loaded.get_params() == saved.get_params()
    assert (loaded.n_learned_, loaded.classes_.tolist(), loaded.exemplar_names_) == (
        saved.n_learned_,
        ["no", "yes"],
        list("abcdef"),
    )


def test_files_of_the_other_kind_and_unfitted_ones(tmp_path):
    file = tmp_path / "m.json"
    with pytest.raises(InputError, match=r"^`calibrator` must be a fitted JointCalibrator or CooccurrenceCalibrator$"):
        save_calibration(file, CooccurrenceCalibrator())
    save_calibration(file, CooccurrenceCalibrator().fit(S, Y, BOXES, GROUPS))
    with pytest.raises(InputError, match=r'there is no "format": "eesvm-calibration"; `load_cooccurrence` reads it$'):
        load_calibration(file)
    save_calibration(file, JointCalibrator().fit(S, Y))
    with pytest.raises(InputError, match=r'there is no "format": "eesvm-cooccurrence"; `load_calibration` reads it$'):
        load_cooccurrence(file)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("format_version", 9, "`format_version` must be 1, which this eesvm"),
        ("n_exemplars", 0, "`n_exemplars` must be a whole number from 1 to 20,000, got 0"),
        ("n_learned", -1, "`n_learned` must be a whole number >= 0, got -1"),
        ("rows", [0, 0, 1, 2], "`rows` must hold whole numbers from 0 to 1"),
        ("columns", 5, "`columns` must be a list"),
        ("values", [1.0], "`values` must be as many as rows and columns, 4 and 4"),
        ("values", [1, 1, 1, -1], "`values` must hold numbers >= 0"),
        ("parameters", {}, "`parameters` must hold margin, max_detections, min_overlap, min_truth, suppression"),
        ("exemplar_names", ["a"], "`exemplar_names` must be null or a list of 2 texts"),
        ("classes", [1, 1], "`classes` must be a list of two different labels"),
    ],
)
def test_damaged_files_are_refused(tmp_path, field, value, rule):
    file = tmp_path / "m.json"
    save_calibration(file, CooccurrenceCalibrator().fit(S, Y, BOXES, GROUPS))
    content = json.loads(file.read_text())
    content[field] = value
    file.write_text(json.dumps(content))
    with pytest.raises(InputError) as caught:
        load_cooccurrence(file)
    assert str(caught.value).startswith(f"{file}: {rule}")
    assert "parameters" not in rule or caught.value.__cause__ is None


def test_parameters_of_a_file_are_checked(tmp_path):
    file = tmp_path / "m.json"
    save_calibration(file, CooccurrenceCalibrator().fit(S, Y, BOXES, GROUPS))
    content = json.loads(file.read_text())
    content["parameters"]["suppression"] = 7
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"`parameters` cannot be used: `suppression` must be <= 1, got 7$"):
        load_cooccurrence(file)


@pytest.mark.slow
def test_a_large_table_is_scored_image_by_image():
    rng = np.random.default_rng(0)
    n_images, n, n_exemplars = 20, 2000, 500
    corners = rng.uniform(0, 400, (n_images * n, 2))
    boxes = np.hstack([corners, corners + rng.uniform(20, 200, (n_images * n, 2))])
    scores = rng.normal(-2.5, 0.7, (n_images * n, n_exemplars)).astype(np.float32)
    groups, y = np.repeat(np.arange(n_images), n), np.arange(n_images * n) % 50 == 0
    calibrator = CooccurrenceCalibrator().fit(scores, y, boxes, groups)
    together = calibrator.decision_function(scores, boxes, groups)
    for image in (0, 7, 19):
        own = groups == image
        np.testing.assert_allclose(calibrator.decision_function(scores[own], boxes[own], groups[own]), together[own])
