"""Score tables: what is written is read again, and every wrong file gets its own sentence."""

import gzip
import io
import os
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eesvm import InputError
from eesvm._support.validation import OFFER
from eesvm.calibration.tables.score_table import ScoreTable, read_score_table, write_score_table

GOOD_CSV = "label,a,b\n1,0.5,2\n0,-1,0.25\n"
FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=64)


def refusal(path, **options):
    with pytest.raises(InputError) as caught:
        read_score_table(path, **options)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def csv_refusal(tmp_path, content, name="t.csv", **options):
    return refusal(write(tmp_path, name, content), **options)


def npz(tmp_path, name="t.npz", **arrays):
    np.savez(tmp_path / name, **arrays)
    return tmp_path / name


@st.composite
def tables(draw):
    n, n_exemplars = draw(st.integers(2, 8)), draw(st.integers(1, 5))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    finite = st.floats(allow_nan=False, allow_infinity=False, width=32)
    scores = draw(hnp.arrays(dtype, (n, n_exemplars), elements=finite))
    labels = np.array([1, 0, *draw(st.lists(st.integers(0, 1), min_size=n - 2, max_size=n - 2))], dtype=np.int8)
    name = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1).map(lambda text: text + "|")
    names = draw(st.lists(name, min_size=n_exemplars, max_size=n_exemplars, unique=True))
    return ScoreTable(
        scores,
        labels,
        groups=draw(st.none() | hnp.arrays(np.int64, n)),
        exemplar_groups=draw(st.none() | hnp.arrays(np.int64, n_exemplars)),
        exemplar_names=draw(st.none() | st.just(names)),
        weights=draw(st.none() | hnp.arrays(np.float64, n, elements=st.floats(0, 1e9))),
        forbidden=draw(st.none() | hnp.arrays(np.bool_, (int(labels.sum()), n_exemplars))),
    )


def assert_equal(first, second):
    for name in ("scores", "labels", "groups", "exemplar_groups", "weights", "forbidden"):
        one, other = getattr(first, name), getattr(second, name)
        assert (one is None) == (other is None), name
        if one is not None:
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
    assert first.exemplar_names == second.exemplar_names


@settings(max_examples=30, deadline=None)
@given(tables())
def test_npz_round_trip(tmp_path_factory, table):
    path = tmp_path_factory.mktemp("npz") / "table.npz"
    write_score_table(path, table)
    assert_equal(read_score_table(path), table)


@settings(max_examples=30, deadline=None)
@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 4)), elements=FLOATS), st.sampled_from(",;\t")
)
def test_csv_round_trip_is_exact(tmp_path_factory, scores, delimiter):
    path = tmp_path_factory.mktemp("csv") / ("table.tsv" if delimiter == "\t" else "table.csv")
    header = ["label", *(f"x{j}" for j in range(scores.shape[1]))]
    lines = [header, *([str(k % 2), *map(repr, row)] for k, row in enumerate(scores.tolist()))]
    path.write_text("\n".join(delimiter.join(line) for line in lines) + "\n")
    table = read_score_table(path, require_labels=False)
    np.testing.assert_array_equal(table.scores, scores)
    np.testing.assert_array_equal(table.labels, np.arange(len(scores)) % 2)
    assert table.exemplar_names == header[1:]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_csv_of_every_editor(tmp_path, ending, mark):
    text = mark + '"label","a b",c\n"1"," 0.5",2e-1\n\n0,-1,.25\n\n'
    table = read_score_table(write(tmp_path, "t.csv", text.replace("\n", ending)))
    np.testing.assert_array_equal(table.scores, [[0.5, 0.2], [-1, 0.25]])
    assert table.exemplar_names == ["a b", "c"]


def test_gzip_and_groups(tmp_path):
    text = "image;x;label;y\nü1;1;pos;2\nb;3;neg;4\nb;5;other;6\n"
    path = write(tmp_path, "t.csv.gz", gzip.compress(text.encode()))
    table = read_score_table(path, positive_label="pos", group_column="image")
    np.testing.assert_array_equal(table.scores, [[1, 2], [3, 4], [5, 6]])
    assert table.groups.tolist() == ["ü1", "b", "b"]
    assert table.labels.tolist() == [1, 0, 0]
    assert table.exemplar_names == ["x", "y"]


def test_columns_are_found_by_name_and_others_are_declared(tmp_path):
    path = write(tmp_path, "t.csv", "id,b,label,a\nrow 1,2,1,1\nrow 2,4,0,3\n")
    table = read_score_table(path, columns=["a", "b"])
    np.testing.assert_array_equal(table.scores, [[1, 2], [3, 4]])
    assert table.notes == ("column 'id' is not used",)
    assert refusal(path, columns=["a", "c"]) == "column 'c' is missing; there is 'id', 'b', 'label', 'a'"


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")

    columns = {"b": np.float32([2, 4]), "label": [True, False], "a": np.float32([1, 3]), "image": ["p", "q"]}
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    table = read_score_table(path, group_column="image")
    np.testing.assert_array_equal(table.scores, np.float32([[2, 1], [4, 3]]))
    assert table.scores.dtype == np.float32
    assert table.labels.tolist() == [1, 0]
    assert table.groups.tolist() == ["p", "q"]
    assert read_score_table(path, columns=["a", "b"]).exemplar_names == ["a", "b"]
    assert refusal(path) == "column 'image' holds string instead of numbers"
    columns = {"label": [1, 0, 0], "a": [1.0, None, 2.0]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    assert refusal(path) == "column 'a' has 1 empty cells, the first in row 1" + OFFER
    pyarrow.parquet.write_table(pyarrow.table({"label": [1, 0], "a": [1.0, np.inf]}), path)
    assert refusal(path) == "column 'a' holds 1 NaN or infinite scores, the first in row 1"
    path.write_bytes(path.read_bytes()[:-20])
    assert refusal(path).startswith("it is not a whole parquet file (")
    path.write_text("label,a\n1,2\n")
    assert refusal(path).startswith("it is not a whole parquet file, but text (")


def test_parquet_without_pyarrow_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    path = write(tmp_path, "t.parquet", b"PAR1")
    assert refusal(path) == "reading parquet needs pyarrow: pip install 'eesvm[parquet]'"


@pytest.mark.parametrize(
    ("labels", "options", "expected"),
    [
        ([1, 0, 0], {}, [1, 0, 0]),
        ([-1, 1, -1], {}, [0, 1, 0]),
        ([True, False, False], {}, [1, 0, 0]),
        ([1.0, 0.0, 1.0], {}, [1, 0, 1]),
        (["true", "False", "TRUE"], {}, [1, 0, 1]),
        (["cat", "dog", "cow"], {"positive_label": "cat"}, [1, 0, 0]),
        ([3, 7, 3], {"positive_label": "7"}, [0, 1, 0]),
        ([b"yes", b"no", b"no"], {"positive_label": "yes"}, [1, 0, 0]),
    ],
)
def test_labels(tmp_path, labels, options, expected):
    path = npz(tmp_path, scores=np.arange(3.0)[:, None], labels=np.array(labels))
    assert read_score_table(path, **options).labels.tolist() == expected


@pytest.mark.parametrize(
    ("labels", "options", "complaint"),
    [
        ([1, 0, 2], {}, "`labels` must hold two different labels, got 3: '0', '1', '2'; --positive-label makes all others negative"),
        (["a", "", "b"], {"positive_label": "a"}, "`labels` has 1 missing labels, the first in row 1"),
        ([1, 1, 1], {}, "`labels` must hold two different labels, got 1: '1'"),
        (["a", "b", "a"], {}, "`labels` holds the labels 'a', 'b': say which one is positive (--positive-label)"),
        (["a", "b", "a"], {"positive_label": "c"},
         "the positive label 'c' is not among the labels in `labels`: 'a', 'b'"),
        (["a", "a", "a"], {"positive_label": "a"},
         "the positive label 'a' is the only one of the labels in `labels`: 'a'"),
        ([[1, 0, 1]], {}, "`labels` must have one dimension, got shape (1, 3)"),
        ([1, 0], {}, "`labels` must have one entry for each of the 3 rows of scores, got shape (2,)"),
        ([1j, 0, 0], {}, "`labels` must hold numbers or texts, got dtype complex128"),
    ],
)  # fmt: skip
def test_wrong_labels(tmp_path, labels, options, complaint):
    path = npz(tmp_path, scores=np.arange(3.0)[:, None], labels=np.array(labels))
    assert refusal(path, **options) == complaint


def test_labels_that_are_not_needed_may_be_anything(tmp_path):
    table = read_score_table(write(tmp_path, "t.csv", "label,a\n,1\n?,2\n!,3\n"), require_labels=False)
    assert table.labels is None
    assert table.notes == ("the labels are not used: `label` has 1 missing labels, the first in line 2",)
    with pytest.raises(InputError, match=r"`label` has 1 missing labels, the first in line 4$"):
        read_score_table(write(tmp_path, "lines.csv", "label,a\n\n1,2\n,3\n"))
    assert read_score_table(write(tmp_path, "t.csv", "a\n1\n"), require_labels=False).notes == ()


def test_missing_folder_empty_unknown(tmp_path):
    assert refusal(tmp_path / "no.csv") == "there is no such file"
    (tmp_path / "folder.npz").mkdir()
    assert refusal(tmp_path / "folder.npz") == "it is a folder, not a file"
    assert csv_refusal(tmp_path, "") == "the file is empty"
    endings = ".npz, .csv, .csv.gz, .tsv, .tsv.gz, .parquet"
    assert csv_refusal(tmp_path, "x", "t.xlsx") == f"the ending '.xlsx' is not one of {endings}"
    assert csv_refusal(tmp_path, "x", "scores") == f"a name without an ending is not one of {endings}"


def test_no_permission(tmp_path, monkeypatch):
    path = write(tmp_path, "t.csv", GOOD_CSV)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)  # root reads everything, so the refusal is played
    text = refusal(path)
    monkeypatch.undo()
    assert text == "no permission to read it"


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("t.npz", GOOD_CSV, "it is not a whole .npz archive, but text"),
        ("t.csv", b"PK\x03\x04" + bytes(99), "it is not a text table, but a zip archive"),
        ("t.csv", gzip.compress(b"label,a", mtime=0), "it is gzip-compressed: let its name end in .gz"),
        ("t.csv", GOOD_CSV.encode("utf-16"), "it is not a text table, but UTF-16 text instead of UTF-8"),
        ("t.csv", b"\x00\x01", "it is not a text table"),
        ("t.csv.gz", GOOD_CSV, "it is not gzip-compressed, although its name ends in .gz"),
        ("t.csv", "label,ü\n1,2\n".encode("latin-1"), "it is not UTF-8 text (byte 6 of a block: invalid start byte)"),
        ("t.csv", "\nlabel,a\n", "line 1 is empty: a header with the names of the columns belongs there"),
        ("t.csv", "label,a\n", "there is a header but no row below it"),
        ("t.csv", "label\n1\n0\n", "there are no columns of scores"),
        ("t.csv", "class,a\n1,2\n", "there is no column 'label' of labels, only 'class', 'a': --label-column names it"),
        ("t.csv", "class,case,a\nbad,TX-1,2\n", "there is no column 'label' of labels, only 'class', 'case', 'a': --label-column names it"),
        ("t.csv", "label;a;b\n1;2,5;3\n", "line 2, column 'a': '2,5' is not a number: write a point for the comma"),
        ("t.csv", "label,a,b,a\n1,2,3,4\n", "column 'a' is there more than once"),
        ("t.csv", "label,a,b\n1,2,3\n0,2,x\n", "line 3, column 'b': 'x' is not a number"),
        ("t.csv", "case,label,a\nTX-1,1,2\n", "line 2, column 'case': 'TX-1' is not a number; if the column holds no scores, leave it out by --exclude case"),
        ("t.csv", "label,a,b\n1,2,3\n\n0,,4\n", "line 4, column 'a': '' is not a number" + OFFER),
        ("t.csv", "label,a\n1,1_0\n", "line 2, column 'a': '1_0' is not a number"),
        ("t.csv", "label,a\n1," + "9e" * 50 + "\n", f"line 2, column 'a': '{'9e' * 20}...' is not a number"),
        ("t.csv", "label,a,b\n1,2,3\n0,2\n", "line 3 has 2 cells where the header has 3"),
        ("t.csv", "label,a\n1,2,3\n0,2,3\n", "line 2 has 3 cells where the header has 2"),
        ("t.csv", "label,a\n1,nan\n0,2\n", "1 score is NaN or infinite, the first in line 2, column 'a'" + OFFER),
        ("t.csv", "label,a\n1,2\n0,inf\n0,1e999\n", "2 scores are NaN or infinite, the first in line 3, column 'a'"),
    ],
)  # fmt: skip
def test_files_that_are_not_what_they_should_be(tmp_path, name, content, complaint):
    assert csv_refusal(tmp_path, content, name) == complaint


def test_missing_group_column(tmp_path):
    path = write(tmp_path, "t.csv", GOOD_CSV)
    assert refusal(path, group_column="image") == "there is no column 'image', only 'label', 'a', 'b'"


def test_damaged_gzip(tmp_path):
    whole = gzip.compress(os.urandom(50).hex().encode() * 50)
    assert csv_refusal(tmp_path, whole[: len(whole) // 2], "t.csv.gz").startswith("the compressed data is damaged (")


def test_a_line_without_end_is_not_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("eesvm.calibration.tables.text._HEADER_LIMIT", 10)
    assert csv_refusal(tmp_path, "label," + "a" * 100) == "its first line is longer than 10 characters"


def test_npz_with_two_arrays_of_a_name(tmp_path):
    path = npz(tmp_path, scores=np.ones((2, 2)), labels=[0, 1])
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("scores", b"raw bytes, which numpy would read in place of the array")
    assert refusal(path) == "the .npz archive has two arrays of the same name"


def test_npz_without_the_arrays(tmp_path):
    wanted = "there must be arrays `positive_scores` and `negative_scores`, or `scores` and `labels`, but there is "
    assert refusal(npz(tmp_path, x=[1], y=[2])) == wanted + "'x', 'y'"
    assert refusal(npz(tmp_path)) == wanted + "nothing"
    assert refusal(npz(tmp_path, scores=np.ones((2, 2)))) == "there is no array `labels`, only 'scores'"


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"negative_scores": np.ones((2, 4))},
         "`positive_scores` and `negative_scores` must have one column per detector, got 3 and 4 columns"),
        ({"negative_scores": np.ones((0, 3))}, "`negative_scores` has no rows: positives and negatives are needed"),
        ({"positive_scores": np.ones((0, 3))}, "`positive_scores` has no rows: positives and negatives are needed"),
        ({"negative_scores": np.ones(3)},
         "`negative_scores` must have two dimensions (windows, detectors), got shape (3,)"),
        ({"negative_scores": np.array([["a"] * 3])}, "`negative_scores` must hold numbers, got dtype <U1"),
        ({"negative_scores": np.array([[0, np.nan, 0], [np.inf, 0, 0]])},
         "`negative_scores` holds 2 values that are NaN or infinite, the first at row 0, column 1" + OFFER),
        ({"negative_groups": [1, 2]}, "there is an array `negative_groups` but no `positive_groups`"),
        ({"positive_groups": [1], "negative_groups": [1, 2]}, "`positive_groups` must have shape (2,), got (1,)"),
        ({"positive_weights": [1.0]}, "`positive_weights` must have shape (2,), got (1,)"),
        ({"negative_weights": [1.0, -1.0]}, "`weights` must be >= 0, got -1 at index 3"),
        ({"exemplar_groups": [1]},
         "`exemplar_groups` must have one entry for each of the 3 columns of scores, got shape (1,)"),
        ({"exemplar_names": ["a", "b", "a"]}, "`exemplar_names` holds 'a' more than once"),
        ({"exemplar_names": [["a"]]}, "`exemplar_names` must be a row of texts, got shape (1, 1) of dtype <U1"),
        ({"forbidden": np.zeros((2, 3))}, "`forbidden` must be an array of booleans, got dtype float64"),
        ({"forbidden": np.zeros((1, 3), dtype=bool)},
         "`forbidden` must have one row per positive and one column per detector, (2, 3), got (1, 3)"),
        ({"negative_scores": np.array([[None] * 3])},
         "the array `negative_scores` holds Python objects (a pickle), which are never loaded"),
    ],
)  # fmt: skip
def test_npz_arrays_that_disagree(tmp_path, arrays, complaint):
    arrays = {"positive_scores": np.ones((2, 3)), "negative_scores": np.zeros((2, 3))} | arrays
    assert refusal(npz(tmp_path, **arrays)) == complaint


def test_npz_of_two_tables(tmp_path):
    path = npz(
        tmp_path,
        positive_scores=np.float32([[1, 2]]),
        negative_scores=np.float32([[3, 4], [5, 6]]),
        positive_groups=["a"],
        negative_groups=["b", "c"],
        negative_weights=[2.0, 3.0],
        exemplar_names=["x", "y"],
        exemplar_groups=["a", "b"],
        forbidden=[[True, False]],
        something_else=[1, 2, 3],
    )
    table = read_score_table(path)
    assert table.scores.dtype == np.float32
    assert table.labels.tolist() == [1, 0, 0]
    assert table.weights.tolist() == [1, 2, 3]
    problem = table.problem(across_groups=True)
    assert problem.positive_scores.tolist() == [[1, 2]]
    assert problem.negative_weights.tolist() == [2, 3]
    assert problem.forbidden.tolist() == [[True, False]]
    assert read_score_table(path, columns=["y"]).scores.tolist() == [[2], [4], [6]]


@pytest.mark.parametrize("groups", [np.array([7, 3]), np.array(["negative_0", "b"]), np.array([b"x", b"y"])])
def test_negatives_without_groups_are_a_group_each(tmp_path, groups):
    arrays = {"positive_scores": np.ones((2, 1)), "negative_scores": np.zeros((3, 1)), "positive_groups": groups}
    table = read_score_table(npz(tmp_path, **arrays, exemplar_groups=groups[:1]))
    assert len(set(table.groups.tolist())) == 5
    assert table.problem(across_groups=True).forbidden.tolist() == [[True], [False]]


def test_truncated_npz(tmp_path):
    path = npz(tmp_path, positive_scores=np.ones((50, 3)), negative_scores=np.ones((50, 3)))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert refusal(path) == "it is not a whole .npz archive: it may have been cut short"
    path.write_bytes(whole.replace(np.ones(3).tobytes(), np.full(3, 7.0).tobytes(), 1))
    assert refusal(path).startswith("the .npz archive is damaged (Bad CRC-32")


def test_npz_that_declares_more_than_it_holds(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**4)})
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("scores.npy", header.getvalue() + bytes(80))
    assert refusal(tmp_path / "t.npz") == (
        "the array `scores` declares shape (1000000000, 10000) and 80,000,000,000,000 bytes, "
        "which the file does not hold"
    )


def test_names_are_not_guessed_where_there_are_none(tmp_path):
    path = npz(tmp_path, scores=np.ones((2, 2)), labels=[0, 1])
    table = read_score_table(path)
    assert table.exemplar_names is None
    assert table.names == ["exemplar_0", "exemplar_1"]
    assert read_score_table(path, columns=["p", "q"]).n_exemplars == 2
    assert refusal(path, columns=["p"]) == "there are 2 columns of scores where 1 are expected"
    with pytest.raises(InputError, match=r"^the columns of this table have no names"):
        table.columns(["p"])


def test_across_groups_needs_groups():
    table = ScoreTable(np.ones((2, 1)), np.array([1, 0], dtype=np.int8))
    with pytest.raises(InputError, match=r"^coverage across groups needs `groups` for the windows"):
        table.problem(across_groups=True)


@given(tables(), st.randoms(use_true_random=False))
def test_rows_keep_what_belongs_to_them(table, random):
    chosen = np.array(random.sample(range(table.n_rows), random.randint(1, table.n_rows)))
    part = table.rows(chosen)
    np.testing.assert_array_equal(part.scores, table.scores[chosen])
    if table.forbidden is not None:
        full = np.zeros(table.scores.shape, dtype=bool)
        full[table.labels == 1] = table.forbidden
        np.testing.assert_array_equal(part.forbidden, full[chosen][part.labels == 1])


def test_writing_needs_the_right_name(tmp_path):
    table = ScoreTable(np.ones((2, 1)))
    with pytest.raises(InputError, match=r"^a score table is written as \.npz, got .*t\.csv$"):
        write_score_table(tmp_path / "t.csv", table)
    table = ScoreTable(np.ones((2, 1)), groups=np.array(["a", None], dtype=object))
    with pytest.raises(InputError, match=r"^`groups` holds Python objects, which a \.npz keeps only as a pickle$"):
        write_score_table(tmp_path / "t.npz", table)
    assert list(tmp_path.iterdir()) == []


def test_the_index_that_pandas_writes_is_no_detector(tmp_path):
    sentence = (
        "column '' is without a name, like the index that pandas writes: leave it out (index=False), "
        "or give it a name if it is a detector's"
    )
    assert csv_refusal(tmp_path, ",a,label\n0,1.5,1\n1,0.5,0\n") == sentence
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"a": [1.5, 0.5, 2.5], "label": [1, 0, 1]}).iloc[[2, 0, 1]]
    frame.to_parquet(tmp_path / "t.parquet")
    assert "column '__index_level_0__' is without a name" in refusal(tmp_path / "t.parquet")


def test_a_score_column_may_have_the_name_of_the_label_column(tmp_path):
    path = write(tmp_path, "t.csv", "label,b,y\n0.25,1,1\n0.75,2,0\n")
    table = read_score_table(path, require_labels=False, columns=["b", "label"])
    assert table.scores.tolist() == [[1, 0.25], [2, 0.75]]


def test_elements_without_bytes_claim_nothing(tmp_path):
    import io
    import zipfile

    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<U0", "fortran_order": False, "shape": (10**10,)})
    np.savez(tmp_path / "t.npz", positive_scores=np.ones((2, 1)), negative_scores=np.zeros((2, 1)))
    with zipfile.ZipFile(tmp_path / "t.npz", "a") as archive:
        archive.writestr("exemplar_names.npy", header.getvalue())
    assert "exemplar_names" in refusal(tmp_path / "t.npz")


def numbered(tmp_path, ids, name="t.csv", n=30):
    """A table of one detector and a column of numbers that nobody meant as scores."""
    rng = np.random.default_rng(0)
    columns = {"label": np.arange(n) % 2, "id": ids, "a": rng.normal(size=n).round(3)}
    if name.endswith(".parquet"):
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(columns), tmp_path / name)
        return tmp_path / name
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    return write(tmp_path, name, "\n".join(lines) + "\n")


COUNTING = (
    "column 'id' is not like scores but like numbers of rows, whole and no two alike: leave it out by --exclude id, or "
    "name all columns of scores by --columns"
)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
@pytest.mark.parametrize(
    "ids",
    [
        np.arange(30),
        np.arange(30)[::-1] + 7,
        np.random.default_rng(0).permutation(30) + 1000,
        np.cumsum(np.random.default_rng(0).integers(1, 9, 30)),
    ],
)
def test_a_column_that_counts_rows_is_no_detector(tmp_path, name, ids):
    file = numbered(tmp_path, ids, name)
    with pytest.raises(InputError) as caught:
        read_score_table(file)
    assert str(caught.value) == f"{file}: {COUNTING}"
    table = read_score_table(file, exclude=["id"])
    assert (table.exemplar_names, table.notes) == (["a"], ("column 'id' is not used",))
    assert read_score_table(file, columns=["a"]).exemplar_names == ["a"]
    assert read_score_table(file, columns=["a", "id"]).exemplar_names == ["a", "id"]  # asked for by name
    assert read_score_table(file, columns=["id", "a"], exclude=["id"]).exemplar_names == ["a"]


def test_a_column_called_weight_is_noticed(tmp_path):
    (tmp_path / "t.csv").write_text("label,a,Weight\n1,2,0.5\n0,1,2\n")
    table = read_score_table(tmp_path / "t.csv")
    assert table.exemplar_names == ["a", "Weight"]
    assert table.notes == (
        "column 'Weight' is taken for scores of a detector: if it holds weights, leave it out by --exclude Weight; "
        "weights of negatives are read from .npz files",
    )
    assert not read_score_table(tmp_path / "t.csv", columns=["a", "Weight"]).notes  # asked for by name


def test_whole_numbers_of_which_no_two_are_alike_are_noticed(tmp_path):
    ids = np.random.default_rng(0).permutation(1000)[:30]
    table = read_score_table(numbered(tmp_path, ids))
    assert table.exemplar_names == ["id", "a"]
    assert table.notes == (
        "column 'id' holds whole numbers, no two alike: if they are identifiers, leave it out by --exclude id",
    )
    for usual in (ids // 2 * 2.5, ids % 20, np.where(ids % 2, 1, 0)):  # fractions, repeated numbers, flags
        assert read_score_table(numbered(tmp_path, usual)).notes == ()
    assert read_score_table(numbered(tmp_path, np.arange(10), n=10)).exemplar_names == ["id", "a"]  # too few to tell


def test_columns_to_be_left_out_must_be_there(tmp_path):
    file = numbered(tmp_path, np.arange(30))
    with pytest.raises(InputError) as caught:
        read_score_table(file, exclude=["id", "ID"])
    assert str(caught.value) == f"{file}: column 'ID' is missing, so it cannot be left out; there is 'label', 'id', 'a'"
    np.savez(tmp_path / "t.npz", scores=np.eye(3), labels=[0, 1, 1], exemplar_names=["a", "b", "c"])
    assert read_score_table(tmp_path / "t.npz", exclude=["b"]).exemplar_names == ["a", "c"]
    with pytest.raises(InputError, match=r"t.npz: column 'd' is not in the table, which has 'a', 'b', 'c'$"):
        read_score_table(tmp_path / "t.npz", exclude=["d"])
