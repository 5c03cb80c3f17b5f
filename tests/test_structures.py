"""Detections and windows as tables: every operation against plain indexing of each column."""

import dataclasses
import pickle
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eesvm._support.validation import InputError
from eesvm.metrics import evaluate_detections
from eesvm.structures import Detection, Detections, ImageRecord, RowIndexError, Windows

COLUMNS = ("boxes", "scores", "class_names", "exemplars")
CLASSES = ("cat", "dog", "long-haired dachshund")


def made(random, n, image_id="a"):
    """Some detections, in no order, with many equal scores."""
    return Detections(
        image_id,
        random.uniform(0, 100, (n, 4)),
        random.integers(0, 5, n) / 4,
        np.array(CLASSES)[random.integers(0, len(CLASSES), n)],
        random.integers(-1, 9, n),
    )


@st.composite
def tables(draw, largest=8):
    return made(np.random.default_rng(draw(st.integers(0, 2**32))), draw(st.integers(0, largest)))


@st.composite
def indexed(draw):
    """Detections, and something that indexes arrays of their length."""
    found = draw(tables())
    n = len(found)
    numbers = st.integers(-n, n - 1) if n else st.nothing()
    masks = st.lists(st.booleans(), min_size=n, max_size=n)
    kinds = [st.slices(n), masks.map(lambda mask: np.array(mask, dtype=bool)), st.just([])]
    if n:
        kinds += [masks, st.lists(numbers), st.lists(numbers).map(lambda rows: np.array(rows, dtype=np.int32))]
    return found, draw(st.one_of(kinds))


def assert_columns(found, expected):
    """The same values of the same dtypes."""
    for name, column in zip(COLUMNS, expected, strict=True):
        own = getattr(found, name)
        assert own.dtype == column.dtype
        np.testing.assert_array_equal(own, column)


def columns(found):
    return [getattr(found, name) for name in COLUMNS]


@given(indexed())
def test_indexing_is_that_of_each_column(case):
    found, rows = case
    plain = np.array(rows, dtype=int) if isinstance(rows, list) and not len(rows) else rows
    chosen = found[rows]
    assert isinstance(chosen, Detections)
    assert chosen.image_id == found.image_id
    assert_columns(chosen, [column[plain] for column in columns(found)])
    windows = Windows("a", found.boxes, found.exemplars)[rows]
    assert isinstance(windows, Windows)
    np.testing.assert_array_equal(windows.boxes, found.boxes[plain])
    np.testing.assert_array_equal(windows.instance, found.exemplars[plain])


@pytest.mark.parametrize("kind", [int, np.int64, np.uint8, np.array])
def test_a_number_gives_one_row(kind):
    found = made(np.random.default_rng(0), 4)
    for row in range(4):
        assert found[kind(row)] == found[row : row + 1]
        assert len(found[kind(row)]) == 1
    assert found[-1] == found[3:]


def test_slices_are_views_and_the_rest_copies():
    found = made(np.random.default_rng(0), 4)
    assert np.shares_memory(found[1:].scores, found.scores)
    assert not np.shares_memory(found[[1, 2, 3]].scores, found.scores)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.scores = np.zeros(4)


@pytest.mark.parametrize(
    ("rows", "kind", "sentence"),
    [
        (3, RowIndexError, "there is no row 3: rows are counted from 0, and there are 3"),
        ([0, -4, 9], RowIndexError, "there is no row -4: rows are counted from 0, and there are 3"),
        (np.array([7], np.uint64), RowIndexError, "there is no row 7: rows are counted from 0, and there are 3"),
        ([True], InputError, "`rows` as a mask must have one entry for each of 3 rows, got 1"),
        (np.ones(4, bool), InputError, "`rows` as a mask must have one entry for each of 3 rows, got 4"),
        (True, InputError, "`rows` must be a slice, a mask or whole numbers, got True"),
        ("cat", InputError, "`rows` must be a slice, a mask or whole numbers, got 'cat'"),
        (1.0, InputError, "`rows` must be a slice, a mask or whole numbers, got 1.0"),
        ([0.0, 1.0], InputError, "`rows` must be a slice, a mask or whole numbers, got [0.0, 1.0]"),
        ([[0], [1]], InputError, "`rows` must be a slice, a mask or whole numbers, got [[0], [1]]"),
        ([0, [1, 2]], InputError, "`rows` must be a slice, a mask or whole numbers, got [0, [1, 2]]"),
        ((0, 1), InputError, "`rows` must be a slice, a mask or whole numbers, got (0, 1)"),
        (None, InputError, "`rows` must be a slice, a mask or whole numbers, got None"),
    ],
)
def test_rows_that_are_none(rows, kind, sentence):
    found = made(np.random.default_rng(0), 3)
    for table in (found, Windows("a", found.boxes, found.exemplars)):
        with pytest.raises(kind) as caught:
            table[rows]
        assert str(caught.value) == sentence
        assert isinstance(caught.value, IndexError) == (kind is RowIndexError)


def test_columns_of_different_lengths_are_refused():
    found = dataclasses.replace(made(np.random.default_rng(0), 3), scores=np.zeros(2))
    sentence = "`scores` of the image 'a' must have one row for each of 3 boxes, got 2"
    for use in (lambda: found[:1], lambda: list(found), lambda: Detections.merge([found])):
        with pytest.raises(InputError) as caught:
            use()
        assert str(caught.value) == sentence


@given(tables())
def test_iteration_gives_python_values(found):
    records = list(found)
    assert len(records) == len(found)
    for k, record in enumerate(records):
        assert [type(value) for value in dataclasses.astuple(record)] == [str, np.ndarray, float, str, int]
        assert (record.image_id, record.score, record.class_name, record.exemplar) == (
            found.image_id,
            found.scores[k],
            found.class_names[k],
            found.exemplars[k],
        )
        np.testing.assert_array_equal(record.box, found.boxes[k])
        (alone,) = found[k]
        assert alone == record
    assert all(len(one) == 1 for one in Windows("a", found.boxes, found.exemplars))


def test_records_are_frozen_and_comparable():
    first, second = made(np.random.default_rng(0), 2)
    assert first == dataclasses.replace(first, box=first.box.copy())
    assert first != second
    assert first != dataclasses.replace(first, box=first.box + 1)
    assert first != "a"
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.score = 1.0


def test_columns_of_other_kinds_become_python_values():
    found = Detections("a", [[0, 0, 1, 1]], [1], np.array(["cat"], dtype=object), np.zeros(1))
    (record,) = found
    assert record == Detection("a", np.array([0, 0, 1, 1]), 1.0, "cat", 0)
    assert (type(record.score), type(record.exemplar)) == (float, int)


@given(tables())
def test_sorting_and_the_best_follow_python(found):
    order = sorted(range(len(found)), key=lambda row: -found.scores[row])  # stable
    assert_columns(found.sorted(), [column[np.array(order, dtype=int)] for column in columns(found)])
    assert found.sorted().sorted() == found.sorted()
    for n in (0, 1, 3, 100):
        assert found.top(n) == found[order[:n]]


@given(tables(), st.sampled_from([-1, 0, 0.25, 0.5, 1, 2.0]), st.lists(st.sampled_from([*CLASSES, "ca", ""])))
def test_filters_follow_python(found, score, names):
    assert found.at_least(score) == found[[k for k, one in enumerate(found) if one.score >= score]]
    assert found.of_class(*names) == found[[k for k, one in enumerate(found) if one.class_name in names]]
    assert sum(len(found.of_class(name)) for name in CLASSES) == len(found)
    assert found.of_class("cat").at_least(score) == found.at_least(score).of_class("cat")


def test_a_class_that_was_not_found_has_no_detections():
    found = made(np.random.default_rng(0), 5)
    assert found.of_class("unicorn") == Detections.empty("a")
    assert Detections.empty("a").of_class("cat") == Detections.empty("a")


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (lambda found: found.top(-1), "`n` must be >= 0, got -1"),
        (lambda found: found.top(2.0), "`n` must be an integer, got 2.0"),
        (lambda found: found.at_least("cat"), "`score` must be a number, got 'cat'"),
        (lambda found: found.at_least(np.nan), "`score` must be finite, got nan"),
        (lambda found: found.of_class(3), "`class_names` must be texts, got 3"),
        (lambda found: found.of_class(["cat", "dog"]), "`class_names` must be texts, got ['cat', 'dog']"),
        (lambda found: Detections.merge([]), "`parts` must be detections of one image, got none"),
        (
            lambda found: Detections.merge([found, dataclasses.replace(found, image_id="b")]),
            "`parts` must be detections of one image, got 'a' and 'b'",
        ),
        (
            lambda found: evaluate_detections([ImageRecord("a", lambda: None, 9, 9)], found),
            "`detections` must hold one `Detections` for each image, got one alone: put it into a list",
        ),
    ],
)
def test_arguments_that_are_refused(use, sentence):
    with pytest.raises(InputError) as caught:
        use(made(np.random.default_rng(0), 3))
    assert str(caught.value) == sentence


@given(tables(), st.lists(st.integers(0, 8), max_size=4))
def test_merging_what_was_cut_gives_the_whole(found, cuts):
    bounds = [0, *sorted(cuts), len(found)]
    parts = [found[a:b] for a, b in pairwise(bounds)]
    merged = Detections.merge(iter([*parts, Detections.empty("a")]))
    assert merged == found.sorted()
    assert not len(found) or merged.class_names.dtype == found.class_names.dtype


def test_merging_keeps_long_names_and_takes_no_columns_from_parts_without_rows():
    short, long = (
        Detections("a", np.ones((1, 4)), np.array([score]), np.array([name]), np.array([1]))
        for score, name in ((0.5, "cat"), (0.7, CLASSES[-1]))
    )
    shapeless = Detections("a", np.empty(0), np.empty(0), np.empty(0), np.empty(0))
    assert Detections.merge([short, shapeless, long]).class_names.tolist() == [CLASSES[-1], "cat"]
    assert_columns(Detections.merge([shapeless]), columns(Detections.empty("a")))


def test_an_empty_one():
    nothing = Detections.empty("a")
    assert len(nothing) == 0
    assert list(nothing) == []
    assert nothing.boxes.shape == (0, 4)
    assert [column.dtype.kind for column in columns(nothing)] == ["f", "f", "U", "i"]
    for same in (
        nothing[:],
        nothing[[]],
        nothing[np.zeros(0, bool)],
        nothing.sorted(),
        nothing.top(3),
        nothing.at_least(0),
    ):
        assert same == nothing
    with pytest.raises(RowIndexError, match=r"^there is no row 0: rows are counted from 0, and there are 0$"):
        nothing[0]


@given(tables())
def test_equality_is_of_image_and_values(found):
    assert found == found[:]
    assert found == pickle.loads(pickle.dumps(found))
    assert found == dataclasses.replace(found, boxes=found.boxes.tolist() or found.boxes)
    assert found != dataclasses.replace(found, image_id="b")
    assert found != Windows(found.image_id, found.boxes, found.exemplars)
    if len(found):
        assert found != found[1:]
        for name in ("boxes", "scores", "exemplars"):
            assert found != dataclasses.replace(found, **{name: getattr(found, name) + 1})
        assert found != dataclasses.replace(found, class_names=np.full(len(found), "unicorn"))
    windows = Windows("a", found.boxes, found.exemplars)
    assert windows == Windows("a", found.boxes.copy(), found.exemplars.copy())
    assert windows != Windows("a", found.boxes, found.exemplars + 1) or not len(found)


def test_repr_is_one_line():
    found = Detections(
        "img/1",
        np.zeros((3, 4)),
        np.array([0.93123, 0.5, -0.25]),
        np.array(["cat", "dog", "cat"]),
        np.array([4, -1, 0]),
    )
    assert repr(found) == "Detections('img/1': 2 cat, 1 dog; scores 0.931 to -0.25)"
    assert repr(Detections.empty("a")) == "Detections('a': nothing)"
    many = Detections("a", np.zeros((7, 4)), np.ones(7), np.array(list("abcdefg")), np.zeros(7, int))
    assert repr(many) == "Detections('a': 1 a, 1 b, 1 c, 1 d, 1 e, 2 other classes; scores 1 to 1)"


def mixed():
    boxes = np.array([[1.0, 2, 11, 22], [3, 3, 9, 9], [0, 0, 4, 4]])
    return Detections("a", boxes, np.array([0.9, 0.5, 0.25]), np.array(["dog", "cat", "dog"]), np.array([4, -1, 7]))


def test_least_scores_by_class():
    found = mixed()
    assert found.at_least({"dog": 0.5}) == found[[0, 1]]
    assert found.at_least({"dog": 0.25, "cat": 0.6, "horse": 1.0}) == found[[0, 2]]
    assert found.at_least({}) == found
    assert len(Detections.empty("a").at_least({"dog": 0.5})) == 0
    with pytest.raises(InputError) as error:
        found.at_least({"dog": float("nan")})
    assert str(error.value).startswith("`score['dog']` must be")


def test_supervision():
    supervision = pytest.importorskip("supervision")
    found = mixed()
    made = found.to_supervision()
    assert isinstance(made, supervision.Detections)
    assert np.array_equal(made.xyxy, found.boxes)
    assert np.allclose(made.confidence, found.scores)
    assert made.class_id.tolist() == [1, 0, 1]
    assert made.data["class_name"].tolist() == ["dog", "cat", "dog"]
    assert made.data["exemplar"].tolist() == [4, -1, 7]
    assert made[made.confidence > 0.4].data["exemplar"].tolist() == [4, -1]
    assert found.to_supervision(["horse", "dog", "cat"]).class_id.tolist() == [1, 2, 1]
    assert len(Detections.empty("a").to_supervision()) == 0
    with pytest.raises(InputError) as error:
        found.to_supervision(["dog"])
    assert str(error.value) == "`classes` must hold every class that was found, but 'cat' is not there"


def test_fiftyone():
    fiftyone = pytest.importorskip("fiftyone")
    made = mixed().to_fiftyone(100, 50)
    assert isinstance(made, fiftyone.Detections)
    first = made.detections[0]
    assert (first.label, first.confidence, first.exemplar) == ("dog", 0.9, 4)
    assert np.allclose(first.bounding_box, [0.01, 0.04, 0.1, 0.4])
    sample = fiftyone.Sample(filepath="a.jpg", found=made)
    assert len(sample.found.detections) == 3


@pytest.mark.parametrize("name", ["supervision", "fiftyone"])
def test_packages_that_are_missing(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError) as error:
        mixed().to_supervision() if name == "supervision" else mixed().to_fiftyone(10, 10)
    assert str(error.value) == (f"this needs the package {name}, which is not installed: pip install 'eesvm[{name}]'")
