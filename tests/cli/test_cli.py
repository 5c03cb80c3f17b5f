"""The command: run as a user runs it, fed with nonsense, interrupted, and out of disk."""

import csv
import errno
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import eesvm
import eesvm.__main__
from eesvm import JointCalibrator, __version__, load_calibration
from eesvm.calibration.tables.examples import synthetic_score_table
from eesvm.calibration.tables.score_table import ScoreTable, read_score_table, write_score_table
from eesvm.cli import _parser, calibrate, main
from eesvm.cli.console import Screen
from eesvm.datasets import FORMATS

SCRIPT = Path(sys.executable).with_name("eesvm")
COMMAND = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "eesvm"]
HARD = synthetic_score_table(80, 800, 4000, "overlapping")


def command(*arguments, cwd, status=0):
    """Run the installed command; its output and its error stream."""
    done = subprocess.run([*COMMAND, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


def small_table():
    table = synthetic_score_table(6, 60, 400, "overlapping", random_state=1)
    return ScoreTable(table.scores, table.labels, exemplar_names=[f"rule {j}" for j in range(6)])


def write_csv(path, table, order=None, **extra):
    order = range(table.n_exemplars) if order is None else order
    with open(path, "w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["label", *extra, *(table.names[j] for j in order)])
        for k, row in enumerate(table.scores.tolist()):
            writer.writerow([table.labels[k], *(values[k] for values in extra.values()), *(row[j] for j in order)])


def read_csv(path):
    with open(path, newline="") as handle:
        return list(csv.DictReader(handle))


@pytest.fixture
def npz(tmp_path):
    write_score_table(tmp_path / "scores.npz", small_table())
    return tmp_path / "scores.npz"


def fails(capsys, *arguments, status=1):
    """Run in this process; the one line of the complaint."""
    assert main(list(map(str, arguments))) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("eesvm: error: ")
    assert err.count("\n") == 1
    return err.removeprefix("eesvm: error: ").rstrip("\n")


def test_calibrate_and_apply_agree_with_the_library(tmp_path, npz, capsys, monkeypatch):
    out, err = command("calibrate", npz, "-o", "out", "--min-recall", "0.9", "--sigmoid", cwd=tmp_path)
    assert err == ""
    assert "\x1b" not in out
    assert "status               optimal (proven)" in out
    assert out.endswith(
        "written to out: calibration.json, certificate.npz, held_out.json, loss_and_bound.png, thresholds.csv\n"
    )
    table = small_table()
    calibrator = JointCalibrator(sigmoid=True, min_recall=0.9).fit(table.scores, table.labels)
    loaded = load_calibration(tmp_path / "out")
    np.testing.assert_array_equal(loaded.thresholds_, calibrator.thresholds_)
    rows = read_csv(tmp_path / "out" / "thresholds.csv")
    assert [row["exemplar"] for row in rows] == table.exemplar_names
    dtype = calibrator.thresholds_.dtype
    np.testing.assert_array_equal(np.array([row["threshold"] for row in rows], dtype=dtype), calibrator.thresholds_)
    assert (tmp_path / "out" / "loss_and_bound.png").read_bytes().startswith(b"\x89PNG")

    write_csv(tmp_path / "new.csv", table, order=[3, 1, 5, 0, 2, 4], id=["x"] * table.n_rows)
    monkeypatch.chdir(tmp_path)
    assert main(["apply", "out", "new.csv", "-o", "decisions.csv"]) == 0
    out, err = capsys.readouterr()
    accepted = calibrator.predict(table.scores)
    n_false, recall = accepted[table.labels == 0].sum(), 100 * accepted[table.labels == 1].mean()
    assert out == (
        f"note: column 'id' is not used\n{accepted.sum()} of 460 rows accepted: {n_false} false positives among 400 "
        f"negatives, recall {recall:.4g} % of 60 positives, written to decisions.csv\n"
    )
    rows = read_csv(tmp_path / "decisions.csv")
    assert [int(row["row"]) for row in rows] == list(range(460))
    np.testing.assert_array_equal([float(row["score"]) for row in rows], calibrator.decision_function(table.scores))
    np.testing.assert_array_equal([int(row["accepted"]) for row in rows], accepted)
    winners = calibrator.assign(table.scores)
    np.testing.assert_array_equal([int(row["exemplar_index"]) for row in rows], winners)
    assert [row["exemplar"] for row in rows] == [table.exemplar_names[j] for j in winners]
    margins = table.scores[np.arange(460), winners].astype(float) - calibrator.thresholds_[winners]
    np.testing.assert_array_equal([float(row["margin"]) for row in rows], margins)


def test_every_format_gives_the_same_thresholds(tmp_path, npz, capsys):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = small_table()
    write_csv(tmp_path / "scores.csv", table)
    columns = {name: table.scores[:, j] for j, name in enumerate(table.names)}
    parquet.write_table(
        pyarrow.table({"kind": np.where(table.labels, "spam", "ham")} | columns), tmp_path / "s.parquet"
    )
    thresholds = []
    for name, options in (
        ("scores.npz", []),
        ("scores.csv", []),
        ("s.parquet", ["--label-column", "kind", "--positive-label", "spam"]),
    ):
        assert main(["calibrate", str(tmp_path / name), "-o", str(tmp_path / name) + ".out", "--quiet", *options]) == 0
        thresholds.append(load_calibration(str(tmp_path / name) + ".out").thresholds_)
    np.testing.assert_array_equal(thresholds[0], thresholds[2])
    np.testing.assert_allclose(thresholds[0], thresholds[1], rtol=1e-6)
    assert capsys.readouterr() == ("", "")


def test_compare(tmp_path, capsys):
    table = synthetic_score_table(10, 100, 600, "overlapping")
    write_score_table(tmp_path / "s.npz", table)
    out = tmp_path / "out"
    arguments = ["calibrate", str(tmp_path / "s.npz"), "-o", str(out), "--compare", "--method", "greedy"]
    assert main([*arguments, "--across-groups"]) == 0
    text = capsys.readouterr().out
    for name in (
        "no calibration",
        "indep. sigmoid calibration",
        "joint calibration w/ sigmoid",
        "indep. isotonic",
        "affine",
    ):
        assert text.count(name) == 2
    assert "note: 5 detectors from held-out groups are not part of it" in text
    verdict = r"Joint calibration [^(]* fewest false positives here: .* more \(95 % interval [−\d]+ to [−\d]+.*\)\.\n"
    assert len(re.findall(verdict, text)) == text.count("\nHighest average precision here: ") == 2
    rows = read_csv(out / "comparison.csv")
    assert {row["variant"] for row in rows} == {"own image allowed", "across images"}
    assert (out / "comparison.md").read_text().count("| EE-SVM joint calibration |") == 2
    assert (out / "comparison.md").read_text().count("**: Joint calibration ") == 2
    assert (out / "precision_recall.png").read_bytes().startswith(b"\x89PNG")
    assert main([*arguments, "--overwrite", "--test-size", "0.001"]) == 1
    assert "a test share of 0.001 leaves no positive row in the test part" in capsys.readouterr().err
    assert (out / "comparison.csv").exists()


def test_limits_and_notes(tmp_path, capsys):
    scores = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    write_score_table(tmp_path / "s.npz", ScoreTable(scores, np.array([1, 0, 1], dtype=np.int8)))
    assert main(["calibrate", str(tmp_path / "s.npz"), "-o", str(tmp_path / "a")]) == 0
    text = capsys.readouterr().out
    assert "note: Column 2 is constant" in text
    assert "note: Column 1 is the same as an earlier column" in text
    write_score_table(tmp_path / "h.npz", HARD)
    limit = ["--method", "algorithm1", "--node-limit", "2000"]
    assert main(["calibrate", str(tmp_path / "h.npz"), "-o", str(tmp_path / "b"), *limit]) == 0
    assert "status               node_limit (stopped before the proof)" in capsys.readouterr().out
    assert load_calibration(tmp_path / "b").result_.gap > 0


def test_demo_of_scores(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--scores", "-o", "demo"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "Open demo/report.html in a browser." in out
    page = (tmp_path / "demo" / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 4 + 2 * 18
    assert "http" not in page.replace("http-equiv", "")
    table = read_score_table(tmp_path / "demo" / "train.npz")
    result = load_calibration(tmp_path / "demo").result_
    assert table.problem(across_groups=True).loss(result.thresholds) == result.loss
    assert fails(capsys, "demo") == ("demo already exists: choose another folder or allow overwriting it (--overwrite)")


def test_help_version_and_wrong_calls(tmp_path, capsys):
    out, _ = command("--version", cwd=tmp_path)
    assert out == f"eesvm {__version__}\n"
    for verb in ("calibrate", "apply", "demo"):
        with pytest.raises(SystemExit) as caught:
            main([verb, "--help"])
        assert caught.value.code == 0
        text = capsys.readouterr().out
        assert f"example:\n  eesvm {verb} " in text
    for arguments, complaint in (
        ([], "the following arguments are required: VERB"),
        (["fly"], "argument VERB: invalid choice: 'fly'"),
        (["calibrate", "x.csv"], "the following arguments are required: -o/--output"),
        (["calibrate", "x.csv", "-o", "x", "--gap", "-1"], "argument --gap: must be >= 0, got -1"),
        (["calibrate", "x.csv", "-o", "x", "--min-recall", "0"], "argument --min-recall: must be > 0, got 0"),
        (["calibrate", "x.csv", "-o", "x", "--min-recall", "1.5"], "argument --min-recall: must be <= 1, got 1.5"),
        (
            ["calibrate", "x.csv", "-o", "x", "--time-limit", "nan"],
            "argument --time-limit: a number is needed, got 'nan'",
        ),
        (["calibrate", "x.csv", "-o", "x", "--jobs", "1.5"], "argument --jobs: an integer is needed, got '1.5'"),
        (["calibrate", "x.csv", "-o", "x", "--method", "magic"], "argument --method: invalid choice: 'magic'"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["calibrate", "x.csv", "--exlude", "id"], "eesvm calibrate: error: there is no option --exlude: did you mean --exclude?"),
        (["calibrate", "x.csv", "-o", "x", "--exclude-columns=id"], "there is no option --exclude-columns"),
        (["calibrate", "x.csv", "-o", "x", "--zzz"], "eesvm calibrate: error: there is no option --zzz\n"),
        (["calibrat", "x.csv"], "): did you mean calibrate?\n"),
        (["calibrate", "x.csv", "-o", "x", "--method", "exakt"], "): did you mean exact?\n"),
        (["data", "info", "x", "--jsn"], "eesvm data info: error: there is no option --jsn: did you mean --json?"),
        (["--verson"], "eesvm: error: there is no option --verson: did you mean --version?"),
    ],
)  # fmt: skip
def test_a_typing_error_gets_a_hint(arguments, complaint, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--excl", "--exc=id", "--time", "--across"])
def test_options_are_written_in_full(option, capsys):
    """An abbreviation would change its meaning, or lose it, with every option that is added."""
    with pytest.raises(SystemExit) as caught:
        main(["calibrate", "x.csv", "-o", "x", option, "1"])
    assert caught.value.code == 2
    name = option.partition("=")[0]
    assert f"there is no option {name}: did you mean {name}" in capsys.readouterr().err


def test_what_follows_two_dashes_is_no_option(tmp_path, capsys):
    assert main(["verify", "--", "--no-such-table.csv", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"eesvm: error: {tmp_path / 'calibration.json'}: there is no such file\n"


def test_the_script_is_installed_with_the_package():
    from importlib.metadata import PackageNotFoundError, entry_points

    try:
        (script,) = entry_points(group="console_scripts", name="eesvm")
    except (PackageNotFoundError, ValueError):
        pytest.skip("the package is not installed, only on the path")
    assert script.load() is eesvm.__main__.main
    assert SCRIPT.exists()


def test_nonsense_gets_one_line(tmp_path, capsys, npz):
    out = tmp_path / "out"
    missing = tmp_path / "no.csv"
    assert fails(capsys, "calibrate", missing, "-o", out) == f"{missing}: there is no such file"
    assert fails(capsys, "calibrate", tmp_path, "-o", out) == f"{tmp_path}: it is a folder, not a file"
    bad = tmp_path / "bad.csv"
    bad.write_text("label,a,b\n1,2,3\n0,2,x\n")
    assert fails(capsys, "calibrate", bad, "-o", out) == f"{bad}: line 3, column 'b': 'x' is not a number"
    assert fails(capsys, "calibrate", npz, "-o", out, "--across-groups") == (
        f"{npz}: coverage across groups needs `groups` for the windows and `exemplar_groups` for the detectors, "
        "both in one .npz file"
    )
    bad = tmp_path / "weights.npz"
    np.savez(bad, positive_scores=[[1.0]], negative_scores=[[0.0]], positive_weights=[0.0])
    assert fails(capsys, "calibrate", bad, "-o", out) == f"{bad}: `positive_weights` must be > 0, got 0 at index 0"
    assert not out.exists()
    assert fails(capsys, "apply", tmp_path, npz, "-o", out) == f"{tmp_path / 'calibration.json'}: there is no such file"
    assert fails(capsys, "apply", npz, npz, "-o", out) == f"{npz}: it is not JSON text"


def test_a_column_of_groups_is_not_looked_for_in_arrays(tmp_path, npz, capsys):
    assert fails(capsys, "calibrate", npz, "-o", tmp_path / "out", "--group-column", "user") == (
        f"{npz}: an .npz file has no column 'user': its groups are the array `groups`, or `positive_groups` and "
        "`negative_groups`"
    )


def test_apply_writes_what_identifies_a_row(tmp_path, npz, capsys):
    cal, new, out = tmp_path / "cal", tmp_path / "new.csv", tmp_path / "out.csv"
    assert main(["calibrate", str(npz), "-o", str(cal), "--quiet"]) == 0
    table = small_table()
    tickets = [f"T-{7 * k}" for k in range(table.n_rows)]
    write_csv(new, table, order=[3, 1, 5, 0, 2, 4], ticket=tickets, number=range(1000, 1000 + table.n_rows))
    for name, wanted in (("ticket", tickets), ("number", [str(1000 + k) for k in range(table.n_rows)])):
        assert main(["apply", str(cal), str(new), "-o", str(out), "--id-column", name, "--overwrite"]) == 0
        rows = read_csv(out)
        assert list(rows[0])[:3] == ["row", name, "score"]
        assert [row[name] for row in rows] == wanted
        assert [row["row"] for row in rows] == [str(k) for k in range(table.n_rows)]
    capsys.readouterr()
    columns = "'label', 'ticket', 'number', 'rule 3', 'rule 1' and 4 more"
    assert fails(capsys, "apply", cal, new, "-o", out, "--id-column", "name", "--overwrite") == (
        f"{new}: there is no column 'name', only {columns}"
    )
    assert fails(capsys, "apply", cal, new, "-o", out, "--id-column", "rule 1", "--overwrite") == (
        f"{new}: column 'rule 1' is one of the scores, not an identifier"
    )
    assert fails(capsys, "apply", cal, npz, "-o", out, "--id-column", "ticket", "--overwrite") == (
        f"{npz}: an .npz file has no column 'ticket' to write beside each row"
    )


def test_verify_names_another_table_first(tmp_path, npz, capsys):
    cal, other = tmp_path / "cal", tmp_path / "other.npz"
    assert main(["calibrate", str(npz), "-o", str(cal), "--quiet"]) == 0
    table = small_table()
    for part, size in (
        (table.rows(np.arange(table.n_rows - 3)), "6 columns, 60 positives, 397 negatives"),
        (table.rows(np.arange(5, table.n_rows)), "6 columns, 55 positives, 400 negatives"),
    ):
        write_score_table(other, part)
        assert fails(capsys, "verify", other, cal) == (
            f"{other}: it is not the table that {cal} was made from: it has {size}, that one had 6 columns, "
            "60 positives, 400 negatives"
        )
    write_score_table(other, ScoreTable(table.scores + np.float32(0.25), table.labels, exemplar_names=table.names))
    complaint = fails(capsys, "verify", other, cal)  # the same size: what the scores say comes before the certificate
    assert complaint.startswith(f"{cal}: the calibration does not hold: the loss is given as ")
    assert complaint.endswith(f"; or was it made from another table than {other}?")


def test_tables_are_whole_in_a_narrow_terminal(monkeypatch):
    """Lines may be longer than the terminal, which folds them; no cell is cut or broken."""
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    text = io.StringIO()
    monkeypatch.setattr(sys, "stdout", text)
    header = ["name of a method", *(f"a long column {k}" for k in range(6))]
    Screen().table(header, [["one of many words here", *(f"{10**9 + k:,}" for k in range(6))]])
    first, second = re.sub(r"\x1b\[[0-9;]*m", "", text.getvalue()).splitlines()
    assert all(name in first for name in header)
    assert all(f"{10**9 + k:,}" in second for k in range(6))


def test_apply_matches_columns(tmp_path, npz, capsys):
    cal, out = tmp_path / "cal", tmp_path / "out.csv"
    assert main(["calibrate", str(npz), "-o", str(cal), "--quiet"]) == 0
    part = small_table().exemplars(np.arange(4))
    write_csv(tmp_path / "part.csv", part)
    assert fails(capsys, "apply", cal, tmp_path / "part.csv", "-o", out) == (
        f"{tmp_path / 'part.csv'}: columns 'rule 4', 'rule 5' are missing; "
        "there is 'label', 'rule 0', 'rule 1', 'rule 2', 'rule 3'"
    )
    np.savez(tmp_path / "nameless.npz", scores=np.ones((2, 5)))
    assert fails(capsys, "apply", cal, tmp_path / "nameless.npz", "-o", out) == (
        f"{tmp_path / 'nameless.npz'}: there are 5 columns of scores where 6 are expected"
    )
    assert not out.exists()
    np.savez(tmp_path / "nameless.npz", scores=np.full((2, 6), 99.0))
    assert main(["apply", str(cal), str(tmp_path / "nameless.npz"), "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"2 of 2 rows accepted, written to {out}\n"
    assert fails(capsys, "apply", cal, tmp_path / "nameless.npz", "-o", out) == (
        f"{out} already exists: choose another name or allow overwriting it (--overwrite)"
    )
    assert main(["apply", str(cal), str(tmp_path / "nameless.npz"), "-o", str(out), "--overwrite", "--quiet"]) == 0


def test_the_column_with_the_largest_units_does_not_win_by_them(tmp_path, capsys):
    plain = small_table()
    units = np.array([1, 1000, 1, 1, 1, 1])
    table = ScoreTable(plain.scores.astype(float) * units, plain.labels, exemplar_names=plain.exemplar_names)
    write_score_table(tmp_path / "scores.npz", table)
    write_score_table(tmp_path / "plain.npz", plain)
    winners = []
    for name in ("plain", "scores"):
        scores, out, rows = (tmp_path / f"{name}{end}" for end in (".npz", "", ".csv"))
        assert main(["calibrate", str(scores), "-o", str(out), "--quiet"]) == 0
        assert main(["apply", str(out), str(scores), "-o", str(rows)]) == 0
        assert "note" not in capsys.readouterr().out
        winners.append([row["exemplar"] for row in read_csv(rows)])
    assert winners[0] == winners[1]
    assert len(set(winners[0])) > 1
    file = tmp_path / "scores" / "calibration.json"
    content = json.loads(file.read_text())
    del content["scales"]  # as earlier versions wrote it
    file.write_text(json.dumps(content))
    assert main(["apply", str(file), str(tmp_path / "scores.npz"), "-o", str(tmp_path / "old.csv")]) == 0
    assert capsys.readouterr().out.startswith(
        "note: the spreads of the columns differ by more than 10 times, and this calibration compares margins as they "
        "are: the column with the largest units wins most rows; calibrate again to compare them in spreads\n"
    )


def test_columns_are_named_or_left_out(tmp_path, capsys):
    table = small_table()
    write_csv(tmp_path / "t.csv", table, id=range(460))
    scores, names = str(tmp_path / "t.csv"), ",".join(table.exemplar_names)
    assert fails(capsys, "calibrate", scores, "-o", tmp_path / "no") == (
        f"{scores}: column 'id' is not like scores but like numbers of rows, whole and no two alike: leave it out by "
        "--exclude id, or name all columns of scores by --columns"
    )
    made = []
    for number, option in enumerate((["--exclude", "id"], ["--columns", names])):
        out = tmp_path / f"out{number}"
        assert main(["calibrate", scores, "-o", str(out), *option]) == 0
        assert capsys.readouterr().out.startswith("note: column 'id' is not used\n")
        made.append(load_calibration(out).thresholds_.tolist())
        assert main(["verify", scores, str(out), "--quiet", *option]) == 0
        assert main(["apply", str(out), scores, "-o", str(tmp_path / f"{number}.csv"), "--quiet", *option]) == 0
    assert made[0] == made[1]
    assert (tmp_path / "0.csv").read_bytes() == (tmp_path / "1.csv").read_bytes()
    for wrong, rule in (
        ("a,,b", "names of columns, parted by commas, are needed"),
        ("a,a", "no name may be there twice"),
    ):
        with pytest.raises(SystemExit, match=r"^2$"):
            main(["calibrate", scores, "-o", str(out), "--columns", wrong])
        assert f"argument --columns: {rule}, got '{wrong}'" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_thresholds_have_the_shortest_text_that_reads_back(tmp_path, dtype):
    plain = small_table()
    table = ScoreTable(plain.scores.round(2).astype(dtype), plain.labels, exemplar_names=plain.exemplar_names)
    write_score_table(tmp_path / "t.npz", table)
    assert main(["calibrate", str(tmp_path / "t.npz"), "-o", str(tmp_path / "out"), "--quiet"]) == 0
    texts = [row["threshold"] for row in read_csv(tmp_path / "out" / "thresholds.csv")]
    thresholds = load_calibration(tmp_path / "out").thresholds_
    assert thresholds.dtype == dtype
    assert [dtype(text) for text in texts] == thresholds.tolist()
    assert texts == [np.format_float_positional(value, unique=True, trim="0") for value in thresholds]
    if dtype == np.float32:
        assert max(map(len, texts)) <= 11


def test_apply_without_names_counts_columns(tmp_path, capsys):
    table = small_table()
    write_score_table(tmp_path / "s.npz", ScoreTable(table.scores, table.labels))
    assert main(["calibrate", str(tmp_path / "s.npz"), "-o", str(tmp_path / "cal"), "--quiet"]) == 0
    write_csv(tmp_path / "s.csv", table.exemplars(np.arange(5)))
    assert fails(capsys, "apply", tmp_path / "cal", tmp_path / "s.csv", "-o", "x.csv") == (
        f"{tmp_path / 's.csv'}: there are 5 columns of scores, but the calibration has 6 detectors"
    )
    write_csv(tmp_path / "s.csv", table)
    assert main(["apply", str(tmp_path / "cal"), str(tmp_path / "s.csv"), "-o", "-"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "row,score,accepted,exemplar,exemplar_index,margin"
    assert len(out.splitlines()) == 461
    assert "of 460 rows accepted" in err


@pytest.mark.long
def test_a_reader_that_has_seen_enough(tmp_path, npz):
    assert main(["calibrate", str(npz), "-o", str(tmp_path / "cal"), "--quiet"]) == 0
    with open(tmp_path / "err", "w") as err:
        run = [*COMMAND, "apply", "cal", str(npz), "-o", "-"]
        with subprocess.Popen(run, cwd=tmp_path, stdout=subprocess.PIPE, stderr=err) as process:
            process.stdout.close()
            process.wait(timeout=60)
    assert "Traceback" not in (tmp_path / "err").read_text()
    assert "BrokenPipe" not in (tmp_path / "err").read_text()


def test_output_folders_are_not_lost(tmp_path, npz, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    assert fails(capsys, "calibrate", npz, "-o", out) == (
        f"{out} already exists: choose another folder or allow overwriting it (--overwrite)"
    )
    assert fails(capsys, "calibrate", npz, "-o", out, "--overwrite") == (
        f"{out} is not replaced: it holds thesis.tex, which eesvm did not write"
    )
    assert [entry.name for entry in out.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("function", ["os.rename", "os.fsync"])
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, npz, capsys, monkeypatch, function):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(function, fail)
    out = tmp_path / "out"
    assert main(["calibrate", str(npz), "-o", str(out), "--quiet"]) == 1
    text, error = capsys.readouterr()
    *rescued, line = error.splitlines()
    assert (text, line) == ("", f"eesvm: error: {out}: No space left on device")
    assert rescued[:1] == (["the thresholds, which cannot be written:"] if function == "os.rename" else [])
    assert [entry.name for entry in tmp_path.iterdir()] == ["scores.npz"]


def test_a_full_disk_is_found_before_the_search(tmp_path, npz, capsys, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    monkeypatch.setattr("eesvm.cli.calibrate.read_score_table", lambda *_, **__: pytest.fail("there was work"))
    out = tmp_path / "deep" / "out"
    assert fails(capsys, "calibrate", npz, "-o", out) == f"{out}: No space left on device"
    assert [entry.name for entry in tmp_path.iterdir()] == ["scores.npz"]


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_what_a_search_has_found_is_not_lost_on_a_full_disk(tmp_path, npz, capsys, monkeypatch, quiet):
    """Where not all fits, the smallest file is written; where nothing does, thresholds are printed."""

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    assert main(["calibrate", str(npz), "-o", str(tmp_path / "whole"), "--quiet"]) == 0
    thresholds = load_calibration(tmp_path / "whole").thresholds_.tolist()
    monkeypatch.setattr("eesvm.cli.outputs.save_png", fail)
    out = tmp_path / "out"
    assert fails(capsys, "calibrate", npz, "-o", out, "--quiet") == (
        f"{out}: No space left on device: calibration.json is saved, with which `eesvm apply` works, and nothing else"
    )
    assert sorted(entry.name for entry in out.iterdir()) == [".eesvm-output", "calibration.json"]
    assert load_calibration(out).thresholds_.tolist() == thresholds
    monkeypatch.setattr("os.rename", fail)
    assert main(["calibrate", str(npz), "-o", str(tmp_path / "none"), *quiet]) == 1
    error = capsys.readouterr().err
    lines = error[error.index("the thresholds, which cannot be written:\n") :].splitlines()
    assert [float(line.split(",")[1]) for line in lines[1:-1]] == thresholds
    assert lines[-1] == f"eesvm: error: {tmp_path / 'none'}: No space left on device"
    assert not (tmp_path / "none").exists()


def test_a_recall_that_is_not_reached_names_the_way_out(capsys):
    table = SimpleNamespace(groups=[0, 1], exemplar_groups=[0, 1])
    held_out = SimpleNamespace(recall=SimpleNamespace(high=0.5))
    for across, text in ((False, "use --across-groups to fit thresholds the same way\n"), (True, "held-out rows\n")):
        arguments = SimpleNamespace(target_recall=0.9, across_groups=across)
        calibrate._note_target(table, held_out, arguments, Screen())
        assert "".join(capsys.readouterr()).endswith(text)


def test_names_in_rescued_thresholds_are_quoted(tmp_path, capsys, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    table = tmp_path / "scores.csv"
    table.write_text('label,"a, b"\n1,2\n0,1\n')
    monkeypatch.setattr("os.rename", fail)
    assert main(["calibrate", str(table), "-o", str(tmp_path / "out"), "--quiet", "--folds", "0"]) == 1
    _, row, _ = capsys.readouterr().err.splitlines()
    assert row.startswith('"a, b",')


def test_what_a_search_has_found_is_not_lost_in_a_folder_made_meanwhile(tmp_path, npz, capsys, monkeypatch):
    real, out = calibrate.write_calibration, tmp_path / "out"

    def write(*arguments):
        out.mkdir()
        real(*arguments)

    monkeypatch.setattr("eesvm.cli.calibrate.write_calibration", write)
    assert main(["calibrate", str(npz), "-o", str(out)]) == 1
    error = capsys.readouterr().err
    assert "the thresholds, which cannot be written:\n" in error
    assert error.splitlines()[-1] == (
        f"eesvm: error: {out} already exists: choose another folder or allow overwriting it (--overwrite)"
    )


def test_memory_and_interrupts(tmp_path, npz, capsys, monkeypatch):
    def fail(error):
        def raise_it(*_, **__):
            raise error

        monkeypatch.setattr("eesvm.cli.calibrate.read_score_table", raise_it)

    arguments = ("calibrate", npz, "-o", tmp_path / "out")
    fail(MemoryError("Unable to allocate 9 TiB"))
    assert fails(capsys, *arguments) == "there is not enough memory for this (Unable to allocate 9 TiB)"
    fail(KeyboardInterrupt())
    assert fails(capsys, *arguments, status=130) == "interrupted, nothing was written"


def test_markup_in_names_is_not_markup(tmp_path, capsys):
    table = small_table()
    path = tmp_path / "[red]x.npz"
    write_score_table(path, table)
    assert main(["calibrate", str(path), "-o", str(tmp_path / "[bold]")]) == 0
    assert f"written to {tmp_path / '[bold]'}: " in capsys.readouterr().out


def run_in_terminal(arguments, cwd, until, action):
    """Run with the error stream on a terminal; call `action` once `until` was seen there."""
    leader, follower = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)], cwd=cwd, stdout=subprocess.PIPE, stderr=follower, env=environment, text=True
    )
    os.close(follower)
    seen, acted = b"", False
    while True:
        try:
            piece = os.read(leader, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        seen += piece
        if until in seen and not acted:
            acted = True
            action(process)
    out, _ = process.communicate(timeout=60)
    os.close(leader)
    assert acted, seen
    return process.returncode, out, seen.decode(errors="replace")


@pytest.mark.long
def test_interrupting_a_long_search_keeps_the_best_so_far(tmp_path):
    write_score_table(tmp_path / "hard.npz", HARD)
    arguments = ("calibrate", "hard.npz", "-o", "out", "--method", "algorithm1", "--time-limit", "90")
    status, out, live = run_in_terminal(
        arguments, tmp_path, b"nodes", lambda process: process.send_signal(signal.SIGINT)
    )
    assert status == 0
    assert "searching: loss " in live
    assert "s left" in live
    assert "Ctrl-C ends a search and keeps the best so far" in live
    assert "note: the search was interrupted; these are the best thresholds it had found" in out
    content = json.loads((tmp_path / "out" / "calibration.json").read_text())
    assert content["result"]["status"] == "feasible"
    assert HARD.problem().is_feasible(load_calibration(tmp_path / "out").thresholds_)


def run_python(code, *arguments):
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)


def test_the_first_moment_of_the_command_is_light():
    light = "import sys, eesvm.__main__; print(sorted(sys.modules.keys() & {'numpy', 'numba', 'sklearn', 'eesvm.cli'}))"
    assert run_python(light).stdout == "[]\n"
    version = "import sys, eesvm.__main__ as command; sys.exit(command.main())"
    done = run_python(version, "--version")
    assert (done.returncode, done.stdout) == (0, f"eesvm {eesvm.__version__}\n")


def test_an_interrupt_while_libraries_are_imported_is_one_line():
    code = """
import sys
import eesvm.__main__

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder())
sys.exit(eesvm.__main__.main())
"""
    done = run_python(code, "demo", "-o", "nowhere")
    assert done.returncode == 130
    assert done.stderr == "eesvm: error: interrupted, nothing was written\n"


@pytest.mark.long
def test_every_public_name_can_be_asked_for():
    code = "import eesvm; print(*[type(getattr(eesvm, name)).__name__ for name in eesvm.__all__])"
    assert len(run_python(code).stdout.split()) == len(eesvm.__all__)
    assert set(eesvm.__all__) <= set(dir(eesvm))
    with pytest.raises(AttributeError, match="module 'eesvm' has no attribute 'nothing'"):
        eesvm.nothing  # noqa: B018


def verb_options():
    """Option string -> action of every verb that reads or writes images."""
    verbs = next(action for action in _parser()._actions if action.choices and "train" in action.choices).choices
    info = next(action for action in verbs["data"]._actions if action.choices).choices["info"]
    return {name: parser._option_string_actions for name, parser in {**verbs, "data info": info}.items()}


def test_the_same_thing_has_the_same_option_on_every_verb():
    options = verb_options()
    readers = ("data info", "train", "evaluate", "windows", "finetune", "report", "reproduce", "detect", "transfer")
    for verb in readers:
        assert tuple(options[verb]["--annotations"].choices) == FORMATS
    assert {verb for verb in options if "--format" in options[verb]} == {"detect", "transfer"}  # what they write
    assert {verb for verb in options if "--score" in options[verb]} == {"detect", "transfer"}
    assert not [verb for verb in options if "--min-score" in options[verb]]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("train scenes -o m --set training.C", "--set must be NAME=VALUE, got 'training.C'"),
        ("train scenes -o m --set training.c=1", "there is no option `training.c`: did you mean `training.C`?"),
        ("train scenes -o m --set training.C=x", "`training.C` must be a number, got 'x'"),
        ("train scenes -o m --calibrator platt", "`calibrator` must be one of 'none', "),
        ("train scenes -o m --memory much", "an amount of memory is needed, such as 4GB, got 'much'"),
        ("train scenes -o m --memory 1MB", "`memory` must be "),
        (
            "detect model scenes -o f --format xml",
            "--format must be some of csv, coco, voc, yolo, label-studio, cvat, labelme, joined by commas, got 'xml'",
        ),
        ("detect model scenes -o f.csv --format voc", "f.csv holds csv alone: for voc, name a folder"),
        ("detect model scenes -o f --calibrator platt", "`calibrator` must be one of 'none', "),
        ("transfer model d.csv scenes -o t --calibrator none", "--calibrator is for --consensus alone: winners are "),
        ("evaluate d.csv scenes --protocol coco --intervals 9", "--intervals is not for --protocol coco: intervals "),
        ("windows scenes -o windows.txt", "`--output` must end in .npz, got windows.txt"),
        ("report model scenes -o report.pdf", "report.pdf must end in .html: the report is a page for a browser"),
        ("report model scenes -o r.html --calibrator platt", "`calibrator` must be one of 'none', "),
        ("reproduce --set x -o r", "--set must be NAME=VALUE, got 'x'"),
        ("reproduce --classes 0 -o r", "--classes must be a number >= 1 or names joined by commas, got 0"),
        ("serve model --floors 2", "--floors must be numbers above 0 and up to 1, joined by commas, or none, got '2'"),
        ("serve model --calibrator platt", "`calibrator` must be one of 'none', "),
        ("data fetch voc2012 -o d --part test", "`part` must be one of 'trainval', got 'test'"),
    ],
)
def test_a_value_that_is_wrong_by_itself_is_a_wrong_call(arguments, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"eesvm: error: {sentence}"), error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())
