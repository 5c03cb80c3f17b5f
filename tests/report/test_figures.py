"""Pictures and the page: drawn for every shape of input, without side effects, and with texts escaped."""

import struct
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from eesvm import CalibrationProblem, recall_frontier, solve
from eesvm._support.figures import png_bytes, save_png
from eesvm.report import figures
from eesvm.report.static_page import DemoPage, Pair, Picture, Section, Table, render
from helpers.examples import few


def size(figure):
    """(width, height) of the PNG; drawing raises where something is wrong with the figure."""
    png = png_bytes(figure)
    assert png.startswith(b"\x89PNG")
    return struct.unpack(">II", png[16:24])


def problem(n_exemplars=20, n_positives=50, n_negatives=200, seed=0):
    random = np.random.default_rng(seed)
    return CalibrationProblem(
        random.normal(1, 1, (n_positives, n_exemplars)), random.normal(size=(n_negatives, n_exemplars))
    )


@pytest.mark.parametrize(
    ("history", "seconds", "title"),
    [
        ([(0.1, 5.0, 5.0)], 0.1, "Loss 5, proven optimal"),
        ([(0.0, 0.0, 0.0)], 0.0, "Loss 0, proven optimal"),
        ([(0.01, 2000.0, 10.0), (1, 1500.0, 10.0), (50, 1500.0, 1000.0)], 60,
         "Loss 1,500, at least 1,000 is unavoidable (gap 33.3 %), stopped by the time limit"),
        ([], None, "Loss and lower bound over time"),
        ([(k / 10, 1000.5 - k, float(k)) for k in range(400)], None,
         "Loss 601.5, at least 399 is unavoidable (gap 33.7 %), stopped by the time limit"),
    ],
)  # fmt: skip
def test_loss_and_bound(history, seconds, title):
    figure = figures.loss_and_bound(history, "time_limit", seconds)
    assert figure.axes[0].get_title(loc="left") == title
    assert size(figure) == (1080, 630)


@pytest.mark.parametrize(
    ("floors", "ticks", "title"),
    [
        ([1], ["0 %"], "Loss and lower bound over recall floors"),
        ([0.9], ["10 %"], "Loss and lower bound over recall floors"),
        ([0.9, 0.5], ["10 %", "50 %"], "Loss and lower bound over recall floors"),
        ([1, 0.99, 0.5], ["0 %", "1 %", "50 %"], "The hardest 1 % of the positives cause 50 % of the loss at recall 1"),
        (1 - np.arange(50) / 100, None, "The hardest 1 % of the positives cause 50 % of the loss at recall 1"),
    ],
)
def test_recall_frontier(floors, ticks, title):
    # Each positive has a negative of its own above it; that of the hardest weighs as much as all the others.
    scores, weights = np.arange(100.0)[:, None], np.append(99.0, np.ones(99))
    example = CalibrationProblem(scores, scores, negative_weights=weights)
    figure = figures.plot_recall_frontier(recall_frontier(example, floors))
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == ticks if ticks else labels[0] == "0 %" and labels[-1] == "49 %" and len(labels) < 12
    assert figure.axes[0].get_title(loc="left") == title
    assert size(figure) == (1080, 630)


def test_recall_frontier_without_a_proof_or_a_loss():
    rough = recall_frontier(problem(), time_limit=0)
    assert (rough.lower_bounds < rough.losses).any()
    assert size(figures.plot_recall_frontier(rough)) == (1080, 630)
    perfect = CalibrationProblem([[2.0], [3.0]], [[0.0], [1.0]])
    assert size(figures.plot_recall_frontier(recall_frontier(perfect))) == (1080, 630)


@pytest.mark.parametrize("n_exemplars", few([1, 13, 200, 2, 12], 3))
def test_thresholds_and_scores(n_exemplars):
    example = problem(n_exemplars)
    thresholds = solve(example, method="greedy").thresholds
    figure = figures.thresholds_and_scores(
        example, thresholds, [f"a very long name of detector {j}" for j in range(n_exemplars)]
    )
    assert len(figure.axes[0].get_yticks()) == min(n_exemplars, 12)
    assert size(figure)[0] == 1080
    if n_exemplars > 1:
        thresholds[:] = np.inf
        thresholds[0] = example.positive_scores[:, 0].min() - 1
        assert size(figures.thresholds_and_scores(example, thresholds))[0] == 1080


def test_precision_recall_curves():
    labels = np.array([1, 0, 1, 0, 0])
    scores = {"good": [5, 1, 4, 2, 3], "with infinities": [-np.inf, 1, 4, 2, 3], "constant": [1, 1, 1, 1, 1]}
    figure = figures.precision_recall_curves(labels, scores, {"good": np.array(scores["good"]) > 3.5})
    texts = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert texts[0] == "good (average precision 100.0)"
    assert size(figure) == (1080, 630)


@pytest.mark.parametrize(
    ("assignment", "active", "title"),
    [
        ([0, 0, 1], [True, True, False], "2 of 3 detectors are responsible for the positives"),
        ([0, -1], [True, True], "1 of 2 detectors are responsible for the positives, 1 positives are left out"),
        ([0], [True], "1 of 1 detectors are responsible for the positives"),
        (np.arange(300) % 70, np.arange(100) < 80, "70 of 100 detectors are responsible for the positives"),
    ],
)
def test_coverage(assignment, active, title):
    figure = figures.coverage(assignment, active)
    assert figure.axes[0].get_title(loc="left") == title
    assert size(figure) == (1080, 630)


def test_no_global_state_and_the_same_bytes_every_time(tmp_path):
    history = [(0.1, 5.0, 1.0)]
    save_png(figures.loss_and_bound(history), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes() == png_bytes(figures.loss_and_bound(history))
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


class Outline(HTMLParser):
    """Checks that tags are closed in order, and collects texts and addresses."""

    def __init__(self, page):
        super().__init__()
        self.open, self.texts, self.sources, self.tags = [], [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        values = dict(attributes)
        self.sources += [values[name] for name in ("src", "href") if name in values]
        if tag == "img":
            assert values["alt"]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page_is_whole_escaped_and_needs_no_network():
    evil = "<script>alert('x')</script> & \"quotes\" {braces}"
    ink = np.eye(8)
    png = png_bytes(figures.coverage([0], [True]))
    section = Section(
        evil,
        [evil],
        [Table(evil, [evil, evil], [[evil, evil]])],
        [Picture(png, evil, evil)],
        [Pair(ink, ink, evil, True)],
    )
    outline = Outline(render(DemoPage(evil, evil, [section, Section("empty")], evil)))
    assert "script" not in outline.tags
    places = ["title", "h1", "summary", "h2", "p", "caption", *["th"] * 3, "td", "figcaption", "pair", "footer"]
    assert sum(evil in text for text in outline.texts) == len(places)
    assert len(outline.sources) == 3
    assert all(source.startswith("data:image/png;base64,") for source in outline.sources)
    assert {"header", "main", "footer", "section", "figure", "figcaption", "caption"} <= set(outline.tags)
