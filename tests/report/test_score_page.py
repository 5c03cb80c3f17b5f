"""The page about a score table: what it counts is what loops count, and no text in it becomes markup."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from eesvm import JointCalibrator, recall_frontier
from eesvm.calibration.calibrators.joint import spreads
from eesvm.calibration.held_out import HeldOut, Share
from eesvm.calibration.tables.examples import synthetic_score_table
from eesvm.calibration.tables.fit import fit_table
from eesvm.calibration.tables.score_table import ScoreTable, write_score_table
from eesvm.cli import main
from eesvm.report.score_facts import table_facts
from eesvm.report.score_page import ScoreReport, render


def fitted(seed=0, **options):
    table = synthetic_score_table(5, 40, 150, "overlapping", seed)
    calibrator = JointCalibrator(n_jobs=1, **options)
    return table, calibrator, fit_table(table, calibrator)


def report(table, calibrator, problem, **more):
    labels = np.asarray(table.labels)
    rows = np.flatnonzero(labels == 1), np.flatnonzero(labels == 0)
    units = spreads(problem.positive_scores, problem.negative_scores)
    return ScoreReport("A title", problem, calibrator, table.names, units, rows, **more)


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_those_of_a_loop(seed):
    table, calibrator, problem = fitted(seed, min_recall=0.9)
    limits = calibrator.thresholds_
    facts = table_facts(problem, limits, table.names, np.ones(5))
    for j, each in enumerate(facts.detectors):
        for scores, count, alone in (
            (problem.positive_scores, each.positives, each.positives_alone),
            (problem.negative_scores, each.negatives, each.negatives_alone),
        ):
            above = [[k for k in range(5) if row[k] > limits[k]] for row in scores]
            assert count == sum(j in rows for rows in above)
            assert alone == sum(rows == [j] for rows in above)
        assert each.positive_counts.sum() == problem.n_positives
        without = limits.copy()
        without[j] = np.inf
        assert facts.n_alarms - each.negatives_alone == problem.accepts(without).sum()
    assert facts.n_missed == (~problem.covers(limits)).sum()
    assert [near.row for near in facts.missed] == sorted(
        np.flatnonzero(~problem.covers(limits)).tolist(), key=lambda p: -(problem.positive_scores[p] - limits).max()
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_row_that_decides_costs_what_it_says(seed):
    """Raising the threshold to the next positive that needs it loses that row alone, and so many false alarms."""
    table, calibrator, problem = fitted(seed)
    limits = calibrator.thresholds_.astype(float)
    for each in table_facts(problem, calibrator.thresholds_, table.names, np.ones(5)).deciding:
        others = np.delete(problem.positive_scores > limits, each.detector, axis=1).any(axis=1)
        own = np.flatnonzero(~others)
        assert each.row in own
        above = [problem.positive_scores[p, each.detector] for p in own if p != each.row]
        higher = limits.copy()
        higher[each.detector] = np.nextafter(np.float32(min(above, default=np.inf)), np.float32(-np.inf))
        assert np.flatnonzero(problem.covers(limits) & ~problem.covers(higher)).tolist() == [each.row]
        assert problem.accepts(limits).sum() - problem.accepts(higher).sum() == each.saved


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text = [], [], ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_is_whole_and_needs_nothing():
    table, calibrator, problem = fitted()
    held_out = HeldOut(Share(0.8, 0.7, 0.9), Share(0.2, 0.1, 0.3), 1.0, 0.15, 5, False)
    html = render(report(table, calibrator, problem, held_out=held_out, frontier=recall_frontier(problem, [1, 0.9])))
    page = Page(html)
    assert "script" not in page.tags
    assert not re.search(r"https?://|url\(", html)
    for text in ("Which detector catches what", "Who catches the same", "What recall costs", "The rows that decide"):
        assert text in page.text
    assert "80 % expected of new ones (70 % to 90 %)" in page.text
    assert "recall on held-out rows is 80.0 %, not 100.0 %" in page.text
    for name in table.names:
        assert name in page.text


def test_names_and_groups_are_texts():
    scores = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.95, 0.0]])
    table = ScoreTable(
        scores, np.array([1, 1, 0, 0], dtype=np.int8), np.array(["<b>", "&", '"', "d"]),
        exemplar_names=["<script>alert(1)</script>", "{{style}}"],
    )  # fmt: skip
    calibrator = JointCalibrator(n_jobs=1)
    problem = fit_table(table, calibrator)
    groups = table.parted_groups()
    page = Page(render(report(table, calibrator, problem, groups=groups)))
    assert "script" not in page.tags
    assert "<script>alert(1)</script>" in page.text
    assert "{{style}}" in page.text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_loss": 5}, "no thresholds have more recall with a loss of 5 at most"),
        ({"target_recall": 0.9}, "thresholds are for new rows, recall 90 % wanted"),
        ({"method": "greedy"}, "the loss is"),
        ({}, "no thresholds have a loss below"),
    ],
    ids=str,
)
def test_the_page_says_what_is_proven(options, text):
    assert text in Page(render(report(*fitted(**options)))).text


def test_detectors_that_are_off_or_without_a_score():
    scores = np.array([[0.9, np.nan, 0.3], [0.8, np.nan, 0.2], [0.1, np.nan, 0.9], [np.nan, np.nan, np.nan]])
    table = ScoreTable(scores, np.array([1, 1, 0, 0], dtype=np.int8), missing="not-fired")
    calibrator = JointCalibrator(n_jobs=1)
    problem = fit_table(table, calibrator)
    text = Page(render(report(table, calibrator, problem))).text
    assert "1 of 3 detectors accept 2 of 2 positives and 0 of 2 negatives." in text
    assert text.count("switched off") == 3


def test_the_command_writes_it(tmp_path, capsys):
    table, _, _ = fitted()
    write_score_table(tmp_path / "s.npz", table)
    assert main(["calibrate", str(tmp_path / "s.npz"), "-o", str(tmp_path / "out"), "--report", "--jobs", "1"]) == 0
    assert "report.html" in capsys.readouterr().out
    assert "Thresholds for s.npz" in Page((tmp_path / "out" / "report.html").read_text()).text
    assert not (tmp_path / "out" / "recall_frontier.csv").exists()
