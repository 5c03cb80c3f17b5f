"""Tables of results: their numbers, and CSV, LaTeX and Markdown that survive any name."""

import csv
import io
import re
from dataclasses import replace

import numpy as np
import pytest

from eesvm.detector.training_descriptor import plain_descriptor
from eesvm.experiments.paper import CLASSES, PAPER_TABLES, RECALL
from eesvm.experiments.reproduction.recipes import ACROSS_IMAGES, DEFAULT_PRESET, make_recipes
from eesvm.experiments.reproduction.results import FULL, HOG, SMALL, STAGES, Part, Results, Row
from eesvm.experiments.search_study.pruning import PruningStudy
from eesvm.experiments.tables.estimates import Estimate
from eesvm.experiments.tables.files import (
    COUNT,
    COUNT_GAIN,
    GAIN,
    RATIO,
    Cell,
    Column,
    ResultTable,
    TableRow,
    latex,
    latex_document,
    text,
    to_csv,
    to_latex,
    to_markdown,
    to_texts,
)
from eesvm.experiments.tables.paper_tables import OWN_GROUP, PAPER_GROUP, paper_tables, pruning_table, search_table
from eesvm.experiments.tables.windows import Method

HOSTILE = 'a_b & 50% #1 {x} $y$ ~^\\end{tabular} | <b>*`[c]`*</b> "q"\n\t\x07é'


def row(method, value, is_ours=False, **changes):
    facts = {
        "n_exemplars": 10, "n_used": 8, "n_objects": 5, "recall": 0.9, "false_positives": value, "accepted": None,
        "window_ap": value / 1000, "detection_ap": value / 2000, "n_winners": 2, "n_negatives": 1000,
    }  # fmt: skip
    return Row(method=method, is_ours=is_ours, **facts | changes)


def results(classes=("cat", "dog"), n_splits=2):
    """The false positives of class c in split s are 100 + 10 c + s, for the sigmoids; others differ by a constant."""
    facts = {
        "n_exemplars": 10, "n_test_positives": 20, "n_test_negatives": 1000, "n_calibration_positives": 30,
        "n_calibration_negatives": 400,
    }  # fmt: skip
    searched = {"status": "optimal", "gap": 0.0, "loss": 7.0, "bound": 7.0, "seconds": 0.5}
    parts = []
    for split in range(n_splits):
        for c, name in enumerate(classes):
            base = 100.0 + 10 * c + split
            own = (
                row(Method.SIGMOID, base),
                row(Method.JOINT, base - 30, accepted=base - 20),
                row(Method.JOINT_SIGMOID, base - 40, accepted=base - 20, search=searched),
                row(Method.SINGLE_SVM, base + 50),
                row(DEFAULT_PRESET, base - 60, is_ours=True),
            )
            parts += [Part(split, stage, name, own, facts) for stage in STAGES]
    return Results(tuple(parts))


def cells(table, name):
    found = next(line for line in table.rows if line.name == name)
    return dict(zip([column.name for column in table.columns], found.cells, strict=True))


# The paper's numbers


@pytest.mark.parametrize("number", [1, 2, 3])
def test_means_of_the_paper_are_those_of_its_classes(number):
    """But for one row, whose printed mean, 341k, is not that of its printed classes, 352k."""
    for name, found in PAPER_TABLES[number].rows.items():
        assert len(found.classes) == len(CLASSES) == 10
        slack = 12_000 if (number, name) == (1, Method.SINGLE_SVM) else 600 if found.mean > 1000 else 0.06
        assert abs(np.mean(found.classes) - found.mean) < slack, name


def test_rows_that_the_text_of_the_paper_quotes():
    """It says +14 for baseball, and +14.7 for butterfly, where its table has +15.7."""
    detection = PAPER_TABLES[3].rows
    gains = dict(
        zip(
            CLASSES,
            np.subtract(detection[Method.JOINT_SIGMOID].classes, detection[Method.SIGMOID].classes),
            strict=True,
        )
    )
    assert gains["baseball"] == pytest.approx(14.1)
    assert gains["butterfly"] == pytest.approx(15.7)
    assert PAPER_TABLES[1].rows[RECALL].mean == 92.2
    assert [PAPER_TABLES[6].rows[name].mean for name in PAPER_TABLES[6].rows] == [19.8, 40.8, 42.7]


# What is trained


def test_recipes_follow_the_paper_but_for_what_they_state():
    recipes = make_recipes(7.0)
    paper, beyond, ours = recipes[SMALL]
    assert [rule.name for rule in paper.rules] == [name for name in PAPER_TABLES[1].rows if name != RECALL]
    assert (paper.options.training.loss, paper.options.training.prior) == ("hinge", None)
    assert (paper.options.calibration.coverage, paper.options.detection.pooling) == ("own-image", 1)
    assert paper.options.training == beyond.options.training
    assert (ours.options.training.prior, ours.options.detection.pooling) == ("class", 5)
    assert [(each.is_ours) for each in recipes[SMALL]] == [False, True, True]
    early = recipes[FULL][0].options
    assert (early.calibration.method, early.calibration.time_limit) == ("algorithm1", 7.0)
    assert recipes[HOG][0].options.descriptor.name == "hog"
    assert early.windows == paper.options.windows == recipes[HOG][0].options.windows


# Tables


def test_table_1_counts_false_positives_with_paired_differences():
    table = paper_tables(results())[0]
    sigmoid, joint, both = (cells(table, name) for name in (Method.SIGMOID, Method.JOINT, Method.JOINT_SIGMOID))
    assert (sigmoid["cat"].value, sigmoid["dog"].value) == (100.5, 110.5)
    mean = sigmoid["mean"].value
    assert (mean.value, mean.n) == (105.5, 2)
    assert mean.high - mean.value == pytest.approx(12.7062 * 0.5, rel=1e-4)  # t of one degree; deviation 0.5 sqrt(2)
    assert sigmoid["mean, % of negatives"].value == pytest.approx(10.55)
    assert joint["mean"].value.value == 85.5  # what the thresholds accept, not 75.5 of their ranking
    assert both["minus indep. sigmoid"].value == Estimate(-40.0, -40.0, -40.0, 2)
    assert sigmoid["minus indep. sigmoid"].value is None
    assert (both["paper: mean"].value, both["paper: % of negatives"].value) == (55e3, 5.5)
    assert (both["paper: lowest class"].value, both["paper: highest class"].value) == (10722, 168129)
    assert cells(table, "Recall, %")["mean"].value.value == pytest.approx(90.0)


def test_rows_have_the_papers_names_and_ours_are_apart():
    tables = paper_tables(results())
    assert [table.name for table in tables] == [f"table{k}" for k in range(1, 7)]
    assert [line.name for line in tables[2].rows] == [
        Method.SIGMOID, Method.JOINT_SIGMOID, "Single Linear-SVM (R-CNN)", DEFAULT_PRESET,
    ]  # fmt: skip
    assert [line.group for line in tables[2].rows] == [PAPER_GROUP] * 3 + [OWN_GROUP]
    assert cells(tables[2], DEFAULT_PRESET)["paper: mean"].value is None
    assert cells(tables[1], Method.JOINT_SIGMOID)["mean"].value.value == pytest.approx(6.55)
    assert cells(tables[1], Method.JOINT_SIGMOID)["paper: minus indep. sigmoid"].value == 2.3
    features = {line.name for line in tables[5].rows}
    assert features == {"EE-SVM, HOG, independent", "EE-SVM, CNN, independent", "EE-SVM, CNN, joint", DEFAULT_PRESET}


def test_without_a_network_table_6_has_no_cnn():
    assert [line.name for line in paper_tables(results(), has_cnn=False)[5].rows] == ["EE-SVM, HOG, independent"]


def test_a_class_that_failed_once_is_left_out_everywhere():
    known = results(n_splits=3)
    broken = [
        replace(part, rows=(), skipped="no window shows it") if (part.split, part.class_name, part.stage) == (1, "dog", FULL)
        else part
        for part in known.parts
    ]  # fmt: skip
    found = Results(tuple(broken))
    assert found.classes == ("cat",)
    assert found.skipped == ("the class dog is left out: no window shows it (split 2, Val1+train)",)
    for table in paper_tables(found):
        assert "dog" not in [column.name for column in table.columns]


def test_searches_and_statistics():
    table = search_table(results())
    names = [line.name for line in table.rows]
    assert f"{Method.JOINT_SIGMOID}: cat" in names
    assert not any(ACROSS_IMAGES in name for name in names)
    assert cells(table, f"{Method.JOINT_SIGMOID}: cat")["proven optimal"].value == "2 of 2"
    assert cells(table, f"{Method.JOINT_SIGMOID}: cat")["redundant, %"].value == pytest.approx(20.0)
    empty = pruning_table(PruningStudy((), 3.0, 0, ()))
    assert text(cells(empty, "Observation 3: levels of the tree saved")["here"]) == ""
    assert cells(empty, "Redundant E-SVMs at the optimum")["paper"].value == "up to 25 %"


# Cells


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (Cell(Estimate(45.12, 41.9, 48.34, 3)), "45.1 ± 3.2"),
        (Cell(Estimate(45.12)), "45.1"),
        (Cell(Estimate(45.12, 40.0, 46.0, 200)), "45.1 (40.0 to 46.0)"),
        (Cell(Estimate(-2.0, -3.0, -1.0, 3), GAIN), "-2.0 ± 1.0"),
        (Cell(Estimate(2.0, 1.0, 3.0, 3), GAIN), "+2.0 ± 1.0"),
        (Cell(1234.6, COUNT), "1,235"),
        (Cell(Estimate(-1234.0, -1240.0, -1228.0, 3), COUNT_GAIN), "-1,234 ± 6"),
        (Cell(Estimate(0.694, 0.5, 1.02, 3), RATIO), "0.69 (0.50 to 1.02)"),
        (Cell(1234.5, RATIO), "1,234"),
        (Cell(float("nan")), ""),
        (Cell(None), ""),
        (Cell("as it is"), "as it is"),
    ],
)
def test_numbers_as_people_read_them(cell, expected):
    assert text(cell) == expected


# Files


def hostile_table():
    columns = (Column(HOSTILE), Column("mean", has_interval=True), Column("said", is_text=True))
    third = 1 / 3
    rows = (
        TableRow(HOSTILE, (Cell(third), Cell(Estimate(2 / 3, 0.1, 0.9, 3)), Cell(HOSTILE)), "first"),
        TableRow("[bracket] first", (Cell(), Cell(Estimate(1.0)), Cell("plain")), HOSTILE),
    )
    return ResultTable("table_x", HOSTILE, "method", columns, rows, (HOSTILE,))


def test_csv_keeps_all_digits_and_any_name():
    lines = list(csv.reader(io.StringIO(to_csv(hostile_table()))))
    assert lines[0] == ["method", "group", HOSTILE, "mean", "mean, low", "mean, high", "said"]
    assert lines[1] == [HOSTILE, "first", repr(1 / 3), repr(2 / 3), "0.1", "0.9", HOSTILE]
    assert lines[2][2:6] == ["", "1.0", "", ""]
    table = paper_tables(results())[2]
    found = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert float(found[1]["mean"]) == cells(table, Method.JOINT_SIGMOID)["mean"].value.value


def test_latex_is_escaped_and_well_formed():
    lines = to_latex(hostile_table()).splitlines()
    source = "\n".join(lines)
    assert source.isprintable() or all(c.isprintable() or c == "\n" for c in source)
    assert source.count("\\begin{tabular}") == source.count("\\end{tabular}") == 1
    # What is left once escapes and the commands that we write are taken out may hold no active character.
    bare = re.sub(r"\\(?:[{}$&#%_]|textbackslash\{\}|textasciicircum\{\}|textasciitilde\{\})", "", source)
    for body in re.findall(r"\\caption\{(.*)\}$", bare, flags=re.M):
        assert not re.search(r"[&#%_~^]", body.replace("$<$", "").replace("$>$", "").replace("$|$", ""))
    opened = 0
    for character in bare:
        opened += (character == "{") - (character == "}")
        assert opened >= 0
    assert opened == 0
    assert len(re.findall(r"\$", bare)) % 2 == 0
    table_lines = [line for line in lines if line.endswith("\\\\") and "multicolumn" not in line]
    for line in table_lines:
        cut = re.sub(r"\\.", "", line)
        assert cut.count("&") == 3
        assert not line.startswith("[")


def test_long_tables_of_sentences_are_cut_where_a_page_ends():
    rows = tuple(TableRow(f"claim {k}", (Cell("said"),)) for k in range(25))
    source = to_latex(ResultTable("claims", "Claims", "claim", (Column("note", is_text=True),), rows, ("A note.",)))
    assert source.count("\\begin{table*}") == source.count("\\end{table*}") == 3
    assert source.count("\\caption{Claims. A note.}\\label{tab:claims}") == 1
    assert source.count("\\caption{Claims, continued.}") == 2
    assert all(f"claim {k} &" in source for k in range(25))


def test_escapes_one_by_one():
    assert latex("50% of a_b & {c} #1 $x$") == "50\\% of a\\_b \\& \\{c\\} \\#1 \\$x\\$"
    assert latex("\\input{/etc/passwd}") == "\\textbackslash{}input\\{/etc/passwd\\}"
    assert latex("1 ± 2 <3> ~^") == "1 $\\pm$ 2 $<$3$>$ \\textasciitilde{}\\textasciicircum{}"


def test_a_document_takes_all_tables_in():
    assert latex_document(["table1", "table2"]) == (
        "\\documentclass[a4paper,landscape]{article}\n\\begin{document}\n\\input{table1.tex}\n\\clearpage\n\\input{table2.tex}\n\\clearpage\n"
        "\\end{document}\n"
    )


def test_markdown_keeps_its_columns_whatever_the_names():
    lines = to_markdown(hostile_table()).splitlines()
    table = [line for line in lines if line.startswith("|")]
    for line in table:
        assert len(re.findall(r"(?<!\\)\|", line)) == 5
    assert "<b>" not in "\n".join(lines)
    assert to_texts(hostile_table())[1] == [HOSTILE, "", "", ""]


def test_parts_survive_json():
    import json

    for part in results().parts:
        assert Part.from_dict(json.loads(json.dumps(part.as_dict()))) == part


def test_hog_has_nothing_of_a_tuned_network():
    found = make_recipes(1.0, {"descriptor.backbone": "tuned.onnx", "descriptor.mode": "crop"})
    assert found[SMALL][0].options.descriptor.backbone == "tuned.onnx"
    plain_descriptor(found[HOG][0].options.descriptor)  # which refuses a network of one's own
