"""Bounds on thresholds in files: read from a table, kept with a calibration, and refused line by line."""

import csv
import json

import numpy as np
import pytest

from eesvm import CalibrationProblem, InputError, JointCalibrator, load_calibration, save_calibration
from eesvm.calibration.tables.examples import synthetic_score_table
from eesvm.calibration.tables.fit import fit_table
from eesvm.calibration.tables.score_table import ScoreTable, write_score_table
from eesvm.calibration.tables.threshold_bounds import read_bounds
from eesvm.cli import main

NAMES = ["a", "b b", "1", "ü"]


def read(tmp_path, text, names=NAMES):
    path = tmp_path / "bounds.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_bounds(path, names)


def test_lines_name_a_detector_and_its_bounds(tmp_path):
    lower, upper = read(tmp_path, "detector,lower,upper\nb b,-1.5,2e3\n\nü,,0\n0,inf,\n")
    assert lower.tolist() == [np.inf, -1.5, -np.inf, -np.inf]
    assert upper.tolist() == [np.inf, 2000, np.inf, 0]
    # A name comes before an index: "1" is the third detector. The column may be called as in thresholds.csv, too.
    assert read(tmp_path, "exemplar,lower,upper\n1,7,7\n")[0].tolist() == [-np.inf, -np.inf, 7, -np.inf]


def test_spreadsheets_of_all_countries(tmp_path):
    expected = read(tmp_path, "exemplar,lower,upper\na,1,2\n")
    for text in (
        "\ufeffupper;exemplar;lower\r\n2;a;1\r\n",
        'detector , "lower", upper\n"a", 1 , 2\n,,\n',
        "exemplar\tlower\tupper\na\t1\t2",
    ):
        np.testing.assert_array_equal(read(tmp_path, text), expected)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the file is empty"),
        ("\n", "line 1 must name the columns 'detector', 'lower', 'upper', got nothing"),
        ("a,1,2\n", "line 1 must name the columns 'detector', 'lower', 'upper', got 'a', '1', '2'"),
        ("exemplar,lower\n", "line 1 must name the columns 'detector', 'lower', 'upper', got 'exemplar', 'lower'"),
        ("exemplar,lower,upper\na,1\n", "line 2 has 2 cells where the header has 3"),
        ("exemplar,lower,upper\n\nc,1,2\n",
         "line 3: there is no detector 'c'; the table has 'a', 'b b', '1', 'ü', or by index 0 to 3"),
        ("exemplar,lower,upper\n4,1,2\n",
         "line 2: there is no detector '4'; the table has 'a', 'b b', '1', 'ü', or by index 0 to 3"),
        ("exemplar,lower,upper\n-1,1,2\n",
         "line 2: there is no detector '-1'; the table has 'a', 'b b', '1', 'ü', or by index 0 to 3"),
        ("exemplar,lower,upper\n,1,2\n",
         "line 2: there is no detector ''; the table has 'a', 'b b', '1', 'ü', or by index 0 to 3"),
        ("exemplar,lower,upper\na,1,2\n0,,\n", "line 3: detector '0' has its bounds in line 2 already"),
        ("exemplar,lower,upper\na,x,2\n", "line 2: column 'lower' must be a number, inf, -inf or empty, got 'x'"),
        ("exemplar,lower,upper\na,,nan\n", "line 2: column 'upper' must be a number, inf, -inf or empty, got 'nan'"),
        ("exemplar,lower,upper\na,,1_0\n", "line 2: column 'upper' must be a number, inf, -inf or empty, got '1_0'"),
        ("exemplar,lower,upper\na,2,1\n", "line 2: the lower bound 2 is above the upper bound 1"),
        (b"exemplar,lower,upper\n\xff,2,1\n", "it is not UTF-8 text"),
        ("exemplar,lower,upper\n" + "x" * 200_000 + ",2,1\n", "line 2: field larger than field limit (131072)"),
    ],
)  # fmt: skip
def test_lines_that_cannot_be_meant(tmp_path, text, sentence):
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert str(caught.value) == f"{tmp_path / 'bounds.csv'}: {sentence}"


def test_files_that_are_none(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"none\.csv: there is no such file$"):
        read_bounds(tmp_path / "none.csv", NAMES)
    monkeypatch.setattr("eesvm.calibration.tables.threshold_bounds._MAX_BYTES", 10)
    with pytest.raises(InputError, match=r"bounds\.csv: it is too large to be a table of bounds \(27 bytes\)$"):
        read(tmp_path, "exemplar,lower,upper\na,1,2\n")


# Calibrations


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_calibration_keeps_its_bounds(tmp_path, dtype):
    positives, negatives = np.array([[3, 1, 0], [1, 3, 0]], dtype=dtype), np.array([[0, 0, 1]], dtype=dtype)
    lower, upper = [0.1, -np.inf, np.inf], [0.1, 2.5, np.inf]
    problem = CalibrationProblem(positives, negatives, lower_thresholds=lower, upper_thresholds=upper)
    saved = JointCalibrator(method="greedy").fit_problem(problem)
    save_calibration(tmp_path / "c.json", saved)
    content = json.loads((tmp_path / "c.json").read_text())
    assert content["lower_thresholds"] == [float(problem.lower_thresholds[0]), None, "inf"]
    assert content["upper_thresholds"][1:] == [2.5, None]
    loaded = load_calibration(tmp_path / "c.json")
    for name in ("lower_thresholds_", "upper_thresholds_"):
        assert getattr(loaded, name).dtype == dtype
        np.testing.assert_array_equal(getattr(loaded, name), getattr(saved, name))
    save_calibration(tmp_path / "again.json", loaded)
    assert (tmp_path / "again.json").read_text() == (tmp_path / "c.json").read_text()


def test_a_calibration_without_bounds_says_nothing_about_them(tmp_path):
    saved = JointCalibrator(method="greedy").fit([[3.0, 1.0], [1.0, 3.0], [0.0, 0.0]], [1, 1, 0])
    save_calibration(tmp_path / "c.json", saved)
    assert "lower_thresholds" not in json.loads((tmp_path / "c.json").read_text())
    loaded = load_calibration(tmp_path / "c.json")
    assert loaded.lower_thresholds_.tolist() == [-np.inf] * 2
    assert loaded.upper_thresholds_.tolist() == [np.inf] * 2


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("lower_thresholds", [1.0], "`lower_thresholds` must be a list of 2 entries"),
        ("upper_thresholds", "inf", "`upper_thresholds` must be a list of 2 entries"),
        ("upper_thresholds", [1, True], '`upper_thresholds` must hold finite numbers, "inf", "-inf", and null for no bound'),
        ("upper_thresholds", [[], {}], '`upper_thresholds` must hold finite numbers, "inf", "-inf", and null for no bound'),
        ("lower_thresholds", [0.1, None], "`lower_thresholds` holds a number that is not a float32"),
        ("lower_thresholds", [9, None], "`lower_thresholds` holds a number above the one in `upper_thresholds`"),
    ],
)  # fmt: skip
def test_bounds_that_are_none(tmp_path, field, value, sentence):
    scores = np.float32([[3, 1], [1, 3], [0, 0]])
    calibrator = JointCalibrator(method="greedy", upper_thresholds=[2, 2]).fit(scores, [1, 1, 0])
    save_calibration(tmp_path / "c.json", calibrator)
    content = json.loads((tmp_path / "c.json").read_text()) | {field: value}
    (tmp_path / "c.json").write_text(json.dumps(content))
    with pytest.raises(InputError) as caught:
        load_calibration(tmp_path / "c.json")
    assert str(caught.value) == f"{tmp_path / 'c.json'}: {sentence}"


def test_another_problem_has_other_bounds_and_groups():
    table = ScoreTable(
        np.array([[3.0, 1.0], [1.0, 3.0], [0.0, 0.0]]), np.array([1, 1, 0], dtype=np.int8), np.array([*"xyz"]),
        np.array([*"yx"]), ["a", "b"],
    )  # fmt: skip
    calibrator = JointCalibrator(method="greedy", lower_thresholds=[0.5, -np.inf])
    problem = fit_table(table, calibrator, across_groups=True)
    assert problem.lower_thresholds.tolist() == [0.5, -np.inf]
    assert calibrator.across_groups_
    calibrator.fit_problem(table.problem())
    assert not hasattr(calibrator, "across_groups_")
    assert not hasattr(calibrator, "exemplar_names_")
    assert calibrator.lower_thresholds_.tolist() == [-np.inf, -np.inf]


# The command


@pytest.fixture
def scores(tmp_path):
    table = synthetic_score_table(4, 30, 100, "overlapping", random_state=1)
    write_score_table(tmp_path / "s.npz", ScoreTable(table.scores, table.labels, exemplar_names=NAMES))
    return tmp_path / "s.npz"


def test_calibrate_locks_thresholds(tmp_path, scores, capsys):
    bounds = tmp_path / "bounds.csv"
    bounds.write_text("detector,lower,upper\na,inf,\nb b,0.25,0.25\n")
    command = ["calibrate", scores, "--method", "algorithm1", "--bounds", bounds, "-o", tmp_path / "out", "--compare"]
    assert main(list(map(str, command))) == 0
    assert "note: bounds on thresholds are not part of the comparison" in capsys.readouterr().out
    loaded = load_calibration(tmp_path / "out")
    assert loaded.thresholds_[:2].tolist() == [np.inf, 0.25]
    with open(tmp_path / "out" / "thresholds.csv", newline="") as handle:
        assert [row["threshold"] for row in csv.DictReader(handle)][:2] == ["inf", "0.25"]


def test_calibrate_says_what_is_wrong_with_the_bounds(tmp_path, scores, capsys):
    bounds = tmp_path / "bounds.csv"
    bounds.write_text("exemplar,lower,upper\nnobody,1,2\n")
    assert main(["calibrate", str(scores), "-o", str(tmp_path / "out"), "--bounds", str(bounds)]) == 1
    assert capsys.readouterr().err.startswith(
        f"eesvm: error: {bounds}: line 2: there is no detector 'nobody'; the table"
    )
    assert not (tmp_path / "out").exists()
