"""Scores that are missing: a detector that did not fire accepts nothing, and nothing is learned from it."""

import csv
import json
import re

import numpy as np
import pandas as pd
import pytest

from eesvm import (
    AffineCalibrator,
    CalibrationProblem,
    InputError,
    IsotonicCalibrator,
    JointCalibrator,
    SigmoidCalibrator,
    Uncalibrated,
    load_calibration,
    recall_frontier,
    save_calibration,
    verify,
)
from eesvm._support.validation import OFFER
from eesvm.calibration.calibrators.joint import spreads
from eesvm.calibration.files.arrays import load_calibrator, save_calibrator
from eesvm.calibration.tables.examples import synthetic_score_table
from eesvm.calibration.tables.fit import score_rows
from eesvm.calibration.tables.score_table import ScoreTable, read_score_table, write_score_table
from eesvm.cli import main
from eesvm.experiments.tables.windows import compare_calibrators
from helpers import reference
from helpers.evidence import verified_solve as solve
from helpers.examples import few, many

NAN = np.nan
NOT_FIRED = {"missing": "not-fired"}


def holed_problem(random, max_exemplars=4, max_positives=5, max_negatives=6, **options):
    """A small problem with ties, weights, forbidden pairs and bounds, in which many scores are missing."""
    n_exemplars, n_positives = random.integers(1, max_exemplars + 1), random.integers(1, max_positives + 1)
    n_negatives, span = random.integers(1, max_negatives + 1), random.choice([1, 3, 8])
    scores = random.integers(-span, span + 1, (n_positives + n_negatives, n_exemplars)) / 2
    scores[random.random(scores.shape) < random.choice([0.1, 0.4, 0.8])] = random.choice([NAN, -np.inf])
    if random.random() < 0.3:
        options |= {"forbidden": random.random((n_positives, n_exemplars)) < 0.3}
    if random.random() < 0.5:
        options |= {
            "positive_weights": random.integers(1, 9, n_positives) / 4,
            "negative_weights": random.integers(0, 9, n_negatives) / 4,
        }
    if random.random() < 0.3:
        options["lower_thresholds"] = random.choice([-np.inf, -0.5, 0.25], n_exemplars)
    if random.random() < 0.3:
        options["upper_thresholds"] = random.choice([np.inf, np.inf, 0.5, 1.5], n_exemplars)
    dtype = random.choice([np.float32, np.float64])
    scores = scores.astype(dtype)
    return CalibrationProblem(scores[:n_positives], scores[n_positives:], **options, **NOT_FIRED)


def test_thousands_of_problems_equal_brute_force():
    random = np.random.default_rng(0)
    n_solved = n_refused = 0
    for _ in range(many(1200)):
        problem = holed_problem(random)
        floor = float(random.choice([1.0, 0.9, 0.7, 0.4]))
        best = reference.brute_force(problem, floor)
        if best is None:
            with pytest.raises(InputError, match=r"cannot be covered|no score at all"):
                solve(problem, min_recall=floor, n_jobs=1)
            n_refused += 1
            continue
        result = solve(problem, min_recall=floor, n_jobs=1)
        assert result.status == "optimal"
        assert result.loss == result.lower_bound == best
        assert problem.is_feasible(result.thresholds, floor)
        assert not np.isneginf(result.thresholds).any() or np.isneginf(problem.upper_thresholds).any()
        check = verify(problem, result)
        assert check.is_valid, check.problems
        n_solved += 1
    assert min(n_solved, n_refused) > many(1200) // 6


@pytest.mark.parametrize("method", ["algorithm1", "exhaustive", "greedy"])
def test_other_methods(method):
    random = np.random.default_rng(1)
    for _ in range(150):
        problem = holed_problem(random, 3, 4, 5)
        best = reference.brute_force(problem, 0.5)
        if best is None:
            continue
        result = solve(problem, method=method, min_recall=0.5, n_jobs=1)
        assert result.lower_bound <= best <= result.loss
        assert method == "greedy" or result.loss == best


@pytest.mark.parametrize("floor", [1.0, 0.9, 0.75])
def test_equals_the_integer_program(floor):
    for seed in few(range(6)):
        random = np.random.default_rng(seed)
        scores = random.normal(size=(90, 6)).round(1)
        scores[random.random(scores.shape) < 0.5] = NAN
        scores[:30][np.isnan(scores[:30]).all(axis=1), 0] = 0.0
        problem = CalibrationProblem(scores[:30], scores[30:], **NOT_FIRED)
        result = solve(problem, min_recall=floor, n_jobs=1)
        assert result.loss == result.lower_bound == pytest.approx(reference.mixed_integer_program(problem, floor))
        assert verify(problem, result).is_valid


def test_a_low_score_in_place_of_a_missing_one_changes_no_loss_while_all_positives_are_scored():
    """Below everything else it is accepted by nobody who need not."""
    for seed in few(range(8), 2):
        random = np.random.default_rng(seed)
        scores = random.normal(size=(80, 5)).round(1)
        holes = random.random(scores.shape) < 0.4
        holes[holes.all(axis=1), 0] = False
        holed = CalibrationProblem(np.where(holes, NAN, scores)[:30], np.where(holes, NAN, scores)[30:], **NOT_FIRED)
        filled = np.where(holes, -1000.0, scores)
        low = CalibrationProblem(filled[:30], filled[30:], forbidden=holes[:30])
        for floor in (1.0, 0.9):
            first, second = solve(holed, min_recall=floor, n_jobs=1), solve(low, min_recall=floor, n_jobs=1)
            assert first.loss == second.loss
            assert (first.thresholds > -500).all()
        frontier = recall_frontier(holed, [1, 0.9], n_jobs=1)
        assert frontier.losses.tolist() == [solve(low, min_recall=r, n_jobs=1).loss for r in (1, 0.9)]


def test_missing_scores_set_no_threshold():
    """The rule between two scores is as if the cells were not there."""
    problem = CalibrationProblem([[4.0, NAN], [NAN, 3.0]], [[NAN, 5.0], [1.0, NAN]], **NOT_FIRED)
    result = solve(problem, n_jobs=1)
    assert result.thresholds.tolist() == [2.5, 2.0]
    assert problem.candidate_thresholds(0).tolist() == [2.5]
    assert problem.candidate_thresholds(1).tolist() == [np.inf, 2.0]
    assert result.assignment.tolist() == [0, 1]
    assert problem.covers([-np.inf, np.inf]).tolist() == [True, False]
    assert problem.accepts([-np.inf, np.inf]).tolist() == [False, True]
    assert problem.assign([-np.inf, -np.inf]).tolist() == [0, 1]


def test_positives_without_a_score_are_named_or_left_out():
    positives = [[1.0, 2.0], [NAN, NAN], [0.0, NAN], [NAN, NAN]]
    problem = CalibrationProblem(positives, [[0.5, 0.5]], **NOT_FIRED)
    sentence = (
        "positives 1, 3 have no score at all, so no thresholds cover them: leave them out of the table or lower "
        "`min_recall`, now 0.75"
    )
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        solve(problem, min_recall=0.75)
    result = solve(problem, min_recall=0.5, n_jobs=1)
    assert (result.recall, result.loss) == (0.5, 1.0)
    assert result.assignment[[1, 3]].tolist() == [-1, -1]
    one = CalibrationProblem([[NAN], [1.0]], [[0.0]], [3.0, 1.0], **NOT_FIRED)
    sentence = (
        "positive 0 has no score at all, so no thresholds cover it: leave it out of the table or lower `min_recall`, "
        "now 0.5"
    )
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        solve(one, min_recall=0.5)
    assert solve(one, min_recall=0.25, n_jobs=1).recall == 0.25


def test_columns_and_rows_without_any_score():
    problem = CalibrationProblem([[1.0, NAN, 2.0]], [[0.0, NAN, NAN], [NAN, NAN, NAN]], **NOT_FIRED)
    result = solve(problem, n_jobs=1)
    assert result.loss == 0
    assert result.thresholds[1] == np.inf
    assert problem.notes() == [
        "Column 2 is constant: such a detector can accept everything or nothing.",
        "Column 1 is without any score: such a detector accepts nothing.",
    ]
    nothing = CalibrationProblem(np.full((3, 2), NAN), np.full((2, 2), NAN), **NOT_FIRED)
    with pytest.raises(InputError, match=r"^positives 0, 1, 2 have no score at all, so no thresholds cover them: "):
        solve(nothing, min_recall=0.01)


@pytest.mark.parametrize(
    ("scores", "options", "sentence"),
    [
        ([[1.0, NAN]], {}, "`positive_scores` holds 1 value that is NaN or infinite, the first at row 0, column 1; "
         "`missing='not-fired'` (--missing not-fired) takes what is missing for a detector that did not fire"),
        ([[1.0, np.inf]], {}, "`positive_scores` holds 1 value that is NaN or infinite, the first at row 0, column 1"),
        ([[1.0, np.inf]], NOT_FIRED, "`positive_scores` holds 1 value that is +inf, the first at row 0, column 1"),
        ([[1.0, 2.0]], {"missing": "zero"}, "`missing` must be one of 'refuse', 'not-fired', got 'zero'"),
        ([[1.0, 2.0]], {"missing": None}, "`missing` must be one of 'refuse', 'not-fired', got None"),
    ],
)  # fmt: skip
def test_what_is_refused(scores, options, sentence):
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        CalibrationProblem(scores, [[0.0, 0.0]], **options)


def test_masks_and_frames():
    masked = np.ma.array([[5, 1], [2, 3]], mask=[[1, 0], [0, 0]])
    problem = CalibrationProblem(masked, [[0.0, 0.0]], **NOT_FIRED)
    assert problem.positive_scores.tolist() == [[-np.inf, 1.0], [2.0, 3.0]]
    frame = pd.DataFrame({"a": pd.array([1, None, 0, 0], dtype="Int64"), "b": [NAN, 2.0, 1.0, NAN]})
    fitted = JointCalibrator(**NOT_FIRED).fit(frame, [1, 1, 0, 0])
    assert fitted.predict(frame).tolist() == [1, 1, 0, 0]
    assert fitted.feature_names_in_.tolist() == ["a", "b"]


# Calibrators


def holed_table(seed=0, share=0.3):
    table = synthetic_score_table(4, 40, 200, "overlapping", random_state=seed)
    scores = table.scores.astype(np.float64)
    scores[np.random.default_rng(seed).random(scores.shape) < share] = NAN
    scores[:40][np.isnan(scores[:40]).all(axis=1), 0] = 0.0
    return scores, table.labels


CALIBRATORS = [
    Uncalibrated(**NOT_FIRED),
    SigmoidCalibrator(margin=None, **NOT_FIRED),
    IsotonicCalibrator(**NOT_FIRED),
    AffineCalibrator(quantile=0.9, **NOT_FIRED),
    JointCalibrator(**NOT_FIRED),
    JointCalibrator(scale="spread", **NOT_FIRED),
    JointCalibrator(sigmoid=True, **NOT_FIRED),
]


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=repr)
def test_calibrators_learn_from_what_is_there(calibrator):
    S, y = holed_table()
    calibrator.fit(S, y)
    outputs = calibrator.transform(S)
    is_missing = np.isnan(S)
    assert not np.isnan(outputs).any()
    assert (outputs[is_missing] == (-np.inf if (outputs < 0).any() else 0.0)).all()
    nothing = np.full((2, 4), NAN)
    negative = calibrator.classes_[0]
    assert calibrator.predict(nothing).tolist() == [negative, negative]
    assert np.isin(calibrator.predict(S), calibrator.classes_).all()
    winners = calibrator.assign(S)
    assert (~is_missing[np.arange(len(S)), winners] | (outputs.max(axis=1) <= 0)).all()
    # -inf is another way to write the same.
    np.testing.assert_array_equal(calibrator.transform(np.where(is_missing, -np.inf, S)), outputs)
    order = np.random.default_rng(1).permutation(len(S))
    shuffled = calibrator.fit(S[order], y[order]).transform(S)
    if not isinstance(calibrator, SigmoidCalibrator):
        np.testing.assert_allclose(shuffled, outputs, rtol=1e-9)


@pytest.mark.parametrize(
    "calibrator",
    [one for one in CALIBRATORS if isinstance(one, SigmoidCalibrator | IsotonicCalibrator | AffineCalibrator)],
    ids=repr,
)
def test_each_column_is_calibrated_as_if_its_missing_rows_were_not_there(calibrator):
    S, y = holed_table(3)
    outputs = calibrator.fit(S, y).transform(S)
    for j in range(S.shape[1]):
        rows = ~np.isnan(S[:, j])
        alone = type(calibrator)(**calibrator.get_params() | {"missing": "refuse"})
        np.testing.assert_allclose(
            alone.fit(S[rows][:, [j]], y[rows]).transform(S[rows][:, [j]])[:, 0], outputs[rows, j], rtol=1e-9
        )


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=repr)
def test_a_column_without_scores(calibrator):
    S, y = holed_table()
    S[:, 2] = NAN
    S[:40][np.isnan(S[:40]).all(axis=1), 0] = 0.0
    outputs = calibrator.fit(S, y).transform(S)
    assert not np.isnan(outputs).any()
    assert (calibrator.assign(S) != 2).all()


def test_spreads_are_of_what_is_there():
    S, _ = holed_table()
    expected = [np.std(column[~np.isnan(column)]) for column in S.T]
    np.testing.assert_allclose(spreads(np.where(np.isnan(S), -np.inf, S)), expected)
    assert spreads(np.array([[-np.inf, 2.0], [-np.inf, -np.inf]])).tolist() == [1.0, 1.0]


def test_files_keep_what_missing_means(tmp_path):
    S, y = holed_table()
    for number, calibrator in enumerate((JointCalibrator(sigmoid=True, **NOT_FIRED), JointCalibrator())):
        scores = S if number == 0 else np.nan_to_num(S)
        save_calibration(tmp_path / "c.json", calibrator.fit(scores, y))
        loaded = load_calibration(tmp_path / "c.json")
        assert loaded.missing == calibrator.missing
        assert ("missing" in json.loads((tmp_path / "c.json").read_text())) == (number == 0)
        np.testing.assert_array_equal(loaded.transform(scores), calibrator.transform(scores))
    content = json.loads((tmp_path / "c.json").read_text()) | {"missing": "maybe"}
    (tmp_path / "c.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"`missing` must be one of refuse, not-fired, got 'maybe'$"):
        load_calibration(tmp_path / "c.json")
    affine = AffineCalibrator(quantile=0.9, **NOT_FIRED).fit(S, y)
    save_calibrator(tmp_path / "a.safetensors", "affine", affine)
    again = load_calibrator(tmp_path / "a.safetensors", "affine", 4)
    np.testing.assert_array_equal(again.transform(S), affine.transform(S))


def test_all_calibrators_side_by_side():
    S, y = holed_table()
    tables = compare_calibrators(S[::2], y[::2], S[1::2], y[1::2], n_jobs=1, **NOT_FIRED)
    assert all(
        0 <= row.average_precision <= 1 for row in tables.comparisons[0].rows if row.average_precision is not None
    )
    with pytest.raises(InputError, match=re.escape(OFFER)):
        compare_calibrators(S[::2], y[::2], S[1::2], y[1::2])


# Tables and the command


CSV = "label,a,b\n1,3,\n1,NA,2\n0,nan,1\n0,2,n/a\n0,null,-inf\n0,,-\n"
EXPECTED = [[3, -np.inf], [-np.inf, 2], [-np.inf, 1], [2, -np.inf], [-np.inf, -np.inf], [-np.inf, -np.inf]]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_text_tables(tmp_path, name):
    path = tmp_path / name
    path.write_text(CSV.replace(",", "\t") if name == "t.tsv" else CSV)
    table = read_score_table(path, missing="not-fired")
    assert table.scores.tolist() == EXPECTED
    assert table.notes == (
        "8 of 12 scores are missing and count as not fired",
        "2 rows have no score at all and are never accepted, the first in line 6",
    )
    result = solve(table.problem(), n_jobs=1)
    assert (result.loss, result.thresholds.tolist()) == (0, [2.5, 1.5])
    with pytest.raises(InputError, match=re.escape("line 2, column 'b': '' is not a number" + OFFER)):
        read_score_table(path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("label,a\n1,x\n", "line 2, column 'a': 'x' is not a number"),
        ("label,a\n1,1_0\n", "line 2, column 'a': '1_0' is not a number"),
        ("label,a\n1,\n0,inf\n", "1 score is NaN or infinite, the first in line 3, column 'a'"),
        ("label,a,b\n1,2,\n0,1\n", "line 3 has 2 cells where the header has 3"),
    ],
)
def test_text_tables_that_are_refused_even_so(tmp_path, content, sentence):
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=f"{re.escape(sentence)}$"):
        read_score_table(path, missing="not-fired")


def test_other_tables(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    columns = {"label": [1, 1, 0], "a": [3, None, 1], "b": pyarrow.array([NAN, 2.0, None]), "c": [None, None, None]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    expected = [[3, -np.inf, -np.inf], [-np.inf, 2, -np.inf], [1, -np.inf, -np.inf]]
    assert read_score_table(tmp_path / "t.parquet", missing="not-fired").scores.tolist() == expected
    scores = np.array([[3.0, NAN], [NAN, 2.0], [1.0, -np.inf]])
    np.savez(tmp_path / "t.npz", scores=scores, labels=[1, 1, 0])
    table = read_score_table(tmp_path / "t.npz", missing="not-fired")
    assert table.scores.tolist() == [[3, -np.inf], [-np.inf, 2], [1, -np.inf]]
    write_score_table(tmp_path / "again.npz", table)
    assert read_score_table(tmp_path / "again.npz", missing="not-fired").scores.tolist() == table.scores.tolist()
    with pytest.raises(InputError, match="`missing` must be one of"):
        read_score_table(tmp_path / "t.npz", missing="yes")


def test_missing_scores_are_no_row_numbers(tmp_path):
    """A column that counts rows is still found out where some cells are empty."""
    rows = [f"{k % 2},{k / 7},{'' if k == 3 else k}" for k in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["label,a,id", *rows]))
    with pytest.raises(InputError, match="column 'id' is not like scores but like numbers of rows"):
        read_score_table(tmp_path / "t.csv", missing="not-fired")


def test_rows_that_nobody_scored():
    table = ScoreTable(np.array([[3.0, NAN], [1.0, NAN]]), np.array([1, 0], dtype=np.int8), missing="not-fired")
    calibrator = JointCalibrator(**NOT_FIRED).fit_problem(table.problem())
    rows = score_rows(calibrator, np.array([[NAN, NAN], [3.0, NAN], [NAN, 7.0]]))
    assert rows.accepted.tolist() == [False, True, False]
    assert rows.exemplars.tolist() == [-1, 0, -1]
    assert rows.margins.tolist() == [-np.inf, 1.0, -np.inf]


def read_csv(path):
    with open(path, newline="") as handle:
        return list(csv.DictReader(handle))


def test_the_command(tmp_path, capsys):
    scores, out = tmp_path / "s.csv", tmp_path / "out"
    scores.write_text(CSV)
    assert main(["calibrate", str(scores), "-o", str(out)]) == 1
    assert capsys.readouterr().err.endswith(f"line 2, column 'b': '' is not a number{OFFER}\n")
    assert main(["calibrate", str(scores), "-o", str(out), "--missing", "not-fired", "--verify"]) == 0
    text = capsys.readouterr().out
    assert "note: 8 of 12 scores are missing and count as not fired\n" in text
    assert "verified: loss 0" in text
    assert main(["verify", str(scores), str(out)]) == 0
    assert main(["apply", str(out), str(scores), "-o", str(tmp_path / "d.csv")]) == 0
    rows = read_csv(tmp_path / "d.csv")
    assert [row["accepted"] for row in rows] == list("110000")
    assert [row["exemplar"] for row in rows] == ["a", "b", "b", "a", "", ""]
    assert (rows[5]["exemplar_index"], rows[5]["margin"]) == ("", "")
    command = ["apply", str(out), str(scores), "-o", str(tmp_path / "e.csv"), "--missing", "refuse"]
    assert main(command) == 1
    assert capsys.readouterr().err.endswith(f"line 2, column 'b': '' is not a number{OFFER}\n")


def test_the_command_names_positives_without_scores(tmp_path, capsys):
    scores = tmp_path / "s.csv"
    scores.write_text("label,a\n1,3\n0,1\n1,\n1,\n")
    command = ["calibrate", str(scores), "-o", str(tmp_path / "out"), "--missing", "not-fired", "--quiet"]
    assert main(command) == 1
    assert capsys.readouterr().err.endswith(
        "rows 2, 3 are positives without any score (rows count from 0), which no thresholds accept: leave out what has "
        "no score, or lower `min_recall`, now 1, to 0.3333 at most\n"
    )
    assert main([*command, "--min-recall", "0.3"]) == 0
    scores.write_text("label,a\n1,\n0,1\n1,\n1,\n")
    for options in ([], ["--min-recall", "0.3"], ["--target-recall", "0.3"], ["--max-loss", "1"]):
        assert main([*command, "--overwrite", *options]) == 1
        assert capsys.readouterr().err.endswith(
            "s.csv: no positive has any score: there is nothing that thresholds could accept\n"
        )


def test_the_command_names_columns_without_scores(tmp_path, capsys):
    scores = tmp_path / "s.csv"
    scores.write_text("label,spam,bot,b2\n1,3,,\n0,1,,\n1,2,,\n0,0,,\n")
    assert main(["calibrate", str(scores), "-o", str(tmp_path / "out"), "--missing", "not-fired"]) == 0
    assert (
        "note: Columns 'bot', 'b2' are without any score: such a detector accepts nothing.\n" in capsys.readouterr().out
    )
